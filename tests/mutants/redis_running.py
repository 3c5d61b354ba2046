"""Slips in the scripts of Redis by which jobs come, run and are renewed."""

from typing import Final

from tests.mutants.by_hand import Slip, in_script

IN_RUNNING: Final = (
    *in_script(
        "INSERT",
        ("inserting", "keys", "external_ids", "expiry", "on_request", "visibility", "applying"),
        Slip(
            "what is submitted waits for ever",
            "            call('ZADD', EXPIRY, extras[8][1], id)\n",
            "",
        ),
        Slip(
            "what is put off never expires",
            " .. (extras and extras[8] and extras[8][2] or '')",
            "",
        ),
        Slip(
            "the id of a job of another tenant clashes with an external one",
            "if known and texts_of(known) == texts_of(envelope) then",
            "if known then",
        ),
        Slip(
            "an external id can be held for any payload",
            "local same = fingerprint == external[2]",
            "local same = true",
        ),
        Slip(
            "an id of another tenant is a duplicate",
            "return #tenant .. ':' .. tenant .. #job_type",
            "return #job_type",
        ),
        Slip(
            "an id of another type is a duplicate",
            "#job_type .. ':' .. job_type .. fingerprint_of(envelope)",
            "fingerprint_of(envelope)",
        ),
        Slip("a key is held a moment longer", "till <= now then", "till < now then"),
        Slip("only the key of the request is looked at", "extras and 2 or 0", "extras and 1 or 0"),
        Slip("any payload is the same", "local same = fingerprint == key[2]", "local same = true"),
        Slip("a time in the past is kept", "run_at = math.max(now, time)", "run_at = time"),
        Slip(
            "a request key is held for ever",
            "take(extras[1][1], id, later(now, extras[1][3]), extras[1][2])",
            "take(extras[1][1], id, 0, extras[1][2])",
        ),
        Slip(
            "the request of a job is not found by its id",
            "            call('HSET', REQUESTS, id, extras[1][1] .. extras[1][4])\n",
            "",
        ),
        Slip(
            "lists of owners and subjects are of all tenants",
            "call('ZADD', P .. name .. place.tenant .. ':' .. value",
            "call('ZADD', P .. name .. ':' .. value",
        ),
        Slip("who is in lists is not known to be", "is_listed = true", "is_listed = false"),
        Slip("jobs are not counted one by one", "count(place, 'Q', 1)", "count(place, 'Q', 0)"),
        Slip(
            "a job twice in one call is stored twice",
            "    if touch(id) then\n        there = call('HGET', JOBS, id)\n    end\n",
            "    touch(id)\n",
        ),
        Slip(
            "the attempt of an envelope is lost",
            "start = pack(STATE_START, 'Q', 1, attempt, 0",
            "start = pack(STATE_START, 'Q', 1, 0, 0",
        ),
        Slip(
            "the priority of the first job is that of all",
            "local kind = attempt * 4 + priority",
            "local kind = attempt * 4",
        ),
        Slip(
            "a job that is due later than the one before is due with it",
            "if run_at ~= due then",
            "if not due then",
        ),
        Slip(
            "a delay has no bound",
            "return min(now + span, LAST)",
            "return now + span",
            equivalent="who reads an instant takes all after the last for the last",
        ),
        Slip(
            "the old request of a key that is taken over stays",
            "        forget_request(before:sub(1, 16), digest)\n    end\n    call('HSET', HELD",
            "    end\n    call('HSET', HELD",
            equivalent="who reads it compares the job with the holder of the key",
        ),
    ),
    *in_script(
        "CLAIM",
        ("claiming", "suspects", "leases", "on_request", "reading"),
        Slip(
            "whoever asks may claim",
            "if not record_of('sessions', session, now) then",
            "if false then",
        ),
        Slip(
            "a repeated claim gives runs that others have now",
            "if rest:sub(17, 32) == claim then",
            "if true then",
        ),
        Slip(
            "a repeated claim gives jobs that have ended",
            "if state and envelope and state:byte() == RUNNING then",
            "if state and envelope then",
            equivalent="only the state of a run has the id of a claim",
        ),
        Slip(
            "over types only the priority counts",
            "if not best or lane.due < best.due\n",
            "if not best or lane.due > best.due\n",
        ),
        Slip(
            "the id does not count over types",
            "is_before(lane.found[lane.at], best.found[best.at])",
            "false",
        ),
        Slip(
            "a lane is read once",
            "lane.may_have_more = #found == 2 * lane.limit",
            "lane.may_have_more = false",
        ),
        Slip(
            "a page of a lane is read again",
            "lane.found, lane.at, lane.read = found, 1, lane.read + lane.limit",
            "lane.found, lane.at, lane.read = found, 1, lane.read + lane.limit - 1",
        ),
        Slip(
            "the limit of a type is one too high",
            "if is_closed or #lane.taken == lane.most then",
            "if is_closed or #lane.taken > (lane.most or left) then",
        ),
        Slip(
            "the limit of a type holds for each priority",
            "most[one.lane] = one.most and one.most - #one.taken",
            "most[one.lane] = one.most",
        ),
        Slip(
            "one type alone has no limit",
            "left = min(left, most[lanes[1]] or left)",
            "left = left",
        ),
        Slip(
            "what was taken stays in the queue",
            "call('ZREMRANGEBYRANK', key, 0, #found - 1)",
            "call('ZREMRANGEBYRANK', key, 0, #found - 2)",
        ),
        Slip(
            "the lowest priority is not claimed",
            "#lanes > 0 and rank + PRIORITIES - 1 or -1 do",
            "#lanes > 0 and rank + PRIORITIES - 2 or -1 do",
        ),
        Slip(
            "the limits of types are of the wrong type",
            "read('>I4', limits, 4 * index - 3)",
            "read('>I4', limits, 1)",
        ),
        Slip(
            "every start is an event where one is",
            "logged[tonumber(lane)] = ARGV[first + 2 * index - 1] == '1'",
            "logged[tonumber(lane)] = ARGV[first + 1] == '1'",
        ),
        Slip("suspects of other types are taken", "if is_asked[lane] then", "if true then"),
        Slip(
            "the suspects of fewer crashes come first",
            "for crashes = MOST_CRASHES_COUNTED, SUSPECT_AFTER_CRASHES, -1 do",
            "for crashes = SUSPECT_AFTER_CRASHES, MOST_CRASHES_COUNTED do",
        ),
        Slip(
            "the limit is that of other crashes",
            "4 * (crashes - SUSPECT_AFTER_CRASHES) + 1",
            "4 * (MOST_CRASHES_COUNTED - crashes) + 1",
        ),
        Slip(
            "suspects of fewer crashes come with the others",
            "                end\n            end\n            return\n        end",
            "                end\n            end\n        end",
        ),
        Slip(
            "suspects that have left are still said to be there",
            "                    forget_empty_rank(lane, rank)\n",
            "",
            equivalent="who looks for suspects finds an empty set there, and no more",
        ),
        Slip(
            "a start does not change the version",
            "'R', version + 1, attempt + 1,",
            "'R', version, attempt + 1,",
        ),
        Slip(
            "a start costs no attempt",
            "'R', version + 1, attempt + 1,",
            "'R', version + 1, attempt,",
        ),
        Slip(
            "the fence stands still", "counters, fence + 1) .. state", "counters, fence) .. state"
        ),
        Slip(
            "a run stays in the list of the queue",
            "        write('ZREM', list_key(place, 'Q'), listed_as)\n",
            "",
        ),
        Slip("a run is still counted as queued", "        count(place, 'Q', -1)\n", ""),
        Slip(
            "all runs have the first token",
            "tokens:sub(index * 16 - 15, index * 16)",
            "tokens:sub(1, 16)",
        ),
        Slip(
            "a claim knows its first run only",
            "pack('>I4', #ids - gone) .. table.concat(ids)",
            "pack('>I4', #ids - gone) .. ids[1]",
        ),
        Slip(
            "the groups of leases are not kept",
            "    call('ZADD', LEASE_GROUPS, 0, group)\n",
            "",
        ),
        Slip(
            "what is due a moment later is claimed",
            "local now_text = decimal(now)\n\n-- Due jobs",
            "local now_text = decimal(now + 1)\n\n-- Due jobs",
        ),
    ),
    *in_script(
        "RENEW",
        ("leases", "clocks"),
        Slip("any session renews", "and owner == session then", "then"),
        Slip("a cancel is not told", "cancel == 1 and 'c' or 'k'", "'k'"),
        Slip(
            "a run has two leases after a renewal for longer",
            "    call('ZREM', lease_key(from), id .. member_end(state))\n",
            "",
        ),
        Slip(
            "the state does not say which lease a run has now",
            "state:sub(1, before) .. group .. state:sub(before + #from + 1)",
            "state",
        ),
        Slip(
            "the group of a longer lease is not kept",
            "if call('EXISTS', key) == 1 then",
            "if false then",
        ),
        Slip(
            "a lease that was removed by hand comes back",
            "call('ZADD', key, 'XX', unpack(leased))",
            "call('ZADD', key, unpack(leased))",
        ),
    ),
    *in_script(
        "EXPIRED",
        ("leases", "maintenance", "clocks"),
        Slip(
            "a page begins again with each session",
            "offset = math.max(0, offset - expired)",
            "offset = offset",
        ),
        Slip("each session fills a page", "left = left - #members", "left = left"),
        Slip(
            "leases are cut to twice their length",
            "later(now, (read('>I8', group)))",
            "later(now, 2 * read('>I8', group))",
        ),
        Slip(
            "a lease that ends now is not found",
            "'-inf', now_text, 'LIMIT', offset, left)",
            "'-inf', '(' .. now_text, 'LIMIT', offset, left)",
        ),
        Slip(
            "how many were checked is not said",
            "result[1] = result[1] + #members",
            "result[1] = #members",
        ),
    ),
    *in_script(
        "PAST_EXPIRY",
        ("expiry",),
        Slip("all expires at once", "decimal(clock(ARGV[1]))", "'+inf'"),
        Slip("no limit holds", "'LIMIT', 0, ARGV[2]", "'LIMIT', 0, -1"),
    ),
    *in_script(
        "EXPIRE_SESSION",
        ("leases",),
        Slip("all sessions end with one", "if session == ARGV[2] then", "if true then"),
        Slip(
            "the first lease of a session is left",
            "ipairs(call('ZRANGE', key, 0, -1)) do\n            write",
            "ipairs(call('ZRANGE', key, 1, -1)) do\n            write",
        ),
    ),
    *in_script(
        "PROGRESS",
        ("leases", "on_request"),
        Slip(
            "the same progress is an event again",
            "if tail ~= '' and (percent ~= old_percent or phase ~= old_phase) then",
            "if tail ~= '' then",
        ),
        Slip(
            "a new phase alone is no event",
            "(percent ~= old_percent or phase ~= old_phase)",
            "percent ~= old_percent",
        ),
        Slip("progress does not change the version", "    version = version + 1\n", ""),
        Slip(
            "progress forgets a cancel",
            ".. run_part(token, claim, cancel, percent",
            ".. run_part(token, claim, 0, percent",
        ),
        Slip(
            "progress forgets which outcome was the last",
            "number, outcome, created, started, keyed, listed, of_group) .. key",
            "number, number, created, started, keyed, listed, of_group) .. key",
        ),
    ),
)
