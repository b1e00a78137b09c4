//! Cascades: the foreign keys that carry a change on to rows of other tables, and what may be shown of those rows.
//!
//! Which rows they are, only the database knows. What triggers change is not followed.

use std::collections::BTreeSet;

use super::Guard;
use super::set_off::{TableChange, carry_on};
use crate::schema::{Column, TableAccess, TableName};

/// A foreign key that carries a change on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cascade {
    /// The table whose rows are changed, in whose columns the values are that rows of `child` have.
    pub parent: TableName,
    pub parent_columns: Vec<String>,
    pub child: TableName,
    pub child_columns: Vec<String>,
    /// Whether it deletes the rows of `child`, or updates them.
    pub access: TableAccess,
    /// The columns of `child` that may be shown; empty if the table does not exist for callers.
    pub shown: Vec<String>,
    /// Those that are compared only.
    pub hidden: Vec<String>,
    /// The columns of its primary key, if it has one that a change of `child_columns` leaves as it is.
    pub key: Vec<String>,
    /// Columns that the database may set to something else each time.
    pub set_by_database: Vec<String>,
}

impl Guard<'_> {
    /// Follows changes along foreign keys, however far.
    pub(super) fn cascades(&self, by: Vec<TableChange>) -> Vec<Cascade> {
        let catalog = self.catalog();
        let mut found: Vec<Cascade> = Vec::new();
        let mut seen: BTreeSet<(TableName, TableChange)> = BTreeSet::new();
        let mut next: Vec<_> = by.into_iter().map(|change| (change.table.clone(), change)).collect();
        while let Some((rows_of, change)) = next.pop() {
            if !change.access.is_write() || !seen.insert((rows_of.clone(), change.clone())) {
                continue;
            }
            // What refers to the whole refers to rows of the part.
            for (child, parent) in &self.schema.heirs {
                let relative = if *child == change.table { parent } else { child };
                if *child == change.table || *parent == change.table {
                    next.push((rows_of.clone(), TableChange { table: relative.clone(), ..change.clone() }));
                }
            }
            for key in &self.schema.foreign_keys {
                let Some(carried_on) = carry_on(catalog.dialect, key, &change) else { continue };
                let Some(table) = self.schema.tables.get(&key.child) else { continue };
                let is_allowed = catalog.allows(&key.child) && catalog.why_not(&key.child, table).is_none();
                let is_shown = |column: &Column| is_allowed && !catalog.hides(&key.child, column);
                let (shown, hidden): (Vec<_>, Vec<_>) = table.columns.iter().partition(|column| is_shown(column));
                let names = |columns: Vec<&Column>| columns.into_iter().map(|it| it.name.clone()).collect::<Vec<_>>();
                let is_changed =
                    |column: &Column| key.child_columns.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
                let has_kept_key = carried_on.access == TableAccess::Delete || !table.primary_key().any(is_changed);
                let primary = if has_kept_key { table.primary_key().collect() } else { Vec::new() };
                let set = table.columns.iter().filter(|it| it.is_set_by_database() && !is_changed(it));
                let cascade = Cascade {
                    parent: rows_of.clone(),
                    parent_columns: key.parent_columns.clone(),
                    child: key.child.clone(),
                    child_columns: key.child_columns.clone(),
                    access: carried_on.access,
                    shown: names(shown),
                    hidden: names(hidden),
                    key: names(primary),
                    set_by_database: names(set.collect()),
                };
                if !found.contains(&cascade) {
                    found.push(cascade);
                }
                next.push((key.child.clone(), carried_on));
            }
        }
        found
    }
}
