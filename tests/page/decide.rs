//! A human decides, and what they saw is what happens, once.

use std::fs;

use executor::store::Store as _;
use executor::store::sqlite::SqliteStore;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::ann::bound;
use super::threats::Human;
use crate::browser::Tab;
use crate::myworld;
use crate::world::{World, until};

/// A subtool that leaves a mark.
fn marks() -> Value {
    json!({"mark": {
        "description": "Leaves a mark.",
        "input": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2}, "count": {"type": "integer"}}},
        "run": {"process": {"argv": ["sh", "-c", "echo \"$1\" >> marks", "mark", "{{ name }}"], "folder": "."}}
    }})
}

fn happened(world: &World) -> String {
    fs::read_to_string(world.folder().join("marks")).unwrap_or_default()
}

pub(crate) fn approve(id: &str) -> String {
    format!("[data-card='{id}'] [data-actions] [data-approve]")
}

/// Sends a yes past the page's own button; the status of the answer.
fn yes_by_script(card: &str, id: &str, typed: &str) -> String {
    format!(
        "fetch('/decide', {{method: 'POST', headers: {{'content-type': 'application/json', \
         'x-page-token': localStorage.getItem('page-token')}}, body: JSON.stringify({{verdict: 'approve', typed: '{typed}', \
         decisions: [{{id: '{id}', digest: document.querySelector(`{card}`).dataset.digest}}]}})}}).then(r => r.status)"
    )
}

async fn deny(tab: &mut Tab, id: &str, reason: &str) {
    tab.click(&format!("[data-card='{id}'] [data-opens=deny]")).await;
    tab.until(&format!("document.activeElement?.matches(\"[data-card='{id}'] [data-form=deny] textarea\")")).await;
    tab.insert(reason).await;
    tab.press("Enter").await;
}

#[tokio::test]
async fn an_approved_task_runs_once_and_a_denied_one_never() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let (yes, no) = (world.start("mark", &json!({"name": "yes"})), world.start("mark", &json!({"name": "no"})));
    tab.click(&approve(&yes)).await;
    let ended = world.end_of(&yes);
    let confirmation = &ended["_meta"]["confirmation"];
    assert_eq!((&ended["status"], &confirmation["decision"]), (&json!("succeeded"), &json!("approved")));
    assert_eq!(confirmation["by"], "human");

    deny(&mut tab, &no, "not that one").await;
    let ended = world.end_of(&no);
    assert_eq!(ended["status"], "denied");
    assert_eq!(ended["error"]["message"], "a human denied it: not that one");
    assert!(ended["error"]["hint"].as_str().expect("a hint").contains("do not run it again"), "{ended}");
    assert_eq!(happened(&world), "yes\n");
    assert_eq!(tab.complaints, [] as [String; 0]);
    // The model that waits reads it, and exits as refused.
    assert_eq!(world.run(&["wait", &no]).exit, 5);
}

#[tokio::test]
async fn an_edited_task_runs_as_edited_and_its_caller_reads_what_changed() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "eve", "count": 9_007_199_254_740_993_i64}));
    let card = format!("[data-card='{id}']");
    tab.click(&format!("{card} [data-opens=edit]")).await;
    let field = format!("{card} [data-form=edit] [data-pointer='/name'] input");
    tab.until(&format!("document.querySelector(`{field}`)?.offsetWidth > 0")).await;
    // What does not fit is told beside its field.
    tab.value(&format!("document.querySelector(`{field}`).select()")).await;
    tab.click(&field).await;
    tab.value(&format!("document.querySelector(`{field}`).select()")).await;
    tab.insert("b").await;
    tab.click(&format!("{card} [data-form=edit] [type=submit]")).await;
    tab.until(&format!("document.querySelector(`{card} [data-pointer='/name'] [data-problem]`).innerText !== ''"))
        .await;
    tab.value(&format!("document.querySelector(`{field}`).select()")).await;
    tab.insert("bob").await;
    tab.click(&format!("{card} [data-form=edit] [type=submit]")).await;
    tab.click(&format!("{card} [data-form=changes] [data-approve]")).await;
    let ended = world.end_of(&id);
    assert_eq!(happened(&world), "bob\n");
    assert_eq!(ended["input"], json!({"name": "bob", "count": 9_007_199_254_740_993_i64}), "untouched digits stay");
    let confirmation = &ended["_meta"]["confirmation"];
    assert_eq!(confirmation["decision"], "edited");
    assert_eq!(confirmation["changes"], json!([{"op": "replace", "path": "/name", "value": "bob"}]));
}

