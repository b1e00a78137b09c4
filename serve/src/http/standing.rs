//! Which API keys may decide, as the executor said a moment ago. Only for what a client is told: the executor itself
//! checks each decision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ground::page_client::api_client::PageApi;

use super::Bearer;
use crate::service::SessionService;

/// How long an answer of the executor holds.
const LIFETIME: Duration = Duration::from_secs(2);
/// The most keys that are remembered.
const MAX_KEYS: usize = 1_000;

/// The status of an error without an executor.
const NO_EXECUTOR: u16 = 503;

#[derive(Debug, Default)]
pub(super) struct StandingCache {
    known: Mutex<HashMap<String, (Instant, bool)>>,
}

impl StandingCache {
    /// Whether the key may decide; not if the executor cannot be asked.
    pub(super) async fn may_decide(&self, page: &PageApi, service: &Arc<SessionService>, bearer: &Bearer) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(bearer.expose()).copied();
        if let Some((at, may_decide)) = known
            && at.elapsed() < LIFETIME
        {
            return may_decide;
        }
        let mut standing = page.standing(bearer.expose()).await;
        if standing.as_ref().is_err_and(|error| error.status == NO_EXECUTOR) {
            // It stops when there is nothing to do, and knows the scopes.
            service.ensure_executor().await;
            standing = page.standing(bearer.expose()).await;
        }
        let may_decide = standing.is_ok_and(|standing| standing.may_decide);
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_KEYS {
            all.clear();
        }
        all.insert(bearer.expose().to_owned(), (Instant::now(), may_decide));
        may_decide
    }
}
