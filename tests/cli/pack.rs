//! `pack`: which packs there are and what they lack, switching them on and off, and checking whether they work.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::{Transcript, World, until};

mod foreign;
mod pinned;

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
            "script ready",
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
    {"name":"zoo","state":"available","enabled":false,"version":"1.2.0","description":"the animals of a zoo","folder":"CONFIG/packs/zoo","issues":["the variable `zoo_file` is not set"],"check":{"due":true},"needs":[{"kind":"program","name":"cat","description":"to look","met":true},{"kind":"program","name":"echo","description":"to feed","met":true},{"kind":"variable","name":"zoo_file","description":"the file with the animals","met":false,"how":"set it under [vars] in config.toml: zoo_file = \"/srv/zoo/animals\""},{"kind":"secret","name":"zoo","description":"the key to the zoo","met":false,"optional":true,"how":"agent-magic-tool secret set zoo"},{"kind":"privilege","name":"zoo:feed","description":"to feed","met":false,"optional":true,"how":"add it to `privileges` under [access] in config.toml"}],"switches":{"feeding":{"on":true,"default":true,"description":"feeding the animals","subtools":["zoo_feed"]}},"limits":{"read":{"calls":3,"per":"1h"}},"health":{"subtool":"zoo_look","timeout":"20s","every":"168h"},"executor":">=0.1","subtools":[{"name":"zoo_feed","state":"off","reason":"its definition or [access] takes it from callers"},{"name":"zoo_look","state":"broken","reason":"no variable named `zoo_file`; set it under [vars] in config.toml"}],"runs_unasked":[{"name":"zoo_look","changes":false,"confirm":null,"run":{"process":{"argv":["cat","{{ vars.zoo_file }}"]}}}]}
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
        needs.programs.echo = { description = \"to feed\" }\nneeds.privileges.\"zoo:feed\" = { description = \"to feed\" }\n";
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
