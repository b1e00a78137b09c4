//! One method of a discovery document.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::DiscoveryApi;
use crate::http::{PathValue, Request, annotations, dry_run, reference};
use crate::schema::{Cleaned, DEFAULT_DEPTH, MAX_INPUT_BYTES, append_description, defaults, is_required_by};
use crate::{ImportedSubtool, describe, names};

/// Parameters that models never set: keys against repetition, and rights of content partners.
const NEVER_SET: [&str; 5] =
    ["requestId", "returnPartialSuccess", "onBehalfOfContentOwner", "onBehalfOfContentOwnerChannel", "userIp"];

/// The method of a document, as a request with a bounded input.
pub(crate) struct Method;

impl Method {
    /// Returns the subtool and what was simplified, or why it is left out.
    pub(crate) fn import(
        api: &DiscoveryApi<'_>,
        group: &str,
        method: &Value,
        what: &str,
        names: &mut names::Names,
    ) -> Result<(ImportedSubtool, BTreeSet<String>), String> {
        let text = |key: &str| method[key].as_str().unwrap_or_default();
        let description = text("description");
        if !api.options.full && (method["deprecated"] == true || description.starts_with("Deprecated")) {
            return Err("it is deprecated".to_owned());
        }
        let verb = match text("httpMethod") {
            verb @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => verb,
            other => return Err(format!("the method `{other}` cannot be sent")),
        };
        let mut depth = api.options.depth.unwrap_or(DEFAULT_DEPTH).max(1);
        let (mut request, state) = loop {
            let mut state = Cleaned::with_depth(depth);
            let request = request(api, method, verb, &mut state)?;
            if depth == 1 || !state.is_too_large() && request.input_bytes() <= MAX_INPUT_BYTES {
                break (request, state);
            }
            depth -= 1;
        };
        let mut simplified = state.loosened;
        if method["supportsMediaUpload"] == true {
            simplified.insert("files cannot be uploaded with it, only their metadata is sent".to_owned());
        }
        let mut definition = Map::new();
        let fallback = names::words(what).join(" ");
        definition
            .insert("description".to_owned(), describe::subtool("", description, &fallback, &api.boilerplate).into());
        let input = request.input();
        let dry_run = dry_run(verb, &input);
        definition.insert("input".to_owned(), input);
        let annotations = annotations(verb, false);
        if annotations != json!({}) {
            definition.insert("annotations".to_owned(), annotations);
        }
        definition.insert("run".to_owned(), json!({"http": request.http(verb, None)}));
        definition.extend(dry_run.map(|shown| ("dry_run".to_owned(), shown)));
        let mut tags = vec![api.pack.clone()];
        if group != api.pack {
            tags.push(names::words(group).join("-"));
        }
        definition.insert("tags".to_owned(), tags.into());
        // The id begins with the name of the API, for which the pack stands.
        let own = what.split_once('.').map_or(what, |(_, rest)| rest);
        let name = names.make(&api.pack, own);
        Ok((ImportedSubtool { name, what: what.to_owned(), group: group.to_owned(), definition }, simplified))
    }
}

fn request(api: &DiscoveryApi<'_>, method: &Value, verb: &str, state: &mut Cleaned) -> Result<Request, String> {
    let mut request = Request::default();
    let path = method["path"].as_str().ok_or("it has no path")?;
    let parameters = method["parameters"].as_object();
    let parameter = |wire: &str| parameters.and_then(|all| all.get(wire));
    request.path_text(&api.service_path);
    if !path.starts_with('/') {
        request.path_text("/");
    }
    let mut rest = path;
    while let Some(start) = rest.find('{') {
        request.path_text(&rest[..start]);
        let end = rest[start..].find('}').ok_or_else(|| format!("a brace in its path `{path}` is not closed"))? + start;
        let expression = &rest[start + 1..end];
        let (wire, kind) = match expression.strip_prefix('+') {
            Some(wire) => (wire, PathValue::Segments),
            None => (expression, PathValue::Text),
        };
        if !wire.chars().all(|it| it.is_ascii_alphanumeric() || it == '_' || it == '-' || it == '.') {
            return Err(format!("the path has an expansion that a definition cannot express: `{{{expression}}}`"));
        }
        let schema = field(api, parameter(wire).unwrap_or(&Value::Null), state);
        let default = parameter(wire).and_then(|parameter| parameter["default"].as_str());
        let name = request.field(wire, "path", schema, default.is_none());
        match default.filter(|_| kind == PathValue::Text) {
            Some(default) => request.path_value_or(&name, default),
            None => request.path_value(&name, kind),
        }
        rest = &rest[end + 1..];
    }
    request.path_text(rest);
    for (wire, parameter) in parameters.into_iter().flatten() {
        if parameter["location"] != "query" || !api.options.full && parameter["deprecated"] == true {
            continue;
        }
        let is_required = parameter["required"] == true;
        let is_unset = api.schemas.is_unset(parameter) || !api.options.full && NEVER_SET.contains(&wire.as_str());
        if is_unset && !is_required {
            continue;
        }
        let mut schema = field(api, parameter, state);
        if parameter["repeated"] == true {
            let text = schema.remove("description");
            let item = std::mem::take(&mut schema);
            schema.insert("type".to_owned(), "array".into());
            schema.extend(text.map(|text| ("description".to_owned(), text)));
            schema.insert("items".to_owned(), item.into());
        }
        if is_required {
            defaults::keep(None, parameter, &mut schema);
        }
        let name = request.field(wire, "query", schema, is_required);
        request.query(wire, reference(&name));
    }
    if api.options.full {
        for (wire, parameter) in api.data["parameters"].as_object().into_iter().flatten() {
            // Credentials are never an input.
            if !request.has_query(wire) && !["access_token", "oauth_token", "key"].contains(&wire.as_str()) {
                let name = request.field(wire, "query", field(api, parameter, state), false);
                request.query(wire, reference(&name));
            }
        }
    }
    if let Some(reference) = method["request"].get("$ref").filter(|_| !matches!(verb, "GET" | "HEAD")) {
        body(api, method, reference, &mut request, state)?;
    }
    pagination(api, method, verb, &mut request);
    request.check()?;
    Ok(request)
}

