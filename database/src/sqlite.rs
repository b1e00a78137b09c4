//! SQLite: a file, opened anew for every statement, so that none finds what another left behind.
//!
//! A read has a handle that is opened for reading, an authorizer that allows reading only, and a defensive connection
//! that does not trust the schema. A file that does not exist is never created.

mod authorizer;
mod schema;
mod set_off;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, ffi};
use serde_json::Value as Json;
use sql::dialect::Dialect;
use sql::schema::Schema;
use sql::settings::{DatabaseSettings, RowCaps};
use sql::value::Value;
use sql::value::bytes_to_json;

use super::cascades::{self, AfterCascades, CascadeOutcome};
use super::error::{ConstraintKind, DatabaseError, shortened, without_quoted};
use super::pool::Pool;
use super::replaced::{self, Replacing};
use super::rows::{RowCollector, Rows, float_to_json};
use super::stop::Stop;
use super::write::{ReadChange, WriteMode, WriteOutcome, WriteQuery};
use super::{Access, SqlStatement};

/// How many instructions of SQLite's machine run between two looks at the clock.
const INSTRUCTIONS_PER_CHECK: i32 = 1_000;
/// The longest value that a statement may build or read. SQLite's own limit is a thousand million bytes.
const MAX_VALUE_BYTES: i32 = 16 << 20;
const MAX_STATEMENT_BYTES: i32 = 1 << 20;

/// A SQLite database.
#[derive(Debug)]
pub(crate) struct SqliteDatabase {
    path: String,
    /// Only its slots are used.
    pool: Pool<()>,
}

impl SqliteDatabase {
    pub(crate) fn new(settings: &DatabaseSettings) -> Self {
        Self { path: settings.path(), pool: Pool::new(settings) }
    }

    pub(crate) async fn read(&self, statement: SqlStatement, caps: RowCaps, stop: Stop) -> Result<Rows, DatabaseError> {
        self.perform(Access::Read, stop, move |connection| {
            authorizer::allow_reads(connection)?;
            query(connection, &statement, caps)
        })
        .await
    }

    pub(crate) async fn write(
        &self,
        query: WriteQuery,
        mode: WriteMode,
        caps: RowCaps,
        stop: Stop,
    ) -> Result<WriteOutcome, DatabaseError> {
        self.perform(Access::Write, stop, move |connection| write(connection, &query, &mode, caps)).await
    }

    pub(crate) async fn schema(&self, stop: Stop) -> Result<Schema, DatabaseError> {
        self.perform(Access::Read, stop, schema::read).await
    }

    /// Opens the file and works with it on a thread that may block. Ends the work when it has to stop.
    async fn perform<T: Send + 'static>(
        &self,
        access: Access,
        stop: Stop,
        work: impl FnOnce(&mut Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let _slot = self.pool.slot(&stop).await?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let (path, limit, flag) = (self.path.clone(), stop.limit, Arc::clone(&interrupted));
        let mut thread = tokio::task::spawn_blocking(move || {
            let mut connection = open(&path, access, limit)?;
            let deadline = Instant::now() + limit;
            let is_over = move || flag.load(Ordering::Relaxed) || Instant::now() >= deadline;
            connection.progress_handler(INSTRUCTIONS_PER_CHECK, Some(is_over)).map_err(|error| failure(&error))?;
            work(&mut connection)
        });
        let result = tokio::select! {
            result = &mut thread => result,
            () = stop.cancelled() => {
                interrupted.store(true, Ordering::Relaxed);
                thread.await
            }
        };
        match result {
            Ok(Err(DatabaseError::Cancelled)) if !interrupted.load(Ordering::Relaxed) => Err(stop.timeout()),
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(DatabaseError::Cancelled),
        }
    }
}

/// Opens a database that exists, and closes every way out of it.
fn open(path: &str, access: Access, limit: Duration) -> Result<Connection, DatabaseError> {
    let unreachable = |reason: String| DatabaseError::Unreachable { address: path.to_owned(), reason };
    match Path::new(path).metadata() {
        // Opening a pipe would wait for its other end.
        Ok(metadata) if !metadata.is_file() => return Err(unreachable("it is not a file".to_owned())),
        Ok(_) => {}
        Err(error) => return Err(unreachable(error.to_string())),
    }
    let mode = match access {
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    // Without `SQLITE_OPEN_URI`, so that a path that begins with `file:` is a path.
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| unreachable(failure(&error).to_string()))?;
    close_ways_out(&connection, access, limit).map_err(|error| match failure(&error) {
        DatabaseError::Other { message, .. } => unreachable(message),
        other => other,
    })?;
    Ok(connection)
}

