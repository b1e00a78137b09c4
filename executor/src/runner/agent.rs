//! The `agent` runner: a sub-agent with its own question, its own budget and a catalog of its own.
//!
//! It is our own loop in a process of its own, `agent-magic-tool agent --delegated`: told what to do on
//! standard input, killed with its process group, and a caller like any other for what it runs itself, one
//! deeper than its own caller. What it may use is part of each of its requests, where the desk enforces it.
//! How a loop works is `agent/`; what a process's end means to a program's caller is `process/outcome.rs`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use protocol::error::ErrorBody;
use protocol::paths::{DEPTH, SESSION, TOOL_SCOPE};
use protocol::tool_scope::ToolScope;
use serde_json::{Map, json};
use tokio::process::Command;

use super::delegation::{Delegation, too_deep};
use super::process::group::{self, Ended, Stopped};
use super::{
    CancellationToken, Code, Config, DefinitionMistake, Deserialize, Failure, Invocation, JsonSchema, Runner,
    RunnerContext, RunnerOutput, Serialize, Value,
};
use crate::base::template::{self, TemplateValues};

/// The longest answer, with all that is told of it.
const MAX_BYTES: u64 = 8 << 20;

/// A sub-agent.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// What it is to do: a template.
    pub prompt: String,
    /// Stands at the end of its system prompt: a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A name in `[models]`: a template. Absent, or the input has no such field: the one of `[agent]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The names and globs of the subtools that it may use, of those that its caller may: a list, or a
    /// template that gives one. Absent: all of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["gmail_*", "ask_user"])]
    pub subtools: Option<Value>,
    /// How many requests it may make at most: a number, or a template. Absent: as `[agent]` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Value>,
    /// How many tokens it may use up at most, beside the limit in `[agent]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Value>,
    /// How much it may cost at most, beside the limit in `[agent]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Value>,
}

/// What a sub-agent is told: one JSON document on its standard input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentBrief {
    pub prompt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// What came of it, as the loop prints it.
#[derive(Debug, Deserialize)]
struct AgentReport {
    answer: String,
    termination: String,
    truncated: bool,
    session_id: String,
    session: u32,
    model: String,
    session_usage: Value,
    open: Vec<Value>,
}

