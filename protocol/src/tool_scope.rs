//! The tool scope: which subtools of the catalog a caller may use.
//!
//! An agent with a restricted catalog carries its scope in every request and passes it on when it delegates,
//! possibly narrowed further. A scope only restricts: it never allows a subtool that the configuration
//! does not.

use globset::Glob;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::error::ErrorBody;

/// Lists of names and globs. A subtool is in scope if its name matches an entry of every list; without any
/// list, every subtool is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolScope(Vec<Vec<String>>);

#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid name or glob: {source}")]
pub struct InvalidPattern {
    pattern: String,
    source: globset::Error,
}

/// A tool scope that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InvalidScope {
    #[error("it is not a list of lists of names")]
    Form,
    /// It would allow everything, which is not what someone means who sets a scope.
    #[error("it is an empty list; leave the variable out to allow everything, `[[]]` allows nothing")]
    Empty,
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
}

impl ToolScope {
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the subtool `name` is in scope. A malformed pattern matches nothing.
    pub fn covers(&self, name: &str) -> bool {
        let matches = |pattern: &String| {
            pattern == name || Glob::new(pattern).is_ok_and(|glob| glob.compile_matcher().is_match(name))
        };
        self.0.iter().all(|patterns| patterns.iter().any(matches))
    }

    /// Returns this scope, restricted further to `patterns`.
    pub fn narrowed(&self, patterns: Vec<String>) -> Result<Self, InvalidPattern> {
        for pattern in &patterns {
            Glob::new(pattern).map_err(|source| InvalidPattern { pattern: pattern.clone(), source })?;
        }
        let mut narrowed = self.clone();
        if !narrowed.0.contains(&patterns) {
            narrowed.0.push(patterns);
        }
        Ok(narrowed)
    }

    /// Returns this scope, restricted further to `other`.
    #[must_use]
    pub fn also(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.0.extend(other.0.iter().filter(|patterns| !self.0.contains(patterns)).cloned());
        both
    }

    /// Parses the value of an environment variable; a malformed value allows nothing.
    pub fn from_env_value(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|_| Self(vec![Vec::new()]))
    }

    /// Parses the value of an environment variable.
    pub fn parse(text: &str) -> Result<Self, InvalidScope> {
        let scope: Self = serde_json::from_str(text).map_err(|_| InvalidScope::Form)?;
        if scope.is_everything() {
            return Err(InvalidScope::Empty);
        }
        for pattern in scope.0.iter().flatten() {
            Glob::new(pattern).map_err(|source| InvalidPattern { pattern: pattern.clone(), source })?;
        }
        Ok(scope)
    }

    /// Writes the scope in the form that [`ToolScope::from_env_value`] parses.
    pub fn to_env_value(&self) -> String {
        serde_json::to_string(self).expect("lists of strings serialize")
    }
}

impl From<InvalidScope> for ErrorBody {
    fn from(error: InvalidScope) -> Self {
        Self::new(Code::BadConfig, format!("the environment variable `AGENT_MAGIC_TOOL_SCOPE` is wrong: {error}")).hint(
            "write lists of names or globs, all of which must match, like [[\"git_*\", \"ask_user\"]], or unset it",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_scope_can_only_be_narrowed() {
        let all = ToolScope::default();
        assert!(all.is_everything() && all.covers("gmail_send_message"));
        let mail = all.narrowed(patterns(&["gmail_*", "ask_user"])).expect("valid globs");
        assert!(mail.covers("gmail_send_message") && mail.covers("ask_user") && !mail.covers("git_log"));
        let reads = mail.narrowed(patterns(&["*_read_*", "*"])).expect("valid globs");
        assert!(reads.covers("ask_user") && !reads.covers("git_log"), "`*` does not widen the scope");
        assert!(!mail.narrowed(Vec::new()).expect("an empty list").covers("ask_user"));
        assert!(mail.narrowed(patterns(&["a[b"])).is_err());
        assert_eq!(ToolScope::from_env_value(&reads.to_env_value()), reads);
        let both = mail.also(&all.narrowed(patterns(&["*_send_*"])).expect("valid globs"));
        assert!(both.covers("gmail_send_message") && !both.covers("ask_user") && !both.covers("slack_send_message"));
    }

    #[test]
    fn a_malformed_scope_allows_nothing() {
        for text in ["", "everything", "{}", "[[1]]", "[[]]", "[]"] {
            assert!(!ToolScope::from_env_value(text).covers("ask_user"), "{text}");
        }
        assert!(!ToolScope(vec![patterns(&["a[b"])]).covers("a"));
    }
}
