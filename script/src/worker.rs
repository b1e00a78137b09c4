//! The process that runs a script: reads the host's messages from standard input and writes to standard output.
//!
//! One process runs one script. It has no rights of its own to lose: a script that breaks out of its limits ends the
//! process, and nothing else. The host starts it with an empty environment except for [`ENVIRONMENT`], and explains an
//! end without a last message by [`explain_end`].

use std::cell::RefCell;
use std::io::{self, BufRead, BufWriter, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;
use std::thread;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::signal::Signal;

use crate::engine::{Engine, Progress};
use crate::messages::{Failure, FailureKind, HostMessage, Idle, Start, WorkerMessage};
use crate::reason;
use crate::run::{Meter, Run, StopReason};

/// The hidden command that runs [`serve_process`].
pub const COMMAND: &str = "script-worker";

/// The environment of the process. Scripts see UTC in any case; this spares a look at the system's time zone.
pub const ENVIRONMENT: [(&str, &str); 1] = [("TZ", "UTC")];

/// The memory of the whole process, far above what the engine may use: for a flaw of the engine.
const MAX_PROCESS_BYTES: u64 = 1 << 30;
/// The three files of a process, and no other.
const MAX_FILES: u64 = 3;
/// How much longer than the engine's own limit the process may compute. Only code of the engine that never looks at
/// the clock gets so far.
const SPARE_CPU_SECONDS: u64 = 2;
/// The stack of the thread that runs the engine, twice of what scripts may use.
const STACK_BYTES: usize = 2 * crate::engine::MAX_STACK_BYTES;

/// Runs the script that `input` begins with, and returns when it ended or when `input` did.
///
/// Fails if the host breaks the protocol or is gone.
pub fn serve(input: impl BufRead + Send, output: impl Write + Send + 'static) -> io::Result<()> {
    run_on_own_stack(input, output, false)
}

/// Like [`serve`], for a process that does nothing else: limits the processor time and the memory of this process.
pub fn serve_process(input: impl BufRead + Send, output: impl Write + Send + 'static) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_FSIZE, 0, 0)?;
    setrlimit(Resource::RLIMIT_NOFILE, MAX_FILES, MAX_FILES)?;
    setrlimit(Resource::RLIMIT_AS, MAX_PROCESS_BYTES, MAX_PROCESS_BYTES)?;
    nix::sys::prctl::set_no_new_privs()?;
    run_on_own_stack(input, output, true)
}

/// Why a process ended that wrote no last message.
pub fn explain_end(status: ExitStatus) -> Failure {
    let signal = status.signal();
    if signal == Some(Signal::SIGXCPU as i32) {
        return reason::computed_too_long();
    }
    Failure::new(FailureKind::Limit, format!("the script's process ended before the script did ({status})"))
        .with_hint("it probably needs too much memory: work on less data at once")
}

fn run_on_own_stack(
    mut input: impl BufRead + Send,
    output: impl Write + Send + 'static,
    limits_process: bool,
) -> io::Result<()> {
    let run = move || Worker { input: &mut input, limits_process }.run(Box::new(BufWriter::new(output)));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(COMMAND.to_owned()).stack_size(STACK_BYTES);
        let ended = thread.spawn_scoped(scope, run)?.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread of the script panicked")))
    })
}

/// What reads the host's messages.
struct Worker<'a, R> {
    input: &'a mut R,
    limits_process: bool,
}

impl<R: BufRead> Worker<'_, R> {
    fn run(&mut self, output: Box<dyn Write>) -> io::Result<()> {
        let start = match self.read()? {
            None => return Ok(()),
            Some(HostMessage::Start(start)) => start,
            Some(HostMessage::Settle(_)) => return Err(invalid("the first message is no start")),
        };
        let run = Rc::new(RefCell::new(Run::new(&start, output)));
        let meter = Rc::new(Meter::new(&start.limits));
        let Some(last) = self.run_script(&start, &run, &meter)? else { return Ok(()) };
        let mut run = run.borrow_mut();
        match last {
            Ok(last) => run.write(&last),
            Err(StopReason::Failed(failed)) => run.write(&WorkerMessage::Failed(failed)),
            Err(StopReason::Output(error)) => return Err(error),
        }
        run.flush();
        match run.take_stop() {
            Some(StopReason::Output(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the last message; `None` if `input` ended before the script did.
    fn run_script(
        &mut self,
        start: &Start,
        run: &Rc<RefCell<Run>>,
        meter: &Rc<Meter>,
    ) -> io::Result<Option<Result<WorkerMessage, StopReason>>> {
        self.limit(start)?;
        let mut engine = match Engine::start(start, run, meter) {
            Ok(engine) => engine,
            Err(failed) => return Ok(Some(Err(failed))),
        };
        loop {
            let is_returned = match engine.advance() {
                Err(reason) => return Ok(Some(Err(reason))),
                Ok(Progress::Ended(done)) => return Ok(Some(Ok(WorkerMessage::Done(done)))),
                Ok(Progress::Waiting { is_returned }) => is_returned,
            };
            {
                let mut run = run.borrow_mut();
                let pending = run.open();
                run.write(&WorkerMessage::Idle(Idle { pending, is_returned }));
                run.flush();
            }
            let settle = match self.read()? {
                Some(HostMessage::Settle(settle)) => settle,
                Some(HostMessage::Start(_)) => return Err(invalid("a second start")),
                None => return Ok(None),
            };
            self.limit(start)?;
            meter.restart();
            run.borrow_mut().settle(settle.seq, settle.now)?;
            if let Err(reason) = engine.settle(settle) {
                return Ok(Some(Err(reason)));
            }
        }
    }

    fn read(&mut self) -> io::Result<Option<HostMessage>> {
        let mut line = Vec::new();
        if self.input.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    /// Lets the kernel end this process if the engine does not look at the clock.
    fn limit(&self, start: &Start) -> io::Result<()> {
        if !self.limits_process {
            return Ok(());
        }
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let used = usage.user_time().tv_sec() + usage.system_time().tv_sec();
        let spare = start.limits.compute_ms.div_ceil(1_000) + SPARE_CPU_SECONDS;
        lower(Resource::RLIMIT_CPU, u64::try_from(used).unwrap_or_default() + spare)
    }
}

/// Lowers a soft limit. The hard limit stays, so that it can be raised again.
fn lower(resource: Resource, limit: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    setrlimit(resource, limit.min(hard), hard)?;
    Ok(())
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
