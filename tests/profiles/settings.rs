//! What a profile says beside which subtools there are: rules, limits, budgets and data classes; how it is given, changed and
//! explained.

use serde_json::{Value, json};

use super::{DOORS, Door, office, one_tool, over_stdio, script, with_profile};
use crate::page::human::Human;
use crate::serve::{Server, echo_model};
use crate::world::{Transcript, World, until};

/// A subtool that reads, one that changes something and never asks, one that is confidential, and one that needs another.
fn world(profile: &str) -> World {
    let world = World::new();
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let run = json!({"process": {"folder": ".", "argv": ["sh", "-c", "echo x >> ran; printf done"]}});
    world.define(
        "shop.json",
        &json!({
            "order_read": {"description": "Reads an order.", "annotations": {"readOnlyHint": true}, "input": text, "run": run},
            "order_note": {"description": "Notes something.", "confirm": "never", "input": text, "run": run},
            "order_secret": {"description": "Reads a secret order.", "annotations": {"readOnlyHint": true},
                "data_class": "confidential", "input": text, "run": run},
            "order_costs": {"description": "Reads costs.", "annotations": {"readOnlyHint": true},
                "requires": ["cost:read"], "input": text, "run": run},
            "order_whole": {"description": "Reads an order with its costs.", "annotations": {"readOnlyHint": true},
                "depends_on": ["order_costs"], "input": text, "run": run},
        }),
    );
    world.configure(profile);
    world
}

fn run(world: &World, words: &[&str]) -> Transcript {
    let output = with_profile(world, words).output().expect("it starts");
    world.transcript(&output)
}

fn code(ran: &Transcript) -> String {
    ran.error()["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_profile_asks_refuses_and_demands_more_of_its_callers_alone() {
    let world = world(
        "[profiles.support]\nrules = [{ tools = [\"order_note\"], when = \"input.text == 'bad'\", then = \"refuse\" }, \
         { tools = [\"order_note\"], then = \"ask\", because = \"support asks\" }]\ntrust = \"internal\"\n",
    );
    let note = ["run", "order_note", "--input={\"text\": \"good\"}"];
    assert_eq!(world.run(&[&note[..], &["--wait"]].concat()).json()["status"], "succeeded");
    let asked = run(&world, &note);
    assert_eq!(asked.json()["state"], "awaiting_confirmation", "{asked}");
    let id = asked.json()["id"].as_str().expect("an id").to_owned();
    let human = Human::of(&world);
    let card = human.card(&id);
    assert!(card.contains("with the rights of") && card.contains("support asks (profile `support`)"), "{card}");
    human.approve(&id);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert_eq!(code(&run(&world, &["run", "order_note", "text=bad"])), "refused-by-policy");
    assert_eq!(code(&run(&world, &["run", "order_secret", "--wait"])), "trust-zone");
    assert_eq!(world.run(&["run", "order_secret", "--wait"]).exit, 0);
    // A yes to a caller without the profile is none to one with it, whose rules did not ask then.
    world.configure("[profiles.support]\nmin_assurance = \"touch\"\n[confirm]\nwrites = \"ask\"\n");
    world.define(
        "write.json",
        &json!({"order_set": {"description": "Sets.", "input": {}, "run": {"process": {"argv": ["true"]}}}}),
    );
    assert_eq!(world.run(&["run", "order_set"]).json()["state"], "awaiting_confirmation");
    assert_eq!(code(&run(&world, &["run", "order_set"])), "needs-assurance");
}

#[test]
fn the_limits_of_a_profile_count_each_client_by_itself() {
    let world = world("[profiles.support]\nrate_limits = [{ calls = 2, per = \"1h\" }]\n");
    let in_session = |session: &str, tool: &str| {
        let mut command = with_profile(&world, &["run", tool, "--wait"]);
        world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("it starts"))
    };
    assert_eq!((in_session("a", "order_read").exit, in_session("b", "order_note").exit), (0, 0));
    let refused = in_session("c", "order_read");
    assert_eq!(code(&refused), "rate-limited", "another name or subtool is no other share: {refused}");
    assert!(refused.error()["message"].as_str().is_some_and(|text| text.contains("the profile `support` allows")));
    assert_eq!(world.run(&["run", "order_read", "--wait"]).exit, 0, "others are not limited");
    world.run(&["executor", "stop"]);
    assert_eq!(code(&in_session("d", "order_read")), "rate-limited", "it is remembered over a restart");
}

