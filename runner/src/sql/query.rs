//! Queries: those of the caller, which the guard rewrites, and those of the definition, with bound values.

use std::sync::Arc;

use database::answer::{Answer, CountMode, Page};
use database::{DatabaseError, Freshness, ReadQuery, Rows, SqlStatement};
use definition::run::sql::{Operation, Sql, declared, readable};
use ground::task::failure::Failure;
use protocol::code::Code;
use serde_json::{Map, Value};
use sql::dialect::Dialect;
use sql::guard::{Guard, GuardedStatement, KnownNames, Refusal, RefusalKind, RowOrder, named_tables};
use sql::parameters::ParameterValue;
use sql::schema::{Schema, TableKind};
use tokio_util::sync::CancellationToken;

use super::databases::OpenDatabase;
use super::failure::{self, StatementEffect};
use super::text;
use crate::{Invocation, RunnerOutput, fields};

/// The limit of rows of a statement of a definition, which has none: all that every database takes.
const MAX_OWN_ROWS: u64 = i32::MAX as u64;

/// Fails if a statement of a definition names a database of a server that is not there for subtools.
fn check_inside(
    statement: &str,
    parameters: &Map<String, Value>,
    open: &OpenDatabase,
    schema: &Schema,
) -> Result<(), Failure> {
    if !schema.is_part {
        return Ok(());
    }
    let dialect = Some(open.database.dialect());
    let Some(text) = readable(statement, parameters, dialect) else { return Ok(()) };
    let found = named_tables(&text, KnownNames { dialect, ..KnownNames::default() }).unwrap_or_default();
    let there: Vec<String> =
        open.settings.schemas.iter().flatten().chain(&schema.search_path).map(|name| name.to_lowercase()).collect();
    let names = found.tables.iter().flat_map(|table| &table.exact);
    let outside =
        names.filter_map(|name| name.split_once('.')).find(|(schema, _)| !there.iter().any(|it| it == schema));
    let Some((outside, _)) = outside else { return Ok(()) };
    let message = format!("the statement of the definition names `{outside}`, which is not there for subtools");
    let hint = format!("a human can name it in `schemas` under [databases.{}] in config.toml", open.name);
    Err(Failure::new(Code::BadDefinition, message).hint(hint))
}

/// The values of the parameters of a statement of a definition; an absent one is null.
pub(super) fn values(parameters: &Map<String, Value>, invocation: &Invocation) -> Result<Map<String, Value>, Failure> {
    let filled = fields::FieldValues::of(invocation);
    let value =
        |(name, template): (&String, &Value)| Ok((name.clone(), filled.value(Some(template))?.unwrap_or_default()));
    parameters.iter().map(value).collect()
}

/// Binds the values to a statement of a definition.
pub(super) fn bound(
    statement: &str,
    parameters: &Map<String, Value>,
    invocation: &Invocation,
    dialect: Dialect,
) -> Result<SqlStatement, Failure> {
    let values = values(parameters, invocation)?;
    let value_of = |name: &str| {
        Some(match values.get(name)? {
            Value::Array(items) => ParameterValue::List(items.iter().map(sql::value::Value::from).collect()),
            value => ParameterValue::One(sql::value::Value::from(value)),
        })
    };
    let bound = declared(dialect, statement, parameters).and_then(|statement| statement.bind(value_of));
    let bound = bound.map_err(|error| Failure::new(Code::BadDefinition, error.to_string()))?;
    Ok(bound.into())
}

