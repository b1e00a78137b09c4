//! Runs statements in a database, and has the database itself refuse whatever a reader must not do.
//!
//! Every read happens in a read-only transaction that is rolled back, in a session whose state is set anew, with a timeout
//! that the server knows. Nothing here looks into a statement to decide whether it is harmless: that is the guard's work,
//! and what is shown here holds without it. Parameters are bound in the order of their places: `?` in SQLite and MySQL,
//! `$1` in PostgreSQL.
//!
//! ```
//! use database::{Database, Freshness};
//! use sql::guard::Guard;
//! use sql::rules::{AccessLists, AccessRules};
//! use sql::settings::DatabaseSettings;
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("shop.db");
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! rusqlite::Connection::open(&file)?.execute_batch("CREATE TABLE customer (id INT, name TEXT, password TEXT)")?;
//! let database = Database::new(DatabaseSettings::new(&format!("sqlite://{}", file.display()))?)?;
//! let schema = database.schema(Freshness::Recent, &Default::default()).await?;
//! let rules = AccessRules::new(&AccessLists::default())?;
//! let guard = Guard { dialect: database.dialect(), schema: &schema, rules: &rules, max_rows: 100, may_write: false };
//! let checked = guard.check("SELECT * FROM customer")?;
//! assert!(checked.sql.ends_with("LIMIT 100") && !checked.sql.contains("password"), "{}", checked.sql);
//! assert!(guard.check("SELECT password FROM customer").is_err());
//! assert!(guard.check("DROP TABLE customer").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod answer;
mod cascades;
mod error;
mod mysql;
mod pool;
mod postgres;
mod read_again;
mod replaced;
mod rows;
mod schema_cache;
mod sqlite;
mod statement;
mod stop;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::cascades::CascadedRows;
pub use self::error::{ConstraintKind, DatabaseError};
pub use self::rows::{ResultColumn, RowCap, Rows, Truncation};
pub use self::schema_cache::Freshness;
pub use self::write::{TouchedRows, WriteMode, WriteOutcome, WriteQuery, WrittenRows};

use self::mysql::MysqlDatabase;
use self::postgres::PostgresDatabase;
use self::schema_cache::SchemaCache;
use self::sqlite::SqliteDatabase;
use self::stop::Stop;
use sql::dialect::Dialect;
use sql::parameters::BoundStatement;
use sql::schema::Schema;
use sql::settings::{DatabaseSettings, RowCaps};
use sql::value::Value;

/// How long reading a schema may take, whatever statements may.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(30);

/// One statement with the values of its parameters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SqlStatement {
    pub sql: String,
    /// A value for each place, in their order.
    pub parameters: Vec<Value>,
}

impl From<BoundStatement<Value>> for SqlStatement {
    fn from(bound: BoundStatement<Value>) -> Self {
        Self { sql: bound.sql, parameters: bound.values }
    }
}

/// A read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadQuery {
    pub statement: SqlStatement,
    /// Caps below those of the settings.
    pub caps: Option<RowCaps>,
    /// A time below that of the settings.
    pub timeout: Option<Duration>,
}

impl ReadQuery {
    pub fn new(sql: impl Into<String>, parameters: Vec<Value>) -> Self {
        Self { statement: SqlStatement { sql: sql.into(), parameters }, caps: None, timeout: None }
    }
}

/// A database and its connections. A copy is the same database.
#[derive(Debug, Clone)]
pub struct Database {
    shared: Arc<SharedDatabase>,
}

#[derive(Debug)]
struct SharedDatabase {
    settings: DatabaseSettings,
    driver: Driver,
    schema: SchemaCache,
    /// Statements that run. Each finishes its own cleaning up, also when its caller is gone.
    statements: TaskTracker,
    closing: CancellationToken,
}

/// What a session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

#[derive(Debug, Clone)]
enum Driver {
    Sqlite(Arc<SqliteDatabase>),
    Postgres(Arc<PostgresDatabase>),
    Mysql(Arc<MysqlDatabase>),
}

