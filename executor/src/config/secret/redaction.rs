//! Finds the known secrets in a text, also where something encoded them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::base::credential::HIDDEN;

/// The shortest secret that is redacted; a shorter one would match unrelated text.
const MIN_REDACTED_BYTES: usize = 6;

/// What JavaScript's `encodeURIComponent` keeps.
const COMPONENT: &AsciiSet = &UNRESERVED.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');

/// What RFC 3986 keeps.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The known secrets, and one automaton that finds all their encodings in one pass.
#[derive(Default)]
pub(super) struct KnownSecrets {
    /// Each value and what replaces it.
    known: BTreeSet<(String, String)>,
    /// What replaces each pattern of the automaton.
    replacements: Vec<String>,
    automaton: Option<AhoCorasick>,
}

impl KnownSecrets {
    pub(super) fn contains(&self, value: &str, replacement: &str) -> bool {
        value.len() < MIN_REDACTED_BYTES || self.known.contains(&(value.to_owned(), replacement.to_owned()))
    }

    pub(super) fn insert(&mut self, value: &str, replacement: &str) {
        if self.contains(value, replacement) {
            return;
        }
        self.known.insert((value.to_owned(), replacement.to_owned()));
        let patterns = self.known.iter().flat_map(|(value, replacement)| {
            encodings(value).into_iter().map(move |encoded| (encoded, replacement.clone()))
        });
        let (patterns, replacements): (Vec<_>, Vec<_>) = patterns.unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
        self.automaton = Some(automaton.expect("secrets are far smaller than the limits of the automaton"));
        self.replacements = replacements;
    }

    /// Replaces each known secret in `text`.
    pub(super) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.automaton {
            Some(automaton) if automaton.is_match(text) => Cow::Owned(automaton.replace_all(text, &self.replacements)),
            _ => Cow::Borrowed(text),
        }
    }
}

/// The texts of one task's hidden inputs.
pub(crate) struct HiddenTexts {
    exact: Vec<String>,
    known: KnownSecrets,
}

impl HiddenTexts {
    pub(crate) fn new(texts: Vec<String>) -> Self {
        let mut known = KnownSecrets::default();
        for text in &texts {
            known.insert(text, HIDDEN);
        }
        Self { exact: texts, known }
    }

    /// Hides them in every string of `value`: a short one only where it is the whole string.
    pub(crate) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.redact_value(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub(crate) fn redact(&self, text: &mut String) {
        if !text.is_empty() && self.exact.contains(text) {
            HIDDEN.clone_into(text);
        } else if let Cow::Owned(redacted) = self.known.redact(text) {
            *text = redacted;
        }
    }
}

/// The forms in which a secret can appear in a text, without duplicates; the first is the secret itself.
fn encodings(secret: &str) -> BTreeSet<String> {
    let json = |text: String| text[1..text.len() - 1].to_owned();
    let escaped = json(Value::from(secret).to_string());
    let ascii = escaped.chars().fold(String::new(), |mut ascii, character| {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            let mut units = [0; 2];
            ascii.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
        ascii
    });
    let hex = protocol::digest::hex(secret.as_bytes());
    let mut forms =
        BTreeSet::from([secret.to_owned(), escaped.replace('/', "\\/"), escaped, ascii, hex.to_uppercase(), hex]);
    for set in [NON_ALPHANUMERIC, UNRESERVED, COMPONENT] {
        let percent = utf8_percent_encode(secret, set).to_string();
        forms.extend([percent.replace("%20", "+"), lower_percent(&percent), percent]);
    }
    forms.insert(url::form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    for offset in 0..3 {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            forms.insert(base64_core(secret.as_bytes(), offset, engine));
        }
    }
    forms.retain(|form| form.len() >= MIN_REDACTED_BYTES);
    forms
}

/// The characters of base64 that depend on nothing but `secret`, which starts `offset` bytes after a group of three:
/// in `Basic`, a user's name comes before it.
fn base64_core(secret: &[u8], offset: usize, engine: &impl base64::Engine) -> String {
    let bytes = [&vec![0; offset][..], secret].concat();
    let encoded = engine.encode(&bytes);
    let (start, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    encoded[start..end].to_owned()
}

/// Writes the digits of percent-encoding in lower case.
fn lower_percent(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |lower, part| {
        let (digits, rest) = part.split_at(2.min(part.len()));
        lower + "%" + &digits.to_lowercase() + rest
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const SECRET: &str = "s3cr3t/tok\"en é+&>?";

    fn known() -> KnownSecrets {
        let mut known = KnownSecrets::default();
        known.insert(SECRET, "[secret:t]");
        known.insert("short", "[secret:s]");
        known
    }

    #[test]
    fn every_encoding_of_a_secret_is_redacted() {
        let known = known();
        let hex = protocol::digest::hex(SECRET.as_bytes());
        for (form, text) in [
            ("plain", SECRET.to_owned()),
            ("JSON", serde_json::json!({ "x": SECRET }).to_string()),
            ("JSON in ASCII", r#"s3cr3t/tok\"en \u00e9+&>?"#.to_owned()),
            ("JSON of PHP", r#"s3cr3t\/tok\"en é+&>?"#.to_owned()),
            ("hex", hex.clone()),
            ("upper hex", hex.to_uppercase()),
            ("a path", "s3cr3t%2Ftok%22en%20%C3%A9%2B%26%3E%3F".to_owned()),
            ("lower case", "s3cr3t%2ftok%22en%20%c3%a9%2b%26%3e%3f".to_owned()),
            ("a form", "s3cr3t%2Ftok%22en+%C3%A9%2B%26%3E%3F".to_owned()),
        ] {
            let redacted = known.redact(&text).into_owned();
            assert!(redacted.contains("[secret:t]") && !redacted.contains("s3cr3t"), "{form}: {redacted}");
        }
        for user in ["", "a", "ab", "abc", "a long name"] {
            for (engine, name) in [(&STANDARD, "standard"), (&URL_SAFE, "URL-safe")] {
                let text = engine.encode(format!("{user}:{SECRET}:more"));
                let redacted = known.redact(&text).into_owned();
                assert!(redacted.contains("[secret:t]"), "{name}, {user}: {text}");
                // A character that the secret shares with its neighbors may remain at each end.
                let rest = redacted.replace("[secret:t]", "");
                assert!(text.len() - rest.len() >= SECRET.len() * 8 / 6 - 2, "{name}, {user}: {redacted}");
            }
        }
    }

    #[test]
    fn short_values_and_other_text_are_left_alone() {
        let known = known();
        for text in ["a short text", "s3cr3t", "c2hvcnQ=", ""] {
            assert!(matches!(known.redact(text), Cow::Borrowed(same) if same == text));
        }
    }
}
