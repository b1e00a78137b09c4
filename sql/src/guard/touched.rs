//! What a change is shown by before it happens: the query for the rows that it touches, the statement that gives the rows
//! that it writes, and the columns that the database sets by itself.

use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Expr, FromTable, Ident, Insert, ObjectName, ObjectNamePart,
    OnConflictAction, OnInsert, Query, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Value, Values,
};

use super::cascades::Cascade;
use super::dialects::{folded, same, written_name};
use super::print::exact;
use super::replaced::ReplacedRows;
use super::set_off::TableChange;
use super::table_use::TableUse;
use super::text::parse_one;
use super::volatile::volatile;
use super::{Guard, GuardedStatement};
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::{Column, Key, Table, TableName};

/// A change of more rows cannot be compared with what was shown.
pub const MAX_COMPARED_ROWS: usize = 100_000;

/// A query for the rows that a statement touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedQuery {
    pub sql: String,
    pub table: TableName,
    /// The columns of the table's primary key; they are among those of the query. Empty if the rows cannot be found again
    /// by it.
    pub key: Vec<String>,
    /// Its condition gives something else each time.
    pub is_volatile: bool,
}

/// A change that gives the rows that it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenQuery {
    /// The statement, with `columns` as the last ones of its `RETURNING`.
    pub sql: String,
    pub columns: Vec<String>,
    /// It gives the rows as they were: it deletes them.
    pub are_before: bool,
    /// How they are known of a server that has no `RETURNING`.
    pub otherwise: OtherRows,
}

/// What is added at the end of a change, so that it gives the rows that it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedReturning {
    pub text: String,
    pub columns: Vec<String>,
    /// It gives the rows as they were: it deletes them.
    pub are_before: bool,
}

/// The rows that an `INSERT` writes, without `RETURNING`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherRows {
    /// Those of this query.
    Query(String),
    /// As they stand in the statement.
    Constant,
    Unknown,
}

/// Refuses an `UPDATE` in a dialect without `RETURNING`.
const NOT_FOUND: &str = "the rows that it changes cannot be shown; change the rows of one table by a condition in `WHERE`, \
                         and leave its primary key as it is";

/// How a change is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShownChange {
    pub(super) touched: Option<TouchedQuery>,
    pub(super) written: Option<WrittenQuery>,
    pub(super) added: Option<AddedReturning>,
    /// What is there already and is overwritten or removed; why it cannot be found, and what to write instead.
    pub(super) replaced: Option<Result<ReplacedRows, String>>,
    /// How what it writes is read again after its triggers.
    pub(super) settled: Option<ReplacedRows>,
    /// Columns of the rows as they were that are compared and not shown.
    pub(super) hidden: Vec<String>,
    /// The columns that are shown.
    pub(super) columns: Vec<String>,
    pub(super) set_by_database: Vec<String>,
    pub(super) why_not: Option<String>,
    /// The foreign keys that carry it on to other tables.
    pub(super) cascades: Vec<Cascade>,
}

/// What a statement sets of the rows that it writes.
pub(super) struct Assigned {
    pub(super) columns: Vec<String>,
    pub(super) all: bool,
}

