-- What was said of tasks that ended as unknown: once for each, and never changed.
BEGIN;

CREATE TABLE settlements (
    task       TEXT PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    settlement TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX settled_at ON settlements (at);

PRAGMA user_version = 2;
COMMIT;
