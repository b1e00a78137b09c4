//! The word that a human must type to approve what cannot be undone: the name of what it destroys.

use axum::http::StatusCode;
use axum::response::Response;
use definition::Definition;
use definition::run::Run;
use ground::base::template::TemplateValues;
use ground::config::seal;
use ground::task::Task;
use protocol::code::Code;
use serde_json::{Map, Value};

use super::Page;
use super::door::refuse;
use super::visible::{TextSpan, line};

/// The longest word that is asked for; a longer one is the subtool's name instead.
const MAX_CHARS: usize = 80;

/// What must be typed to approve `task` with `input`, its own or an edited one; `None` if nothing.
pub(super) fn approval_word(definition: &Definition, task: &Task, input: &Map<String, Value>) -> Option<String> {
    if definition.type_to_approve.is_none() && definition.annotations.destructive_hint != Some(true) {
        return None;
    }
    let template = definition.type_to_approve.as_deref().unwrap_or_default();
    let word = TemplateValues::of_input(&seal::shown(input)).text(template).unwrap_or_default();
    let can_be_typed = |word: &&str| !word.is_empty() && word.chars().count() <= MAX_CHARS && is_plain(word);
    Some(Some(word.trim()).filter(can_be_typed).unwrap_or(task.tool.as_str()).to_owned())
}

/// Requires that `typed` is the word for the approval of `task` with `input`.
pub(super) fn check_word(
    page: &Page,
    task: &Task,
    input: &Map<String, Value>,
    typed: Option<&str>,
) -> Result<(), Response> {
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str());
    let definition = subtool.as_ref().map(|subtool| &subtool.definition);
    if definition.is_some_and(|definition| matches!(definition.run, Run::AskUser(_))) {
        return Err(refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            Code::WantsAnswer,
            "this is a question; answer it instead of approving it",
        ));
    }
    match definition.and_then(|definition| approval_word(definition, task, input)) {
        Some(word) if typed != Some(word.as_str()) => Err(word_required(&word)),
        _ => Ok(()),
    }
}

pub(super) fn word_required(word: &str) -> Response {
    refuse(StatusCode::UNPROCESSABLE_ENTITY, Code::WantsWord, &format!("type `{word}` to approve it"))
}

/// Whether a human sees all of a text, and can type it: no characters without a picture, and single spaces.
fn is_plain(word: &str) -> bool {
    !word.contains("  ") && line(word).iter().all(|span| matches!(span, TextSpan::Text(_)))
}
