-- The sets of jobs that have ended, by when they did.
local function is_dead(status)
    return status == 'F' or status == 'P'
end

local function add_ended(id, place, status, reason, at)
    if is_dead(status) then
        local group = place.name .. ':' .. status .. ':' .. reason
        write('ZADD', P .. 'dead:' .. group, at, id .. place.member_end)
        write('SADD', P .. 'dead-groups', group)
    else
        write('ZADD', P .. 'ended:' .. status, at, id .. place.member_end)
    end
end

local function forget_empty_group(group)
    if group and call('EXISTS', P .. 'dead:' .. group) == 0 then
        call('SREM', P .. 'dead-groups', group)
    end
end

local function remove_ended(id, place, status, reason)
    if not is_dead(status) then
        call('ZREM', P .. 'ended:' .. status, id .. place.member_end)
        return
    end
    write_pending()
    local group = place.name .. ':' .. status .. ':' .. reason
    call('ZREM', P .. 'dead:' .. group, id .. place.member_end)
    forget_empty_group(group)
end
