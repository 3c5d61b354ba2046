-- Works with code of migration 6.
-- Groups, turns, limits and gates. Beside it, code of migration 6 goes on: what that inserts has no group, and it
-- claims only such jobs.

-- The group of a job, within its tenant. Its number is 0 for the tenant `default` without a group.
ALTER TABLE gantline.job ADD COLUMN group_name text NOT NULL DEFAULT '' CHECK (length(group_name) <= 256);
ALTER TABLE gantline.ready ADD COLUMN grp bigint NOT NULL DEFAULT 0 CHECK (grp >= 0);
ALTER TABLE gantline.ready DROP CONSTRAINT ready_pkey;
ALTER TABLE gantline.ready ADD PRIMARY KEY (lane, rank, grp, run_at, job_id);
ALTER TABLE gantline.lease ADD COLUMN grp bigint NOT NULL DEFAULT 0 CHECK (grp >= 0);
-- Whether it started under a limit. Only such runs are in the index; its columns never change, so a renewal stays HOT.
ALTER TABLE gantline.lease ADD COLUMN limited boolean NOT NULL DEFAULT false;
CREATE INDEX lease_limited ON gantline.lease (lane, grp) WHERE limited;
CREATE INDEX lane_by_type ON gantline.lane (job_type);

-- "Jobs of this group may be due from `at` on." One row or more for every group of which anything that is no suspect is
-- Queued, except those without a group: written with the jobs, in their transaction, and never updated; so no
-- writer waits, and nothing waits without a turn. A turn too many costs one look. `is_new`: no claim has served it.
CREATE TABLE gantline.turn (
    lane   bigint NOT NULL,
    tenant bigint NOT NULL CHECK (tenant >= 0),
    grp    bigint NOT NULL CHECK (grp > 0),
    at     bigint NOT NULL,
    rank   smallint NOT NULL CHECK (rank BETWEEN 0 AND 3),
    is_new boolean NOT NULL DEFAULT true
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- What a claim looks for at any time, and for others than the tenant that has most of it; what a process reads page
-- by page, and by which turns are removed.
CREATE INDEX turn_new ON gantline.turn (lane, rank, at) WHERE is_new;
CREATE INDEX turn_new_of_tenant ON gantline.turn (lane, rank, tenant, at) WHERE is_new;
CREATE INDEX turn_served ON gantline.turn (lane, rank, tenant, grp) WHERE NOT is_new;
CREATE INDEX turn_of_group ON gantline.turn (lane, rank, tenant, grp);

-- `tat`: when the next start would be due at the even rate (GCRA).
CREATE TABLE gantline.gate (
    tat          bigint NOT NULL DEFAULT 0,
    closed_until bigint NOT NULL DEFAULT 0,
    name         text COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- The number of a group as the contract makes it: 63 bits of a hash.
CREATE FUNCTION gantline.group_number(tenant text, name text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN tenant = 'default' AND name = '' THEN 0
                ELSE greatest(1, (('x' || encode(substr(sha256(
                    convert_to(length(tenant) || ':' || tenant || name, 'UTF8')), 1, 8), 'hex')
                )::bit(64)::bigint >> 1) & 9223372036854775807) END
$$;

-- The functions that store a job and read it for a run, with columns more. Under their old signatures they stay.
DROP FUNCTION gantline.insert_jobs;
DROP FUNCTION gantline.claim_jobs;
DROP FUNCTION gantline.due_suspects;

-- Stores jobs and takes their keys; gives a row for each that it refuses. Ids and keys must differ
-- within a call. `p_logged` NULL: none of them is an event; `p_external` NULL: none of them came with an id
-- from outside; `p_expires` NULL: none of them expires; `p_group` NULL: all are of the group 0.
-- `p_patience_ms` bounds the wait for an open transaction of others.
CREATE FUNCTION gantline.insert_jobs(
    p_now bigint, p_patience_ms integer,
    p_id uuid[], p_tenant text[], p_lane bigint[], p_subject text[], p_correlation text[],
    p_idempotency_key text[], p_fingerprint bytea[], p_attempt integer[], p_max_attempts integer[],
    p_payload bytea[], p_payload_version integer[], p_priority integer[], p_created_at bigint[],
    p_scheduled_at bigint[], p_delay bigint[], p_created_by text[], p_parent uuid[],
    p_trace_context text[],
    p_request_tenant text[], p_request_scope text[], p_request_key text[],
    p_request_fingerprint bytea[], p_request_hold bigint[], p_logged boolean[],
    p_external uuid[], p_expires bigint[], p_group text[])
RETURNS TABLE (place bigint, outcome text, existing uuid, by_kind text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
    v_is_keyed boolean := '' <> ANY (p_idempotency_key) OR p_external IS NOT NULL
        OR array_length(array_remove(p_request_key, NULL), 1) IS NOT NULL;
    v_is_grouped boolean := p_group IS NOT NULL;
    v_refused bigint[] := '{}';
    v_outcomes text[] := '{}';
    v_existing uuid[] := '{}';
    v_kinds text[] := '{}';
BEGIN
    IF p_patience_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', p_patience_ms::text, true);
    END IF;
    IF p_external IS NOT NULL THEN
        -- Of jobs whose rows were removed by hand.
        DELETE FROM gantline.dedupe AS held
        USING unnest(p_tenant, p_external) AS i (tenant, external_id)
        WHERE held.tenant = i.tenant AND held.scope = ''
          AND held.key = replace(i.external_id::text, '-', '') AND held.kind = 'id'
          AND NOT EXISTS (SELECT FROM gantline.job WHERE job.id = held.job_id);
    END IF;
    FOR v_round IN 1..10 LOOP
        -- A job without keys rarely exists already, so the first round does not check.
        IF v_is_keyed OR v_round > 1 THEN
            WITH input AS (
                SELECT i.*, lane.job_type
                FROM unnest(p_id, p_tenant, p_lane, p_fingerprint, p_idempotency_key,
                            p_request_tenant, p_request_scope, p_request_key,
                            p_request_fingerprint, p_external)
                     WITH ORDINALITY AS i (id, tenant, lane, fingerprint, key, request_tenant,
                                           request_scope, request_key, request_fingerprint,
                                           external_id, place)
                JOIN gantline.lane ON lane.id = i.lane
            ), found AS (
                SELECT i.place, -2 AS rank, job.id AS existing, NULL AS kind,
                       (job.tenant, lane.job_type, job.fingerprint)
                       = (i.tenant, i.job_type, i.fingerprint) AS is_same
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.job WHERE job.id = i.id OFFSET 0) AS job
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.lane WHERE lane.id = job.lane OFFSET 0) AS lane
                UNION ALL
                SELECT i.place, -1, job.id, 'id',
                       (lane.job_type, job.fingerprint) = (i.job_type, i.fingerprint)
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.job
                    WHERE job.id = i.external_id AND job.tenant = i.tenant OFFSET 0) AS job
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.lane WHERE lane.id = job.lane OFFSET 0) AS lane
                UNION ALL
                SELECT i.place, 0, held.job_id, 'id',
                       held.fingerprint = i.fingerprint || convert_to(i.job_type, 'UTF8')
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.dedupe AS held
                    WHERE held.tenant = i.tenant AND held.scope = ''
                      AND held.key = replace(i.external_id::text, '-', '') AND held.kind = 'id'
                    OFFSET 0) AS held
                WHERE i.external_id IS NOT NULL
                UNION ALL
                SELECT i.place, 2, held.job_id, 'job', held.fingerprint = i.fingerprint
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.dedupe AS held
                    WHERE held.tenant = i.tenant AND held.scope = i.job_type AND held.key = i.key
                      AND held.kind = 'job' AND (held.until IS NULL OR held.until > v_now)
                    OFFSET 0) AS held
                WHERE i.key <> ''
                UNION ALL
                SELECT i.place, 1, held.job_id, 'request', held.fingerprint = i.request_fingerprint
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.dedupe AS held
                    WHERE held.tenant = i.request_tenant AND held.scope = i.request_scope
                      AND held.key = i.request_key AND held.kind = 'request'
                      AND (held.until IS NULL OR held.until > v_now)
                    OFFSET 0) AS held
            ), first AS (
                SELECT DISTINCT ON (found.place) * FROM found ORDER BY found.place, found.rank
            )
            SELECT coalesce(array_agg(first.place), '{}'),
                   coalesce(array_agg(
                       CASE WHEN first.is_same THEN 'duplicate' ELSE 'conflict' END), '{}'),
                   coalesce(array_agg(first.existing), '{}'),
                   coalesce(array_agg(first.kind), '{}')
            INTO v_refused, v_outcomes, v_existing, v_kinds
            FROM first;
        END IF;
        BEGIN
            WITH added AS (
                INSERT INTO gantline.job (
                    id, tenant, lane, subject, correlation, idempotency_key, fingerprint, attempt,
                    max_attempts, payload, payload_version, priority, created_at, scheduled_at,
                    created_by, parent, trace_context, external_id, expires_at, group_name)
                SELECT i.id, i.tenant, i.lane, i.subject, i.correlation, i.key, i.fingerprint,
                       i.attempt, i.max_attempts, i.payload, i.payload_version, i.priority,
                       i.created_at,
                       CASE WHEN i.scheduled_at IS NOT NULL THEN i.scheduled_at
                            WHEN i.delay > 0 THEN gantline.later(v_now, i.delay) END,
                       i.created_by, i.parent, i.trace_context, i.external_id, i.expires_at,
                       coalesce(i.group_name, '')
                FROM unnest(p_id, p_tenant, p_lane, p_subject, p_correlation, p_idempotency_key,
                            p_fingerprint, p_attempt, p_max_attempts, p_payload, p_payload_version,
                            p_priority, p_created_at, p_scheduled_at, p_delay, p_created_by,
                            p_parent, p_trace_context, p_external, p_expires, p_group)
                     WITH ORDINALITY AS i (
                         id, tenant, lane, subject, correlation, key, fingerprint, attempt,
                         max_attempts, payload, payload_version, priority, created_at, scheduled_at,
                         delay, created_by, parent, trace_context, external_id, expires_at, group_name,
                         place)
                WHERE v_refused = '{}' OR i.place <> ALL (v_refused)
                RETURNING id, tenant, lane, idempotency_key, attempt, priority, created_at,
                          scheduled_at, expires_at, group_name
            ), queued AS (
                INSERT INTO gantline.ready (
                    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority,
                    keyed, job_id, tenant, expires_at, grp)
                SELECT lane, greatest(v_now, scheduled_at), 1, 0, created_at, attempt - 1, 0, 0,
                       priority, idempotency_key <> '', id, tenant, expires_at,
                       CASE WHEN v_is_grouped THEN gantline.group_number(tenant, group_name) ELSE 0 END
                FROM added
            )
            INSERT INTO gantline.tally_delta (
                lane, live, completed, failed, poisoned, cancelled, tenant)
            SELECT lane, count(*), 0, 0, 0, 0, tenant FROM added GROUP BY tenant, lane;
            IF v_is_grouped THEN
                INSERT INTO gantline.turn (lane, rank, tenant, grp, at)
                SELECT i.lane, i.priority, gantline.group_number(i.tenant, ''),
                       gantline.group_number(i.tenant, i.group_name),
                       min(CASE WHEN i.scheduled_at IS NOT NULL THEN greatest(v_now, i.scheduled_at)
                                ELSE gantline.later(v_now, greatest(0, i.delay)) END)
                FROM unnest(p_lane, p_priority, p_tenant, p_group, p_scheduled_at, p_delay)
                     WITH ORDINALITY
                     AS i (lane, priority, tenant, group_name, scheduled_at, delay, place)
                WHERE (i.tenant <> 'default' OR i.group_name <> '') AND i.place <> ALL (v_refused)
                GROUP BY i.lane, i.priority, i.tenant, i.group_name;
            END IF;
            IF v_is_keyed THEN
                PERFORM gantline.take_keys(v_now, array_agg(k.kind), array_agg(k.tenant),
                    array_agg(k.scope), array_agg(k.key), array_agg(k.id),
                    array_agg(k.fingerprint), array_agg(k.hold))
                FROM (
                    SELECT 'job' AS kind, i.tenant, lane.job_type AS scope, i.key, i.id,
                           i.fingerprint, NULL::bigint AS hold
                    FROM unnest(p_id, p_tenant, p_lane, p_idempotency_key, p_fingerprint)
                         WITH ORDINALITY AS i (id, tenant, lane, key, fingerprint, place)
                    JOIN gantline.lane ON lane.id = i.lane
                    WHERE i.key <> '' AND i.place <> ALL (v_refused)
                    UNION ALL
                    SELECT 'request', i.tenant, i.scope, i.key, i.id, i.fingerprint, i.hold
                    FROM unnest(p_id, p_request_tenant, p_request_scope, p_request_key,
                                p_request_fingerprint, p_request_hold)
                         WITH ORDINALITY AS i (id, tenant, scope, key, fingerprint, hold, place)
                    WHERE i.key IS NOT NULL AND i.place <> ALL (v_refused)
                    UNION ALL
                    SELECT 'id', i.tenant, '', replace(i.external_id::text, '-', ''), i.id,
                           i.fingerprint || convert_to(lane.job_type, 'UTF8'), NULL
                    FROM unnest(p_id, p_tenant, p_lane, p_external, p_fingerprint)
                         WITH ORDINALITY AS i (id, tenant, lane, external_id, fingerprint, place)
                    JOIN gantline.lane ON lane.id = i.lane
                    WHERE i.external_id IS NOT NULL AND i.place <> ALL (v_refused)
                ) AS k
                HAVING count(*) > 0;
            END IF;
            IF p_logged IS NOT NULL THEN
                INSERT INTO gantline.log (
                    version, lane, fence, at, created_at, event, status, attempt, crashes, snoozes,
                    priority, is_end, job_id, change_id, tenant, reason, session, actor)
                SELECT 1, i.lane, 0, v_now, i.created_at, 'submitted', 'Queued', i.attempt - 1, 0, 0,
                       i.priority, false, i.id, i.id, i.tenant, 'Submitted', '', ''
                FROM unnest(p_id, p_tenant, p_lane, p_attempt, p_priority, p_created_at, p_logged)
                     WITH ORDINALITY
                     AS i (id, tenant, lane, attempt, priority, created_at, is_logged, place)
                WHERE i.is_logged AND i.place <> ALL (v_refused);
            END IF;
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            -- Another transaction was faster; by now it is committed, and the next round sees it.
            -- Not under an older snapshot of the caller: then the caller has to begin again.
            IF v_round = 10 OR current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE serialization_failure USING MESSAGE =
                    'an id or a key was taken by a transaction that this one cannot see';
            END IF;
        END;
    END LOOP;
    IF v_refused <> '{}' THEN
        RETURN QUERY SELECT * FROM unnest(v_refused, v_outcomes, v_existing, v_kinds);
    END IF;
