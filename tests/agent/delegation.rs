//! Delegation: a plain model request, a model that makes one call, a sub-agent; and their limits.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::aimock::{Model, counting, story};
use crate::world::{Transcript, World, until};

/// One slot for tasks: a task that waits for another one must not hold it.
const ONE_SLOT: &str = "[executor]\nconcurrency = 1\n";

/// A subtool that needs confirmation.
fn writing() -> Value {
    json!({"write_note": {
        "description": "Writes a note.",
        "input": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "run": {"process": {"argv": ["sh", "-c", "printf %s \"$0\" >note; printf written", "{{ text }}"]}}
    }})
}

/// The rules of a model that calls `tool` if it is offered, and then reports the result.
fn calls(tool: &str, arguments: &Value) -> Value {
    json!([
        {"tools": true, "calls": [{"name": tool, "arguments": arguments}]},
        {"tools": false, "seen": "tool_response", "last": "\"data\":\\s*\"?(\\w+)", "says": "It came to $1."},
    ])
}

/// Runs the program with additional environment variables.
fn run_as(world: &World, environment: &[(&str, &str)], arguments: &[&str]) -> Transcript {
    world.transcript(&world.command(arguments).envs(environment.iter().copied()).output().expect("the program starts"))
}

/// Returns the newest open task of a subtool.
fn open_task(world: &World, tool: &str) -> String {
    let mut found = None;
    until("the call is delegated", || {
        let open = world.run(&["tasks", "--state", "pending"]).json();
        found = open.as_array().expect("a list").iter().find(|task| task["tool"] == tool).cloned();
        found.is_some()
    });
    found.expect("found")["id"].as_str().expect("an id").to_owned()
}

/// Returns the sub-agent processes of this world.
fn sub_agents(world: &World) -> Vec<PathBuf> {
    let mark = format!("AGENT_MAGIC_TOOL_DIR={}", world.mailbox().display());
    let has = |process: &PathBuf, file: &str, words: &str| {
        String::from_utf8_lossy(&fs::read(process.join(file)).unwrap_or_default()).contains(words)
    };
    let processes = fs::read_dir("/proc").expect("processes").flatten().map(|entry| entry.path());
    processes.filter(|process| has(process, "cmdline", "--delegated") && has(process, "environ", &mark)).collect()
}

#[test]
fn a_plain_request_contains_only_the_prompt() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Jahresbericht"}]), "") else { return };
    let prompt = "Translate into German: 年度报告";
    let result = world.result_of("llm_text", &json!({"prompt": prompt}));
    assert_eq!((&result["data"], &result["_meta"]["model"]), (&json!("Jahresbericht"), &json!("openai")), "{result:#}");
    assert_eq!(result["_meta"]["usage"]["requests"], 1);
    assert!(result["_meta"]["usage"]["cost"].as_f64().expect("a sum") > 0.0, "{result:#}");
    for (more, system) in [(json!({}), None), (json!({"system": "Be brief.", "temperature": 0.5}), Some("Be brief."))] {
        let mut input = json!({"prompt": prompt});
        input.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        world.result_of("llm_text", &input);
        let asked = model.asked().pop().expect("a request");
        let messages: Vec<_> = asked["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|message| (message["role"].as_str().expect("a role"), message["content"].as_str().expect("words")))
            .collect();
        let expected: Vec<_> = system.map(|words| ("system", words)).into_iter().chain([("user", prompt)]).collect();
        assert_eq!(messages, expected);
        assert!(asked.get("tools").is_none(), "{asked}");
        assert_eq!(asked.get("temperature").is_some(), system.is_some(), "{asked}");
    }
}

