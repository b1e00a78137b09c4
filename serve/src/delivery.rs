//! When an answer has reached its client: one way for every interface over HTTP.
//!
//! A body hands its pieces to hyper, which keeps them until the connection takes them; that a body is asked for more does not
//! mean that anything was sent. So what waits for a piece is noted at the connection, and done when the connection has
//! been flushed after that piece. If it breaks before that, it is dropped.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use futures_util::{Stream, StreamExt as _};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

tokio::task_local! {
    /// What waits until the connection of this task has been flushed.
    static UNSENT: Unsent;
}

type Unsent = Arc<Mutex<Vec<Receipt>>>;

/// What is done when the client has taken an answer; dropped if it does not.
#[must_use]
pub(crate) struct Receipt(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

impl Receipt {
    pub(crate) fn new(delivered: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(delivered))
    }

    /// The client has the answer.
    pub(crate) fn give(self) {
        (self.0)();
    }

    /// Waits for what the connection was given to be sent. Called while the connection asks a body for its next piece.
    fn await_flush(self) {
        if UNSENT.try_with(|unsent| lock(unsent).push(self)).is_err() {
            tracing::debug!("a body was read without a connection: nothing is known to have arrived");
        }
    }
}

/// Pieces of a body, each with the receipt for what ends with it.
pub(crate) fn pieces<T>(
    pieces: impl Stream<Item = (T, Option<Receipt>)> + Send,
) -> impl Stream<Item = Result<T, Infallible>> + Send {
    pieces.map(|(piece, receipt)| {
        if let Some(receipt) = receipt {
            receipt.await_flush();
        }
        Ok(piece)
    })
}

/// The response, with the receipt for its whole body.
pub(crate) fn whole(response: Response, receipt: Option<Receipt>) -> Response {
    response.map(|body| Body::new(WholeBody { body, receipt }))
}

/// A body that has arrived when its end has.
struct WholeBody {
    body: Body,
    receipt: Option<Receipt>,
}

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let is_end = match &frame {
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => {
                self.receipt = None;
                false
            }
            None => true,
        };
        if let Some(receipt) = self.receipt.take_if(|_| is_end) {
            receipt.await_flush();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.receipt.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves a connection, so that what is sent over it counts as delivered.
pub(crate) async fn serve<I, F: Future<Output = ()>>(stream: I, serve: impl FnOnce(FlushedStream<I>) -> F) {
    let unsent = Unsent::default();
    let stream = FlushedStream { stream, unsent: Arc::clone(&unsent) };
    UNSENT.scope(unsent, serve(stream)).await;
}

/// A connection that knows when all that it was given has been sent: hyper flushes it only after it has written
/// everything.
pub(crate) struct FlushedStream<I> {
    stream: I,
    unsent: Unsent,
}

impl<I: AsyncRead + Unpin> AsyncRead for FlushedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FlushedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        let sent = std::mem::take(&mut *lock(&self.unsent));
        sent.into_iter().for_each(Receipt::give);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn lock(unsent: &Unsent) -> std::sync::MutexGuard<'_, Vec<Receipt>> {
    unsent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
