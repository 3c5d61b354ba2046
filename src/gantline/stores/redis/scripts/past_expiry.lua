-- past_expiry(now, limit)
-- Returns the ids of jobs that have expired. It removes what is left of jobs of which a row was removed by hand:
-- then there may be more.
local found = call('ZRANGEBYSCORE', EXPIRY, '-inf', decimal(clock(ARGV[1])), 'LIMIT', 0, ARGV[2])
local result = {}
for _, id in ipairs(found) do
    local state = call('HGET', STATES, id)
    local is_new = state and state:byte() == QUEUED and read('>I4', state, 2) == 1
    if is_new and call('HEXISTS', JOBS, id) == 1 then
        result[#result + 1] = id
    else
        call('ZREM', EXPIRY, id)
    end
end
return result
