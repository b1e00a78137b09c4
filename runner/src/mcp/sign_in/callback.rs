//! The address to which the browser comes back after a sign-in: a port on loopback that is open only while a human is
//! asked.
//!
//! It is not the page's: the page has a new host name and port at each start, and authorization servers accept only
//! plain loopback addresses, some only the very one that was registered. Anyone on this machine can connect; what counts
//! is the `state`, which cannot be guessed, from the issuer that was asked. Nothing of a request is ever shown.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use url::{Url, form_urlencoded};

const PATH: &str = "/oauth/callback";
/// The most connections at a time; a browser needs one.
const MAX_CONNECTIONS: usize = 16;
/// How long one connection may take as a whole.
const MAX_DURATION: Duration = Duration::from_secs(10);
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The most characters of an error code that are repeated.
const MAX_ERROR_CHARS: usize = 60;

const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// What the browser must bring.
#[derive(Debug, Clone)]
pub(super) struct ExpectedReturn {
    pub(super) state: String,
    pub(super) issuer: Option<String>,
    /// Whether the authorization server always names itself.
    pub(super) requires_issuer: bool,
}

/// What the browser brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BrowserReturn {
    Code {
        code: String,
        issuer: Option<String>,
    },
    /// The authorization server refused, with this code of OAuth.
    Refused(String),
}

/// An open port.
#[derive(Debug)]
pub(super) struct CallbackPort(TcpListener);

impl CallbackPort {
    /// Opens `port`; 0 is any.
    pub(super) async fn open(port: u16) -> io::Result<Self> {
        Ok(Self(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?))
    }

    /// Opens the port of an address that [`Self::redirect_uri`] returned.
    pub(super) async fn reopen(redirect_uri: &str) -> io::Result<Self> {
        let port = Url::parse(redirect_uri).ok().and_then(|url| url.port());
        Self::open(port.ok_or(io::ErrorKind::InvalidInput)?).await
    }

    fn host(&self) -> io::Result<String> {
        Ok(format!("{}:{}", Ipv4Addr::LOCALHOST, self.0.local_addr()?.port()))
    }

    /// The address that the authorization server sends the browser to.
    pub(super) fn redirect_uri(&self) -> io::Result<String> {
        Ok(format!("http://{}{PATH}", self.host()?))
    }

    /// Waits until the browser comes back with what is expected. Everything else is refused.
    pub(super) async fn wait(&self, expected: &ExpectedReturn) -> io::Result<BrowserReturn> {
        let host = self.host()?;
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.0.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => connections.push(serve(stream, &host, expected)),
                    Err(error) => tracing::debug!(%error, "failed to accept a connection after a sign-in"),
                },
                Some(brought) = connections.next() => if let Some(brought) = brought {
                    return Ok(brought);
                },
            }
        }
    }
}

