//! Queries: `WITH`, what is between `SELECT` and `LIMIT`, and the names of the columns that come out.

use sqlparser::ast::{
    Cte, Distinct, Expr, Fetch, GroupByExpr, GroupByWithModifier, LimitClause, NamedWindowDefinition, NamedWindowExpr,
    Offset, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SelectModifiers, SetExpr, Values, WildcardAdditionalOptions, With,
};

use super::dialects::folded;
use super::print::exact;
use super::refusal::Refusal;
use super::scope::{CteName, Scope, Source};
use super::text::shortened;
use super::walk::{OutputColumns, Walk};

/// More columns than any database returns. Beyond, they are not counted up: joins of joins double them.
const MAX_OUTPUT_COLUMNS: usize = 4_096;

impl Walk<'_> {
    /// Walks a query that only reads.
    pub(super) fn query(&mut self, query: &mut Query) -> Result<OutputColumns, Refusal> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        if !locks.is_empty() {
            return Err(Refusal::not_allowed("a locking clause such as `FOR UPDATE`", "leave it out"));
        }
        if for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty() {
            return Err(Refusal::not_allowed(
                "a clause of another database's SQL",
                format!("write {} SQL", self.dialect()),
            ));
        }
        let ctes_before = self.ctes.len();
        if let Some(with) = with {
            self.with(with)?;
        }
        let columns = match body.as_mut() {
            SetExpr::Select(select) => self.select(select, order_by.as_mut())?,
            body => {
                let columns = self.set_expr(body)?;
                if let Some(order_by) = order_by {
                    // These names are columns of the result, which the database knows.
                    let result = Source { name: None, table: None, is_wrapped: false, columns: None };
                    self.scopes.stack.push(Scope { sources: vec![result], aliases: Vec::new() });
                    self.order_by(order_by)?;
                    self.scopes.stack.pop();
                }
                columns
            }
        };
        if let Some(limit_clause) = limit_clause {
            self.limit_clause(limit_clause)?;
        }
        if let Some(fetch) = fetch {
            self.fetch(fetch)?;
        }
        self.ctes.truncate(ctes_before);
        Ok(columns)
    }

    pub(super) fn with(&mut self, with: &mut With) -> Result<(), Refusal> {
        let With { with_token: _, recursive, cte_tables } = with;
        let recursive = *recursive;
        if recursive {
            // Each of them may refer to each other one.
            for cte in cte_tables.iter() {
                let name = self.cte_name(cte, None)?;
                self.ctes.push(name);
            }
        }
        for cte in cte_tables {
            let columns = self.cte(cte)?;
            let name = self.cte_name(cte, columns)?;
            cte.alias.name = exact(&name.sent);
            if recursive {
                let known = self.ctes.iter_mut().rev().find(|known| known.sent == name.sent);
                if let Some(known) = known {
                    known.columns = name.columns;
                }
            } else {
                self.ctes.push(name);
            }
        }
        Ok(())
    }

    fn cte(&mut self, cte: &mut Cte) -> Result<OutputColumns, Refusal> {
        let Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
        if from.is_some() {
            return Err(Refusal::not_allowed("`FROM` after a part of `WITH`", "leave it out"));
        }
        // A part of `WITH` does not see the tables around the statement that it belongs to.
        let outer = std::mem::take(&mut self.scopes.stack);
        let columns = self.query(query);
        self.scopes.stack = outer;
        let columns = columns?;
        self.alias_columns(alias)?;
        if alias.columns.is_empty() {
            return Ok(columns);
        }
        Ok(Some(alias.columns.iter().map(|column| self.name(&column.name)).collect()))
    }

    /// A name of `WITH` that a table has too is sent under another one, so that the database cannot take it for the
    /// table where we do not, nor the other way round.
    fn cte_name(&self, cte: &Cte, columns: OutputColumns) -> Result<CteName, Refusal> {
        let name = self.name(&cte.alias.name);
        let lowered = name.to_lowercase();
        if ["pg_", "sqlite_"].iter().any(|prefix| lowered.starts_with(prefix)) {
            return Err(Refusal::not_allowed(
                format!("the name `{}` in `WITH`", shortened(&name)),
                "choose a name that does not look like a catalog's",
            ));
        }
        let mut sent = name.clone();
        let mut number = 1;
        while self.catalog.has_table_named(&sent) {
            number += 1;
            sent = format!("{name}_{number}");
        }
        Ok(CteName { name, sent, columns })
    }

    fn set_expr(&mut self, body: &mut SetExpr) -> Result<OutputColumns, Refusal> {
        match body {
            SetExpr::Select(select) => self.select(select, None),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, op: _, set_quantifier: _, right } => {
                let columns = self.set_expr(left)?;
                self.set_expr(right)?;
                Ok(columns)
            }
            SetExpr::Values(values) => {
                self.values(values)?;
                Ok(None)
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(Refusal::no_writing_part())
            }
            SetExpr::Table(_) => Err(Refusal::not_allowed("the statement `TABLE name`", "write `SELECT * FROM name`")),
        }
    }

    pub(super) fn values(&mut self, values: &mut Values) -> Result<(), Refusal> {
        let Values { explicit_row: _, value_keyword: _, rows } = values;
        for row in rows {
            self.exprs(&mut row.content)?;
        }
        Ok(())
    }

    fn select(&mut self, select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<OutputColumns, Refusal> {
        let Select {
            select_token: _,
            optimizer_hints,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        if into.is_some() {
            return Err(Refusal::not_allowed("`SELECT … INTO`", "leave out `INTO`; the rows are returned"));
        }
        let is_foreign = top.is_some()
            || exclude.is_some()
            || !lateral_views.is_empty()
            || prewhere.is_some()
            || !connect_by.is_empty()
            || !cluster_by.is_empty()
            || !distribute_by.is_empty()
            || !sort_by.is_empty()
            || qualify.is_some()
            || value_table_mode.is_some()
            || *flavor != SelectFlavor::Standard;
        if is_foreign {
            return Err(Refusal::not_allowed(
                "a clause of another database's SQL",
                format!("write {} SQL, with `LIMIT` for the number of rows", self.dialect()),
            ));
        }
        // A hint is a comment, and one of MySQL's sets variables.
        optimizer_hints.clear();
        if let Some(modifiers) = select_modifiers {
            check_modifiers(modifiers)?;
        }
        self.scopes.stack.push(Scope::default());
        for table in from.iter_mut() {
            self.table_with_joins(table)?;
        }
        let aliases = projection.iter().filter_map(|item| match item {
            SelectItem::ExprWithAlias { expr: _, alias } => Some(folded(self.catalog.dialect, alias)),
            _ => None,
        });
        let aliases: Vec<String> = aliases.collect();
        self.scopes.innermost().aliases = aliases;
        if let Some(Distinct::On(exprs)) = distinct {
            self.exprs(exprs)?;
        }
        for item in projection.iter_mut() {
            self.select_item(item)?;
        }
        for expr in [selection, having].into_iter().flatten() {
            self.expr(expr)?;
        }
        self.group_by(group_by)?;
        for NamedWindowDefinition(_, window) in named_window {
            match window {
                NamedWindowExpr::NamedWindow(_) => {}
                NamedWindowExpr::WindowSpec(spec) => self.window_spec(spec)?,
            }
        }
        if let Some(order_by) = order_by {
            self.order_by(order_by)?;
        }
        let columns = self.output_columns(projection);
        self.scopes.stack.pop();
        Ok(columns)
    }

    pub(super) fn select_item(&mut self, item: &mut SelectItem) -> Result<(), Refusal> {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => self.expr(expr),
            SelectItem::ExprWithAliases { .. } => Err(Refusal::not_allowed("more than one alias", "give one alias")),
            SelectItem::Wildcard(options) => check_wildcard(options),
            SelectItem::QualifiedWildcard(kind, options) => {
                check_wildcard(options)?;
                match kind {
                    SelectItemQualifiedWildcardKind::ObjectName(name) => self.qualified_wildcard(name),
                    SelectItemQualifiedWildcardKind::Expr(_) => {
                        Err(Refusal::not_allowed("`.*` after an expression", "name the columns that you need"))
                    }
                }
            }
        }
    }

    fn output_columns(&self, projection: &[SelectItem]) -> OutputColumns {
        let mut columns = Vec::new();
        for item in projection {
            if columns.len() > MAX_OUTPUT_COLUMNS {
                return None;
            }
            match item {
                SelectItem::ExprWithAlias { expr: _, alias } => columns.push(self.name(alias)),
                SelectItem::UnnamedExpr(Expr::Identifier(ident)) => columns.push(self.name(ident)),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => columns.push(self.name(parts.last()?)),
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAliases { .. } => return None,
                SelectItem::Wildcard(_) => {
                    for source in &self.scopes.stack.last()?.sources {
                        if columns.len() > MAX_OUTPUT_COLUMNS {
                            return None;
                        }
                        columns.extend(source.columns.clone()?);
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let name = self.name(name.0.last()?.as_ident()?);
                    columns.extend(self.scopes.source(self.dialect(), &name)?.columns.clone()?);
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _) => return None,
            }
        }
        Some(columns)
    }

    fn group_by(&mut self, group_by: &mut GroupByExpr) -> Result<(), Refusal> {
        let (exprs, modifiers) = match group_by {
            GroupByExpr::All(_) => {
                return Err(Refusal::not_allowed("`GROUP BY ALL`", "name the columns to group by"));
            }
            GroupByExpr::Expressions(exprs, modifiers) => (exprs, modifiers),
        };
        self.exprs(exprs)?;
        for modifier in modifiers {
            match modifier {
                GroupByWithModifier::Rollup => {}
                GroupByWithModifier::GroupingSets(expr) => self.expr(expr)?,
                GroupByWithModifier::Cube | GroupByWithModifier::Totals => {
                    return Err(Refusal::not_allowed("this modifier of `GROUP BY`", "leave it out"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn order_by(&mut self, order_by: &mut OrderBy) -> Result<(), Refusal> {
        let OrderBy { kind, interpolate } = order_by;
        match kind {
            OrderByKind::Expressions(exprs) if interpolate.is_none() => self.order_by_exprs(exprs),
            OrderByKind::Expressions(_) | OrderByKind::All(_) => {
                Err(Refusal::not_allowed("this form of `ORDER BY`", "name the columns to order by"))
            }
        }
    }

    pub(super) fn order_by_exprs(&mut self, exprs: &mut [OrderByExpr]) -> Result<(), Refusal> {
        for OrderByExpr { expr, options, with_fill } in exprs {
            let OrderByOptions { sort, nulls_first: _ } = options;
            if with_fill.is_some() || matches!(sort, Some(sqlparser::ast::OrderBySort::Using(_))) {
                return Err(Refusal::not_allowed("this form of `ORDER BY`", "write `ASC` or `DESC`"));
            }
            self.expr(expr)?;
        }
        Ok(())
    }

    fn limit_clause(&mut self, limit: &mut LimitClause) -> Result<(), Refusal> {
        match limit {
            LimitClause::LimitOffset { limit, offset, limit_by } => {
                if !limit_by.is_empty() {
                    return Err(Refusal::not_allowed("`LIMIT … BY`", "leave out `BY`"));
                }
                if let Some(limit) = limit {
                    self.expr(limit)?;
                }
                if let Some(Offset { value, rows: _ }) = offset {
                    self.expr(value)?;
                }
                Ok(())
            }
            LimitClause::OffsetCommaLimit { offset, limit } => {
                self.expr(offset)?;
                self.expr(limit)
            }
        }
    }

    fn fetch(&mut self, fetch: &mut Fetch) -> Result<(), Refusal> {
        let Fetch { with_ties: _, percent, quantity } = fetch;
        if *percent {
            return Err(Refusal::not_allowed("`FETCH … PERCENT`", "write `LIMIT` with a number of rows"));
        }
        quantity.as_mut().map_or(Ok(()), |quantity| self.expr(quantity))
    }
}

fn check_modifiers(modifiers: &SelectModifiers) -> Result<(), Refusal> {
    let SelectModifiers {
        high_priority,
        straight_join: _,
        sql_small_result: _,
        sql_big_result: _,
        sql_buffer_result: _,
        sql_no_cache: _,
        sql_calc_found_rows,
    } = modifiers;
    if *high_priority || *sql_calc_found_rows {
        return Err(Refusal::not_allowed("`HIGH_PRIORITY` or `SQL_CALC_FOUND_ROWS`", "leave it out"));
    }
    Ok(())
}

fn check_wildcard(options: &WildcardAdditionalOptions) -> Result<(), Refusal> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    let is_plain = opt_ilike.is_none()
        && opt_exclude.is_none()
        && opt_except.is_none()
        && opt_replace.is_none()
        && opt_rename.is_none()
        && opt_alias.is_none();
    if is_plain {
        return Ok(());
    }
    Err(Refusal::not_allowed(
        format!("`*` with options such as `{}`", shortened(options.to_string().trim())),
        "write `*`, or name the columns that you need",
    ))
}
