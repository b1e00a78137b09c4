//! MySQL and MariaDB: every read in a `READ ONLY` transaction, and always rolled back.
//!
//! A statement of a caller is only ever prepared, never sent as a query: the server takes one statement in a message then,
//! whatever the text contains. A read must be a statement that the server describes with columns, since `CALL` and the
//! compound statements of MariaDB can begin a transaction of their own.

mod connection;
mod decode;
mod failure;
mod schema;
mod set_off;
mod trigger_rights;

use std::pin::pin;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Params, Statement, Value as DriverValue};
use mysql_common::named_params::ParsedNamedParams;
use sql::dialect::Dialect;
use sql::guard::OtherRows;
use sql::schema::Schema;
use sql::settings::{DatabaseSettings, RowCaps};
use sql::value::Value;
use tokio::time::Instant;

use self::connection::{Flavor, MysqlConnection, MysqlConnector};
use super::cascades::{self, AfterCascades, CascadeOutcome, CascadeSearch};
use super::error::{DatabaseError, Phase};
use super::pool::{ConnectionSlot, Pool};
use super::replaced::{self, Replacing};
use super::rows::{RowCollector, Rows};
use super::stop::Stop;
use super::write::{ReadChange, WriteMode, WriteOutcome, WriteQuery};
use super::{Access, SqlStatement};

/// How long a server may take to end a statement that was cancelled, and to reset a session.
const CLEANUP_TIME: Duration = Duration::from_secs(5);

/// How long to wait for the end of a statement before it is killed again.
const KILL_INTERVAL: Duration = Duration::from_millis(250);

/// How the server reads a statement: the defaults of each, without the modes that change what quotes and backslashes
/// mean (`ANSI_QUOTES`, `NO_BACKSLASH_ESCAPES`, `PIPES_AS_CONCAT`), whatever the server is configured to.
fn sql_mode(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mysql => {
            "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,\
             NO_ENGINE_SUBSTITUTION"
        }
        Flavor::MariaDb => "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    }
}

/// A MySQL or MariaDB database.
#[derive(Debug)]
pub(crate) struct MysqlDatabase {
    pool: Pool<MysqlConnection>,
    connector: MysqlConnector,
    /// The databases of the server that are there besides the one of the connection.
    others: Vec<String>,
}

/// A connection in use, in a transaction.
struct MysqlSession {
    connection: MysqlConnection,
    slot: ConnectionSlot,
}

/// Why work in a session ended without a result.
enum MysqlWorkError {
    Driver(mysql_async::Error, Phase),
    Refused(DatabaseError),
}

impl MysqlWorkError {
    fn running(error: mysql_async::Error) -> Self {
        Self::Driver(error, Phase::Running)
    }
}

impl From<mysql_async::Error> for MysqlWorkError {
    fn from(error: mysql_async::Error) -> Self {
        Self::Driver(error, Phase::Compiling)
    }
}

impl From<DatabaseError> for MysqlWorkError {
    fn from(error: DatabaseError) -> Self {
        Self::Refused(error)
    }
}

impl MysqlDatabase {
    pub(crate) fn new(settings: &DatabaseSettings) -> Self {
        let others = settings.schemas.clone().unwrap_or_default();
        Self { pool: Pool::new(settings), connector: MysqlConnector::new(settings), others }
    }

    pub(crate) async fn close(&self) {
        for connection in self.pool.drain() {
            drop(tokio::time::timeout(CLEANUP_TIME, connection.conn.disconnect()).await);
        }
    }

