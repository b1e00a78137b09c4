//! Profiles: what a caller with one may not use is neither listed nor found, run nor named, at every door.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::mcp::http::{INITIALIZE, post};
use crate::mcp::peers::{HttpServer, Lines};
use crate::serve::Server;
use crate::serve::echo_model;
use crate::world::World;

mod settings;

/// The key of the MCP client `support`.
const MCP_KEY: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
/// What only the description of what the profile excludes says.
const CANARY: &str = "sesame";
/// Where a caller with the profile comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Terminal,
    CommandExecutor,
    McpSection,
    McpOption,
    McpHttp,
    Agent,
    SubAgent,
    Api,
    OpenAi,
    Responses,
    Messages,
    Ollama,
    A2a,
}

const DOORS: [Door; 13] = [
    Door::Terminal,
    Door::CommandExecutor,
    Door::McpSection,
    Door::McpOption,
    Door::McpHttp,
    Door::Agent,
    Door::SubAgent,
    Door::Api,
    Door::OpenAi,
    Door::Responses,
    Door::Messages,
    Door::Ollama,
    Door::A2a,
];

/// A world, its servers, and the task of a caller without a profile.
struct Office {
    mcp: HttpServer,
    server: Server,
    /// The header with the API key.
    key: String,
    foreign: String,
    world: World,
}

/// The definitions: `order_read` is all that the profile `support` allows, whatever key of it is meant to exclude the others.
fn definitions() -> Value {
    let touch = |file: &str| json!({"process": {"folder": ".", "argv": ["sh", "-c", format!("echo x >> {file}; printf done")]}});
    let read = json!({"readOnlyHint": true});
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    json!({
        "order_read": {"description": "Reads an order of the shop.", "annotations": read, "tags": ["shop"], "input": text,
            "run": touch("allowed")},
        "payroll_export": {"description": "Exports what everyone earns, sesame.", "phrases": ["salaries of all"],
            "annotations": read, "tags": ["shop"], "input": text, "run": touch("forbidden")},
        "payroll_admin": {"description": "Administers pay, sesame.", "annotations": read, "tags": ["shop"], "admin": true,
            "input": text, "run": touch("forbidden")},
        "order_audit": {"description": "Reads the audit of orders, sesame.", "annotations": read, "tags": ["audit"],
            "input": text, "run": touch("forbidden")},
        "order_costs": {"description": "Reads what orders cost us, sesame.", "annotations": read, "tags": ["shop"],
            "requires": ["cost:read"], "input": text, "run": touch("forbidden")},
        "order_cancel": {"description": "Cancels an order, sesame.", "tags": ["shop"], "confirm": "never", "input": text,
            "run": touch("forbidden")},
        "order_whole": {"description": "Reads an order with its costs.", "annotations": read, "tags": ["shop"], "input": text,
            "run": {"steps": [{"name": "costs", "subtool": "order_costs", "input": {}}]}},
        "order_dep": {"description": "Reads an order with the payroll.", "annotations": read, "tags": ["shop"], "input": text,
            "depends_on": ["payroll_export"], "run": touch("forbidden")},
        "order_script": {"description": "Reads an order and more.", "annotations": read, "tags": ["shop"], "input": {},
            "run": {"script": {"source": "return await payroll_export({})", "calls": ["payroll_export"]}}},
        "order_computed": {"description": "Reads an order somehow.", "annotations": read, "tags": ["shop"], "input": {},
            "run": {"script": {"source": "const n = 'payroll' + '_export'; return await tools[n]({})",
                "calls": ["payroll_export"]}}},
        "order_agent": {"description": "Has an agent read an order.", "annotations": read, "tags": ["shop"], "input": {},
            "run": {"agent": {"prompt": "read", "subtools": ["payroll_export", "order_costs"]}}},
        "helper": {"description": "Has an agent do something.", "confirm": "never",
            "input": {"type": "object", "properties": {"brief": {"type": "string"}}, "required": ["brief"]},
            "run": {"agent": {"prompt": "{{ brief }}", "profile": "support"}}},
    })
}

const EXCLUDED: [&str; 5] = ["payroll_export", "payroll_admin", "order_audit", "order_costs", "order_cancel"];

const PROFILE: &str = "[access]\nadmin = true\n[profiles.support]\nallow = [\"order_*\", \"payroll_admin\", \"run_script\"]\n\
                       tags = [\"shop\", \"script\"]\nprivileges = [\"order:*\"]\nread_only = true\n";

fn office() -> Office {
    let world = World::new();
    world.define("shop.json", &definitions());
    let key_file = world.home().join("support-key");
    std::fs::write(&key_file, MCP_KEY).expect("written");
    std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    let client = format!("[mcp.clients.support]\nprofile = \"support\"\nkey_file = \"{}\"\n", key_file.display());
    let model = echo_model::start();
    world.configure(&echo_model::configuration(&model, &format!("{PROFILE}{client}")));
    let foreign = world.run(&["run", "payroll_export", "--idempotency-key=k", "--wait"]).json();
    let key = world.run(&["serve", "key", "create", "desk", "--profile=support"]).json();
    std::fs::remove_file(world.folder().join("forbidden")).expect("it ran");
    Office {
        mcp: HttpServer::start(&world, &["--expose=*"]),
        server: Server::start(&world),
        key: format!("Authorization: Bearer {}\r\n", key["key"].as_str().expect("a key")),
        foreign: foreign["id"].as_str().expect("an id").to_owned(),
        world,
    }
}

