//! The messages for typical mistakes, word for word: file, subtool, location, and how to fix it.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Folder, definition};

/// The problems of a subtool with these changes.
fn problems(changes: Value) -> String {
    problems_of_file(&json!({"greet": definition(changes)}))
}

fn problems_of_file(file: &Value) -> String {
    Folder::with(&[("acme.json", file)]).problems().join("\n")
}

fn problems_of_text(text: &str) -> String {
    let folder = Folder::new();
    folder.write("acme.json", text);
    folder.problems().join("\n")
}

#[test]
fn malformed_json() {
    assert_snapshot!(problems_of_text("{\n  \"greet\": {,}\n}"), @"acme.json: line 2 column 13: key must be a string");
    assert_snapshot!(
        problems_of_text("{\"greet\": {\"input\": {}, \"input\": {}}}"),
        @"acme.json: line 1 column 31: duplicate key `input`"
    );
    assert_snapshot!(problems_of_text("[]"), @"acme.json: a definition file must be a JSON object");
}

#[test]
fn keys_of_a_file() {
    assert_snapshot!(
        problems_of_file(&json!({"$default": {}})),
        @"acme.json: $default: the only file keys are `$schema`, `$defaults` and `$namespace`; did you mean `$defaults`?"
    );
    assert_snapshot!(
        problems_of_file(&json!({"$namespace": 5})),
        @"acme.json: $namespace: `$namespace` must be a string of 1 to 62 of the characters a-z A-Z 0-9 _ -"
    );
    assert_snapshot!(
        problems_of_file(&json!({"$namespace": ""})),
        @"acme.json: $namespace: `$namespace` must be a string of 1 to 62 of the characters a-z A-Z 0-9 _ -"
    );
    assert_snapshot!(problems_of_file(&json!({"$defaults": []})), @"acme.json: $defaults: `$defaults` must be an object");
    assert_snapshot!(
        problems_of_file(&json!({"$defaults": {"tiemout": "5s"}})),
        @"acme.json: $defaults.tiemout: unknown field `tiemout`; did you mean `timeout`?"
    );
    assert_snapshot!(
        problems_of_file(&json!({"$defaults": {"run": {"http": {"header": {}}}}, "greet": definition(json!({}))})),
        @"acme.json: $defaults.run.http.header: unknown field `header`; did you mean `headers`?"
    );
    assert_snapshot!(
        problems_of_file(&json!({"say hello": definition(json!({}))})),
        @"acme.json: say hello: `say hello` is not a valid subtool name; use 1 to 64 of the characters a-z A-Z 0-9 _ -"
    );
}

#[test]
fn lookups() {
    let look = definition(json!({"annotations": {"readOnlyHint": true}}));
    let needy = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
    let problems_of_lookup = |subtool: &str, verify: Value, changes: Value| {
        let mut sender = definition(changes);
        sender["verify"] = verify;
        sender["verify"]["subtool"] = subtool.into();
        let needy = definition(json!({"annotations": {"readOnlyHint": true}, "input": needy}));
        problems_of_file(
            &json!({"send": sender, "look": look, "needy": needy, "change": definition(json!({"annotations": {}}))}),
        )
    };
    let writes = || json!({"annotations": {"readOnlyHint": false}});
    let yes = || json!({"happened": "length > 0"});
    assert_snapshot!(problems_of_lookup("look", yes(), writes()), @"");
    assert_snapshot!(problems_of_lookup("lock", yes(), writes()), @"acme.json: send: verify.subtool: no subtool named `lock`");
    assert_snapshot!(problems_of_lookup("change", yes(), writes()), @"acme.json: send: verify.subtool: `change` is not read-only, so a lookup could change something");
    assert_snapshot!(problems_of_lookup("needy", yes(), writes()), @"acme.json: send: verify.input: `needy` requires `id`");
    assert_snapshot!(problems_of_lookup("look", json!({"happened": ".["}), writes()), @"acme.json: send: verify.happened: `.[` is not a valid jq expression: syntax error");
    assert_snapshot!(problems_of_lookup("look", json!({"happened": ".", "input": {"id": "{{ name"}}), writes()), @"acme.json: send: verify.input: template `{{ name`: syntax error: unexpected end of input, expected end of variable block");
    assert_snapshot!(problems_of_lookup("look", yes(), json!({"annotations": {"readOnlyHint": true}})), @"acme.json: send: verify: its annotations say that it is safe to repeat, so it needs no lookup");
    assert_snapshot!(problems_of_lookup("look", yes(), json!({"annotations": {"idempotentHint": true}})), @"acme.json: send: verify: its annotations say that it is safe to repeat, so it needs no lookup");
}

