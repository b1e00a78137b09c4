//! The HTTP clients of one executor. Each is built on first use, because that takes milliseconds.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use ground::config::Config;
use ground::task::failure::{Failure, Retry};
use protocol::code::Code;
use protocol::error::{causes, innermost_cause};
use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, StatusCode};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::guard::{AddressGuard, ForbiddenAddress, GuardedResolver, is_loopback};
use crate::text;

/// Long enough for a slow network, but shorter than the timeout of a task: a host that does not respond is then
/// reported as unreachable, which implies that nothing was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may lie unused before another one is opened instead. Servers close theirs, the usual ones after
/// five seconds or more. One that does so while a request is on its way never answers it, so whether it was carried out
/// stays unknown.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// The most redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;

/// HTTP clients and their connections, shared by all tasks of one executor.
pub struct HttpClients {
    guard: Arc<AddressGuard>,
    user_agent: HeaderValue,
    /// Uses the proxy from the environment, if there is one.
    plain: OnceLock<Client>,
    /// Like `plain`, but connects only to public addresses.
    guarded: OnceLock<Client>,
    /// Never uses a proxy: for loopback addresses and for hosts in `http.private_hosts`.
    direct: OnceLock<Client>,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpClientsError {
    #[error("`http.private_hosts`: `{0}` is not a valid `host` or `host:port`")]
    PrivateHost(String),
    #[error("`http.user_agent`: `{0}` is not a valid header value")]
    UserAgent(String),
}

/// The response to a request for a URL from the input, with any status.
#[derive(Debug)]
pub struct FetchedPage {
    /// The URL after redirects.
    pub final_url: Url,
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

impl FetchedPage {
    /// Decodes the body with its declared charset.
    pub fn text(&self) -> String {
        text::decode(&self.body, self.content_type.as_deref())
    }
}

impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl Default for HttpClients {
    fn default() -> Self {
        Self::new(&Config::default()).expect("the shipped defaults are valid")
    }
}

impl HttpClients {
    /// Checks the configuration; builds no client yet.
    pub fn new(config: &Config) -> Result<Self, HttpClientsError> {
        let user_agent = HeaderValue::from_str(&config.http.user_agent)
            .map_err(|_| HttpClientsError::UserAgent(config.http.user_agent.clone()))?;
        let guard = AddressGuard::new(&config.http.private_hosts).map_err(HttpClientsError::PrivateHost)?;
        Ok(Self {
            guard: Arc::new(guard),
            user_agent,
            plain: OnceLock::new(),
            guarded: OnceLock::new(),
            direct: OnceLock::new(),
        })
    }

