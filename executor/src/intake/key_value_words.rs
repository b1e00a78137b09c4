//! The `key=value` words of a request, as values of the subtool's schema.

use ground::base::schema::InputSchema;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::{Map, Value, json};

/// Converts `words` to the types in the schema, and adds them to `input`.
///
/// A text for a list is its only item. One with a comma is refused, since it could be one item or several.
pub(super) fn read(
    words: &Map<String, Value>,
    schema: &InputSchema,
    input: &mut Map<String, Value>,
) -> Result<(), ErrorBody> {
    for (field, word) in words {
        let value = match word.as_str() {
            None => word.clone(),
            Some(text) => match schema.parse_word(field, text) {
                Value::Array(items) if items == [text] && text.contains(',') => return Err(ambiguous(field, text)),
                value => value,
            },
        };
        input.insert(field.clone(), value);
    }
    Ok(())
}

fn ambiguous(field: &str, text: &str) -> ErrorBody {
    let items: Vec<_> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    ErrorBody::new(Code::InvalidInput, format!("`{field}` is a list, and `{text}` could be one item or several"))
        .hint(format!("several items: {field}:='{}'; one item: {field}:='{}'", json!(items), json!([text])))
}
