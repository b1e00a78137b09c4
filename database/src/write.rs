//! Changes: what is run, what is shown of it, and what a later commit is compared with.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use sql::dialect::Dialect;
use sql::guard::{Cascade, MAX_COMPARED_ROWS, OtherRows, ReplacedBecause, ReplacedRows};
use sql::schema::TableName;
use sql::settings::RowCaps;

use super::SqlStatement;
use super::cascades::{CascadeOutcome, CascadeSearch, CascadedRows};
use super::error::DatabaseError;
use super::read_again::{ROWS_READ_AGAIN, key_value, quoted, split};
use super::replaced::Replacing;
use super::rows::{Rows, compared, cut_rows};

/// How much of the rows of a change is read, so that all of it is compared, whatever is shown.
const COMPARED: RowCaps = RowCaps { rows: MAX_COMPARED_ROWS, bytes: 64 << 20, cell_bytes: 16 << 20 };

/// A change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteQuery {
    pub statement: SqlStatement,
    /// The rows that it touches, to show them before and after it.
    pub touched: Option<TouchedRows>,
    /// What is run in place of `statement`, to show the rows that it writes.
    pub written: Option<WrittenRows>,
    /// What is there already and is overwritten or removed: it is found with the rows of `written`.
    pub replaced: Option<ReplacedRows>,
    /// How the rows of `written` are read again once its triggers are done, which may change them.
    pub settled: Option<ReplacedRows>,
    /// Columns that are compared and never shown, of the rows as they were.
    pub hidden: Vec<String>,
    /// Columns to which the statement gives no value, and the database may give another one each time: they are shown, and
    /// not compared.
    pub set_by_database: Vec<String>,
    /// The foreign keys that carry it on to rows of other tables, which are shown and compared too; those of the table that
    /// it changes come first.
    pub cascades: Vec<Cascade>,
    /// Gives the rows that it changes, if nothing else does before the change.
    pub cascades_from: Option<SqlStatement>,
    /// A human approves what is shown: what cannot be compared as a whole is not tried.
    pub is_approved: bool,
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

/// A change that gives the rows that it writes.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenRows {
    /// The change, with these columns as the last ones that it returns.
    pub statement: SqlStatement,
    pub columns: Vec<String>,
    /// They are the rows as they were: it deletes them.
    pub are_before: bool,
    /// How the rows are known of a server that returns none (MySQL).
    pub otherwise: OtherRows,
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
    /// How many rows that were there it overwrote or removed to make room, if it may; they are `before`.
    pub replaced: Option<u64>,
    /// The rows of a `RETURNING` clause.
    pub returned: Option<Rows>,
    pub before: Option<Rows>,
    /// The rows of `before` with the same keys, after the change. Rows that were deleted, or whose key changed, are missing.
    pub after: Option<Rows>,
    /// The rows of other tables that foreign keys change with it.
    pub cascades: Vec<CascadedRows>,
    /// Of `rows_affected`, `before`, `after` and `cascades`, all of them, but for the columns that the database sets.
    pub digest: String,
}

impl WriteQuery {
    /// The change as it is run: with the rows that it writes, if they are shown.
    pub(crate) fn run(&self) -> &SqlStatement {
        self.written.as_ref().map_or(&self.statement, |written| &written.statement)
    }

    /// How much of the rows of the change is read.
    pub(crate) fn caps(&self, caps: RowCaps) -> RowCaps {
        if self.touched.is_some() || self.written.is_some() { COMPARED } else { caps }
    }

