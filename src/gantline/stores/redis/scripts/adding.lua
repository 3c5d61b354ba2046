-- Adding a job to what is ready of its group; `at` is text.
local function add_to_group(id, place, rank, at)
    write('ZADD', group_key(place, rank), at, id .. place.member_end)
    write('ZADD', grouped_key(place.lane, rank), at, id .. place.member_end)
    local first, run_at = place.first_of_rank[rank], tonumber(at)
    if not first or run_at < first then
        place.first_of_rank[rank] = run_at
    end
end
