//! The schema as the caller may see it: which table a name means, which columns exist, which names are near.

use std::fmt::Write as _;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use super::VisibleTable;
use super::dialects::{folded, same};
use super::refusal::{Refusal, RefusalKind};
use super::text::shortened;
use crate::dialect::Dialect;
use crate::rules::AccessRules;
use crate::schema::{Schema, Table, TableKind, TableName};

/// How many names a hint lists.
const MAX_LISTED: usize = 40;
/// How similar a name must be to be offered, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

/// What a caller may see of a schema.
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

    /// Finds the table or view that the database would find, if the caller may use it.
    pub(super) fn find(&self, written: &WrittenTable) -> Result<(&'a TableName, &'a Table), Refusal> {
        self.lookup(written)
            .filter(|(name, table)| self.rules.allows(name) && self.may_read(name, table))
            .ok_or_else(|| self.no_such_table(written))
    }

    /// Finds a table whatever the rules say, for [`super::view`].
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

    pub(super) fn visible_columns(&self, name: &TableName, table: &'a Table) -> Vec<&'a str> {
        let columns = table.columns.iter().map(|column| column.name.as_str());
        columns.filter(|column| !self.rules.hides(name, column)).collect()
    }

    pub(super) fn visible_tables(&self) -> Vec<VisibleTable<'a>> {
        let tables =
            self.schema.tables.iter().filter(|(name, table)| self.rules.allows(name) && self.may_read(name, table));
        let visible = tables.map(|(name, table)| {
            let columns = table.columns.iter().filter(|column| !self.rules.hides(name, &column.name)).collect();
            VisibleTable { name, table, columns }
        });
        visible.filter(|visible| visible.table.columns.is_empty() || !visible.columns.is_empty()).collect()
    }

    /// A view is read if it surely shows nothing that is hidden or denied, or if a person said so.
    fn may_read(&self, name: &TableName, table: &Table) -> bool {
        match &table.kind {
            TableKind::Base => true,
            TableKind::View { definition } => {
                self.rules.trusts_view(name)
                    || !self.hides_anything
                    || definition.as_deref().is_some_and(|text| super::view::shows_nothing_hidden(self, text))
            }
            TableKind::Other => self.rules.trusts_view(name) || !self.hides_anything,
        }
    }

    pub(super) fn no_such_table(&self, written: &WrittenTable) -> Refusal {
        let name = match &written.schema {
            Some(schema) => format!("{schema}.{}", written.name),
            None => written.name.clone(),
        };
        let visible: Vec<String> = self.visible_tables().iter().map(|visible| self.shown(visible.name)).collect();
        Refusal::new(
            RefusalKind::NoSuchTable,
            format!("no table `{}`", shortened(&name)),
            with_nearest(&name, &visible, "the tables are"),
        )
    }

    pub(super) fn no_such_column(column: &str, of: &str, columns: &[String]) -> Refusal {
        let columns: Vec<String> =
            columns.iter().filter(|column| !super::relation::ROW_IDS.contains(&column.as_str())).cloned().collect();
        let of = if of.is_empty() { String::new() } else { format!(" in `{}`", shortened(of)) };
        Refusal::new(
            RefusalKind::NoSuchColumn,
            format!("no column `{}`{of}", shortened(column)),
            with_nearest(column, &columns, "the columns are"),
        )
    }

    /// A table's name, with its schema if it would not be found without.
    pub(super) fn shown(&self, name: &TableName) -> String {
        match self.lookup(&WrittenTable { schema: None, name: name.name.clone() }) {
            Some((found, _)) if found == name => name.name.clone(),
            _ => format!("{}.{}", name.schema, name.name),
        }
    }
}

/// Offers the names that are like the wrong one, and then all names if they are few.
fn with_nearest(wrong: &str, names: &[String], all: &str) -> String {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(f64, &String)> = names
        .iter()
        .map(|name| (strsim::jaro_winkler(&wrong, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    let quoted =
        |names: &mut dyn Iterator<Item = &String>| names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut hint = String::new();
    if !near.is_empty() {
        hint.push_str("did you mean ");
        hint.push_str(&quoted(&mut near.iter().take(3).map(|(_, name)| *name)));
        hint.push_str("? ");
    }
    if names.is_empty() {
        hint.push_str("there are no names to choose from");
    } else {
        hint.push_str(all);
        hint.push(' ');
        hint.push_str(&quoted(&mut names.iter().take(MAX_LISTED)));
        if names.len() > MAX_LISTED {
            write!(hint, " and {} more", names.len() - MAX_LISTED).expect("a string takes any text");
        }
    }
    hint
}
