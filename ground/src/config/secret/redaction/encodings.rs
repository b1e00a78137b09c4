//! The forms in which a secret can appear: plain, or as something along the way writes it.

use std::collections::BTreeSet;

use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::MIN_REDACTED_BYTES;

/// What JavaScript's `encodeURIComponent` keeps.
const COMPONENT: &AsciiSet = &UNRESERVED.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');

/// What RFC 3986 keeps.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What Python's `quote` keeps.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// What libraries write as `\u0026` in JSON although they need not: Go, PHP with its options for HTML, .NET.
const JSON_ESCAPES: [&str; 3] = ["&<>", "&<>'\"", "&<>'\"+`"];

/// How common libraries escape HTML, beside `&amp;`, `&lt;` and `&gt;`. What a row does not name stays as it is.
const HTML_ESCAPES: [&[(char, &str)]; 10] = [
    // Text between tags.
    &[],
    // PHP, by default of earlier versions.
    &[('"', "&quot;")],
    &[('"', "&quot;"), ('\'', "&#39;")],
    &[('"', "&quot;"), ('\'', "&#039;")],
    &[('"', "&quot;"), ('\'', "&#x27;")],
    // XML.
    &[('"', "&quot;"), ('\'', "&apos;")],
    // Go, and its templates.
    &[('"', "&#34;"), ('\'', "&#39;")],
    &[('"', "&#34;"), ('\'', "&#39;"), ('+', "&#43;")],
    // Jinja in Rust, then OWASP and JavaScript's libraries.
    &[('"', "&quot;"), ('\'', "&#x27;"), ('/', "&#x2f;")],
    &[('"', "&quot;"), ('\'', "&#x27;"), ('/', "&#x2F;"), ('`', "&#x60;"), ('=', "&#x3D;")],
];

/// The shortest beginning of a secret that is redacted.
const MIN_BEGINNING_BYTES: usize = 12;
/// A longer secret is a key with a header of its own, of which no one shows an excerpt.
const MAX_EXCERPTED_BYTES: usize = 512;

/// The forms of `secret`, without duplicates, and none so short that unrelated text would match.
pub(super) fn of(secret: &str) -> BTreeSet<String> {
    let json = |text: String| text[1..text.len() - 1].to_owned();
    let escaped = json(Value::from(secret).to_string());
    let ascii = escaped.chars().fold(String::new(), |mut ascii, character| {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            ascii += &json_units(character);
        }
        ascii
    });
    let mut forms = BTreeSet::from([secret.to_owned(), escaped.replace('/', "\\/"), escaped, ascii]);
    for set in [NON_ALPHANUMERIC, UNRESERVED, COMPONENT, PATH] {
        let percent = utf8_percent_encode(secret, set).to_string();
        forms.extend([percent.replace("%20", "+"), lower_percent(&percent), percent]);
    }
    forms.insert(url::form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    for offset in 0..3 {
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            forms.insert(base64_core(secret.as_bytes(), offset, engine));
        }
    }
    forms.extend(hex(secret.as_bytes()));
    if !secret.is_ascii() {
        forms.extend([secret.to_lowercase(), secret.to_uppercase()]);
    }
    forms.extend(html(secret));
    forms.extend(JSON_ESCAPES.iter().flat_map(|escaped| json_with(secret, escaped)));
    forms.retain(|form| form.len() >= MIN_REDACTED_BYTES);
    forms
}

/// The beginning of a secret that was cut off, as in an excerpt.
pub(super) struct Beginning {
    /// At least half of the secret. Less may be the beginning of other texts too, like the header of a token or the scheme
    /// of a URL.
    pub(super) text: String,
    pub(super) reach: Reach,
}

/// How far a beginning is hidden beyond itself: the same bytes, whatever they are. If it were as far as they are those of
/// the secret, a caller who knows the beginning could find the rest, one character after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reach {
    /// How many bytes the secret has after its beginning.
    bytes: usize,
    /// Whether that may be more than one word.
    is_more_than_a_word: bool,
}

impl Reach {
    /// The end of what is hidden in `text` of a beginning that ends at `start`.
    pub(super) fn end(self, text: &[u8], start: usize) -> usize {
        let most = (start + self.bytes).min(text.len());
        let is_end = |at: &usize| {
            let next = text.get(at + 1).copied();
            !self.is_more_than_a_word && !is_of_word(text[*at], next)
        };
        let mut end = (start..most).find(is_end).unwrap_or(most);
        // Not within a character.
        while text.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
            end += 1;
        }
        end
    }
}

