//! The tasks of all clients in files, one each: after a restart of the server each is known under its id, and goes on
//! with its turn, which the session's own records keep.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use protocol::clock;
use protocol::paths::create_private;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::{TaskOwner, TurnPlace};
use super::wire::{A2aMessage, A2aState};
use crate::service::turn::Asker;

const VERSION: u32 = 1;

/// The folder of the tasks.
#[derive(Debug)]
pub(super) struct TaskStore {
    folder: PathBuf,
}

/// A task as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredTask {
    pub version: u32,
    pub id: String,
    pub context_id: String,
    pub owner: TaskOwner,
    pub asker: Asker,
    /// The client's message.
    pub question: A2aMessage,
    /// `None` until the session has taken the question.
    pub place: Option<TurnPlace>,
    #[serde(rename = "phase")]
    pub state: A2aState,
    /// What the task says about its state. Like `text` and `metadata`, only of a task that has ended.
    pub message: Option<A2aMessage>,
    pub at: Timestamp,
    /// The answer.
    pub text: Option<String>,
    pub metadata: Map<String, Value>,
    pub is_cancel_wanted: bool,
    /// The client has the answer.
    pub is_delivered: bool,
}

impl StoredTask {
    /// A task that no session has taken yet.
    pub(super) fn new(id: String, context_id: String, owner: TaskOwner, asker: Asker, question: A2aMessage) -> Self {
        Self {
            version: VERSION,
            id,
            context_id,
            owner,
            asker,
            question,
            place: None,
            state: A2aState::Submitted,
            message: None,
            at: clock::now(),
            text: None,
            metadata: Map::new(),
            is_cancel_wanted: false,
            is_delivered: false,
        }
    }
}

impl TaskStore {
    /// Opens the folder, which is created if it does not exist. Its tasks are read one by one, the oldest first.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, impl Iterator<Item = StoredTask> + use<>)> {
        create_private(folder)?;
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                // A crash left it behind while it was written.
                fs::remove_file(&path)?;
                continue;
            }
            paths.push(path);
        }
        // Their ids begin with the time.
        paths.sort();
        let tasks = paths.into_iter().filter_map(|path| match read(&path) {
            Ok(task) if task.version == VERSION => Some(task),
            Ok(task) => {
                tracing::warn!(path = %path.display(), version = task.version, "a task of another version is skipped");
                None
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "a task that cannot be read is skipped");
                None
            }
        });
        Ok((Self { folder: folder.to_owned() }, tasks))
    }

    pub(super) fn read(&self, id: &str) -> io::Result<StoredTask> {
        read(&self.path(id))
    }

    /// How many bytes of the disk the task takes.
    pub(super) fn bytes(&self, id: &str) -> u64 {
        fs::metadata(self.path(id)).map_or(0, |found| found.len())
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    /// Stores the task; it is in its file when this returns.
    pub(super) fn write(&self, task: &StoredTask) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(task)?)?;
        file.persist(self.path(&task.id)).map(drop).map_err(|error| error.error)
    }

    pub(super) fn remove(&self, id: &str) {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, task = id, "failed to remove a task");
            }
            _ => {}
        }
    }
}

fn read(path: &Path) -> io::Result<StoredTask> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
