//! OAuth 2.0 access tokens (RFC 6749): obtained, cached in memory, and renewed once for all concurrent callers.
//!
//! The secret is either a bare access token or a JSON object with the fields of [`OAuthSecret`]. With a refresh token
//! it uses the refresh token grant, without one the client credentials grant. Every value from a server is passed to
//! [`Secrets::watch`] before it is used, so that it is always redacted.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::address::endpoint;
use super::{Code, Failure, Retry, RunnerContext, api_error};
use crate::config::secret::{Secret, SecretName, Secrets};
use crate::net::clients;
use crate::task::failure::SideEffect;

/// A token is renewed this long before it expires, so that it outlives the request that carries it.
const RENEWAL_MARGIN: Duration = Duration::from_mins(1);

/// How long a renewal may take. Cancelling the task that started it does not cancel it: the server may already have
/// replaced the refresh token.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The largest response of a token endpoint; usual ones have a few hundred bytes.
const MAX_RESPONSE_BYTES: u64 = 256 * 1024;

/// The access tokens of one executor, by secret.
#[derive(Default)]
pub struct OAuthTokens {
    cached: Mutex<HashMap<SecretName, Arc<tokio::sync::Mutex<Option<CachedGrant>>>>>,
}

/// What is cached for one secret.
struct CachedGrant {
    /// The value of the secret that this was derived from; if the secret changes, this is discarded.
    origin: Secret,
    /// What to renew with; newer than `origin` if the server replaced the refresh token.
    grant: Option<OAuthSecret>,
    token: Option<CachedToken>,
}

#[derive(Clone)]
struct CachedToken {
    value: Secret,
    expires_at: Option<Timestamp>,
}

/// An access token to send.
pub(super) struct AccessToken {
    pub(super) value: Secret,
    /// Whether a new token can be requested if the server refuses this one.
    pub(super) renewable: bool,
}

/// The JSON form of an OAuth secret; other fields are preserved.
#[derive(Clone, Deserialize)]
struct OAuthSecret {
    #[serde(alias = "token_uri")]
    token_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
    scope: Option<String>,
    access_token: Option<String>,
    /// Seconds since 1970, or RFC 3339.
    expires_at: Option<Value>,
    #[serde(default)]
    auth_style: AuthStyle,
}

/// Where a token request carries the client's credentials.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AuthStyle {
    #[default]
    Body,
    Basic,
}

/// The response of a token endpoint.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
}

impl fmt::Debug for OAuthTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OAuthTokens(…)")
    }
}

impl OAuthTokens {
    /// Returns an access token for the secret `name` that is not `refused`.
    ///
    /// If several callers need a new token, one requests it and all of them get it. `cancel` ends the wait for another
    /// caller's renewal; the caller's own renewal is not cancelled, but has a timeout.
    pub(super) async fn access(
        &self,
        name: &SecretName,
        context: &RunnerContext,
        refused: Option<&Secret>,
        cancel: &CancellationToken,
    ) -> Result<AccessToken, Failure> {
        let slot =
            Arc::clone(self.cached.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default());
        let ready = async {
            // Read the secret before taking the lock: it may come from a slow program, and callers must not queue
            // for that.
            let mut origin = context.secrets.get(name).await?;
            let cached = slot.lock().await;
            if cached.as_ref().is_some_and(|cached| cached.origin != origin) {
                // A renewal may have stored a new refresh token meanwhile.
                origin = context.secrets.get(name).await?;
            }
            Ok::<_, Failure>((cached, origin))
        };
        let (mut cached, origin) = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Failure::new(Code::Cancelled, "cancelled before anything was sent")),
            ready = ready => ready?,
        };
        if cached.as_ref().is_none_or(|cached| cached.origin != origin) {
            *cached = Some(CachedGrant::of(name, origin, &context.secrets)?);
        }
        let Some(cached) = cached.as_mut() else {
            return Err(Failure::new(Code::Internal, "a cached token is missing"));
        };
        let usable = cached.token.as_ref().filter(|token| token.is_fresh() && refused != Some(&token.value));
        if let Some(token) = usable {
            return Ok(AccessToken { value: token.value.clone(), renewable: cached.is_renewable() });
        }
        match cached.grant.clone().filter(|_| cached.is_renewable()) {
            Some(grant) => cached.renew(name, grant, context).await,
            None => Err(needs_reauthorization(name, "the access token is not valid and cannot be renewed")),
        }
    }
}

impl CachedToken {
    fn is_fresh(&self) -> bool {
        self.expires_at.is_none_or(|expires_at| expires_at > renewal_threshold())
    }
}

impl CachedGrant {
    fn of(name: &SecretName, origin: Secret, secrets: &Secrets) -> Result<Self, Failure> {
        let text = origin.expose().trim();
        if !text.starts_with('{') {
            let token = CachedToken { value: Secret::new(text.to_owned()), expires_at: None };
            return Ok(Self { token: Some(token), grant: None, origin });
        }
        // The parser's message would quote the secret.
        let grant: OAuthSecret = serde_json::from_str(text).map_err(|_| {
            Failure::new(Code::SecretMissing, format!("`{name}` is not a valid OAuth secret")).hint(
                "use a bare access token, or JSON with \"token_url\", \"client_id\", \"client_secret\", \"refresh_token\" and \"scope\"",
            )
        })?;
        for value in [&grant.client_secret, &grant.refresh_token, &grant.access_token].into_iter().flatten() {
            secrets.watch(name.as_str(), value);
        }
        let expires_at = grant.expires_at.as_ref().and_then(timestamp);
        let token = grant.access_token.clone().map(|value| CachedToken { value: Secret::new(value), expires_at });
        Ok(Self { token, grant: Some(grant), origin })
    }

