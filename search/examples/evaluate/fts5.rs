//! The same search by SQLite's FTS5: what is to be had without writing any ranking.
//!
//! Porter stemming, names split into words, the weights 10, 5, 2 and 1 for name, description, names of parameters and
//! their descriptions. The words of a query are joined by `OR`, without those that our search leaves out, too: FTS5 has
//! no list of its own, and is much worse without one.

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::measures::DEPTH;
use crate::sets::Tool;

pub(crate) struct Fts5(Connection);

impl Fts5 {
    pub(crate) fn new(tools: &[Tool]) -> Self {
        let connection = Connection::open_in_memory().expect("memory");
        let create = "CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, texts, original UNINDEXED,
                      tokenize = 'porter unicode61')";
        connection.execute(create, []).expect("a build with FTS5");
        for tool in tools {
            let (mut parameters, mut texts) = (Vec::new(), Vec::new());
            collect(&Value::Object(tool.input.clone()), &mut parameters, &mut texts);
            let split = |words: &[String]| split_name(&words.join(" "));
            connection
                .execute(
                    "INSERT INTO tools VALUES (?, ?, ?, ?, ?)",
                    params![split_name(&tool.name), tool.description, split(&parameters), texts.join(" "), tool.name],
                )
                .expect("a row");
        }
        Self(connection)
    }

    pub(crate) fn search(&self, query: &str) -> Vec<String> {
        let words: Vec<_> = query
            .split(|character: char| !character.is_alphanumeric())
            .filter(|word| !search::words_of_request(word).is_empty())
            .map(|word| format!("\"{word}\""))
            .collect();
        if words.is_empty() {
            return Vec::new();
        }
        let select =
            "SELECT original FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 10.0, 5.0, 2.0, 1.0), rowid LIMIT ?";
        let mut statement = self.0.prepare_cached(select).expect("a statement");
        let rows =
            statement.query_map(params![words.join(" OR "), i64::try_from(DEPTH).expect("ten")], |row| row.get(0));
        rows.expect("a query").map(|name| name.expect("a name")).collect()
    }
}

/// `getUser_by-id` as `get User by id`.
fn split_name(name: &str) -> String {
    let mut split = String::new();
    let mut previous = ' ';
    for character in name.chars() {
        if previous.is_lowercase() && character.is_uppercase() {
            split.push(' ');
        }
        split.push(if character.is_alphanumeric() { character } else { ' ' });
        previous = character;
    }
    split
}

fn collect(schema: &Value, names: &mut Vec<String>, texts: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        names.push(name.clone());
        texts.extend(property["description"].as_str().map(str::to_owned));
        let choices = property["enum"].as_array().into_iter().flatten();
        texts.extend(choices.filter_map(Value::as_str).map(str::to_owned));
        collect(property, names, texts);
    }
    if schema["items"].is_object() {
        collect(&schema["items"], names, texts);
    }
}
