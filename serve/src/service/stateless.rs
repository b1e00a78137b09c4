//! A conversation that the client keeps: a loop for one question, of which nothing is stored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_loop::driver::{LoopCommand, LoopEvent, LoopObserver as _};
use agent_loop::journal::{EntriesCopy, Journal, SessionClient};
use agent_loop::machine::Budget;
use agent_loop::model::conversation::{JournalEntry, ModelTurn};
use agent_loop::model_factory::ModelFactory;
use agent_loop::own_tasks::OwnTasksShell;
use agent_loop::session_loop::{LoopContext, LoopOptions, SessionLoop};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::shell::Shell;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::approver_window::ApproverWindow;
use super::client_calls::{ClientCallKeeper, ClientExchanges, LedToCalls};
use super::live::{LiveParts, watch_tasks};
use super::log::{EventLog, EventSender};
use super::quotas::TurnPermit;
use super::revoked::{RevokedKeys, cancel_waiting};
use crate::service::turn::{Asker, ClientConversation, ClientMessage, TurnStream};

/// What a model is told that also has tools of its client: our own prompt speaks of one tool.
const CLIENT_TOOLS: &str = "Besides `command_executor` you have the other tools that are offered to you. Use each for what it is for. A turn calls either `command_executor` or other tools, not both.";

/// The id of a client whose session is not kept.
const STATELESS: &str = "stateless";

/// Answers the last message of the conversation. The work stops when the client goes.
pub(super) async fn ask(
    parts: LiveParts,
    conversation: ClientConversation,
    permit: TurnPermit,
    exchanges: Arc<ClientExchanges>,
) -> Result<TurnStream, ErrorBody> {
    if matches!(conversation.messages.last(), None | Some(ClientMessage::Assistant { .. })) {
        return Err(ErrorBody::new(Code::InvalidInput, "the last message is not the user's")
            .hint("send the conversation so far, and the question as its last message"));
    }
    let ClientConversation { asker, system, messages, model, limits, tools, answers } = conversation;
    let LedToCalls { question, entries } = led(messages, asker.key.as_ref(), &exchanges);
    let LiveParts {
        config,
        model_factory,
        mailbox,
        shell,
        trigger,
        caller,
        approvers,
        tracker,
        revoked,
        stopping,
        load,
        ..
    } = parts;
    let model_factory = instructed(model_factory, system, !tools.is_empty());
    let log = Arc::new(EventLog::new(0, load, mailbox.clone(), config.agent.preview, None));
    let watch = trigger.again();
    let client = asker.key.clone().map(|key| SessionClient { id: STATELESS.to_owned(), key: Some(key) });
    let own_shell: Arc<dyn Shell> = match &client {
        Some(_) => Arc::new(OwnTasksShell::new(Arc::clone(&shell), &[])),
        None => Arc::clone(&shell),
    };
    let recorded: EntriesCopy = Arc::new(Mutex::default());
    let keeper = ClientCallKeeper::new(
        Arc::clone(&log),
        exchanges,
        asker.key.clone(),
        (question, Arc::clone(&recorded)),
        answers.one_call,
    );
    let context = LoopContext {
        config: &config,
        mailbox,
        shell: Arc::new(ApproverWindow::new(own_shell, approvers, asker.clone(), revoked.clone())),
        model_factory: Arc::clone(&model_factory),
        trigger,
        observer: Arc::new(keeper),
    };
    let (steps, budget) = limits.lower(config.agent.steps, Budget::of(&config.agent));
    let steps = steps.saturating_add(requests_so_far(&entries));
    let own_caller = caller.clone();
    let options =
        LoopOptions { model, steps: Some(steps), caller, client_tools: tools, answers, ..LoopOptions::default() };
    let resumed = Some((Journal::in_memory(client, question).copied_to(recorded), entries));
    let opening = SessionLoop::open(options, context, resumed, || unreachable!("it is given"));
    let mut session_loop = Box::pin(opening).await?;
    log.set_model(session_loop.model(), model_factory.writes_calls(session_loop.model()));
    let (sender, events) = mpsc::unbounded_channel();
    log.expect_question(sender.clone());
    // The loop goes on with the conversation as it is, so that it reports no question.
    log.observe(LoopEvent::Asked(""));
    let commands = session_loop.take_sender().expect("a new loop has a sender");
    let ended = stopping.child_token();
    watch_tasks(&tracker, Arc::clone(&log), watch, ended.clone());
    tracker.spawn(async move {
        if commands.send(LoopCommand::Limit { steps, budget }).await.is_err() {
            return log.fail(super::stopping());
        }
        // The loop ends with its one question.
        drop(commands);
        let ran = {
            let interrupted = session_loop.interrupted();
            let running = session_loop.run();
            tokio::pin!(running);
            let deadline = until_over(limits.deadline);
            let (mut is_gone, mut is_over) = (false, false);
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    ran = &mut running => break ran,
                    () = ended.cancelled() => break Err(super::stopping()),
                    () = until_gone(&sender, &revoked, &asker), if !is_gone => {
                        is_gone = true;
                        interrupted.notify_one();
                    }
                    () = &mut deadline, if !is_over => {
                        is_over = true;
                        interrupted.notify_one();
                    }
                }
            }
        };
        ended.cancel();
        if sender.is_closed() || revoked.have(&asker) {
            cancel_waiting(&log, &shell, own_caller, revoked.end_of(&asker)).await;
        }
        if let Err(error) = ran {
            log.fail(error);
        }
        drop(permit);
    });
    Ok(TurnStream::of(events, 0))
}

