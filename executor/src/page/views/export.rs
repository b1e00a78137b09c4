//! The history as a file: one JSON object per line, or comma-separated values (RFC 4180).

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use ground::config::seal;
use ground::task::confirmation::DecidedBy;
use ground::task::{Outcome, Task};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{HistoryQuery, ViewError, ViewResult, decided_by};
use crate::page::Page;
use crate::page::wording::decided_words;

/// The most tasks in one file; the search narrows it, and `before` goes on.
const MAX_EXPORTED: u32 = 20_000;
const COLUMNS: [&str; 13] = [
    "id",
    "tool",
    "state",
    "asked_at",
    "ended_at",
    "user",
    "session",
    "folder",
    "decided",
    "decided_in",
    "reason",
    "error",
    "input",
];

/// One ended task, with secrets hidden.
#[derive(Debug, Serialize)]
struct ExportedTask {
    id: String,
    tool: String,
    state: &'static str,
    asked_at: String,
    ended_at: Option<String>,
    user: u32,
    session: Option<String>,
    folder: Option<String>,
    decided: Cow<'static, str>,
    /// The session, the grant or the API key that decided.
    decided_in: Option<String>,
    reason: Option<String>,
    error: Option<String>,
    input: Map<String, Value>,
}

impl ExportedTask {
    fn of(task: &Task) -> Self {
        let decision = task.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
        let error = task.end.as_ref().and_then(|end| match &end.outcome {
            Outcome::Error(error) => Some(error.code.to_string()),
            Outcome::Data(_) | Outcome::File { .. } => None,
        });
        Self {
            id: task.id.to_string(),
            tool: task.tool.to_string(),
            state: task.state.as_str(),
            asked_at: task.created_at.to_string(),
            ended_at: task.end.as_ref().map(|end| end.at.to_string()),
            user: task.caller.uid,
            session: task.caller.session.clone(),
            folder: task.caller.folder.as_ref().map(|folder| folder.display().to_string()),
            decided: decided_words(task.confirmation.as_deref(), task.state),
            decided_in: decided_by(task).map(|by| match by {
                DecidedBy::Page(session) => session.clone(),
                DecidedBy::Grant(id) => format!("grant {id}"),
                DecidedBy::ApiKey(key) => format!("key:{}", key.name),
            }),
            reason: decision.and_then(|decision| decision.reason.clone()),
            error,
            input: seal::shown(&task.input),
        }
    }
}

fn ended(page: &Page, query: &HistoryQuery) -> Result<Vec<ExportedTask>, ViewError> {
    let tasks = page.read(|records| records.ended(&query.filter(), MAX_EXPORTED))?;
    Ok(tasks.iter().map(ExportedTask::of).collect())
}

fn file(kind: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

pub(in crate::page) async fn history_as_jsonl(
    State(page): State<Arc<Page>>,
    Query(query): Query<HistoryQuery>,
) -> ViewResult {
    let rows = ended(&page, &query)?;
    let lines = rows.iter().map(|row| serde_json::to_string(row).expect("a task can be serialized") + "\n");
    Ok(file("application/x-ndjson", lines.collect()))
}

pub(in crate::page) async fn history_as_csv(
    State(page): State<Arc<Page>>,
    Query(query): Query<HistoryQuery>,
) -> ViewResult {
    let mut text = COLUMNS.join(",") + "\r\n";
    for row in ended(&page, &query)? {
        let row = serde_json::to_value(row).expect("a task can be serialized");
        let cells = COLUMNS.map(|column| match &row[column] {
            Value::Null => String::new(),
            Value::String(text) => cell(text),
            other => cell(&other.to_string()),
        });
        text += &(cells.join(",") + "\r\n");
    }
    Ok(file("text/csv; charset=utf-8", text))
}

/// A quoted cell. A spreadsheet would run what begins like a formula, so such a text gets an apostrophe.
fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_text_and_no_formula() {
        assert_eq!(cell("a \"b\", c\nd"), "\"a \"\"b\"\", c\nd\"");
        assert_eq!(cell("=HYPERLINK(\"x\")"), "\"'=HYPERLINK(\"\"x\"\")\"");
    }
}
