//! How an answer comes to stand in its thread, whatever Slack says.

use std::time::{Duration, Instant};

use agent_loop::model::conversation::StopReason;
use protocol::code::Code;
use protocol::error::ErrorBody;
use serde_json::json;

use super::stand_in::{Fault, StandInState, mention};
use super::{ANN, CHANNEL, Setup};
use crate::service::turn::{SessionEvent, TurnOutcome};

#[test]
fn forty_thousand_characters_come_whole_in_order_and_in_whole_code_blocks() {
    let setup = Setup::start(&json!({}));
    let asked = setup.ask("1.1", "all of it");
    let mut whole = String::new();
    let mut number = 0;
    while whole.len() < 40_000 {
        whole.extend([format!("Part {number}: year 年度 🎈, as **told**.\n\n```rust\n")]);
        for line in 0..30 {
            whole.extend([format!("let n_{number}_{line} = {line};\n")]);
        }
        whole.push_str("```\n");
        number += 1;
    }
    let pieces: Vec<char> = whole.chars().collect();
    for piece in pieces.chunks(777) {
        asked.text(&piece.iter().collect::<String>());
    }
    asked.done(&whole);
    setup.slack.wait("all parts", |state| {
        state.messages.iter().any(|message| message.text().contains(&format!("n_{}_29", number - 1))).then_some(())
    });
    let last = format!("let n_{}_29 = 29;\n```", number - 1);
    setup.slack.wait("the end", |state| state.messages.last()?.text().ends_with(&last).then_some(()));
    let texts = setup.slack.thread(CHANNEL, "1.1");
    assert!(texts.len() > 10, "{}", texts.len());
    let mut found = Vec::new();
    for text in &texts {
        assert!(text.encode_utf16().count() <= 3900);
        assert_eq!(text.lines().filter(|line| *line == "```").count() % 2, 0, "{text}");
        found.extend(text.lines().filter(|line| line.starts_with("let ")).map(str::to_owned));
    }
    let wanted: Vec<_> = whole.lines().filter(|line| line.starts_with("let ")).map(str::to_owned).collect();
    assert_eq!(found, wanted);
    let parts = texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("Part "));
    assert_eq!(parts.filter(|line| line.ends_with("年度 🎈, as *told*.")).count(), number);
}

/// How long after a call that failed like `error` the next call of `method` came.
fn pause_after(state: &StandInState, method: &str, error: &str) -> Option<Duration> {
    let failed = state.calls.iter().position(|call| call.method == method && call.error.as_deref() == Some(error))?;
    let next = state.calls[failed + 1..].iter().find(|call| call.method == method)?;
    Some(next.at.duration_since(state.calls[failed].at))
}

#[test]
fn a_rate_limit_is_obeyed_and_nothing_is_lost() {
    let setup = Setup::start(&json!({}));
    setup.slack.fail("chat.postMessage", [Fault::TooMany(1)]);
    setup.slack.fail("chat.update", [Fault::TooMany(2), Fault::Status(500), Fault::Error("internal_error")]);
    let asked = setup.ask("1.1", "slowly");
    asked.text("one");
    setup.shows("1.1", &["one"]);
    asked.text(" two");
    asked.text(" three");
    asked.done("one two three");
    setup.shows("1.1", &["one two three"]);
    let state = setup.slack.state();
    let calls = &state.calls;
    let posts: Vec<_> = calls.iter().filter(|call| call.method == "chat.postMessage").collect();
    assert!(posts[1].at.duration_since(posts[0].at) >= Duration::from_secs(1));
    let pause = pause_after(&state, "chat.update", "ratelimited").expect("it was called again");
    assert!(pause >= Duration::from_secs(2), "{pause:?}");
}

#[test]
fn a_channel_gets_one_message_or_edit_per_interval() {
    let setup = Setup::start(&json!({"interval": "300ms"}));
    let (first, second) = (setup.ask("1.1", "first"), setup.ask("2.1", "second"));
    let until = Instant::now() + Duration::from_millis(1500);
    let mut count = 0;
    while Instant::now() < until {
        first.text("a ");
        second.text("b ");
        count += 1;
        // The next words come when Slack has seen something.
        let calls = setup.slack.state().calls.len();
        setup.slack.wait("a call", |state| (state.calls.len() > calls || Instant::now() >= until).then_some(()));
    }
    first.done("");
    second.done("");
    setup.shows("1.1", &["a ".repeat(count).trim_end()]);
    setup.shows("2.1", &["b ".repeat(count).trim_end()]);
    let state = setup.slack.state();
    let times: Vec<_> =
        state.calls.iter().filter(|call| call.method.starts_with("chat.")).map(|call| call.at).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
    // A call may take a few milliseconds more than the one after it.
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(200)), "{gaps:?}");
    assert!(gaps.len() >= 4, "{gaps:?}");
}

