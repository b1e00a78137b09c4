-- Adds the last signature counter of each key that was ever enrolled: a counter that goes back tells of a copy.
BEGIN;

CREATE TABLE key_counters (
    credential TEXT PRIMARY KEY,
    counter INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 6;
COMMIT;
