//! What one request may take, time, room and names, and who may read what it leaves behind.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use executor::page::make_link;
use serde_json::{Value, json};

use super::ann::bound;
use super::threats::{Answer, Human};
use crate::world::{PROGRAM, World};

/// T33 allows ten seconds; the rest is for a busy machine.
const SLOWEST: Duration = Duration::from_secs(20);

fn world() -> World {
    let world = World::new();
    world.define(
        "marks.json",
        &json!({"mark": {"description": "Leaves a mark.", "input": {"type": "object", "properties": {"name": {"type": "string"}}},
            "run": {"process": {"argv": ["sh", "-c", "echo \"$1 $WORD\" >> marks", "mark", "{{ name }}"], "folder": "."}}}}),
    );
    world
}

/// Sends a byte each quarter of a second until the far side has had enough; how long that took.
fn drip(human: &Human, head: &str) -> Duration {
    let mut stream = TcpStream::connect(("127.0.0.1", human.site.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_millis(250))).expect("set");
    stream.write_all(head.as_bytes()).expect("sent");
    let started = Instant::now();
    let mut bytes = [0; 1024];
    while started.elapsed() < SLOWEST {
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

/// T33: a head, a body with a session and one without, each a byte at a time and with nobody else there.
#[test]
fn a_request_that_drips_is_cut_off_and_the_page_answers_meanwhile() {
    let world = world();
    let human = Human::of(&world);
    let host = format!("Host: {}:{}\r\n", human.site.host, human.site.port);
    let own = format!("{host}Origin: {}\r\nContent-Type: application/json\r\n", human.site.origin());
    let keys = format!("Cookie: {}\r\nX-Page-Token: {}\r\n", human.cookie, human.token);
    let heads = [
        format!("GET / HTTP/1.1\r\n{host}X-Slow: "),
        format!("POST /login HTTP/1.1\r\n{own}Content-Length: 1000\r\n\r\n{{"),
        format!("POST /decide HTTP/1.1\r\n{own}{keys}Content-Length: 1000\r\n\r\n{{"),
        format!("POST /decide HTTP/1.1\r\n{own}{keys}Transfer-Encoding: chunked\r\n\r\n3e8\r\n{{"),
    ];
    std::thread::scope(|scope| {
        let drips: Vec<_> = heads.iter().map(|head| scope.spawn(|| drip(&human, head))).collect();
        let started = Instant::now();
        assert_eq!(human.get("/").status, 200);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        for (head, drip) in heads.iter().zip(drips) {
            let took = drip.join().expect("it ended");
            assert!(took < SLOWEST, "{head:?} went on");
        }
    });
}

/// The most memory that the executor ever had, in bytes.
fn peak(world: &World) -> u64 {
    let pid = world.executor().expect("it runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a number");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// T31: what is refused for its size was never held.
#[test]
fn what_is_too_large_takes_no_memory() {
    const MOST: u64 = 20 << 20;
    const SENT: usize = 256;
    let world = world();
    let human = Human::of(&world);
    assert_eq!(human.get("/").status, 200);
    let before = peak(&world);
    let host = format!("Host: {}:{}\r\n", human.site.host, human.site.port);
    let own = format!("{host}Origin: {}\r\nContent-Type: application/json\r\n", human.site.origin());
    let keys = format!("Cookie: {}\r\nX-Page-Token: {}\r\n", human.cookie, human.token);
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "[".repeat(1 << 20));
    let header = format!("X-Header: {}\r\n", "x".repeat(1 << 20));
    for (head, part) in [
        (format!("POST /login HTTP/1.1\r\n{own}Transfer-Encoding: chunked\r\n\r\n"), &chunk),
        (format!("POST /try HTTP/1.1\r\n{own}{keys}Transfer-Encoding: chunked\r\n\r\n"), &chunk),
        (format!("POST /decide HTTP/1.1\r\n{own}{keys}Content-Length: 1073741824\r\n\r\n"), &chunk),
        (format!("GET / HTTP/1.1\r\n{host}"), &header),
        (format!("GET /{}", "x".repeat(1000)), &"y".repeat(1 << 20)),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", human.site.port)).expect("it listens");
        stream.set_write_timeout(Some(SLOWEST)).expect("set");
        stream.write_all(head.as_bytes()).expect("sent");
        let sent = (0..SENT).take_while(|_| stream.write_all(part.as_bytes()).is_ok()).count();
        assert!(sent < SENT, "{head:?}: all of it was taken");
    }
    let more = peak(&world).saturating_sub(before);
    assert!(more < MOST, "{} MiB more than before", more >> 20);
}

/// T20: a name leads to nothing but what has that name.
#[test]
fn a_name_is_no_path() {
    const CANARY: &str = "canary-41c7";
    let world = world();
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "x"}));
    for folder in [world.state(), world.executor_folder(), world.mailbox(), world.home(), world.folder()] {
        for name in ["canary", "canary.json", "canary.js", "canary.html"] {
            fs::write(folder.join(name), CANARY).expect("written");
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
    let is_nothing = |what: &str, answer: &Answer| {
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
            // Without a name, or with dots that lead to a view, it is another view's address.
            let path = format!("/{view}/{name}");
            if !matches!(name.as_str(), "" | "." | "..") {
                is_nothing(&path, &human.get(&path));
            }
        }
        for (path, body) in [
            ("/try", json!({"tool": name, "input": {}})),
            ("/cancel", json!({"id": name})),
            ("/resolve", json!({"id": name, "happened": true})),
            ("/grants/revoke", json!({"id": name})),
            ("/decide", json!({"decisions": [{"id": name, "digest": digest}], "verdict": "approve"})),
            ("/answer", json!({"id": name, "digest": digest, "action": "decline"})),
            ("/login", json!({"token": name})),
        ] {
            let answer = human.post(path, &body);
            if path == "/login" {
                assert_eq!(answer.status, 403, "{path} {name:?}: {}", answer.body);
            } else {
                is_nothing(&format!("{path} {name:?}"), &answer);
            }
        }
        // No program can be given an empty character.
        if !name.contains('\0') && !name.is_empty() {
            for words in [["run", "--", name], ["cancel", "--", name], ["inspect", "--", name]] {
                let ran = world.run(&words);
                assert!(matches!(ran.exit, 2 | 3), "{words:?}: {ran}");
            }
            let mut command = world.command(&["run", "mark", "name=y"]);
            let ran = world.ran(&command.env("AGENT_MAGIC_TOOL_SESSION", name).output().expect("it runs"));
            assert_eq!(ran.exit, 0, "{ran}");
            assert_eq!(world.run(&["cancel", ran.json()["id"].as_str().expect("an id")]).exit, 0);
        }
    }
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    for folder in [world.state(), world.executor_folder(), world.mailbox(), world.home(), world.folder()] {
        assert_eq!(fs::read_to_string(folder.join("canary")).ok().as_deref(), Some(CANARY), "{}", folder.display());
    }
}

