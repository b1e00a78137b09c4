//! `pack`: which packs there are and what they lack, switching them on and off, and checking whether they work.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::{Transcript, World, until};

/// The manifest of a pack with everything that one can have.
const ZOO: &str = r#"
name = "zoo"
version = "1.2.0"
description = "the animals of a zoo"
executor = ">=0.1"

[needs.programs]
cat = { description = "to look" }
echo = { description = "to feed" }

[needs.variables.zoo_file]
description = "the file with the animals"
example = "/srv/zoo/animals"

[needs.secrets.zoo]
description = "the key to the zoo"
optional = true

[needs.privileges]
"zoo:feed" = { description = "to feed", optional = true }

[switches.feeding]
description = "feeding the animals"
default = true
subtools = ["zoo_feed"]

[limits]
read = { calls = 3, per = "1h" }

[health]
subtool = "zoo_look"
timeout = "20s"
"#;

fn zoo_subtools() -> Value {
    let input = json!({"type": "object", "properties": {}, "additionalProperties": false});
    json!({
        "zoo_look": {
            "description": "Looks which animals there are in the zoo.", "input": input,
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
            "run": {"process": {"argv": ["cat", "{{ vars.zoo_file }}"]}}
        },
        "zoo_feed": {
            "description": "Feeds the animals of the zoo.", "input": input, "confirm": "never", "requires": ["zoo:feed"],
            "annotations": {"destructiveHint": false, "openWorldHint": false},
            "run": {"process": {"argv": ["echo", "fed"]}}
        }
    })
}

/// Writes a pack of the human.
fn pack(world: &World, name: &str, manifest: &str, subtools: &str) {
    let folder = world.config_folder().join("packs").join(name);
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("pack.toml"), manifest).expect("written");
    fs::write(folder.join(format!("{name}.json")), subtools).expect("written");
}

fn with_zoo() -> World {
    let world = World::new();
    pack(&world, "zoo", ZOO, &zoo_subtools().to_string());
    world
}

fn config(world: &World) -> String {
    fs::read_to_string(world.config_folder().join("config.toml")).unwrap_or_default()
}

/// What `pack list` says of one pack.
fn listed(world: &World, name: &str) -> Value {
    let list = world.run(&["pack", "list"]);
    assert_eq!(list.exit, 0, "{list}");
    let packs = list.json();
    packs.as_array().expect("an array").iter().find(|pack| pack["name"] == name).cloned().unwrap_or_default()
}

fn state(world: &World, name: &str) -> String {
    listed(world, name)["state"].as_str().unwrap_or_default().to_owned()
}

fn names(world: &World) -> Vec<String> {
    let names = world.run(&["list", "--format=names", "--in=zoo"]).json();
    serde_json::from_value(names).expect("names")
}

#[test]
fn the_packs_that_ship_are_listed_with_what_they_lack() {
    let world = World::new();
    let list = world.run(&["pack", "list"]).json();
    let packs = list.as_array().expect("an array").iter();
    let states: Vec<_> = packs.map(|pack| format!("{} {}", pack["name"], pack["state"]).replace('"', "")).collect();
    assert_eq!(
        states,
        [
            "calendar available",
            "drive available",
            "files ready",
            "git ready",
            "github has-issues",
            "gmail has-issues",
            "human ready",
            "magento available",
            "magento-db available",
            "models has-issues",
            "search available",
            "shell available",
            "shopware available",
            "typo3 available",
            "web ready"
        ]
    );
    assert_eq!(listed(&world, "gmail")["issues"], json!(["the secret `google` is not set"]));
    assert_eq!(listed(&world, "models")["issues"], json!(["no language model is enabled"]));
    assert_eq!(world.run_with(&["secret", "set", "google"], "a-secret-value").exit, 0);
    assert_eq!(state(&world, "gmail"), "ready");
}

