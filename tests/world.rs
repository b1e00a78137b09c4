//! An isolated world for each test: home, mailbox, definitions, and an empty environment.
//!
//! Tests neither see nor touch the machine's own installation. Dropping the world kills the executors that
//! commands started in it.

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::mailbox::Mailbox;
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-magic-tool");

/// The program under test: the one just built, or one that `AGENT_MAGIC_TOOL_TEST_PROGRAM` names, such as the small one, or
/// a release build, in which a panic ends the process and there are no failpoints.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("AGENT_MAGIC_TOOL_TEST_PROGRAM").map_or_else(|| PROGRAM.into(), PathBuf::from)
}

/// The program under test, or the full one beside it if that is the small one: for what only the full one does, such as
/// being replaced while it runs.
pub(crate) fn full_program() -> PathBuf {
    let program = program();
    if program.ends_with("agent-magic-tool-small") { PROGRAM.into() } else { program }
}

/// Far longer than anything takes on a busy machine; only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct World {
    root: TempDir,
}

/// The exit status and output of one command.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    masks: Vec<(String, &'static str)>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::below(&tempfile::env::temp_dir())
    }

    /// A world in a new folder in `parent`.
    pub(crate) fn below(parent: &Path) -> Self {
        let root = tempfile::Builder::new().prefix("amt-").tempdir_in(parent).expect("a folder for the world");
        let world = Self { root };
        for folder in [world.home(), world.folder(), world.subtools()] {
            fs::create_dir_all(folder).expect("made");
        }
        world
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The working directory of commands.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn mailbox(&self) -> PathBuf {
        self.root.path().join("mailbox")
    }

    pub(crate) fn config_folder(&self) -> PathBuf {
        self.home().join(".config/agent-magic-tool")
    }

    pub(crate) fn subtools(&self) -> PathBuf {
        self.config_folder().join("subtools")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.home().join(".local/state/agent-magic-tool")
    }

    /// The log of this world's executor.
    pub(crate) fn log(&self) -> PathBuf {
        let executors = fs::read_dir(self.state().join("executors")).expect("an executor has run");
        let folder = executors.flatten().next().expect("an executor has run").path();
        folder.join("executor.log")
    }

    /// Writes a file of discovery JSON.
    pub(crate) fn define(&self, file: &str, definitions: &Value) {
        fs::write(self.subtools().join(file), definitions.to_string()).expect("written");
    }

    /// Writes the configuration.
    pub(crate) fn configure(&self, toml: &str) {
        fs::write(self.config_folder().join("config.toml"), toml).expect("written");
    }

    /// Writes the configuration, without the packs that ship: every command that reads definitions would load them.
    pub(crate) fn configure_without_packs(&self, toml: &str) {
        self.configure(&format!("{toml}[catalog]\npacks = []\n"));
    }

    /// The program under test with `arguments`, in this world's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.within(program(), arguments)
    }

    /// Any program in this world's environment.
    pub(crate) fn within(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("AGENT_MAGIC_TOOL_DIR", self.mailbox())
            .current_dir(self.folder())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Transcript {
        self.transcript(&self.command(arguments).output().expect("the program starts"))
    }

    /// Runs the program with `text` on its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], text: &str) -> Transcript {
        use std::io::Write as _;
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        match stdin.write_all(text.as_bytes()) {
            // A command that rejects its arguments ends without reading its input.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.expect("written"),
        }
        drop(stdin);
        self.transcript(&child.wait_with_output().expect("the program ends"))
    }

    pub(crate) fn transcript(&self, output: &Output) -> Transcript {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the program prints UTF-8");
        Transcript {
            exit: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            masks: vec![
                (self.mailbox().display().to_string(), "MAILBOX"),
                (self.config_folder().display().to_string(), "CONFIG"),
                (self.root.path().display().to_string(), "WORLD"),
                (env!("CARGO_PKG_VERSION").to_owned(), "VERSION"),
            ],
        }
    }

    /// Runs `run`, waits for its result, and returns the result file.
    pub(crate) fn result_of(&self, tool: &str, input: &Value) -> Value {
        let id = self.start(tool, input);
        self.run(&["wait", &id]);
        self.result_file(&id)
    }

    /// Runs `run` and returns the id of the task.
    pub(crate) fn start(&self, tool: &str, input: &Value) -> String {
        let ran = self.run(&["run", tool, "--input", &input.to_string()]);
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()["id"].as_str().expect("an id").to_owned()
    }

    /// The current content of a task's result file.
    pub(crate) fn result_file(&self, id: &str) -> Value {
        let path = self.mailbox().join(format!("results/result-{id}.json"));
        let text = fs::read_to_string(&path).expect("the result file exists");
        serde_json::from_str(&text).expect("a result file is valid JSON")
    }

    /// The process id of the executor, if one is running.
    pub(crate) fn executor(&self) -> Option<Pid> {
        let status = self.run(&["executor", "status"]);
        // An executor that fails to start, as with a damaged store, holds the lock for a moment.
        if status.stdout.is_empty() {
            assert_eq!(status.exit, 7, "{status}");
            return None;
        }
        let pid = status.json()["pid"].as_i64()?;
        Some(Pid::from_raw(i32::try_from(pid).expect("a process id")))
    }

    /// Kills the executor with SIGKILL; returns `None` if none was running.
    pub(crate) fn kill_executor(&self) -> Option<Pid> {
        let pid = self.executor()?;
        // Fails if it has just ended by itself.
        kill(pid, Signal::SIGKILL).ok();
        // A zombie still has its files, and with them its locks, while other threads of it are ending.
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        until("the executor is gone", || !is_alive(pid) && threads() <= 1);
        Some(pid)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Kills all executors of this world, even those that hold no lock, and then the programs that they started,
        // which might otherwise run forever.
        let root = self.root.path();
        // Of an executor that is closed to its own user, only the lock tells.
        let locked = Mailbox::open(&self.mailbox()).ok().and_then(|mailbox| mailbox.executor().ok().flatten());
        let locked = locked.and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        for pid in executors_in(root).into_iter().chain(locked).chain(programs_in(root)) {
            // Fails if it has just ended by itself.
            kill(pid, Signal::SIGKILL).ok();
        }
    }
}

