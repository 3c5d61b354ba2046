-- queued_of_group(lane, "t<tenant>", group, or '' for those without): returns how many are Queued
local lane, tenant = call('HGET', NAMES, ARGV[1]), call('HGET', NAMES, ARGV[2])
if not lane or not tenant then
    return 0
end
if ARGV[3] == '' then
    local field = lane .. ':Q'
    return (call('HGET', P .. 'counts:' .. tenant, field) or 0) - (call('HGET', P .. 'in-groups', field) or 0)
end
return tonumber(call('HGET', P .. 'waiting:' .. lane, tenant .. ':' .. ARGV[3]) or 0)
