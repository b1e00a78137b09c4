//! Servers of the Model Context Protocol: what they answer arrives, and whatever they do, each call has its end and no
//! process is left.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use serde_json::{Map, Value, json};

use crate::page::human::Human;
use crate::world::{World, is_alive, until};

mod approved;
mod servers;
mod versions;

const TOOLS: [&str; 20] = [
    "echo",
    "crash",
    "silent",
    "flood",
    "noise",
    "huge",
    "change",
    "twice",
    "stray_id",
    "not_utf8",
    "fork",
    "fail",
    "refuse",
    "late",
    "ask",
    "task",
    "slow_ask",
    "unstructured",
    "environment",
    "structured",
];

/// The server that misbehaves on request.
pub(crate) fn crooked_server() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("tests/executor/mcp/server.py")
}

/// Defines every tool of the crooked server, as `NAME_TOOL`.
fn define(world: &World, name: &str, env: &Value, keys: &Value) {
    let server = json!({"name": name, "command": ["python3", crooked_server()], "env": env});
    let mut file =
        Map::from_iter([("$defaults".to_owned(), json!({"run": {"mcp": {"server": server}}, "confirm": "never"}))]);
    for tool in TOOLS {
        let mut definition = json!({"description": format!("Does {tool}."),
            "input": {"type": "object", "properties": {"message": {"type": "string"}}},
            "timeout": "20s", "run": {"mcp": {"tool": tool}}});
        for (key, value) in keys.as_object().into_iter().flatten() {
            definition[key] = value.clone();
        }
        file.insert(format!("{name}_{tool}"), definition);
    }
    world.define(&format!("{name}.json"), &Value::Object(file));
}

/// A world with the crooked server of both kinds, `old` and `new`.
fn world() -> World {
    let world = World::new();
    let folder = world.folder();
    let (counter, tasks) = (folder.join("count"), folder.join("tasks"));
    fs::create_dir(&tasks).expect("made");
    define(&world, "old", &json!({"counter": counter}), &json!({}));
    define(&world, "new", &json!({"counter": counter, "MODERN": "1", "tasks": tasks}), &json!({}));
    world
}

/// How often the servers of `world` were told `what`.
fn count(world: &World, what: &str) -> usize {
    let counted = fs::read_to_string(world.folder().join("count")).unwrap_or_default();
    counted.lines().filter(|line| *line == what).count()
}

/// The processes of the crooked server that `world`'s executor started.
fn servers(world: &World) -> Vec<Pid> {
    let executor = world.executor().map_or(0, Pid::as_raw);
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| {
        let read = |what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let parent = read("stat").rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok());
        read("cmdline").contains("mcp/server.py") && parent == Some(executor)
    };
    pids.filter(is_ours).map(Pid::from_raw).collect()
}

#[test]
fn a_server_gets_the_secrets_of_its_environment_as_they_are_now() {
    let world = World::new();
    let set = |value: &str| assert_eq!(world.run_with(&["secret", "set", "token"], value).exit, 0);
    define(&world, "old", &json!({"TOKEN": "secret:token"}), &json!({}));
    let token = || {
        let result = world.result_of("old_echo", &json!({"message": "x"}));
        assert_eq!(result["data"], "Echo: x", "{result}");
        let newest = servers(&world).into_iter().max_by_key(|pid| pid.as_raw()).expect("a server");
        let environment = fs::read(format!("/proc/{newest}/environ")).expect("readable");
        let variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let token = variables.into_iter().find_map(|it| it.strip_prefix("TOKEN=").map(str::to_owned));
        (newest, token.expect("the variable"))
    };
    set("first-value-0123456789");
    let (first, value) = token();
    assert_eq!(value, "first-value-0123456789");
    assert_eq!(token(), (first, value), "it is kept");
    set("second-value-0123456789");
    let (second, value) = token();
    assert_eq!((second == first, value.as_str()), (false, "second-value-0123456789"));
}