#[test]
fn enabling_says_what_is_missing_and_how_to_set_it() {
    let world = World::new();
    assert_snapshot!(world.run(&["pack", "enable", "shopware"]), @r#"
    exit: 0
    --- stdout
    {"name":"shopware","enabled":true,"state":"has-issues","issues":["the variable `shopware_url` is not set","the secret `shopware` is not set"],"missing":[{"kind":"variable","name":"shopware_url","description":"the shop, without /api","met":false,"how":"set it under [vars] in config.toml: shopware_url = \"https://shop.example.com\""},{"kind":"secret","name":"shopware","description":"an integration's key as JSON with token_url, client_id and client_secret (Settings > System > Integrations)","met":false,"how":"agent-magic-tool secret set shopware"}],"subtools":15}
    --- stderr
    note: whether it works: agent-magic-tool pack check shopware
    "#);
    assert_eq!(config(&world), "[packs.shopware]\nenabled = true\n");
    assert_snapshot!(world.run(&["lint", "--format=lines"]), @r#"
    exit: 2
    --- stdout
    built-in pack shopware:7: error: needs.variables.shopware_url: the variable `shopware_url` (the shop, without /api) is not set, so all 15 subtools of the pack are left out; set it under [vars] in config.toml, like shopware_url = "https://shop.example.com"
    --- stderr
    note: 1 error, 0 warnings
    "#);
    let doctor = world.run(&["doctor"]).json();
    assert_eq!(doctor.to_string().matches("`shopware_url`").count(), 1, "{doctor:#}");
    assert_eq!(doctor.to_string().matches("the secret `shopware` is not set").count(), 1, "{doctor:#}");
    world.configure("[packs.shopware]\nenabled = true\n[vars]\nshopware_url = \"http://127.0.0.1:9\"\n");
    assert_eq!(world.run_with(&["secret", "set", "shopware"], "a-secret-value").exit, 0);
    assert_eq!((state(&world, "shopware"), world.run(&["lint"]).exit), ("ready".to_owned(), 0));
}

#[test]
fn a_pack_of_the_human_is_off_until_it_is_enabled_and_on_at_once() {
    let world = with_zoo();
    world.run(&["executor", "start"]);
    let run = || world.run(&["run", "zoo_feed", "--wait"]);
    assert_eq!((state(&world, "zoo"), run().exit), ("available".to_owned(), 3));
    let enabled = world.run(&["pack", "enable", "zoo"]).json();
    assert_eq!((&enabled["state"], &enabled["subtools"]), (&json!("has-issues"), &json!(2)), "{enabled}");
    // The executor that runs takes over the edit.
    let fed = run();
    assert_eq!((fed.exit, &fed.json()["data"]), (0, &json!("fed")), "{fed}");
    assert_eq!(names(&world), ["zoo_feed"], "the other one needs a variable");
    let groups = world.run(&["list", "packs"]).json();
    assert_eq!(groups["zoo"], json!({"about": "the animals of a zoo", "subtools": 1}));
    assert_eq!(world.run(&["pack", "disable", "zoo"]).exit, 0);
    assert_eq!((state(&world, "zoo"), run().exit, config(&world)), ("available".to_owned(), 3, String::new()));
}

#[test]
fn info_shows_what_a_pack_needs_and_how_to_get_it() {
    let world = with_zoo();
    world.configure("[access]\nprivileges = [\"mail:*\"]\n");
    assert_snapshot!(world.run(&["pack", "info", "zoo"]), @r#"
    exit: 0
    --- stdout
    {"name":"zoo","state":"available","enabled":false,"version":"1.2.0","description":"the animals of a zoo","folder":"CONFIG/packs/zoo","issues":["the variable `zoo_file` is not set"],"check":{"due":true},"needs":[{"kind":"program","name":"cat","description":"to look","met":true},{"kind":"program","name":"echo","description":"to feed","met":true},{"kind":"variable","name":"zoo_file","description":"the file with the animals","met":false,"how":"set it under [vars] in config.toml: zoo_file = \"/srv/zoo/animals\""},{"kind":"secret","name":"zoo","description":"the key to the zoo","met":false,"optional":true,"how":"agent-magic-tool secret set zoo"},{"kind":"privilege","name":"zoo:feed","description":"to feed","met":false,"optional":true,"how":"add it to `privileges` under [access] in config.toml"}],"switches":{"feeding":{"on":true,"default":true,"description":"feeding the animals","subtools":["zoo_feed"]}},"limits":{"read":{"calls":3,"per":"1h"}},"health":{"subtool":"zoo_look","timeout":"20s","every":"168h"},"executor":">=0.1","subtools":[{"name":"zoo_feed","state":"off","reason":"its definition or [access] takes it from callers"},{"name":"zoo_look","state":"broken","reason":"no variable named `zoo_file`; set it under [vars] in config.toml"}]}
    "#);
    let unknown = world.run(&["pack", "info", "zo"]);
    assert_eq!(
        (unknown.exit, unknown.error()["hint"].to_string().contains("did you mean `zoo`?")),
        (3, true),
        "{unknown}"
    );
}

#[test]
fn the_rest_of_the_configuration_stays_byte_for_byte() {
    let world = with_zoo();
    let text = "# mine\n[page]\nidle   = \"2h\"   # long\n\n[packs.web]   # off\nenabled=false\n\n# the end, without a line end";
    world.configure(text);
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(config(&world), format!("{text}\n\n[packs.zoo]\nenabled = true\n"));
    assert_eq!(world.run(&["pack", "enable", "web"]).exit, 0);
    assert_eq!(
        config(&world),
        format!("{text}\n\n[packs.zoo]\nenabled = true\n").replace("enabled=false", "enabled=true")
    );
    assert_eq!(world.run(&["pack", "disable", "web"]).exit, 0);
    assert_eq!(world.run(&["pack", "disable", "zoo"]).exit, 0);
    assert_eq!(config(&world), format!("{text}\n"), "a line end is all that was added");
    let broken = world.run(&["pack", "disable", "zebra"]);
    assert_eq!((broken.exit, config(&world)), (3, format!("{text}\n")), "{broken}");
    world.configure("[page]\nidle = 5 =\n");
    let invalid = world.run(&["pack", "enable", "zoo"]);
    assert_eq!((invalid.exit, config(&world)), (2, "[page]\nidle = 5 =\n".to_owned()), "{invalid}");
}

#[test]
fn a_broken_pack_stands_beside_good_ones_and_is_mentioned_once() {
    let world = with_zoo();
    pack(&world, "newer", &ZOO.replace("zoo", "newer").replace(">=0.1", ">=77.0"), "{}");
    pack(&world, "wrong", "name = 5\n", "{}");
    pack(&world, "git", ZOO, "{}");
    let two = json!({"half_a": {"description": 5}, "half_b": zoo_subtools()["zoo_feed"]});
    let half = "name = \"half\"\nversion = \"1\"\ndescription = \"one half works\"\n\
        needs.programs.echo = { description = \"to feed\" }\n";
    pack(&world, "half", half, &two.to_string());
    world.configure(
        "[packs]\nzoo = {enabled = true}\nnewer = {enabled = true}\nwrong = {enabled = true}\nhalf = {enabled = true}\n\
         [vars]\nzoo_file = \"/dev/null\"\n",
    );
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(world.run(&["pack", "enable", "half"]).exit, 0);
    let states = ["zoo", "newer", "wrong", "half", "git"].map(|name| state(&world, name));
    assert_eq!(states, ["ready", "unavailable", "unavailable", "has-issues", "has-issues"]);
    assert!(
        listed(&world, "newer")["issues"][0]
            .as_str()
            .is_some_and(|issue| issue.contains("needs agent-magic-tool >=77.0"))
    );
    let usable = world.run(&["list", "--format=names", "--limit=100"]).json().to_string();
    for name in ["zoo_look", "zoo_feed", "half_b", "git_log"] {
        assert!(usable.contains(&format!("\"{name}\"")), "{name}: {usable}");
    }
    let lint = world.run(&["lint", "--format=lines"]).stdout;
    let errors: Vec<_> = lint.lines().filter(|line| line.contains(" error: ")).collect();
    for name in ["newer", "wrong", "half", "packs/git"] {
        let about = errors.iter().filter(|line| line.contains(name)).count();
        // `wrong` lacks more than one key, `half` has one subtool with two mistakes.
        assert!(about == 1 || ["wrong", "half"].contains(&name), "{name}: {lint}");
    }
    let refused = world.run(&["pack", "enable", "newer"]);
    assert_eq!((refused.exit, &refused.error()["code"]), (2, &json!("bad-definition")), "{refused}");
    let packs = doctors(&world);
    let found = packs["found"].to_string();
    assert!(packs["ok"] == false && found.contains("newer: "), "{packs}");
    assert!(found.contains("wrong: ") && packs["message"].to_string().contains("cannot be used"), "{packs}");
}

/// What `doctor` says of the packs.
fn doctors(world: &World) -> Value {
    let doctor = world.run(&["doctor"]).json();
    let mut checks = doctor["checks"].as_array().expect("checks").iter();
    checks.find(|check| check["name"] == "packs").expect("packs").clone()
}

fn check(world: &World) -> Transcript {
    world.run(&["pack", "check", "zoo"])
}

#[test]
fn a_check_that_fails_is_an_issue_until_it_passes() {
    let world = with_zoo();
    let animals = world.folder().join("animals");
    world.configure(&format!("[vars]\nzoo_file = \"{}\"\n", animals.display()));
    let off = check(&world);
    assert_eq!((off.exit, &off.error()["hint"]), (2, &json!("agent-magic-tool pack enable zoo")), "{off}");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!((state(&world, "zoo"), &listed(&world, "zoo")["check"]), ("ready".to_owned(), &json!({"due": true})));
    let failed = check(&world);
    assert_eq!((failed.exit, &failed.json()[0]["passed"]), (1, &json!(false)), "{failed}");
    assert_eq!(state(&world, "zoo"), "has-issues");
    let issue = listed(&world, "zoo")["issues"][0].as_str().expect("an issue").to_owned();
    assert!(
        issue.starts_with("its last check failed: ") && issue.ends_with("agent-magic-tool pack check zoo"),
        "{issue}"
    );
    let packs = doctors(&world);
    assert!(packs["found"].to_string().contains("zoo: its last check failed"), "{packs}");
    fs::write(&animals, "zebra\n").expect("written");
    let passed = check(&world);
    assert_eq!((passed.exit, &passed.json()[0]["passed"]), (0, &json!(true)), "{passed}");
    let zoo = listed(&world, "zoo");
    assert_eq!(
        (&zoo["state"], &zoo["check"]["due"], &zoo["check"]["passed"]),
        (&json!("ready"), &json!(false), &json!(true))
    );
    // Of another version it says nothing.
    let manifest = world.config_folder().join("packs/zoo/pack.toml");
    fs::write(&manifest, ZOO.replace("1.2.0", "1.3.0")).expect("written");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(listed(&world, "zoo")["check"], json!({"due": true}));
    // All that are enabled and have one.
    let all = world.run(&["pack", "check"]);
    let checked: Vec<_> = all.json().as_array().expect("an array").iter().map(|it| it["name"].clone()).collect();
    assert_eq!((all.exit, checked), (1, vec![json!("github"), json!("gmail"), json!("zoo")]), "{all}");
    let none = world.run(&["pack", "check", "human"]);
    assert_eq!((none.exit, none.stderr.contains("has no health check")), (2, true), "{none}");
}

#[test]
fn a_check_is_an_ordinary_task_that_a_rule_can_refuse() {
    let world = with_zoo();
    world.configure(
        "[packs.zoo]\nenabled = true\n[vars]\nzoo_file = \"/dev/null\"\n[[confirm.rules]]\ntools = [\"zoo_*\"]\n\
         then = \"refuse\"\nbecause = \"the zoo is closed\"\n",
    );
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    let refused = check(&world);
    assert_eq!(refused.exit, 1, "{refused}");
    assert!(refused.json()[0]["message"].to_string().contains("the zoo is closed"), "{refused}");
}

#[test]
fn switches_and_limits_of_a_manifest_are_in_force() {
    let world = with_zoo();
    let configure = |more: &str| {
        world.configure(&format!("[vars]\nzoo_file = \"/dev/null\"\n[packs.zoo]\nenabled = true\n{more}"));
    };
    configure("");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    let run = |name: &str| world.run(&["run", name, "--wait"]);
    assert_eq!(run("zoo_feed").exit, 0);
    configure("switches = { feeding = false }\n");
    let off = run("zoo_feed");
    assert_eq!((off.exit, names(&world)), (3, vec!["zoo_look".to_owned()]), "{off}");
    let info = world.run(&["pack", "info", "zoo"]).json();
    assert_eq!(info["switches"]["feeding"]["on"], false, "{info:#}");
    assert_eq!(
        info["subtools"][0],
        json!({"name": "zoo_feed", "state": "off", "reason": "a switch of the pack is off"})
    );
    let statuses: Vec<_> = (0..4).map(|_| run("zoo_look")).collect();
    assert!(statuses[..3].iter().all(|ran| ran.exit == 0), "{}", statuses[0]);
    assert_eq!(statuses[3].error()["code"], "rate-limited", "{}", statuses[3]);
    // The human's own limit replaces that of the manifest.
    configure("[rate_limits.tools]\nzoo_look = { calls = 0, per = \"1s\" }\n");
    until("the new limit is in force", || run("zoo_look").exit == 0);
}

#[test]
fn an_agent_cannot_manage_packs_with_its_one_tool() {
    let world = with_zoo();
    for call in ["pack enable zoo", "pack list", "pack disable git", "pack check zoo"] {
        let line = json!({"command": format!("agent-magic-tool {call}")});
        let ran = world.run_with(&["command-executor"], &format!("{line}\n"));
        assert!(ran.stdout.contains("is not a command for agents"), "{ran}");
    }
    assert_eq!(config(&world), "");
    assert_eq!(state(&world, "zoo"), "available");
}

/// A pack whose one subtool is `run`, with `more` in its manifest.
fn one_subtool(world: &World, run: &Value, more: &str) {
    let manifest = format!("name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n{more}\n");
    let input = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let subtool = json!({"zoo_look": {"description": "Looks at the zoo.", "input": input,
        "annotations": {"readOnlyHint": true}, "run": run}});
    pack(world, "zoo", &manifest, &subtool.to_string());
}

/// Whatever of an enabled pack changes, it is off until a human enables it again, in the executor and for each command.
#[test]
fn a_pack_that_changed_is_off_until_a_human_enables_it_again() {
    let world = World::new();
    let folder = world.config_folder().join("packs/zoo");
    let script = folder.join("bin/look.sh");
    let run = json!({"process": {"argv": ["sh", &script]}});
    let write = || {
        fs::remove_dir_all(&folder).ok();
        one_subtool(&world, &run, "needs.programs.sh = { description = \"to look\" }");
        fs::create_dir_all(folder.join("bin")).expect("made");
        fs::write(&script, "echo good\n").expect("written");
    };
    write();
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(world.result_of("zoo_look", &json!({}))["data"], "good");
    let evil = json!({"zoo_look": {"description": "Looks.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["sh", "-c", "echo evil"]}}}});
    let manifest = fs::read_to_string(folder.join("pack.toml")).expect("read");
    let changes: [(&str, &dyn Fn()); 7] = [
        ("its definitions", &|| fs::write(folder.join("zoo.json"), evil.to_string()).expect("written")),
        ("a new file of definitions", &|| {
            fs::write(folder.join("more.json"), evil.to_string().replace("zoo_look", "zoo_more")).expect("written");
        }),
        ("its manifest", &|| fs::write(folder.join("pack.toml"), format!("{manifest}# more\n")).expect("written")),
        ("a script", &|| fs::write(&script, "echo evil\n").expect("written")),
        ("a new script", &|| fs::write(folder.join("bin/other.sh"), "echo evil\n").expect("written")),
        ("a file is gone", &|| fs::remove_file(&script).expect("removed")),
        ("a link", &|| {
            let other = world.folder().join("other.sh");
            fs::write(&other, "echo evil\n").expect("written");
            fs::remove_file(&script).expect("removed");
            std::os::unix::fs::symlink(other, &script).expect("linked");
        }),
    ];
    for (what, change) in changes {
        change();
        let ran = world.run(&["run", "zoo_look", "--wait"]);
        assert!(ran.exit != 0 && !ran.stdout.contains("evil"), "{what}: {ran}");
        let ran = world.run(&["run", "zoo_more", "--wait"]);
        assert!(ran.exit != 0, "{what}: {ran}");
        let said = |arguments: &[&str]| world.run(arguments).to_string();
        assert!(said(&["pack", "list"]).contains("changed since it was enabled"), "{what}");
        assert!(said(&["list"]).contains("left out"), "{what}: {}", said(&["list"]));
        assert_eq!(names(&world), [""; 0], "{what}");
        assert!(said(&["doctor"]).contains("changed since it was enabled"), "{what}");
        let info = world.run(&["pack", "info", "zoo"]);
        let info = info.json();
        assert!(info["changed"].as_array().is_some_and(|changes| !changes.is_empty()), "{what}: {info}");
        // What was there before runs again, and so does what a human has looked at.
        write();
        assert_eq!(world.result_of("zoo_look", &json!({}))["data"], "good", "{what}");
    }
    fs::write(&script, "echo better\n").expect("written");
    assert_ne!(world.run(&["run", "zoo_look", "--wait"]).exit, 0);
    let enabled = world.run(&["pack", "enable", "zoo"]).json();
    assert_eq!(enabled["changed"], json!(["`bin/look.sh` changed"]), "{enabled}");
    assert_eq!(enabled["runs_unasked"][0]["name"], "zoo_look", "{enabled}");
    assert_eq!(world.result_of("zoo_look", &json!({}))["data"], "better");
}

/// Everything that a pack may use, each declared and not.
#[test]
fn a_pack_uses_only_what_its_manifest_declares() {
    let world = World::new();
    world.run_with(&["secret", "set", "other"], "Kq2-mPz71Lw-tR5v");
    world.configure("[vars]\nelsewhere = \"http://127.0.0.1:9\"\n");
    let http = |fields: Value| {
        let mut http = json!({"base_url": "http://127.0.0.1:9"});
        http.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        json!({"http": http})
    };
    let need = |kind: &str, name: &str| format!("needs.{kind}.\"{name}\" = {{ description = \"it is needed\" }}");
    let hosts = |host: &str| format!("hosts = [\"{host}\"]");
    let local = hosts("127.0.0.1");
    let secret = format!("{local}\n{}", need("secrets", "other"));
    let sh = need("programs", "sh");
    let with_sh = format!("{sh}\n{}", need("secrets", "other"));
    let variable = need("variables", "elsewhere");
    let cases: Vec<(&str, Value, String, String)> = vec![
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
        ("form part", http(json!({"method": "POST", "body": {"multipart": {"a": "secret:other"}}})), local, secret),
        ("environment", json!({"process": {"argv": ["sh"], "env": {"A": "secret:other"}}}), sh.clone(), with_sh),
        ("program", json!({"process": {"argv": ["sh", "-c", "true"]}}), String::new(), sh.clone()),
        (
            "program by path",
            json!({"process": {"argv": ["/bin/sh", "-c", "true"]}}),
            sh.clone(),
            need("programs", "/bin/sh"),
        ),
        ("host", http(json!({})), hosts("example.com"), hosts("127.0.0.1")),
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
        ("model", json!({"llm": {"prompt": "{{ x }}"}}), String::new(), "needs.model = \"to think\"".to_owned()),
        ("sub-agent", json!({"agent": {"prompt": "{{ x }}"}}), String::new(), "needs.model = \"to think\"".to_owned()),
        (
            "remote agent",
            json!({"agent": {"prompt": "{{ x }}", "url": "http://127.0.0.1:9"}}),
            String::new(),
            hosts("127.0.0.1"),
        ),
    ];
    for (what, run, without, with) in cases {
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

/// What may destroy something asks, however a pack says that it need not; only the human's own change can allow it.
#[test]
fn a_pack_cannot_let_what_is_destructive_run_unasked() {
    let world = World::new();
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
    let free = json!({"zoo_free": {"confirm": "never", "annotations": {"destructiveHint": true}}});
    world.define("own.json", &json!({"$overrides": free}));
    assert_eq!(world.result_of("zoo_free", &json!({}))["data"], "gone", "the human says so");
}

/// Only a human's `pack enable` says which content of a pack may run.
#[test]
fn a_pack_that_only_the_configuration_enables_is_off_and_says_how_to_enable_it() {
    let world = with_zoo();
    world.configure("[packs.zoo]\nenabled = true\n[vars]\nzoo_file = \"/dev/null\"\n");
    assert_ne!(world.run(&["run", "zoo_look", "--wait"]).exit, 0);
    assert_eq!(names(&world), [""; 0]);
    for command in [&["pack", "list"][..], &["pack", "info", "zoo"], &["doctor"], &["lint"]] {
        let said = world.run(command).to_string();
        assert!(said.contains("agent-magic-tool pack enable zoo"), "{command:?}: {said}");
    }
    let info = world.run(&["pack", "info", "zoo"]).json();
    assert_eq!(info["runs_unasked"].as_array().map(Vec::len), Some(2), "before it is enabled: {info}");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(world.run(&["run", "zoo_look", "--wait"]).exit, 0);
    // Packs that ship are a part of the program.
    world.configure("[packs.zoo]\nenabled = true\n[packs.search]\nenabled = true\n");
    assert!(!world.run(&["pack", "info", "search"]).stdout.contains("nobody has enabled"));
}

/// A change between a request and its start is not performed either, nor what was asked about before it.
#[test]
fn what_was_accepted_before_a_pack_changed_does_not_run() {
    let world = World::new();
    let folder = world.config_folder().join("packs/zoo");
    let script = folder.join("bin/look.sh");
    let module = folder.join("bin/module.sh");
    let subtool = json!({"zoo_free": {"description": "Frees the animals.", "input": {},
        "run": {"process": {"argv": ["sh", &script]}}}});
    let manifest = "name = \"zoo\"\nversion = \"1\"\ndescription = \"the zoo\"\n\
        needs.programs.sh = { description = \"to free\" }\n";
    pack(&world, "zoo", manifest, &subtool.to_string());
    fs::create_dir_all(folder.join("bin")).expect("made");
    fs::write(&script, format!(". {}\n", module.display())).expect("written");
    fs::write(&module, "echo good\n").expect("written");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    let id = world.start("zoo_free", &json!({}));
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    fs::write(&module, "echo evil\n").expect("written");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    // The next request has every open task judged again.
    world.run(&["run", "zoo_free"]);
    until("what was shown is gone", || world.result_file(&id)["status"] == "failed");
    assert_eq!(world.result_file(&id)["error"]["code"], "drifted", "{}", world.result_file(&id));
}

/// Where the secret of a pack goes, by each kind of request that can carry it.
#[test]
fn a_secret_of_a_pack_is_bound_to_the_hosts_of_the_pack() {
    let http = |fields: Value| {
        let mut http = json!({"base_url": "https://zoo.example.com"});
        http.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        json!({"http": http})
    };
    let server = |more: Value| {
        let mut server = json!({"name": "s", "url": "https://zoo.example.com/mcp"});
        server.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
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
        let hosts = fs::read_to_string(world.config_folder().join("secrets/.hosts.json")).unwrap_or_default();
        let hosts: Value = serde_json::from_str(&hosts).unwrap_or_default();
        assert_eq!(hosts["zoo"], json!(["zoo.example.com"]), "{what}: {enabled}");
        // One that is known goes nowhere else, unless the human says so.
        let world = World::new();
        world.run_with(&["secret", "set", "zoo"], "Kq2-mPz71Lw-tR5v");
        one_subtool(&world, &run, manifest);
        let refused = world.run(&["pack", "enable", "zoo"]);
        assert!(refused.exit != 0 && refused.stderr.contains("--allow-host"), "{what}: {refused}");
        assert_eq!(config(&world), "", "{what}");
        let allowed = world.run(&["pack", "enable", "zoo", "--allow-host", "zoo.example.com"]);
        assert_eq!(allowed.exit, 0, "{what}: {allowed}");
    }
}
