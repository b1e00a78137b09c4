//! No leaks: credentials in errors, hidden inputs and our own secrets reach no file, no log and no human's screen.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::{Value, json};

use crate::world::{World, until};

/// Part of every credential of these tests. It occurs in no program, path or message.
pub(crate) const CANARY: &str = "c4naryZq81";

/// A server on loopback that answers every request with status 500 and `body`; returns its base URL.
fn failing_server(body: String) -> String {
    server("500 Internal Server Error", "application/json", body.into_bytes())
}

/// A server on loopback that answers every request alike; returns its base URL.
pub(super) fn server(status: &'static str, content_type: &'static str, body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // The thread ends with the test program.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut sent = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut sent).ok();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            // The client may have closed the connection.
            stream.write_all(&[head.as_bytes(), &body].concat()).ok();
        }
    });
    url
}

/// The files below `folder` that contain `needle`.
pub(crate) fn files_with(folder: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                // A temporary file can be gone by now.
                Ok(kind) if kind.is_file() => {
                    let bytes = fs::read(entry.path()).unwrap_or_default();
                    if bytes.windows(needle.len()).any(|part| part == needle.as_bytes()) {
                        found.push(entry.path());
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Checks that nothing that outlives a command contains `needle`.
#[track_caller]
pub(crate) fn assert_nowhere(world: &World, needle: &str) {
    for folder in [world.state(), world.mailbox(), world.home().join(".cache")] {
        if folder.exists() {
            assert_eq!(files_with(&folder, needle), Vec::<PathBuf>::new());
        }
    }
}

fn failing(argv: &Value) -> Value {
    json!({"description": "Fails.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": argv}}})
}

#[test]
fn one_canary_in_every_error_is_found_nowhere() {
    let key = format!("-----BEGIN PRIVATE KEY-----\\n{CANARY}\\n-----END PRIVATE KEY-----");
    let said = format!(
        "connecting to postgres://app:{CANARY}@db/x\\npassword={CANARY}\\nAuthorization: Bearer {CANARY}0123\\n{key}\\n"
    );
    let body = json!({
        "message": format!("bad DSN mysql://root:{CANARY}@db"),
        "request": {"headers": {"Authorization": format!("Bearer {CANARY}")}, "password": CANARY},
        "errors": [{"message": format!("token={CANARY}")}]
    });
    let url = failing_server(body.to_string());
    let world = World::new();
    let command = |line: &str| json!(["sh", "-c", line]);
    world.configure(&format!(
        "[hooks.shout]\ncommand = [\"sh\", \"-c\", \"cat >> \\\"$HOME/events\\\"; echo >> \\\"$HOME/events\\\"; echo password={CANARY} >&2; exit 3\"]\nbackoff = \"1h\"\n\
         [telemetry]\notlp = \"{url}\"\nevery = \"50ms\"\n\
         [confirm]\nnotify = false\non_confirmation = [\"sh\", \"-c\", \"echo token={CANARY} >&2; touch \\\"$HOME/noticed\\\"; exit 4\"]\n"
    ));
    let http = json!({"http": {"base_url": url, "path": "/x"}});
    world.define(
        "failing.json",
        &json!({
            "program": failing(&command(&format!("printf '{said}' >&2; exit 1"))),
            "on_stdout": failing(&command(&format!("printf '{said}'; exit 1"))),
            "not_json": {"description": "Fails.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": command(&format!("printf '{said}'")), "output": "json"}}},
            "wrong_select": {"description": "Fails.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["echo", format!("[\"password={CANARY}\"]")], "output": "json"}},
                "result": {"select": ".x.y"}},
            "noisy": failing(&command(&format!("printf '{said}' >&2; echo fine"))),
            "server": {"description": "Fails.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true}, "run": http},
            "looked_up": {"description": "Is asked about.", "input": {"type": "object"}, "confirm": "always",
                "preview": {"subtool": "server", "replaces": "."}, "run": {"process": {"argv": ["true"]}}}
        }),
    );
    for tool in ["program", "on_stdout", "not_json", "wrong_select", "server"] {
        let ended = world.run(&["run", tool, "--wait"]);
        assert_eq!(ended.exit, 1, "{ended}");
        let text = format!("{}{}", ended.stdout, ended.stderr);
        assert!(text.contains("[hidden]") && !text.contains(CANARY), "{tool}: {text}");
    }
    let noisy = world.result_of("noisy", &json!({}));
    let stderr = noisy["_meta"]["stderr"].as_str().expect("stderr");
    assert!(stderr.contains("password=[hidden]"), "{noisy}");
    let asked = world.start("looked_up", &json!({}));
    until("the human is told", || world.home().join("noticed").exists());
    until("the question is open", || world.result_file(&asked)["state"] == "awaiting_confirmation");
    until("the hook was told", || {
        fs::read_to_string(world.home().join("events")).is_ok_and(|events| events.lines().count() >= 6)
    });
    // `doctor` says why a hook failed.
    let doctor = world.run(&["doctor"]);
    assert!(!doctor.stdout.contains(CANARY) && !doctor.stderr.contains(CANARY), "{doctor}");
    world.run(&["executor", "stop"]);
    assert_nowhere(&world, CANARY);
    let log = fs::read_to_string(world.log()).expect("a log");
    for part in ["`on_confirmation`", "collector"] {
        assert!(log.contains(part), "this path was taken: {log}");
    }
    assert!(!fs::read_to_string(world.home().join("events")).expect("events").contains(CANARY));
}

