//! The `script` runner: a program that calls other subtools, and that goes on after a crash where it was.
//!
//! The program runs in a process of its own (`script/worker.rs`), which reaches nothing but us. Each of its calls is a task
//! of its own, with the policy, the limits and the confirmation of its subtool, and belongs to the caller of the whole.
//! Before a call is made, the record (`script/record.rs`) says so; a later attempt runs the program again from its
//! start, and each call gets the result that it had, in the order in which they came. The task of a call is known by the
//! script and the number of the call, so none is made twice. Decides nothing about what a call may do.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use catalog::Catalog;
use definition::run::script::{Script, ScriptText};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use protocol::tool_scope::ToolScope;
use protocol::{clock, fault};
use script::{
    Call, CallKind, Completion, Failure as ScriptFailure, FailureKind, HostMessage, Json, Limits, Outcome, Settlement,
    Start, WorkerMessage, called_names,
};
use serde_json::json;

use super::calls_progress::CallsProgress;
use super::delegation::Delegation;
use super::{CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Value};

mod calls;
mod record;
pub(crate) mod saved;
mod worker;

pub use record::forget as forget_record;

use calls::{CallEnd, ScriptCalls};
use record::{IssuedCall, RecordError, ScriptEntry, ScriptRecord, SettledCall};
use worker::{ScriptWorker, WorkerError};

/// The process of a script that waited for this long is ended. It is started again when there is news.
const MAX_IDLE: Duration = Duration::from_secs(10);
/// The most calls that a result tells about.
const MAX_TOLD_CALLS: usize = 100;
/// The limits of a script that is called by another one.
const MAX_NESTED_CALLS: u64 = 100;
const MAX_NESTED_OPEN: usize = 8;
/// How often the process of a script may be ended from outside without any progress in between.
const MAX_LOST_PROCESSES: u32 = 5;
/// The most calls of a kind that an error tells about one by one.
const MAX_TOLD_FAILURES: usize = 20;
/// The name of a script in its errors.
const NAME: &str = "script.js";

impl Runner for Script {
    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let Program { source, input } = Program::of(self, invocation)?;
        Ok(json!({"source": source, "input": input}))
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

/// What is run.
struct Program {
    source: String,
    input: Value,
}

impl Program {
    fn of(script: &Script, invocation: &Invocation) -> Result<Self, Failure> {
        let source = source_of(script, invocation)?;
        let values = invocation.values();
        let input = match &script.input {
            Some(input) => values.value(input)?.unwrap_or_default(),
            None => Value::Object(invocation.input.clone()),
        };
        let input = if input.is_null() { json!({}) } else { input };
        Ok(Self { source, input })
    }
}

/// The program that an invocation runs.
fn source_of(script: &Script, invocation: &Invocation) -> Result<String, Failure> {
    match script.text() {
        ScriptText::Constant(source) => Ok(source.to_owned()),
        ScriptText::Template(source) => Ok(invocation.values().text(source)?),
    }
}

/// The program that a task runs, which is not that of its definition if this has changed since. `None` if it has not begun.
pub fn running_source(scripts: &Path, task: &str) -> Option<String> {
    ScriptRecord::read_start(scripts, task).ok()?.map(|start| start.source)
}

/// Why a program cannot be run, if it does not parse: with the place, and how to go on. For a developer's own programs, since
/// it is compiled in this process.
pub fn mistake_in(source: &str, file: Option<&str>) -> Option<String> {
    let failed = failure(*script::mistake_in(source, file.unwrap_or(NAME))?).error;
    let hint = failed.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    Some(format!("{}{hint}", failed.message))
}

/// The subtools of `catalog` that a program calls by their names.
pub fn called_subtools(source: &str, catalog: &Catalog) -> BTreeSet<String> {
    calls::usable_tools(catalog, &ToolScope::default(), called_names(source)).into_values().collect()
}

async fn perform(
    script: &Script,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
    // Each call has the time of its own subtool, and may wait for a human; the program's own time is bounded in its process.
    let _pause = invocation.clock.pause();
    let (record, entries) = ScriptRecord::open(&delegation.scripts, &invocation.id)?;
    let calls = script.calls.clone().map_or(Ok(ToolScope::default()), |calls| ToolScope::default().narrowed(calls));
    let calls = calls.map_err(|error| Failure::new(Code::BadDefinition, error.to_string()))?;
    let mut course = ScriptCourse::of(record, entries, calls, invocation, delegation);
    if course.start.is_none() {
        let program = Program::of(script, invocation)?;
        // Of what a caller writes, each name is its own.
        if !script.runs_any_program() {
            let called = called_subtools(&program.source, &delegation.subtools.borrow());
            if let Some(failure) = called.iter().find_map(|name| delegation.excluded(name, invocation)) {
                return Err(failure);
            }
        }
        course.begin(program)?;
    }
    course.run(cancel).await
}

/// The course of one attempt.
struct ScriptCourse<'a> {
    record: ScriptRecord,
    start: Option<Box<Start>>,
    issued: Vec<IssuedCall>,
    settled: Vec<SettledCall>,
    /// The numbers of the calls that this attempt waits for.
    awaited: BTreeSet<u64>,
    calls: ScriptCalls<'a>,
    /// What the script printed, since its start.
    notes: Vec<String>,
}

