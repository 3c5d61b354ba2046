-- Works with code of migration 5.
-- Groups take turns, limits and gates hold. A group is 64 bits, 0 for the default tenant without one; the
-- text is in the job. What waits or runs from before has 0, whatever its tenant.

ALTER TABLE gantline_job ADD COLUMN group_name TEXT NOT NULL DEFAULT '';

-- Whether a claim has ever held to a limit of this type: then its leases are in the index below.
ALTER TABLE gantline_lane ADD COLUMN limited INTEGER NOT NULL DEFAULT 0 CHECK (limited IN (0, 1));
CREATE INDEX gantline_lane_by_type ON gantline_lane (job_type);

ALTER TABLE gantline_lease ADD COLUMN grp INTEGER NOT NULL DEFAULT 0 CHECK (grp >= 0);
ALTER TABLE gantline_lease ADD COLUMN limited INTEGER NOT NULL DEFAULT 0 CHECK (limited IN (0, 1));
CREATE INDEX gantline_lease_limited ON gantline_lease (lane, grp) WHERE limited = 1;

-- One range per (lane, rank, group), so that what a group has waiting is never read for another.
CREATE TABLE gantline_ready_of_groups (
    lane       INTEGER NOT NULL,
    rank       INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 35),
    grp        INTEGER NOT NULL CHECK (grp >= 0),
    run_at     INTEGER NOT NULL,
    job_id     BLOB NOT NULL CHECK (length(job_id) = 16),
    tenant     TEXT NOT NULL,
    version    INTEGER NOT NULL CHECK (version >= 1),
    attempt    INTEGER NOT NULL CHECK (attempt >= 0),
    crashes    INTEGER NOT NULL CHECK (crashes >= 0),
    snoozes    INTEGER NOT NULL CHECK (snoozes >= 0),
    fence      INTEGER NOT NULL CHECK (fence >= 0),
    expires_at INTEGER CHECK (expires_at IS NULL OR version = 1),
    CHECK ((rank > 3) = (crashes > 1)),
    PRIMARY KEY (lane, rank, grp, run_at, job_id)
) STRICT, WITHOUT ROWID;

INSERT INTO gantline_ready_of_groups
SELECT lane, rank, 0, run_at, job_id, tenant, version, attempt, crashes, snoozes, fence, expires_at
FROM gantline_ready;

DROP TABLE gantline_ready;
ALTER TABLE gantline_ready_of_groups RENAME TO gantline_ready;
CREATE UNIQUE INDEX gantline_ready_by_job ON gantline_ready (job_id);
CREATE INDEX gantline_ready_expiring ON gantline_ready (expires_at, job_id) WHERE expires_at IS NOT NULL;

-- The floor of each range: never above its first row. States: 0 takes no turns (without a group, or
-- suspects), 1 in line, 2 not due when last looked at, 3 had no place under a limit of `full_at`.
CREATE TABLE gantline_turn (
    lane    INTEGER NOT NULL,
    rank    INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 35),
    grp     INTEGER NOT NULL CHECK (grp >= 0),
    queue   TEXT NOT NULL,
    tenant  INTEGER NOT NULL CHECK (tenant >= 0),
    run_at  INTEGER NOT NULL,
    job_id  BLOB NOT NULL CHECK (length(job_id) = 16),
    state   INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
    served  INTEGER NOT NULL DEFAULT 0 CHECK (served >= 0),
    full_at INTEGER,
    CHECK ((state = 0) = (grp = 0 OR rank > 3)),
    CHECK ((state = 3) = (full_at IS NOT NULL)),
    PRIMARY KEY (lane, rank, grp)
) STRICT, WITHOUT ROWID;

INSERT INTO gantline_turn (lane, rank, grp, queue, tenant, run_at, job_id, state)
SELECT lane, rank, 0, queue, 0, run_at, job_id, 0 FROM gantline_floor;

DROP TABLE gantline_floor;
CREATE INDEX gantline_turn_in_order ON gantline_turn (queue, rank, run_at, job_id, state) WHERE state = 0;
CREATE INDEX gantline_turn_in_line ON gantline_turn (lane, rank, tenant, served, run_at) WHERE state = 1;
CREATE INDEX gantline_turn_later ON gantline_turn (lane, rank, run_at) WHERE state = 2;
CREATE INDEX gantline_turn_full ON gantline_turn (lane, rank, full_at) WHERE state = 3;
CREATE INDEX gantline_turn_full_of_group ON gantline_turn (grp) WHERE state = 3;

-- Which tenants have a turn in line, the default one aside. `served` is 0 while a tenant is new, and
-- the same in all lanes of a queue.
CREATE TABLE gantline_tenant_turn (
    queue       TEXT NOT NULL,
    rank        INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 3),
    tenant      INTEGER NOT NULL CHECK (tenant > 0),
    lane        INTEGER NOT NULL,
    served      INTEGER NOT NULL CHECK (served >= 0),
    since       INTEGER NOT NULL,
    new_is_next INTEGER NOT NULL DEFAULT 1 CHECK (new_is_next IN (0, 1)),
    PRIMARY KEY (queue, rank, tenant, lane)
) STRICT, WITHOUT ROWID;

CREATE INDEX gantline_tenant_turn_in_order ON gantline_tenant_turn (lane, rank, served, since);

-- The lanes that have turns with a group. A queue without a row here is merged by floors alone.
CREATE TABLE gantline_grouped (
    queue TEXT NOT NULL,
    rank  INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 3),
    lane  INTEGER NOT NULL,
    PRIMARY KEY (queue, rank, lane)
) STRICT, WITHOUT ROWID;

-- How often anyone was served, when the default tenant was, and its jobs without a group.
CREATE TABLE gantline_rotation (
    queue             TEXT NOT NULL,
    rank              INTEGER NOT NULL CHECK (rank BETWEEN 0 AND 3),
    served            INTEGER NOT NULL CHECK (served >= 0),
    default_served    INTEGER NOT NULL,
    plain_served      INTEGER NOT NULL,
    new_is_next       INTEGER NOT NULL CHECK (new_is_next IN (0, 1)),
    new_group_is_next INTEGER NOT NULL CHECK (new_group_is_next IN (0, 1)),
    PRIMARY KEY (queue, rank)
) STRICT, WITHOUT ROWID;

-- `next_at` is the theoretical arrival time of GCRA.
CREATE TABLE gantline_gate (
    name         TEXT PRIMARY KEY CHECK (name <> ''),
    next_at      INTEGER,
    closed_until INTEGER
) STRICT, WITHOUT ROWID;
