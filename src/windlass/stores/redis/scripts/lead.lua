-- lead(now, role, owner, lease): answers term and until; or nothing, while somebody else leads
local now = clock(ARGV[1])
local role, owner = ARGV[2], ARGV[3]
local held, term, till, leader = call('HGET', P .. 'leaders', role), 0, 0, ''
if held then
    term, till = read('>I8I8', held)
    leader = held:sub(17)
end
if till > now and leader ~= owner then
    return {}
end
if till <= now then
    term = term + 1
end
till = later(now, tonumber(ARGV[4]))
call('HSET', P .. 'leaders', role, pack('>I8I8', term, till) .. owner)
return {term, till}