impl Guard<'_> {
    /// Returns how `statement` is shown. Every query of it is checked like any other.
    pub(super) fn shown(&self, statement: &Statement, checked: &GuardedStatement) -> ShownChange {
        let mut shown = ShownChange {
            why_not: volatile(self.dialect, statement)
                .map(|found| format!("`{found}` gives something else when it is approved; write the value itself")),
            ..ShownChange::default()
        };
        let (with, inner) = match statement {
            Statement::Query(query) => match query.body.as_ref() {
                SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) => (query.with.clone(), inner),
                _ => return shown,
            },
            plain => (None, plain),
        };
        let Some(written) = checked.tables.iter().find(|used| used.access.is_write()) else { return shown };
        let name = &written.name;
        let Some(table) = self.schema.tables.get(name) else { return shown };
        shown.hidden = self.hidden(name, table);
        shown.columns = self.visible(name, table).iter().map(|column| column.name.clone()).collect();
        let assigned = self.assigned(inner, table);
        let changes = || -> Vec<TableChange> {
            let changes = checked.tables.iter().filter(|used| used.access.is_write());
            let change = |used: &TableUse| {
                let columns = (used.access == TableAccess::Update && !assigned.all)
                    .then(|| assigned.columns.iter().cloned().collect());
                TableChange { table: used.name.clone(), access: used.access, columns }
            };
            changes.map(change).collect()
        };
        shown.cascades = self.cascades(changes());
        // An update keeps the key of each row, by which the rows are told apart.
        let is_kept =
            |column: &Column| matches!(inner, Statement::Update(_)) && matches!(column.key, Some(Key::Primary));
        let is_left = |column: &&Column| {
            !assigned.has(self.dialect, &column.name) && column.is_set_by_database() && !is_kept(column)
        };
        shown.set_by_database = table.columns.iter().filter(is_left).map(|it| it.name.clone()).collect();
        shown.replaced = self.replaced(inner, name, table).map_err(|why| instead_of_replacing(&why)).transpose();
        let key_is_kept =
            |column: &&Column| !matches!(inner, Statement::Update(_)) || !assigned.has(self.dialect, &column.name);
        shown.touched = self.touched(with, inner, name, table, key_is_kept);
        let is_found_again = shown.touched.as_ref().is_some_and(|touched| !touched.key.is_empty());
        let is_known = match inner {
            Statement::Update(_) => is_found_again,
            // What is hidden is found by the key, or with the row.
            Statement::Delete(_) => {
                shown.touched.is_some() && (shown.hidden.is_empty() || is_found_again || self.dialect == Dialect::Mysql)
            }
            _ => false,
        };
        if let (Statement::Update(update), false) = (inner, is_known) {
            if self.dialect == Dialect::Mysql {
                let why = self.why_not_found(&shown, checked, name);
                shown.replaced = shown.replaced.or(why.map(Err));
                return shown;
            }
            if shown.touched.is_none() && shown.replaced.is_none() {
                shown.replaced = Some(self.updated(&update.assignments, name, table));
            }
        }
        let has_hidden = matches!(inner, Statement::Delete(_))
            || (matches!(inner, Statement::Update(_)) && shown.replaced.is_none());
        let hidden = if has_hidden { shown.hidden.as_slice() } else { &[] };
        shown.added = self.added(inner, name, table, hidden).filter(|added| added.are_before || !is_known);
        if is_known {
            return shown;
        }
        if !matches!(inner, Statement::Delete(_)) {
            match self.settled(changes(), name, table) {
                Ok(settled) => {
                    shown.settled = settled.map(|rows| ReplacedRows { hidden: hidden.to_vec(), ..rows });
                }
                Err(why) => shown.replaced = Some(Err(why)),
            }
        }
        shown.written = self.written(statement, inner, name, table, hidden);
        if shown.written.is_none() {
            let why = || "the rows that it changes cannot be shown; write it more simply".to_owned();
            shown.why_not.get_or_insert_with(why);
        }
        shown
    }

    pub(super) fn visible<'t>(&self, name: &TableName, table: &'t Table) -> Vec<&'t Column> {
        table.columns.iter().filter(|column| !self.catalog().hides(name, column)).collect()
    }

    /// The columns of a table that are compared and not shown.
    pub(super) fn hidden(&self, name: &TableName, table: &Table) -> Vec<String> {
        let hidden = table.columns.iter().filter(|column| self.catalog().hides(name, column));
        hidden.map(|column| column.name.clone()).collect()
    }

    /// Why it is not known what an `UPDATE` without a key writes, where no server says it.
    fn why_not_found(&self, shown: &ShownChange, checked: &GuardedStatement, name: &TableName) -> Option<String> {
        let reads_others = checked.tables.iter().any(|used| used.access == TableAccess::Read);
        if shown.touched.is_none() || reads_others {
            return Some(NOT_FOUND.to_owned());
        }
        let mut triggers = self.schema.triggers.iter();
        triggers.any(|it| it.table == *name && it.events.contains(&TableAccess::Update)).then(|| {
            "a trigger may change the rows that it writes, and without a primary key that stays they are not read again; \
             leave the primary key as it is, or give the table one"
                .to_owned()
        })
    }

    /// Returns the query for what a plain `UPDATE` or `DELETE` touches.
    fn touched(
        &self,
        with: Option<sqlparser::ast::With>,
        statement: &Statement,
        name: &TableName,
        table: &Table,
        key_is_kept: impl Fn(&&Column) -> bool,
    ) -> Option<TouchedQuery> {
        let (from, selection) = rows_of(statement)?;
        let visible = self.visible(name, table);
        let key: Vec<_> = table.primary_key().collect();
        let is_usable = key.iter().all(|column| visible.contains(column) && key_is_kept(column));
        let mut query = empty_query(self.dialect)?;
        query.with = with;
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        let item = |column: &&Column| SelectItem::UnnamedExpr(Expr::Identifier(exact(&column.name)));
        select.projection = visible.iter().map(item).collect();
        select.from = vec![from.clone()];
        select.selection = selection.cloned();
        let max_rows = u64::try_from(MAX_COMPARED_ROWS).unwrap_or(u64::MAX).saturating_add(1);
        let reading = Self { may_write: false, max_rows, ..*self };
        let query = Statement::Query(query);
        let is_volatile = volatile(self.dialect, &query).is_some();
        let sql = reading.checked(query).ok()?.sql;
        let key = if is_usable { key.iter().map(|column| column.name.clone()).collect() } else { Vec::new() };
        Some(TouchedQuery { sql, table: name.clone(), key, is_volatile })
    }

    /// Returns the end with which a statement gives the rows that it writes; `None` if no server of the dialect does.
    fn added(
        &self,
        statement: &Statement,
        name: &TableName,
        table: &Table,
        hidden: &[String],
    ) -> Option<AddedReturning> {
        let returning = match statement {
            Statement::Insert(insert) => &insert.returning,
            Statement::Delete(delete) => &delete.returning,
            Statement::Update(update) if self.dialect != Dialect::Mysql => &update.returning,
            _ => return None,
        };
        let mut columns: Vec<String> = self.visible(name, table).iter().map(|column| column.name.clone()).collect();
        columns.extend_from_slice(hidden);
        let word = if returning.is_some() { ", " } else { "RETURNING " };
        let text = format!("{word}{}", self.listed(statement, &columns));
        Some(AddedReturning { text, columns, are_before: matches!(statement, Statement::Delete(_)) })
    }

    /// Columns of the target, as they stand in `RETURNING`.
    fn listed(&self, statement: &Statement, columns: &[String]) -> String {
        let of = self.qualifier(statement).map(|of| written_name(self.dialect, &folded(self.dialect, &of)) + ".");
        let of = of.unwrap_or_default();
        let list = columns.iter().map(|column| format!("{of}{}", written_name(self.dialect, column)));
        list.collect::<Vec<_>>().join(", ")
    }

    /// What the target is called before its columns, where other tables may have columns of the same names.
    fn qualifier(&self, statement: &Statement) -> Option<Ident> {
        match (statement, self.dialect) {
            (Statement::Update(update), Dialect::Postgres) => target_name(&update.table),
            (Statement::Delete(delete), Dialect::Postgres) => match &delete.from {
                FromTable::WithFromKeyword(from) => from.first().and_then(target_name),
                FromTable::WithoutKeyword(_) => None,
            },
            _ => None,
        }
    }

    /// Returns the statement with the columns of the rows that it writes.
    fn written(
        &self,
        statement: &Statement,
        inner: &Statement,
        name: &TableName,
        table: &Table,
        hidden: &[String],
    ) -> Option<WrittenQuery> {
        let mut columns: Vec<String> = self.visible(name, table).iter().map(|column| column.name.clone()).collect();
        let mut returning = statement.clone();
        let changed = match &mut returning {
            Statement::Query(query) => match query.body.as_mut() {
                SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) => inner,
                _ => return None,
            },
            plain => plain,
        };
        let of = self.qualifier(changed);
        let item = |column: &String| {
            SelectItem::UnnamedExpr(match &of {
                Some(table) => Expr::CompoundIdentifier(vec![table.clone(), exact(column)]),
                None => Expr::Identifier(exact(column)),
            })
        };
        let items = columns.iter().map(item);
        let list = match changed {
            Statement::Insert(insert) => &mut insert.returning,
            Statement::Update(update) => &mut update.returning,
            Statement::Delete(delete) => &mut delete.returning,
            _ => return None,
        };
        list.get_or_insert_default().extend(items);
        let mut sql = self.checked(returning).ok()?.sql;
        if !hidden.is_empty() {
            // No caller may name them; the list is the end of the statement.
            sql = format!("{sql}, {}", self.listed(inner, hidden));
            columns.extend_from_slice(hidden);
        }
        let otherwise = match inner {
            Statement::Insert(insert) => self.other_rows(insert),
            _ => OtherRows::Unknown,
        };
        Some(WrittenQuery { sql, columns, are_before: matches!(inner, Statement::Delete(_)), otherwise })
    }

    fn other_rows(&self, insert: &Insert) -> OtherRows {
        let Some(source) = insert.source.as_ref().filter(|_| insert.on.is_none() && !insert.replace_into) else {
            return OtherRows::Unknown;
        };
        let max_rows = u64::try_from(MAX_COMPARED_ROWS).unwrap_or(u64::MAX).saturating_add(1);
        let reading = Self { may_write: false, max_rows, ..*self };
        let has_tables = |sql: &GuardedStatement| !sql.tables.is_empty();
        match (source.body.as_ref(), reading.checked(Statement::Query(source.clone()))) {
            (SetExpr::Values(_), Ok(checked)) if !has_tables(&checked) => OtherRows::Constant,
            (SetExpr::Values(_), _) => OtherRows::Unknown,
            (_, Ok(checked)) => OtherRows::Query(checked.sql),
            (_, Err(_)) => OtherRows::Unknown,
        }
    }

    /// The columns to which a statement gives a value of its own.
    pub(super) fn assigned(&self, statement: &Statement, table: &Table) -> Assigned {
        let mut assigned = Assigned { columns: Vec::new(), all: false };
        match statement {
            Statement::Update(update) => assigned.add(self.dialect, &update.assignments),
            Statement::Insert(insert) => {
                let listed: Vec<String> = if insert.columns.is_empty() && insert.source.is_some() {
                    table.columns.iter().map(|column| column.name.clone()).collect()
                } else {
                    insert.columns.iter().filter_map(|column| last_name(self.dialect, column)).collect()
                };
                let rows = insert.source.as_ref().and_then(|source| match source.body.as_ref() {
                    SetExpr::Values(Values { rows, .. }) => Some(rows),
                    _ => None,
                });
                let is_left = |place: usize| {
                    rows.is_some_and(|rows| rows.iter().all(|row| row.get(place).is_none_or(is_left_to_database)))
                };
                let set = listed.into_iter().enumerate().filter(|(place, _)| !is_left(*place));
                assigned.columns.extend(set.map(|(_, name)| name));
                assigned.add(self.dialect, &insert.assignments);
                match &insert.on {
                    Some(OnInsert::DuplicateKeyUpdate(assignments)) => assigned.add(self.dialect, assignments),
                    Some(OnInsert::OnConflict(conflict)) => {
                        if let OnConflictAction::DoUpdate(update) = &conflict.action {
                            assigned.add(self.dialect, &update.assignments);
                        }
                        if let Some(ConflictTarget::Columns(columns)) = &conflict.conflict_target {
                            assigned.columns.extend(columns.iter().map(|column| folded(self.dialect, column)));
                        }
                    }
                    Some(_) => assigned.all = true,
                    None => {}
                }
            }
            _ => {}
        }
        assigned
    }
}

