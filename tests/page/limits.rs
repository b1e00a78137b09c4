//! Limits of one request: its time, its size, the names in it, and who can read the files that it leaves.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use ground::page_client::link::make_link;
use serde_json::{Value, json};

use super::http::{Answer, host};
use super::human::Human;
use crate::agent::stub::{Stub, StubAnswer};
use crate::world::{PROGRAM, World};

/// The page allows ten seconds; the rest is for a busy machine.
const MAX_DURATION: Duration = Duration::from_secs(20);

fn world() -> World {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1 $WORD\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
    world
}

/// Sends one byte every quarter of a second until the server closes the connection; returns how long that took.
fn send_slowly(human: &Human, head: &str) -> Duration {
    let mut stream = TcpStream::connect(("127.0.0.1", human.site.port)).expect("the page listens");
    stream.set_read_timeout(Some(Duration::from_millis(250))).expect("the timeout is set");
    stream.write_all(head.as_bytes()).expect("the request is sent");
    let started = Instant::now();
    let mut bytes = [0; 1024];
    while started.elapsed() < MAX_DURATION {
        if stream.write_all(b" ").is_err() {
            break;
        }
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    started.elapsed()
}

/// A slow head, and slow bodies with and without a session.
#[test]
fn a_slow_request_is_cut_off_and_the_page_still_answers() {
    let world = world();
    let human = Human::of(&world);
    let host = format!("Host: {}\r\n", host(&human.site));
    let own = format!("{host}Origin: {}\r\nContent-Type: application/json\r\n", human.site.origin());
    let keys = human.headers("POST", "/decide", "");
    let heads = [
        format!("GET / HTTP/1.1\r\n{host}X-Slow: "),
        format!("POST /login HTTP/1.1\r\n{own}Content-Length: 1000\r\n\r\n{{"),
        format!("POST /decide HTTP/1.1\r\n{own}{keys}Content-Length: 1000\r\n\r\n{{"),
        format!("POST /decide HTTP/1.1\r\n{own}{keys}Transfer-Encoding: chunked\r\n\r\n3e8\r\n{{"),
    ];
    std::thread::scope(|scope| {
        let requests: Vec<_> = heads.iter().map(|head| scope.spawn(|| send_slowly(&human, head))).collect();
        let started = Instant::now();
        assert_eq!(human.get("/").status, 200);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        for (head, request) in heads.iter().zip(requests) {
            let took = request.join().expect("the request ended");
            assert!(took < MAX_DURATION, "{head:?} was not cut off");
        }
    });
}

/// The highest memory use of the executor so far, in bytes.
fn peak_memory(world: &World) -> u64 {
    let pid = world.executor().expect("the executor runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the executor runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a number");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A request that is too large is refused before it is held in memory.
#[test]
fn an_oversized_request_takes_no_memory() {
    const MAX_GROWTH: u64 = 20 << 20;
    const PARTS: usize = 256;
    let world = world();
    let human = Human::of(&world);
    assert_eq!(human.get("/").status, 200);
    let before = peak_memory(&world);
    let host = format!("Host: {}\r\n", host(&human.site));
    let own = format!("{host}Origin: {}\r\nContent-Type: application/json\r\n", human.site.origin());
    let keys = human.headers("POST", "/decide", "");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "[".repeat(1 << 20));
    let header = format!("X-Header: {}\r\n", "x".repeat(1 << 20));
    for (head, part) in [
        (format!("POST /login HTTP/1.1\r\n{own}Transfer-Encoding: chunked\r\n\r\n"), &chunk),
        (format!("POST /try HTTP/1.1\r\n{own}{keys}Transfer-Encoding: chunked\r\n\r\n"), &chunk),
        (format!("POST /decide HTTP/1.1\r\n{own}{keys}Content-Length: 1073741824\r\n\r\n"), &chunk),
        (format!("GET / HTTP/1.1\r\n{host}"), &header),
        (format!("GET /{}", "x".repeat(1000)), &"y".repeat(1 << 20)),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", human.site.port)).expect("the page listens");
        stream.set_write_timeout(Some(MAX_DURATION)).expect("the timeout is set");
        stream.write_all(head.as_bytes()).expect("the request is sent");
        let sent = (0..PARTS).take_while(|_| stream.write_all(part.as_bytes()).is_ok()).count();
        assert!(sent < PARTS, "{head:?}: all of it was accepted");
    }
    let more = peak_memory(&world).saturating_sub(before);
    assert!(more < MAX_GROWTH, "{} MiB more than before", more >> 20);
}

#[test]
fn a_name_is_never_used_as_a_path() {
    const CANARY: &str = "canary-41c7";
    let world = world();
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "x"}));
    for folder in [world.state(), world.executor_folder(), world.mailbox(), world.home(), world.folder()] {
        for name in ["canary", "canary.json", "canary.js", "canary.html"] {
            fs::write(folder.join(name), CANARY).expect("the canary is written");
        }
    }
    let executor = world.executor_folder().display().to_string();
    let mut names = vec![
        "../canary".to_owned(),
        "../../../../../../../../etc/passwd".to_owned(),
        format!("{executor}/canary"),
        "/etc/passwd".to_owned(),
        "C:\\canary".to_owned(),
        "..\\canary".to_owned(),
        "canary".to_owned(),
        "canary.json".to_owned(),
        "canary\0.json".to_owned(),
        "\0".to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        "..\u{2215}canary".to_owned(),
        "\u{ff0e}\u{ff0e}/canary".to_owned(),
        "x".repeat(300),
        String::new(),
    ];
    names.extend([format!("{id}."), format!("{id}/../{id}"), format!("{id}\0"), id.to_uppercase() + " "]);
    let assert_not_found = |what: &str, answer: &Answer| {
        assert!(matches!(answer.status, 400 | 404 | 409 | 422), "{what}: {} {}", answer.status, answer.body);
        assert!(!answer.body.contains(CANARY) && !answer.body.contains("root:"), "{what}: {}", answer.body);
    };
    let digest = "0".repeat(64);
    for name in &names {
        let encoded = name.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"));
        let plain = name.replace(|c: char| !c.is_ascii_graphic(), "_");
        for (view, name) in
            ["card", "task", "subtool", "page"].into_iter().flat_map(|view| [(view, &encoded), (view, &plain)])
        {
            // An empty name or dots make the path of another view.
            let path = format!("/{view}/{name}");
            if !matches!(name.as_str(), "" | "." | "..") {
                assert_not_found(&path, &human.get(&path));
            }
        }
        for (path, body) in [
            ("/try", json!({"tool": name, "input": {}})),
            ("/cancel", json!({"id": name})),
            ("/resolve", json!({"id": name, "happened": true})),
            ("/grants/revoke", json!({"id": name})),
            ("/decide", json!({"decisions": [{"id": name, "digest": digest}], "verdict": "approve"})),
            ("/answer", json!({"id": name, "digest": digest, "action": "decline"})),
            ("/login", json!({"secret": name})),
        ] {
            let answer = human.post(path, &body);
            if path == "/login" {
                assert_eq!(answer.status, 403, "{path} {name:?}: {}", answer.body);
            } else {
                assert_not_found(&format!("{path} {name:?}"), &answer);
            }
        }
        // A program's arguments cannot hold a null character.
        if !name.contains('\0') && !name.is_empty() {
            for words in [["run", "--", name], ["cancel", "--", name], ["inspect", "--", name]] {
                let ran = world.run(&words);
                assert!(matches!(ran.exit, 2 | 3), "{words:?}: {ran}");
            }
            let mut command = world.command(&["run", "mark", "name=y"]);
            let ran =
                world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", name).output().expect("the program runs"));
            assert_eq!(ran.exit, 0, "{ran}");
            assert_eq!(world.run(&["cancel", ran.json()["id"].as_str().expect("an id")]).exit, 0);
        }
    }
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    for folder in [world.state(), world.executor_folder(), world.mailbox(), world.home(), world.folder()] {
        assert_eq!(fs::read_to_string(folder.join("canary")).ok().as_deref(), Some(CANARY), "{}", folder.display());
    }
}

