-- dead_groups(status): answers the groups of dead jobs in it
local answer = {}
for _, group in ipairs(call('SMEMBERS', P .. 'dead-groups')) do
    if group:match('^%d+:%d+:(.):') == ARGV[1] then
        answer[#answer + 1] = group
    end
end
return answer
