//! `hook`: the protocol of each client, one wake-up per result, and silence on every error.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::{TEST_TIMEOUT, Transcript, World, until};

const SESSION: &str = "01a2001c-0ec4-72e3-95b6-569ad0b53a37";

/// A world with the subtool `gate`, which ends when the file at `path` exists.
fn world() -> World {
    let world = World::new();
    let gate = json!({"description": "Waits for a file.", "input": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["sh", "-c", "until [ -e \"$0\" ]; do sleep 0.02; done; echo the content", "{{ path }}"]}}});
    world.define("gate.json", &json!({"gate": gate}));
    world
}

/// The hook input that Codex 0.169 sends.
fn codex(event: &str, session: &str) -> String {
    json!({"session_id": session, "turn_id": "01a2001c-0edd-78e3-9cdf-205c08dde390", "transcript_path": "/t.jsonl",
        "cwd": "/work", "hook_event_name": event, "model": "stub", "permission_mode": "default",
        "stop_hook_active": false, "last_assistant_message": "I wait."})
    .to_string()
}

impl World {
    /// Starts a Codex session that can be woken.
    fn codex_session(&self, session: &str) {
        let ran = self.run_with(&["hook", "codex"], &codex("SessionStart", session));
        assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    }

    fn in_session(&self, variable: &str, value: &str, arguments: &[&str]) -> Transcript {
        self.transcript(&self.command(arguments).env(variable, value).output().expect("the program starts"))
    }

