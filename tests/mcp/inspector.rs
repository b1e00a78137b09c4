//! The Inspector's command line.

use serde_json::{Value, json};

use super::peers::{HttpServer, define, node, packages};
use crate::world::{World, program};

#[test]
fn the_inspector_lists_and_calls() {
    let Some(packages) = packages() else { return };
    let world = World::new();
    define(&world);
    let server = HttpServer::start(&world, &[]);
    let header = format!("Authorization: Bearer {}", server.key);
    let program = program();
    // It does not hand its environment on.
    let mailbox = format!("AGENT_MAGIC_TOOL_DIR={}", world.mailbox().display());
    let stdio = ["env", &mailbox, program.to_str().expect("UTF-8"), "mcp"];
    let http = [server.url.as_str(), "--transport", "http", "--header", &header];
    let inspector = packages.join("node_modules/@modelcontextprotocol/inspector");
    let package: Value =
        serde_json::from_slice(&std::fs::read(inspector.join("package.json")).expect("a package")).expect("JSON");
    let script = inspector.join(package["bin"]["mcp-inspector"].as_str().expect("a program"));
    for target in [&stdio[..], &http] {
        let inspect = |method: &[&str]| -> Value {
            let script = script.to_str().expect("UTF-8");
            let arguments: Vec<_> =
                [script, "--cli"].into_iter().chain(target.iter().copied()).chain(method.iter().copied()).collect();
            let output = world.within(node(&packages), &arguments).output().expect("it starts");
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
        };
        let tools = inspect(&["--method", "tools/list"]);
        assert_eq!(tools["tools"][0]["name"], "command_executor", "{tools}");
        let arguments = ["--method", "tools/call", "--tool-name", "command_executor", "--tool-arg"];
        let called = inspect(&[&arguments[..], &["command=run say text=hello --wait"]].concat());
        // On a busy machine a note says what was waited for.
        let text = called["content"][0]["text"].as_str().expect("a text");
        let printed: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!(printed["data"], json!("hello"), "{called}");
        let resources = inspect(&["--method", "resources/list"]);
        assert!(resources["resources"][0]["uri"].is_string(), "{resources}");
    }
}
