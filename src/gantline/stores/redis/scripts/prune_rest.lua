-- prune_rest(now, limit of keys, limit of records): returns how many of each were removed
local now = clock(ARGV[1])
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
