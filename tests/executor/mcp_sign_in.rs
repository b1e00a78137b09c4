//! Signing in to MCP servers: a human is asked once, the tokens stay where they belong, and nothing is called twice.
//!
//! The servers are of the official Python SDK; a browser is played with plain requests.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::redirect::Policy;
use serde_json::{Value, json};

use crate::page::human::Human;
use crate::skip::skip;
use crate::world::{World, until, wait_for_end};

mod conformance;
mod import;

/// The `bin` folder of an environment with `PyPI`'s `mcp`.
const PYTHON: &str = "AGENT_MAGIC_TOOL_TEST_MCP_PYTHON";
/// Long enough to need no renewal during a test.
const LONG: u32 = 3_600;

/// A running server, ended when it is dropped.
struct AccountServer {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl AccountServer {
    /// Starts a server whose tokens last for `lifetime` seconds. Skips the test without an environment for it.
    fn start(world: &World, name: &str, lifetime: u32) -> Option<Self> {
        let Some(folder) = std::env::var_os(PYTHON) else {
            skip(&format!("{PYTHON} does not name the bin folder of an environment with PyPI's mcp"));
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let log = world.folder().join(name);
        fs::write(&log, "").expect("written");
        let mut child = Command::new(Path::new(&folder).join("python"))
            .arg(script.join("tests/executor/mcp/sign_in_server.py"))
            .args([log.as_os_str(), lifetime.to_string().as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it prints its port");
        Some(Self { child, port: line.trim().parse().expect("a port"), log })
    }

    fn url(&self) -> String {
        format!("{}/mcp", self.origin())
    }

    fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    /// How often `what` happened.
    fn count(&self, what: &str) -> usize {
        self.log().lines().filter(|line| line.split(' ').next() == Some(what)).count()
    }

    /// The tokens that it was shown.
    fn tokens(&self) -> Vec<String> {
        self.log().lines().filter_map(|line| line.strip_prefix("token ").map(str::to_owned)).collect()
    }

    fn post(&self, path: &str, body: &Value) {
        let (url, body) = (format!("{}{path}", self.origin()), body.clone());
        let answer = request(async move { client(Policy::none()).post(url).json(&body).send().await });
        assert_eq!(answer.0, 200);
    }

    /// Defines its tools, as `account_TOOL`; a call may not be repeated.
    fn define(&self, world: &World) {
        let server = json!({"name": "account", "url": self.url(), "oauth": "secret:account"});
        let tool = |tool: &str| {
            json!({"description": format!("Does {tool}."), "confirm": "never", "timeout": "20s",
                "input": {"type": "object", "properties": {"echo": {"type": "string"}}},
                "run": {"mcp": {"server": server, "tool": tool}}})
        };
        world.define("account.json", &json!({"account_whoami": tool("whoami"), "account_change": tool("change")}));
    }
}

impl Drop for AccountServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn client(redirects: Policy) -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().redirect(redirects).build().expect("a client")
}

/// Sends a request. Returns the status, where it redirects to, and the body.
fn request(sent: impl Future<Output = reqwest::Result<reqwest::Response>>) -> (u16, String, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let response = sent.await.expect("an answer");
        let location = response.headers().get("location").and_then(|value| value.to_str().ok()).unwrap_or_default();
        (response.status().as_u16(), location.to_owned(), response.text().await.expect("a body"))
    })
}

/// Opens `link` as a browser does, through all redirects.
fn open(link: &str) -> (u16, String) {
    let (status, _, body) = request(client(Policy::default()).get(link).send());
    (status, body)
}

/// Opens `link`, and returns where it leads back to.
fn way_back(link: &str) -> String {
    request(client(Policy::none()).get(link).send()).1
}

/// The only open question of `world`.
fn question(world: &World) -> Value {
    let mut found = Value::Null;
    until("a sign-in is asked for", || {
        let tasks = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
        assert!(tasks.as_array().is_none_or(|tasks| tasks.len() < 2), "{tasks}");
        found = tasks[0].clone();
        found.is_object()
    });
    found
}

fn link(world: &World, question: &Value) -> String {
    let (human, mut found) = (Human::of(world), None);
    until("the card shows the link", || {
        found = human.link_of(question["id"].as_str().expect("an id"));
        found.is_some()
    });
    found.expect("a link")
}

/// Signs in as asked, and returns the question.
fn sign_in(world: &World) -> Value {
    let question = question(world);
    let (status, body) = open(&link(world, &question));
    assert!(status == 200 && body.contains("You can close this tab"), "{status} {body}");
    question
}

/// Calls `tool`, signs in when asked, and returns the result.
fn signed_in(world: &World, tool: &str, input: &Value) -> Value {
    let id = world.start(tool, input);
    sign_in(world);
    world.end_of(&id)
}

/// Waits until a token that lasts for two seconds has expired.
fn until_expired() {
    let since = Instant::now();
    until("the token has expired", || since.elapsed() > Duration::from_secs(3));
}

fn assert_succeeded(result: &Value) {
    assert_eq!(result["status"], "succeeded", "{result}");
}

#[test]
fn a_human_signs_in_once_and_no_token_is_seen() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let id = world.start("account_whoami", &json!({"echo": "token"}));
    let asked = question(&world);
    let text = asked["input"]["question"].as_str().unwrap_or_else(|| panic!("{asked}"));
    assert!(text.contains("The MCP server `account` at 127.0.0.1:") && !text.contains("state="), "{text}");
    until("the result file says so", || {
        world.result_file(&id)["message"].as_str().is_some_and(|said| said.contains("sign in to `account`"))
    });
    let link = link(&world, &asked);
    for part in ["code_challenge_method=S256", "&state=", "resource=http%3A%2F%2F127.0.0.1", "scope=read"] {
        assert!(link.contains(part), "{link}");
    }
    assert_eq!(open(&link).0, 200);
    let result = world.end_of(&id);
    assert_succeeded(&result);
    let said = result["data"]["result"].as_str().unwrap_or_else(|| panic!("{result}"));
    assert!(said.contains(" with read") && said.ends_with("[secret:account]"), "{said}");
    assert_eq!(world.end_of(asked["id"].as_str().expect("an id"))["status"], "cancelled", "the question is withdrawn");

