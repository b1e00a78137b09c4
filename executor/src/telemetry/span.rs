//! Spans: one for each task from its acceptance to its end, and one for each attempt.
//!
//! The trace id is the task's id, or that of the whole that it is a part of, such as a script; a span's id is derived from
//! the task and the attempt. So a trace can be found by the id of what was delegated, and an executor that takes over a
//! task continues the same trace. Names follow OpenTelemetry's semantic conventions for tools of language models.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ground::config::secret::Secrets;
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use ground::task::part_of::PartOf;
use ground::task::{Outcome, Task};
use jiff::Timestamp;
use protocol::digest;
use protocol::task::{State, Step, TaskId};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use store::Transition;

/// The most spans that wait for the collector.
const MAX_PENDING: usize = 4096;

#[derive(Debug, Clone)]
pub(super) struct TraceSpan {
    pub(super) trace: TaskId,
    /// 16 hexadecimal digits.
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) name: String,
    pub(super) started: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// The error code, if the task or the attempt failed.
    pub(super) failed: Option<&'static str>,
}

/// The spans that wait for export, oldest first.
#[derive(Debug, Default)]
pub(super) struct SpanBuffer {
    waiting: VecDeque<TraceSpan>,
    /// The number of spans that did not fit since this field was last reset.
    pub(super) dropped: u64,
}

impl SpanBuffer {
    pub(super) fn push(&mut self, span: TraceSpan) {
        if self.waiting.len() < MAX_PENDING {
            self.waiting.push_back(span);
        } else {
            self.dropped += 1;
        }
    }

    pub(super) fn take(&mut self, max: usize) -> Vec<TraceSpan> {
        let count = max.min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }

    /// Puts back spans that could not be sent; the next [`SpanBuffer::take`] returns them first.
    pub(super) fn put_back(&mut self, spans: Vec<TraceSpan>) {
        let free = MAX_PENDING.saturating_sub(self.waiting.len());
        let skipped = spans.len().saturating_sub(free);
        self.dropped += u64::try_from(skipped).unwrap_or_default();
        for span in spans.into_iter().skip(skipped).rev() {
            self.waiting.push_front(span);
        }
    }
}

/// What is remembered of an open task for its spans.
#[derive(Debug)]
struct TaskTrace {
    /// The task itself, or the whole that it is a part of.
    trace: TaskId,
    /// The span of that whole.
    parent: Option<String>,
    tool: SubtoolName,
    effect: EffectClass,
    uid: u32,
    session: Option<String>,
    accepted: Timestamp,
    started: Option<Timestamp>,
    is_lookup: bool,
}

/// The traces of all open tasks.
#[derive(Debug, Default)]
pub(super) struct TaskTraces(HashMap<TaskId, TaskTrace>);

/// The spans that one transition completed.
#[derive(Debug, Default)]
pub(super) struct CompletedSpan {
    pub(super) spans: Vec<TraceSpan>,
    pub(super) attempt_took: Option<Duration>,
}

impl TaskTraces {
    pub(super) fn open(&mut self, task: &Task, started: Option<Timestamp>, secrets: &Secrets) {
        let whole = PartOf::of(task).map(|part| part.id);
        let trace = TaskTrace {
            // A whole is open while its parts are.
            trace: whole.map_or(task.id, |id| self.0.get(&id).map_or(id, |whole| whole.trace)),
            parent: whole.map(|id| span_id(id, 0)),
            tool: task.tool.clone(),
            effect: task.effect,
            uid: task.caller.uid,
            // The caller chooses the session name, so it may contain a secret.
            session: task.caller.session.as_deref().map(|session| secrets.redact(session).into_owned()),
            accepted: task.created_at,
            started,
            is_lookup: false,
        };
        self.0.insert(task.id, trace);
    }

    pub(super) fn step(&mut self, step: &Transition) -> CompletedSpan {
        let mut completed = CompletedSpan::default();
        let Some(trace) = self.0.get_mut(&step.id) else { return completed };
        if step.from == State::Running
            && let Some(started) = trace.started.take()
        {
            completed.attempt_took = Duration::try_from(step.at.duration_since(started)).ok();
            completed.spans.push(trace.attempt(step, started));
        }
        if matches!(step.step, Step::Start | Step::Verify) {
            trace.started = Some(step.at);
            trace.is_lookup = step.step == Step::Verify;
        }
        if step.to.is_final()
            && let Some(trace) = self.0.remove(&step.id)
        {
            completed.spans.push(trace.task(step));
        }
        completed
    }
}

impl TaskTrace {
    fn task(&self, step: &Transition) -> TraceSpan {
        let mut attributes = vec![
            ("gen_ai.operation.name", json!("execute_tool")),
            ("gen_ai.tool.name", json!(self.tool.as_str())),
            ("gen_ai.tool.call.id", json!(step.id)),
            ("agent_magic_tool.state", json!(step.to.as_str())),
            ("agent_magic_tool.attempts", json!(step.attempt_after)),
            ("agent_magic_tool.effect", json!(self.effect)),
            ("agent_magic_tool.uid", json!(self.uid)),
        ];
        attributes.extend(self.session.as_ref().map(|session| ("agent_magic_tool.session", json!(session))));
        let failed = code(step);
        attributes.extend(failed.map(|code| ("error.type", json!(code))));
        let name = format!("execute_tool {}", self.tool);
        let (started, ended) = (self.accepted, step.at.max(self.accepted));
        let (trace, id, parent) = (self.trace, span_id(step.id, 0), self.parent.clone());
        TraceSpan { trace, id, parent, name, started, ended, attributes, failed }
    }

