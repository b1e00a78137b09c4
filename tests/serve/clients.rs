//! Our own client libraries, for Python and for JavaScript: they ask, and decide by a policy what waits for a human.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{Server, bearer, world_with_model};
use crate::agent::aimock::Model;
use crate::page::human::Human;
use crate::skip::skip;
use crate::world::{World, until};

/// The `node_modules` of the tests of `serve`.
const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_SERVE_NODE";

/// What the examples of the documents take for granted.
const AROUND_EXAMPLES: &str = "declare const ASK_KEY: string, DECIDE_KEY: string;
declare const process: { stdout: { write(text: string): void } };
";

/// The languages, by their programs.
const LANGUAGES: [(&str, &str); 2] = [("python3", "own_client.py"), ("node", "own_client.mjs")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The languages that are installed.
pub(super) fn languages() -> Vec<(&'static str, &'static str)> {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    LANGUAGES
        .into_iter()
        .filter(|(program, _)| {
            let found = is_there(program);
            if !found {
                skip(&format!("there is no {program} for our client"));
            }
            found
        })
        .collect()
}

/// A script of this folder, which imports our client.
pub(super) fn command_of(world: &World, program: &str, script: &str, arguments: &[&str]) -> Command {
    let file = root().join("tests/serve").join(script);
    let mut command = world.within(program, &[&file.display().to_string()]);
    command.args(arguments).env("PYTHONPATH", root().join("clients/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn run_script(world: &World, program: &str, script: &str, arguments: &[&str]) -> Output {
    command_of(world, program, script, arguments).output().expect("it starts")
}

/// A server, a key that asks, and one that a human lets decide.
struct Setup {
    world: World,
    human: Human,
    server: Server,
    asker: String,
    decider: String,
    _model: Model,
}

impl Setup {
    fn new() -> Option<Self> {
        let (world, model) = world_with_model("")?;
        let tool = |fields: Value| {
            let mut tool = json!({"description": "Leaves a mark.", "confirm": "always",
                "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                "run": {"process": {"argv": ["sh", "-c", "cat >> marks; echo written"], "stdin": "{{ text }}"}}});
            tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
            tool
        };
        let previewed = json!({"preview": {"subtool": "look", "input": {}, "replaces": "{text: .}"}});
        world.define(
            "clients.json",
            &json!({
                "peek": tool(json!({"annotations": {"readOnlyHint": true}})),
                "wipe": tool(json!({"annotations": {"destructiveHint": true}})),
                "replace": tool(previewed),
                "look": {"description": "Looks.", "input": {}, "annotations": {"readOnlyHint": true},
                    "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; echo old"], "folder": "."}}},
            }),
        );
        let human = Human::of(&world);
        let (asker, decider) = (world.make_api_key("asker").key, world.make_deciding_key(&human, "decider"));
        let server = Server::start(&world);
        Some(Self { world, human, server, asker, decider, _model: model })
    }

    /// Runs our client in this language.
    fn client(&self, (program, script): (&str, &str), command: &Value) -> Value {
        let ran = run_script(&self.world, program, script, &[&self.server.url(), &command.to_string()]);
        serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|_| panic!("{program}: {}", String::from_utf8_lossy(&ran.stderr)))
    }

    /// Has the client ask for a run of this subtool, and decide by this policy.
    fn asked(&self, language: (&str, &str), policy: &Value, call: &str) -> Value {
        let message = format!("run: agent-magic-tool run {call}");
        let keys = json!({"ask_key": self.asker, "decide_key": self.decider, "policy": policy, "message": message});
        self.client(language, &keys)
    }

    /// Has the client decide this gate with this key.
    fn decided(&self, language: (&str, &str), key: &str, policy: &Value, gate: &Value) -> (String, String) {
        let outcome = self.client(language, &json!({"decide_key": key, "policy": policy, "gate": gate}));
        let text = |name: &str| outcome[name].as_str().unwrap_or_else(|| panic!("no {name}: {outcome}")).to_owned();
        (text("result"), text("reason"))
    }

    /// What waits, as this key sees it.
    fn gate(&self, key: &str, id: &str) -> Value {
        self.server.request("GET", &format!("/api/v1/gate/{id}"), &bearer(key), "").json()
    }
}

#[test]
fn both_clients_ask_and_decide_by_each_policy() {
    let Some(setup) = Setup::new() else { return };
    let kinds = json!({"by_kind": {"read": true, "write": false}});
    // A policy, the subtool that is called, and what is decided. No page is open: the client that decides is there.
    let cases = [
        (json!({"reject_all": null}), "note", "denied"),
        (json!({"approve_all": null}), "note", "approved"),
        (json!({"approve_all": null}), "wipe", "approved"),
        (json!({"by_subtool": {"note": true, "*": false}}), "note", "approved"),
        (json!({"by_subtool": {"no*": true, "wipe": true}}), "note", "approved"),
        (json!({"by_subtool": {"no*": true, "*e": false}}), "note", "denied"),
        (json!({"by_subtool": {"not": true, "ote": true, "n.te": true}}), "note", "denied"),
        (json!({"by_subtool": {}}), "note", "denied"),
        (kinds.clone(), "peek", "approved"),
        (kinds.clone(), "note", "denied"),
        (kinds, "wipe", "denied"),
        (json!({"by_kind": {"destructive": true}}), "wipe", "approved"),
        (json!({"by_kind": {"write": true}}), "wipe", "denied"),
    ];
    for language in languages() {
        for (number, (policy, subtool, result)) in cases.iter().enumerate() {
            // The same call is not asked again for a while after it was denied.
            let text = format!("{}-{number}", language.0);
            let what = format!("{language:?} {policy} {subtool}");
            let done = setup.asked(language, policy, &format!("{subtool} text={text}"));
            assert_eq!(
                done["outcomes"],
                json!([{"subtool": subtool, "result": result, "reason": ""}]),
                "{what}: {done}"
            );
            let is_approved = *result == "approved";
            let answer = if is_approved { "The note is written." } else { "You denied it." };
            assert_eq!(done["answer"], answer, "{what}: {done}");
            let names: Vec<_> = done["events"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
            assert!(["done", "gate", "task", "tok"].iter().all(|name| names.contains(name)), "{what}: {names:?}");
            let file = setup.world.folder().join(if *subtool == "note" { "note.txt" } else { "marks" });
            let written = std::fs::read_to_string(file).unwrap_or_default();
            assert_eq!(written.contains(&text), is_approved, "{what}: {written}");
        }
        let by_hand = |text: &str| setup.asked(language, &json!({"function": "mine"}), &format!("note text={text}"));
        assert_eq!(by_hand("mine")["outcomes"][0]["result"], "approved", "{language:?}");
        assert_eq!(by_hand(&format!("{}-else", language.0))["outcomes"][0]["result"], "denied", "{language:?}");
        for rules in
            [json!({"by_kind": {"writes": true}}), json!({"by_kind": {"read": "no"}}), json!({"by_subtool": {"a": 1}})]
        {
            let wrong = setup.asked(language, &rules, "note text=x");
            assert!(wrong["wrong"].is_string(), "{language:?} {rules}: {wrong}");
        }
    }
    let history = setup.human.get("/history").body;
    assert!(history.contains("approved with API key decider") && history.contains("denied with API key decider"));
}

#[test]
fn what_commands_print_is_an_answer_without_a_turn() {
    let Some(setup) = Setup::new() else { return };
    for language in languages() {
        let keys = json!({"ask_key": setup.asker, "decide_key": setup.decider, "message": "!help"});
        let done = setup.client(language, &keys);
        assert_eq!(done["events"], json!(["done"]), "{language:?}: {done}");
        assert!(done["answer"].as_str().is_some_and(|answer| answer.contains("!model")), "{language:?}: {done}");
    }
}

#[test]
fn both_clients_refuse_what_is_wrong_and_go_on_after_a_stream_broke_off() {
    let world = World::new();
    for (program, script) in languages() {
        let ran = run_script(&world, program, &script.replace("own_client", "own_client_faults"), &[]);
        let printed = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert_eq!(printed, "all good\n", "{program}");
    }
}

#[test]
fn a_client_decides_only_what_was_asked_with_its_other_key() {
    let Some(setup) = Setup::new() else { return };
    // A program in a terminal asks as well; that is for the human on the page.
    let other = setup.world.start("note", &json!({"text": "from a terminal"}));
    for language in languages() {
        let done = setup.asked(language, &json!({"approve_all": null}), &format!("note text={}", language.0));
        assert_eq!(done["outcomes"].as_array().map(Vec::len), Some(1), "{language:?}: {done}");
        let listed = |keys: Value| setup.client(language, &keys)["gates"].clone();
        let all = listed(json!({"decide_key": setup.decider, "gates": true}));
        assert_eq!(all[0]["id"], *other, "{language:?}: {all}");
        let own = listed(json!({"decide_key": setup.decider, "ask_key": setup.asker, "gates": true}));
        assert_eq!(own, json!([]), "{language:?}");
        // The same key on both sides is refused before anything is asked.
        let keys = json!({"ask_key": setup.decider, "decide_key": setup.decider, "message": "Write a note"});
        let wrong = setup.client(language, &keys);
        assert!(wrong["wrong"].as_str().is_some_and(|text| text.contains("never approves")), "{language:?}: {wrong}");
        // One without the scope does not even follow.
        let keys =
            json!({"ask_key": setup.asker, "decide_key": setup.world.make_api_key(language.0).key, "message": "x"});
        assert_eq!(setup.client(language, &keys), json!({"status": 403, "code": "needs-scope"}), "{language:?}");
    }
    assert_eq!(setup.world.result_file(&other)["state"], "awaiting_confirmation");
}

#[test]
fn an_approval_counts_for_what_was_shown_and_nothing_else() {
    let Some(setup) = Setup::new() else { return };
    let yes = json!({"approve_all": null});
    let waits = |id: &str, how: &str| {
        assert_eq!(setup.world.result_file(id)["state"], "awaiting_confirmation", "{how}");
    };
    for language in languages() {
        let text = |name: &str| json!({"text": format!("{} {name}", language.0)});
        let [one, other] = ["one", "other"].map(|name| setup.world.start("note", &text(name)));
        let gate = setup.gate(&setup.decider, &one);
        let with = |field: &str, value: &Value| {
            let mut changed = gate.clone();
            changed[field] = value.clone();
            changed
        };
        let digest = setup.gate(&setup.decider, &other)["digest"].clone();
        let plain = setup.world.make_api_key(&format!("plain-{}", language.0)).key;
        let decide = |key: &str, policy: &Value, gate: &Value| setup.decided(language, key, policy, gate);
        let attacks = [
            ("another task's digest", decide(&setup.decider, &yes, &with("digest", &digest)), "missed"),
            ("this digest for another task", decide(&setup.decider, &yes, &with("id", &json!(other))), "missed"),
            ("a made-up digest", decide(&setup.decider, &yes, &with("digest", &json!("0".repeat(64)))), "missed"),
            ("a key without the scope", decide(&plain, &yes, &gate), "left"),
            ("its own question", decide(&setup.decider, &yes, &with("own", &json!(true))), "left"),
            ("a touch", decide(&setup.decider, &yes, &with("needs", &json!({"how": "touch"}))), "left"),
            ("the page", decide(&setup.decider, &yes, &with("needs", &json!({"how": "page"}))), "left"),
            ("something new", decide(&setup.decider, &yes, &with("needs", &json!({"how": "oath"}))), "left"),
            ("a policy without an opinion", decide(&setup.decider, &json!({"nothing": null}), &gate), "left"),
            ("a policy that says yes in words", decide(&setup.decider, &json!({"words": null}), &gate), "left"),
            ("a policy that fails", decide(&setup.decider, &json!({"fails": null}), &gate), "left"),
        ];
        for (how, (result, reason), expected) in attacks {
            assert_eq!(result, expected, "{language:?} {how}: {reason}");
            assert!(!reason.is_empty(), "{how}");
            waits(&one, how);
            waits(&other, how);
        }
        assert_eq!(decide(&setup.decider, &yes, &gate).0, "approved", "{language:?}: the gate itself was right");
        assert_eq!(setup.world.end_of(&one)["status"], "succeeded");
        assert_eq!(decide(&setup.decider, &yes, &gate).0, "missed", "{language:?}: it counts once");
        waits(&other, "it is another task");

        // What is shown changes: the preview came. Until then, no client with a key sees it.
        let go = setup.world.folder().join("go");
        std::fs::remove_file(&go).ok();
        let id = setup.world.start("replace", &text("new"));
        let old = setup.human.pending_task(&id)["digest"].clone();
        assert_eq!(setup.gate(&setup.decider, &id)["error"]["code"], "not-found");
        std::fs::write(&go, "").expect("written");
        until("the preview is there", || setup.gate(&setup.decider, &id)["digest"].is_string());
        let shown = setup.gate(&setup.decider, &id);
        assert_ne!(shown["digest"], old);
        let mut before = shown.clone();
        before["digest"] = old;
        assert_eq!(decide(&setup.decider, &yes, &before).0, "missed", "{language:?}: the old digest");
        waits(&id, "the old digest");
        assert_eq!(decide(&setup.decider, &yes, &shown).0, "approved", "{language:?}");
        assert_eq!(setup.world.end_of(&id)["status"], "succeeded");
    }
}

#[test]
fn the_types_of_the_clients_are_those_of_the_openapi_document_and_their_versions_ours() {
    let world = World::new();
    let document = world.folder().join("openapi.json");
    std::fs::write(&document, world.run(&["serve", "openapi"]).stdout).expect("written");
    if languages().iter().any(|(program, _)| *program == "python3") {
        let generator = root().join("clients/generate.py");
        let checked = world
            .within("python3", &[&generator.display().to_string(), "openapi.json", "--check"])
            .output()
            .expect("it starts");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
    let read = |path: &str| std::fs::read_to_string(root().join("clients").join(path)).expect("readable");
    let version = env!("CARGO_PKG_VERSION");
    let package: Value = serde_json::from_str(&read("typescript/package.json")).expect("JSON");
    assert_eq!(package["version"], version);
    assert!(read("python/pyproject.toml").contains(&format!("\nversion = \"{version}\"\n")));
    assert!(read("python/agent_magic_tool_client/__init__.py").contains(&format!("\n__version__ = \"{version}\"\n")));
    for file in package["files"].as_array().expect("a list") {
        read(&format!("typescript/{}", file.as_str().expect("a name")));
    }
    let license = std::fs::read_to_string(root().join("LICENSE")).expect("readable");
    assert!(read("python/LICENSE") == license && read("typescript/LICENSE") == license, "they have the same license");
}

/// Runs a command to its end, and returns what it prints.
#[track_caller]
fn done(command: &mut Command) -> String {
    let ran = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{command:?}: {printed}{}", String::from_utf8_lossy(&ran.stderr));
    printed
}

/// The only file of this folder whose name ends like this.
fn file_with(folder: &Path, end: &str) -> PathBuf {
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let mut found: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn the_python_client_is_built_and_installed_as_a_package() {
    let world = World::new();
    let folder = world.folder();
    // A build leaves files in the folder.
    done(world.within("cp", &["-r"]).arg(root().join("clients/python")).arg("source"));
    // With the environment and the settings of this user: `pip` installs what builds the package from where they say.
    let build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir=wheels", "./source"];
    let Ok(made) = Command::new("python3").args(build).current_dir(&folder).output() else {
        return skip("there is no python3 for our client");
    };
    let said = String::from_utf8_lossy(&made.stderr);
    if said.contains("No module named pip") || said.contains("No matching distribution found for setuptools") {
        return skip(&format!("pip cannot build our client: {said}"));
    }
    assert!(made.status.success(), "{said}");
    let wheel = file_with(&folder.join("wheels"), ".whl").display().to_string();
    done(&mut world.within("python3", &["-m", "venv", "installed"]));
    let bin = folder.join("installed/bin");
    done(&mut world.within(bin.join("pip"), &["install", "--quiet", "--no-deps", "--no-index", &wheel]));
    let script = "import importlib.metadata as m, agent_magic_tool_client as c\n\
                  d = m.distribution('agent-magic-tool-client')\n\
                  names = {f.name for f in d.files}\n\
                  assert {'LICENSE', 'py.typed', 'api_types.py'} <= names and c.by_kind, names\n\
                  assert 'pip install' in d.metadata.get_payload() and d.metadata['License-Expression'] == 'Apache-2.0'\n\
                  print(d.version, c.__version__)";
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(done(&mut world.within(bin.join("python"), &["-c", script])), format!("{version} {version}\n"));
    let help = done(&mut world.within(bin.join("agent-magic-tool-decide"), &["--help"]));
    assert!(help.contains("--by-kind"), "{help}");
}

#[test]
fn the_typescript_client_is_packed_and_installed_as_a_package() {
    let world = World::new();
    if Command::new("npm").arg("--version").output().is_err() {
        return skip("there is no npm for our client");
    }
    let source = root().join("clients/typescript").display().to_string();
    done(&mut world.within("npm", &["pack", "--offline", "--silent", &source]));
    let package = file_with(&world.folder(), ".tgz").display().to_string();
    std::fs::write(world.folder().join("package.json"), r#"{"type": "module"}"#).expect("written");
    done(&mut world.within("npm", &["install", "--offline", "--silent", "--no-audit", "--no-fund", &package]));
    let installed = world.folder().join("node_modules/agent-magic-tool-client");
    for file in ["LICENSE", "README.md", "index.d.ts", "api-types.d.ts"] {
        assert!(installed.join(file).exists(), "{file}");
    }
    let text = std::fs::read_to_string(installed.join("package.json")).expect("readable");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON")["version"], env!("CARGO_PKG_VERSION"));
    let script = "import { Client, Decider, byKind } from 'agent-magic-tool-client'; new Client(); console.log(typeof Decider, typeof byKind)";
    let printed = done(&mut world.within("node", &["--input-type=module", "--eval", script]));
    assert_eq!(printed, "function function\n");
}

#[test]
fn typescript_accepts_the_examples() {
    let Some(packages) = std::env::var_os(PACKAGES).map(PathBuf::from) else {
        return skip(&format!("{PACKAGES} does not name the node packages, of which `typescript` is one"));
    };
    let world = World::new();
    let folder = world.folder();
    std::fs::create_dir(folder.join("node_modules")).expect("made");
    let library = folder.join("node_modules/agent-magic-tool-client");
    std::os::unix::fs::symlink(root().join("clients/typescript"), library).expect("linked");
    let check = |source: &str| {
        std::fs::write(folder.join("example.mts"), format!("{AROUND_EXAMPLES}{source}")).expect("written");
        let mut compiler = Command::new("node");
        compiler.arg(packages.join("typescript/bin/tsc"));
        compiler.args(["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "example.mts"]);
        let ran = compiler.current_dir(&folder).output().expect("node starts");
        (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    for document in ["clients/typescript/README.md", "docs/api-clients.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect("readable");
        let (_, rest) = text.split_once("```js\n").expect("an example");
        let (example, _) = rest.split_once("```\n").expect("its end");
        let (is_valid, printed) = check(example);
        assert!(is_valid, "{document}: {printed}");
        // The check finds what is wrong.
        let wrong = example.replace("data.text", "data.answer").replace(".answer)", ".answers)");
        assert_ne!(wrong, example, "{document}");
        let (is_valid, printed) = check(&wrong);
        assert!(!is_valid && printed.contains("answer"), "{document}: {printed}");
    }
}
