//! The rows that are there already and that an `INSERT` overwrites or removes: how they are found before it is run.
//!
//! They are those that have the key of a row that it writes. An update of a row that is there leaves its primary key as it
//! is, so that key alone finds it. A replacement removes every row that shares any unique key with the new one.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Assignment, ConflictTarget, Insert, OnConflictAction, OnInsert, SetExpr, SqliteOnConflict, Statement,
};

use super::Guard;
use super::catalog::WrittenTable;
use super::dialects::{folded, same};
use super::one_walk::{Visitor, walk};
use super::set_off::{TableChange, set_off};
use super::text::{on_a_deep_stack, parse_one};
use super::touched::Assigned;
use super::trigger::may_set;
use crate::dialect::Dialect;
use crate::schema::TableAccess;
use crate::schema::{Column, KeyColumn, Table, TableName, Trigger, TriggerBody};

/// The rows of a table that a statement overwrites or removes, found by what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedRows {
    pub table: TableName,
    /// Those that are shown; the keys are among them.
    pub columns: Vec<String>,
    /// Those that are only compared.
    pub hidden: Vec<String>,
    /// A row with the same values in all columns of one of these keys is replaced.
    pub keys: Vec<Vec<KeyColumn>>,
    /// The first key is the only one by which a row that is updated is found, so it has no NULL.
    pub updates: bool,
    pub reason: ReplacedBecause,
}

/// Why rows are looked for by the keys of those that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacedBecause {
    /// They make room.
    MakesRoom,
    /// An `UPDATE` names them by rows of other tables.
    Updates,
    /// Triggers may change them once they are written.
    SetsOff,
}

/// What an `INSERT` does where a row is there already.
#[derive(Debug, Clone, Copy)]
struct Conflict<'a> {
    /// It removes the row.
    replaces: bool,
    /// It changes the row in this way.
    updates: Option<&'a [Assignment]>,
    target: Option<&'a ConflictTarget>,
}

impl<'a> Conflict<'a> {
    fn of(insert: &'a Insert) -> Self {
        let replaces = insert.replace_into || matches!(insert.or, Some(SqliteOnConflict::Replace));
        let mut conflict = Self { replaces, updates: None, target: None };
        match &insert.on {
            Some(OnInsert::DuplicateKeyUpdate(assignments)) => conflict.updates = Some(assignments),
            Some(OnInsert::OnConflict(on)) => {
                conflict.target = on.conflict_target.as_ref();
                if let OnConflictAction::DoUpdate(update) = &on.action {
                    conflict.updates = Some(&update.assignments);
                }
            }
            _ => {}
        }
        conflict
    }
}

/// Whether a statement, or a part of it, may overwrite rows that are there and that no condition names: an `INSERT` that
/// says what becomes of them, an `UPDATE` of or from more than one table. One that cannot be read may if it has a word for
/// that.
pub fn may_replace(dialect: Dialect, sql: &str) -> bool {
    on_a_deep_stack(|| {
        let Ok(statement) = parse_one(dialect, sql) else {
            let lowered = sql.to_lowercase();
            let mut words = lowered.split(|character: char| !character.is_alphanumeric() && character != '_');
            return words.any(|word| ["replace", "conflict", "duplicate", "update"].contains(&word));
        };
        walk(&statement, &mut ReplacementSearch).is_break()
    })
}

struct ReplacementSearch;

