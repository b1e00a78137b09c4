//! Work that a server accepts and does later: a 202 that describes where its state is found.

use serde_json::{Value, json};

use super::OpenApi;
use crate::http::Request;
use crate::names;

/// How long a subtool waits that asks for the state of a job.
pub(super) const TIMEOUT: &str = "10m";

/// Headers of a 202 that the runner reads the URL of the job from by itself.
const LOCATIONS: [&str; 2] = ["location", "operation-location"];
/// Fields of a 202 that have the URL of the job.
const URLS: [&str; 10] = [
    "status_url",
    "statusUrl",
    "status_uri",
    "statusUri",
    "poll_url",
    "pollUrl",
    "monitor_url",
    "monitorUrl",
    "job_url",
    "jobUrl",
];
/// States of a job that goes on, and of one that failed: in lower case, without separators.
const GOES_ON: [&str; 20] = [
    "accepted",
    "active",
    "created",
    "enqueued",
    "executing",
    "inprogress",
    "inqueue",
    "initializing",
    "new",
    "notstarted",
    "pending",
    "preparing",
    "processing",
    "queued",
    "received",
    "running",
    "scheduled",
    "started",
    "submitted",
    "waiting",
];
const FAILED: [&str; 12] = [
    "aborted",
    "canceled",
    "cancelled",
    "error",
    "errored",
    "expired",
    "failed",
    "failure",
    "rejected",
    "terminated",
    "timedout",
    "timeout",
];

/// Adds how to wait for the job, if the description says where its state is found. Without that, the runner says that
/// the work was accepted and is not finished.
pub(super) fn apply(api: &OpenApi<'_>, operation: &Value, request: &mut Request) {
    let Some(accepted) = operation["responses"].get("202").and_then(|answer| api.schemas.resolve(answer)) else {
        return;
    };
    if request.pagination.is_some() {
        return;
    }
    let headers = accepted["headers"].as_object();
    let has_location = headers.is_some_and(|headers| {
        headers.keys().any(|name| LOCATIONS.iter().any(|known| name.eq_ignore_ascii_case(known)))
    });
    let schema = if api.is_swagger { &accepted["schema"] } else { json_schema(accepted) };
    let fields = api.schemas.fields(schema);
    let url = URLS.iter().find(|url| fields.iter().any(|(name, _)| name == *url));
    let mut poll = match (has_location, url) {
        (true, _) => json!({}),
        (false, Some(url)) => json!({"url": format!(".{url}")}),
        (false, None) => return,
    };
    let state = fields.iter().find(|(name, _)| ["status", "state"].contains(name));
    if let Some((name, values)) = state.and_then(|(name, field)| Some((name, states(api, field)?))) {
        let named = |known: &[&str]| -> Vec<&str> {
            let is_known = |value: &&str| known.contains(&names::words(value).concat().as_str());
            values.iter().copied().filter(is_known).collect()
        };
        let (goes_on, failed) = (named(&GOES_ON), named(&FAILED));
        if !goes_on.is_empty() && goes_on.len() < values.len() {
            let list = json!(goes_on);
            poll["until"] = format!("$status != 202 and (.{name}? as $state | {list} | index($state) == null)").into();
        }
        if !failed.is_empty() && !goes_on.is_empty() {
            let list = json!(failed);
            poll["failed"] =
                format!("(.{name}? // \"\") as $state | if {list} | index($state) != null then $state else false end")
                    .into();
        }
    }
    request.poll = Some(poll);
}

fn json_schema(answer: &Value) -> &Value {
    let content = answer["content"].as_object().into_iter().flatten();
    content.into_iter().find(|(kind, _)| kind.contains("json")).map_or(&Value::Null, |(_, media)| &media["schema"])
}

/// The states that a field names, if all are plain words: they become a part of an expression.
fn states<'a>(api: &OpenApi<'a>, field: &'a Value) -> Option<Vec<&'a str>> {
    let values = api.schemas.resolve(field)?["enum"].as_array()?;
    let is_plain = |text: &&str| text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | ' '));
    values.iter().map(|value| value.as_str().filter(is_plain)).collect()
}
