//! Telemetry: traces and metrics for a collector, metrics for Prometheus, log lines for the journal.
//!
//! The collector is a server in the test. If the official libraries are installed, they parse what it received.
//! Telemetry never contains a secret or an input.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use protocol::task::TaskId;
use serde_json::{Value, json};

use super::closed::may_look_inside;
use crate::skip::skip;
use crate::world::{World, until};

const CANARY: &str = "otel-canary-5b1d77-never-to-be-seen";
const PRIVATE: &str = "a private input that telemetry must not contain";

/// A collector of OTLP over HTTP.
struct Collector {
    address: String,
    requests: Arc<Mutex<Vec<OtlpRequest>>>,
}

#[derive(Debug, Clone)]
struct OtlpRequest {
    path: String,
    head: String,
    body: String,
}

impl Collector {
    /// Answers with the statuses `first`, then with 200.
    fn start(first: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (shared, mut first) = (Arc::clone(&requests), first.iter().copied());
        // The thread ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = read_request(&stream) else { continue };
                let status = first.next().unwrap_or(200);
                if status == 200 {
                    shared.lock().expect("no thread panicked").push(request);
                }
                answer(stream, status);
            }
        });
        Self { address, requests }
    }

    /// The accepted requests for a path.
    fn requests(&self, path: &str) -> Vec<OtlpRequest> {
        let requests = self.requests.lock().expect("no thread panicked");
        requests.iter().filter(|request| request.path == path).cloned().collect()
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.requests("/v1/traces").into_iter();
        let bodies = bodies.map(|request| serde_json::from_str::<Value>(&request.body).expect("JSON"));
        bodies.flat_map(|body| items(&body["resourceSpans"][0]["scopeSpans"][0]["spans"])).collect()
    }
}

fn items(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn read_request(stream: &TcpStream) -> Option<OtlpRequest> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some(OtlpRequest { path, head, body: String::from_utf8(body).expect("JSON is UTF-8") })
}

fn answer(mut stream: TcpStream, status: u16) {
    let answer = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    // The sender may have closed the connection.
    stream.write_all(answer.as_bytes()).ok();
}

/// A world that exports to `collector` and serves metrics at any free port.
fn world(collector: &Collector) -> World {
    let world = World::new();
    world.configure(&format!(
        "[telemetry]\notlp = \"http://{}\"\nevery = \"50ms\"\nprometheus = \"127.0.0.1:0\"\n\
         [telemetry.otlp_headers]\nauthorization = \"secret:otel\"\n",
        collector.address
    ));
    world.run_with(&["secret", "set", "otel"], CANARY);
    world.define(
        "telemetry.json",
        &json!({
            "echo": {"description": "Says it back.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", "{{ text }}"]}}},
            "fail": {"description": "Fails, twice.", "input": {}, "annotations": {"readOnlyHint": true},
                "retries": {"times": 1, "backoff": "10ms"}, "run": {"process": {"argv": ["false"]}}},
            "refused": {"description": "Needs a confirmation.", "input": {}, "confirm": "always", "run": {"process": {"argv": ["true"]}}}
        }),
    );
    world
}

/// The address at which the executor serves metrics, from its log.
fn address_of_metrics(world: &World) -> String {
    let mut address = None;
    until("metrics are served", || {
        let log = std::fs::read_to_string(world.log()).unwrap_or_default();
        let line = log.lines().rev().find(|line| line.contains("metrics are served")).map(str::to_owned);
        address = line.and_then(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            Some(line["address"].as_str()?.to_owned())
        });
        address.is_some()
    });
    address.expect("found above")
}

/// The status and the body of one request.
fn ask(address: &str, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
}

fn scrape(address: &str) -> String {
    let (status, text) = ask(address, &format!("GET /metrics HTTP/1.1\r\nhost: {address}"));
    assert_eq!(status, 200, "{text}");
    text
}

