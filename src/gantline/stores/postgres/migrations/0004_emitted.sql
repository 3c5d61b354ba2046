-- Works with code of migration 3.
-- The domain events and audit entries of a run that completed, as JSON; part of the row of its end.

ALTER TABLE gantline.log ADD COLUMN emitted bytea;
