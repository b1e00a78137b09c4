//! The only place that prints.
//!
//! Standard output carries one JSON document and nothing else: on one line for programs and
//! models, who pay by the character, indented for people. Notes and errors go to standard error.
//! A reader that went away is no error. What a command prints can be kept instead, for a caller in
//! the same process.

use std::io::{self, IsTerminal as _, Write as _};
use std::iter;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use protocol::shell::PrintedOutput;
use serde::Serialize;

use crate::error::Error;

/// Where words go, and who reads them.
#[derive(Debug)]
pub(crate) struct Output {
    to: OutputTarget,
    people_read: bool,
    people_read_errors: bool,
}

#[derive(Debug)]
enum OutputTarget {
    Streams,
    /// What would have been printed so far.
    Kept(Mutex<PrintedOutput>),
    /// Above a line that a person is writing: whoever has the other end prints it there.
    Above(Sender<String>),
}

impl Output {
    pub(crate) fn new() -> Self {
        let (people_read, people_read_errors) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self { to: OutputTarget::Streams, people_read, people_read_errors }
    }

    /// Keeps what is printed, as for a program that reads it.
    pub(crate) fn kept() -> Self {
        Self { to: OutputTarget::Kept(Mutex::default()), people_read: false, people_read_errors: false }
    }

    /// Gives what is printed to whoever has the other end of `to`; a person reads it.
    pub(crate) fn above(to: Sender<String>) -> Self {
        Self { to: OutputTarget::Above(to), people_read: true, people_read_errors: true }
    }

    /// What was kept; nothing if it was printed.
    pub(crate) fn into_printed(self) -> PrintedOutput {
        match self.to {
            OutputTarget::Streams | OutputTarget::Above(_) => PrintedOutput::default(),
            OutputTarget::Kept(printed) => printed.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Prints the one document of this run.
    pub(crate) fn json(&self, document: &impl Serialize) -> Result<(), Error> {
        if !self.people_read {
            return self.line(document);
        }
        // By way of a value: what is kept as raw text would stay on its one line.
        let written = serde_json::to_value(document).and_then(|value| serde_json::to_string_pretty(&value));
        self.text(&format!("{}\n", written.map_err(unwritten)?))
    }

    /// Prints one of many documents, on a line of its own whoever reads it.
    pub(crate) fn line(&self, document: &impl Serialize) -> Result<(), Error> {
        let mut text = serde_json::to_string(document).map_err(unwritten)?;
        text.push('\n');
        self.text(&text)
    }

    /// Prints `text` as it is: help, tables, completions.
    pub(crate) fn text(&self, text: &str) -> Result<(), Error> {
        match &self.to {
            OutputTarget::Streams => {}
            OutputTarget::Kept(printed) => {
                printed.lock().unwrap_or_else(PoisonError::into_inner).stdout.push_str(text);
                return Ok(());
            }
            OutputTarget::Above(to) => {
                // There is nobody left to tell if this fails.
                drop(to.send(text.to_owned()));
                return Ok(());
            }
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Error::io("standard output could not be written", &error))
            }
            _ => Ok(()),
        }
    }

    /// Whether a person looks at standard output.
    pub(crate) fn is_terminal(&self) -> bool {
        self.people_read
    }

    /// Whether a person reads the notes, if not the answer.
    pub(crate) fn is_watched(&self) -> bool {
        self.people_read_errors
    }

    /// Says something that is not part of the answer.
    pub(crate) fn note(&self, text: &str) {
        self.aside(&format!("note: {text}\n"));
    }

    /// Asks a person for something; the cursor stays behind the words.
    pub(crate) fn prompt(&self, text: &str) {
        self.aside(text);
    }

    /// Tells what went wrong and how to go on.
    pub(crate) fn error(&self, error: &Error) {
        let body = error.body();
        let text = if self.people_read_errors {
            let hint = body.hint.iter().map(|hint| format!("hint: {hint}\n"));
            let details = body.details.iter().map(|(key, value)| format!("{key}: {value:#}\n"));
            iter::once(format!("error: {}\n", body.message)).chain(hint).chain(details).collect()
        } else {
            format!("{}\n", serde_json::json!({ "error": body }))
        };
        self.aside(&text);
    }

    fn aside(&self, text: &str) {
        match &self.to {
            OutputTarget::Kept(printed) => printed.lock().unwrap_or_else(PoisonError::into_inner).stderr.push_str(text),
            OutputTarget::Above(to) => drop(to.send(text.to_owned())),
            OutputTarget::Streams => drop(io::stderr().lock().write_all(text.as_bytes())),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn unwritten(error: serde_json::Error) -> Error {
    Error::internal(format!("an answer could not be written: {error}"))
}
