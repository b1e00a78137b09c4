//! OAuth 2.0 access tokens (RFC 6749): obtained, cached in memory, and renewed once for all concurrent callers.
//!
//! What tokens are obtained with is a [`TokenSource`]. With a refresh token it uses the refresh token grant, without one
//! the client credentials grant; [`request`] asks the server. Every value from a server is passed to
//! [`Secrets::watch`] before it is used, so that it is always redacted.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ground::config::secret::{Secret, SecretName, Secrets};
use ground::task::failure::SideEffect;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{Code, Failure, Retry, RunnerContext};

mod grant;
mod request;

pub(super) use grant::TokenSource;
use grant::{AuthStyle, OAuthGrant};

/// A token is renewed when less than this, or than a tenth of its life if that is more, remains: so it outlives the
/// request that carries it.
const MIN_RENEWAL_MARGIN: SignedDuration = SignedDuration::from_secs(30);

/// How long a renewal may take. Cancelling the task that started it does not cancel it: the server may already have
/// replaced the refresh token.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(15);

/// The access tokens of one executor, by what they are obtained with.
#[derive(Default)]
pub struct OAuthTokens {
    slots: Mutex<HashMap<TokenSource, Arc<TokenSlot>>>,
}

/// The place of one token. The holder of the lock may request it.
#[derive(Default)]
struct TokenSlot {
    cached: tokio::sync::Mutex<Option<CachedGrant>>,
    /// How many requests have ended. A caller that waited while one did gets its outcome.
    ended: AtomicU64,
}

/// What is cached for one source.
struct CachedGrant {
    /// What this was derived from; if the secret changes, this is discarded.
    origin: Secret,
    /// What to renew with; newer than `origin` if the server replaced the refresh token.
    grant: Option<OAuthGrant>,
    token: Option<CachedToken>,
    /// How the last request failed, if it did.
    failure: Option<Failure>,
    /// Where the server took the client's credentials from.
    style: Option<AuthStyle>,
}

#[derive(Clone)]
struct CachedToken {
    value: Secret,
    /// `None`: when the server refuses it.
    renew_at: Option<Timestamp>,
}

/// An access token to send.
pub(super) struct AccessToken {
    pub(super) value: Secret,
    /// Whether a new token can be requested if the server refuses this one.
    pub(super) renewable: bool,
}

impl fmt::Debug for OAuthTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OAuthTokens(…)")
    }
}

impl OAuthTokens {
    /// Returns an access token of `source` that is not `refused`.
    ///
    /// If several callers need a new token, one requests it and all of them get it, or its failure. `cancel` ends the
    /// wait for another caller's renewal; the caller's own renewal is not cancelled, but has a timeout.
    pub(super) async fn access(
        &self,
        source: &TokenSource,
        context: &RunnerContext,
        refused: Option<&Secret>,
        cancel: &CancellationToken,
    ) -> Result<AccessToken, Failure> {
        let slot =
            Arc::clone(self.slots.lock().unwrap_or_else(PoisonError::into_inner).entry(source.clone()).or_default());
        let ended = slot.ended.load(Ordering::Acquire);
        let ready = async {
            // Read the secret before taking the lock: it may come from a slow program, and callers must not queue
            // for that.
            let mut origin = source.read(context).await?;
            let cached = slot.cached.lock().await;
            if cached.as_ref().is_some_and(|cached| cached.origin != origin) {
                // A renewal may have stored a new refresh token meanwhile.
                origin = source.read(context).await?;
            }
            Ok::<_, Failure>((cached, origin))
        };
        let (mut cached, origin) = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Failure::new(Code::Cancelled, "cancelled before anything was sent")),
            ready = ready => ready?,
        };
        // Not of a request with another secret.
        let has_waited = slot.ended.load(Ordering::Acquire) != ended
            && cached.as_ref().is_some_and(|cached| cached.origin == origin);
        if cached.as_ref().is_none_or(|cached| cached.origin != origin) {
            *cached = Some(CachedGrant::of(source.secret(), origin, &context.secrets)?);
        }
        let Some(cached) = cached.as_mut() else {
            return Err(Failure::new(Code::Internal, "a cached token is missing"));
        };
        if let Some(outcome) = cached.without_request(has_waited, refused) {
            return outcome;
        }
        match cached.grant.clone().filter(OAuthGrant::is_renewable) {
            Some(grant) => {
                let renewed = cached.renew(source, grant, context).await;
                cached.failure = renewed.as_ref().err().cloned();
                slot.ended.fetch_add(1, Ordering::Release);
                renewed
            }
            None => Err(needs_reauthorization(source.secret(), "the access token is not valid and cannot be renewed")),
        }
    }
}

