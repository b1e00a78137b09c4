//! Decodes response bodies to text.

use encoding_rs::{Encoding, UTF_8};

/// How far into an HTML page a charset declaration is searched for, as in the HTML standard's prescan.
const PRESCAN_BYTES: usize = 1024;

/// Decodes `bytes` with the charset of `content_type`, else the one that an HTML page declares, else UTF-8.
/// A byte order mark overrides all of these. Malformed sequences become U+FFFD.
pub fn decode(bytes: &[u8], content_type: Option<&str>) -> String {
    let declared = content_type.and_then(charset).or_else(|| {
        let is_html = content_type.is_none_or(|content_type| content_type.contains("html"));
        is_html.then(|| prescan(bytes)).flatten()
    });
    declared.unwrap_or(UTF_8).decode(bytes).0.into_owned()
}

/// Returns the charset that a content type names, if it is known.
pub fn charset(content_type: &str) -> Option<&'static Encoding> {
    let label = content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    })?;
    Encoding::for_label(label.as_bytes())
}

fn prescan(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN_BYTES)]).to_ascii_lowercase();
    let meta = head.find("<meta").map(|start| &head[start..])?;
    let (_, label) = meta.split_once("charset=")?;
    let label = label.trim_start_matches(['"', '\'']);
    let end = label.find(|character: char| !character.is_ascii_alphanumeric() && !"-_".contains(character));
    Encoding::for_label(&label.as_bytes()[..end.unwrap_or(label.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_with_its_declared_charset() {
        assert_eq!(decode(b"caf\xe9", Some("text/plain; charset=ISO-8859-1")), "café");
        assert_eq!(decode(b"\xc4\xea\xb6\xc8", Some("text/plain; Charset=\"gbk\"")), "年度");
        assert_eq!(decode("年度".as_bytes(), Some("text/plain")), "年度");
        assert_eq!(decode(b"\xef\xbb\xbfa", None), "a");
        let page = b"<html><head><meta charset=\"gbk\"></head>\xc4\xea";
        assert!(decode(page, Some("text/html")).ends_with('年'));
    }
}
