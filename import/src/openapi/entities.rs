//! What a description says about whole entities, so that a PATCH does not demand one.
//!
//! Many descriptions refer from the body of a PATCH to the schema that also a POST sends or a GET answers. What that
//! schema requires is what an entity has, not what a change of it must repeat. A schema that only PATCH bodies refer to
//! is the PATCH's own, and what it requires stays required.

use std::collections::HashSet;

use serde_json::Value;

use super::{METHODS, OpenApi};

/// The references that lead to schemas of whole entities: all that are reached without the bodies of PATCH operations.
pub(super) fn of(data: &Value) -> HashSet<String> {
    let mut known = HashSet::new();
    let mut open: Vec<&Value> = Vec::new();
    for item in data["paths"].as_object().into_iter().flatten().map(|(_, item)| item) {
        let Some(parts) = item.as_object() else { continue };
        for (method, part) in parts {
            match part.as_object().filter(|_| method == "patch") {
                Some(operation) => open.extend(operation.iter().filter_map(|(key, part)| match key.as_str() {
                    "requestBody" => None,
                    "parameters" => Some(part).filter(|_| data.get("openapi").is_some()),
                    _ => Some(part),
                })),
                None => open.push(part),
            }
        }
    }
    while let Some(part) = open.pop() {
        match part {
            Value::Object(fields) => {
                if let Some(reference) = fields.get("$ref").and_then(Value::as_str)
                    && known.insert(reference.to_owned())
                    && let Some(target) = reference.strip_prefix('#').and_then(|pointer| data.pointer(pointer))
                {
                    open.push(target);
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    known
}

/// Whether the body of the PATCH `operation` at `path` is an entity that another operation there sends or answers with:
/// a body that both refer to, or the same schema written out twice.
pub(super) fn is_written_out(api: &OpenApi<'_>, path: &str, item: &Value, operation: &Value) -> bool {
    let body = &operation["requestBody"];
    if body["$ref"].as_str().is_some_and(|reference| api.entities.contains(reference)) {
        return true;
    }
    let Some(own) = schema(body).filter(|schema| schema.get("properties").is_some()) else { return false };
    let collection = path.trim_end_matches('/').rsplit_once('/').map_or("", |(collection, _)| collection);
    let others = [item, &api.data["paths"][collection], &api.data["paths"][format!("{collection}/")]];
    others.into_iter().flat_map(|item| METHODS.iter().filter_map(|method| item.get(*method))).any(|other| {
        let body = Some(&other["requestBody"]).filter(|_| !std::ptr::eq(other, operation));
        let answers = other["responses"].as_object().into_iter().flatten();
        let answers = answers.filter(|(status, _)| status.starts_with('2')).map(|(_, answer)| answer);
        body.into_iter()
            .chain(answers)
            .filter_map(schema)
            .filter_map(|known| api.schemas.resolve(known))
            .any(|known| known == own || known.get("items") == Some(own))
    })
}

/// The JSON schema of a body or an answer.
fn schema(body: &Value) -> Option<&Value> {
    let content = body["content"].as_object()?;
    content.iter().find(|(kind, _)| kind.contains("json")).map(|(_, media)| &media["schema"])
}
