//! The `llm` runner: one question to a language model.
//!
//! The model sees only what the definition and the input give: no system prompt of ours, no history, no tools.
//! With `tool`, that subtool is the model's only tool: the model calls it once, the call runs as a task of the
//! caller, and the model then describes the result. The models come from the configuration; conversations are the
//! matter of the agent.

use std::sync::Arc;

use agent_loop::model::answer_options::AnswerOptions;
use agent_loop::model::conversation::{JournalEntry, ModelTurn, TokenUsage, ToolCall, ToolResult, TurnEnd};
use agent_loop::model::fallback;
use agent_loop::model::ledger::{Budgeted, ChargedAccount, SpendingAccount};
use agent_loop::model::provider::client::{ModelClient, trust_of};
use agent_loop::model::provider::{ModelRequest, Provider as _, ToolDefinition};
use agent_loop::model::registry::{self, ChosenModel, ModelRegistry};
use agent_loop::model::view::{self, CallStyle, ContextBounds};
use definition::run::llm::{AnswerForm, Llm};
use futures_util::future::BoxFuture;
use ground::config::secret::SecretName;
use protocol::data_class::DataClass;
use protocol::json::parse_answer;
use serde_json::{Map, json};
use url::Url;

use super::delegation::{CalledTask, Delegation, too_deep};
use super::{CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Value, fields};

/// The most of a call's result that the model gets to read.
const MAX_RESULT_BYTES: usize = 50_000;
/// The most of a model's answer that a failure quotes.
const MAX_QUOTED_BYTES: usize = 2_000;
const EMPTY: &str = "Your answer was empty. Answer the question.";
const INCOMPLETE: &str = "[This answer is incomplete: it reached the model's limit of tokens.]";
const DESCRIBE_RESULT: &str = "Describe the result of this call in words. You cannot make another call.";

/// The definition, filled for one invocation.
#[derive(Debug, Default)]
struct FilledPrompt {
    model: Option<String>,
    prompt: String,
    system: String,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    tool: Option<String>,
}

fn filled(llm: &Llm, invocation: &Invocation) -> Result<FilledPrompt, Failure> {
    let values = fields::FieldValues::of(invocation);
    let tool = values.text(llm.tool.as_deref())?;
    let arguments = match values.value(llm.arguments.as_ref())? {
        Some(arguments) if !arguments.is_object() => return Err(fields::wrong_type("arguments", "JSON object")),
        arguments => arguments,
    };
    let instruction = match (&tool, arguments) {
        (Some(tool), Some(arguments)) => Some(format!("Call `{tool}` with these arguments: {arguments}")),
        _ => None,
    };
    let parts: Vec<_> = values.text(llm.prompt.as_deref())?.into_iter().chain(instruction).collect();
    let prompt = parts.join("\n\n");
    if prompt.trim().is_empty() {
        return Err(Failure::new(Code::Rejected, "there is nothing to ask: the prompt is empty"));
    }
    let max_tokens = values.whole_number("max_tokens", llm.max_tokens.as_ref())?.map(u32::try_from);
    Ok(FilledPrompt {
        model: values.text(llm.model.as_deref())?,
        prompt,
        system: values.text(llm.system.as_deref())?.unwrap_or_default(),
        temperature: values.number("temperature", llm.temperature.as_ref())?,
        max_tokens: max_tokens.transpose().map_err(|_| fields::wrong_type("max_tokens", "whole number"))?,
        tool,
    })
}

fn output(llm: &Llm, turn: &ModelTurn) -> Result<RunnerOutput, Failure> {
    let text = turn.text.trim_end();
    let is_cut = turn.end == TurnEnd::Truncated;
    let data = match llm.output {
        AnswerForm::Text if is_cut => Value::String(format!("{text}\n\n{INCOMPLETE}")),
        AnswerForm::Text => Value::String(turn.text.clone()),
        AnswerForm::Json => parse_answer(without_code_fence(text)).map_err(|error| {
            let cut = if is_cut { ", and was cut at the limit of tokens" } else { "" };
            Failure::new(Code::BadResponse, format!("the model's answer is not JSON{cut}: {error}"))
                .detail("said", excerpt(text, MAX_QUOTED_BYTES))
        })?,
    };
    let output = RunnerOutput::json(data);
    Ok(if is_cut { output.with_meta("truncated", true) } else { output })
}

