-- delete(per job: job id, tenant, status, version (0: any))
-- Returns per job: its version | 'S' stale | 'N' not found
local results = {}
for first = 1, #ARGV, 4 do
    local id, result = ARGV[first], 'N'
    touch(id)
    local state = call('HGET', STATES, id)
    if state and call('HGET', P .. 'names', 't' .. ARGV[first + 1]) == tostring((read('>I4', state, 27))) then
        local status, version = state:sub(1, 1), read('>I4', state, 2)
        result = 'S'
        if status ~= 'Q' and status ~= 'R'
            and is_in_state(status, version, ARGV[first + 2], tonumber(ARGV[first + 3])) then
            local _, key = parts_of(state)
            local held = key ~= '' and call('HGET', HELD, key)
            remove(id, state)
            if held and held:sub(1, 16) == id then
                free(key)
            end
            result = version
        end
    end
    results[#results + 1] = result
end
write_removed()
return results
