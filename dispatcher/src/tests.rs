//! The rules of the dispatcher, tested with the in-memory store.

use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use ground::task::confirmation::{Confirmation, ConfirmationRequest};
use ground::task::effect::EffectClass;
use ground::task::failure::{Failure, Retry, SideEffect};
use ground::task::feedback::Feedback;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::mailbox::request::Answer;
use serde_json::json;
use store::Store as _;
use store::memory::MemoryStore;

use super::recovery::MAX_LOST_ATTEMPTS;
use super::*;

/// A dispatcher with a store and a clock that tests control.
pub(super) struct Bench {
    pub(super) dispatcher: Dispatcher,
    pub(super) store: MemoryStore,
    pub(super) now: Timestamp,
}

/// The effects of one event.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) performed: Vec<TaskId>,
    pub(super) interrupted: Vec<(TaskId, FailureKind)>,
    pub(super) published: Vec<(TaskId, State)>,
    pub(super) answers: Vec<Answer>,
    pub(super) replies: Vec<DecisionResult>,
    pub(super) switched_off: Vec<SubtoolName>,
}

pub(super) fn limits(concurrency: u32) -> DispatcherLimits {
    let most = OpenTaskLimit { tasks: 1_000, bytes: 1 << 20 };
    let confirmations = ConfirmationLimits {
        waiting: 20,
        waiting_per_user: 1_000,
        waiting_per_session: 10,
        per_hour: 0,
        cool_down: Duration::from_mins(10),
        wait: Duration::from_hours(1),
    };
    DispatcherLimits { concurrency, open: most, open_per_session: most, confirmations }
}

/// A definition with `fields` in addition to the required ones.
pub(super) fn definition(fields: serde_json::Value) -> Arc<Definition> {
    let mut whole = json!({"description": "d", "input": {}, "run": {"process": {"argv": ["true"]}}});
    let (serde_json::Value::Object(whole), serde_json::Value::Object(fields)) = (&mut whole, fields) else {
        panic!("objects")
    };
    whole.extend(fields);
    let whole = std::mem::take(whole);
    Arc::new(serde_json::from_value(whole.into()).expect("a definition"))
}

/// The rate limit of the definition.
pub(super) fn rate_limits(task: &Task, definition: &Definition) -> Vec<AppliedRateLimit> {
    let of_tool = |limit| AppliedRateLimit::new(RateLimitKey::Tool(task.tool.clone()), limit);
    definition.rate_limit.map(of_tool).into_iter().collect()
}

/// A task that needs confirmation.
pub(super) fn unapproved(now: Timestamp, input: serde_json::Value) -> Task {
    let mut task = Task::sample("t", EffectClass::Once, now);
    let serde_json::Value::Object(input) = input else { panic!("an object") };
    task.input = input;
    let request = ConfirmationRequest { instance: String::new(), ..ConfirmationRequest::sample() };
    task.confirmation = Some(Box::new(Confirmation::ask(&task, request, task.id.to_string(), now)));
    task
}

fn once(now: Timestamp) -> Task {
    Task::sample("t", EffectClass::Once, now)
}

impl Bench {
    pub(super) fn new(limits: DispatcherLimits) -> Self {
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        Self { dispatcher: Dispatcher::new(limits), store: MemoryStore::default(), now }
    }

    pub(super) fn handle(&mut self, event: Event) -> Turn {
        let mut effects = Effects::default();
        self.dispatcher.handle(event, self.now, &mut effects);
        self.carry_out(effects)
    }

    pub(super) fn carry_out(&mut self, effects: Effects) -> Turn {
        self.store.commit(&effects.changes).expect("every change applies to the store");
        let mut turn = Turn::default();
        for action in effects.actions {
            match action {
                Action::Publish(task) => turn.published.push((task.id, task.state)),
                Action::Answer(_, answer) => turn.answers.push(*answer),
                Action::Preview { .. } => {}
                Action::Reply(_, result) => turn.replies.push(result),
                Action::Perform { task, .. } => turn.performed.push(task.id),
                Action::Interrupt(id, kind) => turn.interrupted.push((id, kind)),
                Action::SwitchOff(off) => turn.switched_off.push(off.tool),
                Action::TellRecorded(signal) => signal.fire(),
            }
        }
        turn
    }

