-- Works with code of migration 6.
-- When a job expires: if no run of it has begun by then, none begins. In `ready` only while it waits as it
-- was submitted, so that the index holds nothing else, and nothing of most jobs.

ALTER TABLE gantline.job ADD COLUMN expires_at bigint
    CHECK (expires_at BETWEEN -62135596800000000 AND 253402300799999999);
ALTER TABLE gantline.ready ADD COLUMN expires_at bigint
    CHECK (expires_at IS NULL OR version = 1);

CREATE INDEX ready_expiring ON gantline.ready (expires_at, job_id) WHERE expires_at IS NOT NULL;

-- The functions that store a job and read it for a run, with one column more.
DROP FUNCTION gantline.insert_jobs;
DROP FUNCTION gantline.claim_jobs;

-- Stores jobs and takes their keys; gives a row for each that it refuses. Ids and keys must differ
-- within a call. `p_logged` NULL: none of them is an event; `p_external` NULL: none of them came with an id
-- from outside; `p_expires` NULL: none of them expires. `p_patience_ms` bounds the wait for an open transaction of others.
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
RETURNS TABLE (place bigint, outcome text, existing uuid, by_kind text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
    v_is_keyed boolean := '' <> ANY (p_idempotency_key) OR p_external IS NOT NULL
        OR array_length(array_remove(p_request_key, NULL), 1) IS NOT NULL;
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
                    created_by, parent, trace_context, external_id, expires_at)
                SELECT i.id, i.tenant, i.lane, i.subject, i.correlation, i.key, i.fingerprint,
                       i.attempt, i.max_attempts, i.payload, i.payload_version, i.priority,
                       i.created_at,
                       CASE WHEN i.scheduled_at IS NOT NULL THEN i.scheduled_at
                            WHEN i.delay > 0 THEN gantline.later(v_now, i.delay) END,
                       i.created_by, i.parent, i.trace_context, i.external_id, i.expires_at
                FROM unnest(p_id, p_tenant, p_lane, p_subject, p_correlation, p_idempotency_key,
                            p_fingerprint, p_attempt, p_max_attempts, p_payload, p_payload_version,
                            p_priority, p_created_at, p_scheduled_at, p_delay, p_created_by,
                            p_parent, p_trace_context, p_external, p_expires)
                     WITH ORDINALITY AS i (
                         id, tenant, lane, subject, correlation, key, fingerprint, attempt,
                         max_attempts, payload, payload_version, priority, created_at, scheduled_at,
                         delay, created_by, parent, trace_context, external_id, expires_at, place)
                WHERE v_refused = '{}' OR i.place <> ALL (v_refused)
                RETURNING id, tenant, lane, idempotency_key, attempt, priority, created_at,
                          scheduled_at, expires_at
            ), queued AS (
                INSERT INTO gantline.ready (
                    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority,
                    keyed, job_id, tenant, expires_at)
                SELECT lane, greatest(v_now, scheduled_at), 1, 0, created_at, attempt - 1, 0, 0,
                       priority, idempotency_key <> '', id, tenant, expires_at
                FROM added
            )
            INSERT INTO gantline.tally_delta (
                lane, live, completed, failed, poisoned, cancelled, tenant)
            SELECT lane, count(*), 0, 0, 0, 0, tenant FROM added GROUP BY tenant, lane;
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

