//! Invariants that hold after every sequence of events and crashes.
//!
//! The test simulates everything around the dispatcher: callers, humans, attempts, a store that rejects conflicting
//! changes, and crashes that lose whatever was not committed. An attempt is identified by its task and number; one
//! that runs during a crash never reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt as _;
use ground::task::confirmation::{Confirmation, ConfirmationRequest, DecidedBy, Digest};
use ground::task::effect::EffectClass;
use ground::task::failure::{Retry, SideEffect};
use ground::task::grant::{FieldCoverage, Grant, GrantScope};
use proptest::prelude::*;
use protocol::caller::Caller;
use protocol::code::Code;
use serde_json::json;
use store::Store as _;
use store::memory::MemoryStore;

use super::HumanCommand;
use super::tests::{Recorded, command, definition, failure, limits, rate_limits, recovery_info, told_sending};
use super::*;

#[derive(Debug, Clone)]
enum Act {
    Admit {
        tool: usize,
        uid: u32,
        key: Option<u8>,
        input: u8,
        asks: bool,
    },
    Decide {
        which: usize,
        verdict: u8,
        is_stale: bool,
    },
    Revoke {
        which: usize,
    },
    Drift {
        which: usize,
    },
    /// The rules changed, and say something else about one open task.
    ChangeRules {
        which: usize,
        verdict: u8,
    },
    Cancel {
        which: usize,
        uid: u32,
    },
    Finish {
        which: usize,
        how: AnswerKind,
    },
    /// A report for an attempt that is not running, or for an unknown task.
    Stray {
        which: usize,
        attempt: u32,
    },
    Pass {
        milliseconds: i64,
    },
    /// A running attempt tells that it has sent nothing and waits for a human.
    Wait {
        which: usize,
    },
    /// The wall clock is set back.
    SetClock {
        ahead: i64,
    },
    Drain,
    Interrupt,
    /// The executor is killed between turns.
    Crash,
    /// The executor is killed after committing this act, before its actions are carried out.
    CrashAfterCommit(Box<Self>),
    /// The executor is killed before committing this act.
    CrashBeforeCommit(Box<Self>),
}

#[derive(Debug, Clone, Copy)]
enum AnswerKind {
    Succeeds,
    Fails { kind: FailureKind, retry: Retry, side_effect: SideEffect },
}

/// Four subtools, one of each effect class; `read` has a concurrency limit.
const TOOLS: [(&str, EffectClass); 4] = [
    ("read", EffectClass::Read),
    ("idempotent", EffectClass::Idempotent),
    ("once", EffectClass::Once),
    ("verifiable", EffectClass::Verifiable),
];

fn definitions() -> [Arc<Definition>; 4] {
    [
        definition(json!({"concurrency": 1, "retries": {"times": 2, "backoff": "50ms"}})),
        definition(json!({"rate_limit": {"calls": 5, "per": "1s"}, "retries": {"times": 1, "backoff": "1s"}})),
        definition(json!({"retries": {"times": 2, "backoff": "100ms"}})),
        definition(json!({"verify": {"subtool": "read", "happened": "."}})),
    ]
}

fn confirmation(task: &Task, now: Timestamp) -> Confirmation {
    let (instance, wait) = (String::new(), Duration::from_secs(3));
    let request = ConfirmationRequest { instance, wait, ..ConfirmationRequest::sample() };
    Confirmation::ask(task, request, task.id.to_string(), now)
}