    /// The search for rows of other tables that foreign keys change with the rows `before`.
    pub(crate) fn cascade_search(&self, before: Option<&Rows>, dialect: Dialect) -> Option<CascadeSearch<'_>> {
        CascadeSearch::new(&self.cascades, before, dialect)
    }

    /// Gives the rows from which foreign keys lead on, if they were not read.
    pub(crate) fn read_cascades_from(&self, before: Option<&Rows>) -> Option<&SqlStatement> {
        self.cascades_from.as_ref().filter(|_| before.is_none() && !self.cascades.is_empty())
    }

    /// Leaves out what is not shown.
    pub(crate) fn for_mode(mut self, mode: &WriteMode) -> Self {
        if *mode == (WriteMode::Commit { expected: None }) {
            (self.touched, self.written, self.replaced, self.settled) = (None, None, None, None);
            (self.cascades, self.cascades_from) = (Vec::new(), None);
        }
        self.is_approved |= matches!(mode, WriteMode::Commit { expected: Some(_) });
        self
    }

    /// How what it replaces is found, and the columns of the rows that it writes.
    pub(crate) fn replacing(&self) -> Option<Replacing<'_>> {
        Some(Replacing { rows: self.replaced.as_ref()?, written: &self.written.as_ref()?.columns })
    }

    /// How the rows that it wrote are found after its triggers.
    pub(crate) fn settling(&self) -> Option<Replacing<'_>> {
        Some(Replacing { rows: self.settled.as_ref()?, written: &self.written.as_ref()?.columns })
    }

    /// The rows that were written, as they were found after its triggers.
    pub(crate) fn settle(&self, written: Rows, found: Rows) -> Result<Rows, DatabaseError> {
        match self.settling().map(|settling| settling.check_found(&written, &found)) {
            Some(Err(error)) if self.is_approved => Err(error),
            Some(Err(_)) | None => Ok(written),
            Some(Ok(())) => Ok(found),
        }
    }

    /// The statements that read the rows that it touches once more, with what is hidden of them.
    pub(crate) fn read_hidden(&self, before: Option<&Rows>, dialect: Dialect) -> Vec<SqlStatement> {
        let again = self.touched.as_ref().zip(before).filter(|_| !self.hidden.is_empty());
        again.and_then(|(touched, before)| touched.read_rows_of(before, &self.hidden, dialect)).unwrap_or_default()
    }

    /// The rows before, with what is hidden of them if all were found again.
    pub(crate) fn with_hidden(again: Option<Rows>, before: Option<Rows>) -> Option<Rows> {
        let count = before.as_ref().map(|before| before.rows.len());
        again.filter(|again| Some(again.rows.len()) == count).or(before)
    }

    /// The statements that read the rows that it touched after it.
    pub(crate) fn read_after(&self, before: Option<&Rows>, dialect: Dialect) -> Vec<SqlStatement> {
        let Some((touched, before)) = self.touched.as_ref().zip(before) else { return Vec::new() };
        touched.read_again(&self.without_hidden(before.clone()), dialect).unwrap_or_default()
    }

    fn without_hidden(&self, mut rows: Rows) -> Rows {
        let is_hidden = |name: &String| self.hidden.contains(name);
        let shown = rows.columns.iter().take_while(|column| !is_hidden(&column.name)).count();
        if shown < rows.columns.len() {
            rows.split_columns(shown);
        }
        rows
    }

    /// Makes the outcome of what was read: its digest is of all of it, and what is shown is bounded by `caps`.
    pub(crate) fn outcome(&self, mut read: ReadChange, caps: RowCaps) -> Result<WriteOutcome, DatabaseError> {
        if let Some(written) = &self.written
            && let Some(returned) = read.returned.take()
        {
            let (own, rows) = split(returned, &written.columns);
            read.returned = own;
            if written.are_before {
                read.before = Some(rows);
            } else {
                read.after.get_or_insert(rows);
            }
        }
        if let (Some(tried), Some(after)) = (&read.tried, &read.after)
            && compared(tried, &self.set_by_database) != compared(after, &self.set_by_database)
        {
            let reason = "it writes something else each time, so what it overwrites is not known; write the values \
                          themselves"
                .to_owned();
            return Err(DatabaseError::DryRunImpossible { reason });
        }
        let makes_room = self.replaced.as_ref().is_some_and(|rows| rows.reason == ReplacedBecause::MakesRoom);
        let replaced =
            (read.tried.is_some() && makes_room).then(|| read.before.as_ref().map_or(0, |rows| rows.rows.len()) as u64);
        let is_whole = |rows: &Option<Rows>| {
            rows.as_ref().is_none_or(|rows| rows.truncation.ended_by.is_none() && rows.truncation.cut_cells == 0)
        };
        if self.is_approved && !(is_whole(&read.before) && is_whole(&read.after)) {
            let reason = format!("it changes more than can be compared: at most {MAX_COMPARED_ROWS} rows at a time");
            return Err(DatabaseError::DryRunImpossible { reason });
        }
        let mut compared = vec![
            json!(read.rows_affected),
            json!(read.before.as_ref().map(|rows| compared(rows, &[]))),
            json!(read.after.as_ref().map(|rows| compared(rows, &self.set_by_database))),
            json!(read.file),
        ];
        compared.extend(read.cascades.compared);
        let digest = Sha256::digest(Json::Array(compared).to_string().as_bytes());
        let shown = |rows: Option<Rows>| rows.map(|rows| cut_rows(self.without_hidden(rows), caps));
        Ok(WriteOutcome {
            rows_affected: read.rows_affected,
            replaced,
            returned: shown(read.returned),
            before: shown(read.before),
            after: shown(read.after),
            cascades: read.cascades.shown,
            digest: URL_SAFE_NO_PAD.encode(digest),
        })
    }
}

