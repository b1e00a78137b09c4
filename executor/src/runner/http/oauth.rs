//! OAuth 2.0 access tokens (RFC 6749): obtained, kept in memory, renewed once for all who wait.
//!
//! The secret holds either a bare access token or a JSON object of the fields of [`OAuthSecret`]. Which of
//! the two grants is used follows from whether it has a refresh token. Nothing here is shown: every
//! value that a server gives is told to [`Secrets::watch`] before it is used.

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

/// A token is renewed this long before it ends, so that it outlives the request that carries it.
const MARGIN: Duration = Duration::from_mins(1);

/// How long a renewal may take. It is not cancelled with the task that began it: the server may have
/// replaced the refresh token already.
const RENEWAL: Duration = Duration::from_secs(15);

/// An answer of a token endpoint has a few hundred bytes.
const ANSWER_BYTES: u64 = 256 * 1024;

/// The tokens of one executor, by secret.
#[derive(Default)]
pub struct OAuthTokens {
    kept: Mutex<HashMap<SecretName, Arc<tokio::sync::Mutex<Option<CachedGrant>>>>>,
}

/// What is known of one secret.
struct CachedGrant {
    /// The secret's value from which this was made: another value makes it void.
    origin: Secret,
    /// What to renew with; newer than `origin` where the server replaced the refresh token.
    grant: Option<OAuthSecret>,
    token: Option<CachedToken>,
}

#[derive(Clone)]
struct CachedToken {
    value: Secret,
    ends: Option<Timestamp>,
}

/// A token to send.
pub(super) struct AccessToken {
    pub(super) value: Secret,
    /// Whether a new one could be had if this one is refused.
    pub(super) renewable: bool,
}

/// The JSON form of an OAuth secret; what else it holds is kept as it is.
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

/// Where the client's credentials stand in a token request.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AuthStyle {
    #[default]
    Body,
    Basic,
}

/// A token endpoint's answer.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
}

impl fmt::Debug for OAuthTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(…)")
    }
}

impl OAuthTokens {
    /// A token for the secret `name`, which is not `refused`.
    ///
    /// Of several callers one asks the server and all get its answer. Waiting for another's renewal
    /// ends with `cancel`; a renewal of one's own is bounded instead.
    pub(super) async fn access(
        &self,
        name: &SecretName,
        context: &RunnerContext,
        refused: Option<&Secret>,
        cancel: &CancellationToken,
    ) -> Result<AccessToken, Failure> {
        let place =
            Arc::clone(self.kept.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default());
        let ready = async {
            // Read before the lock: a secret that a program prints would make a queue of all callers.
            let mut origin = context.secrets.get(name).await?;
            let kept = place.lock().await;
            if kept.as_ref().is_some_and(|kept| kept.origin != origin) {
                // A renewal may have stored a new refresh token meanwhile.
                origin = context.secrets.get(name).await?;
            }
            Ok::<_, Failure>((kept, origin))
        };
        let (mut kept, origin) = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Failure::new(Code::Cancelled, "cancelled before anything was sent")),
            ready = ready => ready?,
        };
        if kept.as_ref().is_none_or(|kept| kept.origin != origin) {
            *kept = Some(CachedGrant::of(name, origin, &context.secrets)?);
        }
        let Some(kept) = kept.as_mut() else {
            return Err(Failure::new(Code::Internal, "a token was kept and is gone"));
        };
        let usable = kept.token.as_ref().filter(|token| token.is_fresh() && refused != Some(&token.value));
        if let Some(token) = usable {
            return Ok(AccessToken { value: token.value.clone(), renewable: kept.is_renewable() });
        }
        match kept.grant.clone().filter(|_| kept.is_renewable()) {
            Some(grant) => kept.renew(name, grant, context).await,
            None => {
                Err(needs_reauthorization(name, "the access token has ended and there is nothing to renew it with"))
            }
        }
    }
}

impl CachedToken {
    fn is_fresh(&self) -> bool {
        self.ends.is_none_or(|ends| ends > soon())
    }
}

