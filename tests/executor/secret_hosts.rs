//! Whoever sends a secret asks where it may go: the same table for a host that is not on its list, and for plain HTTP to a
//! public host.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{World, until};

/// The secret of every row, and one that holds an OAuth client.
const SECRETS: [&str; 2] = ["shared", "client"];

/// The ways of runners, with what each sends to `at`.
fn runs(at: &str) -> Vec<(&'static str, Value)> {
    let server = format!("http://{at}");
    let http = |more: Value| {
        let mut http = json!({"base_url": server});
        http.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"http": http})
    };
    let credentials =
        json!({"token_url": format!("{server}/token"), "client_id": "a", "client_secret": "secret:shared"});
    let elsewhere = |auth: Value| json!({"http": {"base_url": "https://own.example", "auth": auth}});
    let mcp =
        json!({"name": "x", "url": format!("{server}/mcp"), "headers": {"Authorization": "Bearer secret:shared"}});
    vec![
        ("auth", http(json!({"auth": {"bearer": "secret:shared"}}))),
        ("basic", http(json!({"auth": {"basic": {"username": "a", "password": "secret:shared"}}}))),
        ("user", http(json!({"auth": {"basic": {"username": "secret:shared", "password": "secret:other"}}}))),
        ("key", http(json!({"auth": {"api_key": {"query": "k", "value": "secret:shared"}}}))),
        ("header", http(json!({"headers": {"X-Key": "Token secret:shared"}}))),
        ("query", http(json!({"query": {"k": "secret:shared"}}))),
        ("form", http(json!({"method": "POST", "body": {"form": {"k": "secret:shared"}}}))),
        ("json", http(json!({"method": "POST", "body": {"json": {"k": ["secret:shared"]}}}))),
        ("part", http(json!({"method": "POST", "body": {"multipart": {"k": "secret:shared"}}}))),
        ("oauth", http(json!({"auth": {"oauth2": "secret:shared"}}))),
        ("token", elsewhere(json!({"oauth2": "secret:client"}))),
        ("credentials", elsewhere(json!({"client_credentials": credentials}))),
        ("mcp", json!({"mcp": {"server": mcp, "tool": "x"}})),
        ("agent", json!({"agent": {"url": server, "prompt": "x", "key": "secret:shared"}})),
        ("llm", json!({"llm": {"prompt": "x", "model": "remote"}})),
        ("sql", json!({"sql": {"database": "shop", "statement": "SELECT 1"}})),
    ]
}

/// A world in which every way leads to `at`, with its secrets set.
fn world(at: &str) -> World {
    let world = World::new();
    world.configure(&format!(
        "[catalog]\npacks = []\n[agent]\nmodel = \"remote\"\n\
         [models.remote]\nprovider = \"openai\"\nmodel = \"m\"\nurl = \"http://{at}/v1/\"\nkey = \"secret:shared\"\n\
         [databases.shop]\nurl = \"postgres://reader@{at}/shop\"\npassword = \"secret:shared\"\n\
         [telemetry]\notlp = \"http://{at}\"\nevery = \"100ms\"\n\
         [telemetry.otlp_headers]\nauthorization = \"secret:shared\"\n\
         [serve.slack]\napi_url = \"http://{at}/api/\"\nusers = [\"U024BE7LH\"]\n\
         app_token = \"secret:shared\"\nbot_token = \"secret:shared\"\n"
    ));
    let client =
        json!({"token_url": format!("http://{at}/token"), "client_id": "a", "client_secret": "s3cret-of-a-client"});
    for (name, value) in [("shared", "a-value-0123456789"), ("other", "b-value-0123456789")] {
        assert_eq!(world.run_with(&["secret", "set", name], value).exit, 0);
    }
    assert_eq!(world.run_with(&["secret", "set", "client"], &client.to_string()).exit, 0);
    let tool = |(name, run): (&str, Value)| {
        let definition = json!({"description": "Gets it.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object"}, "run": run});
        (name.to_owned(), definition)
    };
    world.define("own.json", &Value::Object(runs(at).into_iter().map(tool).collect()));
    world
}

