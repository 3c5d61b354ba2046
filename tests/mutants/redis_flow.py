"""Slips in the scripts of Redis for turns, limits and gates."""

from typing import Final

from tests.mutants.by_hand import Slip, in_script

_TURNS: Final = ("turns", "limits", "gates")

IN_FLOW: Final = (
    *in_script(
        "INSERT",
        ("turns",),
        Slip(
            "a group has no turn",
            "            call('ZADD', P .. 'later:' .. ranked, 'LT', unpack(",
            "            local _ = (unpack(",
        ),
        Slip(
            "a turn is when the last job of a group is due",
            "if not first or run_at < first then",
            "if not first or run_at > first then",
        ),
        Slip(
            "a turn that is known does not come sooner",
            "P .. 'later:' .. ranked, 'LT', unpack(",
            "P .. 'later:' .. ranked, 'NX', unpack(",
        ),
        Slip("nobody knows that groups take turns", "call('SADD', IN_TURNS, ranked)", ""),
        Slip("a job does not know its group", ".. place.group .. key)", ".. PLAIN .. key)"),
        Slip(
            "what is put off loses its group",
            " .. (extras and extras[8] and extras[8][2] or '')",
            "",
        ),
        Slip(
            "what waits of a group is not counted",
            "call('HINCRBY', numbers, place.turn, queued)",
            "call('HINCRBY', numbers, place.turn, 0)",
        ),
    ),
    *in_script(
        "CLAIM",
        _TURNS,
        Slip(
            "a closed gate lets through",
            "left = closed_until > now and 0 or floor(",
            "left = floor(",
        ),
        Slip(
            "a gate lets one more through",
            "floor(gate[3] - ahead / interval + 1e-9)",
            "floor(gate[3] + 1 - ahead / interval)",
        ),
        Slip(
            "a gate saves up without a bound",
            "min(math.max(0, next_at - now + rest), gate[3] * interval)",
            "min(next_at - now + rest, gate[3] * interval)",
        ),
        Slip("a gate forgets what it let through", "if room.used > 0 then", "if false then"),
        Slip(
            "a gate that is used is opened",
            "ahead - floor(ahead), room.closed_until)",
            "ahead - floor(ahead), 0)",
            equivalent="nothing starts at a gate while it is closed",
        ),
        Slip(
            "permits are counted in one lane only",
            "        for _, lane in ipairs(of_type) do\n            is_of_type",
            "        for _, lane in ipairs({of_type[1]}) do\n            is_of_type",
        ),
        Slip(
            "jobs without a group count those with one",
            "                    - (call('HGET', P .. 'in-groups', lane .. ':R') or 0)\n",
            "",
        ),
        Slip(
            "what an earlier request of the claim took is not counted",
            "lanes, in_turns, taken_before = {}, {}, #members",
            "lanes, in_turns, taken_before = {}, {}, 0",
        ),
        Slip(
            "a limit has room for one more",
            "room = {left = flow.running - count_running(flow.lanes, hex)}",
            "room = {left = flow.running + 1 - count_running(flow.lanes, hex)}",
        ),
        Slip(
            "a limit of all has room for one more",
            "{left = flow.in_all - count_running(flow.lanes)}",
            "{left = flow.in_all + 1 - count_running(flow.lanes)}",
        ),
        Slip(
            "a run uses no room of its group",
            "            room.left = room.left - 1\n        end\n    end\n",
            "        end\n    end\n",
        ),
        Slip(
            "a run uses no room of its lane",
            "one.left, one.used = one.left - 1,",
            "one.left, one.used = one.left,",
        ),
        Slip(
            "a run has no permit",
            "            write('SADD', permits_key(place.lane, place.hex), id)\n",
            "",
        ),
        Slip(
            "a full group that is not returned for a higher limit",
            "if lowest and not (limit and limit <= tonumber(lowest)) then",
            "if lowest and not limit then",
        ),
        Slip(
            "a full group waits for claims without limits, too",
            "if lowest and not (limit and limit <= tonumber(lowest)) then",
            "if lowest and limit and limit > tonumber(lowest) then",
        ),
        Slip(
            "jobs without a group have no turn beside groups",
            "            call('ZADD', turns_key(lane, rank, default), 'NX', score, PLAIN_HEX)\n",
            "",
        ),
        Slip(
            "who was served stays first",
            "write('ZADD', source.key, decimal(tenant.served), tenant.name)",
            "write('ZADD', source.key, decimal(tenant.score), tenant.name)",
        ),
        Slip(
            "a group that was served stays first",
            "write('ZADD', key, decimal(group.served), group.name)",
            "write('ZADD', key, decimal(group.score), group.name)",
        ),
        Slip(
            "new ones come after all others",
            "local member = is_new and new or old or new",
            "local member = old or new",
        ),
        Slip(
            "new ones come before all others",
            "local member = is_new and new or old or new",
            "local member = new or old",
        ),
        Slip(
            "of claims of one all are for new ones",
            "            is_new = not was_last_new\n",
            "            is_new = true\n",
        ),
        Slip(
            "what is left of a group and not due yet has no turn",
            "                if due and not is_plain then\n",
            "                if false then\n",
        ),
        Slip(
            "a group is left out while it has jobs that are due",
            "elseif not due or due > now then",
            "elseif true then",
        ),
        Slip(
            "the order of ids does not hold over types",
            "                or (due == best_due and is_before(cursor.found[cursor.at], best.found"
            "[best.at]))) then",
            ") then",
        ),
        Slip(
            "what was taken of a group stays",
            "call('ZREM', cursor.key, unpack(cursor.taken))",
            "local _ = (unpack(cursor.taken))",
        ),
        Slip(
            "what was taken of a group is counted as waiting for its time",
            "write('ZREM', grouped_key(lane.number, rank), member)",
            "local _ = member",
        ),
        Slip(
            "the first page of turns is all",
            "until left <= 0 or not has_more or looks >= MOST_LOOKS",
            "until true",
        ),
        Slip(
            "suspects hold to no limit",
            "if is_open(lane) and (not room or room.left > 0) then",
            "if true then",
        ),
        Slip(
            "a group of a tenant is that of another",
            "call('ZADD', turns_key(lane, rank, tenant), 'NX', score, hex)",
            "call('ZADD', turns_key(lane, rank, default), 'NX', score, hex)",
        ),
        Slip(
            "a rank is said to have turns when none is left",
            "        call('SREM', IN_TURNS, ranked)\n",
            "",
            equivalent="a claim looks there, and finds the jobs without a group",
        ),
    ),
    *in_script(
        "APPLY",
        _TURNS,
        Slip(
            "the permit of a completed run stays",
            "        write('SREM', permits_key(place.lane, place.hex), id)\n",
            "",
        ),
        Slip(
            "the permit of a run that failed stays",
            "            write('SREM', permits_key(place.lane, place.hex), change.job)\n",
            "",
        ),
        Slip(
            "a place that is free is found late",
            "if running < 0 and is_any_full then",
            "if false then",
        ),
        Slip("no gate is closed", "            close_gate(change.extras[5], at)\n", ""),
        Slip(
            "a gate is open sooner than who closed it first has said",
            "math.max(closed_until, till)",
            "till",
        ),
        Slip(
            "a job that goes back has no group",
            "job.key == '' and 0 or 1, job.listed, place.group)",
            "job.key == '' and 0 or 1, job.listed, PLAIN)",
        ),
        Slip(
            "a follow-up has no group",
            "number_of(new[5]), new[6]), now)",
            "number_of(new[5]), PLAIN), now)",
        ),
        Slip(
            "a group that nothing waits of any more is shown",
            "                call('ZREM', groups, place.turn)\n",
            "",
        ),
    ),
    *in_script(
        "LOAD_JOBS",
        ("turns", "moving"),
        Slip(
            "what is taken in has no group",
            "number_of(tenant), state:sub(65, 72))",
            "number_of(tenant), PLAIN)",
        ),
    ),
    *in_script(
        "AHEAD",
        ("turns", "waiting"),
        Slip("all of other groups are ahead", "and counted < most", ""),
        Slip(
            "those after it in its group are ahead",
            "'-inf', '(' .. decimal(run_at))\n    for",
            "'-inf', '+inf')\n    for",
        ),
    ),
    *in_script(
        "LIST_GROUPS",
        ("turns",),
        Slip("jobs without a group are no group", "    add_plain()\n", ""),
        Slip(
            "groups of all tenants are shown",
            "if asked then\n    from",
            "if false then\n    from",
        ),
        Slip("what is due later is due", "oldest <= now and oldest or -1", "oldest or -1"),
        Slip(
            "the next page begins with the last group",
            "local from, to = after == '' and '-' or '('",
            "local from, to = after == '' and '-' or '['",
        ),
    ),
)
