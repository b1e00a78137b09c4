//! What is a question, from whom, and only once.

use serde_json::json;

use super::stand_in::{BOT_USER, TEAM, envelope, mention, message};
use super::{ANN, CHANNEL, Setup};

#[test]
fn an_event_is_acknowledged_long_before_its_answer_which_stands_in_its_thread() {
    let setup = Setup::start(&json!({}));
    let sent = std::time::Instant::now();
    let event = mention(ANN, CHANNEL, "1.1", "is 1 &lt; 2, <@U2>? <https://x.example|see>");
    let envelope = setup.slack.event(&event);
    let took = setup.slack.acknowledged(&envelope).duration_since(sent);
    assert!(took.as_secs() < 3, "{took:?}");
    let asked = setup.sessions.asked("is 1 < 2, @U2? see (https://x.example)");
    assert_eq!(asked.session(), "slack-C0GENERAL-1.1");
    assert_eq!(asked.question.asker.interface, "slack");
    assert!(asked.question.asker.can_decide && asked.question.asker.key.is_none());
    assert_eq!(asked.question.repeat_key.as_deref(), Some("slack-C0GENERAL-1.1"));
    asked.text("Yes, **of course");
    setup.shows("1.1", &["Yes, **of course"]);
    asked.text("**.");
    asked.done("Yes, **of course**.");
    setup.shows("1.1", &["Yes, *of course*."]);
}

#[test]
fn a_direct_message_and_a_thread_are_sessions() {
    let setup = Setup::start(&json!({}));
    setup.slack.event(&message(ANN, "D0ANN", "im", "2.1", "hello"));
    assert_eq!(setup.sessions.asked("hello").session(), "slack-D0ANN-2.1");
    let mut reply = message(ANN, "D0ANN", "im", "2.5", "more");
    reply["thread_ts"] = "2.1".into();
    setup.slack.event(&reply);
    assert_eq!(setup.sessions.asked("more").session(), "slack-D0ANN-2.1");

    // In a channel, a thread is ours from the first mention in it.
    let in_thread = |ts: &str, text: &str| {
        let mut event = message(ANN, CHANNEL, "channel", ts, text);
        event["thread_ts"] = "3.1".into();
        event
    };
    let unknown = setup.slack.event(&in_thread("3.2", "not for the app"));
    setup.slack.acknowledged(&unknown);
    let mut mentioned = mention(ANN, CHANNEL, "3.3", "now");
    mentioned["thread_ts"] = "3.1".into();
    setup.slack.event(&mentioned);
    assert_eq!(setup.sessions.asked("now").session(), "slack-C0GENERAL-3.1");
    let others = setup.slack.event(&in_thread("3.4", "<@U0BOB> what do you think?"));
    setup.slack.acknowledged(&others);
    setup.slack.event(&in_thread("3.5", "and then?"));
    assert_eq!(setup.sessions.asked("and then?").session(), "slack-C0GENERAL-3.1");
    assert_eq!(setup.sessions.count(), 4);
}

#[test]
fn commands_reach_the_session_as_they_were_typed() {
    let setup = Setup::start(&json!({"model": "small", "read_only": true, "gate": "refuse"}));
    let asked = setup.ask("1.1", "!usage\n!tasks");
    assert_eq!(asked.question.model.as_deref(), Some("small"));
    assert!(asked.question.asker.read_only && !asked.question.asker.can_decide);
    asked.done("last question: 0 requests");
    setup.shows("1.1", &["last question: 0 requests"]);
}