/// What was read of a change, before it is cut.
#[derive(Debug, Default)]
pub(crate) struct ReadChange {
    pub(crate) rows_affected: u64,
    /// What the statement returned, with the columns of [`WrittenRows`] at the end.
    pub(crate) returned: Option<Rows>,
    pub(crate) before: Option<Rows>,
    pub(crate) after: Option<Rows>,
    /// The rows that the statement wrote when it was run to find what it replaces, which is `before` then.
    pub(crate) tried: Option<Rows>,
    pub(crate) cascades: CascadeOutcome,
    /// The file that was changed, without symbolic links: the settings may name it by a link that leads elsewhere later.
    pub(crate) file: Option<String>,
}

impl WriteOutcome {
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
    /// Returns the statements that read the same rows again by their keys; `None` if the rows have none.
    pub(crate) fn read_again(&self, before: &Rows, dialect: Dialect) -> Option<Vec<SqlStatement>> {
        self.read_rows_of(before, &[], dialect)
    }

    /// The same, with more columns.
    fn read_rows_of(&self, before: &Rows, more: &[String], dialect: Dialect) -> Option<Vec<SqlStatement>> {
        let places: Option<Vec<usize>> =
            self.key.iter().map(|key| before.columns.iter().position(|column| column.name == *key)).collect();
        let places = places.filter(|places| !places.is_empty())?;
        let columns = before.columns.iter().map(|column| &column.name).chain(more);
        let columns: Vec<String> = columns.map(|column| quoted(column, dialect)).collect();
        let columns = columns.join(", ");
        let chunks = before.rows.chunks(ROWS_READ_AGAIN);
        Some(chunks.map(|rows| self.read_rows(&columns, before, rows, &places, dialect)).collect())
    }

