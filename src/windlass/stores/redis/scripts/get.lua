-- get(job ids)
-- Answers per job: nothing; or state, envelope, the newest log row that tells an outcome or '', the end
-- of the lease or 0
local answer = {}
for index, id in ipairs(ARGV) do
    local state = call('HGET', STATES, id)
    if state then
        local number = read('>I8', state, 39)
        local row = number > 0 and read_row(number)
        local till = state:sub(1, 1) == 'R' and tonumber(call('ZSCORE', LEASES, id))
        answer[index] = {state, call('HGET', JOBS, id), row or '', till or 0}
    else
        answer[index] = {}
    end
end
return answer
