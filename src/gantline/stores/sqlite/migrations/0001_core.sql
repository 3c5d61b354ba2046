-- Works with code of migration 1.

-- Jobs are inserted and never updated. The status of a job follows from the one table it is in:
-- ready (Queued), lease (Running) or the log row marked is_end (ended). Instants are microseconds
-- since 1970, ids and tokens 16 bytes.

CREATE TABLE gantline_lane (
    id       INTEGER PRIMARY KEY,
    queue    TEXT NOT NULL CHECK (queue <> ''),
    job_type TEXT NOT NULL CHECK (job_type <> ''),
    UNIQUE (queue, job_type)
) STRICT;

CREATE TABLE gantline_job (
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

CREATE INDEX gantline_job_by_tenant ON gantline_job (tenant, created_at, id);
CREATE INDEX gantline_job_by_owner ON gantline_job (tenant, created_by, created_at, id) WHERE created_by <> '';
CREATE INDEX gantline_job_by_subject ON gantline_job (tenant, subject, created_at, id) WHERE subject <> '';

-- One range per (lane, rank): what is paused, of another type, suspect or not yet due is never read.
-- The rank of an ordinary job is its priority. Suspects have ranks from 4 on, by their crashes; their
-- priority is rank % 4.
CREATE TABLE gantline_ready (
    lane    INTEGER NOT NULL,
    rank    INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 35),
    run_at  INTEGER NOT NULL,
    job_id  BLOB NOT NULL CHECK (length(job_id) = 16),
    tenant  TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 1),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    crashes INTEGER NOT NULL CHECK (crashes >= 0),
    snoozes INTEGER NOT NULL CHECK (snoozes >= 0),
    fence   INTEGER NOT NULL CHECK (fence >= 0),
    CHECK ((rank > 3) = (crashes > 1)),
    PRIMARY KEY (lane, rank, run_at, job_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX gantline_ready_by_job ON gantline_ready (job_id);

-- Never above the first row of its (lane, rank), so that a claim finds the lanes that come next
-- by one short scan: with a thousand types it opens only those it takes from.
CREATE TABLE gantline_floor (
    lane   INTEGER NOT NULL,
    rank   INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 35),
    queue  TEXT NOT NULL,
    run_at INTEGER NOT NULL,
    job_id BLOB NOT NULL CHECK (length(job_id) = 16),
    PRIMARY KEY (lane, rank)
) STRICT, WITHOUT ROWID;

CREATE INDEX gantline_floor_in_order ON gantline_floor (queue, rank, run_at, job_id);

CREATE TABLE gantline_lease (
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
    length           INTEGER NOT NULL CHECK (length >= 0),
    percent          REAL NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
    phase            TEXT NOT NULL DEFAULT '',
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX gantline_lease_by_claim ON gantline_lease (claim_id);

-- History, outcome and outbox in one. AUTOINCREMENT: a number is never used again, so that a
-- consumer's position stays valid after the newest row was pruned.
CREATE TABLE gantline_log (
    sequence       INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id         BLOB NOT NULL CHECK (length(job_id) = 16),
    version        INTEGER NOT NULL,
    change_id      BLOB NOT NULL CHECK (length(change_id) = 16),
    tenant         TEXT NOT NULL,
    lane           INTEGER NOT NULL,
    -- No list of values: to add one, SQLite would have to rewrite the whole table.
    event          TEXT NOT NULL CHECK (event <> ''),
    status         TEXT NOT NULL CHECK (status <> ''),
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

CREATE UNIQUE INDEX gantline_log_by_job ON gantline_log (job_id, version);
CREATE INDEX gantline_log_ended ON gantline_log (tenant, status, created_at, job_id) WHERE is_end = 1;
CREATE INDEX gantline_log_to_prune ON gantline_log (status, at) WHERE is_end = 1;

CREATE TABLE gantline_dedupe (
    kind        TEXT NOT NULL CHECK (kind <> ''),
    tenant      TEXT NOT NULL,
    scope       TEXT NOT NULL,
    key         TEXT NOT NULL CHECK (key <> ''),
    job_id      BLOB NOT NULL CHECK (length(job_id) = 16),
    fingerprint BLOB NOT NULL,
    until       INTEGER,
    PRIMARY KEY (kind, tenant, scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX gantline_dedupe_by_end ON gantline_dedupe (until) WHERE until IS NOT NULL;
CREATE INDEX gantline_dedupe_of_request ON gantline_dedupe (job_id) WHERE kind = 'request';

-- How many jobs are in which lane and status, written in the transaction of each move.
CREATE TABLE gantline_tally (
    tenant TEXT NOT NULL,
    lane   INTEGER NOT NULL,
    status TEXT NOT NULL,
    jobs   INTEGER NOT NULL CHECK (jobs >= 0),
    PRIMARY KEY (tenant, lane, status)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a version that a deleted or expired record had is never used again.
CREATE TABLE gantline_record (
    version    INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      BLOB NOT NULL,
    expires_at INTEGER,
    replaced   INTEGER NOT NULL CHECK (replaced >= 0),
    UNIQUE (namespace, key)
) STRICT;

CREATE INDEX gantline_record_by_end ON gantline_record (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE gantline_leader (
    role  TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    term  INTEGER NOT NULL CHECK (term >= 1),
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
