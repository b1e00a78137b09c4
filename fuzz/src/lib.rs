//! The fuzz targets: every parser of bytes that others wrote.
//!
//! Each function accepts any bytes and panics if an invariant is violated. `fuzz_targets/` passes them to
//! libFuzzer; `tests/fuzz.rs` of the workspace replays the corpora and variants of them on stable Rust.

use runner::Runner as _;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Catalog, Sources};
use executor::intake::{self, Intake, ValidRun};
use ground::base::template::TemplateValues;
use ground::base::template::names::DeclaredNames;
use ground::config::Config;
use ground::config::secret::SecretName;
use ground::results::result_file::{ApproverStatus, DataFile, render};
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use ground::task::{End, Outcome, Task};
use jiff::Timestamp;
use jq::select;
use protocol::caller::Caller;
use protocol::duration::PositiveDuration;
use protocol::mailbox::TakenRequest;
use protocol::mailbox::request::{Operation, Request};
use protocol::mailbox::result::is_final;
use protocol::task::{State, TaskId};
use protocol::{json, part};
use runner::Invocation;
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

/// A request file, which becomes a task that fits its subtool, or an answer.
pub fn request(bytes: &[u8]) {
    thread_local! {
        static INTAKE: Intake = {
            let config = Config::default();
            Intake::alone(config, &PathBuf::from("/nowhere"), "fuzz").expect("the default configuration has no invalid rule")
        };
    }
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let again = serde_json::to_vec(&request).expect("a parsed request serializes");
        assert_eq!(serde_json::from_slice::<Request>(&again).ok(), Some(request), "a request round-trips");
    }
    let taken = TakenRequest { id: TaskId::new(), uid: 1000, bytes: Ok(bytes.to_vec()), written_at: None };
    INTAKE.with(|intake| {
        let Ok(Request { operation: Operation::Run(run), caller, .. }) = intake::parse(&taken) else { return };
        if let Ok(ValidRun::Task { task, definition, .. }) = intake.run(taken.id, caller, *run, at()) {
            assert_eq!((task.id, task.state, task.attempt), (taken.id, State::Accepted, 0));
            let known = intake.definition_of(&task);
            assert!(
                known.is_some_and(|known| Arc::ptr_eq(&known, &definition)),
                "a task runs with the definition it was checked against"
            );
            plan(&definition.run, task.input);
        }
    });
}

/// A file of definitions. Each subtool loads or has a problem, and loading is deterministic.
pub fn definitions(bytes: &[u8]) {
    thread_local! {
        static FOLDER: TempDir = tempfile::tempdir().expect("failed to create a temporary folder");
    }
    FOLDER.with(|folder| {
        let path = folder.path().join("fuzzed.json");
        std::fs::write(&path, bytes).expect("failed to write the file");
        let mut config = Config::default();
        config.catalog.packs.clear();
        let sources = Sources::new(&config, folder.path(), Some(path.as_os_str()));
        let (catalog, again) = (Catalog::load(&sources), Catalog::load(&sources));
        let problems = catalog.all_problems();
        assert_eq!(problems, again.all_problems());
        for subtool in catalog.subtools() {
            assert_eq!(again.get(subtool.name.as_str()).map(|other| other.hash.clone()).as_ref(), Some(&subtool.hash));
            for example in &subtool.definition.examples {
                plan(&subtool.definition.run, example.input.clone());
            }
        }
        for problem in problems {
            assert!(!problem.to_string().is_empty());
        }
    });
}

/// Plans a run, as a dry run does.
fn plan(run: &definition::run::Run, input: Map<String, Value>) {
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

/// A template on the first line and its input on the rest.
pub fn template(bytes: &[u8]) {
    let (template, input) = first_line(bytes);
    let input = json::parse(input).ok().and_then(|input| input.as_object().cloned()).unwrap_or_default();
    let scope = TemplateValues::of_input(&input);
    let is_valid = DeclaredNames::default().mistakes_in_template(&template).is_ok();
    let rendered = scope.text(&template);
    assert!(is_valid || rendered.is_err(), "`{template}` is refused when loaded but can be filled");
    drop(scope.value(&Value::String(template.clone())));
    drop(scope.holds(&template));
    // A value in a URL path can never become more than one path segment.
    for name in input.keys().filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase()) && !name.is_empty()) {
        if let Ok(part) = scope.url_part(&format!("{{{{ {name} }}}}")) {
            let is_encoded = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte));
            assert!(is_encoded, "`{part}` is not a single path segment");
        }
    }
}

