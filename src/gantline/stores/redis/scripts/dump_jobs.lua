-- dump_jobs(list after the prefix, from, limit): jobs of one list, in its order
-- Returns per job: its position in the list, state, envelope, then number and row of its log, newest first; of
-- one whose row was removed by hand only the position
local result = {}
for _, place in ipairs(call('ZRANGE', P .. ARGV[1], ARGV[2], '+', 'BYLEX', 'LIMIT', 0, ARGV[3])) do
    local id = place:sub(9)
    local job = {place}
    local state, envelope = call('HGET', STATES, id), call('HGET', JOBS, id)
    if state and envelope then
        job[2], job[3] = state, envelope
        local number = read('>I8', state, 31)
        while number > 0 do
            local row = read_row(number)
            if not row then
                break
            end
            job[#job + 1] = number
            job[#job + 1] = row
            number = read('>I8', row)
        end
    end
    result[#result + 1] = job
end
return result
