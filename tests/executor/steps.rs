//! Several subtools as one: the steps use each other's data, keep their own rules, and stop as a whole.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::{World, until};

/// A world with a list of books, a reader of one book, and subtools that are made of steps.
fn world(composed: &Value) -> World {
    let world = World::new();
    let text = json!({"type": "string"});
    let mut definitions = json!({
        "find_books": {
            "description": "Finds the books of a shelf.",
            "input": {"type": "object", "properties": {"shelf": text}, "required": ["shelf"]},
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "echo find >>ran; cat \"$0.json\"", "{{ shelf }}"], "output": "json"}}
        },
        "read_book": {
            "description": "Reads the title of one book.",
            "input": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "echo read >>ran; printf 'Book %s' \"$0\"", "{{ number }}"]}}
        },
        "wait_for": {
            "description": "Waits until a file is there.",
            "input": {"type": "object", "properties": {"file": text}, "required": ["file"]},
            "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "echo $$ >started-$0; while [ ! -e $0 ]; do sleep 0.05; done; echo came", "{{ file }}"]}}
        },
        "fail": {
            "description": "Fails.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "echo broken >&2; exit 3"]}}
        },
        "write_note": {
            "description": "Writes a note.",
            "input": {"type": "object", "properties": {"text": text}, "required": ["text"]},
            "run": {"process": {"argv": ["sh", "-c", "printf '%s\\n' \"$0\" >>notes; printf written", "{{ text }}"]}}
        }
    });
    definitions.as_object_mut().expect("an object").extend(composed.as_object().cloned().expect("an object"));
    world.define("own.json", &definitions);
    for (shelf, books) in
        [("full", json!({"total": 2, "items": [{"id": 7}, {"id": 9}]})), ("empty", json!({"total": 0, "items": []}))]
    {
        fs::write(world.folder().join(format!("{shelf}.json")), books.to_string()).expect("written");
    }
    world
}

fn composed(steps: &Value) -> Value {
    json!({
        "description": "Reads the books of a shelf.",
        "input": {"type": "object", "properties": {"shelf": {"type": "string", "default": "full"}}},
        "annotations": {"readOnlyHint": true},
        "run": {"steps": steps}
    })
}

/// How often each subtool ran.
fn ran(world: &World) -> String {
    fs::read_to_string(world.folder().join("ran")).unwrap_or_default().replace('\n', " ")
}

#[test]
fn a_step_uses_the_data_of_others_with_its_type() {
    let mut shelf = composed(&json!([
        {"name": "first", "subtool": "read_book", "when": "steps.found.total > 0", "input": {"number": "{{ steps.found.items[0].id }}"}},
        {"name": "all", "subtool": "read_book", "each": "{{ steps.found.items }}", "input": {"number": "{{ item.id }}"}},
        {"name": "broken", "subtool": "fail", "optional": true},
        {"name": "found", "subtool": "find_books", "input": {"shelf": "{{ shelf }}"}},
    ]));
    let whole = shelf.clone();
    shelf["result"] = json!({"select": "{total: .found.total, first, titles: .all, shelf: $input.shelf}"});
    let world = world(&json!({"read_shelf": shelf, "read_whole": whole}));
    let result = world.result_of("read_shelf", &json!({}));
    let expected = json!({"total": 2, "first": "Book 7", "titles": ["Book 7", "Book 9"], "shelf": "full"});
    assert_eq!(result["data"], expected, "{result:#}");
    let steps = &result["_meta"]["steps"];
    assert_eq!(steps["all"]["ids"].as_array().map(Vec::len), Some(2), "{steps:#}");
    assert_eq!(steps["broken"]["code"], "process-failed", "{steps:#}");
    assert_eq!(world.result_of("read_shelf", &json!({"shelf": "empty"}))["data"]["titles"], json!([]));
    let result = world.result_of("read_whole", &json!({"shelf": "empty"}));
    assert_eq!(result["data"], json!({"all": [], "found": {"total": 0, "items": []}}), "{result:#}");
    assert_eq!(result["_meta"]["steps"]["first"], json!({"tool": "read_book", "left_out": true}));
    // What would be run is shown, as far as it is known.
    let planned = world.run(&["run", "read_shelf", "--dry-run"]).json();
    let inputs: Vec<_> = planned["would_send"]["steps"]
        .as_array()
        .unwrap_or_else(|| panic!("{planned:#}"))
        .iter()
        .map(|step| &step["input"])
        .collect();
    assert_eq!(
        json!(inputs),
        json!([{"number": "{{ steps.found.items[0].id }}"}, {"number": "{{ item.id }}"}, null, {"shelf": "full"}]),
        "{planned:#}"
    );
}

