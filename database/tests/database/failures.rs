//! What a caller is told, and what it is not.

use database::{ConstraintKind, Database, DatabaseError, WriteMode, WriteQuery};
use serde_json::json;
use sql::dialect::Dialect;
use sql::settings::DatabaseSettings;
use tokio_util::sync::CancellationToken;

use crate::servers::{self, SqliteFile, read, read_with};

/// Runs a statement that fails, and returns what the caller learns.
async fn failure(database: &Database, sql: &str) -> DatabaseError {
    match read(database, sql).await {
        Err(error) => error,
        Ok(rows) => panic!("{sql} gave {rows:?}"),
    }
}

#[tokio::test]
async fn unknown_names_and_mistakes_are_told_apart() {
    let file = SqliteFile::new("CREATE TABLE known (a)");
    let mut databases = vec![file.database()];
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        server.run("DROP TABLE IF EXISTS known; CREATE TABLE known (a int)").await;
        databases.push(server.database());
    }
    for database in databases {
        let column = failure(&database, "SELECT nme FROM known").await;
        assert_eq!(column, DatabaseError::UnknownColumn { column: "nme".to_owned() });
        let column = failure(&database, "SELECT k.nme FROM known AS k").await;
        assert_eq!(column, DatabaseError::UnknownColumn { column: "k.nme".to_owned() });
        let table = failure(&database, "SELECT * FROM knwn").await;
        assert!(matches!(&table, DatabaseError::UnknownTable { table } if table.ends_with("knwn")), "{table:?}");
        let syntax = failure(&database, "SELEC 1").await;
        assert!(matches!(syntax, DatabaseError::Syntax { .. }), "{syntax:?}");
        let two = failure(&database, "SELECT 1; SELECT 2").await;
        assert!(matches!(two, DatabaseError::Syntax { .. }), "{two:?}");
        let change = failure(&database, "DELETE FROM known").await;
        assert!(matches!(change, DatabaseError::ReadOnly { .. }), "{change:?}");
    }
}

#[tokio::test]
async fn no_message_quotes_what_stands_in_a_row() {
    if let Some(server) = servers::shared(Dialect::Postgres) {
        server
            .run(
                "DROP TABLE IF EXISTS private CASCADE; CREATE TABLE private (id int PRIMARY KEY, word text); \
                 INSERT INTO private VALUES (1, 'my s3cret \"x\" word'); \
                 CREATE OR REPLACE FUNCTION tell() RETURNS int LANGUAGE plpgsql AS \
                 $$ DECLARE w text; BEGIN SELECT word INTO w FROM private; RAISE EXCEPTION 'it is %', w; END $$",
            )
            .await;
        let database = server.database();
        for sql in [
            "SELECT word::int FROM private",
            "SELECT word::date FROM private",
            "SELECT word::jsonb FROM private",
            "SELECT word::uuid FROM private",
            "SELECT regexp_replace('a', '(' || word, '') FROM private",
            "SELECT to_timestamp('2024', word) , word::inet FROM private",
            "SELECT query_to_xml(word, true, true, '') FROM private",
            "SELECT tell()",
            "SELECT convert_from(word::bytea, word) FROM private",
            "SELECT nextval(word) FROM private",
            "SELECT currval(word) FROM private",
            "SELECT word::regclass FROM private",
            "SELECT set_config(word, 'a', true) FROM private",
            "SELECT current_setting(word) FROM private",
            "SELECT '2024-01-01 00:00'::timestamp AT TIME ZONE word FROM private",
            "SELECT to_regtype(word), word::regtype FROM private",
            "SELECT has_table_privilege(word, 'select') FROM private",
            "SELECT enum_range(NULL::information_schema.yes_or_no), word::xml FROM private",
        ] {
            let message =
                read(&database, sql).await.map_or_else(|error| format!("{error:?} {error}"), |_| String::new());
            assert!(!message.contains("s3cret"), "{sql}: {message}");
        }
    }
    if let Some(server) = servers::shared(Dialect::Mysql) {
        server
            .run(
                "DROP TABLE IF EXISTS private; CREATE TABLE private (id int PRIMARY KEY, word text); \
                 INSERT INTO private VALUES (1, 'my s3cret ''x'' word'); DROP FUNCTION IF EXISTS tell; \
                 CREATE FUNCTION tell() RETURNS int READS SQL DATA BEGIN DECLARE w text; SELECT word INTO w FROM private; \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = w; RETURN 1; END",
            )
            .await;
        let database = server.database();
        for sql in [
            "SELECT extractvalue(1, concat('~', word)) FROM private",
            "SELECT updatexml(1, concat('~', word), 1) FROM private",
            "SELECT CAST(word AS DATE) FROM private",
            "SELECT word + 0 FROM private",
            "SELECT json_extract(word, word) FROM private",
            "SELECT ST_GeomFromText(word) FROM private",
            "SELECT 'a' REGEXP concat('(', word) FROM private",
            "SELECT convert_tz(now(), word, word) FROM private",
        ] {
            let message =
                read(&database, sql).await.map_or_else(|error| format!("{error:?} {error}"), |_| String::new());
            assert!(!message.contains("s3cret"), "{sql}: {message}");
        }
        let message = failure(&database, "SELECT tell()").await.to_string();
        assert!(!message.contains("s3cret"), "{message}");
    }
    let file = SqliteFile::new("CREATE TABLE private (word); INSERT INTO private VALUES ('my s3cret ''x'' word')");
    for sql in [
        "SELECT json(word) FROM private",
        "SELECT json_extract('{}', word) FROM private",
        "SELECT abs(-9223372036854775808), word FROM private",
        "SELECT 'a' LIKE 'a' ESCAPE word FROM private",
        "SELECT format(word) + CAST(word AS INTEGER), json_each.value FROM private, json_each(word)",
    ] {
        let result = read(&file.database(), sql).await;
        let message = result.map_or_else(|error| format!("{error:?} {error}"), |_| String::new());
        assert!(!message.contains("s3cret"), "{sql}: {message}");
    }
}

