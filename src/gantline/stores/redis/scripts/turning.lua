-- Claims by turns and under limits. All is in one function, so that other claims do not pay for its parts.
--
-- A turn has a score: when it was last served, by a number that grows with every turn; or NEW and such a number
-- while it was not served yet. Who was served longest ago comes first. A new one comes before, but while others wait
-- only every second turn is that of a new one, also from claim to claim.
local TURN = P .. 'turn'
-- So many groups, at most, are looked at in vain.
local MOST_LOOKS = 1000

-- `members`: what the script takes.
local function turning(now, members)
    local NEW = -2 ^ 52
    local number = tonumber(call('HGET', TURN, '#') or 0)
    local first_number, default = number, call('HGET', NAMES, 'tdefault') or '0'
    local gates, rotations, looks, returned = {}, {}, 0, 0
    -- Of the request: how many are asked for still, of its first ranks; how many were taken before; its lanes.
    local left, taken_before, lanes, in_turns = 0, 0, {}, {}

    -- What may start: a room is how many more, of a lane, a type, a group of it, or at a gate.

    local function room_at(gate)
        local room = gates[gate[1]]
        if not room then
            local next_at, rest, closed_until = read_gate(gate[1])
            local interval = 1000000 / gate[2]
            -- How far ahead of an even rate it is; by more than its burst only after the clock was set back.
            local ahead = min(math.max(0, next_at - now + rest), gate[3] * interval)
            room = {ahead = ahead, interval = interval, closed_until = closed_until, used = 0,
                    left = closed_until > now and 0 or floor(gate[3] - ahead / interval + 1e-9)}
            gates[gate[1]] = room
        end
        return room
    end

    local function count_running(of_type, hex)
        local running, is_of_type = 0, {}
        for _, lane in ipairs(of_type) do
            is_of_type[tonumber(lane)] = true
            if not hex then
                running = running + (call('HGET', P .. 'counts', lane .. ':R') or 0)
            elseif hex == PLAIN_HEX then
                running = running + (call('HGET', P .. 'counts:' .. default, lane .. ':R') or 0)
                    - (call('HGET', P .. 'in-groups', lane .. ':R') or 0)
            else
                running = running + call('SCARD', permits_key(lane, hex))
            end
        end
        for index = 1, taken_before do
            local place = place_at(members[index]:sub(17))
            if is_of_type[place.lane] and (not hex or hex == (place.hex or PLAIN_HEX)) then
                running = running + 1
            end
        end
        return running
    end

    -- Remove permits of jobs that do not run, as after rows were removed by hand.
    local function check_permits(of_type, hex)
        for _, lane in ipairs(of_type) do
            local key = permits_key(lane, hex)
            local ids = call('SRANDMEMBER', key, 32)
            local states = #ids > 0 and call('HMGET', STATES, unpack(ids)) or {}
            for index, id in ipairs(ids) do
                if not states[index] or states[index]:byte() ~= RUNNING then
                    call('SREM', key, id)
                end
            end
        end
    end

    -- Of a group, where the type has a limit for each.
    local function room_of(lane, hex)
        local flow = lane.flow
        local room = flow and flow.rooms[hex]
        if flow and flow.running and not room then
            room = {left = flow.running - count_running(flow.lanes, hex)}
            if room.left <= 0 and flow.running > 0 then
                check_permits(flow.lanes, hex)
                room.left = flow.running - count_running(flow.lanes, hex)
            end
            flow.rooms[hex] = room
        end
        return room
    end

    local function is_open(lane)
        for _, room in ipairs(lane.rooms) do
            if room.left <= 0 then
                return false
            end
        end
        return true
    end

    local function use(lane, room)
        for _, one in ipairs(lane.rooms) do
            one.left, one.used = one.left - 1, (one.used or 0) + 1
        end
        if room then
            room.left = room.left - 1
        end
    end

    -- Turns that come and go.

    local function next_number()
        number = number + 1
        return number
    end

    local function turns_key(lane, rank, tenant)
        local key = P .. 'turns:' .. lane.number .. ':' .. rank
        return tenant and key .. ':' .. tenant or key
    end

    -- Give turns to groups of which jobs have become due; true if there may be more.
    local function begin_turns(lane, rank)
        local later_key, most, tenants = P .. 'later:' .. lane.number .. ':' .. rank, math.max(100, left), {}
        local found = call('ZRANGEBYSCORE', later_key, '-inf', decimal(now), 'LIMIT', 0, most)
        for _, turn in ipairs(found) do
            if not lane.is_any_full or not call('ZSCORE', P .. 'full:' .. lane.number, rank .. ':' .. turn) then
                local tenant, hex = turn:match('^(%d+):(%x+)$')
                local score = NEW + next_number()
                call('ZADD', turns_key(lane, rank, tenant), 'NX', score, hex)
                tenants[#tenants + 1] = score
                tenants[#tenants + 1] = tenant
            end
        end
        if #tenants > 0 then
            call('ZADD', turns_key(lane, rank), 'NX', unpack(tenants))
        end
        if #found > 0 then
            call('ZREM', later_key, unpack(found))
        end
        return #found == most
    end

    -- Jobs without a group are one group of the default tenant. Where there are no others, it has no turn.
    local function has_only_plain(lane, rank)
        local first = call('ZRANGE', ready_key(lane.number, rank), 0, 0, 'WITHSCORES')
        local is_due = first[2] and tonumber(first[2]) <= now
        if is_due and in_turns[lane.number .. ':' .. rank] then
            local score = NEW + next_number()
            call('ZADD', turns_key(lane, rank), 'NX', score, default)
            call('ZADD', turns_key(lane, rank, default), 'NX', score, PLAIN_HEX)
            is_due = false
        end
        return is_due
    end

    -- A group that is at its limit waits apart, until a run of it ends or a claim comes with a higher limit.
    local function set_aside(lane, rank, turn, score)
        local name = rank .. ':' .. turn
        call('ZADD', P .. 'full:' .. lane.number, score, name)
        call('ZADD', P .. 'full-at:' .. lane.number, lane.flow.running, name)
        call('SADD', FULL_IN, lane.number)
        lane.is_any_full = true
    end

    -- Give turns back to groups that were full at a lower limit than that of this claim; true if there may be more.
    local function return_turns(lane)
        local full_at, limit = P .. 'full-at:' .. lane.number, lane.flow and lane.flow.running
        local lowest = call('ZRANGE', full_at, 0, 0, 'WITHSCORES')[2]
        lane.is_any_full, lane.is_returned = lowest, true
        if lowest and not (limit and limit <= tonumber(lowest)) then
            local below, most = limit and '(' .. decimal(limit) or '+inf', math.max(100, left)
            local found = call('ZRANGEBYSCORE', full_at, '-inf', below, 'LIMIT', 0, most)
            for _, name in ipairs(found) do
                local rank, turn = name:match('^(%d):(.*)$')
                return_turn(lane.number, rank, turn, call('ZSCORE', P .. 'full:' .. lane.number, name) or 0)
            end
            returned = returned + #found
            lane.is_returned = #found < most or returned >= MOST_LOOKS
        end
        return not lane.is_returned
    end

    -- Look at a few that are full again. So none waits for ever, whatever was removed by hand.
    local function check_full(lane)
        if lane.is_any_full and lane.flow and lane.flow.running then
            for _, name in ipairs(call('ZRANDMEMBER', P .. 'full:' .. lane.number, 4)) do
                local rank, turn = name:match('^(%d):(.*)$')
                if room_of(lane, turn:match('%x+$')).left > 0 then
                    return_turn(lane.number, rank, turn, call('ZSCORE', P .. 'full:' .. lane.number, name))
                end
            end
        end
    end

    -- Who is next: the same for tenants, and for the groups of each. A member may have turns in several lanes.

    local RANGES = {new = {'-inf', '(0'}, old = {'0', '+inf'}}

    -- `share`: how many turns there are for about `most` members; then others are chosen.
    local function make_rotation(name, sources, share, most)
        local rotation = {name = name, sources = sources, share = share, most = most, page = most, members = {},
                          new = {}, old = {}, at = {new = 1, old = 1}, fresh = {}, first_fresh = 1, queue = {},
                          first = 1, last = 0, turns_left = 0, visited = {}}
        for _, source in ipairs(sources) do
            source.read, source.is_read = {new = 0, old = 0}, {}
        end
        rotations[#rotations + 1] = rotation
        return rotation
    end

    local function read_source(source, kind, page)
        if source.only then
            source.is_read[kind] = true
            return kind == 'new' and {source.only, NEW} or {}
        end
        local range, first = RANGES[kind], source.read[kind]
        local found = call('ZRANGEBYSCORE', source.key, range[1], range[2], 'WITHSCORES', 'LIMIT', first, page)
        source.read[kind], source.is_read[kind] = first + page, #found < 2 * page
        return found
    end

    local function read_members(rotation, kind)
        local members_of_kind = {}
        for _, source in ipairs(rotation.sources) do
            local found = is_open(source.lane) and not source.is_read[kind] and read_source(source, kind, rotation.page)
            for index = 1, found and #found or 0, 2 do
                local name, score = found[index], tonumber(found[index + 1])
                local member = rotation.members[name] or {name = name, score = score, sources = {}}
                if not member.is_chosen then
                    rotation.members[name] = member
                    if member.kind ~= 'old' and member.kind ~= kind then -- who is new in one lane only is not new
                        member.kind = kind
                        members_of_kind[#members_of_kind + 1] = member
                    end
                    member.score = math.max(member.score, score)
                    member.sources[#member.sources + 1] = source
                end
            end
        end
        table.sort(members_of_kind, function(one, other) return one.score < other.score end)
        rotation[kind], rotation.at[kind] = members_of_kind, 1
    end

    local function first_of_kind(rotation, kind)
        local found = rotation[kind]
        while rotation.at[kind] <= #found and found[rotation.at[kind]].kind ~= kind do
            rotation.at[kind] = rotation.at[kind] + 1
        end
        if rotation.at[kind] > #found then
            read_members(rotation, kind)
        end
        return rotation[kind][rotation.at[kind]]
    end

    -- Choose who takes part in the next turns.
    local function choose_members(rotation)
        rotation.fresh, rotation.first_fresh, rotation.turns_left = {}, 1, rotation.share
        local old, new = first_of_kind(rotation, 'old'), first_of_kind(rotation, 'new')
        local is_new = true
        rotation.is_contested = old and new
        if rotation.is_contested then
            local was_last_new = rotation.was_last_new
            if was_last_new == nil then
                was_last_new = call('HGET', TURN, rotation.name) == '1'
            end
            is_new = not was_last_new
        end
        while #rotation.fresh < rotation.most do
            new, old = first_of_kind(rotation, 'new'), first_of_kind(rotation, 'old')
            local member = is_new and new or old or new
            if not member then
                return
            end
            is_new = member ~= new
            member.is_chosen, rotation.at[member.kind] = true, rotation.at[member.kind] + 1
            rotation.fresh[#rotation.fresh + 1] = member
        end
    end

    -- Take one job of whoever is next; false if nobody has one that may start. Who has none drops out.
    local function take_next(rotation, take_of)
        while looks < MOST_LOOKS do
            local member
            if rotation.first_fresh > #rotation.fresh and (rotation.turns_left <= 0 or rotation.first > rotation.last) then
                choose_members(rotation)
            end
            if rotation.first_fresh <= #rotation.fresh then
                member = rotation.fresh[rotation.first_fresh]
                rotation.first_fresh = rotation.first_fresh + 1
                rotation.visited[#rotation.visited + 1] = member
            elseif rotation.first <= rotation.last then
                member = rotation.queue[rotation.first]
                rotation.first = rotation.first + 1
            else
                return false
            end
            if take_of(member) then
                if rotation.is_contested and not member.served then
                    rotation.was_last_new = member.kind == 'new'
                end
                member.served = next_number()
                rotation.last = rotation.last + 1
                rotation.queue[rotation.last] = member
                rotation.turns_left = rotation.turns_left - 1
                return true
            end
            looks = looks + 1
        end
        return false
    end

    -- The jobs of a group, those of several lanes in one order.

    -- When the first that was not taken is due; nil where there is none.
    local function next_due(cursor)
        if cursor.at > #cursor.found and not cursor.is_read then
            cursor.found, cursor.at = call('ZRANGE', cursor.key, cursor.read, cursor.read + cursor.page, 'WITHSCORES'), 1
            cursor.is_read = #cursor.found < 2 * cursor.page + 2
            cursor.read, cursor.page = cursor.read + cursor.page + 1, left
        end
        return tonumber(cursor.found[cursor.at + 1])
    end

    local function open_group(group, rank, page)
        group.cursors = {}
        for index, source in ipairs(group.sources) do
            local key = ready_key(source.lane.number, rank)
            group.cursors[index] = {key = group.name == PLAIN_HEX and key or key .. ':' .. group.name, source = source,
                                    lane = source.lane, room = room_of(source.lane, group.name), found = {}, at = 1,
                                    read = 0, page = page, taken = {}}
        end
    end

    local function take_of_group(group)
        local best, best_due
        for _, cursor in ipairs(group.cursors) do
            local due = (not cursor.room or cursor.room.left > 0) and is_open(cursor.lane) and next_due(cursor)
            if due and due <= now and (not best or due < best_due
                or (due == best_due and is_before(cursor.found[cursor.at], best.found[best.at]))) then
                best, best_due = cursor, due
            end
        end
        if not best then
            return false
        end
        local member = best.found[best.at]
        best.at, best.taken[#best.taken + 1], members[#members + 1] = best.at + 2, member, member
        use(best.lane, best.room)
        left = left - 1
        return true
    end

    -- Write what has become of a group that was looked at.
    local function finish_group(tenant, group, rank)
        for _, cursor in ipairs(group.cursors) do
            local due, lane, is_plain = next_due(cursor), cursor.lane, group.name == PLAIN_HEX
            if #cursor.taken > 0 then
                call('ZREM', cursor.key, unpack(cursor.taken))
                if not is_plain then
                    for _, member in ipairs(cursor.taken) do
                        write('ZREM', grouped_key(lane.number, rank), member)
                    end
                end
            end
            local key, turn = cursor.source.key, tenant.name .. ':' .. group.name
            if cursor.source.only then
                key = nil -- it has no turn
            elseif not due or due > now then
                call('ZREM', key, group.name)
                tenant.has_fewer = true
                local later_key = P .. 'later:' .. lane.number .. ':' .. rank
                if due and not is_plain then
                    call('ZADD', later_key, 'LT', due, turn)
                elseif not is_plain then
                    write('ZREM', later_key, turn) -- as where what was added since is taken, too
                end
            elseif cursor.room and cursor.room.left <= 0 and not is_plain then
                call('ZREM', key, group.name)
                tenant.has_fewer = true
                set_aside(lane, rank, turn, group.served or group.score)
            elseif group.served then
                write('ZADD', key, decimal(group.served), group.name)
            end
        end
    end

    local function finish_tenant(tenant, rank)
        for _, group in ipairs(tenant.groups.visited) do
            finish_group(tenant, group, rank)
        end
        for _, source in ipairs(tenant.sources) do
            if source.only then
                -- it has no turn
            elseif (tenant.has_fewer or not tenant.served)
                and call('EXISTS', turns_key(source.lane, rank, tenant.name)) == 0 then
                call('ZREM', source.key, tenant.name)
            elseif tenant.served then
                write('ZADD', source.key, decimal(tenant.served), tenant.name)
            end
        end
    end

    local function take_page(rank)
        local sources, has_more = {}, false
        for _, lane in ipairs(lanes) do
            if is_open(lane) then
                if not lane.is_returned then
                    has_more = return_turns(lane) or has_more
                end
                if in_turns[lane.number .. ':' .. rank] then
                    has_more = begin_turns(lane, rank) or has_more
                end
                local is_plain = has_only_plain(lane, rank)
                if is_plain or in_turns[lane.number .. ':' .. rank] then
                    sources[#sources + 1] = {lane = lane, key = turns_key(lane, rank), only = is_plain and default}
                end
            end
        end
        if #sources == 0 then
            return false
        end
        -- Few groups with more jobs each cost less: with 50 of 100 groups instead of 10, a claim took four times as long.
        local tenants = make_rotation(sources[1].lane.number .. ':' .. rank, sources, left, math.max(10, math.ceil(left / 5)))
        local groups
        local function take_of_member(group)
            if not group.cursors then
                open_group(group, rank, math.ceil(groups.share / #groups.fresh))
            end
            return take_of_group(group)
        end
        local function take_of_tenant(tenant)
            if not tenant.groups then
                local share = math.ceil(left / #tenants.fresh)
                local most = math.max(math.ceil(10 / #tenants.fresh), math.ceil(share / 5))
                local of_tenant = {}
                for index, source in ipairs(tenant.sources) do
                    of_tenant[index] = {lane = source.lane, key = turns_key(source.lane, rank, tenant.name),
                                        only = source.only and PLAIN_HEX}
                end
                tenant.groups = make_rotation(tenants.name .. ':' .. tenant.name, of_tenant, share, most)
            end
            groups = tenant.groups
            return take_next(groups, take_of_member)
        end
        repeat
        until left <= 0 or not take_next(tenants, take_of_tenant)
        for _, tenant in ipairs(tenants.visited) do
            finish_tenant(tenant, rank)
        end
        write_pending()
        return has_more
    end

    local by_turns = {}

    -- Begin a request; false where it needs no turns: it names no limits, and only plain jobs wait.
    function by_turns.begin(numbers, most, flows)
        lanes, in_turns, taken_before = {}, {}, #members
        local is_needed = next(flows) ~= nil
        for index, lane in ipairs(numbers) do
            lanes[index] = {number = lane, flow = flows[lane], rooms = {most[lane] and {left = most[lane]}}}
            local names = {lane .. ':0', lane .. ':1', lane .. ':2', lane .. ':3'}
            for rank, is_member in ipairs(call('SMISMEMBER', IN_TURNS, unpack(names))) do
                if is_member == 1 then
                    in_turns[names[rank]], is_needed = true, true
                end
            end
        end
        for _, lane in ipairs(is_needed and lanes or {}) do
            local flow = lane.flow
            if flow then
                flow.rooms, flow.lanes = {}, lanes_of_type(flow.job_type)
                if flow.in_all then
                    table.insert(lane.rooms, {left = flow.in_all - count_running(flow.lanes)})
                end
                if flow.gate then
                    table.insert(lane.rooms, room_at(flow.gate))
                end
            end
        end
        return is_needed
    end

    -- Take due jobs of a priority; returns how many are asked for still.
    function by_turns.take(rank, asked)
        left = asked
        repeat
            local has_more = take_page(rank)
        until left <= 0 or not has_more or looks >= MOST_LOOKS
        for _, lane in ipairs(left > 0 and rank == 3 and lanes or {}) do
            check_full(lane)
        end
        return left
    end

    -- Whether one more of a lane may start, of suspects, and whether none else of it may; nil where too many were
    -- looked at.
    function by_turns.may_start(lane_number, member)
        local is_closed = false
        for _, lane in ipairs(lanes) do
            if lane.number == lane_number then
                local room = room_of(lane, place_at(member:sub(17)).hex or PLAIN_HEX)
                if is_open(lane) and (not room or room.left > 0) then
                    use(lane, room)
                    return true
                end
                is_closed = not is_open(lane)
            end
        end
        looks = looks + 1
        if looks < MOST_LOOKS then
            return false, is_closed
        end
        return nil
    end

    function by_turns.finish_request()
        for _, lane in ipairs(lanes) do
            for rank = 0, 3 do
                if in_turns[lane.number .. ':' .. rank] then
                    forget_turns(lane.number, rank, default)
                end
            end
        end
    end

    function by_turns.finish()
        for name, room in pairs(gates) do
            if room.used > 0 then
                local ahead = room.ahead + room.used * room.interval
                write_gate(name, now + floor(ahead), ahead - floor(ahead), room.closed_until)
            end
        end
        for _, rotation in ipairs(rotations) do
            if rotation.was_last_new then
                call('HSET', TURN, rotation.name, '1')
            elseif rotation.was_last_new == false then
                call('HDEL', TURN, rotation.name)
            end
        end
        if number > first_number then
            call('HSET', TURN, '#', decimal(number))
        end
    end

    return by_turns
end
