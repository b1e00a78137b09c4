//! The page's view of the approver's keys, and what enrols and revokes them.
//!
//! Decides nothing: the daemon owns the keys, and the dispatcher checks what a key signed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use dispatcher::TouchRequest;
use ground::base::webauthn::{ALGORITHMS, Assertion, Base64Url, ExpectedOrigin, Registration, RelyingParty};
use ground::task::approver_key::{ApproverKeys, EnrolledBy};
use protocol::clock;
use protocol::code::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Page;
use super::actions::{ActionResult, not_decided, parse_body, stopping};
use super::command::PageCommand;
use super::door::{SessionName, refuse};
use super::views::ViewResult;
use super::visible::{VisibleLine, line};
use super::wording::DisplayTime;

/// How long a human may take to make a key.
const REGISTRATION_LIFETIME: Duration = Duration::from_mins(5);

/// The enrolled keys as the page shows them.
#[derive(Debug, Clone, Default)]
pub struct KeysView {
    pub keys: ApproverKeys,
    pub standing: KeyStanding,
}

/// Who may change the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KeyStanding {
    /// There is no key and never was one: a session of the page may enrol the first.
    #[default]
    FirstRun,
    /// A touch of an enrolled key.
    Enrolled,
    /// Root, in this file.
    Pinned(String),
    /// Root: keys were enrolled, and their file is gone.
    Lost,
    /// Root: the file cannot be used.
    Broken(String),
}

impl KeyStanding {
    /// The standing as a sentence.
    pub fn words(&self) -> String {
        match self {
            Self::FirstRun => "No key is enrolled. Your yes is as safe as your user account.".to_owned(),
            Self::Enrolled => "What destroys something or goes outward needs a touch of one of these.".to_owned(),
            Self::Pinned(file) => format!("The keys are those in {file}, which only root changes."),
            Self::Lost => "Keys were enrolled, and their file is gone. To start again, as root, run: agent-magic-tool \
                           approver reset"
                .to_owned(),
            Self::Broken(problem) => format!("The keys cannot be used: {problem}."),
        }
    }
}

/// The challenges of keys that are being made, by session.
#[derive(Debug, Default)]
pub(super) struct PendingRegistrations(Mutex<HashMap<String, (Vec<u8>, Instant)>>);

impl PendingRegistrations {
    /// Makes a challenge, which replaces the session's last one.
    fn begin(&self, session: &str) -> Vec<u8> {
        let mut challenge = vec![0; 32];
        getrandom::fill(&mut challenge).expect("the system has a source of randomness");
        let mut pending = self.0.lock().expect("no code panics while it holds the lock");
        pending.retain(|_, (_, begun)| begun.elapsed() < REGISTRATION_LIFETIME);
        pending.insert(session.to_owned(), (challenge.clone(), Instant::now()));
        challenge
    }

    /// The session's challenge, if it is not too old.
    fn find(&self, session: &str) -> Option<Vec<u8>> {
        let pending = self.0.lock().expect("no code panics while it holds the lock");
        let (challenge, begun) = pending.get(session)?;
        (begun.elapsed() < REGISTRATION_LIFETIME).then(|| challenge.clone())
    }

    /// Forgets a challenge that was used.
    fn end(&self, session: &str) {
        self.0.lock().expect("no code panics while it holds the lock").remove(session);
    }
}

#[derive(Debug, Serialize)]
struct KeyRow {
    name: VisibleLine,
    credential: String,
    algorithm: &'static str,
    by: &'static str,
    #[serde(flatten)]
    moment: DisplayTime,
}

pub(super) async fn view(State(page): State<Arc<Page>>) -> ViewResult {
    let KeysView { keys, standing } = page.keys();
    let now = clock::now();
    let rows: Vec<_> = keys
        .keys
        .iter()
        .map(|key| KeyRow {
            name: line(&key.name),
            credential: key.credential.to_string(),
            algorithm: key.public_key.algorithm(),
            by: match &key.enrolled_by {
                EnrolledBy::FirstRun => "as the first key",
                EnrolledBy::Key(_) => "with a touch of another key",
            },
            moment: DisplayTime::of(key.enrolled_at, now),
        })
        .collect();
    let can_enrol = matches!(standing, KeyStanding::FirstRun | KeyStanding::Enrolled);
    let can_revoke = standing == KeyStanding::Enrolled && rows.len() > 1;
    let view = json!({"page": page.frame("Keys", "keys")?, "rows": rows, "standing": standing.words(),
        "can_enrol": can_enrol, "can_revoke": can_revoke});
    Ok(page.show("keys.html", &view))
}

/// Begins a registration: what the browser needs to make a key.
pub(super) async fn begin(State(page): State<Arc<Page>>, Extension(session): Extension<SessionName>) -> Response {
    let challenge = page.registrations.begin(&session.0);
    let enrolled: Vec<_> = page.keys().keys.keys.into_iter().map(|key| key.credential).collect();
    let site = &page.context.site;
    // One account for each record: a passkey that is made again replaces the one before.
    let user = Base64Url(site.instance.as_bytes()[..32.min(site.instance.len())].to_vec());
    Json(json!({"challenge": Base64Url(challenge), "rp_id": site.rp_id(), "user": user, "algorithms": ALGORITHMS,
        "enrolled": enrolled}))
    .into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnrolBody {
    name: String,
    registration: Registration,
    #[serde(default)]
    touch: Option<Assertion>,
}

pub(super) async fn enrol(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
    body: Bytes,
) -> ActionResult {
    let EnrolBody { name, registration, touch } = parse_body(&body)?;
    let refused = |message: &str| refuse(StatusCode::UNPROCESSABLE_ENTITY, Code::BadKey, message);
    let Some(challenge) = page.registrations.find(&session.0) else {
        return Err(refused("this took too long; enrol the key again"));
    };
    let site = &page.context.site;
    let party = RelyingParty { id: site.rp_id(), origin: ExpectedOrigin::Exactly(site.origin()) };
    let key = registration.verify(&party, &challenge).map_err(|error| refused(&error.to_string()))?;
    send(&page, PageCommand::EnrolKey { name, key: Box::new(key), touch }).await?;
    page.registrations.end(&session.0);
    Ok(Json(json!({"enrolled": true})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokeKeyBody {
    id: Base64Url,
    #[serde(default)]
    touch: Option<Assertion>,
}

pub(super) async fn revoke(State(page): State<Arc<Page>>, body: Bytes) -> ActionResult {
    let RevokeKeyBody { id, touch } = parse_body(&body)?;
    send(&page, PageCommand::RevokeKey { credential: id, touch }).await?;
    Ok(Json(json!({"revoked": true})).into_response())
}

async fn send(page: &Page, command: PageCommand) -> Result<(), Response> {
    match page.send(command).await {
        None => Err(stopping()),
        Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(not_decided(page, error)),
    }
}

/// Asks the page's script for a touch.
pub(super) fn touch_required(page: &Page, request: &TouchRequest) -> Response {
    let message = if request.credentials.is_empty() {
        "this needs a touch of a key, and no key is enrolled; see Keys"
    } else {
        "this needs a touch of your key, on the page"
    };
    let body = json!({
        "error": {"code": Code::NeedsTouch, "message": message},
        "touch": {"challenge": Base64Url(request.challenge.as_bytes().to_vec()), "credentials": request.credentials,
            "rp_id": page.context.site.rp_id()},
    });
    (StatusCode::FORBIDDEN, Json(body)).into_response()
}
