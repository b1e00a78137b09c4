//! What an attacker tries who has no session: another program, another page, another host name.
//!
//! Raw bytes over a socket, so that nothing is sent but what is meant.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use executor::page::{PageSite, make_link};
use serde_json::{Value, json};

use crate::world::{World, until};

/// Everything that changes something.
const ACTIONS: [&str; 11] = [
    "/decide",
    "/edit",
    "/decide-edit",
    "/answer",
    "/cancel",
    "/grants",
    "/grants/preview",
    "/grants/revoke",
    "/try",
    "/logout",
    "/resolve",
];
/// Everything that shows something.
const VIEWS: [&str; 8] = ["/", "/tasks", "/history", "/grants", "/subtools", "/events", "/card/x", "/question/x"];

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

fn connect(site: &PageSite) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", site.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    stream
}

/// What comes back for exactly these bytes.
pub(super) fn knock(site: &PageSite, request: &str) -> Answer {
    let mut stream = connect(site);
    // It may be refused before all of it was sent.
    stream.write_all(request.as_bytes()).ok();
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    // A stream of events does not end.
    while let Ok(count @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        let head = &bytes[..bytes.len().min(2048)];
        if head.windows(17).any(|window| window == b"text/event-stream") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(super) struct Human {
    pub(super) site: PageSite,
    pub(super) cookie: String,
    pub(super) token: String,
}

impl Human {
    /// Somebody who used a link, without a browser.
    pub(super) fn of(world: &World) -> Self {
        assert_eq!(world.run(&["executor", "start"]).exit, 0);
        let site = world.site();
        let secret = make_link(&world.executor_folder()).expect("made");
        let answer = post(&site, "/login", &json!({"token": secret}), "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let cookie =
            answer.head.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a cookie");
        let told: Value = serde_json::from_str(answer.body.trim()).expect("JSON");
        let token = told["token"].as_str().expect("a token").to_owned();
        Self { cookie: cookie.to_owned(), token, site }
    }

    fn keys(&self) -> String {
        format!("Cookie: {}\r\nX-Page-Token: {}\r\n", self.cookie, self.token)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        post(&self.site, path, body, &self.keys())
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        get(&self.site, path, &format!("Cookie: {}\r\n", self.cookie))
    }

    /// The first thing that the stream of events says.
    pub(super) fn news(&self) -> String {
        let (host, mut stream) = (format!("{}:{}", self.site.host, self.site.port), connect(&self.site));
        let request = format!("GET /events HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\n\r\n", self.cookie);
        stream.write_all(request.as_bytes()).expect("sent");
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        // The head ends with an empty line, and so does the first event.
        while let Ok(count @ 1..) = stream.read(&mut part) {
            bytes.extend_from_slice(&part[..count]);
            if let Some((_, body)) = String::from_utf8_lossy(&bytes).split_once("\r\n\r\n")
                && body.contains("\n\n")
            {
                return body.to_owned();
            }
        }
        panic!("the stream ended: {}", String::from_utf8_lossy(&bytes));
    }
}

fn get(site: &PageSite, path: &str, headers: &str) -> Answer {
    let host = format!("{}:{}", site.host, site.port);
    knock(site, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"))
}

fn post(site: &PageSite, path: &str, body: &Value, headers: &str) -> Answer {
    let more = format!("Origin: {}\r\nContent-Type: application/json\r\n{headers}", site.origin());
    post_with(site, path, &body.to_string(), &more)
}

fn post_with(site: &PageSite, path: &str, body: &str, headers: &str) -> Answer {
    let (host, length) = (format!("{}:{}", site.host, site.port), body.len());
    knock(
        site,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ),
    )
}

/// A world with a task that waits, and what a yes to it would be.
fn waiting() -> (World, Human, String, Value) {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"trace_it": {"description": "Leaves a trace.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo x >> marks"], "folder": "."}}}}),
    );
    let human = Human::of(&world);
    let id = world.start("trace_it", &json!({"name": "x"}));
    let card = human.get(&format!("/card/{id}"));
    let digest = card.body.split("data-digest=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a digest");
    let yes = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"});
    (world, human, id, yes)
}

fn still_waits(world: &World, id: &str) {
    assert_eq!(world.result_file(id)["state"], "awaiting_confirmation");
    assert!(!world.folder().join("marks").exists());
}

