//! The builtin runner: the executor's own functions.
//!
//! To add one: a file under `builtin/`, a variant of [`Builtin`] and its arm in `perform`. All of
//! them only read; what they may read is `roots.rs`'s matter, or the HTTP client's.

use serde::de::DeserializeOwned;
use serde_json::{Map, Number};

use super::{
    CancellationToken, Code, Config, DefinitionMistake, Deserialize, Failure, Invocation, JsonSchema, Runner,
    RunnerContext, RunnerOutput, Serialize, Value,
};
use crate::base::template::{self, TemplateValues};

mod fetch_url;
mod interrupt;
mod list_files;
mod prompt;
mod read_file;
pub(crate) mod roots;
mod search_files;
mod walk;

pub use fetch_url::FetchUrl;
pub use list_files::ListFiles;
pub use prompt::{EditPrompt, ReadPrompt};
pub use read_file::ReadFile;
pub use search_files::SearchFiles;

/// One of the executor's own functions, with templates for its arguments.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Builtin {
    /// Reads lines of a text file.
    ReadFile(ReadFile),
    /// Finds lines that match a regular expression.
    SearchFiles(SearchFiles),
    /// Lists a folder.
    ListFiles(ListFiles),
    /// Fetches a page as text.
    FetchUrl(FetchUrl),
    /// Shows the sections of the system prompt of our own agent, or one of them.
    ReadPrompt(ReadPrompt),
    /// Replaces the text of one of them.
    EditPrompt(EditPrompt),
}

impl Runner for Builtin {
    fn check(&self) -> Result<(), DefinitionMistake> {
        for (function, templates) in self.templates() {
            for (argument, value) in &templates {
                template::check_value(value)
                    .map_err(|error| DefinitionMistake::new(format!("{function}.{argument}"), &error))?;
            }
        }
        Ok(())
    }

    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let scope = TemplateValues::of_input(&invocation.input);
        let mut plan = Map::new();
        for (function, templates) in self.templates() {
            plan.insert(function, Value::Object(scope.fields(&templates)?));
        }
        Ok(Value::Object(plan))
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        match self {
            Self::ReadFile(templates) => {
                read_file::perform(filled(templates, invocation)?, invocation, context, cancel).await
            }
            Self::SearchFiles(templates) => {
                search_files::perform(filled(templates, invocation)?, invocation, context, cancel).await
            }
            Self::ListFiles(templates) => {
                list_files::perform(filled(templates, invocation)?, invocation, context, cancel).await
            }
            Self::FetchUrl(templates) => fetch_url::perform(filled(templates, invocation)?, context, cancel).await,
            Self::ReadPrompt(templates) => prompt::show(filled(templates, invocation)?, context, cancel).await,
            Self::EditPrompt(templates) => prompt::change(filled(templates, invocation)?, context, cancel).await,
        }
    }
}

impl Builtin {
    /// The function's name with its arguments' templates: exactly one.
    fn templates(&self) -> impl Iterator<Item = (String, Map<String, Value>)> {
        fields_of(self).into_iter().map(|(function, templates)| match templates {
            Value::Object(templates) => (function, templates),
            _ => (function, Map::new()),
        })
    }
}

/// The arguments that the templates become for this order; a null is as good as an absent value.
fn filled<T: DeserializeOwned>(templates: &impl Serialize, invocation: &Invocation) -> Result<T, Failure> {
    let mut arguments = TemplateValues::of_input(&invocation.input).fields(&fields_of(templates))?;
    arguments.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        Failure::new(Code::Rejected, format!("the argument `{}` does not fit: {}", error.path(), error.inner()))
    })
}

fn fields_of(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("templates are JSON objects"),
    }
}

/// For a whole number that may be written `5.0`, which JSON Schema calls an integer too.
fn whole<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let written_as_float =
        || number.as_f64().filter(|value| value.fract() == 0.0).and_then(|value| format!("{value:.0}").parse().ok());
    match number.as_u64().or_else(written_as_float) {
        Some(whole) => Ok(Some(whole)),
        None => Err(serde::de::Error::custom(format!("`{number}` is no whole number from 0 upward"))),
    }
}
