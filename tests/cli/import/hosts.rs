//! What a description says of hosts and secrets is not taken over before a human has named the host, and a secret is sent
//! only to the hosts of its list.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::quiet_world;
use crate::world::{Transcript, World};

/// No word of it occurs elsewhere.
const STORED: &str = "gh-stored-0123456789";

/// Writes a description of one read, whose header `X-Mode` can only have the value `mode`.
fn description(world: &World, title: &str, server: &str, mode: &str) -> String {
    let path = world.folder().join("spec.json");
    let header =
        json!({"name": "X-Mode", "in": "header", "required": true, "schema": {"type": "string", "enum": [mode]}});
    let plain = json!({"operationId": "listThings", "summary": "List things", "responses": {}});
    let marked = json!({"operationId": "listMarked", "summary": "List marked things", "parameters": [header], "responses": {},
        "security": []});
    let spec = json!({"openapi": "3.0.0", "info": {"title": title, "version": "1"}, "servers": [{"url": server}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}, "security": [{"key": []}],
        "paths": {"/things": {"get": plain}, "/marked": {"get": marked}}});
    fs::write(&path, spec.to_string()).expect("written");
    path.display().to_string()
}

fn assert_refused(ran: &Transcript, words: &[&str]) {
    assert_eq!(ran.exit, 2, "{ran}");
    let error = ran.error().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{words:?} in {ran}");
}

/// A server that notes each request, and answers with `head`.
fn server(head: String) -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
            noted.lock().expect("not poisoned").push_str(&String::from_utf8_lossy(&request));
            // The client may be gone.
            stream.write_all(format!("{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}").as_bytes()).ok();
        }
    });
    (address.to_string(), seen)
}

fn ok() -> String {
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n".to_owned()
}

#[test]
fn a_description_gets_no_secret_that_goes_elsewhere() {
    // Stored for something else, of a pack that ships, both.
    for (title, is_stored) in [("github", false), ("github", true), ("weather", true)] {
        let world = quiet_world();
        if is_stored {
            assert_eq!(world.run_with(&["secret", "set", title], STORED).exit, 0);
        }
        let (address, seen) = server(ok());
        let path = description(&world, title, &format!("http://{address}"), "plain");
        assert_refused(&world.run(&["import", &path]), &[&address, "--allow-host", &format!("`{title}`")]);
        assert!(!world.subtools().join(format!("{title}.json")).exists(), "nothing is written");
        let taken = world.run(&["import", &path, "--allow-host", &address]);
        assert_eq!(taken.exit, 0, "{taken}");
        assert!(taken.stderr.contains(&format!("the secret `{title}` may go to")), "{taken}");
        if is_stored {
            let ran = world.run(&["run", &format!("{title}_list_things"), "--wait"]);
            assert_eq!(ran.exit, 0, "{ran}");
            assert!(seen.lock().expect("not poisoned").contains(STORED), "a human named the host");
        }
    }
}

#[test]
fn a_literal_of_a_description_is_never_a_secret() {
    for mode in ["secret:github", "Bearer secret:github", "{{ secret.github }}", "env:HOME", "{% raw %}"] {
        let world = quiet_world();
        assert_eq!(world.run_with(&["secret", "set", "github"], STORED).exit, 0);
        let (address, seen) = server(ok());
        let imported = world.run(&["import", &description(&world, "Things", &format!("http://{address}"), mode)]);
        assert_eq!((imported.exit, &imported.json()["imported"]), (0, &json!(1)), "{mode}: {imported}");
        let left_out = imported.json()["left_out"].to_string();
        assert!(left_out.contains("GET /marked"), "{mode}: {imported}");
        assert_eq!(world.run(&["run", "things_list_marked", "--wait"]).exit, 3, "{mode}");
        assert_eq!(*seen.lock().expect("not poisoned"), "", "{mode}: nothing was sent");
    }
}

#[test]
fn a_refresh_that_finds_another_host_stops_and_shows_both() {
    let world = quiet_world();
    let path = description(&world, "Things", "https://things.example/v1", "plain");
    assert_eq!(world.run(&["import", &path]).exit, 0);
    let file = world.subtools().join("things.json");
    let before = fs::read_to_string(&file).expect("written");
    description(&world, "Things", "https://evil.example/v1", "plain");
    let refused = world.run(&["import", "--refresh"]);
    assert_ne!(refused.exit, 0, "{refused}");
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(["things.example", "evil.example", "--allow-host"].iter().all(|word| said.contains(word)), "{refused}");
    assert_eq!(fs::read_to_string(&file).expect("kept"), before);
    let again = world.run(&["import", "--refresh", "--allow-host", "evil.example"]);
    assert_eq!(again.exit, 0, "{again}");
    assert!(fs::read_to_string(&file).expect("written").contains("evil.example"));
}

