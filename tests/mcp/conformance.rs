//! The conformance suite of the protocol's makers, with its fixtures offered as subtools.
//!
//! What it demands and the server does not do is listed, with the reasons, in `conformance-*.yml`. The suite also fails
//! when something listed there passes.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::peers::{HttpServer, node, packages};
use crate::world::World;

/// The revisions: the current one, and the last with a handshake.
const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];

/// Adds the key, which the suite cannot send.
struct Proxy {
    process: Child,
    url: String,
}

impl Proxy {
    fn start(packages: &Path, tests: &Path, server: &HttpServer) -> Self {
        use std::io::{BufRead as _, BufReader};
        let mut command = Command::new(node(packages));
        command.arg(tests.join("proxy.mjs")).args([&server.url, &server.key]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut url).expect("it prints its URL");
        Self { process, url: url.trim().to_owned() }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().expect("it ends with its input");
    }
}

/// How often the suite is run until it passes.
const MAX_RUNS: usize = 3;

#[test]
fn every_scenario_passes_or_is_listed_with_the_reason() {
    let Some(packages) = packages() else { return };
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/mcp");
    let world = World::new();
    let fixtures: Value =
        serde_json::from_slice(&std::fs::read(tests.join("conformance.json")).expect("the fixtures")).expect("JSON");
    world.define("conformance.json", &fixtures);
    // The suite waits less than a second for the news of a subtool; a debug build indexes the packs that ship longer.
    world.configure("[catalog]\npacks = []\n");
    let names = fixtures.as_object().expect("an object").keys().map(String::as_str);
    // One of the fixtures adds others.
    let exposed: Vec<_> = names.chain(["test_triggered_*"]).flat_map(|name| ["--expose", name]).collect();
    let server = HttpServer::start(&world, &exposed);
    let proxy = Proxy::start(&packages, &tests, &server);
    let suite = packages.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    for revision in REVISIONS {
        let listed = tests.join(format!("conformance-{revision}.yml"));
        let run = || {
            let mut command = world.within(node(&packages), &[]);
            command.arg(&suite).args(["server", "--url", &proxy.url, "--requirements", revision]);
            command.arg("--expected-failures").arg(&listed).output().expect("it starts")
        };
        // The suite has time-outs of a second, which a busy machine exceeds.
        let mut output = run();
        for _ in 1..MAX_RUNS {
            if !output.status.success() {
                output = run();
            }
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let summary = printed.split("=== SUMMARY ===").last().unwrap_or_default();
        assert!(output.status.success(), "{revision}: {summary}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}
