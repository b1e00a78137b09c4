//! What a change sets off in other tables needs their gates: foreign keys, and triggers as far as their text tells.

use serde_json::json;

use super::{Shop, each};

/// Rows that refer to each other in a chain, and tables whose changes are noted in another one, or not.
fn tables(kind: &str) -> String {
    let chain = "CREATE TABLE parents (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20)); \
        CREATE TABLE children (id INTEGER NOT NULL PRIMARY KEY, parent_id INTEGER, \
            FOREIGN KEY (parent_id) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE); \
        CREATE TABLE toys (id INTEGER NOT NULL PRIMARY KEY, child_id INTEGER, \
            FOREIGN KEY (child_id) REFERENCES children (id) ON DELETE SET NULL); \
        CREATE TABLE watched (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20)); \
        CREATE TABLE quiet (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20), changed TIMESTAMP NULL); \
        CREATE TABLE wild (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20)); \
        CREATE TABLE audit (note VARCHAR(20)); CREATE TABLE counts (n INTEGER);";
    let triggers = match kind {
        "sqlite" => {
            "CREATE TRIGGER watched_insert AFTER INSERT ON watched BEGIN INSERT INTO audit VALUES (new.name); END; \
             CREATE TRIGGER watched_update AFTER UPDATE OF name ON watched BEGIN INSERT INTO audit VALUES (new.name); END; \
             CREATE TRIGGER audit_insert AFTER INSERT ON audit BEGIN UPDATE counts SET n = n + 1; END;"
        }
        "postgres" => {
            "CREATE FUNCTION note_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO audit (note) VALUES (NEW.name); RETURN NEW; END$$; \
             CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF TG_OP = 'INSERT' THEN UPDATE counts SET n = n + 1; END IF; RETURN NULL; END$$; \
             CREATE FUNCTION time_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.changed := now(); RETURN NEW; END$$; \
             CREATE FUNCTION do_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE 'UPDATE counts SET n = n + 1'; RETURN NEW; END$$; \
             CREATE TRIGGER watched_change AFTER INSERT OR UPDATE OF name ON watched FOR EACH ROW EXECUTE FUNCTION note_it(); \
             CREATE TRIGGER audit_insert AFTER INSERT ON audit FOR EACH STATEMENT EXECUTE FUNCTION count_it(); \
             CREATE TRIGGER quiet_change BEFORE UPDATE ON quiet FOR EACH ROW EXECUTE FUNCTION time_it(); \
             CREATE TRIGGER wild_change BEFORE UPDATE ON wild FOR EACH ROW EXECUTE FUNCTION do_it();"
        }
        _ => {
            "CREATE PROCEDURE do_it() UPDATE counts SET n = n + 1; \
             CREATE TRIGGER watched_insert AFTER INSERT ON watched FOR EACH ROW INSERT INTO audit (note) VALUES (NEW.name); \
             CREATE TRIGGER watched_update AFTER UPDATE ON watched FOR EACH ROW INSERT INTO audit (note) VALUES (NEW.name); \
             CREATE TRIGGER audit_insert AFTER INSERT ON audit FOR EACH ROW UPDATE counts SET n = n + 1; \
             CREATE TRIGGER quiet_change BEFORE UPDATE ON quiet FOR EACH ROW SET NEW.changed = NOW(); \
             CREATE TRIGGER wild_change BEFORE UPDATE ON wild FOR EACH ROW CALL do_it();"
        }
    };
    format!("{chain} {triggers}")
}

/// As it is before each case.
const FRESH: &str = "DELETE FROM toys; DELETE FROM children; DELETE FROM parents; DELETE FROM watched; DELETE FROM quiet; DELETE FROM wild; \
    INSERT INTO parents VALUES (1, 'one'); INSERT INTO children VALUES (1, 1); INSERT INTO toys VALUES (1, 1); \
    INSERT INTO watched VALUES (1, 'one'); INSERT INTO quiet VALUES (1, 'one', NULL); INSERT INTO wild VALUES (1, 'one');";

