//! The books of one run: which calls are open, which wait for their turn, and what the script has used.
//!
//! Knows nothing of JavaScript. The engine reports what the script does; this writes it to the host and says when a
//! limit is exceeded.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Write};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::limits::Limits;
use crate::messages::{Call, CallKind, Failure, FailureKind, Json, MAX_DEPTH, Start, WorkerMessage};
use crate::notes::Notes;

/// A run of a script.
pub(crate) struct Run {
    limits: Limits,
    output: Box<dyn Write>,
    now: i64,
    random: u64,
    /// The line of each call, by its number.
    lines: Vec<Option<u32>>,
    /// Calls that were written and not settled.
    open: BTreeSet<u64>,
    /// Calls that wait until fewer are open, the oldest first.
    held: VecDeque<Call>,
    held_bytes: usize,
    /// Timers that the script cleared. It does not wait for them.
    cleared: BTreeSet<u64>,
    notes: Notes,
    stop: Option<StopReason>,
    is_closed: bool,
}

/// Why a script is not continued.
#[derive(Debug)]
pub(crate) enum StopReason {
    Failed(Box<Failure>),
    /// The host is gone.
    Output(io::Error),
}

/// Measures the processor time that the script uses between two messages of its host.
#[derive(Debug)]
pub(crate) struct Meter {
    max: Duration,
    start: Cell<Duration>,
    is_exceeded: Cell<bool>,
}

/// A value that the script wants to pass, as JSON text.
pub(crate) enum Crossing {
    Json(Json),
    TooDeep,
    TooLarge,
}

impl Run {
    pub(crate) fn new(start: &Start, output: Box<dyn Write>) -> Self {
        Self {
            limits: start.limits,
            output,
            now: start.now,
            random: start.seed,
            lines: Vec::new(),
            open: BTreeSet::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            cleared: BTreeSet::new(),
            notes: Notes::new(&start.limits),
            stop: None,
            is_closed: false,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    /// The next random number: `SplitMix64`.
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Makes a call, or puts it into the queue, and returns its number. `None` if the script is not continued.
    pub(crate) fn call(&mut self, kind: CallKind, name: Option<String>, input: Json, line: Option<u32>) -> Option<u64> {
        if self.is_closed || self.stop.is_some() {
            return None;
        }
        let seq = self.lines.len() as u64 + 1;
        if seq > self.limits.max_calls {
            let message = format!("the script makes more than {} calls (`max_calls`)", self.limits.max_calls);
            self.exceed(message, "let subtools filter and page, or split the work into several scripts", line);
            return None;
        }
        self.lines.push(line);
        let call = Call { seq, kind, name, input, line };
        if self.open.len() < self.limits.max_open.max(1) && self.held.is_empty() {
            self.issue(call);
        } else {
            self.held_bytes += call.input.as_text().len();
            self.held.push_back(call);
            if self.held_bytes > self.limits.memory_bytes {
                let message =
                    format!("calls that wait for their turn hold more than {} bytes", self.limits.memory_bytes);
                self.exceed(message, "await some of the calls before making more", line);
                return None;
            }
        }
        Some(seq)
    }

    fn issue(&mut self, call: Call) {
        self.open.insert(call.seq);
        self.write(&WorkerMessage::Call(call));
        self.flush();
    }

    /// Books the end of a call. Fails if that call is not open.
    pub(crate) fn settle(&mut self, seq: u64, now: i64) -> io::Result<()> {
        if !self.open.remove(&seq) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("call {seq} is not open")));
        }
        self.cleared.remove(&seq);
        self.now = now;
        Ok(())
    }

    /// Makes calls that waited for their turn, as many as may be open.
    pub(crate) fn issue_held(&mut self) {
        while self.open.len() < self.limits.max_open.max(1)
            && let Some(call) = self.held.pop_front()
        {
            self.held_bytes -= call.input.as_text().len();
            self.issue(call);
        }
    }

    /// The script does not wait for this timer.
    pub(crate) fn clear(&mut self, seq: u64) {
        if self.open.contains(&seq) || self.held.iter().any(|call| call.seq == seq) {
            self.cleared.insert(seq);
        }
    }

    /// Whether the script waits for a call.
    pub(crate) fn is_waiting(&self) -> bool {
        self.open.len() + self.held.len() > self.cleared.len()
    }

    /// Whether the script made a call or wrote a note.
    pub(crate) fn has_acted(&self) -> bool {
        !self.lines.is_empty() || self.notes.has_any()
    }

    /// How many calls are open at the host.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn line_of(&self, seq: u64) -> Option<u32> {
        let index = usize::try_from(seq.checked_sub(1)?).ok()?;
        self.lines.get(index).copied().flatten()
    }

    /// Writes a note. Returns whether it makes sense to write another one.
    pub(crate) fn note(&mut self, text: &str) -> bool {
        if self.is_closed || self.stop.is_some() {
            return false;
        }
        if let Some(text) = self.notes.admit(text) {
            self.write(&WorkerMessage::Note(text));
        }
        !self.notes.is_full()
    }

    /// Makes JSON text ready to cross: replaces halves of surrogate pairs, which are not Unicode, and measures it.
    pub(crate) fn crossing(&self, text: String) -> Crossing {
        if text.len() > self.limits.max_value_bytes {
            return Crossing::TooLarge;
        }
        if depth(&text) > MAX_DEPTH {
            return Crossing::TooDeep;
        }
        Json::from_text(without_lone_surrogates(text)).map_or(Crossing::TooDeep, Crossing::Json)
    }

    /// Stops the script, since it exceeded a limit.
    pub(crate) fn exceed(&mut self, message: String, hint: &str, line: Option<u32>) {
        let mut failed = Failure::new(FailureKind::Limit, message).with_hint(hint);
        failed.line = line;
        self.stop(StopReason::Failed(Box::new(failed)));
    }

    /// The first reason stays.
    fn stop(&mut self, reason: StopReason) {
        if self.stop.is_none() {
            self.stop = Some(reason);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    pub(crate) fn take_stop(&mut self) -> Option<StopReason> {
        self.stop.take()
    }

    /// From now on, the script can neither call nor note anything.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(crate) fn write(&mut self, message: &WorkerMessage) {
        let written = serde_json::to_writer(&mut self.output, message).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| self.output.write_all(b"\n")) {
            self.stop(StopReason::Output(error));
        }
    }

    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.output.flush() {
            self.stop(StopReason::Output(error));
        }
    }
}

