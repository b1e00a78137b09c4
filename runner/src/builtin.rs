//! The `builtin` runner: functions of the executor.
//!
//! To add one: its templates in `definition/src/run/builtin.rs`, a file under `builtin/`, and its arm in `perform`. All of them only read,
//! except `EditPrompt` and `SaveScript`. `roots.rs` decides which files they may read, the HTTP client which addresses.

use std::path::Path;

use definition::run::builtin::Builtin;
use futures_util::future::BoxFuture;
use ground::task::fingerprint::Fingerprint;
use protocol::extent::DataExtent;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number};

use super::script::saved::{self, SaveArguments};
use super::{
    CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Serialize, Value,
    fields, input_file,
};

mod fetch_url;
mod interrupt;
mod list_files;
mod prompt;
mod read_file;
pub(crate) mod roots;
mod search_files;
mod walk;

impl Runner for Builtin {
    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let values = fields::FieldValues::of(invocation);
        let mut plan = Map::new();
        for (function, templates) in templates(self) {
            plan.insert(function, Value::Object(values.all(&templates)?));
        }
        Ok(Value::Object(plan))
    }

    fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        self.files(invocation, context).map(drop)
    }

    /// The file that is read.
    fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        match self {
            Self::ReadFile(templates) => {
                let arguments: read_file::ReadFileArguments = arguments(templates, invocation)?;
                input_file::fingerprint(&arguments.path, invocation, context).map(|file| vec![file])
            }
            Self::SearchFiles(_)
            | Self::ListFiles(_)
            | Self::FetchUrl(_)
            | Self::ReadPrompt(_)
            | Self::EditPrompt(_)
            | Self::DraftScript(_) => self.plan(invocation, &context.config).map(|_| Vec::new()),
            Self::SaveScript(templates) => {
                let wanted: SaveArguments = arguments(templates, invocation)?;
                wanted.refusal(invocation, context).map_or(Ok(Vec::new()), Err)
            }
        }
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(perform(self, invocation, context, cancel))
    }
}

async fn perform(
    builtin: &Builtin,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    match builtin {
        Builtin::ReadFile(templates) => {
            read_file::perform(arguments(templates, invocation)?, invocation, context, cancel).await
        }
        Builtin::SearchFiles(templates) => {
            search_files::perform(arguments(templates, invocation)?, invocation, context, cancel).await
        }
        Builtin::ListFiles(templates) => {
            list_files::perform(arguments(templates, invocation)?, invocation, context, cancel).await
        }
        Builtin::FetchUrl(templates) => fetch_url::perform(arguments(templates, invocation)?, context, cancel).await,
        Builtin::ReadPrompt(templates) => prompt::show(arguments(templates, invocation)?, context, cancel).await,
        Builtin::EditPrompt(templates) => prompt::change(arguments(templates, invocation)?, context, cancel).await,
        Builtin::DraftScript(templates) => saved::draft(arguments(templates, invocation)?, invocation, context).await,
        Builtin::SaveScript(templates) => saved::save(arguments(templates, invocation)?, invocation, context).await,
    }
}

/// Returns why the call can only fail, as far as that is known before it runs. `prompts` is the folder with the
/// sections of the system prompt.
pub fn refusal(builtin: &Builtin, invocation: &Invocation, prompts: &Path) -> Option<Failure> {
    match builtin {
        Builtin::EditPrompt(templates) => match arguments::<prompt::PromptChange>(templates, invocation) {
            Ok(change) => change.refusal(prompts),
            Err(failure) => Some(failure),
        },
        Builtin::ReadFile(_)
        | Builtin::SearchFiles(_)
        | Builtin::ListFiles(_)
        | Builtin::FetchUrl(_)
        | Builtin::ReadPrompt(_)
        | Builtin::DraftScript(_)
        | Builtin::SaveScript(_) => None,
    }
}

fn templates(builtin: &Builtin) -> impl Iterator<Item = (String, Map<String, Value>)> {
    fields::of(builtin).into_iter().map(|(function, templates)| match templates {
        Value::Object(templates) => (function, templates),
        _ => (function, Map::new()),
    })
}

/// How much is returned at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    most: u64,
    /// What the input asked for, if that is more than is allowed.
    lowered: Option<u64>,
}

impl Limit {
    /// The limit of the input, or else `default`; at least 1 and at most `most`.
    fn of(asked: Option<u64>, default: u64, most: u64) -> Self {
        Self { most: asked.unwrap_or(default).clamp(1, most), lowered: asked.filter(|asked| *asked > most) }
    }

    fn count(self) -> usize {
        usize::try_from(self.most).unwrap_or(usize::MAX)
    }

    /// What the result says of itself.
    fn extent(self, more: bool) -> DataExtent {
        DataExtent { more: more.into(), limit: Some(self.most), asked_limit: self.lowered, truncated: None }
    }
}

/// Says what a result lacks, in what number: `2 files could not be read`.
fn missing<const N: usize>(counted: [(u64, &str, &str); N]) -> Option<String> {
    let counted = counted.into_iter().filter(|(count, ..)| *count > 0);
    let said: Vec<_> = counted
        .map(|(count, noun, what)| format!("{count} {noun}{} {what}", if count == 1 { "" } else { "s" }))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Fills the templates of the arguments for an invocation; a null counts as absent.
fn arguments<T: DeserializeOwned>(templates: &impl Serialize, invocation: &Invocation) -> Result<T, Failure> {
    let mut arguments = fields::FieldValues::of(invocation).all(templates)?;
    arguments.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        Failure::new(Code::Rejected, format!("the argument `{}` is not valid: {}", error.path(), error.inner()))
    })
}

/// Deserializes a whole number, also one written as `5.0`, which JSON Schema calls an integer too.
fn whole_number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let written_as_float =
        || number.as_f64().filter(|value| value.fract() == 0.0).and_then(|value| format!("{value:.0}").parse().ok());
    match number.as_u64().or_else(written_as_float) {
        Some(whole) => Ok(Some(whole)),
        None => Err(serde::de::Error::custom(format!("`{number}` is not a whole number of at least 0"))),
    }
}
