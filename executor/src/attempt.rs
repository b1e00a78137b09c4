//! One attempt of a task: calls the runner, enforces the timeout, shapes the data and redacts secrets.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use definition::{Definition, ResultShape};
use dispatcher::report::{AttemptPurpose, AttemptReport, FailedAttempt, FailureKind};
use ground::base::jq_pool::Query;
use ground::base::{credential, schema};
use ground::config::Config;
use ground::config::seal;
use ground::config::secret::HiddenTexts;
use ground::task::confirmation::{LookedUp, ReplacedValues};
use ground::task::effect::EffectClass;
use ground::task::failure::{Failure, Retry, SideEffect};
use ground::task::feedback::{Feedback, ShutdownProbe};
use ground::task::{End, Outcome, Task};
use jq::misplaced;
use jq::select::SelectError;
use protocol::clock;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::duration::PositiveDuration;
use protocol::layout::compact_bytes;
use protocol::mailbox::result::LARGE_BYTES;
use runner::attempt_clock::AttemptClock;
use runner::{
    HeardClass, Invocation, OutputData, ResponseFacts, Runner as _, RunnerContext, RunnerOutput, SubtoolLabel,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::attempt::lookup::LookupRules;

pub mod all_pages;
pub mod dry_run;
pub mod lookup;
mod paging;
mod part;
pub mod pinned;

/// Why a running attempt is being stopped; set at most once.
pub type InterruptCause = Arc<std::sync::OnceLock<FailureKind>>;

/// How a running attempt is stopped, and how it tells what must be known before its end.
#[derive(Debug, Clone)]
pub struct AttemptControl {
    /// What it may look up.
    pub lookup_rules: Arc<dyn LookupRules>,
    pub cancel: CancellationToken,
    pub cause: InterruptCause,
    pub clock: AttemptClock,
    pub feedback: Feedback,
}

impl AttemptControl {
    /// For an attempt that has not begun, stopped by `cancel`.
    fn new(lookup_rules: Arc<dyn LookupRules>, cancel: CancellationToken) -> Self {
        let (cause, clock, feedback) = (InterruptCause::default(), AttemptClock::default(), Feedback::default());
        Self { lookup_rules, cancel, cause, clock, feedback }
    }
}

/// Performs one attempt and reports how it ended. Always returns, shortly after the timeout at the latest.
pub async fn perform(
    mut task: Task,
    definition: Arc<Definition>,
    purpose: AttemptPurpose,
    context: Arc<RunnerContext>,
    data_folder: Arc<Path>,
    control: AttemptControl,
) -> AttemptReport {
    let shown_input = seal::shown(&task.input);
    let hidden = match reveal(&mut task, &context) {
        Ok(hidden) => Arc::new(hidden),
        Err(failure) => {
            let limit = timeout(&definition, purpose, &context.config);
            let failed = failed(failure, &task, limit, &control.cause, 0, &context);
            return AttemptReport { id: task.id, attempt: task.attempt, result: Err(failed) };
        }
    };
    let attempt = Attempt {
        task: &task,
        shown_input,
        hidden: Arc::clone(&hidden),
        context: &context,
        data_folder: &data_folder,
        control: &control,
        heard: HeardClass::default(),
    };
    attempt.heard.hear(task.notes.input_class);
    let work = Box::pin(async {
        match purpose {
            AttemptPurpose::Work => Box::pin(attempt.work(&definition)).await,
            AttemptPurpose::Lookup => lookup::look_up(&attempt, &definition).await,
        }
    });
    // All of it counts: the checks before it, the expressions after it.
    let result = attempt.within(timeout(&definition, purpose, &context.config), work).await;
    let mut result = attempt.settle(result, timeout(&definition, purpose, &context.config));
    let end = match &mut result {
        Ok(end) => end,
        Err(failed) => &mut failed.end,
    };
    // Of an error too, which may quote the data.
    let class = definition.data_class().max(attempt.heard.most().unwrap_or(DataClass::Public));
    if class != DataClass::Internal || task.notes.data_class.is_some() {
        end.meta.insert("data_class".to_owned(), class.as_str().into());
    }
    hide(end, &hidden);
    AttemptReport { id: task.id, attempt: task.attempt, result }
}

/// Returns how long one attempt may take.
pub fn timeout(definition: &Definition, purpose: AttemptPurpose, config: &Config) -> PositiveDuration {
    let own = match purpose {
        AttemptPurpose::Work => definition.timeout,
        AttemptPurpose::Lookup => {
            let lookup = definition.verify.as_ref().and_then(|verify| verify.lookup.as_ref());
            lookup.and_then(|lookup| lookup.definition.timeout)
        }
    };
    own.unwrap_or(config.executor.timeout)
}

/// Reports an attempt that did not end although it was stopped for `cause` and given time.
pub fn abandoned(
    task: &Task,
    timeout: PositiveDuration,
    cause: &InterruptCause,
    context: &RunnerContext,
) -> AttemptReport {
    let failure = Failure::new(Code::Cancelled, "it was stopped, and did not end in time").effect_possible();
    let failed = failed(failure, task, timeout, cause, 0, context);
    AttemptReport { id: task.id, attempt: task.attempt, result: Err(FailedAttempt { retry: Retry::Never, ..failed }) }
}

/// Looks up what the human is shown before `task` starts: the current values that it would replace, and what its dry run
/// shows. Always returns, shortly after the lookups' timeouts at the latest.
pub async fn look_up_for_human(
    mut task: Task,
    definition: Arc<Definition>,
    context: Arc<RunnerContext>,
    lookup_rules: Arc<dyn LookupRules>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
) -> LookedUp {
    // Each has its own time, and one that fails says nothing of the other.
    let control = || AttemptControl::new(Arc::clone(&lookup_rules), cancel.child_token());
    let (of_preview, of_dry_run) = (control(), control());
    let shown_input = seal::shown(&task.input);
    let hidden = match reveal(&mut task, &context) {
        Ok(hidden) => Arc::new(hidden),
        Err(failure) => {
            return LookedUp { replaced: ReplacedValues::Unknown(failure.error.message), would_change: None };
        }
    };
    let attempt = |control| Attempt {
        task: &task,
        shown_input: shown_input.clone(),
        hidden: Arc::clone(&hidden),
        context: &context,
        data_folder: &data_folder,
        control,
        heard: HeardClass::default(),
    };
    let (looking, trying) = (attempt(&of_preview), attempt(&of_dry_run));
    let dry_run = async {
        // The change of a database is its preview.
        definition.dry_run.as_ref()?;
        dry_run::would_change(&trying, &definition, false).await
    };
    let (found, mut would_change) = tokio::join!(lookup::preview(&looking, &definition), dry_run);
    looking.count(0).unwrap_or_else(|failure| tracing::debug!(error = failure.error.message, "not counted"));
    let mut replaced = found.unwrap_or_else(|| ReplacedValues::Fields(Map::new()));
    match &mut replaced {
        ReplacedValues::Fields(fields) => fields.values_mut().for_each(|value| hidden.redact_value(value)),
        ReplacedValues::Unknown(why) | ReplacedValues::NotPermitted(why) => hidden.redact(why),
        ReplacedValues::Impossible(error) => hidden.redact(&mut error.message),
        // Its digest is that of the rows as they are, which are not the caller's.
        ReplacedValues::Change(_) | ReplacedValues::Pending => {}
    }
    if let Some(would_change) = &mut would_change {
        dry_run::hide(would_change, &trying);
    }
    LookedUp { replaced, would_change }
}

/// What rules know the subtool of `task` by.
fn label(task: &Task, definition: &Definition) -> SubtoolLabel {
    SubtoolLabel { name: task.tool.to_string(), tags: definition.tags.clone() }
}

/// Opens the hidden inputs of `task`. Returns them as well, to be hidden in what the attempt reports.
fn reveal(task: &mut Task, context: &RunnerContext) -> Result<HiddenTexts, Failure> {
    let revealed = context.secrets.seal().reveal(&task.input);
    let (input, texts) =
        revealed.map_err(|error| Failure::new(Code::SecretMissing, error.to_string()).hint("run it again"))?;
    task.input = input;
    Ok(HiddenTexts::new(texts))
}

/// Hides hidden inputs in the report of an attempt, which may quote them.
fn hide(end: &mut End, hidden: &HiddenTexts) {
    match &mut end.outcome {
        Outcome::Data(data) => hidden.redact_value(data),
        Outcome::Error(error) => {
            hidden.redact(&mut error.message);
            error.hint.iter_mut().for_each(|hint| hidden.redact(hint));
            error.details.values_mut().for_each(|value| hidden.redact_value(value));
        }
        Outcome::File { .. } => {}
    }
    end.meta.values_mut().for_each(|value| hidden.redact_value(value));
}

/// One attempt and its inputs.
struct Attempt<'a> {
    /// With its hidden inputs opened.
    task: &'a Task,
    shown_input: Map<String, Value>,
    /// The texts of the hidden inputs.
    hidden: Arc<HiddenTexts>,
    context: &'a RunnerContext,
    data_folder: &'a Path,
    control: &'a AttemptControl,
    heard: HeardClass,
}

