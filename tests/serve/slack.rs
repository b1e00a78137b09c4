//! Slack through the binary, against a stand-in that Slack's own SDKs are run against, too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::waiting::{WAITS, question};
use super::{Server, world_with_model};
use crate::agent::aimock::Model;
use crate::skip::skip;
use crate::world::{Lines, World, until};
use stand_in::{APP_TOKEN, BOT_TOKEN, BOT_USER, Fault, StandIn, disconnect, envelope, mention, message, press};

mod stand_in;

const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_SERVE_NODE";
const ANN: &str = "U0ANN";
const CHANNEL: &str = "C0GENERAL";

/// The folder of the node packages; `None`, with a note on standard error, if they are not installed.
fn packages() -> Option<PathBuf> {
    let packages = std::env::var_os(PACKAGES).map(PathBuf::from);
    if packages.is_none() {
        skip(&format!("{PACKAGES} does not name the node packages `@slack/socket-mode` and `@slack/web-api`"));
    }
    packages
}

/// A world whose server answers in a stand-in for Slack, once it is started.
fn world(more: &str) -> Option<(World, Model, StandIn)> {
    let slack = StandIn::start();
    let table =
        format!("[serve.slack]\napi_url = \"{}\"\nusers = [\"{ANN}\"]\ninterval = \"50ms\"\n{more}\n", slack.api_url());
    let (world, model) = world_with_model(&table)?;
    for (name, token) in [("slack_app_token", APP_TOKEN), ("slack_bot_token", BOT_TOKEN)] {
        let stored = world.run_with(&["secret", "set", name], token);
        assert_eq!(stored.exit, 0, "{stored}");
    }
    Some((world, model, slack))
}

fn thread_is(slack: &StandIn, ts: &str, texts: &[&str]) {
    slack.wait(&format!("{texts:?} in {ts}"), |state| {
        let in_thread = state.messages.iter().filter(|message| message.thread.as_deref() == Some(ts));
        in_thread.map(stand_in::StandInMessage::text).eq(texts.iter().copied()).then_some(())
    });
}

