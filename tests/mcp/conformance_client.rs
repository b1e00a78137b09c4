//! The conformance suite's client scenarios against the `mcp` runner: the suite plays the server, a tool of which is
//! imported and run like any other.
//!
//! The suite starts a client of its own for each scenario. That client is this test program again, with
//! [`client_of_a_scenario`] as its only test.

use std::process::Command;
use std::{env, fs};

use serde_json::{Map, Value, json};

use super::peers::{node, packages};
use crate::page::human::Human;
use crate::world::{World, until};

/// Which scenarios of a revision are run: those without a sign-in. `json-schema-2020-12-preservation`, which no revision
/// requires, is left out: an import drops `$schema`, which says what is so anyway and which a model would pay for.
const SCENARIOS: [(&str, &[&str]); 2] = [
    (
        "2026-07-28",
        &[
            "tools_call",
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
        ],
    ),
    ("2025-11-25", &["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"]),
];

/// The URL of the suite's server, for the client.
const URL: &str = "AGENT_MAGIC_TOOL_TEST_SCENARIO_URL";

#[test]
fn every_client_scenario_passes() {
    let Some(packages) = packages() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // The suite adds the URL to the command line, where the test harness would take it for a filter.
    let client = folder.path().join("client");
    let program = env::current_exe().expect("this program");
    let script = format!(
        "#!/bin/sh\n{URL}=$1 exec {} --exact mcp::conformance_client::client_of_a_scenario --ignored --nocapture\n",
        program.display()
    );
    fs::write(&client, script).expect("written");
    let suite = packages.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut failed = Vec::new();
    for (revision, scenarios) in SCENARIOS {
        for scenario in scenarios {
            let mut command = Command::new(node(&packages));
            command.arg(&suite).args([
                "client",
                "--scenario",
                scenario,
                "--spec-version",
                revision,
                "--timeout",
                "120000",
            ]);
            let command = command.args(["--command", &format!("sh {}", client.display())]).current_dir(folder.path());
            let output = command.output().expect("it starts");
            if !output.status.success() {
                failed.push(format!(
                    "{revision} {scenario}:\n{}\n{}",
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Imports the tools of the suite's server, runs them, and answers what it asks.
#[test]
#[ignore = "started by the conformance suite"]
fn client_of_a_scenario() {
    let Ok(url) = env::var(URL) else { return };
    let world = World::new();
    world.configure("[[confirm.rules]]\ntools = [\"*\"]\nthen = \"allow\"\n");
    let imported = world.run(&["import", "mcp", "scenario", &url]);
    assert_eq!(imported.exit, 0, "{imported}");
    let file = world.subtools().join("scenario.json");
    let definitions: Map<String, Value> =
        serde_json::from_slice(&fs::read(&file).expect("the imported file")).expect("JSON");
    let context: Value =
        env::var("MCP_CONFORMANCE_CONTEXT").ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let subtools: Vec<_> = definitions.iter().filter(|(name, _)| !name.starts_with('$')).collect();
    let named = |tool: &Value| subtools.iter().find(|(_, definition)| definition["run"]["mcp"]["tool"] == *tool);
    let calls: Vec<(String, Value)> = match context["toolCalls"].as_array() {
        Some(calls) => calls
            .iter()
            .map(|call| (named(&call["name"]).expect("it is imported").0.clone(), given(&call["arguments"])))
            .collect(),
        None => subtools.iter().map(|(name, definition)| ((*name).clone(), arguments(definition))).collect(),
    };
    let started: Vec<_> = calls.iter().map(|(name, arguments)| world.start(name, arguments)).collect();
    let human = Human::of(&world);
    until("every call has its end", || {
        answer_questions(&world, &human);
        started.iter().all(|id| world.result_file(id)["status"] != "pending")
    });
    for id in &started {
        assert_eq!(world.result_file(id)["status"], "succeeded", "{}", world.result_file(id));
    }
}

/// What is not given is left out: null is a value of its own.
fn given(arguments: &Value) -> Value {
    let given = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// What the tool takes: the numbers that the suite's calculator adds, or anything where something is required.
fn arguments(definition: &Value) -> Value {
    let known = [("a", 2), ("b", 3)];
    let required = definition["input"]["required"].as_array().cloned().unwrap_or_default();
    let taken = definition["input"]["properties"].as_object().into_iter().flatten().filter_map(|(name, parameter)| {
        let known = known.iter().find(|(known, _)| known == name).map(|(_, value)| json!(value));
        let value = known.or_else(|| required.contains(&json!(name)).then(|| example(parameter)))?;
        Some((name.clone(), value))
    });
    Value::Object(taken.collect())
}

/// Accepts each question with what its form suggests.
fn answer_questions(world: &World, human: &Human) {
    let waiting = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
    for question in waiting.as_array().into_iter().flatten() {
        let properties = question["input"]["form"]["properties"].as_object().cloned().unwrap_or_default();
        let required = &question["input"]["form"]["required"];
        let suggested = properties.iter().filter_map(|(name, property)| {
            let is_required = required.as_array().is_some_and(|required| required.iter().any(|it| it == name));
            let value = property.get("default").cloned().or_else(|| is_required.then(|| example(property)))?;
            Some((name.clone(), value))
        });
        let content = Value::Object(suggested.collect());
        human.answer(question["id"].as_str().expect("an id"), "accept", &content);
    }
}

fn example(property: &Value) -> Value {
    match property["type"].as_str() {
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(1),
        _ => json!("text"),
    }
}
