//! A hold: an approved task waits a moment, and a human can still stop it.

use std::fs;

use serde_json::json;

use super::human::Human;
use crate::world::World;

/// A world with `mark_it`, which is held for `hold` after its approval.
fn world(hold: &str) -> World {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark_it": {"description": "Leaves a mark.", "input": {}, "hold": hold,
            "run": {"process": {"argv": ["sh", "-c", "echo x >> marks"], "folder": "."}}}}),
    );
    world
}

#[tokio::test]
async fn a_human_stops_an_approved_task_while_it_is_held() {
    let world = world("1h");
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark_it", &json!({}));
    tab.card(&id).approve().await;
    tab.card(&id).until("[data-held]", "e => / left$/.test(e.textContent)").await;
    tab.click("[data-action=stop]").await;
    let ended = world.end_of(&id);
    assert_eq!(ended["status"], "cancelled", "{ended}");
    assert!(!fs::exists(world.folder().join("marks")).expect("readable"));
}

#[test]
fn a_held_task_runs_when_its_time_is_over() {
    let world = world("1s");
    let human = Human::of(&world);
    let id = world.start("mark_it", &json!({}));
    let approved = human.approve(&id);
    assert!(approved.status == 200 && approved.body.contains("held_until"), "{}", approved.body);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}
