//! Parameters in the path, the query, headers and cookies, in every style that the runner can send.

use protocol::json::named_types;
use serde_json::{Map, Value};

use super::OpenApi;
use crate::http::{PathValue, Request, is_credential, is_idle_header, may_set_header, reference};
use crate::schema::{Cleaned, append_description, defaults};

/// A parameter with its references resolved.
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    pub(super) place: &'a str,
    raw: &'a Value,
    schema: &'a Value,
    is_required: bool,
    style: &'a str,
    explodes: bool,
    /// Whether the value is JSON text.
    is_json: bool,
}

/// The parameters of an operation: its own, and those of its path that it does not replace.
pub(super) fn of<'a>(
    api: &OpenApi<'a>,
    item: &'a Value,
    operation: &'a Value,
    simplified: &mut Vec<String>,
) -> Vec<Parameter<'a>> {
    let mut parameters: Vec<Parameter<'a>> = Vec::new();
    for source in [operation, item] {
        for raw in source["parameters"].as_array().into_iter().flatten() {
            let Some(raw) = api.schemas.resolve(raw) else {
                simplified.push("a parameter refers to something that does not exist".to_owned());
                continue;
            };
            let (Some(name), Some(place)) = (raw["name"].as_str(), raw["in"].as_str()) else {
                simplified.push("a parameter has no name or no place".to_owned());
                continue;
            };
            if parameters.iter().all(|known| known.name != name || known.place != place) {
                parameters.push(Parameter::of(api, raw, name, place));
            }
        }
    }
    parameters
}

impl<'a> Parameter<'a> {
    fn of(api: &OpenApi<'a>, raw: &'a Value, name: &'a str, place: &'a str) -> Self {
        let content = raw["content"].as_object().and_then(|content| content.iter().next());
        let schema = match content {
            Some((_, media)) => &media["schema"],
            None if api.is_swagger && raw.get("schema").is_none() => raw,
            None => &raw["schema"],
        };
        let default_style = if matches!(place, "query" | "cookie") { "form" } else { "simple" };
        let (style, explodes) = match raw["collectionFormat"].as_str() {
            Some("multi") => ("form", true),
            Some("ssv") => ("spaceDelimited", false),
            Some("pipes") => ("pipeDelimited", false),
            Some("tsv") => ("tabDelimited", false),
            Some(_) => (default_style, false),
            None if api.is_swagger => (default_style, false),
            None => {
                let style = raw["style"].as_str().unwrap_or(default_style);
                (style, raw["explode"].as_bool().unwrap_or(style == "form"))
            }
        };
        Self {
            name,
            place,
            raw,
            schema,
            is_required: raw["required"] == true,
            style,
            explodes,
            is_json: content.is_some(),
        }
    }

    fn is_array(&self, cleaned: &Map<String, Value>) -> bool {
        !self.is_json && kind(cleaned) == "array"
    }

    fn is_object(&self, cleaned: &Map<String, Value>) -> bool {
        !self.is_json && kind(cleaned) == "object"
    }

    /// The schema of the parameter, with its own description.
    fn cleaned(&self, api: &OpenApi<'a>, state: &mut Cleaned) -> Map<String, Value> {
        let mut cleaned = api.schemas.clean(self.schema, 1, state);
        if let Some(text) = self.raw["description"].as_str().map(crate::describe::field).filter(|text| !text.is_empty())
        {
            let hints = match cleaned.get("description").and_then(Value::as_str) {
                // The hints that were added to nothing, such as the default.
                Some(own) if own.starts_with("Default: ") || own.starts_with("Example: ") => own.to_owned(),
                _ => String::new(),
            };
            let says_default = text.to_lowercase().contains("default");
            cleaned.insert("description".to_owned(), text.into());
            if !says_default || hints.starts_with("Example") {
                append_description(&mut cleaned, &hints);
            }
        } else if let Some(example) = self.raw["example"].as_str().filter(|example| example.len() <= 40) {
            append_description(&mut cleaned, &format!("Example: {example}"));
        }
        if self.is_json {
            append_description(&mut cleaned, "It is sent as JSON.");
        }
        if cleaned.get("type").is_none() && !cleaned.contains_key("anyOf") && !self.is_json {
            cleaned.insert("type".to_owned(), "string".into());
        }
        if self.is_required || self.place == "path" {
            defaults::keep(api.schemas.resolve(self.schema), self.schema, &mut cleaned);
        }
        cleaned
    }
}

fn kind(cleaned: &Map<String, Value>) -> &str {
    match cleaned.get("type") {
        Some(Value::String(kind)) => kind,
        kinds => named_types(kinds).into_iter().find(|kind| *kind != "null").unwrap_or_default(),
    }
}

