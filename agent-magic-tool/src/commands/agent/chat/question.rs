//! A task's question to the human, shown and answered on the terminal.
//!
//! The typed text becomes the fields of the question's form. The page validates them.

use std::fmt::Write as _;

use agent_side::sanitized::sanitize;
use ground::page_client::terminal::PendingQuestion;
use serde_json::{Map, Value};

/// Returns whether the question can be answered in one line: it has one field, and asks for no secret.
pub(super) fn fits_a_line(pending: &PendingQuestion) -> bool {
    !pending.wants_secrets && field(pending).is_some()
}

/// Returns the question as the terminal shows it.
pub(super) fn text(pending: &PendingQuestion) -> String {
    let mut text = format!("{} asks you: {}\n", pending.tool, sanitize(&pending.question));
    let Some((_, field)) = field(pending) else { return text };
    let (offered, several) = offered(field);
    for (option, number) in offered.iter().zip(1..) {
        // Writing to a string cannot fail.
        if writeln!(text, "  {number}. {}", sanitize(&shown(option))).is_ok() {}
    }
    text += match (offered.is_empty(), several) {
        (true, _) if field["type"] == "boolean" => "Your next line is the answer: yes or no",
        (true, _) => "Your next line is the answer",
        (false, false) => "Your next line is the answer: a number, or the text of an option",
        (false, true) => "Your next line is the answer: numbers separated by commas",
    };
    text += " (/decline to give no answer, /later to answer on the page).\n";
    text
}

/// Returns the filled form and the answer as text. The error is a message for the user.
pub(super) fn answer(pending: &PendingQuestion, typed: &str) -> Result<(Map<String, Value>, String), String> {
    let (name, field) = field(pending).ok_or("this question can only be answered on the page")?;
    let typed = typed.trim();
    let (offered, several) = offered(field);
    let value = if offered.is_empty() {
        parse_value(field, typed)?
    } else if several {
        let chosen: Result<Vec<_>, _> = typed.split(',').map(|one| choose(offered, one.trim())).collect();
        Value::Array(chosen?)
    } else {
        choose(offered, typed)?
    };
    let shown_value = match &value {
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        value => shown(value),
    };
    Ok((Map::from_iter([(name.to_owned(), value)]), shown_value))
}

/// Returns the only field of the form, if it has a simple type.
fn field(pending: &PendingQuestion) -> Option<(&str, &Value)> {
    let fields = pending.schema.get("properties")?.as_object()?;
    let (name, field) = fields.iter().next().filter(|_| fields.len() == 1)?;
    let is_plain = !offered(field).0.is_empty()
        || matches!(field["type"].as_str(), Some("string" | "number" | "integer" | "boolean"));
    is_plain.then_some((name.as_str(), field))
}

/// Returns the options to choose from, and whether several may be chosen.
fn offered(field: &Value) -> (&[Value], bool) {
    let list = |value: &'_ Value| value.as_array().map(Vec::len).unwrap_or_default() > 0;
    let several = list(&field["items"]["enum"]);
    let offered = if several { &field["items"]["enum"] } else { &field["enum"] };
    (offered.as_array().map_or(&[], Vec::as_slice), several)
}

/// Returns the option with this text or number. The text takes precedence, since an option may be a number.
fn choose(offered: &[Value], typed: &str) -> Result<Value, String> {
    let same = offered.iter().find(|option| shown(option).eq_ignore_ascii_case(typed));
    let counted = typed.parse::<usize>().ok().and_then(|number| offered.get(number.checked_sub(1)?));
    same.or(counted)
        .cloned()
        .ok_or_else(|| format!("`{typed}` is not one of the options; type a number from 1 to {}", offered.len()))
}

/// Parses the answer to a field without options.
fn parse_value(field: &Value, typed: &str) -> Result<Value, String> {
    match field["type"].as_str() {
        Some("boolean") => match typed.to_lowercase().as_str() {
            "y" | "yes" | "true" => Ok(true.into()),
            "n" | "no" | "false" => Ok(false.into()),
            _ => Err("type yes or no".to_owned()),
        },
        Some("number" | "integer") => match serde_json::from_str::<Value>(typed) {
            Ok(number) if number.is_number() => Ok(number),
            _ => Err(format!("`{typed}` is not a number")),
        },
        _ => Ok(typed.into()),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pending(field: &Value) -> PendingQuestion {
        serde_json::from_value(json!({
            "id": "0198a7b2c3d47e5f8a9b0c1d2e3f4a5b", "tool": "ask_user", "digest": "d", "question": "Which?",
            "schema": {"type": "object", "properties": {"answer": field}}, "wants_secrets": false,
        }))
        .expect("a question")
    }

    #[test]
    fn an_option_is_chosen_by_its_number_or_text() {
        let pending = pending(&json!({"enum": ["2024", "2025"]}));
        assert!(text(&pending).contains("  2. 2025\n"));
        for (typed, chosen) in [("2", "2025"), ("2024", "2024"), (" 1 ", "2024")] {
            let (content, text) = answer(&pending, typed).expect(typed);
            assert_eq!((&content["answer"], text.as_str()), (&json!(chosen), chosen));
        }
        for wrong in ["3", "0", "", "x"] {
            answer(&pending, wrong).expect_err(wrong);
        }
    }

    #[test]
    fn an_answer_gets_the_type_of_its_field() {
        let several = pending(&json!({"type": "array", "items": {"enum": ["a", "b", "c"]}}));
        assert_eq!(answer(&several, "1, c").expect("two").0["answer"], json!(["a", "c"]));
        assert_eq!(answer(&pending(&json!({"type": "number"})), "1.5").expect("one").0["answer"], json!(1.5));
        answer(&pending(&json!({"type": "number"})), "many").expect_err("not a number");
        assert_eq!(answer(&pending(&json!({"type": "boolean"})), "Yes").expect("one").0["answer"], true);
        assert_eq!(answer(&pending(&json!({"type": "string"})), "年度 报告").expect("text").0["answer"], "年度 报告");
    }

    #[test]
    fn a_form_or_a_secret_is_left_to_the_page() {
        assert!(fits_a_line(&pending(&json!({"type": "string"}))));
        let secret = PendingQuestion { wants_secrets: true, ..pending(&json!({"type": "string"})) };
        let mut two = pending(&json!({"type": "string"}));
        two.schema["properties"]["more"] = json!({"type": "string"});
        assert!(!fits_a_line(&secret) && !fits_a_line(&two));
    }
}
