//! What is shown is what runs: programs, their interpreters and their scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::human::Human;
use crate::world::World;

/// How often each of the races is run.
const RACES: usize = 30;

fn write_program(path: &Path, text: &[u8]) {
    fs::write(path, text).expect("the program is written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode is set");
}

/// Replaces a file by one of two others all the time, until it is dropped.
pub(super) struct Swapper {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Swap {
    /// Another file gets the name.
    Rename,
    /// The file itself is written.
    InPlace,
}

impl Swapper {
    pub(super) fn start(target: PathBuf, contents: [Vec<u8>; 2], swap: Swap) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let other = target.with_extension("other");
            for content in contents.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                match swap {
                    Swap::Rename => {
                        write_program(&other, content);
                        fs::rename(&other, &target).expect("renamed");
                    }
                    // Fails while the file is executed.
                    Swap::InPlace => drop(fs::write(&target, content)),
                }
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is joined once").join().expect("it does not panic");
    }
}

/// The start of the hash that a card shows for `path`.
pub(super) fn shown_hash(human: &Human, id: &str, path: &Path) -> String {
    let card = human.get(&format!("/card/{id}")).body;
    let files = card.split_once("data-runs").or_else(|| card.split_once("data-reads")).map_or("", |(_, files)| files);
    let escaped = path.display().to_string().replace('/', "&#x2f;");
    let file = files.split_once(&escaped).map_or("", |(_, rest)| rest);
    let before = file.split('…').next().unwrap_or_default();
    before.rsplit('>').next().filter(|hash| hash.len() == 12).unwrap_or_else(|| panic!("no hash: {card}")).to_owned()
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    protocol::digest::hex(&sha2::Sha256::digest(bytes))[..12].to_owned()
}

/// Has a human approve [`RACES`] calls of a program that is replaced all the time. Each prints which one it is.
fn race(argv: &[&Path], swapped: &Path, contents: [Vec<u8>; 2], prints: [&str; 2], swap: Swap) {
    let world = World::new();
    world.configure("[confirm]\nasks_per_hour = 0\n");
    write_program(swapped, &contents[0]);
    world.define(
        "work.json",
        &json!({"work": {"description": "Works.", "input": {}, "run": {"process": {"argv": argv}}}}),
    );
    let human = Human::of(&world);
    let hashes = [sha256(&contents[0]), sha256(&contents[1])];
    let (mut ran, mut drifted) = (0, 0);
    let writer = Swapper::start(swapped.to_owned(), contents, swap);
    for _ in 0..RACES {
        // A moment in which the file is empty or written, is no program: it is refused before a human is asked.
        let started = world.run(&["run", "work"]);
        if started.exit != 0 {
            continue;
        }
        let id = started.json()["id"].as_str().expect("an id").to_owned();
        let shown = shown_hash(&human, &id, swapped);
        let answer = human.approve(&id);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let ended = world.end_of(&id);
        if ended["status"] == "succeeded" {
            ran += 1;
            match hashes.iter().position(|hash| *hash == shown) {
                Some(which) => assert_eq!(ended["data"], prints[which], "shown was another one: {ended}"),
                // A file that was half written when it was shown and when it ran.
                None => assert!(prints.iter().all(|print| ended["data"] != *print), "shown was none of them: {ended}"),
            }
        } else {
            assert!(["drifted", "cannot-start"].contains(&ended["error"]["code"].as_str().expect("a code")), "{ended}");
            drifted += 1;
        }
    }
    drop(writer);
    assert!(ran + drifted > 0, "no human was ever asked");
    // In peace it runs.
    write_program(swapped, format!("#!/bin/sh\necho calm {ran}\n").as_bytes());
    let id = world.start("work", &json!({}));
    assert_eq!(human.approve(&id).status, 200);
    let ended = world.end_of(&id);
    assert_eq!(ended["data"], format!("calm {ran}"), "{ended}");
}

/// Longer than what an interpreter reads at once, so that it is read while it runs.
fn script(line: &str, says: &str) -> Vec<u8> {
    let padding = "# nothing\n".repeat(3_000);
    format!("{line}{padding}echo {says}\n").into_bytes()
}