/// Has the guard check a statement of the caller. A name that is missing in an older schema is looked up in a new one.
pub(super) async fn guarded(
    text: &str,
    may_write: bool,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<GuardedStatement, Failure> {
    let refusal = match checked(text, may_write, open, Freshness::Recent, cancel).await? {
        Ok(statement) => return Ok(statement),
        Err(refusal) => refusal,
    };
    let is_name = matches!(refusal.kind, RefusalKind::NoSuchTable | RefusalKind::NoSuchColumn);
    let refusal = if is_name {
        match checked(text, may_write, open, Freshness::New, cancel).await? {
            Ok(statement) => return Ok(statement),
            Err(refusal) => refusal,
        }
    } else {
        refusal
    };
    Err(failure::of_refusal(refusal))
}

/// Fails if a statement of a definition names what is hidden or denied, or is not there, unless it `sees_hidden`; and if
/// it names another database. Whatever else the guard says about it does not count, unless it `is_guarded`.
pub(super) async fn check_names(
    statement: &str,
    sql: &Sql,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let (parameters, is_guarded) = (&sql.parameters, sql.is_guarded);
    if open.database.dialect() == Dialect::Mysql || open.settings.schemas.is_some() {
        check_inside(statement, parameters, open, &*schema(open, Freshness::Recent, cancel).await?)?;
    }
    if sql.sees_hidden {
        return Ok(());
    }
    let text = match declared(open.database.dialect(), statement, parameters) {
        Ok(declared) => declared.with_nulls(),
        Err(_) if !is_guarded => return Ok(()),
        Err(error) => return Err(Failure::new(Code::BadDefinition, error.to_string())),
    };
    let counts =
        |refusal: &Refusal| is_guarded || matches!(refusal.kind, RefusalKind::NoSuchTable | RefusalKind::NoSuchColumn);
    for freshness in [Freshness::Recent, Freshness::New] {
        let checked = checked(&text, true, open, freshness, cancel).await?;
        match checked.err().filter(counts) {
            None => return Ok(()),
            Some(refusal) if freshness == Freshness::New => {
                let message = format!("the statement of the definition cannot be used: {}", refusal.message);
                let hint = match refusal.kind {
                    RefusalKind::NoSuchTable | RefusalKind::NoSuchColumn => {
                        "the definition must follow the database: agent-magic-tool import --refresh, or edit it"
                    }
                    _ => {
                        "a statement of a pack may do what one of a caller may; for more, its author must set \
                         `sees_hidden` in it, and `hidden` under [needs] in the manifest"
                    }
                };
                return Err(Failure::new(Code::BadDefinition, message).hint(hint));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What the guard makes of a statement of a definition, with a value for each parameter; `None` if it does not know it.
pub(super) async fn own(
    statement: &str,
    parameters: &Map<String, Value>,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<Option<GuardedStatement>, Failure> {
    let Ok(declared) = declared(open.database.dialect(), statement, parameters) else { return Ok(None) };
    let known = schema(open, Freshness::Recent, cancel).await?;
    Ok(checked_by(known, &declared.with_marks(), (true, MAX_OWN_ROWS), open).await?.ok())
}

/// A statement of a definition as it is sent, with its values. In one that `is_guarded`, the guard has left out what is
/// hidden.
pub(super) async fn sent(
    statement: &str,
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<SqlStatement, Failure> {
    let dialect = open.database.dialect();
    if !sql.is_guarded || sql.sees_hidden {
        return bound(statement, &sql.parameters, invocation, dialect);
    }
    let guarded = own(statement, &sql.parameters, open, cancel).await?;
    let guarded =
        guarded.ok_or_else(|| Failure::new(Code::BadDefinition, "the statement of the pack cannot be used"))?;
    bound_part(statement, &sql.parameters, &guarded.sql, invocation, dialect)
}

/// A part of what [`own`] gave, with the values of its parameters.
pub(super) fn bound_part(
    statement: &str,
    parameters: &Map<String, Value>,
    part: &str,
    invocation: &Invocation,
    dialect: Dialect,
) -> Result<SqlStatement, Failure> {
    let declared = declared(dialect, statement, parameters);
    let declared = declared.map_err(|error| Failure::new(Code::BadDefinition, error.to_string()))?;
    let (text, names) = declared.without_marks(part);
    let parameters = parameters.iter().filter(|(name, _)| names.contains(&name.as_str()));
    let parameters = parameters.map(|(name, value)| (name.clone(), value.clone())).collect();
    bound(&text, &parameters, invocation, dialect)
}

/// Why it is not known which rows a statement of a definition overwrites, if the guard does not know the statement.
pub(super) fn why_not_read(statement: &str, parameters: &Map<String, Value>, dialect: Dialect) -> Option<String> {
    let text = readable(statement, parameters, Some(dialect));
    sql::guard::may_replace(dialect, text.as_deref().unwrap_or(statement)).then(|| {
        "it may overwrite rows that are there, and has a form, a function or a hidden column that keeps them from being \
         found; write an `UPDATE` of the rows of one table by a condition in `WHERE`, and an `INSERT` of new ones"
            .to_owned()
    })
}

/// What the guard says about a statement. What a view reads may be something else by now, so one that names a view is
/// judged by a schema that was read after it was asked.
async fn checked(
    text: &str,
    may_write: bool,
    open: &OpenDatabase,
    freshness: Freshness,
    cancel: &CancellationToken,
) -> Result<Result<GuardedStatement, Refusal>, Failure> {
    let known = schema(open, freshness, cancel).await?;
    // One row more shows whether there is a next page.
    let max_rows = open.settings.max_rows.saturating_add(1);
    if freshness == Freshness::Recent && may_name_view(text, &known) {
        return checked_by(schema(open, Freshness::New, cancel).await?, text, (may_write, max_rows), open).await;
    }
    checked_by(known, text, (may_write, max_rows), open).await
}

/// Whether the statement names a view of the schema, or something that is called like one.
pub(super) fn may_name_view(text: &str, schema: &Schema) -> bool {
    let text = text.to_lowercase();
    let views = schema.tables.iter().filter(|(_, table)| matches!(table.kind, TableKind::View { .. }));
    views.map(|(name, _)| name.name.to_lowercase()).any(|name| text.contains(&name))
}

async fn checked_by(
    schema: Arc<Schema>,
    text: &str,
    (may_write, max_rows): (bool, u64),
    open: &OpenDatabase,
) -> Result<Result<GuardedStatement, Refusal>, Failure> {
    let (rules, dialect, text) = (Arc::clone(&open.rules), open.database.dialect(), text.to_owned());
    // Long statements take a while.
    let check = tokio::task::spawn_blocking(move || {
        Guard { dialect, schema: &schema, rules: &rules, max_rows, may_write }.check(&text)
    });
    check.await.map_err(|error| Failure::new(Code::Internal, format!("the guard stopped: {error}")))
}

pub(super) async fn schema(
    open: &OpenDatabase,
    freshness: Freshness,
    cancel: &CancellationToken,
) -> Result<Arc<Schema>, Failure> {
    let schema = open.database.schema(freshness, cancel).await;
    schema.map_err(|error| failed(&error))
}

fn failed(error: &DatabaseError) -> Failure {
    failure::of_database(error, StatementEffect::None)
}

pub(super) async fn explain(
    text: &str,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let verb = match open.database.dialect() {
        Dialect::Sqlite => "EXPLAIN QUERY PLAN",
        Dialect::Postgres | Dialect::Mysql => "EXPLAIN",
    };
    let statement = guarded(&format!("{verb} {text}"), false, open, cancel).await?;
    let rows = read(SqlStatement { sql: statement.sql, parameters: Vec::new() }, open, cancel).await?;
    Ok(output(Answer::of_read(rows, None, CountMode::None, None)))
}

async fn read(statement: SqlStatement, open: &OpenDatabase, cancel: &CancellationToken) -> Result<Rows, Failure> {
    let query = ReadQuery { statement, ..ReadQuery::default() };
    open.database.read(query, cancel).await.map_err(|error| failed(&error))
}

/// The answer as the data of the task, and what is said about it as its `_meta`.
pub(super) fn output(answer: Answer) -> RunnerOutput {
    let mut data = serde_json::to_value(answer).expect("an answer is plain JSON");
    let meta = data.as_object_mut().and_then(|fields| fields.shift_remove("meta"));
    let mut output = RunnerOutput::json(data);
    if let Some(Value::Object(meta)) = meta {
        output.meta = meta;
    }
    output
}

/// The page that a caller asks for.
struct AskedPage {
    /// With at most as many rows as the database allows.
    page: Page,
    count: CountMode,
    asked_limit: Option<u64>,
}

/// The parts of a query that are asked for one after the other.
struct PagedQuery {
    page: Option<(Page, SqlStatement)>,
    whole: SqlStatement,
    counted: Option<SqlStatement>,
}

pub(super) async fn read_page(
    sql: &Sql,
    invocation: &Invocation,
    open: &OpenDatabase,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let AskedPage { page, count, mut asked_limit } = asked_page(sql, invocation, open)?;
    let query = match sql.operation() {
        Operation::Query(template) => {
            let statement = guarded(&text(template, invocation)?, false, open, cancel).await?;
            let asks_for_later_page = page.number > 1;
            if asks_for_later_page && statement.order == RowOrder::Unordered {
                let message = "the query has no ORDER BY, so its pages could overlap or miss rows";
                return Err(Failure::new(Code::InvalidInput, message)
                    .hint("add an ORDER BY over a unique column, like the primary key"));
            }
            asked_limit = asked_limit.or(statement.own_limit());
            let rows = u64::try_from(page.rows_to_read(count)).unwrap_or(u64::MAX);
            let plain = |sql: String| SqlStatement { sql, parameters: Vec::new() };
            PagedQuery {
                page: statement.paged(rows, page.offset()).map(|sql| (page, plain(sql))),
                counted: statement.counted().filter(|_| count == CountMode::Exact).map(plain),
                whole: plain(statement.sql),
            }
        }
        Operation::Statement(statement) => {
            check_names(statement, sql, open, cancel).await?;
            let whole = sent(statement, sql, invocation, open, cancel).await?;
            let counted = (count == CountMode::Exact)
                .then(|| around("SELECT count(*) AS row_count FROM (", &whole, ") AS counted"));
            let limit = format!("LIMIT {} OFFSET {}", page.rows_to_read(count), page.offset());
            let is_paged = sql.page.is_some() || sql.limit.is_some();
            // What the guard leaves has a limit already.
            let (before, after) = if sql.is_guarded && !sql.sees_hidden {
                ("SELECT * FROM (", format!(") AS guarded {limit}"))
            } else {
                ("", limit)
            };
            let page = is_paged.then(|| (page, around(before, &whole, &after)));
            PagedQuery { page, whole, counted }
        }
        _ => unreachable!("other operations do not read rows"),
    };
    let (page, statement) = match query.page {
        Some((page, statement)) => (Some(page), statement),
        None => (None, query.whole),
    };
    let rows = read(statement, open, cancel).await?;
    let total = match query.counted {
        Some(counted) => read(counted, open, cancel).await?.rows.first().and_then(|row| row.first()?.as_u64()),
        None => None,
    };
    let limit = page.and_then(|page| u64::try_from(page.limit).ok());
    let lowered = asked_limit.filter(|asked| limit.is_some_and(|limit| *asked > limit));
    let output = output(Answer::of_read(rows, page, count, total));
    Ok(match lowered {
        Some(asked) => output.with_meta("asked_limit", asked),
        None => output,
    })
}

fn asked_page(sql: &Sql, invocation: &Invocation, open: &OpenDatabase) -> Result<AskedPage, Failure> {
    let values = fields::FieldValues::of(invocation);
    let number = values.whole_number("page", sql.page.as_ref())?.unwrap_or(1);
    let asked_limit = values.whole_number("limit", sql.limit.as_ref())?;
    let limit = asked_limit.unwrap_or(open.settings.max_rows);
    if number == 0 || limit == 0 {
        return Err(Failure::new(Code::InvalidInput, "`page` and `limit` begin at 1"));
    }
    let limit = usize::try_from(limit.min(open.settings.max_rows)).unwrap_or(usize::MAX);
    let count = match values.text(sql.count.as_deref())?.as_deref() {
        None | Some("next_pages") => CountMode::NextPages,
        Some("exact") => CountMode::Exact,
        Some("none") => CountMode::None,
        Some(other) => {
            let message = format!("`{other}` is not a way to count; use `exact`, `next_pages` or `none`");
            return Err(Failure::new(Code::InvalidInput, message));
        }
    };
    Ok(AskedPage { page: Page { number, limit }, count, asked_limit })
}

/// A statement with text around it, and the same parameters.
pub(super) fn around(before: &str, inner: &SqlStatement, after: &str) -> SqlStatement {
    let sql = inner.sql.trim_end().trim_end_matches(';');
    SqlStatement { sql: format!("{before}{sql}\n{after}"), parameters: inner.parameters.clone() }
}
