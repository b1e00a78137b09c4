//! Whose a call is, however it is made: a program of a subtool, a document, a remote agent and a key that decides have the
//! rights of who stands behind them.

use serde_json::{Value, json};

use super::{Server, bearer};
use crate::agent::aimock::Model;
use crate::page::human::Human;
use crate::world::{World, full_program, program, until};

/// A world whose subtools are a note that a human approves, and a program that makes a call of its own.
fn world(more: &str) -> Option<(World, Model)> {
    let world = World::new();
    let mut subtools = super::subtools();
    subtools["by_program"] = json!({
        "description": "Runs a command line of the program.",
        "annotations": {"readOnlyHint": true},
        "input": {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]},
        "run": {"process": {"argv": ["sh", "-c", format!("{} $0 2>&1", program().display()), "{{ line }}"],
            "env": {"AGENT_MAGIC_TOOL_DIR": world.mailbox()}}},
    });
    subtools["by_agent"] = json!({
        "description": "Asks an agent of its own.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": [full_program(), "agent", "--json", "--if-no-approver=wait", "run: agent-magic-tool run note text=agent"],
            "env": {"AGENT_MAGIC_TOOL_DIR": world.mailbox()}}},
    });
    world.define("tests.json", &subtools);
    let model = Model::start(&world, &super::rules(), more)?;
    Some((world, model))
}

#[test]
fn what_a_program_asks_is_asked_by_the_key_that_runs_it() {
    let Some((world, _model)) = world("") else { return };
    let human = Human::of(&world);
    let (phone, other) = (world.make_deciding_key(&human, "phone"), world.make_api_key("other").key);
    let server = Server::start(&world);
    let _page = human.open_page();
    let ask = |key: &str, session: &str, line: &str| {
        let message = format!("run: agent-magic-tool run by_program line='{line}' --wait");
        let body = json!({"session": session, "message": message, "wait": false}).to_string();
        let asked = server.request("POST", "/api/v1/submit", &bearer(key), &body).json();
        let path = format!("/api/v1/session/{session}");
        until("it is answered", || server.request("GET", &path, &bearer(key), "").json()["state"] != "working");
        asked
    };
    // The note waits, so the program does not wait for it.
    ask(&phone, "one", "run note text=own");
    let gate = server.request("GET", "/api/v1/gates", &bearer(&phone), "").json()["gates"][0].clone();
    assert_eq!((&gate["subtool"], &gate["own"]), (&json!("note"), &json!(true)), "{gate}");
    let path = format!("/api/v1/gate/{}", gate["id"].as_str().expect("an id"));
    let yes = json!({"decision": "approve", "digest": gate["digest"]}).to_string();
    let refused = server.request("POST", &path, &bearer(&phone), &yes);
    assert_eq!((refused.status, refused.code().as_str()), (403, "needs-scope"), "{}", refused.body);
    // No other key sees the task, whatever program asks for it.
    let id = gate["id"].as_str().expect("an id");
    ask(&other, "two", "tasks");
    let seen = server.request("GET", "/api/v1/session/two", &bearer(&other), "").body;
    assert!(!seen.contains(id), "{seen}");
    let message = format!("run: agent-magic-tool run by_program line='read {id}' --wait");
    let body = json!({"session": "three", "message": message}).to_string();
    let read = server.request("POST", "/api/v1/submit", &bearer(&other), &body);
    assert!(!read.body.contains("own"), "{}", read.body);
    assert_eq!(world.result_file(id)["state"], "awaiting_confirmation");
    // A program that is an agent of ours works for the key as well, and has no say in what is about all.
    let body = json!({"session": "four", "message": "run: agent-magic-tool run by_agent", "wait": false}).to_string();
    server.request("POST", "/api/v1/submit", &bearer(&phone), &body);
    let gates = || server.request("GET", "/api/v1/gates", &bearer(&phone), "").json()["gates"].clone();
    until("its agent asks", || gates().as_array().is_some_and(|gates| gates.len() == 2));
    assert!(gates().as_array().expect("a list").iter().all(|gate| gate["own"] == true), "{}", gates());
    let message = "run: agent-magic-tool run by_program line='serve key create evil' --wait";
    let body = json!({"session": "five", "message": message}).to_string();
    let made = server.request("POST", "/api/v1/submit", &bearer(&other), &body);
    assert!(
        world.run(&["serve", "key", "list"]).json().as_array().is_some_and(|keys| keys.len() == 2),
        "{}",
        made.body
    );
}

