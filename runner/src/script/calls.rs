//! What the calls of a script do.
//!
//! A call of a subtool is a request like any other, in the name of the script's caller. What an error means for the
//! script, and what may be tried again, is decided here; what a call may do is not.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use catalog::absent::needed_is_absent;
use futures_util::FutureExt as _;
use ground::task::name::SubtoolName;
use ground::task::part_of;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use protocol::extent;
use protocol::mailbox::Mailbox;
use protocol::task::TaskId;
use protocol::tool_scope::ToolScope;
use script::{Call, CallError, CallKind, ErrorClass, Json, Outcome};
use serde_json::{Map, Value};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::{OpenCall, now};
use crate::calls_progress::CallsProgress;
use crate::delegation::{CallKey, CalledTask, Delegation};
use crate::{Failure, Invocation};

/// The subtool that asks the human.
pub(super) const ASK_USER: &str = "ask_user";
/// The most data of one call, in bytes.
const MAX_DATA_BYTES: u64 = 8 << 20;
/// The longest sleep: a year.
const MAX_SLEEP_MS: f64 = 366.0 * 24.0 * 3600.0 * 1000.0;
/// How long to wait until a call is made again that was one too many.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a search may take.
const SEARCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Performs the calls of one script.
#[derive(Clone)]
pub(super) struct ScriptCalls<'a> {
    pub(super) invocation: &'a Invocation,
    pub(super) delegation: &'a Delegation,
    /// The subtools that the script's definition lets it call.
    pub(super) callable: ToolScope,
    pub(super) progress: Arc<CallsProgress>,
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct CallEnd {
    pub(super) outcome: Outcome,
    /// The class of the data.
    pub(super) class: Option<DataClass>,
    pub(super) task: Option<TaskId>,
    /// Whether the data is not, or may not be, all there is.
    pub(super) is_part: bool,
}

impl CallEnd {
    pub(super) fn of_data(data: &Value) -> Self {
        Self { outcome: Outcome::Data(Json::from(data)), class: None, task: None, is_part: false }
    }

    fn of_error(error: ErrorBody) -> Self {
        let ErrorBody { code, message, hint, details, .. } = error;
        let details = (!details.is_empty()).then(|| Json::from(&Value::Object(details)));
        let error = CallError { code: code.as_str().to_owned(), message, hint, details, class: class_of(code) };
        Self { outcome: Outcome::Error(error), class: None, task: None, is_part: false }
    }

    /// The code of an error that a script got.
    pub(super) fn code_of(error: &CallError) -> Option<Code> {
        serde_json::from_value(Value::String(error.code.clone())).ok()
    }
}

fn class_of(code: Code) -> ErrorClass {
    match code {
        Code::Denied
        | Code::Expired
        | Code::RefusedByPolicy
        | Code::NoApprover
        | Code::NeedsAssurance
        | Code::HumansOnly
        | Code::TrustZone => ErrorClass::Denied,
        Code::UnknownOutcome => ErrorClass::OutcomeUnknown,
        _ => ErrorClass::Error,
    }
}

impl<'a> ScriptCalls<'a> {
    /// Which of the names that a script calls are subtools that its caller may use.
    pub(super) fn tools(&self, names: BTreeSet<String>) -> BTreeMap<String, String> {
        usable_tools(&self.delegation.subtools.borrow().clone(), &self.invocation.caller.tool_scope, names)
    }

    /// What it may call: never more than its caller.
    fn scope(&self) -> ToolScope {
        self.invocation.caller.tool_scope.also(&self.callable)
    }

