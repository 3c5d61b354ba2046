-- insert(now, the channel for the hint ('' for none), number of targets, lane 1, tenant 1, group 1 ('' for PLAIN), …,
-- then per job: index of its target, meta, envelope, extras)
-- Returns per job: 1 | 'D' id kind: a duplicate | 'I': the id is taken | 'K' kind: the key is taken
local now = clock(ARGV[1])
local named, at = {}, 4
for number = 1, tonumber(ARGV[3]) do
    named[number] = place_of(number_of(ARGV[at]), number_of(ARGV[at + 1]), ARGV[at + 2])
    at = at + 3
end
local ids, results = {}, {}
for index = 1, (#ARGV - at + 1) / 4 do
    ids[index] = ARGV[at + 4 * index - 3]:sub(1, 16)
end
local known = call('HMGET', JOBS, unpack(ids))
for index, id in ipairs(ids) do
    local first = at + 4 * (index - 1)
    local place, meta, envelope = named[tonumber(ARGV[first])], ARGV[first + 1], ARGV[first + 2]
    local extras = ARGV[first + 3] ~= '' and cmsgpack.unpack(ARGV[first + 3])
    local there = known[index]
    if touch(id) then
        there = call('HGET', JOBS, id)
    end
    local refused = (there or extras) and refusal(id, there, envelope, extras, now)
    if not refused then
        store(meta, envelope, extras, place, now)
    end
    results[index] = refused or 1
end
write_pending()
write_last_number()
write_counts()
if ARGV[2] ~= '' then
    redis.pcall('PUBLISH', ARGV[2], 'w') -- work; where that is not allowed, workers poll
end
return results
