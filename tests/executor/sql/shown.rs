//! What a human is shown of a change is what is written, or nothing is.

use serde_json::{Value, json};

use super::{Shop, each};
use crate::page::human::Human;
use crate::world::until;

/// Notes with a number and times that the database sets, what is copied into them, and a table without a key.
fn tables(kind: &str) -> String {
    let notes = match kind {
        "sqlite" => {
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, body VARCHAR(50), created TIMESTAMP DEFAULT CURRENT_TIMESTAMP, changed TIMESTAMP); \
             CREATE TRIGGER notes_change AFTER UPDATE OF body ON notes BEGIN UPDATE notes SET changed = strftime('%f', 'now') WHERE id = new.id; END;"
        }
        "postgres" => {
            "CREATE TABLE notes (id SERIAL PRIMARY KEY, body VARCHAR(50), created TIMESTAMP DEFAULT clock_timestamp(), changed TIMESTAMP); ALTER SEQUENCE notes_id_seq RESTART WITH 100; \
             CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.changed := clock_timestamp(); RETURN NEW; END'; \
             CREATE TRIGGER notes_change BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION note_change();"
        }
        _ => {
            "CREATE TABLE notes (id INTEGER AUTO_INCREMENT PRIMARY KEY, body VARCHAR(50), created TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), \
             changed TIMESTAMP(6) NULL ON UPDATE CURRENT_TIMESTAMP(6));"
        }
    };
    format!(
        "{notes} CREATE TABLE source (id INTEGER PRIMARY KEY, body VARCHAR(50)); CREATE TABLE loose (body VARCHAR(50), n INTEGER); \
         CREATE TABLE many (id INTEGER PRIMARY KEY, body VARCHAR(50));"
    )
}

/// As it is before each case.
const FRESH: &str = "DELETE FROM notes; DELETE FROM source; DELETE FROM loose; DELETE FROM many; \
    INSERT INTO notes (id, body) VALUES (1, 'old'), (2, 'other'); INSERT INTO source VALUES (1, 'good'), (2, 'fine'); \
    INSERT INTO loose VALUES ('old', 1), ('old', 2); \
    INSERT INTO many SELECT entity_id, 'old' FROM sales_order WHERE entity_id <= 300;";

/// What is asked, what a stranger does before the approval, and a count that shows whether it was done.
const OVERTAKEN: &[(&str, &str, &str)] = &[
    (
        "UPDATE notes SET body = (SELECT body FROM source WHERE id = 1) WHERE id = 1",
        "UPDATE source SET body = 'EVIL' WHERE id = 1",
        "SELECT count(*) FROM notes WHERE body IN ('good', 'EVIL')",
    ),
    (
        "INSERT INTO notes (body) SELECT body FROM source WHERE id = 1",
        "UPDATE source SET body = 'EVIL' WHERE id = 1",
        "SELECT count(*) FROM notes WHERE body IN ('good', 'EVIL')",
    ),
    (
        "INSERT INTO loose (body, n) SELECT body, id FROM source",
        "UPDATE source SET body = 'EVIL' WHERE id = 2",
        "SELECT count(*) FROM loose WHERE body IN ('good', 'EVIL')",
    ),
    (
        "INSERT INTO notes (body) SELECT body FROM source WHERE id > 1",
        "INSERT INTO source VALUES (3, 'EVIL')",
        "SELECT count(*) FROM notes WHERE body IN ('fine', 'EVIL')",
    ),
    (
        "INSERT INTO notes (body) VALUES ((SELECT body FROM source WHERE id = 1))",
        "UPDATE source SET body = 'EVIL' WHERE id = 1",
        "SELECT count(*) FROM notes WHERE body IN ('good', 'EVIL')",
    ),
    (
        "DELETE FROM notes WHERE body <> (SELECT body FROM source WHERE id = 1)",
        "UPDATE source SET body = 'other' WHERE id = 1",
        "SELECT 2 - count(*) FROM notes",
    ),
    (
        "UPDATE loose SET body = 'new' WHERE n = 1",
        "UPDATE loose SET body = 'EVIL' WHERE n = 1",
        "SELECT count(*) FROM loose WHERE body = 'new'",
    ),
    ("DELETE FROM loose WHERE n = 1", "UPDATE loose SET body = 'EVIL' WHERE n = 1", "SELECT 2 - count(*) FROM loose"),
    // Far more rows than are shown, and one that is not shown changes.
    (
        "UPDATE many SET body = 'new'",
        "UPDATE many SET body = 'EVIL' WHERE id = 290",
        "SELECT count(*) FROM many WHERE body = 'new'",
    ),
    ("DELETE FROM many", "UPDATE many SET body = 'EVIL' WHERE id = 290", "SELECT 300 - count(*) FROM many"),
];

