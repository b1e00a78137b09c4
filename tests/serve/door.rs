//! Who may send requests at all: keys, scopes, hosts, origins.

use serde_json::json;

use super::{Server, bearer, world_with_model};

#[test]
fn a_request_counts_only_from_where_it_should_come() {
    let Some((world, _model)) = world_with_model("\n[serve]\nkeyless = false\norigins = [\"http://ui.example\"]\n")
    else {
        return;
    };
    let key = |words: &[&str]| {
        let mut all = vec!["serve", "key", "create"];
        all.extend(words);
        world.run(&all).json()["key"].as_str().expect("a key").to_owned()
    };
    let (ask, read, revoked) = (key(&["asks"]), key(&["reads", "--scope=read"]), key(&["gone"]));
    let server = Server::start(&world);
    assert_eq!(server.request("GET", "/api/v1/sessions", &bearer(&revoked), "").status, 200);
    assert_eq!(world.run(&["serve", "key", "revoke", "gone"]).exit, 0);
    let body = json!({"message": "Hi", "session": "s"}).to_string();
    let of = |headers: &str| format!("{}{headers}", bearer(&ask));
    let cases: Vec<(&str, String, u16)> = vec![
        ("no key", String::new(), 401),
        ("an empty key", "Authorization: Bearer \r\n".to_owned(), 401),
        ("another scheme", format!("Authorization: Basic {ask}\r\n"), 401),
        ("any text", "Authorization: Bearer sk-1234\r\n".to_owned(), 401),
        ("a key that was revoked", bearer(&revoked), 401),
        ("a key with another end", bearer(&format!("{}x", &ask[..ask.len() - 1])), 401),
        ("half a key", bearer(&ask[..30]), 401),
        ("two keys", format!("{}{}", bearer(&ask), bearer(&ask)), 401),
        ("the key as a query", String::new(), 401),
        ("a key that may only read", bearer(&read), 403),
        ("the page of another origin", of("Origin: http://evil.example\r\n"), 403),
        ("no origin in words", of("Origin: null\r\n"), 403),
        ("two origins", of("Origin: http://ui.example\r\nOrigin: http://ui.example\r\n"), 403),
        ("a longer origin", of("Origin: http://ui.example.evil\r\n"), 403),
        ("a page of the same site", of("Sec-Fetch-Site: same-site\r\n"), 403),
        ("a page of another site", of("Sec-Fetch-Site: cross-site\r\n"), 403),
        ("another host", of("Host: evil.example\r\n"), 421),
        ("another port", of("Host: 127.0.0.1:1\r\n"), 421),
        ("no port", of("Host: 127.0.0.1\r\n"), 421),
        ("an address that is not ours", of("Host: 0.0.0.0:80\r\n"), 421),
        ("two hosts", of(&format!("Host: {0}\r\nHost: {0}\r\n", server.address)), 421),
        ("a forwarded host", of("Host: evil.example\r\nX-Forwarded-Host: 127.0.0.1\r\n"), 421),
        ("a forwarded address", "X-Forwarded-For: 127.0.0.1\r\n".to_owned(), 401),
        ("a forwarded user", "Forwarded: for=127.0.0.1;host=localhost\r\n".to_owned(), 401),
        ("a cookie", format!("Cookie: key={ask}\r\n"), 401),
        ("the right key", bearer(&ask), 200),
        ("the page that is named", of("Origin: http://ui.example\r\n"), 200),
        ("a forwarded address beside the key", of("X-Forwarded-For: 10.0.0.1\r\n"), 200),
    ];
    for (what, headers, status) in cases {
        let path = if what == "the key as a query" {
            format!("/api/v1/submit?key={ask}")
        } else {
            "/api/v1/submit".to_owned()
        };
        let reply = server.request("POST", &path, &headers, &body);
        assert_eq!(reply.status, status, "{what}: {}", reply.body);
    }
    let preflight = "Origin: http://ui.example\r\nAccess-Control-Request-Method: POST\r\n";
    let reply = server.request("OPTIONS", "/api/v1/submit", preflight, "");
    assert_eq!((reply.status, reply.headers["access-control-allow-origin"].as_str()), (204, "http://ui.example"));
    assert_eq!(server.get("/health").status, 200, "it needs no key");
    // A session of one key is not there for another.
    assert_eq!(server.request("GET", "/api/v1/stream/s", &bearer(&read), "").status, 404);
    assert_eq!(server.request("DELETE", "/api/v1/session/101", &bearer(&read), "").status, 403);
    // Wrong keys are counted.
    let mut last = 0;
    for _ in 0..25 {
        last = server.request("GET", "/api/v1/sessions", &bearer(&revoked), "").status;
    }
    assert_eq!(last, 429);
    assert_eq!(
        server.request("GET", "/api/v1/sessions", &bearer(&ask), "").status,
        200,
        "a right key counts all the same"
    );
}

