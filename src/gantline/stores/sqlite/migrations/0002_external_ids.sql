-- Works with code of migration 2.
-- The id that a job came with from outside: a dedupe key of its tenant, of kind 'id'. `id` is ours.

ALTER TABLE gantline_job ADD COLUMN external_id BLOB CHECK (length(external_id) = 16);
