//! Edits: a human changes the input of a pending task, sees what that changes, and approves it so.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use catalog::Subtool;
use definition::{Definition, Preview};
use dispatcher::{DecisionError, HumanVerdict};
use ground::base::schema::Problem;
use ground::base::webauthn::Assertion;
use ground::config::seal;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, Digest};
use ground::task::fingerprint::Fingerprint;
use protocol::task::TaskId;
use runner::Runner as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    ActionResult, CurrentSession, DecidedTask, PageState, invalid_input, not_decided, note, parse_body, pending_task,
    send_decision,
};
use crate::attempt;
use crate::page::approval_word::{approval_word, check_word};
use crate::page::diff::LineDiff;
use crate::page::visible::{VisibleText, line};
use crate::page::{Page, form, hidden};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    id: TaskId,
    digest: String,
    input: Map<String, Value>,
    #[serde(default)]
    edited_digest: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    typed: Option<String>,
    #[serde(default)]
    touch: Option<Assertion>,
}

/// An edit that may be approved.
struct CheckedEdit {
    task: Task,
    input: Map<String, Value>,
    /// The digest of what was shown.
    shown: Digest,
    /// The files of the edited task.
    files: Vec<Fingerprint>,
    /// The digest of the edited task.
    digest: Digest,
    /// What must be typed to approve the edited task.
    word: Option<String>,
}

fn check_edit(page: &Page, edit: &EditBody) -> Result<CheckedEdit, Response> {
    let (task, confirmation) = pending_task(page, edit.id)?;
    let (_, digest) = DecidedTask { id: edit.id, digest: edit.digest.clone() }.parse()?;
    if confirmation.digest != digest {
        return Err(not_decided(page, DecisionError::Stale(edit.id)));
    }
    let catalog = page.catalog();
    let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash);
    let Some(subtool) = subtool else { return Err(not_decided(page, DecisionError::Stale(edit.id))) };
    let input = hidden::sealed_edit(page, &subtool.definition.input, &task, &edit.input)?;
    let revealed = hidden::revealed(page, &input)?;
    check_input(&subtool, &revealed)?;
    if input != task.input && confirmation.would_change.is_some() {
        let problem = "what it would change was shown for the input as it was asked for; deny it, and write in the reason what you want \
                       instead";
        return Err(invalid(problem.to_owned()));
    }
    if input != task.input && is_foreseen_otherwise(&subtool.definition, &task, &input) {
        let problem = "with this edit it would replace something else than you were shown, which was looked up for the input as it \
                       was asked for; edit other fields, or deny it and write in the reason what you want instead";
        return Err(invalid(problem.to_owned()));
    }
    // What is known to fail is not offered for a yes.
    let invocation = attempt::invocation(&task, revealed);
    if let Err(failure) = subtool.definition.run.check_before(&invocation, &page.runner_context()) {
        return Err(invalid(failure.error.message));
    }
    let edited = if input == task.input {
        *confirmation
    } else {
        let shown = attempt::invocation(&task, seal::shown(&input));
        let files = subtool.definition.run.files(&shown, &page.runner_context()).unwrap_or_default();
        Confirmation { files, ..*confirmation }
    };
    let edited_digest = edited.digest_of(&page.context.site.instance, &task, &input);
    let word = approval_word(&subtool.definition, &task, &input);
    Ok(CheckedEdit { task, input, shown: digest, files: edited.files, digest: edited_digest, word })
}

/// Whether what a run with the edited input replaces is not what was looked up and shown: it would end as drifted.
fn is_foreseen_otherwise(definition: &Definition, task: &Task, edited: &Map<String, Value>) -> bool {
    let looked_up = |preview: &Preview, input: &Map<String, Value>| {
        attempt::invocation(task, input.clone()).values().fields(&preview.input).ok()
    };
    definition.run.change().is_some()
        || definition.preview.as_ref().is_some_and(|preview| {
            preview.replaces.contains("$input") || looked_up(preview, &task.input) != looked_up(preview, edited)
        })
}

/// The answer to an input that is wrong as a whole.
fn invalid(problem: String) -> Response {
    invalid_input(&[Problem { pointer: String::new(), problem, fields: None, did_you_mean: None, schema: None }])
}

fn check_input(subtool: &Subtool, input: &Map<String, Value>) -> Result<(), Response> {
    let problems = subtool.schema.problems(&Value::Object(input.clone()));
    if problems.is_empty() { Ok(()) } else { Err(invalid_input(&problems)) }
}

pub(in crate::page) async fn edit(State(page): PageState, body: Bytes) -> ActionResult {
    let edit: EditBody = parse_body(&body)?;
    let CheckedEdit { task, input, files, digest, word, .. } = check_edit(&page, &edit)?;
    let names = task.input.keys().chain(input.keys().filter(|name| !task.input.contains_key(*name)));
    let mut changes: Vec<_> = names
        .map(|name| (name, task.input.get(name), input.get(name)))
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| {
            let shown = |value: Option<&Value>| value.map(|value| VisibleText::of(&seal::shown_value(value)));
            json!({"label": line(name), "pointer": form::pointer(name), "before": shown(before), "after": shown(after),
                "diff": before.zip(after).and_then(|(before, after)| LineDiff::of(before, after))})
        })
        .collect();
    let known = task.confirmation.as_ref().map(|confirmation| confirmation.files.as_slice()).unwrap_or_default();
    for file in files.iter().filter(|file| !known.contains(file)) {
        let shown = VisibleText::text(&format!(
            "{}{}{}",
            file.leads_to.as_ref().unwrap_or(&file.path).display(),
            file.bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default(),
            if file.leads_to.is_some() { String::new() } else { format!(", SHA-256 {}", file.sha256) }
        ));
        changes.push(
            json!({"label": line("the file that is used"), "pointer": "", "before": null, "after": shown, "diff": null}),
        );
    }
    Ok(Json(json!({"digest": digest, "changes": changes, "word": word})).into_response())
}

pub(in crate::page) async fn decide_edit(
    State(page): PageState,
    Extension(session): CurrentSession,
    body: Bytes,
) -> ActionResult {
    let edit: EditBody = parse_body(&body)?;
    let CheckedEdit { task, input, shown, files, digest, .. } = check_edit(&page, &edit)?;
    // The decision must be about the changes that the human saw.
    if edit.edited_digest.as_deref() != Some(digest.to_string().as_str()) {
        return Err(not_decided(&page, DecisionError::Stale(edit.id)));
    }
    check_word(&page, &task, &input, edit.typed.as_deref())?;
    let action = if input == task.input {
        HumanVerdict::Approve
    } else {
        HumanVerdict::Edit { input, files, digest, reason: note(edit.reason) }
    };
    send_decision(&page, session, vec![(edit.id, shown)], action, (None, edit.touch)).await
}