END
$$;

CREATE FUNCTION gantline.insert_jobs(
    p_now bigint, p_patience_ms integer,
    p_id uuid[], p_tenant text[], p_lane bigint[], p_subject text[], p_correlation text[],
    p_idempotency_key text[], p_fingerprint bytea[], p_attempt integer[], p_max_attempts integer[],
    p_payload bytea[], p_payload_version integer[], p_priority integer[], p_created_at bigint[],
    p_scheduled_at bigint[], p_delay bigint[], p_created_by text[], p_parent uuid[],
    p_trace_context text[],
    p_request_tenant text[], p_request_scope text[], p_request_key text[],
    p_request_fingerprint bytea[], p_request_hold bigint[], p_logged boolean[],
    p_external uuid[], p_expires bigint[])
RETURNS TABLE (place bigint, outcome text, existing uuid, by_kind text) LANGUAGE sql AS $$
    SELECT * FROM gantline.insert_jobs(
        p_now, p_patience_ms, p_id, p_tenant, p_lane, p_subject, p_correlation, p_idempotency_key,
        p_fingerprint, p_attempt, p_max_attempts, p_payload, p_payload_version, p_priority,
        p_created_at, p_scheduled_at, p_delay, p_created_by, p_parent, p_trace_context,
        p_request_tenant, p_request_scope, p_request_key, p_request_fingerprint, p_request_hold,
        p_logged, p_external, p_expires, NULL)
$$;

-- Starts runs of due jobs without turns and limits. A request is a queue with a limit; a range is a lane, a rank and a
-- group, searched from its floor on. First it finds, without a lock, how many rows of each range come next;
-- then it locks so many, skipping those that others have locked. The tokens are given, as many
-- as the limits allow, because making one here costs as much as writing the lease (1.6 µs). `p_at_most`
-- is, for each range, how many jobs of its lane may be taken, NULL for any number; the whole of it is
-- NULL where no lane is limited. `p_logged` are the lanes in which a start is an event; NULL for none.
-- `p_grp` NULL: all ranges are of the group 0. Where there are turns in `p_turn_lanes`, new ones since `p_turns_since`
-- or any if that is 0, it starts nothing and gives a row of NULLs: `claim_groups` is for these.
-- A run whose job was removed by hand has NULLs instead of the job.
CREATE FUNCTION gantline.claim_jobs(
    p_now bigint, p_session text, p_claim uuid, p_lease bigint, p_token uuid[], p_limit integer[],
    p_request integer[], p_lane bigint[], p_rank integer[], p_floor bigint[], p_floor_id uuid[],
    p_at_most integer[], p_logged bigint[], p_grp bigint[], p_turn_lanes bigint[],
    p_turns_since bigint)
RETURNS TABLE (
    token uuid, fence bigint, session text, version bigint, attempt integer, crashes integer,
    snoozes integer, priority smallint, started_at bigint, until bigint, cancel_requested boolean,
    run_at bigint, lane bigint, id uuid, tenant text, subject text, correlation text,
    idempotency_key text, job_attempt integer, max_attempts integer, payload bytea,
    payload_version integer, job_priority smallint, created_at bigint, scheduled_at bigint,
    created_by text, parent uuid, trace_context text, external_id uuid, expires_at bigint,
    group_name text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_until bigint;
BEGIN
    -- The same claim twice at the same time: the second waits and finds what the first has started.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_claim::text, 0));
    v_now := coalesce(p_now, gantline.instant());
    v_until := gantline.later(v_now, p_lease);
    IF EXISTS (SELECT FROM gantline.lease WHERE lease.claim_id = p_claim) THEN
        RETURN QUERY
        SELECT lease.token, lease.fence, lease.session, lease.version, lease.attempt, lease.crashes,
               lease.snoozes, lease.priority, lease.started_at, lease.until, lease.cancel_requested,
               lease.due_at, lease.lane, lease.job_id, job.tenant, job.subject, job.correlation,
               job.idempotency_key, job.attempt, job.max_attempts, job.payload, job.payload_version,
               job.priority, job.created_at, job.scheduled_at, job.created_by, job.parent,
               job.trace_context, job.external_id, job.expires_at, job.group_name
        FROM gantline.lease
        LEFT JOIN LATERAL (
            SELECT * FROM gantline.job WHERE job.id = lease.job_id OFFSET 0) AS job ON true
        WHERE lease.claim_id = p_claim;
        RETURN;
    END IF;
    IF p_turn_lanes IS NOT NULL AND (
        EXISTS (SELECT FROM gantline.turn
                WHERE turn.lane = ANY (p_turn_lanes) AND turn.rank = ANY ('{0, 1, 2, 3}') AND turn.is_new
                  AND turn.at >= p_turns_since AND turn.at <= v_now)
        OR p_turns_since = 0 AND EXISTS (
            SELECT FROM gantline.turn WHERE turn.lane = ANY (p_turn_lanes) AND NOT turn.is_new)) THEN
        RETURN NEXT;  -- a row of NULLs
        RETURN;
    END IF;
    IF p_at_most IS NOT NULL THEN
        -- In its order a lane gives all of one rank before it gives any of the next. So how many of
        -- each range may be taken follows from the lane alone, and no order over all is needed here.
        p_at_most := ARRAY(
            SELECT CASE WHEN w.at_most IS NOT NULL THEN
                       greatest(0, least(due.jobs, w.at_most - coalesce(sum(due.jobs) OVER (
                           PARTITION BY w.request, w.lane ORDER BY w.rank
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)))::integer END
            FROM unnest(p_request, p_lane, p_rank, p_floor, p_floor_id, p_at_most, p_grp)
                 WITH ORDINALITY AS w (request, lane, rank, floor, floor_id, at_most, grp, place)
            LEFT JOIN LATERAL (
                SELECT count(*) AS jobs FROM (
                    SELECT FROM gantline.ready
                    WHERE ready.lane = w.lane AND ready.rank = w.rank AND ready.grp = coalesce(w.grp, 0)
                      AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                      AND ready.run_at <= v_now
                    ORDER BY ready.run_at, ready.job_id LIMIT w.at_most
                ) AS first
            ) AS due ON w.at_most IS NOT NULL
            ORDER BY w.place);
    END IF;
    RETURN QUERY
    WITH wanted AS (
        SELECT w.*, p_limit[w.request] AS most
        FROM unnest(p_request, p_lane, p_rank, p_floor, p_floor_id, p_at_most, p_grp)
             AS w (request, lane, rank, floor, floor_id, at_most, grp)
    ), next AS (
        SELECT w.request, w.lane, w.rank, w.grp, w.floor, w.floor_id, count(*) AS share
        FROM (
            SELECT w.*, row_number() OVER (
                       PARTITION BY w.request ORDER BY w.rank, due.run_at, due.job_id) AS place
            FROM wanted AS w CROSS JOIN LATERAL (
                SELECT ready.run_at, ready.job_id FROM gantline.ready
                WHERE ready.lane = w.lane AND ready.rank = w.rank AND ready.grp = coalesce(w.grp, 0)
                  AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                  AND ready.run_at <= v_now
                ORDER BY ready.run_at, ready.job_id LIMIT least(w.most, w.at_most)
            ) AS due
        ) AS w
        WHERE w.place <= w.most
        GROUP BY w.request, w.lane, w.rank, w.grp, w.floor, w.floor_id
    ), picked AS (
        SELECT due.spot
        FROM next CROSS JOIN LATERAL (
            SELECT ready.ctid AS spot FROM gantline.ready
            WHERE ready.lane = next.lane AND ready.rank = next.rank
              AND ready.grp = coalesce(next.grp, 0)
              AND (ready.run_at, ready.job_id) >= (next.floor, next.floor_id)
              AND ready.run_at <= v_now
            ORDER BY ready.run_at, ready.job_id LIMIT next.share
            FOR UPDATE SKIP LOCKED
        ) AS due
    ), taken AS (
        DELETE FROM gantline.ready WHERE ctid = ANY (ARRAY(SELECT spot FROM picked)) RETURNING *
    ), leased AS (
        INSERT INTO gantline.lease (
            lane, version, fence, created_at, due_at, started_at, until, length, attempt, crashes,
            snoozes, priority, keyed, job_id, token, claim_id, session, tenant, grp)
        SELECT lane, version + 1, fence + 1, created_at, run_at, v_now, v_until, p_lease,
               attempt + 1, crashes, snoozes, priority, keyed, job_id,
               p_token[row_number() OVER ()], p_claim, p_session, tenant, grp
        FROM taken
        RETURNING *
    )
    SELECT leased.token, leased.fence, leased.session, leased.version, leased.attempt,
           leased.crashes, leased.snoozes, leased.priority, leased.started_at, leased.until, false,
           leased.due_at, leased.lane, leased.job_id, job.tenant, job.subject, job.correlation,
           job.idempotency_key, job.attempt, job.max_attempts, job.payload, job.payload_version,
           job.priority, job.created_at, job.scheduled_at, job.created_by, job.parent,
           job.trace_context, job.external_id, job.expires_at, job.group_name
    FROM leased
    LEFT JOIN LATERAL (
        SELECT * FROM gantline.job WHERE job.id = leased.job_id OFFSET 0) AS job ON true;
    IF p_logged IS NOT NULL THEN
        INSERT INTO gantline.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor)
        SELECT version, lane, fence, started_at, created_at, started_at, 'started', 'Running', attempt,
               crashes, snoozes, priority, false, job_id, token, tenant, 'Started', session, ''
        FROM gantline.lease WHERE lease.claim_id = p_claim AND lease.lane = ANY (p_logged);
    END IF;
