//! The `llm` runner: one question to a language model, with nothing around it.
//!
//! The model sees the prompt and no word of ours: no system prompt, no history, no tools. With `tool` it sees
//! that subtool's definition as its one tool, makes one call, which is run for the caller like any other, and
//! says in words what came of it. Which models there are is the configuration's; sessions are the agent's.

use serde_json::{Map, json};

use super::delegation::{CalledTask, Delegation, too_deep};
use super::{
    CancellationToken, Code, Config, DefinitionMistake, Deserialize, Failure, Invocation, JsonSchema, Retry, Runner,
    RunnerContext, RunnerOutput, Serialize, Value,
};
use crate::base::template::{self, TemplateValues};
use crate::model::conversation::{JournalEntry, TokenUsage, ToolCall, ToolResult, Turn};
use crate::model::provider::client::ModelClient;
use crate::model::provider::{ModelFailure, ModelRequest, Provider as _, ToolDefinition};
use crate::model::registry::{ChosenModel, ModelRegistry};
use crate::model::view::{self, CallStyle, ContextBounds};

/// How much of a result the model gets to read.
const MAX_RESULT_BYTES: usize = 50_000;
const IN_WORDS: &str = "Say in words what came of this call. Nothing more can be called.";

/// One question to a language model.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Llm {
    /// What it is asked: a template, and all that it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A name in `[models]`: a template. Absent, or the input has no such field: the one of `[agent]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its system prompt: a template. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A number, or a template. Absent: the model's own setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Value>,
    /// How many tokens it may answer with: a number, or a template. Absent: the model's own setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Value>,
    /// The subtool that it is to call, once: a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What it is to call it with: a template that gives an object. Absent: the model finds out from the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// What its answer becomes. Absent: `text`.
    #[serde(default)]
    pub output: AnswerForm,
}

/// What an answer becomes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// The text as it is.
    #[default]
    Text,
    /// The JSON document that it is, perhaps in a block of code.
    Json,
}

/// What an order asks.
#[derive(Debug, Default)]
struct FilledPrompt {
    model: Option<String>,
    prompt: String,
    system: String,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    tool: Option<String>,
}

impl Llm {
    /// Whether it has a subtool run.
    pub fn calls(&self) -> bool {
        self.tool.is_some()
    }

    fn filled(&self, invocation: &Invocation) -> Result<FilledPrompt, Failure> {
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
        let tool = text(&self.tool)?;
        let arguments = match value(&self.arguments)? {
            Some(arguments) if !arguments.is_object() => return Err(unfit("arguments", "JSON object")),
            arguments => arguments,
        };
        let wanted = match (&tool, arguments) {
            (Some(tool), Some(arguments)) => Some(format!("Call `{tool}` with these arguments: {arguments}")),
            _ => None,
        };
        let parts: Vec<_> = text(&self.prompt)?.into_iter().chain(wanted).collect();
        let prompt = parts.join("\n\n");
        if prompt.trim().is_empty() {
            return Err(Failure::new(Code::Rejected, "there is nothing to ask: the prompt is empty"));
        }
        let number =
            value(&self.temperature)?.map(|value| value.as_f64().ok_or_else(|| unfit("temperature", "number")));
        let tokens = |value: Value| value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
        let most =
            value(&self.max_tokens)?.map(|value| tokens(value).ok_or_else(|| unfit("max_tokens", "whole number")));
        Ok(FilledPrompt {
            model: text(&self.model)?,
            prompt,
            system: text(&self.system)?.unwrap_or_default(),
            temperature: number.transpose()?,
            max_tokens: most.transpose()?,
            tool,
        })
    }

    fn data(&self, text: String) -> Result<Value, Failure> {
        match self.output {
            AnswerForm::Text => Ok(Value::String(text)),
            AnswerForm::Json => serde_json::from_str(bare(&text)).map_err(|error| {
                Failure::new(Code::BadResponse, format!("the model answered with no JSON: {error}"))
                    .detail("said", excerpt(&text, 2_000))
            }),
        }
    }
}

