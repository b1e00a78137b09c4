//! OpenAPI 2.0 (Swagger), 3.0 and 3.1.
//!
//! Works on the JSON itself instead of typed documents: real descriptions break the standard in many places, and one
//! wrong operation must not hide the others.

mod body;
mod entities;
mod jobs;
mod operation;
mod parameters;
mod responses;
mod security;
mod servers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::schema::{Dialect, Schemas};
use crate::{ImportError, ImportOptions, Imported, ImportedSubtool, LeftOut, describe, names};
use operation::Operation;

const METHODS: [&str; 8] = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];

pub(crate) fn recognizes(document: &Document) -> bool {
    let data = &document.data;
    (data.get("openapi").is_some() || data.get("swagger").is_some()) && data.is_object()
}

/// What all operations of a description share.
pub(crate) struct OpenApi<'a> {
    pub(crate) data: &'a Value,
    pub(crate) schemas: Schemas<'a>,
    pub(crate) options: &'a ImportOptions,
    pub(crate) pack: String,
    pub(crate) is_swagger: bool,
    pub(crate) server: String,
    boilerplate: describe::Boilerplate,
    /// Operation ids that several operations have.
    repeated_ids: BTreeSet<&'a str>,
    /// The references to the schemas of whole entities.
    entities: Rc<HashSet<String>>,
}

pub(crate) fn import(document: &Document, options: &ImportOptions) -> Result<Imported, ImportError> {
    let data = &document.data;
    let is_swagger = data.get("openapi").is_none();
    let version = ["openapi", "swagger"].iter().find_map(|key| match data.get(*key) {
        Some(Value::String(version)) => Some(version.clone()),
        Some(Value::Number(version)) => Some(version.to_string()),
        _ => None,
    });
    let version = version.unwrap_or_default();
    if !["2.", "3."].iter().any(|known| version.starts_with(known)) && version != "2" && version != "3" {
        return Err(ImportError::new(format!("OpenAPI {version} is unknown; known are 2.0, 3.0 and 3.1")));
    }
    let title = data["info"]["title"].as_str().unwrap_or_default();
    let word = word(title, document);
    let pack = options.pack.clone().unwrap_or_else(|| word.clone());
    let (server, mut notes) = servers::of_description(data, is_swagger, document, options);
    let mut imported = Imported {
        id: title.to_owned(),
        word,
        version: data["info"]["version"].as_str().map(str::to_owned),
        ..Imported::default()
    };
    let texts = describe::FieldTexts::default();
    let api = OpenApi {
        data,
        schemas: Schemas { root: data, dialect: Dialect::OpenApi, full: options.full, texts: &texts },
        options,
        pack,
        is_swagger,
        server,
        boilerplate: describe::Boilerplate::of(
            operations(data).filter_map(|operation| operation["description"].as_str()),
        ),
        repeated_ids: repeated_ids(data),
        entities: Rc::new(entities::of(data)),
    };
    let mut secrets = BTreeMap::new();
    let mut operations = Vec::new();
    for (path, item) in data["paths"].as_object().into_iter().flatten() {
        let Some(item) = api.schemas.resolve(item) else {
            imported.found += 1;
            imported.left_out.push(LeftOut::new(path.as_str(), "its path refers to something that does not exist"));
            continue;
        };
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            imported.found += 1;
            let what = format!("{} {path}", method.to_uppercase());
            match Operation::read(&api, path, item, method, operation) {
                Ok(operation) => {
                    for (secret, about) in &operation.secrets {
                        secrets.insert(secret.clone(), about.clone());
                    }
                    let simplified = operation.simplified.iter();
                    imported.simplified.extend(simplified.map(|reason| LeftOut::new(what.as_str(), reason.as_str())));
                    operations.push((what, operation));
                }
                Err(reason) => imported.left_out.push(LeftOut::new(what, reason)),
            }
        }
    }
    let webhooks = data["webhooks"].as_object().map_or(0, Map::len);
    if webhooks > 0 {
        notes.push(format!("{webhooks} webhooks are not imported: they are requests that the service sends"));
    }
    let auth = commonest_auth(&operations);
    let mut names = names::Names::new(options.max_name_chars);
    for (what, operation) in operations {
        let name = names.make(&api.pack, &operation.name);
        let group = operation.group.clone();
        let definition = operation.definition(&api, auth.as_ref());
        imported.subtools.push(ImportedSubtool { name, what, group, definition });
    }
    let mut http = json!({"base_url": api.server});
    if let Some(auth) = &auth {
        http["auth"] = auth.clone();
    }
    let defaults = json!({"run": {"http": http}, "tags": [api.pack]});
    imported.defaults = defaults.as_object().cloned().unwrap_or_default();
    notes.extend(
        secrets
            .iter()
            .map(|(name, about)| format!("store {about} as the secret `{name}`: agent-magic-tool secret set {name}")),
    );
    if secrets.is_empty() && !imported.subtools.is_empty() {
        notes.push(
            "the description names no authentication; if the API needs one, add `auth` to `$defaults`".to_owned(),
        );
    }
    let searches = imported.subtools.iter().filter(|subtool| is_search(subtool)).count();
    if searches > 0 {
        notes.push(format!(
            "{searches} POST operations look like searches; where they change nothing, add \"annotations\": \
             {{\"readOnlyHint\": true}}"
        ));
    }
    imported.notes = notes;
    imported.secrets = secrets.into_keys().collect();
    Ok(imported)
}

/// The word that the API goes by: of its title or, if that says nothing, of where it came from.
fn word(title: &str, document: &Document) -> String {
    let of_title = names::pack(title.split([':', '(', '|', '+']).next().unwrap_or_default(), 2);
    if !["imported", "api", "rest"].contains(&of_title.as_str()) {
        return of_title;
    }
    if let Some(url) = document.url() {
        let host = url.host_str().unwrap_or_default();
        let labels: Vec<_> = host.split('.').filter(|label| !["api", "www", "docs"].contains(label)).collect();
        names::pack(labels.first().copied().unwrap_or(host), 2)
    } else {
        let name = document.from.rsplit('/').next().unwrap_or_default();
        names::pack(name.split('.').next().unwrap_or_default(), 2)
    }
}

/// The operations of a description that lie where they should.
fn operations(data: &Value) -> impl Iterator<Item = &Value> {
    let items = data["paths"].as_object().into_iter().flatten();
    items.flat_map(|(_, item)| METHODS.iter().filter_map(|method| item.get(*method)))
}

fn repeated_ids(data: &Value) -> BTreeSet<&str> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for id in operations(data).filter_map(|operation| operation["operationId"].as_str()) {
        *counts.entry(id).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(id, _)| id).collect()
}

/// The authentication that most operations have: it goes into `$defaults`.
fn commonest_auth(operations: &[(String, Operation)]) -> Option<Value> {
    let mut counts: Vec<(Option<&Value>, usize)> = Vec::new();
    for (_, operation) in operations {
        let auth = operation.request.auth.as_ref();
        match counts.iter_mut().find(|(known, _)| *known == auth) {
            Some((_, count)) => *count += 1,
            None => counts.push((auth, 1)),
        }
    }
    counts
        .into_iter()
        .filter(|(auth, _)| auth.is_some())
        .max_by_key(|(_, count)| *count)
        .and_then(|(auth, _)| auth.cloned())
}

/// Whether a POST looks as if it only read.
fn is_search(subtool: &ImportedSubtool) -> bool {
    let words = names::words(&subtool.name);
    subtool.what.starts_with("POST ")
        && words.iter().any(|word| ["search", "query", "lookup", "find"].contains(&word.as_str()))
}
