//! One attempt of a task: calls the runner, enforces the timeout, shapes the data and redacts secrets.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use protocol::clock;
use protocol::code::Code;
use protocol::duration::PositiveDuration;
use protocol::layout::compact_bytes;
use protocol::mailbox::result::LARGE_BYTES;
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

/// Why a running attempt is being stopped; set at most once.
pub type InterruptCause = Arc<std::sync::OnceLock<FailureKind>>;

/// Performs one attempt and reports how it ended. Always returns, shortly after the timeout at the latest.
pub async fn perform(
    task: Task,
    definition: Arc<Definition>,
    purpose: AttemptPurpose,
    context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
    cause: InterruptCause,
) -> AttemptReport {
    let attempt = Attempt { task: &task, context: &context, data_folder: &data_folder, cancel, cause };
    let result = match purpose {
        AttemptPurpose::Work => attempt.work(&definition).await,
        AttemptPurpose::Lookup => lookup::look_up(&attempt, &definition).await,
    };
    AttemptReport { id: task.id, attempt: task.attempt, result }
}

/// Looks up the current values that `task` would replace. Always returns, shortly after the lookup's timeout at
/// the latest.
pub async fn preview(
    task: Task,
    definition: Arc<Definition>,
    context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
) -> ReplacedValues {
    let cause = InterruptCause::default();
    let attempt = Attempt { task: &task, context: &context, data_folder: &data_folder, cancel, cause };
    lookup::preview(&attempt, &definition).await.unwrap_or_else(|| ReplacedValues::Fields(Map::new()))
}

/// One attempt and its inputs.
struct Attempt<'a> {
    task: &'a Task,
    context: &'a RunnerContext,
    data_folder: &'a Path,
    cancel: CancellationToken,
    cause: InterruptCause,
}

impl Attempt<'_> {
    async fn work(&self, definition: &Definition) -> Result<End, FailedAttempt> {
        let (started, started_at) = (Instant::now(), clock::now());
        let invocation = invocation(self.task, self.task.input.clone());
        let timeout = definition.timeout.unwrap_or(self.context.config.executor.timeout);
        let outcome = match self.check_unchanged(definition, &invocation).await {
            Ok(()) => self.run_with_timeout(&definition.run, &invocation, timeout).await,
            Err(failure) => Err(failure),
        };
        let max_bytes = self.context.config.executor.output_bytes;
        let shaped = match outcome {
            Ok(success) => shape(success, self.task, definition, self.data_folder, max_bytes).await,
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
                Err(failed(failure, self.task, timeout, &self.cause, duration, self.context))
            }
        }
    }

    /// Fails if the program or the values to be replaced changed since a human was shown them.
    async fn check_unchanged(&self, definition: &Definition, invocation: &Invocation) -> Result<(), Failure> {
        let Some(confirmation) = &self.task.confirmation else { return Ok(()) };
        let (shown, files) = (confirmation.files.clone(), definition.run.files(invocation));
        let check_files = move || {
            let has_same_paths = shown.iter().map(|file| &file.path).eq(&files);
            has_same_paths && shown.iter().all(Fingerprint::is_current)
        };
        // Hashing a large program would block the runtime.
        if !matches!(tokio::task::spawn_blocking(check_files).await, Ok(true)) {
            return Err(drifted("the program changed after the human was asked"));
        }
        match (&confirmation.preview, lookup::preview(self, definition).await) {
            (Some(ReplacedValues::Fields(shown)), Some(now)) if ReplacedValues::Fields(shown.clone()) != now => {
                Err(drifted("the values that it would replace changed after the human was asked"))
            }
            _ => Ok(()),
        }
    }

    /// Performs `invocation`. After `timeout` it cancels the runner and waits for its report.
    async fn run_with_timeout(
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
                if self.cause.set(FailureKind::Timeout).is_err() {
                    tracing::debug!(id = %self.task.id, "the timeout passed while the attempt was being stopped");
                }
                self.cancel.cancel();
                work.await
            }
        }
    }

    /// Whether the request was sent but its outcome is unknown.
    fn is_in_doubt(&self, failure: &Failure) -> bool {
        let was_cut_off = matches!(failure.error.code, Code::Cancelled | Code::TimedOut | Code::ConnectionLost);
        failure.side_effect == SideEffect::Possible && !self.task.effect.repeatable() && was_cut_off
    }
}

fn drifted(what: &str) -> Failure {
    Failure::new(Code::Drifted, format!("{what}; nothing was done"))
        .hint("if it is still wanted, run it again: the human will be asked about the current state")
}

/// Returns what `invocation` sends, as its runner plans it, under the key `sent`: secrets appear as `secret:NAME`
/// and a long plan is cut. Empty if the runner cannot plan it.
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
            // The side effect has already happened, even if the data cannot be used.
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
                    tracing::warn!(%error, "failed to remove data that is too large");
                }
                return Err(too_large(bytes, output_bytes, task));
            }
            let stored = data_folder.join(task.id.to_string());
            tokio::fs::rename(&path, &stored).await.map_err(|error| {
                Failure::new(Code::Io, format!("failed to store the data: {error}")).effect_possible()
            })?;
            Outcome::File { path: stored, content_type, bytes }
        }
    };
    Ok((outcome, success.meta))
}

fn too_large(bytes: u64, max_bytes: u64, task: &Task) -> Failure {
    let failure = Failure::new(Code::ResponseTooLarge, format!("the data has {bytes} bytes; the limit is {max_bytes}"))
        .hint("ask for less: narrow the input; a human can raise `output_bytes` under [executor] in config.toml");
    after_effect(failure, task)
}

/// Marks a failure that occurred after the runner had succeeded.
fn after_effect(failure: Failure, task: &Task) -> Failure {
    if task.effect == EffectClass::Read { failure } else { failure.effect_possible() }
}

/// Returns `value`, or the beginning of its text if it is large, so that details do not dominate an error.
fn excerpt(value: &Value) -> Value {
    const MAX_CHARS: usize = 2_000;
    if compact_bytes(value) < LARGE_BYTES as u64 {
        return value.clone();
    }
    protocol::excerpt::chars(&value.to_string(), MAX_CHARS).into_owned().into()
}

fn failed(
    failure: Failure,
    task: &Task,
    timeout: PositiveDuration,
    cause: &InterruptCause,
    duration: u64,
    context: &RunnerContext,
) -> FailedAttempt {
    let side_effect = failure.side_effect;
    let kind =
        if failure.error.code == Code::Cancelled { cause.get().copied() } else { None }.unwrap_or(FailureKind::Failure);
    let mut error = failure.error;
    if kind == FailureKind::Timeout {
        error.code = Code::TimedOut;
        error.message = format!("it took longer than {timeout}");
    }
    if side_effect == SideEffect::Possible && !task.effect.repeatable() {
        let hint = error.hint.take().map(|hint| format!("{hint}; ")).unwrap_or_default();
        error.hint = Some(format!("{hint}it may have taken effect anyway: check before you run it again"));
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

/// Returns the invocation of `task` with `input`.
pub fn invocation(task: &Task, input: Map<String, Value>) -> Invocation {
    let decision = task.confirmation.as_ref().and_then(|confirmation| confirmation.decision.as_ref());
    Invocation {
        id: task.id.to_string(),
        attempt: task.attempt,
        input,
        caller: task.caller.clone(),
        answer: decision.and_then(|decision| decision.answer.clone()),
    }
}
