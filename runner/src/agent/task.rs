//! A task of an A2A agent, as its messages say it: those of version 1 and of version 0.3.

use serde_json::{Value, json};

use super::remote::RemoteAnswer;

/// The key of what an agent of ours says beside the protocol.
const OWN_METADATA: &str = "agent-magic-tool";
static NOTHING: Value = Value::Null;

/// Where a task is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TaskPhase {
    #[default]
    Working,
    /// A human decides on the agent's own page; it goes on by itself.
    WaitsForHuman,
    /// It asks its caller for more.
    Asks,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

/// What is known of a task.
#[derive(Debug, Clone, Default)]
pub(super) struct RemoteTask {
    pub(super) id: Option<String>,
    pub(super) phase: TaskPhase,
    /// Its artifacts, in their order, each with its id and its parts.
    artifacts: Vec<(String, Vec<Value>)>,
    /// The message of its status.
    message: Value,
    metadata: Value,
    /// The direct answer of an agent that makes no task.
    reply: Option<Vec<Value>>,
}

impl RemoteTask {
    /// Takes in a result. False if it is nothing that the protocol has.
    pub(super) fn take(&mut self, result: &Value) -> bool {
        let named =
            |name: &str, kind: &str| result.get(name).or_else(|| Some(result).filter(|result| result["kind"] == kind));
        if let Some(update) = named("statusUpdate", "status-update") {
            return self.take_status(&update["status"], update);
        }
        if let Some(update) = named("artifactUpdate", "artifact-update") {
            return self.take_artifact(&update["artifact"], update["append"] == true);
        }
        if let Some(message) = named("message", "message").filter(|message| message["parts"].is_array()) {
            self.reply = Some(parts(message));
            self.phase = TaskPhase::Completed;
            return true;
        }
        let task = result.get("task").unwrap_or(result);
        let Some(id) = task["id"].as_str() else { return false };
        self.id = Some(id.to_owned());
        if let Some(artifacts) = task["artifacts"].as_array() {
            self.artifacts.clear();
            for artifact in artifacts {
                self.take_artifact(artifact, false);
            }
        }
        self.take_status(&task["status"], task)
    }

    fn take_status(&mut self, status: &Value, update: &Value) -> bool {
        let Some(state) = status["state"].as_str() else { return false };
        let own = &update["metadata"][OWN_METADATA];
        let state = state.trim_start_matches("TASK_STATE_").to_ascii_lowercase().replace('_', "-");
        self.phase = match state.as_str() {
            "completed" => TaskPhase::Completed,
            "failed" => TaskPhase::Failed,
            "canceled" => TaskPhase::Canceled,
            "rejected" => TaskPhase::Rejected,
            "input-required" | "auth-required" if own["waits_for"] == "human" => TaskPhase::WaitsForHuman,
            "input-required" | "auth-required" => TaskPhase::Asks,
            _ => TaskPhase::Working,
        };
        self.message = status["message"].clone();
        if update["metadata"].is_object() {
            self.metadata = update["metadata"].clone();
        }
        true
    }

    fn take_artifact(&mut self, artifact: &Value, append: bool) -> bool {
        let Some(id) = artifact["artifactId"].as_str() else { return false };
        let new = parts(artifact);
        match self.artifacts.iter_mut().find(|(known, _)| known == id) {
            Some((_, parts)) if append => parts.extend(new),
            Some((_, parts)) => *parts = new,
            None => self.artifacts.push((id.to_owned(), new)),
        }
        true
    }

    /// Whether no more is to be expected.
    pub(super) fn is_over(&self) -> bool {
        !matches!(self.phase, TaskPhase::Working | TaskPhase::WaitsForHuman)
    }

    /// The first words of its status.
    pub(super) fn words(&self) -> Option<&str> {
        let parts = self.message["parts"].as_array()?;
        parts.iter().find_map(|part| part["text"].as_str()).filter(|text| !text.trim().is_empty())
    }

    /// What an agent of ours says beside the protocol.
    pub(super) fn own(&self) -> &Value {
        self.metadata.get(OWN_METADATA).unwrap_or(&NOTHING)
    }

    pub(super) fn answer(&self) -> RemoteAnswer {
        let artifacts: Vec<_> = self.artifacts.iter().map(|(_, parts)| parts.as_slice()).collect();
        let status = parts(&self.message);
        let data = match (&self.reply, artifacts.as_slice()) {
            (Some(reply), _) => data(&[reply]),
            (None, []) => data(&[&status]),
            (None, artifacts) => data(artifacts),
        };
        RemoteAnswer { data, told: self.told("completed") }
    }

