//! The only place that prints.
//!
//! Standard output carries one JSON document and nothing else: on one line for programs and
//! models, who pay by the character, indented for people. Notes and errors go to standard error.
//! A reader that went away is no error.

use std::io::{self, IsTerminal as _, Write as _};
use std::iter;

use serde::Serialize;

use crate::error::Error;

/// Standard output and standard error, and who reads them.
#[derive(Debug)]
pub(crate) struct Output {
    people_read: bool,
    people_read_errors: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { people_read: io::stdout().is_terminal(), people_read_errors: io::stderr().is_terminal() }
    }

    /// Prints the one document of this run.
    pub(crate) fn json(&self, document: &impl Serialize) -> Result<(), Error> {
        let written = if self.people_read {
            // By way of a value: what is kept as raw text would stay on its one line.
            serde_json::to_value(document).and_then(|value| serde_json::to_string_pretty(&value))
        } else {
            serde_json::to_string(document)
        };
        let mut text = written.map_err(|error| Error::internal(format!("an answer could not be written: {error}")))?;
        text.push('\n');
        self.text(&text)
    }

    /// Prints `text` as it is: help, tables, completions.
    #[expect(clippy::unused_self, reason = "whoever prints has been given the right to")]
    pub(crate) fn text(&self, text: &str) -> Result<(), Error> {
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

    /// Says something that is not part of the answer.
    #[expect(clippy::unused_self, reason = "whoever prints has been given the right to")]
    pub(crate) fn note(&self, text: &str) {
        to_stderr(&format!("note: {text}\n"));
    }

    /// Asks a person for something; the cursor stays behind the words.
    #[expect(clippy::unused_self, reason = "whoever prints has been given the right to")]
    pub(crate) fn prompt(&self, text: &str) {
        to_stderr(text);
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
        to_stderr(&text);
    }
}

/// There is nobody left to tell if this fails.
fn to_stderr(text: &str) {
    drop(io::stderr().lock().write_all(text.as_bytes()));
}