fn how() -> impl Strategy<Value = AnswerKind> {
    let kind = prop_oneof![
        Just(FailureKind::Failure),
        Just(FailureKind::Timeout),
        Just(FailureKind::Cancelled),
        Just(FailureKind::Shutdown)
    ];
    let retry = prop_oneof![Just(Retry::Never), Just(Retry::Later), Just(Retry::After(Duration::from_millis(700)))];
    let side_effect = prop_oneof![Just(SideEffect::None), Just(SideEffect::Possible)];
    prop_oneof![
        Just(AnswerKind::Succeeds),
        (kind, retry, side_effect).prop_map(|(kind, retry, side_effect)| AnswerKind::Fails {
            kind,
            retry,
            side_effect
        }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let key = prop_oneof![3 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    let admit = (0..4_usize, 0..2_u32, key, 0..2_u8, any::<bool>())
        .prop_map(|(tool, uid, key, input, asks)| Act::Admit { tool, uid, key, input, asks });
    let decide = (any::<usize>(), 0..5_u8, prop::bool::weighted(0.1))
        .prop_map(|(which, verdict, is_stale)| Act::Decide { which, verdict, is_stale });
    let finish = (any::<usize>(), how()).prop_map(|(which, how)| Act::Finish { which, how });
    let plain = prop_oneof![
        8 => admit,
        8 => finish,
        6 => decide,
        1 => any::<usize>().prop_map(|which| Act::Revoke { which }),
        1 => any::<usize>().prop_map(|which| Act::Drift { which }),
        2 => (any::<usize>(), 0..3_u8).prop_map(|(which, verdict)| Act::ChangeRules { which, verdict }),
        2 => (any::<usize>(), 0..2_u32).prop_map(|(which, uid)| Act::Cancel { which, uid }),
        1 => (any::<usize>(), 0..4_u32).prop_map(|(which, attempt)| Act::Stray { which, attempt }),
        3 => any::<usize>().prop_map(|which| Act::Wait { which }),
        3 => (0..2_000_i64).prop_map(|milliseconds| Act::Pass { milliseconds }),
        1 => (0..3_000_i64).prop_map(|ahead| Act::SetClock { ahead }),
    ]
    .boxed();
    prop_oneof![
        20 => plain.clone(),
        1 => Just(Act::Drain),
        1 => Just(Act::Interrupt),
        1 => Just(Act::Crash),
        1 => plain.clone().prop_map(|act| Act::CrashAfterCommit(Box::new(act))),
        1 => plain.prop_map(|act| Act::CrashBeforeCommit(Box::new(act))),
    ]
}

struct PropertyModel {
    dispatcher: Dispatcher,
    store: MemoryStore,
    now: Timestamp,
    definitions: [Arc<Definition>; 4],
    /// Every accepted task, oldest first.
    known: Vec<TaskId>,
    /// The attempts that run in this executor.
    running: Vec<(TaskId, u32, AttemptPurpose)>,
    /// The running attempts that have sent nothing, and what those wait for that are about to.
    unsent: BTreeMap<TaskId, Option<Recorded>>,
    /// The tasks that may have taken effect: an attempt was running during a crash, or reported so.
    affected: BTreeSet<TaskId>,
    /// Those of them that really took effect.
    happened: BTreeSet<TaskId>,
    /// Whether the next task that may have taken effect really did; alternates.
    coin: bool,
    /// The tasks that a human approved; a crash may have lost the decision.
    approved: BTreeSet<TaskId>,
    ahead: SignedDuration,
    /// The latest time that the wall clock has shown: a task that was due stays queued when the clock is set back.
    shown: Timestamp,
    ends: BTreeMap<TaskId, End>,
    draining: bool,
}

impl PropertyModel {
    fn new() -> Self {
        Self {
            dispatcher: Dispatcher::new(limits(2)),
            store: MemoryStore::default(),
            now: Timestamp::from_second(1_700_000_000).expect("a time"),
            definitions: definitions(),
            known: Vec::new(),
            running: Vec::new(),
            unsent: BTreeMap::new(),
            affected: BTreeSet::new(),
            happened: BTreeSet::new(),
            coin: false,
            approved: BTreeSet::new(),
            ahead: SignedDuration::ZERO,
            shown: Timestamp::MIN,
            ends: BTreeMap::new(),
            draining: false,
        }
    }

    fn play(&mut self, act: &Act) {
        match act {
            Act::Crash => self.crash(),
            Act::CrashAfterCommit(act) => {
                if let Some(event) = self.event(act) {
                    let effects = self.decide(event);
                    self.commit(&effects);
                }
                self.crash();
            }
            Act::CrashBeforeCommit(act) => {
                if let Some(event) = self.event(act) {
                    self.decide(event);
                }
                self.crash();
            }
            act => {
                if let Some(event) = self.event(act) {
                    let effects = self.decide(event);
                    self.commit(&effects);
                    self.act(effects.actions);
                }
            }
        }
    }

    fn change_of_rules(&self, which: usize, verdict: u8) -> Option<Event> {
        let open: Vec<_> = self.known.iter().filter(|id| !self.ends.contains_key(id)).collect();
        let id = **open.get(which.checked_rem(open.len())?)?;
        let (task, _) = self.dispatcher.open_task(id)?;
        let reassessed = match verdict {
            0 => Reassessment::Keep,
            1 => Reassessment::Refuse(Box::new(ErrorBody::new(Code::RefusedByPolicy, "a new rule"))),
            _ if task.confirmation.is_some() => Reassessment::Keep,
            _ => Reassessment::Ask(Box::new(confirmation(task, self.now))),
        };
        let (limits, reassessed) = (limits(1 + u32::from(verdict % 2)), vec![(id, reassessed)]);
        Some(Event::RulesChanged(Box::new(RulesChange { limits, drifted: Vec::new(), reassessed })))
    }

    fn event(&mut self, act: &Act) -> Option<Event> {
        let pick = |ids: &[TaskId], which: usize| (!ids.is_empty()).then(|| ids[which % ids.len()]);
        Some(match act {
            Act::Admit { tool, uid, key, input, asks } => {
                let (name, effect) = TOOLS[*tool];
                let mut task = Task::sample(name, effect, self.now);
                task.caller = Caller { uid: *uid, ..Caller::default() };
                task.idempotency_key = key.map(|key| key.to_string());
                task.input.insert("n".to_owned(), json!(input));
                if *asks {
                    task.confirmation = Some(Box::new(confirmation(&task, self.now)));
                }
                task.run_at = (*input == 1).then(|| self.now - self.ahead + SignedDuration::from_millis(800));
                let earlier =
                    task.idempotency_key.as_ref().and_then(|key| self.store.task_by_key(*uid, key).expect("read"));
                let definition = Arc::clone(&self.definitions[*tool]);
                let rate_limits = rate_limits(&task, &definition);
                Event::Admit(Box::new(Admission { task, definition, rate_limits, earlier }))
            }
            Act::Decide { which, verdict, is_stale } => self.decision(*which, *verdict, *is_stale)?,
            Act::Revoke { which } => {
                let grants: Vec<_> = self.store.grants().expect("read").iter().map(|grant| grant.id).collect();
                command(HumanCommand::Revoke { grant: pick(&grants, *which)?, touch: None })
            }
            Act::Drift { which } => {
                let waiting: Vec<_> = self.dispatcher.approvable().map(|task| task.id).collect();
                let drifted = vec![pick(&waiting, *which)?];
                Event::RulesChanged(Box::new(RulesChange { limits: limits(2), drifted, reassessed: Vec::new() }))
            }
            Act::ChangeRules { which, verdict } => self.change_of_rules(*which, *verdict)?,
            Act::Cancel { which, uid } => {
                let caller = Box::new(Caller { uid: *uid, ..Caller::default() });
                Event::Cancel { request: TaskId::new(), id: pick(&self.known, *which)?, caller, reason: None }
            }
            Act::Finish { which, how } => {
                if self.running.is_empty() {
                    return None;
                }
                let which = which % self.running.len();
                let (id, attempt, _) = self.running[which];
                if let (Some(recorded), AnswerKind::Succeeds) = (self.unsent.get_mut(&id), how) {
                    let (told, signal) = told_sending(id, attempt);
                    *recorded = Some(signal);
                    return Some(told);
                }
                let is_unsent = self.unsent.remove(&id).is_some();
                let (id, attempt, purpose) = self.running.remove(which);
                let result = match how {
                    // A lookup that succeeds reports what really happened.
                    AnswerKind::Succeeds if purpose == AttemptPurpose::Lookup && !self.happened.contains(&id) => {
                        let (kind, retry, side_effect) = (FailureKind::Failure, Retry::Never, SideEffect::None);
                        Err(FailedAttempt { end: failure(self.now), kind, retry, side_effect })
                    }
                    AnswerKind::Fails { kind, retry, .. } if purpose == AttemptPurpose::Lookup => {
                        let side_effect = SideEffect::Possible;
                        Err(FailedAttempt { end: failure(self.now), kind: *kind, retry: *retry, side_effect })
                    }
                    AnswerKind::Succeeds => {
                        self.affected.insert(id);
                        Ok(End { at: self.now, outcome: Outcome::Data(json!(attempt)), meta: serde_json::Map::new() })
                    }
                    AnswerKind::Fails { kind, retry, side_effect } => {
                        let side_effect = if is_unsent { SideEffect::None } else { *side_effect };
                        if side_effect == SideEffect::Possible {
                            self.may_have_happened(id);
                        }
                        Err(FailedAttempt { end: failure(self.now), kind: *kind, retry: *retry, side_effect })
                    }
                };
                Event::AttemptFinished(Box::new(AttemptReport { id, attempt, result }))
            }
            Act::Wait { which } => self.wait(*which)?,
            Act::Stray { which, attempt } => {
                let id = pick(&self.known, *which).unwrap_or_else(TaskId::new);
                if self.running.iter().any(|(running, number, _)| (*running, *number) == (id, *attempt)) {
                    return None;
                }
                let end = End { at: self.now, outcome: Outcome::Data(json!("stray")), meta: serde_json::Map::new() };
                Event::AttemptFinished(Box::new(AttemptReport { id, attempt: *attempt, result: Ok(end) }))
            }
            Act::Pass { milliseconds } => {
                self.now += SignedDuration::from_millis(*milliseconds);
                Event::Tick
            }
            Act::SetClock { ahead } => {
                self.shown = self.shown.max(self.now - self.ahead);
                self.ahead = SignedDuration::from_millis(*ahead);
                Event::SetClock { ahead: self.ahead }
            }
            Act::Drain => {
                self.draining = true;
                Event::Drain
            }
            Act::Interrupt => Event::Interrupt,
            Act::Crash | Act::CrashAfterCommit(_) | Act::CrashBeforeCommit(_) => {
                unreachable!("a crash is not an event")
            }
        })
    }

    /// A running attempt tells that it has sent nothing.
    fn wait(&mut self, which: usize) -> Option<Event> {
        let (id, attempt, purpose) = *self.running.get(which.checked_rem(self.running.len())?)?;
        if purpose == AttemptPurpose::Lookup {
            return None;
        }
        self.unsent.entry(id).or_default();
        Some(Event::AttemptTold { id, attempt, news: AttemptNews::Unsent })
    }

    /// A human's decision on one of the tasks that wait.
    fn decision(&mut self, which: usize, kind: u8, is_stale: bool) -> Option<Event> {
        let waiting: Vec<_> = self.dispatcher.approvable().map(|task| task.id).collect();
        if waiting.is_empty() {
            return None;
        }
        let id = waiting[which % waiting.len()];
        let task = self.store.task(id).expect("read").expect("stored");
        let confirmation = task.confirmation.clone().expect("a confirmation");
        let digest = if is_stale { Digest::of(&[]) } else { confirmation.digest };
        let verdict = match kind {
            0 => HumanVerdict::Deny { reason: None },
            1 => {
                let mut input = task.input.clone();
                input.insert("edited".to_owned(), true.into());
                let digest = confirmation.digest_of("", &task, &input);
                HumanVerdict::Edit { input, files: confirmation.files.clone(), digest, reason: None }
            }
            _ => HumanVerdict::Approve,
        };
        let grant = (kind == 2).then(|| Box::new(self.grant_like(&task)));
        if !is_stale && kind > 0 && task.state == State::AwaitingConfirmation {
            self.approved.insert(id);
        }
        let by = DecidedBy::Page(String::new());
        let tasks = vec![(id, digest)];
        Some(command(HumanCommand::Decide(DecideRequest { tasks, verdict, by, note: None, grant, touch: None })))
    }

    fn grant_like(&self, task: &Task) -> Grant {
        Grant {
            id: TaskId::new(),
            tool: task.tool.clone(),
            definition_hash: task.definition_hash.clone(),
            scope: GrantScope { uid: task.caller.uid, client: None, folder: None },
            files: Vec::new(),
            fields: [("n".to_owned(), FieldCoverage::Anything)].into(),
            rules: BTreeSet::new(),
            made_at: self.now,
            made_from: task.id,
            made_by: String::new(),
            expires_at: self.now + SignedDuration::from_secs(2),
            most_uses: Some(2),
            uses: 0,
            last_use: None,
            revoked_at: None,
            proof: None,
        }
    }

    fn decide(&mut self, event: Event) -> Effects {
        let mut effects = Effects::default();
        self.dispatcher.handle(event, self.now, &mut effects);
        effects
    }

    fn commit(&mut self, effects: &Effects) {
        self.store.commit(&effects.changes).expect("every change applies to the store");
        for change in &effects.changes {
            match change {
                Change::Accept(task) => self.known.push(task.id),
                Change::ReplaceQuestion { .. } | Change::Note { .. } => {}
                Change::KeyCounter { .. } | Change::DecideScope(_) => {}
                Change::Grant { grant, .. } => {
                    assert!(
                        grant.most_uses.is_none_or(|most| grant.uses <= most),
                        "a grant is not used more often than allowed"
                    );
                }
                Change::Resolve(..) | Change::Delivery(..) => panic!("there are no resolutions and hooks here"),
                Change::Transition(step) => {
                    assert_eq!(
                        step.to.is_final(),
                        step.end.is_some(),
                        "a final state has an end, and only a final state"
                    );
                    if let Some(end) = &step.end {
                        let before = self.ends.insert(step.id, end.clone());
                        assert_eq!(before, None, "no task ends twice");
                    }
                }
            }
        }
        for id in &self.known {
            let task = self.store.task(*id).expect("read").expect("no accepted task is lost");
            let steps = self.store.steps(*id).expect("read");
            let replayed = steps.iter().try_fold(State::Accepted, |state, recorded| state.after(recorded.step));
            assert_eq!(replayed, Ok(task.state), "the steps replay to the stored state");
            assert_eq!(task.end.as_ref(), self.ends.get(id), "a recorded end never changes");
            let attempts = steps.iter().filter(|recorded| matches!(recorded.step, Step::Start | Step::Verify)).count();
            assert_eq!(attempts, task.attempt as usize);
            if task.effect == EffectClass::Verifiable && task.state.is_final() && self.happened.contains(id) {
                let allowed = [State::Succeeded, State::Unknown];
                assert!(allowed.contains(&task.state), "a task that took effect does not end as {}", task.state);
            }
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Perform { task, purpose, .. } => {
                    assert!(!self.draining, "nothing starts while draining");
                    if let Some(asked) = &task.confirmation {
                        let by_grant =
                            asked.decision.as_ref().is_some_and(|decision| matches!(decision.by, DecidedBy::Grant(_)));
                        assert!(self.approved.contains(&task.id) || by_grant, "no task runs without approval");
                        assert!(task.attempt > 1 || asked.expires_at > self.now, "nor with an expired approval");
                        assert_eq!(
                            asked.digest,
                            asked.digest_of("", &task, &task.input),
                            "and only with the approved input"
                        );
                    }
                    let stored = self.store.task(task.id).expect("read").expect("stored");
                    assert_eq!(
                        (stored.state, stored.attempt),
                        (State::Running, task.attempt),
                        "an attempt is recorded before it is performed"
                    );
                    assert!(!self.running.iter().any(|(id, ..)| *id == task.id), "no task runs twice at once");
                    self.shown = self.shown.max(self.now - self.ahead);
                    let is_due = task.attempt > 1 || task.run_at.is_none_or(|at| at <= self.shown);
                    assert!(is_due, "no task starts before its scheduled time");
                    if task.effect == EffectClass::Once {
                        assert!(!self.affected.contains(&task.id), "a task that may have taken effect is not repeated");
                    }
                    if task.effect == EffectClass::Verifiable && purpose == AttemptPurpose::Work {
                        assert!(!self.happened.contains(&task.id), "a task that took effect is not repeated");
                    }
                    if task.notes.is_unsent {
                        self.unsent.entry(task.id).or_default();
                    }
                    self.running.push((task.id, task.attempt, purpose));
                }
                Action::Publish(task) => {
                    let stored = self.store.task(task.id).expect("read").expect("only a stored task is published");
                    assert_eq!(stored.end, self.ends.get(&task.id).cloned());
                    assert!(stored.state == task.state || !task.state.is_final(), "only a stored end is published");
                }
                Action::Interrupt(id, _) => {
                    assert!(
                        self.running.iter().any(|(running, ..)| *running == id),
                        "only a running attempt is interrupted"
                    );
                }
                Action::TellRecorded(signal) => signal.fire(),
                Action::Answer(..) | Action::Reply(..) | Action::SwitchOff(..) | Action::Preview { .. } => {}
            }
        }
        // From now on they send.
        self.unsent.retain(|_, recorded| {
            let told = recorded.as_mut().and_then(|recorded| recorded.as_mut().now_or_never());
            told.is_none_or(|told| told.is_err())
        });
        assert_eq!(self.running.len(), self.dispatcher.running() as usize);
        assert!(self.running.len() <= 2);
        let limited =
            |id: &TaskId| self.store.task(*id).expect("read").is_some_and(|task| task.tool.as_str() == "read");
        assert!(self.running.iter().filter(|(id, ..)| limited(id)).count() <= 1, "the limit of a subtool holds");
    }

    /// Records that an attempt may have taken effect; every second one really did.
    fn may_have_happened(&mut self, id: TaskId) {
        self.affected.insert(id);
        self.coin = !self.coin;
        if self.coin {
            self.happened.insert(id);
        }
    }

    /// Kills the executor and starts another one. Running attempts may have taken effect.
    fn crash(&mut self) {
        let unsent = std::mem::take(&mut self.unsent);
        for (id, _, purpose) in std::mem::take(&mut self.running) {
            if purpose == AttemptPurpose::Work && !unsent.contains_key(&id) {
                self.may_have_happened(id);
            }
        }
        self.dispatcher = Dispatcher::new(limits(2));
        self.draining = false;
        self.dispatcher.restore_grants(self.store.grants().expect("read"));
        // The next executor knows only the wall clock.
        self.now -= std::mem::take(&mut self.ahead);
        self.shown = self.now;
        let open = self.store.open_tasks().expect("read");
        let definitions = self.definitions.clone();
        let effects = self.dispatcher.recover(open, self.now, |task| {
            let index = TOOLS.iter().position(|(name, _)| *name == task.tool.as_str());
            recovery_info(index.map(|index| &definitions[index]))
        });
        self.commit(&effects);
        self.act(effects.actions);
    }

    /// Checks that everything ends once time passes and attempts succeed.
    fn finish_all(&mut self) {
        self.crash();
        for _ in 0..10_000 {
            if self.dispatcher.is_idle() {
                break;
            }
            self.play(&Act::Pass { milliseconds: 1_000 });
            self.play(&Act::Finish { which: 0, how: AnswerKind::Succeeds });
        }
        assert!(self.dispatcher.is_idle(), "every task ends");
        assert_eq!(self.dispatcher.queue.pop(|_| true), None, "no ended task stays queued");
        assert_eq!(self.ends.len(), self.known.len());
        assert_eq!(self.store.open_tasks().expect("read"), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_task_is_lost_repeated_or_ended_twice(acts in prop::collection::vec(act(), 1..60)) {
        let mut model = PropertyModel::new();
        for act in &acts {
            model.play(act);
        }
        model.finish_all();
    }
}