#[test]
fn a_script_that_is_replaced_all_the_time_never_runs_unseen() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = folder.path().join("tool");
    for swap in [Swap::Rename, Swap::InPlace] {
        let line = "#!/bin/sh\n";
        race(&[&tool], &tool, [script(line, "one"), script(line, "two")], ["one", "two"], swap);
    }
}

#[test]
fn a_script_of_an_interpreter_that_is_replaced_all_the_time_never_runs_unseen() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = folder.path().join("tool.sh");
    for swap in [Swap::Rename, Swap::InPlace] {
        race(&[Path::new("sh"), &tool], &tool, [script("", "one"), script("", "two")], ["one", "two"], swap);
    }
}

#[test]
fn an_interpreter_that_is_replaced_all_the_time_never_runs_unseen() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tool, interpreter) = (folder.path().join("tool"), folder.path().join("interpreter"));
    write_program(&tool, format!("#!{}\n", interpreter.display()).as_bytes());
    let contents = [script("#!/bin/sh\n", "one"), script("#!/bin/sh\n", "two")];
    race(&[&tool], &interpreter, contents, ["one", "two"], Swap::Rename);
}

#[test]
fn a_binary_that_is_replaced_all_the_time_never_runs_unseen() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = folder.path().join("tool");
    let (echo, basename) = ("/usr/bin/echo", "/usr/bin/basename");
    let Some(contents) = fs::read(echo).ok().zip(fs::read(basename).ok()).filter(|(one, two)| one != two) else {
        crate::skip::skip("/usr/bin/echo and /usr/bin/basename as two files");
        return;
    };
    for swap in [Swap::Rename, Swap::InPlace] {
        let contents = [contents.0.clone(), contents.1.clone()];
        race(&[&tool, Path::new("/a/b")], &tool, contents, ["/a/b", "b"], swap);
    }
}

/// A program in a folder of the world, which is looked for there.
fn searched_folder(world: &World) -> PathBuf {
    let folder = world.home().join("programs");
    fs::create_dir_all(&folder).expect("the folder is created");
    world.configure(
        "[programs]\npath = [\"~/programs\", \"/usr/bin\", \"/bin\"]\n[secrets.word]\ncommand = [\"tell-word\"]\n",
    );
    folder
}

#[test]
fn programs_are_found_in_the_configured_folders_whatever_the_path_of_the_executor() {
    let world = World::new();
    let searched = searched_folder(&world);
    let planted = world.folder().join("planted");
    fs::create_dir_all(&planted).expect("the folder is created");
    for name in ["own-tool", "tell-word", "env", "ls"] {
        write_program(&planted.join(name), b"#!/bin/sh\necho planted\n");
    }
    write_program(&searched.join("own-tool"), b"#!/usr/bin/env sh\necho \"configured $PATH\"; type ls\n");
    let tool = |argv: &[&str]| json!({"description": "Runs.", "input": {}, "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": argv}}});
    write_program(&searched.join("tell-word"), b"#!/bin/sh\necho configured-word\n");
    let mut with_secret = tool(&["sh", "-c", "test \"$WORD\" = configured-word && echo right"]);
    with_secret["run"]["process"]["env"] = json!({"WORD": "secret:word"});
    world.define(
        "tools.json",
        &json!({"own_tool": tool(&["own-tool"]), "gone": tool(&["no-such-tool"]), "with_secret": with_secret}),
    );
    let mut start = world.command(&["executor", "start"]);
    start.env("PATH", format!("{}:/usr/bin:/bin", planted.display()));
    assert_eq!(world.transcript(&start.output().expect("the program starts")).exit, 0);
    let ended = world.result_of("own_tool", &json!({}));
    let path = format!("{}:/usr/bin:/bin", searched.display());
    let data = ended["data"].as_str().unwrap_or_else(|| panic!("{ended}"));
    assert!(data.starts_with(&format!("configured {path}\n")) && !data.contains("planted"), "{data}");
    // Also the program that prints a secret.
    let ended = world.result_of("with_secret", &json!({}));
    assert_eq!(ended["data"], "right", "{ended}");

    let doctor = world.run(&["doctor"]).json();
    let checks = doctor["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "program_files").expect("the check");
    let found = check["found"].as_array().expect("the programs");
    assert!(found.contains(&json!(format!("`own-tool`: {}", searched.join("own-tool").display()))), "{check}");
    assert!(found.contains(&json!("`no-such-tool`: missing")), "{check}");
    let linted = world.run(&["lint", "--format=lines"]);
    let missing = linted.stdout.lines().filter(|line| line.contains("no program named")).collect::<Vec<_>>();
    assert!(missing.len() == 1 && missing[0].contains("no-such-tool"), "{linted}");
}