-- Starts runs of due jobs. A request is a queue with a limit; a range is a lane and a rank of it,
-- searched from its floor on. First it finds, without a lock, how many rows of each range come next;
-- then it locks so many, skipping those that others have locked. The tokens are given, as many
-- as the limits allow, because making one here costs as much as writing the lease (1.6 µs). `p_at_most`
-- is, for each range, how many jobs of its lane may be taken, NULL for any number; the whole of it is
-- NULL where no lane is limited. `p_logged` are the lanes in which a start is an event; NULL for none.
-- A run whose job was removed by hand has NULLs instead of the job.
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
               job.trace_context, job.external_id, job.expires_at
        FROM gantline.lease
        LEFT JOIN LATERAL (
            SELECT * FROM gantline.job WHERE job.id = lease.job_id OFFSET 0) AS job ON true
        WHERE lease.claim_id = p_claim;
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
            FROM unnest(p_request, p_lane, p_rank, p_floor, p_floor_id, p_at_most) WITH ORDINALITY
                 AS w (request, lane, rank, floor, floor_id, at_most, place)
            LEFT JOIN LATERAL (
                SELECT count(*) AS jobs FROM (
                    SELECT FROM gantline.ready
                    WHERE ready.lane = w.lane AND ready.rank = w.rank
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
        FROM unnest(p_request, p_lane, p_rank, p_floor, p_floor_id, p_at_most)
             AS w (request, lane, rank, floor, floor_id, at_most)
    ), next AS (
        SELECT w.request, w.lane, w.rank, w.floor, w.floor_id, count(*) AS share
        FROM (
            SELECT w.*, row_number() OVER (
                       PARTITION BY w.request ORDER BY w.rank, due.run_at, due.job_id) AS place
            FROM wanted AS w CROSS JOIN LATERAL (
                SELECT ready.run_at, ready.job_id FROM gantline.ready
                WHERE ready.lane = w.lane AND ready.rank = w.rank
                  AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id)
                  AND ready.run_at <= v_now
                ORDER BY ready.run_at, ready.job_id LIMIT least(w.most, w.at_most)
            ) AS due
        ) AS w
        WHERE w.place <= w.most
        GROUP BY w.request, w.lane, w.rank, w.floor, w.floor_id
    ), picked AS (
        SELECT due.spot
        FROM next CROSS JOIN LATERAL (
            SELECT ready.ctid AS spot FROM gantline.ready
            WHERE ready.lane = next.lane AND ready.rank = next.rank
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
            snoozes, priority, keyed, job_id, token, claim_id, session, tenant)
        SELECT lane, version + 1, fence + 1, created_at, run_at, v_now, v_until, p_lease,
               attempt + 1, crashes, snoozes, priority, keyed, job_id,
               p_token[row_number() OVER ()], p_claim, p_session, tenant
        FROM taken
        RETURNING *
    )
    SELECT leased.token, leased.fence, leased.session, leased.version, leased.attempt,
           leased.crashes, leased.snoozes, leased.priority, leased.started_at, leased.until, false,
           leased.due_at, leased.lane, leased.job_id, job.tenant, job.subject, job.correlation,
           job.idempotency_key, job.attempt, job.max_attempts, job.payload, job.payload_version,
           job.priority, job.created_at, job.scheduled_at, job.created_by, job.parent,
           job.trace_context, job.external_id, job.expires_at
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

-- An envelope with the fields of its objects beside its own, without those that are not known.
CREATE OR REPLACE FUNCTION gantline.known_fields(p_job jsonb, p_place bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_known text[] := ARRAY[
        'attempt', 'correlationId', 'createdAt', 'createdBy', 'delaySeconds', 'expiresAt',
        'fingerprint', 'idempotencyKey', 'jobId', 'jobType', 'logged', 'maxAttempts', 'parentJobId',
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

-- The queues of Gantline's own jobs are for these alone, nothing waits for more than ten years, nothing was
-- created tomorrow, and nothing expires before it is due.
CREATE OR REPLACE FUNCTION gantline.check_queue_and_time(
    p_job jsonb, p_place bigint, p_queue text, p_now bigint)
RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_most_seconds numeric := 3650 * 86400;
    v_field text;
    v_created bigint := coalesce(gantline.micros_of(p_job ->> 'createdAt'), p_now);
    v_expires bigint := gantline.micros_of(p_job ->> 'expiresAt');
BEGIN
    IF p_queue = 'webhooks' OR p_queue ~ '^gantline[.]' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('queue of job %s is one of Gantline''s own', p_place),
            HINT = 'Name another one.';
    ELSIF gantline.micros_of(p_job ->> 'createdAt') - p_now > 86400 * 1000000::bigint THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('createdAt of job %s is in the future', p_place);
    END IF;
    v_field := CASE
        WHEN (p_job ->> 'delaySeconds')::numeric > v_most_seconds THEN 'delaySeconds'
        WHEN gantline.micros_of(p_job ->> 'scheduledAt')
            - least(gantline.micros_of(p_job ->> 'createdAt'), p_now) > v_most_seconds * 1000000
            THEN 'scheduledAt'
        WHEN v_expires - v_created > v_most_seconds * 1000000 THEN 'expiresAt' END;
    IF v_field IS NOT NULL THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('%s of job %s is more than 3650 days ahead', v_field, p_place);
    ELSIF v_expires <= greatest(
        v_created, gantline.micros_of(p_job ->> 'scheduledAt'),
        v_created + ((p_job ->> 'delaySeconds')::numeric * 1000000)::bigint) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('expiresAt of job %s is not after it is first due', p_place),
            HINT = 'Let it expire later, or be due sooner.';
    END IF;
END
$$;

-- The `jobId` of an envelope is a key of its tenant, the id of the job is made here and returned.
-- `p_max_payload_bytes` NULL leaves the size of a payload to the caller, `p_admitted` the
-- admission: an application has checked it already, and may name the id of the job as `ownId`.
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
            CASE WHEN v_expires IS NOT NULL THEN ARRAY[v_expires] END) AS refused;
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
       to_timestamp(job.expires_at / 1000000.0) AS expires_at
FROM gantline.job
JOIN gantline.lane ON lane.id = job.lane
LEFT JOIN gantline.ready ON ready.job_id = job.id
LEFT JOIN gantline.lease ON lease.job_id = job.id
LEFT JOIN LATERAL (
    SELECT * FROM gantline.log
    WHERE log.job_id = job.id AND log.event NOT IN ('submitted', 'started', 'progressed')
    ORDER BY log.version DESC LIMIT 1
) AS last ON true;