#[test]
fn a_message_that_cannot_be_edited_is_posted_anew() {
    for error in ["message_not_found", "edit_window_closed", "cant_update_message"] {
        let setup = Setup::start(&json!({}));
        let asked = setup.ask("1.1", "edit");
        asked.text("half");
        setup.shows("1.1", &["half"]);
        setup.slack.fail("chat.update", [Fault::Error(error)]);
        asked.text(" of it");
        asked.done("half of it");
        setup.shows("1.1", &["half of it"]);
    }
}

#[test]
fn a_lost_connection_does_not_lose_the_answer() {
    let setup = Setup::start(&json!({"mode": "final"}));
    setup.slack.fail("chat.postMessage", [Fault::Status(503), Fault::Error("service_unavailable")]);
    let asked = setup.ask("1.1", "lost");
    asked.text("Let me see.");
    asked.text("\n\nIt is so.");
    asked.done("It is so.");
    setup.shows("1.1", &["It is so."]);
    // The call was cut after it was done: the next one shows the same once more, which is better than never.
    setup.slack.fail("chat.postMessage", [Fault::Cut]);
    setup.ask("2.1", "cut").done("twice");
    setup.slack.wait("two messages", |state| {
        let in_thread = state.messages.iter().filter(|message| message.thread.as_deref() == Some("2.1"));
        (in_thread.count() == 2).then_some(())
    });
}

#[test]
fn two_threads_at_once_do_not_mix() {
    let setup = Setup::start(&json!({}));
    let asked: Vec<_> = (0..6).map(|number| setup.ask(&format!("{number}.1"), &format!("question {number}"))).collect();
    for round in 0..5 {
        for (number, asked) in asked.iter().enumerate() {
            asked.text(&format!("{number}-{round} "));
        }
    }
    for (number, asked) in asked.iter().enumerate().rev() {
        asked.done("");
        let wanted: Vec<_> = (0..5).map(|round| format!("{number}-{round}")).collect();
        setup.shows(&format!("{number}.1"), &[&wanted.join(" ")]);
    }
}

