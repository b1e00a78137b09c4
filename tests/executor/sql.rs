//! Databases: what a caller may ask of a real PostgreSQL, MariaDB and SQLite, and what changes them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::database_server::{self, DatabaseServer};
use crate::page::human::Human;
use crate::skip::skip;
use crate::world::{World, until};

mod cascades;
mod hidden;
mod names;
mod own_functions;
mod replaced;
mod set_off;
mod shown;
mod told;
mod views;

/// The tables of a shop with 100,000 customers, in the words of each kind.
const TABLES: &str = "CREATE TABLE customer_entity (entity_id INTEGER NOT NULL PRIMARY KEY, email VARCHAR(255) NOT NULL, \
    password_hash VARCHAR(128), group_id INTEGER NOT NULL); \
    CREATE TABLE sales_order (entity_id INTEGER NOT NULL PRIMARY KEY, customer_id INTEGER NOT NULL, status VARCHAR(32), \
    grand_total DECIMAL(20,4)); \
    CREATE TABLE admin_user (user_id INTEGER NOT NULL PRIMARY KEY); \
    CREATE VIEW all_customers AS SELECT * FROM customer_entity;";

/// A shop's database that a world is configured to ask.
struct Shop {
    world: World,
    kind: &'static str,
    server: Option<DatabaseServer>,
}

/// Calls `test` with a shop in each kind of database.
fn each(settings: &str, test: impl Fn(&Shop)) {
    for kind in ["sqlite", "postgres", "mariadb"] {
        if let Some(shop) = Shop::new(kind, settings) {
            test(&shop);
        }
    }
}

impl Shop {
    /// A shop with these settings; `None` if this machine lacks the server.
    fn new(kind: &'static str, settings: &str) -> Option<Self> {
        let world = World::new();
        let series = match kind {
            "sqlite" => {
                "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < 100000) SELECT n FROM series"
            }
            "postgres" => "SELECT n FROM generate_series(1, 100000) AS series(n)",
            _ => "SELECT seq AS n FROM seq_1_to_100000",
        };
        let email =
            if kind == "mariadb" { "concat('user', n, '@example.com')" } else { "'user' || n || '@example.com'" };
        let rows = format!(
            "INSERT INTO customer_entity SELECT n, {email}, 'hash-of-a-password', n % 3 FROM ({series}) AS numbers; \
             INSERT INTO sales_order SELECT n, n, CASE WHEN n % 4 = 0 THEN 'pending' ELSE 'complete' END, n / 10.0 \
             FROM ({series}) AS numbers WHERE n <= 1000;"
        );
        let server = database_server::start(kind);
        if server.is_none() && kind != "sqlite" {
            skip(&format!("{kind}: run `tests/run`, which installs it"));
            return None;
        }
        let url = match &server {
            Some(server) => server.text("url").to_owned(),
            None => format!("sqlite://{}", world.folder().join("shop.db").display()),
        };
        let shop = Self { world, kind, server };
        shop.sql(&format!("{TABLES}{rows}"));
        let password = if kind == "sqlite" { "" } else { "password = \"secret:shop-db\"\n" };
        shop.world.configure(&format!("[databases.shop]\nurl = \"{url}\"\n{password}{settings}\n"));
        if let Some(server) = &shop.server {
            shop.world.run_with(&["secret", "set", "shop-db"], server.text("password"));
        }
        let imported = shop.world.run(&["import", "sql", "shop", "--table", "sales_*"]);
        assert_eq!(imported.exit, 0, "{imported}");
        Some(shop)
    }

