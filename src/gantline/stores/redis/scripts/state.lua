-- The state of a job. After the fixed part: the digest of its key if it has one (20 bytes); and while
-- it is Running the token (16), the claim id (16), whether to cancel (1), percent (8), the group of its lease
-- (its length (8), session), phase.
--
-- status, version, attempt, crashes, snoozes, fence, priority, lane, tenant, the sequence numbers of its
-- newest log row and of the newest with an outcome (0: none), created_at as lists sort it, run_at |
-- started_at | ended_at, whether it has a key, whether it is in any of LISTS or has an external id, the number of
-- its group (PLAIN: none).
local STATE_START = '>c1I4I4I4I4I4BI4I4'
local STATE = STATE_START .. 'I8I8c8I8BBc8'
local STATE_SIZE = 72
local PLAIN = string.rep('\0', 8)
local LEASE_GROUP = '>I8Hc0'
local QUEUED, RUNNING = ('Q'):byte(), ('R'):byte()

-- The fixed part, the key ('' if none), and the rest, of a run.
local function parts_of(state)
    if state:byte(63) == 0 then
        return state:sub(1, STATE_SIZE), '', state:sub(STATE_SIZE + 1)
    end
    return state:sub(1, STATE_SIZE), state:sub(STATE_SIZE + 1, STATE_SIZE + 20), state:sub(STATE_SIZE + 21)
end

-- Whether a job is as a guard of its state says; version 0: any.
local function is_in_state(status, version, expected_status, expected_version)
    return status == expected_status and (expected_version == 0 or expected_version == version)
end

-- What a member has after the job id: lane, tenant, and the number of its group if it has one.
local function member_end(state)
    local group = state:sub(65, 72)
    return group == PLAIN and state:sub(23, 30) or state:sub(23, 30) .. group
end

-- Of which group the lease of a run is.
local function group_of(rest)
    return rest:sub(42, 51 + read('>H', rest, 50))
end
