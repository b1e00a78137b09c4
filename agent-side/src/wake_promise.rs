//! Whether the caller will be woken when a task is final, and the wake-ups recorded for it.
//!
//! A promise is made only if something keeps it: the caller's own agent loop, or the hook of its client,
//! which must have run in this session. A failure to record or remove a wake-up never fails the command; the
//! worst effect is one wake-up too many or too few.

use std::path::PathBuf;

use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::Answer;
use protocol::mailbox::wakeups::WakeTarget;
use protocol::task::TaskId;

use crate::context::Context;

/// Who wakes the caller.
#[derive(Debug)]
pub enum WakePromise {
    None,
    /// The agent loop that called us, which keeps track of its tasks itself.
    Loop,
    /// The hook of the caller's client.
    Hook(WakeTarget),
}

impl WakePromise {
    /// Determines who wakes the caller of `context`; no one wakes a human.
    ///
    /// Costs one look at a folder of the mailbox for each client that the environment names.
    pub fn of(context: &Context, mailbox: &Mailbox) -> Self {
        if context.caller.wakes {
            return Self::Loop;
        }
        // A call from within this process may run in a client's shell, but does not come from that client.
        if !context.is_process() {
            return Self::None;
        }
        let targets = context.paths.clients().flat_map(|(client, session)| match session {
            Some(session) => vec![by_session(client, &session)],
            // The model may have changed into a subfolder of the client's folder.
            None => folders().map(|folder| by_folder(client, &folder)).collect(),
        });
        let mut watched = targets.filter(|target| mailbox.is_wake_target(target));
        watched.next().map_or(Self::None, Self::Hook)
    }

    pub fn is_made(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Records that the caller is to be woken for task `id`. Call it before the request is posted, so that a
    /// command that is killed right after posting leaves the wake-up behind.
    pub fn record(&self, mailbox: &Mailbox, id: TaskId) {
        if let Self::Hook(target) = self {
            // Without the record there is no wake-up, but the result file is still written.
            drop(mailbox.add_wakeup(target, id));
        }
    }

    /// Corrects the recorded wake-up: removes it for a refused request, and moves it to the existing task
    /// for a repeated one.
    pub fn update_after_reply(&self, mailbox: &Mailbox, id: TaskId, reply: &Reply) {
        let Reply::Answer(answer) = reply else { return };
        if let Answer::SameAs(existing) = answer {
            self.record(mailbox, *existing);
        }
        self.remove(mailbox, id);
    }

    /// Removes the wake-up for task `id`, since the caller has seen its final result or there is no such task.
    pub fn remove(&self, mailbox: &Mailbox, id: TaskId) {
        if let Self::Hook(target) = self {
            // A failure means one wake-up too many.
            drop(mailbox.remove_wakeup(target, id));
        }
    }
}

pub fn by_session(client: &str, session: &str) -> WakeTarget {
    WakeTarget::new(client, &format!("session:{session}"))
}

pub fn by_folder(client: &str, folder: &std::path::Path) -> WakeTarget {
    WakeTarget::new(client, &format!("folder:{}", folder.display()))
}

/// The working directory and its parents, innermost first.
fn folders() -> impl Iterator<Item = PathBuf> {
    let here = std::env::current_dir().ok();
    std::iter::successors(here, |folder| folder.parent().map(PathBuf::from))
}
