//! Decisions that an API key makes: which it may, and when it no longer may.

use std::sync::Arc;
use std::time::Duration;

use definition::Definition;
use ground::base::webauthn::{Base64Url, PublicKey};
use ground::task::Task;
use ground::task::approver_key::{ApproverKey, ApproverKeys, EnrolledBy};
use ground::task::confirmation::{Digest, Verdict};
use ground::task::effect::EffectClass;
use ground::task::failure::{Retry, SideEffect};
use ground::task::touch::relying_party_id;
use protocol::caller::session_label;
use protocol::task::{State, TaskId};
use serde_json::{Map, Value, json};
use store::Store as _;

use super::super::Event;
use super::super::tests::{Bench, Turn, command, definition, limits, unapproved};
use super::*;
use crate::HumanCommand;
use crate::report::FailureKind;
use crate::soft_key::{Ceremony, SoftKey};

const INSTANCE: &str = "0123456789abcdef";

fn bench() -> Bench {
    let mut bench = Bench::new(limits(20));
    bench.dispatcher.set_page(INSTANCE.to_owned(), origin());
    bench.dispatcher.set_api_keys(vec![key("aa"), key("bb"), key("before")]);
    bench
}

fn origin() -> String {
    format!("http://q.{}:4711", relying_party_id(INSTANCE))
}

fn key(hash: &str) -> ApiKeyRef {
    ApiKeyRef { name: "phone".to_owned(), hash: hash.to_owned() }
}

fn give(bench: &mut Bench, key: ApiKeyRef, touch: Option<Assertion>) -> Turn {
    let change = ScopeChange::Give { key, expires_at: None, session: "page".to_owned(), touch };
    bench.handle(command(HumanCommand::ChangeScope(change)))
}

fn take(bench: &mut Bench, hash: &str) -> Turn {
    let change = ScopeChange::TakeBack { hash: hash.to_owned() };
    bench.handle(command(HumanCommand::ChangeScope(change)))
}

fn pending(bench: &mut Bench, input: Value, definition: &Arc<Definition>) -> (TaskId, Digest) {
    let task = unapproved(bench.now, input);
    assert_eq!(bench.admit(&task, definition).published, [(task.id, State::AwaitingConfirmation)]);
    (task.id, bench.stored(task.id).confirmation.expect("a confirmation").digest)
}

fn request(task: (TaskId, Digest), key: ApiKeyRef, verdict: HumanVerdict) -> DecideRequest {
    let (by, note) = (DecidedBy::ApiKey(key), Some("fine".to_owned()));
    DecideRequest { tasks: vec![task], verdict, by, note, grant: None, touch: None }
}

fn decide(bench: &mut Bench, request: DecideRequest) -> Turn {
    bench.handle(command(HumanCommand::Decide(request)))
}

fn approve(bench: &mut Bench, task: (TaskId, Digest), hash: &str) -> Turn {
    decide(bench, request(task, key(hash), HumanVerdict::Approve))
}

fn is_refused(turn: &Turn) -> bool {
    turn.replies == [Err(DecisionError::NoScope)] && turn.performed.is_empty() && turn.published.is_empty()
}

#[test]
fn a_key_decides_only_while_it_has_the_scope_and_its_decisions_are_recorded() {
    let (mut bench, plain) = (bench(), definition(json!({})));
    let shown = pending(&mut bench, json!({"n": 1}), &plain);
    assert!(is_refused(&approve(&mut bench, shown, "aa")));
    assert!(is_refused(&decide(&mut bench, request(shown, key("aa"), HumanVerdict::Deny { reason: None }))));
    assert_eq!(give(&mut bench, key("aa"), None).replies, [Ok(vec![])]);
    assert!(is_refused(&approve(&mut bench, shown, "bb")), "another key under the same name");
    let renamed = ApiKeyRef { name: "other".to_owned(), ..key("aa") };
    assert!(is_refused(&decide(&mut bench, request(shown, renamed, HumanVerdict::Approve))), "under another name");
    let stale = approve(&mut bench, (shown.0, Digest::of(&[])), "aa");
    assert_eq!(stale.replies, [Err(DecisionError::Stale(shown.0))]);
    assert_eq!(approve(&mut bench, shown, "aa").performed, [shown.0]);
    assert_eq!(approve(&mut bench, shown, "aa").replies, [Err(DecisionError::NotPending(shown.0))], "it counts once");
    let decision = bench.stored(shown.0).confirmation.expect("a confirmation").decision.expect("a decision");
    assert_eq!((decision.verdict, decision.by), (Verdict::Approved, DecidedBy::ApiKey(key("aa"))));
    assert_eq!((decision.reason.as_deref(), decision.proof), (Some("fine"), None));
    let [scope] = &bench.store.decide_scopes().expect("read")[..] else { panic!("one scope") };
    assert_eq!((scope.decisions, scope.last_decision, scope.given_by.as_str()), (1, Some(bench.now), "page"));

    assert_eq!(take(&mut bench, "aa").replies, [Ok(vec![])]);
    let next = pending(&mut bench, json!({"n": 2}), &plain);
    assert!(is_refused(&approve(&mut bench, next, "aa")));
    assert!(matches!(take(&mut bench, "bb").replies[..], [Err(DecisionError::CommandRefused(_))]));
}