impl Database {
    /// Makes a database of settings. Connects when the first statement comes, and again whenever a connection broke.
    pub fn new(settings: DatabaseSettings) -> Result<Self, DatabaseError> {
        let tasks = TaskTracker::new();
        let driver = match settings.dialect {
            Dialect::Sqlite => Driver::Sqlite(Arc::new(SqliteDatabase::new(&settings))),
            Dialect::Postgres => Driver::Postgres(Arc::new(PostgresDatabase::new(&settings, tasks.clone())?)),
            Dialect::Mysql => Driver::Mysql(Arc::new(MysqlDatabase::new(&settings))),
        };
        let schema = SchemaCache::default();
        let shared = SharedDatabase { settings, driver, schema, statements: tasks, closing: CancellationToken::new() };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn dialect(&self) -> Dialect {
        self.shared.settings.dialect
    }

    pub fn settings(&self) -> &DatabaseSettings {
        &self.shared.settings
    }

    /// Runs a statement that gives rows, in a read-only transaction that is rolled back.
    ///
    /// The statement ends at its timeout, when `cancel` is cancelled, and when the future is dropped; in all three cases
    /// the server is told, and its connection is given up.
    pub async fn read(&self, query: ReadQuery, cancel: &CancellationToken) -> Result<Rows, DatabaseError> {
        let stop = self.stop(query.timeout, cancel);
        let caps = query.caps.map_or(self.shared.settings.caps, |caps| caps.within(self.shared.settings.caps));
        let driver = self.shared.driver.clone();
        let operation_stop = stop.clone();
        self.run(&stop, async move {
            match driver {
                Driver::Sqlite(sqlite) => sqlite.read(query.statement, caps, operation_stop).await,
                Driver::Postgres(postgres) => postgres.read(query.statement, caps, operation_stop).await,
                Driver::Mysql(mysql) => mysql.read(query.statement, caps, operation_stop).await,
            }
        })
        .await
    }

    /// Runs a statement that changes rows, and rolls back or commits as `mode` says.
    ///
    /// The statement is an `INSERT`, `UPDATE`, `DELETE`, `REPLACE`, `MERGE` or begins with `WITH`; nothing else is run, since
    /// some statements end a transaction by themselves. If the connection breaks during the commit, the outcome is
    /// unknown, and the error says so.
    pub async fn write(
        &self,
        query: WriteQuery,
        mode: WriteMode,
        cancel: &CancellationToken,
    ) -> Result<WriteOutcome, DatabaseError> {
        if !self.shared.settings.writable {
            return Err(DatabaseError::NotWritable);
        }
        statement::check_change(&query.statement.sql)?;
        let query = query.for_mode(&mode);
        let stop = self.stop(query.timeout, cancel);
        let caps = query.caps.map_or(self.shared.settings.caps, |caps| caps.within(self.shared.settings.caps));
        let driver = self.shared.driver.clone();
        let operation_stop = stop.clone();
        self.run(&stop, async move {
            match driver {
                Driver::Sqlite(sqlite) => sqlite.write(query, mode, caps, operation_stop).await,
                Driver::Postgres(postgres) => postgres.write(query, mode, caps, operation_stop).await,
                Driver::Mysql(mysql) => mysql.write(query, mode, caps, operation_stop).await,
            }
        })
        .await
    }

    /// Returns what the database contains. Concurrent callers share one reading.
    pub async fn schema(&self, freshness: Freshness, cancel: &CancellationToken) -> Result<Arc<Schema>, DatabaseError> {
        let reading = self.shared.schema.get(freshness, || {
            // Not the caller's token: the others wait for the same reading.
            let limit = SCHEMA_TIMEOUT.max(self.shared.settings.statement_timeout);
            let stop = Stop::new(CancellationToken::new(), self.shared.closing.clone(), limit);
            let driver = self.shared.driver.clone();
            async move {
                let operation_stop = stop.clone();
                self.run(&stop, async move {
                    match driver {
                        Driver::Sqlite(sqlite) => sqlite.schema(operation_stop).await,
                        Driver::Postgres(postgres) => postgres.schema(operation_stop).await,
                        Driver::Mysql(mysql) => mysql.schema(operation_stop).await,
                    }
                })
                .await
            }
        });
        tokio::select! {
            schema = reading => schema,
            () = cancel.cancelled() => Err(DatabaseError::Cancelled),
        }
    }

    /// The schema that was read last, if one was. An old one is read anew meanwhile, for the next who asks.
    pub fn known_schema(&self) -> Option<Arc<Schema>> {
        let last = self.shared.schema.last()?;
        if let Ok(runtime) = Handle::try_current().as_ref()
            && self.shared.schema.is_old()
        {
            let database = self.clone();
            runtime.spawn(async move {
                if let Err(error) = database.schema(Freshness::Recent, &CancellationToken::new()).await {
                    tracing::debug!(%error, "failed to read a schema anew");
                }
            });
        }
        Some(last)
    }

    /// Stops what runs, waits until it is cleaned up, and closes all connections.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        match &self.shared.driver {
            Driver::Sqlite(_) => {}
            Driver::Postgres(postgres) => postgres.close(),
            Driver::Mysql(mysql) => mysql.close().await,
        }
        self.shared.statements.close();
        self.shared.statements.wait().await;
    }

    fn stop(&self, timeout: Option<Duration>, cancel: &CancellationToken) -> Stop {
        let most = self.shared.settings.statement_timeout;
        Stop::new(cancel.child_token(), self.shared.closing.clone(), timeout.unwrap_or(most).min(most))
    }

    /// Performs an operation in a task of its own, so that it cleans up behind itself even if the caller is dropped.
    async fn run<T: Send + 'static>(
        &self,
        stop: &Stop,
        operation: impl Future<Output = Result<T, DatabaseError>> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        if stop.is_stopped() {
            return Err(DatabaseError::Cancelled);
        }
        let _dropped = stop.cancel_on_drop();
        match self.shared.statements.spawn(operation).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(DatabaseError::Cancelled),
        }
    }
}
