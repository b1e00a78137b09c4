//! The page under a configuration that changes while a human looks at it.

use serde_json::json;

use super::human::Human;
use crate::world::{World, until};

fn world() -> World {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.",
            "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
    world
}

#[test]
fn a_card_that_the_rules_refuse_by_now_cannot_be_approved() {
    let world = world();
    let human = Human::of(&world);
    for config in
        ["[access]\ndeny = [\"mark\"]\n", "[[confirm.rules]]\nthen = \"refuse\"\n", "[confirm]\nwrites = \"refuse\"\n"]
    {
        // An empty file would leave the rules before it in force.
        world.configure("[confirm]\nrules = []\n");
        let id = world.start("mark", &json!({"name": "x"}));
        let decision = human.decision(&id, "approve");
        world.configure(config);
        let answer = human.post("/decide", &decision);
        assert_eq!(answer.status, 409, "{config}: {}", answer.body);
        let ended = world.end_of(&id);
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("denied"), &json!("refused-by-policy")));
        assert!(!human.get(&format!("/card/{id}")).body.contains("data-digest"), "the card is gone");
    }
    assert!(!world.folder().join("marks").exists());
}

#[test]
fn an_edit_that_the_rules_refuse_is_not_accepted() {
    let world = world();
    world.configure("[[confirm.rules]]\nwhen = \"input.name == 'eve'\"\nthen = \"refuse\"\nbecause = \"never eve\"\n");
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "bob"}));
    let mut edit = human.pending_task(&id);
    edit["input"] = json!({"name": "eve"});
    let shown = human.post("/edit", &edit);
    let body: serde_json::Value = serde_json::from_str(shown.body.trim()).expect("JSON");
    edit["edited_digest"] = body["digest"].clone();
    let answer = human.post("/decide-edit", &edit);
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.contains("never eve") && answer.body.contains("refused-by-policy"), "{}", answer.body);
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
}

#[test]
fn every_view_says_that_the_file_is_broken_until_it_is_not() {
    let world = world();
    let human = Human::of(&world);
    let shows = |path: &str| human.get(path).body.contains("config-problem");
    assert!(!shows("/"));
    world.configure("[page]\nenabeld = true\n");
    until("the page shows the problem", || shows("/"));
    let body = human.get("/history").body;
    assert!(body.contains("config.toml:2:1") && body.contains("enabeld"), "{body}");
    world.configure("");
    until("the page shows no problem", || !shows("/") && !shows("/grants"));
}