    assert_succeeded(&world.result_of("account_whoami", &json!({})));
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert_succeeded(&world.result_of("account_whoami", &json!({})));
    assert_eq!((server.count("register"), server.count("authorize"), server.count("whoami")), (1, 1, 3));
    assert!(server.log().contains(&format!("exchange {}/mcp", server.origin())), "the token is for this server");

    let issued = server.tokens();
    assert!(!issued.is_empty());
    let mut kept = 0;
    each_file(world.home().parent().expect("the world"), &mut |path, bytes| {
        let text = String::from_utf8_lossy(bytes);
        if path.ends_with("work/log") || !issued.iter().any(|token| text.contains(token)) {
            return;
        }
        kept += 1;
        assert!(path.ends_with("secrets/account"), "{} has a token", path.display());
        assert_eq!(fs::metadata(path).expect("a file").permissions().mode() & 0o777, 0o600);
    });
    assert_eq!(kept, 1, "it is in the secret store");
}

fn each_file(folder: &Path, look: &mut dyn FnMut(&Path, &[u8])) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            each_file(&entry.path(), look);
        } else if kind.is_file() {
            look(&entry.path(), &fs::read(entry.path()).unwrap_or_default());
        }
    }
}

#[test]
fn tokens_are_renewed_until_they_are_revoked() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", 2) else { return };
    server.define(&world);
    assert_succeeded(&signed_in(&world, "account_whoami", &json!({})));
    until_expired();
    let ids: Vec<_> = (0..4).map(|_| world.start("account_whoami", &json!({}))).collect();
    for id in ids {
        assert_succeeded(&world.end_of(&id));
    }
    assert!(server.count("refresh") >= 1, "{}", server.log());
    until_expired();
    assert_succeeded(&world.result_of("account_whoami", &json!({})));
    assert_eq!(server.count("authorize"), 1, "a human was asked once");

    server.post("/revoke", &json!({}));
    assert_succeeded(&signed_in(&world, "account_whoami", &json!({})));
    assert_eq!((server.count("authorize"), server.count("register")), (2, 1), "{}", server.log());
}

#[test]
fn further_scopes_are_asked_for_when_a_tool_needs_them() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    assert_succeeded(&signed_in(&world, "account_whoami", &json!({})));
    assert_succeeded(&signed_in(&world, "account_change", &json!({})));
    assert!(server.log().contains("authorize read write"), "{}", server.log());
    assert_succeeded(&world.result_of("account_change", &json!({})));
    assert_eq!((server.count("authorize"), server.count("change")), (2, 2));
}

