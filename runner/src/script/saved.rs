//! Subtools that were scripts: what a model wrote once and what succeeded becomes a definition, after a test.
//!
//! The test is a replay: the program gets the results that the calls of the script had, and must make the same calls and
//! return the same. It calls nothing. Whether a human has to agree is the matter of the subtool's definition.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use catalog::{Catalog, problems_of_definitions};
use definition::run::Run;
use ground::base::schema::InputSchema;
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::invisible::is_invisible;
use protocol::task::TaskId;
use protocol::trust::{self, untrusted};
use script::{
    CallKind, Completion, FailureKind, HostMessage, Json, ScriptConstant, Start, WorkerMessage, called_names,
    constants, declares, is_global, with_inputs,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::calls::{ASK_USER, usable_tools};
use super::record::{IssuedCall, ScriptEntry, ScriptRecord, SettledCall};
use super::worker::ScriptWorker;
use super::{NAME, diverged, failure};
use crate::delegation::{CalledTask, Delegation};
use crate::{Failure, Invocation, RunnerContext, RunnerOutput};

mod files;
mod schema;

use files::SavedScript;
use schema::{has_hidden_default, schema};

/// What a subtool with a script is drafted from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DraftArguments {
    script: String,
    /// The constants that become inputs. Absent: all.
    #[serde(default)]
    inputs: Option<Vec<String>>,
}

/// A subtool that is to be saved.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SaveArguments {
    name: String,
    description: String,
    source: String,
    /// The script that it was, and against which it is tested.
    script: String,
    calls: Vec<String>,
    #[serde(default)]
    schema: Option<Map<String, Value>>,
    #[serde(default)]
    example: Option<Map<String, Value>>,
    #[serde(default)]
    phrases: Option<Vec<String>>,
}

/// What a script that succeeded did.
struct EndedScript {
    start: Start,
    issued: Vec<IssuedCall>,
    settled: Vec<SettledCall>,
    result: Value,
}

