//! The tools that a server offers: listed whole, with a digest each by which a changed tool is noticed.

use std::collections::BTreeMap;

use protocol::digest::hex;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult};
use rmcp::service::{Peer, RoleClient};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::error::ClientError;

/// More pages than any server needs: one that never ends its list is stopped here.
const MAX_PAGES: usize = 1_000;
const MAX_TOOLS: usize = 20_000;

/// A tool as the server sent it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfferedTool {
    pub digest: String,
    pub tool: Value,
}

/// Identifies what a tool is for a model: its name, description, schemas and annotations. 16 hexadecimal digits.
pub fn digest(tool: &Value) -> String {
    const PARTS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];
    let parts: BTreeMap<_, _> = PARTS.iter().filter_map(|part| Some((*part, sorted(tool.get(*part)?)))).collect();
    let text = serde_json::to_vec(&parts).expect("JSON can be written");
    hex(&Sha256::digest(text)[..8])
}

/// With the keys of all objects in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let ordered: BTreeMap<_, _> = object.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            Value::Object(ordered.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Lists all tools. One that is malformed is left out and does not hide the others.
pub(super) async fn list(peer: &Peer<RoleClient>, max_bytes: usize) -> Result<Vec<OfferedTool>, ClientError> {
    let mut tools = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.clone().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        let response = peer.send_request(ClientRequest::ListToolsRequest(request)).await;
        let page = match response.map_err(|error| ClientError::of_service(error, max_bytes))? {
            ServerResult::ListToolsResult(page) => serde_json::to_value(page).unwrap_or_default(),
            // A page with a malformed tool.
            ServerResult::CustomResult(page) if page.0["tools"].is_array() => page.0,
            ServerResult::EmptyResult(_) => Value::Null,
            _ => return Err(ClientError::Malformed("the list of tools is of no known shape".to_owned())),
        };
        for tool in page["tools"].as_array().into_iter().flatten() {
            if tool["name"].as_str().is_some_and(|name| !name.is_empty()) {
                tools.push(OfferedTool { digest: digest(tool), tool: tool.clone() });
            } else {
                tracing::warn!("a tool without a name was left out");
            }
        }
        if tools.len() > MAX_TOOLS {
            return Err(ClientError::Malformed(format!("it offers more than {MAX_TOOLS} tools")));
        }
        let next = page["nextCursor"].as_str().filter(|next| !next.is_empty());
        match next {
            None => return Ok(tools),
            Some(next) if cursor.as_deref() == Some(next) => {
                return Err(ClientError::Malformed("its list of tools repeats a page without end".to_owned()));
            }
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    Err(ClientError::Malformed(format!("its list of tools has more than {MAX_PAGES} pages")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_digest_changes_with_what_a_model_reads_and_with_nothing_else() {
        let tool = json!({"name": "t", "description": "d", "inputSchema": {"type": "object", "properties": {}}});
        let reordered = json!({"inputSchema": {"properties": {}, "type": "object"}, "description": "d", "name": "t"});
        assert_eq!(digest(&tool), digest(&reordered));
        let mut with_icon = tool.clone();
        with_icon["icons"] = json!([]);
        assert_eq!(digest(&tool), digest(&with_icon));
        for (key, value) in [("description", json!("e")), ("annotations", json!({})), ("title", json!("T"))] {
            let mut changed = tool.clone();
            changed[key] = value;
            assert_ne!(digest(&tool), digest(&changed), "{key}");
        }
    }

    #[test]
    fn each_field_that_is_added_changed_or_removed_makes_another_digest() {
        let (text, other) =
            (json!({"type": "string"}), json!({"type": "object", "properties": {"a": {"type": "string"}}}));
        let fields = [
            ("name", vec![json!("t"), json!("u")]),
            ("title", vec![json!(""), json!("T"), json!("U")]),
            ("description", vec![json!(""), json!("d"), json!("d ")]),
            (
                "inputSchema",
                vec![json!({}), text.clone(), other.clone(), json!({"type": "object", "properties": {"a": {}}})],
            ),
            ("outputSchema", vec![json!({}), text, other, json!({"type": "object", "properties": {"a": {}}})]),
            (
                "annotations",
                vec![
                    json!({}),
                    json!({"readOnlyHint": true}),
                    json!({"readOnlyHint": false}),
                    json!({"destructiveHint": true}),
                ],
            ),
        ];
        let bare = json!({"name": "n", "inputSchema": {"type": "object"}});
        let whole = json!({"name": "n", "title": "n", "description": "n", "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object"}, "annotations": {"title": "n"}});
        for tool in [bare, whole] {
            for (field, values) in &fields {
                let mut without = tool.clone();
                without.as_object_mut().expect("a tool is an object").remove(*field);
                let changed = values.iter().map(|value| {
                    let mut changed = tool.clone();
                    changed[*field] = value.clone();
                    changed
                });
                let known: Vec<_> = changed.chain([without]).map(|tool| (digest(&tool), tool)).collect();
                for (index, (own, changed)) in known.iter().enumerate() {
                    for (earlier, other) in &known[..index] {
                        assert_ne!(own, earlier, "{changed} and {other}");
                    }
                }
                let original = digest(&tool);
                assert!(
                    tool.get(*field).is_none() || known.iter().all(|(own, _)| *own != original),
                    "{field} of {tool}"
                );
            }
        }
    }
}
