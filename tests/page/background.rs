//! What a card shows beside the request: risk marks, differences, what the session did; and deciding for a whole session.

use serde_json::{Value, json};

use super::human::Human;
use crate::world::{World, until};

/// A world whose subtool `send` writes its recipient to a file.
fn world() -> World {
    let world = World::new();
    let properties = json!({"to": {"type": "array", "items": {"type": "string"}}, "cc": {"type": "array", "items": {"type": "string"}},
        "body": {"type": "string"}, "table": {"type": "string"}});
    let run = json!({"process": {"argv": ["true"]}});
    world.define(
        "send.json",
        &json!({
            "send": {"description": "Sends a text.", "input": {"type": "object", "properties": properties}, "run": run},
            "drop_it": {"description": "Drops a table.", "input": {"type": "object", "properties": properties},
                "annotations": {"destructiveHint": true}, "type_to_approve": "{{ table }}", "run": run},
        }),
    );
    world
}

#[tokio::test]
async fn a_card_says_what_stands_out_and_what_the_session_did_before() {
    let world = world();
    world.configure("[[confirm.marks]]\ntools = [\"send\"]\nwhen = \"'urgent' in input.body\"\nsay = \"pressing\"\n");
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let ask = |input: &Value| {
        let mut command = world.command(&["run", "send", "--input", &input.to_string()]);
        let ran = world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", "s").output().expect("the program starts"));
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let first = ask(&json!({"to": ["bob@example.com"], "body": "hello"}));
    tab.card(&first).appears().await;
    assert!(tab.text(&format!("[data-card='{first}'] .marks")).await.contains("you never approved bob@example.com"));
    tab.card(&first).approve().await;
    world.end_of(&first);
    // A known recipient needs no mark; a name that looks like his does.
    let known = ask(&json!({"cc": [], "to": ["bob@example.com"], "body": "urgent: pay"}));
    tab.card(&known).appears().await;
    let marks = tab.text(&format!("[data-card='{known}'] .marks")).await;
    assert!(marks.contains("pressing") && !marks.contains("bob@example.com"), "{marks}");
    let before = format!("[data-card='{known}'] .earlier a");
    assert_eq!(
        tab.value(&format!("document.querySelector(\"{before}\").getAttribute('href')")).await,
        format!("/task/{first}")
    );
    let order = format!(
        "[...document.querySelectorAll(\"[data-card='{known}'] [data-shown]\")].map(e => e.dataset.shown).join()"
    );
    assert_eq!(tab.value(&order).await, "/to,/body,/cc", "copies and empty fields come last");
    let like = ask(&json!({"to": ["bob@exampel.com"], "body": "a | sudo bash"}));
    tab.card(&like).appears().await;
    let marks = tab.text(&format!("[data-card='{like}'] .marks")).await;
    assert!(marks.contains("exampel.com is not example.com") && marks.contains("| sudo bash"), "{marks}");
    assert_eq!(tab.text(&format!("[data-card='{like}'] .items")).await, "bob@exampel.com", "a list of short texts");
}

#[tokio::test]
async fn an_edit_of_a_long_text_is_shown_as_a_difference() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let body = (1..=20).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    let id = world.start("send", &json!({"to": ["bob@example.com"], "body": body}));
    tab.card(&id).is_armed().await;
    tab.card(&id).open("edit").await;
    let field = format!("[data-card='{id}'] [data-form=edit] [data-pointer='/body'] textarea");
    tab.click(&field).await;
    tab.value(&format!(
        "(e => {{ e.value = e.value.replace('line 10', 'line ten'); e.dispatchEvent(new Event('input', {{bubbles: true}})); }})(document.querySelector(\"{field}\"))"
    ))
    .await;
    tab.card(&id).submit("edit").await;
    tab.until("!!document.querySelector('.diff')").await;
    assert_eq!(tab.text(".diff-row.removed").await.trim(), "-\nline 10");
    assert_eq!(tab.text(".diff-row.added").await.trim(), "+\nline ten");
    assert_eq!(tab.text(".diff-fold").await, "6 unchanged lines");
    tab.card(&id).approve_changes().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn everything_that_a_session_has_waiting_is_denied_with_one_reason() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let ask = |session: &str, n: i32| {
        let mut command = world.command(&["run", "send", &format!("body={n}")]);
        let ran =
            world.transcript(&command.env("AGENT_MAGIC_TOOL_SESSION", session).output().expect("the program starts"));
        ran.json()["id"].as_str().expect("an id").to_owned()
    };
    let (mine, other): (Vec<_>, _) = ((0..3).map(|n| ask("stray", n)).collect(), ask("good", 7));
    tab.card(&other).is_armed().await;
    tab.card(&mine[0]).is_armed().await;
    tab.card(&mine[0]).open("deny").await;
    tab.card(&mine[0]).until("[data-form=deny] textarea", "e => e === document.activeElement").await;
    tab.insert("you are on the wrong track").await;
    tab.click(&format!("[data-card='{}'] [data-form=deny] button[value=session]", mine[0])).await;
    for id in &mine {
        let denied = world.end_of(id);
        assert!(denied["error"]["message"].to_string().contains("you are on the wrong track"), "{denied}");
        tab.card(id).closes().await;
    }
    assert_eq!(world.result_file(&other)["state"], "awaiting_confirmation");
    tab.card(&other).approve().await;
    assert_eq!(world.end_of(&other)["status"], "succeeded");
}

