//! A human decides in a browser. What the human saw is what runs, and it runs once.

use std::fs;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use store::Store as _;
use store::sqlite::SqliteStore;

use super::card::APPROVE;
use super::human::Human;
use crate::myworld;
use crate::world::{World, until};

/// The definition of `mark`, which appends `name` to a file and needs a confirmation.
fn marks() -> Value {
    json!({"mark": {
        "description": "Leaves a mark.",
        "input": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2}, "count": {"type": "integer"}}},
        "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}
    }})
}

/// The names that `mark` has written so far.
fn written_marks(world: &World) -> String {
    fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

/// The definition of `slow`, which runs until `let_slow_end` is called.
fn slow() -> Value {
    json!({"description": "Takes its time.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}})
}

fn let_slow_end(world: &World) {
    fs::write(world.folder().join("go"), "").expect("the file is written");
}

#[tokio::test]
async fn an_approved_task_runs_once_and_a_denied_one_never() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let (yes, no) = (world.start("mark", &json!({"name": "yes"})), world.start("mark", &json!({"name": "no"})));
    tab.card(&yes).approve().await;
    let ended = world.end_of(&yes);
    let confirmation = &ended["_meta"]["confirmation"];
    assert_eq!((&ended["status"], &confirmation["decision"]), (&json!("succeeded"), &json!("approved")));
    assert_eq!(confirmation["by"], "human");

    tab.card(&no).deny("not that one").await;
    let ended = world.end_of(&no);
    assert_eq!(ended["status"], "denied");
    assert_eq!(ended["error"]["message"], "a human denied it: not that one");
    assert!(ended["error"]["hint"].as_str().expect("a hint").contains("do not run it again"), "{ended}");
    assert_eq!(written_marks(&world), "yes\n");
    assert_eq!(tab.errors, [] as [String; 0]);
    // The caller that waits exits with the code for a refusal.
    assert_eq!(world.run(&["wait", &no]).exit, 5);
}

#[tokio::test]
async fn an_edited_task_runs_with_the_edited_input_and_its_result_lists_the_changes() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "eve", "count": 9_007_199_254_740_993_i64}));
    let mut card = tab.card(&id);
    card.open("edit").await;
    // An invalid value is reported next to its field.
    card.fill("name", "b").await;
    card.submit("edit").await;
    card.until("[data-pointer='/name'] [data-problem]", "e => e.innerText !== ''").await;
    card.fill("name", "bob").await;
    card.submit("edit").await;
    card.approve_changes().await;
    let ended = world.end_of(&id);
    assert_eq!(written_marks(&world), "bob\n");
    assert_eq!(
        ended["input"],
        json!({"name": "bob", "count": 9_007_199_254_740_993_i64}),
        "unchanged fields keep every digit"
    );
    let confirmation = &ended["_meta"]["confirmation"];
    assert_eq!(confirmation["decision"], "edited");
    assert_eq!(confirmation["changes"], json!([{"op": "replace", "path": "/name", "value": "bob"}]));
}

#[tokio::test]
async fn a_task_that_two_tabs_approve_at_once_runs_once() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let mut other = tab.open_another().await;
    other.go(&format!("{}/", world.site().origin())).await;
    let id = world.start("mark", &json!({"name": "once"}));
    for tab in [&mut tab, &mut other] {
        tab.card(&id).appears().await;
    }
    // Send both requests at once, past the buttons.
    let digest = tab.card(&id).digest().await;
    let approval = json!({"decisions": [{"id": id, "digest": digest}], "verdict": "approve"});
    let (one, two) = tokio::join!(tab.post("/decide", &approval), other.post("/decide", &approval));
    let mut statuses = [one.as_u64(), two.as_u64()];
    statuses.sort_unstable();
    assert_eq!(statuses, [Some(200), Some(409)]);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    for tab in [&mut tab, &mut other] {
        tab.card(&id).until("", "e => e.matches('.kept, .closed')").await;
    }
    assert_eq!(written_marks(&world), "once\n");
}

