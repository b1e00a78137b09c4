//! A statement that makes room for its rows: those that it overwrites or removes stand on the card, and are still those
//! when it is approved, or nothing is done.

use serde_json::json;

use super::{Shop, each};
use crate::page::human::Human;
use crate::world::until;

/// A shelf with three unique keys, one of which has a default, and what is delivered for it.
const SHELF: &str = "CREATE TABLE shelf (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL, place INTEGER DEFAULT 7, row_no INTEGER, \
        note VARCHAR(20), UNIQUE (name), UNIQUE (place, row_no)); \
    CREATE TABLE bare (name VARCHAR(20) NOT NULL UNIQUE, note VARCHAR(20)); \
    CREATE TABLE delivery (id INTEGER PRIMARY KEY, name VARCHAR(20), note VARCHAR(20));";

/// All tables, with one of SQLite that says by itself that rows make room.
fn tables(kind: &str) -> String {
    let greedy = if kind == "sqlite" { "UNIQUE ON CONFLICT REPLACE" } else { "UNIQUE" };
    let some = if kind == "mariadb" { "" } else { "CREATE UNIQUE INDEX some_notes ON timed (note) WHERE id > 100;" };
    format!(
        "{SHELF} CREATE TABLE greedy (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL {greedy}, note VARCHAR(20)); \
         CREATE TABLE timed (id INTEGER PRIMARY KEY, note VARCHAR(20), made TIMESTAMP DEFAULT CURRENT_TIMESTAMP); {some}"
    )
}

/// As it is before each case.
const FRESH: &str = "DELETE FROM timed; INSERT INTO timed (id, note) VALUES (1, 'old one'); DELETE FROM greedy; INSERT INTO greedy VALUES (1, 'one', 'old one'), (2, 'two', 'old two'); DELETE FROM shelf; DELETE FROM bare; DELETE FROM delivery; \
    INSERT INTO shelf VALUES (1, 'one', 1, 1, 'old one'), (2, 'two', 2, 2, 'old two'), (3, 'three', 7, 5, 'old three'), (4, 'four', 4, 4, 'old four'); \
    INSERT INTO bare VALUES ('one', 'old one'), ('two', 'old two'); \
    INSERT INTO delivery VALUES (1, 'two', 'sent'), (9, 'nine', 'sent');";

/// A statement, the notes of the rows that it replaces, what a stranger does meanwhile, and a count of what it wrote.
struct Case {
    statement: &'static str,
    replaced: &'static [&'static str],
    rows: u64,
    meanwhile: &'static [&'static str],
    written: &'static str,
}

const WRITTEN: &str = "SELECT count(*) FROM shelf WHERE note IN ('new', 'sent')";

