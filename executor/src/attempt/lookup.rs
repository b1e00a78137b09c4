//! Looking up whether a lost attempt took effect: another subtool, which changes nothing, and an
//! expression over what it finds. And, before anything happens, what is there that it would replace.
//!
//! Only a plain `true` or `false` counts. Whatever stands in the way leaves it open, and never makes
//! something happen twice.

use std::time::Instant;

use protocol::code::Code;
use serde_json::{Map, Value, json};

use super::{Attempt, end, failed, invocation, milliseconds, shape};
use crate::attempt::report::FailedAttempt;
use crate::base::select;
use crate::base::template::TemplateValues;
use crate::catalog::definition::{Definition, Lookup, Verify};
use crate::task::confirmation::ReplacedValues;
use crate::task::failure::{Failure, Retry, SideEffect};
use crate::task::name::SubtoolName;
use crate::task::{End, Outcome};

/// What the lookup found, or why it is open what happened.
struct LookupResult {
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
            Failure::new(Code::BadDefinition, "its `verify` names no subtool that is there").effect_possible();
        return Err(failed(failure, attempt.task, timeout(None), &attempt.reason, 0, attempt.context));
    };
    let input = input(attempt, &verify.subtool, &verify.input, lookup);
    let said = json!({"subtool": verify.subtool.as_str(), "input": input.as_ref().ok()});
    let found = match input {
        Ok(input) => find(attempt, verify, lookup, input).await,
        Err(failure) => Err(failure),
    };
    let duration = milliseconds(started);
    let failure = match found {
        Ok(LookupResult { happened: Ok(true), data, mut meta }) => {
            meta.insert("verified".to_owned(), said);
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
    let failure = failure.detail("check", said);
    let mut failed = failed(failure, attempt.task, timeout(Some(lookup)), &attempt.reason, duration, attempt.context);
    if failed.side_effect == SideEffect::None {
        // It found what it was for: nothing is to be looked up again.
        failed.retry = Retry::Never;
    }
    Err(failed)
}

/// The input of a lookup, made from that of the task.
fn input(
    attempt: &Attempt<'_>,
    name: &SubtoolName,
    templates: &Map<String, Value>,
    lookup: &Lookup,
) -> Result<Map<String, Value>, Failure> {
    let mut input = TemplateValues::of_input(&attempt.task.input).fields(templates)?;
    lookup.schema.fill_defaults(&mut input);
    match lookup.schema.problems(&Value::Object(input.clone())).first() {
        None => Ok(input),
        Some(problem) => {
            let message = format!("`{name}` does not take its input at `{}`: {}", problem.pointer, problem.problem);
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
    let (data, meta) = data_of(attempt, &verify.subtool, lookup, input).await?;
    let happened = match select::outputs(&verify.happened, &data).as_deref() {
        Ok([Value::Bool(happened)]) => Ok(*happened),
        Ok(_) => {
            let message = format!("what `{}` found leaves it open whether it happened", verify.subtool);
            Err(Failure::new(Code::UnknownOutcome, message))
        }
        Err(error) => Err(Failure::new(Code::SelectFailed, error.to_string())),
    };
    Ok(LookupResult { happened, data, meta })
}

/// What the subtool `name` finds.
async fn data_of(
    attempt: &Attempt<'_>,
    name: &SubtoolName,
    lookup: &Lookup,
    input: Map<String, Value>,
) -> Result<(Value, Map<String, Value>), Failure> {
    let (context, definition) = (attempt.context, &*lookup.definition);
    let timeout = definition.timeout.unwrap_or(context.config.executor.timeout);
    let success = attempt.bounded(&definition.run, &invocation(attempt.task, input), timeout).await?;
    let most = context.config.executor.output_bytes;
    let (outcome, meta) = shape(success, attempt.task, definition, attempt.data_folder, most).await?;
    match outcome {
        Outcome::Data(data) => Ok((data, meta)),
        Outcome::File { path, .. } => {
            if let Err(error) = tokio::fs::remove_file(&path).await {
                tracing::warn!(%error, "what a lookup found was left behind");
            }
            Err(Failure::new(Code::BadResponse, format!("`{name}` found a file, which tells nothing")))
        }
        Outcome::Error(error) => Err(Failure::new(error.code, error.message)),
    }
}

/// What is there now that the task would replace, by field of its input; or, in words, why that cannot be
/// told. `None` where its definition has no preview.
pub(super) async fn preview(attempt: &Attempt<'_>, definition: &Definition) -> Option<ReplacedValues> {
    let preview = definition.preview.as_ref()?;
    let Some(lookup) = &preview.lookup else {
        return Some(ReplacedValues::Unknown("its preview is not there".to_owned()));
    };
    let found = match input(attempt, &preview.subtool, &preview.input, lookup) {
        Ok(input) => data_of(attempt, &preview.subtool, lookup, input).await,
        Err(failure) => Err(failure),
    };
    let shown = found.and_then(|(data, _)| {
        select::select(&preview.replaces, &data).map_err(|error| Failure::new(Code::SelectFailed, error.to_string()))
    });
    let mut shown = match shown {
        Ok(Value::Object(fields)) => Value::Object(fields),
        Ok(_) => return Some(ReplacedValues::Unknown("its preview gave no fields".to_owned())),
        Err(failure) => {
            let message = attempt.context.secrets.redact(&failure.error.message).into_owned();
            return Some(ReplacedValues::Unknown(message));
        }
    };
    attempt.context.secrets.redact_value(&mut shown);
    let Value::Object(fields) = shown else { unreachable!("an object stays one") };
    Some(ReplacedValues::Fields(fields))
}