/// What is asked and approved, what the card shows of it, and a count that shows that it was done.
const MADE: &[(&str, &[&str], &str)] = &[
    (
        "INSERT INTO notes (body) SELECT body FROM source WHERE id = 1",
        &["1 row changes", "good", "The database itself sets"],
        "SELECT count(*) FROM notes WHERE body = 'good'",
    ),
    (
        "INSERT INTO notes (body) VALUES ('by hand')",
        &["1 row changes", "by hand", "The database itself sets"],
        "SELECT count(*) FROM notes WHERE body = 'by hand'",
    ),
    (
        "UPDATE notes SET body = 'new' WHERE id = 1",
        &["1 row changes", "new", "The database itself sets"],
        "SELECT count(*) FROM notes WHERE body = 'new'",
    ),
    ("DELETE FROM notes WHERE id = 2", &["1 row changes", "other"], "SELECT 2 - count(*) FROM notes"),
    (
        "UPDATE loose SET body = 'new' WHERE n = 1",
        &["1 row changes", "old"],
        "SELECT count(*) FROM loose WHERE body = 'new'",
    ),
];

impl Shop {
    /// Asks for a change, and returns its id and the card once it was tried.
    pub(super) fn shown(&self, statement: &str) -> (String, String) {
        self.shown_of("shop_change", &json!({"statement": statement, "dry_run": false}))
    }

    /// The same for any subtool.
    pub(super) fn shown_of(&self, subtool: &str, input: &Value) -> (String, String) {
        let id = self.world.start(subtool, input);
        let human = Human::of(&self.world);
        until("the change was tried", || {
            human.card(&id).contains("It was tried") || self.world.result_file(&id)["success"] == false
        });
        let result = self.world.result_file(&id);
        assert_eq!(result["state"], "awaiting_confirmation", "{}: {subtool} {input}: {result:#}", self.kind);
        let card = human.card(&id);
        (id, card)
    }
}

#[test]
fn an_approved_change_writes_what_was_shown_or_nothing() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        for (statement, meanwhile, done) in OVERTAKEN {
            shop.sql(FRESH);
            let (id, _) = shop.shown(statement);
            shop.sql(meanwhile);
            shop.world.decide(&id, "approve", "shop_change");
            shop.world.run(&["wait", &id]);
            let result = shop.world.result_file(&id);
            assert_eq!(result["error"]["code"], "drifted", "{}: {statement}: {result:#}", shop.kind);
            assert_eq!(shop.sql(done), "0", "{}: {statement}", shop.kind);
        }
        for (statement, words, done) in MADE {
            shop.sql(FRESH);
            let (id, card) = shop.shown(statement);
            for word in *words {
                assert!(card.contains(word), "{}: {statement}: no `{word}` in {card}", shop.kind);
            }
            shop.world.decide(&id, "approve", "shop_change");
            shop.world.run(&["wait", &id]);
            let result = shop.world.result_file(&id);
            assert_eq!(result["status"], "succeeded", "{}: {statement}: {result:#}", shop.kind);
            assert_eq!(shop.sql(done), "1", "{}: {statement}", shop.kind);
        }
    });
}

