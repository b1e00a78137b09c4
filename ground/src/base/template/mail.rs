//! `mime_message(...)`: builds a valid RFC 5322 message from any values.
//!
//! A value cannot inject a header: control characters are rejected, and non-ASCII text becomes encoded words
//! (RFC 2047). Bodies are sent as base64, so every character and every line length survives. The sending server
//! adds `Date` and `Message-ID`: the same input always produces the same bytes, which are what a human approved.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The most bytes of text in one encoded word: base64 of these, with `Subject: `, `=?UTF-8?B?` and `?=`, fits in
/// a line of 76 characters.
const MAX_WORD_BYTES: usize = 39;

/// The longest ASCII text that stays as it is. A header line may have 998 characters; longer texts become encoded
/// words, which can be folded.
const MAX_PLAIN_BYTES: usize = 900;

/// Cannot occur inside a part, because base64 has no `_`.
const BOUNDARY: &str = "=_alternative";

/// Builds the message.
///
/// `to`, `cc`, `bcc`: a list of mailboxes (`a@b.example` or `Name <a@b.example>`), or one comma-separated
/// string. `from`, `subject`, `in_reply_to`, `references`: strings. `body`: plain text; `html`: the
/// same content as HTML. Every argument but `body` may be absent.
#[expect(clippy::needless_pass_by_value, reason = "the engine passes arguments by value")]
pub(super) fn message(fields: Kwargs) -> Result<String, Error> {
    let mut head = String::new();
    for (argument, name) in [("from", "From"), ("to", "To"), ("cc", "Cc"), ("bcc", "Bcc")] {
        let mailboxes = mailboxes(name, &fields.get::<Option<Value>>(argument)?.unwrap_or_default())?;
        if !mailboxes.is_empty() {
            push(&mut head, name, &mailboxes.join(",\r\n "));
        }
    }
    if let Some(subject) = fields.get::<Option<&str>>("subject")? {
        push(&mut head, "Subject", &text("Subject", subject)?);
    }
    for (argument, name) in [("in_reply_to", "In-Reply-To"), ("references", "References")] {
        if let Some(ids) = fields.get::<Option<&str>>(argument)?.filter(|ids| !ids.trim().is_empty()) {
            push(&mut head, name, &message_ids(name, ids)?);
        }
    }
    let body = fields.get::<Option<&str>>("body")?.unwrap_or_default();
    let html = fields.get::<Option<&str>>("html")?;
    fields.assert_all_used()?;
    push(&mut head, "MIME-Version", "1.0");
    Ok(match html {
        None => format!("{head}{}", part("plain", body)),
        Some(html) => format!(
            "{head}Content-Type: multipart/alternative; boundary=\"{BOUNDARY}\"\r\n\r\n\
             --{BOUNDARY}\r\n{}\r\n--{BOUNDARY}\r\n{}\r\n--{BOUNDARY}--\r\n",
            part("plain", body),
            part("html", html)
        ),
    })
}

/// Encodes `text` as URL-safe base64 with padding, the form of Gmail's `raw` field.
pub(super) fn base64url(text: &str) -> String {
    URL_SAFE.encode(text)
}

fn push(head: &mut String, name: &str, value: &str) {
    head.push_str(name);
    head.push_str(": ");
    head.push_str(value);
    head.push_str("\r\n");
}

fn part(subtype: &str, text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n");
    let mut folded =
        format!("Content-Type: text/{subtype}; charset=\"UTF-8\"\r\nContent-Transfer-Encoding: base64\r\n\r\n");
    let encoded = STANDARD.encode(lines);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(76));
        folded.push_str(line);
        folded.push_str("\r\n");
        rest = after;
    }
    folded
}

/// Returns the mailboxes of a list or a comma-separated string, each encoded for a header.
fn mailboxes(header: &str, value: &Value) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => {}
        ValueKind::Seq => {
            for item in value.try_iter()? {
                found.extend(mailboxes(header, &item)?);
            }
        }
        _ => {
            let Some(listed) = value.as_str() else {
                return Err(refused(header, "not a mail address"));
            };
            for item in split(listed).into_iter().filter(|item| !item.trim().is_empty()) {
                found.push(mailbox(header, item.trim())?);
            }
        }
    }
    Ok(found)
}

