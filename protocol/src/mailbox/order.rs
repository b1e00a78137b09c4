//! The order of requests: one that refers to another is taken after that one.
//!
//! A listing of the inbox shows files in any order, and may miss one that was written while it was made. So a caller that
//! posts a `run` and then its `cancel` could have the second seen without the first, and refused. What was in the
//! inbox before a listing began is in that listing: a request that refers to others is handed out only after one more
//! whole listing.

use std::io;

use super::request::{Operation, Request};
use super::{Mailbox, TakenRequest};
use crate::task::TaskId;

/// How many listings one look may take. Without a limit, a caller that cancels without pause could hold up all others.
const MAX_LISTINGS: usize = 8;

/// What a request refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reference {
    /// The request that became this task.
    Task(TaskId),
    /// Whatever the same caller requested before.
    Earlier,
}

impl Mailbox {
    /// Takes the requests out of the inbox and returns them in an order in which none comes before one that it refers
    /// to. What must wait for the next look is kept in `held`, which the caller hands in again; then there is more to take.
    pub fn take_in_order(&self, held: &mut Vec<TakenRequest>) -> io::Result<Vec<TakenRequest>> {
        in_order(held, || self.list())
    }
}

/// `list` takes what one listing shows, and says whether that is all that was there when it began.
fn in_order(
    held: &mut Vec<TakenRequest>,
    mut list: impl FnMut() -> io::Result<(Vec<TakenRequest>, bool)>,
) -> io::Result<Vec<TakenRequest>> {
    let mut ready = Vec::new();
    for _ in 0..MAX_LISTINGS {
        let (listed, is_whole) = list()?;
        if is_whole {
            ready.append(held);
        }
        let (referring, plain): (Vec<_>, Vec<_>) = listed.into_iter().partition(|request| reference(request).is_some());
        held.extend(referring);
        ready.extend(plain);
        if held.is_empty() || !is_whole {
            break;
        }
    }
    sort(&mut ready);
    // What ends a whole session must not end what was asked for after it.
    if let Some(first) = held.iter().map(|request| request.id).min() {
        held.extend(ready.extract_if(.., |request| request.id > first));
    }
    Ok(ready)
}

/// Splits requests that an earlier executor took at the first that may refer to one that it did not take.
pub fn split_at_reference(mut taken: Vec<TakenRequest>) -> (Vec<TakenRequest>, Vec<TakenRequest>) {
    sort(&mut taken);
    let first = taken.iter().position(|request| reference(request).is_some()).unwrap_or(taken.len());
    let later = taken.split_off(first);
    (taken, later)
}

/// Ids sort by time, but two processes may name theirs in the same millisecond.
fn sort(requests: &mut [TakenRequest]) {
    requests.sort_by_cached_key(|request| match reference(request) {
        Some(Reference::Task(id)) => (request.id.max(id), true, request.id),
        Some(Reference::Earlier) | None => (request.id, false, request.id),
    });
}

