//! Reads the tables of a SQLite database.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};

use super::failure;
use crate::database::error::DatabaseError;
use crate::schema::{Column, Key, Schema, Table, TableKind, TableName, is_computed};

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

pub(super) fn read(connection: &Connection) -> Result<Schema, DatabaseError> {
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
    Ok(Schema { search_path: vec![MAIN.to_owned()], tables, ..Schema::default() })
}

fn each(
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

fn table_name(name: String) -> TableName {
    TableName { schema: MAIN.to_owned(), name }
}

/// Finds a column; SQLite compares names without case.
fn column<'t>(tables: &'t mut BTreeMap<TableName, Table>, table: String, column: &str) -> Option<&'t mut Column> {
    let table = tables.get_mut(&table_name(table))?;
    table.columns.iter_mut().find(|candidate| candidate.name.eq_ignore_ascii_case(column))
}
