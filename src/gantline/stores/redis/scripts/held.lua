-- held(now, digests): answers per key the job that holds it, or ''
local now = clock(ARGV[1])
local answer = {}
for index = 2, #ARGV do
    answer[#answer + 1] = holder(ARGV[index], now) or ''
end
return answer