impl Runner for Llm {
    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        let FilledPrompt { model, prompt, system, temperature, max_tokens, tool } = filled(self, invocation)?;
        let mut plan = Map::new();
        plan.insert("model".to_owned(), model.unwrap_or_else(|| config.agent.model.clone()).into());
        plan.insert("prompt".to_owned(), prompt.into());
        plan.extend(Some(system).filter(|system| !system.is_empty()).map(|it| ("system".to_owned(), it.into())));
        plan.extend(temperature.map(|temperature| ("temperature".to_owned(), temperature.into())));
        plan.extend(max_tokens.map(|tokens| ("max_tokens".to_owned(), tokens.into())));
        plan.extend(tool.map(|tool| ("tool".to_owned(), tool.into())));
        Ok(Value::Object(plan))
    }

    /// The key of its model, and where that is.
    fn sent_secrets(&self, invocation: &Invocation, config: &Config) -> Result<Vec<(SecretName, Url)>, Failure> {
        let model = filled(self, invocation)?.model;
        let chosen = ModelRegistry::new(config).choose(model.as_deref()).ok();
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
    llm: &Llm,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let filled = filled(llm, invocation)?;
    let models = ModelRegistry::new(&context.config);
    let mut chosen = models.choose_for_delegation(filled.model.as_deref())?;
    chosen.model.temperature = filled.temperature.or(chosen.model.temperature);
    chosen.model.max_tokens = filled.max_tokens.or(chosen.model.max_tokens);
    invocation.check_trust(&chosen.name, trust_of(&chosen.model))?;
    let Some(tool) = &filled.tool else {
        let mut session = ModelSession::open(chosen, filled.system, invocation, context, cancel).await?;
        let answer = session.ask(vec![JournalEntry::asked(filled.prompt)], None).await;
        return session.with_usage(answer.and_then(|turn| output(llm, &turn)));
    };
    if let Some(error) = too_deep(tool, invocation.caller.depth, &context.config) {
        return Err(error.into());
    }
    let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
    let subtool = delegation.subtool(tool, invocation)?;
    let mut session = ModelSession::open(chosen, filled.system, invocation, context, cancel).await?;
    let answer = session.call(&filled.prompt, subtool, delegation, invocation).await;
    session.with_usage(
        answer.and_then(|(turn, called)| {
            Ok(output(llm, &turn)?.with_meta("call", json!({"id": called.id, "tool": tool})))
        }),
    )
}

/// The requests of one invocation to one model, and their usage.
struct ModelSession<'a> {
    client: Budgeted<ModelClient>,
    name: String,
    system: String,
    /// Whether the model has native tool calls.
    native_calls: bool,
    /// The most sensitive data that the model may get.
    trust: DataClass,
    bounds: ContextBounds,
    requests: u32,
    usage: TokenUsage,
    cost: f64,
    notes: Vec<String>,
    cancel: &'a CancellationToken,
}

impl<'a> ModelSession<'a> {
    async fn open(
        chosen: ChosenModel,
        system: String,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &'a CancellationToken,
    ) -> Result<Self, Failure> {
        let (name, native_calls, trust) = (chosen.name.clone(), chosen.model.tools, trust_of(&chosen.model));
        // The question is never shortened.
        let bounds = ContextBounds { messages: usize::MAX, tokens: u64::MAX };
        let client = ModelClient::new(chosen, false, &context.http, &context.secrets).await?;
        let ledger = context.delegation.as_ref().map(|delegation| Arc::clone(&delegation.ledger));
        let account = ChargedAccount::new(SpendingAccount::of(&invocation.caller, &context.config));
        let client = Budgeted::new(client, ledger, account);
        Ok(Self {
            client,
            name,
            system,
            native_calls,
            trust,
            bounds,
            requests: 0,
            usage: TokenUsage::default(),
            cost: 0.0,
            notes: Vec::new(),
            cancel,
        })
    }

