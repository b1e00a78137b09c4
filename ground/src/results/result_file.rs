//! Renders result files: a placeholder while the task is open, the result once it is final.

use jiff::Timestamp;
use protocol::layout::{compact_bytes, to_lines};
use protocol::mailbox::result::{LARGE_BYTES, OWNER, PREVIEW_CHARS};
use protocol::task::{State, TaskId};
use serde_json::{Map, Value, json};

use crate::config::seal;
use crate::task::confirmation::{Confirmation, DecidedBy, Decision, ReplacedValues};
use crate::task::notes::{AttemptProgress, LastFailure};
use crate::task::part_of::PartOf;
use crate::task::{Outcome, Task};

mod message_to_model;
mod shape;

use message_to_model::message_to_model;
use shape::shape;

/// The text of a result file, and the data file that must be written beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedResult {
    pub text: String,
    pub data_file: Option<DataFile>,
}

/// The data that a result file refers to.
#[derive(Debug, Clone, PartialEq)]
pub enum DataFile {
    Text {
        text: String,
        extension: &'static str,
    },
    /// A file in the executor's data folder, to be copied.
    File {
        path: std::path::PathBuf,
        extension: &'static str,
    },
}

/// The approver, as the caller of a task that waits for a human sees them.
#[derive(Debug, Clone, Copy)]
pub struct ApproverStatus {
    /// The task's position among the tasks that wait for a human, from 1.
    pub queue_position: Option<usize>,
    /// Whether a human has the page open.
    pub is_online: bool,
    pub last_seen: Option<Timestamp>,
}

/// How far the running attempt is, if its far side says so.
fn progress(task: &Task) -> Option<&AttemptProgress> {
    let progress = task.notes.progress.as_ref()?;
    (task.state == State::Running && *progress != AttemptProgress::default()).then_some(progress)
}

/// Whether what the task would do is still looked up.
fn is_previewed(task: &Task) -> bool {
    let preview = task.confirmation.as_ref().and_then(|asked| asked.preview.as_ref());
    task.state == State::AwaitingConfirmation && preview == Some(&ReplacedValues::Pending)
}

/// What a human will be asked about a task and was not yet: what it would do is still looked up, or it is a question for
/// later.
fn asked_later(task: &Task) -> Option<&Confirmation> {
    let asked = task.confirmation.as_deref().filter(|asked| asked.decision.is_none())?;
    (is_previewed(task) || (task.state == State::Queued && task.scheduled().is_some())).then_some(asked)
}

/// When the task starts, if that is later.
fn scheduled(task: &Task) -> Option<Timestamp> {
    task.scheduled().filter(|_| task.state == State::Queued)
}

/// Why the last attempt failed and when the next one starts, if the task waits for that.
fn retried(task: &Task) -> Option<(&LastFailure, Timestamp)> {
    task.notes.last_failure.as_ref().zip(task.not_before.filter(|_| task.state == State::Queued))
}

/// Whether the running attempt waits for a human's answer.
fn asks_human(task: &Task) -> bool {
    progress(task).is_some_and(|progress| progress.asks_human)
}