fn close_ways_out(connection: &Connection, access: Access, limit: Duration) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false)?;
    // `"name"` is a name, as the guard reads it, and never a text.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT_BYTES),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    connection.busy_timeout(limit)?;
    if access == Access::Read {
        connection.pragma_update(None, "query_only", true)?;
    }
    // Reads the file for the first time, so that one that is not a database is found here.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

fn query(connection: &Connection, bound: &SqlStatement, caps: RowCaps) -> Result<Rows, DatabaseError> {
    let mut statement = prepare(connection, bound)?;
    if !statement.readonly() {
        return Err(DatabaseError::ReadOnly { message: "it is not a query".to_owned() });
    }
    collect(&mut statement, caps)
}

/// Compiles a statement and binds its parameters. More than one statement is an error.
fn prepare<'c>(connection: &'c Connection, bound: &SqlStatement) -> Result<Statement<'c>, DatabaseError> {
    let mut statement = connection.prepare(&bound.sql).map_err(|error| failure(&error))?;
    let (expected, given) = (statement.parameter_count(), bound.parameters.len());
    if expected != given {
        return Err(DatabaseError::ParameterCount { expected, given });
    }
    for (index, value) in bound.parameters.iter().enumerate() {
        statement.raw_bind_parameter(index + 1, parameter(value)).map_err(|error| failure(&error))?;
    }
    Ok(statement)
}

fn parameter(value: &Value) -> ToSqlOutput<'_> {
    use rusqlite::types::Value as Owned;
    match value {
        Value::Null => ToSqlOutput::Owned(Owned::Null),
        Value::Boolean(value) => ToSqlOutput::Owned(Owned::Integer(i64::from(*value))),
        Value::Integer(integer) => ToSqlOutput::Owned(Owned::Integer(*integer)),
        Value::Float(float) => ToSqlOutput::Owned(Owned::Real(*float)),
        Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        // No integer of SQLite is that large; its digits are kept.
        Value::Unsigned(unsigned) => ToSqlOutput::Owned(Owned::Text(unsigned.to_string())),
        Value::List(_) | Value::Document(_) => ToSqlOutput::Owned(Owned::Text(value.to_json().to_string())),
    }
}

/// Runs a statement whose parameters are bound, until its end or a cap.
fn collect(statement: &mut Statement<'_>, caps: RowCaps) -> Result<Rows, DatabaseError> {
    let columns: Vec<(String, Option<String>)> = statement
        .columns()
        .map(|column| (column.name().to_owned(), column.decl_type().map(str::to_lowercase)))
        .collect();
    let count = columns.len();
    let undeclared: Vec<bool> = columns.iter().map(|(_, declared)| declared.is_none()).collect();
    let mut collector =
        RowCollector::new(columns.into_iter().map(|(name, declared)| (name, declared.unwrap_or_default())), caps);
    let (mut storage, mut forms) = (vec![None; count], Vec::new());
    let mut rows = statement.raw_query();
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) => return Err(failure_of_row(&error)),
        };
        let (mut cells, mut form) = (Vec::with_capacity(count), String::with_capacity(count));
        for (index, class) in storage.iter_mut().enumerate() {
            let value = row.get_ref(index).map_err(|error| failure(&error))?;
            *class = class.or_else(|| storage_class(value));
            form.push(storage_class(value).and_then(|class| class.chars().next()).unwrap_or('n'));
            cells.push(cell(value, caps));
        }
        if !collector.push(cells) {
            break;
        }
        forms.push(form);
    }
    let mut rows = Rows { forms, ..collector.finish() };
    for ((column, class), undeclared) in rows.columns.iter_mut().zip(storage).zip(undeclared) {
        if undeclared {
            class.unwrap_or("unknown").clone_into(&mut column.type_name);
        }
    }
    Ok(rows)
}

fn storage_class(value: ValueRef<'_>) -> Option<&'static str> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(_) => Some("integer"),
        ValueRef::Real(_) => Some("real"),
        ValueRef::Text(_) => Some("text"),
        ValueRef::Blob(_) => Some("blob"),
    }
}