fn text_of(output: std::process::Output) -> String {
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn with_profile(world: &World, words: &[&str]) -> Command {
    let mut command = world.command(words);
    command.env("AGENT_MAGIC_TOOL_PROFILE", "support");
    command
}

impl Office {
    /// What the caller at this door reads when it runs a command line.
    fn ask(&self, door: Door, line: &str) -> String {
        let world = &self.world;
        let shell = format!("shell {line}");
        let user = json!({"role": "user", "content": shell});
        match door {
            Door::Terminal => {
                let mut words = Command::new("sh");
                let program = world.command(&[]).get_program().to_owned();
                let command = with_profile(world, &[]);
                words.arg("-c").arg(line.replacen("agent-magic-tool", &program.to_string_lossy(), 1));
                words.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
                words.current_dir(world.folder());
                text_of(words.stdin(Stdio::null()).output().expect("it starts"))
            }
            Door::CommandExecutor => {
                let mut process = with_profile(world, &["command-executor"]);
                let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
                let mut stdin = process.stdin.take().expect("a pipe");
                writeln!(stdin, "{}", json!({"command": line})).expect("written");
                drop(stdin);
                text_of(process.wait_with_output().expect("it ends"))
            }
            Door::McpSection => over_stdio(world.command(&["mcp", "--client=support"]), &one_tool(line)),
            Door::McpOption => over_stdio(world.command(&["mcp", "--profile=support"]), &one_tool(line)),
            Door::McpHttp => self.over_http(&one_tool(line)),
            Door::Agent => text_of(world.command(&["agent", "--profile=support", &shell]).output().expect("it starts")),
            Door::SubAgent => {
                let input = json!({"brief": shell}).to_string();
                text_of(world.command(&["run", "helper", "--wait", "--input", &input]).output().expect("it starts"))
            }
            Door::Api => self.post("/api/v1/submit", &json!({"session": "s", "message": shell})),
            Door::OpenAi => {
                self.post("/v1/chat/completions", &json!({"model": "agent-magic-tool", "messages": [user]}))
            }
            Door::Responses => self.post("/v1/responses", &json!({"model": "agent-magic-tool", "input": shell})),
            Door::Messages => {
                self.post("/v1/messages", &json!({"model": "agent-magic-tool", "max_tokens": 1000, "messages": [user]}))
            }
            Door::Ollama => {
                self.post("/api/chat", &json!({"model": "agent-magic-tool", "messages": [user], "stream": false}))
            }
            Door::A2a => {
                let message = json!({"role": "ROLE_USER", "messageId": "m", "parts": [{"text": shell}]});
                let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
                self.post("/a2a", &call)
            }
        }
    }

    fn post(&self, path: &str, body: &Value) -> String {
        self.server.request("POST", path, &self.key, &body.to_string()).body
    }

    fn over_http(&self, request: &Value) -> String {
        let key = format!("Bearer {MCP_KEY}");
        let (_, answer) = post(&self.mcp, &[("Authorization", &key)], INITIALIZE);
        let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").trim();
        let in_session = [("Authorization", key.as_str()), ("Mcp-Session-Id", session)];
        post(&self.mcp, &in_session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        post(&self.mcp, &in_session, &request.to_string()).1
    }

    fn has_run(&self, file: &str) -> bool {
        self.world.folder().join(file).exists()
    }
}

fn one_tool(line: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "command_executor", "arguments": {"command": line}}})
}

fn over_stdio(mut command: Command, call: &Value) -> String {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let (mut stdin, lines) = (process.stdin.take().expect("a pipe"), Lines::of(process.stdout.take().expect("a pipe")));
    writeln!(stdin, "{INITIALIZE}").expect("written");
    lines.next();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    writeln!(stdin, "{ready}\n{call}").expect("written");
    let answer = loop {
        let message = lines.next();
        if message["id"] == call["id"] {
            break message;
        }
    };
    drop(stdin);
    process.wait().expect("it ends with its input");
    answer.to_string()
}

/// The command line that runs a script.
fn script(body: &str) -> String {
    format!("agent-magic-tool script --wait <<'EOF'\n{body}\nEOF")
}

