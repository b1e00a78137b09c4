//! Everything that may stand in `FROM`.

use sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, JsonTableColumn, JsonTableColumnErrorHandling,
    JsonTableNamedColumn, JsonTableNestedColumn, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Statement,
    TableAlias, TableAliasColumnDef, TableFactor, TableIndexHints, TableSample, TableSampleKind, TableSampleQuantity,
    TableWithJoins,
};

use super::catalog::WrittenTable;
use super::dialects::{same, written_name};
use super::functions;
use super::print::{exact, full_name, keep_name};
use super::refusal::{Refusal, RefusalKind};
use super::scope::{CteName, Source};
use super::text::{parse_again, shortened};
use super::walk::{OutputColumns, Walk};
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::TableName;

/// Most relations of a statement. Each table with hidden columns is replaced by a query that names all others.
const MAX_RELATIONS: usize = 300;

impl Walk<'_> {
    pub(super) fn table_with_joins(&mut self, table: &mut TableWithJoins) -> Result<(), Refusal> {
        let TableWithJoins { relation, joins } = table;
        self.table_factor(relation)?;
        for Join { relation, global, join_operator } in joins {
            if *global {
                return Err(Refusal::not_allowed("a `GLOBAL` join", "leave out `GLOBAL`"));
            }
            self.table_factor(relation)?;
            self.join_operator(join_operator)?;
        }
        Ok(())
    }

    fn join_operator(&mut self, operator: &mut JoinOperator) -> Result<(), Refusal> {
        match operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::CrossJoin(constraint)
            | JoinOperator::StraightJoin(constraint) => self.join_constraint(constraint),
            JoinOperator::Semi(_)
            | JoinOperator::LeftSemi(_)
            | JoinOperator::RightSemi(_)
            | JoinOperator::Anti(_)
            | JoinOperator::LeftAnti(_)
            | JoinOperator::RightAnti(_)
            | JoinOperator::CrossApply
            | JoinOperator::OuterApply
            | JoinOperator::AsOf { .. }
            | JoinOperator::ArrayJoin
            | JoinOperator::LeftArrayJoin
            | JoinOperator::InnerArrayJoin => {
                Err(Refusal::not_allowed("this kind of join", "write `JOIN`, `LEFT JOIN` or `CROSS JOIN`"))
            }
        }
    }

    fn join_constraint(&mut self, constraint: &mut JoinConstraint) -> Result<(), Refusal> {
        match constraint {
            JoinConstraint::On(expr) => self.expr(expr),
            JoinConstraint::Using(columns) => {
                for column in columns {
                    let Some(ident) =
                        column.0.first().and_then(ObjectNamePart::as_ident).filter(|_| column.0.len() == 1)
                    else {
                        return Err(Refusal::not_allowed("this form of `USING`", "name columns in `USING`"));
                    };
                    self.column(ident)?;
                }
                Ok(())
            }
            JoinConstraint::Natural | JoinConstraint::None => Ok(()),
        }
    }

    pub(super) fn table_factor(&mut self, factor: &mut TableFactor) -> Result<(), Refusal> {
        match factor {
            TableFactor::Table { args: None, .. } => self.table(factor),
            TableFactor::Table {
                name,
                alias,
                args: Some(args),
                with_hints,
                version,
                with_ordinality: _,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                let is_plain = with_hints.is_empty()
                    && version.is_none()
                    && partitions.is_empty()
                    && json_path.is_none()
                    && sample.is_none()
                    && index_hints.is_empty()
                    && args.settings.is_none();
                if !is_plain {
                    return Err(Refusal::not_allowed("an option of a table function", "leave it out"));
                }
                let called = self.table_function(name)?;
                self.function_args(&called, &mut args.args)?;
                self.add_source(alias.as_mut(), Some(called), None)
            }
            TableFactor::Function { lateral: _, name, args, with_ordinality: _, alias } => {
                let called = self.table_function(name)?;
                self.function_args(&called, args)?;
                self.add_source(alias.as_mut(), Some(called), None)
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                if sample.is_some() {
                    return Err(Refusal::not_allowed("a sample of a subquery", "leave out the sample"));
                }
                let columns = if *lateral || self.dialect() == Dialect::Sqlite {
                    self.query(subquery)?
                } else {
                    // Without LATERAL it does not see the tables beside it, only those of outer queries.
                    let own = self.scopes.stack.pop().unwrap_or_default();
                    let columns = self.query(subquery);
                    self.scopes.stack.push(own);
                    columns?
                };
                self.add_source(alias.as_mut(), None, columns)
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality: _,
            } if self.dialect() == Dialect::Postgres => {
                self.exprs(array_exprs)?;
                self.add_source(alias.as_mut(), Some("unnest".to_owned()), None)
            }
            TableFactor::JsonTable { json_expr, json_path: _, columns, alias } if self.dialect() == Dialect::Mysql => {
                self.expr(json_expr)?;
                self.json_columns(columns)?;
                self.add_source(alias.as_mut(), None, None)
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.table_with_joins(table_with_joins),
            TableFactor::UNNEST { .. }
            | TableFactor::JsonTable { .. }
            | TableFactor::NestedJoin { .. }
            | TableFactor::TableFunction { .. }
            | TableFactor::OpenJsonTable { .. }
            | TableFactor::Pivot { .. }
            | TableFactor::Unpivot { .. }
            | TableFactor::UnpivotExpr { .. }
            | TableFactor::MatchRecognize { .. }
            | TableFactor::XmlTable { .. }
            | TableFactor::SemanticView { .. } => Err(Refusal::not_allowed(
                "this kind of relation in `FROM`",
                "write tables, joins, subqueries, or functions that give rows",
            )),
        }
    }

    fn table_function(&self, name: &mut ObjectName) -> Result<String, Refusal> {
        let called = functions::may_call(&self.catalog, name)?;
        if !functions::gives_rows(&self.catalog, &called) {
            return Err(Refusal::not_allowed(format!("the function `{called}` in `FROM`"), "use it in an expression"));
        }
        keep_name(name);
        Ok(called)
    }

    fn json_columns(&mut self, columns: &mut [JsonTableColumn]) -> Result<(), Refusal> {
        let is_plain = |handling: &Option<JsonTableColumnErrorHandling>| match handling {
            None
            | Some(
                JsonTableColumnErrorHandling::Null
                | JsonTableColumnErrorHandling::Default(_)
                | JsonTableColumnErrorHandling::Error,
            ) => true,
        };
        for column in columns {
            match column {
                JsonTableColumn::ForOrdinality(_) => {}
                JsonTableColumn::Named(JsonTableNamedColumn {
                    name: _,
                    r#type,
                    path: _,
                    exists: _,
                    on_empty,
                    on_error,
                }) => {
                    debug_assert!(is_plain(on_empty) && is_plain(on_error));
                    self.data_type(r#type)?;
                }
                JsonTableColumn::Nested(JsonTableNestedColumn { path: _, columns }) => self.json_columns(columns)?,
            }
        }
        Ok(())
    }

    fn table(&mut self, factor: &mut TableFactor) -> Result<(), Refusal> {
        let TableFactor::Table {
            name,
            alias,
            args: _,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } = factor
        else {
            return Err(Refusal::not_allowed("this kind of relation in `FROM`", "write a table"));
        };
        if !with_hints.is_empty() || version.is_some() || *with_ordinality || json_path.is_some() {
            return Err(Refusal::not_allowed("an option of a table", "leave it out"));
        }
        if !partitions.is_empty() && self.dialect() != Dialect::Mysql {
            return Err(Refusal::not_allowed("the choice of a partition", "leave it out"));
        }
        for TableIndexHints { hint_type: _, index_type: _, for_clause: _, index_names: _ } in index_hints.iter() {}
        if let Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) = sample {
            self.sample(sample)?;
        }
        let written = self.catalog.written_table(name)?;
        if let Some(cte) = self.cte_named(&written) {
            let (sent, own_name, columns) = (cte.sent.clone(), cte.name.clone(), cte.columns.clone());
            *name = ObjectName::from(exact(&sent));
            if sent != own_name && alias.is_none() {
                *alias = Some(alias_named(&own_name));
            }
            return self.add_source(alias.as_mut(), Some(own_name), columns);
        }
        let (found, table) = self.catalog.find(&written)?;
        self.note_use(found, TableAccess::Read);
        *name = full_name(found);
        let visible = self.catalog.visible_columns(found, table);
        let columns = self.catalog.known_columns(table, &visible);
        if !self.catalog.hides_columns_of(found, table) {
            let own_name = found.name.clone();
            let has_alias = alias.is_some();
            self.add_source(alias.as_mut(), Some(own_name), columns)?;
            if !has_alias && let Some(source) = self.scopes.innermost().sources.last_mut() {
                source.table = Some(found.clone());
            }
            return Ok(());
        }
        if visible.is_empty() {
            return Err(self.catalog.no_such_table(&written));
        }
        let visible: Vec<String> = visible.into_iter().map(str::to_owned).collect();
        self.wrap(factor, found, visible)
    }

    /// Replaces a table by a query of its visible columns, so that nothing beside it can reach the others.
    fn wrap(&mut self, factor: &mut TableFactor, name: &TableName, visible: Vec<String>) -> Result<(), Refusal> {
        let TableFactor::Table { alias, .. } = &mut *factor else {
            return Err(Refusal::not_allowed("this kind of relation in `FROM`", "write a table"));
        };
        let has_alias = alias.is_some();
        let mut outer_alias = alias.take().unwrap_or_else(|| alias_named(&name.name));
        let subquery = query_of(self.dialect(), factor.clone(), &visible)?;
        self.add_source(Some(&mut outer_alias), None, Some(visible))?;
        if let Some(source) = self.scopes.innermost().sources.last_mut() {
            source.is_wrapped = true;
            source.table = (!has_alias).then(|| name.clone());
        }
        *factor = TableFactor::Derived { lateral: false, subquery, alias: Some(outer_alias), sample: None };
        Ok(())
    }

    fn cte_named(&self, written: &WrittenTable) -> Option<&CteName> {
        if written.schema.is_some() {
            return None;
        }
        self.ctes.iter().rev().find(|cte| same(self.catalog.dialect, &cte.name, &written.name))
    }

    fn sample(&mut self, sample: &mut TableSample) -> Result<(), Refusal> {
        let TableSample { modifier: _, name: _, quantity, seed: _, bucket, offset } = sample;
        if self.dialect() != Dialect::Postgres || bucket.is_some() || offset.is_some() {
            return Err(Refusal::not_allowed("this form of a sample", "leave it out"));
        }
        match quantity {
            Some(TableSampleQuantity { parenthesized: _, value, unit: _ }) => self.expr(value),
            None => Ok(()),
        }
    }

    /// Makes a relation visible to the expressions of the innermost query.
    pub(super) fn add_source(
        &mut self,
        alias: Option<&mut TableAlias>,
        own_name: Option<String>,
        columns: OutputColumns,
    ) -> Result<(), Refusal> {
        self.relations += 1;
        if self.relations > MAX_RELATIONS {
            return Err(Refusal::new(
                RefusalKind::TooLong,
                format!("the statement has more than {MAX_RELATIONS} tables and subqueries in `FROM`"),
                "ask for less at once",
            ));
        }
        let mut source = Source { name: own_name, table: None, is_wrapped: false, columns };
        if let Some(alias) = alias {
            self.alias_columns(alias)?;
            alias.explicit = true;
            source.name = Some(self.name(&alias.name));
            if !alias.columns.is_empty() {
                let renamed: Vec<String> = alias.columns.iter().map(|column| self.name(&column.name)).collect();
                // Columns beyond the renamed ones keep their names.
                source.columns = source.columns.map(|own| {
                    let kept = own.into_iter().skip(renamed.len());
                    renamed.into_iter().chain(kept).collect()
                });
            }
        }
        if let (Some(strict), Some(name)) = (&self.scopes.strict, &source.name)
            && (strict.names_row(name) || !name.is_ascii())
        {
            return Err(Refusal::not_allowed(
                format!("another relation with the name `{}`", shortened(name)),
                "give it an alias of its own",
            ));
        }
        self.scopes.innermost().sources.push(source);
        Ok(())
    }

    pub(super) fn alias_columns(&mut self, alias: &mut TableAlias) -> Result<(), Refusal> {
        let TableAlias { explicit: _, name: _, columns, at } = alias;
        if at.is_some() {
            return Err(Refusal::not_allowed("`AT` after an alias", "leave it out"));
        }
        for TableAliasColumnDef { name: _, data_type } in columns {
            if let Some(data_type) = data_type {
                self.data_type(data_type)?;
            }
        }
        Ok(())
    }
}

fn alias_named(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: exact(name), columns: Vec::new(), at: None }
}

/// `SELECT columns FROM table`, as a syntax tree.
fn query_of(dialect: Dialect, table: TableFactor, columns: &[String]) -> Result<Box<Query>, Refusal> {
    let broken = || Refusal::syntax("a table's columns cannot be written", "choose another table");
    let list: Vec<String> = columns.iter().map(|column| written_name(dialect, column)).collect();
    let text = format!("SELECT {} FROM t", list.join(", "));
    let Some(Statement::Query(mut query)) = parse_again(dialect, &text) else { return Err(broken()) };
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(broken()) };
    let is_as_written = select.projection.len() == columns.len()
        && select.projection.iter().zip(columns).all(|(item, column)| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(Ident { value, .. })) => value == column,
            _ => false,
        });
    if !is_as_written {
        return Err(broken());
    }
    for (item, column) in select.projection.iter_mut().zip(columns) {
        *item = SelectItem::UnnamedExpr(Expr::Identifier(exact(column)));
    }
    select.from = vec![TableWithJoins { relation: table, joins: Vec::new() }];
    Ok(query)
}
