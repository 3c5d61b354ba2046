-- Ready jobs are stored by rank, as defined in contract/snapshot.py: up to 3 it is the priority; suspects have four
-- further ranks for every number of crashes that is distinguished, and their priority is rank % 4.
local SUSPECT_AFTER_CRASHES, MOST_CRASHES_COUNTED = 2, 9
local PRIORITIES = 4
local SUSPECTS = P .. 'suspects'

local function first_rank(crashes)
    return PRIORITIES * math.max(0, min(crashes, MOST_CRASHES_COUNTED) - SUSPECT_AFTER_CRASHES + 1)
end

local function add_ready(id, place, rank, at)
    if place.changes and rank < PRIORITIES then
        add_to_group(id, place, rank, at)
        return
    end
    write('ZADD', ready_key(place.lane, rank), at, id .. place.member_end)
    if rank >= PRIORITIES then
        write('SADD', SUSPECTS, place.lane .. ':' .. rank)
    end
end

local function forget_empty_rank(lane, rank)
    if call('EXISTS', ready_key(lane, rank)) == 0 then
        call('SREM', SUSPECTS, lane .. ':' .. rank)
    end
end

local function remove_ready(id, place, rank)
    if rank < PRIORITIES then
        write('ZREM', place.changes and group_key(place, rank) or ready_key(place.lane, rank), id .. place.member_end)
        if place.changes then
            write('ZREM', grouped_key(place.lane, rank), id .. place.member_end)
            place.left_ranks[rank] = true
        end
        return
    end
    write_pending()
    call('ZREM', ready_key(place.lane, rank), id .. place.member_end)
    forget_empty_rank(place.lane, rank)
end

-- The order of ids at one instant. Compares bytes: the server compares texts by its locale.
local function is_before(one, other)
    for first = 1, 16, 4 do
        local a, b = read('>I4', one, first), read('>I4', other, first)
        if a ~= b then
            return a < b
        end
    end
    return false
end
