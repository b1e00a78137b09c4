//! Waiting for the reply to a request that the executor itself put into its mailbox.
//!
//! Has no time limit: each caller brings its own.

use std::future;
use std::time::Duration;

use protocol::handover::{AnswerError, PendingRequest, Reply};

use super::trigger::Trigger;

/// Pause between two looks into the mailbox. The executor replies at once, so a file watch is not worth it.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits for the reply to `request`; `None` if it was answered with something that is not an answer.
///
/// An answer that cannot be read is looked for again. Cancel-safe.
pub async fn reply(request: &PendingRequest<'_>) -> Option<Reply> {
    reply_or(request, future::pending).await
}

/// Like [`reply`], for a request to run a subtool: `results` is the trigger of its task, and sees it accepted.
pub async fn reply_to_run(request: &PendingRequest<'_>, results: &Trigger) -> Option<Reply> {
    reply_or(request, || results.wait_for_change()).await
}

/// Looks now and then, and when `news` says so.
async fn reply_or<F: Future<Output = ()>>(request: &PendingRequest<'_>, news: impl Fn() -> F) -> Option<Reply> {
    loop {
        match request.look() {
            Ok(Some(reply)) => return Some(reply),
            Ok(None) | Err(AnswerError::Unreadable(_)) => {
                drop(tokio::time::timeout(POLL_INTERVAL, news()).await);
            }
            Err(AnswerError::Malformed(error)) => {
                tracing::warn!(%error, "an answer could not be parsed");
                return None;
            }
        }
    }
}
