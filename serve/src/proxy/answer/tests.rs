//! What is shown of a turn.

use agent_loop::model::conversation::StopReason;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::State;
use tokio::sync::mpsc;

use super::*;
use crate::proxy::tests::{PlainFormat, outcome};
use crate::service::turn::{EventId, LoggedEvent, TaskNews, WaitingNews};

/// The answer of these events.
fn stream(events: Vec<SessionEvent>) -> AnswerStream<PlainFormat> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for (number, event) in (1..).zip(events) {
        let id = EventId { turn: 1, load: 7, number, is_over: false };
        sender.send(std::sync::Arc::new(LoggedEvent { id, event })).expect("received");
    }
    AnswerStream::new(TurnStream::of(receiver, 101), PlainFormat::default())
}

fn text(text: &str) -> SessionEvent {
    SessionEvent::Text { text: text.to_owned() }
}

fn preface(text: &str) -> SessionEvent {
    SessionEvent::Preface { text: text.to_owned() }
}

fn waiting(id: TaskId) -> SessionEvent {
    let message = "`send_mail` waits for your decision on the page: agent-magic-tool executor page".to_owned();
    SessionEvent::Waiting(WaitingNews { id, subtool: "send_mail".to_owned(), message })
}

fn done(answer: &str, reason: StopReason) -> SessionEvent {
    SessionEvent::Done(outcome(answer, reason))
}

async fn shown(mut answer: AnswerStream<PlainFormat>) -> Result<String, ProxyFailure> {
    let mut shown = String::new();
    while let Some((sent, _)) = answer.next().await {
        shown += &sent;
    }
    answer.ended.expect("it has ended").map(|_| shown)
}

/// The answer that is not streamed, and how many tokens it took.
async fn whole(events: Vec<SessionEvent>) -> (String, u64) {
    serde_json::from_value(stream(events).whole().await.expect("an end")).expect("a text and a number")
}

#[tokio::test]
async fn a_task_that_waits_for_a_human_is_mentioned_once_and_other_news_are_not() {
    let id = TaskId::new();
    let news = TaskNews { id, subtool: "send_mail".to_owned(), state: State::AwaitingConfirmation, preview: None };
    let events = vec![
        text("I send "),
        text("it."),
        SessionEvent::Task(news),
        waiting(id),
        waiting(id),
        SessionEvent::Note { text: "a field was left out".to_owned() },
        text("\n\nIt is sent."),
        done("It is sent.", StopReason::Completed),
    ];
    let expected =
        "I send it.\n\n`send_mail` waits for your decision on the page: agent-magic-tool executor page\n\nIt is sent.";
    assert_eq!(shown(stream(events.clone())).await.expect("an end"), expected);
    assert_eq!(whole(events).await, ("It is sent.".to_owned(), 10), "what is not streamed has the answer alone");
}

#[tokio::test]
async fn no_sentence_of_the_model_is_interrupted_and_none_of_its_lines_is_lost() {
    let (id, words) =
        (TaskId::new(), "`send_mail` waits for your decision on the page: agent-magic-tool executor page");
    let news = TaskNews { id, subtool: "send_mail".to_owned(), state: State::AwaitingConfirmation, preview: None };
    let task = SessionEvent::Task(news);
    let events =
        vec![text("It waits "), task, waiting(id), text("for you."), done("It waits for you.", StopReason::Completed)];
    assert_eq!(shown(stream(events)).await.expect("an end"), format!("It waits for you.\n\n{words}\n\n"));
    let code = "def a(): pass\n\n\ndef b(): pass";
    let events = vec![text("def a(): pass\n\n"), text("\ndef b(): pass"), done(code, StopReason::Completed)];
    assert_eq!(shown(stream(events)).await.expect("an end"), code);
    // It is said when the model pauses, even if nothing else happens.
    let (sender, receiver) = mpsc::unbounded_channel();
    for (number, event) in (1..).zip([text("It waits"), waiting(id)]) {
        let id = EventId { turn: 1, load: 7, number, is_over: false };
        sender.send(std::sync::Arc::new(LoggedEvent { id, event })).expect("received");
    }
    let mut answer = AnswerStream::new(TurnStream::of(receiver, 101), PlainFormat::default());
    assert_eq!(answer.next().await.expect("a text").0, "It waits");
    assert_eq!(answer.next().await.expect("a text").0, format!("\n\n{words}\n\n"));
}

