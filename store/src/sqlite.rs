//! The store in one SQLite file: write-ahead log, `synchronous=FULL`, one transaction per commit.
//!
//! If an executor is killed between writing and syncing, the next one still reads that data from the page cache. So
//! opening the store first makes everything durable that can be read. A damaged file is never repaired or replaced
//! here; that is left to a human, see `sqlite/damage.rs`.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fs, io};

use ground::base::webauthn::Base64Url;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, Digest};
use ground::task::decide_scope::DecideScope;
use ground::task::grant::{Grant, GrantId};
use ground::task::notes::TaskNotes;
use jiff::Timestamp;
use protocol::fault;
use protocol::resolution::Resolution;
use protocol::task::{State, Step, TaskId};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Change, ConfirmationRecord, EndedRecord, RecordedStep, Store, StoreError};
use crate::retention::RetainedTask;
use damage::{DamageGuard, OpenedFile};

mod damage;
mod decide_scopes;
mod key_counters;
mod log;
mod outbox;
pub mod records;
mod task_rows;

pub use outbox::undelivered;
use task_rows::{accept, first_steps, record_transition};

/// The schema, and then the migrations to later ones. Each runs in a transaction that also sets `user_version`.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/7.sql")];
/// The `user_version` after each of the migrations. Lower ones were never released.
const VERSIONS: [i64; MIGRATIONS.len()] = [7];

/// How long to wait for another process that holds a lock on the database, such as a backup or the `sqlite3` shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes the log into the database file and truncates it.
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// A store in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    // After `connection`, so that it is closed later.
    opened: OpenedFile,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

impl SqliteStore {
    /// Opens the store at `path` and migrates its schema. Creates the file and its folder (mode 0700) if they do not
    /// exist. An empty file is not taken for a new store: its tasks were lost.
    ///
    /// Everything that can be read when this returns is durable.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(StoreError::Folder)?;
        }
        let guard = DamageGuard::new(path);
        guard.check(guard.check_files())?;
        if !path.exists() {
            create(path)?;
        }
        guard.check(Self::open_database(path, guard.needs_integrity_check()))
    }

    fn open_database(path: &Path, check_integrity: bool) -> Result<Self, StoreError> {
        // Before it is opened: SQLite opens a file that it may not write to for reading.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(StoreError::Folder)?;
        let opened = OpenedFile::open(path)?;
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // What is forgotten is overwritten.
        connection.pragma_update(None, "secure_delete", true)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        for migration in &MIGRATIONS[known_schema(&connection)?..] {
            connection.execute_batch(migration)?;
        }
        damage::check_schema(&connection, &MIGRATIONS)?;
        if check_integrity {
            damage::check_integrity(&connection)?;
        }
        // Syncs the content of the log as part of the file: the log may have been written without a sync, or its sync
        // may have failed, which a later sync of the log would not report.
        connection.query_row(CHECKPOINT, [], |_| Ok(()))?;
        Ok(Self { connection, path: path.to_owned(), opened })
    }

    /// Fails if something happened to the file that SQLite does not notice. Then the file stays as it is.
    fn check_file(&self) -> Result<(), StoreError> {
        let checked = self.opened.check(&self.path);
        // Another file at the path gets no log that does not belong to it.
        if checked.is_err() && !self.opened.is_replaced(&self.path) {
            self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
        DamageGuard::new(&self.path).check(checked)
    }

    /// Returns whether the checkpoint succeeded.
    fn checkpoint(&self) -> bool {
        matches!(self.connection.query_row(CHECKPOINT, [], |row| row.get::<_, i64>(0)), Ok(0))
    }

    fn tasks(&self, condition: &str, parameters: impl rusqlite::Params) -> Result<Vec<Task>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE {condition}");
        self.read(&sql, parameters, task)
    }

    /// Runs a query and maps each row.
    fn read<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        map: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let read = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query(parameters)?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(map(row)?);
            }
            Ok(found)
        };
        DamageGuard::new(&self.path).check(read())
    }

    fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let mut changes = changes.iter();
        while let Some(change) = changes.next() {
            match change {
                Change::Accept(task) => {
                    let steps = first_steps(task, changes.as_slice());
                    accept(&transaction, task, &steps)?;
                    changes = changes.as_slice()[steps.len()..].iter();
                }
                Change::Transition(step) => record_transition(&transaction, step)?,
                Change::ReplaceQuestion { id, expected, confirmation } => {
                    replace_question(&transaction, *id, *expected, confirmation)?;
                }
                Change::Note { id, attempt, notes } => note(&transaction, *id, *attempt, notes)?,
                Change::Grant { grant, expected_uses } => save_grant(&transaction, grant, *expected_uses)?,
                Change::KeyCounter { credential, counter } => key_counters::save(&transaction, credential, *counter)?,
                Change::DecideScope(scope) => decide_scopes::save(&transaction, scope)?,
                Change::Resolve(id, resolution) => resolve(&transaction, *id, resolution)?,
                Change::Delivery(delivery, state) => outbox::record_delivery(&transaction, delivery, *state)?,
            }
        }
        fault::point("commit", "inside");
        Ok(transaction.commit()?)
    }
}

