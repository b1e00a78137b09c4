//! What worked before: which subtool was run with success after which search, as a further field of the index.
//!
//! One file of JSON lines, newest last, written by the executor alone and read by each search: 10 records for each
//! subtool of a session, [`MAX_RECORDS`] in all. What one session taught counts for itself alone; for others it counts
//! once a second session has taught the same, so that no session steers another one. A record has the words of the index,
//! not what the caller typed. Losing the file costs nothing but what it knew.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use protocol::paths::create_private;
use protocol::regular_file;
use protocol::trust;
use serde::{Deserialize, Serialize};

/// What a search reads at most, in the time of a millisecond.
pub const MAX_RECORDS: usize = 2_000;
/// More requests for one subtool add little (measured: 1, 3 and 10 requests gain 5, 9 and 14 points of NDCG@5).
const MAX_PER_TOOL: usize = 10;
/// Longer searches name several things at once, and would find everything.
const MAX_WORDS: usize = 20;
pub const MAX_WORD_BYTES: usize = 300;
/// When the file is written anew without what is over the limits.
const MAX_LINES: usize = 2 * MAX_RECORDS;
const MAX_BYTES: u64 = 4 << 20;

/// A search, and the subtool that was run after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedRequest {
    pub tool: String,
    /// The words of the search, as the index has them, joined by spaces.
    pub words: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// How many sessions must have taught the same before it counts for others.
const MIN_SESSIONS: usize = 2;

/// Returns what counts for a search of this session, oldest first and each once; nothing if the file is missing or unreadable.
pub fn read(path: &Path, session: Option<&str>) -> Vec<LearnedRequest> {
    let records = within_limits(lines(path));
    let mut sessions: HashMap<(&str, &str), HashSet<Option<&str>>> = HashMap::new();
    for record in &records {
        sessions.entry((&record.tool, &record.words)).or_default().insert(record.session.as_deref());
    }
    let counts = |record: &LearnedRequest| {
        let taught_by = &sessions[&(record.tool.as_str(), record.words.as_str())];
        taught_by.contains(&session) || taught_by.len() >= MIN_SESSIONS
    };
    let mut counted = HashSet::new();
    let mut known = Vec::new();
    for record in &records {
        if counts(record) && counted.insert((&record.tool, &record.words)) {
            known.push(record.clone());
        }
    }
    known
}

