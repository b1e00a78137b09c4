//! Why a statement is not run, in words with which a model can go on.

use std::fmt;

/// Why a statement is not run.
///
/// A name that is not there and a name that is hidden or denied have the same words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// What is wrong, one line.
    pub message: String,
    /// How to go on.
    pub hint: String,
}

/// The kinds of [`Refusal`], for programs. Their text is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// The text is not a statement of this dialect, or one that cannot be understood without doubt.
    Syntax,
    /// The text has no statement, or more than one.
    NotOneStatement,
    /// A statement, clause or function that is not on the list of what may be used.
    NotAllowed,
    NoSuchTable,
    NoSuchColumn,
    /// The statement writes, and writing is not allowed.
    ReadOnly,
    /// The text is too long, or nested too deeply.
    TooLong,
}

impl RefusalKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::NotOneStatement => "not-one-statement",
            Self::NotAllowed => "not-allowed",
            Self::NoSuchTable => "no-such-table",
            Self::NoSuchColumn => "no-such-column",
            Self::ReadOnly => "read-only",
            Self::TooLong => "too-long",
        }
    }
}

impl fmt::Display for RefusalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn syntax(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(RefusalKind::Syntax, message, hint)
    }

    /// What is not on a list of allowed things; `what` is a noun with its article, or in backticks.
    pub(crate) fn not_allowed(what: impl fmt::Display, hint: impl Into<String>) -> Self {
        Self::new(RefusalKind::NotAllowed, format!("{what} is not allowed"), hint)
    }

    /// A write where writing is not allowed.
    pub(super) fn read_only(what: &str) -> Self {
        Self::new(RefusalKind::ReadOnly, format!("{what} is not allowed: a query only reads"), "write a `SELECT`")
    }

    /// A write where only a query may stand.
    pub(super) fn no_writing_part() -> Self {
        Self::not_allowed("a write inside of a query", "write it as a statement of its own")
    }
}
