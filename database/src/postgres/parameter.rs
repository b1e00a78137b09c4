//! Values as the text that PostgreSQL reads: it knows the type of each place, and reads a number as exactly that number.

use std::error::Error;
use std::fmt::Write as _;

use bytes::{BufMut as _, BytesMut};
use sql::value::Value;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type};

/// A value that is sent as text.
#[derive(Debug)]
pub(super) struct TextParameter<'v>(pub(super) &'v Value);

impl ToSql for TextParameter<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match text(self.0, ty)? {
            Some(text) => {
                out.put_slice(text.as_bytes());
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(ty, out)
    }
}

fn text(value: &Value, ty: &Type) -> Result<Option<String>, Box<dyn Error + Sync + Send>> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Unsigned(unsigned) => unsigned.to_string(),
        Value::Float(float) => float.to_string(),
        Value::Text(text) => text.clone(),
        Value::Bytes(bytes) => bytes_text(bytes, ty)?,
        Value::List(items) => match element_type(ty) {
            Some(element) => array_text(items, element)?,
            None => value.to_json().to_string(),
        },
        Value::Document(json) => json.to_string(),
    }))
}

fn element_type(ty: &Type) -> Option<&Type> {
    match ty.kind() {
        Kind::Array(element) => Some(element),
        Kind::Domain(base) => element_type(base),
        _ => None,
    }
}

fn bytes_text(bytes: &[u8], ty: &Type) -> Result<String, Box<dyn Error + Sync + Send>> {
    if *ty != Type::BYTEA {
        return Ok(std::str::from_utf8(bytes).map_err(|_| format!("bytes cannot stand for `{ty}`"))?.to_owned());
    }
    let mut text = "\\x".to_owned();
    for byte in bytes {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// Writes an array; an array in it is another dimension.
fn array_text(items: &[Value], element: &Type) -> Result<String, Box<dyn Error + Sync + Send>> {
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        parts.push(match item {
            Value::List(inner) if !matches!(*element, Type::JSON | Type::JSONB) => array_text(inner, element)?,
            item => match text(item, element)? {
                Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
                None => "NULL".to_owned(),
            },
        });
    }
    let delimiter = if *element == Type::BOX { ";" } else { "," };
    Ok(format!("{{{}}}", parts.join(delimiter)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_become_arrays_whatever_their_texts_contain() {
        let list = Value::from(&json!(["a\"b\\c", null, "NULL", "", "{x,y}", "日本"]));
        let written = text(&list, &Type::TEXT_ARRAY).unwrap().unwrap();
        assert_eq!(written, r#"{"a\"b\\c",NULL,"NULL","","{x,y}","日本"}"#);
        let nested = text(&Value::from(&json!([[1, 2], [3, null]])), &Type::INT4_ARRAY).unwrap().unwrap();
        assert_eq!(nested, r#"{{"1","2"},{"3",NULL}}"#);
        assert_eq!(text(&Value::from(&json!([1, "a"])), &Type::JSONB).unwrap().unwrap(), "[1,\"a\"]");
    }

    #[test]
    fn bytes_are_digits_only_where_bytes_stand() {
        let bytes = Value::Bytes(vec![0, 0xff]);
        assert_eq!(text(&bytes, &Type::BYTEA).unwrap().unwrap(), "\\x00ff");
        assert!(text(&bytes, &Type::TEXT).is_err());
    }
}
