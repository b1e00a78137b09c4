//! What every call of a remote agent needs, whatever it speaks: where it is, who asks, what it may use, and what the
//! executor is told meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent_loop::model::reported_usage;
use ground::config::secret::{Secret, SecretName};
use ground::task::failure::{Failure, Retry};
use ground::task::notes::AttemptProgress;
use net::clients::{bytes, header, next_hop, send_failure};
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::excerpt;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;

use crate::{Invocation, RunnerContext, RunnerOutput};

/// How many agents started each other before the request.
pub(super) const DEPTH_HEADER: HeaderName = HeaderName::from_static("x-agent-depth");
/// The session that the request is for.
const SESSION_HEADER: HeaderName = HeaderName::from_static("x-agent-session");
/// How long a remote agent that was lost may take to come back.
const MAX_ABSENCE: Duration = Duration::from_secs(20);
/// The pauses between two attempts to find a lost agent.
const RETURN_PAUSES: [Duration; 4] =
    [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// How much of what a remote agent says is shown as an error or as progress.
const MAX_SHOWN_CHARS: usize = 500;

/// The limits that travel with a message.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct RemoteLimits {
    pub(super) steps: Option<u32>,
    pub(super) tokens: Option<u64>,
    pub(super) cost: Option<f64>,
    /// Those of the question that the call is made for: each agent counts its own.
    pub(super) calls: Option<u32>,
}

/// What is asked of a remote agent.
#[derive(Debug, Clone)]
pub(super) struct RemoteQuestion {
    pub(super) url: Url,
    /// Whether the address comes from the input, so that private addresses are refused.
    pub(super) guarded: bool,
    pub(super) prompt: String,
    pub(super) session: String,
    pub(super) model: Option<String>,
    pub(super) key: Option<SecretName>,
    pub(super) limits: RemoteLimits,
}

/// Where a lost attempt left the remote agent, so that a later one goes on with it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteJob {
    /// Under which the message was sent: an agent that knows it does not begin again.
    pub(super) message: String,
    /// The endpoint of an A2A agent; without it, our own API was called.
    pub(super) a2a: Option<RemoteEndpoint>,
    /// The task that the agent made of the message.
    pub(super) task: Option<String>,
}

/// Where an A2A agent takes calls, and what it can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteEndpoint {
    pub(super) url: Url,
    /// Whether it speaks version 0.3.
    pub(super) is_legacy: bool,
    pub(super) streams: bool,
    /// Whether a message that is sent again is not answered twice.
    pub(super) is_repeatable: bool,
}

/// One attempt to have a remote agent answer.
pub(super) struct RemoteCall<'a> {
    pub(super) question: RemoteQuestion,
    pub(super) invocation: &'a Invocation,
    pub(super) context: &'a RunnerContext,
    /// Where an earlier attempt left it.
    pub(super) left_at: Option<RemoteJob>,
    key: Option<Secret>,
    started: Instant,
    /// Whether the message may have reached the agent.
    sent: AtomicBool,
    /// Whether the agent waits for a human.
    waiting: watch::Sender<bool>,
    /// Where the agent can be asked to stop, once the message was sent.
    job: Mutex<Option<RemoteJob>>,
}

impl<'a> RemoteCall<'a> {
    pub(super) async fn new(
        question: RemoteQuestion,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
    ) -> Result<Self, Failure> {
        let left_at = match invocation.job.as_deref() {
            None => None,
            Some(job) => Some(serde_json::from_str(job).map_err(|error| {
                Failure::new(Code::Internal, format!("failed to read where the call was left: {error}"))
            })?),
        };
        let key = match &question.key {
            Some(name) => Some(context.secrets.get_for(name, &question.url).await?),
            None => None,
        };
        let sent = AtomicBool::new(left_at.is_some());
        let (started, waiting) = (Instant::now(), watch::Sender::new(false));
        let job = Mutex::new(left_at.clone());
        Ok(Self { question, invocation, context, left_at, key, started, sent, waiting, job })
    }

