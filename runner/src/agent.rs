//! The `agent` runner: a sub-agent with its own prompt, budget and tool scope, or with `url`, an agent elsewhere.
//!
//! A sub-agent is our agent loop in its own process, `agent-magic-tool agent --delegated`. It reads its brief from
//! standard input and is killed with its process group. For the tasks it runs it is a caller like any other, one
//! level deeper than its own caller. Its tool scope is part of each of its requests, and the intake enforces it.
//! The loop itself is in `agent-loop/src/`.
//!
//! A remote agent is called over our own HTTP API ([`api`]) or over A2A ([`a2a`]). The depth travels with each call, and
//! a call that would be too deep is refused before anything is sent.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agent_loop::brief::AgentBrief;
use agent_loop::model::provider::client::trust_of;
use agent_loop::model::registry::ModelRegistry;
use definition::run::agent::{Agent, AgentProtocol, usable};
use definition::run::http::endpoint;
use futures_util::future::BoxFuture;
use ground::base::template;
use ground::config::secret::SecretName;
use protocol::caller::session_label;
use protocol::data_class::DataClass;
use protocol::error::ErrorBody;
use protocol::paths::SESSION;
use protocol::tool_scope::{InvalidPattern, ToolScope};
use serde_json::{Map, json};
use tokio::process::Command;
use url::Url;

use super::delegation::{Delegation, too_deep};
use super::process::group::{self, ProgramExit, StopCause};
use super::process::held::HeldFiles;
use super::{
    CancellationToken, Code, Config, Deserialize, Failure, HeardClass, Invocation, Runner, RunnerContext, RunnerOutput,
    Value, fields,
};

mod a2a;
mod api;
mod events;
mod remote;
mod task;

use remote::{RemoteCall, RemoteJob, RemoteLimits, RemoteQuestion};

/// The largest report that a sub-agent may print.
const MAX_BYTES: u64 = 8 << 20;
/// How long a remote agent may take to hear that it is to stop.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest id of a remote session.
const MAX_SESSION_CHARS: usize = 128;

/// What the agent loop prints when it ends.
#[derive(Debug, Deserialize)]
struct AgentReport {
    answer: String,
    termination: String,
    truncated: bool,
    session_id: String,
    session: u32,
    model: String,
    session_usage: Value,
    /// The class of what was in the conversation.
    data_class: DataClass,
    open: Vec<Value>,
}

fn filled(agent: &Agent, invocation: &Invocation) -> Result<(AgentBrief, ToolScope), Failure> {
    let values = fields::FieldValues::of(invocation);
    let rejected = |error: InvalidPattern| Failure::new(Code::Rejected, error.to_string());
    let tool_scope = match values.value(agent.subtools.as_ref())? {
        None => invocation.caller.tool_scope.clone(),
        Some(patterns) => {
            let patterns: Vec<String> = serde_json::from_value(patterns)
                .map_err(|_| fields::wrong_type("subtools", "list of names and globs"))?;
            // Whether there is a profile of that name is not for the caller to find out.
            if let Some(pattern) = patterns.iter().find(|pattern| pattern.starts_with('@')) {
                let message = format!("`subtools` has names and globs of subtools, and `{pattern}` is neither");
                return Err(Failure::new(Code::Rejected, message));
            }
            let narrowed = invocation.caller.tool_scope.narrowed(patterns);
            narrowed.map_err(rejected)?
        }
    };
    let tool_scope = match &agent.profile {
        Some(profile) => tool_scope.within_profile(profile).map_err(rejected)?,
        None => tool_scope,
    };
    let prompt = values.text(Some(&agent.prompt))?.unwrap_or_default();
    if prompt.trim().is_empty() {
        return Err(Failure::new(Code::Rejected, "there is nothing to do: the prompt is empty"));
    }
    let steps = values.whole_number("steps", agent.steps.as_ref())?;
    let brief = AgentBrief {
        prompt,
        system: values.text(agent.system.as_deref())?,
        model: values.text(agent.model.as_deref())?,
        steps: steps.map(|steps| u32::try_from(steps).unwrap_or(u32::MAX)),
        tokens: values.whole_number("tokens", agent.tokens.as_ref())?,
        cost: values.number("cost", agent.cost.as_ref())?,
        unattended: invocation.caller.unattended,
    };
    Ok((brief, tool_scope))
}