    /// Admits `task` the way the daemon does.
    pub(super) fn admit(&mut self, task: &Task, definition: &Arc<Definition>) -> Turn {
        let earlier =
            task.idempotency_key.as_ref().and_then(|key| self.store.task_by_key(task.caller.uid, key).expect("read"));
        let rate_limits = rate_limits(task, definition);
        let admission = Admission { task: task.clone(), definition: Arc::clone(definition), rate_limits, earlier };
        self.handle(Event::Admit(Box::new(admission)))
    }

    /// Admits a task, which must start at once.
    pub(super) fn start(&mut self, effect: EffectClass, definition: &Arc<Definition>) -> TaskId {
        let task = Task::sample("t", effect, self.now);
        assert_eq!(self.admit(&task, definition).performed, [task.id]);
        task.id
    }

    pub(super) fn succeed(&mut self, id: TaskId) -> Turn {
        let attempt = self.stored(id).attempt;
        let end = End { at: self.now, outcome: Outcome::Data(json!(1)), meta: serde_json::Map::new() };
        self.handle(Event::AttemptFinished(Box::new(AttemptReport { id, attempt, result: Ok(end) })))
    }

    pub(super) fn fail(&mut self, id: TaskId, kind: FailureKind, retry: Retry, side_effect: SideEffect) -> Turn {
        let attempt = self.stored(id).attempt;
        let failed = FailedAttempt { end: failure(self.now), kind, retry, side_effect };
        self.handle(Event::AttemptFinished(Box::new(AttemptReport { id, attempt, result: Err(failed) })))
    }

    pub(super) fn stored(&self, id: TaskId) -> Task {
        self.store.task(id).expect("read").expect("it is there")
    }

    pub(super) fn state(&self, id: TaskId) -> State {
        self.stored(id).state
    }

    pub(super) fn cancel(&mut self, id: TaskId, uid: u32) -> Turn {
        let caller = Box::new(Caller { uid, ..Caller::default() });
        self.handle(Event::Cancel { request: TaskId::new(), id, caller, reason: None })
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += SignedDuration::try_from(time).expect("a short time");
    }

    /// Replaces the dispatcher with one that recovers from the store, as after a crash.
    pub(super) fn crash(&mut self, definition: Option<&Arc<Definition>>) -> Turn {
        self.dispatcher = Dispatcher::new(self.dispatcher.limits);
        self.dispatcher.restore_grants(self.store.grants().expect("read"));
        self.dispatcher.restore_decide_scopes(self.store.decide_scopes().expect("read"));
        let open = self.store.open_tasks().expect("read");
        let effects = self.dispatcher.recover(open, self.now, |_| recovery_info(definition));
        self.carry_out(effects)
    }
}

pub(super) fn recovery_info(definition: Option<&Arc<Definition>>) -> RecoveryInfo {
    RecoveryInfo { definition: definition.cloned(), ..RecoveryInfo::default() }
}

pub(super) fn failure(at: Timestamp) -> End {
    failed_end(at, ErrorBody::new(Code::ApiError, "no"))
}

pub(super) type Recorded = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// What an attempt tells that is about to send something, and what it then waits for.
pub(super) fn told_sending(id: TaskId, attempt: u32) -> (Event, Recorded) {
    let told = Arc::new(Mutex::new(None));
    let heard = Arc::clone(&told);
    let feedback = Feedback::new(move |news| *heard.lock().expect("not poisoned") = Some(news));
    let mut recorded: Recorded = Box::pin(async move { feedback.sending().await });
    assert!(recorded.as_mut().now_or_never().is_none());
    let news = told.lock().expect("not poisoned").take().expect("it is told at once");
    (Event::AttemptTold { id, attempt, news }, recorded)
}

