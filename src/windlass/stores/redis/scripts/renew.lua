-- renew(now, session, lease, then per run: job id, token)
-- Answers one letter per run: 'k' kept, 'c' kept and to be cancelled, 'l' lost
local now = clock(ARGV[1])
local session, till = ARGV[2], later(now, tonumber(ARGV[3]))
local answers, leased, till_text = {}, {}, spelt(till)
for first = 4, #ARGV, 2 do
    local id, answer = ARGV[first], 'l'
    local state = call('HGET', STATES, id)
    if state and state:sub(1, 1) == 'R' then
        local _, _, rest = parts_of(state)
        local token, _, cancel, _, owner = read_run(rest)
        if token == ARGV[first + 1] and owner == session then
            leased[#leased + 1] = till_text
            leased[#leased + 1] = id
            answer = cancel == 1 and 'c' or 'k'
        end
    end
    answers[#answers + 1] = answer
end
if #leased > 0 then
    call('ZADD', LEASES, 'XX', unpack(leased))
end
return table.concat(answers)
