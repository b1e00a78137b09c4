//! A passkey in software, for tests: it makes registrations and assertions, correct ones or wrong in one chosen way.
//!
//! It stands alone, since the end-to-end tests compile it too.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaPublicKeyComponents,
};
use sha2::{Digest as _, Sha256};

/// A user was present and verified.
pub(crate) const PRESENT_AND_VERIFIED: u8 = 0b101;
const HAS_ATTESTED_CREDENTIAL: u8 = 1 << 6;

/// A key with its private half.
pub(crate) struct SoftKey {
    pub(crate) credential: Vec<u8>,
    pub(crate) counter: u32,
    pair: SoftKeyPair,
}

enum SoftKeyPair {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rs256(Box<RsaKeyPair>),
}

/// What a key is asked to sign, and by which page.
#[derive(Clone)]
pub(crate) struct Ceremony {
    pub(crate) kind: &'static str,
    pub(crate) challenge: Vec<u8>,
    pub(crate) origin: String,
    pub(crate) relying_party: String,
    pub(crate) flags: u8,
    /// More of the client data, as JSON with a comma before it.
    pub(crate) more: &'static str,
}

impl Ceremony {
    pub(crate) fn get(relying_party: &str, origin: &str, challenge: &[u8]) -> Self {
        Self {
            kind: "webauthn.get",
            challenge: challenge.to_vec(),
            origin: origin.to_owned(),
            relying_party: relying_party.to_owned(),
            flags: PRESENT_AND_VERIFIED,
            more: ",\"crossOrigin\":false",
        }
    }

    pub(crate) fn create(relying_party: &str, origin: &str, challenge: &[u8]) -> Self {
        Self { kind: "webauthn.create", ..Self::get(relying_party, origin, challenge) }
    }

    pub(crate) fn client_data(&self) -> Vec<u8> {
        let challenge = base64url(&self.challenge);
        format!(r#"{{"type":"{}","challenge":"{challenge}","origin":"{}"{}}}"#, self.kind, self.origin, self.more)
            .into_bytes()
    }
}

/// The parts of an assertion.
#[derive(Clone)]
pub(crate) struct SoftSignature {
    pub(crate) client_data: Vec<u8>,
    pub(crate) authenticator_data: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

impl SoftKey {
    pub(crate) fn es256(name: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random);
        Self::new(name, SoftKeyPair::Es256(pair.expect("a key")))
    }

    pub(crate) fn ed25519(name: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self::new(name, SoftKeyPair::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key")))
    }

    /// All of these have the same private key, which means nothing outside of tests.
    pub(crate) fn rs256(name: &str) -> Self {
        let pair = RsaKeyPair::from_pkcs8(include_bytes!("rsa-of-tests.pk8")).expect("a key");
        Self::new(name, SoftKeyPair::Rs256(Box::new(pair)))
    }

    fn new(name: &str, pair: SoftKeyPair) -> Self {
        Self { credential: format!("credential {name}").into_bytes(), counter: 0, pair }
    }

    /// Returns the attestation object for a new key.
    pub(crate) fn attestation(&self, ceremony: &Ceremony) -> Vec<u8> {
        attestation_of(&self.new_key_data(ceremony))
    }

    /// The authenticator data of a new key.
    pub(crate) fn new_key_data(&self, ceremony: &Ceremony) -> Vec<u8> {
        let mut data = self.authenticator_data(ceremony);
        data[32] |= HAS_ATTESTED_CREDENTIAL;
        data.extend([0; 16]);
        data.extend(u16::try_from(self.credential.len()).expect("a short id").to_be_bytes());
        data.extend(&self.credential);
        data.extend(self.cose());
        data
    }

    pub(crate) fn authenticator_data(&self, ceremony: &Ceremony) -> Vec<u8> {
        let mut data = Sha256::digest(ceremony.relying_party.as_bytes()).to_vec();
        data.push(ceremony.flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    /// Signs what is asked for.
    pub(crate) fn sign(&self, ceremony: &Ceremony) -> SoftSignature {
        let (client_data, authenticator_data) = (ceremony.client_data(), self.authenticator_data(ceremony));
        let signature = self.signature(&authenticator_data, &client_data);
        SoftSignature { client_data, authenticator_data, signature }
    }

    pub(crate) fn signature(&self, authenticator_data: &[u8], client_data: &[u8]) -> Vec<u8> {
        let signed = [authenticator_data, Sha256::digest(client_data).as_slice()].concat();
        match &self.pair {
            SoftKeyPair::Es256(pair) => pair.sign(&SystemRandom::new(), &signed).expect("signed").as_ref().to_vec(),
            SoftKeyPair::Ed25519(pair) => pair.sign(&signed).as_ref().to_vec(),
            SoftKeyPair::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &signed, &mut signature).expect("signed");
                signature
            }
        }
    }

    /// The public key in COSE form.
    pub(crate) fn cose(&self) -> Vec<u8> {
        match &self.pair {
            SoftKeyPair::Es256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(32);
                [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32][..], x, &[0x22, 0x58, 32], y].concat()
            }
            SoftKeyPair::Ed25519(pair) => {
                [&[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32][..], pair.public_key().as_ref()].concat()
            }
            SoftKeyPair::Rs256(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                let head = [&[0xa4, 1, 3, 3, 0x39, 1, 0, 0x20][..], &bytes(&public.n)].concat();
                [head, vec![0x21], bytes(&public.e)].concat()
            }
        }
    }
}

/// An attestation object without a statement around this authenticator data.
pub(crate) fn attestation_of(data: &[u8]) -> Vec<u8> {
    let head = [&[0xa3][..], b"\x63fmt\x64none", b"\x67attStmt\xa0", b"\x68authData"].concat();
    [head, bytes(data)].concat()
}

/// A byte string of CBOR.
fn bytes(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a short value");
    let head = match length {
        0..24 => vec![0x40 | u8::try_from(length).expect("below 24")],
        24..256 => vec![0x58, u8::try_from(length).expect("below 256")],
        _ => [&[0x59][..], &length.to_be_bytes()].concat(),
    };
    [&head, bytes].concat()
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
