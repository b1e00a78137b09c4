//! A conversation that the client keeps: a loop for one question, of which nothing is stored.

use std::sync::Arc;
use std::time::Duration;

use agent_loop::driver::LoopCommand;
use agent_loop::journal::{Journal, SessionClient};
use agent_loop::machine::Budget;
use agent_loop::model::conversation::{JournalEntry, ModelTurn};
use agent_loop::own_tasks::OwnTasksShell;
use agent_loop::session_loop::{LoopContext, LoopOptions, SessionLoop};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::shell::Shell;
use tokio::sync::mpsc;

use super::approver_window::ApproverWindow;
use super::live::{LiveParts, watch_tasks};
use super::log::{EventLog, EventSender};
use super::quotas::TurnPermit;
use super::revoked::{RevokedKeys, cancel_waiting};
use crate::service::turn::{Asker, ClientConversation, ClientMessage, TurnStream};

/// The id of a client whose session is not kept.
const STATELESS: &str = "stateless";

/// Answers the last message of the conversation. The work stops when the client goes.
pub(super) async fn ask(
    parts: LiveParts,
    conversation: ClientConversation,
    permit: TurnPermit,
) -> Result<TurnStream, ErrorBody> {
    let ClientConversation { asker, system, mut messages, model, limits } = conversation;
    let Some(ClientMessage::User(question)) = messages.pop() else {
        return Err(ErrorBody::new(Code::InvalidInput, "the last message is not the user's")
            .hint("send the conversation so far, and the question as its last message"));
    };
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
    let model_factory = match system {
        None => model_factory,
        Some(system) => Arc::new(model_factory.as_ref().clone().instructed(Some(system))),
    };
    let log = Arc::new(EventLog::new(0, load, mailbox.clone(), config.agent.preview, None));
    let watch = trigger.again();
    let client = asker.key.clone().map(|key| SessionClient { id: STATELESS.to_owned(), key: Some(key) });
    let own_shell: Arc<dyn Shell> = match &client {
        Some(_) => Arc::new(OwnTasksShell::new(Arc::clone(&shell), &[])),
        None => Arc::clone(&shell),
    };
    let context = LoopContext {
        config: &config,
        mailbox,
        shell: Arc::new(ApproverWindow::new(own_shell, approvers, asker.clone(), revoked.clone())),
        model_factory: Arc::clone(&model_factory),
        trigger,
        observer: Arc::<EventLog>::clone(&log),
    };
    let own_caller = caller.clone();
    let options = LoopOptions { model, caller, ..LoopOptions::default() };
    let resumed = Some((Journal::in_memory(client), messages.into_iter().map(entry).collect()));
    let opening = SessionLoop::open(options, context, resumed, || unreachable!("it is given"));
    let mut session_loop = Box::pin(opening).await?;
    log.set_model(session_loop.model(), model_factory.writes_calls(session_loop.model()));
    let (sender, events) = mpsc::unbounded_channel();
    log.expect_question(sender.clone());
    let commands = session_loop.take_sender().expect("a new loop has a sender");
    let (steps, budget) =
        limits.lower(config.agent.steps, Budget { tokens: config.agent.tokens, cost: config.agent.cost });
    let ended = stopping.child_token();
    watch_tasks(&tracker, Arc::clone(&log), watch, ended.clone());
    tracker.spawn(async move {
        let sent = async {
            commands.send(LoopCommand::Limit { steps, budget }).await?;
            commands.send(LoopCommand::Ask(question)).await
        };
        if sent.await.is_err() {
            return log.fail(super::stopping());
        }
        let ran = {
            let interrupted = session_loop.interrupted();
            let running = session_loop.run();
            tokio::pin!(running);
            let deadline = until_over(limits.deadline);
            // Dropped once the question is over, which ends the loop.
            let (mut commands, mut is_gone) = (Some(commands), false);
            let mut activity = log.turns();
            tokio::pin!(deadline);
            loop {
                tokio::select! {
                    ran = &mut running => break ran,
                    () = ended.cancelled() => break Err(super::stopping()),
                    () = until_gone(&sender, &revoked, &asker), if !is_gone => {
                        (commands, is_gone) = (None, true);
                        interrupted.notify_one();
                    }
                    () = &mut deadline, if commands.is_some() => {
                        commands = None;
                        interrupted.notify_one();
                    }
                    _ = activity.changed(), if commands.is_some() => commands = None,
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

fn entry(message: ClientMessage) -> JournalEntry {
    match message {
        ClientMessage::User(text) => JournalEntry::Asked { text },
        ClientMessage::Assistant(text) => {
            JournalEntry::Answered { turn: Box::new(ModelTurn { text, ..ModelTurn::default() }) }
        }
    }
}