/// Whether a byte may stand inside a token. `...` and `***` stand for what was cut off, and a sentence ends with a full stop.
fn is_of_word(byte: u8, next: Option<u8>) -> bool {
    match byte {
        b'.' => next.is_some_and(|next| next != b'.' && !next.is_ascii_whitespace()),
        b'"' | b'\'' | b'`' | b'<' | b'>' | b',' | b';' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'*' | b'\\' => {
            false
        }
        _ => byte.is_ascii_graphic() || !byte.is_ascii(),
    }
}

/// The beginning by which an excerpt of `secret` is found, if it is long enough.
pub(super) fn beginning(secret: &str) -> Option<Beginning> {
    let least = secret.len().div_ceil(2).max(MIN_BEGINNING_BYTES);
    let end = secret.char_indices().map(|(end, _)| end).find(|end| *end >= least)?;
    if secret.len() > MAX_EXCERPTED_BYTES {
        return None;
    }
    let (text, rest) = secret.split_at(end);
    let bytes = rest.as_bytes();
    let is_word =
        bytes.iter().enumerate().all(|(at, byte)| is_of_word(*byte, bytes.get(at + 1).copied().or(Some(b'x'))));
    Some(Beginning { text: text.to_owned(), reach: Reach { bytes: rest.len(), is_more_than_a_word: !is_word } })
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

/// Hex digits: without anything between them, as in a dump or a fingerprint, as bytes of a program, and as bytes that
/// are escaped although they need not be.
fn hex(secret: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    for digits in [|byte: &u8| format!("{byte:02x}"), |byte: &u8| format!("{byte:02X}")] {
        let digits: Vec<_> = secret.iter().map(digits).collect();
        let separators = ["", " ", ":", "-", "\\x", "%", "\\u00", ", 0x", ",0x"];
        forms.extend(separators.map(|separator| digits.join(separator)));
    }
    forms
}

/// A character as JSON writes it in ASCII.
fn json_units(character: char) -> String {
    let (mut units, mut text) = ([0; 2], String::new());
    text.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
    text
}

/// JSON in which these characters are written as `\u0026`, with and without all that is not ASCII; and every character so.
fn json_with(secret: &str, escaped: &str) -> [String; 3] {
    let plain = |character: char| {
        let text = Value::from(character.to_string()).to_string();
        text[1..text.len() - 1].to_owned()
    };
    let written = |is_escaped: &dyn Fn(char) -> bool| {
        let parts = secret.chars().map(|it| if is_escaped(it) { json_units(it) } else { plain(it) });
        parts.collect::<String>()
    };
    let is_named = |character: char| escaped.contains(character);
    [written(&is_named), written(&|it| is_named(it) || !it.is_ascii()), written(&|_| true)]
}

/// HTML and XML: as the libraries escape it, and with numbers for what is not a letter or digit, or for everything.
fn html(secret: &str) -> Vec<String> {
    let decimal = |character: char| format!("&#{};", u32::from(character));
    let written = |escape: &dyn Fn(char) -> Option<String>| {
        let parts = secret.chars().map(|character| escape(character).unwrap_or_else(|| character.to_string()));
        parts.collect::<String>()
    };
    let mut forms = Vec::new();
    for row in HTML_ESCAPES {
        let named = |character: char| match character {
            '&' => Some("&amp;".to_owned()),
            '<' => Some("&lt;".to_owned()),
            '>' => Some("&gt;".to_owned()),
            _ => row.iter().find(|(escaped, _)| *escaped == character).map(|(_, name)| (*name).to_owned()),
        };
        forms.push(written(&named));
        for number in [&decimal as &dyn Fn(char) -> String, &|character| format!("&#x{:x};", u32::from(character))] {
            forms.push(written(&|character| {
                named(character).or_else(|| (!character.is_ascii()).then(|| number(character)))
            }));
        }
    }
    let numbers: [&dyn Fn(char) -> String; 3] =
        [&decimal, &|character| format!("&#x{:x};", u32::from(character)), &|character| {
            format!("&#x{:X};", u32::from(character))
        }];
    for number in numbers {
        forms.push(written(&|character| Some(number(character))));
        forms.push(written(&|character| (!character.is_ascii_alphanumeric()).then(|| number(character))));
    }
    forms
}
