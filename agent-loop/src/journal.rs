//! The journal of a session: a file with one line of JSON per entry.
//!
//! An entry is durable before the loop acts on it, so an incomplete last line after a crash can be dropped. A
//! file lock gives a session to one process at a time.
//!
//! The files are in the state folder, which is private to its user, under short numbers that are easy to type.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use protocol::caller::session_label;
use protocol::paths::{Paths, create_private};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::conversation::JournalEntry;

/// The version of the journal format.
const VERSION: u32 = 1;
/// The number of the first session.
const FIRST_NUMBER: u32 = 101;
/// The file with the highest number that was given out, so that no number is given out again after a deletion.
const LAST_NUMBER_FILE: &str = "last-number";

/// The sessions in one folder.
#[derive(Debug, Clone)]
pub struct SessionStore {
    folder: PathBuf,
}

/// Returns how much of a result the user is shown, if a session says so.
pub fn preview(entries: &[JournalEntry]) -> Option<usize> {
    entries.iter().rev().find_map(|entry| match entry {
        JournalEntry::ShowsAtMost { chars } => Some(*chars),
        _ => None,
    })
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalHeader {
    pub v: u32,
    pub id: Uuid,
    pub began_at: Timestamp,
    /// The working folder in which the session began.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// The client whose session it is; a terminal's session has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<SessionClient>,
}

/// The client of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionClient {
    /// Like `llama-127.0.0.1`.
    pub id: String,
    /// The name of the API key that it showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A journal that this process has locked.
#[derive(Debug)]
pub struct Journal {
    pub number: u32,
    pub header: JournalHeader,
    /// `None` if nothing of the session is kept.
    file: Option<Flock<File>>,
    copy: Option<EntriesCopy>,
    /// The question of a journal that has only one.
    only_question: Option<Uuid>,
}

/// New entries of a journal, for who shares them.
pub type EntriesCopy = Arc<Mutex<Vec<JournalEntry>>>;

/// A session in a list.
#[derive(Debug, Serialize)]
pub struct SessionSummary {
    pub number: u32,
    pub id: Uuid,
    pub began_at: Timestamp,
    /// The client whose session it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<SessionClient>,
    /// The first question.
    pub question: Option<String>,
    pub entries: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("no session `{0}`")]
    NotFound(String),
    #[error("session {0} is in use by another process")]
    InUse(u32),
    #[error("failed to access journal `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("journal `{path}` is not valid: {reason}")]
    Malformed { path: PathBuf, reason: String },
}

impl SessionStore {
    /// Returns the user's own sessions, in the state folder.
    pub fn in_state(state: &Path) -> Self {
        Self { folder: state.join("sessions") }
    }

    /// Returns the sessions of delegated agents, kept apart so that the user does not resume one by accident.
    pub fn of_delegated_agents(paths: &Paths) -> Self {
        Self { folder: paths.delegates() }
    }