/// The scripts know their true place by a variable, and Python finds the modules beside its script.
#[test]
fn a_held_script_still_finds_its_neighbors() {
    let world = World::new();
    world.configure("");
    let folder = world.home().join("tools");
    fs::create_dir_all(&folder).expect("the folder is created");
    fs::write(folder.join("helper.py"), "def word():\n    return 'helped'\n").expect("written");
    write_program(
        &folder.join("tool.py"),
        b"#!/usr/bin/env python3\nimport helper, sys\nprint(helper.word(), sys.argv[1:])\n",
    );
    fs::write(folder.join("part.sh"), "echo included\n").expect("written");
    write_program(
        &folder.join("tool.sh"),
        b"#!/bin/sh\n. \"$(dirname \"$AGENT_MAGIC_TOOL_SCRIPT\")/part.sh\"\necho \"$1\"\n",
    );
    let by_node = Path::new("/usr/bin/node").exists();
    fs::write(folder.join("tool.js"), "console.log('node', process.argv.slice(2))\n").expect("written");
    let tool = |argv: Value| json!({"description": "Runs.", "input": {}, "run": {"process": {"argv": argv}}});
    let at = |name: &str| folder.join(name).display().to_string();
    world.define(
        "tools.json",
        &json!({
            "by_line": tool(json!([at("tool.py"), "a b"])),
            "by_name": tool(json!(["python3", "-B", at("tool.py"), "a b"])),
            "shell": tool(json!([at("tool.sh"), "a b"])),
            "node": tool(json!(["node", at("tool.js"), "a b"]))
        }),
    );
    let human = Human::of(&world);
    let mut expected = vec![
        ("by_line", "helped ['a b']"),
        ("by_name", "helped ['a b']"),
        ("shell", "included\na b"),
        ("node", "node [ 'a b' ]"),
    ];
    if !by_node {
        expected.pop();
    }
    for (tool, data) in expected {
        let id = world.start(tool, &json!({}));
        assert_eq!(human.approve(&id).status, 200);
        let ended = world.end_of(&id);
        assert_eq!(ended["data"], data, "{tool}: {ended}");
    }
}

#[test]
fn a_file_or_folder_that_a_definition_covers_is_part_of_the_approval() {
    let world = World::new();
    let part = world.folder().join("lib/part.sh");
    fs::create_dir_all(world.folder().join("lib")).expect("made");
    let define = |covers: Value| {
        world.define(
            "work.json",
            &json!({"work": {"description": "Works.", "input": {},
                "run": {"process": {"argv": ["sh", "-c", ". ./lib/part.sh"], "covers": covers, "folder": "."}}}}),
        );
    };
    let human = Human::of(&world);
    for (covers, expected) in [(json!(["lib/part.sh"]), "failed"), (json!(["lib"]), "failed"), (json!([]), "succeeded")]
    {
        fs::write(&part, "echo shown\n").expect("written");
        define(covers);
        let id = world.start("work", &json!({}));
        fs::write(&part, "echo replaced\n").expect("written");
        assert_eq!(human.approve(&id).status, 200);
        let ended = world.end_of(&id);
        assert_eq!(ended["status"], expected, "{ended}");
    }
}

