//! The input line of the chat: editing, completion, history.
//!
//! Output goes above the input line through a thread of its own, so that printing never waits for the user.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use agent_loop::input::InputPlace;
use agent_loop::journal::SessionStore;
use agent_side::error::Error;
use agent_side::output::Output;
use rustyline::completion::Completer;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History as _};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor as Line, ExternalPrinter as _, Helper};

const PROMPT: &str = "> ";
/// The width of a terminal that does not report one.
const DEFAULT_COLUMNS: usize = 80;
const MAX_HISTORY: usize = 1_000;

pub(super) struct Editor {
    line: Line<LineHelper, FileHistory>,
    history: PathBuf,
}

/// One input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedLine {
    Text(String),
    /// Ctrl-C; `had_text` tells whether the line was not empty.
    Interrupt {
        had_text: bool,
    },
    /// Ctrl-D on an empty line.
    EndOfInput,
}

impl Editor {
    /// Opens the terminal. `typing` is set while the line is not empty. `history` is a file that only its owner
    /// can read.
    pub(super) fn new(
        history: PathBuf,
        models: Vec<String>,
        sessions: SessionStore,
        typing: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let unusable = |error: ReadlineError| Error::io("failed to open the terminal", &std::io::Error::other(error));
        let mut line = Line::new().map_err(unusable)?;
        line.set_helper(Some(LineHelper { models, sessions, typing }));
        line.set_max_history_size(MAX_HISTORY).map_err(unusable)?;
        line.set_auto_add_history(false);
        let created = OpenOptions::new().append(true).create(true).mode(0o600).open(&history);
        created.map_err(|error| Error::io(&format!("failed to open history `{}`", history.display()), &error))?;
        // An unreadable history counts as empty.
        drop(line.load_history(&history));
        Ok(Self { line, history })
    }

    /// Prints each message above the input line, until all senders are dropped.
    pub(super) fn print_above(&mut self, messages: Receiver<String>) -> JoinHandle<()> {
        match self.line.create_external_printer() {
            Ok(mut printer) => thread::spawn(move || {
                for message in messages {
                    // A failure to print cannot be reported anywhere.
                    drop(printer.print(message));
                }
            }),
            // The terminal cannot move its cursor.
            Err(_) => thread::spawn(move || {
                let output = Output::new();
                for message in messages {
                    drop(output.text(&message));
                }
            }),
        }
    }

    pub(super) fn columns(&mut self) -> usize {
        self.line.dimensions().map_or(DEFAULT_COLUMNS, |(columns, _)| usize::from(columns))
    }

    /// Reads one line, or a pasted block. The line starts with `prefill`.
    pub(super) fn read(&mut self, prefill: &str) -> Result<TypedLine, Error> {
        let typing = self.line.helper().map(|helper| Arc::clone(&helper.typing));
        let set_typing = |set: bool| typing.as_ref().is_some_and(|typing| typing.swap(set, Ordering::Relaxed));
        set_typing(!prefill.is_empty());
        match self.line.readline_with_initial(PROMPT, (prefill, "")) {
            Ok(text) => {
                set_typing(false);
                Ok(TypedLine::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(TypedLine::Interrupt { had_text: set_typing(false) }),
            Err(ReadlineError::Eof) => Ok(TypedLine::EndOfInput),
            Err(error) => Err(Error::io("failed to read from the terminal", &std::io::Error::other(error))),
        }
    }

    /// Adds a line to the history.
    pub(super) fn remember(&mut self, text: &str) {
        // A line that is missing from the history is no reason to stop.
        drop(self.line.history_mut().add(text).and_then(|_| self.line.append_history(&self.history)));
    }
}

/// Completes commands, models and sessions, and tracks whether the line is empty.
struct LineHelper {
    models: Vec<String>,
    sessions: SessionStore,
    typing: Arc<AtomicBool>,
}

impl LineHelper {
    fn candidates(&self, before: &str) -> (usize, Vec<String>) {
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = &before[start..];
        let numbers = || self.sessions.numbers().unwrap_or_default().into_iter().map(|number| number.to_string());
        let (typed, offered): (_, Vec<String>) = match line.split_once(' ') {
            None if line.starts_with(['/', '!']) => {
                (line, InputPlace::Terminal.commands().map(|row| format!("{}{}", &line[..1], row.name)).collect())
            }
            None if line.starts_with('@') => (line, self.models.iter().map(|name| format!("@{name}")).collect()),
            Some(("/model" | "!model", typed)) => (typed, self.models.clone()),
            Some(("/resume" | "!resume" | "/delete" | "!delete", typed)) => (typed, numbers().collect()),
            _ => return (before.len(), Vec::new()),
        };
        let matching = offered.into_iter().filter(|offer| offer.starts_with(typed)).collect();
        (before.len() - typed.len(), matching)
    }
}

impl Helper for LineHelper {}
impl Highlighter for LineHelper {}

impl Completer for LineHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Self::Candidate>)> {
        Ok(self.candidates(&line[..pos]))
    }
}

/// Gives no hints; rustyline calls it on every change of the line, which is how `typing` is updated.
impl Hinter for LineHelper {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &rustyline::Context<'_>) -> Option<String> {
        self.typing.store(!line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let continues = context.input().ends_with('\\');
        Ok(if continues { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_models_and_sessions_are_completed() {
        let state = tempfile::tempdir().expect("a folder");
        let sessions = SessionStore::in_state(state.path());
        let _first = sessions.create(None, None).expect("created");
        let helper =
            LineHelper { models: vec!["local".to_owned(), "sonnet".to_owned()], sessions, typing: Arc::default() };
        let completed = |before: &str| {
            let (start, found) = helper.candidates(before);
            (before[start..].to_owned(), found)
        };
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(completed("/us"), ("/us".to_owned(), owned(&["/usage"])));
        assert_eq!(completed("text\n!mode"), ("!mode".to_owned(), owned(&["!model", "!models"])));
        assert_eq!(completed("@l"), ("@l".to_owned(), owned(&["@local"])));
        assert_eq!(completed("/model s"), ("s".to_owned(), owned(&["sonnet"])));
        assert_eq!(completed("/resume 1"), ("1".to_owned(), owned(&["101"])));
        assert_eq!(completed("what is @l"), (String::new(), owned(&[])));
    }
}
