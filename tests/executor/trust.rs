//! Trust: definitions and the configuration count only if no one but the user and root could have written them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::skip::skip;
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

/// Checks that every command leaves the definition out, and returns the problem as `doctor` reports it.
fn loading_problem(world: &World) -> String {
    let refused = world.run(&["run", "say", "--wait"]);
    assert_eq!((refused.exit, &refused.error()["code"]), (3, &json!("unknown-subtool")), "{refused}");
    let listed = world.run(&["list", "--limit=1000", "--format=names"]);
    assert!(!listed.stdout.contains("\"say\"") && listed.stderr.contains("left out"), "{listed}");
    let doctor = world.run(&["doctor"]).json();
    let checks = doctor["checks"].as_array().expect("checks");
    let subtools = checks.iter().find(|check| check["name"] == "subtools").expect("the check of the subtools").clone();
    assert_eq!(subtools["ok"], false, "{subtools}");
    subtools["found"][0].as_str().expect("a problem").to_owned()
}

fn assert_loaded(world: &World) {
    assert_eq!(world.result_of("say", &json!({}))["data"], "mine");
    let listed = world.run(&["list", "--limit=1000", "--format=names"]);
    assert!(listed.stdout.contains("\"say\"") && !listed.stderr.contains("left out"), "{listed}");
}

/// T26: an agent of another user may write to the file, or to a folder of its path.
#[test]
fn a_definition_that_others_can_write_is_left_out_until_its_mode_is_fixed() {
    let world = world();
    let (file, folder) = (world.subtools().join("say.json"), world.subtools());
    assert_loaded(&world);
    for (path, open, closed) in [(&file, 0o666, 0o644), (&file, 0o622, 0o600), (&folder, 0o777, 0o755)] {
        // The executor keeps running: it notices a change of the mode alone, and so does the listing.
        mode(path, open);
        let problem = loading_problem(&world);
        let path_text = path.display().to_string();
        assert!(problem.contains(&format!("others can write to `{path_text}`: chmod go-w {path_text}")), "{problem}");
        mode(path, closed);
        assert_loaded(&world);
    }
}

#[test]
fn a_configuration_that_others_can_write_starts_nothing_and_the_hint_fixes_it() {
    let world = world();
    world.configure("[confirm]\nwrites = \"allow\"\n");
    let file = world.config_folder().join("config.toml");
    let assert_refused = |ran: &Transcript, exit: i32, at: &Path| {
        let (error, at) = (ran.error(), at.display());
        assert_eq!(ran.exit, exit, "{ran}");
        assert!(
            error["message"].as_str().is_some_and(|message| message.contains(&format!("others can write to `{at}`"))),
            "{ran}"
        );
        assert_eq!(error["hint"], format!("chmod go-w {at}"), "{ran}");
    };
    // A missing file must be trustworthy too: removing a rule is as dangerous as adding one.
    for (path, closed, exists) in
        [(&file, 0o644, true), (&world.config_folder(), 0o755, false), (&world.home(), 0o700, false)]
    {
        let path = path.as_path();
        if !exists {
            fs::remove_file(&file).ok();
        }
        mode(path, if path.is_dir() { 0o777 } else { 0o666 });
        for words in [&["list"][..], &["inspect"], &["lint"], &["executor", "run"]] {
            let ran = world.run(words);
            assert_refused(&ran, 2, path);
            assert_eq!(ran.error()["code"], "bad-config", "{ran}");
        }
        // Commands that need an executor report why it does not start.
        for words in [&["run", "say"][..], &["executor", "start"]] {
            let ran = world.run(words);
            assert_refused(&ran, 2, path);
            assert!(
                ran.error()["message"].as_str().is_some_and(|message| message.contains("failed to start")),
                "{ran}"
            );
        }
        let doctor = world.run(&["doctor"]);
        let config = doctor.json()["checks"][0].clone();
        assert_eq!((&config["name"], &config["ok"]), (&json!("config"), &json!(false)), "{doctor}");
        assert!(config["hint"].as_str().is_some_and(|hint| hint.starts_with("chmod go-w ")), "{doctor}");
        assert!(world.executor().is_none());
        assert!(
            world.mailbox().join("inbox").read_dir().expect("a mailbox").next().is_none(),
            "a request was left in the inbox"
        );
        mode(path, closed);
        if !exists {
            // One that was there and is gone is no permission either, until a human says so.
            assert_eq!(world.run(&["executor", "start", "--without-configuration"]).exit, 0);
        }
        assert_loaded(&world);
        world.run(&["executor", "stop"]);
    }
}

