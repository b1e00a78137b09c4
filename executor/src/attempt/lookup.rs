//! Lookups: whether a lost attempt took effect (`verify`), and which values a task would replace (`preview`).
//!
//! A lookup runs another, read-only subtool and evaluates a jq expression over its data. For `verify` only `true`
//! and `false` count; any other result or error means that the outcome is unknown, so that no task runs twice.
//! A lookup asks no human, so it is made only if the caller could run that subtool right away. Decides nothing about
//! that: [`LookupRules`] do.

use std::fmt::Debug;
use std::time::Instant;

use definition::{Definition, Lookup, Verify};
use dispatcher::report::FailedAttempt;
use ground::base::jq_pool::Query;
use ground::task::confirmation::ReplacedValues;
use ground::task::failure::{Failure, Retry, SideEffect};
use ground::task::name::SubtoolName;
use ground::task::{End, Outcome};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::TaskId;
use runner::{Invocation, SubtoolLabel, sql};
use serde_json::{Map, Value, json};

use super::{Attempt, end, failed, invocation, milliseconds, pinned, select_failed};

/// Whether a lookup may be made, by the same rules as a call of the caller's own.
pub trait LookupRules: Send + Sync + Debug {
    /// Returns why it may not.
    fn check(&self, call: &LookupCall<'_>) -> Result<(), ErrorBody>;

    /// Whether a caller may use a subtool that callers may use.
    fn admits(&self, name: &str, definition: &Definition, caller: &Caller) -> bool;

    /// Returns why the caller of a task may not start it with this input, as far as privileges tell.
    fn check_privileges(
        &self,
        definition: &Definition,
        input: &Map<String, Value>,
        caller: &Caller,
    ) -> Result<(), ErrorBody>;
}

/// The call that a lookup makes.
#[derive(Debug, Clone, Copy)]
pub struct LookupCall<'a> {
    pub name: &'a SubtoolName,
    pub definition: &'a Definition,
    pub input: &'a Map<String, Value>,
    pub caller: &'a Caller,
    /// Whether the caller gets its data, and not only the human who is asked.
    pub is_for_caller: bool,
}

/// The result of a `verify` lookup.
struct LookupResult {
    /// Whether the attempt took effect, or why that is unknown.
    happened: Result<bool, Failure>,
    data: Value,
    meta: Map<String, Value>,
}

pub(super) async fn look_up(attempt: &Attempt<'_>, definition: &Definition) -> Result<End, FailedAttempt> {
    let started = Instant::now();
    let timeout = |lookup: Option<&Lookup>| {
        lookup.and_then(|lookup| lookup.definition.timeout).unwrap_or(attempt.context.config.executor.timeout)
    };
    let Some((verify, lookup)) = definition.verify.as_ref().and_then(|verify| Some((verify, verify.lookup.as_ref()?)))
    else {
        let failure =
            Failure::new(Code::BadDefinition, "the subtool of its `verify` is not available").effect_possible();
        return Err(failed(failure, attempt.task, timeout(None), &attempt.control.cause, 0, attempt.context));
    };
    let input = input(attempt, &verify.subtool, &verify.input, lookup);
    // What the caller does not have is not named.
    let is_theirs =
        attempt.control.lookup_rules.admits(verify.subtool.as_str(), &lookup.definition, &attempt.task.caller);
    let check =
        if is_theirs { json!({"subtool": verify.subtool.as_str(), "input": input.as_ref().ok()}) } else { Value::Null };
    let may_look = |input| permitted(attempt, &verify.subtool, &lookup.definition, input, true).map_err(Failure::from);
    let found = match input.and_then(may_look) {
        Ok(input) => find(attempt, verify, lookup, input).await,
        Err(failure) => Err(failure),
    };
    let duration = milliseconds(started);
    let failure = match found {
        Ok(LookupResult { happened: Ok(true), data, mut meta }) => {
            meta.insert("verified".to_owned(), check);
            return Ok(end(Outcome::Data(data), meta, duration, attempt.context));
        }
        Ok(LookupResult { happened: Ok(false), .. }) => Failure {
            side_effect: SideEffect::None,
            ..Failure::new(Code::UnknownOutcome, format!("`{}` found that it did not happen", verify.subtool))
        },
        Ok(LookupResult { happened: Err(failure), .. }) | Err(failure) => {
            Failure { side_effect: SideEffect::Possible, ..failure }
        }
    };
    let failure = if check.is_null() { failure } else { failure.detail("check", check) };
    let mut failed =
        failed(failure, attempt.task, timeout(Some(lookup)), &attempt.control.cause, duration, attempt.context);
    if failed.side_effect == SideEffect::None {
        // The lookup gave its answer, even if it was stopped: do not repeat it.
        failed.retry = Retry::Never;
    }
    Err(failed)
}

/// Returns `input` if the caller of the task may call the lookup's subtool `name` with it.
pub(super) fn permitted(
    attempt: &Attempt<'_>,
    name: &SubtoolName,
    definition: &Definition,
    input: Map<String, Value>,
    is_for_caller: bool,
) -> Result<Map<String, Value>, ErrorBody> {
    let caller = &attempt.task.caller;
    attempt.control.lookup_rules.check(&LookupCall { name, definition, input: &input, caller, is_for_caller })?;
    Ok(input)
}