/// Answers one connection. Returns what it brought, after the browser has got its answer.
async fn serve(stream: TcpStream, host: &str, expected: &ExpectedReturn) -> Option<BrowserReturn> {
    let brought = Arc::new(Mutex::new(None));
    let service = service_fn(|request: Request<Incoming>| {
        let read = read(&request, host, expected);
        let (status, text) = match &read {
            Some(BrowserReturn::Code { .. }) => (StatusCode::OK, "The sign-in is complete. You can close this tab."),
            Some(BrowserReturn::Refused(_)) => (StatusCode::OK, "The sign-in was refused. You can close this tab."),
            None => (StatusCode::BAD_REQUEST, "No sign-in that is waited for ends here."),
        };
        if read.is_some() {
            *brought.lock().unwrap_or_else(PoisonError::into_inner) = read;
        }
        async move { Ok::<_, Infallible>(page(status, text)) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_DURATION)
        .max_buf_size(MAX_HEADER_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(MAX_DURATION, serving).await {
        tracing::debug!(%error, "a connection after a sign-in ended");
    }
    brought.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn page(status: StatusCode, text: &str) -> Response<Body> {
    let body = format!("<!doctype html><html lang=\"en\"><title>agent-magic-tool</title><p>{text}</p></html>\n");
    let mut response = Response::new(Body::from(Bytes::from(body)));
    *response.status_mut() = status;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn read<T>(request: &Request<T>, host: &str, expected: &ExpectedReturn) -> Option<BrowserReturn> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let is_ours = hosts.next().is_some_and(|named| named.as_bytes() == host.as_bytes()) && hosts.next().is_none();
    let is_get = request.method() == Method::GET && request.uri().path() == PATH;
    if is_ours && is_get { brought(request.uri(), expected) } else { None }
}

/// Reads the query as RFC 6749 and RFC 9207 say.
fn brought(uri: &Uri, expected: &ExpectedReturn) -> Option<BrowserReturn> {
    let query = uri.query().unwrap_or_default().as_bytes();
    let single = |name: &str| {
        let mut values = form_urlencoded::parse(query).filter(|(key, _)| key == name).map(|(_, value)| value);
        let value = values.next()?.into_owned();
        values.next().is_none().then_some(value)
    };
    if single("state")? != expected.state {
        return None;
    }
    let names_issuer = form_urlencoded::parse(query).any(|(key, _)| key == "iss");
    let issuer = single("iss");
    // Compared as it stands: no normal form.
    let is_from_issuer =
        if names_issuer { issuer.is_some() && issuer == expected.issuer } else { !expected.requires_issuer };
    if !is_from_issuer {
        tracing::warn!("the end of a sign-in was refused: it does not come from the server that was asked");
        return None;
    }
    if let Some(error) = single("error") {
        let is_code = |character: &char| character.is_ascii_alphanumeric() || "_-.".contains(*character);
        return Some(BrowserReturn::Refused(error.chars().filter(is_code).take(MAX_ERROR_CHARS).collect()));
    }
    Some(BrowserReturn::Code { code: single("code")?, issuer })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(query: &str, expected: &ExpectedReturn) -> Option<BrowserReturn> {
        brought(&format!("{PATH}?{query}").parse().expect("a URI"), expected)
    }

    #[test]
    fn only_the_expected_state_and_issuer_count() {
        let issuer = Some("https://login.example".to_owned());
        let silent = ExpectedReturn { state: "s".to_owned(), issuer: issuer.clone(), requires_issuer: false };
        let naming = ExpectedReturn { requires_issuer: true, ..silent.clone() };
        let code = |issuer: Option<String>| Some(BrowserReturn::Code { code: "c".to_owned(), issuer });
        assert_eq!(returned("code=c&state=s", &silent), code(None));
        assert_eq!(returned("code=c&state=s", &naming), None, "it always names itself");
        let named = "code=c&state=s&iss=https%3A%2F%2Flogin.example";
        assert_eq!(returned(named, &silent), code(issuer.clone()));
        assert_eq!(returned(named, &naming), code(issuer));
        for wrong in [
            "code=c&state=other",
            "code=c",
            "state=s",
            "",
            "code=c&state=s&state=s",
            "code=c&code=d&state=s",
            "code=c&state=s&iss=https%3A%2F%2Flogin.example%2F",
            "code=c&state=s&iss=https%3A%2F%2Fother.example",
            "code=c&state=s&iss=",
            "code=c&state=s&iss=https%3A%2F%2Flogin.example&iss=https%3A%2F%2Flogin.example",
            "error=access_denied&state=s&iss=https%3A%2F%2Fother.example",
        ] {
            assert_eq!(returned(wrong, &silent), None, "{wrong}");
        }
        let unnamed = ExpectedReturn { issuer: None, ..silent.clone() };
        assert_eq!(returned(named, &unnamed), None, "what cannot be compared");
        let refused = |code: &str| Some(BrowserReturn::Refused(code.to_owned()));
        assert_eq!(returned("error=access_denied&state=s", &silent), refused("access_denied"));
        assert_eq!(returned("error=%3Cb%3Ex&state=s&error_description=y", &silent), refused("bx"));
    }

    #[test]
    fn only_our_own_host_and_path_count() {
        let expected = ExpectedReturn { state: "s".to_owned(), issuer: None, requires_issuer: false };
        let ask = |method: &str, host: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).header("host", host).body(());
            read(&request.expect("a request"), "127.0.0.1:4000", &expected)
        };
        let target = "/oauth/callback?code=c&state=s";
        assert!(ask("GET", "127.0.0.1:4000", target).is_some());
        assert!(ask("POST", "127.0.0.1:4000", target).is_none());
        assert!(ask("GET", "evil.example:4000", target).is_none());
        assert!(ask("GET", "127.0.0.1:4000", "/other?code=c&state=s").is_none());
    }
}
