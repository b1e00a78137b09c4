//! What a remembered approval lets through, and what it does not: nothing after its end, nothing above its limit, and
//! nothing about which a rule asks that came after it.

use protocol::error::ErrorBody;
use serde_json::{Value, json};

use super::human::Human;
use crate::world::{World, until};

/// A subtool that needs an approval, and one that occupies the only slot until `go` exists.
fn world() -> World {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    let input = json!({"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]});
    world.define(
        "own.json",
        &json!({
            "pay": {"description": "Pays.", "input": input, "run": {"process": {"argv": ["echo", "{{ amount }}"]}}},
            "occupy": {"description": "Waits.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}}
        }),
    );
    world
}

/// Approves a call and remembers it for amounts up to `most`, for eight hours.
fn remember(world: &World, human: &Human, amount: u32, most: &Value) {
    let id = world.start("pay", &json!({"amount": amount}));
    let mut grant = human.pending_task(&id);
    grant["fields"] = json!([{"pointer": "/amount", "how": "at_most", "value": most}]);
    grant["expires_in"] = "8h".into();
    assert_eq!(human.post("/grants", &grant).status, 200);
    assert_eq!(world.run(&["wait", &id]).exit, 0);
}

fn state(world: &World, words: &[&str]) -> Value {
    let ran = world.run(&[&["run", "pay"], words].concat());
    assert_eq!(ran.exit, 0, "{ran}");
    world.result_file(ran.json()["id"].as_str().expect("an id"))["state"].clone()
}

#[test]
fn a_grant_covers_nothing_that_starts_after_its_end() {
    let world = world();
    remember(&world, &Human::of(&world), 5, &json!("100"));
    for (start, expected) in [
        ("--in=1h", "queued"),
        ("--in=7h", "queued"),
        ("--in=9h", "awaiting_confirmation"),
        ("--in=10h", "awaiting_confirmation"),
        ("--in=360d", "awaiting_confirmation"),
    ] {
        assert_eq!(state(&world, &["amount=5", start]), expected, "{start}");
    }
}

#[test]
fn a_limit_is_compared_exactly() {
    let world = world();
    remember(&world, &Human::of(&world), 5, &json!("100"));
    for (amount, is_covered) in [
        ("100", true),
        ("99.99999999999999", true),
        ("1e2", true),
        ("100.00000000000001", false),
        ("101", false),
        ("9007199254740993", false),
    ] {
        let ran = world.run(&["run", "pay", "--input", &format!("{{\"amount\": {amount}}}")]);
        let id = ran.json()["id"].as_str().expect("an id").to_owned();
        let was_asked = world.result_file(&id)["state"] == "awaiting_confirmation";
        assert_eq!(was_asked, !is_covered, "{amount}: {ran}");
    }
    // What would be rounded is refused before anyone is asked.
    let ran = world.run(&["run", "pay", "--input", "{\"amount\": 100.00000000000000000001}"]);
    let error: ErrorBody = serde_json::from_value(ran.error()).expect("an error");
    assert!(ran.exit == 2 && error.message.contains("more digits than can be kept exactly"), "{ran}");
}

#[test]
fn a_rule_that_came_later_outranks_a_grant() {
    let world = world();
    let human = Human::of(&world);
    remember(&world, &human, 5, &json!("100"));
    let occupied = world.start("occupy", &json!({}));
    let queued = world.start("pay", &json!({"amount": 60}));
    assert_eq!(world.result_file(&queued)["state"], "queued");
    world.configure(
        "[executor]\nconcurrency = 1\n[[confirm.rules]]\ntools = [\"pay\"]\nwhen = \"input.amount > 50\"\nthen = \"ask\"\n",
    );
    until("it is asked again", || world.result_file(&queued)["state"] == "awaiting_confirmation");
    assert_eq!(state(&world, &["amount=70"]), "awaiting_confirmation");
    assert_eq!(state(&world, &["amount=40"]), "queued", "the rule does not ask about it");
    std::fs::write(world.folder().join("go"), "").expect("written");
    assert_eq!(world.run(&["wait", &occupied]).exit, 0);
    assert_eq!(human.approve(&queued).status, 200);
    assert_eq!(world.run(&["wait", &queued]).json()["status"], "succeeded");
    // A grant that was made since the rule came stands beside it.
    remember(&world, &human, 75, &json!("90"));
    assert_ne!(state(&world, &["amount=80"]), "awaiting_confirmation");
}
