-- Schedules, and settlements.
BEGIN;

-- When it is to start, if it was asked for ahead of its time.
ALTER TABLE tasks ADD COLUMN run_at INTEGER;

-- What was said of tasks that ended as unknown: once for each, and never changed.
CREATE TABLE settlements (
    task       TEXT PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    settlement TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX settled_at ON settlements (at);

PRAGMA user_version = 2;
COMMIT;
