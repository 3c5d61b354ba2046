-- clear(cursor): removes the keys of the store in a part of all keys; returns the cursor to continue with
-- By SCAN: this is rarely called, and no key may remain.
local found = call('SCAN', ARGV[1], 'COUNT', 1000)
for _, key in ipairs(found[2]) do
    if key:sub(1, #P) == P and key ~= P .. 'format' then
        call('UNLINK', key)
    end
end
return found[1]
