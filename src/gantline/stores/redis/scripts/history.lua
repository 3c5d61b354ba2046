-- history(job id, number of the row to continue with, or 0 for the newest, limit)
-- Returns the tenant's name, the number of the row to continue with (0: that was all), then rows, newest
-- first; nothing where there is no such job
local state = call('HGET', STATES, ARGV[1])
if not state then
    return {}
end
local tenant, number = read('>I4', state, 27), tonumber(ARGV[2])
if number == 0 then
    number = read('>I8', state, 31)
end
local result = {call('HGET', P .. 'names', '=' .. tenant), 0}
while number > 0 and #result < 2 + tonumber(ARGV[3]) do
    local row = read_row(number)
    if not row then
        number = 0
    else
        result[#result + 1] = row
        number = read('>I8', row)
    end
end
result[2] = number
return result