    pub(crate) async fn read(&self, statement: SqlStatement, caps: RowCaps, stop: Stop) -> Result<Rows, DatabaseError> {
        let mut session = self.begin(Access::Read, &stop).await?;
        let id = session.connection.conn.id();
        let result = self.supervise(id, &stop, read(&mut session.connection.conn, &statement, caps)).await;
        match result {
            Ok((rows, is_complete)) => {
                if is_complete {
                    self.put_back(session).await;
                } else {
                    self.kill("CONNECTION", id).await;
                }
                Ok(rows)
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
        let mut session = self.begin(Access::Write, &stop).await?;
        let id = session.connection.conn.id();
        let flavor = session.connection.flavor;
        let conn = &mut session.connection.conn;
        let change = async {
            if mode != (WriteMode::Commit { expected: None }) || query.max_affected.is_some() {
                check_engines(conn, &query.statement.sql, &self.others).await?;
            }
            let outcome = change(conn, flavor, &query, caps).await?;
            let commits = outcome.check(&mode, query.max_affected)?;
            Ok((outcome, commits))
        };
        match self.supervise(id, &stop, change).await {
            Ok((outcome, commits)) => {
                if commits {
                    let commit = session.connection.conn.query_drop("COMMIT");
                    match tokio::time::timeout(stop.limit + CLEANUP_TIME, commit).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error @ mysql_async::Error::Server(_))) => {
                            return Err(self.connector.failure(&error, &stop, Phase::Running));
                        }
                        Ok(Err(_)) | Err(_) => return Err(DatabaseError::OutcomeUnknown),
                    }
                }
                self.put_back(session).await;
                Ok(outcome)
            }
            Err(error) => Err(self.after_failure(session, error).await),
        }
    }

    pub(crate) async fn schema(&self, stop: Stop) -> Result<Schema, DatabaseError> {
        let mut session = self.begin(Access::Read, &stop).await?;
        let id = session.connection.conn.id();
        match self.supervise(id, &stop, schema::read(&mut session.connection.conn, &self.others)).await {
            Ok(schema) => {
                self.put_back(session).await;
                Ok(schema)
            }
            Err(error) => Err(self.after_failure(session, error).await),
        }
    }

    /// Takes or makes a connection and begins a transaction in it.
    async fn begin(&self, access: Access, stop: &Stop) -> Result<MysqlSession, DatabaseError> {
        let slot = self.pool.slot(stop).await?;
        stop.unless_cancelled(async {
            if let Some(mut connection) = self.pool.take() {
                match self.begin_in(&mut connection, access, stop).await {
                    Ok(()) => return Ok(MysqlSession { connection, slot }),
                    // It broke while it waited, and so did the others. Nothing was run yet.
                    Err(DatabaseError::Unreachable { .. }) => self.pool.clear(),
                    Err(error) => return Err(error),
                }
            }
            let mut connection = self.connector.connect().await?;
            self.begin_in(&mut connection, access, stop).await?;
            Ok(MysqlSession { connection, slot })
        })
        .await
    }

    async fn begin_in(
        &self,
        connection: &mut MysqlConnection,
        access: Access,
        stop: &Stop,
    ) -> Result<(), DatabaseError> {
        let seconds = stop.limit.as_secs().saturating_add(1).min(31_536_000);
        let limit = match connection.flavor {
            Flavor::MariaDb => format!("max_statement_time = {}", stop.limit.as_secs_f64()),
            Flavor::Mysql => format!("max_execution_time = {}", stop.limit.as_millis().min(u32::MAX.into())),
        };
        let mode = sql_mode(connection.flavor);
        let transaction = match access {
            Access::Read => "SET SESSION TRANSACTION READ ONLY; START TRANSACTION READ ONLY",
            // What is shown before the change is locked until it is changed.
            Access::Write => "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION",
        };
        let sql = format!(
            "SET NAMES utf8mb4; SET SESSION time_zone = '+00:00', sql_mode = '{mode}', sql_select_limit = DEFAULT, \
             lock_wait_timeout = {seconds}, innodb_lock_wait_timeout = {seconds}, {limit}; {transaction}"
        );
        match tokio::time::timeout(self.connector.connect_timeout(), connection.conn.query_drop(&sql)).await {
            Ok(result) => result.map_err(|error| self.connector.failure(&error, stop, Phase::Compiling)),
            Err(_) => Err(self.connector.unreachable("it does not answer".to_owned())),
        }
    }

    /// Works until it is done or has to stop. When this returns, the server works no more.
    async fn supervise<T>(
        &self,
        id: u32,
        stop: &Stop,
        work: impl Future<Output = Result<T, MysqlWorkError>>,
    ) -> Result<T, SessionError> {
        let mut work = pin!(work);
        let started = Instant::now();
        tokio::select! {
            result = &mut work => match result {
                // Some functions (`benchmark`) end with their time and give a result all the same.
                Ok(_) if started.elapsed() >= stop.limit => Err(SessionError::Broken(stop.timeout())),
                Ok(result) => Ok(result),
                Err(MysqlWorkError::Driver(error, phase)) => {
                    let failure = self.connector.failure(&error, stop, phase);
                    let is_refused = matches!(error, mysql_async::Error::Server(_));
                    Err(if is_refused { SessionError::Refused(failure) } else { SessionError::Broken(failure) })
                }
                Err(MysqlWorkError::Refused(error)) => Err(SessionError::Refused(error)),
            },
            reason = stop.reason(started) => {
                // Until the work ends, however it ends: only then no thread of the server is busy with it. More than once,
                // since what ends is what runs at that moment, and a step of the work may begin after it.
                let stopped = Instant::now();
                loop {
                    self.kill("QUERY", id).await;
                    if tokio::time::timeout(KILL_INTERVAL, &mut work).await.is_ok() {
                        break;
                    }
                    if stopped.elapsed() > CLEANUP_TIME {
                        self.kill("CONNECTION", id).await;
                        break;
                    }
                }
                Err(SessionError::Broken(reason))
            }
        }
    }

    /// Ends the statement that a connection runs, or the connection, over another one.
    async fn kill(&self, what: &str, id: u32) {
        let killing = async {
            let mut connection = self.connector.connect().await.ok()?;
            connection.conn.query_drop(format!("KILL {what} {id}")).await.ok()?;
            connection.conn.disconnect().await.ok()
        };
        if !matches!(tokio::time::timeout(CLEANUP_TIME, killing).await, Ok(Some(()))) {
            tracing::debug!("a server was not told that a statement is cancelled");
        }
    }

    /// Puts a connection back of which nothing is left but the connection; or closes it.
    async fn put_back(&self, session: MysqlSession) {
        let MysqlSession { mut connection, slot } = session;
        // Rolls back, and takes away settings, locks, temporary tables, variables and prepared statements.
        if let Ok(Ok(true)) = tokio::time::timeout(CLEANUP_TIME, connection.conn.reset()).await {
            self.pool.put(connection);
        }
        drop(slot);
    }

    /// Keeps the connection if the server only refused the statement.
    async fn after_failure(&self, session: MysqlSession, error: SessionError) -> DatabaseError {
        match error {
            SessionError::Refused(error) => {
                self.put_back(session).await;
                error
            }
            SessionError::Broken(error) => {
                if matches!(error, DatabaseError::Unreachable { .. }) {
                    self.pool.clear();
                }
                error
            }
        }
    }
}

