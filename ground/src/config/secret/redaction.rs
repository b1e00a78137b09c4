//! Finds the known secrets in a text or in a file, also where something encoded them or wrapped them in lines.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde_json::Value;

use crate::base::credential::HIDDEN;

mod encodings;
mod stream;
mod unwrapped;

use encodings::Reach;
pub use stream::StreamRedaction;
use unwrapped::Unwrapped;

/// The shortest secret that is redacted; a shorter one would match unrelated text.
const MIN_REDACTED_BYTES: usize = 6;
/// How many values of one secret that is renewed all the time stay known; the older ones have long expired.
const MAX_RENEWED: usize = 16;

/// The known secrets, and one automaton that finds all their encodings in one pass.
#[derive(Default)]
pub(super) struct KnownSecrets {
    /// Each value and what replaces it.
    known: BTreeSet<(String, String)>,
    /// The values that take each other's place, the oldest first, by what replaces them.
    renewed: BTreeMap<String, VecDeque<String>>,
    finder: Option<Arc<SecretFinder>>,
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
        self.finder = Some(Arc::new(SecretFinder::of(&self.known)));
    }

    /// Like [`Self::insert`], for a value that takes the place of earlier ones.
    pub(super) fn renew(&mut self, value: &str, replacement: &str) {
        if self.contains(value, replacement) {
            return;
        }
        let values = self.renewed.entry(replacement.to_owned()).or_default();
        values.push_back(value.to_owned());
        if values.len() > MAX_RENEWED
            && let Some(oldest) = values.pop_front()
        {
            self.known.remove(&(oldest, replacement.to_owned()));
        }
        self.insert(value, replacement);
    }

    /// Replaces each known secret in `text`.
    pub(super) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(finder) = &self.finder else { return Cow::Borrowed(text) };
        let found = finder.find(text.as_bytes(), Unwrapped::of(text.as_bytes()).as_ref());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut redacted, mut copied) = (String::with_capacity(text.len()), 0);
        for secret in found {
            redacted.push_str(&text[copied..secret.place.start]);
            redacted.push_str(secret.replacement);
            copied = secret.place.end;
        }
        redacted.push_str(&text[copied..]);
        Cow::Owned(redacted)
    }

    /// Adds the secrets that are known now to those that `stream` replaces.
    pub(super) fn extend_stream(&self, stream: &mut StreamRedaction) {
        if let Some(finder) = &self.finder {
            stream.add(Arc::clone(finder));
        }
    }
}

/// Finds the encodings of some secrets.
struct SecretFinder {
    automaton: AhoCorasick,
    /// What replaces each pattern of the automaton, and how far beyond it.
    replacements: Vec<(String, Reach)>,
}

/// A place that contains a secret. Places of one search do not overlap.
struct FoundSecret<'a> {
    place: Range<usize>,
    replacement: &'a str,
}

impl SecretFinder {
    fn of(known: &BTreeSet<(String, String)>) -> Self {
        let mut all: BTreeMap<String, (String, Reach)> = BTreeMap::new();
        for (value, replacement) in known {
            let whole = encodings::of(value).into_iter().map(|encoded| (encoded, Reach::default()));
            let beginning = encodings::beginning(value).map(|beginning| (beginning.text, beginning.reach));
            for (pattern, reach) in whole.chain(beginning) {
                let (_, known) = all.entry(pattern).or_insert_with(|| (replacement.clone(), reach));
                *known = reach.max(*known);
            }
        }
        let (patterns, replacements): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        // A DFA of a key of some kilobytes would take tens of megabytes.
        let mut builder = AhoCorasick::builder();
        // Something along the way may change the case, and no text has a secret in another case by chance.
        builder.ascii_case_insensitive(true);
        builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
        let automaton = builder.build(patterns).expect("secrets are far smaller than the limits of the automaton");
        Self { automaton, replacements }
    }

    /// Returns where `text` contains a secret, in order. `unwrapped` is the same text without its line breaks.
    fn find(&self, text: &[u8], unwrapped: Option<&Unwrapped>) -> Vec<FoundSecret<'_>> {
        let in_text = |text: &[u8], secret: aho_corasick::Match| {
            let (replacement, reach) = &self.replacements[secret.pattern().as_usize()];
            FoundSecret { place: secret.start()..reach.end(text, secret.end()), replacement }
        };
        let mut all: Vec<_> = self.automaton.find_iter(text).map(|secret| in_text(text, secret)).collect();
        if let Some(unwrapped) = unwrapped {
            let secrets = self.automaton.find_iter(unwrapped.text()).map(|secret| in_text(unwrapped.text(), secret));
            all.extend(secrets.map(|found| FoundSecret { place: unwrapped.original(found.place), ..found }));
            all.sort_by_key(|secret| (secret.place.start, std::cmp::Reverse(secret.place.end)));
        }
        let mut apart: Vec<FoundSecret<'_>> = Vec::with_capacity(all.len());
        for secret in all {
            match apart.last_mut() {
                Some(last) if secret.place.start < last.place.end => {
                    last.place.end = last.place.end.max(secret.place.end);
                }
                _ => apart.push(secret),
            }
        }
        apart
    }

    /// The length of the longest encoding.
    fn max_bytes(&self) -> usize {
        self.automaton.max_pattern_len()
    }
}

