//! Request bodies: JSON, forms, multipart, text and files.

use serde_json::{Map, Value, json};

use super::OpenApi;
use crate::http::{Request, reference};
use crate::schema::{Cleaned, append_description};

/// A body of a description: its content types with a schema each.
struct Media<'a> {
    content_type: &'a str,
    schema: &'a Value,
    encoding: &'a Value,
}

/// Adds the body of `operation` to `request`, or says why it cannot be expressed.
pub(super) fn apply<'a>(
    api: &OpenApi<'a>,
    item: &'a Value,
    operation: &'a Value,
    request: &mut Request,
    state: &mut Cleaned,
    simplified: &mut Vec<String>,
) -> Result<(), String> {
    if api.is_swagger {
        return of_swagger(api, item, operation, request, state, simplified);
    }
    let Some(body) = operation.get("requestBody") else { return Ok(()) };
    let body = api.schemas.resolve(body).ok_or("its body refers to something that does not exist")?;
    let media: Vec<_> = body["content"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(content_type, media)| Media { content_type, schema: &media["schema"], encoding: &media["encoding"] })
        .collect();
    let is_required = body["required"] != false;
    let text = body["description"].as_str().unwrap_or_default();
    of_media(api, &media, is_required, text, request, state, simplified)
}

/// The body of Swagger 2.0 is a parameter: one `in: body`, or several `in: formData`.
fn of_swagger<'a>(
    api: &OpenApi<'a>,
    item: &'a Value,
    operation: &'a Value,
    request: &mut Request,
    state: &mut Cleaned,
    simplified: &mut Vec<String>,
) -> Result<(), String> {
    let consumes = operation.get("consumes").or_else(|| api.data.get("consumes")).and_then(Value::as_array);
    let consumes: Vec<&str> = consumes.into_iter().flatten().filter_map(Value::as_str).collect();
    let raw = [operation, item].into_iter().flat_map(|source| source["parameters"].as_array().into_iter().flatten());
    let raw: Vec<_> = raw.filter_map(|parameter| api.schemas.resolve(parameter)).collect();
    if let Some(body) = raw.iter().find(|parameter| parameter["in"] == "body") {
        let kinds = if consumes.is_empty() { vec!["application/json"] } else { consumes };
        let media: Vec<_> = kinds
            .into_iter()
            .map(|content_type| Media { content_type, schema: &body["schema"], encoding: &Value::Null })
            .collect();
        let text = body["description"].as_str().unwrap_or_default();
        return of_media(api, &media, body["required"] == true, text, request, state, simplified);
    }
    let form: Vec<_> = raw.iter().filter(|parameter| parameter["in"] == "formData").collect();
    if form.is_empty() {
        return Ok(());
    }
    let is_multipart = consumes.contains(&"multipart/form-data") || form.iter().any(|field| field["type"] == "file");
    let mut placed = Map::new();
    for field in form {
        let Some(name) = field["name"].as_str() else { continue };
        let mut own = field.as_object().cloned().unwrap_or_default();
        own.remove("required");
        let is_file = field["type"] == "file";
        let schemas = crate::schema::Schemas { root: api.data, ..api.schemas };
        let own = Value::Object(own);
        let schema = schemas.clean(&own, 1, state);
        part(name, schema, field["required"] == true, is_file, is_multipart, &mut placed, request)
            .or_else(|reason| left_out(reason, field["required"] == true, simplified))?;
    }
    request.body = Some(if is_multipart { json!({"multipart": placed}) } else { json!({"form": placed}) });
    Ok(())
}

fn left_out(reason: String, is_required: bool, simplified: &mut Vec<String>) -> Result<(), String> {
    if is_required {
        return Err(reason);
    }
    simplified.push(format!("{reason}; it is left out"));
    Ok(())
}

