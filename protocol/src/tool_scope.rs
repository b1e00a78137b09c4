//! Reach: which subtools a caller may use of all that there are.
//!
//! An agent that was given a small catalog carries its reach in every request, and hands it on to whoever
//! it delegates to, with more taken away if that one has a smaller catalog still. It only ever takes away:
//! a reach never makes anything usable that the configuration does not.

use globset::Glob;
use serde::{Deserialize, Serialize};

/// Lists of names and globs. A subtool is within reach if each list has something that fits its name; without
/// a list everything is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolScope(Vec<Vec<String>>);

#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is no name or glob: {source}")]
pub struct InvalidPattern {
    pattern: String,
    source: globset::Error,
}

impl ToolScope {
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the subtool of that name is within reach. A pattern that is none fits nothing.
    pub fn covers(&self, name: &str) -> bool {
        let fits = |pattern: &String| {
            pattern == name || Glob::new(pattern).is_ok_and(|glob| glob.compile_matcher().is_match(name))
        };
        self.0.iter().all(|patterns| patterns.iter().any(fits))
    }

    /// What of this reach these patterns leave.
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

    /// From a variable of the environment; what cannot be understood leaves nothing.
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self(vec![Vec::new()]))
    }

    /// As [`ToolScope::read`] takes it.
    pub fn written(&self) -> String {
        serde_json::to_string(self).expect("lists of texts are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_list_takes_something_away_and_none_gives_it_back() {
        let all = ToolScope::default();
        assert!(all.is_everything() && all.covers("gmail_send_message"));
        let mail = all.narrowed(patterns(&["gmail_*", "ask_user"])).expect("globs");
        assert!(mail.covers("gmail_send_message") && mail.covers("ask_user") && !mail.covers("git_log"));
        let reads = mail.narrowed(patterns(&["*_read_*", "*"])).expect("globs");
        assert!(reads.covers("ask_user") && !reads.covers("git_log"), "everything of less is still less");
        assert!(!mail.narrowed(Vec::new()).expect("nothing").covers("ask_user"));
        assert!(mail.narrowed(patterns(&["a[b"])).is_err());
        assert_eq!(ToolScope::read(&reads.written()), reads);
    }

    #[test]
    fn what_cannot_be_understood_leaves_nothing() {
        for text in ["", "everything", "{}", "[[1]]", "[[]]"] {
            assert!(!ToolScope::read(text).covers("ask_user"), "{text}");
        }
        assert!(!ToolScope(vec![patterns(&["a[b"])]).covers("a"));
    }
}
