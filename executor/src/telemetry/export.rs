//! The exporter: sends spans and numbers to a collector, some time after something happened.
//!
//! While nothing happens it sleeps. What a collector does not take is tried again, later and later,
//! within bounded memory; what it refuses is dropped and said once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{SharedTelemetry, TelemetryState, otlp};
use crate::runner::RunnerContext;

/// As many spans go into one request.
const BATCH: usize = 512;
/// A collector answers within this, or not at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pauses after failures: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// More of a collector's answer is not read.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

pub(super) struct Exporter {
    traces: Url,
    metrics: Url,
    resource: Value,
    shared: Arc<SharedTelemetry>,
    runner_context: Arc<RunnerContext>,
    is_failing: bool,
}

/// Why a collector has not got something.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// It may take it later.
    #[error("{0}")]
    ForNow(String),
    #[error("{0}")]
    ForGood(String),
}

impl Exporter {
    pub(super) fn new(
        to: &Url,
        instance: &str,
        shared: Arc<SharedTelemetry>,
        runner_context: Arc<RunnerContext>,
    ) -> Self {
        let signal = |path: &str| {
            let mut url = to.clone();
            url.set_path(&format!("{}/v1/{path}", to.path().trim_end_matches('/')));
            url
        };
        let (traces, metrics) = (signal("traces"), signal("metrics"));
        Self { traces, metrics, resource: otlp::resource(instance), shared, runner_context, is_failing: false }
    }

    /// Until `ending`; then once more, without trying again.
    pub(super) async fn run(mut self, ending: CancellationToken) {
        let every = self.runner_context.config.telemetry.every.get();
        let mut pause = PAUSES.0;
        while !ending.is_cancelled() {
            tokio::select! {
                () = self.shared.changed.notified() => {}
                () = ending.cancelled() => break,
            }
            // What happens soon after goes along.
            rest(every, &ending).await;
            while let Err(ExportError::ForNow(_)) = self.export().await {
                if ending.is_cancelled() {
                    return;
                }
                rest(pause, &ending).await;
                pause = (pause * 2).min(PAUSES.1);
            }
            pause = PAUSES.0;
        }
        drop(self.export().await);
    }

    /// Sends all that there is; what could not be sent for now stays.
    async fn export(&mut self) -> Result<(), ExportError> {
        loop {
            let spans = self.shared.lock().spans.take(BATCH);
            if spans.is_empty() {
                break;
            }
            let body = otlp::traces(&self.resource, &spans);
            let sent = self.send(&self.traces, &body, "rejectedSpans").await;
            let TelemetryState { numbers, spans: waiting } = &mut *self.shared.lock();
            match &sent {
                Ok(rejected) => numbers.spans_dropped += rejected,
                Err(ExportError::ForNow(_)) => waiting.put_back(spans),
                Err(ExportError::ForGood(_)) => numbers.spans_dropped += u64::try_from(spans.len()).unwrap_or_default(),
            }
            numbers.spans_dropped += std::mem::take(&mut waiting.dropped);
            self.is_failing = noted(&sent, self.is_failing);
            sent?;
        }
        let body = otlp::metrics(&self.resource, &self.shared.numbers(), SystemTime::now());
        let sent = self.send(&self.metrics, &body, "rejectedDataPoints").await;
        self.is_failing = noted(&sent, self.is_failing);
        sent?;
        Ok(())
    }

    /// How many items the collector rejected of what it took.
    async fn send(&self, url: &Url, body: &Value, rejected: &str) -> Result<u64, ExportError> {
        let headers = self.headers().await?;
        let for_now = |why: String| ExportError::ForNow(self.runner_context.secrets.redact(&why).into_owned());
        let client =
            self.runner_context.http.for_operator(url).await.map_err(|failure| for_now(failure.error.message))?;
        let text = serde_json::to_vec(body).expect("JSON can be written");
        let request = client.post(url.clone()).headers(headers).timeout(PATIENCE).body(text);
        let (status, answer) = self
            .runner_context
            .http
            .send_plain(request, url, MAX_ANSWER_BYTES)
            .await
            .map_err(|f| for_now(f.error.message))?;
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(ExportError::ForNow(format!("it answers {status}"))),
            status if status.is_success() => {
                // A collector that answers in another way took it all.
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                let count = &answer["partialSuccess"][rejected];
                Ok(count.as_str().and_then(|count| count.parse().ok()).or(count.as_u64()).unwrap_or(0))
            }
            status => Err(ExportError::ForGood(format!("it answers {status}"))),
        }
    }

    async fn headers(&self) -> Result<HeaderMap, ExportError> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        for (name, secret) in &self.runner_context.config.telemetry.otlp_headers {
            let value = self.runner_context.secrets.get(secret).await;
            let value = value.map_err(|error| ExportError::ForNow(error.to_string()))?;
            let name = HeaderName::try_from(name.as_str());
            let value = HeaderValue::try_from(value.expose());
            let (Ok(name), Ok(mut value)) = (name, value) else {
                return Err(ExportError::ForGood(format!("the header of `{secret}` cannot be sent")));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// Says once that it fails, and once that it works again.
fn noted(sent: &Result<u64, ExportError>, was_failing: bool) -> bool {
    match sent {
        Err(why) if !was_failing => tracing::warn!(%why, "the collector of telemetry does not take it"),
        Ok(_) if was_failing => tracing::info!("the collector takes telemetry again"),
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
