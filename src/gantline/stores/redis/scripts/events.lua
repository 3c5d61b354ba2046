-- events(after, limit): returns the number up to which it has read (0: to the end), names of the
-- lanes and tenants by number, then number and row of each
local limit, after = tonumber(ARGV[2]), tonumber(ARGV[1])
local result, found, seen, parts_read = {0, {}}, 0, {}, 0
for _, part in ipairs(call('ZRANGEBYSCORE', PARTS, part_of(after + 1), '+inf', 'LIMIT', 0, 8)) do
    parts_read = parts_read + 1
    local first, last = math.max(after + 1, part * ROWS_IN_PART), (part + 1) * ROWS_IN_PART - 1
    while first <= last and found < limit do
        local last_read, numbers = min(last, first + limit - found - 1), {}
        for number = first, last_read do
            numbers[#numbers + 1] = number
        end
        for index, row in ipairs(call('HMGET', log_key(first), unpack(numbers))) do
            if row then
                found = found + 1
                result[#result + 1] = numbers[index]
                result[#result + 1] = row
                local lane, tenant = read('>I4I4', row, 70)
                seen[lane], seen[tenant] = true, true
            end
        end
        first = last_read + 1
    end
    result[1] = first - 1
    if found >= limit then
        break
    end
end
if parts_read < 8 and found < limit then
    result[1] = 0
end
for number in pairs(seen) do
    table.insert(result[2], number)
    table.insert(result[2], call('HGET', P .. 'names', '=' .. number))
end
return result
