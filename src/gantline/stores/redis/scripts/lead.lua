-- lead(now, role, owner, lease): returns term and until; or nothing, while another owner leads
local now = clock(ARGV[1])
local role, owner = ARGV[2], ARGV[3]
local held, term, till, leader = call('HGET', P .. 'leaders', role), 0, 0, ''
if held then
    term, till = read('>I8I8', held)
    leader = held:sub(17)
end
local new_till = later(now, tonumber(ARGV[4]))
local is_free = till <= now or till > new_till
if leader ~= owner and not is_free then
    return {}
end
if is_free then
    term = term + 1
end
till = new_till
call('HSET', P .. 'leaders', role, pack('>I8I8', term, till) .. owner)
return {term, till}
