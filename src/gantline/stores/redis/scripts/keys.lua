-- Every key of a store, and the clock. All begin with the prefix in braces, the hash tag: so they
-- live in one slot, and a verb is one script, in a cluster too.
--
--   format                    string  the version of this layout
--   names                     hash    lanes ("q<length of queue>:<queue><type>") and tenants ("t<name>")
--                                     to their numbers, "=<number>" back, "#" the last number; types ("y<type>")
--                                     to the numbers of their lanes
--   jobs                      hash    job id -> envelope, as submitted; never changed (see rows.py)
--   states                    hash    job id -> its state (see state.lua)
--   ready:<lane>:<rank>       zset    Queued: run_at -> member; in the order of claims (see places.lua)
--   ready:<lane>:<rank>:<group>  zset  likewise of one group, but for suspects (see groups.lua)
--   grouped:<lane>:<rank>     zset    all of these sets together
--   groups:<lane>             zset    by name: "<tenant>:<group>" of which anything is Queued or Running
--   waiting:<lane>            hash    the same: "<tenant>:<group>" -> jobs Queued
--   in-groups                 hash    "<lane>:<s>" -> jobs of the default tenant that have a group, Q and R
--   permits:<lane>:<group>    set     Running: job ids
--   later:<lane>:<rank>       zset    first run_at -> "<tenant>:<group>", of which claims have not seen yet that it is due
--   turns:<lane>:<rank>       zset    when its turn was -> tenant, of which a group has a turn (see turning.lua)
--   turns:<lane>:<rank>:<tenant>  zset  when its turn was -> group
--   full:<lane>               zset    when its turn was -> "<rank>:<tenant>:<group>", of groups that are at their limit
--   full-at:<lane>            zset    the same: limit at which it was found full -> "<rank>:<tenant>:<group>"
--   full-in                   set     lanes of which any group is full
--   in-turns                  set     "<lane>:<rank>" in which any group has, or may get, a turn
--   turn                      hash    "#" the last number of a turn, "<lane>:<rank>[:<tenant>]" 1: it was that of a new one
--   gates                     hash    name -> when the next start is due, until when it is closed (see gating.lua)
--   expiry                    zset    Queued as submitted, and may expire: expires_at -> job id
--   suspects                  set     the "<lane>:<rank>" of suspects in which anything is ready
--   leases:<length>:<session> zset    Running: until -> member (see leases.lua)
--   lease-groups              zset    the lengths and sessions of which there may be leases, by name
--   claims                    hash    claim id -> how many of its runs are current, job ids
--   list:<lane>:<tenant>:<s>  zset    per status Q R C F P X, by name: created_at + job id
--   by-owner:<tenant>:<name>  zset    likewise, of jobs with an owner
--   by-subject:<tenant>:<…>   zset    likewise, of jobs with a subject
--   by-correlation:<tenant>:<…>  zset  likewise, of jobs whose correlation is not their own id
--   by-parent:<tenant>:<id>   zset    likewise, of jobs with a parent; its id in hex
--   ended:<s>                 zset    Completed, Cancelled: ended_at -> member
--   dead:<lane>:<tenant>:<s>:<reason>  zset  Failed, Poisoned: ended_at -> member
--   dead-groups               set     the "<lane>:<tenant>:<s>:<reason>" of which there are any
--   counts                    hash    "<lane>:<s>" -> jobs; counts:<tenant> the same of one tenant
--   last-event                string  the last sequence number
--   log:<n>                   hash    sequence number -> log row, 512 to a hash (see log.lua)
--   log-parts                 zset    n -> n, of which there is any row
--   keys                      hash    digest of a dedupe key -> who holds it, until when, fingerprint
--   key-ends                  zset    until -> digest; for ever: +inf
--   key-names                 hash    digest -> kind and names, of keys that no job or request names
--   requests                  hash    job id -> digest and names of its request key
--   external                  hash    job id -> digest of the key of its external id
--   records:<namespace>       hash    key -> version, replaced, expires, value
--   record-keys:<namespace>   zset    the keys of these, by name
--   namespaces                set     of which there are records
--   record-ends               zset    expires -> "<length of namespace>:<namespace><key>"
--   record-version            string  the last version
--   leaders                   hash    role -> term, until, owner
--   replicated                string  written before WAIT, so that there is something to wait for
--
-- The key that a call names is the prefix in braces itself, which never exists: while a slot is being
-- moved, a cluster redirects such a call (ASK) before the script has begun. Otherwise it would fail in
-- the middle of its writes, at the first key that has been moved.
--
-- A member is job id + lane + tenant, and the number of the group if the job has one: so a job whose row was removed
-- by hand can still be subtracted from the counts.
--
-- Instants are microseconds since 1970: exact up to the year 2255, within 32 after it.
local call = redis.call
local pack, read = struct.pack, struct.unpack
local floor, min = math.floor, math.min
local P = KEYS[1] .. ':'
local JOBS, STATES, CLAIMS, EXPIRY = P .. 'jobs', P .. 'states', P .. 'claims', P .. 'expiry'
local LAST = 253402300799999999

local function clock(given)
    if given ~= '' then
        return tonumber(given)
    end
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

local function later(now, span)
    return min(now + span, LAST)
end

-- A number as text. Given a number, the server would format it each time, which takes longer.
local function decimal(number)
    return string.format('%.0f', number)
end
