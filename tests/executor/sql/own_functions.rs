//! A function in a statement of a definition that may read or do anything: no rule about a table is evaded with it, and no
//! pack sees with it what is hidden.

use std::fs;

use serde_json::{Value, json};

use super::each;

/// A statement that reads a table by a text or a function, and one that only computes.
fn statements(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "sqlite" => ("SELECT load_extension('people') AS found", "SELECT lower('A') AS found"),
        "postgres" => (
            "SELECT query_to_xml('SELECT * FROM customer_entity', true, false, '') AS found",
            "SELECT lower('A') AS found",
        ),
        _ => ("SELECT load_file('/etc/hostname') AS found", "SELECT lower('A') AS found"),
    }
}

fn definition(statement: &str, more: &Value) -> Value {
    let mut sql = json!({"database": "shop", "statement": statement});
    sql.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    json!({"description": "Looks for something.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
        "run": {"sql": sql}})
}

#[test]
fn a_rule_about_a_table_is_not_evaded_by_a_function_that_may_read_any() {
    each("", |shop| {
        let (reaching, plain) = statements(shop.kind);
        shop.world.define(
            "own.json",
            &json!({"own_reach": definition(reaching, &json!({})), "own_plain": definition(plain, &json!({}))}),
        );
        let config = shop.configured();
        let gate = "[[confirm.rules]]\ngates = [\"db.shop.customer_entity.read\"]\nthen = \"refuse\"\n";
        shop.world.configure(&format!("{config}\n{gate}"));
        assert_eq!(shop.code_of("own_reach", &json!({})), "refused-by-policy", "{}", shop.kind);
        assert_eq!(shop.code_of("own_plain", &json!({})), "none", "{}", shop.kind);
    });
}

#[test]
fn a_pack_sees_what_is_hidden_only_if_it_declares_that() {
    each("hidden_columns = [\"*.email\"]", |shop| {
        let (reaching, plain) = statements(shop.kind);
        // The parser of a guard that stops at the first mistake must not be the end of the matter.
        let hidden = format!("{}, email AS e FROM customer_entity LIMIT 1", reaching.replace(" AS found", ""));
        let open = json!({"sees_hidden": true});
        let definitions = json!({
            "zoo_plain": definition(plain, &json!({})),
            "zoo_reach": definition(reaching, &json!({})),
            "zoo_hidden": definition("SELECT email FROM customer_entity LIMIT 1", &json!({})),
            "zoo_both": definition(&hidden, &json!({})),
            "zoo_all": definition("SELECT * FROM customer_entity ORDER BY entity_id LIMIT 1", &json!({})),
            "zoo_paged": definition(
                "SELECT * FROM customer_entity WHERE entity_id > :least ORDER BY entity_id",
                &json!({"parameters": {"least": 10}, "page": 2, "limit": 3, "count": "exact"}),
            ),
            "zoo_open": definition("SELECT email FROM customer_entity LIMIT 1", &open),
        });
        let folder = shop.world.config_folder().join("packs/zoo");
        let enable = |more: &str| {
            fs::create_dir_all(&folder).expect("made");
            let manifest = format!(
                "name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n\
                 needs.databases.shop = {{ description = \"the shop\" }}\n{more}"
            );
            fs::write(folder.join("pack.toml"), manifest).expect("written");
            fs::write(folder.join("zoo.json"), definitions.to_string()).expect("written");
            assert_eq!(shop.world.run(&["pack", "enable", "zoo"]).exit, 0);
        };
        enable("");
        for (subtool, code) in [
            ("zoo_plain", "none"),
            ("zoo_reach", "bad-definition"),
            ("zoo_hidden", "bad-definition"),
            ("zoo_both", "bad-definition"),
            ("zoo_open", "bad-definition"),
        ] {
            assert_eq!(shop.code_of(subtool, &json!({})), code, "{}: {subtool}", shop.kind);
        }
        let all = shop.world.result_of("zoo_all", &json!({}));
        assert!(all.to_string().contains("group_id") && !all.to_string().contains("user1"), "{}: {all:#}", shop.kind);
        let paged = shop.world.result_of("zoo_paged", &json!({}));
        let rows = paged["data"]["data"].as_array().unwrap_or_else(|| panic!("{}: {paged:#}", shop.kind));
        let ids: Vec<_> = rows.iter().map(|row| row["entity_id"].as_u64().unwrap_or_default()).collect();
        assert_eq!((ids, &paged["_meta"]["total"]), (vec![14, 15, 16], &json!(99_990)), "{}: {paged:#}", shop.kind);
        assert!(!paged.to_string().contains("user1"), "{}: {paged:#}", shop.kind);
        enable("needs.hidden = \"to write to them\"\n");
        let info = shop.world.run(&["pack", "info", "zoo"]).stdout;
        assert!(info.contains("to write to them"), "{info}");
        assert_eq!(shop.code_of("zoo_open", &json!({})), "none", "{}", shop.kind);
        assert_eq!(shop.code_of("zoo_hidden", &json!({})), "bad-definition", "{}", shop.kind);
    });
}
