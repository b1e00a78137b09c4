//! Whatever may have happened ends as `unknown`, with every runner: what was sent and not answered can be resolved, and
//! a definite answer stays a definite end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::mcp::crooked_server;
use crate::world::World;

/// A server that takes every request and answers as its path says, or not at all.
struct Server {
    url: String,
    taken: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&taken);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || serve(&stream, &counter));
            }
        });
        Self { url, taken }
    }
}

fn serve(stream: &TcpStream, taken: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    if reader.read_line(&mut first).is_err() || first.is_empty() {
        return;
    }
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    reader.read_exact(&mut vec![0; length]).ok();
    taken.fetch_add(1, Ordering::SeqCst);
    let answer = |text: &str| {
        let mut writer = stream;
        writer.write_all(text.as_bytes()).ok();
    };
    match first.split(' ').nth(1).unwrap_or_default() {
        // Closed without an answer.
        "/lost" => {}
        "/late" => {
            // Until the client gives up.
            reader.read_exact(&mut [0]).ok();
        }
        "/broken" => answer("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"id\":"),
        "/text" => answer("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n<htm>"),
        path => {
            let status = path.trim_start_matches('/');
            answer(&format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"));
        }
    }
}

/// Each way in which a call can end without saying whether it took effect, and beside it the ends that do say it.
#[test]
fn what_may_have_happened_is_unknown_with_every_runner() {
    let (server, world) = (Server::start(), World::new());
    let own = |run: Value, more: Value| {
        let mut definition = json!({"description": "Does it.", "input": {"type": "object"}, "confirm": "never",
            "timeout": "20s", "retries": {"times": 2, "backoff": "1ms"}, "run": run});
        for (key, value) in more.as_object().into_iter().flatten() {
            definition[key] = value.clone();
        }
        definition
    };
    let post = |path: &str| json!({"http": {"method": "POST", "base_url": server.url, "path": path}});
    let keyed = |path: &str| json!({"http": {"method": "POST", "base_url": server.url, "path": path, "idempotency_header": "Idempotency-Key"}});
    let once_more = json!({"annotations": {"idempotentHint": true}, "retries": {"times": 1, "backoff": "1ms"}});
    let shell = |script: &str| json!({"process": {"argv": ["sh", "-c", script]}});
    let mcp = |tool: &str| json!({"mcp": {"server": {"name": "crooked", "command": ["python3", crooked_server()], "env": {}}, "tool": tool}});
    let short = json!({"timeout": "1s"});
    let reads = json!({"annotations": {"readOnlyHint": true}});
    let picks = json!({"result": {"select": ".a.b.c | error(\"no\")"}});
    let cases = [
        ("http_lost", own(post("/lost"), json!({})), "unknown", "connection-lost"),
        ("http_late", own(post("/late"), short.clone()), "unknown", "timed-out"),
        ("http_broken", own(post("/broken"), json!({})), "unknown", "connection-lost"),
        ("http_text", own(post("/text"), json!({})), "unknown", "bad-response"),
        ("http_selected", own(post("/200"), picks), "failed", "select-failed"),
        ("http_bad_gateway", own(post("/502"), json!({})), "unknown", "api-error"),
        ("http_gateway_timeout", own(post("/504"), json!({})), "unknown", "api-error"),
        ("http_error", own(post("/500"), json!({})), "failed", "api-error"),
        ("http_unavailable", own(post("/503"), json!({})), "failed", "api-error"),
        ("http_refused", own(post("/400"), json!({})), "failed", "api-error"),
        (
            "http_unreachable",
            own(json!({"http": {"method": "POST", "base_url": "http://127.0.0.1:1", "path": "/"}}), json!({})),
            "failed",
            "unreachable",
        ),
        ("http_read_lost", own(post("/lost"), reads.clone()), "failed", "connection-lost"),
        (
            "http_read_late",
            own(post("/late"), json!({"timeout": "1s", "annotations": {"readOnlyHint": true}})),
            "timed_out",
            "timed-out",
        ),
        ("keyed_lost", own(keyed("/lost"), once_more.clone()), "unknown", "connection-lost"),
        ("keyed_bad_gateway", own(keyed("/502"), once_more.clone()), "unknown", "api-error"),
        ("keyed_refused", own(keyed("/400"), once_more.clone()), "failed", "api-error"),
        // The same address is the same thing, whoever sends it again.
        (
            "put_lost",
            own(json!({"http": {"method": "PUT", "base_url": server.url, "path": "/lost"}}), once_more),
            "failed",
            "connection-lost",
        ),
        ("process_killed", own(shell("kill -9 $$"), json!({})), "unknown", "process-failed"),
        ("process_late", own(shell("sleep 60"), short.clone()), "unknown", "timed-out"),
        ("process_failed", own(shell("exit 3"), json!({})), "failed", "process-failed"),
        ("process_read_killed", own(shell("kill -9 $$"), reads), "failed", "process-failed"),
        ("mcp_lost", own(mcp("crash"), json!({})), "unknown", "connection-lost"),
        ("mcp_late", own(mcp("silent"), short), "unknown", "timed-out"),
        ("mcp_failed", own(mcp("fail"), json!({})), "failed", "api-error"),
        (
            "steps_lost",
            own(json!({"steps": [{"name": "one", "subtool": "http_lost", "input": {}}]}), json!({})),
            "unknown",
            "unknown-outcome",
        ),
        (
            "steps_failed",
            own(json!({"steps": [{"name": "one", "subtool": "http_refused", "input": {}}]}), json!({})),
            "failed",
            "api-error",
        ),
    ];
    let definitions = cases.iter().filter(|case| !case.2.is_empty()).map(|case| (case.0.to_owned(), case.1.clone()));
    world.define("own.json", &Value::Object(definitions.collect()));
    for (tool, _, status, code) in cases.iter().filter(|case| !case.2.is_empty()) {
        let before = server.taken.load(Ordering::SeqCst);
        let result = world.result_of(tool, &json!({}));
        assert_eq!(result["status"], **status, "{tool}: {result:#}");
        let sent = server.taken.load(Ordering::SeqCst) - before;
        let id = result["id"].as_str().expect("an id");
        let resolved = world.run(&["resolve", id, "--happened"]);
        if *status == "unknown" {
            let error = &result["error"];
            assert_eq!(error["code"], "unknown-outcome", "{tool}: {result:#}");
            if !tool.starts_with("steps") {
                assert_eq!(error["details"]["cause"], **code, "{tool}: {result:#}");
                // Attempts with one key are one request to the service, so no start is named.
                let is_joined = tool.starts_with("keyed");
                assert!(is_joined || error["details"]["started_at"].is_string(), "{tool}: {result:#}");
            }
            assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("resolve")), "{tool}: {result:#}");
            // With the key of its task it is sent again, and only then is it unknown.
            let most = if tool.starts_with("keyed") { 2 } else { 1 };
            assert!(sent <= most, "{tool} was sent {sent} times");
            assert_eq!(resolved.exit, 0, "{tool}: {resolved}");
        } else {
            assert_eq!(result["error"]["code"], **code, "{tool}: {result:#}");
            assert_ne!(resolved.exit, 0, "{tool}: a definite end needs no resolution");
        }
    }
}