fn of_media<'a>(
    api: &OpenApi<'a>,
    media: &[Media<'a>],
    is_required: bool,
    text: &str,
    request: &mut Request,
    state: &mut Cleaned,
    simplified: &mut Vec<String>,
) -> Result<(), String> {
    let find = |fits: &dyn Fn(&str) -> bool| {
        media.iter().find(|media| fits(media.content_type.split(';').next().unwrap_or_default().trim()))
    };
    let is_json = |kind: &str| kind == "application/json" || kind == "text/json";
    if let Some(media) = find(&is_json).or_else(|| find(&|kind| kind.ends_with("+json"))) {
        json_body(api, media, is_required, text, request, state);
        return Ok(());
    }
    if let Some(media) = find(&|kind| kind == "application/x-www-form-urlencoded") {
        return form(api, media, false, request, state, simplified);
    }
    if let Some(media) = find(&|kind| kind == "multipart/form-data") {
        return form(api, media, true, request, state, simplified);
    }
    if let Some(media) = find(&|kind| matches!(kind, "*/*" | "application/*")) {
        json_body(api, media, is_required, text, request, state);
        return Ok(());
    }
    let Some(Media { content_type, .. }) = media.first() else { return Ok(()) };
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let is_text = kind.starts_with("text/")
        || kind.ends_with("xml")
        || kind.ends_with("yaml")
        || kind.contains("ndjson")
        || ["graphql", "javascript", "jsonl", "x-ndjson", "sql", "x-sh"].iter().any(|text| kind.ends_with(text));
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "string".into());
    schema.insert("description".to_owned(), crate::describe::field(text).into());
    if is_text {
        append_description(&mut schema, &format!("The body, as {kind}."));
        let field = request.field("body", "request", schema, true);
        request.body = Some(json!({"raw": {"content_type": content_type, "text": reference(&field)}}));
    } else {
        append_description(&mut schema, "The path of the local file to send.");
        let field = request.field("file", "body", schema, true);
        let mut file = json!({"path": reference(&field)});
        if kind.contains('/') && !kind.contains('*') {
            file["content_type"] = kind.into();
        }
        request.body = Some(json!({"file": file}));
    }
    Ok(())
}

/// A JSON body: its fields become fields of the input, unless it is not an object of declared fields.
fn json_body<'a>(
    api: &OpenApi<'a>,
    media: &Media<'a>,
    is_required: bool,
    text: &str,
    request: &mut Request,
    state: &mut Cleaned,
) {
    let kind = media.content_type.split(';').next().unwrap_or_default().trim();
    if kind != "application/json" && !kind.contains('*') {
        request.literal_header("Content-Type", kind);
    }
    let mut schema = api.schemas.clean(media.schema, 0, state);
    let is_object = schema.get("type") == Some(&"object".into());
    let fields = schema.get("properties").and_then(Value::as_object).filter(|fields| !fields.is_empty());
    match fields.cloned() {
        Some(fields) if is_object && !schema.contains_key("anyOf") => {
            let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            let mut placed = Map::new();
            for (wire, field) in fields {
                let mut field_schema = field.as_object().cloned().unwrap_or_default();
                if !is_required {
                    field_schema.remove("default");
                }
                let is_field_required = required.contains(&wire.as_str().into());
                let name = request.body_field(&wire, field_schema, is_field_required);
                tell_apart(&wire, &name, request);
                placed.insert(wire, reference(&name).into());
            }
            request.body = Some(json!({"json": placed}));
        }
        _ => {
            if !text.is_empty() && !schema.contains_key("description") {
                schema.insert("description".to_owned(), crate::describe::field(text).into());
            }
            append_description(&mut schema, "The body of the request.");
            let name = request.field("body", "request", schema, is_required);
            request.body = Some(json!({"json": reference(&name)}));
        }
    }
}

/// Says of a field whose name was taken that it is another one.
fn tell_apart(wire: &str, name: &str, request: &mut Request) {
    if name == format!("body_{wire}")
        && let Some(schema) = request.property_mut(name)
    {
        append_description(schema, &format!("In the body; `{wire}` says which one is meant."));
    }
}