impl Meter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            max: Duration::from_millis(limits.compute_ms),
            start: Cell::new(thread_time()),
            is_exceeded: Cell::new(false),
        }
    }

    /// Gives the whole time again: a message of the host has arrived.
    pub(crate) fn restart(&self) {
        self.start.set(thread_time());
        self.is_exceeded.set(false);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Whether the script must end at once, since its time is over.
    pub(crate) fn interrupts(&self) -> bool {
        if thread_time().saturating_sub(self.start.get()) > self.max {
            self.is_exceeded.set(true);
        }
        self.is_exceeded.get()
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// How deep the arrays and objects of a JSON text are nested.
fn depth(text: &str) -> usize {
    let (mut depth, mut max, mut is_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                depth += 1;
                max = max.max(depth);
            }
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    max
}

/// `JSON.stringify` escapes surrogates only if they are alone.
pub(crate) fn without_lone_surrogates(text: String) -> String {
    if !text.contains("\\ud") {
        return text;
    }
    let mut whole = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        let escape = &rest[at..];
        let is_surrogate = escape.starts_with("\\ud") && escape.as_bytes().get(3).is_some_and(|byte| *byte >= b'8');
        let length = if is_surrogate { 6 } else { 2 };
        whole.push_str(if is_surrogate { "\u{fffd}" } else { &escape[..length] });
        rest = &escape[length..];
    }
    whole.push_str(rest);
    whole
}

/// The kind of call that the prelude names so.
pub(crate) fn kind_of(word: &str) -> CallKind {
    match word {
        "ask_user" => CallKind::AskUser,
        "list_tools" => CallKind::ListTools,
        "read" => CallKind::Read,
        "sleep" => CallKind::Sleep,
        _ => CallKind::Run,
    }
}
