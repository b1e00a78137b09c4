//! What protects the data when no statement is looked at: every hostile statement goes straight to the database, as its
//! owner, and changes nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use database::{Database, DatabaseError, ReadQuery};
use sql::dialect::Dialect;
use tokio_util::sync::CancellationToken;

use crate::corpus;
use crate::servers::{self, Server, SqliteFile, read};

/// Long enough for what works, and short for what waits.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The tables that the hostile statements name.
const TABLES: &str = "
CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(50), email VARCHAR(50), city VARCHAR(50), country VARCHAR(50),
  created_at TIMESTAMP NULL, password_hash VARCHAR(50), api_token VARCHAR(50), data VARCHAR(100));
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, status VARCHAR(20), total NUMERIC(10, 2), quantity INTEGER,
  created_at TIMESTAMP NULL, shipped_at TIMESTAMP NULL, note VARCHAR(100), details VARCHAR(100));
CREATE TABLE order_items (order_id INTEGER, product_id INTEGER, quantity INTEGER, price NUMERIC(10, 2));
CREATE TABLE products (id INTEGER PRIMARY KEY, name VARCHAR(50), price NUMERIC(10, 2), category VARCHAR(20), tags VARCHAR(50),
  description VARCHAR(100), parent_id INTEGER);
CREATE TABLE payroll (id INTEGER PRIMARY KEY, salary NUMERIC(10, 2));
CREATE VIEW open_orders AS SELECT id, customer_id, total FROM orders WHERE status = 'open';
INSERT INTO customers VALUES (1, 'Ada', 'ada@example.org', 'London', 'GB', '2024-01-02 03:04:05', 'hash', 'token', '{}');
INSERT INTO orders VALUES (1, 1, 'open', 10.50, 2, '2024-01-02 03:04:05', NULL, 'note', '{}'), (2, 1, 'paid', 5, 1, NULL, NULL, NULL, NULL);
INSERT INTO order_items VALUES (1, 1, 2, 5.25);
INSERT INTO products VALUES (1, 'Tea', 5.25, 'food', '[]', 'green', NULL);
INSERT INTO payroll VALUES (1, 1000);
";

