//! A running executor obeys the configuration as it is now, as a whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::world::{Transcript, World, until};

/// `read` only reads; `change` writes and runs without asking; `slow` holds a slot until it is told to end.
fn definitions() -> Value {
    let append = |name: &str| json!({"process": {"argv": ["sh", "-c", "echo \"$1\" >> effects", name, "{{ text }}"], "folder": "."}});
    json!({
        "read": {"description": "Reads.", "input": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["echo", "read"]}}},
        "change": {"description": "Changes something.", "tags": ["money"], "confirm": "never",
            "input": {"type": "object", "required": ["text"],
                "properties": {"text": {"type": "string"}, "amount": {"type": "integer"}}},
            "run": append("change")},
        "slow": {"description": "Takes its time.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}},
    })
}

/// A world with a running executor.
fn world(config: &str) -> (World, Pid) {
    let world = World::new();
    world.configure(config);
    world.define("all.json", &definitions());
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    let pid = world.executor().expect("it runs");
    (world, pid)
}

fn effects(world: &World) -> Vec<String> {
    let text = fs::read_to_string(world.folder().join("effects")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn let_slow_end(world: &World) {
    fs::write(world.folder().join("go"), "").expect("written");
}

/// Writes the configuration the way most editors do.
fn replace_config(folder: &Path, toml: &str) {
    let temporary = folder.join(".config.toml.new");
    fs::write(&temporary, toml).expect("written");
    fs::rename(temporary, folder.join("config.toml")).expect("renamed");
}

#[track_caller]
fn assert_refused(ran: &Transcript, code: &str) {
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (ran.exit, Some(code)), "{ran}");
    assert_ne!(ran.exit, 0, "{ran}");
}

fn checks(world: &World) -> BTreeMap<String, Value> {
    let report = world.run(&["doctor"]).json();
    let checks = report["checks"].as_array().expect("checks").clone();
    checks.into_iter().map(|check| (check["name"].as_str().expect("a name").to_owned(), check)).collect()
}

#[test]
fn rules_access_and_limits_are_obeyed_at_the_next_request() {
    let (world, pid) = world("");
    let change = |world: &World| world.run(&["run", "change", "text=x", "--wait"]);
    assert_eq!(change(&world).exit, 0);
    world.configure("[[confirm.rules]]\ntags = [\"money\"]\nthen = \"refuse\"\nbecause = \"no money today\"\n");
    let refused = change(&world);
    assert_refused(&refused, "refused-by-policy");
    assert!(refused.stderr.contains("no money today"), "{refused}");
    world.configure("[access]\ndeny = [\"change\"]\n");
    assert_refused(&change(&world), "unknown-subtool");
    world.configure("[executor]\nopen_tasks = 1\n");
    let slow = world.start("slow", &json!({}));
    assert_refused(&change(&world), "throttled");
    world.configure("");
    assert_eq!(change(&world).exit, 0);
    let_slow_end(&world);
    world.run(&["wait", &slow]);
    // The default for what changes something applies to a subtool that says nothing about it.
    let mut asks = definitions();
    asks["change"].as_object_mut().expect("an object").shift_remove("confirm");
    world.define("all.json", &asks);
    world.configure("[confirm]\nwrites = \"refuse\"\n");
    assert_refused(&change(&world), "refused-by-policy");
    assert_eq!(world.executor(), Some(pid), "the executor was not restarted");
    assert_eq!(effects(&world), ["x", "x"]);
}

#[test]
fn a_shorter_time_to_keep_results_counts_for_those_that_are_there() {
    let (world, pid) = world("");
    let id = world.result_of("read", &json!({}))["id"].as_str().expect("an id").to_owned();
    assert_eq!(world.run(&["tasks"]).json()[0]["id"], json!(id));
    world.configure("[executor]\nkeep = \"1s\"\n");
    until("it is forgotten", || world.run(&["tasks"]).json() == json!([]));
    assert_eq!(world.executor(), Some(pid), "the executor was not restarted");
}

#[test]
fn secrets_models_and_hooks_are_those_of_the_present_configuration() {
    let (world, pid) = world("[secrets.key]\ncommand = [\"echo\", \"first-secret\"]\n");
    world.define(
        "key.json",
        &json!({"show": {"description": "Uses the key.", "input": {"type": "object"}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "printf %s \"$KEY\" | tr a-z b-za"], "env": {"KEY": "secret:key"}}}}}),
    );
    let show = |world: &World| world.result_of("show", &json!({}))["data"].clone();
    assert_eq!(show(&world), "gjstu-tfdsfu");
    let told = world.folder().join("told");
    world.configure(&format!(
        "[secrets.key]\ncommand = [\"echo\", \"other-secret\"]\n[hooks.tell]\ncommand = [\"sh\", \"-c\", \"cat >> {}\"]\n",
        told.display()
    ));
    assert_eq!(show(&world), "puifs-tfdsfu");
    until("the hook was told", || fs::read_to_string(&told).is_ok_and(|text| text.contains("\"show\"")));
    assert!(!world.run(&["list", "--limit=1000", "--format=names"]).stdout.contains("llm_text"));
    let asked = world.run(&["run", "llm_text", "prompt=hi"]);
    assert_refused(&asked, "unknown-subtool");
    world.configure("[agent]\nmodel = \"local\"\nretries = 0\n[models.local]\nprovider = \"ollama\"\nmodel = \"m\"\nurl = \"http://127.0.0.1:1\"\n");
    let asked = world.run(&["run", "llm_text", "prompt=hi", "--wait"]);
    assert_eq!((asked.exit, &asked.json()["error"]["code"]), (1, &json!("model-failed")), "{asked}");
    assert_eq!(world.executor(), Some(pid), "the executor was not restarted");
}

