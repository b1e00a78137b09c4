//! `secret`: values are stored and never printed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::World;

#[test]
fn a_value_is_stored_listed_by_name_and_removed() {
    let world = World::new();
    assert_snapshot!(world.run_with(&["secret", "set", "github"], "hunter2-hunter2\n"), @r#"
    exit: 0
    --- stdout
    {"name":"github","stored":true}
    "#);
    assert_snapshot!(world.run(&["secret", "list"]), @r#"
    exit: 0
    --- stdout
    [{"name":"github","from":"stored"}]
    "#);
    let file = world.state().join("secrets/github");
    assert_eq!(fs::read_to_string(&file).expect("stored"), "hunter2-hunter2");
    assert_eq!(fs::metadata(&file).expect("stored").permissions().mode() & 0o777, 0o600);
    assert_snapshot!(world.run(&["secret", "rm", "github"]), @r#"
    exit: 0
    --- stdout
    {"name":"github","removed":true}
    "#);
    assert_snapshot!(world.run(&["secret", "rm", "github"]), @r#"
    exit: 3
    --- stderr
    {"error":{"code":"not-found","message":"no value is stored for the secret `github`","hint":"the names, and where their values come from: agent-magic-tool secret list"}}
    "#);
}

#[test]
fn a_weak_value_is_stored_only_if_the_human_insists() {
    let world = World::new();
    assert_snapshot!(world.run_with(&["secret", "set", "db"], "test\n"), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"this is not a good secret: it has fewer than 8 bytes","hint":"use a longer one, since results could not be cleaned of it without damage to ordinary text; if the service has no better one, pass --weak"}}
    "#);
    for weak in ["hunter2", "password", "Swordfish", "abababababab", "年度"] {
        let refused = world.run_with(&["secret", "set", "db"], weak);
        assert_eq!((refused.exit, refused.stderr.contains(weak)), (2, false), "{refused}");
        assert!(!world.state().join("secrets/db").exists(), "{weak}");
    }
    assert_eq!(world.run_with(&["secret", "set", "db", "--weak"], "test").exit, 0);
    for good in ["hunter2-hunter2", "correct horse", "Tr0ub4dor", "qwjzkvxhqwjzkvxh"] {
        let stored = world.run_with(&["secret", "set", "db"], good);
        assert_eq!(stored.exit, 0, "{stored}");
    }
}

#[test]
fn an_empty_value_and_an_invalid_name_are_refused() {
    let world = World::new();
    assert_snapshot!(world.run_with(&["secret", "set", "github"], "\n"), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"the value is empty","hint":"pass it on standard input: printf %s \"$TOKEN\" | agent-magic-tool secret set github"}}
    "#);
    // The error does not repeat the name, which may be a value given by mistake.
    let ran = world.run_with(&["secret", "set", "ghp_../canary"], "y");
    assert_eq!((ran.exit, ran.stderr.contains("canary")), (2, false), "{ran}");
}

#[test]
fn a_folder_of_secrets_that_others_can_enter_is_closed_before_a_value_is_stored() {
    let world = World::new();
    let folder = world.state().join("secrets");
    fs::create_dir_all(&folder).expect("made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
    assert_eq!(world.run_with(&["secret", "set", "github"], "hunter2-hunter2").exit, 0);
    assert_eq!(fs::metadata(&folder).expect("a folder").permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_secret_that_gets_its_first_list_is_restricted_with_a_warning_that_names_where_it_goes() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let tool = |run: Value| json!({"description": "Gets it.", "input": {"type": "object"}, "run": run});
    let client = json!({"token_url": "https://token.example/t", "client_id": "a", "client_secret": "secret:shared"});
    let of =
        |host: &str| json!({"url": format!("https://{host}/mcp"), "name": "x", "headers": {"X-Key": "secret:shared"}});
    world.define(
        "own.json",
        &json!({
            "plain": tool(json!({"http": {"base_url": "https://http.example", "auth": {"bearer": "secret:shared"}}})),
            "deep": tool(json!({"http": {"method": "POST", "base_url": "https://body.example",
                "body": {"json": {"url": "https://data.example", "a": [{"k": "secret:shared"}]}}}})),
            "token": tool(json!({"http": {"base_url": "https://api.example", "auth": {"client_credentials": client}}})),
            "server": tool(json!({"mcp": {"tool": "x", "server": of("mcp.example")}})),
            "program": tool(json!({"process": {"argv": ["true"], "env": {"K": "secret:shared"}}})),
        }),
    );
    assert_eq!(world.run_with(&["secret", "set", "shared"], "a-value-0123456789").exit, 0);
    let allowed = world.run(&["secret", "allow", "shared", "http.example"]);
    assert_eq!((allowed.exit, &allowed.json()["hosts"]), (0, &json!(["http.example"])), "{allowed}");
    let hint = "agent-magic-tool secret allow shared api.example body.example mcp.example token.example";
    assert!(allowed.stderr.contains("goes to `http.example` alone"), "{allowed}");
    assert!(allowed.stderr.contains(hint) && !allowed.stderr.contains("data.example"), "{allowed}");
    let again = world.run(&["secret", "allow", "shared", "api.example"]);
    assert_eq!((again.exit, again.stderr.as_str()), (0, ""), "it has a list: {again}");
    assert_eq!(world.run(&["secret", "rm", "shared"]).exit, 0);
    assert_eq!(world.run_with(&["secret", "set", "shared"], "a-value-0123456789").exit, 0);
    assert_eq!(world.run(&["secret", "list"]).json(), json!([{"name": "shared", "from": "stored"}]));
}
