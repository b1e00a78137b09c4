-- Schedules, settlements and hook deliveries.
BEGIN;

-- The time that the task was scheduled for, if any.
ALTER TABLE tasks ADD COLUMN run_at INTEGER;

-- Contains the sizes, so that retention does not read the JSON. The expression must equal the one in the query.
DROP INDEX ended_tasks;
CREATE INDEX ended_tasks ON tasks (finished_at, octet_length(input) + octet_length(end)) WHERE finished_at IS NOT NULL;

-- What happened to tasks that ended as `unknown`: one row per task, never changed.
CREATE TABLE settlements (
    task       TEXT PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    settlement TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX settled_at ON settlements (at);

-- Events to deliver to hooks: written together with the end of the task, removed when acknowledged. A delivery stays
-- even if its task is forgotten first.
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
