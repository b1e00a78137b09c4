//! The processes that the executor starts, and those that they leave behind.
//!
//! A program may start a process in a session of its own (`setsid`), which its process group does not include. On
//! Linux the executor adopts such a process when its parent ends, finds it by a mark in its environment, and kills it
//! when the program has ended. A process that also cleared its environment is killed when no program runs. Elsewhere
//! such processes stay, which `doctor` says.
//!
//! An executor that is killed can end nothing. Its programs go on until the next executor of the same record starts:
//! their mark begins with what identifies the record, so that one finds and kills them, whatever their process ids are
//! by then.
//!
//! An adopted process must also be reaped. So every process that the executor starts itself is registered here,
//! and its own owner reaps it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, geteuid, getpgid, getpgrp};
use protocol::paths::STARTED_PROGRAM;
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long to look for what a program left behind: more may appear while it is being killed.
const MAX_SEARCH: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Whether this process adopts what its descendants leave behind.
static ADOPTS: AtomicBool = AtomicBool::new(false);
/// With what the marks of this executor's programs begin; empty if nothing tells them from those of others.
static INSTALLATION: OnceLock<String> = OnceLock::new();
static OWN: Mutex<BTreeMap<i32, ProcessKind>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessKind {
    Program,
    /// A process that leaves nothing behind.
    Helper,
}

/// A registered process. Dropping it removes it from the register.
#[derive(Debug)]
pub struct Registered(i32);

impl Drop for Registered {
    fn drop(&mut self) {
        own().remove(&self.0);
    }
}

fn own() -> MutexGuard<'static, BTreeMap<i32, ProcessKind>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `command`, which leaves nothing behind.
pub fn spawn(command: &mut Command) -> io::Result<(Child, Registered)> {
    spawn_as(command, ProcessKind::Helper, &[])
}

/// A process of this program that reaches nothing but its two pipes, and that ends when this is dropped.
#[derive(Debug)]
pub struct PipedWorker {
    pub child: Child,
    _registered: Registered,
    pub to: ChildStdin,
    pub from: BufReader<ChildStdout>,
}

impl PipedWorker {
    /// Starts `program` with the one argument `command`, and with nothing in its environment but this.
    pub fn start(program: &Path, command: &str, environment: &[(&str, &str)]) -> io::Result<Self> {
        let mut started = Command::new(program);
        started
            .arg(command)
            .env_clear()
            .envs(environment.iter().copied())
            // Every command finds its folders from this, and uses none.
            .env("HOME", "/")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let (mut child, registered) = spawn(&mut started)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or_else(|| io::Error::other("a worker has no pipes"))?;
        Ok(Self { child, _registered: registered, to, from: BufReader::new(from) })
    }
}

/// Starts a program, whose descendants have `mark`. It inherits `passed`, under the same numbers.
pub fn spawn_program(command: &mut Command, mark: &str, passed: &[File]) -> io::Result<(Child, Registered)> {
    spawn_as(command.env(STARTED_PROGRAM, whole_mark(mark)), ProcessKind::Program, passed)
}

fn spawn_as(command: &mut Command, kind: ProcessKind, passed: &[File]) -> io::Result<(Child, Registered)> {
    // Locked meanwhile, so that the process is never taken for one that was adopted, and so that no other process
    // inherits what is passed to this one.
    let mut own = own();
    let pass = |flag| passed.iter().try_for_each(|file| fcntl(file, FcntlArg::F_SETFD(flag)).map(drop));
    pass(FdFlag::empty())?;
    let spawned = command.spawn();
    pass(FdFlag::FD_CLOEXEC)?;
    let child = spawned?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| io::Error::other("the program has no process id"))?;
    own.insert(pid, kind);
    Ok((child, Registered(pid)))
}

/// Whether this system lets a process adopt what its descendants leave behind.
pub fn can_adopt() -> bool {
    cfg!(target_os = "linux") && fs::exists("/proc/self/stat").unwrap_or(false)
}

/// From now on, processes whose parent ends become children of this process instead of the system's first.
pub fn adopt() {
    #[cfg(target_os = "linux")]
    match nix::sys::prctl::set_child_subreaper(true) {
        Ok(()) => ADOPTS.store(true, Ordering::Relaxed),
        Err(error) => tracing::warn!(%error, "processes that programs leave behind are not ended"),
    }
}

