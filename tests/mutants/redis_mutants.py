"""Slips in the scripts of Redis, where no tool reaches."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.mutants.by_hand import Slip, slips_in
from tests.mutants.mutant import Mutant
from tests.seeded_bugs.breaking import lua


def _script(name: str, topics: tuple[str, ...], *slips: Slip) -> Iterator[Mutant]:
    return slips_in("redis by hand", name, topics, slips, put_in=partial(lua, name))


REDIS_MUTANTS: Final = (
    *_script(
        "INSERT",
        ("inserting", "keys", "on_request", "visibility"),
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
        Slip("a delay has no bound", "return min(now + span, LAST)", "return now + span"),
        Slip(
            "the old request of a key that is taken over stays",
            "        forget_request(before:sub(1, 16), digest)\n    end\n    call('HSET', HELD",
            "    end\n    call('HSET', HELD",
        ),
    ),
    *_script(
        "CLAIM",
        ("claiming", "suspects", "leases", "on_request"),
        Slip(
            "a repeated claim gives runs that others have now",
            "if rest:sub(17, 32) == claim then",
            "if true then",
        ),
        Slip(
            "a repeated claim gives jobs that have ended",
            "if state and envelope and state:byte() == RUNNING then",
            "if state and envelope then",
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
            "if #lane.taken == lane.most then",
            "if #lane.taken > (lane.most or left) then",
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
    *_script(
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
    *_script(
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
    *_script(
        "EXPIRE_SESSION",
        ("leases",),
        Slip("all sessions end with one", "if session == ARGV[2] then", "if true then"),
        Slip(
            "the first lease of a session is left",
            "ipairs(call('ZRANGE', key, 0, -1)) do\n            write",
            "ipairs(call('ZRANGE', key, 1, -1)) do\n            write",
        ),
    ),
    *_script(
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
            "number, outcome, created, started, keyed, listed) .. key",
            "number, number, created, started, keyed, listed) .. key",
        ),
    ),
    *_script(
        "APPLY",
        ("applying", "keys", "states", "answers", "suspects"),
        Slip(
            "an operator acts in any tenant",
            "    if not is_in_tenant(change, job) then\n        return 'N'\n    end\n",
            "",
        ),
        Slip(
            "the version that an operator has read is not looked at",
            "(expected_version == 0 or expected_version == version)",
            "true",
        ),
        Slip(
            "another end of the run counts as the same",
            "if logged == change and what == event then",
            "if logged == change then",
        ),
        Slip(
            "only the newest row is looked at for a repeat",
            "        number = before\n    end\n    return false",
            "        number = 0\n    end\n    return false",
        ),
        Slip(
            "a follow-up that exists is a conflict",
            "if refused and not same then",
            "if refused then",
        ),
        Slip(
            "follow-ups of one id may differ",
            "if names[id] and names[id] ~= content then",
            "if false then",
        ),
        Slip(
            "follow-ups of one key may differ",
            "if names[key[1]] and names[key[1]] ~= key[2] then",
            "if false then",
        ),
        Slip(
            "records are written whatever their version is",
            "if not is_allowed(record, now) then",
            "if false then",
        ),
        Slip(
            "who is cancelled in the queue stays in it",
            "        remove_ready(change.job, place, job.rank)\n",
            "",
        ),
        Slip(
            "a lease outlives its run",
            "        write('ZREM', lease_key(job.group), change.job .. place.member_end)\n",
            "",
        ),
        Slip(
            "a job is in the lists of two statuses",
            "    write('ZREM', list_key(place, job.status), job.created .. change.job)\n",
            "",
        ),
        Slip(
            "who leaves a status is still counted there",
            "    count(place, job.status, -1)\n",
            "",
        ),
        Slip(
            "a requeued suspect is an ordinary job",
            "add_ready(change.job, place, first_rank(job.crashes) + job.priority, decimal(at))",
            "add_ready(change.job, place, job.priority, decimal(at))",
        ),
        Slip(
            "a job that runs again frees its key",
            "        elseif change.to ~= 'Q' then\n            free(job.key)",
            "        else\n            free(job.key)",
        ),
        Slip(
            "an old job frees the key of a newer one",
            "if held and held:sub(1, 16) == change.job then\n        if change.to == 'C'",
            "if held then\n        if change.to == 'C'",
            equivalent="while a job lives, no other can get its key; ended jobs do not end again",
        ),
        Slip(
            "a completed job holds its key for ever",
            "take(job.key, change.job, later(now, change.hold), held:sub(25))",
            "take(job.key, change.job, 0, held:sub(25))",
        ),
        Slip(
            "a mark has no end",
            "take(key[1], change.job, key[3] and later(now, key[3]) or 0, key[2])",
            "take(key[1], change.job, 0, key[2])",
        ),
        Slip(
            "a stopped job gets counters that were read long ago",
            "if has(change.conditions, 4) then\n        job.attempt",
            "if true then\n        job.attempt",
        ),
        Slip(
            "the new priority is not kept",
            "            job.priority = change.priority\n",
            "",
        ),
        Slip("who goes back is due at once", "at = later(now, change.delay)", "at = now"),
        Slip(
            "a cancel request ends the run's token",
            "run = run_part(job.token, job.claim, 1, job.percent",
            "run = run_part(change.id, job.claim, 1, job.percent",
        ),
        Slip(
            "a cancel request forgets the progress",
            "run_part(job.token, job.claim, 1, job.percent, job.group, job.phase)",
            "run_part(job.token, job.claim, 1, 0, job.group, '')",
        ),
        Slip(
            "a cancel request starts the run anew",
            "        at = job.started\n",
            "",
        ),
        Slip(
            "a quick completion keeps the old version",
            "local version, placed, created = read('>I4', state, 2) + 1,",
            "local version, placed, created = read('>I4', state, 2),",
        ),
        Slip(
            "a quick completion leaves the lease",
            "    write('ZREM', lease_key(group), member)\n",
            "",
        ),
        Slip(
            "a quick completion cannot be pruned",
            "    write('ZADD', ENDED_COMPLETED, now_text, member)\n",
            "",
        ),
        Slip(
            "a quick completion stays in the list of the running",
            "    write('ZREM', list_key(place, 'R'), listed_as)\n",
            "",
        ),
        Slip(
            "the job of a change is read as it was before the call",
            "    if touch(id) then\n        state = call('HGET', STATES, id)\n    end\n",
            "    touch(id)\n",
        ),
        Slip(
            "a claim is forgotten with the first run that ends",
            "if left > 0 then\n        call('HSET', CLAIMS",
            "if false then\n        call('HSET', CLAIMS",
        ),
        Slip(
            "a claim is kept after its last run",
            "        call('HDEL', CLAIMS, claim)\n",
            "",
            equivalent="a repeat finds that no run of it is current; what is left takes room only",
        ),
        Slip(
            "a job that is dead again is listed under its old reason too",
            "    call('ZREM', P .. 'dead:' .. group, id .. place.member_end)\n",
            "",
        ),
        Slip(
            "the last suspect that is cancelled leaves its rank behind",
            "    forget_empty_rank(place.lane, rank)\nend",
            "end",
            equivalent="who looks for suspects finds an empty set there, and no more",
        ),
    ),
    *_script(
        "DELETE",
        ("states", "keys", "reading"),
        Slip(
            "a job of any tenant is deleted",
            "== tostring((read('>I4', state, 27)))",
            "",
        ),
        Slip("a running job is deleted", "if status ~= 'Q' and status ~= 'R'", "if status ~= 'Q'"),
        Slip(
            "a deleted job stays in the lists of owners and subjects",
            "if listed == 1 then",
            "if listed == 2 then",
        ),
        Slip(
            "a deleted job is still counted",
            "    count(place, status, -1)\nend\n\nlocal function write_removed",
            "end\n\nlocal function write_removed",
        ),
        Slip(
            "only the newest row of a deleted job goes",
            "        number = read('>I8', row)\n    end\nend\n\nlocal function forget_attributes",
            "        number = 0\n    end\nend\n\nlocal function forget_attributes",
        ),
        Slip(
            "a deleted job stays among the ended",
            "        write('ZREM', P .. 'ended:' .. status, id .. place.member_end)\n",
            "",
        ),
        Slip(
            "a group of dead jobs outlives them",
            "            call('SREM', P .. 'dead-groups', group)\n",
            "",
        ),
    ),
    *_script(
        "PRUNE_JOBS",
        ("maintenance", "keys", "moving"),
        Slip("a job goes one moment too early", "'-inf', '(' .. ARGV[2]", "'-inf', ARGV[2]"),
        Slip(
            "one unread event counts as read",
            "read('>I8', state, 31) <= keep",
            "read('>I8', state, 31) <= keep + 1",
        ),
        Slip(
            "one read event counts as unread",
            "read('>I8', state, 31) <= keep",
            "read('>I8', state, 31) < keep",
        ),
        Slip("the key of a pruned job cannot be moved", "        note_key_of(id, state)\n", ""),
    ),
    *_script(
        "PRUNE_REST",
        ("keys", "records", "maintenance"),
        Slip(
            "keys go before their time",
            "call('ZRANGEBYSCORE', KEY_ENDS, '-inf', now,",
            "call('ZRANGEBYSCORE', KEY_ENDS, '-inf', '+inf',",
        ),
        Slip(
            "records go before their time",
            "call('ZRANGEBYSCORE', RECORD_ENDS, '-inf', now,",
            "call('ZRANGEBYSCORE', RECORD_ENDS, '-inf', '+inf',",
        ),
        Slip(
            "the request of a key that goes stays",
            "        forget_request(held:sub(1, 16), digest)\n    end\n    free(digest)",
            "    end\n    free(digest)",
        ),
    ),
    *_script(
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
    *_script(
        "READ_RECORDS",
        ("records",),
        Slip(
            "a record that has expired is read",
            "if expires == 0 or expires > now then",
            "if true then",
        ),
        Slip("there is always an end of the list", "#keys == limit and 1 or 0", "0"),
    ),
    *_script(
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
    *_script(
        "RESIGN",
        ("records",),
        Slip(
            "an old term resigns for the new",
            "and read('>I8', held) == tonumber(ARGV[3]) then",
            "then",
        ),
        Slip("anyone resigns for the leader", "held and held:sub(17) == ARGV[2] and", "held and"),
    ),
    *_script(
        "COUNTS",
        ("reading", "suspects"),
        Slip(
            "suspects are not counted", "{0, 1, 2, 3, unpack(suspects[lane] or {})}", "{0, 1, 2, 3}"
        ),
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
    *_script(
        "WAITING",
        ("reading",),
        Slip(
            "what is due now is counted as scheduled",
            "if run_at > now then",
            "if run_at >= now then",
        ),
        Slip(
            "the jobs of all tenants are one's own",
            "if members[index]:sub(21) == tenant then",
            "if true then",
        ),
    ),
    *_script(
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
    *_script(
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
    *_script(
        "GET",
        ("reading", "on_request"),
        Slip(
            "an event on request is an outcome", "read('>I8', state, 39)", "read('>I8', state, 31)"
        ),
    ),
    *_script(
        "HISTORY",
        ("reading", "applying"),
        Slip(
            "a long history is cut",
            "#result < 2 + tonumber(ARGV[3])",
            "#result < 1 + tonumber(ARGV[3])",
        ),
    ),
    *_script(
        "HELD",
        ("keys",),
        Slip(
            "a key whose time is over is still held",
            "if till ~= 0 and till <= now then",
            "if false then",
        ),
    ),
    *_script(
        "REQUEST_KEYS",
        ("keys",),
        Slip(
            "the request of a key that another holds is found",
            "and holder(request:sub(1, 20), now) == ARGV[index] and",
            "and holder(request:sub(1, 20), now) and",
        ),
    ),
    *_script(
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
    *_script(
        "PLACES_OF",
        ("reading",),
        Slip(
            "the last tenant is left out",
            "first + tonumber(ARGV[3]) - 1)",
            "first + tonumber(ARGV[3]) - 2)",
        ),
    ),
    *_script(
        "LOAD_JOBS",
        ("moving",),
        Slip("jobs taken in are not counted", "    count(place, status, 1)\n", ""),
        Slip("numbers are given again", "        last = math.max(last, number)\n", ""),
        Slip(
            "a suspect taken in is an ordinary job",
            "add_ready(id, place, first_rank(crashes) + priority, decimal(at))",
            "add_ready(id, place, priority, decimal(at))",
        ),
    ),
    *_script(
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
