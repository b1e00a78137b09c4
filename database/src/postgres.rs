//! PostgreSQL: every read in a `READ ONLY` transaction, one statement in a message, and always rolled back.
//!
//! The server reads and writes all values as text, so that no type needs a decoder of its own: a parameter is sent in its
//! text form, and a query is wrapped in one that casts its columns to text. What the wrapped query means cannot change by
//! that: the server has compiled it by itself before.

mod array;
mod connection;
mod decode;
mod failure;
mod parameter;
mod schema;
mod set_off;

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sql::dialect::Dialect;
use sql::schema::Schema;
use sql::settings::{DatabaseSettings, RowCaps};
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};
use tokio_util::task::TaskTracker;

use self::connection::{PostgresConnection, PostgresConnector};
use self::decode::TextCell;
use self::parameter::TextParameter;
use super::cascades::{self, AfterCascades, CascadeOutcome, CascadeSearch};
use super::error::{DatabaseError, Phase};
use super::pool::{ConnectionSlot, Pool};
use super::replaced::{self, Replacing};
use super::rows::{RowCollector, Rows};
use super::stop::Stop;
use super::write::{ReadChange, WriteMode, WriteOutcome, WriteQuery};
use super::{SqlStatement, statement};

/// How long a server may take to end a statement that was cancelled, and to reset a session.
const CLEANUP_TIME: Duration = Duration::from_secs(5);

/// How long to wait for the end of a statement before it is cancelled again.
const CANCEL_INTERVAL: Duration = Duration::from_millis(250);

/// What is the same in every session, whatever the user's defaults are: how values are written, and how a statement is
/// read. `SET LOCAL`, so that it ends with the transaction, also behind a proxy that shares sessions.
const SESSION: &str = "
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO, YMD';
SET LOCAL IntervalStyle = 'iso_8601';
SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1;
SET LOCAL lc_monetary = 'C';
SET LOCAL standard_conforming_strings = on;
SET LOCAL backslash_quote = safe_encoding;
SET LOCAL transform_null_equals = off;
";

/// Leaves nothing of a session: no transaction, setting, lock, cursor, listener or temporary table. Not `DISCARD ALL`,
/// which would take away the statements that the driver has prepared for itself.
const RESET: &str = "ROLLBACK; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
                     SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";

/// A PostgreSQL database.
#[derive(Debug)]
pub(crate) struct PostgresDatabase {
    pool: Pool<PostgresConnection>,
    connector: PostgresConnector,
    schemas: Option<Vec<String>>,
}

/// A connection in use, in a transaction.
struct PostgresSession {
    connection: PostgresConnection,
    _slot: ConnectionSlot,
}

/// Rows, and whether the server has sent all there are.
struct Reading {
    rows: Rows,
    is_complete: bool,
    affected: Option<u64>,
}

impl PostgresDatabase {
    pub(crate) fn new(settings: &DatabaseSettings, tasks: TaskTracker) -> Result<Self, DatabaseError> {
        let connector = PostgresConnector::new(settings, tasks)?;
        Ok(Self { pool: Pool::new(settings), connector, schemas: settings.schemas.clone() })
    }

    pub(crate) fn close(&self) {
        self.pool.clear();
    }

    pub(crate) async fn read(&self, statement: SqlStatement, caps: RowCaps, stop: Stop) -> Result<Rows, DatabaseError> {
        let session = self.begin("READ ONLY", &stop).await?;
        let client = &session.connection.client;
        let reading = self.supervise(&session, &stop, read(client, &statement, caps)).await;
        match reading {
            Ok(reading) if !reading.is_complete => {
                // The server still sends; it is told to stop, and the rest goes down with the connection.
                self.cancel(&session).await;
                Ok(reading.rows)
            }
            Ok(reading) => {
                self.put_back(session).await;
                Ok(reading.rows)
            }
            Err(error) => Err(self.after_failure(session, error).await),
        }
    }