#[test]
fn a_statement_of_a_definition_writes_what_was_shown_too() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        let own = |statement: &str| {
            json!({
                "description": "Copies a note.",
                "input": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": false},
                "run": {"sql": {"database": "shop", "statement": statement, "parameters": {"id": "{{ id }}"}}}
            })
        };
        shop.world.define(
            "own.json",
            &json!({
                "copy_note": own("INSERT INTO notes (body) SELECT body FROM source WHERE id = :id"),
                "copy_note_back": own("INSERT INTO notes (body) SELECT body FROM source WHERE id = :id RETURNING id"),
                "drop_note": own("DELETE FROM notes WHERE id = :id"),
                "change_note": own("UPDATE notes SET body = 'new' WHERE id = :id"),
            }),
        );
        for (subtool, word, meanwhile, done) in [
            (
                "copy_note",
                "good",
                "UPDATE source SET body = 'EVIL'",
                "SELECT count(*) FROM notes WHERE body IN ('good', 'EVIL')",
            ),
            (
                "copy_note_back",
                "good",
                "UPDATE source SET body = 'EVIL'",
                "SELECT count(*) FROM notes WHERE body IN ('good', 'EVIL')",
            ),
            ("drop_note", "old", "UPDATE notes SET body = 'EVIL'", "SELECT 2 - count(*) FROM notes"),
            (
                "change_note",
                "old",
                "UPDATE notes SET body = 'EVIL' WHERE id = 1",
                "SELECT count(*) FROM notes WHERE body = 'new'",
            ),
        ] {
            for (is_overtaken, outcome) in [(true, "drifted"), (false, "")] {
                shop.sql(FRESH);
                let (id, card) = shop.shown_of(subtool, &json!({"id": 1}));
                assert!(card.contains(word), "{}: {subtool}: no `{word}` in {card}", shop.kind);
                if is_overtaken {
                    shop.sql(meanwhile);
                }
                shop.world.decide(&id, "approve", subtool);
                shop.world.run(&["wait", &id]);
                let result = shop.world.result_file(&id);
                let code = result["error"]["code"].as_str().unwrap_or_default();
                assert_eq!(code, outcome, "{}: {subtool}: {result:#}", shop.kind);
                assert_eq!(shop.sql(done), if is_overtaken { "0" } else { "1" }, "{}: {subtool}", shop.kind);
            }
        }
    });
}

#[test]
fn what_gives_something_else_each_time_is_not_put_to_a_human() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        shop.sql(FRESH);
        let volatile: &[&str] = match shop.kind {
            "sqlite" => &["CURRENT_TIMESTAMP", "random()", "hex(randomblob(4))", "datetime('now')", "strftime('%s')"],
            "postgres" => &[
                "clock_timestamp()::text",
                "CURRENT_TIMESTAMP::text",
                "random()::text",
                "gen_random_uuid()::text",
                "'now'::timestamp::text",
            ],
            _ => &[
                "concat(NOW(), '')",
                "concat(RAND(), '')",
                "concat(UUID(), '')",
                "concat(SYSDATE(), '')",
                "concat(CURRENT_TIMESTAMP, '')",
                "concat(unix_timestamp(), '')",
            ],
        };
        for expression in volatile {
            for statement in [
                format!(
                    "UPDATE notes SET body = CASE WHEN {expression} = 'x' THEN 'good' ELSE 'EVIL' END WHERE id = 1"
                ),
                format!("INSERT INTO notes (body) SELECT substr({expression}, 1, 5) FROM source"),
                format!("DELETE FROM notes WHERE body > {expression}"),
            ] {
                let id = shop.world.start("shop_change", &json!({"statement": statement, "dry_run": false}));
                let result = shop.world.end_of(&id);
                assert_eq!(result["error"]["code"], "invalid-input", "{}: {statement}: {result:#}", shop.kind);
                let message = result["error"]["message"].as_str().unwrap_or_default();
                assert!(
                    message.contains("something else when it is approved"),
                    "{}: {statement}: {message}",
                    shop.kind
                );
                // It may be tried.
                let tried = shop.world.result_of("shop_change", &json!({"statement": statement}));
                assert_eq!(tried["status"], "succeeded", "{}: {statement}: {tried:#}", shop.kind);
            }
        }
    });
}

/// A statement, what its card shows, and what a stranger does meanwhile.
struct Overtaken {
    statement: &'static str,
    shown: &'static [&'static str],
    meanwhile: &'static [&'static str],
}

impl Shop {
    /// Each is made as it was shown, and not made after what a stranger did.
    fn check_overtaken(&self, fresh: &str, cases: &[&Overtaken], content: &[&str]) {
        let content = || content.iter().map(|sql| self.sql(sql)).collect::<Vec<_>>().join(" ");
        for Overtaken { statement, shown, meanwhile } in cases {
            for meanwhile in std::iter::once(&"").chain(*meanwhile) {
                self.sql(fresh);
                let (id, card) = self.shown(statement);
                let what = format!("{}: {statement}; {meanwhile}", self.kind);
                for word in *shown {
                    assert!(card.contains(word), "{what}: no `{word}` in {card}");
                }
                assert!(!card.contains("hash-of-a-password"), "{what}: {card}");
                if !meanwhile.is_empty() {
                    self.sql(meanwhile);
                }
                let before = content();
                self.world.decide(&id, "approve", "shop_change");
                let result = self.world.end_of(&id);
                let code = result["error"]["code"].as_str().unwrap_or_default();
                assert_eq!(code, if meanwhile.is_empty() { "" } else { "drifted" }, "{what}: {result:#}");
                assert_eq!(content() == before, !meanwhile.is_empty(), "{what}");
            }
        }
    }

