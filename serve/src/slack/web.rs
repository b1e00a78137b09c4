//! Slack's Web API: one call at a time, and what its errors mean.

use std::time::Duration;

use ground::base::backoff::RandomPauses;
use ground::config::secret::{Secret, SecretName};
use protocol::error::innermost_cause;
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::contract::{SlackError, SlackTiming};
use super::envelope::{SlackIdentity, SlackThread};
use super::pace::SlackPace;

pub(crate) const POST: &str = "chat.postMessage";
pub(crate) const UPDATE: &str = "chat.update";
pub(crate) const DELETE: &str = "chat.delete";
const WHISPER: &str = "chat.postEphemeral";

/// Longer than Slack takes for any method that is used.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers are a few kilobytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// How long a method rests after a refusal that names no time.
const DEFAULT_PAUSE: Duration = Duration::from_secs(10);
/// No one would wait longer for an answer; it is asked again then.
const MAX_PAUSE: Duration = Duration::from_mins(10);

/// Errors that mean that Slack does not accept the token.
const TOKEN_ERRORS: [&str; 13] = [
    "invalid_auth",
    "not_authed",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "not_allowed_token_type",
    "missing_scope",
    "no_permission",
    "user_removed_from_team",
    "team_disabled",
    "org_login_required",
    "team_access_not_granted",
    "two_factor_setup_required",
];

/// Errors that are gone after a while.
const TEMPORARY_ERRORS: [&str; 7] = [
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
    "team_added_to_org",
    "external_channel_migrating",
    "message_limit_exceeded",
];

/// Which of the two tokens a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlackToken {
    App,
    Bot,
}

/// Why a call gave no result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It may be repeated after this time.
    RateLimited(Duration),
    /// It may be repeated.
    Temporary(String),
    /// No call with this token can succeed.
    Token(SlackError),
    /// Slack refuses this call.
    Refused(String),
}

/// A client of the Web API.
#[derive(Debug)]
pub(crate) struct SlackWeb {
    http: Client,
    api_url: Url,
    app_token: (SecretName, Secret),
    bot_token: (SecretName, Secret),
    pub(crate) pace: SlackPace,
    timing: SlackTiming,
}

impl SlackWeb {
    pub(crate) fn new(
        api_url: &Url,
        app_token: (SecretName, Secret),
        bot_token: (SecretName, Secret),
        interval: Duration,
        timing: SlackTiming,
    ) -> Result<Self, SlackError> {
        let (http, api_url) = (http_client(api_url)?, api_url.clone());
        Ok(Self { http, api_url, app_token, bot_token, pace: SlackPace::new(interval), timing })
    }

    pub(crate) fn http(&self) -> &Client {
        &self.http
    }

    pub(crate) fn api_url(&self) -> &Url {
        &self.api_url
    }

    pub(crate) fn timing(&self) -> SlackTiming {
        self.timing
    }

