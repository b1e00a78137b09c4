//! Databases: the subtools with which one is asked.
//!
//! Pure: the command reads what the database contains, as callers may see it, and gives it here. What may be seen or
//! changed is decided by the configuration each time, never by these definitions.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use protocol::wording::{counted, inflected};
use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::text::one_line;
use crate::{ImportError, ImportOptions, Imported, ImportedSubtool};

/// The option with the tables that get a subtool of their own: globs, separated by commas.
pub const TABLES: &str = "table";

/// How many tables a description names.
const MAX_NAMED_TABLES: usize = 40;
/// Tables are named with their columns if all of that takes at most as many characters.
const MAX_CHARS_OF_COLUMNS: usize = 240;
/// By how many of its columns the rows of a table are found.
const MAX_FILTERS: usize = 40;
/// How many tables have phrases of their own in the subtool for queries.
const MAX_TABLES_IN_PHRASES: usize = 15;
/// What users say when they want a query.
const QUERY_PHRASES: [&str; 14] = [
    "count records",
    "how many do we have",
    "query the database",
    "run a SQL select",
    "sum by month",
    "top ten by amount",
    "SQL-Abfrage ausführen",
    "wie viele Datensätze",
    "Datenbank abfragen",
    "Umsatz pro Monat",
    "查询数据库",
    "有多少条记录",
    "统计数量",
    "按月汇总",
];
/// The most characters of a comment in a description.
const MAX_COMMENT_CHARS: usize = 120;

/// Writes what the database called `name` contains as the text of a [`Document`].
pub fn document(name: &str, snapshot: &Value) -> Result<Document, ImportError> {
    Document::new(name, json!({"database": name, "snapshot": snapshot}).to_string())
}

pub(crate) fn recognizes(document: &Document) -> bool {
    document.data["database"].is_string() && document.data.pointer("/snapshot/tables").is_some_and(Value::is_array)
}

/// Imports a document that [`document`] made.
pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let snapshot = &document.data["snapshot"];
    let (Some(database), Some(tables)) = (document.data["database"].as_str(), snapshot["tables"].as_array()) else {
        return Err(ImportError::new("it is not what a database contains"));
    };
    let pack = options.pack.clone().unwrap_or_else(|| database.to_owned());
    let source = DatabaseSource {
        database,
        dialect: snapshot["dialect"].as_str().unwrap_or("SQL"),
        pack: &pack,
        tables,
        writable: snapshot["writable"] == true,
        max_rows: snapshot["max_rows"].as_u64(),
    };
    let mut subtools = vec![source.query(), source.tables(), source.describe(), source.explain()];
    if source.writable {
        subtools.push(source.change());
    }
    let mut imported =
        Imported { id: database.to_owned(), word: pack.clone(), found: subtools.len(), ..Imported::default() };
    imported.defaults.insert("run".to_owned(), json!({"sql": {"database": database}}));
    imported.defaults.insert("tags".to_owned(), json!([pack, "database", "sql"]));
    if let Some(patterns) = options.others.get(TABLES) {
        let is_like =
            |pattern: &str| globs(pattern).map(|glob| tables.iter().any(|it| glob.is_match(text(it, "name"))));
        for pattern in patterns.split(',').filter(|pattern| !pattern.is_empty()) {
            if !is_like(pattern)? {
                return Err(ImportError::new(format!("no table matches `--table {pattern}`"))
                    .hint(format!("there is {}", source.table_names(MAX_NAMED_TABLES))));
            }
        }
        let patterns = globs(patterns)?;
        let chosen: Vec<_> = tables.iter().filter(|table| patterns.is_match(text(table, "name"))).collect();
        if chosen.is_empty() {
            return Err(ImportError::new("no table matches `--table`")
                .hint(format!("there is {}", source.table_names(MAX_NAMED_TABLES))));
        }
        imported.found += chosen.len();
        subtools.extend(chosen.into_iter().map(|table| source.find(table)));
    }
    imported.subtools = subtools;
    imported.notes.extend(notes(snapshot, database));
    Ok(imported)
}

