-- Works with code of migration 1.
-- The whole schema: tables, then the verbs as functions, then submitting from SQL.

-- The tables. Jobs are inserted and never updated. The status of a job follows from the one table it is
-- in: ready (Queued), lease (Running) or the log row marked is_end (ended). Instants are microseconds
-- since 1970; the view gantline.jobs shows them to people.

CREATE TYPE gantline.job_status AS ENUM (
    'Queued', 'Running', 'Completed', 'Failed', 'Poisoned', 'Cancelled');
CREATE TYPE gantline.job_event AS ENUM (
    'completed', 'failed', 'retried', 'poisoned', 'cancelled', 'snoozed', 'released', 'crashed',
    'cancel_requested', 'redriven', 'submitted', 'started', 'progressed');
CREATE TYPE gantline.key_kind AS ENUM ('job', 'request', 'once');

CREATE TABLE gantline.lane (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    text NOT NULL CHECK (queue <> ''),
    job_type text NOT NULL CHECK (job_type <> ''),
    UNIQUE (queue, job_type)
);

-- Rows that retention removes make room for new ones, so these tables are vacuumed early, and ten times
-- as fast as by default. After a fraction of the table, because each time all indexes are read.
CREATE TABLE gantline.job (
    lane            bigint NOT NULL,
    -- Instants that every client can read: the years 1 to 9999.
    created_at      bigint NOT NULL
                    CHECK (created_at BETWEEN -62135596800000000 AND 253402300799999999),
    scheduled_at    bigint
                    CHECK (scheduled_at BETWEEN -62135596800000000 AND 253402300799999999),
    attempt         integer NOT NULL CHECK (attempt >= 1),
    max_attempts    integer NOT NULL CHECK (max_attempts >= attempt),
    payload_version integer NOT NULL CHECK (payload_version >= 1),
    priority        smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    id              uuid PRIMARY KEY,
    parent          uuid,
    tenant          text NOT NULL CHECK (tenant <> ''),
    subject         text NOT NULL,
    correlation     text NOT NULL,
    idempotency_key text NOT NULL,
    created_by      text NOT NULL,
    trace_context   text,
    fingerprint     bytea NOT NULL,
    payload         bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX job_by_tenant ON gantline.job (tenant, created_at, id);
CREATE INDEX job_by_owner ON gantline.job (tenant, created_by, created_at, id) WHERE created_by <> '';
CREATE INDEX job_by_subject ON gantline.job (tenant, subject, created_at, id) WHERE subject <> '';

-- One range per (lane, rank): what is paused, of another type, a suspect or not yet due is never read.
-- The rank is that of gantline.contract: the priority, plus 4 for each crash from the second on.
-- Generated here, it always agrees with its columns.
-- The hot tables are small and change all the time, so they are vacuumed early and without pauses.
CREATE TABLE gantline.ready (
    lane       bigint NOT NULL,
    run_at     bigint NOT NULL,
    version    bigint NOT NULL CHECK (version >= 1),
    fence      bigint NOT NULL CHECK (fence >= 0),
    created_at bigint NOT NULL,
    attempt    integer NOT NULL CHECK (attempt >= 0),
    crashes    integer NOT NULL CHECK (crashes >= 0),
    snoozes    integer NOT NULL CHECK (snoozes >= 0),
    priority   smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    rank       smallint NOT NULL
               GENERATED ALWAYS AS (priority + 4 * greatest(0, least(crashes, 9) - 1)) STORED,
    keyed      boolean NOT NULL,
    job_id     uuid NOT NULL,
    tenant     text NOT NULL,
    PRIMARY KEY (lane, rank, run_at, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX ready_by_job ON gantline.ready (job_id);
CREATE INDEX ready_by_tenant ON gantline.ready (tenant, created_at, job_id);
-- Mostly empty, so that searching for suspects costs nothing.
CREATE INDEX ready_suspects ON gantline.ready (rank, lane, run_at, job_id) WHERE rank >= 4;

-- `until` is in no index, so that a renewal rewrites the row within its page (HOT). `length` is what
-- the lease was given for: it ends at `until`, or sooner where the clock has been set back.
CREATE TABLE gantline.lease (
    lane             bigint NOT NULL,
    version          bigint NOT NULL CHECK (version >= 1),
    fence            bigint NOT NULL CHECK (fence >= 1),
    created_at       bigint NOT NULL,
    due_at           bigint NOT NULL,
    started_at       bigint NOT NULL,
    until            bigint NOT NULL,
    length           bigint NOT NULL,
    percent          double precision NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
    attempt          integer NOT NULL CHECK (attempt >= 1),
    crashes          integer NOT NULL CHECK (crashes >= 0),
    snoozes          integer NOT NULL CHECK (snoozes >= 0),
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    keyed            boolean NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    job_id           uuid PRIMARY KEY,
    token            uuid NOT NULL,
    claim_id         uuid NOT NULL,
    session          text NOT NULL,
    tenant           text NOT NULL,
    phase            text NOT NULL DEFAULT ''
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX lease_by_claim ON gantline.lease (claim_id);

-- History, outcome and outbox in one. `id` is given before the commit, so consumers cannot
-- read in its order: see event_batch.
CREATE TABLE gantline.log (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version        bigint NOT NULL CHECK (version >= 1),
    lane           bigint NOT NULL,
    fence          bigint NOT NULL CHECK (fence >= 0),
    at             bigint NOT NULL,
    created_at     bigint NOT NULL,
    started_at     bigint,
    event          gantline.job_event NOT NULL,
    status         gantline.job_status NOT NULL,
    attempt        integer NOT NULL CHECK (attempt >= 0),
    crashes        integer NOT NULL CHECK (crashes >= 0),
    snoozes        integer NOT NULL CHECK (snoozes >= 0),
    priority       smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    is_end         boolean NOT NULL,
    percent        double precision CHECK (percent BETWEEN 0 AND 100),
    job_id         uuid NOT NULL,
    change_id      uuid NOT NULL,
    tenant         text NOT NULL,
    reason         text NOT NULL,
    session        text NOT NULL,
    actor          text NOT NULL,
    error_code     text,
    error_message  text,
    error_detail   text,
    result         bytea,
    result_omitted text,
    phase          text,
    CHECK (NOT is_end OR status NOT IN ('Queued', 'Running')),
    CHECK ((error_code IS NULL) = (error_message IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_limit = 2000);

CREATE UNIQUE INDEX log_by_job ON gantline.log (job_id, version);
CREATE UNIQUE INDEX log_end ON gantline.log (tenant, status, created_at, job_id) WHERE is_end;
CREATE INDEX log_to_prune ON gantline.log (status, at) WHERE is_end;

-- The order in which consumers read. The sequencer gives the next numbers to the rows that it can see:
-- the n-th id of a batch has the number first + n - 1. Eight bytes an event instead of an update.
CREATE TABLE gantline.event_batch (
    last    bigint PRIMARY KEY,
    first   bigint NOT NULL,
    log_ids bigint[] NOT NULL,
    CHECK (last = first + cardinality(log_ids) - 1)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_limit = 2000);

-- How far the sequencer has read. A missing id below `high` is either not yet committed or was rolled
-- back. When no transaction from the time when it was missed is left (all before `watched_until`, which
-- the next call sets), it was rolled back.
CREATE TABLE gantline.event_cursor (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    last     bigint NOT NULL,
    high     bigint NOT NULL
);
INSERT INTO gantline.event_cursor VALUES (1, 0, 0);

CREATE TABLE gantline.event_gap (
    log_id        bigint PRIMARY KEY,
    watched_until xid8
);

CREATE TABLE gantline.dedupe (
    until       bigint,
    kind        gantline.key_kind NOT NULL,
    job_id      uuid NOT NULL,
    tenant      text NOT NULL,
    scope       text NOT NULL,
    key         text NOT NULL CHECK (key <> ''),
    fingerprint bytea NOT NULL,
    PRIMARY KEY (tenant, scope, key, kind)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_cost_limit = 2000);

CREATE INDEX dedupe_by_end ON gantline.dedupe (until) WHERE until IS NOT NULL;
CREATE INDEX dedupe_of_request ON gantline.dedupe (job_id) WHERE kind = 'request';

-- How many jobs are in which lane: the sum of tally and of what was added since it was last folded. Running
-- jobs are counted in lease itself, so `live` is Queued and Running together and a claim adds nothing.
CREATE TABLE gantline.tally (
    lane      bigint NOT NULL,
    live      bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    poisoned  bigint NOT NULL,
    cancelled bigint NOT NULL,
    tenant    text NOT NULL,
    PRIMARY KEY (tenant, lane)
);

CREATE TABLE gantline.tally_delta (
    lane      bigint NOT NULL,
    live      integer NOT NULL,
    completed integer NOT NULL,
    failed    integer NOT NULL,
    poisoned  integer NOT NULL,
    cancelled integer NOT NULL,
    tenant    text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- An identity: a version that a deleted or expired record had is never used again.
CREATE TABLE gantline.record (
    version    bigint GENERATED ALWAYS AS IDENTITY,
    expires_at bigint,
    replaced   bigint NOT NULL CHECK (replaced BETWEEN 0 AND version - 1),
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      bytea NOT NULL,
    PRIMARY KEY (namespace, key)
);

CREATE INDEX record_by_end ON gantline.record (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE gantline.leader (
    term  bigint NOT NULL CHECK (term >= 1),
    until bigint NOT NULL,
    role  text PRIMARY KEY,
    owner text NOT NULL
);

-- The verbs that many items go through at once, one call each. As functions their plans are kept by
-- the server even where a pooler forbids prepared statements, and every step of one sees what was
-- committed before it.
-- A plan that is made while a table is empty must not read all of it once it is full. So every look-up
-- is a LATERAL one with OFFSET 0, which fixes the order of the join, or uses `= ANY (array)`; and the
-- settings forbid the rest. Nothing is planned again for every call, or
-- compiled because a LIMIT that the planner cannot know might be a million (0.36 s a claim).

-- Declared stable, though clock_timestamp() is not: only then can it bound an index scan.
CREATE FUNCTION gantline.micros() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint
$$;

-- The same for a variable: declared volatile, it is inlined (saves 15 µs).
CREATE FUNCTION gantline.instant() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000::numeric)::bigint
$$;

-- Adds a span; the result is at most the last instant of Python's datetime.
CREATE FUNCTION gantline.later(at bigint, span bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(at::numeric + span::numeric, 253402300799999999::numeric)::bigint
$$;

-- Stores jobs and takes their keys; gives a row for each that it refuses. Ids and keys must differ
-- within a call. `p_logged` NULL: none of them is an event. `p_patience_ms` bounds the wait for an open transaction of others.
CREATE FUNCTION gantline.insert_jobs(
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
    v_now bigint := coalesce(p_now, gantline.instant());
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
        -- A job without keys rarely exists already, so the first round does not check.
        IF v_is_keyed OR v_round > 1 THEN
            WITH input AS (
                SELECT i.*, lane.job_type
                FROM unnest(p_id, p_tenant, p_lane, p_fingerprint, p_idempotency_key,
                            p_request_tenant, p_request_scope, p_request_key, p_request_fingerprint)
                     WITH ORDINALITY AS i (id, tenant, lane, fingerprint, key, request_tenant,
                                           request_scope, request_key, request_fingerprint, place)
                JOIN gantline.lane ON lane.id = i.lane
            ), found AS (
                SELECT i.place, 0 AS rank, job.id AS existing, NULL AS kind,
                       (job.tenant, lane.job_type, job.fingerprint)
                       = (i.tenant, i.job_type, i.fingerprint) AS is_same
                FROM input AS i
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.job WHERE job.id = i.id OFFSET 0) AS job
                CROSS JOIN LATERAL (
                    SELECT * FROM gantline.lane WHERE lane.id = job.lane OFFSET 0) AS lane
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
                    created_by, parent, trace_context)
                SELECT i.id, i.tenant, i.lane, i.subject, i.correlation, i.key, i.fingerprint,
                       i.attempt, i.max_attempts, i.payload, i.payload_version, i.priority,
                       i.created_at,
                       CASE WHEN i.scheduled_at IS NOT NULL THEN i.scheduled_at
                            WHEN i.delay > 0 THEN gantline.later(v_now, i.delay) END,
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
                INSERT INTO gantline.ready (
                    lane, run_at, version, fence, created_at, attempt, crashes, snoozes, priority,
                    keyed, job_id, tenant)
                SELECT lane, greatest(v_now, scheduled_at), 1, 0, created_at, attempt - 1, 0, 0,
                       priority, idempotency_key <> '', id, tenant
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

-- Gives keys to jobs; one that is held by another job is a unique violation. One by one and in the one
-- order in which keys are locked everywhere (tenant, scope, key, kind, by their bytes), so that two
-- callers with the same keys do not wait for each other.
CREATE FUNCTION gantline.take_keys(
    p_now bigint, p_kind text[], p_tenant text[], p_scope text[], p_key text[], p_job uuid[],
    p_fingerprint bytea[], p_hold bigint[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_taken bigint;
BEGIN
    INSERT INTO gantline.dedupe AS held (until, kind, job_id, tenant, scope, key, fingerprint)
    SELECT gantline.later(p_now, k.hold), k.kind::gantline.key_kind, k.job_id, k.tenant, k.scope,
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
    created_by text, parent uuid, trace_context text)
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
               job.trace_context
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
           job.trace_context
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

-- The ranges in which suspects are due. It reads the first row of each and goes to the next range: one
-- step where there are no suspects, however many jobs are Queued.
CREATE FUNCTION gantline.due_suspects(p_now bigint)
RETURNS TABLE (lane bigint, rank smallint) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_sort = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
BEGIN
    RETURN QUERY
    WITH RECURSIVE head AS (
        (SELECT rank, lane, run_at FROM gantline.ready
         WHERE rank >= 4 ORDER BY rank, lane, run_at LIMIT 1)
        UNION ALL
        SELECT next.rank, next.lane, next.run_at
        FROM head CROSS JOIN LATERAL (
            SELECT ready.rank, ready.lane, ready.run_at FROM gantline.ready
            WHERE ready.rank >= 4 AND (ready.rank, ready.lane) > (head.rank, head.lane)
            ORDER BY ready.rank, ready.lane, ready.run_at LIMIT 1
        ) AS next
    )
    SELECT head.lane, head.rank FROM head WHERE head.run_at <= v_now;
END
$$;

-- Completes runs that carry nothing beyond their job, if they are still the current ones; gives the
-- indexes and the new versions of those. `settle_runs` would do the same with more arrays; nearly every
-- run ends like this. Jobs must differ within a call; the leases are locked in the order of their
-- ids, as the index gives them.
CREATE FUNCTION gantline.complete_runs(
    p_now bigint, p_job uuid[], p_token uuid[], p_hold bigint[], p_result bytea[],
    OUT places bigint[], OUT versions bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
    v_keyed uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM gantline.lease
        USING unnest(p_job, p_token, p_result) WITH ORDINALITY AS t (job_id, token, result, place)
        WHERE lease.job_id = ANY (p_job)
          AND lease.job_id = t.job_id AND lease.token = t.token
        RETURNING t.place, t.result, lease.job_id, lease.token, lease.lane,
                  lease.version + 1 AS new_version, lease.fence, lease.created_at,
                  lease.started_at, lease.attempt, lease.crashes, lease.snoozes, lease.priority,
                  lease.keyed, lease.session, lease.tenant
    ), logged AS (
        INSERT INTO gantline.log (
            version, lane, fence, at, created_at, started_at, event, status, attempt, crashes,
            snoozes, priority, is_end, job_id, change_id, tenant, reason, session, actor, result)
        SELECT new_version, lane, fence, v_now, created_at, started_at, 'completed', 'Completed',
               attempt, crashes, snoozes, priority, true, job_id, token, tenant, 'Succeeded',
               session, '', result
        FROM gone
    ), counted AS (
        INSERT INTO gantline.tally_delta (
            lane, live, completed, failed, poisoned, cancelled, tenant)
        SELECT lane, -count(*), count(*), 0, 0, 0, tenant FROM gone GROUP BY tenant, lane
    )
    SELECT array_agg(place), array_agg(new_version), array_agg(job_id) FILTER (WHERE keyed)
    INTO places, versions, v_keyed FROM gone;
    IF v_keyed IS NOT NULL THEN
        PERFORM gantline.keep_or_free_keys(v_now, v_keyed, p_job, p_token, p_hold);
    END IF;
END
$$;

-- Ends runs that carry nothing beyond their job, if they are still the current ones; gives a row for
-- each that it ended. Jobs must differ within a call. It does not wait for a lapsed lease: the transaction
-- that has locked it is about to end it. The leases are locked in the order of their ids, as the index gives them.
CREATE FUNCTION gantline.settle_runs(
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
            job_id, tenant)
        SELECT lane, gantline.later(v_now, delay), new_version, fence, created_at, attempt, crashes,
               snoozes, priority, keyed, job_id, tenant
        FROM gone WHERE status = 'Queued'
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

-- The tokens, with NULL, which no run has, for those whose lapsed lease another transaction has locked.
CREATE FUNCTION gantline.tokens_unless_locked(
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
            SELECT true AS is_free FROM gantline.lease
            WHERE lease.job_id = t.job_id AND t.only_expired
            OFFSET 0 FOR UPDATE SKIP LOCKED
        ) AS free ON true
        ORDER BY t.place);
END
$$;

-- Writes the keys of jobs whose run was just ended by these tokens: a completed job holds its key for a
-- while, one that ended otherwise frees it, one that runs again keeps it.
CREATE FUNCTION gantline.keep_or_free_keys(
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
            SELECT log.status FROM gantline.log
            WHERE log.job_id = t.job_id AND log.change_id = t.token AND log.is_end
            OFFSET 0) AS ended
        CROSS JOIN LATERAL (SELECT * FROM gantline.job WHERE job.id = t.job_id OFFSET 0) AS job
        CROSS JOIN LATERAL (SELECT * FROM gantline.lane WHERE lane.id = job.lane OFFSET 0) AS lane
        WHERE t.job_id = ANY (p_keyed)
        ORDER BY job.tenant COLLATE "C", lane.job_type COLLATE "C",
                 job.idempotency_key COLLATE "C"  -- as take_keys does
    LOOP
        IF v_key.is_completed THEN
            UPDATE gantline.dedupe AS held SET until = gantline.later(p_now, v_key.hold)
            WHERE held.tenant = v_key.tenant AND held.scope = v_key.job_type
              AND held.key = v_key.key AND held.kind = 'job' AND held.job_id = v_key.job_id;
        ELSE
            DELETE FROM gantline.dedupe AS held
            WHERE held.tenant = v_key.tenant AND held.scope = v_key.job_type
              AND held.key = v_key.key AND held.kind = 'job' AND held.job_id = v_key.job_id;
        END IF;
    END LOOP;
END
$$;

-- Numbers log rows that have been committed; gives how many. See event_batch and event_gap.
-- Every log row is written after its transaction has changed something else, so a transaction has its
-- number before it takes an id: no id that is missing now can come from a later transaction.
CREATE FUNCTION gantline.sequence_events(p_limit integer) RETURNS bigint
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
    SELECT last, high INTO v_last, v_high FROM gantline.event_cursor WHERE only_row = 1 FOR UPDATE;
    -- Our transaction number was given after the call that missed these ids was over, so it is above
    -- those of all that can have taken them. (The xmax of a snapshot is not: it covers only ended ones.)
    UPDATE gantline.event_gap SET watched_until = pg_current_xact_id() WHERE watched_until IS NULL;
    -- Before the read: it sees all that had ended by now.
    v_oldest := pg_snapshot_xmin(pg_current_snapshot());
    -- One read for both: two could number a job's later row before its earlier one.
    SELECT coalesce(array_agg(seen.id ORDER BY seen.id) FILTER (WHERE seen.is_late), '{}'),
           coalesce(array_agg(seen.id ORDER BY seen.id) FILTER (WHERE NOT seen.is_late), '{}')
    INTO v_late, v_new
    FROM (
        (SELECT gap.log_id AS id, true AS is_late
         FROM gantline.event_gap AS gap
         CROSS JOIN LATERAL (
             SELECT FROM gantline.log WHERE log.id = gap.log_id OFFSET 0) AS found
         ORDER BY gap.log_id LIMIT p_limit)
        UNION ALL
        (SELECT log.id, false FROM gantline.log WHERE log.id > v_high ORDER BY log.id LIMIT p_limit)
    ) AS seen;
    v_new := v_new[1:p_limit - cardinality(v_late)];
    DELETE FROM gantline.event_gap AS gap
    WHERE gap.log_id = ANY (v_late)
       OR (gap.watched_until <= v_oldest
           AND NOT EXISTS (SELECT FROM gantline.log WHERE log.id = gap.log_id));
    v_all := v_late || v_new;
    IF v_all = '{}' THEN
        RETURN 0;
    END IF;
    IF v_new <> '{}' THEN
        INSERT INTO gantline.event_gap (log_id)
        SELECT missing FROM (
            SELECT generate_series(v_high + 1, v_new[cardinality(v_new)]) EXCEPT SELECT unnest(v_new)
        ) AS skipped (missing);
        v_high := v_new[cardinality(v_new)];
    END IF;
    INSERT INTO gantline.event_batch (last, first, log_ids)
    VALUES (v_last + cardinality(v_all), v_last + 1, v_all);
    UPDATE gantline.event_cursor SET last = v_last + cardinality(v_all), high = v_high
    WHERE only_row = 1;
    RETURN cardinality(v_all);
END
$$;

-- Adds up what was counted since the last time, a bounded number of rows.
CREATE FUNCTION gantline.fold_tally(p_limit integer) RETURNS void LANGUAGE sql AS $$
    WITH moved AS (
        DELETE FROM gantline.tally_delta
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM gantline.tally_delta LIMIT p_limit FOR UPDATE SKIP LOCKED))
        RETURNING *
    )
    INSERT INTO gantline.tally AS sum (
        tenant, lane, live, completed, failed, poisoned, cancelled)
    SELECT tenant, lane, sum(live), sum(completed), sum(failed), sum(poisoned), sum(cancelled)
    FROM moved GROUP BY tenant, lane ORDER BY tenant, lane
    ON CONFLICT (tenant, lane) DO UPDATE SET
        live = sum.live + excluded.live, completed = sum.completed + excluded.completed,
        failed = sum.failed + excluded.failed, poisoned = sum.poisoned + excluded.poisoned,
        cancelled = sum.cancelled + excluded.cancelled
$$;

-- Submitting from SQL, in any language and in the caller's own transaction:
--   SELECT * FROM gantline.submit('{"jobType": "mail", "payload": {"to": "a@example.org"}}');
-- Takes one envelope or an array of them; gives a row for each: accepted, duplicate or conflict.
-- An unknown field, or one that breaks the contract, is an error that names the field and the job.
-- "logged": true makes the submission an event that consumers read.

CREATE FUNCTION gantline.micros_of(instant text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM instant::timestamptz) * 1000000::numeric)::bigint
$$;

-- What makes two payloads the same, as the contract writes it: keys in order, no spaces.
CREATE FUNCTION gantline.canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'object' THEN (
            SELECT '{' || coalesce(string_agg(
                to_json(pair.key)::text || ':' || gantline.canonical(pair.value), ','
                ORDER BY pair.key COLLATE "C"), '') || '}'
            FROM jsonb_each(value) AS pair)
        WHEN 'array' THEN (
            SELECT '[' || coalesce(string_agg(
                gantline.canonical(item.value), ',' ORDER BY item.place), '') || ']'
            FROM jsonb_array_elements(value) WITH ORDINALITY AS item (value, place))
        ELSE value::text END;
END
$$;

-- The rules of the contract for names and numbers: give the value, or say what is wrong with it.
CREATE FUNCTION gantline.checked_name(
    p_job jsonb, p_place bigint, p_field text, p_most integer, p_default text)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_name text := coalesce(p_job ->> p_field, p_default);
    v_problem text := CASE
        WHEN jsonb_typeof(p_job -> p_field) NOT IN ('string', 'null') THEN 'is not a text'
        WHEN v_name = '' AND p_default IS DISTINCT FROM '' THEN 'is empty'
        WHEN length(v_name) > p_most THEN 'is longer than ' || p_most || ' characters'
        WHEN v_name ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' THEN
            'contains a control character' END;
BEGIN
    IF v_name IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('job %s has no %s', p_place, p_field);
    ELSIF v_problem IS NOT NULL THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('%s of job %s %s', p_field, p_place, v_problem);
    END IF;
    RETURN v_name;
END
$$;

CREATE FUNCTION gantline.checked_number(
    p_job jsonb, p_place bigint, p_field text, p_default integer, p_least integer, p_most integer)
RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_number integer := coalesce((p_job ->> p_field)::integer, p_default);
BEGIN
    IF v_number NOT BETWEEN p_least AND p_most THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            '%s of job %s is %s; it must be from %s to %s',
            p_field, p_place, v_number, p_least, p_most);
    END IF;
    RETURN v_number;
END
$$;

-- The payload as text, because jsonb would reorder its keys.
CREATE FUNCTION gantline.payload_text(p_job jsonb, p_place bigint, p_max_bytes integer)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_text text := coalesce(p_job ->> 'payloadText', (p_job -> 'payload')::text, 'null');
BEGIN
    IF p_job ? 'payload' AND p_job ? 'payloadText' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('job %s has both payload and payloadText', p_place);
    ELSIF octet_length(convert_to(v_text, 'UTF8')) > p_max_bytes THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('payload of job %s has %s bytes; at most %s are allowed', p_place,
                             octet_length(convert_to(v_text, 'UTF8')), p_max_bytes),
            HINT = 'Store the data elsewhere and pass its identifier, or allow more with '
                   'p_max_payload_bytes.';
    END IF;
    PERFORM (p_job ->> 'payloadText')::json;
    RETURN v_text;
EXCEPTION WHEN invalid_text_representation THEN
    RAISE invalid_parameter_value
    USING MESSAGE = format('payloadText of job %s is not JSON', p_place);
END
$$;

-- An envelope with the fields of its objects beside its own; an unknown field is an error.
CREATE FUNCTION gantline.known_fields(p_job jsonb, p_place bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_known text[] := ARRAY[
        'attempt', 'correlationId', 'createdAt', 'createdBy', 'delaySeconds', 'fingerprint',
        'idempotencyKey', 'jobId', 'jobType', 'logged', 'maxAttempts', 'parentJobId', 'payload',
        'payloadText', 'payloadVersion', 'priority', 'queue', 'requestKey',
        'requestKey.fingerprint', 'requestKey.holdSeconds', 'requestKey.key', 'requestKey.scope',
        'requestKey.tenantId', 'scheduledAt', 'subjectId', 'tenantId', 'traceContext'];
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
    SELECT min(field) INTO v_field FROM jsonb_object_keys(p_job) AS field WHERE field LIKE '%.%';
    IF v_field IS NULL AND jsonb_typeof(p_job -> 'requestKey') = 'object' THEN
        p_job := p_job || coalesce((
            SELECT jsonb_object_agg('requestKey.' || field.key, field.value)
            FROM jsonb_each(p_job -> 'requestKey') AS field), '{}');
    END IF;
    IF v_field IS NULL AND NOT ARRAY(SELECT jsonb_object_keys(p_job)) <@ v_known THEN
        SELECT min(field COLLATE "C") INTO v_field FROM jsonb_object_keys(p_job) AS field
        WHERE field <> ALL (v_known);
    END IF;
    IF v_field IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('job %s has an unknown field %s', p_place, to_json(v_field)),
            HINT = 'Known are ' || array_to_string(v_known, ', ') || '.';
    END IF;
    RETURN p_job;
END
$$;

-- Why a job of this type may not be submitted now, by the switches and the depth cap of its queue; NULL
-- where it may. The declared cap of a type is known only to its application.
CREATE FUNCTION gantline.why_refused(p_job_type text, p_queue text)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_cap bigint;
    v_waiting bigint;
BEGIN
    IF EXISTS (SELECT FROM gantline.record WHERE namespace = 'switches' AND key = 'closed') THEN
        RETURN 'STORE_CLOSED: The store is closed.';
    ELSIF EXISTS (SELECT FROM gantline.record
                  WHERE namespace = 'switches' AND key = 'disabled-type/' || p_job_type) THEN
        RETURN format('JOB_TYPE_DISABLED: The job type %L is switched off.', p_job_type);
    END IF;
    SELECT convert_from(value, 'UTF8')::bigint INTO v_cap FROM gantline.record
    WHERE namespace = 'switches' AND key = 'depth-cap/' || p_queue;
    IF v_cap IS NULL THEN
        RETURN NULL;
    END IF;
    -- No more than the cap are counted.
    SELECT count(*) INTO v_waiting FROM (
        SELECT FROM gantline.lane JOIN gantline.ready ON ready.lane = lane.id
        WHERE lane.queue = p_queue LIMIT v_cap) AS waiting;
    IF v_waiting >= v_cap THEN
        RETURN format('QUEUE_FULL: %s may wait in the queue %L, and no more.',
            CASE v_cap WHEN 1 THEN '1 job' ELSE v_cap || ' jobs' END, p_queue);
    END IF;
    RETURN NULL;
END
$$;

-- `p_max_payload_bytes` NULL leaves the size of a payload to the caller, `p_admitted` the
-- admission: an application has checked it already.
CREATE FUNCTION gantline.submit(
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
    v_tenant text;
    v_queue text;
    v_type text;
    v_payload text;
    v_version integer;
    v_max_attempts integer;
    v_lane bigint;
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
        v_job := gantline.known_fields(v_job, v_place);
        v_id := coalesce((v_job ->> 'jobId')::uuid, gen_random_uuid());
        v_tenant := gantline.checked_name(v_job, v_place, 'tenantId', 128, 'default');
        v_type := gantline.checked_name(v_job, v_place, 'jobType', 128, NULL);
        v_queue := gantline.checked_name(v_job, v_place, 'queue', 128, 'default');
        v_payload := gantline.payload_text(v_job, v_place, p_max_payload_bytes);
        v_version := gantline.checked_number(v_job, v_place, 'payloadVersion', 1, 1, 2147483647);
        v_max_attempts := gantline.checked_number(v_job, v_place, 'maxAttempts', 3, 1, 1000);
        v_has_request := jsonb_typeof(v_job -> 'requestKey') = 'object';
        v_refusal := CASE WHEN NOT p_admitted THEN gantline.why_refused(v_type, v_queue) END;
        -- A job that was accepted before is not refused.
        IF v_refusal IS NOT NULL
           AND NOT EXISTS (SELECT FROM gantline.job WHERE id = v_id AND tenant = v_tenant)
           AND NOT EXISTS (
               SELECT FROM gantline.dedupe
               WHERE (until IS NULL OR until > v_now) AND (
                   (kind = 'job' AND tenant = v_tenant AND scope = v_type
                    AND key = v_job ->> 'idempotencyKey')
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
            CASE WHEN (v_job ->> 'logged')::boolean THEN ARRAY[true] END) AS refused;
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
CREATE VIEW gantline.jobs AS
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
       convert_from(job.payload, 'UTF8') AS payload
FROM gantline.job
JOIN gantline.lane ON lane.id = job.lane
LEFT JOIN gantline.ready ON ready.job_id = job.id
LEFT JOIN gantline.lease ON lease.job_id = job.id
LEFT JOIN LATERAL (
    SELECT * FROM gantline.log
    WHERE log.job_id = job.id AND log.event NOT IN ('submitted', 'started', 'progressed')
    ORDER BY log.version DESC LIMIT 1
) AS last ON true;
