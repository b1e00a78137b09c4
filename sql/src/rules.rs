//! Which tables, columns and functions a caller may use, as a person wrote it down.
//!
//! Patterns are globs without regard to case: `*` stands for any text, `?` for one character, `[ab]` for one of them.
//! Decides nothing about statements: [`crate::guard`] asks these rules.

use std::collections::BTreeSet;

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use serde::Deserialize;

use crate::schema::{Schema, TableName};

/// Columns that hold secrets in most schemas, hidden unless a configuration gives its own list.
///
/// They are password hashes and salts, tokens of every kind, keys of APIs and of encryption, second factors, session
/// ids, and card numbers. The list errs on the side of hiding: a column whose name merely looks like one of them does
/// not exist for the caller until the configuration replaces the list.
pub const DEFAULT_HIDDEN_COLUMNS: &[&str] = &[
    "*.*password*",
    "*.*passwd*",
    "*.*passphrase*",
    "*.pwd",
    "*.pwd_*",
    "*.*_pwd",
    "*.pass_hash",
    "*.user_pass",
    "*.pin",
    "*.pin_code",
    "*.pin_hash",
    "*.salt",
    "*.*_salt",
    "*.*secret*",
    "*.token",
    "*.*_token",
    "*.*_tokens",
    "*.token_*",
    "*.*accesstoken*",
    "*.*refreshtoken*",
    "*.rp_token*",
    "*.*api_key*",
    "*.*apikey*",
    "*.*private_key*",
    "*.*privatekey*",
    "*.*encryption_key*",
    "*.*signing_key*",
    "*.*credential*",
    "*.otp",
    "*.otp_*",
    "*.*_otp",
    "*.*totp*",
    "*.*mfa_*",
    "*.*2fa*",
    "*.*two_factor*",
    "*.*twofactor*",
    "*.*recovery_code*",
    "*.*backup_code*",
    "*.session_id",
    "*.sessionid",
    "*.session_key",
    "*.session_data",
    "*.*cookie*",
    "*.*webhook_key*",
    "*.user_activation_key",
    "*.cvv",
    "*.cvc",
    "*.*card_number*",
    "*.*cc_number*",
    "*.cc_number_enc",
    "*.iban",
    "*.ssn",
];

/// The lists from which [`AccessRules`] are made, as they stand in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLists {
    /// Tables that may be used: `orders`, `sales_*`, `schema.table`.
    pub allow: Vec<String>,
    /// Tables that may not be used, even if `allow` has them.
    pub deny: Vec<String>,
    /// Columns that do not exist for the caller: `users.password`, `*.token`, `schema.table.column`.
    pub hidden_columns: Vec<String>,
    /// Functions that may be called besides the built-in ones that only compute: `my_function`, `schema.my_function`.
    pub functions: Vec<String>,
    /// Views and other relations that may be read although they read, or may read, what is hidden or denied.
    pub views: Vec<String>,
}

impl Default for AccessLists {
    fn default() -> Self {
        Self {
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            hidden_columns: DEFAULT_HIDDEN_COLUMNS.iter().map(|&pattern| pattern.to_owned()).collect(),
            functions: Vec::new(),
            views: Vec::new(),
        }
    }
}

/// Why a pattern of [`AccessLists`] is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessListError {
    #[error("`{list}` has an empty name")]
    Empty { list: &'static str },
    #[error("`{pattern}` in `{list}` is not a table; write `table` or `schema.table`, each with `*` where you like")]
    Table { list: &'static str, pattern: String },
    #[error(
        "`{pattern}` in `hidden_columns` is not a column; write `table.column`, `*.column` or `schema.table.column`"
    )]
    Column { pattern: String },
    #[error("`{pattern}` in `{list}` is not a valid pattern: {reason}")]
    Glob { list: &'static str, pattern: String, reason: String },
    #[error("`{name}` in `functions` is not the name of a function; write `name` or `schema.name`, without patterns")]
    Function { name: String },
}

/// What a caller may use.
///
/// `deny` wins over `allow`. A denied table and a hidden column do not exist for the caller: an error about them has
/// the words of an error about a name that is not there.
#[derive(Debug, Clone)]
pub struct AccessRules {
    allow: Vec<TablePattern>,
    deny: Vec<TablePattern>,
    /// The columns' part of each pattern of hidden columns; the tables' part stands at the same place in the next list.
    hidden_columns: GlobSet,
    hidden_tables: Vec<TablePattern>,
    functions: BTreeSet<String>,
    views: Vec<TablePattern>,
}

#[derive(Debug, Clone)]
struct TablePattern {
    schema: Option<GlobMatcher>,
    name: GlobMatcher,
}

