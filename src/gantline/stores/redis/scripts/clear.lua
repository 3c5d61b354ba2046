-- clear(cursor): removes what it finds of the store in a part of all keys; answers where to go on
-- By SCAN, since this is no verb of every day, and nothing may be left behind.
local found = call('SCAN', ARGV[1], 'COUNT', 1000)
for _, key in ipairs(found[2]) do
    if key:sub(1, #P) == P and key ~= P .. 'format' then
        call('UNLINK', key)
    end
end
return found[1]
