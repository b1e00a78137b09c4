//! References to columns: each must be one that the scopes around it have.

use sqlparser::ast::{Ident, ObjectName};

use super::catalog::Catalog;
use super::print::{exact, keep_as_it_is};
use super::refusal::Refusal;
use super::scope::{Meaning, Source, has};
use super::text::shortened;
use super::walk::Walk;
use crate::dialect::Dialect;

impl Walk<'_> {
    pub(super) fn bare_identifier(&mut self, ident: &mut Ident) -> Result<(), Refusal> {
        if self.in_write && ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") {
            keep_as_it_is(ident);
            return Ok(());
        }
        self.column(ident)
    }

    /// Looks up a column without a table's name.
    pub(super) fn column(&mut self, ident: &Ident) -> Result<(), Refusal> {
        let name = self.name(ident);
        if self.scopes.column(self.dialect(), &name) == Meaning::Found {
            return Ok(());
        }
        let of = self.scopes.only_source().unwrap_or_default();
        let mut refusal = Catalog::no_such_column(&name, of, &self.scopes.all_columns());
        if self.dialect() != Dialect::Mysql && ident.quote_style == Some('"') {
            refusal.hint.push_str("; a string is written in single quotes");
        } else if self.scopes.strict.is_some() {
            refusal.hint.push_str("; where a table is written to, name the columns of subqueries");
        }
        Err(refusal)
    }

    /// Looks up `table.column` and `schema.table.column`.
    pub(super) fn compound(&mut self, parts: &mut Vec<Ident>) -> Result<(), Refusal> {
        let names: Vec<String> = parts.iter().map(|part| self.name(part)).collect();
        let dialect = self.dialect();
        let (source, column, shown) = match names.as_slice() {
            [table, column] => (self.scopes.source(dialect, table), column, table.clone()),
            [schema, table, column] => (self.scopes.table(dialect, schema, table), column, format!("{schema}.{table}")),
            _ => {
                return Err(Refusal::not_allowed(
                    format!("the name `{}`", shortened(&names.join("."))),
                    "write `column`, `table.column` or `schema.table.column`",
                ));
            }
        };
        let Some(source) = source else { return Err(self.scopes.no_such_source(&shown)) };
        if !self.is_column_of(source, column) {
            let columns = source.columns.clone().unwrap_or_default();
            return Err(Catalog::no_such_column(column, &shown, &columns));
        }
        if let Some(own_name) = source.name.clone().filter(|_| names.len() == 3) {
            // What is sent may have another schema's spelling, or no schema: the table's own name is enough.
            *parts = vec![exact(&own_name), exact(column)];
        }
        Ok(())
    }

    pub(super) fn match_column(&mut self, column: &mut ObjectName) -> Result<(), Refusal> {
        let parts: Option<Vec<Ident>> = column.0.iter().map(|part| part.as_ident().cloned()).collect();
        let mut parts = parts.unwrap_or_default();
        if let [ident] = parts.as_slice() {
            return self.column(ident);
        }
        self.compound(&mut parts)?;
        *column = ObjectName::from(parts);
        Ok(())
    }

    /// Checks `table.*` and gives a table with a schema its own name.
    pub(super) fn qualified_wildcard(&mut self, name: &mut ObjectName) -> Result<(), Refusal> {
        if self.scopes.strict.is_some() {
            return Err(Refusal::not_allowed(
                "`.*` where a table with unnamed columns is written to",
                "name the columns",
            ));
        }
        let written = self.catalog.written_table(name)?;
        let source = match &written.schema {
            None => self.scopes.source(self.dialect(), &written.name),
            Some(schema) => self.scopes.table(self.dialect(), schema, &written.name),
        };
        let Some(source) = source else { return Err(self.scopes.no_such_source(&written.name)) };
        let own_name = source.name.clone().unwrap_or(written.name);
        *name = ObjectName::from(exact(&own_name));
        Ok(())
    }

    fn is_column_of(&self, source: &Source, column: &str) -> bool {
        match &source.columns {
            _ if self.scopes.forbids_column(column) => false,
            Some(columns) => has(self.dialect(), columns, column),
            None => self.scopes.strict.is_none(),
        }
    }
}
