"""Slips in the statements of the PostgreSQL store."""

from typing import Final

from tests.mutants.by_hand import Slip, in_statement

IN_STATEMENTS: Final = (
    *in_statement(
        "claim:_CLAIM",
        ("claiming",),
        Slip("any session lets any other claim", "key = %s\n", "coalesce(key, %s) = key\n"),
        Slip(
            "a registration that is over lets a session claim",
            "expires_at > coalesce(%s, gantline.micros())",
            "true OR coalesce(%s, gantline.micros()) > 0",
        ),
    ),
    *in_statement(
        "query:_PAST_EXPIRY",
        ("expiry",),
        Slip("a job expires a moment later", "ready.expires_at <=", "ready.expires_at <"),
        Slip("any job that expired comes first", "BY ready.expires_at, ready", "BY ready"),
    ),
    *in_statement(
        "leases:_RENEW",
        ("leases", "clocks"),
        Slip("a renewal keeps the old length", ",\n        length = %(length)s", ""),
        Slip(
            "a run is renewed for no time",
            "gantline.later(coalesce(%(now)s, gantline.micros()), %(length)s)",
            "coalesce(%(now)s, gantline.micros())",
        ),
    ),
    *in_statement(
        "leases:_EXPIRE_SESSION",
        ("leases",),
        Slip(
            "all sessions end with one",
            "WHERE session = %(session)s FOR UPDATE",
            "WHERE true FOR UPDATE",
        ),
        Slip(
            "the leases of a session run out later",
            "SET until = coalesce(%(now)s, gantline.micros())",
            "SET until = coalesce(%(now)s, gantline.micros()) + 1",
        ),
    ),
    *in_statement(
        "leases:_CUT",
        ("clocks",),
        Slip(
            "a lease of the future ends at once",
            "SET until = coalesce(%(now)s, gantline.micros()) + length",
            "SET until = coalesce(%(now)s, gantline.micros())",
        ),
    ),
    *in_statement(
        "leases:_EXPIRED",
        ("leases", "maintenance"),
        Slip("a page begins with the last run", "lease.job_id > %s", "lease.job_id >= %s"),
        Slip(
            "a lease that ends now is not found",
            "lease.until <= coalesce",
            "lease.until < coalesce",
        ),
        Slip("pages are in no order", "ORDER BY lease.job_id", "ORDER BY lease.job_id DESC"),
    ),
    *in_statement(
        "leases:_PROGRESS",
        ("leases",),
        Slip("progress does not change the version", "version = version + 1", "version = version"),
    ),
    *in_statement(
        "leases:_LOGGED_PROGRESS",
        ("on_request",),
        Slip("the same progress is an event again", "FROM moved WHERE is_new", "FROM moved"),
    ),
    *in_statement(
        "dedupe:_HOLDER",
        ("keys",),
        Slip(
            "a key whose time is over is still held",
            "(until IS NULL OR until > coalesce(%s, gantline.micros()))",
            "(%s::bigint IS NULL OR true)",
        ),
        Slip("a key of another type is the same key", "scope = %s AND", "%s::text IS NOT NULL AND"),
    ),
    *in_statement(
        "dedupe:_OF_REQUESTS",
        ("keys",),
        Slip("the key of a job is that of a request", "kind = 'request' AND ", ""),
        Slip(
            "a key whose time is over is found",
            "(until IS NULL OR until > coalesce(%s, gantline.micros()))",
            "(%s::bigint IS NULL OR true)",
        ),
    ),
    *in_statement(
        "dedupe:_TAKE",
        ("applying", "keys"),
        Slip("a mark is made by one job only", "held.kind = 'once' OR ", ""),
        Slip(
            "a job does not get its own key again",
            "held.job_id = excluded.job_id OR ",
            "",
            equivalent="a job that can be redriven has freed its key",
        ),
        Slip(
            "a key whose time is over is not taken",
            "OR held.until <= %s",
            "OR %s::bigint IS NULL",
        ),
        Slip("a mark lasts as long as the first", ", until = excluded.until", ""),
    ),
    *in_statement(
        "prune:_REMOVE_OLD",
        ("maintenance", "keys", "external_ids", "on_request"),
        Slip("the external id of a removed job stays", "held.kind = 'id'", "held.kind = 'once'"),
        Slip("a job goes one moment too early", "at < rule.before", "at <= rule.before"),
        Slip(
            "a job that runs again goes by its old end", "WHERE is_end AND status", "WHERE status"
        ),
        Slip("the newest go first", "ORDER BY at LIMIT", "ORDER BY at DESC LIMIT"),
        Slip(
            "the log of a removed job stays",
            "DELETE FROM gantline.log WHERE job_id = ANY (ARRAY(SELECT job_id FROM old))",
            "DELETE FROM gantline.log WHERE is_end AND job_id = ANY "
            "(ARRAY(SELECT job_id FROM old))",
        ),
        Slip(
            "what was removed is still counted",
            "SELECT lane, 0, -count(*) FILTER (WHERE status = 'Completed')",
            "SELECT lane, 0, 0 * count(*) FILTER (WHERE status = 'Completed')",
        ),
    ),
    *in_statement(
        "prune:_REMOVE_REST",
        ("keys", "records", "maintenance"),
        Slip(
            "the keys of live jobs go",
            "FROM gantline.dedupe WHERE until <=",
            "FROM gantline.dedupe WHERE until IS NULL OR until <=",
        ),
        Slip(
            "records go before their time",
            "WHERE expires_at <= coalesce(%(now)s, gantline.micros())",
            "WHERE expires_at IS NOT NULL",
        ),
    ),
    *in_statement(
        "prune:_OVERDUE",
        ("maintenance",),
        Slip("the newest is measured", "ORDER BY at LIMIT 1", "ORDER BY at DESC LIMIT 1"),
        Slip("a job that runs again is overdue", "WHERE is_end AND status", "WHERE status"),
    ),
    *in_statement(
        "prune:_FIRST_UNREAD",
        ("maintenance", "events", "on_request"),
        Slip("one unread event counts as read", "- first + 2", "- first + 3"),
        Slip("one read event counts as unread", "- first + 2", "- first + 1"),
        Slip(
            "what is not numbered counts as read",
            "(SELECT high + 1 FROM gantline.event_cursor)",
            "(SELECT max(id) + 1 FROM gantline.log)",
        ),
        Slip(
            "a row that came late counts as read",
            "    (SELECT min(log_id) FROM gantline.event_gap),\n",
            "",
        ),
    ),
    *in_statement(
        "prune:_REMOVE_EMPTY_BATCHES",
        ("maintenance", "events"),
        Slip(
            "events of live jobs go",
            "NOT EXISTS (SELECT FROM gantline.log WHERE log.id = ANY (batch.log_ids))",
            "true",
        ),
    ),
    *in_statement(
        "records:_ALL",
        ("records",),
        Slip(
            "a record lives a moment longer",
            "OR expires_at > coalesce",
            "OR expires_at >= coalesce",
        ),
        Slip("a page begins with the last record", "AND key <> %s", "AND %s::text IS NOT NULL"),
        Slip("the order is reversed", "ORDER BY key LIMIT", "ORDER BY key DESC LIMIT"),
    ),
    *in_statement(
        "records:_WITHIN",
        ("records",),
        Slip("a prefix ends too late", "AND key < %s", "AND key <= %s"),
    ),
    *in_statement(
        "records:_CHANGE",
        ("records",),
        Slip("a write does not change the version", "version = DEFAULT, ", ""),
        Slip(
            "a written record keeps its time",
            "expires_at = %s,",
            "expires_at = coalesce(%s, expires_at),",
        ),
    ),
    *in_statement(
        "records:_LEAD",
        ("records", "clocks"),
        Slip(
            "who comes back late has the same term",
            "(held.owner <> excluded.owner\n"
            "                        OR held.until <= coalesce(%(now)s, gantline.micros())\n",
            "(held.owner <> excluded.owner\n",
        ),
        Slip(
            "a leader of the future leads for ever",
            "OR held.until <= coalesce(%(now)s, gantline.micros())\n"
            "   OR held.until > excluded.until\n",
            "OR held.until <= coalesce(%(now)s, gantline.micros())\n",
        ),
        Slip(
            "a leader leads a moment longer",
            "WHERE held.owner = excluded.owner OR held.until <= coalesce",
            "WHERE held.owner = excluded.owner OR held.until < coalesce",
        ),
    ),
    *in_statement(
        "records:_RESIGN",
        ("records",),
        Slip("an old term resigns for the new", "AND term = %s", "AND %s::bigint IS NOT NULL"),
        Slip("anyone resigns for the leader", "AND owner = %s", "AND %s::text IS NOT NULL"),
    ),
    *in_statement(
        "counts:_COUNTS",
        ("reading",),
        Slip(
            "the runs of all tenants are one's own",
            "FROM gantline.lease\n    WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s\n",
            "FROM gantline.lease\n",
        ),
        Slip(
            "running jobs are counted as queued too",
            "(ended.live - coalesce(running.running, 0))::bigint",
            "ended.live::bigint",
        ),
    ),
    *in_statement(
        "counts:_WAITING",
        ("reading", "suspects"),
        Slip(
            "the oldest job of all tenants is one's own",
            "AND (%(tenant)s::text IS NULL OR ready.tenant = %(tenant)s)\n"
            "        ORDER BY ready.run_at LIMIT 1",
            "ORDER BY ready.run_at LIMIT 1",
        ),
        Slip(
            "the newest due job is the oldest",
            "ORDER BY ready.run_at LIMIT 1",
            "ORDER BY ready.run_at DESC LIMIT 1",
        ),
        Slip(
            "suspects that are not due are not counted",
            "count(*) FILTER (WHERE run_at > coalesce",
            "0 * count(*) FILTER (WHERE run_at > coalesce",
        ),
    ),
    *in_statement(
        "counts:_DEAD",
        ("reading",),
        Slip("a redriven job is dead", "WHERE log.is_end AND log.status", "WHERE log.status"),
        Slip(
            "the dead of all tenants are one's own",
            "AND (%(tenant)s::text IS NULL OR log.tenant = %(tenant)s)",
            "",
        ),
        Slip("the oldest is the newest", "max(log.at)", "min(log.at)"),
    ),
    *in_statement(
        "events:_EVENTS",
        ("events",),
        Slip(
            "a reader gets the last event again",
            "WHERE batch.first + item.index - 1 > %(after)s",
            "WHERE batch.first + item.index - 1 >= %(after)s",
        ),
        Slip("events come in the reverse order", "ORDER BY 2", "ORDER BY 2 DESC"),
    ),
    *in_statement(
        "events:_HISTORY",
        ("reading", "states", "events"),
        Slip(
            "the history is there for every tenant",
            "AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)",
            "AND (%(tenant)s::text IS NULL OR true)",
        ),
        Slip("the history is reversed", "ORDER BY version", "ORDER BY version DESC"),
    ),
    *in_statement(
        "events:_SEQUENCE",
        ("events",),
        Slip(
            "a row that came late waits for the next",
            "OR EXISTS (SELECT FROM gantline.event_gap)",
            "",
        ),
    ),
    *in_statement(
        "settle:_EXPLAIN",
        ("applying", "answers"),
        Slip(
            "another end of the run counts as the same",
            "AND log.event::text = given.event)",
            ")",
        ),
        Slip(
            "a repeat is answered with an older version",
            "ORDER BY version DESC LIMIT 1",
            "ORDER BY version LIMIT 1",
        ),
    ),
    *in_statement(
        "apply:_REPEATED",
        ("applying", "answers", "states"),
        Slip(
            "another change counts as the same",
            "AND event::text = %s",
            "AND %s::text IS NOT NULL",
        ),
        Slip(
            "a change of any job counts as the same",
            "WHERE job_id = %s AND change_id",
            "WHERE %s::uuid IS NOT NULL AND change_id",
            equivalent="the id of a change names one change of one job",
        ),
    ),
    *in_statement(
        "apply:_LEAVE_END",
        ("reading", "applying"),
        Slip("a redriven job has still ended", "SET is_end = false", "SET is_end = is_end"),
    ),
    *in_statement(
        "query:_BY_ID",
        ("reading", "applying"),
        Slip(
            "the first outcome is the last",
            "ORDER BY log.version DESC LIMIT 1",
            "ORDER BY log.version LIMIT 1",
        ),
    ),
    *in_statement(
        "query:_IS_THEIRS",
        ("visibility",),
        Slip(
            "who has no name sees what nobody owns",
            "job.created_by = %s AND job.created_by <> ''",
            "job.created_by = %s",
        ),
    ),
)