impl Runner for Llm {
    fn check(&self) -> Result<(), DefinitionMistake> {
        let text = |template: &Option<String>| template.clone().map(Value::String);
        let templates = [
            ("prompt", text(&self.prompt)),
            ("model", text(&self.model)),
            ("system", text(&self.system)),
            ("temperature", self.temperature.clone()),
            ("max_tokens", self.max_tokens.clone()),
            ("tool", text(&self.tool)),
            ("arguments", self.arguments.clone()),
        ];
        for (place, template) in templates {
            if let Some(template) = template {
                template::check_value(&template).map_err(|error| DefinitionMistake::new(place, &error))?;
            }
        }
        match (&self.prompt, &self.tool, &self.arguments) {
            (None, None, _) => Err(DefinitionMistake::new("prompt", &"it is missing: there would be nothing to ask")),
            (_, None, Some(_)) => Err(DefinitionMistake::new("arguments", &"there is no `tool` to call with them")),
            (None, Some(_), None) => {
                Err(DefinitionMistake::new("prompt", &"neither it nor `arguments` says what to call for"))
            }
            _ => Ok(()),
        }
    }

    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        let FilledPrompt { model, prompt, system, temperature, max_tokens, tool } = self.filled(invocation)?;
        let mut plan = Map::new();
        plan.insert("model".to_owned(), model.unwrap_or_else(|| config.agent.model.clone()).into());
        plan.insert("prompt".to_owned(), prompt.into());
        plan.extend(Some(system).filter(|system| !system.is_empty()).map(|it| ("system".to_owned(), it.into())));
        plan.extend(temperature.map(|temperature| ("temperature".to_owned(), temperature.into())));
        plan.extend(max_tokens.map(|tokens| ("max_tokens".to_owned(), tokens.into())));
        plan.extend(tool.map(|tool| ("tool".to_owned(), tool.into())));
        Ok(Value::Object(plan))
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let filled = self.filled(invocation)?;
        let models = ModelRegistry::new(&context.config);
        let mut chosen = models.choose(filled.model.as_deref())?;
        chosen.model.temperature = filled.temperature.or(chosen.model.temperature);
        chosen.model.max_tokens = filled.max_tokens.or(chosen.model.max_tokens);
        let Some(tool) = &filled.tool else {
            let mut target = ModelSession::open(chosen, filled.system, context, cancel).await?;
            let turn = target.ask(vec![JournalEntry::Asked { text: filled.prompt }], None).await?;
            return Ok(target.told(RunnerOutput::json(self.data(turn.text)?)));
        };
        if let Some(error) = too_deep(tool, invocation.caller.depth, &context.config) {
            return Err(error.into());
        }
        let delegation = context.delegation.as_ref().ok_or_else(Delegation::is_missing)?;
        let subtool = delegation.subtool(tool, invocation)?;
        if !chosen.model.tools {
            return Err(cannot_call(&chosen, &models));
        }
        let mut target = ModelSession::open(chosen, filled.system, context, cancel).await?;
        let (turn, called) = target.call(&filled.prompt, subtool, delegation, invocation).await?;
        let success =
            RunnerOutput::json(self.data(turn.text)?).with_meta("call", json!({"id": called.id, "tool": tool}));
        Ok(target.told(success))
    }
}

/// The model, and what it has used up.
struct ModelSession<'a> {
    client: ModelClient,
    name: String,
    system: String,
    bounds: ContextBounds,
    requests: u32,
    usage: TokenUsage,
    cost: f64,
    cancel: &'a CancellationToken,
}

impl<'a> ModelSession<'a> {
    async fn open(
        chosen: ChosenModel,
        system: String,
        context: &RunnerContext,
        cancel: &'a CancellationToken,
    ) -> Result<Self, Failure> {
        let name = chosen.name.clone();
        // What is asked is asked whole.
        let bounds = ContextBounds { messages: usize::MAX, tokens: u64::MAX };
        let client = ModelClient::new(chosen, false, &context.http, &context.secrets).await?;
        Ok(Self { client, name, system, bounds, requests: 0, usage: TokenUsage::default(), cost: 0.0, cancel })
    }

    /// One request: native where a tool is offered, else in words.
    async fn ask(&mut self, entries: Vec<JournalEntry>, tool: Option<ToolDefinition>) -> Result<Turn, Failure> {
        let style = if tool.is_some() { CallStyle::Native } else { CallStyle::Text };
        let messages = view::messages(&entries, style, self.bounds);
        let request = ModelRequest { system: self.system.clone(), messages, tools: tool.into_iter().collect() };
        let nobody = |_: &str| ();
        let turn = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Failure::new(Code::Cancelled, "it was cancelled while the model answered")),
            turn = self.client.ask(request, &nobody) => turn?,
        };
        self.requests += 1;
        self.usage += turn.usage;
        self.cost += turn.cost;
        Ok(turn)
    }

    /// Has it call `tool`, and say what came of that.
    async fn call(
        &mut self,
        prompt: &str,
        tool: ToolDefinition,
        delegation: &Delegation,
        invocation: &Invocation,
    ) -> Result<(Turn, CalledTask), Failure> {
        let name = &tool.name.clone();
        let asked = JournalEntry::Asked { text: prompt.to_owned() };
        let turn = self.ask(vec![asked.clone()], Some(tool)).await?;
        let Some(call) = turn.calls.iter().find(|call| call.name == *name).cloned() else {
            return Err(Failure::new(Code::ModelFailed, format!("the model `{}` did not call `{name}`", self.name))
                .hint(format!("ask for it more plainly, or run it by itself: agent-magic-tool run {name}"))
                .detail("said", excerpt(&turn.text, 2_000)));
        };
        let Value::Object(input) = call.arguments.clone() else {
            return Err(Failure::new(
                Code::ModelFailed,
                format!("the model `{}` called `{name}` with no JSON object", self.name),
            )
            .hint("name the arguments in the prompt, or choose another model"));
        };
        let called = delegation.call(invocation, name, input, self.cancel).await?;
        if called.result["success"] != true {
            return Err(failed(name, &called));
        }
        let answered = Turn { text: turn.text, calls: vec![call.clone()], ..Turn::default() };
        let read = JournalEntry::Called { results: vec![result_of(&call, &called)] };
        let noted = JournalEntry::Noted { text: IN_WORDS.to_owned() };
        let said = self.ask(vec![asked, JournalEntry::Answered { turn: Box::new(answered) }, read, noted], None).await;
        // The call was made: whoever reads of a failure must know.
        let said = said.map_err(|failure| failure.detail("call", json!({"id": called.id, "tool": name})))?;
        Ok((said, called))
    }

    fn told(&self, success: RunnerOutput) -> RunnerOutput {
        let TokenUsage { input, output, cached } = self.usage;
        let usage = json!({
            "requests": self.requests, "input_tokens": input, "cached_tokens": cached, "output_tokens": output,
            "cost": self.cost,
        });
        success.with_meta("model", self.name.clone()).with_meta("usage", usage)
    }
}

