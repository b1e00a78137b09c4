//! The only place that prints.
//!
//! Standard output carries one JSON document and nothing else: on one line for programs and
//! models, which pay by the character, indented on a terminal. Notes and errors go to standard
//! error. A closed pipe is not an error. A caller in the same process can capture the output
//! instead. A document that is too large for a model is not printed but described, as JSON too, unless `--whole` asks
//! for it.

use std::io::{self, IsTerminal as _, Write as _};
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use protocol::excerpt;
use protocol::paths;
use protocol::shell::PrintedOutput;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::Error;
use crate::sanitized::{harmless_json, sanitize};

/// The largest document that is printed unless the caller asks for all of it, as for the one tool: a model pays for each
/// character, and its shell may cut the output anywhere.
pub const MAX_DOCUMENT_BYTES: usize = 50_000;
/// How much is shown of a larger one.
const SHOWN_CHARS: usize = 2_000;
/// How many of its short members are shown. No document of the contract has more.
const MAX_SHORT_MEMBERS: usize = 12;

/// Where output goes, and whether a human reads it.
#[derive(Debug)]
pub struct Output {
    target: OutputTarget,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    /// Whether documents of any size are printed.
    is_whole: AtomicBool,
    /// Whether another process prints it for its caller, when all is over.
    is_captured: bool,
}

#[derive(Debug)]
enum OutputTarget {
    Streams,
    /// Captures the output in memory.
    Buffer(Mutex<PrintedOutput>),
    /// Sends the output to the chat, which prints it above the line that the human is writing.
    Chat(Sender<String>),
}

/// Standard output for replies to the parent process, which are not for a reader.
pub fn replies() -> impl io::Write + Send + 'static {
    io::stdout()
}

