-- prune_jobs(key after the prefix, ended before, offset, limit, keep events after or '')
-- Returns how many were removed, how many were checked and stay
local members = call('ZRANGEBYSCORE', P .. ARGV[1], '-inf', '(' .. ARGV[2], 'LIMIT', ARGV[3], ARGV[4])
local keep, removed = tonumber(ARGV[5]), 0
local ids = {}
for index, member in ipairs(members) do
    ids[index] = member:sub(1, 16)
end
local states = #ids > 0 and call('HMGET', STATES, unpack(ids))
for index, member in ipairs(members) do
    local id, state = ids[index], states[index]
    if not state then
        call('ZREM', P .. ARGV[1], member)
        remove_leftovers(member, ARGV[1]:match('^ended:(.)') or ARGV[1]:match('^dead:%d+:%d+:(.)'))
        removed = removed + 1
    elseif not keep or read('>I8', state, 31) <= keep then
        note_key_of(id, state)
        remove(id, state)
        removed = removed + 1
    end
end
write_removed()
forget_empty_group(ARGV[1]:match('^dead:(.*)'))
return {removed, #members - removed}
