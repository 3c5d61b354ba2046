-- Jobs are inserted and never updated. Where a job stands is told by the one place it is in:
-- ready (Queued), lease (Running) or the log row marked is_end (ended). Instants are microseconds
-- since 1970, ids and tokens 16 bytes.

CREATE TABLE windlass_lane (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL CHECK (queue <> ''),
    job_type TEXT NOT NULL CHECK (job_type <> ''),
    UNIQUE (queue, job_type)
) STRICT;

CREATE TABLE windlass_job (
    id              BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    tenant          TEXT NOT NULL CHECK (tenant <> ''),
    lane            INTEGER NOT NULL,
    subject         TEXT NOT NULL,
    correlation     TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint     BLOB NOT NULL,
    attempt         INTEGER NOT NULL CHECK (attempt >= 1),
    max_attempts    INTEGER NOT NULL CHECK (max_attempts >= attempt),
    payload         BLOB NOT NULL,
    payload_version INTEGER NOT NULL CHECK (payload_version >= 1),
    priority        INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    created_at      INTEGER NOT NULL,
    scheduled_at    INTEGER,
    created_by      TEXT NOT NULL,
    parent          BLOB CHECK (length(parent) = 16),
    trace_context   TEXT
) STRICT;

CREATE INDEX windlass_job_by_tenant ON windlass_job (tenant, created_at, id);
CREATE INDEX windlass_job_by_owner ON windlass_job (tenant, created_by, created_at, id) WHERE created_by <> '';
CREATE INDEX windlass_job_by_subject ON windlass_job (tenant, subject, created_at, id) WHERE subject <> '';

