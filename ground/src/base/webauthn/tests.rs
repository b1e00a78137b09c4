//! What the verifier accepts, and that each single thing which is wrong makes it refuse.

use super::soft_key::{Ceremony, PRESENT_AND_VERIFIED, SoftKey, SoftSignature, attestation_of};
use super::*;

const PARTY: &str = "amt-0123456789ab.localhost";
const ORIGIN: &str = "http://amt-0123456789ab.localhost:4711";
const CHALLENGE: [u8; 32] = [7; 32];

fn party() -> RelyingParty {
    RelyingParty { id: PARTY.to_owned(), origin: ExpectedOrigin::Exactly(ORIGIN.to_owned()) }
}

fn keys() -> [SoftKey; 3] {
    [SoftKey::es256("a"), SoftKey::ed25519("b"), SoftKey::rs256("c")]
}

fn assertion(key: &SoftKey, signed: SoftSignature) -> Assertion {
    Assertion {
        credential: Base64Url(key.credential.clone()),
        client_data: Base64Url(signed.client_data),
        authenticator_data: Base64Url(signed.authenticator_data),
        signature: Base64Url(signed.signature),
    }
}

/// Verifies an assertion against the registered `key`, whose last counter was 5.
fn verify(key: &SoftKey, assertion: &Assertion) -> Result<u32, WebauthnError> {
    let public_key = PublicKey::parse(&key.cose()).expect("a key");
    assertion.verify(&party(), &CHALLENGE, &Base64Url(key.credential.clone()), &public_key, Some(5))
}

fn get() -> Ceremony {
    Ceremony::get(PARTY, ORIGIN, &CHALLENGE)
}

/// Registers `key`, with the ceremony changed by `change`.
fn register(key: &SoftKey, change: impl Fn(&mut Ceremony)) -> Result<RegisteredKey, WebauthnError> {
    let mut ceremony = Ceremony::create(PARTY, ORIGIN, &CHALLENGE);
    change(&mut ceremony);
    registration(&ceremony, key.attestation(&ceremony)).verify(&party(), &CHALLENGE)
}

fn registration(ceremony: &Ceremony, attestation: Vec<u8>) -> Registration {
    Registration { client_data: Base64Url(ceremony.client_data()), attestation: Base64Url(attestation) }
}

#[test]
fn keys_of_all_three_algorithms_register_and_sign() {
    for (mut key, algorithm) in keys().into_iter().zip(["ES256", "EdDSA", "RS256"]) {
        let registered = register(&key, |_| {}).expect("registered");
        assert_eq!(registered.credential.0, key.credential);
        assert_eq!((registered.public_key.algorithm(), registered.counter), (algorithm, 0));
        let json = serde_json::to_string(&registered.public_key).expect("JSON");
        assert_eq!(serde_json::from_str::<PublicKey>(&json).expect("a key"), registered.public_key);
        key.counter = 6;
        assert_eq!(verify(&key, &assertion(&key, key.sign(&get()))), Ok(6));
    }
}

