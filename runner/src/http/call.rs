//! Sends a request: resolves secrets and tokens, follows redirects, handles cancellation.

use std::sync::atomic::{AtomicBool, Ordering};

use definition::run::http::{Http, Method, Parameter};
use ground::config::secret::Secret;
use ground::task::failure::SideEffect;
use net::clients::{MAX_REDIRECTS, next_hop, send_failure, too_many_redirects};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use url::Url;

use super::oauth::AccessToken;
use super::request::Draft;
use super::{CancellationToken, Code, Failure, Invocation, RunnerContext, RunnerOutput, method_of};
use crate::ResponseFacts;

/// One attempt in progress.
pub(super) struct HttpCall<'a> {
    pub(super) http: &'a Http,
    pub(super) invocation: &'a Invocation,
    pub(super) context: &'a RunnerContext,
    pub(super) draft: &'a Draft,
    cancel: &'a CancellationToken,
    /// Whether a request may have left this machine.
    sent: AtomicBool,
    /// Whether the server has accepted a request that changes something.
    accepted: AtomicBool,
}

/// What is requested: the declared request, or one that follows from a response.
#[derive(Debug, PartialEq)]
pub(super) enum RequestTarget {
    Declared,
    /// The declared request with this value in the parameter that selects a page.
    Page(Parameter, Value),
    /// The declared request at the URL of the next page, which a response named.
    Link(Url),
    /// A GET of the URL of a job or of its result, which a response named.
    Job(Url),
}

/// A response whose body has not been read yet.
pub(super) struct HttpResponse {
    pub(super) response: Response,
    /// The method and URL after redirects.
    pub(super) method: Method,
    pub(super) url: Url,
    /// Whether it is that of a job or its result, and not of the declared request.
    pub(super) is_of_job: bool,
}

impl HttpResponse {
    /// Returns what the response says beside its body.
    pub(super) fn facts(&self) -> ResponseFacts {
        ResponseFacts::of(self.response.status(), self.response.headers())
    }
}

impl<'a> HttpCall<'a> {
    pub(super) fn new(
        http: &'a Http,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
        draft: &'a Draft,
    ) -> Self {
        Self {
            http,
            invocation,
            context,
            draft,
            cancel,
            sent: AtomicBool::new(false),
            accepted: AtomicBool::new(false),
        }
    }

    /// Returns `outcome`, which later requests led to. They only read, so their failures do not say that a request that
    /// was accepted changed nothing.
    pub(super) fn settled(&self, outcome: Result<RunnerOutput, Failure>) -> Result<RunnerOutput, Failure> {
        let is_accepted = self.accepted.load(Ordering::Relaxed);
        outcome.map_err(|failure| {
            let is_silent = is_accepted && failure.side_effect == SideEffect::None;
            if is_silent { failure.effect_possible() } else { failure }
        })
    }

    /// Notes that the server has accepted the declared request, and that all further ones only read.
    pub(super) fn accepted(&self) {
        self.accepted.store(!self.draft.method.is_safe(), Ordering::Relaxed);
    }

    /// Returns the method and URL for messages, like `GET https://…`, without secrets.
    pub(super) fn summary(&self) -> String {
        format!("{} {}", method_of(self.draft.method), self.draft.redacted_url())
    }

    /// What `answer` answered, likewise.
    pub(super) fn summary_of(&self, answer: &HttpResponse) -> String {
        if !answer.is_of_job {
            return self.summary();
        }
        format!("{} {}", method_of(answer.method), self.context.secrets.redact(answer.url.as_str()))
    }

    /// Sends the request. If the server refuses a renewable access token, sends it once more with a new token.
    pub(super) async fn send(&self, target: &RequestTarget) -> Result<HttpResponse, Failure> {
        let mut refused: Option<Secret> = None;
        loop {
            let access = match self.draft.token_source() {
                Some(source) => {
                    self.context.secrets.may_go(source.secret(), &self.draft.secrets_for)?;
                    let tokens = &self.context.tokens;
                    Some(tokens.access(source, self.context, refused.as_ref(), self.cancel).await?)
                }
                None => None,
            };
            let answer = self.until_cancelled(self.exchange(target, access.as_ref())).await?;
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

    async fn exchange(&self, target: &RequestTarget, access: Option<&AccessToken>) -> Result<HttpResponse, Failure> {
        let mut headers = self.headers(access).await?;
        let mut url = self.url(target, access).await?;
        let mut method = self.draft.method;
        let mut body = self.body(target)?;
        if let RequestTarget::Job(_) = target {
            (method, body) = (Method::Get, None);
            self.without_body_headers(&mut headers);
        }
        let (mut guarded, mut is_foreign) = (self.draft.guarded, false);
        if let RequestTarget::Job(_) = target
            && !may_keep_credentials(&self.draft.address, &url)
        {
            (guarded, is_foreign) = (true, true);
            self.without_secrets(&mut headers);
        }
        let is_of_job = matches!(target, RequestTarget::Job(_));
        for _ in 0..=MAX_REDIRECTS {
            let client = self.context.http.client_for(&url, guarded).await?;
            let mut request = client.request(method_of(method), url.clone()).headers(headers.clone());
            if let Some(body) = &body {
                request = self.with_body(request, body, access).await?;
            }
            self.sent.store(true, Ordering::Relaxed);
            let response = request.send().await.map_err(|error| self.send_failure(&error, &url))?;
            let next = match (method, response.status()) {
                (Method::Get | Method::Head, _) | (_, StatusCode::SEE_OTHER) => {
                    next_hop(&url, response.status(), response.headers())?
                }
                _ => None,
            };
            let Some(next) = next else { return Ok(HttpResponse { response, method, url, is_of_job }) };
            if !matches!(method, Method::Get | Method::Head) {
                // 303: the request was carried out, and its result is to be read elsewhere (RFC 9110, section 15.4.4).
                self.accepted();
                (method, body) = (Method::Get, None);
                self.without_body_headers(&mut headers);
            }
            for name in self.draft.secrets().filter(|_| !is_foreign && may_keep_credentials(&url, &next)) {
                // An endpoint of the configuration is where the human sends what is for the declared host.
                if self.draft.secrets_for.origin() == self.draft.address.origin() {
                    self.context.secrets.may_go(name, &next)?;
                }
            }
            if !is_foreign && !may_keep_credentials(&url, &next) {
                // Another origin than the declared one: it gets no secrets, and is trusted no more than a URL
                // from the input.
                (is_foreign, guarded) = (true, true);
                self.without_secrets(&mut headers);
            }
            url = next;
        }
        Err(too_many_redirects(&url))
    }

    fn without_secrets(&self, headers: &mut HeaderMap) {
        for (name, _) in self.draft.headers.iter().filter(|(_, value)| value.is_secret()) {
            headers.remove(name);
        }
    }

    /// Removes the headers that belong to the declared body or to its repetition.
    fn without_body_headers(&self, headers: &mut HeaderMap) {
        headers.remove(CONTENT_TYPE);
        if let Some(name) = &self.http.idempotency_header {
            headers.remove(name.as_str());
        }
    }

    fn send_failure(&self, error: &reqwest::Error, url: &Url) -> Failure {
        let failure = send_failure(error, url);
        if failure.side_effect == SideEffect::None && !self.accepted.load(Ordering::Relaxed) {
            self.sent.store(false, Ordering::Relaxed);
        }
        failure
    }
}

/// Whether credentials for `from` may be sent to `to`: the same origin, or the same host upgraded to https.
pub(super) fn may_keep_credentials(from: &Url, to: &Url) -> bool {
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