/// Functions and other ways to change something from within a query.
const POSTGRES_WAYS: &str = "
CREATE SEQUENCE seq;
CREATE TYPE mood AS ENUM ('sad');
CREATE FUNCTION my_function(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM orders; RETURN i; END $$;
CREATE FUNCTION harmful() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
  $$ BEGIN PERFORM set_config('transaction_read_only', 'off', false); EXECUTE 'TRUNCATE orders CASCADE'; RETURN 1; END $$;
CREATE FUNCTION harmful_sql() RETURNS void LANGUAGE sql AS 'DELETE FROM customers';
CREATE PROCEDURE harmful_procedure() LANGUAGE plpgsql AS $$ BEGIN COMMIT; DELETE FROM orders; COMMIT; END $$;
CREATE VIEW computed AS SELECT my_function(id) AS x FROM orders;
";

const POSTGRES_OWN: [&str; 22] = [
    "SELECT harmful()",
    "SELECT harmful_sql()",
    "SELECT * FROM computed",
    "SELECT my_function(1)",
    "CALL harmful_procedure()",
    "DO $$ BEGIN COMMIT; DELETE FROM orders; END $$",
    "SELECT nextval('seq')",
    "SELECT setval('seq', 100)",
    "SELECT lo_create(4711)",
    "SELECT lo_from_bytea(4712, 'x')",
    "SELECT set_config('transaction_read_only', 'off', true), my_function(1)",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SET TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "COMMIT; DELETE FROM orders",
    "SELECT 1) AS q(c1); DELETE FROM orders; --",
    "SELECT 1\n) AS q(c1) LIMIT 1; DELETE FROM orders --",
    "WITH d AS (DELETE FROM orders RETURNING *) SELECT * FROM d",
    "EXPLAIN ANALYZE DELETE FROM orders",
    "SELECT query_to_xml('DELETE FROM orders RETURNING 1', true, true, '')",
    "SELECT pg_notify('a', 'b')",
    "ALTER ROLE shop SET default_transaction_read_only = off",
];

const MYSQL_WAYS: &str = "
CREATE SEQUENCE seq;
CREATE FUNCTION my_function(i INT) RETURNS INT MODIFIES SQL DATA BEGIN DELETE FROM orders; RETURN i; END;
CREATE PROCEDURE harmful() BEGIN COMMIT; SET SESSION TRANSACTION READ WRITE; START TRANSACTION READ WRITE; DELETE FROM orders; COMMIT; END;
";

const MYSQL_OWN: [&str; 20] = [
    "BEGIN NOT ATOMIC START TRANSACTION READ WRITE; DELETE FROM orders; COMMIT; END",
    "BEGIN NOT ATOMIC COMMIT; SET SESSION TRANSACTION READ WRITE; DELETE FROM orders; SELECT 1; END",
    "EXECUTE IMMEDIATE 'COMMIT'",
    "EXECUTE IMMEDIATE 'BEGIN NOT ATOMIC START TRANSACTION READ WRITE; DELETE FROM orders; COMMIT; END'",
    "CALL harmful()",
    "SELECT my_function(1)",
    "SELECT nextval(seq)",
    "SELECT next value for seq",
    "SELECT setval(seq, 100)",
    "DELETE FROM orders RETURNING id",
    "REPLACE INTO payroll VALUES (1, 0) RETURNING id",
    "CREATE TABLE copied AS SELECT * FROM orders",
    "SET GLOBAL max_connections = 1",
    "SET STATEMENT max_statement_time = 0 FOR SELECT 1",
    "SET STATEMENT tx_read_only = 0 FOR DELETE FROM orders",
    "ANALYZE UPDATE orders SET total = 0",
    "ANALYZE FORMAT=JSON DELETE FROM orders",
    "START TRANSACTION READ WRITE",
    "COMMIT",
    "IF 1 THEN DELETE FROM orders; END IF",
];

const SQLITE_OWN: [&str; 20] = [
    "DELETE FROM orders RETURNING id",
    "PRAGMA query_only = 0",
    "PRAGMA writable_schema = 1",
    "PRAGMA journal_mode = WAL",
    "PRAGMA user_version = 5",
    "PRAGMA main.auto_vacuum = 1",
    "SELECT * FROM pragma_user_version",
    "ATTACH DATABASE '/tmp/agent-magic-tool-attached.db' AS a",
    "ATTACH DATABASE ':memory:' AS a",
    "VACUUM INTO '/tmp/agent-magic-tool-vacuumed.db'",
    "SELECT load_extension('/tmp/x.so')",
    "SELECT writefile('/tmp/agent-magic-tool-written', 'x')",
    "SELECT fts3_tokenizer('simple', x'00')",
    "CREATE TEMP TABLE t (a)",
    "CREATE VIRTUAL TABLE v USING fts5(a)",
    "UPDATE sqlite_schema SET sql = 'x'",
    "INSERT INTO sqlite_dbpage VALUES (1, x'00')",
    "BEGIN IMMEDIATE",
    "COMMIT; DELETE FROM orders",
    "REINDEX",
];

/// All data and all definitions of a server, as text.
async fn everything(server: &Server) -> Vec<String> {
    let mut all = Vec::new();
    if server.dialect == Dialect::Postgres {
        for table in ["customers", "orders", "order_items", "products", "payroll"] {
            all.extend(
                server
                    .rows(&format!(
                        "SELECT md5(coalesce(string_agg(t::text, ',' ORDER BY t::text), '')) FROM {table} AS t"
                    ))
                    .await,
            );
        }
        let catalogs = "
            SELECT oid::text, relname, relkind::text, reltuples >= 0 FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1;
            SELECT oid::text, proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1;
            SELECT oid::text, typname FROM pg_type WHERE typnamespace = 'public'::regnamespace ORDER BY 1;
            SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp' ORDER BY 1;
            SELECT last_value, is_called FROM seq;
            SELECT oid FROM pg_largeobject_metadata;
            SELECT rolname, rolconfig::text, rolsuper FROM pg_roles ORDER BY 1;
            SELECT datname, datacl::text FROM pg_database ORDER BY 1;
            SELECT slot_name FROM pg_replication_slots; SELECT setconfig::text FROM pg_db_role_setting;
            SELECT gid FROM pg_prepared_xacts; SELECT extname FROM pg_extension ORDER BY 1;
            SELECT name, setting FROM pg_settings WHERE source = 'configuration file' ORDER BY 1";
        for catalog in catalogs.split(';') {
            all.extend(server.rows(catalog).await);
        }
    } else {
        all.extend(server.rows("CHECKSUM TABLE customers, orders, order_items, products, payroll").await);
        for catalog in [
            "SELECT table_name, table_type, create_time FROM information_schema.tables WHERE table_schema = 'shop' ORDER BY 1",
            "SELECT routine_name, routine_definition FROM information_schema.routines WHERE routine_schema = 'shop' ORDER BY 1",
            "SELECT schema_name FROM information_schema.schemata ORDER BY 1",
            "SELECT trigger_name FROM information_schema.triggers",
            "SELECT event_name FROM information_schema.events",
            "SELECT grantee, privilege_type FROM information_schema.user_privileges ORDER BY 1, 2",
            "SELECT next_not_cached_value FROM seq",
            "SELECT variable_name, variable_value FROM information_schema.global_variables \
             WHERE variable_name NOT IN ('GTID_BINLOG_POS', 'GTID_CURRENT_POS', 'GTID_BINLOG_STATE') ORDER BY 1",
        ] {
            all.extend(server.rows(catalog).await);
        }
    }
    all
}

/// What a server makes and removes by itself, below its folder.
const SERVERS_OWN: [&str; 9] =
    ["data/base/", "data/pg_", "data/global", "tmp/", "data/aria_log", "data/ib_", "data/ibtmp", "data/undo", "log"];

/// The names of all files below a folder, without the server's own.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("it is below the folder").to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if !SERVERS_OWN.iter().any(|part| name.starts_with(part)) {
                found.insert(name);
            }
        }
    }
    found
}