    /// None of them gets to a human, and each is told what to write.
    fn check_refused(&self, statements: &[&str], words: &str) {
        for statement in statements {
            let id = self.world.start("shop_change", &json!({"statement": statement, "dry_run": false}));
            let human = Human::of(&self.world);
            until("it has ended or was tried", || {
                self.world.result_file(&id)["success"] == false || human.card(&id).contains("It was tried")
            });
            let result = self.world.result_file(&id);
            assert_eq!(result["status"], "failed", "{}: {statement}: {result:#}", self.kind);
            let said = format!("{} {}", result["error"]["message"], result["error"]["hint"]);
            assert!(said.contains(words), "{}: {statement}: {said}", self.kind);
        }
    }
}

const FROM_ANOTHER: Overtaken = Overtaken {
    statement: "UPDATE notes SET body = source.body FROM source WHERE source.id = notes.id",
    shown: &["2 rows change", "old", "other", "good", "fine"],
    meanwhile: &[
        "UPDATE notes SET body = 'EVIL' WHERE id = 1",
        "UPDATE source SET id = 3 WHERE id = 2",
        "UPDATE source SET id = id + 10; UPDATE source SET id = 13 - id",
        "DELETE FROM notes WHERE id = 2",
    ],
};
const FROM_AS: Overtaken = Overtaken {
    statement: "WITH few AS (SELECT id, body FROM source WHERE id < 2) UPDATE notes AS n SET body = few.body FROM few WHERE few.id = n.id",
    shown: &["1 row changes", "old", "good"],
    meanwhile: &["UPDATE notes SET body = 'EVIL' WHERE id = 1"],
};

#[test]
fn an_update_from_other_tables_shows_the_rows_that_are_there() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        shop.sql(FRESH);
        let own = |statement: &str| {
            json!({
                "description": "Copies notes.", "input": {"type": "object", "properties": {}, "additionalProperties": false},
                "run": {"sql": {"database": "shop", "statement": statement}}
            })
        };
        if shop.kind == "mariadb" {
            let joined = "UPDATE notes JOIN source ON source.id = notes.id SET notes.body = source.body";
            shop.check_refused(&[joined], "write to one table");
            shop.check_refused(&["UPDATE notes SET body = 'new' ORDER BY id LIMIT 1"], "condition in `WHERE`");
            shop.world.define("own.json", &json!({"copy_notes": own(joined)}));
            let refused = shop.world.end_of(&shop.world.start("copy_notes", &json!({})));
            assert_eq!(refused["error"]["code"], "bad-definition", "{refused:#}");
            return;
        }
        let content = ["SELECT count(*) FROM notes WHERE body IN ('old', 'other', 'EVIL')"];
        shop.check_overtaken(FRESH, &[&FROM_ANOTHER, &FROM_AS], &content);
        shop.check_refused(
            &[
                "UPDATE loose SET body = source.body FROM source WHERE source.id = loose.n",
                "UPDATE notes SET id = notes.id + 10, body = source.body FROM source WHERE source.id = notes.id",
            ],
            "with subqueries",
        );
        shop.world.define("own.json", &json!({"copy_notes": own(FROM_ANOTHER.statement)}));
        for (meanwhile, outcome) in [("", ""), ("UPDATE notes SET body = 'EVIL' WHERE id = 1", "drifted")] {
            shop.sql(FRESH);
            let (id, card) = shop.shown_of("copy_notes", &json!({}));
            assert!(card.contains("old") && card.contains("other"), "{}: {card}", shop.kind);
            if !meanwhile.is_empty() {
                shop.sql(meanwhile);
            }
            shop.world.decide(&id, "approve", "copy_notes");
            let result = shop.world.end_of(&id);
            assert_eq!(result["error"]["code"].as_str().unwrap_or_default(), outcome, "{}: {result:#}", shop.kind);
        }
    });
}