/// A failure, and whether the session is as good as before.
enum SessionError {
    Refused(DatabaseError),
    Broken(DatabaseError),
}

/// Lets the server compile a statement, and checks its parameters.
async fn prepare(conn: &mut Conn, bound: &SqlStatement) -> Result<(Statement, Params), MysqlWorkError> {
    // The driver replaces `:name` by `?`, and mistakes a few texts for names: `1-':a'`.
    if !ParsedNamedParams::parse(bound.sql.as_bytes()).is_ok_and(|parsed| parsed.params().is_empty()) {
        let message =
            "`:name` is not a parameter here, write `?`, and a space between an operator and a text".to_owned();
        return Err(DatabaseError::Syntax { message }.into());
    }
    let statement = conn.prep(&bound.sql).await?;
    let (expected, given) = (usize::from(statement.num_params()), bound.parameters.len());
    if expected != given {
        return Err(DatabaseError::ParameterCount { expected, given }.into());
    }
    let parameters: Vec<DriverValue> = bound.parameters.iter().map(parameter).collect();
    let parameters = if parameters.is_empty() { Params::Empty } else { Params::Positional(parameters) };
    Ok((statement, parameters))
}

/// Runs a query. Returns its rows, and whether the server has sent all there are.
async fn read(conn: &mut Conn, bound: &SqlStatement, caps: RowCaps) -> Result<(Rows, bool), MysqlWorkError> {
    let (statement, parameters) = prepare(conn, bound).await?;
    if statement.num_columns() == 0 {
        let message = "it is not a query, since it gives no rows".to_owned();
        return Err(DatabaseError::ReadOnly { message }.into());
    }
    let (rows, is_complete, _) = fetch(conn, &statement, parameters, caps).await?;
    if is_complete {
        conn.close(statement).await?;
    }
    Ok((rows.unwrap_or_default(), is_complete))
}

