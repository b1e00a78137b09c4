//! Decisions that need a touch: which do, what a touch counts for, and what it does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use ground::base::webauthn::{PublicKey, WebauthnError};
use ground::task::approver_key::{ApproverKey, EnrolledBy};
use ground::task::confirmation::{DecidedBy, Verdict};
use ground::task::grant::FieldCoverage;
use ground::task::touch::{Unproved, proof_of};
use protocol::task::{State, TaskId};
use serde_json::{Value, json};
use store::Store as _;

use super::super::tests::{Bench, Turn, command, definition, limits, unapproved};
use super::*;
use crate::HumanCommand;
use crate::soft_key::{Ceremony, SoftKey};

const INSTANCE: &str = "0123456789abcdef";
const PARTY: &str = "amt-0123456789ab.localhost";
const ORIGIN: &str = "http://q.amt-0123456789ab.localhost:4711";

/// A bench with one enrolled key.
fn with_key() -> (Bench, SoftKey) {
    let (mut bench, mut key) = (Bench::new(limits(20)), SoftKey::es256("a"));
    key.counter = 10;
    bench.dispatcher.set_page(INSTANCE.to_owned(), ORIGIN.to_owned());
    enrol(&mut bench, &[&key]);
    key.counter = 11;
    (bench, key)
}

fn enrol(bench: &mut Bench, keys: &[&SoftKey]) {
    let enrolled = |key: &&SoftKey| ApproverKey {
        name: "n".to_owned(),
        credential: Base64Url(key.credential.clone()),
        public_key: PublicKey::parse(&key.cose()).expect("a key"),
        counter: key.counter,
        enrolled_at: bench.now,
        enrolled_by: EnrolledBy::FirstRun,
    };
    let keys = ApproverKeys { keys: keys.iter().map(enrolled).collect(), reset_at: None };
    bench.dispatcher.demand_touch(!keys.is_empty());
    bench.dispatcher.set_approver_keys(keys);
}

fn grave() -> Arc<Definition> {
    definition(json!({"annotations": {"destructiveHint": true}}))
}

/// Admits a task that waits for confirmation, and returns it with the digest of what is shown.
fn pending(bench: &mut Bench, input: Value, definition: &Arc<Definition>) -> (TaskId, Digest) {
    let mut task = unapproved(bench.now, input);
    let mut confirmation = task.confirmation.take().expect("a confirmation");
    confirmation.digest = confirmation.digest_of(INSTANCE, &task, &task.input);
    let digest = confirmation.digest;
    task.confirmation = Some(confirmation);
    assert_eq!(bench.admit(&task, definition).published, [(task.id, State::AwaitingConfirmation)]);
    (task.id, digest)
}

/// The assertion of `key` over `challenge`, with the ceremony changed by `change`.
fn touch(key: &SoftKey, challenge: Digest, change: impl Fn(&mut Ceremony)) -> Assertion {
    let mut ceremony = Ceremony::get(PARTY, ORIGIN, challenge.as_bytes());
    change(&mut ceremony);
    let signed = key.sign(&ceremony);
    Assertion {
        credential: Base64Url(key.credential.clone()),
        client_data: Base64Url(signed.client_data),
        authenticator_data: Base64Url(signed.authenticator_data),
        signature: Base64Url(signed.signature),
    }
}

fn request(tasks: &[(TaskId, Digest)], verdict: HumanVerdict) -> DecideRequest {
    let by = DecidedBy::Page("page".to_owned());
    DecideRequest { tasks: tasks.to_vec(), verdict, by, note: None, grant: None, touch: None }
}

fn decide(bench: &mut Bench, request: DecideRequest) -> Turn {
    bench.handle(command(HumanCommand::Decide(request)))
}

/// Sends a decision without a touch, which must be refused, and returns the challenge that it gets.
fn challenge(bench: &mut Bench, request: DecideRequest) -> Digest {
    let turn = decide(bench, request);
    let [Err(DecisionError::NeedsTouch(wanted))] = turn.replies.as_slice() else { panic!("{:?}", turn.replies) };
    assert_eq!((turn.performed.len(), turn.published.len()), (0, 0), "nothing was decided");
    wanted.challenge
}