impl Store for SqliteStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.check_file()?;
        if changes.is_empty() {
            return Ok(());
        }
        fault::point("commit", "before");
        let written = match self.write(changes) {
            // A checkpoint may free enough space in the log.
            Err(error) if error.is_disk_full() && self.checkpoint() => self.write(changes),
            outcome => outcome,
        };
        DamageGuard::new(&self.path).check(written)?;
        fault::point("commit", "after");
        Ok(())
    }

    fn open_tasks(&self) -> Result<Vec<Task>, StoreError> {
        self.tasks("finished_at IS NULL ORDER BY id", [])
    }

    fn task(&self, id: TaskId) -> Result<Option<Task>, StoreError> {
        Ok(self.tasks("id = ?1", [id.to_string()])?.pop())
    }

    fn task_by_key(&self, uid: u32, key: &str) -> Result<Option<Task>, StoreError> {
        Ok(self.tasks("uid = ?1 AND idempotency_key = ?2", params![uid, key])?.pop())
    }

    fn ended_since(&self, since: Timestamp) -> Result<Vec<EndedRecord>, StoreError> {
        let sql =
            "SELECT id, tool, caller, created_at, state, EXISTS (SELECT 1 FROM resolutions WHERE task = id) FROM tasks
                   WHERE finished_at >= ?1 OR id IN (SELECT task FROM resolutions WHERE at >= ?1)
                   ORDER BY finished_at";
        self.read(sql, [since.as_microsecond()], |row| {
            let caller: String = row.get(2)?;
            Ok(EndedRecord {
                id: parse(row.get(0)?)?,
                tool: parse(row.get(1)?)?,
                caller: from_json(&caller)?,
                created_at: time(row.get(3)?)?,
                state: row.get::<_, String>(4)?.parse().map_err(StoreError::Malformed)?,
                is_resolved: row.get(5)?,
            })
        })
    }

    fn confirmations_since(&self, since: Timestamp) -> Result<Vec<ConfirmationRecord>, StoreError> {
        // A task that ended before `since` was asked before it. Two queries, so that each can use an index.
        let sql = "SELECT uid, confirmation FROM tasks WHERE finished_at IS NULL AND confirmation IS NOT NULL
                   UNION ALL
                   SELECT uid, confirmation FROM tasks WHERE finished_at >= ?1 AND confirmation IS NOT NULL";
        let records = self.read(sql, [since.as_microsecond()], |row| {
            let confirmation: String = row.get(1)?;
            Ok(ConfirmationRecord::of(row.get(0)?, &from_json(&confirmation)?))
        })?;
        let mut records: Vec<_> = records.into_iter().flatten().filter(|record| record.at >= since).collect();
        records.sort_by_key(|record| record.at);
        Ok(records)
    }

    fn retained(&self) -> Result<Vec<RetainedTask>, StoreError> {
        // A covering index answers this query without reading the JSON.
        let sql = "SELECT id, finished_at, octet_length(input) + octet_length(end) FROM tasks
                   WHERE finished_at IS NOT NULL";
        self.read(sql, [], |row| {
            let bytes: i64 = row.get(2)?;
            Ok(RetainedTask { id: parse(row.get(0)?)?, ended_at: time(row.get(1)?)?, bytes: bytes.unsigned_abs() })
        })
    }

    fn ended_in_session(&self, uid: u32, session: &str) -> Result<Vec<TaskId>, StoreError> {
        let sql = "SELECT id FROM tasks
                   WHERE finished_at IS NOT NULL AND uid = ?1 AND caller ->> 'session' = ?2 ORDER BY id";
        self.read(sql, params![uid, session], |row| parse(row.get(0)?))
    }

    fn key_counters(&self) -> Result<Vec<(Base64Url, u32)>, StoreError> {
        key_counters::read(&self.connection)
    }

    fn decide_scopes(&self) -> Result<Vec<DecideScope>, StoreError> {
        decide_scopes::read(&self.connection)
    }

    fn grants(&self) -> Result<Vec<Grant>, StoreError> {
        grants(&self.connection)
    }

    fn steps(&self, id: TaskId) -> Result<Vec<RecordedStep>, StoreError> {
        steps(&self.connection, id)
    }

    fn forget(&mut self, ids: &[TaskId]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        {
            let mut statement =
                transaction.prepare_cached("DELETE FROM tasks WHERE id = ?1 AND finished_at IS NOT NULL")?;
            for id in ids {
                statement.execute([id.to_string()])?;
            }
        }
        transaction.commit()?;
        if !ids.is_empty() {
            // The log still has what was forgotten. A reader that holds it up leaves it to the next checkpoint.
            self.connection.query_row(CHECKPOINT, [], |_| Ok(()))?;
        }
        Ok(())
    }

    fn forget_grants(&mut self, ids: &[GrantId]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        for id in ids {
            transaction.prepare_cached("DELETE FROM grants WHERE id = ?1")?.execute([id.to_string()])?;
        }
        Ok(transaction.commit()?)
    }
}

