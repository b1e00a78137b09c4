//! The tables of a database and their columns, as callers may see them.

use protocol::code::Code;
use protocol::nearest::nearest;
use serde_json::{Map, Value, json};
use sql::database::Freshness;
use sql::schema::{Column, Key, Schema, Table, TableKind, TableName};
use tokio_util::sync::CancellationToken;

use super::databases::OpenDatabase;
use super::query;
use crate::runner::RunnerOutput;
use crate::task::failure::Failure;

/// The most tables that one answer lists.
const MAX_LISTED: usize = 500;
/// How many names a hint suggests.
const MAX_SUGGESTED: usize = 3;

/// The tables that callers may see, by the names by which they may be called.
fn visible<'a>(schema: &'a Schema, open: &'a OpenDatabase) -> impl Iterator<Item = (String, &'a TableName, &'a Table)> {
    let is_visible = |(name, _): &(&TableName, &Table)| open.rules.allows(name);
    schema.tables.iter().filter(is_visible).map(|(name, table)| (shown_name(name, schema), name, table))
}

/// The name without its schema, if it is found without it.
fn shown_name(name: &TableName, schema: &Schema) -> String {
    let first = schema
        .search_path
        .iter()
        .find(|path| schema.tables.contains_key(&TableName { schema: (*path).clone(), name: name.name.clone() }));
    if first == Some(&name.schema) { name.name.clone() } else { format!("{}.{}", name.schema, name.name) }
}

pub(super) async fn list_tables(
    part: &str,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let schema = query::schema(open, Freshness::Recent, cancel).await?;
    let part = part.trim().to_lowercase();
    let matching: Vec<_> = visible(&schema, open).filter(|(name, ..)| name.to_lowercase().contains(&part)).collect();
    let tables: Vec<_> = matching
        .iter()
        .take(MAX_LISTED)
        .map(|(shown, name, table)| {
            let columns = table.columns.iter().filter(|column| !open.rules.hides(name, &column.name)).count();
            let mut listed = json!({"name": shown, "kind": kind(table), "columns": columns});
            if let Some(rows) = table.estimated_rows {
                listed["about_rows"] = rows.into();
            }
            if let Some(comment) = &table.comment {
                listed["comment"] = comment.as_str().into();
            }
            listed
        })
        .collect();
    let output = RunnerOutput::json(json!({"dialect": open.database.dialect().to_string(), "tables": tables}));
    Ok(output.with_meta("total", matching.len()).with_meta("truncated", matching.len() > MAX_LISTED))
}

/// Returns what callers may see of a database: `{dialect, writable, tables}`, each table as it is described.
pub(super) async fn snapshot(open: &OpenDatabase, cancel: &CancellationToken) -> Result<Value, Failure> {
    let schema = query::schema(open, Freshness::New, cancel).await?;
    let tables: Vec<_> = visible(&schema, open)
        .map(|(shown, name, table)| {
            let mut described = described(&shown, name, table, &schema, open);
            described["name"] = shown.into();
            described
        })
        .collect();
    let dialect = open.database.dialect().to_string();
    Ok(json!({"dialect": dialect, "writable": open.settings.writable, "tables": tables}))
}

fn kind(table: &Table) -> &'static str {
    match table.kind {
        TableKind::Base => "table",
        TableKind::View { .. } => "view",
        TableKind::Other => "other",
    }
}

pub(super) async fn describe(
    wanted: &str,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    for freshness in [Freshness::Recent, Freshness::New] {
        let schema = query::schema(open, freshness, cancel).await?;
        let wanted = wanted.trim().trim_matches(['`', '"']);
        let is_wanted = |(shown, name, _): &(String, &TableName, &Table)| {
            shown.eq_ignore_ascii_case(wanted) || format!("{}.{}", name.schema, name.name).eq_ignore_ascii_case(wanted)
        };
        if let Some((shown, name, table)) = visible(&schema, open).find(is_wanted) {
            return Ok(RunnerOutput::json(described(&shown, name, table, &schema, open)));
        }
        if freshness == Freshness::New {
            return Err(unknown(wanted, &schema, open));
        }
    }
    unreachable!("the second reading ends it")
}

/// The error has the same words for a table that is not there and for one that is denied.
fn unknown(wanted: &str, schema: &Schema, open: &OpenDatabase) -> Failure {
    let names: Vec<_> = visible(schema, open).map(|(shown, ..)| shown).collect();
    let near = nearest(wanted, names.iter().map(String::as_str), MAX_SUGGESTED);
    let hint = match near.is_empty() {
        true => "list the tables to see what is there".to_owned(),
        false => format!("there is {}", near.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Failure::new(Code::InvalidInput, format!("no table `{wanted}`")).hint(hint)
}

fn described(shown: &str, name: &TableName, table: &Table, schema: &Schema, open: &OpenDatabase) -> Value {
    let columns: Vec<_> = table
        .columns
        .iter()
        .filter(|column| !open.rules.hides(name, &column.name))
        .map(|column| described_column(column, schema, open))
        .collect();
    let mut described = json!({"table": shown, "kind": kind(table)});
    if let Some(comment) = &table.comment {
        described["comment"] = comment.as_str().into();
    }
    if let Some(rows) = table.estimated_rows {
        described["about_rows"] = rows.into();
    }
    described["columns"] = columns.into();
    described
}

fn described_column(column: &Column, schema: &Schema, open: &OpenDatabase) -> Value {
    let mut described = Map::new();
    described.insert("name".to_owned(), column.name.as_str().into());
    described.insert("type".to_owned(), column.type_name.as_str().into());
    described.insert("null".to_owned(), column.nullable.into());
    match &column.key {
        Some(Key::Primary) => drop(described.insert("key".to_owned(), "primary".into())),
        Some(Key::Unique) => drop(described.insert("key".to_owned(), "unique".into())),
        Some(Key::Foreign { table, column }) if open.rules.allows(table) && !open.rules.hides(table, column) => {
            let to = format!("{}.{column}", shown_name(table, schema));
            described.insert("references".to_owned(), to.into());
        }
        Some(Key::Foreign { .. }) | None => {}
    }
    if let Some(default) = &column.default {
        described.insert("default".to_owned(), default.as_str().into());
    }
    if let Some(comment) = &column.comment {
        described.insert("comment".to_owned(), comment.as_str().into());
    }
    if !column.values.is_empty() {
        described.insert("values".to_owned(), json!(column.values));
    }
    Value::Object(described)
}