    fn read_rows(
        &self,
        columns: &str,
        before: &Rows,
        rows: &[Vec<Json>],
        places: &[usize],
        dialect: Dialect,
    ) -> SqlStatement {
        let mut parameters = Vec::new();
        let mut conditions = Vec::new();
        for row in rows {
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
        let order: Vec<String> = places.iter().map(|&place| quoted(&before.columns[place].name, dialect)).collect();
        let sql = format!(
            "SELECT {columns} FROM {}.{} WHERE {} ORDER BY {}",
            quoted(&self.table.schema, dialect),
            quoted(&self.table.name, dialect),
            conditions.join(" OR "),
            order.join(", ")
        );
        SqlStatement { sql, parameters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResultColumn;
    use sql::value::Value;

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
        let again = &touched.read_again(&before, Dialect::Postgres).unwrap()[0];
        assert_eq!(
            again.sql,
            "SELECT \"a\"\"b\", \"k`\" FROM \"s\".\"t\" WHERE (\"k`\" = $1) OR (\"k`\" = $2) ORDER BY \"k`\""
        );
        assert_eq!(again.parameters, [Value::Bytes(vec![0xff, 0]), Value::Integer(2)]);
        let again = &touched.read_again(&before, Dialect::Mysql).unwrap()[0];
        assert_eq!(again.sql, "SELECT `a\"b`, `k``` FROM `s`.`t` WHERE (`k``` = ?) OR (`k``` = ?) ORDER BY `k```");
        assert_eq!(touched.read_again(&Rows::default(), Dialect::Mysql), None);
        let rows = (0..1_001).map(|number| vec![json!("x"), json!(number)]).collect();
        let again = touched.read_again(&Rows { rows, ..before }, Dialect::Sqlite).unwrap();
        assert_eq!(again.iter().map(|it| it.parameters.len()).collect::<Vec<_>>(), [400, 400, 201]);
    }

    #[test]
    fn a_commit_is_refused_if_the_rows_are_not_those_that_were_shown() {
        let read = ReadChange { rows_affected: 2, ..ReadChange::default() };
        let outcome = WriteQuery::default().outcome(read, RowCaps::default()).unwrap();
        let commit = |expected: &str| WriteMode::Commit { expected: Some(expected.to_owned()) };
        assert_eq!(outcome.check(&commit(&outcome.digest), None), Ok(true));
        assert_eq!(outcome.check(&commit("other"), None), Err(DatabaseError::Changed));
        assert_eq!(outcome.check(&WriteMode::DryRun, None), Ok(false));
        assert_eq!(outcome.check(&WriteMode::DryRun, Some(1)), Err(DatabaseError::TooManyRows { affected: 2, max: 1 }));
    }

    /// The digest of a change of the rows `(id, name, at)`.
    fn digest(before: &[[&str; 3]], after: &[[&str; 3]], set_by_database: &[&str]) -> String {
        let column = |name: &str| ResultColumn { name: name.to_owned(), type_name: "text".to_owned() };
        let rows = |rows: &[[&str; 3]]| Rows {
            columns: ["id", "name", "at"].map(column).to_vec(),
            rows: rows.iter().map(|row| row.iter().map(|cell| json!(cell)).collect()).collect(),
            ..Rows::default()
        };
        let read = ReadChange {
            rows_affected: 1,
            before: Some(rows(before)),
            after: Some(rows(after)),
            ..ReadChange::default()
        };
        let set_by_database = set_by_database.iter().map(|&name| name.to_owned()).collect();
        let query = WriteQuery { set_by_database, ..WriteQuery::default() };
        // What is shown is far less than what is compared.
        query.outcome(read, RowCaps { rows: 1, bytes: 1_000, cell_bytes: 1 }).unwrap().digest
    }

    #[test]
    fn all_rows_before_and_after_are_compared_in_any_order_but_for_what_the_database_sets() {
        let (one, two) = (["1", "long a", "t"], ["2", "long b", "t"]);
        let shown = digest(&[one, two], &[one, two], &["at"]);
        assert_eq!(digest(&[two, one], &[two, one], &["at"]), shown);
        assert_eq!(digest(&[one, two], &[["1", "long a", "later"], two], &["AT"]), shown);
        for (before, after) in [
            ([one, ["2", "long c", "t"]], [one, two]),
            ([one, two], [one, ["2", "long c", "t"]]),
            ([one, ["2", "long b", "later"]], [one, two]),
        ] {
            assert_ne!(digest(&before, &after, &["at"]), shown);
        }
        assert_ne!(digest(&[one], &[["1", "long a", "later"]], &[]), digest(&[one], &[one], &[]));
    }
}
