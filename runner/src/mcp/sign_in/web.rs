//! The requests of a sign-in: to whom they may go.
//!
//! The addresses come from the MCP server, so they are addresses from outside: https, and nothing private. The MCP
//! server's own host may be asked like the MCP server itself, and one on this machine may name others on this machine.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Response;
use futures_util::FutureExt as _;
use ground::task::failure::Failure;
use net::clients::{self, HttpClients};
use net::guard::is_loopback;
use protocol::code::Code;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest};
use url::Url;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The largest answer; usual ones have a few kilobytes.
const MAX_BYTES: u64 = 1 << 20;

/// Sends the requests of sign-ins to one MCP server. Follows no redirect.
pub(super) struct SignInWeb {
    http: Arc<HttpClients>,
    server: Url,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct WebError(String);

impl SignInWeb {
    pub(super) fn new(http: Arc<HttpClients>, server: Url) -> Self {
        Self { http, server }
    }

    /// Whether `url` is as trustworthy as the MCP server, which a human configured.
    fn is_near(&self, url: &Url) -> bool {
        let is_same_host = url.host_str().is_some() && url.host_str() == self.server.host_str();
        is_same_host || is_loopback(url) && is_loopback(&self.server)
    }

    /// Fails if `url` is neither https nor as near as the MCP server, over http.
    pub(super) fn check_scheme(&self, url: &Url) -> Result<(), Failure> {
        match url.scheme() {
            "https" => Ok(()),
            "http" if self.server.scheme() == "http" && self.is_near(url) => Ok(()),
            _ => {
                let message = format!("the authorization server wants `{url}`, which is not https");
                Err(Failure::new(Code::ForbiddenAddress, message))
            }
        }
    }

    async fn send(&self, request: OAuthHttpRequest) -> Result<Response<Vec<u8>>, OAuthHttpClientError> {
        let request = reqwest::Request::try_from(request.request)?;
        let url = request.url().clone();
        let failed = |failure: Failure| Box::new(WebError(failure.error.message)) as OAuthHttpClientError;
        self.check_scheme(&url).map_err(failed)?;
        let client = self.http.client_for(&url, !self.is_near(&url)).await.map_err(failed)?;
        let asked = async {
            let response = client.execute(request).await.map_err(|error| clients::send_failure(&error, &url))?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok::<_, Failure>((status, headers, clients::bytes(response, MAX_BYTES, &url).await?))
        };
        let Ok(answered) = tokio::time::timeout(TIMEOUT, asked).await else {
            let host = url.host_str().unwrap_or_default();
            return Err(Box::new(WebError(format!("`{host}` did not answer within {TIMEOUT:?}"))));
        };
        let (status, headers, body) = answered.map_err(failed)?;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

impl OAuthHttpClient for SignInWeb {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        self.send(request).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(server: &str) -> SignInWeb {
        SignInWeb::new(Arc::default(), Url::parse(server).expect("a URL"))
    }

    #[test]
    fn only_what_is_as_near_as_the_server_is_asked_without_tls() {
        for (server, url, is_allowed) in [
            ("https://mcp.example.com/mcp", "https://login.example.org/token", true),
            ("https://mcp.example.com/mcp", "http://login.example.org/token", false),
            ("https://mcp.example.com/mcp", "http://mcp.example.com/token", false),
            ("http://mcp.example.com/mcp", "http://mcp.example.com:8080/token", true),
            ("http://mcp.example.com/mcp", "http://127.0.0.1/token", false),
            ("http://127.0.0.1:3000/mcp", "http://localhost:4000/token", true),
            ("http://127.0.0.1:3000/mcp", "http://login.example.org/token", false),
            ("http://127.0.0.1:3000/mcp", "file:///etc/passwd", false),
            ("http://127.0.0.1:3000/mcp", "javascript:alert(1)", false),
        ] {
            let checked = web(server).check_scheme(&Url::parse(url).expect("a URL"));
            assert_eq!(checked.is_ok(), is_allowed, "{server} {url}");
        }
    }

    #[tokio::test]
    async fn metadata_does_not_lead_to_a_private_address() {
        let web = web("https://mcp.example.com/mcp");
        for url in ["https://127.0.0.1/token", "https://10.0.0.9/token", "https://169.254.169.254/latest"] {
            let url = Url::parse(url).expect("a URL");
            assert!(!web.is_near(&url));
            let refused = web.http.client_for(&url, true).await.expect_err("refused");
            assert_eq!(refused.error.code, Code::ForbiddenAddress);
        }
    }
}