-- One range per (lane, priority): what is paused, of another type or not yet due is never read.
CREATE TABLE windlass_ready (
    lane     INTEGER NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    run_at   INTEGER NOT NULL,
    job_id   BLOB NOT NULL CHECK (length(job_id) = 16),
    tenant   TEXT NOT NULL,
    version  INTEGER NOT NULL CHECK (version >= 1),
    attempt  INTEGER NOT NULL CHECK (attempt >= 0),
    crashes  INTEGER NOT NULL CHECK (crashes >= 0),
    snoozes  INTEGER NOT NULL CHECK (snoozes >= 0),
    fence    INTEGER NOT NULL CHECK (fence >= 0),
    PRIMARY KEY (lane, priority, run_at, job_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX windlass_ready_by_job ON windlass_ready (job_id);

-- Never above the first row of its (lane, priority), so that a claim finds the lanes that come next
-- by one short scan: with a thousand types it opens those it takes from, not all of them.
CREATE TABLE windlass_floor (
    lane     INTEGER NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    queue    TEXT NOT NULL,
    run_at   INTEGER NOT NULL,
    job_id   BLOB NOT NULL CHECK (length(job_id) = 16),
    PRIMARY KEY (lane, priority)
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_floor_in_order ON windlass_floor (queue, priority, run_at, job_id);

CREATE TABLE windlass_lease (
    job_id           BLOB PRIMARY KEY CHECK (length(job_id) = 16),
    token            BLOB NOT NULL CHECK (length(token) = 16),
    claim_id         BLOB NOT NULL CHECK (length(claim_id) = 16),
    session          TEXT NOT NULL,
    lane             INTEGER NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    tenant           TEXT NOT NULL,
    version          INTEGER NOT NULL CHECK (version >= 1),
    attempt          INTEGER NOT NULL CHECK (attempt >= 1),
    crashes          INTEGER NOT NULL CHECK (crashes >= 0),
    snoozes          INTEGER NOT NULL CHECK (snoozes >= 0),
    fence            INTEGER NOT NULL CHECK (fence >= 1),
    started_at       INTEGER NOT NULL,
    until            INTEGER NOT NULL,
    percent          REAL NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
    phase            TEXT NOT NULL DEFAULT '',
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_lease_by_claim ON windlass_lease (claim_id);

-- History, outcome and outbox in one. AUTOINCREMENT: a number is never handed out again, so that a
-- consumer's cursor stays true after the newest row was pruned.
CREATE TABLE windlass_log (
    sequence       INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         BLOB NOT NULL CHECK (length(job_id) = 16),
    version        INTEGER NOT NULL,
    change_id      BLOB NOT NULL CHECK (length(change_id) = 16),
    tenant         TEXT NOT NULL,
    lane           INTEGER NOT NULL,
    -- Chains of OR: SQLite builds the list of an IN anew for every row (12.9 against 7.0 µs a row).
    event          TEXT NOT NULL CHECK (
                       event = 'completed' OR event = 'failed' OR event = 'retried'
                       OR event = 'poisoned' OR event = 'cancelled' OR event = 'snoozed'
                       OR event = 'released' OR event = 'crashed' OR event = 'cancel_requested'
                       OR event = 'redriven' OR event = 'submitted' OR event = 'started'
                       OR event = 'progressed'),
    status         TEXT NOT NULL CHECK (
                       status = 'Completed' OR status = 'Queued' OR status = 'Failed'
                       OR status = 'Poisoned' OR status = 'Cancelled' OR status = 'Running'),
    reason         TEXT NOT NULL,
    at             INTEGER NOT NULL,
    attempt        INTEGER NOT NULL CHECK (attempt >= 0),
    crashes        INTEGER NOT NULL CHECK (crashes >= 0),
    snoozes        INTEGER NOT NULL CHECK (snoozes >= 0),
    fence          INTEGER NOT NULL CHECK (fence >= 0),
    priority       INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    session        TEXT NOT NULL,
    started_at     INTEGER,
    error_code     TEXT,
    error_message  TEXT,
    error_detail   TEXT,
    result         BLOB,
    result_omitted TEXT,
    actor          TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    is_end         INTEGER NOT NULL CHECK (is_end IN (0, 1)),
    percent        REAL CHECK (percent BETWEEN 0 AND 100),
    phase          TEXT,
    CHECK (is_end = 0 OR (status <> 'Queued' AND status <> 'Running')),
    CHECK ((error_code IS NULL) = (error_message IS NULL))
) STRICT;

CREATE UNIQUE INDEX windlass_log_by_job ON windlass_log (job_id, version);
CREATE INDEX windlass_log_ended ON windlass_log (tenant, status, created_at, job_id) WHERE is_end = 1;
CREATE INDEX windlass_log_to_prune ON windlass_log (status, at) WHERE is_end = 1;

CREATE TABLE windlass_dedupe (
    kind        TEXT NOT NULL CHECK (kind = 'job' OR kind = 'request' OR kind = 'once'),
    tenant      TEXT NOT NULL,
    scope       TEXT NOT NULL,
    key         TEXT NOT NULL CHECK (key <> ''),
    job_id      BLOB NOT NULL CHECK (length(job_id) = 16),
    fingerprint BLOB NOT NULL,
    until       INTEGER,
    PRIMARY KEY (kind, tenant, scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_dedupe_by_end ON windlass_dedupe (until) WHERE until IS NOT NULL;
CREATE INDEX windlass_dedupe_of_request ON windlass_dedupe (job_id) WHERE kind = 'request';

-- How many jobs are where, kept in the same transaction as each move.
CREATE TABLE windlass_tally (
    tenant TEXT NOT NULL,
    lane   INTEGER NOT NULL,
    status TEXT NOT NULL,
    jobs   INTEGER NOT NULL CHECK (jobs >= 0),
    PRIMARY KEY (tenant, lane, status)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a version that a deleted or expired record had is never handed out again.
CREATE TABLE windlass_record (
    version    INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      BLOB NOT NULL,
    expires_at INTEGER,
    replaced   INTEGER NOT NULL CHECK (replaced >= 0),
    UNIQUE (namespace, key)
) STRICT;

CREATE INDEX windlass_record_by_end ON windlass_record (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE windlass_leader (
    role  TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    term  INTEGER NOT NULL CHECK (term >= 1),
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
