//! Changes: shown without being made, and made as they were shown.

use database::{Database, DatabaseError, SqlStatement, TouchedRows, WriteMode, WriteOutcome, WriteQuery};
use serde_json::json;
use sql::dialect::Dialect;
use sql::schema::TableName;
use sql::value::Value;
use tokio_util::sync::CancellationToken;

use crate::servers::{self, SqliteFile, read};

fn bound(sql: &str, parameters: Vec<Value>) -> SqlStatement {
    SqlStatement { sql: sql.to_owned(), parameters }
}

/// Makes a table of its own for one test in each database.
async fn databases(table: &str, file: &SqliteFile) -> Vec<(Database, TableName)> {
    let rows = "VALUES (1, 'a', 1.50), (2, 'b', 2.50), (3, 'c', 3.50)";
    let create = format!(
        "CREATE TABLE {table} (id INTEGER PRIMARY KEY, name VARCHAR(20), price DECIMAL(10, 2)); INSERT INTO {table} {rows}"
    );
    rusqlite::Connection::open(file.path()).expect("a database").execute_batch(&create).expect("a database");
    let mut settings = vec![(file.settings(), "main")];
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        server.run(&format!("DROP TABLE IF EXISTS {table}; {create}")).await;
        settings.push((server.settings(), if server.dialect == Dialect::Postgres { "public" } else { "shop" }));
    }
    settings
        .into_iter()
        .map(|(mut settings, schema)| {
            settings.writable = true;
            let name = TableName { schema: schema.to_owned(), name: table.to_owned() };
            (Database::new(settings).expect("a database"), name)
        })
        .collect()
}

fn place(dialect: Dialect, number: usize) -> String {
    if dialect == Dialect::Postgres { format!("${number}") } else { "?".to_owned() }
}

/// Renames rows up to an id.
fn rename(dialect: Dialect, table: &TableName, name: &str, up_to: i64) -> WriteQuery {
    let (first, second) = (place(dialect, 1), place(dialect, 2));
    let t = &table.name;
    WriteQuery {
        statement: bound(
            &format!("UPDATE {t} SET name = {first} WHERE id <= {second}"),
            vec![Value::Text(name.to_owned()), Value::Integer(up_to)],
        ),
        touched: Some(TouchedRows {
            select: bound(
                &format!("SELECT id, name FROM {t} WHERE id <= {first} ORDER BY id"),
                vec![Value::Integer(up_to)],
            ),
            table: table.clone(),
            key: vec!["id".to_owned()],
        }),
        ..WriteQuery::default()
    }
}

async fn names(database: &Database, table: &TableName) -> Vec<String> {
    let rows = read(database, &format!("SELECT name FROM {} ORDER BY id", table.name)).await.expect("rows").rows;
    rows.into_iter().map(|row| row[0].as_str().expect("a text").to_owned()).collect()
}

async fn write(database: &Database, query: WriteQuery, mode: WriteMode) -> Result<WriteOutcome, DatabaseError> {
    database.write(query, mode, &CancellationToken::new()).await
}

#[tokio::test]
async fn a_dry_run_shows_the_rows_before_and_after_and_changes_nothing() {
    let file = SqliteFile::new("");
    for (database, table) in databases("dry", &file).await {
        let outcome = write(&database, rename(database.dialect(), &table, "x", 2), WriteMode::DryRun).await.unwrap();
        assert_eq!(outcome.rows_affected, 2);
        assert_eq!(outcome.before.unwrap().rows, [[json!(1), json!("a")], [json!(2), json!("b")]]);
        assert_eq!(outcome.after.unwrap().rows, [[json!(1), json!("x")], [json!(2), json!("x")]]);
        assert_eq!(outcome.returned, None);
        assert_eq!(names(&database, &table).await, ["a", "b", "c"], "{}", database.dialect());
    }
}

#[tokio::test]
async fn a_commit_is_the_change_that_was_shown_or_none() {
    let file = SqliteFile::new("");
    for (database, table) in databases("shown", &file).await {
        let query = rename(database.dialect(), &table, "x", 2);
        let shown = write(&database, query.clone(), WriteMode::DryRun).await.unwrap();
        let commit = WriteMode::Commit { expected: Some(shown.digest.clone()) };
        // Something else happens in between.
        let other = rename(database.dialect(), &table, "other", 1);
        write(&database, other, WriteMode::Commit { expected: None }).await.unwrap();
        assert_eq!(write(&database, query.clone(), commit).await.unwrap_err(), DatabaseError::Changed);
        assert_eq!(names(&database, &table).await, ["other", "b", "c"]);
        // Shown again, it is committed.
        let shown = write(&database, query.clone(), WriteMode::DryRun).await.unwrap();
        let done = write(&database, query, WriteMode::Commit { expected: Some(shown.digest.clone()) }).await.unwrap();
        assert_eq!(done, shown);
        assert_eq!(names(&database, &table).await, ["x", "x", "c"]);
    }
}