/// What is asked of the remote agent at `url`.
fn question_to(agent: &Agent, url: &str, invocation: &Invocation, config: &Config) -> Result<RemoteQuestion, Failure> {
    let (brief, _) = filled(agent, invocation)?;
    let values = invocation.values();
    let filled = if template::is_reference(url) {
        fields::FieldValues::of(invocation).text(Some(url))?.unwrap_or_default()
    } else {
        values.url_part(url)?
    };
    let url_of_agent = usable(&endpoint(&filled, &config.http.endpoints))?;
    let session = match fields::FieldValues::of(invocation).text(agent.session.as_deref())? {
        Some(session) => session,
        None => remote::stable_session(&invocation.caller, &url_of_agent, agent.key.as_ref()),
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if session.is_empty() || session.len() > MAX_SESSION_CHARS || !session.chars().all(is_word) {
        let message = format!("a session's id has 1 to {MAX_SESSION_CHARS} of the characters a-z A-Z 0-9 - _ . : @");
        return Err(Failure::new(Code::Rejected, message).hint("leave it out: the caller then has one session"));
    }
    Ok(RemoteQuestion {
        url: url_of_agent,
        guarded: !template::is_constant(url),
        prompt: brief.prompt,
        session,
        model: brief.model,
        key: agent.key.clone(),
        limits: RemoteLimits {
            steps: brief.steps,
            tokens: brief.tokens,
            cost: brief.cost,
            calls: invocation.caller.call_budget.as_ref().map(|budget| budget.calls),
        },
    })
}

async fn ask_remotely(
    agent: &Agent,
    call: &RemoteCall<'_>,
    cancel: &CancellationToken,
) -> Result<remote::RemoteAnswer, Failure> {
    if let Some(job) = &call.left_at {
        return match job.a2a.clone() {
            Some(endpoint) => a2a::ask(call, endpoint).await,
            None => api::ask(call).await,
        };
    }
    let endpoint = match agent.protocol {
        Some(AgentProtocol::Api) => None,
        Some(AgentProtocol::A2a) => Some(a2a::find(call, cancel).await?.unwrap_or_else(|| a2a::without_card(call))),
        None => a2a::find(call, cancel).await?,
    };
    match endpoint {
        Some(endpoint) => a2a::ask(call, endpoint).await,
        None => api::ask(call).await,
    }
}

/// Has the remote agent at `url` do it.
async fn perform_remotely(
    agent: &Agent,
    url: &str,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let question = question_to(agent, url, invocation, &context.config)?;
    let call = RemoteCall::new(question, invocation, context).await?;
    if call.left_at.is_none() {
        // Until the message is sent, a lost attempt has done nothing.
        invocation.feedback.unsent();
    }
    let outcome = tokio::select! {
        biased;
        () = cancel.cancelled() => {
            stop_remotely(&call).await;
            let failure = Failure::new(Code::Cancelled, format!("cancelled while {} was asked", call.agent()));
            return Err(if call.was_sent() { failure.effect_possible() } else { failure });
        }
        () = call.keep_clock() => unreachable!("it never returns"),
        outcome = ask_remotely(agent, &call, cancel) => outcome,
    };
    outcome.and_then(|answer| call.output(answer))
}

/// Tells the agent that its answer is not wanted anymore. An executor that stops leaves the agent at work: a later one
/// goes on with it.
async fn stop_remotely(call: &RemoteCall<'_>) {
    let Some(job) = call.job() else { return };
    if call.invocation.shutdown.is_shutdown() {
        return;
    }
    let stopping = async {
        match &job {
            RemoteJob { a2a: Some(_), .. } => a2a::cancel(call, &job).await,
            RemoteJob { a2a: None, .. } => api::cancel(call).await,
        }
    };
    match tokio::time::timeout(CANCEL_TIMEOUT, stopping).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => tracing::info!(error = failure.error.message, "a remote agent was not stopped"),
        Err(_) => tracing::info!(agent = call.agent(), "a remote agent did not hear that it is to stop"),
    }
}

impl Runner for Agent {
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        if let Some(url) = &self.url {
            let question = question_to(self, url, invocation, config)?;
            let mut plan =
                json!({"url": question.url.as_str(), "session": question.session, "prompt": question.prompt});
            if let Some(key) = &self.key {
                plan["key"] = json!(key);
            }
            if let Some(model) = question.model {
                plan["model"] = model.into();
            }
            plan["limits"] = json!(question.limits);
            return Ok(plan);
        }
        let (mut brief, tool_scope) = filled(self, invocation)?;
        brief.model = brief.model.or_else(|| Some(config.agent.model.clone()));
        let mut plan = serde_json::to_value(brief).expect("a brief is plain JSON");
        plan["subtools"] = if tool_scope.is_everything() { "all".into() } else { json!(tool_scope) };
        Ok(plan)
    }

    /// The key of the agent that it asks, or of the model that answers it, and where that is.
    fn sent_secrets(&self, invocation: &Invocation, config: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        if let Some(url) = &self.url {
            let RemoteQuestion { url, key, .. } = question_to(self, url, invocation, config)?;
            return Ok(key.map(|key| (key, url)).into_iter().collect());
        }
        let (brief, _) = filled(self, invocation)?;
        let chosen = ModelRegistry::new(config).choose(brief.model.as_deref()).ok();
        Ok(chosen.and_then(|chosen| chosen.sent_key()).into_iter().collect())
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(perform(self, invocation, context, cancel))
    }
}

