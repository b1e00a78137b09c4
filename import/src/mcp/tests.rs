//! Snapshots of real servers, without their prose, and of servers that mean harm.

use std::collections::BTreeSet;

use super::*;

/// What public servers answered to `tools/list`; their words are replaced.
const SERVERS: [(&str, &str); 7] = [
    ("everything", include_str!("fixtures/everything.json")),
    ("fetch", include_str!("fixtures/fetch.json")),
    ("filesystem", include_str!("fixtures/filesystem.json")),
    ("git", include_str!("fixtures/git.json")),
    ("memory", include_str!("fixtures/memory.json")),
    ("sequential-thinking", include_str!("fixtures/sequential-thinking.json")),
    ("time", include_str!("fixtures/time.json")),
];

fn imported_with(server: &Value, snapshot: &Value, others: &[&str]) -> Imported {
    let document = document("here", server, snapshot).expect("JSON");
    assert!(recognizes(&document));
    let others = others.iter().map(|option| ((*option).to_owned(), String::new())).collect();
    import(&document, &ImportOptions { others, ..ImportOptions::default() }).expect("a snapshot")
}

fn imported(snapshot: &Value) -> Imported {
    imported_with(&json!({"name": "demo", "command": ["demo"], "transport": "auto"}), snapshot, &[])
}

/// A snapshot of one tool.
fn one(tool: &Value) -> Value {
    json!({"protocol": "2026-07-28", "info": {"name": "demo"}, "tools": [{"digest": "0123456789abcdef", "tool": tool}]})
}