/// What others than its owner may do with anything below `folder`.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    let mode = fs::symlink_metadata(folder).expect("it is there").mode();
    if mode & 0o077 != 0 && !fs::symlink_metadata(folder).expect("it is there").is_symlink() {
        found.push(format!("{} {:o}", folder.display(), mode & 0o777));
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            open_to_others(&entry.path(), found);
        } else {
            let mode = entry.metadata().expect("it is there").mode();
            if mode & 0o077 != 0 {
                found.push(format!("{} {:o}", entry.path().display(), mode & 0o777));
            }
        }
    }
}

/// T19: whatever the umask, the record, the log, the mailbox, links and sessions are their owner's alone.
#[test]
fn nothing_that_is_left_on_the_disk_is_open_to_others() {
    let world = world();
    world.configure("[executor]\ninline_bytes = 10\n");
    let script = format!("umask 000; exec '{PROGRAM}' executor start");
    let started = world.ran(&world.within("sh", &["-c", &script]).output().expect("a shell"));
    assert_eq!(started.exit, 0, "{started}");
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "x"}));
    world.start("mark", &json!({"name": "waits"}));
    let yes = json!({"decisions": [bound(&human, &id)], "verdict": "approve"});
    assert_eq!(human.post("/decide", &yes).status, 200);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    let large = world.run(&["run", "files_list", "path=/etc", "--wait"]);
    assert!(large.exit == 0 || large.exit == 1, "{large}");
    assert_eq!(world.run(&["list", "--query=mark"]).exit, 0);
    make_link(&world.executor_folder()).expect("made");
    let mut found = Vec::new();
    for folder in [world.state(), world.mailbox(), world.home().join(".cache/agent-magic-tool")] {
        open_to_others(&folder, &mut found);
    }
    assert_eq!(found, [] as [String; 0]);
}

/// T12: what was read when it was asked for is what runs, whatever becomes of the files, links and variables
/// that it came from.
#[test]
fn what_an_agent_changes_after_it_asked_changes_nothing() {
    let world = world();
    let (shown, other) = (world.folder().join("shown"), world.folder().join("other"));
    for folder in [&shown, &other] {
        fs::create_dir(folder).expect("made");
    }
    let (here, input) = (world.folder().join("here"), world.folder().join("input.json"));
    symlink(&shown, &here).expect("linked");
    fs::write(&input, json!({"name": "shown"}).to_string()).expect("written");
    let human = Human::of(&world);
    let mut run = world.command(&["run", "mark", "--input", "@../input.json"]);
    let ran = world.ran(&run.current_dir(&here).env("WORD", "agent's").output().expect("it runs"));
    assert_eq!(ran.exit, 0, "{ran}");
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    let decision = bound(&human, &id);

    fs::write(&input, json!({"name": "swapped"}).to_string()).expect("written");
    fs::remove_file(&here).expect("removed");
    symlink(&other, &here).expect("linked");
    // The agent's own copy of what it asked for, too.
    let mut copy: Value = world.result_file(&id);
    copy["input"]["name"] = "swapped".into();
    fs::write(world.mailbox().join(format!("results/result-{id}.json")), copy.to_string()).expect("written");
    assert_eq!(human.post("/decide", &json!({"decisions": [decision], "verdict": "approve"})).status, 200);
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["input"]), (&json!("succeeded"), &json!({"name": "shown"})), "{ended}");
    assert_eq!(fs::read_to_string(shown.join("marks")).ok().as_deref(), Some("shown \n"));
    assert!(!other.join("marks").exists());
}
