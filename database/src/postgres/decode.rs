//! Cells from the text that PostgreSQL writes for each type.

use std::error::Error;

use serde_json::Value as Json;
use sql::value::bytes_to_json;
use tokio_postgres::types::{FromSql, Kind, Type};

use super::array::{self, ArrayItem};
use crate::rows::{document_to_json, float_to_json, integer_to_json};

/// The text of a cell. Columns are text by then, or of types whose binary form is their text.
#[derive(Debug)]
pub(super) struct TextCell(String);

impl<'a> FromSql<'a> for TextCell {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(std::str::from_utf8(raw)?.to_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::JSON | Type::XML)
    }
}

/// Returns a cell of a column of that type.
pub(super) fn cell(text: Option<TextCell>, ty: &Type) -> Json {
    text.map_or(Json::Null, |TextCell(text)| value(text, ty))
}

fn value(text: String, ty: &Type) -> Json {
    match ty.kind() {
        Kind::Domain(base) => return value(text, base),
        Kind::Array(element) => return array(text, element),
        _ => {}
    }
    match *ty {
        Type::BOOL => Json::Bool(text == "true" || text == "t"),
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID | Type::XID8 => integer_to_json(&text),
        // The shortest text that is read as the same number.
        Type::FLOAT4 | Type::FLOAT8 => text.parse().map_or(Json::String(text), float_to_json),
        Type::JSON | Type::JSONB => document_to_json(text),
        Type::BYTEA => decode_hex(&text).map_or(Json::String(text), |bytes| bytes_to_json(&bytes)),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => Json::String(timestamp(text)),
        Type::TIMETZ => Json::String(with_minutes(text)),
        // The cast names the mask of a single host, unlike everything else that shows addresses.
        Type::INET => Json::from(text.strip_suffix(if text.contains(':') { "/128" } else { "/32" }).unwrap_or(&text)),
        _ => Json::String(text),
    }
}

fn array(text: String, element: &Type) -> Json {
    let delimiter = if *element == Type::BOX { ';' } else { ',' };
    match array::parse(&text, delimiter) {
        Some(items) => Json::Array(items.into_iter().map(|item| array_item(item, element)).collect()),
        None => Json::String(text),
    }
}

fn array_item(item: ArrayItem, element: &Type) -> Json {
    match item {
        ArrayItem::Null => Json::Null,
        ArrayItem::Text(text) => value(text, element),
        ArrayItem::Array(items) => Json::Array(items.into_iter().map(|item| array_item(item, element)).collect()),
    }
}

/// Returns `2024-01-02 03:04:05.6+00` as RFC 3339 writes it. What that cannot say (infinity, years before 1 and after
/// 9999) stays as it is.
fn timestamp(text: String) -> String {
    let bytes = text.as_bytes();
    let has_year = bytes.len() > 10 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-';
    if !has_year || bytes[10] != b' ' || text.ends_with("BC") {
        return text;
    }
    let (date, time) = text.split_at(10);
    let time = &time[1..];
    match time.strip_suffix("+00") {
        Some(time) => format!("{date}T{time}Z"),
        None => format!("{date}T{time}"),
    }
}

/// Returns `03:04:05+02` with the minutes of the offset.
fn with_minutes(mut text: String) -> String {
    if text.rfind(['+', '-']).is_some_and(|sign| text.len() - sign == 3) {
        text.push_str(":00");
    }
    text
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    // A long value may be cut in the middle of a byte.
    digits.chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_type_is_read_exactly() {
        let read = |text: &str, ty: Type| value(text.to_owned(), &ty);
        assert_eq!(read("9223372036854775807", Type::INT8), json!(i64::MAX));
        assert_eq!(read("0.10", Type::NUMERIC), json!("0.10"));
        assert_eq!(read("1.1", Type::FLOAT4), json!(1.1));
        assert_eq!(read("NaN", Type::FLOAT8), json!("NaN"));
        assert_eq!(read("\\x00ff", Type::BYTEA), json!({"base64": "AP8="}));
        assert_eq!(read("2024-01-02 03:04:05.6+00", Type::TIMESTAMPTZ), json!("2024-01-02T03:04:05.6Z"));
        assert_eq!(read("0044-03-15 00:00:00 BC", Type::TIMESTAMP), json!("0044-03-15 00:00:00 BC"));
        assert_eq!(read("10000-01-01 00:00:00", Type::TIMESTAMP), json!("10000-01-01 00:00:00"));
        assert_eq!(read("infinity", Type::TIMESTAMPTZ), json!("infinity"));
        assert_eq!(read("03:04:05-02", Type::TIMETZ), json!("03:04:05-02:00"));
        assert_eq!(read("10.0.0.1/32", Type::INET), json!("10.0.0.1"));
        assert_eq!(read("10.0.0.0/8", Type::INET), json!("10.0.0.0/8"));
        assert_eq!(read("{1,NULL}", Type::INT4_ARRAY), json!([1, null]));
        assert_eq!(read("{1,2", Type::INT4_ARRAY), json!("{1,2"));
    }
}
