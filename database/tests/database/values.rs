//! Values are exact in both directions.

use database::{Database, DatabaseError, RowCap, Truncation};
use serde_json::{Value as Json, json};
use sql::dialect::Dialect;
use sql::settings::RowCaps;
use sql::value::Value;

use crate::servers::{self, SqliteFile, read, read_with};

/// Reads each expression alone and compares its type and its value.
async fn assert_values(database: &Database, cases: &[(&str, &str, Json)]) {
    let mut wrong = Vec::new();
    for (expression, type_name, expected) in cases {
        let rows = match read(database, &format!("SELECT {expression} AS a")).await {
            Ok(rows) => rows,
            Err(error) => {
                wrong.push(format!("{expression}: {error}"));
                continue;
            }
        };
        let (cell, found) = (&rows.rows[0][0], &rows.columns[0].type_name);
        if cell != expected || found != type_name {
            wrong.push(format!("{expression}: {found} {cell}, not {type_name} {expected}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Sends each value as the parameter of an expression and compares what comes back.
async fn assert_parameters(database: &Database, cases: &[(&str, Json, Json)]) {
    let mut wrong = Vec::new();
    for (expression, parameter, expected) in cases {
        let rows = read_with(database, &format!("SELECT {expression} AS a"), vec![Value::from(parameter)]).await;
        match rows {
            Ok(rows) if rows.rows[0][0] == *expected => {}
            Ok(rows) => wrong.push(format!("{expression} of {parameter}: {}, not {expected}", rows.rows[0][0])),
            Err(error) => wrong.push(format!("{expression} of {parameter}: {error}")),
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[tokio::test]
async fn postgres_gives_every_value_exactly() {
    let Some(server) = servers::shared(Dialect::Postgres) else { return };
    server
        .run(
            "DROP TYPE IF EXISTS mood, pair CASCADE; CREATE TYPE mood AS ENUM ('sad', 'it''s ok'); \
             CREATE TYPE pair AS (a int, b text); DROP DOMAIN IF EXISTS price; CREATE DOMAIN price AS numeric(10, 2)",
        )
        .await;
    let cases = [
        ("NULL::int", "int4", json!(null)),
        ("9007199254740993::int8", "int8", json!(9_007_199_254_740_993_i64)),
        ("'-9223372036854775808'::int8", "int8", json!(i64::MIN)),
        ("12345678901234567890.1234567890123456789", "numeric", json!("12345678901234567890.1234567890123456789")),
        ("0.10::numeric", "numeric", json!("0.10")),
        ("'NaN'::numeric", "numeric", json!("NaN")),
        ("'Infinity'::numeric", "numeric", json!("Infinity")),
        // PostgreSQL describes a domain as the type below it.
        ("12.5::price", "numeric", json!("12.50")),
        ("1.1::float4", "float4", json!(1.1)),
        ("0.1::float8 + 0.2::float8", "float8", json!(0.1 + 0.2)),
        ("'-Infinity'::float8", "float8", json!("-Infinity")),
        ("true", "bool", json!(true)),
        ("''", "text", json!("")),
        ("'日本語 😀'", "text", json!("日本語 😀")),
        ("E'a\\\\b\\nc'", "text", json!("a\\b\nc")),
        ("'\\x00ff'::bytea", "bytea", json!({"base64": "AP8="})),
        ("'grüß'::bytea", "bytea", json!("grüß")),
        ("ARRAY[1, NULL, 3]", "_int4", json!([1, null, 3])),
        ("ARRAY[ARRAY['a\"b', NULL], ARRAY['{x,y}', '日本']]", "_text", json!([["a\"b", null], ["{x,y}", "日本"]])),
        ("ARRAY[1.10, 2]::numeric[]", "_numeric", json!(["1.10", "2"])),
        ("'{}'::int[]", "_int4", json!([])),
        ("'[0:1]={1,2}'::int[]", "_int4", json!([1, 2])),
        ("ARRAY['sad', 'it''s ok']::mood[]", "_mood", json!(["sad", "it's ok"])),
        ("'{\"b\": [1, 2.5, null], \"a\": \"ü\"}'::jsonb", "jsonb", json!({"a": "ü", "b": [1, 2.5, null]})),
        ("'{\"a\": 12345678901234567890.1}'::jsonb", "jsonb", json!("{\"a\": 12345678901234567890.1}")),
        ("'null'::json", "json", json!(null)),
        ("'5f0c1a9e-0000-4000-8000-000000000001'::uuid", "uuid", json!("5f0c1a9e-0000-4000-8000-000000000001")),
        ("'it''s ok'::mood", "mood", json!("it's ok")),
        ("B'0101'", "bit", json!("0101")),
        ("B'01'::varbit", "varbit", json!("01")),
        ("'10.0.0.1'::inet", "inet", json!("10.0.0.1")),
        ("'::1/64'::inet", "inet", json!("::1/64")),
        ("'10.0.0.0/8'::cidr", "cidr", json!("10.0.0.0/8")),
        ("'08:00:2b:01:02:03'::macaddr", "macaddr", json!("08:00:2b:01:02:03")),
        ("'[1,5)'::int4range", "int4range", json!("[1,5)")),
        ("'{[1,2),[4,5)}'::int4multirange", "int4multirange", json!("{[1,2),[4,5)}")),
        ("'1 year 2 mons -3 days 04:05:06.7'::interval", "interval", json!("P1Y2M-3DT4H5M6.7S")),
        ("'23:59:59.000001'::time", "time", json!("23:59:59.000001")),
        ("'03:04:05+02'::timetz", "timetz", json!("03:04:05+02:00")),
        ("'2024-02-29'::date", "date", json!("2024-02-29")),
        ("'0044-03-15 BC'::date", "date", json!("0044-03-15 BC")),
        ("'infinity'::date", "date", json!("infinity")),
        ("'2024-01-02 03:04:05.60'::timestamp", "timestamp", json!("2024-01-02T03:04:05.6")),
        ("'2024-01-02 03:04:05+02'::timestamptz", "timestamptz", json!("2024-01-02T01:04:05Z")),
        ("'-infinity'::timestamptz", "timestamptz", json!("-infinity")),
        ("'0044-03-15 12:00 BC'::timestamp", "timestamp", json!("0044-03-15 12:00:00 BC")),
        ("'1000.5'::money", "money", json!("$1,000.50")),
        ("'(1,2)'::point", "point", json!("(1,2)")),
        ("'((1,1),(0,0))'::box", "box", json!("(1,1),(0,0)")),
        ("ROW(1, 'a b')::pair", "pair", json!("(1,\"a b\")")),
        ("'<a>x</a>'::xml", "xml", json!("<a>x</a>")),
        ("'a:1 b:2'::tsvector", "tsvector", json!("'a':1 'b':2")),
        ("'pg_class'::regclass", "regclass", json!("pg_class")),
        ("4294967295::oid", "oid", json!(4_294_967_295_u64)),
        ("'x'::\"char\"", "char", json!("x")),
        ("pg_sleep(0)", "void", json!("")),
    ];
    assert_values(&server.database(), &cases).await;
}

#[tokio::test]
async fn postgres_takes_every_parameter_exactly() {
    let Some(server) = servers::shared(Dialect::Postgres) else { return };
    let cases = [
        ("$1::numeric", json!("12345678901234567890.10"), json!("12345678901234567890.10")),
        ("$1::numeric", json!(12.34), json!("12.34")),
        ("$1::numeric", json!(u64::MAX), json!(u64::MAX.to_string())),
        ("$1::int8", json!(i64::MIN), json!(i64::MIN)),
        ("$1::int4", json!(null), json!(null)),
        ("$1::bool", json!(true), json!(true)),
        ("$1::text", json!("a'b\"c\\d; DROP TABLE x --"), json!("a'b\"c\\d; DROP TABLE x --")),
        ("$1::text", json!(5), json!("5")),
        ("$1", json!("plain"), json!("plain")),
        ("$1::int[]", json!([1, null, 3]), json!([1, null, 3])),
        ("$1::text[]", json!(["a\"b", null, "NULL", ""]), json!(["a\"b", null, "NULL", ""])),
        ("2 = ANY($1::int[])", json!([1, 2]), json!(true)),
        ("$1::jsonb", json!({"a": [1, "x"]}), json!({"a": [1, "x"]})),
        ("$1::jsonb", json!([1, "x"]), json!([1, "x"])),
        ("$1::uuid", json!("5f0c1a9e-0000-4000-8000-000000000001"), json!("5f0c1a9e-0000-4000-8000-000000000001")),
        ("$1::timestamptz", json!("2024-01-02T03:04:05.6Z"), json!("2024-01-02T03:04:05.6Z")),
        ("$1::date", json!("2024-02-29"), json!("2024-02-29")),
        ("$1::inet", json!("10.0.0.0/8"), json!("10.0.0.0/8")),
        ("$1::interval", json!("P1D"), json!("P1D")),
        ("1.5 = $1", json!("1.50"), json!(true)),
    ];
    assert_parameters(&server.database(), &cases).await;
    let bytes = vec![Value::Bytes(vec![0, 0xff])];
    let rows = read_with(&server.database(), "SELECT $1::bytea", bytes).await.unwrap();
    assert_eq!(rows.rows, [[json!({"base64": "AP8="})]]);
}

#[tokio::test]
async fn mariadb_gives_every_value_exactly() {
    let Some(server) = servers::shared(Dialect::Mysql) else { return };
    server
        .run(
            "SET sql_mode = ''; SET time_zone = '+00:00'; DROP TABLE IF EXISTS every; CREATE TABLE every (
               e ENUM('a', 'it''s'), s SET('x', 'y'), b BIT(10), y YEAR, zd DATE, zdt DATETIME, ts TIMESTAMP NULL,
               dt DATETIME(3), d DATE, t TIME(2), g GEOMETRY, u BIGINT UNSIGNED, f FLOAT, bin VARBINARY(4), bl BLOB,
               j JSON, c CHAR(3), ti TINYINT(1), me MEDIUMINT, tx TEXT, ui UUID, de DECIMAL(65, 30));
             INSERT INTO every VALUES ('it''s', 'x,y', b'1000000101', 2024, '0000-00-00', '0000-00-00',
               '2024-01-02 03:04:05', '2024-01-02 03:04:05.6', '2024-02-29', '-838:59:58.5', ST_GeomFromText('POINT(1 2)'),
               18446744073709551615, 1.1, x'00ff', 'grüß', '{\"a\": 1}', 'ab', 1, -8388608, '日本語 😀',
               '5f0c1a9e-0000-4000-8000-000000000001', '12345678901234567890.123456789012345678901234567890')",
        )
        .await;
    let columns = [
        ("e", "enum", json!("it's")),
        ("s", "set", json!("x,y")),
        ("b", "bit", json!("1000000101")),
        ("y", "year unsigned", json!(2024)),
        ("zd", "date", json!("0000-00-00")),
        ("zdt", "datetime", json!("0000-00-00 00:00:00")),
        ("ts", "timestamp", json!("2024-01-02T03:04:05Z")),
        ("dt", "datetime", json!("2024-01-02T03:04:05.600")),
        ("d", "date", json!("2024-02-29")),
        ("t", "time", json!("-838:59:58.50")),
        ("g", "geometry", json!({"base64": "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="})),
        ("u", "bigint unsigned", json!(u64::MAX)),
        ("f", "float", json!(1.1)),
        ("bin", "varbinary", json!({"base64": "AP8="})),
        ("bl", "blob", json!("grüß")),
        ("j", "text", json!("{\"a\": 1}")),
        ("c", "char", json!("ab")),
        ("ti", "tinyint", json!(1)),
        ("me", "mediumint", json!(-8_388_608)),
        ("tx", "text", json!("日本語 😀")),
        ("ui", "char", json!("5f0c1a9e-0000-4000-8000-000000000001")),
        ("de", "decimal", json!("12345678901234567890.123456789012345678901234567890")),
    ];
    let rows = read(&server.database(), "SELECT * FROM every").await.unwrap();
    let found: Vec<_> = rows
        .columns
        .iter()
        .zip(&rows.rows[0])
        .map(|(column, cell)| (column.name.as_str(), column.type_name.as_str(), cell.clone()))
        .collect();
    let wrong: Vec<_> = found.iter().zip(&columns).filter(|(found, expected)| found != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let cases = [
        ("NULL", "null", json!(null)),
        ("''", "varchar", json!("")),
        ("9007199254740993", "bigint", json!(9_007_199_254_740_993_i64)),
        ("1.50", "decimal", json!("1.50")),
        ("'a\\\\b'", "varchar", json!("a\\b")),
        ("1e100", "double", json!(1e100)),
    ];
    assert_values(&server.database(), &cases).await;
}

#[tokio::test]
async fn mariadb_takes_every_parameter_exactly() {
    let Some(server) = servers::shared(Dialect::Mysql) else { return };
    let cases = [
        ("CAST(? AS DECIMAL(65, 10))", json!("12345678901234567890.1"), json!("12345678901234567890.1000000000")),
        ("CAST(? AS UNSIGNED)", json!(u64::MAX), json!(u64::MAX)),
        ("CAST(? AS SIGNED)", json!(i64::MIN), json!(i64::MIN)),
        ("?", json!(null), json!(null)),
        ("? + 0", json!(true), json!(1)),
        ("CONCAT(?, '')", json!("a'b\"c\\d; DROP TABLE x -- 日本"), json!("a'b\"c\\d; DROP TABLE x -- 日本")),
        ("JSON_CONTAINS(?, '2')", json!([1, 2]), json!(1)),
        ("JSON_VALUE(?, '$.a')", json!({"a": "x"}), json!("x")),
        ("? = 1.5", json!("1.50"), json!(1)),
    ];
    assert_parameters(&server.database(), &cases).await;
}

#[tokio::test]
async fn sqlite_gives_and_takes_every_value_exactly() {
    let file = SqliteFile::new(
        "CREATE TABLE t (a DECIMAL(10, 2), b BLOB, c); INSERT INTO t VALUES (1.5, x'00ff', 9007199254740993), (2, 'x', NULL)",
    );
    let database = file.database();
    let cases = [
        ("NULL", "unknown", json!(null)),
        ("9223372036854775807", "integer", json!(i64::MAX)),
        ("0.1 + 0.2", "real", json!(0.1 + 0.2)),
        ("9e999", "real", json!("Infinity")),
        ("''", "text", json!("")),
        ("'日本語 😀'", "text", json!("日本語 😀")),
        ("x'00ff'", "blob", json!({"base64": "AP8="})),
        ("CAST('grüß' AS BLOB)", "blob", json!("grüß")),
        ("1 = 1", "integer", json!(1)),
        ("json('[1]')", "text", json!("[1]")),
    ];
    assert_values(&database, &cases).await;
    let cases = [
        ("?", json!(i64::MIN), json!(i64::MIN)),
        ("?", json!(null), json!(null)),
        ("? + 0", json!(true), json!(1)),
        ("?", json!(0.1), json!(0.1)),
        ("?", json!("a'b; --"), json!("a'b; --")),
        ("?", json!(u64::MAX), json!(u64::MAX.to_string())),
        ("(SELECT count(*) FROM json_each(?))", json!([1, 2, 3]), json!(3)),
    ];
    assert_parameters(&database, &cases).await;
    let rows = read(&database, "SELECT * FROM t").await.unwrap();
    let types: Vec<_> = rows.columns.iter().map(|column| column.type_name.as_str()).collect();
    assert_eq!(types, ["decimal(10, 2)", "blob", "integer"]);
    assert_eq!(rows.rows[0], [json!(1.5), json!({"base64": "AP8="}), json!(9_007_199_254_740_993_i64)]);
}

/// A statement that gives so many rows, each with a long text.
fn many_rows(dialect: Dialect, rows: u64, length: usize) -> String {
    match dialect {
        Dialect::Postgres => format!("SELECT generate_series(1, {rows}) AS n, repeat('ä', {length}) AS t"),
        Dialect::Mysql => format!("SELECT seq AS n, repeat('ä', {length}) AS t FROM seq_1_to_{rows}"),
        Dialect::Sqlite => format!(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) \
             SELECT n, replace(hex(zeroblob({length})), '00', 'ä') AS t FROM s"
        ),
    }
}

async fn assert_caps(database: &Database) {
    let query = |sql: String, rows, bytes, cell_bytes| database::ReadQuery {
        caps: Some(RowCaps { rows, bytes, cell_bytes }),
        ..database::ReadQuery::new(sql, Vec::new())
    };
    let cancel = tokio_util::sync::CancellationToken::new();
    let dialect = database.dialect();
    // So many rows that reading them all would not end in the time of a test.
    let rows =
        database.read(query(many_rows(dialect, 2_000_000_000, 1), 10, 1 << 20, 100), &cancel).await.expect("rows");
    assert_eq!((rows.rows.len(), rows.truncation.ended_by), (10, Some(RowCap::Rows(10))));
    let rows = database.read(query(many_rows(dialect, 10, 1), 10, 1 << 20, 100), &cancel).await.expect("rows");
    assert_eq!((rows.rows.len(), rows.truncation), (10, Truncation::default()));
    let rows = database
        .read(query(many_rows(dialect, 2_000_000_000, 500), 10_000, 10_000, 2_000), &cancel)
        .await
        .expect("rows");
    assert_eq!(rows.truncation.ended_by, Some(RowCap::Bytes(10_000)));
    assert!((5..10).contains(&rows.rows.len()), "{}", rows.rows.len());
    let rows = database.read(query(many_rows(dialect, 1, 5_000_000), 10, 1 << 20, 1_001), &cancel).await.expect("rows");
    assert_eq!(rows.truncation, Truncation { ended_by: None, cut_cells: 1 }, "{dialect}");
    assert_eq!(rows.rows[0][1], json!(format!("{}…", "ä".repeat(500))));
    // The connections that were given up in between are replaced.
    assert_eq!(read(database, "SELECT 1 AS a").await.expect("rows").rows, [[json!(1)]]);
}

#[tokio::test]
async fn caps_end_the_reading_in_every_database() {
    let file = SqliteFile::new("");
    assert_caps(&file.database()).await;
    for dialect in [Dialect::Postgres, Dialect::Mysql] {
        let Some(server) = servers::shared(dialect) else { continue };
        let mut settings = server.settings();
        // A row of MySQL is taken as a whole or not at all.
        settings.caps.bytes = 32 << 20;
        assert_caps(&Database::new(settings).unwrap()).await;
    }
}

#[tokio::test]
async fn a_row_that_is_too_large_to_be_taken_ends_the_reading() {
    let Some(server) = servers::shared(Dialect::Mysql) else { return };
    let mut settings = server.settings();
    settings.caps.bytes = 1 << 20;
    let database = Database::new(settings).unwrap();
    let rows = read(&database, &many_rows(Dialect::Mysql, 3, 5_000_000)).await.unwrap();
    assert_eq!((rows.rows.len(), rows.truncation.ended_by), (0, Some(RowCap::Bytes(1 << 20))));
    assert_eq!(read(&database, "SELECT 1 AS a").await.unwrap().rows, [[json!(1)]]);
}

#[tokio::test]
async fn columns_of_the_same_name_are_told_apart_and_parameters_are_counted() {
    let file = SqliteFile::new("");
    let mut databases = vec![file.database()];
    databases.extend(
        [Dialect::Postgres, Dialect::Mysql].into_iter().filter_map(servers::shared).map(servers::Server::database),
    );
    for database in databases {
        let rows = read(&database, "SELECT 1 AS id, 2 AS id, 3 AS x -- the end").await.unwrap();
        let names: Vec<_> = rows.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["id", "id_2", "x"]);
        let error = read_with(&database, "SELECT 1", vec![Value::Null]).await.unwrap_err();
        assert_eq!(error, DatabaseError::ParameterCount { expected: 0, given: 1 });
    }
}
