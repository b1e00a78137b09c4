//! Each client's own format, as its documentation has it.

use serde_json::json;

use super::*;

fn servers(client: &str, file: &str, text: &str) -> Value {
    let place = PLACES.iter().find(|place| place.client == client && place.file == file).expect("a known place");
    serde_json::to_value(place.servers(text).expect("it can be read")).expect("it is JSON")
}

#[test]
fn claude_code_has_servers_of_the_user_and_of_projects() {
    let text = r#"{"numStartups": 3,
        "mcpServers": {"linear": {"type": "http", "url": "https://mcp.linear.app/mcp", "headers": {"Authorization": "Bearer abc"}}},
        "projects": {"/work/shop": {"mcpServers": {"db": {"type": "stdio", "command": "npx", "args": ["-y", "db-mcp"], "env": {"DB_PASSWORD": "hunter22"}}}}, "/empty": {}}}"#;
    assert_eq!(
        servers("claude-code", ".claude.json", text),
        json!([
            {"name": "linear", "transport": "http", "url": "https://mcp.linear.app/mcp", "headers": ["Authorization"]},
            {"name": "db", "transport": "stdio", "command": ["npx", "-y", "db-mcp"], "environment": ["DB_PASSWORD"], "project": "/work/shop"}
        ])
    );
}

#[test]
fn vs_code_opencode_and_zed_allow_comments() {
    let text = "{// mine\n \"servers\": {\"github\": {\"type\": \"sse\", \"url\": \"https://a.example/sse\"},}, \"inputs\": []}";
    assert_eq!(
        servers("vs-code", ".vscode/mcp.json", text),
        json!([{"name": "github", "transport": "sse", "url": "https://a.example/sse"}])
    );
    let local = r#"{"type": "local", "command": ["bun", "x", "mcp"], "environment": {"A": "1"}, "enabled": false}"#;
    let expected = json!([{"name": "a", "transport": "stdio", "command": ["bun", "x", "mcp"], "environment": ["A"], "disabled": true}]);
    for text in [format!(r#"{{"mcp": {{"a": {local}}}}}"#), format!(r#"{{"mcp": {{"servers": {{"a": {local}}}}}}}"#)] {
        assert_eq!(servers("opencode", "opencode.jsonc", &text), expected);
    }
    let text = r#"{"context_servers": {
        "new": {"source": "custom", "command": "uv", "args": ["run", "main.py"], "env": {}},
        "old": {"command": {"path": "node", "args": ["s.js"], "env": {"TOKEN": "x"}}},
        "far": {"url": "https://b.example/mcp"},
        "extension": {"source": "extension", "settings": {}}
    }}"#;
    assert_eq!(
        servers("zed", "zed/settings.json", text),
        json!([
            {"name": "new", "transport": "stdio", "command": ["uv", "run", "main.py"]},
            {"name": "old", "transport": "stdio", "command": ["node", "s.js"], "environment": ["TOKEN"]},
            {"name": "far", "transport": "http", "url": "https://b.example/mcp"},
            {"name": "extension", "transport": "unknown"}
        ])
    );
}

#[test]
fn codex_and_gemini_have_their_own_words() {
    let text = r#"
        model = "x"
        [mcp_servers.figma]
        url = "https://mcp.figma.com/mcp"
        bearer_token_env_var = "FIGMA_TOKEN"
        env_http_headers = { "X-Team" = "TEAM" }
        http_headers = { "X-Region" = "eu" }
        [mcp_servers.local]
        command = "uvx"
        args = ["server"]
        env_vars = ["HOME_TOKEN", { name = "OTHER", source = "local" }]
        enabled = false
        [mcp_servers.local.env]
        LEVEL = "debug"
    "#;
    assert_eq!(
        servers("codex", "config.toml", text),
        json!([
            {"name": "figma", "transport": "http", "url": "https://mcp.figma.com/mcp", "environment": ["FIGMA_TOKEN", "TEAM"],
             "headers": ["X-Region", "X-Team", "Authorization"]},
            {"name": "local", "transport": "stdio", "command": ["uvx", "server"], "environment": ["LEVEL", "HOME_TOKEN", "OTHER"], "disabled": true}
        ])
    );
    let text = r#"{"mcpServers": {"a": {"httpUrl": "https://a.example/mcp"}, "b": {"url": "http://localhost:9/sse"}}}"#;
    assert_eq!(
        servers("gemini-cli", ".gemini/settings.json", text),
        json!([
            {"name": "a", "transport": "http", "url": "https://a.example/mcp"},
            {"name": "b", "transport": "sse", "url": "http://localhost:9/sse"}
        ])
    );
}

#[test]
fn no_secret_is_told() {
    let text = r#"{"mcpServers": {"a": {"command": "docker", "args": [
        "run", "-e", "GITHUB_TOKEN=ghp_1234567890abcdef", "--api-key", "hunter2hunter2", "--password=opensesame",
        "postgresql://ann:geheim@db.example/shop", "https://u.example/mcp?key=abcdef", "AbCdEf0123456789AbCdEf01",
        "--header", "Authorization: Bearer zzz", "Authorization:Bearer yyy", "-v", "/home/ann:/data", "server-name"]},
        "b": {"url": "https://ann:pw@mcp.example/s/0f8fad5b-d9cb-469f-a165-70867728950e/mcp?apiKey=topsecret#frag"}}}"#;
    let found = servers("cursor", ".cursor/mcp.json", text);
    assert_eq!(
        found[0]["command"],
        json!([
            "docker",
            "run",
            "-e",
            "GITHUB_TOKEN=…",
            "--api-key",
            "…",
            "--password=…",
            "postgresql://…@db.example/shop",
            "https://u.example/mcp?key=…",
            "…",
            "--header",
            "…",
            "Authorization: …",
            "-v",
            "/home/ann:/data",
            "server-name"
        ])
    );
    assert_eq!(found[1]["url"], "https://…@mcp.example/s/…/mcp?apiKey=…");
}

#[test]
fn a_broken_file_is_named_without_its_content() {
    let error = |client: &str, text: &str| {
        let place = PLACES.iter().find(|place| place.client == client).expect("a known client");
        place.servers(text).expect_err("it is broken").to_string()
    };
    let message = error("codex", "[mcp_servers.a]\ntoken = \"topsecret\n");
    assert_eq!(message, "it is not valid TOML on line 2");
    let message = error("cursor", "{\"mcpServers\": {\"topsecret\" ]}");
    assert!(message.starts_with("it is not valid JSON: ") && !message.contains("topsecret"), "{message}");
    assert!(PLACES[4].servers("").expect("an empty file is no mistake").is_empty());
}
