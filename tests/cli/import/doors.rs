//! Every door by which `import` and `new` can be told to use a secret: one that is stored goes to no host and no program
//! before a human has said so, whether it has a list or not.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::quiet_world;
use crate::world::{Transcript, World};

/// No word of it occurs elsewhere.
const STORED: &str = "crm-stored-0123456789";
/// Looks like a credential, in a text of others.
const PASTED: &str = "sk-0123456789abcdefghijABCDEFGHIJ012345";

/// One way to name a stored secret.
struct Door {
    name: &'static str,
    /// The secret that is stored.
    secret: &'static str,
    words: fn(&World, &str) -> Vec<String>,
    /// The file that the import would write; the configuration for a database.
    writes: &'static str,
    takes: Place,
    /// Whether the option `--allow-host` is there.
    has_option: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    Program,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A program that keeps its environment, and is no server.
fn thief(world: &World) -> String {
    let path = world.folder().join("thief.sh");
    fs::write(&path, "printf %s \"${KEY:-$MODE}\" > \"${0%/*}/stolen\"\n").expect("written");
    path.display().to_string()
}

fn client(world: &World, server: &serde_json::Value) {
    fs::create_dir_all(world.home().join(".cursor")).expect("made");
    let config = json!({"mcpServers": {"crm": server}});
    fs::write(world.home().join(".cursor/mcp.json"), config.to_string()).expect("written");
}

fn openapi(world: &World, title: &str, server: &str) -> String {
    let path = world.folder().join("spec.json");
    let read = json!({"operationId": "listThings", "summary": "List things", "responses": {}});
    let spec = json!({"openapi": "3.0.0", "info": {"title": title, "version": "1"}, "servers": [{"url": server}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}, "security": [{"key": []}],
        "paths": {"/things": {"get": read}}});
    fs::write(&path, spec.to_string()).expect("written");
    path.display().to_string()
}

const DOORS: [Door; 13] = [
    Door {
        name: "a header of a server",
        secret: "crm",
        words: |_, at| {
            let url = format!("http://{at}/mcp");
            words(&["import", "mcp", "crm", &url, "--header", "Authorization: Bearer secret:crm"])
        },
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "a header without a name for the server",
        secret: "other",
        words: |_, at| words(&["import", "mcp", &format!("http://{at}/mcp"), "--header", "X-Key: secret:other"]),
        writes: "127.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "the sign-in to a server",
        secret: "crm-oauth",
        words: |_, at| words(&["import", "mcp", "crm", &format!("http://{at}/mcp"), "--oauth"]),
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "the name of a server that wants a sign-in",
        secret: "crm-oauth",
        words: |_, at| words(&["import", "mcp", "--name", "crm", &format!("http://{at}/401")]),
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "a variable of a server",
        secret: "other",
        words: |world, _| words(&["import", "mcp", "crm", "--env", "KEY=secret:other", "--", "sh", &thief(world)]),
        writes: "crm.json",
        takes: Place::Program,
        has_option: true,
    },
    Door {
        name: "a variable in another client",
        secret: "crm-KEY",
        words: |world, _| {
            client(world, &json!({"command": "sh", "args": [thief(world)], "env": {"KEY": PASTED}}));
            words(&["import", "mcp", "--from", "cursor"])
        },
        writes: "crm.json",
        takes: Place::Program,
        has_option: true,
    },
    Door {
        name: "a header in another client",
        secret: "crm-key",
        words: |world, at| {
            client(world, &json!({"type": "http", "url": format!("http://{at}/mcp"), "headers": {"key": PASTED}}));
            words(&["import", "mcp", "--from", "cursor"])
        },
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "the name of a database",
        secret: "crm-db",
        words: |_, at| words(&["import", "sql", "crm", &format!("postgres://reader@{at}/crm")]),
        writes: "config",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "the title of a description",
        secret: "crm",
        words: |world, at| words(&["import", &openapi(world, "crm", &format!("http://{at}"))]),
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "the name of a pack",
        secret: "crm",
        words: |world, at| words(&["import", &openapi(world, "Things", &format!("http://{at}")), "--name", "crm"]),
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "another server than that of the description",
        secret: "crm",
        words: |world, at| {
            let path = openapi(world, "crm", "https://api.crm.example");
            words(&["import", &path, "--server", &format!("http://{at}")])
        },
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "a pasted line",
        secret: "curl_token",
        words: |_, at| {
            let line = format!("curl http://{at}/x -H 'Authorization: Bearer {PASTED}'");
            words(&["import", "curl", &line, "--name", "crm"])
        },
        writes: "crm.json",
        takes: Place::Host,
        has_option: true,
    },
    Door {
        name: "a pasted line of a new subtool",
        secret: "crm_token",
        words: |_, at| {
            let line = format!("curl http://{at}/x -H 'Authorization: Bearer {PASTED}'");
            words(&["new", "crm", "--curl", &line])
        },
        writes: "crm.json",
        takes: Place::Host,
        has_option: false,
    },
];

/// A server that notes each request, and wants a sign-in at `/401`.
fn server() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            // A database greets with other words.
            while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.first() != Some(&0) {
                match stream.read(&mut buffer) {
                    Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let status = if request.contains("/401") { "401 Unauthorized" } else { "200 OK" };
            noted.lock().expect("not poisoned").push_str(&request);
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
            // The client may be gone.
            stream.write_all(format!("{head}Content-Length: 2\r\n\r\n{{}}").as_bytes()).ok();
        }
    });
    (address.to_string(), seen)
}

