//! Reads the tables of a MySQL or MariaDB server that the user may read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use sql::schema::{Column, Key, KeyColumn, Schema, Table, TableKind, TableName, UniqueKey, is_computed};

use super::trigger_rights::TriggerRights;
use super::{MysqlWorkError, set_off};

type TableRow = (String, String, String, String, Option<u64>, Option<String>);
type ColumnRow = (String, String, String, String, String, Option<String>, String, String, String);
/// The table with its schema, the index, its column (`None` for an expression), whether a part of it, and `extra`.
type UniqueKeyRow = (String, String, String, Option<String>, bool, Option<String>);
type KeyRow = (String, String, String, Option<String>, Option<String>, Option<String>);

/// Reads the database of the connection, and those of the server that are named besides.
pub(super) async fn read(conn: &mut Conn, others: &[String]) -> Result<Schema, MysqlWorkError> {
    let database: Option<Option<String>> = conn.query_first("SELECT DATABASE()").await?;
    let search_path: Vec<String> = database.flatten().into_iter().collect();
    // The server compares these names without case here, and with case where it finds a table.
    let is_ours = |schema: &String| search_path.contains(schema) || others.contains(schema);
    let list = others.iter().chain(&search_path).map(|name| quoted_text(name)).collect::<Vec<_>>().join(", ");
    let list = if list.is_empty() { "NULL".to_owned() } else { list };
    let mut tables = BTreeMap::new();
    let rows: Vec<TableRow> = conn
        .query(format!(
            "SELECT t.table_schema, t.table_name, t.table_type, coalesce(t.table_comment, ''), t.table_rows, v.view_definition \
             FROM information_schema.tables AS t LEFT JOIN information_schema.views AS v \
             ON v.table_schema = t.table_schema AND v.table_name = t.table_name WHERE t.table_schema IN ({list})"
        ))
        .await?;
    for (schema, name, kind, comment, estimated_rows, definition) in rows {
        if !is_ours(&schema) {
            continue;
        }
        let kind = match kind.as_str() {
            "BASE TABLE" | "SYSTEM VERSIONED" => TableKind::Base,
            // Empty for a user who may not see it.
            "VIEW" => TableKind::View { definition: definition.filter(|definition| !definition.is_empty()) },
            _ => TableKind::Other,
        };
        // Of a view, the comment is the word `VIEW`.
        let comment = Some(comment).filter(|comment| !comment.is_empty() && kind == TableKind::Base);
        tables.insert(TableName { schema, name }, Table { kind, comment, columns: Vec::new(), estimated_rows });
    }
    let rows: Vec<ColumnRow> = conn
        .query(format!(
            "SELECT table_schema, table_name, column_name, CAST(column_type AS CHAR), is_nullable, \
             CAST(column_default AS CHAR), CAST(column_key AS CHAR), CAST(column_comment AS CHAR), CAST(extra AS CHAR) \
             FROM information_schema.columns WHERE table_schema IN ({list}) \
             ORDER BY table_schema, table_name, ordinal_position"
        ))
        .await?;
    for (schema, table, name, type_name, nullable, default, key, comment, extra) in rows {
        let Some(table) = tables.get_mut(&TableName { schema, name: table }) else { continue };
        let extra = extra.to_lowercase();
        let is_computed_default = default.as_deref().is_some_and(is_computed) && !extra.contains("generated always");
        table.columns.push(Column {
            name,
            is_filled: ["auto_increment", "on update"].iter().any(|word| extra.contains(word)) || is_computed_default,
            values: values(&type_name),
            type_name,
            nullable: nullable == "YES",
            // MariaDB writes a column without a default as one whose default is NULL.
            default: default.filter(|default| default != "NULL"),
            key: match key.as_str() {
                "PRI" => Some(Key::Primary),
                "UNI" => Some(Key::Unique),
                _ => None,
            },
            comment: Some(comment).filter(|comment| !comment.is_empty()),
        });
    }
    let rows: Vec<KeyRow> = conn
        .query(format!(
            "SELECT table_schema, table_name, column_name, referenced_table_schema, referenced_table_name, \
             referenced_column_name FROM information_schema.key_column_usage \
             WHERE referenced_table_name IS NOT NULL AND table_schema IN ({list})"
        ))
        .await?;
    for (schema, table, column, to_schema, to_table, to_column) in rows {
        let column = tables
            .get_mut(&TableName { schema, name: table })
            .and_then(|table| table.columns.iter_mut().find(|candidate| candidate.name == column));
        if let (Some(column), Some(schema), Some(name), Some(to_column)) = (column, to_schema, to_table, to_column)
            && column.key != Some(Key::Primary)
        {
            column.key = Some(Key::Foreign { table: TableName { schema, name }, column: to_column });
        }
    }
    let unique_keys = unique_keys(conn, &list).await?;
    let foreign_keys = set_off::foreign_keys(conn, &list).await?;
    let triggers = set_off::triggers(conn, &list).await?;
    let rights = TriggerRights::read(conn).await;
    let unseen_triggers = tables.keys().filter(|table| !rights.has(&table.schema, &table.name)).cloned().collect();
    Ok(Schema {
        search_path,
        tables,
        unique_keys,
        foreign_keys,
        triggers,
        unseen_triggers,
        is_part: true,
        ..Schema::default()
    })
}

