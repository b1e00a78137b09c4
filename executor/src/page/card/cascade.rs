//! The rows of one table that foreign keys change with a change in a database, as the card shows them.

use ground::page_client::api_client::GateCascade;
use ground::task::confirmation::TriedCascade;
use protocol::invisible;
use serde::Serialize;
use serde_json::{Value, json};

use crate::page::diff::LineDiff;
use crate::page::visible::VisibleText;

/// The rows of one table that foreign keys change.
#[derive(Debug, Serialize)]
pub(super) struct ShownCascade {
    table: String,
    /// Like `3 rows are deleted`.
    words: String,
    /// How many of the rows are shown.
    shown: usize,
    /// How many rows there are.
    count: u64,
    diff: Option<LineDiff>,
    /// The rows as they are, if the lines do not differ.
    rows: Option<VisibleText>,
}

impl ShownCascade {
    pub(super) fn of(cascade: &TriedCascade) -> Self {
        let (before, after) = (lines(&cascade.before), lines(&cascade.after));
        let diff = LineDiff::of(&before, &after);
        let rows = (diff.is_none() && before != json!("")).then(|| VisibleText::of(&before));
        let count = cascade.deleted + cascade.updated;
        let words = words(cascade);
        Self { table: cascade.table.clone(), words, shown: cascade.before.len(), count, diff, rows }
    }

    pub(super) fn as_gate(&self) -> GateCascade {
        GateCascade {
            table: invisible::escaped(&self.table),
            words: self.words.clone(),
            diff: self.diff.as_ref().map(LineDiff::plain),
            rows: self.rows.as_ref().map(VisibleText::plain),
        }
    }
}

/// Rows, one a line. Each has an end, so that a single one is compared as a line too.
pub(super) fn lines(rows: &[Value]) -> Value {
    let lines: Vec<_> = rows.iter().map(Value::to_string).collect();
    Value::String(lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect())
}

fn words(cascade: &TriedCascade) -> String {
    let rows = |count: u64, what: &str| match count {
        0 => None,
        1 => Some(format!("1 row is {what}")),
        count => Some(format!("{count} rows are {what}")),
    };
    let parts = [rows(cascade.deleted, "deleted"), rows(cascade.updated, "changed")];
    let words = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if cascade.is_part { format!("{words}, and there are more") } else { words }
}
