//! Masks what looks like a credential in the text of an error: a message, a program's stderr, an API's response.
//!
//! For text that the caller did not ask for. A successful result is data, and only our own secrets are removed from
//! it (`config/secret.rs`). Each pattern ends where its match ends, so the time is linear in the text. A pattern with
//! a key, like `password=`, also looks at the value, because "password: is required" must stay readable.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::error::ErrorBody;
use regex::{Captures, Regex};
use serde_json::Value;

/// What stands in place of a credential, and of an input that must not be shown.
pub const HIDDEN: &str = "[hidden]";

/// The key that a credential stands under, at the end of a longer name such as `DB_PASSWORD`.
const KEY: &str = r"(?i-u:(?P<strong>password|passwd|passphrase|pwd|secret|authorization|(?:secret|api|access|private|account|shared|auth|signing|encryption)[_-]?key)|token|credentials?)";

/// The credentials that services issue, by their fixed beginnings.
const SHAPES: [&str; 15] = [
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[a-z]-[A-Za-z0-9-]{8,}",
    r"xapp-[A-Za-z0-9-]{8,}",
    r"[sr]k[_-](?:[A-Za-z0-9]+[_-])*[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"ya29\.[A-Za-z0-9_.-]{20,}",
    r"GOCSPX-[A-Za-z0-9_-]{16,}",
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*",
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-[A-Za-z0-9_-]{30,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
];

static CREDENTIAL: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = SHAPES.join("|");
    let patterns = [
        // A private key block, also one that was cut off.
        r#"(?P<block>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[^-"]|-[^-"])*(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?)"#.to_owned(),
        format!(r"(?-u:\b)(?P<shape>{shapes})"),
        r"hooks\.slack\.com/services/(?P<hook>[A-Za-z0-9/]+)".to_owned(),
        // `scheme://user:password@host`, and a token in place of the user.
        r#"[A-Za-z][A-Za-z0-9+.-]*://(?:[^\s/?\#@:"'<>\\]*:(?P<login>[^\s/?\#"'<>\\]+)|(?P<user>[A-Za-z0-9_-]{20,}))@"#
            .to_owned(),
        r"[?&](?i-u:x-amz-signature|x-amz-security-token|sig|signature|code|key|auth)=(?P<query>[^\s&#\x22'<>\\]+)".to_owned(),
        r#"(?i-u:authorization)\\*["']?[ \t]*[:=][ \t]*\\*["']?(?:[A-Za-z]+[ \t]+)?(?P<header>[^\s"',;\\]+)"#.to_owned(),
        r"(?i-u:\b(?:bearer|basic))[ \t]+(?P<scheme>[A-Za-z0-9._~+/=-]{8,})".to_owned(),
        r#"(?i-u:cookie)\\*["']?[ \t]*:[ \t]*\\*["']?(?P<cookie>[^\s=;,&"'\\]+=[^\r\n"\\]*)"#.to_owned(),
        // `"key": "value"`, also escaped within another text.
        format!(
            r#"{KEY}(?P<separator>\\*["']?[ \t]*(?:=>|[:=])[ \t]*)(?:\\+["'](?P<escaped>[^"'\\]+)|"(?P<quoted>(?:[^"\\]|\\.)+)|'(?P<single>[^'\n]+)|(?P<bare>[^\s"'&;\\]+))"#
        ),
    ];
    Regex::new(&patterns.join("|")).expect("the patterns are valid")
});

static KEY_NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(&format!("{KEY}$")).expect("the pattern is valid"));

static KEY_END: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----").expect("the pattern is valid"));

/// Replaces what looks like a credential in `text` with [`HIDDEN`].
pub fn mask(text: &str) -> Cow<'_, str> {
    let text = mask_key_end(text);
    let mut masked = String::new();
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = CREDENTIAL.captures_at(&text, at) {
        let (span, hidden) = (found.get(0).expect("group 0 is the match").range(), hidden_part(&found, &text));
        at = match hidden {
            Some(hidden) => {
                masked.push_str(&text[copied..hidden.start]);
                masked.push_str(HIDDEN);
                copied = hidden.end;
                span.end
            }
            // Ordinary words after a key can themselves contain a credential.
            None => value(&found).map_or(span.end, |value| value.start),
        };
    }
    if copied == 0 {
        return text;
    }
    masked.push_str(&text[copied..]);
    Cow::Owned(masked)
}

