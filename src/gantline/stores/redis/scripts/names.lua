-- Numbers for lanes and tenants, given when they are first used.
local NAMES = P .. 'names'

local function number_of(name)
    local known = call('HGET', NAMES, name)
    if known then
        return tonumber(known)
    end
    local number = call('HINCRBY', NAMES, '#', 1)
    call('HSET', NAMES, name, number, '=' .. number, name)
    return number
end
