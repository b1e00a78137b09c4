//! A dry run: shows what a task would do, to its caller or to the human who is asked, and does nothing.
//!
//! Another subtool that only reads shows it, or the subtool's own request with fields that make the service change
//! nothing, or the change of a database that is rolled back. Each is made by the same rules as any lookup.

use std::path::Path;
use std::sync::Arc;

use definition::{Definition, DryRun};
use dispatcher::report::FailureKind;
use ground::config::seal;
use ground::task::Task;
use ground::task::confirmation::WouldChange;
use ground::task::failure::Failure;
use ground::task::name::SubtoolName;
use protocol::caller::BeyondTrust;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::duration::PositiveDuration;
use protocol::error::ErrorBody;
use protocol::layout::compact_bytes;
use protocol::task::TaskId;
use runner::{HeardClass, RunnerContext};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::lookup::{self, LookupRules};
use super::{Attempt, AttemptControl, reveal};

/// The caller waits a minute at most for the executor's answer.
const MAX_TIME: PositiveDuration = PositiveDuration::from_secs(45);
/// What is shown at most, as compact JSON.
const MAX_BYTES: u64 = 32 * 1024;

/// Performs the dry run of `task` for its caller, who gets the data. `None` if its definition has none. Returns after
/// [`MAX_TIME`], and what stopping takes.
pub async fn perform(
    mut task: Task,
    definition: Arc<Definition>,
    context: Arc<RunnerContext>,
    lookup_rules: Arc<dyn LookupRules>,
    data_folder: Arc<Path>,
    cancel: CancellationToken,
) -> Option<WouldChange> {
    let control = AttemptControl::new(lookup_rules, cancel);
    let shown_input = seal::shown(&task.input);
    let hidden = match reveal(&mut task, &context) {
        Ok(hidden) => Arc::new(hidden),
        Err(failure) => return Some(WouldChange::Unknown(failure.error.message)),
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
    let mut found = would_change(&attempt, &definition, true).await;
    // No result keeps its input.
    context.results.forget(task.id);
    if let Some(found) = &mut found {
        hide(found, &attempt);
    }
    found
}

/// Hides hidden inputs, which what is shown may quote.
pub(super) fn hide(shown: &mut WouldChange, attempt: &Attempt<'_>) {
    match shown {
        WouldChange::Shown { data, .. } => attempt.hidden.redact_value(data),
        WouldChange::Unknown(why) | WouldChange::NotPermitted(why) => attempt.hidden.redact(why),
    }
}

/// What the task would do. `None` if its definition has no dry run.
pub(super) async fn would_change(
    attempt: &Attempt<'_>,
    definition: &Definition,
    is_for_caller: bool,
) -> Option<WouldChange> {
    let call = DryRunCall::of(attempt, definition)?;
    let shown = attempt.within(MAX_TIME, Box::pin(async { call?.show(attempt, is_for_caller).await })).await;
    Some(match shown {
        Ok(data) => {
            let (data, is_cut) = bounded(data);
            WouldChange::Shown { data, is_cut }
        }
        Err(NotShown::Refused(error)) => WouldChange::NotPermitted(in_words(attempt, error)),
        Err(NotShown::Failed(_)) if attempt.control.cause.get() == Some(&FailureKind::Timeout) => {
            WouldChange::Unknown(format!("it took longer than {MAX_TIME}"))
        }
        Err(NotShown::Failed(failure)) => WouldChange::Unknown(in_words(attempt, failure.error)),
    })
}

/// Why something could not be shown, with what helps.
fn in_words(attempt: &Attempt<'_>, error: ErrorBody) -> String {
    let hint = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    attempt.context.secrets.redact_reason(&format!("{}{hint}", error.message))
}

enum NotShown {
    Refused(ErrorBody),
    Failed(Failure),
}

impl From<Failure> for NotShown {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What a dry run calls.
struct DryRunCall {
    name: SubtoolName,
    definition: Arc<Definition>,
    input: Map<String, Value>,
    shows: Option<String>,
}

impl DryRunCall {
    /// `None` if the definition has no dry run.
    fn of(attempt: &Attempt<'_>, definition: &Definition) -> Option<Result<Self, NotShown>> {
        let shows = definition.dry_run.as_ref().and_then(|dry_run| dry_run.shows.clone());
        if let Some(own) = definition.as_dry_run() {
            let mut input = attempt.task.input.clone();
            input.extend(definition.dry_run_fields().cloned().unwrap_or_default());
            return Some(Ok(Self { name: attempt.task.tool.clone(), definition: Arc::new(own), input, shows }));
        }
        let DryRun { subtool, input, lookup, .. } = definition.dry_run.as_ref()?;
        let name = subtool.clone()?;
        let Some(lookup) = lookup else {
            let failure = Failure::new(Code::BadDefinition, "the subtool of its dry run is not available");
            return Some(Err(failure.into()));
        };
        let filled = lookup::input(attempt, &name, input, lookup);
        Some(filled.map_err(NotShown::from).map(|input| {
            let definition = Arc::clone(&lookup.definition);
            Self { name, definition, input, shows }
        }))
    }

    async fn show(self, attempt: &Attempt<'_>, is_for_caller: bool) -> Result<Value, NotShown> {
        let Self { name, definition, input, shows } = self;
        let input = lookup::permitted(attempt, &name, &definition, input, is_for_caller).map_err(NotShown::Refused)?;
        // With an id of its own: a service that knows the task by its id must not take this for the task.
        let id = TaskId::new();
        let data = lookup::data_of(attempt, id, &name, &definition, input).await;
        attempt.context.results.forget(id);
        let (data, _) = data?;
        let class = definition.data_class().max(attempt.heard.most().unwrap_or(DataClass::Public));
        if let Some(trust) = attempt.task.caller.trust.filter(|trust| is_for_caller && class > *trust) {
            return Err(NotShown::Refused(BeyondTrust { class, trust }.error("it")));
        }
        let mut shown = match shows {
            Some(expression) => attempt.select(&expression, &data, &attempt.task.input, &[]).await?,
            None => data,
        };
        attempt.context.secrets.redact_value(&mut shown);
        Ok(shown)
    }
}

/// `value` within [`MAX_BYTES`], and whether anything of it was cut for that: long lists first, then long texts.
fn bounded(value: Value) -> (Value, bool) {
    const STEPS: [(usize, usize); 5] = [(100, 4_000), (30, 1_000), (10, 300), (3, 100), (1, 50)];
    if compact_bytes(&value) <= MAX_BYTES {
        return (value, false);
    }
    let cut = STEPS.iter().map(|(items, chars)| cut(&value, *items, *chars)).find(|it| compact_bytes(it) <= MAX_BYTES);
    let text = || protocol::excerpt::chars(&value.to_string(), 8_000).into_owned().into();
    (cut.unwrap_or_else(text), true)
}

fn cut(value: &Value, items: usize, chars: usize) -> Value {
    match value {
        Value::String(text) => protocol::excerpt::chars(text, chars).into_owned().into(),
        Value::Array(list) => {
            let mut kept: Vec<_> = list.iter().take(items).map(|item| cut(item, items, chars)).collect();
            if list.len() > items {
                kept.push(format!("… and {} more", list.len() - items).into());
            }
            kept.into()
        }
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), cut(value, items, chars))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_data_is_cut_and_says_how_much_is_left_out() {
        let short = json!({"deletes": [1, 2], "text": "x"});
        assert_eq!(bounded(short.clone()), (short, false));
        let rows: Vec<_> = (0..5_000).map(|number| json!({"number": number})).collect();
        let (shown, is_cut) = bounded(json!({"rows": rows, "count": 5_000}));
        assert!(is_cut);
        assert_eq!(shown["count"], 5_000);
        let kept = shown["rows"].as_array().expect("a list");
        assert_eq!((kept.len(), &kept[100]), (101, &json!("… and 4900 more")));
    }

    #[test]
    fn whatever_is_cut_fits() {
        let wide = Value::Object((0..20_000).map(|number| (format!("field {number}"), number.into())).collect());
        for value in [json!("y".repeat(1 << 20)), wide, json!([[vec!["z".repeat(5_000); 400]]])] {
            let (shown, is_cut) = bounded(value);
            assert!(is_cut && compact_bytes(&shown) <= MAX_BYTES + 8, "{}", compact_bytes(&shown));
        }
    }
}