END
$$;

CREATE FUNCTION gantline.claim_jobs(
    p_now bigint, p_session text, p_claim uuid, p_lease bigint, p_token uuid[], p_limit integer[],
    p_request integer[], p_lane bigint[], p_rank integer[], p_floor bigint[], p_floor_id uuid[],
    p_at_most integer[], p_logged bigint[])
RETURNS TABLE (
    token uuid, fence bigint, session text, version bigint, attempt integer, crashes integer,
    snoozes integer, priority smallint, started_at bigint, until bigint, cancel_requested boolean,
    run_at bigint, lane bigint, id uuid, tenant text, subject text, correlation text,
    idempotency_key text, job_attempt integer, max_attempts integer, payload bytea,
    payload_version integer, job_priority smallint, created_at bigint, scheduled_at bigint,
    created_by text, parent uuid, trace_context text, external_id uuid, expires_at bigint)
LANGUAGE sql AS $$
    SELECT token, fence, session, version, attempt, crashes, snoozes, priority, started_at, until,
           cancel_requested, run_at, lane, id, tenant, subject, correlation, idempotency_key,
           job_attempt, max_attempts, payload, payload_version, job_priority, created_at,
           scheduled_at, created_by, parent, trace_context, external_id, expires_at
    FROM gantline.claim_jobs(
        p_now, p_session, p_claim, p_lease, p_token, p_limit, p_request, p_lane, p_rank, p_floor,
        p_floor_id, p_at_most, p_logged, NULL, NULL, NULL)
$$;

-- Makes the turns of groups agree with what is Queued. First it locks them, then, in the next statement, it looks at
-- ready: whatever was committed with a turn that is locked here is seen there. So each turn that goes is replaced by
-- one that covers the rest, or nothing is left. Turns that others have locked, or that come later, stay.
-- `p_known`: whether who calls goes on with this group by itself, so that it need not be found as new; NULL: nobody
-- asks for these groups, what is left of each stays as new as it was.
-- Under the settings of those that call it.
CREATE FUNCTION gantline.fold_turns(
    p_now bigint, p_lane bigint[], p_rank integer[], p_tenant bigint[], p_grp bigint[], p_floor bigint[],
    p_floor_id uuid[], p_known boolean[])
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_spot tid[];
    v_place integer[];
    v_new boolean[];
BEGIN
    SELECT array_agg(held.spot), array_agg(g.place), array_agg(held.is_new)
    INTO v_spot, v_place, v_new
    FROM unnest(p_lane, p_rank, p_tenant, p_grp) WITH ORDINALITY AS g (lane, rank, tenant, grp, place)
    CROSS JOIN LATERAL (
        -- So many at once that a claim stays short; any part of them may be replaced.
        SELECT turn.ctid AS spot, turn.is_new FROM gantline.turn
        WHERE turn.lane = g.lane AND turn.rank = g.rank AND turn.tenant = g.tenant
          AND turn.grp = g.grp
        LIMIT 10000 FOR UPDATE SKIP LOCKED) AS held;
    WITH held AS (
        SELECT place, count(*) AS turns, bool_or(is_new) AS has_new, bool_and(is_new) AS all_new
        FROM unnest(v_place, v_new) AS one (place, is_new) GROUP BY place
    ), seen AS (
        SELECT held.*, least(after_floor.run_at, first.run_at) AS head
        FROM held
        LEFT JOIN LATERAL (
            SELECT ready.run_at FROM gantline.ready
            WHERE ready.lane = p_lane[place] AND ready.rank = p_rank[place]
              AND ready.grp = p_grp[place]
              AND (ready.run_at, ready.job_id) >= (p_floor[place], p_floor_id[place])
            ORDER BY ready.run_at, ready.job_id LIMIT 1) AS after_floor ON true
        -- Before a group counts as empty, or as not due: a row that was committed late may be below.
        LEFT JOIN LATERAL (
            SELECT ready.run_at FROM gantline.ready
            WHERE (after_floor.run_at IS NULL OR after_floor.run_at > p_now)
              AND ready.lane = p_lane[place] AND ready.rank = p_rank[place]
              AND ready.grp = p_grp[place]
            ORDER BY ready.run_at, ready.job_id LIMIT 1) AS first ON true
    ), wrong AS (
        SELECT * FROM seen
        WHERE head IS NULL OR turns > 1
           OR p_known IS NOT NULL AND (head > p_now OR has_new OR NOT p_known[place])
    ), gone AS (
        DELETE FROM gantline.turn WHERE ctid = ANY (ARRAY(
            SELECT one.spot FROM unnest(v_spot, v_place) AS one (spot, place)
            JOIN wrong ON wrong.place = one.place))
    )
    -- A group that has only later jobs is new again when they are due.
    INSERT INTO gantline.turn (lane, rank, tenant, grp, at, is_new)
    SELECT p_lane[place], p_rank[place], p_tenant[place], p_grp[place], head,
           head > p_now OR CASE WHEN p_known IS NULL THEN all_new ELSE NOT p_known[place] END
    FROM wrong WHERE head IS NOT NULL;
END
$$;

-- Removes turns that are due and more than one, or of groups of which nothing is Queued, among the next `p_limit` after
-- this one: claims do so with those that they find, but not every lane is claimed from. Gives the last that it looked
-- at, or no row at the end.
CREATE FUNCTION gantline.check_turns(
    p_now bigint, p_limit integer, p_lane bigint, p_rank integer, p_tenant bigint, p_grp bigint)
