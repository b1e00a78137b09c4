//! The record of a script: what it called, and how and in which order its calls ended.
//!
//! One file for each task, which is only appended to. Each line has a digest of itself and of all lines before it, so a
//! record that was changed is noticed. A last line that is not whole was never acted on: it is cut off. Decides nothing
//! about what a record means.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use protocol::data_class::DataClass;
use protocol::digest;
use protocol::task::TaskId;
use script::{Call, CallError, CallKind, Outcome, Settlement, Start};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with_macros::skip_serializing_none;
use sha2::{Digest as _, Sha256};

/// The largest record: what all calls of a script returned.
const MAX_BYTES: u64 = 64 << 20;
/// How much of a digest is kept: enough to notice a change, and this is no signature.
const DIGEST_DIGITS: usize = 32;

/// A record is a file of ours, and no link or pipe.
const FLAGS: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

/// What a script did, in order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScriptEntry {
    Start(Box<Start>),
    Issued(IssuedCall),
    Settled(SettledCall),
}

/// A call, as far as it says whether another one is the same.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssuedCall {
    pub(super) kind: CallKind,
    pub(super) name: Option<String>,
    /// Of the input.
    pub(super) digest: String,
    /// When it was made, in milliseconds since 1970.
    pub(super) at: i64,
}

/// A call that has ended.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettledCall {
    pub(super) settle: Settlement,
    /// The class of the data that it returned.
    pub(super) class: Option<DataClass>,
    pub(super) task: Option<TaskId>,
    /// Whether the data is not, or may not be, all there is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_part: bool,
}

impl SettledCall {
    /// The error of the call `seq`, if this is it.
    pub(super) fn error_of(&self, seq: u64) -> Option<&CallError> {
        match &self.settle.outcome {
            Outcome::Error(error) if self.settle.seq == seq => Some(error),
            Outcome::Error(_) | Outcome::Data(_) => None,
        }
    }
}

impl IssuedCall {
    pub(super) fn of(call: &Call, at: i64) -> Self {
        let digest = digest::hex(&Sha256::digest(call.input.as_text()))[..DIGEST_DIGITS].to_owned();
        Self { kind: call.kind, name: call.name.clone(), digest, at }
    }

    /// What is called, in a word.
    pub(super) fn shown_name(&self) -> &str {
        match (&self.name, self.kind) {
            (Some(name), _) => name,
            (None, CallKind::Run) => "a subtool",
            (None, CallKind::AskUser) => "ask_user",
            (None, CallKind::ListTools) => "list_tools",
            (None, CallKind::Read) => "read",
            (None, CallKind::Sleep) => "sleep",
        }
    }

    /// Whether both are the same call, whenever it was made.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        (self.kind, &self.name, &self.digest) == (other.kind, &other.name, &other.digest)
    }
}

/// Why there is no record to go on with.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("line {line} of the script's record was changed")]
    Changed { line: usize },
    #[error("what the script's calls returned is more than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    #[error("failed to read or write the script's record")]
    Io(#[from] io::Error),
}

/// The open record of one task.
#[derive(Debug)]
pub(super) struct ScriptRecord {
    file: File,
    bytes: u64,
    /// Of all lines so far.
    digest: String,
    is_synced: bool,
}

/// What is read of a record.
struct WrittenRecord {
    entries: Vec<ScriptEntry>,
    /// Of all lines.
    digest: String,
    /// How many bytes whole lines have.
    whole: usize,
}

#[derive(Serialize, Deserialize)]
struct Line {
    digest: String,
    entry: Box<RawValue>,
}

