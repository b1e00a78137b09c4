//! Poison: what a definition or an input computes ends its own task, and nothing else.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Map, Value, json};

use crate::world::{World, is_alive, until, wait_for_end};

/// Expressions that never end, or need more memory than there is.
const RUNAWAY: [&str; 4] =
    ["def f: f; f", "[repeat(1)]", "def f: 1 + f; f", "[limit(50; repeat(.)) as $x | range(1e12)] | length"];

/// A read-only subtool whose data is `{"a": 1}`, from which `select` is taken.
fn selecting(select: &str) -> Value {
    json!({"description": "Selects.", "input": {}, "annotations": {"readOnlyHint": true}, "result": {"select": select},
        "run": {"process": {"argv": ["printf", "{\"a\": 1}"], "output": "json"}}})
}

/// Asserts that the executor of `world` answers, and returns how long that took.
fn status(world: &World) -> Duration {
    let asked = Instant::now();
    let status = world.run(&["executor", "status"]);
    assert_eq!(status.exit, 0, "{status}");
    asked.elapsed()
}

#[test]
fn a_runaway_expression_ends_its_own_task_and_nothing_else() {
    let world = World::new();
    let mut tools = Map::new();
    for (number, select) in RUNAWAY.iter().enumerate() {
        tools.insert(format!("runaway_{number}"), selecting(select));
    }
    tools.insert("path".to_owned(), selecting(".a"));
    tools.insert("filter".to_owned(), selecting("[.a, .a + 1]"));
    world.define("tools.json", &Value::Object(tools));
    // Twice as many as the runtime has threads.
    let poisoned: Vec<_> =
        (0..RUNAWAY.len()).map(|number| world.start(&format!("runaway_{number}"), &json!({}))).collect();
    let good = [world.start("path", &json!({})), world.start("filter", &json!({}))];
    status(&world);
    for id in &poisoned {
        let ended = world.run(&["wait", id]).json();
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("select-failed")), "{ended}");
        let message = ended["error"]["message"].as_str().expect("a message");
        assert!(message.contains("it was stopped"), "{message}");
    }
    let data = good.map(|id| world.run(&["wait", &id]).json()["data"].take());
    assert_eq!(data, [json!(1), json!([1, 2])]);
}

/// Definitions whose templates or schemas would take gigabytes or hours if they were evaluated.
fn bombs() -> Map<String, Value> {
    let doubled = "{% set a = who ~ who %}".to_owned() + &"{% set a = a ~ a %}".repeat(40) + "{{ a }}";
    let tripled = "{{ who".to_owned() + &"|replace('a', 'aaa')|b64url".repeat(40) + " }}";
    let texts = [
        doubled.as_str(),
        &tripled,
        "{{ who * 100000000 }}",
        "{{ [who] * 100000000 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ who }}{% endfor %}{% endfor %}",
        "{% set x %}{{ who }}{{ who }}{% endset %}{{ x }}",
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{{ m(m(m(m(who)))) }}",
    ];
    let conditions = [
        "range(99999)|map('string')|join('x')|replace('1', 'aaaaaaaaaa')|length > 3",
        "(input.who * 100000000)|length > 3",
    ];
    let input = json!({"type": "object", "properties": {"who": {"type": "string", "default": "a"}}});
    let tool = |run: &Value| json!({"description": "Grows.", "input": input, "annotations": {"readOnlyHint": true}, "run": run});
    let mut tools = Map::new();
    for (number, text) in texts.iter().enumerate() {
        tools.insert(format!("word_{number}"), tool(&json!({"process": {"argv": ["echo", text]}})));
        let http =
            json!({"http": {"method": "GET", "base_url": "http://127.0.0.1:1", "path": "/", "query": {"q": text}}});
        tools.insert(format!("query_{number}"), tool(&http));
        let mut requires = tool(&json!({"process": {"argv": ["true"]}}));
        requires["requires"] = json!([text]);
        tools.insert(format!("requires_{number}"), requires);
    }
    for (number, condition) in conditions.iter().enumerate() {
        let mut asks = tool(&json!({"process": {"argv": ["true"]}}));
        asks["confirm"] = json!({"when": condition});
        tools.insert(format!("condition_{number}"), asks);
    }
    for (number, schema) in exponential_schemas().into_iter().enumerate() {
        let mut checked = tool(&json!({"process": {"argv": ["echo", "{}"], "output": "json"}}));
        checked["input"] = schema.clone();
        tools.insert(format!("input_{number}"), checked.clone());
        (checked["input"], checked["output"]) = (input.clone(), schema);
        tools.insert(format!("output_{number}"), checked);
    }
    tools
}