RETURNS TABLE (lane bigint, rank integer, tenant bigint, grp bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
    v_lane bigint[]; v_rank integer[]; v_tenant bigint[]; v_grp bigint[]; v_at bigint[];
BEGIN
    SELECT array_agg(t.lane), array_agg(t.rank::integer), array_agg(t.tenant), array_agg(t.grp), array_agg(t.at)
    INTO v_lane, v_rank, v_tenant, v_grp, v_at
    FROM (
        SELECT * FROM gantline.turn
        WHERE (turn.lane, turn.rank, turn.tenant, turn.grp) > (p_lane, p_rank, p_tenant, p_grp)
        ORDER BY turn.lane, turn.rank, turn.tenant, turn.grp LIMIT p_limit) AS t;
    PERFORM gantline.fold_turns(
        v_now, array_agg(one.lane), array_agg(one.rank), array_agg(one.tenant), array_agg(one.grp),
        array_agg(0::bigint), array_agg('00000000-0000-0000-0000-000000000000'::uuid), NULL)
    FROM (
        SELECT f.lane, f.rank, f.tenant, f.grp
        FROM unnest(v_lane, v_rank, v_tenant, v_grp, v_at) AS f (lane, rank, tenant, grp, at)
        GROUP BY f.lane, f.rank, f.tenant, f.grp
        HAVING min(f.at) <= v_now AND (count(*) > 1 OR NOT EXISTS (
            SELECT FROM gantline.ready
            WHERE ready.lane = f.lane AND ready.rank = f.rank AND ready.grp = f.grp))) AS one;
    IF cardinality(v_lane) = p_limit THEN
        RETURN QUERY SELECT v_lane[p_limit], v_rank[p_limit], v_tenant[p_limit], v_grp[p_limit];
    END IF;
END
$$;

-- Starts runs in the lanes of one queue where groups take turns, or runs are limited.
-- `l_`: the lanes, each with its type, how many of it this claim may take, how many runs a group of the type and the type
-- itself may have, and its gate with the span between two starts and the burst; NULL for none. If all but the lanes
-- are NULL, nothing is bounded.
-- `r_`: ranges to search, in the order of the caller's rotation; those of one turn have one number, and `r_each` is what
-- the turn may give at first, `r_slots` its tenant, `r_new` of these new groups of the tenant before the others. The
-- caller deals out the slots, for each rank to tenants, and of a tenant's to its groups. Here turns are set between them:
-- each number of the caller is a million, new tenants are below and others far above.
-- `p_since`: new groups are looked for from then on; NULL: these are suspects, which take no turns. Groups of new tenants go
-- before the others and have at most `p_new` slots while others want them; where these are more than are read, the
-- tenants after `p_new_after` come next.
-- `p_after`: after which tenant the next page of known groups begins; it is read if `p_reads_page`, or if the claim would
-- not be full without; NULL: never.
-- Under READ COMMITTED alone: what is counted after a lock must see what was written under it before.
-- Last it gives a row without a token, with what the caller keeps in `turns`: from when to look for new groups, after
-- which new tenant, after which tenant the next page begins (-1: at the first), then for each range searched lane, rank, tenant, group and
-- 0: nothing is due; 1: its turn is still to come; 2: it was served and has more, 3: it is full; 4: it was served and has
-- no more. If the claim is not full and something due was held back, then also with 5 each lane of which this claim can
-- start no more, and with 6 those of which it can start no more without a group.
-- Instead of the instant -1 where there may be more new groups now. No such row where the claim is repeated.
CREATE FUNCTION gantline.claim_groups(
    p_now bigint, p_session text, p_claim uuid, p_lease bigint, p_token uuid[], p_limit integer,
    p_is_first boolean, p_logged bigint[],
    l_lane bigint[], l_type text[], l_most integer[], l_running integer[], l_total integer[],
    l_gate text[], l_gap double precision[], l_burst integer[],
    p_since bigint, p_new integer, p_new_after bigint, p_after bigint, p_reads_page boolean,
    r_turn bigint[], r_lane bigint[], r_rank integer[], r_tenant bigint[], r_grp bigint[],
    r_floor bigint[], r_floor_id uuid[], r_each integer[], r_slots integer[], r_new integer[])
RETURNS TABLE (
    token uuid, fence bigint, session text, version bigint, attempt integer, crashes integer,
    snoozes integer, priority smallint, started_at bigint, until bigint, cancel_requested boolean,
    run_at bigint, lane bigint, id uuid, tenant text, subject text, correlation text,
    idempotency_key text, job_attempt integer, max_attempts integer, payload bytea,
    payload_version integer, job_priority smallint, created_at bigint, scheduled_at bigint,
    created_by text, parent uuid, trace_context text, external_id uuid, expires_at bigint,
    group_name text, turns bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_start uuid := '00000000-0000-0000-0000-000000000000';
    v_is_bounded boolean := l_type IS NOT NULL OR l_most IS NOT NULL;
    v_has_running boolean := array_remove(l_running, NULL) <> '{}';
    v_has_total boolean := array_remove(l_total, NULL) <> '{}';
    v_limited bigint[];                                -- the lanes whose runs are counted
    v_lanes bigint[]; v_lane_types text[];             -- all lanes of their types, in whatever queue
    v_gates text[]; v_tat bigint[]; v_gap double precision[]; v_gate_room integer[];  -- those locked
    v_gate integer[]; v_lane_room integer[]; v_types text[];  -- of each lane; the types that are locked
    v_keys integer[]; v_key_room integer[]; v_locked_type text[]; v_locked_grp bigint[];
    v_of integer[];                                    -- for each range the place of its lane
    v_rooms integer[]; v_gate_left integer[]; v_lane_left integer[];
    n_lane bigint[]; n_rank integer[]; n_tenant bigint[]; n_grp bigint[]; n_at bigint[];  -- new turns
    m_lane bigint[]; m_rank integer[]; m_tenant bigint[]; m_grp bigint[];  -- those of no new group
    v_news integer := 0;                               -- so many ranges, the first, were found as new
    v_are_more boolean; v_next_since bigint; v_new_after bigint := p_new_after; v_next_after bigint := coalesce(p_after, -1); v_is_paged boolean := false;
    v_from bigint; v_most_turns integer := greatest(64, p_limit);
    v_further integer := 0; v_due integer[]; v_share integer[]; v_state integer[];
    v_shut bigint[] := '{}';                           -- lane and state of those without room
    e_range integer[]; e_jobs integer[];               -- so many jobs of a range, in their order
    v_left integer; v_new_left integer; v_first integer; v_last integer; v_pass integer;
    v_rank integer; v_turn bigint; v_tenant bigint; v_tenant_left integer; v_open integer; v_each integer; v_quota integer;
    v_moved boolean; v_was_scarce boolean; v_room integer; v_slots bigint; v_range integer; v_take integer; v_lane integer; v_cut integer;
BEGIN
    -- As in claim_jobs. Also for a further call of the same claim: the claim may be repeated while it goes on.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_claim::text, 0));
    IF p_is_first AND EXISTS (SELECT FROM gantline.lease WHERE lease.claim_id = p_claim) THEN
        RETURN QUERY
        SELECT lease.token, lease.fence, lease.session, lease.version, lease.attempt,
               lease.crashes, lease.snoozes, lease.priority, lease.started_at, lease.until,
               lease.cancel_requested, lease.due_at, lease.lane, lease.job_id, job.tenant,
               job.subject, job.correlation, job.idempotency_key, job.attempt,
               job.max_attempts, job.payload, job.payload_version, job.priority,
               job.created_at, job.scheduled_at, job.created_by, job.parent,
               job.trace_context, job.external_id, job.expires_at, job.group_name, NULL::bigint[]
        FROM gantline.lease
        LEFT JOIN LATERAL (
            SELECT * FROM gantline.job WHERE job.id = lease.job_id OFFSET 0) AS job ON true
        WHERE lease.claim_id = p_claim;
        RETURN;
    END IF;
    v_now := coalesce(p_now, gantline.instant());

    -- 1. Gates. Nothing here waits: what another claim has is left to that claim.
    IF array_remove(l_gate, NULL) <> '{}' THEN
        INSERT INTO gantline.gate (name)
        SELECT one.name FROM (SELECT DISTINCT name COLLATE "C" AS name FROM unnest(l_gate) AS l (name)) AS one
        WHERE one.name IS NOT NULL
          AND NOT EXISTS (SELECT FROM gantline.gate WHERE gate.name = one.name)
        ORDER BY one.name ON CONFLICT (name) DO NOTHING;
        SELECT array_agg(held.name), array_agg(held.tat), array_agg(held.gap),
               array_agg(CASE WHEN held.closed_until > v_now THEN 0
                   ELSE floor((v_now - held.tat) / held.gap + held.burst + 1e-6)::integer END)
        INTO v_gates, v_tat, v_gap, v_gate_room
        FROM (
            SELECT gate.name, gate.closed_until, g.gap, g.burst,
                   -- Further ahead than its burst only where the clock was set back.
                   least(greatest(gate.tat, v_now), v_now + ceil(g.burst * g.gap)::bigint) AS tat
            FROM (
                SELECT DISTINCT ON (one.name COLLATE "C") one.name COLLATE "C" AS name, one.gap, one.burst
                FROM unnest(l_gate, l_gap, l_burst) AS one (name, gap, burst)
                WHERE one.name IS NOT NULL
                ORDER BY one.name COLLATE "C", one.gap DESC, one.burst) AS g
            CROSS JOIN LATERAL (
                SELECT * FROM gantline.gate WHERE gate.name = g.name
                OFFSET 0 FOR UPDATE SKIP LOCKED) AS gate) AS held;
    END IF;
    IF v_is_bounded THEN
        -- The place of the gate of each lane; 0: it has none, -1: another claim has it.
        v_gate := ARRAY(
            SELECT CASE WHEN l.gate IS NULL THEN 0
                        ELSE coalesce(array_position(v_gates, l.gate COLLATE "C"), -1) END
            FROM unnest(l_lane, l_gate) WITH ORDINALITY AS l (lane, gate, place) ORDER BY l.place);
        v_limited := ARRAY(
            SELECT l.lane FROM unnest(l_lane, l_running, l_total) AS l (lane, running, total)
            WHERE l.running IS NOT NULL OR l.total IS NOT NULL);
        SELECT array_agg(one.id), array_agg(one.job_type) INTO v_lanes, v_lane_types
        FROM unnest(l_lane, l_type) AS l (lane, type)
        CROSS JOIN LATERAL (
            SELECT lane.id, lane.job_type FROM gantline.lane WHERE lane.job_type = l.type OFFSET 0
        ) AS one
        WHERE l.lane = ANY (v_limited);
    END IF;

    -- 2. New turns.
    IF p_since IS NOT NULL THEN
        WITH RECURSIVE oldest AS MATERIALIZED (
            SELECT one.lane, level.rank, read.tenant, read.grp, read.at
            FROM unnest(l_lane) AS one (lane) CROSS JOIN generate_series(0, 3) AS level (rank)
            CROSS JOIN LATERAL (
                SELECT turn.tenant, turn.grp, turn.at FROM gantline.turn
                WHERE turn.lane = one.lane AND turn.rank = level.rank AND turn.is_new
                  AND turn.at >= p_since AND turn.at <= v_now
                ORDER BY turn.at LIMIT v_most_turns) AS read
        ), next AS (
            -- Where there are more than these, also the first of the next tenants and, for when these end, of the
            -- lowest: one who adds group after group would hide all others.
            SELECT many.lane, many.rank, found.tenant, 1 AS number
            FROM (SELECT lane, rank FROM oldest GROUP BY lane, rank HAVING count(*) >= v_most_turns) AS many
            CROSS JOIN (VALUES (-1::bigint), (p_new_after)) AS begin (after)
            CROSS JOIN LATERAL (
                SELECT turn.tenant FROM gantline.turn
                WHERE turn.lane = many.lane AND turn.rank = many.rank AND turn.is_new
                  AND turn.tenant > begin.after
                ORDER BY turn.tenant, turn.at LIMIT 1) AS found  -- the order of no other index
            UNION ALL
            SELECT next.lane, next.rank, following.tenant, next.number + 1
            FROM next CROSS JOIN LATERAL (
                SELECT turn.tenant FROM gantline.turn
                WHERE turn.lane = next.lane AND turn.rank = next.rank AND turn.is_new
                  AND turn.tenant > next.tenant
                ORDER BY turn.tenant, turn.at LIMIT 1) AS following
            WHERE next.number < greatest(16, p_new)
        ), of_tenant AS (
            SELECT one.lane, one.rank, one.tenant, read.grp, read.at
            FROM (
                SELECT lane, rank, tenant, count(*) OVER (PARTITION BY lane, rank) AS tenants
                FROM next GROUP BY lane, rank, tenant) AS one
            CROSS JOIN LATERAL (
                SELECT turn.grp, turn.at FROM gantline.turn
                WHERE turn.lane = one.lane AND turn.rank = one.rank AND turn.is_new
                  AND turn.tenant = one.tenant AND turn.at >= p_since AND turn.at <= v_now
                ORDER BY turn.at LIMIT 1 + v_most_turns / one.tenants) AS read
        )
        SELECT array_agg(n.lane), array_agg(n.rank), array_agg(n.tenant), array_agg(n.grp), array_agg(n.at),
               (SELECT count(*) FROM oldest) >= v_most_turns
        INTO n_lane, n_rank, n_tenant, n_grp, n_at, v_are_more
        FROM (
            SELECT read.lane, read.rank, read.tenant, read.grp, min(read.at) AS at
            FROM (SELECT * FROM oldest UNION ALL SELECT * FROM of_tenant) AS read
            GROUP BY read.lane, read.rank, read.tenant, read.grp) AS n;
        v_next_since := CASE WHEN v_are_more THEN -1 ELSE v_now END;
    END IF;
    IF n_lane IS NOT NULL THEN
        WITH found AS MATERIALIZED (
            -- One that has a turn that is not new is no new group: what was added to it is folded.
            SELECT n.*, EXISTS (
                       SELECT FROM unnest(r_lane, r_rank, r_grp) AS k (lane, rank, grp)
                       WHERE (k.lane, k.rank, k.grp) = (n.lane, n.rank, n.grp))
                   OR EXISTS (
                       SELECT FROM gantline.turn
                       WHERE turn.lane = n.lane AND turn.rank = n.rank AND turn.tenant = n.tenant
                         AND turn.grp = n.grp AND NOT turn.is_new) AS is_known
            FROM unnest(n_lane, n_rank, n_tenant, n_grp, n_at) AS n (lane, rank, tenant, grp, at)
        ), known AS MATERIALIZED (
            -- The tenants among whom a rank is shared already.
            SELECT k.rank, k.tenant, min(k.turn) AS first, max(k.turn) AS last, max(k.slots) AS slots,
                   max(k.new) AS new, count(DISTINCT k.grp) AS groups
            FROM unnest(r_turn, r_rank, r_tenant, r_grp, r_slots, r_new)
                 AS k (turn, rank, tenant, grp, slots, new)
            GROUP BY k.rank, k.tenant
        ), one AS (
            SELECT n.rank, n.tenant, n.grp, min(n.at) AS at,
                   -- Of a tenant whose turn is still to come: that it has something new is no reason to be first.
                   bool_or(EXISTS (
                       SELECT FROM gantline.turn
                       WHERE turn.lane = n.lane AND turn.rank = n.rank AND turn.tenant = n.tenant
                         AND NOT turn.is_new)) AS is_served
            FROM found AS n WHERE NOT n.is_known GROUP BY n.rank, n.tenant, n.grp
        ), of_tenant AS (
            SELECT one.rank, one.tenant, one.grp, one.at, known.first, known.last, known.slots AS known_slots,
                   known.new, coalesce(known.groups, 0) AS known_groups,
                   known.rank IS NULL AND NOT bool_or(one.is_served) OVER tenants AS is_new_tenant,
                   known.rank IS NULL AND bool_or(one.is_served) OVER tenants AS is_later,
                   row_number() OVER (PARTITION BY one.rank, one.tenant ORDER BY one.at, one.grp) AS number,
                   count(*) OVER tenants AS groups
            FROM one LEFT JOIN LATERAL (
                SELECT * FROM known WHERE known.rank = one.rank AND known.tenant = one.tenant) AS known ON true
            WINDOW tenants AS (PARTITION BY one.rank, one.tenant)
        ), of_rank AS (
            SELECT one.rank, greatest(1, one.new_tenants) AS new_tenants,
                   greatest(1, one.new_tenants + one.known_tenants) AS tenants
            FROM (
                SELECT level.rank,
                       (SELECT count(*) FROM of_tenant AS t
                        WHERE t.rank = level.rank AND t.number = 1 AND t.is_new_tenant) AS new_tenants,
                       (SELECT count(*) FROM known WHERE known.rank = level.rank) AS known_tenants
                FROM generate_series(0, 3) AS level (rank)) AS one
        ), dealt AS (
            SELECT t.*, CASE WHEN t.is_new_tenant
                       THEN greatest(1, least(p_new / r.new_tenants, p_limit / r.tenants))
                       ELSE least(t.known_slots, greatest(1, p_limit / r.tenants))
                   END AS slots,
                   -- Where there are many, who added most would always have waited longest: so they go in turns.
                   row_number() OVER (
                       PARTITION BY t.rank, t.is_new_tenant
                       ORDER BY t.number, v_are_more AND t.tenant <= p_new_after,
                                CASE WHEN v_are_more THEN t.tenant END, t.at, t.tenant, t.grp) AS turn,
                   row_number() OVER (PARTITION BY t.rank ORDER BY t.tenant, t.number) AS place
            FROM of_tenant AS t JOIN of_rank AS r ON r.rank = t.rank
        ), added AS (
            SELECT found.lane, found.rank, found.tenant, found.grp, found.at, dealt.slots,
                   CASE WHEN dealt.is_new_tenant AND dealt.turn <= p_new AND dealt.number <= dealt.slots
                            THEN dealt.turn - 1000000000000000
                        WHEN dealt.is_new_tenant OR dealt.is_later THEN 1000000000000000 + dealt.place
                        WHEN dealt.number <= dealt.new THEN dealt.first * 1000000 - 500000 + dealt.number
                        ELSE dealt.last * 1000000 + dealt.number END AS turn,
                   CASE WHEN dealt.is_later OR dealt.turn > p_limit THEN 0
                        WHEN dealt.is_new_tenant THEN greatest(1, dealt.slots / dealt.groups)
                        ELSE greatest(1, dealt.slots / (dealt.groups + dealt.known_groups)) END AS each
            FROM dealt JOIN found USING (rank, tenant, grp) WHERE NOT found.is_known
        ), shared AS (
            -- What those may give that are known: no more than the same.
            SELECT k.place, k.turn * 1000000 AS turn,
                   least(k.slots, greatest(1, p_limit / r.tenants)) AS slots,
                   least(k.each, CASE WHEN new.groups > 0 THEN greatest(1,
                       least(k.slots, p_limit / r.tenants) / (new.groups + new.known_groups))
                       ELSE k.each END) AS each
            FROM unnest(r_turn, r_rank, r_tenant, r_each, r_slots) WITH ORDINALITY
                 AS k (turn, rank, tenant, each, slots, place)
            JOIN of_rank AS r ON r.rank = k.rank
            LEFT JOIN LATERAL (
                SELECT t.groups, t.known_groups FROM of_tenant AS t
                WHERE t.rank = k.rank AND t.tenant = k.tenant AND t.number = 1) AS new ON true
        )
        SELECT array_agg(added.turn)
                   || (SELECT coalesce(array_agg(turn ORDER BY place), '{}') FROM shared),
               array_agg(added.lane) || r_lane, array_agg(added.rank) || r_rank,
               array_agg(added.tenant) || r_tenant, array_agg(added.grp) || r_grp,
               array_agg(0::bigint) || r_floor, array_agg(v_start) || r_floor_id,
               array_agg(added.each::integer)
                   || (SELECT coalesce(array_agg(each::integer ORDER BY place), '{}') FROM shared),
               array_agg(added.slots::integer)
                   || (SELECT coalesce(array_agg(slots::integer ORDER BY place), '{}') FROM shared),
               array_agg(added.at)
        INTO r_turn, r_lane, r_rank, r_tenant, r_grp, r_floor, r_floor_id, r_each, r_slots, n_at
        FROM added;
        v_news := coalesce(cardinality(n_at), 0);
        SELECT array_agg(n.lane), array_agg(n.rank), array_agg(n.tenant), array_agg(n.grp)
        INTO m_lane, m_rank, m_tenant, m_grp
        FROM unnest(n_lane, n_rank, n_tenant, n_grp) AS n (lane, rank, tenant, grp)
        WHERE NOT EXISTS (
            SELECT FROM unnest(r_lane[:v_news], r_rank[:v_news], r_grp[:v_news]) AS k (lane, rank, grp)
            WHERE (k.lane, k.rank, k.grp) = (n.lane, n.rank, n.grp));
    END IF;

    LOOP
        -- 3. A page of the groups that other claims have served: some groups of each of the next tenants.
        IF p_after IS NOT NULL AND NOT v_is_paged AND (p_reads_page OR v_left > 0) THEN
            v_is_paged := true;
            v_from := hashtextextended(p_token[1]::text, 0) & 9223372036854775807;
            WITH RECURSIVE next AS (
                SELECT one.lane, level.rank, first.tenant, 1 AS number
                FROM unnest(l_lane) AS one (lane) CROSS JOIN generate_series(0, 3) AS level (rank)
                CROSS JOIN LATERAL (
                    SELECT turn.tenant FROM gantline.turn
                    WHERE turn.lane = one.lane AND turn.rank = level.rank AND NOT turn.is_new
                      AND turn.tenant > p_after
                    ORDER BY turn.tenant LIMIT 1) AS first
                UNION ALL
                SELECT next.lane, next.rank, following.tenant, next.number + 1
                FROM next CROSS JOIN LATERAL (
                    SELECT turn.tenant FROM gantline.turn
                    WHERE turn.lane = next.lane AND turn.rank = next.rank AND NOT turn.is_new
                      AND turn.tenant > next.tenant
                    ORDER BY turn.tenant LIMIT 1) AS following
                WHERE next.number < 32
            ), read AS (
                SELECT next.lane, next.rank, next.tenant, of_tenant.grp
                FROM (SELECT *, count(*) OVER () AS tenants FROM next) AS next
                CROSS JOIN LATERAL (
                    -- From anywhere, so that all of many have their turn.
                    (SELECT turn.grp FROM gantline.turn
                     WHERE turn.lane = next.lane AND turn.rank = next.rank AND NOT turn.is_new
                       AND turn.tenant = next.tenant AND turn.grp >= v_from
                     ORDER BY turn.grp LIMIT 1 + v_most_turns / next.tenants)
                    UNION
                    (SELECT turn.grp FROM gantline.turn
                     WHERE turn.lane = next.lane AND turn.rank = next.rank AND NOT turn.is_new
                       AND turn.tenant = next.tenant AND turn.grp < v_from
                     ORDER BY turn.grp LIMIT 1 + v_most_turns / next.tenants)) AS of_tenant
            ), unknown AS (
                SELECT read.*, dense_rank() OVER (ORDER BY read.tenant, read.grp)::integer AS turn
                FROM read
                WHERE NOT EXISTS (
                    SELECT FROM unnest(r_lane, r_rank, r_grp) AS k (lane, rank, grp)
                    WHERE (k.lane, k.rank, k.grp) = (read.lane, read.rank, read.grp))
            )
            SELECT r_turn || coalesce(array_agg(u.turn + 2000000000000000), '{}'),
                   r_lane || coalesce(array_agg(u.lane), '{}'),
                   r_rank || coalesce(array_agg(u.rank), '{}'),
                   r_tenant || coalesce(array_agg(u.tenant), '{}'),
                   r_grp || coalesce(array_agg(u.grp), '{}'),
                   r_floor || coalesce(array_agg(0::bigint), '{}'),
                   r_floor_id || coalesce(array_agg(v_start), '{}'),
                   r_each || coalesce(array_agg(1), '{}'), r_slots || coalesce(array_agg(1), '{}'),
                   coalesce((SELECT min(tenant) FROM next WHERE number = 32), -1)
            INTO r_turn, r_lane, r_rank, r_tenant, r_grp, r_floor, r_floor_id, r_each, r_slots,
                 v_next_after
            FROM unknown AS u;
        END IF;

        -- 4. How many jobs each range has, no more than it might give, and one.
        IF cardinality(l_lane) = 1 AND p_since IS NOT NULL THEN
            SELECT array_agg(w.place ORDER BY w.rank, w.turn), array_agg(due.jobs::integer ORDER BY w.rank, w.turn)
            INTO e_range, e_jobs
            FROM unnest(r_turn, r_lane, r_rank, r_grp, r_floor, r_floor_id, r_each)
                 WITH ORDINALITY AS w (turn, lane, rank, grp, floor, floor_id, each, place)
            CROSS JOIN LATERAL (
                SELECT count(*) AS jobs FROM (
                    SELECT FROM gantline.ready
                    WHERE ready.lane = w.lane AND ready.rank = w.rank AND ready.grp = w.grp
                      AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                      AND ready.run_at <= v_now
                    ORDER BY ready.run_at, ready.job_id LIMIT w.each + v_further + 1) AS first) AS due
            WHERE w.each + v_further > 0 AND due.jobs > 0;
        ELSE
            -- The ranges of one turn together, in the order of their jobs.
            WITH w AS MATERIALIZED (
                SELECT w.*, count(*) OVER (PARTITION BY w.rank, w.turn) AS ranges
                FROM unnest(r_turn, r_lane, r_rank, r_grp, r_floor, r_floor_id, r_each)
                     WITH ORDINALITY AS w (turn, lane, rank, grp, floor, floor_id, each, place)
                WHERE w.each + v_further > 0
            ), seen AS (
                SELECT w.rank, w.turn, w.place, 0 AS number, due.jobs
                FROM w CROSS JOIN LATERAL (
                    SELECT count(*) AS jobs FROM (
                        SELECT FROM gantline.ready
                        WHERE ready.lane = w.lane AND ready.rank = w.rank AND ready.grp = w.grp
                          AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                          AND ready.run_at <= v_now
                        ORDER BY ready.run_at, ready.job_id LIMIT w.each + v_further + 1) AS first) AS due
                WHERE w.ranges = 1 AND due.jobs > 0
                UNION ALL
                SELECT w.rank, w.turn, w.place,
                       row_number() OVER (PARTITION BY w.rank, w.turn ORDER BY due.run_at, due.job_id), 1
                FROM w CROSS JOIN LATERAL (
                    SELECT ready.run_at, ready.job_id FROM gantline.ready
                    WHERE ready.lane = w.lane AND ready.rank = w.rank AND ready.grp = w.grp
                      AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                      AND ready.run_at <= v_now
                    ORDER BY ready.run_at, ready.job_id LIMIT w.each + v_further + 1) AS due
                WHERE w.ranges > 1
            )
            SELECT array_agg(seen.place ORDER BY seen.rank, seen.turn, seen.number),
                   array_agg(seen.jobs::integer ORDER BY seen.rank, seen.turn, seen.number)
            INTO e_range, e_jobs FROM seen;
        END IF;
        v_due := array_fill(0, ARRAY[cardinality(r_lane)]);
        v_share := v_due;
        FOR v_place IN 1..coalesce(cardinality(e_range), 0) LOOP
            v_range := e_range[v_place];
            v_due[v_range] := v_due[v_range] + e_jobs[v_place];
        END LOOP;

        -- 5. What may start of each type and group. Locked, then counted in the next statement: so by a
        -- snapshot that shows all that was started under the lock.
        IF v_is_bounded THEN
            v_of := ARRAY(
                SELECT array_position(l_lane, o.lane) FROM unnest(r_lane) WITH ORDINALITY AS o (lane, place)
                ORDER BY o.place);
            IF v_has_total THEN
                v_types := ARRAY(
                    SELECT l.type FROM unnest(l_type, l_total) WITH ORDINALITY AS l (type, total, place)
                    WHERE CASE WHEN l.total IS NOT NULL AND EXISTS (
                              SELECT FROM unnest(v_of, v_due) AS o (lane, due) WHERE o.lane = l.place AND o.due > 0)
                          THEN pg_try_advisory_xact_lock(hashtextextended('gantline.type ' || l.type, 0)) END);
            END IF;
            v_lane_room := ARRAY(
                SELECT least(coalesce(l.most, p_limit), CASE WHEN l.total IS NULL THEN p_limit
                    WHEN l.type = ANY (v_types) THEN greatest(0, l.total - (
                        SELECT count(*) FROM unnest(v_lanes, v_lane_types) AS a (lane, type)
                        CROSS JOIN LATERAL (
                            SELECT FROM gantline.lease WHERE lease.limited AND lease.lane = a.lane OFFSET 0
                        ) AS held
                        WHERE a.type = l.type))
                    ELSE 0 END)
                FROM unnest(l_type, l_most, l_total, l_lane) WITH ORDINALITY AS l (type, most, total, lane, place)
                ORDER BY l.place);
            IF v_has_running THEN
                SELECT array_agg(locked.type), array_agg(locked.grp) INTO v_locked_type, v_locked_grp
                FROM (
                    SELECT o.type, o.grp FROM (
                        SELECT l_type[v_of[o.place]] AS type, o.grp, max(l_running[v_of[o.place]]) AS running
                        FROM unnest(r_grp) WITH ORDINALITY AS o (grp, place)
                        WHERE v_due[o.place] > 0 AND l_running[v_of[o.place]] IS NOT NULL
                          AND v_lane_room[v_of[o.place]] > 0
                          AND coalesce(v_gate_room[v_gate[v_of[o.place]]], 0)
                              > CASE v_gate[v_of[o.place]] WHEN 0 THEN -1 ELSE 0 END
                        GROUP BY 1, 2 OFFSET 0) AS o
                    -- A full group is not locked: another claim may just be ending its look.
                    WHERE CASE WHEN o.running > (
                        SELECT count(*) FROM unnest(v_lanes, v_lane_types) AS a (lane, type)
                        CROSS JOIN LATERAL (
                            SELECT FROM gantline.lease
                            WHERE lease.limited AND lease.lane = a.lane AND lease.grp = o.grp OFFSET 0) AS held
                        WHERE a.type = o.type)
                    THEN pg_try_advisory_xact_lock(hashtextextended('gantline.group ' || o.type, o.grp)) END
                ) AS locked;
                v_key_room := ARRAY(
                    SELECT greatest(0, (
                        SELECT max(l.running) FROM unnest(l_type, l_running) AS l (type, running)
                        WHERE l.type = k.type) - (
                        SELECT count(*) FROM unnest(v_lanes, v_lane_types) AS a (lane, type)
                        CROSS JOIN LATERAL (
                            SELECT FROM gantline.lease
                            WHERE lease.limited AND lease.lane = a.lane AND lease.grp = k.grp OFFSET 0) AS held
                        WHERE a.type = k.type))
                    FROM unnest(v_locked_type, v_locked_grp) WITH ORDINALITY AS k (type, grp, place)
                    ORDER BY k.place);
                -- The place of the room of each range; 0: it has no limit, -1: it is full or another's.
                v_keys := ARRAY(
                    SELECT CASE WHEN l_running[v_of[o.place]] IS NULL THEN 0 ELSE coalesce((
                        SELECT k.place FROM unnest(v_locked_type, v_locked_grp) WITH ORDINALITY AS k (type, grp, place)
                        WHERE k.type = l_type[v_of[o.place]] AND k.grp = o.grp), -1) END
                    FROM unnest(r_grp) WITH ORDINALITY AS o (grp, place) ORDER BY o.place);
            END IF;
        END IF;

        -- 6. Who gives how many: rank by rank, at first what each turn may give, then alike what is left.
        v_rooms := v_key_room; v_lane_left := v_lane_room; v_gate_left := v_gate_room;
        v_left := p_limit; v_new_left := p_new; v_cut := 0; v_first := 1;
        WHILE v_first <= cardinality(e_range) AND v_left > 0 AND v_cut = 0 LOOP
            v_rank := r_rank[e_range[v_first]];
            v_last := v_first;
            WHILE r_rank[e_range[v_last + 1]] = v_rank LOOP v_last := v_last + 1; END LOOP;
            v_each := NULL; v_slots := v_left;
            LOOP
                v_turn := NULL; v_tenant := NULL; v_open := 0; v_moved := false;
                FOR v_place IN v_first..v_last LOOP
                    CONTINUE WHEN e_jobs[v_place] = 0;
                    v_range := e_range[v_place];
                    IF r_tenant[v_range] IS DISTINCT FROM v_tenant THEN
                        v_tenant := r_tenant[v_range];
                        v_tenant_left := coalesce(v_each, greatest(1, r_slots[v_range] * v_slots / p_limit));
                        v_open := v_open + 1;
                    END IF;
                    IF r_turn[v_range] IS DISTINCT FROM v_turn THEN
                        v_turn := r_turn[v_range];
                        v_quota := v_tenant_left;
                        v_was_scarce := false;
                        IF v_each IS NULL THEN
                            v_quota := least(
                                v_quota, greatest(least(1, r_each[v_range]), r_each[v_range] * v_slots / p_limit),
                                CASE WHEN v_turn < 0 THEN v_new_left END);
                        ELSIF v_quota > 1 THEN
                            v_quota := 1 + v_quota / 4;  -- the tenant may have other groups
                        END IF;
                    END IF;
                    v_take := least(e_jobs[v_place], v_quota, v_left);
                    IF v_is_bounded THEN
                        v_lane := v_of[v_range];
                        v_room := v_lane_left[v_lane];
                        IF v_gate[v_lane] <> 0 THEN
                            v_room := least(v_room, coalesce(v_gate_left[v_gate[v_lane]], 0));
                        END IF;
                        IF v_room < v_left AND v_room > 0 THEN
                            -- What turns share is dealt one by one.
                            CONTINUE WHEN v_was_scarce;
                            v_was_scarce := true;
                            v_room := least(v_room, 1);
                        END IF;
                        v_take := least(v_take, v_room);
                        IF v_has_running AND v_keys[v_range] <> 0 THEN
                            v_take := least(v_take, coalesce(v_rooms[v_keys[v_range]], 0));
                        END IF;
                        IF v_take > 0 THEN
                            v_lane_left[v_lane] := v_lane_left[v_lane] - v_take;
                            IF v_gate[v_lane] <> 0 THEN
                                v_gate_left[v_gate[v_lane]] := v_gate_left[v_gate[v_lane]] - v_take;
                            END IF;
                            IF v_has_running AND v_keys[v_range] <> 0 THEN
                                v_rooms[v_keys[v_range]] := v_rooms[v_keys[v_range]] - v_take;
                            END IF;
                        END IF;
                    END IF;
                    IF v_take > 0 THEN
                        v_moved := true;
                        v_left := v_left - v_take;
                        v_quota := v_quota - v_take;
                        v_tenant_left := v_tenant_left - v_take;
                        IF v_each IS NULL AND v_turn < 0 THEN v_new_left := v_new_left - v_take; END IF;
                        e_jobs[v_place] := e_jobs[v_place] - v_take;
                        v_share[v_range] := v_share[v_range] + v_take;
                        EXIT WHEN v_left = 0;
                    END IF;
                END LOOP;
                EXIT WHEN v_left = 0 OR v_open = 0 OR NOT v_moved AND v_each IS NOT NULL;
                v_each := greatest(1, v_left / v_open);
            END LOOP;
            IF v_left > 0 THEN
                SELECT count(*) INTO v_cut
                FROM unnest(r_rank, r_each, v_due, v_share) AS o (rank, each, due, share)
                WHERE o.rank = v_rank AND v_further < p_limit
                  AND (o.each + v_further = 0 OR o.share = o.due AND o.due > o.each + v_further);
            END IF;
            v_first := v_last + 1;
        END LOOP;
        IF v_left > 0 AND v_cut = 0 THEN
            v_cut := (SELECT count(*) FROM unnest(r_each) AS o (each) WHERE o.each + v_further = 0);
        END IF;
        -- Further into those that have more, if that did not fill it, before any lower rank gives one.
        IF v_cut > 0 THEN
            v_further := CASE WHEN v_further > 0 THEN p_limit ELSE 1 + v_left / v_cut END;
        ELSE
            EXIT WHEN v_left = 0 OR p_after IS NULL OR v_is_paged;
        END IF;
    END LOOP;

    -- 7. The runs.
    RETURN QUERY
    WITH next AS (
        SELECT * FROM unnest(r_lane, r_rank, r_grp, r_floor, r_floor_id, v_share)
             AS n (lane, rank, grp, floor, floor_id, share) WHERE n.share > 0
    ), picked AS (
        SELECT due.spot
        FROM next CROSS JOIN LATERAL (
            SELECT ready.ctid AS spot FROM gantline.ready
            WHERE ready.lane = next.lane AND ready.rank = next.rank AND ready.grp = next.grp
              AND (ready.run_at, ready.job_id) >= (next.floor, next.floor_id)
              AND ready.run_at <= v_now
            ORDER BY ready.run_at, ready.job_id LIMIT next.share
            FOR UPDATE SKIP LOCKED
        ) AS due
    ), taken AS (
        DELETE FROM gantline.ready WHERE ctid = ANY (ARRAY(SELECT spot FROM picked)) RETURNING *
    ), leased AS (
        INSERT INTO gantline.lease (
            lane, version, fence, created_at, due_at, started_at, until, length, attempt, crashes,
            snoozes, priority, keyed, job_id, token, claim_id, session, tenant, grp, limited)
        SELECT lane, version + 1, fence + 1, created_at, run_at, v_now, gantline.later(v_now, p_lease),
               p_lease, attempt + 1, crashes, snoozes, priority, keyed, job_id,
               p_token[row_number() OVER ()], p_claim, p_session, tenant, grp,
               coalesce(lane = ANY (v_limited), false)
        FROM taken
        RETURNING *
    )
    SELECT leased.token, leased.fence, leased.session, leased.version, leased.attempt,
           leased.crashes, leased.snoozes, leased.priority, leased.started_at, leased.until, false,
           leased.due_at, leased.lane, leased.job_id, job.tenant, job.subject, job.correlation,
           job.idempotency_key, job.attempt, job.max_attempts, job.payload, job.payload_version,
           job.priority, job.created_at, job.scheduled_at, job.created_by, job.parent,
           job.trace_context, job.external_id, job.expires_at, job.group_name, NULL::bigint[]
    FROM leased
    LEFT JOIN LATERAL (
        SELECT * FROM gantline.job WHERE job.id = leased.job_id OFFSET 0) AS job ON true;
    IF v_gates IS NOT NULL AND v_left < p_limit THEN
        UPDATE gantline.gate SET tat = v_tat[g.place] + ceil(v_gap[g.place] * g.starts)::bigint
        FROM (
            SELECT v_gate[array_position(l_lane, lease.lane)] AS place, count(*) AS starts
            FROM gantline.lease
            WHERE lease.claim_id = p_claim AND lease.token = ANY (p_token)
            GROUP BY 1) AS g
        WHERE g.place > 0 AND gate.name = v_gates[g.place];
    END IF;
    IF p_logged IS NOT NULL THEN
        INSERT INTO gantline.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor)
        SELECT version, lane, fence, started_at, created_at, started_at, 'started', 'Running', attempt,
               crashes, snoozes, priority, false, job_id, token, tenant, 'Started', session, ''
        FROM gantline.lease
        WHERE lease.claim_id = p_claim AND lease.token = ANY (p_token) AND lease.lane = ANY (p_logged);
    END IF;

    -- 8. The turns of what was searched: those in which nothing more is due go, and new ones that are known now.
    IF p_since IS NOT NULL THEN
        v_state := ARRAY(
            SELECT CASE WHEN o.each + v_further = 0 THEN NULL
                        WHEN o.due = o.share AND o.due <= o.each + v_further THEN CASE WHEN o.share > 0 THEN 4 ELSE 0 END
                        WHEN o.share > 0 THEN 2
                        WHEN v_has_running AND (v_keys[o.place] > 0 AND v_key_room[v_keys[o.place]] = 0
                             OR v_keys[o.place] < 0 AND v_lane_room[v_of[o.place]] > 0
                                AND (v_gate[v_of[o.place]] = 0 OR v_gate_room[v_gate[v_of[o.place]]] > 0)) THEN 3
                        WHEN o.place <= v_news THEN NULL
                        ELSE 1 END
            FROM unnest(r_each, v_due, v_share) WITH ORDINALITY AS o (each, due, share, place)
            ORDER BY o.place);
        SELECT array_agg(f.lane) || m_lane, array_agg(f.rank) || m_rank, array_agg(f.tenant) || m_tenant,
               array_agg(f.grp) || m_grp
        INTO n_lane, n_rank, n_tenant, n_grp
        FROM unnest(r_lane, r_rank, r_tenant, r_grp, v_state) WITH ORDINALITY
             AS f (lane, rank, tenant, grp, state, place)
        WHERE f.grp > 0 AND (f.state IN (0, 4) OR f.place <= v_news AND f.state > 0);
        IF n_lane IS NOT NULL THEN
            PERFORM gantline.fold_turns(
                v_now, array_agg(f.lane), array_agg(f.rank), array_agg(f.tenant), array_agg(f.grp),
                array_agg(coalesce(r.floor, 0)), array_agg(coalesce(r.floor_id, v_start)),
                array_agg(coalesce(r.state IN (1, 2, 3), true)))
            FROM (SELECT DISTINCT * FROM unnest(n_lane, n_rank, n_tenant, n_grp) AS f (lane, rank, tenant, grp)) AS f
            LEFT JOIN LATERAL (
                SELECT r.floor, r.floor_id, r.state
                FROM unnest(r_lane, r_rank, r_grp, r_floor, r_floor_id, v_state) AS r (lane, rank, grp, floor, floor_id, state)
                WHERE (r.lane, r.rank, r.grp) = (f.lane, f.rank, f.grp)) AS r ON true;
        END IF;
        v_new_after := coalesce((
            SELECT o.tenant FROM unnest(r_turn, r_tenant, v_share) AS o (turn, tenant, share)
            WHERE o.turn < 0 AND o.share > 0 ORDER BY o.turn DESC LIMIT 1), p_new_after);
        -- Of all lanes, also where nothing was searched: a further call leaves them out.
        IF v_is_bounded AND v_left > 0
           AND EXISTS (SELECT FROM unnest(v_due, v_share) AS o (due, share) WHERE o.due > o.share) THEN
            v_shut := ARRAY(
                SELECT unnest(ARRAY[one.lane, 0, 0, 0, CASE WHEN one.is_shut THEN 5 ELSE 6 END])
                FROM (
                    SELECT l.lane, l.type, l.running,
                           v_gate[l.place] <> 0 AND coalesce(v_gate_left[v_gate[l.place]], 0) = 0
                           OR v_lane_left[l.place] = 0 AND (
                               l.total IS NULL OR l.type = ANY (v_types)
                               OR EXISTS (SELECT FROM unnest(v_of, v_due) AS o (lane, due)
                                          WHERE o.lane = l.place AND o.due > 0)
                               OR l.total <= (
                                   SELECT count(*) FROM unnest(v_lanes, v_lane_types) AS a (lane, type)
                                   CROSS JOIN LATERAL (
                                       SELECT FROM gantline.lease
                                       WHERE lease.limited AND lease.lane = a.lane OFFSET 0) AS held
                                   WHERE a.type = l.type)) AS is_shut
                    FROM unnest(l_lane, l_type, l_running, l_total) WITH ORDINALITY
                         AS l (lane, type, running, total, place)
                    OFFSET 0) AS one
                WHERE one.is_shut OR one.running <= (
                    SELECT count(*) FROM unnest(v_lanes, v_lane_types) AS a (lane, type)
                    CROSS JOIN LATERAL (
                        SELECT FROM gantline.lease
                        WHERE lease.limited AND lease.lane = a.lane AND lease.grp = 0 OFFSET 0) AS held
                    WHERE a.type = one.type));
        END IF;
        -- A turn whose transaction takes a moment to commit is not below the next look.
        v_next_since := least(v_next_since, v_now - 100000, (
            SELECT min(o.at) FROM unnest(n_at[:v_news], v_state[:v_news]) AS o (at, state) WHERE o.state IS NULL));
    END IF;
    RETURN QUERY
    SELECT NULL::uuid, NULL::bigint, NULL::text, NULL::bigint, NULL::integer, NULL::integer, NULL::integer,
           NULL::smallint, NULL::bigint, NULL::bigint, NULL::boolean, NULL::bigint, NULL::bigint, NULL::uuid,
           NULL::text, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::integer, NULL::bytea,
           NULL::integer, NULL::smallint, NULL::bigint, NULL::bigint, NULL::text, NULL::uuid, NULL::text,
           NULL::uuid, NULL::bigint, NULL::text,
           ARRAY[v_next_since, v_new_after, v_next_after] || v_shut
               || coalesce(array_agg(s.value ORDER BY o.place, s.number), '{}')
    FROM unnest(r_lane, r_rank, r_tenant, r_grp, v_state) WITH ORDINALITY AS o (lane, rank, tenant, grp, state, place)
    CROSS JOIN LATERAL unnest(ARRAY[o.lane, o.rank, o.tenant, o.grp, o.state]) WITH ORDINALITY AS s (value, number)
    WHERE o.state IS NOT NULL;