    pub(crate) async fn write(
        &self,
        query: WriteQuery,
        mode: WriteMode,
        caps: RowCaps,
        stop: Stop,
    ) -> Result<WriteOutcome, DatabaseError> {
        // What is shown before the change is what it changes: whatever happens in between makes it fail.
        let session = self.begin("ISOLATION LEVEL REPEATABLE READ READ WRITE", &stop).await?;
        let client = &session.connection.client;
        let change = async {
            let outcome = change(client, &query, caps).await?;
            let commits = outcome.check(&mode, query.max_affected)?;
            Ok((outcome, commits))
        };
        match self.supervise(&session, &stop, change).await {
            Ok((outcome, commits)) => {
                if commits {
                    commit(client, &stop).await?;
                }
                self.put_back(session).await;
                Ok(outcome)
            }
            Err(error) => Err(self.after_failure(session, error).await),
        }
    }

    pub(crate) async fn schema(&self, stop: Stop) -> Result<Schema, DatabaseError> {
        let session = self.begin("READ ONLY", &stop).await?;
        match self.supervise(&session, &stop, schema::read(&session.connection.client, self.schemas.as_deref())).await {
            Ok(schema) => {
                self.put_back(session).await;
                Ok(schema)
            }
            Err(error) => Err(self.after_failure(session, error).await),
        }
    }

    /// Takes or makes a connection and begins a transaction in it.
    async fn begin(&self, access: &str, stop: &Stop) -> Result<PostgresSession, DatabaseError> {
        let slot = self.pool.slot(stop).await?;
        stop.unless_cancelled(async {
            if let Some(connection) = self.pool.take().filter(|connection| !connection.client.is_closed()) {
                match self.begin_in(&connection, access, stop).await {
                    Ok(()) => return Ok(PostgresSession { connection, _slot: slot }),
                    // It broke while it waited, and so did the others. Nothing was run yet.
                    Err(DatabaseError::Unreachable { .. }) => self.pool.clear(),
                    Err(error) => return Err(error),
                }
            }
            let connection = self.connector.connect().await?;
            self.begin_in(&connection, access, stop).await?;
            Ok(PostgresSession { connection, _slot: slot })
        })
        .await
    }

    async fn begin_in(&self, connection: &PostgresConnection, access: &str, stop: &Stop) -> Result<(), DatabaseError> {
        let limit = stop.limit.as_millis().min(i32::MAX as u128);
        let idle = limit.saturating_add(CLEANUP_TIME.as_millis()).min(i32::MAX as u128);
        let watch = if connection.watches_clients { "SET LOCAL client_connection_check_interval = 2000;" } else { "" };
        let sql = format!(
            "BEGIN TRANSACTION {access}; SET LOCAL statement_timeout = {limit}; SET LOCAL lock_timeout = {limit}; \
             SET LOCAL idle_in_transaction_session_timeout = {idle}; {watch} {SESSION}"
        );
        let begun = tokio::time::timeout(self.connector.connect_timeout(), connection.client.batch_execute(&sql));
        match begun.await {
            Ok(result) => result.map_err(|error| self.connector.failure(&error, stop, Phase::Compiling)),
            Err(_) => Err(self.connector.unreachable("it does not answer".to_owned())),
        }
    }

    /// Works until it is done or has to stop. When this returns, the server works no more.
    async fn supervise<T>(
        &self,
        session: &PostgresSession,
        stop: &Stop,
        work: impl Future<Output = Result<T, PostgresWorkError>>,
    ) -> Result<T, PostgresWorkError> {
        let mut work = pin!(work);
        tokio::select! {
            result = &mut work => result.map_err(|error| error.explained(&self.connector, stop)),
            reason = stop.reason(Instant::now()) => {
                // Until the work ends, however it ends: only then no process of the server is busy with it. More than
                // once, since what ends is what runs at that moment, and a step of the work may begin after it.
                let stopped = Instant::now();
                while stopped.elapsed() < CLEANUP_TIME {
                    self.cancel(session).await;
                    if tokio::time::timeout(CANCEL_INTERVAL, &mut work).await.is_ok() {
                        break;
                    }
                }
                Err(PostgresWorkError::Stopped(reason))
            }
        }
    }

    /// Asks the server to end the statement that runs.
    async fn cancel(&self, session: &PostgresSession) {
        let token = session.connection.client.cancel_token();
        if tokio::time::timeout(CLEANUP_TIME, self.connector.cancel(&token)).await.is_err() {
            tracing::debug!("a server took too long to be told that a statement is cancelled");
        }
    }

