//! Whatever the text is: no panic, and what passes is one statement of an allowed kind.

use std::sync::OnceLock;

use proptest::prelude::*;
use sql::dialect::Dialect;
use sql::rules::AccessLists;
use sqlparser::ast::{SetExpr, Statement};
use sqlparser::dialect::{Dialect as ParserDialect, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

use crate::corpus::{harmless, hidden, hostile};
use crate::world::{DIALECTS, World};

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "IN",
    "EXISTS",
    "(",
    ")",
    "(",
    ")",
    ",",
    ".",
    "*",
    "=",
    "<",
    "+",
    "-",
    "--",
    "/*",
    "*/",
    "#",
    ";",
    "'",
    "\"",
    "`",
    "'a'",
    "\"a\"",
    "`a`",
    "E'a\\n'",
    "$$a$$",
    "X'41'",
    "1",
    "0",
    "1e9",
    ".5",
    "NULL",
    "orders",
    "customers",
    "payroll",
    "id",
    "name",
    "total",
    "password_hash",
    "c",
    "o",
    "AS",
    "JOIN",
    "LEFT",
    "ON",
    "USING",
    "GROUP",
    "BY",
    "ORDER",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "UNION",
    "ALL",
    "EXCEPT",
    "WITH",
    "RECURSIVE",
    "VALUES",
    "INSERT",
    "INTO",
    "UPDATE",
    "SET",
    "DELETE",
    "RETURNING",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "::",
    "int",
    "text",
    "INTERVAL",
    "'1 day'",
    "DAY",
    "count",
    "sum",
    "lower",
    "coalesce",
    "repeat",
    "OVER",
    "PARTITION",
    "ROWS",
    "BETWEEN",
    "UNBOUNDED",
    "PRECEDING",
    "CURRENT",
    "ROW",
    "LATERAL",
    "json_each",
    "generate_series",
    "unnest",
    "ARRAY",
    "[",
    "]",
    ":",
    "LIKE",
    "ESCAPE",
    "IS",
    "DISTINCT",
    "->",
    "->>",
    "@>",
    "?",
    "||",
    "&&",
    "@",
    "@@",
    ":=",
    "FOR",
    "SHARE",
    "EXPLAIN",
    "ANALYZE",
    "SHOW",
    "DESCRIBE",
    "TABLE",
    "COLLATE",
    "NOCASE",
    "EXTRACT",
    "YEAR",
    "SECOND",
    "TO",
    "TRIM",
    "BOTH",
    "SUBSTRING",
    "POSITION",
    "OVERLAY",
    "PLACING",
    "MATCH",
    "AGAINST",
    "FILTER",
    "WITHIN",
    "FETCH",
    "FIRST",
    "ONLY",
    "TIES",
    "DEFAULT",
    "ON",
    "CONFLICT",
    "DO",
    "NOTHING",
    "DUPLICATE",
    "KEY",
    "TRUE",
    "{",
    "}",
    "\\",
    "!",
    "~",
    "é",
    "\u{200b}",
    "/*!",
    "GROUPING",
    "SETS",
    "ROLLUP",
    "PIVOT",
    "QUALIFY",
    "TOP",
    "CONVERT",
    "TIMESTAMP",
    "DATE",
    "CURRENT_DATE",
    "XMLTABLE",
    "JSON_TABLE",
    "COLUMNS",
    "PATH",
    "NATURAL",
    "CROSS",
    "TABLESAMPLE",
    "MATERIALIZED",
    "ORDINALITY",
    "(5,2)",
    "U&'\\0041'",
    "N'x'",
    "b'1'",
];

fn parser_dialect(dialect: Dialect) -> Box<dyn ParserDialect> {
    match dialect {
        Dialect::Sqlite => Box::new(SQLiteDialect {}),
        Dialect::Postgres => Box::new(PostgreSqlDialect {}),
        Dialect::Mysql => Box::new(MySqlDialect {}),
    }
}

fn is_allowed(statement: &Statement, is_write: bool) -> bool {
    match statement {
        Statement::Query(query) => match query.body.as_ref() {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) => is_write,
            _ => !is_write && query.locks.is_empty(),
        },
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => is_write,
        Statement::Explain { analyze: false, statement, .. } => is_allowed(statement, false),
        Statement::ShowVariable { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowTables { .. }
        | Statement::ExplainTable { .. } => !is_write,
        _ => false,
    }
}