/// Renders the input of a lookup from the task's input.
pub(super) fn input(
    attempt: &Attempt<'_>,
    name: &SubtoolName,
    templates: &Map<String, Value>,
    lookup: &Lookup,
) -> Result<Map<String, Value>, Failure> {
    let mut input = invocation(attempt.task, attempt.task.input.clone()).values().fields(templates)?;
    lookup.schema.normalize(&mut input);
    match lookup.schema.problems(&Value::Object(input.clone())).first() {
        None => Ok(input),
        Some(problem) => {
            let message = format!("the input for `{name}` is wrong at `{}`: {problem}", problem.pointer);
            Err(Failure::new(Code::InvalidInput, message))
        }
    }
}

async fn find(
    attempt: &Attempt<'_>,
    verify: &Verify,
    lookup: &Lookup,
    input: Map<String, Value>,
) -> Result<LookupResult, Failure> {
    attempt.heard.hear(Some(lookup.definition.data_class()));
    let (data, meta) = data_of(attempt, attempt.task.id, &verify.subtool, &lookup.definition, input).await?;
    let max_bytes = attempt.context.config.executor.output_bytes;
    let shared = invocation(attempt.task, attempt.task.input.clone()).variables(&verify.happened);
    let variables: Vec<_> = shared.iter().map(|(name, value)| (*name, value)).collect();
    let query = Query { expression: &verify.happened, data: &data, variables: &variables, max_bytes };
    let outputs = attempt.context.jq.outputs(query, &attempt.control.cancel).await;
    let happened = match outputs.as_deref() {
        Ok([Value::Bool(happened)]) => Ok(*happened),
        Ok(_) => {
            let message = format!("the data of `{}` does not show whether it happened", verify.subtool);
            Err(Failure::new(Code::UnknownOutcome, message))
        }
        Err(error) => Err(select_failed(error)),
    };
    Ok(LookupResult { happened, data, meta })
}

/// Runs the lookup's subtool `name` as the task `id` and returns its data and `_meta`.
pub(super) async fn data_of(
    attempt: &Attempt<'_>,
    id: TaskId,
    name: &SubtoolName,
    definition: &Definition,
    input: Map<String, Value>,
) -> Result<(Value, Map<String, Value>), Failure> {
    let context = attempt.context;
    let timeout = definition.timeout.unwrap_or(context.config.executor.timeout);
    // Rules about what is done in a database name this subtool, not the one of the task.
    let subtool = Some(SubtoolLabel { name: name.to_string(), tags: definition.tags.clone() });
    let heard = attempt.heard.clone();
    let invocation = Invocation { id: id.to_string(), subtool, heard, ..invocation(attempt.task, input) };
    let work = Box::pin(async {
        let success = Box::pin(pinned::perform(definition, &invocation, context, &attempt.control.cancel)).await?;
        attempt.shape(success, definition, &invocation.input).await
    });
    let (outcome, meta) = attempt.within(timeout, work).await?;
    match outcome {
        Outcome::Data(data) => Ok((data, meta)),
        Outcome::File { path, .. } => {
            if let Err(error) = tokio::fs::remove_file(&path).await {
                tracing::warn!(%error, "failed to remove the file that a lookup returned");
            }
            Err(Failure::new(Code::BadResponse, format!("`{name}` returned a file instead of JSON")))
        }
        Outcome::Error(error) => Err(Failure::new(error.code, error.message)),
    }
}

/// Looks up the current values that the task would replace, by field of its input, or why that failed. `None` if
/// its definition has no preview.
pub(super) async fn preview(attempt: &Attempt<'_>, definition: &Definition) -> Option<ReplacedValues> {
    let Some(preview) = &definition.preview else {
        let invocation = Invocation {
            subtool: Some(super::label(attempt.task, definition)),
            ..invocation(attempt.task, attempt.task.input.clone())
        };
        let change = definition.run.change()?;
        return Box::pin(sql::preview(change, &invocation, attempt.context, &attempt.control.cancel)).await;
    };
    let Some(lookup) = &preview.lookup else {
        return Some(ReplacedValues::Unknown("the subtool of its preview is not available".to_owned()));
    };
    let found = match input(attempt, &preview.subtool, &preview.input, lookup) {
        Ok(input) => match permitted(attempt, &preview.subtool, &lookup.definition, input, false) {
            Ok(input) => data_of(attempt, attempt.task.id, &preview.subtool, &lookup.definition, input).await,
            Err(error) => return Some(ReplacedValues::NotPermitted(error.message)),
        },
        Err(failure) => Err(failure),
    };
    let shown = match found {
        Ok((data, _)) => attempt.select(&preview.replaces, &data, &attempt.task.input, &[]).await,
        Err(failure) => Err(failure),
    };
    let mut shown = match shown {
        Ok(Value::Object(fields)) => Value::Object(fields),
        Ok(_) => return Some(ReplacedValues::Unknown("its preview did not return an object".to_owned())),
        Err(failure) => {
            return Some(ReplacedValues::Unknown(attempt.context.secrets.redact_reason(&failure.error.message)));
        }
    };
    attempt.context.secrets.redact_value(&mut shown);
    let Value::Object(fields) = shown else { unreachable!("redaction keeps an object an object") };
    Some(ReplacedValues::Fields(fields))
}
