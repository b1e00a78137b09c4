//! Subtools as tools of their own.

use serde_json::{Value, json};

use super::peers::{HttpServer, Peer, Reach, SDKS, Sdk, define, hold, packages, text};
use crate::world::World;

fn names(peer: &mut Peer) -> Vec<String> {
    let tools = peer.ask(&json!({"op": "list_tools"}));
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    tools["tools"].as_array().expect("a list").iter().map(name).collect()
}

#[test]
fn a_subtool_is_called_like_any_tool() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    world.define(
        "kinds.json",
        &json!({
            "as_object": {"description": "An object.", "annotations": {"readOnlyHint": true},
                "input": {"type": "object", "properties": {}},
                "run": {"process": {"argv": ["printf", "{\"a\": [1, 2]}"], "output": "json"}}},
            "as_error": {"description": "Fails.", "annotations": {"readOnlyHint": true},
                "input": {"type": "object", "properties": {}}, "run": {"process": {"argv": ["false"]}}},
        }),
    );
    for sdk in SDKS {
        let arguments = ["--expose", "say", "--expose", "as_*", "--expose", "command_executor"];
        let mut peer = Peer::start(&world, &packages, sdk, Reach::Stdio(&arguments), false);
        assert_eq!(names(&mut peer), ["command_executor", "as_error", "as_object", "say"], "{sdk:?}");
        let tools = peer.ask(&json!({"op": "list_tools"}));
        let say = &tools["tools"][3];
        assert_eq!(
            (&say["description"], &say["inputSchema"]["required"], &say["annotations"]["readOnlyHint"]),
            (&json!("Says a text again."), &json!(["text"]), &json!(true))
        );
        let words = "it's \"年度报告\" & $HOME; `x`";
        assert_eq!(text(&peer.call("say", &json!({"text": words}))), words, "{sdk:?}");
        let object = peer.call("as_object", &json!({}));
        assert_eq!(object["structuredContent"], json!({"a": [1, 2]}), "{object}");
        let failed = peer.call("as_error", &json!({}));
        assert!(failed["isError"] == true && text(&failed).contains("process-failed"), "{failed}");
        let wrong = peer.call("say", &json!({"txt": "x"}));
        assert!(wrong["isError"] == true && text(&wrong).contains("invalid-input"), "{wrong}");
        let hidden = peer.attempt(&json!({"op": "call", "name": "hold", "arguments": {}}));
        assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    }
}

#[test]
fn progress_is_told_while_a_call_waits() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let server = HttpServer::start(&world, &["--expose", "hold"]);
    for sdk in [Sdk::PythonHandshake, Sdk::TypeScript] {
        let held = hold(&world);
        let mut peer = Peer::start(&world, &packages, sdk, Reach::Http(&server), false);
        let line = json!({"op": "call", "name": "hold", "arguments": {}, "held": held});
        assert_eq!(text(&peer.ask(&line)), "done", "{sdk:?}");
        peer.until_told("the client was told of progress", |event| event["method"] == "progress");
    }
}

#[test]
fn clients_are_told_when_the_catalog_changes() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let server = HttpServer::start(&world, &["--expose", "new_*"]);
    let mut peers = [Sdk::Python, Sdk::TypeScript, Sdk::PythonHandshake, Sdk::TypeScript1]
        .map(|sdk| Peer::start(&world, &packages, sdk, Reach::Http(&server), false));
    for (place, peer) in peers.iter_mut().enumerate() {
        assert_eq!(names(peer), ["command_executor"]);
        if place < 2 {
            peer.ask(&json!({"op": "listen", "filter": {"tools_list_changed": true}}));
            peer.until_told("the client listens", |event| event["method"] == "listening");
        }
    }
    world.define(
        "new.json",
        &json!({"new_one": {"description": "A new one.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {}}, "run": {"process": {"argv": ["printf", "new"]}}}}),
    );
    for peer in &mut peers {
        peer.until_told("the client is told", |event| {
            event["method"] == "notifications/tools/list_changed" || event["method"] == "ToolsListChanged"
        });
        assert_eq!(names(peer), ["command_executor", "new_one"]);
        assert_eq!(text(&peer.call("new_one", &json!({}))), "new");
    }
}
