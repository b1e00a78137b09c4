//! Packs of others: what a human enabled is what runs, with what its manifest declares, and its secrets go where it says.

use serde_json::{Value, json};

use super::{config, pack};
use crate::world::World;

const SECRET: &str = "Kq2-mPz71Lw-tR5v";

fn merged(mut fields: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more} is not an object") };
    fields.as_object_mut().expect("an object").extend(more);
    fields
}

/// Where the secret `zoo` may go; stored, if it is not there.
fn hosts_of_zoo(world: &World) -> Value {
    let list = || world.run(&["secret", "list"]).json();
    if !list().to_string().contains("\"zoo\"") {
        assert_eq!(world.run_with(&["secret", "set", "zoo"], SECRET).exit, 0);
    }
    let listed = list();
    let mut secrets = listed.as_array().expect("an array").iter();
    secrets.find(|secret| secret["name"] == "zoo").expect("it is there")["hosts"].clone()
}

/// A pack whose one subtool is `run`, with `more` in its manifest.
pub(super) fn one_subtool(world: &World, run: &Value, more: &str) {
    let manifest = format!("name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n{more}\n");
    let input = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let subtool = json!({"zoo_look": {"description": "Looks at the zoo.", "input": input,
        "annotations": {"readOnlyHint": true}, "run": run}});
    pack(world, "zoo", &manifest, &subtool.to_string());
}

const MODEL: &str = "needs.model = \"to think\"";
const ANY_SUBTOOL: &str = "uses = [\"*\"]";

/// The subtools of others that a pack may use, with a manifest that does not declare them and one that does.
fn subtools_declared_and_not() -> Vec<(&'static str, Value, String, String)> {
    vec![
        (
            "sub-agent",
            json!({"agent": {"prompt": "{{ x }}"}}),
            ANY_SUBTOOL.to_owned(),
            format!("{ANY_SUBTOOL}\n{MODEL}"),
        ),
        (
            "all subtools for a sub-agent",
            json!({"agent": {"prompt": "{{ x }}"}}),
            MODEL.to_owned(),
            format!("{ANY_SUBTOOL}\n{MODEL}"),
        ),
        (
            "chosen subtools for a sub-agent",
            json!({"agent": {"prompt": "{{ x }}", "subtools": "{{ [x] }}"}}),
            format!("uses = [\"mine_*\"]\n{MODEL}"),
            format!("{ANY_SUBTOOL}\n{MODEL}"),
        ),
        (
            "a subtool for a sub-agent",
            json!({"agent": {"prompt": "{{ x }}", "subtools": ["zoo_look", "mine_look"]}}),
            MODEL.to_owned(),
            format!("uses = [\"mine_*\"]\n{MODEL}"),
        ),
        (
            "a subtool that a model calls",
            json!({"llm": {"prompt": "{{ x }}", "tool": "mine_look"}}),
            MODEL.to_owned(),
            format!("uses = [\"mine_look\"]\n{MODEL}"),
        ),
        (
            "a subtool of the input's choice that a model calls",
            json!({"llm": {"prompt": "{{ x }}", "tool": "{{ x }}"}}),
            format!("uses = [\"mine_*\"]\n{MODEL}"),
            format!("{ANY_SUBTOOL}\n{MODEL}"),
        ),
        (
            "a step",
            json!({"steps": [{"name": "a", "subtool": "mine_look"}]}),
            "uses = [\"other_*\"]".to_owned(),
            "uses = [\"mine_look\"]".to_owned(),
        ),
    ]
}

const FILES: &str = "needs.files = \"to read them\"";

