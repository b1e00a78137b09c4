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
        until("the change was tried", || {
            Human::of(&self.world).card(&id).contains("It was tried") || self.world.result_file(&id)["success"] == false
        });
        let result = self.world.result_file(&id);
        assert_eq!(result["state"], "awaiting_confirmation", "{}: {subtool} {input}: {result:#}", self.kind);
        let card = Human::of(&self.world).card(&id);
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
