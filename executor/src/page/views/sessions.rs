//! The view of the sessions: where the human is signed in.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use protocol::clock;
use serde_json::{Value, json};

use super::ViewResult;
use crate::page::Page;
use crate::page::door::SessionName;
use crate::page::wording::DisplayTime;

pub(in crate::page) async fn sessions(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<SessionName>,
) -> ViewResult {
    let now = clock::now();
    let list = page.context.sessions.list();
    let rows: Vec<Value> = list
        .iter()
        .map(|info| {
            let (signed_in, used) = (DisplayTime::of(info.signed_in_at, now), DisplayTime::of(info.last_used, now));
            json!({"name": info.name, "words": info.kind.words(), "signed_in": signed_in, "used": used,
                "is_this": info.name == session.0})
        })
        .collect();
    Ok(page.show("sessions.html", &json!({"page": page.frame("Sessions", "sessions")?, "rows": rows})))
}
