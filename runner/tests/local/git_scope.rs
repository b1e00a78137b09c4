//! The git pack reads no file outside the repository, whatever the repository itself says; real work trees still work.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::World;
use crate::git::{failure_of, git, repository, run};
use crate::shipped;

/// Occurs only in files outside the repository.
const PRIVATE: &str = "pr1vate-w0rd";

const CALLS: [&str; 5] = ["git_status", "git_log", "git_diff", "git_show", "git_blame"];

fn input(subtool: &str) -> Value {
    match subtool {
        "git_blame" => json!({"path": "poem.txt"}),
        "git_status" => json!({"untracked": "all"}),
        _ => json!({}),
    }
}

/// A repository of somebody else, with a private file and a private message.
fn private_repository(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    git(folder, &["init", "--quiet", "--initial-branch=main"]);
    fs::write(folder.join("poem.txt"), format!("{PRIVATE}\n")).expect("written");
    fs::write(folder.join(PRIVATE), "x").expect("written");
    git(folder, &["add", "--all"]);
    let author = ["-c", "user.name=P", "-c", "user.email=p@example.org"];
    git(folder, &[&author[..], &["commit", "--quiet", "--message", PRIVATE]].concat());
    fs::write(folder.join("poem.txt"), format!("{PRIVATE} changed\n")).expect("written");
}

type Attack = fn(&World, &Path);

#[tokio::test]
async fn a_repository_that_leads_elsewhere_is_refused() {
    let attacks: [(&str, Attack); 11] = [
        ("work tree", |world, private| {
            git(&world.home(), &["config", "core.worktree", &private.display().to_string()]);
        }),
        ("work tree above", |world, _| git(&world.home(), &["config", "core.worktree", "/"])),
        (".git that is a file", |world, private| {
            fs::remove_dir_all(world.home().join(".git")).expect("removed");
            world.write(".git", format!("gitdir: {}/.git\n", private.display()));
        }),
        (".git that is a link", |world, private| {
            fs::remove_dir_all(world.home().join(".git")).expect("removed");
            symlink(private.join(".git"), world.home().join(".git")).expect("linked");
        }),
        ("common folder", |world, private| {
            world.write(".git/commondir", format!("{}/.git\n", private.display()));
        }),
        ("objects and references that are links", |world, private| {
            for name in ["objects", "refs"] {
                fs::remove_dir_all(world.home().join(".git").join(name)).expect("removed");
                symlink(private.join(".git").join(name), world.home().join(".git").join(name)).expect("linked");
            }
        }),
        ("alternates", |world, private| {
            world.write(".git/objects/info/alternates", format!("{}/.git/objects\n", private.display()));
        }),
        ("packed references that are a link", |world, private| {
            symlink(private.join("poem.txt"), world.home().join(".git/packed-refs")).expect("linked");
        }),
        ("shallow file that is a link", |world, private| {
            symlink(private.join("poem.txt"), world.home().join(".git/shallow")).expect("linked");
        }),
        ("included configuration", |world, private| {
            fs::write(private.join("config"), format!("[core]\nbare = false\n[x]\ny = {PRIVATE}\n")).expect("written");
            git(&world.home(), &["config", "include.path", &format!("{}/config", private.display())]);
        }),
        ("ignored revisions", |world, private| {
            git(&world.home(), &["config", "blame.ignoreRevsFile", &format!("{}/poem.txt", private.display())]);
        }),
    ];
    for (what, attack) in attacks {
        let world = repository();
        let private = world.outside().join("private");
        private_repository(&private);
        attack(&world, &private);
        for subtool in CALLS {
            let failure = format!("{:?}", failure_of(&world, subtool, input(subtool)).await);
            assert!(!failure.contains(PRIVATE), "{what}: {subtool}: {failure}");
            let is_refused = failure.contains("this repository is not read");
            assert!(
                is_refused || ["packed", "shallow", "objects"].iter().any(|start| what.starts_with(start)),
                "{failure}"
            );
        }
    }
}

