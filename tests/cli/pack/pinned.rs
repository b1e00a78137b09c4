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
    world.configure_without_packs("");
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
    let (script, modules) = (world.folder().join("look.sh"), world.folder().join("modules"));
    fs::write(&script, "echo good\n").expect("written");
    fs::create_dir(&modules).expect("made");
    for name in ["__main__.py", "evil.py"] {
        fs::write(modules.join(name), "print('good')\n").expect("written");
    }
    let modules = modules.display().to_string();
    let needs = "needs.programs.sh = { description = \"to look\" }\nneeds.programs.python3 = { description = \"to look\" }\n\
                 needs.programs.env = { description = \"to look\" }";
    for run in [
        json!({"process": {"argv": ["sh", &script]}}),
        json!({"process": {"argv": ["sh", "-c", "true"], "covers": [&script]}}),
        json!({"process": {"argv": ["python3", modules]}}),
        json!({"process": {"argv": ["python3", "-m", "evil"], "env": {"PYTHONPATH": modules}}}),
        json!({"process": {"argv": ["python3", "-m", "evil"], "folder": modules}}),
        json!({"process": {"argv": ["python3", "-mevil"], "folder": "."}}),
        json!({"process": {"argv": ["env", "-C", modules, "python3", "evil.py"]}}),
        json!({"process": {"argv": ["env", format!("--chdir={modules}"), "python3", "evil.py"]}}),
    ] {
        one_subtool(&world, &run, needs);
        assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0, "{run}");
        let ran = world.run(&["run", "zoo_look", "--wait"]);
        assert!(ran.exit != 0 && ran.to_string().contains("lies outside of it"), "{run}: {ran}");
    }
}

/// Whatever is put in its place for a moment.
#[test]
fn a_script_of_a_pack_that_is_exchanged_again_and_again_runs_only_as_it_was() {
    let world = World::new();
    let script = world.config_folder().join("packs/zoo/bin/look.sh");
    one_subtool(
        &world,
        &json!({"process": {"argv": ["sh", &script]}}),
        "needs.programs.sh = { description = \"to look\" }",
    );
    fs::create_dir_all(script.parent().expect("a folder")).expect("made");
    fs::write(&script, "echo good\n").expect("written");
    assert_eq!(world.run(&["pack", "enable", "zoo"]).exit, 0);
    assert_eq!(world.result_of("zoo_look", &json!({}))["data"], "good");
    let (good, evil) = (world.folder().join("good"), world.folder().join("evil"));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let exchanging = {
        let (stop, script) = (std::sync::Arc::clone(&stop), script.clone());
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for (file, text) in [(&evil, "echo evil\n"), (&good, "echo good\n")] {
                    fs::write(file, text).expect("written");
                    fs::rename(file, &script).expect("moved");
                    std::thread::park_timeout(std::time::Duration::from_millis(2));
                }
            }
        })
    };
    let ends: Vec<_> = (0..40).map(|_| world.run(&["run", "zoo_look", "--wait"]).stdout).collect();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    exchanging.join().expect("it ends");
    assert!(ends.iter().all(|end| !end.contains("evil")), "{ends:?}");
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