/// Renders the result file of `task`. `name` returns the path of its data file, by extension.
pub fn render(
    task: &Task,
    inline_bytes: usize,
    approver: ApproverStatus,
    name: impl Fn(&str) -> String,
) -> RenderedResult {
    let mut file = Map::new();
    file.insert("id".into(), task.id.to_string().into());
    file.insert("tool".into(), task.tool.as_str().into());
    file.insert("input".into(), Value::Object(seal::shown(&task.input)));
    file.extend(task.caller.owner().map(|owner| (OWNER.into(), owner.into())));
    if let Some(whole) = PartOf::of(task) {
        file.insert("part_of".into(), serde_json::to_value(whole).expect("it is plain JSON"));
    }
    let Some(end) = &task.end else {
        file.insert("status".into(), "pending".into());
        // A human is not shown the task before it is known what it would do.
        let state = if is_previewed(task) { State::Accepted } else { task.state };
        file.insert("state".into(), state.as_str().into());
        let (scheduled, retried) = (scheduled(task), retried(task));
        if let Some((failure, next)) = retried {
            file.insert(
                "last_error".into(),
                serde_json::to_value(&failure.error).expect("an error body is plain JSON"),
            );
            file.insert("failed_at".into(), failure.at.to_string().into());
            file.insert("next_attempt_at".into(), next.to_string().into());
        }
        file.insert("message".into(), message_to_model(task, approver).into());
        if let Some(progress) = progress(task) {
            file.insert("progress".into(), serde_json::to_value(progress).expect("it is plain JSON"));
        }
        if let Some(at) = task.scheduled() {
            file.insert("run_at".into(), at.to_string().into());
        }
        if !task.caller.wakes && scheduled.is_none() {
            file.insert("next".into(), format!("agent-magic-tool wait {}", task.id).into());
        }
        file.extend(question(task, state, approver));
        file.insert("created_at".into(), task.created_at.to_string().into());
        if let Some(class) = task.notes.data_class {
            file.insert("_meta".into(), json!({"data_class": class}));
        }
        return RenderedResult { text: text(file), data_file: None };
    };
    file.insert("status".into(), task.state.as_str().into());
    file.insert("success".into(), (task.state == State::Succeeded).into());
    let mut meta = end.meta.clone();
    let mut data_file = None;
    match &end.outcome {
        Outcome::Error(error) => {
            file.insert("error".into(), serde_json::to_value(error).expect("an error body is plain JSON"));
        }
        Outcome::Data(data) => {
            let compact = compact_bytes(data);
            if compact >= LARGE_BYTES as u64 {
                // As `read` counts them.
                let bytes = data.as_str().map_or_else(|| to_lines(data).len(), str::len);
                meta.insert("bytes".into(), bytes.into());
                meta.insert("shape".into(), shape(data));
                let extension = if data.is_string() { "txt" } else { "json" };
                meta.insert("read".into(), read_commands(task.id, extension, Some(data)).into());
            }
            if compact > inline_bytes as u64 {
                // A string is stored as plain text, not as JSON, so that it keeps its lines.
                let (text, extension) = match data {
                    Value::String(text) => (text.clone(), "txt"),
                    data => (to_lines(data), "json"),
                };
                meta.insert("bytes".into(), text.len().into());
                meta.insert("preview".into(), text.chars().take(PREVIEW_CHARS).collect::<String>().into());
                meta.insert("read".into(), read_commands(task.id, extension, Some(data)).into());
                add_data_reference(&mut meta, task, name(extension));
                data_file = Some(DataFile::Text { text, extension });
            } else {
                file.insert("data".into(), data.clone());
            }
        }
        Outcome::File { path, content_type, bytes } => {
            let extension = if content_type.starts_with("text/") { "txt" } else { "bin" };
            meta.insert("bytes".into(), (*bytes).into());
            meta.insert("content_type".into(), content_type.as_str().into());
            meta.insert("read".into(), read_commands(task.id, extension, None).into());
            add_data_reference(&mut meta, task, name(extension));
            data_file = Some(DataFile::File { path: path.clone(), extension });
        }
    }
    file.insert("created_at".into(), task.created_at.to_string().into());
    file.insert("finished_at".into(), end.at.to_string().into());
    meta.insert("attempts".into(), task.attempt.into());
    if let Some(decision) = task.confirmation.as_ref().and_then(|asked| asked.decision.as_ref()) {
        meta.insert("confirmation".into(), decision_summary(decision, task));
    }
    if let Some(at) = task.run_at {
        meta.insert("run_at".into(), at.to_string().into());
    }
    if let Some(resolution) = &task.resolution {
        meta.insert("resolution".into(), serde_json::to_value(resolution).expect("a resolution is plain JSON"));
    }
    if let Some(class) = task.notes.data_class {
        meta.entry("data_class").or_insert_with(|| class.as_str().into());
    }
    file.insert("_meta".into(), Value::Object(meta));
    RenderedResult { text: text(file), data_file }
}

