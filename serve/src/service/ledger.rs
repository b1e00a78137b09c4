//! The questions of each session that wait for their turn, or whose client does not have the answer yet, in files: after
//! a restart they are asked, and each client finds its answer.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::paths::create_private;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use uuid::Uuid;

use crate::service::turn::{Asker, Question};

/// How many answers, and how many notes about tasks, a session keeps for clients that do not come back for them.
const MAX_KEPT: usize = 16;

/// How long a start waits for another process to be gone, and how often it looks.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The ledgers of all sessions, a file each.
#[derive(Debug)]
pub(crate) struct QuestionLedger {
    folder: PathBuf,
    /// Held while a file is changed.
    changing: Mutex<()>,
}

/// A question that the model was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedTurn {
    pub(crate) question: Question,
    /// The number of its turn.
    pub(crate) turn: u64,
    /// The client has the answer, or reads it by itself. The record stays until the next question, since the client may
    /// repeat this one all the same.
    #[serde(default)]
    pub(crate) is_delivered: bool,
    /// What its client reads before the answer.
    #[serde(default)]
    pub(crate) told: ToldAnswers,
}

/// What one session owes its clients.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OwedAnswers {
    /// Questions that wait for their turn, in their order.
    pub(crate) queued: Vec<Question>,
    /// Questions whose turn began, in their order.
    pub(crate) asked: Vec<AskedTurn>,
    /// What the model said about ended tasks when no client listened.
    pub(crate) late: Vec<LateAnswer>,
    /// The model to return to when the next question comes, because the last one was asked of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_model: Option<String>,
}

/// What the model said about ended tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LateAnswer {
    pub(crate) id: Uuid,
    pub(crate) answer: String,
}

/// What a client is told, before the answer of its own turn, of answers that it never got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToldAnswers {
    pub(crate) words: String,
    /// The turns that they answer.
    pub(crate) turns: Vec<u64>,
    /// The late ones.
    pub(crate) late: Vec<Uuid>,
}

/// Where a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionPlace {
    Queued,
    /// Asked, in the turn of this number.
    Asked(u64),
}

impl OwedAnswers {
    /// The client's own question, if this one repeats it: because it got no answer, or to get its answer again.
    pub(crate) fn repeated(&self, asked: &Question) -> Result<Option<Uuid>, ErrorBody> {
        let Question { text, answers_again, .. } = asked;
        let (key, again) = (asked.repeat_key.as_deref(), *answers_again);
        let asked = self.asked.iter().map(|asked| (&asked.question, asked.is_delivered));
        for (question, is_delivered) in asked.chain(self.queued.iter().map(|question| (question, false))) {
            let has_key = key.is_some() && question.repeat_key.as_deref() == key;
            if again && has_key && question.text != *text {
                let message = "this `Idempotency-Key` was used for another message";
                return Err(ErrorBody::new(Code::IdempotencyMismatch, message).hint("use a new key for a new message"));
            }
            let is_same = match (&question.repeat_key, key) {
                (Some(_), Some(_)) => has_key,
                _ => question.text == *text,
            };
            if if is_delivered { again && has_key } else { is_same } {
                return Ok(Some(question.id));
            }
        }
        Ok(None)
    }

    pub(crate) fn place(&self, question: Uuid) -> Option<QuestionPlace> {
        if self.queued.iter().any(|queued| queued.id == question) {
            return Some(QuestionPlace::Queued);
        }
        let asked = self.asked.iter().find(|asked| asked.question.id == question)?;
        Some(QuestionPlace::Asked(asked.turn))
    }

    /// Moves a queued question to the asked ones; `false` if it is not queued any more. With `supersedes`, the turn before
    /// it goes on in this one.
    pub(crate) fn begin(&mut self, question: Uuid, turn: u64, supersedes: bool, told: ToldAnswers) -> bool {
        let Some(position) = self.queued.iter().position(|queued| queued.id == question) else { return false };
        let question = self.queued.remove(position);
        self.read_polled(turn - 1);
        let is_over = |asked: &AskedTurn| asked.is_delivered || supersedes && asked.turn + 1 == turn;
        self.asked.retain(|asked| asked.question.is_polled || !is_over(asked));
        self.asked.push(AskedTurn { question, turn, is_delivered: false, told });
        let surplus = self.asked.len().saturating_sub(MAX_KEPT);
        self.asked.drain(..surplus);
        true
    }