#[test]
fn data_that_was_asked_for_stays_as_it_is() {
    let world = World::new();
    let text = format!("password={CANARY}\nsk-ant-api03-{CANARY}{CANARY}\npostgres://a:b@c");
    fs::write(world.folder().join("settings.env"), &text).expect("written");
    let read = world.result_of("files_read", &json!({"path": "settings.env"}));
    let shown = read["data"].to_string();
    assert!(shown.contains(&format!("password={CANARY}")) && shown.contains("postgres://a:b@c"), "{read}");
}

#[test]
fn a_file_has_neither_our_secrets_nor_hidden_inputs_and_is_otherwise_as_it_came() {
    let (ours, hidden) = (format!("{CANARY}-ours"), format!("{CANARY}-hidden"));
    let noise: Vec<u8> = (0..200_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let with = |ours: &str, hidden: &str| {
        [&noise[..], ours.as_bytes(), b"\xff\x00", hidden.as_bytes(), &noise, b"\n", ours.as_bytes()].concat()
    };
    let body = with(&ours, &hidden);
    let url = server("200 OK", "application/octet-stream", body.clone());
    let text_url = server("200 OK", "text/plain", format!("{}{ours}{hidden}", "text\n".repeat(40_000)).into_bytes());
    let world = World::new();
    assert_eq!(world.run_with(&["secret", "set", "key"], &ours).exit, 0);
    let input = json!({"type": "object", "properties": {"pin": {"type": "string", "format": "password"}}});
    let tool = |run: Value| json!({"description": "Gets it.", "input": input, "annotations": {"readOnlyHint": true}, "run": run});
    let get = |url: &str| {
        tool(json!({"http": {"base_url": url, "path": "/x", "query": {"pin": "{{ pin }}"},
            "auth": {"api_key": {"header": "X-Key", "value": "secret:key"}}}}))
    };
    world.define(
        "files.json",
        &json!({
            "binary": get(&url), "text": get(&text_url),
            "program": tool(json!({"process": {"argv": ["sh", "-c", "yes text | head -n 40000; echo $KEY $PIN"],
                "env": {"KEY": "secret:key", "PIN": "{{ pin }}"}}}))
        }),
    );
    for (name, shown) in [("binary", Some(with("[secret:key]", "[hidden]"))), ("text", None), ("program", None)] {
        let ended = world.result_of(name, &json!({"pin": hidden}));
        let file = ended["_meta"]["data_file"].as_str().unwrap_or_else(|| panic!("{name} is a file: {ended}"));
        let data = fs::read(file).expect("readable");
        if let Some(shown) = shown {
            assert!(data == shown && ended["_meta"]["bytes"] == shown.len(), "{}", data.len());
        } else {
            let tail = String::from_utf8_lossy(&data[data.len() - 60..]).into_owned();
            assert!(tail.contains("[secret:key]") && tail.contains("[hidden]"), "{name}: {tail}");
        }
    }
    world.run(&["executor", "stop"]);
    fs::remove_file(world.state().join("secrets/key")).expect("removed");
    assert_nowhere(&world, CANARY);
}

#[test]
fn every_run_is_logged_with_a_digest_and_the_input_only_on_request() {
    for (setting, has_input) in [("", false), ("[executor]\nlog_inputs = true\n", true)] {
        let world = World::new();
        world.configure(&format!("{setting}[[confirm.rules]]\ntools = [\"no\"]\nthen = \"refuse\"\n"));
        let echo = |argv: &[&str]| {
            json!({"description": "Says it.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": argv}}})
        };
        world.define("say.json", &json!({"say": echo(&["true", "{{ text }}"]), "no": echo(&["true"])}));
        for text in [CANARY, CANARY, "other"] {
            world.result_of("say", &json!({"text": text}));
        }
        assert_eq!(world.run(&["run", "no", &format!("text={CANARY}")]).exit, 5);
        assert_eq!(world.run(&["run", "nothing", &format!("text={CANARY}")]).exit, 3);
        world.run(&["executor", "stop"]);
        let log = fs::read_to_string(world.log()).expect("a log");
        assert_eq!(log.contains(CANARY), has_input, "{log}");
        let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |message: &str| lines.iter().filter(|line| line["message"] == message).collect::<Vec<_>>();
        let (ended, refused) = (of("task ended"), of("task refused"));
        let digests: Vec<_> = ended.iter().map(|line| line["input_sha256"].as_str().expect("a digest")).collect();
        assert!(digests.len() == 3 && digests[0].len() == 64, "{log}");
        assert!(digests[0] == digests[1] && digests[1] != digests[2], "{log}");
        let uid = ended[0]["uid"].as_u64().expect("a user id");
        let refused: Vec<_> = refused.iter().map(|line| (&line["tool"], &line["code"], line["uid"].as_u64())).collect();
        let expected = [
            (&json!("no"), &json!("refused-by-policy"), Some(uid)),
            (&json!("nothing"), &json!("unknown-subtool"), Some(uid)),
        ];
        assert_eq!(refused, expected);
    }
}

