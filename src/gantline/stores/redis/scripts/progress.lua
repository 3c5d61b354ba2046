-- progress(now, then per run: job id, token, percent as 8 bytes, phase, the end of a log row or '')
-- Returns per run: the new version | 'S' stale | 'N' not found
local now = clock(ARGV[1])
local results = {}

local function overwrite(id, state, token, percent, phase, tail)
    local _, version, attempt, crashes, snoozes, fence, priority, lane, tenant, number, outcome, created,
        started, keyed, listed, of_group = read(STATE, state)
    local _, key, rest = parts_of(state)
    if state:sub(1, 1) ~= 'R' or not is_of_run(rest, token) then
        return 'S'
    end
    local _, claim, cancel, old_percent, group, session, old_phase = read_run(rest)
    version = version + 1
    if tail ~= '' and (percent ~= old_percent or phase ~= old_phase) then
        number = write_event(number, id, version, 'R', now, attempt, fence, started, place_of(lane, tenant, PLAIN),
            'progressed', session, tail)
    end
    write('HSET', STATES, id, pack(STATE, 'R', version, attempt, crashes, snoozes, fence, priority, lane, tenant,
        number, outcome, created, started, keyed, listed, of_group) .. key
        .. run_part(token, claim, cancel, percent, group, phase))
    return version
end

for first = 2, #ARGV, 5 do
    local id = ARGV[first]
    touch(id)
    local state = call('HGET', STATES, id)
    results[#results + 1] = state and overwrite(id, state, ARGV[first + 1], (read('>d', ARGV[first + 2])),
        ARGV[first + 3], ARGV[first + 4]) or 'N'
end
write_pending()
write_last_number()
return results
