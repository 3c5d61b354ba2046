-- read_records(now, namespace, from, to, limit): `from` and `to` as ZRANGE BYLEX wants them
-- Returns whether there may be more after the last one read, its key, then key and record of
-- those that have not expired.
local now = clock(ARGV[1])
local namespace, limit = ARGV[2], tonumber(ARGV[5])
local keys = call('ZRANGE', P .. 'record-keys:' .. namespace, ARGV[3], ARGV[4], 'BYLEX', 'LIMIT', 0, limit)
local result = {#keys == limit and 1 or 0, keys[#keys] or ''}
if #keys > 0 then
    for index, record in ipairs(call('HMGET', P .. 'records:' .. namespace, unpack(keys))) do
        local _, _, expires = read('>I8I8I8', record)
        if expires == 0 or expires > now then
            result[#result + 1] = keys[index]
            result[#result + 1] = record
        end
    end
end
return result