    /// Queues those again whose turn never began, because a crash came between; `turn` is the last one that did.
    pub(crate) fn restore(&mut self, turn: u64) {
        let (asked, lost): (Vec<_>, Vec<_>) = self.asked.drain(..).partition(|asked| asked.turn <= turn);
        self.asked = asked;
        self.queued.splice(..0, lost.into_iter().map(|asked| asked.question));
    }

    /// Removes a question that could not be asked.
    pub(crate) fn withdraw(&mut self, question: Uuid) {
        self.queued.retain(|queued| queued.id != question);
        self.asked.retain(|asked| asked.question.id != question);
    }

    /// Records that a client has the answer of `turn`, and those that it was told before it.
    pub(crate) fn deliver(&mut self, turn: u64) {
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.turn == turn && !asked.is_delivered) else { return };
        asked.is_delivered = true;
        let (turns, late) = (asked.told.turns.clone(), asked.told.late.clone());
        for asked in &mut self.asked {
            asked.is_delivered |= turns.contains(&asked.turn);
        }
        self.late.retain(|known| !late.contains(&known.id));
    }

    pub(crate) fn add_late(&mut self, answer: String) {
        self.late.push(LateAnswer { id: Uuid::now_v7(), answer });
        let surplus = self.late.len().saturating_sub(MAX_KEPT);
        self.late.drain(..surplus);
    }

    /// The turns whose answers have not reached their clients.
    pub(crate) fn undelivered(&self) -> Vec<u64> {
        self.asked.iter().filter(|asked| !asked.is_delivered).map(|asked| asked.turn).collect()
    }

    /// What a client is to be told before its own answer: the turns whose clients waited for their answers and have gone,
    /// and the late answers; nothing of it that a client in `listening` is told already.
    pub(crate) fn untold(&self, listening: &HashSet<Uuid>) -> (Vec<u64>, Vec<&LateAnswer>) {
        let is_listened = |asked: &AskedTurn| listening.contains(&asked.question.id);
        let told: Vec<_> = self.asked.iter().filter(|asked| is_listened(asked)).map(|asked| &asked.told).collect();
        let is_owed = |asked: &&AskedTurn| {
            let is_told = told.iter().any(|told| told.turns.contains(&asked.turn));
            !asked.is_delivered && !asked.question.is_polled && !is_listened(asked) && !is_told
        };
        let turns = self.asked.iter().filter(is_owed).map(|asked| asked.turn).collect();
        let late = self.late.iter().filter(|known| !told.iter().any(|told| told.late.contains(&known.id)));
        (turns, late.collect())
    }

    /// Records that the client does not wait any longer for the answer, and will read it by itself.
    pub(crate) fn poll(&mut self, question: Uuid) {
        self.questions(question).for_each(|question| question.is_polled = true);
    }

    /// Records what the commands of a repetition of a question printed, if it had any.
    pub(crate) fn print_again(&mut self, question: Uuid, printed: &str) {
        self.questions(question)
            .filter(|_| !printed.is_empty())
            .for_each(|known| printed.clone_into(&mut known.printed));
    }

    fn questions(&mut self, id: Uuid) -> impl Iterator<Item = &mut Question> {
        let asked = self.asked.iter_mut().map(|asked| &mut asked.question);
        asked.chain(&mut self.queued).filter(move |known| known.id == id)
    }

    /// Whether there are ended turns that no client waits for, and that are not recorded as such yet.
    pub(crate) fn has_polled(&self) -> bool {
        self.asked.iter().any(|asked| asked.question.is_polled && !asked.is_delivered)
    }

    /// Records that the turns up to this one have ended: no client waits for the answers of those that are polled.
    pub(crate) fn read_polled(&mut self, turn: u64) {
        for asked in self.asked.iter_mut().filter(|asked| asked.turn <= turn) {
            asked.is_delivered |= asked.question.is_polled;
        }
    }

    /// Whether the session has work that a restart has to continue.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queued.is_empty() || !self.undelivered().is_empty()
    }

    /// Who asked last.
    pub(crate) fn asker(&self) -> Option<&Asker> {
        let asked = self.asked.last().map(|asked| &asked.question);
        asked.or(self.queued.first()).map(|question| &question.asker)
    }
}