/// Returns the value of a sample. Fails if a line of the text is not valid.
fn sample(text: &str, wanted: &str) -> f64 {
    let mut found = None;
    for line in text.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE ")) {
        let (name, number) = line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line}"));
        let number: f64 = number.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
        if name == wanted {
            assert!(found.replace(number).is_none(), "`{name}` occurs twice");
        }
    }
    found.unwrap_or_else(|| panic!("no sample `{wanted}` in:\n{text}"))
}

/// Parses `text` with the official libraries; `None` if they are not installed.
fn parse_officially(kind: &str, text: &str) -> Option<Value> {
    let Ok(python) = std::env::var("AGENT_MAGIC_TOOL_TEST_TELEMETRY") else {
        skip("the parsers of OpenTelemetry and Prometheus: tests/run installs them");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/executor/telemetry/read.py");
    let mut command = Command::new(python);
    let mut child = command.arg(script).arg(kind).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "the official library does not accept this as {kind}:\n{text}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn a_task_is_a_trace_with_its_id_and_a_span_for_each_attempt() {
    let collector = Collector::start(&[]);
    let world = world(&collector);
    let mut command = world.command(&["run", "fail", "--wait"]);
    let ran = world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", "night shift").output().expect("ran"));
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    until("the three spans are exported", || {
        collector.spans().iter().filter(|span| span["traceId"] == id.as_str()).count() == 3
    });
    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["attempt 1", "attempt 2", "execute_tool fail"]);
    let root = &spans[2];
    assert!(spans[..2].iter().all(|span| span["parentSpanId"] == root["spanId"]), "{spans:?}");
    assert_eq!(root["status"], json!({"code": 2, "message": "process-failed"}));
    let attributes: Vec<_> =
        items(&root["attributes"]).into_iter().map(|one| (one["key"].clone(), one["value"].clone())).collect();
    let text = |text: &str| json!({"stringValue": text});
    for (key, value) in [
        ("gen_ai.tool.name", text("fail")),
        ("gen_ai.tool.call.id", text(&id)),
        ("agent_magic_tool.state", text("failed")),
        ("agent_magic_tool.attempts", json!({"intValue": "2"})),
        ("agent_magic_tool.effect", text("read")),
        ("agent_magic_tool.session", text("night shift")),
        ("error.type", text("process-failed")),
    ] {
        assert!(attributes.contains(&(json!(key), value.clone())), "{key} is not {value}: {attributes:?}");
    }
    let request = &collector.requests("/v1/traces")[0];
    assert!(
        request.head.to_lowercase().contains(&format!("authorization: {CANARY}")),
        "the secret should be in the header"
    );
    if let Some(parsed) = parse_officially("traces", &request.body) {
        assert_eq!(parsed[0]["trace"], id.as_str(), "{parsed}");
        assert!(items(&parsed).iter().all(|span| span["nanoseconds"].as_i64() >= Some(0)), "{parsed}");
    }
}

