//! What a caller is given of rows: all of them as data, and a short table to look at.

use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::database::{RowCap, Rows, WriteOutcome};

/// The most rows that need no preview, and the rows of one.
const PREVIEW_ROWS: usize = 20;
const MAX_PREVIEW_CELL_CHARS: usize = 40;

/// What is counted of rows that come in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CountMode {
    /// All rows; the caller counted them with a statement of their own.
    Exact,
    /// Whether there is a next page: one row more than the page has was read.
    #[default]
    NextPages,
    /// Nothing.
    None,
}

/// A part of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The first one is 1.
    pub number: u64,
    /// The rows of a page.
    pub limit: usize,
}

impl Page {
    /// Returns how many rows to read for it.
    pub fn rows_to_read(self, count: CountMode) -> usize {
        self.limit.saturating_add(usize::from(count == CountMode::NextPages))
    }

    /// Returns how many rows come before it.
    pub fn offset(self) -> u64 {
        self.number.saturating_sub(1).saturating_mul(u64::try_from(self.limit).unwrap_or(u64::MAX))
    }
}

/// The JSON that answers a statement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub row_count: usize,
    pub columns: Vec<AnswerColumn>,
    pub data: Vec<Map<String, Json>>,
    /// The first rows as a plain table; only if there are too many to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    pub meta: AnswerMeta,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnswerColumn {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
}

/// What is known about the rows that are not in the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AnswerMeta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_next_page: Option<bool>,
    /// Why rows or parts of cells are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl Answer {
    /// Answers a read. With [`CountMode::NextPages`] the rows may hold one more than the page, which is left out.
    pub fn of_read(mut rows: Rows, page: Option<Page>, count: CountMode, total: Option<u64>) -> Self {
        let mut meta = AnswerMeta { total, ..AnswerMeta::default() };
        if let Some(page) = page {
            meta.page = Some(page.number);
            meta.limit = Some(page.limit);
            let read = u64::try_from(rows.rows.len()).unwrap_or(u64::MAX);
            meta.has_next_page = match count {
                CountMode::Exact => total.map(|total| page.offset().saturating_add(read) < total),
                CountMode::NextPages => Some(rows.rows.len() > page.limit || rows.truncation.ended_by.is_some()),
                CountMode::None => None,
            };
            rows.rows.truncate(page.limit);
        }
        Self::new(rows, meta)
    }

    /// Answers a change with the rows that it returned, or else with those that it touched, as they are after it.
    pub fn of_write(outcome: WriteOutcome, dry_run: bool) -> Self {
        let rows = outcome.returned.or(outcome.after).unwrap_or_default();
        Self::new(rows, AnswerMeta { total: Some(outcome.rows_affected), dry_run, ..AnswerMeta::default() })
    }

    fn new(rows: Rows, mut meta: AnswerMeta) -> Self {
        meta.truncated = truncated(&rows);
        let preview = (rows.rows.len() > PREVIEW_ROWS).then(|| preview(&rows));
        let columns = rows
            .columns
            .iter()
            .map(|column| AnswerColumn { name: column.name.clone(), type_name: column.type_name.clone() })
            .collect();
        let names: Vec<String> = rows.columns.into_iter().map(|column| column.name).collect();
        let data: Vec<Map<String, Json>> =
            rows.rows.into_iter().map(|row| names.iter().cloned().zip(row).collect()).collect();
        Self { row_count: data.len(), columns, data, preview, meta }
    }
}

fn truncated(rows: &Rows) -> Option<String> {
    let mut reasons = Vec::new();
    match rows.truncation.ended_by {
        Some(RowCap::Rows(most)) => reasons.push(format!("there are more than {most} rows")),
        Some(RowCap::Bytes(most)) => reasons.push(format!("the rows have more than {most} bytes")),
        None => {}
    }
    if rows.truncation.cut_cells > 0 {
        reasons.push(format!("{} long values were cut", rows.truncation.cut_cells));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Writes the first rows as a table.
fn preview(rows: &Rows) -> String {
    let mut lines: Vec<Vec<String>> = vec![rows.columns.iter().map(|column| preview_cell(&column.name)).collect()];
    for row in rows.rows.iter().take(PREVIEW_ROWS) {
        lines.push(
            row.iter()
                .map(|cell| cell.as_str().map_or_else(|| preview_cell(&cell.to_string()), preview_cell))
                .collect(),
        );
    }
    let widths: Vec<usize> = (0..rows.columns.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default())
        .collect();
    let mut table = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        table.push_str(cells.join(" | ").trim_end());
        table.push('\n');
        if number == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            table.push_str(&rule.join("-+-"));
            table.push('\n');
        }
    }
    let left = rows.rows.len().saturating_sub(PREVIEW_ROWS);
    table.push_str(&format!("… {left} more rows\n"));
    table
}

/// Returns a cell in one line, cut if it is long.
fn preview_cell(text: &str) -> String {
    let mut characters = text.chars().map(|c| if c.is_control() || c == '|' { ' ' } else { c });
    let mut cell: String = characters.by_ref().take(MAX_PREVIEW_CELL_CHARS).collect();
    if characters.next().is_some() {
        cell.pop();
        cell.push('…');
    }
    cell
}