fn cannot_call(chosen: &ChosenModel, models: &ModelRegistry) -> Failure {
    let able: Vec<_> = models.listed().filter(|(_, model)| model.tools).map(|(name, _)| name).collect();
    let hint = if able.is_empty() { "no model here can".to_owned() } else { format!("these can: {}", able.join(", ")) };
    Failure::new(Code::NoModel, format!("the model `{}` cannot call tools", chosen.name)).hint(hint)
}

/// The failure of a call, as that of whoever had it made.
fn failed(name: &str, called: &CalledTask) -> Failure {
    let error = &called.result["error"];
    let code = serde_json::from_value(error["code"].clone()).unwrap_or(Code::Internal);
    let message = format!("`{name}` did not succeed: {}", error["message"].as_str().unwrap_or("it says not why"));
    let failure = Failure::new(code, message);
    let failure = match error["hint"].as_str() {
        Some(hint) => failure.hint(hint),
        None => failure,
    };
    failure.detail("call", json!({"id": called.id, "tool": name, "state": called.result["status"]}))
}

/// What the model reads of the call's result.
fn result_of(call: &ToolCall, called: &CalledTask) -> ToolResult {
    let mut result = called.result.clone();
    if let Some(fields) = result.as_object_mut() {
        for known in ["input", "message", "_meta"] {
            fields.remove(known);
        }
    }
    ToolResult::new(call, excerpt(&result.to_string(), MAX_RESULT_BYTES), 0)
}

fn excerpt(text: &str, most: usize) -> String {
    match protocol::excerpt::bytes(text, most) {
        (_, 0) => text.to_owned(),
        (shown, left_out) => format!("{shown}… [{left_out} bytes are left out]"),
    }
}

/// A text without the block of code that some models put around it.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inside.and_then(|inside| inside.strip_suffix("```")).unwrap_or(text).trim()
}

impl From<ModelFailure> for Failure {
    fn from(failed: ModelFailure) -> Self {
        let again = match failed.retry_after {
            _ if !failed.class.may_pass() => Retry::Never,
            Some(pause) => Retry::After(pause),
            None => Retry::Later,
        };
        Self::new(Code::ModelFailed, failed.message)
            .hint("what the provider said is in the executor's log")
            .retry(again)
    }
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
        run.check().expect("sound");
        let plan = run.plan(&invocation(json!({"prompt": "年度?", "temperature": 0.5})), &Config::default());
        assert_eq!(plan.expect("a plan"), json!({"model": "", "prompt": "年度?", "temperature": 0.5}));
        let empty = run.plan(&invocation(json!({"prompt": " "})), &Config::default()).expect_err("nothing to ask");
        assert_eq!(empty.error.code, Code::Rejected);
    }

    #[test]
    fn arguments_are_part_of_what_is_asked() {
        let run = llm(json!({"tool": "{{ tool }}", "prompt": "{{ prompt }}", "arguments": "{{ arguments }}"}));
        let asked = run.filled(&invocation(json!({"tool": "count", "arguments": {"a": 1}}))).expect("filled");
        assert_eq!(asked.prompt, "Call `count` with these arguments: {\"a\":1}");
        assert!(run.filled(&invocation(json!({"tool": "count", "arguments": [1]}))).is_err());
    }

    #[test]
    fn a_definition_that_asks_nothing_is_a_mistake() {
        for wrong in [json!({}), json!({"prompt": "a", "arguments": {}}), json!({"tool": "x"}), json!({"prompt": "{{"})]
        {
            assert!(llm(wrong.clone()).check().is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_is_taken_out_of_its_block() {
        for text in ["{\"a\": 1}", "```json\n{\"a\": 1}\n```", "```\n{\"a\": 1}```\n"] {
            let run = llm(json!({"prompt": "x", "output": "json"}));
            assert_eq!(run.data(text.to_owned()).expect("JSON"), json!({"a": 1}));
        }
    }
}
