//! Whether a view shows something that the caller may not see.
//!
//! Fails closed: a definition that cannot be parsed, that reads an unknown relation, that calls an unknown function, or
//! that takes all columns of a table with hidden ones counts as showing them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor,
};

use super::catalog::Catalog;
use super::dialects::{folded, same};
use super::functions;
use super::one_walk::{Visitor, walk, walk_relations};
use super::text::{parse_one, shortened};
use crate::schema::{TableKind, TableName};

/// Deepest chain of views that read views.
const MAX_VIEW_DEPTH: usize = 16;
/// Most tables that views read whose views are read in turn.
const MAX_VIEW_TABLES: usize = 1_000;

/// Fails, with the reason, unless the query of a view surely reads no hidden column and no denied table.
pub(super) fn check_harmless(catalog: &Catalog<'_>, definition: &str) -> Result<(), String> {
    is_harmless(catalog, definition, 0)
}

/// Fails, with the reason, unless all that a view reads is surely in the schema.
pub(super) fn check_inside(catalog: &Catalog<'_>, definition: &str) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    read_tables(catalog, definition, &mut seen).map(drop)
}

/// The tables and views that the query of a view reads, also through other views; fails if they are not known.
pub(super) fn read_tables(
    catalog: &Catalog<'_>,
    definition: &str,
    seen: &mut BTreeSet<TableName>,
) -> Result<(), String> {
    let query = query_of(catalog, definition)?;
    let mut names = Vec::new();
    let mut ctes = CteNames(Vec::new());
    let walked = walk(&query, &mut ctes);
    debug_assert!(walked.is_continue());
    let found = walk_relations(&query, |name: &ObjectName| match catalog.written_table(name) {
        Ok(written) => {
            names.push(written);
            ControlFlow::Continue(())
        }
        Err(_) => {
            ControlFlow::Break(format!("it reads `{}`, whose name has other parts", shortened(&name.to_string())))
        }
    });
    if let ControlFlow::Break(why) = found {
        return Err(why);
    }
    for written in names {
        let is_cte = written.schema.is_none()
            && ctes.0.iter().any(|cte| same(catalog.dialect, &folded(catalog.dialect, cte), &written.name));
        let Some((name, table)) = catalog.lookup(&written) else {
            if is_cte {
                continue;
            }
            let schema = written.schema.map(|schema| format!("{schema}.")).unwrap_or_default();
            return Err(format!("it reads `{schema}{}`, which is not a table here", written.name));
        };
        if !seen.insert(name.clone()) || seen.len() > MAX_VIEW_TABLES {
            continue;
        }
        match &table.kind {
            TableKind::View { definition: Some(definition) } => read_tables(catalog, definition, seen)?,
            TableKind::View { definition: None } => {
                return Err(format!("it reads the view `{}`, whose definition cannot be read", name.name));
            }
            TableKind::Base | TableKind::Foreign { .. } | TableKind::Other => {}
        }
    }
    Ok(())
}

/// The names of `WITH`.
struct CteNames(Vec<Ident>);

impl Visitor<()> for CteNames {
    fn visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0.extend(query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| cte.alias.name.clone()));
        ControlFlow::Continue(())
    }
}

fn query_of(catalog: &Catalog<'_>, definition: &str) -> Result<Box<Query>, String> {
    match parse_one(catalog.dialect, definition) {
        Ok(Statement::Query(query)) => Ok(query),
        Ok(Statement::CreateView(view)) => Ok(view.query),
        Ok(_) | Err(_) => Err("its definition cannot be understood".to_owned()),
    }
}

fn is_harmless(catalog: &Catalog<'_>, definition: &str, depth: usize) -> Result<(), String> {
    if depth > MAX_VIEW_DEPTH {
        return Err("it reads too many views that read views".to_owned());
    }
    let query = query_of(catalog, definition)?;
    let mut survey = Survey {
        catalog,
        tables: Vec::new(),
        ctes: Vec::new(),
        names: Vec::new(),
        bare: Vec::new(),
        relations: Vec::new(),
        takes_all: false,
    };
    if let ControlFlow::Break(why) = walk(&query, &mut survey) {
        return Err(why);
    }
    survey.tables.iter().try_for_each(|table| survey.check_table(table, depth))
}

