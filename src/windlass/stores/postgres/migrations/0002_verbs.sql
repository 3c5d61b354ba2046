-- The verbs that many items go through at once, one call each. As functions their plans are kept by
-- the server even where a pooler forbids prepared statements, and every step of one sees what was
-- committed before it.
-- A plan that is made while a table is empty must not read all of it once it is full. So every look-up
-- is a LATERAL one with OFFSET 0, which leaves the planner no choice of who is looked up in whom, or
-- goes by `= ANY (array)`; and the settings forbid the rest. Nothing is planned anew for every call, or
-- compiled because a LIMIT that the planner cannot know might be a million (0.36 s a claim).

-- Called stable, though clock_timestamp() is not: only then is it the bound of an index scan.
CREATE FUNCTION windlass.micros() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint
$$;

-- The same for a variable: as volatile as it is, it is no call at all (15 µs).
CREATE FUNCTION windlass.instant() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint
$$;

-- Adds a span; what would be past the last instant there is (of Python's datetime), is that instant.
CREATE FUNCTION windlass.later(at bigint, span bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(at::numeric + span::numeric, 253402300799999999::numeric)::bigint
$$;

-- Stores jobs and takes their keys; gives a row for each that it refuses. Ids and keys must differ
-- within a call. `p_logged` NULL: none of them is an event. `p_patience_ms` bounds how long somebody's open transaction is waited for.
CREATE FUNCTION windlass.insert_jobs(
    p_now bigint, p_patience_ms integer,
    p_id uuid[], p_tenant text[], p_lane bigint[], p_subject text[], p_correlation text[],
    p_idempotency_key text[], p_fingerprint bytea[], p_attempt integer[], p_max_attempts integer[],
    p_payload bytea[], p_payload_version integer[], p_priority integer[], p_created_at bigint[],
    p_scheduled_at bigint[], p_delay bigint[], p_created_by text[], p_parent uuid[],
    p_trace_context text[],
    p_request_tenant text[], p_request_scope text[], p_request_key text[],
    p_request_fingerprint bytea[], p_request_hold bigint[], p_logged boolean[])
RETURNS TABLE (place bigint, outcome text, existing uuid, by_kind text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, windlass.instant());
    v_is_keyed boolean := '' <> ANY (p_idempotency_key)
        OR array_length(array_remove(p_request_key, NULL), 1) IS NOT NULL;
    v_refused bigint[] := '{}';
    v_outcomes text[] := '{}';
    v_existing uuid[] := '{}';
    v_kinds text[] := '{}';
BEGIN
    IF p_patience_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', p_patience_ms::text, true);
    END IF;
    FOR v_round IN 1..10 LOOP
        -- A job without keys is seldom there already, so the first round does not look.
        IF v_is_keyed OR v_round > 1 THEN
            WITH input AS (
                SELECT i.*, lane.job_type
                FROM unnest(p_id, p_tenant, p_lane, p_fingerprint, p_idempotency_key,
                            p_request_tenant, p_request_scope, p_request_key, p_request_fingerprint)
                     WITH ORDINALITY AS i (id, tenant, lane, fingerprint, key, request_tenant,
                                           request_scope, request_key, request_fingerprint, place)
                JOIN windlass.lane ON lane.id = i.lane
            ), found AS (
                SELECT i.place, 0 AS rank, job.id AS existing, NULL AS kind,
                       (job.tenant, lane.job_type, job.fingerprint)
                       = (i.tenant, i.job_type, i.fingerprint) AS is_same
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM windlass.job WHERE job.id = i.id OFFSET 0) AS job
                CROSS JOIN LATERAL (
                    SELECT * FROM windlass.lane WHERE lane.id = job.lane OFFSET 0) AS lane
                UNION ALL
                SELECT i.place, 2, held.job_id, 'job', held.fingerprint = i.fingerprint
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM windlass.dedupe AS held
                    WHERE held.tenant = i.tenant AND held.scope = i.job_type AND held.key = i.key
                      AND held.kind = 'job' AND (held.until IS NULL OR held.until > v_now)
                    OFFSET 0) AS held
                WHERE i.key <> ''
                UNION ALL
                SELECT i.place, 1, held.job_id, 'request', held.fingerprint = i.request_fingerprint
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM windlass.dedupe AS held
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
                INSERT INTO windlass.job (
                    id, tenant, lane, subject, correlation, idempotency_key, fingerprint, attempt,
                    max_attempts, payload, payload_version, priority, created_at, scheduled_at,
                    created_by, parent, trace_context)
                SELECT i.id, i.tenant, i.lane, i.subject, i.correlation, i.key, i.fingerprint,
                       i.attempt, i.max_attempts, i.payload, i.payload_version, i.priority,
                       i.created_at,
                       CASE WHEN i.scheduled_at IS NOT NULL THEN i.scheduled_at
                            WHEN i.delay > 0 THEN windlass.later(v_now, i.delay) END,
                       i.created_by, i.parent, i.trace_context
                FROM unnest(p_id, p_tenant, p_lane, p_subject, p_correlation, p_idempotency_key,
                            p_fingerprint, p_attempt, p_max_attempts, p_payload, p_payload_version,
                            p_priority, p_created_at, p_scheduled_at, p_delay, p_created_by,
                            p_parent, p_trace_context)
                     WITH ORDINALITY AS i (
                         id, tenant, lane, subject, correlation, key, fingerprint, attempt,
                         max_attempts, payload, payload_version, priority, created_at, scheduled_at,
                         delay, created_by, parent, trace_context, place)
                WHERE v_refused = '{}' OR i.place <> ALL (v_refused)
                RETURNING id, tenant, lane, idempotency_key, attempt, priority, created_at,
                          scheduled_at
            ), queued AS (
                INSERT INTO windlass.ready (
                    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority,
                    keyed, job_id, tenant)
                SELECT lane, greatest(v_now, scheduled_at), 1, 0, created_at, attempt - 1, 0, 0,
                       priority, idempotency_key <> '', id, tenant
                FROM added
            )
            INSERT INTO windlass.tally_delta (
                lane, live, completed, failed, poisoned, cancelled, tenant)
            SELECT lane, count(*), 0, 0, 0, 0, tenant FROM added GROUP BY tenant, lane;
            IF v_is_keyed THEN
                PERFORM windlass.take_keys(v_now, array_agg(k.kind), array_agg(k.tenant),
                    array_agg(k.scope), array_agg(k.key), array_agg(k.id),
                    array_agg(k.fingerprint), array_agg(k.hold))
                FROM (
                    SELECT 'job' AS kind, i.tenant, lane.job_type AS scope, i.key, i.id,
                           i.fingerprint, NULL::bigint AS hold
                    FROM unnest(p_id, p_tenant, p_lane, p_idempotency_key, p_fingerprint)
                         WITH ORDINALITY AS i (id, tenant, lane, key, fingerprint, place)
                    JOIN windlass.lane ON lane.id = i.lane
                    WHERE i.key <> '' AND i.place <> ALL (v_refused)
                    UNION ALL
                    SELECT 'request', i.tenant, i.scope, i.key, i.id, i.fingerprint, i.hold
                    FROM unnest(p_id, p_request_tenant, p_request_scope, p_request_key,
                                p_request_fingerprint, p_request_hold)
                         WITH ORDINALITY AS i (id, tenant, scope, key, fingerprint, hold, place)
                    WHERE i.key IS NOT NULL AND i.place <> ALL (v_refused)
                ) AS k
                HAVING count(*) > 0;
            END IF;
            IF p_logged IS NOT NULL THEN
                INSERT INTO windlass.log (
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
            -- Somebody was faster; by now that is committed and the next look sees it. Not so under
            -- a caller's older snapshot: there the caller has to begin anew.
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

-- Gives keys to jobs; one that is held by another job is a unique violation. One by one and in the one
-- order in which keys are locked everywhere (tenant, scope, key, kind, by their bytes), so that two
-- callers with the same keys do not wait for each other.
CREATE FUNCTION windlass.take_keys(
    p_now bigint, p_kind text[], p_tenant text[], p_scope text[], p_key text[], p_job uuid[],
    p_fingerprint bytea[], p_hold bigint[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_taken bigint;
BEGIN
    INSERT INTO windlass.dedupe AS held (until, kind, job_id, tenant, scope, key, fingerprint)
    SELECT windlass.later(p_now, k.hold), k.kind::windlass.key_kind, k.job_id, k.tenant, k.scope,
           k.key, k.fingerprint
    FROM unnest(p_kind, p_tenant, p_scope, p_key, p_job, p_fingerprint, p_hold)
         AS k (kind, tenant, scope, key, job_id, fingerprint, hold)
    ORDER BY k.tenant COLLATE "C", k.scope COLLATE "C", k.key COLLATE "C", k.kind COLLATE "C"
    ON CONFLICT (tenant, scope, key, kind) DO UPDATE
    SET until = excluded.until, job_id = excluded.job_id, fingerprint = excluded.fingerprint
    WHERE held.until <= p_now;
    GET DIAGNOSTICS v_taken = ROW_COUNT;
    IF v_taken < cardinality(p_key) THEN
        RAISE unique_violation USING MESSAGE = 'a key is held by another job';
    END IF;
END
$$;

-- Starts runs of due jobs. A request is a queue with a limit; a range is a lane and a priority of it,
-- looked at from its floor on. First it is found out, without a lock, how much of each range comes
-- next; then that much of it is locked, passing over what others hold. The tokens are given, as many
-- as the limits allow, because making one here costs as much as writing the lease (1.6 µs). `p_logged`
-- are the lanes in which a start is an event; NULL for none.
CREATE FUNCTION windlass.claim_jobs(
    p_now bigint, p_session text, p_claim uuid, p_lease bigint, p_token uuid[], p_limit integer[],
    p_request integer[], p_lane bigint[], p_priority integer[], p_floor bigint[], p_floor_id uuid[],
    p_logged bigint[])
RETURNS TABLE (
    token uuid, fence bigint, session text, version bigint, attempt integer, crashes integer,
    snoozes integer, priority smallint, started_at bigint, until bigint, cancel_requested boolean,
    run_at bigint, lane bigint, id uuid, tenant text, subject text, correlation text,
    idempotency_key text, job_attempt integer, max_attempts integer, payload bytea,
    payload_version integer, job_priority smallint, created_at bigint, scheduled_at bigint,
    created_by text, parent uuid, trace_context text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_until bigint;
BEGIN
    -- The same claim twice at once: the second waits and finds what the first has started.
    PERFORM pg_advisory_xact_lock(hashtextextended(p_claim::text, 0));
    v_now := coalesce(p_now, windlass.instant());
    v_until := windlass.later(v_now, p_lease);
    IF EXISTS (SELECT FROM windlass.lease WHERE lease.claim_id = p_claim) THEN
        RETURN QUERY
        SELECT lease.token, lease.fence, lease.session, lease.version, lease.attempt, lease.crashes,
               lease.snoozes, lease.priority, lease.started_at, lease.until, lease.cancel_requested,
               lease.due_at, lease.lane, job.id, job.tenant, job.subject, job.correlation,
               job.idempotency_key, job.attempt, job.max_attempts, job.payload, job.payload_version,
               job.priority, job.created_at, job.scheduled_at, job.created_by, job.parent,
               job.trace_context
        FROM windlass.lease
        CROSS JOIN LATERAL (SELECT * FROM windlass.job WHERE job.id = lease.job_id OFFSET 0) AS job
        WHERE lease.claim_id = p_claim;
        RETURN;
    END IF;
    RETURN QUERY
    WITH wanted AS (
        SELECT w.*, p_limit[w.request] AS most
        FROM unnest(p_request, p_lane, p_priority, p_floor, p_floor_id)
             AS w (request, lane, priority, floor, floor_id)
    ), next AS (
        SELECT w.request, w.lane, w.priority, w.floor, w.floor_id, count(*) AS share
        FROM (
            SELECT w.*, row_number() OVER (
                       PARTITION BY w.request ORDER BY w.priority, due.run_at, due.job_id) AS place
            FROM wanted AS w CROSS JOIN LATERAL (
                SELECT ready.run_at, ready.job_id FROM windlass.ready
                WHERE ready.lane = w.lane AND ready.priority = w.priority
                  AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                  AND ready.run_at <= v_now
                ORDER BY ready.run_at, ready.job_id LIMIT w.most
            ) AS due
        ) AS w
        WHERE w.place <= w.most
        GROUP BY w.request, w.lane, w.priority, w.floor, w.floor_id
    ), picked AS (
        SELECT due.spot
        FROM next CROSS JOIN LATERAL (
            SELECT ready.ctid AS spot FROM windlass.ready
            WHERE ready.lane = next.lane AND ready.priority = next.priority
              AND (ready.run_at, ready.job_id) >= (next.floor, next.floor_id)
              AND ready.run_at <= v_now
            ORDER BY ready.run_at, ready.job_id LIMIT next.share
            FOR UPDATE SKIP LOCKED
        ) AS due
    ), taken AS (
        DELETE FROM windlass.ready WHERE ctid = ANY (ARRAY(SELECT spot FROM picked)) RETURNING *
    ), leased AS (
        INSERT INTO windlass.lease (
            lane, version, fence, created_at, due_at, started_at, until, attempt, crashes, snoozes,
            priority, keyed, job_id, token, claim_id, session, tenant)
        SELECT lane, version + 1, fence + 1, created_at, run_at, v_now, v_until,
               attempt + 1, crashes, snoozes, priority, keyed, job_id,
               p_token[row_number() OVER ()], p_claim, p_session, tenant
        FROM taken
        RETURNING *
    )
    SELECT leased.token, leased.fence, leased.session, leased.version, leased.attempt,
           leased.crashes, leased.snoozes, leased.priority, leased.started_at, leased.until, false,
           leased.due_at, leased.lane, job.id, job.tenant, job.subject, job.correlation,
           job.idempotency_key, job.attempt, job.max_attempts, job.payload, job.payload_version,
           job.priority, job.created_at, job.scheduled_at, job.created_by, job.parent,
           job.trace_context
    FROM leased
    CROSS JOIN LATERAL (SELECT * FROM windlass.job WHERE job.id = leased.job_id OFFSET 0) AS job;
    IF p_logged IS NOT NULL THEN
        INSERT INTO windlass.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor)
        SELECT version, lane, fence, started_at, created_at, started_at, 'started', 'Running', attempt,
               crashes, snoozes, priority, false, job_id, token, tenant, 'Started', session, ''
        FROM windlass.lease WHERE lease.claim_id = p_claim AND lease.lane = ANY (p_logged);
    END IF;
END
$$;

-- Completes runs that carry nothing beyond their job, if they are still the current ones; gives the
-- places and the new versions of those. What `settle_runs` would do as well, for a few arrays less:
-- nearly every run ends so. Jobs must differ within a call; the leases are locked in the order of their
-- ids, as the index gives them.
CREATE FUNCTION windlass.complete_runs(
    p_now bigint, p_job uuid[], p_token uuid[], p_hold bigint[], p_result bytea[],
    OUT places bigint[], OUT versions bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, windlass.instant());
    v_keyed uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM windlass.lease
        USING unnest(p_job, p_token, p_result) WITH ORDINALITY AS t (job_id, token, result, place)
        WHERE lease.job_id = ANY (p_job)
          AND lease.job_id = t.job_id AND lease.token = t.token
        RETURNING t.place, t.result, lease.job_id, lease.token, lease.lane,
                  lease.version + 1 AS new_version, lease.fence, lease.created_at,
                  lease.started_at, lease.attempt, lease.crashes, lease.snoozes, lease.priority,
                  lease.keyed, lease.session, lease.tenant
    ), logged AS (
        INSERT INTO windlass.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor, result)
        SELECT new_version, lane, fence, v_now, created_at, started_at, 'completed', 'Completed',
               attempt, crashes, snoozes, priority, true, job_id, token, tenant, 'Succeeded',
               session, '', result
        FROM gone
    ), counted AS (
        INSERT INTO windlass.tally_delta (
            lane, live, completed, failed, poisoned, cancelled, tenant)
        SELECT lane, -count(*), count(*), 0, 0, 0, tenant FROM gone GROUP BY tenant, lane
    )
    SELECT array_agg(place), array_agg(new_version), array_agg(job_id) FILTER (WHERE keyed)
    INTO places, versions, v_keyed FROM gone;
    IF v_keyed IS NOT NULL THEN
        PERFORM windlass.keep_or_free_keys(v_now, v_keyed, p_job, p_token, p_hold);
    END IF;
END
$$;

-- Ends runs that carry nothing beyond their job, if they are still the current ones; gives a row for
-- each that it ended. Jobs must differ within a call. A lapsed lease is not waited for: whoever has it
-- locked is about to end it. The leases are locked in the order of their ids, as the index gives them.
CREATE FUNCTION windlass.settle_runs(
    p_now bigint, p_job uuid[], p_token uuid[], p_unless_cancelled boolean[],
    p_only_expired boolean[], p_event text[], p_status text[], p_reason text[], p_attempt integer[],
    p_crashes integer[], p_snoozes integer[], p_priority integer[], p_delay bigint[],
    p_hold bigint[], p_error_code text[], p_error_message text[], p_error_detail text[],
    p_result bytea[], p_result_omitted text[])
RETURNS TABLE (place bigint, version bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, windlass.instant());
    v_keyed uuid[];
BEGIN
    IF true = ANY (p_only_expired) THEN
        p_token := windlass.tokens_unless_locked(p_job, p_token, p_only_expired, v_now);
    END IF;
    v_keyed := ARRAY(
        SELECT lease.job_id FROM windlass.lease WHERE lease.job_id = ANY (p_job) AND lease.keyed);
    RETURN QUERY
    WITH gone AS (
        DELETE FROM windlass.lease
        USING unnest(p_job, p_token, p_unless_cancelled, p_only_expired, p_event, p_status,
                     p_reason, p_attempt, p_crashes, p_snoozes, p_priority, p_delay, p_hold,
                     p_error_code, p_error_message, p_error_detail, p_result, p_result_omitted)
              WITH ORDINALITY AS t (
                  job_id, token, unless_cancelled, only_expired, event, status, reason, attempt,
                  crashes, snoozes, priority, delay, hold, error_code, error_message, error_detail,
                  result, result_omitted, place)
        WHERE lease.job_id = ANY (p_job)
          AND lease.job_id = t.job_id AND lease.token = t.token
          AND NOT (t.unless_cancelled AND lease.cancel_requested)
          AND (NOT t.only_expired OR lease.until <= v_now)
        RETURNING t.*, lease.lane, lease.version + 1 AS new_version, lease.fence, lease.created_at,
                  lease.started_at, lease.keyed, lease.session, lease.tenant
    ), logged AS (
        INSERT INTO windlass.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor,
            error_code, error_message, error_detail, result, result_omitted)
        SELECT new_version, lane, fence, v_now, created_at, started_at, event::windlass.job_event,
               status::windlass.job_status, attempt, crashes, snoozes, priority, status <> 'Queued',
               job_id, token, tenant, reason, session, '', error_code, error_message, error_detail,
               result, result_omitted
        FROM gone
    ), queued AS (
        INSERT INTO windlass.ready (
            lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority, keyed,
            job_id, tenant)
        SELECT lane, windlass.later(v_now, delay), new_version, fence, created_at, attempt, crashes,
               snoozes, priority, keyed, job_id, tenant
        FROM gone WHERE status = 'Queued'
    ), counted AS (
        INSERT INTO windlass.tally_delta (
            lane, live, completed, failed, poisoned, cancelled, tenant)
        SELECT lane, -count(*), count(*) FILTER (WHERE status = 'Completed'),
               count(*) FILTER (WHERE status = 'Failed'),
               count(*) FILTER (WHERE status = 'Poisoned'),
               count(*) FILTER (WHERE status = 'Cancelled'), tenant
        FROM gone WHERE status <> 'Queued' GROUP BY tenant, lane
    )
    SELECT gone.place, gone.new_version FROM gone;
    IF v_keyed <> '{}' THEN
        PERFORM windlass.keep_or_free_keys(v_now, v_keyed, p_job, p_token, p_hold);
    END IF;
