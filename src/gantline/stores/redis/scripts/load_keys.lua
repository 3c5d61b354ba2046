-- load_keys(per key: digest, job id, until (0: as long as the job says), fingerprint, its request or '', its
-- kind and names or '')
for index = 1, #ARGV, 6 do
    local digest, job, till, fingerprint, request, names = unpack(ARGV, index, index + 5)
    local kind = names ~= '' and cmsgpack.unpack(names)[1]
    local is_once = kind == 'once'
    if call('HEXISTS', HELD, digest) == 0 then
        call('HSET', HELD, digest, job .. till .. fingerprint)
        local at = read('>I8', till)
        if at ~= 0 then
            call('ZADD', KEY_ENDS, decimal(at), digest)
        elseif is_once then
            call('ZADD', KEY_ENDS, '+inf', digest)
        end
        if kind == 'id' then
            note_external(job, digest)
        end
        if request ~= '' then
            call('HSET', REQUESTS, job, request)
        end
        if is_once or (names ~= '' and call('HEXISTS', JOBS, job) == 0) then
            call('HSET', KEY_NAMES, digest, names)
        end
    end
end