#[test]
fn keys_of_a_subtool() {
    assert_snapshot!(
        problems(json!({"tiemout": "30s"})),
        @"acme.json: greet: tiemout: unknown field `tiemout`; did you mean `timeout`?"
    );
    assert_snapshot!(
        problems(json!({"colour": "red"})),
        @"acme.json: greet: colour: unknown field `colour`; expected `description`, `input`, `annotations`, `run`, `confirm`, `min_assurance`, `grantable`, `timeout`, `retries`, `verify`, `preview`, `rate_limit`, `concurrency`, `depends_on`, `requires`, `admin`, `enabled`, `output`, `result`, `tags` or `examples`"
    );
    assert_snapshot!(problems(json!({"description": Value::Null})), @"acme.json: greet: missing field `description`");
    assert_snapshot!(
        problems(json!({"annotations": {"readOnly": true}})),
        @"acme.json: greet: annotations.readOnly: unknown field `readOnly`; did you mean `readOnlyHint`?"
    );
    assert_snapshot!(
        problems(json!({"annotations": [true]})),
        @"acme.json: greet: annotations: expected an object, found an array"
    );
    assert_snapshot!(
        problems(json!({"confirm": "sometimes"})),
        @"acme.json: greet: confirm: unknown choice `sometimes`; expected `never`, `always` or `when`"
    );
    assert_snapshot!(
        problems(json!({"confirm": "when"})),
        @r#"acme.json: greet: confirm.when: `when` needs a value; write it as {"when": …}"#
    );
    assert_snapshot!(
        problems(json!({"confirm": {"never": true}})),
        @r#"acme.json: greet: confirm.never: `never` takes no value; write it as "never""#
    );
    assert_snapshot!(problems(json!({"confirm": true})), @"acme.json: greet: confirm: expected `never`, `always` or `when`, found a boolean");
    assert_snapshot!(problems(json!({"retries": {"times": "many"}})), @"acme.json: greet: retries.times: expected a whole number from 0 to 4294967295, found a string");
    assert_snapshot!(problems(json!({"tags": "a, b"})), @"acme.json: greet: tags: expected an array, found a string");
    assert_snapshot!(
        problems(json!({"timeout": "30"})),
        @"acme.json: greet: timeout: `30` is not a valid duration; write it like `500ms`, `30s`, `5m` or `1h`"
    );
    assert_snapshot!(
        problems(json!({"concurrency": 0})),
        @"acme.json: greet: concurrency: a limit of 0 would run no task; the minimum is 1"
    );
}

#[test]
fn runners() {
    assert_snapshot!(
        problems(json!({"run": {"shell": "ls"}})),
        @"acme.json: greet: run: unknown choice `shell`; expected `http`, `process`, `builtin`, `ask_user`, `llm` or `agent`"
    );
    assert_snapshot!(
        problems(json!({"run": {"process": {"argv": ["ls"]}, "http": {"base_url": "https://a.example"}}})),
        @"acme.json: greet: run: expected exactly one runner, found `process` and `http`"
    );
    assert_snapshot!(problems(json!({"run": {}})), @"acme.json: greet: run: expected exactly one runner: `http`, `process`, `builtin`, `ask_user`, `llm` or `agent`");
    assert_snapshot!(
        problems(json!({"run": {"http": {"path": "/a"}}})),
        @"acme.json: greet: run.http: missing field `base_url`"
    );
    assert_snapshot!(
        problems(json!({"run": {"http": {"base_url": "https://a.example", "query": {"q": "{{ q"}}}})),
        @"acme.json: greet: run.http.query.q: template `{{ q`: syntax error: unexpected end of input, expected end of variable block"
    );
    assert_snapshot!(
        problems(json!({"run": {"http": {"base_url": "https://a.example", "auth": {"bearer": "ghp_x"}}}})),
        @"acme.json: greet: run.http.auth.bearer: not a secret reference; write `secret:NAME` and store the value with: agent-magic-tool secret set NAME"
    );
    assert_snapshot!(
        problems(json!({"run": {"process": {"argv": ["{{ program }}"]}}})),
        @"acme.json: greet: run.process.argv[0]: the program must be a constant, not a template"
    );
}

