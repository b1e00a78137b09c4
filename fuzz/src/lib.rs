//! What is fuzzed: everything that reads bytes which somebody else wrote.
//!
//! Each function takes any bytes and panics where a promise is broken. `fuzz_targets/` hands them to
//! libFuzzer; `tests/fuzz.rs` of the workspace replays the corpora, and variants of them, on stable.

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

use executor::base::select;
use executor::base::template::{self, TemplateValues};
use executor::catalog::{Catalog, Sources};
use executor::config::Config;
use executor::config::secret::SecretName;
use executor::intake::{Intake, IntakeOutcome};
use executor::results::result_file::{ApproverStatus, DataFile, render};
use executor::runner::Invocation;
use executor::task::effect::EffectClass;
use executor::task::name::SubtoolName;
use executor::task::{End, Outcome, Task};
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::duration::PositiveDuration;
use protocol::mailbox::TakenRequest;
use protocol::mailbox::request::Request;
use protocol::mailbox::result::is_final;
use protocol::task::{State, TaskId};
use protocol::{json, part};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by the name of its corpus.
pub const TARGETS: &[Target] = &[
    ("request", request),
    ("definitions", definitions),
    ("template", template),
    ("result", result),
    ("select", select),
    ("words", words),
];

/// A request file, as the executor reads it: a task that fits its subtool, or an answer.
pub fn request(bytes: &[u8]) {
    thread_local! {
        static DESK: Intake = {
            let config = Config::default();
            let sources = Sources::new(&config, &PathBuf::from("/nowhere"), None);
            Intake::new(config, sources, "fuzz".to_owned(), Arc::default()).expect("no rules")
        };
    }
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let again = serde_json::to_vec(&request).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<Request>(&again).ok(), Some(request), "it is read as it was written");
    }
    let taken = TakenRequest { id: TaskId::new(), uid: 1000, bytes: Ok(bytes.to_vec()), written_at: None };
    DESK.with(|intake| {
        if let IntakeOutcome::Run { task, definition } = intake.read(&taken, at()) {
            assert_eq!((task.id, task.state, task.attempt), (taken.id, State::Accepted, 0));
            let known = intake.definition_of(&task);
            assert!(
                known.is_some_and(|known| Arc::ptr_eq(&known, &definition)),
                "it is run as what it was checked against"
            );
            plan(&definition.run, task.input);
        }
    });
}

/// A file of definitions: each subtool is loaded or has a problem, and the same each time.
pub fn definitions(bytes: &[u8]) {
    thread_local! {
        static FOLDER: TempDir = tempfile::tempdir().expect("a folder");
    }
    FOLDER.with(|folder| {
        let path = folder.path().join("fuzzed.json");
        std::fs::write(&path, bytes).expect("written");
        let mut config = Config::default();
        config.catalog.packs.clear();
        let sources = Sources::new(&config, folder.path(), Some(path.as_os_str()));
        let (catalog, again) = (Catalog::load(&sources), Catalog::load(&sources));
        assert_eq!(catalog.problems(), again.problems());
        for subtool in catalog.subtools() {
            assert_eq!(again.get(subtool.name.as_str()).map(|other| &other.hash), Some(&subtool.hash));
            for example in &subtool.definition.examples {
                plan(&subtool.definition.run, example.input.clone());
            }
        }
        for problem in catalog.problems() {
            assert!(!problem.to_string().is_empty());
        }
    });
}

/// What would be sent, where that can be told.
fn plan(run: &executor::runner::Run, input: Map<String, Value>) {
    thread_local! {
        static CONFIG: Config = Config::default();
    }
    let invocation = Invocation {
        id: TaskId::new().to_string(),
        attempt: 1,
        input,
        caller: Caller { folder: Some("/nowhere".into()), ..Caller::default() },
        ..Invocation::default()
    };
    CONFIG.with(|config| drop(run.plan(&invocation, config)));
}

/// A template in the first line, its input in the rest.
pub fn template(bytes: &[u8]) {
    let (template, input) = first_line(bytes);
    let input = json::parse(input).ok().and_then(|input| input.as_object().cloned()).unwrap_or_default();
    let scope = TemplateValues::of_input(&input);
    let is_sound = template::check(&template).is_ok();
    let rendered = scope.text(&template);
    assert!(is_sound || rendered.is_err(), "`{template}` is refused when it is loaded, and filled when it is used");
    drop(scope.value(&Value::String(template.clone())));
    drop(scope.holds(&template));
    // Placed by itself, a value cannot become more than one part of a path.
    for name in input.keys().filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase()) && !name.is_empty()) {
        if let Ok(part) = scope.url_part(&format!("{{{{ {name} }}}}")) {
            let is_encoded = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte));
            assert!(is_encoded, "`{part}` is more than a part of a path");
        }
    }
}