/// The columns that an assignment sets.
pub(super) fn targets(assignment: &Assignment) -> &[ObjectName] {
    match &assignment.target {
        AssignmentTarget::ColumnName(column) => std::slice::from_ref(column),
        AssignmentTarget::Tuple(columns) => columns,
    }
}

impl Assigned {
    pub(super) fn add(&mut self, dialect: Dialect, assignments: &[Assignment]) {
        for assignment in assignments {
            self.columns.extend(targets(assignment).iter().filter_map(|column| last_name(dialect, column)));
        }
    }

    pub(super) fn has(&self, dialect: Dialect, name: &str) -> bool {
        self.all || self.columns.iter().any(|column| same(dialect, column, name) || column.eq_ignore_ascii_case(name))
    }
}

/// Whether a value of `VALUES` leaves the column to the database. NULL is the next number in some, and nothing else.
fn is_left_to_database(value: &Expr) -> bool {
    match value {
        Expr::Identifier(ident) => ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"),
        Expr::Value(value) => matches!(value.value, Value::Null),
        _ => false,
    }
}

fn instead_of_replacing(why: &str) -> String {
    format!(
        "the rows that it overwrites or removes cannot be found, since {why}; write an `UPDATE` of the rows that are \
         there, and an `INSERT` of the new ones"
    )
}

