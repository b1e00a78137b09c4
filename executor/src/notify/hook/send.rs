//! One attempt to tell one hook: a command is run, or a webhook posted.
//!
//! A webhook is signed as Standard Webhooks 1.0 says (HMAC-SHA256 over id, time and body, `v1`), so that
//! any of its libraries verifies it. What a receiver answers is not read, but for its status.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use protocol::duration::PositiveDuration;
use protocol::fault;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use sha2::Sha256;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::event_id;
use crate::config::secret::{Secret, SecretName};
use crate::config::{HookReceiver, HookSettings};
use crate::runner::{RunnerContext, process};
use crate::store::outbox::HookDelivery;

/// Tells `hook`. An error says why that failed, without a secret, for the log and the doctor.
///
/// Ends soon after the hook's timeout, and at once when `cancel` fires.
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
                    posted.unwrap_or_else(|_| Err(too_slow(hook.timeout)))
                }
            }
        }
    };
    sent.map_err(|reason| runner_context.secrets.redact(&reason).into_owned())
}

/// Runs a program of the human's with `event` on its standard input, and stops it when its time is over.
pub(crate) async fn run(
    argv: &[String],
    event: &str,
    timeout: PositiveDuration,
    runner_context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<(), String> {
    // It is asked to end when its time is over, and its group is killed if it does not.
    let stop = cancel.child_token();
    let running = process::run_configured(argv, event, &runner_context.secrets, &stop);
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        () = tokio::time::sleep(timeout.get()) => {
            stop.cancel();
            // It was late, however it ended.
            running.await.ok();
            Err(too_slow(timeout))
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
        headers.insert(name, HeaderValue::from_str(&value).expect("ids, numbers and base64 may stand in a header"));
    }
    let posted = runner_context.http.post(url, headers, delivery.event.clone()).await;
    let status = posted.map_err(|failure| failure.error.message)?;
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("`{}` answered {status}", url.host_str().unwrap_or_default()))
    }
}

/// The header `webhook-signature` of an event that is sent at this second.
fn sign(secret: &Secret, id: &str, at: i64, body: &str) -> Result<String, String> {
    let key = secret.expose().strip_prefix("whsec_").and_then(|key| STANDARD.decode(key).ok());
    let key = key.ok_or("its secret is not `whsec_` and base64, as Standard Webhooks are signed with")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key may have any length");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    Ok(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}

fn too_slow(timeout: PositiveDuration) -> String {
    format!("it took longer than {timeout}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_standards_own_example() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let body = r#"{"test": 2432232314}"#;
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature.as_deref(), Ok("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn what_is_no_signing_secret_is_told_without_it() {
        for wrong in ["hunter2hunter2", "whsec_***"] {
            let told = sign(&Secret::new(wrong.to_owned()), "id", 0, "").expect_err("no key");
            assert!(!told.contains(wrong), "{told}");
        }
    }
}
