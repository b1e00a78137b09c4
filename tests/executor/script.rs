//! Scripts: programs that call subtools. They go on after a crash where they were, and call nothing twice.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::{Transcript, World, until, wait_for_end};

mod killed;
mod saved;

/// A script with calls one after another and side by side, one of which fails.
const MANY_CALLS: &str = "
const first = await put({n: 0});
const many = await Promise.all([1, 2, 3, 4, 5, 6].map(n => put({n})));
let refused;
try { await fail({}) } catch (error) { refused = error.code }
const more = [];
for (let n = 7; n < 10; n++) more.push(await put({n, after: more.length}));
console.log('random', Math.random() < 2);
return {first, many, refused, more};
";
/// How many calls [`MANY_CALLS`] makes.
const CALLS: u32 = 11;

/// A world with subtools that say which tasks called them.
fn world() -> World {
    let world = World::new();
    let number = json!({"type": "integer"});
    world.define(
        "own.json",
        &json!({
            "put": {
                "description": "Notes that it was called, and by which task.",
                "input": {"type": "object", "properties": {"n": number, "after": number}, "required": ["n"]},
                "annotations": {"destructiveHint": false, "idempotentHint": true}, "confirm": "never", "retries": {"times": 5, "backoff": "10ms"},
                "run": {"process": {"argv": ["sh", "-c", "echo \"$0 $1\" >>called; printf 'put %s' \"$0\"", "{{ n }}", "{{ task.id }}"]}}
            },
            "once": {
                "description": "Does something that must not happen twice.",
                "input": {"type": "object", "properties": {"n": number}},
                "confirm": "never",
                "run": {"process": {"argv": ["sh", "-c", "echo \"$0\" >>happened; sleep 60; printf done", "{{ n }}"]}}
            },
            "ask-first": {
                "description": "Does something that a human must approve.",
                "input": {"type": "object", "properties": {"n": number}},
                "confirm": "always",
                "run": {"process": {"argv": ["sh", "-c", "echo \"$0\" >>approved; printf 'approved %s' \"$0\"", "{{ n }}"]}}
            },
            "fail": {
                "description": "Fails.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "echo broken >&2; exit 3"]}}
            },
            "wait_for": {
                "description": "Waits until a file is there.",
                "input": {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
                "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "echo $$ >started-$0; while [ ! -e $0 ]; do sleep 0.05; done; echo came", "{{ file }}"]}}
            },
            "large": {
                "description": "Returns many rows.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "printf '['; for i in $(seq 1 5000); do printf '{\"number\":%d,\"text\":\"row\"},' $i; done; printf '{\"number\":0}]'"], "output": "json"}}
            }
        }),
    );
    world
}

fn script(world: &World, source: &str) -> Transcript {
    world.run_with(&["script", "--wait=60s"], source)
}

/// Starts a script and returns its id.
fn start(world: &World, source: &str) -> String {
    world.run_with(&["script"], source).json()["id"].as_str().expect("an id").to_owned()
}

/// The tasks that made each call of `put`.
fn called(world: &World) -> BTreeMap<String, Vec<String>> {
    let mut called = BTreeMap::<String, Vec<String>>::new();
    for line in fs::read_to_string(world.folder().join("called")).unwrap_or_default().lines() {
        let (number, task) = line.split_once(' ').expect("a number and a task");
        let tasks = called.entry(number.to_owned()).or_default();
        if !tasks.iter().any(|known| known == task) {
            tasks.push(task.to_owned());
        }
    }
    called
}

fn expected() -> Value {
    json!({"first": "put 0", "many": ["put 1", "put 2", "put 3", "put 4", "put 5", "put 6"], "refused": "process-failed",
        "more": ["put 7", "put 8", "put 9"]})
}

#[test]
fn a_script_is_one_task_with_one_result() {
    let world = world();
    let ended = script(&world, MANY_CALLS);
    assert_eq!((ended.exit, &ended.json()["data"]), (0, &expected()), "{ended}");
    assert_eq!(ended.json()["notes"], json!(["random true"]), "{ended}");
    assert!(
        called(&world).len() == 10 && called(&world).values().all(|tasks| tasks.len() == 1),
        "{:?}",
        called(&world)
    );
    let file = world.result_file(ended.json()["id"].as_str().expect("an id"));
    let about = &file["_meta"]["script"];
    assert_eq!((&about["calls"], about["tasks"].as_array().map(Vec::len)), (&json!(CALLS), Some(11)), "{file:#}");
    assert_eq!(about["tasks"][7]["code"], "process-failed", "{file:#}");
    // Only what is returned is read, however much was.
    let ended = script(
        &world,
        "const rows = await large({}); return rows.filter(row => row.number > 4998).map(row => row.number)",
    );
    assert_eq!(ended.json()["data"], json!([4999, 5000]), "{ended}");
    // A file, an input, and a selection of the result.
    fs::write(world.folder().join("double.js"), "return input.numbers.map(number => number * 2)").expect("written");
    let line = ["script", "double.js", "--input={\"numbers\":[1,2]}", "--wait", "--jq=.[1]"];
    assert_eq!(world.run(&line).json(), json!(4));
    let planned = world.run_with(&["script", "--dry-run"], "return await put({n: 1})").json();
    assert_eq!(planned["would_send"]["script"]["source"], "return await put({n: 1})", "{planned:#}");
    // What it does not await any more does not hold it up.
    let ended = script(&world, "return await Promise.race([put({n: 1}), sleep(3600000).then(() => 'too late')])");
    assert_eq!(ended.json()["data"], "put 1", "{ended}");
}

#[test]
fn what_is_wrong_names_the_line_and_what_to_write() {
    let world = world();
    let told = |source: &str| {
        let ended = script(&world, source);
        let text = |field: &str| ended.json()["error"][field].as_str().map(str::to_owned);
        let hint = text("hint").map(|hint| format!("\n    {hint}")).unwrap_or_default();
        let [code, message] = ["code", "message"].map(|field| text(field).unwrap_or_default());
        format!("{} {code}: {message}{hint}\n", ended.exit)
    };
    let sources = [
        "const a = 1;\nreturn a +* 2;",
        "const a = await put({n: 1});\nreturn a.b.c;",
        "return await putt({n: 1})",
        "return await put('1')",
        "\nreturn await put({number: 1})",
        "\n\nawait fail({})",
        "await new Promise(() => {})",
        "return fetch('https://example.com')",
        "for (;;) {}",
    ];
    let told: String = sources.map(told).concat();
    assert_snapshot!(told, @r#"
    1 script-failed: line 2: unexpected token in expression: '*'
    1 script-failed: line 2: TypeError: cannot read property 'c' of undefined
        the value is not there: perhaps an `await` is missing, or the result has other fields; note it with console.log(value)
    1 script-failed: line 1: ReferenceError: putt is not defined
        no variable and no subtool is called `putt`; list_tools("what it should do") finds subtools
    1 script-failed: line 1: TypeError: put takes one object, not a string; write put({ name: value })
    1 invalid-input: line 2: the input of `put` is wrong at `/n`: `n` is required
        fix the fields in `problems`; the schema: agent-magic-tool list tools put
    1 process-failed: line 3: `fail` failed: `sh` ended with status 3: broken
    1 script-failed: the script waits, but no call is open and nothing else can happen
        a promise that it awaits is never settled; see that each `new Promise` calls resolve or reject
    1 script-failed: line 1: fetch is not available in a script; call a subtool instead: list_tools("what it should do") finds one
    1 script-failed: line 1: the script computed for too long without waiting for a call (`compute_ms`); perhaps a loop or a regular expression never ends
        check the condition of each loop, and work on less data at once
    "#);
}

#[test]
fn an_executor_that_is_killed_at_any_place_calls_nothing_twice_and_loses_nothing() {
    let points = [("script.issuing", 4), ("script.issued", 4), ("script.ended", 8), ("script.settled", 8)];
    let others = [("commit.after", 6), ("attempt.finished", 4), ("result.renamed", 5)];
    std::thread::scope(|scope| {
        for (point, passes) in points.into_iter().chain(others) {
            scope.spawn(move || {
                for nth in 1..=passes {
                    let world = world();
                    let mut executor = world.command(&["executor", "run"]);
                    executor.env("AGENT_MAGIC_TOOL_FAULT", format!("{point}:kill:{nth}"));
                    let mut executor = executor.stderr(Stdio::null()).spawn().expect("started");
                    until("an executor runs", || world.executor().is_some());
                    let id = start(&world, MANY_CALLS);
                    assert_eq!(wait_for_end(&mut executor).signal(), Some(9), "{point} was passed {nth} times");
                    let ended = world.run(&["wait", &id, "--timeout=60s"]);
                    assert_eq!(ended.json()["data"], expected(), "killed at {point}, {nth}: {ended}");
                    let called = called(&world);
                    assert!(
                        called.len() == 10 && called.values().all(|tasks| tasks.len() == 1),
                        "killed at {point}, {nth}: {called:?}"
                    );
                }
            });
        }
    });
}

#[test]
fn what_may_have_happened_is_not_repeated_and_the_script_hears_of_it() {
    let world = world();
    let id = start(
        &world,
        "try { await once({n: 1}) } catch (error) { return [error.code, error instanceof OutcomeUnknown] }",
    );
    until("it happened", || world.folder().join("happened").exists());
    world.kill_executor();
    let ended = world.run(&["wait", &id, "--timeout=60s"]);
    assert_eq!(ended.json()["data"], json!(["unknown-outcome", true]), "{ended}");
    assert_eq!(fs::read_to_string(world.folder().join("happened")).expect("it happened"), "1\n");
    // One that does not deal with it is in doubt itself.
    let id = start(&world, "await once({n: 2})");
    until("it happened", || fs::read_to_string(world.folder().join("happened")).is_ok_and(|text| text.contains('2')));
    world.kill_executor();
    let ended = world.run(&["wait", &id, "--timeout=60s"]);
    assert_eq!(ended.json()["error"]["code"], "unknown-outcome", "{ended}");
}

#[test]
fn a_script_waits_for_a_human_over_a_restart_and_hears_a_refusal() {
    let world = world();
    let id = start(
        &world,
        "const before = await put({n: 1});
         try { await ask_first({n: 2}) } catch (error) { return [before, error.code, error instanceof Denied] }",
    );
    let waiting = || {
        let tasks = world.run(&["tasks", "--state=awaiting_confirmation"]).json();
        tasks.as_array().expect("a list").first().map(|task| task["id"].as_str().expect("an id").to_owned())
    };
    until("its call waits for a human", || waiting().is_some());
    until("the script says so", || {
        world.result_file(&id)["message"].as_str().is_some_and(|message| message.contains("`ask-first`"))
    });
    world.kill_executor();
    world.run(&["executor", "start"]);
    until("the script is under way again", || world.result_file(&id)["state"] == "running");
    let call = waiting().expect("it still waits");
    world.run(&["cancel", &call]);
    until("the script has ended", || world.result_file(&id)["status"] != "pending");
    assert_eq!(world.result_file(&id)["data"], json!(["put 1", "cancelled", false]));
    assert_eq!(called(&world)["1"].len(), 1);
}

/// Defines a subtool that a human must approve.
fn define_asks(world: &World, description: &str) {
    let run = json!({"process": {"argv": ["sh", "-c", format!("printf 'approved: {description}'")]}});
    let asks = json!({"description": description, "input": {"type": "object"}, "confirm": "always", "run": run});
    world.define("asks.json", &json!({"asks": asks}));
}

/// What happens while a script waits for a human: its name, the change, and what the script hears.
type Meanwhile = (&'static str, fn(&World), &'static str);

#[test]
fn a_script_that_waits_hears_what_the_rules_in_force_make_of_its_call() {
    let cases: [Meanwhile; 5] = [
        ("nothing", |_| {}, "approved"),
        ("it is restarted", |world| assert!(world.kill_executor().is_some() || world.executor().is_none()), "approved"),
        (
            "it is refused",
            |world| world.configure("[[confirm.rules]]\ntools = [\"asks\"]\nthen = \"refuse\""),
            "refused-by-policy",
        ),
        ("it is another one", |world| define_asks(world, "Another one."), "drifted"),
        ("it is too late", |world| world.configure("[confirm]\nwait = \"1s\""), "expired"),
    ];
    for (case, change, heard) in cases {
        for stops in [false, true] {
            let world = world();
            define_asks(&world, "Asks first.");
            if heard == "expired" {
                change(&world);
            }
            let source = "try { return await asks({n: 1}) } catch (e) { return e.code }";
            let id = start(&world, source);
            let mut call = Value::Null;
            until("its call waits", || {
                call = world.run(&["tasks", "--state=awaiting_confirmation"]).json()[0]["id"].clone();
                !call.is_null() || world.result_file(&id)["status"] != "pending"
            });
            if stops {
                world.kill_executor();
            }
            if heard != "expired" {
                change(&world);
            }
            if heard == "approved" {
                world.decide(call.as_str().expect("an id"), "approve", "asks");
            }
            // A change of a definition is seen with the next request.
            world.run(&["run", "put", "n=1"]);
            until("it has ended", || world.result_file(&id)["status"] != "pending");
            let ended = world.result_file(&id);
            let told = ended["data"].as_str().unwrap_or_default().to_owned();
            assert!(told.starts_with(heard), "{case}, stopped: {stops}: {ended:#}");
        }
    }
}

#[test]
fn a_script_that_must_not_wait_for_a_human_hears_so_from_its_calls() {
    let world = world();
    let source = "try { await tools['ask-first']({n: 1}) } catch (e) { return [e.code, e instanceof Denied] }";
    let ended = world.run_with(&["script", "--wait", "--if-no-approver=fail"], source);
    assert_eq!(ended.json()["data"], json!(["no-approver", true]), "{ended}");
    let steps = json!({"both": {
        "description": "Asks first.", "input": {}, "confirm": "never", "run": {"steps": [{"name": "asked", "subtool": "ask-first", "input": {"n": 1}}]}
    }});
    world.define("steps.json", &steps);
    let ended = world.run(&["run", "both", "--wait", "--if-no-approver=fail"]);
    assert_eq!(ended.json()["error"]["code"], "no-approver", "{ended}");
}

#[test]
fn to_cancel_a_script_cancels_what_it_called() {
    let world = world();
    let id = start(&world, "await Promise.all([wait_for({file: 'never'}), ask_first({n: 1}), sleep(100000)])");
    until("its call runs", || world.folder().join("started-never").exists());
    let ended = world.run(&["cancel", &id]);
    until("nothing is open", || world.run(&["tasks", "--state=pending"]).json() == json!([]));
    assert_eq!(world.result_file(&id)["status"], "cancelled", "{ended}");
}

#[test]
fn a_script_may_call_what_its_caller_may() {
    let world = world();
    world.configure("[[confirm.rules]]\ntools = [\"fail\"]\nthen = \"refuse\"\nbecause = \"not today\"\n");
    let ended = script(&world, "try { await fail({}) } catch (error) { return [error.code, error instanceof Denied] }");
    assert_eq!(ended.json()["data"], json!(["refused-by-policy", true]), "{ended}");
    // The question of tasks that run is not one of its subtools.
    let ended = script(&world, "return await tools.human_question({question: 'Why?'})");
    assert_eq!(ended.json()["error"]["code"], "unknown-subtool", "{ended}");
    // A scope narrows it, also for names that the text only builds.
    let scoped = |source: &str| {
        fs::write(world.folder().join("script.js"), source).expect("written");
        let mut command = world.command(&["script", "script.js", "--wait=60s"]);
        command.env("AGENT_MAGIC_TOOL_SCOPE", json!([["run_script", "put"]]).to_string());
        world.transcript(&command.output().expect("it starts"))
    };
    assert_eq!(scoped("return await put({n: 1})").json()["data"], "put 1");
    let ended = scoped("return await fail({})");
    assert_eq!(ended.json()["error"]["code"], "script-failed", "{ended}");
}

#[test]
fn a_record_that_was_changed_ends_the_script() {
    let world = world();
    let id = start(&world, "const a = await put({n: 1}); await wait_for({file: 'go'}); return a");
    until("it is under way", || world.folder().join("started-go").exists());
    world.kill_executor();
    let record = world.state().join("scripts").join(format!("{id}.jsonl"));
    let text = fs::read_to_string(&record).expect("a record");
    fs::write(&record, text.replace("put 1", "put 7")).expect("written");
    let ended = world.run(&["wait", &id, "--timeout=60s"]);
    assert_eq!(ended.json()["error"]["code"], "script-diverged", "{ended}");
    fs::write(world.folder().join("go"), "").expect("written");
    // Its record is forgotten with it.
    world.run(&["tasks", "--forget"]);
}
