-- Confirmations with their decisions, and grants.
BEGIN;

ALTER TABLE tasks ADD COLUMN confirmation TEXT;

CREATE INDEX waiting_tasks ON tasks (id) WHERE state = 'awaiting_confirmation';

CREATE TABLE grants (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 2;
COMMIT;