/// A script is bound wherever a definition names it: as the value of an option, glued to its letter, or in a variable.
#[test]
fn a_script_that_an_option_or_a_variable_names_is_part_of_the_approval() {
    let world = World::new();
    let folder = world.folder();
    let [script, rules] = ["part.sh", "rules"].map(|name| folder.join(name));
    let named = |option: &str, path: &Path| format!("{option}{}", path.display());
    let cases = [
        json!({"argv": ["echo", named("--require=", &script)]}),
        json!({"argv": ["echo", named("-r", &script)]}),
        json!({"argv": ["sed", named("-nf", &rules), "/dev/null"]}),
        json!({"argv": ["sed", "-n", named("--file=", &rules), "/dev/null"]}),
        json!({"argv": ["sed", "-nf", rules, "/dev/null"]}),
        json!({"argv": ["bash", "-c", "true"], "env": {"BASH_ENV": script}}),
        json!({"argv": ["true"], "env": {"NODE_OPTIONS": named("--no-warnings --require=", &script)}}),
        json!({"argv": ["true"], "env": {"BASH_ENV": "{{ x }}"}}),
    ];
    let human = Human::of(&world);
    for (number, run) in cases.into_iter().enumerate() {
        let (name, what) = (format!("work_{number}"), run.to_string());
        let input = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        let definition = json!({"description": "Works.", "input": input, "run": {"process": run}});
        world.define("work.json", &json!({name.clone(): definition}));
        for (text, status) in [("p", "succeeded"), ("d", "failed")] {
            let write = |text: &str| {
                for file in [&script, &rules] {
                    fs::write(file, text).expect("written");
                }
            };
            write("p");
            let id = world.start(&name, &json!({"x": script}));
            write(text);
            assert_eq!(human.approve(&id).status, 200, "{what}");
            let ended = world.end_of(&id);
            assert_eq!(ended["status"], status, "{what} {text}: {ended}");
        }
    }
}

