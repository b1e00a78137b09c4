//! What an agent sees of the tasks if its client shares the server with others: those of its own session alone, whatever
//! its model asks for.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::caller::Caller;
use protocol::code::Code;
use protocol::command_executor::task_in;
use protocol::digest;
use protocol::error::ErrorBody;
use protocol::shell::{PrintedOutput, Shell};
use protocol::task::TaskId;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::model::conversation::JournalEntry;

/// How many tasks `tasks` lists unless it is told otherwise.
const LISTED: usize = 50;
const LIMIT: &str = "--limit";
const FORGET: &str = "--forget-session";
const IDEMPOTENCY_KEY: &str = "--idempotency-key";

/// A shell whose agent sees the tasks of its session alone.
#[derive(Debug)]
pub struct OwnTasksShell {
    shell: Arc<dyn Shell>,
    own: Mutex<HashSet<TaskId>>,
}

impl OwnTasksShell {
    /// `entries` are those of the session so far.
    pub fn new(shell: Arc<dyn Shell>, entries: &[JournalEntry]) -> Self {
        let results = entries.iter().flat_map(|entry| match entry {
            JournalEntry::Called { results } => results.as_slice(),
            _ => &[],
        });
        let own = results.flat_map(|result| {
            result.opened.iter().map(|task| task.id).chain(result.collected.iter().copied()).collect::<Vec<_>>()
        });
        Self { shell, own: Mutex::new(own.collect()) }
    }

    fn own(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task that the words name and that is not of this session.
    fn foreign_task(&self, words: &[String]) -> Option<TaskId> {
        let is_run = words.first().is_some_and(|command| command == "run");
        let own = self.own();
        words.iter().flat_map(|word| tasks_in(word, is_run)).find(|id| !own.contains(id))
    }

    /// Lists the tasks of this session: all are asked for, since those of others are left out.
    fn list(&self, words: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        let (words, limit) = without_option(words, LIMIT);
        let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(LISTED);
        let all = words.into_iter().chain([format!("{LIMIT}=1000000")]).collect::<Vec<_>>();
        let printed = self.shell.call(&all, stdin, caller);
        let Ok(Value::Array(mut tasks)) = serde_json::from_str(&printed.stdout) else { return printed };
        let own = self.own();
        tasks.retain(|task| id_in(task).is_some_and(|id| own.contains(&id)));
        tasks.truncate(limit);
        PrintedOutput { stdout: format!("{}\n", Value::Array(tasks)), stderr: String::new(), ..printed }
    }

    /// Takes over the tasks that a call started, and those that they consist of.
    fn learn(&self, printed: &PrintedOutput) {
        let file: Value = serde_json::from_str(&printed.stdout).unwrap_or_default();
        let mut own = self.own();
        own.extend(id_in(&file));
        let mut parts = vec![&file["_meta"]];
        while let Some(part) = parts.pop() {
            match part {
                Value::String(word) => own.extend(word.parse::<TaskId>().ok()),
                Value::Array(values) => parts.extend(values),
                Value::Object(fields) => parts.extend(fields.values()),
                _ => {}
            }
        }
    }
}

impl Shell for OwnTasksShell {
    fn call(&self, words: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        if let Some(id) = self.foreign_task(words) {
            let error = ErrorBody::new(Code::UnknownTask, format!("no task `{id}` in this session"));
            return PrintedOutput::refused(&error.hint("to list the tasks: agent-magic-tool tasks"));
        }
        match words.first().map(String::as_str) {
            Some("tasks") if words.iter().any(|word| word.starts_with(FORGET)) => {
                let error = ErrorBody::new(Code::HumansOnly, "a session is deleted by the program that asks in it");
                PrintedOutput::refused(&error.hint("your user can type: !delete NUMBER"))
            }
            Some("tasks") => self.list(words, stdin, caller),
            Some("run") => {
                let printed = self.shell.call(&with_own_key(words, caller), stdin, caller);
                self.learn(&printed);
                printed
            }
            Some("read" | "wait") => {
                let printed = self.shell.call(words, stdin, caller);
                self.learn(&printed);
                printed
            }
            _ => self.shell.call(words, stdin, caller),
        }
    }

