//! The git pack on a real repository: what it returns, and that it never does more than read.

use std::path::Path;
use std::process::Command;

use ground::base::schema::InputSchema;
use ground::task::failure::Failure;
use protocol::code::Code;
use serde_json::{Value, json};

use crate::packs::selected;
use crate::{World, pack, shipped};

/// Runs git as a person would, without the configuration of this machine.
pub(crate) fn git(folder: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn commit(world: &World, message: &str, author: &str) {
    let home = world.home();
    git(&home, &["add", "--all"]);
    let author = format!("--author={author} <{author}@example.org>");
    git(
        &home,
        &["-c", "user.name=C", "-c", "user.email=c@example.org", "commit", "--quiet", "--message", message, &author],
    );
}

/// Two commits, and a change in the working tree.
pub(crate) fn repository() -> World {
    let world = World::new();
    git(&world.home(), &["init", "--quiet", "--initial-branch=main"]);
    world.write("poem.txt", "roses\n");
    world.write("sub/other.txt", "x\n");
    commit(&world, "Plant roses", "Ann");
    world.write("poem.txt", "roses\nviolets\n");
    world.write("年度报告.md", "2024\n");
    commit(&world, "Plant violets\n\nBecause of blue.", "Ben");
    world.write("poem.txt", "roses\nviolets\nsugar\n");
    world
}

pub(crate) async fn run(world: &World, subtool: &str, input: Value) -> Value {
    let data = world.data(&shipped("git", subtool), input.clone()).await;
    selected("git", subtool, input, data)
}

pub(crate) async fn failure_of(world: &World, subtool: &str, input: Value) -> Failure {
    world.failure(&shipped("git", subtool), input).await
}

#[tokio::test]
async fn status_names_the_branch_and_each_change() {
    let world = repository();
    world.write("new/a.txt", "");
    world.write("staged.txt", "");
    git(&world.home(), &["add", "staged.txt"]);
    let changes = |new: &str| {
        json!([
            {"staged": " ", "unstaged": "M", "path": "poem.txt"},
            {"staged": "A", "unstaged": " ", "path": "staged.txt"},
            {"staged": "?", "unstaged": "?", "path": new},
        ])
    };
    let status = run(&world, "git_status", json!({})).await;
    assert_eq!(status, json!({"branch": "main", "clean": false, "changes": changes("new/")}));
    let status = run(&world, "git_status", json!({"untracked": "all", "repository": "sub"})).await;
    assert_eq!(status["changes"], changes("new/a.txt"));
}

#[tokio::test]
async fn a_clean_repository_is_clean() {
    let world = repository();
    git(&world.home(), &["checkout", "--quiet", "."]);
    let status = run(&world, "git_status", json!({})).await;
    assert_eq!(status, json!({"branch": "main", "clean": true, "changes": []}));
}

#[tokio::test]
async fn log_lists_commits_newest_first_and_filters_them() {
    let world = repository();
    let log = run(&world, "git_log", json!({})).await;
    let subjects = |log: &Value| -> Vec<String> {
        let commits = log.as_array().into_iter().flatten();
        commits.filter_map(|commit| commit["subject"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(subjects(&log), ["Plant violets", "Plant roses"]);
    assert_eq!(log[0]["author"], "Ben");
    assert!(log[0]["commit"].as_str().is_some_and(|hash| hash.len() >= 7), "{log}");
    assert!(log[0]["date"].as_str().is_some_and(|date| date.contains('T')), "{log}");
    for (input, expected) in [
        (json!({"limit": 1}), "Plant violets"),
        (json!({"author": "ann"}), "Plant roses"),
        (json!({"message": "because"}), "Plant violets"),
        (json!({"paths": ["sub"]}), "Plant roses"),
        (json!({"revision": "HEAD~1"}), "Plant roses"),
        (json!({"revision": "HEAD~1..HEAD"}), "Plant violets"),
    ] {
        assert_eq!(subjects(&run(&world, "git_log", input.clone()).await), [expected], "{input}");
    }
    assert_eq!(run(&world, "git_log", json!({"until": "2000-01-01"})).await, json!([]));
    // A date is a whole day, whatever time it is now. (Git alone takes it for the present time of that day.)
    let day = log[0]["date"].as_str().and_then(|date| date.get(..10)).expect("a date");
    for input in
        [json!({"since": day}), json!({"until": day}), json!({"since": "1 week ago"}), json!({"since": "yesterday"})]
    {
        assert_eq!(subjects(&run(&world, "git_log", input.clone()).await).len(), 2, "{input}");
    }
}

/// Git takes what it does not understand for now, and finds nothing.
#[test]
fn dates_that_git_would_misunderstand_are_refused() {
    let (_, log) = pack("git").into_iter().find(|(name, _)| name == "git_log").expect("it ships");
    let schema = InputSchema::compile(&log.input).expect("a schema");
    for (date, is_valid) in [
        ("2026-11-20", true),
        ("2026-02-29", true),
        ("2026-11-20T10:00", true),
        ("2026-11-20 10:00:00 +0100", true),
        ("2026-11-20T10:00:00Z", true),
        ("2 weeks ago", true),
        ("1 year ago", true),
        ("last month", true),
        ("today", true),
        ("yesterday", true),
        ("2026-11-31", false),
        ("2026-13-01", false),
        ("2026-11", false),
        ("a week ago", false),
        ("1 weak ago", false),
        ("letzte Woche", false),
        ("nonsense", false),
        ("", false),
    ] {
        for field in ["since", "until"] {
            assert_eq!(schema.problems(&json!({ field: date })).is_empty(), is_valid, "{field} {date}");
        }
    }
}

#[tokio::test]
async fn diff_shows_what_changed() {
    let world = repository();
    let text = |value: Value| value.as_str().map(str::to_owned).expect("a text");
    let diff = text(run(&world, "git_diff", json!({})).await);
    assert!(diff.starts_with("diff --git a/poem.txt b/poem.txt\n") && diff.ends_with("\n violets\n+sugar"), "{diff}");
    assert!(!text(run(&world, "git_diff", json!({"context": 0})).await).contains("\n violets"));
    assert_eq!(run(&world, "git_diff", json!({"staged": true})).await, "");
    assert_eq!(run(&world, "git_diff", json!({"paths": ["sub"]})).await, "");
    let diff = text(run(&world, "git_diff", json!({"revision": "HEAD~1"})).await);
    assert!(diff.contains("+violets\n+sugar") && diff.contains("b/年度报告.md"), "{diff}");
    let diff = text(run(&world, "git_diff", json!({"revision": "HEAD~1..HEAD", "stat": true, "context": 5})).await);
    assert!(diff.contains("2 files changed") && !diff.contains("+violets"), "{diff}");
}

#[tokio::test]
async fn show_returns_a_commit_or_a_file_of_it() {
    let world = repository();
    let text = |value: Value| value.as_str().map(str::to_owned).expect("a text");
    let shown = text(run(&world, "git_show", json!({})).await);
    assert!(
        shown.contains("Author: Ben") && shown.contains("Because of blue.") && shown.contains("+violets"),
        "{shown}"
    );
    assert_eq!(run(&world, "git_show", json!({"revision": "HEAD~1:poem.txt"})).await, "roses");
    let shown = text(run(&world, "git_show", json!({"revision": "HEAD", "stat": true, "paths": ["poem.txt"]})).await);
    assert!(shown.contains("1 file changed") && !shown.contains("+violets"), "{shown}");
    let failure = failure_of(&world, "git_show", json!({"revision": "nonesuch"})).await;
    assert_eq!(failure.error.code, Code::ProcessFailed);
    assert!(failure.error.message.contains("nonesuch"), "{}", failure.error.message);
}

#[tokio::test]
async fn blame_names_the_author_of_each_line() {
    let world = repository();
    let lines = |value: &Value| value.as_str().unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>();
    let blamed = lines(&run(&world, "git_blame", json!({"path": "poem.txt"})).await);
    assert_eq!(blamed.len(), 3);
    assert!(
        blamed[0].contains("(Ann") && blamed[1].contains("(Ben") && blamed[2].starts_with("00000000"),
        "{blamed:?}"
    );
    assert_eq!(lines(&run(&world, "git_blame", json!({"path": "poem.txt", "start": 2, "end": 2})).await).len(), 1);
    assert_eq!(lines(&run(&world, "git_blame", json!({"path": "poem.txt", "start": 2})).await).len(), 2);
    assert_eq!(lines(&run(&world, "git_blame", json!({"path": "poem.txt", "revision": "HEAD~1"})).await).len(), 1);
}

/// The schema refuses these inputs too; this test covers the runner.
#[tokio::test]
async fn a_revision_or_a_path_never_becomes_an_option() {
    let world = repository();
    let target = world.outside().join("pwned");
    let before = std::fs::read_dir(world.home()).expect("a folder").count();
    let attacks = [
        format!("--output={}", target.display()),
        "--no-index".into(),
        "--ext-diff".into(),
        "-Ofoo".into(),
        "--".into(),
    ];
    for attack in &attacks {
        for subtool in ["git_log", "git_diff", "git_show", "git_blame"] {
            let inputs = [
                json!({"revision": attack, "path": "poem.txt"}),
                json!({"revision": attack, "path": attack, "paths": [attack, "poem.txt"]}),
            ];
            for input in inputs {
                let failure = failure_of(&world, subtool, input.clone()).await;
                assert_eq!(failure.error.code, Code::Rejected, "{subtool} {input}");
            }
            // As a path it is only a file that does not exist.
            let input = json!({"path": attack, "paths": [attack]});
            let outcome = format!("{:?}", world.perform(&shipped("git", subtool), input).await);
            assert!(!outcome.contains("roses\\n"), "{subtool} {attack}: {outcome}");
        }
    }
    assert!(!target.exists());
    assert_eq!(std::fs::read_dir(world.home()).expect("a folder").count(), before);
}

#[tokio::test]
async fn no_file_outside_the_repository_is_read() {
    let world = repository();
    let secret = world.outside().join("secret.txt");
    std::fs::write(&secret, "this must not be read\n").expect("a file");
    let secret = secret.to_string_lossy().into_owned();
    std::fs::create_dir(world.home().join("plain")).expect("a folder");
    // `git diff` with exactly two paths, one of them outside the repository, compares them like `diff`. To prevent
    // this, the pack always passes more paths, which have no other effect.
    for paths in [json!(["poem.txt", secret]), json!([secret, "poem.txt"]), json!([secret]), json!([secret, secret])] {
        for subtool in ["git_diff", "git_log", "git_show"] {
            let failure = format!("{:?}", failure_of(&world, subtool, json!({"paths": paths})).await);
            assert!(!failure.contains("must not be read"), "{subtool}: {failure}");
        }
    }
    let outside = world.outside().to_string_lossy().into_owned();
    std::fs::write(world.outside().join("b.txt"), "other\n").expect("a file");
    let input = json!({"repository": outside, "paths": ["secret.txt", "b.txt"]});
    let failure = failure_of(&world, "git_diff", input).await;
    assert!(!format!("{failure:?}").contains("must not be read"), "{failure:?}");
    let failure = failure_of(&world, "git_blame", json!({"path": secret})).await;
    assert_eq!(failure.error.code, Code::ProcessFailed);
}

/// Adds a commit with a fake signature, so that git would check it.
fn pretend_signature(world: &World) {
    let ask = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(world.home()).output().expect("git is installed");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    let (tree, parent) = (ask(&["rev-parse", "HEAD^{tree}"]), ask(&["rev-parse", "HEAD"]));
    let person = "C <c@example.org> 1700000000 +0000";
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n aGVsbG8=\n -----END PGP SIGNATURE-----";
    let text = format!("tree {tree}\nparent {parent}\nauthor {person}\ncommitter {person}\n{signature}\n\nSigned\n");
    world.write("signed", text);
    let hash = ask(&["hash-object", "-t", "commit", "-w", "signed"]);
    std::fs::remove_file(world.home().join("signed")).expect("removed");
    git(&world.home(), &["update-ref", "HEAD", &hash]);
}

/// The configuration of a repository can name programs; git must run none of them.
#[tokio::test]
async fn no_program_of_the_repositorys_configuration_is_run() {
    let world = repository();
    pretend_signature(&world);
    let marker = world.outside().join("ran");
    let malicious = world.home().join(".git/evil");
    let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat \"$1\" 2>/dev/null\nexit 0\n", marker.display());
    std::fs::write(&malicious, script).expect("a program");
    std::fs::create_dir_all(world.home().join(".git/hooks")).expect("a folder");
    let malicious = malicious.to_string_lossy().into_owned();
    std::fs::copy(&malicious, world.home().join(".git/hooks/post-index-change")).expect("a hook");
    for path in [malicious.as_str(), &format!("{}/.git/hooks/post-index-change", world.home().display())] {
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, executable).expect("executable");
    }
    for key in [
        "core.fsmonitor",
        "core.pager",
        "pager.log",
        "pager.diff",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "gpg.program",
        "core.sshCommand",
        "core.editor",
        "alias.status",
        "credential.helper",
    ] {
        git(&world.home(), &["config", key, &malicious]);
    }
    git(&world.home(), &["config", "log.showSignature", "true"]);
    git(&world.home(), &["config", "diff.submodule", "diff"]);
    world.write(".gitattributes", "*.txt diff=evil\n");
    world.write("staged.txt", "s\n");
    if marker.exists() {
        std::fs::remove_file(&marker).expect("removed");
    }
    for (subtool, input) in [
        ("git_status", json!({})),
        ("git_log", json!({})),
        ("git_diff", json!({})),
        ("git_diff", json!({"revision": "HEAD~1"})),
        ("git_show", json!({})),
        ("git_blame", json!({"path": "poem.txt"})),
    ] {
        run(&world, subtool, input).await;
        let ran = std::fs::read_to_string(&marker).unwrap_or_default();
        assert_eq!(ran, "", "{subtool} ran a program");
    }
}

/// Git passes a file through the `clean` filter before it compares or shows it. `attr.tree` does not prevent this,
/// because the attributes may also be inside `.git`.
#[tokio::test]
async fn no_filter_of_the_repositorys_configuration_is_run() {
    let filters = [
        ("clean", "filter.x.clean"),
        ("required filter", "filter.x.required"),
        ("process", "filter.x.process"),
        ("upper case", "FILTER.x.Clean"),
        ("special characters in the name", "filter.a=b $(c) * '\"\u{1f33b}.clean"),
        ("included file", "include.path"),
    ];
    for (what, key) in filters {
        for attributes in [".gitattributes", ".git/info/attributes"] {
            let world = repository();
            let marker = world.outside().join("ran");
            let program = world.home().join(".git/evil");
            let program = program.to_str().expect("UTF-8");
            world.write(".git/evil", format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", marker.display()));
            std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
            let name = key.split_once('.').and_then(|(_, rest)| rest.rsplit_once('.')).map_or("x", |(name, _)| name);
            match key {
                "include.path" => {
                    world.write(".git/more", format!("[filter \"x\"]\nclean = {program}\n"));
                    git(&world.home(), &["config", key, "more"]);
                }
                "filter.x.required" => {
                    git(&world.home(), &["config", key, "true"]);
                    git(&world.home(), &["config", "filter.x.clean", program]);
                }
                _ => git(&world.home(), &["config", key, program]),
            }
            // The value of an attribute ends at a space, so only simple names can be selected.
            world.write(attributes, format!("* filter={name}\n"));
            let unchanged = std::fs::File::options().write(true).open(world.home().join("sub/other.txt"));
            let stale = unchanged.and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH));
            stale.expect("a changed modification time");
            for (subtool, input) in [
                ("git_status", json!({})),
                ("git_diff", json!({})),
                ("git_diff", json!({"revision": "HEAD~1"})),
                ("git_diff", json!({"staged": true})),
                ("git_log", json!({})),
                ("git_show", json!({})),
                ("git_blame", json!({"path": "poem.txt"})),
            ] {
                run(&world, subtool, input).await;
                let ran = std::fs::read_to_string(&marker).unwrap_or_default();
                assert_eq!(ran, "", "{what}, {attributes}: {subtool} ran a program");
            }
            if name == "x" {
                git(&world.home(), &["status"]);
                assert!(marker.exists(), "{what}, {attributes}: plain git should run the filter");
            }
        }
    }
}

#[tokio::test]
async fn the_git_program_is_not_searched_in_the_repository() {
    let world = repository();
    world.write("git", "#!/bin/sh\necho pwned\n");
    let program = world.home().join("git");
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let mut status = shipped("git", "git_status");
    let path = std::env::var("PATH").expect("a PATH");
    status["process"]["env"]["PATH"] = json!(format!(".::{path}:"));
    let output = world.data(&status, json!({})).await;
    assert_eq!(output[0], "## main", "{output}");
}

#[tokio::test]
async fn reading_does_not_write_even_the_index() {
    let world = repository();
    let index = || std::fs::read(world.home().join(".git/index")).expect("an index");
    // The same content with another modification time: git would normally refresh the index.
    let other = std::fs::File::options().write(true).open(world.home().join("sub/other.txt")).expect("a file");
    other.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a changed modification time");
    let before = index();
    for subtool in ["git_status", "git_diff", "git_log", "git_show"] {
        run(&world, subtool, json!({})).await;
        assert!(index() == before, "{subtool} wrote the index");
    }
}

#[tokio::test]
async fn a_folder_that_is_not_a_repository_is_a_clear_failure() {
    let world = World::new();
    for subtool in ["git_status", "git_log", "git_show", "git_diff"] {
        let failure = failure_of(&world, subtool, json!({})).await;
        assert_eq!(failure.error.code, Code::ProcessFailed);
        assert!(failure.error.message.to_lowercase().contains("not a git repository"), "{}", failure.error.message);
    }
}
