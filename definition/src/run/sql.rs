//! The sql runner's settings: a database of the configuration, and what is done there.

use std::sync::OnceLock;

use ground::config::{Config, DatabaseSettings};
use ground::task::failure::Failure;
use protocol::code::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, DefinitionMistakes, Settings, TextKind};

mod statement;

pub use statement::{declared, readable};

/// What to do in a database: exactly one of `query`, `statement`, `change`, `explain`, `describe` and `list_tables`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sql {
    /// The name of the database under `[databases]` in the configuration.
    pub database: String,
    /// A query of the caller: a template. It may read what the configuration shows, and nothing else.
    #[schemars(example = "{{ query }}")]
    pub query: Option<String>,
    /// A statement of the definition, with `:name` for each value of `parameters`. If its rows come in pages, it has no LIMIT of its own.
    #[schemars(example = "SELECT id, status FROM orders WHERE customer_id = :customer ORDER BY id")]
    pub statement: Option<String>,
    /// The values of `statement`, as JSON templates. They are bound, never written into the text. An absent one is NULL; a list fills `IN (:names)`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(example = json!({"customer": "{{ customer_id }}"}))]
    pub parameters: Map<String, Value>,
    /// Whether `statement` may use what the configuration hides or denies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sees_hidden: bool,
    /// An INSERT, UPDATE or DELETE of the caller: a template. Only in a database that is writable.
    #[schemars(example = "{{ statement }}")]
    pub change: Option<String>,
    /// A query of the caller whose plan is shown: a template.
    pub explain: Option<String>,
    /// The table whose columns are shown: a template.
    #[schemars(example = "{{ table }}")]
    pub describe: Option<String>,
    /// Lists the tables and views whose names contain this text: a template. Without a value: all of them.
    #[schemars(example = "{{ name_contains }}")]
    pub list_tables: Option<String>,
    /// The number of the page of a query, from 1: a number, or a template.
    pub page: Option<Value>,
    /// The rows of a page: a number, or a template. `max_rows` of the database is the most.
    pub limit: Option<Value>,
    /// What is counted beside a page: `exact`, `next_pages` (whether there is one) or `none`; or a template. Absent: `next_pages`.
    pub count: Option<String>,
    /// Whether a change is only tried: it is rolled back, and the rows are shown before and after it. A boolean, or a template.
    pub dry_run: Option<Value>,
    /// A change of more rows than this is rolled back.
    #[schemars(range(min = 1))]
    pub max_affected: Option<u64>,
    /// Whether `statement` must be one that a caller might write: a pack's, which would see what is hidden otherwise.
    #[serde(skip)]
    pub is_guarded: bool,
    /// Whether it may change something, once its statement was read for that.
    #[serde(skip)]
    changes: OnceLock<bool>,
}

/// The one thing that a [`Sql`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    Query(&'a str),
    Statement(&'a str),
    Change(&'a str),
    Explain(&'a str),
    Describe(&'a str),
    ListTables(&'a str),
}

impl Settings for Sql {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut mistakes = DefinitionMistakes::default();
        let wrong = |place: &str, message: &str| Err(DefinitionMistake::new(place, &message));
        match self.operations()[..] {
            [Operation::Statement(statement)] => mistakes.note(statement::check_statement(statement, &self.parameters)),
            [_] => {}
            _ => mistakes.note(wrong(
                "",
                "it needs exactly one of `query`, `statement`, `change`, `explain`, `describe` and `list_tables`",
            )),
        }
        let [operation] = self.operations()[..] else { return mistakes.into_vec() };
        let is_read = matches!(operation, Operation::Query(_))
            || (matches!(operation, Operation::Statement(_)) && !self.changes());
        if !is_read {
            for (field, value) in
                [("page", &self.page), ("limit", &self.limit), ("count", &self.count.clone().map(Value::String))]
            {
                if value.is_some() {
                    mistakes.note(wrong(field, "only a query has pages"));
                }
            }
        }
        if !self.changes() && (self.dry_run.is_some() || self.max_affected.is_some()) {
            mistakes.note(wrong("dry_run", "only a change can be tried: `change`, or a `statement` that changes rows"));
        }
        if !matches!(operation, Operation::Statement(_)) && !self.parameters.is_empty() {
            mistakes.note(wrong("parameters", "only a `statement` has parameters"));
        }
        mistakes.into_vec()
    }

    fn text_kind(&self, place: &str) -> TextKind {
        match place {
            "database" | "statement" => TextKind::Constant,
            _ => TextKind::Template,
        }
    }
}

impl Sql {
    fn operations(&self) -> Vec<Operation<'_>> {
        [
            self.query.as_deref().map(Operation::Query),
            self.statement.as_deref().map(Operation::Statement),
            self.change.as_deref().map(Operation::Change),
            self.explain.as_deref().map(Operation::Explain),
            self.describe.as_deref().map(Operation::Describe),
            self.list_tables.as_deref().map(Operation::ListTables),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The one thing that it does.
    pub fn operation(&self) -> Operation<'_> {
        *self.operations().first().expect("a definition that was loaded has one")
    }

    /// Whether it may change something.
    pub fn changes(&self) -> bool {
        *self.changes.get_or_init(|| match self.operation() {
            Operation::Change(_) => true,
            Operation::Statement(statement) => statement::is_change(statement, &self.parameters),
            Operation::Query(_) | Operation::Explain(_) | Operation::Describe(_) | Operation::ListTables(_) => false,
        })
    }

    /// What is wrong with a statement whose text is known, and its field: the parser of the database does not understand it.
    pub fn mistake_in_text(&self, config: &Config) -> Option<(&'static str, String)> {
        let known = self.settings(config).ok().and_then(|settings| settings.connection(None).ok());
        let dialect = known.map(|settings| settings.dialect());
        let (field, text) = match self.operation() {
            Operation::Statement(statement) => ("statement", readable(statement, &self.parameters, dialect)?),
            Operation::Query(text) => ("query", text.to_owned()),
            Operation::Change(text) => ("change", text.to_owned()),
            Operation::Explain(text) => ("explain", text.to_owned()),
            Operation::Describe(_) | Operation::ListTables(_) => return None,
        };
        let is_template = field != "statement" && (text.contains("{{") || text.contains("{%"));
        let why = if is_template { None } else { statement::syntax_error(&text, dialect) };
        why.map(|why| (field, why))
    }

    /// The settings of its database.
    pub fn settings<'a>(&self, config: &'a Config) -> Result<&'a DatabaseSettings, Failure> {
        settings_of(&self.database, config)
    }

    /// Where it is, as the page shows it.
    pub fn place(&self, config: &Config) -> String {
        let address = self.settings(config).ok().and_then(|settings| settings.connection(None).ok());
        match address {
            Some(settings) => format!("database {} ({} at {})", self.database, settings.dialect(), settings.address()),
            None => format!("database {}, which is not configured", self.database),
        }
    }
}

/// The settings of the database `name`.
pub fn settings_of<'a>(name: &str, config: &'a Config) -> Result<&'a DatabaseSettings, Failure> {
    config.databases.get(name).ok_or_else(|| {
        let names: Vec<_> = config.databases.keys().map(|name| format!("`{name}`")).collect();
        let there = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        Failure::new(Code::BadConfig, format!("the configuration has no database `{name}`; {there}"))
            .hint(format!("a human must add [databases.{name}] with its `url` to config.toml"))
    })
}
