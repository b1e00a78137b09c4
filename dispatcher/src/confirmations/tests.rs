//! The rules of confirmations, tested with the in-memory store.

use std::sync::Arc;

use definition::Definition;
use ground::task::effect::EffectClass;
use ground::task::failure::{Retry, SideEffect};
use ground::task::grant::{FieldCoverage, Grant, GrantScope};
use protocol::mailbox::request::Answer;
use serde_json::json;
use store::Store as _;

use super::super::tests::{Bench, Turn, command, definition, error_of, limits, unapproved};
use super::super::{DispatcherLimits, Event, FailureKind, RulesChange};
use super::*;
use crate::HumanCommand;

fn plain() -> Arc<Definition> {
    definition(json!({}))
}

fn digest(bench: &Bench, id: TaskId) -> Digest {
    bench.stored(id).confirmation.expect("a confirmation").digest
}

fn decide(bench: &mut Bench, tasks: &[(TaskId, Digest)], verdict: HumanVerdict) -> Turn {
    decide_with_grant(bench, tasks, verdict, None)
}

fn decide_with_grant(
    bench: &mut Bench,
    tasks: &[(TaskId, Digest)],
    verdict: HumanVerdict,
    grant: Option<Grant>,
) -> Turn {
    let by = DecidedBy::Page("page".to_owned());
    let grant = grant.map(Box::new);
    let request = DecideRequest { tasks: tasks.to_vec(), verdict, by, note: None, grant, touch: None };
    bench.handle(command(HumanCommand::Decide(request)))
}

/// Admits a task that waits for confirmation.
fn pending(bench: &mut Bench, input: Value) -> TaskId {
    let task = unapproved(bench.now, input);
    let turn = bench.admit(&task, &plain());
    assert_eq!(turn.published, [(task.id, State::AwaitingConfirmation)]);
    assert!(turn.performed.is_empty());
    task.id
}

fn refusal(turn: &Turn) -> Code {
    match turn.answers.as_slice() {
        [Answer::Refused(error)] => error.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_approval_starts_the_task_and_a_second_decision_is_rejected() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({}));
    let of = [(id, digest(&bench, id))];
    let turn = decide(&mut bench, &of, HumanVerdict::Approve);
    assert_eq!((turn.performed, turn.replies), (vec![id], vec![Ok(vec![(id, State::Queued)])]));
    let turn = decide(&mut bench, &of, HumanVerdict::Deny { reason: None });
    assert_eq!((turn.performed, turn.replies), (vec![], vec![Err(DecisionError::NotPending(id))]));
    let decision = bench.stored(id).confirmation.and_then(|asked| asked.decision).expect("a decision");
    assert_eq!((decision.verdict, decision.by), (Verdict::Approved, DecidedBy::Page("page".to_owned())));
}

#[test]
fn a_denied_task_never_runs_and_its_error_gives_the_reason() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({}));
    let of = [(id, digest(&bench, id))];
    let turn = decide(&mut bench, &of, HumanVerdict::Deny { reason: Some("not today".to_owned()) });
    assert_eq!((turn.performed, turn.published), (vec![], vec![(id, State::Denied)]));
    let task = bench.stored(id);
    let error = error_of(&task);
    assert_eq!((error.code, error.message.as_str()), (Code::Denied, "a human denied it: not today"));
    // The same call is denied without asking until the cool-down is over.
    let again = unapproved(bench.now, json!({}));
    assert_eq!(refusal(&bench.admit(&again, &plain())), Code::Denied);
    pending(&mut bench, json!({"other": 1}));
    bench.pass(Duration::from_mins(10));
    pending(&mut bench, json!({}));
}