#[test]
fn a_broken_file_keeps_the_last_good_configuration_and_says_so_everywhere() {
    let (world, _) = world("[access]\ndeny = [\"change\"]\n");
    assert_refused(&world.run(&["run", "change", "text=x"]), "unknown-subtool");
    for (broken, place, says) in [
        ("[access]\ndeny = [\"change\"", "config.toml:2:", "is not valid"),
        ("[access]\ndenny = [\"read\"]\n", "config.toml:2:1", "unknown field `denny`"),
        ("[access]\ndeny = [\"{read\"]\n", "config.toml:2:9", "access.deny[0]"),
        ("[[confirm.rules]]\nwhen = \"input.\"\nthen = \"refuse\"\n", "rule 1", "input."),
        ("[http]\nuser_agent = \"a\\nb\"\n", "http.user_agent", "not a valid header"),
    ] {
        world.configure(broken);
        assert_refused(&world.run(&["run", "change", "text=x"]), "unknown-subtool");
        let ran = world.run(&["run", "read", "--wait"]);
        assert_eq!((ran.exit, &ran.json()["data"]), (0, &json!("read")), "{ran}");
        let status = world.run(&["executor", "status"]);
        let problem = status.json()["config"]["problem"]["message"].as_str().expect("a problem").to_owned();
        let doctor = checks(&world);
        let live = doctor["live"]["message"].as_str().expect("a message").to_owned();
        assert!(doctor["live"]["ok"] == false && world.run(&["doctor"]).exit == 1, "{doctor:?}");
        let reload = world.run(&["executor", "reload"]);
        assert_refused(&reload, "bad-config");
        for text in [&ran.stderr, &problem, &status.stderr, &live, &reload.stderr] {
            assert!(text.contains(place) && text.contains(says), "{broken}: {text}");
        }
        let log = fs::read_to_string(world.log()).expect("a log");
        assert!(log.contains("the last good one stays in force"), "{log}");
    }
    world.configure("[access]\ndeny = []\n");
    let ran = world.run(&["run", "change", "text=y", "--wait"]);
    assert_eq!((ran.exit, ran.stderr.as_str()), (0, ""), "{ran}");
    assert!(world.run(&["executor", "status"]).json()["config"]["problem"].is_null());
    assert_eq!(checks(&world)["live"]["ok"], true);
}

#[test]
fn a_cold_start_with_a_broken_file_names_the_file_and_the_line() {
    let world = World::new();
    world.define("all.json", &definitions());
    world.configure("[confirm]\nwrites = \"refuse\"\n[executor]\nconcurency = 3\n");
    for arguments in [&["run", "read"][..], &["executor", "start"], &["executor", "reload"]] {
        let ran = world.run(arguments);
        assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("bad-config")), "{ran}");
        assert!(ran.stderr.contains("config.toml:4:1") && ran.stderr.contains("concurency"), "{ran}");
        assert!(ran.error()["hint"].as_str().expect("a hint").contains("agent-magic-tool doctor"), "{ran}");
    }
    world.configure("[[confirm.rules]]\nwhen = \"input.\"\nthen = \"ask\"\n");
    let ran = world.run(&["run", "read"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("bad-config")), "{ran}");
    assert!(ran.stderr.contains("rule 1"), "{ran}");
    world.configure("");
    assert_eq!(world.run(&["run", "read", "--wait"]).exit, 0);
}

