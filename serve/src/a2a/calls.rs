//! The calls of a client, whatever the binding: a message becomes a question, and its turn a task.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use agent_loop::input::InputPlace;
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::desk::TaskDesk;
use super::error::{A2aError, A2aErrorKind};
use super::record::{TaskFeed, TaskOwner, TaskRecord, TurnPlace};
use super::wire::{
    A2aMessage, A2aState, A2aTask, ListParams, OWN_METADATA, OwnMetadata, SendConfiguration, SendParams, TaskParams,
};
use crate::http::{HttpClient, ServeState};
use crate::json_input;
use crate::service::io_error;
use crate::service::turn::{Question, QuestionLimits, WhenBusy};

/// How many tasks a page of a list has at most, and if the client does not say.
const MAX_PAGE_SIZE: usize = 100;
const PAGE_SIZE: usize = 50;
/// The most bytes of the tasks on a page. A page has one task at least.
const MAX_PAGE_BYTES: usize = 16 << 20;
/// What a list is asked for that does not ask for a state.
const UNSPECIFIED: &str = "TASK_STATE_UNSPECIFIED";
/// The longest context id that a client may choose.
const MAX_CONTEXT_BYTES: usize = 256;

/// What every call needs.
#[derive(Debug, Clone)]
pub(super) struct CallDesk {
    pub state: Arc<ServeState>,
    pub desk: Arc<TaskDesk>,
    pub client: HttpClient,
}

/// The answer to a message, or to a question after a task.
#[derive(Debug)]
pub(super) struct TaskAnswer {
    pub record: Arc<TaskRecord>,
    pub task: A2aTask,
}

/// The parameters of a call.
pub(super) fn params<T: DeserializeOwned>(params: Value) -> Result<T, A2aError> {
    let params = if params.is_null() { json!({}) } else { params };
    json_input::read(params)
        .map_err(|reason| A2aError::new(A2aErrorKind::InvalidParams, format!("the parameters are invalid: {reason}")))
}

impl CallDesk {
    fn owner(&self) -> TaskOwner {
        match &self.client.key {
            Some(key) => TaskOwner::Key(key.clone()),
            None => TaskOwner::Address(self.client.address.to_string()),
        }
    }

    /// The session of one of the client's contexts. Its last 32 characters are hexadecimal digits, so no name of a key
    /// and no context that a client thinks of leads to the session of another client.
    pub(super) fn session(&self, context: &str) -> String {
        let owner = match self.owner() {
            TaskOwner::Key(name) => name,
            TaskOwner::Address(address) => address,
        };
        let is_ours = context.len() == 32 && context.chars().all(|digit| matches!(digit, '0'..='9' | 'a'..='f'));
        let place = if is_ours { context.to_owned() } else { digest(context) };
        format!("a2a-{owner}-{place}")
    }

    /// Asks the session of the message's context. Returns the task, and its updates from here on.
    pub(super) async fn ask(&self, params: SendParams) -> Result<(Arc<TaskRecord>, TaskFeed), A2aError> {
        let SendParams { mut message, configuration, metadata } = params;
        // Some clients write what they leave out as empty texts.
        for id in [&mut message.context_id, &mut message.task_id] {
            id.take_if(|id| id.is_empty());
        }
        check(&message, &configuration)?;
        let text = text(&message)?;
        let owner = self.owner();
        if let Some(id) = &message.task_id {
            return Err(self.refuse_to_continue(id, &message));
        }
        // Until the task is kept: the same message that comes at the same time finds it.
        let admission = self.desk.admission.lock().await;
        let repeated = self.desk.find_repeated(&owner, &message);
        let context = match (repeated, &message.context_id) {
            // The session may know the message all the same.
            (Some(record), _) if record.is_lost() => record.context_id.clone(),
            (Some(record), _) => {
                let feed = record.feed();
                return Ok((record, feed));
            }
            (None, Some(context)) => context.clone(),
            (None, None) => uuid::Uuid::now_v7().simple().to_string(),
        };
        let own = own_metadata(&message, metadata)?;
        let session = self.session(&context);
        let repeat_key = Some(message.message_id.clone()).filter(|id| !id.is_empty());
        let mut asker = self.client.asker("a2a", session);
        asker.depth = asker.depth.max(own.depth);
        asker.has_no_commands |= own.commands == Some(false);
        let record = Arc::new(self.desk.task(owner, asker.clone(), context, message));
        let is_added = self.desk.add(&record).map_err(|error| io_error("failed to store the task", &error))?;
        drop(admission);
        if !is_added {
            let error = ErrorBody::new(Code::Throttled, "you have too many open tasks");
            return Err(A2aError::throttled(&error.hint("wait for some of them, or cancel them")));
        }
        let question = Question {
            model: own.model,
            // A task is a whole turn, so it is not ended early by the next one.
            when_busy: WhenBusy::Queue,
            limits: QuestionLimits {
                steps: own.limits.steps,
                tokens: own.limits.tokens,
                cost: own.limits.cost,
                calls: own.limits.calls,
                deadline: own.limits.deadline.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            },
            repeat_key,
            ..Question::new(asker, text)
        };
        let feed = record.feed();
        match self.state.service.ask(question).await {
            Ok(turn) => {
                if let Some(question) = turn.question() {
                    record.set_place(TurnPlace { session: turn.session(), question });
                }
                self.desk.follow(Arc::clone(&record), turn, Arc::clone(&self.state.service));
            }
            Err(error) if error.code == Code::Throttled => {
                self.desk.remove(&record);
                return Err(A2aError::throttled(&error));
            }
            Err(error) => record.on_refused(&error),
        }
        Ok((record, feed))
    }