    /// Fetches a URL from the input by GET, following up to [`MAX_REDIRECTS`] redirects.
    ///
    /// Connects only to public addresses and hosts in `http.private_hosts`, at each hop. Any status is a
    /// [`FetchedPage`]. A body of more than `max_bytes` (after decompression) fails with
    /// [`Code::ResponseTooLarge`] as soon as that is known. Drops the connection at once when `cancel` fires.
    pub async fn fetch_guarded(
        &self,
        url: &Url,
        max_bytes: u64,
        cancel: &CancellationToken,
    ) -> Result<FetchedPage, Failure> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Failure::new(Code::Cancelled, "cancelled before the page was fetched")),
            fetched = self.follow(url, max_bytes, true) => fetched,
        }
    }

    /// Gets `url`. Another server than that of a URL that is not `guarded` is guarded, since it was not given.
    async fn follow(&self, url: &Url, max_bytes: u64, guarded: bool) -> Result<FetchedPage, Failure> {
        let given = url.origin();
        let mut url = url.clone();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Failure::new(Code::Rejected, format!("`{url}` is not an http or https URL")));
        }
        for _ in 0..=MAX_REDIRECTS {
            let is_given = !guarded && url.origin() == given;
            let request = self.client_for(&url, !is_given).await?.get(url.clone());
            let response = request.send().await.map_err(|error| send_failure(&error, &url))?;
            if let Some(next) = next_hop(&url, response.status(), response.headers())? {
                url = next;
                continue;
            }
            let content_type = header(response.headers(), "content-type");
            let status = response.status().as_u16();
            let body = bytes(response, max_bytes, &url).await?;
            return Ok(FetchedPage { final_url: url, status, content_type, body });
        }
        Err(too_many_redirects(&url))
    }

    /// Fetches a URL that a human gave, which may be on this machine, following up to [`MAX_REDIRECTS`] redirects.
    /// Any status is a [`FetchedPage`].
    pub async fn fetch_configured(&self, url: &Url, max_bytes: u64) -> Result<FetchedPage, Failure> {
        self.follow(url, max_bytes, false).await
    }

    /// Posts to a URL that a human configured, which may be on this machine. Returns the status; does not read the
    /// body of the response or follow a redirect.
    pub async fn post(&self, url: &Url, headers: HeaderMap, body: String) -> Result<StatusCode, Failure> {
        let request = self.client_for(url, false).await?.post(url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|error| send_failure(&error, url))?;
        Ok(response.status())
    }

    /// Fails if a `url` whose host comes from the input contains a private address. Resolves no name.
    pub fn check_literal(&self, url: &Url) -> Result<(), Failure> {
        self.guard.check_literal(url)
    }

    /// Returns the client for `url`. `guarded` must be true if the host comes from the input.
    pub async fn client_for(&self, url: &Url, guarded: bool) -> Result<&Client, Failure> {
        if guarded {
            self.guard.check(url).await?;
            if self.guard.is_allowed(url) {
                return get_or_build(&self.direct, || self.builder().no_proxy());
            }
            let resolver = || GuardedResolver(Arc::clone(&self.guard));
            return get_or_build(&self.guarded, || self.builder().dns_resolver(resolver()));
        }
        if is_loopback(url) {
            return get_or_build(&self.direct, || self.builder().no_proxy());
        }
        get_or_build(&self.plain, || self.builder())
    }

    /// Returns the client for a URL that a human configured.
    pub async fn client_for_configured(&self, url: &Url) -> Result<&Client, Failure> {
        self.client_for(url, false).await
    }

    /// Sends `request` to `url` once. Returns the status and the body, which may have at most `max_bytes`.
    pub async fn send_plain(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
        max_bytes: u64,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let response = request.send().await.map_err(|error| send_failure(&error, url))?;
        Ok((response.status(), bytes(response, max_bytes, url).await?))
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder()
            .user_agent(self.user_agent.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(MAX_IDLE)
            .redirect(Policy::none())
            .referer(false)
    }
}

fn get_or_build(cell: &OnceLock<Client>, builder: impl FnOnce() -> ClientBuilder) -> Result<&Client, Failure> {
    if let Some(client) = cell.get() {
        return Ok(client);
    }
    // An error means that a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = builder().build().map_err(|error| {
        Failure::new(Code::Unreachable, format!("failed to set up TLS: {}", innermost_cause(&error)))
            .hint("a human must install the system's CA certificates, or set SSL_CERT_FILE")
    })?;
    Ok(cell.get_or_init(|| client))
}

/// Returns the target of a redirect, or `None` if the response is not a redirect.
pub fn next_hop(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<Url>, Failure> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = header(headers, LOCATION.as_str()) else { return Ok(None) };
    let next = url.join(&location).ok().filter(|next| {
        matches!(next.scheme(), "http" | "https") && next.username().is_empty() && next.password().is_none()
    });
    next.map(Some).ok_or_else(|| {
        Failure::new(Code::BadResponse, format!("redirected to `{location}`, which is not a usable http or https URL"))
    })
}

pub fn too_many_redirects(url: &Url) -> Failure {
    let mut shown = url.clone();
    shown.set_query(None);
    Failure::new(Code::BadResponse, format!("more than {MAX_REDIRECTS} redirects, the last to `{shown}`"))
}