#[tokio::test]
async fn a_broken_rule_is_named_without_the_row() {
    let file = SqliteFile::new(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY, code TEXT NOT NULL CONSTRAINT parent_code UNIQUE, n INT CONSTRAINT positive CHECK (n > 0)); \
         INSERT INTO parent VALUES (1, 's3cret', 1); CREATE TABLE child (p INT CONSTRAINT child_p REFERENCES parent (id))",
    );
    let mut settings = vec![file.settings()];
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        server
            .run(
                "DROP TABLE IF EXISTS child; DROP TABLE IF EXISTS parent; \
                 CREATE TABLE parent (id INTEGER PRIMARY KEY, code VARCHAR(20) NOT NULL, n INT, \
                 CONSTRAINT parent_code UNIQUE (code), CONSTRAINT positive CHECK (n > 0)); \
                 INSERT INTO parent VALUES (1, 's3cret', 1); \
                 CREATE TABLE child (p INT, CONSTRAINT child_p FOREIGN KEY (p) REFERENCES parent (id))",
            )
            .await;
        settings.push(server.settings());
    }
    for mut settings in settings {
        settings.writable = true;
        let database = Database::new(settings).unwrap();
        let mut found = Vec::new();
        for sql in [
            "INSERT INTO parent VALUES (2, 's3cret', 1)",
            "INSERT INTO child VALUES (99)",
            "INSERT INTO parent VALUES (2, NULL, 1)",
            "INSERT INTO parent VALUES (2, 's3cret2', -5)",
        ] {
            let query = WriteQuery { statement: statement(sql), ..WriteQuery::default() };
            let error = database.write(query, WriteMode::DryRun, &CancellationToken::new()).await.unwrap_err();
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{error:?}");
            match error {
                DatabaseError::Constraint { kind, constraint } => found.push((kind, constraint)),
                other => panic!("{sql}: {other:?}"),
            }
        }
        let some = |name: &str| Some(name.to_owned());
        let expected = match database.dialect() {
            Dialect::Sqlite => [
                (ConstraintKind::Unique, some("parent.code")),
                (ConstraintKind::ForeignKey, None),
                (ConstraintKind::NotNull, some("parent.code")),
                (ConstraintKind::Check, some("positive")),
            ],
            Dialect::Postgres => [
                (ConstraintKind::Unique, some("parent_code")),
                (ConstraintKind::ForeignKey, some("child_p")),
                (ConstraintKind::NotNull, some("code")),
                (ConstraintKind::Check, some("positive")),
            ],
            Dialect::Mysql => [
                (ConstraintKind::Unique, some("parent_code")),
                (ConstraintKind::ForeignKey, some("child_p")),
                (ConstraintKind::NotNull, some("code")),
                (ConstraintKind::Check, some("positive")),
            ],
        };
        assert_eq!(found, expected, "{}", database.dialect());
    }
}

