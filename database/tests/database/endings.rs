//! A statement ends at its time, when it is cancelled, when nobody waits for it any more, and when its process is killed;
//! and the server works on it no more.

use std::process::{Command, Stdio};
use std::time::Duration;

use database::{Database, DatabaseError, ReadQuery};
use sql::dialect::Dialect;
use sql::settings::DatabaseSettings;
use tokio_util::sync::CancellationToken;

use crate::servers::{self, Server, SqliteFile, read};

/// Names the address of a server in a process that is started to be killed.
const VICTIM_VARIABLE: &str = "AGENT_MAGIC_TOOL_TEST_SQL_VICTIM";

/// Statements that take minutes: one that waits, one that calculates, one that never sends a row.
fn endless(dialect: Dialect, marker: &str) -> Vec<String> {
    match dialect {
        Dialect::Postgres => vec![
            format!("SELECT pg_sleep(600) /* {marker} */"),
            format!(
                "SELECT count(*) FROM generate_series(1, 100000) AS a, generate_series(1, 100000) AS b /* {marker} */"
            ),
        ],
        Dialect::Mysql => vec![
            format!("SELECT sleep(600) /* {marker} */"),
            format!(
                "SELECT count(*) FROM seq_1_to_1000000 AS a, seq_1_to_1000000 AS b WHERE a.seq % 7 = b.seq % 11 /* {marker} */"
            ),
            format!("SELECT benchmark(1000000000, sha2('a', 512)) /* {marker} */"),
        ],
        Dialect::Sqlite => vec![
            format!(
                "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s) SELECT count(*) FROM s /* {marker} */"
            ),
            format!(
                "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s) SELECT n FROM s WHERE n < 0 /* {marker} */"
            ),
        ],
    }
}

fn with_timeout(sql: &str, timeout: Duration) -> ReadQuery {
    ReadQuery { timeout: Some(timeout), ..ReadQuery::new(sql, Vec::new()) }
}

async fn assert_time_out(database: &Database, server: Option<&Server>) {
    for sql in endless(database.dialect(), "timed out") {
        let limit = Duration::from_millis(700);
        let error =
            database.read(with_timeout(&sql, limit), &CancellationToken::new()).await.expect_err("it takes too long");
        assert_eq!(error, DatabaseError::Timeout { limit }, "{sql}");
        if let Some(server) = server {
            server.wait_until_running("timed out", 0).await;
        }
        assert_eq!(read(database, "SELECT 1 AS a").await.expect("rows").rows.len(), 1);
    }
}

#[tokio::test]
async fn a_statement_ends_at_its_time() {
    let file = SqliteFile::new("");
    assert_time_out(&file.database(), None).await;
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        assert_time_out(&server.database(), Some(server)).await;
    }
}

#[tokio::test]
async fn a_cancelled_statement_ends_on_the_server() {
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        let mut settings = server.settings();
        // Not its time ends it.
        settings.statement_timeout = Duration::from_mins(10);
        let database = Database::new(settings).unwrap();
        for sql in endless(server.dialect, "cancelled") {
            let cancel = CancellationToken::new();
            let reading = database.read(ReadQuery::new(&sql, Vec::new()), &cancel);
            let cancelling = async {
                server.wait_until_running("cancelled", 1).await;
                cancel.cancel();
            };
            let (result, ()) = tokio::join!(reading, cancelling);
            assert_eq!(result.unwrap_err(), DatabaseError::Cancelled, "{sql}");
            server.wait_until_running("cancelled", 0).await;
        }
        assert_eq!(read(&database, "SELECT 1 AS a").await.unwrap().rows.len(), 1);
    }
}

#[tokio::test]
async fn a_cancelled_statement_of_sqlite_ends() {
    let file = SqliteFile::new("");
    let database = file.database();
    for sql in endless(Dialect::Sqlite, "cancelled") {
        let cancel = CancellationToken::new();
        let reading = database.read(ReadQuery::new(&sql, Vec::new()), &cancel);
        let cancelling = async {
            tokio::task::yield_now().await;
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(reading, cancelling);
        assert_eq!(result.unwrap_err(), DatabaseError::Cancelled);
    }
}

#[tokio::test]
async fn a_statement_whose_caller_is_gone_ends() {
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        let database = server.database();
        let sql = &endless(server.dialect, "abandoned")[0];
        let cancel = CancellationToken::new();
        tokio::select! {
            result = database.read(ReadQuery::new(sql, Vec::new()), &cancel) => panic!("{result:?}"),
            () = server.wait_until_running("abandoned", 1) => {}
        }
        server.wait_until_running("abandoned", 0).await;
    }
}

