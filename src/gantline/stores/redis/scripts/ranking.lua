-- Ready jobs are stored by rank, as defined in contract/snapshot.py: up to 3 it is the priority; suspects have four
-- further ranks for every number of crashes that is distinguished, and their priority is rank % 4.
local SUSPECT_AFTER_CRASHES, MOST_CRASHES_COUNTED = 2, 9
local PRIORITIES = 4
local SUSPECTS = P .. 'suspects'

local function first_rank(crashes)
    return PRIORITIES * math.max(0, min(crashes, MOST_CRASHES_COUNTED) - SUSPECT_AFTER_CRASHES + 1)
end

local function add_ready(id, place, rank, at)
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
        write('ZREM', ready_key(place.lane, rank), id .. place.member_end)
        return
    end
    write_pending()
    call('ZREM', ready_key(place.lane, rank), id .. place.member_end)
    forget_empty_rank(place.lane, rank)
end