/// A change, the gates that it has besides its own, and those that it has not.
type Case = (&'static str, &'static [&'static str], &'static [&'static str]);

const EVERYWHERE: &[Case] = &[
    (
        "DELETE FROM parents WHERE id = 1",
        &["children.delete", "children.write", "toys.update"],
        &["toys.delete", "children.insert", "audit.write"],
    ),
    ("DELETE FROM children WHERE id = 1", &["toys.update"], &["parents.write"]),
    ("UPDATE parents SET id = 2 WHERE id = 1", &["children.update"], &["toys.write", "children.delete"]),
    ("UPDATE parents SET name = 'two' WHERE id = 1", &[], &["children.write"]),
    ("INSERT INTO watched (id, name) VALUES (2, 'two')", &["audit.insert", "counts.update"], &["counts.delete"]),
    ("UPDATE watched SET name = 'two' WHERE id = 1", &["audit.insert", "counts.write"], &["quiet.write"]),
    ("DELETE FROM watched WHERE id = 1", &[], &["audit.write", "counts.write"]),
    ("UPDATE quiet SET name = 'two' WHERE id = 1", &[], &["audit.write", "counts.write"]),
];
const REPLACING: &[Case] =
    &[("REPLACE INTO parents (id, name) VALUES (1, 'two')", &["children.delete", "toys.update"], &["audit.write"])];
const UPSERTS: &[Case] = &[(
    "INSERT INTO parents (id, name) VALUES (1, 'two') ON CONFLICT (id) DO UPDATE SET name = 'two'",
    &[],
    &["children.write"],
)];
/// A trigger runs what is not in its text.
const UNREADABLE: &[Case] = &[(
    "UPDATE wild SET name = 'two' WHERE id = 1",
    &["counts.update", "parents.delete", "quiet.write"],
    &["quiet.read"],
)];

fn cases(kind: &str) -> Vec<Case> {
    let others: &[&[Case]] = match kind {
        "sqlite" => &[REPLACING, UPSERTS],
        "postgres" => &[UPSERTS, UNREADABLE],
        _ => &[REPLACING, UNREADABLE],
    };
    [EVERYWHERE].iter().chain(others).flat_map(|cases| cases.iter().copied()).collect()
}

#[test]
fn what_a_change_sets_off_needs_the_gates_of_its_tables() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        let config = shop.configured();
        for (statement, reached, others) in cases(shop.kind) {
            let gates = reached.iter().map(|gate| (gate, true)).chain(others.iter().map(|gate| (gate, false)));
            for (gate, is_reached) in gates {
                // Everything else runs unasked, so only the rule stops it.
                shop.world.configure(&format!(
                    "{config}\n[[confirm.rules]]\ngates = [\"db.*\"]\nthen = \"allow\"\n[[confirm.rules]]\ngates = [\"db.shop.{gate}\"]\nthen = \"refuse\"\n"
                ));
                shop.sql(FRESH);
                let before = content(shop);
                let code = shop.code_of("shop_change", &json!({"statement": statement, "dry_run": false}));
                let expected = if is_reached { "refused-by-policy" } else { "none" };
                assert_eq!(code, expected, "{}: {statement}: {gate}", shop.kind);
                assert_eq!(content(shop) == before, is_reached, "{}: {statement}: {gate}", shop.kind);
            }
        }
    });
}

/// A sum over what the changes change.
fn content(shop: &Shop) -> String {
    let count = |what: &str| shop.sql(&format!("SELECT {what}"));
    [
        "sum(id) + count(CASE WHEN name = 'one' THEN 1 END) FROM parents",
        "count(*) FROM children",
        "count(child_id) FROM toys",
        "10 * count(*) + count(CASE WHEN name = 'one' THEN 1 END) FROM watched",
        "sum(id) + count(CASE WHEN name = 'one' THEN 1 END) FROM quiet",
        "count(CASE WHEN name = 'one' THEN 1 END) FROM wild",
    ]
    .map(|what| count(&what.replace("sum(id)", "coalesce(sum(id), 0)")))
    .join(" ")
}

