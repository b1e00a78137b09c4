//! `subtools/subtool.schema.json`: it matches the types, and agrees with the loader.

use std::fs;
use std::path::Path;

use catalog::{SHIPPED, format};
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::{Folder, definition};

/// If this environment variable is set, the file is rewritten instead of compared.
const UPDATE: &str = "UPDATE_EXPECT";

#[test]
fn the_schema_file_matches_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../subtools/subtool.schema.json");
    let expected = format::file_schema_text();
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &expected).expect("the schema is written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "subtools/subtool.schema.json does not match the types; regenerate it with\n    \
         {UPDATE}=1 cargo test -p agent-magic-tool-executor --test catalog the_schema_file"
    );
}

#[test]
fn the_schema_is_valid_and_describes_every_field() {
    let schema = format::file_schema();
    jsonschema::meta::validate(&schema).expect("a schema of draft 2020-12");
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        for (field, about) in definition["properties"].as_object().into_iter().flatten() {
            assert!(
                about["description"].is_string() || about.get("$ref").is_some(),
                "{name}.{field} has no description"
            );
        }
    }
}

#[test]
fn every_shipped_pack_matches_the_schema() {
    let validator = validator();
    for pack in SHIPPED {
        let file: Value = serde_json::from_str(pack.text).expect("it is JSON");
        let wrong: Vec<_> =
            validator.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", pack.name);
        assert_eq!(file["$schema"], "../subtool.schema.json", "{}: editors need `$schema`", pack.name);
    }
}

#[test]
fn the_schema_and_the_loader_accept_valid_files() {
    let http = |changes: Value| {
        let mut http = json!({"base_url": "https://api.example.com"});
        http.as_object_mut().expect("an object").extend(crate::object(changes));
        file(json!({"run": {"http": http}}))
    };
    let valid = [
        json!({}),
        json!({"$schema": "https://example.com/subtool.schema.json"}),
        file(json!({})),
        file(json!({"confirm": "never", "timeout": "1h 30m", "retries": {"times": 3}, "concurrency": 1})),
        file(json!({"confirm": {"when": "input.name == 'root'"}, "timeout": "500ms", "admin": true, "enabled": false})),
        file(json!({"rate_limit": {"calls": 0, "per": "1s"}})),
        file(json!({"rate_limit": {"calls": 10, "per": "1.5m"}, "requires": ["a:b"], "tags": ["x"]})),
        file(json!({"annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": null}})),
        file(json!({"examples": [{"input": {"name": "Ann"}, "note": "a friend"}], "result": {"select": ".[0]"}})),
        file(json!({"input": {}})),
        file(json!({"input": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}})),
        file(json!({"input": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": true},
            "unevaluatedProperties": false, "dependentRequired": {"n": ["m"]}}})),
        file(json!({"output": {"type": "array", "items": {"type": "string"}}})),
        file(json!({"output": {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}}})),
        file(json!({"run": {"builtin": {"fetch_url": {"url": "https://example.com", "max_chars": "{{ limit }}"}}}})),
        file(
            json!({"run": {"process": {"argv": ["git", {"if": "a", "args": ["-n", "{{ a }}"]}], "stdin": {"a": ["{{ b }}"]},
            "env": {"TOKEN": "secret:github"}, "allow_options": true, "output": "json", "ok_statuses": [0, 1]}}}),
        ),
        http(json!({})),
        http(json!({"base_url": "{{ url }}", "path": "{% if a %}/{{ a }}{% endif %}", "auth": {"bearer": "secret:a"}})),
        http(
            json!({"method": "POST", "body": {"json": [1, "{{ a }}", null]}, "idempotency_header": "Idempotency-Key"}),
        ),
        http(json!({"method": "PUT", "body": {"multipart": {"a": "{{ a }}", "f": {"file": "{{ path }}"}}}})),
        http(json!({"query": {"a": [1, true], "k": "secret:k"}, "array_style": "brackets", "max_bytes": 5})),
        http(json!({"auth": {"api_key": {"query": "key", "value": "secret:k"}}, "response": "text"})),
        http(json!({"pagination": {"next_token": {"query": "pageToken", "response": "next"}, "items": "items",
            "max_items": "{{ limit }}"}})),
        // A subtool may omit what `$defaults` defines.
        json!({
            "$namespace": "mail",
            "$defaults": {"description": "Does something with mail.", "input": {"type": "object"}, "timeout": "5s",
                "run": {"http": {"base_url": "https://a.example", "auth": {"basic": {"username": "u", "password": "secret:p"}}}}},
            "list": {},
            "send": {"run": {"http": {"method": "POST", "auth": {"basic": {"username": "v"}}}}, "timeout": null},
            "echo": {"run": {"process": {"argv": ["echo"]}}}
        }),
    ];
    let validator = validator();
    for file in valid {
        let wrong: Vec<_> = validator.iter_errors(&file).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "the schema refuses {file}: {wrong:?}");
        let problems = Folder::with(&[("file.json", &file)]).problems();
        assert!(problems.is_empty(), "the loader refuses {file}: {problems:?}");
    }
}