#[test]
fn a_sign_in_that_is_refused_ends_the_call() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    for (action, content) in [("decline", Value::Null), ("accept", json!({"answer": "No, do not sign in"}))] {
        let ids = [world.start("account_whoami", &json!({})), world.start("account_change", &json!({}))];
        until("both wait", || ids.iter().all(|id| world.result_file(id)["message"].is_string()));
        Human::of(&world).answer(question(&world)["id"].as_str().expect("an id"), action, &content);
        for id in ids {
            let result = world.end_of(&id);
            assert_eq!(result["error"]["code"], "needs-reauthorization", "{result}");
        }
    }
    server.post("/control", &json!({"deny": true}));
    let result = signed_in(&world, "account_whoami", &json!({}));
    assert_eq!(result["error"]["code"], "needs-reauthorization", "{result}");
    assert!(result["error"]["message"].as_str().is_some_and(|said| said.contains("access_denied")), "{result}");
    assert_eq!((server.count("exchange"), server.count("whoami")), (0, 0));
    server.post("/control", &json!({}));
    assert_succeeded(&signed_in(&world, "account_whoami", &json!({})));
}

#[test]
fn only_the_browser_that_was_sent_can_come_back() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let id = world.start("account_whoami", &json!({}));
    let link = link(&world, &question(&world));
    server.post("/control", &json!({"iss": "https://evil.example"}));
    let (status, body) = open(&link);
    assert!(status == 400 && !body.contains("evil"), "{status} {body}");
    server.post("/control", &json!({}));
    let back = way_back(&link);
    let (start, state) = back.split_once("state=").expect("a state");
    let mut wrong = state.to_owned();
    wrong.replace_range(..1, if state.starts_with('A') { "B" } else { "A" });
    for forged in [format!("{start}state={wrong}"), format!("{start}state="), back.replace("127.0.0.1", "localhost")] {
        assert_eq!(open(&forged).0, 400, "{forged}");
    }
    assert_eq!(world.result_file(&id)["status"], "pending");
    assert_eq!(server.count("exchange"), 0, "no code was sent anywhere");
    assert_eq!(open(&back).0, 200);
    assert_succeeded(&world.end_of(&id));
    let again = client(Policy::none()).get(&back).send();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert!(runtime.block_on(again).is_err_and(|error| error.is_connect()), "nothing listens anymore");
}

#[test]
fn a_sign_in_survives_the_end_of_the_executor() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let ids = [world.start("account_whoami", &json!({})), world.start("account_whoami", &json!({}))];
    let asked = question(&world);
    let before = link(&world, &asked);
    until("both wait", || ids.iter().all(|id| world.result_file(id)["message"].is_string()));
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    assert_eq!(question(&world)["id"], asked["id"], "the same question");
    assert_eq!(link(&world, &asked), before, "the browser may have it open already");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    assert_eq!(link(&world, &question(&world)), before);
    assert_eq!(open(&before).0, 200);
    for id in ids {
        assert_succeeded(&world.end_of(&id));
    }
    assert_eq!((server.count("register"), server.count("exchange"), server.count("whoami")), (1, 1, 2));
}

/// Starts an executor that ends at the fault point `point`, and two calls that may not be repeated; has them wait.
fn two_calls(world: &World, point: &str) -> (Child, [String; 2]) {
    let mut executor = world.command(&["executor", "run"]);
    executor.env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:1")).stdout(Stdio::null()).stderr(Stdio::null());
    let executor = executor.spawn().expect("it starts");
    until("it serves", || world.executor().is_some());
    let ids = [world.start("account_whoami", &json!({})), world.start("account_whoami", &json!({}))];
    until("both wait for the human", || ids.iter().all(|id| world.result_file(id)["confirmation"].is_object()));
    (executor, ids)
}

#[test]
fn calls_that_waited_for_one_sign_in_are_made_once_each_however_often_the_executor_is_killed() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let ids = [world.start("account_whoami", &json!({})), world.start("account_whoami", &json!({}))];
    let asked = question(&world);
    for _ in 0..4 {
        until("both wait for the human", || ids.iter().all(|id| world.result_file(id)["confirmation"].is_object()));
        world.kill_executor();
        assert_eq!(world.run(&["executor", "start"]).exit, 0);
        assert_eq!(question(&world)["id"], asked["id"], "the same question");
    }
    until("both wait for the human", || ids.iter().all(|id| world.result_file(id)["confirmation"].is_object()));
    sign_in(&world);
    for id in ids {
        assert_succeeded(&world.end_of(&id));
    }
    assert_eq!((server.count("exchange"), server.count("whoami")), (1, 2), "{}", server.log());
}

