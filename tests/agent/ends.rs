//! Models that misbehave and providers that fail: every question ends properly and reports how.

use serde_json::json;

use super::aimock::{Model, counting, story};
use super::story::{entries_of, journal};
use crate::world::World;

#[test]
fn wrong_tools_and_arguments_get_a_result_and_the_model_continues() {
    let world = World::new();
    let rules = json!([
        {"last": "^Try", "calls": [
            {"name": "gmail_send_message", "arguments": {"to": "a"}},
            {"name": "command_executor", "arguments": {"cmd": "x"}},
            {"name": "command_executor", "arguments": {"command": "echo hello"}},
        ]},
        {"says": "Now I know."},
    ]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    for provider in super::aimock::PROVIDERS {
        let before = model.asked().len();
        let ran = world.run(&["agent", "--json", "--model", provider, "Try"]);
        assert_eq!(ran.json()["answer"], "Now I know.", "{provider}: {ran}");
        let second = &model.asked()[before + 1].to_string();
        assert!(second.contains("agent-magic-tool run gmail_send_message"), "{provider}: {second}");
        assert!(second.contains("not an object with a string"), "{provider}: {second}");
        assert!(second.contains("hello"), "{provider}: {second}");
    }
}

#[test]
fn arguments_that_are_not_json_get_a_result() {
    let world = World::new();
    let rules = json!([
        {"last": "^Try", "calls": [{"name": "command_executor", "arguments": "{\"command\": \"agent-magic"}]},
        {"says": "I wrote it wrong."},
    ]);
    let Some(_model) = Model::start(&world, &rules, "") else { return };
    for streaming in [&["agent", "--json", "Try"][..], &["agent", "--json", "--no-stream", "Try"]] {
        let ran = world.run(streaming);
        assert_eq!(ran.json()["answer"], "I wrote it wrong.", "{ran}");
    }
}

#[test]
fn a_transient_failure_is_retried_and_another_is_not() {
    let world = World::new();
    let transient = json!([{"fails": 503, "times": 2}, {"says": "Here I am."}]);
    let Some(model) = Model::start(&world, &transient, "") else { return };
    let ran = world.run(&["agent", "--json", "Hello"]);
    assert_eq!(ran.json()["answer"], "Here I am.", "{ran}");
    assert!(ran.stderr.contains("failed with status 503: as the scenario wants it; trying again in 1s"), "{ran}");
    assert!(ran.stderr.contains("failed with status 503: as the scenario wants it; trying again in 2s"), "{ran}");
    assert_eq!(model.asked().len(), 3);

    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"fails": 401}]), "") else { return };
    let ran = world.run(&["agent", "--json", "Hello"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (1, Some("model-failed")), "{ran}");
    assert_eq!(ran.error()["message"], "the provider of the model `openai` rejected the API key");
    assert_eq!(model.asked().len(), 1);
    let log = std::fs::read_to_string(world.state().join("agent.log")).expect("a log");
    assert!(log.contains("as the scenario wants it"), "{log}");
    assert!(!ran.stderr.contains("as the scenario wants it"), "the provider's message goes to the log only");
    assert_eq!(entries_of(&world, 101, "stopped")[0]["reason"], "provider_failed");
}

#[test]
fn a_model_without_tool_calls_writes_them_as_text_and_sees_the_question_again() {
    let world = World::new();
    world.define("count.json", &counting());
    let mut rules = story();
    for rule in rules.as_array_mut().expect("rules") {
        if let Some(command) = rule["runs"][0].as_str() {
            let call = json!({"name": "command_executor", "arguments": {"command": command}});
            rule["says"] = format!("<tool_call>\n{call}\n</tool_call>").into();
            rule.as_object_mut().expect("a rule").remove("runs");
        }
    }
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let ran = world.run(&["agent", "--json", "--model", "text", "How many words?"]);
    assert_eq!(ran.json()["answer"], "There are 3 words.", "{ran}");
    let asked = model.asked();
    assert!(asked.iter().all(|request| request.get("tools").is_none()));
    let last = asked[1]["messages"].as_array().expect("messages").last().expect("one").clone();
    assert_eq!(last["role"], "user");
    assert!(last["content"].as_str().expect("words").ends_with("The question was: How many words?"), "{last}");
}

#[test]
fn a_greeting_is_answered_without_a_call() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Hello!"}]), "") else { return };
    let ran = world.run(&["agent", "Hello"]);
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "Hello!\n"), "{ran}");
    let system = model.asked()[0]["messages"][0].to_string();
    assert!(system.contains("Do not call anything for a greeting"), "{system}");
}

#[test]
fn a_key_is_sent_to_the_provider_and_appears_nowhere_else() {
    let world = World::new();
    let Some(model) = Model::start(&world, &json!([{"says": "Hello!"}]), "") else { return };
    let config = std::fs::read_to_string(world.config_folder().join("config.toml")).expect("read");
    world.configure(
        &config.replace("provider = \"openai\"\nurl", "provider = \"openai\"\nkey = \"secret:openai\"\nurl"),
    );
    let missing = world.run(&["agent", "Hello"]);
    assert_eq!((missing.exit, missing.error()["code"].as_str()), (1, Some("model-failed")), "{missing}");
    assert!(missing.error()["message"].as_str().expect("words").contains("`openai` is not set"), "{missing}");
    assert_eq!(world.run_with(&["secret", "set", "openai"], "sk-canary-0123456789").exit, 0);
    let ran = world.run(&["agent", "--json", "Hello"]);
    assert_eq!(ran.exit, 0, "{ran}");
    let log = std::fs::read_to_string(world.state().join("agent.log")).unwrap_or_default();
    for text in [&ran.stdout, &ran.stderr, &log, &journal(&world, 101), &model.asked()[0].to_string()] {
        assert!(!text.contains("sk-canary"), "{text}");
    }
}
