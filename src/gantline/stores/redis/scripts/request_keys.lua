-- request_keys(now, job ids): returns per job the names of its request key while it is held, or ''
local now = clock(ARGV[1])
local result = {}
for index = 2, #ARGV do
    local request = call('HGET', REQUESTS, ARGV[index])
    result[#result + 1] = request and holder(request:sub(1, 20), now) == ARGV[index] and request:sub(21) or ''
end
return result
