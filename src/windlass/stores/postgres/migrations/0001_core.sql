-- The tables. Jobs are inserted and never updated. Where a job stands is told by the one place it is
-- in: ready (Queued), lease (Running) or the log row marked is_end (ended). Instants are microseconds
-- since 1970; the view windlass.jobs shows them to people.

CREATE TYPE windlass.job_status AS ENUM (
    'Queued', 'Running', 'Completed', 'Failed', 'Poisoned', 'Cancelled');
CREATE TYPE windlass.job_event AS ENUM (
    'completed', 'failed', 'retried', 'poisoned', 'cancelled', 'snoozed', 'released', 'crashed',
    'cancel_requested', 'redriven', 'submitted', 'started', 'progressed');
CREATE TYPE windlass.key_kind AS ENUM ('job', 'request', 'once');

CREATE TABLE windlass.lane (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    text NOT NULL CHECK (queue <> ''),
    job_type text NOT NULL CHECK (job_type <> ''),
    UNIQUE (queue, job_type)
);

CREATE TABLE windlass.job (
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
);

CREATE INDEX job_by_tenant ON windlass.job (tenant, created_at, id);
CREATE INDEX job_by_owner ON windlass.job (tenant, created_by, created_at, id) WHERE created_by <> '';
CREATE INDEX job_by_subject ON windlass.job (tenant, subject, created_at, id) WHERE subject <> '';

-- One range per (lane, priority): what is paused, of another type or not yet due is never read.
-- The hot tables are small and change all the time, so they are vacuumed early and without pauses.
CREATE TABLE windlass.ready (
    lane       bigint NOT NULL,
    run_at     bigint NOT NULL,
    version    bigint NOT NULL CHECK (version >= 1),
    fence      bigint NOT NULL CHECK (fence >= 0),
    created_at bigint NOT NULL,
    attempt    integer NOT NULL CHECK (attempt >= 0),
    crashes    integer NOT NULL CHECK (crashes >= 0),
    snoozes    integer NOT NULL CHECK (snoozes >= 0),
    priority   smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    keyed      boolean NOT NULL,
    job_id     uuid NOT NULL,
    tenant     text NOT NULL,
    PRIMARY KEY (lane, priority, run_at, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX ready_by_job ON windlass.ready (job_id);
CREATE INDEX ready_by_tenant ON windlass.ready (tenant, created_at, job_id);

-- `until` is in no index, so that a renewal rewrites the row within its page (HOT).
CREATE TABLE windlass.lease (
    lane             bigint NOT NULL,
    version          bigint NOT NULL CHECK (version >= 1),
    fence            bigint NOT NULL CHECK (fence >= 1),
    created_at       bigint NOT NULL,
    due_at           bigint NOT NULL,
    started_at       bigint NOT NULL,
    until            bigint NOT NULL,
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

CREATE INDEX lease_by_claim ON windlass.lease (claim_id);

-- History, outcome and outbox in one. `id` is handed out before the commit, so it is no order to
-- read in: see event_batch.
CREATE TABLE windlass.log (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version        bigint NOT NULL CHECK (version >= 1),
    lane           bigint NOT NULL,
    fence          bigint NOT NULL CHECK (fence >= 0),
    at             bigint NOT NULL,
    created_at     bigint NOT NULL,
    started_at     bigint,
    event          windlass.job_event NOT NULL,
    status         windlass.job_status NOT NULL,
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
);

CREATE UNIQUE INDEX log_by_job ON windlass.log (job_id, version);
CREATE UNIQUE INDEX log_end ON windlass.log (tenant, status, created_at, job_id) WHERE is_end;
CREATE INDEX log_to_prune ON windlass.log (status, at) WHERE is_end;

-- The order in which consumers read. Whoever sequences gives the rows it can see the next numbers:
-- the n-th id of a batch has the number first + n - 1. Eight bytes an event instead of an update.
CREATE TABLE windlass.event_batch (
    last    bigint PRIMARY KEY,
    first   bigint NOT NULL,
    log_ids bigint[] NOT NULL,
    CHECK (last = first + cardinality(log_ids) - 1)
);

-- How far the sequencer has seen. A missing id below `high` is either still to be committed or was
-- rolled back; once no transaction from the time when it was missed is left (all before
-- `watched_until`, which the next look sets), it is the latter.
CREATE TABLE windlass.event_cursor (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    last     bigint NOT NULL,
    high     bigint NOT NULL
);
INSERT INTO windlass.event_cursor VALUES (1, 0, 0);

CREATE TABLE windlass.event_gap (
    log_id        bigint PRIMARY KEY,
    watched_until xid8
);

CREATE TABLE windlass.dedupe (
    until       bigint,
    kind        windlass.key_kind NOT NULL,
    job_id      uuid NOT NULL,
    tenant      text NOT NULL,
    scope       text NOT NULL,
    key         text NOT NULL CHECK (key <> ''),
    fingerprint bytea NOT NULL,
    PRIMARY KEY (tenant, scope, key, kind)
);

CREATE INDEX dedupe_by_end ON windlass.dedupe (until) WHERE until IS NOT NULL;
CREATE INDEX dedupe_of_request ON windlass.dedupe (job_id) WHERE kind = 'request';

-- How many jobs are where: the sum of tally and of what was added since it was last folded. Running
-- jobs are counted in lease itself, so `live` is Queued and Running together and a claim adds nothing.
CREATE TABLE windlass.tally (
    lane      bigint NOT NULL,
    live      bigint NOT NULL,
    completed bigint NOT NULL,
    failed    bigint NOT NULL,
    poisoned  bigint NOT NULL,
    cancelled bigint NOT NULL,
    tenant    text NOT NULL,
    PRIMARY KEY (tenant, lane)
);

CREATE TABLE windlass.tally_delta (
    lane      bigint NOT NULL,
    live      integer NOT NULL,
    completed integer NOT NULL,
    failed    integer NOT NULL,
    poisoned  integer NOT NULL,
    cancelled integer NOT NULL,
    tenant    text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- An identity: a version that a deleted or expired record had is never handed out again.
CREATE TABLE windlass.record (
    version    bigint GENERATED ALWAYS AS IDENTITY,
    expires_at bigint,
    replaced   bigint NOT NULL CHECK (replaced BETWEEN 0 AND version - 1),
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      bytea NOT NULL,
    PRIMARY KEY (namespace, key)
);

CREATE INDEX record_by_end ON windlass.record (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE windlass.leader (
    term  bigint NOT NULL CHECK (term >= 1),
    until bigint NOT NULL,
    role  text PRIMARY KEY,
    owner text NOT NULL
);
