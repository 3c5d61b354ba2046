-- counts(now, "t<tenant>" or ''): returns the tenant's number (0: all of them), now, then per lane number,
-- name, counts ("<status>", jobs, …), how many of all tenants are not yet due, since when the oldest
-- is due (-1: none), how many of all tenants are Queued, the ranks in which any may be ready
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
    local lane, rank = group:match('^(%d+):(%d+)$')
    suspects[lane] = suspects[lane] or {}
    table.insert(suspects[lane], tonumber(rank))
end
for lane, statuses in pairs(lanes) do
    local scheduled, oldest, ranks = 0, -1, {0, 1, 2, 3, unpack(suspects[lane] or {})}
    for _, rank in ipairs(ranks) do
        local ready = P .. 'ready:' .. lane .. ':' .. rank
        scheduled = scheduled + call('ZCOUNT', ready, string.format('(%.17g', now), '+inf')
        local first = call('ZRANGEBYSCORE', ready, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)
        if first[2] and (oldest < 0 or tonumber(first[2]) < oldest) then
            oldest = tonumber(first[2])
        end
    end
    local queued = tonumber(call('HGET', P .. 'counts', lane .. ':Q') or 0)
    result[#result + 1] = {tonumber(lane), call('HGET', NAMES, '=' .. lane), statuses, scheduled, oldest, queued,
        ranks}
end
return result
