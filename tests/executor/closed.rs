//! The executor is closed to the other programs of its own user: they cannot read its memory, environment or files.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use nix::unistd::{Uid, chown};

use crate::world::{PROGRAM, World, until};

/// A user who is not root, so that nothing but the process itself closes it.
const NOBODY: u32 = 65534;

/// Whether this test may look into the executor; if not, says so.
pub(super) fn may_look_inside() -> bool {
    let is_root = Uid::effective().is_root();
    if !is_root {
        crate::skip::skip("a look into the executor, which is closed to its own user: only root can");
    }
    is_root
}

/// Runs a command as a user who is not root, which is this one unless the tests run as root.
fn unprivileged(mut command: Command) -> Command {
    if Uid::effective().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn give_away(path: &std::path::Path) {
    if !Uid::effective().is_root() {
        return;
    }
    chown(path, Some(Uid::from_raw(NOBODY)), Some(NOBODY.into())).expect("changed");
    if path.is_dir() {
        fs::read_dir(path).expect("a folder").flatten().for_each(|entry| give_away(&entry.path()));
    }
}

/// What a program of the same user reads from a process; empty if it may not.
fn read(pid: u32, what: &str) -> Vec<u8> {
    let mut command = Command::new("head");
    command.args(["-c", "100", &format!("/proc/{pid}/{what}")]).stderr(Stdio::null()).current_dir("/");
    unprivileged(command).output().expect("head runs").stdout
}

fn descriptors(pid: u32) -> Vec<u8> {
    let mut command = Command::new("ls");
    command.arg(format!("/proc/{pid}/fd")).stderr(Stdio::null()).current_dir("/");
    unprivileged(command).output().expect("ls runs").stdout
}

#[test]
fn no_program_of_the_same_user_looks_into_the_executor() {
    if !cfg!(target_os = "linux") {
        crate::skip::skip("a look into the executor: only Linux has /proc");
        return;
    }
    let world = World::new();
    fs::create_dir_all(world.state()).expect("made");
    // The test's own build may lie where only root can reach it.
    let program = world.folder().join("agent-magic-tool");
    fs::copy(PROGRAM, &program).expect("copied");
    give_away(world.folder().parent().expect("the world's folder"));
    let start = |program: &std::path::Path, arguments: &[&str]| -> Child {
        let mut command = world.within(program, arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        unprivileged(command).spawn().expect("it starts")
    };
    let mut open = start("sleep".as_ref(), &["60"]);
    until("the other program can be read", || !read(open.id(), "environ").is_empty());
    assert!(!descriptors(open.id()).is_empty(), "this test sees what is open");

    let mut executor = start(&program, &["executor", "run"]);
    until("the executor serves", || world.mailbox().join("inbox").is_dir());
    for what in ["environ", "maps", "auxv"] {
        assert_eq!(read(executor.id(), what), b"", "{what}");
    }
    assert_eq!(descriptors(executor.id()), b"");
    assert!(executor.try_wait().expect("a child").is_none(), "it runs");
    for child in [&mut executor, &mut open] {
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}