/// It has the key of one row, the name of another, and by a default the place of a third.
const THREE_KEYS: Case = Case {
    statement: "REPLACE INTO shelf (id, name, row_no, note) VALUES (1, 'two', 5, 'new')",
    replaced: &["old one", "old two", "old three"],
    rows: 1,
    meanwhile: &[
        "UPDATE shelf SET note = 'EVIL' WHERE id = 1",
        "UPDATE shelf SET note = 'EVIL' WHERE id = 2",
        "UPDATE shelf SET note = 'EVIL' WHERE id = 3",
        "DELETE FROM shelf WHERE id = 3",
    ],
    written: WRITTEN,
};
const OF_A_QUERY: Case = Case {
    statement: "REPLACE INTO shelf (id, name, place, row_no, note) SELECT id, name, 50, id, note FROM delivery",
    replaced: &["old one", "old two"],
    rows: 2,
    meanwhile: &[
        "UPDATE shelf SET note = 'EVIL' WHERE id = 2",
        "INSERT INTO shelf VALUES (5, 'five', 50, 9, 'EVIL')",
        "UPDATE delivery SET id = 3 WHERE id = 9",
    ],
    written: WRITTEN,
};
const TEXT_FOR_A_NUMBER: Case = Case {
    statement: "REPLACE INTO shelf (id, name, place, row_no, note) VALUES ('4', 'x', '2', '2', 'new')",
    replaced: &["old two", "old four"],
    rows: 1,
    meanwhile: &["UPDATE shelf SET note = 'EVIL' WHERE id = 2"],
    written: WRITTEN,
};
const NOTHING_THERE: Case = Case {
    statement: "REPLACE INTO shelf (id, name, place, row_no, note) VALUES (8, 'eight', 8, 8, 'new')",
    replaced: &[],
    rows: 1,
    meanwhile: &[
        "INSERT INTO shelf VALUES (5, 'eight', 5, 5, 'EVIL')",
        "INSERT INTO shelf VALUES (5, 'x', 8, 8, 'EVIL')",
    ],
    written: WRITTEN,
};
const WITHOUT_A_PRIMARY_KEY: Case = Case {
    statement: "REPLACE INTO bare (name, note) VALUES ('two', 'new')",
    replaced: &["old two"],
    rows: 1,
    meanwhile: &["UPDATE bare SET note = 'EVIL' WHERE name = 'two'"],
    written: "SELECT count(*) FROM bare WHERE note = 'new'",
};
/// The table says it, and the statement does not.
const GREEDY: Case = Case {
    statement: "INSERT INTO greedy (id, name, note) VALUES (7, 'two', 'new')",
    replaced: &["old two"],
    rows: 1,
    meanwhile: &["UPDATE greedy SET note = 'EVIL' WHERE id = 2", "UPDATE greedy SET id = 9 WHERE id = 2"],
    written: "SELECT count(*) FROM greedy WHERE note = 'new'",
};
const OR_REPLACE: Case = Case {
    statement: "INSERT OR REPLACE INTO shelf (id, name, row_no, note) VALUES (1, 'two', 5, 'new')",
    ..THREE_KEYS
};
const ON_CONFLICT: Case = Case {
    statement: "INSERT INTO shelf (id, name, place, row_no, note) VALUES (1, 'x', 8, 8, 'new'), (8, 'eight', 9, 9, 'new') \
        ON CONFLICT (id) DO UPDATE SET note = excluded.note",
    replaced: &["old one"],
    rows: 2,
    meanwhile: &[
        "UPDATE shelf SET note = 'EVIL' WHERE id = 1",
        "UPDATE shelf SET place = 77 WHERE id = 1",
        "INSERT INTO shelf VALUES (8, 'EVIL', 5, 5, 'EVIL')",
    ],
    written: WRITTEN,
};
const ON_CONFLICT_OF_A_QUERY: Case = Case {
    statement: "INSERT INTO shelf (id, name, note) SELECT id + 20, name, note FROM delivery WHERE id < 100 \
        ON CONFLICT (name) DO UPDATE SET note = excluded.note, place = 60",
    replaced: &["old two"],
    rows: 2,
    meanwhile: &["UPDATE shelf SET note = 'EVIL' WHERE id = 2", "UPDATE shelf SET name = 'nine' WHERE id = 4"],
    written: WRITTEN,
};
const ON_CONFLICT_WITHOUT_A_PRIMARY_KEY: Case = Case {
    statement: "INSERT INTO bare (name, note) VALUES ('two', 'new') ON CONFLICT (name) DO UPDATE SET note = excluded.note",
    ..WITHOUT_A_PRIMARY_KEY
};
/// An index of some rows does not count, since the statement names another key.
const ON_CONFLICT_BESIDE_A_DEFAULT: Case = Case {
    statement: "INSERT INTO timed (id, note) VALUES (1, 'new'), (2, 'new') ON CONFLICT (id) DO UPDATE SET note = excluded.note",
    replaced: &["old one"],
    rows: 2,
    meanwhile: &["UPDATE timed SET note = 'EVIL' WHERE id = 1"],
    written: "SELECT count(*) FROM timed WHERE note = 'new'",
};
const ON_DUPLICATE_KEY: Case = Case {
    statement: "INSERT INTO shelf (id, name, place, row_no, note) VALUES (1, 'x', 8, 8, 'new'), (8, 'eight', 9, 9, 'new'), (9, 'two', 10, 10, 'new') \
        ON DUPLICATE KEY UPDATE note = VALUES(note)",
    replaced: &["old one", "old two"],
    rows: 3,
    meanwhile: &[
        "UPDATE shelf SET note = 'EVIL' WHERE id = 1",
        "UPDATE shelf SET place = 77 WHERE id = 2",
        "INSERT INTO shelf VALUES (7, 'eight', 5, 5, 'EVIL')",
    ],
    written: WRITTEN,
};
const ON_DUPLICATE_KEY_OF_A_QUERY: Case = Case {
    statement: "INSERT INTO shelf (id, name, note) SELECT id + 20, name, note FROM delivery ON DUPLICATE KEY UPDATE note = 'new'",
    ..ON_CONFLICT_OF_A_QUERY
};

