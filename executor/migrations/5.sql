-- Adds what is known of a task's attempts so far: the last failure, and the job that a server works on.
BEGIN;

ALTER TABLE tasks ADD COLUMN notes TEXT;

PRAGMA user_version = 5;
COMMIT;
