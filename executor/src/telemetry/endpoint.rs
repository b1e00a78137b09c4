//! The endpoint that Prometheus reads: `GET /metrics`, and nothing else.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{SharedTelemetry, text};

/// So many are answered at once; the others wait.
const MAX_CONNECTIONS: usize = 8;
/// A request's head must be there by then.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// A whole connection, from its acceptance to the last byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon an address that is taken, or a want of descriptors, is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Answers at `address` until `ended`.
pub(super) async fn serve(address: SocketAddr, shared: Arc<SharedTelemetry>, ended: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => {}
        () = listen(address, shared) => {}
    }
}

async fn listen(address: SocketAddr, shared: Arc<SharedTelemetry>) {
    let listener = bound(address).await;
    let paths = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let place = Arc::clone(&paths).acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, own_only) = (Arc::clone(&shared), address.ip().is_loopback());
                connections.spawn(async move {
                    let answered = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, shared, own_only)).await;
                    tracing::trace!(in_time = answered.is_ok(), "a reader of metrics is gone");
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a reader of metrics cannot be served");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// Another executor of this user may have the address, until it ends.
async fn bound(address: SocketAddr) -> TcpListener {
    let mut was_said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr().unwrap_or(address);
                tracing::info!(%address, "metrics are served");
                return listener;
            }
            Err(error) if !was_said => {
                tracing::warn!(%address, %error, "metrics cannot be served yet");
                was_said = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn answer(stream: TcpStream, shared: Arc<SharedTelemetry>, own_only: bool) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&request, &shared, own_only);
        async { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a reader of metrics was not understood");
    }
}

fn respond<B>(request: &Request<B>, shared: &SharedTelemetry, own_only: bool) -> Response<Full<Bytes>> {
    if own_only && !names_this_machine(request.headers().get(HOST)) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "metrics are served under a loopback address only\n");
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics can be read only\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    let mut response = Response::new(Full::new(text::render(&shared.numbers()).into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(text::CONTENT_TYPE));
    response
}

fn plain(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(words.as_bytes())));
    *response.status_mut() = status;
    response
}

/// A page in a browser can point a name of its own at this machine; it cannot call it `localhost`.
fn names_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return false };
    let host = host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(host, _)| host);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_this_machine() {
        for (host, expected) in [
            ("localhost:9464", true),
            ("127.0.0.1:9464", true),
            ("[::1]:9464", true),
            ("[::1]", true),
            ("evil.example:9464", false),
            ("localhost.evil.example", false),
            ("10.0.0.1:9464", false),
        ] {
            assert_eq!(names_this_machine(Some(&HeaderValue::from_static(host))), expected, "{host}");
        }
        assert!(!names_this_machine(None));
    }
}