/// The processes whose working directory is below `root`.
fn programs_in(root: &Path) -> Vec<Pid> {
    let is_in = |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder.starts_with(root));
    processes().filter(is_in).map(Pid::from_raw).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = i32::try_from(std::process::id()).expect("a process id");
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| *pid != own)
}

/// The processes whose environment names a mailbox below `root`.
fn executors_in(root: &Path) -> Vec<Pid> {
    let mark = format!("AGENT_MAGIC_TOOL_DIR={}", root.display()).into_bytes();
    let is_here = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|part| part == mark)
    };
    processes().filter(is_here).map(Pid::from_raw).collect()
}

pub(crate) fn is_alive(pid: Pid) -> bool {
    // A zombie has ended; its parent has not read its exit status yet.
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    state.is_some_and(|state| state != 'Z')
}

/// Waits until `holds`; fails the test if it never does.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let looked = Instant::now();
        if holds() {
            return;
        }
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        pause(looked.elapsed());
    }
}

/// Waits until a child process ends, like `Child::wait`; kills it and fails the test if it does not.
#[track_caller]
pub(crate) fn wait_for_end(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().expect("a child process") {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().ok();
            panic!("timed out waiting until process {} has ended", child.id());
        }
        pause(Duration::ZERO);
    }
}

/// The lines that a program prints. The next one fails the test if it does not come in time.
#[derive(Debug)]
pub(crate) struct Lines(Receiver<std::io::Result<String>>);

impl Lines {
    /// Reads in a thread, which ends with the stream.
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stream).lines().try_for_each(|line| sender.send(line)).ok();
        });
        Self(lines)
    }

    /// Waits until the stream ends.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        while !matches!(self.0.recv_timeout(left()), Err(RecvTimeoutError::Disconnected)) {
            assert!(Instant::now() < deadline, "timed out waiting until a stream ends");
        }
    }

    #[track_caller]
    pub(crate) fn next(&self) -> String {
        match self.0.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => line.expect("readable"),
            Err(RecvTimeoutError::Disconnected) => panic!("the program printed no more lines"),
            Err(RecvTimeoutError::Timeout) => panic!("timed out waiting for the next line of a program"),
        }
    }
}

/// The pause between two checks of a condition. A check that starts programs and takes as long as `look` must not keep the
/// processor busy on which what it waits for happens.
#[expect(clippy::disallowed_methods, reason = "the one place where tests wait, for a condition and with a deadline")]
fn pause(look: Duration) {
    std::thread::sleep((look * 2).clamp(Duration::from_millis(2), Duration::from_millis(100)));
}

impl Transcript {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in: {self}"))
    }

    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in: {self}"));
        error["error"].clone()
    }
}

/// Prints the transcript with everything masked that differs from run to run.
impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = |text: &str| {
            let text = self.masks.iter().fold(text.to_owned(), |text, (value, mask)| text.replace(value, mask));
            mask_values(&text)
        };
        writeln!(f, "exit: {}", self.exit)?;
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                writeln!(f, "--- {name}\n{}", masked(text).trim_end())?;
            }
        }
        Ok(())
    }
}

/// Masks ids, times and durations.
fn mask_values(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        masked.push_str(&rest[..start]);
        rest = &rest[start..];
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.'))).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        masked.push_str(&mask_word(word, &masked));
        rest = after;
    }
    masked.push_str(rest);
    masked
}

fn mask_word(word: &str, before: &str) -> String {
    let is_id = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if before.ends_with("\"duration_ms\":") || before.ends_with("\"duration_ms\": ") {
        return "N".to_owned();
    }
    if word.len() >= 20 && word.as_bytes()[4] == b'-' && word.ends_with('Z') && word.contains('T') {
        return "TIME".to_owned();
    }
    let parts: Vec<_> = word
        .split('-')
        .map(|part| part.split('.').map(|p| if is_id(p) { "ID" } else { p }).collect::<Vec<_>>().join("."))
        .collect();
    parts.join("-")
}