fn lines(path: &Path) -> Vec<LearnedRequest> {
    // What another user may have written finds nothing.
    if trust::check(path).is_err_and(|distrust| distrust.is_writable_by_others()) {
        return Vec::new();
    }
    let text = regular_file::read(path, MAX_BYTES).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Keeps the newest records of each subtool of a session, and of all.
fn within_limits(mut records: Vec<LearnedRequest>) -> Vec<LearnedRequest> {
    let mut known: HashMap<(String, Option<String>), usize> = HashMap::new();
    records.reverse();
    records.retain(|record| {
        let count = known.entry((record.tool.clone(), record.session.clone())).or_default();
        *count += 1;
        *count <= MAX_PER_TOOL
    });
    records.truncate(MAX_RECORDS);
    records.reverse();
    records
}

/// The file, as the executor keeps it.
#[derive(Debug)]
pub struct LearnedRequests {
    path: PathBuf,
    records: Vec<LearnedRequest>,
    /// How many lines the file has.
    lines: usize,
}

impl LearnedRequests {
    pub fn open(path: PathBuf) -> Self {
        let all = lines(&path);
        Self { lines: all.len(), records: within_limits(all), path }
    }

    /// Adds a record, unless it is known or says too much. Failing to write it is not an error.
    pub fn add(&mut self, record: LearnedRequest) {
        let words = record.words.split(' ').count();
        let is_plain = |word: char| word.is_alphanumeric() || word == ' ';
        let is_fit = words <= MAX_WORDS && record.words.len() <= MAX_WORD_BYTES && record.words.chars().all(is_plain);
        if !is_fit || record.words.trim().is_empty() || self.records.contains(&record) {
            return;
        }
        let appended = self.append(&record);
        self.records.push(record);
        if self.lines > MAX_LINES {
            self.records = within_limits(std::mem::take(&mut self.records));
            self.report(self.write_all());
            self.lines = self.records.len();
        }
        self.report(appended);
    }

    /// Removes the records for which `is_unwanted` holds.
    pub fn remove(&mut self, is_unwanted: impl Fn(&LearnedRequest) -> bool) {
        let before = self.records.len();
        self.records.retain(|record| !is_unwanted(record));
        if self.records.len() < before {
            self.report(self.write_all());
            self.lines = self.records.len();
        }
    }

    fn append(&mut self, record: &LearnedRequest) -> io::Result<()> {
        create_private(self.path.parent().unwrap_or(Path::new(".")))?;
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.lines += 1;
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?.write_all(&line)
    }

    fn write_all(&self) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(self.path.parent().unwrap_or(Path::new(".")))?;
        for record in &self.records {
            serde_json::to_writer(&mut file, record)?;
            file.write_all(b"\n")?;
        }
        file.persist(&self.path)?;
        Ok(())
    }

    fn report(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::debug!(file = %self.path.display(), %error, "failed to keep which subtool a search led to");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tool: &str, words: &str) -> LearnedRequest {
        LearnedRequest { tool: tool.to_owned(), words: words.to_owned(), session: Some("s".to_owned()) }
    }

    #[test]
    fn the_newest_requests_of_each_subtool_are_kept_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("state/learned.jsonl");
        let mut learned = LearnedRequests::open(path.clone());
        for number in 0..12 {
            learned.add(record("mail", &format!("unread {}", "x".repeat(number + 1))));
        }
        learned.add(record("mail", "unread x"));
        learned.add(record("files", "big file"));
        let known = read(&path, Some("s"));
        assert_eq!(known.len(), 11);
        assert_eq!(known.first(), Some(&record("mail", "unread xxx")), "the oldest are dropped");
        assert_eq!(known.last(), Some(&record("files", "big file")));
        learned.remove(|record| record.session.as_deref() == Some("s"));
        assert_eq!(read(&path, Some("s")), []);
    }

    #[test]
    fn what_is_no_plain_word_is_not_kept() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("learned.jsonl");
        let mut learned = LearnedRequests::open(path.clone());
        for words in ["", " ", "token=abc", "a\nb", &"word ".repeat(30), &"x".repeat(400)] {
            learned.add(record("mail", words));
        }
        assert_eq!(read(&path, Some("s")), []);
    }

    #[test]
    fn a_damaged_line_hides_no_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("learned.jsonl");
        LearnedRequests::open(path.clone()).add(record("mail", "unread mail"));
        let mut text = std::fs::read_to_string(&path).expect("readable");
        text.insert_str(0, "{\"tool\": \n\u{0}\n");
        std::fs::write(&path, text).expect("written");
        assert_eq!(read(&path, Some("s")), [record("mail", "unread mail")]);
    }

    #[test]
    fn what_one_session_taught_counts_for_others_when_a_second_one_has_taught_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("learned.jsonl");
        let mut learned = LearnedRequests::open(path.clone());
        let taught = |session: Option<&str>| LearnedRequest {
            session: session.map(str::to_owned),
            ..record("mail", "unread mail")
        };
        let counts = |session: Option<&str>| read(&path, session).len();
        for teacher in [Some("a"), None] {
            learned.add(taught(teacher));
            learned.add(taught(teacher));
            let others = [Some("a"), Some("b"), None].into_iter().filter(|session| *session != teacher);
            assert_eq!((counts(teacher), others.map(counts).collect::<Vec<_>>()), (1, vec![0, 0]), "{teacher:?}");
            learned.remove(|record| record.session.as_deref() == teacher);
        }
        learned.add(taught(Some("a")));
        learned.add(taught(Some("b")));
        assert_eq!([Some("a"), Some("b"), Some("c"), None].map(counts), [1; 4]);
        learned.remove(|record| record.session.as_deref() == Some("a"));
        assert_eq!(
            [Some("a"), Some("b"), Some("c"), None].map(counts),
            [0, 1, 0, 0],
            "it is forgotten with its session"
        );
    }

    #[test]
    fn a_session_takes_no_place_of_another_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("learned.jsonl");
        let mut learned = LearnedRequests::open(path.clone());
        learned.add(record("mail", "unread mail"));
        for number in 0..20 {
            let words = format!("flood {}", "x".repeat(number + 1));
            learned.add(LearnedRequest { session: Some("other".to_owned()), ..record("mail", &words) });
        }
        assert_eq!(read(&path, Some("s")), [record("mail", "unread mail")]);
    }
}