#[tokio::test]
async fn a_change_of_too_many_rows_is_taken_back() {
    let file = SqliteFile::new("");
    for (database, table) in databases("many", &file).await {
        let query = WriteQuery { max_affected: Some(2), ..rename(database.dialect(), &table, "x", 3) };
        let error = write(&database, query, WriteMode::Commit { expected: None }).await.unwrap_err();
        assert_eq!(error, DatabaseError::TooManyRows { affected: 3, max: 2 });
        assert_eq!(names(&database, &table).await, ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn returned_rows_come_back_with_exact_values() {
    let file = SqliteFile::new("");
    for (database, table) in databases("returned", &file).await {
        let places: Vec<String> = (1..=3).map(|number| place(database.dialect(), number)).collect();
        let sql = format!("INSERT INTO {} VALUES ({}) RETURNING id, name, price;", table.name, places.join(", "));
        let parameters = vec![Value::Integer(4), Value::Text("d'".to_owned()), Value::Text("12345678.90".to_owned())];
        let query = WriteQuery { statement: bound(&sql, parameters), ..WriteQuery::default() };
        let outcome = write(&database, query, WriteMode::Commit { expected: None }).await.unwrap();
        assert_eq!(outcome.rows_affected, 1);
        // SQLite has no decimals.
        let price = if database.dialect() == Dialect::Sqlite { json!(12_345_678.9) } else { json!("12345678.90") };
        assert_eq!(outcome.returned.unwrap().rows, [[json!(4), json!("d'"), price]]);
        assert_eq!(names(&database, &table).await, ["a", "b", "c", "d'"]);
    }
}

#[tokio::test]
async fn only_changes_of_rows_are_written_and_only_in_writable_databases() {
    let file = SqliteFile::new("");
    for (database, table) in databases("closed", &file).await {
        for sql in
            ["DROP TABLE closed", "CREATE TABLE x (a int)", "COMMIT", "TRUNCATE closed", "SELECT 1", "/*! COMMIT */"]
        {
            let query = WriteQuery { statement: bound(sql, Vec::new()), ..WriteQuery::default() };
            let error = write(&database, query, WriteMode::DryRun).await.unwrap_err();
            assert!(matches!(error, DatabaseError::Denied { .. }), "{sql}: {error:?}");
        }
        let several = rename(database.dialect(), &table, "x", 1);
        let several = WriteQuery {
            statement: bound(&format!("DELETE FROM {0}; COMMIT; DELETE FROM {0}", table.name), Vec::new()),
            ..several
        };
        let error = write(&database, several, WriteMode::DryRun).await.unwrap_err();
        assert!(matches!(error, DatabaseError::Syntax { .. } | DatabaseError::ReadOnly { .. }), "{error:?}");
        let mut settings = database.settings().clone();
        settings.writable = false;
        let query = rename(database.dialect(), &table, "x", 1);
        let error = write(&Database::new(settings).unwrap(), query, WriteMode::DryRun).await.unwrap_err();
        assert_eq!(error, DatabaseError::NotWritable);
        assert_eq!(names(&database, &table).await, ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn a_table_that_cannot_take_back_a_change_is_not_tried() {
    let Some(server) = servers::shared(Dialect::Mysql) else { return };
    server.run("DROP TABLE IF EXISTS isam; CREATE TABLE isam (id INT PRIMARY KEY, name TEXT) ENGINE = MyISAM; INSERT INTO isam VALUES (1, 'a')").await;
    let mut settings = server.settings();
    settings.writable = true;
    let database = Database::new(settings).unwrap();
    let query = || WriteQuery { statement: bound("DELETE FROM `isam`", Vec::new()), ..WriteQuery::default() };
    let error = write(&database, query(), WriteMode::DryRun).await.unwrap_err();
    assert!(matches!(&error, DatabaseError::DryRunImpossible { reason } if reason.contains("MyISAM")), "{error:?}");
    assert_eq!(read(&database, "SELECT * FROM isam").await.unwrap().rows.len(), 1);
    let outcome = write(&database, query(), WriteMode::Commit { expected: None }).await.unwrap();
    assert_eq!(outcome.rows_affected, 1);
}

#[tokio::test]
async fn a_cancelled_change_is_taken_back() {
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        server
            .run("DROP TABLE IF EXISTS slow; CREATE TABLE slow (id INT PRIMARY KEY); INSERT INTO slow VALUES (1), (2)")
            .await;
        let mut settings = server.settings();
        settings.writable = true;
        let database = Database::new(settings).unwrap();
        let wait = if server.dialect == Dialect::Postgres { "pg_sleep(600) IS NOT NULL" } else { "sleep(600) = 0" };
        let sql = format!("UPDATE slow SET id = id + 10 WHERE id = 1 AND {wait} /* slow change */");
        let cancel = CancellationToken::new();
        let query = WriteQuery { statement: bound(&sql, Vec::new()), ..WriteQuery::default() };
        let cancelling = async {
            server.wait_until_running("slow change", 1).await;
            cancel.cancel();
        };
        let (result, ()) =
            tokio::join!(database.write(query, WriteMode::Commit { expected: None }, &cancel), cancelling);
        assert_eq!(result.unwrap_err(), DatabaseError::Cancelled);
        server.wait_until_running("slow change", 0).await;
        let rows = read(&database, "SELECT id FROM slow ORDER BY id").await.unwrap().rows;
        assert_eq!(rows, [[json!(1)], [json!(2)]]);
    }
}
