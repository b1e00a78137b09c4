//! An approval is for where the request goes by the configuration, too: another endpoint or database under the same name gets
//! nothing that a human approved for the one that was shown.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::human::Human;
use crate::world::{World, until};

/// A server that counts its requests, and its address.
fn server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("its address"));
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let mut connection = connection;
            counted.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let read = connection.read(&mut request).unwrap_or_default();
            assert!(read > 0);
            let answer =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            connection.write_all(answer.as_bytes()).expect("it is answered");
        }
    });
    (address, requests)
}

/// A database with one note, and what its note says.
fn database(world: &World, name: &str) -> (String, impl Fn() -> String) {
    let path = world.folder().join(name);
    let connection = rusqlite::Connection::open(&path).expect("a database");
    connection
        .execute_batch("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT); INSERT INTO notes VALUES (1, 'old')")
        .expect("filled");
    let url = format!("sqlite://{}", path.display());
    (url, move || connection.query_row("SELECT text FROM notes", [], |row| row.get(0)).expect("a note"))
}

#[test]
fn what_was_approved_for_one_destination_does_not_go_to_another() {
    let world = World::new();
    let ((first, _), (second, requests)) = (server(), server());
    let ((shop, _), (other, note)) = (database(&world, "shop.db"), database(&world, "other.db"));
    let configure = |endpoints: &str, url: &str| {
        let http = "[http]\nprivate_hosts = [\"127.0.0.1\"]\n";
        world.configure(&format!("{http}{endpoints}[databases.shop]\nurl = \"{url}\"\nwritable = true\n"));
    };
    configure("", &shop);
    let input = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    world.define(
        "tools.json",
        &json!({
            "post": {"description": "Posts a note.", "input": input,
                "run": {"http": {"base_url": first, "path": "/notes", "method": "POST", "body": {"json": {"text": "{{ text }}"}}}}},
            "note": {"description": "Changes the note.", "input": input, "run": {"sql": {"database": "shop",
                "statement": "UPDATE notes SET text = :text WHERE id = 1", "parameters": {"text": "{{ text }}"}}}},
        }),
    );
    let human = Human::of(&world);
    let shown = |tool: &str, text: &str| {
        let id = world.start(tool, &json!({"text": text}));
        if tool == "note" {
            until("the change was tried", || human.card(&id).contains("It was tried"));
        }
        id
    };
    for tool in ["post", "note"] {
        let id = shown(tool, "new");
        let decision = human.decision(&id, "approve");
        if tool == "post" {
            configure(&format!("[http.endpoints]\n\"{first}\" = \"{second}\"\n"), &shop);
        } else {
            configure("", &other);
        }
        let answer = human.post("/decide", &decision);
        let ended = world.end_of(&id);
        assert_eq!(ended["error"]["code"], "drifted", "{tool}: {ended}; {}", answer.body);
        configure("", &shop);
    }
    assert_eq!((requests.load(Ordering::SeqCst), note().as_str()), (0, "old"));
    // Without a change both succeed.
    for tool in ["post", "note"] {
        let id = shown(tool, "newer");
        assert_eq!(human.approve(&id).status, 200);
        let ended = world.end_of(&id);
        assert_eq!(ended["status"], "succeeded", "{tool}: {ended}");
    }
}

/// A database that a link names is the one that the link led to when its change was shown.
#[test]
fn what_was_approved_for_one_file_is_not_written_to_another() {
    let world = World::new();
    let ((_, note), (_, other)) = (database(&world, "shop.db"), database(&world, "other.db"));
    let link = world.folder().join("link.db");
    let lead_to = |name: &str| {
        std::fs::remove_file(&link).ok();
        std::os::unix::fs::symlink(world.folder().join(name), &link).expect("linked");
    };
    lead_to("shop.db");
    world.configure(&format!("[databases.shop]\nurl = \"sqlite://{}\"\nwritable = true\n", link.display()));
    let statement = json!({"database": "shop", "statement": "UPDATE notes SET text = 'new' WHERE id = 1"});
    world.define(
        "tools.json",
        &json!({"note": {"description": "Changes the note.", "input": {}, "run": {"sql": statement}}}),
    );
    let human = Human::of(&world);
    for (file, status) in [("other.db", "failed"), ("shop.db", "succeeded")] {
        lead_to("shop.db");
        let id = world.start("note", &json!({}));
        until("the change was tried", || human.card(&id).contains("It was tried"));
        lead_to(file);
        assert_eq!(human.approve(&id).status, 200);
        let ended = world.end_of(&id);
        assert_eq!(ended["status"], status, "{file}: {ended}");
    }
    assert_eq!((note().as_str(), other().as_str()), ("new", "old"));
}
