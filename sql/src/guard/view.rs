//! Whether a view shows something that the caller may not see.
//!
//! Fails closed: a definition that cannot be parsed, that reads an unknown relation, that calls an unknown function, or
//! that takes all columns of a table with hidden ones counts as showing them.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor, Visit as _, Visitor,
};

use super::catalog::Catalog;
use super::dialects::folded;
use super::functions;
use super::text::parse_one;
use crate::schema::{TableKind, TableName};

/// Deepest chain of views that read views.
const MAX_VIEW_DEPTH: usize = 16;

/// Tells whether the query of a view surely reads no hidden column and no denied table.
pub(super) fn shows_nothing_hidden(catalog: &Catalog<'_>, definition: &str) -> bool {
    is_harmless(catalog, definition, 0)
}

fn is_harmless(catalog: &Catalog<'_>, definition: &str, depth: usize) -> bool {
    if depth > MAX_VIEW_DEPTH {
        return false;
    }
    let Ok(statement) = parse_one(catalog.dialect, definition) else { return false };
    let query = match statement {
        Statement::Query(query) => query,
        Statement::CreateView(view) => view.query,
        _ => return false,
    };
    let mut survey = Survey {
        catalog,
        tables: Vec::new(),
        ctes: Vec::new(),
        names: Vec::new(),
        bare: Vec::new(),
        relations: Vec::new(),
        takes_all: false,
    };
    if query.visit(&mut survey).is_break() {
        return false;
    }
    survey.tables.iter().all(|table| survey.is_harmless_table(table, depth))
}

/// What a definition mentions.
struct Survey<'a, 'c> {
    catalog: &'c Catalog<'a>,
    tables: Vec<TableName>,
    ctes: Vec<String>,
    names: Vec<String>,
    /// Names that stand alone as an expression.
    bare: Vec<String>,
    /// Names and aliases of relations; in PostgreSQL such a name alone is a whole row.
    relations: Vec<String>,
    /// It has a `*`, a natural join, or new names for all columns of a table.
    takes_all: bool,
}

impl Survey<'_, '_> {
    fn is_harmless_table(&self, name: &TableName, depth: usize) -> bool {
        let catalog = self.catalog;
        let Some(table) = catalog.schema.tables.get(name) else { return false };
        if !catalog.rules.allows(name) {
            return false;
        }
        let is_known = match &table.kind {
            TableKind::Base => true,
            TableKind::View { definition } => {
                catalog.rules.trusts_view(name)
                    || definition.as_deref().is_some_and(|text| is_harmless(catalog, text, depth + 1))
            }
            TableKind::Other => catalog.rules.trusts_view(name),
        };
        if !is_known || !catalog.hides_columns_of(name, table) {
            return is_known;
        }
        let mentions_hidden = self.names.iter().any(|written| {
            table.columns.iter().any(|column| {
                catalog.rules.hides(name, &column.name) && written.to_lowercase() == column.name.to_lowercase()
            })
        });
        let takes_row = self.bare.iter().any(|name| self.relations.contains(name));
        !mentions_hidden && !self.takes_all && !takes_row
    }

    fn function(&self, function: &Function) -> ControlFlow<()> {
        if functions::may_call(self.catalog, &function.name).is_err() {
            return ControlFlow::Break(());
        }
        if let FunctionArguments::List(list) = &function.args {
            for argument in &list.args {
                let value = match argument {
                    FunctionArg::Unnamed(value)
                    | FunctionArg::Named { arg: value, .. }
                    | FunctionArg::ExprNamed { arg: value, .. } => value,
                };
                match value {
                    FunctionArgExpr::Expr(_) | FunctionArgExpr::Wildcard => {}
                    FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::WildcardWithOptions(_) => {
                        return ControlFlow::Break(());
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Survey<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let name = folded(self.catalog.dialect, &cte.alias.name);
            // A name of `WITH` that is also a table's may mean either.
            if self.catalog.has_table_named(&name) {
                return ControlFlow::Break(());
            }
            self.relations.push(name.to_lowercase());
            self.ctes.push(name.to_lowercase());
        }
        if has_other_bodies(&query.body) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => self.takes_all = true,
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. } | SelectItem::ExprWithAliases { .. } => {}
            }
        }
        for from in &select.from {
            for join in &from.joins {
                if let JoinOperator::Join(on)
                | JoinOperator::Inner(on)
                | JoinOperator::Left(on)
                | JoinOperator::LeftOuter(on)
                | JoinOperator::Right(on)
                | JoinOperator::RightOuter(on)
                | JoinOperator::FullOuter(on) = &join.join_operator
                    && matches!(on, JoinConstraint::Natural)
                {
                    self.takes_all = true;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let Ok(written) = self.catalog.written_table(relation) else { return ControlFlow::Break(()) };
        if written.schema.is_none() && self.ctes.contains(&written.name.to_lowercase()) {
            return ControlFlow::Continue(());
        }
        match self.catalog.lookup(&written) {
            Some((name, _)) => {
                if !self.tables.contains(name) {
                    self.tables.push(name.clone());
                }
                self.relations.push(name.name.to_lowercase());
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { args: None, alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => {
                // New names by place reach columns that are not named. A subquery names what it takes itself.
                let renames = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                self.takes_all |= renames && !matches!(factor, TableFactor::Derived { .. });
                let names = alias.iter().map(|alias| folded(self.catalog.dialect, &alias.name).to_lowercase());
                self.relations.extend(names);
                ControlFlow::Continue(())
            }
            // A relation that is no table: what it reads is not known.
            _ => ControlFlow::Break(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Identifier(ident) => {
                self.bare.push(folded(self.catalog.dialect, ident).to_lowercase());
                ControlFlow::Continue(())
            }
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) | Expr::CompoundFieldAccess { .. } => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_ident(&mut self, ident: &Ident) -> ControlFlow<()> {
        self.names.push(folded(self.catalog.dialect, ident));
        ControlFlow::Continue(())
    }
}

/// Tells whether a body is something else than selects and values, such as `TABLE name`, which names no relation.
fn has_other_bodies(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(_) | SetExpr::Query(_) | SetExpr::Values(_) => false,
        SetExpr::SetOperation { left, right, .. } => has_other_bodies(left) || has_other_bodies(right),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) | SetExpr::Table(_) => true,
    }
}
