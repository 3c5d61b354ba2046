-- What the state of a Running job has after the fixed part and the key.
local function run_part(token, claim, cancel, percent, group, phase)
    return token .. claim .. pack('>Bd', cancel, percent) .. group .. pack('>Hc0', #phase, phase)
end

-- token, claim id, whether to cancel, percent, group, session, phase
local function read_run(rest)
    local cancel, percent, _, session, phase = read('>BdI8Hc0Hc0', rest, 33)
    return rest:sub(1, 16), rest:sub(17, 32), cancel, percent, group_of(rest), session, phase
end

local function is_of_run(rest, token)
    return rest:sub(1, 16) == token
end
