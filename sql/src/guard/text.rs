//! From a text to one syntax tree, or a refusal: everything that is decided before the meaning of a statement.
//!
//! The bounds here keep every later step finite: the parser, the walk, the printer and the destructor of the tree all
//! recurse, as deep as a chain of operators is long.

use sqlparser::ast::Statement;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::dialects::parser_dialect;
use super::refusal::{Refusal, RefusalKind};
use crate::dialect::Dialect;

/// Longest text of a statement. Generated reports of several pages stay below a quarter of it.
pub const MAX_STATEMENT_BYTES: usize = 64 * 1024;
/// Most operators and keywords: each of them may make the tree one level deeper. [`STACK_BYTES`] is enough for them.
const MAX_OPERATORS: usize = 2_000;
/// Deepest nesting of parentheses; below the parser's own limit of recursion, so that the message is ours.
const MAX_PARENTHESES: usize = 40;
/// Longest name of PostgreSQL.
const MAX_POSTGRES_NAME_BYTES: usize = 63;
/// Stack for parsing and walking, of a thread of its own: see [`on_a_deep_stack`].
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Runs a function with a stack that is enough for every statement within the bounds, also in a debug build.
pub(crate) fn on_a_deep_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sql guard".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, run).expect("a thread can be started").join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Parses a text that must hold exactly one statement.
pub(crate) fn parse_one(dialect: Dialect, sql: &str) -> Result<Statement, Refusal> {
    let tokens = tokens_of(dialect, sql)?;
    parse_tokens(dialect, tokens)
}

/// Parses a text that this crate printed: no bounds, they were kept by what it was printed from.
pub(super) fn parse_again(dialect: Dialect, sql: &str) -> Option<Statement> {
    let tokens = Tokenizer::new(parser_dialect(dialect), sql).tokenize_with_location().ok()?;
    parse_tokens(dialect, tokens).ok()
}

fn parse_tokens(dialect: Dialect, tokens: Vec<TokenWithSpan>) -> Result<Statement, Refusal> {
    let mut parser = Parser::new(parser_dialect(dialect)).with_tokens_with_locations(tokens);
    let statement = parser.parse_statement().map_err(|error| not_parsed(dialect, &error))?;
    while parser.consume_token(&Token::SemiColon) {}
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(Refusal::syntax(
            format!("syntax error: unexpected `{}`{}", shortened(&next.token.to_string()), at(&next)),
            format!("write one {dialect} statement"),
        ));
    }
    Ok(statement)
}

fn tokens_of(dialect: Dialect, sql: &str) -> Result<Vec<TokenWithSpan>, Refusal> {
    if sql.len() > MAX_STATEMENT_BYTES {
        return Err(Refusal::new(
            RefusalKind::TooLong,
            format!("the statement has {} bytes, the most is {MAX_STATEMENT_BYTES}", sql.len()),
            "ask for less at once, or select the values with a subquery instead of listing them",
        ));
    }
    if sql.contains('\0') {
        return Err(Refusal::syntax("the statement has a NUL character", "leave the character out"));
    }
    // Such a comment is code for some servers, also inside of what others take for a comment or a string.
    if dialect == Dialect::Mysql && (sql.contains("/*!") || sql.contains("/*M!")) {
        return Err(Refusal::not_allowed("an executable comment `/*! */`", "leave the comment out"));
    }
    let tokens = Tokenizer::new(parser_dialect(dialect), sql).tokenize_with_location().map_err(|error| {
        Refusal::syntax(
            format!(
                "syntax error: {} at line {}, column {}",
                decapitalized(&error.message),
                error.location.line,
                error.location.column
            ),
            "check that every quote and comment is closed",
        )
    })?;
    check_tokens(dialect, sql, &tokens)?;
    Ok(tokens)
}

