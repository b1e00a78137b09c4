//! An answer is whole, or it says that it is not: what `--jq` would hide, and output that is too large for a model.

use serde_json::{Value, json};

use crate::world::{Transcript, World};

/// What is printed at once.
const MAX_BYTES: usize = 50_000;

/// Every way to get what a jq expression makes of the data of a new task of `tool`: the output and the notes.
fn selected(world: &World, tool: &str, expression: &str) -> Vec<(String, String, String)> {
    let id = world.result_of(tool, &json!({}))["id"].as_str().expect("an id").to_owned();
    let other = world.result_of(tool, &json!({}))["id"].as_str().expect("an id").to_owned();
    let mut found = Vec::new();
    for words in [
        vec!["read", &id, "--jq", expression],
        vec!["wait", &id, "--jq", expression],
        vec!["wait", &id, &other, "--jq", expression],
        vec!["run", tool, "--wait", "--jq", expression],
    ] {
        let ran = world.run(&words);
        assert_eq!(ran.exit, 0, "{words:?}: {ran}");
        found.push((words.join(" "), ran.stdout, ran.stderr));
    }
    for line in [
        format!("agent-magic-tool read {id} --jq '{expression}'"),
        format!("agent-magic-tool wait {id} --jq '{expression}'"),
        format!("agent-magic-tool run {tool} --wait --jq '{expression}'"),
    ] {
        let asked = format!("{}\n", json!({"command": line}));
        let answer = world.run_with(&["command-executor"], &asked).json();
        let output = answer["output"].as_str().expect("text").to_owned();
        found.push((format!("command-executor: {line}"), output.clone(), output));
        let output = over_mcp(world, &line);
        found.push((format!("mcp: {line}"), output.clone(), output));
    }
    found
}

/// What the one tool prints over MCP.
pub(super) fn over_mcp(world: &World, line: &str) -> String {
    let asked = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "command_executor", "arguments": {"command": line}}}),
    ];
    let asked = asked.map(|message| message.to_string()).join("\n") + "\n";
    let said = world.run_with(&["mcp"], &asked);
    let answers = said.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2).unwrap_or_else(|| panic!("{said}"));
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn shop() -> World {
    let world = World::new();
    let database = rusqlite::Connection::open(world.folder().join("shop.db")).expect("it opens");
    database
        .execute_batch(
            "CREATE TABLE sales (id INTEGER PRIMARY KEY, price INTEGER NOT NULL);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO sales SELECT i, 2 FROM n;",
        )
        .expect("it is filled");
    world.configure(&format!("[databases.shop]\nurl = \"sqlite://{}\"\n", world.folder().join("shop.db").display()));
    world.define(
        "sales.json",
        &json!({
            "sales": {"description": "Lists all sales.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"sql": {"database": "shop", "query": "SELECT id, price FROM sales", "limit": 4000}}},
            "total": {"description": "Gives a few rows.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["echo", "{\"rows\": [{\"price\": 2}], \"count\": 1}"], "output": "json"}}}
        }),
    );
    world
}

#[test]
fn an_expression_does_not_hide_that_the_data_is_only_a_part() {
    let world = shop();
    for (way, stdout, notes) in selected(&world, "sales", "[.data[].price] | add") {
        assert!(notes.contains("is not all there is") && notes.contains("\"has_next_page\":true"), "{way}: {notes}");
        assert!(notes.contains("$_meta"), "{way}: {notes}");
        assert!(stdout.contains("200"), "{way}: {stdout}");
    }
    // What looks at it needs no note.
    for (way, stdout, notes) in selected(&world, "sales", "if $_meta.has_next_page then \"part\" else length end") {
        assert!(stdout.contains("part") && !notes.contains("all there is"), "{way}: {stdout} {notes}");
    }
    for (way, _, notes) in selected(&world, "total", "[.rows[].price] | add") {
        assert!(!notes.contains("note:"), "{way}: {notes}");
    }
}

