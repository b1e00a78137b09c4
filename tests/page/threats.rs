//! Attacks without a valid session: from another program, another page, another host name.
//!
//! The requests are raw bytes over a socket, so that a test sends exactly what it means to.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use ground::page_client::link::make_link;
use nix::unistd::Uid;
use serde_json::{Value, json};

use super::http::{connect, exchange, get, host, post, post_with};
use super::human::Human;
use crate::skip::skip;
use crate::world::{World, is_alive, until};

/// The paths that change something.
const ACTIONS: [&str; 15] = [
    "/decide",
    "/edit",
    "/decide-edit",
    "/answer",
    "/cancel",
    "/grants",
    "/grants/preview",
    "/grants/revoke",
    "/keys",
    "/keys/begin",
    "/keys/revoke",
    "/try",
    "/undo",
    "/logout",
    "/resolve",
];
/// The paths that show something.
const VIEWS: [&str; 8] = ["/", "/tasks", "/history", "/grants", "/subtools", "/events", "/card/x", "/question/x"];

/// A world with a pending task, a signed-in human, the task's id, and the body that approves the task.
fn world_with_pending_task() -> (World, Human, String, Value) {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"trace_it": {"description": "Leaves a trace.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo x >> marks"], "folder": "."}}}}),
    );
    let human = Human::of(&world);
    let id = world.start("trace_it", &json!({"name": "x"}));
    let approval = human.decision(&id, "approve");
    (world, human, id, approval)
}

fn assert_still_pending(world: &World, id: &str) {
    assert_eq!(world.result_file(id)["state"], "awaiting_confirmation");
    assert!(!world.folder().join("marks").exists());
}

/// And with the cookie alone nothing changes.
#[test]
fn without_a_session_nothing_is_shown_and_nothing_changes() {
    let (world, human, id, approval) = world_with_pending_task();
    let site = &human.site;
    for path in ACTIONS {
        assert_eq!(post(site, path, &approval, "").status, 401, "{path}");
        let stolen = post(site, path, &approval, &format!("Cookie: {}\r\n", human.cookie));
        assert_eq!(stolen.status, 403, "{path}: browsers send the cookie to every port of the host");
        let proof = human.proof("POST", path, &approval.to_string());
        let (nonce, _) = proof.split_once('.').expect("two parts");
        let elsewhere = human.proof("POST", "/elsewhere", &approval.to_string());
        let other_body = human.proof("POST", path, "{}");
        for wrong in [format!("{nonce}.{}", "0".repeat(64)), nonce.to_owned(), elsewhere, other_body] {
            let headers = format!("{}X-Page-Proof: {wrong}\r\n", human.cookie_header());
            assert_eq!(post(site, path, &approval, &headers).status, 403, "{path}");
        }
    }
    for path in
        VIEWS.into_iter().chain([format!("/task/{id}").as_str(), &format!("/card/{id}"), &format!("/question/{id}")])
    {
        let answer = get(site, path, "");
        assert_eq!(answer.status, 401, "{path}");
        assert!(!answer.body.contains(&id) && !answer.body.contains("trace_it"), "{path}: {}", answer.body);
        let stolen = get(site, path, &human.cookie_header());
        assert!(matches!(stolen.status, 200 | 403), "{path}: {}", stolen.status);
        let shown = [id.as_str(), "trace_it", "data-count", "data-card"];
        assert!(
            !shown.iter().any(|word| stolen.body.contains(word)),
            "{path}: a cookie shows nothing: {}",
            stolen.body
        );
    }
    // A proof counts once.
    let headers = human.headers("GET", "/", "");
    assert!(get(site, "/", &headers).body.contains(&id));
    assert_eq!(get(site, "/", &headers).status, 403);
    // A GET changes nothing, on any path.
    for path in VIEWS.into_iter().chain(ACTIONS).filter(|path| *path != "/events") {
        human.get(path);
    }
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let (host, keys) = (host(site), human.headers(method, "/decide", ""));
        let request = format!("{method} /decide HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{keys}\r\n");
        assert_eq!(exchange(site, &request).status, 405, "{method}");
    }
    assert_still_pending(&world, &id);
    assert_eq!(human.post("/decide", &approval).status, 200, "the human's own request works");
    until("the task has run", || world.folder().join("marks").exists());
}

