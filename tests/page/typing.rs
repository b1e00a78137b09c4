//! What a human types into a request that goes away decides about no other one.

use serde_json::{Value, json};

use super::card::APPROVE;
use crate::browser::Tab;
use crate::world::World;

const FOCUSED_TEXT: &str = "e => e === document.activeElement";

fn definitions() -> Value {
    json!({"mark": {"description": "Leaves a mark.", "confirm": "always",
        "input": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        "run": {"process": {"argv": ["touch", "{{ name }}"], "folder": "."}}}})
}

async fn type_keys(tab: &mut Tab, text: &str) {
    for key in text.chars() {
        tab.press(&key.to_string()).await;
    }
}

#[tokio::test]
async fn text_for_a_request_that_goes_away_approves_no_other_one() {
    let world = World::new();
    world.define("marks.json", &definitions());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    for (number, what) in ["a question", "a denial", "a card"].into_iter().enumerate() {
        let first = if what == "a question" {
            world.start("ask_user", &json!({"question": "Which layout?"}))
        } else {
            world.start("mark", &json!({"name": format!("first-{number}")}))
        };
        tab.card(&first).is_armed().await;
        let other = world.start("mark", &json!({"name": format!("other-{number}")}));
        tab.card(&other).is_armed().await;
        let field = match what {
            "a question" => "[data-field] textarea, [data-field] input",
            "a denial" => {
                tab.card(&first).open("deny").await;
                "[data-form=deny] textarea"
            }
            _ => "",
        };
        if field.is_empty() {
            tab.card(&first).call("", "e => e.focus()").await;
        } else {
            tab.card(&first).click(field).await;
        }
        tab.card(&first).until(field, FOCUSED_TEXT).await;
        type_keys(&mut tab, "I want").await;
        assert_eq!(world.run(&["cancel", &first]).exit, 0, "{what}");
        tab.card(&first).closes().await;
        // Without a text, keys are shortcuts: this one was for the request that went away.
        type_keys(&mut tab, if field.is_empty() { "a" } else { "a wide bar, just at an angle; all right" }).await;
        for key in ["Enter", "Tab", "a", "Tab", "Tab", "Enter", "j", "a", "Enter", " "]
            .into_iter()
            .filter(|_| !field.is_empty())
        {
            tab.press(key).await;
        }
        tab.press("Enter").await;
        assert_eq!(world.result_file(&other)["state"], "awaiting_confirmation", "{what}");
        let focused = tab.card(&other).call("", "e => e.contains(document.activeElement)").await;
        assert_eq!(focused, false, "{what}");

        if !field.is_empty() {
            assert!(tab.card(&first).text("[data-outcome]").await.contains("press Esc to go on"), "{what}");
            tab.press("Escape").await;
            tab.press("j").await;
            let focused = tab.card(&other).call("", "e => e.contains(document.activeElement)").await;
            assert_eq!(focused, true, "{what}: the keyboard works again");
            assert!(!tab.card(&first).text("[data-outcome]").await.contains("press Esc"), "{what}");
        }
        // A request that is chosen deliberately can be decided, and of a button to which a key led a space is no press.
        tab.card(&other).click(".card-about").await;
        tab.card(&other).call("", "e => e.focus()").await;
        tab.press("a").await;
        tab.card(&other).until(APPROVE, FOCUSED_TEXT).await;
        tab.press(" ").await;
        assert_eq!(world.result_file(&other)["state"], "awaiting_confirmation", "{what}");
        tab.press("Enter").await;
        assert_eq!(world.end_of(&other)["status"], "succeeded", "{what}");
    }
    assert_eq!(tab.errors, [] as [String; 0]);
}
