//! The public key of a credential, in COSE form (RFC 9053, RFC 8812): ES256, `EdDSA` and RS256.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cbor::Cbor;
use super::{Base64Url, WebauthnError};

pub(super) const ES256: i64 = -7;
pub(super) const EDDSA: i64 = -8;
pub(super) const RS256: i64 = -257;

/// The labels of COSE keys.
const KEY_TYPE: i64 = 1;
const ALGORITHM: i64 = 3;
const CURVE: i64 = -1;
const X: i64 = -2;
const Y: i64 = -3;

/// A public key, as its COSE bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Base64Url", into = "Base64Url")]
pub struct PublicKey {
    cose: Vec<u8>,
    key: CoseKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum CoseKey {
    /// A point of P-256, not compressed.
    Es256(Vec<u8>),
    Ed25519(Vec<u8>),
    Rs256 {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl PublicKey {
    /// Parses a COSE key. Exactly the fields of its kind must be there.
    pub fn parse(cose: &[u8]) -> Result<Self, WebauthnError> {
        let key = parse(cose).ok_or(WebauthnError::UnsupportedKey)?;
        Ok(Self { cose: cose.to_vec(), key })
    }

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self.key {
            CoseKey::Es256(_) => "ES256",
            CoseKey::Ed25519(_) => "EdDSA",
            CoseKey::Rs256 { .. } => "RS256",
        }
    }

    /// The COSE bytes.
    pub fn cose(&self) -> &[u8] {
        &self.cose
    }

    /// Verifies a signature over the authenticator data and the hash of the client data.
    pub(super) fn verify(
        &self,
        authenticator_data: &[u8],
        client_data: &[u8],
        signature: &[u8],
    ) -> Result<(), WebauthnError> {
        let signed = [authenticator_data, &Sha256::digest(client_data)].concat();
        let verified = match &self.key {
            CoseKey::Es256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(&signed, signature),
            CoseKey::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point).verify(&signed, signature),
            CoseKey::Rs256 { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                &signed,
                signature,
            ),
        };
        verified.map_err(|_| WebauthnError::BadSignature)
    }
}

impl TryFrom<Base64Url> for PublicKey {
    type Error = WebauthnError;

    fn try_from(cose: Base64Url) -> Result<Self, WebauthnError> {
        Self::parse(&cose.0)
    }
}

impl From<PublicKey> for Base64Url {
    fn from(key: PublicKey) -> Self {
        Self(key.cose)
    }
}

fn parse(cose: &[u8]) -> Option<CoseKey> {
    let Cbor::Map(fields) = Cbor::parse(cose)? else { return None };
    let field = |label: i64| fields.iter().find(|(key, _)| *key == Cbor::Integer(label)).map(|(_, value)| value);
    let integer = |label: i64| match field(label)? {
        Cbor::Integer(number) => Some(*number),
        _ => None,
    };
    let bytes = |label: i64| match field(label)? {
        Cbor::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    };
    let point = |label: i64| bytes(label).filter(|bytes| bytes.len() == 32);
    // Key type 2 is a curve with two coordinates and curve 1 is P-256; type 1 has one coordinate and curve 6 is Ed25519;
    // type 3 is RSA.
    match (integer(KEY_TYPE)?, integer(ALGORITHM)?, fields.len()) {
        (2, ES256, 5) if integer(CURVE)? == 1 => Some(CoseKey::Es256([&[4], &*point(X)?, &*point(Y)?].concat())),
        (1, EDDSA, 4) if integer(CURVE)? == 6 => Some(CoseKey::Ed25519(point(X)?)),
        (3, RS256, 4) => {
            // For RSA the labels of the curve and of the first coordinate mean the modulus and the exponent.
            let (modulus, exponent) = (bytes(CURVE)?, bytes(X)?);
            let is_number = |bytes: &[u8]| bytes.first().is_some_and(|first| *first != 0);
            (is_number(&modulus) && is_number(&exponent)).then_some(CoseKey::Rs256 { modulus, exponent })
        }
        _ => None,
    }
}
