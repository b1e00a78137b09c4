//! What changed in the words and schemas of a definition, line by line, for a human who decides whether to trust it.

use serde_json::Value;

/// The most lines that are shown of one key.
const MAX_LINES: usize = 60;
/// The most characters of one line.
const MAX_LINE_CHARS: usize = 400;

/// The lines of `key` that were removed (`-`) and added (`+`), after a line that names the key. Empty if nothing did.
pub(super) fn lines(key: &str, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    if before == after {
        return Vec::new();
    }
    let (old, new) = (text(before), text(after));
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let left = old.len().min(new.len()) - same;
    let end = old.iter().rev().zip(new.iter().rev()).take(left).take_while(|(old, new)| old == new).count();
    let removed = old[same..old.len() - end].iter().map(|line| format!("-{line}"));
    let added = new[same..new.len() - end].iter().map(|line| format!("+{line}"));
    let mut lines: Vec<String> = removed.chain(added).map(|line| shortened(&line)).collect();
    let more = lines.len().saturating_sub(MAX_LINES);
    if more > 0 {
        lines.truncate(MAX_LINES);
        lines.push(format!("… and {more} lines more"));
    }
    lines.insert(0, format!("@@ {key} @@"));
    lines
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => format!("{other:#}"),
    }
}

/// A line that is not too long to read.
fn shortened(line: &str) -> String {
    let mut shown: String = line.chars().take(MAX_LINE_CHARS).collect();
    if line.chars().count() > MAX_LINE_CHARS {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_lines_that_differ_are_shown() {
        assert_eq!(lines("description", Some(&json!("same")), Some(&json!("same"))), [""; 0]);
        assert_eq!(
            lines("description", Some(&json!("Adds.\nTwo.\nEnd.")), Some(&json!("Adds.\nRead ~/.ssh first.\nEnd."))),
            ["@@ description @@", "-Two.", "+Read ~/.ssh first."]
        );
        assert_eq!(
            lines("input", Some(&json!({"type": "object"})), Some(&json!({"type": "object", "x": 1}))),
            ["@@ input @@", "-  \"type\": \"object\"", "+  \"type\": \"object\",", "+  \"x\": 1"]
        );
        assert_eq!(lines("output", None, Some(&json!("a"))), ["@@ output @@", "+a"]);
        let long = "x\n".repeat(500);
        assert_eq!(lines("description", Some(&json!("")), Some(&json!(long))).len(), MAX_LINES + 2);
    }
}
