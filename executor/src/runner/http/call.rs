//! Sends a request: resolves secrets and tokens, follows redirects, handles cancellation.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, multipart};
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;
use url::Url;

use super::oauth::AccessToken;
use super::placement::{PlacedPairs, PlacedValue, encode, encode_redacted, encoded, with_query};
use super::request::{Draft, DraftBody, DraftPart};
use super::{
    CancellationToken, Code, Failure, Http, Invocation, Method, RunnerContext, RunnerOutput, pages, response, upload,
};
use crate::config::secret::{Secret, SecretName};
use crate::net::clients::{MAX_REDIRECTS, next_hop, send_failure, too_many_redirects};
use crate::task::failure::SideEffect;

/// One attempt in progress.
pub(super) struct HttpCall<'a> {
    pub(super) http: &'a Http,
    pub(super) invocation: &'a Invocation,
    pub(super) context: &'a RunnerContext,
    pub(super) draft: &'a Draft,
    cancel: &'a CancellationToken,
    /// Whether a request may have left this machine.
    sent: AtomicBool,
}

/// Where to fetch a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageAddress {
    First,
    /// The declared URL with this query parameter.
    Token(String, String),
    /// The URL in the `Link` header of the previous page.
    Link(Url),
}

/// A response whose body has not been read yet.
pub(super) struct HttpResponse {
    pub(super) response: Response,
    /// The URL after redirects.
    pub(super) url: Url,
}

impl<'a> HttpCall<'a> {
    pub(super) fn new(
        http: &'a Http,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
        draft: &'a Draft,
    ) -> Self {
        Self { http, invocation, context, draft, cancel, sent: AtomicBool::new(false) }
    }

    pub(super) async fn perform(&self) -> Result<RunnerOutput, Failure> {
        if let Some(pagination) = &self.http.pagination {
            return pages::fetch_all(self, pagination).await;
        }
        let answer = self.send(&PageAddress::First).await?;
        self.until_cancelled(response::output(self, answer)).await
    }

    /// Returns the method and URL for messages, like `GET https://…`, without secrets.
    pub(super) fn summary(&self) -> String {
        format!("{} {}", self.draft.method.to_reqwest(), self.draft.redacted_url())
    }

    /// Sends the request. If the server refuses a renewable access token, sends it once more with a new token.
    pub(super) async fn send(&self, page: &PageAddress) -> Result<HttpResponse, Failure> {
        let mut refused: Option<Secret> = None;
        loop {
            let access = match self.token() {
                Some(name) => {
                    let tokens = &self.context.tokens;
                    Some(tokens.access(name, self.context, refused.as_ref(), self.cancel).await?)
                }
                None => None,
            };
            let answer = self.until_cancelled(self.exchange(page, access.as_ref())).await?;
            match access {
                Some(access)
                    if answer.response.status() == StatusCode::UNAUTHORIZED
                        && access.renewable
                        && refused.is_none() =>
                {
                    refused = Some(access.value);
                }
                _ => return Ok(answer),
            }
        }
    }