/// Commands print the data in the field `data`.
#[test]
fn an_expression_may_begin_with_the_field_in_which_the_data_is_printed() {
    let world = shop();
    for expression in [".data.rows[0].price", ".data | .rows[0].price", ".data.rows | map(.price) | add # all"] {
        for (way, stdout, notes) in selected(&world, "total", expression) {
            assert!(stdout.contains('2'), "{way}: {stdout}");
            assert!(notes.contains("needs no `.data` before it: write `.rows[0].price`"), "{way}: {notes}");
        }
    }
    for (way, _, notes) in selected(&world, "total", ".database") {
        assert!(notes.contains("no key `database`") && !notes.contains("needs no"), "{way}: {notes}");
    }
    for (way, stdout, notes) in selected(&world, "sales", ".data[0].price") {
        assert!(stdout.contains('2') && !notes.contains("needs no"), "{way}: {notes}");
    }
}

#[test]
fn what_an_expression_asks_for_in_vain_is_said_with_the_keys_that_are_there() {
    let world = shop();
    for (expression, expected) in [
        (".[0]", "`.[0]` is asked of an object; write `.rows[0]`; the keys are `count`, `rows`"),
        (".price", "there is no key `price` there; it has `.rows[].price`; the keys are `count`, `rows`"),
        (".itmes", "there is no key `itmes` there; the keys are `count`, `rows`"),
        ("[.rows[].prise] | add", "there is no key `prise` there; the keys are `price`"),
    ] {
        for (way, _, notes) in selected(&world, "total", expression) {
            assert!(notes.contains(expected), "{way}: {notes}");
        }
    }
    let line = "agent-magic-tool run total --wait | jq '.data.rows[0].prise'";
    let answer = world.run_with(&["command-executor"], &format!("{}\n", json!({"command": line}))).json();
    assert!(answer["output"].as_str().is_some_and(|text| text.contains("no key `prise`")), "{answer}");
}