#[test]
fn a_key_only_denies_what_it_asked_for_itself() {
    let (mut bench, plain) = (bench(), definition(json!({})));
    give(&mut bench, key("aa"), None);
    let asked_by = |bench: &mut Bench, number: u8, client: Option<&str>| {
        let mut task = unapproved(bench.now, json!({"n": number}));
        task.caller.session = Some(session_label(client, None, "0123"));
        bench.admit(&task, &plain);
        (task.id, bench.stored(task.id).confirmation.expect("a confirmation").digest)
    };
    let own = asked_by(&mut bench, 1, Some("phone.1a2b"));
    let others = [None, Some("phone-two.1a2b"), Some("slack")]
        .into_iter()
        .zip(2..)
        .map(|(client, number)| asked_by(&mut bench, number, client))
        .collect::<Vec<_>>();
    let refused = [Err(DecisionError::OwnQuestion)];
    assert_eq!(approve(&mut bench, own, "aa").replies, refused);
    let answer = |action: &str| HumanVerdict::Answer(json!({"action": action, "content": {}}));
    assert_eq!(decide(&mut bench, request(own, key("aa"), answer("accept"))).replies, refused);
    // Neither among those of others, of which none is decided then.
    let mut all = request(own, key("aa"), HumanVerdict::Approve);
    all.tasks = others.iter().copied().chain([own]).collect();
    assert_eq!(decide(&mut bench, all).replies, refused);
    for other in others {
        assert_eq!(approve(&mut bench, other, "aa").performed, [other.0]);
    }
    let denied = decide(&mut bench, request(own, key("aa"), HumanVerdict::Deny { reason: None }));
    assert_eq!(denied.replies, [Ok(vec![(own.0, State::Denied)])], "nothing happens by that");
}

#[test]
fn a_key_remembers_and_edits_nothing() {
    let mut bench = bench();
    give(&mut bench, key("aa"), None);
    let shown = pending(&mut bench, json!({"n": 1}), &definition(json!({})));
    let edit = HumanVerdict::Edit { input: Map::new(), files: Vec::new(), digest: Digest::of(&[]), reason: None };
    assert!(is_refused(&decide(&mut bench, request(shown, key("aa"), edit))));
}

#[test]
fn what_was_approved_by_a_key_does_not_start_after_its_scope_or_the_key_was_taken_back() {
    check_that_it_does_not_start(|bench| drop(take(bench, "aa")));
    check_that_it_does_not_start(|bench| bench.dispatcher.set_api_keys(Vec::new()));
    check_that_it_does_not_start(|bench| bench.pass(Duration::from_mins(2)));
    check_that_it_does_not_start(|bench| {
        take(bench, "aa");
        bench.pass(Duration::from_secs(1));
        give(bench, key("aa"), None);
    });
}

/// Neither a scheduled task nor the next attempt of one that failed.
fn check_that_it_does_not_start(take_back: impl FnOnce(&mut Bench)) {
    let (mut bench, plain) = (bench(), definition(json!({"retries": {"times": 5, "backoff": "1ms"}})));
    let change = ScopeChange::Give {
        key: key("aa"),
        expires_at: Some(bench.now + Duration::from_mins(2)),
        session: "page".to_owned(),
        touch: None,
    };
    bench.handle(command(HumanCommand::ChangeScope(change)));
    let tried = Task { effect: EffectClass::Idempotent, ..unapproved(bench.now, json!({"n": 2})) };
    bench.admit(&tried, &plain);
    let digest = bench.stored(tried.id).confirmation.expect("a confirmation").digest;
    assert_eq!(approve(&mut bench, (tried.id, digest), "aa").performed, [tried.id]);
    bench.fail(tried.id, FailureKind::Failure, Retry::After(Duration::from_mins(1)), SideEffect::Answered);
    let later = bench.now + Duration::from_mins(1);
    let mut task = unapproved(bench.now, json!({"n": 1}));
    (task.run_at, task.not_before) = (Some(later), Some(later));
    bench.admit(&task, &plain);
    let digest = bench.stored(task.id).confirmation.expect("a confirmation").digest;
    assert_eq!(approve(&mut bench, (task.id, digest), "aa").replies, [Ok(vec![(task.id, State::Queued)])]);
    take_back(&mut bench);
    bench.pass(Duration::from_secs(61));
    assert_eq!(bench.handle(Event::Tick).performed, []);
    assert_eq!((bench.state(task.id), bench.state(tried.id)), (State::Denied, State::Denied));
}

