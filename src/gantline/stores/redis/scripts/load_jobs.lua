-- load_jobs(per job: job id, lane, tenant, state, envelope, reason of its last outcome, owner, subject,
-- correlation, parent, when it expires ('': not, or not any more), how many rows, then per row: number, row)
-- States and rows come without the numbers of lane and tenant, which this store gives.
local last = tonumber(call('GET', LAST_EVENT) or 0)

local function with_place(text, at, place)
    return text:sub(1, at - 1) .. pack('>I4I4', place.lane, place.tenant) .. text:sub(at + 8)
end

local function load_rows(first, after_last, place)
    for at = first, after_last - 1, 2 do
        local number = tonumber(ARGV[at])
        call('ZADD', PARTS, part_of(number), part_of(number))
        write('HSET', log_key(number), ARGV[at], with_place(ARGV[at + 1], 70, place))
        last = math.max(last, number)
    end
end

local function load(id, lane, tenant, state, envelope, reason, ...)
    local place = place_of(number_of(lane), number_of(tenant), state:sub(65, 72))
    local status, _, _, crashes, _, _, priority, _, _, _, _, created, at = read(STATE, state)
    write('HSET', STATES, id, with_place(state, 23, place))
    if status == 'Q' then
        add_ready(id, place, first_rank(crashes) + priority, decimal(at))
    else
        add_ended(id, place, status, reason, decimal(at))
    end
    write('ZADD', list_key(place, status), '0', created .. id)
    for which, value in ipairs({...}) do
        if value ~= '' then
            call('ZADD', P .. LISTS[which] .. place.tenant .. ':' .. value, 0, created .. id)
        end
    end
    count(place, status, 1)
    return place
end

local index = 1
while index <= #ARGV do
    local id, envelope = ARGV[index], ARGV[index + 4]
    local expires = ARGV[index + 10]
    local first = index + 12
    local after_last = first + 2 * tonumber(ARGV[index + 11])
    if call('HSETNX', JOBS, id, envelope) == 1 then
        if expires ~= '' then
            call('ZADD', EXPIRY, expires, id)
        end
        load_rows(first, after_last, load(unpack(ARGV, index, index + 9)))
    end
    index = after_last
end
call('SET', LAST_EVENT, decimal(last))
write_pending()
write_counts()
