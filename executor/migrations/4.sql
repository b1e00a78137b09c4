-- Renames settlements to resolutions.
BEGIN;

ALTER TABLE settlements RENAME TO resolutions;
ALTER TABLE resolutions RENAME COLUMN settlement TO resolution;

DROP INDEX settled_at;
CREATE INDEX resolved_at ON resolutions (at);

UPDATE steps SET step = '"resolve"' WHERE step = '"settle"';

PRAGMA user_version = 4;
COMMIT;
