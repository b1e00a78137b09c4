//! What it takes to read rows once more, by their keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use sql::dialect::Dialect;
use sql::value::Value;

use super::rows::Rows;

/// How many rows are read again at once: SQLite nests at most 1,000 conditions.
pub(super) const ROWS_READ_AGAIN: usize = 400;

/// Takes the columns of the written rows, which are the last ones, from those of the statement itself.
pub(super) fn split(mut rows: Rows, columns: &[String]) -> (Option<Rows>, Rows) {
    let own = rows.columns.len().saturating_sub(columns.len());
    let mut written = rows.split_columns(own);
    for (column, name) in written.columns.iter_mut().zip(columns) {
        name.clone_into(&mut column.name);
    }
    ((own > 0).then_some(rows), written)
}

/// Returns what a cell stands for, bound to a parameter.
pub(super) fn key_value(cell: &Json) -> Value {
    let encoded = cell.as_object().and_then(|object| object.get("base64")).and_then(Json::as_str);
    match encoded.map(|text| STANDARD.decode(text)) {
        Some(Ok(bytes)) => Value::Bytes(bytes),
        _ => Value::from(cell),
    }
}

/// Returns a name as the dialect quotes it.
pub(super) fn quoted(name: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
        Dialect::Sqlite | Dialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
