-- dump_jobs(list behind the prefix, from, limit): jobs of one list, in its order
-- Answers per job: its place in the list, state, envelope, then number and row of its log, newest first
local answer = {}
for _, place in ipairs(call('ZRANGE', P .. ARGV[1], ARGV[2], '+', 'BYLEX', 'LIMIT', 0, ARGV[3])) do
    local id = place:sub(9)
    local state = call('HGET', STATES, id)
    local job = {place, state, call('HGET', JOBS, id)}
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
    answer[#answer + 1] = job
end
return answer