#[tokio::test]
async fn closing_a_database_ends_its_statements_and_its_connections() {
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        let Some(server) = servers::start(dialect) else { continue };
        let database = server.database();
        let sql = &endless(dialect, "closed")[0];
        let cancel = CancellationToken::new();
        let closing = async {
            server.wait_until_running("closed", 1).await;
            database.close().await;
        };
        let (result, ()) = tokio::join!(database.read(ReadQuery::new(sql, Vec::new()), &cancel), closing);
        assert_eq!(result.unwrap_err(), DatabaseError::Cancelled);
        server.wait_until_running("closed", 0).await;
        assert_eq!(read(&database, "SELECT 1").await.unwrap_err(), DatabaseError::Cancelled);
    }
}

/// Runs as its own process, which is killed.
#[tokio::test]
async fn the_server_ends_the_statement_of_a_killed_process() {
    if let Ok(address) = std::env::var(VICTIM_VARIABLE) {
        let settings = DatabaseSettings::new(&address).unwrap();
        let sql = &endless(settings.dialect(), "orphaned")[0];
        let database = Database::new(settings).unwrap();
        let limit = Duration::from_secs(3);
        let result = database.read(with_timeout(sql, limit), &CancellationToken::new()).await;
        panic!("not killed in time: {result:?}");
    }
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        let mut url = url::Url::parse(&server.url).unwrap();
        url.set_password(Some(&server.password)).unwrap();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "endings::the_server_ends_the_statement_of_a_killed_process"])
            .env(VICTIM_VARIABLE, url.as_str())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        server.wait_until_running("orphaned", 1).await;
        victim.kill().unwrap();
        victim.wait().unwrap();
        server.wait_until_running("orphaned", 0).await;
    }
}

#[tokio::test]
async fn nothing_that_a_statement_leaves_behind_reaches_the_next_one() {
    if let Some(server) = servers::shared(Dialect::Postgres) {
        let mut settings = server.settings();
        settings.max_connections = 1;
        let database = Database::new(settings).unwrap();
        let pid = read(&database, "SELECT pg_backend_pid()").await.unwrap();
        for sql in [
            "SELECT set_config('TimeZone', 'Asia/Tokyo', false), set_config('search_path', 'pg_temp', false)",
            "SELECT set_config('standard_conforming_strings', 'off', false), set_config('statement_timeout', '0', false)",
            "SELECT pg_advisory_lock(4711)",
            "SELECT set_config('my.secret', 'x', false)",
        ] {
            read(&database, sql).await.unwrap();
        }
        let state = "SELECT pg_backend_pid(), current_setting('TimeZone'), current_setting('search_path'), '\\', \
                     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711), \
                     coalesce(current_setting('my.secret', true), ''), current_setting('statement_timeout'), \
                     current_setting('transaction_read_only')";
        let rows = read(&database, state).await.unwrap().rows;
        let expected = serde_json::json!([pid.rows[0][0], "UTC", "\"$user\", public", "\\", 0, "", "30s", "on"]);
        assert_eq!(serde_json::json!(rows[0]), expected);
    }
    if let Some(server) = servers::shared(Dialect::Mysql) {
        let mut settings = server.settings();
        settings.max_connections = 1;
        let database = Database::new(settings).unwrap();
        let id = read(&database, "SELECT connection_id()").await.unwrap();
        for sql in ["SELECT @secret := 'x'", "SELECT get_lock('mine', 0)"] {
            read(&database, sql).await.unwrap();
        }
        let state = "SELECT connection_id(), @secret, is_free_lock('mine'), @@time_zone, 'a\\\\b', @@tx_read_only, \
                     @@max_statement_time, @@character_set_client";
        let rows = read(&database, state).await.unwrap().rows;
        let expected = serde_json::json!([id.rows[0][0], null, 1, "+00:00", "a\\b", 1, 30.0, "utf8mb4"]);
        assert_eq!(serde_json::json!(rows[0]), expected);
    }
}
