//! The routes of all interfaces, behind the one door.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};

use crate::a2a::TaskDesk;
use crate::http::{ServeState, api, check_request};
use crate::{a2a, ollama, openai};

/// All routes, behind the door.
pub(crate) fn router(state: Arc<ServeState>, tasks: Arc<TaskDesk>) -> Router {
    let other_agents = a2a::router(a2a::CardFacts::of(&state.settings), tasks);
    let protocols = openai::router().merge(ollama::router()).merge(other_agents);
    api::router()
        .merge(protocols)
        // The door bounds bodies, with an error that its clients can read.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&state), check_request))
        .with_state(state)
}
