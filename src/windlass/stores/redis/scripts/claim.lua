-- claim(now, session, claim id, lease, tokens, then per queue: limit, lanes, then per lane: its name,
-- whether a start is an event)
-- `tokens`: 16 random bytes for each run that may start.
-- Answers now, the end of the leases, then per run: job id, state, envelope, since when it was due;
-- for a repeated claim the last is -1, and instead of the end of the leases stands 0: then it comes
-- behind the others, once per run.
local now = clock(ARGV[1])
local session, claim, till, tokens = ARGV[2], ARGV[3], later(now, tonumber(ARGV[4])), ARGV[5]

local function repeated(known)
    local answer = {now, 0}
    local ends = {}
    for first = 5, #known, 16 do
        local id = known:sub(first, first + 15)
        local state = call('HGET', STATES, id)
        if state and state:sub(1, 1) == 'R' then
            local _, _, rest = parts_of(state)
            if rest:sub(17, 32) == claim then
                for _, value in ipairs({id, state, call('HGET', JOBS, id), -1}) do
                    answer[#answer + 1] = value
                end
                ends[#ends + 1] = tonumber(call('ZSCORE', LEASES, id))
            end
        end
    end
    for _, value in ipairs(ends) do
        answer[#answer + 1] = value
    end
    return answer
end

local known = call('HGET', CLAIMS, claim)
if known then
    return repeated(known)
end

-- By bytes: the server compares texts by its locale.
local function is_before(one, other)
    for first = 1, 16, 4 do
        local a, b = read('>I4', one, first), read('>I4', other, first)
        if a ~= b then
            return a < b
        end
    end
    return false
end

local now_text = spelt(now)

-- Due jobs of one lane and priority, read as they are needed.
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

local ids, started_as_events = {}, {}

local function take_in_order(lanes, left)
    local lane = first_of(lanes)
    while left > 0 and lane do
        local member = lane.found[lane.at]
        lane.at = lane.at + 2
        lane.taken[#lane.taken + 1] = member
        ids[#ids + 1] = member:sub(1, 16)
        left = left - 1
        lane = left > 0 and first_of(lanes)
    end
    for _, one in ipairs(lanes) do
        if #one.taken > 0 then
            call('ZREM', one.key, unpack(one.taken))
        end
    end
    return left
end

local function take_from_one(key, left)
    local members = call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', 0, left)
    if #members > 0 then
        call('ZREMRANGEBYRANK', key, 0, #members - 1)
        for _, member in ipairs(members) do
            ids[#ids + 1] = member:sub(1, 16)
        end
    end
    return left - #members
end

-- The lanes among those named in which anything is Queued, and whether their starts are events.
local function lanes_with_jobs(first, names)
    local asked, known, fields, lanes, logged = {}, {}, {}, {}, {}
    for index = first, first + 2 * names - 1, 2 do
        asked[#asked + 1] = ARGV[index]
    end
    for index, lane in ipairs(call('HMGET', P .. 'names', unpack(asked))) do
        if lane then
            known[#known + 1], fields[#fields + 1] = lane, lane .. ':Q'
            logged[tonumber(lane)] = ARGV[first + 2 * index - 1] == '1'
        end
    end
    for index, queued in ipairs(#known > 0 and call('HMGET', P .. 'counts', unpack(fields)) or {}) do
        if queued then
            lanes[#lanes + 1] = known[index]
        end
    end
    return lanes, logged
end

local at = 6
while at <= #ARGV do
    local left, names, before = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), #ids
    local lanes, logged = lanes_with_jobs(at + 2, names)
    at = at + 2 + 2 * names
    for priority = 0, left > 0 and #lanes > 0 and 3 or -1 do
        if left > 0 and #lanes == 1 then
            left = take_from_one(ready_key(lanes[1], priority), left)
        elseif left > 0 then
            -- Of many lanes few jobs each, or most of them would be read for nothing.
            local opened, limit = {}, min(left, math.max(1, floor(64 / #lanes)))
            for _, lane in ipairs(lanes) do
                local one = {key = ready_key(lane, priority), limit = limit, read = 0, taken = {}}
                read_lane(one)
                if #one.found > 0 then
                    opened[#opened + 1] = one
                end
            end
            left = take_in_order(opened, left)
        end
    end
    for index = before + 1, #ids do
        started_as_events[index] = logged
    end
end
if #ids == 0 then
    return {now, till}
end

local states, envelopes = call('HMGET', STATES, unpack(ids)), call('HMGET', JOBS, unpack(ids))
local answer, size, till_text = {now, till}, 2, spelt(till)
local run_start = claim .. pack('>BdHc0H', 0, 0, #session, session, 0)
local now_packed = pack('>I8', now)
for index, id in ipairs(ids) do
    local state = states[index]
    -- By position, as STATE says: of the fields few change.
    local version, attempt = read('>I4I4', state, 2)
    local fence, _, lane, tenant, number = read('>I4BI4I4I8', state, 18)
    local place, listed_as, due = place_of(lane, tenant), state:sub(47, 54) .. id, read('>I8', state, 55)
    local numbered = state:sub(31, 38)
    if started_as_events[index][lane] then
        numbered = pack('>I8', write_event(number, id, version + 1, 'R', now, attempt + 1, fence + 1, now, place,
            'started', session, ''))
    end
    state = 'R' .. pack('>I4I4', version + 1, attempt + 1) .. state:sub(10, 17) .. pack('>I4', fence + 1)
        .. state:sub(22, 30) .. numbered .. state:sub(39, 54) .. now_packed .. state:sub(63)
        .. tokens:sub(index * 16 - 15, index * 16) .. run_start
    write('HSET', STATES, id, state)
    write('ZADD', LEASES, till_text, id)
    write('ZREM', list_key(place, 'Q'), listed_as)
    write('ZADD', list_key(place, 'R'), '0', listed_as)
    count(place, 'Q', -1)
    count(place, 'R', 1)
    answer[size + 1], answer[size + 2], answer[size + 3], answer[size + 4] = id, state, envelopes[index], due
    size = size + 4
end
call('HSET', CLAIMS, claim, pack('>I4', #ids) .. table.concat(ids))
write_waiting()
write_last_number()
write_counts()
return answer
