//! Changes: what is run, what is shown of it, and what a later commit is compared with.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::error::DatabaseError;
use super::rows::Rows;
use super::settings::RowCaps;
use super::{ReadQuery, SqlStatement};
use crate::dialect::Dialect;
use crate::schema::TableName;
use crate::value::Value;

/// The most rows that are shown as they are after a change: SQLite nests at most 1,000 conditions.
const MAX_TOUCHED_ROWS: usize = 500;

/// A change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteQuery {
    pub statement: SqlStatement,
    /// The rows that it touches, to show them before and after it.
    pub touched: Option<TouchedRows>,
    /// A change of more rows is rolled back.
    pub max_affected: Option<u64>,
    pub caps: Option<RowCaps>,
    pub timeout: Option<Duration>,
}

/// Where the rows are that a change touches.
#[derive(Debug, Clone, PartialEq)]
pub struct TouchedRows {
    /// Gives the rows before the change, each with the columns of the key.
    pub select: SqlStatement,
    pub table: TableName,
    /// The columns of the table's primary key, as they are called in the result of `select`.
    pub key: Vec<String>,
}

/// What becomes of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteMode {
    /// It is rolled back.
    DryRun,
    /// It is committed, unless it is no longer the one with that [`WriteOutcome::digest`].
    Commit { expected: Option<String> },
}

/// What a change did, or would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteOutcome {
    pub rows_affected: u64,
    /// The rows of a `RETURNING` clause.
    pub returned: Option<Rows>,
    pub before: Option<Rows>,
    /// The rows of `before` with the same keys, after the change. Rows that were deleted, or whose key changed, are missing.
    pub after: Option<Rows>,
    /// Of `rows_affected` and `before`, not of `after`: a statement may write the time.
    pub digest: String,
}

impl WriteOutcome {
    pub(crate) fn with_digest(mut self) -> Self {
        let before = self.before.as_ref().map(|rows| (&rows.rows, rows.truncation.ended_by.is_some()));
        let shown = json!([self.rows_affected, before.map(|(rows, truncated)| json!([rows, truncated]))]);
        let digest = Sha256::digest(shown.to_string().as_bytes());
        self.digest = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest);
        self
    }

    /// Decides whether a change may be committed.
    pub(crate) fn check(&self, mode: &WriteMode, max_affected: Option<u64>) -> Result<bool, DatabaseError> {
        if let Some(max) = max_affected.filter(|max| self.rows_affected > *max) {
            return Err(DatabaseError::TooManyRows { affected: self.rows_affected, max });
        }
        match mode {
            WriteMode::DryRun => Ok(false),
            WriteMode::Commit { expected: Some(expected) } if *expected != self.digest => Err(DatabaseError::Changed),
            WriteMode::Commit { .. } => Ok(true),
        }
    }
}

impl TouchedRows {
    /// Returns the statement that reads the same rows again by their keys; `None` if there are no rows.
    pub(crate) fn read_again(&self, before: &Rows, dialect: Dialect) -> Option<ReadQuery> {
        let places: Option<Vec<usize>> =
            self.key.iter().map(|key| before.columns.iter().position(|column| column.name == *key)).collect();
        let places = places.filter(|places| !places.is_empty())?;
        let mut parameters = Vec::new();
        let mut conditions = Vec::new();
        for row in before.rows.iter().take(MAX_TOUCHED_ROWS) {
            let condition: Vec<String> = places
                .iter()
                .map(|&place| {
                    parameters.push(key_value(&row[place]));
                    let name = quoted(&before.columns[place].name, dialect);
                    match dialect {
                        Dialect::Postgres => format!("{name} = ${}", parameters.len()),
                        Dialect::Sqlite | Dialect::Mysql => format!("{name} = ?"),
                    }
                })
                .collect();
            conditions.push(format!("({})", condition.join(" AND ")));
        }
        if conditions.is_empty() {
            return None;
        }
        let columns: Vec<String> = before.columns.iter().map(|column| quoted(&column.name, dialect)).collect();
        let order: Vec<String> = places.iter().map(|&place| quoted(&before.columns[place].name, dialect)).collect();
        let sql = format!(
            "SELECT {} FROM {}.{} WHERE {} ORDER BY {}",
            columns.join(", "),
            quoted(&self.table.schema, dialect),
            quoted(&self.table.name, dialect),
            conditions.join(" OR "),
            order.join(", ")
        );
        Some(ReadQuery::new(sql, parameters))
    }
}

/// Returns what a cell stands for, bound to a parameter.
fn key_value(cell: &Json) -> Value {
    let encoded = cell.as_object().and_then(|object| object.get("base64")).and_then(Json::as_str);
    match encoded.map(|text| base64::engine::general_purpose::STANDARD.decode(text)) {
        Some(Ok(bytes)) => Value::Bytes(bytes),
        _ => Value::from(cell),
    }
}

/// Returns a name as the dialect quotes it.
fn quoted(name: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
        Dialect::Sqlite | Dialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::ResultColumn;

    #[test]
    fn rows_are_found_again_by_keys_that_are_bound_and_names_that_are_quoted() {
        let column = |name: &str| ResultColumn { name: name.to_owned(), type_name: "text".to_owned() };
        let before = Rows {
            columns: vec![column("a\"b"), column("k`")],
            rows: vec![vec![json!("x"), json!({"base64": "/wA="})], vec![json!("y"), json!(2)]],
            ..Rows::default()
        };
        let table = TableName { schema: "s".to_owned(), name: "t".to_owned() };
        let touched = TouchedRows { select: SqlStatement::default(), table, key: vec!["k`".to_owned()] };
        let again = touched.read_again(&before, Dialect::Postgres).unwrap().statement;
        assert_eq!(
            again.sql,
            "SELECT \"a\"\"b\", \"k`\" FROM \"s\".\"t\" WHERE (\"k`\" = $1) OR (\"k`\" = $2) ORDER BY \"k`\""
        );
        assert_eq!(again.parameters, [Value::Bytes(vec![0xff, 0]), Value::Integer(2)]);
        let again = touched.read_again(&before, Dialect::Mysql).unwrap().statement;
        assert_eq!(again.sql, "SELECT `a\"b`, `k``` FROM `s`.`t` WHERE (`k``` = ?) OR (`k``` = ?) ORDER BY `k```");
        assert_eq!(touched.read_again(&Rows::default(), Dialect::Mysql), None);
    }

    #[test]
    fn a_commit_is_refused_if_the_rows_are_not_those_that_were_shown() {
        let outcome = WriteOutcome { rows_affected: 2, ..WriteOutcome::default() }.with_digest();
        let commit = |expected: &str| WriteMode::Commit { expected: Some(expected.to_owned()) };
        assert_eq!(outcome.check(&commit(&outcome.digest), None), Ok(true));
        assert_eq!(outcome.check(&commit("other"), None), Err(DatabaseError::Changed));
        assert_eq!(outcome.check(&WriteMode::DryRun, None), Ok(false));
        assert_eq!(outcome.check(&WriteMode::DryRun, Some(1)), Err(DatabaseError::TooManyRows { affected: 2, max: 1 }));
    }
}