END
$$;

-- The tokens, with NULL for those whose lapsed lease somebody has locked: no run has that.
CREATE FUNCTION windlass.tokens_unless_locked(
    p_job uuid[], p_token uuid[], p_only_expired boolean[], p_now bigint)
RETURNS uuid[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(
        SELECT CASE WHEN NOT t.only_expired OR free.is_free THEN t.token END
        FROM unnest(p_job, p_token, p_only_expired) WITH ORDINALITY
             AS t (job_id, token, only_expired, place)
        LEFT JOIN LATERAL (
            SELECT true AS is_free FROM windlass.lease
            WHERE lease.job_id = t.job_id AND t.only_expired
            OFFSET 0 FOR UPDATE SKIP LOCKED
        ) AS free ON true
        ORDER BY t.place);
END
$$;

-- What becomes of the keys of jobs whose run has just been ended by these tokens: held for a while by
-- a completed one, freed by one that ended otherwise, untouched by one that runs again.
CREATE FUNCTION windlass.keep_or_free_keys(
    p_now bigint, p_keyed uuid[], p_job uuid[], p_token uuid[], p_hold bigint[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_key record;
BEGIN
    FOR v_key IN
        SELECT job.tenant, lane.job_type, job.idempotency_key AS key, t.job_id, t.hold,
               ended.status = 'Completed' AS is_completed
        FROM unnest(p_job, p_token, p_hold) AS t (job_id, token, hold)
        CROSS JOIN LATERAL (
            SELECT log.status FROM windlass.log
            WHERE log.job_id = t.job_id AND log.change_id = t.token AND log.is_end
            OFFSET 0) AS ended
        CROSS JOIN LATERAL (SELECT * FROM windlass.job WHERE job.id = t.job_id OFFSET 0) AS job
        CROSS JOIN LATERAL (SELECT * FROM windlass.lane WHERE lane.id = job.lane OFFSET 0) AS lane
        WHERE t.job_id = ANY (p_keyed)
        ORDER BY job.tenant COLLATE "C", lane.job_type COLLATE "C",
                 job.idempotency_key COLLATE "C"  -- as take_keys does
    LOOP
        IF v_key.is_completed THEN
            UPDATE windlass.dedupe AS held SET until = windlass.later(p_now, v_key.hold)
            WHERE held.tenant = v_key.tenant AND held.scope = v_key.job_type
              AND held.key = v_key.key AND held.kind = 'job' AND held.job_id = v_key.job_id;
        ELSE
            DELETE FROM windlass.dedupe AS held
            WHERE held.tenant = v_key.tenant AND held.scope = v_key.job_type
              AND held.key = v_key.key AND held.kind = 'job' AND held.job_id = v_key.job_id;
        END IF;
    END LOOP;
END
$$;

-- Numbers log rows that have been committed; gives how many. See event_batch and event_gap.
-- Every log row is written after its transaction has changed something else, so whoever took an id
-- had its transaction number before: no id that is missed now can come from a later transaction.
CREATE FUNCTION windlass.sequence_events(p_limit integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_last bigint;
    v_high bigint;
    v_oldest xid8;
    v_late bigint[];
    v_new bigint[];
    v_all bigint[];
BEGIN
    SELECT last, high INTO v_last, v_high FROM windlass.event_cursor WHERE only_row = 1 FOR UPDATE;
    -- Our number was handed out after the call that missed these ids was over, so it is above those
    -- of all who can have taken them. (A snapshot's xmax is not: it knows only what has ended.)
    UPDATE windlass.event_gap SET watched_until = pg_current_xact_id() WHERE watched_until IS NULL;
    -- Before the look: whatever was over by now, the look sees.
    v_oldest := pg_snapshot_xmin(pg_current_snapshot());
    -- One look for both: two could number a job's later row before its earlier one.
    SELECT coalesce(array_agg(seen.id ORDER BY seen.id) FILTER (WHERE seen.is_late), '{}'),
           coalesce(array_agg(seen.id ORDER BY seen.id) FILTER (WHERE NOT seen.is_late), '{}')
    INTO v_late, v_new
    FROM (
        (SELECT gap.log_id AS id, true AS is_late
         FROM windlass.event_gap AS gap
         CROSS JOIN LATERAL (
             SELECT FROM windlass.log WHERE log.id = gap.log_id OFFSET 0) AS found
         ORDER BY gap.log_id LIMIT p_limit)
        UNION ALL
        (SELECT log.id, false FROM windlass.log WHERE log.id > v_high ORDER BY log.id LIMIT p_limit)
    ) AS seen;
    v_new := v_new[1:p_limit - cardinality(v_late)];
    DELETE FROM windlass.event_gap AS gap
    WHERE gap.log_id = ANY (v_late)
       OR (gap.watched_until <= v_oldest
           AND NOT EXISTS (SELECT FROM windlass.log WHERE log.id = gap.log_id));
    v_all := v_late || v_new;
    IF v_all = '{}' THEN
        RETURN 0;
    END IF;
    IF v_new <> '{}' THEN
        INSERT INTO windlass.event_gap (log_id)
        SELECT missing FROM (
            SELECT generate_series(v_high + 1, v_new[cardinality(v_new)]) EXCEPT SELECT unnest(v_new)
        ) AS skipped (missing);
        v_high := v_new[cardinality(v_new)];
    END IF;
    INSERT INTO windlass.event_batch (last, first, log_ids)
    VALUES (v_last + cardinality(v_all), v_last + 1, v_all);
    UPDATE windlass.event_cursor SET last = v_last + cardinality(v_all), high = v_high
    WHERE only_row = 1;
    RETURN cardinality(v_all);
END
$$;

-- Adds up what was counted since the last time, a bounded number of rows.
CREATE FUNCTION windlass.fold_tally(p_limit integer) RETURNS void LANGUAGE sql AS $$
    WITH moved AS (
        DELETE FROM windlass.tally_delta
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM windlass.tally_delta LIMIT p_limit FOR UPDATE SKIP LOCKED))
        RETURNING *
    )
    INSERT INTO windlass.tally AS sum (
        tenant, lane, live, completed, failed, poisoned, cancelled)
    SELECT tenant, lane, sum(live), sum(completed), sum(failed), sum(poisoned), sum(cancelled)
    FROM moved GROUP BY tenant, lane ORDER BY tenant, lane
    ON CONFLICT (tenant, lane) DO UPDATE SET
        live = sum.live + excluded.live, completed = sum.completed + excluded.completed,
        failed = sum.failed + excluded.failed, poisoned = sum.poisoned + excluded.poisoned,
        cancelled = sum.cancelled + excluded.cancelled
$$;