#[test]
fn a_decision_with_another_digest_is_stale_and_a_batch_is_all_or_nothing() {
    let mut bench = Bench::new(limits(5));
    let (first, second) = (pending(&mut bench, json!({"n": 1})), pending(&mut bench, json!({"n": 2})));
    let (one, two) = (digest(&bench, first), digest(&bench, second));
    let turn = decide(&mut bench, &[(first, one), (second, one)], HumanVerdict::Approve);
    assert_eq!((turn.performed, turn.replies), (vec![], vec![Err(DecisionError::Stale(second))]));
    assert_eq!(bench.state(first), State::AwaitingConfirmation);
    let turn = decide(&mut bench, &[(first, one), (second, two)], HumanVerdict::Approve);
    assert_eq!(turn.performed, [first, second]);
}

#[test]
fn a_task_that_a_batch_names_twice_is_not_decided() {
    let mut bench = Bench::new(limits(5));
    let id = pending(&mut bench, json!({}));
    let twice = [(id, digest(&bench, id)), (id, digest(&bench, id))];
    for verdict in [HumanVerdict::Approve, HumanVerdict::Deny { reason: None }] {
        let turn = decide(&mut bench, &twice, verdict);
        assert_eq!((turn.performed, turn.replies), (vec![], vec![Err(DecisionError::NotPending(id))]));
        assert_eq!(bench.state(id), State::AwaitingConfirmation);
    }
}

#[test]
fn an_edited_task_runs_with_the_new_input_and_keeps_the_original() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({"to": "eve"}));
    let of = [(id, digest(&bench, id))];
    let Value::Object(input) = json!({"to": "bob"}) else { unreachable!() };
    let new = Digest::of(&[b"new"]);
    let edit = HumanVerdict::Edit {
        input: input.clone(),
        files: Vec::new(),
        digest: new,
        reason: Some("wrong one".to_owned()),
    };
    assert_eq!(decide(&mut bench, &of, edit).performed, [id]);
    let task = bench.stored(id);
    assert_eq!((&task.input, task.asked_input()), (&input, json!({"to": "eve"}).as_object().expect("an object")));
    let confirmation = task.confirmation.expect("a confirmation");
    assert_eq!((confirmation.digest, confirmation.decision.expect("a decision").verdict), (new, Verdict::Edited));
}

#[test]
fn an_unanswered_confirmation_expires_and_a_late_approval_is_rejected() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({}));
    let of = [(id, digest(&bench, id))];
    let deadline = bench.stored(id).confirmation.expect("a confirmation").expires_at;
    assert_eq!(bench.dispatcher.next_deadline(), Some(deadline));
    bench.now = deadline - SignedDuration::from_millis(1);
    bench.handle(Event::Tick);
    assert_eq!(bench.state(id), State::AwaitingConfirmation);
    bench.now = deadline;
    let turn = decide(&mut bench, &of, HumanVerdict::Approve);
    assert_eq!((turn.performed, turn.replies), (vec![], vec![Err(DecisionError::NotPending(id))]));
    assert_eq!((bench.state(id), error_of(&bench.stored(id)).code), (State::Expired, Code::Expired));
    assert_eq!(bench.dispatcher.next_deadline(), None);
}

#[test]
fn an_approved_task_that_cannot_start_in_time_expires() {
    let mut bench = Bench::new(limits(1));
    let first = pending(&mut bench, json!({"n": 1}));
    let second = pending(&mut bench, json!({"n": 2}));
    let of = [(first, digest(&bench, first)), (second, digest(&bench, second))];
    assert_eq!(decide(&mut bench, &of, HumanVerdict::Approve).performed, [first]);
    bench.pass(Duration::from_hours(1));
    assert_eq!(bench.succeed(first).performed, []);
    assert_eq!(bench.state(second), State::Expired);
}

#[test]
fn a_pending_confirmation_survives_a_crash_without_waiting_longer() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({}));
    let of = [(id, digest(&bench, id))];
    // Setting the clock back a year extends the wait to at most the configured one.
    bench.now -= SignedDuration::from_hours(365 * 24);
    bench.crash(Some(&plain()));
    assert_eq!(bench.dispatcher.next_deadline(), Some(bench.now + CONFIRMATION_WINDOW));
    bench.now += SignedDuration::from_hours(365 * 24);
    bench.crash(Some(&plain()));
    assert_eq!(decide(&mut bench, &of, HumanVerdict::Approve).performed, [id]);
}