    /// Calls a method once.
    pub(crate) async fn call(&self, token: SlackToken, method: &str, body: &Value) -> Result<Value, CallError> {
        let (_, secret) = self.secret(token);
        let url = self.api_url.join(method).map_err(|error| CallError::Refused(error.to_string()))?;
        let request = self.http.post(url).timeout(CALL_TIMEOUT).bearer_auth(secret.expose());
        let request = request.header("content-type", "application/json; charset=utf-8").body(body.to_string());
        let lost = |error: reqwest::Error| CallError::Temporary(innermost_cause(&error));
        let mut response = request.send().await.map_err(lost)?;
        let status = response.status();
        let pause = response.headers().get(RETRY_AFTER).and_then(|pause| pause.to_str().ok()?.trim().parse().ok());
        let pause = pause.map_or(DEFAULT_PAUSE, Duration::from_secs).min(MAX_PAUSE);
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(CallError::RateLimited(pause));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(CallError::Refused(format!("the answer has more than {MAX_ANSWER_BYTES} bytes")));
            }
        }
        let Ok(answer) = serde_json::from_slice::<Value>(&bytes) else {
            return Err(CallError::Temporary(format!("status {status} without JSON")));
        };
        if answer["ok"] == true {
            return Ok(answer);
        }
        let error = answer["error"].as_str().unwrap_or("no reason given").to_owned();
        Err(match error.as_str() {
            "ratelimited" | "rate_limited" | "accesslimited" => CallError::RateLimited(pause),
            known if TOKEN_ERRORS.contains(&known) => CallError::Token(self.token_error(token, known, &answer)),
            known if TEMPORARY_ERRORS.contains(&known) || status.is_server_error() => CallError::Temporary(error),
            _ => CallError::Refused(error),
        })
    }

    /// Calls a method until Slack says yes or no, with pauses in between.
    pub(crate) async fn insist(
        &self,
        token: SlackToken,
        method: &str,
        body: &Value,
        ended: &CancellationToken,
    ) -> Result<Value, CallError> {
        let mut pauses = RandomPauses::new(self.timing.backoff);
        loop {
            let pause = match self.call(token, method, body).await {
                Err(CallError::RateLimited(pause)) => pause,
                Err(CallError::Temporary(error)) => {
                    let pause = pauses.next_pause();
                    tracing::warn!("Slack's {method} failed ({error}); it is called again in {pause:?}");
                    pause
                }
                other => return other,
            };
            tokio::select! {
                () = ended.cancelled() => return Err(CallError::Temporary("the server is stopping".to_owned())),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Who we are, by the bot's token.
    pub(crate) async fn identity(&self, ended: &CancellationToken) -> Result<SlackIdentity, SlackError> {
        let answer = self.insist(SlackToken::Bot, "auth.test", &json!({}), ended).await;
        let answer = answer.map_err(|error| match error {
            CallError::Token(error) => error,
            CallError::Refused(error) | CallError::Temporary(error) => SlackError::Api { method: "auth.test", error },
            CallError::RateLimited(_) => SlackError::Api { method: "auth.test", error: "ratelimited".to_owned() },
        })?;
        let word = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok(SlackIdentity { user: word("user_id"), team: word("team_id") })
    }

    /// Shows a line to one user alone, or to both in a direct message. Nothing depends on it.
    pub(crate) async fn whisper(&self, thread: &SlackThread, user: &str, text: &str) {
        let channel = &thread.channel;
        let mut body = text_body(channel, text);
        body["thread_ts"] = thread.ts.clone().into();
        let method = if thread.is_direct() { POST } else { WHISPER };
        if method == WHISPER {
            body["user"] = user.into();
        }
        self.pace.turn(channel, method).await;
        if let Err(error) = self.call(SlackToken::Bot, method, &body).await {
            tracing::warn!("failed to tell a user of Slack: {error:?}");
        }
    }

    fn secret(&self, token: SlackToken) -> &(SecretName, Secret) {
        match token {
            SlackToken::App => &self.app_token,
            SlackToken::Bot => &self.bot_token,
        }
    }

    fn token_error(&self, token: SlackToken, error: &str, answer: &Value) -> SlackError {
        let (setting, kind) = match token {
            SlackToken::App => ("app_token", "an app-level token (`xapp-…`) with the scope `connections:write`"),
            SlackToken::Bot => ("bot_token", "the bot's token (`xoxb-…`)"),
        };
        let secret = self.secret(token).0.as_str().to_owned();
        let scope = answer["needed"].as_str().map(|scope| format!(" (scope `{scope}`)")).unwrap_or_default();
        SlackError::Token { setting, secret, error: format!("{error}{scope}"), kind }
    }
}

/// A new message in a thread. Nothing in it is read as a mention, and no link is unfolded.
pub(crate) fn post_body(channel: &str, thread: &str, text: &str) -> Value {
    let mut body = text_body(channel, text);
    body["thread_ts"] = thread.into();
    body["unfurl_links"] = false.into();
    body["unfurl_media"] = false.into();
    body
}

/// The new text of a message.
pub(crate) fn update_body(channel: &str, ts: &str, text: &str) -> Value {
    let mut body = text_body(channel, text);
    body["ts"] = ts.into();
    body
}

fn text_body(channel: &str, text: &str) -> Value {
    json!({"channel": channel, "text": text, "parse": "none", "link_names": false})
}

/// A client that speaks HTTP/1.1, as the sockets need it.
fn http_client(api_url: &Url) -> Result<Client, SlackError> {
    // An error means that a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let builder = Client::builder()
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("agent-magic-tool/", env!("CARGO_PKG_VERSION")));
    // Without TLS it is on this machine, where no proxy leads.
    let builder = if api_url.scheme() == "http" { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| SlackError::Tls(innermost_cause(&error)))
}