/// A decision is durable before it is answered, and it is used once.
#[tokio::test]
async fn a_killed_executor_neither_loses_nor_repeats_a_decision() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    let mut definitions = marks();
    definitions["slow"] = slow();
    world.define("marks.json", &definitions);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    // `slow` holds the only slot: the approved task is still queued when the executor is killed.
    let slow = world.start("slow", &json!({}));
    let id = world.start("mark", &json!({"name": "after"}));
    tab.card(&id).approve().await;
    tab.card(&id).closes().await;
    assert_eq!(world.result_file(&id)["state"], "queued");
    world.kill_executor();
    let_slow_end(&world);
    assert_eq!(world.run(&["wait", &id, &slow]).exit, 0);
    assert_eq!(written_marks(&world), "after\n");
    // A confirmation that is pending during a kill is the same one afterwards, on the new executor's page.
    let id = world.start("mark", &json!({"name": "asked"}));
    tab.go(&world.link()).await;
    tab.card(&id).appears().await;
    let before = tab.card(&id).digest().await;
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    tab.go(&world.link()).await;
    tab.card(&id).appears().await;
    assert_eq!(tab.card(&id).digest().await, before);
    tab.card(&id).approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert_eq!(written_marks(&world), "after\nasked\n");
}

#[tokio::test]
async fn a_mail_is_sent_once_as_approved_and_never_when_denied() {
    let Some(far) = myworld::World::start().await else { return };
    let world = World::new();
    world.configure(&format!(
        "[http.endpoints]\n\"https://gmail.googleapis.com\" = \"{}\"\n",
        far.endpoint("gmail.googleapis.com")
    ));
    world.run_with(&["secret", "set", "google"], &far.google_token);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let mail = |to: &str| json!({"to": [to], "subject": format!("to {to}"), "body": "Hello,\n年度报告 is attached."});
    let (yes, no) = ("bob@example.com", "eve@example.com");
    let sent = world.start("gmail_send_message", &mail(yes));
    let kept = world.start("gmail_send_message", &mail(no));
    tab.card(&sent).approve().await;
    assert_eq!(world.end_of(&sent)["status"], "succeeded");
    tab.card(&kept).deny("not to eve").await;
    assert_eq!(world.end_of(&kept)["error"]["code"], "denied");
    // An edited mail is sent as the human edited it.
    let edited = world.start("gmail_send_message", &mail("carol@example.com"));
    let mut card = tab.card(&edited);
    card.open("edit").await;
    card.fill("subject", "as edited").await;
    card.submit("edit").await;
    card.approve_changes().await;
    let ended = world.end_of(&edited);
    assert_eq!(ended["status"], "succeeded");
    assert_eq!(ended["_meta"]["confirmation"]["changes"][0]["value"], "as edited");
    let mut subjects: Vec<_> = far
        .sent()
        .await
        .iter()
        .map(|message| {
            let headers = message["payload"]["headers"].as_array().expect("headers").clone();
            let subject = headers.into_iter().find(|header| header["name"] == "Subject").expect("a subject");
            subject["value"].as_str().expect("a text").to_owned()
        })
        .collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ["as edited", "to bob@example.com"]);
}

#[tokio::test]
async fn a_question_is_answered_or_declined_and_a_secret_goes_to_the_secret_store() {
    let world = World::new();
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let choice = world.start("ask_user", &json!({"question": "Which one?", "options": ["red", "blue"]}));
    tab.card(&choice).choose(&json!("blue")).await;
    tab.card(&choice).approve().await;
    assert_eq!(world.end_of(&choice)["data"], json!({"action": "accept", "answer": "blue"}));

    let form = json!({"type": "object", "required": ["user"], "properties": {
        "user": {"type": "string"}, "password": {"type": "string", "format": "password"}}});
    let asked = world.start("ask_user", &json!({"question": "Who are you?", "form": form}));
    let mut card = tab.card(&asked);
    card.fill("user", "ann").await;
    card.fill("password", "hunter2-secret").await;
    card.approve().await;
    let ended = world.end_of(&asked);
    assert_eq!((&ended["data"]["action"], &ended["data"]["content"]["user"]), (&json!("accept"), &json!("ann")));
    let stored = ended["data"]["content"]["password"]["stored_as"].as_str().expect("a name").to_owned();
    assert!(stored.starts_with("secret:ask-"), "{stored}");
    assert!(!ended.to_string().contains("hunter2"));
    let names = world.run(&["secret", "list"]).stdout;
    assert!(names.contains(stored.trim_start_matches("secret:")), "{names}");

    let declined = world.start("ask_user", &json!({"question": "May I?", "type": "boolean"}));
    tab.card(&declined).decline().await;
    assert_eq!(world.end_of(&declined)["data"], json!({"action": "decline"}));
}

