//! A remembered approval of what lies below a folder does not lead out of it through a symbolic link, and what an
//! argument leads to is still there when the program starts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::human::Human;
use crate::world::World;

fn path() -> Value {
    json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
}

fn definition(process: &Value) -> Value {
    json!({"description": "Prints a file.", "confirm": "always", "input": path(), "run": {"process": process}})
}

/// A world with a folder, another one, and links from the one to the other.
fn world() -> World {
    let world = World::new();
    world.define(
        "print.json",
        &json!({
            "print": definition(&json!({"argv": ["ls", "-L", "{{ path }}"]})),
            "tell": definition(&json!({"argv": ["cat"], "stdin": "{{ path }}\n", "folder": "."})),
            "told": definition(&json!({"argv": ["cat"], "stdin": {"files": ["{{ path }}"]}, "folder": "."})),
            "pass": {"description": "Prints a file in a step.", "confirm": "always", "input": path(),
                "run": {"steps": [{"name": "list", "subtool": "list_file", "input": {"path": "{{ path }}"}}]}},
            "list_file": {"description": "Prints a file.", "annotations": {"readOnlyHint": true}, "input": path(),
                "run": {"process": {"argv": ["ls", "-L", "{{ path }}"]}}},
        }),
    );
    let (inside, outside) = (world.folder().join("in"), world.folder().join("out"));
    for folder in [&inside, &outside] {
        fs::create_dir(folder).expect("made");
        for file in ["a.txt", "b.txt"] {
            fs::write(folder.join(file), "text").expect("written");
        }
    }
    symlink(&outside, inside.join("folder")).expect("linked");
    symlink(outside.join("b.txt"), inside.join("file")).expect("linked");
    symlink(outside.join("nothing"), inside.join("dangling")).expect("linked");
    symlink(world.folder(), world.home().join("above")).expect("linked");
    world
}

/// Approves a call for the file, and for every one below the folder.
fn remember_below(world: &World, subtool: &str, folder: &Path) {
    let human = Human::of(world);
    let id = world.start(subtool, &json!({"path": folder.join("a.txt")}));
    let mut grant = human.pending_task(&id);
    grant["fields"] = json!([{"pointer": "/path", "how": "prefix", "value": folder}]);
    grant["expires_in"] = "8h".into();
    let answer = human.post("/grants", &grant);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[test]
fn no_link_leads_out_of_a_folder_below_which_all_is_allowed() {
    let world = world();
    // The folder by its name, and through a link above it; as an argument, and as what a program reads.
    let folders = [world.folder().join("in"), world.home().join("above/in")];
    let calls = folders.iter().flat_map(|folder| ["print", "tell", "pass"].map(|subtool| (folder, subtool)));
    for (folder, subtool) in calls {
        let what = format!("{subtool}: {}", folder.display());
        remember_below(&world, subtool, folder);
        let state = |path: &str| {
            let id = world.start(subtool, &json!({"path": folder.join(path)}));
            let state = world.result_file(&id)["state"].clone();
            world.run(&["cancel", &id]);
            state
        };
        for path in ["folder/b.txt", "file", "folder", "folder/new.txt", "dangling", "../out/b.txt"] {
            assert_eq!(state(path), "awaiting_confirmation", "{what}: {path}");
        }
        assert_eq!(world.result_of(subtool, &json!({"path": folder.join("b.txt")}))["status"], "succeeded", "{what}");
        // It was a folder when the human saw it.
        let later = folder.join("later");
        fs::create_dir(&later).expect("made");
        assert_eq!(world.result_of(subtool, &json!({"path": later}))["status"], "succeeded", "{what}");
        fs::remove_dir(&later).expect("removed");
    }
}

#[test]
fn what_an_argument_leads_to_is_what_was_shown() {
    let world = world();
    let (folder, outside) = (world.folder().join("in/later"), world.folder().join("out"));
    let human = Human::of(&world);
    for (subtool, what) in ["print", "pass"].iter().flat_map(|subtool| [(subtool, "a folder"), (subtool, "a link")]) {
        let is_link = what == "a link";
        if is_link {
            symlink(world.folder(), &folder).expect("linked");
        } else {
            fs::create_dir(&folder).expect("made");
        }
        let id = world.start(subtool, &json!({"path": folder}));
        let card = human.card(&id);
        assert_eq!(card.contains("leads to"), is_link, "{subtool}, {what}: {card}");
        let removed = if is_link { fs::remove_file(&folder) } else { fs::remove_dir(&folder) };
        removed.expect("removed");
        symlink(&outside, &folder).expect("linked");
        assert_eq!(human.approve(&id).status, 200, "{what}");
        let ended = world.end_of(&id);
        assert_eq!(ended["error"]["code"], "drifted", "{subtool}, {what}: {ended:#}");
        fs::remove_file(&folder).expect("removed");
    }
}

/// However it is written, and wherever it stands.
#[test]
fn a_path_leads_where_it_led_however_it_is_written() {
    let world = world();
    let human = Human::of(&world);
    let (link, outside) = (world.folder().join("in/turned"), world.folder().join("out"));
    let whole = link.display().to_string();
    for subtool in ["tell", "told", "pass"] {
        for path in ["in/turned", &whole, &format!("file://{whole}"), "read in/turned, please", "./in/turned/a.txt"] {
            symlink(world.folder().join("in/a.txt"), &link).expect("linked");
            let id = world.start(subtool, &json!({"path": path}));
            let card = human.card(&id);
            assert!(card.contains("leads to"), "{subtool}, {path}: {card}");
            fs::remove_file(&link).expect("removed");
            symlink(&outside, &link).expect("linked");
            assert_eq!(human.approve(&id).status, 200, "{subtool}, {path}");
            let ended = world.end_of(&id);
            assert_eq!(ended["error"]["code"], "drifted", "{subtool}, {path}: {ended:#}");
            fs::remove_file(&link).expect("removed");
        }
    }
}
