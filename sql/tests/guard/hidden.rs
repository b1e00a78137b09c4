//! No way leads to a hidden column.

use rusqlite::types::Value;
use sql::dialect::Dialect;
use sql::guard::RefusalKind;
use sql::rules::AccessLists;
use sql::schema::TableKind;

use crate::corpus::hidden;
use crate::shop;
use crate::world::{DIALECTS, World};

#[test]
fn sqlite_returns_no_hidden_value_for_what_is_sent() {
    let connection = shop::open();
    let world = World::new(Dialect::Sqlite);
    let mut run = 0;
    for line in hidden(Dialect::Sqlite) {
        let Ok(guarded) = world.check(&line.sql) else { continue };
        let texts = [Some(guarded.sql.clone()), guarded.paged(5, 0), guarded.counted()];
        for text in texts.into_iter().flatten() {
            let Ok(rows) = shop::rows(&connection, &text) else { continue };
            run += 1;
            for value in rows.into_iter().flatten() {
                if let Value::Text(text) = &value {
                    assert!(!text.contains(shop::HIDDEN_VALUE), "{} shows {text}", line.sql);
                }
            }
        }
    }
    assert!(run > 30, "{run}");
}

/// What is sent names a hidden column only where the statement itself gives that name to something else.
#[test]
fn what_is_sent_never_names_a_hidden_column() {
    let mut wrong = Vec::new();
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for line in hidden(dialect) {
            let Ok(guarded) = world.check(&line.sql) else { continue };
            let gives_the_name = line.sql.contains("AS password_hash");
            let without_strings = guarded.sql.replace("'password_hash'", "");
            let names_it = without_strings.contains("password_hash") || without_strings.contains("api_token");
            if names_it && !gives_the_name {
                wrong.push(format!("{dialect}: {}\n    {}", line.sql, guarded.sql));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_hidden_denied_or_missing_has_the_same_words() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        let words = |sql: &str, name: &str| {
            let refusal = world.check(sql).unwrap_err();
            (refusal.kind, refusal.message.replace(name, "NAME"))
        };
        let column = words("SELECT passwort FROM customers", "passwort");
        assert_eq!(column, (RefusalKind::NoSuchColumn, "no column `NAME` in `customers`".to_owned()));
        assert_eq!(words("SELECT password_hash FROM customers", "password_hash"), column);
        assert_eq!(words("SELECT api_token FROM customers", "api_token"), column);
        let table = words("SELECT 1 FROM pay", "pay");
        assert_eq!(table, (RefusalKind::NoSuchTable, "no table `NAME`".to_owned()));
        for name in ["payroll", "customer_secrets", "salaries", "computed"] {
            assert_eq!(words(&format!("SELECT 1 FROM {name}"), name), table);
        }
    }
}

#[test]
fn the_visible_tables_are_those_that_can_be_read_with_their_visible_columns() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        let guard = world.guard();
        let tables = guard.visible_tables();
        let names: Vec<&str> = tables.iter().map(|visible| visible.name.name.as_str()).collect();
        assert_eq!(names, ["customer_names", "customers", "open_orders", "order_items", "orders", "products"]);
        let columns: Vec<&str> = tables[1].columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["id", "name", "email", "city", "country", "created_at", "data"]);
    }
}

#[test]
fn a_refusal_offers_the_near_names_and_never_a_hidden_one() {
    let world = World::new(Dialect::Postgres);
    let refusal = world.check("SELECT emial FROM customers").unwrap_err();
    assert_eq!(refusal.message, "no column `emial` in `customers`");
    assert_eq!(
        refusal.hint,
        "did you mean `email`? the columns are `id`, `name`, `email`, `city`, `country`, `created_at`, `data`"
    );
    let refusal = world.check("SELECT * FROM ordrs").unwrap_err();
    assert_eq!(
        refusal.hint,
        "did you mean `orders`, `order_items`, `products`? the tables are `customer_names`, `customers`, `open_orders`, \
         `order_items`, `orders`, `products`"
    );
    for line in hidden(Dialect::Postgres) {
        if let Err(refusal) = world.check(&line.sql) {
            assert!(!refusal.hint.contains("api_token") && !refusal.hint.contains("payroll"), "{refusal:?}");
        }
    }
}

