//! Conversations of clients that name none: told apart by the messages that the client sends along.
//!
//! Each request of a chat program has the whole conversation so far. What was said before the question is the mark by
//! which its session is found again; each session has the mark of its last question, and of the answer as the client got
//! it. A conversation that is not known, as one that began elsewhere or whose earlier message was edited, gets a session of
//! its own, which begins with the messages of the client.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::limits::{ConcurrencyLimit, ConcurrencyPermit};

/// How many conversations without a name one client has. The session of the oldest is deleted then.
const MAX_OF_CLIENT: usize = 256;

/// How many lines that do not count any more the file has before it is written anew.
const MAX_LINES: usize = 4096;

/// What is equal for conversations with the same messages so far, whatever their white space.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct HistoryMark(String);

impl HistoryMark {
    /// The mark with one more message.
    pub(crate) fn then(&self, is_user: bool, text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(format!("{}\n{is_user}\n", self.0));
        for word in text.split_whitespace() {
            hash.update(word);
            hash.update(" ");
        }
        Self(digest::hex(&hash.finalize()))
    }
}

/// The messages of a request: what was said, by the user or not, the question last.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentHistory<'a> {
    pub(crate) messages: Vec<(bool, &'a str)>,
    /// The client says that it has asked this before.
    pub(crate) is_retry: bool,
}

impl SentHistory<'_> {
    fn mark(messages: &[(bool, &str)]) -> HistoryMark {
        messages.iter().fold(HistoryMark::default(), |mark, (is_user, text)| mark.then(*is_user, text))
    }

    fn questions(messages: &[(bool, &str)]) -> HistoryMark {
        let questions: Vec<_> = messages.iter().filter(|(is_user, _)| *is_user).copied().collect();
        Self::mark(&questions)
    }
}

/// One conversation, as a line of the file; of several for a session, the last counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    /// What the ids of the client's sessions begin with.
    client: String,
    /// The id of its session.
    session: String,
    /// With the last question.
    asked: HistoryMark,
    /// With the answer to it, once it is complete.
    answered: Option<HistoryMark>,
    /// The client has got that answer.
    is_delivered: bool,
    /// The questions alone: a client whose answer broke off has another text than we.
    questions: HistoryMark,
}

/// Where a request belongs.
#[derive(Debug, Clone)]
pub(crate) struct FoundConversation {
    pub(crate) session: String,
    /// There is no such session yet.
    pub(crate) is_new: bool,
    /// It has to begin with what the client sent before its question.
    pub(crate) is_unknown: bool,
    /// With the question.
    pub(crate) asked: HistoryMark,
    /// As long as it exists, the request waits for its answer.
    _awaiting: Arc<ConcurrencyPermit<String>>,
}

/// All conversations without a name, the oldest first.
#[derive(Debug)]
pub(crate) struct Conversations {
    path: PathBuf,
    known: Mutex<BTreeMap<u64, Conversation>>,
    /// The sessions in which requests wait for their answers.
    awaited: ConcurrencyLimit<String>,
    /// How many lines the file has.
    lines: AtomicUsize,
}

