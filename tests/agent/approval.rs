//! A human approves a task while a question runs; without an approver, the model is told at once.

use std::process::Stdio;

use serde_json::json;

use super::aimock::{Model, PROVIDERS};
use super::story::{entries_of, spawn};
use super::terminal::Terminal;
use crate::page::human::Human;
use crate::serve::a2a::clients::waiting_task;
use crate::serve::waiting::WAITS;
use crate::world::{Lines, World, until};

fn marks() -> serde_json::Value {
    json!({"mark": {
        "description": "Leaves a mark.",
        "input": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks; echo left", "mark", "{{ name }}"]}}
    }})
}

fn rules() -> serde_json::Value {
    json!([
        {"last": "^Leave a mark", "runs": ["agent-magic-tool list tools --query='leave a mark' --limit 1"]},
        {"last": "no-approver", "says": "No one could approve it."},
        {"last": "awaiting_confirmation|\"status\":\\s*\"pending\"", "says": "It waits for your approval."},
        {"last": "result is final", "runs": ["agent-magic-tool read $ID"]},
        {"last": "\"data\":\\s*\"left", "says": "The mark is left."},
        {"last": "mark\\(input", "runs": ["agent-magic-tool run mark name=x"]},
    ])
}

#[tokio::test]
async fn an_approval_in_the_browser_wakes_every_provider() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(model) = Model::start(&world, &rules(), "") else { return };
    let Some(mut tab) = world.signed_in_tab().await else { return };
    for (number, provider) in PROVIDERS.iter().enumerate() {
        let before = model.asked().len();
        let mut asking = world.command(&["agent", "--json", "--model", provider, "Leave a mark"]);
        // A human has the page open, so the task waits for approval.
        let asking = spawn(std::mem::replace(&mut asking, std::process::Command::new("true")));
        let session = 101 + u32::try_from(number).expect("a few");
        until("the agent sleeps", || entries_of(&world, session, "answered").len() == 3);
        assert_eq!(model.asked().len() - before, 3);
        let waiting = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
        tab.card(waiting[0]["id"].as_str().expect("an id")).approve().await;
        let ran = world.transcript(&asking.wait_with_output().expect("the agent ends"));
        assert_eq!(ran.json()["answer"], "The mark is left.", "{provider}: {ran}");
        assert_eq!(model.asked().len() - before, 5, "{provider}");
    }
    let marks = std::fs::read_to_string(world.folder().join("marks")).expect("marks");
    assert_eq!(marks.lines().count(), PROVIDERS.len());
}

#[test]
fn a_call_that_waits_says_what_it_waits_for() {
    let world = World::new();
    world.define("marks.json", &marks());
    let rules = json!([{"last": "^run: (.*)", "runs": ["$1"]}, {"last": "", "says": "It is over."}]);
    let Some(_model) = Model::start(&world, &rules, "") else { return };
    let human = Human::of(&world);
    let _page = human.open_page();
    let told = |name: &str| format!("note: mark started ({name})");
    for wait in WAITS {
        let line = format!("run: agent-magic-tool run mark name=x {wait}");
        for options in [&["agent"][..], &["agent", "--json"]] {
            let mut command = world.command(options);
            let mut asking =
                command.arg(&line).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
            let notes = Lines::of(asking.stderr.take().expect("a pipe"));
            let mut seen = vec![notes.next()];
            while !seen.last().is_some_and(|note| note.contains("a human approves tasks on the page")) {
                seen.push(notes.next());
            }
            let id = waiting_task(&world);
            assert!(seen.contains(&told(&id)), "{line}: {seen:?}");
            world.decide(&id, "approve", "");
            assert!(asking.wait().expect("it ends").success(), "{line}");
        }
        let mut chat = Terminal::open(&world, &["agent"]);
        chat.line(&line);
        chat.expect("mark (");
        chat.expect("waiting for mark");
        world.decide(&waiting_task(&world), "approve", "");
        chat.expect("It is over.");
    }
    let marks = std::fs::read_to_string(world.folder().join("marks")).expect("marks");
    assert_eq!(marks.lines().count(), 3 * WAITS.len(), "each ran once");
}

#[test]
fn without_an_approver_the_model_is_told_at_once() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(_model) = Model::start(&world, &rules(), "") else { return };
    let ran = world.run(&["agent", "--json", "Leave a mark"]);
    assert_eq!((ran.exit, ran.json()["termination"].as_str()), (5, Some("policy_denied")), "{ran}");
    assert_eq!(ran.json()["answer"], "No one could approve it.");
    assert_eq!(world.run(&["tasks"]).json(), json!([]));
}
