-- Schedules, settlements, and what hooks are owed.
BEGIN;

-- When it is to start, if it was asked for ahead of its time.
ALTER TABLE tasks ADD COLUMN run_at INTEGER;

-- With their sizes, so that whoever adds them up reads no text. The expression is that of the query.
DROP INDEX ended_tasks;
CREATE INDEX ended_tasks ON tasks (finished_at, octet_length(input) + octet_length(end)) WHERE finished_at IS NOT NULL;

-- What was said of tasks that ended as unknown: once for each, and never changed.
CREATE TABLE settlements (
    task       TEXT PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    settlement TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX settled_at ON settlements (at);

-- What hooks are still to be told: written with the end that it tells of, removed when it was
-- acknowledged. It outlives its task, should that be forgotten first.
CREATE TABLE deliveries (
    hook       TEXT NOT NULL,
    task       TEXT NOT NULL,
    event      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    next_at    INTEGER NOT NULL,
    reason     TEXT,
    given_up   INTEGER NOT NULL,
    PRIMARY KEY (hook, task)
) STRICT, WITHOUT ROWID;

CREATE INDEX due ON deliveries (hook, next_at) WHERE given_up = 0;

PRAGMA user_version = 3;
COMMIT;
