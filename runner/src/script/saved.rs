//! Subtools that were scripts: what a model wrote once and what succeeded becomes a definition, after a test.
//!
//! The test is a replay: the program gets the results that the calls of the script had, and must make the same calls and
//! return the same. It calls nothing. Whether a human has to agree is the matter of the subtool's definition.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use catalog::{Catalog, problems_of_definitions};
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::task::TaskId;
use script::{CallKind, Completion, HostMessage, Json, ScriptConstant, Start, WorkerMessage, constants, with_inputs};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::calls::ASK_USER;
use super::record::{IssuedCall, ScriptEntry, ScriptRecord, SettledCall};
use super::worker::ScriptWorker;
use super::{NAME, diverged, failure};
use crate::delegation::{CalledTask, Delegation};
use crate::{Failure, Invocation, RunnerContext, RunnerOutput};

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
    let mut chosen = constants(&script.start.source);
    let before = script.input();
    chosen.retain(|constant| !before.contains_key(&constant.name));
    if let Some(wanted) = &arguments.inputs {
        let unknown = wanted.iter().find(|name| chosen.iter().all(|constant| constant.name != **name));
        if let Some(unknown) = unknown {
            return Err(no_constant(unknown, &chosen));
        }
        chosen.retain(|constant| wanted.contains(&constant.name));
    }
    let source = with_inputs(&script.start.source, &chosen);
    let mut example = before.clone();
    example.extend(chosen.iter().map(|constant| (constant.name.clone(), constant.value.clone())));
    script.replay(&source, &example).await?;
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
    let (name, folder) = arguments.check(&catalog)?;
    let script = EndedScript::find(&arguments.script, invocation, delegation)?;
    script.replay(&arguments.source, &arguments.example.clone().unwrap_or_default()).await?;
    let undeclared = script.calls().into_iter().find(|call| !arguments.calls.contains(call));
    if let Some(call) = undeclared {
        let message = format!("the program calls `{call}`, which is not among its `calls`");
        return Err(Failure::new(Code::Rejected, message).hint("list everything that it may call in `calls`"));
    }
    let file = format!("{name}.js");
    let definition = arguments.definition(&json!({"file": file, "calls": arguments.calls}), &catalog);
    let (source, calls) = (arguments.source, script.issued.len());
    let written = tokio::task::spawn_blocking(move || write(&folder, &name, &source, &definition)).await;
    let written = written.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    let paths = written.map_err(|error| {
        let is_taken = error.kind() == io::ErrorKind::AlreadyExists;
        let failure =
            Failure::new(if is_taken { Code::Rejected } else { Code::Io }, format!("nothing was saved: {error}"));
        if is_taken { failure.hint("choose another name, or have the user remove that file") } else { failure }
    })?;
    Ok(RunnerOutput::json(json!({
        "name": arguments.name,
        "files": paths,
        "tested": {"calls": calls},
        "run": format!("agent-magic-tool run {} --wait", arguments.name),
    })))
}

impl SaveArguments {
    /// Returns why it cannot be saved, as far as that is known without a test.
    pub(crate) fn refusal(&self, context: &RunnerContext) -> Option<Failure> {
        let delegation = context.delegation.as_ref()?;
        self.check(&delegation.subtools.borrow()).err()
    }

