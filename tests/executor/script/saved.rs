//! Scripts that became subtools: saved after a test and a human's yes, or written by a developer as a file.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::{Value, json};

use super::{called, script, world};
use crate::page::human::Human;
use crate::world::{Transcript, World};

const SOURCE: &str = "// Puts what is large.
const least = 3;
const unit = 'kg';
const rows = (await large({})).filter(row => row.number < 6 && row.number >= least);
for (const row of rows) await put({n: row.number});
return {put: rows.length, unit};
";

/// A world in which [`SOURCE`] has run, and the id of that.
fn with_script() -> (World, String) {
    let world = world();
    let ended = script(&world, SOURCE);
    assert_eq!(ended.json()["data"], json!({"put": 3, "unit": "kg"}), "{ended}");
    let id = ended.json()["id"].as_str().expect("an id").to_owned();
    (world, id)
}

fn save(world: &World, id: &str, more: &[&str]) -> Transcript {
    let line = ["script", "save", "put_large", id, "--description=Puts the numbers that are large enough."];
    world.run(&[&line[..], more].concat())
}

#[test]
fn a_script_that_succeeded_becomes_a_subtool_after_a_test_and_a_yes() {
    let (world, script) = with_script();
    let before = called(&world);
    let receipt = save(&world, &script, &["--phrase=keep the heavy ones"]);
    assert_eq!((receipt.exit, &receipt.json()["state"]), (0, &json!("awaiting_confirmation")), "{receipt}");
    let id = receipt.json()["id"].as_str().expect("an id").to_owned();
    let card = Human::of(&world).card(&id);
    for shown in ["put_large", "input.least", "Puts the numbers that are large enough.", "Least, like 3.", &script] {
        assert!(card.contains(shown), "no `{shown}`: {card}");
    }
    world.decide(&id, "approve", "save_script");
    let saved = world.end_of(&id);
    assert_eq!(saved["data"]["tested"], json!({"calls": 4}), "{saved:#}");
    assert_eq!(called(&world), before, "a test calls nothing");
    // It is found, by its phrase too, and does the same, or something else with other inputs.
    let found = world.run(&["list", "tools", "--query=keep the heavy ones", "--limit=1"]);
    assert!(found.json()["put_large"].is_object(), "{found}");
    let same = world.result_of("put_large", &json!({}));
    assert_eq!(same["data"], json!({"put": 3, "unit": "kg"}), "{same:#}");
    let other = world.result_of("put_large", &json!({"least": 5, "unit": "t"}));
    assert_eq!(other["data"], json!({"put": 1, "unit": "t"}), "{other:#}");
    // What was written is what was shown, and has no finding.
    let (definition, program) = (world.subtools().join("put_large.json"), world.subtools().join("put_large.js"));
    assert_eq!(
        fs::read_to_string(&program).expect("there"),
        SOURCE.replace("= 3", "= input.least").replace("= 'kg'", "= input.unit")
    );
    let written: Value = serde_json::from_slice(&fs::read(&definition).expect("there")).expect("JSON");
    assert_eq!(written["put_large"]["run"]["script"], json!({"file": "put_large.js", "calls": ["large", "put"]}));
    let linted = world.run(&["lint", definition.to_str().expect("UTF-8")]);
    assert_eq!(linted.exit, 0, "{linted}");
    // The name is taken, in any case.
    for name in ["put_large", "Put_Large"] {
        let again = world.run(&["script", "save", name, &script, "--description=Puts what is large."]);
        assert_eq!(again.error()["code"], "rejected", "{again}");
    }
}