/// The schema of a parameter.
fn field(api: &DiscoveryApi<'_>, parameter: &Value, state: &mut Cleaned) -> Map<String, Value> {
    // In a parameter, `required` and `repeated` are no keywords of its schema.
    let mut own = parameter.as_object().cloned().unwrap_or_default();
    for key in ["required", "repeated", "location"] {
        own.remove(key);
    }
    let own = Value::Object(own);
    let schemas = crate::schema::Schemas { root: api.data, ..api.schemas };
    let mut cleaned = schemas.clean(&own, 1, state);
    cleaned.entry("type").or_insert_with(|| "string".into());
    cleaned
}

fn body(
    api: &DiscoveryApi<'_>,
    method: &Value,
    reference_to: &Value,
    request: &mut Request,
    state: &mut Cleaned,
) -> Result<(), String> {
    let name = reference_to.as_str().unwrap_or_default();
    let Some(target) = api.data["schemas"].get(name) else {
        return Err(format!("the schema of its body, `{name}`, does not exist"));
    };
    let id = method["id"].as_str().unwrap_or_default();
    state.method = Some(id.into());
    let cleaned = api.schemas.clean(target, 0, state);
    let Some(Value::Object(fields)) = cleaned.get("properties") else {
        // An empty message, or one of any fields.
        let is_open = target.get("additionalProperties").is_some();
        if is_open {
            let field = request.field("body", "request", cleaned, true);
            request.body = Some(json!({"json": reference(&field)}));
        } else {
            request.body = Some(json!({"json": {}}));
        }
        return Ok(());
    };
    let mut placed = Map::new();
    for (wire, schema) in fields {
        let schema = schema.as_object().cloned().unwrap_or_default();
        let raw = target["properties"].get(wire).unwrap_or(&Value::Null);
        // The words are about the whole entity, of which a PATCH sends a part.
        let is_required = is_required_by(raw, id)
            || method["httpMethod"] != "PATCH"
                && raw["description"].as_str().is_some_and(|text| text.starts_with("Required."));
        let mut schema = schema;
        if is_required {
            defaults::keep(api.schemas.resolve(raw), raw, &mut schema);
        }
        let field = request.body_field(wire, schema, is_required);
        placed.insert(wire.clone(), reference(&field).into());
    }
    request.body = Some(json!({"json": placed}));
    Ok(())
}

/// Google's pages: `pageToken` in the query, `nextPageToken` and one list in the response.
fn pagination(api: &DiscoveryApi<'_>, method: &Value, verb: &str, request: &mut Request) {
    if verb != "GET" {
        return;
    }
    let Some(token) = request.field_of_query("pageToken").map(str::to_owned) else { return };
    let response = api.schemas.fields(&method["response"]);
    let lists: Vec<_> = response.iter().filter(|(_, field)| field["type"] == "array").map(|(name, _)| *name).collect();
    // Beside the list that is paged, some responses name what could not be reached.
    let paged: Vec<_> = lists
        .iter()
        .filter(|name| {
            !["unreachable", "unreachables", "missingZones", "warnings", "unreachableLocations"].contains(*name)
        })
        .collect();
    let has_next = response.iter().any(|(name, _)| *name == "nextPageToken");
    let [items] = paged.as_slice() else { return };
    if !has_next {
        return;
    }
    let mut pagination = json!({"next_token": {"query": "pageToken", "response": "nextPageToken"}, "items": items});
    let sizes = ["maxResults", "pageSize", "limit"];
    if let Some(size) = sizes.iter().find_map(|size| request.field_of_query(size)).map(str::to_owned) {
        pagination["max_items"] = reference(&size).into();
        if let Some(schema) = request.property_mut(&size) {
            append_description(schema, "Without it, up to 5 pages are returned.");
        }
    }
    request.pagination = Some(pagination);
    if let Some(schema) = request.property_mut(&token) {
        schema.insert("description".to_owned(), "To go on: the `nextPageToken` of an earlier result.".into());
    }
}
