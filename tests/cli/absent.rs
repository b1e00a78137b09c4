//! What is not there is explained: a definition or a pack that was not loaded, at every place that names a subtool.

use serde_json::{Value, json};

use crate::world::{Transcript, World};

fn subtool() -> Value {
    json!({"description": "Finds zebras.", "input": {"properties": {}, "additionalProperties": false},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}})
}

/// A world in which each kind of failure leaves out one subtool.
fn world() -> World {
    let world = World::new();
    world.configure(
        "[packs.zoo]\nenabled = true\n[packs.zoo.switches]\nwrite = false\n[packs.broken]\nenabled = true\n\
         [access]\ndeny = [\"denied_*\"]\n",
    );
    let write = |path: &str, text: String| {
        let path = world.config_folder().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    let mut mistaken = subtool();
    mistaken["timeout"] = json!("ten");
    write("subtools/syntax.json", format!("{{\"in_syntax\": {}", subtool()));
    write("subtools/mistake.json", json!({"in_mistake": mistaken, "denied_mistake": mistaken}).to_string());
    write("subtools/defaults.json", json!({"$defaults": 1, "in_defaults": subtool()}).to_string());
    write("subtools/denied.json", format!("{{\"denied_syntax\": {}", subtool()));
    write("subtools/space.json", format!("{{\"$namespace\": \"space\", \"walk\": {}", subtool()));
    let mut uses = subtool();
    uses["run"] = json!({"steps": [{"name": "one", "subtool": "in_syntax", "input": {}}]});
    write("subtools/uses.json", json!({ "uses": uses }).to_string());
    let manifest = |name: &str, more: &str| {
        format!("name = \"{name}\"\nversion = \"1.0.0\"\ndescription = \"Knows zebras.\"\n{more}")
    };
    write(
        "packs/zoo/pack.toml",
        manifest(
            "zoo",
            "[needs.programs]\ntrue = { description = \"to find\" }\n[switches.write]\ndescription = \"Writes.\"\ndefault = true\nsubtools = [\"zoo_write\"]\n",
        ),
    );
    write("packs/zoo/zoo.json", json!({"zoo_read": subtool(), "zoo_write": subtool()}).to_string());
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    write("packs/off/pack.toml", manifest("off", ""));
    write("packs/off/off.json", json!({"off_read": subtool()}).to_string());
    write("packs/broken/pack.toml", "name = 7\n".to_owned());
    write("packs/broken/broken.json", json!({"broken_read": subtool()}).to_string());
    world
}

/// The error of every command and door that is given the name.
fn errors(world: &World, name: &str, scope: Option<&str>) -> Vec<(String, String)> {
    let ran = |words: &[&str]| -> Transcript {
        let mut command = world.command(words);
        if let Some(scope) = scope {
            command.env("AGENT_MAGIC_TOOL_SCOPE", scope);
        }
        world.transcript(&command.output().expect("it starts"))
    };
    let mut found: Vec<_> = [
        vec!["run", name],
        vec!["run", name, "--wait"],
        vec!["run", name, "--dry-run"],
        vec!["inspect", name],
        vec!["list", "tools", name],
        vec!["test", name],
    ]
    .iter()
    .map(|words| {
        let ran = ran(words);
        assert_ne!(ran.exit, 0, "{words:?}: {ran}");
        (words.join(" "), ran.error().to_string())
    })
    .collect();
    if scope.is_none() {
        let asked = format!("{}\n", json!({"command": format!("agent-magic-tool run {name}")}));
        let answer = world.run_with(&["command-executor"], &asked).json();
        found.push(("command-executor".to_owned(), answer["output"].as_str().expect("text").to_owned()));
        found.push(("mcp".to_owned(), super::whole::over_mcp(world, &format!("agent-magic-tool run {name}"))));
    }
    found
}

#[test]
fn what_was_not_loaded_is_said_with_its_reason_wherever_it_is_named() {
    let world = world();
    for (name, expected) in [
        ("in_syntax", vec!["syntax.json", "was not loaded"]),
        ("in_mistake", vec!["mistake.json", "timeout", "was not loaded"]),
        ("in_defaults", vec!["defaults.json", "$defaults", "was not loaded"]),
        ("space-walk", vec!["space.json", "was not loaded"]),
        ("broken_read", vec!["packs/broken/pack.toml", "was not loaded"]),
        ("zoo_write", vec!["switched off in the pack `zoo`"]),
        ("off_read", vec!["of the pack `off`, which is not enabled", "agent-magic-tool pack enable off"]),
        ("shopware_capabilities", vec!["of the pack `shopware`, which is not enabled"]),
        ("uses", vec!["run.steps", "the file that defines `in_syntax` was not loaded", "syntax.json"]),
    ] {
        for (place, error) in errors(&world, name, None) {
            for expected in &expected {
                assert!(error.contains(expected), "{name}: {place}: {expected} is not in {error}");
            }
            assert!(!error.contains("did you mean"), "{place}: {error}");
        }
    }
    assert_eq!(world.run(&["run", "zoo_read", "--wait"]).exit, 0, "what is fine is not disturbed");
}

#[test]
fn what_a_caller_may_not_use_is_not_revealed() {
    let world = world();
    let unknown = |place: &str, error: &str, name: &str| {
        assert!(error.contains(&format!("no subtool named `{name}`")), "{place}: {error}");
        assert!(
            !error.contains(".json") && !error.contains(".toml") && !error.contains("pack enable"),
            "{place}: {error}"
        );
    };
    for name in ["denied_mistake", "denied_syntax", "denied_nothing"] {
        for (place, error) in errors(&world, name, None) {
            unknown(&place, &error, name);
        }
    }
    for name in ["in_syntax", "in_mistake", "in_defaults", "broken_read", "zoo_write", "off_read", "nothing"] {
        for (place, error) in errors(&world, name, Some("[[\"zoo_read\"]]")) {
            unknown(&place, &error, name);
        }
    }
}

#[test]
fn names_that_differ_only_in_case_are_one_name() {
    let world = World::new();
    world.define("a.json", &json!({"Zoo_Read": subtool(), "other": subtool()}));
    world.define("b.json", &json!({"zoo_read": subtool(), "ZOO_READ": subtool(), "Files_Read": subtool()}));
    let linted = world.run(&["lint", "--format=lines"]);
    for (name, first) in [("zoo_read", "Zoo_Read"), ("ZOO_READ", "Zoo_Read"), ("Files_Read", "files_read")] {
        assert!(
            linted.stdout.contains(&format!("error: {name}: the name differs only in case from `{first}`")),
            "{linted}"
        );
        let refused = world.run(&["run", name, "--wait"]);
        assert_eq!(refused.error()["code"], "bad-definition", "{refused}");
    }
    assert_eq!(world.run(&["run", "Zoo_Read", "--wait"]).exit, 0);
    let all = world.run(&["list", "--limit=1000", "--format=names"]).json();
    let names: Vec<_> = all.as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert!(names.contains(&"Zoo_Read") && names.contains(&"files_read") && names.contains(&"other"), "{names:?}");
    assert!(!names.contains(&"Files_Read") && !names.contains(&"zoo_read"), "{names:?}");
}
