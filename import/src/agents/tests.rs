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

#[test]
fn a_server_is_taken_over_with_its_secrets_apart() {
    let text = r#"{"mcpServers": {
        "git hub": {"command": "npx", "args": ["-y", "x"], "cwd": "/srv", "env": {"GITHUB_TOKEN": "abc12345", "LEVEL": "debug", "PORT": 80,
            "OTHER": "ghp_0123456789abcdef", "LATER": "${input:later}"}},
        "web": {"type": "sse", "url": "https://a.example/sse", "headers": {"Authorization": "Bearer topsecret", "X-Mode": "fast"}}
    }}"#;
    let read = PLACES[1].settings(text).expect("JSON");
    assert!(!format!("{read:?}").contains("abc12345"));
    let made = read[0].connection("github", &|_| false);
    assert_eq!(
        made.server,
        json!({"name": "github", "command": ["npx", "-y", "x"], "folder": "/srv",
            "env": {"GITHUB_TOKEN": "secret:github-GITHUB_TOKEN", "LEVEL": "debug", "PORT": "80",
                "OTHER": "secret:github-OTHER", "LATER": "secret:github-LATER"}})
    );
    let values: Vec<_> = made.secrets.iter().map(|secret| (secret.name.as_str(), secret.value.as_deref())).collect();
    assert_eq!(
        values,
        [
            ("github-GITHUB_TOKEN", Some("abc12345")),
            ("github-LATER", None),
            ("github-OTHER", Some("ghp_0123456789abcdef"))
        ]
    );
    assert!(!format!("{made:?}").contains("abc12345"));
    let made = read[1].connection("web", &|value| value == "fast");
    assert_eq!(
        made.server,
        json!({"name": "web", "url": "https://a.example/sse", "transport": "sse",
            "headers": {"Authorization": "Bearer secret:web-Authorization", "X-Mode": "secret:web-X-Mode"}})
    );
    let codex = "[mcp_servers.docs]\nurl = \"https://a.example/mcp\"\nbearer_token_env_var = \"DOCS\"\n";
    let place = PLACES.iter().find(|place| place.client == "codex").expect("a place");
    let made = place.settings(codex).expect("TOML")[0].connection("docs", &|_| false);
    assert_eq!(made.server["headers"], json!({"Authorization": "Bearer secret:docs-Authorization"}));
    assert_eq!(made.secrets[0].value, None);
}

#[test]
fn a_credential_is_found_where_it_would_stand_in_a_file() {
    for (name, value, expected) in [
        ("API_KEY", "abc", true),
        ("AUTH", "none", false),
        ("NODE_ENV", "production", false),
        ("X", "ghp_0123456789abcdef", true),
        ("SSH_KEY", "/home/u/.ssh/key", false),
        ("REGION", "eu-central-1", false),
    ] {
        assert_eq!(is_credential_value(name, value), expected, "{name}={value}");
    }
    let found = |line: &str| {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        credential_in_command(&words).map(str::to_owned)
    };
    assert_eq!(found("npx -y @modelcontextprotocol/server-filesystem@2026.8.31 /srv --mode=fast"), None);
    assert_eq!(found("srv --api-key abc123"), Some("abc123".to_owned()));
    assert_eq!(found("srv --token=abc123 x"), Some("--token=abc123".to_owned()));
    assert_eq!(found("srv sk-0123456789abc"), Some("sk-0123456789abc".to_owned()));
    assert_eq!(found("srv postgresql://u:p@db/x"), Some("postgresql://u:p@db/x".to_owned()));
    assert_eq!(found("srv --url=https://a.example/mcp"), None);
    for (url, expected) in [
        ("https://a.example/mcp", false),
        ("https://a.example/mcp?mode=fast", false),
        ("https://a.example/mcp?key=abc", true),
        ("https://u:p@a.example/mcp", true),
        ("https://:p@a.example/mcp", true),
        ("https://reader@a.example/mcp", false),
        ("https://ghp_0123456789abcdef@a.example/mcp", true),
        ("https://0123456789abcdef0123456789abcdef@a.example/mcp", true),
        ("https://a.example/s/0123456789abcdef0123456789abcdef/mcp", true),
    ] {
        assert_eq!(credential_in_url(url), expected, "{url}");
    }
}