#[test]
fn a_call_is_answered_by_a_server_that_is_kept() {
    let world = world();
    for kind in ["old", "new"] {
        let result = world.result_of(&format!("{kind}_echo"), &json!({"message": "年度"}));
        assert_eq!((&result["status"], &result["data"]), (&json!("succeeded"), &json!("Echo: 年度")), "{result}");
        assert_eq!(result["_meta"]["mcp_server"], kind);
    }
    let before = servers(&world);
    assert_eq!(before.len(), 2);
    for kind in ["old", "new"] {
        assert_eq!(
            world.result_of(&format!("{kind}_structured"), &json!({}))["data"],
            json!({"n": 9_007_199_254_740_993_i64})
        );
        assert_eq!(world.result_of(&format!("{kind}_unstructured"), &json!({}))["data"], Value::Null);
    }
    assert_eq!(servers(&world), before, "no server was started again");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    until("the servers are gone", || before.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn whatever_a_server_does_each_call_has_its_end() {
    let world = world();
    world.configure("[executor]\noutput_bytes = 10_000_000\n");
    for kind in ["old", "new"] {
        let result = |tool: &str| world.result_of(&format!("{kind}_{tool}"), &json!({"message": "m"}));
        let data = |tool: &str| result(tool)["data"].clone();
        assert_eq!(data("flood"), "flooded");
        assert_eq!(data("noise"), "after noise");
        assert_eq!(data("twice"), "first");
        assert_eq!(data("stray_id"), "to you");
        assert_eq!(data("not_utf8"), "A\u{fffd}B");
        assert_eq!(data("echo"), "Echo: m", "the second answer of `twice` was for no call");
        let failed = result("fail");
        assert_eq!(
            (&failed["error"]["code"], &failed["error"]["message"]),
            (&json!("api-error"), &json!("no such thing"))
        );
        let refused = result("refuse");
        assert_eq!(refused["error"]["details"]["jsonrpc_code"], -32602, "{refused}");
        assert_eq!(refused["error"]["details"]["data"]["field"], "message");
        let huge = result("huge");
        assert_eq!(huge["error"]["details"]["cause"], "response-too-large", "{huge}");
        let crashed = result("crash");
        assert_eq!(
            (&crashed["status"], &crashed["error"]["details"]["cause"]),
            (&json!("unknown"), &json!("connection-lost")),
            "{crashed}"
        );
        assert_eq!(
            crashed["error"]["details"]["stderr"].as_str().map(|it| it.contains("out of cheese")),
            Some(true),
            "{crashed}"
        );
        assert!(crashed["error"]["message"].as_str().is_some_and(|it| it.contains("exit status: 7")), "{crashed}");
        assert_eq!(count(&world, "crash"), 1 + usize::from(kind == "new"), "a write is not repeated");
        assert_eq!(data("echo"), "Echo: m", "started again");
    }
}

#[test]
fn a_call_that_is_never_answered_holds_up_no_other_and_is_cancelled_there() {
    let world = world();
    for kind in ["old", "new"] {
        let silent = world.start(&format!("{kind}_silent"), &json!({}));
        until("the call has arrived", || count(&world, "silent") > 0);
        assert_eq!(world.result_of(&format!("{kind}_echo"), &json!({"message": "x"}))["data"], "Echo: x");
        let cancelled = count(&world, "cancelled");
        assert_eq!(world.run(&["cancel", &silent]).exit, 0);
        assert_eq!(world.end_of(&silent)["status"], "cancelled");
        until("the server was told", || count(&world, "cancelled") > cancelled);
        fs::remove_file(world.folder().join("count")).expect("removed");
    }
    define(&world, "short", &json!({}), &json!({"timeout": "4s"}));
    let result = world.result_of("short_silent", &json!({}));
    assert_eq!(
        (&result["status"], &result["error"]["details"]["cause"]),
        (&json!("unknown"), &json!("timed-out")),
        "{result}"
    );
}

#[test]
fn what_a_server_starts_ends_with_it() {
    let world = World::new();
    define(&world, "stubborn", &json!({"STUBBORN": "1"}), &json!({}));
    let child = world.result_of("stubborn_fork", &json!({}))["data"].as_str().and_then(|pid| pid.parse().ok());
    let child = Pid::from_raw(child.expect("a process id"));
    assert!(is_alive(child));
    let server = servers(&world);
    assert_eq!(server.len(), 1);
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    until("all are gone", || !is_alive(child) && !is_alive(server[0]));
}

#[test]
fn a_server_gets_the_declared_environment_and_no_other() {
    let world = World::new();
    define(&world, "env", &json!({"API_KEY": "secret:the-key", "PLAIN": "x"}), &json!({}));
    let missing = world.result_of("env_environment", &json!({}));
    assert_eq!(missing["error"]["code"], "secret-missing", "{missing}");
    world.run_with(&["secret", "set", "the-key"], "hunter22-hunter22");
    let result = world.result_of("env_environment", &json!({}));
    let text = result["data"].as_str().unwrap_or_else(|| panic!("{result}"));
    assert!(text.contains("PLAIN=x") && text.contains("API_KEY=") && !text.contains("hunter22"), "{text}");
    let names: Vec<_> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let ours = ["AGENT_MAGIC_TOOL_PROGRAM", "AGENT_MAGIC_TOOL_SCOPE"];
    let known = ["API_KEY", "HOME", "LANG", "LC_CTYPE", "PATH", "PLAIN", "TMPDIR", "USER"];
    assert!(names.iter().all(|name| known.contains(name) || ours.contains(name)), "{names:?}");
    // It serves all callers, and may call nothing for one of them.
    assert!(text.contains("AGENT_MAGIC_TOOL_SCOPE=[[]]"), "{text}");
}

#[test]
fn a_tool_that_changed_since_its_import_is_not_called() {
    let world = world();
    let tool = json!({"name": "echo", "description": "Does echo.",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}}});
    let mut definition = json!({"pinned_echo": {"description": "Does echo.",
        "input": {"type": "object", "properties": {"message": {"type": "string"}}}, "confirm": "never",
        "run": {"mcp": {"server": {"name": "old", "command": ["python3", crooked_server()],
            "env": {"counter": world.folder().join("count")}}, "tool": "echo", "digest": mcp::client::digest(&tool)}}}});
    world.define("pinned.json", &definition);
    assert_eq!(world.result_of("pinned_echo", &json!({"message": "a"}))["data"], "Echo: a");
    assert_eq!(world.result_of("old_change", &json!({}))["data"], "changed");
    let calls = count(&world, "echo");
    let result = world.result_of("pinned_echo", &json!({"message": "b"}));
    assert_eq!(result["error"]["code"], "drifted", "{result}");
    assert!(result["error"]["hint"].as_str().is_some_and(|hint| hint.contains("import --refresh")), "{result}");
    definition["pinned_echo"]["run"]["mcp"]["tool"] = "gone".into();
    world.define("pinned.json", &definition);
    assert_eq!(world.result_of("pinned_echo", &json!({}))["error"]["code"], "not-found");
    assert_eq!(count(&world, "echo"), calls, "nothing was called");
}

