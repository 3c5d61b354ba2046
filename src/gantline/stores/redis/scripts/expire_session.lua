-- expire_session(now, session): ends all its leases now; returns how many it holds
local now_text, held = decimal(clock(ARGV[1])), 0
for _, group in ipairs(call('ZRANGE', LEASE_GROUPS, 0, -1)) do
    local _, session = read(LEASE_GROUP, group)
    if session == ARGV[2] then
        local key = lease_key(group)
        for _, member in ipairs(call('ZRANGE', key, 0, -1)) do
            write('ZADD', key, now_text, member)
            held = held + 1
        end
    end
end
write_pending()
return held
