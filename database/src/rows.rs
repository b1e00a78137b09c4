//! The rows that a statement gave, as JSON, within the caps.
//!
//! Each value is exact. Integers are JSON integers up to 64 bits and text beyond; decimals are text; bytes are text if
//! they are readable UTF-8 and otherwise `{"base64": "…"}`; dates and times are text in the form of RFC 3339, and in the
//! database's own if that form cannot say it (infinity, years before Christ, `0000-00-00`).

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use sql::settings::RowCaps;

/// The rows of a statement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    pub columns: Vec<ResultColumn>,
    /// A value for each column.
    pub rows: Vec<Vec<Json>>,
    /// What each value is in the database, a letter each, where a column may hold more than one type (SQLite).
    pub forms: Vec<String>,
    pub truncation: Truncation,
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// Unique in the result: the second `id` is `id_2`.
    pub name: String,
    /// The type as the database calls it, like `numeric`.
    pub type_name: String,
}

/// What is missing from rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truncation {
    /// The cap at which reading stopped, if there was more to read.
    pub ended_by: Option<RowCap>,
    /// How many texts were cut, each of which ends with `…`.
    pub cut_cells: usize,
}

/// Which cap was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowCap {
    Rows(usize),
    Bytes(usize),
}

/// Takes rows until a cap is reached.
#[derive(Debug)]
pub(crate) struct RowCollector {
    rows: Rows,
    caps: RowCaps,
    bytes: usize,
}

impl RowCollector {
    pub(crate) fn new(names_and_types: impl IntoIterator<Item = (String, String)>, caps: RowCaps) -> Self {
        let mut columns: Vec<ResultColumn> = Vec::new();
        for (name, type_name) in names_and_types {
            let mut unique = name.clone();
            let mut number = 2;
            while columns.iter().any(|column| column.name == unique) {
                unique = format!("{name}_{number}");
                number += 1;
            }
            columns.push(ResultColumn { name: unique, type_name });
        }
        Self { rows: Rows { columns, ..Rows::default() }, caps, bytes: 0 }
    }

    /// Takes a row. Returns whether another one would be taken; a row beyond a cap is dropped.
    pub(crate) fn push(&mut self, mut row: Vec<Json>) -> bool {
        if self.rows.rows.len() >= self.caps.rows {
            self.rows.truncation.ended_by = Some(RowCap::Rows(self.caps.rows));
            return false;
        }
        let mut cut_cells = 0;
        let mut bytes = 0;
        for cell in &mut row {
            let length = json_length(cell);
            if length > self.caps.cell_bytes {
                cut(cell, self.caps.cell_bytes);
                cut_cells += 1;
            }
            bytes += length.min(self.caps.cell_bytes);
        }
        if self.bytes + bytes > self.caps.bytes {
            self.rows.truncation.ended_by = Some(RowCap::Bytes(self.caps.bytes));
            return false;
        }
        self.bytes += bytes;
        self.rows.truncation.cut_cells += cut_cells;
        self.rows.rows.push(row);
        true
    }

    /// Says that a row was too large to be read at all.
    pub(crate) fn stop_by_bytes(&mut self) {
        self.rows.truncation.ended_by = Some(RowCap::Bytes(self.caps.bytes));
    }

    pub(crate) fn finish(self) -> Rows {
        self.rows
    }
}

impl Rows {
    /// The form of a row; empty if the columns tell it.
    pub(crate) fn form(&self, place: usize) -> &str {
        self.forms.get(place).map_or("", String::as_str)
    }

    /// The first row of each kind.
    pub(crate) fn distinct(self) -> Self {
        let mut seen = HashSet::new();
        let is_new: Vec<bool> = (0..self.rows.len())
            .map(|place| seen.insert(format!("{} {}", self.form(place), Json::from(self.rows[place].clone()))))
            .collect();
        let Self { columns, rows, forms, truncation } = self;
        let rows = rows.into_iter().zip(&is_new).filter(|(_, is_new)| **is_new).map(|(row, _)| row).collect();
        let forms = forms.into_iter().zip(&is_new).filter(|(_, is_new)| **is_new).map(|(form, _)| form).collect();
        Self { columns, rows, forms, truncation }
    }