#[test]
fn what_is_queued_is_judged_by_the_new_rules_before_it_starts() {
    let (world, _) = world("[executor]\nconcurrency = 1\n");
    let slow = world.start("slow", &json!({}));
    let queued = |text: &str| world.start("change", &json!({"text": text}));
    let (refused, asked, kept) = (queued("refused"), queued("asked"), queued("kept"));
    let at = world.run(&["run", "change", "text=refused", "--in=1h"]);
    assert_eq!(at.exit, 0, "{at}");
    let scheduled = at.json()["id"].as_str().expect("an id").to_owned();
    world.configure(
        "[executor]\nconcurrency = 1\n\
         [[confirm.rules]]\nwhen = \"input.text == 'refused'\"\nthen = \"refuse\"\nbecause = \"not any more\"\n\
         [[confirm.rules]]\nwhen = \"input.text == 'asked'\"\nthen = \"ask\"\n",
    );
    for id in [&refused, &scheduled] {
        // `wait` does not wait for what starts in an hour, and the files are made final one after the other.
        world.end_of(id);
        let ended = world.run(&["wait", id]);
        let error = &ended.json()["error"];
        assert_eq!((ended.exit, &error["code"]), (5, &json!("refused-by-policy")), "{ended}");
        assert!(error["message"].as_str().expect("a message").contains("not any more"), "{ended}");
    }
    let_slow_end(&world);
    world.run(&["wait", &slow, &kept]);
    assert_eq!(world.result_file(&asked)["state"], "awaiting_confirmation");
    assert_eq!(effects(&world), ["kept"]);
    world.decide(&asked, "approve", "");
    assert_eq!(world.end_of(&asked)["status"], "succeeded");
    assert_eq!(effects(&world), ["kept", "asked"]);
}

#[test]
fn the_next_executor_judges_what_it_takes_over_by_the_present_rules() {
    let (world, _) = world("[executor]\nconcurrency = 1\n");
    world.start("slow", &json!({}));
    let (refused, denied) = (world.start("change", &json!({"text": "a"})), world.start("read", &json!({"text": "b"})));
    world.kill_executor();
    world.configure("[access]\ndeny = [\"read\"]\n[[confirm.rules]]\ntools = [\"change\"]\nthen = \"refuse\"\n");
    let_slow_end(&world);
    for id in [refused, denied] {
        let ended = world.run(&["wait", &id]);
        assert_eq!((ended.exit, &ended.json()["error"]["code"]), (5, &json!("refused-by-policy")), "{ended}");
    }
    assert_eq!(effects(&world), [] as [String; 0]);
}

#[test]
fn reload_names_what_changed_and_what_waits_for_a_restart() {
    let (world, pid) = world("");
    world.configure("[confirm]\nwrites = \"refuse\"\n[page]\nenabled = false\n[executor]\nconcurrency = 3\n");
    let reload = world.run(&["executor", "reload"]);
    let (expected, waits) =
        (json!(["confirm.writes", "executor.concurrency", "page.enabled"]), json!(["page.enabled"]));
    assert_eq!((&reload.json()["changed"], &reload.json()["needs_restart"]), (&expected, &waits), "{reload}");
    let status = world.run(&["executor", "status"]);
    for text in [&reload.stderr, &status.stderr, &checks(&world)["live"].to_string()] {
        assert!(text.contains("page.enabled") && text.contains("agent-magic-tool executor stop"), "{text}");
    }
    world.configure("[confirm]\nwrites = \"refuse\"\n[executor]\nconcurrency = 3\n");
    let reload = world.run(&["executor", "reload"]);
    assert_eq!(reload.json()["needs_restart"], json!([]), "{reload}");
    assert_eq!(world.executor(), Some(pid));
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    let reload = world.run(&["executor", "reload"]);
    assert_eq!((reload.exit, &reload.json()["running"]), (0, &json!(false)), "{reload}");
}

