//! Hidden inputs in an edit: the page never shows them, so a human either leaves one alone or replaces it.

use axum::http::StatusCode;
use axum::response::Response;
use ground::config::seal;
use ground::task::Task;
use protocol::code::Code;
use serde_json::{Map, Value};

use super::Page;
use super::door::refuse;

/// Returns an edited input of `task` with its hidden values sealed.
pub(super) fn sealed_edit(
    page: &Page,
    schema: &Map<String, Value>,
    task: &Task,
    edited: &Map<String, Value>,
) -> Result<Map<String, Value>, Response> {
    if edited.values().any(seal::has_token) {
        let message = "a text must not start with `sealed:1:`";
        return Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, Code::InvalidInput, message));
    }
    let mut input = edited.clone();
    for (name, value) in &mut input {
        task.input.get(name).into_iter().for_each(|before| seal::restore(before, value));
    }
    page.runner_context().secrets.seal().hide(schema, &mut input).map_err(|_| unavailable())?;
    Ok(input)
}

/// Returns `input` with its hidden values opened, to be checked.
pub(super) fn revealed(page: &Page, input: &Map<String, Value>) -> Result<Map<String, Value>, Response> {
    let revealed = page.runner_context().secrets.seal().reveal(input);
    revealed.map(|(input, _)| input).map_err(|_| unavailable())
}

fn unavailable() -> Response {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, Code::Io, "the hidden values cannot be sealed or opened")
}