#[test]
fn a_rule_that_allows_must_have_what_a_change_sets_off() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        shop.sql(FRESH);
        let config = shop.configured();
        let allow = |gates: &str| {
            shop.world.configure(&format!(
                "{config}\n[[confirm.rules]]\ngates = [{gates}, \"db.*.read\"]\nthen = \"allow\"\n"
            ));
        };
        let code = |statement: &str| shop.code_of("shop_change", &json!({"statement": statement, "dry_run": false}));
        let delete = "DELETE FROM parents WHERE id = 1";
        // Nothing is known of the database yet: that is seen where it is run.
        shop.world.run(&["executor", "stop"]);
        allow("\"db.shop.parents.*\"");
        assert_eq!(code(delete), "refused-by-policy", "{}", shop.kind);
        assert_eq!(code(delete), "no-approver", "{}", shop.kind);
        allow("\"db.shop.parents.*\", \"db.shop.children.*\"");
        assert_eq!(code(delete), "no-approver", "{}", shop.kind);
        assert_eq!(shop.sql("SELECT count(*) FROM children"), "1");
        allow("\"db.shop.parents.*\", \"db.shop.children.delete\", \"db.shop.toys.update\"");
        assert_eq!(code(delete), "none", "{}", shop.kind);
        if shop.kind != "sqlite" {
            let update = "UPDATE wild SET name = 'two' WHERE id = 1";
            allow("\"db.shop.wild.*\", \"db.shop.counts.*\"");
            assert_eq!(code(update), "no-approver", "{}", shop.kind);
            allow("\"db.shop.*\"");
            assert_eq!(code(update), "none", "{}", shop.kind);
        }
    });
}

/// The tables, keys and triggers that were read before lack what was made since.
#[test]
fn what_is_made_meanwhile_is_seen_before_a_change_is_made() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        let trigger = match shop.kind {
            "sqlite" => "CREATE TRIGGER late AFTER DELETE ON quiet BEGIN INSERT INTO audit VALUES ('gone'); END;",
            "postgres" => {
                "CREATE OR REPLACE FUNCTION gone_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO audit (note) VALUES ('gone'); RETURN OLD; END$$; \
                 CREATE TRIGGER late AFTER DELETE ON quiet FOR EACH ROW EXECUTE FUNCTION gone_it();"
            }
            _ => "CREATE TRIGGER late AFTER DELETE ON quiet FOR EACH ROW INSERT INTO audit (note) VALUES ('gone');",
        };
        let no_trigger = if shop.kind == "postgres" { "DROP TRIGGER late ON quiet;" } else { "DROP TRIGGER late;" };
        let no_index = if shop.kind == "mariadb" { "DROP INDEX late_key ON quiet;" } else { "DROP INDEX late_key;" };
        let index = "CREATE UNIQUE INDEX late_key ON quiet (name);";
        let delete = "DELETE FROM quiet WHERE id = 1";
        let replace = "REPLACE INTO quiet (id, name) VALUES (7, 'one')";
        let mut cases = vec![(delete, trigger, no_trigger, "audit (insert)")];
        if shop.kind != "postgres" {
            cases.push((replace, index, no_index, "It overwrites or removes 1 row"));
        }
        for (statement, make, unmake, shown) in cases {
            for made_after_card in [false, true] {
                shop.sql(FRESH);
                // The tables are read.
                let try_it = json!({"statement": "DELETE FROM quiet WHERE id = 9", "dry_run": true});
                assert_eq!(shop.code_of("shop_change", &try_it), "none", "{}", shop.kind);
                if !made_after_card {
                    shop.sql(make);
                }
                let (id, card) = shop.shown(statement);
                assert_eq!(card.contains(shown), !made_after_card, "{}: {statement}: {card}", shop.kind);
                if made_after_card {
                    shop.sql(make);
                }
                let before = content(shop);
                shop.world.decide(&id, "approve", "shop_change");
                let result = shop.world.end_of(&id);
                let code = result["error"]["code"].as_str().unwrap_or_default();
                assert_eq!(code, if made_after_card { "drifted" } else { "" }, "{}: {result:#}", shop.kind);
                assert_eq!(content(shop) == before, made_after_card, "{}: {statement}", shop.kind);
                if !made_after_card && statement == delete {
                    assert_eq!(
                        result["data"]["also_changes"],
                        json!(["audit (insert)", "counts (update)"]),
                        "{}",
                        shop.kind
                    );
                }
                shop.sql(unmake);
            }
        }
    });
}