#[test]
fn an_executor_that_is_killed_right_after_the_sign_in_makes_no_call_twice() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let (mut executor, ids) = two_calls(&world, "sign_in.ended");
    open(&link(&world, &question(&world)));
    wait_for_end(&mut executor);
    assert_eq!((server.count("exchange"), server.count("whoami")), (1, 0));
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    for id in &ids {
        assert_succeeded(&world.end_of(id));
    }
    assert_eq!((server.count("exchange"), server.count("whoami")), (1, 2), "{}", server.log());
}

#[test]
fn a_call_that_may_have_been_made_when_the_executor_was_killed_is_not_made_again() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let (mut executor, ids) = two_calls(&world, "sign_in.recorded");
    open(&link(&world, &question(&world)));
    wait_for_end(&mut executor);
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let ends = ids.map(|id| world.end_of(&id));
    let is_unknown = |end: &&Value| end["status"] == "unknown";
    let succeeded = ends.iter().filter(|end| end["status"] == "succeeded").count();
    assert_eq!(succeeded + ends.iter().filter(is_unknown).count(), 2, "{ends:?}");
    assert!(ends.iter().any(|end| is_unknown(&end)), "{ends:?}");
    // One that is unknown may have been called, and is not called again.
    assert!((succeeded..=2).contains(&server.count("whoami")), "{}", server.log());
}

#[test]
fn while_a_human_signs_in_waiting_says_what_to_tell_the_user() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    let ids = [world.start("account_whoami", &json!({})), world.start("account_whoami", &json!({}))];
    question(&world);
    for id in &ids {
        until("the result file says so", || world.result_file(id)["confirmation"].is_object());
        let waited = world.run(&["wait", id, "--timeout=1s"]);
        assert_eq!(waited.exit, 4, "{waited}");
        let said = waited.json()["message"].as_str().expect("a message").to_owned();
        assert!(said.contains("sign in to `account`") && said.contains("executor page"), "{said}");
    }
    sign_in(&world);
    for id in &ids {
        assert_succeeded(&world.end_of(id));
    }
}

#[test]
fn a_token_goes_to_no_other_server() {
    let world = World::new();
    let Some(first) = AccountServer::start(&world, "first", LONG) else { return };
    let Some(second) = AccountServer::start(&world, "second", LONG) else { return };
    first.define(&world);
    assert_succeeded(&signed_in(&world, "account_whoami", &json!({})));
    let token = first.log().lines().find_map(|line| line.strip_prefix("token ").map(str::to_owned)).expect("a token");
    second.define(&world);
    assert_succeeded(&signed_in(&world, "account_whoami", &json!({})));
    assert!(!second.log().contains(&token) && !first.log().contains("token access-x"), "{}", second.log());
    assert_eq!(first.count("whoami"), 1);
}

#[test]
fn without_a_page_or_a_secret_the_failure_says_what_to_do() {
    let world = World::new();
    let Some(server) = AccountServer::start(&world, "log", LONG) else { return };
    server.define(&world);
    world.configure("[page]\nenabled = false\n");
    let result = world.result_of("account_whoami", &json!({}));
    assert_eq!(result["error"]["code"], "needs-reauthorization", "{result}");
    assert!(result["error"]["hint"].as_str().is_some_and(|hint| hint.contains("executor page")), "{result}");
    world.define(
        "account.json",
        &json!({"account_whoami": {"description": "Asks.", "confirm": "never",
            "input": {"type": "object", "properties": {}},
            "run": {"mcp": {"server": {"name": "account", "url": format!("{}/mcp", server.origin())}, "tool": "whoami"}}}}),
    );
    let result = world.result_of("account_whoami", &json!({}));
    assert_eq!(result["error"]["code"], "needs-reauthorization", "{result}");
    assert!(
        result["error"]["hint"].as_str().is_some_and(|hint| hint.contains("\"oauth\": \"secret:NAME\"")),
        "{result}"
    );
    assert_eq!(server.count("whoami"), 0);
}
