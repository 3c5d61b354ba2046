-- The names [kind, tenant, scope, key] of keys that neither a job nor a request names. Without them such a key
-- could not be copied to a store that has no digests.
local KEY_NAMES = P .. 'key-names'

-- A job is removed, but the key that it holds may stay.
local function note_key_of(id, state)
    local _, digest = parts_of(state)
    local held = digest ~= '' and call('HGET', P .. 'keys', digest)
    local envelope = held and held:sub(1, 16) == id and call('HGET', JOBS, id)
    if envelope then
        local tenant, job_type = texts_of(envelope)
        call('HSET', KEY_NAMES, digest, cmsgpack.pack({'job', tenant, job_type, key_of(envelope)}))
    end
end