/// What a human is asked, or will be asked.
fn question(task: &Task, state: State, approver: ApproverStatus) -> Option<(String, Value)> {
    let (key, about) = if let Some(asked) = asked_later(task) {
        ("will_ask", json!({"why": asked.why, "expires_at": asked.expires_at.to_string()}))
    } else if let Some(asked) = task.confirmation.as_ref().filter(|_| state == State::AwaitingConfirmation) {
        ("confirmation", confirmation_status(asked, approver))
    } else if asks_human(task) {
        ("confirmation", json!({"why": "something that it calls asks the user", "approver": approver_status(approver)}))
    } else {
        return None;
    };
    Some((key.to_owned(), about))
}

fn confirmation_status(asked: &Confirmation, approver: ApproverStatus) -> Value {
    json!({
        "why": asked.why,
        "expires_at": asked.expires_at.to_string(),
        "approver": approver_status(approver),
    })
}

fn approver_status(approver: ApproverStatus) -> Value {
    json!({
        "online": approver.is_online,
        "last_seen": approver.last_seen.map(|at| at.to_string()),
        "queue_position": approver.queue_position,
    })
}

/// The decision, for the caller. Does not say which human decided.
fn decision_summary(decision: &Decision, task: &Task) -> Value {
    let by = match decision.by {
        DecidedBy::Page(_) => "human",
        DecidedBy::Grant(_) => "a remembered yes",
        DecidedBy::ApiKey(_) => "an API key of the human",
    };
    let mut shown = json!({"decision": decision.verdict, "by": by, "at": decision.at.to_string()});
    if let Some(reason) = &decision.reason {
        shown["reason"] = reason.as_str().into();
    }
    if let Some(asked) = &decision.asked_input {
        shown["changes"] = changes(&seal::shown(asked), &seal::shown(&task.input));
    }
    shown
}

/// The difference between two inputs, as a JSON Patch (RFC 6902) of top-level fields.
fn changes(from: &Map<String, Value>, to: &Map<String, Value>) -> Value {
    let path = |key: &str| format!("/{}", protocol::json::pointer_token(key));
    let gone = from.keys().filter(|key| !to.contains_key(*key));
    let removed = gone.map(|key| json!({"op": "remove", "path": path(key)}));
    let set = to.iter().filter_map(|(key, value)| match from.get(key) {
        None => Some(json!({"op": "add", "path": path(key), "value": value})),
        Some(before) if before != value => Some(json!({"op": "replace", "path": path(key), "value": value})),
        Some(_) => None,
    });
    removed.chain(set).collect()
}

fn text(file: Map<String, Value>) -> String {
    let mut text = serde_json::to_string_pretty(&Value::Object(file)).expect("JSON values serialize");
    text.push('\n');
    text
}

/// Adds to `meta` where the data file is, and which call it is the result of.
fn add_data_reference(meta: &mut Map<String, Value>, task: &Task, path: String) {
    meta.insert("data_file".into(), path.into());
    meta.insert("query".into(), json!({"tool": task.tool.as_str(), "input": seal::shown(&task.input)}));
}

