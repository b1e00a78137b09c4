//! Runs blocking work on files so that it can be cancelled.

use std::io::{self, Read};

use ground::task::failure::Failure;
use protocol::code::Code;
use tokio_util::sync::CancellationToken;

/// Runs `work` on a thread that may block.
///
/// `work` must end early when its token fires: on cancellation, or when the returned future is dropped.
pub(super) async fn blocking<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce(&CancellationToken) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let token = cancel.child_token();
    let cancel_on_drop = token.clone().drop_guard();
    let outcome = tokio::task::spawn_blocking(move || work(&token)).await;
    let outcome = outcome.unwrap_or_else(|error| Err(Failure::new(Code::Internal, error.to_string())));
    cancel_on_drop.disarm();
    match outcome {
        Err(_) if cancel.is_cancelled() => Err(cancelled()),
        outcome => outcome,
    }
}

/// The failure of cancelled work. Reading has no side effect.
pub(super) fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "cancelled while reading")
}

/// A reader that fails after the token has fired.
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
