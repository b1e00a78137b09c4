//! When a statement must end before it is done.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::DatabaseError;

/// How much later than the server we notice a timeout: the server's own answer is better.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// What ends a statement early: its caller, the end of the database's use, its time.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    caller: CancellationToken,
    closing: CancellationToken,
    /// The time of one statement, as the server is told it.
    pub(crate) limit: Duration,
}

impl Stop {
    /// Takes a token that only this statement has, since it is cancelled when the caller goes away.
    pub(crate) fn new(caller: CancellationToken, closing: CancellationToken, limit: Duration) -> Self {
        Self { caller, closing, limit: limit.max(Duration::from_millis(1)) }
    }

    pub(crate) fn cancel_on_drop(&self) -> DropGuard {
        self.caller.clone().drop_guard()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.caller.is_cancelled() || self.closing.is_cancelled()
    }

    /// Waits until the caller or the database's user wants no more.
    pub(crate) async fn cancelled(&self) {
        tokio::select! {
            () = self.caller.cancelled() => {}
            () = self.closing.cancelled() => {}
        }
    }

    /// Waits for a reason to stop a statement that began at `started`; the server ends it by itself a little earlier.
    pub(crate) async fn reason(&self, started: Instant) -> DatabaseError {
        tokio::select! {
            () = self.cancelled() => DatabaseError::Cancelled,
            () = tokio::time::sleep_until(started + self.limit + TIMEOUT_GRACE) => self.timeout(),
        }
    }

    /// Runs what needs no cleaning up, as long as the caller wants it.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, DatabaseError>>,
    ) -> Result<T, DatabaseError> {
        tokio::select! {
            result = work => result,
            () = self.cancelled() => Err(DatabaseError::Cancelled),
        }
    }

    pub(crate) fn timeout(&self) -> DatabaseError {
        DatabaseError::Timeout { limit: self.limit }
    }
}