END
$$;

-- The ranges in which suspects are due. It reads the first row of each and goes to the next range: one
-- step where there are no suspects, however many jobs are Queued.
DROP INDEX gantline.ready_suspects;
CREATE INDEX ready_suspects ON gantline.ready (rank, lane, grp, run_at, job_id) WHERE rank >= 4;

CREATE FUNCTION gantline.due_suspects(p_now bigint)
RETURNS TABLE (lane bigint, rank smallint, grp bigint) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
BEGIN
    RETURN QUERY
    WITH RECURSIVE head AS (
        (SELECT rank, lane, grp, run_at FROM gantline.ready
         WHERE rank >= 4 ORDER BY rank, lane, grp, run_at LIMIT 1)
        UNION ALL
        SELECT next.rank, next.lane, next.grp, next.run_at
        FROM head CROSS JOIN LATERAL (
            SELECT ready.rank, ready.lane, ready.grp, ready.run_at FROM gantline.ready
            WHERE ready.rank >= 4
              AND (ready.rank, ready.lane, ready.grp) > (head.rank, head.lane, head.grp)
            ORDER BY ready.rank, ready.lane, ready.grp, ready.run_at LIMIT 1
        ) AS next
    )
    SELECT head.lane, head.rank, head.grp FROM head WHERE head.run_at <= v_now;
