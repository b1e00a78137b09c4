//! One story with every client, over both transports: list, run, pending, final.

use serde_json::json;

use super::peers::{HttpServer, Peer, Reach, SDKS, Sdk, define, document, hold, packages, text, uri};
use crate::world::World;

fn tell(world: &World, peer: &mut Peer, sdk: Sdk) {
    let version = peer.ask(&json!({"op": "version"}));
    if sdk.is_modern() {
        assert_eq!(version["version"], "2026-07-28", "{sdk:?}");
    }
    assert!(version["instructions"].as_str().is_some_and(|text| text.contains("command_executor")), "{version}");

    let tools = peer.ask(&json!({"op": "list_tools"}));
    let names: Vec<_> = tools["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["command_executor"], "{sdk:?}");

    let found = peer.line("agent-magic-tool list tools --query='say text' --limit 1 2>/dev/null");
    let signature = found["content"][0]["text"].as_str().expect("a text");
    assert!(signature.starts_with("/** Says a text again. */\nsay(input: {"), "{signature}");

    let held = hold(world);
    let receipt = peer.line("agent-magic-tool run hold");
    assert_eq!(receipt["isError"], false, "{receipt}");
    let link = &receipt["content"][1];
    let printed = document(&receipt);
    let id = printed["id"].as_str().expect("an id");
    assert_eq!((&link["type"], &link["uri"]), (&json!("resource_link"), &json!(uri(id))), "{sdk:?}");
    let pending = peer.line(&format!("wait {id} --timeout 10ms"));
    assert_eq!(pending["isError"], false, "what is pending has not failed: {pending}");
    std::fs::remove_file(held).expect("removed");
    let ended = peer.line(&format!("agent-magic-tool wait {id}"));
    let printed = document(&ended);
    assert_eq!((&printed["status"], &printed["data"]), (&json!("succeeded"), &json!("done")), "{sdk:?}");

    let wrong = peer.line("agent-magic-tool run no_such_subtool");
    assert_eq!(wrong["isError"], true, "{wrong}");
    let foreign = peer.line("rm -rf /");
    assert!(foreign["isError"] == true && text(&foreign).contains("not-carried-out"), "{foreign}");
    let unknown = peer.attempt(&json!({"op": "call", "name": "no_such_tool", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");

    let prompts = peer.ask(&json!({"op": "list_prompts"}));
    assert_eq!(prompts["prompts"].as_array().map(Vec::len), Some(2), "{prompts}");
    let prompt = peer.ask(&json!({"op": "get_prompt", "name": "do", "arguments": {"task": "Count my mails."}}));
    let said = prompt["messages"][0]["content"]["text"].as_str().expect("a text");
    assert!(said.starts_with("Count my mails.") && said.contains("command_executor"), "{said}");
}

#[test]
fn every_client_uses_the_one_tool_over_stdio() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    for sdk in SDKS {
        tell(&world, &mut Peer::start(&world, &packages, sdk, Reach::Stdio(&[]), false), sdk);
    }
}

#[test]
fn every_client_uses_the_one_tool_over_http() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let server = HttpServer::start(&world, &[]);
    for sdk in SDKS {
        tell(&world, &mut Peer::start(&world, &packages, sdk, Reach::Http(&server), false), sdk);
    }
}
