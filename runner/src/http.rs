//! The http runner: sends one declared request and returns the response.
//!
//! This file has the order of the steps; each step is a submodule: [`request`] builds the request (with [`address`] and
//! [`placement`]), [`call`] sends it (with [`assembly`]), [`response`] reads the response, [`api_error`] interprets an
//! error response, [`pages`] joins pages, [`job`] waits for a job, [`expression`] evaluates jq over a response,
//! [`structured`] reads XML and NDJSON, and [`oauth`] keeps tokens. Never retries an attempt: it reports what happened.

use definition::run::http::{Http, Method};
use futures_util::future::BoxFuture;
use ground::config::secret::SecretName;
use ground::task::fingerprint::Fingerprint;
use url::Url;

use super::{CancellationToken, Code, Config, Failure, Invocation, Retry, Runner, RunnerContext, RunnerOutput, Value};
use crate::input_file;

mod address;
mod api_error;
mod assembly;
mod call;
mod expression;
mod facts;
mod file_name;
mod job;
mod oauth;
mod pages;
mod placement;
mod request;
mod response;
mod structured;

pub use facts::ResponseFacts;
pub use oauth::OAuthTokens;
use oauth::TokenSource;

impl Runner for Http {
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        Ok(request::Draft::of(self, invocation, config)?.to_plan())
    }

    /// Fails if the request cannot be built, goes to a private address, or uploads a file that cannot be read.
    fn check_before(&self, invocation: &Invocation, context: &RunnerContext) -> Result<(), Failure> {
        let draft = request::Draft::of(self, invocation, &context.config)?;
        if draft.guarded {
            context.http.check_literal(&draft.address)?;
        }
        self.files(invocation, context).map(drop)
    }

    /// The secrets that its request sends, and those that its token endpoint gets if the definition names that.
    fn sent_secrets(&self, invocation: &Invocation, config: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        let draft = request::Draft::of(self, invocation, config)?;
        let mut sent: Vec<_> = draft.sent_secrets().map(|name| (name.clone(), draft.secrets_for.clone())).collect();
        if let Some(token_url) = draft.token_source().and_then(TokenSource::named_url) {
            let source = draft.token_source().map(TokenSource::secrets).unwrap_or_default();
            sent.extend(source.into_iter().map(|name| (name, token_url.clone())));
        }
        Ok(sent)
    }

    /// The files that are uploaded.
    fn files(&self, invocation: &Invocation, context: &RunnerContext) -> Result<Vec<Fingerprint>, Failure> {
        let draft = request::Draft::of(self, invocation, &context.config)?;
        let files = draft.body.iter().flat_map(request::DraftBody::files);
        files.map(|path| input_file::fingerprint(&path.to_string_lossy(), invocation, context)).collect()
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(perform(self, invocation, context, cancel))
    }
}

async fn perform(
    http: &Http,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let outcome = match request::Draft::of(http, invocation, &context.config) {
        Ok(draft) => {
            let call = call::HttpCall::new(http, invocation, context, cancel, &draft);
            call.settled(Box::pin(fetch(&call)).await)
        }
        Err(failure) => Err(failure),
    };
    outcome.map_err(|mut failure| {
        context.secrets.redact_error(&mut failure.error);
        failure
    })
}

async fn fetch(call: &call::HttpCall<'_>) -> Result<RunnerOutput, Failure> {
    if let Some(pagination) = &call.http.pagination {
        return pages::fetch_all(call, pagination).await;
    }
    if let (Some(poll), Some(job)) = (&call.http.poll, &call.invocation.job) {
        return job::resume(call, poll, job).await;
    }
    let answer = call.send(&call::RequestTarget::Declared).await?;
    match &call.http.poll {
        Some(poll) => job::follow(call, poll, answer).await,
        None => call.until_cancelled(response::output(call, answer)).await,
    }
}

fn method_of(method: Method) -> reqwest::Method {
    match method {
        Method::Get => reqwest::Method::GET,
        Method::Head => reqwest::Method::HEAD,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
        Method::Options => reqwest::Method::OPTIONS,
    }
}