/// Schemas that look at a value 2^40 times.
fn exponential_schemas() -> [Value; 2] {
    ["allOf", "oneOf"].map(|key| {
        let mut definitions: Map<_, _> = (0..40)
            .map(|number| {
                let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
                (format!("d{number}"), json!({key: [next, next]}))
            })
            .collect();
        definitions.insert("d40".to_owned(), json!({"type": "object"}));
        json!({"type": "object", "$defs": definitions, "$ref": "#/$defs/d0"})
    })
}

/// A tree of blocks of ten types: every schema of a type is tried for every block.
fn block_schema() -> Value {
    let types = ["p", "h1", "h2", "ul", "li", "quote", "col", "row", "img", "table"];
    let of_type = |name: &&str| {
        json!({"type": "object", "required": ["type"], "properties": {"type": {"const": name},
            "text": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/block"}}}})
    };
    let block = json!({"oneOf": types.iter().map(of_type).collect::<Vec<_>>()});
    json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/block"}}, "$defs": {"block": block}})
}

#[test]
fn templates_and_schemas_that_grow_without_bound_hurt_nobody() {
    let world = World::new();
    world.define("bombs.json", &Value::Object(bombs()));
    let down = json!({"properties": {"a": {"$ref": "#"}}});
    world.define(
        "good.json",
        &json!({
            "path": selecting(".a"),
            "deep": {"description": "Takes a tree.", "input": {"type": "object", "anyOf": [down, down]},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}},
            "blocks": {"description": "Takes a tree of blocks.", "input": block_schema(),
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}},
            "large": {"description": "Repeats a text.", "input": {"properties": {"who": {"type": "string"}}},
                "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["true", "{% for i in range(2000) %}{{ who }}{% endfor %}"]}}},
        }),
    );
    let linted = world.run(&["lint"]);
    assert_ne!(linted.exit, 0, "{linted}");
    for name in bombs().keys().filter(|name| !name.starts_with("word_4") && !name.starts_with("query_4")) {
        assert!(format!("{}{}", linted.stdout, linted.stderr).contains(name), "{name}: {linted}");
    }
    let ids: Vec<_> = bombs()
        .keys()
        // A human is asked where a condition cannot be evaluated.
        .filter(|name| !name.starts_with("condition"))
        .map(|name| world.run(&["run", name, "who=a"]))
        .filter(|ran| ran.exit == 0)
        .map(|ran| ran.json()["id"].as_str().expect("an id").to_owned())
        .collect();
    for id in &ids {
        let ended = world.run(&["wait", id]).json();
        assert_eq!(ended["error"]["code"], "template-failed", "{ended}");
    }
    assert!(ids.len() < bombs().len(), "most are not even loaded");

    let deep = (0..60).fold(json!({}), |value, _| json!({"a": value}));
    let ran = world.run(&["run", "deep", "--input", &deep.to_string()]);
    assert_eq!(ran.exit, 2, "{ran}");
    assert!(ran.stderr.contains("too deeply nested"), "{ran}");
    let node = |children: Value| json!({"type": "col", "text": "t", "children": children});
    let tree = (0..8).fold(node(json!([])), |child, _| node(json!([child, child])));
    let ran = world.run(&["run", "blocks", "--input", &json!({"root": tree}).to_string()]);
    assert_eq!(ran.exit, 2, "{ran}");
    assert!(ran.stderr.contains("too deeply nested"), "{ran}");
    let shallow = node(json!([node(json!([node(json!([]))]))]));
    assert_eq!(world.result_of("blocks", &json!({"root": shallow}))["status"], "succeeded");
    let large = world.result_of("large", &json!({"who": "a".repeat(100_000)}));
    assert_eq!(large["error"]["code"], "template-failed", "{large}");

    assert_eq!(world.result_of("path", &json!({}))["data"], 1);
    status(&world);
    let executor = world.executor().expect("a running executor");
    let memory = std::fs::read_to_string(format!("/proc/{executor}/status")).expect("readable");
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the most memory so far");
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kilobytes < 512 << 10, "the executor needed {peak}");
}

/// A world in which expressions without end keep every process that evaluates expressions busy.
fn busy_world() -> (World, Vec<String>) {
    let world = World::new();
    let mut impatient = selecting(RUNAWAY[0]);
    impatient["timeout"] = json!("1s");
    world.define("tools.json", &json!({"endless": selecting(RUNAWAY[0]), "impatient": impatient}));
    let busy = (0..6).map(|_| world.start("endless", &json!({}))).collect();
    (world, busy)
}

#[test]
fn a_timeout_and_a_cancellation_end_an_attempt_while_its_data_is_selected() {
    let (world, busy) = busy_world();
    let impatient = world.start("impatient", &json!({}));
    let last = busy.last().expect("several");
    until("it runs", || world.run(&["executor", "status"]).json()["tasks"]["running"].as_u64() >= Some(2));
    assert_eq!(world.run(&["cancel", last]).exit, 0);
    assert_eq!(world.run(&["wait", last]).json()["status"], "cancelled");
    let ended = world.run(&["wait", &impatient]).json();
    assert_eq!(ended["status"], "timed_out", "{ended}");
}

#[test]
fn an_executor_whose_expressions_never_end_stops_when_it_is_told_to() {
    let (world, _) = busy_world();
    let pid = world.executor().expect("a running executor");
    let stopped = world.run(&["executor", "stop"]).json();
    assert_eq!(stopped["stopped"], true, "{stopped}");
    assert!(!is_alive(pid), "the executor is gone when `stop` says so");
}

#[test]
fn the_processes_for_expressions_are_kept_for_the_next_and_end_with_the_executor() {
    let world = World::new();
    world.define("tools.json", &json!({"filter": selecting("[.a]")}));
    let workers = || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("readable").flatten() {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let parent = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let parent = parent.lines().find_map(|line| line.strip_prefix("PPid:\t")?.parse::<i32>().ok());
            let is_worker = words.split(|byte| *byte == 0).nth(1) == Some(b"jq-worker");
            if let (true, Some(pid)) = (is_worker, entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()))
            {
                found.push((Pid::from_raw(pid), parent));
            }
        }
        found
    };
    world.result_of("filter", &json!({}));
    let executor = world.executor().expect("a running executor");
    let own = || -> Vec<Pid> {
        let own = workers().into_iter().filter(|(_, parent)| *parent == Some(executor.as_raw()));
        own.map(|(pid, _)| pid).collect()
    };
    let first = own();
    assert_eq!(first.len(), 1, "{first:?}");
    for _ in 0..3 {
        assert_eq!(world.result_of("filter", &json!({}))["data"], json!([1]));
    }
    assert_eq!(own(), first);
    world.kill_executor();
    until("its process is gone", || !is_alive(first[0]));
}