/// The texts of one task's hidden inputs.
#[derive(Default)]
pub struct HiddenTexts {
    exact: Vec<String>,
    known: KnownSecrets,
}

/// Shows none of the texts.
impl fmt::Debug for HiddenTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HiddenTexts").finish_non_exhaustive()
    }
}

impl HiddenTexts {
    pub fn new(texts: Vec<String>) -> Self {
        let mut known = KnownSecrets::default();
        for text in &texts {
            known.insert(text, HIDDEN);
        }
        Self { exact: texts, known }
    }

    /// Hides them in every string of `value`: a short one only where it is the whole string.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                if fields.keys().any(|key| matches!(self.known.redact(key), Cow::Owned(_))) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(key, value)| (self.known.redact(&key).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|field| self.redact_value(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub fn redact(&self, text: &mut String) {
        if !text.is_empty() && self.exact.contains(text) {
            HIDDEN.clone_into(text);
        } else if let Cow::Owned(redacted) = self.known.redact(text) {
            *text = redacted;
        }
    }

    /// Hides them in the file that `stream` writes, except the short ones.
    pub fn extend_stream(&self, stream: &mut StreamRedaction) {
        self.known.extend_stream(stream);
    }
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
        let bytes = |form: &str, separator: &str| {
            let digits = SECRET.bytes().map(|byte| match form {
                "{:02X}" => format!("{byte:02X}"),
                "\\x{:02x}" => format!("\\x{byte:02x}"),
                _ => format!("{byte:02x}"),
            });
            digits.collect::<Vec<_>>().join(separator)
        };
        let numbers =
            |form: &dyn Fn(u32) -> String| SECRET.chars().map(|character| form(character.into())).collect::<String>();
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
            ("HTML", "s3cr3t/tok&quot;en é+&amp;&gt;?".to_owned()),
            ("HTML of a text", "s3cr3t/tok\"en é+&amp;&gt;?".to_owned()),
            ("HTML of Go", "s3cr3t/tok&#34;en é+&amp;&gt;?".to_owned()),
            ("HTML of Go's templates", "s3cr3t/tok&#34;en é&#43;&amp;&gt;?".to_owned()),
            ("HTML of minijinja", "s3cr3t&#x2f;tok&quot;en é+&amp;&gt;?".to_owned()),
            ("HTML of OWASP", "s3cr3t&#x2F;tok&quot;en é+&amp;&gt;?".to_owned()),
            ("XML in ASCII", "s3cr3t/tok&quot;en &#233;+&amp;&gt;?".to_owned()),
            ("HTML in numbers", numbers(&|character| format!("&#{character};"))),
            ("in hex numbers", numbers(&|character| format!("&#x{character:x};"))),
            ("in upper hex", numbers(&|character| format!("&#x{character:X};"))),
            ("a hex dump", bytes("{:02x}", " ")),
            ("an upper hex dump", bytes("{:02X}", " ")),
            ("a fingerprint", bytes("{:02x}", ":")),
            ("an upper fingerprint", bytes("{:02X}", ":")),
            ("escaped bytes", bytes("\\x{:02x}", "")),
            ("a path of Python", "s3cr3t/tok%22en%20%C3%A9%2B%26%3E%3F".to_owned()),
            ("JSON of Go", r#"s3cr3t/tok\"en é+\u0026\u003e?"#.to_owned()),
            ("JSON of .NET", r"s3cr3t/tok\u0022en \u00E9\u002B\u0026\u003E?".to_owned()),
            ("JSON in numbers", numbers(&|character| format!("\\u{character:04x}"))),
            ("HTML in hex of what is not ASCII", "s3cr3t/tok&quot;en &#xE9;+&amp;&gt;?".to_owned()),
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
    fn a_secret_in_another_case_and_the_beginning_of_one_are_redacted() {
        const WORD: &str = "s3cr3t/token-of+1:many=parts";
        let mut known = known();
        known.insert(WORD, "[secret:t]");
        let cut = |text: &str| text.chars().take(18).collect::<String>();
        for form in [SECRET.to_owned(), WORD.to_owned(), cut(WORD)] {
            let swapped = |character: char| {
                if character.is_lowercase() { character.to_ascii_uppercase() } else { character.to_ascii_lowercase() }
            };
            for text in [form.clone(), form.to_uppercase(), form.to_lowercase(), form.chars().map(swapped).collect()] {
                for around in ["", "*****", "..."] {
                    let said = format!("Incorrect API key provided: {text}{around}");
                    let redacted = known.redact(&said);
                    assert_eq!(redacted, format!("Incorrect API key provided: [secret:t]{around}"), "{said}");
                }
            }
        }
        let mut stream = StreamRedaction::default();
        known.extend_stream(&mut stream);
        let written = [stream.push(cut(&SECRET.to_uppercase()).as_bytes()), stream.finish()].concat();
        assert_eq!(written, b"[secret:t]");
        // The header of one token begins many others, and a short beginning may stand for anything.
        let mut known = KnownSecrets::default();
        known.insert("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLW9mLWl0", "[secret:j]");
        for text in ["eyJhbGciOiJIUzI1NiJ9.x", "eyJh"] {
            assert_eq!(known.redact(text), text);
        }
    }

    /// One who knows the beginning learns nothing of the rest from what is hidden.
    #[test]
    fn what_follows_a_beginning_is_hidden_whatever_it_is() {
        for secret in ["ann@example.org:q8ZkT2vXw9LrPd4N", SECRET, "AKIAIOSFODNN7EXAMPLE", "one two three four"] {
            let mut known = KnownSecrets::default();
            known.insert(secret, "[secret:t]");
            let characters: Vec<char> = secret.chars().collect();
            for known_chars in 6..characters.len() {
                let beginning: String = characters[..known_chars].iter().collect();
                let next = characters[known_chars].to_ascii_lowercase();
                let tail = |guess: char| known.redact(&format!("{beginning}{guess}##")).into_owned();
                let is_right = |guess: char| guess.eq_ignore_ascii_case(&next);
                let guesses = (' '..='~').filter(|guess| guess.is_ascii_alphanumeric() || "+/=:-_@".contains(*guess));
                let (right, wrong): (Vec<_>, Vec<_>) = guesses.partition(|guess| is_right(*guess));
                // The guess that makes the beginning long enough tells its last character, and no other does.
                let is_last =
                    beginning.len() + 1 == secret.len().div_ceil(2).max(12) || known_chars + 1 == characters.len();
                let shape = |guess: &char| {
                    let shown = tail(*guess);
                    shown.strip_prefix("[secret:t]").map(|rest| rest.replace(*guess, "?"))
                };
                let shown = |guesses: &[char]| guesses.iter().map(shape).collect::<BTreeSet<_>>();
                let (right, wrong) = (shown(&right), shown(&wrong));
                assert!(is_last || right.is_empty() || right == wrong, "{secret}: {known_chars}: {right:?}, {wrong:?}");
            }
            // And of an excerpt nothing is left.
            let half = secret.len().div_ceil(2).max(12);
            for end in (half..secret.len()).filter(|end| secret.is_char_boundary(*end)) {
                let said = known.redact(&secret[..end]).into_owned();
                assert_eq!(said, "[secret:t]", "{secret}: {end}");
            }
        }
    }

    #[test]
    fn a_secret_that_is_wrapped_in_lines_is_redacted() {
        let known = known();
        for (before, after) in (0..90).step_by(4).flat_map(|before| [(before, 0), (before, 60)]) {
            let text = format!("{}{SECRET}{}", "a".repeat(before), "b".repeat(after));
            for (engine, width) in [(&STANDARD, 64), (&URL_SAFE, 64), (&STANDARD, 76), (&STANDARD, 8)] {
                for line_break in ["\n", "\r\n", "\\n", "\\r\\n", "\n    "] {
                    let encoded = engine.encode(&text);
                    let lines: Vec<_> =
                        encoded.as_bytes().chunks(width).map(|line| str::from_utf8(line).expect("ASCII")).collect();
                    let wrapped = format!("key: {}.", lines.join(line_break));
                    let redacted = known.redact(&wrapped);
                    assert_eq!(redacted.matches("[secret:t]").count(), 1, "{wrapped:?}: {redacted:?}");
                    let rest: String = redacted.replace("[secret:t]", "").split(line_break).collect();
                    assert!(rest.len() <= 6 + encoded.len() - (SECRET.len() * 8 / 6 - 2), "{wrapped:?}: {redacted:?}");
                }
            }
        }
        for text in ["two\nlines of s3cr3t/tok\n", "C:\\new\\r\\n"] {
            assert!(matches!(known.redact(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn of_values_that_are_renewed_the_last_ones_stay_known() {
        let mut known = known();
        let token = |number: usize| format!("token-{number:04}");
        (0..=MAX_RENEWED).for_each(|number| known.renew(&token(number), "[secret:r]"));
        assert_eq!(known.redact(&token(0)), token(0));
        for number in 1..=MAX_RENEWED {
            assert_eq!(known.redact(&token(number)), "[secret:r]");
        }
        assert_eq!(known.redact(SECRET), "[secret:t]", "others are not counted");
    }

    #[test]
    fn short_values_and_other_text_are_left_alone() {
        let known = known();
        for text in ["a short text", "s3cr3t", "c2hvcnQ=", ""] {
            assert!(matches!(known.redact(text), Cow::Borrowed(same) if same == text));
        }
    }
}