impl Attempt<'_> {
    async fn work(&self, definition: &Definition) -> Result<End, FailedAttempt> {
        let (started, started_at) = (Instant::now(), clock::now());
        let timeout = timeout(definition, AttemptPurpose::Work, &self.context.config);
        let cause = Arc::clone(&self.control.cause);
        let invocation = Invocation {
            job: self.task.notes.job.clone(),
            is_unsent: self.task.notes.is_unsent,
            clock: self.control.clock.clone(),
            time_limit: Some(timeout.get()),
            shutdown: ShutdownProbe::new(move || cause.get() == Some(&FailureKind::Shutdown)),
            feedback: self.control.feedback.clone(),
            heard: self.heard.clone(),
            hidden: Arc::clone(&self.hidden),
            approved: self.task.confirmation.as_ref().map(|confirmation| confirmation.files.clone()),
            approved_change: self.approved_change(),
            subtool: Some(label(self.task, definition)),
            ..invocation(self.task, self.task.input.clone())
        };
        let rules = &self.control.lookup_rules;
        let may_start = match rules.check_privileges(definition, &self.task.input, &self.task.caller) {
            Ok(()) => self.check_unchanged(definition).await,
            Err(error) => Err(error.into()),
        };
        let shaped = match may_start {
            Ok(()) if self.task.notes.all_pages => Box::pin(self.all_pages(definition, invocation)).await,
            Ok(()) => Box::pin(self.one_page(definition, &invocation)).await,
            Err(failure) => Err(failure),
        };
        let duration = milliseconds(started);
        match shaped {
            Ok((outcome, meta)) => Ok(end(outcome, meta, duration, self.context)),
            Err(mut failure) => {
                if self.is_in_doubt(&failure) {
                    let shown = crate::attempt::invocation(self.task, self.shown_input.clone());
                    failure.error.details.extend(sent(definition, &shown, &self.context.config));
                    failure = failure.detail("started_at", started_at.to_string());
                }
                Err(failed(failure, self.task, timeout, &self.control.cause, duration, self.context))
            }
        }
    }

    async fn perform_and_shape(
        &self,
        definition: &Definition,
        invocation: &Invocation,
    ) -> Result<(Outcome, Map<String, Value>), Failure> {
        let success = pinned::perform(definition, invocation, self.context, &self.control.cancel).await?;
        self.shape(success, definition, &invocation.input).await
    }

    /// Counts what the result takes on the disk beside the input. An attempt whose data exceeds what its caller may keep
    /// has failed.
    fn settle(&self, result: Result<End, FailedAttempt>, timeout: PositiveDuration) -> Result<End, FailedAttempt> {
        let bytes = match result.as_ref().map(|end| &end.outcome) {
            Ok(Outcome::Data(data)) => compact_bytes(data),
            Ok(Outcome::File { bytes, .. }) => *bytes,
            Ok(Outcome::Error(_)) | Err(_) => 0,
        };
        let counted = self.count(bytes);
        match (result, counted) {
            (Ok(end), Err(failure)) => {
                let duration = end.meta.get("duration_ms").and_then(Value::as_u64).unwrap_or_default();
                let failure = after_effect(failure, self.task);
                Err(failed(failure, self.task, timeout, &self.control.cause, duration, self.context))
            }
            (result, _) => result,
        }
    }

    fn count(&self, bytes: u64) -> Result<(), Failure> {
        let (settings, bytes) = (&self.context.config.executor, bytes + compact_bytes(&self.shown_input));
        self.context.results.settle(self.task.id, &self.task.caller, bytes, settings)
    }

    /// The digest of the rows that the human was shown. The change itself compares it.
    fn approved_change(&self) -> Option<String> {
        match self.task.confirmation.as_ref()?.preview.as_ref()? {
            ReplacedValues::Change(change) => Some(change.digest.clone()),
            ReplacedValues::Pending
            | ReplacedValues::Fields(_)
            | ReplacedValues::Unknown(_)
            | ReplacedValues::NotPermitted(_)
            | ReplacedValues::Impossible(_) => None,
        }
    }

    /// Fails if the values to be replaced changed since a human was shown them. The runner compares the files.
    async fn check_unchanged(&self, definition: &Definition) -> Result<(), Failure> {
        let Some(confirmation) = &self.task.confirmation else { return Ok(()) };
        if definition.preview.is_none() {
            return Ok(());
        }
        match (&confirmation.preview, lookup::preview(self, definition).await) {
            (Some(ReplacedValues::Fields(shown)), Some(now)) if ReplacedValues::Fields(shown.clone()) != now => {
                Err(Failure::drifted("the values that it would replace changed after the human was asked"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the output of `work`. After `timeout` it cancels the attempt and waits for what `work` makes of that.
    async fn within<T>(&self, timeout: PositiveDuration, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        tokio::select! {
            outcome = &mut work => outcome,
            () = self.control.clock.expired(timeout.get()) => {
                if self.control.cause.set(FailureKind::Timeout).is_err() {
                    tracing::debug!(id = %self.task.id, "the timeout passed while the attempt was being stopped");
                }
                self.control.cancel.cancel();
                work.await
            }
        }
    }

    /// Whether the request was sent but its outcome is unknown.
    fn is_in_doubt(&self, failure: &Failure) -> bool {
        failure.side_effect == SideEffect::Possible && !self.task.effect.repeatable()
    }

    /// Shapes the output of a runner, which got `input`, into the outcome of `definition`.
    async fn shape(
        &self,
        mut success: RunnerOutput,
        definition: &Definition,
        input: &Map<String, Value>,
    ) -> Result<(Outcome, Map<String, Value>), Failure> {
        let max_bytes = self.context.config.executor.output_bytes;
        let outcome = match success.data {
            OutputData::Json(data) => {
                let facts = success.facts.as_ref();
                self.add_part(definition, &data, facts, input, &mut success.meta).await?;
                let data = match &definition.result {
                    Some(shape) => self.shaped(shape, data, facts, input).await?,
                    None => data,
                };
                let bytes = compact_bytes(&data);
                if bytes > max_bytes {
                    return Err(too_large(bytes, max_bytes, self.task));
                }
                let (data, problems) = check_output(definition, data).await;
                if !problems.is_empty() {
                    tracing::warn!(tool = %self.task.tool, problems = problems.len(), "the data does not match `output`");
                    success.meta.insert("output_problems".to_owned(), problems.into());
                }
                Outcome::Data(data)
            }
            OutputData::File { path, content_type, bytes } => {
                if bytes > max_bytes {
                    if let Err(error) = tokio::fs::remove_file(&path).await {
                        tracing::warn!(%error, "failed to remove data that is too large");
                    }
                    return Err(too_large(bytes, max_bytes, self.task));
                }
                let content_type = self.context.secrets.redact(&content_type).into_owned();
                let stored = self.data_folder.join(self.task.id.to_string());
                if let Some(shape) = definition.result.as_ref().filter(|shape| !shape.headers.is_empty()) {
                    let headers = declared_headers(shape, success.facts.as_ref());
                    success.meta.insert("headers".to_owned(), headers.into());
                }
                tokio::fs::rename(&path, &stored).await.map_err(|error| {
                    Failure::new(Code::Io, format!("failed to store the data: {error}")).effect_possible()
                })?;
                Outcome::File { path: stored, content_type, bytes }
            }
        };
        Ok((outcome, success.meta))
    }

    /// Returns the data that `shape` makes of the runner's data and the facts of its response.
    async fn shaped(
        &self,
        shape: &ResultShape,
        data: Value,
        facts: Option<&ResponseFacts>,
        input: &Map<String, Value>,
    ) -> Result<Value, Failure> {
        let (status, headers) = ResponseFacts::values(facts);
        match &shape.select {
            Some(expression) => {
                // Work that is not finished has no result to select from.
                let misnamed = misplaced::of_path(expression, &data).filter(|_| status != 202);
                if let Some(there) = misnamed {
                    let message = format!("`result.select`, `{}`, finds nothing: {there}", expression.trim());
                    let failure = Failure::new(Code::SelectFailed, message)
                        .hint("correct `result.select` of the subtool; for a field that may be missing: `.a // null`")
                        .detail("data", excerpt(&data));
                    return Err(after_effect(failure, self.task));
                }
                self.select(expression, &data, input, &[("$status", &status), ("$headers", &headers)]).await
            }
            None if shape.headers.is_empty() => Ok(data),
            None => Ok(json!({"status": status, "headers": declared_headers(shape, facts), "body": data})),
        }
    }

    /// Evaluates `expression` on data; its `$input` is `input`. A failure says that the side effect has already happened.
    async fn select(
        &self,
        expression: &str,
        data: &Value,
        input: &Map<String, Value>,
        variables: &[(&str, &Value)],
    ) -> Result<Value, Failure> {
        let max_bytes = self.context.config.executor.output_bytes;
        let shared = invocation(self.task, input.clone()).variables(expression);
        let variables: Vec<_> =
            shared.iter().map(|(name, value)| (*name, value)).chain(variables.iter().copied()).collect();
        let query = Query { expression, data, variables: &variables, max_bytes };
        let selected = self.context.jq.select(query, &self.control.cancel).await;
        selected.map_err(|error| {
            let failure = select_failed(&error);
            match error {
                SelectError::Stopped => after_effect(failure, self.task),
                // The whole answer is there, and the expression may be what says that it is an error.
                SelectError::Syntax { .. } | SelectError::Failed { .. } => {
                    let failure = failure.detail("data", excerpt(data));
                    if self.task.effect == EffectClass::Read { failure } else { failure.answered() }
                }
            }
        })
    }
}

/// The failure of an expression of the definition.
fn select_failed(error: &SelectError) -> Failure {
    match error {
        SelectError::Stopped => Failure::new(Code::Cancelled, "stopped while its data was being selected"),
        SelectError::Syntax { .. } | SelectError::Failed { .. } => Failure::new(Code::SelectFailed, error.to_string()),
    }
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

/// Returns `data`, and where it differs from the definition's `output`: a warning, since what was done is done.
async fn check_output(definition: &Definition, data: Value) -> (Value, Vec<String>) {
    let Some(output) = definition.output.clone() else { return (data, Vec::new()) };
    let data = Arc::new(data);
    let checked = Arc::clone(&data);
    // Checking large data would block the runtime.
    let problems = tokio::task::spawn_blocking(move || schema::problems_of_output(&output, &checked)).await;
    let problems = problems.unwrap_or_else(|error| vec![format!("failed to check it: {error}")]);
    (Arc::unwrap_or_clone(data), problems)
}

/// Returns the headers that `shape` names, by the names that it uses.
fn declared_headers(shape: &ResultShape, facts: Option<&ResponseFacts>) -> Map<String, Value> {
    let headers = facts.map(|facts| &facts.headers);
    let value = |name: &String| headers?.get(&name.to_ascii_lowercase()).cloned();
    shape.headers.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect()
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
    if side_effect != SideEffect::None && !task.effect.repeatable() {
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
    // The caller asked for the data, not for what the program wrote to stderr.
    if let Some(stderr) = end.meta.get_mut("stderr") {
        credential::mask_value(stderr);
    }
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
        ..Invocation::default()
    }
}