#[test]
fn independent_steps_run_side_by_side_and_a_failure_stops_the_whole() {
    let world = world(&json!({
        "both": composed(&json!([
            {"name": "a", "subtool": "wait_for", "input": {"file": "go-a"}},
            {"name": "b", "subtool": "wait_for", "input": {"file": "go-b"}},
            {"name": "note", "subtool": "read_book", "after": ["b"], "input": {"number": 1}},
        ])),
        "failing": composed(&json!([
            {"name": "endless", "subtool": "wait_for", "input": {"file": "never"}},
            {"name": "ready", "subtool": "wait_for", "input": {"file": "started-never"}},
            {"name": "broken", "subtool": "fail", "after": ["ready"]},
            {"name": "later", "subtool": "read_book", "after": ["broken"], "input": {"number": 1}},
        ])),
    }));
    let id = world.start("both", &json!({}));
    until("both have started", || {
        ["started-go-a", "started-go-b"].iter().all(|file| world.folder().join(file).exists())
    });
    fs::write(world.folder().join("go-a"), "").expect("written");
    until("its progress is shown", || world.result_file(&id)["progress"] == json!({"done": 1.0, "total": 3.0}));
    assert_eq!(ran(&world), "");
    fs::write(world.folder().join("go-b"), "").expect("written");
    world.run(&["wait", &id]);
    assert_eq!((&world.result_file(&id)["status"], ran(&world).as_str()), (&json!("succeeded"), "read "));

    let result = world.result_of("failing", &json!({}));
    let error = &result["error"];
    assert_eq!((&error["code"], &error["details"]["step"]), (&json!("process-failed"), &json!("broken")), "{result:#}");
    assert_snapshot!(error["message"].as_str().expect("a message"), @"the step `broken` failed: `fail` failed: `sh` ended with status 3: broken");
    assert_eq!(error["details"]["steps"]["endless"]["code"], "cancelled", "{result:#}");
    assert_eq!(error["details"]["steps"].get("later"), None, "{result:#}");
    let open = world.run(&["tasks", "--state", "pending"]).json();
    assert_eq!(open, json!([]));
}

#[test]
fn each_step_keeps_the_rules_of_its_subtool() {
    let mut both = composed(&json!([
        {"name": "book", "subtool": "read_book", "input": {"number": 3}},
        {"name": "note", "subtool": "write_note", "input": {"text": "{{ steps.book }} {{ shelf }}"}},
    ]));
    both["annotations"] = json!({});
    both["confirm"] = json!("never");
    let world = world(&json!({"note_book": both}));
    let step_that_waits = || {
        let mut found = None;
        until("a step waits for a human", || {
            let open = world.run(&["tasks", "--state", "pending"]).json();
            let waits = |task: &&Value| task["state"] == "awaiting_confirmation";
            found = open.as_array().expect("a list").iter().find(waits).cloned();
            found.is_some()
        });
        found.expect("found")
    };
    let id = world.start("note_book", &json!({}));
    let step = step_that_waits();
    assert_eq!(step["tool"], "write_note");
    // Who waits for the whole learns at once that a human is needed.
    let waited = world.run(&["wait", &id]);
    assert_eq!(waited.exit, 4, "{waited}");
    assert!(waited.stdout.contains("the step `note` waits for the user"), "{waited}");
    world.decide(step["id"].as_str().expect("an id"), "approve", "");
    assert_eq!(world.end_of(&id)["data"], json!({"book": "Book 3", "note": "written"}));

    let id = world.start("note_book", &json!({"shelf": "denied"}));
    world.decide(step_that_waits()["id"].as_str().expect("an id"), "deny", "");
    let result = world.end_of(&id);
    assert_eq!(
        (&result["error"]["code"], &result["error"]["details"]["step"]),
        (&json!("denied"), &json!("note")),
        "{result:#}"
    );

    // What is cancelled as a whole leaves no step waiting, and a caller's own limits hold for the steps too.
    let id = world.start("note_book", &json!({"shelf": "cancelled"}));
    let step = step_that_waits();
    assert_eq!(world.run(&["cancel", &id]).exit, 0);
    until("the step is cancelled", || world.result_file(step["id"].as_str().expect("an id"))["status"] == "cancelled");
    let narrow = world
        .command(&["run", "note_book", "--wait"])
        .env("AGENT_MAGIC_TOOL_SCOPE", r#"[["note_book"]]"#)
        .output()
        .expect("it runs");
    let result = world.transcript(&narrow).json();
    assert_eq!(result["error"]["code"], "unknown-subtool", "{result:#}");
    assert_eq!(fs::read_to_string(world.folder().join("notes")).expect("a note"), "Book 3 full\n");
}

#[test]
fn a_step_of_a_read_only_session_only_reads() {
    let step = |subtool: &str, input: &Value| json!([{"name": "inner", "subtool": subtool, "input": input}]);
    // All of them say that they only read, and none would ask.
    let mut silent = composed(&step("note_silently", &json!({"text": "EVIL"})));
    silent["confirm"] = json!("never");
    let mut each = composed(&json!([
        {"name": "found", "subtool": "find_books", "input": {"shelf": "{{ shelf }}"}},
        {"name": "notes", "subtool": "note_silently", "each": "{{ steps.found.items }}", "input": {"text": "EVIL {{ item.id }}"}},
    ]));
    each["confirm"] = json!("never");
    let nested = composed(&step("note_once", &json!({})));
    let reads = composed(&step("read_book", &json!({"number": 3})));
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let world = world(&json!({
        "note_silently": {
            "description": "Writes a note and asks nobody.", "input": text, "confirm": "never",
            "run": {"process": {"argv": ["sh", "-c", "printf '%s\\n' \"$0\" >>notes", "{{ text }}"]}}
        },
        "note_once": silent, "note_each": each, "note_nested": nested, "only_reads": reads,
    }));
    for (name, code) in [
        ("note_once", "refused-by-policy"),
        ("note_each", "refused-by-policy"),
        ("note_nested", "refused-by-policy"),
        ("only_reads", ""),
    ] {
        let run = || {
            let mut command = world.command(&["run", name, "--wait"]);
            let output = command.env("AGENT_MAGIC_TOOL_READ_ONLY", "1").output().expect("it runs");
            world.transcript(&output).json()
        };
        let result = run();
        assert_eq!(result["error"]["code"].as_str().unwrap_or_default(), code, "{name}: {result:#}");
        assert!(!world.folder().join("notes").exists(), "{name} wrote a note");
    }
    // Without that limit they write.
    assert_eq!(world.result_of("note_nested", &json!({}))["status"], "succeeded");
    assert_eq!(fs::read_to_string(world.folder().join("notes")).expect("a note"), "EVIL\n");
}

#[test]
fn after_a_kill_no_step_is_carried_out_twice() {
    let mut both = composed(&json!([
        {"name": "note", "subtool": "write_quietly", "input": {"text": "once"}},
        {"name": "wait", "subtool": "wait_for", "after": ["note"], "input": {"file": "go"}},
    ]));
    both["annotations"] = json!({});
    both["confirm"] = json!("never");
    let quietly = json!({
        "description": "Writes a note without asking.", "confirm": "never",
        "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "run": {"process": {"argv": ["sh", "-c", "printf '%s\\n' \"$0\" >>notes; printf written", "{{ text }}"]}}
    });
    let world = world(&json!({"note_and_wait": both, "write_quietly": quietly}));
    let id = world.start("note_and_wait", &json!({}));
    until("the second step has started", || world.folder().join("started-go").exists());
    world.kill_executor();
    fs::write(world.folder().join("go"), "").expect("written");
    world.run(&["executor", "start"]);
    world.run(&["wait", &id]);
    let result = world.result_file(&id);
    assert_eq!(result["data"], json!({"note": "written", "wait": "came"}), "{result:#}");
    assert_eq!(fs::read_to_string(world.folder().join("notes")).expect("a note"), "once\n");
}

