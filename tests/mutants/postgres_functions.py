"""Slips in the functions of the PostgreSQL schema that the verbs of a store are made of."""

from typing import Final

from tests.mutants.by_hand import Slip, in_function

IN_FUNCTIONS: Final = (
    *in_function(
        "insert_jobs",
        ("inserting", "keys", "external_ids", "expiry", "on_request", "reading", "applying"),
        Slip(
            "what is submitted waits for ever",
            "idempotency_key <> '', id, tenant, expires_at,\n",
            "idempotency_key <> '', id, tenant, NULL,\n",
        ),
        Slip(
            "the id of a job of another tenant clashes with an external one",
            "WHERE job.id = i.external_id AND job.tenant = i.tenant OFFSET 0",
            "WHERE job.id = i.external_id OFFSET 0",
        ),
        Slip(
            "an external id of another type is a duplicate",
            "held.fingerprint = i.fingerprint || convert_to(i.job_type, 'UTF8')",
            "substr(held.fingerprint, 1, 32) = i.fingerprint",
        ),
        Slip(
            "a refused job takes its external id",
            "WHERE i.external_id IS NOT NULL AND i.place <> ALL (v_refused)",
            "WHERE i.external_id IS NOT NULL",
        ),
        Slip(
            "an id of another tenant is a duplicate",
            "(job.tenant, lane.job_type, job.fingerprint)\n"
            "                       = (i.tenant, i.job_type, i.fingerprint)",
            "(lane.job_type, job.fingerprint) = (i.job_type, i.fingerprint)",
        ),
        Slip(
            "an id of another type is a duplicate",
            "(job.tenant, lane.job_type, job.fingerprint)\n"
            "                       = (i.tenant, i.job_type, i.fingerprint)",
            "(job.tenant, job.fingerprint) = (i.tenant, i.fingerprint)",
        ),
        Slip(
            "a key of another type is the same key",
            "held.tenant = i.tenant AND held.scope = i.job_type AND held.key = i.key",
            "held.tenant = i.tenant AND held.key = i.key",
        ),
        Slip(
            "a key of another tenant is the same key",
            "WHERE held.tenant = i.tenant AND held.scope = i.job_type",
            "WHERE held.scope = i.job_type",
        ),
        Slip(
            "a key whose time is over is still held",
            "AND held.kind = 'job' AND (held.until IS NULL OR held.until > v_now)",
            "AND held.kind = 'job'",
        ),
        Slip(
            "a key is held a moment longer",
            "AND held.kind = 'job' AND (held.until IS NULL OR held.until > v_now)",
            "AND held.kind = 'job' AND (held.until IS NULL OR held.until >= v_now)",
        ),
        Slip(
            "a request key of another tenant is the same key",
            "WHERE held.tenant = i.request_tenant AND held.scope = i.request_scope",
            "WHERE held.scope = i.request_scope",
        ),
        Slip(
            "the key of the job is looked at before that of the request",
            "SELECT i.place, 1, held.job_id, 'request'",
            "SELECT i.place, 3, held.job_id, 'request'",
        ),
        Slip(
            "a time in the past is kept",
            "greatest(v_now, scheduled_at), 1, 0, created_at",
            "coalesce(scheduled_at, v_now), 1, 0, created_at",
        ),
        Slip(
            "an attempt is used before the first",
            "1, 0, created_at, attempt - 1, 0, 0,",
            "1, 0, created_at, attempt, 0, 0,",
        ),
        Slip(
            "a job with a key is not known to have one",
            "priority, idempotency_key <> '', id, tenant",
            "priority, false, id, tenant",
        ),
        Slip(
            "a refused job takes its key",
            "WHERE i.key <> '' AND i.place <> ALL (v_refused)",
            "WHERE i.key <> ''",
        ),
        Slip(
            "a refused job takes the key of its request",
            "WHERE i.key IS NOT NULL AND i.place <> ALL (v_refused)",
            "WHERE i.key IS NOT NULL",
        ),
        Slip(
            "a job of a group has no turn",
            "IF v_is_grouped THEN\n                INSERT",
            "IF false THEN\n                INSERT",
        ),
        Slip(
            "a refused job is an event",
            "WHERE i.is_logged AND i.place <> ALL (v_refused)",
            "WHERE i.is_logged",
        ),
        Slip(
            "many jobs of one lane count as one",
            "SELECT lane, count(*), 0, 0, 0, 0, tenant FROM added",
            "SELECT lane, 1, 0, 0, 0, 0, tenant FROM added",
        ),
        Slip(
            "the time of a delayed job is not bounded",
            "WHEN i.delay > 0 THEN gantline.later(v_now, i.delay) END",
            "WHEN i.delay > 0 THEN v_now + i.delay END",
        ),
    ),
    *in_function(
        "take_keys",
        ("keys", "races"),
        Slip("a key is held for ever", "gantline.later(p_now, k.hold)", "NULL::bigint"),
        Slip("a key is taken from a live job", "    WHERE held.until <= p_now;", ";"),
        Slip(
            "who takes a key over keeps the old fingerprint",
            "job_id = excluded.job_id, fingerprint = excluded.fingerprint",
            "job_id = excluded.job_id",
        ),
        Slip(
            "it is enough to get one of two keys",
            "IF v_taken < cardinality(p_key) THEN",
            "IF v_taken = 0 THEN",
        ),
    ),
    *in_function(
        "claim_jobs",
        ("claiming", "suspects", "leases", "on_request", "keys", "applying"),
        Slip(
            "a claim waits for a job that another has locked",
            "FOR UPDATE SKIP LOCKED\n        ) AS due",
            "FOR UPDATE\n        ) AS due",
        ),
        Slip("one more than the limit", "WHERE w.place <= w.most", "WHERE w.place <= w.most + 1"),
        Slip("one less than the limit", "WHERE w.place <= w.most", "WHERE w.place < w.most"),
        Slip(
            "the priority does not count over types",
            "PARTITION BY w.request ORDER BY w.rank, due.run_at, due.job_id",
            "PARTITION BY w.request ORDER BY due.run_at, due.job_id",
        ),
        Slip(
            "the time due does not count over types",
            "PARTITION BY w.request ORDER BY w.rank, due.run_at, due.job_id",
            "PARTITION BY w.request ORDER BY w.rank, due.job_id",
        ),
        Slip(
            "the id does not count over types",
            "PARTITION BY w.request ORDER BY w.rank, due.run_at, due.job_id",
            "PARTITION BY w.request ORDER BY w.rank, due.run_at, w.lane DESC",
        ),
        Slip(
            "two queues share a limit",
            "PARTITION BY w.request ORDER BY w.rank, due.run_at, due.job_id",
            "ORDER BY w.rank, due.run_at, due.job_id",
        ),
        Slip(
            "the limit of a type holds for each priority",
            "PARTITION BY w.request, w.lane ORDER BY w.rank",
            "PARTITION BY w.request, w.lane, w.rank ORDER BY w.rank",
        ),
        Slip(
            "the limit of a type counts what is not due",
            "                      AND ready.run_at <= v_now\n"
            "                    ORDER BY ready.run_at, ready.job_id LIMIT w.at_most",
            "                    ORDER BY ready.run_at, ready.job_id LIMIT w.at_most",
        ),
        Slip(
            "the first row of a range is skipped",
            "AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)\n"
            "                  AND ready.run_at <= v_now\n"
            "                ORDER",
            "AND (ready.run_at, ready.job_id) > (w.floor, w.floor_id)\n"
            "                  AND ready.run_at <= v_now\n"
            "                ORDER",
        ),
        Slip(
            "a start does not change the version",
            "SELECT lane, version + 1, fence + 1",
            "SELECT lane, version, fence + 1",
        ),
        Slip(
            "a job was due when it started",
            "fence + 1, created_at, run_at, v_now",
            "fence + 1, created_at, v_now, v_now",
        ),
        Slip("a lease has no length", "v_now, v_until, p_lease,", "v_now, v_until, 0,"),
        Slip(
            "a run is not known to have a key",
            "attempt + 1, crashes, snoozes, priority, keyed, job_id,",
            "attempt + 1, crashes, snoozes, priority, false, job_id,",
        ),
        Slip(
            "a start forgets the crashes",
            "attempt + 1, crashes, snoozes, priority, keyed, job_id,",
            "attempt + 1, 0, snoozes, priority, keyed, job_id,",
        ),
        Slip(
            "a start forgets the snoozes",
            "attempt + 1, crashes, snoozes, priority, keyed, job_id,",
            "attempt + 1, crashes, 0, priority, keyed, job_id,",
        ),
        Slip(
            "a repeated claim gives all runs of its session",
            "WHERE lease.claim_id = p_claim;\n        RETURN;",
            "WHERE lease.session = p_session;\n        RETURN;",
        ),
        Slip(
            "every start is an event where one is",
            "WHERE lease.claim_id = p_claim AND lease.lane = ANY (p_logged)",
            "WHERE lease.claim_id = p_claim",
        ),
    ),
    *in_function(
        "claim_groups",
        ("turns", "limits", "gates"),
        Slip(
            "priorities do not share the room of a group",
            "v_rooms[v_keys[v_range]] := v_rooms[v_keys[v_range]] - v_take",
            "v_rooms[v_keys[v_range]] := v_rooms[v_keys[v_range]]",
        ),
        Slip(
            "a full group has room",
            "v_take := least(v_take, coalesce(v_rooms[v_keys[v_range]], 0))",
            "v_take := least(v_take, v_rooms[v_keys[v_range]])",
        ),
        Slip(
            "the runs of other queues are not counted",
            "WHERE lane.job_type = l.type OFFSET 0",
            "WHERE lane.job_type = l.type AND lane.id = l.lane OFFSET 0",
        ),
        Slip(
            "what started under a limit is not counted",
            "coalesce(lane = ANY (v_limited), false)",
            "false",
        ),
        Slip(
            "a closed gate lets through",
            "CASE WHEN held.closed_until > v_now THEN 0",
            "CASE WHEN held.closed_until > v_now AND false THEN 0",
        ),
        Slip(
            "a gate saves up more than its burst",
            "least(greatest(gate.tat, v_now),",
            "least(greatest(gate.tat, v_now - 3600000000),",
        ),
        Slip(
            "a gate counts one start for many",
            "ceil(v_gap[g.place] * g.starts)",
            "ceil(v_gap[g.place])",
        ),
        Slip(
            "a start is not said to have been due",
            "fence + 1, created_at, run_at, v_now,",
            "fence + 1, created_at, v_now, v_now,",
        ),
        Slip(
            "groups are counted without a lock",
            "pg_try_advisory_xact_lock(hashtextextended('gantline.group ' || o.type, o.grp))",
            "true",
        ),
        Slip(
            "types are counted without a lock",
            "pg_try_advisory_xact_lock(hashtextextended('gantline.type ' || l.type, 0))",
            "true",
        ),
        Slip(
            "the tenant has what its groups have", "v_quota := v_tenant_left;", "v_quota := v_left;"
        ),
        Slip(
            "more than new groups may have",
            "CASE WHEN v_turn < 0 THEN v_new_left END",
            "v_left",
            equivalent="the slots of new tenants add up to no more",
        ),
        tests=("tests/postgres/test_turns.py",),
    ),
    *in_function(
        "fold_turns",
        ("turns", "limits"),
        Slip(
            "a group that has only later jobs has no turn",
            "FROM wrong WHERE head IS NOT NULL",
            "FROM wrong WHERE head <= p_now",
        ),
    ),
    *in_function(
        "due_suspects",
        ("suspects", "turns"),
        Slip("a suspect is due at once", "FROM head WHERE head.run_at <= v_now", "FROM head"),
        Slip(
            "one lane for each rank",
            "(ready.rank, ready.lane, ready.grp) > (head.rank, head.lane, head.grp)",
            "ready.rank > head.rank",
        ),
        Slip(
            "suspects of the highest priority are not found",
            "WHERE rank >= 4 ORDER BY rank, lane, grp, run_at LIMIT 1)",
            "WHERE rank > 4 ORDER BY rank, lane, grp, run_at LIMIT 1)",
        ),
    ),
    *in_function(
        "complete_runs",
        ("applying", "keys", "answers", "reading"),
        Slip(
            "a completion does not change the version",
            "lease.version + 1 AS new_version",
            "lease.version AS new_version",
        ),
        Slip(
            "the key of a completed job is not held for a while",
            "array_agg(job_id) FILTER (WHERE keyed)",
            "array_agg(job_id) FILTER (WHERE NOT keyed)",
        ),
        Slip(
            "the change is not known again",
            "priority, true, job_id, token, tenant, 'Succeeded'",
            "priority, true, job_id, job_id, tenant, 'Succeeded'",
        ),
        Slip(
            "the end is at the start",
            "SELECT new_version, lane, fence, v_now, created_at",
            "SELECT new_version, lane, fence, started_at, created_at",
        ),
        Slip(
            "all tenants are counted as one",
            "count(*), 0, 0, 0, tenant FROM gone GROUP BY tenant, lane",
            "count(*), 0, 0, 0, min(tenant) FROM gone GROUP BY lane",
        ),
    ),
    *in_function(
        "settle_runs",
        ("applying", "leases", "maintenance", "reading", "keys", "odd_input"),
        Slip(
            "a cancel that was requested meanwhile is not looked at",
            "          AND NOT (t.unless_cancelled AND lease.cancel_requested)\n",
            "",
        ),
        Slip(
            "a renewal that came meanwhile is not looked at",
            "          AND (NOT t.only_expired OR lease.until <= v_now)\n",
            "",
        ),
        Slip(
            "a lease that ends now has not expired",
            "OR lease.until <= v_now)",
            "OR lease.until < v_now)",
        ),
        Slip(
            "who goes back to the queue is due at once",
            "gantline.later(v_now, delay), new_version",
            "v_now, new_version",
        ),
        Slip(
            "who goes back to the queue is counted as ended",
            "FROM gone WHERE status <> 'Queued' GROUP BY tenant, lane",
            "FROM gone GROUP BY tenant, lane",
        ),
        Slip(
            "a poisoned job is counted as failed",
            "count(*) FILTER (WHERE status = 'Poisoned')",
            "count(*) FILTER (WHERE status = 'Failed')",
        ),
        Slip(
            "who goes back to the queue is not known to have a key",
            "snoozes, priority, keyed, job_id, tenant, grp\n        FROM gone",
            "snoozes, priority, false, job_id, tenant, grp\n        FROM gone",
        ),
        Slip(
            "what was omitted is not said",
            "result, result_omitted\n        FROM gone",
            "result, NULL\n        FROM gone",
        ),
        Slip(
            "who goes back to the queue has no turn",
            "FROM gone WHERE grp <> 0 AND status = 'Queued'",
            "FROM gone WHERE false AND status = 'Queued'",
        ),
        Slip(
            "who goes back to the queue has no group any more",
            "snoozes, priority, keyed, job_id, tenant, grp\n        FROM gone",
            "snoozes, priority, keyed, job_id, tenant, 0\n        FROM gone",
        ),
        Slip(
            "of two that close a gate the shorter counts",
            "SELECT closes, max(gantline.later(v_now, delay))",
            "SELECT closes, min(gantline.later(v_now, delay))",
        ),
        Slip(
            "who closes a gate last says until when",
            "greatest(gate.closed_until, excluded.closed_until)",
            "excluded.closed_until",
        ),
        Slip("keys are left as they are", "IF v_keyed <> '{}' THEN", "IF v_keyed = '{}' THEN"),
    ),
    *in_function(
        "tokens_unless_locked",
        ("leases", "applying", "races", "maintenance"),
        Slip(
            "an end is refused beside a crash",
            "CASE WHEN NOT t.only_expired OR free.is_free",
            "CASE WHEN free.is_free",
        ),
        Slip(
            "it waits for a lapsed lease that is locked",
            "OFFSET 0 FOR UPDATE SKIP LOCKED",
            "OFFSET 0 FOR UPDATE",
        ),
    ),
    *in_function(
        "keep_or_free_keys",
        ("keys",),
        Slip(
            "a job that runs again frees its key",
            "log.change_id = t.token AND log.is_end",
            "log.change_id = t.token",
        ),
        Slip(
            "an end frees the key of the request too",
            "AND held.key = v_key.key AND held.kind = 'job' AND held.job_id = v_key.job_id;\n"
            "        END IF",
            "AND held.key = v_key.key AND held.job_id = v_key.job_id;\n        END IF",
        ),
        Slip(
            "a completed job holds its key for ever",
            "SET until = gantline.later(p_now, v_key.hold)",
            "SET until = NULL",
        ),
        Slip(
            "a completed job holds its key for twice as long",
            "SET until = gantline.later(p_now, v_key.hold)",
            "SET until = gantline.later(p_now, 2 * v_key.hold)",
        ),
    ),
    *in_function(
        "sequence_events",
        ("events", "races", "on_request"),
        Slip(
            "a row that comes late is given up while it may still come",
            "gap.watched_until <= v_oldest",
            "gap.watched_until IS NOT NULL",
        ),
        Slip("late rows come last", "v_all := v_late || v_new", "v_all := v_new || v_late"),
        Slip(
            "what was read is mixed up with what was numbered",
            "high = v_high",
            "high = v_last + cardinality(v_all)",
        ),
        Slip(
            "a number is given twice",
            "VALUES (v_last + cardinality(v_all), v_last + 1, v_all)",
            "VALUES (v_last + cardinality(v_all) - 1, v_last, v_all)",
        ),
    ),
    *in_function(
        "fold_tally",
        ("reading", "maintenance"),
        Slip(
            "what was counted before is forgotten",
            "cancelled = sum.cancelled + excluded.cancelled",
            "cancelled = excluded.cancelled",
        ),
        Slip(
            "live jobs are not added up",
            "live = sum.live + excluded.live",
            "live = sum.live",
        ),
    ),
    *in_function(
        "later",
        ("applying", "inserting"),
        Slip(
            "there is an instant after the last",
            "least(at::numeric + span::numeric, 253402300799999999::numeric)",
            "(at::numeric + span::numeric)",
        ),
    ),
)
