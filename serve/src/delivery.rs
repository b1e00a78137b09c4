//! A body that tells when it has reached its client.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use futures_util::stream;

/// A body of this text. `delivered` is called after it was written to the connection; not if the client has gone.
pub(crate) fn body(text: String, delivered: impl FnOnce() + Send + 'static) -> Body {
    let chunks = stream::unfold((Some(text), Some(delivered)), |(text, mut delivered)| async move {
        if let Some(text) = text {
            return Some((Ok::<_, Infallible>(Bytes::from(text)), (None, delivered)));
        }
        // hyper asks for more before it writes what it has. It writes while we are not ready; if that fails, this is
        // dropped.
        tokio::task::yield_now().await;
        if let Some(delivered) = delivered.take() {
            delivered();
        }
        None
    });
    Body::from_stream(chunks)
}