#[test]
fn a_saved_script_calls_only_what_was_approved_and_its_calls_ask_for_themselves() {
    let world = world();
    let source = "const n = 1;\nconst name = 'put';\nreturn await tools[name]({n})";
    let id = script(&world, source).json()["id"].as_str().expect("an id").to_owned();
    let receipt = save(&world, &id, &["--input=name"]);
    let task = receipt.json()["id"].as_str().expect("an id").to_owned();
    world.decide(&task, "approve", "save_script");
    assert_eq!(world.end_of(&task)["success"], true);
    assert_eq!(world.result_of("put_large", &json!({}))["data"], "put 1");
    let other = world.result_of("put_large", &json!({"name": "once"}));
    assert_eq!(other["error"]["code"], "refused-by-policy", "{other:#}");
    assert_eq!(other["error"]["message"], "line 3: this script may not call `once`");
    assert!(!world.folder().join("happened").exists());
}

#[test]
fn what_does_not_do_the_same_is_not_saved_and_no_human_is_asked_in_vain() {
    let (world, id) = with_script();
    let failed =
        script(&world, "await put({n: 1}); throw new Error('no')").json()["id"].as_str().expect("an id").to_owned();
    let plain = world.result_of("put", &json!({"n": 1}))["id"].as_str().expect("an id").to_owned();
    for (task, more, code, message) in [
        (failed.as_str(), &[][..], "rejected", "did not succeed"),
        (&plain, &[], "unknown-task", "is no script"),
        ("01a2203f095576f8904c3432a79618a3", &[], "unknown-task", "no ended task"),
        (&id, &["--input=row"], "rejected", "the value of `row` is not written at the top"),
        (&id, &["--input=nothing"], "rejected", "the script has no constant `nothing`"),
    ] {
        let refused = save(&world, task, more);
        assert_ne!(refused.exit, 0, "{refused}");
        let error = refused.json()["error"].clone();
        assert_eq!(error["code"], code, "{refused}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(message)), "{refused}");
    }
    let draft = world.result_of("draft_script", &json!({"script": id}))["data"].clone();
    let source = draft["source"].as_str().expect("a program").to_owned();
    let whole = |changes: Value| {
        let mut input = json!({"name": "put_large", "description": "Puts the large ones.", "script": id});
        for key in ["source", "calls", "schema", "example"] {
            input[key] = draft[key].clone();
        }
        for (key, value) in changes.as_object().expect("an object") {
            input[key] = value.clone();
        }
        input
    };
    // What is wrong in itself is said before a human is asked.
    for (changes, message) in [
        (json!({"name": "put"}), "there is a subtool named `put` already"),
        (json!({"description": " "}), "`description`"),
        (json!({"calls": ["put", "l*"]}), "`l*` in `calls` is no subtool that you may use"),
        (json!({"calls": ["put", "large", "later"]}), "`later` in `calls` is no subtool"),
        (json!({"calls": ["put", "large", "run_script"]}), "`run_script` runs any program"),
        (json!({"name": "mcp__x"}), "choose another name"),
        (json!({"name": "Agent-Magic-Tool-x"}), "choose another name"),
        (
            json!({"source": format!("// harmless\u{2028}steal()\n{source}")}),
            "line 1 of the program has a character that a human cannot see: U+2028",
        ),
        (json!({"schema": {"type": "array"}}), "`schema`"),
        (json!({"example": {"least": "three"}}), "`example"),
        (json!({"example": {"least": 4}}), "the default of `least` is not what the `example` has"),
        (json!({"phrases": ["keep\u{200b}"]}), "U+200B"),
        (json!({"description": "Puts\rwhat is large."}), "U+000D"),
        (json!({"schema": {"type": "object", "properties": {"a\u{1b}": {}}}}), "U+001B"),
        (
            json!({"schema": {"type": "object", "properties": {"o": {"properties": {"p": {"default": 1}}}}}}),
            "a default below the inputs",
        ),
        (json!({"name": "-x"}), "looks like an option"),
        (json!({"name": "Denied"}), "`Denied` is a name of JavaScript"),
        (json!({"name": "Promise"}), "`Promise` is a name of JavaScript"),
        (json!({"name": "ask_first"}), "there is a subtool named `ask-first` already"),
        (json!({"name": "Human_Question"}), "is built in"),
    ] {
        let refused = world.run(&["run", "save_script", "--input", &whole(changes.clone()).to_string()]);
        assert_eq!(refused.error()["code"], "rejected", "{changes}: {refused}");
        let said = refused.error()["message"].as_str().is_some_and(|text| text.contains(message));
        assert!(said, "{changes}: {refused}");
    }
    // What the test finds is not saved, whatever a human said.
    for (changes, message) in [
        (
            json!({"source": source.replace("row.number}", "row.number + 1}")}),
            "call 2, in line 5, is `put` now, and the script's record has it there with another input",
        ),
        (json!({"source": source.replace("unit}", "unit: 'x'}")}), "it returns something else"),
        (json!({"source": source.replace("return {", "put({n: 9}); return {")}), "call 5"),
        (json!({"source": source.replace("for (", "for (;0;) 0; if (0) for (")}), "it makes 1 calls of 4"),
        (json!({"source": "return ("}), "line 1"),
        (json!({"calls": ["large"]}), "the program calls `put`"),
    ] {
        let task = world.start("save_script", &whole(changes.clone()));
        world.decide(&task, "approve", "save_script");
        let ended = world.end_of(&task);
        let said = ended["error"]["message"].as_str().is_some_and(|text| text.contains(message));
        assert!(said, "{changes}: {ended:#}");
        assert!(!world.subtools().join("put_large.json").exists() && !world.subtools().join("put_large.js").exists());
    }
    assert_eq!(called(&world).len(), 4, "nothing was called besides: {:?}", called(&world));
}

#[test]
fn a_program_with_other_calls_at_once_is_another_one() {
    let world = world();
    let source = "return await Promise.all([1, 2, 3].map(n => put({n})))";
    let id = script(&world, source).json()["id"].as_str().expect("an id").to_owned();
    let save = |source: &str, changes: Value| {
        let mut input = json!({"name": "puts", "description": "Puts three numbers.", "script": id, "source": source, "calls": ["put"]});
        for (key, value) in changes.as_object().expect("an object") {
            input[key] = value.clone();
        }
        let task = world.start("save_script", &input);
        world.decide(&task, "approve", "save_script");
        world.end_of(&task)
    };
    for changed in [
        source.replace("[1, 2, 3]", "[1, 2]"),
        source.replace("[1, 2, 3]", "[1, 2, 3, 4]"),
        source.replace("[1, 2, 3]", "[3, 2, 1]"),
        "return []".to_owned(),
        "return await Promise.all([1, 2, 3].map(n => ask_user({question: `${n}?`})))".to_owned(),
    ] {
        let ended = save(&changed, json!({}));
        assert_eq!(
            ended["error"]["code"],
            if changed.contains("ask_user") { "rejected" } else { "script-diverged" },
            "{ended:#}"
        );
    }
    // Defaults count as if they were given.
    let number =
        json!({"type": "object", "properties": {"most": {"type": "number", "default": 3, "description": "The most."}}});
    let ended = save("return await Promise.all([1, 2, input.most].map(n => put({n})))", json!({"schema": number}));
    assert_eq!(ended["data"]["inputs"], json!(["most"]), "{ended:#}");
    assert_eq!(world.result_of("puts", &json!({"most": 7}))["data"], json!(["put 1", "put 2", "put 7"]));
}

#[test]
fn a_script_that_has_not_ended_is_not_saved_yet() {
    let world = world();
    let id = super::start(&world, "return await wait_for({file: 'gate'})");
    let refused = save(&world, &id, &[]);
    assert_eq!(refused.json()["error"]["message"], format!("the script {id} has not ended"), "{refused}");
}

#[test]
fn only_who_made_a_script_makes_a_subtool_of_it() {
    let (world, id) = with_script();
    let narrow = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("AGENT_MAGIC_TOOL_SCOPE", json!([["draft_script", "save_script", "run_script"]]).to_string());
        world.transcript(&command.output().expect("it starts"))
    };
    let refused = narrow(&["run", "draft_script", &format!("script={id}"), "--wait"]);
    assert_eq!(refused.json()["error"]["code"], "unknown-task", "{refused}");
}

