-- Gates. Of each: the instant at which the next start would be due at an even rate (GCRA), as whole microseconds and
-- the rest of one; and until when it is closed. 0: never used.
local GATES = P .. 'gates'
local GATE = '>I8dI8'

local function read_gate(name)
    local gate = call('HGET', GATES, name)
    if not gate then
        return 0, 0, 0
    end
    return read(GATE, gate)
end

local function write_gate(name, next_at, rest, closed_until)
    call('HSET', GATES, name, pack(GATE, next_at, rest, closed_until))
end
