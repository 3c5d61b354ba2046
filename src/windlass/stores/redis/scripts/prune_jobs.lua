-- prune_jobs(key behind the prefix, ended before, offset, limit, keep events after or '')
-- Answers how many were removed, how many were looked at and stay
local ids = call('ZRANGEBYSCORE', P .. ARGV[1], '-inf', '(' .. ARGV[2], 'LIMIT', ARGV[3], ARGV[4])
local keep, removed = tonumber(ARGV[5]), 0
for _, id in ipairs(ids) do
    local state = call('HGET', STATES, id)
    if not keep or read('>I8', state, 31) <= keep then
        note_key_of(id, state)
        remove(id, state)
        removed = removed + 1
    end
end
write_counts()
return {removed, #ids - removed}