fn last_name(dialect: Dialect, column: &ObjectName) -> Option<String> {
    column.0.last().and_then(ObjectNamePart::as_ident).map(|ident| folded(dialect, ident))
}

/// What the target of a change is called in it.
fn target_name(table: &TableWithJoins) -> Option<Ident> {
    match &table.relation {
        TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => name.0.last().and_then(ObjectNamePart::as_ident).cloned(),
        _ => None,
    }
}

/// The table of a plain change, and its condition.
fn rows_of(statement: &Statement) -> Option<(&TableWithJoins, Option<&Expr>)> {
    match statement {
        Statement::Update(update) => {
            let is_plain = update.from.is_none() && update.order_by.is_empty() && update.limit.is_none();
            is_plain.then_some((&update.table, update.selection.as_ref()))
        }
        Statement::Delete(delete) => {
            let is_plain = delete.using.is_none() && delete.order_by.is_empty() && delete.limit.is_none();
            let FromTable::WithFromKeyword(from) = &delete.from else { return None };
            let [table] = from.as_slice() else { return None };
            is_plain.then_some((table, delete.selection.as_ref()))
        }
        _ => None,
    }
}

fn empty_query(dialect: Dialect) -> Option<Box<Query>> {
    match parse_one(dialect, "SELECT 1").ok()? {
        Statement::Query(query) => Some(query),
        _ => None,
    }
}