#[test]
fn a_secret_is_sent_only_to_the_hosts_of_its_list() {
    let world = quiet_world();
    let (elsewhere, seen) = server(ok());
    let (own, _) = server(format!("HTTP/1.1 302 Found\r\nLocation: http://{elsewhere}/\r\n"));
    // A redirect may lead there, but without the secret.
    world.configure(&format!("[catalog]\npacks = []\n[http]\nprivate_hosts = [\"{elsewhere}\"]\n"));
    let set = world.run_with(&["secret", "set", "things", "--host", &own, "--host", "api.things.example"], STORED);
    assert_eq!(set.exit, 0, "{set}");
    let http = |url: &str, more: Value| {
        let mut http = json!({"base_url": url});
        http.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"description": "Gets it.", "annotations": {"readOnlyHint": true}, "input": {"type": "object"}, "run": {"http": http}})
    };
    let there = format!("http://{elsewhere}");
    let basic = json!({"basic": {"username": "a", "password": "secret:things"}});
    let cases = [
        ("bearer", json!({"auth": {"bearer": "secret:things"}})),
        ("basic", json!({"auth": basic})),
        ("key", json!({"auth": {"api_key": {"query": "k", "value": "secret:things"}}})),
        ("oauth", json!({"auth": {"oauth2": "secret:things"}})),
        ("header", json!({"headers": {"X-Key": "Token secret:things"}})),
        ("query", json!({"query": {"k": "secret:things"}})),
        ("form", json!({"method": "POST", "body": {"form": {"k": "secret:things"}}})),
        ("body", json!({"method": "POST", "body": {"json": {"k": "secret:things"}}})),
    ];
    let mut definitions: serde_json::Map<String, Value> =
        cases.iter().map(|(name, more)| ((*name).to_owned(), http(&there, more.clone()))).collect();
    definitions.insert("plain".to_owned(), http("http://api.things.example", cases[0].1.clone()));
    definitions.insert("redirected".to_owned(), http(&format!("http://{own}"), cases[0].1.clone()));
    world.define("own.json", &definitions.into());
    for name in cases.iter().map(|(name, _)| *name).chain(["plain"]) {
        let ran = world.run(&["run", name, "--wait"]);
        let error = ran.json()["error"].clone();
        assert_eq!((ran.exit, &error["code"]), (1, &json!("forbidden-address")), "{name}: {ran}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("secret allow things")), "{name}: {ran}");
        assert_eq!(*seen.lock().expect("not poisoned"), "", "{name}: nothing was sent");
    }
    let redirected = world.run(&["run", "redirected", "--wait"]);
    assert_eq!(redirected.exit, 0, "{redirected}");
    let seen = seen.lock().expect("not poisoned").clone();
    assert!(seen.starts_with("GET / ") && !seen.contains(STORED), "{seen}");
}

/// The configuration of a client may come with a repository, and a pasted line from anyone.
#[test]
fn neither_a_clients_configuration_nor_a_pasted_line_gets_a_stored_secret() {
    let world = quiet_world();
    for name in ["shop-db", "crm_token"] {
        assert_eq!(world.run_with(&["secret", "set", name], STORED).exit, 0);
    }
    let (address, seen) = server(ok());
    let key = "sk-0123456789abcdefghijABCDEFGHIJ012345";
    let config = json!({"mcpServers": {"shop": {"type": "http", "url": format!("http://{address}/shop"), "headers": {"db": key}}}});
    fs::create_dir_all(world.home().join(".cursor")).expect("made");
    fs::write(world.home().join(".cursor/mcp.json"), config.to_string()).expect("written");
    for more in [&[][..], &["--dry-run"]] {
        let ran = world.run(&[&["import", "mcp", "--from", "cursor"], more].concat());
        assert_refused(&ran, &[&address, "--allow-host", "`shop-db`"]);
    }
    let line = format!("curl http://{address}/x -H 'Authorization: Bearer {key}'");
    for name in ["crm", "crm_read"] {
        let named = line.replace(&address, &format!("{address}/{name}"));
        let ran = world.run(&["new", name, "--curl", &named]);
        if ran.exit == 0 {
            continue;
        }
        assert_refused(&ran, &[&address, "secret allow crm_token"]);
        assert!(!world.subtools().join(format!("{name}.json")).exists(), "{ran}");
    }
    assert!(!seen.lock().expect("not poisoned").contains(STORED));
    let listed = world.run(&["secret", "list"]).to_string();
    assert!(!listed.contains(&address), "no list was widened: {listed}");
    // A human who names the host gets it.
    world.run(&["import", "mcp", "--from", "cursor", "--allow-host", &address]);
    assert!(seen.lock().expect("not poisoned").contains(STORED));
}

#[test]
fn a_list_of_hosts_belongs_to_a_secret_that_is_there() {
    let world = quiet_world();
    let ran = world.run(&["secret", "allow", "githb", "api.github.com"]);
    assert_eq!(ran.exit, 3, "{ran}");
    assert!(ran.stderr.contains("no value is stored for the secret `githb`"), "{ran}");
}
