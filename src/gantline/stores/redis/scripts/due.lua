-- due(per rule: status, ended before): returns how long ago the oldest job should have been removed; then, of each
-- set that has such a job, the index of its rule, from 0, and the key after the prefix
local rules, longest, result = {}, 0, {0}
for first = 1, #ARGV, 2 do
    rules[ARGV[first]] = {number = (first - 1) / 2, before = tonumber(ARGV[first + 1])}
end

local function check(status, key)
    local rule = rules[status]
    local oldest = rule and call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2]
    local overdue = oldest and rule.before - tonumber(oldest) or 0
    if overdue > 0 then
        longest = math.max(longest, overdue)
        result[#result + 1] = rule.number
        result[#result + 1] = key
    end
end

check('C', 'ended:C')
check('X', 'ended:X')
for _, group in ipairs(call('SMEMBERS', P .. 'dead-groups')) do
    check(group:match('^%d+:%d+:(.):'), 'dead:' .. group)
end
result[1] = longest
return result
