-- places_of("t<tenant>" or '', first tenant, tenants)
-- Answers the number of the last tenant looked at (0: that was all), then per tenant with jobs its
-- number and "<lane>:<status>", number of jobs, …; then numbers and names of the lanes.
local NAMES = P .. 'names'
local answer, lanes, numbers = {0}, {}, {}

local function look_at(tenant)
    local counted = call('HGETALL', P .. 'counts:' .. tenant)
    if #counted > 0 then
        answer[#answer + 1] = {tenant, counted}
        for index = 1, #counted, 2 do
            lanes[counted[index]:match('^%d+')] = true
        end
    end
end

if ARGV[1] ~= '' then
    local tenant = call('HGET', NAMES, ARGV[1])
    if tenant then
        look_at(tonumber(tenant))
    end
else
    local last, first = tonumber(call('HGET', NAMES, '#') or 0), tonumber(ARGV[2])
    local behind = min(last, first + tonumber(ARGV[3]) - 1)
    for number = first, behind do
        look_at(number)
    end
    answer[1] = behind < last and behind or 0
end
for lane in pairs(lanes) do
    numbers[#numbers + 1] = lane
    numbers[#numbers + 1] = call('HGET', NAMES, '=' .. lane)
end
answer[#answer + 1] = numbers
return answer
