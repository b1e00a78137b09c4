//! Undo: a declared inverse as a button in the history, which is a request of its own.

use std::fs;

use serde_json::{Value, json};

use super::human::Human;
use crate::world::World;

/// A world where `add_it` makes a file and `remove_it` deletes it again.
fn world() -> World {
    let world = World::new();
    let file = json!({"type": "object", "required": ["file"], "properties": {"file": {"type": "string"}}});
    let tool = |script: &str| {
        json!({"description": "Changes a file.", "input": file,
            "run": {"process": {"argv": ["sh", "-c", script, "change", "{{ file }}"], "folder": "."}}})
    };
    let mut add = tool("echo x > \"$1\" && printf '{\"made\": \"%s\"}' \"$1\"");
    add["confirm"] = "never".into();
    add["undo"] = json!({"subtool": "remove_it", "input": "fromjson | {file: .made}"});
    world.define("files.json", &json!({"add_it": add, "remove_it": tool("rm \"$1\"")}));
    world
}

fn undo(human: &Human, id: &str) -> (u16, Value) {
    let answer = human.post("/undo", &json!({"id": id}));
    (answer.status, serde_json::from_str(answer.body.trim()).unwrap_or_default())
}

#[tokio::test]
async fn a_human_undoes_a_task_and_is_asked_about_that() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let made = world.result_of("add_it", &json!({"file": "a"}));
    assert_eq!(made["status"], "succeeded", "{made}");
    tab.go(&format!("{}/history", world.site().origin())).await;
    tab.click("[data-action=undo]").await;
    tab.until("location.pathname.startsWith('/task/')").await;
    let id = tab.value("location.pathname.split('/')[2]").await.as_str().expect("an id").to_owned();
    let asked = world.result_file(&id);
    assert_eq!((&asked["tool"], &asked["input"]), (&json!("remove_it"), &json!({"file": "a"})));
    assert_eq!(asked["state"], "awaiting_confirmation");
    assert!(fs::exists(world.folder().join("a")).expect("readable"));
}

#[test]
fn an_undo_is_one_task_and_only_of_what_succeeded() {
    let world = world();
    let human = Human::of(&world);
    let id = world.start("add_it", &json!({"file": "a"}));
    world.end_of(&id);
    let (status, first) = undo(&human, &id);
    assert_eq!((status, undo(&human, &id)), (200, (200, first.clone())));
    let removal = first["id"].as_str().expect("an id");
    assert_eq!(undo(&human, removal).0, 422, "it has not ended, and nothing undoes it");
    let failed = world.start("add_it", &json!({"file": "no/such/folder"}));
    world.end_of(&failed);
    assert!(human.get("/history").body.contains("data-action=\"undo\""));
    assert_eq!(undo(&human, &failed).0, 422);
}
