-- renew(now, session, lease, then per run: job id, token)
-- Returns one letter per run: 'k' kept, 'c' kept and to be cancelled, 'l' lost
local now, length = clock(ARGV[1]), tonumber(ARGV[3])
local session, group = ARGV[2], lease_group(length, ARGV[2])
local key, till = lease_key(group), decimal(later(now, length))
local results, leased = {}, {}

-- Give a run a lease of another length than it had.
local function move(id, state, from)
    local before = #state - #(select(3, parts_of(state))) + 41
    call('ZREM', lease_key(from), id .. member_end(state))
    call('ZADD', key, till, id .. member_end(state))
    call('HSET', STATES, id, state:sub(1, before) .. group .. state:sub(before + #from + 1))
end

for first = 4, #ARGV, 2 do
    local id, result = ARGV[first], 'l'
    local state = call('HGET', STATES, id)
    if state and state:byte() == RUNNING then
        local _, _, rest = parts_of(state)
        local token, _, cancel, _, from, owner = read_run(rest)
        if token == ARGV[first + 1] and owner == session then
            if from == group then
                leased[#leased + 1] = till
                leased[#leased + 1] = id .. member_end(state)
            else
                move(id, state, from)
            end
            result = cancel == 1 and 'c' or 'k'
        end
    end
    results[#results + 1] = result
end
if #leased > 0 then
    call('ZADD', key, 'XX', unpack(leased))
end
if call('EXISTS', key) == 1 then
    call('ZADD', LEASE_GROUPS, 0, group)
end
return table.concat(results)
