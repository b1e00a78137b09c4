//! What a change does to other tables by foreign keys is shown with its rows, and compared before it is made.

use serde_json::{Value, json};

use super::{Shop, each};

/// Three levels, a tree, and a table that refers to nothing by its own key.
const TABLES: &str = "CREATE TABLE parents (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20)); \
    CREATE TABLE children (id INTEGER NOT NULL PRIMARY KEY, parent_id INTEGER, secret VARCHAR(20), \
        FOREIGN KEY (parent_id) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE); \
    CREATE TABLE toys (id INTEGER NOT NULL PRIMARY KEY, child_id INTEGER, \
        FOREIGN KEY (child_id) REFERENCES children (id) ON DELETE SET NULL); \
    CREATE TABLE private (id INTEGER NOT NULL PRIMARY KEY, parent_id INTEGER, \
        FOREIGN KEY (parent_id) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE); \
    CREATE TABLE links (parent_id INTEGER, other INTEGER, FOREIGN KEY (parent_id) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE); \
    CREATE TABLE tree (id INTEGER NOT NULL PRIMARY KEY, above INTEGER, FOREIGN KEY (above) REFERENCES tree (id) ON DELETE CASCADE);";

/// As it is before each case.
const FRESH: &str = "DELETE FROM toys; DELETE FROM children; DELETE FROM private; DELETE FROM links; DELETE FROM parents; DELETE FROM tree WHERE above IS NOT NULL; DELETE FROM tree; \
    INSERT INTO parents VALUES (1, 'one'), (2, 'two'), (3, 'three'); \
    INSERT INTO children VALUES (10, 1, 's10'), (11, 1, 's11'), (12, 2, 's12'), (13, NULL, 's13'); \
    INSERT INTO toys VALUES (100, 10), (101, 10), (102, 12), (103, NULL); \
    INSERT INTO private VALUES (50, 1), (51, 1); INSERT INTO links VALUES (1, 7), (1, 7), (2, 8); \
    INSERT INTO tree VALUES (1, NULL); INSERT INTO tree VALUES (2, 1); INSERT INTO tree VALUES (3, 2), (4, 2);";

const SETTINGS: &str = "writable = true\ndeny_tables = [\"private\"]\nhidden_columns = [\"*.secret\"]";

fn tried(shop: &Shop, statement: &str) -> Value {
    let result = shop.world.result_of("shop_change", &json!({"statement": statement, "dry_run": true}));
    assert_eq!(result["status"], "succeeded", "{}: {result:#}", shop.kind);
    result["data"].clone()
}

#[test]
fn a_try_shows_the_rows_that_foreign_keys_change_however_far() {
    each(SETTINGS, |shop| {
        shop.sql(TABLES);
        shop.sql(FRESH);
        let data = tried(shop, "DELETE FROM parents WHERE id = 1");
        let rows = |rows: &[(i64, Value)]| -> Vec<Value> {
            rows.iter().map(|(id, parent)| json!({"id": id, "parent_id": parent})).collect()
        };
        let link = json!({"parent_id": 1, "other": 7});
        let expected = json!([
            {"table": "children", "deleted": 2, "updated": 0, "before": rows(&[(10, json!(1)), (11, json!(1))]), "after": []},
            {"table": "links", "deleted": 2, "updated": 0, "before": [link, link], "after": []},
            {"table": "toys", "deleted": 0, "updated": 2,
                "before": [{"id": 100, "child_id": 10}, {"id": 101, "child_id": 10}],
                "after": [{"id": 100, "child_id": null}, {"id": 101, "child_id": null}]},
        ]);
        assert_eq!(data["cascades"], expected, "{}: {data:#}", shop.kind);
        assert!(!data["cascades"].to_string().contains("s10"), "{}", shop.kind);
        // Some are updated along with a key, whose rows are still the same ones.
        let data = tried(shop, "UPDATE parents SET id = 9 WHERE id = 1");
        let expected = json!([
            {"table": "children", "deleted": 0, "updated": 2, "before": rows(&[(10, json!(1)), (11, json!(1))]), "after": rows(&[(10, json!(9)), (11, json!(9))])},
            {"table": "links", "deleted": 0, "updated": 2, "before": [link, link], "after": []},
        ]);
        assert_eq!(data["cascades"], expected, "{}: {data:#}", shop.kind);
        // A tree, of which the statement itself deletes a part.
        let data = tried(shop, "DELETE FROM tree WHERE id IN (1, 3)");
        assert_eq!(data["cascades"][0]["deleted"], 2, "{}: {data:#}", shop.kind);
        assert_eq!(
            data["cascades"][0]["before"],
            json!([{"id": 2, "above": 1}, {"id": 4, "above": 2}]),
            "{}",
            shop.kind
        );
        // Nothing refers to it, or not to what changes.
        for statement in ["DELETE FROM parents WHERE id = 3", "UPDATE parents SET name = 'x' WHERE id = 1"] {
            assert_eq!(tried(shop, statement)["cascades"], Value::Null, "{}: {statement}", shop.kind);
        }
        assert_eq!(shop.sql("SELECT count(*) FROM children"), "4");
    });
}