    /// What this attempt calls its message.
    pub(super) fn message_id(&self) -> String {
        match &self.left_at {
            Some(job) => job.message.clone(),
            None => format!("{}-{}", self.invocation.id, self.invocation.attempt),
        }
    }

    /// The agent in messages: its host.
    pub(super) fn agent(&self) -> String {
        let url = &self.question.url;
        match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        }
    }

    /// After how many seconds the agent should stop by itself: what is left of this attempt, and the time that it may wait
    /// for a human, in which our own clock stands still.
    pub(super) fn deadline(&self) -> Option<f64> {
        let left = self.invocation.time_limit?.saturating_sub(self.started.elapsed());
        Some((left + self.context.config.confirm.wait.get()).as_secs_f64())
    }

    /// Records that the message is about to be sent, and where it can be asked for.
    pub(super) async fn sending(&self, job: Option<RemoteJob>) -> Result<(), Failure> {
        if let Some(job) = job {
            self.note(job);
        }
        self.invocation.feedback.sending().await?;
        self.sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records where the agent's work can be asked for.
    pub(super) fn note(&self, job: RemoteJob) {
        self.invocation.feedback.job_accepted(&serde_json::to_string(&job).expect("a job is plain JSON"));
        *self.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
    }

    /// Where the agent's work can be asked for.
    pub(super) fn job(&self) -> Option<RemoteJob> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| self.was_sent())
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    /// Notes that the connection was never made.
    pub(super) fn not_sent(&self) {
        self.sent.store(false, Ordering::Relaxed);
    }

    /// A request to the agent, with its key.
    pub(super) async fn request(&self, method: Method, url: &Url) -> Result<RequestBuilder, Failure> {
        let mut headers = HeaderMap::new();
        let depth = self.invocation.caller.depth.saturating_add(1);
        headers.insert(DEPTH_HEADER, HeaderValue::from(u16::from(depth)));
        if let Ok(session) = HeaderValue::from_str(&self.question.session) {
            headers.insert(SESSION_HEADER, session);
        }
        if let (Some(key), Some(name)) = (&self.key, &self.question.key) {
            // The agent itself may name another address for what follows.
            self.context.secrets.may_go(name, url)?;
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .map_err(|_| Failure::new(Code::Rejected, "the key has characters that no header can carry"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = self.context.http.client_for(url, self.question.guarded).await?;
        Ok(client.request(method, url.clone()).headers(headers))
    }

    /// Sends a request. The failure says whether the agent can have got it.
    pub(super) async fn send(&self, request: RequestBuilder, url: &Url) -> Result<Response, Failure> {
        request.send().await.map_err(|error| send_failure(&error, url))
    }

    /// The whole body of a response, which must be JSON.
    pub(super) async fn json(&self, response: Response, url: &Url) -> Result<Value, Failure> {
        let body = bytes(response, self.context.config.executor.output_bytes, url).await?;
        serde_json::from_slice(&body).map_err(|_| {
            let text = excerpt::line(&String::from_utf8_lossy(&body), MAX_SHOWN_CHARS);
            self.no_sense(&format!("it answers `{text}`, which is not JSON"))
        })
    }

    /// The failure of a response with an error status, whose body was read.
    pub(super) fn refused(&self, status: StatusCode, headers: &HeaderMap, url: &Url, body: &Value) -> Failure {
        let agent = self.agent();
        if let Ok(Some(next)) = next_hop(url, status, headers) {
            let message = format!("the agent at {agent} answers that it is at `{next}`; messages follow no redirect");
            return Failure::new(Code::ApiError, message).hint("a human must write that address into the definition");
        }
        let error = &body["error"];
        let said = error["message"].as_str().or_else(|| error.as_str()).unwrap_or("it gives no reason");
        let said = excerpt::line(said, MAX_SHOWN_CHARS);
        let too_deep = Code::TooDeep.as_str();
        let code = if error["code"] == too_deep { Code::TooDeep } else { Code::ApiError };
        let message = format!("the agent at {agent} answers {}: {said}", status.as_u16());
        let failure = Failure::new(code, message).detail("http_status", status.as_u16());
        let failure = match (error["hint"].as_str(), status) {
            (Some(hint), _) => failure.hint(hint),
            (None, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) if self.question.key.is_none() => {
                failure.hint("it may want a key: a human sets `key` in the definition, as `secret:NAME`")
            }
            (None, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => failure.hint("a human must check the key"),
            (None, _) => failure,
        };
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let asked = header(headers, "retry-after").and_then(|seconds| seconds.parse().ok());
                failure.retry(asked.map_or(Retry::Later, |seconds| Retry::After(Duration::from_secs(seconds))))
            }
            // A gateway answers in place of the agent.
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => failure.retry(Retry::Later).effect_possible(),
            status if status.is_server_error() => failure.retry(Retry::Later).answered(),
            _ => failure,
        }
    }

    /// The failure of an answer that the protocol does not have.
    pub(super) fn no_sense(&self, what: &str) -> Failure {
        let failure = Failure::new(Code::BadResponse, format!("the agent at {} makes no sense: {what}", self.agent()));
        if self.was_sent() { failure.effect_possible() } else { failure }
    }

    pub(super) fn lost(&self, why: &str) -> Failure {
        let message = format!("the agent at {} was lost while it was at work: {why}", self.agent());
        Failure::new(Code::ConnectionLost, message).retry(Retry::Later).effect_possible()
    }

    /// Shows in the result file that the agent waits for a human, and stops the clock meanwhile.
    pub(super) fn waits_for_human(&self, words: &str) {
        self.waiting.send_replace(true);
        // Its words name the command that opens its page, which here would open another one.
        let words = self.shown(words);
        let words = words.split(": agent-magic-tool executor page").next().unwrap_or_default();
        let message =
            format!("The agent at {} waits for a human, on its own page and not on this one: {words}", self.agent());
        self.tell(Some(message));
    }

    /// Shows that the agent is at work.
    pub(super) fn goes_on(&self) {
        if self.waiting.send_replace(false) {
            self.tell(None);
        }
    }

    /// Shows what the agent is doing.
    pub(super) fn does(&self, words: &str) {
        if !*self.waiting.borrow() {
            self.tell(Some(format!("The agent at {}: {}", self.agent(), self.shown(words))));
        }
    }

    fn tell(&self, message: Option<String>) {
        self.invocation.feedback.progress(AttemptProgress { message, ..AttemptProgress::default() });
    }

    /// What the agent says, shortened and without secrets.
    fn shown(&self, text: &str) -> String {
        let mut text = self.context.secrets.redact(text).into_owned();
        self.invocation.hidden.redact(&mut text);
        excerpt::line(&text, MAX_SHOWN_CHARS)
    }

    /// Keeps the attempt's clock still while the agent waits for a human, for as long as a confirmation of ours would be
    /// waited for in all. Never returns.
    pub(super) async fn keep_clock(&self) {
        let (mut left, mut waiting) = (self.context.config.confirm.wait.get(), self.waiting.subscribe());
        let becomes = async |waiting: &mut watch::Receiver<bool>, wanted: bool| {
            // `self` keeps the channel open.
            drop(waiting.wait_for(|now| *now == wanted).await);
        };
        loop {
            becomes(&mut waiting, true).await;
            let (pause, since) = (self.invocation.clock.pause(), Instant::now());
            tokio::select! {
                () = becomes(&mut waiting, false) => drop(pause),
                () = tokio::time::sleep(left) => {
                    drop(pause);
                    becomes(&mut waiting, false).await;
                }
            }
            left = left.saturating_sub(since.elapsed());
        }
    }

    /// The output of a call.
    pub(super) fn output(&self, answer: RemoteAnswer) -> Result<RunnerOutput, Failure> {
        let RemoteAnswer { mut data, told } = answer;
        let termination = told["termination"].as_str().unwrap_or("completed").to_owned();
        let is_empty = data.is_null() || data.as_str().is_some_and(|text| text.trim().is_empty());
        if is_empty {
            let message = format!("the agent at {} ended without an answer: {termination}", self.agent());
            let failure = Failure::new(Code::ModelFailed, message).answered();
            return Err(spent(failure, &told["usage"]));
        }
        let truncated = told["truncated"] == true;
        if let Value::String(text) = &mut data
            && truncated
        {
            let whole = text.trim_end();
            *text =
                format!("{whole}\n\n[This answer is incomplete: the remote agent stopped at a limit ({termination}).]");
        }
        let mut meta = Map::new();
        meta.insert("agent".to_owned(), self.agent().into());
        for name in ["model", "protocol"] {
            if let Some(value) = told.get(name).filter(|value| !value.is_null()) {
                meta.insert(name.to_owned(), value.clone());
            }
        }
        meta.extend(reported_usage::checked(&told["usage"]).map(|usage| ("usage".to_owned(), usage)));
        meta.insert("termination".to_owned(), termination.into());
        if truncated {
            meta.insert("truncated".to_owned(), true.into());
        }
        meta.insert("session".to_owned(), self.question.session.as_str().into());
        let mut output = RunnerOutput::json(data);
        output.meta = meta;
        Ok(output)
    }
}

/// The failure with what the agent says that it spent.
pub(super) fn spent(failure: Failure, usage: &Value) -> Failure {
    match reported_usage::checked(usage) {
        Some(usage) => failure.detail("usage", usage),
        None => failure,
    }
}

/// What a remote agent answered.
#[derive(Debug)]
pub(super) struct RemoteAnswer {
    pub(super) data: Value,
    /// What it said beside it: `termination`, `truncated`, `model`, `usage`.
    pub(super) told: Value,
}

/// Waits between attempts to find an agent that was lost.
#[derive(Debug, Default)]
pub(super) struct ReturnWait {
    since: Option<Instant>,
    attempts: usize,
}

impl ReturnWait {
    /// Waits a little. False if the agent has been away for too long.
    pub(super) async fn again(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= MAX_ABSENCE {
            return false;
        }
        let pause = RETURN_PAUSES[self.attempts.min(RETURN_PAUSES.len() - 1)];
        self.attempts += 1;
        tokio::time::sleep(pause).await;
        true
    }

    /// The agent is there.
    pub(super) fn found(&mut self) {
        *self = Self::default();
    }
}

/// The session of a caller with a remote agent: the same each time.
pub(super) fn stable_session(caller: &Caller, url: &Url, key: Option<&SecretName>) -> String {
    let own = match (&caller.session, &caller.folder) {
        (Some(session), _) => session.clone(),
        (None, Some(folder)) => format!("{} {}", caller.uid, folder.display()),
        (None, None) => caller.uid.to_string(),
    };
    let named = json!([own, url.as_str(), key.map(SecretName::as_str)]);
    let digest = Sha256::digest(named.to_string().as_bytes());
    let [a, b, c, d, ..] = digest.as_slice() else { unreachable!("a digest has 32 bytes") };
    format!("swarm-{a:02x}{b:02x}{c:02x}{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_that_of_the_caller_the_address_and_the_key() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let caller = |session: &str| Caller { session: Some(session.to_owned()), ..Caller::default() };
        let key: SecretName = "secret:agent".parse().or_else(|_| "agent".parse()).expect("a name");
        let first = stable_session(&caller("101"), &url("https://a.example/"), None);
        assert_eq!(first, stable_session(&caller("101"), &url("https://a.example/"), None));
        assert!(first.starts_with("swarm-") && first.len() == 14, "{first}");
        for other in [
            stable_session(&caller("102"), &url("https://a.example/"), None),
            stable_session(&caller("101"), &url("https://b.example/"), None),
            stable_session(&caller("101"), &url("https://a.example/"), Some(&key)),
        ] {
            assert_ne!(first, other);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_agent_is_looked_for_for_a_while() {
        let (mut wait, started) = (ReturnWait::default(), Instant::now());
        while wait.again().await {}
        assert!(started.elapsed() >= MAX_ABSENCE && started.elapsed() < 2 * MAX_ABSENCE, "{:?}", started.elapsed());
        wait.found();
        assert!(wait.again().await);
    }
}
