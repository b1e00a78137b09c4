//! One operation: its request, and what a model is told about it.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::security::NeededSecrets;
use super::{OpenApi, body, entities, jobs, parameters, responses, security, servers};
use crate::http::{Request, annotations, dry_run};
use crate::schema::{Cleaned, DEFAULT_DEPTH, MAX_INPUT_BYTES};
use crate::{describe, names};

/// Words at the end of a path that say what a POST to it does.
const VERBS: [&str; 26] = [
    "activate", "add", "apply", "approve", "assign", "cancel", "check", "clone", "copy", "delete", "export", "find",
    "generate", "import", "move", "query", "refund", "remove", "reset", "run", "search", "send", "start", "stop",
    "sync", "validate",
];

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
            let mut state = Cleaned::with_depth(depth);
            let built = request(api, path, item, &method, operation, &mut state)?;
            if depth == 1 || !state.is_too_large() && built.0.input_bytes() <= MAX_INPUT_BYTES {
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
            description: describe::subtool(text("summary"), text("description"), &fallback, &api.boilerplate),
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
        let dry_run = dry_run(&self.method, &self.input);
        definition.insert("description".to_owned(), self.description.into());
        definition.insert("input".to_owned(), self.input);
        if annotations != json!({}) {
            definition.insert("annotations".to_owned(), annotations);
        }
        if self.request.poll.is_some() {
            definition.insert("timeout".to_owned(), jobs::TIMEOUT.into());
        }
        let server = self.server.as_deref();
        definition.insert("run".to_owned(), json!({"http": self.request.http(&self.method, server)}));
        definition.extend(dry_run.map(|shown| ("dry_run".to_owned(), shown)));
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
    state: &mut Cleaned,
) -> Result<(Request, NeededSecrets, Vec<String>), String> {
    let (mut request, mut simplified) = (Request::default(), Vec::new());
    let mut secrets = security::apply(api, operation, &mut request, &mut simplified);
    let parameters = parameters::of(api, item, operation, &mut simplified);
    parameters::path(api, path, &parameters, &mut request, state)?;
    parameters::others(api, &parameters, &mut request, state, &mut simplified, &mut secrets)?;
    if !matches!(method, "GET" | "HEAD") {
        if method == "PATCH" {
            state.entities = Some(Rc::clone(&api.entities));
            state.is_partial = entities::is_written_out(api, path, item, operation);
        }
        body::apply(api, item, operation, &mut request, state, &mut simplified)?;
    } else if operation.get("requestBody").is_some() {
        simplified.push(format!("a {method} request is sent without a body"));
    }
    if method != "POST" && method != "PATCH" {
        request.idempotency_header = None;
    }
    responses::apply(api, method, operation, &mut request);
    jobs::apply(api, operation, &mut request);
    request.check()?;
    simplified.extend(std::mem::take(&mut state.loosened));
    simplified.sort();
    simplified.dedup();
    Ok((request, secrets, simplified))
}

/// A tag as a word: `Pull Requests` becomes `pull-requests`, and of a path the first segment is taken.
fn tag(text: &str) -> String {
    let text = if text.contains('/') { text.split('/').find(|it| !it.is_empty()).unwrap_or_default() } else { text };
    names::words(text).join("-")
}

fn first_segment(path: &str) -> String {
    let is_telling =
        |segment: &&str| !segment.is_empty() && !segment.starts_with('{') && *segment != "api" && !is_version(segment);
    tag(path.split('/').find(is_telling).unwrap_or_default())
}

/// Words for the name: of the operation's id or, if it has none of its own, of its method and path.
fn name(api: &OpenApi<'_>, path: &str, method: &str, operation: &Value, tag: Option<&String>) -> String {
    let id = operation["operationId"].as_str().map(str::trim).unwrap_or_default();
    let mut words = names::words(id);
    // The version of a path tells nothing apart.
    words.retain(|word| !is_version(word));
    if words.is_empty() || api.repeated_ids.contains(id) || is_made_of_path(&words, path) {
        return of_path(method, path);
    }
    match tag {
        Some(tag) if words.len() == 1 => format!("{tag} {}", words[0]),
        _ => words.join(" "),
    }
}

fn is_version(word: &str) -> bool {
    let digits = word.strip_prefix(['v', 'V']).unwrap_or_default();
    !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether an operation's id was made of its method and path.
fn is_made_of_path(id: &[String], path: &str) -> bool {
    let segments = || path.split('/').filter(|segment| !segment.is_empty() && !is_version(segment));
    if segments().count() < 2 {
        return false;
    }
    let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let whole: String = segments().map(letters).collect();
    let id = id.concat();
    let without_method = ["get", "post", "put", "patch", "delete"]
        .iter()
        .find_map(|method| id.strip_prefix(method).or_else(|| id.strip_suffix(method)).filter(|rest| !rest.is_empty()));
    without_method == Some(whole.as_str())
}

/// `GET /users/{id}/keys` becomes `users keys list`-like words: `get users keys by id`.
fn of_path(method: &str, path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let last = segments.iter().rfind(|segment| !segment.starts_with('{'));
    let says_what = last.and_then(|segment| names::words(segment).into_iter().next());
    let mut words = vec![match method {
        // A path like `/coupons/deleteByIds` says itself what is done.
        "POST" if says_what.is_some_and(|word| VERBS.contains(&word.as_str())) => String::new(),
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
