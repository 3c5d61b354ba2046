-- Numbers for lanes and tenants, given when they are first used.
local function number_of(name)
    local known = call('HGET', NAMES, name)
    if known then
        return tonumber(known)
    end
    local number = call('HINCRBY', NAMES, '#', 1)
    call('HSET', NAMES, name, number, '=' .. number, name)
    local job_type = type_of_lane(name)
    if job_type then
        local lanes = call('HGET', NAMES, 'y' .. job_type)
        call('HSET', NAMES, 'y' .. job_type, lanes and lanes .. ' ' .. number or number)
    end
    return number
end