/// Two homes of one user have one mailbox, and so one executor: that of the home that was first.
#[test]
fn a_configuration_that_another_executor_does_not_use_is_told() {
    let (world, _) = world("");
    assert!(world.run(&["doctor"]).exit == 0 && world.run(&["executor", "status"]).stderr.is_empty());
    let other = world.home().join("other");
    fs::create_dir_all(other.join("agent-magic-tool")).expect("made");
    fs::write(other.join("agent-magic-tool/config.toml"), "[confirm]\nwrites = \"refuse\"\n").expect("written");
    for arguments in [&["doctor"][..], &["executor", "status"]] {
        let mut command = world.command(arguments);
        command.env("XDG_CONFIG_HOME", &other);
        let ran = world.transcript(&command.output().expect("the program starts"));
        let told = format!("{}{}", ran.stdout, ran.stderr);
        assert!(told.contains("the executor of this mailbox uses the configuration"), "{ran}");
        assert!(arguments[0] != "doctor" || ran.exit == 1 && told.contains("AGENT_MAGIC_TOOL_DIR"), "{ran}");
    }
}

#[test]
fn a_broken_file_does_not_keep_the_executor_from_stopping() {
    let (world, _) = world("");
    world.configure("[");
    let stopped = world.run(&["executor", "stop"]);
    assert_eq!((stopped.exit, &stopped.json()["stopped"]), (0, &json!(true)), "{stopped}");
}

/// The two configurations of the storm. Each refuses one kind of call, and only as a whole: half of one would let both
/// run.
fn storm_config(refused: &str, number: usize) -> String {
    let other = if refused == "a" { "b" } else { "a" };
    format!(
        "# {number} {padding}\n[[confirm.rules]]\nwhen = \"input.text == '{refused}'\"\nthen = \"refuse\"\nbecause = \"{refused}\"\n\
         [[confirm.rules]]\nwhen = \"input.text == '{other}'\"\nthen = \"allow\"\n",
        padding = "x".repeat(number * 7 % 400)
    )
}

#[test]
fn a_storm_of_edits_loses_no_task_and_judges_each_by_one_whole_configuration() {
    let (world, pid) = world(&storm_config("a", 0));
    let (config, done) = (world.config_folder(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let editing = scope.spawn(|| {
            for number in 1..=200 {
                let text = storm_config(if number % 2 == 0 { "a" } else { "b" }, number);
                if number % 3 == 0 {
                    fs::write(config.join("config.toml"), text).expect("written in place");
                } else {
                    replace_config(&config, &text);
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for number in 0..25 {
                        let text = if number % 2 == 0 { "a" } else { "b" };
                        let ran = world.run(&["run", "change", &format!("text={text}"), "--wait"]);
                        let ended = if ran.stdout.is_empty() { ran.error() } else { ran.json()["error"].clone() };
                        let because = ended["message"].as_str().unwrap_or_default();
                        let is_whole = match ran.exit {
                            0 => true,
                            5 => ended["code"] == "refused-by-policy" && because.ends_with(&format!(": {text}")),
                            _ => false,
                        };
                        assert!(is_whole, "{ran}");
                    }
                })
            })
            .collect();
        editing.join().expect("edited");
        for caller in callers {
            caller.join().expect("all its calls were judged");
        }
    });
    let last = world.run(&["run", "change", "text=a"]);
    assert_refused(&last, "refused-by-policy");
    assert_eq!(world.run(&["run", "change", "text=b", "--wait"]).exit, 0);
    let open = world.run(&["executor", "status"]).json();
    assert_eq!((open["tasks"].clone(), open["pid"].as_i64()), (json!({}), Some(i64::from(pid.as_raw()))));
    assert!(open["config"]["problem"].is_null(), "{open}");
}

#[test]
fn a_kill_at_any_step_of_a_reload_leaves_the_new_rules_in_force() {
    for point in ["reload.read", "reload.applied", "commit.before", "commit.inside", "commit.after"] {
        let world = World::new();
        world.define("all.json", &definitions());
        world.configure("[executor]\nconcurrency = 1\n");
        let slow = world.start("slow", &json!({}));
        let queued = world.start("change", &json!({"text": "queued"}));
        world.kill_executor();
        // The next executor recovers with one commit, and passes the point during the reload or right after it.
        let mut executor = world
            .command(&["executor", "run"])
            .env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:{}", if point.starts_with("reload") { 1 } else { 2 }))
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("started");
        until("the executor took over", || world.run(&["executor", "status"]).exit == 0);
        replace_config(&world.config_folder(), "[[confirm.rules]]\ntools = [\"change\"]\nthen = \"refuse\"\n");
        let_slow_end(&world);
        until("the point was passed", || {
            drop(world.run(&["run", "read"]));
            executor.try_wait().expect("a child").is_some()
        });
        for id in [&queued, &slow] {
            world.run(&["wait", id]);
        }
        let result = world.result_file(&queued);
        assert_eq!(result["error"]["code"], "refused-by-policy", "{point}: {result}");
        assert_eq!(effects(&world), [] as [String; 0], "{point}");
    }
}

