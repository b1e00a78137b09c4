//! Authenticator data: what a key says about itself and its user, which it signs.

use sha2::{Digest as _, Sha256};

use super::WebauthnError;
use super::cbor::Cbor;

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const HAS_ATTESTED_CREDENTIAL: u8 = 1 << 6;
const HAS_EXTENSIONS: u8 = 1 << 7;
/// Bits that have no meaning yet: a key that sets them speaks something else.
const RESERVED: u8 = 1 << 1 | 1 << 5;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct AuthenticatorData<'a> {
    relying_party_hash: &'a [u8],
    flags: u8,
    pub(super) counter: u32,
    /// Only of a new key.
    pub(super) attested: Option<AttestedCredential<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct AttestedCredential<'a> {
    pub(super) credential: &'a [u8],
    /// The public key in COSE form.
    pub(super) public_key: &'a [u8],
}

impl<'a> AuthenticatorData<'a> {
    /// Parses the data; nothing may be missing and nothing may follow.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, WebauthnError> {
        Self::read(bytes).ok_or(WebauthnError::MalformedAuthenticatorData)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (relying_party_hash, rest) = bytes.split_at_checked(32)?;
        let ([flags], rest) = rest.split_first_chunk()?;
        let (counter, mut rest) = rest.split_first_chunk()?;
        let has = |flag: u8| flags & flag != 0;
        if has(RESERVED) || has(BACKED_UP) && !has(BACKUP_ELIGIBLE) {
            return None;
        }
        let mut attested = None;
        if has(HAS_ATTESTED_CREDENTIAL) {
            // The first 16 bytes name the model of the key.
            let (_, after) = rest.split_at_checked(16)?;
            let (length, after) = after.split_first_chunk()?;
            let (credential, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            let (_, end) = Cbor::parse_first(after)?;
            let public_key = &after[..after.len() - end.len()];
            attested = Some(AttestedCredential { credential, public_key });
            rest = end;
        }
        if has(HAS_EXTENSIONS) {
            let (Cbor::Map(_), end) = Cbor::parse_first(rest)? else { return None };
            rest = end;
        }
        let counter = u32::from_be_bytes(*counter);
        rest.is_empty().then_some(Self { relying_party_hash, flags: *flags, counter, attested })
    }

    /// Requires this relying party, and a user who was present and verified.
    pub(super) fn check(&self, relying_party: &str) -> Result<(), WebauthnError> {
        if self.relying_party_hash != Sha256::digest(relying_party.as_bytes()).as_slice() {
            return Err(WebauthnError::WrongRelyingParty);
        }
        if self.flags & USER_PRESENT == 0 {
            return Err(WebauthnError::NotPresent);
        }
        if self.flags & USER_VERIFIED == 0 { Err(WebauthnError::NotVerified) } else { Ok(()) }
    }
}
