//! What `run`, `wait` and `read` print of a result: what a caller acts on, and nothing else.
//!
//! A model pays for every character, at this turn and at each one after it. Times, sizes and the input that it wrote
//! itself stay in the result file.

use protocol::code::Exit;
use protocol::excerpt;
use protocol::layout::to_lines;
use protocol::mailbox::Mailbox;
use protocol::mailbox::disk::DiskProblem;
use protocol::mailbox::result::{PREVIEW_CHARS, WILL_BE_WOKEN};
use protocol::task::State;
use serde_json::{Map, Value};

use crate::context::Context;
use crate::error::Error;
use crate::result::{self, ResultFile};
use crate::result_data::{self, Selected};

/// A receipt shows texts of the input up to this length; the caller has just written them.
pub const MAX_ECHOED_CHARS: usize = 400;
/// The fields of `_meta` with which a caller can read large data.
const LARGE_FIELDS: [&str; 6] = ["bytes", "content_type", "shape", "preview", "data_file", "read"];
/// The other fields of `_meta` that a caller must know to understand the data.
const NOTABLE_FIELDS: [&str; 18] = [
    "http_status",
    "file_name",
    "text",
    "more_pages",
    "total",
    "page",
    "limit",
    "asked_limit",
    "has_next_page",
    "more_with",
    "not_fetched",
    "unfinished",
    "stderr",
    "notes",
    "output_problems",
    "truncated",
    "open",
    "resolution",
];

/// Prints a single result as an object and several as a list, and removes the caller's wake-ups for the final ones.
/// With `jq`, the value of that expression takes the place of the data of those that succeeded.
pub fn print(files: &[ResultFile], jq: Option<&str>, mailbox: &Mailbox, context: &Context) -> Result<Exit, Error> {
    let mut notes = Vec::new();
    let mut selected = |file: &ResultFile| -> Result<Option<Value>, Error> {
        let Some(expression) = jq.filter(|_| file.state == State::Succeeded) else { return Ok(None) };
        let Selected { value, notes: of_file } = result_data::evaluate_jq(expression, file, mailbox)?;
        let heading = if files.len() > 1 { format!("{}: ", file.id) } else { String::new() };
        notes.extend(of_file.into_iter().map(|note| format!("{heading}{note}")));
        Ok(Some(value))
    };
    if let [file] = files {
        let rest = match jq {
            Some(expression) => rest_of_selected(file, expression),
            None => format!("a part of it: agent-magic-tool read {} --jq EXPR", file.id),
        };
        let value = selected(file)?;
        context.output.json_or(&value.unwrap_or_else(|| document(file)), &rest)?;
    } else {
        let with_value = |file: &ResultFile| -> Result<Value, Error> {
            let value = selected(file)?;
            Ok(value.map_or_else(|| document(file), |value| document_with(file, value)))
        };
        let documents = files.iter().map(with_value).collect::<Result<Vec<_>, _>>()?;
        context.output.json_or(&documents, "one after another: agent-magic-tool read ID")?;
    }
    result::remove_wakeups(files, mailbox, context);
    if files.iter().any(|file| !file.is_final())
        && let Some(DiskProblem { message, hint, .. }) = mailbox.disk_problem()
    {
        context.output.note(&format!("{message}, so what is done may not show yet; tell the user: {hint}"));
    }
    for note in notes {
        context.output.note(&note);
    }
    Ok(overall_exit(files))
}

/// How to read what an expression returned, if that is too much to print.
pub fn rest_of_selected(file: &ResultFile, expression: &str) -> String {
    format!(
        "return less of it, like {}; a list by pages: agent-magic-tool read {} --jq {} --page 1",
        quoted(&format!("{expression} | keys")),
        file.id,
        quoted(expression)
    )
}

/// Quotes `text` as one shell word.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The exit status for several tasks: open before failed, failed before refused, refused before done.
pub fn overall_exit(files: &[ResultFile]) -> Exit {
    let exits = || files.iter().map(ResultFile::exit);
    let order = [Exit::Pending, Exit::AwaitingConfirmation, Exit::Failed, Exit::Refused];
    order.into_iter().find(|exit| exits().any(|found| found == *exit)).unwrap_or(Exit::Ok)
}

