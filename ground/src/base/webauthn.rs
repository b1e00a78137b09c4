//! Verifies what a passkey or a security key signed: Web Authentication (`WebAuthn`) level 2, sections 7.1 and 7.2.
//!
//! A key is registered once. Later it signs an assertion, whose challenge is the digest of what a human was shown.
//! Everything is required that the standard lets a verifier require: the exact type and challenge, one origin, the relying
//! party's hash, that the human was present and verified, and a signature counter that only goes up. A registration says
//! which key to believe from then on; attestation, which names the maker of a key, is neither asked for nor judged.
//!
//! Pure: it reads no clock and no file, and keeps nothing. Who owns the keys and their counters calls it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

mod authenticator_data;
mod cbor;
mod client_data;
mod public_key;
#[cfg(test)]
pub(crate) mod soft_key;
#[cfg(test)]
mod tests;

use authenticator_data::AuthenticatorData;
use cbor::Cbor;
use client_data::{CeremonyKind, ClientData};
pub use public_key::PublicKey;

/// The longest credential id, by the standard.
const MAX_CREDENTIAL_ID_BYTES: usize = 1023;
/// The algorithms that a key may use, in the order of preference, as numbers of the COSE registry.
pub const ALGORITHMS: [i64; 3] = [public_key::ES256, public_key::EDDSA, public_key::RS256];

/// Bytes that are base64url without padding in JSON.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Base64Url(pub Vec<u8>);

impl fmt::Display for Base64Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(&self.0))
    }
}

impl fmt::Debug for Base64Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base64Url({self})")
    }
}

impl Serialize for Base64Url {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Base64Url {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        URL_SAFE_NO_PAD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// For whom a key signs, and from which page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    /// The host name that keys are bound to.
    pub id: String,
    pub origin: ExpectedOrigin,
}

/// The pages that may have asked for a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedOrigin {
    /// Exactly this one, for a decision that is made now.
    Exactly(String),
    /// `http` on the relying party's host or a host below it, at any port: for a decision of the past, since the page has
    /// had other hosts and ports.
    BelowRelyingParty,
}

/// What the browser returns for a new key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    pub client_data: Base64Url,
    pub attestation: Base64Url,
}

/// What the browser returns when a key has signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// The key that signed.
    pub credential: Base64Url,
    /// The exact bytes of `clientDataJSON`.
    pub client_data: Base64Url,
    pub authenticator_data: Base64Url,
    pub signature: Base64Url,
}

/// A key that was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredKey {
    pub credential: Base64Url,
    pub public_key: PublicKey,
    /// How often the key has signed; 0 for good if it does not count.
    pub counter: u32,
}

/// Why a registration or an assertion is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebauthnError {
    #[error("the client data is not the JSON that browsers write")]
    MalformedClientData,
    #[error("it was made for another purpose")]
    WrongType,
    #[error("it signs something else than what was shown")]
    WrongChallenge,
    #[error("it was made by another page")]
    WrongOrigin,
    #[error("it was made for another relying party")]
    WrongRelyingParty,
    #[error("the key was not touched")]
    NotPresent,
    #[error("the key did not verify its user by a PIN, a fingerprint or a face")]
    NotVerified,
    #[error("the authenticator data is malformed")]
    MalformedAuthenticatorData,
    #[error("the attestation is malformed")]
    MalformedAttestation,
    #[error("the public key is malformed, or of a kind that is not supported")]
    UnsupportedKey,
    #[error("another key signed it")]
    OtherCredential,
    #[error("the signature is wrong")]
    BadSignature,
    #[error("the key's counter went back, so the key may have been copied")]
    CounterWentBack,
}

impl Registration {
    /// Checks a new key that was asked for with `challenge`.
    pub fn verify(&self, party: &RelyingParty, challenge: &[u8]) -> Result<RegisteredKey, WebauthnError> {
        ClientData::parse(&self.client_data.0)?.check(CeremonyKind::Create, challenge, party)?;
        let data = attested_data(&self.attestation.0).ok_or(WebauthnError::MalformedAttestation)?;
        let data = AuthenticatorData::parse(&data)?;
        data.check(&party.id)?;
        let attested = data.attested.ok_or(WebauthnError::MalformedAuthenticatorData)?;
        if attested.credential.is_empty() || attested.credential.len() > MAX_CREDENTIAL_ID_BYTES {
            return Err(WebauthnError::MalformedAuthenticatorData);
        }
        let public_key = PublicKey::parse(attested.public_key)?;
        Ok(RegisteredKey { credential: Base64Url(attested.credential.to_vec()), public_key, counter: data.counter })
    }
}

impl Assertion {
    /// Checks that the key `credential` signed `challenge`. Returns its new counter.
    ///
    /// `counter` is the last one seen; `None` leaves it unchecked, for a decision of the past.
    pub fn verify(
        &self,
        party: &RelyingParty,
        challenge: &[u8],
        credential: &Base64Url,
        public_key: &PublicKey,
        counter: Option<u32>,
    ) -> Result<u32, WebauthnError> {
        if self.credential != *credential {
            return Err(WebauthnError::OtherCredential);
        }
        ClientData::parse(&self.client_data.0)?.check(CeremonyKind::Get, challenge, party)?;
        let data = AuthenticatorData::parse(&self.authenticator_data.0)?;
        data.check(&party.id)?;
        if data.attested.is_some() {
            return Err(WebauthnError::MalformedAuthenticatorData);
        }
        public_key.verify(&self.authenticator_data.0, &self.client_data.0, &self.signature.0)?;
        match counter {
            // Both are 0 for good if the key does not count.
            Some(last) if data.counter <= last && (last, data.counter) != (0, 0) => Err(WebauthnError::CounterWentBack),
            _ => Ok(data.counter),
        }
    }
}

/// The authenticator data of an attestation object. Its statement is not judged: it would only name the key's maker.
fn attested_data(bytes: &[u8]) -> Option<Vec<u8>> {
    let Cbor::Map(fields) = Cbor::parse(bytes)? else { return None };
    let (mut data, mut has_format, mut has_statement) = (None, false, false);
    for (name, value) in fields {
        match (name, value) {
            (Cbor::Text(name), Cbor::Bytes(bytes)) if name == "authData" => data = Some(bytes),
            (Cbor::Text(name), Cbor::Text(_)) if name == "fmt" => has_format = true,
            (Cbor::Text(name), Cbor::Map(_)) if name == "attStmt" => has_statement = true,
            _ => return None,
        }
    }
    data.filter(|_| has_format && has_statement)
}