#[test]
fn a_changed_definition_ends_pending_and_approved_tasks() {
    let mut bench = Bench::new(limits(1));
    let running = bench.start(EffectClass::Once, &plain());
    let (waits, approved) = (pending(&mut bench, json!({"n": 1})), pending(&mut bench, json!({"n": 2})));
    let of = [(approved, digest(&bench, approved))];
    decide(&mut bench, &of, HumanVerdict::Approve);
    let approvable: BTreeSet<_> = bench.dispatcher.approvable().map(|task| task.id).collect();
    assert_eq!(approvable, BTreeSet::from([waits, approved]));
    let change = RulesChange { limits: limits(1), drifted: vec![waits, approved], reassessed: Vec::new() };
    bench.handle(Event::RulesChanged(Box::new(change)));
    for id in [waits, approved] {
        assert_eq!((bench.state(id), error_of(&bench.stored(id)).code), (State::Failed, Code::Drifted));
    }
    assert_eq!(bench.succeed(running).performed, []);
    // The same if it changed while no executor ran.
    let left = pending(&mut bench, json!({"n": 3}));
    bench.crash(None);
    assert_eq!(error_of(&bench.stored(left)).code, Code::Drifted);
}

#[test]
fn identical_calls_share_a_confirmation_and_the_number_of_pending_ones_is_limited() {
    let most = limits(1);
    let mut bench = Bench::new(DispatcherLimits {
        confirmations: ConfirmationLimits { waiting_per_session: 2, waiting: 3, ..most.confirmations },
        ..most
    });
    let first = pending(&mut bench, json!({"n": 1}));
    let same = bench.admit(&unapproved(bench.now, json!({"n": 1})), &plain());
    assert!(matches!(same.answers.as_slice(), [Answer::SameAs(id)] if *id == first), "{same:?}");
    let second = pending(&mut bench, json!({"n": 2}));
    let third = unapproved(bench.now, json!({"n": 3}));
    assert_eq!(refusal(&bench.admit(&third, &plain())), Code::Throttled, "of one session");
    let mut of_other = unapproved(bench.now, json!({"n": 5}));
    of_other.caller.session = Some("other".to_owned());
    bench.admit(&of_other, &plain());
    let mut of_third = unapproved(bench.now, json!({"n": 4}));
    of_third.caller.session = Some("third".to_owned());
    assert_eq!(refusal(&bench.admit(&of_third, &plain())), Code::Throttled, "of all");
    assert_eq!(bench.dispatcher.queue_position(second), Some(2));
    bench.cancel(first, 1);
    assert_eq!(bench.dispatcher.queue_position(second), Some(1));
    assert_eq!(bench.admit(&third, &plain()).published, [(third.id, State::AwaitingConfirmation)]);
}

#[test]
fn what_is_asked_for_one_client_decides_nothing_for_others() {
    let mut bench = Bench::new(limits(1));
    let of = |bench: &Bench, session: &str| {
        let mut task = unapproved(bench.now, json!({"n": 1}));
        task.caller.session = Some(session.to_owned());
        task
    };
    let first = of(&bench, "shared-alice.1-a");
    bench.admit(&first, &plain());
    let same = bench.admit(&of(&bench, "shared-alice.1-b"), &plain());
    assert!(matches!(same.answers.as_slice(), [Answer::SameAs(id)] if *id == first.id), "{same:?}");
    for session in ["shared-bob.2-a", "agent-a"] {
        let task = of(&bench, session);
        let turn = bench.admit(&task, &plain());
        assert_eq!(turn.published, [(task.id, State::AwaitingConfirmation)], "{session}");
    }
    let grant = grant_of(&bench, first.id, None, None);
    let grant = Grant { scope: GrantScope { client: Some("alice.1".to_owned()), ..grant.scope }, ..grant };
    let covers = |session: &str| grant.covers(&of(&bench, session), bench.now);
    assert!(
        covers("shared-alice.1-c") && !covers("shared-bob.2-a") && !covers("agent-a") && !covers("shared-alice.2-a")
    );
    let own = Grant { scope: GrantScope { client: None, ..grant.scope.clone() }, ..grant.clone() };
    assert!(own.covers(&of(&bench, "agent-a"), bench.now) && !own.covers(&first, bench.now));
}

