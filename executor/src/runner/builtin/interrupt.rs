//! Work on files that blocks, but can be cancelled.

use std::io::{self, Read};

use protocol::code::Code;
use tokio_util::sync::CancellationToken;

use crate::task::failure::Failure;

/// Does `work` where it may block. `work` ends early when the token that it is given fires, which it
/// does too when nobody waits for the outcome any more.
pub(super) async fn blocking<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce(&CancellationToken) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let token = cancel.child_token();
    let abandoned = token.clone().drop_guard();
    let outcome = tokio::task::spawn_blocking(move || work(&token)).await;
    let outcome = outcome.unwrap_or_else(|error| Err(Failure::new(Code::Internal, error.to_string())));
    abandoned.disarm();
    match outcome {
        Err(_) if cancel.is_cancelled() => Err(cancelled()),
        outcome => outcome,
    }
}

/// Nothing but reading was done: it had no effect.
pub(super) fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "it was cancelled while it read")
}

/// A reader that fails once the token has fired.
pub(super) struct Interruptible<'a, R> {
    pub(super) inner: R,
    pub(super) cancel: &'a CancellationToken,
}

impl<R: Read> Read for Interruptible<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.inner.read(buffer)
    }
}
