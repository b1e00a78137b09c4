//! The limits on confirmations survive a restart of the executor.

use serde_json::{Value, json};

use crate::world::{World, until};

fn world(confirm: &str) -> World {
    let world = World::new();
    world.configure(&format!("[confirm]\n{confirm}\n"));
    world.define(
        "send.json",
        &json!({"send_it": {"description": "Sends it.", "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "run": {"process": {"argv": ["true"]}}}}),
    );
    world
}

fn refusal(world: &World, n: u32) -> Value {
    let ran = world.run(&["run", "send_it", &format!("n:={n}")]);
    assert_eq!(ran.exit, 5, "{ran}");
    ran.error()
}

#[test]
fn the_hourly_limit_of_confirmations_survives_a_restart() {
    let world = world("asks_per_hour = 3");
    // Cancelled confirmations count too.
    let ended = world.start("send_it", &json!({"n": 0}));
    assert_eq!(world.run(&["cancel", &ended]).exit, 0);
    world.start("send_it", &json!({"n": 1}));
    world.kill_executor().expect("a running executor");
    world.start("send_it", &json!({"n": 2}));
    let before = refusal(&world, 3);
    world.kill_executor().expect("a running executor");
    let after = refusal(&world, 3);
    assert_eq!(after["code"], "throttled", "{after}");
    assert_eq!(after, before, "the limit should last until the same time");
}

#[test]
fn the_cool_down_after_a_denial_survives_a_restart() {
    let world = world("cool_down = \"10m\"");
    let id = world.start("send_it", &json!({"n": 7}));
    decide(&world, &id, "deny");
    until("the task is denied", || world.result_file(&id)["status"] == "denied");
    let before = refusal(&world, 7);
    world.kill_executor().expect("a running executor");
    let after = refusal(&world, 7);
    assert_eq!((&after["code"], &after), (&json!("denied"), &before));
    world.start("send_it", &json!({"n": 8}));
}

/// Decides a task on the page, without a browser. An approval types the name of the subtool, as the page asks.
pub(crate) fn decide(world: &World, id: &str, verdict: &str) {
    let tool = world.result_file(id)["tool"].take();
    world.decide(id, verdict, tool.as_str().filter(|_| verdict == "approve").unwrap_or_default());
}