#[test]
fn a_scheduled_task_that_drifted_leaves_no_deadline_behind() {
    let mut bench = Bench::new(limits(1));
    let mut task = unapproved(bench.now, json!({}));
    task.run_at = Some(bench.now + SignedDuration::from_hours(2));
    bench.admit(&task, &plain());
    let of = [(task.id, digest(&bench, task.id))];
    decide(&mut bench, &of, HumanVerdict::Approve);
    assert_eq!((bench.state(task.id), bench.dispatcher.next_deadline()), (State::Queued, task.run_at));
    let change = RulesChange { limits: limits(1), drifted: vec![task.id], reassessed: Vec::new() };
    bench.handle(Event::RulesChanged(Box::new(change)));
    assert_eq!(error_of(&bench.stored(task.id)).code, Code::Drifted);
    assert_eq!(bench.dispatcher.next_deadline(), None);
}

#[test]
fn a_call_at_another_time_is_another_task() {
    let mut bench = Bench::new(limits(1));
    let at = |bench: &Bench, minutes: Option<i64>| {
        let run_at = minutes.map(|minutes| bench.now + SignedDuration::from_mins(minutes));
        Task { run_at, ..unapproved(bench.now, json!({})) }
    };
    let mut admitted = Vec::new();
    for minutes in [None, Some(60), Some(90)] {
        let task = at(&bench, minutes);
        assert_eq!(bench.admit(&task, &plain()).published, [(task.id, State::AwaitingConfirmation)], "{minutes:?}");
        admitted.push(task.id);
    }
    // A repeated `--in` gives a slightly later time.
    for (minutes, expected) in [(None, admitted[0]), (Some(61), admitted[1]), (Some(90), admitted[2])] {
        let again = at(&bench, minutes);
        let turn = bench.admit(&again, &plain());
        assert!(matches!(turn.answers.as_slice(), [Answer::SameAs(id)] if *id == expected), "{minutes:?}: {turn:?}");
    }
    let of = [(admitted[1], digest(&bench, admitted[1]))];
    decide(&mut bench, &of, HumanVerdict::Approve);
    let again = at(&bench, Some(60));
    assert_eq!(bench.admit(&again, &plain()).published, [(again.id, State::AwaitingConfirmation)]);
}

/// A task of the same user in another session and another folder.
fn elsewhere(bench: &Bench, input: Value, name: &str) -> Task {
    let mut task = unapproved(bench.now, input);
    task.caller.session = Some(name.to_owned());
    task.caller.folder = Some(name.into());
    task
}

#[test]
fn a_new_session_does_not_get_a_human_asked_again() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({}));
    let mut same = unapproved(bench.now, json!({}));
    same.caller.session = Some("new".to_owned());
    let shared = bench.admit(&same, &plain());
    assert!(matches!(shared.answers.as_slice(), [Answer::SameAs(first)] if *first == id), "{shared:?}");
    let of = [(id, digest(&bench, id))];
    decide(&mut bench, &of, HumanVerdict::Deny { reason: None });
    let again = elsewhere(&bench, json!({}), "new");
    assert_eq!(refusal(&bench.admit(&again, &plain())), Code::Denied, "in another session and folder");
    bench.crash(Some(&plain()));
    bench.dispatcher.restore_denial(&bench.stored(id));
    let again = elsewhere(&bench, json!({}), "newer");
    assert_eq!(refusal(&bench.admit(&again, &plain())), Code::Denied, "under the next executor");
    let mut of_other_user = unapproved(bench.now, json!({}));
    of_other_user.caller.uid += 1;
    let asked = bench.admit(&of_other_user, &plain()).published;
    assert_eq!(asked, [(of_other_user.id, State::AwaitingConfirmation)], "another user did not ask before");
}