fn fixture(name: &str) -> Value {
    let (_, text) = SERVERS.iter().find(|(known, _)| *known == name).expect("a fixture");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn every_tool_of_public_servers_becomes_a_definition() {
    for (name, _) in SERVERS {
        let snapshot = fixture(name);
        let made = imported_with(&json!({"name": name, "command": [name]}), &snapshot, &[]);
        assert_eq!((made.subtools.len(), made.left_out.len()), (made.found, 0), "{name}: {:?}", made.left_out);
        assert_eq!(made.simplified, [], "{name}");
        let names: BTreeSet<_> = made.subtools.iter().map(|subtool| subtool.name.as_str()).collect();
        assert_eq!(names.len(), made.found, "{name}");
        for (subtool, entry) in made.subtools.iter().zip(snapshot["tools"].as_array().expect("tools")) {
            let (definition, tool) = (&subtool.definition, &entry["tool"]);
            assert_eq!(definition["run"], json!({"mcp": {"tool": tool["name"], "digest": entry["digest"]}}));
            assert_eq!(definition["input"]["required"], tool["inputSchema"]["required"], "{name}");
            assert_eq!(definition.contains_key("output"), tool.get("outputSchema").is_some(), "{name}");
        }
    }
}

#[test]
fn the_server_and_its_own_words_are_kept() {
    let snapshot = json!({"protocol": "2026-07-28", "info": {"name": "Demo", "version": "1.2"}, "instructions": "Ask first.",
        "tools": [{"digest": "0123456789abcdef", "tool": {"name": "say.hello", "title": "Grüßen", "description": " Says hello.\n\nTwice. ",
            "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true, "openWorldHint": false, "x": 1}}}]});
    let made = imported(&snapshot);
    assert_eq!((made.id.as_str(), made.version.as_deref(), made.word.as_str()), ("Demo", Some("1.2"), "demo"));
    let server = json!({"name": "demo", "command": ["demo"], "protocol": "2026-07-28"});
    assert_eq!(Value::Object(made.defaults), json!({"run": {"mcp": {"server": server}}, "tags": ["demo"]}));
    assert_eq!(
        Value::Object(made.subtools[0].definition.clone()),
        json!({
            "description": "Says hello.\n\nTwice.",
            "phrases": ["Grüßen"],
            "input": {"type": "object"},
            "run": {"mcp": {"tool": "say.hello", "digest": "0123456789abcdef"}}
        })
    );
    assert_eq!(made.subtools[0].name, "say_hello");
    assert_eq!(
        Value::Object(made.about),
        json!({"instructions": "Ask first.", "annotations": {"say.hello": {"readOnlyHint": true, "openWorldHint": false}}})
    );
    assert!(made.notes[0].contains("--trust-annotations"), "{:?}", made.notes);
}

#[test]
fn a_claim_lowers_no_gate_unless_the_server_is_trusted() {
    let claims =
        json!({"readOnlyHint": true, "idempotentHint": true, "destructiveHint": false, "openWorldHint": false});
    let harmless = one(&json!({"name": "a", "inputSchema": {"type": "object"}, "annotations": claims}));
    assert_eq!(imported(&harmless).subtools[0].definition.get("annotations"), None);
    let server = json!({"name": "demo", "command": ["demo"]});
    let trusted = imported_with(&server, &harmless, &[TRUST_ANNOTATIONS]);
    assert_eq!(trusted.subtools[0].definition["annotations"], claims);
    assert!(trusted.notes.is_empty());
    let claims =
        json!({"readOnlyHint": true, "destructiveHint": true, "openWorldHint": true, "title": "T", "own": true});
    let harmful = one(&json!({"name": "a", "inputSchema": {"type": "object"}, "annotations": claims}));
    assert_eq!(
        imported(&harmful).subtools[0].definition["annotations"],
        json!({"destructiveHint": true, "openWorldHint": true})
    );
}

#[test]
fn a_tool_that_cannot_be_used_is_left_out_with_the_reason_and_hides_no_other() {
    let tool = |tool: Value| json!({"digest": "0123456789abcdef", "tool": tool});
    let schema = json!({"type": "object"});
    let snapshot = json!({"tools": [
        tool(json!({"name": "good", "inputSchema": schema})),
        tool(json!({"name": "good", "inputSchema": schema})),
        tool(json!({"name": "", "inputSchema": schema})),
        tool(json!({"inputSchema": schema})),
        tool(json!({"name": "no_schema"})),
        tool(json!({"name": "elsewhere", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://evil.example/s"}}}})),
        tool(json!({"name": "odd_header", "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}})),
        tool(json!({"name": "odd_output", "inputSchema": schema, "outputSchema": {"$ref": "https://evil.example/s"}})),
        json!(5)
    ]});
    let names = |made: &Imported| made.subtools.iter().map(|subtool| subtool.name.clone()).collect::<Vec<_>>();
    let made = imported(&snapshot);
    assert_eq!(names(&made), ["good", "odd_header", "odd_output"]);
    assert_eq!(made.subtools.len() + made.left_out.len(), made.found);
    assert_eq!(made.simplified.len(), 1, "{:?}", made.simplified);
    assert!(!made.subtools[2].definition.contains_key("output"));
    // Over HTTP the protocol demands that the tool with a wrong header is refused.
    let remote = imported_with(&json!({"name": "demo", "url": "https://demo.example/mcp"}), &snapshot, &[]);
    assert_eq!(names(&remote), ["good", "odd_output"]);
}

#[test]
fn words_are_bounded_and_never_empty() {
    let made = imported(&one(&json!({"name": "a", "title": "A title", "inputSchema": {}, "description": "  "})));
    assert_eq!(made.subtools[0].definition["description"], "A title. Calls the tool `a` of the MCP server demo.");
    let made = imported(&one(&json!({"name": "a", "inputSchema": {}, "description": "word ".repeat(10_000)})));
    let description = made.subtools[0].definition["description"].as_str().expect("a text");
    assert!(description.chars().count() <= MAX_DESCRIPTION_CHARS && description.ends_with('…'));
    assert_eq!(made.simplified.len(), 1);
    // Hidden characters are not removed here: what a model reads is what lint and the page look at.
    let made = imported(&one(&json!({"name": "a", "inputSchema": {}, "description": "Adds\u{200b} numbers"})));
    assert_eq!(made.subtools[0].definition["description"], "Adds\u{200b} numbers");
}

#[test]
fn a_prefix_goes_before_every_name() {
    let server = json!({"name": "files", "command": ["files"]});
    let made = imported_with(&server, &fixture("filesystem"), &[PREFIX]);
    assert!(made.subtools.iter().all(|subtool| subtool.name.starts_with("files__")), "{:?}", made.subtools);
}

#[test]
fn a_pack_is_named_after_the_server_or_its_host() {
    for (name, expected) in [("GitHub", "GitHub"), ("my server!", "my-server"), ("日本", "mcp"), ("a.b/c", "a-b-c")] {
        assert_eq!(pack_name(name), expected);
    }
    for (url, expected) in [
        ("https://mcp.linear.app/sse", "linear"),
        ("http://127.0.0.1:8000/mcp", "mcp"),
        ("https://docs.mcp.cloudflare.com/mcp", "cloudflare"),
        ("no", "mcp"),
    ] {
        assert_eq!(pack_name_of_url(url), expected);
    }
}
