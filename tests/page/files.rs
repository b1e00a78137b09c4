//! What is shown is what is read: the files that an input names, for every way of performing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::human::Human;
use crate::executor::mcp::crooked_server;
use crate::world::World;

const SHOWN: &str = "shown 12345\n";
const SECRET: &str = "stolen 1234\n";

/// A server that keeps every request, with its body.
struct Receiver {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let received = Arc::clone(&requests);
        // The thread ends with the test program.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
                let is_whole = |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes);
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                    let lines = head.lines().map(str::to_ascii_lowercase);
                    let mut lengths =
                        lines.filter_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
                    body.len() >= lengths.next().unwrap_or(0_usize)
                };
                while !is_whole(&bytes) {
                    match stream.read(&mut part) {
                        Ok(count @ 1..) => bytes.extend_from_slice(&part[..count]),
                        _ => break,
                    }
                }
                received.lock().expect("no panic").push(String::from_utf8_lossy(&bytes).into_owned());
                let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nconnection: close\r\n\r\nsent";
                drop(stream.write_all(answer));
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// Every way in which an input names a file that is read. Each is the subtool of its name.
const KINDS: [&str; 8] = ["multipart", "body", "declared", "prefixed", "argument", "option", "mcp", "builtin"];

struct Scene {
    world: World,
    receiver: Receiver,
    human: Human,
}

impl Scene {
    fn new() -> Self {
        let world = World::new();
        world.configure("[confirm]\nasks_per_hour = 0\n");
        let receiver = Receiver::start();
        let read = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let tool = |run: Value| json!({"description": "Reads it.", "input": read, "confirm": "always", "run": run});
        let http = |body: Value| tool(json!({"http": {"method": "POST", "base_url": receiver.url, "body": body}}));
        let process = |argv: Value| tool(json!({"process": {"argv": argv}}));
        let server = json!({"name": "crooked", "command": ["python3", crooked_server()]});
        world.define(
            "read.json",
            &json!({
                "multipart": http(json!({"multipart": {"note": "a note", "file": {"file": "{{ path }}"}}})),
                "body": http(json!({"file": {"path": "{{ path }}"}})),
                "declared": process(json!(["cat", {"input_file": "{{ path }}"}])),
                "prefixed": process(json!(["sh", "-c", "cat \"${1#@}\"", "sh", {"input_file": "{{ path }}", "prefix": "@"}])),
                "argument": process(json!(["cat", "--", "{{ path }}"])),
                "option": process(json!(["sh", "-c", "cat \"${1#--file=}\"", "sh", "--file={{ path }}"])),
                "mcp": tool(json!({"mcp": {"server": server, "tool": "show_file", "files": ["path"]}})),
                "builtin": tool(json!({"builtin": {"read_file": {"path": "{{ path }}"}}}))
            }),
        );
        let human = Human::of(&world);
        Self { world, receiver, human }
    }

    fn file(&self) -> PathBuf {
        self.world.folder().join("report.txt")
    }

    /// Writes the file anew, whatever was made of it.
    fn write_shown(&self) {
        fs::remove_file(self.file()).ok();
        fs::write(self.file(), SHOWN).expect("written");
    }

    fn ask(&self, kind: &str) -> String {
        self.world.start(kind, &json!({"path": "report.txt"}))
    }

    /// Everything that came out of a run: its result, and what the server received.
    fn outcome(&self, id: &str) -> (Value, String) {
        let ended = self.world.end_of(id);
        let all = format!("{ended} {}", self.receiver.requests().join("\n"));
        (ended, all)
    }
}

/// Does something to a file; the second path is of a file that must not be read.
type Swap = fn(&Path, &Path);

/// What can be done to a file behind the back of the human.
const SWAPS: [(&str, Swap); 8] = [
    ("other bytes of the same size", |file, _| fs::write(file, SECRET).expect("written")),
    ("truncated", |file, _| {
        fs::OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(3)).expect("cut");
    }),
    ("longer", |file, _| fs::write(file, format!("{SHOWN}{SECRET}")).expect("written")),
    ("another file of this name", |file, _| {
        let other = file.with_extension("other");
        fs::write(&other, SECRET).expect("written");
        fs::rename(other, file).expect("renamed");
    }),
    ("a symbolic link to a file outside", |file, outside| {
        fs::remove_file(file).expect("removed");
        symlink(outside, file).expect("linked");
    }),
    ("a symbolic link to a file beside it", |file, _| {
        let other = file.with_extension("other");
        fs::write(&other, SECRET).expect("written");
        fs::remove_file(file).expect("removed");
        symlink(other.file_name().expect("a name"), file).expect("linked");
    }),
    ("a hard link to another file", |file, outside| {
        fs::remove_file(file).expect("removed");
        fs::hard_link(outside, file).expect("linked");
    }),
    ("gone", |file, _| fs::remove_file(file).expect("removed")),
];