#[test]
fn each_wrong_part_of_the_ceremony_is_refused() {
    type Change = fn(&mut Ceremony);
    let other: [(Change, WebauthnError); 13] = [
        (|asked| asked.kind = "webauthn.create", WebauthnError::WrongType),
        (|asked| asked.kind = "payment.get", WebauthnError::WrongType),
        (|asked| asked.challenge[31] ^= 1, WebauthnError::WrongChallenge),
        (|asked| asked.challenge.truncate(31), WebauthnError::WrongChallenge),
        (|asked| asked.origin = "http://amt-0123456789ab.localhost:4712".to_owned(), WebauthnError::WrongOrigin),
        (|asked| asked.origin = "http://x.amt-0123456789ab.localhost:4711".to_owned(), WebauthnError::WrongOrigin),
        (|asked| asked.more = ",\"crossOrigin\":true", WebauthnError::WrongOrigin),
        (|asked| asked.more = ",\"topOrigin\":\"http://evil.localhost\"", WebauthnError::WrongOrigin),
        (
            |asked| asked.more = ",\"origin\":\"http://amt-0123456789ab.localhost:4711\"",
            WebauthnError::MalformedClientData,
        ),
        (|asked| asked.relying_party = "localhost".to_owned(), WebauthnError::WrongRelyingParty),
        (|asked| asked.flags = PRESENT_AND_VERIFIED & !1, WebauthnError::NotPresent),
        (|asked| asked.flags = 1, WebauthnError::NotVerified),
        (|asked| asked.flags |= 1 << 4, WebauthnError::MalformedAuthenticatorData),
    ];
    for mut key in keys() {
        key.counter = 6;
        for (change, expected) in other {
            let mut asked = get();
            change(&mut asked);
            assert_eq!(verify(&key, &assertion(&key, key.sign(&asked))), Err(expected), "{}", asked.more);
            // The same change makes a new key unacceptable, except that its type is another one.
            if expected != WebauthnError::WrongType {
                let changed = register(&key, |asked| {
                    change(asked);
                    asked.kind = "webauthn.create";
                });
                assert_eq!(changed.expect_err("refused"), expected);
            }
        }
        assert_eq!(register(&key, |asked| asked.kind = "webauthn.get").expect_err("refused"), WebauthnError::WrongType);
    }
}

#[test]
fn a_counter_must_go_up_unless_the_key_never_counts() {
    for (counter, last, expected) in [
        (6, 5, Ok(6)),
        (5, 5, Err(WebauthnError::CounterWentBack)),
        (4, 5, Err(WebauthnError::CounterWentBack)),
        (0, 5, Err(WebauthnError::CounterWentBack)),
        (1, 0, Ok(1)),
        (0, 0, Ok(0)),
    ] {
        let mut key = SoftKey::es256("a");
        key.counter = counter;
        let public_key = PublicKey::parse(&key.cose()).expect("a key");
        let signed = assertion(&key, key.sign(&get()));
        let verified = signed.verify(&party(), &CHALLENGE, &Base64Url(key.credential.clone()), &public_key, Some(last));
        assert_eq!(verified, expected, "{counter} after {last}");
    }
}

#[test]
fn only_the_registered_key_can_sign() {
    for (index, mut key) in keys().into_iter().enumerate() {
        key.counter = 6;
        let good = assertion(&key, key.sign(&get()));
        // Another key under this key's id.
        for (other, mut forger) in keys().into_iter().enumerate() {
            forger.counter = 6;
            forger.credential.clone_from(&key.credential);
            let forged = verify(&key, &assertion(&forger, forger.sign(&get())));
            // All RSA keys of the tests are the same one.
            let is_same = (index, other) == (2, 2);
            assert_eq!(forged, if is_same { Ok(6) } else { Err(WebauthnError::BadSignature) }, "{index} by {other}");
        }
        let renamed = Assertion { credential: Base64Url(b"credential x".to_vec()), ..good.clone() };
        assert_eq!(verify(&key, &renamed), Err(WebauthnError::OtherCredential));
        // Whatever is changed after the signature was made.
        for part in 0..3 {
            let length = [&good.client_data, &good.authenticator_data, &good.signature][part].0.len();
            for at in 0..length {
                let mut forged = good.clone();
                [&mut forged.client_data, &mut forged.authenticator_data, &mut forged.signature][part].0[at] ^= 1;
                assert!(verify(&key, &forged).is_err(), "part {part} at {at}");
                let mut cut = good.clone();
                [&mut cut.client_data, &mut cut.authenticator_data, &mut cut.signature][part].0.truncate(at);
                assert!(verify(&key, &cut).is_err(), "part {part} cut at {at}");
            }
            let mut longer = good.clone();
            [&mut longer.client_data, &mut longer.authenticator_data, &mut longer.signature][part].0.push(0);
            assert!(verify(&key, &longer).is_err(), "part {part} continued");
        }
        assert_eq!(verify(&key, &good), Ok(6));
    }
}

