//! The hand-over as a caller sees it: a request goes into the mailbox, a reply comes back.
//!
//! Does not wait and does not start an executor: how often to look, and how long, is up to the caller.

use std::io;

use crate::caller::Caller;
use crate::mailbox::Mailbox;
use crate::mailbox::request::{Answer, Operation, Request};
use crate::task::TaskId;

/// A request in the mailbox whose reply has not been collected yet.
#[derive(Debug)]
pub struct PendingRequest<'a> {
    mailbox: &'a Mailbox,
    id: TaskId,
}

/// What the executor made of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The request became this task, whose result file exists.
    Accepted(TaskId),
    Answer(Answer),
}

/// Why an answer that exists is not usable.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("failed to read the executor's answer")]
    Unreadable(#[source] io::Error),
    /// The answer is lost: it was removed when it was read.
    #[error("failed to parse the executor's answer")]
    Malformed(#[source] serde_json::Error),
}

impl<'a> PendingRequest<'a> {
    /// Puts a request of `caller` into the mailbox, as a whole or not at all.
    pub fn post(mailbox: &'a Mailbox, operation: Operation, caller: Caller) -> io::Result<Self> {
        Self::post_as(TaskId::new(), mailbox, operation, caller)
    }

    /// Like [`PendingRequest::post`], under an id that the caller chose; a run becomes a task of this id.
    pub fn post_as(id: TaskId, mailbox: &'a Mailbox, operation: Operation, caller: Caller) -> io::Result<Self> {
        mailbox.post(id, &Request::new(operation, caller))?;
        Ok(Self { mailbox, id })
    }

    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Returns the reply if there is one. An answer is returned once; after that, `None`.
    pub fn look(&self) -> Result<Option<Reply>, AnswerError> {
        if self.mailbox.result_file(self.id).exists() {
            return Ok(Some(Reply::Accepted(self.id)));
        }
        let answer = self.mailbox.collect_answer(self.id).map_err(AnswerError::Unreadable)?;
        let answer = answer.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(AnswerError::Malformed)?;
        Ok(answer.map(Reply::Answer))
    }

    /// Takes the request out of the mailbox; returns false if an executor has taken it already.
    pub fn withdraw(&self) -> bool {
        self.mailbox.withdraw(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(mailbox: &Mailbox) -> PendingRequest<'_> {
        PendingRequest::post(mailbox, Operation::Status, Caller::default()).expect("failed to post a request")
    }

    #[test]
    fn a_request_is_pending_until_it_is_accepted_answered_or_withdrawn() {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("failed to open the mailbox");
        let (accepted, answered, malformed, withdrawn) =
            (post(&mailbox), post(&mailbox), post(&mailbox), post(&mailbox));
        assert!(withdrawn.withdraw() && !withdrawn.withdraw());
        assert_eq!(mailbox.take_all().expect("failed to take the requests").len(), 3);
        assert!(matches!(accepted.look(), Ok(None)));

        mailbox.publish(accepted.id(), "{}").expect("failed to publish");
        mailbox.answer(answered.id(), &Answer::SameAs(accepted.id())).expect("failed to answer");
        mailbox.answer(malformed.id(), &"?").expect("failed to answer");
        assert_eq!(accepted.look().expect("the answer is usable"), Some(Reply::Accepted(accepted.id())));
        assert_eq!(answered.look().expect("the answer is usable"), Some(Reply::Answer(Answer::SameAs(accepted.id()))));
        assert_eq!(answered.look().expect("the answer is usable"), None, "an answer is collected once");
        assert!(matches!(malformed.look(), Err(AnswerError::Malformed(_))));
    }
}
