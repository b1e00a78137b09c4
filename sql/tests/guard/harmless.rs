//! Statements as analysts write them pass, and SQLite gives the same rows for what is sent.

use rusqlite::types::Value;
use sql::dialect::Dialect;
use sql::guard::RowOrder;
use sql::rules::AccessLists;

use crate::corpus::harmless;
use crate::shop;
use crate::world::{DIALECTS, World};

#[test]
fn statements_of_analysts_pass() {
    let mut refused = Vec::new();
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for line in harmless(dialect) {
            if let Err(refusal) = world.check(&line.sql) {
                refused.push(format!("{dialect}: {}\n    {} ({})", line.sql, refusal.message, refusal.hint));
            }
        }
    }
    assert!(refused.is_empty(), "{} harmless statements are refused:\n{}", refused.len(), refused.join("\n"));
}

/// Rewriting changes names, quotes, comments and the limit, but no result.
#[test]
fn sqlite_gives_the_same_rows_for_what_is_sent() {
    let connection = shop::open();
    let lists = AccessLists { hidden_columns: Vec::new(), ..AccessLists::default() };
    let open = World::with(Dialect::Sqlite, &lists);
    let hiding = World::new(Dialect::Sqlite);
    let mut compared = 0;
    for line in harmless(Dialect::Sqlite) {
        let original = shop::rows(&connection, &line.sql).unwrap_or_else(|error| panic!("{}: {error}", line.sql));
        for world in [&open, &hiding] {
            let guarded = world.check(&line.sql).unwrap();
            let sent = shop::rows(&connection, &guarded.sql).unwrap_or_else(|error| panic!("{}: {error}", guarded.sql));
            if !line.sql.starts_with("EXPLAIN") {
                assert_eq!(sent, original, "{}\n{}", line.sql, guarded.sql);
                let count = shop::rows(&connection, &guarded.counted().unwrap()).unwrap();
                let rows = i64::try_from(original.len()).unwrap();
                assert_eq!(count, [[Value::Integer(rows)]], "{}", guarded.counted().unwrap());
                compared += 1;
            }
        }
    }
    assert!(compared > 120, "{compared}");
}

/// Pages put together are the whole, also of a statement with a limit of its own.
#[test]
fn pages_put_together_are_all_rows_in_their_order() {
    let connection = shop::open();
    let world = World::new(Dialect::Sqlite);
    for sql in [
        "SELECT id FROM orders ORDER BY total DESC",
        "SELECT id FROM orders ORDER BY total DESC LIMIT 4",
        "SELECT id FROM orders ORDER BY total DESC LIMIT 4 OFFSET 2",
        "SELECT id FROM orders ORDER BY total DESC LIMIT 1, 3",
        "SELECT id FROM orders UNION SELECT id FROM products ORDER BY id DESC",
        "WITH x AS (SELECT id FROM products) SELECT id FROM x ORDER BY id LIMIT -1",
    ] {
        let guarded = world.check(sql).unwrap();
        assert_eq!(guarded.order, RowOrder::Ordered);
        let whole = shop::rows(&connection, sql).unwrap();
        let mut pages = Vec::new();
        for page in 0..5 {
            pages.extend(shop::rows(&connection, &guarded.paged(2, page * 2).unwrap()).unwrap());
        }
        assert_eq!(pages, whole, "{sql}");
        let count = shop::rows(&connection, &guarded.counted().unwrap()).unwrap();
        assert_eq!(count, [[Value::Integer(i64::try_from(whole.len()).unwrap())]], "{sql}");
    }
}
