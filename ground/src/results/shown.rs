//! The part of a result that is meant for a person.

use protocol::excerpt;
use protocol::wording::counted;
use serde_json::Value;

/// Returns the data of a result file, or what went wrong, as text.
pub fn result_text(file: &Value) -> String {
    let data = [&file["data"], &file["error"]["message"], &file["_meta"]["preview"]];
    match data.into_iter().find(|value| !value.is_null()) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

/// Returns at most `limit` characters, with a note on how many are left out. A limit of 0 keeps the whole text.
pub fn preview(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if limit == 0 || count <= limit {
        return text.to_owned();
    }
    let more = counted(count - limit, "more character");
    format!("{} ({more}; the model reads all of it)", excerpt::chars(text, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_says_how_much_is_left_out() {
        assert_eq!(preview("abcdef", 0), "abcdef");
        assert_eq!(preview("年度报告", 4), "年度报告");
        assert_eq!(preview("年度报告", 2), "年度… (2 more characters; the model reads all of it)");
    }
}