fn cell(value: ValueRef<'_>, caps: RowCaps) -> Json {
    // What is cut anyway is not copied: one byte more than the cap is enough to see that it is too long.
    let part = |bytes: &[u8]| bytes[..bytes.len().min(caps.cell_bytes.saturating_add(8))].to_vec();
    match value {
        ValueRef::Null => Json::Null,
        ValueRef::Integer(integer) => Json::from(integer),
        ValueRef::Real(real) => float_to_json(real),
        ValueRef::Text(text) if std::str::from_utf8(text).is_ok() => {
            Json::from(String::from_utf8_lossy(&part(text)).into_owned())
        }
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes_to_json(&part(bytes)),
    }
}

fn write(
    connection: &mut Connection,
    query: &WriteQuery,
    mode: &WriteMode,
    caps: RowCaps,
) -> Result<WriteOutcome, DatabaseError> {
    run(connection, "BEGIN IMMEDIATE")?;
    let outcome = change(connection, query, caps)?;
    authorizer::allow_everything(connection)?;
    // Dropping the connection rolls back.
    if outcome.check(mode, query.max_affected)? {
        run(connection, "COMMIT")?;
    }
    Ok(outcome)
}

fn change(connection: &mut Connection, query: &WriteQuery, caps: RowCaps) -> Result<WriteOutcome, DatabaseError> {
    let whole = query.caps(caps);
    authorizer::allow_reads(connection)?;
    let mut before =
        query.touched.as_ref().map(|touched| self::query(connection, &touched.select, whole)).transpose()?;
    let again = read_all(connection, query.read_hidden(before.as_ref(), Dialect::Sqlite), whole)?;
    before = WriteQuery::with_hidden(again, before);
    let mut tried = None;
    if let Some(replacing) = query.replacing() {
        let (written, rows) = replaced(connection, query, replacing, whole)?;
        (tried, before) = (Some(written), Some(rows));
    }
    let from =
        query.read_cascades_from(before.as_ref()).map(|from| self::query(connection, from, whole)).transpose()?;
    let mut search = query.cascade_search(from.as_ref().or(before.as_ref()), Dialect::Sqlite);
    if let Some(search) = &mut search {
        while let Some(statement) = search.next() {
            search.add(self::query(connection, &statement, cascades::READ)?);
        }
    }
    authorizer::allow_changes(connection)?;
    let (returned, rows_affected) = execute(connection, query.run(), whole)?;
    authorizer::allow_reads(connection)?;
    let mut cascaded = CascadeOutcome::default();
    if let Some(search) = search {
        let mut rows = AfterCascades::default();
        for (table, statement) in search.read_after() {
            rows.add(table, self::query(connection, &statement, cascades::READ)?);
        }
        cascaded = search.outcome(rows, caps);
    }
    let mut after = read_all(connection, query.read_after(before.as_ref(), Dialect::Sqlite), whole)?;
    if let Some(settling) = query.settling() {
        after = Some(settled(connection, query, settling.written(returned.clone())?, whole)?);
    }
    let file = connection.path().map(str::to_owned);
    query.outcome(ReadChange { rows_affected, returned, before, after, tried, cascades: cascaded, file }, caps)
}

/// Runs a statement that changes rows. Returns the rows that it returns, if it does, and how many it changed.
fn execute(connection: &Connection, bound: &SqlStatement, caps: RowCaps) -> Result<(Option<Rows>, u64), DatabaseError> {
    let mut statement = prepare(connection, bound)?;
    if statement.readonly() {
        return Err(DatabaseError::Denied { message: "it changes nothing".to_owned() });
    }
    let returns = statement.column_count() > 0;
    // SQLite changes every row before it returns the first one.
    let rows = collect(&mut statement, caps)?;
    Ok((returns.then_some(rows), connection.changes()))
}

/// The rows of statements that read the same columns; `None` without any statement.
fn read_all(
    connection: &Connection,
    statements: Vec<SqlStatement>,
    caps: RowCaps,
) -> Result<Option<Rows>, DatabaseError> {
    let mut all = None;
    for statement in statements {
        Rows::join(&mut all, query(connection, &statement, caps)?);
    }
    Ok(all)
}

/// The rows that a change wrote, as they are after its triggers.
fn settled(connection: &Connection, query: &WriteQuery, written: Rows, caps: RowCaps) -> Result<Rows, DatabaseError> {
    let Some(settling) = query.settling() else { return Ok(written) };
    let found = read_all(connection, settling.lookups(&written, Dialect::Sqlite), caps)?;
    query.settle(written, found.unwrap_or_default().distinct())
}

