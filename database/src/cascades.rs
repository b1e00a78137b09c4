//! Cascades: the rows of other tables that foreign keys change with a change, before and after it.
//!
//! They are looked for level by level, by the values of the rows that were found before, and read again once the change is
//! made. What is the same then was not changed. Sends nothing itself: each server's module does.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use serde_json::{Value as Json, json};
use sql::dialect::Dialect;
use sql::guard::Cascade;
use sql::schema::{TableAccess, TableName};
use sql::settings::RowCaps;

use super::SqlStatement;
use super::read_again::{ROWS_READ_AGAIN, key_value, quoted};
use super::rows::{Rows, compared, cut_rows};

/// How many rows are looked at, in all tables together.
const MAX_ROWS: usize = 10_000;
/// How much of the rows of one query is read: of a long value its beginning, so that few rows with files in them can be
/// compared.
pub(crate) const READ: RowCaps = RowCaps { rows: MAX_ROWS + 1, bytes: 64 << 20, cell_bytes: 64 << 10 };
/// How many rows of each table are shown.
const SHOWN_ROWS: usize = 5;

/// The rows of one table that a change changes by foreign keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CascadedRows {
    pub table: String,
    pub deleted: u64,
    pub updated: u64,
    /// There are more rows than were looked at.
    pub is_part: bool,
    /// The first ones, before and after it. Rows that were deleted, or cannot be found again, are missing there.
    pub before: Rows,
    pub after: Rows,
}

/// What is shown of the cascades of a change, and what of them is compared.
#[derive(Debug, Default)]
pub(crate) struct CascadeOutcome {
    pub(crate) shown: Vec<CascadedRows>,
    pub(crate) compared: Option<Json>,
}

/// The rows that were found, as they are after the change.
#[derive(Debug, Default)]
pub(crate) struct AfterCascades(BTreeMap<TableName, Option<Rows>>);

impl AfterCascades {
    /// Takes the rows of a query that [`CascadeSearch::read_after`] gave.
    pub(crate) fn add(&mut self, table: TableName, rows: Rows) {
        Rows::join(self.0.entry(table).or_default(), rows);
    }
}

/// The rows of one table that were found.
#[derive(Debug)]
struct FoundRows<'a> {
    /// Any of the keys that lead to it.
    cascade: &'a Cascade,
    /// Some key deletes its rows.
    deletes: bool,
    rows: Rows,
    seen: HashSet<String>,
    /// Whether the rows are found again by their keys.
    is_kept: bool,
}