    /// A task is one turn, so no message is added to it; what it waits for is decided elsewhere.
    fn refuse_to_continue(&self, id: &str, message: &A2aMessage) -> A2aError {
        let Some(record) = self.desk.find(&self.owner(), id) else { return A2aError::no_task(id) };
        if message.context_id.as_ref().is_some_and(|context| *context != record.context_id) {
            let words = format!("task `{id}` belongs to another context than the message");
            return A2aError::new(A2aErrorKind::InvalidParams, words);
        }
        let words = match record.state() {
            A2aState::InputRequired => {
                "it waits for a human on the confirmation page, and goes on by itself when they have decided"
            }
            state if state.is_final() => "it has ended",
            _ => "it is at work",
        };
        let words = format!(
            "task `{id}` takes no further message: {words}. Send the message without taskId, with contextId \
             `{}`, to go on with the conversation",
            record.context_id
        );
        A2aError::new(A2aErrorKind::UnsupportedOperation, words)
    }

    /// Asks, and waits until the task ends or needs a human, unless the client does not want to wait.
    pub(super) async fn send(&self, params: SendParams) -> Result<TaskAnswer, A2aError> {
        let SendConfiguration { return_immediately, history_length, .. } = params.configuration;
        let (record, mut feed) = self.ask(params).await?;
        while !return_immediately && !record.state().ends_waiting() {
            if feed.updates.recv().await.is_none() {
                break;
            }
        }
        let task = with_history(record.task(), history_length);
        Ok(TaskAnswer { record, task })
    }

