-- window(from, to, limit, keys after the prefix): the next of each list, newest first
local result = {}
for index = 4, #ARGV do
    result[#result + 1] = call('ZRANGE', P .. ARGV[index], ARGV[1], ARGV[2], 'BYLEX', 'REV', 'LIMIT', 0, ARGV[3])
end
return result
