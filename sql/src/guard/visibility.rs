//! What the caller may see of the catalog: tables, views and columns, and a hint of near names where one is missing.

use std::fmt::Write as _;

use super::catalog::{Catalog, ROW_IDS, WrittenTable};
use super::refusal::{Refusal, RefusalKind};
use super::text::shortened;
use super::view::{check_harmless, check_inside};
use crate::dialect::Dialect;
use crate::schema::{Column, Table, TableKind, TableName};

/// How many names a hint lists.
const MAX_LISTED: usize = 40;
/// How similar a name must be to be offered, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

/// A table or view that the caller may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleTable<'a> {
    pub name: &'a TableName,
    pub table: &'a Table,
    /// Those of the table's columns that are not hidden, in their order.
    pub columns: Vec<&'a Column>,
}

impl<'a> Catalog<'a> {
    /// Finds the table or view that the database would find, if the caller may use it.
    pub(super) fn find(&self, written: &WrittenTable) -> Result<(&'a TableName, &'a Table), Refusal> {
        self.lookup(written)
            .filter(|(name, table)| self.allows(name) && self.why_not(name, table).is_none())
            .ok_or_else(|| self.no_such_table(written))
    }

    pub(super) fn visible_tables(&self) -> Vec<VisibleTable<'a>> {
        let tables =
            self.schema.tables.iter().filter(|(name, table)| self.allows(name) && self.why_not(name, table).is_none());
        let visible = tables.map(|(name, table)| {
            let columns = table.columns.iter().filter(|column| !self.hides(name, column)).collect();
            VisibleTable { name, table, columns }
        });
        visible.filter(|visible| visible.table.columns.is_empty() || !visible.columns.is_empty()).collect()
    }

    pub(super) fn visible_columns(&self, name: &TableName, table: &'a Table) -> Vec<&'a str> {
        let columns = table.columns.iter().filter(|column| !self.hides(name, column));
        columns.map(|column| column.name.as_str()).collect()
    }

    /// The columns of a table for the check of names: the visible ones, with those that SQLite has without naming them;
    /// `None` if they are not known.
    pub(super) fn known_columns(&self, table: &Table, visible: &[&str]) -> Option<Vec<String>> {
        let hides_none = visible.len() == table.columns.len();
        match &table.kind {
            // A virtual table has columns that it does not show.
            TableKind::Other if hides_none => return None,
            _ if table.columns.is_empty() => return None,
            _ => {}
        }
        let mut columns: Vec<String> = visible.iter().map(|&column| column.to_owned()).collect();
        if self.dialect == Dialect::Sqlite && table.kind == TableKind::Base && hides_none {
            columns.extend(ROW_IDS.map(str::to_owned));
        }
        Some(columns)
    }

    /// The tables, views and other relations that a caller may not read although no rule denies them, with the reason.
    pub(super) fn left_out(&self) -> Vec<(&'a TableName, String)> {
        let allowed = self.schema.tables.iter().filter(|(name, _)| self.allows(name));
        allowed.filter_map(|(name, table)| Some((name, self.why_not(name, table)?))).collect()
    }

    /// Why a table may not be read that no rule denies. A view is read if it surely shows nothing that is hidden, denied
    /// or outside, or if a person said so.
    pub(super) fn why_not(&self, name: &TableName, table: &Table) -> Option<String> {
        if self.rules.trusts_view(name) {
            return None;
        }
        match &table.kind {
            TableKind::Base => None,
            TableKind::View { .. } if !self.hides_anything && !self.schema.is_part => None,
            TableKind::View { definition: None } => {
                Some("the user of the database may not read its definition".to_owned())
            }
            TableKind::View { definition: Some(text) } if self.hides_anything => check_harmless(self, text).err(),
            TableKind::View { definition: Some(text) } => check_inside(self, text).err(),
            TableKind::Foreign { remote } => {
                let shows_hidden = table
                    .columns
                    .iter()
                    .any(|column| self.rules.hides(remote, &column.name) && !self.hides(name, column));
                let why = format!(
                    "it shows `{}.{}` of another server, which is denied or has hidden columns",
                    remote.schema, remote.name
                );
                (shows_hidden || !self.rules.allows(remote)).then_some(why)
            }
            TableKind::Other => self.hides_anything.then(|| "what it reads is not known".to_owned()),
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
            columns.iter().filter(|column| !ROW_IDS.contains(&column.as_str())).cloned().collect();
        let of = if of.is_empty() { String::new() } else { format!(" in `{}`", shortened(of)) };
        Refusal::new(
            RefusalKind::NoSuchColumn,
            format!("no column `{}`{of}", shortened(column)),
            with_nearest(column, &columns, "the columns are"),
        )
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
