//! What each session searched for last, and which subtools that found.
//!
//! ```text
//! queries/<digest of the session's name>.json
//! ```
//!
//! `list` writes it, and the `run` that follows tells the executor by which words the caller found the subtool: only
//! these two know, and the mailbox is the one place that both can write to. The words are those of the search index,
//! without paths, addresses and numbers. Losing such a file costs nothing.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use std::{fs, mem};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Mailbox, ensure_private, ignore_not_found, is_older, is_trusted, replace};
use crate::{digest, regular_file};

/// A later `run` probably has nothing to do with the search.
const MAX_AGE: Duration = Duration::from_mins(10);
/// Far more than a search writes.
const MAX_BYTES: u64 = 16 << 10;

const FOLDER: &str = "queries";

/// A search and what it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastQuery {
    /// The words, as the index has them.
    pub words: String,
    /// The names of the subtools that were listed.
    pub tools: Vec<String>,
}

impl Mailbox {
    /// Keeps what this session searched for, in place of its last search.
    pub fn keep_query(&self, session: Option<&str>, query: &LastQuery) -> io::Result<()> {
        let path = self.query_file(session);
        let bytes = serde_json::to_vec(query)?;
        let is_elsewhere = |found: fs::Metadata| !found.is_dir();
        if fs::symlink_metadata(self.root.join(FOLDER)).is_ok_and(is_elsewhere) {
            return Err(io::Error::other("the folder of the searches is not a folder"));
        }
        match replace(&path, &bytes, "query") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                ensure_private(&self.root.join(FOLDER)).map_err(io::Error::other)?;
                replace(&path, &bytes, "query")
            }
            written => written,
        }
    }

    /// Returns the words by which this session found `tool` in its last search, if that was lately.
    pub fn words_that_found(&self, session: Option<&str>, tool: &str) -> Option<String> {
        let path = self.query_file(session);
        let found = fs::symlink_metadata(&path).ok()?;
        if !is_trusted(&found) || is_older(&found, SystemTime::now(), MAX_AGE) {
            return None;
        }
        let text = regular_file::read_text(&path, MAX_BYTES).ok()?;
        // Each `run` asks, and most searches found something else: then nothing is parsed.
        if !text.contains(tool) {
            return None;
        }
        let mut query: LastQuery = serde_json::from_str(&text).ok()?;
        query.tools.iter().any(|known| known == tool).then(|| mem::take(&mut query.words))
    }

    /// Removes the last search of this session.
    pub fn forget_query(&self, session: Option<&str>) -> io::Result<()> {
        ignore_not_found(fs::remove_file(self.query_file(session)))
    }

    /// Removes searches that no `run` refers to any longer; returns how many.
    pub(super) fn sweep_queries(&self, now: SystemTime) -> io::Result<usize> {
        let entries = match fs::read_dir(self.root.join(FOLDER)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut swept = 0;
        for entry in entries {
            let entry = entry?;
            if entry.metadata().is_ok_and(|found| found.is_file() && is_older(&found, now, MAX_AGE)) {
                ignore_not_found(fs::remove_file(entry.path()))?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// A session's own name may not be a valid file name.
    fn query_file(&self, session: Option<&str>) -> PathBuf {
        let name =
            session.map_or_else(|| "none".to_owned(), |name| digest::hex(&Sha256::digest(name))[..16].to_owned());
        self.root.join(FOLDER).join(format!("{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mailbox;
    use super::*;

    #[test]
    fn a_session_knows_the_words_of_its_own_last_search_for_what_it_listed() {
        let (_folder, mailbox) = mailbox();
        assert_eq!(mailbox.words_that_found(None, "mail"), None);
        let query = LastQuery { words: "unread mail".to_owned(), tools: vec!["mail".to_owned()] };
        mailbox.keep_query(Some("a/b"), &query).expect("written");
        assert_eq!(mailbox.words_that_found(Some("a/b"), "mail"), Some("unread mail".to_owned()));
        assert_eq!(mailbox.words_that_found(Some("a/b"), "other"), None);
        assert_eq!(mailbox.words_that_found(None, "mail"), None);
        mailbox.keep_query(Some("a/b"), &LastQuery { tools: Vec::new(), ..query }).expect("written");
        assert_eq!(mailbox.words_that_found(Some("a/b"), "mail"), None);
        mailbox.forget_query(Some("a/b")).expect("removed");
        mailbox.forget_query(Some("a/b")).expect("it may be gone");
    }

    #[test]
    fn an_old_search_is_swept() {
        let (_folder, mailbox) = mailbox();
        let query = LastQuery { words: "unread mail".to_owned(), tools: vec!["mail".to_owned()] };
        mailbox.keep_query(None, &query).expect("written");
        assert_eq!(mailbox.sweep_queries(SystemTime::now()).expect("swept"), 0);
        assert_eq!(mailbox.sweep_queries(SystemTime::now() + MAX_AGE * 2).expect("swept"), 1);
        assert_eq!(mailbox.words_that_found(None, "mail"), None);
    }
}
