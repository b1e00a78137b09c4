//! Intake: turns a request into a task, or into a refusal that says how to fix the request.
//!
//! Holds the catalog and keeps it up to date. What happens to an admitted task is up to the dispatcher.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::clock::MonotonicTime;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::TakenRequest;
use protocol::mailbox::request::{Answer, IfNoApprover, InvalidRequest, Operation, Request, RunRequest};
use protocol::nearest::did_you_mean;
use protocol::resolution::ResolvedBy;
use protocol::schedule;
use protocol::task::{State, Step, TaskId};
use protocol::tool_scope::ToolScope;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::attempt;
use crate::catalog::definition::{Definition, RateLimit};
use crate::catalog::{Catalog, Sources, SourcesStamp, Subtool};
use crate::config::Config;
use crate::dispatcher::RecoveryInfo;
use crate::intake::approver::ApproverPresence;
use crate::intake::policy::{Policy, PolicyCase, PolicyDecision, PolicyRuling};
use crate::runner::delegation::too_deep;
use crate::runner::{self, Invocation};
use crate::store::Store;
use crate::task::Task;
use crate::task::confirmation::{self, Confirmation, ConfirmationRequest};
use crate::task::effect::EffectClass;
use crate::task::fingerprint::Fingerprint;
use crate::task::name::SubtoolName;
use crate::task::resolution::ResolutionClaim;

pub mod approver;
pub mod policy;

/// Checks requests against the catalog and the policy.
#[derive(Debug)]
pub struct Intake {
    config: Config,
    sources: Sources,
    stamp: SourcesStamp,
    /// Shared with the page.
    catalog: watch::Sender<Arc<Catalog>>,
    policy: Arc<Policy>,
    /// Identifies this store: an approval given for another store is not valid here.
    instance: String,
    approver: Arc<ApproverPresence>,
}

/// What the daemon has to do for a request.
#[derive(Debug)]
pub enum IntakeOutcome {
    Run {
        task: Box<Task>,
        definition: Arc<Definition>,
    },
    Cancel {
        task: TaskId,
        uid: u32,
    },
    Resolve {
        task: TaskId,
        uid: u32,
        verdict: ResolutionClaim,
    },
    Abandon {
        session: String,
        uid: u32,
    },
    Forget {
        session: String,
        uid: u32,
    },
    Status,
    /// The request is answered right away: a refusal or a plan.
    Answer(Answer),
}

impl Intake {
    pub fn new(
        config: Config,
        sources: Sources,
        instance: String,
        approver: Arc<ApproverPresence>,
    ) -> Result<Self, policy::RuleError> {
        let policy = Arc::new(Policy::new(&config.confirm)?);
        let stamp = sources.stamp();
        let catalog = watch::Sender::new(Arc::new(Catalog::load(&sources)));
        Ok(Self { config, sources, stamp, catalog, policy, instance, approver })
    }

