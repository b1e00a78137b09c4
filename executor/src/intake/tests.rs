//! Tests of intake: which requests become tasks.

use std::path::Path;
use std::{fs, io};

use dispatcher::Reassessment;
use ground::task::confirmation;
use protocol::mailbox::request::{Operation, VERSION};

use super::*;

const DEFINITIONS: &str = r#"{
    "greet": {
        "description": "d",
        "input": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 1},
            "times": {"type": "integer", "default": 1, "maximum": 3}}},
        "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["echo", "{{ name }}", "{{ times }}"]}}
    },
    "send": {"description": "d", "input": {"type": "object"}, "run": {"process": {"argv": ["true"]}}}
}"#;

fn intake(folder: &Path) -> Intake {
    fs::create_dir_all(folder.join("subtools")).expect("a folder");
    fs::write(folder.join("subtools/test.json"), DEFINITIONS).expect("written");
    intake_with(folder, "")
}

/// An intake with the definitions in `folder` and this configuration.
fn intake_with(folder: &Path, config: &str) -> Intake {
    let path = folder.join("config.toml");
    fs::write(&path, config).expect("written");
    Intake::alone(Config::load(&path).expect("it loads"), folder, "test").expect("the rules are valid")
}

fn taken(bytes: impl Into<Vec<u8>>) -> TakenRequest {
    TakenRequest { id: TaskId::new(), uid: 1000, bytes: Ok(bytes.into()), written_at: None }
}

fn asked(ask: &Value) -> TakenRequest {
    taken(json!({"v": VERSION, "operation": ask, "caller": {"uid": 7, "session": "s", "folder": "/"}}).to_string())
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("a time")
}

/// Reads a request to run a subtool.
fn read(intake: &Intake, taken: &TakenRequest) -> Result<ValidRun, ErrorBody> {
    let Request { operation, caller, .. } = parse(taken)?;
    intake.run(taken.id, caller, run_of(operation), now())
}

fn run_of(operation: Operation) -> RunRequest {
    match operation {
        Operation::Run(run) => *run,
        other => panic!("no run: {other:?}"),
    }
}

fn task_of(intake: &Intake, taken: &TakenRequest) -> (Task, Arc<Definition>) {
    match read(intake, taken) {
        Ok(ValidRun::Task { task, definition, .. }) => (*task, definition),
        other => panic!("no task: {other:?}"),
    }
}

fn refusal(intake: &Intake, taken: &TakenRequest) -> ErrorBody {
    read(intake, taken).expect_err("it is refused")
}

#[test]
fn a_valid_request_becomes_a_task_with_defaults_and_typed_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    let taken = asked(&json!({"run": {"tool": "greet", "words": {"name": "7"}, "idempotency_key": "k"}}));
    let (task, definition) = task_of(&intake, &taken);
    let expected = Task {
        id: taken.id,
        input: json!({"name": "7", "times": 1}).as_object().expect("an object").clone(),
        definition_hash: task.definition_hash.clone(),
        caller: Caller { uid: 1000, session: Some("s".to_owned()), folder: Some("/".into()), ..Caller::default() },
        idempotency_key: Some("k".to_owned()),
        ..Task::sample("greet", EffectClass::Read, now())
    };
    assert_eq!(task, expected);
    assert!(Arc::ptr_eq(&intake.definition_of(&task).expect("the same"), &definition));
    let words = asked(&json!({"run": {"tool": "greet", "input": {"name": "x"}, "words": {"times": "2"}}}));
    let (task, _) = task_of(&intake, &words);
    assert_eq!(task.input["times"], 2, "a word is parsed as the type in the schema");
}

#[test]
fn an_invalid_request_is_refused_with_what_to_fix() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    let refused = |ask: Value| refusal(&intake, &asked(&ask));
    let unknown = refused(json!({"run": {"tool": "gret"}}));
    assert_eq!((unknown.code, &unknown.details["nearest"][0]), (Code::UnknownSubtool, &json!("greet")));
    assert!(unknown.hint.expect("a hint").contains("`greet`"));
    let invalid = refused(json!({"run": {"tool": "greet", "input": {"name": "", "times": 4}}}));
    assert_eq!(invalid.code, Code::InvalidInput);
    assert_eq!(invalid.details["problems"].as_array().map(Vec::len), Some(2), "all problems at once: {invalid:?}");
    let missing = refused(json!({"run": {"tool": "greet"}}));
    assert!(missing.message.contains("name"), "{missing:?}");
    let unapprovable = refused(json!({"run": {"tool": "send", "if_no_approver": "fail"}}));
    assert_eq!(unapprovable.code, Code::NoApprover);
    assert!(unapprovable.hint.is_some_and(|hint| hint.contains("without --if-no-approver=fail")));
}

