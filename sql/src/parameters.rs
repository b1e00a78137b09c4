//! Named parameters of a statement that a developer declared: `:name` becomes the dialect's own placeholder.
//!
//! The statement is trusted and sent as it was written but for its parameters; the values are always bound, never
//! written into the text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use sqlparser::ast::{Query, Select, Statement};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::Dialect;
use crate::guard::{Visitor, on_a_deep_stack, parse_one, parser_dialect, walk};

/// Begins the text that stands for a parameter.
const MARK: &str = "value of parameter ";

/// A declared statement with named parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredStatement {
    dialect: Dialect,
    parts: Vec<Part>,
    pub kind: DeclaredKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Parameter(String),
}

/// What a declared statement does, as far as its text tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeclaredKind {
    /// A query without a part that writes. Functions that it calls may still write.
    Read,
    Write,
    /// The parser does not know the statement. Treat it as a write.
    Unknown,
}

/// What a parameter stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterValue<T> {
    One(T),
    /// The values of `IN (:name)`.
    List(Vec<T>),
}

/// A statement with the dialect's placeholders and the values in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundStatement<T> {
    pub sql: String,
    pub values: Vec<T>,
}

/// Why a declared statement cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("the statement cannot be read: {0}")]
    Text(String),
    #[error("there are {0} statements, declare one")]
    NotOneStatement(usize),
    #[error("the statement has the placeholder `{0}`; write `:name` for each parameter")]
    Placeholder(String),
    #[error("the statement uses `:{0}`, which is not declared")]
    Unknown(String),
    #[error("the parameter `{0}` is declared, but the statement does not use `:{0}`")]
    Unused(String),
    #[error("the parameter `{0}` has no value")]
    NoValue(String),
    #[error("the parameter `{0}` is a list; write it in parentheses of its own: `IN (:{0})`")]
    ListOutsideOfParentheses(String),
}

impl DeclaredStatement {
    /// Reads a statement and checks that its parameters are exactly the declared ones.
    pub fn new<'n>(
        dialect: Dialect,
        sql: &str,
        declared: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, ParameterError> {
        let statement = Self { dialect, parts: parts_of(dialect, sql)?, kind: kind_of(dialect, sql) };
        let declared: BTreeSet<&str> = declared.into_iter().collect();
        let used: BTreeSet<&str> = statement.names().collect();
        if let Some(name) = used.difference(&declared).next() {
            return Err(ParameterError::Unknown((*name).to_owned()));
        }
        if let Some(name) = declared.difference(&used).next() {
            return Err(ParameterError::Unused((*name).to_owned()));
        }
        Ok(statement)
    }

    /// The statement with NULL in the place of each parameter: for looking at it, not for running it.
    pub fn with_nulls(&self) -> String {
        with_literals(&self.parts, " NULL ")
    }

    /// Like [`Self::with_nulls`], with a value for each parameter, so that it counts as given, by which [`Self::without_marks`] finds it again.
    pub fn with_marks(&self) -> String {
        let mark = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Parameter(name) => format!(" '{MARK}{name}' "),
        };
        self.parts.iter().map(mark).collect()
    }

    /// A part of a statement with marks, with its parameters again, and those that it has.
    pub fn without_marks(&self, marked: &str) -> (String, Vec<&str>) {
        let names: BTreeSet<&str> = self.names().collect();
        let mark = |name: &str| format!("'{MARK}{name}'");
        let text = names.iter().fold(marked.to_owned(), |text, name| text.replace(&mark(name), &format!(":{name}")));
        (text, names.into_iter().filter(|name| marked.contains(&mark(name))).collect())
    }

    /// The names of the parameters in the order in which the text has them, repeated ones too.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Parameter(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Puts placeholders in the place of the parameters.
    ///
    /// A list becomes as many placeholders as it has values; an empty one becomes `NULL`, with which both `IN` and
    /// `NOT IN` match nothing: a list that is empty by mistake must not delete every row.
    pub fn bind<T: Clone>(
        &self,
        value_of: impl Fn(&str) -> Option<ParameterValue<T>>,
    ) -> Result<BoundStatement<T>, ParameterError> {
        let mut bound = BoundStatement { sql: String::new(), values: Vec::new() };
        for (place, part) in self.parts.iter().enumerate() {
            match part {
                Part::Text(text) => bound.sql.push_str(text),
                Part::Parameter(name) => match value_of(name) {
                    None => return Err(ParameterError::NoValue(name.clone())),
                    Some(ParameterValue::One(value)) => self.push(&mut bound, value),
                    Some(ParameterValue::List(_)) if !self.is_in_parentheses(place) => {
                        return Err(ParameterError::ListOutsideOfParentheses(name.clone()));
                    }
                    Some(ParameterValue::List(values)) if values.is_empty() => {
                        bound.sql.push_str("NULL");
                    }
                    Some(ParameterValue::List(values)) => {
                        for (index, value) in values.into_iter().enumerate() {
                            if index > 0 {
                                bound.sql.push_str(", ");
                            }
                            self.push(&mut bound, value);
                        }
                    }
                },
            }
        }
        Ok(bound)
    }

    fn push<T>(&self, bound: &mut BoundStatement<T>, value: T) {
        bound.values.push(value);
        match self.dialect {
            Dialect::Postgres => {
                write!(bound.sql, "${}", bound.values.len()).expect("a string takes any text");
            }
            Dialect::Sqlite | Dialect::Mysql => bound.sql.push('?'),
        }
    }

    fn is_in_parentheses(&self, place: usize) -> bool {
        let text = |place: Option<usize>| match place.and_then(|place| self.parts.get(place)) {
            Some(Part::Text(text)) => Some(text.trim()),
            Some(Part::Parameter(_)) | None => None,
        };
        text(place.checked_sub(1)).is_some_and(|before| before.ends_with('('))
            && text(Some(place + 1)).is_some_and(|after| after.starts_with(')'))
    }
}