impl Conversations {
    /// Reads the file at `path`, if there is one.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let mut newest: Vec<Conversation> = Vec::new();
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            // The last line may be half of one.
            let Ok(read) = serde_json::from_str::<Conversation>(line) else { continue };
            newest.retain(|known| known.session != read.session);
            newest.push(read);
        }
        let known: BTreeMap<_, _> = (0..).zip(newest).collect();
        let (lines, awaited) = (known.len().into(), ConcurrencyLimit::new(usize::MAX));
        let conversations = Self { path, known: Mutex::new(known), awaited, lines };
        conversations.write_all(&conversations.lock())?;
        Ok(conversations)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Conversation>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a request of the client; `exists` says whether there still is a session of that id. If another
    /// request waits for an answer there, the same question is one of another conversation, unless the client says that
    /// it asks again.
    pub(crate) fn find(
        &self,
        client: &str,
        sent: &SentHistory<'_>,
        exists: impl Fn(&str) -> bool,
    ) -> FoundConversation {
        let before = &sent.messages[..sent.messages.len().saturating_sub(1)];
        let (mark, asked) = (SentHistory::mark(before), SentHistory::mark(&sent.messages));
        let questions = SentHistory::questions(before);
        let mut known = self.lock();
        let of_client = || known.iter().rev().filter(|(_, one)| one.client == client && exists(&one.session));
        let goes_on = || of_client().find(|(_, one)| one.answered.as_ref() == Some(&mark));
        let is_open = |one: &Conversation| !one.is_delivered && (sent.is_retry || !self.awaited.is_used(&one.session));
        let is_repeated = || of_client().find(|(_, one)| one.asked == asked && is_open(one));
        let broke_off = || of_client().find(|(_, one)| one.questions == questions && is_open(one));
        let found = if before.is_empty() { is_repeated() } else { goes_on().or_else(is_repeated).or_else(broke_off) };
        let found = found.map(|(number, one)| (*number, one.session.clone()));
        let is_new = found.is_none();
        let session = match found {
            Some((number, session)) => {
                known.remove(&number);
                session
            }
            None => new_session(client),
        };
        let conversation = Conversation {
            client: client.to_owned(),
            session: session.clone(),
            asked: asked.clone(),
            answered: None,
            is_delivered: false,
            questions: SentHistory::questions(&sent.messages),
        };
        self.add(&mut known, conversation);
        let awaiting = Arc::new(self.awaited.acquire(&session));
        FoundConversation { session, is_new, is_unknown: is_new && !before.is_empty(), asked, _awaiting: awaiting }
    }

    /// Records what the client gets as the answer to its question.
    pub(crate) fn answered(&self, session: &str, asked: &HistoryMark, answer: &str) {
        self.change(session, asked, |one| one.answered = Some(asked.then(false, answer)));
    }

    /// Records that the client has got it.
    pub(crate) fn delivered(&self, session: &str, asked: &HistoryMark) {
        self.change(session, asked, |one| one.is_delivered = true);
    }

    fn change(&self, session: &str, asked: &HistoryMark, change: impl FnOnce(&mut Conversation)) {
        let mut known = self.lock();
        let found = known.iter().find(|(_, one)| one.session == session && one.asked == *asked);
        let Some(number) = found.map(|(number, _)| *number) else { return };
        let Some(mut conversation) = known.remove(&number) else { return };
        change(&mut conversation);
        self.add(&mut known, conversation);
    }

    /// Forgets the oldest conversation of a client that has more than it may have, or than `most` if that is less, and
    /// returns the id of its session.
    pub(crate) fn forget_surplus(&self, client: &str, most: usize) -> Option<String> {
        let mut known = self.lock();
        let of_client = known.iter().filter(|(_, one)| one.client == client);
        if of_client.clone().count() <= most.min(MAX_OF_CLIENT) {
            return None;
        }
        let oldest = of_client.map(|(number, _)| *number).next()?;
        known.remove(&oldest).map(|one| one.session)
    }

    fn add(&self, known: &mut BTreeMap<u64, Conversation>, conversation: Conversation) {
        let number = known.last_key_value().map_or(0, |(last, _)| last + 1);
        let mut written = self.write(&conversation);
        known.insert(number, conversation);
        let lines = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        if lines > MAX_LINES + known.len() {
            written = self.write_all(known);
            self.lines.store(known.len(), Ordering::Relaxed);
        }
        if let Err(error) = written {
            tracing::warn!(%error, "failed to record a conversation; after a restart it begins anew");
        }
    }

    fn write(&self, conversation: &Conversation) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        file.write_all(format!("{}\n", serde_json::to_string(conversation)?).as_bytes())
    }

    /// Writes the file anew, without lines that do not count any more.
    fn write_all(&self, known: &BTreeMap<u64, Conversation>) -> io::Result<()> {
        let folder = self.path.parent().expect("it is a file in a folder");
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        for conversation in known.values() {
            writeln!(file, "{}", serde_json::to_string(conversation)?)?;
        }
        file.persist(&self.path).map(drop).map_err(|error| error.error)
    }
}