#[test]
fn a_session_that_never_waits_is_told_what_to_do_and_of_no_option() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    let caller = Caller { unattended: true, ..Caller::default() };
    let request = json!({"v": VERSION, "operation": {"run": {"tool": "send"}}, "caller": caller});
    let refused = refusal(&intake, &taken(request.to_string()));
    assert_eq!(refused.code, Code::NoApprover);
    let expected = "tell the user to open it (agent-magic-tool executor page), then call it again";
    assert_eq!(refused.hint.as_deref(), Some(expected));
}

#[test]
fn without_a_page_a_task_that_needs_confirmation_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(intake(folder.path()));
    let intake = intake_with(folder.path(), "[page]\nenabled = false\n");
    let refused = refusal(&intake, &asked(&json!({"run": {"tool": "send"}})));
    assert_eq!(refused.code, Code::NoApprover);
    let (task, _) = task_of(&intake, &asked(&json!({"run": {"tool": "greet", "input": {"name": "x"}}})));
    assert!(task.confirmation.is_none(), "a task without confirmation is accepted");
}

#[test]
fn a_task_that_needs_confirmation_carries_the_confirmation() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    let asked = asked(&json!({"run": {"tool": "send", "reason": "r".repeat(1_000)}}));
    let (task, _) = task_of(&intake, &asked);
    let confirmation = task.confirmation.as_ref().expect("a confirmation");
    assert_eq!(confirmation.reason.as_ref().map(String::len), Some(confirmation::MAX_REASON_CHARS));
    assert_eq!(confirmation.digest, confirmation.digest_of("test", &task, &task.input));
    assert!(confirmation.decision.is_none() && confirmation.expires_at > now());
}

#[test]
fn a_malformed_request_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    let run = json!({"run": {"tool": "greet", "input": {"name": "x"}}});
    for bytes in [
        b"".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"\xff".to_vec(),
        json!({"v": VERSION}).to_string().into_bytes(),
        json!({"v": VERSION, "operation": run, "more": 1}).to_string().into_bytes(),
        json!({"v": VERSION, "operation": {"run": {"tool": "greet", "inputs": {}}}}).to_string().into_bytes(),
        json!({"v": VERSION, "operation": {"cancel": {"id": "../x"}}}).to_string().into_bytes(),
    ] {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(refusal(&intake, &taken(bytes)).code, Code::BadRequest, "{text}");
    }
    let newer = refusal(&intake, &taken(json!({"v": 3, "operation": run}).to_string()));
    assert!(newer.message.contains("version 3") && newer.hint.is_some(), "{newer:?}");
    for (kind, code) in
        [(io::ErrorKind::FileTooLarge, Code::RequestTooLarge), (io::ErrorKind::InvalidInput, Code::BadRequest)]
    {
        let unreadable = TakenRequest { id: TaskId::new(), uid: 1000, bytes: Err(kind.into()), written_at: None };
        assert_eq!(refusal(&intake, &unreadable).code, code);
    }
}

#[test]
fn a_dry_run_says_what_would_be_sent_and_whether_a_human_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    for (tool, asks) in [("greet", false), ("send", true)] {
        let taken = asked(&json!({"run": {"tool": tool, "input": {"name": "x"}, "dry_run": true}}));
        let Ok(ValidRun::Plan { plan, .. }) = read(&intake, &taken) else { panic!("a plan") };
        assert_eq!(plan["confirmation"].is_string(), asks, "{plan}");
        assert!(plan["would_send"]["process"].is_object(), "{plan}");
    }
}

