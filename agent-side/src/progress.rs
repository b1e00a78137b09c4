//! Tells a slow executor from a dead one, so that no command gives up on an executor that a busy machine slows down.
//!
//! Looks at the thread that runs the executor's loop. It makes progress while it uses the processor, waits for its
//! turn, or waits for the disk. Where the process is not visible, as from another container, only the time counts.

use std::fs;
use std::time::{Duration, Instant};

use protocol::mailbox::presence::ExecutorPhase;

/// An executor takes a request at once, so one that sleeps this long beside a request does not work.
const MAX_QUIET_SERVING: Duration = Duration::from_secs(10);
/// While it starts, an executor may wait without a sign of life until an earlier one has stopped its tasks.
const MAX_QUIET_STARTING: Duration = Duration::from_mins(1);
/// The clients of most agents stop a command after two minutes, and then its error is lost.
const MAX_WAIT: Duration = Duration::from_secs(100);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What is known about the executor that a command waits for.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    /// The last sign of progress.
    last_sign: Instant,
    next_look: Instant,
    thread: Option<ThreadState>,
    phase: ExecutorPhase,
}

/// The main thread of a process, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadState {
    pid: u32,
    state: char,
    /// The processor time that it has used.
    ticks: u64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        // Most waits are over before the first look.
        Self {
            started: now,
            last_sign: now,
            next_look: now + LOOK_INTERVAL,
            thread: None,
            phase: ExecutorPhase::Starting,
        }
    }

    /// Whether it is time to call [`Self::look`] again.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next_look
    }

    /// Notes whether the process `pid` has made progress since the last look. 0 stands for a process that is not
    /// visible.
    pub(crate) fn look(&mut self, pid: u32, phase: ExecutorPhase) {
        self.note(ThreadState::read(pid), phase, Instant::now());
    }

    fn note(&mut self, thread: Option<ThreadState>, phase: ExecutorPhase, now: Instant) {
        self.next_look = now + LOOK_INTERVAL;
        let is_working = |thread: ThreadState| matches!(thread.state, 'R' | 'D');
        let has_changed = match (self.thread, thread) {
            (Some(before), Some(now)) => (before.pid, before.ticks) != (now.pid, now.ticks),
            (before, now) => before.is_some() != now.is_some(),
        };
        if has_changed || thread.is_some_and(is_working) || phase != self.phase {
            self.last_sign = now;
        }
        (self.thread, self.phase) = (thread, phase);
    }

    /// How long there has been no sign of progress.
    pub(crate) fn quiet(&self) -> Duration {
        self.last_sign.elapsed()
    }

    /// Why it is useless to wait any longer; `None` while it is not.
    pub(crate) fn reason_to_give_up(&self) -> Option<String> {
        self.reason_at(Instant::now())
    }

    fn reason_at(&self, now: Instant) -> Option<String> {
        let quiet = now.saturating_duration_since(self.last_sign);
        let thread = self.thread.filter(|thread| matches!(thread.state, 'T' | 't'));
        match (thread, self.phase) {
            (Some(ThreadState { pid, .. }), _) if quiet > MAX_QUIET_SERVING => {
                Some(format!("the executor (process {pid}) is stopped"))
            }
            (_, ExecutorPhase::Serving) if quiet > MAX_QUIET_SERVING => {
                Some(format!("no executor took the request within {MAX_QUIET_SERVING:?}"))
            }
            (_, ExecutorPhase::Starting) if quiet > MAX_QUIET_STARTING => {
                Some(format!("an executor has been starting for {MAX_QUIET_STARTING:?} without progress"))
            }
            _ if now.saturating_duration_since(self.started) > MAX_WAIT => {
                Some(format!("no executor took the request within {MAX_WAIT:?}"))
            }
            _ => None,
        }
    }
}

impl ThreadState {
    /// `None` if the process has ended or is not visible.
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may contain spaces.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // The state is the third field; the times in user and kernel mode are the 14th and the 15th.
        let times: Vec<u64> = fields.skip(10).take(2).filter_map(|field| field.parse().ok()).collect();
        Some(Self { pid, state, ticks: times.iter().sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn thread(state: char, ticks: u64) -> ThreadState {
        ThreadState { pid: 7, state, ticks }
    }

    /// Looks once a second for `seconds` at what `thread` returns; returns when the command would give up, and why.
    fn watch(seconds: u64, phase: ExecutorPhase, thread: impl Fn(u64) -> Option<ThreadState>) -> Option<(u64, String)> {
        let mut progress = Progress::new();
        let start = progress.started;
        progress.note(thread(0), phase, start);
        (1..=seconds).find_map(|second| {
            let now = start + u32::try_from(second).expect("few") * SECOND;
            progress.note(thread(second), phase, now);
            progress.reason_at(now).map(|reason| (second, reason))
        })
    }

    #[test]
    fn a_slow_start_is_waited_for_as_long_as_it_makes_progress() {
        use ExecutorPhase::Starting;
        assert_eq!(watch(99, Starting, |second| Some(thread('S', second))), None, "it computes a little each second");
        assert_eq!(watch(99, Starting, |_| Some(thread('R', 3))), None, "it waits for its turn on a busy machine");
        assert_eq!(watch(99, Starting, |_| Some(thread('D', 3))), None, "it waits for the disk");
        let asleep = watch(99, Starting, |_| Some(thread('S', 3)));
        assert_eq!(asleep.map(|(second, _)| second), Some(61));
        let (second, reason) = watch(200, Starting, |_| Some(thread('R', 3))).expect("no command waits forever");
        assert_eq!((second, reason.as_str()), (101, "no executor took the request within 100s"));
    }

    #[test]
    fn an_executor_that_takes_no_requests_is_given_up_soon() {
        let (second, reason) = watch(99, ExecutorPhase::Serving, |_| Some(thread('S', 3))).expect("it sleeps");
        assert_eq!((second, reason.as_str()), (11, "no executor took the request within 10s"));
        for waiting in ['R', 'D'] {
            let starved = watch(99, ExecutorPhase::Serving, |_| Some(thread(waiting, 3)));
            assert_eq!(starved, None, "it waits for its turn or the disk on a busy machine");
        }
        for phase in [ExecutorPhase::Serving, ExecutorPhase::Starting] {
            let (second, reason) = watch(99, phase, |_| Some(thread('T', 3))).expect("it is stopped");
            assert_eq!((second, reason.as_str()), (11, "the executor (process 7) is stopped"));
        }
        let invisible = watch(99, ExecutorPhase::Serving, |_| None).expect("it is silent");
        assert_eq!(invisible.0, 11);
    }

    #[test]
    fn the_kernel_says_what_a_process_does() {
        let own = std::process::id();
        assert_eq!(ThreadState::read(own).expect("this process is visible").pid, own);
        assert_eq!(ThreadState::read(0), None);
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        while ThreadState::read(sleeper.id()).is_none_or(|thread| thread.state != 'S') {
            std::thread::yield_now();
        }
        sleeper.kill().expect("killed");
        sleeper.wait().expect("ended");
    }
}
