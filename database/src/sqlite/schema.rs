//! Reads the tables of a SQLite database.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};
use sql::schema::{Column, Key, KeyColumn, Schema, Table, TableKind, TableName, UniqueKey, is_computed};

use super::{failure, set_off};
use crate::error::DatabaseError;

const MAIN: &str = "main";

/// All tables and their columns. `hidden` is 1 for columns of virtual tables that no `SELECT *` shows.
const COLUMNS: &str = "
SELECT l.name, l.type, s.sql, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk, l.schema
FROM pragma_table_list AS l
JOIN pragma_table_xinfo(l.name) AS c
LEFT JOIN sqlite_schema AS s ON s.name = l.name AND s.type IN ('table', 'view')
WHERE l.schema = 'main' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND l.type <> 'shadow' AND c.hidden <> 1
ORDER BY l.name, c.cid";

/// Foreign keys. A key that names no column refers to the primary key.
const FOREIGN_KEYS: &str = "
SELECT l.name, f.\"from\", f.\"table\", coalesce(f.\"to\", (SELECT p.name FROM pragma_table_info(f.\"table\") AS p WHERE p.pk = f.seq + 1))
FROM pragma_table_list AS l JOIN pragma_foreign_key_list(l.name) AS f
WHERE l.schema = 'main' AND l.type = 'table'";

/// Columns that are unique by themselves.
const UNIQUE: &str = "
SELECT l.name, min(c.name)
FROM pragma_table_list AS l JOIN pragma_index_list(l.name) AS i JOIN pragma_index_info(i.name) AS c
WHERE l.schema = 'main' AND l.type = 'table' AND i.\"unique\" = 1 AND i.partial = 0
GROUP BY l.name, i.name HAVING count(*) = 1 AND min(c.name) IS NOT NULL";

/// The columns of every unique index, and how it compares them. A column that is an expression has no name.
const UNIQUE_KEYS: &str = "
SELECT l.name, i.name, i.partial, c.name, c.coll
FROM pragma_table_list AS l JOIN pragma_index_list(l.name) AS i JOIN pragma_index_xinfo(i.name) AS c
WHERE l.schema = 'main' AND l.type = 'table' AND i.\"unique\" = 1 AND c.key = 1
ORDER BY l.name, i.seq, c.seqno";

/// The number of a row, of tables whose primary key it is: that key has no index.
const ROW_NUMBERS: &str = "
SELECT l.name, c.name
FROM pragma_table_list AS l JOIN pragma_table_info(l.name) AS c
WHERE l.schema = 'main' AND l.type = 'table' AND l.wr = 0 AND c.pk > 0
  AND NOT EXISTS (SELECT 1 FROM pragma_index_list(l.name) AS i WHERE i.origin = 'pk')";

/// The tables with what they were made by.
const TEXTS: &str = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL";

