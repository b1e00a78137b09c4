//! What each client may use: lists in the configuration, by the client's name.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::peers::{HttpServer, Peer, Reach, Sdk, define, packages, text};
use crate::world::World;

const LISTS: &str = r#"
[mcp.clients.python-sdk]
tools = ["s*"]
resources = []
prompts = []

[mcp.clients.narrow]
subtools = ["say"]
"#;

#[test]
fn a_client_gets_no_more_than_its_list() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    world.configure(LISTS);
    let expose = ["--expose", "*"];
    let mut peer = Peer::start(&world, &packages, Sdk::Python, Reach::Stdio(&expose), false);
    let tools = peer.ask(&json!({"op": "list_tools"}));
    let names: Vec<_> = tools["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("say")) && !names.contains(&&json!("command_executor")), "{names:?}");
    assert_eq!(text(&peer.call("say", &json!({"text": "x"}))), "x");
    let uri = "agent-magic-tool://results/01a2047fc909731585bb77ededae5d91";
    for refused in [
        json!({"op": "call", "name": "command_executor", "arguments": {"command": "tasks"}}),
        json!({"op": "call", "name": "hold", "arguments": {}}),
        json!({"op": "read", "uri": uri}),
        json!({"op": "get_prompt", "name": "how-to-use"}),
    ] {
        let answer = peer.attempt(&refused);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("`python-sdk` may not use"), "{refused}: {answer}");
    }
    assert_eq!(peer.ask(&json!({"op": "list_resources"}))["resources"], json!([]));
    assert_eq!(peer.ask(&json!({"op": "list_prompts"}))["prompts"], json!([]));
    assert_eq!(world.run(&["tasks"]).json().as_array().map(Vec::len), Some(1), "what is refused runs nothing");

    // A client without a section may use everything.
    let mut other = Peer::start(&world, &packages, Sdk::TypeScript, Reach::Stdio(&[]), false);
    assert_eq!(other.line("agent-magic-tool tasks")["isError"], false);
}

#[test]
fn a_client_that_is_named_cannot_call_itself_something_else() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let key = world.home().join("narrow-key");
    std::fs::write(&key, "k".repeat(40)).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("changed");
    world.configure(&format!("{LISTS}key_file = \"{}\"\n", key.display()));
    let mut server = HttpServer::start(&world, &["--expose", "*"]);
    server.key = "k".repeat(40);
    for reach in [Reach::Http(&server), Reach::Stdio(&["--client", "narrow", "--expose", "*"])] {
        let mut peer = Peer::start(&world, &packages, Sdk::Python, reach, false);
        let tools = peer.ask(&json!({"op": "list_tools"}));
        let names: Vec<_> = tools["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["command_executor", "say"]);
        let refused = peer.line("agent-magic-tool run hold");
        assert!(refused["isError"] == true && text(&refused).contains("unknown-subtool"), "{refused}");
        assert_eq!(peer.line("agent-magic-tool run say text=x")["isError"], false);
    }
}