/// A file that says nothing any more forbids as little as none.
#[test]
fn a_configuration_that_is_emptied_is_no_permission() {
    let world = World::new();
    world.define(
        "own.json",
        &json!({"pay": {"description": "Pays.", "input": {"type": "object"}, "confirm": "never",
            "run": {"process": {"argv": ["true"]}}}}),
    );
    let refused = |when: &str| {
        let ran = world.run(&["run", "pay"]);
        assert_eq!((ran.exit, &ran.error()["code"]), (5, &json!("refused-by-policy")), "{when}: {ran}");
    };
    let problem = || world.run(&["executor", "status"]).json()["config"]["problem"]["message"].clone();
    for rules in [
        "[[confirm.rules]]\ntools = [\"pay\"]\nthen = \"refuse\"\n",
        "[confirm]\nrules = [{ tools = [\"p*\"], then = \"refuse\" }]\n",
    ] {
        for blank in ["", "\n# nothing\n", "[confirm]\n"] {
            world.configure(rules);
            until("the rules are in force", || problem().is_null());
            refused("in force");
            world.configure(blank);
            until("the executor says that it is empty", || {
                problem().as_str().is_some_and(|message| message.contains("is empty: it had rules before"))
            });
            refused("the last good one");
            let reloaded = world.run(&["executor", "reload"]);
            assert_eq!((reloaded.exit, &reloaded.error()["code"]), (2, &json!("bad-config")), "{reloaded}");
            let hint = reloaded.error()["hint"].as_str().unwrap_or_default().to_owned();
            assert!(hint.contains("--without-configuration") && hint.contains("rules = []"), "{reloaded}");
        }
    }
    // Nor by the next executor, until a human says so.
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    for words in [&["executor", "start"][..], &["run", "pay"], &["list"], &["executor", "reload"]] {
        let ran = world.run(words);
        assert_eq!(ran.error()["code"], "bad-config", "{ran}");
    }
    assert_eq!(world.run(&["executor", "start", "--without-configuration"]).exit, 0);
    assert_eq!(world.run(&["run", "pay"]).exit, 0);
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert_eq!(world.run(&["run", "pay"]).exit, 0, "the word is remembered");
    // What says that there are no rules is no mistake, and neither is to empty what forbade nothing.
    world.configure("[[confirm.rules]]\ntools = [\"pay\"]\nthen = \"refuse\"\n");
    until("the rules are in force", || world.run(&["run", "pay"]).exit == 5);
    for harmless in ["[confirm]\nrules = []\n", "[page]\nidle = \"9m\"\n", ""] {
        world.configure(harmless);
        until("it is in force", || world.run(&["run", "pay"]).exit == 0 && problem().is_null());
    }
}

/// What a configuration forbids does not become allowed because the file is gone: not while the executor runs, and not by a
/// new one, unless a human says so.
#[test]
fn a_configuration_that_disappears_is_no_permission() {
    let world = World::new();
    world.define(
        "own.json",
        &json!({"pay": {"description": "Pays.", "input": {"type": "object"}, "confirm": "never",
            "run": {"process": {"argv": ["true"]}}}}),
    );
    let rules = "[[confirm.rules]]\ntools = [\"pay\"]\nthen = \"refuse\"\n";
    let refused = |when: &str| {
        let ran = world.run(&["run", "pay"]);
        assert_eq!((ran.exit, &ran.error()["code"]), (5, &json!("refused-by-policy")), "{when}: {ran}");
    };
    world.configure(rules);
    refused("in force");
    let file = world.config_folder().join("config.toml");
    fs::remove_file(&file).expect("removed");
    until("the executor says that it is gone", || {
        let problem = world.run(&["executor", "status"]).json()["config"]["problem"]["message"].clone();
        problem.as_str().is_some_and(|message| message.contains("is gone"))
    });
    refused("the last good one");
    // It comes back, and is in force as any other.
    world.configure(rules);
    until("it is back", || world.run(&["executor", "status"]).json()["config"]["problem"].is_null());
    fs::remove_file(&file).expect("removed");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    for words in [&["executor", "start"][..], &["run", "pay"], &["list"]] {
        let ran = world.run(words);
        assert_eq!(ran.error()["code"], "bad-config", "{ran}");
        let hint = ran.error()["hint"].as_str().unwrap_or_default().to_owned();
        assert!(hint.contains("--without-configuration"), "{ran}");
    }
    world.configure(rules);
    let wrong = world.run(&["executor", "start", "--without-configuration"]);
    assert_eq!(wrong.error()["code"], "usage", "{wrong}");
    refused("by the next executor");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    fs::remove_file(&file).expect("removed");
    let started = world.run(&["executor", "start", "--without-configuration"]);
    assert_eq!(started.exit, 0, "{started}");
    assert_eq!(world.run(&["run", "pay"]).exit, 0);
    // The word is remembered, until there is a configuration again.
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert_eq!(world.run(&["run", "pay"]).exit, 0);
}

