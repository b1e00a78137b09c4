//! Imports API descriptions into a folder that the search's `evaluate` reads, to measure how well everyday requests find
//! their operations:
//!
//! ```text
//! cargo run --release -p agent-magic-tool-import --example definitions -- FOLDER REQUESTS API=DESCRIPTION...
//! cargo run --release -p agent-magic-tool-search --example evaluate -- --own FOLDER
//! ```
//!
//! `REQUESTS` is a file such as `tests/routing-imported.jsonl`, whose `api` is the `API` that stands before a description.
//! Takes the names as the import makes them: the command `import` also puts a namespace before those that are taken.
#![expect(clippy::print_stdout, reason = "a program for developers")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use import::document::Document;
use import::{ImportOptions, kinds};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Request {
    api: String,
    query: String,
    operations: Vec<String>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, requests, descriptions @ ..] = arguments.as_slice() else {
        println!("usage: definitions FOLDER REQUESTS API=DESCRIPTION...");
        return;
    };
    let mut names: BTreeMap<(&str, String), String> = BTreeMap::new();
    let (mut tools, mut queries) = (Vec::new(), Vec::new());
    for description in descriptions {
        let (api, path) = description.split_once('=').expect("an API and its description");
        let document = Document::new(path, fs::read_to_string(path).expect(path)).expect(path);
        let kind = kinds::of(&document).expect(path);
        let imported = kind.import(&document, &ImportOptions::default()).expect(path);
        for subtool in imported.subtools {
            let mut definition = imported.defaults.clone();
            definition.extend(subtool.definition);
            definition.insert("name".to_owned(), subtool.name.as_str().into());
            tools.push(Value::Object(definition).to_string());
            names.insert((api, subtool.what), subtool.name);
        }
    }
    let text = fs::read_to_string(requests).expect(requests);
    for (number, line) in text.lines().enumerate() {
        let Request { api, query, operations } = serde_json::from_str(line).expect("a request");
        let right = |operation: &String| names.get(&(api.as_str(), operation.clone()));
        let relevant: Vec<_> = operations.iter().filter_map(right).collect();
        queries.push(json!({"id": number, "query": query, "relevant": relevant}).to_string());
    }
    fs::create_dir_all(folder).expect(folder);
    fs::write(Path::new(folder).join("tools.jsonl"), tools.join("\n")).expect("the tools");
    fs::write(Path::new(folder).join("queries.jsonl"), queries.join("\n")).expect("the queries");
    println!("{} operations", names.len());
}