#[test]
fn a_malformed_registration_is_refused() {
    for key in keys() {
        let ceremony = Ceremony::create(PARTY, ORIGIN, &CHALLENGE);
        let whole = key.attestation(&ceremony);
        for at in 0..whole.len() {
            let cut = registration(&ceremony, whole[..at].to_vec()).verify(&party(), &CHALLENGE);
            assert_eq!(cut.expect_err("refused"), WebauthnError::MalformedAttestation, "cut at {at}");
        }
        let data = key.new_key_data(&ceremony);
        for at in 0..data.len() {
            let cut = registration(&ceremony, attestation_of(&data[..at])).verify(&party(), &CHALLENGE);
            assert_eq!(cut.expect_err("refused"), WebauthnError::MalformedAuthenticatorData, "cut at {at}");
        }
        let longer = registration(&ceremony, attestation_of(&[&data[..], &[0]].concat()));
        assert_eq!(
            longer.verify(&party(), &CHALLENGE).expect_err("refused"),
            WebauthnError::MalformedAuthenticatorData
        );
        // The flag that announces a key is missing, or the data of a use stands where a new key should.
        let mut unannounced = data.clone();
        unannounced[32] &= PRESENT_AND_VERIFIED;
        for data in [unannounced, key.authenticator_data(&ceremony)] {
            let unannounced = registration(&ceremony, attestation_of(&data)).verify(&party(), &CHALLENGE);
            assert_eq!(unannounced.expect_err("refused"), WebauthnError::MalformedAuthenticatorData);
        }
    }
    // A credential id is neither empty nor longer than the standard allows.
    for credential in [Vec::new(), vec![1; MAX_CREDENTIAL_ID_BYTES + 1]] {
        let mut key = SoftKey::es256("a");
        key.credential = credential;
        assert_eq!(register(&key, |_| {}).expect_err("refused"), WebauthnError::MalformedAuthenticatorData);
    }
}

#[test]
fn a_public_key_of_another_kind_is_refused() {
    let [es256, ed25519, rs256] = keys().map(|key| key.cose());
    let changed = |cose: &[u8], at: usize, to: u8| {
        let mut changed = cose.to_vec();
        assert_ne!(std::mem::replace(&mut changed[at], to), to);
        changed
    };
    for (cose, what) in [
        (changed(&es256, 4, 0x27), "the algorithm of another kind"),
        (changed(&ed25519, 4, 0x26), "the algorithm of another kind"),
        (changed(&es256, 4, 0x38), "an algorithm that is not supported"),
        (changed(&es256, 6, 2), "another curve"),
        (changed(&ed25519, 6, 4), "another curve"),
        (changed(&es256, 2, 1), "another type"),
        (changed(&es256, 0, 0xa4), "a coordinate less"),
        (rs256[..rs256.len() - 5].to_vec(), "no exponent"),
        (vec![0xa0], "no field"),
        (vec![0x01], "no map"),
    ] {
        assert_eq!(PublicKey::parse(&cose), Err(WebauthnError::UnsupportedKey), "{what}");
    }
}

#[test]
fn a_decision_of_the_past_may_come_from_any_host_below_the_relying_party() {
    let past = RelyingParty { origin: ExpectedOrigin::BelowRelyingParty, ..party() };
    let key = SoftKey::es256("a");
    let public_key = PublicKey::parse(&key.cose()).expect("a key");
    for (host, expected) in
        [("q.amt-0123456789ab.localhost", Ok(0)), ("evil.localhost", Err(WebauthnError::WrongOrigin))]
    {
        let asked = Ceremony::get(PARTY, &format!("http://{host}:1234"), &CHALLENGE);
        let signed = assertion(&key, key.sign(&asked));
        let verified = signed.verify(&past, &CHALLENGE, &Base64Url(key.credential.clone()), &public_key, None);
        assert_eq!(verified, expected, "{host}");
    }
}