async fn perform(
    agent: &Agent,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    if let Some(error) = too_deep("a sub-agent", invocation.caller.depth, &context.config) {
        return Err(error.into());
    }
    if let Some(url) = &agent.url {
        return Box::pin(perform_remotely(agent, url, invocation, context, cancel)).await;
    }
    let (brief, tool_scope) = filled(agent, invocation)?;
    let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
    // An unknown model is reported before the process is started.
    let chosen = ModelRegistry::new(&context.config).choose_for_delegation(brief.model.as_deref())?;
    invocation.check_trust(&chosen.name, trust_of(&chosen.model))?;
    if cancel.is_cancelled() {
        return Err(Failure::new(Code::Cancelled, "cancelled before the sub-agent was started"));
    }
    let cannot_start =
        |error: std::io::Error| Failure::new(Code::CannotStart, format!("failed to start the sub-agent: {error}"));
    let command = command(invocation, &tool_scope, delegation);
    let brief = serde_json::to_string(&brief).expect("a brief is plain JSON");
    let exit = group::run(command, HeldFiles::default(), Some(brief), MAX_BYTES, cancel).await.map_err(cannot_start)?;
    let outcome = outcome(&exit, &delegation.sessions, &invocation.heard);
    if exit.stopped.is_some() {
        delegation.abandon(invocation, &session(invocation)).await;
    }
    outcome
}

/// The session id that the tasks of a sub-agent carry.
fn session(invocation: &Invocation) -> String {
    session_label(invocation.caller.client(), None, &invocation.id)
}