/// Runs a change, with the rows that it touches before and after it.
async fn change(
    conn: &mut Conn,
    flavor: Flavor,
    query: &WriteQuery,
    caps: RowCaps,
) -> Result<WriteOutcome, MysqlWorkError> {
    let all = query.caps(caps);
    let mut before = match &query.touched {
        Some(touched) => Some(whole(read(conn, &touched.select, all).await?)?),
        None => None,
    };
    let again = read_all(conn, query.read_hidden(before.as_ref(), Dialect::Mysql), all).await?;
    before = WriteQuery::with_hidden(again, before);
    let (mut after, mut tried) = (None, None);
    if let Some(replacing) = query.replacing().filter(|_| flavor == Flavor::MariaDb) {
        conn.query_drop(replaced::SAVEPOINT).await?;
        let written = replacing.written(execute(conn, query.run(), all).await?.0)?;
        replacing.check_found(&written, &look_up(conn, replacing, &written, all).await?)?;
        conn.query_drop(replaced::ROLLBACK).await?;
        before = Some(look_up(conn, replacing, &written, all).await?);
        tried = Some(written);
    }
    let bound = match (&query.written, flavor) {
        // MySQL returns no rows of a change. In its transaction, those of the query of an `INSERT` are what is written.
        (Some(written), Flavor::Mysql) => {
            match if query.replaced.is_some() { &OtherRows::Unknown } else { &written.otherwise } {
                OtherRows::Query(sql) => {
                    let source = SqlStatement { sql: sql.clone(), parameters: Vec::new() };
                    after = Some(whole(read(conn, &source, all).await?)?);
                }
                OtherRows::Constant => {}
                OtherRows::Unknown if query.is_approved => {
                    let reason = "MySQL does not tell which rows it writes; write `INSERT … VALUES`, or a plain `UPDATE` or `DELETE`".to_owned();
                    return Err(DatabaseError::DryRunImpossible { reason }.into());
                }
                OtherRows::Unknown => {}
            }
            &query.statement
        }
        _ => query.run(),
    };
    let search = cascades_before(conn, query, before.as_ref(), all).await?;
    let (returned, rows_affected) = execute(conn, bound, all).await?;
    let mut cascaded = CascadeOutcome::default();
    if let Some(search) = search {
        let mut rows = AfterCascades::default();
        for (table, statement) in search.read_after() {
            rows.add(table, whole(read(conn, &statement, cascades::READ).await?)?);
        }
        cascaded = search.outcome(rows, caps);
    }
    after = read_all(conn, query.read_after(before.as_ref(), Dialect::Mysql), all).await?.or(after);
    Ok(query
        .outcome(ReadChange { rows_affected, returned, before, after, tried, cascades: cascaded, file: None }, caps)?)
}

/// Finds the rows of other tables that foreign keys change with the change; `None` if nothing follows, or if the user of the
/// database may change them with it and not read them.
async fn cascades_before<'a>(
    conn: &mut Conn,
    query: &'a WriteQuery,
    before: Option<&Rows>,
    all: RowCaps,
) -> Result<Option<CascadeSearch<'a>>, MysqlWorkError> {
    /// `ER_TABLEACCESS_DENIED_ERROR` and `ER_COLUMNACCESS_DENIED_ERROR`.
    const NOT_PERMITTED: [u16; 2] = [1142, 1143];
    let from = match query.read_cascades_from(before) {
        Some(from) => Some(whole(read(conn, from, all).await?)?),
        None => None,
    };
    let Some(mut search) = query.cascade_search(from.as_ref().or(before), Dialect::Mysql) else { return Ok(None) };
    while let Some(statement) = search.next() {
        match read(conn, &statement, cascades::READ).await {
            Ok(found) => search.add(whole(found)?),
            Err(MysqlWorkError::Driver(mysql_async::Error::Server(error), ..))
                if NOT_PERMITTED.contains(&error.code) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(search))
}

/// Runs a statement that changes rows. Returns the rows that it returns, if it does, and how many it changed.
async fn execute(conn: &mut Conn, bound: &SqlStatement, all: RowCaps) -> Result<(Option<Rows>, u64), MysqlWorkError> {
    let (statement, parameters) = prepare(conn, bound).await?;
    let (returned, is_complete, rows_affected) = fetch(conn, &statement, parameters, all).await?;
    let returned = returned.map(|rows| whole((rows, is_complete))).transpose()?;
    let rows_affected = match &returned {
        Some(rows) if rows_affected == 0 => u64::try_from(rows.rows.len()).unwrap_or(u64::MAX),
        _ => rows_affected,
    };
    Ok((returned, rows_affected))
}

