//! `list --format=typescript`: typed signatures, which TypeScript's own compiler accepts for whatever schema.

use std::path::PathBuf;
use std::process::Command;

use insta::assert_snapshot;
use serde_json::json;

use super::import::torture::spec;
use crate::skip::skip;
use crate::world::World;

/// The node packages, with TypeScript among them.
const PACKAGES: &str = "AGENT_MAGIC_TOOL_TEST_SERVE_NODE";
/// More than there are.
const ALL: &str = "--limit=5000";

#[test]
fn a_hit_is_a_signature_and_the_others_are_comments() {
    let world = World::new();
    world.configure("[catalog]\npacks = []\n");
    let subtool = |description: &str| {
        json!({
            "description": description,
            "input": {"type": "object", "required": ["to"], "properties": {
                "to": {"type": "string", "description": "Who gets it."},
                "count": {"type": "integer", "minimum": 1, "default": 1},
            }},
            "run": {"process": {"argv": ["echo", "{{ to }}"]}}
        })
    };
    let subtools = json!({"mail_send": subtool("Sends a mail."), "mail_list": subtool("Lists a mail. Newest first."),
        "mail_move": subtool("Moves a mail."), "mail_drop": subtool("Drops a mail.\nFor good.")});
    world.define("mail.json", &subtools);
    assert_snapshot!(world.run(&["list", "tools", "--query=send a mail", "--format=typescript"]), @"
    exit: 0
    --- stdout
    /** Sends a mail. */
    mail_send(input: {
     to: string, // Who gets it
     count?: number, // integer; at least 1; default 1
    })
    --- stderr
    note: to run one: agent-magic-tool run NAME key=value --wait
    ");
    assert_snapshot!(world.run(&["list", "tools", "--format=typescript"]), @"
    exit: 0
    --- stdout
    // mail_drop: Drops a mail
    // mail_list: Lists a mail
    // mail_move: Moves a mail
    // mail_send: Sends a mail
    --- stderr
    note: all parameters: list tools NAME
    ");
}

#[test]
fn typescript_accepts_the_signatures_of_all_that_ships() {
    let Some(packages) = std::env::var_os(PACKAGES).map(PathBuf::from) else {
        return skip(&format!("{PACKAGES} does not name the node packages, of which `typescript` is one"));
    };
    let world = World::new();
    let packs = world.run(&["pack", "list"]).json();
    let names: Vec<_> = packs.as_array().expect("a list").iter().map(|pack| &pack["name"]).collect();
    world.configure(&format!("[catalog]\npacks = {}\n", serde_json::to_string(&names).expect("JSON")));
    if let Some(github) = spec("@octokit/openapi/generated/api.github.com.json") {
        let imported = world.run(&["import", &github.display().to_string(), "--name=gh"]);
        assert_eq!(imported.exit, 0, "{imported}");
    }
    let listed = world.run(&["list", "tools", "--format=typescript", "--full", ALL]);
    assert_eq!(listed.exit, 0, "{listed}");
    let count = listed.stdout.matches("/** ").count();
    assert!(count > 60, "{count} signatures");
    let accepts = |members: &str| {
        std::fs::write(world.folder().join("subtools.ts"), format!("interface Subtools {{\n{members}\n}}\n"))
            .expect("written");
        let mut compiler = Command::new("node");
        compiler.arg(packages.join("typescript/bin/tsc")).args(["--noEmit", "--target", "es2022", "subtools.ts"]);
        let printed = compiler.current_dir(world.folder()).output().expect("node starts");
        (printed.status.success(), String::from_utf8_lossy(&printed.stdout).into_owned())
    };
    let (is_accepted, said) = accepts(&listed.stdout);
    assert!(is_accepted, "{said}");
    // The check finds what is wrong.
    let (is_accepted, said) = accepts(&listed.stdout.replacen(": string", ": strng", 1));
    assert!(!is_accepted && said.contains("strng"), "{said}");
}
