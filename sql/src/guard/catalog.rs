//! The schema with the rules for a caller: which table a name means, and which of them have hidden columns.
//!
//! Hides nothing itself: what the caller may see is [`super::visibility`]'s.

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use super::dialects::{folded, same};
use super::refusal::Refusal;
use super::text::shortened;
use crate::dialect::Dialect;
use crate::rules::AccessRules;
use crate::schema::{Schema, Table, TableName};

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

    pub(super) fn hides_columns_of(&self, name: &TableName, table: &Table) -> bool {
        table.columns.iter().any(|column| self.rules.hides(name, &column.name))
    }

    /// A table's name, with its schema if it would not be found without.
    pub(super) fn shown(&self, name: &TableName) -> String {
        match self.lookup(&WrittenTable { schema: None, name: name.name.clone() }) {
            Some((found, _)) if found == name => name.name.clone(),
            _ => format!("{}.{}", name.schema, name.name),
        }
    }
}
