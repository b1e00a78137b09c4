//! A host that answers the calls of one script by a function, and remembers everything that was said.

use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::thread::{self, JoinHandle};

use script::{
    Call, CallError, CallKind, ErrorClass, HostMessage, Json, Limits, Outcome, Settlement, Start, WorkerMessage, worker,
};
use serde_json::{Value, json};

/// When scripts start: 2026-03-05T06:07:08.009Z.
pub(crate) const NOW: i64 = 1_772_690_828_009;
/// How far the clock moves with each settle.
const STEP: i64 = 1_000;

/// A running script.
pub(crate) struct Host {
    messages: BufReader<PipeReader>,
    settles: Option<PipeWriter>,
    worker: JoinHandle<io::Result<()>>,
}

/// Everything that was said in a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transcript {
    pub(crate) messages: Vec<WorkerMessage>,
    pub(crate) settles: Vec<Settlement>,
}

impl Host {
    pub(crate) fn start(start: Start) -> Self {
        let (input, mut settles) = io::pipe().expect("a pipe");
        let (messages, output) = io::pipe().expect("a pipe");
        let worker = thread::spawn(move || worker::serve(BufReader::new(input), output));
        write(&mut settles, &HostMessage::Start(Box::new(start)));
        Self { messages: BufReader::new(messages), settles: Some(settles), worker }
    }

    pub(crate) fn settle(&mut self, settle: Settlement) {
        write(self.settles.as_mut().expect("the host still speaks"), &HostMessage::Settle(settle));
    }

    pub(crate) fn read(&mut self) -> WorkerMessage {
        let mut line = String::new();
        self.messages.read_line(&mut line).expect("readable");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// After the last message, nothing else is written and the worker returns.
    pub(crate) fn finish(mut self) {
        drop(self.settles.take());
        let mut line = String::new();
        self.messages.read_line(&mut line).expect("readable");
        assert_eq!(line, "", "something follows the last message");
        self.worker.join().expect("no panic").expect("the worker ends well");
    }
}

impl Transcript {
    pub(crate) fn calls(&self) -> Vec<&Call> {
        let calls = self.messages.iter().filter_map(|message| match message {
            WorkerMessage::Call(call) => Some(call),
            _ => None,
        });
        calls.collect()
    }

    pub(crate) fn notes(&self) -> Vec<&str> {
        let notes = self.messages.iter().filter_map(|message| match message {
            WorkerMessage::Note(note) => Some(note.as_str()),
            _ => None,
        });
        notes.collect()
    }

    pub(crate) fn last(&self) -> &WorkerMessage {
        self.messages.last().expect("a last message")
    }

    pub(crate) fn value(&self) -> Value {
        match self.last() {
            WorkerMessage::Done(done) => done.value.to_value().expect("JSON that can be read"),
            other => panic!("not done: {other:?}"),
        }
    }

    pub(crate) fn failed(&self) -> &script::Failure {
        match self.last() {
            WorkerMessage::Failed(failed) => failed,
            other => panic!("not failed: {other:?}"),
        }
    }
}

/// A start with the subtools that the tests use.
pub(crate) fn start(source: &str) -> Start {
    let names = ["echo", "fail", "deny", "unknown", "page", "never", "text"];
    let mut tools: std::collections::BTreeMap<String, String> =
        names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect();
    tools.insert("a_b".to_owned(), "a-b".to_owned());
    Start {
        source: source.to_owned(),
        name: "script.js".to_owned(),
        input: Json::from(&json!({"n": 3, "words": ["a", "b"]})),
        tools,
        now: NOW,
        seed: 7,
        limits: Limits::default(),
    }
}

/// Answers a call of the subtools of [`start`]. `None` leaves it open.
pub(crate) fn answer(call: &Call) -> Option<Outcome> {
    let input = call.input.to_value().expect("an input that can be read");
    assert!(input.is_object(), "{call:?}");
    let fails = |code: &str, class| {
        Some(Outcome::Error(CallError {
            code: code.to_owned(),
            message: input["message"].as_str().unwrap_or("it failed").to_owned(),
            hint: Some("try again".to_owned()),
            details: Some(Json::from(&json!({"input": input}))),
            class,
        }))
    };
    match (call.kind, call.name.as_deref().unwrap_or_default()) {
        (CallKind::Run, "fail") => fails(input["code"].as_str().unwrap_or("not_found"), ErrorClass::Error),
        (CallKind::Run, "deny") => fails("denied", ErrorClass::Denied),
        (CallKind::Run, "unknown") => fails("outcome_unknown", ErrorClass::OutcomeUnknown),
        (CallKind::Run, "never") => None,
        (CallKind::Run, "page") => {
            let page = input["page"].as_u64().unwrap_or(1);
            let next = if page < 3 { json!(page + 1) } else { Value::Null };
            Some(data(&json!({"items": [page * 10, page * 10 + 1], "next": next})))
        }
        (CallKind::Run, "text") => Some(data(&json!("{\"a\": [1, 2]}"))),
        (CallKind::Sleep, _) => Some(data(&Value::Null)),
        _ => Some(data(&input)),
    }
}

pub(crate) fn data(value: &Value) -> Outcome {
    Outcome::Data(Json::from(value))
}

/// Runs a script to its end: the oldest open call is settled first.
pub(crate) fn play(start: Start) -> Transcript {
    play_with(start, answer, |_| 0)
}

/// Runs a script to its end. `pick` chooses which of the open calls ends next, by their number.
pub(crate) fn play_with(
    start: Start,
    mut answer: impl FnMut(&Call) -> Option<Outcome>,
    mut pick: impl FnMut(usize) -> usize,
) -> Transcript {
    let mut now = start.now;
    let mut host = Host::start(start);
    let (mut messages, mut settles, mut open) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let message = host.read();
        messages.push(message.clone());
        match message {
            WorkerMessage::Call(call) => open.extend(answer(&call).map(|outcome| (call.seq, outcome))),
            WorkerMessage::Note(_) => {}
            WorkerMessage::Idle(idle) => {
                assert!(idle.pending >= open.len(), "{idle:?}");
                if open.is_empty() {
                    // What is open never ends: the host gives up.
                    host.finish();
                    return Transcript { messages, settles };
                }
                let (seq, outcome) = open.remove(pick(open.len()));
                now += STEP;
                let settle = Settlement { seq, now, outcome };
                settles.push(settle.clone());
                host.settle(settle);
            }
            WorkerMessage::Done(_) | WorkerMessage::Failed(_) => {
                host.finish();
                return Transcript { messages, settles };
            }
        }
    }
}

/// Runs a script again with what was recorded, which is written ahead.
pub(crate) fn replay(start: Start, recorded: &Transcript) -> Transcript {
    let mut host = Host::start(start);
    let settles = recorded.settles.clone();
    let mut pipe = host.settles.take().expect("a pipe");
    let ahead = thread::spawn(move || {
        for settle in settles {
            write(&mut pipe, &HostMessage::Settle(settle));
        }
        pipe
    });
    let messages = (0..recorded.messages.len()).map(|_| host.read()).collect();
    drop(ahead.join().expect("no panic"));
    drop(host.worker.join().expect("no panic"));
    Transcript { messages, settles: recorded.settles.clone() }
}

fn write(pipe: &mut PipeWriter, message: &HostMessage) {
    let mut line = serde_json::to_vec(message).expect("a message is JSON");
    line.push(b'\n');
    // A script that has failed reads no more.
    match pipe.write_all(&line) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => panic!("{error}"),
        _ => {}
    }
}
