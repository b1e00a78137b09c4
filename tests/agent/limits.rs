//! The limits of a question, and what happens when it reaches them.

use serde_json::json;

use super::aimock::{Model, counting};
use super::story::entries_of;
use crate::world::World;

#[test]
fn after_the_last_step_a_request_without_tools_gets_the_answer() {
    let world = World::new();
    let rules = json!([
        {"tools": false, "says": "What I have so far."},
        {"runs": ["agent-magic-tool list tools --query=x$1"], "last": "(.)"},
    ]);
    let Some(model) = Model::start(&world, &rules, "steps = 4\nreflect_after = 3\n") else { return };
    for provider in super::aimock::PROVIDERS {
        let before = model.asked().len();
        let ran = world.run(&["agent", "--json", "--model", provider, "Go on for ever"]);
        assert_eq!(ran.exit, 6, "{provider}: {ran}");
        let outcome = ran.json();
        assert_eq!(outcome["answer"], "What I have so far.");
        assert_eq!((&outcome["termination"], &outcome["truncated"]), (&json!("max_iterations"), &json!(true)));
        let asked = model.asked().split_off(before);
        assert_eq!(asked.len(), 5, "{provider}");
        assert!(asked[3].get("tools").is_some_and(|tools| !tools.is_null()), "{provider}");
        assert!(asked[4].get("tools").is_none_or(serde_json::Value::is_null), "{provider}: {}", asked[4]);
        assert!(asked[4].get("tool_choice").is_none_or(serde_json::Value::is_null), "{provider}");
    }
}

#[test]
fn a_model_that_repeats_itself_is_told_so() {
    let world = World::new();
    let rules = json!([
        {"last": "made this very call before", "says": "You are right."},
        {"runs": ["agent-magic-tool list tools --query=mail"]},
    ]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let ran = world.run(&["agent", "--json", "Loop"]);
    assert_eq!(ran.json()["answer"], "You are right.", "{ran}");
    assert_eq!(model.asked().len(), 3);
}

#[test]
fn a_used_up_budget_ends_the_question_and_lists_open_tasks() {
    let world = World::new();
    world.define("count.json", &counting());
    std::fs::write(world.folder().join("hold"), "").expect("held");
    let rules = json!([{"runs": ["agent-magic-tool run count_words text=a"], "times": 1}, {"says": "never asked"}]);
    let Some(model) = Model::start(&world, &rules, "tokens = 100\n") else { return };
    let ran = world.run(&["agent", "--json", "Count"]);
    assert_eq!(ran.exit, 6, "{ran}");
    let outcome = ran.json();
    assert_eq!((&outcome["termination"], &outcome["truncated"]), (&json!("budget_exhausted"), &json!(true)));
    assert!(outcome["answer"].as_str().expect("words").contains("after 1 request and"), "{ran}");
    assert_eq!(outcome["open"].as_array().expect("a list").len(), 1);
    assert_eq!(model.asked().len(), 1);
}

#[test]
fn a_large_result_is_cut_before_the_model_reads_it() {
    let world = World::new();
    std::fs::write(world.folder().join("large.txt"), "年度报告 ".repeat(20_000)).expect("written");
    let rules = json!([{"last": "^Read", "runs": ["agent-magic-tool run read_file path=large.txt --wait"]}, {"says": "Large."}]);
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let ran = world.run(&["agent", "--json", "Read it"]);
    assert_eq!(ran.json()["answer"], "Large.", "{ran}");
    let results = &entries_of(&world, 101, "called")[0]["results"];
    let text = results[0]["text"].as_str().expect("a text");
    assert!(text.len() <= 50_000, "{} bytes", text.len());
    assert!(model.asked()[1].to_string().len() < 120_000);
}

#[test]
fn the_oldest_exchanges_are_left_out_and_the_first_question_stays() {
    let world = World::new();
    let rules = json!([
        {"seen": "q12", "last": "", "says": "Enough."},
        {"last": "(\\d*)", "runs": ["echo q1", "echo q12"], "times": 1},
        {"says": "done"},
    ]);
    let Some(model) =
        Model::start(&world, &rules, "[models.short]\nprovider = \"openai\"\nmax_context = 4\nurl = \"URL\"\n")
    else {
        return;
    };
    let config = std::fs::read_to_string(world.config_folder().join("config.toml")).expect("read");
    let url = config.lines().find_map(|line| line.strip_prefix("url = \"http")).expect("a URL").to_owned();
    world.configure(&config.replace("url = \"URL\"", &format!("url = \"http{url}")));
    for number in 1..=4 {
        let question = format!("Question {number}");
        let mut words = vec!["agent", "--json", "--model", "short", &question];
        if number > 1 {
            words.extend(["--session", "101"]);
        }
        let ran = world.run(&words);
        assert_eq!(ran.exit, 0, "{ran}");
    }
    let asked = model.asked();
    let last = asked.last().expect("asked")["messages"].to_string();
    assert!(last.contains("Question 1") && last.contains("Question 4"), "{last}");
    assert!(!last.contains("Question 2") && last.contains("older messages are left out"), "{last}");
}