#[tokio::test]
async fn two_tabs_that_approve_at_once_run_it_once() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let mut other = tab.beside().await;
    other.go(&format!("{}/", world.site().origin())).await;
    let id = world.start("mark", &json!({"name": "once"}));
    // Past all that the pages do to prevent it: both requests at once.
    let card = format!("[data-card='{id}']");
    let yes = yes_by_script(&card, &id, "");
    for tab in [&mut tab, &mut other] {
        tab.until(&format!("!!document.querySelector(`{card}`)")).await;
    }
    let (one, two) = tokio::join!(tab.value(&yes), other.value(&yes));
    let mut statuses = [one.as_u64(), two.as_u64()];
    statuses.sort_unstable();
    assert_eq!(statuses, [Some(200), Some(409)]);
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    for tab in [&mut tab, &mut other] {
        tab.until(&format!("!document.querySelector(`{card}:not(.kept):not(.closed)`)")).await;
    }
    assert_eq!(happened(&world), "once\n");
}

/// Number 16 of the fault plan: the yes is durable before it is answered, and used once.
#[tokio::test]
async fn a_killed_executor_neither_loses_a_decision_nor_repeats_it() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    let mut definitions = marks();
    definitions["slow"] = json!({"description": "Takes its time.", "input": {}, "annotations": {"readOnlyHint": true},
        "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}});
    world.define("marks.json", &definitions);
    let Some(mut tab) = world.human().await else { return };
    // The one place is taken: what is approved waits for its turn, and there the executor is killed.
    let slow = world.start("slow", &json!({}));
    let id = world.start("mark", &json!({"name": "after"}));
    tab.click(&approve(&id)).await;
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}'].closed\")")).await;
    assert_eq!(world.result_file(&id)["state"], "queued");
    world.kill_executor();
    fs::write(world.folder().join("go"), "").expect("written");
    assert_eq!(world.run(&["wait", &id, &slow]).exit, 0);
    assert_eq!(happened(&world), "after\n");
    // A question that waited over a kill is the same question, and the same tab answers it.
    let id = world.start("mark", &json!({"name": "asked"}));
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}']\")")).await;
    let digest = format!("document.querySelector(\"[data-card='{id}']\").dataset.digest");
    let before = tab.value(&digest).await;
    world.kill_executor();
    assert_eq!(world.run(&["executor", "start"]).exit, 0);
    tab.go(&format!("{}/", world.site().origin())).await;
    assert_eq!(tab.value(&digest).await, before);
    tab.click(&approve(&id)).await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert_eq!(happened(&world), "after\nasked\n");
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
    let Some(mut tab) = world.human().await else { return };
    let mail = |to: &str| json!({"to": [to], "subject": format!("to {to}"), "body": "Hello,\n年度报告 is attached."});
    let (yes, no) = ("bob@example.com", "eve@example.com");
    let sent = world.start("gmail_send_message", &mail(yes));
    let kept = world.start("gmail_send_message", &mail(no));
    tab.click(&approve(&sent)).await;
    assert_eq!(world.end_of(&sent)["status"], "succeeded");
    deny(&mut tab, &kept, "not to eve").await;
    assert_eq!(world.end_of(&kept)["error"]["code"], "denied");
    // Edited: what is sent is what the human made of it.
    let edited = world.start("gmail_send_message", &mail("carol@example.com"));
    let card = format!("[data-card='{edited}']");
    tab.click(&format!("{card} [data-opens=edit]")).await;
    let subject = format!("{card} [data-form=edit] [data-pointer='/subject'] input");
    tab.click(&subject).await;
    tab.value(&format!("document.querySelector(`{subject}`).select()")).await;
    tab.insert("as edited").await;
    tab.click(&format!("{card} [data-form=edit] [type=submit]")).await;
    tab.click(&format!("{card} [data-form=changes] [data-approve]")).await;
    let ended = world.end_of(&edited);
    assert_eq!(ended["status"], "succeeded");
    assert_eq!(ended["_meta"]["confirmation"]["changes"][0]["value"], "as edited");
    let subjects: Vec<_> = far
        .sent()
        .await
        .iter()
        .map(|message| {
            let headers = message["payload"]["headers"].as_array().expect("headers").clone();
            let subject = headers.into_iter().find(|header| header["name"] == "Subject").expect("a subject");
            subject["value"].as_str().expect("a text").to_owned()
        })
        .collect();
    let mut subjects = subjects;
    subjects.sort_unstable();
    assert_eq!(subjects, ["as edited", "to bob@example.com"]);
}