/// Masks every string in `value`, and the values whose field is named like a credential.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => replace(text),
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(fields) => {
            for (name, field) in fields {
                match (KEY_NAME.captures(name), field) {
                    (Some(key), Value::String(text))
                        if looks_secret(text, Key { strong: key.name("strong").is_some(), is_prose: false }) =>
                    {
                        HIDDEN.clone_into(text);
                    }
                    (_, field) => mask_value(field),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Masks the message, the hint and the details of `error`.
pub fn mask_error(error: &mut ErrorBody) {
    replace(&mut error.message);
    error.hint.iter_mut().for_each(replace);
    let mut details = Value::Object(std::mem::take(&mut error.details));
    mask_value(&mut details);
    let Value::Object(details) = details else { unreachable!("masking keeps an object an object") };
    error.details = details;
}

fn replace(text: &mut String) {
    if let Cow::Owned(masked) = mask(text) {
        *text = masked;
    }
}

/// Masks the rest of a private key whose beginning was cut off.
fn mask_key_end(text: &str) -> Cow<'_, str> {
    let Some(end) = KEY_END.find(text).filter(|end| !text[..end.start()].contains("-----BEGIN ")) else {
        return Cow::Borrowed(text);
    };
    let is_body = |character: char| character.is_ascii_alphanumeric() || "+/=; \t\r\n\\".contains(character);
    let start = text[..end.start()].trim_end_matches(is_body).len();
    Cow::Owned(format!("{}{HIDDEN}{}", &text[..start], &text[end.end()..]))
}

/// The value that follows a key or a scheme, if `found` has one.
fn value(found: &Captures<'_>) -> Option<Range<usize>> {
    const VALUES: [&str; 6] = ["bare", "quoted", "single", "escaped", "scheme", "header"];
    VALUES.iter().find_map(|name| found.name(name)).map(|value| value.range())
}

/// The part of a match that is hidden; `None` if it turns out to be ordinary text.
fn hidden_part(found: &Captures<'_>, text: &str) -> Option<Range<usize>> {
    const ALWAYS: [&str; 6] = ["block", "hook", "login", "user", "query", "cookie"];
    if let Some(part) = ALWAYS.iter().find_map(|name| found.name(name)) {
        return (!is_placeholder(part.as_str())).then(|| part.range());
    }
    if let Some(part) = found.name("shape").or_else(|| found.name("scheme")) {
        // Without a digit it is a word with hyphens, or "basic authentication".
        let has_digit = part.as_str().bytes().any(|byte| byte.is_ascii_digit());
        let is_login = || STANDARD.decode(part.as_str()).is_ok_and(|login| login.contains(&b':'));
        return (has_digit || is_login()).then(|| part.range());
    }
    let mut part = value(found)?;
    let (is_bare, is_header) = (found.name("bare").is_some(), found.name("header").is_some());
    if is_bare || is_header {
        part.end = part.start + text[part.clone()].trim_end_matches([')', ']', '}', '>', ',', '.', '`']).len();
    }
    let (shown, rest) = (&text[part.clone()], &text[part.end..]);
    let separator = found.name("separator").map_or("", |separator| separator.as_str());
    let is_reference = found[0].starts_with("secret:")
        && !text[..found.get(0)?.start()].ends_with(|before: char| before.is_alphanumeric() || "_-".contains(before));
    if is_reference {
        return None;
    }
    let is_secret = if separator == "=" {
        !is_ordinary(shown)
    } else {
        let is_prose = is_bare && (separator.contains(':') && starts_word(rest) || shown.contains('('));
        let strong = is_header || found.name("strong").is_some();
        looks_secret(shown, Key { strong, is_prose: is_prose || is_header && starts_word(rest) })
    };
    is_secret.then_some(part)
}

/// The name that a value stands under.
#[derive(Clone, Copy)]
struct Key {
    /// Whether the name says that the value is secret. Parsers complain about a `token` of another kind.
    strong: bool,
    /// Whether the value is part of a sentence or of a program's source.
    is_prose: bool,
}

/// Whether the value of a key with a colon is a credential rather than words about it.
fn looks_secret(value: &str, key: Key) -> bool {
    const MIN_OPAQUE_CHARS: usize = 16;
    let is_opaque = value.len() >= MIN_OPAQUE_CHARS || value.bytes().any(|byte| byte.is_ascii_digit());
    let is_sentence = value.trim().contains([' ', '\n']);
    !is_ordinary(value) && !is_sentence && (is_opaque || key.strong && !key.is_prose)
}

/// Whether `value` is a placeholder or a word that says what is wrong with a credential.
fn is_ordinary(value: &str) -> bool {
    const WORDS: [&str; 22] = [
        "",
        "blank",
        "empty",
        "expected",
        "expired",
        "false",
        "incorrect",
        "invalid",
        "is",
        "missing",
        "mismatch",
        "must",
        "none",
        "not",
        "null",
        "required",
        "string",
        "true",
        "undefined",
        "unexpected",
        "unknown",
        "wrong",
    ];
    WORDS.iter().any(|word| value.eq_ignore_ascii_case(word)) || is_placeholder(value)
}

/// Whether `value` stands for a value that is already hidden, or that is filled in elsewhere.
fn is_placeholder(value: &str) -> bool {
    const MAX_BYTES: usize = 200;
    let is_only = |character: char| value.chars().all(|other| other == character);
    if value.len() > MAX_BYTES {
        return false;
    }
    value.starts_with("[hidden")
        || value.starts_with("[secret:")
        || value.starts_with("secret:")
        || value.starts_with("{{")
        || value.starts_with("${")
        || value.starts_with('<')
        || matches!(value, "KEY" | "API_KEY" | "TOKEN")
        || is_only('*')
        || is_only('x')
        || is_only('…')
}

/// Whether `rest` goes on with a space and a word, as a sentence does.
fn starts_word(rest: &str) -> bool {
    rest.strip_prefix(' ').is_some_and(|rest| rest.starts_with(|next: char| next.is_alphabetic()))
}

#[cfg(test)]
mod tests;
