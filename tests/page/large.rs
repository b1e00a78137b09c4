//! Inputs of a megabyte in a real browser: they are shown whole, at once, and can be read to the end.

use serde_json::{Value, json};

use super::card::APPROVE;
use crate::browser::Tab;
use crate::world::World;

/// The most elements of a card, whatever its input: a browser draws this many at once.
const MAX_ELEMENTS: u64 = 60_000;
/// The most characters that are laid out together.
const MAX_ROW_CHARS: u64 = 12_000;
/// How many times as long as a short text it may take until one is drawn. They take up to 12 times as long; one line of
/// 800 KB took 120 times before it was broken.
const MAX_RATIO: f64 = 60.0;

fn world() -> World {
    let world = World::new();
    let any = json!({"type": "object", "properties": {"text": {}}});
    world.define(
        "large.json",
        &json!({"count": {"description": "Counts bytes.", "input": any,
            "run": {"process": {"argv": ["sh", "-c", "wc -c"], "stdin": "{{ text }}"}}}}),
    );
    world
}

/// The inputs that were hard on a browser, by name.
fn inputs() -> [(&'static str, Value); 6] {
    let line = "a line of ordinary length, such as there are in most of the texts that agents write\n";
    let values: Vec<_> = (100_000..100_120).collect();
    let tree: Vec<_> = (0..1_100).map(|id| json!({"id": id, "nested": {"on": true, "values": values}})).collect();
    [
        ("one line", "word".repeat(200_000).into()),
        ("empty lines", "\n".repeat(520_000).into()),
        ("ordinary lines", line.repeat(1_000_000 / line.len()).into()),
        ("short lines", "a\n".repeat(340_000).into()),
        ("invisible characters", "a\u{200b}".repeat(250_000).into()),
        ("a tree", json!(tree)),
    ]
}

/// Opens the page, and returns after how many milliseconds the card of this task has been drawn.
async fn drawn_after(world: &World, tab: &mut Tab, id: &str) -> f64 {
    tab.go(&world.site().origin()).await;
    let mut card = tab.card(id);
    card.appears().await;
    // Two frames after it appeared, it has been drawn.
    let drawn = "e => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => \
                 done([performance.now(), e.getBoundingClientRect().height > 0]))))";
    let drawn = card.call(APPROVE, drawn).await;
    assert!(drawn[1] == true, "{drawn}");
    drawn[0].as_f64().expect("a time")
}

#[tokio::test]
async fn a_megabyte_of_any_shape_is_shown_whole_and_at_once() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    for (name, input) in inputs() {
        // Right before, under the same load.
        let short = world.start("count", &json!({"text": "short"}));
        let short_took = drawn_after(&world, &mut tab, &short).await;
        assert_eq!(world.run(&["cancel", &short]).exit, 0, "{name}");
        let text = input.as_str().map_or_else(|| serde_json::to_string_pretty(&input).expect("JSON"), str::to_owned);
        let ran = world.run_with(&["run", "count", "--input", "-"], &json!({"text": input}).to_string());
        assert_eq!(ran.exit, 0, "{name}: {ran}");
        let id = ran.json()["id"].as_str().expect("an id").to_owned();
        let took = drawn_after(&world, &mut tab, &id).await;
        assert!(took < MAX_RATIO * short_took, "{name}: {took} ms, a short text {short_took}");
        let mut card = tab.card(&id);

        let value = "[data-shown='/text'] .value";
        let elements = card.call("", "e => e.querySelectorAll('*').length").await;
        let longest = "e => Math.max(...[...e.querySelectorAll('.line:not(.fold)')].map(l => l.textContent.length), 0)";
        let longest = card.call(value, longest).await;
        assert!(elements.as_u64() < Some(MAX_ELEMENTS), "{name}: {elements} elements");
        assert!(longest.as_u64() < Some(MAX_ROW_CHARS), "{name}: {longest} characters in one row");
        if name == "invisible characters" {
            let end = card.call(value, "e => e.textContent.slice(-18)").await;
            assert_eq!(end, r"a\u{200B}a\u{200B}", "{name}");
        } else {
            assert_eq!(card.call(value, "e => e.textContent.length").await, text.len(), "{name}: nothing is left out");
            let end: String = text[text.len() - 20..].to_owned();
            assert_eq!(card.call(value, "e => e.textContent.slice(-20)").await, end, "{name}");
        }
        if name == "empty lines" {
            assert_eq!(card.call(".fold", "e => e.dataset.fold").await, "520001 empty lines");
        }
        // It must be read to the end, and one click leads there; where it is one fold, its end is in view already.
        if name != "empty lines" {
            card.is_armed().await;
            assert!(card.is_blocked().await, "{name}: its end was not seen");
            card.click("[data-action=end]").await;
        }
        card.until(APPROVE, "e => e.ariaDisabled !== 'true'").await;
        card.approve().await;
        card.closes().await;
        let ended = world.end_of(&id);
        assert_eq!(ended["status"], "succeeded", "{name}: {}", ended["error"]);
    }
    assert_eq!(tab.errors, [] as [String; 0]);
}

/// What is selected is copied as it is, although a long line is broken and empty lines are folded.
#[tokio::test]
async fn a_copy_of_a_value_is_exact() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let text = format!("start\n\n\n\n\n\n\n{}last\nend", "word ".repeat(3_000));
    let id = world.start("count", &json!({"text": text}));
    let mut card = tab.card(&id);
    card.is_armed().await;
    let copied = "e => { getSelection().selectAllChildren(e); const data = new DataTransfer(); \
                  e.dispatchEvent(new ClipboardEvent('copy', {clipboardData: data, bubbles: true, cancelable: true})); \
                  return data.getData('text/plain'); }";
    let copied = card.call("[data-shown='/text'] .value", copied).await;
    assert!(copied == text.as_str(), "{} characters of {}", copied.as_str().map_or(0, str::len), text.len());
    let labels = "e => [...e.querySelectorAll('.line')].map(line => line.dataset.n).slice(0, 4)";
    assert_eq!(card.call("[data-shown='/text'] .value", labels).await, json!(["1", "2–7", "8", ""]));
}