/// Writes the path of the request, with its parameters.
pub(super) fn path(
    api: &OpenApi<'_>,
    template: &str,
    parameters: &[Parameter<'_>],
    request: &mut Request,
    state: &mut Cleaned,
) -> Result<(), String> {
    // Some descriptions tell operations on one path apart by a fragment or a query.
    let template = template.split('#').next().unwrap_or_default();
    let (path, query) = template.split_once('?').unwrap_or((template, ""));
    if path.split('/').skip(1).collect::<Vec<_>>().split_last().is_some_and(|(_, inner)| inner.contains(&"")) {
        return Err("its path has an empty segment".to_owned());
    }
    if !path.starts_with('/') {
        request.path_text("/");
    }
    let mut rest = path;
    while let Some(start) = rest.find('{') {
        request.path_text(&rest[..start]);
        let end = rest[start..].find('}').ok_or("a brace in its path is not closed")? + start;
        let name = rest[start + 1..end].trim_matches(['?', '*', '+', '.', ';']);
        rest = &rest[end + 1..];
        let Some(parameter) = parameters.iter().find(|known| known.place == "path" && known.name == name) else {
            let mut schema = Map::new();
            schema.insert("type".to_owned(), "string".into());
            let field = request.field(name, "path", schema, true);
            request.path_value(&field, PathValue::Text);
            continue;
        };
        let mut schema = parameter.cleaned(api, state);
        if parameter.is_object(&schema) {
            return Err(format!("`{name}` in its path is an object"));
        }
        let is_array = parameter.is_array(&schema);
        if is_array && parameter.explodes && parameter.style != "simple" {
            return Err(format!("`{name}` in its path is a list of the style `{}`", parameter.style));
        }
        if is_array {
            schema.insert("minItems".to_owned(), 1.into());
        }
        match parameter.style {
            "label" => request.path_text("."),
            "matrix" => request.path_text(&format!(";{name}=")),
            _ => {}
        }
        let field = request.field(name, "path", schema, true);
        request.path_value(&field, if is_array { PathValue::List } else { PathValue::Text });
    }
    request.path_text(rest);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !value.contains('{') && parameters.iter().all(|known| known.place != "query" || known.name != name) {
            request.literal_query(name, crate::schema::percent_decoded(value).as_ref());
        }
    }
    Ok(())
}

/// Places the parameters that are not in the path. Returns why the operation cannot be expressed, if one that it
/// needs cannot.
pub(super) fn others(
    api: &OpenApi<'_>,
    parameters: &[Parameter<'_>],
    request: &mut Request,
    state: &mut Cleaned,
    simplified: &mut Vec<String>,
    secrets: &mut super::security::NeededSecrets,
) -> Result<(), String> {
    request.joins_arrays = joins_arrays(api, parameters, state);
    for parameter in parameters {
        let (name, full) = (parameter.name, api.options.full);
        let unset = api.schemas.is_unset(parameter.raw) || api.schemas.is_unset(parameter.schema);
        if unset && !parameter.is_required && !full {
            continue;
        }
        let placed = match parameter.place {
            "query" | "header" if is_credential(name) => {
                credential(api, parameter, request, secrets);
                Ok(())
            }
            "query" => query(api, parameter, request, state),
            "header" if name.eq_ignore_ascii_case("idempotency-key") => {
                request.idempotency_header = Some(name.to_owned());
                Ok(())
            }
            "header" => header(api, parameter, request, state),
            "cookie" => cookie(api, parameter, request, state),
            _ => Ok(()),
        };
        match placed {
            Ok(()) => {}
            Err(reason) if parameter.is_required => return Err(reason),
            Err(reason) => simplified.push(format!("{reason}; it is left out")),
        }
    }
    Ok(())
}

/// Whether all lists in the query are written with commas. If only some are, those become texts.
fn joins_arrays(api: &OpenApi<'_>, parameters: &[Parameter<'_>], state: &mut Cleaned) -> bool {
    let mut arrays =
        parameters.iter().filter(|parameter| parameter.place == "query" && !parameter.is_json).filter(|it| {
            let resolved = api.schemas.resolve(it.schema).unwrap_or(&Value::Null);
            resolved.get("items").is_some() || kind(&api.schemas.clean(it.schema, usize::MAX - 1, state)) == "array"
        });
    let mut any = false;
    arrays.all(|array| {
        any = true;
        array.style == "form" && !array.explodes
    }) && any
}

fn credential(
    api: &OpenApi<'_>,
    parameter: &Parameter<'_>,
    request: &mut Request,
    secrets: &mut super::security::NeededSecrets,
) {
    let is_set = request.auth.as_ref().is_some_and(|auth| {
        let key = &auth["api_key"];
        let is_authorization = parameter.name.eq_ignore_ascii_case("authorization") && auth.get("api_key").is_none();
        let is_key = ["header", "query"]
            .iter()
            .any(|place| key[*place].as_str().is_some_and(|name| name.eq_ignore_ascii_case(parameter.name)));
        is_authorization || is_key
    });
    // An optional credential beside one that is declared is another way to say the same.
    if is_set || !parameter.is_required {
        return;
    }
    let secret = format!("{}_{}", api.pack, crate::names::words(parameter.name).join("_"));
    let value = format!("secret:{secret}");
    secrets.insert(secret, format!("the value of `{}`", parameter.name));
    if parameter.place == "query" {
        request.query(parameter.name, value);
    } else {
        request.header(parameter.name, value);
    }
}