/// The result as it is printed.
pub fn document(file: &ResultFile) -> Value {
    let mut document = heading(file);
    if !file.is_final() {
        copy(file, &["state", "run_at", "message"], &mut document);
        let asked = ["confirmation", "will_ask"].map(|key| file.field(key));
        let asked = asked.into_iter().find(|asked| asked.is_object()).unwrap_or(&Value::Null);
        for key in ["why", "expires_at"] {
            let value = &asked[key];
            if !value.is_null() {
                document.insert(key.to_owned(), value.clone());
            }
        }
        return Value::Object(document);
    }
    copy(file, &["error"], &mut document);
    let meta = file.field("_meta");
    // Before the data, which reads like that of a change.
    if let Some(dry_run) = meta.get("dry_run") {
        document.insert("dry_run".to_owned(), dry_run.clone());
    }
    let is_large = meta.get("bytes").is_some();
    if is_large {
        for key in LARGE_FIELDS {
            match meta.get(key) {
                Some(value) => drop(document.insert(key.to_owned(), value.clone())),
                None if key == "preview" && meta.get("data_file").is_none() => {
                    document.insert(key.to_owned(), preview(file.field("data")).into());
                }
                None => {}
            }
        }
    } else if file.state == State::Succeeded {
        document.insert("data".to_owned(), file.field("data").clone());
    }
    for key in NOTABLE_FIELDS {
        // A status of 200 says nothing.
        if let Some(value) = meta.get(key).filter(|value| **value != 200) {
            document.insert(key.to_owned(), value.clone());
        }
    }
    add_decision(&meta["confirmation"], file, &mut document);
    Value::Object(document)
}

/// The result with `value` in place of its data.
fn document_with(file: &ResultFile, value: Value) -> Value {
    let mut document = heading(file);
    document.insert("data".to_owned(), value);
    Value::Object(document)
}

fn heading(file: &ResultFile) -> Map<String, Value> {
    let mut heading = Map::new();
    heading.insert("id".to_owned(), file.id.to_string().into());
    copy(file, &["tool", "status"], &mut heading);
    heading
}

fn copy(file: &ResultFile, keys: &[&str], to: &mut Map<String, Value>) {
    for key in keys {
        let value = file.field(key);
        if !value.is_null() {
            to.insert((*key).to_owned(), value.clone());
        }
    }
}

/// What the human said and changed, which the caller cannot know.
fn add_decision(decision: &Value, file: &ResultFile, to: &mut Map<String, Value>) {
    if let Some(reason) = decision.get("reason") {
        to.insert("user_said".to_owned(), reason.clone());
    }
    if let Some(changes) = decision.get("changes") {
        to.insert("changed_by_user".to_owned(), changes.clone());
        copy(file, &["input"], to);
    }
}

fn preview(data: &Value) -> String {
    let text = match data {
        Value::String(text) => text.clone(),
        data => to_lines(data),
    };
    text.chars().take(PREVIEW_CHARS).collect()
}

/// The answer to an accepted `run`: the input as accepted, and where the result will be.
///
/// The status is always `pending`, even if a quick task has ended already: a fixed answer is easier to rely on.
/// `starts_later` says that it is scheduled for a time beyond any wait.
pub fn receipt(file: &ResultFile, mailbox: &Mailbox, wakes: bool, starts_later: bool) -> Value {
    let mut receipt = Map::new();
    receipt.insert("tool".to_owned(), file.field("tool").clone());
    receipt.insert("input".to_owned(), echoed(file.field("input"), MAX_ECHOED_CHARS));
    receipt.insert("id".to_owned(), file.id.to_string().into());
    receipt.insert("status".to_owned(), "pending".into());
    copy(file, &["run_at"], &mut receipt);
    receipt.insert("result_file".to_owned(), result::path_text(&mailbox.result_file(file.id)));
    if file.state == State::AwaitingConfirmation || file.field("will_ask").is_object() {
        copy(file, &["state", "message"], &mut receipt);
    } else if starts_later {
        copy(file, &["message"], &mut receipt);
    } else if wakes {
        receipt.insert("message".to_owned(), WILL_BE_WOKEN.into());
    } else {
        receipt.insert("next".to_owned(), format!("agent-magic-tool wait {}", file.id).into());
    }
    Value::Object(receipt)
}

/// `value` with texts of at most `chars` characters.
pub fn echoed(value: &Value, chars: usize) -> Value {
    match value {
        Value::String(text) => excerpt::chars(text, chars).into(),
        Value::Array(items) => items.iter().map(|item| echoed(item, chars)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), echoed(value, chars))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