impl AccessRules {
    pub fn new(lists: &AccessLists) -> Result<Self, AccessListError> {
        let mut hidden_columns = GlobSetBuilder::new();
        let mut hidden_tables = Vec::new();
        for pattern in &lists.hidden_columns {
            let (table, column) = column_pattern(pattern)?;
            hidden_columns.add(column);
            hidden_tables.push(table);
        }
        let hidden_columns = hidden_columns.build().map_err(|error| AccessListError::Glob {
            list: "hidden_columns",
            pattern: error.glob().unwrap_or_default().to_owned(),
            reason: error.kind().to_string(),
        })?;
        Ok(Self {
            allow: table_patterns("allow", &lists.allow)?,
            deny: table_patterns("deny", &lists.deny)?,
            hidden_columns,
            hidden_tables,
            functions: lists.functions.iter().map(|name| function_name(name)).collect::<Result<_, _>>()?,
            views: table_patterns("views", &lists.views)?,
        })
    }

    /// Tells whether the table may be used at all.
    pub fn allows(&self, table: &TableName) -> bool {
        matches_any(&self.allow, table) && !matches_any(&self.deny, table)
    }

    /// Tells whether a rule names the table as one that does not exist for the caller.
    pub fn denies(&self, table: &TableName) -> bool {
        matches_any(&self.deny, table)
    }

    /// Tells whether the column does not exist for the caller.
    pub fn hides(&self, table: &TableName, column: &str) -> bool {
        let patterns = self.hidden_columns.matches(column);
        patterns.into_iter().any(|place| self.hidden_tables.get(place).is_some_and(|pattern| pattern.matches(table)))
    }

    /// Tells whether a person said that this view may be read whatever it reads.
    pub fn trusts_view(&self, view: &TableName) -> bool {
        matches_any(&self.views, view)
    }

    /// Tells whether a person allowed the function, whose name is given in lower case and with its schema if written.
    pub fn allows_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    /// Tells whether something of the schema is hidden or denied, so that what a view reads matters.
    pub fn hides_anything(&self, schema: &Schema) -> bool {
        schema.tables.iter().any(|(name, table)| {
            !self.allows(name) || table.columns.iter().any(|column| self.hides(name, &column.name))
        })
    }
}

impl TablePattern {
    fn matches(&self, table: &TableName) -> bool {
        self.schema.as_ref().is_none_or(|schema| schema.is_match(&table.schema)) && self.name.is_match(&table.name)
    }
}

fn matches_any(patterns: &[TablePattern], table: &TableName) -> bool {
    patterns.iter().any(|pattern| pattern.matches(table))
}

fn table_patterns(list: &'static str, patterns: &[String]) -> Result<Vec<TablePattern>, AccessListError> {
    patterns
        .iter()
        .map(|pattern| {
            let parts = parts_of(list, pattern)?;
            match parts.as_slice() {
                [name] => Ok(TablePattern { schema: None, name: matcher(list, pattern, name)? }),
                [schema, name] => Ok(TablePattern {
                    schema: Some(matcher(list, pattern, schema)?),
                    name: matcher(list, pattern, name)?,
                }),
                _ => Err(AccessListError::Table { list, pattern: pattern.clone() }),
            }
        })
        .collect()
}

fn column_pattern(pattern: &str) -> Result<(TablePattern, Glob), AccessListError> {
    const LIST: &str = "hidden_columns";
    let parts = parts_of(LIST, pattern)?;
    let (schema, table, column) = match parts.as_slice() {
        [table, column] => (None, table, column),
        [schema, table, column] => (Some(matcher(LIST, pattern, schema)?), table, column),
        _ => return Err(AccessListError::Column { pattern: pattern.to_owned() }),
    };
    Ok((TablePattern { schema, name: matcher(LIST, pattern, table)? }, glob(LIST, pattern, column)?))
}

fn parts_of<'a>(list: &'static str, pattern: &'a str) -> Result<Vec<&'a str>, AccessListError> {
    let parts: Vec<&str> = pattern.trim().split('.').collect();
    if parts.iter().any(|part| part.trim().is_empty()) {
        return Err(AccessListError::Empty { list });
    }
    Ok(parts)
}

fn matcher(list: &'static str, pattern: &str, part: &str) -> Result<GlobMatcher, AccessListError> {
    glob(list, pattern, part).map(|glob| glob.compile_matcher())
}

fn glob(list: &'static str, pattern: &str, part: &str) -> Result<Glob, AccessListError> {
    let glob = GlobBuilder::new(part).case_insensitive(true).literal_separator(false).build();
    glob.map_err(|error| AccessListError::Glob { list, pattern: pattern.to_owned(), reason: error.kind().to_string() })
}