#[test]
fn metrics_count_accepted_refused_and_ended_tasks_and_measure_durations() {
    let collector = Collector::start(&[]);
    let world = world(&collector);
    for _ in 0..3 {
        world.result_of("echo", &json!({"text": "x"}));
    }
    world.result_of("fail", &json!({}));
    assert_eq!(world.run(&["run", "refused", "--if-no-approver=fail"]).exit, 5);
    assert_eq!(world.run(&["run", "nothing-of-this-name"]).exit, 3);
    let address = address_of_metrics(&world);
    let text = scrape(&address);
    for (name, expected) in [
        ("agent_magic_tool_tasks_accepted_total", 4.0),
        ("agent_magic_tool_tasks_ended_total{state=\"succeeded\"}", 3.0),
        ("agent_magic_tool_tasks_ended_total{state=\"failed\"}", 1.0),
        ("agent_magic_tool_tasks_open{state=\"running\"}", 0.0),
        ("agent_magic_tool_requests_refused_total{code=\"no-approver\"}", 1.0),
        ("agent_magic_tool_requests_refused_total{code=\"unknown-subtool\"}", 1.0),
        ("agent_magic_tool_attempt_duration_seconds_count", 5.0),
        ("agent_magic_tool_attempt_duration_seconds_bucket{le=\"+Inf\"}", 5.0),
        ("agent_magic_tool_results_late_total", 0.0),
    ] {
        assert!((sample(&text, name) - expected).abs() < 0.5, "{name} is not {expected}:\n{text}");
    }
    assert!(sample(&text, "agent_magic_tool_commit_duration_seconds_count") >= 4.0, "{text}");
    assert!(sample(&text, "agent_magic_tool_answer_duration_seconds_count") >= 6.0, "{text}");
    assert!(sample(&text, "agent_magic_tool_record_size_bytes") > 4096.0, "{text}");
    if let Some(parsed) = parse_officially("prometheus", &text) {
        assert_eq!(parsed["agent_magic_tool_tasks_accepted"]["type"], "counter", "{parsed}");
        assert_eq!(parsed["agent_magic_tool_answer_duration_seconds"]["type"], "histogram", "{parsed}");
    }
    until("the collector has the same numbers", || {
        collector.requests("/v1/metrics").last().is_some_and(|request| {
            let body: Value = serde_json::from_str(&request.body).expect("JSON");
            let metrics = items(&body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]);
            let accepted = metrics.iter().find(|metric| metric["name"] == "agent_magic_tool.tasks.accepted");
            accepted.is_some_and(|metric| metric["sum"]["dataPoints"][0]["asInt"] == "4")
        })
    });
    let last = collector.requests("/v1/metrics").pop().expect("a request");
    if let Some(parsed) = parse_officially("metrics", &last.body) {
        assert_eq!(parsed["agent_magic_tool.attempt.duration"], json!({"kind": "histogram", "points": 1}), "{parsed}");
        assert_eq!(parsed["agent_magic_tool.tasks.ended"]["kind"], "sum", "{parsed}");
    }
}