impl QuestionLedger {
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        create_private(&folder)?;
        Ok(Self { folder, changing: Mutex::default() })
    }

    fn path(&self, session: u32) -> PathBuf {
        self.folder.join(format!("{session}.json"))
    }

    pub(crate) fn of(&self, session: u32) -> OwedAnswers {
        read(&self.path(session))
    }

    /// Changes what a session owes; it is in the file when this returns.
    pub(crate) fn change<T>(&self, session: u32, change: impl FnOnce(&mut OwedAnswers) -> T) -> Result<T, ErrorBody> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(session);
        let mut owed = read(&path);
        let changed = change(&mut owed);
        let written = if owed == OwedAnswers::default() { remove(&path) } else { self.write(&path, &owed) };
        written.map_err(|error| super::io_error("failed to record the question", &error))?;
        Ok(changed)
    }

    fn write(&self, path: &Path, owed: &OwedAnswers) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(owed)?)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    }

    /// Owes nothing any more, because the session starts over; it goes on with the same model.
    pub(crate) fn start_over(&self, session: u32) {
        self.forget(session, |owed| OwedAnswers {
            previous_model: owed.previous_model.take(),
            ..OwedAnswers::default()
        });
    }

    /// Owes nothing any more: the session is deleted.
    pub(crate) fn clear(&self, session: u32) {
        self.forget(session, |_| OwedAnswers::default());
    }

    fn forget(&self, session: u32, rest: impl FnOnce(&mut OwedAnswers) -> OwedAnswers) {
        if let Err(error) = self.change(session, |owed| *owed = rest(owed)) {
            tracing::warn!(error = error.message, session, "failed to forget the questions of a session");
        }
    }

    /// The sessions that owe something.
    pub(crate) fn sessions(&self) -> Vec<u32> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok()).collect()
    }
}

/// Keeps other processes from the sessions of this state folder, as long as it exists.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes the lock; waits a moment for a process that was killed and is about to be gone.
    pub(crate) async fn acquire(folder: &Path) -> Result<Self, ErrorBody> {
        let failed = |error| super::io_error("failed to lock the sessions of `serve`", &error);
        create_private(folder).map_err(failed)?;
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(folder.join("lock"));
        let file = file.map_err(failed)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => tokio::time::sleep(LOCK_INTERVAL).await,
                Err(TryLockError::WouldBlock) => {
                    return Err(ErrorBody::new(
                        Code::SessionInUse,
                        "another `serve` has the sessions of this state folder",
                    )
                    .hint("use that one, or stop it; a second one needs a state folder and a mailbox of its own: set XDG_STATE_HOME and AGENT_MAGIC_TOOL_DIR"));
                }
            }
        }
    }
}