#[tokio::test]
async fn a_question_is_answered_declined_and_a_secret_goes_to_the_store() {
    let world = World::new();
    let Some(mut tab) = world.human().await else { return };
    let choice = world.start("ask_user", &json!({"question": "Which one?", "options": ["red", "blue"]}));
    tab.click(&format!("[data-card='{choice}'] input[value='\"blue\"']")).await;
    tab.click(&approve(&choice)).await;
    assert_eq!(world.end_of(&choice)["data"], json!({"action": "accept", "answer": "blue"}));

    let form = json!({"type": "object", "required": ["user"], "properties": {
        "user": {"type": "string"}, "password": {"type": "string", "format": "password"}}});
    let asked = world.start("ask_user", &json!({"question": "Who are you?", "form": form}));
    let field = |name: &str| format!("[data-card='{asked}'] [data-pointer='/{name}'] input");
    tab.click(&field("user")).await;
    tab.insert("ann").await;
    tab.click(&field("password")).await;
    tab.insert("hunter2-secret").await;
    tab.click(&approve(&asked)).await;
    let ended = world.end_of(&asked);
    assert_eq!((&ended["data"]["action"], &ended["data"]["content"]["user"]), (&json!("accept"), &json!("ann")));
    let stored = ended["data"]["content"]["password"]["stored_as"].as_str().expect("a name").to_owned();
    assert!(stored.starts_with("secret:ask-"), "{stored}");
    assert!(!ended.to_string().contains("hunter2"));
    let names = world.run(&["secret", "list"]).stdout;
    assert!(names.contains(stored.trim_start_matches("secret:")), "{names}");

    let declined = world.start("ask_user", &json!({"question": "May I?", "type": "boolean"}));
    tab.click(&format!("[data-card='{declined}'] [data-action=decline]")).await;
    assert_eq!(world.end_of(&declined)["data"], json!({"action": "decline"}));
}

#[tokio::test]
async fn a_remembered_yes_lets_like_calls_through_until_it_is_revoked() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let first = world.start("mark", &json!({"name": "like this"}));
    let card = format!("[data-card='{first}']");
    tab.click(&format!("{card} [data-opens=remember]")).await;
    tab.until(&format!("document.querySelector(`{card} [data-would-match]`).innerText.length > 10")).await;
    tab.click(&format!("{card} [data-form=remember] [type=submit]")).await;
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
    assert_eq!(happened(&world), "like this\nlike this\n");
}

#[tokio::test]
async fn every_span_that_the_page_offers_for_a_grant_can_be_had() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "for long"}));
    let card = format!("[data-card='{id}']");
    tab.click(&format!("{card} [data-opens=remember]")).await;
    let spans =
        tab.value(&format!("[...document.querySelectorAll(\"{card} [data-expires] option\")].map(o => o.value)")).await;
    let spans = spans.as_array().expect("a list").clone();
    assert!(spans.len() > 4, "{spans:?}");
    for span in spans {
        tab.value(&format!(
            "(e => {{ e.value = {span}; e.dispatchEvent(new Event('input', {{bubbles: true}})); }})\
             (document.querySelector(\"{card} [data-expires]\"))"
        ))
        .await;
        let asked = format!(
            "fetch('/grants/preview', {{method: 'POST', headers: {{'content-type': 'application/json', 'x-page-token': \
             localStorage.getItem('page-token')}}, body: JSON.stringify({{id: '{id}', digest: \
             document.querySelector(\"{card}\").dataset.digest, fields: [], expires_in: {span}}})}}).then(r => r.status)"
        );
        assert_eq!(tab.value(&asked).await, 200, "{span}");
    }
}