/// A world with a subtool that returns `count` texts, and one that takes a long input.
fn large(count: usize) -> (World, String) {
    let world = World::new();
    let texts: Vec<_> = (0..count).map(|number| format!("{number}:\u{1}{}", "x".repeat(500))).collect();
    std::fs::write(world.folder().join("data.json"), json!({"texts": texts}).to_string()).expect("written");
    let words: serde_json::Map<_, _> = (0..2_000)
        .map(|number| (format!("wide_{number}"), json!({"type": "string", "description": "x".repeat(200)})))
        .collect();
    world.define(
        "large.json",
        &json!({
            "large": {"description": "Gives much.", "input": {}, "annotations": {"readOnlyHint": true}, "run":
                {"process": {"argv": ["cat", "data.json"], "output": "json", "max_bytes": 9_000_000}}},
            "post": {"description": "Sends a text.", "input": {"properties": {"text": {"type": "string"}}, "required": ["text"]},
                "run": {"http": {"method": "POST", "base_url": "http://127.0.0.1:9", "path": "/x", "body": {"json": {"text": "{{ text }}"}}}}},
            "wide": {"description": "Has much to say of itself.", "input": {"properties": words},
                "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}},
        }),
    );
    let id = world.result_of("large", &json!({}))["id"].as_str().expect("an id").to_owned();
    (world, id)
}

fn assert_is_cut(ran: &Transcript, what: &str) {
    assert_eq!(ran.exit, 0, "{what}: {ran}");
    assert!(ran.stdout.len() <= MAX_BYTES + 1, "{what}: {} bytes", ran.stdout.len());
    let document = ran.json();
    assert!(document["cut"].is_string() && document["rest"].is_string(), "{what}: {document}");
    assert!(document["bytes"].as_u64().is_some_and(|bytes| bytes > MAX_BYTES as u64), "{what}: {document}");
    assert!(ran.stderr.contains("the output is cut"), "{what}: {}", ran.stderr);
}

#[test]
fn what_is_too_large_to_print_is_cut_and_says_so_in_every_command() {
    let (world, id) = large(5_000);
    for words in [
        vec!["read", &id, "--jq", "."],
        vec!["wait", &id, "--jq", "."],
        vec!["run", "large", "--wait", "--jq", "."],
        vec!["inspect", "wide"],
        vec!["list", "tools", "wide"],
    ] {
        assert_is_cut(&world.run(&words), &words.join(" "));
        let whole = world.run(&[&words[..], &["--whole"]].concat());
        assert!(whole.exit == 0 && whole.stdout.len() > MAX_BYTES && whole.json().get("cut").is_none(), "{words:?}");
    }
    // What is said to read the rest works.
    let cut = world.run(&["read", &id, "--jq", ".texts"]).json();
    let rest = cut["rest"].as_str().expect("text");
    assert!(rest.contains(&format!("agent-magic-tool read {id} --jq '.texts' --page 1")), "{rest}");
    let page = world.run(&["read", &id, "--jq", ".texts", "--page", "1"]).json();
    assert_eq!(page["of"], 5_000, "{page}");

    let text = "y".repeat(400_000);
    let planned = world.run_with(&["run", "post", "--dry-run", "--input=-"], &json!({"text": text}).to_string());
    assert!(planned.stdout.len() <= MAX_BYTES && planned.exit == 0, "{} bytes", planned.stdout.len());
    assert!(planned.json().get("cut").is_none() && planned.stderr.contains("long texts are cut"), "{planned}");
    let input: serde_json::Map<_, _> =
        (0..12).map(|number| (format!("w{number}"), Value::from("z".repeat(300)))).collect();
    for _ in 0..60 {
        world.run_with(&["run", "wide", "--input=-"], &Value::Object(input.clone()).to_string());
    }
    assert_is_cut(&world.run(&["tasks", "--limit=60"]), "tasks");
    let lines =
        format!("{}\n", json!({"timestamp": "2026-01-01T00:00:00.0", "level": "INFO", "message": "m".repeat(9_000)}));
    std::fs::write(world.log(), lines.repeat(40)).expect("written");
    let logged = world.run(&["logs"]);
    assert!(
        logged.stdout.len() <= MAX_BYTES && logged.stderr.contains("the output is cut"),
        "{} bytes",
        logged.stdout.len()
    );
    assert!(world.run(&["logs", "--whole"]).stdout.len() > 300_000);
}

#[test]
fn a_part_is_as_large_as_can_be_printed_and_parts_join_up() {
    let (world, id) = large(200);
    let whole = world.run(&["read", &id, "--jq", ".texts", "--whole"]).json();
    // Pages whose items are too many for one output have fewer.
    let (mut next, mut items) = (Some(format!("agent-magic-tool read {id} --jq '.texts' --page 1")), Vec::new());
    while let Some(command) = next {
        let command = command.replace("agent-magic-tool", crate::world::PROGRAM);
        let ran = world.transcript(&world.within("sh", &["-c", &command]).output().expect("sh"));
        assert!(ran.stdout.len() <= MAX_BYTES + 1, "{} bytes", ran.stdout.len());
        let page = ran.json();
        items.extend(page["items"].as_array().expect("items").clone());
        next = page["next"].as_str().map(str::to_owned);
    }
    assert_eq!(Value::from(items), whole);
    for unit in ["--bytes", "--lines"] {
        let (mut next, mut text) =
            (Some(format!("agent-magic-tool read {id} {unit} {}-", u8::from(unit == "--lines"))), String::new());
        while let Some(command) = next {
            let command = command.replace("agent-magic-tool", crate::world::PROGRAM);
            let ran = world.transcript(&world.within("sh", &["-c", &command]).output().expect("sh"));
            assert!(ran.stdout.len() <= MAX_BYTES + 1, "{unit}: {} bytes", ran.stdout.len());
            let part = ran.json();
            assert!(part.get("cut").is_none(), "{part}");
            text.push_str(part["text"].as_str().expect("text"));
            next = part["next"].as_str().map(str::to_owned);
            if unit == "--lines" && next.is_some() {
                text.push('\n');
            }
        }
        let read: Value = serde_json::from_str(&text).expect("the parts are all of it");
        assert_eq!(read["texts"], whole, "{unit}");
    }
}

#[test]
fn what_a_command_passes_to_the_next_one_is_whole() {
    let (world, id) = large(500);
    let line = format!("agent-magic-tool read {id} --jq .texts | jq length");
    let answer = world.run_with(&["command-executor"], &format!("{}\n", json!({"command": line}))).json();
    assert_eq!(answer["output"], "500\n", "{answer}");
}
