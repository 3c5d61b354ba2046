-- The keys that hold a job by its status: ready or leases, its list, and the counts. A place is a lane and a
-- tenant.
--
-- Writes are collected by command and key and made at the end, so that a batch costs few calls. So what a script
-- has read of a job is stale when the job comes again: `touch` says so.
local waiting, touched = {}, {}
-- Of one command: Lua can pass at most 8,000 to a call. Even, since some come in pairs.
local MOST_WORDS = 4000

local function write(command, key, first, second)
    local keys = waiting[command]
    if not keys then
        keys = {}
        waiting[command] = keys
    end
    local words = keys[key]
    if not words then
        words = {command, key}
        keys[key] = words
    end
    local count = #words
    words[count + 1] = first
    words[count + 2] = second
end

local function write_pending()
    for _, keys in pairs(waiting) do
        for _, words in pairs(keys) do
            for first = 3, #words, MOST_WORDS do
                call(words[1], words[2], unpack(words, first, min(first + MOST_WORDS - 1, #words)))
            end
        end
    end
    waiting = {}
end

-- Say that a job is about to be read and written; true if that was said before.
local function touch(id)
    local before = touched[id]
    if before then
        write_pending()
    end
    touched[id] = true
    return before
end

local places = {}

-- A lane, a tenant and a group: the names of its keys, and how the numbers of its jobs have changed. `group`: as in
-- a state; '' as PLAIN.
local function place_of(lane, tenant, group)
    local of_lane = places[lane]
    if not of_lane then
        of_lane = {}
        places[lane] = of_lane
    end
    local place = of_lane[tenant]
    if not place then
        place = {lane = lane, tenant = tenant, group = PLAIN, name = lane .. ':' .. tenant, lists = {}, counted = {},
                 member_end = pack('>I4I4', lane, tenant), starts = {}}
        of_lane[tenant] = place
    end
    return (group == PLAIN or group == '') and place or place_of_group(place, group)
end

local by_member_end = {}

-- The same, by what a member ends with.
local function place_at(member_end)
    local place = by_member_end[member_end]
    if not place then
        local lane, tenant = read('>I4I4', member_end)
        place = place_of(lane, tenant, member_end:sub(9))
        by_member_end[member_end] = place
    end
    return place
end

local function count(place, status, by)
    place.counted[status] = (place.counted[status] or 0) + by
    if place.changes then
        place.changes[status] = (place.changes[status] or 0) + by
    end
end

local function add_counts(key, field, by)
    if by ~= 0 and call('HINCRBY', key, field, by) == 0 then
        call('HDEL', key, field)
    end
end

local function write_counts()
    for lane, of_lane in pairs(places) do
        for tenant, place in pairs(of_lane) do
            for status, by in pairs(place.counted) do
                add_counts(P .. 'counts', lane .. ':' .. status, by)
                add_counts(P .. 'counts:' .. tenant, lane .. ':' .. status, by)
            end
        end
    end
    if places_of_groups then
        write_groups(add_counts)
    end
end

local function list_key(place, status)
    local key = place.lists[status]
    if not key then
        key = P .. 'list:' .. place.name .. ':' .. status
        place.lists[status] = key
    end
    return key
end

local ready_keys = {}

local function ready_key(lane, rank)
    local of_lane = ready_keys[lane]
    if not of_lane then
        of_lane = {}
        ready_keys[lane] = of_lane
    end
    local key = of_lane[rank]
    if not key then
        key = P .. 'ready:' .. lane .. ':' .. rank
        of_lane[rank] = key
    end
    return key
end
