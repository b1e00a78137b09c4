//! Tasks that wait for a human: what Slack shows, and what its button does.

use protocol::task::{State, TaskId};
use serde_json::{Value, json};

use super::stand_in::{StandInMessage, press};
use super::{ANN, AskedQuestion, Setup, task_news};

fn buttons(message: &StandInMessage) -> Vec<Value> {
    let blocks = message.body["blocks"].as_array().map(Vec::as_slice).unwrap_or_default();
    blocks
        .iter()
        .filter(|block| block["type"] == "actions")
        .flat_map(|block| block["elements"].as_array().expect("a list").clone())
        .collect()
}

/// A question whose task waits, and the message about it.
fn waiting(setup: &Setup, ts: &str, task: TaskId) -> (AskedQuestion, StandInMessage) {
    let asked = setup.ask(ts, "send it");
    asked.text("I send it.");
    asked.waits(task);
    let message = setup.slack.wait("a message with a button", |state| {
        state
            .messages
            .iter()
            .find(|message| message.thread.as_deref() == Some(ts) && !buttons(message).is_empty())
            .cloned()
    });
    (asked, message)
}

#[track_caller]
fn whisper(setup: &Setup, text: &str) -> Value {
    setup.slack.wait(text, |state| {
        let mut whispers = state.calls.iter().filter(|call| call.method == "chat.postEphemeral");
        whispers
            .find(|call| call.body["text"].as_str().is_some_and(|found| found.contains(text)))
            .map(|call| call.body.clone())
    })
}

#[test]
fn a_waiting_task_shows_what_waits_and_only_a_no() {
    let setup = Setup::start(&json!({}));
    let task = TaskId::new();
    let (asked, message) = waiting(&setup, "1.1", task);
    assert_eq!(message.text(), "`send_mail` waits for your decision on the page: agent-magic-tool executor page");
    let buttons = buttons(&message);
    assert_eq!(buttons.len(), 1);
    assert_eq!((&buttons[0]["text"]["text"], &buttons[0]["value"]), (&json!("No"), &json!(task.to_string())));

    // Someone else presses, someone who may presses.
    setup.slack.send(&press("p1", "U0EVE", &message));
    setup.slack.acknowledged("p1");
    assert_eq!(whisper(&setup, "Only those")["user"], "U0EVE");
    setup.slack.send(&press("p2", ANN, &message));
    setup.slack.acknowledged("p2");
    let cancel = setup.sessions.asked(&format!("!cancel {task}"));
    assert_eq!(cancel.session(), asked.session());
    cancel.done(&json!({"id": task, "state": "cancelled", "message": "it was cancelled"}).to_string());
    let text = format!("{}\n<@{ANN}> said *No*: it was cancelled.", message.text());
    asked.text("It was not sent.");
    asked.done("It was not sent.");
    setup.shows("1.1", &["I send it.", &text, "It was not sent."]);
    let decided = setup.slack.message("said *No*");
    assert!(super::waiting::buttons(&decided).is_empty());
    setup.slack.send(&press("p3", ANN, &message));
    assert_eq!(whisper(&setup, "no longer")["user"], ANN);
    assert_eq!(setup.sessions.count(), 2);
}

#[test]
fn the_message_says_how_it_went_on_also_after_the_turn() {
    let setup = Setup::start(&json!({}));
    for (ts, state, words) in [
        ("1.1", State::Succeeded, "it succeeded"),
        ("2.1", State::Denied, "*Denied* on the page"),
        ("3.1", State::Expired, "no decision came in time"),
        ("4.1", State::Cancelled, "It was *cancelled*"),
    ] {
        let task = TaskId::new();
        let (asked, message) = waiting(&setup, ts, task);
        asked.done("It waits.");
        setup.shows(ts, &["I send it.", message.text(), "It waits."]);
        if state == State::Succeeded {
            setup.sessions.tell(asked.session(), &task_news(task, State::Running));
            setup.shows(
                ts,
                &["I send it.", &format!("{}\n*Approved* on the page; it runs.", message.text()), "It waits."],
            );
        }
        setup.sessions.tell(asked.session(), &task_news(task, state));
        let decided = setup.slack.message(words);
        assert_eq!((decided.ts.as_str(), buttons(&decided).len()), (message.ts.as_str(), 0));
    }
}

#[test]
fn a_no_that_comes_too_late_says_so() {
    let setup = Setup::start(&json!({}));
    let task = TaskId::new();
    let (asked, message) = waiting(&setup, "1.1", task);
    setup.slack.send(&press("p1", ANN, &message));
    let cancel = setup.sessions.asked(&format!("!cancel {task}"));
    cancel.done("task cannot be cancelled: it has already ended as `succeeded`");
    assert_eq!(whisper(&setup, "already ended")["user"], ANN);
    setup.sessions.tell(asked.session(), &task_news(task, State::Succeeded));
    setup.slack.message("it succeeded");
}

#[test]
fn what_waits_outlives_a_restart() {
    let mut setup = Setup::start(&json!({}));
    let task = TaskId::new();
    let (_, message) = waiting(&setup, "1.1", task);
    setup.recorded(&format!("{{\"gate\":{{\"task\":\"{task}\""));
    setup.crash();
    setup.reconnect();
    let asked = setup.sessions.asked("send it");
    // The turn goes on, and the task still waits.
    asked.waits(task);
    setup.slack.send(&press("p1", ANN, &message));
    setup.slack.acknowledged("p1");
    setup.sessions.asked(&format!("!cancel {task}")).done(&json!({"state": "cancelled"}).to_string());
    setup.slack.message("said *No*");
    asked.done("Not sent.");
    setup.slack.message("Not sent.");
    let waiting = setup.slack.thread(super::CHANNEL, "1.1").iter().filter(|text| text.contains("waits for")).count();
    assert_eq!(waiting, 1, "it is not asked twice");
}