#[test]
fn a_key_that_may_only_ask_reads_no_session() {
    let Some((world, _model)) = world_with_model("") else { return };
    let key = |name: &str, scope: &[&str]| {
        let words = [["serve", "key", "create", name].as_slice(), scope].concat();
        bearer(world.run(&words).json()["key"].as_str().expect("a key"))
    };
    let (asks, both) = (key("asks", &["--scope=ask"]), key("both", &[]));
    let server = Server::start(&world);
    let question = json!({"message": "Hi", "session": "s"}).to_string();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).to_string();
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]});
    let send = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).to_string();
    for (key, status) in [(&asks, 403), (&both, 200)] {
        assert_eq!(server.request("POST", "/api/v1/submit", key, &question).status, 200);
        for path in ["/api/v1/sessions", "/api/v1/session/s", "/api/v1/stream/s?until=turn"] {
            let reply = server.request("GET", path, key, "");
            assert_eq!(reply.status, status, "{path}: {}", reply.body);
            assert!(status == 200 || reply.code() == "needs-scope", "{}", reply.body);
        }
        let sessions = json!({"message": "!sessions", "session": "s"}).to_string();
        assert_eq!(server.request("POST", "/api/v1/submit", key, &sessions).status, status);
        assert_eq!(server.request("GET", "/v1/models", key, "").status, 200);
        let answer = server.request("POST", "/a2a", key, &send).json();
        let id = answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
        assert_eq!(server.request("GET", &format!("/a2a/tasks/{id}"), key, "").status, 200, "its own task");
        let listed = server.request("POST", "/a2a", key, &list);
        assert_eq!((listed.status, server.request("GET", "/a2a/tasks", key, "").status), (status, status));
        assert!(status == 200 || listed.body.contains("needs-scope"), "{}", listed.body);
    }
}

#[test]
fn a_body_below_the_limit_reaches_its_route() {
    let Some((world, _model)) = world_with_model("") else { return };
    let server = Server::start(&world);
    // Three MiB that are no JSON: the route says so.
    let body = "x".repeat(3 << 20);
    for (path, status) in [("/api/v1/submit", 400), ("/a2a", 200), ("/a2a/message:send", 400), ("/v1/responses", 400)] {
        let reply = server.request("POST", path, "", &body);
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
        assert!(reply.json()["error"].is_object(), "{path}: {}", reply.body);
    }
}

#[test]
fn a_key_sees_its_own_tasks_and_nothing_of_a_key_that_had_its_name() {
    let Some((world, model)) = world_with_model("") else { return };
    let make =
        |name: &str| world.run(&["serve", "key", "create", name]).json()["key"].as_str().expect("a key").to_owned();
    let (one, other) = (make("one"), make("other"));
    let server = Server::start(&world);
    let ask = |key: &str, message: &str| {
        let body = json!({"session": "s", "message": message}).to_string();
        let reply = server.request("POST", "/api/v1/submit", &bearer(key), &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    };
    assert_eq!(ask(&one, "How many words are in it?")["answer"], "There are 3 words.");
    let id = world.run(&["tasks"]).json()[0]["id"].as_str().expect("an id").to_owned();
    for (key, sees) in [(&one, true), (&other, false)] {
        for command in [format!("read {id}"), "tasks".to_owned(), format!("cancel {id}")] {
            ask(key, &format!("run: agent-magic-tool {command}"));
            let asked = model.asked().pop().expect("asked");
            let said = asked["messages"].as_array().and_then(|all| all.last()).expect("a message").to_string();
            let is_hidden = said.contains("no task") || said.contains("[]");
            assert_eq!(is_hidden, !sees, "{command}: {said}");
        }
        // A sub-agent sees none of it.
        let refusals = || model.asked().iter().filter(|body| body.to_string().contains("in this session")).count();
        let before = refusals();
        ask(key, &format!("run: agent-magic-tool run sub --wait q='run: agent-magic-tool read {id}'"));
        assert!(refusals() > before, "{:#?}", model.asked().last());
        ask(key, &format!("run: cat result-{id}.json"));
        let asked = model.asked().pop().expect("asked").to_string();
        assert_eq!(asked.contains("no such file"), !sees, "{asked}");
    }
    let events = server.send("GET", "/api/v1/stream/s", &bearer(&one), "");
    assert_eq!(world.run(&["serve", "key", "revoke", "one"]).exit, 0);
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut { events }, &mut rest).expect("the stream ends when its key is revoked");
    let again = make("one");
    let listed = server.request("GET", "/api/v1/sessions", &bearer(&again), "").json();
    assert_eq!(listed["sessions"], json!([]), "{listed}");
}

