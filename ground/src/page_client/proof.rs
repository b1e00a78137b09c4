//! Proofs: the browser and the executor show each other that they know a session's key, and neither sends it.
//!
//! Before each request the browser asks for a challenge: it sends a random nonce, and the executor answers with a nonce
//! of its own and with the HMAC of both. Only then the browser sends the request, with the HMAC of its method, target and
//! body and of the executor's nonce, which counts once. So another program at the page's address gets neither the
//! key nor a request, and a request that was overheard cannot be sent again, nor with another body.
//!
//! The HMAC is that of RFC 2104 with SHA-256. `web/page/session.js` is the browser's end.

use hmac::{Hmac, KeyInit as _, Mac as _};
use protocol::digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What each end authenticates, so that a proof of one does not count for the other.
const EXECUTOR: &str = "agent-magic-tool/page/1 executor";
const REQUEST: &str = "agent-magic-tool/page/1 request";

/// The header with the proof of a request.
pub const PROOF: &str = "x-page-proof";

/// The key of a session. Only a browser that signed in and the executor know it.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

/// The executor's answer to a challenge.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChallengeAnswer {
    /// What the next request is bound to.
    pub nonce: String,
    proof: String,
}

/// What a proof covers.
#[derive(Debug, Clone, Copy)]
pub struct ProvenRequest<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub body: &'a [u8],
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

impl SessionKey {
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has a source of randomness");
        Self(bytes)
    }

    /// Reads a key as the page sends it at the login.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The key as the page gets it at the login.
    pub fn to_hex(&self) -> String {
        digest::hex(&self.0)
    }

    /// The executor's answer to the browser's nonce `theirs`.
    pub fn answer(&self, theirs: &str, ours: String) -> ChallengeAnswer {
        ChallengeAnswer { proof: hex(self.mac(&[EXECUTOR, theirs, &ours])), nonce: ours }
    }

    /// Whether the executor that has this key gave `answer` to the nonce `ours`.
    pub fn is_executor(&self, ours: &str, answer: &ChallengeAnswer) -> bool {
        hex(self.mac(&[EXECUTOR, ours, &answer.nonce])) == answer.proof
    }

    /// The value of the header that proves a request.
    pub fn prove(&self, request: ProvenRequest<'_>, answer: &ChallengeAnswer) -> String {
        format!("{}.{}", answer.nonce, hex(self.request_mac(request, &answer.nonce)))
    }

    /// Whether `proof` (hexadecimal) proves `request` with `nonce`; takes the same time for each wrong proof.
    pub fn is_proven(&self, request: ProvenRequest<'_>, nonce: &str, proof: &str) -> bool {
        let Some(Self(proof)) = Self::from_hex(proof) else { return false };
        self.request_mac(request, nonce).verify_slice(&proof).is_ok()
    }

    fn request_mac(&self, request: ProvenRequest<'_>, nonce: &str) -> Hmac<Sha256> {
        let body = digest::hex(&Sha256::digest(request.body));
        self.mac(&[REQUEST, request.method, request.target, nonce, &body])
    }

    /// None of the parts contains a line break, so different parts never give the same text.
    fn mac(&self, parts: &[&str]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.chain_update(parts.join("\n"))
    }
}

fn hex(mac: Hmac<Sha256>) -> String {
    digest::hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: ProvenRequest<'static> = ProvenRequest { method: "POST", target: "/decide", body: b"{}" };

    #[test]
    fn a_proof_is_valid_for_one_key_nonce_method_target_and_body() {
        let (key, other) = (SessionKey::random(), SessionKey::random());
        let answer = key.answer("theirs", "ours".to_owned());
        assert!(key.is_executor("theirs", &answer) && !key.is_executor("x", &answer));
        assert!(!other.is_executor("theirs", &answer));
        let proof = key.prove(REQUEST, &answer);
        let (nonce, proof) = proof.split_once('.').expect("two parts");
        assert!(key.is_proven(REQUEST, nonce, proof));
        assert!(!other.is_proven(REQUEST, nonce, proof) && !key.is_proven(REQUEST, "x", proof));
        for changed in [
            ProvenRequest { method: "GET", ..REQUEST },
            ProvenRequest { target: "/answer", ..REQUEST },
            ProvenRequest { body: b"[]", ..REQUEST },
        ] {
            assert!(!key.is_proven(changed, nonce, proof), "{changed:?}");
        }
        assert!(!key.is_proven(REQUEST, nonce, &answer.proof), "the executor's own proof proves no request");
        assert!(!key.is_proven(REQUEST, nonce, "") && !key.is_proven(REQUEST, nonce, &"0".repeat(64)));
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = SessionKey::random();
        assert_eq!(SessionKey::from_hex(&key.to_hex()).map(|key| key.0), Some(key.0));
        assert!(SessionKey::from_hex("").is_none() && SessionKey::from_hex(&"é".repeat(32)).is_none());
        assert_eq!(format!("{key:?}"), "SessionKey(..)");
    }
}
