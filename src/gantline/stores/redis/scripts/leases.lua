-- Leases, in groups of one length and one session. In a group none may end later than its length from now,
-- so that those given before the clock was set back are found without looking at the others; and when a
-- session has ended, all its leases are in its groups.
local LEASE_GROUPS = P .. 'lease-groups'
local lease_keys = {}

local function lease_group(length, session)
    return pack(LEASE_GROUP, length, #session, session)
end

local function lease_key(group)
    local key = lease_keys[group]
    if not key then
        local length, session = read(LEASE_GROUP, group)
        key = P .. 'leases:' .. decimal(length) .. ':' .. session
        lease_keys[group] = key
    end
    return key
end

-- Until when a run is leased. Not at all, if the lease was removed by hand.
local function leased_until(id, state)
    local _, _, rest = parts_of(state)
    return tonumber(call('ZSCORE', lease_key(group_of(rest)), id .. member_end(state)) or 0)
end
