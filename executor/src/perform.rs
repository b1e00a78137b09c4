//! One attempt of a task: the runner, its timeout, what becomes of its data, and no secret in any of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::code::Code;
use crate::dispatcher::{Failed, Finished, Why};
use crate::layout::compact_bytes;
use crate::mailbox::result::LARGE;
use crate::runner::{Again, Data, Effect, Equipment, Failure, Order, Success};
use crate::subtool::{Definition, EffectClass};
use crate::task::{End, ErrorBody, Outcome, Task};
use crate::{clock, select};

/// Says why a running attempt was told to stop.
pub type Reason = Arc<std::sync::OnceLock<Why>>;

/// Performs one attempt to its end. Always returns, at the latest a little after the timeout.
pub async fn perform(
    task: Task,
    definition: Arc<Definition>,
    equipment: Arc<Equipment>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
    reason: Reason,
) -> Finished {
    let started = Instant::now();
    let timeout = definition.timeout.unwrap_or(equipment.config.executor.timeout);
    let order = Order {
        id: task.id.to_string(),
        attempt: task.attempt,
        input: task.input.clone(),
        caller_folder: task.caller.folder.clone(),
    };
    let outcome = {
        let work = definition.run.perform(&order, &equipment, &cancel);
        tokio::pin!(work);
        tokio::select! {
            outcome = &mut work => outcome,
            () = tokio::time::sleep(timeout.get()) => {
                if reason.set(Why::Timeout).is_err() {
                    tracing::debug!(id = %task.id, "it was being stopped when its time ran out");
                }
                cancel.cancel();
                work.await
            }
        }
    };
    let shaped = match outcome {
        Ok(success) => shape(success, &task, &definition, &data_folder, equipment.config.executor.output_bytes).await,
        Err(failure) => Err(failure),
    };
    let duration = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let result = match shaped {
        Ok((outcome, meta)) => Ok(end(outcome, meta, duration, &equipment)),
        Err(failure) => Err(failed(failure, &task, timeout, &reason, duration, &equipment)),
    };
    Finished { id: task.id, attempt: task.attempt, result }
}

async fn shape(
    success: Success,
    task: &Task,
    definition: &Definition,
    data_folder: &Path,
    output_bytes: u64,
) -> Result<(Outcome, Map<String, Value>), Failure> {
    let outcome = match success.data {
        Data::Json(data) => {
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
        Data::File { path, content_type, bytes } => {
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
    const MOST_CHARS: usize = 2_000;
    if compact_bytes(value) < LARGE as u64 {
        return value.clone();
    }
    value.to_string().chars().take(MOST_CHARS).chain(['…']).collect::<String>().into()
}

fn failed(
    failure: Failure,
    task: &Task,
    timeout: crate::duration::Span,
    reason: &Reason,
    duration: u64,
    equipment: &Equipment,
) -> Failed {
    let (again, effect) = (failure.again, failure.effect);
    let why = if failure.code == Code::Cancelled { reason.get().copied() } else { None }.unwrap_or(Why::Failure);
    let mut error = error_body(failure);
    if why == Why::Timeout {
        error.code = Code::TimedOut;
        error.message = format!("it took longer than {timeout}");
    }
    if effect == Effect::Possible && task.effect == EffectClass::Once {
        let known = error.hint.take().map(|hint| format!("{hint}; ")).unwrap_or_default();
        error.hint = Some(format!("{known}it may have taken effect all the same: look before you run it again"));
    }
    let again = if why == Why::Timeout { Again::Later } else { again };
    Failed { end: end(Outcome::Error(error), Map::new(), duration, equipment), why, again, effect }
}

fn end(outcome: Outcome, mut meta: Map<String, Value>, duration: u64, equipment: &Equipment) -> End {
    meta.insert("duration_ms".to_owned(), duration.into());
    let mut end = End { at: clock::now(), outcome, meta };
    match &mut end.outcome {
        Outcome::Data(data) => redact(data, equipment),
        Outcome::Error(error) => {
            error.message = equipment.secrets.redact(&error.message).into_owned();
            error.hint = error.hint.take().map(|hint| equipment.secrets.redact(&hint).into_owned());
            error.details.values_mut().for_each(|value| redact(value, equipment));
        }
        Outcome::File { .. } => {}
    }
    end.meta.values_mut().for_each(|value| redact(value, equipment));
    end
}

/// Takes every known secret out of every text, for far sides that echo what they got.
fn redact(value: &mut Value, equipment: &Equipment) {
    match value {
        Value::String(text) => {
            if let std::borrow::Cow::Owned(redacted) = equipment.secrets.redact(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, equipment)),
        Value::Object(fields) => {
            if fields.keys().any(|key| matches!(equipment.secrets.redact(key), std::borrow::Cow::Owned(_))) {
                *fields = std::mem::take(fields)
                    .into_iter()
                    .map(|(key, value)| (equipment.secrets.redact(&key).into_owned(), value))
                    .collect();
            }
            fields.values_mut().for_each(|field| redact(field, equipment));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A runner's failure as a caller reads it.
pub fn error_body(failure: Failure) -> ErrorBody {
    ErrorBody { code: failure.code, message: failure.message, hint: failure.hint, details: failure.details }
}
