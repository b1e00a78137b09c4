//! Imported operations are called against Prism, which serves the same description and refuses what it does not allow.
//! Figma's description is not among them: Prism does not finish loading it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Map, Value, json};

use super::quiet_world;
use super::torture::spec;
use crate::free_port::free_port;
use crate::skip::skip;
use crate::world::World;

/// The path of npm's `@stoplight/prism-cli`.
const PRISM: &str = "AGENT_MAGIC_TOOL_TEST_PRISM";
/// How many operations of each description are called.
const MAX_CALLS: usize = 20;

pub(crate) struct Prism {
    pub(crate) base: String,
    process: Child,
}

impl Prism {
    /// Serves `description`; reports that a test is skipped if Prism is not installed.
    pub(crate) fn serve(description: &Path) -> Option<Self> {
        let Some(program) = std::env::var_os(PRISM) else {
            skip(&format!("{PRISM} does not name npm's @stoplight/prism-cli"));
            return None;
        };
        let port = free_port();
        let mut process = Command::new("node")
            .arg(program)
            .args(["mock", "--host=127.0.0.1", &format!("--port={port}"), "--errors"])
            .arg(description)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node starts");
        // A large description takes it most of a minute.
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let serves = lines.any(|line| line.expect("a line").contains("is listening"));
        assert!(serves, "Prism ended before it served {}", description.display());
        // What it prints later has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { base: format!("http://127.0.0.1:{port}"), process })
    }
}

impl Drop for Prism {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A value that fits `schema`; `None` if that cannot be told, such as for a pattern.
fn sample(schema: &Value) -> Option<Value> {
    if let Some(value) = schema.get("const").or_else(|| schema["enum"].as_array().and_then(|values| values.first())) {
        return Some(value.clone());
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        return alternatives.iter().find_map(sample);
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("string");
    Some(match kind {
        "integer" | "number" => {
            let least = schema["minimum"].as_i64().or_else(|| schema["exclusiveMinimum"].as_i64().map(|it| it + 1));
            json!(least.unwrap_or(1).max(least.unwrap_or(1)))
        }
        "boolean" => json!(true),
        "array" => {
            let count = usize::try_from(schema["minItems"].as_u64().unwrap_or(1)).expect("small");
            Value::Array(vec![sample(&schema["items"])?; count])
        }
        "object" => {
            let mut object = Map::new();
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                object.insert(name.to_owned(), sample(&schema["properties"][name])?);
            }
            object.into()
        }
        _ if schema.get("pattern").is_some() => return None,
        _ => {
            let text = match schema["format"].as_str() {
                Some("date-time") => "2026-01-02T03:04:05Z",
                Some("date") => "2026-01-02",
                Some("email") => "ann@example.com",
                Some("uri") => "https://example.com/",
                Some("uuid") => "8cbb43fe-4cdf-4991-8352-c461779cec02",
                Some(_) => return None,
                None => "abc",
            };
            let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).expect("small");
            json!(if text.len() < least { "a".repeat(least) } else { text.to_owned() })
        }
    })
}

/// Imports `description` for Prism's address and calls `MAX_CALLS` of its operations, picked by a fixed seed.
fn call_some(description: &Path) {
    let Some(prism) = Prism::serve(description) else { return };
    let world = quiet_world();
    world.configure("[catalog]\npacks = []\n[[confirm.rules]]\ntools = [\"*\"]\nthen = \"allow\"\n");
    let imported = world.run(&["import", &description.display().to_string(), "--name=api", "--server", &prism.base]);
    assert_eq!(imported.exit, 0, "{imported}");
    for secret in ["api", "api_user", "api_password"] {
        world.run_with(&["secret", "set", secret], "a-token-for-the-tests");
    }
    let listed = world.run(&["list", "tools", "--full", "--limit=100000"]).json();
    let tools: Vec<_> = listed.as_object().expect("tools").iter().collect();
    let (mut seed, mut called, mut tried) = (20_261_122_u64, 0, 0);
    while called < MAX_CALLS.min(tools.len()) && tried < 20 * MAX_CALLS {
        tried += 1;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(seed >> 33).expect("small") % tools.len();
        let (name, tool) = tools[at];
        let Some(input) = sample(&tool["input"]) else { continue };
        if input.to_string().contains("local file") || tool["input"].to_string().contains("local file") {
            continue;
        }
        called += 1;
        valid(&world, name, &input);
        invalid(&world, name, &tool["input"], &input);
    }
    assert!(called >= MAX_CALLS.min(tools.len() / 2), "only {called} could be called");
}

/// Prism accepts the request: whatever it answers, it does not name a violation of the description.
fn valid(world: &World, name: &str, input: &Value) {
    let ran = world.run(&["run", name, &format!("--input={input}"), "--wait=50s"]);
    let printed = format!("{}{}", ran.stdout, ran.stderr);
    for violation in
        ["UNPROCESSABLE_ENTITY", "NO_PATH_MATCHED", "NO_METHOD_MATCHED", "UNAUTHORIZED", "INVALID_CONTENT_TYPE"]
    {
        assert!(!printed.contains(violation), "{name} {input}\n{ran}");
    }
    assert!(ran.exit <= 1, "{name} {input}\n{ran}");
}

/// What the description does not allow is refused before anything is sent.
fn invalid(world: &World, name: &str, schema: &Value, input: &Value) {
    let mut wrong = input.clone();
    match schema["required"].as_array().and_then(|required| required.first()).and_then(Value::as_str) {
        Some(required) => drop(wrong.as_object_mut().expect("an object").remove(required)),
        None => wrong["surely_no_field"] = json!(1),
    }
    let ran = world.run(&["run", name, &format!("--input={wrong}")]);
    assert_eq!((ran.exit, &ran.error()["code"]), (2, &json!("invalid-input")), "{name} {wrong}\n{ran}");
}

#[test]
fn operations_of_github_are_accepted_by_its_description() {
    let Some(path) = spec("@octokit/openapi/generated/api.github.com.json") else { return };
    call_some(&path);
}

#[test]
fn operations_of_directus_are_accepted_by_its_description() {
    let Some(path) = spec("@directus/specs/dist/openapi.json") else { return };
    call_some(&path);
}

#[test]
fn operations_of_small_descriptions_are_accepted_by_them() {
    for name in ["2.0/json/petstore.json", "3.0/json/star-trek.json", "3.1/json/train-travel.json"] {
        let Some(path) = spec(&format!("@readme/oas-examples/{name}")) else { return };
        call_some(&path);
    }
}

#[test]
fn operations_of_magento_are_accepted_by_its_description() {
    let Some(path) = spec("@graphcommerce/magento-graphql-rest/scripts/m2rest-admin.json") else { return };
    call_some(&path);
}