#[test]
fn a_thread_is_a_session_with_tasks_and_commands() {
    let Some((world, _model, slack)) = world("") else { return };
    let server = Server::start(&world);
    slack.connected(1);
    let asked = slack.event(&mention(ANN, CHANNEL, "1.1", "How many words are in it?"));
    slack.acknowledged(&asked);
    slack.message("There are 3 words.");
    let mut follow = message(ANN, CHANNEL, "channel", "1.9", "!session");
    follow["thread_ts"] = "1.1".into();
    slack.event(&follow);
    slack.message("session 101 (slack-C0GENERAL-1.1)");
    slack.event(&message(ANN, "D0ANN", "im", "2.1", "echo two"));
    thread_is(&slack, "2.1", &[["two"; 8].join(" ").as_str()]);
    let sessions = server.get("/api/v1/sessions").json();
    let clients: Vec<_> =
        sessions["sessions"].as_array().expect("a list").iter().map(|one| one["client"].clone()).collect();
    assert_eq!(clients, ["slack-C0GENERAL-1.1", "slack-D0ANN-2.1"]);
    // What is not of the channel is neither listed nor deleted there.
    server.ask("api-1", "echo three");
    for (ts, number) in [("2.8", 102), ("2.9", 103)] {
        let mut outside = message(ANN, CHANNEL, "channel", ts, &format!("!sessions\n!delete {number}"));
        outside["thread_ts"] = "1.1".into();
        slack.event(&outside);
        let told = slack.message(&format!("no session `{number}`"));
        let is_listed = ["slack-C0GENERAL-1.1", "slack-D0ANN", "api-1"].map(|client| told.text().contains(client));
        assert_eq!(is_listed, [true, false, false], "{}", told.text());
    }
    assert_eq!(server.get("/api/v1/sessions").json()["sessions"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_no_in_slack_cancels_the_task_and_a_yes_comes_from_the_page() {
    let Some((world, _model, slack)) = world("") else { return };
    let _server = Server::start(&world);
    slack.connected(1);
    slack.event(&mention(ANN, CHANNEL, "1.1", "Write a note"));
    let waiting = slack.message("waits for your decision");
    slack.send(&press("p1", ANN, &waiting));
    slack.acknowledged("p1");
    slack.message("said *No*: it was cancelled");
    let refused = waiting.body.pointer("/blocks/1/elements/0/value").and_then(Value::as_str).expect("a button");
    until("it is cancelled", || world.result_file(refused)["status"] == "cancelled");

    slack.event(&mention(ANN, CHANNEL, "2.1", "Write a note"));
    let waiting = slack.wait("the second one waits", |state| {
        let mut waiting = state.messages.iter().filter(|message| message.text().contains("waits for your decision"));
        waiting.find(|message| message.thread.as_deref() == Some("2.1")).cloned()
    });
    let id = waiting.body.pointer("/blocks/1/elements/0/value").and_then(Value::as_str).expect("a button").to_owned();
    world.decide(&id, "approve", "");
    slack.message("The note is written.");
    slack.message("it succeeded");
    assert_eq!(std::fs::read_to_string(world.folder().join("note.txt")).expect("written"), "hello");
}

#[test]
fn a_call_that_waits_shows_its_gate_in_slack() {
    let Some((world, _model, slack)) = world("") else { return };
    let _server = Server::start(&world);
    slack.connected(1);
    for (number, wait) in WAITS.iter().enumerate() {
        let ts = format!("{number}.1");
        slack.event(&mention(ANN, CHANNEL, &ts, &question(wait)));
        let waiting = slack.wait(&format!("{wait}: it waits"), |state| {
            let mut waiting =
                state.messages.iter().filter(|message| message.text().contains("waits for your decision"));
            waiting.find(|message| message.thread.as_deref() == Some(&ts)).cloned()
        });
        let id = waiting.body.pointer("/blocks/1/elements/0/value").and_then(Value::as_str).expect("a button");
        world.decide(id, "approve", "");
        until("the note is written", || {
            std::fs::read_to_string(world.folder().join("note.txt"))
                .is_ok_and(|text| text == "hello".repeat(number + 1))
        });
    }
}

#[test]
fn a_killed_server_posts_the_answer_after_its_restart_and_asks_once() {
    killed_server(false);
}

#[test]
fn a_task_that_ended_while_the_server_was_down_is_answered_after_its_restart() {
    killed_server(true);
}

fn killed_server(ends_meanwhile: bool) {
    let Some((world, model, slack)) = world("") else { return };
    let server = Server::start(&world);
    slack.connected(1);
    let hold = world.folder().join("hold");
    std::fs::write(&hold, "").expect("written");
    let event = mention(ANN, CHANNEL, "1.1", "How many words are in it?");
    slack.send(&envelope("e1", "Ev1", &event, 0));
    slack.acknowledged("e1");
    let first = slack.message("It is under way.");
    let records = world.state().join("serve/slack/deliveries.jsonl");
    let posted = format!("\"messages\":[\"{}\"]", first.ts);
    until("it is recorded", || std::fs::read_to_string(&records).is_ok_and(|text| text.contains(&posted)));
    server.kill();
    let end_task = || {
        std::fs::remove_file(&hold).expect("removed");
        until("the task has ended", || world.run(&["tasks", "--state=succeeded"]).json()[0].is_object());
    };
    if ends_meanwhile {
        end_task();
    }
    let _server = Server::start(&world);
    slack.connected(2);
    if !ends_meanwhile {
        end_task();
    }
    slack.send(&envelope("e2", "Ev1", &event, 1));
    slack.acknowledged("e2");
    let message = slack.message("There are 3 words.");
    assert_eq!(message.ts, first.ts, "it goes on in the message that it had begun");
    let asked = model.asked();
    let questions = asked.iter().filter(|body| body["messages"].as_array().is_some_and(|all| all.len() == 2)).count();
    assert_eq!(questions, 1, "it was asked once");
    let tasks = world.run(&["tasks"]).json();
    assert_eq!(tasks.as_array().map(Vec::len), Some(1), "{tasks}");
}

#[test]
fn a_refused_token_does_not_stop_the_other_interfaces() {
    let Some((world, _model, slack)) = world("") else { return };
    slack.fail("auth.test", [Fault::Error("account_inactive")]);
    let mut command = world.command(&["serve", "--listen=127.0.0.1:0"]);
    let errors = tempfile_in(&world);
    command.stderr(std::fs::File::create(&errors).expect("a file"));
    let server = Server::of(command);
    until("it is told", || std::fs::read_to_string(&errors).is_ok_and(|text| text.contains("Slack")));
    let text = std::fs::read_to_string(&errors).expect("there");
    assert!(
        text.contains("account_inactive") && text.contains("agent-magic-tool secret set slack_bot_token"),
        "{text}"
    );
    assert_eq!(server.get("/health").status, 200);
    world.configure("[serve.slack]\nusers = [\"@ann\"]\n");
    let refused = world.run(&["serve", "--listen=127.0.0.1:0"]);
    assert!(refused.exit == 2 && refused.stderr.contains("`@ann` is not a member id"), "{refused}");
}

fn tempfile_in(world: &World) -> PathBuf {
    world.folder().join("serve-errors")
}

/// A program of Slack's SDKs that runs.
struct SdkProgram {
    process: std::process::Child,
    lines: Lines,
}

impl SdkProgram {
    fn start(packages: &Path, slack: &StandIn) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/serve/slack/sdk.mjs");
        let mut process = Command::new("node")
            .args([script.as_os_str(), packages.as_os_str()])
            .args([slack.api_url().as_str(), APP_TOKEN, BOT_TOKEN])
            // The program ends when its standard input closes.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let lines = Lines::of(process.stdout.take().expect("a pipe"));
        Self { process, lines }
    }

    /// What it says next.
    fn says(&mut self) -> Value {
        let line = self.lines.next();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for SdkProgram {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// The stand-in is Slack to Slack's own SDKs: they connect, acknowledge, post, edit, obey a rate limit and come back.
#[test]
fn slacks_own_sdks_accept_the_stand_in() {
    let Some(packages) = packages() else { return };
    let slack = StandIn::start();
    slack.fail("chat.update", [Fault::TooMany(1)]);
    let mut sdk = SdkProgram::start(&packages, &slack);
    assert_eq!(sdk.says(), json!({"identity": {"user_id": BOT_USER, "team_id": stand_in::TEAM}}));
    assert_eq!(sdk.says(), json!({"connected": true}));
    let asked = slack.event(&mention(ANN, CHANNEL, "1.1", "hi"));
    slack.acknowledged(&asked);
    assert_eq!(sdk.says(), json!({"mention": format!("<@{BOT_USER}> hi"), "retry": 0, "user": ANN}));
    let posted = sdk.says();
    let message = slack.message("edited");
    assert_eq!((posted["posted"].as_str(), message.thread.as_deref()), (Some(message.ts.as_str()), Some("1.1")));
    assert_eq!(message.edits, 1);
    let edits: Vec<_> =
        slack.state().calls.iter().filter(|call| call.method == "chat.update").map(|call| call.at).collect();
    assert!(edits.len() == 2 && edits[1].duration_since(edits[0]).as_millis() >= 1000, "it obeyed the rate limit");
    slack.send(&press("p1", ANN, &message));
    slack.acknowledged("p1");
    assert_eq!(
        sdk.says(),
        json!({"action": "agent_magic_tool_no", "value": "a task", "user": ANN, "message": message.ts})
    );
    assert_eq!(sdk.says(), json!({"errors": ["message_not_found", "invalid_auth", "not_allowed_token_type"]}));
    slack.ping();
    slack.wait("a pong", |state| state.acknowledged.iter().any(|(id, ..)| id.starts_with("pong")).then_some(()));
    slack.send(&disconnect("refresh_requested"));
    assert_eq!(sdk.says(), json!({"connected": true}));
    slack.event(&mention(ANN, CHANNEL, "2.1", "again"));
    assert_eq!(sdk.says()["mention"], format!("<@{BOT_USER}> again"));
    assert_eq!(slack.thread(CHANNEL, "1.1"), ["edited"]);
    slack.close();
    assert_eq!(sdk.says(), json!({"connected": true}));
    // Without an answer to its pings, it goes as well.
    slack.freeze();
    assert_eq!(sdk.says(), json!({"connected": true}));
    slack.send_over(3, &envelope("e9", "Ev9", &mention(ANN, CHANNEL, "3.1", "still"), 2));
    assert_eq!(sdk.says(), json!({"mention": format!("<@{BOT_USER}> still"), "retry": 2, "user": ANN}));
}

/// What we send, and what the tests say that Slack sends, are what Slack's types say.
#[test]
fn everything_on_the_wire_has_the_types_of_slacks_sdks() {
    let Some(packages) = packages() else { return };
    let Some((world, _model, slack)) = world("") else { return };
    slack.fail("auth.test", [Fault::Cut]);
    let _server = Server::start(&world);
    slack.connected(1);
    slack.fail("chat.postMessage", [Fault::TooMany(1), Fault::Status(503)]);
    let direct = message(ANN, "D0ANN", "im", "3.1", "echo direct");
    let asked = mention(ANN, CHANNEL, "1.1", "Write a note");
    slack.event(&asked);
    slack.event(&direct);
    slack.event(&mention("U0EVE", CHANNEL, "2.1", "may I?"));
    let waiting = slack.message("waits for your decision");
    let pressed = press("p1", ANN, &waiting);
    slack.send(&pressed);
    slack.message("said *No*");
    slack.message("direct direct");
    slack.wait("a word to the stranger", |state| {
        state.calls.iter().find(|call| call.method == "chat.postEphemeral").map(drop)
    });
    let types = [
        ("chat.postMessage", "ChatPostMessageArguments"),
        ("chat.update", "ChatUpdateArguments"),
        ("chat.postEphemeral", "ChatPostEphemeralArguments"),
    ];
    let mut source = String::from(
        "import type { ChatPostMessageArguments, ChatUpdateArguments, ChatPostEphemeralArguments } from \"@slack/web-api\";\n\
         import type { AppMentionEvent, GenericMessageEvent } from \"@slack/types\";\n",
    );
    let mut number = 0;
    let mut state_is = |kind: &str, value: &Value| {
        number += 1;
        source.extend([format!("export const value{number}: {kind} = {value};\n")]);
    };
    let calls = slack.state().calls.clone();
    for (method, kind) in types {
        let bodies: Vec<_> = calls.iter().filter(|call| call.method == method).map(|call| &call.body).collect();
        assert!(!bodies.is_empty(), "{method} is called");
        for body in bodies {
            state_is(kind, body);
        }
    }
    // Properties that the type does not name are allowed in what Slack sends: it sends more than its types say.
    state_is(
        "Pick<AppMentionEvent, \"type\" | \"user\" | \"text\" | \"ts\" | \"channel\" | \"event_ts\" | \"team\"> & { client_msg_id: string }",
        &asked,
    );
    state_is("Omit<GenericMessageEvent, \"subtype\">", &direct);
    let folder = world.folder();
    std::fs::write(folder.join("wire.ts"), &source).expect("written");
    std::os::unix::fs::symlink(&packages, folder.join("node_modules")).expect("linked");
    let checked = |file: &str| {
        let mut compiler = Command::new("node");
        compiler.arg(packages.join("typescript/bin/tsc"));
        compiler.args(["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]);
        let printed = compiler.arg(file).current_dir(&folder).output().expect("node starts");
        (printed.status.success(), String::from_utf8_lossy(&printed.stdout).into_owned())
    };
    let (is_valid, printed) = checked("wire.ts");
    assert!(is_valid, "{printed}\n{source}");
    // The check finds what is wrong.
    std::fs::write(folder.join("wrong.ts"), source.replace("\"link_names\"", "\"link_nmaes\"")).expect("written");
    let (is_valid, printed) = checked("wrong.ts");
    assert!(!is_valid && printed.contains("link_nmaes"), "{printed}");
}
