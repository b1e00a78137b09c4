//! The databases of the tests. A server is started once for all tests that leave it alone.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use database::{Database, DatabaseError, ReadQuery, Rows};
use mysql_async::prelude::Queryable as _;
use sql::dialect::Dialect;
use sql::settings::DatabaseSettings;
use sql::value::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::database_server::{self, DatabaseServer};
use crate::skip::skip;

/// How long anything may take that is waited for.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// A server that stops when this is dropped, or when the process ends in any way: its input ends then.
pub(crate) struct Server {
    pub(crate) dialect: Dialect,
    pub(crate) url: String,
    pub(crate) password: String,
    pub(crate) folder: PathBuf,
    pub(crate) certificate: PathBuf,
    process: DatabaseServer,
}

/// Returns the server of all tests; `None` if this machine has none.
pub(crate) fn shared(dialect: Dialect) -> Option<&'static Server> {
    static POSTGRES: OnceLock<Option<Server>> = OnceLock::new();
    static MARIADB: OnceLock<Option<Server>> = OnceLock::new();
    let server = if dialect == Dialect::Postgres { &POSTGRES } else { &MARIADB };
    server.get_or_init(|| start(dialect)).as_ref()
}

/// Starts a server for one test; `None` if this machine has none.
pub(crate) fn start(dialect: Dialect) -> Option<Server> {
    let kind = if dialect == Dialect::Postgres { "postgres" } else { "mariadb" };
    let Some(server) = database_server::start(kind) else {
        skip(&format!("{dialect}: run `tests/run`, which installs it"));
        return None;
    };
    let text = |name: &str| server.text(name).to_owned();
    Some(Server {
        dialect,
        url: text("url"),
        password: text("password"),
        folder: text("folder").into(),
        certificate: text("certificate").into(),
        process: server,
    })
}

impl Server {
    pub(crate) fn settings(&self) -> DatabaseSettings {
        let mut settings = DatabaseSettings::new(&self.url).expect("an address");
        settings.password = Some(self.password.clone());
        settings
    }

    pub(crate) fn database(&self) -> Database {
        Database::new(self.settings()).expect("a database")
    }

    /// Stops or starts the server.
    pub(crate) fn command(&self, command: &str) {
        self.process.command(command);
    }

    /// Runs statements as the owner of the database, without anything of ours.
    pub(crate) async fn run(&self, statements: &str) {
        self.rows(statements).await;
    }

    /// Runs statements without anything of ours and returns all cells of all rows as text.
    pub(crate) async fn rows(&self, statements: &str) -> Vec<String> {
        self.rows_of("shop", statements).await
    }

    /// Runs statements as a user: the owner over TCP, or the server's administrator over its socket.
    async fn rows_of(&self, user: &str, statements: &str) -> Vec<String> {
        let settings = self.settings();
        let (host, path) = (settings.address(), url::Url::parse(&self.url).expect("an address"));
        let port = path.port().unwrap_or_else(|| panic!("no port in {host}"));
        if self.dialect == Dialect::Postgres {
            let mut config = tokio_postgres::Config::new();
            config.port(port).user(user).dbname("shop").password(&self.password);
            if user == "shop" {
                config.host("127.0.0.1");
            } else {
                config.host_path(&self.folder);
            }
            let (client, connection) = config.connect(tokio_postgres::NoTls).await.expect("a connection");
            let tasks = TaskTracker::new();
            tasks.spawn(connection);
            let messages = client.simple_query(statements).await.unwrap_or_else(|e| panic!("{e:?} in {statements}"));
            let rows = messages.into_iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            rows.flat_map(|row| (0..row.len()).map(|i| row.get(i).unwrap_or("NULL").to_owned()).collect::<Vec<_>>())
                .collect()
        } else {
            let options = mysql_async::OptsBuilder::default()
                .ip_or_hostname("127.0.0.1")
                .tcp_port(port)
                .user(Some(user))
                .pass(Some(&self.password).filter(|_| user == "shop"))
                .socket(Some(self.folder.join("socket").display().to_string()).filter(|_| user != "shop"))
                .db_name(Some("shop"))
                .prefer_socket(false);
            let mut conn = mysql_async::Conn::new(options).await.expect("a connection");
            let mut result = conn.query_iter(statements).await.expect("the statements run");
            let mut cells = Vec::new();
            while !result.is_empty() {
                for row in result.collect::<mysql_async::Row>().await.expect("rows") {
                    cells.extend(row.unwrap().into_iter().map(|cell| cell.as_sql(true)));
                }
            }
            drop(result);
            conn.disconnect().await.expect("a connection");
            cells
        }
    }

    /// Returns how many connections run a statement that contains a text.
    pub(crate) async fn running(&self, marker: &str) -> usize {
        // Written in two parts, so that the question does not find itself.
        let (first, second) = marker.split_at(marker.len() / 2);
        let sql = if self.dialect == Dialect::Postgres {
            format!("SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%{first}' || '{second}%'")
        } else {
            format!("SELECT id FROM information_schema.processlist WHERE info LIKE concat('%{first}', '{second}%')")
        };
        self.rows(&sql).await.len()
    }

    /// Returns how many connections the user has.
    pub(crate) async fn connections(&self) -> usize {
        let (administrator, sql) = if self.dialect == Dialect::Postgres {
            ("postgres", "SELECT pid FROM pg_stat_activity WHERE usename = 'shop'")
        } else {
            ("root", "SELECT id FROM information_schema.processlist WHERE user = 'shop'")
        };
        self.rows_of(administrator, sql).await.len()
    }

    /// Waits until so many connections run a statement that contains a text.
    pub(crate) async fn wait_until_running(&self, marker: &str, count: usize) {
        let started = Instant::now();
        while self.running(marker).await != count {
            assert!(started.elapsed() < MAX_WAIT, "not {count} times `{marker}`, but {}", self.running(marker).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A SQLite database in a folder of its own.
pub(crate) struct SqliteFile {
    pub(crate) folder: tempfile::TempDir,
}

impl SqliteFile {
    pub(crate) fn new(statements: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Self { folder };
        rusqlite::Connection::open(file.path()).expect("a database").execute_batch(statements).expect("a database");
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    pub(crate) fn settings(&self) -> DatabaseSettings {
        DatabaseSettings::new(&format!("sqlite://{}", self.path().display())).expect("an address")
    }

    pub(crate) fn database(&self) -> Database {
        Database::new(self.settings()).expect("a database")
    }
}

pub(crate) async fn read(database: &Database, sql: &str) -> Result<Rows, DatabaseError> {
    read_with(database, sql, Vec::new()).await
}

pub(crate) async fn read_with(database: &Database, sql: &str, parameters: Vec<Value>) -> Result<Rows, DatabaseError> {
    database.read(ReadQuery::new(sql, parameters), &CancellationToken::new()).await
}