/// The subtool that a script could be: its program with its constants as inputs.
pub(crate) async fn draft(
    arguments: DraftArguments,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<RunnerOutput, Failure> {
    let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
    let script = EndedScript::find(&arguments.script, invocation, delegation)?;
    let before = script.input();
    let chosen = script.chosen_constants(arguments.inputs.as_deref())?;
    let source = with_inputs(&script.start.source, &chosen);
    let mut example = before.clone();
    example.extend(chosen.iter().map(|constant| (constant.name.clone(), constant.value.clone())));
    let tools = usable_tools(&delegation.subtools.borrow(), &invocation.caller.tool_scope, called_names(&source));
    script.replay(&source, &example, tools).await?;
    Ok(RunnerOutput::json(json!({
        "source": source,
        "schema": schema(&before, &chosen),
        "example": example,
        "calls": script.calls(),
        "tested": {"calls": script.issued.len()},
    })))
}

/// Tests a subtool and writes its two files.
pub(crate) async fn save(
    arguments: SaveArguments,
    invocation: &Invocation,
    context: &RunnerContext,
) -> Result<RunnerOutput, Failure> {
    let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
    let catalog = delegation.subtools.borrow().clone();
    let saved = arguments.saved(&catalog)?;
    // Made by an earlier attempt, which was killed.
    let is_done = saved.is_there();
    if !is_done {
        arguments.check(&catalog, &invocation.caller)?;
    }
    let script = EndedScript::find(&arguments.script, invocation, delegation)?;
    let tools = usable_tools(&catalog, &invocation.caller.tool_scope, called_names(&arguments.source));
    let named = tools.values().chain(script.issued.iter().filter_map(|issued| issued.name.as_ref()));
    if let Some(call) = named.into_iter().find(|name| !arguments.calls.contains(name)) {
        let message = format!("the program calls `{call}`, which is not among its `calls`");
        return Err(Failure::new(Code::Rejected, message).hint("list everything that it may call in `calls`"));
    }
    script.replay(&arguments.source, &arguments.whole_example()?, tools).await?;
    let calls = script.issued.len();
    let _one_at_a_time = SAVING.lock().await;
    let paths = [saved.definition.0.clone(), saved.program.0.clone()];
    let written = if is_done { Ok(Ok(())) } else { tokio::task::spawn_blocking(move || saved.write()).await };
    let written = written.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    written.map_err(|error| {
        let is_taken = error.kind() == io::ErrorKind::AlreadyExists;
        let failure =
            Failure::new(if is_taken { Code::Rejected } else { Code::Io }, format!("nothing was saved: {error}"));
        if is_taken { failure.hint("choose another name, or have the user remove that file") } else { failure }
    })?;
    Ok(RunnerOutput::json(json!({
        "name": arguments.name,
        "inputs": arguments.inputs(),
        "files": paths,
        "tested": {"calls": calls},
        "run": format!("agent-magic-tool run {} --wait", arguments.name),
    })))
}

/// Two at a time could save names that differ only in case.
static SAVING: Mutex<()> = Mutex::const_new(());

impl SaveArguments {
    /// Returns why it cannot be saved, as far as that is known without a test.
    pub(crate) fn refusal(&self, invocation: &Invocation, context: &RunnerContext) -> Option<Failure> {
        let delegation = context.delegation.as_ref()?;
        self.check(&delegation.subtools.borrow(), &invocation.caller).err()
    }

    fn check(&self, catalog: &Catalog, caller: &Caller) -> Result<(), Failure> {
        let rejected = |message: String| Failure::new(Code::Rejected, message);
        if caller.tool_scope.profiles().next().is_some() {
            // Also, which names are taken already it must not learn.
            return Err(rejected("what is saved is for all callers, and this one has a profile".to_owned())
                .hint("ask the user, who can save it in a terminal"));
        }
        let name = catalog.new_name(&self.name).map_err(rejected)?;
        if is_global(&self.name) {
            return Err(rejected(format!("`{name}` is a name of JavaScript; choose another name")));
        }
        if let Some((line, letter)) = hidden_letter(&self.source) {
            let message = format!("line {line} of the program has a character that a human cannot see: {letter}");
            return Err(rejected(message).hint("write it as an escape in a text, like `\\u200b`, or leave it out"));
        }
        for call in &self.calls {
            let Some(known) = catalog.usable(call, &caller.tool_scope) else {
                let message = format!("`{call}` in `calls` is no subtool that you may use");
                return Err(rejected(message).hint("write out the name of each, as draft_script returns them"));
            };
            if matches!(&known.definition.run, Run::Script(script) if script.runs_any_program()) {
                return Err(rejected(format!("`{call}` runs any program, so `calls` would say nothing"))
                    .hint("call the subtools themselves"));
            }
        }
        // Everything but the program, which is no template.
        let definition = self.definition(&json!({"source": "return 1", "calls": self.calls}), catalog);
        if let Some(letter) = hidden_in(&definition) {
            let message = format!("a text beside the program has a character that a human cannot see: {letter}");
            return Err(
                rejected(message).hint("leave it out of the description, the phrases, the schema and the example")
            );
        }
        let problems = problems_of_definitions(&Map::new(), [(name.to_string(), definition)]);
        if let Some(problem) = problems.first() {
            // Here they have other names than in a definition.
            let place = problem.place.as_deref().unwrap_or_default();
            let place = match place.strip_prefix("examples[0].input").or(place.strip_prefix("examples[0]")) {
                Some(rest) => format!("example{rest}"),
                None if place == "input" || place.starts_with("input.") => place.replacen("input", "schema", 1),
                None => place.to_owned(),
            };
            let place = if place.is_empty() { place } else { format!("`{place}`: ") };
            return Err(rejected(format!("{place}{}", problem.message)));
        }
        self.whole_example().map(drop)
    }

    /// What is written, by a name that may be taken.
    fn saved(&self, catalog: &Catalog) -> Result<SavedScript, Failure> {
        let name: SubtoolName =
            self.name.parse().map_err(|error| Failure::new(Code::Rejected, format!("`{}`: {error}", self.name)))?;
        let folder = catalog.own_folder();
        let folder = folder.ok_or_else(|| Failure::new(Code::Rejected, "no folder for subtools is configured"))?;
        if let Err(distrust) = trust::check(folder)
            && distrust.is_writable_by_others()
        {
            return Err(Failure::new(Code::Rejected, untrusted(&distrust)).hint("tell the user, who can change that"));
        }
        let program = format!("{name}.js");
        let definition = self.definition(&json!({"file": program, "calls": self.calls}), catalog);
        let definition = serde_json::to_string_pretty(&json!({name.as_str(): definition}));
        let definition = definition.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        let line = |text: &str| format!("{}\n", text.trim_end());
        Ok(SavedScript {
            definition: (folder.join(format!("{name}.json")), line(&definition)),
            program: (folder.join(program), line(&self.source)),
        })
    }

    /// The example as a run gets it: with the defaults of the schema, which are what the example has: others would not be
    /// tested.
    fn whole_example(&self) -> Result<Map<String, Value>, Failure> {
        let rejected = |message: String| Failure::new(Code::Rejected, message);
        let mut example = self.example.clone().unwrap_or_default();
        let Some(schema) = &self.schema else { return Ok(example) };
        if has_hidden_default(schema) {
            let message = "a default below the inputs themselves would not be tested".to_owned();
            return Err(rejected(message).hint("in `schema`, only an input has a default: properties.NAME.default"));
        }
        let schema = InputSchema::compile(schema).map_err(|error| rejected(format!("`schema`: {error}")))?;
        let mut defaults = Map::new();
        schema.normalize(&mut defaults);
        schema.normalize(&mut example);
        if let Some((name, _)) = defaults.iter().find(|(name, default)| example.get(*name) != Some(default)) {
            let message = format!("the default of `{name}` is not what the `example` has, so it would not be tested");
            return Err(rejected(message).hint("take the same value for both, or leave the default out"));
        }
        let example = Value::Object(example);
        if let Some(problem) = schema.problems(&example).first() {
            return Err(rejected(format!("`example`: {problem}")).hint("give a value for each input that is required"));
        }
        let Value::Object(example) = example else { unreachable!("it is the object of before") };
        Ok(example)
    }

    /// The names of its inputs.
    fn inputs(&self) -> Vec<&String> {
        let properties = self.schema.as_ref().and_then(|schema| schema.get("properties")?.as_object());
        properties.into_iter().flat_map(Map::keys).collect()
    }

    fn definition(&self, script: &Value, catalog: &Catalog) -> Value {
        let reads = |name: &String| {
            let known = catalog.get(name);
            known.is_some_and(|it| it.definition.effect_class() == EffectClass::Read && !it.definition.run.delegates())
        };
        let mut definition = json!({"description": self.description});
        if let Some(phrases) = &self.phrases {
            definition["phrases"] = json!(phrases);
        }
        definition["input"] = self.schema.clone().map_or_else(|| schema(&Map::new(), &[]), Value::Object);
        if self.calls.iter().all(reads) {
            definition["annotations"] = json!({"readOnlyHint": true});
        } else {
            // Each of its calls asks by the rules of its own subtool.
            definition["annotations"] =
                json!({"destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
            definition["confirm"] = "never".into();
        }
        definition["run"] = json!({"script": script});
        if let Some(example) = self.example.as_ref().filter(|example| !example.is_empty()) {
            definition["examples"] = json!([{"input": example}]);
        }
        definition
    }
}

impl EndedScript {
    /// The caller's script with this id, if it succeeded and its record is still there.
    fn find(task: &str, invocation: &Invocation, delegation: &Delegation) -> Result<Self, Failure> {
        let unknown = |message: String, hint: &str| Failure::new(Code::UnknownTask, message).hint(hint);
        let id = task.parse::<TaskId>().ok();
        let ended = id.and_then(|id| delegation.ended(id, &invocation.caller)).ok_or_else(|| {
            let mailbox = &delegation.mailbox;
            if id.is_some_and(|id| mailbox.read_result(id).is_ok() && mailbox.may_see(&invocation.caller, id)) {
                let wait = format!("wait for its end, and then save it: agent-magic-tool wait {task}");
                return Failure::new(Code::Rejected, format!("the script {task} has not ended")).hint(wait);
            }
            let hint = "take the id of a script that has ended: agent-magic-tool tasks";
            unknown(format!("no ended task `{task}` of yours"), hint)
        })?;
        let CalledTask { id, result } = &ended;
        if result["success"] != true {
            let message = format!("the script {id} did not succeed, so it is no subtool yet");
            return Err(Failure::new(Code::Rejected, message).hint("run the mended program, and save that"));
        }
        let entries = ScriptRecord::read(&delegation.scripts, &id.to_string())?;
        let (mut start, mut issued, mut settled) = (None, Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                ScriptEntry::Start(first) => start = Some(*first),
                ScriptEntry::Issued(call) => issued.push(call),
                ScriptEntry::Settled(call) => settled.push(call),
            }
        }
        let start = start.ok_or_else(|| {
            unknown(format!("the task {id} is no script, or its record is gone"), "run the script again, and save that")
        })?;
        invocation.heard.hear(result.as_object().and_then(DataClass::of_result));
        let result = ended.data(&delegation.mailbox).map_err(|error| Failure::new(Code::Io, error.to_string()))?;
        Ok(Self { start, issued, settled, result })
    }

    /// What it knew as `input`.
    fn input(&self) -> Map<String, Value> {
        match self.start.input.to_value() {
            Ok(Value::Object(input)) => input,
            _ => Map::new(),
        }
    }

    /// Those of its constants that become inputs: the `wanted` ones, or all.
    fn chosen_constants(&self, wanted: Option<&[String]>) -> Result<Vec<ScriptConstant>, Failure> {
        let (mut chosen, before) = (constants(&self.start.source), self.input());
        chosen.retain(|constant| !before.contains_key(&constant.name));
        let Some(wanted) = wanted else { return Ok(chosen) };
        for name in wanted {
            if chosen.iter().any(|constant| constant.name == *name) {
                continue;
            }
            let message = if before.contains_key(name) {
                format!("`{name}` is an input already")
            } else if declares(&self.start.source, name) {
                format!(
                    "the value of `{name}` is not written at the top as a decimal number, a text without escapes, or JSON with \
                     something in it, so it cannot be an input"
                )
            } else {
                format!("the script has no constant `{name}`")
            };
            let known: Vec<_> = chosen.iter().map(|constant| format!("`{}`", constant.name)).collect();
            let hint = match known.as_slice() {
                [] => "an input is made of a line like `const days = 30;` at the top".to_owned(),
                known => format!("those that can be inputs: {}", known.join(", ")),
            };
            return Err(Failure::new(Code::Rejected, message).hint(hint));
        }
        chosen.retain(|constant| wanted.contains(&constant.name));
        Ok(chosen)
    }

    /// The subtools that it calls, or may call.
    fn calls(&self) -> BTreeSet<String> {
        let mut calls: BTreeSet<String> = self.start.tools.values().cloned().collect();
        for issued in &self.issued {
            match (issued.kind, &issued.name) {
                (CallKind::Run, Some(name)) => drop(calls.insert(name.clone())),
                (CallKind::AskUser, _) => drop(calls.insert(ASK_USER.to_owned())),
                _ => {}
            }
        }
        calls
    }

    /// Runs `source` with the results that the calls of the script had. Fails unless it calls and returns the same.
    async fn replay(
        &self,
        source: &str,
        input: &Map<String, Value>,
        tools: BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let input = Json::from(&Value::Object(input.clone()));
        let tools = self.start.tools.clone().into_iter().chain(tools).collect();
        let start = Start { source: source.to_owned(), name: NAME.to_owned(), input, tools, ..self.start.clone() };
        let mut worker = ScriptWorker::start().await?;
        let (mut made, mut settles) = (0, self.settled.iter());
        let mut next = HostMessage::Start(Box::new(start));
        loop {
            for message in worker.exchange(&[next]).await? {
                match message {
                    WorkerMessage::Call(call) => {
                        let place = usize::try_from(call.seq).ok().and_then(|seq| seq.checked_sub(1));
                        let earlier = place.and_then(|place| self.issued.get(place));
                        if earlier.is_none_or(|earlier| !IssuedCall::of(&call, earlier.at).is_same_as(earlier)) {
                            return Err(differs(&diverged(&call, earlier).error.message));
                        }
                        made = call.seq;
                    }
                    WorkerMessage::Done(done) => return self.compare(&done, made),
                    WorkerMessage::Failed(failed) if failed.kind == FailureKind::Syntax => {
                        return Err(failure(*failed));
                    }
                    WorkerMessage::Failed(failed) => return Err(differs(&failure(*failed).error.message)),
                    WorkerMessage::Note(_) | WorkerMessage::Idle(_) => {}
                }
            }
            let Some(settled) = settles.next() else {
                return Err(differs("it waits for a call that the script did not wait for"));
            };
            // It can be told only of what it called.
            if settled.settle.seq > made {
                let late = settled.settle.seq;
                return Err(differs(&format!("it has made {made} calls when call {late} of the script had ended")));
            }
            next = HostMessage::Settle(settled.settle.clone());
        }
    }

    /// Fails unless a program that made this many calls returned what the script did.
    fn compare(&self, Completion { value, .. }: &Completion, made: u64) -> Result<(), Failure> {
        let calls = self.issued.len();
        if usize::try_from(made) != Ok(calls) {
            return Err(differs(&format!("it makes {made} calls of {calls}")));
        }
        let is_same = value.to_value().is_ok_and(|value| value == self.result);
        if is_same { Ok(()) } else { Err(differs("it returns something else")) }
    }
}

fn differs(how: &str) -> Failure {
    Failure::new(
        Code::ScriptDiverged,
        format!("with the results of the script, the program does not do the same: {how}"),
    )
    .hint("nothing was called or saved; run the changed program once, and save that run")
}

/// The same in the texts and the keys of a value.
fn hidden_in(value: &Value) -> Option<String> {
    let in_text = |text: &str| hidden_letter(text).map(|(_, letter)| letter);
    match value {
        Value::String(text) => in_text(text),
        Value::Array(items) => items.iter().find_map(hidden_in),
        Value::Object(fields) => fields.iter().find_map(|(key, value)| in_text(key).or_else(|| hidden_in(value))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The first character of a program that is not seen, or that lets it look like another one, with its line.
fn hidden_letter(source: &str) -> Option<(usize, String)> {
    source.split('\n').zip(1..).find_map(|(line, number)| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let letter = line.chars().find(|letter| *letter != '\t' && is_invisible(*letter))?;
        Some((number, format!("U+{:04X}", u32::from(letter))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_human_cannot_see_is_found() {
        for (source, found) in [
            ("return 1\n\treturn `ä 年 🎉`\r\n", None),
            ("return 1\n// harmless\u{2028}steal()", Some((2, "U+2028"))),
            ("\u{202e}x", Some((1, "U+202E"))),
            ("a\0", Some((1, "U+0000"))),
            ("// a\rsteal()", Some((1, "U+000D"))),
            ("a\u{200b}b", Some((1, "U+200B"))),
        ] {
            let found = found.map(|(line, letter): (usize, &str)| (line, letter.to_owned()));
            assert_eq!(hidden_letter(source), found, "{source:?}");
        }
    }
}
