//! Whether the caller will be woken, and what it is owed until then.
//!
//! A promise is made only where somebody keeps it: the caller's own loop says so, or the hook of its
//! client has run in this very session. Everything here is a nudge: where a mark cannot be written, the
//! command goes on, and the worst that happens is one wake too many or too few.

use std::path::PathBuf;

use protocol::mailbox::Mailbox;
use protocol::mailbox::request::Answer;
use protocol::mailbox::wakeups::WakeTarget;
use protocol::task::TaskId;

use crate::context::Context;
use crate::handover::HandoverReply;

/// Who wakes the caller.
#[derive(Debug)]
pub(crate) enum WakePromise {
    Nobody,
    /// The loop that called us; it keeps its own books.
    Loop,
    /// The hook of the caller's client.
    Hook(WakeTarget),
}

impl WakePromise {
    /// One look at a folder for each client that says it is there; none for a human.
    pub(crate) fn of(context: &Context, mailbox: &Mailbox) -> Self {
        if context.caller.wakes {
            return Self::Loop;
        }
        // Whoever calls in the same process may run in a client's shell, but is not that client.
        if !context.is_process() {
            return Self::Nobody;
        }
        let listeners = context.paths.clients().flat_map(|(client, session)| match session {
            Some(session) => vec![by_session(client, &session)],
            // A model may have gone down into a subfolder.
            None => folders().map(|folder| by_folder(client, &folder)).collect(),
        });
        let mut listening = listeners.filter(|listener| mailbox.listens(listener));
        listening.next().map_or(Self::Nobody, Self::Hook)
    }

    pub(crate) fn is_promised(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Before the request is posted: whoever is killed then, the session is not forgotten.
    pub(crate) fn owe(&self, mailbox: &Mailbox, id: TaskId) {
        if let Self::Hook(listener) = self {
            // Without the mark nobody is woken, and the result file is there all the same.
            drop(mailbox.add_wakeup(listener, id));
        }
    }

    /// When the answer is known: a refused request is owed nothing, a known one as itself.
    pub(crate) fn answered(&self, mailbox: &Mailbox, id: TaskId, reply: &HandoverReply) {
        let HandoverReply::Answer(answer) = reply else { return };
        if let Answer::SameAs(other) = answer {
            self.owe(mailbox, *other);
        }
        self.collected(mailbox, id);
    }

    /// The caller was shown the final result.
    pub(crate) fn collected(&self, mailbox: &Mailbox, id: TaskId) {
        if let Self::Hook(listener) = self {
            // One wake too many.
            drop(mailbox.remove_wakeup(listener, id));
        }
    }
}

pub(crate) fn by_session(client: &str, session: &str) -> WakeTarget {
    WakeTarget::new(client, &format!("session:{session}"))
}

pub(crate) fn by_folder(client: &str, folder: &std::path::Path) -> WakeTarget {
    WakeTarget::new(client, &format!("folder:{}", folder.display()))
}

fn folders() -> impl Iterator<Item = PathBuf> {
    let here = std::env::current_dir().ok();
    std::iter::successors(here, |folder| folder.parent().map(PathBuf::from))
}