fn read(path: &Path) -> OwedAnswers {
    let Ok(bytes) = fs::read(path) else { return OwedAnswers::default() };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %path.display(), "failed to read the questions of a session");
        OwedAnswers::default()
    })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::turn::WhenBusy;

    fn question(text: &str, key: Option<&str>) -> Question {
        let repeat_key = key.map(str::to_owned);
        Question { when_busy: WhenBusy::Queue, repeat_key, ..Question::new(Asker::default(), text.to_owned()) }
    }

    fn begin(owed: &mut OwedAnswers, question: &Question, turn: u64, supersedes: bool) -> bool {
        owed.begin(question.id, turn, supersedes, ToldAnswers::default())
    }

    fn owing(queued: &[&Question]) -> OwedAnswers {
        OwedAnswers { queued: queued.iter().map(|question| (*question).clone()).collect(), ..OwedAnswers::default() }
    }

    #[test]
    fn a_question_is_kept_until_its_session_owes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let ledger = QuestionLedger::open(folder.path().to_owned()).expect("opened");
        let first = question("?", None);
        ledger.change(101, |owed| owed.queued.push(first.clone())).expect("recorded");
        let again = QuestionLedger::open(folder.path().to_owned()).expect("opened");
        assert_eq!((again.sessions(), again.of(101)), (vec![101], owing(&[&first])));
        assert!(again.change(101, |owed| begin(owed, &first, 1, false)).expect("recorded"));
        assert_eq!(again.of(101).place(first.id), Some(QuestionPlace::Asked(1)));
        again.clear(101);
        assert_eq!((again.of(101), again.sessions()), (OwedAnswers::default(), vec![]));
        fs::write(folder.path().join("102.json"), "no JSON").expect("written");
        assert_eq!(again.of(102), OwedAnswers::default());
    }

    #[tokio::test(start_paused = true)]
    async fn one_process_has_the_sessions_of_a_state_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = StateLock::acquire(folder.path()).await.expect("it is free");
        let refused = StateLock::acquire(folder.path()).await.expect_err("another one has it");
        assert_eq!(refused.code, Code::SessionInUse);
        let (second, ()) = tokio::join!(StateLock::acquire(folder.path()), async {
            tokio::time::sleep(LOCK_PATIENCE / 2).await;
            drop(first);
        });
        second.expect("the first one has gone meanwhile");
    }

    #[test]
    fn a_question_that_got_no_answer_is_recognized() {
        let (first, second) = (question("?", Some("k")), question("other", None));
        let mut owed = owing(&[&first, &second]);
        let asking = |text, key, answers_again| Question { answers_again, ..question(text, key) };
        let repeated =
            |owed: &OwedAnswers, text, key, again| owed.repeated(&asking(text, key, again)).expect("no other text");
        assert_eq!(repeated(&owed, "another", Some("k"), false), Some(first.id));
        assert_eq!(repeated(&owed, "?", Some("l"), false), None);
        assert_eq!((repeated(&owed, "?", None, false), repeated(&owed, "x", None, false)), (Some(first.id), None));
        assert_eq!(repeated(&owed, "other", Some("l"), false), Some(second.id), "also while it waits for its turn");
        owed.repeated(&asking("another", Some("k"), true)).expect_err("another message with the same key");
        assert!(begin(&mut owed, &first, 1, false));
        owed.deliver(1);
        assert_eq!((repeated(&owed, "?", None, true), repeated(&owed, "?", Some("k"), false)), (None, None));
        assert_eq!(repeated(&owed, "?", Some("k"), true), Some(first.id));
        assert!(begin(&mut owed, &second, 2, false) && owed.place(first.id).is_none(), "the next question ends that");
    }

    #[test]
    fn every_client_is_owed_its_own_answer() {
        let (first, second, third) = (question("1", None), question("2", None), question("3", None));
        let mut owed = owing(&[&first, &second, &third]);
        assert!(begin(&mut owed, &first, 1, false) && begin(&mut owed, &second, 2, false));
        assert_eq!(owed.undelivered(), [1, 2]);
        owed.read_polled(2);
        assert_eq!(owed.undelivered(), [1, 2], "their clients wait");
        owed.deliver(2);
        assert_eq!(owed.undelivered(), [1], "the first client still has none");
        owed.add_late("done".to_owned());
        let late = owed.late[0].clone();
        assert_eq!(owed.untold(&HashSet::from([first.id])), (vec![], vec![&late]), "its client listens");
        assert_eq!(owed.untold(&HashSet::new()), (vec![1], vec![&late]));
        let told = ToldAnswers { words: "(done)".to_owned(), turns: vec![1], late: vec![late.id] };
        assert!(owed.begin(third.id, 3, false, told));
        assert_eq!(owed.untold(&HashSet::from([third.id])), (vec![], vec![]), "it is told already");
        assert_eq!(owed.untold(&HashSet::new()), (vec![1, 3], vec![&late]), "but that client has gone as well");
        owed.deliver(3);
        assert!(!owed.is_waiting() && owed.late.is_empty());

        let mut owed = owing(&[&first, &second]);
        owed.poll(first.id);
        assert!(begin(&mut owed, &first, 1, false) && owed.untold(&HashSet::new()).0.is_empty() && owed.is_waiting());
        owed.read_polled(0);
        assert!(owed.is_waiting(), "a turn that goes on is continued after a restart");
        assert!(begin(&mut owed, &second, 2, true), "a client that reads by itself finds the answer later too");
        assert_eq!((owed.place(first.id), owed.undelivered()), (Some(QuestionPlace::Asked(1)), vec![2]));

        let mut owed = owing(&[&first, &second]);
        assert!(begin(&mut owed, &first, 1, false) && begin(&mut owed, &second, 2, true));
        assert_eq!(owed.place(first.id), None, "the second turn goes on with the work of the first");
        assert!(!begin(&mut owed, &third, 3, false), "it was never queued");
    }

    #[test]
    fn a_turn_that_never_began_is_queued_again_first() {
        let (first, second) = (question("1", None), question("2", None));
        let mut owed = owing(&[&first, &second]);
        assert!(begin(&mut owed, &first, 5, false));
        owed.restore(4);
        assert_eq!(owed, owing(&[&first, &second]));
        assert!(begin(&mut owed, &first, 5, false));
        owed.restore(5);
        assert_eq!(owed.place(first.id), Some(QuestionPlace::Asked(5)));
        owed.withdraw(first.id);
        owed.withdraw(second.id);
        assert_eq!(owed, OwedAnswers::default());
    }
}