/// One of two session cookies was planted, and nothing says which.
#[test]
fn only_one_session_cookie_that_is_valid_counts() {
    let (world, human, id, _) = world_with_pending_task();
    let other = Human::of(&world);
    let (valid, name) = (human.cookie.as_str(), human.cookie.split_once('=').expect("a name and a value").0);
    let wrong = format!("{name}={}", "0".repeat(valid.len() - name.len() - 1));
    let (shouted, unnamed) = (valid.replacen(name, &name.to_ascii_uppercase(), 1), valid.replacen(name, "", 1));
    let mut headers = vec![
        (vec![valid.to_owned()], true),
        (vec![format!("a=b; {valid}; c=d")], true),
        (vec!["a=b".to_owned(), valid.to_owned()], true),
        (vec![format!("a=\u{e9}; {valid}")], true),
        (vec![], false),
        (vec![wrong.clone()], false),
        (vec![shouted], false),
        (vec![unnamed], false),
        (vec![valid.replacen('=', " = ", 1)], false),
        (vec![format!("{valid}x")], false),
    ];
    for second in [wrong.as_str(), &other.cookie, valid, &format!("{name}="), &format!("{name}=\u{e9}")] {
        for [first, second] in [[valid, second], [second, valid]] {
            headers.extend(["; ", ";"].map(|between| (vec![[first, second].join(between)], false)));
            headers.push((vec![first.to_owned(), second.to_owned()], false));
            headers.push((vec![format!("a=b; {first}"), format!("{second}; c=d")], false));
            headers.push((vec![format!("a=\u{e9}; {first}"), second.to_owned()], false));
        }
    }
    for (cookies, counts) in headers {
        let cookies = format!("Cookie: {}\r\n", cookies.join("\r\nCookie: "));
        let expected = if counts { 200 } else { 401 };
        assert_eq!(get(&human.site, "/challenge?nonce=x", &cookies).status, expected, "{cookies}");
        let proof = human.proof("GET", "/", "");
        let shown = get(&human.site, "/", &format!("{cookies}X-Page-Proof: {proof}\r\n"));
        assert_eq!((shown.status, shown.body.contains(&id)), (expected, counts), "{cookies}");
        let body = json!({});
        let proof = human.proof("POST", "/grants/preview", &body.to_string());
        let sent = post(&human.site, "/grants/preview", &body, &format!("{cookies}X-Page-Proof: {proof}\r\n"));
        assert_eq!(sent.status != 401, counts, "{cookies}: {}", sent.status);
    }
    assert_still_pending(&world, &id);
}

/// What the page sends to another user of this machine who sends it these bytes.
fn answer_to_another_user(human: &Human, request: &str) -> Vec<u8> {
    const NOBODY: u32 = 65534;
    let script = r#"exec 3<>"/dev/tcp/127.0.0.1/$1" && printf %s "$2" >&3; timeout 20 cat <&3"#;
    let port = human.site.port.to_string();
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", &port, request]).uid(NOBODY).gid(NOBODY).current_dir("/");
    command.output().expect("bash runs").stdout
}