/// Rules do not vanish by the environment of the command that happens to start the executor.
#[test]
fn an_executor_does_not_start_with_another_configuration_than_the_last_one() {
    let world = World::new();
    world.define(
        "own.json",
        &json!({"pay": {"description": "Pays.", "input": {"type": "object"}, "confirm": "never",
            "run": {"process": {"argv": ["true"]}}}}),
    );
    world.configure("[[confirm.rules]]\ntools = [\"pay\"]\nthen = \"refuse\"\n");
    let refused = |ran: &Transcript| assert_eq!(ran.error()["code"], "refused-by-policy", "{ran}");
    refused(&world.run(&["run", "pay"]));
    let fake = world.home().join("fake");
    fs::create_dir_all(fake.join(".config/agent-magic-tool")).expect("made");
    fs::write(fake.join(".config/agent-magic-tool/config.toml"), "[confirm]\nwrites = \"allow\"\n").expect("written");
    let nowhere = world.home().join("nowhere");
    let elsewhere = |variable: &str, folder: &Path, words: &[&str]| {
        let mut command = world.command(words);
        command.env("AGENT_MAGIC_TOOL_SUBTOOLS", world.subtools()).env(variable, folder);
        world.transcript(&command.output().expect("it starts"))
    };
    let others = [("XDG_CONFIG_HOME", &nowhere), ("HOME", &fake)];
    for (variable, folder) in others {
        // The executor that runs keeps its rules, and says which ones.
        let ran = elsewhere(variable, folder, &["run", "pay"]);
        refused(&ran);
        assert!(ran.stderr.contains("the executor of this mailbox uses the configuration"), "{ran}");
    }
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    for (variable, folder) in others {
        for words in [&["run", "pay"][..], &["executor", "start"]] {
            let ran = elsewhere(variable, folder, words);
            assert_eq!((ran.exit, &ran.error()["code"]), (2, &json!("bad-config")), "{variable}: {ran}");
            let hint = ran.error()["hint"].as_str().unwrap_or_default().to_owned();
            assert!(hint.contains("executor start --with-this-configuration"), "{ran}");
        }
        assert!(world.executor().is_none());
    }
    // A link to the same file is no other one.
    let linked = world.home().join("linked");
    std::os::unix::fs::symlink(world.home().join(".config"), &linked).expect("linked");
    refused(&elsewhere("XDG_CONFIG_HOME", &linked, &["run", "pay"]));
    // A human's word changes it, once no executor runs.
    let this_one = ["executor", "start", "--with-this-configuration"];
    let early = elsewhere("HOME", &fake, &this_one);
    assert_eq!(early.error()["code"], "usage", "{early}");
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    assert_eq!(elsewhere("HOME", &fake, &this_one).exit, 0);
    let paid = elsewhere("HOME", &fake, &["run", "pay", "--wait"]);
    assert_eq!((paid.exit, paid.stderr.contains("uses the configuration")), (0, false), "{paid}");
    assert!(world.run(&["run", "pay"]).stderr.contains("uses the configuration"));
    assert_eq!(world.run(&["executor", "stop"]).exit, 0);
    // The home with the rules is the other one now.
    assert_eq!(world.run(&["run", "pay"]).error()["code"], "bad-config");
    assert_eq!(world.run(&this_one).exit, 0);
    refused(&world.run(&["run", "pay"]));
}
