//! One operation: its request, and what a model is told about it.

use serde_json::{Map, Value, json};

use super::security::NeededSecrets;
use super::{OpenApi, body, parameters, responses, security, servers};
use crate::http::{Request, annotations};
use crate::schema::{Cleaned, DEFAULT_DEPTH, MAX_INPUT_BYTES};
use crate::{describe, names};

/// An operation that can be expressed.
pub(super) struct Operation {
    /// Words for its name.
    pub(super) name: String,
    pub(super) group: String,
    description: String,
    method: String,
    server: Option<String>,
    pub(super) request: Request,
    input: Value,
    tags: Vec<String>,
    pub(super) secrets: NeededSecrets,
    pub(super) simplified: Vec<String>,
}

impl Operation {
    /// Reads an operation, or says why it is left out.
    pub(super) fn read<'a>(
        api: &OpenApi<'a>,
        path: &str,
        item: &'a Value,
        method: &str,
        operation: &'a Value,
    ) -> Result<Self, String> {
        if !operation.is_object() {
            return Err("it is not an object".to_owned());
        }
        if operation["deprecated"] == true && !api.options.full {
            return Err("it is deprecated".to_owned());
        }
        let method = method.to_uppercase();
        if method == "TRACE" {
            return Err("the method TRACE is not sent".to_owned());
        }
        let mut depth = api.options.depth.unwrap_or(DEFAULT_DEPTH).max(1);
        let (mut request, secrets, simplified) = loop {
            let built = request(api, path, item, &method, operation, depth)?;
            if depth == 1 || built.0.input_bytes() <= MAX_INPUT_BYTES {
                break built;
            }
            depth -= 1;
        };
        let tags: Vec<String> =
            operation["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).map(tag).collect();
        let text = |key: &str| operation[key].as_str().or_else(|| item[key].as_str()).unwrap_or_default();
        let name = name(api, path, &method, operation, tags.first());
        let fallback = format!("{method} {path}");
        let input = request.input();
        Ok(Self {
            name,
            group: tags.first().cloned().unwrap_or_else(|| first_segment(path)),
            description: describe::subtool(text("summary"), text("description"), &fallback),
            server: servers::of_part(operation, &api.server).or_else(|| servers::of_part(item, &api.server)),
            method,
            request,
            input,
            tags,
            secrets,
            simplified,
        })
    }

    /// Its keys of discovery JSON. `auth` is in `$defaults`.
    pub(super) fn definition(mut self, api: &OpenApi<'_>, auth: Option<&Value>) -> Map<String, Value> {
        let own = self.request.auth.take();
        // What is the same as the default is left to it; an operation without authentication says so.
        self.request.auth = if own.as_ref() == auth { None } else { Some(own.unwrap_or(Value::Null)) };
        let is_idempotent = self.request.idempotency_header.is_some();
        let annotations = annotations(&self.method, is_idempotent);
        let mut definition = Map::new();
        definition.insert("description".to_owned(), self.description.into());
        definition.insert("input".to_owned(), self.input);
        if annotations != json!({}) {
            definition.insert("annotations".to_owned(), annotations);
        }
        let server = self.server.as_deref();
        definition.insert("run".to_owned(), json!({"http": self.request.http(&self.method, server)}));
        let mut tags = vec![api.pack.clone()];
        tags.extend(self.tags);
        tags.dedup();
        definition.insert("tags".to_owned(), tags.into());
        definition
    }
}

fn request<'a>(
    api: &OpenApi<'a>,
    path: &str,
    item: &'a Value,
    method: &str,
    operation: &'a Value,
    depth: usize,
) -> Result<(Request, NeededSecrets, Vec<String>), String> {
    let (mut request, mut state, mut simplified) = (Request::default(), Cleaned::with_depth(depth), Vec::new());
    let mut secrets = security::apply(api, operation, &mut request, &mut simplified);
    let parameters = parameters::of(api, item, operation, &mut simplified);
    parameters::path(api, path, &parameters, &mut request, &mut state)?;
    parameters::others(api, &parameters, &mut request, &mut state, &mut simplified, &mut secrets)?;
    if !matches!(method, "GET" | "HEAD") {
        body::apply(api, item, operation, &mut request, &mut state, &mut simplified)?;
    } else if operation.get("requestBody").is_some() {
        simplified.push(format!("a {method} request is sent without a body"));
    }
    if method != "POST" && method != "PATCH" {
        request.idempotency_header = None;
    }
    responses::apply(api, method, operation, &mut request);
    simplified.extend(state.loosened);
    simplified.sort();
    simplified.dedup();
    Ok((request, secrets, simplified))
}

/// A tag as a word: `Pull Requests` becomes `pull-requests`.
fn tag(text: &str) -> String {
    names::words(text).join("-")
}

fn first_segment(path: &str) -> String {
    let is_telling = |segment: &&str| {
        let is_version = segment.starts_with('v') && segment[1..].starts_with(|it: char| it.is_ascii_digit());
        !segment.is_empty() && !segment.starts_with('{') && *segment != "api" && !is_version
    };
    tag(path.split('/').find(is_telling).unwrap_or_default())
}

/// Words for the name: of the operation's id or, if it has none of its own, of its method and path.
fn name(api: &OpenApi<'_>, path: &str, method: &str, operation: &Value, tag: Option<&String>) -> String {
    let id = operation["operationId"].as_str().map(str::trim).filter(|id| !id.is_empty());
    match id.map(|id| (id, names::words(id))) {
        // An id that was made of the path repeats it in full; words like `v1` tell nothing apart.
        Some((id, words)) if !words.is_empty() && !api.repeated_ids.contains(id) && !is_made_of_path(&words, path) => {
            match tag {
                Some(tag) if words.len() == 1 => format!("{tag} {id}"),
                _ => id.to_owned(),
            }
        }
        _ => of_path(method, path),
    }
}

/// Whether the words of an operation's id are those of its path, and little else.
fn is_made_of_path(id: &[String], path: &str) -> bool {
    let segments: Vec<String> = path.split('/').filter(|it| !it.is_empty()).flat_map(names::words).collect();
    let literal = path.split('/').filter(|it| !it.is_empty() && !it.starts_with('{')).count();
    literal >= 2 && segments.len() >= 3 && segments.iter().all(|word| id.contains(word)) && id.len() >= segments.len()
}

/// `GET /users/{id}/keys` becomes `users keys list`-like words: `get users keys by id`.
fn of_path(method: &str, path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let is_version = |segment: &str| segment.len() <= 3 && segment.starts_with(['v', 'V']);
    let mut words = vec![match method {
        "POST" => "create".to_owned(),
        "PUT" => "set".to_owned(),
        "PATCH" => "update".to_owned(),
        other => other.to_lowercase(),
    }];
    words.extend(segments.iter().filter(|it| !it.starts_with('{') && !is_version(it)).map(|it| (*it).to_owned()));
    if let Some(last) = segments.last().filter(|segment| segment.starts_with('{')) {
        words.push(format!("by {}", last.trim_matches(['{', '}'])));
    }
    words.join(" ")
}
