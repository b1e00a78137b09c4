//! Separate folders for each test, and executors in separate processes.
//!
//! An executor is this test program itself, started with an environment that makes it one.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;
use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, Request, RunRequest};
use protocol::paths::Paths;
use protocol::task::TaskId;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long to wait for anything in these tests: longer than it takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

const FOLDER: &str = "AGENT_MAGIC_TOOL_TEST_EXECUTOR";
const ENDED: &str = "AGENT_MAGIC_TOOL_TEST_ENDED";

pub(crate) struct World {
    folder: TempDir,
    pub(crate) paths: Paths,
    pub(crate) mailbox: Mailbox,
}

/// The first reply to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Result(Value),
    Answer(Answer),
}

/// How an executor ended: the name of the `Ended` variant, and the CPU time it used.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) ended: String,
    pub(crate) cpu: Duration,
}

/// A running executor, killed on drop.
pub(crate) struct Executor {
    child: Child,
    report: PathBuf,
    log: PathBuf,
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.kill();
    }
}

fn paths(folder: &Path) -> Paths {
    let mut paths = Paths::from_env().expect("a home folder");
    paths.mailbox = folder.join("mailbox");
    paths.config = folder.join("config");
    paths.state = folder.join("state");
    paths.cache = folder.join("cache");
    paths
}

/// Waits until `condition` returns something; panics if it takes too long.
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

impl World {
    /// Creates a world with the given `[executor]` settings and the subtools that tests use.
    pub(crate) fn new(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths = paths(folder.path());
        fs::create_dir_all(paths.config.join("subtools")).expect("folders");
        let mailbox = Mailbox::open(&paths.mailbox).expect("a mailbox");
        let world = Self { folder, paths, mailbox };
        world.configure(settings);
        // Logs its start, then waits until the file at its path exists. A program that outlives its executor ends
        // when the folder of the test is removed.
        let gate =
            r#"echo began >> "$1.log"; until [ -e "$1" ]; do [ -d "${1%/*}" ] || exit; sleep 0.01; done; echo passed"#;
        let gate = json!({"process": {"argv": ["sh", "-c", gate, "sh", "{{ path }}"]}});
        let input =
            |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
        world.define(
            "test",
            &json!({
                "say": {"description": "d", "input": input("text"), "annotations": {"readOnlyHint": true},
                        "run": {"process": {"argv": ["echo", "{{ text }}"]}}},
                "read": {"description": "d", "input": input("path"), "annotations": {"readOnlyHint": true},
                         "run": {"builtin": {"read_file": {"path": "{{ path }}"}}}},
                "read_gate": {"description": "d", "input": input("path"), "annotations": {"readOnlyHint": true}, "run": gate},
                "gate": {"description": "d", "input": input("path"), "confirm": "never", "run": gate},
                "write": {"description": "d", "input": input("path"), "run": gate},
            }),
        );
        world
    }

    pub(crate) fn configure(&self, settings: &str) {
        fs::write(self.paths.config_file(), format!("[executor]\n{settings}\n")).expect("written");
    }

    pub(crate) fn define(&self, file: &str, definitions: &Value) {
        let path = self.paths.config.join(format!("subtools/{file}.json"));
        fs::write(path, definitions.to_string()).expect("written");
    }

    /// The folder of the callers.
    pub(crate) fn home(&self) -> PathBuf {
        let home = self.folder.path().join("home");
        fs::create_dir_all(&home).expect("a folder");
        home
    }

    /// The path of a gate: a task at this gate waits until [`World::open`].
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    pub(crate) fn open(&self, name: &str) {
        fs::write(self.gate(name), "").expect("written");
    }

    /// How many tasks have started at this gate.
    pub(crate) fn arrivals(&self, name: &str) -> usize {
        fs::read_to_string(self.home().join(format!("{name}.log"))).map_or(0, |log| log.lines().count())
    }

    /// Posts a task at a gate, and waits until it has started.
    pub(crate) fn arrive(&self, tool: &str, name: &str) -> TaskId {
        let before = self.arrivals(name);
        let id = self.post_run(tool, json!({"path": self.gate(name)}));
        eventually("the task runs", || (self.arrivals(name) > before).then_some(()));
        id
    }

    pub(crate) fn post(&self, operation: Operation) -> TaskId {
        self.post_from(None, operation)
    }

    pub(crate) fn post_as(&self, session: &str, operation: Operation) -> TaskId {
        self.post_from(Some(session.to_owned()), operation)
    }