/// The definition, the script it runs, the caller's folder: what was shown is what runs, or nothing.
#[tokio::test]
async fn a_definition_that_changes_while_a_human_looks_ends_the_task() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "shown"}));
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}']\")")).await;
    let mut changed = marks();
    changed["mark"]["run"]["process"]["argv"][2] = "echo changed >> marks".into();
    world.define("marks.json", &changed);
    tab.click(&approve(&id)).await;
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")));
    assert_eq!(happened(&world), "");
}

#[tokio::test]
async fn a_program_that_is_swapped_after_the_yes_does_not_run() {
    let world = World::new();
    world.configure("[executor]\nconcurrency = 1\n");
    let script = world.folder().join("work.sh");
    fs::write(&script, "echo shown >> marks").expect("written");
    world.define(
        "work.json",
        &json!({
            "work": {"description": "Works.", "input": {}, "run": {"process": {"argv": ["sh", script], "folder": "."}}},
            "slow": {"description": "Takes its time.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}}
        }),
    );
    let Some(mut tab) = world.human().await else { return };
    let slow = world.start("slow", &json!({}));
    let id = world.start("work", &json!({}));
    tab.click(&approve(&id)).await;
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}'].closed\")")).await;
    fs::write(&script, "echo swapped >> marks").expect("written");
    fs::write(world.folder().join("go"), "").expect("written");
    world.end_of(&slow);
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")), "{ended}");
    assert_eq!(happened(&world), "");
}

#[tokio::test]
async fn a_human_sees_what_would_be_replaced_and_a_change_of_that_ends_the_task() {
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
            "slow": {"description": "Takes its time.", "input": {}, "annotations": {"readOnlyHint": true},
                "run": {"process": {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"], "folder": "."}}}
        }),
    );
    let note = || fs::read_to_string(world.folder().join("note")).expect("a note");
    fs::write(world.folder().join("note"), "as it was").expect("written");
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("note_write", &json!({"text": "as it shall be"}));
    tab.until(&format!("document.querySelector(\"[data-card='{id}'] .replaces\")?.innerText.includes('as it was')"))
        .await;
    tab.click(&approve(&id)).await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
    assert_eq!(note(), "as it shall be");

    let slow = world.start("slow", &json!({}));
    let id = world.start("note_write", &json!({"text": "once more"}));
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}'] .replaces\")")).await;
    tab.click(&approve(&id)).await;
    tab.until(&format!("!!document.querySelector(\"[data-card='{id}'].closed\")")).await;
    fs::write(world.folder().join("note"), "written by somebody else").expect("written");
    fs::write(world.folder().join("go"), "").expect("written");
    world.end_of(&slow);
    let ended = world.end_of(&id);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("drifted")), "{ended}");
    assert_eq!(note(), "written by somebody else");
}

#[tokio::test]
async fn what_destroys_something_needs_its_name_typed() {
    let world = World::new();
    let mut definitions = marks();
    definitions["mark"]["annotations"] = json!({"destructiveHint": true});
    world.define("marks.json", &definitions);
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "gone"}));
    let card = format!("[data-card='{id}']");
    tab.until(&format!("document.querySelector(`{card}`)?.querySelector('[data-actions]').inert === false")).await;
    tab.value(&format!("document.querySelector(`{card} [data-actions] [data-approve]`).click()")).await;
    let refused = tab.value(&yes_by_script(&card, &id, "mark ")).await;
    assert_eq!(refused, 422);
    tab.click(&format!("{card} [data-typed]")).await;
    tab.insert("mark").await;
    tab.click(&approve(&id)).await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn several_that_were_ticked_are_decided_together() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let ids: Vec<_> = (0..3).map(|n| world.start("mark", &json!({"name": format!("m{n}")}))).collect();
    for id in &ids[..2] {
        tab.click(&format!("[data-card='{id}'] [data-select]")).await;
    }
    tab.click("[data-action=batch-approve]").await;
    for id in &ids[..2] {
        assert_eq!(world.end_of(id)["status"], "succeeded");
    }
    assert_eq!(world.result_file(&ids[2])["state"], "awaiting_confirmation");
}

