//! Formats spans and metrics as OTLP JSON: 64-bit integers as strings, ids in hexadecimal.
//!
//! The format is that of `opentelemetry-proto` 1.x. A receiver of OTLP over HTTP accepts JSON as well as protobuf.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::metrics::{DataPoint, DataPoints, Histogram, MetricValues};
use super::span::TraceSpan;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;
/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// The resource that all data belongs to: the executor of one mailbox.
pub(super) fn resource(instance: &str) -> Value {
    json!({"attributes": [
        attribute("service.name", &json!("agent-magic-tool")),
        attribute("service.version", &json!(env!("CARGO_PKG_VERSION"))),
        attribute("service.instance.id", &json!(instance)),
    ]})
}

fn scope() -> Value {
    json!({"name": "agent-magic-tool", "version": env!("CARGO_PKG_VERSION")})
}

/// The body for `/v1/traces`.
pub(super) fn traces(resource: &Value, spans: &[TraceSpan]) -> Value {
    let spans: Vec<_> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope(), "spans": spans}]}]})
}

/// The body for `/v1/metrics`.
pub(super) fn metrics(resource: &Value, values: &MetricValues, now: SystemTime) -> Value {
    let timestamps = [("startTimeUnixNano", nanoseconds(values.since)), ("timeUnixNano", nanoseconds(now))];
    let with_timestamps = |mut point: Value| {
        for (name, timestamp) in &timestamps {
            point[name] = json!(timestamp);
        }
        point
    };
    let points =
        |points: &[DataPoint<'_>]| -> Vec<_> { points.iter().map(|data| with_timestamps(point(data))).collect() };
    let metrics: Vec<_> = values
        .families()
        .into_iter()
        .map(|family| {
            let (unit, kind, data) = match &family.points {
                DataPoints::Counter(counts) => (
                    "1",
                    "sum",
                    json!({"aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points(counts)}),
                ),
                DataPoints::Gauge(counts) => ("1", "gauge", json!({"dataPoints": points(counts)})),
                DataPoints::Bytes(bytes) => ("By", "gauge", json!({"dataPoints": points(&[(None, *bytes)])})),
                DataPoints::Histogram(seconds) => (
                    "s",
                    "histogram",
                    json!({"aggregationTemporality": CUMULATIVE, "dataPoints": [with_timestamps(histogram(seconds))]}),
                ),
            };
            let name = format!("agent_magic_tool.{}", family.name);
            json!({"name": name, "description": family.help, "unit": unit, kind: data})
        })
        .collect();
    json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": scope(), "metrics": metrics}]}]})
}

fn point((label, number): &DataPoint<'_>) -> Value {
    let attributes: Vec<_> = label.iter().map(|(name, value)| attribute(name, &json!(value))).collect();
    json!({"attributes": attributes, "asInt": number.to_string()})
}

fn histogram(histogram: &Histogram) -> Value {
    let counts: Vec<_> = histogram.counts.iter().map(ToString::to_string).collect();
    json!({
        "count": histogram.count().to_string(),
        "sum": histogram.sum,
        "bucketCounts": counts,
        "explicitBounds": histogram.bounds,
    })
}

fn span(span: &TraceSpan) -> Value {
    let attributes: Vec<_> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut json = json!({
        "traceId": span.trace,
        "spanId": span.id,
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": since_epoch(span.started),
        "endTimeUnixNano": since_epoch(span.ended),
        "attributes": attributes,
        "status": {},
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = json!(parent);
    }
    if let Some(code) = span.failed {
        json["status"] = json!({"code": ERROR, "message": code});
    }
    json
}

fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::String(text) => json!({"stringValue": text}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": name, "value": value})
}

fn since_epoch(at: Timestamp) -> String {
    at.as_nanosecond().max(0).to_string()
}

fn nanoseconds(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