#[test]
fn an_event_that_comes_again_is_not_asked_again_even_after_a_restart() {
    let mut setup = Setup::start(&json!({}));
    let event = mention(ANN, CHANNEL, "1.1", "once");
    let first = envelope("e1", "Ev1", &event, 0);
    setup.slack.send(&first);
    setup.sessions.asked("once").done("answered");
    setup.shows("1.1", &["answered"]);
    let mut plain = message(ANN, CHANNEL, "channel", "1.1", "once");
    plain["text"] = event["text"].clone();
    let again = [first, envelope("e2", "Ev1", &event, 1), envelope("e3", "Ev3", &plain, 0)];
    for (round, name) in ["", "-again"].into_iter().enumerate() {
        for (number, repeated) in again.iter().enumerate() {
            // The id of the envelope itself counts only for the first of them.
            let mut repeated = repeated.clone();
            if number > 0 {
                repeated["envelope_id"] = format!("{}{name}", repeated["envelope_id"].as_str().expect("an id")).into();
            }
            setup.slack.send(&repeated);
        }
        setup.slack.acknowledged(&format!("e3{name}"));
        let marker = format!("marker {round}");
        setup.ask(&format!("9.{round}"), &marker).done("ok");
        setup.shows(&format!("9.{round}"), &["ok"]);
        setup.stop().expect("stopped");
        setup.reconnect();
    }
    assert_eq!(setup.sessions.count(), 3, "the question and two markers");
    setup.shows("1.1", &["answered"]);
}

#[test]
fn messages_of_apps_and_changes_of_messages_are_no_questions() {
    let setup = Setup::start(&json!({"users": ["*"]}));
    let text = format!("<@{BOT_USER}> hi");
    let base = || message(ANN, CHANNEL, "channel", "1.1", &text);
    let with = |name: &str, value: serde_json::Value| {
        let mut event = base();
        event[name] = value;
        event
    };
    let mut events = vec![
        with("bot_id", json!("B0BOT")),
        with("user", json!(BOT_USER)),
        with("user", json!("USLACKBOT")),
        with("user", json!(null)),
        with("hidden", json!(true)),
        json!({"type": "reaction_added", "user": ANN, "item": {"channel": CHANNEL, "ts": "1.1"}}),
        json!({"type": "message", "channel": "D0ANN", "channel_type": "im", "ts": "1.1", "user": ANN, "text": " "}),
    ];
    for subtype in ["bot_message", "message_changed", "message_deleted", "channel_join", "message_replied"] {
        events.push(with("subtype", json!(subtype)));
    }
    for event in &events {
        let envelope = setup.slack.event(event);
        setup.slack.acknowledged(&envelope);
    }
    setup.slack.send(&json!({"type": "slash_commands", "envelope_id": "slash", "payload": {"command": "/x"}}));
    setup.slack.acknowledged("slash");
    let mut shared = base();
    shared["subtype"] = "file_share".into();
    shared["files"] = json!([{"id": "F1", "name": "a.png"}]);
    setup.slack.event(&shared);
    setup.sessions.asked("hi\n(Attached in Slack and not readable from here: a.png)").done("no");
    setup.shows("1.1", &["no"]);
    assert_eq!(setup.sessions.count(), 1);
}

#[test]
fn a_stranger_gets_one_line_and_no_session() {
    let setup = Setup::start(&json!({"users": ["*"], "channels": [CHANNEL, "D0BOB"]}));
    let mut foreign = mention("U0EVE", CHANNEL, "1.1", "mine?");
    foreign["team"] = "T0OTHER".into();
    for ts in ["1.1", "1.2"] {
        foreign["ts"] = ts.into();
        let envelope = setup.slack.event(&foreign);
        setup.slack.acknowledged(&envelope);
    }
    setup.slack.event(&mention("U0BOB", "C0SECRET", "2.1", "here?"));
    // A message in a thread that is not for the app gets no line.
    let mut chat = message("U0EVE", CHANNEL, "channel", "1.3", "just talking");
    (chat["thread_ts"], chat["team"]) = ("1.1".into(), "T0OTHER".into());
    let chat = setup.slack.event(&chat);
    setup.slack.acknowledged(&chat);
    setup.ask("5.1", "marker").done("ok");
    setup.shows("5.1", &["ok"]);
    let lines = setup.slack.wait("two lines", |state| {
        let lines: Vec<_> = state.calls.iter().filter(|call| call.method == "chat.postEphemeral").collect();
        let lines: Vec<_> =
            lines.iter().map(|call| (call.body["user"].clone(), call.body["thread_ts"].clone())).collect();
        (lines.len() >= 2).then_some(lines)
    });
    assert_eq!(lines.len(), 2);
    assert!(lines.contains(&(json!("U0EVE"), json!("1.1"))) && lines.contains(&(json!("U0BOB"), json!("2.1"))));
    assert_eq!(setup.sessions.count(), 1, "of {TEAM} only");
}