impl ScriptRecord {
    /// Opens the record of a task in `folder`, and returns what is in it.
    pub(super) fn open(folder: &Path, task: &str) -> Result<(Self, Vec<ScriptEntry>), RecordError> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let path = file_of(folder, task);
        let options = &mut OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(FLAGS.bits());
        let mut file = options.open(path)?;
        let WrittenRecord { entries, digest, whole } = WrittenRecord::of(&mut file)?;
        file.set_len(whole as u64)?;
        Ok((Self { file, bytes: whole as u64, digest, is_synced: true }, entries))
    }

    /// What is in the record of a task: nothing if it has none.
    pub(super) fn read(folder: &Path, task: &str) -> Result<Vec<ScriptEntry>, RecordError> {
        match OpenOptions::new().read(true).custom_flags(FLAGS.bits()).open(file_of(folder, task)) {
            Ok(mut file) => Ok(WrittenRecord::of(&mut file)?.entries),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The first entry of the record of a task, without the rest, which may be large; `None` if it has none, or was changed.
    pub(super) fn read_start(folder: &Path, task: &str) -> io::Result<Option<Start>> {
        let file = OpenOptions::new().read(true).custom_flags(FLAGS.bits()).open(file_of(folder, task))?;
        let mut line = Vec::new();
        BufReader::new(file).take(MAX_BYTES).read_until(b'\n', &mut line)?;
        let Ok(Line { digest, entry }) = serde_json::from_slice::<Line>(&line) else { return Ok(None) };
        match serde_json::from_str(entry.get()) {
            Ok(ScriptEntry::Start(start)) if next_digest("", entry.get()) == digest => Ok(Some(*start)),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Adds `entries`. They are durable after the next [`Self::sync`].
    pub(super) fn append(&mut self, entries: &[ScriptEntry]) -> Result<(), RecordError> {
        let mut text = Vec::new();
        for entry in entries {
            let entry = serde_json::value::to_raw_value(entry).map_err(io::Error::other)?;
            self.digest = next_digest(&self.digest, entry.get());
            serde_json::to_writer(&mut text, &Line { digest: self.digest.clone(), entry }).map_err(io::Error::other)?;
            text.push(b'\n');
        }
        if self.bytes + text.len() as u64 > MAX_BYTES {
            return Err(RecordError::TooLarge);
        }
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        self.is_synced = false;
        Ok(())
    }

    /// Makes everything durable that was added.
    pub(super) fn sync(&mut self) -> Result<(), RecordError> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

impl WrittenRecord {
    fn of(file: &mut File) -> Result<Self, RecordError> {
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file").into());
        }
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(RecordError::TooLarge);
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (mut entries, mut digest) = (Vec::new(), String::new());
        for (number, line) in text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            let changed = RecordError::Changed { line: number + 1 };
            let Ok(Line { digest: written, entry }) = serde_json::from_slice::<Line>(line) else { return Err(changed) };
            digest = next_digest(&digest, entry.get());
            match serde_json::from_str(entry.get()) {
                Ok(entry) if digest == written => entries.push(entry),
                Ok(_) | Err(_) => return Err(changed),
            }
        }
        Ok(Self { entries, digest, whole })
    }
}

/// Removes the record of a task, if it has one.
pub fn forget(folder: &Path, task: &str) -> io::Result<()> {
    match fs::remove_file(file_of(folder, task)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn file_of(folder: &Path, task: &str) -> std::path::PathBuf {
    folder.join(format!("{task}.jsonl"))
}

fn next_digest(before: &str, entry: &str) -> String {
    let digest = Sha256::new().chain_update(before).chain_update("\n").chain_update(entry).finalize();
    digest::hex(&digest)[..DIGEST_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use script::Json;

    use super::*;

    const TASK: &str = "01a2203f095576f8904c3432a79618a3";

    fn settled(seq: u64) -> ScriptEntry {
        let settle = Settlement { seq, now: 7, outcome: Outcome::Data(Json::default()) };
        ScriptEntry::Settled(SettledCall { settle, class: None, task: None, is_part: false })
    }

    fn seqs(entries: &[ScriptEntry]) -> Vec<u64> {
        let seq = |entry: &ScriptEntry| match entry {
            ScriptEntry::Settled(settled) => settled.settle.seq,
            ScriptEntry::Start(_) | ScriptEntry::Issued(_) => 0,
        };
        entries.iter().map(seq).collect()
    }

    #[test]
    fn what_was_appended_is_read_again_and_half_a_line_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut record, entries) = ScriptRecord::open(folder.path(), TASK).expect("a new record");
        assert!(entries.is_empty());
        record.append(&[settled(1), settled(2)]).expect("written");
        record.sync().expect("synced");
        let path = file_of(folder.path(), TASK);
        let whole = fs::read(&path).expect("written");
        fs::write(&path, [&whole[..], b"{\"digest\":\"12"].concat()).expect("written");
        assert!(
            ScriptRecord::read_start(folder.path(), TASK).expect("readable").is_none(),
            "it begins with something else"
        );
        let (mut record, entries) = ScriptRecord::open(folder.path(), TASK).expect("usable");
        assert_eq!((seqs(&entries), fs::read(&path).expect("readable")), (vec![1, 2], whole));
        record.append(&[settled(3)]).expect("written");
        drop(record);
        let (_, entries) = ScriptRecord::open(folder.path(), TASK).expect("usable");
        assert_eq!(seqs(&entries), [1, 2, 3]);
    }

    #[test]
    fn a_record_that_was_changed_is_not_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut record, _) = ScriptRecord::open(folder.path(), TASK).expect("a new record");
        record.append(&[settled(1), settled(2), settled(3)]).expect("written");
        let path = file_of(folder.path(), TASK);
        let text = fs::read_to_string(&path).expect("written");
        let lines: Vec<_> = text.lines().collect();
        for (changed, place) in [
            (text.replacen("\"now\":7", "\"now\":8", 1), 1),
            (format!("{}\n{}\n", lines[0], lines[2]), 2),
            (format!("{}\n{}\n", lines[1], lines[2]), 1),
            (format!("{}\n?\n{}\n", lines[0], lines[1]), 2),
        ] {
            fs::write(&path, &changed).expect("written");
            let opened = ScriptRecord::open(folder.path(), TASK);
            assert!(matches!(opened, Err(RecordError::Changed { line }) if line == place), "{changed}: {opened:?}");
        }
    }

    /// What earlier versions wrote is read by all later ones: a script may wait over an upgrade. Add a file when the form
    /// changes, and keep those that are here.
    #[test]
    fn what_earlier_versions_wrote_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(file_of(folder.path(), TASK), include_str!("fixtures/record-1.jsonl")).expect("written");
        let (_, entries) = ScriptRecord::open(folder.path(), TASK).expect("usable");
        assert_eq!(seqs(&entries), [0, 0, 1, 0, 2]);
        let ScriptEntry::Start(start) = &entries[0] else { panic!("it begins with a start") };
        assert!(start.source.starts_with("// Late orders") && start.seed == 2_810_654_179_818_884_567);
        let first = ScriptRecord::read_start(folder.path(), TASK).expect("readable");
        assert_eq!(first.as_ref(), Some(&**start));
        let ScriptEntry::Issued(issued) = &entries[3] else { panic!("a call") };
        let input = Json::from(&serde_json::json!({"n": 1}));
        let call = Call { seq: 2, kind: CallKind::Run, name: Some("put".to_owned()), input, line: None };
        assert!(IssuedCall::of(&call, 0).is_same_as(issued), "the same call has the same digest");
    }

    #[test]
    fn a_record_has_an_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut record, _) = ScriptRecord::open(folder.path(), TASK).expect("a new record");
        record.bytes = MAX_BYTES - 10;
        assert!(matches!(record.append(&[settled(1)]), Err(RecordError::TooLarge)));
    }
}