impl Output {
    #[expect(clippy::new_without_default, reason = "it looks at the process")]
    pub fn new() -> Self {
        let (stdout_is_terminal, stderr_is_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self {
            target: OutputTarget::Streams,
            stdout_is_terminal,
            stderr_is_terminal,
            is_whole: AtomicBool::new(false),
            is_captured: paths::is_captured(),
        }
    }

    /// Captures the output, formatted as for a program. The caller that captures it limits what is shown.
    pub fn buffered() -> Self {
        Self {
            target: OutputTarget::Buffer(Mutex::default()),
            stdout_is_terminal: false,
            stderr_is_terminal: false,
            is_whole: AtomicBool::new(true),
            is_captured: true,
        }
    }

    /// Sends the output to `chat`, formatted as for a terminal.
    pub fn to_chat(chat: Sender<String>) -> Self {
        Self {
            target: OutputTarget::Chat(chat),
            stdout_is_terminal: true,
            stderr_is_terminal: true,
            is_whole: AtomicBool::new(false),
            is_captured: false,
        }
    }

    /// Returns the captured output; empty unless the output is buffered.
    pub fn into_printed(self) -> PrintedOutput {
        match self.target {
            OutputTarget::Streams | OutputTarget::Chat(_) => PrintedOutput::default(),
            OutputTarget::Buffer(printed) => printed.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// From now on prints documents of any size: the caller asked for that.
    pub fn print_whole(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    /// Whether documents of any size are printed.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Whether [`Self::json`] prints all of `document`.
    pub fn fits(&self, document: &impl Serialize) -> bool {
        self.is_whole() || serde_json::to_string(document).is_ok_and(|text| text.len() <= MAX_DOCUMENT_BYTES)
    }

    /// Prints the document that is the command's result, unless it is too large for a model: then what it begins with.
    pub fn json(&self, document: &impl Serialize) -> Result<(), Error> {
        self.json_or(document, "ask for less of it")
    }

    /// Like [`Self::json`], and says in `rest` how to read a document that is too large.
    pub fn json_or(&self, document: &impl Serialize, rest: &str) -> Result<(), Error> {
        // Written once: it is as dear as reading the result.
        let text = serde_json::to_string(document).map_err(serialize_error)?;
        if self.is_whole() || text.len() <= MAX_DOCUMENT_BYTES {
            return self.written_json(text);
        }
        let bytes = text.len();
        let cut = format!("not printed: {bytes} bytes, and at most {MAX_DOCUMENT_BYTES} are printed at once");
        // What is short stays, such as the id of a task whose input is large.
        let mut shown = short_members(&text);
        for (key, value) in [
            ("cut", cut.as_str().into()),
            ("bytes", bytes.into()),
            ("beginning", excerpt::chars(&text, SHOWN_CHARS).into()),
            ("rest", rest.into()),
        ] {
            shown.insert(key.to_owned(), value);
        }
        self.whole_json(&shown)?;
        self.note(&format!("the output is cut: {cut}; {rest}; into a pipe or file: add --whole"));
        Ok(())
    }

    /// Prints a document whose size the caller chose, or that only programs read.
    pub fn whole_json(&self, document: &impl Serialize) -> Result<(), Error> {
        self.written_json(serde_json::to_string(document).map_err(serialize_error)?)
    }

    /// Prints a document that was written on one line.
    fn written_json(&self, mut text: String) -> Result<(), Error> {
        if self.stdout_is_terminal {
            // Read as a `Value`, since a `RawValue` inside the document would not be indented.
            let indented = serde_json::from_str(&text).and_then(|value: Value| serde_json::to_string_pretty(&value));
            text = indented.map_err(serialize_error)?;
        }
        self.text(&(harmless_json(text) + "\n"))
    }

    /// Prints one of many documents, each on one line, even on a terminal.
    pub fn line(&self, document: &impl Serialize) -> Result<(), Error> {
        self.text(&(harmless_json(serde_json::to_string(document).map_err(serialize_error)?) + "\n"))
    }

    /// Prints lines with words of others for people: tables, findings, the log.
    pub fn lines(&self, text: &str) -> Result<(), Error> {
        self.text(&sanitize(text))
    }

    /// Prints the words of a model: as they are for a program, and harmless on a terminal.
    pub fn answer(&self, text: &str) -> Result<(), Error> {
        if self.stdout_is_terminal { self.lines(text) } else { self.text(text) }
    }

    /// Prints `text` unchanged: help, completions, what is all ours.
    pub fn text(&self, text: &str) -> Result<(), Error> {
        match &self.target {
            OutputTarget::Streams => {}
            OutputTarget::Buffer(printed) => {
                printed.lock().unwrap_or_else(PoisonError::into_inner).stdout.push_str(text);
                return Ok(());
            }
            OutputTarget::Chat(chat) => {
                // Fails only if the chat has ended.
                drop(chat.send(text.to_owned()));
                return Ok(());
            }
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::io("failed to write standard output", &error))
            }
            _ => Ok(()),
        }
    }

    /// Prints what another process printed for the same caller.
    pub fn repeat(&self, printed: &PrintedOutput) -> Result<(), Error> {
        self.write_stderr(&printed.stderr);
        self.text(&printed.stdout)
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.stdout_is_terminal
    }

    /// Whether standard error is a terminal, so that a human reads the notes.
    pub fn stderr_is_terminal(&self) -> bool {
        self.stderr_is_terminal
    }

    /// Prints a note, which is not part of the result, to standard error.
    pub fn note(&self, text: &str) {
        self.write_stderr(&format!("note: {}\n", sanitize(text)));
    }

    /// Prints a note about what goes on now. Output that is captured is read when it is over, so it has none of these.
    pub fn note_while_waiting(&self, text: &str) {
        if !self.is_captured {
            self.note(text);
        }
    }

    /// Prints a prompt to standard error, without a line end.
    pub fn prompt(&self, text: &str) {
        self.write_stderr(text);
    }

    /// Prints an error with its hint and details to standard error.
    pub fn error(&self, error: &Error) {
        let body = error.body();
        let text = if self.stderr_is_terminal {
            let hint = body.hint.iter().map(|hint| format!("hint: {hint}\n"));
            let details = body.details.iter().map(|(key, value)| format!("{key}: {value:#}\n"));
            let lines: String = iter::once(format!("error: {}\n", body.message)).chain(hint).chain(details).collect();
            sanitize(&lines)
        } else {
            format!("{}\n", harmless_json(serde_json::json!({ "error": body }).to_string()))
        };
        self.write_stderr(&text);
    }

    fn write_stderr(&self, text: &str) {
        match &self.target {
            OutputTarget::Buffer(printed) => {
                printed.lock().unwrap_or_else(PoisonError::into_inner).stderr.push_str(text);
            }
            OutputTarget::Chat(chat) => drop(chat.send(text.to_owned())),
            OutputTarget::Streams => drop(io::stderr().lock().write_all(text.as_bytes())),
        }
    }
}

/// The members of the object `text` that are short; none of another value.
fn short_members(text: &str) -> Map<String, Value> {
    let Ok(Value::Object(members)) = serde_json::from_str(text) else { return Map::new() };
    let is_short = |value: &Value| value.to_string().len() <= SHOWN_CHARS;
    members.into_iter().filter(|(_, value)| is_short(value)).take(MAX_SHORT_MEMBERS).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn serialize_error(error: serde_json::Error) -> Error {
    Error::internal(format!("failed to serialize the output: {error}"))
}
