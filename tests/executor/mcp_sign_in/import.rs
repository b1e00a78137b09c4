//! `import mcp URL` of a server that wants a sign-in: the human signs in from the terminal, and the executor goes on with
//! the tokens.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStderr, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{AccountServer, LONG, assert_succeeded, open, until_expired, way_back};
use crate::world::{World, wait_for_end};

/// A server that refuses every request, and does not say where to sign in. Prints its port.
const REFUSING: &str = r#"
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def refuse(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = refuse

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A command that waits for a sign-in.
struct WaitingImport {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
    link: String,
}

impl WaitingImport {
    fn start(world: &World, words: &[&str]) -> Self {
        let mut command = world.command(&[&["import"], words].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (mut stderr, mut said) = (BufReader::new(child.stderr.take().expect("a pipe")), String::new());
        let link = loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).expect("read"), 0, "it ended: {said}");
            said.push_str(&line);
            if line.starts_with("http") {
                break line.trim().to_owned();
            }
        };
        Self { child, stderr, said, link }
    }

    /// Waits until it has ended. Standard error is all that it said.
    fn end(mut self) -> Output {
        self.stderr.read_to_string(&mut self.said).expect("read");
        let output = self.child.wait_with_output().expect("it ends");
        Output { stderr: self.said.into_bytes(), ..output }
    }

    /// Signs in, and returns what it printed.
    fn signed_in(self) -> Value {
        assert_eq!(open(&self.link).0, 200);
        let output = self.end();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn stored(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.state().join("secrets")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Approves the call of a tool that was imported, and returns its result.
fn approved(world: &World, tool: &str) -> Value {
    let id = world.start(tool, &json!({}));
    world.decide(&id, "approve", tool);
    world.end_of(&id)
}

#[test]
fn an_import_signs_in_and_the_executor_goes_on_with_its_tokens() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    let import = WaitingImport::start(&world, &["mcp", "account", &server.url()]);
    assert!(import.said.contains("the MCP server `account` wants you to sign in at 127.0.0.1:"), "{}", import.said);
    assert_eq!(stored(&world), [""; 0], "nothing is kept before the human has signed in");
    assert_eq!(open(&import.link).0, 200);
    let output = import.end();
    assert!(output.status.success(), "{output:?}");
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let tokens = server.tokens();
    assert!(!tokens.is_empty() && !tokens.iter().any(|token| printed.contains(token)), "{printed}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["imported"], 2, "{report}");
    let path = world.state().join("secrets/account-oauth");
    assert_eq!(fs::metadata(&path).expect("the tokens").permissions().mode() & 0o777, 0o600);
    let kept: Value = serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON");
    assert!(kept["tokens"].is_object() && kept.get("pending").is_none());
    let written = fs::read_to_string(world.subtools().join("account.json")).expect("the definitions");
    assert!(written.contains("\"oauth\": \"secret:account-oauth\""), "{written}");

    assert_succeeded(&approved(&world, "whoami"));
    assert_eq!((server.count("authorize"), server.count("register"), server.count("whoami")), (1, 1, 1));
    let again = world.run(&["import", "--refresh", "account"]);
    assert_eq!((again.exit, &again.json()["packs"][0]["source_changed"]), (0, &json!(false)), "{again}");

    server.post("/revoke", &json!({}));
    let refreshed = WaitingImport::start(&world, &["--refresh", "account"]).signed_in();
    assert_eq!(refreshed["packs"][0]["imported"], 2, "{refreshed}");
    assert_succeeded(&approved(&world, "whoami"));
    assert_eq!(server.count("authorize"), 2, "the executor has the new tokens");
}

/// Defines `mine`, a call of the imported server that may not be repeated, and is not asked about.
fn define_mine(world: &World, server: &AccountServer) {
    let whoami = json!({"description": "Asks.", "confirm": "never", "timeout": "20s", "input": {"type": "object"},
        "run": {"mcp": {"server": {"name": "account", "url": server.url(), "oauth": "secret:account-oauth"}, "tool": "whoami"}}});
    world.define("mine.json", &json!({"mine": whoami}));
}

#[test]
fn a_call_that_waits_for_a_sign_in_goes_on_when_a_command_has_signed_in() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    define_mine(&world, &server);
    let ids = [world.start("mine", &json!({})), world.start("mine", &json!({}))];
    let asked = super::question(&world);
    WaitingImport::start(&world, &["mcp", "account", &server.url()]).signed_in();
    for id in ids {
        assert_succeeded(&world.end_of(&id));
    }
    assert_eq!(world.end_of(asked["id"].as_str().expect("an id"))["status"], "cancelled");
    assert_eq!((server.count("authorize"), server.count("whoami")), (1, 2));
}

#[test]
fn a_sign_in_that_does_not_succeed_leaves_nothing_behind() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    let words = ["mcp", "account", &server.url()];
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let import = WaitingImport::start(&world, &words);
        let back = way_back(&import.link);
        let pid = Pid::from_raw(i32::try_from(import.child.id()).expect("a process id"));
        kill(pid, signal).expect("sent");
        let output = import.end();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        let host = back.trim_start_matches("http://").split('/').next().expect("a host").to_owned();
        assert!(TcpStream::connect(host).is_err(), "the port is closed");
    }
    server.post("/control", &json!({"deny": true}));
    let import = WaitingImport::start(&world, &words);
    open(&import.link);
    let output = import.end();
    assert!(String::from_utf8_lossy(&output.stderr).contains("access_denied"), "{output:?}");
    let dry = world.run(&["import", "mcp", "account", &server.url(), "--dry-run"]);
    assert_eq!(dry.error()["code"], "needs-reauthorization", "{dry}");
    assert!(dry.error()["hint"].as_str().is_some_and(|hint| hint.contains("without --dry-run")), "{dry}");
    assert_eq!((stored(&world), server.count("exchange"), server.count("register")), (Vec::new(), 0, 3));
    assert!(!world.subtools().join("account.json").exists());
}

