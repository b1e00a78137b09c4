//! Functions that give something else each time: the time, random numbers, new ids. A change that a human approves has
//! none of them, since it is made later than it was tried.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Statement, Value};

use super::one_walk::{Visitor, walk};
use super::text::shortened;
use crate::dialect::Dialect;

/// Whatever their arguments are, in any dialect.
const ALWAYS: &[&str] = &[
    "clock_timestamp",
    "curdate",
    "current_date",
    "current_time",
    "current_timestamp",
    "curtime",
    "gen_random_uuid",
    "localtime",
    "localtimestamp",
    "newid",
    "nextval",
    "now",
    "rand",
    "random",
    "random_bytes",
    "random_normal",
    "randomblob",
    "statement_timestamp",
    "sysdate",
    "sys_guid",
    "timeofday",
    "transaction_timestamp",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "uuid",
    "uuid_generate_v1",
    "uuid_generate_v1mc",
    "uuid_generate_v4",
    "uuid_short",
    "uuidv4",
    "uuidv7",
];
/// With fewer arguments than this they use the time that it is.
const WITHOUT_ARGUMENTS: &[(Dialect, &str, usize)] = &[
    (Dialect::Postgres, "age", 2),
    (Dialect::Mysql, "unix_timestamp", 1),
    (Dialect::Sqlite, "date", 1),
    (Dialect::Sqlite, "time", 1),
    (Dialect::Sqlite, "datetime", 1),
    (Dialect::Sqlite, "julianday", 1),
    (Dialect::Sqlite, "unixepoch", 1),
    (Dialect::Sqlite, "strftime", 2),
];
/// Texts that stand for a time that passes.
const TIMES: &[&str] = &["now", "today", "tomorrow", "yesterday"];

/// Returns what of a change is volatile, as it is written there.
pub(super) fn volatile(dialect: Dialect, statement: &Statement) -> Option<String> {
    match walk(statement, &mut VolatileSearch { dialect }) {
        ControlFlow::Break(found) => Some(shortened(&found)),
        ControlFlow::Continue(()) => None,
    }
}

struct VolatileSearch {
    dialect: Dialect,
}

impl VolatileSearch {
    fn is_volatile(&self, function: &Function) -> bool {
        let name = function.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
        let Some(name) = name else { return false };
        let arguments: &[FunctionArg] = match &function.args {
            FunctionArguments::List(list) => &list.args,
            FunctionArguments::None | FunctionArguments::Subquery(_) => &[],
        };
        let least = WITHOUT_ARGUMENTS.iter().find(|(dialect, it, _)| *dialect == self.dialect && *it == name);
        ALWAYS.contains(&name.as_str())
            || least.is_some_and(|(_, _, least)| arguments.len() < *least)
            || (self.dialect == Dialect::Sqlite && arguments.iter().any(is_time))
    }
}

fn is_time(argument: &FunctionArg) -> bool {
    matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if is_time_text(expr))
}

fn is_time_text(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => is_time_value(&value.value),
        Expr::Nested(inner) => is_time_text(inner),
        _ => false,
    }
}

fn is_time_value(value: &Value) -> bool {
    let text = value.clone().into_string().unwrap_or_default();
    TIMES.contains(&text.trim().to_lowercase().as_str())
}

impl Visitor<String> for VolatileSearch {
    fn visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        let is_volatile = match expr {
            Expr::Function(function) => self.is_volatile(function),
            // Some are words without parentheses.
            Expr::Identifier(ident) => {
                ident.quote_style.is_none()
                    && ident.value.to_lowercase().starts_with("current_")
                    && ALWAYS.contains(&ident.value.to_lowercase().as_str())
            }
            Expr::Cast { expr, .. } => self.dialect == Dialect::Postgres && is_time_text(expr),
            Expr::TypedString(typed) => self.dialect == Dialect::Postgres && is_time_value(&typed.value.value),
            _ => false,
        };
        if is_volatile { ControlFlow::Break(expr.to_string()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::parse_one;
    use super::*;

    #[test]
    fn what_gives_something_else_each_time_is_found_wherever_it_stands() {
        for (dialect, expressions) in [
            (
                Dialect::Postgres,
                &[
                    "clock_timestamp()",
                    "CURRENT_TIMESTAMP",
                    "current_date",
                    "pg_catalog.now()",
                    "'now'::timestamp",
                    "CAST('Today' AS date)",
                    "TIMESTAMP 'now'",
                    "age(born)",
                    "gen_random_uuid()",
                    "random() * 2",
                    "upper(md5(random()::text))",
                    "(SELECT max(a) FROM s WHERE b < LOCALTIMESTAMP)",
                    "CASE WHEN a = 1 THEN now() ELSE b END",
                ][..],
            ),
            (
                Dialect::Mysql,
                &[
                    "NOW()",
                    "RAND()",
                    "UUID()",
                    "SYSDATE()",
                    "unix_timestamp()",
                    "CURRENT_TIMESTAMP",
                    "utc_date()",
                    "curdate()",
                ][..],
            ),
            (
                Dialect::Sqlite,
                &[
                    "random()",
                    "hex(randomblob(4))",
                    "CURRENT_TIMESTAMP",
                    "date()",
                    "datetime('now', '-1 day')",
                    "strftime('%s')",
                    "strftime('%s', 'NOW')",
                    "julianday()",
                ][..],
            ),
        ] {
            for expression in expressions {
                for sql in [
                    format!("UPDATE t SET a = {expression} WHERE id = 1"),
                    format!("UPDATE t SET a = 1 WHERE b = {expression}"),
                    format!("DELETE FROM t WHERE b = {expression}"),
                    format!("INSERT INTO t (a) VALUES ({expression})"),
                    format!("INSERT INTO t (a) SELECT {expression} FROM s"),
                ] {
                    let statement = parse_one(dialect, &sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
                    assert!(volatile(dialect, &statement).is_some(), "{dialect}: {sql}");
                }
            }
        }
    }

    #[test]
    fn what_is_the_same_each_time_is_not() {
        for (dialect, expression) in [
            (Dialect::Postgres, "date_trunc('day', born)"),
            (Dialect::Postgres, "age(born, died)"),
            (Dialect::Postgres, "'now'"),
            (Dialect::Postgres, "\"now\""),
            (Dialect::Mysql, "unix_timestamp(born)"),
            (Dialect::Mysql, "date_add(born, INTERVAL 1 DAY)"),
            (Dialect::Sqlite, "date(born, '+1 day')"),
            (Dialect::Sqlite, "strftime('%Y', born)"),
        ] {
            let sql = format!("UPDATE t SET a = {expression} WHERE id = 1");
            let statement = parse_one(dialect, &sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(volatile(dialect, &statement), None, "{dialect}: {sql}");
        }
    }
}
