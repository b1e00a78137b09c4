//! One attempt of a task: the runner, its timeout, what becomes of its data, and no secret in any of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use protocol::clock;
use protocol::code::Code;
use protocol::duration::PositiveDuration;
use protocol::layout::compact_bytes;
use protocol::mailbox::result::LARGE;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::attempt::report::{AttemptPurpose, AttemptReport, FailedAttempt, FailureKind};
use crate::base::select;
use crate::catalog::definition::Definition;
use crate::config::Config;
use crate::runner::{Invocation, OutputData, Run, RunnerContext, RunnerOutput};
use crate::task::confirmation::ReplacedValues;
use crate::task::effect::EffectClass;
use crate::task::failure::{Failure, Retry, SideEffect};
use crate::task::fingerprint::Fingerprint;
use crate::task::{End, Outcome, Task};

mod lookup;
pub mod report;

/// Says why a running attempt was told to stop.
pub type StopCause = Arc<std::sync::OnceLock<FailureKind>>;

/// Performs one attempt to its end. Always returns, at the latest a little after the timeout.
pub async fn perform(
    task: Task,
    definition: Arc<Definition>,
    purpose: AttemptPurpose,
    context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
    reason: StopCause,
) -> AttemptReport {
    let attempt = Attempt { task: &task, context: &context, data_folder: &data_folder, cancel, reason };
    let result = match purpose {
        AttemptPurpose::Work => attempt.work(&definition).await,
        AttemptPurpose::Lookup => lookup::look_up(&attempt, &definition).await,
    };
    AttemptReport { id: task.id, attempt: task.attempt, result }
}

/// Looks what is there that `task` would replace. Always returns, a little after the timeout of whoever looks.
pub async fn preview(
    task: Task,
    definition: Arc<Definition>,
    context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
) -> ReplacedValues {
    let reason = StopCause::default();
    let attempt = Attempt { task: &task, context: &context, data_folder: &data_folder, cancel, reason };
    lookup::preview(&attempt, &definition).await.unwrap_or_else(|| ReplacedValues::Fields(Map::new()))
}

/// One attempt, and what it is made with.
struct Attempt<'a> {
    task: &'a Task,
    context: &'a RunnerContext,
    data_folder: &'a Path,
    cancel: CancellationToken,
    reason: StopCause,
}

impl Attempt<'_> {
    async fn work(&self, definition: &Definition) -> Result<End, FailedAttempt> {
        let (started, started_at) = (Instant::now(), clock::now());
        let invocation = invocation(self.task, self.task.input.clone());
        let timeout = definition.timeout.unwrap_or(self.context.config.executor.timeout);
        let outcome = match self.is_as_shown(definition, &invocation).await {
            Ok(()) => self.bounded(&definition.run, &invocation, timeout).await,
            Err(failure) => Err(failure),
        };
        let most = self.context.config.executor.output_bytes;
        let shaped = match outcome {
            Ok(success) => shape(success, self.task, definition, self.data_folder, most).await,
            Err(failure) => Err(failure),
        };
        let duration = milliseconds(started);
        match shaped {
            Ok((outcome, meta)) => Ok(end(outcome, meta, duration, self.context)),
            Err(mut failure) => {
                if self.is_in_doubt(&failure) {
                    failure.error.details.extend(sent(definition, &invocation, &self.context.config));
                    failure = failure.detail("started_at", started_at.to_string());
                }
                Err(failed(failure, self.task, timeout, &self.reason, duration, self.context))
            }
        }
    }

    /// Whether what would be executed is what a human was shown, if one was.
    async fn is_as_shown(&self, definition: &Definition, invocation: &Invocation) -> Result<(), Failure> {
        let Some(confirmation) = &self.task.confirmation else { return Ok(()) };
        let (shown, files) = (confirmation.files.clone(), definition.run.files(invocation));
        let look = move || {
            let is_same = shown.iter().map(|file| &file.path).eq(&files);
            is_same && shown.iter().all(Fingerprint::holds)
        };
        // A large program takes its time to be read.
        if !matches!(tokio::task::spawn_blocking(look).await, Ok(true)) {
            return Err(drifted("the program is no longer the one that a human was shown"));
        }
        match (&confirmation.preview, lookup::preview(self, definition).await) {
            (Some(ReplacedValues::Fields(shown)), Some(now)) if ReplacedValues::Fields(shown.clone()) != now => {
                Err(drifted("what it would replace is no longer what a human was shown"))
            }
            _ => Ok(()),
        }
    }

    /// Runs `invocation`; when its time is up it is told to stop, and still reports.
    async fn bounded(
        &self,
        run: &Run,
        invocation: &Invocation,
        timeout: PositiveDuration,
    ) -> Result<RunnerOutput, Failure> {
        let work = run.perform(invocation, self.context, &self.cancel);
        tokio::pin!(work);
        tokio::select! {
            outcome = &mut work => outcome,
            () = tokio::time::sleep(timeout.get()) => {
                if self.reason.set(FailureKind::Timeout).is_err() {
                    tracing::debug!(id = %self.task.id, "it was being stopped when its time ran out");
                }
                self.cancel.cancel();
                work.await
            }
        }
    }

    /// Whether nobody knows what became of something that was sent.
    fn is_in_doubt(&self, failure: &Failure) -> bool {
        let was_cut_off = matches!(failure.error.code, Code::Cancelled | Code::TimedOut | Code::ConnectionLost);
        failure.side_effect == SideEffect::Possible && !self.task.effect.repeatable() && was_cut_off
    }
}