/// What a human should know who decides what may be seen.
fn notes(snapshot: &Value, database: &str) -> Vec<String> {
    let count = |field: &str| snapshot[field].as_u64().unwrap_or_default();
    let mut notes = vec![format!(
        "callers do not see {} and {} of `{database}`; [databases.{database}] in config.toml decides that",
        counted(count("hidden_columns"), "column"),
        inflected(count("unseen_tables"), "table or view", "tables or views")
    )];
    let left_out = snapshot["left_out"].as_array().into_iter().flatten();
    notes.extend(left_out.map(|it| {
        let (name, why) = (text(it, "name"), text(it, "why"));
        format!("`{name}` is left out: {why}; name it under `views` of [databases.{database}] if callers may read it")
    }));
    let idle = snapshot["idle_patterns"].as_array().into_iter().flatten().filter_map(Value::as_str);
    notes.extend(
        idle.map(|pattern| format!("`{pattern}` under [databases.{database}] hides nothing: no name is like it")),
    );
    notes
}

/// Every definition loads by itself, so nothing is given up.
pub(crate) fn loosen(_: &mut Map<String, Value>) -> &'static str {
    ""
}

fn globs(patterns: &str) -> Result<GlobSet, ImportError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns.split(',').filter(|pattern| !pattern.is_empty()) {
        let glob = GlobBuilder::new(pattern).case_insensitive(true).build();
        set.add(glob.map_err(|error| ImportError::new(format!("`--table {pattern}` is not a pattern: {error}")))?);
    }
    set.build().map_err(|error| ImportError::new(error.to_string()))
}

/// The words of a table's name.
fn words(name: &str) -> String {
    name.replace(['_', '.'], " ")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A database, as its subtools describe it.
struct DatabaseSource<'a> {
    database: &'a str,
    dialect: &'a str,
    pack: &'a str,
    tables: &'a [Value],
    writable: bool,
    /// The most rows of one answer.
    max_rows: Option<u64>,
}