#[tokio::test]
async fn a_grant_lets_matching_calls_run_until_it_is_revoked() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let first = world.start("mark", &json!({"name": "like this"}));
    let mut card = tab.card(&first);
    card.open("remember").await;
    card.until("[data-would-match]", "e => e.innerText.length > 10").await;
    card.submit("remember").await;
    assert_eq!(world.end_of(&first)["status"], "succeeded");
    let second = world.result_of("mark", &json!({"name": "like this"}));
    assert_eq!(second["_meta"]["confirmation"]["by"], "a remembered yes");
    let other = world.start("mark", &json!({"name": "not like this"}));
    assert_eq!(world.result_file(&other)["state"], "awaiting_confirmation");
    tab.go(&format!("{}/grants", world.site().origin())).await;
    tab.click("[data-action=revoke]").await;
    tab.until("document.querySelector('[data-grant-state]').innerText === 'revoked'").await;
    let third = world.start("mark", &json!({"name": "like this"}));
    assert_eq!(world.result_file(&third)["state"], "awaiting_confirmation");
    assert_eq!(written_marks(&world), "like this\nlike this\n");
}

/// A folder that holds every path asks for the word as any value does; a smaller one does not.
#[tokio::test]
async fn a_grant_for_every_path_asks_for_the_word() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "/srv/reports/may"}));
    let mut card = tab.card(&id);
    card.open("remember").await;
    card.click("[data-form=remember] input[value=prefix]").await;
    card.until("[data-would-match]", "e => e.innerText.length > 10").await;
    card.until("[data-word-box]", "e => e.hidden").await;
    let every = "e => { e.value = '/'; e.dispatchEvent(new Event('input', {bubbles: true})); }";
    card.call("[data-form=remember] [data-value=prefix]", every).await;
    card.until("[data-word-box]", "e => !e.hidden").await;
    let typed = "e => { e.value = 'mark'; e.dispatchEvent(new Event('input', {bubbles: true})); }";
    card.call("[data-form=remember] [data-word-typed]", typed).await;
    card.submit("remember").await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    let other = world.result_of("mark", &json!({"name": "/etc/hosts"}));
    assert_eq!(other["_meta"]["confirmation"]["by"], "a remembered yes");
}

#[tokio::test]
async fn every_lifetime_that_the_page_offers_for_a_grant_is_accepted() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "for long"}));
    let mut card = tab.card(&id);
    card.open("remember").await;
    let digest = card.digest().await;
    let offered = card.call("[data-expires]", "e => [...e.options].map(option => option.value)").await;
    let offered = offered.as_array().expect("a list").clone();
    assert!(offered.len() > 4, "{offered:?}");
    for lifetime in offered {
        let choose =
            format!("e => {{ e.value = {lifetime}; e.dispatchEvent(new Event('input', {{bubbles: true}})); }}");
        tab.card(&id).call("[data-expires]", &choose).await;
        let grant = json!({"id": id, "digest": digest, "fields": [], "expires_in": lifetime});
        assert_eq!(tab.post("/grants/preview", &grant).await, 200, "{lifetime}");
    }
}

#[tokio::test]
async fn a_task_whose_definition_changes_before_the_approval_fails_as_drifted() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "shown"}));
    tab.card(&id).appears().await;
    let mut changed = marks();
    changed["mark"]["run"]["process"]["argv"][2] = "echo changed >> marks".into();
    world.define("marks.json", &changed);
    tab.card(&id).approve().await;
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")));
    assert_eq!(written_marks(&world), "");
}