    /// Puts a connection back of which nothing is left but the connection; or closes it.
    async fn put_back(&self, session: PostgresSession) {
        let reset = session.connection.client.batch_execute(RESET);
        if let Ok(Ok(())) = tokio::time::timeout(CLEANUP_TIME, reset).await {
            self.pool.put(session.connection);
        }
    }

    /// Keeps the connection if the server only refused the statement.
    async fn after_failure(&self, session: PostgresSession, error: PostgresWorkError) -> DatabaseError {
        match error {
            PostgresWorkError::Refused(error) => {
                if matches!(error, DatabaseError::Unreachable { .. }) {
                    self.pool.clear();
                } else {
                    self.put_back(session).await;
                }
                error
            }
            PostgresWorkError::Stopped(error) => error,
            PostgresWorkError::Driver(error, _) => self.connector.unreachable(error.to_string()),
        }
    }
}

/// Why work in a session ended without a result.
enum PostgresWorkError {
    /// As the driver gives it, until [`PostgresWorkError::explained`].
    Driver(tokio_postgres::Error, Phase),
    /// The session is as good as before.
    Refused(DatabaseError),
    /// Whether the session is good is not known.
    Stopped(DatabaseError),
}

impl PostgresWorkError {
    fn explained(self, connector: &PostgresConnector, stop: &Stop) -> Self {
        match self {
            Self::Driver(error, phase) => Self::Refused(connector.failure(&error, stop, phase)),
            other => other,
        }
    }
}

impl PostgresWorkError {
    fn running(error: tokio_postgres::Error) -> Self {
        Self::Driver(error, Phase::Running)
    }
}

impl From<tokio_postgres::Error> for PostgresWorkError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error, Phase::Compiling)
    }
}

impl From<DatabaseError> for PostgresWorkError {
    fn from(error: DatabaseError) -> Self {
        Self::Refused(error)
    }
}

async fn commit(client: &Client, stop: &Stop) -> Result<(), DatabaseError> {
    match tokio::time::timeout(stop.limit + CLEANUP_TIME, client.batch_execute("COMMIT")).await {
        Ok(Ok(())) => Ok(()),
        // A deferred constraint speaks up now.
        Ok(Err(error)) => Err(error
            .as_db_error()
            .map_or(DatabaseError::OutcomeUnknown, |error| failure::of_server(error, stop, Phase::Running))),
        Err(_) => Err(DatabaseError::OutcomeUnknown),
    }
}

/// Runs a query.
async fn read(client: &Client, bound: &SqlStatement, caps: RowCaps) -> Result<Reading, PostgresWorkError> {
    let described = client.prepare(&bound.sql).await?;
    check_parameters(&described, bound)?;
    if described.columns().is_empty() && statement::first_word(&bound.sql) != "select" {
        let message = "it is not a query, since it gives no rows".to_owned();
        return Err(DatabaseError::ReadOnly { message }.into());
    }
    let Some(wrapped) = wrap(&bound.sql, &described, Wrapping::Query, caps) else {
        return fetch(client, &described, &described, bound, caps).await;
    };
    let executed = client.prepare_typed(&wrapped, described.params()).await?;
    fetch(client, &executed, &described, bound, caps).await
}

/// Runs a change, with the rows that it touches before and after it.
async fn change(client: &Client, query: &WriteQuery, caps: RowCaps) -> Result<WriteOutcome, PostgresWorkError> {
    let all = query.caps(caps);
    let mut before = match &query.touched {
        Some(touched) => Some(whole(read(client, &touched.select, all).await?)?),
        None => None,
    };
    let again = read_all(client, query.read_hidden(before.as_ref(), Dialect::Postgres), all).await?;
    before = WriteQuery::with_hidden(again, before);
    let mut tried = None;
    if let Some(replacing) = query.replacing() {
        client.batch_execute(replaced::SAVEPOINT).await?;
        let written = replacing.written(execute(client, query.run(), all).await?.0)?;
        end_of_statement(client, query).await?;
        replacing.check_found(&written, &look_up(client, replacing, &written, all).await?)?;
        tried = Some(settled(client, query, written.clone(), all).await?);
        client.batch_execute(replaced::ROLLBACK).await?;
        before = Some(look_up(client, replacing, &written, all).await?);
    }
    let search = cascades_before(client, query, before.as_ref(), all).await?;
    let (returned, rows_affected) = execute(client, query.run(), all).await?;
    end_of_statement(client, query).await?;
    let mut cascaded = CascadeOutcome::default();
    if let Some(search) = search {
        let mut rows = AfterCascades::default();
        for (table, statement) in search.read_after() {
            rows.add(table, whole(read(client, &statement, cascades::READ).await?)?);
        }
        cascaded = search.outcome(rows, caps);
    }
    let mut after = read_all(client, query.read_after(before.as_ref(), Dialect::Postgres), all).await?;
    if let Some(settling) = query.settling() {
        after = Some(settled(client, query, settling.written(returned.clone())?, all).await?);
    }
    Ok(query
        .outcome(ReadChange { rows_affected, returned, before, after, tried, cascades: cascaded, file: None }, caps)?)
}