    /// The name of the subtool and the folder of its files.
    fn check(&self, catalog: &Catalog) -> Result<(SubtoolName, PathBuf), Failure> {
        let rejected = |message: String| Failure::new(Code::Rejected, message);
        let name: SubtoolName =
            self.name.parse().map_err(|error| rejected(format!("`{}` is no name of a subtool: {error}", self.name)))?;
        if catalog.is_defined(name.as_str()) {
            return Err(rejected(format!("there is a subtool named `{name}` already")).hint("choose another name"));
        }
        let folder = catalog.own_folder().ok_or_else(|| rejected("no folder for subtools is configured".to_owned()))?;
        // Everything but the program, which is no template.
        let definition = self.definition(&json!({"source": "return 1", "calls": self.calls}), catalog);
        let problems = problems_of_definitions(&Map::new(), [(name.to_string(), definition)]);
        match problems.first() {
            None => Ok((name, folder.to_owned())),
            Some(problem) => {
                let place = problem.place.as_deref().map(|place| format!("`{place}`: ")).unwrap_or_default();
                Err(rejected(format!("{place}{}", problem.message)))
            }
        }
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
        let ended = task.parse::<TaskId>().ok().and_then(|id| delegation.ended(id, &invocation.caller));
        let ended = ended.ok_or_else(|| {
            unknown(
                format!("no ended task `{task}` of yours"),
                "take the id of a script that has ended: agent-magic-tool tasks",
            )
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
    async fn replay(&self, source: &str, input: &Map<String, Value>) -> Result<(), Failure> {
        let input = Json::from(&Value::Object(input.clone()));
        let start = Start { source: source.to_owned(), name: NAME.to_owned(), input, ..self.start.clone() };
        let settles = self.settled.iter().map(|call| HostMessage::Settle(call.settle.clone()));
        let messages: Vec<_> = std::iter::once(HostMessage::Start(Box::new(start))).chain(settles).collect();
        let mut made = 0;
        for message in ScriptWorker::start().await?.exchange(&messages).await? {
            match message {
                WorkerMessage::Call(call) => {
                    let earlier = usize::try_from(call.seq).ok().and_then(|seq| self.issued.get(seq.checked_sub(1)?));
                    if earlier.is_none_or(|earlier| !IssuedCall::of(&call, earlier.at).is_same_as(earlier)) {
                        return Err(differs(&diverged(&call, earlier).error.message));
                    }
                    made += 1;
                }
                WorkerMessage::Done(Completion { value, .. }) => {
                    let is_same = value.to_value().is_ok_and(|value| value == self.result);
                    return match (is_same, made == self.issued.len()) {
                        (true, true) => Ok(()),
                        (false, _) => Err(differs("it returns something else")),
                        (true, false) => Err(differs(&format!("it makes {made} calls of {}", self.issued.len()))),
                    };
                }
                WorkerMessage::Failed(failed) => return Err(differs(&failure(*failed).error.message)),
                WorkerMessage::Note(_) | WorkerMessage::Idle(_) => {}
            }
        }
        Err(differs("it waits for a call that the script did not wait for"))
    }
}

fn differs(how: &str) -> Failure {
    Failure::new(
        Code::ScriptDiverged,
        format!("with the results of the script, the program does not do the same: {how}"),
    )
    .hint("nothing was called or saved; run the changed program once, and save that run")
}

fn no_constant(name: &str, constants: &[ScriptConstant]) -> Failure {
    let known: Vec<_> = constants.iter().map(|constant| format!("`{}`", constant.name)).collect();
    let hint = if known.is_empty() {
        "an input is made of a line like `const days = 30;` at the top, or of the script's own `input`".to_owned()
    } else {
        format!("those at the top are {}", known.join(", "))
    };
    Failure::new(Code::Rejected, format!("the script has no constant `{name}`")).hint(hint)
}

/// The schema of an object like `required`, in which each constant may be another one.
fn schema(required: &Map<String, Value>, constants: &[ScriptConstant]) -> Value {
    let mut properties = Map::new();
    for (name, value) in required {
        properties.insert(name.clone(), property(name, value));
    }
    for ScriptConstant { name, value, .. } in constants {
        let mut property = property(name, value);
        property["default"] = value.clone();
        properties.insert(name.clone(), property);
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = required.keys().cloned().collect();
    }
    schema
}

/// The schema of a value like this one.
fn property(name: &str, value: &Value) -> Value {
    let mut property = kind(value);
    property["description"] = format!("{}, like {}.", words(name), shown(value)).into();
    property
}

fn kind(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => json!({"type": "array", "items": items.first().map_or_else(|| json!({}), kind)}),
        Value::Object(_) => json!({"type": "object"}),
    }
}

/// A value in a description.
fn shown(value: &Value) -> String {
    const MAX_CHARS: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MAX_CHARS { text } else { text.chars().take(MAX_CHARS).chain(['…']).collect() }
}

/// `maxDays` as `Max days`.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        match letter {
            '_' | '-' | '$' => words.push(' '),
            upper if upper.is_ascii_uppercase() && words.ends_with(|before: char| before.is_ascii_lowercase()) => {
                words.extend([' ', upper.to_ascii_lowercase()]);
            }
            letter if words.is_empty() => words.extend(letter.to_uppercase()),
            letter => words.push(letter),
        }
    }
    words.trim().to_owned()
}

/// Writes the program, and then the definition that names it. Replaces nothing.
fn write(folder: &Path, name: &SubtoolName, source: &str, definition: &Value) -> io::Result<[PathBuf; 2]> {
    fs::create_dir_all(folder)?;
    let (program, own) = (folder.join(format!("{name}.js")), folder.join(format!("{name}.json")));
    if own.exists() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("`{}` exists", own.display())));
    }
    let mut content = serde_json::to_string_pretty(&json!({name.as_str(): definition}))?;
    content.push('\n');
    let mut source = source.trim_end().to_owned();
    source.push('\n');
    create(&program, &source)?;
    if let Err(error) = create(&own, &content) {
        fs::remove_file(&program)?;
        return Err(error);
    }
    Ok([own, program])
}

/// Makes a file that appears whole, and replaces no other.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o600)).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(io::ErrorKind::AlreadyExists, format!("`{}` exists", path.display()))
        }
        _ => error.error,
    })?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_an_input_is_like() {
        let before = json!({"city": "Köln", "ids": [1, 2]});
        let constants = constants("const maxDays = 30;\nconst rate = 0.5;");
        let found = schema(before.as_object().expect("an object"), &constants);
        let expected = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, like \"Köln\"."},
                "ids": {"type": "array", "items": {"type": "integer"}, "description": "Ids, like [1,2]."},
                "maxDays": {"type": "integer", "description": "Max days, like 30.", "default": 30},
                "rate": {"type": "number", "description": "Rate, like 0.5.", "default": 0.5}
            },
            "additionalProperties": false,
            "required": ["city", "ids"]
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn files_are_written_both_or_not_at_all_and_replace_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let name: SubtoolName = "late_orders".parse().expect("a name");
        let place = folder.path().join("subtools");
        write(&place, &name, "return 1\n\n", &json!({"description": "x"})).expect("written");
        assert_eq!(fs::read_to_string(place.join("late_orders.js")).expect("there"), "return 1\n");
        for gone in ["late_orders.json", "late_orders.js"] {
            let before = fs::read(place.join("late_orders.js")).ok();
            let error = write(&place, &name, "return 2", &json!({})).expect_err("it exists");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(place.join("late_orders.js")).ok(), before, "{gone}");
            fs::remove_file(place.join(gone)).expect("removed");
        }
    }
}