    /// Creates a session under the next number that was never used. `client` is its client, if it has one.
    pub fn create(&self, folder: Option<PathBuf>, client: Option<SessionClient>) -> Result<Journal, JournalError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::Io { path, source }
        };
        create_private(&self.folder).map_err(io(&self.folder))?;
        let last = self.numbers()?.last().copied().max(self.last_number());
        let mut number = last.map_or(FIRST_NUMBER, |last| last + 1);
        loop {
            let path = self.path(number);
            match OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    let header = JournalHeader { folder, client, ..JournalHeader::new() };
                    let mut journal = Journal {
                        number,
                        header,
                        file: Some(lock(file, number, &path)?),
                        copy: None,
                        only_question: None,
                    };
                    // Before the header: a crash in between only skips a number.
                    self.remember_number(number).map_err(io(&self.folder))?;
                    let header = serde_json::to_string(&journal.header).expect("a header is plain data");
                    journal.write(&header).map_err(io(&path))?;
                    return Ok(journal);
                }
                // Another process took this number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(JournalError::Io { path, source }),
            }
        }
    }

    /// Opens the session with this number or id, and returns its journal and entries.
    pub fn resume(&self, word: &str) -> Result<(Journal, Vec<JournalEntry>), JournalError> {
        let number = self.find(word)?;
        let path = self.path(number);
        let opened = OpenOptions::new().append(true).read(true).open(&path);
        let file = opened.map_err(|source| JournalError::Io { path: path.clone(), source })?;
        let mut file = lock(file, number, &path)?;
        let (header, entries, complete) = read(&mut file, &path)?;
        // Drop an incomplete last line, so that the next entry starts on a new line.
        file.set_len(complete).map_err(|source| JournalError::Io { path, source })?;
        Ok((Journal { number, header, file: Some(file), copy: None, only_question: None }, entries))
    }

    /// Returns the newest session that began in this working folder.
    pub fn newest_in(&self, folder: Option<&Path>) -> Result<Option<u32>, JournalError> {
        self.newest_before(u32::MAX, folder)
    }

    /// Returns the newest session that began in this working folder and has a lower number than `before`.
    pub fn newest_before(&self, before: u32, folder: Option<&Path>) -> Result<Option<u32>, JournalError> {
        let is_in_folder = |number: &u32| {
            let header = self.header(*number)?;
            Some(header.client.is_none() && header.folder.as_deref() == folder)
        };
        Ok(self.numbers()?.into_iter().rev().find(|number| *number < before && is_in_folder(number) == Some(true)))
    }

    /// Returns the header of a session; `None` if there is no such session, or its journal cannot be read.
    pub fn header(&self, number: u32) -> Option<JournalHeader> {
        let file = File::open(self.path(number)).ok()?;
        let mut first = String::new();
        io::BufReader::new(file).read_line(&mut first).ok()?;
        serde_json::from_str(&first).ok()
    }

    /// Returns a summary of every session, oldest first.
    pub fn list(&self) -> Result<Vec<SessionSummary>, JournalError> {
        let mut listed = Vec::new();
        for number in self.numbers()? {
            let path = self.path(number);
            let Ok(mut file) = File::open(&path) else { continue };
            let (header, entries, _) = read(&mut file, &path)?;
            let question = entries.iter().find_map(|entry| match entry {
                JournalEntry::Asked { text, .. } => Some(text.clone()),
                _ => None,
            });
            listed.push(SessionSummary {
                number,
                id: header.id,
                began_at: header.began_at,
                client: header.client,
                question,
                entries: entries.len(),
            });
        }
        Ok(listed)
    }

    /// Deletes a session that no process has open, and returns what it was.
    pub fn delete(&self, word: &str) -> Result<JournalHeader, JournalError> {
        let (journal, _) = self.resume(word)?;
        let path = self.path(journal.number);
        fs::remove_file(&path).map_err(|source| JournalError::Io { path, source })?;
        Ok(journal.header)
    }

    fn find(&self, word: &str) -> Result<u32, JournalError> {
        let not_found = || JournalError::NotFound(word.to_owned());
        if let Ok(number) = word.parse() {
            return if self.path(number).exists() { Ok(number) } else { Err(not_found()) };
        }
        let id = Uuid::try_parse(word).map_err(|_| not_found())?;
        let listed = self.list()?;
        listed.iter().find(|listed| listed.id == id).map(|listed| listed.number).ok_or_else(not_found)
    }

    /// Returns the numbers of all sessions, oldest first.
    pub fn numbers(&self) -> Result<Vec<u32>, JournalError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(JournalError::Io { path: self.folder.clone(), source }),
        };
        let number = |name: &str| name.strip_suffix(".jsonl")?.parse().ok();
        let mut numbers: Vec<u32> = entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn last_number(&self) -> Option<u32> {
        fs::read_to_string(self.folder.join(LAST_NUMBER_FILE)).ok()?.trim().parse().ok()
    }

    fn remember_number(&self, number: u32) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        writeln!(file, "{}", Some(number).max(self.last_number()).unwrap_or(number))?;
        file.persist(self.folder.join(LAST_NUMBER_FILE))?;
        Ok(())
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.jsonl"))
    }
}

impl SessionClient {
    /// Its name among the clients that share the server and must not see each other's tasks: those with keys, and the
    /// members of a Slack workspace. A client without a key is of our own user.
    fn name(&self) -> Option<&str> {
        self.key.as_deref().or_else(|| self.id.starts_with("slack-").then_some("slack"))
    }
}

impl JournalHeader {
    /// Returns the label that the session's tasks carry.
    pub fn label(&self) -> String {
        let client = self.client.as_ref();
        let name = client.map(|client| client.id.as_str());
        session_label(client.and_then(SessionClient::name), name, &self.id.simple().to_string())
    }

    fn new() -> Self {
        Self { v: VERSION, id: Uuid::now_v7(), began_at: protocol::clock::now(), folder: None, client: None }
    }
}

impl Journal {
    /// A journal that keeps nothing, for a session that ends with its one question, which may have begun in an earlier one.
    pub fn in_memory(client: Option<SessionClient>, question: Uuid) -> Self {
        let header = JournalHeader { client, ..JournalHeader::new() };
        Self { number: 0, header, file: None, copy: None, only_question: Some(question) }
    }