/// The command that starts this program as a sub-agent. It inherits the whole environment, since it reads the keys
/// of its models itself.
fn command(invocation: &Invocation, tool_scope: &ToolScope, delegation: &Delegation) -> Command {
    let mut command = Command::new(&delegation.program);
    command.args(["agent", "--delegated"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    delegation.act_for(&mut command, invocation, tool_scope);
    command.env(SESSION, session(invocation));
    command
}

fn outcome(exit: &ProgramExit, sessions: &Path, heard: &HeardClass) -> Result<RunnerOutput, Failure> {
    match exit.stopped {
        Some(StopCause::Cancelled) => {
            return Err(Failure::new(Code::Cancelled, "cancelled while the sub-agent was running").effect_possible());
        }
        Some(StopCause::TooMuchOutput(stream)) => {
            return Err(Failure::new(
                Code::ResponseTooLarge,
                format!("the sub-agent printed more than {MAX_BYTES} bytes to {stream}"),
            )
            .effect_possible());
        }
        None => {}
    }
    let Ok(report) = serde_json::from_slice::<AgentReport>(&exit.stdout) else { return Err(failure(&exit.stderr)) };
    heard.hear(Some(report.data_class));
    if report.answer.trim().is_empty() {
        let message = format!("the sub-agent ended without an answer: {}", report.termination);
        let failure = Failure::new(Code::ModelFailed, message).answered();
        return Err(failure.detail("open", report.open).detail("usage", report.session_usage));
    }
    let AgentReport { mut answer, termination, truncated, session, session_id, model, session_usage, open, .. } =
        report;
    if truncated {
        answer = format!(
            "{}\n\n[This answer is incomplete: the sub-agent stopped at a limit ({termination}).]",
            answer.trim_end()
        );
    }
    let journal: PathBuf = sessions.join(format!("{session}.jsonl"));
    let mut meta = Map::new();
    meta.insert("model".to_owned(), model.into());
    meta.insert("usage".to_owned(), session_usage);
    meta.insert("termination".to_owned(), termination.into());
    if truncated {
        meta.insert("truncated".to_owned(), true.into());
    }
    meta.insert("session".to_owned(), session_id.into());
    meta.insert("journal".to_owned(), journal.to_string_lossy().into());
    if !open.is_empty() {
        meta.insert("open".to_owned(), open.into());
    }
    let mut output = RunnerOutput::json(Value::String(answer));
    output.meta = meta;
    Ok(output)
}

/// The failure of a loop that has no answer: the error that it printed in the last line of standard error.
fn failure(stderr: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct PrintedError {
        error: ErrorBody,
    }
    let stderr = String::from_utf8_lossy(stderr);
    let printed = stderr.lines().rev().find_map(|line| serde_json::from_str::<PrintedError>(line).ok());
    // It may have run tasks before it failed.
    match printed {
        Some(PrintedError { error }) => {
            let message = format!("the sub-agent failed: {}", error.message);
            Failure::from(ErrorBody { message, ..error }).answered()
        }
        None => {
            Failure::new(Code::ProcessFailed, "the sub-agent ended without an answer or an error").effect_possible()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(definition: Value) -> Agent {
        serde_json::from_value(definition).expect("a runner")
    }

    fn invocation(input: Value) -> Invocation {
        Invocation { input: serde_json::from_value(input).expect("an object"), ..Invocation::default() }
    }

    #[test]
    fn the_input_fills_the_brief_and_the_tool_scope_never_exceeds_the_callers() {
        let run =
            agent(json!({"prompt": "Do: {{ work }}", "subtools": "{{ subtools }}", "steps": 5, "cost": "{{ cost }}"}));
        let mut invocation = invocation(json!({"work": "count", "subtools": ["count_*"], "cost": 0.5}));
        invocation.caller.tool_scope = ToolScope::default().narrowed(vec!["*_words".to_owned()]).expect("a glob");
        let (brief, tool_scope) = filled(&run, &invocation).expect("filled");
        let expected =
            AgentBrief { prompt: "Do: count".to_owned(), steps: Some(5), cost: Some(0.5), ..AgentBrief::default() };
        assert_eq!(brief, expected);
        assert!(
            tool_scope.covers("count_words") && !tool_scope.covers("count_lines") && !tool_scope.covers("other_words")
        );
        invocation.input.remove("subtools");
        assert_eq!(filled(&run, &invocation).expect("filled").1, invocation.caller.tool_scope);
    }

    #[test]
    fn a_remote_agent_has_a_checked_address_and_session() {
        let run = agent(json!({"prompt": "x", "url": "https://{{ host }}.example.com", "session": "{{ session }}"}));
        let asked =
            |input: Value| question_to(&run, "https://{{ host }}.example.com", &invocation(input), &Config::default());
        let question = asked(json!({"host": "a"})).expect("a question");
        assert!(question.guarded && question.session.starts_with("swarm-"), "{question:?}");
        for wrong in [json!({"host": "a", "session": "a/b"}), json!({"host": "a", "session": ""})] {
            assert_eq!(asked(wrong.clone()).expect_err("refused").error.code, Code::Rejected, "{wrong}");
        }
        assert_eq!(asked(json!({"host": "evil.org/"})).expect_err("refused").error.code, Code::Rejected);
    }

    #[test]
    fn an_incomplete_answer_is_marked() {
        let report = json!({"answer": "Two.", "termination": "max_iterations", "truncated": true, "session": 101,
            "session_id": "s", "model": "m", "usage": {}, "session_usage": {"requests": 3},
            "data_class": "confidential", "open": []});
        let exit =
            ProgramExit { status: None, stdout: report.to_string().into_bytes(), stderr: Vec::new(), stopped: None };
        let heard = HeardClass::default();
        let output = outcome(&exit, Path::new("/state"), &heard).expect("an answer");
        assert_eq!(heard.most(), Some(DataClass::Confidential));
        let super::super::OutputData::Json(data) = output.data else { panic!("the data is not JSON") };
        assert_eq!(data, "Two.\n\n[This answer is incomplete: the sub-agent stopped at a limit (max_iterations).]");
        assert_eq!((&output.meta["truncated"], &output.meta["journal"]), (&json!(true), &json!("/state/101.jsonl")));
    }

    #[test]
    fn the_error_of_a_sub_agent_keeps_its_code() {
        let stderr = b"note: x\n{\"error\":{\"code\":\"model-failed\",\"message\":\"no\",\"hint\":\"h\"}}\n".to_vec();
        let exit = ProgramExit { status: None, stdout: Vec::new(), stderr, stopped: None };
        let heard = HeardClass::default();
        let failure = outcome(&exit, Path::new("/state"), &heard).expect_err("an error");
        assert_eq!(
            (failure.error.code, failure.error.message.as_str()),
            (Code::ModelFailed, "the sub-agent failed: no")
        );
    }
}
