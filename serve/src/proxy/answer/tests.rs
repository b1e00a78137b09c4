//! What is shown of a turn.

use agent_loop::model::conversation::StopReason;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::task::State;
use tokio::sync::mpsc;

use super::*;
use crate::proxy::tests::outcome;
use crate::service::turn::{EventId, GateNews, TaskNews};

/// The answer of these events; those before the turn are marked.
fn stream(events: Vec<(bool, SessionEvent)>) -> AnswerStream {
    let (sender, receiver) = mpsc::unbounded_channel();
    for (number, (is_before, event)) in events.into_iter().enumerate() {
        let id = if is_before {
            crate::service::PREFACE_EVENT
        } else {
            EventId { turn: 1, load: 7, number: number as u64 + 1, is_over: false }
        };
        sender.send(std::sync::Arc::new(LoggedEvent { id, event })).expect("received");
    }
    AnswerStream::new(TurnStream::of(receiver, 101))
}

fn text(text: &str) -> (bool, SessionEvent) {
    (false, SessionEvent::Text { text: text.to_owned() })
}

fn preface(text: &str) -> (bool, SessionEvent) {
    (true, SessionEvent::Text { text: text.to_owned() })
}

fn gate(id: TaskId) -> (bool, SessionEvent) {
    let message = "`send_mail` waits for your decision on the page: agent-magic-tool executor page".to_owned();
    (false, SessionEvent::Gate(GateNews { id, subtool: "send_mail".to_owned(), message }))
}

fn done(answer: &str, reason: StopReason) -> (bool, SessionEvent) {
    (false, SessionEvent::Done(outcome(answer, reason)))
}

async fn shown(mut answer: AnswerStream) -> Result<String, ProxyFailure> {
    let mut shown = String::new();
    loop {
        match answer.next().await {
            AnswerPiece::Text(text) => shown += &text,
            AnswerPiece::Silence => {}
            AnswerPiece::End(_) => return Ok(shown),
            AnswerPiece::Failure(failure) => return Err(failure),
        }
    }
}

#[tokio::test]
async fn a_task_that_waits_for_a_human_is_mentioned_once_and_other_news_are_not() {
    let id = TaskId::new();
    let news = TaskNews { id, subtool: "send_mail".to_owned(), state: State::AwaitingConfirmation, preview: None };
    let events = vec![
        text("I send "),
        text("it."),
        (false, SessionEvent::Task(news)),
        gate(id),
        gate(id),
        (false, SessionEvent::Note { text: "a field was left out".to_owned() }),
        text("\n\nIt is sent."),
        done("It is sent.", StopReason::Completed),
    ];
    let expected =
        "I send it.\n\n`send_mail` waits for your decision on the page: agent-magic-tool executor page\n\nIt is sent.";
    assert_eq!(shown(stream(events.clone())).await.expect("an end"), expected);
    let (whole, end) = stream(events).whole().await.expect("an end");
    assert_eq!(whole, "It is sent.", "what is not streamed has the answer alone");
    assert_eq!(end.outcome.usage.output_tokens, 10);
}

#[tokio::test]
async fn no_sentence_of_the_model_is_interrupted_and_none_of_its_lines_is_lost() {
    let (id, words) =
        (TaskId::new(), "`send_mail` waits for your decision on the page: agent-magic-tool executor page");
    let news = TaskNews { id, subtool: "send_mail".to_owned(), state: State::AwaitingConfirmation, preview: None };
    let task = (false, SessionEvent::Task(news));
    let events =
        vec![text("It waits "), task, gate(id), text("for you."), done("It waits for you.", StopReason::Completed)];
    assert_eq!(shown(stream(events)).await.expect("an end"), format!("It waits for you.\n\n{words}\n\n"));
    let code = "def a(): pass\n\n\ndef b(): pass";
    let events = vec![text("def a(): pass\n\n"), text("\ndef b(): pass"), done(code, StopReason::Completed)];
    assert_eq!(shown(stream(events)).await.expect("an end"), code);
    // It is said when the model pauses, even if nothing else happens.
    let (sender, receiver) = mpsc::unbounded_channel();
    for (number, (_, event)) in [text("It waits"), gate(id)].into_iter().enumerate() {
        let id = EventId { turn: 1, load: 7, number: number as u64 + 1, is_over: false };
        sender.send(std::sync::Arc::new(LoggedEvent { id, event })).expect("received");
    }
    let mut answer = AnswerStream::new(TurnStream::of(receiver, 101));
    assert!(matches!(answer.next().await, AnswerPiece::Text(text) if text == "It waits"));
    assert!(matches!(answer.next().await, AnswerPiece::Text(text) if text == format!("\n\n{words}\n\n")));
}

#[tokio::test]
async fn an_answer_that_begins_anew_says_so_if_something_was_shown() {
    let restart = || (false, SessionEvent::Restart);
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
    assert_eq!(stream(events).whole().await.expect("an end").0, format!("It is under way.\n\n{STOPPED}"));
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
    assert_eq!(stream(events).whole().await.expect("an end").0, answer);
    let only_commands = vec![text("!help"), done("!help", StopReason::Completed)];
    assert_eq!(shown(stream(only_commands.clone())).await.expect("an end"), "!help");
    assert_eq!(stream(only_commands).whole().await.expect("an end").0, "!help");
}

#[tokio::test]
async fn a_turn_that_fails_at_once_is_an_error_with_a_status() {
    let error = |code| (false, SessionEvent::Error { error: ErrorBody::new(code, "it is so") });
    let mut failed = stream(vec![error(Code::ModelFailed)]);
    assert_eq!(failed.begun().await.expect_err("failed").status.as_u16(), 502);
    let mut stopping = stream(vec![error(Code::NoExecutor)]);
    assert_eq!(stopping.begun().await.expect_err("failed").status.as_u16(), 503);
    let mut ended = stream(vec![]);
    assert_eq!(ended.whole().await.expect_err("no end").code, "no-executor");
    let mut begun = stream(vec![done("[Stopped: refused.]", StopReason::Refused)]);
    begun.begun().await.expect("begun");
    assert_eq!(shown(begun).await.expect("an end"), "[Stopped: refused.]", "nothing is lost by looking");
}

#[tokio::test]
async fn a_silent_turn_keeps_the_connection_alive() {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut answer = AnswerStream::new(TurnStream::of(receiver, 101));
    answer.keep_alive = Duration::from_millis(1);
    assert!(matches!(answer.next().await, AnswerPiece::Silence));
    drop(sender);
    assert!(matches!(answer.next().await, AnswerPiece::Failure(_)));
}