/// A secret may be written in place of its name, or anywhere else.
#[test]
fn a_secret_written_into_a_definition_is_never_quoted() {
    const CANARY: &str = "ghp_0123456789abcdefCANARY";
    let quoted = format!("{CANARY} \"{CANARY}\" {{{{");
    let reference = format!("secret:{CANARY}!");
    let http = |changes: Value| {
        let mut http = json!({"base_url": "https://a.example", "method": "POST"});
        http.as_object_mut().expect("an object").extend(crate::object(changes));
        json!({"http": http})
    };
    let mut paths = vec![
        json!(CANARY),
        json!({"http": CANARY}),
        json!({"process": [CANARY]}),
        http(json!({"auth": CANARY})),
        http(json!({"auth": [CANARY]})),
        http(json!({"auth": {"api_key": {"header": "X-Key", "query": CANARY, "value": "secret:k"}}})),
        http(json!({"auth": {"basic": {"username": format!("{CANARY}:x"), "password": "secret:p"}}})),
        http(json!({"headers": CANARY})),
        http(json!({"headers": {format!("Authorization: Bearer {CANARY}"): ""}})),
        http(json!({"body": CANARY})),
        http(json!({"body": {"form": CANARY}})),
        http(json!({"body": {"raw": {"content_type": CANARY, "text": "x"}}})),
        http(json!({"base_url": format!("https://{CANARY}@a.example")})),
        http(json!({"base_url": format!("https://u:{CANARY}@a b")})),
        http(json!({"base_url": CANARY})),
        http(json!({"path": CANARY})),
        http(json!({"response": CANARY})),
        json!({"process": {"argv": ["p"], "env": CANARY}}),
        json!({"process": {"argv": ["p"], "env": [CANARY]}}),
        json!({"process": {"argv": ["p"], "env": {format!("TOKEN={CANARY}"): ""}}}),
        json!({"process": {"argv": ["p", CANARY], "allow": ["x"]}}),
        json!({"builtin": CANARY}),
    ];
    for text in [CANARY, &quoted, &reference, &format!("Bearer {{{{ {CANARY}")] {
        paths.extend([
            http(json!({"auth": {"bearer": text}})),
            http(json!({"auth": {"bearer": {"value": text}}})),
            http(json!({"auth": {"oauth2": text}})),
            http(json!({"auth": {"basic": text}})),
            http(json!({"auth": {"basic": {"username": "u", "password": text}}})),
            http(json!({"auth": {"api_key": text}})),
            http(json!({"auth": {"api_key": {"header": "X-Key", "value": text}}})),
        ]);
    }
    for text in [&quoted, &reference] {
        paths.extend([
            http(json!({"headers": {"authorization": text}})),
            http(json!({"query": {"key": text}})),
            http(json!({"query": {"key": [text, "{{"]}})),
            http(json!({"body": {"form": {"key": text}}})),
            http(json!({"body": {"multipart": {"key": text}}})),
            http(json!({"body": {"json": {"key": text, "other": "{{"}}})),
            json!({"process": {"argv": ["p"], "env": {"KEY": text}}}),
            json!({"process": {"argv": ["p", text, "{{"]}}),
            json!({"process": {"argv": ["p"], "stdin": [text, "{{"]}}),
            json!({"builtin": {"fetch_url": {"url": text, "max_chars": "{{"}}}),
        ]);
    }
    for run in paths {
        for file in [
            json!({"greet": definition(json!({"run": run}))}),
            json!({"$defaults": {"run": run}, "greet": definition(json!({"run": Value::Null}))}),
        ] {
            let problems = problems_of_file(&file);
            assert!(!problems.is_empty(), "no problem found in {file}");
            assert!(!problems.contains(CANARY), "{problems}");
        }
    }
}

#[test]
fn schemas_examples_and_expressions() {
    assert_snapshot!(
        problems(json!({"input": {"type": "object", "properties": {"a": {"type": "strin"}}}})),
        @r#"acme.json: greet: input: the schema at `/properties/a/type`: "strin" is not valid under any of the schemas listed in the 'anyOf' keyword"#
    );
    assert_snapshot!(problems(json!({"output": {"type": "array", "items": {"type": "string"}}})), @"");
    assert_snapshot!(
        problems(json!({"output": {"type": "lst"}})),
        @r#"acme.json: greet: output: the schema at `/type`: "lst" is not valid under any of the schemas listed in the 'anyOf' keyword"#
    );
    assert_snapshot!(
        problems(json!({"examples": [{"input": {"name": "Ann"}}, {"input": {"name": 5}}]})),
        @r#"acme.json: greet: examples[1].input/name: 5 is not of type "string""#
    );
    assert_snapshot!(
        problems(json!({"result": {"select": ".a | "}})),
        @"acme.json: greet: result.select: `.a | ` is not a valid jq expression: syntax error"
    );
    assert_snapshot!(
        problems(json!({"confirm": {"when": "input.a >"}})),
        @"acme.json: greet: confirm.when: template `input.a >`: syntax error: unexpected end of input, expected expression"
    );
    assert_snapshot!(
        problems(json!({"depends_on": ["missing"]})),
        @"acme.json: greet: depends_on: no subtool named `missing`"
    );
}

#[test]
fn a_duplicate_name() {
    let greet = json!({"greet": definition(json!({}))});
    let folder = Folder::with(&[("a.json", &greet), ("b.json", &greet)]);
    let problems = folder.problems().join("\n");
    assert_snapshot!(problems, @"b.json: greet: the name is already defined by a.json; the first definition wins");
}
