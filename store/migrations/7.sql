-- Tasks and their steps, grants, hook deliveries, and what is known of keys. Times are microseconds since 1970 (UTC); JSON
-- is stored as text.
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
    end             TEXT,
    confirmation    TEXT,
    run_at          INTEGER,
    notes           TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX open_tasks ON tasks (id) WHERE finished_at IS NULL;
CREATE INDEX waiting_tasks ON tasks (id) WHERE state = 'awaiting_confirmation';
-- Contains the sizes, so that retention does not read the JSON. The expression must equal the one in the query.
CREATE INDEX ended_tasks ON tasks (finished_at, octet_length(input) + octet_length(end)) WHERE finished_at IS NOT NULL;
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

-- What happened to tasks that ended as `unknown`: one row per task, never changed.
CREATE TABLE resolutions (
    task       TEXT PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    resolution TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX resolved_at ON resolutions (at);

CREATE TABLE grants (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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

-- The last signature counter of each key that was ever enrolled: a counter that goes back tells of a copy.
CREATE TABLE key_counters (
    credential TEXT PRIMARY KEY,
    counter INTEGER NOT NULL
) STRICT;

-- Which API keys may decide in the approver's place, by the hash of the key.
CREATE TABLE decide_scopes (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

PRAGMA user_version = 7;
COMMIT;