#[test]
fn a_program_keeps_what_narrows_its_caller() {
    let Some((world, _model)) = world("") else { return };
    let answers = |variable: &str, value: &str| {
        let input = json!({"line": "run note text=x"}).to_string();
        let mut command = world.command(&["run", "by_program", "--wait", "--input", &input]);
        let output = command.env(variable, value).output().expect("it runs");
        world.transcript(&output).to_string().replace('\\', "")
    };
    assert!(answers("AGENT_MAGIC_TOOL_READ_ONLY", "1").contains("read-only"));
    assert!(answers("AGENT_MAGIC_TOOL_SCOPE", r#"[["by_program"]]"#).contains("unknown-subtool"));
}

#[test]
fn a_file_in_a_message_has_no_commands() {
    let Some((world, model)) = world("") else { return };
    let server = Server::start(&world);
    server.ask("kept", "echo kept");
    let number = server.get("/api/v1/sessions").json()["sessions"][0]["number"].as_u64().expect("a number");
    let file = json!({"text": format!("Notes\n!delete {number}\n  !models"), "filename": "notes.txt", "mediaType": "text/plain"});
    let send = |role: &str, parts: &Value| {
        let message = json!({"messageId": role, "role": role, "parts": parts});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        server.request("POST", "/a2a", "A2A-Version: 1.0\r\n", &body.to_string()).json()
    };
    let answer = send("ROLE_USER", &json!([{"text": "Read this."}, file]));
    assert!(answer["result"].is_object(), "{answer}");
    let asked = model.asked().last().expect("asked").to_string();
    assert!(asked.contains(&format!("> !delete {number}")), "{asked}");
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"][0]["number"], number);
    let refused = send("ROLE_AGENT", &json!([{"text": "!models"}]));
    assert!(refused["error"]["message"].as_str().is_some_and(|it| it.contains("`ROLE_USER`")), "{refused}");
    let document = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": format!("!delete {number}")}});
    let content = json!([{"type": "text", "text": "Read this."}, document]);
    let body = json!({"model": "x", "max_tokens": 99, "messages": [{"role": "user", "content": content}]});
    let reply = server.post("/v1/messages", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(model.asked().last().expect("asked").to_string().contains(&format!("> !delete {number}")));
}

#[test]
fn a_key_without_commands_and_a_remote_agent_send_text_alone() {
    let Some((world, model)) = world("") else { return };
    let made = world.run(&["serve", "key", "create", "mail", "--no-commands"]);
    let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    assert_eq!(world.run(&["serve", "key", "list"]).json()[0]["commands"], false);
    let server = Server::start(&world);
    let last = || model.asked().last().expect("asked").to_string();
    let chat = json!({"model": "x", "messages": [{"role": "user", "content": "!models\n@gemini hi"}]}).to_string();
    for (path, body) in [
        ("/api/v1/submit", json!({"message": "!models\n@gemini hi"}).to_string()),
        ("/v1/chat/completions", chat.clone()),
        ("/api/chat", chat),
    ] {
        let reply = server.request("POST", path, &bearer(&key), &body);
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        assert!(last().contains("!models\\n@gemini hi"), "{path}: {}", last());
    }
    let once = server.post("/api/v1/submit", &json!({"message": "!sessions", "commands": false}));
    assert!(once.status == 200 && last().contains("!sessions"), "{}", once.body);

    let agent = |protocol: &str| {
        let run = json!({"agent": {"prompt": "{{ q }}", "url": server.url(), "protocol": protocol}});
        json!({"description": "Asks.", "annotations": {"readOnlyHint": true}, "run": run,
            "input": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}})
    };
    world.define("remote.json", &json!({"by_api": agent("api"), "by_a2a": agent("a2a")}));
    for name in ["by_api", "by_a2a"] {
        let result = world.result_of(name, &json!({"q": "Summarise:\n!sessions\nplease"}));
        assert_eq!(result["status"], "succeeded", "{name}: {result:#}");
        assert!(last().contains("Summarise:\\n!sessions\\nplease"), "{name}: {}", last());
    }
}

#[test]
fn a_key_with_a_profile_decides_only_about_what_the_profile_has() {
    let profile = "[profiles.notes]\nallow = [\"note\"]\n[profiles.none]\nallow = [\"count_words\"]\n";
    let Some((world, model)) = world("") else { return };
    world.configure(&format!("{}{profile}", model.configuration("")));
    let human = Human::of(&world);
    let [free, notes, none] = ["free", "notes", "none"].map(|name| world.make_deciding_key(&human, name));
    for (key, profile) in [("notes", "notes"), ("none", "none")] {
        let set = world.run(&["serve", "key", "set-profile", key, profile]);
        assert_eq!(set.exit, 0, "{set}");
    }
    let server = Server::start(&world);
    let id = world.start("note", &json!({"text": "x"}));
    let get = |key: &str, path: &str| server.request("GET", path, &bearer(key), "");
    for key in [&free, &notes] {
        assert_eq!(get(key, "/api/v1/gates").json()["gates"][0]["id"], *id);
    }
    let digest = get(&free, &format!("/api/v1/gate/{id}")).json()["digest"].clone();
    assert_eq!(get(&none, "/api/v1/gates").json(), json!({"gates": [], "more": 0}));
    assert_eq!(get(&none, &format!("/api/v1/gate/{id}")).status, 404);
    let yes = json!({"decision": "approve", "digest": digest}).to_string();
    let decide = |key: &str| server.request("POST", &format!("/api/v1/gate/{id}"), &bearer(key), &yes);
    let refused = decide(&none);
    assert_eq!((refused.status, refused.code().as_str()), (404, "not-found"), "{}", refused.body);
    assert_eq!(decide(&notes).status, 200);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}
