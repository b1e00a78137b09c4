//! The shell of a client's session: what its caller is, and how long a call waits until a human is there.
//!
//! If a task needs a human, no one has the page open, and no other client follows what waits in order to decide, the call
//! is tried again for a short time, and then refused with the reason, so that the model can tell its user.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::caller::Caller;
use protocol::code::{Code, Exit};
use protocol::duration::PositiveDuration;
use protocol::error::ErrorBody;
use protocol::shell::{self, PrintedOutput, Shell};
use protocol::task::TaskId;
use serde_json::Value;

use super::followers::Followers;
use super::revoked::{RevokedKeys, cancel_of_revoked, revoked};
use crate::service::turn::Asker;

/// How often it is tried again.
const INTERVAL: Duration = Duration::from_millis(200);

/// A shell that gives calls a human's time to open the page.
#[derive(Debug)]
pub(crate) struct ApproverWindow {
    shell: Arc<dyn Shell>,
    windows: ApproverWindows,
    asker: Mutex<Asker>,
    /// Only for its clock: it is never told anything.
    clock: (Mutex<()>, Condvar),
    /// The session and its tasks are being deleted.
    is_closed: AtomicBool,
    revoked: RevokedKeys,
    followers: Followers,
}

/// How long is waited for who decides.
#[derive(Debug, Clone, Copy)]
pub struct ApproverWindows {
    /// How long a call waits until one is there.
    pub until_there: Duration,
    /// How long a task waits for a key that decides, if that is bounded.
    pub of_key: Option<PositiveDuration>,
}

/// Who may answer a call that needs a human, and for how long that is waited for.
#[derive(Debug, Clone)]
pub(crate) struct Approvers {
    pub(crate) windows: ApproverWindows,
    pub(crate) followers: Followers,
}

impl Approvers {
    pub(crate) fn new(windows: ApproverWindows) -> Self {
        Self { windows, followers: Followers::new() }
    }
}

impl ApproverWindow {
    pub(crate) fn new(shell: Arc<dyn Shell>, approvers: Approvers, asker: Asker, revoked: RevokedKeys) -> Self {
        let clock = (Mutex::new(()), Condvar::new());
        let Approvers { windows, followers } = approvers;
        let (asker, is_closed) = (Mutex::new(asker), AtomicBool::new(false));
        Self { shell, windows, asker, clock, is_closed, revoked, followers }
    }

    /// Lets no further call through. What a call that is running still starts is cancelled.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Whether the key of the client that asks was revoked.
    fn is_revoked(&self) -> bool {
        self.revoked.have(&self.asker.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets who asks from here on.
    pub(crate) fn set_asker(&self, asker: Asker) {
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = asker;
    }

    fn caller(&self, caller: &Caller) -> Caller {
        let asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner);
        let is_attended = asker.can_decide || self.followers.can_decide_for(asker.key.as_deref());
        Caller { unattended: !is_attended, ..asker.narrow(caller) }
    }

    /// The words of a call, with how long its task waits if only a key is there to decide about it.
    fn bounded(&self, words: &[String]) -> Vec<String> {
        let mut words = words.to_vec();
        let asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner);
        let waits_for_key = !asker.can_decide && self.followers.can_decide_for(asker.key.as_deref());
        if let Some(window) =
            self.windows.of_key.filter(|_| waits_for_key && !shell::says_what_without_approver(&words))
        {
            words.insert(1, format!("{}={window}", shell::IF_NO_APPROVER));
        }
        words
    }

    fn pause(&self) {
        let (lock, never) = &self.clock;
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        drop(never.wait_timeout(held, INTERVAL));
    }
}

impl Shell for ApproverWindow {
    fn call(&self, words: &[String], stdin: &str, caller: &Caller) -> PrintedOutput {
        let own_caller = caller;
        let mut caller = self.caller(own_caller);
        let until = Instant::now() + self.windows.until_there;
        let is_run =
            words.first().is_some_and(|word| word == "run") && !words.iter().any(|word| shell::is_dry_run(word));
        let printed = loop {
            if self.is_closed() {
                return PrintedOutput::refused(&ErrorBody::new(Code::Cancelled, "the session was deleted"));
            }
            if self.is_revoked() {
                return PrintedOutput::refused(&revoked());
            }
            let words = if is_run { &self.bounded(words) } else { words };
            let printed = self.shell.call(words, stdin, &caller);
            if !is_run || !has_no_approver(&printed) || Instant::now() >= until {
                break printed;
            }
            self.pause();
            caller = self.caller(own_caller);
        };
        let (is_closed, is_revoked) = (self.is_closed(), self.is_revoked());
        if is_run
            && (is_closed || is_revoked)
            && let Some(task) = started_task(&printed)
        {
            let line = if is_closed { vec!["cancel".to_owned(), task] } else { cancel_of_revoked(&task) };
            self.shell.call(&line, "", &caller);
        }
        printed
    }