/// Collects the files and folders below `folder` that other users may read, write or execute.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    let mode = fs::symlink_metadata(folder).expect("the file exists").mode();
    if mode & 0o077 != 0 && !fs::symlink_metadata(folder).expect("the file exists").is_symlink() {
        found.push(format!("{} {:o}", folder.display(), mode & 0o777));
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            open_to_others(&entry.path(), found);
        } else {
            let mode = entry.metadata().expect("the file exists").mode();
            if mode & 0o077 != 0 {
                found.push(format!("{} {:o}", entry.path().display(), mode & 0o777));
            }
        }
    }
}

/// With any umask, only their owner can use the record, the log, the mailbox, links and sessions.
#[test]
fn no_file_on_the_disk_is_open_to_other_users() {
    let world = world();
    world.configure("[executor]\ninline_bytes = 10\n");
    let script = format!("umask 000; exec '{PROGRAM}' executor start");
    let started = world.transcript(&world.within("sh", &["-c", &script]).output().expect("a shell"));
    assert_eq!(started.exit, 0, "{started}");
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "x"}));
    world.start("mark", &json!({"name": "waits"}));
    assert_eq!(human.approve(&id).status, 200);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    let large = world.run(&["run", "files_list", "path=/etc", "--wait"]);
    assert!(large.exit == 0 || large.exit == 1, "{large}");
    assert_eq!(world.run(&["list", "--query=mark"]).exit, 0);
    make_link(&world.executor_folder()).expect("a link");
    let mut found = Vec::new();
    for folder in [world.state(), world.mailbox(), world.home().join(".cache/agent-magic-tool")] {
        open_to_others(&folder, &mut found);
    }
    assert_eq!(found, [] as [String; 0]);
}