/// Every way says `words`, and tells how to allow it.
fn all_refuse(world: &World, at: &str, words: &str, of_slack: &str, has_database: bool) {
    for (name, _) in runs(at).into_iter().filter(|(name, _)| has_database || *name != "sql") {
        let ran = world.run(&["run", name, "--wait"]);
        assert_eq!(ran.exit, 1, "{name}: {ran}");
        assert!(
            ran.json()["error"]["message"].as_str().is_some_and(|message| message.contains(words)),
            "{name}: {ran}"
        );
    }
    until("telemetry says so", || {
        let log = fs::read_to_string(world.log()).unwrap_or_default();
        log.lines().any(|line| line.contains("failed to export telemetry") && line.contains(words))
    });
    let said = world.home().join("serve-stderr");
    let mut command = world.command(&["serve", "--listen=127.0.0.1:0"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&said).expect("a file"));
    let mut server = command.spawn().expect("it starts");
    until("Slack says so", || {
        let text = fs::read_to_string(&said).unwrap_or_default();
        text.lines().any(|line| line.contains(of_slack)) || server.try_wait().is_ok_and(|it| it.is_some())
    });
    drop(server.kill());
    drop(server.wait());
    let text = fs::read_to_string(&said).expect("there");
    assert!(text.contains(of_slack), "{text}");
}

#[test]
fn a_secret_goes_from_nowhere_to_a_host_that_is_not_on_its_list() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
    elsewhere.set_nonblocking(true).expect("it can");
    let at = elsewhere.local_addr().expect("an address").to_string();
    let world = world(&at);
    for name in SECRETS {
        assert_eq!(world.run(&["secret", "allow", name, "own.example"]).exit, 0);
    }
    let words = format!("may not go to `{at}`");
    all_refuse(&world, &at, &words, &words, true);
    assert!(elsewhere.accept().is_err(), "nothing has connected");
}

#[test]
fn no_human_is_asked_about_a_secret_that_may_not_go() {
    let at = "127.0.0.1:9";
    let world = world(at);
    let tool = |(name, run): (&str, Value)| {
        let definition =
            json!({"description": "Sends it.", "confirm": "always", "input": {"type": "object"}, "run": run});
        (format!("asks_{name}"), definition)
    };
    world.define("asking.json", &Value::Object(runs(at).into_iter().map(tool).collect()));
    // Only the secret itself says where the last of these goes, and it is not opened before a human said yes.
    let names: Vec<_> = runs(at).into_iter().map(|(name, _)| name).filter(|name| *name != "token").collect();
    for name in SECRETS {
        assert_eq!(world.run(&["secret", "allow", name, "own.example"]).exit, 0);
    }
    for name in &names {
        let ran = world.run(&["run", &format!("asks_{name}")]);
        let message = ran.error()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(&format!("may not go to `{at}`")), "{name}: {ran}");
    }
    assert_eq!(world.run(&["tasks"]).json(), json!([]), "nothing waits for a human");
    for name in SECRETS {
        assert_eq!(world.run(&["secret", "allow", name, "own.example", at]).exit, 0);
    }
    for name in &names {
        let ran = world.run(&["run", &format!("asks_{name}")]);
        assert_eq!(ran.json()["state"], "awaiting_confirmation", "{name}: {ran}");
        assert_eq!(world.run(&["cancel", ran.json()["id"].as_str().expect("an id")]).exit, 0);
    }
}

#[test]
fn a_secret_goes_from_nowhere_to_a_public_host_over_plain_http() {
    let at = "public.example.com";
    let world = world(at);
    // A PostgreSQL server is not asked over HTTP, and the configuration of Slack has no such address.
    all_refuse(&world, at, "over plain http", "is not an https URL", false);
}
