//! The schema with the rules for a caller: which table a name means, and which of them have hidden columns.
//!
//! Hides nothing itself: what the caller may see is [`super::visibility`]'s.

use std::collections::BTreeSet;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use super::dialects::{folded, same};
use super::refusal::Refusal;
use super::text::shortened;
use crate::dialect::Dialect;
use crate::rules::AccessRules;
use crate::schema::{Column, Schema, Table, TableName};

/// Columns that each plain table of SQLite has without naming them.
pub(super) const ROW_IDS: [&str; 3] = ["rowid", "oid", "_rowid_"];

/// A schema, and the rules for what a caller may see of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Catalog<'a> {
    pub(super) dialect: Dialect,
    pub(super) schema: &'a Schema,
    pub(super) rules: &'a AccessRules,
    /// Something is hidden or denied, so what a view reads matters.
    pub(super) hides_anything: bool,
}

/// A name in `FROM`, in parts as the database compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenTable {
    pub(super) schema: Option<String>,
    pub(super) name: String,
}

impl<'a> Catalog<'a> {
    /// Reads a name of one or two parts.
    pub(super) fn written_table(&self, name: &ObjectName) -> Result<WrittenTable, Refusal> {
        let idents: Option<Vec<&Ident>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
        match idents.as_deref() {
            Some([table]) => Ok(WrittenTable { schema: None, name: folded(self.dialect, table) }),
            Some([schema, table]) => {
                Ok(WrittenTable { schema: Some(folded(self.dialect, schema)), name: folded(self.dialect, table) })
            }
            _ => Err(Refusal::not_allowed(
                format!("the name `{}`", shortened(&name.to_string())),
                "write `table` or `schema.table`",
            )),
        }
    }

    /// Finds the table or view that the database would find, whatever the rules say.
    pub(super) fn lookup(&self, written: &WrittenTable) -> Option<(&'a TableName, &'a Table)> {
        let schemas: Vec<&str> = match &written.schema {
            Some(schema) => vec![schema],
            None => self.schema.search_path.iter().map(String::as_str).collect(),
        };
        schemas.into_iter().find_map(|schema| {
            let exact = TableName { schema: schema.to_owned(), name: written.name.clone() };
            self.schema.tables.get_key_value(&exact).or_else(|| {
                let mut alike = self.schema.tables.iter().filter(|(name, _)| {
                    same(self.dialect, &name.schema, schema) && same(self.dialect, &name.name, &written.name)
                });
                alike.next().filter(|_| alike.next().is_none())
            })
        })
    }

    /// Tells whether a table of any schema has that name: a `WITH` name that is equal to it is renamed.
    pub(super) fn has_table_named(&self, name: &str) -> bool {
        self.schema.tables.keys().any(|table| table.name.to_lowercase() == name.to_lowercase())
    }

    /// Whether the rules let the caller use a table: neither it is denied nor one of which its rows are rows.
    pub(super) fn allows(&self, name: &TableName) -> bool {
        self.rules.allows(name) && !self.ancestors(name).iter().any(|parent| self.rules.denies(parent))
    }

    /// Whether a column does not exist for the caller: it is hidden by its own name, or in a table from which this one
    /// inherits it, or it holds whole rows of a table of which something does not exist.
    pub(super) fn hides(&self, name: &TableName, column: &Column) -> bool {
        self.hides_by_name(name, &column.name) || self.holds_hidden_rows(name, column)
    }

    pub(super) fn hides_by_name(&self, name: &TableName, column: &str) -> bool {
        self.rules.hides(name, column) || self.ancestors(name).iter().any(|parent| self.rules.hides(parent, column))
    }

    /// Whether a column holds rows of a table that is not allowed, or has hidden columns.
    fn holds_hidden_rows(&self, name: &TableName, column: &Column) -> bool {
        if self.schema.rows_in_columns.is_empty() {
            return false;
        }
        let held = self.schema.rows_in_columns.get(&(name.clone(), column.name.clone()));
        held.into_iter().flatten().any(|held| match self.schema.tables.get(held) {
            None => self.schema.is_part || !self.allows(held),
            Some(table) => {
                !self.allows(held) || table.columns.iter().any(|column| self.hides_by_name(held, &column.name))
            }
        })
    }

    /// The tables from which one inherits, at any distance.
    fn ancestors(&self, name: &TableName) -> BTreeSet<&'a TableName> {
        let parents = |name: &TableName| {
            let name = name.clone();
            self.schema.heirs.iter().filter(move |(child, _)| *child == name).map(|(_, parent)| parent)
        };
        let mut found = BTreeSet::new();
        let mut open: Vec<_> = parents(name).collect();
        while let Some(parent) = open.pop() {
            if found.insert(parent) {
                open.extend(parents(parent));
            }
        }
        found
    }

    pub(super) fn hides_columns_of(&self, name: &TableName, table: &Table) -> bool {
        table.columns.iter().any(|column| self.hides(name, column))
    }

    /// A table's name, with its schema if it would not be found without.
    pub(super) fn shown(&self, name: &TableName) -> String {
        match self.lookup(&WrittenTable { schema: None, name: name.name.clone() }) {
            Some((found, _)) if found == name => name.name.clone(),
            _ => format!("{}.{}", name.schema, name.name),
        }
    }
}
