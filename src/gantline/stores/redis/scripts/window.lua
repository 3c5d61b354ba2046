-- window(from, to, limit, keys behind the prefix): the next of each list, newest first
local answer = {}
for index = 4, #ARGV do
    answer[#answer + 1] = call('ZRANGE', P .. ARGV[index], ARGV[1], ARGV[2], 'BYLEX', 'REV', 'LIMIT', 0, ARGV[3])
end
return answer