#[test]
fn a_runaway_expression_of_read_ends_with_an_error() {
    let world = World::new();
    let id = world.result_of("files_list", &json!({}))["id"].as_str().expect("an id").to_owned();
    for expression in RUNAWAY {
        let read = world.run(&["read", &id, "--jq", expression]);
        assert_eq!((read.exit, read.error()["code"].as_str()), (1, Some("select-failed")), "{read}");
        assert!(read.stderr.contains("it was stopped"), "{read}");
    }
}

#[test]
fn an_executor_whose_event_loop_hangs_stops_when_it_is_told_to() {
    let world = World::new();
    let mut command = world.command(&["executor", "run"]);
    let mut executor = command.env("AGENT_MAGIC_TOOL_FAULT", "commit.before:hang:1").spawn().expect("it starts");
    let pid = Pid::from_raw(i32::try_from(executor.id()).expect("a process id"));
    until("the executor is running", || world.executor() == Some(pid));
    let mut run = world.command(&["run", "files_list"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("its request is taken", || {
        let taken = std::fs::read_dir(world.mailbox().join("taken")).expect("a folder");
        taken.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
    });
    let stopped = world.run(&["executor", "stop"]);
    assert_eq!((stopped.exit, &stopped.json()["stopped"]), (0, &json!(true)), "{stopped}");
    assert!(!is_alive(pid));
    run.kill().expect("it can be killed");
    wait_for_end(&mut run);
    assert!(!wait_for_end(&mut executor).success(), "it was ended by force");
}

#[test]
fn what_a_program_moved_to_another_session_ends_with_it() {
    let world = World::new();
    // Its grandchild leaves the session and the process group, ignores SIGTERM, and loses its parent.
    let escape = "setsid sh -c 'trap \"\" TERM; echo $$ > pid.new; mv pid.new PID; while :; do sleep 1; done' \
        > /dev/null 2>&1 & while [ ! -e PID ]; do sleep 0.01; done";
    let tool = |script: &str| {
        json!({"description": "Leaves a process behind.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", script]}}})
    };
    world.define(
        "tools.json",
        &json!({
            "ends": tool(&escape.replace("PID", "first")),
            "cleans": tool(&format!("env -i PATH=\"$PATH\" {}", escape.replace("PID", "second"))),
            "is_stopped": tool(&format!("{}; sleep 300", escape.replace("PID", "third"))),
        }),
    );
    let pid_in = |file: &str| {
        let pid = std::fs::read_to_string(world.folder().join(file)).expect("the process wrote its id");
        Pid::from_raw(pid.trim().parse().expect("a process id"))
    };
    for (tool, file) in [("ends", "first"), ("cleans", "second")] {
        let ended = world.result_of(tool, &json!({}));
        assert_eq!(ended["status"], "succeeded", "{ended}");
        assert!(!is_alive(pid_in(file)), "{tool}");
    }
    let id = world.start("is_stopped", &json!({}));
    until("it has left a process behind", || world.folder().join("third").exists());
    world.run(&["cancel", &id]);
    assert_eq!(world.run(&["wait", &id]).json()["status"], "cancelled");
    assert!(!is_alive(pid_in("third")));
}