#[tokio::test]
async fn an_answer_that_begins_anew_says_so_if_something_was_shown() {
    let restart = || SessionEvent::Restart;
    let events = vec![restart(), text("Hel"), restart(), text("Hello."), done("Hello.", StopReason::Completed)];
    let expected = "Hel\n\n(The connection to the model broke. The answer starts over.)\n\nHello.";
    assert_eq!(shown(stream(events)).await.expect("an end"), expected);
    let events = vec![preface("Earlier.\n\n"), restart(), text("Hello."), done("Hello.", StopReason::Completed)];
    assert_eq!(shown(stream(events)).await.expect("an end"), "Earlier.\n\nHello.");
}

#[tokio::test]
async fn why_an_answer_ended_early_is_said() {
    let stopped = "Half.\n\n[Stopped: this question used up its budget.]";
    let events = vec![text("Half."), done(stopped, StopReason::BudgetExhausted)];
    assert_eq!(shown(stream(events)).await.expect("an end"), stopped);
    let events = vec![done("[Stopped: refused.]", StopReason::Refused)];
    assert_eq!(shown(stream(events)).await.expect("an end"), "[Stopped: refused.]");
    let events = vec![text("It is under way."), done("It is under way.", StopReason::Cancelled)];
    assert_eq!(shown(stream(events.clone())).await.expect("an end"), format!("It is under way.\n\n{STOPPED}"));
    assert_eq!(whole(events).await.0, format!("It is under way.\n\n{STOPPED}"));
}

#[tokio::test]
async fn what_came_before_the_turn_belongs_to_the_answer() {
    let answer = "The model is sonnet.\n\nHello.";
    let events = vec![
        preface("The model is sonnet.\n\n"),
        text("I look."),
        text("\n\nHello."),
        // The stream itself puts the preface before the answer.
        done("Hello.", StopReason::Completed),
    ];
    assert_eq!(shown(stream(events.clone())).await.expect("an end"), "The model is sonnet.\n\nI look.\n\nHello.");
    assert_eq!(whole(events).await.0, answer);
    let only_commands = vec![text("!help"), done("!help", StopReason::Completed)];
    assert_eq!(shown(stream(only_commands.clone())).await.expect("an end"), "!help");
    assert_eq!(whole(only_commands).await.0, "!help");
}

#[tokio::test]
async fn a_turn_that_fails_at_once_is_an_error_with_a_status() {
    let error = |code| SessionEvent::Error { error: ErrorBody::new(code, "it is so") };
    let mut failed = stream(vec![error(Code::ModelFailed)]);
    assert_eq!(failed.begin().await.expect_err("failed").status.as_u16(), 502);
    let mut stopping = stream(vec![error(Code::NoExecutor)]);
    assert_eq!(stopping.begin().await.expect_err("failed").status.as_u16(), 503);
    let mut ended = stream(vec![]);
    assert_eq!(ended.whole().await.expect_err("no end").code, "no-executor");
    let mut begun = stream(vec![done("[Stopped: refused.]", StopReason::Refused)]);
    begun.begin().await.expect("begun");
    assert_eq!(shown(begun).await.expect("an end"), "[Stopped: refused.]", "nothing is lost by looking");
}

#[tokio::test]
async fn a_silent_turn_keeps_the_connection_alive() {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut answer = AnswerStream::new(TurnStream::of(receiver, 101), PlainFormat::default());
    answer.keep_alive = Duration::from_millis(1);
    assert_eq!(answer.next().await.expect("something").0, ": keep-alive\n\n");
    drop(sender);
    shown(answer).await.expect_err("the turn has no end");
}
