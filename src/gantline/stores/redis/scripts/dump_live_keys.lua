-- dump_live_keys(list after the prefix, from, limit): keys of the jobs of one list that are held as long as
-- their job says
-- Returns how many jobs it has checked, the position of the last, then per key: digest, who holds it, the
-- envelope of its job
local places = call('ZRANGE', P .. ARGV[1], ARGV[2], '+', 'BYLEX', 'LIMIT', 0, ARGV[3])
local result = {#places, places[#places] or ''}
for _, place in ipairs(places) do
    local id = place:sub(9)
    local state, envelope = call('HGET', STATES, id), call('HGET', JOBS, id)
    if state and envelope then
        local _, digest = parts_of(state)
        local held = digest ~= '' and call('HGET', HELD, digest)
        if held and held:sub(1, 16) == id and read('>I8', held, 17) == 0 then
            result[#result + 1] = {digest, held, envelope}
        end
    end
end
return result