impl CachedToken {
    /// A token that its server gave now, for `lifetime` seconds.
    fn issued(value: Secret, lifetime: Option<i64>) -> Self {
        let remaining = lifetime.map(|seconds| {
            let whole = SignedDuration::from_secs(seconds.max(0));
            (whole - MIN_RENEWAL_MARGIN.max(whole / 10)).max(SignedDuration::ZERO)
        });
        Self { value, renew_at: remaining.and_then(|remaining| Timestamp::now().checked_add(remaining).ok()) }
    }

    fn is_fresh(&self) -> bool {
        self.renew_at.is_none_or(|renew_at| renew_at > Timestamp::now())
    }
}

impl CachedGrant {
    fn of(name: &SecretName, origin: Secret, secrets: &Secrets) -> Result<Self, Failure> {
        let text = origin.expose().trim();
        let (token, grant) = if text.starts_with('{') {
            let grant = OAuthGrant::parse(name, text)?;
            for value in [&grant.client_secret, &grant.refresh_token, &grant.access_token].into_iter().flatten() {
                secrets.watch(name.as_str(), value);
            }
            let expires_at = grant.expires_at.as_ref().and_then(timestamp);
            let renew_at = expires_at.and_then(|expires_at| expires_at.checked_sub(MIN_RENEWAL_MARGIN).ok());
            let token = grant.access_token.clone().map(|value| CachedToken { value: Secret::new(value), renew_at });
            (token, Some(grant))
        } else {
            (Some(CachedToken { value: Secret::new(text.to_owned()), renew_at: None }), None)
        };
        Ok(Self { origin, grant, token, failure: None, style: None })
    }

    fn is_renewable(&self) -> bool {
        self.grant.as_ref().is_some_and(OAuthGrant::is_renewable)
    }

    /// What a caller gets that need not request a token: a fresh one, or the outcome of the request for which it
    /// `has_waited`, however short the life of that token is.
    fn without_request(&self, has_waited: bool, refused: Option<&Secret>) -> Option<Result<AccessToken, Failure>> {
        let is_news = has_waited && self.failure.is_none();
        let usable = self.token.as_ref().filter(|token| (is_news || token.is_fresh()) && refused != Some(&token.value));
        match usable {
            Some(token) => Some(Ok(AccessToken { value: token.value.clone(), renewable: self.is_renewable() })),
            None => self.failure.clone().filter(|_| has_waited).map(Err),
        }
    }

    async fn renew(
        &mut self,
        source: &TokenSource,
        grant: OAuthGrant,
        context: &RunnerContext,
    ) -> Result<AccessToken, Failure> {
        let name = source.secret();
        let requested = tokio::time::timeout(RENEWAL_TIMEOUT, request::token(source, &grant, self.style, context));
        let (answer, style) = requested.await.unwrap_or_else(|_| {
            let message = format!("the token server of `{name}` did not answer within {RENEWAL_TIMEOUT:?}");
            Err(Failure::new(Code::Unreachable, message).retry(Retry::Later))
        })?;
        self.style = Some(style);
        context.secrets.watch(name.as_str(), &answer.access_token);
        let lifetime = answer.expires_in.as_ref().and_then(seconds);
        let token = CachedToken::issued(Secret::new(answer.access_token), lifetime);
        self.token = Some(token.clone());
        let rotated = answer.refresh_token.filter(|rotated| Some(rotated) != grant.refresh_token.as_ref());
        if let (Some(rotated), TokenSource::Secret(name)) = (rotated, source) {
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

fn timestamp(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(_) => Timestamp::from_second(seconds(value)?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Parses a number of seconds, which some servers write as a string. A fraction does not matter.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a number that is too large becomes the largest")]
    let whole = |seconds: f64| seconds as i64;
    let text = || value.as_str()?.trim().parse().ok().map(whole);
    value.as_i64().or_else(|| value.as_f64().map(whole)).or_else(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_when_a_tenth_of_its_life_or_half_a_minute_remains() {
        for (lifetime, kept) in [(3600, 3240), (400, 360), (300, 270), (200, 170), (31, 1), (30, 0), (5, 0), (-5, 0)] {
            let before = Timestamp::now();
            let renew_at = CachedToken::issued(Secret::new(String::new()), Some(lifetime)).renew_at.expect("it ends");
            let range = before + SignedDuration::from_secs(kept)..=Timestamp::now() + SignedDuration::from_secs(kept);
            assert!(range.contains(&renew_at), "{lifetime}");
        }
        let endless = [None, Some(i64::MAX)].map(|lifetime| CachedToken::issued(Secret::new(String::new()), lifetime));
        assert!(endless.iter().all(CachedToken::is_fresh));
    }
}
