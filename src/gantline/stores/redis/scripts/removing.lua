-- Removing ended jobs with all that is stored of them, also their external ids, but not their other keys. `write_removed` writes at the end: so a job
-- takes the server 8 instead of 13 µs.
local changed_parts, changed_groups = {}, {}

local function forget_rows(number)
    while number > 0 do
        local row = read_row(number)
        if not row then
            return
        end
        local part = part_of(number)
        if not changed_parts[part] then
            changed_parts[part] = P .. 'log:' .. part
        end
        write('HDEL', changed_parts[part], decimal(number))
        number = read('>I8', row)
    end
end

local function forget_attributes(id, tenant, created)
    free_external(id)
    local envelope = call('HGET', JOBS, id)
    for which, value in ipairs(envelope and listed_by(envelope) or {}) do
        if value ~= '' then
            write('ZREM', P .. LISTS[which] .. tenant .. ':' .. value, created .. id)
        end
    end
end

local function forget_end(id, place, status, number)
    if is_dead(status) then
        local row = read_row(number)
        local group = place.name .. ':' .. status .. ':' .. (row and reason_of(row) or '')
        changed_groups[group] = P .. 'dead:' .. group
        write('ZREM', changed_groups[group], id .. place.member_end)
    else
        write('ZREM', P .. 'ended:' .. status, id .. place.member_end)
    end
end

local function remove(id, state)
    local status, _, _, _, _, _, _, lane, tenant, number, _, created, _, _, listed, group = read(STATE, state)
    local place = place_of(lane, tenant, group)
    forget_end(id, place, status, number)
    if listed == 1 then
        forget_attributes(id, tenant, created)
    end
    forget_rows(number)
    write('ZREM', list_key(place, status), created .. id)
    write('HDEL', JOBS, id)
    write('HDEL', STATES, id)
    count(place, status, -1)
end

local function write_removed()
    write_pending()
    for part, key in pairs(changed_parts) do
        if call('EXISTS', key) == 0 then
            call('ZREM', PARTS, part)
        end
    end
    for group, key in pairs(changed_groups) do
        if call('EXISTS', key) == 0 then
            call('SREM', P .. 'dead-groups', group)
        end
    end
    write_counts()
end
