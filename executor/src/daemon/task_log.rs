//! The log entries about ended and resolved tasks: who ran what, and how it ended.

use protocol::clock;
use serde_json::{Map, Value};

use crate::config::secret::Secrets;
use crate::task::{Outcome, Task};

/// How many characters of an input are logged.
const MAX_INPUT: usize = 1000;

/// Logs `task` if it has ended or was resolved, without secrets.
pub(super) fn log(task: &Task, secrets: &Secrets) {
    if let Some(resolution) = &task.resolution {
        tracing::info!(id = %task.id, tool = %task.tool, happened = resolution.happened, by = ?resolution.by, "task resolved");
    } else if task.state.is_final() {
        let code = match task.end.as_ref().map(|end| &end.outcome) {
            Some(Outcome::Error(error)) => error.code.as_str(),
            _ => "",
        };
        let duration = clock::now().duration_since(task.created_at);
        let duration_ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let input = input_text(&task.input, secrets);
        // The caller chooses its session's name, so it may contain anything.
        let session = task.caller.session.as_deref().map(|session| secrets.redact(session));
        tracing::info!(id = %task.id, tool = %task.tool, input, uid = task.caller.uid, session = session.as_deref(), state = %task.state, code, attempts = task.attempt, duration_ms, "task ended");
    }
}

fn input_text(input: &Map<String, Value>, secrets: &Secrets) -> String {
    let text = serde_json::to_string(input).expect("a JSON object can be serialized");
    secrets.redact(&text).chars().take(MAX_INPUT).collect()
}
