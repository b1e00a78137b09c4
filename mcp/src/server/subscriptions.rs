//! Result files that clients follow: each change is announced, until they are final.

use protocol::caller::Caller;
use protocol::mailbox::Mailbox;
use protocol::task::TaskId;

use super::results::ResultNow;
use super::watch::FolderEvents;

/// The changes of some result files.
#[derive(Debug)]
pub(super) struct ResultChanges {
    mailbox: Mailbox,
    caller: Caller,
    events: FolderEvents,
    files: Vec<FollowedFile>,
}

#[derive(Debug)]
struct FollowedFile {
    id: TaskId,
    /// What was announced last; `None` before the first look at a file that is final already, or before there is one.
    seen: Option<ResultNow>,
    is_over: bool,
}

impl ResultChanges {
    /// A file that is final already is announced once: it may have become so since the client read it.
    pub(super) fn of(
        ids: impl IntoIterator<Item = TaskId>,
        mailbox: &Mailbox,
        caller: &Caller,
        events: FolderEvents,
    ) -> Self {
        let followed = |id| {
            let seen = ResultNow::read(mailbox, id, caller).filter(|now| !now.is_final());
            FollowedFile { id, seen, is_over: false }
        };
        Self {
            mailbox: mailbox.clone(),
            caller: caller.clone(),
            events,
            files: ids.into_iter().map(followed).collect(),
        }
    }

    /// Waits for the next change; `None` when all files are final. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<TaskId> {
        loop {
            for file in self.files.iter_mut().filter(|file| !file.is_over) {
                let now = ResultNow::read(&self.mailbox, file.id, &self.caller);
                if now.is_some() && now != file.seen {
                    file.is_over = now.as_ref().is_some_and(ResultNow::is_final);
                    file.seen = now;
                    return Some(file.id);
                }
            }
            if self.files.iter().all(|file| file.is_over) {
                return None;
            }
            self.events.next().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::server::watch::{FolderWatch, Watched};

    use super::*;

    #[tokio::test]
    async fn a_file_is_announced_until_it_is_final() {
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::open(&folder.path().join("mailbox")).expect("a mailbox");
        let (open, ended) = (TaskId::new(), TaskId::new());
        mailbox.publish(open, r#"{"status": "pending", "state": "queued"}"#).expect("published");
        mailbox.publish(ended, r#"{"status": "failed"}"#).expect("published");
        let watch = FolderWatch::new(&[mailbox.results()], Watched::Arrivals);
        let mut changes = ResultChanges::of([open, ended], &mailbox, &Caller::default(), watch.events());
        assert_eq!(changes.next().await, Some(ended));
        mailbox.publish(open, r#"{"status": "pending", "state": "running"}"#).expect("published");
        assert_eq!(changes.next().await, Some(open));
        mailbox.publish(open, r#"{"status": "succeeded"}"#).expect("published");
        assert_eq!(changes.next().await, Some(open));
        assert_eq!(changes.next().await, None);
    }
}
