//! `inspect`: shows subtools from the same catalog that `run` uses.

use std::collections::BTreeSet;

use serde_json::json;

use crate::world::World;

#[test]
fn an_excluded_subtool_names_the_setting_that_excludes_it() {
    let world = World::new();
    world.configure("[access]\ndeny = [\"git_l*\"]\n");
    let ran = world.run(&["inspect", "git_log"]);
    assert_eq!(ran.exit, 3, "{ran}");
    assert_eq!(ran.error()["message"], "the configuration excludes `git_log`: `access.deny` excludes it by `git_l*`");
}

#[test]
fn one_subtool_is_shown_in_full_with_secrets_only_by_name() {
    let world = World::new();
    let shown = world.run(&["inspect", "gmail_search_messages"]).json();
    assert_eq!(
        (shown["origin"].as_str(), shown["effect"].as_str()),
        (Some("built-in pack gmail"), Some("read")),
        "{shown}"
    );
    assert!(shown["definition"]["run"]["http"]["auth"].to_string().contains("secret:google"), "{shown}");
}

#[test]
fn the_overview_lists_every_subtool_with_dependencies_and_privileges() {
    let world = World::new();
    world.define("own.json", &json!({"own": {"description": "Needs another one and a privilege.", "input": {}, "depends_on": ["git_log"], "requires": ["mail:send"],
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}}}));
    let overview = world.run(&["inspect"]).json();
    let lines = overview.as_array().expect("a list");
    let own = lines.iter().find(|line| line["name"] == "own").expect("it is there");
    assert_eq!(
        (&own["depends_on"], &own["requires"], &own["runner"]),
        (&json!(["git_log"]), &json!(["mail:send"]), &json!("process"))
    );
    let inspected: BTreeSet<_> = lines.iter().map(|line| line["name"].as_str().expect("a name").to_owned()).collect();
    let listed = world.run(&["list", "--limit=1000", "--format=names"]).json();
    let listed: BTreeSet<_> =
        listed.as_array().expect("names").iter().map(|name| name.as_str().expect("a name").to_owned()).collect();
    assert_eq!(inspected, listed);
}

#[test]
fn a_subtool_that_failed_to_load_is_reported_with_the_reason() {
    let world = World::new();
    world.define("own.json", &json!({"own": {"description": "Has a slip.", "input": {}, "timeout": "soon", "run": {"process": {"argv": ["true"]}}}}));
    let ran = world.run(&["inspect", "own"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("bad-definition")), "as `run` says it: {ran}");
    let message = ran.error()["message"].to_string();
    assert!(message.contains("own.json") && message.contains("timeout"), "{message}");
}

#[test]
fn inspect_shows_the_decision_and_the_rule_behind_it() {
    let world = World::new();
    world.define("own.json", &json!({
        "pay_it": {"description": "Pays it.", "input": {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
            "grantable": false, "min_assurance": "page", "run": {"process": {"argv": ["true"]}}},
        "touch_it": {"description": "Touches it.", "input": {"type": "object"}, "min_assurance": "touch", "run": {"process": {"argv": ["true"]}}},
    }));
    world.configure(
        "[[confirm.rules]]\ntools = [\"git_*\"]\nthen = \"ask\"\n
         [[confirm.rules]]\ntools = [\"pay_*\"]\nwhen = \"input.amount <= 5\"\nthen = \"allow\"\nbecause = \"small change\"\n
         [[confirm.rules]]\ntools = [\"pay_*\"]\nwhen = \"input.amount > 100\"\nthen = \"refuse\"\n",
    );
    let of = |words: &[&str]| {
        let ran = world.run(&[&["inspect"], words].concat());
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()["confirmation"].clone()
    };
    let expected = |decision: &str, why: &str, rule: Option<u32>, own: bool| {
        let least = own.then_some("page");
        json!({"decision": decision, "why": why, "rule": rule, "min_assurance": least, "grantable": !own})
    };
    let unsaid = "it changes something, and no rule allows it without asking";
    assert_eq!(of(&["files_read"]), expected("runs", "it is read-only", None, false));
    assert_eq!(of(&["git_log"]), expected("asks", "rule 1 of `confirm.rules` applies", Some(1), false));
    assert_eq!(of(&["pay_it", "--input={\"amount\": 5}"]), expected("runs", "small change", Some(2), true));
    assert_eq!(of(&["pay_it", "--input={\"amount\": 50}"]), expected("asks", unsaid, None, true));
    let refused = expected("refused", "rule 3 of `confirm.rules` applies", Some(3), true);
    assert_eq!(of(&["pay_it", "--input={\"amount\": 101}"]), refused);
    let unsure = of(&["touch_it"]);
    assert_eq!((&unsure["decision"], &unsure["min_assurance"]), (&json!("refused"), &json!("touch")), "{unsure}");

    // The executor decides the same for the same call.
    let ran = world.run(&["run", "pay_it", "amount:=101"]);
    assert_eq!((ran.exit, &ran.error()["code"]), (5, &json!("refused-by-policy")), "{ran}");
    let ran = world.run(&["run", "pay_it", "amount:=5", "--wait"]);
    assert_eq!((ran.exit, &ran.json()["status"]), (0, &json!("succeeded")), "{ran}");
    let ran = world.run(&["run", "pay_it", "amount:=50"]);
    assert_eq!(ran.json()["state"], "awaiting_confirmation", "{ran}");

    let wrong = world.run(&["inspect", "pay_it", "--input={\"amount\": \"x\"}"]);
    assert_eq!((wrong.exit, &wrong.error()["code"]), (2, &json!("invalid-input")), "{wrong}");
}

#[test]
fn a_rule_whose_samples_fail_is_reported() {
    let world = World::new();
    world.configure("[[confirm.rules]]\ntools = [\"git_*\"]\nthen = \"ask\"\nmatch = [{tool = \"files_read\"}]\n");
    let message = "rule 1 of `confirm.rules`: it does not match `files_read` with {}, which is listed under `match`";
    let ran = world.run(&["inspect", "git_log"]);
    assert_eq!(
        (ran.exit, &ran.error()["code"], &ran.error()["message"]),
        (2, &json!("bad-config"), &json!(message)),
        "{ran}"
    );
    let doctor = world.run(&["doctor"]);
    let report = doctor.json();
    let checks = report["checks"].as_array().expect("checks");
    let rules = checks.iter().find(|check| check["name"] == "rules").expect("the rules are checked");
    assert_eq!((&rules["ok"], &rules["message"], doctor.exit), (&json!(false), &json!(message), 1), "{doctor}");
    let refused = world.run(&["executor", "start"]);
    assert_eq!(refused.exit, 2, "{refused}");
    assert!(refused.error()["message"].as_str().is_some_and(|text| text.ends_with(message)), "{refused}");
}