fn reference(request: &TakenRequest) -> Option<Reference> {
    const OPERATIONS: [&[u8]; 4] = [b"cancel", b"resolve", b"abandon", b"forget"];
    let bytes = request.bytes.as_ref().ok()?;
    // Most requests are runs, and are parsed later.
    let may_refer = |word: &&[u8]| bytes.windows(word.len()).any(|part| part == *word);
    if !OPERATIONS.iter().any(may_refer) {
        return None;
    }
    match Request::parse(bytes).ok()?.operation {
        Operation::Cancel { id, .. } | Operation::Resolve { id, .. } => Some(Reference::Task(id)),
        Operation::Abandon { .. } | Operation::Forget { .. } => Some(Reference::Earlier),
        Operation::Run(_) | Operation::Listing(_) | Operation::Status => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::tests::mailbox;
    use super::*;
    use crate::caller::Caller;
    use crate::mailbox::request::RunRequest;

    fn post(mailbox: &Mailbox, id: TaskId, operation: Operation) {
        mailbox.post(id, &Request::new(operation, Caller::default())).expect("posted");
    }

    fn run() -> Operation {
        Operation::run(RunRequest { tool: "t".to_owned(), ..RunRequest::default() })
    }

    fn ids(taken: &[TakenRequest]) -> Vec<TaskId> {
        taken.iter().map(|request| request.id).collect()
    }

    /// Every operation that names a task, with the larger id first and last: ids of one millisecond have no order.
    #[test]
    fn a_request_comes_after_the_one_that_it_names() {
        let (low, high) = (TaskId::new(), TaskId::new());
        for (task, other) in [(low, high), (high, low)] {
            for operation in [
                Operation::Cancel { id: task, reason: None },
                Operation::Resolve { id: task, happened: false, note: None },
            ] {
                let (_folder, mailbox) = mailbox();
                post(&mailbox, other, operation);
                post(&mailbox, task, run());
                let mut held = Vec::new();
                let taken = mailbox.take_in_order(&mut held).expect("taken");
                assert_eq!((ids(&taken), held.len()), (vec![task, other], 0));
            }
        }
    }

    /// A request that was taken and not answered, as by an executor that was killed between two listings, waits for what
    /// still lies in the inbox.
    #[test]
    fn what_was_held_comes_after_what_was_in_the_inbox_before() {
        let (task, naming, session, later) = (TaskId::new(), TaskId::new(), TaskId::new(), TaskId::new());
        let session_operations =
            [Operation::Abandon { session: "s".to_owned() }, Operation::Forget { session: "s".to_owned() }];
        for operation in session_operations {
            let (_folder, mailbox) = mailbox();
            post(&mailbox, naming, Operation::Cancel { id: task, reason: None });
            post(&mailbox, session, operation);
            post(&mailbox, later, run());
            mailbox.take_all().expect("taken");
            post(&mailbox, task, run());
            let (first, mut held) = split_at_reference(mailbox.unanswered().expect("read"));
            assert_eq!((ids(&first), ids(&held)), (vec![], vec![naming, session, later]));
            let taken = mailbox.take_in_order(&mut held).expect("taken");
            assert_eq!((ids(&taken), held.len()), (vec![task, naming, session, later], 0));
        }
    }

    /// Listings that miss what was written while they were made, or that end early for lack of descriptors.
    #[test]
    fn a_request_waits_for_a_whole_listing_after_the_one_that_showed_it() {
        let (_folder, mailbox) = mailbox();
        let (task, cancel) = (TaskId::new(), TaskId::new());
        let taken = |id, operation| {
            post(&mailbox, id, operation);
            mailbox.take_all().expect("taken")
        };
        let naming = || taken(cancel, Operation::Cancel { id: task, reason: None });
        for is_whole in [true, false] {
            let mut listings = [(naming(), true), (taken(task, run()), is_whole), (Vec::new(), true)].into_iter();
            let mut next = || Ok(listings.next().unwrap_or((Vec::new(), true)));
            let mut held = Vec::new();
            let first = in_order(&mut held, &mut next).expect("taken");
            if is_whole {
                assert_eq!((ids(&first), held.len()), (vec![task, cancel], 0));
            } else {
                assert_eq!((ids(&first), ids(&held)), (vec![task], vec![cancel]));
                assert_eq!(ids(&in_order(&mut held, &mut next).expect("taken")), [cancel]);
            }
        }
    }

    #[test]
    fn no_request_overtakes_another_however_fast_they_are_posted() {
        const PAIRS: usize = 3_000;
        let (_folder, mailbox) = mailbox();
        let is_posted = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..PAIRS {
                    let id = TaskId::new();
                    post(&mailbox, id, run());
                    post(&mailbox, TaskId::new(), Operation::Cancel { id, reason: None });
                }
                is_posted.store(true, Ordering::Release);
            });
            let (mut seen, mut held, mut answered) = (HashSet::new(), Vec::new(), 0);
            loop {
                let is_last = is_posted.load(Ordering::Acquire);
                let taken = mailbox.take_in_order(&mut held).expect("taken");
                for request in &taken {
                    match reference(request) {
                        Some(Reference::Task(id)) => {
                            assert!(seen.contains(&id), "a cancel overtook its run");
                            answered += 1;
                        }
                        _ => assert!(seen.insert(request.id)),
                    }
                }
                if is_last && taken.is_empty() && held.is_empty() {
                    break;
                }
            }
            assert_eq!((seen.len(), answered), (PAIRS, PAIRS));
        });
    }
}
