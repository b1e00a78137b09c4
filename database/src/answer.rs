//! What a caller is given of rows: all of them as data, and a short table to look at.

use serde::Serialize;
use serde_json::{Map, Value as Json};
use serde_with_macros::skip_serializing_none;

use crate::{RowCap, Rows, WriteOutcome};

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
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AnswerMeta {
    pub total: Option<u64>,
    pub page: Option<u64>,
    pub limit: Option<usize>,
    pub has_next_page: Option<bool>,
    /// Why rows or parts of cells are missing.
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
                // A page that is not full is the last one.
                CountMode::None => {
                    (rows.rows.len() < page.limit && rows.truncation.ended_by.is_none()).then_some(false)
                }
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
    table + &format!("… {left} more rows\n")
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ResultColumn, Truncation};

    fn rows(count: usize) -> Rows {
        let column =
            |name: &str, type_name: &str| ResultColumn { name: name.to_owned(), type_name: type_name.to_owned() };
        Rows {
            columns: vec![column("id", "int8"), column("name", "text")],
            rows: (0..count).map(|n| vec![json!(n), json!(format!("name {n}"))]).collect(),
            truncation: Truncation::default(),
            ..Rows::default()
        }
    }

    #[test]
    fn an_answer_has_columns_and_data_and_says_what_is_missing() {
        let mut rows = rows(2);
        rows.rows[1][1] = Json::Null;
        rows.truncation = Truncation { ended_by: Some(RowCap::Rows(2)), cut_cells: 1 };
        let answer = serde_json::to_value(Answer::of_read(rows, None, CountMode::None, None)).unwrap();
        let expected = json!({
            "row_count": 2,
            "columns": [{"name": "id", "type": "int8"}, {"name": "name", "type": "text"}],
            "data": [{"id": 0, "name": "name 0"}, {"id": 1, "name": null}],
            "meta": {"truncated": "there are more than 2 rows; 1 long values were cut"},
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn a_next_page_is_known_from_one_row_more_or_from_the_total() {
        let page = Page { number: 2, limit: 3 };
        assert_eq!(
            (page.offset(), page.rows_to_read(CountMode::NextPages), page.rows_to_read(CountMode::Exact)),
            (3, 4, 3)
        );
        let next = |count, read, total| {
            let answer = Answer::of_read(rows(read), Some(page), count, total);
            assert_eq!((answer.meta.page, answer.meta.limit), (Some(2), Some(3)));
            (answer.row_count, answer.meta.has_next_page)
        };
        assert_eq!(next(CountMode::NextPages, 4, None), (3, Some(true)));
        assert_eq!(next(CountMode::NextPages, 3, None), (3, Some(false)));
        assert_eq!(next(CountMode::Exact, 3, Some(7)), (3, Some(true)));
        assert_eq!(next(CountMode::Exact, 3, Some(6)), (3, Some(false)));
        assert_eq!(next(CountMode::None, 3, None), (3, None));
        assert_eq!(next(CountMode::None, 2, None), (2, Some(false)));
    }

    #[test]
    fn many_rows_have_a_preview_of_the_first_ones_with_short_cells() {
        assert_eq!(Answer::of_read(rows(20), None, CountMode::None, None).preview, None);
        let mut many = rows(22);
        many.rows[0][1] = json!(format!("a|b\n{}", "ä".repeat(50)));
        let preview = Answer::of_read(many, None, CountMode::None, None).preview.unwrap();
        let lines: Vec<&str> = preview.lines().collect();
        assert_eq!(lines.len(), 23);
        assert_eq!(lines[0], "id | name");
        assert_eq!(lines[1], format!("---+-{}", "-".repeat(40)));
        assert_eq!(lines[2], format!("0  | a b {}…", "ä".repeat(35)));
        assert_eq!(lines[3], "1  | name 1");
        assert_eq!(lines[22], "… 2 more rows");
    }

    #[test]
    fn a_change_is_answered_with_the_rows_that_it_returned_or_touched() {
        let outcome = WriteOutcome { rows_affected: 5, after: Some(rows(2)), ..WriteOutcome::default() };
        let answer = Answer::of_write(outcome.clone(), true);
        assert_eq!((answer.row_count, answer.meta.total, answer.meta.dry_run), (2, Some(5), true));
        let answer = Answer::of_write(WriteOutcome { returned: Some(rows(1)), ..outcome }, false);
        assert_eq!((answer.row_count, answer.meta.dry_run), (1, false));
    }
}