/// Returns the rows that a change writes, and those that it replaces. The change is taken back.
fn replaced(
    connection: &mut Connection,
    query: &WriteQuery,
    replacing: Replacing<'_>,
    caps: RowCaps,
) -> Result<(Rows, Rows), DatabaseError> {
    let look_up = |connection: &Connection, written: &Rows| {
        let found = read_all(connection, replacing.lookups(written, Dialect::Sqlite), caps)?;
        Ok::<_, DatabaseError>(found.unwrap_or_default().distinct())
    };
    authorizer::allow_everything(connection)?;
    run(connection, replaced::SAVEPOINT)?;
    authorizer::allow_changes(connection)?;
    let written = replacing.written(execute(connection, query.run(), caps)?.0)?;
    authorizer::allow_reads(connection)?;
    replacing.check_found(&written, &look_up(connection, &written)?)?;
    let tried = settled(connection, query, written.clone(), caps)?;
    authorizer::allow_everything(connection)?;
    run(connection, replaced::ROLLBACK)?;
    authorizer::allow_reads(connection)?;
    let rows = look_up(connection, &written)?;
    Ok((tried, rows))
}

fn run(connection: &Connection, sql: &str) -> Result<(), DatabaseError> {
    connection.execute_batch(sql).map_err(|error| failure(&error))
}

/// An error of a statement that already gave rows: what it quotes may be a value.
fn failure_of_row(error: &rusqlite::Error) -> DatabaseError {
    match failure(error) {
        DatabaseError::Other { sqlstate, message } => {
            DatabaseError::Other { sqlstate, message: without_quoted(&message, &['"', '\'']) }
        }
        DatabaseError::Syntax { message } => {
            DatabaseError::TypeMismatch { message: without_quoted(&message, &['"', '\'']) }
        }
        other => other,
    }
}

/// Translates an error. SQLite tells apart little by codes, so its messages are read; they are the same in every version.
fn failure(error: &rusqlite::Error) -> DatabaseError {
    let (code, message) = match error {
        rusqlite::Error::SqliteFailure(code, message) => (*code, message.clone()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (*error, Some(msg.clone())),
        rusqlite::Error::MultipleStatement => {
            return DatabaseError::Syntax { message: "it is more than one statement".to_owned() };
        }
        other => {
            return DatabaseError::Other { sqlstate: "SQLITE".to_owned(), message: shortened(&other.to_string()) };
        }
    };
    let message = message.unwrap_or_else(|| code.to_string());
    let named = |prefix: &str| message.strip_prefix(prefix).map(|name| name.trim().to_owned());
    match code.code {
        ErrorCode::OperationInterrupted => DatabaseError::Cancelled,
        ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => DatabaseError::ReadOnly { message },
        ErrorCode::ConstraintViolation => constraint(code.extended_code, &message),
        ErrorCode::TypeMismatch => DatabaseError::TypeMismatch { message },
        ErrorCode::Unknown if code.extended_code == ffi::SQLITE_ERROR => {
            if let Some(column) = named("no such column: ") {
                let column = column.split(" - should").next().unwrap_or_default().trim_matches('"').to_owned();
                DatabaseError::UnknownColumn { column }
            } else if let Some(table) = named("no such table: ") {
                DatabaseError::UnknownTable { table }
            } else if message.contains("prohibited") || message.contains("not authorized") {
                DatabaseError::ReadOnly { message }
            } else {
                DatabaseError::Syntax { message: shortened(&message) }
            }
        }
        _ => DatabaseError::Other { sqlstate: format!("SQLITE_{}", code.extended_code), message: shortened(&message) },
    }
}

/// Translates `UNIQUE constraint failed: t.c`, which names columns and never values.
fn constraint(extended_code: i32, message: &str) -> DatabaseError {
    let kind = match extended_code {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            ConstraintKind::Unique
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => ConstraintKind::ForeignKey,
        ffi::SQLITE_CONSTRAINT_NOTNULL => ConstraintKind::NotNull,
        ffi::SQLITE_CONSTRAINT_CHECK => ConstraintKind::Check,
        _ => ConstraintKind::Other,
    };
    // What a trigger raises is its own words, and those may quote a row.
    let named = (kind != ConstraintKind::Other).then(|| message.split_once("constraint failed: ")).flatten();
    DatabaseError::Constraint { kind, constraint: named.map(|(_, name)| name.to_owned()) }
}
