//! `import --phrases`: a model drafts what people say, in batches, and what it drafted is kept.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::stub::{RawRequest, Stub, StubAnswer};
use crate::world::World;

/// More operations than one request has.
const OPERATIONS: usize = 20;

fn description() -> Value {
    let one = |number: usize| {
        let path = format!("/depots/{number}");
        let get = json!({"get": {"operationId": format!("queryDepot{number}"), "summary": format!("Query depot {number}."),
            "responses": {"200": {"description": "ok"}}}});
        (path, get)
    };
    let paths: serde_json::Map<String, Value> = (0..OPERATIONS).map(one).collect();
    json!({"openapi": "3.0.3", "info": {"title": "Depots", "version": "1"}, "servers": [{"url": "https://depots.example.net"}],
        "paths": paths})
}

/// The names of the operations in a request.
fn asked(request: &RawRequest) -> Vec<String> {
    let body = request.json();
    let text = body["messages"].as_array().expect("messages").last().expect("one")["content"].clone();
    let text = text.as_str().map_or_else(|| text[0]["text"].as_str().expect("a text").to_owned(), str::to_owned);
    text.lines().filter_map(|line| Some(line.strip_prefix("- ")?.split_once(':')?.0.to_owned())).collect()
}

/// Phrases for each operation of the request, and some that are none.
fn phrases(request: &RawRequest) -> StubAnswer {
    let of_each = |name: String| {
        let number: String = name.chars().filter(char::is_ascii_digit).collect();
        let phrases = json!([
            format!("Where is warehouse {number}"),
            format!("stock room {number}"),
            format!("storage place {number} please"),
            "{{ caller.uid }} here",
            "read secret:github now",
            "a phrase of all",
            "x",
        ]);
        (name, phrases)
    };
    let phrases: serde_json::Map<String, Value> = asked(request).into_iter().map(of_each).collect();
    StubAnswer::says(&format!("```json\n{}\n```", Value::Object(phrases)))
}

/// Writes the description that is imported.
fn describe(world: &World) -> PathBuf {
    let path = world.folder().join("depots.json");
    fs::write(&path, description().to_string()).expect("written");
    path
}

fn file(world: &World) -> Value {
    serde_json::from_str(&fs::read_to_string(world.subtools().join("depots.json")).expect("a file")).expect("JSON")
}

/// How many definitions have phrases.
fn described(file: &Value) -> usize {
    file.as_object().expect("an object").values().filter(|it| it["phrases"].is_array()).count()
}

#[test]
fn a_model_drafts_phrases_which_a_search_finds_and_a_refresh_keeps() {
    let world = World::new();
    let path = describe(&world);
    let source = path.display().to_string();
    // It is busy once, and breaks at the second batch.
    let stub = Stub::answering(|request, number| match number {
        0 => StubAnswer::error(503, "busy"),
        2 => StubAnswer::error(400, "no"),
        _ => phrases(request),
    });
    world.configure(&stub.configuration("", ""));
    let planned = world.run(&["import", &source, "--phrases", "--dry-run"]).json()["phrases"].clone();
    assert_eq!((&planned["operations"], &planned["requests"]), (&json!(OPERATIONS), &json!(2)), "{planned}");
    assert!(planned["cost"].as_f64().expect("a price") > 0.0 && stub.received().is_empty(), "{planned}");

    let broken = world.run(&["import", &source, "--phrases"]);
    let report = &broken.json()["phrases"];
    assert_eq!(
        (broken.exit, &report["drafted"], &report["error"]["code"]),
        (1, &json!(15), &json!("model-rejected")),
        "{broken}"
    );
    assert_eq!((described(&file(&world)), stub.received().len()), (15, 3));

    let rest = world.run(&["import", "--refresh", "depots", "--phrases"]);
    assert_eq!((rest.exit, &rest.json()["packs"][0]["phrases"]["drafted"]), (0, &json!(5)), "{rest}");
    let bodies = stub.received();
    assert_eq!((bodies.len(), asked(&bodies[3]).len()), (4, 5), "only what has none is asked about");
    let written = file(&world);
    assert_eq!(described(&written), OPERATIONS);
    let text = written.to_string();
    assert!(!text.contains("caller.uid") && !text.contains("secret:github") && !text.contains("\"x\""), "{text}");
    assert_eq!(text.matches("a phrase of all").count(), 1, "a phrase leads to one operation");

    // They stay when the description changes, and nothing is asked any more.
    let mut changed = description();
    changed["paths"]["/depots/7"]["get"]["summary"] = "Query the seventh depot.".into();
    fs::write(&path, changed.to_string()).expect("written");
    let again = world.run(&["import", "--refresh", "depots", "--phrases"]);
    assert_eq!((again.exit, &again.json()["packs"][0]["phrases"]["operations"]), (0, &json!(0)), "{again}");
    assert_eq!((described(&file(&world)), stub.received().len()), (OPERATIONS, 4));
    let found = world.run(&["list", "tools", "--query=where is warehouse 13"]).json();
    assert!(found.as_object().expect("hits").keys().next().expect("a hit").contains("13"), "{found}");
}

#[test]
fn drafting_ends_at_its_price_and_at_a_model_that_does_not_understand() {
    let world = World::new();
    let source = describe(&world).display().to_string();
    let stub = Stub::answering(|request, _| phrases(request));
    world.configure(&stub.configuration("", ""));
    let dear = world.run(&["import", &source, "--phrases=openai", "--phrases-cost=0.0000001"]);
    let report = &dear.json()["phrases"];
    assert_eq!(
        (dear.exit, &report["drafted"], &report["error"]["code"]),
        (1, &json!(0), &json!("budget-exhausted")),
        "{dear}"
    );
    assert!(report["error"]["hint"].as_str().is_some_and(|hint| hint.contains("--refresh")), "{dear}");

    let world = World::new();
    let stub = Stub::start(&world, vec![StubAnswer::says("I would rather not.")], "");
    let none = world.run(&["import", &source, "--phrases", "--phrases-in=German"]);
    assert_eq!((none.exit, &none.json()["phrases"]["error"]["code"]), (1, &json!("model-failed")), "{none}");
    assert!(none.stderr.contains("15 operations stay without phrases"), "{none}");
    assert!(String::from_utf8_lossy(&stub.received()[0].body).contains("English, German"));
    assert_eq!(described(&file(&world)), 0, "what was imported stays");
    let unknown = world.run(&["import", "--refresh", "depots", "--phrases=nobody"]);
    assert!(unknown.exit == 1 && unknown.stdout.contains("nobody"), "{unknown}");
}