    /// What it asks its caller, as the answer.
    pub(super) fn question(&self) -> RemoteAnswer {
        let asked = match data(&[&parts(&self.message)]) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let data = format!(
            "{asked}\n\n[The agent needs this before it goes on. Call it again, in the same session, to answer.]"
        );
        RemoteAnswer { data: data.into(), told: self.told("input_required") }
    }

    fn told(&self, termination: &str) -> Value {
        let mut told = if self.own().is_object() { self.own().clone() } else { json!({}) };
        told["protocol"] = "a2a".into();
        if told["termination"].is_null() {
            told["termination"] = termination.into();
        }
        told
    }
}

fn parts(holder: &Value) -> Vec<Value> {
    holder["parts"].as_array().cloned().unwrap_or_default()
}

/// The data of one or several lists of parts: JSON if there is nothing else, and otherwise text.
fn data(lists: &[&[Value]]) -> Value {
    let all: Vec<&Value> = lists.iter().flat_map(|list| list.iter()).collect();
    if let [part] = all.as_slice()
        && part["text"].is_null()
        && !part["data"].is_null()
    {
        return part["data"].clone();
    }
    let texts: Vec<String> = lists.iter().map(|list| list.iter().map(text).collect::<String>()).collect();
    texts.join("\n\n").into()
}

/// A part as text. The pieces of a streamed text follow each other, so nothing is put between them.
fn text(part: &Value) -> String {
    if let Some(text) = part["text"].as_str() {
        return text.to_owned();
    }
    if !part["data"].is_null() {
        return part["data"].to_string();
    }
    let file = if part["file"].is_object() { &part["file"] } else { part };
    let name = ["filename", "name"].iter().find_map(|name| file[*name].as_str()).unwrap_or("without a name");
    match ["url", "uri"].iter().find_map(|name| file[*name].as_str()) {
        Some(url) => format!("[a file, {name}: {url}]"),
        None => format!("[a file, {name}, which is not shown]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_either_version_becomes_one_answer() {
        let current = [
            json!({"task": {"id": "t1", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
            json!({"statusUpdate": {"taskId": "t1", "status": {"state": "TASK_STATE_WORKING"}}}),
            json!({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "wrong"}]}}}),
            json!({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "Hel"}]}}}),
            json!({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "lo"}]}, "append": true}}),
            json!({"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"},
                "metadata": {"agent-magic-tool": {"usage": {"requests": 1}, "termination": "completed"}}}}),
        ];
        let legacy = [
            json!({"kind": "task", "id": "t1", "status": {"state": "submitted"}}),
            json!({"kind": "artifact-update", "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "Hello"}]}}),
            json!({"kind": "status-update", "status": {"state": "completed"}, "final": true}),
        ];
        for results in [current.as_slice(), legacy.as_slice()] {
            let mut task = RemoteTask::default();
            for result in results {
                assert!(!task.is_over());
                assert!(task.take(result), "{result}");
            }
            assert_eq!((task.id.as_deref(), task.phase), (Some("t1"), TaskPhase::Completed));
            assert_eq!(task.answer().data, "Hello");
        }
    }

    #[test]
    fn every_kind_of_answer_is_data() {
        let taken = |result: Value| {
            let mut task = RemoteTask::default();
            assert!(task.take(&result));
            task
        };
        let message = taken(json!({"message": {"parts": [{"text": "Hi"}]}}));
        assert_eq!(message.answer().data, "Hi");
        let status = json!({"state": "completed", "message": {"parts": [{"kind": "text", "text": "Done."}]}});
        assert_eq!(taken(json!({"kind": "task", "id": "t", "status": status})).answer().data, "Done.");
        let artifacts = json!([{"artifactId": "a", "parts": [{"data": {"n": 1}}]}]);
        let task = json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": artifacts});
        assert_eq!(taken(json!({"task": task})).answer().data, json!({"n": 1}));
        let asked = json!({"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "Which?"}]}});
        let asks = taken(json!({"task": {"id": "t", "status": asked}}));
        assert_eq!(asks.phase, TaskPhase::Asks);
        assert_eq!(asks.question().told["termination"], "input_required");
        let waits = json!({"id": "t", "status": {"state": "TASK_STATE_INPUT_REQUIRED"},
            "metadata": {"agent-magic-tool": {"waits_for": "human"}}});
        assert_eq!(taken(json!({"task": waits})).phase, TaskPhase::WaitsForHuman);
        for nonsense in [json!({}), json!({"task": {"status": {}}}), json!({"task": {"id": "t"}})] {
            assert!(!RemoteTask::default().take(&nonsense), "{nonsense}");
        }
    }
}