/// The unique keys of the databases in `list`.
async fn unique_keys(conn: &mut Conn, list: &str) -> Result<BTreeMap<TableName, Vec<UniqueKey>>, MysqlWorkError> {
    let rows: Vec<UniqueKeyRow> = conn
        .query(format!(
            "SELECT s.table_schema, s.table_name, s.index_name, s.column_name, s.sub_part IS NOT NULL, CAST(c.extra AS CHAR) \
             FROM information_schema.statistics AS s LEFT JOIN information_schema.columns AS c \
             ON c.table_schema = s.table_schema AND c.table_name = s.table_name AND c.column_name = s.column_name \
             WHERE s.non_unique = 0 AND s.table_schema IN ({list}) ORDER BY s.index_name, s.seq_in_index"
        ))
        .await?;
    let mut indexes: BTreeMap<(TableName, String), UniqueKey> = BTreeMap::new();
    for (schema, name, index, column, is_part, extra) in rows {
        let key = indexes.entry((TableName { schema, name }, index)).or_insert_with(|| UniqueKey {
            columns: Vec::new(),
            is_plain: true,
            is_counted: false,
            replaces: false,
        });
        key.is_plain &= column.is_some() && !is_part;
        key.is_counted |= extra.is_some_and(|extra| extra.to_lowercase().contains("auto_increment"));
        key.columns.extend(column.map(KeyColumn::new));
    }
    let mut keys: BTreeMap<TableName, Vec<UniqueKey>> = BTreeMap::new();
    for ((table, _), key) in indexes {
        keys.entry(table).or_default().push(key);
    }
    Ok(keys)
}

/// Writes a name as a text of the server, in hexadecimal digits, so that no sign of it counts.
pub(super) fn quoted_text(name: &str) -> String {
    format!("CONVERT(X'{}' USING utf8mb4)", hex(name.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a string takes any text");
        digits
    })
}

/// Returns what an `enum('a','b')` or a `set(…)` may hold.
fn values(type_name: &str) -> Vec<String> {
    let list = type_name.strip_prefix("enum(").or_else(|| type_name.strip_prefix("set("));
    let Some(mut rest) = list.and_then(|list| list.strip_suffix(')')) else { return Vec::new() };
    let mut values = Vec::new();
    while let Some(quoted) = rest.strip_prefix('\'') {
        let mut value = String::new();
        let mut characters = quoted.chars();
        while let Some(character) = characters.next() {
            if character != '\'' {
                value.push(character);
            } else if let Some(after) = characters.as_str().strip_prefix('\'') {
                value.push('\'');
                characters = after.chars();
            } else {
                break;
            }
        }
        values.push(value);
        rest = characters.as_str().strip_prefix(',').unwrap_or_default();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_an_enumeration_are_read_with_their_quotes() {
        assert_eq!(values("enum('a','it''s','x,y')"), ["a", "it's", "x,y"]);
        assert_eq!(values("set('')"), [""]);
        assert_eq!(values("varchar(3)"), [""; 0]);
    }
}