    /// Takes the last columns away.
    pub(crate) fn split_columns(&mut self, at: usize) -> Self {
        Self {
            columns: self.columns.split_off(at),
            rows: self.rows.iter_mut().map(|row| row.split_off(at)).collect(),
            forms: self.forms.iter_mut().map(|form| form.split_off(at)).collect(),
            truncation: self.truncation,
        }
    }

    /// Appends rows of the same columns.
    pub(crate) fn join(all: &mut Option<Self>, more: Self) {
        match all {
            Some(all) => {
                all.rows.extend(more.rows);
                all.forms.extend(more.forms);
                all.truncation.ended_by = all.truncation.ended_by.or(more.truncation.ended_by);
                all.truncation.cut_cells += more.truncation.cut_cells;
            }
            None => *all = Some(more),
        }
    }
}

/// The rows in an order of their own, with the columns that are compared.
pub(crate) fn compared(rows: &Rows, left_out: &[String]) -> Json {
    let places: Vec<usize> = (0..rows.columns.len())
        .filter(|&place| !left_out.iter().any(|name| name.eq_ignore_ascii_case(&rows.columns[place].name)))
        .collect();
    // Where each value has a type of its own, that of the column says nothing.
    let type_of = |place: usize| if rows.forms.is_empty() { rows.columns[place].type_name.as_str() } else { "" };
    let names: Vec<[&str; 2]> =
        places.iter().map(|&place| [rows.columns[place].name.as_str(), type_of(place)]).collect();
    let line = |(number, row): (usize, &Vec<Json>)| {
        let form = rows.form(number).as_bytes();
        let cells = places.iter().map(|&place| json!([form.get(place), row[place]]));
        Json::Array(cells.collect()).to_string()
    };
    let mut lines: Vec<String> = rows.rows.iter().enumerate().map(line).collect();
    lines.sort_unstable();
    json!([names, lines])
}

/// Bounds what is shown.
pub(crate) fn cut_rows(rows: Rows, caps: RowCaps) -> Rows {
    let names = rows.columns.into_iter().map(|column| (column.name, column.type_name));
    let mut collector = RowCollector::new(names, caps);
    for row in rows.rows {
        if !collector.push(row) {
            break;
        }
    }
    let mut cut = collector.finish();
    cut.truncation.ended_by = cut.truncation.ended_by.or(rows.truncation.ended_by);
    cut.truncation.cut_cells += rows.truncation.cut_cells;
    cut
}

/// Returns about how long a value is in JSON, without writing it.
fn json_length(value: &Json) -> usize {
    match value {
        Json::Null => 4,
        Json::Bool(_) => 5,
        Json::Number(_) => 12,
        Json::String(text) => text.len() + 2,
        Json::Array(items) => 2 + items.iter().map(|item| json_length(item) + 1).sum::<usize>(),
        Json::Object(fields) => {
            2 + fields.iter().map(|(name, field)| name.len() + 4 + json_length(field)).sum::<usize>()
        }
    }
}

/// Makes a value shorter: text stays text, and everything else becomes the first part of its JSON.
fn cut(cell: &mut Json, max_bytes: usize) {
    let text = match cell.take() {
        Json::String(text) => text,
        other => other.to_string(),
    };
    *cell = Json::String(cut_text(text, max_bytes));
}

fn cut_text(mut text: String, max_bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(max_bytes));
    text.push('…');
    text
}

/// Returns a float as JSON; what JSON does not have is text.
pub(crate) fn float_to_json(float: f64) -> Json {
    match serde_json::Number::from_f64(float) {
        Some(number) => Json::Number(number),
        None if float.is_nan() => Json::from("NaN"),
        None => Json::from(if float > 0.0 { "Infinity" } else { "-Infinity" }),
    }
}

/// Returns the digits of an integer as a JSON integer, or as text if it has more than 64 bits.
pub(crate) fn integer_to_json(digits: &str) -> Json {
    if let Ok(integer) = digits.parse::<i64>() {
        return Json::from(integer);
    }
    digits.parse::<u64>().map_or_else(|_| Json::from(digits), Json::from)
}