/// Ready-made commands that print parts of the data.
fn read_commands(id: TaskId, extension: &str, data: Option<&Value>) -> Vec<String> {
    let mut parts = match data {
        Some(Value::Array(items)) => {
            let first = ["--page 1".to_owned(), "--jq '.[0]'".to_owned()];
            first.into_iter().chain(select_command("", items)).collect()
        }
        Some(Value::Object(fields)) => {
            let longest = fields
                .iter()
                .filter_map(|(key, field)| Some((field.as_array()?, key)))
                .filter(|(_, key)| is_plain(key))
                .max_by_key(|(items, _)| items.len());
            let list = longest.map(|(items, key)| (format!("--jq '.{key}' --page 1"), select_command(key, items)));
            let (page, select) = list.unzip();
            page.into_iter().chain(select.flatten()).chain(["--jq 'keys'".to_owned()]).collect()
        }
        _ => Vec::new(),
    };
    // A text of a single line has no smaller parts.
    let is_one_line = data.and_then(Value::as_str).is_some_and(|text| !text.trim_end().contains('\n'));
    if extension != "bin" && !is_one_line {
        parts.push("--lines 1-100".to_owned());
    }
    parts.push("--bytes 0-9999".to_owned());
    parts.into_iter().map(|part| format!("agent-magic-tool read {id} {part}")).collect()
}

/// The command that selects the first of several records by its first short field: a pattern for any other record.
fn select_command(key: &str, items: &[Value]) -> Option<String> {
    /// A longer text is not what a record is known by.
    const MAX_BYTES: usize = 40;
    let fields = items.first().filter(|_| items.len() > 1)?.as_object()?;
    let is_short = |value: &Value| match value {
        Value::String(text) => {
            text.len() <= MAX_BYTES && !text.contains(['\'', '\\', '"']) && !text.contains(char::is_control)
        }
        value => value.is_i64() || value.is_u64(),
    };
    let (field, value) = fields.iter().find(|(field, value)| is_plain(field) && is_short(value))?;
    let list = if key.is_empty() { ".[]".to_owned() } else { format!(".{key}[]") };
    Some(format!("--jq '{list} | select(.{field} == {value})'"))
}