pub(super) fn read(connection: &mut Connection) -> Result<Schema, DatabaseError> {
    let mut tables: BTreeMap<TableName, Table> = BTreeMap::new();
    each(connection, COLUMNS, |row| {
        let kind = match row.get::<_, String>(1)?.as_str() {
            "table" => TableKind::Base,
            "view" => TableKind::View { definition: row.get(2)? },
            _ => TableKind::Other,
        };
        let table = tables.entry(table_name(row.get(0)?)).or_insert_with(|| Table {
            kind,
            comment: None,
            columns: Vec::new(),
            estimated_rows: None,
        });
        let primary = row.get::<_, i64>(7)? > 0;
        let (type_name, default): (String, Option<String>) = (row.get(4)?, row.get(6)?);
        table.columns.push(Column {
            name: row.get(3)?,
            // It gets the next number by itself.
            is_filled: (primary && type_name.eq_ignore_ascii_case("integer"))
                || default.as_deref().is_some_and(is_computed),
            type_name,
            nullable: row.get::<_, i64>(5)? == 0 && !primary,
            default,
            key: primary.then_some(Key::Primary),
            comment: None,
            values: Vec::new(),
        });
        Ok(())
    })?;
    each(connection, FOREIGN_KEYS, |row| {
        let (name, from): (String, String) = (row.get(0)?, row.get(1)?);
        let to: Option<String> = row.get(3)?;
        if let (Some(column), Some(to)) = (column(&mut tables, name, &from), to) {
            let target = Key::Foreign { table: table_name(row.get(2)?), column: to };
            column.key.get_or_insert(target);
        }
        Ok(())
    })?;
    each(connection, UNIQUE, |row| {
        let (name, unique): (String, String) = (row.get(0)?, row.get(1)?);
        if let Some(column) = column(&mut tables, name, &unique) {
            column.key.get_or_insert(Key::Unique);
        }
        Ok(())
    })?;
    let analyzed = connection.table_exists(None, "sqlite_stat1").map_err(|error| failure(&error))?;
    if analyzed {
        // What `ANALYZE` saw, the number of rows first.
        each(connection, "SELECT tbl, max(CAST(stat AS INTEGER)) FROM sqlite_stat1 GROUP BY tbl", |row| {
            if let Some(table) = tables.get_mut(&table_name(row.get(0)?)) {
                table.estimated_rows = row.get::<_, Option<i64>>(1)?.and_then(|rows| u64::try_from(rows).ok());
            }
            Ok(())
        })?;
    }
    let unique_keys = unique_keys(connection)?;
    let foreign_keys = set_off::foreign_keys(connection, &tables)?;
    let triggers = set_off::triggers(connection)?;
    Ok(Schema { search_path: vec![MAIN.to_owned()], tables, unique_keys, foreign_keys, triggers, ..Schema::default() })
}

fn unique_keys(connection: &Connection) -> Result<BTreeMap<TableName, Vec<UniqueKey>>, DatabaseError> {
    let mut indexes: BTreeMap<(String, String), UniqueKey> = BTreeMap::new();
    each(connection, UNIQUE_KEYS, |row| {
        let is_whole = row.get::<_, i64>(2)? == 0;
        let key = indexes.entry((row.get(0)?, row.get(1)?)).or_insert_with(|| UniqueKey {
            columns: Vec::new(),
            is_plain: is_whole,
            is_counted: false,
            replaces: false,
        });
        match row.get::<_, Option<String>>(3)? {
            Some(name) => key.columns.push(KeyColumn { name, collation: row.get(4)? }),
            None => key.is_plain = false,
        }
        Ok(())
    })?;
    let mut keys: BTreeMap<TableName, Vec<UniqueKey>> = BTreeMap::new();
    for ((table, _), key) in indexes {
        keys.entry(table_name(table)).or_default().push(key);
    }
    each(connection, ROW_NUMBERS, |row| {
        let columns = vec![KeyColumn::new(row.get(1)?)];
        let key = UniqueKey { columns, is_plain: true, is_counted: true, replaces: false };
        keys.entry(table_name(row.get(0)?)).or_default().push(key);
        Ok(())
    })?;
    each(connection, TEXTS, |row| {
        let replaces = says_replace(&row.get::<_, String>(1)?);
        for key in keys.get_mut(&table_name(row.get(0)?)).into_iter().flatten() {
            key.replaces = replaces;
        }
        Ok(())
    })?;
    Ok(keys)
}

/// Whether a constraint of a table may say `ON CONFLICT REPLACE`. A text with these words in it counts too.
fn says_replace(text: &str) -> bool {
    let lowered = text.to_lowercase();
    let mut words = lowered.split(|character: char| !character.is_alphanumeric() && character != '_');
    // A comment between the words has words of its own.
    words.clone().any(|word| word == "conflict") && words.any(|word| word == "replace")
}

pub(super) fn each(
    connection: &Connection,
    sql: &str,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), DatabaseError> {
    let mut read = || {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    };
    read().map_err(|error: rusqlite::Error| failure(&error))
}

pub(super) fn table_name(name: String) -> TableName {
    TableName { schema: MAIN.to_owned(), name }
}

/// Finds a column; SQLite compares names without case.
fn column<'t>(tables: &'t mut BTreeMap<TableName, Table>, table: String, column: &str) -> Option<&'t mut Column> {
    let table = tables.get_mut(&table_name(table))?;
    table.columns.iter_mut().find(|candidate| candidate.name.eq_ignore_ascii_case(column))
}