/// The files that hostile statements would write, by the paths in them.
fn targets(statements: &[String]) -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    for statement in statements {
        for (start, _) in statement.match_indices("/tmp/") {
            let path: String =
                statement[start..].chars().take_while(|c| !c.is_whitespace() && !"'\"`)".contains(*c)).collect();
            targets.insert(path);
        }
    }
    targets.retain(|path| !Path::new(path).exists());
    targets
}

fn statements(dialect: Dialect, own: &[&str]) -> Vec<String> {
    let lines = corpus::hostile(dialect).into_iter().chain(corpus::hidden(dialect)).map(|line| line.sql);
    let statements: Vec<String> = lines.chain(own.iter().map(|&sql| sql.to_owned())).collect();
    assert!(statements.len() >= 200, "{dialect} has {}", statements.len());
    statements
}

/// Runs all statements, and returns how many gave rows.
async fn run_all(database: &Database, statements: &[String]) -> usize {
    let mut ran = 0;
    for chunk in statements.chunks(4) {
        let cancel = CancellationToken::new();
        let reads = chunk.iter().map(|sql| {
            let query = ReadQuery { timeout: Some(TIMEOUT), ..ReadQuery::new(sql, Vec::new()) };
            database.read(query, &cancel)
        });
        for (sql, result) in chunk.iter().zip(futures_util::future::join_all(reads).await) {
            match result {
                Ok(_) => ran += 1,
                Err(DatabaseError::Unreachable { reason, .. }) => panic!("{sql}: {reason}"),
                Err(_) => {}
            }
        }
    }
    ran
}

async fn assert_unharmed(dialect: Dialect, ways: &str, own: &[&str]) {
    // A server of its own, whose every file is known.
    let Some(server) = servers::start(dialect) else { return };
    server.run(TABLES).await;
    for way in ways.split("\nCREATE ").filter(|way| !way.trim().is_empty()) {
        server.run(&format!("CREATE {way}")).await;
    }
    let statements = statements(dialect, own);
    let targets = targets(&statements);
    let database = server.database();
    read(&database, "SELECT 1").await.expect("rows");
    let files_before = files(&server.folder);
    assert!(!files_before.is_empty());
    let before = everything(&server).await;
    let ran = run_all(&database, &statements).await;
    assert_eq!(everything(&server).await, before);
    let files_after = files(&server.folder);
    let new: Vec<_> = files_after.difference(&files_before).collect();
    assert!(new.is_empty(), "{new:?}");
    let written: Vec<_> = targets.iter().filter(|path| Path::new(path).exists()).collect();
    assert!(written.is_empty(), "{written:?}");
    assert!(ran > 0, "not one statement of {} was even run", statements.len());
    assert_eq!(read(&database, "SELECT count(*) AS n FROM orders").await.expect("rows").rows[0][0], 2);
    assert_harmless(&database).await;
}

/// What is harmless is not in the way of what protects: nothing of it fails as a change.
async fn assert_harmless(database: &Database) {
    let mut wrong = Vec::new();
    let lines = corpus::harmless(database.dialect());
    assert!(lines.len() >= 50, "{}", lines.len());
    for line in lines {
        let result = read(database, &line.sql).await;
        if let Err(error @ (DatabaseError::ReadOnly { .. } | DatabaseError::Unreachable { .. })) = result {
            wrong.push(format!("{} {}\n    {error}", line.sql, line.about));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn postgres_stays_as_it_is_whatever_is_asked() {
    assert_unharmed(Dialect::Postgres, POSTGRES_WAYS, &POSTGRES_OWN).await;
}

#[tokio::test]
async fn mariadb_stays_as_it_is_whatever_is_asked() {
    assert_unharmed(Dialect::Mysql, MYSQL_WAYS, &MYSQL_OWN).await;
}

#[tokio::test]
async fn sqlite_stays_as_it_is_whatever_is_asked() {
    let file = SqliteFile::new(TABLES);
    let statements = statements(Dialect::Sqlite, &SQLITE_OWN);
    let targets = targets(&statements);
    let before = std::fs::read(file.path()).unwrap();
    let ran = run_all(&file.database(), &statements).await;
    assert!(std::fs::read(file.path()).unwrap() == before, "the file is another one");
    assert_eq!(files(file.folder.path()), BTreeSet::from(["shop.db".to_owned()]));
    let written: Vec<_> = targets.iter().filter(|path| Path::new(path).exists()).collect();
    assert!(written.is_empty(), "{written:?}");
    assert!(ran > 0);
    assert_harmless(&file.database()).await;
}

#[tokio::test]
async fn sqlite_compiles_nothing_but_reading() {
    let file = SqliteFile::new(TABLES);
    for sql in [
        "PRAGMA table_info(orders)",
        "SELECT * FROM pragma_user_version",
        "SELECT load_extension('x')",
        "ATTACH DATABASE ':memory:' AS a",
        "EXPLAIN DELETE FROM orders",
        "BEGIN",
    ] {
        let error = read(&file.database(), sql).await.unwrap_err();
        assert!(matches!(error, DatabaseError::ReadOnly { .. }), "{sql}: {error:?}");
    }
}
