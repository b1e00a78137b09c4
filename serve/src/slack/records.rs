//! What must survive a restart: which events came, which questions wait for their answer, and what was posted for them.
//!
//! A file with one line of JSON per record, each durable before it counts. It is written anew when it has grown, with
//! what is still needed. It holds no conversation: a question is forgotten when its answer stands in Slack.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use protocol::paths::create_private;
use protocol::task::TaskId;
use serde::{Deserialize, Serialize};

use super::envelope::{SlackQuestion, SlackThread};

const VERSION: u32 = 1;
/// Slack repeats an event for about an hour; this is far more than one conversation has in that time.
const MAX_KEYS: usize = 8192;
/// The threads in which we take part; in an older one, the app is mentioned again.
const MAX_THREADS: usize = 4096;
/// The messages with a button that can still be updated.
const MAX_WAITING: usize = 512;
/// The file is written anew when it has this many lines more than needed.
const MAX_SPARE_LINES: usize = 4096;
const FILE: &str = "deliveries.jsonl";

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum SlackRecord {
    Version(u32),
    /// An event came that is not to be handled again.
    Seen {
        keys: Vec<String>,
    },
    /// A question came, and its event.
    Asked {
        keys: Vec<String>,
        question: SlackQuestion,
    },
    /// These messages, in this order, are the end of the answer so far.
    Posted {
        question: String,
        messages: Vec<String>,
    },
    /// The answer is complete in Slack, or can never be.
    Answered {
        question: String,
    },
    /// We take part in this thread.
    Thread(SlackThread),
    /// A task waits, and this message says so.
    #[serde(rename = "gate")]
    Waiting(WaitingRecord),
    /// The message needs no further update.
    #[serde(rename = "gate_closed")]
    Settled {
        task: TaskId,
    },
}

/// A message about a task that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitingRecord {
    pub(crate) task: TaskId,
    pub(crate) thread: SlackThread,
    pub(crate) message: String,
    /// What waits, as it stands in the message.
    pub(crate) text: String,
}

/// A question without its whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenQuestion {
    pub(crate) question: SlackQuestion,
    /// The messages of its answer that can still be edited.
    pub(crate) messages: Vec<String>,
}

/// The file and what it says.
#[derive(Debug)]
pub(crate) struct SlackRecords {
    path: PathBuf,
    file: File,
    lines: usize,
    keys: HashSet<String>,
    /// The same, the oldest first.
    key_order: VecDeque<String>,
    threads: HashSet<SlackThread>,
    thread_order: VecDeque<SlackThread>,
    questions: Vec<OpenQuestion>,
    waiting: HashMap<TaskId, WaitingRecord>,
    waiting_order: VecDeque<TaskId>,
}

