-- expired(now, offset, limit)
-- Returns how many expired leases it has checked, then the job ids of their runs. It shortens
-- leases that would last longer than their length, and removes those whose run does not exist.
local now, offset, left = clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now_text, result = decimal(now), {0}

local function cut(key, group)
    local latest = decimal(later(now, (read('>I8', group))))
    for _, member in ipairs(call('ZRANGEBYSCORE', key, '(' .. latest, '+inf')) do
        write('ZADD', key, latest, member)
    end
end

-- The state of the run that holds a lease; nil if there is none.
local function holding(id, group)
    local state = call('HGET', STATES, id)
    if state and state:byte() == RUNNING then
        local _, _, rest = parts_of(state)
        return group_of(rest) == group and state or nil
    end
    return nil
end

local function check(key, group, members)
    for _, member in ipairs(members) do
        local id = member:sub(1, 16)
        local state = holding(id, group)
        if state and call('HEXISTS', JOBS, id) == 1 then
            result[#result + 1] = id
        else
            write('ZREM', key, member)
            remove_leftovers(member, 'R', state)
        end
    end
    result[1] = result[1] + #members
end

for _, group in ipairs(call('ZRANGE', LEASE_GROUPS, 0, -1)) do
    local key = lease_key(group)
    if call('EXISTS', key) == 0 then
        call('ZREM', LEASE_GROUPS, group)
    else
        cut(key, group)
        local expired = call('ZCOUNT', key, '-inf', now_text)
        if expired > offset and left > 0 then
            local members = call('ZRANGEBYSCORE', key, '-inf', now_text, 'LIMIT', offset, left)
            check(key, group, members)
            left = left - #members
        end
        offset = math.max(0, offset - expired)
    end
end
write_pending()
write_counts()
return result
