//! `inspect`: from the same catalog that `run` uses.

use std::collections::BTreeSet;

use serde_json::json;

use crate::world::World;

#[test]
fn one_subtool_is_shown_whole_with_secrets_by_name() {
    let world = World::new();
    let shown = world.run(&["inspect", "gmail_search_messages"]).json();
    assert_eq!(
        (shown["origin"].as_str(), shown["effect"].as_str()),
        (Some("built-in pack gmail"), Some("read")),
        "{shown}"
    );
    assert!(shown["definition"]["run"]["http"]["auth"].to_string().contains("secret:google"), "{shown}");
}

#[test]
fn the_overview_has_every_subtool_with_what_it_depends_on_and_requires() {
    let world = World::new();
    world.define("own.json", &json!({"own": {"description": "Needs another one and a privilege.", "input": {}, "depends_on": ["git_log"], "requires": ["mail:send"],
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}}}));
    let overview = world.run(&["inspect"]).json();
    let lines = overview.as_array().expect("a list");
    let own = lines.iter().find(|line| line["name"] == "own").expect("it is there");
    assert_eq!(
        (&own["depends_on"], &own["requires"], &own["runner"]),
        (&json!(["git_log"]), &json!(["mail:send"]), &json!("process"))
    );
    let inspected: BTreeSet<_> = lines.iter().map(|line| line["name"].as_str().expect("a name").to_owned()).collect();
    let listed = world.run(&["list", "--limit=1000", "--format=names"]).json();
    let listed: BTreeSet<_> =
        listed.as_array().expect("names").iter().map(|name| name.as_str().expect("a name").to_owned()).collect();
    assert_eq!(inspected, listed);
}

#[test]
fn a_subtool_that_was_left_out_says_why() {
    let world = World::new();
    world.define("own.json", &json!({"own": {"description": "Has a slip.", "input": {}, "timeout": "soon", "run": {"process": {"argv": ["true"]}}}}));
    let ran = world.run(&["inspect", "own"]);
    assert_eq!(ran.exit, 3, "{ran}");
    let left_out = ran.error()["details"]["left_out"].to_string();
    assert!(left_out.contains("own.json") && left_out.contains("timeout"), "{left_out}");
}
