-- dead_counts("t<tenant>" or ''): returns per group: lane name, status, reason, jobs, when the newest ended
local NAMES = P .. 'names'
local tenant = ARGV[1] ~= '' and (call('HGET', NAMES, ARGV[1]) or '')
local result = {}
for _, group in ipairs(call('SMEMBERS', P .. 'dead-groups')) do
    local lane, whose, status, reason = group:match('^(%d+):(%d+):(.):(.*)$')
    if not tenant or tenant == whose then
        local key = P .. 'dead:' .. group
        local newest = call('ZRANGE', key, 0, 0, 'REV', 'WITHSCORES')
        result[#result + 1] = {call('HGET', NAMES, '=' .. lane), status, reason, call('ZCARD', key),
            tonumber(newest[2])}
    end
end
return result