#[test]
fn new_sessions_do_not_raise_the_number_of_pending_confirmations_of_a_user() {
    let most = limits(1);
    let mut bench = Bench::new(DispatcherLimits {
        confirmations: ConfirmationLimits { waiting_per_user: 3, ..most.confirmations },
        ..most
    });
    let ask = |bench: &mut Bench, number: u32| {
        let task = elsewhere(bench, json!({"n": number}), &format!("session-{number}"));
        (bench.admit(&task, &plain()), task.id)
    };
    let waiting: Vec<_> = (0..3).map(|number| ask(&mut bench, number).1).collect();
    assert_eq!(refusal(&ask(&mut bench, 3).0), Code::Throttled);
    let mut of_other_user = elsewhere(&bench, json!({}), "session-4");
    of_other_user.caller.uid += 1;
    let asked = bench.admit(&of_other_user, &plain()).published;
    assert_eq!(asked, [(of_other_user.id, State::AwaitingConfirmation)], "each user has a limit");
    bench.crash(Some(&plain()));
    assert_eq!(refusal(&ask(&mut bench, 5).0), Code::Throttled, "under the next executor");
    bench.cancel(waiting[0], 1);
    let (turn, id) = ask(&mut bench, 6);
    assert_eq!(turn.published, [(id, State::AwaitingConfirmation)]);
}

#[test]
fn the_number_of_confirmations_per_hour_is_limited() {
    let most = limits(1);
    let mut bench = Bench::new(DispatcherLimits {
        confirmations: ConfirmationLimits { per_hour: 2, ..most.confirmations },
        ..most
    });
    for n in 0..2 {
        let id = pending(&mut bench, json!({"n": n}));
        bench.cancel(id, 1);
        bench.pass(Duration::from_mins(10));
    }
    assert_eq!(refusal(&bench.admit(&unapproved(bench.now, json!({"n": 2})), &plain())), Code::Throttled);
    bench.pass(Duration::from_mins(40));
    pending(&mut bench, json!({"n": 2}));
}

fn grant_of(bench: &Bench, id: TaskId, field: Option<(&str, FieldCoverage)>, most_uses: Option<u32>) -> Grant {
    let task = bench.stored(id);
    let exact = task.input.iter().map(|(name, value)| (name.clone(), FieldCoverage::Exactly(value.clone())));
    let mut fields: BTreeMap<_, _> = exact.collect();
    fields.extend(field.map(|(name, covers)| (name.to_owned(), covers)));
    Grant {
        id: TaskId::new(),
        tool: task.tool,
        definition_hash: task.definition_hash,
        scope: GrantScope { uid: task.caller.uid, client: None, folder: None },
        files: Vec::new(),
        fields,
        rules: BTreeSet::new(),
        made_at: bench.now,
        made_from: id,
        made_by: "page".to_owned(),
        expires_at: bench.now + CONFIRMATION_WINDOW,
        most_uses,
        uses: 0,
        last_use: None,
        revoked_at: None,
        proof: None,
    }
}

#[test]
fn a_grant_approves_matching_calls_up_to_its_uses_and_survives_a_crash() {
    let mut bench = Bench::new(limits(5));
    let id = pending(&mut bench, json!({"n": 1}));
    let of = [(id, digest(&bench, id))];
    let grant = grant_of(&bench, id, Some(("n", FieldCoverage::AtMost(5.into()))), Some(2));
    assert_eq!(decide_with_grant(&mut bench, &of, HumanVerdict::Approve, Some(grant.clone())).performed, [id]);
    let through = unapproved(bench.now, json!({"n": 5}));
    assert_eq!(bench.admit(&through, &plain()).performed, [through.id]);
    let decision = bench.stored(through.id).confirmation.and_then(|asked| asked.decision).expect("a decision");
    assert_eq!(decision.by, DecidedBy::Grant(grant.id));
    pending(&mut bench, json!({"n": 6}));
    bench.crash(Some(&plain()));
    let last = unapproved(bench.now, json!({"n": 2}));
    assert_eq!(bench.admit(&last, &plain()).performed, [last.id]);
    assert_eq!(bench.store.grants().expect("read")[0].uses, 2);
    pending(&mut bench, json!({"n": 3}));
}