END
$$;

DROP FUNCTION gantline.settle_runs;

-- Ends runs that carry nothing beyond their job, if they are still the current ones; gives a row for
-- each that it ended. Jobs must differ within a call. It does not wait for a lapsed lease: the transaction
-- that has locked it is about to end it. The leases are locked in the order of their ids, as the index gives them;
-- then the gates that are closed, by name: a claim that has one waits for nobody. `p_closes` NULL: none.
CREATE FUNCTION gantline.settle_runs(
    p_now bigint, p_job uuid[], p_token uuid[], p_unless_cancelled boolean[],
    p_only_expired boolean[], p_event text[], p_status text[], p_reason text[], p_attempt integer[],
    p_crashes integer[], p_snoozes integer[], p_priority integer[], p_delay bigint[],
    p_hold bigint[], p_error_code text[], p_error_message text[], p_error_detail text[],
    p_result bytea[], p_result_omitted text[], p_closes text[])
RETURNS TABLE (place bigint, version bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
    v_keyed uuid[];
BEGIN
    IF true = ANY (p_only_expired) THEN
        p_token := gantline.tokens_unless_locked(p_job, p_token, p_only_expired, v_now);
    END IF;
    v_keyed := ARRAY(
        SELECT lease.job_id FROM gantline.lease WHERE lease.job_id = ANY (p_job) AND lease.keyed);
    RETURN QUERY
    WITH gone AS (
        DELETE FROM gantline.lease
        USING unnest(p_job, p_token, p_unless_cancelled, p_only_expired, p_event, p_status,
                     p_reason, p_attempt, p_crashes, p_snoozes, p_priority, p_delay, p_hold,
                     p_error_code, p_error_message, p_error_detail, p_result, p_result_omitted,
                     p_closes)
              WITH ORDINALITY AS t (
                  job_id, token, unless_cancelled, only_expired, event, status, reason, attempt,
                  crashes, snoozes, priority, delay, hold, error_code, error_message, error_detail,
                  result, result_omitted, closes, place)
        WHERE lease.job_id = ANY (p_job)
          AND lease.job_id = t.job_id AND lease.token = t.token
          AND NOT (t.unless_cancelled AND lease.cancel_requested)
          AND (NOT t.only_expired OR lease.until <= v_now)
        RETURNING t.*, lease.lane, lease.version + 1 AS new_version, lease.fence, lease.created_at,
                  lease.started_at, lease.keyed, lease.session, lease.tenant, lease.grp
    ), logged AS (
        INSERT INTO gantline.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor,
            error_code, error_message, error_detail, result, result_omitted)
        SELECT new_version, lane, fence, v_now, created_at, started_at, event::gantline.job_event,
               status::gantline.job_status, attempt, crashes, snoozes, priority, status <> 'Queued',
               job_id, token, tenant, reason, session, '', error_code, error_message, error_detail,
               result, result_omitted
        FROM gone
    ), queued AS (
        INSERT INTO gantline.ready (
            lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority, keyed,
            job_id, tenant, grp)
        SELECT lane, gantline.later(v_now, delay), new_version, fence, created_at, attempt, crashes,
               snoozes, priority, keyed, job_id, tenant, grp
        FROM gone WHERE status = 'Queued'
    ), turned AS (
        -- A suspect has none: it is found without.
        INSERT INTO gantline.turn (lane, rank, tenant, grp, at)
        SELECT lane, priority, gantline.group_number(min(tenant), ''), grp,
               min(gantline.later(v_now, delay))
        FROM gone WHERE grp <> 0 AND status = 'Queued' AND crashes < 2 GROUP BY lane, priority, grp
    ), closed AS (
        INSERT INTO gantline.gate (name, closed_until)
        SELECT closes, max(gantline.later(v_now, delay)) FROM gone
        WHERE closes <> '' GROUP BY closes ORDER BY closes COLLATE "C"
        ON CONFLICT (name) DO UPDATE
        SET closed_until = greatest(gate.closed_until, excluded.closed_until)
    ), counted AS (
        INSERT INTO gantline.tally_delta (
            lane, live, completed, failed, poisoned, cancelled, tenant)
        SELECT lane, -count(*), count(*) FILTER (WHERE status = 'Completed'),
               count(*) FILTER (WHERE status = 'Failed'),
               count(*) FILTER (WHERE status = 'Poisoned'),
               count(*) FILTER (WHERE status = 'Cancelled'), tenant
        FROM gone WHERE status <> 'Queued' GROUP BY tenant, lane
    )
    SELECT gone.place, gone.new_version FROM gone;
    IF v_keyed <> '{}' THEN
        PERFORM gantline.keep_or_free_keys(v_now, v_keyed, p_job, p_token, p_hold);
    END IF;