/// Finds the rows of other tables that foreign keys change with the change; `None` if nothing follows, or if the user of the
/// database may change them with it and not read them.
async fn cascades_before<'a>(
    client: &Client,
    query: &'a WriteQuery,
    before: Option<&Rows>,
    all: RowCaps,
) -> Result<Option<CascadeSearch<'a>>, PostgresWorkError> {
    let from = match query.read_cascades_from(before) {
        Some(from) => Some(whole(read(client, from, all).await?)?),
        None => None,
    };
    let Some(mut search) = query.cascade_search(from.as_ref().or(before), Dialect::Postgres) else { return Ok(None) };
    client.batch_execute(replaced::SAVEPOINT).await?;
    while let Some(statement) = search.next() {
        match read(client, &statement, cascades::READ).await {
            Ok(found) => search.add(whole(found)?),
            Err(PostgresWorkError::Driver(error, _)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                client.batch_execute(replaced::ROLLBACK).await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(search))
}

/// Runs a statement that changes rows. Returns the rows that it returns, if it does, and how many it changed.
async fn execute(
    client: &Client,
    bound: &SqlStatement,
    all: RowCaps,
) -> Result<(Option<Rows>, u64), PostgresWorkError> {
    let described = client.prepare(&bound.sql).await?;
    check_parameters(&described, bound)?;
    let Some(wrapped) = wrap(&bound.sql, &described, Wrapping::Change, all) else {
        let parameters = bound.parameters.iter().map(TextParameter);
        return Ok((None, client.execute_raw(&described, parameters).await.map_err(PostgresWorkError::running)?));
    };
    let executed = client.prepare_typed(&wrapped, described.params()).await?;
    // The server changes every row before it sends the first one. All are read, since it counts them at the end.
    let unbounded = RowCaps { rows: usize::MAX, ..all };
    let mut reading = whole_reading(fetch(client, &executed, &described, bound, unbounded).await?)?;
    if reading.rows.rows.len() > all.rows {
        reading.rows.rows.truncate(all.rows);
        reading.rows.truncation.ended_by = Some(super::RowCap::Rows(all.rows));
    }
    Ok((Some(reading.rows), reading.affected.unwrap_or_default()))
}

/// Reads the rows that have the keys of those that were written.
async fn look_up(
    client: &Client,
    replacing: Replacing<'_>,
    written: &Rows,
    all: RowCaps,
) -> Result<Rows, PostgresWorkError> {
    let found = read_all(client, replacing.lookups(written, Dialect::Postgres), all).await?;
    Ok(found.unwrap_or_default().distinct())
}

/// The rows that a change wrote, as they are after its triggers.
async fn settled(client: &Client, query: &WriteQuery, written: Rows, all: RowCaps) -> Result<Rows, PostgresWorkError> {
    let Some(settling) = query.settling() else { return Ok(written) };
    let found = look_up(client, settling, &written, all).await?;
    Ok(query.settle(written, found)?)
}

/// Runs what waits for the end of the transaction, if the rows are looked at.
async fn end_of_statement(client: &Client, query: &WriteQuery) -> Result<(), PostgresWorkError> {
    if query.touched.is_none() && query.written.is_none() {
        return Ok(());
    }
    client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await.map_err(PostgresWorkError::running)
}

/// The rows of statements that read the same columns; `None` without any statement.
async fn read_all(
    client: &Client,
    statements: Vec<SqlStatement>,
    all: RowCaps,
) -> Result<Option<Rows>, PostgresWorkError> {
    let mut rows = None;
    for statement in statements {
        Rows::join(&mut rows, whole(read(client, &statement, all).await?)?);
    }
    Ok(rows)
}

/// Refuses rows that were not read to their end: the rest would be in the way of the next statement.
fn whole_reading(reading: Reading) -> Result<Reading, PostgresWorkError> {
    if reading.is_complete {
        return Ok(reading);
    }
    let message = "the rows are too many to be shown, change fewer at a time".to_owned();
    Err(PostgresWorkError::Stopped(DatabaseError::DryRunImpossible { reason: message }))
}

fn whole(reading: Reading) -> Result<Rows, PostgresWorkError> {
    whole_reading(reading).map(|reading| reading.rows)
}

fn check_parameters(statement: &Statement, bound: &SqlStatement) -> Result<(), DatabaseError> {
    let (expected, given) = (statement.params().len(), bound.parameters.len());
    if expected == given { Ok(()) } else { Err(DatabaseError::ParameterCount { expected, given }) }
}

/// How a statement stands inside the one that casts its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapping {
    Query,
    /// With `RETURNING`; data is changed only at the top level.
    Change,
}

