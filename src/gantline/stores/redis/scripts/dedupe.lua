-- Dedupe keys. What is held: job id, until (0: as long as its job says), fingerprint.
local HELD, KEY_ENDS, REQUESTS, EXTERNAL = P .. 'keys', P .. 'key-ends', P .. 'requests', P .. 'external'

-- The job that holds a key, and the fingerprint; nil where none does.
local function holder(digest, now)
    local held = call('HGET', HELD, digest)
    if not held then
        return nil
    end
    local job, till = read('>c16I8', held)
    if till ~= 0 and till <= now then
        return nil
    end
    return job, held:sub(25)
end

local function forget_request(job, digest)
    local request = call('HGET', REQUESTS, job)
    if request and request:sub(1, 20) == digest then
        call('HDEL', REQUESTS, job)
    end
end

-- Give a key to a job, whoever held it: the caller has checked that. `till` 0: as long as the job says.
local function take(digest, job, till, fingerprint)
    local before = call('HGET', HELD, digest)
    if before then
        forget_request(before:sub(1, 16), digest)
    end
    call('HSET', HELD, digest, pack('>c16I8', job, till) .. fingerprint)
    if till ~= 0 then
        call('ZADD', KEY_ENDS, till, digest)
    elseif before then
        call('ZREM', KEY_ENDS, digest)
    end
end

local function free(digest)
    call('HDEL', HELD, digest)
    call('ZREM', KEY_ENDS, digest)
    call('HDEL', P .. 'key-names', digest)
end

-- A job holds its external id as long as it is stored, and not removed by hand.
local function is_stored(job)
    return call('HEXISTS', JOBS, job) == 1 and call('HEXISTS', STATES, job) == 1
end

local function note_external(job, digest)
    call('ZADD', KEY_ENDS, '+inf', digest)
    call('HSET', EXTERNAL, job, digest)
end

local function free_external(job)
    local digest = call('HGET', EXTERNAL, job)
    if digest then
        free(digest)
        call('HDEL', EXTERNAL, job)
    end
end
