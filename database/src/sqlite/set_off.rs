//! What changes of a SQLite database set off: foreign keys, and triggers, of which SQLite itself says what they write.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use sql::schema::TableAccess;
use sql::schema::{ForeignKey, ReferenceAction, Table, TableName, Trigger, TriggerBody};

use super::authorizer::{CompiledChange, compiled_changes};
use super::schema::{each, table_name};
use crate::error::DatabaseError;

/// One row for each column of each key. A key that names no column refers to the primary key.
const FOREIGN_KEYS: &str = "
SELECT l.name, f.id, f.\"from\", f.\"table\", f.on_delete, f.on_update,
       coalesce(f.\"to\", (SELECT p.name FROM pragma_table_info(f.\"table\") AS p WHERE p.pk = f.seq + 1))
FROM pragma_table_list AS l JOIN pragma_foreign_key_list(l.name) AS f
WHERE l.schema = 'main' AND l.type = 'table' ORDER BY l.name, f.id, f.seq";

/// The tables and views with triggers, and the columns of them that a statement may set.
const WATCHED: &str = "
SELECT t.tbl_name, c.name
FROM (SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'trigger') AS t JOIN pragma_table_xinfo(t.tbl_name) AS c
WHERE c.hidden = 0";

pub(super) fn foreign_keys(
    connection: &Connection,
    tables: &BTreeMap<TableName, Table>,
) -> Result<Vec<ForeignKey>, DatabaseError> {
    let mut keys: BTreeMap<(String, i64), ForeignKey> = BTreeMap::new();
    each(connection, FOREIGN_KEYS, |row| {
        let (child, written): (String, String) = (row.get(0)?, row.get(3)?);
        let parent = tables.keys().find(|table| table.name.eq_ignore_ascii_case(&written)).cloned();
        let (on_delete, on_update): (String, String) = (row.get(4)?, row.get(5)?);
        let key = keys.entry((child.clone(), row.get(1)?)).or_insert_with(|| ForeignKey {
            child: table_name(child),
            child_columns: Vec::new(),
            parent: parent.unwrap_or_else(|| table_name(written)),
            parent_columns: Vec::new(),
            on_delete: ReferenceAction::of(&on_delete),
            on_update: ReferenceAction::of(&on_update),
        });
        key.child_columns.push(row.get(2)?);
        key.parent_columns.extend(row.get::<_, Option<String>>(6)?);
        Ok(())
    })?;
    Ok(keys.into_values().collect())
}

/// The text of each trigger.
const DEFINITIONS: &str =
    "SELECT tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' AND sql IS NOT NULL ORDER BY name";

/// A change of a table, and the column that it sets if it is an update.
type Change = (String, TableAccess, Vec<String>);

/// What is fired by each change of each table with triggers. What one fires that fires others is all of them.
pub(super) fn triggers(connection: &mut Connection) -> Result<Vec<Trigger>, DatabaseError> {
    let mut changes: Vec<Change> = Vec::new();
    let mut tables = BTreeSet::new();
    each(connection, WATCHED, |row| {
        let (table, column): (String, String) = (row.get(0)?, row.get(1)?);
        if tables.insert(table.clone()) {
            changes.push((table.clone(), TableAccess::Insert, Vec::new()));
            changes.push((table.clone(), TableAccess::Delete, Vec::new()));
        }
        changes.push((table, TableAccess::Update, vec![column]));
        Ok(())
    })?;
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let statement = |(table, access, columns): &Change| match columns.first().map(|it| quoted(it)) {
        Some(column) => format!("UPDATE {} SET {column} = {column}", quoted(table)),
        None if *access == TableAccess::Insert => format!("INSERT INTO {} DEFAULT VALUES", quoted(table)),
        None => format!("DELETE FROM {}", quoted(table)),
    };
    let statements: Vec<String> = changes.iter().map(statement).collect();
    let compiled = compiled_changes(connection, &statements)?;
    // Which of them a change fires is not told apart.
    let mut definitions: BTreeMap<String, String> = BTreeMap::new();
    each(connection, DEFINITIONS, |row| {
        let definition = definitions.entry(row.get::<_, String>(0)?.to_lowercase()).or_default();
        definition.push_str(&row.get::<_, String>(1)?);
        definition.push('\n');
        Ok(())
    })?;
    let trigger = |((table, access, columns), compiled): (Change, Option<Vec<CompiledChange>>)| {
        let written: Option<BTreeSet<(TableName, TableAccess)>> = compiled.map(|compiled| {
            // What a trigger does has its name; what the statement does has none.
            let by_trigger = compiled.into_iter().filter(|(_, _, by)| by.is_some());
            by_trigger.map(|(table, access, _)| (table_name(table), access)).collect()
        });
        let is_quiet = written.as_ref().is_some_and(BTreeSet::is_empty);
        let body = written.map_or(TriggerBody::Unknown, TriggerBody::Writes);
        let events = BTreeSet::from([access]);
        let definition = definitions.get(&table.to_lowercase()).cloned().unwrap_or_default();
        (!is_quiet).then(|| Trigger { table: table_name(table), events, columns, body, definition })
    };
    Ok(changes.into_iter().zip(compiled).filter_map(trigger).collect())
}
