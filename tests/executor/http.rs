//! HTTP subtools, as a caller sees them: what becomes of a response, a job, and an answer that says to wait.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::world::{World, until};

/// A server that answers each request with a script, and records the request lines.
pub(crate) struct HttpScript {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl HttpScript {
    /// `script` gets the request line, like `GET /x`, and the number of earlier requests. It returns the response from
    /// its status on, like `200 OK\r\n\r\nbody`.
    pub(crate) fn new(script: impl Fn(&str, usize) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = Arc::clone(&requests);
        // The thread ends with the test program.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Some((mut stream, line)) = stream.ok().and_then(request_line) else { continue };
                let number = {
                    let mut recorded = recorded.lock().expect("no panic");
                    recorded.push(line.clone());
                    recorded.len() - 1
                };
                let (head, body) = {
                    let response = script(&line, number);
                    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
                    (head.to_owned(), body.to_owned())
                };
                let length = body.len();
                let bytes = format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
                drop(stream.write_all(bytes.as_bytes()));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// Reads a request to the end of its head and its body. Returns its method and target.
fn request_line(mut stream: TcpStream) -> Option<(TcpStream, String)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0_usize) {
                let line = head.lines().next()?.rsplit_once(' ')?.0.to_owned();
                return Some((stream, line));
            }
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// Defines the read-only subtool `get` with these fields beside its description and input.
fn world_with(fields: &Value) -> World {
    let world = World::new();
    let mut definition =
        json!({"description": "Gets it.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true}});
    let (Value::Object(definition), Value::Object(fields)) = (&mut definition, fields) else { panic!("objects") };
    definition.extend(fields.clone());
    world.define("get.json", &json!({ "get": definition }));
    world
}

#[test]
fn a_result_has_the_status_and_the_headers_that_the_definition_names() {
    let server = HttpScript::new(|_, _| {
        let headers = "content-type: application/json\r\nETag: \"v7\"\r\nX-Request-Id: r-1\r\nset-cookie: s=secret";
        format!("201 Created\r\n{headers}\r\n\r\n{{\"id\": 7}}")
    });
    let run = json!({"http": {"base_url": server.url}});
    let named = world_with(&json!({"run": run, "result": {"headers": ["etag", "X-Request-Id", "location"]}}));
    let result = named.result_of("get", &json!({}));
    let headers = json!({"etag": "\"v7\"", "X-Request-Id": "r-1"});
    assert_eq!(result["data"], json!({"status": 201, "headers": headers, "body": {"id": 7}}), "{result}");
    let select = "{id, status: $status, etag: $headers.etag, cookie: $headers[\"set-cookie\"]}";
    let selected = world_with(&json!({"run": run, "result": {"select": select}}));
    let result = selected.result_of("get", &json!({}));
    assert_eq!(result["data"], json!({"id": 7, "status": 201, "etag": "\"v7\"", "cookie": null}), "{result}");
}

#[test]
fn headers_of_a_response_are_refused_where_there_are_none() {
    let world = world_with(&json!({
        "run": {"process": {"argv": ["true"]}}, "result": {"headers": ["etag"]}
    }));
    let linted = world.run(&["lint"]);
    assert_ne!(linted.exit, 0, "{linted}");
    assert_eq!(linted.json()[0]["place"], "result.headers", "{linted}");
}

#[test]
fn a_post_for_each_page_needs_a_subtool_that_changes_nothing() {
    let run = json!({"http": {
        "method": "POST", "base_url": "https://api.example.com", "body": {"json": {}},
        "pagination": {"next_token": {"body": "cursor", "response": "cursor"}, "items": "items"}
    }});
    let world = world_with(&json!({"run": run, "annotations": {}}));
    let linted = world.run(&["lint"]);
    assert_ne!(linted.exit, 0, "{linted}");
    assert_eq!(linted.json()[0]["place"], "run.http.pagination", "{linted}");
}

#[test]
fn a_job_is_waited_for_and_the_change_is_sent_once() {
    let server = HttpScript::new(|line, number| match (line, number) {
        ("POST /reports", _) => "202 Accepted\r\nlocation: /jobs/7\r\n\r\n".to_owned(),
        (_, 1) => "202 Accepted\r\n\r\n".to_owned(),
        _ => "200 OK\r\ncontent-type: application/json\r\n\r\n{\"rows\": 3}".to_owned(),
    });
    let world = world_with(&json!({
        "annotations": {}, "confirm": "never",
        "run": {"http": {"method": "POST", "base_url": server.url, "path": "/reports", "poll": {"interval": "10ms"}}}
    }));
    let result = world.result_of("get", &json!({}));
    assert_eq!(result["data"], json!({"rows": 3}), "{result}");
    assert_eq!(server.requests(), ["POST /reports", "GET /jobs/7", "GET /jobs/7"]);
}

#[test]
fn data_that_does_not_match_the_declared_output_is_returned_with_a_warning() {
    let server = HttpScript::new(|_, _| "200 OK\r\ncontent-type: application/json\r\n\r\n{\"id\": \"7\"}".to_owned());
    let output = json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id", "name"]});
    let world = world_with(&json!({"run": {"http": {"base_url": server.url}}, "output": output}));
    let result = world.result_of("get", &json!({}));
    assert_eq!((&result["status"], &result["data"]), (&json!("succeeded"), &json!({"id": "7"})), "{result}");
    let problems = result["_meta"]["output_problems"].as_array().expect("a list").clone();
    assert_eq!(problems.len(), 2, "{result}");
    assert!(
        problems.iter().any(|problem| problem.as_str().is_some_and(|text| text.starts_with("`/id`: "))),
        "{result}"
    );
}

#[test]
fn a_privilege_that_depends_on_the_input_is_checked_with_the_real_argument() {
    let server = HttpScript::new(|_, _| "200 OK\r\ncontent-type: application/json\r\n\r\n1".to_owned());
    let world = world_with(&json!({
        "input": {"type": "object", "properties": {"entity": {"type": "string"}}},
        "run": {"http": {"base_url": server.url}}, "requires": ["{{ entity }}:read"]
    }));
    world.configure("[access]\nprivileges = [\"product:*\"]\n");
    assert_eq!(world.result_of("get", &json!({"entity": "product"}))["data"], 1);
    for input in [&["entity=customer"][..], &["entity=product:x"], &[]] {
        let refused = world.run(&[&["run", "get"], input].concat());
        let error = refused.error();
        assert_eq!((refused.exit, &error["code"]), (5, &json!("refused-by-policy")), "{refused}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(":read`")), "{refused}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_pending_file_says_why_the_next_attempt_waits_and_until_when() {
    let server = HttpScript::new(|_, _| {
        "429 Too Many Requests\r\nretry-after: 120\r\ncontent-type: text/plain\r\n\r\nslow down".to_owned()
    });
    let run = json!({"http": {"base_url": server.url}});
    let world = world_with(&json!({"run": run, "retries": {"times": 3}}));
    let id = world.start("get", &json!({}));
    until("the first attempt failed", || world.result_file(&id)["last_error"].is_object());
    let waiting = world.result_file(&id);
    assert_eq!((&waiting["status"], &waiting["last_error"]["code"]), (&json!("pending"), &json!("api-error")));
    let message = waiting["message"].as_str().expect("a message");
    assert!(message.contains("Attempt 1 failed: ") && message.contains("slow down"), "{waiting}");
    assert!(message.contains(", as the server asked."), "{waiting}");
    let at = |field: &str| waiting[field].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time");
    let seconds = at("next_attempt_at").duration_since(at("failed_at")).as_secs();
    assert!((115..=125).contains(&seconds), "{waiting}");
    assert_eq!(world.run(&["cancel", &id]).exit, 0);

    let hasty = world_with(&json!({"run": run, "retries": {"times": 3}, "give_up_after": "30s"}));
    let given_up = hasty.result_of("get", &json!({}));
    assert_eq!(given_up["status"], "failed");
    let hint = given_up["error"]["hint"].as_str().expect("a hint");
    assert!(hint.contains("the server asks to wait until"), "{given_up}");
}

#[test]
fn a_job_survives_its_executor_and_the_change_is_not_sent_again() {
    let server = HttpScript::new(|line, number| match (line, number) {
        ("POST /reports", _) => "202 Accepted\r\nlocation: /jobs/7\r\n\r\n".to_owned(),
        (_, 0..5) => "202 Accepted\r\n\r\n".to_owned(),
        _ => "200 OK\r\ncontent-type: application/json\r\n\r\n{\"rows\": 3}".to_owned(),
    });
    let world = world_with(&json!({
        "annotations": {}, "confirm": "never",
        "run": {"http": {"method": "POST", "base_url": server.url, "path": "/reports", "poll": {"interval": "300ms"}}}
    }));
    let id = world.start("get", &json!({}));
    until("the job was asked for", || server.requests().len() >= 2);
    world.kill_executor().expect("a running executor");
    let waited = world.run(&["wait", &id]);
    let result = world.result_file(&id);
    assert_eq!((&result["status"], &result["data"]), (&json!("succeeded"), &json!({"rows": 3})), "{waited}");
    let posts = server.requests().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(posts, 1, "{:?}", server.requests());
}

#[test]
fn a_path_that_finds_nothing_names_the_keys_that_are_there() {
    let pages = |pagination: Value| json!({"pagination": pagination});
    let token = json!({"query": "after", "response": "next"});
    let poll = |poll: Value| json!({"poll": poll});
    for (case, http, body, expected) in [
        (
            "items",
            pages(json!({"page": {"query": "page"}, "items": "rows"})),
            json!({"data": [1], "total": 1}),
            "`data`",
        ),
        (
            "items",
            pages(json!({"page": {"query": "page"}, "items": "/a/rows"})),
            json!({"a": {"data": []}}),
            "`/a/data`",
        ),
        ("items", pages(json!({"page": {"query": "page"}, "items": "rows"})), json!({"total": 7}), "`total`"),
        (
            "a cursor",
            pages(json!({"next_token": token, "items": "rows"})),
            json!({"rows": [1], "meta": {"next_cursor": "a"}}),
            "`/meta/next_cursor`",
        ),
        (
            "a URL",
            pages(json!({"next_url": "next", "items": "rows"})),
            json!({"rows": [1], "links": {"next": "/x"}}),
            "`/links/next`",
        ),
        (
            "more",
            pages(json!({"page": {"query": "page"}, "has_more": "more", "items": "rows"})),
            json!({"rows": [1], "has_more": true}),
            "`/has_more`",
        ),
        (
            "the last item",
            pages(json!({"last_item": {"query": "after", "field": "key"}, "items": "rows"})),
            json!({"rows": [{"id": 1}]}),
            "`id`",
        ),
        (
            "a job",
            poll(json!({"url": ".links.job", "until": ".state == \"done\""})),
            json!({"state": "new", "job": "/j"}),
            "`job`",
        ),
        (
            "a result",
            poll(json!({"until": "true", "result": ".file"})),
            json!({"state": "done", "result": "/r"}),
            "`result`",
        ),
    ] {
        let server = HttpScript::new(move |_, _| format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}"));
        let mut run = json!({"http": http});
        run["http"]["base_url"] = server.url.as_str().into();
        let result = world_with(&json!({ "run": run })).result_of("get", &json!({}));
        let message = result["error"]["message"].as_str().unwrap_or_default();
        assert!(result["status"] == "failed" && message.contains(expected), "{case}: {result}");
    }
    // A result that is selected, and lists that are left out since they are empty.
    for (fields, http, body, expected) in [
        (json!({"result": {"select": ".rows"}}), json!({}), json!({"data": [1]}), None),
        (json!({"result": {"select": ".data.rows"}}), json!({}), json!({"data": {"items": []}}), None),
        (json!({"result": {"select": ".rows // []"}}), json!({}), json!({"data": [1]}), Some(json!([]))),
        (json!({"result": {"select": ".rows"}}), json!({}), json!({"rows": null}), Some(Value::Null)),
        (
            json!({}),
            pages(json!({"next_token": token, "items": "rows"})),
            json!({"kind": "list"}),
            Some(json!({"kind": "list", "rows": []})),
        ),
    ] {
        let server = HttpScript::new(move |_, _| format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}"));
        let mut definition = fields.clone();
        definition["run"] = json!({"http": http});
        definition["run"]["http"]["base_url"] = server.url.as_str().into();
        let result = world_with(&definition).result_of("get", &json!({}));
        if let Some(data) = expected {
            assert_eq!(result["data"], data, "{definition}: {result}");
        } else {
            assert_eq!(result["error"]["code"], "select-failed", "{definition}: {result}");
            let message = result["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("`rows`: it has `"), "{result}");
        }
    }
}

#[test]
fn accepted_work_is_not_said_to_be_done() {
    for (answer, data, location) in [
        ("202 Accepted\r\nlocation: /jobs/7\r\n\r\n", None, Some("/jobs/7")),
        ("202 Accepted\r\ncontent-type: application/json\r\n\r\n{\"id\": 7}", Some(json!({"id": 7})), None),
    ] {
        let server = HttpScript::new(move |_, _| answer.to_owned());
        let world = world_with(&json!({"run": {"http": {"base_url": server.url}}}));
        let result = world.result_of("get", &json!({}));
        let told = &result["_meta"]["unfinished"];
        assert_eq!((&told["accepted"], &told["finished"]), (&json!(true), &json!(false)), "{result}");
        assert_eq!(told["location"].as_str(), location.map(|path| format!("{}{path}", server.url)).as_deref());
        assert_eq!(result["data"], data.unwrap_or_else(|| told.clone()), "{result}");
    }
}

#[test]
fn how_long_a_server_asks_to_wait_is_kept_in_the_error() {
    for (status, error) in
        [("429 Too Many Requests", json!({})), ("503 Busy", json!({})), ("503 Busy", json!({"error": "\"busy\""}))]
    {
        let server = HttpScript::new(move |_, _| format!("{status}\r\nretry-after: 7\r\n\r\n"));
        let mut run = json!({"http": error});
        run["http"]["base_url"] = server.url.as_str().into();
        let result = world_with(&json!({ "run": run })).result_of("get", &json!({}));
        assert_eq!(result["error"]["details"]["retry_after_seconds"], 7, "{status}: {result}");
    }
}

/// The server has the change, whatever becomes of reading its result.
#[test]
fn a_change_is_sent_once_whatever_fails_after_it_was_accepted() {
    let done = "200 OK\r\ncontent-type: application/json\r\n\r\n{\"state\": \"done\", \"result\": \"/rows\"}";
    let until = ".state == \"done\"";
    for (case, poll, of_result, named) in [
        ("a broken result", json!({"until": until, "result": ".result"}), "500 No", "GET "),
        ("a busy result", json!({"until": until, "result": ".result"}), "429 Slow", "GET "),
        ("no result", json!({"until": until, "result": ".result"}), "404 Gone", "GET "),
        (
            "an unreachable result",
            json!({"until": until, "result": "\"http://nothing.invalid/\""}),
            "500 No",
            "nothing.invalid",
        ),
        ("a wrong `until`", json!({"until": ".state | tonumber == 3"}), "500 No", "tonumber"),
        ("a wrong `failed`", json!({"until": until, "failed": ".state | error"}), "500 No", "error"),
    ] {
        let answer = format!("{of_result}\r\n\r\n");
        let server =
            HttpScript::new(move |line, _| if line.starts_with("POST") { done.to_owned() } else { answer.clone() });
        let mut run = json!({"http": {"method": "POST", "base_url": server.url, "path": "/pay"}});
        run["http"]["poll"] = poll;
        run["http"]["poll"]["interval"] = "10ms".into();
        let world = world_with(&json!({"annotations": {}, "confirm": "never", "run": run,
            "retries": {"times": 2, "backoff": "10ms"}}));
        let result = world.result_of("get", &json!({}));
        assert_eq!(result["status"], "unknown", "{case}: {result}");
        let posts = server.requests().iter().filter(|line| line.starts_with("POST")).count();
        assert_eq!(posts, 1, "{case}: {:?}", server.requests());
        let error = result["error"].to_string();
        assert!(error.contains(named) && !error.contains("POST http://127.0.0.1 answered"), "{case}: {result}");
    }
}

#[test]
fn a_response_that_cannot_be_judged_is_no_success() {
    for (method, body, expression, status) in [
        ("GET", json!({"code": 7, "msg": "declined"}), "if .code != 0 then .msg.text else null end", "failed"),
        ("POST", json!({"code": 7, "msg": "declined"}), "if .code != 0 then .msg.text else null end", "unknown"),
        ("POST", json!({"code": 0}), "error(\"boom\")", "unknown"),
        ("POST", json!("a text"), ".code", "unknown"),
        ("POST", json!({"code": 0, "msg": "fine"}), "if .code != 0 then .msg.text else null end", "succeeded"),
        ("POST", json!({"code": 7, "msg": {"text": "no"}}), "if .code != 0 then .msg.text else null end", "unknown"),
    ] {
        let answer = format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}");
        let server = HttpScript::new(move |_, _| answer.clone());
        let http = json!({"method": method, "base_url": server.url, "error": expression});
        let annotations = if method == "GET" { json!({"readOnlyHint": true}) } else { json!({}) };
        let world = world_with(&json!({"annotations": annotations, "confirm": "never", "run": {"http": http}}));
        let result = world.result_of("get", &json!({}));
        assert_eq!(result["status"], status, "{method} {expression}: {result}");
        let cause = result["error"].to_string();
        assert!(status == "succeeded" || body["msg"]["text"] == "no" || cause.contains("cannot judge"), "{result}");
    }
}

#[test]
fn a_number_that_would_be_rounded_is_returned_as_it_was_written() {
    let body = "{\"id\": 12345678901234567890123, \"most\": 18446744073709551615, \"next\": 18446744073709551616, \
        \"least\": -9223372036854775808, \"less\": -9223372036854775809, \"exact\": 0.1, \"digits\": 0.12345678901234567890123, \
        \"text\": \"12345678901234567890123 \\\" 1\", \"list\": [1, 123456789012345678901234567890]}";
    let expected = json!({"id": "12345678901234567890123", "most": 18_446_744_073_709_551_615_u64,
        "next": "18446744073709551616", "least": i64::MIN, "less": "-9223372036854775809", "exact": 0.1,
        "digits": "0.12345678901234567890123", "text": "12345678901234567890123 \" 1",
        "list": [1, "123456789012345678901234567890"]});
    let server = HttpScript::new(move |_, _| format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}"));
    let world = world_with(&json!({"run": {"http": {"base_url": server.url}}}));
    assert_eq!(world.result_of("get", &json!({}))["data"], expected);
    let world = world_with(&json!({"run": {"process": {"argv": ["printf", "%s", body], "output": "json"}}}));
    assert_eq!(world.result_of("get", &json!({}))["data"], expected);
}
