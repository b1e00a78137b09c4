//! `new`, `test` and `logs`, for the developers of subtools.

use serde_json::json;

use crate::world::World;

#[test]
fn every_template_passes_lint_and_its_dry_run() {
    let world = World::new();
    world.configure("[catalog]\npacks = [\"files\"]\n[models.a]\nprovider = \"ollama\"\n[agent]\nmodel = \"a\"\n");
    for runner in ["http", "http-write", "process", "ask-user", "llm", "agent"] {
        let name = format!("my_{}", runner.replace('-', "_"));
        let made = world.run(&["new", &name, "--runner", runner]);
        assert_eq!((made.exit, &made.json()["subtool"]), (0, &json!(name)), "{made}");
    }
    let lint = world.run(&["lint"]);
    assert_eq!((lint.exit, lint.json()), (0, json!([])), "{lint}");
    let tested = world.run(&["test", "my_http", "--dry-run"]);
    assert_eq!(tested.exit, 0, "{tested}");
    assert_eq!(tested.json()[0]["would_send"]["http"]["url"], "https://api.example.com/v1/weather/Lisbon", "{tested}");
    let again = world.run(&["new", "my_http"]);
    assert_eq!((again.exit, again.error()["code"].as_str()), (2, Some("usage")), "{again}");
}

#[test]
fn a_pasted_curl_line_becomes_a_subtool_without_its_credential() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let pasted = "curl -sS -X POST 'https://api.crm.example/v2/leads?team=blue&limit=5' \\\n  \
                -H 'Authorization: Bearer sk-live-0123456789' -H 'X-Trace: on' \\\n  \
                --data-raw '{\"name\": \"Ann\", \"age\": 41, \"tags\": [\"a\"]}'";
    let made = world.run(&["new", "lead_create", "--curl", pasted]);
    assert_eq!(made.exit, 0, "{made}");
    assert!(made.stderr.contains("agent-magic-tool secret set crm_token"), "{made}");
    assert!(made.stderr.contains("add \"verify\""), "{made}");
    let text = std::fs::read_to_string(world.subtools().join("lead_create.json")).expect("written");
    assert!(!text.contains("sk-live"), "{text}");
    let lint = world.run(&["lint"]);
    // The author still has to say what it is for.
    assert_eq!(
        (lint.exit, lint.json()[0]["code"].as_str(), lint.json().as_array().map(Vec::len)),
        (0, Some("rarely-given-required"), Some(1)),
        "{lint}"
    );
    let plan = world.run(&["test", "lead_create", "--dry-run"]).json()[0]["would_send"]["http"].clone();
    assert_eq!(
        plan,
        json!({
            "method": "POST", "url": "https://api.crm.example/v2/leads?team=blue&limit=5",
            "headers": {"user-agent": "agent-magic-tool", "accept": "*/*", "content-type": "application/json",
                "x-trace": "on", "authorization": "Bearer secret:crm_token"},
            "body": {"name": "Ann", "age": 41, "tags": ["a"]}
        })
    );
    let local = "curl -H 'Authorization: Bearer x' http://127.0.0.1:8080/x";
    let made = world.run(&["new", "own_api", "--print", "--curl", local]);
    assert!(made.stdout.contains("secret:own_api_token") && !made.stderr.contains("verify"), "{made}");
    for (line, word) in [("wget https://a.example", "`curl`"), ("curl", "no URL"), ("curl 'https://a", "quote")] {
        let refused = world.run(&["new", "other", "--curl", line]);
        assert_eq!(refused.exit, 2, "{refused}");
        assert!(refused.stderr.contains(word), "{refused}");
    }
}

#[test]
fn test_runs_the_examples_and_logs_shows_what_happened() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let say = |argv: serde_json::Value| {
        json!({"description": "Says a word back.", "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {"word": {"type": "string", "description": "The word."}},
                "additionalProperties": false},
            "run": {"process": {"argv": argv}}, "examples": [{"input": {"word": "zebra"}, "note": "an animal"}]})
    };
    world.define(
        "say.json",
        &json!({"say": say(json!(["echo", "--", "{{ word }}", "{{ input.word }}"])),
        "fail": say(json!(["false", "{{ word }}"]))}),
    );
    let said = world.run(&["test", "say"]);
    assert_eq!(said.exit, 0, "{said}");
    assert_eq!(
        said.json(),
        json!([{"input": {"word": "zebra"}, "ok": true, "status": "succeeded",
        "data": "-- zebra zebra", "note": "an animal"}]),
        "{said}"
    );
    let failed = world.run(&["test", "fail"]);
    assert_eq!((failed.exit, &failed.json()[0]["error"]["code"]), (1, &json!("process-failed")), "{failed}");
    world.define(
        "ask.json",
        &json!({"ask": {"description": "Asks.", "input": {}, "confirm": "always",
        "run": {"process": {"argv": ["true"]}}, "examples": [{"input": {}}]}}),
    );
    let asked = world.run(&["test", "ask"]);
    assert_eq!((asked.exit, &asked.json()[0]["status"]), (4, &json!("pending")), "{asked}");
    let logs = world.run(&["logs", "-n", "100"]);
    assert_eq!(logs.exit, 0, "{logs}");
    assert!(logs.stdout.lines().any(|line| line.contains("INFO")) && !logs.stdout.contains('{'), "{logs}");
    assert_eq!(world.run(&["test", "nothing"]).exit, 3);
}