/// No human has the page open.
const OFFLINE: ApproverStatus = ApproverStatus { queue_position: None, is_online: false, last_seen: None };

/// Data of a task: its result file is whole and final, and any part of any bytes can be read.
pub fn result(bytes: &[u8]) {
    assert!(!is_final(bytes) || bytes.ends_with(b"\n}\n"), "half a file is not final");
    let (from, to) = match bytes {
        [from, to, ..] => (u64::from(*from), u64::from(*to)),
        _ => (0, 1),
    };
    let range = from.min(to)..=from.max(to);
    let part = part::bytes(Cursor::new(bytes), &range).expect("memory can be read");
    assert!(part.end <= part.total && part.first <= part.end && part.total == bytes.len() as u64, "{part:?}");
    let lines = part::lines(Cursor::new(bytes), &range).expect("memory can be read");
    assert!(lines.bytes.len() <= bytes.len(), "{lines:?}");
    drop((part.content(), lines.content()));
    let page = part::page(Cursor::new(bytes), from, to);
    let Ok(data) = json::parse(bytes) else { return };
    if let (Ok(_), Value::Array(items)) = (&page, &data) {
        assert!(items.len() as u64 >= from.min(items.len() as u64));
    }
    for inline_bytes in [20, usize::MAX] {
        let file = render(&ended(data.clone()), inline_bytes, OFFLINE, |extension| format!("data.{extension}"));
        assert!(is_final(file.text.as_bytes()), "{}", file.text);
        let read: Value = serde_json::from_str(&file.text).expect("a result file is JSON");
        match file.data_file {
            None => assert_eq!(read["data"], data, "data is what it was"),
            Some(DataFile::Text { text, extension: "txt" }) => {
                assert_eq!(data, text.as_str(), "a text lies there as itself");
            }
            Some(DataFile::Text { text, .. }) => {
                let beside: Value = serde_json::from_str(&text).expect("data lies beside it as JSON");
                assert_eq!(beside, data, "data is what it was");
            }
            Some(DataFile::File { .. }) => panic!("JSON is no file"),
        }
    }
}

fn ended(data: Value) -> Task {
    let (tool, caller) = ("fuzzed".parse().expect("a name"), Caller { uid: 1000, ..Caller::default() });
    Task {
        state: State::Succeeded,
        attempt: 1,
        end: Some(End { at: at(), outcome: Outcome::Data(data), meta: Map::new() }),
        ..Task::accepted(TaskId::new(), tool, String::new(), EffectClass::Read, Map::new(), caller, at())
    }
}

/// A jq expression in the first line, its data in the rest.
pub fn select(bytes: &[u8]) {
    /// What may go on for ever, as in any jq; who runs an expression has a deadline.
    const ENDLESS: &[&str] = &[
        "def",
        "repeat",
        "range",
        "recurse",
        "while",
        "until",
        "limit",
        "..",
        "reduce",
        "foreach",
        "*",
        "combinations",
        "pow",
        "exp",
    ];
    let (expression, data) = first_line(bytes);
    let is_sound = select::check(&expression).is_ok();
    if expression.len() > 200 || ENDLESS.iter().any(|word| expression.contains(word)) {
        return;
    }
    let Ok(data) = json::parse(data) else {
        drop(select::outputs_of(&expression, data));
        return;
    };
    let selected = select::select(&expression, &data);
    assert!(is_sound || selected.is_err(), "`{expression}` is refused when it is loaded, and works when it is used");
    if expression.trim() == "." {
        assert_eq!(selected.ok().as_ref().map(Value::to_string), Some(data.to_string()), "the same is the same");
    }
}

/// Ids, durations and names, which are written as they were read.
pub fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(id) = text.parse::<TaskId>() {
        assert_eq!(id.to_string(), text);
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()), "an id is a file's name");
    }
    if let Ok(span) = text.parse::<PositiveDuration>() {
        assert_eq!(span.to_string().parse::<PositiveDuration>().ok(), Some(span), "{span}");
    }
    if let Ok(name) = text.parse::<SubtoolName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Some(name) = SecretName::in_reference(&text) {
        assert_eq!(name.to_string(), text);
        assert!(!name.as_str().contains(['/', '.']), "a secret's name is a file's name");
    }
}

fn first_line(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes.get(end + 1..).unwrap_or_default())
}

/// Any time.
fn at() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}