#[tokio::test]
async fn files_that_only_change_what_is_shown_are_the_users_own() {
    let world = repository();
    let private = world.outside().join("private");
    fs::write(&private, "hidden-by-it\n*.txt -diff\nNew Name <b@example.org> Ben <Ben@example.org>\npoem.txt\n")
        .expect("written");
    let before = [run(&world, "git_diff", json!({})).await, run(&world, "git_show", json!({})).await];
    for key in ["core.excludesFile", "core.attributesFile", "mailmap.file", "diff.orderFile"] {
        git(&world.home(), &["config", key, &private.display().to_string()]);
    }
    world.write("hidden-by-it", "x");
    let status = run(&world, "git_status", json!({})).await.to_string();
    assert!(status.contains("hidden-by-it"), "{status}");
    let after = [run(&world, "git_diff", json!({})).await, run(&world, "git_show", json!({})).await];
    assert_eq!(before, after);
}

#[tokio::test]
async fn work_trees_submodules_and_included_files_of_the_repository_are_read() {
    let world = repository();
    let home = world.home();
    git(&home, &["worktree", "add", "--quiet", "tree", "HEAD"]);
    git(&home, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "./.git", "module"]);
    world.write(".git/more", "[core]\nquotePath = true\n");
    world.write("revisions", "# none\n");
    git(&home, &["config", "include.path", "more"]);
    git(&home, &["config", "blame.ignoreRevsFile", "revisions"]);
    for folder in ["", "sub", "tree", "tree/sub", "module"] {
        if folder == "tree" {
            fs::copy(home.join("revisions"), home.join("tree/revisions")).expect("copied");
        }
        for subtool in CALLS {
            let mut input = input(subtool);
            input["repository"] = home.join(folder).display().to_string().into();
            if subtool == "git_blame" && folder.ends_with("sub") {
                input["path"] = json!("other.txt");
            }
            let done = world.perform(&shipped("git", subtool), input).await;
            assert!(done.is_ok(), "{folder}: {subtool}: {done:?}");
        }
    }
}

/// The index still knows a file in the folder that is a link by now.
#[tokio::test]
async fn a_link_in_the_files_of_a_repository_leads_nowhere() {
    let world = repository();
    let private = world.outside();
    fs::write(private.join("poem.txt"), PRIVATE).expect("written");
    world.write("folder/poem.txt", "mine");
    git(&world.home(), &["add", "folder"]);
    fs::remove_dir_all(world.home().join("folder")).expect("removed");
    symlink(&private, world.home().join("folder")).expect("linked");
    for path in ["folder/poem.txt".to_owned(), world.home().join("folder/poem.txt").display().to_string()] {
        let failure = failure_of(&world, "git_blame", json!({"path": path})).await;
        assert!(failure.error.message.contains("a link in it leads elsewhere"), "{failure:?}");
        assert!(!format!("{failure:?}").contains(PRIVATE), "{failure:?}");
    }
}

#[tokio::test]
async fn a_file_with_another_name_elsewhere_is_not_shown() {
    let world = repository();
    let private = world.outside().join("private");
    fs::write(&private, format!("{PRIVATE}\n")).expect("written");
    fs::remove_file(world.home().join("poem.txt")).expect("removed");
    fs::hard_link(&private, world.home().join("poem.txt")).expect("linked");
    for subtool in ["git_diff", "git_blame"] {
        let failure = failure_of(&world, subtool, input(subtool)).await;
        assert!(failure.error.message.contains("a hard link"), "{failure:?}");
        assert!(!format!("{failure:?}").contains(PRIVATE), "{failure:?}");
    }
    fs::remove_file(world.home().join(".git/config")).expect("removed");
    fs::hard_link(&private, world.home().join(".git/config")).expect("linked");
    for subtool in CALLS {
        let failure = failure_of(&world, subtool, input(subtool)).await;
        assert!(!format!("{failure:?}").contains(PRIVATE), "{failure:?}");
    }
}