#[tokio::test]
async fn what_is_destroyed_is_typed_by_its_name() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("drop_it", &json!({"table": "customers"}));
    tab.card(&id).is_armed().await;
    assert!(tab.text(&format!("[data-card='{id}'] .typed label")).await.contains("customers"));
    assert_eq!(tab.card(&id).approve_by_request("drop_it").await, 422, "the name of the subtool is not enough");
    tab.card(&id).type_word("customers").await;
    tab.card(&id).approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    // A name that cannot be typed is the subtool's.
    let id = world.start("drop_it", &json!({"table": "x".repeat(500)}));
    tab.card(&id).is_armed().await;
    assert!(tab.text(&format!("[data-card='{id}'] .typed label")).await.contains("drop_it"));
}

#[test]
fn the_history_is_saved_as_jsonl_and_csv() {
    let world = world();
    let human = Human::of(&world);
    let id = world.start("send", &json!({"body": "=1+1, \"a\""}));
    assert_eq!(human.deny(&id).status, 200);
    world.end_of(&id);
    let lines = human.get("/history.jsonl?q=&state=denied").body;
    let row: Value =
        serde_json::from_str(lines.lines().find(|line| line.starts_with('{')).expect("a line")).expect("JSON");
    assert_eq!((&row["id"], &row["state"], &row["decided"]), (&json!(id), &json!("denied"), &json!("denied by you")));
    assert_eq!(row["input"], json!({"body": "=1+1, \"a\""}));
    let csv = human.get("/history.csv").body;
    assert!(csv.contains("id,tool,state,") && csv.contains(&format!("\"{id}\",\"send\",\"denied\"")), "{csv}");
    assert!(!human.get("/history.jsonl?state=succeeded").body.contains(&id));
}

/// The page's origin is new at each start, so the browser cannot keep them.
#[tokio::test]
async fn preferences_outlive_the_executor() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    tab.click("[data-action=theme]").await;
    tab.until("document.documentElement.dataset.theme === 'dark'").await;
    until("it is saved", || {
        std::fs::read_to_string(world.executor_folder().join("page-preferences.json"))
            .is_ok_and(|text| text.contains("dark"))
    });
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    tab.go(&world.link()).await;
    tab.until("document.body.classList.contains('signed-in')").await;
    assert_eq!(tab.value("document.documentElement.dataset.theme").await, "dark");
}

#[tokio::test]
async fn the_waiting_requests_are_filtered_and_questions_come_first() {
    let world = world();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let ids: Vec<_> = (0..3).map(|n| world.start("send", &json!({"body": format!("letter-{n}")}))).collect();
    let question = world.start("ask_user", &json!({"question": "Which color?"}));
    for id in ids.iter().chain([&question]) {
        tab.card(id).appears().await;
    }
    tab.go(&format!("{}/", world.site().origin())).await;
    tab.card(&question).appears().await;
    assert_eq!(tab.value("document.querySelector('[data-card]').dataset.card").await, json!(question));
    tab.press("/").await;
    tab.insert("send LETTER-1").await;
    tab.until("document.querySelector('#filter-count').textContent === '1 of 4'").await;
    let shown = "[...document.querySelectorAll('[data-card]:not([hidden])')].map(e => e.dataset.card).join()";
    assert_eq!(tab.value(shown).await, json!(ids[1]));
    tab.card(&ids[1]).approve().await;
    assert_eq!(world.end_of(&ids[1])["status"], "succeeded");
    tab.value("(e => { e.value = ''; e.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('#filter-text'))").await;
    tab.card(&ids[0]).approve().await;
    assert_eq!(world.end_of(&ids[0])["status"], "succeeded");
}

/// The names of fields are the agent's words as well, where the schema allows any.
#[test]
fn a_name_of_a_field_hides_nothing() {
    let world = World::new();
    let run = json!({"process": {"argv": ["true"]}});
    world.define(
        "any.json",
        &json!({"any": {"description": "Takes anything.", "input": {"type": "object"}, "run": run}}),
    );
    let human = Human::of(&world);
    let id = world.start("any", &json!({"\u{202e}evil": 1, "amount\u{200b}": 2}));
    let card = human.get(&format!("/card/{id}")).body;
    let evidence =
        card.split("data-evidence").nth(1).and_then(|rest| rest.split("data-end").next()).expect("the fields");
    let labels: String =
        evidence.split("class=\"label\">").skip(1).filter_map(|rest| rest.split("</bdi>").next()).collect();
    assert!(labels.contains("U+202E") && labels.contains("U+200B"), "{labels}");
    assert!(!labels.contains('\u{202e}') && !labels.contains('\u{200b}'), "{labels}");
}

/// Large inputs of several requests do not keep the page from opening: the first view has few bytes, the rest is loaded.
#[test]
fn a_flood_of_large_inputs_leaves_the_first_view_small() {
    let world = world();
    let human = Human::of(&world);
    for n in 0..7 {
        world.start("send", &json!({"body": format!("{n} {}", "word ".repeat(24_000))}));
    }
    let first = human.get("/").body;
    assert_eq!(first.matches("<article").count(), 4, "the others are loaded one by one");
    assert!(first.contains("<span data-more>3</span>"), "{}", first.len());
}
