//! Result files as resources: `agent-magic-tool://results/ID`, and `agent-magic-tool://results/ID/data` for data that
//! lies beside the result file.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::caller::Caller;
use protocol::command_executor::OpenedTask;
use protocol::mailbox::Mailbox;
use protocol::task::{State, TaskId};
use rmcp::ErrorData;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde_json::Value;

const PREFIX: &str = "agent-magic-tool://results/";
const DATA: &str = "/data";
const JSON: &str = "application/json";
/// The most data of a resource. A client that wants a part of more reads it with the tool.
const MAX_DATA_BYTES: u64 = 8 << 20;
/// How many tasks are listed: as many as `tasks` lists.
pub(super) const MAX_LISTED: usize = 50;

/// What a URI of ours names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultUri {
    File(TaskId),
    Data(TaskId),
}

impl ResultUri {
    pub(super) fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(PREFIX)?;
        match rest.strip_suffix(DATA) {
            Some(id) => Some(Self::Data(id.parse().ok()?)),
            None => Some(Self::File(rest.parse().ok()?)),
        }
    }

    pub(super) fn task(self) -> TaskId {
        match self {
            Self::File(id) | Self::Data(id) => id,
        }
    }
}

pub(super) fn uri(id: TaskId) -> String {
    format!("{PREFIX}{id}")
}

pub(super) fn data_uri(id: TaskId) -> String {
    format!("{PREFIX}{id}{DATA}")
}

/// The result file of a task that a call delegated, as a link in its receipt.
pub(super) fn link(task: &OpenedTask) -> Resource {
    resource(task.id, &task.tool, "The result file; it becomes final without you")
}

fn resource(id: TaskId, tool: &str, description: &str) -> Resource {
    Resource::new(uri(id), format!("result-{id}.json"))
        .with_title(format!("{tool} {id}"))
        .with_description(description)
        .with_mime_type(JSON)
}

/// The tasks that `tasks` printed, newest first.
pub(super) fn listed(tasks: &Value) -> Vec<Resource> {
    let entry = |task: &Value| {
        let id = task["id"].as_str()?.parse().ok()?;
        let state = task["state"].as_str().or_else(|| task["status"].as_str()).unwrap_or_default();
        Some(resource(id, task["tool"].as_str()?, state))
    };
    tasks.as_array().into_iter().flatten().filter_map(entry).collect()
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{PREFIX}{{id}}"), "result")
            .with_title("Result file of a task")
            .with_description("Says `pending` until the task has ended, then what came of it. It can be subscribed to.")
            .with_mime_type(JSON),
        ResourceTemplate::new(format!("{PREFIX}{{id}}{DATA}"), "data")
            .with_title("Data of a result")
            .with_description("The data that a result file names instead of containing it."),
    ]
}

/// A result file as it is now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResultNow {
    pub(super) id: TaskId,
    pub(super) file: Value,
}

impl ResultNow {
    /// `None` if there is no such file, none that can be read, or one that is not the caller's.
    pub(super) fn read(mailbox: &Mailbox, id: TaskId, caller: &Caller) -> Option<Self> {
        let file: Value = serde_json::from_slice(&mailbox.read_result(id).ok()?).ok()?;
        file.as_object().is_some_and(|file| caller.may_see(file)).then_some(Self { id, file })
    }

    pub(super) fn state(&self) -> State {
        let word = self.file["state"].as_str().or_else(|| self.file["status"].as_str());
        word.and_then(|word| word.parse().ok()).unwrap_or(State::Accepted)
    }

    pub(super) fn is_final(&self) -> bool {
        self.state().is_final()
    }

    /// Whether only a human who is not at the page can let it go on.
    pub(super) fn waits_for_absent_human(&self) -> bool {
        self.state() == State::AwaitingConfirmation && self.file["confirmation"]["approver"]["online"] != true
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.file[field].as_str()
    }

    /// The media type of data that lies beside the file; `None` if there is no such data.
    pub(super) fn data_type(&self) -> Option<String> {
        let name = self.file["_meta"]["data_file"].as_str()?;
        let stated = self.file["_meta"]["content_type"].as_str();
        let is_json = name.rsplit_once('.').is_some_and(|(_, extension)| extension == "json");
        Some(stated.unwrap_or(if is_json { JSON } else { "text/plain" }).to_owned())
    }

    /// The data that lies beside the file. Blocks.
    pub(super) fn data(&self, mailbox: &Mailbox) -> Result<Vec<u8>, ErrorData> {
        let missing = || ErrorData::resource_not_found(format!("the result {} has no data of its own", self.id), None);
        let name = self.file["_meta"]["data_file"].as_str().ok_or_else(missing)?;
        let (_, extension) = name.rsplit_once('.').ok_or_else(missing)?;
        let failed =
            |error| ErrorData::internal_error(format!("failed to read the data of {}: {error}", self.id), None);
        let file = mailbox.open_data(self.id, extension).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > MAX_DATA_BYTES {
            let advice = format!(
                "the data has more than {MAX_DATA_BYTES} bytes; read a part of it with the tool: agent-magic-tool read {}",
                self.id
            );
            return Err(ErrorData::invalid_params(advice, None));
        }
        let mut bytes = Vec::new();
        file.take(MAX_DATA_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// The data beside the file as a resource. Blocks.
    pub(super) fn data_contents(&self, mailbox: &Mailbox) -> Result<ResourceContents, ErrorData> {
        let (uri, bytes) = (data_uri(self.id), self.data(mailbox)?);
        let contents = match String::from_utf8(bytes) {
            Ok(text) => ResourceContents::text(text, uri),
            Err(error) => ResourceContents::blob(STANDARD.encode(error.into_bytes()), uri),
        };
        Ok(contents.with_mime_type(self.data_type().unwrap_or_else(|| JSON.to_owned())))
    }
}

/// The text that `read` printed, as a resource.
pub(super) fn file_contents(id: TaskId, text: &str) -> ResourceContents {
    ResourceContents::text(text, uri(id)).with_mime_type(JSON)
}

pub(super) fn not_found(uri: &str) -> ErrorData {
    let message = format!("no resource `{uri}`; see resources/list");
    ErrorData::resource_not_found(message, Some(serde_json::json!({ "uri": uri })))
}