#[test]
fn a_file_that_is_swapped_after_it_was_shown_is_never_read() {
    let scene = Scene::new();
    let outside = scene.world.home().join("outside.txt");
    fs::write(&outside, SECRET).expect("written");
    for kind in KINDS {
        for (how, swap) in SWAPS {
            scene.write_shown();
            let id = scene.ask(kind);
            let before = scene.receiver.requests().len();
            swap(&scene.file(), &outside);
            let answer = scene.human.approve(&id);
            assert_eq!(answer.status, 200, "{kind}, {how}: {}", answer.body);
            let (ended, all) = scene.outcome(&id);
            assert_eq!(ended["error"]["code"], "drifted", "{kind}, {how}: {ended}");
            assert!(!all.contains(SECRET.trim()), "{kind}, {how}: {all}");
            assert_eq!(scene.receiver.requests().len(), before, "{kind}, {how}: something was sent");
        }
        // In peace it is read.
        scene.write_shown();
        let id = scene.ask(kind);
        assert_eq!(scene.human.approve(&id).status, 200);
        let (ended, all) = scene.outcome(&id);
        assert_eq!(ended["status"], "succeeded", "{kind}: {ended}");
        assert!(all.contains(SHOWN.trim()), "{kind}: {all}");
    }
}

/// The file changes all the time, so also between the comparison and the use.
#[test]
fn a_file_that_changes_all_the_time_is_read_only_as_it_was_shown() {
    const RACES: usize = 12;
    let scene = Scene::new();
    // Longer than what is read at once.
    let contents = ["one", "two"].map(|word| format!("{word}\n").repeat(60_000));
    for kind in ["multipart", "body", "declared", "mcp"] {
        scene.write_shown();
        let writer = super::programs::Swapper::start(
            scene.file(),
            contents.clone().map(String::into_bytes),
            super::programs::Swap::Rename,
        );
        for _ in 0..RACES {
            let started = scene.world.run(&["run", kind, "--input", r#"{"path": "report.txt"}"#]);
            // In a moment in which the file has no name.
            if started.exit != 0 {
                continue;
            }
            let id = started.json()["id"].as_str().expect("an id").to_owned();
            if !scene.human.card(&id).contains("data-reads") {
                // Nothing is shown of a file that could not be read, and then it is not used.
                assert_eq!(scene.human.approve(&id).status, 200);
                assert_eq!(scene.world.end_of(&id)["error"]["code"], "drifted", "{kind}");
                continue;
            }
            let shown = super::programs::shown_hash(&scene.human, &id, &scene.file());
            let before = scene.receiver.requests().len();
            assert_eq!(scene.human.approve(&id).status, 200);
            let ended = scene.world.end_of(&id);
            if ended["status"] != "succeeded" {
                assert_eq!(ended["error"]["code"], "drifted", "{kind}: {ended}");
                assert_eq!(scene.receiver.requests().len(), before, "{kind}: something was sent");
                continue;
            }
            let sent = scene.receiver.requests().get(before).cloned().unwrap_or_else(|| {
                // What is large lies in a file of its own.
                let path = ended["_meta"]["data_file"].as_str().unwrap_or_else(|| panic!("no data: {ended}"));
                fs::read_to_string(path).expect("the data")
            });
            let word = ["one", "two"][usize::from(shown != super::programs::sha256(contents[0].as_bytes()))];
            let other = if word == "one" { "two" } else { "one" };
            assert!(sent.contains(word) && !sent.contains(other), "{kind}: {word} was shown");
        }
        drop(writer);
    }
}

#[test]
fn a_card_shows_size_and_hash_of_each_file_and_an_edit_binds_the_edited_one() {
    let scene = Scene::new();
    scene.write_shown();
    let edited = scene.world.folder().join("edited.txt");
    for kind in KINDS {
        fs::write(&edited, "edited text\n").expect("written");
        let id = scene.ask(kind);
        let card = scene.human.card(&id);
        let files = card.split_once("data-reads").map_or("", |(_, files)| files);
        let hash = super::programs::sha256(SHOWN.as_bytes());
        assert!(files.contains("12 bytes") && files.contains(&hash), "{kind}: {card}");
        let mut edit = scene.human.pending_task(&id);
        edit["input"] = json!({"path": "edited.txt"});
        let checked = scene.human.post("/edit", &edit);
        assert_eq!(checked.status, 200, "{kind}: {}", checked.body);
        let answer: Value = serde_json::from_str(checked.body.trim()).expect("JSON");
        let hash = super::programs::sha256(b"edited text\n");
        assert!(answer["changes"].to_string().contains(&hash), "{kind}: {answer}");
        // What was shown of the edit is bound as well: first it changes before the approval, then after it.
        edit["edited_digest"] = answer["digest"].clone();
        fs::write(&edited, SECRET).expect("written");
        let stale = scene.human.post("/decide-edit", &edit);
        assert_eq!(stale.status, 409, "{kind}: {}", stale.body);
        fs::write(&edited, "edited text\n").expect("written");
        let decided = scene.human.post("/decide-edit", &edit);
        assert_eq!(decided.status, 200, "{kind}: {}", decided.body);
        let (ended, all) = scene.outcome(&id);
        assert_eq!(ended["status"], "succeeded", "{kind}: {ended}");
        assert!(all.contains("edited text") && !all.contains(SECRET.trim()), "{kind}: {all}");
    }
}

#[test]
fn a_remembered_approval_covers_a_changed_file_only_if_it_says_so() {
    let scene = Scene::new();
    for kind in KINDS {
        scene.write_shown();
        let id = scene.ask(kind);
        let mut grant = scene.human.pending_task(&id);
        grant["fields"] = json!([]);
        grant["expires_in"] = "1h".into();
        let card = scene.human.card(&id);
        assert!(
            card.contains("with the content of now") && card.contains("whatever the files contain"),
            "{kind}: {card}"
        );
        assert_eq!(scene.human.post("/grants", &grant).status, 200);
        assert_eq!(scene.world.end_of(&id)["status"], "succeeded", "{kind}");
        assert_eq!(scene.world.end_of(&scene.ask(kind))["status"], "succeeded", "{kind}: the same bytes, unasked");
        fs::write(scene.file(), SECRET).expect("written");
        let id = scene.ask(kind);
        assert_eq!(scene.world.result_file(&id)["state"], "awaiting_confirmation", "{kind}: other bytes");
        let mut wide = scene.human.pending_task(&id);
        wide["fields"] = json!([{"pointer": "/path", "how": "any"}]);
        wide["expires_in"] = "1h".into();
        wide["typed"] = kind.into();
        let answer = scene.human.post("/grants", &wide);
        assert_eq!(answer.status, 200, "{kind}: {}", answer.body);
        assert_eq!(scene.world.end_of(&id)["status"], "succeeded", "{kind}");
        scene.write_shown();
        fs::write(scene.file(), "any other text\n").expect("written");
        assert_eq!(scene.world.end_of(&scene.ask(kind))["status"], "succeeded", "{kind}: it said so");
    }
}

/// What is declared to be a file lies in the folders that may be read, asked about or not.
#[test]
fn a_declared_file_outside_the_roots_is_refused() {
    let scene = Scene::new();
    let outside = scene.world.home().join("outside.txt");
    fs::write(&outside, SECRET).expect("written");
    symlink(&outside, scene.world.folder().join("link.txt")).expect("linked");
    let reads = fs::read_to_string(scene.world.subtools().join("read.json")).expect("the definitions");
    let unasked = reads.replace(r#""confirm":"always""#, r#""annotations":{"readOnlyHint":true}"#);
    for (definitions, is_asked) in [(reads, true), (unasked, false)] {
        scene.world.define("read.json", &serde_json::from_str(&definitions).expect("JSON"));
        for kind in ["multipart", "body", "declared", "prefixed", "mcp", "builtin"] {
            for path in [outside.display().to_string(), "../outside.txt".to_owned(), "link.txt".to_owned()] {
                let input = json!({"path": path}).to_string();
                let ran = scene.world.run(&["run", kind, "--wait", "--input", &input]);
                let text = format!("{}{}", ran.stdout, ran.stderr);
                assert!(ran.exit != 0 && text.contains("outside-roots"), "{kind}, asked {is_asked}, {path}: {ran}");
                assert!(!text.contains(SECRET.trim()), "{kind}, {path}: {ran}");
            }
        }
    }
    let sent = scene.receiver.requests();
    assert!(sent.is_empty(), "{sent:?}");
}