#[tokio::test]
async fn a_program_that_is_replaced_after_the_approval_does_not_run() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    let script = world.folder().join("work.sh");
    fs::write(&script, "echo shown >> marks").expect("the script is written");
    world.define(
        "work.json",
        &json!({
            "work": {"description": "Works.", "input": {}, "run": {"process": {"argv": ["sh", script], "folder": "."}}},
            "slow": slow()
        }),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let slow = world.start("slow", &json!({}));
    let id = world.start("work", &json!({}));
    tab.card(&id).approve().await;
    tab.card(&id).closes().await;
    fs::write(&script, "echo replaced >> marks").expect("the script is written");
    let_slow_end(&world);
    world.end_of(&slow);
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")), "{ended}");
    assert_eq!(written_marks(&world), "");
}

#[tokio::test]
async fn a_human_sees_what_would_be_replaced_and_a_later_change_of_it_fails_the_task() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    world.define(
        "note.json",
        &json!({
            "note_read": {"description": "Reads the note.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["cat", "note"], "folder": "."}}},
            "note_write": {"description": "Writes the note.", "input": {"type": "object", "required": ["text"],
                "properties": {"text": {"type": "string"}}},
                "preview": {"subtool": "note_read", "replaces": "{text: .}"},
                "run": {"process": {"argv": ["sh", "-c", "printf %s \"$1\" > note", "w", "{{ text }}"], "folder": "."}}},
            "slow": slow()
        }),
    );
    let note = || fs::read_to_string(world.folder().join("note")).expect("the note is read");
    fs::write(world.folder().join("note"), "the old text").expect("the note is written");
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("note_write", &json!({"text": "the new text"}));
    tab.card(&id).until(".replaces", "e => e.innerText.includes('the old text')").await;
    tab.card(&id).approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert_eq!(note(), "the new text");

    let slow = world.start("slow", &json!({}));
    let id = world.start("note_write", &json!({"text": "once more"}));
    tab.card(&id).until(".replaces", "() => true").await;
    tab.card(&id).approve().await;
    tab.card(&id).closes().await;
    fs::write(world.folder().join("note"), "changed by another program").expect("the note is written");
    let_slow_end(&world);
    world.end_of(&slow);
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")), "{ended}");
    assert_eq!(note(), "changed by another program");
}

/// The lookup is judged like a call of the caller. It has no card of its own, so one that would ask is not made.
#[tokio::test]
async fn a_preview_that_would_ask_or_be_refused_is_left_out_and_the_card_says_why() {
    let world = World::new();
    world.define(
        "note.json",
        &json!({
            "note_read": {"description": "Reads the note.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "echo x >> looked; echo old"], "folder": "."}}},
            "note_write": {"description": "Writes the note.", "input": {"type": "object", "required": ["text"],
                "properties": {"text": {"type": "string"}}},
                "preview": {"subtool": "note_read", "replaces": "{text: .}"},
                "run": {"process": {"argv": ["sh", "-c", "printf %s \"$1\" > note", "w", "{{ text }}"], "folder": "."}}}
        }),
    );
    let Some(mut tab) = world.signed_in_tab().await else { return };
    for (then, why) in
        [("refuse", "`note_read` is refused: not you"), ("ask", "`note_read` needs a human itself: not you")]
    {
        world.configure(&format!(
            "[[confirm.rules]]\ntools = [\"note_read\"]\nthen = \"{then}\"\nbecause = \"not you\"\n"
        ));
        assert_eq!(world.run(&["executor", "reload"]).exit, 0);
        let id = world.start("note_write", &json!({"text": then}));
        tab.card(&id).until("[data-unknown]", &format!("e => e.innerText.includes({why:?})")).await;
        tab.card(&id).approve().await;
        assert_eq!(world.end_of(&id)["status"], "succeeded");
        assert_eq!(fs::read_to_string(world.folder().join("note")).expect("written"), then);
    }
    assert!(!world.folder().join("looked").exists());
}

#[tokio::test]
async fn a_destructive_task_needs_its_name_typed() {
    let world = World::new();
    let mut definitions = marks();
    definitions["mark"]["annotations"] = json!({"destructiveHint": true});
    world.define("marks.json", &definitions);
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "gone"}));
    let mut card = tab.card(&id);
    card.is_armed().await;
    card.call(APPROVE, "e => e.click()").await;
    assert_eq!(card.approve_by_request("mark ").await, 422);
    card.type_word("mark").await;
    card.approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

