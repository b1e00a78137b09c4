//! `run`: delegates a task at once, or refuses it with a hint that helps to fix the call.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::world::World;

fn echo(world: &World) {
    world.define(
        "echo.json",
        &json!({
            "echo": {
                "description": "Returns its text.",
                "input": {"type": "object", "required": ["text"], "additionalProperties": false, "properties": {
                    "text": {"type": "string"},
                    "times": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
                    "loud": {"type": "boolean"},
                    "to": {"type": "array", "items": {"type": "string"}}
                }},
                "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["printf", "%s", "{{ text }}"]}}
            },
            "touch": {
                "description": "Appends a line to a file.",
                "input": {"type": "object"},
                "run": {"process": {"argv": ["sh", "-c", "echo x >> touched"], "folder": "."}}
            }
        }),
    );
}

/// A refused run must leave no task, no placeholder and no request.
fn assert_nothing_is_left(world: &World) {
    for folder in ["inbox", "results", "taken", "answers"] {
        let left: Vec<_> = fs::read_dir(world.mailbox().join(folder)).expect("a folder").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn run_returns_the_accepted_input_and_the_path_of_the_result() {
    let world = World::new();
    echo(&world);
    let ran = world.run(&["run", "echo", r#"--input={"text": "年度报告"}"#]);
    assert_snapshot!(ran, @r#"
    exit: 0
    --- stdout
    {"tool":"echo","input":{"text":"年度报告","times":1},"id":"ID","status":"pending","result_file":"MAILBOX/results/result-ID.json","next":"agent-magic-tool wait ID"}
    "#);
    let id = ran.json()["id"].as_str().expect("an id").to_owned();
    assert_snapshot!(world.run(&["wait", &id]), @r#"
    exit: 0
    --- stdout
    {"id":"ID","tool":"echo","status":"succeeded","data":"年度报告"}
    "#);
    assert_eq!(world.result_file(&id)["data"], "年度报告");
}

#[test]
fn the_result_file_starts_as_a_placeholder() {
    let world = World::new();
    world.define(
        "slow.json",
        &json!({"slow": {"description": "Takes a minute.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "60"]}}}}),
    );
    let id = world.start("slow", &json!({}));
    let file = world.result_file(&id);
    assert_eq!(file["status"], "pending");
    let message =
        format!("The tool execution has been delegated to the agent. Run `agent-magic-tool wait {id}` for its result.");
    assert_eq!(file["message"], message);
    assert_eq!(file["next"], format!("agent-magic-tool wait {id}"));
}

#[test]
fn run_with_wait_prints_the_final_result() {
    let world = World::new();
    echo(&world);
    assert_snapshot!(world.run(&["run", "echo", "text=hello", "--wait"]), @r#"
    exit: 0
    --- stdout
    {"id":"ID","tool":"echo","status":"succeeded","data":"hello"}
    "#);
}

#[test]
fn input_comes_from_fields_files_and_standard_input() {
    let world = World::new();
    echo(&world);
    fs::write(world.folder().join("in.json"), r#"{"text": "from a file"}"#).expect("written");
    let input = |arguments: &[&str]| {
        let arguments: Vec<_> = [&["run", "echo"], arguments].concat();
        let ran = world.run_with(&arguments, r#"{"text": "it's \"any\" JSON"}"#);
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()["input"].clone()
    };
    assert_eq!(input(&["--input=@in.json"]), json!({"text": "from a file", "times": 1}));
    assert_eq!(input(&["--input", "-"]), json!({"text": "it's \"any\" JSON", "times": 1}));
    assert_eq!(input(&["text=5", "times=5"]), json!({"text": "5", "times": 5}));
    assert_eq!(input(&["text=a=b", "loud:=true"]), json!({"text": "a=b", "loud": true, "times": 1}));
    assert_eq!(input(&["--input", r#"{"text": "a"}"#, "text=b"]), json!({"text": "b", "times": 1}));
    assert_eq!(input(&["text=a", "to=ann"]), json!({"text": "a", "to": ["ann"], "times": 1}));
    assert_eq!(input(&["text=a", "to=ann", "to=bob"]), json!({"text": "a", "to": ["ann", "bob"], "times": 1}));
}

#[test]
fn a_field_takes_its_value_from_a_file_standard_input_or_the_result_of_a_task() {
    let world = World::new();
    echo(&world);
    fs::write(world.folder().join("note.txt"), "from a file\n").expect("written");
    fs::write(world.folder().join("list.json"), r#"["ann", "bob"]"#).expect("written");
    let run = |arguments: &[&str]| world.run_with(&[&["run", "echo"], arguments].concat(), "from standard input");
    let input = |arguments: &[&str]| {
        let ran = run(arguments);
        assert_eq!(ran.exit, 0, "{ran}");
        ran.json()["input"].clone()
    };
    assert_eq!(
        input(&["text=@note.txt", "to:=@list.json"]),
        json!({"text": "from a file\n", "to": ["ann", "bob"], "times": 1})
    );
    assert_eq!(input(&["text=@-"])["text"], "from standard input");
    assert_eq!(input(&["text=@@note.txt"])["text"], "@note.txt");
    assert_eq!(input(&["text=ann@note.txt"])["text"], "ann@note.txt");

    world.define("list.json", &json!({"rows": {"description": "Returns rows.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["printf", r#"[{"name": "ann", "n": 3}, {"name": "bob", "n": 4}]"#], "output": "json"}}}}));
    let rows = world.run(&["run", "rows", "--wait"]).json()["id"].as_str().expect("an id").to_owned();
    let of = |expression: &str| format!("@{rows}{expression}");
    assert_eq!(input(&[&format!("text={}", of(".[0].name"))])["text"], "ann");
    let typed = input(&["text=x", &format!("times={}", of(".[0].n")), &format!("to={}", of(".|map(.name)"))]);
    assert_eq!(typed, json!({"text": "x", "times": 3, "to": ["ann", "bob"]}));
    let text = world.run(&["run", "echo", "text=first", "--wait"]).json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(input(&[&format!("text=@{text}")])["text"], "first");

    let refused = |field: &str| {
        let ran = run(&[field]);
        assert_eq!(ran.exit, if field.contains("missing") || field.contains("0000") { 3 } else { 2 }, "{ran}");
        ran.error()["message"].as_str().expect("a message").to_owned()
    };
    assert!(refused("text=@missing.txt").contains("there is no such file"));
    assert!(refused("text=@00000000000000000000000000000000").contains("no task"));
    fs::write(world.folder().join("binary"), [0xff, 0xfe]).expect("written");
    assert!(refused("text=@binary").contains("is not text"));
    fs::write(world.folder().join("large"), "x".repeat((1 << 20) + 1)).expect("written");
    assert!(refused("text=@large").contains("larger than"));
    world.define(
        "slow.json",
        &json!({"slow": {"description": "Takes a minute.", "input": {},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "60"]}}}}),
    );
    let slow = world.start("slow", &json!({}));
    assert!(refused(&format!("text=@{slow}")).contains("has not ended"));
}

#[test]
fn large_integers_stay_exact() {
    let world = World::new();
    world.define("id.json", &json!({"id": {"description": "Returns a number.", "input": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["printf", "%s", "{{ n }}"], "output": "json"}}}}));
    let ran = world.run(&["run", "id", "--input", r#"{"n": 9007199254740993}"#, "--wait"]);
    assert_eq!(ran.json()["data"], json!(9_007_199_254_740_993_u64), "{ran}");
}

#[test]
fn a_misspelled_name_gets_suggestions() {
    let world = World::new();
    assert_snapshot!(world.run(&["run", "gmial_search_mesages"]), @r#"
    exit: 3
    --- stderr
    {"error":{"code":"unknown-subtool","message":"no subtool named `gmial_search_mesages`","hint":"did you mean `gmail_search_messages`? or search: agent-magic-tool list tools --query=\"...\"","details":{"nearest":["gmail_search_messages","gmail_trash_message","gmail_read_message"]}}}
    "#);
    assert_snapshot!(world.run(&["run", "search_files"]), @r#"
    exit: 3
    --- stderr
    {"error":{"code":"unknown-subtool","message":"no subtool named `search_files`","hint":"did you mean `files_search`? or search: agent-magic-tool list tools --query=\"...\"","details":{"nearest":["files_search","files_read","files_list"]}}}
    "#);
    assert_nothing_is_left(&world);
}

#[test]
fn all_mistakes_in_an_input_are_reported_at_once() {
    let world = World::new();
    echo(&world);
    assert_snapshot!(world.run(&["run", "echo", r#"--input={"times": 10, "txt": "x"}"#]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"invalid-input","message":"the input of `echo` is wrong at `/times`: 10 is greater than the maximum of 9; 3 mistakes in all","hint":"fix the fields in `problems`; the schema: agent-magic-tool list tools echo","details":{"problems":[{"pointer":"/times","problem":"10 is greater than the maximum of 9","schema":{"type":"integer","minimum":1,"maximum":9,"default":1}},{"pointer":"/txt","problem":"no field named `txt`; the fields are `text`, `times`, `loud`, `to`","did_you_mean":"text"},{"pointer":"/text","problem":"`text` is required","schema":{"type":"string"}}]}}}
    "#);
    assert_nothing_is_left(&world);
}

#[test]
fn json_damaged_by_a_shell_is_recognized() {
    let world = World::new();
    echo(&world);
    assert_snapshot!(world.run(&["run", "echo", "--input={text: hello}"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"invalid-json","message":"the input is not valid JSON: a key is not in double quotes at line 1 column 2","hint":"the shell removed the quotes; write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run echo --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF","details":{"line":1,"column":2}}}
    "#);
    for damaged in [r#"{\"text\": \"x\"}"#, "'{\"text\": \"x\"}'", r#"{"text": "x"#] {
        let error = world.run(&["run", "echo", "--input", damaged]).error();
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("--input=-")), "{damaged}: {error}");
    }
    let python = world.run(&["run", "echo", "--input", "{'text': 'x'}"]).error();
    let hint = python["hint"].as_str().expect("a hint");
    assert!(hint.starts_with("JSON has double quotes, not single ones; write the fields as key=value"), "{python}");
    // Without quotes around it, the shell splits `--input={"text": "hello world"}`.
    assert_snapshot!(world.run(&["run", "echo", "--input={text:", "hello", "world}"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"invalid-json","message":"the input is not valid JSON: a key is not in double quotes at line 1 column 2","hint":"the shell removed the quotes; write the fields as key=value, or pass the JSON on standard input: agent-magic-tool run echo --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF","details":{"line":1,"column":2}}}
    "#);
}

#[test]
fn ambiguous_json_is_refused() {
    let world = World::new();
    echo(&world);
    for wrong in [
        r#"{"text": "a", "text": "b"}"#,
        r#"{"text": "a", "n": 123456789012345678901234567890}"#,
        "[]",
        "null",
        "",
        "7",
    ] {
        let ran = world.run(&["run", "echo", "--input", wrong]);
        assert_eq!((ran.exit, ran.stdout.as_str()), (2, ""), "{wrong}: {ran}");
        assert_eq!(ran.error()["code"], "invalid-json", "{wrong}");
    }
    let deep = format!("{{\"text\": {}1{}}}", "[".repeat(100), "]".repeat(100));
    assert_eq!(world.run(&["run", "echo", "--input", &deep]).error()["code"], "invalid-json");
}

#[test]
fn an_input_may_be_at_most_a_megabyte() {
    let world = World::new();
    echo(&world);
    let large = json!({"text": "x".repeat(1 << 20)}).to_string();
    let ran = world.run_with(&["run", "echo", "--input=-"], &large);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("request-too-large")), "{ran}");
    let fits = json!({"text": "x".repeat((1 << 20) - 4096)}).to_string();
    assert_eq!(world.run_with(&["run", "echo", "--input=-"], &fits).exit, 0);
}

#[test]
fn usage_errors_have_helpful_hints() {
    let world = World::new();
    assert_snapshot!(world.run(&["run"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`run` needs NAME","hint":"agent-magic-tool run NAME [KEY=VALUE]..."}}
    "#);
    assert_snapshot!(world.run(&["rum", "x"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"no command `rum`","hint":"agent-magic-tool run x"}}
    "#);
    assert_snapshot!(world.run(&["run", "echo", "--imput={}"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`run` has no option `--imput`","hint":"did you mean `--input`?"}}
    "#);
    assert_snapshot!(world.run(&["run", "echo", "--wait=soon"]), @r#"
    exit: 2
    --- stderr
    {"error":{"code":"usage","message":"`--wait`: `soon` is not a valid duration","hint":"write it like `500ms`, `30s`, `5m`, `1h` or `7d`"}}
    "#);
}

#[test]
fn the_whole_input_may_be_one_word() {
    let world = World::new();
    echo(&world);
    let input = |words: &[&str]| world.run(&[&["run", "echo", "--dry-run"], words].concat()).json()["input"].clone();
    assert_eq!(input(&[r#"{"text": "a=b"}"#])["text"], "a=b");
    let both = input(&[r#"{"text": "a=b"}"#, "times=2"]);
    assert_eq!((&both["text"], &both["times"]), (&json!("a=b"), &json!(2)));
    let wrong = world.run(&["run", "echo", r#"{"text": "a=b"#]);
    assert!(wrong.exit == 2 && wrong.stderr.contains("hint"), "{wrong}");
}

#[test]
fn a_dry_run_shows_what_would_be_sent_and_does_nothing() {
    let world = World::new();
    let sent = r#"{"to": ["ann@example.com"], "subject": "hi", "body": "hello"}"#;
    let ran = world.run(&[
        "run",
        "gmail_search_messages",
        "--input",
        r#"{"search_query": "年度报告", "label": "work"}"#,
        "--dry-run",
    ]);
    assert_snapshot!(ran, @r#"
    exit: 0
    --- stdout
    {"tool":"gmail_search_messages","input":{"search_query":"年度报告","label":"work"},"dry_run":true,"confirmation":null,"would_send":{"http":{"method":"GET","url":"https://gmail.googleapis.com/gmail/v1/users/me/messages?q=%E5%B9%B4%E5%BA%A6%E6%8A%A5%E5%91%8A+label%3Awork","headers":{"user-agent":"agent-magic-tool","accept":"*/*","authorization":"Bearer secret:google"},"body":null}},"needs":{"message":"the secret `google` is not set","hint":"a human sets it with: agent-magic-tool secret set google"}}
    "#);
    // There is nothing to wait for.
    let ran = world.run(&["run", "gmail_send_message", "--input", sent, "--dry-run", "--wait", "--jq=.x"]);
    assert_eq!(ran.exit, 0, "{ran}");
    assert!(ran.json()["confirmation"].is_string() && ran.stderr.contains("--jq is left out"), "{ran}");
    assert_nothing_is_left(&world);
}

#[test]
fn a_task_with_side_effects_waits_for_a_human() {
    let world = World::new();
    echo(&world);
    assert_snapshot!(world.run(&["run", "touch"]), @r#"
    exit: 0
    --- stdout
    {"tool":"touch","input":{},"id":"ID","status":"pending","result_file":"MAILBOX/results/result-ID.json","state":"awaiting_confirmation","message":"Tell the user: run `agent-magic-tool executor page` and decide. The tool execution waits for that. Then: `agent-magic-tool wait ID`. Do not run it again."}
    "#);
    assert!(!world.folder().join("touched").exists());
}

#[test]
fn runs_with_the_same_idempotency_key_are_the_same_task() {
    let world = World::new();
    echo(&world);
    let run = |text: &str| world.run(&["run", "echo", &format!("text={text}"), "--idempotency-key=k1"]);
    let first = run("a");
    let again = run("a");
    assert_eq!(first.json()["id"], again.json()["id"], "{again}");
    let other = run("b");
    assert_snapshot!(other, @r#"
    exit: 2
    --- stderr
    {"error":{"code":"idempotency-mismatch","message":"the idempotency key was already used for `echo` with another input or in another folder","hint":"use another key for another call","details":{"id":"ID"}}}
    "#);
    let waited = world.run(&["run", "echo", "text=a", "--idempotency-key=k1", "--wait"]);
    assert_eq!((waited.exit, &waited.json()["data"]), (0, &Value::from("a")), "{waited}");
}

#[test]
fn a_text_for_a_list_that_may_be_several_items_or_none_is_refused_with_both_forms() {
    let world = World::new();
    let list = json!({"type": "object", "properties": {"options": {"type": "array", "items": {"type": "string"}}}});
    let pick = json!({"description": "Picks.", "input": list, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["printf", "%s\n", "{{ options }}"], "output": "lines"}}});
    world.define("pick.json", &json!({"pick": pick}));
    let refused = world.run(&["run", "pick", "options=a, b"]);
    assert_snapshot!(refused, @r#"
    exit: 2
    --- stderr
    {"error":{"code":"invalid-input","message":"`options` is a list, and `a, b` does not say which items it has","hint":"several items: options:='[\"a\",\"b\"]'; this one text: options:='[\"a, b\"]'"}}
    "#);
    for (text, items) in [
        ("a;b", r#"["a","b"]"#),
        ("a\nb", r#"["a","b"]"#),
        ("[a, b]", r#"["a","b"]"#),
        ("['a','b']", r#"["a","b"]"#),
        ("[it's]", r#"["it'\''s"]"#),
        ("[a]", r#"["a"]"#),
        ("", "[]"),
        ("null", "[]"),
    ] {
        let refused = world.run(&["run", "pick", &format!("options={text}")]);
        let hint = refused.error()["hint"].as_str().map(str::to_owned).unwrap_or_default();
        assert!(refused.exit == 2 && hint.contains(&format!("options:='{items}'")), "{text}: {refused}");
    }
    for (words, expected) in [
        (&["options:=[\"a\",\"b\"]"][..], json!(["a", "b"])),
        (&["options=a", "options=b,c"], json!(["a", "b,c"])),
        (&["options=a"], json!(["a"])),
    ] {
        let ran = world.run(&[&["run", "pick", "--dry-run"], words].concat());
        assert_eq!(ran.json()["input"]["options"], expected, "{ran}");
    }
}

#[test]
fn a_dry_run_ends_as_the_call_would() {
    let world = World::new();
    let write = json!({"description": "Writes.", "input": {}, "run": {"process": {"argv": ["true"]}}});
    world.define("write.json", &json!({"write": write}));
    world.configure("[[confirm.rules]]\ntools = [\"write\"]\nthen = \"refuse\"\n");
    let (ran, planned) = (world.run(&["run", "write"]), world.run(&["run", "write", "--dry-run"]));
    assert_eq!((planned.exit, &planned.error()["message"]), (ran.exit, &ran.error()["message"]), "{planned}");
    assert_eq!(ran.exit, 5, "{ran}");
    assert!(planned.error()["details"]["would_send"]["process"].is_object(), "{planned}");
}

#[test]
fn a_rate_limit_names_its_window() {
    let world = World::new();
    world.define("rare.json", &json!({"rare": {"description": "May be used twice an hour.", "input": {},
        "annotations": {"readOnlyHint": true}, "rate_limit": {"calls": 2, "per": "1h"}, "run": {"process": {"argv": ["true"]}}}}));
    for _ in 0..2 {
        assert_eq!(world.run(&["run", "rare"]).exit, 0);
    }
    let ran = world.run(&["run", "rare"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (5, Some("rate-limited")), "{ran}");
    assert_eq!(ran.error()["message"], "`rare` allows a session 2 calls per 1h");
    let other = world.command(&["run", "rare"]).env("AGENT_MAGIC_TOOL_SESSION", "other").output().expect("it starts");
    assert_eq!(world.transcript(&other).exit, 0);
}

#[test]
fn a_session_with_too_many_open_tasks_is_told_when_to_retry() {
    let world = World::new();
    world.configure("[executor]\nopen_tasks_per_session = 2\nopen_bytes_per_session = 1000\n");
    world.define(
        "nap.json",
        &json!({"nap": {"description": "Sleeps for a minute.", "input": {"type": "object"},
        "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "60"]}}}}),
    );
    let oldest = world.start("nap", &json!({}));
    let large = world.run(&["run", "nap", &format!("text={}", "x".repeat(1000))]);
    assert_eq!((large.exit, large.error()["code"].as_str()), (5, Some("throttled")), "{large}");
    world.start("nap", &json!({}));
    let ran = world.run(&["run", "nap"]);
    let hint = format!("try again when a task has ended; your oldest one: agent-magic-tool wait {oldest}");
    assert_eq!((ran.exit, ran.error()["hint"].as_str()), (5, Some(hint.as_str())), "{ran}");
    let other = world.command(&["run", "nap"]).env("AGENT_MAGIC_TOOL_SESSION", "other").output().expect("it starts");
    assert_eq!(world.transcript(&other).exit, 0);
    world.run(&["cancel", &oldest]);
    world.run(&["wait", &oldest]);
    assert_eq!(world.run(&["run", "nap"]).exit, 0);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let world = World::new();
    let script =
        format!("'{}' list --limit=100 | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}", crate::world::PROGRAM);
    let ran = world.transcript(&world.within("bash", &["-c", &script]).output().expect("bash"));
    assert_eq!(ran.stdout.trim(), "0", "{ran}");
}

#[test]
fn exceeding_the_rate_limit_switches_the_subtool_off_for_the_session() {
    let world = World::new();
    let allow = |calls: u32| {
        world.define("send.json", &json!({"send": {"description": "Sends.", "input": {}, "annotations": {"readOnlyHint": true},
            "rate_limit": {"calls": calls, "per": "1h", "auto_disable": true}, "run": {"process": {"argv": ["true"]}}}}));
    };
    let call = |session: &str| {
        let mut command = world.command(&["run", "send", "--wait"]);
        world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("it runs"))
    };
    allow(1);
    assert_eq!(call("a").exit, 0);
    let limited = call("a");
    assert_eq!((limited.exit, &limited.error()["code"]), (5, &json!("rate-limited")), "{limited}");
    assert_eq!(
        limited.error()["message"],
        "`send` allows a session 1 call per 1h; it is now switched off for this session"
    );
    let hint = "only a human can switch it on again: agent-magic-tool executor switch-on send --session a";
    assert_eq!((&limited.error()["hint"], limited.error().get("details")), (&json!(hint), None), "{limited}");
    let planned = world.command(&["run", "send", "--dry-run"]).env("AGENT_MAGIC_TOOL_SESSION", "a").output();
    let planned = world.transcript(&planned.expect("it runs"));
    assert_eq!((planned.exit, &planned.error()["code"]), (5, &json!("switched-off")), "{planned}");
    // With the higher limit the call would be allowed if the subtool were not switched off.
    allow(100);
    world.kill_executor();
    assert_snapshot!(call("a"), @r#"
    exit: 5
    --- stderr
    {"error":{"code":"switched-off","message":"`send` is switched off for this session, which exceeded its rate limit","hint":"only a human can switch it on again: agent-magic-tool executor switch-on send --session a"}}
    "#);
    assert_eq!(call("b").exit, 0, "other sessions are not affected");
    let doctor = world.run(&["doctor"]);
    assert!(doctor.exit == 0 && doctor.stdout.contains("`send` for the session `a`, since "), "{doctor}");

    assert_eq!(world.run(&["executor", "switch-on", "send", "--session", "b"]).exit, 3);
    let on = world.run(&["executor", "switch-on", "send"]);
    assert_eq!((on.exit, &on.json()["switched_on"][0]["session"]), (0, &json!("a")), "{on}");
    assert_eq!(call("a").exit, 0);

    // The calls from before it was switched on count no more, also for the next executor.
    allow(1);
    assert_eq!(call("a").error()["code"], "rate-limited");
    for restarts in [false, true] {
        assert_eq!(call("a").error()["code"], "switched-off");
        assert_eq!(world.run(&["executor", "switch-on", "send"]).exit, 0);
        if restarts {
            world.kill_executor();
        }
        assert_eq!(call("a").exit, 0, "restarted: {restarts}");
        assert_eq!(call("a").error()["code"], "rate-limited", "restarted: {restarts}");
    }
}

#[test]
fn a_rate_limit_of_a_tag_counts_all_its_subtools_before_a_human_is_asked() {
    let world = World::new();
    let pay = |confirm: &str| {
        json!({"description": "Pays.", "input": {}, "tags": ["money"], "confirm": confirm,
            "run": {"process": {"argv": ["true"]}}})
    };
    world.define("pay.json", &json!({"pay_ann": pay("never"), "pay_bob": pay("never"), "pay_eve": pay("always")}));
    world.configure("[rate_limits.tags]\nmoney = { calls = 2, per = \"1h\", auto_disable = true }\n");
    let call = |name: &str| world.run(&["run", name]);
    assert_eq!((call("pay_ann").exit, call("pay_bob").exit), (0, 0));
    let limited = call("pay_eve");
    assert_eq!((limited.exit, &limited.error()["code"]), (5, &json!("rate-limited")), "{limited}");
    assert_eq!(
        limited.error()["message"],
        "the subtools with the tag `money` allow a session 2 calls per 1h; it is now switched off for this session"
    );
    assert_eq!(world.run(&["executor", "status"]).json()["page"]["waiting"], 0, "no human was asked");
    assert_eq!(call("pay_eve").error()["code"], "switched-off");
    // A running executor obeys other limits; 0 calls means none.
    world.configure("[rate_limits.tags]\nmoney = { calls = 0, per = \"1h\" }\n[rate_limits.tools]\npay_bob = { calls = 1, per = \"10m\" }\n");
    assert_eq!((call("pay_ann").exit, call("pay_bob").exit), (0, 0));
    assert_eq!(call("pay_bob").error()["message"], "`pay_bob` allows a session 1 call per 10m");
}
