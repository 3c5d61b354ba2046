-- dump_records(namespace, from, limit): answers key and record of each, in order
local keys = call('ZRANGE', P .. 'record-keys:' .. ARGV[1], ARGV[2], '+', 'BYLEX', 'LIMIT', 0, ARGV[3])
local answer = {}
for _, key in ipairs(keys) do
    answer[#answer + 1] = key
    answer[#answer + 1] = call('HGET', P .. 'records:' .. ARGV[1], key)
end
return answer
