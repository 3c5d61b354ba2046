-- An envelope: the length of the fingerprint, the fingerprint, then an array that begins with tenant,
-- type, subject, owner, queue, correlation, key and parent (see rows.py). No script can read what
-- follows.
local function fingerprint_of(envelope)
    return envelope:sub(2, envelope:byte() + 1)
end

local ARRAY_HEAD = 3

local function texts_of(envelope)
    local _, tenant, job_type, subject, owner =
        cmsgpack.unpack_limit(envelope, 4, envelope:byte() + 1 + ARRAY_HEAD)
    return tenant, job_type, subject, owner
end

-- The lists of a job beside that of its status, in the order in which callers give the names.
local LISTS = {'by-owner:', 'by-subject:', 'by-correlation:', 'by-parent:'}

local function listed_by(envelope)
    local _, _, _, subject, owner, _, correlation, _, parent =
        cmsgpack.unpack_limit(envelope, 8, envelope:byte() + 1 + ARRAY_HEAD)
    return {owner, subject, correlation or '', parent}
end

local function key_of(envelope)
    local key = select(8, cmsgpack.unpack_limit(envelope, 7, envelope:byte() + 1 + ARRAY_HEAD))
    return key
end
