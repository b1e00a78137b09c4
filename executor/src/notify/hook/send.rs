//! One attempt to deliver an event to a hook: runs a command or posts a webhook.
//!
//! A webhook is signed according to Standard Webhooks 1.0 (`v1`: HMAC-SHA256 over id, time and body), so its
//! libraries can verify it. Only the status of the receiver's response counts; the body is not read.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ground::config::secret::{Secret, SecretName};
use ground::config::{HookReceiver, HookSettings};
use hmac::{Hmac, KeyInit as _, Mac as _};
use protocol::duration::PositiveDuration;
use protocol::fault;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use runner::{RunnerContext, process};
use sha2::Sha256;
use store::outbox::HookDelivery;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::event_id;

/// Delivers an event to `hook`. An error is the reason for the log and `doctor`, without secrets.
///
/// Ends soon after the hook's timeout, and immediately when `cancel` fires.
pub async fn send(
    delivery: &HookDelivery,
    hook: &HookSettings,
    runner_context: &Arc<RunnerContext>,
    cancel: &CancellationToken,
) -> Result<(), String> {
    fault::point("hook", "send");
    let sent = match &hook.receiver {
        HookReceiver::Command(argv) => run(argv, &delivery.event, hook.timeout, runner_context, cancel).await,
        HookReceiver::Webhook { url, secret } => {
            let post = post(delivery, url, secret, runner_context);
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err("the executor stopped".to_owned()),
                posted = tokio::time::timeout(hook.timeout.get(), post) => {
                    posted.unwrap_or_else(|_| Err(timed_out(hook.timeout)))
                }
            }
        }
    };
    sent.map_err(|reason| runner_context.secrets.redact_reason(&reason))
}

/// Runs a configured program with `event` on its standard input, and stops it after `timeout`.
pub(crate) async fn run(
    argv: &[String],
    event: &str,
    timeout: PositiveDuration,
    runner_context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<(), String> {
    // The program gets SIGTERM after the timeout, and its process group is killed if it does not exit.
    let stop = cancel.child_token();
    let running = process::run_configured(argv, event, runner_context, &stop);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        () = tokio::time::sleep(timeout.get()) => {
            stop.cancel();
            // The timeout is the failure, whatever the exit status.
            running.await.ok();
            Err(timed_out(timeout))
        }
    }
}

async fn post(
    delivery: &HookDelivery,
    url: &Url,
    secret: &SecretName,
    runner_context: &RunnerContext,
) -> Result<(), String> {
    let secret = runner_context.secrets.get(secret).await.map_err(|error| error.to_string())?;
    let (id, at) = (event_id(delivery), protocol::clock::now().as_second());
    let signature = sign(&secret, &id, at, &delivery.event)?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in [("webhook-id", id), ("webhook-timestamp", at.to_string()), ("webhook-signature", signature)] {
        headers.insert(name, HeaderValue::from_str(&value).expect("ids, numbers and base64 are valid in headers"));
    }
    let posted = runner_context.http.post(url, headers, delivery.event.clone()).await;
    let status = posted.map_err(|failure| failure.error.message)?;
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("`{}` answered {status}", url.host_str().unwrap_or_default()))
    }
}

/// Returns the header `webhook-signature` of an event that is sent at `at`, in seconds since the epoch.
fn sign(secret: &Secret, id: &str, at: i64, body: &str) -> Result<String, String> {
    let key = secret.expose().strip_prefix("whsec_").and_then(|key| STANDARD.decode(key).ok());
    let key = key.ok_or("the secret is not `whsec_` followed by base64, as Standard Webhooks require")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length is valid");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

fn timed_out(timeout: PositiveDuration) -> String {
    format!("it took longer than {timeout}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_matches_the_example_of_the_standard() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let body = r#"{"test": 2432232314}"#;
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature.as_deref(), Ok("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn the_error_about_an_invalid_secret_does_not_contain_it() {
        for wrong in ["hunter2hunter2", "whsec_***"] {
            let error = sign(&Secret::new(wrong.to_owned()), "id", 0, "").expect_err("not a signing secret");
            assert!(!error.contains(wrong), "{error}");
        }
    }
}
