-- dump_keys(first, limit): keys that are held for a time, in the order in which they end
-- Returns how many it has checked, then per key: digest, who holds it, its request or '', the envelope
-- of its job or '', its names or ''
local digests = call('ZRANGE', KEY_ENDS, ARGV[1], tonumber(ARGV[1]) + tonumber(ARGV[2]) - 1)
local result = {#digests}
for _, digest in ipairs(digests) do
    local held = call('HGET', HELD, digest)
    local job = held and held:sub(1, 16)
    if held and (is_stored(job) or call('HGET', EXTERNAL, job) ~= digest) then
        result[#result + 1] = {digest, held, call('HGET', REQUESTS, job) or '', call('HGET', JOBS, job) or '',
                               call('HGET', P .. 'key-names', digest) or ''}
    end
end
return result
