-- places_of("t<tenant>" or '', first tenant, tenants)
-- Returns the number of the last tenant read (0: that was all), then per tenant with jobs its
-- number and "<lane>:<status>", number of jobs, …; then numbers and names of the lanes.
local NAMES = P .. 'names'
local result, lanes, numbers = {0}, {}, {}

local function read_counts(tenant)
    local counted = call('HGETALL', P .. 'counts:' .. tenant)
    if #counted > 0 then
        result[#result + 1] = {tenant, counted}
        for index = 1, #counted, 2 do
            lanes[counted[index]:match('^%d+')] = true
        end
    end
end

if ARGV[1] ~= '' then
    local tenant = call('HGET', NAMES, ARGV[1])
    if tenant then
        read_counts(tonumber(tenant))
    end
else
    local last, first = tonumber(call('HGET', NAMES, '#') or 0), tonumber(ARGV[2])
    local last_read = min(last, first + tonumber(ARGV[3]) - 1)
    for number = first, last_read do
        read_counts(number)
    end
    result[1] = last_read < last and last_read or 0
end
for lane in pairs(lanes) do
    numbers[#numbers + 1] = lane
    numbers[#numbers + 1] = call('HGET', NAMES, '=' .. lane)
end
result[#result + 1] = numbers
return result