    fn is_renewable(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.token_url.is_some() && grant.client_id.is_some())
    }

    async fn renew(
        &mut self,
        name: &SecretName,
        grant: OAuthSecret,
        context: &RunnerContext,
    ) -> Result<AccessToken, Failure> {
        let requested = tokio::time::timeout(RENEWAL_TIMEOUT, request_token(name, &grant, context)).await;
        let answer = requested.unwrap_or_else(|_| {
            let message = format!("the token server of `{name}` did not answer within {RENEWAL_TIMEOUT:?}");
            Err(Failure::new(Code::Unreachable, message).retry(Retry::Later))
        })?;
        context.secrets.watch(name.as_str(), &answer.access_token);
        let lifetime = answer.expires_in.as_ref().and_then(seconds);
        let expires_at =
            lifetime.and_then(|seconds| Timestamp::now().checked_add(jiff::SignedDuration::from_secs(seconds)).ok());
        let token = CachedToken { value: Secret::new(answer.access_token), expires_at };
        self.token = Some(token.clone());
        if let Some(rotated) = answer.refresh_token.filter(|rotated| Some(rotated) != grant.refresh_token.as_ref()) {
            context.secrets.watch(name.as_str(), &rotated);
            self.store_rotated(name, rotated, &context.secrets).await;
        }
        Ok(AccessToken { value: token.value, renewable: true })
    }

    /// Stores the secret with its new refresh token. If `[secrets]` defines another source for the secret, the new
    /// token is lost when this process ends; a warning tells the human.
    async fn store_rotated(&mut self, name: &SecretName, rotated: String, secrets: &Secrets) {
        let mut fields: Map<String, Value> = serde_json::from_str(self.origin.expose()).unwrap_or_default();
        fields.insert("refresh_token".to_owned(), Value::String(rotated.clone()));
        // These belong to the old refresh token.
        fields.remove("access_token");
        fields.remove("expires_at");
        if let Some(grant) = &mut self.grant {
            grant.refresh_token = Some(rotated);
        }
        let text = Value::Object(fields).to_string();
        if let Err(error) = secrets.set(name, &text) {
            tracing::warn!(secret = name.as_str(), %error, "failed to store a new refresh token");
            return;
        }
        match secrets.get(name).await {
            Ok(stored) if stored.expose() == text => self.origin = stored,
            _ => tracing::warn!(
                secret = name.as_str(),
                "the server replaced the refresh token, but `[secrets]` takes this secret from another source: update it there"
            ),
        }
    }
}

/// Sends one request to the token endpoint. Its failures never mean that the subtool's own request was sent.
async fn request_token(
    name: &SecretName,
    grant: &OAuthSecret,
    context: &RunnerContext,
) -> Result<TokenResponse, Failure> {
    let (Some(token_url), Some(client_id)) = (&grant.token_url, &grant.client_id) else {
        return Err(needs_reauthorization(name, "the secret has no `token_url` or no `client_id`"));
    };
    let url = Url::parse(&endpoint(token_url, &context.config.http.endpoints)).map_err(|error| {
        Failure::new(Code::BadConfig, format!("the token endpoint of `{name}` is not a valid URL: {error}"))
    })?;
    context.secrets.check_plain(name, &url)?;
    let mut form = match &grant.refresh_token {
        Some(refresh_token) => vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)],
        None => vec![("grant_type", "client_credentials")],
    };
    form.extend(grant.scope.as_deref().map(|scope| ("scope", scope)));
    let mut request =
        context.http.client_for(&url, false).await?.post(url.clone()).header("accept", "application/json");
    match (grant.auth_style, &grant.client_secret) {
        (AuthStyle::Basic, secret) => request = request.basic_auth(client_id, secret.as_ref()),
        (AuthStyle::Body, secret) => {
            form.push(("client_id", client_id));
            form.extend(secret.as_deref().map(|secret| ("client_secret", secret)));
        }
    }
    let sent = request.form(&form).send().await;
    let response = sent.map_err(|error| without_side_effect(clients::send_failure(&error, &url)))?;
    let status = response.status();
    let wait = api_error::retry_after(response.headers());
    let body = clients::bytes(response, MAX_RESPONSE_BYTES, &url).await.map_err(without_side_effect)?;
    if !status.is_success() {
        return Err(refusal(name, status.as_u16(), wait, &body));
    }
    serde_json::from_slice(&body)
        .map_err(|_| Failure::new(Code::BadResponse, format!("the token server of `{name}` returned no access token")))
}

fn refusal(name: &SecretName, status: u16, wait: Option<Duration>, body: &[u8]) -> Failure {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = api_error::message(&answer, "").unwrap_or_else(|| format!("HTTP {status}"));
    let error = answer.get("error").and_then(Value::as_str).unwrap_or_default();
    // RFC 6749, section 5.2: these persist until a human changes something.
    if matches!(error, "invalid_grant" | "invalid_client" | "unauthorized_client") {
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

fn needs_reauthorization(name: &SecretName, reason: &str) -> Failure {
    Failure::new(Code::NeedsReauthorization, format!("`{name}` must be authorized again: {reason}")).hint(format!(
        "a human authorizes again and stores the new credentials with: agent-magic-tool secret set {}",
        name.as_str()
    ))
}

fn without_side_effect(mut failure: Failure) -> Failure {
    failure.side_effect = SideEffect::None;
    failure
}

fn renewal_threshold() -> Timestamp {
    Timestamp::now().checked_add(RENEWAL_MARGIN).unwrap_or(Timestamp::MAX)
}

fn timestamp(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(_) => Timestamp::from_second(seconds(value)?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Parses a number of seconds, which some servers write as a string.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of a second does not matter here")]
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64)).or_else(|| value.as_str()?.parse().ok())
}
