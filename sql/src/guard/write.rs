//! `INSERT`, `UPDATE` and `DELETE` of one table.
//!
//! The table that is written to cannot be replaced by a query of its visible columns. Where it has hidden ones, every
//! column of the statement must surely be a visible one.

use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, DoUpdate, Expr, FromTable, Ident, Insert, InsertAliases,
    ObjectName, ObjectNamePart, OnConflict, OnConflictAction, OnInsert, SelectItem, SetExpr, SqliteOnConflict,
    TableAliasWithoutColumns, TableFactor, TableObject, TableWithJoins, Update, UpdateTableFromKind, With,
};

use super::catalog::{Catalog, ROW_IDS};
use super::dialects::same;
use super::print::{exact, full_name};
use super::refusal::Refusal;
use super::scope::{CteName, Scope, Source, StrictNames, has};
use super::walk::Walk;
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::{TableKind, TableName};

/// The table that a statement writes to.
struct Target {
    name: TableName,
    columns: Vec<String>,
    hides: bool,
}

impl Walk<'_> {
    /// Walks the `WITH` before a write, whose parts only read.
    pub(super) fn with_of_write(&mut self, with: Option<&mut With>) -> Result<(), Refusal> {
        with.map_or(Ok(()), |with| self.with(with))
    }

    pub(super) fn insert(&mut self, insert: &mut Insert) -> Result<(), Refusal> {
        let Insert {
            insert_token: _,
            optimizer_hints,
            or,
            ignore: _,
            into,
            table,
            table_alias,
            columns,
            overwrite,
            source,
            assignments,
            partitioned,
            after_columns,
            has_table_keyword,
            on,
            returning,
            output,
            replace_into,
            priority,
            insert_alias,
            settings,
            format_clause,
            multi_table_insert_type,
            multi_table_into_clauses,
            multi_table_when_clauses,
            multi_table_else_clause,
        } = insert;
        let is_foreign = *overwrite
            || partitioned.is_some()
            || !after_columns.is_empty()
            || *has_table_keyword
            || output.is_some()
            || priority.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some();
        if is_foreign {
            return Err(other_form("INSERT"));
        }
        *into = true;
        optimizer_hints.clear();
        let TableObject::TableName(name) = table else { return Err(other_form("INSERT")) };
        let target = self.target(name)?;
        let replaces = *replace_into || matches!(or, Some(SqliteOnConflict::Replace));
        match or {
            None | Some(SqliteOnConflict::Replace | SqliteOnConflict::Ignore | SqliteOnConflict::Abort) => {}
            Some(SqliteOnConflict::Rollback | SqliteOnConflict::Fail) => {
                return Err(Refusal::not_allowed("`OR ROLLBACK` or `OR FAIL`", "leave it out, or write `OR IGNORE`"));
            }
        }
        if replaces && target.hides {
            return Err(Refusal::not_allowed(
                format!("replacing rows of `{}`", self.catalog.shown(&target.name)),
                "write `UPDATE` for the rows that exist; a replaced row would lose the columns that you do not give",
            ));
        }
        self.note_use(&target.name, TableAccess::Insert);
        if replaces {
            self.note_use(&target.name, TableAccess::Delete);
        }
        self.target_columns(&target, columns)?;
        if target.hides && columns.is_empty() && assignments.is_empty() {
            return Err(Refusal::not_allowed("`INSERT` without a list of columns", "name the columns that you give"));
        }
        // The rows do not see the table that they go into.
        let strict = std::mem::take(&mut self.scopes.strict);
        if let Some(query) = source {
            self.query(query)?;
            let is_read = matches!(
                query.body.as_ref(),
                SetExpr::Select(_) | SetExpr::Values(_) | SetExpr::Query(_) | SetExpr::SetOperation { .. }
            );
            if !is_read {
                return Err(Refusal::no_writing_part());
            }
        }
        self.scopes.strict = strict;
        let alias = table_alias.as_ref().map(|TableAliasWithoutColumns { explicit: _, alias }| self.name(alias));
        self.push_target(&target, alias);
        self.assignments(&target, assignments)?;
        if let Some(InsertAliases { row_alias, col_aliases }) = insert_alias {
            self.row_alias(&target, row_alias, col_aliases.as_deref())?;
        }
        if let Some(on) = on {
            self.on_insert(&target, on)?;
        }
        self.returning(returning.as_mut())
    }

    fn on_insert(&mut self, target: &Target, on: &mut OnInsert) -> Result<(), Refusal> {
        match on {
            OnInsert::DuplicateKeyUpdate(assignments) => {
                self.note_use(&target.name, TableAccess::Update);
                self.assignments(target, assignments)
            }
            OnInsert::OnConflict(OnConflict { conflict_target, action }) => {
                match conflict_target {
                    Some(ConflictTarget::Columns(columns)) => {
                        columns.iter().try_for_each(|column| self.target_column(target, column))?;
                    }
                    Some(ConflictTarget::OnConstraint(_)) if target.hides => {
                        return Err(Refusal::not_allowed("`ON CONSTRAINT`", "name the columns in `ON CONFLICT (…)`"));
                    }
                    Some(ConflictTarget::OnConstraint(_)) | None => {}
                }
                match action {
                    OnConflictAction::DoNothing => Ok(()),
                    OnConflictAction::DoUpdate(DoUpdate { assignments, selection }) => {
                        self.note_use(&target.name, TableAccess::Update);
                        let excluded = Source {
                            name: Some("excluded".to_owned()),
                            table: None,
                            is_wrapped: false,
                            columns: Some(target.columns.clone()),
                        };
                        // Its columns are found with `excluded.` only.
                        self.scopes.innermost().sources.push(excluded);
                        self.assignments(target, assignments)?;
                        selection.as_mut().map_or(Ok(()), |selection| self.expr(selection))
                    }
                }
            }
            _ => Err(other_form("INSERT")),
        }
    }

    /// MySQL's `VALUES (…) AS new (columns)`.
    fn row_alias(
        &mut self,
        target: &Target,
        row_alias: &ObjectName,
        col_aliases: Option<&[Ident]>,
    ) -> Result<(), Refusal> {
        let [ObjectNamePart::Identifier(alias)] = row_alias.0.as_slice() else { return Err(other_form("INSERT")) };
        let columns = match col_aliases {
            Some(aliases) if !aliases.is_empty() => aliases.iter().map(|alias| self.name(alias)).collect(),
            _ => target.columns.clone(),
        };
        if let Some(strict) = &mut self.scopes.strict {
            strict.rows.push(alias.value.to_lowercase());
        }
        let row = Source { name: Some(self.name(alias)), table: None, is_wrapped: false, columns: Some(columns) };
        self.scopes.innermost().sources.push(row);
        Ok(())
    }

    pub(super) fn update(&mut self, update: &mut Update) -> Result<(), Refusal> {
        let Update {
            update_token: _,
            optimizer_hints,
            table,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
        } = update;
        if output.is_some()
            || matches!(or, Some(SqliteOnConflict::Rollback | SqliteOnConflict::Fail | SqliteOnConflict::Replace))
        {
            return Err(other_form("UPDATE"));
        }
        optimizer_hints.clear();
        let (target, alias) = self.only_table(table, "UPDATE")?;
        self.note_use(&target.name, TableAccess::Update);
        self.push_target(&target, alias);
        match from {
            None => {}
            Some(UpdateTableFromKind::AfterSet(tables)) if self.dialect() != Dialect::Mysql => {
                tables.iter_mut().try_for_each(|table| self.table_with_joins(table))?;
            }
            Some(UpdateTableFromKind::AfterSet(_) | UpdateTableFromKind::BeforeSet(_)) => {
                return Err(other_form("UPDATE"));
            }
        }
        self.assignments(&target, assignments)?;
        for expr in [selection, limit].into_iter().flatten() {
            self.expr(expr)?;
        }
        self.order_by_exprs(order_by)?;
        self.returning(returning.as_mut())
    }

    pub(super) fn delete(&mut self, delete: &mut Delete) -> Result<(), Refusal> {
        let Delete {
            delete_token: _,
            optimizer_hints,
            tables,
            from,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
        } = delete;
        let FromTable::WithFromKeyword(from) = from else { return Err(other_form("DELETE")) };
        let ([table], true, true) = (from.as_mut_slice(), tables.is_empty(), output.is_none()) else {
            return Err(other_form("DELETE"));
        };
        optimizer_hints.clear();
        let (target, alias) = self.only_table(table, "DELETE")?;
        self.note_use(&target.name, TableAccess::Delete);
        self.push_target(&target, alias);
        if let Some(using) = using {
            if self.dialect() != Dialect::Postgres {
                return Err(other_form("DELETE"));
            }
            using.iter_mut().try_for_each(|table| self.table_with_joins(table))?;
        }
        for expr in [selection, limit].into_iter().flatten() {
            self.expr(expr)?;
        }
        self.order_by_exprs(order_by)?;
        self.returning(returning.as_mut())
    }

    fn only_table(&mut self, table: &mut TableWithJoins, verb: &str) -> Result<(Target, Option<String>), Refusal> {
        let TableWithJoins { relation, joins } = table;
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = relation
        else {
            return Err(other_form(verb));
        };
        if !joins.is_empty() || !with_hints.is_empty() || !partitions.is_empty() || !index_hints.is_empty() {
            return Err(other_form(verb));
        }
        let target = self.target(name)?;
        let alias_name = match alias {
            None => None,
            Some(alias) => {
                self.alias_columns(alias)?;
                alias.explicit = true;
                if !alias.columns.is_empty() {
                    return Err(other_form(verb));
                }
                Some(self.name(&alias.name))
            }
        };
        Ok((target, alias_name))
    }

    fn target(&mut self, name: &mut ObjectName) -> Result<Target, Refusal> {
        let written = self.catalog.written_table(name)?;
        let is_cte = |cte: &CteName| same(self.dialect(), &cte.name, &written.name);
        if written.schema.is_none() && self.ctes.iter().any(is_cte) {
            return Err(Refusal::not_allowed("writing to a name of `WITH`", "write to a table"));
        }
        let (found, table) = self.catalog.find(&written)?;
        if table.kind != TableKind::Base {
            return Err(Refusal::not_allowed(
                format!("writing to `{}`, which is not a plain table,", self.catalog.shown(found)),
                "write to the table that it shows",
            ));
        }
        let hides = self.catalog.hides_columns_of(found, table);
        let columns: Vec<String> = self.catalog.visible_columns(found, table).into_iter().map(str::to_owned).collect();
        if columns.is_empty() {
            return Err(self.catalog.no_such_table(&written));
        }
        *name = full_name(found);
        let is_hidden = |column: &&str| !columns.iter().any(|visible| visible == column);
        let hidden = table.columns.iter().map(|column| column.name.as_str()).filter(is_hidden);
        self.scopes.strict = hides.then(|| StrictNames {
            hidden: hidden.map(str::to_lowercase).collect(),
            rows: vec![found.name.to_lowercase(), "excluded".to_owned()],
        });
        Ok(Target { name: found.clone(), columns, hides })
    }

    fn push_target(&mut self, target: &Target, alias: Option<String>) {
        let mut columns = target.columns.clone();
        if self.dialect() == Dialect::Sqlite && !target.hides {
            columns.extend(ROW_IDS.map(str::to_owned));
        }
        if let (Some(strict), Some(alias)) = (&mut self.scopes.strict, &alias) {
            strict.rows.push(alias.to_lowercase());
        }
        let table = alias.is_none().then(|| target.name.clone());
        let name = Some(alias.unwrap_or_else(|| target.name.name.clone()));
        self.scopes.stack.push(Scope {
            sources: vec![Source { name, table, is_wrapped: false, columns: Some(columns) }],
            aliases: Vec::new(),
        });
    }

    fn assignments(&mut self, target: &Target, assignments: &mut [Assignment]) -> Result<(), Refusal> {
        for Assignment { target: assigned, value } in assignments {
            match assigned {
                AssignmentTarget::ColumnName(column) => {
                    self.target_columns(target, std::slice::from_mut(column))?;
                }
                AssignmentTarget::Tuple(columns) => self.target_columns(target, columns)?,
            }
            self.expr(value)?;
        }
        Ok(())
    }

    fn target_columns(&self, target: &Target, columns: &mut [ObjectName]) -> Result<(), Refusal> {
        for column in columns {
            // MySQL and SQLite allow the table's name before it.
            let Some(ident) = column.0.last().and_then(ObjectNamePart::as_ident).cloned() else {
                return Err(other_form("the list of columns"));
            };
            let is_of_target = match column.0.as_slice() {
                [_] => true,
                [ObjectNamePart::Identifier(table), _] => {
                    let table = self.name(table);
                    same(self.dialect(), &table, &target.name.name)
                        || self.scopes.source(self.dialect(), &table).is_some()
                }
                _ => false,
            };
            if !is_of_target {
                return Err(Refusal::not_allowed("an assignment to a part of a column", "assign the whole column"));
            }
            self.target_column(target, &ident)?;
            if column.0.len() == 1 {
                *column = ObjectName::from(exact(&self.name(&ident)));
            }
        }
        Ok(())
    }

    fn target_column(&self, target: &Target, ident: &Ident) -> Result<(), Refusal> {
        let name = self.name(ident);
        if has(self.dialect(), &target.columns, &name) {
            return Ok(());
        }
        Err(Catalog::no_such_column(&name, &target.name.name, &target.columns))
    }

    fn returning(&mut self, returning: Option<&mut Vec<SelectItem>>) -> Result<(), Refusal> {
        for item in returning.into_iter().flatten() {
            let takes_all = matches!(
                item,
                SelectItem::Wildcard(_)
                    | SelectItem::QualifiedWildcard(..)
                    | SelectItem::UnnamedExpr(Expr::Wildcard(_) | Expr::QualifiedWildcard(..))
            );
            if takes_all && self.scopes.strict.is_some() {
                return Err(Refusal::not_allowed("`RETURNING *`", "name the columns that you need"));
            }
            self.select_item(item)?;
        }
        Ok(())
    }
}

fn other_form(verb: &str) -> Refusal {
    Refusal::not_allowed(
        format!("this form of `{verb}`"),
        "write to one table, named once, with conditions and subqueries in `WHERE`",
    )
}