/// Roles that a trigger sets after a row was written, with a key and without one.
fn roles(kind: &str) -> String {
    let tables = "CREATE TABLE roles (k VARCHAR(20) NOT NULL PRIMARY KEY, role VARCHAR(20)); CREATE TABLE keyless (k VARCHAR(20), role VARCHAR(20));";
    let set = |table: &str| {
        format!(
            "UPDATE {table} SET role = (SELECT body FROM source WHERE id = 1) WHERE k = new.k AND role <> (SELECT body FROM source WHERE id = 1);"
        )
    };
    let triggers = match kind {
        "sqlite" => ["roles", "keyless"]
            .map(|table| {
                format!(
                    "CREATE TRIGGER {table}_insert AFTER INSERT ON {table} BEGIN {set} END; \
                     CREATE TRIGGER {table}_update AFTER UPDATE OF role ON {table} BEGIN {set} END;",
                    set = set(table)
                )
            })
            .concat(),
        "postgres" => ["roles", "keyless"]
            .map(|table| {
                format!(
                    "CREATE FUNCTION set_{table}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {} RETURN NULL; END'; \
                     CREATE TRIGGER {table}_change AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION set_{table}();",
                    set(table)
                )
            })
            .concat(),
        _ => "CREATE TRIGGER roles_insert BEFORE INSERT ON roles FOR EACH ROW SET NEW.role = (SELECT body FROM source WHERE id = 1); \
             CREATE TRIGGER roles_update BEFORE UPDATE ON roles FOR EACH ROW SET NEW.role = (SELECT body FROM source WHERE id = 1); \
             CREATE TRIGGER keyless_update BEFORE UPDATE ON keyless FOR EACH ROW SET NEW.role = (SELECT body FROM source WHERE id = 1);"
            .to_owned(),
    };
    format!("{tables} {triggers}")
}

const SET_BY_TRIGGER: &[&str] = &["UPDATE source SET body = 'EVIL' WHERE id = 1"];
const INSERTED: Overtaken = Overtaken {
    statement: "INSERT INTO roles (k, role) VALUES ('eve', 'guest')",
    shown: &["1 row changes", "good"],
    meanwhile: SET_BY_TRIGGER,
};
const UPSERTED: Overtaken = Overtaken {
    statement: "INSERT INTO roles (k, role) VALUES ('ada', 'guest'), ('eve', 'guest') ON CONFLICT (k) DO UPDATE SET role = excluded.role",
    shown: &["good", "ada"],
    meanwhile: SET_BY_TRIGGER,
};
const UPDATED: Overtaken = Overtaken {
    statement: "UPDATE roles SET role = 'guest' WHERE k = 'ada'",
    shown: &["good"],
    meanwhile: SET_BY_TRIGGER,
};
const UPDATED_FROM: Overtaken = Overtaken {
    statement: "UPDATE roles SET role = source.body FROM source WHERE source.id = 2 AND roles.k = 'ada'",
    shown: &["good"],
    meanwhile: SET_BY_TRIGGER,
};

#[test]
fn rows_are_shown_as_they_are_after_the_triggers() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        shop.sql(FRESH);
        shop.sql(&roles(shop.kind));
        let fresh = format!(
            "{FRESH} DELETE FROM roles; DELETE FROM keyless; INSERT INTO roles VALUES ('ada', 'x'); INSERT INTO keyless VALUES ('ada', 'x'); \
             UPDATE source SET body = 'was' WHERE id = 1; UPDATE roles SET role = 'x'; UPDATE source SET body = 'good' WHERE id = 1;"
        );
        let content = ["SELECT count(*) FROM roles", "SELECT count(*) FROM roles WHERE role = 'was'"];
        let cases: &[&Overtaken] = match shop.kind {
            "mariadb" => &[&INSERTED, &UPDATED],
            _ => &[&INSERTED, &UPSERTED, &UPDATED, &UPDATED_FROM],
        };
        shop.check_overtaken(&fresh, cases, &content);
        let refused: &[&str] = match shop.kind {
            "mariadb" => &["UPDATE keyless SET role = 'guest'"],
            _ => &["UPDATE keyless SET role = 'guest'", "INSERT INTO keyless VALUES ('eve', 'guest')"],
        };
        shop.check_refused(refused, "trigger");
    });
}

