//! What a change sets off in other tables: what foreign keys carry on, and what triggers write, and what that sets off.

use std::collections::BTreeSet;

use super::catalog::{Catalog, WrittenTable};
use super::dialects::same;
use super::trigger;
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::{ForeignKey, ReferenceAction, TableName, Trigger, TriggerBody};

/// A change of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableChange {
    pub(super) table: TableName,
    pub(super) access: TableAccess,
    /// The columns that an update sets; `None` if it may be any.
    pub(super) columns: Option<BTreeSet<String>>,
}

/// What changes set off.
#[derive(Debug, Default)]
pub(super) struct SetOff {
    pub(super) changes: BTreeSet<(TableName, TableAccess)>,
    /// Tables that the schema does not have.
    pub(super) unknown_tables: Vec<(WrittenTable, TableAccess)>,
    /// Some trigger may write any table.
    pub(super) may_write_any: bool,
    /// There may be triggers that the user may not see.
    pub(super) may_be_more: bool,
    /// Each foreign key and trigger, as the database has it.
    pub(super) definitions: BTreeSet<String>,
}

/// Follows changes until nothing more is set off.
pub(super) fn set_off(catalog: &Catalog<'_>, by: Vec<TableChange>) -> SetOff {
    let mut found = SetOff::default();
    let mut seen: BTreeSet<TableChange> = BTreeSet::new();
    let mut next = by;
    while let Some(change) = next.pop() {
        if !change.access.is_write() || !seen.insert(change.clone()) {
            continue;
        }
        // The triggers of a part fire for rows of the whole, and what refers to the whole refers to rows of the part.
        for (child, parent) in &catalog.schema.heirs {
            let relative = if *child == change.table { parent } else { child };
            if *child == change.table || *parent == change.table {
                next.push(TableChange { table: relative.clone(), ..change.clone() });
            }
        }
        let mut carried = Vec::new();
        for key in &catalog.schema.foreign_keys {
            if let Some(carried_on) = carry_on(catalog.dialect, key, &change) {
                found.definitions.insert(format!("{key:?}"));
                carried.push(carried_on);
            }
        }
        found.changes.extend(carried.iter().map(|change| (change.table.clone(), change.access)));
        next.extend(carried);
        found.may_be_more |= catalog.schema.unseen_triggers.contains(&change.table);
        for trigger in catalog.schema.triggers.iter().filter(|trigger| fires(catalog.dialect, trigger, &change)) {
            found.definitions.insert(trigger.definition.clone());
            let written = match &trigger.body {
                TriggerBody::Writes(tables) => {
                    Some(tables.iter().map(|(table, access)| (Ok(table.clone()), *access)).collect())
                }
                TriggerBody::Unknown => None,
                TriggerBody::Text { text, has_own_path } => of_text(catalog, trigger, text, *has_own_path),
            };
            let Some(written) = written else {
                found.may_write_any = true;
                continue;
            };
            for (table, access) in written {
                match table {
                    Ok(table) => {
                        found.changes.insert((table.clone(), access));
                        next.push(TableChange { table, access, columns: None });
                    }
                    Err(table) => found.unknown_tables.push((table, access)),
                }
            }
        }
    }
    found
}

type Written = (Result<TableName, WrittenTable>, TableAccess);

/// The tables that the text of a trigger writes; `None` if they cannot be told.
fn of_text(catalog: &Catalog<'_>, trigger: &Trigger, text: &str, has_own_path: bool) -> Option<Vec<Written>> {
    let mut written = Vec::new();
    for (mut table, access) in trigger::written_tables(catalog, text)? {
        if table.schema.is_none() && catalog.dialect == Dialect::Mysql {
            table.schema = Some(trigger.table.schema.clone());
        }
        if table.schema.is_none() && has_own_path {
            return None;
        }
        let found = catalog.lookup(&table).map(|(name, _)| name.clone());
        written.push((found.ok_or(table), access));
    }
    Some(written)
}

pub(super) fn carry_on(dialect: Dialect, key: &ForeignKey, change: &TableChange) -> Option<TableChange> {
    if key.parent != change.table {
        return None;
    }
    let action = match change.access {
        TableAccess::Delete => key.on_delete,
        TableAccess::Update if sets_any(dialect, change, &key.parent_columns) => key.on_update,
        _ => return None,
    };
    let access = match (action, change.access) {
        (ReferenceAction::Nothing, _) => return None,
        (ReferenceAction::Cascade, TableAccess::Delete) => TableAccess::Delete,
        (_, _) => TableAccess::Update,
    };
    let columns = (access == TableAccess::Update).then(|| key.child_columns.iter().cloned().collect());
    Some(TableChange { table: key.child.clone(), access, columns })
}

fn fires(dialect: Dialect, trigger: &Trigger, change: &TableChange) -> bool {
    trigger.table == change.table
        && trigger.events.contains(&change.access)
        && (change.access != TableAccess::Update
            || trigger.columns.is_empty()
            || sets_any(dialect, change, &trigger.columns))
}

/// Whether a change may set one of these columns.
fn sets_any(dialect: Dialect, change: &TableChange, columns: &[String]) -> bool {
    let Some(set) = &change.columns else { return true };
    let is_set = |column: &String| set.iter().any(|set| same(dialect, set, column) || set.eq_ignore_ascii_case(column));
    columns.is_empty() || columns.iter().any(is_set)
}
