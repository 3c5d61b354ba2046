-- dump_records(namespace, from, limit): returns key and record of each, in order
local keys = call('ZRANGE', P .. 'record-keys:' .. ARGV[1], ARGV[2], '+', 'BYLEX', 'LIMIT', 0, ARGV[3])
local result = {}
for _, key in ipairs(keys) do
    result[#result + 1] = key
    result[#result + 1] = call('HGET', P .. 'records:' .. ARGV[1], key)
end
return result