    fn may_see(&self, task: TaskId) -> bool {
        self.shell.may_see(task)
    }
}

/// The task that a `run` started.
fn started_task(printed: &PrintedOutput) -> Option<String> {
    let receipt: Value = serde_json::from_str(&printed.stdout).ok()?;
    receipt["id"].as_str().map(str::to_owned)
}

fn has_no_approver(printed: &PrintedOutput) -> bool {
    let last = printed.stderr.lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(last).unwrap_or_default();
    printed.status == Exit::Refused as u8 && error["error"]["code"] == Code::NoApprover.as_str()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use protocol::tool_scope::ToolScope;

    use super::*;

    /// Refuses until it was called this often.
    #[derive(Debug)]
    struct ShellStub(AtomicUsize);

    impl Shell for ShellStub {
        fn call(&self, _: &[String], _: &str, caller: &Caller) -> PrintedOutput {
            let left = self.0.load(Ordering::Relaxed);
            if left == 0 || !caller.unattended {
                return PrintedOutput::default();
            }
            self.0.store(left - 1, Ordering::Relaxed);
            PrintedOutput::refused(&ErrorBody::new(Code::NoApprover, "nothing is open"))
        }
    }

    fn run(window: Duration, refusals: usize, can_decide: bool) -> u8 {
        let shell = Arc::new(ShellStub(refusals.into()));
        let asker = Asker { can_decide, ..Asker::default() };
        let words = ["run", "x"].map(str::to_owned);
        ApproverWindow::new(
            shell,
            Approvers::new(ApproverWindows { until_there: window, of_key: None }),
            asker,
            RevokedKeys::none(),
        )
        .call(&words, "", &Caller::default())
        .status
    }

    #[test]
    fn a_client_narrows_what_the_server_may_use() {
        let only = |name: &str| ToolScope::default().narrowed(vec![name.to_owned()]).expect("a name");
        let asker = Asker { tool_scope: only("a_*"), depth: 1, ..Asker::default() };
        let window = ApproverWindow::new(
            Arc::new(ShellStub(0.into())),
            Approvers::new(ApproverWindows { until_there: Duration::ZERO, of_key: None }),
            asker,
            RevokedKeys::none(),
        );
        let server = Caller { tool_scope: only("*_read"), read_only: true, ..Caller::default() };
        let caller = window.caller(&server);
        assert!(caller.read_only && caller.depth == 1);
        assert!(caller.tool_scope.covers("a_read"));
        assert!(!caller.tool_scope.covers("a_write") && !caller.tool_scope.covers("b_read"));
    }

    /// Starts a task while its session is deleted.
    #[derive(Debug, Default)]
    struct SlowShell {
        window: Mutex<Option<Arc<ApproverWindow>>>,
        calls: Mutex<Vec<String>>,
    }

    impl Shell for SlowShell {
        fn call(&self, words: &[String], _: &str, _: &Caller) -> PrintedOutput {
            self.calls.lock().expect("no panic").push(words.join(" "));
            if let Some(window) = self.window.lock().expect("no panic").take() {
                window.close();
            }
            PrintedOutput { stdout: "{\"id\": \"t1\"}".to_owned(), ..PrintedOutput::default() }
        }
    }

    #[test]
    fn what_a_call_starts_while_its_session_is_deleted_is_cancelled() {
        let shell = Arc::new(SlowShell::default());
        let window = ApproverWindow::new(
            Arc::<SlowShell>::clone(&shell),
            Approvers::new(ApproverWindows { until_there: Duration::ZERO, of_key: None }),
            Asker::default(),
            RevokedKeys::none(),
        );
        let window = Arc::new(window);
        let run = ["run", "x"].map(str::to_owned);
        window.call(&run, "", &Caller::default());
        *shell.window.lock().expect("no panic") = Some(Arc::clone(&window));
        window.call(&run, "", &Caller::default());
        assert_eq!(window.call(&run, "", &Caller::default()).status, Code::Cancelled.exit() as u8);
        assert_eq!(*shell.calls.lock().expect("no panic"), ["run x", "run x", "cancel t1"]);
    }

    #[test]
    fn a_call_waits_for_a_human_only_as_long_as_its_window() {
        assert_eq!(run(Duration::from_mins(1), 2, false), 0, "someone opened the page");
        assert_eq!(run(Duration::ZERO, 1, false), Exit::Refused as u8);
        assert_eq!(run(Duration::ZERO, 1, true), 0, "someone who may decide is there");
    }
}
