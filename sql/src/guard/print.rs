//! From the checked syntax tree back to text.
//!
//! Names and literals are written by [`super::dialects`]; the parser's printer only sets words and signs between them.
//! What was printed is parsed again and must give the same tree, so that no fault of the printer changes a meaning.

use std::ops::ControlFlow;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Statement, Value, ValueWithSpan, VisitMut as _, VisitorMut};
use sqlparser::tokenizer::{Location, Span};

use super::dialects::{written_name, written_value};
use super::refusal::Refusal;
use super::text::{check_name, parse_again};
use crate::dialect::Dialect;
use crate::schema::TableName;

/// Marks a name that is printed as it is: a function, a type, a keyword. Spans do not count when trees are compared.
const AS_IT_IS: Span =
    Span { start: Location { line: u64::MAX, column: u64::MAX }, end: Location { line: u64::MAX, column: u64::MAX } };

/// Marks a word that was found on a list, so that it is printed without quotes.
pub(super) fn keep_as_it_is(ident: &mut Ident) {
    ident.span = AS_IT_IS;
}

/// Prints each part of a checked function's name without quotes.
pub(super) fn keep_name(name: &mut ObjectName) {
    for part in &mut name.0 {
        if let ObjectNamePart::Identifier(ident) = part {
            ident.quote_style = None;
            keep_as_it_is(ident);
        }
    }
}

/// Returns a name with which the database finds exactly `name`.
pub(super) fn exact(name: &str) -> Ident {
    // Every quote of the dialect does: the name is written anew, and only one without quotes would be folded.
    Ident::with_quote('"', name)
}

/// Returns a name with which the database finds exactly this table, whatever the search path is.
pub(super) fn full_name(name: &TableName) -> ObjectName {
    ObjectName::from(vec![exact(&name.schema), exact(&name.name)])
}

/// Prints a checked statement.
pub(super) fn print(dialect: Dialect, statement: &Statement) -> Result<String, Refusal> {
    let mut written = statement.clone();
    if let ControlFlow::Break(refusal) = written.visit(&mut Writer { dialect, again: false }) {
        return Err(refusal);
    }
    let text = written.to_string();
    let mut read = parse_again(dialect, &text).ok_or_else(changed)?;
    match read.visit(&mut Writer { dialect, again: true }) {
        ControlFlow::Continue(()) if read == written => Ok(text),
        _ => Err(changed()),
    }
}

fn changed() -> Refusal {
    Refusal::syntax(
        "the statement cannot be written in a way that surely keeps its meaning",
        "write it more simply: parentheses around signs and nested conditions, plain strings in single quotes",
    )
}

struct Writer {
    dialect: Dialect,
    /// Reads what was printed: names without quotes are final then.
    again: bool,
}

impl VisitorMut for Writer {
    type Break = Refusal;

    fn pre_visit_ident(&mut self, ident: &mut Ident) -> ControlFlow<Refusal> {
        let is_final = if self.again { ident.quote_style.is_none() } else { ident.span == AS_IT_IS };
        if !is_final {
            let name = super::dialects::folded(self.dialect, ident);
            // The parser also takes a string for a name, as an alias.
            if let Err(refusal) = check_name(self.dialect, &name) {
                return ControlFlow::Break(refusal);
            }
            *ident = Ident::new(written_name(self.dialect, &name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Refusal> {
        let Some(written) = written_value(self.dialect, &value.value) else {
            return ControlFlow::Break(Refusal::syntax(
                format!("the literal `{}` cannot be read without doubt", super::text::shortened(&value.to_string())),
                "write it as a plain string in single quotes or as a decimal number",
            ));
        };
        if !matches!(value.value, Value::Number(..)) {
            value.value = Value::Placeholder(written);
        }
        ControlFlow::Continue(())
    }
}