fn drifted(what: &str) -> Failure {
    Failure::new(Code::Drifted, format!("{what}: nothing was done"))
        .hint("run it again if it is still wanted: the human will be asked about it as it is now")
}

/// What an order sends, as its runner plans it: with secrets as `secret:NAME`, and the beginning only
/// if it is long. Empty if it cannot be told.
pub fn sent(definition: &Definition, invocation: &Invocation, config: &Config) -> Map<String, Value> {
    let plan = definition.run.plan(invocation, config).ok();
    let plan = plan.map(|plan| ("sent".to_owned(), json!({ definition.run.name(): excerpt(&plan) })));
    plan.into_iter().collect()
}

fn milliseconds(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn shape(
    success: RunnerOutput,
    task: &Task,
    definition: &Definition,
    data_folder: &Path,
    output_bytes: u64,
) -> Result<(Outcome, Map<String, Value>), Failure> {
    let outcome = match success.data {
        OutputData::Json(data) => {
            let selected = definition.result.as_ref().map(|shape| select::select(&shape.select, &data)).transpose();
            // The effect has happened by now, whatever becomes of its data.
            let select_failed = |error: select::SelectError| {
                after_effect(Failure::new(Code::SelectFailed, error.to_string()).detail("data", excerpt(&data)), task)
            };
            let data = match selected.map_err(select_failed)? {
                Some(selected) => selected,
                None => data,
            };
            let bytes = compact_bytes(&data);
            if bytes > output_bytes {
                return Err(too_large(bytes, output_bytes, task));
            }
            Outcome::Data(data)
        }
        OutputData::File { path, content_type, bytes } => {
            if bytes > output_bytes {
                if let Err(error) = tokio::fs::remove_file(&path).await {
                    tracing::warn!(%error, "data that is too large was left behind");
                }
                return Err(too_large(bytes, output_bytes, task));
            }
            let kept = data_folder.join(task.id.to_string());
            tokio::fs::rename(&path, &kept).await.map_err(|error| {
                Failure::new(Code::Io, format!("the data could not be kept: {error}")).effect_possible()
            })?;
            Outcome::File { path: kept, content_type, bytes }
        }
    };
    Ok((outcome, success.meta))
}

fn too_large(bytes: u64, most: u64, task: &Task) -> Failure {
    let failure = Failure::new(Code::ResponseTooLarge, format!("the data has {bytes} bytes; the most is {most}"))
        .hint("ask for less: narrow the input; a human can raise `output_bytes` under [executor] in config.toml");
    after_effect(failure, task)
}

/// A failure that came when the runner had already done its work.
fn after_effect(failure: Failure, task: &Task) -> Failure {
    if task.effect == EffectClass::Read { failure } else { failure.effect_possible() }
}

/// `value`, or its beginning as text where it is large: what explains an error must not be its bulk.
fn excerpt(value: &Value) -> Value {
    const MAX_CHARS: usize = 2_000;
    if compact_bytes(value) < LARGE as u64 {
        return value.clone();
    }
    protocol::excerpt::chars(&value.to_string(), MAX_CHARS).into_owned().into()
}

fn failed(
    failure: Failure,
    task: &Task,
    timeout: PositiveDuration,
    reason: &StopCause,
    duration: u64,
    context: &RunnerContext,
) -> FailedAttempt {
    let side_effect = failure.side_effect;
    let kind = if failure.error.code == Code::Cancelled { reason.get().copied() } else { None }
        .unwrap_or(FailureKind::Failure);
    let mut error = failure.error;
    if kind == FailureKind::Timeout {
        error.code = Code::TimedOut;
        error.message = format!("it took longer than {timeout}");
    }
    if side_effect == SideEffect::Possible && !task.effect.repeatable() {
        let known = error.hint.take().map(|hint| format!("{hint}; ")).unwrap_or_default();
        error.hint = Some(format!("{known}it may have taken effect all the same: look before you run it again"));
    }
    let retry = if kind == FailureKind::Timeout { Retry::Later } else { failure.retry };
    FailedAttempt { end: end(Outcome::Error(error), Map::new(), duration, context), kind, retry, side_effect }
}

fn end(outcome: Outcome, mut meta: Map<String, Value>, duration: u64, context: &RunnerContext) -> End {
    meta.insert("duration_ms".to_owned(), duration.into());
    let mut end = End { at: clock::now(), outcome, meta };
    match &mut end.outcome {
        Outcome::Data(data) => context.secrets.redact_value(data),
        Outcome::Error(error) => context.secrets.redact_error(error),
        Outcome::File { .. } => {}
    }
    end.meta.values_mut().for_each(|value| context.secrets.redact_value(value));
    end
}

/// What a runner gets to do for `task`, with this input.
pub fn invocation(task: &Task, input: Map<String, Value>) -> Invocation {
    let decision = task.confirmation.as_ref().and_then(|asked| asked.decision.as_ref());
    Invocation {
        id: task.id.to_string(),
        attempt: task.attempt,
        input,
        caller: task.caller.clone(),
        answer: decision.and_then(|decision| decision.answer.clone()),
    }
}
