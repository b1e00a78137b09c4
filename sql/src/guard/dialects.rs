//! What differs between the dialects in reading and writing a statement's text: parsers, names, and quotes.
//!
//! Every name and every literal that is sent is written here, never by the parser's own printer: that one guesses
//! whether a quote inside of a string is already escaped, and guesses wrong for some.

use std::fmt::Write as _;

use sqlparser::ast::{Ident, Value};
use sqlparser::dialect::{Dialect as ParserDialect, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::ALL_KEYWORDS;

use crate::dialect::Dialect;

/// Names that the servers read as functions or constants although the parser takes them for columns.
const BARE_FUNCTIONS: &[&str] = &[
    "CURRENT_CATALOG",
    "CURRENT_ROLE",
    "CURRENT_SCHEMA",
    "CURRENT_USER",
    "LOCALTIME",
    "LOCALTIMESTAMP",
    "SESSION_USER",
    "SYSTEM_USER",
    "USER",
    "UTC_DATE",
    "UTC_TIME",
    "UTC_TIMESTAMP",
];

/// Reserved by a server but unknown to the parser's list.
const MORE_RESERVED: &[&str] = &[
    "ISNULL",
    "NOTNULL",
    "RAISE",
    "INDEXED",
    "GENERAL",
    "LATERAL",
    "MANUAL",
    "PARALLEL",
    "QUALIFY",
    "TABLESAMPLE",
    "LIBRARY",
];

pub(crate) fn parser_dialect(dialect: Dialect) -> &'static dyn ParserDialect {
    match dialect {
        Dialect::Sqlite => &SQLiteDialect {},
        Dialect::Postgres => &PostgreSqlDialect {},
        Dialect::Mysql => &MySqlDialect {},
    }
}

/// Returns the name that the database looks up for what was written: PostgreSQL lowers a name without quotes.
pub(super) fn folded(dialect: Dialect, ident: &Ident) -> String {
    match (dialect, ident.quote_style) {
        (Dialect::Postgres, None) => ident.value.to_ascii_lowercase(),
        _ => ident.value.clone(),
    }
}

/// Tells whether the database takes two names, as [`folded`], for the same.
pub(super) fn same(dialect: Dialect, one: &str, other: &str) -> bool {
    match dialect {
        Dialect::Postgres => one == other,
        Dialect::Sqlite => one.eq_ignore_ascii_case(other),
        Dialect::Mysql => one == other || one.to_lowercase() == other.to_lowercase(),
    }
}

/// Writes a name so that the database reads exactly this one, with quotes where it needs them.
pub(super) fn written_name(dialect: Dialect, name: &str) -> String {
    if is_plain(dialect, name) {
        return name.to_owned();
    }
    // In SQLite an unknown name in double quotes is taken for a string; one in backticks is not.
    let quote = match dialect {
        Dialect::Postgres => '"',
        Dialect::Sqlite | Dialect::Mysql => '`',
    };
    let mut written = String::with_capacity(name.len() + 2);
    written.push(quote);
    for character in name.chars() {
        if character == quote {
            written.push(quote);
        }
        written.push(character);
    }
    written.push(quote);
    written
}

fn is_plain(dialect: Dialect, name: &str) -> bool {
    let first_fits = name.starts_with(|first: char| match dialect {
        Dialect::Postgres => first.is_ascii_lowercase() || first == '_',
        Dialect::Sqlite | Dialect::Mysql => first.is_ascii_alphabetic() || first == '_',
    });
    let rest_fits = name.chars().all(|character| match dialect {
        Dialect::Postgres => character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_',
        Dialect::Sqlite | Dialect::Mysql => character.is_ascii_alphanumeric() || character == '_',
    });
    if !first_fits || !rest_fits {
        return false;
    }
    let upper = name.to_ascii_uppercase();
    ALL_KEYWORDS.binary_search(&upper.as_str()).is_err()
        && !BARE_FUNCTIONS.contains(&upper.as_str())
        && !MORE_RESERVED.contains(&upper.as_str())
}

