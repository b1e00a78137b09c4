//! One table has one name for the rules, however a statement calls it, and what is outside of a database is not there.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{Shop, each};
use crate::world::until;

impl Shop {
    /// Runs statements as the server's own administrator.
    pub(super) fn administer(&self, statements: &str) {
        let Some(server) = &self.server else { return };
        let mut client = if self.kind == "postgres" {
            let mut client = Command::new("psql");
            client.args([
                "-X",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-d",
                "shop",
                "-h",
                server.text("folder"),
            ]);
            client
                .arg("-p")
                .arg(server.text("url").rsplit(':').next().and_then(|it| it.split('/').next()).expect("a port"));
            client
        } else {
            let mut client = Command::new("mariadb");
            client
                .args(["--no-defaults", "--user=root", "shop"])
                .arg(format!("--socket={}/socket", server.text("folder")));
            client
        };
        let mut child =
            client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("its input").write_all(statements.as_bytes()).expect("it is written");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(super) fn configured(&self) -> String {
        std::fs::read_to_string(self.world.config_folder().join("config.toml")).expect("a configuration")
    }

    /// The code of the error of a call, which does not wait for a human.
    pub(super) fn code_of(&self, subtool: &str, input: &serde_json::Value) -> String {
        let input = input.to_string();
        let ran = self.world.run(&["run", subtool, "--wait", "--if-no-approver=fail", "--input", &input]);
        // A task that failed says so in its result, and one that never was in the error.
        let error = if ran.stdout.trim().is_empty() { ran.error() } else { ran.json()["error"].clone() };
        error["code"].as_str().unwrap_or("none").to_owned()
    }
}

const PEOPLE: &str = "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(20)); INSERT INTO people VALUES (1, 'one'); \
    CREATE TABLE free (id INTEGER PRIMARY KEY, name VARCHAR(20)); INSERT INTO free VALUES (1, 'one'); \
    CREATE VIEW seen AS SELECT id, name FROM people; CREATE VIEW seen_again AS SELECT id, name FROM seen;";

#[test]
fn a_refused_table_is_refused_however_it_is_written() {
    each("writable = true", |shop| {
        shop.sql(PEOPLE);
        if shop.kind == "postgres" {
            shop.sql(
                "CREATE SCHEMA attack; CREATE TABLE attack.people (id INTEGER PRIMARY KEY, name VARCHAR(20)); \
                 INSERT INTO attack.people VALUES (1, 'one'); CREATE TABLE heirs () INHERITS (people); \
                 CREATE MATERIALIZED VIEW kept AS SELECT id, name FROM people;",
            );
        }
        let (schema, spellings, reads): (&str, &[&str], &[&str]) = match shop.kind {
            "sqlite" => (
                "main",
                &["people", "PEOPLE", "main.people", "\"main\".\"People\"", "[people]", "`people`", "MAIN.[PEOPLE]"],
                &["people", "main.people", "seen", "SEEN", "main.seen", "seen_again"],
            ),
            "postgres" => (
                "public",
                &[
                    "people",
                    "PEOPLE",
                    "public.people",
                    "\"public\".\"people\"",
                    "PUBLIC.People",
                    "heirs",
                    "public.heirs",
                ],
                &["people", "public.people", "seen", "public.seen", "seen_again", "kept", "heirs"],
            ),
            _ => (
                "shop",
                &["people", "`people`", "shop.people", "`shop`.`people`", "shop.`people`"],
                &["people", "shop.people", "seen", "`shop`.`seen`", "seen_again"],
            ),
        };
        let config = shop.configured();
        for then in ["refuse", "ask"] {
            for gate in [
                "db.shop.people.write".to_owned(),
                format!("db.shop.{schema}.people.write"),
                "db.SHOP.People.*".to_owned(),
                format!("db.*.{schema}.PEOPLE.*"),
            ] {
                // Everything else runs unasked, so only the rule stops it.
                shop.world.configure(&format!(
                    "{config}\n[[confirm.rules]]\ngates = [\"db.*\"]\nthen = \"allow\"\n[[confirm.rules]]\ngates = [\"{gate}\"]\nthen = \"{then}\"\n"
                ));
                let expected = if then == "refuse" { "refused-by-policy" } else { "no-approver" };
                for table in spellings {
                    for statement in [
                        format!("UPDATE {table} SET name = 'EVIL'"),
                        format!("DELETE FROM {table}"),
                        format!("INSERT INTO {table} (id, name) VALUES (7, 'EVIL')"),
                    ] {
                        let code = shop.code_of("shop_change", &json!({"statement": statement, "dry_run": false}));
                        // What the names of the database tell is known once it was asked.
                        let is_told = code == expected || (then == "ask" && code == "refused-by-policy");
                        assert!(is_told, "{}: {gate} {then}: {statement}: {code}", shop.kind);
                    }
                }
                assert_eq!(shop.sql("SELECT count(*) FROM people WHERE name = 'one'"), "1", "{}: {gate}", shop.kind);
            }
            let unasked = json!({"statement": "UPDATE free SET name = 'two'", "dry_run": false});
            assert_eq!(shop.code_of("shop_change", &unasked), "none", "{}", shop.kind);
        }
        for gate in ["db.shop.people.read".to_owned(), format!("db.*.{schema}.people.read")] {
            shop.world.configure(&format!("{config}\n[[confirm.rules]]\ngates = [\"{gate}\"]\nthen = \"refuse\"\n"));
            for table in reads {
                for query in
                    [format!("SELECT * FROM {table}"), format!("WITH it AS (SELECT * FROM {table}) SELECT * FROM it")]
                {
                    let code = shop.code_of("shop_query", &json!({"query": query}));
                    assert_eq!(code, "refused-by-policy", "{}: {gate}: {query}", shop.kind);
                    let code = shop.code_of("shop_explain_query", &json!({"query": query}));
                    assert_eq!(code, "refused-by-policy", "{}: {gate}: explain {query}", shop.kind);
                }
            }
            assert_eq!(shop.code_of("shop_query", &json!({"query": "SELECT * FROM free"})), "none", "{}", shop.kind);
        }
        // A view that must be asked about is asked about at the latest when its table was seen.
        shop.world
            .configure(&format!("{config}\n[[confirm.rules]]\ngates = [\"db.shop.people.read\"]\nthen = \"ask\"\n"));
        shop.code_of("shop_query", &json!({"query": "SELECT * FROM seen"}));
        let asked = shop.world.start("shop_query", &json!({"query": "SELECT * FROM seen"}));
        until("a human is asked", || shop.world.result_file(&asked)["state"] == "awaiting_confirmation");
        if shop.kind == "postgres" {
            // A table of another schema has its own name for a rule that allows, and the short one for a rule that refuses.
            let rule = |gate: &str, then: &str| {
                format!(
                    "{config}\n[confirm]\nwrites = \"refuse\"\n[[confirm.rules]]\ngates = [\"{gate}\", \"db.*.read\"]\nthen = \"{then}\"\n"
                )
            };
            let attack = json!({"statement": "UPDATE attack.people SET name = 'x'", "dry_run": false});
            shop.world.configure(&rule("db.shop.people.write", "allow"));
            assert_eq!(shop.code_of("shop_change", &attack), "no-approver");
            shop.world.configure(&format!(
                "{config}\n[[confirm.rules]]\ngates = [\"db.shop.people.write\"]\nthen = \"refuse\"\n"
            ));
            assert_eq!(shop.code_of("shop_change", &attack), "refused-by-policy");
        }
    });
}

#[test]
fn every_form_of_a_replacement_needs_the_gates_of_what_it_replaces() {
    each("writable = true", |shop| {
        shop.sql(PEOPLE);
        let config = shop.configured();
        let statements: &[&str] = match shop.kind {
            "sqlite" => &[
                "INSERT OR REPLACE INTO people (id, name) VALUES (1, 'EVIL')",
                "REPLACE INTO people (id, name) VALUES (1, 'EVIL')",
                "INSERT INTO people (id, name) VALUES (1, 'EVIL') ON CONFLICT (id) DO UPDATE SET name = 'EVIL'",
            ],
            "postgres" => {
                &["INSERT INTO people (id, name) VALUES (1, 'EVIL') ON CONFLICT (id) DO UPDATE SET name = 'EVIL'"]
            }
            _ => &[
                "REPLACE INTO people (id, name) VALUES (1, 'EVIL')",
                "INSERT INTO people (id, name) VALUES (1, 'EVIL') ON DUPLICATE KEY UPDATE name = 'EVIL'",
            ],
        };
        for gate in ["update", "delete"] {
            shop.world.configure(&format!(
                "{config}\n[[confirm.rules]]\ngates = [\"db.*\"]\nthen = \"allow\"\n[[confirm.rules]]\ngates = [\"db.*.people.{gate}\"]\nthen = \"refuse\"\n"
            ));
            for statement in statements {
                let code = shop.code_of("shop_change", &json!({"statement": statement, "dry_run": false}));
                assert_eq!(code, "refused-by-policy", "{}: {gate}: {statement}", shop.kind);
            }
        }
        assert_eq!(shop.sql("SELECT count(*) FROM people WHERE name = 'one'"), "1");
    });
}

#[test]
fn what_is_outside_of_the_named_database_is_not_there() {
    for kind in ["mariadb", "postgres"] {
        let Some(shop) = Shop::new(kind, "") else { continue };
        let config = shop.configured();
        if kind == "mariadb" {
            shop.administer(
                "CREATE DATABASE other; CREATE TABLE other.salaries (id INTEGER PRIMARY KEY, amount INTEGER); \
                 INSERT INTO other.salaries VALUES (1, 4711); CREATE VIEW shop.paid AS SELECT * FROM other.salaries; \
                 CREATE VIEW shop.paid_again AS SELECT * FROM shop.paid; \
                 GRANT ALL ON other.* TO shop@'%'; GRANT ALL ON other.* TO shop@localhost;",
            );
        } else {
            shop.sql(
                "CREATE SCHEMA other; CREATE TABLE other.salaries (id INTEGER PRIMARY KEY, amount INTEGER); \
                 INSERT INTO other.salaries VALUES (1, 4711); CREATE VIEW public.paid AS SELECT * FROM other.salaries; \
                 CREATE VIEW public.paid_again AS SELECT * FROM public.paid;",
            );
        }
        shop.world.define(
            "own.json",
            &json!({"own_salaries": {
                "description": "Shows salaries.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"sql": {"database": "shop", "statement": "SELECT amount FROM other.salaries", "sees_hidden": true}}
            }}),
        );
        // PostgreSQL's schemas are parts of the one database, unless the settings name those that are there.
        let narrow = "[databases.shop]\nschemas = [\"public\"]\n";
        let narrowed = if kind == "mariadb" { config.clone() } else { config.replace("[databases.shop]\n", narrow) };
        shop.world.configure(&narrowed);
        for query in [
            "SELECT * FROM other.salaries",
            "SELECT * FROM `other`.`salaries`",
            "SELECT * FROM paid",
            "SELECT * FROM paid_again",
            "SELECT * FROM information_schema.tables",
            "SELECT (SELECT max(amount) FROM other.salaries) AS a",
            "SELECT * FROM customer_entity WHERE entity_id IN (SELECT amount FROM other.salaries)",
            "SHOW TABLES FROM other",
            "SHOW DATABASES",
        ] {
            let answer = shop.query(query);
            assert_eq!(answer["success"], false, "{kind}: {query}: {answer:#}");
            // Not in the whole answer, whose id may have these digits.
            let told = [&answer["data"], &answer["error"]].map(ToString::to_string).concat();
            assert!(!told.contains("4711"), "{kind}: {query}: {answer:#}");
        }
        let listed = shop.world.result_of("shop_list_tables", &json!({}));
        for name in ["salaries", "paid"] {
            assert!(!listed["data"].to_string().contains(name), "{kind}: {name}: {listed:#}");
        }
        for name in ["other.salaries", "salaries", "paid"] {
            let described = shop.world.result_of("shop_describe_table", &json!({"table": name}));
            assert_eq!(described["success"], false, "{kind}: {name}: {described:#}");
        }
        let own = shop.world.result_of("own_salaries", &json!({}));
        assert_eq!(own["error"]["code"], "bad-definition", "{kind}: {own:#}");
        let imported = shop.world.run(&["import", "sql", "shop"]);
        assert!(imported.stderr.contains("`paid` is left out: it reads `other.salaries`"), "{kind}: {imported}");

        // The settings name it, and it is there.
        let wide = if kind == "mariadb" { "schemas = [\"other\"]" } else { "schemas = [\"public\", \"other\"]" };
        shop.world.configure(&config.replace("[databases.shop]\n", &format!("[databases.shop]\n{wide}\n")));
        let answer = shop.query("SELECT amount FROM other.salaries");
        assert_eq!(answer["data"]["data"], json!([{"amount": 4711}]), "{kind}: {answer:#}");
    }
}

#[test]
fn materialized_views_and_foreign_tables_are_there_beside_hidden_columns() {
    let Some(shop) = Shop::new("postgres", "") else { return };
    shop.sql(
        "CREATE MATERIALIZED VIEW kept AS SELECT entity_id, email FROM customer_entity WHERE entity_id <= 3; \
         CREATE MATERIALIZED VIEW leaked AS SELECT entity_id, password_hash FROM customer_entity; \
         CREATE VIEW counted AS SELECT group_id, count(c.*) AS n FROM customer_entity AS c GROUP BY group_id; \
         CREATE TABLE far_away (id INTEGER, name TEXT); INSERT INTO far_away VALUES (5, 'there');",
    );
    let port = shop
        .server
        .as_ref()
        .expect("a server")
        .text("url")
        .rsplit(':')
        .next()
        .expect("a port")
        .split('/')
        .next()
        .expect("a port")
        .to_owned();
    shop.administer(&format!(
        "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '{port}', dbname 'shop'); \
         CREATE USER MAPPING FOR shop SERVER far OPTIONS (user 'shop', password 'pass/word'); \
         CREATE FOREIGN TABLE far_table (id INTEGER, name TEXT) SERVER far OPTIONS (schema_name 'public', table_name 'far_away'); \
         CREATE FOREIGN TABLE far_customers (entity_id INTEGER, name TEXT OPTIONS (column_name 'password_hash')) SERVER far OPTIONS (schema_name 'public', table_name 'customer_entity'); \
         CREATE FOREIGN TABLE far_admins (user_id INTEGER) SERVER far OPTIONS (schema_name 'public', table_name 'admin_user'); \
         GRANT SELECT ON far_table, far_customers, far_admins TO shop;"
    ));
    shop.world.configure(&format!("{}deny_tables = [\"admin_*\"]\n", shop.configured()));
    for (query, expected) in [
        ("SELECT count(*) AS n FROM kept", json!([{"n": 3}])),
        ("SELECT name FROM far_table", json!([{"name": "there"}])),
        ("SELECT sum(n) AS n FROM counted", json!([{"n": "100000"}])),
        ("SELECT count(k.*) AS n FROM kept AS k", json!([{"n": 3}])),
    ] {
        let answer = shop.query(query);
        assert_eq!(answer["data"]["data"], expected, "{query}: {answer:#}");
    }
    for hidden in ["SELECT * FROM leaked", "SELECT * FROM far_customers", "SELECT * FROM far_admins"] {
        assert_eq!(shop.query(hidden)["error"]["code"], "invalid-input", "{hidden}");
    }
    let imported = shop.world.run(&["import", "sql", "shop"]);
    for said in [
        "`leaked` is left out: it names `password_hash`, as a hidden column of `customer_entity` is called",
        "`far_customers` is left out: what it reads is not known",
        "`far_admins` is left out: it shows `public.admin_user` of another server",
        "`all_customers` is left out: it names `password_hash`",
    ] {
        assert!(imported.stderr.contains(said), "{said}: {imported}");
    }
    assert!(!imported.stderr.contains("`kept` is left out"), "{imported}");
}