END
$$;

CREATE FUNCTION gantline.settle_runs(
    p_now bigint, p_job uuid[], p_token uuid[], p_unless_cancelled boolean[],
    p_only_expired boolean[], p_event text[], p_status text[], p_reason text[], p_attempt integer[],
    p_crashes integer[], p_snoozes integer[], p_priority integer[], p_delay bigint[],
    p_hold bigint[], p_error_code text[], p_error_message text[], p_error_detail text[],
    p_result bytea[], p_result_omitted text[])
RETURNS TABLE (place bigint, version bigint) LANGUAGE sql AS $$
    SELECT * FROM gantline.settle_runs(
        p_now, p_job, p_token, p_unless_cancelled, p_only_expired, p_event, p_status, p_reason,
        p_attempt, p_crashes, p_snoozes, p_priority, p_delay, p_hold, p_error_code,
        p_error_message, p_error_detail, p_result, p_result_omitted, NULL)
$$;

-- Why a job may not be submitted now, by the switches and the depth caps of its queue; NULL where it may.
-- The declared caps of a type, and what a tenant may have in all, are known only to an application.
-- Jobs that are not due yet do not wait, so they are not counted.
CREATE OR REPLACE FUNCTION gantline.why_refused(p_job_type text, p_queue text, p_tenant text, p_now bigint)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_cap bigint;
    v_of_tenant boolean;
    v_waiting bigint;
BEGIN
    IF EXISTS (SELECT FROM gantline.record WHERE namespace = 'switches' AND key = 'closed') THEN
        RETURN 'STORE_CLOSED: The store is closed.';
    ELSIF EXISTS (SELECT FROM gantline.record
                  WHERE namespace = 'switches' AND key = 'disabled-type/' || p_job_type) THEN
        RETURN format('JOB_TYPE_DISABLED: The job type %L is switched off.', p_job_type);
    END IF;
    FOR v_cap, v_of_tenant IN
        SELECT convert_from(value, 'UTF8')::bigint, key LIKE 'tenant-%' FROM gantline.record
        WHERE namespace = 'switches'
          AND key IN ('depth-cap/' || p_queue, 'tenant-depth-cap/' || p_queue)
        ORDER BY key
    LOOP
        -- What others have waiting is read only for a tenant with as many jobs, due or not.
        CONTINUE WHEN v_of_tenant AND v_cap > (
            SELECT coalesce(sum(live), 0) FROM (
                SELECT lane, live FROM gantline.tally WHERE tenant = p_tenant
                UNION ALL
                SELECT lane, live FROM gantline.tally_delta WHERE tenant = p_tenant
            ) AS part JOIN gantline.lane ON lane.id = part.lane WHERE lane.queue = p_queue);
        -- No more than the cap are counted, in each range from its oldest on. Suspects have no turns.
        SELECT count(*) INTO v_waiting FROM (
            SELECT FROM gantline.lane CROSS JOIN generate_series(0, 35) AS level (rank)
            CROSS JOIN LATERAL (
                SELECT 0 AS grp WHERE level.rank < 4
                UNION ALL
                SELECT turn.grp FROM gantline.turn
                WHERE turn.lane = lane.id AND turn.rank = level.rank
                  AND (NOT v_of_tenant OR turn.tenant = gantline.group_number(p_tenant, ''))
                GROUP BY turn.tenant, turn.grp
                UNION ALL
                SELECT ready.grp FROM gantline.ready
                WHERE ready.rank >= 4 AND ready.rank = level.rank AND ready.lane = lane.id
                GROUP BY ready.grp
            ) AS one
            CROSS JOIN LATERAL (
                SELECT FROM gantline.ready
                WHERE ready.lane = lane.id AND ready.rank = level.rank AND ready.grp = one.grp
                  AND ready.run_at <= p_now
                  AND (NOT v_of_tenant OR ready.tenant = p_tenant)
                LIMIT v_cap
            ) AS due
            WHERE lane.queue = p_queue LIMIT v_cap) AS waiting;
        IF v_waiting >= v_cap THEN
            RETURN format('QUEUE_FULL: %s%s may wait in the queue %L, and no more.',
                CASE v_cap WHEN 1 THEN '1 job' ELSE v_cap || ' jobs' END,
                CASE WHEN v_of_tenant THEN ' of a tenant' ELSE '' END, p_queue);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- An envelope with the fields of its objects beside its own, without those that are not known.