fn form<'a>(
    api: &OpenApi<'a>,
    media: &Media<'a>,
    is_multipart: bool,
    request: &mut Request,
    state: &mut Cleaned,
    simplified: &mut Vec<String>,
) -> Result<(), String> {
    let schema = api.schemas.clean(media.schema, 0, state);
    let Some(Value::Object(fields)) = schema.get("properties").cloned() else {
        if media.schema.is_null() || schema.is_empty() {
            request.body = Some(if is_multipart { json!({"multipart": {}}) } else { json!({"form": {}}) });
            simplified.push("its form declares no fields".to_owned());
            return Ok(());
        }
        return Err("its form has no declared fields".to_owned());
    };
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let raw = api.schemas.fields(media.schema);
    let mut placed = Map::new();
    for (wire, field) in fields {
        let is_required = required.contains(&wire.as_str().into());
        let original = raw.iter().find(|(name, _)| *name == wire).map_or(&Value::Null, |(_, field)| *field);
        let original = api.schemas.resolve(original).unwrap_or(&Value::Null);
        let encoding = &media.encoding[&wire];
        let is_file = is_multipart && is_binary(api, original, encoding);
        let mut field = field.as_object().cloned().unwrap_or_default();
        if original["type"] == "array" && is_file {
            simplified.push(format!("`{wire}` of its form sends one file instead of several"));
            field.insert("type".to_owned(), "string".into());
            field.remove("items");
        }
        let is_object = field.get("type") == Some(&"object".into());
        if is_object && encoding["style"] == "deepObject" && !is_multipart {
            deep_object(&wire, &field, &mut placed, request);
            continue;
        }
        part(&wire, field, is_required, is_file, is_multipart, &mut placed, request)
            .or_else(|reason| left_out(reason, is_required, simplified))?;
    }
    request.body = Some(if is_multipart { json!({"multipart": placed}) } else { json!({"form": placed}) });
    Ok(())
}

/// Whether a part is the content of a file.
fn is_binary(api: &OpenApi<'_>, schema: &Value, encoding: &Value) -> bool {
    let schema = match schema["type"].as_str() {
        Some("array") => api.schemas.resolve(&schema["items"]).unwrap_or(&Value::Null),
        _ => schema,
    };
    let media = schema["contentMediaType"].as_str().or_else(|| encoding["contentType"].as_str()).unwrap_or_default();
    let is_media = !media.is_empty() && !media.starts_with("text/") && !media.contains("json");
    schema["type"] == "file" || matches!(schema["format"].as_str(), Some("binary" | "file")) || is_media
}

/// Adds one field of a form.
fn part(
    wire: &str,
    mut schema: Map<String, Value>,
    is_required: bool,
    is_file: bool,
    is_multipart: bool,
    placed: &mut Map<String, Value>,
    request: &mut Request,
) -> Result<(), String> {
    if is_file {
        schema.retain(|key, _| key == "description");
        schema.insert("type".to_owned(), "string".into());
        append_description(&mut schema, "The path of the local file to send.");
        let name = request.body_field(wire, schema, is_required);
        placed.insert(wire.to_owned(), json!({"file": reference(&name)}));
        return Ok(());
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "object" && !is_multipart {
        return Err(format!("`{wire}` of its form is an object"));
    }
    if kind == "array" && is_multipart {
        return Err(format!("`{wire}` of its form is a list, whose parts a definition cannot repeat"));
    }
    let name = request.body_field(wire, schema, is_required);
    placed.insert(wire.to_owned(), reference(&name).into());
    Ok(())
}

/// An object in a form has a field for each of its plain fields: `address[city]`.
fn deep_object(wire: &str, schema: &Map<String, Value>, placed: &mut Map<String, Value>, request: &mut Request) {
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let is_flat = !matches!(field["type"].as_str(), Some("object" | "array"));
        if let (true, Some(field)) = (is_flat, field.as_object()) {
            let wire = format!("{wire}[{name}]");
            let own = request.field(&wire, "body", field.clone(), false);
            placed.insert(wire, reference(&own).into());
        }
    }
}
