//! Waits for a job: the server accepted a request (usually with 202) and does the work later.
//!
//! Asking for a job's state is a read: what fails on the way is asked again, and the request itself is never repeated.

use std::time::Duration;

use definition::run::http::{Poll, endpoint};
use jq::misplaced;
use serde_json::{Value, json};
use url::Url;

use super::call::{HttpCall, HttpResponse, RequestTarget};
use super::{Code, Failure, Retry, RunnerOutput, expression, response};
use crate::OutputData;

/// The default for `until`.
const UNTIL: &str = "$status != 202";
/// The default for `url`.
const URL: &str = r#"$headers.location // $headers["operation-location"]"#;
/// Fields in which services say in which state a job is, and the states in which it is not done: in lower case, without
/// separators.
const STATES: [&str; 2] = ["status", "state"];
const NOT_DONE: [&str; 18] = [
    "aborted",
    "canceled",
    "cancelled",
    "enqueued",
    "error",
    "executing",
    "failed",
    "failure",
    "inprogress",
    "inqueue",
    "notstarted",
    "pending",
    "preparing",
    "processing",
    "queued",
    "running",
    "timedout",
    "waiting",
];
/// The longest wait between two requests, whatever the server asks for.
const MAX_INTERVAL: Duration = Duration::from_mins(10);

/// Waits until the job that `answer` names is done, and returns its result. Returns the output of `answer` itself if
/// that is done already.
pub(super) async fn follow(call: &HttpCall<'_>, poll: &Poll, answer: HttpResponse) -> Result<RunnerOutput, Failure> {
    let latest = call.until_cancelled(response::output(call, answer)).await?;
    // The server has the request. Whatever fails from here on, it may carry it out, or has.
    call.accepted();
    let mut unmet = Unmet::default();
    if is_over(call, poll, &latest, &mut unmet).await? {
        return result(call, poll, latest).await;
    }
    let expression = poll.url.as_deref().unwrap_or(URL);
    let Some(job) = url(call, expression, &latest, &call.draft.address).await? else {
        let message = format!(
            "{} was accepted, but the response does not say where its job is: {} has nothing; {}",
            call.summary(),
            poll.url.as_deref().map_or_else(|| "the header `Location`".to_owned(), |url| format!("`{url}`")),
            there(&latest)
        );
        return Err(Failure::new(Code::BadResponse, message).detail("response", body(&latest)));
    };
    call.invocation.feedback.job_accepted(job.as_str());
    wait_for(call, poll, &job, pause(poll, latest.facts.as_ref().and_then(|facts| facts.retry_after))).await
}

/// Goes on with the job that a lost attempt left with the server.
pub(super) async fn resume(call: &HttpCall<'_>, poll: &Poll, job: &str) -> Result<RunnerOutput, Failure> {
    call.accepted();
    let job = Url::parse(job)
        .map_err(|error| Failure::new(Code::BadResponse, format!("`{job}` is not a usable URL of a job: {error}")))?;
    wait_for(call, poll, &job, Duration::ZERO).await
}

/// Waits for `job`; a failure names it.
async fn wait_for(call: &HttpCall<'_>, poll: &Poll, job: &Url, pause: Duration) -> Result<RunnerOutput, Failure> {
    let shown = call.context.secrets.redact(job.as_str()).into_owned();
    let mut unmet = Unmet::default();
    wait(call, poll, job, pause, &mut unmet).await.map_err(|failure| {
        let failure = failure.detail("job", shown.as_str());
        let failure = match unmet.last_answer.take() {
            Some(keys) => failure.detail("last_answer", keys),
            None => failure,
        };
        match failure.error.code {
            Code::Cancelled => {
                let wrong = unmet.wrong_path(poll).map(|wrong| format!("{wrong}; ")).unwrap_or_default();
                failure.hint(format!("{wrong}the server may still be working on the job `{shown}`"))
            }
            _ => failure,
        }
    })
}

/// What the answers were by which a job is not done. An expression that names a wrong field never comes true.
#[derive(Debug, Default)]
struct Unmet {
    /// The keys of the last one, if `poll.until` is declared.
    last_answer: Option<String>,
    /// What `poll.until` asked for and no answer had; `None` before the first.
    missing: Option<Vec<String>>,
}

impl Unmet {
    /// Adds an answer that does not have what is `missing`.
    fn add(&mut self, latest: &RunnerOutput, mut missing: Vec<String>) {
        self.last_answer = Some(there(latest));
        if let Some(earlier) = &self.missing {
            // What is there instead may differ.
            let what = |finding: &String| finding.split(';').next().map(str::to_owned);
            missing.retain(|finding| earlier.iter().any(|other| what(other) == what(finding)));
        }
        self.missing = Some(missing);
    }

    /// What is wrong with `poll.until`, if no answer had what it asks for.
    fn wrong_path(&self, poll: &Poll) -> Option<String> {
        let (until, missing) = (poll.until.as_deref()?, self.missing.as_ref()?);
        let first = missing.first()?;
        Some(format!(
            "no answer had what `poll.until`, `{}`, asks for: {first}; correct it in the subtool",
            until.trim()
        ))
    }
}