    /// Asks, and once more after an empty answer. A refusal and a second empty answer are failures.
    async fn ask(
        &mut self,
        mut entries: Vec<JournalEntry>,
        tool: Option<ToolDefinition>,
    ) -> Result<ModelTurn, Failure> {
        let mut turn = self.request(&entries, tool.clone()).await?;
        let is_empty = |turn: &ModelTurn| turn.calls.is_empty() && turn.text.trim().is_empty();
        if is_empty(&turn) && turn.end == TurnEnd::Complete {
            entries.push(JournalEntry::Noted { text: EMPTY.to_owned() });
            turn = self.request(&entries, tool).await?;
        }
        let failed = |what: &str| Failure::new(Code::ModelFailed, format!("the model `{}` {what}", self.name));
        match turn.end {
            TurnEnd::Refused => {
                Err(failed("or its provider refused to answer").detail("said", excerpt(&turn.text, MAX_QUOTED_BYTES)))
            }
            TurnEnd::Truncated if is_empty(&turn) => {
                Err(failed("reached its limit of tokens before it answered").hint("raise `max_tokens`"))
            }
            TurnEnd::Complete if is_empty(&turn) => Err(failed("gave an empty answer, twice")),
            TurnEnd::Complete | TurnEnd::Truncated => Ok(turn),
        }
    }

    /// Makes one request. With a tool, earlier calls are sent as native tool calls, otherwise as text.
    async fn request(&mut self, entries: &[JournalEntry], tool: Option<ToolDefinition>) -> Result<ModelTurn, Failure> {
        let style = if tool.is_some() { CallStyle::Native } else { CallStyle::Text };
        let messages = view::messages(entries, style, self.bounds);
        let (system, tools) = (self.system.clone(), tool.into_iter().collect());
        let request = ModelRequest { system, messages, tools, options: AnswerOptions::default() };
        let ignore_text = |_: &str| ();
        let turn = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Failure::new(Code::Cancelled, "cancelled while the model answered")),
            turn = self.client.ask(request, &ignore_text) => turn?,
        };
        self.requests += 1;
        self.usage += turn.usage;
        self.cost += turn.cost;
        self.notes.extend_from_slice(&turn.notes);
        Ok(turn)
    }

    /// Has the model call `tool` once, and then describe the result.
    async fn call(
        &mut self,
        prompt: &str,
        tool: ToolDefinition,
        delegation: &Delegation,
        invocation: &Invocation,
    ) -> Result<(ModelTurn, CalledTask), Failure> {
        let name = &tool.name.clone();
        let question = JournalEntry::asked(prompt.to_owned());
        let mut turn = if self.native_calls {
            self.ask(vec![question.clone()], Some(tool)).await?
        } else {
            let parts = [std::mem::take(&mut self.system), text_call_instructions(&tool)];
            self.system = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
            self.ask(vec![question.clone()], None).await?
        };
        if turn.calls.is_empty() {
            let style = if self.native_calls { CallStyle::Native } else { CallStyle::Text };
            turn.calls = fallback::parse_calls(&turn.text, &[name], style);
            turn.in_text = !turn.calls.is_empty();
        }
        let Some(call) = turn.calls.iter().find(|call| call.name == *name).cloned() else {
            return Err(Failure::new(Code::ModelFailed, format!("the model `{}` did not call `{name}`", self.name))
                .hint(format!(
                    "ask for the call more clearly, or run the subtool directly: agent-magic-tool run {name}"
                ))
                .detail("said", excerpt(&turn.text, MAX_QUOTED_BYTES)));
        };
        let Value::Object(input) = call.arguments.clone() else {
            return Err(Failure::new(
                Code::ModelFailed,
                format!("the model `{}` called `{name}` with arguments that are not a JSON object", self.name),
            )
            .hint("name the arguments in the prompt, or choose another model"));
        };
        let called = delegation.call(invocation, name, input, self.trust, self.cancel).await?;
        if called.result["success"] != true {
            return Err(called.failure(name));
        }
        let turn =
            ModelTurn { text: turn.text, calls: vec![call.clone()], in_text: turn.in_text, ..ModelTurn::default() };
        let entries = vec![
            question,
            JournalEntry::Answered { turn: Box::new(turn) },
            JournalEntry::Called { results: vec![tool_result(&call, &called)] },
            JournalEntry::Noted { text: DESCRIBE_RESULT.to_owned() },
        ];
        // The call was made, so a failure after it names the call.
        let with_call = |failure: Failure| failure.detail("call", json!({"id": called.id, "tool": name}));
        let description = self.ask(entries, None).await.map_err(with_call)?;
        Ok((description, called))
    }

    /// Adds what was spent, to a failure as well.
    fn with_usage(&self, outcome: Result<RunnerOutput, Failure>) -> Result<RunnerOutput, Failure> {
        let usage = json!({
            "requests": self.requests, "input_tokens": self.usage.input, "cached_tokens": self.usage.cached,
            "output_tokens": self.usage.output, "cost": registry::rounded_cost(self.cost),
        });
        match outcome {
            Ok(output) => {
                let output = output.with_meta("model", self.name.clone()).with_meta("usage", usage);
                Ok(if self.notes.is_empty() { output } else { output.with_meta("notes", self.notes.clone()) })
            }
            Err(failure) if self.requests > 0 => Err(failure.detail("usage", usage)),
            Err(failure) => Err(failure),
        }
    }
}