impl CachedGrant {
    fn of(name: &SecretName, origin: Secret, secrets: &Secrets) -> Result<Self, Failure> {
        let text = origin.expose().trim();
        if !text.starts_with('{') {
            let token = CachedToken { value: Secret::new(text.to_owned()), ends: None };
            return Ok(Self { token: Some(token), grant: None, origin });
        }
        // The parser's own words would quote the secret.
        let grant: OAuthSecret = serde_json::from_str(text).map_err(|_| {
            Failure::new(Code::SecretMissing, format!("`{name}` is no JSON object of an OAuth client")).hint(
                "it holds a bare access token, or {\"token_url\", \"client_id\", \"client_secret\", \"refresh_token\", \"scope\"}",
            )
        })?;
        for value in [&grant.client_secret, &grant.refresh_token, &grant.access_token].into_iter().flatten() {
            secrets.watch(name.as_str(), value);
        }
        let ends = grant.expires_at.as_ref().and_then(moment);
        let token = grant.access_token.clone().map(|value| CachedToken { value: Secret::new(value), ends });
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
        let asked = tokio::time::timeout(RENEWAL, ask(name, &grant, context)).await;
        let answer = asked.unwrap_or_else(|_| {
            let message = format!("the token server of `{name}` did not answer");
            Err(Failure::new(Code::Unreachable, message).retry(Retry::Later))
        })?;
        context.secrets.watch(name.as_str(), &answer.access_token);
        let lasts = answer.expires_in.as_ref().and_then(seconds);
        let ends =
            lasts.and_then(|seconds| Timestamp::now().checked_add(jiff::SignedDuration::from_secs(seconds)).ok());
        let token = CachedToken { value: Secret::new(answer.access_token), ends };
        self.token = Some(token.clone());
        if let Some(rotated) = answer.refresh_token.filter(|rotated| Some(rotated) != grant.refresh_token.as_ref()) {
            context.secrets.watch(name.as_str(), &rotated);
            self.keep_rotated(name, rotated, &context.secrets).await;
        }
        Ok(AccessToken { value: token.value, renewable: true })
    }

    /// Writes the secret back with its new refresh token. Where the secret comes from elsewhere than
    /// our own store that cannot last beyond this process, and a human should know.
    async fn keep_rotated(&mut self, name: &SecretName, rotated: String, secrets: &Secrets) {
        let mut fields: Map<String, Value> = serde_json::from_str(self.origin.expose()).unwrap_or_default();
        fields.insert("refresh_token".to_owned(), Value::String(rotated.clone()));
        // What the old refresh token had led to.
        fields.remove("access_token");
        fields.remove("expires_at");
        if let Some(grant) = &mut self.grant {
            grant.refresh_token = Some(rotated);
        }
        let text = Value::Object(fields).to_string();
        if let Err(error) = secrets.set(name, &text) {
            tracing::warn!(secret = name.as_str(), %error, "a new refresh token could not be stored");
            return;
        }
        match secrets.get(name).await {
            Ok(stored) if stored.expose() == text => self.origin = stored,
            _ => tracing::warn!(
                secret = name.as_str(),
                "the server replaced the refresh token of a secret that `[secrets]` takes from elsewhere: update it there"
            ),
        }
    }
}

/// One request to the token endpoint. Its failures never mean that the order itself was sent.
async fn ask(name: &SecretName, grant: &OAuthSecret, context: &RunnerContext) -> Result<TokenResponse, Failure> {
    let (Some(token_url), Some(client_id)) = (&grant.token_url, &grant.client_id) else {
        return Err(needs_reauthorization(name, "the secret names no `token_url` and `client_id`"));
    };
    let url = Url::parse(&endpoint(token_url, &context.config.http.endpoints))
        .map_err(|error| Failure::new(Code::BadConfig, format!("the token endpoint of `{name}` is no URL: {error}")))?;
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
    let response = sent.map_err(|error| nothing_ordered(clients::send_failure(&error, &url)))?;
    let status = response.status();
    let wait = api_error::retry_after(response.headers());
    let body = clients::bytes(response, ANSWER_BYTES, &url).await.map_err(nothing_ordered)?;
    if !status.is_success() {
        return Err(refusal(name, status.as_u16(), wait, &body));
    }
    serde_json::from_slice(&body)
        .map_err(|_| Failure::new(Code::BadResponse, format!("the token server of `{name}` gave no access token")))
}

fn refusal(name: &SecretName, status: u16, wait: Option<Duration>, body: &[u8]) -> Failure {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = api_error::message(&answer, "").unwrap_or_else(|| format!("HTTP {status}"));
    let error = answer.get("error").and_then(Value::as_str).unwrap_or_default();
    // RFC 6749, 5.2: these stay as they are until a human changes something.
    if matches!(error, "invalid_grant" | "invalid_client" | "unauthorized_client") {
        return needs_reauthorization(name, &said).detail("error", error).detail("http_status", status);
    }
    let again = match (status, wait) {
        (429 | 500.., Some(wait)) => Retry::After(wait),
        (408 | 429 | 500.., None) => Retry::Later,
        _ => Retry::Never,
    };
    Failure::new(Code::ApiError, format!("the token server of `{name}` refused: {said}"))
        .detail("http_status", status)
        .retry(again)
}

fn needs_reauthorization(name: &SecretName, reason: &str) -> Failure {
    Failure::new(Code::NeedsReauthorization, format!("`{name}` must be authorized again: {reason}")).hint(format!(
        "a human authorizes again and stores what comes of it: agent-magic-tool secret set {}",
        name.as_str()
    ))
}

fn nothing_ordered(mut failure: Failure) -> Failure {
    failure.side_effect = SideEffect::None;
    failure
}

fn soon() -> Timestamp {
    Timestamp::now().checked_add(MARGIN).unwrap_or(Timestamp::MAX)
}

fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(_) => Timestamp::from_second(seconds(value)?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A number, which some servers write as a text.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a fraction of a second does not matter here")]
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64)).or_else(|| value.as_str()?.parse().ok())
}