impl Visitor<()> for ReplacementSearch {
    fn visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        let insert = match statement {
            Statement::Insert(insert) => insert,
            Statement::Update(update) if update.from.is_some() || !update.table.joins.is_empty() => {
                return ControlFlow::Break(());
            }
            _ => return ControlFlow::Continue(()),
        };
        let conflict = Conflict::of(insert);
        let is_one = conflict.replaces || conflict.updates.is_some() || insert.overwrite;
        if is_one { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn visit_query(&mut self, query: &sqlparser::ast::Query) -> ControlFlow<()> {
        match query.body.as_ref() {
            SetExpr::Insert(inner) | SetExpr::Update(inner) => self.visit_statement(inner),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Guard<'_> {
    /// Returns how the rows are found that `statement` overwrites or removes besides those that it names by a condition;
    /// `None` if there are no such rows. Fails, with the reason, if they cannot be found.
    pub(super) fn replaced(
        &self,
        statement: &Statement,
        name: &TableName,
        table: &Table,
    ) -> Result<Option<ReplacedRows>, String> {
        let keys = self.schema.unique_keys.get(name).map(Vec::as_slice).unwrap_or_default();
        let insert = match statement {
            Statement::Insert(insert) => insert,
            Statement::Update(update) if update.or.is_none() && keys.iter().any(|key| key.replaces) => {
                return Err("the table says `ON CONFLICT REPLACE`, so an `UPDATE` may remove other rows".to_owned());
            }
            _ => return Ok(None),
        };
        let mut conflict = Conflict::of(insert);
        conflict.replaces |= insert.or.is_none() && keys.iter().any(|key| key.replaces);
        if !conflict.replaces && conflict.updates.is_none() {
            return Ok(None);
        }
        let plain = Statement::Insert(Insert { on: None, ..insert.clone() });
        let given = self.assigned(&plain, table);
        let is_left = |column: &&Column| !given.has(self.dialect, &column.name) && column.is_set_by_database();
        let filled: Vec<&Column> = table.columns.iter().filter(is_left).collect();
        let is_filled = |column: &str| filled.iter().any(|it| same(self.dialect, &it.name, column));
        let mut found: Vec<Vec<KeyColumn>> = Vec::new();
        if let Some(assignments) = conflict.updates {
            found.push(self.key_that_stays(assignments, conflict.target, name, table)?);
        }
        // No other key counts for an update that names its own.
        let is_named = matches!(conflict.target, Some(ConflictTarget::Columns(_))) && !conflict.replaces;
        for key in keys.iter().filter(|_| !is_named) {
            // What the database fills in is not the same when it is done as when it was tried, so neither are the rows.
            let part = key.columns.iter().find(|column| is_filled(&column.name)).filter(|_| !key.is_counted);
            if let Some(part) = part {
                return Err(format!("the database fills in `{}`, a part of a unique key", part.name));
            }
            if !key.is_plain && !filled.is_empty() && !key.is_counted {
                return Err("the table has a unique key that is not one of whole columns".to_owned());
            }
            if conflict.replaces {
                if !key.is_plain {
                    return Err("the table has a unique key that is not one of whole columns of all rows".to_owned());
                }
                found.push(key.columns.clone());
            }
        }
        if let Some(ConflictTarget::Columns(columns)) = conflict.target
            && let Some(part) = columns.iter().map(|it| folded(self.dialect, it)).find(|it| is_filled(it))
        {
            return Err(format!("the database fills in `{part}`, by which rows are found"));
        }
        let columns: Vec<String> = self.visible(name, table).iter().map(|column| column.name.clone()).collect();
        let is_hidden = |column: &&KeyColumn| !columns.iter().any(|shown| same(self.dialect, shown, &column.name));
        if found.iter().flatten().any(|column| is_hidden(&column)) {
            return Err("a column of its key is hidden".to_owned());
        }
        if found.is_empty() {
            return Ok(None);
        }
        Ok(Some(ReplacedRows {
            table: name.clone(),
            columns,
            hidden: self.hidden(name, table),
            keys: found,
            updates: conflict.updates.is_some(),
            reason: ReplacedBecause::MakesRoom,
        }))
    }

    /// Returns how the rows are found that an `UPDATE` names by rows of other tables: by the primary key of what it writes.
    pub(super) fn updated(
        &self,
        assignments: &[Assignment],
        name: &TableName,
        table: &Table,
    ) -> Result<ReplacedRows, String> {
        let key = self.key_that_stays(assignments, None, name, table).and_then(|key| {
            let is_hidden = key.iter().any(|column| self.catalog().hides_by_name(name, &column.name));
            if is_hidden { Err("a column of its key is hidden".to_owned()) } else { Ok(key) }
        });
        let key = key.map_err(|why| {
            format!(
                "the rows that it changes cannot be found before, since {why}; write an `UPDATE` of this table alone, with \
                 subqueries: `SET a = (SELECT …) WHERE … IN (SELECT …)`"
            )
        })?;
        Ok(ReplacedRows {
            table: name.clone(),
            columns: self.visible(name, table).iter().map(|column| column.name.clone()).collect(),
            hidden: self.hidden(name, table),
            keys: vec![key],
            updates: true,
            reason: ReplacedBecause::Updates,
        })
    }

    /// Returns how the rows that a change wrote are found once its triggers are done; `None` if they leave them alone.
    pub(super) fn settled(
        &self,
        changes: Vec<TableChange>,
        name: &TableName,
        table: &Table,
    ) -> Result<Option<ReplacedRows>, String> {
        // Where a server is asked in this dialect, no trigger changes the table that set it off.
        if self.dialect == Dialect::Mysql || !self.may_change_itself(changes, name) {
            return Ok(None);
        }
        let columns: Vec<String> = self.visible(name, table).iter().map(|column| column.name.clone()).collect();
        let is_shown = |column: &String| columns.contains(column);
        let primary: Vec<String> = table.primary_key().map(|column| column.name.clone()).collect();
        let is_filled = |name: &String| table.columns.iter().any(|column| column.name == *name && !column.nullable);
        let unique = self.schema.unique_keys.get(name).into_iter().flatten().filter(|key| key.is_plain);
        let unique = unique.map(|key| key.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>());
        let unique = unique.filter(|key| key.iter().all(is_filled));
        let key = std::iter::once(primary).chain(unique).find(|key| !key.is_empty() && key.iter().all(is_shown));
        let key = key.ok_or_else(|| {
            "a trigger may change the rows that it writes, and the table has no key by which they are read again; give \
             the table a primary key, or change it where the trigger does not run"
                .to_owned()
        })?;
        Ok(Some(ReplacedRows {
            table: name.clone(),
            columns,
            hidden: Vec::new(),
            keys: vec![key.into_iter().map(KeyColumn::new).collect()],
            updates: true,
            reason: ReplacedBecause::SetsOff,
        }))
    }

    /// Whether what changes set off may change rows of their own table.
    fn may_change_itself(&self, changes: Vec<TableChange>, name: &TableName) -> bool {
        let found = set_off(&self.catalog(), changes);
        let heirs = || self.schema.heirs.iter().filter(|(child, parent)| child == name || parent == name);
        let is_own =
            |table: &TableName| table == name || heirs().any(|(child, parent)| child == table || parent == table);
        let is_part = |table: &WrittenTable| heirs().any(|(child, _)| same(self.dialect, &child.name, &table.name));
        found.may_write_any
            || found.changes.iter().any(|(table, _)| is_own(table))
            || found.unknown_tables.iter().any(|(table, _)| is_part(table))
    }

    /// The key that a row has both before and after an update: its primary key, or the one that the update names.
    fn key_that_stays(
        &self,
        assignments: &[Assignment],
        target: Option<&ConflictTarget>,
        name: &TableName,
        table: &Table,
    ) -> Result<Vec<KeyColumn>, String> {
        let mut assigned = Assigned { columns: Vec::new(), all: false };
        assigned.add(self.dialect, assignments);
        let primary: Vec<String> = table.primary_key().map(|column| column.name.clone()).collect();
        let named = match target {
            Some(ConflictTarget::Columns(columns)) => columns.iter().map(|it| folded(self.dialect, it)).collect(),
            _ => Vec::new(),
        };
        let stays = |key: &Vec<String>| !key.is_empty() && key.iter().all(|column| !assigned.has(self.dialect, column));
        let key = [primary, named].into_iter().find(stays);
        let is_set_by = |trigger: &&Trigger| {
            trigger.table == *name
                && trigger.events.contains(&TableAccess::Update)
                && match &trigger.body {
                    // SQLite's triggers cannot change the row that is written.
                    TriggerBody::Writes(_) => false,
                    TriggerBody::Text { text, .. } => {
                        key.as_ref().is_some_and(|key| may_set(&self.catalog(), text, key))
                    }
                    TriggerBody::Unknown => self.dialect != Dialect::Sqlite,
                }
        };
        if self.schema.triggers.iter().any(|trigger| is_set_by(&trigger)) {
            return Err("a trigger may change the key of a row that is there".to_owned());
        }
        let key = key.ok_or("it changes the primary key of a row that is there, or the table has none".to_owned())?;
        Ok(key.into_iter().map(KeyColumn::new).collect())
    }
}