/// When a task starts, compared with the end of the grant that covers it, and what becomes of it.
#[test]
fn a_grant_approves_nothing_that_starts_after_its_end() {
    let end = CONFIRMATION_WINDOW;
    let minute = SignedDuration::from_mins(1);
    for (starts_in, is_approved) in [
        (None, true),
        (Some(minute), true),
        (Some(end - minute), true),
        (Some(end), false),
        (Some(end + minute), false),
        (Some(end + end), false),
    ] {
        let mut bench = Bench::new(limits(1));
        let id = pending(&mut bench, json!({"n": 1}));
        let of = [(id, digest(&bench, id))];
        let grant = grant_of(&bench, id, Some(("n", FieldCoverage::Anything)), None);
        decide_with_grant(&mut bench, &of, HumanVerdict::Approve, Some(grant));
        let scheduled =
            Task { run_at: starts_in.map(|after| bench.now + after), ..unapproved(bench.now, json!({"n": 2})) };
        bench.admit(&scheduled, &plain());
        let expected = if is_approved { State::Queued } else { State::AwaitingConfirmation };
        assert_eq!(bench.state(scheduled.id), expected, "{starts_in:?}");
    }
}

/// A task that waits for a slot, or for its next attempt after one that surely did nothing, or that may be repeated.
#[test]
fn a_grant_that_ends_while_a_task_is_queued_approves_it_no_more() {
    for (is_retry, effect) in [(false, EffectClass::Once), (true, EffectClass::Once), (true, EffectClass::Idempotent)] {
        let mut bench = Bench::new(limits(1));
        let definition = definition(json!({"retries": {"times": 5, "backoff": "1ms"}}));
        let id = pending(&mut bench, json!({"n": 1}));
        let of = [(id, digest(&bench, id))];
        let grant = grant_of(&bench, id, Some(("n", FieldCoverage::Anything)), None);
        decide_with_grant(&mut bench, &of, HumanVerdict::Approve, Some(grant));
        if is_retry {
            bench.succeed(id);
        }
        let queued = Task { effect, ..unapproved(bench.now, json!({"n": 2})) };
        assert_eq!(bench.admit(&queued, &definition).performed.len(), usize::from(is_retry));
        if is_retry {
            let after = Retry::After(Duration::from_hours(1));
            bench.fail(queued.id, FailureKind::Failure, after, SideEffect::None);
        }
        assert_eq!(bench.state(queued.id), State::Queued);
        bench.pass(Duration::from_mins(61));
        let turn = if is_retry { bench.handle(Event::Tick) } else { bench.succeed(id) };
        assert_eq!((turn.performed, bench.state(queued.id)), (vec![], State::Denied), "{is_retry}");
        let stored = bench.stored(queued.id);
        let error = error_of(&stored);
        assert!(error.message.contains("the grant that approved it has ended or was revoked"), "{error:?}");
        assert_eq!(error.message.ends_with("; before that it was tried once: no"), is_retry, "{error:?}");
    }
}

/// A rule is known by its content; which of them asks about a task, and which were in force when the grant was made.
#[test]
fn a_rule_that_came_after_a_grant_outranks_it() {
    let (old, new) = (Digest::of(&[b"old"]), Digest::of(&[b"new"]));
    for (asked_by, is_approved) in [(vec![], true), (vec![old], true), (vec![new], false), (vec![old, new], false)] {
        let mut bench = Bench::new(limits(9));
        let id = pending(&mut bench, json!({"n": 1}));
        let of = [(id, digest(&bench, id))];
        let grant = Grant { rules: [old].into(), ..grant_of(&bench, id, Some(("n", FieldCoverage::Anything)), None) };
        decide_with_grant(&mut bench, &of, HumanVerdict::Approve, Some(grant));
        let mut task = unapproved(bench.now, json!({"n": 2}));
        task.confirmation.as_mut().expect("a confirmation").asked_by = asked_by.clone();
        assert_eq!(bench.admit(&task, &plain()).performed.len(), usize::from(is_approved), "{asked_by:?}");
    }
}

