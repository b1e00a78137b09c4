//! The oracle: one judge for every fault.
//!
//! **A** what was accepted is recorded; **B** every placeholder becomes final; **C** a `once` tool
//! takes effect at most once, and what succeeded took effect; **D** no reader sees half a file, or one
//! that changes after it was final; **E** what was refused leaves no trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use executor::store::Store as _;
use executor::store::sqlite::SqliteStore;
use jiff::Timestamp;
use protocol::mailbox::Mailbox;
use protocol::task::{State, Step, TaskId};
use serde_json::{Value, json};

use crate::world::{PROGRAM, Transcript, World, until};

/// What may become of a task whose end nobody saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    Idempotent,
    Once,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Idempotent, Self::Once];

    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Once => "once",
        }
    }
}

/// One `run`, and what it said.
#[derive(Debug, Clone)]
struct Asked {
    class: Class,
    name: String,
}

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) world: World,
    next: AtomicUsize,
    told: Mutex<BTreeMap<String, Asked>>,
    /// Nobody knows whether these were accepted: their `run` said so, or was killed.
    unsure: Mutex<BTreeSet<String>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<BTreeMap<PathBuf, Vec<u8>>>>,
    /// The final files that readers saw.
    seen: BTreeMap<PathBuf, Vec<u8>>,
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self::with("")
    }

    /// With more lines for the section `executor` of the configuration.
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
        world.define(
            "effects.json",
            &json!({"read": tool(&json!({"readOnlyHint": true})),
                "idempotent": tool(&json!({"idempotentHint": true})), "once": tool(&json!({}))}),
        );
        let stop = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let (results, stop) = (world.mailbox().join("results"), Arc::clone(&stop));
            move || watch(&results, &stop)
        });
        Self {
            world,
            next: AtomicUsize::new(0),
            told: Mutex::default(),
            unsure: Mutex::default(),
            stop,
            reader: Some(reader),
            seen: BTreeMap::new(),
        }
    }

    /// An executor of our own, with `environment`; in office when this returns.
    pub(super) fn executor(&self, environment: &[(&str, &str)]) -> Child {
        self.executor_under("", environment)
    }

    /// Likewise, once the lines of shell `before` have prepared its process.
    pub(super) fn executor_under(&self, before: &str, environment: &[(&str, &str)]) -> Child {
        loop {
            let mut child = self.spawn(before, environment);
            let mut ended = None;
            until("the executor is in office", || {
                ended = child.try_wait().expect("asked");
                ended.is_some() || self.holds_executor_lock(&child)
            });
            match ended {
                None => return child,
                // One that a command of before had started was quicker.
                Some(status) => assert_eq!(status.code(), Some(7), "with {environment:?} it ended: {status}"),
            }
            self.world.kill_executor();
        }
    }

    pub(super) fn spawn(&self, before: &str, environment: &[(&str, &str)]) -> Child {
        let script = format!("{before}\nexec \"$0\" executor run");
        let mut command = self.world.within("sh", &["-c", &script, PROGRAM]);
        let log = fs::File::create(self.stderr()).expect("a file");
        let child = command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(log);
        child.spawn().expect("it starts")
    }

    /// What the executor of [`Self::spawn`] says.
    pub(super) fn stderr(&self) -> PathBuf {
        self.world.home().join("executor.stderr")
    }

    pub(super) fn holds_executor_lock(&self, child: &Child) -> bool {
        let mailbox = Mailbox::open(&self.world.mailbox()).expect("a mailbox");
        mailbox.executor().expect("asked") == Some(child.id())
    }

    /// Runs a task that must be accepted; its id.
    pub(super) fn accept(&self, class: Class, more: &Value) -> String {
        self.ask(class, more).unwrap_or_else(|ran| panic!("not accepted: {ran}"))
    }

    /// Runs a task; its id, or what was said instead.
    pub(super) fn ask(&self, class: Class, more: &Value) -> Result<String, Box<Transcript>> {
        let (name, input) = self.next_input(class, more);
        let ran = self.world.run(&["run", class.tool(), "--input", &input]);
        if ran.exit == 0 {
            let id = ran.json()["id"].as_str().expect("an id").to_owned();
            self.told.lock().expect("nobody panicked").insert(id.clone(), Asked { class, name });
            return Ok(id);
        }
        if ran.error()["id"].is_string() {
            self.unsure.lock().expect("nobody panicked").insert(name);
        }
        Err(Box::new(ran))
    }

    /// Runs a task and kills the command so long after its start; what it had said by then counts.
    pub(super) fn ask_and_kill(&self, class: Class, more: &Value, after: Duration) {
        let (name, input) = self.next_input(class, more);
        let mut command = self.world.command(&["run", class.tool(), "--input", &input]);
        let mut caller = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        thread::park_timeout(after);
        // One that has ended cannot be killed, and need not be.
        caller.kill().ok();
        let output = caller.wait_with_output().expect("it ended");
        let said: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match said.as_ref().and_then(|said| said["id"].as_str()) {
            Some(id) => {
                self.told.lock().expect("nobody panicked").insert(id.to_owned(), Asked { class, name });
            }
            None => self.forgive(&name),
        }
    }

    /// A name of its own for one more task, and its input.
    fn next_input(&self, class: Class, more: &Value) -> (String, String) {
        let name = format!("{}-{}", class.tool(), self.next.fetch_add(1, Ordering::Relaxed));
        let mut input = json!({"name": name});
        input
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        (name, input.to_string())
    }

    /// As [`Self::ask`]; where the command ends with an error, nobody knows what became of it.
    pub(super) fn ask_unsure(&self, class: Class, more: &Value) -> Result<String, Box<Transcript>> {
        let next = self.next.load(Ordering::Relaxed);
        let asked = self.ask(class, more);
        if asked.is_err() {
            // Another caller may have come between: then one more is unsure, no less is.
            let names = (next..self.next.load(Ordering::Relaxed)).map(|number| format!("{}-{number}", class.tool()));
            self.unsure.lock().expect("nobody panicked").extend(names);
        }
        asked
    }

    /// Nobody was told of this one: its caller was killed.
    pub(super) fn forgive(&self, name: &str) {
        self.unsure.lock().expect("nobody panicked").insert(name.to_owned());
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

    /// The one record of this world.
    pub(super) fn record(&self) -> PathBuf {
        let executors = fs::read_dir(self.world.state().join("executors")).expect("an executor was here");
        executors.flatten().next().expect("an executor was here").path().join("tasks.db")
    }

    /// **B**: every accepted task ends, once any command was called.
    pub(super) fn until_final(&self) {
        let ids: Vec<String> = self.told.lock().expect("nobody panicked").keys().cloned().collect();
        for id in &ids {
            let ran = self.world.run(&["wait", id, "--timeout=60s"]);
            assert_ne!(ran.json()["status"], "pending", "{ran}");
        }
    }

    /// The files of the mailbox are put away, as a loss of power does where they lie in memory.
    pub(super) fn lose_mailbox(&mut self) {
        self.rest();
        fs::remove_dir_all(self.world.mailbox()).expect("removed");
    }

    /// **A**: the results of all that was accepted come back into a new mailbox.
    pub(super) fn until_back(&self) {
        for id in self.told.lock().expect("nobody panicked").keys() {
            let file = self.world.mailbox().join(format!("results/result-{id}.json"));
            until("**A**: what was accepted is back", || file.exists());
        }
    }

    /// Ends the readers; from now on files may be put away.
    pub(super) fn rest(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            self.seen = reader.join().expect("**D**: a reader that saw only whole files, and no change of a final one");
        }
    }

    /// Waits for the end of everything, stops the executor, and judges.
    pub(super) fn judge(mut self) -> BTreeMap<String, usize> {
        self.until_final();
        // Whoever was killed right after a result was there left its request to the next one.
        let started = self.world.run(&["executor", "start"]);
        assert_eq!(started.exit, 0, "{started}");
        let stopped = self.world.run(&["executor", "stop"]);
        assert_eq!(stopped.exit, 0, "{stopped}");
        self.rest();
        let effects = self.effects();
        let told = self.told.lock().expect("nobody panicked").clone();
        let unsure = self.unsure.lock().expect("nobody panicked").clone();
        let store = SqliteStore::open(&self.record()).expect("a whole record");
        assert_eq!(store.open_tasks().expect("read"), [], "**B**: nothing stays open");
        let mut ends = BTreeMap::new();
        let mut known = BTreeSet::new();
        for ended in store.ended_since(Timestamp::UNIX_EPOCH).expect("read") {
            let task = store.task(ended.id).expect("read").expect("it ended");
            let id = task.id.to_string();
            let name = task.input["name"].as_str().expect("a name").to_owned();
            assert!(
                told.contains_key(&id) || unsure.contains(&name),
                "**E**: {name} was refused, and is recorded as {task:?}"
            );
            known.insert(name);
            self.judge_story(&store, task.id, task.state, task.attempt);
        }
        for (id, Asked { class, name }) in &told {
            assert!(known.contains(name), "**A**: {name} was accepted as {id}, and there is no record");
            let file = self.world.result_file(id);
            let status = file["status"].as_str().expect("a status").to_owned();
            let times = effects.get(name).copied().unwrap_or(0);
            let case = format!("**C**: {name} took effect {times} times: {file}");
            match (class, status.as_str()) {
                (Class::Once, "succeeded") => assert_eq!(times, 1, "{case}"),
                (Class::Once, "unknown" | "cancelled") => assert!(times <= 1, "{case}"),
                (_, "failed") => assert!(times == 0 || *class != Class::Once, "{case}"),
                (Class::Read | Class::Idempotent, "succeeded") => assert!(times >= 1, "{case}"),
                (_, "cancelled") => {}
                _ => panic!("{case}"),
            }
            *ends.entry(status).or_default() += 1;
        }
        for (path, bytes) in &self.seen {
            let now = fs::read(path).expect("a final file stays");
            assert_eq!(
                String::from_utf8_lossy(bytes),
                String::from_utf8_lossy(&now),
                "**D**: it changed after its end"
            );
        }
        for name in effects.keys() {
            assert!(known.contains(name), "**E**: {name} was refused, and took effect");
        }
        for folder in ["inbox", "taken"] {
            let left = fs::read_dir(self.world.mailbox().join(folder)).expect("a folder").flatten();
            let left: Vec<_> =
                left.map(|entry| entry.file_name()).filter(|name| !name.as_encoded_bytes().starts_with(b".")).collect();
            assert!(left.is_empty(), "left in `{folder}`: {left:?}");
        }
        ends
    }

    /// The steps that are recorded lead to the state that is recorded, and to one end.
    fn judge_story(&self, store: &SqliteStore, id: TaskId, state: State, attempt: u32) {
        let steps = store.steps(id).expect("read");
        let replayed = steps.iter().try_fold(State::Accepted, |state, recorded| state.after(recorded.step));
        assert_eq!(replayed, Ok(state), "the story of {id}: {steps:?}");
        let starts = steps.iter().filter(|recorded| recorded.step == Step::Start).count();
        assert_eq!(starts, usize::try_from(attempt).expect("small"), "the story of {id}: {steps:?}");
        let file = self.world.result_file(&id.to_string());
        assert_eq!(file["status"], state.as_str(), "the file says what the record says");
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if thread::panicking() {
            // The log goes with the world; what it says is what one wants to know now.
            use std::io::Write as _;
            let own = fs::read_to_string(self.stderr()).unwrap_or_default();
            writeln!(std::io::stderr(), "{own}").expect("said");
            let executors = fs::read_dir(self.world.state().join("executors")).into_iter().flatten().flatten();
            for executor in executors {
                let log = fs::read_to_string(executor.path().join("executor.log")).unwrap_or_default();
                let last: Vec<_> = log.lines().rev().take(40).collect();
                let last: Vec<_> = last.into_iter().rev().collect();
                writeln!(std::io::stderr(), "{}", last.join("\n")).expect("said");
            }
        }
    }
}

pub(super) fn configuration(executor: &str) -> String {
    format!("[executor]\ninline_bytes = 20\n{executor}\n[confirm]\nwrites = \"allow\"\n")
}

/// **D**: reads every result file as fast as it can, until `stop`.
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
                    "it changed after its end"
                );
            } else if file["status"] != "pending" {
                if let Some(data) = file["_meta"]["data_file"].as_str() {
                    assert!(fs::exists(data).is_ok_and(|there| there), "{name} refers to data that is not there");
                }
                ended.insert(path, bytes);
            }
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    ended
}