/// Tells a model without native tool calls about the tool, and how to write a call as text.
fn text_call_instructions(tool: &ToolDefinition) -> String {
    let ToolDefinition { name, description, parameters, strict: _ } = tool;
    format!(
        "You have one tool, `{name}`: {description}\nIts arguments as JSON Schema: {parameters}\n\
         To call it, write this and nothing else in your answer:\n\
         <tool_call>{{\"name\": \"{name}\", \"arguments\": {{...}}}}</tool_call>"
    )
}

/// The result of the call as the model reads it.
fn tool_result(call: &ToolCall, called: &CalledTask) -> ToolResult {
    let mut result = called.result.clone();
    if let Some(fields) = result.as_object_mut() {
        for unneeded in ["input", "message", "_meta"] {
            fields.remove(unneeded);
        }
    }
    ToolResult::new(call, excerpt(&result.to_string(), MAX_RESULT_BYTES), 0)
}

fn excerpt(text: &str, max_bytes: usize) -> String {
    match protocol::excerpt::bytes(text, max_bytes) {
        (_, 0) => text.to_owned(),
        (shown, omitted) => format!("{shown}… [{omitted} bytes omitted]"),
    }
}

/// Removes the code fence that some models put around JSON.
fn without_code_fence(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inside.and_then(|inside| inside.strip_suffix("```")).unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn llm(definition: Value) -> Llm {
        serde_json::from_value(definition).expect("a runner")
    }

    fn invocation(input: Value) -> Invocation {
        Invocation { input: serde_json::from_value(input).expect("an object"), ..Invocation::default() }
    }

    #[test]
    fn an_absent_model_is_the_configured_one_and_numbers_stay_numbers() {
        let run = llm(json!({"model": "{{ model }}", "prompt": "{{ prompt }}", "temperature": "{{ temperature }}"}));
        let plan = run.plan(&invocation(json!({"prompt": "年度?", "temperature": 0.5})), &Config::default());
        assert_eq!(plan.expect("a plan"), json!({"model": "", "prompt": "年度?", "temperature": 0.5}));
        let empty = run.plan(&invocation(json!({"prompt": " "})), &Config::default()).expect_err("nothing to ask");
        assert_eq!(empty.error.code, Code::Rejected);
    }

    #[test]
    fn arguments_are_part_of_the_prompt() {
        let run = llm(json!({"tool": "{{ tool }}", "prompt": "{{ prompt }}", "arguments": "{{ arguments }}"}));
        let found = filled(&run, &invocation(json!({"tool": "count", "arguments": {"a": 1}}))).expect("filled");
        assert_eq!(found.prompt, "Call `count` with these arguments: {\"a\":1}");
        assert!(filled(&run, &invocation(json!({"tool": "count", "arguments": [1]}))).is_err());
    }

    #[test]
    fn json_is_taken_out_of_its_code_fence() {
        for text in ["{\"a\": 1}", "```json\n{\"a\": 1}\n```", "```\n{\"a\": 1}```\n"] {
            let run = llm(json!({"prompt": "x", "output": "json"}));
            let turn = ModelTurn { text: text.to_owned(), ..ModelTurn::default() };
            let super::super::OutputData::Json(data) = output(&run, &turn).expect("JSON").data else {
                panic!("a file")
            };
            assert_eq!(data, json!({"a": 1}));
        }
    }

    #[test]
    fn an_answer_that_was_cut_is_marked() {
        let turn = ModelTurn { text: "Half of ".to_owned(), end: TurnEnd::Truncated, ..ModelTurn::default() };
        let output = output(&llm(json!({"prompt": "x"})), &turn).expect("text");
        let super::super::OutputData::Json(data) = output.data else { panic!("a file") };
        assert_eq!((data, &output.meta["truncated"]), (json!(format!("Half of\n\n{INCOMPLETE}")), &json!(true)));
    }
}
