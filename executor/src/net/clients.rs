//! The clients of one executor, built at their first use: building one costs milliseconds.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use protocol::code::Code;
use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, StatusCode};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::guard::{AddressGuard, ForbiddenAddress, GuardedResolver, is_loopback};
use super::text;
use crate::config::Config;
use crate::task::failure::{Failure, Retry};

/// Long enough for a slow network; shorter than any timeout of a task, so that a host that does not
/// answer is reported as unreachable, which says that nothing was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many redirects are followed.
pub(crate) const REDIRECTS: usize = 5;

/// Connections and tokens, shared by all runs of one executor.
pub struct HttpClients {
    guard: Arc<AddressGuard>,
    user_agent: HeaderValue,
    /// By way of the environment's proxy, if it names one.
    plain: OnceLock<Client>,
    /// The same, but resolving to public addresses only.
    guarded: OnceLock<Client>,
    /// Never by way of a proxy: for this machine, and for what a human listed.
    direct: OnceLock<Client>,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpClientsError {
    #[error("`http.private_hosts` holds `{0}`, which is no `host` or `host:port`")]
    PrivateHost(String),
    #[error("`http.user_agent` is `{0}`, which cannot stand in a header")]
    UserAgent(String),
}

/// What a URL from the input led to, whatever its status.
#[derive(Debug)]
pub struct FetchedPage {
    /// After redirects.
    pub final_url: Url,
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
}

impl FetchedPage {
    /// The body as a text, in the charset that it is declared in.
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
        Self::new(&Config::default()).expect("the shipped defaults name no host and a plain user agent")
    }
}

impl HttpClients {
    /// Builds nothing yet.
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

    /// Fetches a URL that comes from the input, by GET, following up to five redirects.
    ///
    /// Reaches public addresses and listed hosts only, at each hop. Any status is a [`FetchedPage`]. More
    /// than `max_bytes` (after decompression) is [`Code::ResponseTooLarge`] as soon as it shows.
    /// Drops everything at once when `cancel` fires.
    pub async fn fetch_guarded(
        &self,
        url: &Url,
        max_bytes: u64,
        cancel: &CancellationToken,
    ) -> Result<FetchedPage, Failure> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Failure::new(Code::Cancelled, "cancelled before the page was there")),
            fetched = self.fetch(url, max_bytes) => fetched,
        }
    }

    async fn fetch(&self, url: &Url, max_bytes: u64) -> Result<FetchedPage, Failure> {
        let mut url = url.clone();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Failure::new(Code::Rejected, format!("`{url}` is no http or https URL")));
        }
        for _ in 0..=REDIRECTS {
            let request = self.pick(&url, true).await?.get(url.clone());
            let response = request.send().await.map_err(|error| not_sent_or_lost(&error, &url))?;
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

    /// Posts to an address that a human configured, which may be on this machine. What is answered is
    /// not read, but for its status; a redirect is not followed.
    pub async fn post(&self, url: &Url, headers: HeaderMap, body: String) -> Result<StatusCode, Failure> {
        let request = self.pick(url, false).await?.post(url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|error| not_sent_or_lost(&error, url))?;
        Ok(response.status())
    }

    /// The client that may reach `url`; `guarded` if its host is the input's choice.
    pub(crate) async fn pick(&self, url: &Url, guarded: bool) -> Result<&Client, Failure> {
        if guarded {
            self.guard.check(url).await?;
            if self.guard.lists(url) {
                return built(&self.direct, || self.builder().no_proxy());
            }
            return built(&self.guarded, || self.builder().dns_resolver(GuardedResolver(Arc::clone(&self.guard))));
        }
        if is_loopback(url) {
            return built(&self.direct, || self.builder().no_proxy());
        }
        built(&self.plain, || self.builder())
    }

    /// The client for a URL that a human configured.
    pub(crate) async fn for_operator(&self, url: &Url) -> Result<&Client, Failure> {
        self.pick(url, false).await
    }

    /// Sends `request` to `url`, once; the status, and the body of at most `max_bytes`.
    pub(crate) async fn send_plain(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
        max_bytes: u64,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let response = request.send().await.map_err(|error| not_sent_or_lost(&error, url))?;
        Ok((response.status(), bytes(response, max_bytes, url).await?))
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder()
            .user_agent(self.user_agent.clone())
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .referer(false)
    }
}