/// Splits a statement at its parameters with the dialect's tokenizer, which knows strings, comments and casts.
fn parts_of(dialect: Dialect, sql: &str) -> Result<Vec<Part>, ParameterError> {
    let tokens = Tokenizer::new(parser_dialect(dialect), sql)
        .tokenize_with_location()
        .map_err(|error| ParameterError::Text(error.to_string()))?;
    let places = Places::new(sql);
    let (mut parts, mut text_start, mut statements, mut in_statement) = (Vec::new(), 0, 0, false);
    let mut open: Vec<char> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::SemiColon => in_statement = false,
            Token::Whitespace(_) | Token::EOF => {}
            _ if !in_statement => {
                in_statement = true;
                statements += 1;
            }
            _ => {}
        }
        match &token.token {
            Token::LBracket => open.push('['),
            Token::LParen => open.push('('),
            Token::RBracket | Token::RParen => drop(open.pop()),
            Token::Placeholder(name) if !is_colon_name(name) => {
                return Err(ParameterError::Placeholder(name.clone()));
            }
            Token::Question if dialect != Dialect::Postgres => {
                return Err(ParameterError::Placeholder("?".to_owned()));
            }
            _ => {}
        }
        let Some((name, end)) = parameter_at(&tokens, index, open.last() == Some(&'[')) else { continue };
        let start = places.byte(token.span.start.line, token.span.start.column);
        let end = places.byte(end.span.end.line, end.span.end.column);
        parts.push(Part::Text(sql.get(text_start..start).unwrap_or_default().to_owned()));
        parts.push(Part::Parameter(name));
        text_start = end;
    }
    if statements != 1 {
        return Err(ParameterError::NotOneStatement(statements));
    }
    parts.push(Part::Text(sql.get(text_start..).unwrap_or_default().to_owned()));
    Ok(parts)
}

fn is_colon_name(placeholder: &str) -> bool {
    placeholder.strip_prefix(':').is_some_and(is_name)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Returns the parameter that begins at a token and its last token: one placeholder, or a colon and a word that touch.
/// In `a[1:n]` the colon makes a slice, unless what is before it cannot end the first bound.
fn parameter_at(tokens: &[TokenWithSpan], index: usize, in_brackets: bool) -> Option<(String, &TokenWithSpan)> {
    let token = tokens.get(index)?;
    if let Token::Placeholder(name) = &token.token {
        return Some((name.strip_prefix(':')?.to_owned(), token));
    }
    let next = tokens.get(index + 1)?;
    let Token::Word(word) = &next.token else { return None };
    let touches = token.span.end == next.span.start && token.token == Token::Colon;
    if !touches || word.quote_style.is_some() || !is_name(&word.value) {
        return None;
    }
    let before = tokens.iter().take(index).rev().find(|token| !matches!(token.token, Token::Whitespace(_)))?;
    let ends_a_bound = match &before.token {
        Token::Word(_) | Token::Number(..) | Token::RParen | Token::RBracket | Token::Placeholder(_) => true,
        // `a[:name]` is read as a parameter; a slice from the beginning is written `a[1:name]`.
        _ => false,
    };
    (!(in_brackets && ends_a_bound)).then(|| (word.value.clone(), next))
}

/// Where lines begin, to turn the tokenizer's places into bytes.
struct Places<'a> {
    lines: Vec<(usize, &'a str)>,
}

impl<'a> Places<'a> {
    fn new(sql: &'a str) -> Self {
        let mut start = 0;
        let lines = sql.split('\n').map(|line| {
            let begin = start;
            start += line.len() + 1;
            (begin, line)
        });
        Self { lines: lines.collect() }
    }

    fn byte(&self, line: u64, column: u64) -> usize {
        let index = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some((begin, text)) = self.lines.get(index(line)) else { return 0 };
        begin + text.char_indices().nth(index(column)).map_or(text.len(), |(byte, _)| byte)
    }
}

fn with_literals(parts: &[Part], literal: &str) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Parameter(_) => literal.to_owned(),
    };
    parts.iter().map(text).collect()
}

fn kind_of(dialect: Dialect, sql: &str) -> DeclaredKind {
    on_a_deep_stack(|| {
        // The tokens of a parameter are an expression only in some dialects, so a literal stands in for each.
        let Ok(parts) = parts_of(dialect, sql) else { return DeclaredKind::Unknown };
        match parse_one(dialect, &with_literals(&parts, " NULL ")) {
            Err(_) => DeclaredKind::Unknown,
            Ok(statement) => kind_of_statement(&statement),
        }
    })
}

fn kind_of_statement(statement: &Statement) -> DeclaredKind {
    match statement {
        Statement::Query(query) if walk(query, &mut WriteSearch).is_break() => DeclaredKind::Write,
        Statement::Query(_) => DeclaredKind::Read,
        Statement::Explain { analyze: false, options: None, statement, .. } => kind_of_statement(statement),
        Statement::ShowVariable { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ExplainTable { .. } => DeclaredKind::Read,
        _ => DeclaredKind::Write,
    }
}

/// Looks for a part of a query that writes or locks, however deep.
struct WriteSearch;

impl Visitor<()> for WriteSearch {
    fn visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if query.locks.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if select.into.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// A statement inside of a query is an insert, update, delete or merge.
    fn visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
