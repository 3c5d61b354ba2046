-- counts(now, "t<tenant>" or ''): returns the tenant's number (0: all of them), now, then per lane its
-- name, counts ("<status>", jobs, …), how many of all tenants are not yet due, since when the oldest
-- is due (-1: none), how many of all tenants are Queued, the sets in which any may be ready
local NAMES = P .. 'names'
local now = clock(ARGV[1])
local tenant, key = 0, P .. 'counts'
if ARGV[2] ~= '' then
    tenant = tonumber(call('HGET', NAMES, ARGV[2]) or -1)
    key = key .. ':' .. tenant
end
local counted, lanes, result = call('HGETALL', key), {}, {tenant, now}
for index = 1, #counted, 2 do
    local lane, status = counted[index]:match('^(%d+):(.)')
    lanes[lane] = lanes[lane] or {}
    table.insert(lanes[lane], status)
    table.insert(lanes[lane], tonumber(counted[index + 1]))
end
local suspects = {}
for _, group in ipairs(call('SMEMBERS', P .. 'suspects')) do
    local lane = group:match('^%d+')
    suspects[lane] = suspects[lane] or {}
    table.insert(suspects[lane], 'ready:' .. group)
end
for lane, statuses in pairs(lanes) do
    local scheduled, oldest, sets = 0, -1, suspects[lane] or {}
    local names = call('EXISTS', P .. 'groups:' .. lane) == 1 and {'ready:', 'grouped:'} or {'ready:'}
    for _, name in ipairs(names) do
        for rank = 0, 3 do
            table.insert(sets, name .. lane .. ':' .. rank)
        end
    end
    for _, set in ipairs(sets) do
        local ready = P .. set
        scheduled = scheduled + call('ZCOUNT', ready, string.format('(%.17g', now), '+inf')
        local first = call('ZRANGEBYSCORE', ready, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)
        if first[2] and (oldest < 0 or tonumber(first[2]) < oldest) then
            oldest = tonumber(first[2])
        end
    end
    local queued = tonumber(call('HGET', P .. 'counts', lane .. ':Q') or 0)
    result[#result + 1] = {call('HGET', NAMES, '=' .. lane), statuses, scheduled, oldest, queued,
        sets}
end
return result