fn statement(sql: &str) -> database::SqlStatement {
    database::SqlStatement { sql: sql.to_owned(), parameters: Vec::new() }
}

#[tokio::test]
async fn a_wrong_type_is_a_mistake_of_the_caller() {
    let Some(server) = servers::shared(Dialect::Postgres) else { return };
    let database = server.database();
    for (sql, parameter) in
        [("SELECT $1::int", json!("abc")), ("SELECT 1 + $1", json!("x")), ("SELECT $1::date", json!(true))]
    {
        let error = read_with(&database, sql, vec![(&parameter).into()]).await.unwrap_err();
        assert!(matches!(error, DatabaseError::TypeMismatch { .. }), "{sql}: {error:?}");
        assert!(!error.to_string().contains("abc"), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_database_are_told_apart() {
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        let mut settings = server.settings();
        settings.password = Some("wr0ng".to_owned());
        let error = failure(&Database::new(settings).unwrap(), "SELECT 1").await;
        assert!(matches!(error, DatabaseError::AuthenticationFailed { .. }), "{error:?}");
        let mut settings = server.settings();
        settings.password = None;
        let error = failure(&Database::new(settings).unwrap(), "SELECT 1").await;
        assert!(matches!(error, DatabaseError::AuthenticationFailed { .. }), "{error:?}");
        let mut settings = DatabaseSettings::new(&server.url.replace("/shop", "/shops")).unwrap();
        settings.password = Some(server.password.clone());
        let error = failure(&Database::new(settings).unwrap(), "SELECT 1").await;
        assert!(
            matches!(error, DatabaseError::Unreachable { .. } | DatabaseError::AuthenticationFailed { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_file_that_does_not_exist_is_an_error_and_is_not_made() {
    let file = SqliteFile::new("");
    let missing = file.folder.path().join("missing.db");
    let mut settings = DatabaseSettings::new(&format!("sqlite://{}", missing.display())).unwrap();
    settings.writable = true;
    let database = Database::new(settings).unwrap();
    let error = failure(&database, "SELECT 1").await;
    assert!(matches!(error, DatabaseError::Unreachable { .. }), "{error:?}");
    let query = WriteQuery { statement: statement("INSERT INTO t VALUES (1)"), ..WriteQuery::default() };
    let error = database.write(query, WriteMode::DryRun, &CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, DatabaseError::Unreachable { .. }), "{error:?}");
    assert!(!missing.exists());

    let text = file.folder.path().join("text.db");
    std::fs::write(&text, "this is not a database, it is a text that is long enough to be read as a header of one")
        .unwrap();
    for path in [text, file.folder.path().to_owned()] {
        let settings = DatabaseSettings::new(&format!("sqlite://{}", path.display())).unwrap();
        let error = failure(&Database::new(settings).unwrap(), "SELECT 1").await;
        assert!(matches!(error, DatabaseError::Unreachable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_database_never_shows_its_password() {
    for server in [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared) {
        let database = server.database();
        read(&database, "SELECT 1").await.unwrap();
        let shown = format!("{database:?} {:?}", database.settings());
        assert!(shown.contains("(hidden)") && !shown.contains(&server.password), "{shown}");
    }
}