const DELETED_CUSTOMER: Overtaken = Overtaken {
    statement: "DELETE FROM customer_entity WHERE entity_id = 5",
    shown: &["1 row changes", "user5@example.com"],
    meanwhile: &["UPDATE customer_entity SET password_hash = 'EVIL' WHERE entity_id = 5"],
};
const CHANGED_CUSTOMER: Overtaken =
    Overtaken { statement: "UPDATE customer_entity SET group_id = 77 WHERE entity_id = 5", ..DELETED_CUSTOMER };
const CUSTOMER_FROM_ANOTHER: Overtaken = Overtaken {
    statement: "UPDATE customer_entity SET group_id = sales_order.entity_id + 72 FROM sales_order \
        WHERE sales_order.entity_id = customer_entity.entity_id AND customer_entity.entity_id = 5",
    ..DELETED_CUSTOMER
};
const PUT_CUSTOMER: Overtaken = Overtaken {
    statement: "INSERT INTO customer_entity (entity_id, email, group_id) VALUES (5, 'new', 7) ON CONFLICT (entity_id) DO UPDATE SET group_id = 77",
    ..DELETED_CUSTOMER
};
const DELETED_USING: Overtaken = Overtaken {
    statement: "DELETE FROM customer_entity USING sales_order WHERE sales_order.entity_id = customer_entity.entity_id AND customer_entity.entity_id = 5",
    ..DELETED_CUSTOMER
};
const DELETED_WITHOUT_KEY: Overtaken = Overtaken {
    statement: "DELETE FROM hidden_loose WHERE n = 5",
    shown: &["1 row changes"],
    meanwhile: &["UPDATE hidden_loose SET password = 'EVIL' WHERE n = 5"],
};
const CHANGED_WITHOUT_KEY: Overtaken =
    Overtaken { statement: "UPDATE hidden_loose SET m = 77 WHERE n = 5", ..DELETED_WITHOUT_KEY };
/// The same letters, as bytes.
const LOOKS_ALIKE: Overtaken = Overtaken {
    statement: "DELETE FROM loose WHERE n = 1",
    shown: &["old"],
    meanwhile: &["UPDATE loose SET body = x'6f6c64' WHERE n = 1"],
};
const CHANGED_ALIKE: Overtaken = Overtaken {
    statement: "UPDATE notes SET created = NULL WHERE id = 1",
    shown: &["old"],
    meanwhile: &["UPDATE notes SET body = x'6f6c64' WHERE id = 1"],
};

#[test]
fn what_is_hidden_or_only_looks_alike_is_compared_too() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        shop.sql("CREATE TABLE hidden_loose (n INTEGER, m INTEGER, password VARCHAR(50));");
        let fresh = format!(
            "{FRESH} DELETE FROM customer_entity WHERE entity_id = 5; \
             INSERT INTO customer_entity VALUES (5, 'user5@example.com', 'hash-of-a-password', 2); \
             DELETE FROM hidden_loose; INSERT INTO hidden_loose VALUES (5, 5, 'hash-of-a-password');"
        );
        let cases: &[&Overtaken] = match shop.kind {
            "sqlite" => &[
                &DELETED_CUSTOMER,
                &CHANGED_CUSTOMER,
                &CUSTOMER_FROM_ANOTHER,
                &PUT_CUSTOMER,
                &DELETED_WITHOUT_KEY,
                &CHANGED_WITHOUT_KEY,
                &LOOKS_ALIKE,
                &CHANGED_ALIKE,
            ],
            "postgres" => &[
                &DELETED_CUSTOMER,
                &CHANGED_CUSTOMER,
                &CUSTOMER_FROM_ANOTHER,
                &PUT_CUSTOMER,
                &DELETED_USING,
                &DELETED_WITHOUT_KEY,
                &CHANGED_WITHOUT_KEY,
            ],
            _ => &[&DELETED_CUSTOMER, &CHANGED_CUSTOMER],
        };
        let content = [
            "SELECT coalesce(sum(group_id), 0) FROM customer_entity WHERE entity_id = 5",
            "SELECT coalesce(sum(m), 0) FROM hidden_loose",
            "SELECT count(*) FROM loose",
            "SELECT count(created) FROM notes",
        ];
        shop.check_overtaken(&fresh, cases, &content);
    });
}