/// The files that a pack may read, likewise.
fn files_declared_and_not() -> Vec<(&'static str, Value, String, String)> {
    let http = |body: Value| json!({"http": {"base_url": "http://127.0.0.1:9", "method": "POST", "body": body}});
    let (local, sh) = ("hosts = [\"127.0.0.1\"]", "needs.programs.sh = { description = \"to read\" }");
    vec![
        ("a file", json!({"builtin": {"read_file": {"path": "{{ x }}"}}}), String::new(), FILES.to_owned()),
        (
            "files",
            json!({"builtin": {"search_files": {"path": "{{ x }}", "pattern": "a"}}}),
            String::new(),
            FILES.to_owned(),
        ),
        ("a folder", json!({"builtin": {"list_files": {"path": "{{ x }}"}}}), String::new(), FILES.to_owned()),
        ("a file as a body", http(json!({"file": {"path": "{{ x }}"}})), local.to_owned(), format!("{local}\n{FILES}")),
        (
            "a file as a part",
            http(json!({"multipart": {"a": {"file": "{{ x }}"}}})),
            local.to_owned(),
            format!("{local}\n{FILES}"),
        ),
        (
            "a file for a program",
            json!({"process": {"argv": ["sh", {"input_file": "{{ x }}"}]}}),
            sh.to_owned(),
            format!("{sh}\n{FILES}"),
        ),
        (
            "the system prompt",
            json!({"builtin": {"read_prompt": {"section": "{{ x }}"}}}),
            String::new(),
            "needs.prompt = \"to read it\"".to_owned(),
        ),
    ]
}

/// Everything else that a pack may use, with a manifest that does not declare it and one that does.
fn declared_and_not() -> Vec<(&'static str, Value, String, String)> {
    let http = |fields| json!({"http": merged(json!({"base_url": "http://127.0.0.1:9"}), fields)});
    let server = |fields| {
        let server = merged(json!({"name": "s", "url": "http://127.0.0.1:9"}), fields);
        json!({"mcp": {"server": server, "tool": "t"}})
    };
    let need = |kind: &str, name: &str| format!("needs.{kind}.\"{name}\" = {{ description = \"it is needed\" }}");
    let hosts = |host: &str| format!("hosts = [\"{host}\"]");
    let local = hosts("127.0.0.1");
    let secret = format!("{local}\n{}", need("secrets", "other"));
    let sh = need("programs", "sh");
    let with_sh = format!("{sh}\n{}", need("secrets", "other"));
    let variable = need("variables", "elsewhere");
    vec![
        ("auth", http(json!({"auth": {"bearer": "secret:other"}})), local.clone(), secret.clone()),
        (
            "password",
            http(json!({"auth": {"basic": {"username": "a", "password": "secret:other"}}})),
            local.clone(),
            secret.clone(),
        ),
        ("header", http(json!({"headers": {"x": "Token secret:other"}})), local.clone(), secret.clone()),
        ("query", http(json!({"query": {"x": "secret:other"}})), local.clone(), secret.clone()),
        (
            "body",
            http(json!({"method": "POST", "body": {"json": {"a": ["secret:other"]}}})),
            local.clone(),
            secret.clone(),
        ),
        (
            "form part",
            http(json!({"method": "POST", "body": {"multipart": {"a": "secret:other"}}})),
            local.clone(),
            secret.clone(),
        ),
        ("environment", json!({"process": {"argv": ["sh"], "env": {"A": "secret:other"}}}), sh.clone(), with_sh),
        ("program", json!({"process": {"argv": ["sh", "-c", "true"]}}), String::new(), sh.clone()),
        (
            "program by path",
            json!({"process": {"argv": ["/bin/sh", "-c", "true"]}}),
            sh.clone(),
            need("programs", "/bin/sh"),
        ),
        ("host", http(json!({})), hosts("example.com"), hosts("127.0.0.1")),
        (
            "host of the token",
            http(json!({"auth": {"client_credentials": {"token_url": "https://login.example/token", "client_id": "x",
                "client_secret": "secret:other"}}})),
            secret.clone(),
            format!("hosts = [\"127.0.0.1\", \"login.example\"]\n{}", need("secrets", "other")),
        ),
        ("any host", json!({"http": {"base_url": "{{ x }}"}}), hosts("127.0.0.1"), hosts("*")),
        ("fetch", json!({"builtin": {"fetch_url": {"url": "{{ x }}"}}}), hosts("127.0.0.1"), hosts("*")),
        ("variable", json!({"http": {"base_url": "{{ vars.elsewhere }}"}}), hosts("127.0.0.1"), variable.clone()),
        (
            "variable as text",
            json!({"process": {"argv": ["sh", "-c", "true", "{{ vars.elsewhere }}"]}}),
            sh.clone(),
            format!("{sh}\n{variable}"),
        ),
        (
            "server program",
            json!({"mcp": {"server": {"name": "s", "command": ["sh"]}, "tool": "t"}}),
            String::new(),
            sh,
        ),
        (
            "server address",
            json!({"mcp": {"server": {"name": "s", "url": "http://127.0.0.1:9"}, "tool": "t"}}),
            String::new(),
            hosts("127.0.0.1"),
        ),
        (
            "database",
            json!({"sql": {"database": "shop", "query": "{{ x }}"}}),
            String::new(),
            need("databases", "shop"),
        ),
        (
            "what a database hides",
            json!({"sql": {"database": "shop", "statement": "SELECT 1", "sees_hidden": true}}),
            need("databases", "shop"),
            format!("{}\nneeds.hidden = \"to see it\"", need("databases", "shop")),
        ),
        ("model", json!({"llm": {"prompt": "{{ x }}"}}), String::new(), MODEL.to_owned()),
        (
            "remote agent",
            json!({"agent": {"prompt": "{{ x }}", "url": "http://127.0.0.1:9"}}),
            String::new(),
            hosts("127.0.0.1"),
        ),
        (
            "key of a remote agent",
            json!({"agent": {"prompt": "{{ x }}", "url": "http://127.0.0.1:9", "key": "secret:other"}}),
            local.clone(),
            secret.clone(),
        ),
        ("header of a server", server(json!({"headers": {"x": "secret:other"}})), local.clone(), secret.clone()),
        ("sign-in at a server", server(json!({"oauth": "secret:other"})), local, secret),
    ]
}

