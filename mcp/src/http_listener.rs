//! The connections of an HTTP/1.1 server, within limits: how many are open, how long and large their headers are, and
//! how long they may go on after the server was told to end. What a request may do is up to its service.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most connections of a server. Those of this machine are not told apart, so other users of it must not easily use
/// up all of them with connections on which they say nothing.
pub const MAX_CONNECTIONS: usize = 4_096;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The pause after `accept` fails, usually because no file descriptor is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long answers may still be sent after the server was told to end.
const GRACE: Duration = Duration::from_secs(2);

/// Accepts connections until `ended` is cancelled, and has `serve` serve each; returns when they have ended too, or have
/// taken too long. While as many are open as may be, the next one waits.
pub async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    max_connections: usize,
    ended: &CancellationToken,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) {
    let tracker = TaskTracker::new();
    let connections = Arc::new(Semaphore::new(max_connections));
    loop {
        let turn = Arc::clone(&connections).acquire_owned();
        let turn = tokio::select! {
            () = ended.cancelled() => break,
            turn = turn => turn.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            () = ended.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let serving = serve(stream, peer);
                tracker.spawn(async move {
                    serving.await;
                    drop(turn);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    tracker.close();
    // What has not been sent by then is not sent.
    drop(tokio::time::timeout(GRACE, tracker.wait()).await);
}

/// Serves the requests of one connection until its client closes it; when `ended` is cancelled, it finishes the one that
/// it is at.
pub async fn serve_connection<I, S, B>(stream: I, service: S, ended: &CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<Box<dyn Error + Send + Sync>>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = ended.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// Answers requests of at most one connection at once, until the token is cancelled.
    async fn start() -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let ended = CancellationToken::new();
        let token = ended.clone();
        let serving = TaskTracker::new().spawn(async move {
            accept(listener, 1, &token.clone(), |stream, _| {
                let token = token.clone();
                async move {
                    let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
                    serve_connection(stream, service, &token).await;
                }
            })
            .await;
        });
        (address, ended, serving)
    }

    async fn ask(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(REQUEST).await.expect("written");
        stream
    }

    async fn answer(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        while !text.ends_with("hello") {
            let mut piece = [0; 512];
            let count = stream.read(&mut piece).await.expect("read");
            assert_ne!(count, 0, "it ends after {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        text
    }

    #[tokio::test]
    async fn a_connection_too_many_waits_until_another_one_ends() {
        let (address, ended, serving) = start().await;
        let mut first = ask(address).await;
        answer(&mut first).await;
        let mut second = ask(address).await;
        let early = tokio::time::timeout(Duration::from_millis(50), answer(&mut second)).await;
        early.expect_err("the first one is still open");
        drop(first);
        answer(&mut second).await;
        ended.cancel();
        serving.await.expect("it ends");
        assert_eq!(second.read(&mut [0; 8]).await.expect("closed in order"), 0);
    }

    #[tokio::test]
    async fn it_ends_although_as_many_connections_are_open_as_may_be() {
        let (address, ended, serving) = start().await;
        let mut open = ask(address).await;
        answer(&mut open).await;
        ended.cancel();
        serving.await.expect("it ends");
        TcpStream::connect(address).await.expect_err("it listens no more");
    }
}
