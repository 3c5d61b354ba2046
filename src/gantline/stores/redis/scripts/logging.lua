-- Writing to the log.
local last_number
local opened = {}

local function write_row(row)
    last_number = (last_number or tonumber(call('GET', LAST_EVENT) or 0)) + 1
    local part = part_of(last_number)
    if not opened[part] then
        opened[part] = P .. 'log:' .. part
        call('ZADD', PARTS, part, part)
    end
    write('HSET', opened[part], decimal(last_number), row)
    return last_number
end

local REASONS = {submitted = 'Submitted', started = 'Started', progressed = 'Progressed'}
local NO_CHANGE = string.rep('\0', 16)

-- A row for an event on request, which is no outcome. It is never repeated, so it has no change id.
local function write_event(before, id, version, status, now, attempt, fence, started, place, event, session, tail)
    local reason = REASONS[event]
    return write_row(pack(ROW, before, NO_CHANGE, id, version, status, now, attempt, fence, started, place.lane,
        place.tenant, #event, event, #reason, reason, #session, session) .. tail)
end

local function write_last_number()
    if last_number then
        call('SET', LAST_EVENT, decimal(last_number))
    end
end
