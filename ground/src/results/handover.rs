//! Waiting for the reply to a request that the executor itself put into its mailbox.
//!
//! Has no time limit: each caller brings its own.

use std::time::Duration;

use protocol::handover::{AnswerError, PendingRequest, Reply};

/// Pause between two looks into the mailbox. The executor replies at once, so a file watch is not worth it.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits for the reply to `request`; `None` if it was answered with something that is not an answer.
///
/// An answer that cannot be read is looked for again. Cancel-safe.
pub async fn reply(request: &PendingRequest<'_>) -> Option<Reply> {
    loop {
        match request.look() {
            Ok(Some(reply)) => return Some(reply),
            Ok(None) | Err(AnswerError::Unreadable(_)) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(AnswerError::Malformed(error)) => {
                tracing::warn!(%error, "an answer could not be parsed");
                return None;
            }
        }
    }
}