/// The command lines of a caller who wants to reach `excluded`, and whether each names it.
fn ways(excluded: &str, foreign: &str) -> Vec<(String, bool)> {
    let typo = &excluded[..excluded.len() - 1];
    [
        (format!("run {excluded} --wait"), true),
        (format!("run {excluded} text=x --wait --reason=urgent"), true),
        (format!("run {excluded} --dry-run"), true),
        (format!("run {excluded} --in=1s"), true),
        (format!("run {excluded} --idempotency-key=k --wait"), true),
        (format!("run {excluded} --if-no-approver=fail --wait"), true),
        (format!("run {typo} --wait"), false),
        ("run order_whole --wait".to_owned(), false),
        ("run order_whole --dry-run".to_owned(), false),
        ("run order_dep --wait".to_owned(), false),
        ("run order_dep --dry-run".to_owned(), false),
        ("run order_script --wait".to_owned(), false),
        ("run order_script --dry-run".to_owned(), false),
        ("run order_computed --wait".to_owned(), false),
        ("run order_agent --dry-run".to_owned(), false),
        (format!("list tools {excluded}"), true),
        (format!("list tools {excluded} --full --format=openai"), true),
        (format!("list tools {typo}"), false),
        ("list tools".to_owned(), false),
        ("list tools --limit=1000 --full".to_owned(), false),
        ("list tools --format=names --limit=1000".to_owned(), false),
        ("list tools --query=\"salaries of all\"".to_owned(), false),
        ("list tools --query=audit --in=shop".to_owned(), false),
        ("list tools --query=sesamf".to_owned(), false),
        ("list packs --format=table".to_owned(), false),
        ("list tools --in=git".to_owned(), false),
        (format!("inspect {excluded}"), true),
        (format!("test {excluded}"), true),
        ("inspect".to_owned(), false),
        ("lint".to_owned(), false),
        ("doctor".to_owned(), false),
        (format!("read {foreign}"), false),
        (format!("read {foreign} --jq=."), false),
        (format!("wait {foreign}"), false),
        (format!("cancel {foreign}"), false),
        (format!("resolve {foreign} --happened=no"), false),
        ("tasks".to_owned(), false),
        (format!("help {excluded}"), true),
    ]
    .into_iter()
    .map(|(words, names)| (format!("agent-magic-tool {words}"), names))
    .chain([
        (script(&format!("return await {excluded}({{}})")), true),
        (script(&format!("try {{ await {typo}({{}}) }} catch (e) {{ return String(e) + e.hint }}")), false),
        (script("return await list_tools({query: \"salaries audit costs cancel\"})"), false),
        (script(&format!("return await read({{id: \"{foreign}\"}})")), false),
    ])
    .collect()
}

#[test]
fn what_a_profile_excludes_is_reached_by_no_way_at_any_door() {
    let office = office();
    for door in DOORS {
        let allowed = office.ask(door, "agent-magic-tool run order_read --wait");
        assert!(allowed.contains("done") && office.has_run("allowed"), "{door:?}: {allowed}");
        std::fs::remove_file(office.world.folder().join("allowed")).expect("it ran");
        let listed = office.ask(door, "agent-magic-tool list tools --query=order --format=names");
        assert!(listed.contains("order_read"), "{door:?}: {listed}");
    }
    for door in DOORS {
        // Each key of the profile excludes one of them; at doors that are slow to ask, one stands for all.
        let excluded =
            if matches!(door, Door::Terminal | Door::CommandExecutor) { &EXCLUDED[..] } else { &EXCLUDED[..1] };
        for excluded in excluded {
            for (line, names_it) in ways(excluded, &office.foreign) {
                let told = office.ask(door, &line);
                assert!(!office.has_run("forbidden"), "{door:?} {line}: it ran");
                // The caller's own tasks have what it wrote.
                if line.ends_with(" tasks") {
                    let has_others = told.replace('\\', "").contains("\"tool\":\"payroll_export\"");
                    assert!(!has_others && !told.contains(CANARY), "{door:?}: {told}");
                    continue;
                }
                let found: Vec<_> = EXCLUDED.iter().filter(|name| told.contains(**name)).collect();
                let echoes = names_it && found == [excluded];
                assert!(!told.contains(CANARY) && (found.is_empty() || echoes), "{door:?} {line}: {told}");
            }
        }
    }
}

#[test]
fn what_is_excluded_is_answered_as_if_it_did_not_exist() {
    let office = office();
    for door in [Door::Terminal, Door::CommandExecutor, Door::McpSection, Door::McpHttp, Door::Api] {
        for words in
            ["run NAME --wait", "run NAME --dry-run", "list tools NAME", "test NAME", "inspect NAME", "help NAME"]
        {
            let told = |name: &str| {
                let line = format!("agent-magic-tool {}", words.replace("NAME", name));
                office.ask(door, &line).replace(name, "NAME")
            };
            for excluded in EXCLUDED {
                // Ids and times differ from call to call,
                // and what is near to a name with its letters.
                let shape = |text: &str| {
                    let before_details = text.split("details").next().unwrap_or_default();
                    before_details.replace(|letter: char| letter.is_ascii_hexdigit(), "")
                };
                // As near to the names that there are, and nothing has it.
                let nothing = format!("{}z", &excluded[..excluded.len() - 1]);
                let (one, other) = (told(excluded), told(&nothing));
                assert_eq!(shape(&one), shape(&other), "{door:?} {words} {excluded}: {one}");
            }
        }
    }
}
