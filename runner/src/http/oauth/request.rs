//! One request to a token endpoint, and what its answer means.

use std::time::Duration;

use base64::Engine as _;
use definition::run::http::endpoint;
use ground::config::secret::SecretName;
use net::clients;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::grant::{AuthStyle, OAuthGrant, TokenSource};
use super::{Code, Failure, Retry, RunnerContext, needs_reauthorization, without_side_effect};
use crate::http::api_error;

/// The largest response of a token endpoint; usual ones have a few hundred bytes.
const MAX_RESPONSE_BYTES: u64 = 256 * 1024;

/// The response of a token endpoint.
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: String,
    pub(super) expires_in: Option<Value>,
    pub(super) refresh_token: Option<String>,
}

/// Why a token endpoint gave no token (RFC 6749, section 5.2).
struct Refusal {
    status: u16,
    /// Its code, like `invalid_client`; empty if it has none.
    error: String,
    message: String,
    wait: Option<Duration>,
}

/// Requests a token, and returns it with the way of `known` or of those of the standard that the server understood. Its
/// failures never mean that the subtool's own request was sent.
pub(super) async fn token(
    source: &TokenSource,
    grant: &OAuthGrant,
    known: Option<AuthStyle>,
    context: &RunnerContext,
) -> Result<(TokenResponse, AuthStyle), Failure> {
    let name = source.secret();
    let url = checked_url(source, grant, context)?;
    // RFC 6749, section 2.3.1: every server that gave a secret understands the header, and some the body.
    let styles = match (grant.auth_style.or(known), &grant.client_secret) {
        (Some(style), _) => vec![style],
        (None, Some(_)) => vec![AuthStyle::Basic, AuthStyle::Body],
        (None, None) => vec![AuthStyle::Body],
    };
    let mut refused: Option<Refusal> = None;
    for style in styles {
        match ask(name, grant, style, &url, context).await? {
            Ok(response) => return Ok((response, style)),
            // The first one that recognized no client says more than one that found none.
            Err(refusal) if refusal.is_of_client() => match &refused {
                Some(first) if first.is_unknown_client() || !refusal.is_unknown_client() => {}
                _ => refused = Some(refusal),
            },
            Err(refusal) => return Err(refusal.into_failure(name)),
        }
    }
    let refused = refused.map(|refusal| refusal.into_failure(name));
    Err(refused.unwrap_or_else(|| Failure::new(Code::Internal, "no token was requested")))
}

/// The URL of the token endpoint, if the secrets may go there.
fn checked_url(source: &TokenSource, grant: &OAuthGrant, context: &RunnerContext) -> Result<Url, Failure> {
    let name = source.secret();
    let parse = |text: &str| {
        let url = Url::parse(text).map_err(|error| error.to_string());
        url.and_then(|url| {
            let is_web =
                matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
            if is_web { Ok(url) } else { Err("not http or https, or with a user or password".to_owned()) }
        })
        .map_err(|reason| {
            Failure::new(Code::BadConfig, format!("the token endpoint of `{name}` is not a valid URL: {reason}"))
        })
    };
    let declared = grant.token_url.as_deref().unwrap_or_default();
    let (named, url) = (parse(declared)?, parse(&endpoint(declared, &context.config.http.endpoints))?);
    for name in source.secrets() {
        // As everywhere, an endpoint of the configuration gets what is for the host that was named.
        context.secrets.may_go(&name, &named)?;
        context.secrets.check_plain(&name, &url)?;
    }
    Ok(url)
}

/// Sends one request. A redirect is a refusal: it is not followed anywhere.
async fn ask(
    name: &SecretName,
    grant: &OAuthGrant,
    style: AuthStyle,
    url: &Url,
    context: &RunnerContext,
) -> Result<Result<TokenResponse, Refusal>, Failure> {
    let client_id = grant.client_id.as_deref().unwrap_or_default();
    let mut form = match &grant.refresh_token {
        Some(refresh_token) => vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())],
        None => vec![("grant_type", "client_credentials")],
    };
    form.extend(grant.scope.as_deref().map(|scope| ("scope", scope)));
    form.extend(grant.audience.as_deref().map(|audience| ("audience", audience)));
    let mut request = context.http.client_for(url, false).await?.post(url.clone()).header("accept", "application/json");
    match style {
        AuthStyle::Basic => {
            let secret = grant.client_secret.as_deref().unwrap_or_default();
            request = request.header(AUTHORIZATION, basic(name, client_id, secret, context));
        }
        AuthStyle::Body => {
            form.push(("client_id", client_id));
            form.extend(grant.client_secret.as_deref().map(|secret| ("client_secret", secret)));
        }
    }
    let sent = request.form(&form).send().await;
    let response = sent.map_err(|error| without_side_effect(clients::send_failure(&error, url)))?;
    let status = response.status();
    let wait = api_error::retry_after(response.headers());
    let body = clients::bytes(response, MAX_RESPONSE_BYTES, url).await.map_err(without_side_effect)?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() || answer.get("error").is_some() {
        return Ok(Err(Refusal::of(status.as_u16(), wait, &answer)));
    }
    let granted = serde_json::from_value::<TokenResponse>(answer).ok().filter(|it| !it.access_token.is_empty());
    granted.map(Ok).ok_or_else(|| {
        Failure::new(Code::BadResponse, format!("the token server of `{name}` returned no access token"))
    })
}

/// The header with the client's credentials, each encoded as in a form (RFC 6749, section 2.3.1).
fn basic(name: &SecretName, client_id: &str, client_secret: &str, context: &RunnerContext) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let secret = encoded(client_secret);
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{}:{secret}", encoded(client_id)));
    // A server may repeat them.
    context.secrets.watch(name.as_str(), &secret);
    context.secrets.watch(name.as_str(), &pair);
    let mut value = HeaderValue::from_str(&format!("Basic {pair}")).expect("base64 is valid in a header");
    value.set_sensitive(true);
    value
}

impl Refusal {
    fn of(status: u16, wait: Option<Duration>, answer: &Value) -> Self {
        let message = match status {
            300..400 => format!("HTTP {status}, a redirect, which is not followed with credentials"),
            _ => api_error::message(answer, "").unwrap_or_else(|| format!("HTTP {status}")),
        };
        let error = answer.get("error").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { status, error, message, wait }
    }

    /// Whether the server may look elsewhere for the credentials of the client. Some then say that the request lacks
    /// them.
    fn is_of_client(&self) -> bool {
        self.is_unknown_client() || self.error == "invalid_request"
    }

    fn is_unknown_client(&self) -> bool {
        self.status == 401 || self.error == "invalid_client"
    }

    fn into_failure(self, name: &SecretName) -> Failure {
        let Self { status, error, message, wait } = self;
        // These persist until a human changes something.
        if status == 401 || matches!(error.as_str(), "invalid_grant" | "invalid_client" | "unauthorized_client") {
            return needs_reauthorization(name, &message).detail("error", error).detail("http_status", status);
        }
        let retry = match (status, wait) {
            (429 | 500.., Some(wait)) => Retry::After(wait),
            (408 | 429 | 500.., None) => Retry::Later,
            _ => Retry::Never,
        };
        Failure::new(Code::ApiError, format!("the token server of `{name}` refused: {message}"))
            .detail("http_status", status)
            .retry(retry)
    }
}
