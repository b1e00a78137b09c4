//! The server over HTTP as an attacker meets it: a foreign host, a foreign page, no key, another client's session.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::peers::{HttpServer, define};
use crate::world::World;

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;

/// Sends one request; returns the status and the whole answer.
pub(crate) fn post(server: &HttpServer, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut all = vec![("Host", server.host()), ("Content-Type", "application/json")];
    all.extend([("Accept", "application/json, text/event-stream"), ("Connection", "close")]);
    for (name, value) in headers {
        all.retain(|(known, _)| known != name);
        all.push((name, value));
    }
    let head = all.iter().fold(String::new(), |head, (name, value)| head + name + ": " + value + "\r\n");
    let mut stream = TcpStream::connect(server.host()).expect("it listens");
    write!(stream, "POST /mcp HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
    let mut answer = Vec::new();
    // A server that refuses early may reset the connection after its answer.
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, answer)
}

#[test]
fn only_a_request_with_the_key_our_host_and_no_foreign_origin_counts() {
    let world = World::new();
    define(&world);
    let server = HttpServer::start(&world, &[]);
    let key = format!("Bearer {}", server.key);
    let own_origin = format!("http://{}", server.host());
    let with = |more: &[(&str, &str)]| {
        let headers: Vec<_> = [("Authorization", key.as_str())].into_iter().chain(more.iter().copied()).collect();
        post(&server, &headers, INITIALIZE).0
    };
    assert_eq!(with(&[]), 200);
    assert_eq!(with(&[("Origin", &own_origin)]), 200);
    for headers in [
        ("Host", "evil.example"),
        ("Host", "127.0.0.1:1"),
        ("Host", "localhost"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost:1"),
    ] {
        assert_eq!(with(&[headers]), 403, "{headers:?}");
    }
    for key in ["", "Bearer", "Bearer x", "Basic eDp5", &format!("Bearer {}x", server.key)] {
        let (status, answer) = post(&server, &[("Authorization", key)], INITIALIZE);
        assert_eq!(status, 401, "{key}: {answer}");
        assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    let large = format!("{INITIALIZE}{}", " ".repeat(5 << 20));
    assert_eq!(post(&server, &[("Authorization", &key)], &large).0, 413);
}

#[test]
fn a_session_belongs_to_the_key_that_began_it() {
    let world = World::new();
    define(&world);
    let other = world.home().join("other-key");
    std::fs::write(&other, "k".repeat(40)).expect("written");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).expect("changed");
    world.configure(&format!("[mcp.clients.other]\nkey_file = \"{}\"\n", other.display()));
    let server = HttpServer::start(&world, &[]);
    let key = format!("Bearer {}", server.key);
    let (_, answer) = post(&server, &[("Authorization", &key)], INITIALIZE);
    let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session").trim();
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "prompts/list"}).to_string();
    let asked = |key: &str| post(&server, &[("Authorization", key), ("Mcp-Session-Id", session)], &list).0;
    assert_eq!(asked(&key), 200);
    assert_eq!(asked(&format!("Bearer {}", "k".repeat(40))), 404);
}

#[test]
fn it_listens_for_other_machines_only_behind_a_proxy_that_is_named() {
    let world = World::new();
    define(&world);
    let refused = world.run(&["mcp", "--http", "0.0.0.0:0"]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (2, Some("bad-config")), "{refused}");
    assert!(refused.error()["hint"].as_str().is_some_and(|hint| hint.contains("public_names")), "{refused}");
    world.configure("[mcp]\npublic_names = [\"tools.example.com\"]\n");
    let server = HttpServer::start(&world, &[]);
    let key = format!("Bearer {}", server.key);
    let public =
        [("Authorization", key.as_str()), ("Host", "tools.example.com"), ("Origin", "https://tools.example.com")];
    assert_eq!(post(&server, &public, INITIALIZE).0, 200);
    let plain =
        [("Authorization", key.as_str()), ("Host", "tools.example.com"), ("Origin", "http://tools.example.com")];
    assert_eq!(post(&server, &plain, INITIALIZE).0, 403);
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let world = World::new();
    let key = world.home().join("key");
    std::fs::write(&key, "k".repeat(40)).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let key = key.to_str().expect("UTF-8");
    let refused = world.run(&["mcp", "--http", "127.0.0.1:0", "--key-file", key]);
    assert_eq!((refused.exit, refused.error()["code"].as_str()), (2, Some("bad-config")), "{refused}");
    let server = HttpServer::start(&world, &[]);
    let mode = std::fs::metadata(world.state().join("mcp-key")).expect("a key").permissions().mode();
    assert_eq!((mode & 0o777, server.key.len()), (0o600, 43));
}