#[test]
fn a_variable_and_an_override_reach_the_request() {
    let world = World::new();
    world.configure("[catalog]\npacks = [\"git\"]\n[vars]\ncrm = \"https://crm.example\"\nlimit = 7\n");
    world.define("own.json", &json!({
        "$overrides": {"git_log": {"description": "Lists the history of this folder, newest first.", "confirm": "always", "timeout": "5s"}},
        "lead_find": {"description": "Finds a lead by its name.", "phrases": ["who is this customer"], "annotations": {"readOnlyHint": true},
            "input": {"type": "object", "properties": {"name": {"type": "string", "description": "The name."}},
                "required": ["name"], "additionalProperties": false},
            "run": {"http": {"base_url": "{{ vars.crm }}/v1", "path": "/leads/{{ name }}",
                "query": {"limit": "{{ vars.limit }}", "run": "{{ task.id }}", "depth": "{{ caller.depth }}"}}},
            "result": {"select": ".[:$vars.limit] | map(select(.name == $input.name))"}}}));
    let lint = world.run(&["lint"]);
    assert_eq!((lint.exit, lint.json()), (0, json!([])), "{lint}");
    let plan = world.run(&["run", "lead_find", "name=Ann", "--dry-run"]).json();
    let url = plan["would_send"]["http"]["url"].as_str().unwrap_or_default().to_owned();
    assert!(url.starts_with("https://crm.example/v1/leads/Ann?limit=7&run=") && url.ends_with("&depth=0"), "{plan}");
    let shown = world.run(&["inspect", "git_log"]).json();
    assert_eq!(shown["definition"]["description"], "Lists the history of this folder, newest first.");
    assert_eq!((&shown["definition"]["timeout"], &shown["definition"]["confirm"]), (&json!("5s"), &json!("always")));
    assert!(shown["changed_by"].as_str().is_some_and(|file| file.ends_with("own.json")), "{shown}");
    world
        .define("own.json", &json!({"$overrides": {"git_lag": {"timeout": "5s"}, "git_log": {"run": {"shell": "x"}}}}));
    let lint = world.run(&["lint", "--format=lines"]).to_string();
    assert!(lint.contains("$overrides.git_log.run"), "{lint}");
    world.define("own.json", &json!({"$overrides": {"git_lag": {"timeout": "5s"}}}));
    let lint = world.run(&["lint", "--format=lines"]).to_string();
    assert!(lint.contains("no subtool of a pack named `git_lag`; did you mean `git_log`?"), "{lint}");
}

/// Variables are filled in when a definition is loaded, wherever they stand in it.
#[test]
fn a_pasted_curl_line_names_no_variable_and_no_other_secret() {
    let world = World::new();
    world.configure("[vars]\nteam = \"the value of the variable\"\n");
    for (place, line) in [
        ("query", "curl 'http://127.0.0.1:9911/a?x={{ vars.team }}'"),
        ("method", "curl -X '{{ vars.team }}' http://127.0.0.1:9911/a"),
        ("user", "curl -u '{{ vars.team }}:x' http://127.0.0.1:9911/a"),
        ("body", "curl http://127.0.0.1:9911/a -d '{\"x\": \"{{ vars.team }}\"}'"),
        ("form", "curl http://127.0.0.1:9911/a -F 'x=$vars.team'"),
        ("header", "curl http://127.0.0.1:9911/a?x=1 -H 'Authorization: {{x}} y'"),
    ] {
        let made = world.run(&["new", "pasted", "--print", "--curl", line]);
        assert_eq!((made.exit, made.stdout.as_str()), (2, ""), "{place}: {made}");
        let message = made.error()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("would be a template or a secret's name"), "{place}: {made}");
    }
    let made = world.run(&["new", "plain", "--print", "--curl", "curl 'http://127.0.0.1:9911/a?x=red'"]);
    assert_eq!(made.exit, 0, "{made}");
}