#[test]
fn a_question_of_a_server_is_answered_on_the_page() {
    let world = world();
    let human = Human::of(&world);
    for (kind, expected) in [
        ("old", json!({"action": "accept", "content": {"color": "blue"}})),
        ("new", json!(r#"{"action": "accept", "content": {"color": "blue"}} opaque"#)),
    ] {
        let id = world.start(&format!("{kind}_ask"), &json!({}));
        let question = question(&world);
        assert!(question["input"]["question"].as_str().is_some_and(|it| it.contains("Which color?")), "{question}");
        let card = human.card(question["id"].as_str().expect("an id"));
        for words in ["The MCP server ", "asks you", "It gets what you answer", &id, &format!("{kind}_ask")] {
            assert!(card.contains(words), "no `{words}` in {card}");
        }
        assert!(!card.contains("The agent"), "{card}");
        let says = || world.result_file(&id)["message"].as_str().is_some_and(|it| it.contains("asks a human"));
        until("the result file says that a human is asked", says);
        let waited = world.run(&["wait", &id]);
        assert_eq!(waited.exit, 4, "the human has no page open, so there is nothing to wait for: {waited}");
        human.answer(question["id"].as_str().expect("an id"), "accept", &json!({"color": "blue"}));
        let result = world.end_of(&id);
        assert_eq!(result["data"], expected, "{result}");
        // Declined is an answer as well.
        let id = world.start(&format!("{kind}_ask"), &json!({}));
        human.answer(self::question(&world)["id"].as_str().expect("an id"), "decline", &Value::Null);
        let result = world.end_of(&id);
        assert!(result["data"].to_string().contains("decline"), "{result}");
    }
}

#[test]
fn no_caller_asks_in_the_name_of_a_task() {
    let world = world();
    let id = world.start("old_ask", &json!({}));
    let asked = question(&world);
    for key in [format!("{id}-question-x"), format!("{id}-attempt-question-x"), "x".to_owned()] {
        let forged = ["run", "human_question", "question=Which PIN?", "--idempotency-key", &key];
        let forged = world.command(&forged).env("AGENT_MAGIC_TOOL_DEPTH", "1").output().expect("it starts");
        let forged = world.transcript(&forged);
        assert_eq!(forged.error()["code"], "unknown-subtool", "{key}: {forged}");
    }
    assert_eq!(world.run(&["tasks", "--state", "awaiting_confirmation"]).json()[0]["id"], asked["id"]);
}

/// The open question of `world`.
fn question(world: &World) -> Value {
    let mut found = Value::Null;
    until("the question is asked", || {
        let tasks = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
        found = tasks[0].clone();
        found.is_object()
    });
    found
}

#[test]
fn a_question_and_a_task_survive_the_end_of_the_executor_and_are_not_begun_again() {
    let world = world();
    let id = world.start("new_ask", &json!({}));
    let asked = question(&world);
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    assert_eq!(question(&world)["id"], asked["id"], "the same question");
    Human::of(&world).answer(asked["id"].as_str().expect("an id"), "accept", &json!({"color": "red"}));
    let result = world.end_of(&id);
    assert!(result["data"].as_str().is_some_and(|it| it.contains("red")), "{result}");
    assert_eq!(count(&world, "ask"), 1, "the call was begun once");

    let id = world.start("new_task", &json!({}));
    until("the task has begun", || count(&world, "task") == 1);
    until("the handle is recorded", || world.result_file(&id)["state"] == "running");
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    fs::write(world.folder().join("tasks/done"), "").expect("written");
    let result = world.end_of(&id);
    assert_eq!((&result["data"], count(&world, "task")), (&json!("the task is done"), 1), "{result}");
}

#[test]
fn a_question_that_ends_with_the_executor_leaves_the_page_when_the_next_one_starts() {
    let world = world();
    let once = world.start("old_ask", &json!({}));
    let orphan = question(&world)["id"].as_str().expect("an id").to_owned();
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let end = world.end_of(&orphan);
    assert_eq!(end["status"], "cancelled", "{end}");
    assert!(end["error"]["message"].as_str().is_some_and(|said| said.contains("ended together with")), "{end}");
    assert_eq!(world.end_of(&once)["status"], "unknown");
    assert_eq!(world.run(&["tasks", "--state", "awaiting_confirmation"]).json(), json!([]));

    // A call that may be repeated asks anew, and the answer reaches it.
    define(
        &world,
        "repeated",
        &json!({"counter": world.folder().join("count")}),
        &json!({"annotations": {"readOnlyHint": true}}),
    );
    let id = world.start("repeated_ask", &json!({}));
    let first = question(&world);
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    assert_eq!(world.end_of(first["id"].as_str().expect("an id"))["status"], "cancelled");
    let second = question(&world);
    assert_ne!(second["id"], first["id"]);
    Human::of(&world).answer(second["id"].as_str().expect("an id"), "accept", &json!({"color": "red"}));
    let result = world.end_of(&id);
    assert!(result["data"].to_string().contains("red"), "{result}");
}

#[test]
fn a_task_of_a_server_is_followed_beyond_the_timeout_and_cancelled_there() {
    let world = World::new();
    let (counter, tasks) = (world.folder().join("count"), world.folder().join("tasks"));
    fs::create_dir(&tasks).expect("made");
    define(&world, "new", &json!({"counter": counter, "MODERN": "1", "tasks": tasks}), &json!({"timeout": "4s"}));
    let id = world.start("new_task", &json!({}));
    let started = std::time::Instant::now();
    until("more time has passed than a call may take", || started.elapsed().as_secs() >= 6);
    assert_eq!(world.result_file(&id)["state"], "running");
    assert_eq!(world.run(&["cancel", &id]).exit, 0);
    assert_eq!(world.end_of(&id)["status"], "cancelled");
    until("the server was told", || count(&world, "cancelled") == 1);
}

/// The median time of a call, in seconds.
fn median(world: &World, tool: &str) -> f64 {
    let mut times: Vec<_> = (0..15)
        .map(|_| {
            let started = std::time::Instant::now();
            let ran = world.run(&["run", tool, "--wait", "message=x"]);
            assert_eq!(ran.json()["data"], "Echo: x", "{ran}");
            started.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
fn fifty_servers_of_which_one_hangs_and_one_crashes_do_not_slow_each_other() {
    let world = World::new();
    for number in 0..48 {
        define(&world, &format!("s{number}"), &json!({}), &json!({}));
    }
    define(&world, "hung", &json!({"HANGS": "1"}), &json!({"timeout": "60s"}));
    let broken = json!({"broken_echo": {"description": "Does echo.", "input": {"type": "object"}, "confirm": "never",
        "run": {"mcp": {"server": {"name": "broken", "command": ["false"]}, "tool": "echo"}}}});
    world.define("broken.json", &broken);
    for number in 0..48 {
        let ran = world.run(&["run", &format!("s{number}_echo"), "--wait", "message=x"]);
        assert_eq!(ran.json()["data"], "Echo: x", "{ran}");
    }
    assert_eq!(servers(&world).len(), 48);
    let alone = median(&world, "s7_echo");
    // One that never greets, one that never answers, and one that does not start.
    let hung: Vec<_> = (0..4).map(|_| world.start("hung_echo", &json!({}))).collect();
    world.start("s0_silent", &json!({}));
    let crashed = world.result_of("broken_echo", &json!({}));
    assert_eq!(crashed["error"]["code"], "cannot-start", "{crashed}");
    let beside = median(&world, "s7_echo");
    assert!(beside < 3.0 * alone, "{beside} s beside servers that hang, {alone} s without them");
    let again = world.result_of("broken_echo", &json!({}));
    assert!(again["error"]["message"].as_str().is_some_and(|it| it.contains("could not be reached")), "{again}");
    let held = world.result_of("broken_echo", &json!({}));
    assert!(held["error"]["message"].as_str().is_some_and(|it| it.contains("in a row")), "{held}");
    let listed = world.run(&["list", "tools", "--query=echo", "--limit=100"]);
    assert_eq!(listed.exit, 0, "{listed}");
    for id in hung {
        assert_eq!(world.run(&["cancel", &id]).exit, 0);
        assert_eq!(world.end_of(&id)["status"], "cancelled");
    }
}