#[test]
fn an_answer_mentions_no_one_and_unfolds_nothing() {
    let setup = Setup::start(&json!({}));
    setup.ask("1.1", "shout").done("<!channel> @here <@U0ANN> https://x.example");
    setup.shows("1.1", &["&lt;!channel&gt; @\u{2060}here &lt;@U0ANN&gt; <https://x.example>"]);
    let body = setup.slack.message("channel").body;
    for (name, value) in [
        ("parse", json!("none")),
        ("link_names", json!(false)),
        ("unfurl_links", json!(false)),
        ("unfurl_media", json!(false)),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
}

#[test]
fn a_turn_that_begins_again_replaces_its_text_and_an_error_is_told() {
    let setup = Setup::start(&json!({}));
    let asked = setup.ask("1.1", "again");
    asked.text("wrong");
    setup.shows("1.1", &["wrong"]);
    asked.event(SessionEvent::Restart);
    asked.text("right");
    asked.done("right");
    setup.shows("1.1", &["right"]);
    let asked = setup.ask("2.1", "fail");
    asked.text("half");
    let error = ErrorBody::new(Code::NoModel, "no model is configured").hint("set `model` under `[agent]`");
    asked.event(SessionEvent::Error { error });
    setup.shows("2.1", &["half\n\n*No answer:* no model is configured\nset `model` under `[agent]`"]);
    setup.ask("3.1", "nothing").done("");
    setup.shows("3.1", &["_It ended without an answer (completed)._"]);
}

#[test]
fn a_thread_that_takes_no_answer_does_not_stop_the_others() {
    let mut setup = Setup::start(&json!({}));
    setup.slack.fail("chat.postMessage", [Fault::Error("is_archived")]);
    setup.ask("1.1", "archived").done("lost");
    setup.slack.wait("the refusal", |state| {
        state.calls.iter().any(|call| call.error.as_deref() == Some("is_archived")).then_some(())
    });
    setup.ask("2.1", "other").done("fine");
    setup.shows("2.1", &["fine"]);
    setup.stop().expect("stopped");
    setup.reconnect();
    setup.ask("3.1", "third").done("fine");
    setup.shows("3.1", &["fine"]);
    assert_eq!(setup.sessions.count(), 3, "it is not asked again");
}

#[test]
fn an_answer_that_was_not_delivered_is_posted_after_a_restart() {
    for is_crash in [false, true] {
        let mut setup = Setup::start(&json!({}));
        let asked = setup.ask("1.1", "long work");
        asked.text("I begin");
        setup.shows("1.1", &["I begin"]);
        setup.recorded(&format!("\"messages\":[\"{}\"]", setup.slack.message("I begin").ts));
        if is_crash {
            setup.crash();
        } else {
            // The service stops with us, and says so first.
            asked.event(SessionEvent::Error { error: crate::service::stopping() });
            setup.stop().expect("stopped");
        }
        setup.reconnect();
        let again = setup.sessions.asked("long work");
        assert_eq!(again.question.repeat_key, asked.question.repeat_key);
        assert_eq!(again.session(), asked.session());
        again.text("I begin, and it is done.");
        again.done("I begin, and it is done.");
        setup.shows("1.1", &["I begin, and it is done."]);
        // Slack shows it a moment before we know that it does.
        setup.recorded("\"answered\":");
        setup.stop().expect("stopped");
        setup.reconnect();
        setup.ask("2.1", "marker").done("ok");
        setup.shows("2.1", &["ok"]);
        assert_eq!(setup.sessions.count(), 3, "the answer was delivered");
    }
}

#[test]
fn questions_of_one_thread_are_asked_in_their_order_also_after_a_restart() {
    let mut setup = Setup::start(&json!({}));
    let in_thread = |ts: &str, text: &str| {
        let mut event = mention(ANN, CHANNEL, ts, text);
        event["thread_ts"] = "1.1".into();
        event
    };
    let texts: Vec<_> = (0..20).map(|number| format!("number {number}")).collect();
    for (number, text) in texts.iter().enumerate() {
        setup.slack.event(&in_thread(&format!("1.{number}"), text));
    }
    for _ in 0..2 {
        let asked: Vec<_> = texts.iter().map(|text| setup.sessions.asked(text)).collect();
        drop(asked);
        setup.stop().expect("stopped");
        let order = setup.sessions.order.lock().expect("no panics").split_off(0);
        assert_eq!(order, texts);
        setup.reconnect();
    }
}

#[test]
fn an_answer_that_starts_over_repeats_neither_itself_nor_what_stands_before_it() {
    let earlier = "(The answer to your earlier question: 3)\n\n";
    let text = |text: &str| SessionEvent::Text { text: text.to_owned() };
    let cases: [(&str, &[SessionEvent], &str); 3] = [
        ("1.1", &[text("Hel"), SessionEvent::Restart, text("Hello.")], "Hello."),
        ("2.1", &[text("I look."), text("\n\nHello.")], "I look.\n\nHello."),
        (
            "3.1",
            &[text("I look."), SessionEvent::Restart, text("I lo"), SessionEvent::Restart, text("Hello.")],
            "Hello.",
        ),
    ];
    for mode in ["stream", "final"] {
        let setup = Setup::start(&json!({"mode": mode}));
        for (thread, events, streamed) in &cases {
            let asked = setup.ask(thread, thread);
            asked.event(SessionEvent::Preface { text: earlier.to_owned() });
            for event in *events {
                asked.event(event.clone());
            }
            // The stream itself puts the preface before the answer.
            asked.done("Hello.");
            let shown = if mode == "stream" { streamed } else { "Hello." };
            setup.shows(thread, &[&format!("{earlier}{shown}")]);
        }
    }
}

#[test]
fn why_an_answer_ended_early_is_said_below_it_and_the_answer_once() {
    let setup = Setup::start(&json!({}));
    let asked = setup.ask("1.1", "all of it");
    asked.text("I look.");
    asked.text("\n\nHalf.");
    let answer = "Half.\n\n[Stopped: this question used up its budget.]".to_owned();
    asked.event(SessionEvent::Done(TurnOutcome::of(101, answer, StopReason::BudgetExhausted)));
    let words = "_A limit cut the work short (budget_exhausted)._";
    let shown = format!("I look.\n\nHalf.\n\n[Stopped: this question used up its budget.]\n\n{words}");
    setup.shows("1.1", &[&shown]);
}