/// Whether jq accepts `.key` without quotes.
fn is_plain(key: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !key.is_empty() && key.bytes().all(is_word) && !key.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use protocol::mailbox::result::WILL_BE_WOKEN;

    use super::*;
    use crate::task::End;
    use crate::task::Outcome::File;
    use protocol::error::ErrorBody;

    use protocol::mailbox::result::is_final;

    const OFFLINE: ApproverStatus = ApproverStatus { queue_position: None, is_online: false, last_seen: None };

    #[test]
    fn changes_are_a_json_patch() {
        let object = |value: Value| value.as_object().expect("an object").clone();
        let patch = changes(&object(json!({"a": 1, "b/c": 2, "d": 3})), &object(json!({"a": 1, "b/c": 3, "e": 4})));
        let expected = json!([
            {"op": "remove", "path": "/d"}, {"op": "replace", "path": "/b~1c", "value": 3},
            {"op": "add", "path": "/e", "value": 4}
        ]);
        assert_eq!(patch, expected);
    }

    fn task() -> Task {
        let Value::Object(input) = json!({"status": "pending", "text": "\n  \"status\": \"pending\""}) else {
            unreachable!()
        };
        Task { input, ..crate::task::sample::stored(None) }
    }

    fn rendered(task: &Task) -> RenderedResult {
        render(task, 100_000, OFFLINE, |extension| format!("/results/x.data.{extension}"))
    }

    fn ended(state: State, outcome: Outcome) -> Task {
        let task = task();
        let end = End { at: task.created_at, outcome, meta: Map::new() };
        Task { state, end: Some(end), ..task }
    }

    #[test]
    fn only_the_end_of_a_task_makes_its_file_final() {
        let done = rendered(&ended(State::Succeeded, Outcome::Data(json!({"status": "pending"})))).text;
        assert!(is_final(done.as_bytes()), "{done}");
        let failed = ended(State::Failed, Outcome::Error(ErrorBody::new(protocol::code::Code::Io, "no")));
        assert!(is_final(rendered(&failed).text.as_bytes()));
        for state in [State::AwaitingConfirmation, State::Queued, State::Running] {
            assert!(!is_final(rendered(&Task { state, ..task() }).text.as_bytes()), "{state}");
        }
        assert!(!is_final(b"") && !is_final(&done.as_bytes()[..done.len() - 2]), "half a file is not final");
    }

    #[test]
    fn the_message_promises_a_wake_up_only_to_callers_that_are_woken() {
        for (state, run_at) in [
            (State::Running, None),
            (State::AwaitingConfirmation, None),
            (State::Queued, Some("2099-01-01T00:00:00Z".parse().expect("a time"))),
        ] {
            let mut task = Task { state, run_at, ..task() };
            for wakes in [false, true] {
                task.caller.wakes = wakes;
                let text: Value = serde_json::from_str(&rendered(&task).text).expect("JSON");
                let message = text["message"].as_str().expect("words");
                let has_next = !wakes && run_at.is_none();
                assert_eq!(
                    (message.ends_with(WILL_BE_WOKEN), text.get("next").is_some()),
                    (wakes, has_next),
                    "{message}"
                );
            }
        }
        let old: protocol::caller::Caller = serde_json::from_str("{\"uid\": 1}").expect("an older record");
        assert!(!old.wakes);
    }

    #[test]
    fn large_data_goes_to_a_data_file_and_the_result_has_its_size_and_shape() {
        let data = json!({"items": vec![json!({"name": "x".repeat(100)}); 2_000]});
        let file = rendered(&ended(State::Succeeded, Outcome::Data(data.clone())));
        let content = to_lines(&data);
        let text: Value = serde_json::from_str(&file.text).expect("JSON");
        assert_eq!(text.get("data"), None);
        let meta = &text["_meta"];
        assert_eq!(meta["bytes"], content.len(), "the length that `--bytes` counts");
        assert_eq!(meta["shape"]["items"]["array"], 2_000);
        assert_eq!(meta["data_file"], "/results/x.data.json");
        assert_eq!(meta["query"], json!({"tool": text["tool"], "input": text["input"]}));
        assert!(file.text.len() < 10_000);
        assert_eq!(file.data_file, Some(DataFile::Text { text: content, extension: "json" }));
    }

    #[test]
    fn the_suggested_read_commands_fit_the_data() {
        let read = |data: Value| {
            let task = ended(State::Succeeded, Outcome::Data(data));
            let text: Value = serde_json::from_str(&rendered(&task).text).expect("JSON");
            let commands = text["_meta"]["read"].as_array().expect("commands").clone();
            let start = format!("agent-magic-tool read {} ", task.id);
            commands
                .iter()
                .map(|command| {
                    command.as_str().and_then(|command| command.strip_prefix(&start)).expect("it").to_owned()
                })
                .collect::<Vec<_>>()
        };
        let items = vec![json!({"name": "x".repeat(100)}); 2_000];
        let rest = ["--lines 1-100", "--bytes 0-9999"];
        assert_eq!(read(json!(items)), [&["--page 1", "--jq '.[0]'"], &rest[..]].concat());
        assert_eq!(
            read(json!({"a": [1], "of'x": items, "b": items})),
            [&["--jq '.b' --page 1", "--jq 'keys'"], &rest[..]].concat()
        );
        assert_eq!(read(json!({"a b": items})), [&["--jq 'keys'"], &rest[..]].concat());
        assert_eq!(read(json!("line\n".repeat(30_000))), rest);
    }

    #[test]
    fn a_large_string_is_stored_as_plain_text() {
        let data = "line\n".repeat(30_000);
        let file = rendered(&ended(State::Succeeded, Outcome::Data(data.as_str().into())));
        assert_eq!(file.data_file, Some(DataFile::Text { text: data, extension: "txt" }));
        let file = File { path: "/x".into(), content_type: "image/png".to_owned(), bytes: 7 };
        let text: Value = serde_json::from_str(&rendered(&ended(State::Succeeded, file)).text).expect("JSON");
        assert_eq!(
            (&text["_meta"]["data_file"], text["_meta"]["read"].as_array().map(Vec::len)),
            (&json!("/results/x.data.bin"), Some(1))
        );
    }
}