#[test]
fn an_address_of_others_needs_encryption() {
    let Some((world, _model)) = world_with_model("") else { return };
    let refused = world.run(&["serve", "--listen=0.0.0.0:0"]);
    assert_eq!(refused.error()["code"], "bad-config");
    assert!(refused.error()["hint"].as_str().expect("a hint").contains("certificate"));
}

#[test]
fn who_shows_a_key_or_forwards_a_request_is_no_program_of_our_own() {
    let Some((world, _model)) = world_with_model("") else { return };
    let key = world.run(&["serve", "key", "create", "phone"]).json()["key"].as_str().expect("a key").to_owned();
    let server = Server::start(&world);
    server.ask("own", "echo one");
    let listed = |headers: &str| {
        let reply = server.request("GET", "/api/v1/sessions", headers, "");
        (reply.status, reply.json()["sessions"].as_array().map(Vec::len))
    };
    assert_eq!(listed(""), (200, Some(1)), "a program of our own");
    assert_eq!(listed("Authorization: Bearer none\r\n"), (200, Some(1)), "any text is no key");
    for shown in ["Authorization: Bearer", "authorization: bearer", "Authorization:", "X-Api-Key:", "Api-Key:"] {
        assert_eq!(listed(&format!("{shown} {key}\r\n")), (200, Some(0)), "{shown}");
        assert_eq!(listed(&format!("{shown} {key}x\r\n")).0, 401, "{shown}");
    }
    for shown in [format!("Authorization: Token {key}"), "Authorization: Basic eDpub25l".to_owned()] {
        assert_eq!(listed(&format!("{shown}\r\n")).0, 401, "{shown}");
    }
    assert_eq!(server.get(&format!("/api/v1/sessions?key={key}")).status, 401);
    for forwarded in [
        "X-Forwarded-For: 8.8.8.8",
        "X-Forwarded-Proto: https",
        "CF-Connecting-IP: 8.8.8.8",
        "Forwarded: for=8.8.8.8",
        "Via: 1.1 proxy",
        "X-Real-IP: 8.8.8.8",
    ] {
        assert_eq!(listed(&format!("{forwarded}\r\n")).0, 401, "{forwarded}");
        assert_eq!(listed(&format!("{forwarded}\r\n{}", bearer(&key))), (200, Some(0)), "{forwarded}");
    }
}

#[test]
fn a_key_of_one_model_is_answered_by_no_other() {
    let Some((world, _model)) = world_with_model("") else { return };
    let key = world.run(&["serve", "key", "create", "phone", "--model=openai"]).json()["key"].clone();
    let key = bearer(key.as_str().expect("a key"));
    let server = Server::start(&world);
    let ask = |body: &serde_json::Value| server.request("POST", "/api/v1/submit", &key, &body.to_string());
    assert_eq!(ask(&json!({"session": "s", "message": "echo one", "model": "openai"})).json()["model"], "openai");
    for body in [
        json!({"session": "s", "message": "echo one", "model": "anthropic"}),
        json!({"session": "s", "message": "@anthropic echo one"}),
        json!({"session": "s", "message": "!model anthropic"}),
    ] {
        let reply = ask(&body);
        assert_eq!((reply.status, reply.code().as_str()), (403, "needs-scope"), "{body}: {}", reply.body);
    }
    assert_eq!(ask(&json!({"session": "s", "message": "echo two"})).json()["model"], "openai");
}

#[test]
fn a_client_of_a_proxy_has_the_address_that_the_proxy_saw() {
    let Some((world, _model)) = world_with_model("\n[serve]\nproxies = [\"127.0.0.1\", \"10.0.0.1\"]\n") else {
        return;
    };
    let key = world.run(&["serve", "key", "create", "phone"]).json()["key"].as_str().expect("a key").to_owned();
    let server = Server::start(&world);
    let chat = json!({"model": "agent-magic-tool", "messages": [{"role": "user", "content": "!session"}]}).to_string();
    for (forwarded, address) in [
        ("X-Forwarded-For: 9.9.9.9, 1.2.3.4\r\n", Some("1.2.3.4")),
        ("X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-For: 1.2.3.5, 10.0.0.1\r\n", Some("1.2.3.5")),
        ("X-Forwarded-For: 9.9.9.9, unknown\r\n", None),
        ("", None),
    ] {
        let reply = server.request("POST", "/v1/chat/completions", &format!("{forwarded}{}", bearer(&key)), &chat);
        assert_eq!(reply.status, if address.is_some() { 200 } else { 400 }, "{forwarded}: {}", reply.body);
        if let Some(address) = address {
            assert!(reply.body.contains(&format!("(llama-{address}-phone.")), "{forwarded}: {}", reply.body);
        }
    }
}