/// A name of a folder that leads elsewhere than it did is not the folder that was shown.
#[test]
fn a_program_starts_only_in_the_folder_that_was_shown() {
    let world = World::new();
    let folder = world.folder();
    let [work, link, other] = ["a", "link", "other"].map(|name| folder.join(name));
    fs::create_dir(&other).expect("made");
    let run = |folder: Option<&Path>| {
        let folder = folder.map_or_else(|| json!("."), |folder| json!(folder));
        json!({"process": {"argv": ["touch", "here"], "folder": folder}})
    };
    let define = |run: Value| {
        world.define("work.json", &json!({"work": {"description": "Works.", "input": {}, "run": run}}));
    };
    let start = || {
        let mut command = world.command(&["run", "work"]);
        let ran = world.transcript(&command.current_dir(&work).output().expect("the program starts"));
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let human = Human::of(&world);
    for (what, own, is_swapped) in [
        ("the caller's folder", None, false),
        ("the caller's folder, then a link", None, true),
        ("a folder of the definition", Some(work.as_path()), false),
        ("a folder of the definition, then a link", Some(work.as_path()), true),
        ("a link", Some(link.as_path()), false),
        ("a link that leads elsewhere then", Some(link.as_path()), true),
    ] {
        fs::remove_dir_all(&work).or_else(|_| fs::remove_file(&work)).ok();
        fs::remove_file(&link).ok();
        fs::create_dir(&work).expect("made");
        std::os::unix::fs::symlink(&work, &link).expect("linked");
        define(run(own));
        let id = start();
        if is_swapped {
            fs::remove_dir_all(&work).expect("removed");
            std::os::unix::fs::symlink(&other, &work).expect("linked");
        }
        assert_eq!(human.approve(&id).status, 200, "{what}");
        let ended = world.end_of(&id);
        assert_eq!(ended["status"], if is_swapped { "failed" } else { "succeeded" }, "{what}: {ended}");
        assert!(!other.join("here").exists(), "{what}");
    }
}

#[test]
fn a_remembered_approval_ends_when_the_program_changes() {
    let world = World::new();
    let tool = world.folder().join("tool");
    write_program(&tool, b"#!/bin/sh\necho one\n");
    world.define(
        "work.json",
        &json!({"work": {"description": "Works.", "input": {}, "run": {"process": {"argv": [tool]}}}}),
    );
    let human = Human::of(&world);
    let id = world.start("work", &json!({}));
    let mut grant = human.pending_task(&id);
    grant["fields"] = json!([]);
    grant["expires_in"] = "1h".into();
    assert_eq!(human.post("/grants", &grant).status, 200);
    assert_eq!(world.end_of(&id)["data"], "one");
    assert_eq!(world.result_of("work", &json!({}))["data"], "one", "the same program runs unasked");
    write_program(&tool, b"#!/bin/sh\necho two\n");
    let id = world.start("work", &json!({}));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation", "another program is asked about");
}

/// What is known to fail is refused with its reason, and no human is asked.
#[test]
fn a_call_that_is_known_to_fail_is_not_offered_for_a_yes() {
    let world = World::new();
    world.run_with(&["secret", "set", "google"], "ya29.Kq2-mPz71Lw-tR5v");
    let unreadable = world.folder().join("no-interpreter");
    write_program(&unreadable, b"#!/no/such/interpreter\n");
    let process = |run: Value| json!({"description": "Runs.", "input": {}, "run": {"process": run}});
    let field = json!({"type": "object", "properties": {"to": {"type": "string"}}});
    let http = |run: Value| json!({"description": "Sends.", "input": field, "run": {"http": run}});
    world.define(
        "tools.json",
        &json!({
            "missing": process(json!({"argv": ["no-such-program"]})),
            "no_interpreter": process(json!({"argv": [unreadable]})),
            "no_folder": process(json!({"argv": ["true"], "folder": "not/here"})),
            "no_cover": process(json!({"argv": ["true"], "covers": ["absent.sh"]})),
            "private": http(json!({"method": "POST", "base_url": "{{ to }}"})),
            "upload": http(json!({"method": "POST", "base_url": "https://api.example.com", "body": {"file": {"path": "{{ to }}"}}})),
            "fine": process(json!({"argv": ["true"]}))
        }),
    );
    let human = Human::of(&world);
    let mail = |to: &str| json!({"to": [to], "subject": "s", "body": "b"});
    for (tool, input, code, says) in [
        ("missing", json!({}), "cannot-start", "no program named `no-such-program`"),
        ("no_interpreter", json!({}), "cannot-start", "/no/such/interpreter"),
        ("no_folder", json!({}), "not-found", "does not exist"),
        ("no_cover", json!({}), "cannot-start", "absent.sh"),
        ("private", json!({"to": "http://192.168.1.1/x"}), "forbidden-address", "192.168.1.1"),
        ("private", json!({"to": "no address"}), "rejected", "not a valid URL"),
        ("upload", json!({"to": "absent.txt"}), "not-found", "absent.txt"),
        ("gmail_send_message", mail("bob@@example.com"), "template-failed", "bob@@example.com"),
    ] {
        let ran = world.run(&["run", tool, "--input", &input.to_string()]);
        assert_ne!(ran.exit, 0, "{tool}: {ran}");
        let error = ran.error();
        assert_eq!(error["code"], code, "{tool}: {ran}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(says), "{tool}: {message}");
    }
    let waiting = human.get("/").body.matches("data-card=").count();
    assert_eq!(waiting, 0, "no human is asked");
    for (tool, input) in [("fine", json!({})), ("gmail_send_message", mail("bob@example.com"))] {
        let id = world.start(tool, &input);
        assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation", "{tool}");
    }
    // The human cannot edit it into one either.
    let id = world.start("private", &json!({"to": "https://example.com/x"}));
    let mut edit = human.pending_task(&id);
    edit["input"] = json!({"to": "http://127.0.0.1/x"});
    let answer = human.post("/edit", &edit);
    assert!(answer.status == 422 && answer.body.contains("127.0.0.1"), "{}", answer.body);
}

/// Whose the program is, and who could change it.
#[test]
fn a_card_shows_each_file_with_its_owner_its_hash_and_who_could_change_it() {
    let world = World::new();
    let tool = world.folder().join("tool.sh");
    write_program(&tool, b"echo hello\n");
    world.define(
        "work.json",
        &json!({"work": {"description": "Works.", "input": {"type": "object"}, "run": {"process": {"argv": ["sh", tool]}}}}),
    );
    let human = Human::of(&world);
    let card = |id: &str| human.get(&format!("/card/{id}")).body.replace("&#x2f;", "/");
    let id = world.start("work", &json!({}));
    let shown = card(&id);
    let hash = sha256(b"echo hello\n");
    assert!(shown.contains(&tool.display().to_string()) && shown.contains(&hash), "{shown}");
    assert!(shown.contains("the agent could change it") && !shown.contains("other users of this machine"), "{shown}");
    assert!(
        shown.contains("touches <code class=\"target\">program /usr/bin/sh") || shown.contains("program /bin/sh"),
        "{shown}"
    );
    assert!(shown.contains("is not covered"), "{shown}");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o777)).expect("its mode is set");
    let open = card(&world.start("work", &json!({"n": 2})));
    assert!(open.contains("other users of this machine could change it"), "{open}");
}