impl DatabaseSource<'_> {
    fn subtool(&self, name: &str, definition: Value) -> ImportedSubtool {
        let Value::Object(definition) = definition else { unreachable!("a definition is an object") };
        let name = format!("{}_{name}", self.pack);
        ImportedSubtool { what: name.clone(), name, group: self.pack.to_owned(), definition }
    }

    /// The tables with their columns, like `book (id, title), reader (id, name)`, if they are few.
    fn tables_with_columns(&self) -> Option<String> {
        let mut all = Vec::new();
        for table in self.tables {
            let columns: Vec<_> = table["columns"].as_array()?.iter().map(|column| text(column, "name")).collect();
            all.push(format!("{} ({})", text(table, "name"), columns.join(", ")));
        }
        let all = all.join(", ");
        (!all.is_empty() && all.chars().count() <= MAX_CHARS_OF_COLUMNS).then_some(all)
    }

    /// The names of the tables, the largest first, as far as they are known.
    fn table_names(&self, most: usize) -> String {
        let mut tables: Vec<_> = self.tables.iter().collect();
        tables.sort_by_key(|table| std::cmp::Reverse(table["about_rows"].as_u64().unwrap_or_default()));
        let mut names: Vec<_> = tables.iter().take(most).map(|table| text(table, "name").to_owned()).collect();
        if self.tables.len() > most {
            names.push(format!("and {} more", self.tables.len() - most));
        }
        names.join(", ")
    }

    /// The schema of the number of rows of a page. A higher one than the maximum is lowered and not refused, since the
    /// configuration may change.
    fn limit(&self, default: Option<u64>) -> Value {
        let mut limit = json!({"type": "integer", "minimum": 1});
        if let Some(default) = default {
            limit["default"] = self.max_rows.map_or(default, |most| default.min(most)).into();
        }
        let most = self.max_rows.map(|most| format!(", at most {most}")).unwrap_or_default();
        limit["description"] = format!("How many rows a page has{most}.").into();
        limit
    }

    fn query(&self) -> ImportedSubtool {
        let (database, dialect) = (self.database, self.dialect);
        let changes =
            if self.writable { format!(" It only reads: {}_change changes rows.", self.pack) } else { String::new() };
        let (tables, rest) = match self.tables_with_columns() {
            Some(tables) => (tables, "Their types and keys"),
            None => (self.table_names(MAX_NAMED_TABLES), "The columns of a table"),
        };
        let mut phrases: Vec<_> = QUERY_PHRASES.iter().map(|phrase| (*phrase).to_owned()).collect();
        phrases.push(format!("ask the {database} database"));
        let of_tables = self.tables.iter().take(MAX_TABLES_IN_PHRASES).map(|table| words(text(table, "name")));
        phrases.extend(of_tables.flat_map(|words| [format!("how many {words}"), format!("wie viele {words}")]));
        self.subtool("query", json!({
            "description": format!(
                "Runs one read-only SQL query ({dialect}) in the database {database}: how many, sums, averages, lists, joins, \
                 what was newest. Tables: {tables}. {rest}: {}_describe_table.{changes}", self.pack
            ),
            "depends_on": [format!("{}_describe_table", self.pack)],
            "phrases": phrases,
            "input": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "minLength": 1, "description": format!("One SELECT statement in the SQL of {dialect}.")},
                    "page": {"type": "integer", "minimum": 1, "default": 1, "description": "The page of the rows. A later page needs an ORDER BY."},
                    "limit": self.limit(None),
                    "count": {"type": "string", "enum": ["exact", "next_pages", "none"], "default": "next_pages", "description": "Whether to count all rows, or only to say whether there is a next page."},
                },
                "required": ["query"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "run": {"sql": {"query": "{{ query }}", "page": "{{ page }}", "limit": "{{ limit }}", "count": "{{ count }}"}},
        }))
    }

    fn tables(&self) -> ImportedSubtool {
        let database = self.database;
        self.subtool("list_tables", json!({
            "description": format!("Lists the tables and views of the database {database} with their comments and about how many rows they have."),
            "phrases": [
                format!("what tables does {database} have"), "which tables are there", "where is this data stored",
                "welche Tabellen gibt es", "Tabellen auflisten", "有哪些表", "列出数据表",
            ],
            "input": {
                "type": "object",
                "properties": {"name_contains": {"type": "string", "description": "Only tables with this text in their name."}},
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "run": {"sql": {"list_tables": "{{ name_contains }}"}},
            "examples": [{"input": {}}],
        }))
    }

    fn describe(&self) -> ImportedSubtool {
        let database = self.database;
        self.subtool("describe_table", json!({
            "description": format!("Describes one table of the database {database}: its columns with type, NULL, key, default, references and comment. NOT its rows."),
            "phrases": [
                "columns of a table", "describe the table", "which fields does it have", "schema of a table",
                "Spalten einer Tabelle", "Tabelle beschreiben", "表结构", "这个表有哪些字段",
            ],
            "input": {
                "type": "object",
                "properties": {"table": {"type": "string", "minLength": 1, "description": "The name of the table."}},
                "required": ["table"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "run": {"sql": {"describe": "{{ table }}"}},
        }))
    }

    fn explain(&self) -> ImportedSubtool {
        let (database, dialect) = (self.database, self.dialect);
        self.subtool("explain_query", json!({
            "description": format!("Shows how the database {database} would carry out a SELECT, without running it: which indexes it uses, why it is slow."),
            "phrases": [
                "why is the query slow", "query plan", "explain select", "warum ist die Abfrage langsam", "Abfrageplan",
                "查询计划", "为什么查询慢",
            ],
            "input": {
                "type": "object",
                "properties": {"query": {"type": "string", "minLength": 1, "description": format!("One SELECT statement in the SQL of {dialect}.")}},
                "required": ["query"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "run": {"sql": {"explain": "{{ query }}"}},
        }))
    }

    fn change(&self) -> ImportedSubtool {
        let (database, dialect) = (self.database, self.dialect);
        self.subtool("change", json!({
            "description": format!(
                "Inserts, updates or deletes rows in the database {database} with one SQL statement ({dialect}). First shows \
                 what it would change, without changing it; with dry_run false a human confirms it."
            ),
            "phrases": [
                format!("change data in {database}"), "update a record", "delete rows", "insert a row", "set a value in the database",
                "Datensatz ändern", "Zeilen löschen", "in die Datenbank schreiben", "修改数据", "删除记录", "更新数据库",
            ],
            "input": {
                "type": "object",
                "properties": {
                    "statement": {"type": "string", "minLength": 1, "description": format!("One INSERT, UPDATE or DELETE in the SQL of {dialect}.")},
                    "dry_run": {"type": "boolean", "default": true, "description": "Whether it is only tried: rolled back, with the rows before and after it."},
                },
                "required": ["statement"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false},
            "confirm": {"when": "not input.dry_run"},
            "grantable": false,
            "run": {"sql": {"change": "{{ statement }}", "dry_run": "{{ dry_run }}"}},
        }))
    }

    /// A subtool for the rows of one table, found by the values of its columns.
    fn find(&self, table: &Value) -> ImportedSubtool {
        let name = text(table, "name");
        let columns: Vec<_> = table["columns"].as_array().into_iter().flatten().collect();
        let mut properties = Map::new();
        let (mut conditions, mut parameters) = (Vec::new(), Map::new());
        for column in columns.iter().take(MAX_FILTERS) {
            let own = text(column, "name");
            // A parameter is a plain word, and must not be taken for one of the page.
            let is_word = own.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_word
                || own.is_empty()
                || own.as_bytes()[0].is_ascii_digit()
                || ["page", "limit", "input", "task", "caller", "vars"].contains(&own)
            {
                continue;
            }
            properties.insert(own.to_owned(), Self::property(column));
            parameters.insert(own.to_owned(), format!("{{{{ {own} }}}}").into());
            let cast = if self.dialect == "MySQL" { "CHAR" } else { "TEXT" };
            conditions.push(format!("(CAST(:{own} AS {cast}) IS NULL OR {} = :{own})", self.quoted(own)));
        }
        let order = columns
            .iter()
            .filter(|column| text(column, "key") == "primary")
            .map(|column| self.quoted(text(column, "name")));
        let order: Vec<_> = order.collect();
        let listed: Vec<_> = columns.iter().map(|column| self.quoted(text(column, "name"))).collect();
        let condition =
            if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        let order = if order.is_empty() { "1".to_owned() } else { order.join(", ") };
        let (listed, quoted) = (listed.join(", "), self.quoted_table(name));
        let statement = format!("SELECT {listed} FROM {quoted}{condition} ORDER BY {order}");
        properties.insert(
            "page".to_owned(),
            json!({"type": "integer", "minimum": 1, "default": 1, "description": "The page of the rows."}),
        );
        properties.insert("limit".to_owned(), self.limit(Some(25)));
        let comment = match one_line(text(table, "comment"), MAX_COMMENT_CHARS) {
            comment if comment.is_empty() => String::new(),
            comment => format!(" ({})", comment.trim_end_matches('.')),
        };
        let plain: String =
            name.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '_' }).collect();
        let words = words(name);
        self.subtool(&format!("find_{plain}"), json!({
            "description": format!("Finds rows of the table {name}{comment} in the database {} by the values of its columns, and returns them page by page.", self.database),
            "phrases": [format!("find {words}"), format!("list {words}"), format!("{words} suchen"), format!("查找 {words}")],
            "input": {"type": "object", "properties": properties, "additionalProperties": false},
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "run": {"sql": {"statement": statement, "parameters": parameters, "page": "{{ page }}", "limit": "{{ limit }}"}},
        }))
    }

    fn property(column: &Value) -> Value {
        let type_name = text(column, "type").to_lowercase();
        let is = |names: &[&str]| names.iter().any(|name| type_name.contains(name));
        let mut property = match &column["values"] {
            Value::Array(values) if !type_name.starts_with("set(") => json!({"type": "string", "enum": values}),
            _ if is(&["bool"]) => json!({"type": "boolean"}),
            _ if is(&["int", "serial"]) && !is(&["interval", "point"]) => json!({"type": "integer"}),
            _ => json!({"type": "string"}),
        };
        let comment = one_line(text(column, "comment"), MAX_COMMENT_CHARS);
        let about = if comment.is_empty() { format!("Only rows with this value ({type_name}).") } else { comment };
        property["description"] = about.into();
        property
    }

    fn quoted(&self, name: &str) -> String {
        let quote = if self.dialect == "MySQL" { '`' } else { '"' };
        format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")))
    }

    fn quoted_table(&self, name: &str) -> String {
        name.split('.').map(|part| self.quoted(part)).collect::<Vec<_>>().join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_matches_nothing_is_an_error_also_beside_one_that_does() {
        let snapshot = json!({"dialect": "SQLite", "tables": [{"name": "orders", "columns": []}]});
        let document = document("shop", &snapshot).expect("a document");
        for (tables, wrong) in [("orders", None), ("order*,custmers", Some("custmers")), ("x*", Some("x*"))] {
            let others = [(TABLES.to_owned(), tables.to_owned())].into();
            let outcome = import(&document, &ImportOptions { others, ..ImportOptions::default() });
            let message = outcome.err().map(|error| error.message);
            assert_eq!(message, wrong.map(|wrong| format!("no table matches `--table {wrong}`")), "{tables}");
        }
    }
}
