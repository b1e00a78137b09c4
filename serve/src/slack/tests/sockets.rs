//! The connection to Slack, and what becomes of it.

use std::time::{Duration, Instant};

use protocol::error::ErrorBody;
use serde_json::json;

use super::stand_in::{APP_TOKEN, BOT_TOKEN, Fault, disconnect, envelope, mention};
use super::{ANN, CHANNEL, Setup};

#[test]
fn another_connection_takes_over_before_the_old_one_ends() {
    let setup = Setup::start(&json!({}));
    for (number, reason) in
        ["warning", "refresh_requested", "link_disabled", "too_many_websockets"].into_iter().enumerate()
    {
        setup.slack.send(&disconnect(reason));
        // What still comes over the old one counts.
        let text = format!("late {reason}");
        let event = mention(ANN, CHANNEL, &format!("{number}.1"), &text);
        setup.slack.send_over(number, &envelope(reason, reason, &event, 0));
        setup.slack.connected(number + 2);
        setup.slack.acknowledged(reason);
        setup.sessions.asked(&text).done("ok");
        setup.slack.wait("the end of the old one", |state| (!state.connections[number]).then_some(()));
        assert_eq!(setup.slack.state().connections.iter().filter(|is_open| **is_open).count(), 1);
        let over = setup.slack.state().acknowledged.iter().find(|(id, ..)| id == reason).map(|(_, over, _)| *over);
        assert_eq!(over, Some(number), "where it came from");
    }
    setup.ask("9.1", "after all").done("ok");
}

#[test]
fn a_connection_that_was_closed_or_is_silent_is_replaced() {
    let setup = Setup::start(&json!({}));
    setup.slack.ping();
    setup.slack.wait("a pong", |state| {
        state.acknowledged.iter().any(|(id, ..)| id.starts_with("pong") && id.contains("from Slack")).then_some(())
    });
    setup.slack.close();
    setup.slack.connected(2);
    setup.ask("1.1", "after the close").done("ok");
    let frozen = Instant::now();
    setup.slack.freeze();
    setup.slack.connected(3);
    assert!(frozen.elapsed() >= Duration::from_secs(2), "{:?}: it did not wait for a sign", frozen.elapsed());
    setup.ask("2.1", "after the silence").done("ok");
    setup.shows("2.1", &["ok"]);
}

#[test]
fn slack_that_is_not_there_is_tried_again() {
    let mut setup = Setup::new(&json!({}));
    let faults = [Fault::Status(503), Fault::Error("internal_error"), Fault::TooMany(1), Fault::Cut];
    setup.slack.fail("apps.connections.open", faults);
    setup.slack.fail("auth.test", [Fault::Error("request_timeout")]);
    setup.connect();
    setup.slack.connected(1);
    setup.ask("1.1", "at last").done("ok");
    setup.shows("1.1", &["ok"]);
}

#[test]
fn a_token_that_slack_does_not_accept_is_named() {
    for (app, bot, setting, secret, error) in [
        ("xapp-wrong-1-abcdef", BOT_TOKEN, "app_token", "slack_app_token", "invalid_auth"),
        (APP_TOKEN, "xoxb-wrong-1-abcdef", "bot_token", "slack_bot_token", "invalid_auth"),
        (BOT_TOKEN, BOT_TOKEN, "app_token", "slack_app_token", "not_allowed_token_type"),
    ] {
        let mut setup = Setup::new(&json!({}));
        setup.connect_as(app, bot);
        let error_body = ErrorBody::from(setup.error());
        let hint = error_body.hint.expect("a hint");
        assert!(error_body.message.contains(setting) && error_body.message.contains(error), "{}", error_body.message);
        assert!(hint.ends_with(&format!("agent-magic-tool secret set {secret}")), "{hint}");
        assert!(!format!("{} {hint}", error_body.message).contains(app), "it does not show the token");
    }
    // A token that is revoked while it is used.
    let mut setup = Setup::start(&json!({}));
    setup.slack.fail("chat.postMessage", [Fault::Error("token_revoked")]);
    setup.ask("1.1", "revoked").done("kept");
    assert!(setup.error().to_string().contains("token_revoked"));
    setup.reconnect();
    setup.sessions.asked("revoked").done("kept");
    setup.shows("1.1", &["kept"]);
}

#[test]
fn frames_that_make_no_sense_change_nothing() {
    let setup = Setup::start(&json!({}));
    for frame in [json!(1), json!({}), json!({"type": 1}), json!({"type": "new"}), json!({"type": "events_api"})] {
        setup.slack.send(&frame);
    }
    setup.slack.send(&json!({"type": "interactive", "envelope_id": "i", "payload": {"type": "block_actions"}}));
    setup.slack.acknowledged("i");
    setup.ask("1.1", "still there").done("ok");
    assert_eq!(setup.slack.state().connections.len(), 1);
}
