"""Bugs of PostgreSQL's functions and statements and of Redis's scripts, which the suite catches."""

from typing import Final

from tests.seeded_bugs.breaking import code, lua, sql_function, text
from tests.seeded_bugs.bug import Breakage, Bug, Suite

_POSTGRES: Final = "gantline.stores.postgres"


def _postgres(name: str, what: str, *breakages: Breakage, topics: tuple[str, ...]) -> Bug:
    caught_by = Suite("postgres", topics)
    return Bug(f"postgres: {name}", "postgres store", what, breakages, caught_by)


def _redis(name: str, what: str, *breakages: Breakage, topics: tuple[str, ...]) -> Bug:
    return Bug(f"redis: {name}", "redis store", what, breakages, Suite("redis", topics))


POSTGRES_BUGS: Final = (
    _postgres(
        "fence ignored by completion",
        "whoever had a run may complete the run of another",
        sql_function("complete_runs", "AND lease.token = t.token", ""),
        topics=("fencing", "applying"),
    ),
    _postgres(
        "fence ignored by renewal",
        "whoever had a run renews the run of another",
        text(
            f"{_POSTGRES}.leases:_RENEW",
            "WHERE lease.job_id = given.job_id AND lease.token = given.token\n"
            "          AND lease.session = %(session)s",
            "WHERE lease.job_id = given.job_id AND %(session)s::text IS NOT NULL",
        ),
        topics=("leases", "fencing"),
    ),
    _postgres(
        "fence ignored by progress",
        "whoever had a run writes the progress of another",
        text(f"{_POSTGRES}.leases:_PROGRESS", "AND token = %s", "AND %s::uuid IS NOT NULL"),
        topics=("fencing",),
    ),
    _postgres(
        "renewal of another session",
        "a session that does not own a run renews it",
        text(
            f"{_POSTGRES}.leases:_RENEW",
            "AND lease.session = %(session)s",
            "AND %(session)s::text IS NOT NULL",
        ),
        topics=("leases", "fencing"),
    ),
    _postgres(
        "key of a deleted job freed from another",
        "deleting a job frees the key that a newer job has",
        text(f"{_POSTGRES}.dedupe:FREE", "AND job_id = %s", "AND %s::uuid IS NOT NULL"),
        topics=("keys", "maintenance"),
    ),
    _postgres(
        "key not freed by a failure",
        "the key of a job that failed stays taken",
        sql_function(
            "keep_or_free_keys", "ELSE\n            DELETE", "ELSIF false THEN\n            DELETE"
        ),
        topics=("keys",),
    ),
    _postgres(
        "expired key not taken over",
        "a key whose time is over cannot be taken",
        sql_function("take_keys", "WHERE held.until <= p_now", "WHERE false"),
        topics=("keys",),
    ),
    _postgres(
        "event of a crash not written",
        "a run that is taken away leaves no row in the log",
        sql_function(
            "settle_runs",
            "result, result_omitted\n        FROM gone",
            "result, result_omitted\n        FROM gone WHERE event <> 'crashed'",
        ),
        topics=("leases", "events", "applying"),
    ),
    _postgres(
        "counts off after an end",
        "a run that ends is still counted as live",
        sql_function(
            "complete_runs",
            "SELECT lane, -count(*), count(*), 0, 0, 0, tenant FROM gone",
            "SELECT lane, 0, count(*), 0, 0, 0, tenant FROM gone",
        ),
        topics=("reading",),
    ),
    _postgres(
        "claim out of order",
        "a claim takes the last that is due before the first",
        sql_function(
            "claim_jobs",
            "ORDER BY ready.run_at, ready.job_id LIMIT next.share",
            "ORDER BY ready.run_at DESC, ready.job_id LIMIT next.share",
        ),
        topics=("claiming",),
    ),
    _postgres(
        "floor moved too far",
        "a process searches a lane from above its first row, and never from the beginning again",
        code(
            f"{_POSTGRES}.floors:Floors.begin",
            "self._floors.clear()",
            "pass",
        ),
        topics=("claiming", "inserting", "applying"),
    ),
    _postgres(
        "job claimed before it is due",
        "a delayed job is started at once",
        sql_function(
            "claim_jobs",
            "AND ready.run_at <= v_now\n                "
            "ORDER BY ready.run_at, ready.job_id LIMIT least(w.most, w.at_most)",
            "ORDER BY ready.run_at, ready.job_id LIMIT least(w.most, w.at_most)",
        ),
        sql_function(
            "claim_jobs",
            "AND ready.run_at <= v_now\n            "
            "ORDER BY ready.run_at, ready.job_id LIMIT next.share",
            "ORDER BY ready.run_at, ready.job_id LIMIT next.share",
        ),
        topics=("claiming",),
    ),
    _postgres(
        "lease of the future",
        "leases that were given before the clock was set back last until it has caught up",
        code(f"{_POSTGRES}.leases:expired", "if too_long:", "if False:"),
        topics=("clocks", "leases"),
    ),
    _postgres(
        "unread jobs pruned",
        "jobs whose events a consumer has not read are pruned",
        text(
            f"{_POSTGRES}.prune:_REMOVE_OLD",
            "AND id < %(unread)s",
            "AND %(unread)s::bigint IS NOT NULL",
        ),
        topics=("maintenance",),
    ),
    _postgres(
        "late commit overtaken",
        "an event whose transaction commits late is never numbered",
        sql_function(
            "sequence_events",
            ") AS skipped (missing);",
            ") AS skipped (missing) WHERE false;",
        ),
        topics=("events", "races"),
    ),
    _postgres(
        "redrive of a held key",
        "a job is redriven though another has its key",
        code(
            f"{_POSTGRES}.apply:_Change._add_with_attachments",
            "if held and held.job_id != head.job_id:",
            "if False:",
        ),
        topics=("keys",),
    ),
    _postgres(
        "follow-up kept by a conflict",
        "where one follow-up conflicts, the others are stored all the same",
        code(
            f"{_POSTGRES}.apply:_Change._insert_follow_ups",
            "raise _FollowUpConflict(result)",
            "return result",
        ),
        topics=("applying", "keys"),
    ),
)