    /// Runs statements with the database's own client, and returns what it prints.
    fn sql(&self, statements: &str) -> String {
        let mut client = match &self.server {
            None => {
                let database = rusqlite::Connection::open(self.world.folder().join("shop.db")).expect("it opens");
                if statements.starts_with("SELECT") {
                    return database.query_row(statements, [], |row| row.get::<_, i64>(0)).expect("a row").to_string();
                }
                database.execute_batch(statements).expect("they run");
                return String::new();
            }
            Some(server) if self.kind == "postgres" => {
                let mut client = Command::new("psql");
                client
                    .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", server.text("url")])
                    .env("PGPASSWORD", server.text("password"));
                client
            }
            Some(server) => {
                let port =
                    server.text("url").rsplit(':').next().and_then(|rest| rest.split('/').next()).expect("a port");
                let mut client = Command::new("mariadb");
                client
                    .args(["--no-defaults", "-N", "-h", "127.0.0.1", "-P", port, "-u", "shop", "shop"])
                    .env("MYSQL_PWD", server.text("password"));
                client
            }
        };
        let mut child =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("its input").write_all(statements.as_bytes()).expect("it is written");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn query(&self, query: &str) -> Value {
        self.world.result_of("shop_query", &json!({"query": query}))
    }

    /// A sum over the whole database, to see whether anything changed.
    fn checksum(&self) -> String {
        self.sql("SELECT count(*) * 1000 + coalesce(sum(group_id), 0) FROM customer_entity")
            + &self.sql("SELECT sum(entity_id) + count(CASE WHEN status = 'pending' THEN 1 END) FROM sales_order")
    }
}

#[test]
fn a_database_is_imported_and_asked_in_two_calls() {
    each("", |shop| {
        let listed = shop.world.run(&["list", "tools", "--query=How many customers do we have?", "--limit=1"]).json();
        assert_eq!(
            listed.as_object().and_then(|found| found.keys().next()).map(String::as_str),
            Some("shop_query"),
            "{listed:#}"
        );
        let answer = shop.query("SELECT count(*) AS customers FROM customer_entity");
        assert_eq!(answer["data"]["data"], json!([{"customers": 100_000}]), "{}: {answer:#}", shop.kind);
        assert_eq!(answer["_meta"]["has_next_page"], false);
        // 100 rows are the default, and the answer says that there are more.
        let answer = shop.query("SELECT entity_id, email FROM customer_entity ORDER BY entity_id");
        assert_eq!((&answer["data"]["row_count"], &answer["_meta"]["has_next_page"]), (&json!(100), &json!(true)));
        assert!(
            answer["data"]["preview"].as_str().is_some_and(|preview| preview.contains("user1@example.com")),
            "{answer:#}"
        );
        let described = shop.world.result_of("shop_describe_table", &json!({"table": "customer_entity"}));
        let columns: Vec<_> = described["data"]["columns"]
            .as_array()
            .expect("columns")
            .iter()
            .map(|column| column["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(columns, ["entity_id", "email", "group_id"], "{described:#}");
        assert_eq!(described["data"]["columns"][0]["key"], "primary");
        let tables = shop.world.result_of("shop_list_tables", &json!({"name_contains": "SALES"}));
        assert_eq!(tables["data"]["tables"][0]["name"], "sales_order", "{tables:#}");
        let plan = shop
            .world
            .result_of("shop_explain_query", &json!({"query": "SELECT * FROM sales_order WHERE entity_id = 5"}));
        assert_eq!(plan["status"], "succeeded", "{plan:#}");
        let found = shop.world.result_of("shop_find_sales_order", &json!({"status": "pending", "limit": 3, "page": 2}));
        let ids: Vec<_> =
            found["data"]["data"].as_array().expect("rows").iter().map(|row| row["entity_id"].as_i64()).collect();
        assert_eq!(ids, [Some(16), Some(20), Some(24)], "{found:#}");
    });
}

#[test]
fn the_pages_of_a_query_have_each_row_once() {
    each("max_rows = 300", |shop| {
        let (mut seen, mut page) = (Vec::new(), 1);
        loop {
            let query = "SELECT entity_id FROM sales_order WHERE entity_id <= 1000 ORDER BY entity_id";
            let answer = shop
                .world
                .result_of("shop_query", &json!({"query": query, "page": page, "limit": 500, "count": "exact"}));
            assert_eq!(
                (&answer["_meta"]["total"], &answer["_meta"]["limit"]),
                (&json!(1000), &json!(300)),
                "{answer:#}"
            );
            seen.extend(
                answer["data"]["data"].as_array().expect("rows").iter().filter_map(|row| row["entity_id"].as_u64()),
            );
            if answer["_meta"]["has_next_page"] == false {
                break;
            }
            page += 1;
        }
        assert_eq!(seen, (1..=1000).collect::<Vec<_>>());
        let unordered =
            shop.world.result_of("shop_query", &json!({"query": "SELECT email FROM customer_entity", "page": 2}));
        assert_eq!(unordered["error"]["code"], "invalid-input", "{unordered:#}");
    });
}

#[test]
fn what_is_hidden_is_not_there_and_a_mistake_is_named() {
    each("deny_tables = [\"admin_*\"]", |shop| {
        let error = |query: &str| shop.query(query)["error"].clone();
        let unknown = error("SELECT emial FROM customer_entity");
        assert_eq!(unknown["code"], "invalid-input");
        assert_eq!(unknown["message"], "no column `emial` in `customer_entity`");
        assert!(unknown["hint"].as_str().is_some_and(|hint| hint.starts_with("did you mean `email`?")), "{unknown:#}");
        // The same words for what is hidden and for what is not there.
        for (hidden, absent) in [("password_hash", "password_hush"), ("created_at", "created_on")] {
            let said = |column: &str| {
                error(&format!("SELECT {column} FROM customer_entity"))["message"]
                    .as_str()
                    .expect("a message")
                    .replace(column, "x")
            };
            assert_eq!(said(hidden), said(absent));
        }
        let said = |table: &str| {
            error(&format!("SELECT * FROM {table}"))["message"].as_str().expect("a message").replace(table, "x")
        };
        assert_eq!(said("admin_user"), said("admin_usher"));
        // A view that shows what is hidden is not there either.
        assert_eq!(error("SELECT * FROM all_customers")["code"], "invalid-input");
        let all = shop.query("SELECT * FROM customer_entity WHERE entity_id = 1");
        assert_eq!(
            all["data"]["data"],
            json!([{"entity_id": 1, "email": "user1@example.com", "group_id": 1}]),
            "{all:#}"
        );
        if shop.kind == "postgres" {
            shop.sql(
                "CREATE FUNCTION lower(integer) RETURNS text LANGUAGE sql AS \
                 'SELECT password_hash FROM customer_entity WHERE entity_id = $1'; \
                 CREATE FUNCTION ceil(integer) RETURNS text LANGUAGE sql AS \
                 'SELECT password_hash FROM customer_entity WHERE entity_id = $1';",
            );
            shop.world.run(&["executor", "stop"]);
            for function in ["lower", "ceil"] {
                let refused = error(&format!("SELECT {function}(entity_id) FROM customer_entity"));
                assert_eq!(refused["code"], "refused-by-policy", "{refused:#}");
            }
        }
        let whole =
            shop.query("SELECT count(*) AS n FROM customer_entity c WHERE CAST(c.group_id AS CHAR(3)) = 'hash'");
        assert_eq!(whole["data"]["data"], json!([{"n": 0}]), "{whole:#}");
    });
}

#[test]
fn nothing_is_changed_without_a_writable_database_and_a_human() {
    each("", |shop| {
        let before = shop.checksum();
        for statement in [
            "DELETE FROM sales_order",
            "UPDATE customer_entity SET group_id = 9",
            "DROP TABLE sales_order",
            "SELECT 1; DELETE FROM sales_order",
        ] {
            let result = shop.query(statement);
            assert_eq!(result["success"], false, "{}: {statement}: {result:#}", shop.kind);
        }
        let names = shop.world.run(&["list", "--format", "names", "--limit", "1000"]);
        assert!(!names.stdout.contains("shop_change"), "{names}");
        assert_eq!(shop.checksum(), before);
    });
    each("writable = true", |shop| {
        let statement = "UPDATE sales_order SET status = 'holded' WHERE entity_id IN (4, 8)";
        let before = shop.checksum();
        let tried = shop.world.result_of("shop_change", &json!({"statement": statement}));
        assert_eq!(
            (&tried["_meta"]["dry_run"], &tried["data"]["rows_affected"]),
            (&json!(true), &json!(2)),
            "{tried:#}"
        );
        assert_eq!(tried["data"]["before"][0]["status"], "pending", "{tried:#}");
        assert_eq!(tried["data"]["data"][0]["status"], "holded", "{tried:#}");
        assert_eq!(shop.checksum(), before);

        // A human sees the rows before and after it.
        let change =
            |statement: &str| shop.world.start("shop_change", &json!({"statement": statement, "dry_run": false}));
        let id = change(statement);
        let human = Human::of(&shop.world);
        until("the change was tried", || {
            let card = human.card(&id);
            card.contains("2 rows change") && card.contains("pending") && card.contains("holded")
        });
        shop.world.decide(&id, "approve", "shop_change");
        shop.world.run(&["wait", &id]);
        let done = shop.world.result_file(&id);
        assert_eq!((&done["status"], &done["data"]["rows_affected"]), (&json!("succeeded"), &json!(2)), "{done:#}");
        assert_eq!(shop.sql("SELECT count(*) FROM sales_order WHERE status = 'holded'"), "2");

        // What can only fail never asks a human.
        let impossible = change("UPDATE sales_order SET nothing = 1 WHERE entity_id = 4");
        let result = shop.world.end_of(&impossible);
        assert_eq!(
            (&result["status"], &result["error"]["code"]),
            (&json!("failed"), &json!("invalid-input")),
            "{result:#}"
        );

        // Rows that changed since the human looked are not changed again.
        let id = change("UPDATE sales_order SET grand_total = 1 WHERE entity_id = 12");
        until("the change was tried", || human.card(&id).contains("1 row changes"));
        shop.sql("UPDATE sales_order SET status = 'closed' WHERE entity_id = 12;");
        shop.world.decide(&id, "approve", "shop_change");
        shop.world.run(&["wait", &id]);
        let result = shop.world.result_file(&id);
        assert_eq!(result["error"]["code"], "drifted", "{result:#}");
        assert_eq!(shop.sql("SELECT count(*) FROM sales_order WHERE grand_total = 1 AND entity_id = 12"), "0");
    });
}

#[test]
fn rules_are_about_what_is_done_to_which_table() {
    let Some(shop) = Shop::new("sqlite", "writable = true") else { return };
    let config = std::fs::read_to_string(shop.world.config_folder().join("config.toml")).expect("a configuration");
    let rules = "[[confirm.rules]]\ngates = [\"db.shop.sales_order.*\", \"db.*.read\"]\nthen = \"allow\"\n\
                 [[confirm.rules]]\ngates = [\"db.*.Customer_Entity.write\"]\nthen = \"refuse\"\nbecause = \"customers stay\"\n";
    shop.world.configure(&format!("{config}\n{rules}"));
    let run = |statement: &str| {
        shop.world.run(&[
            "run",
            "shop_change",
            "--wait",
            "--input",
            &json!({"statement": statement, "dry_run": false}).to_string(),
        ])
    };
    let allowed = run(
        "UPDATE sales_order SET status = 'x' WHERE entity_id IN (SELECT entity_id FROM customer_entity WHERE entity_id = 4)",
    );
    assert_eq!((allowed.exit, &allowed.json()["data"]["rows_affected"]), (0, &json!(1)), "{allowed}");
    let refused = run("DELETE FROM main.customer_entity WHERE entity_id = 4");
    assert_eq!(
        (refused.exit, &refused.error()["message"]),
        (5, &json!("`shop_change` is refused: customers stay")),
        "{refused}"
    );
    for hidden in
        ["WITH notes AS (SELECT 1) DELETE FROM customer_entity WHERE entity_id = 4", "DELETE FROM [customer_entity]"]
    {
        let refused = run(hidden);
        assert_eq!(refused.exit, 5, "{hidden}: {refused}");
    }
    // A mistake is said to be one, whatever the rules are.
    let mistaken = shop.query("SELEC 1");
    assert_eq!(mistaken["error"]["code"], "invalid-input", "{mistaken:#}");
    shop.world.configure(&format!("{config}\n[[confirm.rules]]\ngates = [\"db.*.read\"]\nthen = \"allow\"\n"));
    let asked = json!({"statement": "WITH t AS (SELECT 1) DELETE FROM sales_order", "dry_run": false});
    let asked = shop.world.start("shop_change", &asked);
    until("a human is asked", || shop.world.result_file(&asked)["state"] == "awaiting_confirmation");
    assert!(Human::of(&shop.world).card(&asked).contains("1000 rows change"));
    shop.world
        .configure(&format!("{config}\n[[confirm.rules]]\ngates = [\"shop.sales_order.write\"]\nthen = \"refuse\"\n"));
    let doctor = shop.world.run(&["doctor"]);
    assert!(doctor.to_string().contains("`shop.sales_order.write` is not a gate"), "{doctor}");
}

#[test]
fn a_statement_of_a_definition_gets_its_values_bound() {
    each("", |shop| {
        shop.world.define(
            "own.json",
            &json!({
                "orders_of": {
                    "description": "Finds the orders of customers.",
                    "input": {"type": "object", "properties": {
                        "customers": {"type": "array", "items": {"type": "integer"}}, "status": {"type": "string"}
                    }},
                    "annotations": {"readOnlyHint": true},
                    "run": {"sql": {
                        "database": "shop",
                        "statement": "SELECT entity_id FROM sales_order WHERE customer_id IN (:customers) AND status = :status ORDER BY entity_id",
                        "parameters": {"customers": "{{ customers }}", "status": "{{ status }}"}
                    }}
                }
            }),
        );
        let rows = |input: Value| shop.world.result_of("orders_of", &input)["data"]["data"].clone();
        assert_eq!(
            rows(json!({"customers": [4, 5, 8], "status": "pending"})),
            json!([{"entity_id": 4}, {"entity_id": 8}])
        );
        assert_eq!(rows(json!({"customers": [], "status": "pending"})), json!([]));
        assert_eq!(rows(json!({"customers": [4], "status": "x' OR '1'='1"})), json!([]));
        assert_eq!(rows(json!({"customers": [4]})), json!([]));
    });
}

#[test]
fn a_statement_of_a_definition_neither_sees_what_is_hidden_later_nor_changes_what_it_says_it_reads() {
    let Some(shop) = Shop::new("sqlite", "writable = true") else { return };
    let config = std::fs::read_to_string(shop.world.config_folder().join("config.toml")).expect("a configuration");
    let find = || shop.world.result_of("shop_find_sales_order", &json!({"entity_id": 4}));
    assert_eq!(find()["data"]["row_count"], 1);
    for hidden in ["hidden_columns = [\"sales_order.grand_total\"]", "deny_tables = [\"sales_*\"]"] {
        shop.world.configure(&format!("{config}{hidden}\n"));
        let result = find();
        assert_eq!(result["error"]["code"], "bad-definition", "{hidden}: {result:#}");
    }
    let sql = json!({"database": "shop", "statement": "DELETE FROM sales_order WHERE entity_id = 1"});
    shop.world.define(
        "own.json",
        &json!({"sneaky": {
            "description": "Deletes an order.", "input": {}, "annotations": {"readOnlyHint": true}, "run": {"sql": sql}
        }}),
    );
    let lint = shop.world.run(&["lint"]);
    assert!(lint.stdout.contains("it changes rows of a database, or no parser understands it"), "{lint}");
    let imported = shop.world.run(&["import", "sql", "shop", "--dry-run"]);
    assert!(imported.stderr.contains("callers do not see"), "{imported}");
    shop.world.configure(&format!("{config}hidden_columns = [\"sales_odour.status\"]\n"));
    let imported = shop.world.run(&["import", "sql", "shop"]);
    assert!(imported.stderr.contains("`sales_odour.status` under [databases.shop] hides nothing"), "{imported}");
    assert!(
        imported.stderr.contains("removed, since this import does not select them: shop_find_sales_order"),
        "{imported}"
    );
}

#[test]
fn a_database_that_goes_away_comes_back() {
    for kind in ["postgres", "mariadb"] {
        let Some(shop) = Shop::new(kind, "") else { continue };
        let server = shop.server.as_ref().expect("a server");
        assert_eq!(shop.query("SELECT 1 AS one")["status"], "succeeded");
        server.command("stop");
        let away = shop.query("SELECT 1 AS one");
        assert_eq!(away["error"]["code"], "unreachable", "{away:#}");
        assert!(!away.to_string().contains(server.text("password")), "{away:#}");
        server.command("start");
        assert_eq!(shop.query("SELECT 1 AS one")["status"], "succeeded");
    }
}

#[test]
fn a_statement_that_would_run_for_an_hour_ends_and_so_does_one_whose_executor_is_killed() {
    let endless = "SELECT count(*) AS n FROM customer_entity a, customer_entity b, customer_entity c WHERE a.email < b.email AND b.email < c.email";
    each("timeout = \"2s\"", |shop| {
        let result = shop.query(endless);
        assert_eq!(result["error"]["code"], "timed-out", "{}: {result:#}", shop.kind);
        until("the server works on nothing", || shop.running() == 0);
    });
    each("timeout = \"20s\"", |shop| {
        let id = shop.world.start("shop_query", &json!({"query": endless}));
        until("it runs", || {
            shop.world.result_file(&id)["state"] == "running" && (shop.server.is_none() || shop.running() > 0)
        });
        shop.world.run(&["cancel", &id]);
        until("it is cancelled", || shop.world.result_file(&id)["status"] == "cancelled");
        until("the server works on nothing", || shop.running() == 0);
        let id = shop.world.start("shop_query", &json!({"query": endless}));
        until("it runs", || {
            shop.world.result_file(&id)["state"] == "running" && (shop.server.is_none() || shop.running() > 0)
        });
        shop.world.kill_executor();
        until("the server works on nothing", || shop.running() == 0);
    });
}

impl Shop {
    /// How many statements over all customers the server works on.
    fn running(&self) -> usize {
        let count = match self.kind {
            "postgres" => self.sql("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%b.email < c.email%' AND pid <> pg_backend_pid()"),
            "mariadb" => self.sql("SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%customer_entity%' AND id <> connection_id()"),
            _ => return 0,
        };
        count.parse().expect("a number")
    }
}
