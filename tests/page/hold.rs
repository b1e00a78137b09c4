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
    tab.card(&id).until("[data-held]", "e => /^[(]in /.test(e.textContent)").await;
    tab.click("[data-action=stop]").await;
    let ended = world.end_of(&id);
    assert_eq!(ended["status"], "cancelled", "{ended}");
    assert!(!fs::exists(world.folder().join("marks")).expect("readable"));
}

/// Who approves something for tomorrow must know that it is not for now.
#[tokio::test]
async fn a_card_of_a_scheduled_task_says_when_it_starts_and_so_does_every_list() {
    let world = world("1s");
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let ran = world.run(&["run", "mark_it", "--in=14h"]);
    let id = ran.json()["id"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned();
    let mut card = tab.card(&id);
    card.appears().await;
    let words = card.text(".card-start").await;
    assert!(words.starts_with("It starts ") && words.contains("(in 13 h)") && words.ends_with("not now."), "{words}");
    let year = jiff::Timestamp::now().strftime("%Y").to_string();
    assert!(words.contains(&year), "the day and the hour: {words}");
    let status = card.call("[data-status]", "e => e.dataset.ready").await;
    assert_eq!(status, "Approve runs exactly what is shown, once, at the time above.");
    for state in ["before", "after"] {
        for page in ["/tasks".to_owned(), format!("/task/{id}")] {
            let shown = Human::of(&world).get(&page).body;
            assert!(shown.contains("(in 13 h)"), "{page} {state}: {shown}");
        }
        if state == "before" {
            tab.card(&id).approve().await;
            tab.card(&id).until("[data-held]", "e => e.textContent === '(in 13 h)'").await;
        }
    }
    assert!(!fs::exists(world.folder().join("marks")).expect("readable"));
    // The time comes while it waits.
    let ran = world.run(&["run", "mark_it", "--in=2s", "--idempotency-key=soon"]);
    let id = ran.json()["id"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned();
    tab.card(&id).until(".card-start", "e => e.innerText.endsWith('(now): as soon as you approve it.')").await;
}

#[test]
fn a_held_task_runs_when_its_time_is_over() {
    let world = world("1s");
    let human = Human::of(&world);
    let id = world.start("mark_it", &json!({}));
    let approved = human.approve(&id);
    assert!(approved.status == 200 && approved.body.contains("starts_at"), "{}", approved.body);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}
