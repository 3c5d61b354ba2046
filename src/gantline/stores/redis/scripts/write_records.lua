-- write_records(now, then the writes)
-- Returns per write: the new version | 'R' the version is another
local now = clock(ARGV[1])
local results = {}
for index = 2, #ARGV do
    local write = cmsgpack.unpack(ARGV[index])
    results[#results + 1] = is_allowed(write, now) and write_record(write, now) or 'R'
end
return results
