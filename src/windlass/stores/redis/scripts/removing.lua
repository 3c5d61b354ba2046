-- Removing an ended job with all that is kept of it but its key.
local function forget_rows(number)
    while number > 0 do
        local key, row = log_key(number), read_row(number)
        if not row then
            return
        end
        call('HDEL', key, number)
        if call('EXISTS', key) == 0 then
            call('ZREM', PARTS, part_of(number))
        end
        number = read('>I8', row)
    end
end

local function forget_attributes(id, tenant, created)
    for which, value in ipairs(listed_by(call('HGET', JOBS, id))) do
        if value ~= '' then
            call('ZREM', P .. LISTS[which] .. tenant .. ':' .. value, created .. id)
        end
    end
end

local function remove(id, state)
    local status, _, _, _, _, _, _, lane, tenant, number, _, created, _, _, listed = read(STATE, state)
    local row = read_row(number)
    local place = place_of(lane, tenant)
    remove_ended(id, place, status, row and reason_of(row) or '')
    if listed == 1 then
        forget_attributes(id, tenant, created)
    end
    forget_rows(number)
    call('ZREM', list_key(place, status), created .. id)
    call('HDEL', JOBS, id)
    call('HDEL', STATES, id)
    count(place, status, -1)
end