fn cases(kind: &str) -> &'static [Case] {
    const SQLITE: &[Case] = &[
        THREE_KEYS,
        OR_REPLACE,
        OF_A_QUERY,
        TEXT_FOR_A_NUMBER,
        NOTHING_THERE,
        WITHOUT_A_PRIMARY_KEY,
        GREEDY,
        ON_CONFLICT,
        ON_CONFLICT_OF_A_QUERY,
        ON_CONFLICT_WITHOUT_A_PRIMARY_KEY,
        ON_CONFLICT_BESIDE_A_DEFAULT,
    ];
    const POSTGRES: &[Case] =
        &[ON_CONFLICT, ON_CONFLICT_OF_A_QUERY, ON_CONFLICT_WITHOUT_A_PRIMARY_KEY, ON_CONFLICT_BESIDE_A_DEFAULT];
    const MARIADB: &[Case] = &[
        THREE_KEYS,
        OF_A_QUERY,
        TEXT_FOR_A_NUMBER,
        NOTHING_THERE,
        WITHOUT_A_PRIMARY_KEY,
        ON_DUPLICATE_KEY,
        ON_DUPLICATE_KEY_OF_A_QUERY,
    ];
    match kind {
        "sqlite" => SQLITE,
        "postgres" => POSTGRES,
        _ => MARIADB,
    }
}

/// All rows, as one text.
fn rows(shop: &Shop) -> String {
    let notes = |note: &str| {
        ["shelf", "bare", "greedy", "timed"]
            .map(|table| shop.sql(&format!("SELECT count(*) FROM {table} WHERE note = '{note}'")))
            .concat()
    };
    ["old one", "old two", "old three", "old four", "EVIL", "new", "sent"].map(notes).join(" ")
}

#[test]
fn what_is_overwritten_or_removed_is_on_the_card_and_still_the_same_when_it_is_done() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        for Case { statement, replaced, rows: affected, meanwhile, written } in cases(shop.kind) {
            for meanwhile in std::iter::once(&"").chain(*meanwhile) {
                shop.sql(FRESH);
                let (id, card) = shop.shown(statement);
                let what = format!("{}: {statement}; {meanwhile}: {card}", shop.kind);
                let changed =
                    if *affected == 1 { "1 row changes".to_owned() } else { format!("{affected} rows change") };
                assert!(card.contains(&changed), "no `{changed}`: {what}");
                let count = match replaced.len() {
                    0 => None,
                    1 => Some("removes 1 row that is there now".to_owned()),
                    count => Some(format!("removes {count} rows that are there now")),
                };
                assert!(count.is_none_or(|count| card.contains(&count)), "not {}: {what}", replaced.len());
                for note in ["old one", "old two", "old three", "old four"] {
                    assert_eq!(card.contains(note), replaced.contains(&note), "{note}: {what}");
                }
                if !meanwhile.is_empty() {
                    shop.sql(meanwhile);
                }
                let before = rows(shop);
                shop.world.decide(&id, "approve", "shop_change");
                shop.world.run(&["wait", &id]);
                let result = shop.world.result_file(&id);
                if meanwhile.is_empty() {
                    assert_eq!(result["status"], "succeeded", "{what}: {result:#}");
                    assert_eq!(result["data"]["rows_affected"], json!(affected), "{what}: {result:#}");
                    assert_eq!(shop.sql(written), affected.to_string(), "{what}");
                } else {
                    assert_eq!(result["error"]["code"], "drifted", "{what}: {result:#}");
                    assert_eq!(rows(shop), before, "{what}");
                }
            }
        }
    });
}

