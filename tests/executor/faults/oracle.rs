//! The test oracle: checks the guarantees of the executor after any fault.
//!
//! **A**: every accepted task is recorded. **B**: every placeholder becomes final. **C**: a `once` tool takes effect
//! at most once, and a task that succeeded took effect. **D**: no reader sees an incomplete file, or a final file
//! that changes. **E**: a refused request leaves no trace. **F**: a hook is told of every end at least once, always
//! with the same id of the event; only in a world [`Oracle::with_hook`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use protocol::task::{State, Step, TaskId};
use serde_json::{Value, json};
use store::Store as _;
use store::sqlite::SqliteStore;

use crate::world::{Transcript, World, full_program, until};

/// The effect class of a task, which decides what may happen to it if its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    Idempotent,
    Once,
    /// A lookup finds out whether it took effect. Only where it is asked for.
    Verifiable,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Idempotent, Self::Once];

    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Once => "once",
            Self::Verifiable => "verifiable",
        }
    }
}

/// An accepted task.
#[derive(Debug, Clone)]
struct AcceptedTask {
    class: Class,
    name: String,
}

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) world: World,
    next: AtomicUsize,
    /// By id.
    accepted: Mutex<BTreeMap<String, AcceptedTask>>,
    /// The names of tasks that may have been accepted: their `run` reported an unknown outcome, or was killed.
    uncertain: Mutex<BTreeSet<String>>,
    /// What `run` printed for each name that was refused.
    refused: Mutex<BTreeMap<String, String>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<BTreeMap<PathBuf, Vec<u8>>>>,
    /// The final files that readers saw.
    seen: BTreeMap<PathBuf, Vec<u8>>,
    has_hook: bool,
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self::with("")
    }

    /// Creates a world with more lines for the section `executor` of the configuration.
    pub(super) fn with(executor: &str) -> Self {
        let world = World::new();
        world.configure(&configuration(executor));
        let tool = |annotations: &Value| {
            json!({
                "description": "Takes effect: a line in a log.",
                "input": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "pause": {"type": "string", "default": "0"}}},
                "annotations": annotations, "confirm": "never",
                "run": {"process": {"folder": ".", "argv": ["sh", "-c",
                    "echo \"$1\" >> effects.log; [ \"$2\" = 0 ] || sleep \"$2\"; echo more than twenty bytes of text",
                    "effect", "{{ name }}", "{{ pause }}"]}}
            })
        };
        let mut verifiable = tool(&json!({}));
        verifiable["verify"] =
            json!({"subtool": "effects_of", "input": {"name": "{{ name }}"}, "happened": ". != \"0\""});
        let effects_of = json!({
            "description": "Counts the effects of one name.",
            "input": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"folder": ".", "argv":
                ["sh", "-c", "grep -cxF \"$1\" effects.log || true", "count", "{{ name }}"]}}
        });
        world.define(
            "effects.json",
            &json!({"read": tool(&json!({"readOnlyHint": true})), "idempotent": tool(&json!({"idempotentHint": true})),
                "once": tool(&json!({})), "verifiable": verifiable, "effects_of": effects_of}),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let (results, stop) = (world.mailbox().join("results"), Arc::clone(&stop));
            move || watch(&results, &stop)
        });
        Self {
            world,
            next: AtomicUsize::new(0),
            accepted: Mutex::default(),
            uncertain: Mutex::default(),
            refused: Mutex::default(),
            stop,
            reader: Some(reader),
            seen: BTreeMap::new(),
            has_hook: false,
        }
    }

    /// Creates a world whose hook keeps every event.
    pub(super) fn with_hook() -> Self {
        let mut oracle = Self::new();
        oracle.has_hook = true;
        let log = oracle.world.folder().join("events.log");
        let keep = json!(format!("printf '%s\\n' \"$(cat)\" >> '{}'", log.display()));
        oracle.world.configure(&format!("{}\n[hooks.keep]\ncommand = [\"sh\", \"-c\", {keep}]\n", configuration("")));
        oracle
    }

    /// Starts an executor with `environment`, and waits until it serves.
    pub(super) fn executor(&self, environment: &[(&str, &str)]) -> Child {
        self.executor_under("", environment)
    }

    /// As [`Self::executor`], with shell commands that prepare the process before it starts.
    pub(super) fn executor_under(&self, before: &str, environment: &[(&str, &str)]) -> Child {
        loop {
            let mut child = self.spawn(before, environment);
            let mut ended = None;
            until("the executor serves", || {
                ended = child.try_wait().expect("a child process");
                ended.is_some() || self.holds_executor_lock(&child)
            });
            match ended {
                None => return child,
                // An executor that an earlier command started was faster.
                Some(status) => assert_eq!(status.code(), Some(7), "with {environment:?} it ended: {status}"),
            }
            self.world.kill_executor();
        }
    }

    pub(super) fn spawn(&self, before: &str, environment: &[(&str, &str)]) -> Child {
        let script = format!("{before}\nexec \"$0\" executor run");
        let program = full_program();
        let mut command = self.world.within("sh", &["-c", &script, program.to_str().expect("a UTF-8 path")]);
        let log = fs::File::create(self.stderr()).expect("a file");
        let child = command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(log);
        child.spawn().expect("started")
    }

    /// The stderr of the executor of [`Self::spawn`].
    pub(super) fn stderr(&self) -> PathBuf {
        self.world.home().join("executor.stderr")
    }

    pub(super) fn holds_executor_lock(&self, child: &Child) -> bool {
        let mailbox = Mailbox::open(&self.world.mailbox()).expect("a mailbox");
        mailbox.executor().expect("readable") == Some(child.id())
    }

    /// Runs a task that must be accepted, and returns its id.
    pub(super) fn accept(&self, class: Class, more: &Value) -> String {
        self.run(class, more).unwrap_or_else(|ran| panic!("not accepted: {ran}"))
    }

    /// Runs a task, and returns its id, or the transcript if it was not accepted.
    pub(super) fn run(&self, class: Class, more: &Value) -> Result<String, Box<Transcript>> {
        let (name, input) = self.next_input(class, more);
        let ran = self.world.run(&["run", class.tool(), "--input", &input]);
        if ran.exit == 0 {
            let id = ran.json()["id"].as_str().expect("an id").to_owned();
            self.accepted.lock().expect("no thread panicked").insert(id.clone(), AcceptedTask { class, name });
            return Ok(id);
        }
        if ran.error()["details"]["id"].is_string() {
            self.mark_uncertain(&name);
        } else {
            self.refused.lock().expect("no thread panicked").insert(name, ran.to_string());
        }
        Err(Box::new(ran))
    }

    /// Runs a task, and kills the command `after` its start. The task counts as accepted if the command printed its id.
    pub(super) fn run_and_kill(&self, class: Class, more: &Value, after: Duration) {
        let (name, input) = self.next_input(class, more);
        let mut command = self.world.command(&["run", class.tool(), "--input", &input]);
        let mut caller = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
        thread::park_timeout(after);
        // The command may have ended already.
        caller.kill().ok();
        let output = caller.wait_with_output().expect("ended");
        let printed: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match printed.as_ref().and_then(|printed| printed["id"].as_str()) {
            Some(id) => {
                self.accepted.lock().expect("no thread panicked").insert(id.to_owned(), AcceptedTask { class, name });
            }
            None => self.mark_uncertain(&name),
        }
    }

    /// A new name for a task, and its input.
    fn next_input(&self, class: Class, more: &Value) -> (String, String) {
        let name = format!("{}-{}", class.tool(), self.next.fetch_add(1, Ordering::Relaxed));
        let mut input = json!({"name": name});
        input
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        (name, input.to_string())
    }

    /// As [`Self::run`], but a task whose command fails is uncertain.
    pub(super) fn run_uncertain(&self, class: Class, more: &Value) -> Result<String, Box<Transcript>> {
        let next = self.next.load(Ordering::Relaxed);
        let ran = self.run(class, more);
        if ran.is_err() {
            // With concurrent callers this marks more names than necessary, but never fewer.
            let names = (next..self.next.load(Ordering::Relaxed)).map(|number| format!("{}-{number}", class.tool()));
            self.uncertain.lock().expect("no thread panicked").extend(names);
        }
        ran
    }

    /// Allows a task that was accepted without a known id, since its caller was killed.
    pub(super) fn mark_uncertain(&self, name: &str) {
        self.uncertain.lock().expect("no thread panicked").insert(name.to_owned());
    }

    /// How often each name took effect.
    pub(super) fn effects(&self) -> BTreeMap<String, usize> {
        let mut effects = BTreeMap::new();
        let log = fs::read_to_string(self.world.folder().join("effects.log")).unwrap_or_default();
        for line in log.lines() {
            *effects.entry(line.to_owned()).or_default() += 1;
        }
        effects
    }

    /// The store of this world.
    pub(super) fn record(&self) -> PathBuf {
        let executors = fs::read_dir(self.world.state().join("executors")).expect("the folder of an executor");
        executors.flatten().next().expect("the folder of an executor").path().join("tasks.db")
    }

    /// **B**: checks that every accepted task ends after any command.
    pub(super) fn until_final(&self) {
        let ids: Vec<String> = self.accepted.lock().expect("no thread panicked").keys().cloned().collect();
        for id in &ids {
            let ran = self.world.run(&["wait", id, "--timeout=60s"]);
            assert_ne!(ran.json()["status"], "pending", "{ran}");
        }
    }

    /// Removes the mailbox, as a power loss does if it is in memory.
    pub(super) fn lose_mailbox(&mut self) {
        self.stop_reader();
        fs::remove_dir_all(self.world.mailbox()).expect("removed");
    }

    /// **A**: waits until a new mailbox has the results of all accepted tasks.
    pub(super) fn until_restored(&self) {
        for id in self.accepted.lock().expect("no thread panicked").keys() {
            let file = self.world.mailbox().join(format!("results/result-{id}.json"));
            until("**A**: the result of an accepted task is restored", || file.exists());
        }
    }

    /// Stops the reader; afterwards files may be removed.
    pub(super) fn stop_reader(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            self.seen = reader.join().expect("**D**: a reader without failures");
        }
    }

    /// Waits for all tasks, stops the executor, and checks all guarantees. Returns the number of tasks by final status.
    pub(super) fn verify(mut self) -> BTreeMap<String, usize> {
        self.until_final();
        // An executor that was killed right after a result left the removal of its request to the next one.
        let started = self.world.run(&["executor", "start"]);
        assert_eq!(started.exit, 0, "{started}");
        if self.has_hook {
            self.verify_events();
        }
        let stopped = self.world.run(&["executor", "stop"]);
        assert_eq!(stopped.exit, 0, "{stopped}");
        self.stop_reader();
        let effects = self.effects();
        let accepted = self.accepted.lock().expect("no thread panicked").clone();
        let uncertain = self.uncertain.lock().expect("no thread panicked").clone();
        let store = SqliteStore::open(&self.record()).expect("an intact store");
        assert_eq!(store.open_tasks().expect("read"), [], "**B**: there are open tasks");
        let refused = self.refused.lock().expect("no thread panicked").clone();
        let mut ends = BTreeMap::new();
        let mut recorded = BTreeSet::new();
        for ended in store.ended_since(Timestamp::UNIX_EPOCH).expect("read") {
            let task = store.task(ended.id).expect("read").expect("a recorded task");
            let id = task.id.to_string();
            let name = task.input["name"].as_str().expect("a name").to_owned();
            assert!(
                accepted.contains_key(&id) || uncertain.contains(&name),
                "**E**: {name} was refused, but is recorded as {task:?}\n{}",
                refused.get(&name).map_or("", String::as_str)
            );
            recorded.insert(name);
            self.verify_steps(&store, task.id, task.state, task.attempt);
        }
        for (id, AcceptedTask { class, name }) in &accepted {
            assert!(recorded.contains(name), "**A**: {name} was accepted as {id}, but is not recorded");
            let file = self.world.result_file(id);
            let status = file["status"].as_str().expect("a status").to_owned();
            let times = effects.get(name).copied().unwrap_or(0);
            let case = format!("**C**: {name} took effect {times} times: {file}");
            match (class, status.as_str()) {
                (Class::Once | Class::Verifiable, "succeeded") => assert_eq!(times, 1, "{case}"),
                (Class::Once | Class::Verifiable, "unknown" | "cancelled") => assert!(times <= 1, "{case}"),
                (_, "failed") => assert!(times == 0 || *class != Class::Once, "{case}"),
                (Class::Read | Class::Idempotent, "succeeded") => assert!(times >= 1, "{case}"),
                (_, "cancelled") => {}
                _ => panic!("{case}"),
            }
            *ends.entry(status).or_default() += 1;
        }
        for (path, bytes) in &self.seen {
            let now = fs::read(path).expect("a final file is kept");
            assert_eq!(
                String::from_utf8_lossy(bytes),
                String::from_utf8_lossy(&now),
                "**D**: a file changed after it was final"
            );
        }
        for name in effects.keys() {
            assert!(recorded.contains(name), "**E**: {name} was refused, but took effect");
        }
        for folder in ["inbox", "taken"] {
            let left = fs::read_dir(self.world.mailbox().join(folder)).expect("a folder").flatten();
            let left: Vec<_> =
                left.map(|entry| entry.file_name()).filter(|name| !name.as_encoded_bytes().starts_with(b".")).collect();
            assert!(left.is_empty(), "left in `{folder}`: {left:?}");
        }
        ends
    }

    /// **F**: waits until the hook was told of every accepted task, and checks that a repeated event has the same id.
    fn verify_events(&self) {
        let events = || -> BTreeMap<String, BTreeSet<String>> {
            let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let log = fs::read_to_string(self.world.folder().join("events.log")).unwrap_or_default();
            for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                let text = |value: &Value| value.as_str().expect("an id").to_owned();
                ids.entry(text(&event["data"]["id"])).or_default().insert(text(&event["id"]));
            }
            ids
        };
        let accepted: BTreeSet<String> = self.accepted.lock().expect("no thread panicked").keys().cloned().collect();
        until("**F**: the hook was told of every end", || {
            let told = events();
            accepted.iter().all(|id| told.contains_key(id))
        });
        for (task, ids) in events() {
            assert_eq!(ids, BTreeSet::from([format!("{task}.final")]), "**F**: the id of the event of {task}");
        }
    }

    /// Checks that the recorded steps lead to the recorded state.
    fn verify_steps(&self, store: &SqliteStore, id: TaskId, state: State, attempt: u32) {
        let steps = store.steps(id).expect("read");
        let replayed = steps.iter().try_fold(State::Accepted, |state, recorded| state.after(recorded.step));
        assert_eq!(replayed, Ok(state), "the steps of {id}: {steps:?}");
        // A lookup counts as an attempt.
        let starts = steps.iter().filter(|recorded| matches!(recorded.step, Step::Start | Step::Verify)).count();
        assert_eq!(starts, usize::try_from(attempt).expect("small"), "the steps of {id}: {steps:?}");
        let file = self.world.result_file(&id.to_string());
        assert_eq!(file["status"], state.as_str(), "the result file and the store should agree");
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if thread::panicking() {
            // The log is removed with the world, so print it for the analysis of the failure.
            use std::io::Write as _;
            let stderr = fs::read_to_string(self.stderr()).unwrap_or_default();
            writeln!(std::io::stderr(), "{stderr}").expect("written");
            let executors = fs::read_dir(self.world.state().join("executors")).into_iter().flatten().flatten();
            for executor in executors {
                let log = fs::read_to_string(executor.path().join("executor.log")).unwrap_or_default();
                let last: Vec<_> = log.lines().rev().take(40).collect();
                let last: Vec<_> = last.into_iter().rev().collect();
                writeln!(std::io::stderr(), "{}", last.join("\n")).expect("written");
            }
        }
    }
}

pub(super) fn configuration(executor: &str) -> String {
    format!("[executor]\ninline_bytes = 20\n{executor}\n[confirm]\nwrites = \"allow\"\n")
}

/// **D**: reads all result files repeatedly until `stop`. Returns the final files.
fn watch(results: &std::path::Path, stop: &AtomicBool) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut ended: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        for entry in fs::read_dir(results).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap_or_default();
            if !name.starts_with("result-") || name.contains(".data.") {
                continue;
            }
            let Ok(bytes) = fs::read(&path) else { continue };
            let file: Value = serde_json::from_slice(&bytes)
                .unwrap_or_else(|error| panic!("{error} in {name}: {:?}", String::from_utf8_lossy(&bytes)));
            if let Some(before) = ended.get(&path) {
                assert_eq!(
                    String::from_utf8_lossy(before),
                    String::from_utf8_lossy(&bytes),
                    "a file changed after it was final"
                );
            } else if file["status"] != "pending" {
                if let Some(data) = file["_meta"]["data_file"].as_str() {
                    assert!(fs::exists(data).is_ok_and(|exists| exists), "{name} refers to missing data");
                }
                ended.insert(path, bytes);
            }
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    ended
}