impl Agent {
    fn filled(&self, invocation: &Invocation) -> Result<(AgentBrief, ToolScope), Failure> {
        let scope = TemplateValues::of_input(&invocation.input);
        let value = |template: &Option<Value>| -> Result<Option<Value>, Failure> {
            let filled = template.as_ref().map(|template| scope.value(template)).transpose()?;
            Ok(filled.flatten().filter(|value| !value.is_null()))
        };
        let text = |template: &Option<String>| -> Result<Option<String>, Failure> {
            let filled = value(&template.clone().map(Value::String))?;
            Ok(filled.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        };
        let unfit = |field: &str, kind: &str| Failure::new(Code::Rejected, format!("`{field}` is no {kind}"));
        let count = |field: &str, template: &Option<Value>| -> Result<Option<u64>, Failure> {
            value(template)?.map(|value| value.as_u64().ok_or_else(|| unfit(field, "whole number"))).transpose()
        };
        let tool_scope = match value(&self.subtools)? {
            None => invocation.caller.tool_scope.clone(),
            Some(patterns) => {
                let patterns =
                    serde_json::from_value(patterns).map_err(|_| unfit("subtools", "list of names and globs"))?;
                let narrowed = invocation.caller.tool_scope.narrowed(patterns);
                narrowed.map_err(|error| Failure::new(Code::Rejected, error.to_string()))?
            }
        };
        let prompt = text(&Some(self.prompt.clone()))?.unwrap_or_default();
        if prompt.trim().is_empty() {
            return Err(Failure::new(Code::Rejected, "there is nothing to do: the prompt is empty"));
        }
        let cost = value(&self.cost)?.map(|value| value.as_f64().ok_or_else(|| unfit("cost", "number"))).transpose()?;
        let brief = AgentBrief {
            prompt,
            system: text(&self.system)?,
            model: text(&self.model)?,
            steps: count("steps", &self.steps)?.map(|steps| u32::try_from(steps).unwrap_or(u32::MAX)),
            tokens: count("tokens", &self.tokens)?,
            cost,
        };
        Ok((brief, tool_scope))
    }
}

impl Runner for Agent {
    fn check(&self) -> Result<(), DefinitionMistake> {
        let text = |template: &Option<String>| template.clone().map(Value::String);
        let templates = [
            ("prompt", Some(Value::String(self.prompt.clone()))),
            ("system", text(&self.system)),
            ("model", text(&self.model)),
            ("subtools", self.subtools.clone()),
            ("steps", self.steps.clone()),
            ("tokens", self.tokens.clone()),
            ("cost", self.cost.clone()),
        ];
        for (place, template) in templates {
            if let Some(template) = template {
                template::check_value(&template).map_err(|error| DefinitionMistake::new(place, &error))?;
            }
        }
        match &self.subtools {
            None | Some(Value::String(_)) => Ok(()),
            Some(list) => {
                let wrong = |problem: &dyn ToString| DefinitionMistake::new("subtools", &problem.to_string());
                let patterns: Vec<String> = serde_json::from_value(list.clone())
                    .map_err(|_| wrong(&"it is a list of names and globs, or a template that gives one"))?;
                let constant = patterns.into_iter().filter(|pattern| template::is_constant(pattern)).collect();
                ToolScope::default().narrowed(constant).map(drop).map_err(|error| wrong(&error))
            }
        }
    }

    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        let (mut brief, tool_scope) = self.filled(invocation)?;
        brief.model = brief.model.or_else(|| Some(config.agent.model.clone()));
        let mut plan = serde_json::to_value(brief).expect("a brief is plain JSON");
        plan["subtools"] = if tool_scope.is_everything() { "all".into() } else { json!(tool_scope) };
        Ok(plan)
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        if let Some(error) = too_deep("a sub-agent", invocation.caller.depth, &context.config) {
            return Err(error.into());
        }
        let (brief, tool_scope) = self.filled(invocation)?;
        let delegation = context.delegation.as_ref().ok_or_else(Delegation::is_missing)?;
        // Before a process is started for nothing.
        crate::model::registry::ModelRegistry::new(&context.config).choose(brief.model.as_deref())?;
        if cancel.is_cancelled() {
            return Err(Failure::new(Code::Cancelled, "the sub-agent was not started"));
        }
        let cannot = |error: std::io::Error| {
            Failure::new(Code::CannotStart, format!("the sub-agent could not be started: {error}"))
        };
        let command = command(invocation, &tool_scope, delegation);
        let brief = serde_json::to_string(&brief).expect("a brief is plain JSON");
        let ended = group::run(command, Some(brief), MAX_BYTES, cancel).await.map_err(cannot)?;
        let outcome = outcome(&ended, &delegation.sessions);
        if ended.stopped.is_some() {
            delegation.abandon(invocation, &session(invocation)).await;
        }
        outcome
    }
}

/// What a sub-agent's tasks carry as their session.
fn session(invocation: &Invocation) -> String {
    format!("agent-{}", invocation.id)
}