impl SlackRecords {
    /// Loads what is in `folder`, which is created if it does not exist.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        create_private(folder)?;
        let path = folder.join(FILE);
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(&path)?;
        let mut records = Self {
            path,
            file,
            lines: 0,
            keys: HashSet::new(),
            key_order: VecDeque::new(),
            threads: HashSet::new(),
            thread_order: VecDeque::new(),
            questions: Vec::new(),
            waiting: HashMap::new(),
            waiting_order: VecDeque::new(),
        };
        let mut text = Vec::new();
        records.file.read_to_end(&mut text)?;
        for line in String::from_utf8_lossy(&text).lines().filter(|line| !line.is_empty()) {
            match serde_json::from_str(line) {
                Ok(SlackRecord::Version(version)) if version != VERSION => {
                    let reason = format!("`{}` has version {version}, not {VERSION}", records.path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
                Ok(record) => records.apply(record),
                // A crash cut the line off while it was written: it never counted.
                Err(error) => tracing::warn!("a line of `{}` is skipped: {error}", records.path.display()),
            }
        }
        records.rewrite()?;
        Ok(records)
    }

    pub(crate) fn open_questions(&self) -> &[OpenQuestion] {
        &self.questions
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &WaitingRecord> {
        self.waiting.values()
    }

    pub(crate) fn takes_part_in(&self, thread: &SlackThread) -> bool {
        self.threads.contains(thread)
    }

    /// Whether an event with one of these keys came before.
    pub(crate) fn has_seen(&self, keys: &[String]) -> bool {
        keys.iter().any(|key| self.keys.contains(key))
    }

    pub(crate) fn seen(&mut self, keys: Vec<String>) -> io::Result<()> {
        self.append(SlackRecord::Seen { keys })
    }

    pub(crate) fn asked(&mut self, keys: Vec<String>, question: SlackQuestion) -> io::Result<()> {
        self.append(SlackRecord::Asked { keys, question })
    }

    pub(crate) fn posted(&mut self, question: String, messages: Vec<String>) -> io::Result<()> {
        self.append(SlackRecord::Posted { question, messages })
    }

    pub(crate) fn answered(&mut self, question: String) -> io::Result<()> {
        self.append(SlackRecord::Answered { question })
    }

    pub(crate) fn waits(&mut self, record: WaitingRecord) -> io::Result<()> {
        self.append(SlackRecord::Waiting(record))
    }

    pub(crate) fn settled(&mut self, task: TaskId) -> io::Result<()> {
        self.append(SlackRecord::Settled { task })
    }

    fn append(&mut self, record: SlackRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.lines += 1;
        self.apply(record);
        if self.lines > self.needed() + MAX_SPARE_LINES { self.rewrite() } else { Ok(()) }
    }

    fn apply(&mut self, record: SlackRecord) {
        match record {
            SlackRecord::Version(_) => {}
            SlackRecord::Seen { keys } => self.add_keys(keys),
            SlackRecord::Asked { keys, question } => {
                self.add_keys(keys);
                self.add_thread(question.thread.clone());
                self.questions.push(OpenQuestion { question, messages: Vec::new() });
            }
            SlackRecord::Posted { question, messages } => {
                if let Some(open) = self.questions.iter_mut().find(|open| open.question.key() == question) {
                    open.messages = messages;
                }
            }
            SlackRecord::Answered { question } => self.questions.retain(|open| open.question.key() != question),
            SlackRecord::Thread(thread) => self.add_thread(thread),
            SlackRecord::Waiting(record) => {
                let task = record.task;
                if self.waiting.insert(task, record).is_none() {
                    self.waiting_order.push_back(task);
                }
                if self.waiting_order.len() > MAX_WAITING
                    && let Some(oldest) = self.waiting_order.pop_front()
                {
                    self.waiting.remove(&oldest);
                }
            }
            SlackRecord::Settled { task } => {
                self.waiting.remove(&task);
                self.waiting_order.retain(|other| *other != task);
            }
        }
    }

    fn add_keys(&mut self, keys: Vec<String>) {
        for key in keys {
            if self.keys.insert(key.clone()) {
                self.key_order.push_back(key);
            }
        }
        while self.key_order.len() > MAX_KEYS {
            if let Some(oldest) = self.key_order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }

    fn add_thread(&mut self, thread: SlackThread) {
        if !self.threads.insert(thread.clone()) {
            self.thread_order.retain(|other| *other != thread);
        }
        self.thread_order.push_back(thread);
        if self.thread_order.len() > MAX_THREADS
            && let Some(oldest) = self.thread_order.pop_front()
        {
            self.threads.remove(&oldest);
        }
    }

    /// How many lines say everything.
    fn needed(&self) -> usize {
        2 + self.threads.len() + 2 * self.questions.len() + self.waiting.len()
    }

    /// Replaces the file with one that has only what is needed.
    fn rewrite(&mut self) -> io::Result<()> {
        let keys = self.key_order.iter().cloned().collect();
        let mut records = vec![SlackRecord::Version(VERSION), SlackRecord::Seen { keys }];
        records.extend(self.thread_order.iter().cloned().map(SlackRecord::Thread));
        for open in &self.questions {
            records.push(SlackRecord::Asked { keys: Vec::new(), question: open.question.clone() });
            records.push(SlackRecord::Posted { question: open.question.key(), messages: open.messages.clone() });
        }
        records.extend(
            self.waiting_order.iter().filter_map(|task| self.waiting.get(task)).cloned().map(SlackRecord::Waiting),
        );
        let temporary = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut text = Vec::new();
        for record in &records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        self.lines = records.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> SlackQuestion {
        let thread = SlackThread { channel: "C1".to_owned(), ts: format!("{number}.0") };
        SlackQuestion { thread, ts: format!("{number}.0"), user: "U1".to_owned(), text: "how many?".to_owned() }
    }

    fn key(number: usize) -> Vec<String> {
        vec![format!("event {number}")]
    }

    #[test]
    fn what_was_recorded_is_there_after_a_restart_and_what_is_done_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut records = SlackRecords::open(folder.path()).expect("opened");
        records.asked(key(1), question(1)).expect("written");
        records.asked(key(2), question(2)).expect("written");
        records.posted(question(1).key(), vec!["1.1".to_owned(), "1.2".to_owned()]).expect("written");
        records.answered(question(2).key()).expect("written");
        records.seen(key(3)).expect("written");
        let (thread, message) = (question(1).thread, "1.3".to_owned());
        let record = WaitingRecord { task: TaskId::new(), thread, message, text: "x".to_owned() };
        records.waits(record.clone()).expect("written");
        records.waits(WaitingRecord { task: TaskId::new(), ..record.clone() }).expect("written");
        let other = records.waiting().find(|other| **other != record).expect("the other").task;
        records.settled(other).expect("written");
        drop(records);
        // A crash in the middle of a line.
        let path = folder.path().join(FILE);
        OpenOptions::new().append(true).open(&path).expect("there").write_all(b"{\"seen\":{\"ke").expect("written");

        for _ in 0..2 {
            let records = SlackRecords::open(folder.path()).expect("opened");
            let messages = vec!["1.1".to_owned(), "1.2".to_owned()];
            assert_eq!(records.open_questions(), [OpenQuestion { question: question(1), messages }]);
            assert!((1..=3).all(|number| records.has_seen(&key(number))) && !records.has_seen(&key(4)));
            assert!(records.takes_part_in(&question(2).thread) && !records.takes_part_in(&question(3).thread));
            assert_eq!(records.waiting().collect::<Vec<_>>(), [&record]);
        }
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).expect("there"));
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_file_and_the_memory_stay_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut records = SlackRecords::open(folder.path()).expect("opened");
        for number in 0..MAX_KEYS + 100 {
            records.apply(SlackRecord::Asked { keys: key(number), question: question(number) });
            records.apply(SlackRecord::Answered { question: question(number).key() });
        }
        assert_eq!(records.keys.len(), MAX_KEYS);
        assert_eq!(records.threads.len(), MAX_THREADS);
        assert!(!records.has_seen(&key(99)) && records.has_seen(&key(100)));
        records.lines = records.needed() + MAX_SPARE_LINES;
        records.seen(key(1)).expect("written");
        assert_eq!(records.lines, 2 + MAX_THREADS);
        let lines = fs::read_to_string(folder.path().join(FILE)).expect("there").lines().count();
        assert_eq!(lines, records.lines);
    }

    #[test]
    fn a_file_of_another_version_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), "{\"version\":9}\n{\"later\":1}\n").expect("written");
        let error = SlackRecords::open(folder.path()).expect_err("refused");
        assert!(error.to_string().contains("version 9"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).expect("there"), "{\"version\":9}\n{\"later\":1}\n");
    }
}
