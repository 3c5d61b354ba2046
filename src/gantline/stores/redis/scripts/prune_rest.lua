-- prune_rest(now, limit of keys, limit of records): returns how many of each were removed; gates that nobody used for
-- a day go, too
local now = clock(ARGV[1])
local UNUSED_FOR = 24 * 3600 * 1000000
local gates = call('HGETALL', GATES)
for index = 1, #gates, 2 do
    local next_at, _, closed_until = read(GATE, gates[index + 1])
    if math.max(next_at, closed_until) + UNUSED_FOR < now then
        call('HDEL', GATES, gates[index])
    end
end
local keys = call('ZRANGEBYSCORE', KEY_ENDS, '-inf', now, 'LIMIT', 0, ARGV[2])
for _, digest in ipairs(keys) do
    local held = call('HGET', HELD, digest)
    if held then
        forget_request(held:sub(1, 16), digest)
    end
    free(digest)
end
local records = call('ZRANGEBYSCORE', RECORD_ENDS, '-inf', now, 'LIMIT', 0, ARGV[3])
for _, member in ipairs(records) do
    local length, rest = member:match('^(%d+):(.*)$')
    forget_record(rest:sub(1, tonumber(length)), rest:sub(tonumber(length) + 1))
end
return {#keys, #records}