#[test]
fn with_a_key_what_is_grave_needs_its_touch_and_nothing_else_does() {
    let (mut bench, key) = with_key();
    let definitions = [
        (json!({}), false),
        (json!({"annotations": {"destructiveHint": true}}), true),
        (json!({"annotations": {"openWorldHint": true}}), true),
        (json!({"annotations": {"destructiveHint": false, "openWorldHint": false}}), false),
        (json!({"run": {"http": {"method": "POST", "base_url": "https://x.example", "path": "/"}}}), true),
        (
            json!({"annotations": {"openWorldHint": false},
            "run": {"http": {"method": "POST", "base_url": "https://x.example", "path": "/"}}}),
            false,
        ),
    ];
    for (index, (fields, expected)) in definitions.into_iter().enumerate() {
        let shown = pending(&mut bench, json!({"n": index}), &definition(fields.clone()));
        let turn = decide(&mut bench, request(&[shown], HumanVerdict::Approve));
        assert_eq!(matches!(turn.replies[..], [Err(DecisionError::NeedsTouch(_))]), expected, "{fields}");
    }
    // Without any key the page alone decides.
    enrol(&mut bench, &[]);
    let shown = pending(&mut bench, json!({"n": "without"}), &grave());
    assert_eq!(decide(&mut bench, request(&[shown], HumanVerdict::Approve)).performed, [shown.0]);
    // A denial never needs one.
    enrol(&mut bench, &[&key]);
    let shown = pending(&mut bench, json!({"n": "denied"}), &grave());
    let turn = decide(&mut bench, request(&[shown], HumanVerdict::Deny { reason: None }));
    assert_eq!(turn.published, [(shown.0, State::Denied)]);
}

/// Every runner with every declaration: what is undeclared counts by where the work is done.
#[test]
fn what_is_grave_is_decided_by_runner_and_annotations() {
    let command = json!({"name": "s", "command": ["server"]});
    let remote = json!({"name": "s", "url": "https://mcp.example.com/mcp"});
    let http = |method: &str| json!({"http": {"method": method, "base_url": "https://x.example", "path": "/"}});
    // The runner, and whether it is grave undeclared, not destructive, not open to the world.
    let runners = [
        (http("POST"), [true, true, false]),
        (http("DELETE"), [true, true, false]),
        (json!({"mcp": {"server": remote, "tool": "t"}}), [true, true, true]),
        (json!({"mcp": {"server": command, "tool": "t"}}), [true, true, true]),
        (json!({"agent": {"prompt": "x", "url": "https://agent.example.com"}}), [true, true, true]),
        (json!({"agent": {"prompt": "x"}}), [false; 3]),
        (json!({"process": {"argv": ["true"]}}), [false; 3]),
        (json!({"sql": {"database": "d", "statement": "delete from t"}}), [false; 3]),
        (json!({"steps": [{"name": "one", "subtool": "t", "input": {}}]}), [false; 3]),
        (json!({"llm": {"prompt": "x"}}), [false; 3]),
        (json!({"ask_user": {"question": "x"}}), [false; 3]),
        (json!({"builtin": {"list_files": {"path": "."}}}), [false; 3]),
    ];
    for (run, [undeclared, not_destructive, closed]) in runners {
        let cases = [
            (json!({}), undeclared),
            (json!({"destructiveHint": false}), not_destructive),
            (json!({"openWorldHint": false}), closed),
            (json!({"destructiveHint": false, "openWorldHint": false}), false),
            (json!({"destructiveHint": true, "openWorldHint": false}), true),
            (json!({"destructiveHint": false, "openWorldHint": true}), true),
            (json!({"idempotentHint": true}), undeclared),
            (json!({"readOnlyHint": true}), false),
            (json!({"readOnlyHint": true, "openWorldHint": true}), false),
        ];
        for (annotations, expected) in cases {
            let definition = definition(json!({"annotations": annotations, "run": run}));
            assert_eq!(definition.is_grave(), expected, "{run} {annotations}");
        }
    }
}

#[test]
fn a_demanded_touch_is_needed_whatever_the_task_does_and_also_when_all_keys_are_gone() {
    let (mut bench, key) = with_key();
    for keys in [vec![&key], Vec::new()] {
        enrol(&mut bench, &keys);
        let mut task = unapproved(bench.now, json!({"keys": keys.len()}));
        let confirmation = task.confirmation.as_mut().expect("a confirmation");
        confirmation.needs = Some(Assurance::Touch);
        let shown = (task.id, confirmation.digest);
        bench.admit(&task, &definition(json!({})));
        challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    }
}

