//! `doctor`: reports what is wrong with an installation, and repairs what is safe to repair.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::world::{Transcript, World};

fn check(ran: &Transcript, name: &str) -> Value {
    let report = ran.json();
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check `{name}`: {ran}")).clone()
}

fn dated(world: &World, name: &str, at: SystemTime) -> String {
    let path = world.mailbox().join(name);
    let file = File::create(&path).expect("created");
    file.set_permissions(Permissions::from_mode(0o600)).expect("set");
    file.set_modified(at).expect("set");
    format!("`{}`", path.display())
}

const ID: &str = "01a1fce914ce72a8be531d1bffc6ef06";

#[test]
fn a_healthy_installation_passes_and_shows_its_sizes() {
    let world = World::new();
    fs::write(world.folder().join("note.txt"), "one\n").expect("written");
    world.result_of("files_read", &json!({"path": "note.txt"}));
    let ran = world.run(&["doctor"]);
    assert_eq!((ran.exit, &ran.json()["ok"]), (0, &json!(true)), "{ran}");
    let config = |ran: &Transcript| check(ran, "config")["message"].as_str().expect("a message").to_owned();
    assert!(config(&ran).starts_with("the defaults; there is no `"), "{ran}");
    let sizes = ran.json()["sizes"].clone();
    for what in ["results", "record", "log"] {
        assert!(sizes[what].as_u64().is_some_and(|bytes| bytes > 0), "{what}: {sizes}");
    }
    assert_eq!((&sizes["data"], ran.json().get("repaired")), (&json!(0), None));
    assert_eq!(world.run(&["doctor", "--repair"]).json()["repaired"], json!([]), "there was nothing to repair");
    world.configure("");
    assert!(config(&world.run(&["doctor"])).ends_with("config.toml` and the defaults"));
}

#[test]
fn stuck_requests_and_results_from_the_future_are_reported() {
    let world = World::new();
    world.run(&["tasks"]);
    let now = SystemTime::now();
    let old = dated(&world, &format!("inbox/{ID}.json"), now - Duration::from_mins(2));
    let ran = world.run(&["doctor"]);
    assert_eq!((ran.exit, &check(&ran, "requests")["found"]), (1, &json!([old])), "{ran}");
    assert_eq!(check(&ran, "clock")["ok"], true);
    dated(&world, &format!("results/result-{ID}.json"), now + Duration::from_hours(3));
    let clock = check(&world.run(&["doctor"]), "clock");
    assert!(
        clock["ok"] == false
            && clock["message"]
                .as_str()
                .is_some_and(|message| message.starts_with("1 result is dated in the future, by up to 2h")),
        "{clock}"
    );
}

#[test]
fn an_executor_of_another_version_is_reported() {
    let world = World::new();
    world.run(&["executor", "start"]);
    assert_eq!(check(&world.run(&["doctor"]), "executor")["ok"], true);
    let identity = world.mailbox().join("executor.json");
    let mut changed: Value = serde_json::from_str(&fs::read_to_string(&identity).expect("readable")).expect("JSON");
    changed["version"] = "0.0.1".into();
    fs::write(&identity, changed.to_string()).expect("written");
    let ran = world.run(&["doctor"]);
    let executor = check(&ran, "executor");
    assert!(
        ran.exit == 1
            && executor["message"].as_str().is_some_and(|message| message.contains("version 0.0.1; this command is")),
        "{ran}"
    );
}