    /// Performs a call that was made at `at`, until it has ended or `stop` is cancelled. Fails if the attempt cannot go on.
    pub(super) fn perform(&self, call: Call, at: i64, stop: CancellationToken) -> OpenCall<'a> {
        let calls = self.clone();
        async move {
            let seq = call.seq;
            (seq, calls.end_of(call, at, &stop).await)
        }
        .boxed()
    }

    async fn end_of(&self, call: Call, at: i64, stop: &CancellationToken) -> Result<CallEnd, Failure> {
        let Ok(Value::Object(input)) = call.input.to_value() else {
            return Ok(CallEnd::of_error(ErrorBody::new(Code::InvalidInput, "the input is not an object")));
        };
        match (call.kind, &call.name) {
            (CallKind::Run, Some(name)) => self.run(call.seq, name, input, stop).await,
            (CallKind::AskUser, _) => self.run(call.seq, ASK_USER, input, stop).await,
            (CallKind::ListTools, _) => self.list_tools(&input, stop).await,
            (CallKind::Read, _) => Ok(self.read(&input)),
            (CallKind::Sleep, _) => self.sleep(&input, at, stop).await,
            (CallKind::Run, None) => Err(Failure::new(Code::Internal, "a call without the name of a subtool")),
        }
    }

    async fn run(
        &self,
        seq: u64,
        name: &str,
        input: Map<String, Value>,
        stop: &CancellationToken,
    ) -> Result<CallEnd, Failure> {
        // What a caller wrote has the names that it knows; a program of a definition tells it no others.
        let is_of_caller = self.callable.is_everything();
        let scope = &self.invocation.caller.tool_scope;
        if !is_of_caller && !scope.is_everything() {
            let excluded = (!self.callable.covers(name)).then(needed_is_absent);
            let not_theirs = || self.delegation.excluded(name, self.invocation).map(|failure| failure.error);
            if let Some(error) = excluded.or_else(not_theirs) {
                return Ok(CallEnd::of_error(error));
            }
        }
        // A call that its caller may not make either is refused like any other of theirs.
        if !self.callable.covers(name) {
            let error = ErrorBody::new(Code::RefusedByPolicy, format!("this script may not call `{name}`"));
            return Ok(CallEnd::of_error(error.hint("its definition names what it may call, in `run.script.calls`")));
        }
        let key = part_of::key_of_call(&self.invocation.id, seq);
        let on_waiting = || self.progress.on_waiting(&seq.to_string(), format!("call {seq}, `{name}`,"));
        let called = match self.call_when_there_is_room(&key, name, input, stop, on_waiting).await {
            Ok(called) => called,
            // The script does not hear of what ends its attempt: a later one makes the same call again.
            Err(failure) if matches!(failure.error.code, Code::Cancelled | Code::Io | Code::Internal) => {
                return Err(failure);
            }
            Err(failure) if failure.error.code == Code::IdempotencyMismatch => {
                let message = format!("call {seq} was made before, with another input than now");
                return Err(Failure::new(Code::ScriptDiverged, message)
                    .hint("the script's record was lost; what it did: agent-magic-tool tasks --state=succeeded"));
            }
            Err(failure) => return Ok(CallEnd::of_error(failure.error)),
        };
        let class = called.result.as_object().and_then(DataClass::of_result);
        let end = if called.result["success"] == true {
            data_of(&called, &self.delegation.mailbox)?
        } else {
            CallEnd::of_error(error_of(&called, name))
        };
        let is_part = extent::is_incomplete(&called.result["_meta"]);
        Ok(CallEnd { class, task: Some(called.id), is_part, ..end })
    }

    /// Makes the call as soon as no more tasks are open, or wait for a human, than may.
    async fn call_when_there_is_room(
        &self,
        key: &str,
        name: &str,
        input: Map<String, Value>,
        stop: &CancellationToken,
        on_waiting: impl Fn() + Send + Sync,
    ) -> Result<CalledTask, Failure> {
        let mut pause = MIN_PAUSE;
        loop {
            let key = CallKey::exact(key.to_owned());
            let called = self.delegation.call_with_key(self.invocation, key, name, input.clone(), stop, &on_waiting);
            match called.await {
                Err(failure) if failure.error.code == Code::Throttled => {}
                called => return called,
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(Failure::new(Code::Cancelled, "cancelled before it was called")),
                () = tokio::time::sleep(pause) => pause = (2 * pause).min(MAX_PAUSE),
            }
        }
    }

    /// What `list tools` finds for the caller.
    async fn list_tools(&self, input: &Map<String, Value>, stop: &CancellationToken) -> Result<CallEnd, Failure> {
        let Some(query) = input.get("query").and_then(Value::as_str) else {
            let error = ErrorBody::new(Code::InvalidInput, "`list_tools` takes words")
                .hint("write what you look for: await list_tools(\"search mail\")");
            return Ok(CallEnd::of_error(error));
        };
        let mut command = Command::new(&self.delegation.program);
        command
            .args(["list", "tools", "--whole", &format!("--query={query}")])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        self.delegation.act_for(&mut command, self.invocation, &self.scope());
        let cannot = |what: String| Failure::new(Code::CannotStart, format!("failed to search for subtools: {what}"));
        let output = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(Failure::new(Code::Cancelled, "cancelled while subtools were searched")),
            output = tokio::time::timeout(SEARCH_TIMEOUT, command.output()) => output,
        };
        let output = output.map_err(|_| cannot("it took too long".to_owned()))?;
        let output = output.map_err(|error| cannot(error.to_string()))?;
        if let Ok(found @ Value::Object(_)) = serde_json::from_slice(&output.stdout) {
            return Ok(CallEnd::of_data(&found));
        }
        let error = serde_json::from_slice::<Value>(&output.stderr).ok();
        let error = error.and_then(|mut error| serde_json::from_value(error["error"].take()).ok());
        Ok(CallEnd::of_error(error.unwrap_or_else(|| {
            ErrorBody::new(Code::CannotStart, "failed to search for subtools").hint("write other words")
        })))
    }

    /// The data of a task of the caller that has ended.
    fn read(&self, input: &Map<String, Value>) -> CallEnd {
        if let Some(other) = input.keys().find(|key| *key != "id") {
            let error = ErrorBody::new(Code::InvalidInput, format!("`read` takes an `id`, and no `{other}`"));
            return CallEnd::of_error(error.hint("it returns all of the data: select from that in the script"));
        }
        let id = input.get("id").and_then(Value::as_str).unwrap_or_default();
        let unknown = || {
            let error = ErrorBody::new(Code::UnknownTask, format!("no ended task `{id}` of yours"));
            CallEnd::of_error(error.hint("write the id of a task that has ended: await read({id: \"…\"})"))
        };
        let ended = id.parse().ok().and_then(|id| self.delegation.ended(id, &self.invocation.caller));
        let Some(task) = ended else { return unknown() };
        let mailbox = &self.delegation.mailbox;
        let class = task.result.as_object().and_then(DataClass::of_result);
        self.invocation.heard.hear(class);
        let end = match data_of(&task, mailbox) {
            Ok(end) if task.result["success"] == true => end,
            Ok(_) => CallEnd::of_error(error_of(&task, task.result["tool"].as_str().unwrap_or_default())),
            Err(failure) => CallEnd::of_error(failure.error),
        };
        CallEnd { class, ..end }
    }

    async fn sleep(&self, input: &Map<String, Value>, at: i64, stop: &CancellationToken) -> Result<CallEnd, Failure> {
        let milliseconds = input.get("ms").and_then(Value::as_f64).unwrap_or_default().clamp(0.0, MAX_SLEEP_MS);
        let wanted = Duration::from_secs_f64(milliseconds / 1000.0);
        let passed = Duration::from_millis(u64::try_from(now() - at).unwrap_or_default());
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(Failure::new(Code::Cancelled, "cancelled while the script slept")),
            () = tokio::time::sleep(wanted.saturating_sub(passed)) => Ok(CallEnd::of_data(&Value::Null)),
        }
    }
}