#[test]
fn a_pack_uses_only_what_its_manifest_declares() {
    let world = World::new();
    world.run_with(&["secret", "set", "other"], SECRET);
    world.configure_without_packs("[vars]\nelsewhere = \"http://127.0.0.1:9\"\n");
    let mine = json!({"description": "Shows what is mine.", "input": {"type": "object"},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", "mine"]}}});
    world.define("mine.json", &json!({"mine_look": mine}));
    for (what, run, without, with) in
        declared_and_not().into_iter().chain(subtools_declared_and_not()).chain(files_declared_and_not())
    {
        one_subtool(&world, &run, &without);
        world.run(&["pack", "enable", "zoo"]);
        let undeclared = |world: &World| world.run(&["pack", "info", "zoo"]).to_string().contains("does not declare");
        assert!(undeclared(&world), "{what}: {}", world.run(&["pack", "info", "zoo"]));
        let ran = world.run(&["run", "zoo_look", "--wait", "--input", r#"{"x": "http://127.0.0.1:9"}"#]);
        assert_ne!(ran.exit, 0, "{what}: {ran}");
        one_subtool(&world, &run, &with);
        world.run(&["pack", "enable", "zoo"]);
        assert!(!undeclared(&world), "{what}: {}", world.run(&["pack", "info", "zoo"]));
    }
}

/// Whatever a subtool of a pack needs of others is declared, as what it runs is.
#[test]
fn a_pack_uses_subtools_of_others_only_if_its_manifest_declares_them() {
    let world = World::new();
    world.configure_without_packs("");
    let look = |run: Value| json!({"description": "Shows it.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true}, "run": run});
    world.define("mine.json", &json!({"mine_look": look(json!({"process": {"argv": ["echo", "mine"]}}))}));
    let uses = [
        json!({"verify": {"subtool": "mine_look", "happened": "true"}}),
        json!({"preview": {"subtool": "mine_look", "replaces": "{x: .}"}}),
        json!({"undo": {"subtool": "mine_look", "input": "{}"}}),
        json!({"depends_on": ["mine_look"]}),
    ];
    let manifest = |more: &str| {
        format!(
            "name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n{more}\n\
             needs.programs.echo = {{ description = \"to free\" }}\n"
        )
    };
    for used in uses {
        let own = json!({"description": "Frees the animals.",
            "input": {"type": "object", "properties": {"x": {"type": "string"}}},
            "run": {"process": {"argv": ["echo", "gone"]}}});
        let subtool = merged(own, used.clone());
        // One of its own under the name of another's is not what would run.
        let own_look = look(json!({"process": {"argv": ["echo", "zoo"]}}));
        let alone = json!({"zoo_free": subtool});
        let beside = json!({"zoo_free": subtool, "mine_look": own_look});
        for (more, subtools, names) in
            [("", &alone, true), ("", &beside, true), ("uses = [\"mine_look\"]", &alone, false)]
        {
            pack(&world, "zoo", &manifest(more), &subtools.to_string());
            world.run(&["pack", "enable", "zoo"]);
            let info = world.run(&["pack", "info", "zoo"]).to_string();
            assert_eq!(info.contains("does not declare the subtool `mine_look`"), names, "{used}: {info}");
            assert_eq!(info.contains("\"usable\""), !names, "{used}: {info}");
        }
    }
}

/// What may destroy something asks, however a pack says that it need not; only the human's own change can allow it.
#[test]
fn a_pack_cannot_let_what_is_destructive_run_unasked() {
    let world = World::new();
    world.configure_without_packs("");
    let manifest = "name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n\
        needs.programs.echo = { description = \"to free\" }\n";
    let (never, when) = (json!("never"), json!({"when": "input.x == 'y'"}));
    let cases = [
        (json!({"destructiveHint": true}), &never, true),
        (json!({"destructiveHint": true}), &when, true),
        (json!({}), &never, true),
        (json!({}), &when, true),
        (json!({"idempotentHint": true, "openWorldHint": false}), &never, true),
        (json!({"readOnlyHint": false}), &never, true),
        (json!({"destructiveHint": false}), &never, false),
        (json!({"readOnlyHint": true}), &never, false),
    ];
    for (annotations, confirm, asks) in cases {
        let what = format!("{annotations} {confirm}");
        let subtool = json!({"zoo_free": {"description": "Frees the animals.", "confirm": confirm,
            "input": {"type": "object", "properties": {"x": {"type": "string"}}},
            "annotations": annotations, "run": {"process": {"argv": ["echo", "gone"]}}}});
        pack(&world, "zoo", manifest, &subtool.to_string());
        let enabled = world.run(&["pack", "enable", "zoo"]);
        assert_eq!(enabled.exit, 0, "{what}: {enabled}");
        assert_eq!(enabled.json()["runs_unasked"].is_null(), asks, "{what}: {enabled}");
        let id = world.start("zoo_free", &json!({}));
        assert_eq!(world.result_file(&id)["state"] == "awaiting_confirmation", asks, "{what}");
    }
}

/// The human's own change of a subtool counts: whether it asks, and what it does.
#[test]
fn a_human_can_let_a_destructive_subtool_of_a_pack_run_unasked() {
    let world = World::new();
    world.configure_without_packs("");
    let run = json!({"process": {"argv": ["echo", "gone"]}});
    let manifest = "name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n\
        needs.programs.echo = { description = \"to free\" }\n";
    let own = [
        (json!({}), true),
        (json!({"description": "Frees all of them."}), true),
        (json!({"confirm": "always"}), true),
        (json!({"confirm": "never"}), false),
        (json!({"annotations": {"destructiveHint": false}}), false),
    ];
    for annotations in [json!({}), json!({"destructiveHint": true})] {
        let subtool = json!({"zoo_free": {"description": "Frees the animals.", "confirm": "never",
            "input": {"type": "object"}, "annotations": annotations, "run": run}});
        pack(&world, "zoo", manifest, &subtool.to_string());
        world.define("own.json", &json!({}));
        assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
        for (changes, asks) in &own {
            world.define("own.json", &json!({"$overrides": {"zoo_free": changes}}));
            let what = format!("{annotations} {changes}");
            let id = world.start("zoo_free", &json!({}));
            assert_eq!(world.result_file(&id)["state"] == "awaiting_confirmation", *asks, "{what}");
            let info = world.run(&["pack", "info", "zoo"]).json();
            assert_eq!(info["runs_unasked"].is_null(), *asks, "{what}: {info}");
        }
    }
}

/// Where the secret of a pack goes, by each kind of request that can carry it.
#[test]
fn a_secret_of_a_pack_is_bound_to_the_hosts_of_the_pack() {
    let http = |fields| json!({"http": merged(json!({"base_url": "https://zoo.example.com"}), fields)});
    let server = |fields| {
        let server = merged(json!({"name": "s", "url": "https://zoo.example.com/mcp"}), fields);
        json!({"mcp": {"server": server, "tool": "t"}})
    };
    let cases = [
        ("auth", http(json!({"auth": {"bearer": "secret:zoo"}}))),
        ("header", http(json!({"headers": {"x": "Token secret:zoo"}}))),
        ("query", http(json!({"query": {"x": "secret:zoo"}}))),
        ("server header", server(json!({"headers": {"x": "secret:zoo"}}))),
        ("server sign-in", server(json!({"oauth": "secret:zoo"}))),
        ("remote agent", json!({"agent": {"prompt": "x", "url": "https://zoo.example.com", "key": "secret:zoo"}})),
    ];
    let manifest = "hosts = [\"zoo.example.com\"]\nneeds.secrets.zoo = { description = \"the key\" }";
    for (what, run) in cases {
        let world = World::new();
        one_subtool(&world, &run, manifest);
        let enabled = world.run(&["pack", "enable", "zoo"]);
        assert_eq!(enabled.exit, 0, "{what}: {enabled}");
        assert_eq!(hosts_of_zoo(&world), json!(["zoo.example.com"]), "{what}: {enabled}");
        // One that is known goes nowhere else, unless the human says so.
        let world = World::new();
        world.run_with(&["secret", "set", "zoo"], SECRET);
        one_subtool(&world, &run, manifest);
        let refused = world.run(&["pack", "enable", "zoo"]);
        assert!(refused.exit != 0 && refused.stderr.contains("--allow-host"), "{what}: {refused}");
        assert_eq!(config(&world), "", "{what}");
        let allowed = world.run(&["pack", "enable", "zoo", "--allow-host", "zoo.example.com"]);
        assert_eq!(allowed.exit, 0, "{what}: {allowed}");
    }
}

/// What a program gets in its environment it can send anywhere, so a human names the program.
#[test]
fn a_program_of_a_pack_gets_a_stored_secret_only_by_the_word_of_a_human() {
    let server = json!({"name": "s", "command": ["sh", "-c", "exec server"], "env": {"K": "secret:zoo"}});
    let cases = [
        (json!({"process": {"argv": ["sh", "-c", "true"], "env": {"K": "secret:zoo"}}}), "program:sh -c true"),
        (json!({"mcp": {"server": server, "tool": "t"}}), "program:sh -c \"exec server\""),
    ];
    let manifest = "needs.programs.sh = { description = \"to look\" }\n\
        needs.secrets.zoo = { description = \"the key\" }";
    for (run, place) in cases {
        let world = World::new();
        one_subtool(&world, &run, manifest);
        world.run_with(&["secret", "set", "zoo"], SECRET);
        let refused = world.run(&["pack", "enable", "zoo"]);
        assert!(refused.exit != 0 && config(&world).is_empty(), "{refused}");
        let hint = refused.error()["hint"].as_str().expect("a hint").to_owned();
        assert!(hint.contains(&format!("--allow-host '{place}'")), "{refused}");
        assert_eq!(world.run(&["pack", "enable", "zoo", "--allow-host", place]).exit, 0);
        assert_eq!(hosts_of_zoo(&world), json!([place]));
    }
}

/// A secret whose host a variable names that is not set yet is kept for that host: until then, it goes nowhere.
#[test]
fn a_secret_of_a_pack_goes_nowhere_before_its_host_is_known() {
    let auth = json!({"bearer": "secret:zoo"});
    let http = |url: &str| json!({"http": {"base_url": url, "auth": auth}});
    // Of the choices, the one that needs no variable sends no secret.
    let chosen = json!({"$choose": "{{ vars.zoo_kind }}", "a": {"http": {"base_url": "https://zoo.example.com"}},
        "b": http("{{vars.zoo_url}}/b")});
    let manifest = "hosts = [\"*\"]\nneeds.secrets.zoo = { description = \"the key\" }\n\
        needs.variables.zoo_url = { description = \"the zoo\" }\nneeds.variables.zoo_kind = { description = \"which\" }\n";
    let switch = "[switches.look]\ndescription = \"looking\"\ndefault = false\nsubtools = [\"zoo_look\"]\n";
    let fixed =
        json!({"http": {"base_url": "https://zoo.example.com", "auth": auth, "query": {"x": "{{ vars.zoo_kind }}"}}});
    let cases = [
        ("all of it", http("{{ vars.zoo_url }}"), "", json!([])),
        ("a part of it", http("https://{{vars.zoo_url}}.example.com/x"), "", json!([])),
        (
            "a server",
            json!({"mcp": {"server": {"name": "s", "url": "{{ vars.zoo_url }}", "oauth": "secret:zoo"}, "tool": "t"}}),
            "",
            json!([]),
        ),
        ("a choice", chosen, "", json!([])),
        ("switched off", http("{{ vars.zoo_url }}"), switch, json!([])),
        ("another variable", fixed, "", json!(["zoo.example.com"])),
        ("switched off, at a known host", http("https://zoo.example.com"), switch, json!(["zoo.example.com"])),
    ];
    for (what, run, more, hosts) in cases {
        let world = World::new();
        one_subtool(&world, &run, &format!("{manifest}{more}"));
        let enabled = world.run(&["pack", "enable", "zoo"]);
        assert_eq!(enabled.exit, 0, "{what}: {enabled}");
        assert_eq!(hosts_of_zoo(&world), hosts, "{what}: {enabled}");
        if hosts == json!([]) {
            assert!(enabled.stderr.contains("--allow-host HOST"), "{what}: {enabled}");
        }
    }
}

#[test]
fn a_human_names_the_host_of_a_secret_once_its_variable_is_set() {
    let manifest =
        "needs.secrets.zoo = { description = \"the key\" }\nneeds.variables.zoo_url = { description = \"the zoo\" }\n";
    let run = json!({"http": {"base_url": "{{ vars.zoo_url }}", "auth": {"bearer": "secret:zoo"}}});
    let set_variable = |world: &World| {
        world.configure(&format!("{}[vars]\nzoo_url = \"http://127.0.0.1:9\"\n", config(world)));
    };
    let world = World::new();
    one_subtool(&world, &run, manifest);
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    world.run_with(&["secret", "set", "zoo"], SECRET);
    set_variable(&world);
    let refused = world.result_of("zoo_look", &json!({}));
    assert_eq!(refused["error"]["code"], "forbidden-address", "{refused}");
    let refused = world.run(&["pack", "enable", "zoo"]);
    assert!(refused.exit != 0 && refused.stderr.contains("--allow-host '127.0.0.1:9'"), "{refused}");
    assert_eq!(world.run(&["pack", "enable", "zoo", "--allow-host", "127.0.0.1:9"]).exit, 0);
    assert_eq!(hosts_of_zoo(&world), json!(["127.0.0.1:9"]));
    // A secret that is there already, and that nothing uses, is not kept for no known host.
    let world = World::new();
    one_subtool(&world, &run, manifest);
    world.run_with(&["secret", "set", "zoo"], SECRET);
    let refused = world.run(&["pack", "enable", "zoo"]);
    assert!(refused.exit != 0 && refused.stderr.contains("set `zoo_url`"), "{refused}");
    assert_eq!(config(&world), "");
    // With the variable set first, nothing more is needed.
    let world = World::new();
    one_subtool(&world, &run, manifest);
    set_variable(&world);
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(hosts_of_zoo(&world), json!(["127.0.0.1:9"]));
}

#[test]
fn a_secret_of_a_pack_goes_to_no_host_that_an_input_names() {
    let manifest = "hosts = [\"*\"]\nneeds.secrets.zoo = { description = \"the key\" }";
    for url in
        ["{{ x }}", "https://{{ x }}.example.com", "https://{{x}}.example.com", "https://zoo.example.com.{{x}}/a"]
    {
        let world = World::new();
        one_subtool(&world, &json!({"http": {"base_url": url, "auth": {"bearer": "secret:zoo"}}}), manifest);
        let refused = world.run(&["pack", "enable", "zoo"]);
        assert!(refused.exit != 0 && refused.stderr.contains("whose host no input may decide"), "{url}: {refused}");
        assert_eq!(config(&world), "", "{url}");
    }
}
