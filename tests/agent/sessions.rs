//! Sessions: numbered, listed, continued, deleted; the report of a question; the system prompt.

use serde_json::json;

use super::aimock::{Model, counting, story};
use crate::world::World;

#[test]
fn sessions_are_numbered_continued_and_deleted() {
    let world = World::new();
    let rules = json!([{"last": "again", "seen": "first question", "says": "I remember."}, {"says": "Noted."}]);
    let Some(_model) = Model::start(&world, &rules, "") else { return };
    assert_eq!(world.run(&["agent", "first question"]).stdout, "Noted.\n");
    assert_eq!(world.run(&["agent", "other"]).stdout, "Noted.\n");
    assert_eq!(world.run(&["agent", "--session", "101", "again"]).stdout, "I remember.\n");
    assert_eq!(world.run(&["agent", "--continue", "again"]).stdout, "Noted.\n");
    let listed = world.run(&["agent", "--sessions"]).json();
    let short: Vec<_> =
        listed.as_array().expect("a list").iter().map(|one| (&one["number"], &one["question"])).collect();
    assert_eq!(short, [(&json!(101), &json!("first question")), (&json!(102), &json!("other"))]);
    assert_eq!(world.run(&["agent", "--delete", "101"]).exit, 0);
    let gone = world.run(&["agent", "--session", "101", "again"]);
    assert_eq!((gone.exit, gone.error()["code"].as_str()), (3, Some("not-found")), "{gone}");
}

#[test]
fn without_a_model_the_error_says_how_to_configure_one() {
    let world = World::new();
    let ran = world.run(&["agent", "Hello"]);
    assert_eq!((ran.exit, ran.error()["code"].as_str()), (2, Some("no-model")), "{ran}");
    let ran = world.run(&["agent", "--model", "gpt", "Hello"]);
    assert_eq!(ran.error()["message"], "no model named `gpt`");
    let empty = world.run(&["agent", " "]);
    assert_eq!((empty.exit, empty.error()["message"].as_str()), (2, Some("the question is empty")));
}

#[test]
fn a_focus_is_analyzed_and_reported() {
    let world = World::new();
    world.define("count.json", &counting());
    let mut rules = story();
    rules[0]["last"] = "^Analyze this: the words".into();
    let Some(model) = Model::start(&world, &rules, "") else { return };
    let report = world.folder().join("report.md");
    let ran = world.run(&["agent", "--focus", "the words", "--report", "report.md"]);
    assert_eq!(ran.exit, 0, "{ran}");
    let text = std::fs::read_to_string(&report).expect("a report");
    assert!(text.starts_with("There are 3 words.\n\n---\n"), "{text}");
    assert!(text.contains("- ended: completed\n") && text.contains("- ran count_words: `"), "{text}");
    assert!(model.asked()[0]["messages"][0].to_string().contains("Keep to this: the words"));
}

#[test]
fn the_system_prompt_is_shown_with_the_sections_of_the_user() {
    let world = World::new();
    let own = world.run(&["agent", "--show-prompt"]);
    let tokens = own.json()["tokens"].as_u64().expect("counted");
    assert!(tokens < 600, "{tokens}");
    let prompt = world.config_folder().join("prompt");
    std::fs::create_dir_all(prompt.join("10-house")).expect("made");
    std::fs::write(prompt.join("10-house/names.md"), "Call me Ann.\n").expect("written");
    let shown = world.run(&["agent", "--show-prompt"]).json();
    assert!(shown["prompt"].as_str().expect("words").ends_with("# house\n\n## names\n\nCall me Ann."), "{shown:#}");
    assert_eq!(shown["sections"][0]["sections"][0]["name"], "names");
    std::fs::write(prompt.join("names.md"), "Twice.").expect("written");
    let duplicate = world.run(&["agent", "--show-prompt"]);
    assert_eq!(duplicate.error()["code"], "bad-config", "{duplicate}");
    assert!(
        duplicate.error()["message"].as_str().expect("words").contains("two prompt sections are named `names`"),
        "{duplicate}"
    );
}