#[test]
fn a_key_that_is_gone_decides_nothing() {
    let mut bench = bench();
    give(&mut bench, key("aa"), None);
    let shown = pending(&mut bench, json!({"n": 1}), &definition(json!({})));
    bench.dispatcher.set_api_keys(vec![key("bb")]);
    assert!(is_refused(&approve(&mut bench, shown, "aa")));
}

#[test]
fn a_scope_survives_a_crash() {
    let (mut bench, plain) = (bench(), definition(json!({})));
    give(&mut bench, key("aa"), None);
    bench.crash(Some(&plain));
    bench.dispatcher.set_api_keys(vec![key("aa")]);
    let shown = pending(&mut bench, json!({"n": 1}), &plain);
    assert_eq!(approve(&mut bench, shown, "aa").performed, [shown.0]);
}

#[test]
fn with_a_key_of_the_approver_only_a_touch_gives_the_scope_and_it_covers_nothing_grave() {
    let (mut bench, soft) = (bench(), SoftKey::es256("a"));
    give(&mut bench, key("before"), None);
    let enrolled = ApproverKey {
        name: "laptop".to_owned(),
        credential: Base64Url(soft.credential.clone()),
        public_key: PublicKey::parse(&soft.cose()).expect("a key"),
        counter: 0,
        enrolled_at: bench.now,
        enrolled_by: EnrolledBy::FirstRun,
    };
    bench.dispatcher.set_approver_keys(ApproverKeys { keys: vec![enrolled], reset_at: None });
    bench.dispatcher.demand_touch(true);
    let plain = definition(json!({}));
    let shown = pending(&mut bench, json!({"n": 1}), &plain);
    assert!(is_refused(&approve(&mut bench, shown, "before")), "no key stands behind it");

    let turn = give(&mut bench, key("aa"), None);
    assert!(is_refused(&approve(&mut bench, shown, "aa")));
    // The touch that was asked for, of a key that does not count: such a key tells no replay.
    let signed = |turn: &Turn| {
        let [Err(DecisionError::NeedsTouch(wanted))] = &turn.replies[..] else { panic!("{:?}", turn.replies) };
        let ceremony = Ceremony::get(&relying_party_id(INSTANCE), &origin(), wanted.challenge.as_bytes());
        let signed = soft.sign(&ceremony);
        Assertion {
            credential: Base64Url(soft.credential.clone()),
            client_data: Base64Url(signed.client_data),
            authenticator_data: Base64Url(signed.authenticator_data),
            signature: Base64Url(signed.signature),
        }
    };
    let mut touch = signed(&turn);
    let other = give(&mut bench, key("bb"), Some(touch.clone()));
    assert!(matches!(other.replies[..], [Err(DecisionError::BadTouch(_))]), "it is for another key");
    assert_eq!(give(&mut bench, key("aa"), Some(touch.clone())).replies, [Ok(vec![])]);
    assert_eq!(approve(&mut bench, shown, "aa").performed, [shown.0]);
    take(&mut bench, "aa");
    let again = give(&mut bench, key("aa"), Some(touch));
    assert!(matches!(again.replies[..], [Err(DecisionError::BadTouch(_))]), "what was taken back needs another touch");
    touch = signed(&give(&mut bench, key("aa"), None));
    assert_eq!(give(&mut bench, key("aa"), Some(touch)).replies, [Ok(vec![])]);

    let grave = definition(json!({"annotations": {"destructiveHint": true}}));
    let shown = pending(&mut bench, json!({"n": 2}), &grave);
    let turn = approve(&mut bench, shown, "aa");
    assert!(matches!(turn.replies[..], [Err(DecisionError::NeedsTouch(_))]), "{:?}", turn.replies);
    let denied = decide(&mut bench, request(shown, key("aa"), HumanVerdict::Deny { reason: None }));
    assert_eq!(denied.replies, [Ok(vec![(shown.0, State::Denied)])], "to deny needs none");
}
