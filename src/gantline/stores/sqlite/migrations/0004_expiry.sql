-- Works with code of migration 4.
-- When a job expires: if no run of it has begun by then, none begins. In the row of the queue only while
-- it waits as it was submitted, so that the index holds nothing else, and nothing of most jobs.

ALTER TABLE gantline_job ADD COLUMN expires_at INTEGER;
ALTER TABLE gantline_ready ADD COLUMN expires_at INTEGER CHECK (expires_at IS NULL OR version = 1);

CREATE INDEX gantline_ready_expiring ON gantline_ready (expires_at, job_id) WHERE expires_at IS NOT NULL;