#[test]
fn each_api_key_with_a_profile_has_its_own_budget_and_another_profile_counts_at_once() {
    let world = world("");
    let model = echo_model::start();
    let profiles = "[profiles.small]\ntokens_per_day = 1\n[profiles.reader]\nread_only = true\n";
    world.configure(&echo_model::configuration(&model, profiles));
    let key = |name: &str| {
        let made = world.run(&["serve", "key", "create", name, "--profile=small"]).json();
        format!("Authorization: Bearer {}\r\n", made["key"].as_str().expect("a key"))
    };
    let (one, other, one_more) = (key("one"), key("other"), key("more"));
    assert_eq!(world.run(&["serve", "key", "set-profile", "more"]).exit, 0);
    let server = Server::start(&world);
    let ask = |key: &str, text: &str| {
        let body =
            json!({"model": "agent-magic-tool", "stream": false, "messages": [{"role": "user", "content": text}]});
        server.request("POST", "/v1/chat/completions", key, &body.to_string()).body
    };
    assert!(ask(&one, "echo first").contains("first"));
    let refused = ask(&one, "echo second");
    assert!(refused.contains("`tokens_per_day` of the profile `small`"), "{refused}");
    assert!(ask(&other, "echo third").contains("third"), "each key has its own");
    // What is scheduled goes by the rights at its start.
    let later = json!({"session": "s", "wait": false, "message": "shell agent-magic-tool run order_note --in=1h"});
    server.request("POST", "/api/v1/submit", &one_more, &later.to_string());
    let is_scheduled =
        || world.run(&["tasks", "--state=scheduled"]).json().as_array().is_some_and(|tasks| tasks.len() == 1);
    until("it is scheduled", is_scheduled);
    assert_eq!(world.run(&["serve", "key", "set-profile", "more", "reader"]).exit, 0);
    assert_eq!(world.run(&["run", "order_read", "--wait"]).exit, 0);
    let denied = || world.run(&["tasks", "--state=denied"]).json();
    until("what was scheduled is refused", || denied().as_array().is_some_and(|tasks| tasks.len() == 1));
    let changed = world.run(&["serve", "key", "set-profile", "one", "reader"]);
    assert_eq!(changed.json(), json!({"name": "one", "profile": "reader"}));
    let told = ask(&one, "shell agent-magic-tool run order_note --wait");
    assert!(told.contains("no subtool named `order_note`"), "{told}");
    assert_eq!(world.run(&["serve", "key", "set-profile", "one"]).json()["profile"], Value::Null);
    assert!(ask(&one, "shell agent-magic-tool run order_note --wait").contains("done"));
    world.configure(&echo_model::configuration(&model, "[profiles.reader]\nread_only = true\n"));
    let gone = ask(&other, "echo fourth");
    assert!(gone.contains("there is no profile `small`"), "no budget is no permission: {gone}");
    let unknown = world.run(&["serve", "key", "set-profile", "one", "raeder"]);
    assert!(unknown.error()["hint"].as_str().is_some_and(|hint| hint.contains("`reader`")), "{unknown}");
}

#[test]
fn what_a_script_of_a_narrowed_key_calls_goes_by_its_rights_of_now() {
    let world = world("");
    let hold = "while [ ! -e go ]; do sleep 0.05; done";
    world.define(
        "hold.json",
        &json!({"hold": {"description": "Waits.", "annotations": {"readOnlyHint": true}, "input": {},
        "run": {"process": {"folder": ".", "argv": ["sh", "-c", hold]}}}}),
    );
    let model = echo_model::start();
    world.configure(&echo_model::configuration(&model, "[profiles.reader]\nread_only = true\n"));
    let made = world.run(&["serve", "key", "create", "desk"]).json();
    let key = format!("Authorization: Bearer {}\r\n", made["key"].as_str().expect("a key"));
    let server = Server::start(&world);
    let message = format!("shell {}", script("await hold({}); return await order_note({})"));
    server.request(
        "POST",
        "/api/v1/submit",
        &key,
        &json!({"session": "s", "wait": false, "message": message}).to_string(),
    );
    let of = |tool: &str| {
        let tasks = world.run(&["tasks", "--limit=50"]).json();
        tasks.as_array().expect("a list").iter().find(|task| task["tool"] == tool).cloned()
    };
    until("it waits", || of("hold").is_some());
    assert_eq!(world.run(&["serve", "key", "set-profile", "desk", "reader"]).exit, 0);
    std::fs::write(world.folder().join("go"), "").expect("written");
    until("the script has ended", || of("run_script").is_some_and(|task| task["status"] == "failed"));
    assert!(of("order_note").is_none() && !world.folder().join("ran").exists());
}