#[test]
fn what_replaces_rows_that_cannot_be_found_is_not_put_to_a_human() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        let (made, statements): (&str, &[&str]) = match shop.kind {
            "sqlite" => (
                "CREATE TABLE lowered (id INTEGER PRIMARY KEY, name TEXT); CREATE UNIQUE INDEX by_lowered ON lowered (lower(name)); \
                 CREATE TABLE partial (id INTEGER PRIMARY KEY, name TEXT, live INTEGER); CREATE UNIQUE INDEX by_live ON partial (name) WHERE live; \
                 CREATE TABLE unnumbered (id TEXT PRIMARY KEY, name TEXT UNIQUE, note TEXT); INSERT INTO unnumbered VALUES (NULL, 'one', 'old');",
                &[
                    "REPLACE INTO lowered (id, name) VALUES (1, 'A')",
                    "INSERT OR REPLACE INTO partial (id, name, live) VALUES (1, 'a', 1)",
                    "INSERT INTO unnumbered VALUES ('x', 'one', 'new') ON CONFLICT (name) DO UPDATE SET note = 'new'",
                    "UPDATE greedy SET name = 'x' WHERE id = 1",
                    "INSERT INTO shelf (id, name) VALUES (1, 'one') ON CONFLICT (name) DO UPDATE SET id = 9, name = 'nine'",
                ],
            ),
            "postgres" => (
                "CREATE TABLE counted (id SERIAL PRIMARY KEY, name TEXT UNIQUE, note TEXT);",
                &[
                    "INSERT INTO shelf (id, name) VALUES (1, 'one') ON CONFLICT (name) DO UPDATE SET id = 9, name = 'nine'",
                    "INSERT INTO counted (name, note) VALUES ('one', 'new') ON CONFLICT (id) DO UPDATE SET note = excluded.note",
                    "INSERT INTO bare (name, note) VALUES ('one', 'new') ON CONFLICT (name) DO UPDATE SET name = 'other'",
                ],
            ),
            _ => (
                "CREATE TABLE cut (id INTEGER PRIMARY KEY, name VARCHAR(50), UNIQUE (name(3)));",
                &[
                    "REPLACE INTO cut (id, name) VALUES (1, 'abcdef')",
                    "INSERT INTO shelf (id, name) VALUES (1, 'one') ON DUPLICATE KEY UPDATE id = 99",
                ],
            ),
        };
        shop.sql(made);
        shop.sql(FRESH);
        for statement in statements {
            let id = shop.world.start("shop_change", &json!({"statement": statement, "dry_run": false}));
            let human = Human::of(&shop.world);
            until("it has ended or was tried", || {
                shop.world.result_file(&id)["success"] == false || human.card(&id).contains("It was tried")
            });
            let result = shop.world.result_file(&id);
            assert_eq!(result["status"], "failed", "{}: {statement}: {result:#}", shop.kind);
            let message = result["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("write an `UPDATE` of the rows that are there"), "{statement}: {message}");
        }
    });
}

#[test]
fn a_statement_of_a_definition_shows_what_it_overwrites_too() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        let statement = match shop.kind {
            "mariadb" => {
                "INSERT INTO shelf (id, name, note) VALUES (:id, 'x', 'new') ON DUPLICATE KEY UPDATE note = VALUES(note)"
            }
            _ => {
                "INSERT INTO shelf (id, name, note) VALUES (:id, 'x', 'new') ON CONFLICT (id) DO UPDATE SET note = excluded.note"
            }
        };
        let own = |statement: &str| {
            json!({
                "description": "Puts a note on the shelf.",
                "input": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": false},
                "run": {"sql": {"database": "shop", "statement": statement, "parameters": {"id": "{{ id }}"}}}
            })
        };
        // The time in it is not compared, and what it overwrites is.
        let timed = statement.replace("'new')", "substr(concat(CURRENT_TIMESTAMP, ''), 1, 0) || 'new')");
        let timed = match shop.kind {
            "mariadb" => statement.replace("'new')", "concat(left(NOW(6), 0), 'new'))"),
            "sqlite" => statement.replace("'new')", "substr(datetime('now'), 1, 0) || 'new')"),
            _ => timed.replace("concat(CURRENT_TIMESTAMP, '')", "CURRENT_TIMESTAMP::text"),
        };
        let unknown = statement.replace("'new')", "no_such_function('new'))");
        shop.world.define(
            "own.json",
            &json!({"put_note": own(statement), "put_time": own(&timed), "put_unknown": own(&unknown)}),
        );
        shop.sql(FRESH);
        let refused = shop.world.end_of(&shop.world.start("put_unknown", &json!({"id": 1})));
        assert_eq!(refused["error"]["code"], "bad-definition", "{}: {refused:#}", shop.kind);
        for subtool in ["put_note", "put_time"] {
            for (meanwhile, outcome) in [("", ""), ("UPDATE shelf SET note = 'EVIL' WHERE id = 1", "drifted")] {
                shop.sql(FRESH);
                let (id, card) = shop.shown_of(subtool, &json!({"id": 1}));
                assert!(card.contains("old one"), "{}: {subtool}: {card}", shop.kind);
                if !meanwhile.is_empty() {
                    shop.sql(meanwhile);
                }
                shop.world.decide(&id, "approve", subtool);
                shop.world.run(&["wait", &id]);
                let result = shop.world.result_file(&id);
                let code = result["error"]["code"].as_str().unwrap_or_default();
                assert_eq!(code, outcome, "{}: {subtool}: {result:#}", shop.kind);
            }
        }
    });
}