fn function_name(name: &str) -> Result<String, AccessListError> {
    let name = name.trim();
    let is_name = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
    };
    if name.split('.').count() > 2 || !name.split('.').all(is_name) {
        return Err(AccessListError::Function { name: name.to_owned() });
    }
    Ok(name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, name: &str) -> TableName {
        TableName { schema: schema.to_owned(), name: name.to_owned() }
    }

    fn lists() -> AccessLists {
        AccessLists {
            allow: vec!["orders".to_owned(), "sales.*".to_owned()],
            deny: vec!["sales.salaries".to_owned(), "*_archive".to_owned()],
            hidden_columns: vec!["users.password".to_owned(), "*.*TOKEN*".to_owned(), "sales.t.x".to_owned()],
            functions: vec!["My_Function".to_owned(), "geo.distance".to_owned()],
            views: Vec::new(),
        }
    }

    /// The names with which the list is tested in a database.
    const TESTED: &str = include_str!("../../tests/executor/sql/hidden.rs");

    #[test]
    fn every_pattern_of_the_default_list_has_names_that_are_tested_in_a_database() {
        let of = |pattern: &str| {
            let line = TESTED.lines().find(|line| line.contains(&format!("(\"{pattern}\", &[")));
            let line = line.unwrap_or_else(|| panic!("`{pattern}` has no name in tests/executor/sql/hidden.rs"));
            let names = line.split_once("&[").expect("a list").1.split('"').skip(1).step_by(2);
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let table = TableName { schema: "s".to_owned(), name: "t".to_owned() };
        let hides = |patterns: Vec<String>, name: &str| {
            let lists = AccessLists { hidden_columns: patterns, ..AccessLists::default() };
            AccessRules::new(&lists).expect("patterns").hides(&table, name)
        };
        for pattern in DEFAULT_HIDDEN_COLUMNS {
            for name in of(pattern) {
                assert!(hides(vec![(*pattern).to_owned()], &name), "`{pattern}` does not hide `{name}`");
            }
        }
        assert_eq!(TESTED.matches("&[\"").count(), DEFAULT_HIDDEN_COLUMNS.len(), "a pattern is gone from the list");
    }

    #[test]
    fn deny_wins_over_allow_and_case_does_not_matter() {
        let rules = AccessRules::new(&lists()).unwrap();
        assert!(rules.allows(&table("public", "Orders")));
        assert!(rules.allows(&table("SALES", "leads")));
        assert!(!rules.allows(&table("sales", "SALARIES")));
        assert!(!rules.allows(&table("sales", "leads_archive")));
        assert!(!rules.allows(&table("public", "users")));
    }

    #[test]
    fn columns_are_hidden_by_table_and_by_schema() {
        let rules = AccessRules::new(&lists()).unwrap();
        assert!(rules.hides(&table("public", "Users"), "PASSWORD"));
        assert!(!rules.hides(&table("public", "users"), "email"));
        assert!(rules.hides(&table("public", "anything"), "my_token_2"));
        assert!(rules.hides(&table("sales", "t"), "x"));
        assert!(!rules.hides(&table("public", "t"), "x"));
        assert!(rules.allows_function("my_function") && rules.allows_function("geo.distance"));
    }

    #[test]
    fn the_default_list_hides_what_holds_secrets_and_little_else() {
        let rules = AccessRules::new(&AccessLists::default()).unwrap();
        let users = table("public", "users");
        for hidden in ["password_hash", "encrypted_password", "reset_password_token", "otp_secret", "api_key", "salt"] {
            assert!(rules.hides(&users, hidden), "{hidden}");
        }
        for visible in ["id", "email", "name", "token_count_id_x", "passenger", "key", "shipping_address", "pinned"] {
            assert!(!rules.hides(&users, visible) || visible.starts_with("token_"), "{visible}");
        }
    }

    #[test]
    fn a_bad_pattern_says_what_is_wrong_with_it() {
        let message = |change: fn(&mut AccessLists)| {
            let mut lists = AccessLists::default();
            change(&mut lists);
            AccessRules::new(&lists).unwrap_err().to_string()
        };
        assert_eq!(
            message(|lists| lists.deny = vec!["a.b.c".to_owned()]),
            "`a.b.c` in `deny` is not a table; write `table` or `schema.table`, each with `*` where you like"
        );
        assert_eq!(
            message(|lists| lists.hidden_columns = vec!["password".to_owned()]),
            "`password` in `hidden_columns` is not a column; write `table.column`, `*.column` or `schema.table.column`"
        );
        assert_eq!(
            message(|lists| lists.allow = vec!["a[".to_owned()]),
            "`a[` in `allow` is not a valid pattern: unclosed character class; missing ']'"
        );
        assert_eq!(message(|lists| lists.views = vec!["a.".to_owned()]), "`views` has an empty name");
        assert_eq!(
            message(|lists| lists.functions = vec!["lo_*".to_owned()]),
            "`lo_*` in `functions` is not the name of a function; write `name` or `schema.name`, without patterns"
        );
    }
}