#[test]
fn every_provider_answers_and_an_unknown_model_is_an_error() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Yes."}]), "") else { return };
    for provider in super::aimock::PROVIDERS {
        let result = world.result_of("llm_text", &json!({"prompt": "Well?", "model": provider}));
        assert_eq!(result["data"], "Yes.", "{provider}: {result:#}");
    }
    let result = world.result_of("llm_text", &json!({"prompt": "Well?", "model": "gemni"}));
    let error = &result["error"];
    assert_eq!((&error["code"], &error["hint"]), (&json!("no-model"), &json!("did you mean `gemini`?")), "{result:#}");
    assert_eq!(model.asked().len(), super::aimock::PROVIDERS.len());
}

#[test]
fn a_transient_failure_is_retried_and_another_one_is_reported() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"fails": 503, "times": 1}, {"fails": 401}]), "") else { return };
    let result = world.result_of("llm_text", &json!({"prompt": "Well?"}));
    assert_eq!(result["error"]["code"], "model-failed", "{result:#}");
    assert_eq!(result["error"]["message"], "the provider of the model `openai` rejected the API key");
    assert_eq!((&result["_meta"]["attempts"], model.asked().len()), (&json!(2), 2));
}

#[test]
fn without_a_model_the_delegating_subtools_are_hidden() {
    let world = World::new();
    let names = world.run(&["list", "--format", "names", "--limit", "1000"]);
    assert!(!names.stdout.contains("llm_text") && !names.stdout.contains("ask_agent"), "{names}");
    world.define(
        "own.json",
        &json!({"translate": {"description": "Translates.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"llm": {"prompt": "Translate."}}}}),
    );
    let result = world.result_of("translate", &json!({}));
    assert_eq!(result["error"]["code"], "no-model", "{result:#}");
    assert!(result["error"]["hint"].as_str().expect("a hint").contains("[models.NAME]"), "{result:#}");
}

#[test]
fn a_model_that_makes_a_call_sees_one_tool_and_reports_the_result() {
    let world = World::new();
    world.define("count.json", &counting());
    let rules = calls("count_words", &json!({"text": "年度 b c"}));
    let Some(model) = Model::start(&world, &rules, ONE_SLOT) else { return };
    for provider in super::aimock::PROVIDERS {
        let before = model.asked().len();
        let input = json!({"tool": "count_words", "prompt": "Count the words of: 年度 b c", "model": provider});
        let result = world.result_of("llm_tool", &input);
        assert_eq!(result["data"], "It came to 3.", "{provider}: {result:#}");
        assert_eq!(result["_meta"]["usage"]["requests"], 2, "{provider}");
        let called = world.result_file(result["_meta"]["call"]["id"].as_str().expect("an id"));
        assert_eq!((&called["tool"], &called["data"]), (&json!("count_words"), &json!("3")), "{provider}");
        assert_eq!(model.asked().len() - before, 2, "{provider}");
    }
    let first = &model.asked()[0];
    let tools = first["tools"].as_array().expect("tools");
    assert_eq!((tools.len(), &tools[0]["function"]["name"]), (1, &json!("count_words")));
    assert_eq!(first["messages"].as_array().expect("messages").len(), 1, "no other message: {first}");
    let result = world.result_of("llm_tool", &json!({"tool": "count_word", "prompt": "Count."}));
    assert_eq!(result["error"]["code"], "unknown-subtool", "{result:#}");
}

#[test]
fn a_call_waits_for_approval_and_a_denial_is_reported() {
    let world = World::new();
    world.define("write.json", &writing());
    let Some(_model) = Model::start(&world, &calls("write_note", &json!({"text": "hello"})), ONE_SLOT) else { return };
    let input = json!({"tool": "write_note", "arguments": {"text": "hello"}});
    let denied = world.start("llm_tool", &input);
    world.decide(&open_task(&world, "write_note"), "deny", "");
    let result = world.run(&["wait", &denied]).json();
    assert_eq!(result["error"]["code"], "denied", "{result:#}");
    assert!(!world.folder().join("note").exists());

    let rules = calls("write_note", &json!({"text": "again"}));
    let Some(_model) = Model::start(&world, &rules, ONE_SLOT) else { return };
    world.run(&["executor", "stop"]);
    let approved = world.start("llm_tool", &json!({"tool": "write_note", "arguments": {"text": "again"}}));
    world.decide(&open_task(&world, "write_note"), "approve", "");
    let result = world.run(&["wait", &approved]).json();
    assert_eq!(result["data"], "It came to written.", "{result:#}");
    assert_eq!(fs::read_to_string(world.folder().join("note")).expect("a note"), "again");
}

#[test]
fn a_call_that_is_not_approved_in_time_is_cancelled_and_the_error_says_so() {
    let world = World::new();
    world.define("write.json", &writing());
    world.define(
        "own.json",
        &json!({"note_it": {"description": "Has a note written.", "input": {}, "confirm": "never", "timeout": "1s",
            "annotations": {"idempotentHint": true}, "run": {"llm": {"prompt": "Write it.", "tool": "write_note"}}}}),
    );
    let Some(_model) = Model::start(&world, &calls("write_note", &json!({"text": "late"})), ONE_SLOT) else { return };
    let result = world.result_of("note_it", &json!({}));
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("timed_out"), &json!("timed-out")), "{result:#}");
    assert!(result["error"]["hint"].as_str().expect("a hint").contains("waiting for a human's approval"), "{result:#}");
    let called = world.result_file(result["error"]["details"]["call"]["id"].as_str().expect("an id"));
    assert_eq!(called["status"], "cancelled", "a later approval must have no effect: {called:#}");
}

#[test]
fn a_sub_agent_works_by_itself_and_its_answer_is_the_result() {
    let world = World::new();
    world.define("count.json", &counting());
    let Some(model) = Model::start(&world, &story(), ONE_SLOT) else { return };
    let input = json!({"prompt": "How many words are in 年度 b c?", "subtools": ["count_*"]});
    let result = world.result_of("ask_agent", &input);
    assert_eq!(result["data"], "There are 3 words.", "{result:#}");
    let meta = &result["_meta"];
    assert_eq!((&meta["termination"], &meta["usage"]["requests"]), (&json!("completed"), &json!(5)), "{result:#}");
    let journal = fs::read_to_string(meta["journal"].as_str().expect("a path")).expect("a journal");
    assert!(journal.contains("How many words"), "{journal}");
    assert_eq!(world.run(&["agent", "--sessions"]).json(), json!([]), "nobody goes on with it by accident");
    assert_eq!(model.asked()[0]["tools"].as_array().expect("tools").len(), 1);
}

#[test]
fn a_sub_agent_can_use_only_its_tool_scope() {
    let world = World::new();
    world.define("count.json", &counting());
    world.define("write.json", &writing());
    let rules = json!([
        {"last": "^Look around", "runs": [
            "agent-magic-tool list tools --format=names --limit=1000",
            "agent-magic-tool run write_note --input='{\"text\": \"x\"}'",
            "agent-magic-tool inspect write_note",
            "agent-magic-tool run llm_tool --input='{\"tool\": \"write_note\", \"prompt\": \"x\"}'",
        ]},
        {"says": "Seen."},
    ]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let result = world.result_of("ask_agent", &json!({"prompt": "Look around", "subtools": ["count_*"]}));
    assert_eq!(result["data"], "Seen.", "{result:#}");
    let results: Vec<_> = model.asked()[1]["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().expect("words").to_owned())
        .collect();
    assert_eq!(results[0].split_whitespace().collect::<String>(), "[\"count_words\"]");
    for refused in &results[1..] {
        assert!(refused.contains("unknown-subtool"), "{refused}");
    }
    // The executor enforces the scope, whatever the caller sends.
    for scope in ["[[\"count_*\"]]", "[[\"*\"],[\"count_*\"]]"] {
        let ran = run_as(&world, &[("AGENT_MAGIC_TOOL_SCOPE", scope)], &["run", "write_note", "text=x"]);
        assert_eq!((ran.exit, ran.error()["code"].as_str()), (3, Some("unknown-subtool")), "{scope}: {ran}");
    }
    for wrong in ["no list", "[\"count_*\"]", "[[\"a[b\"]]", "[]"] {
        for arguments in [&["run", "write_note", "text=x"][..], &["list"]] {
            let ran = run_as(&world, &[("AGENT_MAGIC_TOOL_SCOPE", wrong)], arguments);
            assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("bad-config")), "{wrong}: {ran}");
            assert!(ran.error()["message"].as_str().expect("a message").contains("AGENT_MAGIC_TOOL_SCOPE"), "{ran}");
        }
    }
    assert!(!world.folder().join("note").exists());
}

#[test]
fn a_sub_agent_cannot_delegate_further() {
    let world = World::new();
    let rules = json!([
        {"last": "^Go on", "runs": [
            "agent-magic-tool run ask_agent --input='{\"prompt\": \"Go on\"}'",
            "agent-magic-tool run llm_tool --input='{\"prompt\": \"x\", \"tool\": \"ask_agent\"}'",
            "AGENT_MAGIC_TOOL_DEPTH=0 agent-magic-tool run ask_agent prompt=x",
            "agent-magic-tool run llm_text prompt=hello --wait",
        ]},
        {"last": "^hello", "says": "Hello."},
        {"says": "Here it ends."},
    ]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let result = world.result_of("ask_agent", &json!({"prompt": "Go on"}));
    assert_eq!(result["data"], "Here it ends.", "{result:#}");
    let last = model.asked().pop().expect("a request").to_string();
    assert_eq!(last.matches("too-deep").count(), 2, "{last}");
    assert!(last.contains("Hello."), "a plain request is allowed: {last}");
    assert_eq!(world.run(&["tasks"]).json().as_array().expect("a list").len(), 2);
    // A given depth counts, and an invalid one counts as the greatest depth.
    for depth in ["1", "200", "-1", "none"] {
        let ran = run_as(&world, &[("AGENT_MAGIC_TOOL_DEPTH", depth)], &["run", "ask_agent", "prompt=x"]);
        assert_eq!((ran.exit, ran.error()["code"].as_str()), (5, Some("too-deep")), "{depth}: {ran}");
    }
    // So does one that is no text.
    let unreadable = OsStr::from_bytes(b"0\xff");
    let ran = world.command(&["run", "ask_agent", "prompt=x"]).env("AGENT_MAGIC_TOOL_DEPTH", unreadable).output();
    let ran = world.transcript(&ran.expect("it runs"));
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (5, Some("too-deep")), "{ran}");
}

#[test]
fn a_program_run_for_a_sub_agent_inherits_its_depth_and_scope() {
    let world = World::new();
    world.define(
        "own.json",
        &json!({"where_am_i": {"description": "Prints its depth and scope.", "input": {}, "annotations": {"readOnlyHint": true},
            "run": {"process": {"argv": ["sh", "-c", "echo $AGENT_MAGIC_TOOL_DEPTH $AGENT_MAGIC_TOOL_SCOPE"]}}}}),
    );
    let rules = json!([{"last": "^Where", "runs": ["agent-magic-tool run where_am_i --wait"]}, {"says": "There."}]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    world.result_of("ask_agent", &json!({"prompt": "Where are you?", "subtools": ["where_*"]}));
    let last = model.asked().pop().expect("a request");
    let printed = last["messages"].as_array().expect("messages").last().expect("one")["content"].to_string();
    assert!(printed.contains("1 [[") && printed.contains("where_*"), "{printed}");
    assert_eq!(world.result_of("where_am_i", &json!({}))["data"], "");
}

#[test]
fn a_sub_agent_has_limits_and_a_truncated_answer_says_so() {
    let world = World::new();
    let rules =
        json!([{"tools": false, "says": "Half of it."}, {"runs": ["agent-magic-tool list tools --query=mail"]}]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let result = world.result_of("ask_agent", &json!({"prompt": "For ever", "steps": 2}));
    let answer = result["data"].as_str().expect("an answer");
    assert!(answer.starts_with("Half of it.") && answer.contains("incomplete"), "{result:#}");
    assert_eq!((&result["_meta"]["truncated"], model.asked().len()), (&json!(true), 3));
}

#[test]
fn a_cancelled_sub_agent_leaves_nothing_running() {
    let world = World::new();
    world.define("count.json", &counting());
    fs::write(world.folder().join("hold"), "").expect("held");
    let Some(_model) = Model::start(&world, &story(), "") else { return };
    let id = world.start("ask_agent", &json!({"prompt": "How many words are in a b?"}));
    let called = open_task(&world, "count_words");
    assert_eq!(sub_agents(&world).len(), 1);
    assert_eq!(world.run(&["cancel", &id]).exit, 0);
    let result = world.run(&["wait", &id]).json();
    assert_eq!(result["status"], "cancelled", "{result:#}");
    assert_eq!(sub_agents(&world), [] as [PathBuf; 0]);
    let called = world.run(&["wait", &called]).json();
    assert_eq!(called["status"], "cancelled", "its own tasks are cancelled too: {called:#}");
}

#[test]
fn a_prompt_section_is_edited_after_approval() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Hello."}]), "") else { return };
    let folder = world.config_folder().join("prompt/work");
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("10-tone.md"), "Be formal.").expect("written");
    let edit = json!({"section": "tone", "text": "Be brief, 年度."});
    let id = world.start("edit_prompt_section", &edit);
    until("the edit waits for approval", || world.result_file(&id)["state"] == "awaiting_confirmation");
    assert_eq!(fs::read_to_string(folder.join("10-tone.md")).expect("read"), "Be formal.");
    world.decide(&id, "approve", "edit_prompt_section");
    let result = world.run(&["wait", &id]).json();
    assert_eq!(
        (&result["data"]["before"], &result["data"]["after"]),
        (&json!("Be formal."), &edit["text"]),
        "{result:#}"
    );
    assert_eq!(world.run(&["agent", "Hello"]).exit, 0);
    let system = model.asked()[0]["messages"][0]["content"].as_str().expect("a prompt").to_owned();
    assert!(system.ends_with("# work\n\n## tone\n\nBe brief, 年度."), "{system}");

    for (input, message) in [
        (r#"{"section": "work", "text": "x"}"#, "prompt section `work` is a folder; only a file can be edited"),
        (r#"{"section": "work", "change": "delete"}"#, "prompt section `work` is a folder; only a file can be edited"),
        (r#"{"section": "mood", "text": "x"}"#, "no prompt section named `mood`; available: work, tone"),
        (r#"{"section": "tone"}"#, "`text` is missing"),
    ] {
        let refused = world.run(&["run", "edit_prompt_section", "--input", input]);
        assert_eq!(refused.error()["message"], message, "no human is asked: {refused}");
    }
    let id = world.start("edit_prompt_section", &json!({"section": "tone", "text": "Be kind.", "change": "append"}));
    world.decide(&id, "approve", "edit_prompt_section");
    let result = world.run(&["wait", &id]).json();
    assert_eq!(result["data"]["after"], "Be brief, 年度.\n\nBe kind.\n", "{result:#}");
    let shown = world.result_of("read_prompt_sections", &json!({}));
    let tree = json!([{"name": "work", "sections": [{"name": "tone", "bytes": 28}]}]);
    assert_eq!(shown["data"], tree, "{shown:#}");
}

#[test]
fn a_plan_shows_the_request() {
    let world = World::new();
    let Some(_model) = Model::start(&world, &json!([{"says": "x"}]), "") else { return };
    let ran = world.run(&["run", "ask_agent", "--input", r#"{"prompt": "Go", "subtools": ["git_*"]}"#, "--dry-run"]);
    let plan = &ran.json()["would_send"]["agent"];
    assert_eq!(plan, &json!({"prompt": "Go", "model": "openai", "subtools": [["git_*"]]}), "{ran}");
}
