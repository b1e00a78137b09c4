//! Descriptions: too short or too long, beginning with nothing, or naming other subtools in prose.

use std::sync::LazyLock;

use catalog::{Catalog, Subtool};
use ground::task::name::SubtoolName;
use protocol::nearest::{did_you_mean, nearest};
use protocol::wording::inflected;
use regex::Regex;

use super::{Finding, warning};

/// A description with fewer words hardly says when to use a subtool.
const MIN_WORDS: usize = 4;

/// A longer one costs a model more than it tells: what a parameter means belongs to the parameter.
const MAX_CHARS: usize = 800;

/// Words with which a description says nothing yet. A model, and a search, look at the first words.
const EMPTY_BEGINNINGS: [&str; 12] = [
    "this tool",
    "this endpoint",
    "this api",
    "this operation",
    "this method",
    "this function",
    "this subtool",
    "use this",
    "a tool",
    "an endpoint",
    "api endpoint",
    "endpoint to",
];

/// A verb, and the name of a subtool after it. A name has at least two parts, unlike plain words.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    let name = r"`?(?<name>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+)`?";
    Regex::new(&format!(
        r"(?<verb>\b(?i:use|call|run|try|see|needs?|requires?|after|via|from|with)|\bNOT)\s+(?:the\s+)?{name}(?<rest>[^.;]{{0,40}})"
    ))
    .expect("a valid pattern")
});

pub(super) fn check(subtool: &Subtool, catalog: &Catalog, findings: &mut Vec<Finding>) {
    let text = &subtool.definition.description;
    let words = text.split_whitespace().count();
    let is_spaced = text.is_ascii();
    if is_spaced && words < MIN_WORDS {
        let words = inflected(words, "word does", "words do");
        let message = format!("{words} not say when to use it; use the words that a user who needs it would use");
        findings.push(warning(subtool, "short-description", "description", message));
    }
    let characters = text.chars().count();
    if characters > MAX_CHARS {
        let message = format!(
            "{characters} characters cost a model more than they tell it, {MAX_CHARS} are enough; what a parameter means \
             belongs to its own description"
        );
        findings.push(warning(subtool, "long-description", "description", message));
    }
    let beginning = text.trim_start().to_lowercase();
    if let Some(empty) = EMPTY_BEGINNINGS.iter().find(|empty| beginning.starts_with(**empty)) {
        let message = format!("it begins with `{empty}`; begin with what a user wants: a verb and a thing");
        findings.push(warning(subtool, "empty-beginning", "description", message));
    }
    for found in NAMED.captures_iter(text) {
        findings.extend(named_subtool(subtool, catalog, &found["verb"], &found["name"], &found["rest"]));
    }
}

/// What is wrong with a description that names the subtool `name` after `verb`.
fn named_subtool(subtool: &Subtool, catalog: &Catalog, verb: &str, name: &str, rest: &str) -> Option<Finding> {
    let definition = &subtool.definition;
    if catalog.get(name).is_some() {
        let comes_first = rest.split_whitespace().any(|word| matches!(word, "first" | "before" | "beforehand"))
            || matches!(verb.to_lowercase().as_str(), "after" | "need" | "needs" | "require" | "requires");
        let is_declared = definition.depends_on.iter().any(|other| other.as_str() == name);
        let message = format!("it says in prose that `{name}` comes first; add \"depends_on\": [\"{name}\"]");
        return (comes_first && !is_declared).then(|| warning(subtool, "prose-prerequisite", "description", message));
    }
    let is_more_than_prose = matches!(verb.to_lowercase().as_str(), "use" | "call" | "run" | "try" | "not");
    let is_a_field = serde_json::to_string(&definition.input).is_ok_and(|input| input.contains(name))
        || definition.result.as_ref().and_then(|shape| shape.select.as_deref()).is_some_and(|it| it.contains(name));
    if !is_more_than_prose || is_a_field {
        return None;
    }
    let names = catalog.names().map(SubtoolName::as_str).filter(|it| *it != subtool.name.as_str());
    let hint = did_you_mean(nearest(name, names, 1)).map(|hint| format!("; {hint}"));
    let message = format!("it names `{name}`, but there is no such subtool{}", hint.unwrap_or_default());
    Some(warning(subtool, "unknown-subtool", "description", message))
}