impl Door {
    fn place(&self, world: &World, at: &str) -> String {
        match self.takes {
            Place::Host => at.to_owned(),
            Place::Program => format!("program:sh {}", thief(world)),
        }
    }

    fn run(&self, world: &World, at: &str, more: &[&str]) -> Transcript {
        let words = (self.words)(world, at);
        // Before the dashes, after which all is the program's.
        let (own, rest) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
        let own = own.iter().map(String::as_str).chain(more.iter().copied()).chain(rest.iter().map(String::as_str));
        world.run(&own.collect::<Vec<_>>())
    }

    fn is_written(&self, world: &World) -> bool {
        match self.writes {
            "config" => {
                fs::read_to_string(world.config_folder().join("config.toml")).expect("a configuration").contains("crm")
            }
            file => world.subtools().join(file).exists(),
        }
    }

    /// Checks that it is shut, and says with which words it opens.
    fn assert_shut(&self, ran: &Transcript, place: &str) {
        let error = ran.error().to_string();
        let allow = format!("agent-magic-tool secret allow {} '{place}'", self.secret);
        let option = format!("--allow-host '{place}'");
        assert_eq!(ran.exit, 2, "{}: {ran}", self.name);
        assert!(error.contains(&format!("`{}`", self.secret)) && error.contains(&allow), "{}: {ran}", self.name);
        assert_eq!(error.contains(&option), self.has_option, "{}: {ran}", self.name);
    }
}

fn is_refused(ran: &Transcript) -> bool {
    ran.to_string().contains("would send the secret") || ran.to_string().contains("would put the secret")
}

#[test]
fn a_stored_secret_goes_through_no_door_unasked() {
    for door in &DOORS {
        // Without a list, and with one that names something else.
        for bound in [None, Some("api.crm.example"), Some("program:sh /another.sh")] {
            let world = quiet_world();
            let (at, seen) = server();
            assert_eq!(world.run_with(&["secret", "set", door.secret], STORED).exit, 0);
            if let Some(bound) = bound {
                assert_eq!(world.run(&["secret", "allow", door.secret, bound]).exit, 0);
            }
            let listed = world.run(&["secret", "list"]).stdout;
            let place = door.place(&world, &at);
            let dry: &[&str] = if door.has_option { &["--dry-run"] } else { &["--print"] };
            for more in [&[][..], dry] {
                let ran = door.run(&world, &at, more);
                door.assert_shut(&ran, &place);
                assert!(bound.is_none_or(|bound| ran.stderr.contains(&format!("goes to `{bound}`"))), "{ran}");
            }
            assert!(!door.is_written(&world), "{}", door.name);
            assert_eq!(world.run(&["secret", "list"]).stdout, listed, "{}: its list is as it was", door.name);
            assert!(!world.folder().join("stolen").exists(), "{}", door.name);
            assert!(!seen.lock().expect("not poisoned").contains(STORED), "{}", door.name);
        }
    }
}

