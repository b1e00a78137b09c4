//! Responses of OpenAI's protocol that were answered in a session, a file each: a client may read one again, or go on from it.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use protocol::paths::create_private;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How many responses are kept of all sessions together; the oldest go first.
const MAX_KEPT: usize = 1024;

/// The kept responses.
#[derive(Debug)]
pub(crate) struct StoredResponses {
    folder: PathBuf,
}

/// One response as it was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredResponse {
    /// The name of the client's API key, if any.
    pub(crate) key: Option<String>,
    /// The number of the session.
    pub(crate) session: u32,
    pub(crate) response: Value,
}

/// The name of a file: the ids of responses are in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ResponseFile {
    id: String,
    session: u32,
}

impl ResponseFile {
    fn read(name: &str) -> Option<Self> {
        let (id, session) = name.strip_suffix(".json")?.split_once('.')?;
        Some(Self { id: id.to_owned(), session: session.parse().ok()? })
    }

    fn name(&self) -> String {
        format!("{}.{}.json", self.id, self.session)
    }
}

impl StoredResponses {
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        create_private(&folder)?;
        Ok(Self { folder })
    }

    /// All files, the oldest first.
    fn files(&self) -> Vec<ResponseFile> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.filter_map(|entry| ResponseFile::read(entry.file_name().to_str()?)).collect();
        files.sort();
        files
    }

    /// Keeps a response. One that cannot be kept is only missing later.
    pub(crate) fn keep(&self, id: &str, stored: &StoredResponse) {
        let file = ResponseFile { id: id.to_owned(), session: stored.session };
        if let Err(error) = self.write(&file, stored) {
            tracing::warn!(%error, id, "failed to keep a response");
        }
        let files = self.files();
        for surplus in &files[..files.len().saturating_sub(MAX_KEPT)] {
            self.remove(surplus);
        }
    }

    fn write(&self, file: &ResponseFile, stored: &StoredResponse) -> io::Result<()> {
        let mut written = tempfile::NamedTempFile::new_in(&self.folder)?;
        written.write_all(&serde_json::to_vec(stored)?)?;
        written.persist(self.folder.join(file.name())).map(drop).map_err(|error| error.error)
    }

    /// The response with this id, if it is one of this client.
    pub(crate) fn find(&self, id: &str, key: Option<&String>) -> Option<StoredResponse> {
        let file = self.files().into_iter().find(|file| file.id == id)?;
        let bytes = fs::read(self.folder.join(file.name())).ok()?;
        let stored: StoredResponse = serde_json::from_slice(&bytes).ok()?;
        (stored.key.as_ref() == key).then_some(stored)
    }

    /// The id of the last response of a session.
    pub(crate) fn last_of(&self, session: u32) -> Option<String> {
        self.files().into_iter().rfind(|file| file.session == session).map(|file| file.id)
    }

    /// Forgets the response with this id; `false` if this client has none.
    pub(crate) fn forget(&self, id: &str, key: Option<&String>) -> bool {
        let Some(stored) = self.find(id, key) else { return false };
        self.remove(&ResponseFile { id: id.to_owned(), session: stored.session });
        true
    }

    /// Forgets the responses of a session that was deleted or started over.
    pub(crate) fn forget_session(&self, session: u32) {
        self.files().iter().filter(|file| file.session == session).for_each(|file| self.remove(file));
    }

    fn remove(&self, file: &ResponseFile) {
        if let Err(error) = fs::remove_file(self.folder.join(file.name())) {
            tracing::warn!(%error, id = file.id, "failed to remove a response");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_is_found_by_its_client_until_its_session_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let stored = StoredResponses::open(folder.path().to_owned()).expect("opened");
        let of = |session| StoredResponse { key: Some("a".to_owned()), session, response: json!({"id": "x"}) };
        stored.keep("resp_1", &of(101));
        stored.keep("resp_2", &of(101));
        stored.keep("resp_3", &of(102));
        let key = "a".to_owned();
        assert_eq!(stored.find("resp_1", Some(&key)), Some(of(101)));
        assert_eq!((stored.find("resp_1", None), stored.find("../resp_1", Some(&key))), (None, None));
        assert_eq!(stored.last_of(101).as_deref(), Some("resp_2"));
        assert!(stored.forget("resp_2", Some(&key)) && !stored.forget("resp_2", Some(&key)));
        stored.forget_session(101);
        assert!(stored.find("resp_1", Some(&key)).is_none() && stored.find("resp_3", Some(&key)).is_some());
    }
}
