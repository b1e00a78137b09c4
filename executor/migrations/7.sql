-- Adds which API keys may decide in the approver's place, by the hash of the key.
BEGIN;

CREATE TABLE decide_scopes (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

PRAGMA user_version = 7;
COMMIT;