/// A session that another user has stolen as a whole is of no use: the kernel says who connects.
#[test]
fn another_user_of_the_machine_gets_no_byte_from_the_page() {
    if !Uid::effective().is_root() {
        skip("another user at the page: only root can be another user");
        return;
    }
    let (world, human, id, approval) = world_with_pending_task();
    let (host, body) = (host(&human.site), approval.to_string());
    let stolen = |method: &str, target: &str, body: &str| {
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{}",
            human.headers(method, target, body)
        )
    };
    for request in [
        format!("{}\r\n", stolen("GET", "/", "")),
        format!("GET /challenge?nonce=x HTTP/1.1\r\nHost: {host}\r\n{}\r\n", human.cookie_header()),
        format!("POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}"),
        format!(
            "{}Origin: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            stolen("POST", "/decide", &body),
            human.site.origin(),
            body.len()
        ),
        "no HTTP at all".to_owned(),
    ] {
        assert_eq!(String::from_utf8_lossy(&answer_to_another_user(&human, &request)), "", "{request}");
    }
    assert_still_pending(&world, &id);
    let log = std::fs::read_to_string(world.log()).expect("a log");
    assert!(log.contains("a connection to the page was refused"), "it is logged");
    assert_eq!(human.post("/decide", &approval).status, 200, "the human's own connection is served");
}

/// Its port would be free for another program while a browser still talks to it.
#[test]
#[expect(clippy::disallowed_methods, reason = "there is nothing to wait for: the executor must not end")]
fn the_executor_does_not_end_while_the_page_is_open() {
    let world = World::new();
    let human = Human::of(&world);
    let (stream, _) = human.open_page();
    // Only now: before a human has the page open, the executor may end at any moment.
    world.configure("[executor]\nidle = \"100ms\"\n");
    let executor = world.executor().expect("a running executor");
    std::thread::sleep(Duration::from_secs(2));
    assert!(is_alive(executor), "a human looks at the page");
    drop(stream);
    until("the page is closed, and it ends", || !is_alive(executor));
}

/// Other host names, and requests that two HTTP parsers could read differently.
#[test]
fn only_requests_to_the_pages_own_host_name_are_answered() {
    let (world, human, id, approval) = world_with_pending_task();
    let site = &human.site;
    let (host, port) = (&site.host, site.port);
    let body = approval.to_string();
    let rest = format!(
        "Connection: close\r\nOrigin: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{body}",
        site.origin(),
        body.len(),
        human.headers("POST", "/decide", &body)
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
        let status = exchange(site, &format!("POST /decide HTTP/1.1\r\n{wrong}{rest}")).status;
        assert!(matches!(status, 400 | 421), "{wrong:?}: {status}");
    }
    let right = format!("Host: {host}:{port}\r\n");
    for line in [format!("POST http://{host}:{port}/decide HTTP/1.1"), "POST /decide HTTP/1.0".to_owned()] {
        assert_eq!(exchange(site, &format!("{line}\r\n{right}{rest}")).status, 400, "{line}");
    }
    // Request smuggling: two parsers would find different requests in these bytes.
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
            assert_eq!(exchange(site, &request).status, 400, "two lengths: {head}");
        }
    }
    assert_still_pending(&world, &id);
}

#[test]
fn another_page_in_the_same_browser_can_neither_read_nor_decide() {
    let (world, human, id, approval) = world_with_pending_task();
    let (site, body) = (&human.site, approval.to_string());
    let keys = human.headers("POST", "/decide", &body);
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
    assert_eq!(post_with(site, "/decide", &body, &format!("{own}{keys}")).status, 415, "no content type");
    // A page that signs the human in to a session of its own choice would see what the human decides.
    let link = json!({"secret": make_link(&world.executor_folder()).expect("a link")}).to_string();
    for origin in ["", "Origin: null\r\n", "Origin: http://evil.example\r\n"] {
        let status = post_with(site, "/login", &link, &format!("{origin}{json_type}")).status;
        assert_eq!(status, 403, "/login, {origin:?}");
    }
    let cookie = format!("Cookie: {}\r\n", human.cookie);
    for path in ["/events", "/card/x", "/question/x", "/challenge?nonce=x"] {
        let other = get(site, path, &format!("{cookie}Sec-Fetch-Site: cross-site\r\n"));
        assert_eq!(other.status, 403, "{path}");
        assert!(!other.head.contains("access-control"), "{}", other.head);
    }
    assert_still_pending(&world, &id);
}