#[test]
fn a_door_opens_with_the_words_that_it_says() {
    for door in &DOORS {
        for is_option in [false, true] {
            if is_option && !door.has_option {
                continue;
            }
            let world = quiet_world();
            let (at, seen) = server();
            assert_eq!(world.run_with(&["secret", "set", door.secret], STORED).exit, 0);
            let place = door.place(&world, &at);
            let more: &[&str] = if is_option { &["--allow-host", &place] } else { &[] };
            if !is_option {
                assert_eq!(world.run(&["secret", "allow", door.secret, &place]).exit, 0);
            }
            let ran = door.run(&world, &at, more);
            assert!(!is_refused(&ran), "{}: {ran}", door.name);
            let is_sent = match door.takes {
                Place::Program => fs::read_to_string(world.folder().join("stolen")).is_ok_and(|text| text == STORED),
                Place::Host if door.name.contains("header") => seen.lock().expect("not poisoned").contains(STORED),
                Place::Host => true,
            };
            assert!(is_sent, "{}: {ran}", door.name);
        }
    }
}

#[test]
fn a_secret_that_is_stored_for_its_place_needs_no_further_word() {
    let door = &DOORS[4];
    let world = quiet_world();
    let set = world.run_with(&["secret", "set", door.secret, "--host", &door.place(&world, "")], STORED);
    assert_eq!(set.exit, 0, "{set}");
    assert!(!is_refused(&door.run(&world, "", &[])));
    // Everything that can change what runs counts.
    for (more, place) in [
        (["--env", "PATH=/tmp"], format!("program:PATH=/tmp sh {}", thief(&world))),
        (["--folder", "/"], format!("program:cd / && sh {}", thief(&world))),
    ] {
        door.assert_shut(&door.run(&world, "", &more), &place);
    }
}

/// What looks like a reference in the configuration of another client is a value of it.
#[test]
fn another_client_names_no_secret() {
    for server in [json!({"env": {"MODE": "secret:other"}}), json!({"env": {"KEY": "secret:other"}})] {
        let world = quiet_world();
        assert_eq!(world.run_with(&["secret", "set", "other"], STORED).exit, 0);
        let mut server = server;
        (server["command"], server["args"]) = (json!("sh"), json!([thief(&world)]));
        client(&world, &server);
        world.run(&["import", "mcp", "--from", "cursor"]);
        assert_eq!(fs::read_to_string(world.folder().join("stolen")).expect("it ran"), "secret:other", "{server}");
    }
}

/// What looks like a secret there is only a text.
#[test]
fn no_other_part_of_a_command_line_is_a_secret() {
    for more in [
        &["import", "graphql", "http://secret:crm@AT/graphql"][..],
        &["import", "http://secret:crm@AT/openapi.json"],
        &["import", "mcp", "x", "http://secret:crm@AT/mcp"],
        &["import", "mcp", "x", "http://AT/mcp?key=secret:crm"],
        &["import", "mcp", "x", "http://AT/mcp", "--header", "secret:crm: x"],
        &["import", "mcp", "x", "--", "curl", "http://AT/x", "-H", "secret:crm"],
        &["import", "mcp", "x", "--", "curl", "http://AT/x", "-H", "X: secret:crm"],
        &["import", "sql", "x", "postgres://secret:crm@AT/x"],
        &["import", "graphql", "http://AT/graphql", "--header", "Authorization: Bearer secret:crm"],
        &["import", "graphql", "http://AT/graphql", "--env", "KEY=secret:crm"],
    ] {
        let world = quiet_world();
        let (at, seen) = server();
        assert_eq!(world.run_with(&["secret", "set", "crm"], STORED).exit, 0);
        let words: Vec<_> = more.iter().map(|word| word.replace("AT", &at)).collect();
        let ran = world.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_ne!(ran.exit, 0, "{more:?}: {ran}");
        assert!(!seen.lock().expect("not poisoned").contains(STORED), "{more:?}: {ran}");
    }
}
