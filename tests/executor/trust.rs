//! What could be somebody else's word is not taken: definitions and the configuration count only where
//! nobody but the user and root could have written them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::world::{PROGRAM, Transcript, World};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

fn echo(word: &str) -> Value {
    json!({"say": {"description": "Says a word.", "input": {"type": "object"},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", word]}}}})
}

/// A world with one subtool, `say`, in a file of its own.
fn world() -> World {
    let world = World::new();
    world.define("say.json", &echo("mine"));
    world
}

/// What stands in the way of a definition, as each of the commands that read them tells it.
fn left_out(world: &World) -> String {
    let refused = world.run(&["run", "say", "--wait"]);
    assert_eq!((refused.exit, &refused.error()["code"]), (3, &json!("unknown-subtool")), "{refused}");
    let listed = world.run(&["list", "--limit=1000", "--format=names"]);
    assert!(!listed.stdout.contains("\"say\"") && listed.stderr.contains("failed to load"), "{listed}");
    let doctor = world.run(&["doctor"]).json();
    let checks = doctor["checks"].as_array().expect("checks");
    let subtools = checks.iter().find(|check| check["name"] == "subtools").expect("they are checked").clone();
    assert_eq!(subtools["ok"], false, "{subtools}");
    subtools["found"][0].as_str().expect("a problem").to_owned()
}

fn is_taken(world: &World) {
    assert_eq!(world.result_of("say", &json!({}))["data"], "mine");
    let listed = world.run(&["list", "--limit=1000", "--format=names"]);
    assert!(listed.stdout.contains("\"say\"") && !listed.stderr.contains("failed to load"), "{listed}");
}

/// T26: an agent of another user may write to the file, or to a folder on the way to it.
#[test]
fn a_definition_that_others_could_have_written_is_left_out_until_they_cannot() {
    let world = world();
    let (file, folder) = (world.subtools().join("say.json"), world.subtools());
    is_taken(&world);
    for (path, open, closed) in [(&file, 0o666, 0o644), (&file, 0o622, 0o600), (&folder, 0o777, 0o755)] {
        // The executor runs all the while: a change of modes alone is seen by it, and by the listing.
        mode(path, open);
        let told = left_out(&world);
        let path_text = path.display().to_string();
        assert!(told.contains(&format!("others can write to `{path_text}`: chmod go-w {path_text}")), "{told}");
        mode(path, closed);
        is_taken(&world);
    }
}

#[test]
fn a_configuration_that_others_could_have_written_starts_nothing_and_says_what_to_do() {
    let world = world();
    world.configure("[confirm]\nwrites = \"allow\"\n");
    let file = world.config_folder().join("config.toml");
    let told = |ran: &Transcript, exit: i32, at: &Path| {
        let (error, at) = (ran.error(), at.display());
        assert_eq!(ran.exit, exit, "{ran}");
        assert!(
            error["message"].as_str().is_some_and(|told| told.contains(&format!("others can write to `{at}`"))),
            "{ran}"
        );
        assert_eq!(error["hint"], format!("chmod go-w {at}"), "{ran}");
    };
    // Its absence must be as sure as what it says: a rule that is taken away is as bad as one that is made.
    for (path, closed, is_there) in
        [(&file, 0o644, true), (&world.config_folder(), 0o755, false), (&world.home(), 0o700, false)]
    {
        let path = path.as_path();
        if !is_there {
            fs::remove_file(&file).ok();
        }
        mode(path, if path.is_dir() { 0o777 } else { 0o666 });
        for words in [&["list"][..], &["inspect"], &["lint"], &["executor", "run"]] {
            let ran = world.run(words);
            told(&ran, 2, path);
            assert_eq!(ran.error()["code"], "bad-config", "{ran}");
        }
        // Those that need an executor say why there is none.
        for words in [&["run", "say"][..], &["executor", "start"]] {
            let ran = world.run(words);
            told(&ran, 7, path);
            assert!(ran.error()["message"].as_str().is_some_and(|message| message.contains("failed to start")), "{ran}");
        }
        let doctor = world.run(&["doctor"]);
        let config = doctor.json()["checks"][0].clone();
        assert_eq!((&config["name"], &config["ok"]), (&json!("config"), &json!(false)), "{doctor}");
        assert!(config["hint"].as_str().is_some_and(|hint| hint.starts_with("chmod go-w ")), "{doctor}");
        assert!(world.executor().is_none());
        assert!(
            world.mailbox().join("inbox").read_dir().expect("a mailbox").next().is_none(),
            "nothing is left behind"
        );
        mode(path, closed);
        is_taken(&world);
        world.run(&["executor", "stop"]);
    }
}

#[test]
fn a_link_counts_as_what_it_leads_to_and_where_it_lies() {
    let world = world();
    let shared = world.folder().join("shared");
    fs::create_dir(&shared).expect("made");
    fs::rename(world.subtools().join("say.json"), shared.join("say.json")).expect("moved");
    symlink(shared.join("say.json"), world.subtools().join("say.json")).expect("linked");
    is_taken(&world);
    mode(&shared, 0o777);
    let told = left_out(&world);
    assert!(told.contains(&format!("chmod go-w {}", shared.display())), "{told}");
    // In a sticky folder others cannot replace what is not theirs.
    mode(&shared, 0o1777);
    is_taken(&world);
    mode(&shared.join("say.json"), 0o666);
    let told = left_out(&world);
    assert!(told.contains(&format!("chmod go-w {}", shared.join("say.json").display())), "{told}");
}

#[test]
fn what_belongs_to_somebody_else_is_theirs() {
    let world = world();
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root can give a file away");
    }
    let file = world.subtools().join("say.json");
    chown(&file, Some(50_001), None).expect("root may");
    let told = left_out(&world);
    assert!(told.contains("belongs to another user (50001): chown 0 "), "{told}");
    chown(&file, Some(0), None).expect("root may");
    is_taken(&world);
    // A group of their own is none of others; any other group is.
    mode(&file, 0o664);
    is_taken(&world);
    chown(&file, None, Some(50_001)).expect("root may");
    let told = left_out(&world);
    assert!(told.contains("its group can write to `"), "{told}");
}

/// As most systems set users up: a group for each, and files that it can write.
#[test]
fn a_home_of_umask_002_works() {
    let world = World::new();
    let (Some(()), home) = (as_another(&world), world.home()) else { return };
    let script = format!(
        "umask 002; mkdir -p '{0}/.config/agent-magic-tool/subtools' && cd '{0}/.config/agent-magic-tool' &&
         printf '%s' '{1}' > subtools/say.json && printf '[executor]\\nconcurrency = 3\\n' > config.toml &&
         '{2}' run say --wait; ended=$?; '{2}' executor stop >&2; exit $ended",
        home.display(),
        echo("mine"),
        PROGRAM,
    );
    let ran = world.transcript(&other_user(&world, "50001", &script).output().expect("setpriv"));
    assert_eq!((ran.exit, &ran.json()["data"]), (0, &json!("mine")), "{ran}");
    let found = fs::metadata(home.join(".config/agent-magic-tool/config.toml")).expect("written");
    assert_eq!(found.permissions().mode() & 0o777, 0o664, "it was the case at hand");
}

/// In a sandbox with users of its own, everything of root seems to be nobody's.
#[test]
fn from_inside_a_sandbox_where_root_is_unknown_subtools_are_listed_all_the_same() {
    let world = World::new();
    let Some(()) = as_another(&world) else { return };
    if !other_user(&world, "50001", "unshare --user true").stderr(Stdio::null()).status().expect("setpriv").success() {
        return skipped("no user namespaces here");
    }
    let owner = "unshare --user --map-current-user stat -c %u /";
    let seen = other_user(&world, "50001", owner).output().expect("setpriv").stdout;
    assert_ne!(String::from_utf8_lossy(&seen).trim(), "0", "root is unknown there");
    let listed = format!("unshare --user --map-current-user '{PROGRAM}' list --query='git log' --format=names");
    let ran = world.transcript(&other_user(&world, "50001", &listed).output().expect("setpriv"));
    assert_eq!((ran.exit, &ran.json()[0]), (0, &json!("git_log")), "{ran}");
}

/// Gives the world's folders to user 50001; `None`, said loudly, where that is not possible.
fn as_another(world: &World) -> Option<()> {
    if !nix::unistd::geteuid().is_root() {
        skipped("only root can become another user");
        return None;
    }
    let root = world.home().parent().expect("the world's folder").to_owned();
    mode(&root, 0o755);
    for folder in [root, world.home(), world.folder()] {
        // What the world made of root's is in the way of theirs.
        chown(&folder, Some(50_001), Some(50_001)).expect("root may");
    }
    fs::remove_dir_all(world.home().join(".config")).expect("removed");
    if other_user(world, "50001", &format!("'{PROGRAM}' --version")).stdout(Stdio::null()).status().ok()?.success() {
        return Some(());
    }
    skipped("another user cannot reach the program");
    None
}

fn other_user(world: &World, uid: &str, script: &str) -> Command {
    world.within("setpriv", &["--reuid", uid, "--regid", uid, "--clear-groups", "sh", "-c", script])
}

#[expect(clippy::print_stderr, reason = "a test that did not run must not look like one that passed")]
fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}