    fn post_from(&self, session: Option<String>, operation: Operation) -> TaskId {
        let id = TaskId::new();
        let request = Request::new(operation, Caller { session, folder: Some(self.home()), ..Caller::default() });
        self.mailbox.post(id, &request).expect("posted");
        id
    }

    pub(crate) fn post_run(&self, tool: &str, input: Value) -> TaskId {
        self.post(Operation::run(run(tool, input)))
    }

    /// Waits for the first reply to a request.
    pub(crate) fn reply(&self, id: TaskId) -> Reply {
        eventually("there is a reply", || {
            if let Some(answer) = self.mailbox.collect_answer(id).expect("readable") {
                return Some(Reply::Answer(serde_json::from_slice(&answer).expect("an answer")));
            }
            self.result(id).map(Reply::Result)
        })
    }

    pub(crate) fn answer(&self, id: TaskId) -> Answer {
        match self.reply(id) {
            Reply::Answer(answer) => answer,
            Reply::Result(result) => panic!("a result: {result}"),
        }
    }

    /// The current content of the result file.
    pub(crate) fn result(&self, id: TaskId) -> Option<Value> {
        let text = fs::read(self.mailbox.result_file(id)).ok()?;
        Some(serde_json::from_slice(&text).expect("a result file is complete at any moment"))
    }

    pub(crate) fn wait(&self, id: TaskId) -> Value {
        eventually("the result is final", || self.result(id).filter(|result| result["status"] != "pending"))
    }

    /// The names of all files of requests and tasks in the mailbox.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for folder in ["inbox", "taken", "answers", "results"] {
            for entry in fs::read_dir(self.mailbox.root().join(folder)).expect("a folder") {
                files.push(format!("{folder}/{}", entry.expect("an entry").file_name().to_string_lossy()));
            }
        }
        files.sort();
        files
    }

    pub(crate) fn start(&self) -> Executor {
        let report = self.folder.path().join(format!("ended-{}", TaskId::new()));
        let log = report.with_extension("log");
        let output = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&log).expect("a log");
        let child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "world::executor_of_the_environment", "--nocapture", "--ignored"])
            .env(FOLDER, self.folder.path())
            .env(ENDED, &report)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .expect("started");
        Executor { child, report, log }
    }

    /// Starts an executor and waits until it answers requests.
    pub(crate) fn serve(&self) -> Executor {
        let executor = self.start();
        assert!(matches!(self.answer(self.post(Operation::Status)), Answer::Status(_)));
        executor
    }
}

pub(crate) fn run(tool: &str, input: Value) -> RunRequest {
    let Value::Object(input) = input else { panic!("the input is not an object") };
    RunRequest { tool: tool.to_owned(), input, ..RunRequest::default() }
}

impl Executor {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().expect("a process id")), signal).expect("sent");
    }

    /// Asks the executor to stop, and waits until it has started to do so.
    pub(crate) fn ask_to_stop(&self) {
        self.signal(Signal::SIGTERM);
        self.wait_for_log("the executor is stopping");
    }

    pub(crate) fn wait_for_log(&self, text: &str) {
        eventually(&format!("the log contains `{text}`"), || {
            fs::read_to_string(&self.log).ok()?.contains(text).then_some(())
        });
    }

    /// Kills the executor with SIGKILL.
    pub(crate) fn kill(&mut self) {
        // The executor may have ended by itself.
        if self.child.kill().is_ok() {
            self.child.wait().expect("a child process");
        }
    }

    pub(crate) fn end(&mut self) -> End {
        eventually("the executor ends", || self.child.try_wait().expect("a child process"));
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let report = fs::read(&self.report).unwrap_or_else(|error| panic!("no report: {error}\n{log}"));
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        End {
            ended: report["ended"].as_str().expect("a text").to_owned(),
            cpu: Duration::from_micros(report["cpu_us"].as_u64().expect("a number")),
        }
    }

    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.end().ended, "Asked");
    }
}

#[test]
#[ignore = "the tests here start it as an executor"]
fn executor_of_the_environment() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let report = PathBuf::from(std::env::var_os(ENDED).expect("set with the folder"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let ended =
        match executor::daemon::run(&paths(Path::new(&folder)), ground::base::jq_pool::JqPool::in_process(), || {}) {
            Ok(ended) => format!("{ended:?}"),
            Err(error) => format!("{error}"),
        };
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let text = json!({"ended": ended, "cpu_us": cpu}).to_string();
    fs::write(report.with_extension("new"), text).expect("written");
    fs::rename(report.with_extension("new"), report).expect("renamed");
}
