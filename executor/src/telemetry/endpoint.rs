//! The HTTP endpoint that Prometheus reads: `GET /metrics`.

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

/// The most concurrent connections; more have to wait.
const MAX_CONNECTIONS: usize = 8;
/// How long a request may take to send its head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may take, from its acceptance to the last byte.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before another attempt after a failed bind (the address is in use) or accept (no descriptors).
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Serves metrics at `address` until `ended` fires.
pub(super) async fn serve(address: SocketAddr, shared: Arc<SharedTelemetry>, ended: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => {}
        () = listen(address, shared) => {}
    }
}

async fn listen(address: SocketAddr, shared: Arc<SharedTelemetry>) {
    let listener = bind(address).await;
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let (shared, loopback_only) = (Arc::clone(&shared), address.ip().is_loopback());
                connections.spawn(async move {
                    let answer = answer(stream, shared, loopback_only);
                    let answered = tokio::time::timeout(CONNECTION_TIMEOUT, answer).await;
                    tracing::trace!(in_time = answered.is_ok(), "a metrics connection ended");
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a metrics connection");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Binds the address. Retries without end, since another executor of the same user may be using the address.
async fn bind(address: SocketAddr) -> TcpListener {
    let mut was_logged = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr().unwrap_or(address);
                tracing::info!(%address, "metrics are served");
                return listener;
            }
            Err(error) if !was_logged => {
                tracing::warn!(%address, %error, "failed to serve metrics; retrying");
                was_logged = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn answer(stream: TcpStream, shared: Arc<SharedTelemetry>, loopback_only: bool) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&request, &shared, loopback_only);
        async { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a metrics connection failed");
    }
}

fn respond<B>(request: &Request<B>, shared: &SharedTelemetry, loopback_only: bool) -> Response<Full<Bytes>> {
    if loopback_only && !is_loopback(request.headers().get(HOST)) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "metrics are served only under a loopback address\n");
    }
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "metrics are read-only\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    let mut response = Response::new(Full::new(text::render(&shared.metrics()).into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(text::CONTENT_TYPE));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// Whether the `Host` header names a loopback address. This stops DNS rebinding: a website can point its own name to
/// this machine, but it cannot use the name `localhost`.
fn is_loopback(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return false };
    let host = host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(host, _)| host);
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for (host, expected) in [
            ("localhost:9464", true),
            ("127.0.0.1:9464", true),
            ("[::1]:9464", true),
            ("[::1]", true),
            ("evil.example:9464", false),
            ("localhost.evil.example", false),
            ("10.0.0.1:9464", false),
        ] {
            assert_eq!(is_loopback(Some(&HeaderValue::from_static(host))), expected, "{host}");
        }
        assert!(!is_loopback(None));
    }
}