CREATE OR REPLACE FUNCTION gantline.known_fields(p_job jsonb, p_place bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_known text[] := ARRAY[
        'attempt', 'correlationId', 'createdAt', 'createdBy', 'delaySeconds', 'expiresAt',
        'fingerprint', 'group', 'idempotencyKey', 'jobId', 'jobType', 'logged', 'maxAttempts', 'parentJobId',
        'payload', 'payloadText', 'payloadVersion', 'priority', 'queue', 'requestKey',
        'requestKey.fingerprint', 'requestKey.holdSeconds', 'requestKey.key', 'requestKey.scope',
        'requestKey.tenantId', 'scheduledAt', 'subjectId', 'tenantId', 'traceContext'];
    v_request jsonb;
    v_unknown text[];
    v_names text;
    v_field text;
BEGIN
    IF jsonb_typeof(p_job) <> 'object' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('job %s is not a JSON object', p_place);
    END IF;
    FOREACH v_field IN ARRAY ARRAY['requestKey', 'traceContext'] LOOP
        IF jsonb_typeof(p_job -> v_field) NOT IN ('object', 'null') THEN
            RAISE invalid_parameter_value
            USING MESSAGE = format('%s of job %s is not a JSON object', v_field, p_place);
        END IF;
    END LOOP;
    v_request := coalesce(nullif(p_job -> 'requestKey', 'null'), '{}');
    v_unknown := ARRAY(
        SELECT field FROM jsonb_object_keys(p_job) AS field
        WHERE field <> ALL (v_known) OR field LIKE '%.%'
        UNION ALL
        SELECT 'requestKey.' || field FROM jsonb_object_keys(v_request) AS field
        WHERE 'requestKey.' || field <> ALL (v_known)
        ORDER BY 1);
    IF v_unknown <> '{}' THEN
        -- Not too much, and nothing that would control a terminal.
        SELECT string_agg('"' || regexp_replace(
            left(field, 64), '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]', '?', 'g')
            || '"', ', ') INTO v_names
        FROM unnest(v_unknown[:20]) AS field;
        IF cardinality(v_unknown) > 20 THEN
            v_names := v_names || format(' and %s more', cardinality(v_unknown) - 20);
        END IF;
        RAISE NOTICE USING
            MESSAGE = format('job %s has members that are not known and were ignored: %s', p_place,
                             v_names),
            HINT = 'Known are ' || array_to_string(v_known, ', ') || '.';
        p_job := p_job - v_unknown;
    END IF;
    RETURN p_job || coalesce((
        SELECT jsonb_object_agg('requestKey.' || field.key, field.value)
        FROM jsonb_each(v_request) AS field WHERE 'requestKey.' || field.key = ANY (v_known)), '{}');
END
$$;

-- The `jobId` of an envelope is a key of its tenant, the id of the job is made here and returned.
-- `p_max_payload_bytes` NULL leaves the size of a payload to the caller, `p_admitted` the
-- admission: an application has checked it already, and may name the id of the job as `ownId`. One that knows no groups
-- names none: workers of its version would not find a job of a group.
CREATE OR REPLACE FUNCTION gantline.submit(
    p_jobs jsonb, p_now bigint DEFAULT NULL, p_max_payload_bytes integer DEFAULT 65536,
    p_admitted boolean DEFAULT false)
RETURNS TABLE (place bigint, outcome text, job_id uuid, by_kind text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.micros());
    v_job jsonb;
    v_place bigint;
    v_id uuid;
    v_external uuid;
    v_tenant text;
    v_queue text;
    v_type text;
    v_payload text;
    v_version integer;
    v_max_attempts integer;
    v_lane bigint;
    v_expires bigint;
    v_group text;
    v_has_request boolean;
    v_refusal text;
    v_wakes boolean := false;
BEGIN
    IF jsonb_typeof(p_jobs) = 'object' THEN
        p_jobs := jsonb_build_array(p_jobs);
    ELSIF jsonb_typeof(p_jobs) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = 'a job is a JSON object, many are an array of them';
    END IF;
    FOR v_job, v_place IN SELECT * FROM jsonb_array_elements(p_jobs) WITH ORDINALITY LOOP
        v_id := gen_random_uuid();
        IF p_admitted THEN
            v_id := coalesce((v_job ->> 'ownId')::uuid, v_id);
            v_job := v_job - 'ownId';
        END IF;
        v_job := gantline.known_fields(v_job, v_place);
        v_external := (v_job ->> 'jobId')::uuid;
        v_tenant := gantline.checked_name(v_job, v_place, 'tenantId', 128, 'default');
        v_type := gantline.checked_name(v_job, v_place, 'jobType', 128, NULL);
        v_queue := gantline.checked_name(v_job, v_place, 'queue', 128, 'default');
        v_payload := gantline.payload_text(v_job, v_place, p_max_payload_bytes);
        v_version := gantline.checked_number(v_job, v_place, 'payloadVersion', 1, 1, 2147483647);
        v_max_attempts := gantline.checked_number(v_job, v_place, 'maxAttempts', 3, 1, 1000);
        v_expires := gantline.micros_of(v_job ->> 'expiresAt');
        v_group := gantline.checked_name(v_job, v_place, 'group', 256, '');
        v_has_request := jsonb_typeof(v_job -> 'requestKey') = 'object';
        v_refusal := NULL;
        IF NOT p_admitted THEN
            PERFORM gantline.check_queue_and_time(v_job, v_place, v_queue, v_now);
            v_refusal := gantline.why_refused(v_type, v_queue, v_tenant, v_now);
        END IF;
        -- A job that was accepted before is not refused.
        IF v_refusal IS NOT NULL
           AND NOT EXISTS (SELECT FROM gantline.job WHERE id = v_external AND tenant = v_tenant)
           AND NOT EXISTS (
               SELECT FROM gantline.dedupe
               WHERE (until IS NULL OR until > v_now) AND (
                   (kind = 'job' AND tenant = v_tenant AND scope = v_type
                    AND key = v_job ->> 'idempotencyKey')
                   OR (kind = 'id' AND tenant = v_tenant AND scope = ''
                       AND key = replace(v_external::text, '-', ''))
                   OR (v_has_request AND kind = 'request'
                       AND tenant = coalesce(v_job ->> 'requestKey.tenantId', v_tenant)
                       AND scope = v_job ->> 'requestKey.scope'
                       AND key = v_job ->> 'requestKey.key'))) THEN
            RAISE object_not_in_prerequisite_state
            USING MESSAGE = v_refusal, HINT = 'Try again later.';
        END IF;
        SELECT id INTO v_lane FROM gantline.lane WHERE queue = v_queue AND job_type = v_type;
        IF NOT FOUND THEN
            INSERT INTO gantline.lane (queue, job_type) VALUES (v_queue, v_type)
            ON CONFLICT (queue, job_type) DO NOTHING;
            SELECT id INTO v_lane FROM gantline.lane WHERE queue = v_queue AND job_type = v_type;
        END IF;
        SELECT refused.outcome, refused.existing, refused.by_kind INTO outcome, job_id, by_kind
        FROM gantline.insert_jobs(
            v_now, NULL, ARRAY[v_id],
            ARRAY[v_tenant],
            ARRAY[v_lane],
            ARRAY[gantline.checked_name(v_job, v_place, 'subjectId', 512, '')],
            ARRAY[gantline.checked_name(v_job, v_place, 'correlationId', 256, '')],
            ARRAY[gantline.checked_name(v_job, v_place, 'idempotencyKey', 512, '')],
            ARRAY[coalesce(decode(v_job ->> 'fingerprint', 'hex'), sha256(convert_to(
                v_version || ':' || gantline.canonical(v_payload::jsonb), 'UTF8')))],
            ARRAY[gantline.checked_number(v_job, v_place, 'attempt', 1, 1, v_max_attempts)],
            ARRAY[v_max_attempts],
            ARRAY[convert_to(v_payload, 'UTF8')], ARRAY[v_version],
            ARRAY[gantline.checked_number(v_job, v_place, 'priority', 2, 0, 3)],
            ARRAY[coalesce(gantline.micros_of(v_job ->> 'createdAt'), v_now)],
            ARRAY[gantline.micros_of(v_job ->> 'scheduledAt')],
            ARRAY[coalesce(((v_job ->> 'delaySeconds')::numeric * 1000000)::bigint, 0)],
            ARRAY[gantline.checked_name(v_job, v_place, 'createdBy', 256, '')],
            ARRAY[(v_job ->> 'parentJobId')::uuid],
            ARRAY[nullif(v_job -> 'traceContext', 'null')::text],
            ARRAY[CASE WHEN v_has_request THEN
                gantline.checked_name(v_job, v_place, 'requestKey.tenantId', 128, v_tenant) END],
            ARRAY[CASE WHEN v_has_request THEN
                gantline.checked_name(v_job, v_place, 'requestKey.scope', 512, NULL) END],
            ARRAY[CASE WHEN v_has_request THEN
                gantline.checked_name(v_job, v_place, 'requestKey.key', 512, NULL) END],
            ARRAY[CASE WHEN v_has_request THEN
                coalesce(decode(v_job ->> 'requestKey.fingerprint', 'hex'), '') END],
            ARRAY[((v_job ->> 'requestKey.holdSeconds')::numeric * 1000000)::bigint],
            CASE WHEN (v_job ->> 'logged')::boolean THEN ARRAY[true] END,
            CASE WHEN v_external IS NOT NULL THEN ARRAY[v_external] END,
            CASE WHEN v_expires IS NOT NULL THEN ARRAY[v_expires] END,
            CASE WHEN (v_tenant <> 'default' OR v_group <> '')
                      AND (v_job ? 'group' OR NOT p_admitted) THEN ARRAY[v_group] END) AS refused;
        IF NOT FOUND THEN
            outcome := 'accepted';
            job_id := v_id;
            by_kind := NULL;
            v_wakes := true;
        END IF;
        place := v_place;
        RETURN NEXT;
    END LOOP;
    IF v_wakes THEN
        PERFORM pg_notify('gantline.wake', '');  -- goes out when the caller commits
    END IF;
END
$$;

-- For people: the state of every job, with readable instants.
CREATE OR REPLACE VIEW gantline.jobs AS
SELECT job.id, job.tenant, lane.queue, lane.job_type,
       CASE WHEN ready.job_id IS NOT NULL THEN 'Queued'
            WHEN lease.job_id IS NOT NULL THEN 'Running'
            ELSE last.status::text END AS status,
       coalesce(ready.attempt, lease.attempt, last.attempt) AS attempt, job.max_attempts,
       to_timestamp(job.created_at / 1000000.0) AS created_at,
       to_timestamp(ready.run_at / 1000000.0) AS run_at,
       to_timestamp(coalesce(lease.started_at, last.started_at) / 1000000.0) AS started_at,
       CASE WHEN last.is_end THEN to_timestamp(last.at / 1000000.0) END AS ended_at,
       last.reason, last.error_code, last.error_message, lease.session,
       job.subject, job.correlation, job.idempotency_key,
       convert_from(job.payload, 'UTF8') AS payload, job.external_id,
       to_timestamp(job.expires_at / 1000000.0) AS expires_at, job.group_name
FROM gantline.job
JOIN gantline.lane ON lane.id = job.lane
LEFT JOIN gantline.ready ON ready.job_id = job.id
LEFT JOIN gantline.lease ON lease.job_id = job.id
LEFT JOIN LATERAL (
    SELECT * FROM gantline.log
    WHERE log.job_id = job.id AND log.event NOT IN ('submitted', 'started', 'progressed')
    ORDER BY log.version DESC LIMIT 1
) AS last ON true;