/// A part of a definition that is not understood well enough.
fn unclear<T>(what: &str) -> ControlFlow<String, T> {
    ControlFlow::Break(format!("its definition has {what}, which may show more than its columns"))
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
    fn check_table(&self, name: &TableName, depth: usize) -> Result<(), String> {
        let catalog = self.catalog;
        let shown = catalog.shown(name);
        let Some(table) = catalog.schema.tables.get(name) else { return Err(format!("it reads `{shown}`")) };
        if !catalog.allows(name) {
            return Err(format!("it reads `{shown}`, which is denied"));
        }
        match &table.kind {
            TableKind::Base => {}
            _ if catalog.rules.trusts_view(name) => {}
            TableKind::View { definition: Some(text) } => {
                is_harmless(catalog, text, depth + 1).map_err(|why| format!("it reads the view `{shown}`: {why}"))?;
            }
            TableKind::Foreign { .. } if catalog.why_not(name, table).is_none() => {}
            TableKind::View { definition: None } | TableKind::Foreign { .. } | TableKind::Other => {
                return Err(format!("it reads `{shown}`, and what that shows is not known"));
            }
        }
        if !catalog.hides_columns_of(name, table) {
            return Ok(());
        }
        let hidden = table.columns.iter().find(|column| {
            catalog.hides(name, column)
                && self.names.iter().any(|written| written.to_lowercase() == column.name.to_lowercase())
        });
        if let Some(hidden) = hidden {
            return Err(format!("it names `{}`, as a hidden column of `{shown}` is called", hidden.name));
        }
        if self.takes_all || self.bare.iter().any(|name| self.relations.contains(name)) {
            return Err(format!("it takes whole rows of a table, and `{shown}` has hidden columns"));
        }
        Ok(())
    }

    fn function(&self, function: &Function) -> ControlFlow<String> {
        let Ok(called) = functions::may_call(self.catalog, &function.name) else {
            let name = shortened(&function.name.to_string());
            return ControlFlow::Break(format!("it calls the function `{name}`, which is not on the list"));
        };
        if let FunctionArguments::List(list) = &function.args {
            for argument in &list.args {
                let value = match argument {
                    FunctionArg::Unnamed(value)
                    | FunctionArg::Named { arg: value, .. }
                    | FunctionArg::ExprNamed { arg: value, .. } => value,
                };
                match value {
                    FunctionArgExpr::Expr(_) | FunctionArgExpr::Wildcard => {}
                    // It only tells rows from the absence of one.
                    FunctionArgExpr::QualifiedWildcard(_) if called == "count" => {}
                    FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::WildcardWithOptions(_) => {
                        return unclear("a whole row as an argument");
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Visitor<String> for Survey<'_, '_> {
    fn visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let name = folded(self.catalog.dialect, &cte.alias.name);
            // A name of `WITH` that is also a table's may mean either.
            if self.catalog.has_table_named(&name) {
                return unclear("a name of `WITH` that is also a table's");
            }
            self.relations.push(name.to_lowercase());
            self.ctes.push(name.to_lowercase());
        }
        if has_other_bodies(&query.body) { unclear("a part that is no `SELECT`") } else { ControlFlow::Continue(()) }
    }

    fn visit_select(&mut self, select: &Select) -> ControlFlow<String> {
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

    fn visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<String> {
        let Ok(written) = self.catalog.written_table(relation) else { return unclear("a name of many parts") };
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
            None => ControlFlow::Break(format!(
                "it reads `{}`, which is not a table here",
                shortened(&relation.to_string().replace(['`', '"'], ""))
            )),
        }
    }

    fn visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
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
            _ => unclear("a relation that is no table"),
        }
    }

    fn visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Identifier(ident) => {
                self.bare.push(folded(self.catalog.dialect, ident).to_lowercase());
                ControlFlow::Continue(())
            }
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) | Expr::CompoundFieldAccess { .. } => {
                unclear("a whole row as a value")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn visit_ident(&mut self, ident: &Ident) -> ControlFlow<String> {
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