/// The number of a call, and how it ended.
type EndedCall = (u64, Result<CallEnd, Failure>);
type OpenCall<'a> = BoxFuture<'a, EndedCall>;
type ScriptEnd = Result<Completion, Box<ScriptFailure>>;

/// What a script did between two pieces of news.
struct Progress {
    /// Those to be performed, each with the time when it was made.
    calls: Vec<(Call, i64)>,
    /// Whether the script has returned and waits for what it did not await.
    is_returned: bool,
    end: Option<ScriptEnd>,
}

impl<'a> ScriptCourse<'a> {
    fn of(
        record: ScriptRecord,
        entries: Vec<ScriptEntry>,
        callable: ToolScope,
        invocation: &'a Invocation,
        delegation: &'a Delegation,
    ) -> Self {
        let (mut start, mut issued, mut settled) = (None, Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                ScriptEntry::Start(first) => start = Some(first),
                ScriptEntry::Issued(call) => issued.push(call),
                ScriptEntry::Settled(call) => {
                    invocation.heard.hear(call.class);
                    settled.push(call);
                }
            }
        }
        let progress = Arc::new(CallsProgress::of(invocation, None));
        let calls = ScriptCalls { invocation, delegation, callable, progress };
        Self { record, start, issued, settled, awaited: BTreeSet::new(), calls, notes: Vec::new() }
    }

    /// Fixes everything that the script depends on.
    fn begin(&mut self, program: Program) -> Result<(), Failure> {
        let start = Start {
            tools: self.calls.tools(called_names(&program.source)),
            source: program.source,
            name: NAME.to_owned(),
            input: Json::from(&program.input),
            now: now(),
            seed: uuid::Uuid::new_v4().as_u64_pair().0,
            limits: limits(self.calls.invocation.caller.depth),
        };
        self.record.append(&[ScriptEntry::Start(Box::new(start.clone()))])?;
        self.start = Some(Box::new(start));
        Ok(())
    }

    async fn run(mut self, cancel: &CancellationToken) -> Result<RunnerOutput, Failure> {
        // Stops the calls that are open when the script has failed.
        let stop = cancel.child_token();
        let mut open = FuturesUnordered::new();
        let end = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            end = self.follow(&mut open, &stop) => Some(end),
        };
        stop.cancel();
        self.calls.progress.on_stop();
        while let Some((seq, ended)) = open.next().await {
            if let Ok(CallEnd { task: Some(task), .. }) = ended {
                tracing::debug!(script = self.calls.invocation.id, seq, %task, "a call ended after its script");
            }
        }
        match end {
            Some(Ok(end)) => self.outcome(end),
            Some(Err(failure)) => Err(failure.detail("script", self.brief_summary())),
            None => {
                let failure = Failure::new(Code::Cancelled, "cancelled, with the calls that were open");
                Err(failure.detail("script", self.brief_summary()))
            }
        }
    }

    /// Runs the script to its end.
    async fn follow(
        &mut self,
        open: &mut FuturesUnordered<OpenCall<'a>>,
        stop: &CancellationToken,
    ) -> Result<ScriptEnd, Failure> {
        let mut worker = None;
        let mut news = 0;
        let mut lost = 0;
        loop {
            let messages = match self.tell(&mut worker, news).await {
                // It may have been ended by something else than its script.
                Err(WorkerError::Ended { is_script: false, .. }) if lost < MAX_LOST_PROCESSES => {
                    worker = None;
                    lost += 1;
                    continue;
                }
                messages => messages?,
            };
            lost = 0;
            let Progress { calls, is_returned, end } = self.hear(messages)?;
            for (call, at) in calls {
                self.awaited.insert(call.seq);
                open.push(self.calls.perform(call, at, stop.clone()));
            }
            if let Some(end) = end {
                return Ok(end);
            }
            let ended = match is_returned.then(|| self.needless_timers()).flatten() {
                Some(timers) => timers,
                None => next_ends(open, &mut worker).await,
            };
            let known = self.settled.len();
            for (seq, end) in ended {
                // A timer that was not waited for ends later all the same.
                if !self.awaited.remove(&seq) {
                    continue;
                }
                let CallEnd { outcome, class, task, is_part } = end?;
                let call = SettledCall { settle: Settlement { seq, now: now(), outcome }, class, task, is_part };
                fault::point("script", "ended");
                self.record.append(&[ScriptEntry::Settled(call.clone())])?;
                fault::point("script", "settled");
                self.settled.push(call);
                self.calls.progress.on_end(&seq.to_string());
            }
            news = self.settled.len() - known;
        }
    }

    /// Tells the script the last `news` of what settled, or everything if it has no process.
    async fn tell(
        &mut self,
        worker: &mut Option<ScriptWorker>,
        news: usize,
    ) -> Result<Vec<WorkerMessage>, WorkerError> {
        let settle = |call: &SettledCall| HostMessage::Settle(call.settle.clone());
        if let Some(worker) = worker {
            // Nothing is told if nothing settled.
            let news: Vec<_> = self.settled[self.settled.len() - news..].iter().map(settle).collect();
            return worker.exchange(&news).await;
        }
        self.notes.clear();
        let start = self.start.clone().expect("a course that runs has begun");
        let all: Vec<_> = iter::once(HostMessage::Start(start)).chain(self.settled.iter().map(settle)).collect();
        worker.insert(ScriptWorker::start().await?).exchange(&all).await
    }

    /// The timers that a script which has returned still waits for, if it waits for nothing else: they are over.
    fn needless_timers(&self) -> Option<Vec<EndedCall>> {
        let ends = self.ends();
        let open = || (1..).zip(&self.issued).filter(|(seq, _)| !ends.contains_key(seq));
        let is_needless = open().all(|(_, issued)| issued.kind == CallKind::Sleep);
        is_needless.then(|| open().map(|(seq, _)| (seq, Ok(CallEnd::of_data(&Value::Null)))).collect())
    }

    /// The calls that have ended, by their numbers.
    fn ends(&self) -> BTreeMap<u64, &SettledCall> {
        self.settled.iter().map(|call| (call.settle.seq, call)).collect()
    }

    /// Records the calls that the script made.
    fn hear(&mut self, messages: Vec<WorkerMessage>) -> Result<Progress, Failure> {
        let (mut calls, mut new, mut is_returned, mut end) = (Vec::new(), Vec::new(), false, None);
        let known = self.issued.len();
        for message in messages {
            match message {
                WorkerMessage::Call(call) => {
                    let place = usize::try_from(call.seq).unwrap_or_default().wrapping_sub(1);
                    let issued = IssuedCall::of(&call, now());
                    match self.issued.get(place) {
                        Some(earlier) if issued.is_same_as(earlier) => calls.push((call, earlier.at)),
                        Some(earlier) => return Err(diverged(&call, Some(earlier))),
                        None if place == self.issued.len() => {
                            calls.push((call, issued.at));
                            new.push(ScriptEntry::Issued(issued.clone()));
                            self.issued.push(issued);
                        }
                        None => return Err(diverged(&call, None)),
                    }
                }
                WorkerMessage::Note(note) => self.notes.push(note),
                WorkerMessage::Idle(idle) => is_returned = idle.is_returned,
                WorkerMessage::Done(done) => end = Some(Ok(done)),
                WorkerMessage::Failed(failed) => end = Some(Err(failed)),
            }
        }
        // Nothing is called before the record says so, and says what came before.
        if self.issued.len() > known {
            self.record.append(&new)?;
            fault::point("script", "issuing");
            self.record.sync()?;
            fault::point("script", "issued");
        }
        let ends = self.ends();
        calls.retain(|(call, _)| !ends.contains_key(&call.seq) && !self.awaited.contains(&call.seq));
        Ok(Progress { calls, is_returned, end })
    }

    fn outcome(self, end: ScriptEnd) -> Result<RunnerOutput, Failure> {
        let mut notes = self.notes.clone();
        notes.extend(self.parts());
        match end {
            Ok(Completion { value, is_undefined }) => {
                if is_undefined {
                    notes.push("it returned nothing: what is to be the result stands behind `return`".to_owned());
                }
                let value = value.to_value().map_err(WorkerError::BadMessage)?;
                let output = RunnerOutput::json(value).with_meta("script", self.summary());
                Ok(if notes.is_empty() { output } else { output.with_meta("notes", notes) })
            }
            Err(mut failed) => {
                // As it was, whatever the script made of it since.
                if let Some(error) = failed.seq.and_then(|seq| self.settled.iter().find_map(|call| call.error_of(seq)))
                {
                    failed.hint = failed.hint.filter(|_| failed.kind != FailureKind::Call);
                    failed.error = Some(error.clone());
                }
                let failure = failure(*failed).detail("script", self.brief_summary());
                Err(if notes.is_empty() { failure } else { failure.detail("notes", notes) })
            }
        }
    }

    /// Names the subtools of which it read one page, and not the next one.
    fn parts(&self) -> Vec<String> {
        let called =
            |call: &SettledCall| usize::try_from(call.settle.seq).ok().and_then(|seq| self.issued.get(seq - 1));
        let is_only_call =
            |issued: &IssuedCall| self.issued.iter().filter(|other| other.name == issued.name).count() == 1;
        let partial = self.settled.iter().filter(|call| call.is_part).filter_map(called);
        let only = partial.filter(|issued| is_only_call(issued)).map(IssuedCall::shown_name);
        only.map(|name| format!("what `{name}` returned is not all there is: call it for each page")).collect()
    }

    /// What a caller must know of a script that did not end well: how many calls of each subtool succeeded, and each of the
    /// others.
    fn brief_summary(&self) -> Value {
        let mut succeeded = BTreeMap::<&str, u32>::new();
        let (mut failed, mut open) = (Vec::new(), Vec::new());
        let ends = self.ends();
        for (seq, issued) in (1..).zip(&self.issued) {
            let name = issued.shown_name();
            match ends.get(&seq) {
                None => open.push(json!({"call": seq, "tool": name})),
                // Its name may be one that the caller does not have.
                Some(SettledCall { settle: Settlement { outcome: Outcome::Error(error), .. }, task: None, .. })
                    if error.code == Code::UnknownSubtool.as_str() && !self.calls.callable.is_everything() =>
                {
                    failed.push(json!({"call": seq, "code": error.code}));
                }
                Some(SettledCall { settle: Settlement { outcome: Outcome::Error(error), .. }, task, .. }) => {
                    failed.push(json!({"call": seq, "tool": name, "code": error.code, "id": task}));
                }
                Some(_) => *succeeded.entry(name).or_default() += 1,
            }
        }
        let mut brief = json!({"calls": self.issued.len(), "succeeded": succeeded});
        for (key, mut calls) in [("failed", failed), ("open", open)] {
            calls.truncate(MAX_TOLD_FAILURES);
            if !calls.is_empty() {
                brief[key] = calls.into();
            }
        }
        brief
    }

    /// What the script did.
    fn summary(&self) -> Value {
        let ends = self.ends();
        let told = |(seq, issued): (u64, &IssuedCall)| {
            let mut told = json!({"call": seq, "tool": issued.shown_name()});
            match ends.get(&seq) {
                None => told["status"] = "open".into(),
                Some(SettledCall { settle, task, .. }) => {
                    if let Some(task) = task {
                        told["id"] = json!(task);
                    }
                    if let Outcome::Error(error) = &settle.outcome {
                        told["code"] = error.code.as_str().into();
                    }
                }
            }
            told
        };
        let mut summary = json!({"calls": self.issued.len()});
        let calls: Vec<_> = (1..).zip(&self.issued).take(MAX_TOLD_CALLS).map(told).collect();
        if !calls.is_empty() {
            summary["tasks"] = calls.into();
        }
        summary
    }
}