/// Makes a pack with one subtool and enables it.
fn enabled_pack(world: &World, manifest: &str, subtool: &Value) -> Transcript {
    let folder = world.config_folder().join("packs/theirs");
    fs::create_dir_all(&folder).expect("made");
    let manifest = format!("name = \"theirs\"\nversion = \"1\"\ndescription = \"Theirs.\"\n{manifest}");
    fs::write(folder.join("pack.toml"), manifest).expect("written");
    fs::write(folder.join("theirs.json"), json!({"theirs_run": subtool}).to_string()).expect("written");
    world.run(&["pack", "enable", "theirs"])
}

#[test]
fn a_pack_saves_nothing_unasked_and_its_scripts_stay_within_what_it_declares() {
    let (world, id) = with_script();
    let saves = |more: Value| {
        let fields = ["name", "source", "calls", "script"];
        let mut templates: serde_json::Map<_, _> =
            fields.iter().map(|name| ((*name).to_owned(), json!(format!("{{{{ {name} }}}}")))).collect();
        templates.insert("description".to_owned(), json!("Theirs."));
        let mut subtool = json!({"description": "Saves.", "run": {"builtin": {"save_script": templates}},
            "input": {"type": "object", "properties": {"name": {}, "source": {}, "calls": {}, "script": {}}}});
        for (key, value) in more.as_object().expect("an object") {
            subtool[key] = value.clone();
        }
        subtool
    };
    let calls = |name: &str| {
        json!({"description": "Calls.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
        "run": {"script": {"source": "return 1", "calls": [name]}}})
    };
    let needs = "[needs]\ndefinitions = \"to save\"\n";
    for (manifest, subtool, message) in [
        (
            needs,
            saves(json!({"annotations": {"readOnlyHint": true}})),
            "it writes files of yours, so it does not count as read-only",
        ),
        ("", saves(json!({})), "that it adds definitions"),
        ("", calls("put"), "the subtool `put`"),
        ("uses = [\"run_script\"]\n", calls("run_script"), "that it uses any subtool"),
        ("uses = [\"*_script\"]\n", calls("*_script"), "that it uses any subtool"),
        ("uses = [\"**\"]\n", calls("**"), "that it uses any subtool"),
        (
            "",
            json!({"description": "Calls.", "input": {"type": "object"}, "run": {"script": {"source": "return 1"}}}),
            "that it uses any subtool",
        ),
    ] {
        let enabled = enabled_pack(&world, manifest, &subtool);
        let said = enabled.stdout.clone() + &enabled.stderr;
        assert!(said.contains(message), "{message}: {enabled}");
    }
    // Whatever it says of confirmation, it asks.
    let lenient = json!({"confirm": "never", "annotations": {"destructiveHint": false, "idempotentHint": true}});
    let enabled = enabled_pack(&world, needs, &saves(lenient));
    assert_eq!(enabled.exit, 0, "{enabled}");
    let input = json!({"name": "theirs_new", "source": SOURCE, "calls": ["put", "large"], "script": id});
    let task = world.start("theirs_run", &input);
    assert_eq!(world.result_file(&task)["state"], "awaiting_confirmation");
    // A program that lies elsewhere is not theirs.
    let secret = world.home().join("secret.js");
    fs::write(&secret, "a-secret-value").expect("written");
    symlink(&secret, world.config_folder().join("packs/theirs/theirs.js")).expect("linked");
    let linked = json!({"description": "Calls.", "input": {"type": "object"}, "run": {"script": {"file": "theirs.js", "calls": []}}});
    let enabled = enabled_pack(&world, "", &linked);
    let inspected = world.run(&["inspect", "theirs_run"]);
    let said = [enabled.stdout, enabled.stderr, inspected.stdout, inspected.stderr].concat();
    assert!(said.contains("it is a link; the code of a pack must lie in its folder"), "{said}");
    assert!(!said.contains("a-secret-value"), "{said}");
}