fn code_of(answer: &Answer) -> Code {
    match answer {
        Answer::Refused(error) => error.code,
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) fn error_of(task: &Task) -> &ErrorBody {
    match task.end.as_ref().map(|end| &end.outcome) {
        Some(Outcome::Error(error)) => error,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn a_task_is_published_before_it_is_performed() {
    let mut bench = Bench::new(limits(1));
    let (first, second) = (once(bench.now), once(bench.now));
    let mut effects = Effects::default();
    for task in [&first, &second] {
        let admission =
            Admission { task: task.clone(), definition: definition(json!({})), rate_limits: Vec::new(), earlier: None };
        bench.dispatcher.handle(Event::Admit(Box::new(admission)), bench.now, &mut effects);
    }
    let order: Vec<_> = effects
        .actions
        .iter()
        .map(|action| match action {
            Action::Publish(task) => (task.id, task.state.as_str()),
            Action::Perform { task, .. } => (task.id, "perform"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, [(first.id, "running"), (first.id, "perform"), (second.id, "queued")]);
    bench.carry_out(effects);
    let turn = bench.succeed(first.id);
    assert_eq!(turn.published, [(first.id, State::Succeeded), (second.id, State::Running)]);
    assert_eq!(turn.performed, [second.id]);
    bench.succeed(second.id);
    assert!(bench.dispatcher.is_idle());
}

#[test]
fn a_rate_limit_counts_only_accepted_calls_and_says_when_to_retry() {
    let mut bench = Bench::new(limits(10));
    let limited = definition(json!({"rate_limit": {"calls": 2, "per": "1m"}}));
    let refused = |bench: &mut Bench| {
        let task = once(bench.now);
        let turn = bench.admit(&task, &limited);
        assert_eq!(bench.store.task(task.id).expect("read"), None, "a refused task leaves no trace");
        turn.answers.into_iter().next().expect("an answer")
    };
    bench.start(EffectClass::Once, &limited);
    bench.pass(Duration::from_secs(20));
    bench.start(EffectClass::Once, &limited);
    let answer = refused(&mut bench);
    let Answer::Refused(error) = &answer else { panic!("{answer:?}") };
    assert_eq!(error.code, Code::RateLimited);
    assert_eq!(error.message, "`t` allows a session 2 calls per 1m");
    assert_eq!(error.hint.as_deref(), Some("try again in 41s"));
    assert_eq!(error.details["retry_after_ms"], 40_000);

    bench.pass(Duration::from_secs(39));
    assert_eq!(code_of(&refused(&mut bench)), Code::RateLimited);
    bench.pass(Duration::from_secs(1));
    bench.start(EffectClass::Once, &limited);
    assert_eq!(code_of(&refused(&mut bench)), Code::RateLimited, "the window slides");
    bench.pass(Duration::from_secs(20));
    bench.start(EffectClass::Once, &limited);
    let other = Task::sample("other", EffectClass::Once, bench.now);
    assert_eq!(bench.admit(&other, &limited).performed, [other.id], "each subtool has its own window");
    let session = Caller { uid: 1, session: Some("other".to_owned()), ..Caller::default() };
    let other = Task { caller: session, ..once(bench.now) };
    assert_eq!(bench.admit(&other, &limited).performed, [other.id], "each session has its own window");
    let unlimited = definition(json!({"rate_limit": {"calls": 0, "per": "1m"}}));
    for _ in 0..5 {
        assert_eq!(bench.admit(&once(bench.now), &unlimited).answers, [], "0 means no limit");
    }
}

#[test]
fn the_same_key_and_input_gives_the_same_task_while_open_and_after_its_end() {
    let mut bench = Bench::new(limits(10));
    // A repeated request does not count towards the rate limit.
    let limited = definition(json!({"rate_limit": {"calls": 1, "per": "1h"}}));
    let keyed = |now| Task { idempotency_key: Some("k".to_owned()), ..once(now) };
    let first = keyed(bench.now);
    bench.admit(&first, &limited);
    for ended in [false, true] {
        assert_eq!(bench.admit(&keyed(bench.now), &limited).answers, [Answer::SameAs(first.id)], "ended: {ended}");
        let mut input = serde_json::Map::new();
        input.insert("q".to_owned(), json!(1));
        let other_input = Task { input, ..keyed(bench.now) };
        let other_tool =
            Task { idempotency_key: Some("k".to_owned()), ..Task::sample("u", EffectClass::Once, bench.now) };
        for other in [other_input, other_tool] {
            let turn = bench.admit(&other, &limited);
            let Answer::Refused(error) = &turn.answers[0] else { panic!("{turn:?}") };
            assert_eq!(error.code, Code::IdempotencyMismatch);
            assert_eq!(error.details["id"], first.id.to_string());
        }
        if !ended {
            bench.succeed(first.id);
        }
    }
    let stranger = Task { caller: Caller { uid: 2, ..Caller::default() }, ..keyed(bench.now) };
    let turn = bench.admit(&stranger, &definition(json!({})));
    assert_eq!(turn.performed, [stranger.id], "keys are separate for each user");
}

#[test]
fn an_idempotency_key_survives_a_crash() {
    let mut bench = Bench::new(limits(10));
    let plain = definition(json!({}));
    let keyed = |now| Task { idempotency_key: Some("k".to_owned()), ..Task::sample("t", EffectClass::Read, now) };
    let first = keyed(bench.now);
    bench.admit(&first, &plain);
    bench.crash(Some(&plain));
    assert_eq!(bench.admit(&keyed(bench.now), &plain).answers, [Answer::SameAs(first.id)]);
}

#[test]
fn the_total_and_per_subtool_concurrency_limits_hold() {
    let mut bench = Bench::new(limits(3));
    let single = definition(json!({"concurrency": 1}));
    let plain = definition(json!({}));
    let first = bench.start(EffectClass::Once, &single);
    let second = once(bench.now);
    assert_eq!(bench.admit(&second, &single).performed, []);
    let others: Vec<_> = (0..3).map(|_| Task::sample("other", EffectClass::Once, bench.now)).collect();
    assert_eq!(bench.admit(&others[0], &plain).performed, [others[0].id], "it overtakes a task without a free slot");
    assert_eq!(bench.admit(&others[1], &plain).performed, [others[1].id]);
    assert_eq!(bench.admit(&others[2], &plain).performed, []);
    assert_eq!(bench.dispatcher.running(), 3);
    assert_eq!(bench.succeed(others[0].id).performed, [others[2].id], "the first task of its subtool still runs");
    assert_eq!(bench.succeed(first).performed, [second.id]);
}

#[test]
fn a_task_beyond_the_limit_of_open_tasks_is_refused() {
    let mut bench = Bench::new(DispatcherLimits { open: OpenTaskLimit { tasks: 2, bytes: 1 << 20 }, ..limits(1) });
    let plain = definition(json!({}));
    let first = bench.start(EffectClass::Once, &plain);
    bench.admit(&once(bench.now), &plain);
    let turn = bench.admit(&once(bench.now), &plain);
    assert_eq!(code_of(&turn.answers[0]), Code::Throttled);
    bench.succeed(first);
    assert_eq!(bench.admit(&once(bench.now), &plain).answers, []);
}

#[test]
fn a_caller_with_a_hundred_tasks_does_not_starve_another() {
    let mut bench = Bench::new(limits(1));
    let plain = definition(json!({}));
    let mut running = bench.start(EffectClass::Once, &plain);
    for _ in 0..100 {
        bench.admit(&once(bench.now), &plain);
    }
    let session = Caller { uid: 1, session: Some("other".to_owned()), ..Caller::default() };
    let user = Caller { uid: 2, ..Caller::default() };
    let late = [session, user].map(|caller| Task { caller, ..once(bench.now) });
    for task in &late {
        bench.admit(task, &plain);
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        running = bench.succeed(running).performed[0];
        order.push(running);
    }
    assert!(late.iter().all(|task| order.contains(&task.id)), "each is served within one round");
}

#[test]
fn a_repeatable_failure_is_retried_with_backoff_and_then_final() {
    let mut bench = Bench::new(limits(1));
    let retried = definition(json!({"retries": {"times": 2, "backoff": "1s"}}));
    let id = bench.start(EffectClass::Read, &retried);
    for (attempt, min) in [(1, Duration::from_secs(1)), (2, Duration::from_secs(2))] {
        let turn = bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::Possible);
        assert_eq!((turn.performed, turn.published), (vec![], vec![(id, State::Queued)]));
        let due = bench.dispatcher.next_deadline().expect("it is retried");
        let delay = Duration::try_from(bench.now.duration_until(due)).expect("later");
        assert!(delay >= min && delay <= min.mul_f64(1.25), "attempt {attempt}: {delay:?}");
        assert_eq!(bench.stored(id).not_before, Some(due), "the delay is durable");
        bench.pass(delay.saturating_sub(Duration::from_millis(1)));
        assert_eq!(bench.handle(Event::Tick).performed, []);
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.handle(Event::Tick).performed, [id]);
    }
    bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::Possible);
    assert_eq!((bench.state(id), bench.stored(id).attempt), (State::Failed, 3));
    assert!(bench.dispatcher.is_idle());
}

#[test]
fn only_attempts_that_are_safe_to_repeat_are_retried() {
    use EffectClass::{Idempotent, Once, Read};
    use FailureKind::{Cancelled, Failure, Shutdown, Timeout};
    use Retry::{Later, Never};
    let retried = definition(json!({"retries": {"times": 1, "backoff": "1s"}}));
    let possible = SideEffect::Possible;
    for (class, kind, retry, side_effect, expected) in [
        (Read, Failure, Later, possible, State::Queued),
        (Idempotent, Failure, Later, possible, State::Queued),
        (Once, Failure, Later, possible, State::Unknown),
        (Once, Failure, Later, SideEffect::Answered, State::Failed),
        (Read, Failure, Later, SideEffect::Answered, State::Queued),
        (Once, Failure, Later, SideEffect::None, State::Queued),
        (Read, Failure, Never, possible, State::Failed),
        (Read, Timeout, Later, possible, State::Queued),
        (Once, Timeout, Later, possible, State::Unknown),
        (Once, Timeout, Later, SideEffect::None, State::Queued),
        (Read, Cancelled, Later, possible, State::Cancelled),
        (Once, Cancelled, Later, possible, State::Cancelled),
        (Read, Shutdown, Never, possible, State::Queued),
        (Idempotent, Shutdown, Never, possible, State::Queued),
        (Once, Shutdown, Never, possible, State::Unknown),
        (Once, Shutdown, Never, SideEffect::None, State::Queued),
    ] {
        let mut bench = Bench::new(limits(1));
        let id = bench.start(class, &retried);
        if kind == Shutdown {
            bench.handle(Event::Drain);
        }
        bench.fail(id, kind, retry, side_effect);
        assert_eq!(bench.state(id), expected, "{class:?} {kind:?} {retry:?} {side_effect:?}");
        if expected == State::Unknown {
            assert_eq!(error_of(&bench.stored(id)).code, Code::UnknownOutcome);
        }
    }
}

#[test]
fn a_queued_task_is_cancelled_at_once_and_never_runs() {
    let mut bench = Bench::new(limits(1));
    let retried = definition(json!({"retries": {"times": 1, "backoff": "1s"}}));
    let running = bench.start(EffectClass::Read, &retried);
    let waiting = once(bench.now);
    bench.admit(&waiting, &retried);
    let turn = bench.cancel(waiting.id, 1);
    assert_eq!(turn.answers, [Answer::Cancelling { id: waiting.id, state: State::Cancelled }]);
    assert_eq!(turn.published, [(waiting.id, State::Cancelled)]);
    assert_eq!(error_of(&bench.stored(waiting.id)).hint.as_deref(), Some("nothing was done"));

    bench.fail(running, FailureKind::Failure, Retry::Later, SideEffect::Possible);
    bench.cancel(running, 1);
    assert_eq!((bench.state(running), bench.dispatcher.next_deadline()), (State::Cancelled, None));
    bench.pass(Duration::from_mins(1));
    assert_eq!(bench.handle(Event::Tick).performed, []);
    assert!(bench.dispatcher.is_idle());
}

#[test]
fn a_running_task_that_is_cancelled_ends_as_it_reports() {
    let retried = definition(json!({"retries": {"times": 5}}));
    let mut bench = Bench::new(limits(1));
    let id = bench.start(EffectClass::Read, &retried);
    let turn = bench.cancel(id, 1);
    assert_eq!(turn.interrupted, [(id, FailureKind::Cancelled)]);
    assert_eq!(turn.answers, [Answer::Cancelling { id, state: State::Running }]);
    bench.fail(id, FailureKind::Cancelled, Retry::Never, SideEffect::Possible);
    assert_eq!(bench.state(id), State::Cancelled);

    let done = bench.start(EffectClass::Once, &retried);
    bench.cancel(done, 1);
    bench.succeed(done);
    assert_eq!(bench.state(done), State::Succeeded, "it finished before it was stopped");

    let failed = bench.start(EffectClass::Read, &retried);
    bench.cancel(failed, 1);
    bench.fail(failed, FailureKind::Failure, Retry::Later, SideEffect::Possible);
    assert_eq!(bench.state(failed), State::Failed, "a cancelled task is not retried");

    let stopped = bench.start(EffectClass::Read, &retried);
    bench.cancel(stopped, 1);
    bench.handle(Event::Drain);
    bench.fail(stopped, FailureKind::Shutdown, Retry::Never, SideEffect::Possible);
    assert_eq!(bench.state(stopped), State::Cancelled, "nor is it retried by the next executor");
}

#[test]
fn a_user_can_cancel_only_own_open_tasks() {
    let mut bench = Bench::new(limits(1));
    let id = bench.start(EffectClass::Read, &definition(json!({})));
    for (task, uid) in [(TaskId::new(), 1), (id, 2)] {
        let turn = bench.cancel(task, uid);
        assert_eq!((code_of(&turn.answers[0]), turn.interrupted), (Code::UnknownTask, vec![]));
    }
    bench.succeed(id);
    assert_eq!(code_of(&bench.cancel(id, 1).answers[0]), Code::UnknownTask);
}

#[test]
fn a_report_of_an_earlier_attempt_is_ignored() {
    let mut bench = Bench::new(limits(1));
    let id = bench.start(EffectClass::Read, &definition(json!({"retries": {"times": 3}})));
    bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::None);
    bench.pass(Duration::from_mins(1));
    assert_eq!(bench.handle(Event::Tick).performed, [id]);
    let late =
        End { at: bench.now, outcome: Outcome::Data(json!("of the first attempt")), meta: serde_json::Map::new() };
    let turn = bench.handle(Event::AttemptFinished(Box::new(AttemptReport { id, attempt: 1, result: Ok(late) })));
    assert_eq!((turn.published, bench.state(id)), (vec![], State::Running));
    bench.succeed(id);
    assert_eq!(bench.succeed(id).published, [], "a second report is ignored");
}

#[test]
fn after_a_crash_only_repeatable_tasks_run_again() {
    use EffectClass::{Idempotent, Once, Read};
    let plain = definition(json!({}));
    for (class, expected) in [(Read, State::Running), (Idempotent, State::Running), (Once, State::Unknown)] {
        let mut bench = Bench::new(limits(1));
        let running = bench.start(class, &plain);
        let waiting = Task::sample("other", Once, bench.now);
        bench.admit(&waiting, &plain);
        let turn = bench.crash(Some(&plain));
        assert_eq!(bench.state(running), expected, "{class:?}");
        let runs_again = expected == State::Running;
        assert_eq!(turn.performed, [if runs_again { running } else { waiting.id }], "{class:?}");
        if !runs_again {
            assert!(turn.published.contains(&(running, State::Unknown)));
            assert_eq!(error_of(&bench.stored(running)).code, Code::UnknownOutcome);
        }
    }
}

#[test]
fn a_task_that_crashes_the_executor_each_time_ends_and_others_continue() {
    let mut bench = Bench::new(limits(1));
    let retried = definition(json!({"retries": {"times": 2}}));
    let poison = bench.start(EffectClass::Read, &retried);
    let other = Task::sample("other", EffectClass::Read, bench.now);
    bench.admit(&other, &retried);
    let crashes = (1..20).find(|_| !bench.crash(Some(&retried)).performed.contains(&poison));
    assert_eq!(crashes, Some(2 + MAX_LOST_ATTEMPTS));
    assert_eq!((bench.state(poison), bench.state(other.id)), (State::Failed, State::Running));
    assert_eq!(error_of(&bench.stored(poison)).code, Code::ExecutorCrashed);
}

#[test]
fn a_task_whose_definition_changed_while_no_executor_ran_does_not_start() {
    let mut bench = Bench::new(limits(1));
    let plain = definition(json!({}));
    let running = bench.start(EffectClass::Read, &plain);
    let waiting = once(bench.now);
    bench.admit(&waiting, &plain);
    assert_eq!(bench.crash(None).performed, []);
    for id in [running, waiting.id] {
        assert_eq!((bench.state(id), error_of(&bench.stored(id)).code), (State::Failed, Code::BadDefinition));
    }
}

#[test]
fn a_retry_delay_survives_a_crash() {
    let mut bench = Bench::new(limits(1));
    let retried = definition(json!({"retries": {"times": 1, "backoff": "10s"}}));
    let id = bench.start(EffectClass::Read, &retried);
    bench.fail(id, FailureKind::Failure, Retry::Later, SideEffect::None);
    let due = bench.dispatcher.next_deadline();
    assert_eq!(bench.crash(Some(&retried)).performed, []);
    assert_eq!(bench.dispatcher.next_deadline(), due);
    bench.pass(Duration::from_secs(13));
    assert_eq!(bench.handle(Event::Tick).performed, [id]);
}

#[test]
fn a_draining_dispatcher_starts_nothing_and_interrupts_only_on_request() {
    let mut bench = Bench::new(limits(1));
    let plain = definition(json!({}));
    let running = bench.start(EffectClass::Read, &plain);
    let waiting = once(bench.now);
    bench.admit(&waiting, &plain);
    assert_eq!(bench.handle(Event::Drain).interrupted, []);
    let turn = bench.admit(&once(bench.now), &plain);
    assert_eq!(code_of(&turn.answers[0]), Code::NoExecutor);
    let turn = bench.handle(Event::Interrupt);
    assert_eq!(turn.interrupted, [(running, FailureKind::Shutdown)]);
    let turn = bench.fail(running, FailureKind::Shutdown, Retry::Never, SideEffect::Possible);
    assert_eq!((turn.performed, turn.published), (vec![], vec![(running, State::Queued)]));
    assert_eq!(bench.state(waiting.id), State::Queued);
    let turn = bench.crash(Some(&plain));
    assert_eq!(turn.performed, [running], "the next executor continues");
}

/// What a human commands, as an event.
pub(super) fn command(command: HumanCommand) -> Event {
    Event::Command(Ticket(0), Box::new(command))
}