/// Returns the document that a text holds, or the text if a number in it would lose digits.
pub(crate) fn document_to_json(text: String) -> Json {
    match serde_json::from_str(&text) {
        Ok(json) if keeps_numbers(&text) => json,
        _ => Json::String(text),
    }
}

/// Returns whether every number in a JSON text is read as what it says.
fn keeps_numbers(text: &str) -> bool {
    let mut in_string = false;
    let mut escaped = false;
    let mut number = String::new();
    for character in text.chars().chain([' ']) {
        if !in_string && matches!(character, '0'..='9' | '-' | '+' | '.' | 'e' | 'E') {
            number.push(character);
            continue;
        }
        if number.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
            let digits = number.split(['e', 'E']).next().unwrap_or_default();
            let significant = digits.trim_start_matches(['-', '0', '.']).chars().filter(char::is_ascii_digit).count();
            let is_integer = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
            // A double holds any 15 digits.
            if !is_integer
                && significant > 15
                && serde_json::from_str(&number).is_ok_and(|read: Json| !number.eq(&read.to_string()))
            {
                return false;
            }
        }
        number.clear();
        match character {
            '"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = in_string && character == '\\' && !escaped;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn collector(rows: usize, bytes: usize, cell_bytes: usize) -> RowCollector {
        RowCollector::new([("a".to_owned(), "text".to_owned())], RowCaps { rows, bytes, cell_bytes })
    }

    #[test]
    fn reading_stops_at_the_cap_of_rows_only_if_there_are_more() {
        let mut rows = collector(2, 1000, 1000);
        assert!(rows.push(vec![json!("x")]));
        assert!(rows.push(vec![json!("y")]));
        assert_eq!(rows.rows.truncation, Truncation::default());
        assert!(!rows.push(vec![json!("z")]));
        let rows = rows.finish();
        assert_eq!(rows.rows.len(), 2);
        assert_eq!(rows.truncation.ended_by, Some(RowCap::Rows(2)));
    }

    #[test]
    fn long_cells_are_cut_between_characters_and_many_bytes_end_the_reading() {
        let mut rows = collector(100, 30, 10);
        assert!(rows.push(vec![json!("日本語日本語")]));
        assert!(rows.push(vec![json!({"a": [1, 2, 3, 4]})]));
        assert!(rows.push(vec![json!("b")]));
        assert!(!rows.push(vec![json!("0123456789")]));
        let rows = rows.finish();
        assert_eq!(rows.rows, vec![vec![json!("日本語…")], vec![json!("{\"a\":[1,2,…")], vec![json!("b")]]);
        assert_eq!(rows.truncation, Truncation { ended_by: Some(RowCap::Bytes(30)), cut_cells: 2 });
    }

    #[test]
    fn the_same_name_twice_gets_a_number_that_is_free() {
        let names = ["id", "id", "id_2", "id"].map(|name| (name.to_owned(), "int4".to_owned()));
        let columns = RowCollector::new(names, RowCaps::default()).finish().columns;
        assert_eq!(
            columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(),
            ["id", "id_2", "id_2_2", "id_3"]
        );
    }

    #[test]
    fn a_document_stays_text_if_a_number_would_lose_digits() {
        let document = |text: &str| document_to_json(text.to_owned());
        assert_eq!(
            document("[1.5, 18446744073709551615, \"1.00000000000000000001\"]"),
            json!([1.5, u64::MAX, "1.00000000000000000001"])
        );
        assert_eq!(document("{\"a\": 1.00000000000000000001}"), json!("{\"a\": 1.00000000000000000001}"));
        assert_eq!(document("18446744073709551616"), json!("18446744073709551616"));
        assert_eq!(document("{\"\\\"1.00000000000000000001\": 0.1}"), json!({"\"1.00000000000000000001": 0.1}));
    }

    #[test]
    fn a_number_without_a_json_form_is_a_text() {
        assert_eq!(float_to_json(f64::NEG_INFINITY), json!("-Infinity"));
    }
}
