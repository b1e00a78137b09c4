//! `import agents`: the MCP servers of other agents are listed, and nothing secret with them.

use std::fs;

use serde_json::json;

use crate::world::World;

#[test]
fn servers_of_other_agents_are_listed_without_secrets_and_a_broken_file_is_named() {
    let world = World::new();
    let (home, work) = (world.home().canonicalize().expect("made"), world.folder().canonicalize().expect("made"));
    let write = |path: std::path::PathBuf, text: &str| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    };
    write(
        home.join(".claude.json"),
        r#"{"mcpServers": {"notes": {"command": "npx", "args": ["-y", "notes-mcp", "--token", "topsecret1"], "env": {"KEY": "topsecret2"}}}}"#,
    );
    write(
        home.join(".codex/config.toml"),
        "[mcp_servers.docs]\nurl = \"https://docs.example/mcp?key=topsecret3\"\nbearer_token_env_var = \"DOCS_TOKEN\"\n",
    );
    write(
        home.join(".config/zed/settings.json"),
        "{ // comments\n \"context_servers\": {\"local\": {\"command\": \"uv\", \"args\": [\"run\"]}} }",
    );
    write(work.join(".vscode/mcp.json"), "{\"servers\": {\"topsecret4\" }");
    let listed = world.run(&["import", "agents"]);
    assert_eq!(listed.exit, 0, "{listed}");
    let report = listed.json();
    let file = |base: &std::path::Path, name: &str| json!(base.join(name));
    assert_eq!(
        report["servers"],
        json!([
            {"client": "claude-code", "file": file(&world.home(), ".claude.json"), "name": "notes", "transport": "stdio",
             "command": ["npx", "-y", "notes-mcp", "--token", "…"], "environment": ["KEY"]},
            {"client": "codex", "file": file(&world.home(), ".codex/config.toml"), "name": "docs", "transport": "http",
             "url": "https://docs.example/mcp?key=…", "environment": ["DOCS_TOKEN"], "headers": ["Authorization"]},
            {"client": "zed", "file": file(&world.home(), ".config/zed/settings.json"), "name": "local", "transport": "stdio",
             "command": ["uv", "run"]}
        ]),
        "{listed}"
    );
    assert_eq!(report["broken"][0]["client"], "vs-code", "{listed}");
    assert!(!listed.to_string().contains("topsecret"), "{listed}");
    assert!(listed.stderr.contains("import mcp --from CLIENT"), "{listed}");
}