#[test]
fn a_link_is_trusted_only_if_its_folder_and_its_target_are() {
    let world = world();
    let shared = world.folder().join("shared");
    fs::create_dir(&shared).expect("made");
    fs::rename(world.subtools().join("say.json"), shared.join("say.json")).expect("moved");
    symlink(shared.join("say.json"), world.subtools().join("say.json")).expect("linked");
    assert_loaded(&world);
    mode(&shared, 0o777);
    let problem = loading_problem(&world);
    assert!(problem.contains(&format!("chmod go-w {}", shared.display())), "{problem}");
    // In a sticky folder others cannot replace files of the user.
    mode(&shared, 0o1777);
    assert_loaded(&world);
    mode(&shared.join("say.json"), 0o666);
    let problem = loading_problem(&world);
    assert!(problem.contains(&format!("chmod go-w {}", shared.join("say.json").display())), "{problem}");
}

#[test]
fn a_file_of_another_user_is_left_out() {
    let world = world();
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can give a file away");
    }
    let file = world.subtools().join("say.json");
    chown(&file, Some(50_001), None).expect("root may change the owner");
    let problem = loading_problem(&world);
    assert!(problem.contains("belongs to another user (50001): chown 0 "), "{problem}");
    chown(&file, Some(0), None).expect("root may change the owner");
    assert_loaded(&world);
    // The user's own group counts as the user; any other group counts as others.
    mode(&file, 0o664);
    assert_loaded(&world);
    chown(&file, None, Some(50_001)).expect("root may change the owner");
    let problem = loading_problem(&world);
    assert!(problem.contains("its group can write to `"), "{problem}");
}

/// As on most systems: each user has a group, and the group can write the user's files.
#[test]
fn a_home_of_umask_002_works() {
    let world = World::new();
    let (Some(program), home) = (as_another(&world), world.home()) else { return };
    let script = format!(
        "umask 002; mkdir -p '{0}/.config/agent-magic-tool/subtools' && cd '{0}/.config/agent-magic-tool' &&
         printf '%s' '{1}' > subtools/say.json && printf '[executor]\\nconcurrency = 3\\n' > config.toml &&
         '{2}' run say --wait; ended=$?; '{2}' executor stop >&2; exit $ended",
        home.display(),
        echo("mine"),
        program,
    );
    let ran = world.transcript(&other_user(&world, "50001", &script).output().expect("setpriv"));
    assert_eq!((ran.exit, &ran.json()["data"]), (0, &json!("mine")), "{ran}");
    let metadata = fs::metadata(home.join(".config/agent-magic-tool/config.toml")).expect("written");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o664, "the group should be able to write the file");
}

/// In a sandbox with a user namespace, the files of root seem to belong to the user `nobody`.
#[test]
fn subtools_are_listed_inside_a_sandbox_where_root_is_unknown() {
    let world = World::new();
    let Some(program) = as_another(&world) else { return };
    if !other_user(&world, "50001", "unshare --user true").stderr(Stdio::null()).status().expect("setpriv").success() {
        return skip("no user namespaces here");
    }
    let owner = "unshare --user --map-current-user stat -c %u /";
    let uid = other_user(&world, "50001", owner).output().expect("setpriv").stdout;
    assert_ne!(String::from_utf8_lossy(&uid).trim(), "0", "root should be unknown in the namespace");
    let listed = format!("unshare --user --map-current-user '{program}' list --query='git log' --format=names");
    let ran = world.transcript(&other_user(&world, "50001", &listed).output().expect("setpriv"));
    assert_eq!((ran.exit, &ran.json()[0]), (0, &json!("git_log")), "{ran}");
}

