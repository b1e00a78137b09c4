//! The file name that a server suggests for a download (RFC 6266), made harmless.

use percent_encoding::percent_decode_str;

/// The most characters of a file name.
const MAX_NAME_CHARS: usize = 150;

/// Returns the name in a `Content-Disposition` header; `filename*` takes precedence, as the standard says.
pub(super) fn suggested(disposition: &str) -> Option<String> {
    let parameters = parameters(disposition);
    let value =
        |name: &str| parameters.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let extended = value("filename*").and_then(|value| {
        let (charset, rest) = value.split_once('\'')?;
        let (_, encoded) = rest.split_once('\'')?;
        let bytes: Vec<u8> = percent_decode_str(encoded).collect();
        let encoding = encoding_rs::Encoding::for_label(charset.as_bytes())?;
        Some(encoding.decode(&bytes).0.into_owned())
    });
    extended.or_else(|| value("filename").cloned()).and_then(|name| harmless(&name))
}

/// Returns only the last part of `name`, without what could hide or mislead: it names a file in any folder, and no
/// other place.
pub(super) fn harmless(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_bidi = |character: char| matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let kept = last.chars().filter(|character| !character.is_control() && !is_bidi(*character));
    let kept: String = kept.map(|character| if r#"<>:"|?*"#.contains(character) { '_' } else { character }).collect();
    let kept = kept.trim_matches([' ', '.']);
    let shortened: String = match kept.rsplit_once('.') {
        // The extension stays, however long the name is.
        Some((stem, extension)) if extension.chars().count() < 12 => {
            let stem: String = stem.chars().take(MAX_NAME_CHARS - 13).collect();
            format!("{stem}.{extension}")
        }
        _ => kept.chars().take(MAX_NAME_CHARS).collect(),
    };
    (!shortened.is_empty()).then_some(shortened)
}

/// Splits a header value into its parameters; a quoted value may contain `;` and escaped quotes.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut rest = header.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((name, after)) = rest.split_once('=') {
        let (value, following) = if let Some(quoted) = after.trim_start().strip_prefix('"') {
            unquoted(quoted)
        } else {
            let (value, following) = after.split_once(';').unwrap_or((after, ""));
            (value.trim().to_owned(), following)
        };
        parameters.push((name.trim_matches([' ', ';']).to_owned(), value));
        rest = following;
    }
    parameters
}

/// Returns the text up to the closing quote, and what follows it.
fn unquoted(quoted: &str) -> (String, &str) {
    let (mut value, mut is_escaped) = (String::new(), false);
    for (index, character) in quoted.char_indices() {
        match character {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return (value, &quoted[index + 1..]),
            _ => {
                value.push(character);
                is_escaped = false;
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suggested_name_is_found() {
        for (header, name) in [
            (r#"attachment; filename="report; 2024.pdf""#, Some("report; 2024.pdf")),
            (r#"attachment; filename="a\"b.txt"; size=3"#, Some("a_b.txt")),
            ("attachment; filename=plain.csv", Some("plain.csv")),
            (r#"attachment; filename="x.bin"; filename*=UTF-8''%e5%b9%b4%20%c3%a9.bin"#, Some("年 é.bin")),
            ("attachment; filename*=iso-8859-1'en'caf%e9.txt", Some("café.txt")),
            ("inline", None),
            ("attachment; filename=\"\"", None),
        ] {
            assert_eq!(suggested(header).as_deref(), name, "{header}");
        }
    }

    #[test]
    fn a_suggested_name_leads_nowhere_else() {
        for (name, kept) in [
            ("../../etc/passwd", Some("passwd")),
            ("C:\\temp\\a.exe", Some("a.exe")),
            ("..", None),
            (".bashrc", Some("bashrc")),
            ("a\u{202e}fdp.exe\r\n", Some("afdp.exe")),
            ("a/", None),
        ] {
            assert_eq!(harmless(name).as_deref(), kept, "{name}");
        }
        let long = harmless(&format!("{}.tar.gz", "報".repeat(5_000))).expect("a name");
        assert!(long.chars().count() <= MAX_NAME_CHARS && long.split('.').next_back() == Some("gz"), "{long}");
    }
}