/// Defines a subtool with a script in a file.
fn with_file(world: &World, script: &Value) {
    world.define(
        "filed.json",
        &json!({"filed": {
            "description": "Says what its file says.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"script": script}
        }}),
    );
}

#[test]
fn a_program_in_a_file_is_taken_as_it_is_written_and_as_it_is_now() {
    let world = world();
    let file = world.subtools().join("filed.js");
    with_file(&world, &json!({"file": "filed.js"}));
    let run = || world.result_of("filed", &json!({}))["data"].clone();
    for number in 1..4 {
        // Braces are no template, and `vars` no variable.
        fs::write(&file, format!("const a = {{b: {{c: {number}}}}};\nreturn `{{{{ vars.x }}}} ${{a.b.c}}`"))
            .expect("written");
        assert_eq!(run(), format!("{{{{ vars.x }}}} {number}"));
    }
    // Replaced by another file, as editors do, and behind a link.
    fs::write(world.folder().join("new.js"), "return 'new'").expect("written");
    fs::rename(world.folder().join("new.js"), &file).expect("renamed");
    assert_eq!(run(), "new");
    let target = world.home().join("target.js");
    fs::write(&target, "return 'linked'").expect("written");
    fs::remove_file(&file).expect("removed");
    symlink(&target, &file).expect("linked");
    assert_eq!(run(), "linked");
    fs::write(&target, "return 'changed'").expect("written");
    assert_eq!(run(), "changed");
}

