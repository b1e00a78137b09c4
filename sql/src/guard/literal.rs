//! Literals, and the words in expressions that are not names: units of time, character sets and collations.

use sqlparser::ast::{DateTimeField, Ident, ObjectName, ObjectNamePart, Value, ValueWithSpan};

use super::print::keep_as_it_is;
use super::refusal::Refusal;
use super::text::shortened;

/// Introducers of character sets that MySQL's own view texts and tools write.
const INTRODUCERS: &[&str] = &["_utf8mb4", "_utf8mb3", "_utf8", "_latin1", "_ascii", "_binary"];
const CHARSETS: &[&str] = &["utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary"];

/// A literal, and not a variable or placeholder.
pub(super) fn literal(value: &ValueWithSpan) -> Result<(), Refusal> {
    if let Value::Placeholder(name) = &value.value {
        return Err(Refusal::not_allowed(
            format!("the placeholder or variable `{}`", shortened(name)),
            "write the value itself",
        ));
    }
    Ok(())
}

/// A unit of time; other words must look like one, because they are printed as they are.
pub(super) fn date_field(field: &mut DateTimeField) -> Result<(), Refusal> {
    let (DateTimeField::Custom(ident) | DateTimeField::Week(Some(ident))) = field else { return Ok(()) };
    let is_word = ident.value.chars().all(|character| character.is_ascii_alphabetic() || character == '_');
    if is_word && !ident.value.is_empty() && matches!(ident.quote_style, None | Some('\'')) {
        keep_as_it_is(ident);
        return Ok(());
    }
    Err(Refusal::not_allowed(format!("the unit of time `{}`", shortened(&ident.value)), "use a unit such as `month`"))
}

pub(super) fn introducer(prefix: &mut Ident) -> Result<(), Refusal> {
    if prefix.quote_style.is_none() && INTRODUCERS.contains(&prefix.value.to_ascii_lowercase().as_str()) {
        keep_as_it_is(prefix);
        return Ok(());
    }
    Err(Refusal::not_allowed(format!("the prefix `{}`", shortened(&prefix.value)), "leave out the prefix"))
}

pub(super) fn check_charset(name: &mut ObjectName) -> Result<(), Refusal> {
    if let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice()
        && ident.quote_style.is_none()
        && CHARSETS.contains(&ident.value.to_ascii_lowercase().as_str())
    {
        keep_as_it_is(ident);
        return Ok(());
    }
    Err(Refusal::not_allowed(
        format!("the character set `{}`", shortened(&name.to_string())),
        format!("use one of {}", CHARSETS.join(", ")),
    ))
}

pub(super) fn check_collation(collation: &ObjectName) -> Result<(), Refusal> {
    if collation.0.iter().all(|part| matches!(part, ObjectNamePart::Identifier(_))) && collation.0.len() <= 2 {
        return Ok(());
    }
    Err(Refusal::not_allowed("this collation", "leave it out"))
}
