-- waiting(now, key after the prefix, tenant, first, limit): looks at part of what is ready, for one tenant
-- Returns how many were checked, how many are not yet due, since when the oldest is due (-1: none)
local now = tonumber(ARGV[1])
local members = call('ZRANGE', P .. ARGV[2], ARGV[4],
    tonumber(ARGV[4]) + tonumber(ARGV[5]) - 1, 'WITHSCORES')
local tenant, scheduled, oldest = pack('>I4', tonumber(ARGV[3])), 0, -1
for index = 1, #members, 2 do
    if members[index]:sub(21, 24) == tenant then
        local run_at = tonumber(members[index + 1])
        if run_at > now then
            scheduled = scheduled + 1
        elseif oldest < 0 then
            oldest = run_at
        end
    end
end
return {#members / 2, scheduled, oldest}