/// Returns the statement that gives the same rows as text, each cell at most a little longer than its cap. `None` if the
/// statement can only stand alone (`EXPLAIN`, `SHOW`): those give text by themselves.
fn wrap(sql: &str, described: &Statement, wrapping: Wrapping, caps: RowCaps) -> Option<String> {
    let count = described.columns().len();
    let is_query = matches!(statement::first_word(sql).as_str(), "select" | "with" | "values" | "table");
    if count == 0 || (wrapping == Wrapping::Query && !is_query) {
        return None;
    }
    let names: Vec<String> = (1..=count).map(|number| format!("c{number}")).collect();
    // Bytes are two digits each. One more than fits shows that there is more.
    let most = caps.cell_bytes.saturating_mul(2).saturating_add(8).min(i32::MAX as usize);
    let columns: Vec<String> = names
        .iter()
        .zip(described.columns())
        .map(|(name, column)| match *column.type_() {
            Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8 | Type::UUID => {
                format!("q.{name}::pg_catalog.text")
            }
            _ => format!("pg_catalog.left(q.{name}::pg_catalog.text, {most})"),
        })
        .collect();
    let (columns, names) = (columns.join(", "), names.join(", "));
    let sql = sql.trim_end().trim_end_matches(';');
    Some(match wrapping {
        // The line break ends a comment.
        Wrapping::Query => {
            let limit = caps.rows.saturating_add(1).min(i32::MAX as usize);
            format!("SELECT {columns} FROM (\n{sql}\n) AS q({names}) LIMIT {limit}")
        }
        Wrapping::Change => format!("WITH q({names}) AS (\n{sql}\n) SELECT {columns} FROM q"),
    })
}

/// Runs `executed` and reads its rows as those of `described`.
async fn fetch(
    client: &Client,
    executed: &Statement,
    described: &Statement,
    bound: &SqlStatement,
    caps: RowCaps,
) -> Result<Reading, PostgresWorkError> {
    let columns = described.columns().iter().map(|column| (column.name().to_owned(), column.type_().name().to_owned()));
    let mut collector = RowCollector::new(columns, caps);
    let parameters = bound.parameters.iter().map(TextParameter);
    let mut stream = pin!(client.query_raw(executed, parameters).await.map_err(PostgresWorkError::running)?);
    while let Some(row) = stream.try_next().await.map_err(PostgresWorkError::running)? {
        let mut cells = Vec::with_capacity(described.columns().len());
        for (index, column) in described.columns().iter().enumerate() {
            let text: Option<TextCell> = row.try_get(index)?;
            cells.push(decode::cell(text, column.type_()));
        }
        if !collector.push(cells) {
            // One row too many was asked for; whether it was the last one shows at the next look.
            let is_complete = matches!(stream.try_next().await, Ok(None));
            return Ok(Reading { rows: collector.finish(), is_complete, affected: None });
        }
    }
    let affected = stream.rows_affected();
    Ok(Reading { rows: collector.finish(), is_complete: true, affected })
}
