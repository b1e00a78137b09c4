//! Many callers, a server that goes away and comes back, and a connection that nobody can listen to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use database::{Database, DatabaseError, Freshness};
use serde_json::json;
use sql::dialect::Dialect;
use sql::settings::TlsMode;
use tokio_util::sync::CancellationToken;

use crate::servers::{self, SqliteFile, read};

#[tokio::test]
async fn sixty_four_callers_share_the_connections() {
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        // A server of its own, since its connections are counted.
        let Some(server) = servers::start(dialect) else { continue };
        let mut settings = server.settings();
        settings.max_connections = 4;
        settings.connect_timeout = Duration::from_mins(1);
        let database = Database::new(settings).unwrap();
        let sleep = if dialect == Dialect::Postgres { "pg_sleep(0.05)" } else { "sleep(0.05)" };
        let sql = format!("SELECT 7 AS a, {sleep} AS b");
        let done = AtomicBool::new(false);
        let callers = async {
            let results = futures_util::future::join_all((0..64).map(|_| read(&database, &sql))).await;
            done.store(true, Ordering::SeqCst);
            results
        };
        let counting = async {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                most = most.max(server.connections().await);
            }
            most
        };
        let (results, most) = tokio::join!(callers, counting);
        for rows in results {
            assert_eq!(rows.unwrap().rows[0][0], json!(7));
        }
        assert!((1..=4).contains(&most), "{most} connections");
    }
}

#[tokio::test]
async fn sixty_four_callers_read_one_sqlite_file() {
    let file = SqliteFile::new("CREATE TABLE t (a); INSERT INTO t VALUES (7)");
    let mut settings = file.settings();
    settings.connect_timeout = Duration::from_mins(1);
    let database = Database::new(settings).unwrap();
    for rows in futures_util::future::join_all((0..64).map(|_| read(&database, "SELECT a FROM t"))).await {
        assert_eq!(rows.unwrap().rows, [[json!(7)]]);
    }
}

#[tokio::test]
async fn a_caller_who_waits_too_long_for_a_connection_is_told_so() {
    let Some(server) = servers::shared(Dialect::Postgres) else { return };
    let mut settings = server.settings();
    settings.max_connections = 1;
    settings.connect_timeout = Duration::from_secs(5);
    let database = Database::new(settings).unwrap();
    let cancel = CancellationToken::new();
    let waiting = async {
        server.wait_until_running("holds the only one", 1).await;
        let error = read(&database, "SELECT 1").await.unwrap_err();
        cancel.cancel();
        error
    };
    let query = database::ReadQuery::new("SELECT pg_sleep(600) /* holds the only one */", Vec::new());
    let (_, error) = tokio::join!(database.read(query, &cancel), waiting);
    let message = error.to_string();
    assert!(matches!(error, DatabaseError::PoolTimeout { max: 1, .. }), "{error:?}");
    assert!(message.starts_with("all 1 connections to `127.0.0.1:"), "{message}");
}

#[tokio::test]
async fn a_server_that_goes_away_is_found_again_when_it_is_back() {
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        let Some(server) = servers::start(dialect) else { continue };
        let database = server.database();
        let two = [(); 2].map(|()| read(&database, "SELECT 1 AS a"));
        assert!(futures_util::future::join_all(two).await.iter().all(Result::is_ok));
        server.command("stop");
        for _ in 0..3 {
            let error = read(&database, "SELECT 1 AS a").await.unwrap_err();
            assert!(matches!(error, DatabaseError::Unreachable { .. }), "{error:?}");
            assert!(!error.to_string().contains("pass/word"), "{error}");
        }
        let error = database.schema(Freshness::New, &CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error, DatabaseError::Unreachable { .. }), "{error:?}");
        server.command("start");
        assert_eq!(read(&database, "SELECT 1 AS a").await.unwrap().rows, [[json!(1)]]);
        // Now all connections that wait are broken, and no caller notices.
        server.command("stop");
        server.command("start");
        assert_eq!(read(&database, "SELECT 1 AS a").await.unwrap().rows, [[json!(1)]]);
    }
}

#[tokio::test]
async fn a_connection_with_tls_needs_a_certificate_that_is_trusted_and_names_the_host() {
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        let encrypted = if server.dialect == Dialect::Postgres {
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        } else {
            "SELECT variable_value <> '' AS s FROM information_schema.session_status WHERE variable_name = 'ssl_cipher'"
        };
        let mut settings = server.settings();
        settings.tls = TlsMode::Verified { roots: Some(server.certificate.clone()) };
        let rows = read(&Database::new(settings.clone()).unwrap(), encrypted).await.unwrap().rows;
        assert!(rows == [[json!(true)]] || rows == [[json!(1)]], "{rows:?}");
        settings.tls = TlsMode::Verified { roots: None };
        let error = read(&Database::new(settings).unwrap(), "SELECT 1").await.unwrap_err();
        let is_about_trust =
            matches!(&error, DatabaseError::Unreachable { reason, .. } if reason.contains("ertificate"));
        assert!(is_about_trust, "{error:?}");
    }
}