/// Reads the rows that have the keys of those that were written.
async fn look_up(
    conn: &mut Conn,
    replacing: Replacing<'_>,
    written: &Rows,
    all: RowCaps,
) -> Result<Rows, MysqlWorkError> {
    let found = read_all(conn, replacing.lookups(written, Dialect::Mysql), all).await?;
    Ok(found.unwrap_or_default().distinct())
}

/// The rows of statements that read the same columns; `None` without any statement.
async fn read_all(
    conn: &mut Conn,
    statements: Vec<SqlStatement>,
    all: RowCaps,
) -> Result<Option<Rows>, MysqlWorkError> {
    let mut rows = None;
    for statement in statements {
        Rows::join(&mut rows, whole(read(conn, &statement, all).await?)?);
    }
    Ok(rows)
}

/// Refuses rows that were not read to their end: the rest would be in the way of the next statement.
fn whole((rows, is_complete): (Rows, bool)) -> Result<Rows, MysqlWorkError> {
    if is_complete {
        return Ok(rows);
    }
    let reason = "the rows are too many to be shown, change fewer at a time".to_owned();
    Err(DatabaseError::DryRunImpossible { reason }.into())
}

/// Runs a statement. Returns its rows if it has columns, whether they were read to their end, and how many it changed.
async fn fetch(
    conn: &mut Conn,
    statement: &Statement,
    parameters: Params,
    caps: RowCaps,
) -> Result<(Option<Rows>, bool, u64), MysqlWorkError> {
    let mut result = conn.exec_iter(statement, parameters).await.map_err(MysqlWorkError::running)?;
    let Some(columns) = result.columns().filter(|columns| !columns.is_empty()) else {
        let affected = result.affected_rows();
        result.drop_result().await?;
        return Ok((None, true, affected));
    };
    let names = columns.iter().map(|column| (column.name_str().into_owned(), decode::type_name(column)));
    let mut collector = RowCollector::new(names, caps);
    let mut is_complete = true;
    loop {
        let row = match result.next().await {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(error) if connection::is_too_large(&error) => {
                collector.stop_by_bytes();
                is_complete = false;
                break;
            }
            Err(error) => return Err(MysqlWorkError::running(error)),
        };
        let cells = row.unwrap_raw().into_iter().zip(columns.iter());
        let cells = cells.map(|(value, column)| decode::cell(value.unwrap_or(DriverValue::NULL), column)).collect();
        if !collector.push(cells) {
            // The next row shows whether there was only one too many; anything larger is not waited for.
            is_complete = matches!(result.next().await, Ok(None));
            break;
        }
    }
    let affected = result.affected_rows();
    Ok((Some(collector.finish()), is_complete, affected))
}

fn parameter(value: &Value) -> DriverValue {
    match value {
        Value::Null => DriverValue::NULL,
        Value::Boolean(value) => DriverValue::Int(i64::from(*value)),
        Value::Integer(integer) => DriverValue::Int(*integer),
        Value::Unsigned(unsigned) => DriverValue::UInt(*unsigned),
        Value::Float(float) => DriverValue::Double(*float),
        Value::Text(text) => DriverValue::Bytes(text.clone().into_bytes()),
        Value::Bytes(bytes) => DriverValue::Bytes(bytes.clone()),
        Value::List(_) | Value::Document(_) => DriverValue::Bytes(value.to_json().to_string().into_bytes()),
    }
}

/// Refuses to try a change of a table that cannot take it back. A table whose name stands in the statement counts as
/// changed by it.
async fn check_engines(conn: &mut Conn, sql: &str, others: &[String]) -> Result<(), MysqlWorkError> {
    let others = others.iter().map(|name| schema::quoted_text(name));
    let databases: Vec<_> = std::iter::once("DATABASE()".to_owned()).chain(others).collect();
    let databases = databases.join(", ");
    let tables: Vec<(String, String)> = conn
        .query(format!(
            "SELECT t.table_name, t.engine FROM information_schema.tables AS t \
             JOIN information_schema.engines AS e ON e.engine = t.engine \
             WHERE coalesce(e.transactions, 'NO') <> 'YES' AND t.table_type = 'BASE TABLE' \
             AND t.table_schema IN ({databases})"
        ))
        .await?;
    let sql = sql.to_lowercase();
    match tables.into_iter().find(|(table, _)| sql.contains(&table.to_lowercase())) {
        None => Ok(()),
        Some((table, engine)) => Err(DatabaseError::DryRunImpossible {
            reason: format!("the table `{table}` has the engine `{engine}`, which cannot take back a change"),
        }
        .into()),
    }
}
