-- claim(now, session, claim id, lease, tokens, then per queue: limit, lanes, suspects, limits, flows, then per lane:
-- its name, whether a start is an event)
-- `tokens`: 16 random bytes for each run that may start.
-- `suspects`: '' for all jobs but suspects; or how many suspects of each number of crashes, four bytes each.
-- `limits`: '' or how many of each lane, four bytes each.
-- `flows`: '' or [index of the lane, type, runs of each group or false, runs in all or false, gate or false] of each
-- type that has any, a gate as [name, starts a second, burst].
-- Returns now, the end of the leases, then per run: job id, state, envelope, since when it was due;
-- for a repeated claim the last is -1, and the end of the leases is 0: then the ends follow after all
-- runs, one per run.
-- 'N' where the session is not registered: nothing is started.
local now = clock(ARGV[1])
local session, claim, till, tokens = ARGV[2], ARGV[3], later(now, tonumber(ARGV[4])), ARGV[5]
local group = lease_group(tonumber(ARGV[4]), session)

local function repeated(known)
    local result = {now, 0}
    local ends = {}
    for first = 5, #known, 16 do
        local id = known:sub(first, first + 15)
        local state, envelope = call('HGET', STATES, id), call('HGET', JOBS, id)
        if state and envelope and state:byte() == RUNNING then
            local _, _, rest = parts_of(state)
            if rest:sub(17, 32) == claim then
                for _, value in ipairs({id, state, envelope, -1}) do
                    result[#result + 1] = value
                end
                ends[#ends + 1] = leased_until(id, state)
            end
        end
    end
    for _, value in ipairs(ends) do
        result[#result + 1] = value
    end
    return result
end

local known = call('HGET', CLAIMS, claim)
if known then
    return repeated(known)
end
if not record_of('sessions', session, now) then
    return 'N'
end

local now_text = decimal(now)

-- Due jobs of one lane and rank, read as they are needed.
local function read_lane(lane)
    local found = call('ZRANGEBYSCORE', lane.key, '-inf', now_text, 'WITHSCORES', 'LIMIT', lane.read, lane.limit)
    lane.found, lane.at, lane.read = found, 1, lane.read + lane.limit
    lane.may_have_more = #found == 2 * lane.limit
end

local function first_of(lanes)
    local best
    for _, lane in ipairs(lanes) do
        if lane.at > #lane.found and lane.may_have_more then
            read_lane(lane)
        end
        if lane.at < #lane.found then
            lane.due = tonumber(lane.found[lane.at + 1])
            if not best or lane.due < best.due
                or (lane.due == best.due and is_before(lane.found[lane.at], best.found[best.at])) then
                best = lane
            end
        end
    end
    return best
end

local members, started_as_events = {}, {}

-- `may_start`: which of them may start, and whether no more of its lane may; nil: all.
local function take_in_order(lanes, left, may_start)
    local lane = first_of(lanes)
    while left > 0 and lane do
        local member = lane.found[lane.at]
        lane.at = lane.at + 2
        local may, is_closed = true, false
        if may_start then
            may, is_closed = may_start(lane.lane, member)
        end
        if may then
            lane.taken[#lane.taken + 1] = member
            members[#members + 1] = member
            left = left - 1
        end
        if is_closed or #lane.taken == lane.most then
            lane.found, lane.may_have_more = {}, false
        end
        lane = may ~= nil and left > 0 and first_of(lanes)
    end
    for _, one in ipairs(lanes) do
        if #one.taken > 0 then
            call('ZREM', one.key, unpack(one.taken))
        end
    end
    return left
end

local function take_from_one(key, left)
    local found = call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, left)
    if #found > 0 then
        call('ZREMRANGEBYRANK', key, 0, #found - 1)
        local before = #members
        for index, member in ipairs(found) do
            members[before + index] = member
        end
    end
    return left - #found
end

-- `most`: how many of each lane may be taken; of one that it does not have, any number.
local function take_from_many(lanes, rank, left, most, may_start)
    -- With many lanes, few jobs of each are read, since most of them would not be used.
    local opened, limit = {}, min(left, math.max(1, floor(64 / #lanes)))
    for _, lane in ipairs(lanes) do
        local one = {lane = lane, key = ready_key(lane, rank), limit = limit, read = 0, taken = {}, most = most[lane]}
        if one.most ~= 0 then
            read_lane(one)
            if #one.found > 0 then
                opened[#opened + 1] = one
            end
        end
    end
    left = take_in_order(opened, left, may_start)
    for _, one in ipairs(opened) do
        most[one.lane] = one.most and one.most - #one.taken
    end
    return left
end

-- Take due jobs of every priority; `rank` is that of the first. `by_turns`: nil where that is not needed.
local function take(lanes, rank, left, most, by_turns)
    if #lanes == 1 then
        left = min(left, most[lanes[1]] or left)
    end
    for one = rank, #lanes > 0 and rank + PRIORITIES - 1 or -1 do
        if left > 0 and by_turns and one < PRIORITIES then
            left = by_turns.take(one, left)
        elseif left > 0 and #lanes == 1 and not by_turns then
            left = take_from_one(ready_key(lanes[1], one), left)
        elseif left > 0 then
            left = take_from_many(lanes, one, left, most, by_turns and by_turns.may_start)
        end
    end
end

-- The lanes among those named in which anything is Queued, whether their starts are events, and how many of
-- each may be taken, and what limits and gates they have.
local function lanes_with_jobs(first, names, limits, flows)
    local asked, known, fields, lanes, logged, most, flow_of = {}, {}, {}, {}, {}, {}, {}
    for index = first, first + 2 * names - 1, 2 do
        asked[#asked + 1] = ARGV[index]
    end
    for index, lane in ipairs(call('HMGET', P .. 'names', unpack(asked))) do
        if lane then
            known[#known + 1], fields[#fields + 1] = lane, lane .. ':Q'
            logged[tonumber(lane)] = ARGV[first + 2 * index - 1] == '1'
            most[lane] = limits ~= '' and read('>I4', limits, 4 * index - 3) or nil
            flow_of[lane] = flows[index]
        end
    end
    for index, queued in ipairs(#known > 0 and call('HMGET', P .. 'counts', unpack(fields)) or {}) do
        if queued then
            lanes[#lanes + 1] = known[index]
        end
    end
    return lanes, logged, most, flow_of
end

-- Of the suspects that are due, take those that were in the most crashes. `numbers`: how many, by crashes.
local function take_suspects(lanes, limit, numbers, most, by_turns)
    local is_asked, ready, before = {}, {}, #members
    for _, lane in ipairs(lanes) do
        is_asked[lane] = true
    end
    for _, ranked in ipairs(call('SMEMBERS', SUSPECTS)) do
        local lane, rank = ranked:match('^(%d+):(%d+)$')
        if is_asked[lane] then
            local first = rank - rank % PRIORITIES
            ready[first] = ready[first] or {}
            ready[first][lane] = true
        end
    end
    for crashes = MOST_CRASHES_COUNTED, SUSPECT_AFTER_CRASHES, -1 do
        local requested = min(limit, (read('>I4', numbers, 4 * (crashes - SUSPECT_AFTER_CRASHES) + 1)))
        local first, of_these = first_rank(crashes), {}
        for lane in pairs(ready[first] or {}) do
            of_these[#of_these + 1] = lane
        end
        take(of_these, first, requested, most, by_turns)
        if #members > before then
            for _, lane in ipairs(of_these) do
                for rank = first, first + PRIORITIES - 1 do
                    forget_empty_rank(lane, rank)
                end
            end
            return
        end
    end
end

local function read_flows(packed)
    local flows = {}
    for _, flow in ipairs(packed ~= '' and cmsgpack.unpack(packed) or {}) do
        flows[flow[1]] = {job_type = flow[2], running = flow[3], in_all = flow[4], gate = flow[5]}
    end
    return flows
end

local turns
local at = 6
while at <= #ARGV do
    local limit, names, suspects, before = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2], #members
    if suspects == '' or call('EXISTS', SUSPECTS) == 1 then
        local lanes, logged, most, flows = lanes_with_jobs(at + 5, names, ARGV[at + 3], read_flows(ARGV[at + 4]))
        if ARGV[at + 4] ~= '' or suspects == '' and call('EXISTS', IN_TURNS) == 1 then
            turns = turns or turning(now, members)
        end
        local by_turns = turns and turns.begin(lanes, most, flows) and turns or nil
        if suspects == '' then
            take(lanes, 0, limit, most, by_turns)
        else
            take_suspects(lanes, limit, suspects, most, by_turns)
        end
        if by_turns then
            by_turns.finish_request()
        end
        for index = before + 1, #members do
            started_as_events[index] = logged
        end
    end
    at = at + 5 + 2 * names
end
if turns then
    turns.finish()
end
if #members == 0 then
    return {now, till}
end

local ids, gone = {}, 0
for index, member in ipairs(members) do
    ids[index] = member:sub(1, 16)
end
local states, envelopes = call('HMGET', STATES, unpack(ids)), call('HMGET', JOBS, unpack(ids))
local result, size, till_text, leases = {now, till}, 2, decimal(till), lease_key(group)
local run_start = claim .. pack('>Bd', 0, 0) .. group .. pack('>H', 0)
local now_packed = pack('>I8', now)
for index, id in ipairs(ids) do
    local state, envelope = states[index], envelopes[index]
    local is_queued = state and state:byte() == QUEUED
    if is_queued and envelope then
        -- By byte positions, as defined by STATE: few of the fields change.
        local version, attempt, counters, fence = read('>I4I4c8I4', state, 2)
        local place, listed_as, due = place_at(member_end(state)), state:sub(47, 54) .. id, read('>I8', state, 55)
        local numbered = state:sub(31, 38)
        if started_as_events[index][place.lane] then
            numbered = pack('>I8', write_event((read('>I8', numbered)), id, version + 1, 'R', now, attempt + 1,
                fence + 1, now, place, 'started', session, ''))
        end
        state = pack('>c1I4I4c8I4', 'R', version + 1, attempt + 1, counters, fence + 1) .. state:sub(22, 30)
            .. numbered .. state:sub(39, 54) .. now_packed .. state:sub(63)
            .. tokens:sub(index * 16 - 15, index * 16) .. run_start
        write('HSET', STATES, id, state)
        write('ZADD', leases, till_text, members[index])
        if place.changes then
            write('SADD', permits_key(place.lane, place.hex), id)
        end
        write('ZREM', list_key(place, 'Q'), listed_as)
        write('ZADD', list_key(place, 'R'), '0', listed_as)
        count(place, 'Q', -1)
        count(place, 'R', 1)
        result[size + 1], result[size + 2], result[size + 3], result[size + 4] = id, state, envelope, due
        size = size + 4
    else
        remove_leftovers(members[index], 'Q', is_queued and state)
        ids[index], gone = '', gone + 1
    end
end
if call('EXISTS', EXPIRY) == 1 then
    call('ZREM', EXPIRY, unpack(ids))
end
if gone < #ids then
    call('ZADD', LEASE_GROUPS, 0, group)
    call('HSET', CLAIMS, claim, pack('>I4', #ids - gone) .. table.concat(ids))
end
write_pending()
write_last_number()
write_counts()
return result
