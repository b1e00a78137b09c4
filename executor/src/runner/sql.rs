//! The `sql` runner: asks a database of the configuration, or changes it.
//!
//! A statement of the definition has bound parameters. A statement of the caller passes the guard of the `sql` crate, which
//! refuses whatever is not on its lists, and the database's own read-only transaction. What may be seen, and whether
//! anything may be changed at all, stands in the configuration. Decides nothing about confirmation.

use std::sync::OnceLock;

use ground::config::DatabaseSettings;
use ground::config::secret::SecretName;
use ground::task::confirmation::ReplacedValues;
use serde_json::{Map, json};
use sql::guard::RefusalKind;
use url::Url;

use super::{
    CancellationToken, Code, Config, DefinitionMistake, DefinitionMistakes, Deserialize, Failure, Invocation,
    JsonSchema, Retry, Runner, RunnerContext, RunnerOutput, Serialize, TextKind, Value, fields,
};
use databases::OpenDatabase;

mod change;
mod databases;
mod failure;
mod query;
mod structure;
mod table_access;

pub use databases::Databases;
pub use table_access::{AccessPatterns, AccessedTables, KnownTables, TableRules};

/// What to do in a database: exactly one of `query`, `statement`, `change`, `explain`, `describe` and `list_tables`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sql {
    /// The name of the database under `[databases]` in the configuration.
    pub database: String,
    /// A query of the caller: a template. It may read what the configuration shows, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "{{ query }}")]
    pub query: Option<String>,
    /// A statement of the definition, with `:name` for each value of `parameters`. If its rows come in pages, it has no LIMIT of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "{{ statement }}")]
    pub change: Option<String>,
    /// A query of the caller whose plan is shown: a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
    /// The table whose columns are shown: a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "{{ table }}")]
    pub describe: Option<String>,
    /// Lists the tables and views whose names contain this text: a template. Without a value: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "{{ name_contains }}")]
    pub list_tables: Option<String>,
    /// The number of the page of a query, from 1: a number, or a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Value>,
    /// The rows of a page: a number, or a template. `max_rows` of the database is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Value>,
    /// What is counted beside a page: `exact`, `next_pages` (whether there is one) or `none`; or a template. Absent: `next_pages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Whether a change is only tried: it is rolled back, and the rows are shown before and after it. A boolean, or a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<Value>,
    /// A change of more rows than this is rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
