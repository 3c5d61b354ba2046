"""Slips in the scripts of Redis by which jobs end, and are removed."""

from typing import Final

from tests.mutants.by_hand import Slip, in_script

IN_ENDING: Final = (
    *in_script(
        "APPLY",
        ("applying", "keys", "states", "answers", "suspects", "leases", "reading", "claiming"),
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
            "        write('ZREM', lease_key(job.lease), change.job .. place.member_end)\n",
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
            "run_part(job.token, job.claim, 1, job.percent, job.lease, job.phase)",
            "run_part(job.token, job.claim, 1, 0, job.lease, '')",
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
            "    write('ZREM', lease_key(lease), member)\n",
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
    *in_script(
        "DELETE",
        ("maintenance", "states", "keys", "external_ids", "reading"),
        Slip("the external id of a deleted job stays", "    free_external(id)\n", ""),
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
    *in_script(
        "PRUNE_JOBS",
        ("maintenance", "keys", "moving", "events"),
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
    *in_script(
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
            equivalent="who reads it looks for the holder of the key, and there is none",
        ),
    ),
)