#[test]
fn a_view_may_be_read_if_it_shows_nothing_hidden_or_if_the_rules_name_it() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        assert!(world.check("SELECT * FROM customer_names").is_ok());
        assert!(world.check("SELECT * FROM open_orders").is_ok());
        let lists = AccessLists {
            deny: vec!["payroll".to_owned()],
            views: vec!["salaries".to_owned(), "computed".to_owned()],
            ..AccessLists::default()
        };
        let trusting = World::with(dialect, &lists);
        assert!(trusting.check("SELECT * FROM salaries").is_ok());
        assert!(trusting.check("SELECT * FROM computed").is_ok());
        assert!(trusting.check("SELECT * FROM customer_secrets").is_err());
        assert!(trusting.check("SELECT * FROM payroll").is_err());
        // Where nothing is hidden, each view may be read.
        let open = World::with(dialect, &AccessLists { hidden_columns: Vec::new(), ..AccessLists::default() });
        assert!(open.check("SELECT * FROM customer_secrets").is_ok());
    }
}

#[test]
fn the_text_of_a_view_is_understood_as_each_database_gives_it() {
    for (dialect, shows_nothing_hidden, definition) in [
        (Dialect::Sqlite, true, "CREATE VIEW v (a, b) AS SELECT id, name FROM customers WHERE city = 'x'"),
        (Dialect::Sqlite, false, "CREATE VIEW v (a, b) AS SELECT id, api_token FROM customers"),
        (Dialect::Sqlite, false, "CREATE VIEW v AS SELECT o.id FROM orders o NATURAL JOIN customers"),
        (Dialect::Sqlite, false, "CREATE VIEW v AS SELECT * FROM (SELECT * FROM customers)"),
        (Dialect::Postgres, true, " SELECT c.id,\n    c.name\n   FROM customers c\n  WHERE (c.city = 'x'::text);"),
        (Dialect::Postgres, false, " SELECT c.id,\n    c.*::customers AS c\n   FROM customers c;"),
        (Dialect::Postgres, false, " SELECT row_to_json(c.*) AS r\n   FROM customers c;"),
        (Dialect::Postgres, false, " SELECT row_to_json(c) AS r\n   FROM customers c;"),
        (Dialect::Postgres, false, "SELECT n FROM customers AS x(id, a, b, c, d, e, n)"),
        (
            Dialect::Postgres,
            false,
            "SELECT t.n FROM customers AS total(id, a, b, c, d, e, n), LATERAL (SELECT total.n) t",
        ),
        (Dialect::Postgres, false, "TABLE customers"),
        (Dialect::Postgres, false, "SELECT x FROM dblink('a', 'b') AS t(x text)"),
        (Dialect::Postgres, false, "SELECT 1 FROM somewhere_else"),
        (Dialect::Postgres, false, "not SQL at all"),
        (Dialect::Mysql, true, "select `c`.`id` AS `id` from `shop`.`customers` `c` where (`c`.`name` = _utf8mb4'x')"),
        (Dialect::Mysql, false, "select `c`.`password_hash` AS `id` from `shop`.`customers` `c`"),
        (Dialect::Mysql, false, "select sum(`shop`.`payroll`.`salary`) AS `s` from `shop`.`payroll`"),
    ] {
        let mut world = World::new(dialect);
        let name = world.schema.tables.keys().find(|name| name.name == "open_orders").unwrap().clone();
        let view = world.schema.tables.get_mut(&name).unwrap();
        view.kind = TableKind::View { definition: Some(definition.to_owned()) };
        assert_eq!(world.check("SELECT 1 FROM open_orders").is_ok(), shows_nothing_hidden, "{dialect}: {definition}");
        world.schema.tables.get_mut(&name).unwrap().kind = TableKind::Other;
        assert!(world.check("SELECT 1 FROM open_orders").is_err());
    }
}