    /// Runs `work`, and drops it at once on cancellation.
    pub(super) async fn until_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(self.cancelled()),
            done = work => done,
        }
    }

    fn cancelled(&self) -> Failure {
        if self.sent.load(Ordering::Relaxed) {
            let message = format!("cancelled while {} was in progress", self.summary());
            Failure::new(Code::Cancelled, message).effect_possible()
        } else {
            Failure::new(Code::Cancelled, "cancelled before anything was sent")
        }
    }

    fn token(&self) -> Option<&SecretName> {
        self.draft.headers.iter().find_map(|(_, value)| match value {
            PlacedValue::Token(name) => Some(name),
            _ => None,
        })
    }

    async fn exchange(&self, page: &PageAddress, access: Option<&AccessToken>) -> Result<HttpResponse, Failure> {
        let mut headers = self.headers(access).await?;
        let mut url = self.url(page, access).await?;
        let (mut guarded, mut is_foreign) = (self.draft.guarded, false);
        for _ in 0..=MAX_REDIRECTS {
            let client = self.context.http.client_for(&url, guarded).await?;
            let mut request = client.request(self.draft.method.to_reqwest(), url.clone()).headers(headers.clone());
            if let Some(body) = &self.draft.body {
                request = self.with_body(request, body, access).await?;
            }
            self.sent.store(true, Ordering::Relaxed);
            let response = request.send().await.map_err(|error| self.send_failure(&error, &url))?;
            let next = match self.draft.method {
                Method::Get | Method::Head => next_hop(&url, response.status(), response.headers())?,
                _ => None,
            };
            let Some(next) = next else { return Ok(HttpResponse { response, url }) };
            if !is_foreign && !may_keep_credentials(&url, &next) {
                // Another origin than the declared one: it gets no secrets, and is trusted no more than a URL
                // from the input.
                (is_foreign, guarded) = (true, true);
                for (name, _) in self.draft.headers.iter().filter(|(_, value)| value.is_secret()) {
                    headers.remove(name);
                }
            }
            url = next;
        }
        Err(too_many_redirects(&url))
    }

    fn send_failure(&self, error: &reqwest::Error, url: &Url) -> Failure {
        let failure = send_failure(error, url);
        if failure.side_effect == SideEffect::None {
            self.sent.store(false, Ordering::Relaxed);
        }
        failure
    }

    async fn headers(&self, access: Option<&AccessToken>) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        let is_multipart = matches!(self.draft.body, Some(DraftBody::Multipart(_)));
        for (name, placed) in &self.draft.headers {
            if is_multipart && *name == CONTENT_TYPE {
                // reqwest sets this header, with the boundary.
                continue;
            }
            let text = self.reveal(placed, access).await?;
            headers.insert(name.clone(), header_value(name, &text, placed)?);
        }
        Ok(headers)
    }

    async fn url(&self, page: &PageAddress, access: Option<&AccessToken>) -> Result<Url, Failure> {
        let mut query = self.revealed(&self.draft.query, access).await?;
        let address = match page {
            PageAddress::First => self.draft.address.clone(),
            PageAddress::Token(name, token) => {
                query.retain(|(known, _)| known != name);
                query.push((name.clone(), PlacedValue::Text(token.clone())));
                self.draft.address.clone()
            }
            PageAddress::Link(url) => {
                let mut index = 0;
                query.retain(|(name, _)| {
                    let was_secret = self.draft.query[index].1.is_secret();
                    index += 1;
                    was_secret && url.query_pairs().all(|(known, _)| known != name.as_str())
                });
                url.clone()
            }
        };
        Ok(with_query(address, &query, encode_redacted))
    }

    /// Replaces the secrets in `pairs` with their values.
    async fn revealed(&self, pairs: &PlacedPairs, access: Option<&AccessToken>) -> Result<PlacedPairs, Failure> {
        let mut revealed = PlacedPairs::with_capacity(pairs.len());
        for (name, placed) in pairs {
            revealed.push((name.clone(), PlacedValue::Text(self.reveal(placed, access).await?)));
        }
        Ok(revealed)
    }

    async fn reveal(&self, placed: &PlacedValue, access: Option<&AccessToken>) -> Result<String, Failure> {
        let secrets = &self.context.secrets;
        Ok(match placed {
            PlacedValue::Text(text) => text.clone(),
            PlacedValue::Secret { prefix, name } => {
                let secret = secrets.get(name).await?;
                // A query contains the encoded value, and a server may echo that.
                secrets.watch(name.as_str(), &encode(secret.expose()));
                format!("{prefix}{}", secret.expose())
            }
            PlacedValue::Token(_) => format!("Bearer {}", access.map_or("", |access| access.value.expose())),
            PlacedValue::Basic { username, password } => {
                let username = Box::pin(self.reveal(username, access)).await?;
                let pair = format!("{username}:{}", secrets.get(password).await?.expose());
                let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
                secrets.watch(password.as_str(), &encoded);
                format!("Basic {encoded}")
            }
        })
    }

    async fn with_body(
        &self,
        request: RequestBuilder,
        body: &DraftBody,
        access: Option<&AccessToken>,
    ) -> Result<RequestBuilder, Failure> {
        Ok(match body {
            DraftBody::Text(text) => request.body(text.clone()),
            DraftBody::Json(value) => request.body(value.to_string()),
            DraftBody::Form(pairs) => {
                let revealed = self.revealed(pairs, access).await?;
                request.body(encoded(&revealed, encode_redacted))
            }
            DraftBody::File { path } => {
                let (file, length) = self.open(path).await?;
                let body = reqwest::Body::wrap_stream(ReaderStream::new(file.take(length)));
                request.header(CONTENT_LENGTH, length).body(body)
            }
            DraftBody::Multipart(parts) => {
                let mut form = multipart::Form::new();
                for (name, part) in parts {
                    let part = match part {
                        DraftPart::Text(text) => multipart::Part::text(text.clone()),
                        DraftPart::File { path, content_type, file_name } => {
                            let (file, length) = self.open(path).await?;
                            let body = reqwest::Body::wrap_stream(ReaderStream::new(file.take(length)));
                            let part = multipart::Part::stream_with_length(body, length).file_name(file_name.clone());
                            part.mime_str(content_type).map_err(|_| {
                                Failure::new(Code::Rejected, format!("`{content_type}` is not a valid content type"))
                            })?
                        }
                    };
                    form = form.part(name.clone(), part);
                }
                request.multipart(form)
            }
        })
    }

    async fn open(&self, path: &std::path::Path) -> Result<(tokio::fs::File, u64), Failure> {
        upload::open(path, self.invocation, &self.context.config).await
    }
}

fn header_value(name: &HeaderName, text: &str, placed: &PlacedValue) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| match placed {
        PlacedValue::Text(_) => Failure::new(Code::Rejected, format!("the value of the header `{name}` is not valid")),
        secret => {
            let reason = format!("the value of `{}` is not valid in a header", secret.redacted());
            Failure::new(Code::SecretMissing, reason).hint("a human must set the secret again, as one line")
        }
    })?;
    value.set_sensitive(placed.is_secret());
    Ok(value)
}

/// Whether credentials for `from` may be sent to `to`: the same origin, or the same host upgraded to https.
fn may_keep_credentials(from: &Url, to: &Url) -> bool {
    let upgraded = from.scheme() == "http" && to.scheme() == "https" && from.port().is_none() && to.port().is_none();
    from.host() == to.host() && (upgraded || from.origin() == to.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_kept_only_for_the_same_origin_or_its_https_upgrade() {
        let keeps =
            |from: &str, to: &str| may_keep_credentials(&from.parse().expect("a URL"), &to.parse().expect("a URL"));
        assert!(keeps("https://a.example/x", "https://a.example/y"));
        assert!(keeps("http://a.example/x", "https://a.example/x"));
        assert!(!keeps("https://a.example/x", "http://a.example/x"));
        assert!(!keeps("https://a.example/x", "https://b.example/x"));
        assert!(!keeps("https://a.example/x", "https://a.example:8443/x"));
        assert!(!keeps("http://a.example:8080/x", "https://a.example/x"));
    }
}