    /// Names a question among all of its user; `asked` is how many there are up to it.
    pub fn question(&self, asked: usize) -> String {
        self.only_question.map_or_else(|| format!("{}-{asked}", self.header.id), |question| question.to_string())
    }

    /// The same, which also adds its new entries to `copy`.
    #[must_use]
    pub fn copied_to(self, copy: EntriesCopy) -> Self {
        Self { copy: Some(copy), ..self }
    }

    /// Returns the session label that the session's tasks carry.
    pub fn label(&self) -> String {
        self.header.label()
    }

    /// Appends an entry. The entry is durable when this returns.
    pub fn append(&mut self, entry: &JournalEntry) -> io::Result<()> {
        if let Some(copy) = &self.copy {
            copy.lock().unwrap_or_else(PoisonError::into_inner).push(entry.clone());
        }
        if self.file.is_none() {
            return Ok(());
        }
        let line = serde_json::to_string(entry).map_err(io::Error::other)?;
        self.write(&line)
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    }
}

fn lock(file: File, number: u32, path: &Path) -> Result<Flock<File>, JournalError> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => JournalError::InUse(number),
        errno => JournalError::Io { path: path.to_owned(), source: errno.into() },
    })
}

/// Reads the header, the entries, and the length in bytes of the complete lines.
fn read(file: &mut File, path: &Path) -> Result<(JournalHeader, Vec<JournalEntry>, u64), JournalError> {
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|source| JournalError::Io { path: path.to_owned(), source })?;
    let malformed = |line: usize, error: serde_json::Error| JournalError::Malformed {
        path: path.to_owned(),
        reason: format!("line {}: {error}", line + 1),
    };
    let complete = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..complete].lines().enumerate();
    let (_, first) = lines
        .next()
        .ok_or_else(|| JournalError::Malformed { path: path.to_owned(), reason: "it has no header line".to_owned() })?;
    let header: JournalHeader = serde_json::from_str(first).map_err(|error| malformed(0, error))?;
    if header.v != VERSION {
        let reason = format!("its version is {}, but this program supports version {VERSION}", header.v);
        return Err(JournalError::Malformed { path: path.to_owned(), reason });
    }
    let entries = lines.map(|(line, text)| serde_json::from_str(text).map_err(|error| malformed(line, error)));
    Ok((header, entries.collect::<Result<_, _>>()?, complete as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> JournalEntry {
        JournalEntry::asked(text.to_owned())
    }

    #[test]
    fn a_resumed_session_has_its_entries_and_drops_an_incomplete_line() {
        let state = tempfile::tempdir().expect("a folder");
        let sessions = SessionStore::in_state(state.path());
        let mut journal = sessions.create(None, None).expect("created");
        assert_eq!(journal.number, 101);
        journal.append(&asked("年度报告?")).expect("written");
        assert!(matches!(sessions.resume("101"), Err(JournalError::InUse(101))));
        let id = journal.header.id;
        drop(journal);
        let path = state.path().join("sessions/101.jsonl");
        let mut text = fs::read_to_string(&path).expect("read");
        text.push_str("{\"asked\":{\"te");
        fs::write(&path, text).expect("torn");
        let (mut journal, entries) = sessions.resume(&id.to_string()).expect("resumed");
        assert_eq!(entries, [asked("年度报告?")]);
        journal.append(&asked("and?")).expect("written");
        drop(journal);
        assert_eq!(sessions.resume("101").expect("resumed").1, [asked("年度报告?"), asked("and?")]);
    }

    #[test]
    fn sessions_are_numbered_listed_and_deleted() {
        let state = tempfile::tempdir().expect("a folder");
        let sessions = SessionStore::in_state(state.path());
        sessions.create(None, None).expect("created").append(&asked("one")).expect("written");
        sessions.create(None, None).expect("created");
        sessions.create(Some("/elsewhere".into()), None).expect("created");
        assert_eq!(sessions.newest_in(None).expect("read"), Some(102));
        assert_eq!(sessions.newest_in(Some(Path::new("/elsewhere"))).expect("read"), Some(103));
        assert_eq!(sessions.newest_in(Some(Path::new("/nowhere"))).expect("read"), None);
        sessions.delete("103").expect("deleted");
        let listed = sessions.list().expect("listed");
        let short: Vec<_> = listed.iter().map(|listed| (listed.number, listed.question.as_deref())).collect();
        assert_eq!(short, [(101, Some("one")), (102, None)]);
        sessions.delete("101").expect("deleted");
        assert!(matches!(sessions.resume("101"), Err(JournalError::NotFound(_))));
        assert_eq!(
            sessions.create(None, None).expect("created").number,
            104,
            "the number of a deleted session is not reused"
        );
    }
}
