//! The Tasks extension: a delegated run is a task, whose id outlives the server.

use serde_json::{Value, json};

use super::peers::{HttpServer, Peer, Reach, Sdk, define, document, hold, packages, text};
use crate::executor::bounds::decide;
use crate::world::{World, until};

fn task(peer: &mut Peer, id: &Value) -> Value {
    peer.ask(&json!({"op": "request", "method": "tasks/get", "params": {"taskId": id}}))
}

#[track_caller]
fn until_status(peer: &mut Peer, id: &Value, status: &str) -> Value {
    let mut last = Value::Null;
    until("the task has that status", || {
        last = task(peer, id);
        last["status"] == status
    });
    last
}

#[test]
fn a_delegated_run_is_a_task_that_outlives_the_server() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let held = hold(&world);
    let (by_line, by_tool) = {
        let server = HttpServer::start(&world, &["--expose", "h*"]);
        let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Http(&server), true);
        let by_line = peer.line("agent-magic-tool run hold");
        assert_eq!((&by_line["resultType"], &by_line["status"]), (&json!("task"), &json!("working")), "{by_line}");
        let by_tool = peer.call("hold", &json!({}));
        assert_eq!((&by_tool["resultType"], &by_tool["status"]), (&json!("task"), &json!("working")), "{by_tool}");
        assert_eq!(task(&mut peer, &by_line["taskId"])["status"], "working");
        (by_line["taskId"].clone(), by_tool["taskId"].clone())
    };
    world.kill_executor();
    std::fs::remove_file(held).expect("removed");
    // The same key, so it has the same tasks.
    let server = HttpServer::start(&world, &[]);
    let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Http(&server), true);
    let ended = until_status(&mut peer, &by_line, "completed");
    let printed = document(&ended["result"]);
    assert_eq!((&printed["status"], &printed["data"]), (&json!("succeeded"), &json!("done")));
    let ended = until_status(&mut peer, &by_tool, "completed");
    assert_eq!((text(&ended["result"]), &ended["result"]["isError"]), ("done", &json!(false)));
}

#[test]
fn what_ends_at_once_or_is_not_asked_for_is_no_task() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Stdio(&["--expose", "say"]), true);
    assert_eq!(text(&peer.call("say", &json!({"text": "x"}))), "x");
    let listed = peer.line("agent-magic-tool tasks");
    assert_eq!(listed["resultType"], "complete", "{listed}");
    let waited = peer.line("agent-magic-tool run say text=y --wait");
    assert_eq!(waited["resultType"], "complete", "{waited}");
    let two = peer.line("agent-magic-tool run change; agent-magic-tool run change text=b");
    assert_eq!(two["resultType"], "complete", "two tasks are not one: {two}");
    drop(peer);
    let mut other = Peer::start(&world, &packages, Sdk::Python, Reach::Stdio(&[]), false);
    let receipt = other.line("agent-magic-tool run change text=c");
    assert_eq!(receipt["resultType"], "complete", "{receipt}");
    let refused = other.attempt(&json!({"op": "request", "method": "tasks/get", "params": {"taskId": "x"}}));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}

#[test]
fn a_task_that_waits_for_a_human_says_so_and_takes_no_answer() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Stdio(&[]), true);
    let created = peer.line("agent-magic-tool run change");
    let id = &created["taskId"];
    assert_eq!(created["status"], "working", "{created}");
    assert!(created["statusMessage"].as_str().is_some_and(|text| text.contains("executor page")), "{created}");
    let answers = json!({"confirm": {"action": "accept"}});
    peer.ask(&json!({"op": "request", "method": "tasks/update", "params": {"taskId": id, "inputResponses": answers}}));
    let still = task(&mut peer, id);
    assert!(still["status"] == "working" && still.get("inputRequests").is_none(), "{still}");
    decide(&world, id.as_str().expect("an id"), "deny");
    let ended = until_status(&mut peer, id, "completed");
    assert_eq!(ended["result"]["isError"], true, "{ended}");
}

#[test]
fn a_task_is_cancelled_and_an_unknown_one_is_an_error() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Stdio(&[]), true);
    let created = peer.line("agent-magic-tool run change");
    for _ in 0..2 {
        let cancel = json!({"op": "request", "method": "tasks/cancel", "params": {"taskId": created["taskId"]}});
        peer.ask(&cancel);
        until_status(&mut peer, &created["taskId"], "cancelled");
    }
    for unknown in ["x", "01a2047fc909731585bb77ededae5d91", ""] {
        for method in ["tasks/get", "tasks/cancel"] {
            let line = json!({"op": "request", "method": method, "params": {"taskId": unknown}});
            assert_eq!(peer.attempt(&line)["error"]["code"], -32602, "{line}");
        }
    }
}
