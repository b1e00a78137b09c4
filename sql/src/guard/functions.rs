//! Which functions may be called: built-in ones that only compute from their arguments, by list, and those that the
//! rules add. A function that is on no list is refused, whatever it may do.

mod mysql;
mod postgres;
mod sqlite;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};

use super::catalog::Catalog;
use super::dialects::folded;
use super::refusal::Refusal;
use super::text::shortened;
use crate::dialect::Dialect;

/// The lists of a dialect, in lower case.
pub(super) struct FunctionLists {
    /// They give one value.
    pub(super) scalar: &'static [&'static [&'static str]],
    /// They give rows.
    pub(super) table: &'static [&'static str],
    /// Their first argument is a unit of time without quotes.
    pub(super) unit_first: &'static [&'static str],
    /// They make a value as long as the argument at this place says.
    pub(super) growing: &'static [(&'static str, usize)],
}

/// The window functions of the standard, which every dialect has.
const WINDOWS: &[&str] = &[
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

pub(super) fn lists(dialect: Dialect) -> &'static FunctionLists {
    match dialect {
        Dialect::Sqlite => &sqlite::LISTS,
        Dialect::Postgres => &postgres::LISTS,
        Dialect::Mysql => &mysql::LISTS,
    }
}

/// Returns the function's name in lower case, without `pg_catalog.`, if it may be called.
pub(super) fn may_call(catalog: &Catalog<'_>, name: &ObjectName) -> Result<String, Refusal> {
    let parts: Option<Vec<&Ident>> = name.0.iter().map(ObjectNamePart::as_ident).collect();
    let parts: Vec<String> = parts.unwrap_or_default().into_iter().map(|part| folded(catalog.dialect, part)).collect();
    let lowered: Vec<String> = parts.iter().map(|part| part.to_ascii_lowercase()).collect();
    // PostgreSQL distinguishes "Lower" from lower, and only the latter is built in.
    let is_folded = catalog.dialect != Dialect::Postgres || lowered == parts;
    let lists = lists(catalog.dialect);
    let is_listed = |name: &str| lists.scalar.iter().any(|names| names.contains(&name)) || lists.table.contains(&name);
    match lowered.as_slice() {
        // A function that people made may have the name of a built-in one, and be called in its place.
        [name] if is_folded && is_listed(name) && !catalog.schema.functions.contains(name) => return Ok(name.clone()),
        [schema, name]
            if is_folded && catalog.dialect == Dialect::Postgres && schema == "pg_catalog" && is_listed(name) =>
        {
            return Ok(name.clone());
        }
        _ => {}
    }
    let written = lowered.join(".");
    if is_folded && catalog.rules.allows_function(&written) {
        return Ok(written);
    }
    Err(Refusal::not_allowed(
        format!("the function `{}`", shortened(&name.to_string())),
        "use built-in functions that only compute from their arguments; the person who configured this database can \
         allow others by name",
    ))
}

/// Fails if people made a function with one of these names, which a form of its own in the grammar calls.
pub(super) fn may_call_built_in(catalog: &Catalog<'_>, names: &[&str]) -> Result<(), Refusal> {
    let Some(made) = names.iter().find(|name| catalog.schema.functions.contains(**name)) else { return Ok(()) };
    Err(Refusal::not_allowed(
        format!("the function `{made}`, which was made in this database beside the built-in one,"),
        "write the expression without it",
    ))
}

/// Tells whether a function may stand in `FROM`.
pub(super) fn gives_rows(catalog: &Catalog<'_>, name: &str) -> bool {
    lists(catalog.dialect).table.contains(&name) || catalog.rules.allows_function(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_that_reaches_out_is_on_a_list() {
        let out = [
            "pg_",
            "lo_",
            "dblink",
            "load_",
            "readfile",
            "writefile",
            "sleep",
            "benchmark",
            "_lock",
            "nextval",
            "setval",
            "set_config",
            "current_setting",
            "_to_xml",
            "query_to",
            "ts_stat",
            "ts_rewrite",
            "crosstab",
            "sys_",
            "fts3_tokenizer",
            "edit",
            "last_insert",
            "txid",
            "inet_server",
            "inet_client",
            "user",
        ];
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
            let lists = lists(dialect);
            for name in lists.scalar.iter().copied().flatten().chain(lists.table) {
                assert_eq!(*name, name.to_ascii_lowercase(), "{dialect}");
                if *name != "pg_typeof" {
                    assert!(!out.iter().any(|word| name.contains(word)), "{dialect} has {name}");
                }
            }
            for name in lists.growing.iter().map(|(name, _)| name).chain(lists.unit_first) {
                assert!(lists.scalar.iter().any(|names| names.contains(name)), "{name}");
            }
        }
    }
}