/// Waits until a call has ended, and returns it with all others that have ended by then. Ends the process of a script that
/// waits for long.
async fn next_ends(open: &mut FuturesUnordered<OpenCall<'_>>, worker: &mut Option<ScriptWorker>) -> Vec<EndedCall> {
    let first = loop {
        tokio::select! {
            biased;
            Some(ended) = open.next() => break ended,
            () = tokio::time::sleep(MAX_IDLE), if worker.is_some() => *worker = None,
        }
    };
    let others = iter::from_fn(|| open.next().now_or_never().flatten());
    iter::once(first).chain(others).collect()
}

/// The failure of a script whose record has another call at this number.
fn diverged(call: &Call, earlier: Option<&IssuedCall>) -> Failure {
    let shown = |name: Option<&str>| name.map_or_else(|| "something else".to_owned(), |name| format!("`{name}`"));
    let line = call.line.map(|line| format!(", in line {line},")).unwrap_or_default();
    let now = shown(call.name.as_deref());
    let earlier = match earlier {
        None => "has no such call".to_owned(),
        Some(same) if (same.kind, &same.name) == (call.kind, &call.name) => {
            "has it there with another input".to_owned()
        }
        Some(other) => format!("has another call there: {}", shown(Some(other.shown_name()))),
    };
    let message = format!("call {}{line} is {now} now, and the script's record {earlier}", call.seq);
    Failure::new(Code::ScriptDiverged, message).hint(
        "the script or what runs it changed while it was under way; see what it did in `script`, and run what is left",
    )
}

