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
            let mut units = [0; 2];
            ascii.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
        ascii
    });
    let mut forms = BTreeSet::from([secret.to_owned(), escaped.replace('/', "\\/"), escaped, ascii]);
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
    forms.extend(hex(secret.as_bytes()));
    if !secret.is_ascii() {
        forms.extend([secret.to_lowercase(), secret.to_uppercase()]);
    }
    forms.extend(beginnings(secret).map(str::to_owned));
    forms.extend(html(secret));
    forms.retain(|form| form.len() >= MIN_REDACTED_BYTES);
    forms
}

/// What an excerpt of a secret may be: at least half of it. Less may be the beginning of other texts too, like the
/// header of a token or the scheme of a URL.
fn beginnings(secret: &str) -> impl Iterator<Item = &str> {
    let least = secret.len().div_ceil(2).max(MIN_BEGINNING_BYTES);
    let ends = secret.char_indices().map(|(end, _)| end).filter(move |end| *end >= least);
    ends.filter(|_| secret.len() <= MAX_EXCERPTED_BYTES).map(|end| &secret[..end])
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
        forms.push(written(&|character| {
            named(character).or_else(|| (!character.is_ascii()).then(|| decimal(character)))
        }));
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
