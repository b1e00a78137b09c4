//! `secret`: values are stored and never printed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use insta::assert_snapshot;

use crate::world::World;

#[test]
fn a_value_is_stored_listed_by_name_and_removed() {
    let world = World::new();
    assert_snapshot!(world.run_with(&["secret", "set", "github"], "hunter2-hunter2\n"), @r#"
    exit: 0
    --- stdout
    {"name":"github","stored":true}
    "#);
    assert_snapshot!(world.run(&["secret", "list"]), @r#"
    exit: 0
    --- stdout
    [{"name":"github","from":"stored"}]
    "#);
    let file = world.state().join("secrets/github");
    assert_eq!(fs::read_to_string(&file).expect("stored"), "hunter2-hunter2");
    assert_eq!(fs::metadata(&file).expect("stored").permissions().mode() & 0o777, 0o600);
    assert_snapshot!(world.run(&["secret", "rm", "github"]), @r#"
    exit: 0
    --- stdout
    {"name":"github","removed":true}
    "#);
    assert_snapshot!(world.run(&["secret", "rm", "github"]), @r#"
    exit: 3
    --- stdout
    {"name":"github","removed":false}
    "#);
}

#[test]
fn an_empty_value_and_an_invalid_name_are_refused() {
    let world = World::new();
    assert_snapshot!(world.run_with(&["secret", "set", "github"], "\n"), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"the value is empty","hint":"pass it on standard input: printf %s \"$TOKEN\" | agent-magic-tool secret set github"}}
    "#);
    // The error does not repeat the name, which may be a value given by mistake.
    let ran = world.run_with(&["secret", "set", "ghp_../canary"], "y");
    assert_eq!((ran.exit, ran.stderr.contains("canary")), (2, false), "{ran}");
}