#[test]
fn our_own_folders_are_closed_to_subtools_even_inside_a_root() {
    use std::os::unix::fs::symlink;
    let url = failing_server("{}".to_owned());
    let world = World::new();
    let home = world.home();
    world.configure(&format!(
        "[files]\nroots = [\"{all}\", \"/proc/self/root{all}\"]\n[http]\nprivate_hosts = [\"127.0.0.1\"]\n",
        all = home.parent().expect("the folder of the world").display()
    ));
    assert_eq!(world.run_with(&["secret", "set", "key"], &format!("{CANARY}-{CANARY}")).exit, 0);
    fs::write(home.join("notes.txt"), format!("{CANARY} of mine")).expect("written");
    symlink(".local/state/agent-magic-tool/secrets", home.join("shortcut")).expect("linked");
    symlink(".local/state/agent-magic-tool/secrets/key", home.join("key.txt")).expect("linked");
    fs::hard_link(world.state().join("secrets/key"), home.join("hard.txt")).expect("linked");
    assert_eq!(world.run(&["list"]).exit, 0);
    assert!(home.join(".cache/agent-magic-tool/listing.index").exists());
    world.define(
        "own.json",
        &json!({
            "upload": {"description": "Uploads.", "input": {"type": "object", "properties": {"path": {"type": "string"}}},
                "annotations": {"readOnlyHint": true},
                "run": {"http": {"method": "POST", "base_url": url, "path": "/x", "body": {"file": {"path": "{{ path }}"}}}}},
            "list_in": {"description": "Lists.", "input": {"type": "object", "properties": {"path": {"type": "string"}}},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["ls"], "folder": "{{ path }}"}}}
        }),
    );
    let closed = |tool: &str, field: &str, path: &str| {
        let ended = world.result_of(
            tool,
            &json!({field: path, "pattern": CANARY})
                .as_object()
                .map(|all| {
                    let mut input = all.clone();
                    if tool != "files_search" {
                        input.remove("pattern");
                    }
                    Value::Object(input)
                })
                .expect("an object"),
        );
        assert_eq!(ended["error"]["code"], "outside-roots", "{tool} {path}: {ended}");
    };
    let state = home.join(".local/state/agent-magic-tool");
    let through_proc = format!("/proc/self/root{}", state.display());
    for path in [
        ".local/state/agent-magic-tool/secrets/key".to_owned(),
        ".local/state/agent-magic-tool/secrets/none".to_owned(),
        "shortcut/key".to_owned(),
        "shortcut/none".to_owned(),
        "key.txt".to_owned(),
        "hard.txt".to_owned(),
        ".cache/agent-magic-tool/listing.index".to_owned(),
        format!("{through_proc}/secrets/key"),
        ".config/agent-magic-tool/config.toml".to_owned(),
    ] {
        let path = if path.starts_with('/') { path } else { home.join(path).display().to_string() };
        closed("files_read", "path", &path);
        closed("upload", "path", &path);
    }
    for folder in
        [state.join("secrets"), home.join("shortcut"), home.join(".config/agent-magic-tool"), through_proc.into()]
    {
        let folder = folder.display().to_string();
        closed("files_list", "path", &folder);
        closed("files_search", "path", &folder);
        closed("list_in", "path", &folder);
        closed("git_status", "repository", &folder);
    }
    // A search of everything finds what is the user's own. The mailbox has the needle too, in the inputs of results.
    let everything = home.parent().expect("the folder of the world").display().to_string();
    let found = world.result_of("files_search", &json!({"pattern": CANARY, "path": everything}));
    let paths: Vec<_> = found["data"]["matches"].as_array().into_iter().flatten().map(|hit| &hit["path"]).collect();
    assert!(paths.len() == 1 && paths[0].as_str().is_some_and(|path| path.ends_with("notes.txt")), "{found}");
}
