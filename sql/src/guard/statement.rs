//! Which kinds of statement may run.

use sqlparser::ast::{
    AnalyzeFormat, AnalyzeFormatKind, DescribeAlias, Expr, Ident, Query, SetExpr, ShowStatementIn,
    ShowStatementInClause, ShowStatementOptions, Statement, UtilityOption, Value,
};

use super::limit::UnlimitedQuery;
use super::print::{full_name, keep_as_it_is, print};
use super::refusal::Refusal;
use super::table_use::TableUse;
use super::text::shortened;
use super::touched::ShownChange;
use super::walk::Walk;
use super::{Guard, GuardedStatement, RowOrder, StatementKind};
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::{TableKind, TableName};

/// What `SHOW` may tell in PostgreSQL.
const SHOWN_VARIABLES: &[&str] = &[
    "server_version",
    "server_version_num",
    "server_encoding",
    "client_encoding",
    "timezone",
    "datestyle",
    "intervalstyle",
    "lc_collate",
    "lc_ctype",
    "search_path",
    "standard_conforming_strings",
    "statement_timeout",
    "transaction_isolation",
    "transaction_read_only",
    "default_transaction_read_only",
];

/// Why no tables could make a query of `statement`; `None` if it is one.
pub(super) fn why_no_query(statement: &Statement) -> Option<Refusal> {
    let is_write = match statement {
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => true,
        Statement::Query(query) => {
            matches!(query.body.as_ref(), SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_))
        }
        Statement::Explain { .. }
        | Statement::ExplainTable { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowTables { .. } => false,
        other => return Some(not_a_query(other)),
    };
    is_write.then(|| Refusal::read_only(&format!("`{}`", first_word(statement))))
}