#[test]
fn repair_changes_only_what_is_safe_and_reports_it() {
    let world = World::new();
    world.run(&["tasks"]);
    let old = SystemTime::now() - Duration::from_hours(1);
    let kept = [format!("inbox/{ID}.json"), format!("results/result-{ID}.json"), "inbox/foreign.txt".to_owned()];
    for name in &kept {
        dated(&world, name, old);
    }
    dated(&world, "inbox/.withdrawn-x", old);
    dated(&world, "results/.young", SystemTime::now());
    let results = world.mailbox().join("results");
    // Makes the whole mailbox untrusted.
    fs::set_permissions(&results, Permissions::from_mode(0o777)).expect("set");
    let ran = world.run(&["doctor"]);
    assert_eq!((ran.exit, &check(&ran, "modes")["found"]), (1, &json!([format!("`{}`", results.display())])), "{ran}");
    assert_eq!(check(&ran, "mailbox")["ok"], false);

    let repaired = world.run(&["doctor", "--repair"]);
    let expected = [
        format!("made `{}` private", results.display()),
        "removed 1 stale temporary files and answers from the mailbox".to_owned(),
    ];
    assert_eq!(repaired.json()["repaired"], json!(expected), "{repaired}");
    assert_eq!((&check(&repaired, "modes")["ok"], &check(&repaired, "mailbox")["ok"]), (&json!(true), &json!(true)));
    assert_eq!(fs::metadata(&results).expect("there").permissions().mode() & 0o777, 0o700);
    assert!(kept.iter().chain([&"results/.young".to_owned()]).all(|name| world.mailbox().join(name).exists()));
    assert_eq!(world.run(&["doctor", "--repair"]).json()["repaired"], json!([]));
}

#[test]
fn doctor_shows_the_page_its_security_and_the_waiting_tasks() {
    let world = World::new();
    let security = "an approval there is as secure as your user account: an agent of the same user that controls your \
                    browser or terminal could forge it; a key that you touch (`agent-magic-tool approver enrol`) \
                    prevents that for what destroys something or goes outward";
    let page = || check(&world.run(&["doctor"]), "page");
    assert_eq!(
        page(),
        json!({"name": "page", "ok": true, "message": format!("served by the executor, which is not running; {security}")})
    );
    assert!(world.executor().is_none(), "the check must not start an executor");

    world.define("own.json", &json!({"pay_it": {"description": "Pays it.", "input": {"type": "object"}, "run": {"process": {"argv": ["true"]}}}}));
    let id = world.start("pay_it", &json!({}));
    let status = world.run(&["executor", "status"]).json();
    let origin = status["page"]["origin"].as_str().expect("the page is served").to_owned();
    assert_eq!(status["page"], json!({"origin": origin, "online": false, "keys": 0, "waiting": 1}));
    let listed = world.run(&["tasks", "--state=awaiting_confirmation"]).json();
    let (why, until) = (listed[0]["why"].as_str().expect("why"), listed[0]["expires_at"].as_str().expect("until when"));
    let since = world.result_file(&id)["created_at"].as_str().expect("a time").to_owned();
    let expected = json!({"name": "page", "ok": true,
        "message": format!("served at `{origin}`, not open in any browser, 1 task waits for confirmation; {security}"),
        "hint": "a human opens it with: agent-magic-tool executor page",
        "found": [format!("`{id}`: `pay_it` has waited since {since}, expires at {until}: {why}")]});
    assert_eq!(page(), expected);

    assert_eq!(world.run(&["cancel", &id]).exit, 0);
    assert_eq!(
        page()["message"],
        format!("served at `{origin}`, not open in any browser, 0 tasks wait for confirmation; {security}")
    );
    world.run(&["executor", "stop"]);
    world.configure("[page]\nenabled = false\n");
    assert_eq!(page()["message"], "switched off by `enabled = false` under [page], so no task can be approved");
    world.run(&["executor", "start"]);
    assert_eq!(world.run(&["executor", "status"]).json()["page"]["origin"], json!(null));
}

#[test]
fn a_rule_for_a_name_that_no_subtool_has_is_shown() {
    let world = World::new();
    world.configure(
        "[access]\ndeny = [\"gmail_*\", \"gmail_send_mesage\"]\n\
         [[confirm.rules]]\ntools = [\"files_*\", \"gti_*\"]\nthen = \"ask\"\n\
         [rate_limits.tags]\ngit = { calls = 9, per = \"1h\" }\nmony = { calls = 2, per = \"1h\" }\n",
    );
    assert_eq!(
        check(&world.run(&["doctor"]), "rules"),
        json!({"name": "rules", "ok": false, "message": "3 parts of the configuration would protect nothing",
            "hint": "mend the names, or remove what is about nothing; lines: agent-magic-tool lint", "found": [
            "`confirm.rules[0].tools[1]`: `gti_*` matches no subtool",
            "`access.deny[1]`: `gmail_send_mesage` matches no subtool; did you mean `gmail_send_message`?",
            "`rate_limits.tags.mony`: no subtool has the tag `mony`"]})
    );
}
