//! What a change overwrites or removes to make room for its own rows: it is run, what it wrote is kept, it is taken back,
//! and the rows are read that have the keys of what it wrote.

use std::collections::HashSet;

use serde_json::Value as Json;
use sql::dialect::Dialect;
use sql::guard::{MAX_COMPARED_ROWS, ReplacedBecause, ReplacedRows};
use sql::schema::KeyColumn;

use super::SqlStatement;
use super::error::DatabaseError;
use super::read_again::{ROWS_READ_AGAIN, key_value, quoted, split};
use super::rows::Rows;

/// Marks the place in the transaction to which the change is taken back.
pub(crate) const SAVEPOINT: &str = "SAVEPOINT before_the_change";
pub(crate) const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT before_the_change";

/// How what a change replaces is found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replacing<'a> {
    pub(crate) rows: &'a ReplacedRows,
    /// The last columns that the change returns: the rows that it writes.
    pub(crate) written: &'a [String],
}

impl Replacing<'_> {
    /// Takes the rows that the change wrote from what it returned.
    pub(crate) fn written(&self, returned: Option<Rows>) -> Result<Rows, DatabaseError> {
        let rows = returned.map(|rows| split(rows, self.written).1).unwrap_or_default();
        if rows.truncation.ended_by.is_some() || rows.truncation.cut_cells > 0 {
            let reason = format!("it changes more than can be compared: at most {MAX_COMPARED_ROWS} rows at a time");
            return Err(DatabaseError::DryRunImpossible { reason });
        }
        Ok(rows)
    }

    /// The statements that read the rows with a key of one of those that were written.
    pub(crate) fn lookups(&self, written: &Rows, dialect: Dialect) -> Vec<SqlStatement> {
        let keyed: Vec<(&[KeyColumn], Vec<&Json>)> = self
            .rows
            .keys
            .iter()
            .flat_map(|key| written.rows.iter().filter_map(|row| Some((key.as_slice(), values(key, written, row)?))))
            .collect();
        // Also without any row, so that the rows before have columns.
        let chunks = if keyed.is_empty() { vec![&keyed[..]] } else { keyed.chunks(ROWS_READ_AGAIN).collect() };
        chunks.into_iter().map(|chunk| self.lookup(chunk, dialect)).collect()
    }

    fn lookup(&self, keyed: &[(&[KeyColumn], Vec<&Json>)], dialect: Dialect) -> SqlStatement {
        let mut parameters = Vec::new();
        let mut conditions = Vec::new();
        for (key, values) in keyed {
            let condition: Vec<String> = key
                .iter()
                .zip(values)
                .map(|(column, value)| {
                    parameters.push(key_value(value));
                    let name = quoted(&column.name, dialect);
                    match (dialect, &column.collation) {
                        (Dialect::Postgres, _) => format!("{name} = ${}", parameters.len()),
                        (Dialect::Sqlite, Some(collation)) => {
                            format!("{name} = ? COLLATE {}", quoted(collation, dialect))
                        }
                        (Dialect::Sqlite | Dialect::Mysql, _) => format!("{name} = ?"),
                    }
                })
                .collect();
            conditions.push(format!("({})", condition.join(" AND ")));
        }
        let columns = self.rows.columns.iter().chain(&self.rows.hidden);
        let columns: Vec<String> = columns.map(|column| quoted(column, dialect)).collect();
        let order = self.rows.keys.first().into_iter().flatten().map(|column| quoted(&column.name, dialect));
        let sql = format!(
            "SELECT {} FROM {}.{} WHERE {} ORDER BY {}",
            columns.join(", "),
            quoted(&self.rows.table.schema, dialect),
            quoted(&self.rows.table.name, dialect),
            if conditions.is_empty() { "1 = 0".to_owned() } else { conditions.join(" OR ") },
            order.collect::<Vec<_>>().join(", ")
        );
        SqlStatement { sql, parameters }
    }

    /// Fails unless every row that was written is found by its keys: then those that are there are found by them too.
    pub(crate) fn check_found(&self, written: &Rows, found: &Rows) -> Result<(), DatabaseError> {
        for (place, key) in self.rows.keys.iter().enumerate() {
            let known: HashSet<String> =
                found.rows.iter().filter_map(|row| Some(text(&values(key, found, row)?))).collect();
            let is_lost = |row: &Vec<Json>| match values(key, written, row) {
                Some(values) => !known.contains(&text(&values)),
                None => place == 0 && self.rows.updates,
            };
            if written.rows.iter().any(is_lost) {
                let reason = match self.rows.reason {
                    ReplacedBecause::MakesRoom => {
                        "the rows that it overwrites or removes are not found by its key, or its own rows replace \
                         each other; write an `UPDATE` of the rows that are there, and an `INSERT` of the new ones"
                    }
                    ReplacedBecause::Updates => {
                        "the rows that it changes are not found by their key; change the rows of one table by a \
                         condition in `WHERE`, with subqueries"
                    }
                    ReplacedBecause::SetsOff => {
                        "a trigger removes the rows that it writes, or changes their key, so they cannot be shown as \
                         they are at the end; write them as the trigger leaves them"
                    }
                };
                return Err(DatabaseError::DryRunImpossible { reason: reason.to_owned() });
            }
        }
        Ok(())
    }
}

/// The values of a key; `None` if one of them is NULL, which is the same as no other.
fn values<'r>(key: &[KeyColumn], rows: &Rows, row: &'r [Json]) -> Option<Vec<&'r Json>> {
    let value = |column: &KeyColumn| {
        let exactly = rows.columns.iter().position(|it| it.name == column.name);
        let place =
            exactly.or_else(|| rows.columns.iter().position(|it| it.name.eq_ignore_ascii_case(&column.name)))?;
        row.get(place).filter(|value| !value.is_null())
    };
    key.iter().map(value).collect()
}

fn text(values: &[&Json]) -> String {
    serde_json::json!(values).to_string()
}
