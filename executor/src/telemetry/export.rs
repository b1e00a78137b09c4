//! The exporter: sends spans and metrics to a collector, some time after a change.
//!
//! Without changes it sleeps. If the collector is unavailable, it retries with growing pauses and bounded memory. If
//! the collector rejects data, it drops the data and logs this once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ground::base::backoff::Backoff;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use runner::RunnerContext;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{SharedTelemetry, TelemetryState, otlp};
use crate::intake::settings::LiveSettings;

/// The most spans in one request.
const MAX_BATCH: usize = 512;
/// How long a collector may take to answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses after failures.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_mins(1) };
/// The most of a collector's answer that is read.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

pub(super) struct Exporter {
    traces: Url,
    metrics: Url,
    resource: Value,
    shared: Arc<SharedTelemetry>,
    settings: LiveSettings,
    is_failing: bool,
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// A retry may succeed.
    #[error("{0}")]
    Temporary(String),
    #[error("{0}")]
    Permanent(String),
}

impl Exporter {
    pub(super) fn new(to: &Url, instance: &str, shared: Arc<SharedTelemetry>, settings: LiveSettings) -> Self {
        let signal = |path: &str| {
            let mut url = to.clone();
            url.set_path(&format!("{}/v1/{path}", to.path().trim_end_matches('/')));
            url
        };
        let (traces, metrics) = (signal("traces"), signal("metrics"));
        Self { traces, metrics, resource: otlp::resource(instance), shared, settings, is_failing: false }
    }

    /// Exports after changes until `ending` fires; then exports once more without retries.
    pub(super) async fn run(mut self, ending: CancellationToken) {
        let every = self.settings.current().config().telemetry.every.get();
        while !ending.is_cancelled() {
            tokio::select! {
                () = self.shared.changed.notified() => {}
                () = ending.cancelled() => break,
            }
            // Changes that follow soon are exported together.
            rest(every, &ending).await;
            let mut failures = 0;
            while let Err(ExportError::Temporary(_)) = self.export().await {
                if ending.is_cancelled() {
                    return;
                }
                rest(PAUSES.pause(failures), &ending).await;
                failures += 1;
            }
        }
        drop(self.export().await);
    }

    /// Sends all spans and the metrics. After a temporary failure, the unsent spans stay in the buffer.
    async fn export(&mut self) -> Result<(), ExportError> {
        loop {
            let spans = self.shared.lock().spans.take(MAX_BATCH);
            if spans.is_empty() {
                break;
            }
            let body = otlp::traces(&self.resource, &spans);
            let sent = self.send(&self.traces, &body, "rejectedSpans").await;
            let TelemetryState { metrics, spans: buffer } = &mut *self.shared.lock();
            match &sent {
                Ok(rejected) => metrics.spans_dropped += rejected,
                Err(ExportError::Temporary(_)) => buffer.put_back(spans),
                Err(ExportError::Permanent(_)) => {
                    metrics.spans_dropped += u64::try_from(spans.len()).unwrap_or_default();
                }
            }
            metrics.spans_dropped += std::mem::take(&mut buffer.dropped);
            self.is_failing = log_change(&sent, self.is_failing);
            sent?;
        }
        let body = otlp::metrics(&self.resource, &self.shared.metrics(), SystemTime::now());
        let sent = self.send(&self.metrics, &body, "rejectedDataPoints").await;
        self.is_failing = log_change(&sent, self.is_failing);
        sent?;
        Ok(())
    }

    /// Sends one request, and returns how many items the collector rejected; `rejected` is their field in the answer.
    async fn send(&self, url: &Url, body: &Value, rejected: &str) -> Result<u64, ExportError> {
        let context = self.settings.runner_context();
        let headers = headers(&context, url).await?;
        let temporary = |reason: String| ExportError::Temporary(context.secrets.redact_reason(&reason));
        let client =
            context.http.client_for_configured(url).await.map_err(|failure| temporary(failure.error.message))?;
        let text = serde_json::to_vec(body).expect("a JSON value can be serialized");
        let request = client.post(url.clone()).headers(headers).timeout(REQUEST_TIMEOUT).body(text);
        let (status, answer) = context
            .http
            .send_plain(request, url, MAX_ANSWER_BYTES)
            .await
            .map_err(|failure| temporary(failure.error.message))?;
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(ExportError::Temporary(format!("the collector answered {status}"))),
            status if status.is_success() => {
                // An answer in another format means that everything was accepted.
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                let count = &answer["partialSuccess"][rejected];
                Ok(count.as_str().and_then(|count| count.parse().ok()).or(count.as_u64()).unwrap_or(0))
            }
            status => Err(ExportError::Permanent(format!("the collector answered {status}"))),
        }
    }
}

/// The headers of a request under the present configuration.
async fn headers(context: &RunnerContext, url: &Url) -> Result<HeaderMap, ExportError> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    for (name, secret) in &context.config.telemetry.otlp_headers {
        let value = context.secrets.get_for(secret, url).await;
        let value = value.map_err(|error| ExportError::Temporary(error.to_string()))?;
        let name = HeaderName::try_from(name.as_str());
        let value = HeaderValue::try_from(value.expose());
        let (Ok(name), Ok(mut value)) = (name, value) else {
            return Err(ExportError::Permanent(format!("the header with `{secret}` is not valid")));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Logs the first failure and the first success after it. Returns whether exporting is failing.
fn log_change(sent: &Result<u64, ExportError>, was_failing: bool) -> bool {
    match sent {
        Err(error) if !was_failing => tracing::warn!(%error, "failed to export telemetry"),
        Ok(_) if was_failing => tracing::info!("the export of telemetry works again"),
        Ok(_) | Err(_) => {}
    }
    sent.is_err()
}

async fn rest(pause: Duration, ending: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = ending.cancelled() => {}
    }
}