/// T1, T2, T38: without a session nothing is shown and nothing changes; a cookie alone changes nothing.
#[test]
fn without_a_session_nothing_is_shown_and_nothing_changes() {
    let (world, human, id, yes) = waiting();
    let site = &human.site;
    for path in ACTIONS {
        assert_eq!(post(site, path, &yes, "").status, 401, "{path}");
        let stolen = post(site, path, &yes, &format!("Cookie: {}\r\n", human.cookie));
        assert_eq!(stolen.status, 403, "{path}: the cookie is seen by other ports of the same name");
        let guessed = format!("Cookie: {}\r\nX-Page-Token: {}\r\n", human.cookie, "0".repeat(64));
        assert_eq!(post(site, path, &yes, &guessed).status, 403, "{path}");
    }
    for path in
        VIEWS.into_iter().chain([format!("/task/{id}").as_str(), &format!("/card/{id}"), &format!("/question/{id}")])
    {
        let answer = get(site, path, "");
        assert_eq!(answer.status, 401, "{path}");
        assert!(!answer.body.contains(&id) && !answer.body.contains("trace_it"), "{path}: {}", answer.body);
    }
    // Looking decides nothing, whatever is looked at.
    for path in VIEWS.into_iter().chain(ACTIONS).filter(|path| *path != "/events") {
        human.get(path);
    }
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let host = format!("{}:{}", site.host, site.port);
        let keys = human.keys();
        let request = format!("{method} /decide HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{keys}\r\n");
        assert_eq!(knock(site, &request).status, 405, "{method}");
    }
    still_waits(&world, &id);
    assert_eq!(human.post("/decide", &yes).status, 200, "and the human's own does");
    until("it has run", || world.folder().join("marks").exists());
}

/// T3, T50: another name for the page, or a request that two readers could read differently.
#[test]
fn only_the_pages_own_name_is_answered() {
    let (world, human, id, yes) = waiting();
    let site = &human.site;
    let (host, port) = (&site.host, site.port);
    let body = yes.to_string();
    let rest = format!(
        "Connection: close\r\nOrigin: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{body}",
        site.origin(),
        body.len(),
        human.keys()
    );
    let wrong_hosts = [
        "Host: evil.example\r\n".to_owned(),
        format!("Host: localhost:{port}\r\n"),
        format!("Host: 127.0.0.1:{port}\r\n"),
        format!("Host: {host}\r\n"),
        format!("Host: {host}.:{port}\r\n"),
        format!("Host: {}:{port}\r\n", host.to_uppercase()),
        format!("Host: x.{host}:{port}\r\n"),
        format!("Host: {host}:{port}\r\nHost: {host}:{port}\r\n"),
        format!("Host: {host}:{port}@evil.example\r\n"),
        "Host: \r\n".to_owned(),
        String::new(),
    ];
    for wrong in wrong_hosts {
        let status = knock(site, &format!("POST /decide HTTP/1.1\r\n{wrong}{rest}")).status;
        assert!(matches!(status, 400 | 421), "{wrong:?}: {status}");
    }
    let right = format!("Host: {host}:{port}\r\n");
    for line in [format!("POST http://{host}:{port}/decide HTTP/1.1"), "POST /decide HTTP/1.0".to_owned()] {
        assert_eq!(knock(site, &format!("{line}\r\n{right}{rest}")).status, 400, "{line}");
    }
    // Each of two readers finds a whole request in it, and not the same one.
    let (head, _) = rest.split_once("\r\n\r\n").expect("a head and a body");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let te = "Transfer-Encoding: chunked\r\nContent-Length:";
    for head in [
        head.replace("Content-Length:", te),
        format!("{head}\r\nTransfer-Encoding: chunked"),
        format!("{head}\r\nTransfer-Encoding: identity, chunked"),
        format!("{head}\r\nContent-Length: 0"),
    ] {
        for body in [&chunked, &body] {
            let request = format!("POST /decide HTTP/1.1\r\n{right}{head}\r\n\r\n{body}");
            assert_eq!(knock(site, &request).status, 400, "two lengths: {head}");
        }
    }
    still_waits(&world, &id);
}