fn failure(failed: ScriptFailure) -> Failure {
    let ScriptFailure { kind, name, message, hint, line, column, error, seq, stack } = failed;
    let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    let name = name.filter(|name| kind == FailureKind::Thrown && name != "Error");
    let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
    let code = error.as_ref().filter(|_| kind == FailureKind::Call).and_then(CallEnd::code_of);
    let mut failure = Failure::new(code.unwrap_or(Code::ScriptFailed), format!("{place}{name}{message}"));
    if let Some(hint) = hint.or_else(|| error.as_ref()?.hint.clone()) {
        failure = failure.hint(hint);
    }
    for (key, value) in [("line", line), ("column", column)] {
        if let Some(value) = value {
            failure = failure.detail(key, value);
        }
    }
    if let Some(seq) = seq {
        failure = failure.detail("call", seq);
    }
    if !stack.is_empty() {
        failure = failure.detail("stack", stack);
    }
    let details = error.and_then(|error| error.details?.to_value().ok());
    if let Some(Value::Object(details)) = details {
        failure = failure.detail("error", details);
    }
    // What a call may have done stays in doubt unless the script dealt with it.
    if code == Some(Code::UnknownOutcome) { failure.effect_possible() } else { failure }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        let message = protocol::error::chain(&error);
        match error {
            RecordError::Changed { .. } => Self::new(Code::ScriptDiverged, message)
                .hint("nothing more was called; what it called before: agent-magic-tool tasks"),
            RecordError::TooLarge => Self::new(Code::ScriptFailed, message)
                .hint("ask for less: narrower inputs, fewer calls, or two scripts"),
            RecordError::Io(_) => Self::new(Code::Io, message),
        }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let message = protocol::error::chain(&error);
        match error {
            WorkerError::CannotStart(_) => Self::new(Code::CannotStart, message),
            WorkerError::Ended { failed, .. } => failure(*failed),
            WorkerError::BadMessage(_) => Self::new(Code::Internal, message),
        }
    }
}

/// The limits of a script whose caller is at this depth: a script that others call multiplies with them.
fn limits(depth: u8) -> Limits {
    let whole = Limits::default();
    if depth == 0 { whole } else { Limits { max_calls: MAX_NESTED_CALLS, max_open: MAX_NESTED_OPEN, ..whole } }
}

/// The time in milliseconds since 1970.
fn now() -> i64 {
    clock::now().as_millisecond()
}
