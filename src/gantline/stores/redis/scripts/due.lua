-- due(per rule: status, ended before): answers how long the oldest job should have been gone; then, of each
-- set that has a job as old, the number of its rule, from 0, and the key after the prefix
local rules, longest, answer = {}, 0, {0}
for first = 1, #ARGV, 2 do
    rules[ARGV[first]] = {number = (first - 1) / 2, before = tonumber(ARGV[first + 1])}
end

local function look_at(status, key)
    local rule = rules[status]
    local oldest = rule and call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2]
    local overdue = oldest and rule.before - tonumber(oldest) or 0
    if overdue > 0 then
        longest = math.max(longest, overdue)
        answer[#answer + 1] = rule.number
        answer[#answer + 1] = key
    end
end

look_at('C', 'ended:C')
look_at('X', 'ended:X')
for _, group in ipairs(call('SMEMBERS', P .. 'dead-groups')) do
    look_at(group:match('^%d+:%d+:(.):'), 'dead:' .. group)
end
answer[1] = longest
return answer