#[test]
fn a_touch_approves_what_was_shown_and_is_kept_as_its_proof() {
    let (mut bench, key) = with_key();
    let shown = pending(&mut bench, json!({"n": 1}), &grave());
    let wanted = challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    let signed = touch(&key, wanted, |_| {});
    let approve = || DecideRequest { touch: Some(signed.clone()), ..request(&[shown], HumanVerdict::Approve) };
    assert_eq!(decide(&mut bench, approve()).performed, [shown.0]);
    let task = bench.stored(shown.0);
    let proof = proof_of(&task, None).expect("it is proved");
    assert_eq!((proof.check(&proof.public_key), &proof.assertion), (Ok(()), &signed));
    assert_eq!(bench.store.key_counters().expect("read"), [(signed.credential.clone(), 11)]);
    // The same again is too late.
    assert_eq!(decide(&mut bench, approve()).replies, [Err(DecisionError::NotPending(shown.0))]);
}

/// The table of wrong touches: none of them decides anything.
#[test]
fn every_wrong_touch_is_refused() {
    let (mut bench, key) = with_key();
    let stranger = SoftKey::es256("x");
    let shown = pending(&mut bench, json!({"n": 1}), &grave());
    let other = pending(&mut bench, json!({"n": 2}), &grave());
    let wanted = challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    let of_other = challenge(&mut bench, request(&[other], HumanVerdict::Approve));
    let of_both = challenge(&mut bench, request(&[shown, other], HumanVerdict::Approve));
    let of_reversed = challenge(&mut bench, request(&[other, shown], HumanVerdict::Approve));
    let mut impostor = SoftKey::es256("a");
    impostor.counter = 11;
    let mut used = SoftKey::es256("b");
    used.counter = 10;
    let mut broken = touch(&key, wanted, |_| {});
    broken.authenticator_data.0.truncate(36);
    let bad = |error| Err(DecisionError::BadTouch(error));
    let table = [
        (touch(&key, of_other, |_| {}), bad(WebauthnError::WrongChallenge)),
        (touch(&key, of_both, |_| {}), bad(WebauthnError::WrongChallenge)),
        (touch(&key, shown.1, |_| {}), bad(WebauthnError::WrongChallenge)),
        (touch(&key, wanted, |asked| asked.kind = "webauthn.create"), bad(WebauthnError::WrongType)),
        (touch(&key, wanted, |asked| asked.origin = format!("http://{PARTY}:4711")), bad(WebauthnError::WrongOrigin)),
        (touch(&key, wanted, |asked| asked.relying_party = "localhost".into()), bad(WebauthnError::WrongRelyingParty)),
        (touch(&key, wanted, |asked| asked.flags = 0b100), bad(WebauthnError::NotPresent)),
        (touch(&key, wanted, |asked| asked.flags = 0b001), bad(WebauthnError::NotVerified)),
        (touch(&impostor, wanted, |_| {}), bad(WebauthnError::BadSignature)),
        (broken, bad(WebauthnError::MalformedAuthenticatorData)),
        (touch(&stranger, wanted, |_| {}), Err(DecisionError::UnknownKey)),
    ];
    for (signed, expected) in table {
        let approve = DecideRequest { touch: Some(signed), ..request(&[shown], HumanVerdict::Approve) };
        let turn = decide(&mut bench, approve);
        assert_eq!((turn.replies, turn.performed), (vec![expected], vec![]));
        assert_eq!(bench.state(shown.0), State::AwaitingConfirmation);
    }
    // Two tasks are approved by a touch for both, in the order that was signed.
    let both = |touch| DecideRequest { touch: Some(touch), ..request(&[shown, other], HumanVerdict::Approve) };
    let turn = decide(&mut bench, both(touch(&key, of_reversed, |_| {})));
    assert_eq!(turn.replies, [bad(WebauthnError::WrongChallenge)]);
    assert_eq!(decide(&mut bench, both(touch(&key, of_both, |_| {}))).performed, [shown.0, other.0]);
    for id in [shown.0, other.0] {
        proof_of(&bench.stored(id), None).expect("it is proved");
    }
    // The key has counted to 11 now.
    let third = pending(&mut bench, json!({"n": 3}), &grave());
    let wanted = challenge(&mut bench, request(&[third], HumanVerdict::Approve));
    let again = DecideRequest { touch: Some(touch(&key, wanted, |_| {})), ..request(&[third], HumanVerdict::Approve) };
    assert_eq!(decide(&mut bench, again).replies, [bad(WebauthnError::CounterWentBack)]);
}

