-- The log: one row per ended run and per action of an operator, numbered as it is written.
--
-- A row: the number of the job's row before it (0: none), change id, job id, version, status, at,
-- attempt, fence, started_at (0: none), lane, tenant, event, reason, session; then what the caller
-- packed: error, result, actor (see rows.py).
local LAST_EVENT, PARTS = P .. 'last-event', P .. 'log-parts'
local ROW = '>I8c16c16I4c1I8I4I4I8I4I4Bc0Bc0Hc0'
local ROWS_IN_PART = 512

local function part_of(number)
    return floor(number / ROWS_IN_PART)
end

local function log_key(number)
    return P .. 'log:' .. part_of(number)
end

local function read_row(number)
    return call('HGET', log_key(number), number)
end

local function reason_of(row)
    local reason = select(13, read(ROW, row))
    return reason
end