/// The search for the rows that a change reaches.
#[derive(Debug)]
pub(crate) struct CascadeSearch<'a> {
    cascades: &'a [Cascade],
    dialect: Dialect,
    /// A foreign key, and values that rows of its child may have.
    wanted: VecDeque<(&'a Cascade, Vec<Vec<Json>>)>,
    asked: Option<&'a Cascade>,
    found: BTreeMap<TableName, FoundRows<'a>>,
    /// The rows that the statement itself changes, of this table.
    base: (&'a TableName, HashSet<String>),
    count: usize,
    is_part: bool,
}

impl<'a> CascadeSearch<'a> {
    /// Begins with the rows `before` a change of the table whose keys come first; `None` if nothing follows from them.
    pub(crate) fn new(cascades: &'a [Cascade], before: Option<&Rows>, dialect: Dialect) -> Option<Self> {
        let before = before.filter(|rows| !rows.rows.is_empty())?;
        let table = &cascades.first()?.parent;
        let (wanted, found) = (VecDeque::new(), BTreeMap::new());
        let base = (table, numbered(&before.rows).collect());
        let mut search = Self { cascades, dialect, wanted, asked: None, found, base, count: 0, is_part: false };
        search.follow(table, before);
        Some(search)
    }

    /// Notes the rows that are reached from these.
    fn follow(&mut self, table: &TableName, rows: &Rows) {
        for cascade in self.cascades.iter().filter(|cascade| cascade.parent == *table) {
            let place = |name: &String| rows.columns.iter().position(|it| it.name.eq_ignore_ascii_case(name));
            let places: Option<Vec<usize>> = cascade.parent_columns.iter().map(place).collect();
            let Some(places) = places.filter(|it| !it.is_empty() && it.len() == cascade.child_columns.len()) else {
                continue;
            };
            let values = |row: &Vec<Json>| places.iter().map(|&place| row[place].clone()).collect::<Vec<_>>();
            // A row without a value is referred to by none.
            let values: Vec<_> = rows.rows.iter().map(values).filter(|it| !it.iter().any(Json::is_null)).collect();
            for chunk in values.chunks(ROWS_READ_AGAIN) {
                self.wanted.push_back((cascade, chunk.to_vec()));
            }
        }
    }

    /// Returns the next query, whose rows [`Self::add`] takes.
    pub(crate) fn next(&mut self) -> Option<SqlStatement> {
        if self.count >= MAX_ROWS {
            self.is_part |= !self.wanted.is_empty();
            return None;
        }
        let (cascade, values) = self.wanted.pop_front()?;
        self.asked = Some(cascade);
        let mut parameters = Vec::new();
        let mut conditions = Vec::new();
        for row in &values {
            let equal = |(name, value): (&String, &Json)| {
                parameters.push(key_value(value));
                format!("{} = {}", quoted(name, self.dialect), self.place(parameters.len()))
            };
            let condition: Vec<_> = cascade.child_columns.iter().zip(row).map(equal).collect();
            conditions.push(format!("({})", condition.join(" AND ")));
        }
        // One more than may be looked at shows that there are more.
        let limit = MAX_ROWS - self.count + 1;
        let sql = format!("{} LIMIT {limit}", self.select(cascade, &conditions));
        Some(SqlStatement { sql, parameters })
    }

    fn place(&self, number: usize) -> String {
        if self.dialect == Dialect::Postgres { format!("${number}") } else { "?".to_owned() }
    }

    /// Reads rows of a child, in an order that stays the same.
    fn select(&self, cascade: &Cascade, conditions: &[String]) -> String {
        let columns: Vec<_> = cascade.shown.iter().chain(&cascade.hidden).map(|it| quoted(it, self.dialect)).collect();
        let order = if cascade.key.is_empty() { &cascade.child_columns } else { &cascade.key };
        let order: Vec<_> = order.iter().map(|name| quoted(name, self.dialect)).collect();
        format!(
            "SELECT {} FROM {}.{} WHERE {} ORDER BY {}",
            columns.join(", "),
            quoted(&cascade.child.schema, self.dialect),
            quoted(&cascade.child.name, self.dialect),
            conditions.join(" OR "),
            order.join(", ")
        )
    }

    /// Takes the rows of the query that [`Self::next`] gave.
    pub(crate) fn add(&mut self, mut rows: Rows) {
        let Some(cascade) = self.asked.take() else { return };
        if rows.rows.len() > MAX_ROWS - self.count || rows.truncation.ended_by.is_some() {
            self.is_part = true;
            rows.rows.truncate(MAX_ROWS - self.count);
        }
        let found = self.found.entry(cascade.child.clone()).or_insert_with(|| FoundRows {
            cascade,
            deletes: false,
            rows: Rows { columns: rows.columns.clone(), ..Rows::default() },
            seen: HashSet::new(),
            is_kept: true,
        });
        found.deletes |= cascade.access == TableAccess::Delete;
        found.is_kept &= !cascade.key.is_empty();
        let mut new = Rows { columns: rows.columns.clone(), ..Rows::default() };
        let is_base = *self.base.0 == cascade.child;
        for (number, name) in numbered(&rows.rows).enumerate() {
            if !(is_base && self.base.1.contains(&name)) && found.seen.insert(name) {
                new.forms.extend(rows.forms.get(number).cloned());
                new.rows.push(rows.rows[number].clone());
            }
        }
        self.count += new.rows.len();
        found.rows.rows.extend(new.rows.iter().cloned());
        found.rows.forms.extend(new.forms.iter().cloned());
        self.follow(&cascade.child, &new);
    }

    /// The queries that read the rows again, each with its table.
    pub(crate) fn read_after(&self) -> Vec<(TableName, SqlStatement)> {
        let kept = self.found.values().filter(|found| found.is_kept);
        kept.flat_map(|found| self.again(found).into_iter().map(|it| (found.cascade.child.clone(), it))).collect()
    }

    fn again(&self, found: &FoundRows<'_>) -> Vec<SqlStatement> {
        let key = &found.cascade.key;
        let statement = |rows: &[Vec<Json>]| {
            let mut parameters = Vec::new();
            let mut conditions = Vec::new();
            for row in rows {
                let equal = |name: &String| {
                    let cell = found.place(name).map_or(&Json::Null, |place| &row[place]);
                    parameters.push(key_value(cell));
                    format!("{} = {}", quoted(name, self.dialect), self.place(parameters.len()))
                };
                let condition: Vec<_> = key.iter().map(equal).collect();
                conditions.push(format!("({})", condition.join(" AND ")));
            }
            SqlStatement { sql: self.select(found.cascade, &conditions), parameters }
        };
        found.rows.rows.chunks(ROWS_READ_AGAIN).map(statement).collect()
    }

    /// What was changed, of the rows as they are `after` the change.
    pub(crate) fn outcome(self, mut after: AfterCascades, caps: RowCaps) -> CascadeOutcome {
        let (mut shown, mut digested) = (Vec::new(), Vec::new());
        for (table, found) in &self.found {
            let changed = found.changed(&after.0.remove(table).flatten().unwrap_or_default());
            if changed.before.rows.is_empty() {
                continue;
            }
            let (deleted, updated) = (changed.deleted, changed.before.rows.len() as u64 - changed.deleted);
            digested.push(json!([
                table.schema,
                table.name,
                deleted,
                updated,
                compared(&changed.before, &[]),
                compared(&changed.after, &found.cascade.set_by_database),
            ]));
            let columns = found.cascade.shown.len();
            if columns == 0 {
                continue;
            }
            let caps = RowCaps { rows: caps.rows.min(SHOWN_ROWS), ..caps };
            let visible = |mut rows: Rows| {
                if columns < rows.columns.len() {
                    rows.split_columns(columns);
                }
                cut_rows(rows, caps)
            };
            shown.push(CascadedRows {
                table: table.name.clone(),
                deleted,
                updated,
                is_part: self.is_part,
                before: visible(changed.before),
                after: visible(changed.after),
            });
        }
        let compared = (!digested.is_empty()).then(|| json!([self.is_part, digested]));
        CascadeOutcome { shown, compared }
    }
}

/// The rows as texts; those that are the same in each column are numbered.
fn numbered(rows: &[Vec<Json>]) -> impl Iterator<Item = String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    rows.iter().map(move |row| {
        let text = Json::Array(row.clone()).to_string();
        let count = counts.entry(text.clone()).and_modify(|count| *count += 1).or_default();
        format!("{text} {count}")
    })
}