#[test]
fn rows_that_change_meanwhile_are_seen_before_a_change_is_made() {
    each(SETTINGS, |shop| {
        shop.sql(TABLES);
        // What is not shown counts too.
        let meanwhile = [
            ("INSERT INTO children VALUES (14, 1, 'x')", true),
            ("UPDATE children SET secret = 'x' WHERE id = 10", true),
            ("DELETE FROM toys WHERE id = 101", true),
            ("INSERT INTO private VALUES (52, 1)", true),
            ("DELETE FROM links WHERE parent_id = 1", true),
            ("UPDATE children SET secret = 'x' WHERE id = 12", false),
            ("INSERT INTO toys VALUES (104, 12)", false),
        ];
        for (change, is_seen) in meanwhile {
            shop.sql(FRESH);
            let (id, card) = shop.shown("DELETE FROM parents WHERE id = 1");
            for words in ["By foreign keys, in", "2 rows are deleted", "2 rows are changed"] {
                assert!(card.contains(words), "{}: {words}: {card}", shop.kind);
            }
            assert!(!card.contains("s10"), "{}: {card}", shop.kind);
            shop.sql(change);
            shop.world.decide(&id, "approve", "shop_change");
            let result = shop.world.end_of(&id);
            let code = result["error"]["code"].as_str().unwrap_or_default();
            assert_eq!(code, if is_seen { "drifted" } else { "" }, "{}: {change}: {result:#}", shop.kind);
            let left = shop.sql("SELECT count(*) FROM parents");
            assert_eq!(left, if is_seen { "3" } else { "2" }, "{}: {change}", shop.kind);
        }
    });
}

#[test]
fn a_rule_about_reading_a_table_hides_its_rows_there_too() {
    each(SETTINGS, |shop| {
        shop.sql(TABLES);
        shop.sql(FRESH);
        let config = shop.configured();
        shop.world
            .configure(&format!("{config}\n[[confirm.rules]]\ngates = [\"db.shop.toys.read\"]\nthen = \"ask\"\n"));
        let data = tried(shop, "DELETE FROM parents WHERE id = 1");
        let tables: Vec<_> =
            data["cascades"].as_array().expect("cascades").iter().map(|it| it["table"].clone()).collect();
        assert_eq!(tables, ["children", "links"], "{}: {data:#}", shop.kind);
    });
}

#[test]
fn many_rows_are_counted_and_only_the_first_are_shown() {
    each(SETTINGS, |shop| {
        shop.sql(TABLES);
        shop.sql(FRESH);
        shop.sql("INSERT INTO children SELECT entity_id + 1000, 3, 'x' FROM sales_order WHERE entity_id <= 900");
        let data = tried(shop, "DELETE FROM parents WHERE id = 3");
        let cascade = &data["cascades"][0];
        assert_eq!(cascade["deleted"], 900, "{}: {data:#}", shop.kind);
        assert_eq!(cascade["before"].as_array().map(Vec::len), Some(5), "{}", shop.kind);
        assert_eq!(cascade["before"][0], json!({"id": 1001, "parent_id": 3}), "{}", shop.kind);
    });
}

#[test]
fn a_dry_run_of_a_change_counts_before_it_is_made() {
    each("writable = true", |shop| {
        shop.sql(TABLES);
        shop.sql(FRESH);
        let config = shop.configured();
        let allow = "[[confirm.rules]]\ngates = [\"db.*\"]\nthen = \"allow\"\n";
        shop.world.configure(&format!("{config}\n[confirm]\ndry_run_first = true\n{allow}"));
        let change = |statement: &str, dry_run: bool| {
            let input = json!({"statement": statement, "dry_run": dry_run}).to_string();
            shop.world.run(&["run", "shop_change", "--wait", "--input", &input])
        };
        let delete = "DELETE FROM parents WHERE id = 1";
        let refused = change(delete, false);
        assert_eq!(refused.error()["code"], "dry-run-first", "{refused}");
        assert!(refused.stderr.contains(r#"\"dry_run\":true"#) && refused.stderr.contains("--wait"), "{refused}");
        assert_eq!(change(delete, true).exit, 0);
        assert_eq!(change(delete, false).json()["status"], "succeeded", "{}", shop.kind);
        // With --dry-run it is tried as well.
        let delete = "DELETE FROM parents WHERE id = 2";
        let input = json!({"statement": delete, "dry_run": false}).to_string();
        let plan = shop.world.run(&["run", "shop_change", "--dry-run", "--input", &input]).json();
        assert_eq!(plan["would_change"]["cascades"][0]["table"], "children", "{}: {plan:#}", shop.kind);
        assert_eq!(shop.sql("SELECT count(*) FROM parents"), "2");
        assert_eq!(change(delete, false).json()["status"], "succeeded", "{}", shop.kind);
        assert_eq!(shop.sql("SELECT count(*) FROM parents"), "1");
    });
}