/// Splits at commas outside quotes and angle brackets.
fn split(listed: &str) -> Vec<&str> {
    let (mut items, mut start, mut quoted, mut angled) = (Vec::new(), 0, false, false);
    for (position, character) in listed.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '<' if !quoted => angled = true,
            '>' if !quoted => angled = false,
            ',' if !quoted && !angled => {
                items.push(&listed[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    items.push(&listed[start..]);
    items
}

fn mailbox(header: &str, item: &str) -> Result<String, Error> {
    refuse_controls(header, item)?;
    let Some((name, address)) = item.strip_suffix('>').and_then(|item| item.rsplit_once('<')) else {
        return address(header, item).map(str::to_owned);
    };
    let address = self::address(header, address.trim())?;
    let name = name.trim();
    let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name).replace("\\\"", "\"");
    Ok(match name.as_str() {
        "" => address.to_owned(),
        name if !name.is_ascii() => format!("{}\r\n <{address}>", encoded_words(name)),
        name if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" -_'".contains(&byte)) => {
            format!("{name} <{address}>")
        }
        name => format!("\"{}\" <{address}>", name.replace('\\', "\\\\").replace('"', "\\\"")),
    })
}

fn address<'a>(header: &str, address: &'a str) -> Result<&'a str, Error> {
    let is_address = address.is_ascii()
        && address
            .rsplit_once('@')
            .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !local.contains('@'))
        && !address.bytes().any(|byte| byte.is_ascii_whitespace() || b"<>(),;:\\\"[]".contains(&byte));
    if is_address { Ok(address) } else { Err(refused(header, &format!("`{address}` is not a mail address"))) }
}

fn message_ids(header: &str, ids: &str) -> Result<String, Error> {
    refuse_controls(header, ids)?;
    let ids: Vec<&str> = ids.split_whitespace().collect();
    if ids.iter().all(|id| id.is_ascii() && id.starts_with('<') && id.ends_with('>')) {
        Ok(ids.join("\r\n "))
    } else {
        Err(refused(header, "expected message ids like `<id@host>`"))
    }
}

fn text(header: &str, text: &str) -> Result<String, Error> {
    refuse_controls(header, text)?;
    let is_plain = text.is_ascii() && text.len() <= MAX_PLAIN_BYTES && !text.contains("=?");
    Ok(if is_plain { text.to_owned() } else { encoded_words(text) })
}

fn encoded_words(text: &str) -> String {
    let (mut words, mut word) = (Vec::new(), String::new());
    for character in text.chars() {
        if word.len() + character.len_utf8() > MAX_WORD_BYTES {
            words.push(std::mem::take(&mut word));
        }
        word.push(character);
    }
    words.push(word);
    let words: Vec<String> = words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word))).collect();
    words.join("\r\n ")
}

fn refuse_controls(header: &str, value: &str) -> Result<(), Error> {
    if value.chars().any(char::is_control) {
        return Err(refused(header, "must be one line, without control characters"));
    }
    Ok(())
}

fn refused(header: &str, reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("header `{header}`: {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::TemplateValues;

    const TEMPLATE: &str = "{{ mime_message(to=to, cc=cc, subject=subject, body=body, html=html) }}";

    fn built(input: serde_json::Value) -> Result<String, String> {
        let input = serde_json::from_value(input).expect("an object");
        TemplateValues::of_input(&input).text(TEMPLATE).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_keeps_non_ascii_text_and_lists_every_recipient() {
        let message = built(json!({
            "to": ["王芳 <fang@example.com>", "\"Smith, Ann\" <ann@example.com>"], "cc": "bob@example.com, eve@example.com",
            "subject": "年度报告", "body": "你好\n再见"
        }));
        assert_eq!(
            message.expect("it builds"),
            "To: =?UTF-8?B?546L6Iqz?=\r\n <fang@example.com>,\r\n \"Smith, Ann\" <ann@example.com>\r\n\
             Cc: bob@example.com,\r\n eve@example.com\r\nSubject: =?UTF-8?B?5bm05bqm5oql5ZGK?=\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=\"UTF-8\"\r\nContent-Transfer-Encoding: base64\r\n\r\n5L2g5aW9DQrlho3op4E=\r\n"
        );
    }

    #[test]
    fn a_value_cannot_inject_a_header() {
        for input in [
            json!({"to": "a@b.example", "subject": "x\r\nBcc: eve@example.com", "body": ""}),
            json!({"to": "a@b.example\nBcc: eve@example.com", "subject": "x", "body": ""}),
            json!({"to": "A\r\nBcc: eve@example.com <a@b.example>", "subject": "x", "body": ""}),
            json!({"to": ["a@b.example> <eve@example.com"], "subject": "x", "body": ""}),
            json!({"to": "no-address", "subject": "x", "body": ""}),
        ] {
            let outcome = built(input.clone());
            assert!(outcome.is_err(), "{input}: {outcome:?}");
        }
    }

    #[test]
    fn a_long_subject_is_split_between_characters() {
        let message = built(json!({"to": "a@b.example", "subject": "报".repeat(40), "body": ""})).expect("it builds");
        assert!(message.lines().all(|line| line.len() <= 76), "{message}");
        assert_eq!(message.matches("=?UTF-8?B?").count(), 4);
    }

    #[test]
    fn html_is_sent_as_an_alternative_to_the_plain_text() {
        let message = built(json!({"to": "a@b.example", "subject": "s", "body": "b", "html": "<b>b</b>"}));
        let message = message.expect("it builds");
        assert_eq!(message.matches("--=_alternative").count(), 3, "{message}");
    }
}
