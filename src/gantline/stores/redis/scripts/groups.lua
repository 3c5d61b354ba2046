-- Jobs that have a group: what waits and runs of each, and whose turn may come.
--
-- A group is written as the 16 hex digits of its number: Lua could not hold that number exactly. A turn is
-- "<tenant>:<group>" of a lane and a rank. Whoever adds a job says in `later` from when on the group may have its
-- turn; claims take turns away, and whoever removes the last job of a group. One too many costs a look, one too few
-- would let a job wait for ever.
local NAMES, IN_TURNS, FULL_IN, PLAIN_HEX = P .. 'names', P .. 'in-turns', P .. 'full-in', string.rep('0', 16)
local places_of_groups

local function place_of_group(place, group)
    local of_group = place.groups and place.groups[group]
    if not of_group then
        local hex = string.format('%08x%08x', read('>I4I4', group))
        of_group = {lane = place.lane, tenant = place.tenant, group = group, hex = hex,
                    turn = place.tenant .. ':' .. hex, name = place.name, lists = place.lists,
                    counted = place.counted, starts = place.starts, member_end = place.member_end .. group,
                    changes = {}, first_of_rank = {}, left_ranks = {}}
        place.groups = place.groups or {}
        place.groups[group] = of_group
        places_of_groups = places_of_groups or {}
        table.insert(places_of_groups, of_group)
    end
    return of_group
end

local function permits_key(lane, hex)
    return P .. 'permits:' .. lane .. ':' .. hex
end

local function group_key(place, rank)
    return P .. 'ready:' .. place.lane .. ':' .. rank .. ':' .. place.hex
end

-- All of a lane and rank that have a group, for those who count.
local function grouped_key(lane, rank)
    return P .. 'grouped:' .. lane .. ':' .. rank
end

-- The type of a lane; nil where the name is that of a tenant. Queues are measured in characters.
local function type_of_lane(name)
    local length, rest = name:match('^q(%d+):(.*)$')
    for _ = 1, tonumber(length or 0) do
        rest = rest:gsub('^[%z\1-\127\194-\244][\128-\191]*', '')
    end
    return rest
end

local function lanes_of_type(job_type)
    local lanes = {}
    for lane in (call('HGET', NAMES, 'y' .. job_type) or ''):gmatch('%d+') do
        lanes[#lanes + 1] = lane
    end
    return lanes
end

local function forget_full(lane, rank, turn)
    local full, name = P .. 'full:' .. lane, rank .. ':' .. turn
    call('ZREM', full, name)
    call('ZREM', P .. 'full-at:' .. lane, name)
    if call('EXISTS', full) == 0 then
        call('SREM', FULL_IN, lane)
    end
end

-- Give a turn that was full back: it goes on where it stood.
local function return_turn(lane, rank, turn, served)
    local tenant, hex = turn:match('^(%d+):(%x+)$')
    local turns = P .. 'turns:' .. lane .. ':' .. rank
    call('ZADD', turns, 'NX', served, tenant)
    call('ZADD', turns .. ':' .. tenant, served, hex)
    forget_full(lane, rank, turn)
end

-- A run of a group has ended: in no lane of the type it is full any more.
local function return_turns_of(place)
    for _, lane in ipairs(lanes_of_type(type_of_lane(call('HGET', NAMES, '=' .. place.lane)))) do
        for rank = 0, 3 do
            local served = call('ZSCORE', P .. 'full:' .. lane, rank .. ':' .. place.turn)
            if served then
                return_turn(lane, rank, place.turn, served)
            end
        end
    end
end

-- Where no group waits any more, jobs without one need no turns.
local function forget_turns(lane, rank, default)
    local ranked = lane .. ':' .. rank
    local turns = P .. 'turns:' .. ranked
    local of_default, tenants = turns .. ':' .. default, call('ZCARD', turns)
    local is_only_plain = tenants == 0 or tenants == 1 and call('ZSCORE', turns, default)
        and call('ZCARD', of_default) == 1 and call('ZSCORE', of_default, PLAIN_HEX)
    if is_only_plain and call('EXISTS', P .. 'later:' .. ranked, P .. 'full:' .. lane) == 0 then
        call('DEL', turns, of_default)
        call('SREM', IN_TURNS, ranked)
    end
end

local function remove_turn(place, rank, is_any_full)
    local ranked = place.lane .. ':' .. rank
    local turns = P .. 'turns:' .. ranked
    local of_tenant = turns .. ':' .. place.tenant
    call('ZREM', P .. 'later:' .. ranked, place.turn)
    if call('ZREM', of_tenant, place.hex) == 1 and call('EXISTS', of_tenant) == 0 then
        call('ZREM', turns, place.tenant)
    end
    if is_any_full then
        forget_full(place.lane, rank, place.turn)
    end
end

-- Jobs have left the queue otherwise than by a claim: turns of groups that have no more would hide others.
local function check_turns_left(default, is_any_full)
    local lanes = {}
    for _, place in ipairs(places_of_groups) do
        for rank in pairs(place.left_ranks) do
            local first = call('ZRANGE', group_key(place, rank), 0, 0, 'WITHSCORES')[2]
            if first then
                call('ZADD', P .. 'later:' .. place.lane .. ':' .. rank, 'XX', first, place.turn)
            else
                remove_turn(place, rank, is_any_full)
                lanes[place.lane] = true
            end
        end
    end
    for lane in pairs(lanes) do
        for rank = 0, 3 do -- what is full counts for all of them
            if call('SISMEMBER', IN_TURNS, lane .. ':' .. rank) == 1 then
                forget_turns(lane, rank, default)
            end
        end
    end
end

-- What has changed of the groups, when all of their jobs are written.
local function write_groups(add_counts)
    local default, is_any_full = tonumber(call('HGET', NAMES, 'tdefault') or 0), call('EXISTS', FULL_IN) == 1
    local of_default, later_turns = {}, {}
    for _, place in ipairs(places_of_groups) do
        local queued, running = place.changes.Q or 0, place.changes.R or 0
        for rank, at in pairs(place.first_of_rank) do
            local ranked = place.lane .. ':' .. rank
            local words = later_turns[ranked] or {}
            later_turns[ranked] = words
            words[#words + 1], words[#words + 2] = at, place.turn
        end
        if queued ~= 0 or running ~= 0 then
            local groups, numbers = P .. 'groups:' .. place.lane, P .. 'waiting:' .. place.lane
            local waiting = call('HINCRBY', numbers, place.turn, queued)
            if waiting <= 0 and call('EXISTS', permits_key(place.lane, place.hex)) == 0 then
                call('HDEL', numbers, place.turn)
                call('ZREM', groups, place.turn)
            elseif waiting == queued then -- nothing waited of it, so it may be new
                call('ZADD', groups, 0, place.turn)
            end
        end
        if place.tenant == default then
            of_default[place.lane .. ':Q'] = (of_default[place.lane .. ':Q'] or 0) + queued
            of_default[place.lane .. ':R'] = (of_default[place.lane .. ':R'] or 0) + running
        end
        if running < 0 and is_any_full then
            return_turns_of(place)
        end
    end
    for ranked, words in pairs(later_turns) do
        for first = 1, #words, 4000 do
            call('ZADD', P .. 'later:' .. ranked, 'LT', unpack(words, first, min(first + 3999, #words)))
        end
        call('SADD', IN_TURNS, ranked)
    end
    check_turns_left(default, is_any_full)
    for field, by in pairs(of_default) do
        add_counts(P .. 'in-groups', field, by)
    end
end