#[test]
fn a_server_that_repeats_the_token_does_not_have_it_printed() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.post("/control", &json!({"leak": true}));
    let import = WaitingImport::start(&world, &["mcp", "account", &server.url(), "--oauth"]);
    open(&import.link);
    let output = import.end();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no tools for [secret:account-oauth]") && !said.contains("access-"), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_server_that_wants_a_token_but_has_no_sign_in_says_how_to_send_one() {
    let world = World::new();
    let mut server = world.within("python3", &["-c", REFUSING]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut port = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut port).expect("it prints its port");
    let url = format!("http://127.0.0.1:{}/mcp", port.trim());
    let refused = world.run(&["import", "mcp", "account", &url]);
    assert_eq!(refused.error()["code"], "needs-reauthorization", "{refused}");
    assert!(refused.error()["hint"].as_str().is_some_and(|hint| hint.contains("--header 'Authorization")), "{refused}");
    server.kill().expect("it ran");
    wait_for_end(&mut server);
}

#[test]
fn a_command_and_the_executor_renew_the_same_tokens() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", 2) else { return };
    WaitingImport::start(&world, &["mcp", "account", &server.url()]).signed_in();
    define_mine(&world, &server);
    assert_succeeded(&world.result_of("mine", &json!({})));
    // The server forgets a refresh token when it has used it.
    server.post("/control", &json!({"slow": 0.7}));
    for _ in 0..2 {
        until_expired();
        let refresh = || {
            let mut command = world.command(&["import", "--refresh", "account"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let (commands, ids) = ([refresh(), refresh()], [(); 3].map(|()| world.start("mine", &json!({}))));
        for command in commands {
            let output = command.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{output:?}");
        }
        for id in ids {
            assert_succeeded(&world.end_of(&id));
        }
    }
    assert_eq!((server.count("authorize"), server.count("exchange")), (1, 1), "{}", server.log());

    // The client of a new sign-in is another one, whose tokens the executor must renew as that client.
    server.post("/revoke", &json!({}));
    WaitingImport::start(&world, &["--refresh", "account"]).signed_in();
    for _ in 0..2 {
        until_expired();
        assert_succeeded(&world.result_of("mine", &json!({})));
    }
    assert_eq!((server.count("authorize"), server.count("register")), (2, 2), "{}", server.log());
}
