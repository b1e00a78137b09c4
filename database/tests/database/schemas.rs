//! What a database says it contains.

use std::time::{Duration, Instant};

use database::{Database, Freshness};
use sql::dialect::Dialect;
use sql::schema::{Column, Key, Table, TableKind, TableName};
use tokio_util::sync::CancellationToken;

use crate::column::column;
use crate::servers::{self, SqliteFile};

async fn table(database: &Database, schema: &str, name: &str) -> Table {
    let all = database.schema(Freshness::New, &CancellationToken::new()).await.expect("a schema");
    let name = TableName { schema: schema.to_owned(), name: name.to_owned() };
    all.tables.get(&name).unwrap_or_else(|| panic!("no {name:?} among {:?}", all.tables.keys())).clone()
}

fn foreign(schema: &str, table: &str, column: &str) -> Key {
    let table = TableName { schema: schema.to_owned(), name: table.to_owned() };
    Key::Foreign { table, column: column.to_owned() }
}

#[tokio::test]
async fn postgres_tells_everything_about_its_tables() {
    let Some(server) = servers::shared(Dialect::Postgres) else { return };
    server
        .run(
            "DROP SCHEMA IF EXISTS told CASCADE; CREATE SCHEMA told; CREATE TYPE told.state AS ENUM ('new', 'it''s done');
             CREATE TABLE told.people (id int PRIMARY KEY, mail varchar(50) UNIQUE NOT NULL);
             CREATE TABLE told.orders (id int PRIMARY KEY, person int REFERENCES told.people, state told.state DEFAULT 'new',
               states told.state[], total numeric(10, 2) NOT NULL DEFAULT 0, \"Odd name\" text);
             COMMENT ON TABLE told.orders IS 'what was ordered'; COMMENT ON COLUMN told.orders.total IS 'in euros';
             CREATE VIEW told.totals AS SELECT id, total FROM told.orders;
             CREATE MATERIALIZED VIEW told.kept AS SELECT id FROM told.orders;
             INSERT INTO told.people SELECT n, n::text FROM generate_series(1, 500) AS n; ANALYZE told.people",
        )
        .await;
    let database = server.database();
    let values = vec!["new".to_owned(), "it's done".to_owned()];
    let expected = Table {
        kind: TableKind::Base,
        comment: Some("what was ordered".to_owned()),
        columns: vec![
            Column { nullable: false, key: Some(Key::Primary), ..column("id", "integer") },
            Column { key: Some(foreign("told", "people", "id")), ..column("person", "integer") },
            Column {
                default: Some("'new'::told.state".to_owned()),
                values: values.clone(),
                ..column("state", "told.state")
            },
            Column { values, ..column("states", "told.state[]") },
            Column {
                nullable: false,
                default: Some("0".to_owned()),
                comment: Some("in euros".to_owned()),
                ..column("total", "numeric(10,2)")
            },
            column("Odd name", "text"),
        ],
        estimated_rows: None,
    };
    assert_eq!(table(&database, "told", "orders").await, expected);
    let people = table(&database, "told", "people").await;
    assert_eq!((people.estimated_rows, &people.columns[1].key), (Some(500), &Some(Key::Unique)));
    let TableKind::View { definition: Some(definition) } = table(&database, "told", "totals").await.kind else {
        panic!("no definition")
    };
    assert!(definition.contains("FROM told.orders"), "{definition}");
    // A materialized view shows what its query reads, like any other.
    let kept = table(&database, "told", "kept").await.kind;
    assert!(
        matches!(&kept, TableKind::View { definition: Some(text) } if text.contains("FROM told.orders")),
        "{kept:?}"
    );
    let all = database.schema(Freshness::Recent, &CancellationToken::new()).await.unwrap();
    assert_eq!(all.search_path, ["public"]);
    assert!(all.tables.keys().all(|name| !name.schema.starts_with("pg_")));
}

#[tokio::test]
async fn mariadb_tells_everything_about_its_tables() {
    let Some(server) = servers::shared(Dialect::Mysql) else { return };
    server
        .run(
            "DROP VIEW IF EXISTS told_totals; DROP TABLE IF EXISTS told_orders; DROP TABLE IF EXISTS told_people;
             CREATE TABLE told_people (id INT PRIMARY KEY, mail VARCHAR(50) NOT NULL UNIQUE);
             CREATE TABLE told_orders (id INT PRIMARY KEY, person INT, state ENUM('new', 'it''s done') DEFAULT 'new',
               total DECIMAL(10, 2) NOT NULL DEFAULT 0 COMMENT 'in euros', `Odd name` TEXT,
               FOREIGN KEY (person) REFERENCES told_people (id)) COMMENT 'what was ordered';
             CREATE VIEW told_totals AS SELECT id, total FROM told_orders",
        )
        .await;
    let database = server.database();
    let mut orders = table(&database, "shop", "told_orders").await;
    assert!(orders.estimated_rows.take().is_some());
    let expected = Table {
        kind: TableKind::Base,
        comment: Some("what was ordered".to_owned()),
        columns: vec![
            Column { nullable: false, key: Some(Key::Primary), ..column("id", "int(11)") },
            Column { key: Some(foreign("shop", "told_people", "id")), ..column("person", "int(11)") },
            Column {
                default: Some("'new'".to_owned()),
                values: vec!["new".to_owned(), "it's done".to_owned()],
                ..column("state", "enum('new','it''s done')")
            },
            Column {
                nullable: false,
                default: Some("0.00".to_owned()),
                comment: Some("in euros".to_owned()),
                ..column("total", "decimal(10,2)")
            },
            column("Odd name", "text"),
        ],
        estimated_rows: None,
    };
    assert_eq!(orders, expected);
    assert_eq!(table(&database, "shop", "told_people").await.columns[1].key, Some(Key::Unique));
    let TableKind::View { definition: Some(definition) } = table(&database, "shop", "told_totals").await.kind else {
        panic!("no definition")
    };
    assert!(definition.contains("`told_orders`"), "{definition}");
}

#[tokio::test]
async fn sqlite_tells_everything_about_its_tables() {
    let file = SqliteFile::new(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, mail TEXT NOT NULL UNIQUE);
         CREATE TABLE orders (id INTEGER PRIMARY KEY, person INT REFERENCES people, total DECIMAL(10, 2) NOT NULL DEFAULT 0, \"Odd name\");
         CREATE VIEW totals AS SELECT id, total FROM orders;
         CREATE VIRTUAL TABLE words USING fts5(word);
         INSERT INTO people VALUES (1, 'a'), (2, 'b'); ANALYZE",
    );
    let database = file.database();
    let expected = Table {
        kind: TableKind::Base,
        comment: None,
        columns: vec![
            Column { nullable: false, key: Some(Key::Primary), is_filled: true, ..column("id", "INTEGER") },
            Column { key: Some(foreign("main", "people", "id")), ..column("person", "INT") },
            Column { nullable: false, default: Some("0".to_owned()), ..column("total", "DECIMAL(10, 2)") },
            column("Odd name", ""),
        ],
        estimated_rows: None,
    };
    assert_eq!(table(&database, "main", "orders").await, expected);
    let people = table(&database, "main", "people").await;
    assert_eq!((people.estimated_rows, &people.columns[1].key), (Some(2), &Some(Key::Unique)));
    let definition = Some("CREATE VIEW totals AS SELECT id, total FROM orders".to_owned());
    assert_eq!(table(&database, "main", "totals").await.kind, TableKind::View { definition });
    assert_eq!(table(&database, "main", "words").await.kind, TableKind::Other);
    let all = database.schema(Freshness::Recent, &CancellationToken::new()).await.unwrap();
    assert_eq!(
        all.tables.keys().map(|name| name.name.as_str()).collect::<Vec<_>>(),
        ["orders", "people", "totals", "words"]
    );
}

#[tokio::test]
async fn a_thousand_tables_are_read_in_seconds() {
    let create: Vec<String> =
        (0..1_000).map(|n| format!("CREATE TABLE many_{n} (id INT PRIMARY KEY, a INT, b VARCHAR(20));")).collect();
    let create = create.concat();
    let file = SqliteFile::new(&create);
    let mut databases = vec![file.database()];
    let servers: Vec<_> = [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::start).collect();
    for server in &servers {
        server.run(&create).await;
        databases.push(server.database());
    }
    for database in databases {
        let started = Instant::now();
        let cancel = CancellationToken::new();
        let readings = (0..64).map(|_| database.schema(Freshness::New, &cancel));
        for all in futures_util::future::join_all(readings).await {
            let all = all.unwrap();
            assert_eq!(all.tables.len(), 1_000);
            assert!(all.tables.values().all(|table| table.columns.len() == 3));
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{}: {:?}", database.dialect(), started.elapsed());
    }
}
