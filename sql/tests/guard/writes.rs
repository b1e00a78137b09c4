//! Writes: which pass, what they say about tables, and what no write learns about hidden columns.

use sql::dialect::Dialect;
use sql::guard::StatementKind;

use crate::world::{DIALECTS, World};

fn uses(dialect: Dialect, sql: &str) -> (StatementKind, String) {
    let guarded = World::new(dialect).writing().check(sql).unwrap_or_else(|refusal| panic!("{sql}: {refusal}"));
    let uses: Vec<String> = guarded.tables.iter().map(ToString::to_string).collect();
    assert_eq!((guarded.limit, guarded.counted(), guarded.paged(1, 0)), (None, None, None));
    (guarded.kind, uses.join(" "))
}

#[test]
fn a_write_names_each_table_with_what_it_does_to_it() {
    for (dialect, sql, kind, expected) in [
        (Dialect::Sqlite, "INSERT INTO orders (id) VALUES (1)", StatementKind::Insert, "main.orders.insert"),
        (
            Dialect::Sqlite,
            "INSERT OR REPLACE INTO orders (id) VALUES (1)",
            StatementKind::Insert,
            "main.orders.insert main.orders.delete",
        ),
        (
            Dialect::Mysql,
            "INSERT INTO orders (id) VALUES (1) ON DUPLICATE KEY UPDATE total = VALUES(total) + 1",
            StatementKind::Insert,
            "shop.orders.insert shop.orders.update",
        ),
        (
            Dialect::Postgres,
            "INSERT INTO orders (id) SELECT id FROM products ON CONFLICT (id) DO UPDATE SET note = excluded.note",
            StatementKind::Insert,
            "public.orders.insert public.products.read public.orders.update",
        ),
        (
            Dialect::Postgres,
            "WITH x AS (SELECT id FROM products) DELETE FROM orders WHERE id IN (SELECT id FROM x) RETURNING *",
            StatementKind::Delete,
            "public.products.read public.orders.delete",
        ),
        (
            Dialect::Postgres,
            "UPDATE orders o SET note = c.name FROM customers c WHERE c.id = o.customer_id RETURNING o.id",
            StatementKind::Update,
            "public.orders.update public.customers.read",
        ),
        (
            Dialect::Mysql,
            "UPDATE customers SET name = 'x' WHERE id = 1 ORDER BY id LIMIT 1",
            StatementKind::Update,
            "shop.customers.update",
        ),
    ] {
        assert_eq!(uses(dialect, sql), (kind, expected.to_owned()), "{dialect}: {sql}");
        assert!(kind.is_write());
    }
}

/// Each would ask about a hidden column of the table that is written to, by a name that something else has too.
#[test]
fn no_write_learns_about_a_hidden_column_by_a_name_that_may_mean_two_things() {
    for sql in [
        "UPDATE customers SET name = (SELECT 5 AS password_hash FROM orders WHERE password_hash > 'a' LIMIT 1)",
        "UPDATE customers SET name = (SELECT 1 FROM (SELECT 1 AS password_hash) AS z, orders AS o JOIN products AS p ON password_hash > 'a')",
        "UPDATE customers AS z SET name = (SELECT 1 FROM (SELECT 1 AS password_hash) AS z, orders AS o JOIN products AS p ON z.password_hash > 'a')",
        "UPDATE customers SET name = (SELECT 1 FROM (SELECT 1 AS note) AS customers, orders AS o JOIN products AS p ON customers.note > 'a')",
        "UPDATE customers SET name = (SELECT max(password_hash) FROM (SELECT 1 AS password_hash) AS z)",
        "DELETE FROM customers WHERE EXISTS (SELECT 1 FROM orders WHERE password_hash = note)",
        "DELETE FROM customers WHERE id IN (SELECT 1 AS api_token FROM orders GROUP BY api_token)",
        "DELETE FROM customers WHERE (SELECT customers.password_hash) > 'a'",
    ] {
        for dialect in DIALECTS {
            let result = World::new(dialect).writing().check(sql);
            assert!(result.is_err(), "{dialect}: {sql}\n{:?}", result.map(|guarded| guarded.sql));
        }
    }
    for sql in [
        "UPDATE customers AS z SET name = (SELECT 1 FROM (SELECT 1 AS z) AS y, orders AS o JOIN products AS p ON z::text > 'a')",
        "UPDATE customers AS z SET name = (SELECT 1 FROM (SELECT 1 AS to_jsonb) AS z, orders AS o JOIN products AS p ON z.to_jsonb IS NULL)",
        "INSERT INTO customers (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET name = (SELECT excluded::text)",
        "INSERT INTO customers (id) VALUES (1) RETURNING (SELECT customers::text)",
        "UPDATE customers SET name = z.to_jsonb FROM jsonb_each('{}') AS z",
    ] {
        let result = World::new(Dialect::Postgres).writing().check(sql);
        assert!(result.is_err(), "{sql}\n{:?}", result.map(|guarded| guarded.sql));
    }
    let sql = "UPDATE customers SET name = (SELECT 5 AS `pässword_hash` FROM orders WHERE `pässword_hash` > 'a')";
    assert!(World::new(Dialect::Mysql).writing().check(sql).is_err());
}