/// It writes the same table as before, and something else.
#[test]
fn a_trigger_or_a_key_that_does_something_else_is_seen_before_a_change_is_made() {
    each("writable = true", |shop| {
        shop.sql(&tables(shop.kind));
        let trigger = match shop.kind {
            "sqlite" => {
                "DROP TRIGGER watched_insert; \
                 CREATE TRIGGER watched_insert AFTER INSERT ON watched BEGIN INSERT INTO audit VALUES ('EVIL'); END;"
            }
            "postgres" => {
                "CREATE OR REPLACE FUNCTION note_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO audit (note) VALUES ('EVIL'); RETURN NEW; END$$;"
            }
            _ => {
                "DROP TRIGGER watched_insert; \
                 CREATE TRIGGER watched_insert AFTER INSERT ON watched FOR EACH ROW INSERT INTO audit (note) VALUES ('EVIL');"
            }
        };
        // What a trigger sets off counts too.
        let further = match shop.kind {
            "sqlite" => {
                "DROP TRIGGER audit_insert; \
                 CREATE TRIGGER audit_insert AFTER INSERT ON audit BEGIN UPDATE counts SET n = n + 9; END;"
            }
            "postgres" => {
                "CREATE OR REPLACE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF TG_OP = 'INSERT' THEN UPDATE counts SET n = n + 9; END IF; RETURN NULL; END$$;"
            }
            _ => {
                "DROP TRIGGER audit_insert; \
                 CREATE TRIGGER audit_insert AFTER INSERT ON audit FOR EACH ROW UPDATE counts SET n = n + 9;"
            }
        };
        let insert = "INSERT INTO watched (id, name) VALUES (2, 'two')";
        let mut cases = vec![(insert, trigger), (insert, further)];
        if shop.kind == "postgres" {
            let key = "ALTER TABLE toys DROP CONSTRAINT toys_child_id_fkey, \
                ADD FOREIGN KEY (child_id) REFERENCES children (id) ON DELETE SET DEFAULT;";
            cases.push(("DELETE FROM children WHERE id = 1", key));
        }
        for (statement, meanwhile) in cases {
            shop.sql(FRESH);
            let (id, _) = shop.shown(statement);
            shop.sql(meanwhile);
            let before = content(shop);
            shop.world.decide(&id, "approve", "shop_change");
            let result = shop.world.end_of(&id);
            assert_eq!(result["error"]["code"], "drifted", "{}: {statement}; {meanwhile}: {result:#}", shop.kind);
            assert_eq!(content(shop), before, "{}: {statement}; {meanwhile}", shop.kind);
        }
        // As it is now, it is made.
        shop.sql(FRESH);
        let (id, _) = shop.shown(insert);
        shop.world.decide(&id, "approve", "shop_change");
        let result = shop.world.end_of(&id);
        assert_eq!(result["status"], "succeeded", "{}: {result:#}", shop.kind);
    });
}

/// A card does not look whole because the database's user may not see what else happens.
#[test]
fn triggers_that_the_user_may_not_see_are_said_to_be_possible() {
    const WORDS: &str = "lacks the right TRIGGER";
    let Some(shop) = Shop::new("mariadb", "writable = true") else { return };
    shop.sql(&tables(shop.kind));
    let insert = "INSERT INTO watched (id, name) VALUES (2, 'two')";
    shop.sql(FRESH);
    let (_, card) = shop.shown(insert);
    assert!(!card.contains(WORDS), "{card}");
    let server = shop.server.as_ref().expect("a server");
    let password = server.text("password");
    let hosts = ["'%'", "localhost"];
    for host in hosts {
        shop.administer(&format!(
            "CREATE USER low@{host} IDENTIFIED BY '{password}'; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO low@{host};"
        ));
    }
    let url = server.text("url").replace("shop@", "low@");
    shop.world
        .configure(&format!("[databases.shop]\nurl = \"{url}\"\npassword = \"secret:shop-db\"\nwritable = true\n"));
    for (right, is_seen) in [(None, false), (Some("GRANT TRIGGER ON shop.* TO low"), true)] {
        for host in right.iter().flat_map(|_| hosts) {
            shop.administer(&format!("{}@{host};", right.unwrap_or_default()));
        }
        shop.sql(FRESH);
        let (id, card) = shop.shown(insert);
        assert_eq!(card.contains(WORDS), !is_seen, "{right:?}: {card}");
        shop.world.decide(&id, "approve", "shop_change");
        let result = shop.world.end_of(&id);
        assert_eq!(result["status"], "succeeded", "{right:?}: {result:#}");
        assert_eq!(result["data"].to_string().contains(WORDS), !is_seen, "{right:?}: {result:#}");
    }
}