/// No human has the page open.
const OFFLINE: ApproverStatus = ApproverStatus { queue_position: None, is_online: false, last_seen: None };

/// The data of a task. Its result file is complete and final, and any part of any bytes can be read.
pub fn result(bytes: &[u8]) {
    assert!(!is_final(bytes) || bytes.ends_with(b"\n}\n"), "an incomplete file is final");
    let (from, to) = match bytes {
        [from, to, ..] => (u64::from(*from), u64::from(*to)),
        _ => (0, 1),
    };
    let range = from.min(to)..=from.max(to);
    let part = part::bytes(Cursor::new(bytes), &range, part::MAX_BYTES).expect("reading from memory cannot fail");
    assert!(part.end <= part.total && part.first <= part.end && part.total == bytes.len() as u64, "{part:?}");
    let lines = part::lines(Cursor::new(bytes), &range, part::MAX_BYTES).expect("reading from memory cannot fail");
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
        let read: Value = serde_json::from_str(&file.text).expect("a result file is valid JSON");
        match file.data_file {
            None => assert_eq!(read["data"], data, "the data changed"),
            Some(DataFile::Text { text, extension: "txt" }) => {
                assert_eq!(data, text.as_str(), "a string is stored as plain text");
            }
            Some(DataFile::Text { text, .. }) => {
                let beside: Value = serde_json::from_str(&text).expect("a JSON data file is valid JSON");
                assert_eq!(beside, data, "the data changed");
            }
            Some(DataFile::File { .. }) => panic!("JSON data is never in a spooled file"),
        }
    }
}

fn ended(data: Value) -> Task {
    let (tool, caller) = ("fuzzed".parse().expect("a valid name"), Caller { uid: 1000, ..Caller::default() });
    Task {
        state: State::Succeeded,
        attempt: 1,
        end: Some(End { at: at(), outcome: Outcome::Data(data), meta: Map::new() }),
        ..Task::accepted(TaskId::new(), tool, String::new(), EffectClass::Read, Map::new(), caller, at())
    }
}

/// A jq expression on the first line and its data on the rest.
pub fn select(bytes: &[u8]) {
    /// Expressions with these may not terminate, as in any jq, and have no deadline here.
    const UNBOUNDED: &[&str] = &[
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
    let is_valid = select::check(&expression).is_ok();
    if expression.len() > 200 || UNBOUNDED.iter().any(|word| expression.contains(word)) {
        return;
    }
    let Ok(data) = json::parse(data) else {
        drop(select::outputs_of(&expression, data));
        return;
    };
    let selected = select::select(&expression, &data);
    assert!(is_valid || selected.is_err(), "`{expression}` is refused when loaded but can be evaluated");
    if expression.trim() == "." {
        assert_eq!(selected.ok().as_ref().map(Value::to_string), Some(data.to_string()), "`.` changes the data");
    }
}

/// Ids, durations and names, which round-trip.
pub fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(id) = text.parse::<TaskId>() {
        assert_eq!(id.to_string(), text);
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()), "an id is a valid file name");
    }
    if let Ok(span) = text.parse::<PositiveDuration>() {
        assert_eq!(span.to_string().parse::<PositiveDuration>().ok(), Some(span), "{span}");
    }
    if let Ok(name) = text.parse::<SubtoolName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Some(name) = SecretName::in_reference(&text) {
        assert_eq!(name.to_string(), text);
        assert!(!name.as_str().contains(['/', '.']), "a secret's name is a valid file name");
    }
}

fn first_line(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes.get(end + 1..).unwrap_or_default())
}

/// An arbitrary time.
fn at() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("the time is in range")
}