/// The same of the configuration, of secrets, packs, imports, sessions and API keys, and of the folder in which they are.
#[test]
fn no_file_of_a_command_is_open_to_other_users() {
    let world = World::new();
    // All of them are made by the program.
    fs::remove_dir_all(world.home().join(".config")).expect("removed");
    let run = |words: &str| {
        let within = format!("umask 000; echo value-0123456789 | '{PROGRAM}' {words}");
        let ran = world.transcript(&world.within("sh", &["-c", &within]).output().expect("a shell"));
        assert_eq!(ran.exit, 0, "{words}: {ran}");
    };
    run("secret set notes --host api.notes.example");
    run("pack enable shell");
    run("import \"curl https://api.notes.example/v1/notes -H 'Authorization: Bearer topsecret'\"");
    run("serve key create phone");
    let configuration = fs::read_to_string(world.config_folder().join("config.toml")).expect("a pack is enabled in it");
    let stub = Stub::answering(|_, _| StubAnswer::says("Hello."));
    // Written in place: the mode stays as the program made it.
    fs::write(world.config_folder().join("config.toml"), format!("{}{configuration}", stub.configuration("", "")))
        .expect("written");
    run("agent --json --report report.md Hi");
    run("run files_list path=. --wait");
    let server = crate::serve::Server::of(
        world.within("sh", &["-c", &format!("umask 000; exec '{PROGRAM}' serve --listen=127.0.0.1:0")]),
    );
    server.ask("a", "Hi");
    let mut found = Vec::new();
    for folder in [world.config_folder(), world.state(), world.mailbox()] {
        open_to_others(&folder, &mut found);
    }
    assert_eq!(found, [] as [String; 0]);
}

/// The same of what agents, `serve` and searches keep.
#[test]
fn no_file_of_an_agent_is_open_to_other_users() {
    let Some((world, _model)) = crate::serve::world_with_model("") else { return };
    let within = |words: &str| world.within("sh", &["-c", &format!("umask 000; exec '{PROGRAM}' {words}")]);
    let run = |words: &str| {
        let ran = world.transcript(&within(words).output().expect("a shell"));
        assert_eq!(ran.exit, 0, "{words}: {ran}");
    };
    let server = crate::serve::Server::of(within("serve --listen=127.0.0.1:0"));
    server.ask("a", "Hi");
    run("agent --json Hi");
    run("list tools --query='count words'");
    run("run count_words text='a b' --wait");
    crate::world::until("the search is remembered", || world.state().join("learned.jsonl").exists());
    let mut found = Vec::new();
    open_to_others(&world.state(), &mut found);
    open_to_others(&world.mailbox(), &mut found);
    assert_eq!(found, [] as [String; 0]);
}

/// The input, folder and definition are read when the task is requested. Later changes of the files, links and
/// variables that they came from have no effect.
#[test]
fn changes_that_an_agent_makes_after_its_request_have_no_effect() {
    let world = world();
    let (shown, other) = (world.folder().join("shown"), world.folder().join("other"));
    for folder in [&shown, &other] {
        fs::create_dir(folder).expect("the folder is created");
    }
    let (here, input) = (world.folder().join("here"), world.folder().join("input.json"));
    symlink(&shown, &here).expect("the link is created");
    fs::write(&input, json!({"name": "shown"}).to_string()).expect("the input is written");
    let human = Human::of(&world);
    let mut run = world.command(&["run", "mark", "--input", "@../input.json"]);
    let ran = world.transcript(&run.current_dir(&here).env("WORD", "agent's").output().expect("the program runs"));
    assert_eq!(ran.exit, 0, "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let approval = human.decision(&id, "approve");

    fs::write(&input, json!({"name": "replaced"}).to_string()).expect("the input is written");
    fs::remove_file(&here).expect("the link is removed");
    symlink(&other, &here).expect("the link is created");
    // The result file, which the agent can write, as well.
    let mut copy: Value = world.result_file(&id);
    copy["input"]["name"] = "replaced".into();
    fs::write(world.mailbox().join(format!("results/result-{id}.json")), copy.to_string())
        .expect("the result file is written");
    assert_eq!(human.post("/decide", &approval).status, 200);
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["input"]), (&json!("succeeded"), &json!({"name": "shown"})), "{ended}");
    assert_eq!(fs::read_to_string(shown.join("marks")).ok().as_deref(), Some("shown \n"));
    assert!(!other.join("marks").exists());
}
