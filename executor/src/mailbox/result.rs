//! The result file: the placeholder that becomes final.

use serde_json::{Map, Value, json};

use crate::task::{Outcome, State, Task};

/// From this many bytes on `_meta` tells the size and shape of the data.
const LARGE: usize = 20_000;
/// How much of data that lies beside the file is shown in it.
const PREVIEW_CHARS: usize = 2_000;

/// The text of a result file, and the data that must lie beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultFile {
    pub text: String,
    pub beside: Option<Beside>,
}

/// Data that a result file refers to.
#[derive(Debug, Clone, PartialEq)]
pub enum Beside {
    Json(String),
    /// A file of the executor's data folder, to be copied.
    File {
        path: std::path::PathBuf,
        extension: &'static str,
    },
}

/// What the result file of `task` says now. `name` is the path of the data beside it, by extension.
pub fn render(task: &Task, inline_bytes: usize, name: impl Fn(&str) -> String) -> ResultFile {
    let mut file = Map::new();
    file.insert("id".into(), task.id.to_string().into());
    file.insert("tool".into(), task.tool.as_str().into());
    file.insert("input".into(), Value::Object(task.input.clone()));
    let Some(end) = &task.end else {
        file.insert("status".into(), "pending".into());
        file.insert("state".into(), task.state.as_str().into());
        file.insert("message".into(), message(task.state).into());
        file.insert("next".into(), format!("agent-magic-tool wait {}", task.id).into());
        file.insert("created_at".into(), task.created_at.to_string().into());
        return ResultFile { text: text(file), beside: None };
    };
    file.insert("status".into(), task.state.as_str().into());
    file.insert("success".into(), (task.state == State::Succeeded).into());
    let mut meta = end.meta.clone();
    let mut beside = None;
    match &end.outcome {
        Outcome::Error(error) => {
            file.insert("error".into(), serde_json::to_value(error).expect("an error body is plain JSON"));
        }
        Outcome::Data(data) => {
            let written = data.to_string();
            if written.len() >= LARGE {
                meta.insert("bytes".into(), written.len().into());
                meta.insert("shape".into(), shape(data, 0));
            }
            if written.len() > inline_bytes {
                meta.insert("data_file".into(), name("json").into());
                meta.insert("preview".into(), written.chars().take(PREVIEW_CHARS).collect::<String>().into());
                meta.insert("query".into(), json!({"tool": task.tool.as_str(), "input": task.input}));
                meta.insert("read".into(), format!("agent-magic-tool read {} --jq '.'", task.id).into());
                beside = Some(Beside::Json(written));
            } else {
                file.insert("data".into(), data.clone());
            }
        }
        Outcome::File { path, content_type, bytes } => {
            let extension = if content_type.starts_with("text/") { "txt" } else { "bin" };
            meta.insert("bytes".into(), (*bytes).into());
            meta.insert("content_type".into(), content_type.as_str().into());
            meta.insert("data_file".into(), name(extension).into());
            beside = Some(Beside::File { path: path.clone(), extension });
        }
    }
    file.insert("created_at".into(), task.created_at.to_string().into());
    file.insert("finished_at".into(), end.at.to_string().into());
    meta.insert("attempts".into(), task.attempt.into());
    file.insert("_meta".into(), Value::Object(meta));
    ResultFile { text: text(file), beside }
}

/// Whether `text` is a whole result file that says how its task ended.
///
/// No other place has this line: a text inside the file has its quotes escaped, and what is nested
/// is indented further.
pub fn is_final(text: &[u8]) -> bool {
    let pending = b"\n  \"status\": \"pending\"";
    text.ends_with(b"\n}\n") && !text.windows(pending.len()).any(|part| part == pending)
}

/// What a model reads while the task is open.
fn message(state: State) -> &'static str {
    match state {
        State::AwaitingConfirmation => "The tool execution waits for a human to confirm it.",
        _ => "The tool execution has been delegated to the agent.",
    }
}

fn text(file: Map<String, Value>) -> String {
    let mut text = serde_json::to_string_pretty(&Value::Object(file)).expect("JSON can be written");
    text.push('\n');
    text
}

/// The structure of a value without its contents.
fn shape(value: &Value, depth: usize) -> Value {
    const DEEPEST: usize = 3;
    const MOST_KEYS: usize = 30;
    match value {
        Value::Array(items) => {
            let of = items.first().filter(|_| depth < DEEPEST).map(|first| shape(first, depth + 1));
            json!({"array": items.len(), "of": of})
        }
        Value::Object(fields) if depth < DEEPEST => {
            fields.iter().take(MOST_KEYS).map(|(key, value)| (key.clone(), shape(value, depth + 1))).collect()
        }
        Value::Object(fields) => json!({"object": fields.len()}),
        Value::String(text) => json!(format!("string of {} characters", text.chars().count())),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("boolean"),
        Value::Null => json!("null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{End, ErrorBody};

    fn task() -> Task {
        let Value::Object(input) = json!({"status": "pending", "text": "\n  \"status\": \"pending\""}) else {
            unreachable!()
        };
        Task { input, ..crate::store::contract::task(None) }
    }

    fn rendered(task: &Task) -> ResultFile {
        render(task, 100_000, |extension| format!("/results/x.data.{extension}"))
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
        let failed = ended(State::Failed, Outcome::Error(ErrorBody::new(crate::code::Code::Io, "no")));
        assert!(is_final(rendered(&failed).text.as_bytes()));
        for state in [State::AwaitingConfirmation, State::Queued, State::Running] {
            assert!(!is_final(rendered(&Task { state, ..task() }).text.as_bytes()), "{state}");
        }
        assert!(!is_final(b"") && !is_final(&done.as_bytes()[..done.len() - 2]), "half a file is none");
    }

    #[test]
    fn large_data_lies_beside_the_file_which_keeps_its_size_shape_and_beginning() {
        let data = json!({"items": vec![json!({"name": "x".repeat(100)}); 2_000]});
        let file = rendered(&ended(State::Succeeded, Outcome::Data(data.clone())));
        assert_eq!(file.beside, Some(Beside::Json(data.to_string())));
        let text: Value = serde_json::from_str(&file.text).expect("JSON");
        assert_eq!(text.get("data"), None);
        assert_eq!(text["_meta"]["bytes"], data.to_string().len());
        assert_eq!(text["_meta"]["shape"]["items"]["array"], 2_000);
        assert_eq!(text["_meta"]["data_file"], "/results/x.data.json");
        assert!(file.text.len() < 10_000);
    }
}
