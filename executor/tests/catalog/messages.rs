//! Ninety wrong definitions with everything that `lint` says about them, in one file that a person can read from the
//! beginning to the end: `executor/tests/catalog/messages.txt`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use executor::lint::{Level, LintScope, lint};
use serde_json::{Value, json};

use crate::{Folder, definition};

/// If this environment variable is set, the file is rewritten instead of compared.
const UPDATE: &str = "UPDATE_EXPECT";

/// A file with a mistake.
enum Wrong {
    /// The definition `greet` with these changes; null removes a key.
    Greet(Value),
    /// The settings of an HTTP request in `greet`, beside its base URL.
    Http(Value),
    /// The subtools of a file, each a change of `greet`.
    Subtools(Value),
    /// The text of a file.
    Text(&'static str),
}

use Wrong::{Greet, Http, Subtools, Text};

#[expect(clippy::too_many_lines, reason = "a table")]
fn wrong_definitions() -> Vec<(&'static str, Wrong)> {
    let http = |base_url: &str| Greet(json!({"run": {"http": {"base_url": base_url}}}));
    let process = |argv: Value| Greet(json!({"run": {"process": {"argv": argv}}}));
    let sends = json!({"annotations": null, "confirm": "always"});
    let dry_run = |input: Value| {
        let checks = json!({"type": "object", "properties": {"check": {"type": "boolean", "description": "Whether nothing is sent."},
            "always": {"type": "boolean", "default": true, "description": "It."}}});
        let mut send = sends.clone();
        send["input"] = checks;
        send["run"] = json!({"process": {"argv": ["echo", {"if": "always", "args": ["x"]}]}});
        send["dry_run"] = input;
        Greet(send)
    };
    let verify = |verify: Value| {
        let mut send = sends.clone();
        send["verify"] = verify;
        Subtools(json!({"greet_send": send, "greet_look": {"description": "Looks whether a greeting has arrived."}}))
    };
    vec![
        ("text that is not JSON", Text("{\n  \"greet\": {,}\n}")),
        ("a key twice", Text("{\"greet\": {\"input\": {}, \"input\": {}}}")),
        ("an array instead of an object", Text("[]")),
        ("an empty file", Text("")),
        ("a file key that does not exist", Text("{\"$default\": {}}")),
        ("a namespace that is not a name", Text("{\"$namespace\": \"our tools\"}")),
        ("defaults that are not an object", Text("{\"$defaults\": []}")),
        ("a misspelled key in the defaults", Text("{\"$defaults\": {\"tiemout\": \"5s\"}}")),
        ("a name with a space", Subtools(json!({"say hello": {}}))),
        ("a subtool that is not an object", Text("{\"greet\": \"hello\"}")),
        ("two definitions that are not finished", Text("{\"greet\": {\"run\": 1}, \"greet2\": 2}")),
        ("a misspelled key", Greet(json!({"tiemout": "30s"}))),
        ("a key that does not exist", Greet(json!({"colour": "red"}))),
        ("three mistakes at once", Greet(json!({"tiemout": "30s", "tags": "a, b", "concurrency": 0}))),
        ("no description", Greet(json!({"description": null}))),
        ("an empty description", Greet(json!({"description": " "}))),
        ("a description of two words", Greet(json!({"description": "Says hello."}))),
        ("no input", Greet(json!({"input": null}))),
        ("an input that is an array", Greet(json!({"input": {"type": "array"}}))),
        ("a type that does not exist", Greet(json!({"input": {"properties": {"name": {"type": "strin"}}}}))),
        ("`required` as a text", Greet(json!({"input": {"properties": {"name": {}}, "required": "name"}}))),
        ("an open input", Greet(json!({"input": {"properties": {"name": {"description": "The name."}}}}))),
        (
            "a required field that is not declared",
            Greet(json!({"input": {"properties": {
            "name": {"description": "The name."}}, "required": ["nmae"], "additionalProperties": false}})),
        ),
        (
            "a required field with a default",
            Greet(json!({"input": {"properties": {
            "name": {"description": "The name.", "default": "Ann"}}, "required": ["name"], "additionalProperties": false}})),
        ),
        (
            "a field without a description",
            Greet(json!({"input": {"properties": {"name": {"type": "string"}},
            "additionalProperties": false}})),
        ),
        (
            "a field with the name of something else",
            Greet(json!({"input": {"properties": {
            "task": {"description": "The task."}}, "additionalProperties": false},
            "run": {"process": {"argv": ["echo", "--", "{{ task }}"]}}, "examples": null})),
        ),
        ("a misspelled annotation", Greet(json!({"annotations": {"readOnly": true}}))),
        ("annotations as a list", Greet(json!({"annotations": [true]}))),
        ("an annotation as a text", Greet(json!({"annotations": {"readOnlyHint": "yes"}}))),
        ("a confirmation that does not exist", Greet(json!({"confirm": "sometimes"}))),
        ("a confirmation as a boolean", Greet(json!({"confirm": true}))),
        ("`when` without a condition", Greet(json!({"confirm": "when"}))),
        ("`never` with a value", Greet(json!({"confirm": {"never": true}}))),
        ("a condition that ends too early", Greet(json!({"confirm": {"when": "input.name =="}}))),
        ("a condition about an undeclared field", Greet(json!({"confirm": {"when": "input.nmae == 'Ann'"}}))),
        ("a condition with a bare field", Greet(json!({"confirm": {"when": "name == 'Ann'"}}))),
        ("a timeout without a unit", Greet(json!({"timeout": "30"}))),
        ("a timeout as a number", Greet(json!({"timeout": 30}))),
        ("a timeout of nothing", Greet(json!({"timeout": "0s"}))),
        ("retries as a text", Greet(json!({"retries": {"times": "many"}}))),
        ("too many retries", Greet(json!({"retries": {"times": 99}}))),
        (
            "retries of something that must not happen twice",
            Greet(json!({"annotations": null, "retries": {"times": 2}})),
        ),
        ("no concurrency at all", Greet(json!({"concurrency": 0}))),
        ("a rate limit without a window", Greet(json!({"rate_limit": {"calls": 3}}))),
        ("tags as a text", Greet(json!({"tags": "a, b"}))),
        ("a phrase that is empty", Greet(json!({"phrases": ["who wrote this", " "]}))),
        ("a phrase that is a document", Greet(json!({"phrases": ["who wrote this ".repeat(20)]}))),
        ("a dependency that does not exist", Greet(json!({"depends_on": ["greet_frist"]}))),
        (
            "a dependency in prose",
            Subtools(json!({"greet": {"description": "Says hello to a person. Use person_find first."},
            "person_find": {"description": "Finds a person by the first name."}})),
        ),
        (
            "a prerequisite that does not exist",
            Greet(json!({"description": "Says hello to a person. Use zebra_find first."})),
        ),
        ("two subtools that say the same", Subtools(json!({"greet": {}, "hello": {}}))),
        (
            "an example of the wrong type",
            Greet(json!({"examples": [{"input": {"name": "Ann"}}, {"input": {"name": 5}}]})),
        ),
        ("an example without a required field", Greet(json!({"examples": [{"input": {}}]}))),
        ("an example with an unknown field", Greet(json!({"examples": [{"input": {"name": "Ann", "nick": "A"}}]}))),
        ("an example without an input", Greet(json!({"examples": [{"name": "Ann"}]}))),
        ("an output that is not a schema", Greet(json!({"output": {"type": "lst"}}))),
        ("jq that ends too early", Greet(json!({"result": {"select": ".people | "}}))),
        ("jq with an unknown function", Greet(json!({"result": {"select": ".people | frist"}}))),
        ("a template in jq", Greet(json!({"result": {"select": ".[] | select(.name == \"{{ name }}\")"}}))),
        ("jq about an undeclared field", Greet(json!({"result": {"select": "select(.name == $input.nmae)"}}))),
        ("a result without anything", Greet(json!({"result": {}}))),
        ("no runner", Greet(json!({"run": {}}))),
        ("a runner that does not exist", Greet(json!({"run": {"shell": "ls"}}))),
        (
            "two runners",
            Greet(json!({"run": {"process": {"argv": ["ls"]}, "http": {"base_url": "https://a.example"}}})),
        ),
        ("a request without a base URL", Greet(json!({"run": {"http": {"path": "/greet"}}}))),
        ("a base URL of another kind", http("ftp://a.example")),
        ("a base URL with a password", http("https://ann:hunter22@a.example")),
        ("a base URL with a query", http("https://a.example/?v=1")),
        ("a path without a slash", Http(json!({"path": "greet/{{ name }}"}))),
        ("a query in the path", Http(json!({"path": "/greet?name={{ name }}"}))),
        ("a method in small letters", Http(json!({"method": "post"}))),
        ("a body in a GET request", Http(json!({"body": {"json": {"name": "{{ name }}"}}}))),
        ("two bodies", Http(json!({"method": "POST", "body": {"json": {}, "form": {}}}))),
        ("a misspelled field in a template", Http(json!({"query": {"who": "{{ nmae }}"}}))),
        ("a template that is not closed", Http(json!({"query": {"who": "{{ name"}}))),
        ("a filter that does not exist", Http(json!({"query": {"who": "{{ name|uper }}"}}))),
        ("a filter that is not needed", Http(json!({"query": {"who": "{{ name|urlencode }}"}}))),
        ("a function that does not exist", Http(json!({"query": {"at": "{{ now() }}"}}))),
        ("a test that does not exist", Http(json!({"query": {"who": "{% if name is empty %}x{% endif %}"}}))),
        ("a variable that is not set", Http(json!({"path": "/{{ vars.team }}"}))),
        ("a template in a name", Http(json!({"query": {"{{ name }}": "x"}}))),
        ("a template in a constant", Http(json!({"idempotency_header": "X-{{ name }}"}))),
        ("a header with a colon", Http(json!({"headers": {"X-Name: Ann": ""}}))),
        ("a header of the connection", Http(json!({"headers": {"Host": "b.example"}}))),
        ("a key in place of its name", Http(json!({"auth": {"bearer": "sk-live-123456"}}))),
        ("a secret with an invalid name", Http(json!({"headers": {"X-Key": "secret:my key"}}))),
        ("a secret in the path", Http(json!({"path": "secret:greeter"}))),
        ("a secret in the middle of a text", Http(json!({"query": {"auth": "key secret:greeter"}}))),
        ("the same header twice", Http(json!({"auth": {"bearer": "secret:a"}, "headers": {"Authorization": "x"}}))),
        ("a key in two places", Http(json!({"auth": {"api_key": {"value": "secret:a", "header": "X", "query": "x"}}}))),
        (
            "an idempotency header without its effect",
            Greet(json!({"annotations": null, "run": {"http": {
            "base_url": "https://a.example", "method": "POST", "idempotency_header": "Idempotency-Key"}}})),
        ),
        ("an empty argument list", process(json!([]))),
        ("a shell line", process(json!("echo hello"))),
        ("a program from the input", process(json!(["{{ name }}"]))),
        ("a value inside a shell line", process(json!(["sh", "-c", "echo {{ name }}"]))),
        ("a value inside a Python program", process(json!(["python3", "-c", "print('{{ name }}')"]))),
        ("a secret as an argument", process(json!(["greet", "secret:greeter"]))),
        ("a condition without arguments", process(json!(["echo", {"if": "name"}]))),
        ("a condition about an undeclared field", process(json!(["echo", {"if": "loud", "args": ["-n"]}]))),
        ("a model without a question", Greet(json!({"run": {"llm": {}}}))),
        ("a function that does not exist", Greet(json!({"run": {"builtin": {"write_file": {}}}}))),
        ("a lookup that does not exist", verify(json!({"subtool": "greet_lok", "happened": "length > 0"}))),
        ("a lookup without its input", verify(json!({"subtool": "greet_look", "happened": "length > 0"}))),
        (
            "a lookup that finds the greeting of another run",
            verify(json!({"subtool": "greet_look",
            "input": {"name": "Ann"}, "happened": "length > 0"})),
        ),
        (
            "a lookup that always says yes",
            verify(json!({"subtool": "greet_look",
            "input": {"name": "{{ name }}"}, "happened": "true"})),
        ),
        (
            "a lookup of something that changes nothing",
            Subtools(json!({"greet_send": {"verify": {"subtool": "greet_look",
            "input": {"name": "{{ name }}"}, "happened": "length > 0"}},
            "greet_look": {"description": "Looks whether a greeting has arrived."}})),
        ),
        ("a dry run of what reads", Greet(json!({"dry_run": {"subtool": "greet"}}))),
        ("a dry run by what is not there", dry_run(json!({"subtool": "greet_look"}))),
        (
            "a dry run by what changes something",
            Subtools(
                json!({"greet_send": {"annotations": null, "confirm": "always", "dry_run": {"subtool": "greet_more", "input": {"name": "{{ name }}"}}},
                "greet_more": {"description": "Says hello twice to a person.", "annotations": null, "confirm": "always"}}),
            ),
        ),
        ("a dry run by nothing", dry_run(json!({}))),
        ("a dry run with a field that does not arrive", dry_run(json!({"input": {"check": true}}))),
        ("a dry run with a field that is not declared", dry_run(json!({"input": {"dry": true}}))),
        ("a dry run with a field that is so anyway", dry_run(json!({"input": {"always": true}}))),
        ("a dry run with a field of another type", dry_run(json!({"input": {"always": "yes"}}))),
        ("a dry run that the caller decides about", dry_run(json!({"input": {"always": "{{ check }}"}}))),
    ]
}

/// A definition without a mistake.
fn greet() -> Value {
    json!({
        "description": "Says hello to one person by name.",
        "input": {"type": "object", "properties": {"name": {"type": "string", "description": "The name."}},
            "required": ["name"], "additionalProperties": false},
        "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["echo", "--", "{{ name }}"]}},
        "examples": [{"input": {"name": "Ann"}}]
    })
}

fn changed(changes: &Value) -> Value {
    let mut greet = greet();
    for (key, value) in changes.as_object().into_iter().flatten() {
        greet[key] = value.clone();
    }
    greet.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    greet
}

/// The text of the file, and what of it is worth showing.
fn file(wrong: &Wrong) -> (String, String) {
    match wrong {
        Greet(changes) => (json!({"greet": changed(changes)}).to_string(), changes.to_string()),
        Http(settings) => {
            let mut http = json!({"base_url": "https://a.example"});
            http.as_object_mut().expect("an object").extend(crate::object(settings.clone()));
            (
                json!({"greet": changed(&json!({"run": {"http": http}}))}).to_string(),
                json!({"http": settings}).to_string(),
            )
        }
        Subtools(subtools) => {
            let whole = subtools.as_object().expect("an object").iter().map(|(name, it)| (name.clone(), changed(it)));
            (Value::Object(whole.collect()).to_string(), subtools.to_string())
        }
        Text(text) => ((*text).to_owned(), text.replace('\n', " ")),
    }
}

fn findings(text: &str) -> Vec<String> {
    let folder = Folder::new();
    folder.write("acme.json", text);
    let catalog = folder.load();
    let path = format!("{}/acme.json", folder.folder.path().display());
    let mut findings = lint(&catalog, &folder.config, &LintScope::default());
    findings.retain(|finding| finding.level != Level::Advice);
    findings.iter().map(|finding| finding.to_line().replace(&path, "acme.json")).collect()
}

#[test]
fn ninety_wrong_definitions_are_explained() {
    assert_eq!(findings(&json!({"greet": greet()}).to_string()), [""; 0], "the definition itself has no mistake");
    let wrong = wrong_definitions();
    assert!(wrong.len() >= 90, "{} definitions", wrong.len());
    let mut text = String::from(
        "What `agent-magic-tool lint` says about wrong definitions. Rewritten by\n\
         UPDATE_EXPECT=1 cargo test -p agent-magic-tool-executor --test catalog ninety\n",
    );
    for (number, (title, wrong)) in wrong.iter().enumerate() {
        let (content, shown) = file(wrong);
        let findings = findings(&content);
        assert!(!findings.is_empty(), "{title}: nothing is said about {content}");
        writeln!(text, "\n{}. {title}\n   {shown}", number + 1).expect("a text takes any text");
        for finding in findings {
            writeln!(text, "   > {finding}").expect("a text takes any text");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalog/messages.txt");
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, &text).expect("written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let first = text.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(text == expected, "executor/tests/catalog/messages.txt is out of date; the first difference: {first:?}");
}

/// The problems of a file.
fn problems_of_file(file: &Value) -> String {
    Folder::with(&[("acme.json", file)]).problems().join("\n")
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
