//! The lines that differ between a text and the one that replaces it.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::visible::{VisibleLine, line, plain_line};

/// How many unchanged lines are shown around a change.
const CONTEXT: usize = 3;
/// After this time the search for a short difference gives up; the one that it then finds is longer, and right.
const MAX_DURATION: Duration = Duration::from_millis(100);
/// Larger texts are shown whole, one after the other.
const MAX_BYTES: usize = 256 << 10;

/// The difference of two texts of several lines.
#[derive(Debug, Serialize)]
pub(super) struct LineDiff {
    added: usize,
    removed: usize,
    rows: Vec<DiffRow>,
}

#[derive(Debug, PartialEq, Serialize)]
struct DiffRow {
    /// `+`, `-`, a space for an unchanged line, or `…` for `count` unchanged lines that are not shown.
    sign: &'static str,
    line: VisibleLine,
    count: usize,
}

impl LineDiff {
    /// `None` unless both values are texts and one of them has several lines.
    pub(super) fn of(before: &Value, after: &Value) -> Option<Self> {
        let (before, after) = (before.as_str()?, after.as_str()?);
        let has_lines = before.contains('\n') || after.contains('\n');
        if !has_lines || before.len().max(after.len()) > MAX_BYTES {
            return None;
        }
        // A lookup's output often lacks the last line end, which is no change of a line.
        let [before, after] = [before, after].map(|text| text.strip_suffix('\n').unwrap_or(text));
        let diff = TextDiff::configure().timeout(MAX_DURATION).diff_lines(before, after);
        let groups = diff.grouped_ops(CONTEXT);
        let mut found = Self { added: 0, removed: 0, rows: Vec::new() };
        let mut shown = 0;
        for operation in groups.iter().flatten() {
            found.fold(operation.old_range().start - shown);
            for change in diff.iter_changes(operation) {
                let sign = match change.tag() {
                    ChangeTag::Equal => " ",
                    ChangeTag::Insert => "+",
                    ChangeTag::Delete => "-",
                };
                found.added += usize::from(sign == "+");
                found.removed += usize::from(sign == "-");
                let text = change.value();
                let line = line(text.strip_suffix('\n').unwrap_or(text));
                found.rows.push(DiffRow { sign, line, count: 1 });
            }
            shown = operation.old_range().end;
        }
        found.fold(diff.old_slices().len() - shown);
        Some(found)
    }

    /// The same as plain text, each line with its sign.
    pub(super) fn plain(&self) -> String {
        let row = |row: &DiffRow| match row.sign {
            "…" => format!("… {} unchanged lines\n", row.count),
            sign => format!("{sign} {}\n", plain_line(&row.line).text),
        };
        self.rows.iter().map(row).collect()
    }

    /// Stands for `count` unchanged lines.
    fn fold(&mut self, count: usize) {
        if count > 0 {
            self.rows.push(DiffRow { sign: "…", line: Vec::new(), count });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        let diff = LineDiff::of(&json!(before), &json!(after)).expect("several lines");
        let text = |row: &DiffRow| match row.sign {
            "…" => format!("… {}", row.count),
            sign => {
                let spans = serde_json::to_value(&row.line).expect("JSON");
                let spans = spans.as_array().expect("spans").iter();
                let parts =
                    spans.map(|span| span["t"].as_str().or_else(|| span["c"].as_str()).unwrap_or_default().to_owned());
                format!("{sign}{}", parts.collect::<String>())
            }
        };
        diff.rows.iter().map(text).collect()
    }

    #[test]
    fn changed_lines_stand_between_their_neighbors() {
        let before = (1..=20).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        let after = before.replace("line 10\n", "line ten\nand more\n");
        assert_eq!(
            shown(&before, &after),
            [
                "… 6",
                " line 7",
                " line 8",
                " line 9",
                "-line 10",
                "+line ten",
                "+and more",
                " line 11",
                " line 12",
                " line 13",
                "… 7"
            ]
        );
    }

    #[test]
    fn an_invisible_change_is_visible() {
        assert_eq!(shown("a\nb", "a\nb\u{200b}\n"), [" a", "-b", "+bU+200B"]);
    }

    #[test]
    fn only_texts_of_several_lines_have_one() {
        assert!(LineDiff::of(&json!("a"), &json!("b")).is_none());
        assert!(LineDiff::of(&json!(1), &json!("a\nb")).is_none());
        assert!(LineDiff::of(&json!("x\n".repeat(MAX_BYTES)), &json!("y\n")).is_none());
    }
}
