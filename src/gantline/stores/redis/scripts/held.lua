-- held(now, digests): returns per key the job that holds it, or ''
local now = clock(ARGV[1])
local result = {}
for index = 2, #ARGV do
    result[#result + 1] = holder(ARGV[index], now) or ''
end
return result