#[test]
fn revoking_a_grant_denies_the_tasks_that_have_not_started() {
    let mut bench = Bench::new(limits(1));
    let id = pending(&mut bench, json!({}));
    let of = [(id, digest(&bench, id))];
    let grant = grant_of(&bench, id, None, None);
    decide_with_grant(&mut bench, &of, HumanVerdict::Approve, Some(grant.clone()));
    let queued = unapproved(bench.now, json!({}));
    assert_eq!(bench.admit(&queued, &plain()).published, [(queued.id, State::Queued)]);
    let turn = bench.handle(command(HumanCommand::Revoke { grant: grant.id, touch: None }));
    assert_eq!(turn.replies, [Ok(vec![])]);
    assert_eq!(bench.succeed(id).performed, []);
    assert_eq!(bench.state(queued.id), State::Denied);
    let none = bench.handle(command(HumanCommand::Revoke { grant: id, touch: None }));
    assert_eq!(none.replies, [Err(DecisionError::NotPending(id))]);
}

fn held() -> Arc<Definition> {
    definition(json!({"hold": "20s"}))
}

/// Approves a task whose definition has a `hold`.
fn approve_held(bench: &mut Bench, input: Value) -> TaskId {
    let task = unapproved(bench.now, input);
    bench.admit(&task, &held());
    let of = [(task.id, digest(bench, task.id))];
    let turn = decide(bench, &of, HumanVerdict::Approve);
    assert_eq!((turn.performed, turn.replies), (vec![], vec![Ok(vec![(task.id, State::Queued)])]));
    task.id
}

#[test]
fn a_held_task_starts_after_its_time_and_not_before() {
    let mut bench = Bench::new(limits(1));
    let id = approve_held(&mut bench, json!({}));
    let until = bench.now + SignedDuration::from_secs(20);
    assert_eq!((bench.stored(id).held_until(), bench.dispatcher.next_deadline()), (Some(until), Some(until)));
    bench.now = until - SignedDuration::from_millis(1);
    assert_eq!(bench.handle(Event::Tick).performed, []);
    // A restart does not shorten it.
    bench.crash(Some(&held()));
    assert_eq!(bench.handle(Event::Tick).performed, []);
    bench.now = until;
    assert_eq!(bench.handle(Event::Tick).performed, [id]);
    assert_eq!(bench.stored(id).held_until(), None, "it has started");
}

#[test]
fn a_held_task_can_be_stopped_and_does_not_expire_while_it_is_held() {
    let mut bench = Bench::new(limits(2));
    let stopped = approve_held(&mut bench, json!({"n": 1}));
    bench.cancel(stopped, 1);
    assert_eq!(bench.state(stopped), State::Cancelled);
    let task = unapproved(bench.now, json!({"n": 2}));
    bench.admit(&task, &held());
    bench.now = task.confirmation.as_ref().expect("a confirmation").expires_at - SignedDuration::from_secs(1);
    let of = [(task.id, digest(&bench, task.id))];
    decide(&mut bench, &of, HumanVerdict::Approve);
    bench.pass(Duration::from_secs(20));
    bench.handle(Event::Tick);
    assert_eq!(bench.state(task.id), State::Running);
    assert_eq!(bench.state(stopped), State::Cancelled);
}

#[test]
fn a_clock_that_was_ahead_holds_a_task_no_longer_than_its_definition_says() {
    let mut bench = Bench::new(limits(1));
    let id = approve_held(&mut bench, json!({}));
    bench.now -= SignedDuration::from_hours(24);
    bench.crash(Some(&held()));
    bench.pass(Duration::from_secs(20));
    bench.handle(Event::Tick);
    assert_eq!(bench.state(id), State::Running);
}