    /// Reloads the catalog if any of its files changed. Returns whether it did.
    pub fn refresh(&mut self) -> bool {
        let stamp = self.sources.stamp();
        let is_changed = stamp != self.stamp;
        if is_changed {
            self.catalog.send_replace(Arc::new(Catalog::load(&self.sources)));
            self.stamp = stamp;
        }
        is_changed
    }

    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy)
    }

    /// Returns a receiver that always holds the current catalog.
    pub fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.subscribe()
    }

    /// Returns the definition of `task`, unless it changed since the task was accepted.
    pub fn definition_of(&self, task: &Task) -> Option<Arc<Definition>> {
        let catalog = self.catalog.borrow();
        let subtool = catalog.get(task.tool.as_str())?;
        (subtool.hash == task.definition_hash).then(|| Arc::clone(&subtool.definition))
    }

    /// Returns what the dispatcher needs to recover a task that an earlier executor left open. `store` is read for
    /// the time of its last start.
    pub fn recovery_info(&self, task: &Task, store: &dyn Store) -> RecoveryInfo {
        let definition = self.definition_of(task);
        let mut sent = Map::new();
        if task.state == State::Running {
            if let Some(definition) = &definition {
                let invocation = attempt::invocation(task, task.input.clone());
                sent = attempt::sent(definition, &invocation, &self.config);
                let catalog = self.catalog.borrow();
                let is_read = |name: &&SubtoolName| {
                    catalog.get(name.as_str()).is_some_and(|other| other.definition.effect_class() == EffectClass::Read)
                };
                let checks: Vec<_> = definition.depends_on.iter().filter(is_read).map(SubtoolName::as_str).collect();
                if !checks.is_empty() {
                    sent.insert("check_with".to_owned(), checks.into());
                }
            }
            let started = store.steps(task.id).ok().and_then(|steps| {
                steps.into_iter().rev().find(|recorded| recorded.step == Step::Start).map(|recorded| recorded.at)
            });
            sent.extend(started.map(|at| ("started_at".to_owned(), at.to_string().into())));
        }
        RecoveryInfo { definition, sent }
    }

    /// The rate limit of a subtool, if it has one.
    pub fn rate_limit(&self, tool: &SubtoolName) -> Option<RateLimit> {
        self.catalog.borrow().get(tool.as_str())?.definition.rate_limit
    }

    /// The longest window of any subtool's rate limit.
    pub fn longest_window(&self) -> Option<Duration> {
        self.catalog.borrow().subtools().filter_map(|subtool| Some(subtool.definition.rate_limit?.per.get())).max()
    }

    /// Parses and checks a request from the mailbox. The user id always comes from the mailbox, never from the
    /// request itself.
    pub fn read(&self, taken: &TakenRequest, now: Timestamp) -> IntakeOutcome {
        let request = match &taken.bytes {
            Ok(bytes) => parse(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                let error = ErrorBody::new(Code::RequestTooLarge, format!("the request is too large: {error}"))
                    .hint("put large data into a file and pass its path");
                Err(error)
            }
            Err(error) => Err(ErrorBody::new(Code::BadRequest, format!("failed to read the request: {error}"))),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return IntakeOutcome::Answer(Answer::Refused(error)),
        };
        let caller = Caller { uid: taken.uid, ..request.caller };
        match request.operation {
            Operation::Run(run) => self.run(taken.id, caller, *run, now),
            Operation::Cancel { id } => IntakeOutcome::Cancel { task: id, uid: taken.uid },
            Operation::Resolve { id, happened, note } => {
                // A mailbox request is never a human's decision: only the page can establish that.
                let verdict = ResolutionClaim { happened, by: ResolvedBy::Caller, note };
                IntakeOutcome::Resolve { task: id, uid: taken.uid, verdict }
            }
            Operation::Abandon { session } => IntakeOutcome::Abandon { session, uid: taken.uid },
            Operation::Forget { session } => IntakeOutcome::Forget { session, uid: taken.uid },
            Operation::Status => IntakeOutcome::Status,
        }
    }

    fn run(&self, id: TaskId, caller: Caller, mut run: RunRequest, now: Timestamp) -> IntakeOutcome {
        let refused = |error| IntakeOutcome::Answer(Answer::Refused(error));
        let catalog = Arc::clone(&self.catalog.borrow());
        let Some(subtool) = catalog.get(&run.tool).filter(|_| caller.tool_scope.covers(&run.tool)) else {
            return refused(unknown(&catalog, &run.tool, &caller.tool_scope));
        };
        if subtool.definition.run.delegates()
            && let Some(error) = too_deep(&run.tool, caller.depth, &self.config)
        {
            return refused(error);
        }
        let mut input = std::mem::take(&mut run.input);
        for (field, word) in &run.words {
            let value = word.as_str().map_or_else(|| word.clone(), |text| subtool.schema.parse_word(field, text));
            input.insert(field.clone(), value);
        }
        subtool.schema.fill_defaults(&mut input);
        let problems = subtool.schema.problems(&Value::Object(input.clone()));
        if !problems.is_empty() {
            return refused(invalid(subtool, &problems));
        }
        let case = PolicyCase { name: &subtool.name, definition: &subtool.definition, input: &input, caller: &caller };
        let mut ruling = self.policy.decide(case);
        if caller.read_only {
            ruling = ruling.for_read_only_session(&subtool.definition);
        }
        let PolicyRuling { decision, why, .. } = ruling;
        let run_at = match run.at.map(|at| schedule::check(at, now)).transpose() {
            Ok(run_at) => run_at,
            Err(error) => return refused(error),
        };
        if run.dry_run {
            let invocation = Invocation { id: id.to_string(), attempt: 1, input, caller, answer: None };
            return match subtool.definition.run.plan(&invocation, &self.config) {
                Ok(plan) => {
                    let mut plan = json!({
                        "tool": run.tool,
                        "input": invocation.input,
                        "dry_run": true,
                        "confirmation": if decision == PolicyDecision::Run { Value::Null } else { why.into() },
                        "would_send": {subtool.definition.run.name(): plan},
                    });
                    if let Some(at) = run_at {
                        plan["run_at"] = at.to_string().into();
                    }
                    IntakeOutcome::Answer(Answer::Plan(plan))
                }
                Err(failure) => refused(failure.error),
            };
        }
        if let Some(error) = self.refusal(&run, &caller, decision, &why) {
            return refused(error);
        }
        if let runner::Run::AskUser(ask) = &subtool.definition.run
            && let Err(failure) = ask.question(&input)
        {
            return refused(failure.error);
        }
        let (tool, hash) = (subtool.name.clone(), subtool.hash.clone());
        let mut task = Task {
            idempotency_key: run.idempotency_key,
            run_at,
            ..Task::accepted(id, tool, hash, subtool.definition.effect_class(), input, caller, now)
        };
        if decision == PolicyDecision::Ask {
            // A scheduled task can be approved until its scheduled time, plus the usual wait.
            let until_start = run_at.map(|at| Duration::try_from(now.duration_until(at)).unwrap_or_default());
            let wait = self.config.confirm.wait.get() + until_start.unwrap_or_default();
            let instance = self.instance.clone();
            let files = subtool.definition.run.files(&attempt::invocation(&task, task.input.clone()));
            let files = files.iter().map(|path| Fingerprint::of(path)).collect();
            let has_preview = subtool.definition.preview.is_some();
            let request = ConfirmationRequest { why, reason: run.reason, instance, wait, files, has_preview };
            let mut confirmation = Confirmation::ask(&task, request, confirmation::nonce(), now);
            confirmation.asked_moment = MonotonicTime::now();
            task.confirmation = Some(Box::new(confirmation));
        }
        IntakeOutcome::Run { task: Box::new(task), definition: Arc::clone(&subtool.definition) }
    }

    /// Returns the refusal of a run that policy forbids or that no human can confirm.
    fn refusal(&self, run: &RunRequest, caller: &Caller, decision: PolicyDecision, why: &str) -> Option<ErrorBody> {
        let tool = &run.tool;
        match decision {
            PolicyDecision::Run => None,
            PolicyDecision::Refuse => Some(
                ErrorBody::new(Code::RefusedByPolicy, format!("`{tool}` is refused: {why}"))
                    .hint("do not work around it: a human decided this; tell the user, who can change the rule"),
            ),
            PolicyDecision::NeedsAssurance => Some(
                ErrorBody::new(Code::NeedsAssurance, format!("`{tool}` cannot be approved here: {why}"))
                    .hint("tell the user, who can do it by hand or change `min_assurance` in its definition"),
            ),
            PolicyDecision::Ask if !self.config.page.enabled => Some(
                ErrorBody::new(
                    Code::NoApprover,
                    format!("`{tool}` needs a human's approval, and the page is disabled"),
                )
                .hint("tell the user to set `enabled = true` under [page] in config.toml"),
            ),
            PolicyDecision::Ask
                if (run.if_no_approver == IfNoApprover::Fail || caller.unattended) && !self.approver.is_present() =>
            {
                let message = format!("`{tool}` needs a human's approval, and no human has the page open");
                Some(ErrorBody::new(Code::NoApprover, message).hint(
                    "tell the user to open it (agent-magic-tool executor page), or run it without \
                     --if-no-approver=fail and let it wait",
                ))
            }
            PolicyDecision::Ask => None,
        }
    }
}

