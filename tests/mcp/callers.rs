//! Callers with tasks of their own see, stop and resolve no others, at every door: a terminal and an agent's one tool with a
//! tool scope, a client on standard input with a list of subtools, and a client over HTTP with a key.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::http::{INITIALIZE, post};
use super::peers::{HttpServer, Lines};
use crate::world::{World, until};

const SCOPE: &str = r#"[["say", "post"]]"#;
const CANARY: &str = "canary-of-the-terminal";
/// The key of the client `narrow`, who may use all subtools and resources: what it may not is not on any list.
const KEY: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Terminal,
    CommandExecutor,
    McpStdio,
    McpHttp,
}

const PLACES: [Place; 4] = [Place::Terminal, Place::CommandExecutor, Place::McpStdio, Place::McpHttp];

/// The tasks of a terminal: one that ended, one that waits for a human, and one whose outcome is unknown.
struct Foreign {
    ended: String,
    waiting: String,
    unknown: String,
}

fn world() -> (World, Foreign) {
    let world = World::new();
    world.define(
        "some.json",
        &json!({
            "say": {"description": "Says a text again.", "annotations": {"readOnlyHint": true},
                "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}},
            "change": {"description": "Changes something.",
                "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "run": {"process": {"argv": ["printf", "changed"]}}},
            "post": {"description": "Sends a line.", "input": {}, "confirm": "never",
                "run": {"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> sent; [ -e quick ] || sleep 60"]}}},
        }),
    );
    let key = world.home().join("narrow-key");
    std::fs::write(&key, KEY).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("changed");
    let lists = "[mcp.clients.narrow]\nsubtools = [\"say\", \"post\"]\n[mcp.clients.wide]\n";
    world.configure(&format!("{lists}key_file = \"{}\"\n", key.display()));
    let unknown = world.start("post", &json!({}));
    until("it was sent", || world.folder().join("sent").exists());
    world.kill_executor();
    world.run(&["wait", &unknown]);
    assert_eq!(world.result_file(&unknown)["status"], "unknown");
    let said = world.run(&["run", "say", &format!("text={CANARY}"), "--idempotency-key=k", "--wait"]).json();
    let ended = said["id"].as_str().expect("an id").to_owned();
    let waiting = world.start("change", &json!({"text": CANARY}));
    (world, Foreign { ended, waiting, unknown })
}

/// What a caller at this place gets for a command line.
fn ask(world: &World, place: Place, server: &HttpServer, line: &str) -> String {
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "command_executor", "arguments": {"command": line}}});
    match place {
        Place::Terminal => {
            let words: Vec<_> = line.split(' ').skip(1).collect();
            let ran = world.command(&words).env("AGENT_MAGIC_TOOL_SCOPE", SCOPE).output().expect("it starts");
            String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
        }
        Place::CommandExecutor => {
            let mut command = world.command(&["command-executor"]);
            command.env("AGENT_MAGIC_TOOL_SCOPE", SCOPE).env("AGENT_MAGIC_TOOL_SESSION", "scoped");
            let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            let mut stdin = process.stdin.take().expect("a pipe");
            writeln!(stdin, "{}", json!({"command": line})).expect("written");
            drop(stdin);
            let output = process.wait_with_output().expect("it ends");
            let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            answer["output"].as_str().expect("a text").to_owned()
        }
        Place::McpStdio => {
            let mut command = world.command(&["mcp", "--client", "narrow"]);
            let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            let (mut stdin, lines) =
                (process.stdin.take().expect("a pipe"), Lines::of(process.stdout.take().expect("a pipe")));
            let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            writeln!(stdin, "{INITIALIZE}").expect("written");
            lines.next();
            writeln!(stdin, "{ready}\n{call}").expect("written");
            let answer = loop {
                let message = lines.next();
                if message["id"] == 2 {
                    break message;
                }
            };
            drop(stdin);
            process.wait().expect("it ends with its input");
            answer["result"]["content"][0]["text"].as_str().expect("a text").to_owned()
        }
        Place::McpHttp => over_http(server, &call)["result"]["content"][0]["text"].as_str().expect("a text").to_owned(),
    }
}

