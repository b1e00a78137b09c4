//! What is sent, word by word.

use sql::dialect::Dialect;
use sql::guard::RowOrder;

use crate::world::{DIALECTS, World};

fn assert_sent(dialect: Dialect, pairs: &[(&str, &str)]) {
    let world = World::new(dialect).writing();
    for (sql, sent) in pairs {
        let guarded = world.check(sql).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
        assert_eq!(guarded.sql, *sent, "{sql}");
    }
}

#[test]
fn postgres_gets_full_names_exact_literals_and_visible_columns() {
    assert_sent(
        Dialect::Postgres,
        &[
            (
                "select Name, TOTAL from Customers c, orders /* all */ where c.id = Customer_ID -- by key",
                r#"SELECT "name", total FROM (SELECT "id", "name", email, city, country, created_at, "data" FROM "public".customers) AS c, "public".orders WHERE c."id" = customer_id LIMIT 100"#,
            ),
            (
                r"SELECT E'it\'s', U&'\0041', $$a'b$$, 'a\b', 1.5e3, X'1F', NULL",
                r"SELECT 'it''s', 'A', 'a''b', E'a\\b', 1.5e3, X'1F', NULL LIMIT 100",
            ),
            (
                "WITH orders AS (SELECT * FROM orders WHERE total > 5) SELECT orders.total FROM orders",
                r#"WITH orders_2 AS (SELECT * FROM "public".orders WHERE total > 5) SELECT orders.total FROM orders_2 AS orders LIMIT 100"#,
            ),
            (
                "SELECT public.products.name FROM public.products",
                r#"SELECT products."name" FROM "public".products LIMIT 100"#,
            ),
            (
                "SELECT - -1, repeat('x', quantity) FROM orders",
                r#"SELECT -(-1), repeat('x', least(quantity, 10000)) FROM "public".orders LIMIT 100"#,
            ),
            (
                "UPDATE customers SET name = 'x' WHERE id = 1 RETURNING id",
                r#"UPDATE "public".customers SET "name" = 'x' WHERE "id" = 1 RETURNING "id""#,
            ),
        ],
    );
}

#[test]
fn mysql_gets_strings_that_end_at_the_same_place_in_every_mode() {
    assert_sent(
        Dialect::Mysql,
        &[
            (
                r#"SELECT 'it\'s', "say ""hi""", 'a\\', 'a' 'b', 'a\_b%' FROM Orders"#,
                r#"SELECT 'it''s', 'say "hi"', 'a\\', 'ab', 'a\\_b%' FROM shop.orders LIMIT 100"#,
            ),
            ("SELECT `id` FROM `orders` # all", "SELECT `id` FROM shop.orders LIMIT 100"),
            ("SELECT total FROM orders LIMIT 20, 1000", "SELECT total FROM shop.orders LIMIT 100 OFFSET 20"),
        ],
    );
}

#[test]
fn sqlite_gets_names_that_it_cannot_take_for_strings() {
    assert_sent(
        Dialect::Sqlite,
        &[
            ("SELECT \"id\", [total] FROM \"orders\"", "SELECT `id`, total FROM `main`.orders LIMIT 100"),
            (
                "SELECT * FROM customers NATURAL JOIN orders",
                "SELECT * FROM (SELECT `id`, `name`, email, city, country, created_at, `data` FROM `main`.customers) AS customers NATURAL JOIN `main`.orders LIMIT 100",
            ),
            ("SELECT 'a\\', 'it''s' -- '", "SELECT 'a\\', 'it''s' LIMIT 100"),
        ],
    );
}

#[test]
fn a_limit_is_added_kept_or_lowered() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for (sql, limit, offset, was_added) in [
            ("SELECT id FROM orders", 100, 0, true),
            ("SELECT id FROM orders LIMIT 5", 5, 0, false),
            ("SELECT id FROM orders LIMIT (5)", 5, 0, false),
            ("SELECT id FROM orders LIMIT 100 OFFSET 7", 100, 7, false),
            ("SELECT id FROM orders LIMIT 5000", 100, 0, true),
            ("SELECT id FROM orders LIMIT 99999999999999999999999", 100, 0, true),
            ("SELECT id FROM orders LIMIT -1", 100, 0, true),
            ("SELECT id FROM orders LIMIT 0", 0, 0, false),
            ("SELECT id FROM (SELECT id FROM orders LIMIT 5000) AS x", 100, 0, true),
            ("SELECT 1 UNION ALL SELECT 2 LIMIT 3", 3, 0, false),
            ("SELECT 1 UNION ALL SELECT 2", 100, 0, true),
            ("(SELECT id FROM orders LIMIT 5000)", 100, 0, true),
        ] {
            let guarded = world.check(sql).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
            assert_eq!((guarded.limit, guarded.offset, guarded.limit_added), (Some(limit), offset, was_added), "{sql}");
            let clause = if offset > 0 { format!(" LIMIT {limit} OFFSET {offset}") } else { format!(" LIMIT {limit}") };
            assert!(guarded.sql.ends_with(&clause), "{}", guarded.sql);
            assert_eq!(guarded.order, RowOrder::Unordered);
        }
        for sql in ["SELECT 1 LIMIT 1 + 1", "SELECT 1 LIMIT (SELECT 1)", "SELECT 1 LIMIT 1 OFFSET abs(2)"] {
            assert_eq!(world.check(sql).unwrap_err().message, "a computed limit of rows is not allowed", "{sql}");
        }
    }
    let postgres = World::new(Dialect::Postgres);
    for (sql, limit) in [
        ("SELECT id FROM orders LIMIT ALL", 100),
        ("SELECT id FROM orders LIMIT NULL", 100),
        ("SELECT id FROM orders FETCH FIRST ROW ONLY", 1),
        ("SELECT id FROM orders OFFSET 2 ROWS FETCH NEXT 7 ROWS ONLY", 7),
    ] {
        assert_eq!(postgres.check(sql).unwrap().limit, Some(limit), "{sql}");
    }
    assert!(postgres.check("SELECT id FROM orders ORDER BY id FETCH FIRST 3 ROWS WITH TIES").is_err());
    assert_eq!(postgres.check("EXPLAIN SELECT 1").unwrap().limit, None);
}

#[test]
fn a_page_stays_within_the_limit_of_the_statement_and_of_the_guard() {
    let guarded = World::new(Dialect::Sqlite).check("SELECT id FROM orders ORDER BY id LIMIT 30 OFFSET 3").unwrap();
    let ends =
        |page: Option<String>, clause: &str| assert!(page.as_ref().is_some_and(|p| p.ends_with(clause)), "{page:?}");
    ends(guarded.paged(20, 0), " LIMIT 20 OFFSET 3");
    ends(guarded.paged(20, 20), " LIMIT 10 OFFSET 23");
    ends(guarded.paged(20, 40), " LIMIT 0 OFFSET 43");
    ends(guarded.paged(5_000, 0), " LIMIT 30 OFFSET 3");
    ends(guarded.paged(u64::MAX, u64::MAX), &format!(" LIMIT 0 OFFSET {}", i64::MAX));
    let guarded = World::new(Dialect::Sqlite).check("SELECT id FROM orders").unwrap();
    ends(guarded.paged(5_000, 100), " LIMIT 100 OFFSET 100");
    assert_eq!(
        guarded.counted().unwrap(),
        "SELECT count(*) AS row_count FROM (SELECT 1 FROM `main`.orders) AS counted"
    );
}