impl Guard<'_> {
    pub(super) fn checked(&self, statement: Statement) -> Result<GuardedStatement, Refusal> {
        match statement {
            Statement::Query(query) => self.query(*query),
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => self.write(statement),
            Statement::Explain { .. } => self.explain(statement),
            Statement::ExplainTable { .. } | Statement::ShowColumns { .. } => self.describe(statement),
            Statement::ShowVariable { variable } => self.show_variable(variable),
            Statement::ShowTables { terse, history, extended, full, external, show_options } => {
                let is_plain = !terse && !history && !extended && !external && is_bare(&show_options);
                if self.dialect != Dialect::Mysql || !is_plain || self.hides_any_table() {
                    return Err(use_describe("`SHOW TABLES`"));
                }
                let statement = Statement::ShowTables { terse, history, extended, full, external, show_options };
                self.as_it_is(&statement, StatementKind::Show, Vec::new())
            }
            other => Err(not_a_query(&other)),
        }
    }

    fn query(&self, mut query: Query) -> Result<GuardedStatement, Refusal> {
        if matches!(query.body.as_ref(), SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_)) {
            return self.write(Statement::Query(Box::new(query)));
        }
        let mut walk = Walk::new(self.catalog());
        walk.query(&mut query)?;
        let unlimited = UnlimitedQuery::of(self.dialect, &query, self.max_rows)?;
        let order = if query.order_by.is_some() { RowOrder::Ordered } else { RowOrder::Unordered };
        if unlimited.is_values {
            let sql = unlimited.text().to_owned();
            return Ok(GuardedStatement {
                sql,
                kind: StatementKind::Select,
                tables: walk.uses,
                limit: None,
                offset: 0,
                limit_added: false,
                order,
                unlimited: Some(unlimited),
                shown: ShownChange::default(),
            });
        }
        let sent = unlimited.sent();
        Ok(GuardedStatement {
            sql: unlimited.page(sent.limit, 0),
            kind: StatementKind::Select,
            tables: walk.uses,
            limit: Some(sent.limit),
            offset: sent.offset,
            limit_added: sent.was_added || unlimited.is_lowered(),
            order,
            unlimited: Some(unlimited),
            shown: ShownChange::default(),
        })
    }

    fn write(&self, mut statement: Statement) -> Result<GuardedStatement, Refusal> {
        if !self.may_write {
            return Err(Refusal::read_only(&format!("`{}`", first_word(&statement))));
        }
        let mut walk = Walk::new(self.catalog());
        walk.in_write = true;
        let kind = match &mut statement {
            Statement::Query(query) => {
                let Query {
                    with,
                    body,
                    order_by: None,
                    limit_clause: None,
                    fetch: None,
                    locks,
                    for_clause: None,
                    settings: None,
                    format_clause: None,
                    pipe_operators,
                } = query.as_mut()
                else {
                    return Err(Refusal::no_writing_part());
                };
                if !locks.is_empty() || !pipe_operators.is_empty() {
                    return Err(Refusal::no_writing_part());
                }
                walk.with_of_write(with.as_mut())?;
                match body.as_mut() {
                    SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) => {
                        write_statement(&mut walk, inner)?
                    }
                    _ => return Err(Refusal::no_writing_part()),
                }
            }
            other => write_statement(&mut walk, other)?,
        };
        let tables = std::mem::take(&mut walk.uses);
        self.as_it_is(&statement, kind, tables)
    }

    fn as_it_is(
        &self,
        statement: &Statement,
        kind: StatementKind,
        tables: Vec<TableUse>,
    ) -> Result<GuardedStatement, Refusal> {
        Ok(GuardedStatement {
            sql: print(self.dialect, statement)?,
            kind,
            tables,
            limit: None,
            offset: 0,
            limit_added: false,
            order: RowOrder::Unordered,
            unlimited: None,
            shown: ShownChange::default(),
        })
    }

    /// Explains a query without running it. `VERBOSE` would list columns that a table has besides the visible ones.
    fn explain(&self, mut statement: Statement) -> Result<GuardedStatement, Refusal> {
        let Statement::Explain {
            describe_alias: _,
            analyze,
            verbose,
            query_plan: _,
            estimate,
            statement: explained,
            format,
            options,
        } = &mut statement
        else {
            return Err(not_a_query(&statement));
        };
        if *analyze || *verbose || *estimate {
            return Err(Refusal::not_allowed(
                "`EXPLAIN` with `ANALYZE` or `VERBOSE`",
                "write `EXPLAIN` alone, which does not run the query",
            ));
        }
        match format {
            None => {}
            Some(AnalyzeFormatKind::Keyword(format) | AnalyzeFormatKind::Assignment(format)) => match format {
                AnalyzeFormat::TEXT | AnalyzeFormat::JSON | AnalyzeFormat::TRADITIONAL | AnalyzeFormat::TREE => {}
                AnalyzeFormat::GRAPHVIZ => return Err(Refusal::not_allowed("this format", "leave out `FORMAT`")),
            },
        }
        options.iter_mut().flatten().try_for_each(explain_option)?;
        let Statement::Query(query) = explained.as_mut() else {
            return Err(Refusal::not_allowed("`EXPLAIN` of anything but a `SELECT`", "explain a `SELECT`"));
        };
        let mut walk = Walk::new(self.catalog());
        walk.query(query)?;
        let tables = std::mem::take(&mut walk.uses);
        self.as_it_is(&statement, StatementKind::Explain, tables)
    }

    /// `DESCRIBE table` and `SHOW COLUMNS FROM table` of MySQL, for a table without hidden columns.
    fn describe(&self, mut statement: Statement) -> Result<GuardedStatement, Refusal> {
        let name = match &mut statement {
            Statement::ExplainTable { describe_alias, hive_format: None, has_table_keyword: false, table_name } => {
                match describe_alias {
                    DescribeAlias::Describe | DescribeAlias::Explain | DescribeAlias::Desc => table_name,
                }
            }
            Statement::ShowColumns { extended: false, full: _, show_options } => {
                let ShowStatementOptions {
                    show_in:
                        Some(ShowStatementIn {
                            clause: ShowStatementInClause::FROM | ShowStatementInClause::IN,
                            parent_type: None,
                            parent_name: Some(parent_name),
                        }),
                    starts_with: None,
                    limit: None,
                    limit_from: None,
                    filter_position: None,
                } = show_options
                else {
                    return Err(use_describe("this form of `SHOW COLUMNS`"));
                };
                parent_name
            }
            _ => return Err(use_describe("this statement")),
        };
        if self.dialect != Dialect::Mysql {
            return Err(use_describe("`DESCRIBE`"));
        }
        let catalog = self.catalog();
        let (found, table) = catalog.find(&catalog.written_table(name)?)?;
        if catalog.hides_columns_of(found, table) || table.kind != TableKind::Base {
            return Err(use_describe("`DESCRIBE`"));
        }
        *name = full_name(found);
        let tables = vec![TableUse { name: TableName::clone(found), access: TableAccess::Read }];
        self.as_it_is(&statement, StatementKind::Describe, tables)
    }

    fn show_variable(&self, mut variable: Vec<Ident>) -> Result<GuardedStatement, Refusal> {
        let [ident] = variable.as_mut_slice() else { return Err(use_describe("this form of `SHOW`")) };
        let name = ident.value.to_ascii_lowercase();
        let is_listed = ident.quote_style.is_none() && SHOWN_VARIABLES.contains(&name.as_str());
        if self.dialect != Dialect::Postgres || !is_listed {
            return Err(Refusal::not_allowed(
                format!("`SHOW {}`", shortened(&ident.value)),
                format!("in PostgreSQL these may be shown: {}", SHOWN_VARIABLES.join(", ")),
            ));
        }
        keep_as_it_is(ident);
        self.as_it_is(&Statement::ShowVariable { variable }, StatementKind::Show, Vec::new())
    }

    fn hides_any_table(&self) -> bool {
        self.schema.tables.keys().any(|name| !self.catalog().allows(name))
    }
}