    fn may_see(&self, task: TaskId) -> bool {
        self.own().contains(&task)
    }
}

/// The tasks that a word of a command names: as a whole, or behind an `@`, as in `key=@ID.jq`. The fields of a `run` are
/// text otherwise.
fn tasks_in(word: &str, is_field: bool) -> impl Iterator<Item = TaskId> {
    let behind = word.match_indices('@').map(|(at, _)| &word[at + 1..]);
    let whole = Some(word).into_iter().chain(word.split_once('=').map(|(_, value)| value)).filter(move |_| !is_field);
    behind.chain(whole).filter_map(|place| task_in(place).or_else(|| task_in(place.split('.').next()?)))
}

/// The same words with an idempotency key that no other session can name.
fn with_own_key(words: &[String], caller: &Caller) -> Vec<String> {
    let (mut words, key) = without_option(words, IDEMPOTENCY_KEY);
    if let Some(key) = key {
        let session = digest::hex(&Sha256::digest(caller.session.as_deref().unwrap_or_default()));
        words.insert(1, format!("{IDEMPOTENCY_KEY}={}-{key}", &session[..16]));
    }
    words
}

/// The words without an option, and its value.
fn without_option(words: &[String], option: &str) -> (Vec<String>, Option<String>) {
    let (mut kept, mut found) = (Vec::new(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word.clone());
            kept.extend(words.cloned());
            break;
        }
        match word.strip_prefix(option) {
            Some("") => found = words.next().cloned(),
            Some(value) if value.starts_with('=') => found = Some(value[1..].to_owned()),
            _ => kept.push(word.clone()),
        }
    }
    (kept, found)
}

fn id_in(task: &Value) -> Option<TaskId> {
    task["id"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Prints its words.
    #[derive(Debug)]
    struct EchoShell;

    impl Shell for EchoShell {
        fn call(&self, words: &[String], stdin: &str, _: &Caller) -> PrintedOutput {
            let stdout = if stdin.is_empty() { words.join(" ") } else { stdin.to_owned() };
            PrintedOutput { stdout, ..PrintedOutput::default() }
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn caller(session: &str) -> Caller {
        Caller { session: Some(session.to_owned()), ..Caller::default() }
    }

    #[test]
    fn only_the_tasks_of_the_session_are_seen() {
        let shell = OwnTasksShell::new(Arc::new(EchoShell), &[]);
        let (own, step, foreign) = (TaskId::new(), TaskId::new(), TaskId::new());
        let printed = json!({"id": own, "_meta": {"steps": {"first": {"id": step}}}}).to_string();
        shell.call(&words("run x"), &printed, &caller("s"));
        assert!(shell.may_see(own) && shell.may_see(step) && !shell.may_see(foreign));
        for command in ["read", "wait", "cancel", "resolve"] {
            for word in [foreign.to_string(), format!("/tmp/results/result-{foreign}.json")] {
                let line = words(&format!("{command} {own} {word}"));
                assert_eq!(shell.call(&line, "", &caller("s")).status, Code::UnknownTask.exit() as u8);
            }
            assert_eq!(shell.call(&words(&format!("{command} {step}")), "", &caller("s")).status, 0);
        }
        for place in ["a=@ID", "a=@ID.data[0]", "a:=@ID", "--input=@/tmp/results/result-ID.json", "-i@ID"] {
            let run = |id: TaskId| {
                shell.call(&words(&format!("run x {}", place.replace("ID", &id.to_string()))), "", &caller("s"))
            };
            assert_eq!((run(foreign).status, run(own).status), (Code::UnknownTask.exit() as u8, 0), "{place}");
        }
        // Text that names a task reads nothing of it.
        assert_eq!(shell.call(&words(&format!("run x a={foreign}")), "", &caller("s")).status, 0);
        let all = json!([{"id": foreign}, {"id": own}, {"id": step}]).to_string();
        let listed = shell.call(&words("tasks --limit 1"), &all, &caller("s")).stdout;
        assert_eq!(listed, format!("[{{\"id\":\"{own}\"}}]\n"));
        let forgotten = shell.call(&words("tasks --forget-session=other"), "", &caller("s"));
        assert_eq!(forgotten.status, Code::HumansOnly.exit() as u8);
    }

    #[test]
    fn an_idempotency_key_is_of_its_session() {
        let shell = OwnTasksShell::new(Arc::new(EchoShell), &[]);
        let key = |session: &str, line: &str| shell.call(&words(line), "", &caller(session)).stdout;
        let (one, other) = (key("a", "run x --idempotency-key k"), key("b", "run x --idempotency-key=k"));
        assert!(one.ends_with("-k x") && other.ends_with("-k x") && one != other, "{one} {other}");
        assert_eq!(one, key("a", "run --idempotency-key=k x"), "and the same in its session");
        assert_eq!(key("a", "run x -- --idempotency-key=k"), "run x -- --idempotency-key=k");
    }
}
