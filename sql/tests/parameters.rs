//! Named parameters of declared statements.

use rusqlite::params_from_iter;
use sql::dialect::Dialect;
use sql::parameters::{BoundStatement, DeclaredKind, DeclaredStatement, ParameterError, ParameterValue};

fn bound(dialect: Dialect, sql: &str, values: &[(&str, ParameterValue<i64>)]) -> (String, Vec<i64>) {
    let names = values.iter().map(|(name, _)| *name);
    let statement = DeclaredStatement::new(dialect, sql, names).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let value_of = |name: &str| values.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
    let BoundStatement { sql, values } = statement.bind(value_of).expect("each parameter has a value");
    (sql, values)
}

fn one(value: i64) -> ParameterValue<i64> {
    ParameterValue::One(value)
}

fn list(values: &[i64]) -> ParameterValue<i64> {
    ParameterValue::List(values.to_vec())
}

#[test]
fn a_parameter_becomes_the_placeholder_of_the_dialect() {
    let sql = "SELECT :a, x FROM t WHERE y = :b AND z = :a";
    let values = [("a", one(1)), ("b", one(2))];
    let expected = "SELECT ?, x FROM t WHERE y = ? AND z = ?";
    assert_eq!(bound(Dialect::Sqlite, sql, &values), (expected.to_owned(), vec![1, 2, 1]));
    assert_eq!(bound(Dialect::Mysql, sql, &values), (expected.to_owned(), vec![1, 2, 1]));
    let expected = "SELECT $1, x FROM t WHERE y = $2 AND z = $3";
    assert_eq!(bound(Dialect::Postgres, sql, &values), (expected.to_owned(), vec![1, 2, 1]));
}

#[test]
fn strings_comments_casts_slices_and_operators_are_left_alone() {
    for (dialect, sql, expected) in [
        (Dialect::Postgres, "SELECT ':x', x::int, \":x\" /* :x */ FROM t WHERE a = :x -- :x", "= $1 -- :x"),
        (Dialect::Postgres, "SELECT a[1:n], a[i:n], a[:x:5] FROM t", "a[1:n], a[i:n], a[$1:5] FROM t"),
        (Dialect::Postgres, "SELECT d ? 'a', d ?| array['b'], d ?& array['c'], :x::date", "d ?& array['c'], $1::date"),
        (Dialect::Postgres, "SELECT $$ :x $$, E'\\':x', :x", "SELECT $$ :x $$, E'\\':x', $1"),
        (Dialect::Postgres, "SELECT f(a => :x)", "f(a => $1)"),
        (Dialect::Mysql, "SELECT 'it\\'s :x', \":x\", `:x`, :x # :x", "`:x`, ? # :x"),
        (Dialect::Mysql, "SELECT /*!50000 a, */ :x", "SELECT /*!50000 a, */ ?"),
        (Dialect::Sqlite, "SELECT 'ü :x', \":x\", [:x]\n, :x\nFROM t", "[:x]\n, ?\nFROM t"),
    ] {
        let (text, values) = bound(dialect, sql, &[("x", one(7))]);
        assert!(text.ends_with(expected), "{dialect}: {text}");
        assert_eq!(values, [7], "{dialect}: {text}");
    }
}

#[test]
fn a_list_expands_and_an_empty_one_matches_nothing() {
    let sql = "DELETE FROM t WHERE id IN (:ids) AND x = :x";
    let with = |ids: &[i64]| bound(Dialect::Postgres, sql, &[("ids", list(ids)), ("x", one(9))]);
    assert_eq!(with(&[4, 5, 6]), ("DELETE FROM t WHERE id IN ($1, $2, $3) AND x = $4".to_owned(), vec![4, 5, 6, 9]));
    assert_eq!(with(&[]), ("DELETE FROM t WHERE id IN (NULL) AND x = $1".to_owned(), vec![9]));
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE t (id); INSERT INTO t VALUES (1), (2), (3)").unwrap();
    for (condition, ids, expected) in
        [("IN", &[1, 3, 8][..], 2), ("NOT IN", &[1], 2), ("IN", &[], 0), ("NOT IN", &[], 0)]
    {
        let sql = format!("SELECT count(*) FROM t WHERE id {condition} ( :ids )");
        let (text, values) = bound(Dialect::Sqlite, &sql, &[("ids", list(ids))]);
        let count: i64 = connection.query_row(&text, params_from_iter(values), |row| row.get(0)).unwrap();
        assert_eq!(count, expected, "{text}");
    }
    let statement = DeclaredStatement::new(Dialect::Sqlite, "SELECT :ids", ["ids"]).unwrap();
    assert_eq!(
        statement.bind(|_| Some(list(&[1]))).unwrap_err().to_string(),
        "the parameter `ids` is a list; write it in parentheses of its own: `IN (:ids)`"
    );
}

#[test]
fn what_is_wrong_with_a_declaration_is_said_when_it_is_loaded() {
    let error = |sql: &str, names: &[&str]| {
        DeclaredStatement::new(Dialect::Postgres, sql, names.iter().copied()).unwrap_err().to_string()
    };
    assert_eq!(error("SELECT :a", &[]), "the statement uses `:a`, which is not declared");
    assert_eq!(error("SELECT 1", &["a"]), "the parameter `a` is declared, but the statement does not use `:a`");
    assert_eq!(error("SELECT 1; SELECT 2", &[]), "there are 2 statements, declare one");
    assert_eq!(error(" -- nothing", &[]), "there are 0 statements, declare one");
    assert_eq!(error("SELECT $1", &[]), "the statement has the placeholder `$1`; write `:name` for each parameter");
    assert!(error("SELECT 'a", &[]).starts_with("the statement cannot be read: "));
    let mysql = DeclaredStatement::new(Dialect::Mysql, "SELECT ?", []);
    assert_eq!(mysql.unwrap_err(), ParameterError::Placeholder("?".to_owned()));
    let statement = DeclaredStatement::new(Dialect::Mysql, "SELECT :a;", ["a"]).unwrap();
    assert_eq!(statement.bind::<i64>(|_| None), Err(ParameterError::NoValue("a".to_owned())));
}

#[test]
fn the_kind_of_a_declared_statement_is_known_where_it_parses() {
    for (sql, kind) in [
        ("SELECT * FROM t WHERE a = :a", DeclaredKind::Read),
        ("WITH x AS (SELECT :a) SELECT * FROM x UNION SELECT 1", DeclaredKind::Read),
        ("EXPLAIN SELECT :a", DeclaredKind::Read),
        ("SELECT * FROM t WHERE a = :a FOR UPDATE", DeclaredKind::Write),
        ("WITH x AS (DELETE FROM t WHERE a = :a RETURNING *) SELECT * FROM x", DeclaredKind::Write),
        (
            "SELECT * FROM (WITH x AS (DELETE FROM t WHERE a = :a RETURNING *) SELECT * FROM x) AS y",
            DeclaredKind::Write,
        ),
        ("EXPLAIN ANALYZE DELETE FROM t WHERE a = :a", DeclaredKind::Write),
        ("UPDATE t SET a = :a", DeclaredKind::Write),
        ("CALL f(:a)", DeclaredKind::Write),
        ("MAGIC :a", DeclaredKind::Unknown),
    ] {
        assert_eq!(DeclaredStatement::new(Dialect::Postgres, sql, ["a"]).unwrap().kind, kind, "{sql}");
    }
}
