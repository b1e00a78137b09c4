//! What intake does with hidden inputs: seals them, and keeps them out of its errors.

use catalog::Subtool;
use ground::base::schema::Problem;
use ground::config::seal::{self, Seal};
use ground::config::secret::HiddenTexts;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value};

/// Checks `input` against the schema of `subtool`. The problems quote no hidden value.
pub(super) fn problems(subtool: &Subtool, input: &Map<String, Value>, seal: &Seal) -> Vec<Problem> {
    let mut problems = subtool.schema.problems(&Value::Object(input.clone()));
    if problems.is_empty() {
        return problems;
    }
    let mut sealed = input.clone();
    // If the key cannot be had, the task is refused when its input is sealed.
    let hidden = HiddenTexts::new(seal.hide(&subtool.definition.input, &mut sealed).unwrap_or_default());
    let sealed = Value::Object(sealed);
    for problem in &mut problems {
        if sealed.pointer(&problem.pointer).is_some_and(|value| value.is_string() && seal::has_token(value)) {
            "the hidden value does not fit its schema".clone_into(&mut problem.problem);
        }
        hidden.redact(&mut problem.problem);
    }
    problems
}

/// Seals what the schema of `subtool` hides in `input`.
pub(super) fn hide(subtool: &Subtool, input: &mut Map<String, Value>, seal: &Seal) -> Result<(), ErrorBody> {
    seal.hide(&subtool.definition.input, input).map(drop).map_err(|error| {
        ErrorBody::new(Code::Io, format!("failed to seal the hidden inputs: {error}"))
            .hint("a human must check the state folder: agent-magic-tool doctor")
    })
}

/// Refuses an input that contains what looks like a sealed value, which would be hidden from a human.
pub(super) fn check_no_token(input: &Map<String, Value>) -> Result<(), ErrorBody> {
    if !input.values().any(seal::has_token) {
        return Ok(());
    }
    let error = ErrorBody::new(Code::InvalidInput, "the input contains a text that starts with `sealed:1:`");
    Err(error.hint("texts that start so are reserved for hidden values; start the text with something else"))
}
