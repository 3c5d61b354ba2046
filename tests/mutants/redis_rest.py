"""Slips in the scripts of Redis for records, leaders, reading and moving."""

from typing import Final

from tests.mutants.by_hand import Slip, in_script

IN_THE_REST: Final = (
    *in_script(
        "WRITE_RECORDS",
        ("records", "answers"),
        Slip(
            "a record that has expired is still there",
            "if expires ~= 0 and expires <= now then",
            "if false then",
        ),
        Slip(
            "a record lives a moment longer",
            "if expires ~= 0 and expires <= now then",
            "if expires ~= 0 and expires < now then",
        ),
        Slip(
            "what is not there may have any version",
            "return expected == 0 or not write[3], not write[3]",
            "return true, not write[3]",
        ),
        Slip(
            "the same value counts as a repeat",
            "local is_repeat = replaced == expected and value == write[3]",
            "local is_repeat = value == write[3]",
        ),
        Slip(
            "a repeat may have another value",
            "local is_repeat = replaced == expected and value == write[3]",
            "local is_repeat = replaced == expected",
        ),
        Slip(
            "a deleted record is still listed",
            "    call('ZREM', P .. 'record-keys:' .. namespace, key)\n",
            "",
        ),
        Slip(
            "a record that is written for ever keeps its end",
            "    else\n        call('ZREM', RECORD_ENDS, end_member(namespace, key))\n",
            "",
        ),
        Slip(
            "a version comes again",
            "local version, expires = call('INCR', RECORD_VERSION), 0",
            "local version, expires = before + 1, 0",
        ),
    ),
    *in_script(
        "READ_RECORDS",
        ("records",),
        Slip(
            "a record that has expired is read",
            "if expires == 0 or expires > now then",
            "if true then",
        ),
        Slip("there is always an end of the list", "#keys == limit and 1 or 0", "0"),
    ),
    *in_script(
        "LEAD",
        ("records", "clocks"),
        Slip(
            "a leader leads a moment longer",
            "till <= now or till > new_till",
            "till < now or till > new_till",
        ),
        Slip(
            "a leader of the future leads for ever", "till <= now or till > new_till", "till <= now"
        ),
        Slip("anyone leads", "if leader ~= owner and not is_free then", "if false then"),
    ),
    *in_script(
        "RESIGN",
        ("records",),
        Slip(
            "an old term resigns for the new",
            "and read('>I8', held) == tonumber(ARGV[3]) then",
            "then",
        ),
        Slip("anyone resigns for the leader", "held and held:sub(17) == ARGV[2] and", "held and"),
    ),
    *in_script(
        "COUNTS",
        ("reading", "suspects"),
        Slip("suspects are not counted", "0, -1, suspects[lane] or {}", "0, -1, {}"),
        Slip(
            "the newest due job is the oldest",
            "tonumber(first[2]) < oldest) then",
            "tonumber(first[2]) > oldest) then",
        ),
        Slip(
            "what is due now is counted as scheduled",
            "string.format('(%.17g', now)",
            "string.format('%.17g', now)",
        ),
    ),
    *in_script(
        "WAITING",
        ("reading",),
        Slip(
            "what is due now is counted as scheduled",
            "if run_at > now then",
            "if run_at >= now then",
        ),
        Slip(
            "the jobs of all tenants are one's own",
            "if members[index]:sub(21, 24) == tenant then",
            "if true then",
        ),
    ),
    *in_script(
        "DEAD_COUNTS",
        ("reading",),
        Slip(
            "the dead of all tenants are one's own",
            "if not tenant or tenant == whose then",
            "if true then",
        ),
        Slip(
            "the oldest is the newest",
            "call('ZRANGE', key, 0, 0, 'REV', 'WITHSCORES')",
            "call('ZRANGE', key, 0, 0, 'WITHSCORES')",
        ),
    ),
    *in_script(
        "EVENTS",
        ("events",),
        Slip(
            "a reader gets the last event again",
            "math.max(after + 1, part * ROWS_IN_PART)",
            "math.max(after, part * ROWS_IN_PART)",
        ),
        Slip(
            "a reader skips an event",
            "math.max(after + 1, part * ROWS_IN_PART)",
            "math.max(after + 2, part * ROWS_IN_PART)",
        ),
        Slip(
            "a part of the log is left out",
            "PARTS, part_of(after + 1), '+inf'",
            "PARTS, '(' .. part_of(after + 1), '+inf'",
        ),
    ),
    *in_script(
        "GET",
        ("reading", "on_request"),
        Slip(
            "an event on request is an outcome", "read('>I8', state, 39)", "read('>I8', state, 31)"
        ),
    ),
    *in_script(
        "HISTORY",
        ("reading", "applying"),
        Slip(
            "a long history is cut",
            "#result < 2 + tonumber(ARGV[3])",
            "#result < 1 + tonumber(ARGV[3])",
            equivalent="pages are one row shorter, and all of them are read",
        ),
    ),
    *in_script(
        "HELD",
        ("keys", "applying"),
        Slip(
            "a key whose time is over is still held",
            "if till ~= 0 and till <= now then",
            "if false then",
        ),
    ),
    *in_script(
        "REQUEST_KEYS",
        ("keys",),
        Slip(
            "the request of a key that another holds is found",
            "and holder(request:sub(1, 20), now) == ARGV[index] and",
            "and holder(request:sub(1, 20), now) and",
            equivalent="who takes a key over removes the request of the job before",
        ),
    ),
    *in_script(
        "DUE",
        ("maintenance",),
        Slip("cancelled jobs are never overdue", "check('X', 'ended:X')\n", ""),
        Slip("what ended just then is overdue", "if overdue > 0 then", "if overdue >= 0 then"),
        Slip(
            "the shortest delay is told",
            "longest = math.max(longest, overdue)",
            "longest = overdue",
        ),
    ),
    *in_script(
        "PLACES_OF",
        ("reading",),
        Slip(
            "the last tenant is left out",
            "first + tonumber(ARGV[3]) - 1)",
            "first + tonumber(ARGV[3]) - 2)",
            equivalent="pages are one tenant shorter, and all of them are read",
        ),
    ),
    *in_script(
        "LOAD_JOBS",
        ("moving", "suspects", "expiry"),
        Slip("jobs taken in are not counted", "    count(place, status, 1)\n", ""),
        Slip(
            "what was moved waits for ever",
            "            call('ZADD', EXPIRY, expires, id)\n",
            "",
        ),
        Slip(
            "numbers are given again",
            "        last = math.max(last, number)\n",
            "",
            equivalent="the marks, which are loaded last, set the last number too",
        ),
        Slip(
            "a suspect taken in is an ordinary job",
            "add_ready(id, place, first_rank(crashes) + priority, decimal(at))",
            "add_ready(id, place, priority, decimal(at))",
        ),
    ),
    *in_script(
        "LOAD_KEYS",
        ("moving",),
        Slip(
            "keys taken in are held for ever",
            "call('ZADD', KEY_ENDS, decimal(at), digest)",
            "call('ZADD', KEY_ENDS, '+inf', digest)",
        ),
        Slip(
            "a request taken in is not found",
            "            call('HSET', REQUESTS, job, request)\n",
            "",
        ),
    ),
)
