-- resign(role, owner, term): the term stays, so that the next is a new one
local held = call('HGET', P .. 'leaders', ARGV[1])
if held and held:sub(17) == ARGV[2] and read('>I8', held) == tonumber(ARGV[3]) then
    call('HSET', P .. 'leaders', ARGV[1], held:sub(1, 8) .. pack('>I8', 0))
end
