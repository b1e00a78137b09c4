//! How many rows a query may return: the limit that is sent, pages, and the query that counts.

use sqlparser::ast::{
    Expr, Fetch, FunctionArguments, GroupByExpr, LimitClause, Offset, Query, Select, SelectItem, SetExpr, Statement,
    UnaryOperator, Value,
};
use std::ops::ControlFlow;

use super::dialects::push_limit;
use super::one_walk::{Visitor, walk};
use super::print::print;
use super::refusal::Refusal;
use crate::dialect::Dialect;

/// The largest number of rows that the databases can count; a larger limit does not count.
const MAX_NUMBER: u64 = i64::MAX.unsigned_abs();

/// A checked query without its own limit, from which the texts of its pages are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnlimitedQuery {
    /// With its order, without limit and offset.
    text: String,
    own: OwnLimit,
    /// Counts the rows of the query without its own limit.
    count: Counting,
    /// It is a list of rows, behind which SQLite takes no limit.
    pub(super) is_values: bool,
    max_rows: u64,
}

/// The limit that the query has itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnLimit {
    limit: Option<u64>,
    offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counting {
    before: &'static str,
    text: String,
    after: &'static str,
}

/// A limit as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentLimit {
    pub(super) limit: u64,
    pub(super) offset: u64,
    pub(super) was_added: bool,
}

impl UnlimitedQuery {
    /// Takes the limit off a checked query.
    pub(super) fn of(dialect: Dialect, query: &Query, max_rows: u64) -> Result<Self, Refusal> {
        let mut query = unwrapped(query.clone());
        let own = own_limit(&query)?;
        query.limit_clause = None;
        query.fetch = None;
        let is_values = dialect == Dialect::Sqlite && matches!(query.body.as_ref(), SetExpr::Values(_));
        let text = print(dialect, &Statement::Query(Box::new(query.clone())))?;
        let count = counting(dialect, query, own)?;
        Ok(Self { text, own, count, is_values, max_rows })
    }

    pub(super) fn sent(&self) -> SentLimit {
        SentLimit {
            limit: self.own.limit.unwrap_or(u64::MAX).min(self.max_rows),
            offset: self.own.offset,
            was_added: self.own.limit.is_none(),
        }
    }

    /// The text of rows `offset..offset + limit` of what the query returns with its own limit.
    pub(super) fn page(&self, limit: u64, offset: u64) -> String {
        let left = self.own.limit.map_or(u64::MAX, |own| own.saturating_sub(offset));
        let mut text = self.text.clone();
        push_limit(
            &mut text,
            limit.min(self.max_rows).min(left),
            self.own.offset.saturating_add(offset).min(MAX_NUMBER),
        );
        text
    }

    /// Tells whether the query's own limit is higher than the one that is sent.
    pub(super) fn is_lowered(&self) -> bool {
        self.own.limit.is_some_and(|own| own > self.max_rows)
    }

    pub(super) fn own_limit(&self) -> Option<u64> {
        self.own.limit
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn counted(&self) -> String {
        let mut text = format!("{}{}", self.count.before, self.count.text);
        if self.own.limit.is_some() || self.own.offset > 0 {
            push_limit(&mut text, self.own.limit.unwrap_or(MAX_NUMBER), self.own.offset);
        }
        text.push_str(self.count.after);
        text
    }
}

/// Takes parentheses off a query that stands in them alone: a limit behind them is not SQL everywhere.
fn unwrapped(mut query: Query) -> Query {
    loop {
        let is_bare =
            query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
        match *query.body {
            SetExpr::Query(inner) if is_bare => query = *inner,
            body => {
                query.body = Box::new(body);
                return query;
            }
        }
    }
}

fn own_limit(query: &Query) -> Result<OwnLimit, Refusal> {
    let mut own = OwnLimit { limit: None, offset: 0 };
    match &query.limit_clause {
        None => {}
        Some(LimitClause::LimitOffset { limit, offset, limit_by: _ }) => {
            own.limit = limit.as_ref().map(rows).transpose()?.flatten();
            if let Some(Offset { value, rows: _ }) = offset {
                own.offset = rows(value)?.unwrap_or(0);
            }
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            own.limit = rows(limit)?;
            own.offset = rows(offset)?.unwrap_or(0);
        }
    }
    if let Some(Fetch { with_ties, percent: _, quantity }) = &query.fetch {
        if *with_ties {
            return Err(Refusal::not_allowed(
                "`WITH TIES` on the whole statement",
                "write `LIMIT`, or rank the rows with `rank()` in a subquery",
            ));
        }
        own.limit = match quantity {
            None => Some(1),
            Some(quantity) => rows(quantity)?,
        };
    }
    Ok(own)
}

/// A number of rows; `None` for `ALL`, `NULL`, and SQLite's negative numbers, which mean no limit.
fn rows(expr: &Expr) -> Result<Option<u64>, Refusal> {
    let not_a_number = || Refusal::not_allowed("a computed limit of rows", "write `LIMIT` and `OFFSET` with numbers");
    match expr {
        Expr::Nested(inner) => rows(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => rows(expr).map(|_| None),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => match digits.parse::<u64>() {
                Ok(number) => Ok((number <= MAX_NUMBER).then_some(number)),
                Err(_) if digits.bytes().all(|digit| digit.is_ascii_digit()) => Ok(None),
                Err(_) => Err(not_a_number()),
            },
            Value::Null => Ok(None),
            _ => Err(not_a_number()),
        },
        _ => Err(not_a_number()),
    }
}

/// Makes the query that counts. Two columns of one name cannot stand in a subquery of MySQL, so a plain select counts
/// its rows without its columns.
fn counting(dialect: Dialect, mut query: Query, own: OwnLimit) -> Result<Counting, Refusal> {
    let has_limit = own.limit.is_some() || own.offset > 0;
    if !has_limit {
        query.order_by = None;
    }
    if let SetExpr::Select(select) = query.body.as_mut()
        && !has_limit
        && gives_a_row_for_each(select)
    {
        // Some of MySQL's are only allowed in the outermost query.
        select.select_modifiers = None;
        select.projection =
            vec![SelectItem::UnnamedExpr(Expr::Value(Value::Number("1".to_owned(), false).with_empty_span()))];
    }
    let text = print(dialect, &Statement::Query(Box::new(query)))?;
    Ok(Counting { before: "SELECT count(*) AS row_count FROM (", text, after: ") AS counted" })
}

/// Tells whether the columns of a select do not change how many rows it has.
fn gives_a_row_for_each(select: &Select) -> bool {
    let is_grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(exprs, modifiers) => !exprs.is_empty() || !modifiers.is_empty(),
    };
    // An alias of the list may be used elsewhere, and a function may aggregate or give rows.
    let is_simple = select.projection.iter().all(|item| match item {
        SelectItem::UnnamedExpr(expr) => !calls_a_function(expr),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::ExprWithAlias { .. } | SelectItem::ExprWithAliases { .. } => false,
    });
    !is_grouped && select.distinct.is_none() && select.having.is_none() && is_simple && !select.from.is_empty()
}

fn calls_a_function(expr: &Expr) -> bool {
    struct FunctionSearch;
    impl Visitor<()> for FunctionSearch {
        fn visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if !matches!(function.args, FunctionArguments::None) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    walk(expr, &mut FunctionSearch).is_break()
}