enum Operation<'a> {
    Query(&'a str),
    Statement(&'a str),
    Change(&'a str),
    Explain(&'a str),
    Describe(&'a str),
    ListTables(&'a str),
}

/// Returns what callers may see of the database `name`: its dialect, whether it may be changed, and its tables.
pub async fn snapshot(name: &str, context: &RunnerContext, cancel: &CancellationToken) -> Result<Value, Failure> {
    let sql = Sql { database: name.to_owned(), ..Sql::default() };
    let open = context.databases.open(name, sql.settings(&context.config)?, context).await?;
    structure::snapshot(&open, cancel).await
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

    fn operation(&self) -> Operation<'_> {
        *self.operations().first().expect("a definition that was loaded has one")
    }

    /// Whether it may change something.
    pub fn changes(&self) -> bool {
        *self.changes.get_or_init(|| match self.operation() {
            Operation::Change(_) => true,
            Operation::Statement(statement) => query::is_change(statement, &self.parameters),
            Operation::Query(_) | Operation::Explain(_) | Operation::Describe(_) | Operation::ListTables(_) => false,
        })
    }

    /// What is wrong with a statement whose text is known, and its field: the parser of the database does not understand it.
    pub fn mistake_in_text(&self, config: &Config) -> Option<(&'static str, String)> {
        let known = self.settings(config).ok().and_then(|settings| settings.connection(None).ok());
        let dialect = known.map(|settings| settings.dialect());
        let (field, text) = match self.operation() {
            Operation::Statement(statement) => ("statement", query::readable(statement, &self.parameters, dialect)?),
            Operation::Query(text) => ("query", text.to_owned()),
            Operation::Change(text) => ("change", text.to_owned()),
            Operation::Explain(text) => ("explain", text.to_owned()),
            Operation::Describe(_) | Operation::ListTables(_) => return None,
        };
        let is_template = field != "statement" && (text.contains("{{") || text.contains("{%"));
        let why = if is_template { None } else { query::syntax_error(&text, dialect) };
        why.map(|why| (field, why))
    }

    fn settings<'a>(&self, config: &'a Config) -> Result<&'a DatabaseSettings, Failure> {
        config.databases.get(&self.database).ok_or_else(|| {
            let names: Vec<_> = config.databases.keys().map(|name| format!("`{name}`")).collect();
            let there =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            Failure::new(Code::BadConfig, format!("the configuration has no database `{}`; {there}", self.database))
                .hint(format!("a human must add [databases.{}] with its `url` to config.toml", self.database))
        })
    }

    /// The password of its database, and where that is; not of a file or a socket of this machine.
    pub(super) fn sent_secret(&self, config: &Config) -> Result<Option<(SecretName, Url)>, Failure> {
        let settings = self.settings(config)?;
        Ok(settings.password.clone().zip(settings.server_url()))
    }

    /// Where it is, as the page shows it.
    pub fn place(&self, config: &Config) -> String {
        let address = self.settings(config).ok().and_then(|settings| settings.connection(None).ok());
        match address {
            Some(settings) => format!("database {} ({} at {})", self.database, settings.dialect(), settings.address()),
            None => format!("database {}, which is not configured", self.database),
        }
    }

    /// What a change would do, by trying it; `None` if it changes nothing.
    pub async fn preview(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Option<ReplacedValues> {
        if !self.changes() || self.is_dry_run(invocation).unwrap_or_default() {
            return None;
        }
        Some(match Box::pin(self.tried(invocation, context, cancel)).await {
            Ok(change) => ReplacedValues::Change(change),
            Err(failure) if failure.retry == Retry::Never => ReplacedValues::Impossible(failure.error),
            Err(failure) => ReplacedValues::Unknown(failure.error.message),
        })
    }

    fn is_dry_run(&self, invocation: &Invocation) -> Result<bool, Failure> {
        let value = fields::FieldValues::of(invocation).value(self.dry_run.as_ref())?;
        match value {
            None => Ok(false),
            Some(Value::Bool(dry_run)) => Ok(dry_run),
            Some(_) => Err(fields::wrong_type("dry_run", "boolean")),
        }
    }

    /// The text of the caller in `template`.
    fn text(template: &str, invocation: &Invocation) -> Result<String, Failure> {
        let text = fields::FieldValues::of(invocation).text(Some(template))?.unwrap_or_default();
        if text.trim().is_empty() {
            return Err(Failure::new(Code::InvalidInput, "there is no statement").hint("give one SQL statement"));
        }
        Ok(text)
    }
}

/// Says how rows are changed to a caller who tried it with a query.
fn only_reads(failure: Failure, invocation: &Invocation, open: &OpenDatabase, context: &RunnerContext) -> Failure {
    if failure.error.details.get("reason") != Some(&RefusalKind::ReadOnly.as_str().into()) {
        return failure;
    }
    let hint = if !open.settings.writable {
        "write a `SELECT`; subtools may change nothing in this database".to_owned()
    } else if let Some(name) = change_beside(invocation, context) {
        format!("write a `SELECT`; `{name}` changes rows")
    } else {
        "write a `SELECT`; rows are changed by another subtool of this database".to_owned()
    };
    failure.hint(hint)
}

/// The subtool for changes that was imported with the one for queries, if the caller may use it.
fn change_beside(invocation: &Invocation, context: &RunnerContext) -> Option<String> {
    let own = &invocation.subtool.as_ref()?.name;
    let name = format!("{}_change", own.strip_suffix("_query")?);
    context.delegation.as_ref()?.subtool(&name, invocation).ok().map(|_| name)
}

impl Runner for Sql {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut mistakes = DefinitionMistakes::default();
        let wrong = |place: &str, message: &str| Err(DefinitionMistake::new(place, &message));
        match self.operations()[..] {
            [Operation::Statement(statement)] => mistakes.note(query::check_statement(statement, &self.parameters)),
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

    fn plan(&self, invocation: &Invocation, config: &Config) -> Result<Value, Failure> {
        let settings = self.settings(config)?;
        if let Operation::Query(template) | Operation::Explain(template) = self.operation()
            && let Ok(connection) = settings.connection(None)
        {
            let text = Self::text(template, invocation)?;
            let refused = sql::guard::refused_query(connection.dialect(), &text);
            refused.map_or(Ok(()), |refusal| Err(failure::of_refusal(refusal)))?;
        }
        let mut plan = Value::Object(fields::FieldValues::of(invocation).all(self)?);
        if matches!(self.operation(), Operation::Statement(_)) {
            let values = query::values(&self.parameters, invocation)?;
            plan["parameters"] = Value::Object(values);
        }
        Ok(plan)
    }

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let database = context.databases.open(&self.database, self.settings(&context.config)?, context).await?;
        Box::pin(self.check_access(invocation, &database, context, cancel)).await?;
        match self.operation() {
            Operation::Describe(template) => {
                let table = fields::FieldValues::of(invocation).text(Some(template))?.unwrap_or_default();
                structure::describe(&table, &database, cancel).await
            }
            Operation::ListTables(template) => {
                let part = fields::FieldValues::of(invocation).text(Some(template))?.unwrap_or_default();
                structure::list_tables(&part, &database, cancel).await
            }
            Operation::Explain(template) => query::explain(&Self::text(template, invocation)?, &database, cancel).await,
            Operation::Query(_) | Operation::Statement(_) if !self.changes() => {
                let read = Box::pin(self.read(invocation, &database, cancel)).await;
                read.map_err(|failure| only_reads(failure, invocation, &database, context))
            }
            Operation::Query(_) | Operation::Statement(_) | Operation::Change(_) => {
                Box::pin(self.change(invocation, &database, cancel)).await
            }
        }
    }
}
