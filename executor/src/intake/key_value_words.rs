//! The `key=value` words of a request, as values of the subtool's schema.

use ground::base::schema::InputSchema;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value, json};

/// Converts `words` to the types in the schema, and adds them to `input`.
///
/// A text for a list is its only item. One that could be several items, none or JSON is refused.
pub(super) fn read(
    words: &Map<String, Value>,
    schema: &InputSchema,
    input: &mut Map<String, Value>,
) -> Result<(), ErrorBody> {
    for (field, word) in words {
        let value = match word.as_str() {
            None => word.clone(),
            Some(text) => match schema.parse_word(field, text) {
                Value::Array(items) if items == [text] && is_ambiguous(text) => return Err(ambiguous(field, text)),
                value => value,
            },
        };
        input.insert(field.clone(), value);
    }
    Ok(())
}

/// Whether a text for a list looks like several items, like none, or like a list.
fn is_ambiguous(text: &str) -> bool {
    let trimmed = text.trim();
    trimmed.is_empty() || trimmed == "null" || text.contains([',', ';', '\n']) || trimmed.starts_with('[')
}

fn ambiguous(field: &str, text: &str) -> ErrorBody {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(trimmed);
    let items = inner.split([',', ';', '\n']).map(|item| item.trim().trim_matches(['"', '\'']));
    let items: Vec<_> = items.filter(|item| !item.is_empty() && *item != "null").collect();
    let quoted = |items: &[&str]| json!(items).to_string().replace('\'', r"'\''");
    let several = match items.len() {
        0 => format!("no items: {field}:='[]'"),
        1 => format!("the item `{}`: {field}:='{}'", items[0], quoted(&items)),
        _ => format!("several items: {field}:='{}'", quoted(&items)),
    };
    let message = format!("`{field}` is a list, and `{text}` does not say which items it has");
    ErrorBody::new(Code::InvalidInput, message)
        .hint(format!("{several}; this one text: {field}:='{}'", quoted(&[text])))
}