/// The models with what the client's prompt says, and what they are told about its tools.
fn instructed(models: Arc<ModelFactory>, system: Option<String>, has_tools: bool) -> Arc<ModelFactory> {
    let parts = system.into_iter().chain(has_tools.then(|| CLIENT_TOOLS.to_owned()));
    match parts.reduce(|all, part| format!("{all}\n\n{part}")) {
        None => models,
        system => Arc::new(models.as_ref().clone().instructed(system)),
    }
}

/// Waits until the client has gone, or its key was revoked.
async fn until_gone(sender: &EventSender, revoked: &RevokedKeys, asker: &Asker) {
    tokio::select! {
        () = sender.closed() => {}
        () = revoked.until_they_have(asker) => {}
    }
}

/// Waits until the time of a question is over; without end if it has no deadline.
async fn until_over(deadline: Option<Duration>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline).await,
        None => std::future::pending().await,
    }
}

/// The conversation as a journal would have it, with what led to the client's calls where that is remembered.
fn led(messages: Vec<ClientMessage>, key: Option<&String>, exchanges: &ClientExchanges) -> LedToCalls {
    let mut entries = Vec::new();
    let mut question = None;
    for message in messages {
        match message {
            ClientMessage::User { text, images } => {
                // Images of results are no question of their own.
                question = question
                    .filter(|_| matches!(entries.last(), Some(JournalEntry::Called { .. })) && !images.is_empty());
                entries.push(JournalEntry::Asked { text, images });
            }
            ClientMessage::Assistant { text, calls } => {
                if let Some(led) = exchanges.of(key, &calls) {
                    question = Some(led.question);
                    entries.extend(led.entries);
                } else {
                    let turn = ModelTurn { text, calls, ..ModelTurn::default() };
                    entries.push(JournalEntry::Answered { turn: Box::new(turn) });
                }
            }
            ClientMessage::Results(results) => entries.push(JournalEntry::Called { results }),
        }
    }
    LedToCalls { question: question.unwrap_or_else(Uuid::now_v7), entries }
}

/// How many requests the last question has had: each request of the client may have as many again.
fn requests_so_far(entries: &[JournalEntry]) -> u32 {
    let since = entries.iter().rev().take_while(|entry| !matches!(entry, JournalEntry::Asked { .. }));
    let made = since.filter(|entry| {
        matches!(entry, JournalEntry::Answered { .. } | JournalEntry::Discarded { .. } | JournalEntry::Diagnosed { .. })
    });
    u32::try_from(made.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use agent_loop::model::conversation::{ToolCall, ToolResult};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_goes_on_after_the_clients_calls_and_another_one_begins_anew() {
        let call = ToolCall { id: "call_1".to_owned(), name: "theirs".to_owned(), arguments: json!({}) };
        let exchanges = ClientExchanges::default();
        let known = LedToCalls { question: Uuid::now_v7(), entries: Vec::new() };
        exchanges.keep(None, slice::from_ref(&call), known.clone());
        let user = |text: &str| ClientMessage::User { text: text.to_owned(), images: Vec::new() };
        let said = |calls: &[ToolCall]| ClientMessage::Assistant { text: String::new(), calls: calls.to_vec() };
        let called =
            [user("one"), said(slice::from_ref(&call)), ClientMessage::Results(vec![ToolResult::new(&call, "x", 0)])];
        let question = |messages: &[ClientMessage]| led(messages.to_vec(), None, &exchanges).question;
        assert_eq!(question(&called), known.question);
        let next = [called.to_vec(), vec![said(&[]), user("two")]].concat();
        assert_ne!(question(&next), known.question);
        assert_ne!(question(&called[..1]), known.question);
    }
}
