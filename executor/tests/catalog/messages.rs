//! What is said of typical mistakes, word by word: file, subtool, place, and how to mend it.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Folder, definition};

/// What is said of a subtool with these changes.
fn said_of(changes: Value) -> String {
    said_of_file(&json!({"greet": definition(changes)}))
}

fn said_of_file(file: &Value) -> String {
    Folder::with(&[("acme.json", file)]).problems().join("\n")
}

fn said_of_text(text: &str) -> String {
    let folder = Folder::new();
    folder.write("acme.json", text);
    folder.problems().join("\n")
}

#[test]
fn broken_json() {
    assert_snapshot!(said_of_text("{\n  \"greet\": {,}\n}"), @"acme.json: line 2 column 13: key must be a string");
    assert_snapshot!(
        said_of_text("{\"greet\": {\"input\": {}, \"input\": {}}}"),
        @"acme.json: line 1 column 31: the key `input` stands twice"
    );
    assert_snapshot!(said_of_text("[]"), @"acme.json: a file of definitions is one JSON object");
}

#[test]
fn keys_of_the_file() {
    assert_snapshot!(
        said_of_file(&json!({"$default": {}})),
        @"acme.json: $default: the keys of a file are `$schema`, `$defaults` and `$namespace`"
    );
    assert_snapshot!(
        said_of_file(&json!({"$namespace": 5})),
        @"acme.json: $namespace: `$defaults` is an object, the others are strings"
    );
    assert_snapshot!(
        said_of_file(&json!({"say hello": definition(json!({}))})),
        @"acme.json: say hello: `say hello` is no subtool name; use 1 to 64 of the characters a-z A-Z 0-9 _ -"
    );
}

#[test]
fn keys_of_a_subtool() {
    assert_snapshot!(
        said_of(json!({"tiemout": "30s"})),
        @"acme.json: greet: tiemout: unknown field `tiemout`, expected one of `description`, `input`, `annotations`, `run`, `confirm`, `timeout`, `retries`, `rate_limit`, `concurrency`, `depends_on`, `requires`, `admin`, `enabled`, `output`, `result`, `tags`, `examples`"
    );
    assert_snapshot!(said_of(json!({"description": Value::Null})), @"acme.json: greet: missing field `description`");
    assert_snapshot!(
        said_of(json!({"annotations": {"readOnly": true}})),
        @"acme.json: greet: annotations.readOnly: unknown field `readOnly`, expected one of `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`"
    );
    assert_snapshot!(
        said_of(json!({"confirm": "sometimes"})),
        @"acme.json: greet: confirm: unknown variant `sometimes`, expected one of `never`, `always`, `when`"
    );
    assert_snapshot!(
        said_of(json!({"timeout": "30"})),
        @"acme.json: greet: timeout: `30` is no duration; write it like `500ms`, `30s`, `5m` or `1h`"
    );
    assert_snapshot!(
        said_of(json!({"concurrency": 0})),
        @"acme.json: greet: concurrency: 0 would never run; the least is 1"
    );
}

#[test]
fn runners() {
    assert_snapshot!(
        said_of(json!({"run": {"shell": "ls"}})),
        @"acme.json: greet: run: unknown variant `shell`, expected one of `http`, `process`, `builtin`"
    );
    assert_snapshot!(
        said_of(json!({"run": {"process": {"argv": ["ls"]}, "http": {"base_url": "https://a.example"}}})),
        @"acme.json: greet: run: invalid value: map, expected map with a single key"
    );
    assert_snapshot!(
        said_of(json!({"run": {"http": {"path": "/a"}}})),
        @"acme.json: greet: run.http: missing field `base_url`"
    );
    assert_snapshot!(
        said_of(json!({"run": {"http": {"base_url": "https://a.example", "query": {"q": "{{ q"}}}})),
        @"acme.json: greet: run.http.query.q: template `{{ q`: syntax error: unexpected end of input, expected end of variable block"
    );
    assert_snapshot!(
        said_of(json!({"run": {"http": {"base_url": "https://a.example", "auth": {"bearer": "ghp_x"}}}})),
        @"acme.json: greet: run.http.auth.bearer: `ghp_x` is no secret's name; use 1 to 64 of the characters a-z A-Z 0-9 _ -, written as `secret:NAME`"
    );
    assert_snapshot!(
        said_of(json!({"run": {"process": {"argv": ["{{ program }}"]}}})),
        @"acme.json: greet: run.process.argv[0]: the program is a constant, not a template"
    );
}

#[test]
fn schemas_examples_and_expressions() {
    assert_snapshot!(
        said_of(json!({"input": {"type": "object", "properties": {"a": {"type": "strin"}}}})),
        @r#"acme.json: greet: input: the schema at `/properties/a/type`: "strin" is not valid under any of the schemas listed in the 'anyOf' keyword"#
    );
    assert_snapshot!(
        said_of(json!({"examples": [{"input": {"name": "Ann"}}, {"input": {"name": 5}}]})),
        @r#"acme.json: greet: examples[1].input/name: 5 is not of type "string""#
    );
    assert_snapshot!(
        said_of(json!({"result": {"select": ".a | "}})),
        @"acme.json: greet: result.select: `.a | ` is no jq expression: a mistake in its syntax"
    );
    assert_snapshot!(
        said_of(json!({"confirm": {"when": "input.a >"}})),
        @"acme.json: greet: confirm.when: template `input.a >`: syntax error: unexpected end of input, expected expression"
    );
    assert_snapshot!(
        said_of(json!({"depends_on": ["nobody"]})),
        @"acme.json: greet: depends_on: there is no subtool `nobody`"
    );
}

#[test]
fn a_name_that_is_taken() {
    let greet = json!({"greet": definition(json!({}))});
    let folder = Folder::with(&[("a.json", &greet), ("b.json", &greet)]);
    let said = folder.problems().join("\n");
    assert_snapshot!(said, @"b.json: greet: the name is taken by a.json; a later definition wins nothing");
}
