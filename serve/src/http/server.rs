//! The listener: accepts connections, with TLS if it is configured, and serves each within limits.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use ground::config::ServeSettings;
use ground::page_client::same_user;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use mcp::http_listener;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::door::Connection;
use crate::delivery;
use crate::limits::ConcurrencyLimit;

/// The most connections from one place, so that no client uses up all of them.
const MAX_CONNECTIONS_OF_PLACE: usize = 256;
const TLS_TIMEOUT: Duration = Duration::from_secs(10);

/// A bound address, and how connections to it are encrypted.
#[expect(missing_debug_implementations, reason = "a TLS acceptor has none")]
pub struct Binding {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    proxies: Vec<IpAddr>,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    #[error("`{0}` can be reached from other machines, and what is sent to it would not be encrypted")]
    NotEncrypted(SocketAddr),
    #[error("`certificate` and `certificate_key` under [serve] belong together, and one of them is missing")]
    HalfTls,
    #[error("failed to read `{path}`: {reason}")]
    Pem { path: PathBuf, reason: String },
    #[error("the certificate and its key do not fit")]
    Tls(#[from] rustls::Error),
    #[error("failed to listen on `{address}`")]
    Listen { address: SocketAddr, source: io::Error },
}

impl Binding {
    /// Listens on `address`, or on the one of the settings.
    pub async fn open(address: Option<SocketAddr>, settings: &ServeSettings) -> Result<Self, BindingError> {
        let address = address.unwrap_or(settings.listen);
        let tls = tls(settings)?;
        if !address.ip().is_loopback() && tls.is_none() && settings.proxies.is_empty() {
            return Err(BindingError::NotEncrypted(address));
        }
        let failed = |source| BindingError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, tls, proxies: settings.proxies.clone() })
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

fn tls(settings: &ServeSettings) -> Result<Option<TlsAcceptor>, BindingError> {
    let (certificate, key) = (&settings.certificate, &settings.certificate_key);
    match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
        (true, true) => return Ok(None),
        (false, false) => {}
        _ => return Err(BindingError::HalfTls),
    }
    let failed = |path: &Path, error: &dyn std::fmt::Display| BindingError::Pem {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| failed(certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Serves `routes` until `stopping` is cancelled.
pub async fn serve(binding: Binding, routes: Router, stopping: CancellationToken) {
    let Binding { listener, tls, proxies, .. } = binding;
    let of_places = ConcurrencyLimit::new(MAX_CONNECTIONS_OF_PLACE);
    http_listener::accept(listener, http_listener::MAX_CONNECTIONS, &stopping, |stream, peer| {
        let (routes, tls, stopping) = (routes.clone(), tls.clone(), stopping.clone());
        let permit = place(peer.ip(), &proxies).map(|place| of_places.try_acquire(&place));
        async move {
            if permit.as_ref().is_some_and(Option::is_none) {
                tracing::debug!(%peer, "refused a connection: there are too many from its place");
                return;
            }
            if let Err(error) = serve_connection(stream, peer, tls, routes, &stopping).await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        }
    })
    .await;
}

/// The place of a client whose connections are counted. A proxy has those of all its clients, and this machine is ours.
/// Who has an address of IPv6 usually has all that begin with the same 64 bits.
fn place(address: IpAddr, proxies: &[IpAddr]) -> Option<IpAddr> {
    let address = address.to_canonical();
    if address.is_loopback() || proxies.contains(&address) {
        return None;
    }
    Some(match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    })
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    routes: Router,
    stopping: &CancellationToken,
) -> io::Result<()> {
    let local = stream.local_addr()?;
    // Events are small, and must not wait for each other.
    stream.set_nodelay(true)?;
    let is_own = peer.ip().to_canonical().is_loopback() && same_user::check(peer, local).is_ok();
    let connection = Connection { peer, local, is_own };
    let routes = TowerToHyperService::new(routes.layer(axum::middleware::map_request(move |mut request: Request| {
        request.extensions_mut().insert(connection);
        std::future::ready(request)
    })));
    match tls {
        None => serve_requests(stream, routes, stopping).await,
        Some(tls) => {
            let stream = tokio::time::timeout(TLS_TIMEOUT, tls.accept(stream)).await??;
            Box::pin(serve_requests(stream, routes, stopping)).await;
        }
    }
    Ok(())
}

/// Serves the requests of one connection, whose answers count as delivered when it has taken them.
pub(crate) async fn serve_requests<I, S>(stream: I, routes: S, stopping: &CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<hyper::Request<Incoming>, Response = Response, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    delivery::serve(stream, |stream| http_listener::serve_connection(stream, routes, stopping)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_the_place_that_they_come_from() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let proxies = [address("10.0.0.1")];
        let of = |text: &str| place(address(text), &proxies);
        for unlimited in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(of(unlimited), None, "{unlimited}");
        }
        assert_eq!(of("::ffff:10.0.0.2"), of("10.0.0.2"));
        assert_ne!(of("10.0.0.2"), of("10.0.0.3"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }
}