/// Sends one request in a new session of the client `wide`.
fn over_http(server: &HttpServer, request: &Value) -> Value {
    let key = format!("Bearer {KEY}");
    let (_, answer) = post(server, &[("Authorization", &key)], INITIALIZE);
    let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").trim();
    let in_session = [("Authorization", key.as_str()), ("Mcp-Session-Id", session)];
    post(server, &in_session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let (_, answer) = post(server, &in_session, &request.to_string());
    let mut messages =
        answer.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    messages.rfind(|message| message["id"] == request["id"]).unwrap_or_else(|| panic!("no answer: {answer}"))
}

#[test]
fn a_caller_with_tasks_of_its_own_gets_no_others_at_any_door() {
    let (world, foreign) = world();
    let Foreign { ended, waiting, unknown } = &foreign;
    let server = HttpServer::start(&world, &[]);
    let file = world.mailbox().join(format!("results/result-{ended}.json"));
    let path = file.display();
    for place in PLACES {
        let ask = |line: &str| ask(&world, place, &server, line);
        let listed = ask("agent-magic-tool tasks");
        let others = [ended, waiting, unknown, CANARY];
        assert!(others.iter().all(|other| !listed.contains(*other)), "{place:?}: {listed}");
        for line in [
            format!("agent-magic-tool read {ended}"),
            format!("agent-magic-tool read {path}"),
            format!("agent-magic-tool read {ended} --bytes 0-100"),
            format!("agent-magic-tool read {ended} --jq ."),
            format!("agent-magic-tool wait {ended}"),
            format!("agent-magic-tool wait --any {ended}"),
            format!("agent-magic-tool cancel {waiting}"),
            format!("agent-magic-tool resolve {unknown} --did-not"),
        ] {
            let answer = ask(&line);
            assert!(answer.contains("unknown-task") && !answer.contains(CANARY), "{place:?}: {line}: {answer}");
        }
        let by_file = ask(&format!("agent-magic-tool run say --input=@{path}"));
        assert!(
            (by_file.contains("not-found") || by_file.contains("not-carried-out")) && !by_file.contains(CANARY),
            "{place:?}: {by_file}"
        );
        if place != Place::Terminal {
            for line in [
                format!("cat {path}"),
                format!("cat result-{ended}.json"),
                format!("jq .data result-{ended}.json"),
                format!("grep {} result-{ended}.json", &CANARY[..6]),
                format!("head -c 500 result-{waiting}.json"),
                format!("ls result-{ended}.json"),
                "ls".to_owned(),
            ] {
                let answer = ask(&line);
                assert!(!answer.contains(CANARY) && !answer.contains("\"data\""), "{place:?}: {line}: {answer}");
                assert!(line != "ls" || others.iter().all(|other| !answer.contains(*other)), "{place:?}: {answer}");
            }
        }
        // The key of another caller is free here, and its own task is its own.
        let own = ask(&format!("agent-magic-tool run say text={CANARY} --idempotency-key=k"));
        let own: Value = serde_json::from_str(own.lines().next().unwrap_or_default()).expect("a receipt");
        let own = own["id"].as_str().expect("an id").to_owned();
        assert_ne!(own, *ended, "{place:?}");
        let again = ask(&format!("agent-magic-tool run say text={CANARY} --idempotency-key=k"));
        assert!(again.contains(&own), "{place:?}: {again}");
        let read = ask(&format!("agent-magic-tool wait {own}"));
        assert!(read.contains(CANARY), "{place:?}: {read}");
        let listed = ask("agent-magic-tool tasks");
        assert_eq!(listed.matches("\"id\":").count(), 1, "{place:?}: {listed}");
    }
    assert_eq!(world.result_file(waiting)["state"], "awaiting_confirmation");
    assert!(world.result_file(unknown)["_meta"].get("resolution").is_none());
    // The whole user sees all of them: of each caller one.
    assert_eq!(world.run(&["tasks"]).json().as_array().map(Vec::len), Some(3 + PLACES.len()));
}

#[test]
fn a_key_over_http_gets_no_resource_or_task_of_others_and_no_command_for_people() {
    let (world, foreign) = world();
    let server = HttpServer::start(&world, &[]);
    let id = &foreign.ended;
    for (method, parameters) in [
        ("resources/read", json!({"uri": format!("agent-magic-tool://results/{id}")})),
        ("resources/read", json!({"uri": format!("agent-magic-tool://results/{id}/data")})),
        ("resources/subscribe", json!({"uri": format!("agent-magic-tool://results/{id}")})),
        ("tasks/get", json!({"taskId": id})),
        ("tasks/cancel", json!({"taskId": foreign.waiting})),
    ] {
        let request = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": parameters});
        let answer = over_http(&server, &request);
        assert!(answer["error"].is_object() && !answer.to_string().contains(CANARY), "{method}: {answer}");
    }
    let listed = over_http(&server, &json!({"jsonrpc": "2.0", "id": 2, "method": "resources/list"}));
    assert_eq!(listed["result"]["resources"], json!([]), "{listed}");
    for command in [
        "doctor",
        "lint",
        "inspect say",
        "import curl",
        "secret list",
        "executor status",
        "pack list",
        "setup codex",
        "logs",
        "test say",
        "new say",
        "approver list",
        "agent hello",
        "tasks --forget-session x",
    ] {
        let answer = ask(&world, Place::McpHttp, &server, &format!("agent-magic-tool {command}"));
        assert!(answer.contains("humans-only"), "{command}: {answer}");
    }
    // A caller with a part of the catalog is not shown all of it.
    for command in ["doctor", "lint"] {
        let answer = ask(&world, Place::CommandExecutor, &server, &format!("agent-magic-tool {command}"));
        assert!(answer.contains("humans-only"), "{command}: {answer}");
    }
    assert_eq!(world.result_file(&foreign.waiting)["state"], "awaiting_confirmation");
}

#[test]
fn half_open_connections_do_not_starve_the_server() {
    let (world, _) = world();
    let server = HttpServer::start(&world, &[]);
    // As many as `serve` stands: they say nothing, or half of a request.
    let mut open = Vec::new();
    for number in 0..600 {
        let mut stream = TcpStream::connect(server.host()).expect("it listens");
        if number % 2 == 0 {
            stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: ").expect("written");
        }
        open.push(stream);
    }
    let answer = ask(&world, Place::McpHttp, &server, "agent-magic-tool tasks");
    assert_eq!(answer.trim(), "[]");
    for mut stream in open {
        stream.set_nonblocking(true).expect("set");
        let is_open = stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(is_open, "the server answered although they were still open");
    }
}