#[test]
fn what_is_wrong_with_the_file_of_a_program_is_said() {
    let world = world();
    world.configure_without_packs("");
    let file = world.subtools().join("filed.js");
    let problem = |script: Value| {
        with_file(&world, &script);
        let linted = world.run(&["lint", world.subtools().join("filed.json").to_str().expect("UTF-8")]);
        linted.stdout + &linted.stderr
    };
    let named = || json!({"file": "filed.js"});
    assert!(problem(named()).contains("failed to read"), "{}", problem(named()));
    fs::write(&file, " \n").expect("written");
    assert!(problem(named()).contains("the file is empty"), "{}", problem(named()));
    fs::write(&file, [0xff, 0xfe]).expect("written");
    assert!(problem(named()).contains("not valid UTF-8"), "{}", problem(named()));
    fs::write(&file, "return 1").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("set");
    assert!(problem(named()).contains("others can write to"), "{}", problem(named()));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    for (script, message) in [
        (json!({"file": "../filed.js"}), "the name of a file beside this one"),
        (json!({"file": "filed.js", "source": "return 1"}), "leave one of them out"),
        (json!({"source": "return 1", "content": "return 2"}), "unknown field `content`"),
        (json!({}), "there is no program"),
        (json!({"file": "filed.js", "calls": ["a[b"]}), "not a valid name or glob"),
    ] {
        let said = problem(script.clone());
        assert!(said.contains(message), "{script}: {said}");
    }
    for (program, script, message) in [
        ("return 1", named(), "note: 0 errors"),
        ("return (", named(), "script-syntax"),
        ("import x from 'y'", named(), "script-syntax"),
        ("return await put({n: 1})", json!({"file": "filed.js", "calls": ["put"]}), "note: 0 errors"),
        (
            "return await put({n: 1})",
            json!({"file": "filed.js", "calls": ["large"]}),
            "the program calls `put`, which it may not",
        ),
        (
            "return await put({n: 1})",
            json!({"file": "filed.js", "calls": ["put", "putt"]}),
            "`putt` matches no subtool",
        ),
    ] {
        fs::write(&file, program).expect("written");
        let said = problem(script.clone());
        assert!(said.contains(message) && !said.contains("unused-input"), "{program} {script}: {said}");
    }
}
