//! Our server, asked by the SDKs' own clients, over each binding and both versions of the protocol.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Peer, SDKS, Sdk, state, text};
use crate::page::human::Human;
use crate::serve::{Server, world_with_model};
use crate::world::{World, until};

const BINDINGS: [&str; 3] = ["jsonrpc", "rest", "legacy"];

pub(super) fn ask(sdk: Sdk, server: &Server, words: &[&str]) -> Option<Vec<Value>> {
    Some(Peer::client(sdk, &server.url(), words)?.rest())
}

/// The one thing that a client was told.
pub(super) fn only(mut told: Vec<Value>) -> Value {
    assert_eq!(told.len(), 1, "{told:#?}");
    told.remove(0)
}

/// Starts a task without waiting for it, as any client may.
pub(super) fn start(server: &Server, words: &str) -> Value {
    let message = json!({"messageId": words, "role": "ROLE_USER", "parts": [{"text": words}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    server.post("/a2a", &call).json()["result"]["task"].clone()
}

/// The id of the one task of the executor that waits for a human.
pub(crate) fn waiting_task(world: &World) -> String {
    let open = world.run(&["tasks", "--state", "pending"]).json();
    open[0]["id"].as_str().unwrap_or_else(|| panic!("nothing waits: {open}")).to_owned()
}

#[test]
fn clients_of_both_sdks_stream_send_and_get_over_every_binding() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    for sdk in SDKS {
        for binding in BINDINGS {
            let what = format!("{sdk:?} {binding}");
            let Some(streamed) = ask(sdk, &server, &[binding, "stream", "How many words are in it?"]) else { return };
            let states: Vec<_> = streamed.iter().map(state).filter(|state| !state.is_empty()).collect();
            assert_eq!(
                (states.first(), states.last()),
                (Some(&"SUBMITTED"), Some(&"COMPLETED")),
                "{what} {streamed:#?}"
            );
            assert_eq!(text(&streamed), "There are 3 words.", "{what} {streamed:#?}");
            let context = streamed[0]["task"]["contextId"].as_str().expect("a context").to_owned();
            let id = streamed[0]["task"]["id"].as_str().expect("an id").to_owned();
            let task = only(ask(sdk, &server, &[binding, "get", &id]).expect("installed"));
            assert_eq!((state(&task), text(std::slice::from_ref(&task)).as_str()), ("COMPLETED", "There are 3 words."));
            assert!(
                task["metadata"]["agent-magic-tool"]["usage"]["requests"].as_f64().is_some_and(|n| n >= 2.0),
                "{task}"
            );
            let sent = only(ask(sdk, &server, &[binding, "send", "echo once", &context]).expect("installed"));
            assert_eq!((state(&sent), &sent["task"]["contextId"]), ("COMPLETED", &json!(context)), "{what} {sent:#}");
            assert!(text(&[sent]).starts_with("once once"), "{what}");
            if binding != "legacy" {
                let listed = only(ask(sdk, &server, &[binding, "list", "", &context]).expect("installed"));
                assert_eq!(listed["tasks"].as_array().map(Vec::len), Some(2), "{what} {listed:#}");
            }
        }
    }
    // Each context was one session, and has both questions.
    let sessions = server.get("/api/v1/sessions").json();
    let sessions = sessions["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), SDKS.len() * BINDINGS.len(), "{sessions:#?}");
    assert!(
        sessions.iter().all(|session| session["client"].as_str().is_some_and(|id| id.starts_with("a2a-127.0.0.1-")))
    );
}

#[test]
fn a_task_is_followed_by_another_client_and_cancelled() {
    let Some((world, _model)) = world_with_model("") else { return };
    std::fs::write(world.folder().join("hold"), "").expect("written");
    let server = Server::start(&world);
    for sdk in SDKS {
        for binding in BINDINGS {
            let what = format!("{sdk:?} {binding}");
            let started = start(&server, &format!("How many words are in {what}?"));
            let id = started["id"].as_str().expect("an id").to_owned();
            let Some(follower) = Peer::client(sdk, &server.url(), &[binding, "subscribe", &id]) else { return };
            let first = follower.next().expect("the task as it is");
            assert_eq!(first["task"]["id"], json!(id), "{what} {first:#}");
            let cancelled = only(ask(sdk, &server, &[binding, "cancel", &id]).expect("installed"));
            assert_eq!(state(&cancelled), "CANCELED", "{what} {cancelled:#}");
            let rest = follower.rest();
            assert_eq!(rest.last().map(state), Some("CANCELED"), "{what} {rest:#?}");
            let again = only(ask(sdk, &server, &[binding, "cancel", &id]).expect("installed"));
            assert!(again["error"].as_str().is_some_and(|name| name.contains("TaskNotCancelable")), "{what} {again}");
            let late = only(ask(sdk, &server, &[binding, "subscribe", &id]).expect("installed"));
            assert!(late["error"].as_str().is_some_and(|name| name.contains("UnsupportedOperation")), "{what} {late}");
        }
    }
}

#[test]
fn what_waits_for_a_human_is_input_required_until_the_page_decides() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let human = Human::of(&world);
    let _page = human.open_page();
    for (sdk, binding) in [(Sdk::Python, "jsonrpc"), (Sdk::JavaScript, "rest"), (Sdk::JavaScript, "legacy")] {
        let what = format!("{sdk:?} {binding}");
        let Some(client) = Peer::client(sdk, &server.url(), &[binding, "stream", "Write a note"]) else { return };
        let mut seen = Vec::new();
        while seen.last().map(state) != Some("INPUT_REQUIRED") {
            seen.push(client.next().unwrap_or_else(|| panic!("{what}: it ended: {seen:#?}")));
        }
        let status = &seen.last().expect("an event")["statusUpdate"]["status"];
        let words = status["message"]["parts"][0]["text"].as_str().expect("words");
        assert!(words.contains("note"), "{what}: {words}");
        let id = seen[0]["task"]["id"].as_str().expect("an id").to_owned();
        // No message decides: it is refused, and the task still waits.
        let message = json!({"messageId": "m", "taskId": id, "role": "ROLE_USER", "parts": [{"text": "approved"}]});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let refused = server.post("/a2a", &call).json();
        assert_eq!(refused["error"]["code"], -32004, "{refused}");
        let waiting = only(ask(sdk, &server, &[binding, "get", &id]).expect("installed"));
        assert_eq!(state(&waiting), "INPUT_REQUIRED", "{what} {waiting:#}");
        world.decide(&waiting_task(&world), "approve", "");
        let rest = client.rest();
        assert_eq!(rest.last().map(state), Some("COMPLETED"), "{what} {rest:#?}");
        assert_eq!(text(&rest), "The note is written.", "{what}");
    }
    assert_eq!(std::fs::read_to_string(world.folder().join("note.txt")).expect("written"), "hellohellohello");
    // A client that waits gets the task when a human is needed.
    let Some(told) = ask(Sdk::Python, &server, &["jsonrpc", "send", "Write a note"]) else { return };
    assert_eq!(state(&only(told)), "INPUT_REQUIRED");
}

#[test]
fn errors_are_those_of_the_protocol_and_no_client_sees_the_tasks_of_another() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    let key = world.run(&["serve", "key", "create", "other"]).json()["key"].as_str().expect("a key").to_owned();
    for binding in BINDINGS {
        let wrong = |action: &str, word: &str| {
            let told = only(ask(Sdk::Python, &server, &[binding, action, word])?);
            Some(told["error"].as_str().unwrap_or_else(|| panic!("{told:#}")).to_owned())
        };
        let Some(file) = wrong("send", "https://files.example/x.pdf") else { return };
        assert_eq!(file, "ContentTypeNotSupportedError", "{binding}");
        assert_eq!(wrong("get", "nothing").as_deref(), Some("TaskNotFoundError"), "{binding}");
        assert_eq!(wrong("subscribe", "nothing").as_deref(), Some("TaskNotFoundError"), "{binding}");
        assert_eq!(wrong("cancel", "nothing").as_deref(), Some("TaskNotFoundError"), "{binding}");
    }
    let task = start(&server, "Hi");
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}).to_string();
    let others = server.request("POST", "/a2a", &format!("Authorization: Bearer {key}\r\n"), &get).json();
    assert_eq!(others["error"]["code"], -32001, "{others}");
    assert_eq!(server.request("POST", "/a2a", "", &get).json()["result"]["id"], task["id"]);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {"messageId": "x",
        "contextId": task["contextId"], "role": "ROLE_USER", "parts": [{"text": "!session"}]}}})
    .to_string();
    let foreign = server.request("POST", "/a2a", &format!("Authorization: Bearer {key}\r\n"), &body).json();
    let own = server.request("POST", "/a2a", "", &body).json();
    assert_ne!(text(&[foreign["result"].clone()]), text(&[own["result"].clone()]), "the same context, another session");
    let version = server.request("POST", "/a2a", "A2A-Version: 2.0\r\n", &get).json();
    assert_eq!((&version["error"]["code"], &version["id"]), (&json!(-32009), &json!(1)));
    let wrong_key = server.request("POST", "/a2a", "Authorization: Bearer amt_wrong\r\n", &get);
    assert!(matches!(wrong_key.status, 200 | 401), "{}", wrong_key.body);
    // The card is for everyone.
    let card = server.get("/.well-known/agent-card.json").json();
    assert_eq!(card["supportedInterfaces"][0]["url"], json!(format!("{}/a2a", server.url())));
}

#[test]
fn a_message_that_comes_many_times_at_once_is_one_task() {
    let Some((world, model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    for words in ["echo one", "echo two"] {
        let ids: HashSet<String> = std::thread::scope(|scope| {
            let sent: Vec<_> = (0..12).map(|_| scope.spawn(|| start(&server, words)["id"].to_string())).collect();
            sent.into_iter().map(|sent| sent.join().expect("answered")).collect()
        });
        assert_eq!(ids.len(), 1, "{ids:?}");
    }
    until("both are asked", || model.asked().len() == 2);
}
