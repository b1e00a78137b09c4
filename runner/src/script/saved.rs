//! Subtools that were scripts: what a model wrote once and what succeeded becomes a definition, after a test.
//!
//! The test is a replay: the program gets the results that the calls of the script had, and must make the same calls and
//! return the same. It calls nothing. Whether a human has to agree is the matter of the subtool's definition.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use catalog::{Catalog, problems_of_definitions};
use definition::run::Run;
use ground::base::schema::InputSchema;
use ground::task::effect::EffectClass;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::invisible::is_invisible;
use protocol::regular_file;
use protocol::task::TaskId;
use protocol::trust::{self, untrusted};
use script::{
    CallKind, Completion, FailureKind, HostMessage, Json, ScriptConstant, Start, WorkerMessage, called_names,
    constants, declares, with_inputs,
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

/// How a file begins that is not whole yet.
const UNFINISHED: &str = ".saving-";

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
        "inputs": arguments.schema.as_ref().and_then(|schema| schema.get("properties")?.as_object()).map(|it| it.keys().collect::<Vec<_>>()),
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
        let name = catalog.new_name(&self.name).map_err(rejected)?;
        if let Some((line, letter)) = hidden_letter(&self.source) {
            let message = format!("line {line} of the program has a character that a human cannot see: {letter}");
            return Err(rejected(message).hint("write it as an escape in a text, like `\\u200b`, or leave it out"));
        }
        for call in &self.calls {
            let known = catalog.get(call).filter(|_| caller.tool_scope.covers(call));
            let Some(known) = known else {
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
        let problems = problems_of_definitions(&Map::new(), [(name.to_string(), definition)]);
        problems.first().map_or(Ok(()), |problem| {
            let place = problem.place.as_deref().map(|place| format!("`{place}`: ")).unwrap_or_default();
            Err(rejected(format!("{place}{}", problem.message)))
        })
    }

    /// What is written.
    fn saved(&self, catalog: &Catalog) -> Result<SavedScript, Failure> {
        let folder = catalog.own_folder();
        let folder = folder.ok_or_else(|| Failure::new(Code::Rejected, "no folder for subtools is configured"))?;
        if let Err(distrust) = trust::check(folder)
            && distrust.is_writable_by_others()
        {
            return Err(Failure::new(Code::Rejected, untrusted(&distrust)).hint("tell the user, who can change that"));
        }
        let program = format!("{}.js", self.name);
        let definition = self.definition(&json!({"file": program, "calls": self.calls}), catalog);
        let definition = serde_json::to_string_pretty(&json!({&self.name: definition}));
        let definition = definition.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        let line = |text: &str| format!("{}\n", text.trim_end());
        Ok(SavedScript {
            definition: (folder.join(format!("{}.json", self.name)), line(&definition)),
            program: (folder.join(program), line(&self.source)),
        })
    }

    /// The example as a run gets it: with the defaults of the schema.
    fn whole_example(&self) -> Result<Map<String, Value>, Failure> {
        let mut example = self.example.clone().unwrap_or_default();
        if let Some(schema) = &self.schema {
            let schema = InputSchema::compile(schema);
            schema.map_err(|error| Failure::new(Code::Rejected, error.to_string()))?.normalize(&mut example);
        }
        Ok(example)
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
                    "`{name}` is no constant at the top whose value is a number, a text, or JSON, so it cannot be an input"
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
        // `100` may be a limit of 99.5 later.
        Value::Number(_) => json!({"type": "number"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => {
            let mut kinds = items.iter().map(kind);
            let first = kinds.next().unwrap_or_else(|| json!({}));
            json!({"type": "array", "items": if kinds.all(|kind| kind == first) { first } else { json!({}) }})
        }
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

/// The first character of a program that is not seen, or that lets it look like another one, with its line.
fn hidden_letter(source: &str) -> Option<(usize, String)> {
    let is_hidden = |letter: &char| !matches!(letter, '\t' | '\r') && is_invisible(*letter);
    source.split('\n').zip(1..).find_map(|(line, number)| {
        let letter = line.chars().find(is_hidden)?;
        Some((number, format!("U+{:04X}", u32::from(letter))))
    })
}

/// The files of a saved script, each with its content.
struct SavedScript {
    definition: (PathBuf, String),
    program: (PathBuf, String),
}

impl SavedScript {
    fn is_there(&self) -> bool {
        [&self.definition, &self.program].into_iter().all(|(path, text)| has_content(path, text))
    }

    /// Writes the program, and then the definition that names it. Replaces nothing; a program without a definition is what a
    /// killed attempt left.
    fn write(&self) -> io::Result<()> {
        let folder = self.program.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if name.starts_with(UNFINISHED) {
                fs::remove_file(entry.path())?;
                continue;
            }
            let is_own = |path: &Path| path.file_name().is_some_and(|own| own.to_string_lossy().to_lowercase() == name);
            let is_left = entry.path() == self.program.0 && has_content(&self.program.0, &self.program.1);
            if (is_own(&self.definition.0) || is_own(&self.program.0)) && !is_left {
                return Err(exists(&entry.path()));
            }
        }
        if !has_content(&self.program.0, &self.program.1) {
            create(&self.program.0, &self.program.1)?;
        }
        create(&self.definition.0, &self.definition.1)
    }
}

fn has_content(path: &Path, text: &str) -> bool {
    regular_file::read_text(path, text.len() as u64).is_ok_and(|found| found == text)
}

fn exists(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("`{}` exists", path.display()))
}

/// Makes a file that appears whole, and replaces no other.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let mut file = builder.prefix(UNFINISHED).permissions(Permissions::from_mode(0o600)).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => error.error,
    })?;
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_an_input_is_like() {
        let before = json!({"city": "Köln", "ids": [1, 2.5]});
        let constants = constants("const maxDays = 30;\nconst rate = 0.5;");
        let found = schema(before.as_object().expect("an object"), &constants);
        let expected = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City, like \"Köln\"."},
                "ids": {"type": "array", "items": {"type": "number"}, "description": "Ids, like [1,2.5]."},
                "maxDays": {"type": "number", "description": "Max days, like 30.", "default": 30},
                "rate": {"type": "number", "description": "Rate, like 0.5.", "default": 0.5}
            },
            "additionalProperties": false,
            "required": ["city", "ids"]
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn files_are_written_both_and_replace_nothing_and_what_a_killed_attempt_left_is_finished() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |name: &str, text: &str| SavedScript {
            definition: (folder.path().join(format!("{name}.json")), "{}\n".to_owned()),
            program: (folder.path().join(format!("{name}.js")), format!("{text}\n")),
        };
        let saved = of("late_orders", "return 1");
        saved.write().expect("written");
        assert!(saved.is_there() && !of("late_orders", "return 2").is_there());
        for other in [of("late_orders", "return 1"), of("late_orders", "return 2"), of("Late_Orders", "return 1")] {
            assert_eq!(other.write().expect_err("it exists").kind(), io::ErrorKind::AlreadyExists);
        }
        // Killed between the two files, or in the first one.
        fs::remove_file(&saved.definition.0).expect("removed");
        fs::write(folder.path().join(".saving-abc"), "half").expect("written");
        assert!(of("late_orders", "return 2").write().is_err(), "the program is another one's");
        saved.write().expect("finished");
        assert!(saved.is_there() && !folder.path().join(".saving-abc").exists());
    }

    #[test]
    fn what_a_human_cannot_see_is_found() {
        for (source, found) in [
            ("return 1\n\treturn `ä 年 🎉`\r\n", None),
            ("return 1\n// harmless\u{2028}steal()", Some((2, "U+2028"))),
            ("\u{202e}x", Some((1, "U+202E"))),
            ("a\0", Some((1, "U+0000"))),
            ("a\u{200b}b", Some((1, "U+200B"))),
        ] {
            let found = found.map(|(line, letter): (usize, &str)| (line, letter.to_owned()));
            assert_eq!(hidden_letter(source), found, "{source:?}");
        }
    }
}
