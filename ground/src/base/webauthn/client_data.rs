//! `clientDataJSON`: what the browser says about a ceremony, which the key signs.

use serde_json::Value;

use super::{Base64Url, ExpectedOrigin, RelyingParty, WebauthnError};

/// What the browser was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CeremonyKind {
    Create,
    Get,
}

/// The parts of the client data that are checked. Browsers may add others.
#[derive(Debug)]
pub(super) struct ClientData {
    kind: String,
    challenge: String,
    origin: String,
    /// Whether the page was embedded in one of another origin.
    is_embedded: bool,
}

impl ClientData {
    /// A key that stands twice is refused, since two readers could see two values.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, WebauthnError> {
        let Ok(Value::Object(mut fields)) = protocol::json::parse(bytes) else {
            return Err(WebauthnError::MalformedClientData);
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(WebauthnError::MalformedClientData),
        };
        let (kind, challenge, origin) = (text("type")?, text("challenge")?, text("origin")?);
        let is_embedded = match fields.get("crossOrigin") {
            None => false,
            Some(Value::Bool(is_embedded)) => *is_embedded,
            Some(_) => return Err(WebauthnError::MalformedClientData),
        };
        Ok(Self { kind, challenge, origin, is_embedded: is_embedded || fields.contains_key("topOrigin") })
    }

    pub(super) fn check(
        &self,
        ceremony: CeremonyKind,
        challenge: &[u8],
        party: &RelyingParty,
    ) -> Result<(), WebauthnError> {
        let kind = match ceremony {
            CeremonyKind::Create => "webauthn.create",
            CeremonyKind::Get => "webauthn.get",
        };
        if self.kind != kind {
            return Err(WebauthnError::WrongType);
        }
        if self.challenge != Base64Url(challenge.to_vec()).to_string() {
            return Err(WebauthnError::WrongChallenge);
        }
        let is_ours = match &party.origin {
            ExpectedOrigin::Exactly(origin) => self.origin == *origin,
            ExpectedOrigin::BelowRelyingParty => is_below(&self.origin, &party.id),
        };
        if self.is_embedded || !is_ours { Err(WebauthnError::WrongOrigin) } else { Ok(()) }
    }
}

/// Whether `origin` is an `http` origin whose host is `domain` or below it.
fn is_below(origin: &str, domain: &str) -> bool {
    let Some(rest) = origin.strip_prefix("http://") else { return false };
    let (host, port) = rest.split_once(':').unwrap_or((rest, "80"));
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let is_domain = host == domain || host.strip_suffix(domain).is_some_and(|above| above.ends_with('.'));
    is_domain && host.split('.').all(is_label) && port.parse::<u16>().is_ok() && !port.starts_with(['0', '+'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_of_the_past_lies_below_the_relying_party() {
        for (origin, expected) in [
            ("http://amt-1.localhost:4711", true),
            ("http://x.amt-1.localhost:4711", true),
            ("http://a.b.amt-1.localhost", true),
            ("https://amt-1.localhost:4711", false),
            ("http://evil-amt-1.localhost:4711", false),
            ("http://amt-1.localhost.evil.org:4711", false),
            ("http://localhost:4711", false),
            ("http://amt-1.localhost:4711/path", false),
            ("http://user@amt-1.localhost:4711", false),
            ("http://.amt-1.localhost:4711", false),
            ("http://amt-1.localhost:0", false),
        ] {
            assert_eq!(is_below(origin, "amt-1.localhost"), expected, "{origin}");
        }
    }
}