/// Gives the folders of the world to user 50001, and returns a copy of the program that this user can run. If that is
/// not possible, reports a skipped test and returns `None`.
fn as_another(world: &World) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        skip("only root can become another user");
        return None;
    }
    let root = world.home().parent().expect("the folder of the world").to_owned();
    mode(&root, 0o755);
    for folder in [root, world.home(), world.folder()] {
        // The world created these folders as root.
        chown(&folder, Some(50_001), Some(50_001)).expect("root may change the owner");
    }
    fs::remove_dir_all(world.home().join(".config")).expect("removed");
    // The user may have no access to the folder that the program was built in.
    let program = world.folder().join("agent-magic-tool");
    fs::copy(PROGRAM, &program).expect("copied");
    Some(program.display().to_string())
}

fn other_user(world: &World, uid: &str, script: &str) -> Command {
    world.within("setpriv", &["--reuid", uid, "--regid", uid, "--clear-groups", "sh", "-c", script])
}

/// What is stored decides as much as the configuration: secrets go where definitions say, grants approve.
#[test]
fn a_state_folder_that_others_can_replace_is_not_believed() {
    let world = world();
    world.define(
        "told.json",
        &json!({"told": {"description": "Tells.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "test \"$KEY\" = planted-by-another && echo planted"],
                "env": {"KEY": "secret:planted"}}}}}),
    );
    let check = || {
        let doctor = world.run(&["doctor"]).json();
        let checks = doctor["checks"].as_array().expect("checks").clone();
        checks.into_iter().find(|check| check["name"] == "state").expect("the check of the state")
    };
    assert_loaded(&world);
    assert_eq!(world.run_with(&["secret", "set", "planted"], "planted-by-another").exit, 0);
    assert_eq!(world.result_of("told", &json!({}))["status"], "succeeded");
    assert_eq!(check()["ok"], true);
    let above = world.state().parent().expect("a folder").to_owned();
    mode(&above, 0o777);
    let refused = |executor: &str| {
        let ran = world.run(&["run", "told", "--wait"]);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(text.contains("others can write to") && text.contains("chmod go-w"), "{executor}: {ran}");
    };
    refused("it runs");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    refused("a new one");
    assert!(world.executor().is_none());
    let told = check();
    assert_eq!(
        (&told["ok"], told["hint"].as_str()),
        (&json!(false), Some(&*format!("chmod go-w {}", above.display())))
    );
    mode(&above, 0o700);
    assert_eq!(world.result_of("told", &json!({}))["status"], "succeeded");

    let secret = world.state().join("secrets/planted");
    mode(&secret, 0o666);
    let told = check();
    assert_eq!((&told["ok"], &told["found"]), (&json!(false), &json!([format!("`{}`", secret.display())])), "{told}");
    assert_eq!(world.result_of("told", &json!({}))["error"]["code"], "secret-missing");
    mode(&secret, 0o600);

    if !nix::unistd::geteuid().is_root() {
        return skip("only root can give a file to another user");
    }
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    for path in [secret, world.state().join("secrets"), world.state().join("learned.jsonl")] {
        if !path.exists() {
            fs::write(&path, "").expect("written");
        }
        chown(&path, Some(7), None).expect("root may");
        let ran = world.run(&["run", "say", "--wait"]);
        assert!(ran.error()["message"].as_str().unwrap_or_default().contains("belongs to another user (7)"), "{ran}");
        assert_eq!(check()["ok"], false);
        chown(&path, Some(0), None).expect("root may");
        assert_loaded(&world);
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    }
}