#[test]
fn a_path_without_a_page_says_nothing_to_strangers() {
    let (_world, human, _, _) = world_with_pending_task();
    for path in ["/favicon.ico", "/page/none.js", "/page/a/b", "/page/"] {
        let answer = get(&human.site, path, "");
        assert_eq!((answer.status, answer.body.as_str()), (404, ""), "{path}");
    }
    assert!(human.get("/nowhere").body.contains("There is no page at this address."));
}

#[test]
fn every_answer_has_the_security_headers() {
    let (_world, human, _, _) = world_with_pending_task();
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
            "permissions-policy: camera=(), microphone=(), geolocation=()",
        ] {
            assert!(answer.head.contains(header), "{header} is missing: {}", answer.head);
        }
        assert!(!answer.head.contains("unsafe-inline") && !answer.head.contains("unsafe-eval"));
    }
}

/// A decision that is sent again, that is about another task, or that is part of a batch with a stale one.
#[test]
fn a_decision_counts_once_and_only_for_what_was_shown() {
    let (world, human, id, approval) = world_with_pending_task();
    let other = world.start("trace_it", &json!({"name": "y"}));
    let mut stale = approval.clone();
    stale["decisions"][0]["digest"] = "0".repeat(64).into();
    assert_eq!(human.post("/decide", &stale).status, 409);
    let mut moved = approval.clone();
    moved["decisions"][0]["id"] = other.as_str().into();
    assert_eq!(human.post("/decide", &moved).status, 409, "the digest of one task does not approve another");
    let mut batch = approval.clone();
    batch["decisions"].as_array_mut().expect("a list").push(moved["decisions"][0].clone());
    assert_eq!(human.post("/decide", &batch).status, 409, "all or nothing");
    assert_still_pending(&world, &id);
    // Of many requests at once, one is accepted.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..16).map(|_| scope.spawn(|| human.post("/decide", &approval).status)).collect();
        asks.into_iter().map(|ask| ask.join().expect("an answer")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
    assert_eq!(world.run(&["wait", &id]).exit, 0);
    let again = human.post("/decide", &approval);
    assert!(again.status == 409 && again.body.contains("approved by you"), "{}", again.body);
    assert_eq!(std::fs::read_to_string(world.folder().join("marks")).expect("a mark"), "x\n");
}

/// Bodies, headers and JSON beyond the limits.
#[test]
fn an_oversized_request_is_refused_before_it_is_read() {
    let (world, human, id, approval) = world_with_pending_task();
    let site = &human.site;
    let (host, keys) = (host(site), human.headers("POST", "/decide", ""));
    let own = format!("Origin: {}\r\nContent-Type: application/json\r\n", site.origin());
    let huge = format!(
        "POST /decide HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 1073741824\r\n{own}{keys}\r\n"
    );
    assert_eq!(exchange(site, &huge).status, 413);
    let endless = format!(
        "POST /decide HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{own}{keys}\r\n"
    );
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    assert_eq!(exchange(site, &format!("{endless}{chunk}{chunk}{chunk}")).status, 400);
    let headers = "X-Header: value\r\n".repeat(10_000);
    assert!(matches!(get(site, "/", &headers).status, 400 | 431 | 0), "the size of the headers is limited");
    for bomb in
        ["[".repeat(100_000), format!("{{\"verdict\":{}}}", "9".repeat(1 << 20)), "{\"a\":1,\"a\":2}".to_owned()]
    {
        let keys = human.headers("POST", "/decide", &bomb);
        assert_eq!(post_with(site, "/decide", &bomb, &format!("{own}{keys}")).status, 400);
    }
    // A repeated key is refused, and so is JSON that is nested too deeply.
    let twice = approval.to_string().replacen('{', "{\"verdict\":\"deny\",", 1);
    let keys = human.headers("POST", "/decide", &twice);
    assert_eq!(post_with(site, "/decide", &twice, &format!("{own}{keys}")).status, 400, "{twice}");
    let deep = format!("{{\"tool\":\"trace_it\",\"input\":{{\"name\":{}{}}}}}", "[".repeat(80), "]".repeat(80));
    let keys = human.headers("POST", "/try", &deep);
    assert_eq!(post_with(site, "/try", &deep, &format!("{own}{keys}")).status, 400);
    assert_still_pending(&world, &id);
}

/// Connections that send nothing or send slowly, and too many of them.
#[test]
fn hundreds_of_silent_connections_do_not_lock_the_human_out() {
    let (_world, human, _, _) = world_with_pending_task();
    let site = &human.site;
    let mut slow = connect(site);
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("the request is sent");
    let silent: Vec<_> = (0..500).map(|_| connect(site)).collect();
    let started = Instant::now();
    assert_eq!(human.get("/").status, 200);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    // The slow connection was closed, to make room or because it took too long.
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).ok();
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    drop(silent);
}