/// The word is that of what runs, not of what was asked.
#[tokio::test]
async fn an_edited_destructive_task_needs_the_word_of_the_edited_one() {
    let world = World::new();
    let mut definitions = marks();
    definitions["mark"]["annotations"] = json!({"destructiveHint": true});
    definitions["mark"]["type_to_approve"] = json!("mark {{ name }}");
    world.define("marks.json", &definitions);
    let human = Human::of(&world);
    let id = world.start("mark", &json!({"name": "one"}));
    let mut edit = human.pending_task(&id);
    edit["input"] = json!({"name": "all"});
    let shown: Value = serde_json::from_str(human.post("/edit", &edit).body.trim()).expect("JSON");
    assert_eq!(shown["word"], "mark all", "{shown}");
    edit["edited_digest"] = shown["digest"].clone();
    for (typed, status) in [("mark one", 422), ("", 422), ("mark all", 200)] {
        edit["typed"] = typed.into();
        assert_eq!(human.post("/decide-edit", &edit).status, status, "{typed}");
    }
    assert_eq!(world.end_of(&id)["status"], "succeeded");

    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "two"}));
    let mut card = tab.card(&id);
    card.open("edit").await;
    card.fill("name", "many").await;
    card.submit("edit").await;
    card.until("[data-edited-word]", "e => e.innerText === 'mark many'").await;
    let approve = "[data-form=changes] [data-approve]";
    card.until(approve, "e => e.ariaDisabled === 'true'").await;
    let typed = "e => { e.value = 'mark many'; e.dispatchEvent(new Event('input', {bubbles: true})); }";
    card.call("[data-edited-typed]", typed).await;
    card.until(approve, "e => e.ariaDisabled === 'false'").await;
    card.approve_changes().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert!(written_marks(&world).contains("many"), "{}", written_marks(&world));
}

#[tokio::test]
async fn selected_tasks_are_decided_together() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let ids: Vec<_> = (0..3).map(|n| world.start("mark", &json!({"name": format!("m{n}")}))).collect();
    for id in &ids[..2] {
        tab.card(id).select().await;
    }
    tab.click("[data-action=batch-approve]").await;
    for id in &ids[..2] {
        assert_eq!(world.end_of(id)["status"], "succeeded");
    }
    assert_eq!(world.result_file(&ids[2])["state"], "awaiting_confirmation");
}

#[tokio::test]
async fn the_keyboard_is_enough_to_approve_but_one_key_is_not() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "by keys"}));
    tab.card(&id).is_armed().await;
    tab.press("j").await;
    tab.press("a").await;
    tab.card(&id).until(APPROVE, "e => e === document.activeElement").await;
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    tab.press("Enter").await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn a_long_input_must_be_read_to_the_end() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let text = "a line of it\n".repeat(400) + "the dangerous end";
    let id = world.start("mark", &json!({"name": text}));
    let mut card = tab.card(&id);
    card.is_armed().await;
    assert!(card.is_blocked().await);
    assert!(card.text("[data-evidence]").await.contains("the dangerous end"), "nothing is cut");
    card.scroll_to_end().await;
    card.approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn the_human_sets_how_many_lines_a_card_shows_at_once() {
    let world = World::new();
    world.configure("[page]\npreview_lines = 4\n");
    world.define("marks.json", &marks());
    let Some(mut tab) = world.signed_in_tab().await else { return };
    let id = world.start("mark", &json!({"name": "a line of it\n".repeat(10) + "the dangerous end"}));
    let mut card = tab.card(&id);
    card.is_armed().await;
    let shown = card.call("[data-evidence]", "e => e.clientHeight").await.as_u64().expect("a number");
    let whole = card.call("[data-evidence]", "e => e.scrollHeight").await.as_u64().expect("a number");
    assert!(shown * 2 < whole && shown > 60, "{shown} of {whole} pixels are shown");
    assert!(card.text("[data-evidence]").await.contains("the dangerous end"), "nothing is cut");
    assert!(card.is_blocked().await);
    card.scroll_to_end().await;
    card.approve().await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn a_task_expires_when_no_human_answers() {
    let world = World::new();
    world.configure("[confirm]\nwait = \"300ms\"\n");
    world.define("marks.json", &marks());
    let id = world.start("mark", &json!({"name": "late"}));
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("expired"), &json!("expired")));
    assert!(ended["error"]["hint"].as_str().expect("a hint").starts_with("this is not a refusal"), "{ended}");
    assert_eq!(world.run(&["wait", &id]).exit, 5);
    let refused = world.run(&["run", "mark", "name=xx", "--if-no-approver=fail"]);
    assert_eq!((refused.exit, &refused.error()["code"]), (5, &json!("no-approver")), "{refused}");
    assert_eq!(world.run(&["tasks", "--state", "awaiting_confirmation"]).json(), json!([]));
}