    fn attempt(&self, step: &Transition, started: Timestamp) -> TraceSpan {
        let failed = code(step);
        let name = if self.is_lookup { "lookup" } else { "attempt" };
        let mut attributes = vec![
            ("gen_ai.tool.name", json!(self.tool.as_str())),
            ("agent_magic_tool.attempt", json!(step.attempt)),
            ("agent_magic_tool.step", json!(step.step)),
        ];
        attributes.extend(failed.map(|code| ("error.type", json!(code))));
        TraceSpan {
            trace: self.trace,
            id: span_id(step.id, step.attempt),
            parent: Some(span_id(step.id, 0)),
            name: format!("{name} {}", step.attempt),
            started,
            ended: step.at.max(started),
            attributes,
            failed,
        }
    }
}

fn code(step: &Transition) -> Option<&'static str> {
    match &step.end.as_ref()?.outcome {
        Outcome::Error(error) => Some(error.code.as_str()),
        Outcome::Data(_) | Outcome::File { .. } => None,
    }
}

/// Derives the id of a span; the span of the task itself is attempt 0.
fn span_id(task: TaskId, attempt: u32) -> String {
    let digest = Sha256::digest(format!("{task} {attempt}"));
    digest::hex(&digest[..8])
}

#[cfg(test)]
mod tests {
    use ground::task::part_of;
    use ground::task::sample::stored;

    use super::*;

    fn step(task: &Task, step: Step, from: State, attempt: u32) -> Transition {
        Transition {
            id: task.id,
            step,
            from,
            attempt,
            to: from.after(step).expect("a legal step"),
            attempt_after: attempt + u32::from(step == Step::Start),
            not_before: None,
            at: task.created_at + jiff::SignedDuration::from_secs(i64::from(attempt) + 1),
            confirmation: None,
            end: None,
        }
    }

    #[test]
    fn a_task_has_a_root_span_and_a_child_span_for_each_attempt() {
        let task = stored(None);
        let mut traces = TaskTraces::default();
        let secrets = Secrets::new("/nowhere".into(), std::collections::BTreeMap::new());
        traces.open(&task, None, &secrets);
        let steps = [
            step(&task, Step::Enqueue, State::Accepted, 0),
            step(&task, Step::Start, State::Queued, 0),
            step(&task, Step::Retry, State::Running, 1),
            step(&task, Step::Start, State::Queued, 1),
            step(&task, Step::Succeed, State::Running, 2),
        ];
        let spans: Vec<_> = steps.iter().flat_map(|step| traces.step(step).spans).collect();
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["attempt 1".to_owned(), "attempt 2".to_owned(), format!("execute_tool {}", task.tool)]);
        let root = &spans[2];
        assert_eq!((root.trace, &root.parent, root.started), (task.id, &None, task.created_at));
        for attempt in &spans[..2] {
            assert_eq!((attempt.trace, attempt.parent.as_ref()), (task.id, Some(&root.id)));
            assert_ne!(attempt.id, root.id);
        }
        assert!(traces.0.is_empty(), "an ended task should be forgotten");
    }

    #[test]
    fn the_calls_of_a_script_are_in_its_trace_and_below_it() {
        let secrets = Secrets::new("/nowhere".into(), std::collections::BTreeMap::new());
        let mut traces = TaskTraces::default();
        let script = stored(None);
        let part_of = |whole: &Task, number| {
            let mut part = Task { id: TaskId::new(), ..stored(None) };
            part.caller.depth = whole.caller.depth + 1;
            part.idempotency_key = Some(part_of::key_of_call(&whole.id.to_string(), number));
            part
        };
        let nested = part_of(&script, 1);
        let call = part_of(&nested, 2);
        let tasks = [&script, &nested, &call];
        for task in tasks {
            traces.open(task, Some(task.created_at), &secrets);
        }
        for (task, parent) in tasks.into_iter().zip([None, Some(&script), Some(&nested)]).rev() {
            let spans = traces.step(&step(task, Step::Succeed, State::Running, 1)).spans;
            let [attempt, whole] = spans.as_slice() else { panic!("two spans: {spans:?}") };
            assert_eq!((attempt.trace, attempt.parent.as_ref()), (script.id, Some(&whole.id)));
            assert_eq!((whole.trace, whole.parent.clone()), (script.id, parent.map(|parent| span_id(parent.id, 0))));
        }
    }

    #[test]
    fn a_full_buffer_drops_and_counts_spans() {
        let task = stored(None);
        let trace = TaskTrace {
            trace: task.id,
            parent: None,
            tool: task.tool.clone(),
            effect: task.effect,
            uid: 0,
            session: None,
            accepted: task.created_at,
            started: None,
            is_lookup: false,
        };
        let span = trace.attempt(&step(&task, Step::Fail, State::Running, 1), task.created_at);
        let mut spans = SpanBuffer::default();
        (0..MAX_PENDING + 3).for_each(|_| spans.push(span.clone()));
        assert_eq!(spans.dropped, 3);
        let taken = spans.take(10);
        (0..4).for_each(|_| spans.push(span.clone()));
        spans.put_back(taken);
        assert_eq!((spans.waiting.len(), spans.dropped), (MAX_PENDING, 7));
    }
}