/// T4, T5, T48: another page in the same browser.
#[test]
fn another_page_in_the_same_browser_gets_nowhere() {
    let (world, human, id, yes) = waiting();
    let (site, keys, body) = (&human.site, human.keys(), yes.to_string());
    let json_type = "Content-Type: application/json\r\n";
    let others = [
        String::new(),
        "Origin: null\r\n".to_owned(),
        format!("Origin: http://{}:1\r\n", site.host),
        format!("Origin: https://{}:{}\r\n", site.host, site.port),
        format!("Origin: http://localhost:{}\r\n", site.port),
        format!("Origin: http://x.{}:{}\r\n", site.host, site.port),
        format!("Origin: {}\r\nOrigin: {}\r\n", site.origin(), site.origin()),
        format!("Origin: {}\r\nSec-Fetch-Site: same-site\r\n", site.origin()),
        format!("Origin: {}\r\nSec-Fetch-Site: cross-site\r\n", site.origin()),
    ];
    for origin in others {
        let status = post_with(site, "/decide", &body, &format!("{origin}{json_type}{keys}")).status;
        assert_eq!(status, 403, "{origin:?}");
    }
    let own = format!("Origin: {}\r\n", site.origin());
    let types =
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", "multipart/form-data"];
    for kind in types {
        let status = post_with(site, "/decide", &body, &format!("{own}Content-Type: {kind}\r\n{keys}")).status;
        assert_eq!(status, 415, "{kind}");
    }
    assert_eq!(post_with(site, "/decide", &body, &format!("{own}{keys}")).status, 415, "no type at all");
    let cookie = format!("Cookie: {}\r\n", human.cookie);
    for path in ["/events", "/card/x", "/question/x"] {
        let other = get(site, path, &format!("{cookie}Sec-Fetch-Site: cross-site\r\n"));
        assert_eq!(other.status, 403, "{path}");
        assert!(!other.head.contains("access-control"), "{}", other.head);
    }
    still_waits(&world, &id);
}

/// T6 and what stands on every answer.
#[test]
fn every_answer_says_what_a_browser_may_do_with_it() {
    let (_world, human, _, _) = waiting();
    for answer in [human.get("/"), human.get("/nowhere"), get(&human.site, "/", ""), human.post("/decide", &json!(7))] {
        for header in [
            "content-security-policy: default-src 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "x-frame-options: deny",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "cross-origin-opener-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.head.contains(header), "{header} is missing: {}", answer.head);
        }
        assert!(!answer.head.contains("unsafe-inline") && !answer.head.contains("unsafe-eval"));
    }
}

/// T11, T14, T30, T49: a decision that is sent again, or about something else, or one of a batch that is stale.
#[test]
fn a_decision_counts_once_and_for_what_was_shown() {
    let (world, human, id, yes) = waiting();
    let other = world.start("trace_it", &json!({"name": "y"}));
    let mut stale = yes.clone();
    stale["decisions"][0]["digest"] = "0".repeat(64).into();
    assert_eq!(human.post("/decide", &stale).status, 409);
    let mut moved = yes.clone();
    moved["decisions"][0]["id"] = other.as_str().into();
    assert_eq!(human.post("/decide", &moved).status, 409, "a yes to one is none to the other");
    let mut batch = yes.clone();
    batch["decisions"].as_array_mut().expect("a list").push(moved["decisions"][0].clone());
    assert_eq!(human.post("/decide", &batch).status, 409, "all or nothing");
    still_waits(&world, &id);
    // Many at once: one wins.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..16).map(|_| scope.spawn(|| human.post("/decide", &yes).status)).collect();
        asks.into_iter().map(|ask| ask.join().expect("answered")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
    assert_eq!(world.run(&["wait", &id]).exit, 0);
    let again = human.post("/decide", &yes);
    assert!(again.status == 409 && again.body.contains("approved by you"), "{}", again.body);
    assert_eq!(std::fs::read_to_string(world.folder().join("marks")).expect("a mark"), "x\n");
}

/// T31, T32: more than a request needs.
#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let (world, human, id, yes) = waiting();
    let site = &human.site;
    let (host, keys) = (format!("{}:{}", site.host, site.port), human.keys());
    let own = format!("Origin: {}\r\nContent-Type: application/json\r\n", site.origin());
    let huge = format!(
        "POST /decide HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 1073741824\r\n{own}{keys}\r\n"
    );
    assert_eq!(knock(site, &huge).status, 413);
    let endless = format!(
        "POST /decide HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{own}{keys}\r\n"
    );
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    assert_eq!(knock(site, &format!("{endless}{chunk}{chunk}{chunk}")).status, 400);
    let headers = "X-Header: value\r\n".repeat(10_000);
    assert!(matches!(get(site, "/", &headers).status, 400 | 431 | 0), "headers are bounded");
    for bomb in
        ["[".repeat(100_000), format!("{{\"verdict\":{}}}", "9".repeat(1 << 20)), "{\"a\":1,\"a\":2}".to_owned()]
    {
        assert_eq!(post_with(site, "/decide", &bomb, &format!("{own}{keys}")).status, 400);
    }
    // Of two verdicts neither counts, and what is nested too deeply goes no further than the page.
    let twice = yes.to_string().replacen('{', "{\"verdict\":\"deny\",", 1);
    assert_eq!(post_with(site, "/decide", &twice, &format!("{own}{keys}")).status, 400, "{twice}");
    let deep = format!("{{\"tool\":\"trace_it\",\"input\":{{\"name\":{}{}}}}}", "[".repeat(80), "]".repeat(80));
    assert_eq!(post_with(site, "/try", &deep, &format!("{own}{keys}")).status, 400);
    still_waits(&world, &id);
}

