-- What is left of jobs of which a row was removed by hand.
--
-- The caller removes the member. `state` is the state of the job, if it still exists: without it, its entries in
-- lists cannot be found. They stay, and readers skip them.
local function remove_leftovers(member, status, state)
    local id, place = member:sub(1, 16), place_at(member:sub(17))
    if state then
        write('ZREM', list_key(place, status), state:sub(47, 54) .. id)
        call('HDEL', STATES, id)
    end
    if status == 'R' and place.changes then
        write('SREM', permits_key(place.lane, place.hex), id)
    end
    if call('HEXISTS', STATES, id) == 0 then
        call('HDEL', JOBS, id)
    end
    count(place, status, -1)
end
