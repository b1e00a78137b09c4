//! Lint: warns about definitions that load but are hard to find or easy to misuse.

use serde::Serialize;
use serde_json::{Map, Value};

use super::listing::ListingEntry;
use super::{Catalog, Subtool, search};

/// A description with fewer words hardly says when to use a subtool.
const MIN_WORDS: usize = 4;
/// Two subtools tie if the lower score is at least this share of the higher one.
const MIN_TIE_RATIO: f64 = 0.98;

/// One finding about the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub code: &'static str,
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subtool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It could not be loaded.
    Error,
    Warning,
}

/// Returns the load problems of `catalog` as errors, and warnings about its subtools.
pub fn lint(catalog: &Catalog) -> Vec<Finding> {
    let mut findings: Vec<_> = catalog
        .problems()
        .iter()
        .map(|problem| Finding {
            level: Level::Error,
            code: "not-loaded",
            file: problem.file.clone(),
            subtool: problem.subtool.clone(),
            place: problem.place.clone(),
            message: problem.message.clone(),
        })
        .collect();
    for subtool in catalog.subtools() {
        description(subtool, &mut findings);
        parameters(subtool, &mut findings);
    }
    ties(catalog, &mut findings);
    findings
}

fn warning(subtool: &Subtool, code: &'static str, place: &str, message: String) -> Finding {
    Finding {
        level: Level::Warning,
        code,
        file: subtool.origin.to_string(),
        subtool: Some(subtool.name.to_string()),
        place: Some(place.to_owned()),
        message,
    }
}

fn description(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let text = &subtool.definition.description;
    let words = text.split_whitespace().count();
    let is_spaced = text.is_ascii();
    if is_spaced && words < MIN_WORDS {
        let message =
            format!("{words} words do not say when to use it; use the words that a user who needs it would use");
        findings.push(warning(subtool, "short-description", "description", message));
    }
}

fn parameters(subtool: &Subtool, findings: &mut Vec<Finding>) {
    let input = Value::Object(subtool.definition.input.clone());
    let Some(properties) = input["properties"].as_object() else { return };
    let required: Vec<_> = input["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in properties {
        let place = format!("input.properties.{name}");
        if required.contains(&name.as_str()) && property.get("default").is_some() {
            let message = format!("`{name}` is required and has a default; a default makes it optional");
            findings.push(warning(subtool, "required-with-default", &place, message));
        }
        if property.get("description").is_none() && property.get("enum").is_none() {
            findings.push(warning(subtool, "undescribed-parameter", &place, format!("`{name}` has no description")));
        }
    }
    for name in required.iter().filter(|name| !properties.contains_key(**name)) {
        let message = format!("`{name}` is required but not declared in `properties`");
        findings.push(warning(subtool, "unknown-required", "input.required", message));
    }
}

/// Warns about two subtools that the description of one finds equally well, if neither says how it differs.
fn ties(catalog: &Catalog, findings: &mut Vec<Finding>) {
    let subtools: Vec<_> = catalog.subtools().collect();
    let entries: Vec<_> = subtools
        .iter()
        .map(|subtool| ListingEntry::new(subtool.name.as_str(), &subtool.definition.description, &Map::new(), &[]))
        .collect();
    for (index, entry) in entries.iter().enumerate() {
        let hits = search::search(&entry.description, &entries);
        let Some(own) = hits.iter().find(|hit| hit.index == index).map(|hit| hit.score) else { continue };
        for rival in hits.iter().filter(|hit| hit.index > index && hit.score >= own * MIN_TIE_RATIO) {
            let (one, other) = (subtools[index], subtools[rival.index]);
            if contrasts(one, other) || contrasts(other, one) {
                continue;
            }
            let message = format!(
                "its description finds `{}` just as well; say in one of the two what it is not for, like `NOT {}`",
                other.name, other.name
            );
            findings.push(warning(one, "tie", "description", message));
        }
    }
}

fn contrasts(one: &Subtool, other: &Subtool) -> bool {
    one.definition.description.contains(&format!("NOT {}", other.name))
}