/// Which of `names` are subtools within `scope`, and what those are called: in JavaScript a name has no `-`.
pub(super) fn usable_tools(catalog: &Catalog, scope: &ToolScope, names: BTreeSet<String>) -> BTreeMap<String, String> {
    let is_usable = |name: &str| catalog.usable(name, scope).is_some();
    let mut tools = BTreeMap::new();
    for called in names {
        if is_usable(&called) {
            tools.insert(called.clone(), called);
        } else if let Some(name) = catalog.names().map(SubtoolName::as_str).find(|name| is_written(name, &called))
            && is_usable(name)
        {
            tools.insert(called, name.to_owned());
        }
    }
    tools
}

/// Whether a script writes the name of a subtool like this.
fn is_written(name: &str, called: &str) -> bool {
    name.len() == called.len() && name.contains('-') && name.replace('-', "_") == called
}

/// The data of a task that succeeded.
fn data_of(task: &CalledTask, mailbox: &Mailbox) -> Result<CallEnd, Failure> {
    let bytes = task.result["_meta"]["bytes"].as_u64().unwrap_or_default();
    if bytes > MAX_DATA_BYTES {
        let message = format!("it returned {bytes} bytes; a script may get {MAX_DATA_BYTES} from one call");
        let error = ErrorBody::new(Code::ResponseTooLarge, message).hint("narrow the input, or ask page by page");
        return Ok(CallEnd::of_error(error.detail("id", task.id.to_string())));
    }
    let data = task.data(mailbox).map_err(|error| {
        Failure::new(Code::Io, format!("failed to read the data of a call: {error}")).detail("id", task.id.to_string())
    })?;
    Ok(CallEnd::of_data(&data))
}

/// The error of a task that failed, for the script that called `tool`.
fn error_of(task: &CalledTask, tool: &str) -> ErrorBody {
    let resolved = &task.result["resolution"];
    let mut body = task.error(tool).detail("id", task.id.to_string()).detail("tool", tool);
    for (key, value) in task.result["error"]["details"].as_object().into_iter().flatten() {
        body = body.detail(key, value.clone());
    }
    if let Some(status) = task.result["_meta"].get("http_status") {
        body = body.detail("http_status", status.clone());
    }
    if resolved.is_null() { body } else { body.detail("resolution", resolved.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_human_or_a_rule_did_not_allow_is_denied_and_what_may_have_happened_is_unknown() {
        for (code, class) in [
            (Code::Denied, ErrorClass::Denied),
            (Code::RefusedByPolicy, ErrorClass::Denied),
            (Code::UnknownOutcome, ErrorClass::OutcomeUnknown),
            (Code::ApiError, ErrorClass::Error),
        ] {
            let CallEnd { outcome: Outcome::Error(error), .. } = CallEnd::of_error(ErrorBody::new(code, "x")) else {
                panic!("an error");
            };
            assert_eq!((error.class, CallEnd::code_of(&error)), (class, Some(code)));
        }
    }
}