async fn wait(
    call: &HttpCall<'_>,
    poll: &Poll,
    job: &Url,
    mut pause: Duration,
    unmet: &mut Unmet,
) -> Result<RunnerOutput, Failure> {
    let target = RequestTarget::Job(job.clone());
    loop {
        call.until_cancelled(async {
            tokio::time::sleep(pause).await;
            Ok(())
        })
        .await?;
        let outcome = match call.send(&target).await {
            Ok(answer) => call.until_cancelled(response::output(call, answer)).await,
            Err(failure) => Err(failure),
        };
        let latest = match outcome {
            Ok(output) => output,
            Err(failure) if failure.retry != Retry::Never => {
                let asked = match failure.retry {
                    Retry::After(wait) => Some(wait),
                    Retry::Never | Retry::Later => None,
                };
                tracing::debug!(error = %failure.error.message, "asking for a job failed; it is asked again");
                pause = self::pause(poll, asked);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if is_over(call, poll, &latest, unmet).await? {
            return result(call, poll, latest).await;
        }
        if let OutputData::File { path, .. } = &latest.data
            && let Err(error) = tokio::fs::remove_file(path).await
        {
            tracing::warn!(%error, "failed to remove the state of a job");
        }
        pause = self::pause(poll, latest.facts.as_ref().and_then(|facts| facts.retry_after));
    }
}

fn pause(poll: &Poll, asked: Option<Duration>) -> Duration {
    poll.interval.get().max(asked.unwrap_or_default()).min(MAX_INTERVAL.max(poll.interval.get()))
}

/// Whether the job is done; if not, `unmet` has why. Fails if the job did.
async fn is_over(call: &HttpCall<'_>, poll: &Poll, latest: &RunnerOutput, unmet: &mut Unmet) -> Result<bool, Failure> {
    if let Some(expression) = &poll.failed {
        let reason = match evaluate(call, expression, latest).await? {
            Value::Null | Value::Bool(false) => None,
            Value::String(reason) => Some(format!("the job failed: {reason}")),
            _ => Some("the job failed".to_owned()),
        };
        if let Some(reason) = reason {
            let reason = protocol::excerpt::line(&reason, super::api_error::MAX_MESSAGE_CHARS);
            let failure = Failure::new(Code::ApiError, reason).detail("response", body(latest));
            return Err(failure.answered());
        }
    }
    let Some(until) = &poll.until else { return Ok(evaluate(call, UNTIL, latest).await? == Value::Bool(true)) };
    let (is_done, missing) = expression::evaluate_checked(call, until, data(latest), latest.facts.as_ref()).await?;
    if is_done == Value::Bool(true) {
        return Ok(true);
    }
    unmet.add(latest, missing);
    Ok(false)
}

async fn result(call: &HttpCall<'_>, poll: &Poll, latest: RunnerOutput) -> Result<RunnerOutput, Failure> {
    let Some(expression) = &poll.result else { return Ok(told_unfinished(poll, latest)) };
    let Some(url) = url(call, expression, &latest, &call.draft.address).await? else {
        let message =
            format!("the job is done, but `poll.result`, `{expression}`, finds no result; {}", there(&latest));
        let failure = Failure::new(Code::BadResponse, message).hint("correct `poll.result` of the subtool");
        return Err(failure.detail("response", body(&latest)));
    };
    let answer = call.send(&RequestTarget::Job(url)).await?;
    call.until_cancelled(response::output(call, answer)).await
}

/// Adds that the job says itself that it is not done, or failed, although nothing declares how to know that.
fn told_unfinished(poll: &Poll, latest: RunnerOutput) -> RunnerOutput {
    let OutputData::Json(data) = &latest.data else { return latest };
    let said = STATES.iter().filter(|_| poll.until.is_none()).find_map(|field| data[*field].as_str());
    let is_open = |state: &&str| {
        let word: String = state.chars().filter(char::is_ascii_alphabetic).collect();
        NOT_DONE.contains(&word.to_ascii_lowercase().as_str())
    };
    let Some(state) = said.filter(is_open) else { return latest };
    let message = format!("the server answered, but the job says that its state is `{state}`; ask for it again later");
    let told = json!({"finished": false, "state": state, "message": message});
    latest.with_meta("unfinished", told)
}

/// The keys of a response, for a message.
fn there(latest: &RunnerOutput) -> String {
    match &latest.data {
        OutputData::Json(data) => misplaced::keys(data),
        OutputData::File { .. } => "it is a file".to_owned(),
    }
}

/// Returns the URL that `expression` finds, relative to `base`.
async fn url(call: &HttpCall<'_>, expression: &str, latest: &RunnerOutput, base: &Url) -> Result<Option<Url>, Failure> {
    let found = match evaluate(call, expression, latest).await? {
        Value::Null => return Ok(None),
        Value::String(found) => found,
        other => other.to_string(),
    };
    let url = base.join(&endpoint(&found, &call.context.config.http.endpoints)).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none()
    });
    let message = || format!("`{found}` is not a usable URL of a job");
    url.map(Some).ok_or_else(|| Failure::new(Code::BadResponse, message()))
}

async fn evaluate(call: &HttpCall<'_>, expression: &str, latest: &RunnerOutput) -> Result<Value, Failure> {
    expression::evaluate(call, expression, data(latest), latest.facts.as_ref()).await
}

fn data(latest: &RunnerOutput) -> &Value {
    match &latest.data {
        OutputData::Json(data) => data,
        OutputData::File { .. } => &Value::Null,
    }
}

fn body(latest: &RunnerOutput) -> Value {
    match &latest.data {
        OutputData::Json(data) => super::api_error::shown(data),
        OutputData::File { .. } => Value::Null,
    }
}
