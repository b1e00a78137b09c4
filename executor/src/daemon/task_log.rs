//! The log entries about ended, resolved and refused tasks: who ran what, how it ended and how long it took.
//!
//! An input is only logged if the configuration asks for it; otherwise its digest tells whether two were the same.

use ground::config::seal;
use ground::config::secret::Secrets;
use ground::task::part_of::PartOf;
use ground::task::{Outcome, Task};
use protocol::clock;
use protocol::error::ErrorBody;
use protocol::task::TaskId;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The most characters of an input in the log.
const MAX_INPUT_CHARS: usize = 1000;

/// Logs `task` if it has ended or was resolved, without secrets.
pub(super) fn log(task: &Task, log_inputs: bool, secrets: &Secrets) {
    if let Some(resolution) = &task.resolution {
        tracing::info!(id = %task.id, tool = %task.tool, happened = resolution.happened, by = ?resolution.by, "task resolved");
    } else if task.state.is_final() {
        let code = match task.end.as_ref().map(|end| &end.outcome) {
            Some(Outcome::Error(error)) => error.code.as_str(),
            _ => "",
        };
        let duration = clock::now().duration_since(task.created_at);
        let duration_ms = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let input = log_inputs.then(|| input_text(&seal::shown(&task.input), secrets));
        let input_sha256 = digest(&task.input);
        // The caller chooses its session's name, so it may contain anything.
        let session = task.caller.session.as_deref().map(|session| secrets.redact(session));
        let reason = task.notes.reason.as_deref().map(|reason| secrets.redact(reason));
        let part_of = PartOf::of(task).map(|part| part.id.to_string());
        tracing::info!(id = %task.id, tool = %task.tool, part_of, input, input_sha256, uid = task.caller.uid, session = session.as_deref(), reason = reason.as_deref(), state = %task.state, code, attempts = task.attempt, duration_ms, "task ended");
    }
}

/// Logs that a request to run `tool` was refused. The message stays out, since it may quote the input.
pub(super) fn log_refusal(id: TaskId, tool: &str, uid: u32, error: &ErrorBody) {
    const MAX_NAME_CHARS: usize = 64;
    let tool: String = tool.chars().take(MAX_NAME_CHARS).collect();
    tracing::info!(%id, tool, uid, code = error.code.as_str(), "task refused");
}

fn input_text(input: &Map<String, Value>, secrets: &Secrets) -> String {
    let text = serde_json::to_string(input).expect("a JSON object can be serialized");
    secrets.redact(&text).chars().take(MAX_INPUT_CHARS).collect()
}

/// The digest of the input as compact JSON.
fn digest(input: &Map<String, Value>) -> String {
    let text = serde_json::to_vec(input).expect("a JSON object can be serialized");
    protocol::digest::hex(&Sha256::digest(text))
}
