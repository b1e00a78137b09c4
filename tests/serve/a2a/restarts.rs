//! Tasks of our server over its end: the SDKs' own clients find them under the same ids when it is back.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::clients::{ask, only, start, waiting_task};
use super::{Peer, SDKS, Sdk, state, text};
use crate::page::human::Human;
use crate::serve::{Server, world_with_model};
use crate::world::{World, until};

const ANSWER: &str = "There are 3 words.";

/// The server again, at the address where its clients know it.
fn again(world: &World, address: &str) -> Server {
    Server::start_with(world, &[&format!("--listen={address}")])
}

fn id_of(task: &Value) -> String {
    task["id"].as_str().unwrap_or_else(|| panic!("no task: {task}")).to_owned()
}

fn get(server: &Server, id: &str, headers: &str) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id}}).to_string();
    server.request("POST", "/a2a", headers, &call).json()
}

/// Waits until as many tasks of the executor run.
fn until_they_run(world: &World, count: usize) {
    until("they run", || {
        let open = world.run(&["tasks", "--state", "pending"]);
        let open: Value = serde_json::from_str(&open.stdout).unwrap_or_default();
        let all = open.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|task| task.to_string().contains("running")).count() == count
    });
}

#[test]
fn a_killed_server_still_knows_its_tasks_and_ends_them_with_their_answers() {
    let Some((world, model)) = world_with_model("") else { return };
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let server = Server::start(&world);
    let address = server.address.clone();
    let other = world.run(&["serve", "key", "create", "other"]).json()["key"].as_str().expect("a key").to_owned();
    let other = format!("Authorization: Bearer {other}\r\n");
    let words = ["How many words are in this?", "How many words are in that?"];
    let ids = words.map(|words| id_of(&start(&server, words)));
    until_they_run(&world, ids.len());
    server.kill();
    let server = again(&world, &address);
    let mut followers = Vec::new();
    for (sdk, id) in SDKS.into_iter().zip(&ids) {
        let Some(told) = ask(sdk, &server, &["jsonrpc", "get", id]) else { return };
        let told = only(told);
        assert_eq!((state(&told), &told["id"]), ("WORKING", &json!(id)), "{sdk:?} {told:#}");
        assert_eq!(get(&server, id, &other)["error"]["code"], -32001, "another client's");
        let follower = Peer::client(sdk, &server.url(), &["rest", "subscribe", id]).expect("installed");
        let first = follower.next().expect("the task as it is");
        assert_eq!(first["task"]["id"], json!(id), "{sdk:?} {first:#}");
        followers.push((sdk, follower));
    }
    let repeated = words.map(|words| id_of(&start(&server, words)));
    assert_eq!(repeated, ids, "the same message is the same task");
    let task = start(&server, words[0]);
    let message = json!({"messageId": words[0], "role": "ROLE_USER", "parts": [{"text": words[0]}],
        "contextId": task["contextId"]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
        "params": {"message": message, "configuration": {"returnImmediately": true}}});
    let again_in_context = &server.post("/a2a", &call).json()["result"]["task"];
    assert_eq!(again_in_context["id"], json!(ids[0]), "also with the context that the answer named");
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    for (sdk, follower) in followers {
        let rest = follower.rest();
        assert_eq!((rest.last().map(state), text(&rest).as_str()), (Some("COMPLETED"), ANSWER), "{sdk:?} {rest:#?}");
    }
    let listed = only(ask(Sdk::JavaScript, &server, &["rest", "list"]).expect("installed"));
    server.kill();
    // What has ended is told again, too.
    let server = again(&world, &address);
    for (sdk, id) in SDKS.into_iter().zip(&ids) {
        let told = only(ask(sdk, &server, &["jsonrpc", "get", id]).expect("installed"));
        assert_eq!((state(&told), text(std::slice::from_ref(&told)).as_str()), ("COMPLETED", ANSWER), "{sdk:?}");
    }
    assert_eq!(only(ask(Sdk::JavaScript, &server, &["rest", "list"]).expect("installed")), listed);
    assert_eq!(get(&server, &ids[0], &other)["error"]["code"], -32001, "another client's");
    let beginnings = model.asked().iter().filter(|body| body["messages"].as_array().map(Vec::len) == Some(2)).count();
    assert_eq!(beginnings, words.len(), "each was asked once");
    assert_eq!(world.run(&["tasks"]).json().as_array().map(Vec::len), Some(words.len()), "and delegated once");
}