    /// Runs `gate` as a command of that session; returns the task's id.
    fn delegate(&self, session: &str, gate: &str) -> String {
        let path = format!("path={}", self.gate(gate));
        let ran = self.in_session("CODEX_THREAD_ID", session, &["run", "gate", &path]);
        ran.json()["id"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
    }

    fn gate(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    fn open(&self, gate: &str) {
        fs::write(self.gate(gate), "").expect("written");
    }

    /// Runs the hook at the end of a turn.
    fn stop(&self, session: &str) -> Transcript {
        self.run_with(&["hook", "codex", "--wait=30s"], &codex("Stop", session))
    }

    /// Starts the hook at the end of a turn, without waiting for it.
    fn start_stop_hook(&self, session: &str) -> Child {
        let mut command = self.command(&["hook", "codex", "--wait=60s"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = codex("Stop", session);
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
        child
    }

    fn is_final(&self, id: &str) -> bool {
        self.result_file(id)["status"] != "pending"
    }
}

#[test]
fn a_result_wakes_its_session_once() {
    let world = world();
    world.codex_session(SESSION);
    let id = world.delegate(SESSION, "one");
    let hook = world.start_stop_hook(SESSION);
    world.open("one");
    let ran = world.transcript(&hook.wait_with_output().expect("the program ends"));
    assert_snapshot!(ran, @r#"
    exit: 0
    --- stdout
    {"decision":"block","reason":"Results are ready:\n- ID (gate): succeeded, MAILBOX/results/result-ID.json\nRead them with `agent-magic-tool read ID`, then go on."}
    "#);
    assert!(ran.stdout.contains(&id) && !ran.stdout.contains("the content"));
    let again = world.stop(SESSION);
    assert_eq!((again.exit, again.stdout.as_str(), again.stderr.as_str()), (0, "", ""), "a result wakes only once");
}

#[test]
fn each_client_is_answered_in_its_own_protocol() {
    let world = world();
    let folder = world.folder().display().to_string();
    let text = |input: Value| input.to_string();
    let session = |event: &str| text(json!({"session_id": SESSION, "cwd": folder, "hook_event_name": event}));
    // The inputs of Claude Code 2.1.197, Gemini CLI 0.61, our plugin in OpenCode 1.18, and Cursor's documentation.
    let clients = [
        ("claude-code", ("CLAUDE_CODE_SESSION_ID", SESSION), session("SessionStart"), session("Stop")),
        ("gemini-cli", ("GEMINI_CLI", "1"), session("SessionStart"), session("AfterAgent")),
        ("opencode", ("OPENCODE_SESSION_ID", SESSION), session("SessionStart"), session("Stop")),
        (
            "cursor",
            ("CURSOR_AGENT", "1"),
            text(json!({"conversation_id": "c", "hook_event_name": "sessionStart", "workspace_roots": [folder]})),
            text(json!({"conversation_id": "c", "hook_event_name": "stop", "status": "completed", "loop_count": 0,
                "workspace_roots": [folder]})),
        ),
    ];
    let mut answers = Vec::new();
    for (client, (variable, value), start, end) in clients {
        let ran = world.run_with(&["hook", client], &start);
        assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""), "{client}");
        let path = format!("path={}", world.gate(client));
        let ran = world.in_session(variable, value, &["run", "gate", &path]);
        assert_eq!(ran.json()["next"], Value::Null, "{client}: {ran}");
        world.open(client);
        answers.push(format!("{client}\n{}", world.run_with(&["hook", client, "--wait=30s"], &end)));
    }
    assert_snapshot!(answers.join("\n"), @r#"
    claude-code
    exit: 2
    --- stderr
    Results are ready:
    - ID (gate): succeeded, MAILBOX/results/result-ID.json
    Read them with `agent-magic-tool read ID`, then go on.

    gemini-cli
    exit: 0
    --- stdout
    {"decision":"deny","reason":"Results are ready:\n- ID (gate): succeeded, MAILBOX/results/result-ID.json\nRead them with `agent-magic-tool read ID`, then go on."}

    opencode
    exit: 0
    --- stdout
    {"wake":"Results are ready:\n- ID (gate): succeeded, MAILBOX/results/result-ID.json\nRead them with `agent-magic-tool read ID`, then go on."}

    cursor
    exit: 0
    --- stdout
    {"followup_message":"Results are ready:\n- ID (gate): succeeded, MAILBOX/results/result-ID.json\nRead them with `agent-magic-tool read ID`, then go on."}
    "#);
}

#[test]
fn a_wake_up_is_promised_only_to_sessions_that_can_be_woken() {
    let world = world();
    let path = format!("path={}", world.gate("never"));
    let arguments = ["run", "gate", path.as_str()];
    let messages = |ran: &Transcript| {
        let id = ran.json()["id"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned();
        let file = world.result_file(&id);
        (ran.json()["message"].clone(), ran.json()["next"].clone(), file["message"].clone(), file["next"].clone(), id)
    };
    let woken = "You will be woken when it is final: end your turn or go on with other work.";
    let delegated = "The tool execution has been delegated to the agent.";

    // Whether or not the hook is installed, it has not run in this session.
    let (message, next, in_file, next_in_file, id) =
        messages(&world.in_session("CODEX_THREAD_ID", SESSION, &arguments));
    let wait = json!(format!("agent-magic-tool wait {id}"));
    assert_eq!((message, &next, &next_in_file), (Value::Null, &wait, &wait));
    assert_eq!(in_file, format!("{delegated} Run `agent-magic-tool wait {id}` for its result."));

    world.codex_session(SESSION);
    for (variable, value) in [("CODEX_THREAD_ID", SESSION), ("AGENT_MAGIC_TOOL_WAKES", "1")] {
        let (message, next, in_file, next_in_file, _) = messages(&world.in_session(variable, value, &arguments));
        assert_eq!((message, next, next_in_file), (json!(woken), Value::Null, Value::Null), "{variable}");
        assert_eq!(in_file, format!("{delegated} {woken}"));
    }
    let (_, next, ..) = messages(&world.in_session("CODEX_THREAD_ID", "another", &arguments));
    assert_ne!(next, Value::Null);
}

#[test]
fn a_result_that_the_model_has_read_itself_causes_no_wake_up() {
    let world = world();
    world.codex_session(SESSION);
    world.open("now");
    for command in ["wait", "read"] {
        let id = world.delegate(SESSION, "now");
        until("it is final", || world.is_final(&id));
        // A human or another session that reads it does not cancel the model's wake-up.
        world.run(&[command, &id]);
        assert_eq!(world.in_session("CODEX_THREAD_ID", "another", &[command, &id]).exit, 0);
        let folder = world.mailbox().join("wakeups");
        let wakeups = || {
            let sessions = fs::read_dir(&folder).expect("a folder").flatten();
            sessions.flat_map(|session| fs::read_dir(session.path()).expect("a folder").flatten()).count()
        };
        assert_eq!(wakeups(), 1, "{command}");
        assert_eq!(world.in_session("CODEX_THREAD_ID", SESSION, &[command, &id]).exit, 0);
        assert_eq!(wakeups(), 0, "{command}");
    }
    let path = format!("path={}", world.gate("now"));
    world.in_session("CODEX_THREAD_ID", SESSION, &["run", "gate", &path, "--wait"]);
    let ran = world.stop(SESSION);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, ""));
}

#[test]
fn a_session_is_woken_only_for_its_own_tasks() {
    let world = world();
    for session in ["one", "two"] {
        world.codex_session(session);
    }
    world.open("now");
    let ids = ["one", "two"].map(|session| world.delegate(session, "now"));
    until("both are final", || ids.iter().all(|id| world.is_final(id)));
    for (session, own, other) in [("one", &ids[0], &ids[1]), ("two", &ids[1], &ids[0])] {
        let ran = world.stop(session);
        assert!(ran.stdout.contains(own) && !ran.stdout.contains(other), "{ran}");
    }
}

#[test]
fn ready_results_come_in_one_wake_up_and_the_others_later() {
    let world = world();
    world.codex_session(SESSION);
    let ids: Vec<_> = ["a", "b", "late"].iter().map(|gate| world.delegate(SESSION, gate)).collect();
    world.open("a");
    world.open("b");
    until("two are final", || ids[..2].iter().all(|id| world.is_final(id)));
    let reason = world.stop(SESSION).json()["reason"].as_str().expect("a reason").to_owned();
    assert!(ids[..2].iter().all(|id| reason.contains(id)) && !reason.contains(&ids[2]), "{reason}");
    assert!(reason.ends_with("1 more under way; you will be woken for the rest."), "{reason}");
    world.open("late");
    let ran = world.stop(SESSION);
    assert!(ran.stdout.contains(&ids[2]) && !ran.stdout.contains(&ids[0]), "{ran}");
}

#[test]
fn of_two_hooks_that_wait_for_one_session_only_one_wakes_it() {
    let world = world();
    world.codex_session(SESSION);
    world.delegate(SESSION, "one");
    let hooks = [world.start_stop_hook(SESSION), world.start_stop_hook(SESSION)];
    world.open("one");
    let answers = hooks.map(|hook| world.transcript(&hook.wait_with_output().expect("the program ends")));
    assert_eq!(answers.iter().filter(|ran| !ran.stdout.is_empty()).count(), 1, "{} {}", answers[0], answers[1]);
    assert!(answers.iter().all(|ran| ran.exit == 0));
}

#[test]
fn a_hook_stops_waiting_at_its_timeout() {
    let world = world();
    world.codex_session(SESSION);
    world.delegate(SESSION, "never");
    let started = Instant::now();
    let ran = world.run_with(&["hook", "codex", "--wait=300ms"], &codex("Stop", SESSION));
    assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    assert!(started.elapsed() >= Duration::from_millis(300) && started.elapsed() < TEST_TIMEOUT);
}

#[test]
fn a_waiting_hook_restarts_a_killed_executor() {
    let world = world();
    world.codex_session(SESSION);
    let id = world.delegate(SESSION, "one");
    until("it runs", || world.result_file(&id)["state"] == "running");
    world.kill_executor();
    let hook = world.start_stop_hook(SESSION);
    world.open("one");
    let ran = world.transcript(&hook.wait_with_output().expect("the program ends"));
    assert!(ran.stdout.contains(&id), "{ran}");
}

#[test]
fn errors_never_disturb_the_client() {
    let world = world();
    let assert_silent = |what: &str, ran: &Transcript| {
        assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""), "{what}");
    };
    for input in ["", "{", "[]", "null", "{\"hook_event_name\": \"Stop\"}", "{\"hook_event_name\": \"Other\"}"] {
        assert_silent(input, &world.run_with(&["hook", "codex"], input));
    }
    assert_silent("no mailbox", &world.stop(SESSION));
    assert_silent("an unknown client", &world.run_with(&["hook", "unknown"], &codex("Stop", SESSION)));
    assert_silent(
        "an option of a later version",
        &world.run_with(&["hook", "codex", "--later"], &codex("Stop", SESSION)),
    );
    assert_silent("a client without a hook", &world.run_with(&["hook", "goose"], &codex("Stop", SESSION)));
    let homeless = world.command(&["hook", "codex"]).env_remove("HOME").output().expect("the program starts");
    assert_silent("no home", &world.transcript(&homeless));
    let elsewhere = ["hook", "codex", "--mailbox", "/proc/mailbox"];
    assert_silent("a mailbox that cannot be created", &world.run_with(&elsewhere, &codex("Stop", SESSION)));
    let log = fs::read_to_string(world.state().join("hook.log")).expect("errors are logged");
    assert!(log.lines().count() >= 7, "{log}");

    world.codex_session(SESSION);
    let id = world.delegate(SESSION, "now");
    world.configure("this is no TOML");
    let hook = world.start_stop_hook(SESSION);
    world.open("now");
    let ran = world.transcript(&hook.wait_with_output().expect("the program ends"));
    assert!(ran.exit == 0 && ran.stdout.contains(&id) && ran.stderr.is_empty(), "an invalid configuration: {ran}");
}

#[test]
fn the_hook_does_not_wait_for_input_that_never_ends() {
    let world = world();
    let mut command = world.command(&["hook", "codex"]);
    let started = Instant::now();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    // Stays open until the end of the test.
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"{\"hook_event_name\": \"St").expect("written");
    assert!(child.wait().expect("it ends").success());
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("read");
    assert_eq!(output, "");
    assert!(started.elapsed() < TEST_TIMEOUT);
    drop(stdin);
}

#[test]
fn a_wake_up_that_cannot_be_recorded_as_delivered_is_not_delivered() {
    let world = world();
    world.codex_session(SESSION);
    world.open("now");
    let id = world.delegate(SESSION, "now");
    until("it is final", || world.is_final(&id));
    let sessions = fs::read_dir(world.mailbox().join("wakeups")).expect("there");
    let session = sessions.flatten().next().expect("one session").path();
    // A folder in the place of the file that is written before the delivery makes the delivery fail.
    fs::create_dir(session.join(".telling")).expect("made");
    let ran = world.stop(SESSION);
    assert_eq!((ran.exit, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", ""));
    fs::remove_dir(session.join(".telling")).expect("removed");
    assert!(world.stop(SESSION).stdout.contains(&id));
}
