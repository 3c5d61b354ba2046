-- ahead(now, job id, "t<tenant>" or '', limit, lane names …): returns how many due jobs are claimed before this one, of
-- each priority, 0 to 3; nothing where it is not Queued. Of its own priority, of each other group as many as of its own
local now, id, left, result = clock(ARGV[1]), ARGV[2], tonumber(ARGV[4]), {0, 0, 0, 0}
local state = call('HGET', STATES, id)
if not state or state:byte() ~= QUEUED then
    return false
end
local _, _, _, crashes, _, _, priority, _, tenant = read(STATE_START, state)
local run_at, first = read('>I8', state, 55), first_rank(crashes)
local own, of_tenant = first + priority, ARGV[3] ~= '' and pack('>I4', tenant)

local lanes = {}
for from = 5, #ARGV, MOST_WORDS do
    for _, number in ipairs(call('HMGET', P .. 'names', unpack(ARGV, from, min(from + MOST_WORDS - 1, #ARGV)))) do
        lanes[#lanes + 1] = number or nil
    end
end

local function add(rank, jobs, looked_at)
    result[rank % PRIORITIES + 1] = result[rank % PRIORITIES + 1] + jobs
    left = left - (looked_at or jobs)
end

-- What is due at `from` or later, up to `to`; at one instant only ids before `before`.
local function count_some(key, rank, from, to, before)
    local jobs, members = 0, call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, left)
    local looked_at = #members
    for index, member in ipairs(members) do
        if before and not is_before(member, before) then
            looked_at = index - 1
            break
        end
        if not of_tenant or member:sub(21, 24) == of_tenant then
            jobs = jobs + 1
        end
    end
    add(rank, jobs, looked_at)
end

local function count_range(rank, to)
    for _, one in ipairs(lanes) do
        for _, key in ipairs({ready_key(one, rank), rank < PRIORITIES and grouped_key(one, rank) or nil}) do
            if left > 0 and of_tenant then
                count_some(key, rank, '-inf', to)
            elseif left > 0 then
                add(rank, min(left, call('ZCOUNT', key, '-inf', to)))
            end
        end
    end
end

if first > 0 then
    for rank = first + PRIORITIES, first_rank(MOST_CRASHES_COUNTED) + PRIORITIES - 1 do
        count_range(rank, decimal(now))
    end
end
for rank = first, own - 1 do
    count_range(rank, decimal(now))
end
local is_in_turns = false
for _, one in ipairs(own < PRIORITIES and lanes or {}) do
    is_in_turns = is_in_turns or call('EXISTS', grouped_key(one, own)) == 1
end

-- How many of its own group are before the job, in one lane.
local function count_before(key)
    if run_at > now then
        return call('ZCOUNT', key, '-inf', decimal(now))
    end
    local jobs = call('ZCOUNT', key, '-inf', '(' .. decimal(run_at))
    for _, member in ipairs(call('ZRANGEBYSCORE', key, decimal(run_at), decimal(run_at), 'LIMIT', 0, left)) do
        jobs = jobs + (is_before(member, id) and 1 or 0)
    end
    return jobs
end

local function count_turns()
    local group, of_groups, most = member_end(state):sub(9), {}, 0
    local place = place_at(member_end(state))
    for _, one in ipairs(lanes) do
        most = most + count_before(place.hex and ready_key(one, own) .. ':' .. place.hex or ready_key(one, own))
    end
    most = min(most, left)
    add(own, most)
    for _, one in ipairs(lanes) do
        for _, key in ipairs({ready_key(one, own), grouped_key(one, own)}) do
            local members = left > 0 and call('ZRANGEBYSCORE', key, '-inf', decimal(now), 'LIMIT', 0, left) or {}
            local looked_at = 0
            for _, member in ipairs(members) do
                local other = member:sub(25)
                local counted = of_groups[other] or 0
                local is_counted = other ~= group and counted < most
                    and (not of_tenant or member:sub(21, 24) == of_tenant)
                of_groups[other] = counted + (is_counted and 1 or 0)
                looked_at = looked_at + (is_counted and 1 or 0)
            end
            add(own, looked_at)
        end
    end
end

if is_in_turns then
    count_turns()
elseif run_at > now then
    count_range(own, decimal(now))
else
    count_range(own, '(' .. decimal(run_at))
    for _, one in ipairs(lanes) do
        if left > 0 then
            count_some(ready_key(one, own), own, decimal(run_at), decimal(run_at), id)
        end
    end
end
return result