/// Writes a literal so that the database reads exactly this value whatever its modes are; `None` if that is impossible.
pub(super) fn written_value(dialect: Dialect, value: &Value) -> Option<String> {
    match value {
        Value::Number(digits, false) => is_number(digits).then(|| digits.clone()),
        Value::Boolean(true) => Some("true".to_owned()),
        Value::Boolean(false) => Some("false".to_owned()),
        Value::Null => Some("NULL".to_owned()),
        Value::SingleQuotedString(text) => written_text(dialect, text),
        Value::DoubleQuotedString(text) if dialect == Dialect::Mysql => written_text(dialect, text),
        Value::EscapedStringLiteral(text) | Value::UnicodeStringLiteral(text) if dialect == Dialect::Postgres => {
            written_text(dialect, text)
        }
        Value::DollarQuotedString(quoted) if dialect == Dialect::Postgres => written_text(dialect, &quoted.value),
        Value::NationalStringLiteral(text) if dialect != Dialect::Sqlite => written_text(dialect, text),
        Value::HexStringLiteral(digits) => {
            let is_hex = digits.len() % 2 == 0 && digits.chars().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| format!("X'{digits}'"))
        }
        Value::SingleQuotedByteStringLiteral(digits) if dialect != Dialect::Sqlite => {
            digits.chars().all(|digit| matches!(digit, '0' | '1')).then(|| format!("B'{digits}'"))
        }
        // Written by this module already.
        Value::Placeholder(_)
        | Value::Number(_, true)
        | Value::DollarQuotedString(_)
        | Value::TripleSingleQuotedString(_)
        | Value::TripleDoubleQuotedString(_)
        | Value::EscapedStringLiteral(_)
        | Value::UnicodeStringLiteral(_)
        | Value::SingleQuotedByteStringLiteral(_)
        | Value::DoubleQuotedByteStringLiteral(_)
        | Value::TripleSingleQuotedByteStringLiteral(_)
        | Value::TripleDoubleQuotedByteStringLiteral(_)
        | Value::SingleQuotedRawStringLiteral(_)
        | Value::DoubleQuotedRawStringLiteral(_)
        | Value::TripleSingleQuotedRawStringLiteral(_)
        | Value::TripleDoubleQuotedRawStringLiteral(_)
        | Value::NationalStringLiteral(_)
        | Value::QuoteDelimitedStringLiteral(_)
        | Value::NationalQuoteDelimitedStringLiteral(_)
        | Value::DoubleQuotedString(_) => None,
    }
}

/// Writes a string. Quotes and, where they may be special, backslashes are both doubled, so that the string ends at the
/// same place in every mode of the server.
fn written_text(dialect: Dialect, text: &str) -> Option<String> {
    if text.contains('\0') {
        return None;
    }
    let escapes_backslash = match dialect {
        Dialect::Sqlite => false,
        Dialect::Postgres => text.contains('\\'),
        Dialect::Mysql => true,
    };
    let mut written = String::with_capacity(text.len() + 3);
    written.push_str(if escapes_backslash && dialect == Dialect::Postgres { "E'" } else { "'" });
    for character in text.chars() {
        if character == '\'' || (character == '\\' && escapes_backslash) {
            written.push(character);
        }
        written.push(character);
    }
    written.push('\'');
    Some(written)
}

fn is_number(digits: &str) -> bool {
    digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits
            .chars()
            .all(|character| character.is_ascii_digit() || matches!(character, '.' | '_' | 'e' | 'E' | '+' | '-'))
        && !digits.contains("--")
}

/// Writes a count, as in `LIMIT 100`.
pub(super) fn push_limit(text: &mut String, limit: u64, offset: u64) {
    write!(text, " LIMIT {limit}").expect("a string takes any text");
    if offset > 0 {
        write!(text, " OFFSET {offset}").expect("a string takes any text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_at_the_same_place_whether_backslashes_escape_or_not() {
        let text = Value::SingleQuotedString(r"a\' OR 1=1 -- \\".to_owned());
        assert_eq!(written_value(Dialect::Mysql, &text).unwrap(), r"'a\\'' OR 1=1 -- \\\\'");
        assert_eq!(written_value(Dialect::Postgres, &text).unwrap(), r"E'a\\'' OR 1=1 -- \\\\'");
        assert_eq!(written_value(Dialect::Sqlite, &text).unwrap(), r"'a\'' OR 1=1 -- \\'");
        assert_eq!(written_value(Dialect::Mysql, &Value::SingleQuotedString("\0".to_owned())), None);
    }

    #[test]
    fn names_are_quoted_where_the_server_could_read_something_else() {
        assert_eq!(written_name(Dialect::Postgres, "orders"), "orders");
        assert_eq!(written_name(Dialect::Postgres, "Orders"), "\"Orders\"");
        assert_eq!(written_name(Dialect::Postgres, "current_user"), "\"current_user\"");
        assert_eq!(written_name(Dialect::Sqlite, "a`b"), "`a``b`");
        assert_eq!(written_name(Dialect::Sqlite, "Orders"), "Orders");
        assert_eq!(written_name(Dialect::Mysql, "select"), "`select`");
        assert_eq!(written_name(Dialect::Mysql, ""), "``");
    }

    #[test]
    fn all_keywords_of_the_parser_are_sorted() {
        assert!(ALL_KEYWORDS.is_sorted());
    }
}