#[test]
fn the_endpoint_serves_only_metrics_and_only_under_a_loopback_name() {
    let collector = Collector::start(&[]);
    let world = world(&collector);
    world.run(&["executor", "start"]);
    let address = address_of_metrics(&world);
    for (request, expected) in [
        (format!("GET /metrics HTTP/1.1\r\nhost: {address}"), 200),
        ("GET /metrics HTTP/1.1\r\nhost: localhost:1".to_owned(), 200),
        ("GET /metrics HTTP/1.1\r\nhost: evil.example".to_owned(), 421),
        ("GET /metrics HTTP/1.1".to_owned(), 421),
        (format!("GET / HTTP/1.1\r\nhost: {address}"), 404),
        (format!("POST /metrics HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0"), 405),
        (format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nx: {}", "y".repeat(1 << 20)), 431),
    ] {
        let shown: String = request.chars().take(60).collect();
        // After too many bytes the server may close the connection before all of them are sent.
        let status = thread::spawn({
            let address = address.clone();
            move || ask(&address, &request).0
        });
        let status = status.join().unwrap_or(431);
        assert_eq!(status, expected, "{shown}");
    }
    // Many silent connections do not block others, since the server closes them.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).expect("connected")).collect();
    scrape(&address);
    drop(silent);
}

#[test]
fn an_unavailable_collector_gets_the_spans_later_and_delays_no_task() {
    let collector = Collector::start(&[503, 429]);
    let world = world(&collector);
    let ids: Vec<_> = (0..3).map(|_| world.start("echo", &json!({"text": PRIVATE}))).collect();
    for id in &ids {
        assert_eq!(world.run(&["wait", id]).json()["status"], "succeeded");
    }
    until("all spans are exported", || {
        let spans = collector.spans();
        ids.iter()
            .all(|id| spans.iter().any(|span| span["traceId"] == id.as_str() && span.get("parentSpanId").is_none()))
    });
    let text = scrape(&address_of_metrics(&world));
    assert!(sample(&text, "agent_magic_tool_spans_dropped_total") < 0.5, "{text}");
}

#[test]
fn an_ending_executor_exports_its_last_spans_and_the_next_one_continues_a_trace() {
    let collector = Collector::start(&[]);
    let world = world(&collector);
    world.define(
        "slow.json",
        &json!({"slow": {"description": "Waits for a file.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"folder": ".", "argv": ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]}}}}),
    );
    let id = world.start("slow", &json!({}));
    until("the task runs", || world.result_file(&id)["state"] == "running");
    world.kill_executor();
    std::fs::write(world.folder().join("go"), "").expect("written");
    assert_eq!(world.run(&["wait", &id]).json()["status"], "succeeded");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    until("the executor has ended", || world.executor().is_none());
    let spans = collector.spans();
    let root = spans.iter().find(|span| span["name"] == "execute_tool slow").expect("the span of the task");
    assert_eq!(root["traceId"], id.as_str());
    let attempts: Vec<_> = spans.iter().filter(|span| span["parentSpanId"] == root["spanId"]).collect();
    assert_eq!(attempts.len(), 2, "expected the lost and the successful attempt: {spans:?}");
}

#[test]
fn logs_traces_and_metrics_contain_no_secret_and_no_input() {
    let collector = Collector::start(&[]);
    let world = world(&collector);
    // After the first export the executor has read the secret, so that it can redact it.
    world.result_of("echo", &json!({"text": "x"}));
    until("there was an export", || !collector.requests("/v1/metrics").is_empty());
    let mut command = world.command(&["run", "echo", &format!("text={PRIVATE} {CANARY}"), "--wait"]);
    let ran = world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", format!("s-{CANARY}")).output().expect("ran"));
    let id: TaskId = ran.json()["id"].as_str().expect("an id").parse().expect("an id");
    until("the span is exported", || collector.spans().iter().any(|span| span["traceId"] == id.to_string()));
    let metrics = scrape(&address_of_metrics(&world));
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let requests = collector.requests.lock().expect("no thread panicked").clone();
    assert!(requests.len() >= 4, "{requests:?}");
    for body in requests.iter().map(|request| &request.body).chain([&metrics]) {
        assert!(!body.contains(CANARY) && !body.contains(PRIVATE), "{body}");
    }
    let log = std::fs::read_to_string(world.log()).expect("a log");
    assert!(!log.contains(CANARY) && log.contains("[secret:otel]"), "{log}");
}

#[test]
fn telemetry_is_off_by_default() {
    let world = World::new();
    // Without the page, nothing should listen.
    world.configure("[page]\nenabled = false\n");
    world.run(&["executor", "start"]);
    let pid = world.executor().expect("a running executor");
    if !may_look_inside() {
        return;
    }
    let sockets = || {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").flatten();
        let targets: Vec<_> = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        let inodes: Vec<_> = targets
            .iter()
            .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let tables = ["tcp", "tcp6", "udp", "udp6"]
            .map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
        tables.join("\n").lines().filter(|line| inodes.iter().any(|inode| line.contains(&format!(" {inode} ")))).count()
    };
    assert_eq!(sockets(), 0, "the executor has network sockets");
}

#[test]
fn the_log_format_is_json_plain_or_with_priorities_for_the_journal() {
    for (format, expected) in [("json", "{\"timestamp\":"), ("journald", "<6>executor started pid="), ("plain", "20")] {
        let world = World::new();
        world.configure(&format!("[executor]\nlog_format = \"{format}\"\n"));
        let log = world.home().join("log");
        let file = std::fs::File::create(&log).expect("a file");
        let mut child = world.command(&["executor", "run"]).stderr(file).spawn().expect("started");
        let started = || std::fs::read_to_string(&log).unwrap_or_default();
        until("the log names the start", || started().contains("executor started") && started().ends_with('\n'));
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(started().starts_with(expected), "{format}: {}", started());
        assert!(!started().contains('\u{1b}'), "a log file should have no colors: {}", started());
    }
}
