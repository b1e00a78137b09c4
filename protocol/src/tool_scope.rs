//! The tool scope: which subtools of the catalog a caller may use.
//!
//! An agent with a restricted catalog carries its scope in every request and passes it on when it delegates,
//! possibly narrowed further. A scope only restricts: it never allows a subtool that the configuration
//! does not.

use globset::Glob;
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::error::ErrorBody;
use crate::paths::{PROFILE as PROFILE_VARIABLE, TOOL_SCOPE};

/// Lists of names and globs. A subtool is in scope if its name matches an entry of every list; without any
/// list, every subtool is. A list may name a profile of the configuration instead, as `["@support"]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolScope(Vec<Vec<String>>);

/// What the name of a profile begins with in a scope. No name of a subtool does.
const PROFILE: char = '@';
/// The longest name of a profile.
const MAX_PROFILE_CHARS: usize = 32;

/// A list that cannot be a part of a scope.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPattern {
    #[error("`{pattern}` is not a valid name or glob: {source}")]
    Glob { pattern: String, source: globset::Error },
    /// It would mean what either of them allows, and a profile says more than what is allowed.
    #[error("`{0}` names a profile, so it must be the only entry of its list")]
    ProfileAmongOthers(String),
    #[error("`{0}` is not the name of a profile; use 1 to 32 of the characters a-z 0-9 -")]
    ProfileName(String),
}

/// Fails if no profile can have this name.
pub fn check_profile_name(name: &str) -> Result<(), InvalidPattern> {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_length = (1..=MAX_PROFILE_CHARS).contains(&name.len());
    if has_length && name.bytes().all(is_fit) && !name.starts_with('-') {
        Ok(())
    } else {
        Err(InvalidPattern::ProfileName(name.to_owned()))
    }
}

fn check(patterns: &[String]) -> Result<(), InvalidPattern> {
    for pattern in patterns {
        match pattern.strip_prefix(PROFILE) {
            Some(_) if patterns.len() > 1 => return Err(InvalidPattern::ProfileAmongOthers(pattern.clone())),
            Some(name) => check_profile_name(name)?,
            None => {
                let wrong = |source| InvalidPattern::Glob { pattern: pattern.clone(), source };
                Glob::new(pattern).map_err(wrong)?;
            }
        }
    }
    Ok(())
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
    /// In the variable with a profile.
    #[error("{0}")]
    Profile(InvalidPattern),
}

impl ToolScope {
    /// Covers no subtool.
    pub fn nothing() -> Self {
        Self(vec![Vec::new()])
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the subtool `name` is in scope, as far as names tell. What a profile covers is not known here, so with one
    /// it is not: use `Catalog::usable` or `Rights`. A malformed pattern matches nothing.
    pub fn covers(&self, name: &str) -> bool {
        self.covers_with(name, |_| false)
    }

    /// Whether the subtool `name` is in scope, if `has` tells whether a profile has it.
    pub fn covers_with(&self, name: &str, has: impl Fn(&str) -> bool) -> bool {
        let matches = |pattern: &String| match pattern.strip_prefix(PROFILE) {
            Some(profile) => has(profile),
            None => pattern == name || Glob::new(pattern).is_ok_and(|glob| glob.compile_matcher().is_match(name)),
        };
        self.0.iter().all(|patterns| patterns.iter().any(matches))
    }

    /// The profiles that it names, all of which restrict it.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|patterns| match patterns.as_slice() {
            [only] => only.strip_prefix(PROFILE),
            _ => None,
        })
    }

    /// Returns this scope, restricted further to the profile of this name.
    pub fn within_profile(&self, name: &str) -> Result<Self, InvalidPattern> {
        self.narrowed(vec![format!("{PROFILE}{name}")])
    }

    /// Returns this scope, restricted further to `patterns`.
    pub fn narrowed(&self, patterns: Vec<String>) -> Result<Self, InvalidPattern> {
        check(&patterns)?;
        let mut narrowed = self.clone();
        if !narrowed.0.contains(&patterns) {
            narrowed.0.push(patterns);
        }
        Ok(narrowed)
    }

    /// The scope of one list as a human wrote it, which may have mistakes.
    pub fn of_list(patterns: Vec<String>) -> Self {
        Self(vec![patterns])
    }

    /// What is wrong with a scope as a human wrote it.
    pub fn mistake(&self) -> Option<InvalidPattern> {
        self.0.iter().find_map(|patterns| check(patterns).err())
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
        Self::parse(text).unwrap_or_else(|_| Self::nothing())
    }

    /// Parses the value of an environment variable.
    pub fn parse(text: &str) -> Result<Self, InvalidScope> {
        let scope: Self = serde_json::from_str(text).map_err(|_| InvalidScope::Form)?;
        if scope.is_everything() {
            return Err(InvalidScope::Empty);
        }
        scope.0.iter().try_for_each(|patterns| check(patterns))?;
        Ok(scope)
    }

    /// Writes the scope in the form that [`ToolScope::from_env_value`] parses.
    pub fn to_env_value(&self) -> String {
        serde_json::to_string(self).expect("lists of strings serialize")
    }
}

impl From<InvalidScope> for ErrorBody {
    fn from(error: InvalidScope) -> Self {
        let (variable, hint) = match &error {
            InvalidScope::Profile(_) => (PROFILE_VARIABLE, "name a profile of the configuration, or unset it"),
            _ => (
                TOOL_SCOPE,
                "write lists of names or globs, all of which must match, like [[\"git_*\", \"ask_user\"]], or unset it",
            ),
        };
        Self::new(Code::BadConfig, format!("the environment variable `{variable}` is wrong: {error}")).hint(hint)
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

    #[test]
    fn a_profile_stands_alone_and_covers_nothing_where_it_is_not_known() {
        let all = ToolScope::default();
        let support = all.within_profile("support").expect("a name");
        assert_eq!(support.profiles().collect::<Vec<_>>(), ["support"]);
        assert!(!support.covers("order_read") && !support.covers("@support") && !support.is_everything());
        assert!(support.covers_with("order_read", |profile| profile == "support"));
        let both = support.narrowed(patterns(&["order_*"])).expect("a glob").within_profile("night").expect("a name");
        assert_eq!(both.profiles().collect::<Vec<_>>(), ["support", "night"]);
        assert!(both.covers_with("order_read", |_| true) && !both.covers_with("mail", |_| true));
        assert!(!both.covers_with("order_read", |profile| profile == "support"), "all of them restrict it");
        assert_eq!(ToolScope::parse(&both.to_env_value()).expect("it was written"), both);
        for text in [r#"[["@a", "b"]]"#, r#"[["b", "@a"]]"#, r#"[["@"]]"#, r#"[["@A"]]"#, r#"[["@a*"]]"#] {
            assert!(ToolScope::parse(text).is_err(), "{text}");
        }
    }
}
