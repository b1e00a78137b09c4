//! `lint` for the developers of subtools, and the basics of `doctor`.

use insta::assert_snapshot;
use serde_json::json;

use crate::world::World;

#[test]
fn the_shipped_packs_are_clean() {
    let world = World::new();
    assert_snapshot!(world.run(&["lint"]), @"
    exit: 0
    --- stdout
    []
    --- stderr
    note: 0 errors, 0 warnings
    ");
}

#[test]
fn findings_name_file_subtool_and_place() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    world.define("own.json", &json!({
        "unknown_key": {"description": "Has a key that does not exist.", "input": {}, "runn": {}},
        "short": {"description": "Too short.", "input": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"]},
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}}
    }));
    assert_snapshot!(world.run(&["lint"]), @r#"
    exit: 2
    --- stdout
    [{"level":"error","code":"not-loaded","file":"CONFIG/subtools/own.json","subtool":"unknown_key","place":"runn","message":"unknown field `runn`; did you mean `run`?"},{"level":"warning","code":"short-description","file":"CONFIG/subtools/own.json","subtool":"short","place":"description","message":"2 words do not say when to use it; use the words that a user who needs it would use"},{"level":"warning","code":"required-with-default","file":"CONFIG/subtools/own.json","subtool":"short","place":"input.properties.a","message":"`a` is required and has a default; a default makes it optional"},{"level":"warning","code":"undescribed-parameter","file":"CONFIG/subtools/own.json","subtool":"short","place":"input.properties.a","message":"`a` has no description"}]
    --- stderr
    note: 1 errors, 3 warnings
    "#);
}

#[test]
fn the_example_in_the_readme_is_clean_and_works_in_a_dry_run() {
    let readme = include_str!("../../README.md");
    let example = readme.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let world = World::new();
    std::fs::write(world.subtools().join("weather.json"), example).expect("written");
    let lint = world.run(&["lint"]);
    assert_eq!((lint.exit, lint.json()), (0, json!([])), "{lint}");
    let plan = world.run(&["run", "weather_now", "place=São Paulo", "--dry-run"]).json();
    let sent = &plan["would_send"]["http"];
    assert_eq!(sent["url"], "https://api.example.com/v1/weather/S%C3%A3o%20Paulo", "{plan}");
    assert_eq!(sent["headers"]["x-api-key"], "secret:weather", "{plan}");
}

#[test]
fn lint_prints_the_shipped_schema() {
    let world = World::new();
    let shipped = include_str!("../../subtools/subtool.schema.json");
    assert_eq!(world.run(&["lint", "--schema"]).stdout, shipped);
}

#[test]
fn a_healthy_installation_passes() {
    let world = World::new();
    let ran = world.run(&["doctor"]);
    assert_eq!((ran.exit, &ran.json()["ok"]), (0, &json!(true)), "{ran}");
}

#[test]
fn an_invalid_configuration_is_reported() {
    let world = World::new();
    world.configure("[executor]\nconcurency = 3\n");
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.exit, 1, "{ran}");
    let config = ran.json()["checks"][0].clone();
    assert_eq!((&config["name"], &config["ok"]), (&json!("config"), &json!(false)));
    assert!(config["message"].as_str().is_some_and(|message| message.contains("concurency")), "{config}");
}

#[test]
fn the_printed_settings_are_a_valid_configuration() {
    let world = World::new();
    let settings = world.run(&["doctor", "--settings"]).stdout;
    world.configure(&settings);
    assert_eq!(world.run(&["doctor"]).exit, 0, "the printed settings are valid");
}
