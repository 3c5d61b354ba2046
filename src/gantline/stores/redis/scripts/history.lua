-- history(job id, number of the row to go on from or 0 for the newest, limit)
-- Answers the tenant's name, the number of the row to go on from (0: that was all), then rows, newest
-- first; nothing where there is no such job
local state = call('HGET', STATES, ARGV[1])
if not state then
    return {}
end
local tenant, number = read('>I4', state, 27), tonumber(ARGV[2])
if number == 0 then
    number = read('>I8', state, 31)
end
local answer = {call('HGET', P .. 'names', '=' .. tenant), 0}
while number > 0 and #answer < 2 + tonumber(ARGV[3]) do
    local row = read_row(number)
    if not row then
        number = 0
    else
        answer[#answer + 1] = row
        number = read('>I8', row)
    end
end
answer[2] = number
return answer
