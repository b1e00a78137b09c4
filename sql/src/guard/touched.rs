//! The query for the rows that an `UPDATE` or `DELETE` touches, so that they can be shown before it happens.

use sqlparser::ast::{Expr, FromTable, Query, SelectItem, SetExpr, Statement, TableWithJoins};

use super::print::exact;
use super::table_use::TableAccess;
use super::text::parse_one;
use super::{Guard, GuardedStatement};
use crate::schema::{Key, TableName};

/// More rows are not shown.
const MAX_TOUCHED_ROWS: u64 = 500;

/// A query for the rows that a statement touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedQuery {
    pub sql: String,
    pub table: TableName,
    /// The columns of the table's primary key; they are among those of the query.
    pub key: Vec<String>,
}

impl Guard<'_> {
    /// Returns the query for what `statement` touches; `None` if it is not a plain `UPDATE` or `DELETE` of a table with
    /// a primary key. It is checked like any other query.
    pub(super) fn touched(&self, statement: &Statement, checked: &GuardedStatement) -> Option<TouchedQuery> {
        let (with, statement) = match statement {
            Statement::Query(query) => match query.body.as_ref() {
                SetExpr::Update(inner) | SetExpr::Delete(inner) => (query.with.clone(), inner),
                _ => return None,
            },
            plain => (None, plain),
        };
        let (table, selection) = rows_of(statement)?;
        let is_target = |access| matches!(access, TableAccess::Update | TableAccess::Delete);
        let name = &checked.tables.iter().find(|used| is_target(used.access))?.name;
        let columns = &self.schema.tables.get(name)?.columns;
        let key: Vec<_> = columns.iter().filter(|column| column.key == Some(Key::Primary)).collect();
        let visible: Vec<_> = columns.iter().filter(|column| !self.rules.hides(name, &column.name)).collect();
        if key.is_empty() || !key.iter().all(|column| visible.contains(column)) {
            return None;
        }
        let mut query = empty_query(self.dialect)?;
        query.with = with;
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        let item = |column: &&crate::schema::Column| SelectItem::UnnamedExpr(Expr::Identifier(exact(&column.name)));
        select.projection = visible.iter().map(item).collect();
        select.from = vec![table.clone()];
        select.selection = selection.cloned();
        let reading = Self { may_write: false, max_rows: MAX_TOUCHED_ROWS, ..*self };
        let sql = reading.checked(Statement::Query(query)).ok()?.sql;
        let key = key.iter().map(|column| column.name.clone()).collect();
        Some(TouchedQuery { sql, table: name.clone(), key })
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

fn empty_query(dialect: crate::dialect::Dialect) -> Option<Box<Query>> {
    match parse_one(dialect, "SELECT 1").ok()? {
        Statement::Query(query) => Some(query),
        _ => None,
    }
}