#[test]
fn a_task_that_ends_its_executor_twice_is_given_up_and_says_so() {
    let world = World::new();
    let kills = json!({"process": {"argv": ["sh", "-c", "kill -KILL $PPID; sleep 300"]}});
    let tool = |run: &Value, hint: &str| {
        json!({"description": "Ends the executor.", "input": {}, "annotations": {hint: true}, "run": run,
            "confirm": "never"})
    };
    let naps = json!({"process": {"argv": ["sleep", "1"]}});
    world.define("tools.json", &json!({"reads": tool(&kills, "readOnlyHint"), "naps": tool(&naps, "readOnlyHint")}));
    let innocent: Vec<_> = (0..3).map(|_| world.start("naps", &json!({}))).collect();
    let poison = world.start("reads", &json!({}));
    let ended = world.run(&["wait", &poison]).json();
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("executor-crashed")), "{ended}");
    assert_eq!(world.result_file(&poison)["_meta"]["attempts"], 2, "{ended}");
    for id in innocent {
        assert_eq!(world.run(&["wait", &id]).json()["status"], "succeeded");
    }
}

#[test]
fn a_fifo_a_socket_or_a_directory_in_place_of_a_file_blocks_nothing() {
    let fifo = |path: &Path| mkfifo(path, Mode::S_IRWXU).expect("a FIFO");
    let world = World::new();
    world.define("good.json", &json!({"path": selecting(".a")}));
    fifo(&world.subtools().join("fifo.json"));
    std::fs::create_dir(world.subtools().join("folder.json")).expect("a folder");
    let socket = UnixListener::bind(world.subtools().join("socket.json")).expect("a socket");
    assert_eq!(world.result_of("path", &json!({}))["data"], 1);
    let linted = world.run(&["lint"]);
    let problems = format!("{}{}", linted.stdout, linted.stderr);
    for (file, kind) in [("fifo", "a FIFO"), ("folder", "a directory"), ("socket", "a socket")] {
        assert!(problems.contains(&format!("{file}.json")), "{linted}");
        assert!(problems.contains(&format!("it is {kind}, not a regular file")), "{linted}");
    }
    drop(socket);

    fifo(&world.folder().join("input"));
    for input in ["@input", "@.", "@/dev/zero"] {
        let ran = world.run(&["run", "path", "--input", input]);
        assert_eq!((ran.exit, ran.error()["code"].as_str()), (3, Some("not-found")), "{ran}");
        assert!(ran.stderr.contains("not a regular file"), "{ran}");
    }

    // In place of a result of its own, which the next executor looks at.
    let id = world.start("path", &json!({}));
    world.run(&["wait", &id]);
    world.kill_executor();
    let result = world.mailbox().join(format!("results/result-{id}.json"));
    std::fs::remove_file(&result).expect("removed");
    fifo(&result);
    assert_eq!(world.result_of("path", &json!({}))["data"], 1);
    assert_ne!(world.run(&["read", &id]).exit, 70, "and a command does not wait for it");

    world.kill_executor();
    fifo(&world.config_folder().join("config.toml"));
    let list = world.run(&["list", "tools"]);
    assert_eq!(list.error()["code"], "bad-config", "{list}");
    assert!(list.stderr.contains("not a regular file"), "{list}");
}