fn built(place: &OnceLock<Client>, builder: impl FnOnce() -> ClientBuilder) -> Result<&Client, Failure> {
    if let Some(client) = place.get() {
        return Ok(client);
    }
    // An error means that a provider is installed already, which serves as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = builder().build().map_err(|error| {
        Failure::new(Code::Unreachable, format!("no TLS connection can be made here: {}", cause(&error)))
            .hint("a human installs the system's CA certificates, or names them in SSL_CERT_FILE")
    })?;
    Ok(place.get_or_init(|| client))
}

/// Where a redirect leads; `None` if it is none.
pub(crate) fn next_hop(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<Url>, Failure> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = header(headers, LOCATION.as_str()) else { return Ok(None) };
    let next = url.join(&location).ok().filter(|next| {
        matches!(next.scheme(), "http" | "https") && next.username().is_empty() && next.password().is_none()
    });
    next.map(Some).ok_or_else(|| {
        Failure::new(Code::BadResponse, format!("it redirects to `{location}`, which is no web address"))
    })
}

pub(crate) fn too_many_redirects(url: &Url) -> Failure {
    let mut shown = url.clone();
    shown.set_query(None);
    Failure::new(Code::BadResponse, format!("more than {REDIRECTS} redirects, the last to `{shown}`"))
}

/// A header's value, for a reader.
pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The whole body, if it is at most `limit` bytes.
pub(crate) async fn bytes(response: reqwest::Response, limit: u64, url: &Url) -> Result<Vec<u8>, Failure> {
    if response.content_length().is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let mut body = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| broken_off(&error, url))?;
        if (body.len() + chunk.len()) as u64 > limit {
            return Err(too_large(limit));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub(crate) fn too_large(limit: u64) -> Failure {
    Failure::new(Code::ResponseTooLarge, format!("the answer is larger than {limit} bytes"))
        .hint("ask for less at once, with a narrower query or fewer items")
        .detail("max_bytes", limit)
}

/// Why no answer came: the connection was never there, or it broke.
pub(crate) fn not_sent_or_lost(error: &reqwest::Error, url: &Url) -> Failure {
    if let Some(forbidden) = chain(error).find_map(|cause| cause.downcast_ref::<ForbiddenAddress>()) {
        return forbidden.into();
    }
    let host = url.host_str().unwrap_or_default();
    let reason = cause(error);
    if error.is_connect() {
        return Failure::new(Code::Unreachable, format!("`{host}` could not be reached: {reason}")).retry(Retry::Later);
    }
    Failure::new(Code::ConnectionLost, format!("the connection to `{host}` broke before an answer came: {reason}"))
        .retry(Retry::Later)
        .effect_possible()
}

/// Why an answer stopped halfway.
pub(crate) fn broken_off(error: &reqwest::Error, url: &Url) -> Failure {
    let host = url.host_str().unwrap_or_default();
    let reason = cause(error);
    let is_malformed = chain(error)
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| matches!(cause.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput));
    if is_malformed {
        return Failure::new(Code::BadResponse, format!("the answer of `{host}` cannot be decoded: {reason}"))
            .effect_possible();
    }
    Failure::new(Code::ConnectionLost, format!("the connection to `{host}` broke while its answer came: {reason}"))
        .retry(Retry::Later)
        .effect_possible()
}

/// The innermost reason: the outer ones repeat the URL, which may hold a secret.
fn cause(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(|| "no reason given".to_owned(), ToString::to_string)
}

fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |error| error.source())
}