#[test]
fn the_schema_and_the_loader_refuse_invalid_files() {
    let run = |run: Value| file(json!({"run": run}));
    let http = |key: &str, value: Value| run(json!({"http": {"base_url": "https://a.example", key: value}}));
    let invalid = [
        ("not an object", json!([])),
        ("a subtool that is not an object", json!({"a": "b"})),
        ("an unknown `$key`", json!({"$default": {}})),
        ("a namespace of a wrong type", json!({"$namespace": 5})),
        ("an empty namespace", json!({"$namespace": "", "a": definition(json!({}))})),
        ("an unknown key in defaults without a subtool", json!({"$defaults": {"tiemout": "5s"}})),
        ("a bad value deep in defaults without a subtool", json!({"$defaults": {"run": {"http": {"method": "get"}}}})),
        ("defaults of a wrong type", json!({"$defaults": []})),
        ("an unknown key in defaults", json!({"$defaults": {"tiemout": "5s"}, "a": definition(json!({}))})),
        ("a bad name", json!({"say hello": definition(json!({}))})),
        ("a name that is too long", json!({"a".repeat(65): definition(json!({}))})),
        ("an unknown key", file(json!({"descripton": "x"}))),
        ("no description", file(json!({"description": null}))),
        ("no description despite defaults", json!({"$defaults": {"timeout": "5s"}, "a": {}})),
        ("an empty description", file(json!({"description": " "}))),
        ("no input", file(json!({"input": null}))),
        ("an input that is not an object", file(json!({"input": {"type": "array"}}))),
        ("a schema with a bad type", file(json!({"input": {"properties": {"a": {"type": "strin"}}}}))),
        ("a schema with a bad keyword", file(json!({"input": {"required": "name"}}))),
        ("no runner", file(json!({"run": null}))),
        ("no runner in `run`", run(json!({}))),
        ("two runners", run(json!({"process": {"argv": ["true"]}, "builtin": {"list_files": {}}}))),
        ("an unknown runner", run(json!({"shell": "echo hello"}))),
        ("no base URL", run(json!({"http": {"path": "/a"}}))),
        ("a base URL of another scheme", run(json!({"http": {"base_url": "ftp://a.example"}}))),
        ("a path without a slash", http("path", json!("messages"))),
        ("an unknown method", http("method", json!("get"))),
        ("an unknown key deep inside", http("pagination", json!({"next_tokens": {}}))),
        ("two bodies", http("body", json!({"json": {}, "form": {}}))),
        ("a literal secret", http("auth", json!({"bearer": "ghp_0123456789"}))),
        ("incomplete auth", http("auth", json!({"basic": {"username": "u"}}))),
        ("an empty argv", run(json!({"process": {"argv": []}}))),
        ("a shell line", run(json!({"process": {"argv": "echo hello"}}))),
        ("a condition without arguments", run(json!({"process": {"argv": ["p", {"if": "a"}]}}))),
        ("an exit status out of range", run(json!({"process": {"argv": ["p"], "ok_statuses": [256]}}))),
        ("an unknown function", run(json!({"builtin": {"write_file": {}}}))),
        ("an unknown annotation", file(json!({"annotations": {"readOnly": true}}))),
        ("annotations as a list", file(json!({"annotations": [true]}))),
        ("retries as a list", file(json!({"retries": [1, "1s"]}))),
        ("auth as a list", http("auth", json!({"basic": ["u", "secret:p"]}))),
        ("an annotation of a wrong type", file(json!({"annotations": {"readOnlyHint": "yes"}}))),
        ("an unknown confirmation", file(json!({"confirm": "sometimes"}))),
        ("a confirmation of a wrong type", file(json!({"confirm": true}))),
        ("a duration without a unit", file(json!({"timeout": "30"}))),
        ("a duration as a number", file(json!({"timeout": 30}))),
        ("a duration of zero", file(json!({"timeout": "0s"}))),
        ("too many retries", file(json!({"retries": {"times": 11}}))),
        ("retries without a number", file(json!({"retries": {"backoff": "1s"}}))),
        ("a negative rate", file(json!({"rate_limit": {"calls": -1, "per": "1s"}}))),
        ("a rate without a window", file(json!({"rate_limit": {"calls": 1}}))),
        ("a concurrency of zero", file(json!({"concurrency": 0}))),
        ("a concurrency out of range", file(json!({"concurrency": 5_000_000_000_u64}))),
        ("a bad name in `depends_on`", file(json!({"depends_on": ["a b"]}))),
        ("an example without an input", file(json!({"examples": [{"name": "Ann"}]}))),
        ("tags as a string", file(json!({"tags": "a, b"}))),
    ];
    let validator = validator();
    for (what, file) in invalid {
        assert!(!validator.is_valid(&file), "{what}: the schema accepts {file}");
        assert!(!Folder::with(&[("file.json", &file)]).problems().is_empty(), "{what}: the loader accepts {file}");
    }
}

/// A validator for the schema. It refers to the draft 2020-12 meta-schema instead of draft 7's, because a
/// validator contains only the meta-schema of its own draft and does not fetch others.
fn validator() -> Validator {
    let text = format::file_schema_text();
    let text = text.replace("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema");
    let schema = serde_json::from_str(&text).expect("it is JSON");
    jsonschema::validator_for(&schema).expect("the schema compiles")
}

/// A file with one subtool whose templates may name any field.
fn file(changes: Value) -> Value {
    let input = json!({"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": true});
    let changes = crate::object(changes);
    let mut fields = crate::object(json!({"input": input}));
    if changes.contains_key("input") && !changes.contains_key("run") {
        fields.insert("run".to_owned(), json!({"process": {"argv": ["true"]}}));
    }
    fields.extend(changes);
    json!({"greet": definition(Value::Object(fields))})
}
