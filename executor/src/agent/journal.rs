//! The journal of a session: every entry as a line of JSON, in a file of its own.
//!
//! An entry is durable before what follows from it is done. A line that was torn by a crash is dropped:
//! nothing had followed from it. One process at a time has a session; the kernel's lock tells.
//!
//! Sessions lie in the state folder, which nobody else may enter, under short numbers that people can type.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use protocol::paths::{Paths, create_private};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::conversation::JournalEntry;

/// The version of this format.
const VERSION: u32 = 1;
/// The number of the first session.
const FIRST: u32 = 101;

/// The sessions of one user.
#[derive(Debug, Clone)]
pub struct SessionStore {
    folder: PathBuf,
}

/// What the tasks of a session carry as theirs.
pub fn label(id: Uuid) -> String {
    format!("agent-{}", id.simple())
}

/// What stands in the first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalHead {
    pub v: u32,
    pub id: Uuid,
    pub began_at: Timestamp,
    /// The folder in which it began.
    #[serde(default)]
    pub folder: Option<PathBuf>,
}

/// A session that this process has.
#[derive(Debug)]
pub struct Journal {
    pub number: u32,
    pub head: JournalHead,
    file: Flock<File>,
}

/// A session as it is listed.
#[derive(Debug, Serialize)]
pub struct SessionSummary {
    pub number: u32,
    pub id: Uuid,
    pub began_at: Timestamp,
    /// The first question.
    pub question: Option<String>,
    pub entries: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("there is no session `{0}`")]
    None(String),
    #[error("session {0} is in use by another process")]
    InUse(u32),
    #[error("the journal `{path}` cannot be used")]
    Io { path: PathBuf, source: io::Error },
    #[error("the journal `{path}` cannot be understood: {reason}")]
    Malformed { path: PathBuf, reason: String },
}

impl SessionStore {
    pub fn in_state(state: &Path) -> Self {
        Self { folder: state.join("sessions") }
    }

    /// Those of agents that were called by agents: nobody goes on with one by accident.
    pub fn of_delegates(paths: &Paths) -> Self {
        Self { folder: paths.delegates() }
    }

    /// A new session, under the next free number.
    pub fn begin(&self, folder: Option<PathBuf>) -> Result<Journal, JournalError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::Io { path, source }
        };
        create_private(&self.folder).map_err(io(&self.folder))?;
        let mut number = self.numbers()?.last().map_or(FIRST, |last| last + 1);
        loop {
            let path = self.path(number);
            match OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    let head = JournalHead { v: VERSION, id: Uuid::now_v7(), began_at: protocol::clock::now(), folder };
                    let mut journal = Journal { number, head, file: lock(file, number, &path)? };
                    let head = serde_json::to_string(&journal.head).expect("a head is plain data");
                    journal.write(&head).map_err(io(&path))?;
                    return Ok(journal);
                }
                // Another session began at this moment.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(JournalError::Io { path, source }),
            }
        }
    }

    /// The session of this number or id, and what was said in it.
    pub fn resume(&self, word: &str) -> Result<(Journal, Vec<JournalEntry>), JournalError> {
        let number = self.find(word)?;
        let path = self.path(number);
        let opened = OpenOptions::new().append(true).read(true).open(&path);
        let file = opened.map_err(|source| JournalError::Io { path: path.clone(), source })?;
        let mut file = lock(file, number, &path)?;
        let (head, entries, whole) = read(&mut file, &path)?;
        // What comes next must begin on a line of its own.
        file.set_len(whole).map_err(|source| JournalError::Io { path, source })?;
        Ok((Journal { number, head, file }, entries))
    }

    /// The newest session that began in this folder, if any.
    pub fn last_in(&self, folder: Option<&Path>) -> Result<Option<u32>, JournalError> {
        self.last_before(u32::MAX, folder)
    }

    /// The newest one of the folder before that number.
    pub fn last_before(&self, before: u32, folder: Option<&Path>) -> Result<Option<u32>, JournalError> {
        let is_of = |number: &u32| {
            let file = File::open(self.path(*number)).ok()?;
            let mut first = String::new();
            io::BufReader::new(file).read_line(&mut first).ok()?;
            let head: JournalHead = serde_json::from_str(&first).ok()?;
            Some(head.folder.as_deref() == folder)
        };
        Ok(self.numbers()?.into_iter().rev().find(|number| *number < before && is_of(number) == Some(true)))
    }

    /// Every session, the oldest first.
    pub fn list(&self) -> Result<Vec<SessionSummary>, JournalError> {
        let mut listed = Vec::new();
        for number in self.numbers()? {
            let path = self.path(number);
            let Ok(mut file) = File::open(&path) else { continue };
            let (head, entries, _) = read(&mut file, &path)?;
            let question = entries.iter().find_map(|entry| match entry {
                JournalEntry::Asked { text } => Some(text.clone()),
                _ => None,
            });
            listed.push(SessionSummary {
                number,
                id: head.id,
                began_at: head.began_at,
                question,
                entries: entries.len(),
            });
        }
        Ok(listed)
    }

    /// Removes a session that nobody has; its id.
    pub fn delete(&self, word: &str) -> Result<Uuid, JournalError> {
        let (journal, _) = self.resume(word)?;
        let path = self.path(journal.number);
        fs::remove_file(&path).map_err(|source| JournalError::Io { path, source })?;
        Ok(journal.head.id)
    }

    fn find(&self, word: &str) -> Result<u32, JournalError> {
        let none = || JournalError::None(word.to_owned());
        if let Ok(number) = word.parse() {
            return if self.path(number).exists() { Ok(number) } else { Err(none()) };
        }
        let id = Uuid::try_parse(word).map_err(|_| none())?;
        let listed = self.list()?;
        listed.iter().find(|listed| listed.id == id).map(|listed| listed.number).ok_or_else(none)
    }

    /// The numbers that are taken, the oldest first.
    pub fn numbers(&self) -> Result<Vec<u32>, JournalError> {
        let found = match fs::read_dir(&self.folder) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(JournalError::Io { path: self.folder.clone(), source }),
        };
        let number = |name: &str| name.strip_suffix(".jsonl")?.parse().ok();
        let mut numbers: Vec<u32> = found.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.jsonl"))
    }
}