#[test]
fn an_edit_counts_for_what_comes_and_for_what_waits() {
    let world = world("[profiles.support]\nrules = [{ tools = [\"order_note\"], then = \"ask\" }]\n");
    let asked = run(&world, &["run", "order_note"]);
    let id = asked.json()["id"].as_str().expect("an id").to_owned();
    world.configure("[profiles.support]\nallow = [\"order_read\"]\n");
    assert_eq!(run(&world, &["run", "order_read", "--wait"]).exit, 0);
    until("what waits is refused", || world.result_file(&id)["status"] == "denied");
    assert_eq!(world.result_file(&id)["error"]["code"], "refused-by-policy");
    assert_eq!(code(&run(&world, &["run", "order_note", "--wait"])), "unknown-subtool");
    world.configure("[page]\nidle = \"2h\"\n");
    for words in
        [&["run", "order_read", "--wait"][..], &["list", "tools"], &["list", "packs"], &["list", "tools", "order_read"]]
    {
        let ran = run(&world, words);
        let message = ran.error()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("there is no profile `support`"), "{words:?}: {ran}");
    }
}

#[test]
fn a_profile_that_would_allow_or_is_misspelled_is_refused_with_its_line() {
    let world = world("");
    for (config, says) in [
        ("[profiles.p]\nalow = []\n", "unknown field `alow`"),
        ("[profiles.p]\nallow = [\"a[\"]\n", "`profiles.p.allow[0]`"),
        ("[profiles.p]\nrules = [{ then = \"allow\" }]\n", "a profile only narrows"),
        ("[profiles.p]\nrules = [{ when = \"input.\", then = \"ask\" }]\n", "rule 1 of `profiles.p.rules`"),
        ("[profiles.P]\n", "not the name of a profile"),
        ("[profiles.-]\n", "not the name of a profile"),
        ("[profiles.p]\nrate_limits = [{ calls = 0, per = \"1h\" }]\n", "0 calls would be no limit"),
        ("[profiles.p]\n[mcp.clients.c]\nprofile = \"@p\"\n", "write it without `@`"),
        ("[profiles.p]\n[mcp.clients.c]\nsubtools = [\"@p\", \"x\"]\n", "must be the only entry"),
        ("[mcp.clients.c]\nsubtools = [\"@p\"]\n", "there is no profile `p`"),
        ("[profiles.p]\n[serve.slack]\ntool_scope = [[\"@p\", \"x\"]]\n", "must be the only entry"),
        ("[profiles.p]\nrate_limits = [{ calls = 1, per = \"1h\", auto_disable = true }]\n", "switches none off"),
        ("[mcp.clients.c]\nprofile = \"p\"\n", "there is no profile `p`"),
        ("[serve.slack]\nprofile = \"p\"\n", "there is no profile `p`"),
    ] {
        world.configure(config);
        let ran = world.run(&["executor", "start"]);
        let message = ran.error()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(says), "{config}: {ran}");
    }
    for (variable, value) in [
        ("AGENT_MAGIC_TOOL_PROFILE", "P P"),
        ("AGENT_MAGIC_TOOL_PROFILE", ""),
        ("AGENT_MAGIC_TOOL_SCOPE", r#"[["@p", "x"]]"#),
    ] {
        world.configure("");
        let ran = world.transcript(&world.command(&["list"]).env(variable, value).output().expect("it starts"));
        assert!(ran.error()["message"].as_str().is_some_and(|text| text.contains(variable)), "{ran}");
    }
}