fn check_tokens(dialect: Dialect, sql: &str, tokens: &[TokenWithSpan]) -> Result<(), Refusal> {
    let (mut operators, mut depth, mut statements, mut in_statement) = (0_usize, 0_usize, 0_usize, false);
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) | Token::EOF => continue,
            Token::SemiColon => {
                in_statement = false;
                continue;
            }
            Token::Word(word) => {
                if word.quote_style.is_none() {
                    check_word(dialect, &word.value, token)?;
                }
                check_name(dialect, &word.value)?;
                operators +=
                    usize::from(word.quote_style.is_none() && word.keyword != sqlparser::keywords::Keyword::NoKeyword);
            }
            Token::Placeholder(name) => return Err(no_placeholder(name)),
            Token::Question if dialect != Dialect::Postgres => return Err(no_placeholder("?")),
            Token::Char(character) => {
                return Err(Refusal::syntax(
                    format!("syntax error: unexpected `{}`{}", character.escape_default(), at(token)),
                    "only ASCII characters are allowed outside of quotes",
                ));
            }
            Token::HexStringLiteral(_) if dialect != Dialect::Mysql && starts_with_zero(sql, token) => {
                return Err(Refusal::not_allowed("a hexadecimal number", "write it as a decimal number"));
            }
            Token::LParen | Token::LBracket | Token::LBrace => {
                depth += 1;
                if depth > MAX_PARENTHESES {
                    return Err(too_deep());
                }
            }
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Comma | Token::Period | Token::Number(..) | Token::SingleQuotedString(_) => {}
            _ => operators += 1,
        }
        if !in_statement {
            in_statement = true;
            statements += 1;
        }
    }
    if operators > MAX_OPERATORS {
        return Err(Refusal::new(
            RefusalKind::TooLong,
            format!("the statement has {operators} operators and keywords, the most is {MAX_OPERATORS}"),
            "use `IN (…)` or a join instead of a chain of conditions",
        ));
    }
    match statements {
        0 => Err(Refusal::new(RefusalKind::NotOneStatement, "there is no statement", "write one statement")),
        1 => Ok(()),
        _ => Err(Refusal::new(
            RefusalKind::NotOneStatement,
            format!("there are {statements} statements"),
            "write one statement, and ask again for the next one",
        )),
    }
}

/// Refuses a name that the database could take for another one.
pub(super) fn check_name(dialect: Dialect, name: &str) -> Result<(), Refusal> {
    // PostgreSQL cuts a longer name, and then it may be another one's.
    if dialect == Dialect::Postgres && name.len() > MAX_POSTGRES_NAME_BYTES {
        return Err(Refusal::new(
            RefusalKind::TooLong,
            format!("the name `{}` is too long", shortened(name)),
            format!("use names of at most {MAX_POSTGRES_NAME_BYTES} bytes"),
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(Refusal::syntax("a name has a control character", "leave the character out"));
    }
    Ok(())
}

/// Letters of other scripts are easily taken for ASCII ones, by people and by servers that convert; in quotes they are
/// compared exactly.
fn check_word(dialect: Dialect, word: &str, token: &TokenWithSpan) -> Result<(), Refusal> {
    if dialect == Dialect::Mysql && word.starts_with('@') {
        return Err(Refusal::not_allowed(format!("the variable `{}`", shortened(word)), "write the value itself"));
    }
    if word.is_ascii() {
        return Ok(());
    }
    let quote = if dialect == Dialect::Mysql { '`' } else { '"' };
    Err(Refusal::syntax(
        format!("`{}`{} has letters other than ASCII outside of quotes", shortened(word), at(token)),
        format!("if it is the name of a table or column, write it in quotes: {quote}{}{quote}", shortened(word)),
    ))
}

fn no_placeholder(name: &str) -> Refusal {
    Refusal::not_allowed(format!("the placeholder `{}`", shortened(name)), "write the value itself")
}

fn starts_with_zero(sql: &str, token: &TokenWithSpan) -> bool {
    let start = token.span.start;
    let line = usize::try_from(start.line).ok().and_then(|line| sql.split('\n').nth(line.saturating_sub(1)));
    let column = usize::try_from(start.column).unwrap_or(usize::MAX);
    // A place that is not found is treated as a number: refused rather than misread.
    line.and_then(|line| line.chars().nth(column.saturating_sub(1))).is_none_or(|first| !matches!(first, 'x' | 'X'))
}

fn not_parsed(dialect: Dialect, error: &ParserError) -> Refusal {
    match error {
        ParserError::RecursionLimitExceeded => too_deep(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => Refusal::syntax(
            format!("syntax error: {}", shortened(&decapitalized(message))),
            format!("write one {dialect} statement"),
        ),
    }
}

fn too_deep() -> Refusal {
    Refusal::new(
        RefusalKind::TooLong,
        "the statement is nested too deeply",
        "name parts of it with `WITH name AS (…)`, or use `IN (…)` instead of nested conditions",
    )
}

fn at(token: &TokenWithSpan) -> String {
    let start = token.span.start;
    if start.line == 0 { String::new() } else { format!(" at line {}, column {}", start.line, start.column) }
}

fn decapitalized(message: &str) -> String {
    let mut characters = message.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// At most 200 characters of a text that a stranger wrote, on one line.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if text.chars().nth(200).is_some() {
        short.push('…');
    }
    short
}