/// From now on, the programs of this process are known as those of the executor whose files lie in `folder`.
pub fn belong_to(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    // Unlike the path, these are not the same in another container.
    INSTALLATION.get_or_init(|| format!("{:x}-{:x}.", found.dev(), found.ino()));
    Ok(())
}

/// Kills the programs of an executor that was killed, and waits until they are gone. The caller is the only executor of
/// its folder, and has started no program yet.
pub async fn end_programs_of_the_last_executor() {
    let deadline = Instant::now() + MAX_SEARCH;
    let mark = whole_mark("");
    let mut ended = BTreeSet::new();
    while !mark.is_empty() {
        let found = of_the_last_executor(&mark);
        if found.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            tracing::warn!(?found, "programs that a killed executor left behind do not end");
            break;
        }
        for pid in found {
            // Its group has members that cleared their environment. Fails if it has just ended.
            let pid = Pid::from_raw(pid);
            if let Ok(group) = getpgid(Some(pid))
                && group != getpgrp()
            {
                killpg(group, Signal::SIGKILL).ok();
            }
            kill(pid, Signal::SIGKILL).ok();
            ended.insert(pid.as_raw());
        }
        tokio::time::sleep(PAUSE).await;
    }
    if !ended.is_empty() {
        tracing::warn!(?ended, "killed the programs that the last executor left behind when it was killed");
    }
}

fn of_the_last_executor(mark: &str) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let uid = geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_ours = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|found| found.uid() == uid);
    let pids = entries.filter(is_ours).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != own && variable_of(*pid).is_some_and(|found| found.starts_with(mark)) && !is_zombie(*pid))
        .collect()
}

fn whole_mark(mark: &str) -> String {
    format!("{}{mark}", INSTALLATION.get().map(String::as_str).unwrap_or_default())
}

/// Kills what the program with `mark` left behind, and waits until it is gone. The program itself has ended.
pub async fn end_leftovers(mark: &str) {
    let deadline = Instant::now() + MAX_SEARCH;
    while ADOPTS.load(Ordering::Relaxed) && kill_leftovers(mark) {
        if Instant::now() > deadline {
            tracing::warn!("processes that a program left behind do not end");
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns whether there was something to kill.
fn kill_leftovers(mark: &str) -> bool {
    let own = own();
    let is_quiet = !own.values().any(|kind| *kind == ProcessKind::Program);
    let mut found = false;
    for pid in adopted(&own) {
        if is_zombie(pid) {
            // Fails if it was reaped meanwhile.
            waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)).ok();
        } else if is_quiet || has_mark(pid, mark) {
            found = true;
            // Fails if it has just ended.
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
    found
}

/// Kills every process that the executor started, with its group, and those that were left behind.
pub fn kill_all() {
    let Ok(own) = OWN.try_lock() else { return };
    for pid in own.keys() {
        killpg(Pid::from_raw(*pid), Signal::SIGKILL).ok();
    }
    let adopted = if ADOPTS.load(Ordering::Relaxed) { adopted(&own) } else { BTreeSet::new() };
    for pid in adopted {
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
}

/// Returns the children of this process that it did not start itself.
fn adopted(own: &BTreeMap<i32, ProcessKind>) -> BTreeSet<i32> {
    // The kernel gives orphans to the first thread.
    let pid = std::process::id();
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children: BTreeSet<i32> = match listed {
        Ok(listed) => listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect(),
        Err(_) => children_in_proc(),
    };
    children.into_iter().filter(|pid| !own.contains_key(pid)).collect()
}

/// For kernels that do not list children.
fn children_in_proc() -> BTreeSet<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, parent)| parent == own)).collect()
}

fn is_zombie(pid: i32) -> bool {
    stat(pid).is_none_or(|(state, _)| state == 'Z')
}

/// Returns the state of a process and its parent.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn has_mark(pid: i32, mark: &str) -> bool {
    variable_of(pid).is_some_and(|found| found == whole_mark(mark))
}

/// The mark in the environment of a process.
fn variable_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|found| {
        String::from_utf8(found.strip_prefix(STARTED_PROGRAM.as_bytes())?.strip_prefix(b"=")?.to_vec()).ok()
    })
}
