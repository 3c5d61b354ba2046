-- list_groups(now, lane, "t<tenant>" or '', after: '', or "<tenant>:<group>", the tenant '' where it is given, limit):
-- groups of a lane of which anything is Queued or Running, jobs without a group before all, then by name
-- Of a tenant, only its own are read: so neither a page nor a position says anything about others.
-- Returns whether there are more (1), then per group: "<tenant>:<group>", Queued, Running, since when the oldest is due
-- (-1: none), and of one of its jobs the id and the envelope, '' for those without a group
local now, lane, after, limit = clock(ARGV[1]), call('HGET', NAMES, ARGV[2]), ARGV[4], tonumber(ARGV[5])
local result, MOST_SUSPECTS = {0}, 1000
local asked = ARGV[3] ~= '' and (call('HGET', NAMES, ARGV[3]) or '-')
local default = call('HGET', NAMES, 'tdefault')
if not lane then
    return result
end

-- Of the suspects with this end of a member: one, and since when the first is due.
local function find_suspect(ending)
    local id, oldest
    for _, ranked in ipairs(call('SMEMBERS', P .. 'suspects')) do
        if ranked:match('^%d+') == lane then
            local members = call('ZRANGE', P .. 'ready:' .. ranked, 0, MOST_SUSPECTS - 1, 'WITHSCORES')
            for index = 1, #members, 2 do
                local due = tonumber(members[index + 1])
                if members[index]:sub(17) == ending and (not oldest or due < oldest) then
                    id, oldest = members[index]:sub(1, 16), due
                end
            end
        end
    end
    return id, oldest
end

local function add(turn, queued, running, ending, hex)
    local id, oldest, ready = nil, nil, 0
    for rank = 0, 3 do
        local key = ready_key(lane, rank) .. (hex and ':' .. hex or '')
        local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
        if found[1] then
            ready = ready + call('ZCARD', key)
            id = found[1]:sub(1, 16)
            oldest = min(oldest or LAST, tonumber(found[2]))
        end
    end
    if ready < queued then
        local suspect, due = find_suspect(ending)
        id, oldest = id or suspect, due and min(oldest or LAST, due) or oldest
    end
    id = id or (hex and call('SRANDMEMBER', permits_key(lane, hex)))
    result[#result + 1] = {turn, queued, running, oldest and oldest <= now and oldest or -1, hex and (id or '-') or '',
                           hex and id and call('HGET', JOBS, id) or ''}
end

local function add_plain()
    local jobs = {}
    for _, status in ipairs({'Q', 'R'}) do
        local field = lane .. ':' .. status
        jobs[status] = (call('HGET', P .. 'counts:' .. default, field) or 0)
            - (call('HGET', P .. 'in-groups', field) or 0)
    end
    if jobs.Q > 0 or jobs.R > 0 then
        add(default .. ':' .. PLAIN_HEX, jobs.Q, jobs.R, pack('>I4I4', lane, default))
    end
end

if after == '' and default and (not asked or asked == default) then
    add_plain()
end
local from, to = after == '' and '-' or '(' .. after, '+'
if asked then
    from, to = after == '' and '[' .. asked .. ':' or '(' .. asked .. after, '(' .. asked .. ';'
end
for _, turn in ipairs(call('ZRANGE', P .. 'groups:' .. lane, from, to, 'BYLEX', 'LIMIT', 0, limit + 1)) do
    if #result > limit then
        result[1] = 1
        return result
    end
    local tenant, hex = turn:match('^(%d+):(%x+)$')
    local ending = pack('>I4I4I4I4', lane, tenant, tonumber(hex:sub(1, 8), 16), tonumber(hex:sub(9), 16))
    add(turn, tonumber(call('HGET', P .. 'waiting:' .. lane, turn) or 0), call('SCARD', permits_key(lane, hex)), ending, hex)
end
return result