/// Returns the value of a header, with invalid UTF-8 replaced.
pub fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Reads the whole body; fails if it has more than `limit` bytes.
pub async fn bytes(response: reqwest::Response, limit: u64, url: &Url) -> Result<Vec<u8>, Failure> {
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| body_failure(&error, url))?;
        if (body.len() + chunk.len()) as u64 > limit {
            return Err(too_large(limit));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub fn too_large(limit: u64) -> Failure {
    Failure::new(Code::ResponseTooLarge, format!("the response is larger than {limit} bytes"))
        .hint("ask for less at once, with a narrower query or fewer items")
        .detail("max_bytes", limit)
}

/// The failure of a request that got no response: the connection failed or was lost.
pub fn send_failure(error: &reqwest::Error, url: &Url) -> Failure {
    if let Some(forbidden) = causes(error).find_map(|cause| cause.downcast_ref::<ForbiddenAddress>()) {
        return forbidden.into();
    }
    let host = url.host_str().unwrap_or_default();
    let reason = innermost_cause(error);
    if error.is_connect() {
        return Failure::new(Code::Unreachable, format!("failed to connect to `{}`: {reason}", host_and_port(url)))
            .retry(Retry::Later);
    }
    Failure::new(Code::ConnectionLost, format!("lost the connection to `{host}` before the response: {reason}"))
        .retry(Retry::Later)
        .effect_possible()
}

fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The failure of a response whose body could not be read to the end.
pub fn body_failure(error: &reqwest::Error, url: &Url) -> Failure {
    let host = url.host_str().unwrap_or_default();
    let reason = innermost_cause(error);
    let is_malformed = causes(error)
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| matches!(cause.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput));
    if is_malformed {
        return Failure::new(Code::BadResponse, format!("failed to decode the response of `{host}`: {reason}"))
            .effect_possible();
    }
    Failure::new(Code::ConnectionLost, format!("lost the connection to `{host}` during the response: {reason}"))
        .retry(Retry::Later)
        .effect_possible()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_request_takes_no_connection_that_its_server_may_be_about_to_close() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = Url::parse(&format!("http://{}/", listener.local_addr().expect("an address"))).expect("a URL");
        let answer = async |connection: &mut TcpStream| {
            let mut request = Vec::new();
            while !request.ends_with(b"{}") {
                connection.read_buf(&mut request).await.expect("a request");
            }
            connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("written");
        };
        // Closes the first connection at the very moment at which it is used again.
        let server = async {
            let (mut first, _) = listener.accept().await.expect("a connection");
            answer(&mut first).await;
            tokio::select! {
                Ok(_) = first.read_u8() => drop(first),
                second = listener.accept() => answer(&mut second.expect("a connection").0).await,
            }
        };
        let asked = async {
            let clients = HttpClients::default();
            let post = || clients.post(&url, HeaderMap::new(), "{}".to_owned());
            let first = post().await;
            tokio::time::sleep(MAX_IDLE + Duration::from_millis(50)).await;
            [first, post().await].map(|answered| answered.expect("an answer"))
        };
        let (answers, ()) = tokio::join!(asked, server);
        assert_eq!(answers, [StatusCode::NO_CONTENT; 2]);
    }

    #[test]
    fn a_host_is_named_with_its_port() {
        for (url, expected) in [
            ("http://127.0.0.1/x", "127.0.0.1:80"),
            ("https://example.com", "example.com:443"),
            ("http://[::1]:8790", "[::1]:8790"),
        ] {
            assert_eq!(host_and_port(&url.parse().expect("a URL")), expected);
        }
    }

    #[test]
    fn a_redirect_leads_only_to_a_web_address_without_a_password() {
        let here = Url::parse("https://example.com/a/b").expect("a URL");
        let next = |location: &str| {
            let value = HeaderValue::from_str(location).expect("a header");
            next_hop(&here, StatusCode::FOUND, &HeaderMap::from_iter([(LOCATION, value)]))
        };
        for (location, target) in [
            ("c", "https://example.com/a/c"),
            ("//other.example/", "https://other.example/"),
            ("/", "https://example.com/"),
        ] {
            assert_eq!(next(location).expect("usable").map(String::from).as_deref(), Some(target));
        }
        for location in [
            "file:///etc/passwd",
            "ftp://example.com/",
            "javascript:alert(1)",
            "https://me:key@example.com/",
            "https://me@x.example/",
        ] {
            assert_eq!(next(location).expect_err("refused").error.code, Code::BadResponse, "{location}");
        }
        let location = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/x"))]);
        assert_eq!(next_hop(&here, StatusCode::OK, &location).expect("usable"), None, "only a redirect leads on");
    }
}
