-- Works with code of migration 2.
-- The domain events and audit entries of a run that completed, as JSON; part of the row of its end.

ALTER TABLE gantline_log ADD COLUMN emitted BLOB;