    pub(super) fn get(&self, params: &TaskParams) -> Result<TaskAnswer, A2aError> {
        let record = self.find(&params.id)?;
        let task = with_history(record.task(), params.history_length);
        Ok(TaskAnswer { record, task })
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<TaskRecord>, A2aError> {
        self.desk.find(&self.owner(), id).ok_or_else(|| A2aError::no_task(id))
    }

    pub(super) async fn cancel(&self, params: &TaskParams) -> Result<TaskAnswer, A2aError> {
        let record = self.find(&params.id)?;
        if record.state().is_final() {
            let words = format!("task `{}` has ended: {}", record.id, state_word(record.state()));
            return Err(A2aError::new(A2aErrorKind::TaskNotCancelable, words));
        }
        self.desk.cancel(&record, &self.state.service).await?;
        let task = record.task();
        Ok(TaskAnswer { record, task })
    }

    pub(super) fn subscribe(&self, params: &TaskParams) -> Result<(Arc<TaskRecord>, TaskFeed), A2aError> {
        let record = self.find(&params.id)?;
        let feed = record.feed();
        if feed.task.status.state.is_final() {
            let words = format!("task `{}` has ended: ask for it with GetTask", record.id);
            return Err(A2aError::new(A2aErrorKind::UnsupportedOperation, words));
        }
        Ok((record, feed))
    }

    pub(super) fn list(&self, params: &ListParams) -> Result<Value, A2aError> {
        if !self.client.may_read {
            return Err(A2aError::needs_read());
        }
        let wrong = |words: String| A2aError::new(A2aErrorKind::InvalidParams, words);
        let status = params.status.as_deref().filter(|status| !status.is_empty() && *status != UNSPECIFIED);
        let status: Option<A2aState> = status
            .map(|status| serde_json::from_value(status.into()))
            .transpose()
            .map_err(|error| wrong(format!("`status` is invalid: {error}")))?;
        let after = params.status_timestamp_after.as_deref().filter(|text| !text.is_empty());
        let after: Option<Timestamp> = after
            .map(str::parse)
            .transpose()
            .map_err(|error| wrong(format!("`statusTimestampAfter` is invalid: {error}")))?;
        let size = params.page_size.filter(|size| *size > 0).unwrap_or(PAGE_SIZE);
        if size > MAX_PAGE_SIZE {
            return Err(wrong(format!("`pageSize` is more than {MAX_PAGE_SIZE}")));
        }
        let mut found = self.desk.list(&self.owner());
        found.retain(|record| {
            params.context_id.as_ref().is_none_or(|context| context.is_empty() || *context == record.context_id)
                && status.is_none_or(|status| status == record.state())
                && after.is_none_or(|after| record.changed_at() >= after)
        });
        let total = found.len();
        // The token is the last task of the page before.
        let start = match params.page_token.as_deref().filter(|token| !token.is_empty()) {
            None => 0,
            Some(token) => {
                let last = found.iter().position(|record| record.id == token);
                last.ok_or_else(|| wrong("`pageToken` is not valid anymore: list from the beginning".to_owned()))? + 1
            }
        };
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        for record in found.iter().skip(start).take(size) {
            let mut task = with_history(record.task(), params.history_length);
            task.artifacts = params.include_artifacts.then(|| task.artifacts.unwrap_or_default());
            let task = json!(task);
            bytes += task.to_string().len();
            if bytes > MAX_PAGE_BYTES && !tasks.is_empty() {
                break;
            }
            tasks.push(task);
        }
        let next = (start + tasks.len() < total).then(|| found.get(start + tasks.len() - 1)).flatten();
        let next = next.map(|record| record.id.clone());
        Ok(json!({
            "tasks": tasks,
            "nextPageToken": next.unwrap_or_default(),
            "pageSize": size,
            "totalSize": total,
        }))
    }
}

fn check(message: &A2aMessage, configuration: &SendConfiguration) -> Result<(), A2aError> {
    if configuration.task_push_notification_config.is_some() {
        let words = "push notifications are not sent: stream the task, or ask for it with GetTask";
        return Err(A2aError::new(A2aErrorKind::PushNotificationNotSupported, words));
    }
    if message.context_id.as_ref().is_some_and(|context| context.len() > MAX_CONTEXT_BYTES) {
        let words = format!("a contextId has at most {MAX_CONTEXT_BYTES} bytes; leave it out to get one");
        return Err(A2aError::new(A2aErrorKind::InvalidParams, words));
    }
    if !matches!(message.role.as_str(), "ROLE_USER" | "user" | "") {
        let words = format!("a message that is sent is of the role `ROLE_USER`, and not `{}`", message.role);
        return Err(A2aError::new(A2aErrorKind::InvalidParams, words));
    }
    Ok(())
}

/// The text of a message: data as JSON, and no files.
fn text(message: &A2aMessage) -> Result<String, A2aError> {
    let mut texts = Vec::new();
    for part in &message.parts {
        if part.raw.is_some() || part.url.is_some() {
            let words = "files are not taken: send their content as text, or say where the agent finds them";
            return Err(A2aError::new(A2aErrorKind::ContentTypeNotSupported, words));
        }
        match (&part.text, &part.data) {
            // A file: what it says is not said by who sends it.
            (Some(text), _) if part.filename.is_some() || part.media_type.is_some() => {
                texts.push(InputPlace::Client.quoted(text));
            }
            (Some(text), _) => texts.push(text.clone()),
            (None, Some(data)) => texts.push(data.to_string()),
            (None, None) => {}
        }
    }
    let text = texts.join("\n\n");
    if text.trim().is_empty() {
        let words = "the message has no text: put it into `message.parts`, as {\"text\": \"...\"}";
        return Err(A2aError::new(A2aErrorKind::InvalidParams, words));
    }
    Ok(text)
}

/// What another agent of ours says, in the metadata of the message or of the request.
fn own_metadata(message: &A2aMessage, mut request: serde_json::Map<String, Value>) -> Result<OwnMetadata, A2aError> {
    let [of_message, of_request] = [message.metadata.get(OWN_METADATA).cloned(), request.remove(OWN_METADATA)]
        .map(|own| own.map(params::<OwnMetadata>).transpose());
    match (of_message?, of_request?) {
        // Neither place can lower the depth that the other one tells.
        (Some(of_message), Some(OwnMetadata { depth, .. })) => {
            Ok(OwnMetadata { depth: of_message.depth.max(depth), ..of_message })
        }
        (own, other) => Ok(own.or(other).unwrap_or_default()),
    }
}

fn with_history(mut task: A2aTask, length: Option<usize>) -> A2aTask {
    if let Some(length) = length {
        let surplus = task.history.len().saturating_sub(length);
        task.history.drain(..surplus);
    }
    task
}

fn state_word(state: A2aState) -> String {
    serde_json::to_value(state).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// 32 hexadecimal digits that stand for a context id that we did not issue.
fn digest(context: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(context.as_bytes());
    digest.iter().take(16).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