fn replace_question(
    transaction: &Transaction<'_>,
    id: TaskId,
    expected: Digest,
    confirmation: &Confirmation,
) -> Result<(), StoreError> {
    let from = State::AwaitingConfirmation;
    let (id_text, digest, queued) = (id.to_string(), expected.to_string(), State::Queued.as_str());
    let changed = transaction
        .prepare_cached(
            "UPDATE tasks SET confirmation = ?3
             WHERE id = ?1 AND state IN (?4, ?5) AND confirmation ->> 'digest' = ?2",
        )?
        .execute(params![id_text, digest, to_json(confirmation)?, from.as_str(), queued])?;
    if changed == 1 { Ok(()) } else { Err(StoreError::Conflict { id, from, attempt: 0 }) }
}

fn note(transaction: &Transaction<'_>, id: TaskId, attempt: u32, notes: &TaskNotes) -> Result<(), StoreError> {
    let changed = transaction
        .prepare_cached("UPDATE tasks SET notes = ?3 WHERE id = ?1 AND attempt = ?2 AND finished_at IS NULL")?
        .execute(params![id.to_string(), attempt, to_json(notes)?])?;
    if changed == 1 { Ok(()) } else { Err(StoreError::Conflict { id, from: State::Running, attempt }) }
}

fn save_grant(transaction: &Transaction<'_>, grant: &Grant, expected_uses: Option<u32>) -> Result<(), StoreError> {
    let id = grant.id.to_string();
    let text = to_json(grant)?;
    let changed = match expected_uses {
        None => transaction
            .prepare_cached("INSERT INTO grants (id, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
            .execute(params![id, text])?,
        Some(uses) => transaction
            .prepare_cached("UPDATE grants SET body = ?2 WHERE id = ?1 AND body ->> 'uses' = ?3")?
            .execute(params![id, text, uses])?,
    };
    if changed == 1 { Ok(()) } else { Err(StoreError::GrantConflict(grant.id)) }
}

fn grants(connection: &Connection) -> Result<Vec<Grant>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT body FROM grants ORDER BY id")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.map(|row| from_json(&row?)).collect()
}

fn steps(connection: &Connection, id: TaskId) -> Result<Vec<RecordedStep>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT at, step, attempt FROM steps WHERE task = ?1 ORDER BY seq")?;
    let rows = statement.query_map([id.to_string()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, u32>(2)?))
    })?;
    rows.map(|row| {
        let (at, step, attempt) = row?;
        Ok(RecordedStep { at: time(at)?, step: from_json(&step)?, attempt })
    })
    .collect()
}

