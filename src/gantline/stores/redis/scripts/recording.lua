-- Records: version, the version it has replaced (0: none), expires (0: never), then the value.
-- A write is [namespace, key, value or false, expected or false, time to live or false].
local RECORD_ENDS, RECORD_VERSION = P .. 'record-ends', P .. 'record-version'
local RECORD_HEAD = '>I8I8I8'

local function end_member(namespace, key)
    return #namespace .. ':' .. namespace .. key
end

-- version, replaced, expires, value of a record that has not expired; nil where there is none.
local function record_of(namespace, key, now)
    local record = call('HGET', P .. 'records:' .. namespace, key)
    if not record then
        return nil
    end
    local version, replaced, expires = read(RECORD_HEAD, record)
    if expires ~= 0 and expires <= now then
        return nil
    end
    return version, replaced, expires, record:sub(25)
end

-- Whether a write may be made, and whether it has been made before, its result lost.
local function is_allowed(write, now)
    local expected = write[4]
    if not expected then
        return true, false
    end
    local version, replaced, _, value = record_of(write[1], write[2], now)
    if not version then
        return expected == 0 or not write[3], not write[3]
    end
    local is_repeat = replaced == expected and value == write[3]
    return expected == version or is_repeat, is_repeat
end

local function note_record(namespace, key)
    call('ZADD', P .. 'record-keys:' .. namespace, 0, key)
    call('SADD', P .. 'namespaces', namespace)
end

local function forget_record(namespace, key)
    call('HDEL', P .. 'records:' .. namespace, key)
    call('ZREM', P .. 'record-keys:' .. namespace, key)
    call('ZREM', RECORD_ENDS, end_member(namespace, key))
    if call('EXISTS', P .. 'record-keys:' .. namespace) == 0 then
        call('SREM', P .. 'namespaces', namespace)
    end
end

-- Write what is allowed; the new version, 0 for a deletion.
local function write_record(write, now)
    local namespace, key, value, _, time_to_live = unpack(write)
    local _, is_repeat = is_allowed(write, now)
    local before = record_of(namespace, key, now) or 0
    if is_repeat then
        return before
    end
    if not value then
        forget_record(namespace, key)
        return 0
    end
    local version, expires = call('INCR', RECORD_VERSION), 0
    if time_to_live then
        expires = later(now, time_to_live)
        call('ZADD', RECORD_ENDS, expires, end_member(namespace, key))
    else
        call('ZREM', RECORD_ENDS, end_member(namespace, key))
    end
    call('HSET', P .. 'records:' .. namespace, key, pack(RECORD_HEAD, version, before, expires) .. value)
    note_record(namespace, key)
    return version
end