/// Our own program as a sub-agent. It has all of our environment: it opens the keys of its models itself.
fn command(invocation: &Invocation, tool_scope: &ToolScope, delegation: &Delegation) -> Command {
    let mut command = Command::new(&delegation.program);
    command
        .args(["agent", "--delegated"])
        .envs(delegation.environment.iter().map(|(name, value)| (name, value)))
        .env(DEPTH, invocation.caller.depth.saturating_add(1).to_string())
        .env(SESSION, session(invocation))
        .current_dir(invocation.caller.folder.as_deref().unwrap_or(Path::new("/")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if tool_scope.is_everything() {
        command.env_remove(TOOL_SCOPE);
    } else {
        command.env(TOOL_SCOPE, tool_scope.written());
    }
    command
}

fn outcome(ended: &Ended, sessions: &Path) -> Result<RunnerOutput, Failure> {
    match ended.stopped {
        Some(Stopped::Cancelled) => {
            return Err(Failure::new(Code::Cancelled, "the sub-agent was stopped while it worked").effect_possible());
        }
        Some(Stopped::TooMuch(stream)) => {
            return Err(Failure::new(
                Code::ResponseTooLarge,
                format!("the sub-agent printed more than {MAX_BYTES} bytes to {stream}"),
            )
            .effect_possible());
        }
        None => {}
    }
    let Ok(told) = serde_json::from_slice::<AgentReport>(&ended.stdout) else { return Err(failure(&ended.stderr)) };
    if told.answer.trim().is_empty() {
        let message = format!("the sub-agent ended without an answer: {}", told.termination);
        return Err(Failure::new(Code::ModelFailed, message).effect_possible().detail("open", told.open));
    }
    let AgentReport { mut answer, termination, truncated, session, session_id, model, session_usage, open } = told;
    if truncated {
        answer = format!(
            "{}\n\n[This answer is not whole: the sub-agent stopped at a limit ({termination}).]",
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
    let mut success = RunnerOutput::json(Value::String(answer));
    success.meta = meta;
    Ok(success)
}

/// What the loop says when it has no answer: its error, in the last line of its standard error.
fn failure(stderr: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Printed {
        error: ErrorBody,
    }
    let said = String::from_utf8_lossy(stderr);
    let printed = said.lines().rev().find_map(|line| serde_json::from_str::<Printed>(line).ok());
    let failure = match printed {
        Some(Printed { error }) => {
            let message = format!("the sub-agent could not answer: {}", error.message);
            Failure::from(ErrorBody { message, ..error })
        }
        None => Failure::new(Code::ProcessFailed, "the sub-agent ended without a word"),
    };
    // It may have run something before.
    failure.effect_possible()
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
    fn it_is_told_what_the_input_says_and_gets_no_more_than_its_caller_has() {
        let run =
            agent(json!({"prompt": "Do: {{ task }}", "subtools": "{{ subtools }}", "steps": 5, "cost": "{{ cost }}"}));
        run.check().expect("sound");
        let mut invocation = invocation(json!({"task": "count", "subtools": ["count_*"], "cost": 0.5}));
        invocation.caller.tool_scope = ToolScope::default().narrowed(vec!["*_words".to_owned()]).expect("a glob");
        let (brief, tool_scope) = run.filled(&invocation).expect("filled");
        let expected =
            AgentBrief { prompt: "Do: count".to_owned(), steps: Some(5), cost: Some(0.5), ..AgentBrief::default() };
        assert_eq!(brief, expected);
        assert!(
            tool_scope.covers("count_words") && !tool_scope.covers("count_lines") && !tool_scope.covers("other_words")
        );
        invocation.input.remove("subtools");
        assert_eq!(run.filled(&invocation).expect("filled").1, invocation.caller.tool_scope);
    }

    #[test]
    fn a_list_that_is_none_is_a_mistake() {
        for subtools in [json!(5), json!([5]), json!(["a[b"]), json!("{{")] {
            assert!(agent(json!({"prompt": "x", "subtools": subtools})).check().is_err());
        }
        agent(json!({"prompt": "x", "subtools": ["gmail_*", "{{ more }}"]})).check().expect("sound");
    }

    #[test]
    fn an_answer_that_is_not_whole_says_so() {
        let told = json!({"answer": "Two.", "termination": "max_iterations", "truncated": true, "session": 101,
            "session_id": "s", "model": "m", "usage": {}, "session_usage": {"requests": 3}, "open": []});
        let ended = Ended { status: None, stdout: told.to_string().into_bytes(), stderr: Vec::new(), stopped: None };
        let success = outcome(&ended, Path::new("/state")).expect("an answer");
        let super::super::OutputData::Json(data) = success.data else { panic!("JSON") };
        assert_eq!(data, "Two.\n\n[This answer is not whole: the sub-agent stopped at a limit (max_iterations).]");
        assert_eq!((&success.meta["truncated"], &success.meta["journal"]), (&json!(true), &json!("/state/101.jsonl")));
    }

    #[test]
    fn its_error_keeps_its_code() {
        let stderr = b"note: x\n{\"error\":{\"code\":\"model-failed\",\"message\":\"no\",\"hint\":\"h\"}}\n".to_vec();
        let ended = Ended { status: None, stdout: Vec::new(), stderr, stopped: None };
        let failure = outcome(&ended, Path::new("/state")).expect_err("an error");
        assert_eq!(
            (failure.error.code, failure.error.message.as_str()),
            (Code::ModelFailed, "the sub-agent could not answer: no")
        );
    }
}