#[test]
fn a_counter_that_an_earlier_executor_saw_still_counts() {
    let (mut bench, key) = with_key();
    bench.dispatcher.restore_key_counters([(Base64Url(key.credential.clone()), 40)]);
    let shown = pending(&mut bench, json!({}), &grave());
    let wanted = challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    let stale = DecideRequest { touch: Some(touch(&key, wanted, |_| {})), ..request(&[shown], HumanVerdict::Approve) };
    assert_eq!(decide(&mut bench, stale).replies, [Err(DecisionError::BadTouch(WebauthnError::CounterWentBack))]);
}

#[test]
fn an_edit_and_an_answer_are_signed_as_what_they_are() {
    let (mut bench, mut key) = with_key();
    let Value::Object(input) = json!({"to": "bob"}) else { unreachable!() };
    let shown = pending(&mut bench, json!({"to": "eve"}), &grave());
    let task = bench.stored(shown.0);
    let digest = task.confirmation.as_ref().expect("a confirmation").digest_of(INSTANCE, &task, &input);
    let edit = || HumanVerdict::Edit { input: input.clone(), files: Vec::new(), digest, reason: None };
    let of_approval = challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    let wanted = challenge(&mut bench, request(&[shown], edit()));
    for (signed, is_right) in [(of_approval, false), (wanted, true)] {
        let turn =
            decide(&mut bench, DecideRequest { touch: Some(touch(&key, signed, |_| {})), ..request(&[shown], edit()) });
        assert_eq!(turn.performed == [shown.0], is_right, "{:?}", turn.replies);
    }
    let task = bench.stored(shown.0);
    assert_eq!(
        proof_of(&task, None).expect("it is proved").check(&PublicKey::parse(&key.cose()).expect("a key")),
        Ok(())
    );

    key.counter += 1;
    let shown = pending(&mut bench, json!({"q": 1}), &grave());
    let answer = |word: &str| HumanVerdict::Answer(json!({"answer": word}));
    let wanted = challenge(&mut bench, request(&[shown], answer("yes")));
    for (word, is_right) in [("no", false), ("yes", true)] {
        let signed = touch(&key, wanted, |_| {});
        let turn = decide(&mut bench, DecideRequest { touch: Some(signed), ..request(&[shown], answer(word)) });
        assert_eq!(turn.performed == [shown.0], is_right, "{:?}", turn.replies);
    }
    let mut task = bench.stored(shown.0);
    proof_of(&task, None).expect("it is proved");
    let decision = task.confirmation.as_mut().and_then(|asked| asked.decision.as_mut()).expect("a decision");
    decision.answer = Some(json!({"answer": "no"}));
    assert_eq!(proof_of(&task, None), Err(Unproved::OtherDecision));
}

/// A grant for every call of the task's subtool.
fn grant(bench: &Bench, of: TaskId) -> Grant {
    Grant {
        files: Vec::new(),
        fields: BTreeMap::from([("n".to_owned(), FieldCoverage::Anything)]),
        ..Grant::sample(&bench.stored(of), bench.now)
    }
}