fn write_statement(walk: &mut Walk<'_>, statement: &mut Statement) -> Result<StatementKind, Refusal> {
    match statement {
        Statement::Insert(insert) => walk.insert(insert).map(|()| StatementKind::Insert),
        Statement::Update(update) => walk.update(update).map(|()| StatementKind::Update),
        Statement::Delete(delete) => walk.delete(delete).map(|()| StatementKind::Delete),
        _ => Err(Refusal::no_writing_part()),
    }
}

fn explain_option(option: &mut UtilityOption) -> Result<(), Refusal> {
    let UtilityOption { name, arg } = option;
    let is_on_or_off = |arg: &Expr| match arg {
        Expr::Value(value) => matches!(value.value, Value::Boolean(_)),
        Expr::Identifier(ident) => ["on", "off"].contains(&ident.value.to_ascii_lowercase().as_str()),
        _ => false,
    };
    let is_format = |arg: &Expr| match arg {
        Expr::Identifier(ident) => ["text", "json", "yaml", "xml"].contains(&ident.value.to_ascii_lowercase().as_str()),
        _ => false,
    };
    let is_listed = match (name.value.to_ascii_lowercase().as_str(), &arg) {
        ("costs" | "summary", None) => true,
        ("costs" | "summary", Some(arg)) => is_on_or_off(arg),
        ("format", Some(arg)) => is_format(arg),
        _ => false,
    };
    if !is_listed || name.quote_style.is_some() {
        return Err(Refusal::not_allowed(
            format!("the option `{}` of `EXPLAIN`", shortened(&name.value)),
            "use `COSTS`, `SUMMARY` or `FORMAT`, or none",
        ));
    }
    keep_as_it_is(name);
    if let Some(Expr::Identifier(ident)) = arg {
        ident.quote_style = None;
        keep_as_it_is(ident);
    }
    Ok(())
}

fn is_bare(options: &ShowStatementOptions) -> bool {
    let ShowStatementOptions { show_in, starts_with, limit, limit_from, filter_position } = options;
    show_in.is_none() && starts_with.is_none() && limit.is_none() && limit_from.is_none() && filter_position.is_none()
}

fn use_describe(what: &str) -> Refusal {
    Refusal::not_allowed(what, "ask for the description of the database instead, which lists its tables and columns")
}

fn not_a_query(statement: &Statement) -> Refusal {
    Refusal::not_allowed(format!("the statement `{}`", first_word(statement)), "write a `SELECT`")
}

fn first_word(statement: &Statement) -> String {
    let text = statement.to_string();
    let word: String = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_owned();
    shortened(&word)
}