#[test]
fn inspect_lint_and_doctor_say_what_a_profile_has_and_lacks() {
    let world = world(
        "[profiles.support]\nallow = [\"order_whole\", \"order_c*\", \"order_note\"]\nprivileges = [\"order:*\"]\n\
         deny = [\"order_note\"]\n",
    );
    let inspect = |name: &str| world.run(&["inspect", name, "--profile=support"]);
    assert_eq!(inspect("order_whole").json()["lacks"], json!(["order_costs"]));
    let misspelled = "[profiles.support]\ntags = [\"shap\"]\npacks = [\"shap\"]\n";
    for (name, why) in [
        ("order_read", "`profiles.support.allow` does not list it"),
        ("order_note", "`profiles.support.deny` excludes it"),
        ("order_costs", "needs the privilege `cost:read`"),
    ] {
        let refused = inspect(name);
        assert!(refused.error()["message"].as_str().is_some_and(|text| text.contains(why)), "{refused}");
    }
    let overview = world.run(&["inspect", "--profile=support"]).json();
    let names: Vec<_> = overview.as_array().expect("a list").iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["order_whole"]);
    assert_eq!(code(&world.run(&["inspect", "--profile=suport"])), "usage");
    let gaps: Vec<_> = world
        .run(&["lint"])
        .json()
        .as_array()
        .expect("findings")
        .iter()
        .filter(|it| it["code"] == "rights-gap")
        .cloned()
        .collect();
    let messages: Vec<_> = gaps.iter().map(|gap| gap["message"].as_str().expect("a text")).collect();
    assert_eq!(
        messages,
        [
            "it names `order_costs`, which needs the privilege `cost:read`, and `privileges` does not have that",
            "`order_whole` is allowed, and needs `order_costs`, which is not; allow it too"
        ]
    );
    assert!(gaps.iter().all(|gap| gap["line"] == 2), "{gaps:?}");
    for (words, told) in [
        (&["serve", "key", "list"][..], "humans-only"),
        (&["agent", "--sessions"], "humans-only"),
        (&["verify", "00000000000000000000000000000000"], "humans-only"),
        (&["secret", "list"], "humans-only"),
    ] {
        assert_eq!(code(&run(&world, words)), told, "{words:?}");
    }
    let checks = world.run(&["doctor"]).json();
    let rights =
        checks["checks"].as_array().expect("checks").iter().find(|check| check["name"] == "rights").expect("one");
    assert_eq!((rights["ok"].as_bool(), rights["found"].as_array().map(Vec::len)), (Some(true), Some(2)), "{rights}");
    world.configure(misspelled);
    let found = world.run(&["lint"]).json();
    let about: Vec<_> = found.as_array().expect("findings").iter().filter(|it| it["code"] == "about-nothing").collect();
    assert_eq!(about.len(), 2, "{found}");
    assert!(about.iter().any(|it| it["message"].as_str().is_some_and(|text| text.contains("`shop`"))), "{found}");
}

#[test]
fn a_client_of_mcp_lists_what_its_profile_has() {
    let office = office();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}});
    for arguments in [["mcp", "--client=support", "--expose=*"], ["mcp", "--profile=support", "--expose=*"]] {
        let listed: Value = serde_json::from_str(&over_stdio(office.world.command(&arguments), &call)).expect("JSON");
        let tools = listed["result"]["tools"].as_array().expect("tools");
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
        assert_eq!(
            names,
            [
                "command_executor",
                "order_computed",
                "order_dep",
                "order_read",
                "order_script",
                "order_whole",
                "run_script"
            ]
        );
    }
    let direct = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "payroll_export", "arguments": {}}});
    let unknown = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "payroll_expord", "arguments": {}}});
    let told = |call: &Value, name: &str| {
        over_stdio(office.world.command(&["mcp", "--profile=support", "--expose=*"]), call).replace(name, "NAME")
    };
    assert_eq!(told(&direct, "payroll_export"), told(&unknown, "payroll_expord"));
    assert!(!office.has_run("forbidden"));
}

#[test]
fn a_script_calls_what_its_callers_profile_has() {
    let office = office();
    let line = script("return [await order_read({}), typeof order_costs]");
    let ended =
        with_profile(&office.world, &["run", "run_script", "source=return 1", "--wait"]).output().expect("it starts");
    let id = office.world.transcript(&ended);
    let id = serde_json::from_slice::<Value>(&ended.stdout).unwrap_or_else(|_| panic!("{id}"))["id"].clone();
    let save = |name: &str| {
        let words =
            ["script", "save", name, id.as_str().expect("an id"), "--description=Returns one, as a test wants it."];
        let ran = with_profile(&office.world, &words).output().expect("it starts");
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).replace(name, "NAME")
    };
    assert_eq!(save("payroll_export"), save("payroll_expord"), "which names are taken is not told");
    for door in DOORS.into_iter().filter(|door| matches!(door, Door::Terminal | Door::CommandExecutor)) {
        let told = office.ask(door, &line);
        assert!(told.contains("done"), "{door:?}: {told}");
    }
    let told = over_stdio(office.world.command(&["mcp", "--profile=support"]), &one_tool(&line));
    assert!(told.contains("done"), "{told}");
}
