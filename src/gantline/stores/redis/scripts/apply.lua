-- apply(now, then per transition: meta, tail, extras)
--   meta: job id, change id, guard (0: run, 1: state), conditions (1: unless cancelled, 2: only expired,
--         4: sets counters), the status to come, attempt, crashes, snoozes, priority, delay, hold key,
--         the guard's status and version (0: any), event, reason
--   tail: what the log row ends with
--   extras: '' or [the guard's tenant or false, follow-ups, once keys, records, the gate that it closes]; a follow-up
--         is [meta, envelope, extras, lane, tenant, group], a once key [digest, fingerprint, hold or false, names]
-- Returns per transition: the new version | 'S' stale | 'P' a cancel is pending | 'N' not found |
-- conflicts: 'I' the id of a follow-up, 'K' kind a key, 'R' name a record
local TRANSITION = '>c16c16BBc1I4I4I4BI8I8c1I4Bc0Bc0'
local now = clock(ARGV[1])
local now_text = decimal(now)
local claims_ended = {}
local COMPLETED, ENDED_COMPLETED = ('C'):byte(), P .. 'ended:C'

local function has(conditions, one)
    return floor(conditions / one) % 2 == 1
end

-- Whether an operator's change names the job's own tenant. A run is identified by its token.
local function is_in_tenant(change, job)
    return change.guard == 0
        or tonumber(call('HGET', NAMES, 't' .. change.extras[1]) or -1) == job.place.tenant
end

local function refusal_of_guard(change, job)
    if change.guard == 1 then
        return not is_in_state(job.status, job.version, change.from, change.version) and 'S' or nil
    end
    if job.status ~= 'R' or job.token ~= change.id then
        return 'S'
    end
    if has(change.conditions, 2) and leased_until(change.job, job.state) > now then
        return 'S'
    end
    return has(change.conditions, 1) and job.cancel == 1 and 'P' or nil
end

-- Whether the log of a job has the change; `number` is that of its newest row.
local function is_logged(number, change, event)
    while number > 0 do
        local row = read_row(number)
        if not row then
            return false
        end
        local before, logged, _, _, _, _, _, _, _, _, _, what = read(ROW, row)
        if logged == change and what == event then
            return true
        end
        number = before
    end
    return false
end

-- Follow-ups may conflict with what is stored, and with each other.
local function refusal_of_follow_ups(jobs)
    local names = {}
    for _, new in ipairs(jobs) do
        local id = new[1]:sub(1, 16)
        local refused, same = refusal(id, call('HGET', JOBS, id), new[2], new[3], now)
        if refused and not same then
            return refused
        end
        local content = content_of(new[2])
        if names[id] and names[id] ~= content then
            return 'I'
        end
        names[id] = content
        for which, kind in pairs({'request', 'job', [7] = 'id'}) do
            local key = not refused and new[3][which]
            if key then
                if names[key[1]] and names[key[1]] ~= key[2] then
                    return 'K' .. kind
                end
                names[key[1]] = key[2]
            end
        end
    end
    return nil
end

-- All that a transition carries is checked before any of it is written.
local function refusal_of_attachments(change, job)
    if change.event == 'redriven' and job.key ~= '' then
        local other = holder(job.key, now)
        if other and other ~= change.job then
            return 'Kjob'
        end
    end
    if not change.extras then
        return nil
    end
    for _, record in ipairs(change.extras[4]) do
        if not is_allowed(record, now) then
            return 'R' .. record[1] .. '/' .. record[2]
        end
    end
    return refusal_of_follow_ups(change.extras[2])
end

local function leave(change, job, row_before)
    local place = job.place
    if job.status == 'Q' then
        remove_ready(change.job, place, job.rank)
        call('ZREM', EXPIRY, change.job)
    elseif job.status == 'R' then
        write('ZREM', lease_key(job.lease), change.job .. place.member_end)
        if place.changes then
            write('SREM', permits_key(place.lane, place.hex), change.job)
        end
        claims_ended[job.claim] = (claims_ended[job.claim] or 0) + 1
    else
        remove_ended(change.job, place, job.status, reason_of(read_row(row_before)))
    end
    write('ZREM', list_key(place, job.status), job.created .. change.job)
    count(place, job.status, -1)
end

local function arrive(change, job, at)
    local place = job.place
    if change.to == 'Q' then
        add_ready(change.job, place, first_rank(job.crashes) + job.priority, decimal(at))
    else
        add_ended(change.job, place, change.to, change.reason, now_text)
    end
    write('ZADD', list_key(place, change.to), '0', job.created .. change.job)
    count(place, change.to, 1)
end

local function keep_or_free(change, job)
    if change.event == 'redriven' then
        take(job.key, change.job, 0, fingerprint_of(call('HGET', JOBS, change.job)))
        return
    end
    local held = call('HGET', HELD, job.key)
    if held and held:sub(1, 16) == change.job then
        if change.to == 'C' then
            take(job.key, change.job, later(now, change.hold), held:sub(25))
        elseif change.to ~= 'Q' then
            free(job.key)
        end
    end
end

local function write_attachments(change)
    for _, key in ipairs(change.extras[3]) do
        take(key[1], change.job, key[3] and later(now, key[3]) or 0, key[2])
        call('HSET', P .. 'key-names', key[1], key[4])
        if not key[3] then
            call('ZADD', KEY_ENDS, '+inf', key[1])
        end
    end
    for _, record in ipairs(change.extras[4]) do
        write_record(record, now)
    end
end

local function close_gate(name, till)
    if name ~= '' then
        local next_at, rest, closed_until = read_gate(name)
        write_gate(name, next_at, rest, math.max(closed_until, till))
    end
end

local function store_follow_ups(jobs)
    for _, new in ipairs(jobs) do
        local id = new[1]:sub(1, 16)
        touch(id)
        if not refusal(id, call('HGET', JOBS, id), new[2], new[3], now) then
            store(new[1], new[2], new[3], place_of(number_of(new[4]), number_of(new[5]), new[6]), now)
        end
    end
end

local function make(change, job)
    local place, row_before = job.place, job.number
    job.version = job.version + 1
    if has(change.conditions, 4) then
        job.attempt, job.crashes, job.snoozes = change.attempt, change.crashes, change.snoozes
    end
    job.number = write_row(pack(ROW, row_before, change.id, change.job, job.version, change.to, now,
        job.attempt, job.fence, job.started, place.lane, place.tenant, #change.event, change.event,
        #change.reason, change.reason, #job.session, job.session) .. change.tail)
    local at, run = now, ''
    if change.event == 'cancel_requested' then
        at = job.started
        run = run_part(job.token, job.claim, 1, job.percent, job.lease, job.phase)
    else
        if change.extras then
            store_follow_ups(change.extras[2])
        end
        leave(change, job, row_before)
        if has(change.conditions, 4) then
            job.priority = change.priority
        end
        if change.to == 'Q' then
            at = later(now, change.delay)
        end
        arrive(change, job, at)
        if job.key ~= '' then
            keep_or_free(change, job)
        end
        if change.extras then
            write_attachments(change)
            close_gate(change.extras[5], at)
        end
    end
    write('HSET', STATES, change.job, pack(STATE, change.to, job.version, job.attempt, job.crashes, job.snoozes,
        job.fence, job.priority, place.lane, place.tenant, job.number, job.number, job.created, at,
        job.key == '' and 0 or 1, job.listed, place.group) .. job.key .. run)
end

local function job_of(state)
    local status, version, attempt, crashes, snoozes, fence, priority, lane, tenant, number, _, created, at, _,
        listed, group = read(STATE, state)
    local _, key, rest = parts_of(state)
    local started, token, claim, cancel, percent, lease, session, phase = 0, nil, nil, 0, 0, '', '', ''
    if status == 'R' then
        started = at
        token, claim, cancel, percent, lease, session, phase = read_run(rest)
    end
    return {state = state, status = status, version = version, attempt = attempt, crashes = crashes, snoozes = snoozes,
            fence = fence, priority = priority, rank = first_rank(crashes) + priority,
            place = place_of(lane, tenant, group), number = number,
            created = created, listed = listed, key = key, started = started, token = token, claim = claim,
            cancel = cancel, percent = percent, lease = lease, session = session, phase = phase}
end

local function change_of(meta, tail, extras)
    local job, id, guard, conditions, to, attempt, crashes, snoozes, priority, delay, hold, from, version,
        event, reason = read(TRANSITION, meta)
    return {job = job, id = id, guard = guard, conditions = conditions, to = to, attempt = attempt,
            crashes = crashes, snoozes = snoozes, priority = priority, delay = delay, hold = hold, from = from,
            version = version, event = event, reason = reason, tail = tail,
            extras = extras ~= '' and cmsgpack.unpack(extras)}
end

local function apply(change, state)
    -- A job whose envelope was removed by hand cannot run again.
    if not state or (change.guard == 1 and call('HEXISTS', JOBS, change.job) == 0) then
        return 'N'
    end
    local job = job_of(state)
    if not is_in_tenant(change, job) then
        return 'N'
    end
    -- The token of a current run ends it for the first time; anything else may be a repeat.
    if job.token ~= change.id and is_logged(job.number, change.id, change.event) then
        return job.version
    end
    local refused = refusal_of_guard(change, job) or refusal_of_attachments(change, job)
    if not refused then
        make(change, job)
    end
    return refused or job.version
end

local now_packed = pack('>I8', now)

-- The most frequent change: a run completes and carries nothing else; nil for all others. For speed it works by
-- byte positions, as defined by STATE, run_part, TRANSITION and ROW, instead of reading into tables.
local function complete(id, meta, tail, extras, state)
    local guard, conditions, to = meta:byte(33, 35)
    local token = meta:sub(17, 32)
    if guard ~= 0 or conditions ~= 4 or to ~= COMPLETED or extras ~= '' or not state or state:byte() ~= RUNNING
        or state:byte(63) ~= 0 or state:sub(73, 88) ~= token then
        return nil
    end
    local version, placed, created = read('>I4', state, 2) + 1, state:sub(23, 30), state:sub(47, 54)
    local ended = member_end(state)
    local place, versioned, attempt, fence = place_at(ended), pack('>I4', version), meta:sub(36, 39), state:sub(18, 21)
    local lease = state:sub(114, 123 + read('>H', state, 122))
    local number = write_row(state:sub(31, 38) .. token .. id .. versioned .. 'C' .. now_packed .. attempt
        .. fence .. state:sub(55, 62) .. placed .. meta:sub(70) .. lease:sub(9) .. tail)
    local numbered = pack('>I8', number)
    local listed_as, member = created .. id, id .. ended
    write('ZREM', lease_key(lease), member)
    if place.changes then
        write('SREM', permits_key(place.lane, place.hex), id)
    end
    write('ZREM', list_key(place, 'R'), listed_as)
    write('ZADD', list_key(place, 'C'), '0', listed_as)
    write('ZADD', ENDED_COMPLETED, now_text, member)
    write('HSET', STATES, id, 'C' .. versioned .. meta:sub(36, 47) .. fence .. meta:sub(48, 48) .. placed
        .. numbered .. numbered .. created .. now_packed .. state:sub(63, 72))
    count(place, 'R', -1)
    count(place, 'C', 1)
    local claim = state:sub(89, 104)
    claims_ended[claim] = (claims_ended[claim] or 0) + 1
    return version
end

local ids, results = {}, {}
for first = 2, #ARGV, 3 do
    ids[#ids + 1] = ARGV[first]:sub(1, 16)
end
local states = call('HMGET', STATES, unpack(ids))
for index, id in ipairs(ids) do
    local first, state = 3 * index - 1, states[index]
    if touch(id) then
        state = call('HGET', STATES, id)
    end
    local meta, tail, extras = ARGV[first], ARGV[first + 1], ARGV[first + 2]
    results[index] = complete(id, meta, tail, extras, state) or apply(change_of(meta, tail, extras), state)
end
for claim, ended in pairs(claims_ended) do
    local runs = call('HGET', CLAIMS, claim)
    local left = runs and read('>I4', runs) - ended or 0
    if left > 0 then
        call('HSET', CLAIMS, claim, pack('>I4', left) .. runs:sub(5))
    else
        call('HDEL', CLAIMS, claim)
    end
end
write_pending()
write_last_number()
write_counts()
return results