#[test]
fn a_server_that_is_told_to_stop_ends_no_task() {
    let Some((world, _model)) = world_with_model("") else { return };
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let server = Server::start(&world);
    let address = server.address.clone();
    let words = "How many words are in it?";
    let Some(client) = Peer::client(Sdk::Python, &server.url(), &["jsonrpc", "stream", words]) else { return };
    let id = id_of(&client.next().expect("the task")["task"]);
    until_they_run(&world, 1);
    kill(Pid::from_raw(server.process_id().cast_signed()), Signal::SIGTERM).expect("it is alive");
    let told = client.rest();
    assert!(told.iter().all(|told| ["", "WORKING"].contains(&state(told))), "nothing has ended: {told:#?}");
    drop(server);
    let server = again(&world, &address);
    let follower = Peer::client(Sdk::Python, &server.url(), &["jsonrpc", "subscribe", &id]).expect("installed");
    follower.next().expect("the task as it is");
    std::fs::remove_file(world.folder().join("hold")).expect("removed");
    let rest = follower.rest();
    assert_eq!((rest.last().map(state), text(&rest).as_str()), (Some("COMPLETED"), ANSWER), "{rest:#?}");
}

#[test]
fn a_task_that_waits_for_a_human_still_waits_and_goes_on_after_their_yes() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let address = server.address.clone();
    let human = Human::of(&world);
    let _page = human.open_page();
    let id = id_of(&start(&server, "Write a note"));
    let waits = |server: &Server| get(server, &id, "")["result"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED";
    until("it waits", || waits(&server));
    server.kill();
    let server = again(&world, &address);
    until("it waits again", || waits(&server));
    let Some(client) = Peer::client(Sdk::JavaScript, &server.url(), &["jsonrpc", "subscribe", &id]) else { return };
    let first = client.next().expect("the task as it is");
    assert_eq!(state(&first), "INPUT_REQUIRED", "{first:#}");
    world.decide(&waiting_task(&world), "approve", "");
    let rest = client.rest();
    assert_eq!((rest.last().map(state), text(&rest).as_str()), (Some("COMPLETED"), "The note is written."));
    assert_eq!(std::fs::read_to_string(world.folder().join("note.txt")).expect("written"), "hello");
}

#[test]
fn after_a_restart_a_task_is_cancelled_and_a_lost_one_has_failed() {
    let Some((world, _model)) = world_with_model("") else { return };
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let server = Server::start(&world);
    let address = server.address.clone();
    let id = id_of(&start(&server, "How many words are in it?"));
    until_they_run(&world, 1);
    server.kill();
    let server = again(&world, &address);
    let Some(told) = ask(Sdk::Python, &server, &["jsonrpc", "cancel", &id]) else { return };
    assert_eq!(state(&only(told)), "CANCELED");
    until("its task is cancelled", || {
        let tasks = world.run(&["tasks"]);
        tasks.exit == 0 && tasks.stdout.contains("cancelled")
    });
    let lost = id_of(&start(&server, "How many words are in the other?"));
    until_they_run(&world, 1);
    server.kill();
    std::fs::remove_dir_all(world.state().join("serve/questions")).expect("removed");
    let server = again(&world, &address);
    until("it has failed", || get(&server, &lost, "")["result"]["status"]["state"] == "TASK_STATE_FAILED");
    let words = get(&server, &lost, "")["result"]["status"]["message"]["parts"][0]["text"].to_string();
    assert!(words.contains("the turn of this task was lost"), "{words}");
    let cancelled = get(&server, &id, "")["result"].clone();
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED");
    // A deleted session takes its tasks with it.
    let context = cancelled["contextId"].as_str().expect("a context");
    let session = format!("/api/v1/session/a2a-127.0.0.1-{context}");
    assert_eq!(server.request("DELETE", &session, "", "").json()["state"], "deleted");
    assert_eq!(get(&server, &id, "")["error"]["code"], -32001);
    let left = std::fs::read_dir(world.state().join("serve/a2a")).expect("read").count();
    assert_eq!(left, 1, "the lost one");
}