REDIS_BUGS: Final = (
    _redis(
        "fence ignored by apply",
        "whoever had a run may end the run of another",
        lua(
            "APPLY",
            "if job.status ~= 'R' or job.token ~= change.id then",
            "if job.status ~= 'R' then",
        ),
        topics=("fencing", "states"),
    ),
    _redis(
        "fence ignored by completion",
        "whoever had a run may complete the run of another",
        lua(
            "APPLY",
            "or state:byte(63) ~= 0 or state:sub(73, 88) ~= token then",
            "or state:byte(63) ~= 0 then",
        ),
        topics=("fencing",),
    ),
    _redis(
        "fence ignored by renewal",
        "whoever had a run renews the run of another",
        lua("RENEW", "if token == ARGV[first + 1] and owner == session then", "if true then"),
        topics=("leases", "fencing"),
    ),
    _redis(
        "fence ignored by progress",
        "whoever had a run writes the progress of another",
        lua(
            "PROGRESS",
            "if state:sub(1, 1) ~= 'R' or not is_of_run(rest, token) then",
            "if state:sub(1, 1) ~= 'R' then",
        ),
        topics=("fencing",),
    ),
    _redis(
        "expiry not looked at again",
        "a run is taken away though its worker has renewed it since the reaper looked",
        lua(
            "APPLY",
            "if has(change.conditions, 2) and leased_until(change.job, job.state) > now then",
            "if false then",
        ),
        topics=("leases", "races"),
    ),
    _redis(
        "cancel not looked at again",
        "a cancel that was requested while a run ended is forgotten",
        lua(
            "APPLY",
            "return has(change.conditions, 1) and job.cancel == 1 and 'P' or nil",
            "return nil",
        ),
        topics=("applying", "races"),
    ),
    _redis(
        "key of a deleted job freed from another",
        "deleting a job frees the key that a newer job has",
        lua("DELETE", "if held and held:sub(1, 16) == id then", "if held then"),
        topics=("keys", "maintenance"),
    ),
    _redis(
        "claim forgets its id",
        "a claim that is repeated starts other runs",
        lua(
            "CLAIM",
            "if known then\n    return repeated(known)",
            "if false then\n    return repeated(known)",
        ),
        topics=("claiming", "answers"),
    ),
    _redis(
        "claim out of order",
        "jobs of one instant are taken in the reverse order of their ids",
        lua("CLAIM", "return a < b", "return a > b"),
        topics=("claiming",),
    ),
    _redis(
        "counts off after an end",
        "a run that ends is still counted as running",
        lua("APPLY", "    count(place, 'R', -1)\n", ""),
        topics=("reading",),
    ),
    _redis(
        "event without its number",
        "the last number is not kept, so the next event has the same",
        lua(
            "PROGRESS",
            "write_pending()\nwrite_last_number()\nreturn results",
            "write_pending()\nreturn results",
        ),
        topics=("on_request", "events"),
    ),
    _redis(
        "lease of the future",
        "leases that were given before the clock was set back last until it has caught up",
        lua("EXPIRED", "        cut(key, group)\n", ""),
        topics=("clocks", "leases"),
    ),
    _redis(
        "unread jobs pruned",
        "jobs whose events a consumer has not read are pruned",
        lua("PRUNE_JOBS", "elseif not keep or read('>I8', state, 31) <= keep then", "else"),
        topics=("maintenance",),
    ),
    _redis(
        "redrive of a held key",
        "a job is redriven though another has its key",
        lua("APPLY", "if other and other ~= change.job then", "if false then"),
        topics=("keys",),
    ),
    _redis(
        "term given twice",
        "who leads after another has the same term",
        lua("LEAD", "term = term + 1", "term = math.max(term, 1)"),
        topics=("maintenance",),
    ),
    _redis(
        "repeated change made twice",
        "an operator's change whose answer was lost is made again",
        lua(
            "APPLY",
            "if job.token ~= change.id and is_logged(job.number, change.id, change.event) then",
            "if false then",
        ),
        topics=("answers",),
    ),
)
