-- Where a job stands. Behind the fixed part: the digest of its key if it has one (20 bytes); and while
-- it is Running the token (16), the claim id (16), whether to cancel (1), percent (8), session, phase.
--
-- status, version, attempt, crashes, snoozes, fence, priority, lane, tenant, the sequence numbers of its
-- newest log row and of the newest that tells an outcome (0: none), created_at as lists sort it, run_at |
-- started_at | ended_at, whether it has a key, whether it is in any of LISTS.
local STATE_START = '>c1I4I4I4I4I4BI4I4'
local STATE = STATE_START .. 'I8I8c8I8BB'
local STATE_SIZE = 64

-- An envelope: the length of the fingerprint, the fingerprint, then an array that begins with tenant,
-- type, subject, owner, queue, correlation, key and parent (see envelope.py). What comes behind those, no
-- script can read.
local function fingerprint_of(envelope)
    return envelope:sub(2, envelope:byte() + 1)
end

local ARRAY_HEAD = 3

local function texts_of(envelope)
    local _, tenant, job_type, subject, owner =
        cmsgpack.unpack_limit(envelope, 4, envelope:byte() + 1 + ARRAY_HEAD)
    return tenant, job_type, subject, owner
end

-- Where a job is listed beside the list of its status, by what it has; in the order in which callers say it.
local LISTS = {'by-owner:', 'by-subject:', 'by-correlation:', 'by-parent:'}

local function listed_by(envelope)
    local _, _, _, subject, owner, _, correlation, _, parent =
        cmsgpack.unpack_limit(envelope, 8, envelope:byte() + 1 + ARRAY_HEAD)
    return {owner, subject, correlation or '', parent}
end

local function key_of(envelope)
    local key = select(8, cmsgpack.unpack_limit(envelope, 7, envelope:byte() + 1 + ARRAY_HEAD))
    return key
end

-- The fixed part, the key ('' if none), and the rest, of a run.
local function parts_of(state)
    if state:byte(STATE_SIZE - 1) == 0 then
        return state:sub(1, STATE_SIZE), '', state:sub(STATE_SIZE + 1)
    end
    return state:sub(1, STATE_SIZE), state:sub(STATE_SIZE + 1, STATE_SIZE + 20), state:sub(STATE_SIZE + 21)
end

local function run_part(token, claim, cancel, percent, session, phase)
    return token .. claim .. pack('>BdHc0Hc0', cancel, percent, #session, session, #phase, phase)
end

-- token, claim id, whether to cancel, percent, session, phase
local function read_run(rest)
    local cancel, percent, session, phase = read('>BdHc0Hc0', rest, 33)
    return rest:sub(1, 16), rest:sub(17, 32), cancel, percent, session, phase
end

local function is_of_run(rest, token)
    return rest:sub(1, 16) == token
end