#[tokio::test]
async fn the_keyboard_alone_is_enough_and_one_key_is_never() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let id = world.start("mark", &json!({"name": "by keys"}));
    let card = format!("[data-card='{id}']");
    tab.until(&format!("document.querySelector(`{card}`)?.querySelector('[data-actions]').inert === false")).await;
    tab.press("j").await;
    tab.press("a").await;
    tab.until(&format!("document.activeElement?.matches(\"{}\")", approve(&id))).await;
    assert_eq!(world.result_file(&id)["state"], "awaiting_confirmation");
    tab.press("Enter").await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn a_long_input_must_be_read_to_its_end() {
    let world = World::new();
    world.define("marks.json", &marks());
    let Some(mut tab) = world.human().await else { return };
    let text = "a line of it\n".repeat(400) + "the dangerous end";
    let id = world.start("mark", &json!({"name": text}));
    let card = format!("[data-card='{id}']");
    tab.until(&format!("document.querySelector(`{card}`)?.querySelector('[data-actions]').inert === false")).await;
    let is_off = format!("document.querySelector(\"{}\").ariaDisabled", approve(&id));
    assert_eq!(tab.value(&is_off).await, "true");
    let shown = tab.value(&format!("document.querySelector(`{card} [data-evidence]`).textContent")).await;
    assert!(shown.as_str().expect("a text").contains("the dangerous end"), "nothing is cut");
    tab.value(&format!("(e => e.scrollTop = e.scrollHeight)(document.querySelector(`{card} [data-evidence]`))")).await;
    tab.click(&approve(&id)).await;
    assert_eq!(world.end_of(&id)["status"], "succeeded");
}

#[tokio::test]
async fn nobody_answers_and_the_task_says_so() {
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
fn those_that_still_wait_are_told_that_they_moved_up() {
    let world = World::new();
    world.configure("[confirm]\nwaiting_per_session = 100\nasks_per_hour = 0\n");
    world.define("marks.json", &marks());
    let human = Human::of(&world);
    let ids: Vec<_> = (0..4).map(|n| world.start("mark", &json!({"name": format!("m{n}")}))).collect();
    let paths = |ids: &[String]| -> Vec<Value> {
        ids.iter().map(|id| world.result_file(id)["confirmation"]["approver"]["queue_position"].clone()).collect()
    };
    assert_eq!(paths(&ids), [1, 2, 3, 4]);
    let no = |id: &str| human.post("/decide", &json!({"decisions": [bound(&human, id)], "verdict": "deny"})).status;
    assert_eq!(no(&ids[1]), 200);
    until("those behind it moved up", || paths(&ids)[2..] == [2, 3]);
    assert_eq!(paths(&ids)[0], 1);
    // One that its own agent gives up; and however soon after one another.
    assert_eq!((world.run(&["cancel", &ids[0]]).exit, no(&ids[2])), (0, 200));
    until("it is the first", || paths(&ids)[3] == 1);
}

/// A yes is a file of the record, not of the agent's side: what an agent writes into its mailbox decides nothing.
#[tokio::test]
async fn nothing_on_the_agents_side_decides() {
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
        fs::write(inbox.join(format!(".{number}")), text).expect("written");
        fs::rename(inbox.join(format!(".{number}")), inbox.join(format!("{request}.json"))).expect("renamed");
    }
    // A forged end is only a lie that the agent tells itself.
    let path = world.mailbox().join(format!("results/result-{id}.json"));
    let mut forged = world.result_file(&id);
    forged["state"] = "queued".into();
    fs::write(&path, serde_json::to_string_pretty(&forged).expect("JSON")).expect("written");
    until("the executor has read its inbox", || fs::read_dir(&inbox).expect("a folder").flatten().count() == 0);
    assert_eq!(happened(&world), "");
    let pid = world.executor().expect("it runs");
    kill(pid, Signal::SIGTERM).expect("sent");
    until("it has ended", || !crate::world::is_alive(pid));
    let store = SqliteStore::open(&world.executor_folder().join("tasks.db")).expect("it opens");
    let task = store.task(id.parse().expect("an id")).expect("read").expect("there");
    assert_eq!(task.state, protocol::task::State::AwaitingConfirmation);
}