impl Journal {
    /// What the session's tasks carry as their session.
    pub fn label(&self) -> String {
        label(self.head.id)
    }

    /// Adds an entry; durable when this returns.
    pub fn add(&mut self, entry: &JournalEntry) -> io::Result<()> {
        let line = serde_json::to_string(entry).map_err(io::Error::other)?;
        self.write(&line)
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.file.sync_data()
    }
}

fn lock(file: File, number: u32, path: &Path) -> Result<Flock<File>, JournalError> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => JournalError::InUse(number),
        errno => JournalError::Io { path: path.to_owned(), source: errno.into() },
    })
}

/// The head, the entries, and how many bytes of the file are whole lines.
fn read(file: &mut File, path: &Path) -> Result<(JournalHead, Vec<JournalEntry>, u64), JournalError> {
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|source| JournalError::Io { path: path.to_owned(), source })?;
    let malformed = |line: usize, error: serde_json::Error| JournalError::Malformed {
        path: path.to_owned(),
        reason: format!("line {}: {error}", line + 1),
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..whole].lines().enumerate();
    let (_, first) = lines
        .next()
        .ok_or_else(|| JournalError::Malformed { path: path.to_owned(), reason: "it has no head".to_owned() })?;
    let head: JournalHead = serde_json::from_str(first).map_err(|error| malformed(0, error))?;
    if head.v != VERSION {
        let reason = format!("it is of version {}, and this program knows {VERSION}", head.v);
        return Err(JournalError::Malformed { path: path.to_owned(), reason });
    }
    let entries = lines.map(|(line, text)| serde_json::from_str(text).map_err(|error| malformed(line, error)));
    Ok((head, entries.collect::<Result<_, _>>()?, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> JournalEntry {
        JournalEntry::Asked { text: text.to_owned() }
    }

    #[test]
    fn what_was_said_is_there_again_and_a_torn_line_is_dropped() {
        let state = tempfile::tempdir().expect("a folder");
        let sessions = SessionStore::in_state(state.path());
        let mut journal = sessions.begin(None).expect("begun");
        assert_eq!(journal.number, 101);
        journal.add(&asked("年度报告?")).expect("written");
        assert!(matches!(sessions.resume("101"), Err(JournalError::InUse(101))));
        let id = journal.head.id;
        drop(journal);
        let path = state.path().join("sessions/101.jsonl");
        let mut text = fs::read_to_string(&path).expect("read");
        text.push_str("{\"asked\":{\"te");
        fs::write(&path, text).expect("torn");
        let (mut journal, entries) = sessions.resume(&id.to_string()).expect("resumed");
        assert_eq!(entries, [asked("年度报告?")]);
        journal.add(&asked("and?")).expect("written");
        drop(journal);
        assert_eq!(sessions.resume("101").expect("resumed").1, [asked("年度报告?"), asked("and?")]);
    }

    #[test]
    fn sessions_have_numbers_and_are_listed_and_deleted() {
        let state = tempfile::tempdir().expect("a folder");
        let sessions = SessionStore::in_state(state.path());
        sessions.begin(None).expect("begun").add(&asked("one")).expect("written");
        sessions.begin(None).expect("begun");
        sessions.begin(Some("/elsewhere".into())).expect("begun");
        assert_eq!(sessions.last_in(None).expect("read"), Some(102));
        assert_eq!(sessions.last_in(Some(Path::new("/elsewhere"))).expect("read"), Some(103));
        assert_eq!(sessions.last_in(Some(Path::new("/nowhere"))).expect("read"), None);
        sessions.delete("103").expect("deleted");
        let listed = sessions.list().expect("listed");
        let short: Vec<_> = listed.iter().map(|listed| (listed.number, listed.question.as_deref())).collect();
        assert_eq!(short, [(101, Some("one")), (102, None)]);
        sessions.delete("101").expect("deleted");
        assert!(matches!(sessions.resume("101"), Err(JournalError::None(_))));
        assert_eq!(sessions.begin(None).expect("begun").number, 103);
    }
}
