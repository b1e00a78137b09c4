//! The link that `executor page` opens is that of the executor that runs then.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::world::World;

#[test]
fn the_link_is_that_of_the_executor_that_has_just_started() {
    let world = World::new();
    let (programs, opened) = (world.folder().join("bin"), world.folder().join("opened"));
    fs::create_dir(&programs).expect("made");
    let browser = programs.join("xdg-open");
    fs::write(&browser, format!("#!/bin/sh\ncp \"$1\" '{}'\n", opened.display())).expect("written");
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).expect("set");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let page = |home: &std::path::Path| {
        let mut command = world.command(&["executor", "page"]);
        world
            .transcript(&command.env("DISPLAY", ":1").env("PATH", &path).env("HOME", home).output().expect("it starts"))
    };
    // The first executor of this home, and two later ones.
    for round in 0..3 {
        let ran = page(&world.home());
        assert_eq!(ran.exit, 0, "{round}: {ran}");
        let link = fs::read_to_string(&opened).expect("it was opened");
        let origin = world.run(&["executor", "status"]).json()["page"]["origin"].as_str().expect("a text").to_owned();
        assert!(link.contains(&format!("{origin}/#")), "{round}: {link}, not {origin}");
        assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    }
    // Another home has no link to it.
    let other = world.folder().join("other");
    fs::create_dir(&other).expect("made");
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let ran = page(&other);
    assert_eq!(ran.error()["code"], json!("no-executor"), "{ran}");
    assert!(ran.error()["message"].as_str().is_some_and(|it| it.contains("another home folder")), "{ran}");
}
