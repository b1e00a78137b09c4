//! Our own HTTP API, `/api/v1`: one request that waits for the answer, and beside it the session's events, which say when
//! a human is waited for.
//!
//! The message has a key of its own. An agent that was lost is asked again with the same key: if it has the message, it
//! goes on with it.

use std::future::pending;
use std::time::Duration;

use ground::task::failure::{Failure, SideEffect};
use protocol::code::Code;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use url::Url;

use super::events::RemoteEvents;
use super::remote::{RemoteAnswer, RemoteCall, RemoteJob, ReturnWait};

/// The header of a message's own key.
const REPEAT_KEY: &str = "idempotency-key";
/// How long an agent that is at work is left alone before it is asked again.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// How long one request waits for the answer at most, in seconds; then it is asked again.
const MAX_WAIT_SECONDS: f64 = 3_600.0;

/// The header with the event after which a stream goes on, and the one before all others: what happened between the request
/// and the stream is not missed.
const LAST_EVENT: &str = "last-event-id";
const BEGINNING: &str = "0.0.0";

/// How one request ended that did not fail for good.
enum SubmitOutcome {
    Answer(RemoteAnswer),
    /// The agent is still at work.
    Working,
    /// The agent was not there, or went away.
    Lost(Failure),
}

/// Asks, and returns the answer.
pub(super) async fn ask(call: &RemoteCall<'_>) -> Result<RemoteAnswer, Failure> {
    let job = RemoteJob { message: call.message_id(), a2a: None, task: None };
    if call.left_at.is_none() {
        call.sending(Some(job.clone())).await?;
    }
    submit(call, &job).await
}

async fn submit(call: &RemoteCall<'_>, job: &RemoteJob) -> Result<RemoteAnswer, Failure> {
    let (mut wait, mut was_there) = (ReturnWait::default(), call.left_at.is_some());
    loop {
        // Only beside a request: an agent that hears that its answer arrived forgets the message, and would answer a
        // repetition of it anew.
        let outcome = tokio::select! {
            outcome = submit_once(call, job) => outcome?,
            () = listen(call) => unreachable!("it never returns"),
        };
        match outcome {
            SubmitOutcome::Answer(answer) => return Ok(answer),
            SubmitOutcome::Working => {
                was_there = true;
                wait.found();
                tokio::time::sleep(POLL_PAUSE).await;
            }
            SubmitOutcome::Lost(failure) => {
                call.goes_on();
                let is_new = !was_there && failure.side_effect == SideEffect::None;
                if is_new {
                    call.not_sent();
                    return Err(failure);
                }
                was_there = true;
                if !wait.again().await {
                    return Err(call.lost(&failure.error.message));
                }
            }
        }
    }
}

async fn submit_once(call: &RemoteCall<'_>, job: &RemoteJob) -> Result<SubmitOutcome, Failure> {
    let (question, url) = (&call.question, path(call, "submit"));
    let mut limits = serde_json::to_value(question.limits).expect("limits are plain JSON");
    let deadline = call.deadline();
    if let Some(deadline) = deadline {
        limits["deadline"] = deadline.into();
    }
    let mut body = json!({
        "message": question.prompt,
        "session": question.session,
        "wait": true,
        // What a model wrote, or found, is no command there.
        "commands": false,
        // Each call is a whole turn: one is not ended early by the next.
        "when_busy": "queue",
        "timeout": deadline.map_or(MAX_WAIT_SECONDS, |deadline| deadline.min(MAX_WAIT_SECONDS)),
        "limits": limits,
    });
    if let Some(model) = &question.model {
        body["model"] = model.as_str().into();
    }
    let request = call.request(Method::POST, &url).await?;
    let request = request.header(REPEAT_KEY, &job.message).header(CONTENT_TYPE, "application/json");
    let response = match call.send(request.body(body.to_string()), &url).await {
        Ok(response) => response,
        Err(failure) if is_absence(&failure) => return Ok(SubmitOutcome::Lost(failure)),
        Err(failure) => return Err(failure),
    };
    let (status, headers) = (response.status(), response.headers().clone());
    let body = match call.json(response, &url).await {
        Ok(body) => body,
        Err(failure) if is_absence(&failure) => return Ok(SubmitOutcome::Lost(failure)),
        Err(failure) if status.is_success() => return Err(failure),
        Err(_) => Value::Null,
    };
    match status {
        StatusCode::OK => answer(call, body).map(SubmitOutcome::Answer),
        StatusCode::ACCEPTED => Ok(SubmitOutcome::Working),
        // It is stopping, and has what was said so far.
        StatusCode::SERVICE_UNAVAILABLE if body["error"]["code"] == Code::NoExecutor.as_str() => {
            Ok(SubmitOutcome::Lost(call.refused(status, &headers, &url, &body).effect_possible()))
        }
        status => Err(call.refused(status, &headers, &url, &body)),
    }
}