/// A world and the same one without hidden columns.
type Worlds = Vec<(World, World)>;

/// The worlds of each dialect, with and without the right to write.
fn worlds() -> &'static Worlds {
    static WORLDS: OnceLock<Worlds> = OnceLock::new();
    WORLDS.get_or_init(|| {
        let lists =
            AccessLists { hidden_columns: Vec::new(), deny: vec!["payroll".to_owned()], ..AccessLists::default() };
        let reading = DIALECTS.into_iter().map(|dialect| (World::new(dialect), World::with(dialect, &lists)));
        let writing =
            DIALECTS.into_iter().map(|dialect| (World::new(dialect).writing(), World::with(dialect, &lists).writing()));
        reading.chain(writing).collect()
    })
}

fn examine(sql: &str) {
    for (world, open) in worlds() {
        examine_in(world, open, sql);
    }
}

fn examine_in(world: &World, open: &World, sql: &str) {
    let dialect = world.dialect;
    let Ok(guarded) = world.check(sql) else { return };
    assert!(world.may_write || !guarded.kind.is_write());
    let texts = [Some(guarded.sql.clone()), guarded.paged(7, 3), guarded.counted()];
    for text in texts.into_iter().flatten() {
        let statements = Parser::parse_sql(parser_dialect(dialect).as_ref(), &text).expect("what is sent parses");
        assert_eq!(statements.len(), 1, "{dialect}: {sql}\n{text}");
        assert!(is_allowed(&statements[0], guarded.kind.is_write()), "{dialect}: {sql}\n{text}");
        let tokens =
            Tokenizer::new(parser_dialect(dialect).as_ref(), &text).tokenize().expect("what is sent has tokens");
        let has_comment = |token: &Token| {
            let is_space =
                |space: &Whitespace| matches!(space, Whitespace::Space | Whitespace::Newline | Whitespace::Tab);
            matches!(token, Token::Whitespace(space) if !is_space(space)) || *token == Token::SemiColon
        };
        assert!(!tokens.iter().any(has_comment), "{dialect}: {sql}\n{text}");
        assert!(guarded.tables.iter().all(|used| used.name.name != "payroll"), "{dialect}: {sql}\n{text}");
        // Checked again where no column is hidden, and so none is rewritten, the text means the same.
        let again = open.check(&text).unwrap_or_else(|refusal| panic!("{dialect}: {sql}\n{text}\n{refusal}"));
        assert_eq!(again.tables, guarded.tables, "{dialect}: {sql}\n{text}");
    }
}

fn all_statements() -> Vec<String> {
    let lines = DIALECTS.iter().flat_map(|&dialect| [harmless(dialect), hidden(dialect), hostile(dialect)]);
    lines.flatten().map(|line| line.sql).collect()
}

#[test]
fn every_statement_of_the_data_files_in_every_dialect() {
    for sql in all_statements() {
        examine(&sql);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_soup_of_words(words in prop::collection::vec(prop::sample::select(WORDS), 0..30), spaced in any::<bool>()) {
        examine(&words.join(if spaced { " " } else { "" }));
        examine(&format!("SELECT {}", words.join(" ")));
        examine(&format!("SELECT id FROM orders {}", words.join(" ")));
    }

    #[test]
    fn statements_with_words_exchanged(
        one in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(WORDS), 0..4_u8), 1..4),
    ) {
        static STATEMENTS: OnceLock<Vec<String>> = OnceLock::new();
        let statements = STATEMENTS.get_or_init(all_statements);
        let mut words: Vec<&str> = one.get(statements).split(' ').collect();
        let others: Vec<&str> = other.get(statements).split(' ').collect();
        for (place, word, what) in cuts {
            let at = place.index(words.len());
            match what {
                0 => words[at] = word,
                1 => words.insert(at, word),
                2 if words.len() > 1 => drop(words.remove(at)),
                _ => {
                    let from = place.index(others.len());
                    words.splice(at..at, others[from..].iter().copied());
                }
            }
        }
        examine(&words.join(" "));
    }

    #[test]
    fn any_text(text in any::<String>(), inside in any::<String>()) {
        examine(&text);
        examine(&format!("SELECT '{}'", inside.replace('\'', "''")));
        examine(&format!("SELECT \"{}\" FROM orders", inside.replace('"', "\"\"")));
    }
}