fn unknown(catalog: &Catalog, name: &str, tool_scope: &ToolScope) -> ErrorBody {
    let nearest = catalog.nearest(name, tool_scope);
    let hint = match did_you_mean(nearest.first()) {
        Some(hint) => format!("{hint} or search: agent-magic-tool list tools --query=\"...\""),
        None => "search by what it should do: agent-magic-tool list tools --query=\"...\"".to_owned(),
    };
    ErrorBody::new(Code::UnknownSubtool, format!("no subtool named `{name}`")).hint(hint).detail("nearest", nearest)
}

fn parse(bytes: &[u8]) -> Result<Request, ErrorBody> {
    Request::parse(bytes).map_err(|error| {
        let body = ErrorBody::new(Code::BadRequest, error.to_string());
        match error {
            InvalidRequest::Version(_) => {
                body.hint("the command and the executor have different versions: agent-magic-tool executor stop")
            }
            InvalidRequest::Malformed(_) => body,
        }
    })
}

/// Returns the error for an input with these problems, of which there is at least one.
pub fn invalid(subtool: &Subtool, problems: &[crate::base::schema::Problem]) -> ErrorBody {
    let first = &problems[0];
    let location = if first.pointer.is_empty() { "the input".to_owned() } else { format!("`{}`", first.pointer) };
    let more = match problems.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let message = format!("the input of `{}` is wrong at {location}: {}{more}", subtool.name, first.problem);
    ErrorBody::new(Code::InvalidInput, message)
        .hint(format!("fix the fields in `problems`; the schema: agent-magic-tool inspect {}", subtool.name))
        .detail("problems", serde_json::to_value(problems).expect("problems can be serialized"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{fs, io};

    use protocol::mailbox::request::VERSION;

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
        let config = Config::default();
        let sources = Sources::new(&config, folder, None);
        Intake::new(config, sources, "test".to_owned(), Arc::default()).expect("no rules")
    }

    fn taken(bytes: impl Into<Vec<u8>>) -> TakenRequest {
        TakenRequest { id: TaskId::new(), uid: 1000, bytes: Ok(bytes.into()), written_at: None }
    }

    fn asked(ask: &Value) -> TakenRequest {
        taken(
            json!({"v": VERSION, "operation": ask, "caller": {"uid": 7, "session": "s", "folder": "/home/a"}})
                .to_string(),
        )
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).expect("a time")
    }

    fn refusal(outcome: IntakeOutcome) -> ErrorBody {
        match outcome {
            IntakeOutcome::Answer(Answer::Refused(error)) => error,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_valid_request_becomes_a_task_with_defaults_and_typed_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let intake = intake(folder.path());
        let taken = asked(&json!({"run": {"tool": "greet", "words": {"name": "7"}, "idempotency_key": "k"}}));
        let IntakeOutcome::Run { task, definition } = intake.read(&taken, now()) else { panic!("a task") };
        let expected = Task {
            id: taken.id,
            input: json!({"name": "7", "times": 1}).as_object().expect("an object").clone(),
            definition_hash: task.definition_hash.clone(),
            caller: Caller {
                uid: 1000,
                session: Some("s".to_owned()),
                folder: Some("/home/a".into()),
                ..Caller::default()
            },
            idempotency_key: Some("k".to_owned()),
            ..Task::sample("greet", EffectClass::Read, now())
        };
        assert_eq!(*task, expected);
        assert!(Arc::ptr_eq(&intake.definition_of(&task).expect("the same"), &definition));
        let IntakeOutcome::Run { task, .. } = intake
            .read(&asked(&json!({"run": {"tool": "greet", "input": {"name": "x"}, "words": {"times": "2"}}})), now())
        else {
            panic!("a task")
        };
        assert_eq!(task.input["times"], 2, "a word is parsed as the type in the schema");
    }

    #[test]
    fn an_invalid_request_is_refused_with_what_to_fix() {
        let folder = tempfile::tempdir().expect("a folder");
        let intake = intake(folder.path());
        let refused = |ask: Value| refusal(intake.read(&asked(&ask), now()));
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
    }

    #[test]
    fn without_a_page_a_task_that_needs_confirmation_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut intake = intake(folder.path());
        intake.config.page.enabled = false;
        let refused = refusal(intake.read(&asked(&json!({"run": {"tool": "send"}})), now()));
        assert_eq!(refused.code, Code::NoApprover);
        let read = intake.read(&asked(&json!({"run": {"tool": "greet", "input": {"name": "x"}}})), now());
        assert!(matches!(read, IntakeOutcome::Run { .. }), "a task without confirmation is accepted");
    }

    #[test]
    fn a_task_that_needs_confirmation_carries_the_confirmation() {
        let folder = tempfile::tempdir().expect("a folder");
        let intake = intake(folder.path());
        let asked = asked(&json!({"run": {"tool": "send", "reason": "r".repeat(1_000)}}));
        let IntakeOutcome::Run { task, .. } = intake.read(&asked, now()) else { panic!("a task") };
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
            json!({"v": 1}).to_string().into_bytes(),
            json!({"v": 1, "ask": run, "more": 1}).to_string().into_bytes(),
            json!({"v": 1, "ask": {"run": {"tool": "greet", "inputs": {}}}}).to_string().into_bytes(),
            json!({"v": 1, "ask": {"cancel": {"id": "../x"}}}).to_string().into_bytes(),
        ] {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert_eq!(refusal(intake.read(&taken(bytes), now())).code, Code::BadRequest, "{text}");
        }
        let newer = refusal(intake.read(&taken(json!({"v": 3, "operation": run}).to_string()), now()));
        assert!(newer.message.contains("version 3") && newer.hint.is_some(), "{newer:?}");
        for (kind, code) in
            [(io::ErrorKind::FileTooLarge, Code::RequestTooLarge), (io::ErrorKind::InvalidInput, Code::BadRequest)]
        {
            let unreadable = TakenRequest { id: TaskId::new(), uid: 1000, bytes: Err(kind.into()), written_at: None };
            assert_eq!(refusal(intake.read(&unreadable, now())).code, code);
        }
    }

    #[test]
    fn a_dry_run_says_what_would_be_sent_and_whether_a_human_is_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let intake = intake(folder.path());
        for (tool, asks) in [("greet", false), ("send", true)] {
            let taken = asked(&json!({"run": {"tool": tool, "input": {"name": "x"}, "dry_run": true}}));
            let IntakeOutcome::Answer(Answer::Plan(plan)) = intake.read(&taken, now()) else { panic!("a plan") };
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
            intake.read(&taken(request.to_string()), now())
        };
        assert!(matches!(run("greet"), IntakeOutcome::Run { .. }));
        let error = refusal(run("send"));
        assert_eq!(error.code, Code::RefusedByPolicy);
        assert!(error.message.contains("this session is read-only"), "{}", error.message);
    }

    #[test]
    fn cancel_and_status_need_no_subtool() {
        let folder = tempfile::tempdir().expect("a folder");
        let intake = intake(folder.path());
        let id = TaskId::new();
        let cancel = intake.read(&asked(&json!({"cancel": {"id": id}})), now());
        assert!(matches!(cancel, IntakeOutcome::Cancel { task, uid: 1000 } if task == id));
        assert!(matches!(intake.read(&asked(&json!("status")), now()), IntakeOutcome::Status));
    }

    #[test]
    fn a_task_keeps_its_definition_only_while_that_is_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut intake = intake(folder.path());
        let IntakeOutcome::Run { task, .. } =
            intake.read(&asked(&json!({"run": {"tool": "greet", "input": {"name": "x"}}})), now())
        else {
            panic!("a task")
        };
        fs::write(folder.path().join("subtools/other.json"), "{").expect("written");
        intake.refresh();
        assert!(intake.definition_of(&task).is_some(), "a bad file does not hide another one");
        fs::write(folder.path().join("subtools/test.json"), DEFINITIONS.replace("echo", "printf")).expect("written");
        intake.refresh();
        assert!(intake.definition_of(&task).is_none());
    }
}