/// Whether the agent was not there, or went away while it answered.
fn is_absence(failure: &Failure) -> bool {
    matches!(failure.error.code, Code::ConnectionLost | Code::Unreachable)
}

fn answer(call: &RemoteCall<'_>, mut body: Value) -> Result<RemoteAnswer, Failure> {
    if !body["answer"].is_string() {
        return Err(call.no_sense("its answer has no `answer`"));
    }
    let data = body["answer"].take();
    body["protocol"] = "api".into();
    Ok(RemoteAnswer { data, told: body })
}

/// Shows what the session's events say. What fails here is no failure of the call. Never returns.
async fn listen(call: &RemoteCall<'_>) {
    let (mut wait, mut last) = (ReturnWait::default(), BEGINNING.to_owned());
    // Waits first, so that the request is there before the stream.
    while wait.again().await {
        if let Err(failure) = listen_once(call, &mut wait, &mut last).await {
            tracing::debug!(error = failure.error.message, "the events of a remote agent cannot be had");
        }
    }
    pending::<()>().await;
}

async fn listen_once(call: &RemoteCall<'_>, wait: &mut ReturnWait, last: &mut String) -> Result<(), Failure> {
    let url = path(call, &format!("stream/{}", call.question.session));
    let request = call.request(Method::GET, &url).await?;
    let request = request.header(ACCEPT, "text/event-stream").header(LAST_EVENT, last.as_str());
    let response = call.send(request, &url).await?;
    if !response.status().is_success() {
        return Err(call.refused(response.status(), response.headers(), &url, &Value::Null));
    }
    wait.found();
    let mut events = RemoteEvents::of(response, &url, call.context.config.executor.output_bytes);
    let mut gates: Vec<Value> = Vec::new();
    while let Some(event) = events.next().await? {
        if !event.id.is_empty() {
            *last = event.id;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        match event.name.as_str() {
            "gate" => {
                gates.push(data["id"].clone());
                call.waits_for_human(data["message"].as_str().unwrap_or("it does not say for what"));
            }
            "task" => {
                if data["state"] != "awaiting_confirmation" {
                    gates.retain(|id| *id != data["id"]);
                }
                if gates.is_empty() {
                    call.goes_on();
                }
                let word = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
                call.does(&format!("{} {}", word("subtool"), word("state")));
            }
            "note" => call.does(data["text"].as_str().unwrap_or_default()),
            "done" | "error" => {
                gates.clear();
                call.goes_on();
            }
            _ => {}
        }
    }
    Ok(())
}

/// Stops what the session is doing.
pub(super) async fn cancel(call: &RemoteCall<'_>) -> Result<(), Failure> {
    let mut url = path(call, &format!("session/{}/cancel", call.question.session));
    url.set_query(Some("tasks=true"));
    let request = call.request(Method::POST, &url).await?;
    let response = call.send(request, &url).await?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(call.refused(status, response.headers(), &url, &Value::Null)),
    }
}

/// A path of the API, below the address of the agent.
fn path(call: &RemoteCall<'_>, rest: &str) -> Url {
    let mut url = call.question.url.clone();
    url.set_query(None);
    let base = url.path().trim_end_matches('/').trim_end_matches("/api/v1").to_owned();
    url.set_path(&format!("{base}/api/v1/{rest}"));
    url
}
