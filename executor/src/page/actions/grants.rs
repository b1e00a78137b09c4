//! Grants: a human makes one from a pending task, sees what it would have let run, and revokes it.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use dispatcher::{DecisionError, HumanCommand, HumanVerdict};
use ground::base::webauthn::Assertion;
use ground::task::Task;
use ground::task::grant::{self, FieldCoverage, Grant, GrantId, GrantScope};
use protocol::code::Code;
use protocol::task::TaskId;
use protocol::{clock, json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ActionResult, CurrentSession, DecidedTask, PageState, check_approvable, not_decided, parse_body, pending_task,
    send_decision, stopping,
};
use crate::page::approval_word::word_required;
use crate::page::door::refuse;
use crate::page::{Page, form};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBody {
    id: TaskId,
    digest: String,
    fields: Vec<GrantFieldBody>,
    expires_in: String,
    #[serde(default)]
    most_uses: Option<u32>,
    #[serde(default)]
    typed: Option<String>,
    #[serde(default)]
    touch: Option<Assertion>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantFieldBody {
    pointer: String,
    how: CoverageKind,
    #[serde(default)]
    value: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CoverageKind {
    Exact,
    Prefix,
    AtMost,
    Any,
}

/// Builds the grant that a human wants to make from a pending task.
fn build_grant(page: &Page, wanted: &GrantBody, session: &str) -> Result<(Task, Grant), Response> {
    let (task, confirmation) = pending_task(page, wanted.id)?;
    let invalid = |message: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, Code::BadGrant, message);
    let catalog = page.catalog();
    if !catalog.get(task.tool.as_str()).is_some_and(|subtool| subtool.definition.grantable) {
        return Err(invalid("approvals of this subtool cannot be remembered"));
    }
    let mut chosen: BTreeMap<_, _> = wanted.fields.iter().map(|field| (field.pointer.as_str(), field)).collect();
    if chosen.len() < wanted.fields.len() {
        return Err(invalid("a field is chosen twice"));
    }
    let mut fields = BTreeMap::new();
    for (name, value) in &task.input {
        // A field that the human did not widen must match exactly.
        let chosen = chosen.remove(form::pointer(name).as_str());
        let limit = chosen.and_then(|field| field.value.as_ref());
        let text = limit.and_then(Value::as_str);
        let covers = match chosen.map_or(CoverageKind::Exact, |field| field.how) {
            CoverageKind::Exact => FieldCoverage::Exactly(value.clone()),
            CoverageKind::Any => FieldCoverage::Anything,
            CoverageKind::Prefix => match text {
                Some(path) if path.starts_with('/') => FieldCoverage::Below(path.to_owned()),
                _ => return Err(invalid("a path must start with `/`")),
            },
            CoverageKind::AtMost => match limit.and_then(number) {
                Some(most) => FieldCoverage::AtMost(most),
                None => return Err(invalid("`at most` needs a number")),
            },
        };
        fields.insert(name.clone(), covers);
    }
    if let Some((pointer, _)) = chosen.pop_first() {
        return Err(invalid(&format!("the request has no field `{pointer}`")));
    }
    let now = clock::now();
    let lifetime = wanted.expires_in.parse::<protocol::duration::PositiveDuration>();
    let lifetime = lifetime.map_err(|error| invalid(&error.to_string()))?.get();
    if wanted.most_uses == Some(0) {
        return Err(invalid("a grant is for one use at least"));
    }
    if lifetime > grant::MAX_LIFETIME {
        return Err(invalid("a grant cannot last longer than 30 days"));
    }
    let grant = Grant {
        id: GrantId::new(),
        tool: task.tool.clone(),
        definition_hash: task.definition_hash.clone(),
        // A session is only a name that a program gives itself, so it limits nothing.
        scope: GrantScope {
            uid: task.caller.uid,
            client: task.caller.client().map(str::to_owned),
            folder: task.caller.folder.clone(),
        },
        files: confirmation.files,
        fields,
        rules: page.context.settings.current().policy.ask_rules(),
        made_at: now,
        made_from: task.id,
        made_by: session.to_owned(),
        expires_at: now.checked_add(lifetime).unwrap_or(now),
        most_uses: wanted.most_uses,
        uses: 0,
        last_use: None,
        revoked_at: None,
        proof: None,
    };
    if !grant.matches(&task) {
        return Err(invalid("the grant does not cover the request that it is made from"));
    }
    Ok((task, grant))
}

fn number(value: &Value) -> Option<serde_json::Number> {
    match value {
        Value::Number(number) => Some(number.clone()),
        Value::String(text) => match json::parse(text.trim().as_bytes()) {
            Ok(Value::Number(number)) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

pub(in crate::page) async fn grant(
    State(page): PageState,
    Extension(session): CurrentSession,
    body: Bytes,
) -> ActionResult {
    let wanted: GrantBody = parse_body(&body)?;
    let decided = DecidedTask { id: wanted.id, digest: wanted.digest.clone() }.parse()?;
    let (task, grant) = build_grant(&page, &wanted, &session.0)?;
    if needs_word(&grant, &task) && wanted.typed.as_deref() != Some(task.tool.as_str()) {
        return Err(word_required(task.tool.as_str()));
    }
    check_approvable(&page, wanted.id, wanted.typed.as_deref(), false)?;
    let grant = Some(Box::new(grant));
    send_decision(&page, session, vec![decided], HumanVerdict::Approve, (grant, wanted.touch)).await
}

/// Whether the human has to type the subtool's name for a grant made from `task`: a field of it may be nearly anything.
fn needs_word(grant: &Grant, task: &Task) -> bool {
    grant.fields.iter().any(|(name, covers)| match covers {
        FieldCoverage::Anything => !task.input.get(name).is_some_and(Value::is_boolean),
        FieldCoverage::Below(folder) => folder.trim_matches('/').is_empty(),
        FieldCoverage::Exactly(_) | FieldCoverage::OneOf(_) | FieldCoverage::AtMost(_) => false,
    })
}

/// Counts how many of the recent requests a grant would have let run, and says whether it needs the word.
pub(in crate::page) async fn preview_grant(
    State(page): PageState,
    Extension(session): CurrentSession,
    body: Bytes,
) -> ActionResult {
    const MAX_COMPARED: u32 = 40;
    let wanted: GrantBody = parse_body(&body)?;
    let (task, grant) = build_grant(&page, &wanted, &session.0)?;
    let recent =
        page.read(|records| records.recent_confirmations(task.tool.as_str(), MAX_COMPARED)).unwrap_or_default();
    // The task that the grant is made from always matches.
    let others: Vec<_> = recent.iter().filter(|other| other.id != task.id).collect();
    let matched = others.iter().filter(|other| grant.matches(other)).count();
    Ok(Json(json!({"matched": matched, "of": others.len(), "needs_word": needs_word(&grant, &task)})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokeBody {
    id: GrantId,
    #[serde(default)]
    touch: Option<Assertion>,
}

pub(in crate::page) async fn revoke_grant(State(page): PageState, body: Bytes) -> ActionResult {
    let RevokeBody { id, touch } = parse_body(&body)?;
    match page.send(HumanCommand::Revoke { grant: id, touch }).await {
        None => Err(stopping()),
        Some(Ok(_)) => Ok(Json(json!({"id": id})).into_response()),
        Some(Err(DecisionError::NotPending(_))) => Err(refuse(StatusCode::NOT_FOUND, Code::NotFound, "no such grant")),
        Some(Err(error)) => Err(not_decided(&page, error)),
    }
}