#[test]
fn a_grant_is_worth_what_it_was_made_with() {
    let (mut bench, mut key) = with_key();
    // Made without a touch, for what needs none: it does not cover what needs one.
    let plain = definition(json!({}));
    let shown = pending(&mut bench, json!({"n": 1}), &plain);
    let made = grant(&bench, shown.0);
    let turn =
        decide(&mut bench, DecideRequest { grant: Some(Box::new(made)), ..request(&[shown], HumanVerdict::Approve) });
    assert_eq!(turn.performed, [shown.0]);
    let covered = unapproved(bench.now, json!({"n": 2}));
    assert_eq!(bench.admit(&covered, &plain).performed, [covered.id]);
    let shown = pending(&mut bench, json!({"n": 3}), &grave());

    // Made with a touch: it does, until its key is revoked.
    let made = grant(&bench, shown.0);
    let remember = |touch| DecideRequest {
        grant: Some(Box::new(made.clone())),
        touch,
        ..request(&[shown], HumanVerdict::Approve)
    };
    let of_approval = challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    let wanted = challenge(&mut bench, remember(None));
    assert_ne!(of_approval, wanted, "to remember is more than to approve");
    let turn = decide(&mut bench, remember(Some(touch(&key, of_approval, |_| {}))));
    assert_eq!(turn.replies, [Err(DecisionError::BadTouch(WebauthnError::WrongChallenge))]);
    assert_eq!(decide(&mut bench, remember(Some(touch(&key, wanted, |_| {})))).performed, [shown.0]);
    let covered = unapproved(bench.now, json!({"n": 4}));
    assert_eq!(bench.admit(&covered, &grave()).performed, [covered.id]);
    let stored = bench.store.grants().expect("read").into_iter().find(|grant| grant.id == made.id).expect("kept");
    let covered = bench.stored(covered.id);
    proof_of(&covered, Some(&stored)).expect("the grant's proof");
    let wider = Grant { most_uses: Some(9), ..stored.clone() };
    assert_eq!(proof_of(&covered, Some(&wider)), Err(Unproved::OtherDecision));

    // To end it needs a touch as well.
    key.counter += 1;
    let revoke = |touch| command(HumanCommand::Revoke { grant: made.id, touch });
    let turn = bench.handle(revoke(None));
    let [Err(DecisionError::NeedsTouch(wanted))] = turn.replies.as_slice() else { panic!("{:?}", turn.replies) };
    let wanted = wanted.challenge;

    // A revoked key takes its grants with it.
    let second = SoftKey::es256("second");
    enrol(&mut bench, &[&second]);
    pending(&mut bench, json!({"n": 5}), &grave());
    enrol(&mut bench, &[&key, &second]);
    key.counter += 1;
    let signed = Some(touch(&key, wanted, |_| {}));
    assert_eq!(bench.handle(revoke(signed)).replies, [Ok(Vec::new())]);
    pending(&mut bench, json!({"n": 6}), &grave());
}

#[test]
fn a_reset_voids_every_older_grant() {
    let mut bench = Bench::new(limits(20));
    let plain = definition(json!({}));
    let shown = pending(&mut bench, json!({"n": 1}), &plain);
    let made = grant(&bench, shown.0);
    decide(&mut bench, DecideRequest { grant: Some(Box::new(made)), ..request(&[shown], HumanVerdict::Approve) });
    let covered = unapproved(bench.now, json!({"n": 2}));
    assert_eq!(bench.admit(&covered, &plain).performed, [covered.id]);
    bench.dispatcher.set_approver_keys(ApproverKeys { keys: Vec::new(), reset_at: Some(bench.now) });
    pending(&mut bench, json!({"n": 3}), &plain);
}

type TaskEdit = fn(&mut Task);

#[test]
fn a_changed_record_is_not_proved() {
    let (mut bench, key) = with_key();
    let shown = pending(&mut bench, json!({"n": 1}), &grave());
    let wanted = challenge(&mut bench, request(&[shown], HumanVerdict::Approve));
    decide(
        &mut bench,
        DecideRequest { touch: Some(touch(&key, wanted, |_| {})), ..request(&[shown], HumanVerdict::Approve) },
    );
    let task = bench.stored(shown.0);
    let changes: [(TaskEdit, Unproved); 5] = [
        (|task| drop(task.input.insert("n".to_owned(), json!(2))), Unproved::RecordChanged),
        (|task| task.caller.uid += 1, Unproved::RecordChanged),
        (|task| task.definition_hash.push('x'), Unproved::RecordChanged),
        (|task| decision_of(task).verdict = Verdict::Edited, Unproved::OtherDecision),
        (|task| decision_of(task).proof = None, Unproved::NoProof),
    ];
    for (change, expected) in changes {
        let mut forged = task.clone();
        change(&mut forged);
        assert_eq!(proof_of(&forged, None), Err(expected));
    }
    // A statement that was changed together with the record has no signature.
    let mut forged = task.clone();
    forged.input.insert("n".to_owned(), json!(2));
    let confirmation = forged.confirmation.as_mut().expect("a confirmation");
    let digest = confirmation.digest_of(INSTANCE, &task, &forged.input);
    confirmation.digest = digest;
    let proof = confirmation.decision.as_mut().and_then(|decision| decision.proof.as_mut()).expect("a proof");
    proof.statement = Statement::Approve { tasks: vec![(shown.0, digest)] };
    let proof = proof_of(&forged, None).expect("it agrees with itself");
    assert_eq!(proof.check(&proof.public_key), Err(WebauthnError::WrongChallenge));
}

fn decision_of(task: &mut Task) -> &mut ground::task::confirmation::Decision {
    task.confirmation.as_mut().and_then(|asked| asked.decision.as_mut()).expect("a decision")
}