/// T33, T34: connections that say nothing, or too slowly, or too many.
#[test]
fn a_crowd_of_silent_connections_does_not_keep_the_human_out() {
    let (_world, human, _, _) = waiting();
    let site = &human.site;
    let mut slow = connect(site);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("sent");
    let silent: Vec<_> = (0..500).map(|_| connect(site)).collect();
    let started = Instant::now();
    assert_eq!(human.get("/").status, 200);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    // It was sent away for the others, or because it took too long.
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).ok();
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    drop(silent);
}

/// T39: a link works once, and nothing tells it afterwards.
#[test]
fn a_link_works_once_and_is_told_nowhere() {
    let (world, human, _, _) = waiting();
    let secret = make_link(&world.executor_folder()).expect("made");
    let used = json!({"token": secret});
    assert_eq!(post(&human.site, "/login", &used, "").status, 200);
    assert_eq!(post(&human.site, "/login", &used, "").status, 403);
    assert_eq!(post(&human.site, "/login", &json!({"token": "0".repeat(64)}), "").status, 403);
    let mut folders = vec![world.state(), world.mailbox()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            assert!(!path.to_string_lossy().contains(&secret));
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap_or_default();
                for told in [&secret, &human.token] {
                    let is_there = bytes.windows(told.len()).any(|part| part == told.as_bytes());
                    assert!(!is_there, "{} tells it", path.display());
                }
            }
        }
    }
}

/// T28: an agent that asks and asks.
#[test]
fn a_flood_of_questions_stops_at_its_bounds() {
    let world = World::new();
    world.configure("[confirm]\nwaiting_per_session = 3\nasks_per_hour = 5\n");
    world.define(
        "marks.json",
        &json!({"trace_it": {"description": "Leaves a trace.", "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "run": {"process": {"argv": ["true"]}}}}),
    );
    let human = Human::of(&world);
    let ask = |n: i32| world.run(&["run", "trace_it", &format!("n={n}")]);
    let first = ask(0).json()["id"].clone();
    assert_eq!(ask(0).json()["id"], first, "the same is asked once");
    assert!((1..3).all(|n| ask(n).exit == 0));
    for n in 3..20 {
        let refused = ask(n);
        assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("throttled")), "{refused}");
    }
    let waits = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
    assert_eq!(waits.as_array().map(Vec::len), Some(3));
    for task in waits.as_array().expect("tasks") {
        let id = task["id"].as_str().expect("an id");
        assert_eq!(human.post("/cancel", &json!({"id": id})).status, 200);
    }
    assert!((20..22).all(|n| ask(n).exit == 0));
    let refused = ask(22).error();
    assert!(refused["message"].as_str().expect("a message").contains("within an hour"), "{refused}");
}
