-- Tasks and their steps. Times are microseconds since 1970 (UTC); JSON is stored as text.
BEGIN;

CREATE TABLE tasks (
    id              TEXT PRIMARY KEY,
    tool            TEXT NOT NULL,
    input           TEXT NOT NULL,
    definition_hash TEXT NOT NULL,
    effect          TEXT NOT NULL,
    uid             INTEGER NOT NULL,
    caller          TEXT NOT NULL,
    idempotency_key TEXT,
    created_at      INTEGER NOT NULL,
    state           TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    not_before      INTEGER,
    finished_at     INTEGER,
    end             TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX open_tasks ON tasks (id) WHERE finished_at IS NULL;
CREATE INDEX ended_tasks ON tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX keys ON tasks (uid, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Every step of every task; append-only.
CREATE TABLE steps (
    seq     INTEGER PRIMARY KEY,
    task    TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    at      INTEGER NOT NULL,
    step    TEXT NOT NULL,
    attempt INTEGER NOT NULL
) STRICT;

CREATE INDEX story ON steps (task, seq);

PRAGMA user_version = 1;
COMMIT;
