//! A GraphQL server is asked for its schema, and what is imported is run against it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{quiet_world, written};
use crate::skip::skip;
use crate::world::World;

/// The folder `node_modules` with npm's `graphql` and `graphql-http`.
const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_GRAPHQL";

struct Shop {
    url: String,
    process: Child,
}

impl Shop {
    /// Starts the server; reports that a test is skipped if it is not installed.
    fn open() -> Option<Self> {
        let Some(packages) = std::env::var_os(PACKAGES) else {
            skip(&format!("{PACKAGES} does not name npm's graphql and graphql-http"));
            return None;
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cli/import/graphql.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(packages).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("node starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut url).expect("its address");
        Some(Self { url: url.trim().to_owned(), process })
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A world in which the shop was imported.
fn imported(shop: &Shop) -> World {
    let world = quiet_world();
    let imported = world.run(&["import", "graphql", &shop.url, "--name", "shop"]);
    assert_eq!(imported.exit, 0, "{imported}");
    let report = imported.json();
    assert_eq!(
        (&report["found"], &report["imported"], &report["left_out"]),
        (&json!(5), &json!(5), &json!({})),
        "{report}"
    );
    let lint = world.run(&["lint"]);
    assert_eq!(lint.exit, 0, "{lint}");
    world
}

fn ran(world: &World, name: &str, input: &Value) -> Value {
    let ran = world.run(&["run", name, &format!("--input={input}"), "--wait"]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

#[test]
fn a_query_returns_data_and_an_error_of_the_answer_fails_the_run() {
    let Some(shop) = Shop::open() else { return };
    let world = imported(&shop);
    let order = ran(&world, "shop_get_order", &json!({"number": 1}));
    assert_eq!(
        order["data"],
        json!({"number": 1, "status": "PAID", "note": "first", "lines": [{"sku": "A", "count": 2}]}),
        "{order}"
    );
    assert_eq!(ran(&world, "shop_get_order", &json!({"number": 2}))["data"], Value::Null);
    let page = ran(&world, "shop_list_orders", &json!({"status": "PAID"}));
    assert_eq!(page["data"]["pageInfo"], json!({"hasNextPage": false, "endCursor": null}), "{page}");
    let found = ran(&world, "shop_search", &json!({"text": "\") { order(number: 13) { number } } #"}));
    // What two kinds of thing have under one name but of different types is asked of the first alone.
    assert_eq!(found["data"][1], json!({"__typename": "Person", "name": "Ann"}), "{found}");
    let failed = ran(&world, "shop_get_order", &json!({"number": 13}));
    assert_eq!(failed["status"], "failed", "{failed}");
    assert_eq!(failed["error"]["code"], "select-failed");
    let message = failed["error"]["message"].as_str().expect("a message");
    assert!(message.contains("no luck with this number"), "{message}");
    let refused = world.run(&["run", "shop_get_order", "number:=\"one\""]);
    assert_eq!(refused.exit, 2, "{refused}");
}

#[test]
fn a_mutation_asks_first_and_its_values_stay_values() {
    let Some(shop) = Shop::open() else { return };
    let world = imported(&shop);
    let note = "a \"note\" } mutation { deleteOrder(number: 1) }";
    let id = world.start("shop_create_order", &json!({"lines": [{"sku": "B"}], "note": note}));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    world.decide(&id, "approve", "");
    let made = world.end_of(&id);
    let expected = json!({"order": {"number": 2, "status": "OPEN", "note": note}});
    assert_eq!(made["data"], expected, "{made}");
    let id = world.start("shop_create_order", &json!({"lines": [], "note": "refuse"}));
    world.decide(&id, "approve", "");
    let failed = world.end_of(&id);
    assert_ne!(failed["status"], "succeeded", "{failed}");
    assert!(failed["error"]["message"].as_str().is_some_and(|it| it.contains("the shop is closed")), "{failed}");
    let file = written(&world, "shop.json");
    assert_eq!(file["shop_delete_order"]["annotations"], json!({"destructiveHint": true}));
}

#[test]
fn a_schema_in_a_file_needs_a_server_and_a_refresh_asks_again() {
    let Some(shop) = Shop::open() else { return };
    let world = imported(&shop);
    let refreshed = world.run(&["import", "--refresh"]);
    assert_eq!(refreshed.json()["packs"][0]["source_changed"], false, "{refreshed}");
    let path = world.folder().join("schema.graphql");
    fs::write(&path, "type Query { hours: String }").expect("written");
    let path = path.display().to_string();
    let nowhere = world.run(&["import", &path]);
    assert_eq!(nowhere.exit, 2, "{nowhere}");
    assert_eq!(nowhere.error()["hint"], "name it with --server URL");
    let imported =
        world.run(&["import", &path, "--server", "https://api.hours.example/graphql", "--answer-depth", "3"]);
    assert_eq!(imported.json()["kind"], "graphql", "{imported}");
    assert_eq!(written(&world, "hours.json")["$source"]["options"][0], "--answer-depth=3");
}