/// The rows of one table that are not what they were.
struct ChangedRows {
    before: Rows,
    after: Rows,
    deleted: u64,
}

impl FoundRows<'_> {
    fn place(&self, name: &str) -> Option<usize> {
        self.rows.columns.iter().position(|column| column.name == name)
    }

    /// Compares the rows with those that are there after the change. Rows that cannot be found again count as changed.
    fn changed(&self, after: &Rows) -> ChangedRows {
        let places: Vec<_> = self.cascade.key.iter().filter_map(|name| self.place(name)).collect();
        let key = |row: &Vec<Json>| Json::Array(places.iter().map(|&place| row[place].clone()).collect()).to_string();
        let later: BTreeMap<String, usize> = after.rows.iter().enumerate().map(|(at, row)| (key(row), at)).collect();
        let mut changed = ChangedRows {
            before: Rows { columns: self.rows.columns.clone(), ..Rows::default() },
            after: Rows { columns: after.columns.clone(), ..Rows::default() },
            deleted: 0,
        };
        for (number, row) in self.rows.rows.iter().enumerate() {
            let now = if self.is_kept { later.get(&key(row)).copied() } else { None };
            if now.is_some_and(|at| after.rows[at] == *row) {
                continue;
            }
            changed.before.rows.push(row.clone());
            changed.before.forms.extend(self.rows.forms.get(number).cloned());
            match now {
                Some(at) => {
                    changed.after.rows.push(after.rows[at].clone());
                    changed.after.forms.extend(after.forms.get(at).cloned());
                }
                None if self.deletes => changed.deleted += 1,
                None => {}
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResultColumn;

    fn name(table: &str) -> TableName {
        TableName { schema: "main".to_owned(), name: table.to_owned() }
    }

    fn cascade(parent: &str, child: &str, access: TableAccess) -> Cascade {
        let id = || vec!["id".to_owned()];
        Cascade {
            parent: name(parent),
            parent_columns: id(),
            child: name(child),
            child_columns: vec!["up".to_owned()],
            access,
            shown: vec!["id".to_owned(), "up".to_owned()],
            hidden: Vec::new(),
            key: id(),
            set_by_database: Vec::new(),
        }
    }

    fn rows(rows: &[[Option<i64>; 2]]) -> Rows {
        let column = |name: &str| ResultColumn { name: name.to_owned(), type_name: String::new() };
        let rows = rows.iter().map(|row| row.iter().map(|value| json!(value)).collect()).collect();
        Rows { columns: vec![column("id"), column("up")], rows, ..Rows::default() }
    }

    const CAPS: RowCaps = RowCaps { rows: 100, bytes: 1 << 20, cell_bytes: 1 << 10 };

    #[test]
    fn rows_are_followed_from_table_to_table_each_once_and_only_those_that_changed_count() {
        let cascades = [
            cascade("a", "b", TableAccess::Delete),
            cascade("b", "c", TableAccess::Update),
            cascade("b", "b", TableAccess::Delete),
        ];
        let before = rows(&[[Some(1), None], [Some(2), None]]);
        let mut search = CascadeSearch::new(&cascades, Some(&before), Dialect::Postgres).expect("a search");
        let first = search.next().expect("a query");
        let expected = "SELECT \"id\", \"up\" FROM \"main\".\"b\" WHERE (\"up\" = $1) OR (\"up\" = $2) ORDER BY \"id\" LIMIT 10001";
        assert_eq!((first.sql.as_str(), first.parameters.len()), (expected, 2));
        search.add(rows(&[[Some(10), Some(1)], [Some(11), Some(2)]]));
        // Of `c`, and of `b` once more, which refers to itself in a circle.
        for _ in 0..2 {
            let statement = search.next().expect("a query");
            let found = if statement.sql.contains("\"c\"") {
                [[Some(20), Some(10)], [Some(21), Some(11)]]
            } else {
                [[Some(12), Some(10)], [Some(10), Some(1)]]
            };
            search.add(rows(&found));
        }
        // The row that is new there leads on.
        while let Some(statement) = search.next() {
            assert!(!statement.sql.is_empty());
            search.add(rows(&[]));
        }
        let mut after = AfterCascades::default();
        for (table, _) in search.read_after() {
            let now = if table == name("c") { rows(&[[Some(20), None], [Some(21), Some(11)]]) } else { rows(&[]) };
            after.add(table, now);
        }
        let CascadeOutcome { shown, compared } = search.outcome(after, CAPS);
        assert!(compared.is_some());
        let counts: Vec<_> = shown.iter().map(|it| (it.table.as_str(), it.deleted, it.updated)).collect();
        assert_eq!(counts, [("b", 3, 0), ("c", 0, 1)]);
        assert_eq!(shown[1].after.rows, [[json!(20), Json::Null]]);
    }

    #[test]
    fn what_may_not_be_shown_is_compared_and_nothing_of_it_is_told() {
        let hidden = |value: i64| {
            let mut cascade = cascade("a", "b", TableAccess::Delete);
            cascade.hidden = std::mem::take(&mut cascade.shown);
            let cascades = [cascade];
            let before = rows(&[[Some(1), None]]);
            let mut search = CascadeSearch::new(&cascades, Some(&before), Dialect::Sqlite).expect("a search");
            assert!(search.next().is_some());
            search.add(rows(&[[Some(value), Some(1)]]));
            search.outcome(AfterCascades::default(), CAPS)
        };
        let (one, other) = (hidden(10), hidden(11));
        assert!(one.shown.is_empty() && one.compared.is_some() && one.compared != other.compared);
    }

    #[test]
    fn rows_that_are_the_same_in_each_column_are_all_counted() {
        let mut keyless = cascade("a", "b", TableAccess::Delete);
        keyless.key = Vec::new();
        let cascades = [keyless];
        let before = rows(&[[Some(1), None]]);
        let mut search = CascadeSearch::new(&cascades, Some(&before), Dialect::Mysql).expect("a search");
        assert!(search.next().is_some_and(|statement| statement.sql.contains("ORDER BY `up`")));
        search.add(rows(&[[Some(7), Some(1)], [Some(7), Some(1)]]));
        assert!(search.next().is_none() && search.read_after().is_empty());
        assert_eq!(search.outcome(AfterCascades::default(), CAPS).shown[0].deleted, 2);
    }
}
