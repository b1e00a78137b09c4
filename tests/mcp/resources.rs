//! Result files as resources: listed, read, followed until they are final.

use serde_json::{Value, json};

use super::peers::{Peer, Reach, Sdk, define, hold, packages, uri};
use crate::world::World;

#[test]
fn a_result_file_is_listed_read_and_followed() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    for sdk in [Sdk::PythonHandshake, Sdk::TypeScript1, Sdk::Python, Sdk::TypeScript] {
        let mut peer = Peer::start(&world, &packages, sdk, Reach::Stdio(&[]), false);
        let held = hold(&world);
        let id = peer.delegate("agent-magic-tool run hold");
        let uri = uri(&id);
        let listed = peer.ask(&json!({"op": "list_resources"}));
        let first = &listed["resources"][0];
        assert_eq!((&first["uri"], &first["mimeType"]), (&json!(uri), &json!("application/json")), "{sdk:?}");
        let templates = peer.ask(&json!({"op": "list_templates"}));
        assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "agent-magic-tool://results/{id}");
        let read = |peer: &mut Peer| -> Value {
            let read = peer.ask(&json!({"op": "read", "uri": uri}));
            serde_json::from_str(read["contents"][0]["text"].as_str().expect("a text")).expect("a result file")
        };
        assert_eq!(read(&mut peer)["status"], "pending", "{sdk:?}");
        if sdk.is_modern() {
            peer.ask(&json!({"op": "listen", "filter": {"resource_subscriptions": [uri]}}));
            peer.until_told("the client listens", |event| event["method"] == "listening");
        } else {
            peer.ask(&json!({"op": "subscribe", "uri": uri}));
        }
        std::fs::remove_file(held).expect("removed");
        peer.until_told("the client is told of the end", |event| {
            event["params"]["uri"] == uri.as_str() || event["uri"] == uri.as_str()
        });
        peer.line(&format!("wait {id}"));
        assert_eq!(read(&mut peer)["status"], "succeeded", "{sdk:?}");
        let missing = peer.attempt(&json!({"op": "read", "uri": "agent-magic-tool://results/../x"}));
        let code = if sdk.is_modern() { -32602 } else { -32002 };
        assert_eq!(missing["error"]["code"], code, "{missing}");
    }
}

#[test]
fn data_beside_a_result_file_is_a_resource_of_its_own() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    world.define(
        "large.json",
        &json!({"large": {"description": "Much text.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {}},
            "run": {"process": {"argv": ["sh", "-c", "yes line | head -n 50000"]}}}}),
    );
    let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Stdio(&["--expose", "large"]), false);
    let called = peer.call("large", &json!({}));
    let link = &called["content"][1];
    assert_eq!(link["type"], "resource_link", "{called}");
    let read = peer.ask(&json!({"op": "read", "uri": link["uri"]}));
    assert_eq!(read["contents"][0]["text"].as_str().map(|text| text.lines().count()), Some(50_000));
}