#[test]
fn a_link_works_once_and_its_secret_is_stored_nowhere() {
    let (world, human, _, _) = world_with_pending_task();
    let secret = make_link(&world.executor_folder()).expect("a link");
    let used = json!({"secret": secret});
    let signed_in = post(&human.site, "/login", &used, "");
    assert_eq!(signed_in.status, 200);
    // In lower case, as `Answer` keeps it: no script reads the cookie, and no other site sends it.
    let cookie = signed_in.head.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie").to_owned();
    for flag in ["; path=/", "; httponly", "; samesite=strict"] {
        assert!(cookie.contains(flag), "{flag} is missing: {cookie}");
    }
    assert_eq!(post(&human.site, "/login", &used, "").status, 403);
    assert_eq!(post(&human.site, "/login", &json!({"secret": "0".repeat(64)}), "").status, 403);
    let mut folders = vec![world.state(), world.mailbox()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            assert!(!path.to_string_lossy().contains(&secret));
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let bytes = std::fs::read(&path).unwrap_or_default();
                for secret in [&secret, &human.key.to_hex(), &human.cookie] {
                    let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                    assert!(!is_there, "{} contains a secret", path.display());
                }
            }
        }
    }
}

#[test]
fn a_flood_of_confirmations_stops_at_its_limits() {
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
    assert_eq!(ask(0).json()["id"], first, "the same call is asked about only once");
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

/// The session and the folder are names that the caller chooses. The user is not.
#[test]
fn a_new_session_name_gets_no_human_asked_again_or_more_often() {
    let world = World::new();
    world.configure("[confirm]\nwaiting_per_user = 4\n");
    world.define(
        "marks.json",
        &json!({"trace_it": {"description": "Leaves a trace.", "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "run": {"process": {"argv": ["true"]}}}}),
    );
    let human = Human::of(&world);
    let ask = |session: &str, n: i32| {
        let mut command = world.command(&["run", "trace_it", &format!("n={n}")]);
        world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("the program starts"))
    };
    let first = ask("a", 0).json()["id"].clone();
    assert_eq!(ask("b", 0).json()["id"], first, "the same call is asked about only once");
    let id = first.as_str().expect("an id");
    assert_eq!(human.deny(id).status, 200);
    let refused = ask("b", 0);
    assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("denied")), "{refused}");
    let other = world.folder().join("other");
    std::fs::create_dir(&other).expect("the folder is created");
    let mut elsewhere = world.command(&["run", "trace_it", "n=0"]);
    elsewhere.current_dir(&other).env("AGENT_MAGIC_TOOL_SESSION", "c");
    let refused = world.transcript(&elsewhere.output().expect("the program starts"));
    assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("denied")), "{refused}");
    for n in 1..=4 {
        assert_eq!(ask(&format!("session-{n}"), n).exit, 0);
    }
    world.kill_executor();
    for n in 5..10 {
        let refused = ask(&format!("session-{n}"), n);
        assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("throttled")), "{refused}");
        assert!(refused.stderr.contains("4 tasks of this user already wait for a human"), "{refused}");
    }
}