fn resolve(transaction: &Transaction<'_>, id: TaskId, resolution: &Resolution) -> Result<(), StoreError> {
    let (name, at) = (id.to_string(), resolution.at.as_microsecond());
    let resolved = transaction
        .prepare_cached(
            "INSERT INTO resolutions (task, at, resolution)
             SELECT id, ?2, ?3 FROM tasks WHERE id = ?1 AND state = ?4
             ON CONFLICT DO UPDATE SET at = excluded.at, resolution = excluded.resolution
             WHERE resolutions.resolution ->> 'by' = 'caller' AND excluded.resolution ->> 'by' = 'human'",
        )?
        .execute(params![name, at, to_json(resolution)?, State::Unknown.as_str()])?;
    if resolved != 1 {
        return Err(StoreError::NotResolvable(id));
    }
    transaction
        .prepare_cached(
            "INSERT INTO steps (task, at, step, attempt) SELECT id, ?2, ?3, attempt FROM tasks WHERE id = ?1",
        )?
        .execute(params![name, at, to_json(&Step::Resolve)?])?;
    Ok(())
}

const COLUMNS: &str = "id, tool, input, definition_hash, effect, caller, idempotency_key, created_at, state, attempt, \
                       not_before, confirmation, end, (SELECT resolution FROM resolutions WHERE task = id) AS resolution, \
                       run_at, notes";

/// Reads a task from a row that has [`COLUMNS`].
fn task(row: &Row<'_>) -> Result<Task, StoreError> {
    let at = |column: &str| row.get::<_, Option<i64>>(column);
    Ok(Task {
        id: parse(row.get("id")?)?,
        tool: parse(row.get("tool")?)?,
        input: json(row, "input")?,
        definition_hash: row.get("definition_hash")?,
        effect: json(row, "effect")?,
        caller: json(row, "caller")?,
        idempotency_key: row.get("idempotency_key")?,
        created_at: time(row.get("created_at")?)?,
        state: row.get::<_, String>("state")?.parse().map_err(StoreError::Malformed)?,
        attempt: row.get("attempt")?,
        not_before: at("not_before")?.map(time).transpose()?,
        confirmation: optional_json(row, "confirmation")?,
        end: optional_json(row, "end")?,
        resolution: optional_json(row, "resolution")?,
        run_at: at("run_at")?.map(time).transpose()?,
        notes: optional_json(row, "notes")?.unwrap_or_default(),
    })
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> Result<T, StoreError> {
    from_json(&row.get::<_, String>(column)?)
}

fn optional_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> Result<Option<T>, StoreError> {
    row.get::<_, Option<String>>(column)?.as_deref().map(from_json).transpose()
}

fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Malformed(error.to_string()))
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Malformed(error.to_string()))
}

fn parse<T: FromStr>(text: String) -> Result<T, StoreError> {
    text.parse().map_err(|_| StoreError::Malformed(text))
}

fn time(microseconds: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(microseconds).map_err(|error| StoreError::Malformed(error.to_string()))
}

/// Creates an empty store under a temporary name, then renames it: a store at `path` is never half created.
fn create(path: &Path) -> Result<(), StoreError> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StoreError::Folder(error)),
        _ => {}
    }
    let connection = Connection::open(&new)?;
    for migration in MIGRATIONS {
        connection.execute_batch(migration)?;
    }
    drop(connection);
    fs::rename(&new, path).map_err(StoreError::Folder)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::Folder)
}

/// How many of the migrations the store has seen.
fn known_schema(connection: &Connection) -> Result<usize, StoreError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        return Ok(0);
    }
    let known = VERSIONS.iter().position(|version| *version == found);
    known.map(|place| place + 1).ok_or(StoreError::OtherSchema { found, known: VERSIONS[VERSIONS.len() - 1] })
}

/// Like [`inspect`] of a store in use, but only of a file that is small enough to check while a command waits.
pub fn inspect_small(path: &Path) -> Result<(), StoreError> {
    if DamageGuard::new(path).is_quickly_checked() { inspect(path, true) } else { Ok(()) }
}

/// Checks the whole store at `path`, which need not exist, and changes nothing; for `doctor` and `executor status`.
/// `is_in_use` says that an executor may write to it meanwhile.
pub fn inspect(path: &Path, is_in_use: bool) -> Result<(), StoreError> {
    let guard = DamageGuard::new(path);
    let inspected = (|| {
        if !is_in_use {
            guard.check_files()?;
        }
        if !path.exists() {
            return Ok(());
        }
        let connection = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let known = known_schema(&connection)?;
        damage::check_schema(&connection, &MIGRATIONS[..known])?;
        damage::check_integrity(&connection)?;
        if known == MIGRATIONS.len() {
            let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM tasks"))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                task(row)?;
            }
            grants(&connection)?;
        }
        Ok(())
    })();
    guard.check_only(inspected)
}

#[cfg(test)]
mod tests;
