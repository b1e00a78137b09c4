//! A pack of one's own is what a human enabled: whatever of it changes, it is off, and it runs nothing that lies outside.

use std::fs;

use serde_json::json;

use super::foreign::one_subtool;
use super::{names, pack, with_zoo};
use crate::world::{World, until};

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
    let changes: [(&str, &dyn Fn()); 8] = [
        ("its definitions", &|| fs::write(folder.join("zoo.json"), evil.to_string()).expect("written")),
        ("a new file of definitions", &|| {
            fs::write(folder.join("more.json"), evil.to_string().replace("zoo_look", "zoo_more")).expect("written");
        }),
        ("its manifest", &|| fs::write(folder.join("pack.toml"), format!("{manifest}# more\n")).expect("written")),
        ("a script", &|| fs::write(&script, "echo evil\n").expect("written")),
        ("a new script", &|| fs::write(folder.join("bin/other.sh"), "echo evil\n").expect("written")),
        ("a file that git keeps", &|| {
            fs::create_dir_all(folder.join(".git")).expect("made");
            fs::write(folder.join(".git/look.sh"), "echo evil\n").expect("written");
        }),
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

/// What it runs lies in it, where a change is noticed.
#[test]
fn a_pack_runs_no_script_that_lies_outside_of_it() {
    let world = World::new();
    let script = world.folder().join("look.sh");
    fs::write(&script, "echo good\n").expect("written");
    let sh = "needs.programs.sh = { description = \"to look\" }";
    for run in [
        json!({"process": {"argv": ["sh", &script]}}),
        json!({"process": {"argv": ["sh", "-c", "true"], "covers": [&script]}}),
    ] {
        one_subtool(&world, &run, sh);
        assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
        let ran = world.run(&["run", "zoo_look", "--wait"]);
        assert!(ran.exit != 0 && ran.to_string().contains("lies outside of it"), "{run}: {ran}");
    }
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
    assert!(!world.run(&["pack", "info", "search"]).stdout.contains("no one has enabled"));
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
