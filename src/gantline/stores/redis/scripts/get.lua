-- get(job ids)
-- Returns per job: nothing; or state, envelope, the newest log row with an outcome or '', the end
-- of the lease or 0
local result = {}
for index, id in ipairs(ARGV) do
    local state, envelope = call('HGET', STATES, id), call('HGET', JOBS, id)
    if state and envelope then
        local number = read('>I8', state, 39)
        local row = number > 0 and read_row(number)
        result[index] = {state, envelope, row or '', state:byte() == RUNNING and leased_until(id, state) or 0}
    else
        result[index] = {}
    end
end
return result
