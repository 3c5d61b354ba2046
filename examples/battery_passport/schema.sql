-- The application's own tables: rows are added and never changed, and what must not be there twice
-- is unique. On PostgreSQL BLOB is read as BYTEA.

CREATE TABLE IF NOT EXISTS document (
    tenant_id   TEXT NOT NULL,
    document_id TEXT NOT NULL,               -- the hash of its content
    name        TEXT NOT NULL,
    content     BLOB NOT NULL,
    received_at TEXT NOT NULL,               -- RFC 3339, UTC; sorts as text
    PRIMARY KEY (tenant_id, document_id)
);

CREATE TABLE IF NOT EXISTS reading (         -- what was made of a document
    tenant_id   TEXT NOT NULL,
    document_id TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('BOM', 'PCF', 'DUE_DILIGENCE')),
    serial      TEXT NOT NULL,
    PRIMARY KEY (tenant_id, document_id),
    FOREIGN KEY (tenant_id, document_id) REFERENCES document
);
CREATE INDEX IF NOT EXISTS reading_by_serial ON reading (tenant_id, serial);

CREATE TABLE IF NOT EXISTS fact (
    tenant_id      TEXT NOT NULL,
    fact_type      TEXT NOT NULL,
    fact_key       TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    payload_hash   TEXT NOT NULL,
    body           BLOB NOT NULL,            -- canonical JSON
    UNIQUE (tenant_id, fact_type, fact_key, schema_version, payload_hash)
);
CREATE INDEX IF NOT EXISTS fact_by_hash ON fact (tenant_id, payload_hash);

CREATE TABLE IF NOT EXISTS reading_fact (
    tenant_id    TEXT NOT NULL,
    document_id  TEXT NOT NULL,
    payload_hash TEXT NOT NULL,
    PRIMARY KEY (tenant_id, document_id, payload_hash),
    FOREIGN KEY (tenant_id, document_id) REFERENCES reading
);

CREATE TABLE IF NOT EXISTS snapshot (
    tenant_id   TEXT NOT NULL,
    snapshot_id TEXT NOT NULL,               -- the hash of its facts
    serial      TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('OPEN', 'SEALED')),
    issued_at   TEXT NOT NULL,               -- when its newest document came
    PRIMARY KEY (tenant_id, snapshot_id)
);

CREATE TABLE IF NOT EXISTS snapshot_fact (
    tenant_id    TEXT NOT NULL,
    snapshot_id  TEXT NOT NULL,
    payload_hash TEXT NOT NULL,
    PRIMARY KEY (tenant_id, snapshot_id, payload_hash),
    FOREIGN KEY (tenant_id, snapshot_id) REFERENCES snapshot
);

CREATE TABLE IF NOT EXISTS rule_package (    -- published: its tests have passed
    rules_id TEXT PRIMARY KEY,
    body     BLOB NOT NULL,
    cases    INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS passport_version (
    tenant_id           TEXT NOT NULL,
    passport_version_id TEXT NOT NULL,
    passport_id         TEXT NOT NULL,
    snapshot_id         TEXT NOT NULL,
    rules_id            TEXT NOT NULL REFERENCES rule_package,
    build_id            TEXT NOT NULL,
    issued_at           TEXT NOT NULL,
    payload             BLOB NOT NULL,
    payload_hash        TEXT NOT NULL,
    proof_root          TEXT NOT NULL,
    receipt             BLOB NOT NULL,
    receipt_hash        TEXT NOT NULL,
    PRIMARY KEY (tenant_id, passport_version_id),
    UNIQUE (tenant_id, passport_id, snapshot_id, rules_id, build_id, issued_at),
    FOREIGN KEY (tenant_id, snapshot_id) REFERENCES snapshot
);

CREATE TABLE IF NOT EXISTS signature (
    tenant_id           TEXT NOT NULL,
    passport_version_id TEXT NOT NULL,
    key_id              TEXT NOT NULL,
    public_key          BLOB NOT NULL,
    signature           BLOB NOT NULL,
    PRIMARY KEY (tenant_id, passport_version_id),
    FOREIGN KEY (tenant_id, passport_version_id) REFERENCES passport_version
);

CREATE TABLE IF NOT EXISTS artefact (        -- qr.png, passport.json, passport.jsonld, passport.pdf
    tenant_id           TEXT NOT NULL,
    passport_version_id TEXT NOT NULL,
    name                TEXT NOT NULL,
    body                BLOB NOT NULL,
    body_hash           TEXT NOT NULL,
    PRIMARY KEY (tenant_id, passport_version_id, name),
    FOREIGN KEY (tenant_id, passport_version_id) REFERENCES signature
);