fn query(
    api: &OpenApi<'_>,
    parameter: &Parameter<'_>,
    request: &mut Request,
    state: &mut Cleaned,
) -> Result<(), String> {
    let name = parameter.name;
    if request.has_query(name) {
        return Ok(());
    }
    let mut schema = parameter.cleaned(api, state);
    if parameter.is_json && kind(&schema) == "array" {
        return Err(format!("the query parameter `{name}` is a list that is sent as JSON"));
    }
    if parameter.is_object(&schema) {
        return object_in_query(parameter, schema, request);
    }
    if parameter.is_array(&schema) {
        let as_declared = parameter.explodes || request.joins_arrays && parameter.style == "form";
        if !as_declared {
            let separator = match parameter.style {
                "spaceDelimited" => "a space",
                "pipeDelimited" => "`|`",
                "tabDelimited" => "a tab",
                _ => "a comma",
            };
            let text = schema.remove("description");
            schema.clear();
            schema.insert("type".to_owned(), "string".into());
            schema.extend(text.map(|text| ("description".to_owned(), text)));
            append_description(&mut schema, &format!("Several are separated by {separator}."));
        }
    }
    let field = request.field(name, "query", schema, parameter.is_required);
    request.query(name, reference(&field));
    Ok(())
}

/// An object in the query has a parameter for each of its fields: `filter[status]=open`, or `status=open`.
fn object_in_query(
    parameter: &Parameter<'_>,
    mut schema: Map<String, Value>,
    request: &mut Request,
) -> Result<(), String> {
    let name = parameter.name;
    if parameter.style != "deepObject" && !parameter.explodes {
        return Err(format!("the query parameter `{name}` is an object that is written as a list"));
    }
    let Some(Value::Object(fields)) = schema.remove("properties") else {
        return Err(format!("the query parameter `{name}` is an object of any fields"));
    };
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_flat = |field: &Value| !matches!(field["type"].as_str(), Some("object" | "array"));
    for (field, schema) in fields {
        let is_required = parameter.is_required && required.contains(&field.as_str().into());
        if !is_flat(&schema) {
            if is_required {
                return Err(format!("`{field}` of the query parameter `{name}` is not a plain value"));
            }
            continue;
        }
        let wire = if parameter.style == "deepObject" { format!("{name}[{field}]") } else { field };
        if request.has_query(&wire) {
            continue;
        }
        let mut schema = schema.as_object().cloned().unwrap_or_default();
        if !parameter.is_required {
            schema.remove("default");
        }
        let own = request.field(&wire, "query", schema, is_required);
        request.query(&wire, reference(&own));
    }
    Ok(())
}

fn header(
    api: &OpenApi<'_>,
    parameter: &Parameter<'_>,
    request: &mut Request,
    state: &mut Cleaned,
) -> Result<(), String> {
    let name = parameter.name;
    if is_idle_header(name) && (!api.options.full || ["accept", "content-type"].contains(&name.to_lowercase().as_str()))
    {
        return Ok(());
    }
    if !may_set_header(name) {
        return Err(format!("definitions cannot set the header `{name}`"));
    }
    let schema = parameter.cleaned(api, state);
    if parameter.is_object(&schema) {
        return Err(format!("the header `{name}` is an object"));
    }
    if let Some(value) = only_value(&schema) {
        request.literal_header(name, &value);
        return Ok(());
    }
    let field = request.field(name, "header", schema, parameter.is_required);
    request.header(name, reference(&field));
    Ok(())
}

/// The value of a schema that has only one: a version that a header must have.
fn only_value(schema: &Map<String, Value>) -> Option<String> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(Value::String(value)), _) => Some(value.clone()),
        (None, Some(Value::Array(values))) if values.len() == 1 => values[0].as_str().map(str::to_owned),
        _ => None,
    }
}

fn cookie(
    api: &OpenApi<'_>,
    parameter: &Parameter<'_>,
    request: &mut Request,
    state: &mut Cleaned,
) -> Result<(), String> {
    let name = parameter.name;
    if !parameter.is_required {
        return Err(format!("the cookie `{name}` is optional, and a definition sends a cookie always"));
    }
    let mut schema = parameter.cleaned(api, state);
    if parameter.is_object(&schema) || parameter.is_array(&schema) {
        return Err(format!("the cookie `{name}` is not a plain value"));
    }
    if kind(&schema) == "string" && !schema.contains_key("enum") {
        // A value with a semicolon would be a second cookie.
        schema.insert("pattern".to_owned(), r#"^[^;,\s"\\]*$"#.into());
    }
    let field = request.field(name, "cookie", schema, true);
    request.cookie(name, &reference(&field));
    Ok(())
}
