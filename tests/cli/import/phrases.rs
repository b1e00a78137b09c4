//! Everyday requests find the operations of well-known APIs, beside all shipped packs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::torture::{discovery, spec};
use crate::world::World;

/// The requests were written without sight of the phrases and of any ranking.
const REQUESTS: &str = include_str!("../../routing-imported.jsonl");

/// How many of 160 requests find a right operation first, and among the best ten.
const FIRST: u64 = 80;
const AMONG_TEN: u64 = 132;

fn documents() -> Option<Vec<PathBuf>> {
    let google = discovery()?;
    let google = ["calendar.v3", "gmail.v1", "drive.v3", "sheets.v4", "docs.v1", "tasks.v1", "people.v1"]
        .map(|name| google.join(format!("{name}.json")));
    let mut documents = vec![
        spec("@octokit/openapi/generated/api.github.com.json")?,
        spec("@graphcommerce/magento-graphql-rest/scripts/m2rest-admin.json")?,
    ];
    documents.extend(google);
    Some(documents)
}

/// The phrases that ship: operation -> phrases.
fn known(text: &str) -> BTreeMap<String, Value> {
    let known: Value = serde_json::from_str(text).expect("JSON");
    known["operations"].as_object().expect("operations").clone().into_iter().collect()
}

#[test]
fn everyday_requests_find_the_operations_of_well_known_apis() {
    let Some(documents) = documents() else { return };
    let world = World::new();
    let documents: Vec<_> = documents.iter().map(|path| path.display().to_string()).collect();
    let words: Vec<&str> = std::iter::once("import").chain(documents.iter().map(String::as_str)).collect();
    let ran = world.run(&words);
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    // Each operation of which something is known has it, by which its subtool is found here.
    let mut by_phrases = BTreeMap::new();
    for report in ran.json()["sources"].as_array().expect("a report each") {
        for file in report["files"].as_array().expect("files") {
            let text = std::fs::read_to_string(file["file"].as_str().expect("a path")).expect("read");
            let file: Value = serde_json::from_str(&text).expect("JSON");
            // Beside a pack of the same name an import has names of its own.
            let before = file["$namespace"].as_str().map(|namespace| format!("{namespace}-")).unwrap_or_default();
            for (name, definition) in file.as_object().expect("definitions") {
                if let Some(phrases) = definition.get("phrases") {
                    by_phrases.insert(phrases.to_string(), format!("{before}{name}"));
                }
            }
        }
    }
    let mut names: BTreeMap<(&str, String), &String> = BTreeMap::new();
    let mut without = BTreeSet::new();
    for (api, text) in [
        ("github", include_str!("../../../import/phrases/github.json")),
        ("magento", include_str!("../../../import/phrases/magento.json")),
        ("google", include_str!("../../../import/phrases/google.json")),
    ] {
        for (operation, phrases) in known(text) {
            match by_phrases.get(&phrases.to_string()) {
                Some(name) => drop(names.insert((api, operation), name)),
                None => drop(without.insert(operation)),
            }
        }
    }
    // The deprecated ones are left out.
    assert!(without.len() < 50, "operations whose phrases nothing has: {without:?}");
    let mut lines = String::new();
    for line in REQUESTS.lines() {
        let request: Value = serde_json::from_str(line).expect("JSON");
        let api = request["api"].as_str().expect("an API");
        let right = request["operations"].as_array().expect("operations").iter();
        let subtools: Vec<_> = right
            .filter_map(|operation| names.iter().find(|((of, what), _)| *of == api && operation == what.as_str()))
            .map(|(_, name)| name)
            .collect();
        lines += &json!({"query": request["query"], "subtools": subtools}).to_string();
        lines.push('\n');
    }
    let file = world.folder().join("requests.jsonl");
    std::fs::write(&file, lines).expect("written");
    let report = world.run(&["lint", "--eval", file.to_str().expect("a path")]);
    assert_eq!(report.exit, 0, "{report}");
    let report = report.json();
    let count = |key: &str| report[key].as_u64().expect("a number");
    assert_eq!(count("requests"), 160);
    assert!(count("first") >= FIRST && count("among_ten") >= AMONG_TEN, "{report:#}");
}