#[test]
fn a_read_only_session_may_only_run_read_only_subtools() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = intake(folder.path());
    let run = |tool: &str| {
        let operation = json!({"run": {"tool": tool, "input": {"name": "x"}}});
        let request = json!({"v": VERSION, "operation": operation, "caller": {"read_only": true}});
        read(&intake, &taken(request.to_string()))
    };
    assert!(matches!(run("greet"), Ok(ValidRun::Task { .. })));
    let error = run("send").expect_err("it changes something");
    assert_eq!(error.code, Code::RefusedByPolicy);
    assert!(error.message.contains("this session is read-only"), "{}", error.message);
}

#[test]
fn the_user_of_a_request_is_that_of_its_file() {
    let request = parse(&asked(&json!("status"))).expect("it is valid");
    assert_eq!((request.operation, request.caller.uid), (Operation::Status, 1000));
}

#[test]
fn a_task_keeps_its_definition_only_while_that_is_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut intake = intake(folder.path());
    let (task, _) = task_of(&intake, &asked(&json!({"run": {"tool": "greet", "input": {"name": "x"}}})));
    fs::write(folder.path().join("subtools/other.json"), "{").expect("written");
    intake.refresh();
    assert!(intake.definition_of(&task).is_some(), "a bad file does not hide another one");
    fs::write(folder.path().join("subtools/test.json"), DEFINITIONS.replace("echo", "printf")).expect("written");
    intake.refresh();
    assert!(intake.definition_of(&task).is_none());
}

#[test]
fn a_rule_that_demands_more_than_a_human_was_asked_for_has_it_asked_again() {
    use ground::task::confirmation::{Assurance, DecidedBy, Decision, Verdict};

    let folder = tempfile::tempdir().expect("a folder");
    let task = {
        let request = json!({"run": {"tool": "send", "input": {"n": 1}, "reason": "because"}});
        task_of(&intake(folder.path()), &asked(&request)).0
    };
    let asked = task.confirmation.as_deref().expect("a confirmation");
    let rule = |demand: &str| format!("[[confirm.rules]]\ntools = [\"send\"]\nthen = \"ask\"\n{demand}");
    let approver = Arc::new(ApproverPresence::default());
    approver.set_has_keys(true);
    let reassessed = |config: &str, task: &Task| {
        let mut intake = intake_with(folder.path(), config);
        intake.approver = Arc::clone(&approver);
        let definition = intake.definition_of(task).expect("the same");
        intake.reassess(task, &definition, now() + jiff::SignedDuration::from_mins(1))
    };
    let decided = |by, edited: Option<Value>| {
        let mut decision = Decision::new(now(), Verdict::Approved, by);
        let mut task = task.clone();
        if let Some(Value::Object(edited)) = edited {
            decision.asked_input = Some(std::mem::replace(&mut task.input, edited));
        }
        task.confirmation.as_mut().expect("a confirmation").decision = Some(decision);
        task
    };
    let page = || DecidedBy::Page("s".to_owned());
    let (touch, at_page) = (rule("min_assurance = \"touch\""), rule("min_assurance = \"page\""));
    for config in ["", &rule(""), &at_page] {
        for task in [&task, &decided(page(), None)] {
            assert!(matches!(reassessed(config, task), Reassessment::Keep), "{config}");
        }
    }
    // Whoever is asked already has as long as before.
    let Reassessment::Ask(renewed) = reassessed(&touch, &task) else { panic!("it is asked again") };
    assert_eq!((renewed.needs, &renewed.reason), (Some(Assurance::Touch), &asked.reason));
    assert_eq!((renewed.asked_at, renewed.expires_at), (asked.asked_at, asked.expires_at));
    assert_eq!(renewed.digest, renewed.digest_of("test", &task, &task.input));
    let renewed_task = Task { confirmation: Some(renewed), ..task.clone() };
    for config in [&touch, &at_page, ""] {
        assert!(matches!(reassessed(config, &renewed_task), Reassessment::Keep), "never less: {config}");
    }
    for weaker in [decided(page(), None), decided(page(), Some(json!({"n": 2})))] {
        let Reassessment::Ask(anew) = reassessed(&touch, &weaker) else { panic!("it is asked anew") };
        assert_eq!((anew.needs, &anew.reason, &anew.decision), (Some(Assurance::Touch), &asked.reason, &None));
        assert_eq!(anew.digest, anew.digest_of("test", &weaker, &task.input), "about what its caller asked for");
    }
}