#[test]
fn pending_tasks_learn_their_new_queue_position() {
    let world = World::new();
    world.configure("[confirm]\nwaiting_per_user = 100\nwaiting_per_session = 100\nasks_per_hour = 0\n");
    world.define("marks.json", &marks());
    let human = Human::of(&world);
    let ids: Vec<_> = (0..4).map(|n| world.start("mark", &json!({"name": format!("m{n}")}))).collect();
    let positions = |ids: &[String]| -> Vec<Value> {
        ids.iter().map(|id| world.result_file(id)["confirmation"]["approver"]["queue_position"].clone()).collect()
    };
    assert_eq!(positions(&ids), [1, 2, 3, 4]);
    assert_eq!(human.deny(&ids[1]).status, 200);
    until("the tasks behind it moved up", || positions(&ids)[2..] == [2, 3]);
    assert_eq!(positions(&ids)[0], 1);
    // A caller cancels its own task, and another change follows at once.
    assert_eq!((world.run(&["cancel", &ids[0]]).exit, human.deny(&ids[2]).status), (0, 200));
    until("the last task is the first", || positions(&ids)[3] == 1);
}

/// Decisions are in the executor's record. Nothing that an agent writes into its mailbox can approve a task.
#[tokio::test]
async fn nothing_in_the_mailbox_decides() {
    let world = World::new();
    world.define("marks.json", &marks());
    let id = world.start("mark", &json!({"name": "forged"}));
    let inbox = world.mailbox().join("inbox");
    for (number, ask) in [
        json!({"decide": {"id": id, "verdict": "approve"}}),
        json!({"approve": {"id": id}}),
        json!({"run": {"tool": "mark", "input": {"name": "forged"}, "confirmed": true}}),
        json!({"run": {"tool": "mark", "input": {"name": "forged"}, "confirmation": {"decision": "approved"}}}),
    ]
    .into_iter()
    .enumerate()
    {
        let request = protocol::task::TaskId::new();
        let text = json!({"v": 1, "ask": ask}).to_string();
        fs::write(inbox.join(format!(".{number}")), text).expect("the request is written");
        fs::rename(inbox.join(format!(".{number}")), inbox.join(format!("{request}.json")))
            .expect("the request is renamed");
    }
    // A forged result file deceives only the agent itself.
    let path = world.mailbox().join(format!("results/result-{id}.json"));
    let mut forged = world.result_file(&id);
    forged["state"] = "queued".into();
    fs::write(&path, serde_json::to_string_pretty(&forged).expect("JSON")).expect("the result file is written");
    until("the executor has read its inbox", || fs::read_dir(&inbox).expect("a folder").flatten().count() == 0);
    assert_eq!(written_marks(&world), "");
    let pid = world.executor().expect("the executor runs");
    kill(pid, Signal::SIGTERM).expect("the signal is sent");
    until("the executor has stopped", || !crate::world::is_alive(pid));
    let store = SqliteStore::open(&world.executor_folder().join("tasks.db")).expect("the store opens");
    let task = store.task(id.parse().expect("an id")).expect("the store is read").expect("the task exists");
    assert_eq!(task.state, protocol::task::State::AwaitingConfirmation);
}