fn new_session(client: &str) -> String {
    let id = Uuid::now_v7().simple().to_string();
    format!("{client}@chat-{}", &id[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table {
        conversations: Conversations,
        _folder: tempfile::TempDir,
    }

    fn table() -> Table {
        let folder = tempfile::tempdir().expect("a folder");
        Table {
            conversations: Conversations::open(folder.path().join("conversations.jsonl")).expect("opened"),
            _folder: folder,
        }
    }

    impl Table {
        fn find(&self, client: &str, texts: &[&str]) -> FoundConversation {
            let messages = texts.iter().enumerate().map(|(number, text)| (number % 2 == 0, *text)).collect();
            let sent = SentHistory { messages, is_retry: false };
            self.conversations.find(client, &sent, |_| true)
        }

        /// Asks, and gets this answer.
        fn ask(&self, texts: &[&str], answer: &str) -> FoundConversation {
            let found = self.find("a", texts);
            self.conversations.answered(&found.session, &found.asked, answer);
            self.conversations.delivered(&found.session, &found.asked);
            found
        }
    }

    #[test]
    fn a_conversation_goes_on_where_its_history_was_answered() {
        let table = table();
        let first = table.ask(&["hi"], "Hello.");
        let second = table.ask(&["hi"], "Good day.");
        assert_ne!(first.session, second.session, "the same beginning is another conversation");
        assert!(!first.is_unknown && !second.is_unknown, "they have no history");
        assert_eq!(table.ask(&["hi", "Hello.", "more"], "So.").session, first.session);
        assert_eq!(table.ask(&["hi", "Good  day.\n", "more"], "So.").session, second.session, "white space is nothing");
        let edited = table.ask(&["hi", "Hello.", "other"], "So.");
        assert!(edited.is_unknown && edited.session != first.session, "another branch is its own");
        assert_eq!(table.ask(&["hi", "Hello.", "other", "So.", "x"], "y").session, edited.session);
        assert_ne!(table.find("b", &["hi", "Hello.", "more"]).session, first.session, "of another client");
    }

    #[test]
    fn a_repeated_question_and_one_after_a_broken_answer_stay() {
        let table = table();
        // Each request is over at once, so that none waits for its answer.
        let session = table.find("a", &["hi"]).session;
        assert_eq!(table.find("a", &["hi"]).session, session, "it has no answer yet");
        assert_eq!(table.find("a", &["hi", "Hel", "what?"]).session, session, "its answer broke off");
        assert_eq!(table.find("a", &["hi", "Hel", "what?"]).session, session);
        let mut same = SentHistory { messages: vec![(true, "what?")], is_retry: false };
        let first = table.find("a", &["what?"]);
        let other = table.conversations.find("a", &same, |_| true);
        assert_ne!(other.session, first.session, "another client waits for that answer");
        same.is_retry = true;
        assert_eq!(table.conversations.find("a", &same, |_| true).session, other.session);
        table.conversations.answered(&other.session, &other.asked, "So.");
        let session = other.session.clone();
        drop((first, other));
        assert_eq!(table.find("a", &["what?"]).session, session, "the answer did not arrive");
        let answered = table.ask(&["ho"], "Hello.");
        assert_ne!(table.find("a", &["ho", "Something else.", "x"]).session, answered.session, "it is not its answer");
    }

    #[test]
    fn conversations_are_known_after_a_restart_and_the_oldest_are_forgotten() {
        let table = table();
        let first = table.ask(&["hi"], "Hello.");
        let path = table.conversations.path.clone();
        let again = Conversations::open(path).expect("opened");
        let messages = vec![(true, "hi"), (false, "Hello."), (true, "x")];
        let more = SentHistory { messages, is_retry: false };
        assert_eq!(again.find("a", &more, |_| true).session, first.session);
        assert_ne!(again.find("a", &more, |_| false).session, first.session, "its session was deleted");
        let second = table.ask(&["ho"], "Hello.");
        assert_eq!(table.conversations.forget_surplus("a", 2), None);
        assert_eq!(table.conversations.forget_surplus("a", 1), Some(first.session));
        assert_eq!(table.conversations.forget_surplus("a", 0), Some(second.session));
    }
}