#[test]
fn the_mistakes_of_steps_are_found_when_they_are_loaded() {
    let step = |name: &str, more: Value| {
        let mut step = json!({"name": name, "subtool": "read_book", "input": {"number": 1}});
        step.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        step
    };
    for (steps, place, message) in [
        (json!([]), "run.steps", "it has 0 steps; it needs 1 to 20"),
        (json!([step("a", json!({"subtool": "raed_book"}))]), "run.steps[0].subtool", "no subtool named `raed_book`"),
        (json!([step("a", json!({"input": {}}))]), "run.steps[0].input", "`read_book` requires `number`"),
        (json!([step("a", json!({"subtool": "composed"}))]), "run.steps", "it depends on itself"),
        (
            json!([step("a b", json!({}))]),
            "run.steps[0].name",
            "`a b` is not a name; use letters, digits and `_`, and begin with a letter",
        ),
        (json!([step("a", json!({})), step("a", json!({}))]), "run.steps[1].name", "another step is named `a` too"),
        (json!([step("a", json!({"after": ["b"]}))]), "run.steps[0].after[0]", "no step named `b`"),
        (
            json!([step("a", json!({"input": {"number": "{{ steps.b.x }}"}}))]),
            "run.steps[0].input.number",
            "there is no step named `b`; there is `a`",
        ),
        (
            json!([step("a", json!({"input": {"number": "{{ shelv }}"}}))]),
            "run.steps[0].input.number",
            "`shelv` is not declared in `input.properties`; did you mean `shelf`?",
        ),
        (
            json!([step("a", json!({"each": "shelf"}))]),
            "run.steps[0].each",
            "it must be one reference to a list, like `{{ steps.found.items }}`",
        ),
        (
            json!([step("a", json!({"when": "steps.b"})), step("b", json!({"input": {"number": "{{ steps.a }}"}}))]),
            "run.steps[0]",
            "the step `a` waits for itself",
        ),
    ] {
        let world = world(&json!({"composed": composed(&steps)}));
        let found = world.run(&["lint"]).json();
        let problems = found.as_array().expect("findings");
        let said = problems.iter().any(|problem| {
            problem["place"] == place && problem["message"].as_str().is_some_and(|said| said.contains(message))
        });
        assert!(said, "{place}: {message}\n{found:#}");
    }
}
