//! The line that a person types: edited, completed, remembered.
//!
//! What is printed meanwhile goes above it by way of a thread of its own: whoever has something to say never
//! waits for the line.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};

use executor::agent::journal::SessionStore;
use rustyline::completion::Completer;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History as _};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Editor as Line, ExternalPrinter as _, Helper};

use super::input::COMMANDS;
use crate::error::Error;
use crate::output::Output;

const PROMPT: &str = "> ";
/// Where the width of a terminal cannot be told.
const COLUMNS: usize = 80;
const MAX_HISTORY: usize = 1_000;

pub(super) struct Editor {
    line: Line<CompletionWords, FileHistory>,
    history: PathBuf,
}

/// What came of one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedLine {
    Text(String),
    /// Ctrl-C; whether there was something on the line.
    Interrupt {
        had_text: bool,
    },
    End,
}

impl Editor {
    /// `typing` says whether something stands on the line. What was typed is remembered in `history`, for its
    /// owner alone.
    pub(super) fn new(
        history: PathBuf,
        models: Vec<String>,
        sessions: SessionStore,
        typing: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let unusable = |error: ReadlineError| Error::io("the terminal cannot be used", &std::io::Error::other(error));
        let mut line = Line::new().map_err(unusable)?;
        line.set_helper(Some(CompletionWords { models, sessions, typing }));
        line.set_max_history_size(MAX_HISTORY).map_err(unusable)?;
        line.set_auto_add_history(false);
        let made = OpenOptions::new().append(true).create(true).mode(0o600).open(&history);
        made.map_err(|error| Error::io(&format!("the history `{}` cannot be written", history.display()), &error))?;
        // One that cannot be read is begun anew.
        drop(line.load_history(&history));
        Ok(Self { line, history })
    }

    /// Prints what comes until nobody has anything to say any more.
    pub(super) fn print_above(&mut self, messages: Receiver<String>) -> JoinHandle<()> {
        match self.line.create_external_printer() {
            Ok(mut printer) => thread::spawn(move || {
                for message in messages {
                    // There is nobody left to tell if this fails.
                    drop(printer.print(message));
                }
            }),
            // A terminal that cannot move its cursor.
            Err(_) => thread::spawn(move || {
                let output = Output::new();
                for message in messages {
                    drop(output.text(&message));
                }
            }),
        }
    }

    pub(super) fn columns(&mut self) -> usize {
        self.line.dimensions().map_or(COLUMNS, |(columns, _)| usize::from(columns))
    }

    /// Reads one line, or a block that was pasted. `beginning` stands there already.
    pub(super) fn read(&mut self, beginning: &str) -> Result<TypedLine, Error> {
        let typing = self.line.helper().map(|words| Arc::clone(&words.typing));
        let had_text = |set: bool| typing.as_ref().is_some_and(|typing| typing.swap(set, Ordering::Relaxed));
        had_text(!beginning.is_empty());
        match self.line.readline_with_initial(PROMPT, (beginning, "")) {
            Ok(text) => {
                had_text(false);
                Ok(TypedLine::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(TypedLine::Interrupt { had_text: had_text(false) }),
            Err(ReadlineError::Eof) => Ok(TypedLine::End),
            Err(error) => Err(Error::io("the terminal cannot be read", &std::io::Error::other(error))),
        }
    }

    /// Keeps a line for later sessions.
    pub(super) fn remember(&mut self, text: &str) {
        // What cannot be remembered is typed again.
        drop(self.line.history_mut().add(text).and_then(|_| self.line.append_history(&self.history)));
    }
}

/// What can be completed.
struct CompletionWords {
    models: Vec<String>,
    sessions: SessionStore,
    typing: Arc<AtomicBool>,
}

impl CompletionWords {
    fn candidates(&self, before: &str) -> (usize, Vec<String>) {
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = &before[start..];
        let numbers = || self.sessions.numbers().unwrap_or_default().into_iter().map(|number| number.to_string());
        let (typed, offered): (_, Vec<String>) = match line.split_once(' ') {
            None if line.starts_with(['/', '!']) => {
                (line, COMMANDS.iter().map(|(name, ..)| format!("{}{name}", &line[..1])).collect())
            }
            None if line.starts_with('@') => (line, self.models.iter().map(|name| format!("@{name}")).collect()),
            Some(("/model" | "!model", typed)) => (typed, self.models.clone()),
            Some(("/resume" | "!resume" | "/delete" | "!delete", typed)) => (typed, numbers().collect()),
            _ => return (before.len(), Vec::new()),
        };
        let fitting = offered.into_iter().filter(|offer| offer.starts_with(typed)).collect();
        (before.len() - typed.len(), fitting)
    }
}

impl Helper for CompletionWords {}
impl Highlighter for CompletionWords {}

impl Completer for CompletionWords {
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

/// Gives no hints: it is told of each change of the line.
impl Hinter for CompletionWords {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &rustyline::Context<'_>) -> Option<String> {
        self.typing.store(!line.is_empty(), Ordering::Relaxed);
        None
    }
}

impl Validator for CompletionWords {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\');
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_models_and_sessions_are_completed_where_they_stand() {
        let state = tempfile::tempdir().expect("a folder");
        let sessions = SessionStore::in_state(state.path());
        let _first = sessions.begin(None).expect("begun");
        let words =
            CompletionWords { models: vec!["local".to_owned(), "sonnet".to_owned()], sessions, typing: Arc::default() };
        let completed = |before: &str| {
            let (start, found) = words.candidates(before);
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
