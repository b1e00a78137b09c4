//! Which sessions there are, and whose they are. Only this stays in memory of a session without work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_loop::journal::{Journal, JournalHeader, SessionClient, SessionStore};
use agent_loop::model::conversation::JournalEntry;
use protocol::code::Code;
use protocol::error::ErrorBody;

use super::SessionInfo;
use super::quotas::too_many_sessions;
use super::turn::Asker;

/// The longest id of a client.
const MAX_ID_CHARS: usize = 128;

/// The sessions in the store. Other processes add and delete some too, so a number that is not known is looked up.
#[derive(Debug)]
pub(super) struct SessionIndex {
    store: SessionStore,
    headers: Mutex<BTreeMap<u32, JournalHeader>>,
}

impl SessionIndex {
    pub(super) fn read(store: SessionStore) -> Result<Self, ErrorBody> {
        let headers = store.numbers()?.into_iter().filter_map(|number| Some((number, store.header(number)?)));
        Ok(Self { headers: Mutex::new(headers.collect()), store })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, JournalHeader>> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what other processes did.
    fn refresh(&self, headers: &mut BTreeMap<u32, JournalHeader>) {
        let Ok(numbers) = self.store.numbers() else { return };
        headers.retain(|number, _| numbers.binary_search(number).is_ok());
        for number in numbers {
            if let std::collections::btree_map::Entry::Vacant(vacant) = headers.entry(number)
                && let Some(header) = self.store.header(number)
            {
                vacant.insert(header);
            }
        }
    }

    /// The number of the session that the client names by its id or number.
    pub(super) fn find(&self, session: &str, asker: &Asker) -> Result<u32, ErrorBody> {
        let mut headers = self.lock();
        if let Some(number) = find_in(&headers, session, asker) {
            return Ok(number);
        }
        self.refresh(&mut headers);
        find_in(&headers, session, asker).ok_or_else(|| {
            ErrorBody::new(Code::NotFound, format!("no session `{session}`"))
                .hint("list the sessions: GET /api/v1/sessions, or `!sessions` in a chat")
        })
    }

    /// The session of the client; a new one if it has no session yet, unless its key has `max_sessions`.
    pub(super) fn find_or_create(
        &self,
        asker: &Asker,
        folder: Option<PathBuf>,
        max_sessions: usize,
    ) -> Result<u32, ErrorBody> {
        let id = &asker.session;
        let mut headers = self.lock();
        if let Some(number) = find_in(&headers, id, asker) {
            return Ok(number);
        }
        if number_in(id).is_some() {
            drop(headers);
            return self.find(id, asker);
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        if id.is_empty() || id.len() > MAX_ID_CHARS || !id.chars().all(is_word) {
            let message = format!("a session's id has 1 to {MAX_ID_CHARS} of the characters a-z A-Z 0-9 - _ . : @");
            return Err(ErrorBody::new(Code::InvalidInput, message).hint("leave it out for a new session"));
        }
        if let Some(key) = &asker.key
            && count_of(&headers, key) >= max_sessions
        {
            // Another process may have deleted some.
            self.refresh(&mut headers);
            if count_of(&headers, key) >= max_sessions {
                return Err(too_many_sessions(key, max_sessions));
            }
        }
        let client = SessionClient { id: id.clone(), key: asker.key.clone() };
        let journal = self.store.create(folder, Some(client))?;
        headers.insert(journal.number, journal.header.clone());
        Ok(journal.number)
    }

    /// Writes what was said before a session began.
    pub(super) fn begin_with(&self, number: u32, entries: &[JournalEntry]) -> Result<(), ErrorBody> {
        let (mut journal, _) = self.resume(number)?;
        let written = entries.iter().try_for_each(|entry| journal.append(entry));
        written.map_err(|error| super::io_error("failed to write the journal", &error))
    }

    /// The sessions that belong to API keys, with their keys.
    pub(super) fn sessions_of_keys(&self) -> Vec<(u32, String)> {
        let headers = self.lock();
        headers.iter().filter_map(|(number, header)| Some((*number, header.client.as_ref()?.key.clone()?))).collect()
    }

    /// The sessions that the client may use, oldest first.
    pub(super) fn list(&self, asker: &Asker) -> Vec<SessionInfo> {
        let mut headers = self.lock();
        self.refresh(&mut headers);
        let own = headers.iter().filter(|(_, header)| is_of(header, asker));
        own.map(|(number, header)| SessionInfo {
            number: *number,
            client: header.client.as_ref().map(|client| client.id.clone()),
            key: header.client.as_ref().and_then(|client| client.key.clone()),
            began_at: header.began_at.to_string(),
            is_busy: false,
        })
        .collect()
    }

    pub(super) fn resume(&self, number: u32) -> Result<(Journal, Vec<JournalEntry>), ErrorBody> {
        Ok(self.store.resume(&number.to_string())?)
    }

    /// Deletes the session, and returns the label of its tasks.
    pub(super) fn delete(&self, number: u32) -> Result<String, ErrorBody> {
        let deleted = self.store.delete(&number.to_string())?;
        self.lock().remove(&number);
        Ok(deleted.label())
    }
}

/// How many sessions belong to this key.
fn count_of(headers: &BTreeMap<u32, JournalHeader>, key: &str) -> usize {
    let keys = headers.values().filter_map(|header| header.client.as_ref()?.key.as_deref());
    keys.filter(|of| *of == key).count()
}

fn find_in(headers: &BTreeMap<u32, JournalHeader>, session: &str, asker: &Asker) -> Option<u32> {
    if let Some(number) = number_in(session) {
        return headers.get(&number).filter(|header| is_of(header, asker)).map(|_| number);
    }
    let is_named = |header: &JournalHeader| {
        let client = header.client.as_ref();
        client.is_some_and(|client| client.id == session && client.key == asker.key) || header.id.to_string() == session
    };
    headers.iter().rev().find(|(_, header)| is_named(header) && is_of(header, asker)).map(|(number, _)| *number)
}

/// The number of a session, as it is printed.
fn number_in(session: &str) -> Option<u32> {
    session.parse().ok().filter(|number: &u32| number.to_string() == session)
}

/// Whether the client may use the session: it showed the key that made it, or is of our own user. Who writes in Slack is
/// not our own user: a thread reaches the sessions of its channel.
fn is_of(header: &JournalHeader, asker: &Asker) -> bool {
    let client = header.client.as_ref();
    match &asker.key {
        Some(_) => client.is_some_and(|client| client.key == asker.key),
        None if asker.interface == "slack" => client.is_some_and(|client| {
            client.key.is_none()
                && slack_channel(&client.id).is_some_and(|of| Some(of) == slack_channel(&asker.session))
        }),
        None => true,
    }
}

/// The channel of a thread's session, as Slack's adapter names those.
fn slack_channel(session: &str) -> Option<&str> {
    session.strip_prefix("slack-")?.rsplit_once('-').map(|(channel, _)| channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(session: &str, key: Option<&str>) -> Asker {
        Asker { session: session.to_owned(), key: key.map(str::to_owned), ..Asker::default() }
    }

    const MANY: usize = 100;

    #[test]
    fn a_thread_in_slack_reaches_the_sessions_of_its_channel_alone() {
        let state = tempfile::tempdir().expect("a folder");
        let index = SessionIndex::read(SessionStore::in_state(state.path())).expect("read");
        let slack = |session: &str| Asker { interface: "slack".to_owned(), ..asker(session, None) };
        let create = |asker: &Asker| index.find_or_create(asker, None, MANY).expect("created");
        let (here, neighbor) = (slack("slack-C1-1.1"), slack("slack-C1-2.1"));
        let reached = [create(&here), create(&neighbor)];
        let others = [
            create(&slack("slack-C12-1.1")),
            create(&slack("slack-D1-1.1")),
            create(&asker("api-1", None)),
            create(&asker("slack-C1-1.1", Some("a"))),
        ];
        let listed: Vec<_> = index.list(&here).iter().map(|session| session.number).collect();
        assert_eq!(listed, reached);
        for number in reached {
            assert_eq!(index.find(&number.to_string(), &here).expect("of its channel"), number);
        }
        for number in others {
            index.find(&number.to_string(), &here).expect_err("not of its channel");
            assert_eq!(index.find(&number.to_string(), &asker("", None)).expect("our own user"), number);
        }
        for id in ["slack-C12-1.1", "slack-D1-1.1", "api-1"] {
            index.find(id, &here).expect_err(id);
        }
        assert!(index.list(&slack("none")).is_empty() && index.list(&slack("slack-")).is_empty());
    }

    #[test]
    fn a_key_has_a_number_of_sessions_also_after_a_restart() {
        let state = tempfile::tempdir().expect("a folder");
        let create = |index: &SessionIndex, id: &str, key| index.find_or_create(&asker(id, key), None, 2);
        let index = SessionIndex::read(SessionStore::in_state(state.path())).expect("read");
        let first = create(&index, "api-1", Some("a")).expect("room");
        create(&index, "api-2", Some("a")).expect("room");
        assert_eq!(create(&index, "api-3", Some("a")).expect_err("one more").code, Code::TooManySessions);
        assert_eq!(create(&index, "api-1", Some("a")).expect("it is there"), first);
        create(&index, "api-3", Some("b")).expect("another key");
        for id in ["own-1", "own-2", "own-3"] {
            create(&index, id, None).expect("our own user");
        }
        let again = SessionIndex::read(SessionStore::in_state(state.path())).expect("read");
        create(&again, "api-3", Some("a")).expect_err("one more");
        index.delete(first).expect("deleted");
        create(&again, "api-3", Some("a")).expect("it sees what another process deleted");
    }

    #[test]
    fn a_session_belongs_to_its_key() {
        let state = tempfile::tempdir().expect("a folder");
        let index = SessionIndex::read(SessionStore::in_state(state.path())).expect("read");
        let of_a = index.find_or_create(&asker("api-1", Some("a")), None, MANY).expect("created");
        assert_eq!(index.find_or_create(&asker("api-1", Some("a")), None, MANY).expect("found"), of_a);
        let of_b = index.find_or_create(&asker("api-1", Some("b")), None, MANY).expect("created");
        assert_ne!(of_a, of_b, "the same id of another key is another session");
        index.find(&of_a.to_string(), &asker("", Some("b"))).expect_err("of another key");
        index.find_or_create(&asker(&of_a.to_string(), Some("b")), None, MANY).expect_err("of another key");
        assert_eq!(index.find(&of_a.to_string(), &asker("", None)).expect("our own user"), of_a);
        assert_eq!(index.list(&asker("", Some("b"))).len(), 1);
        assert_eq!(index.list(&asker("", None)).len(), 2);
        for wrong in ["", "a b", "../x", "999"] {
            index.find_or_create(&asker(wrong, None), None, MANY).expect_err(wrong);
        }
        let again = SessionIndex::read(SessionStore::in_state(state.path())).expect("read");
        assert_eq!(again.find("api-1", &asker("", Some("b"))).expect("kept"), of_b);
        again.delete(of_b).expect("deleted");
        index.find("api-1", &asker("", Some("b"))).expect("not looked up yet");
        assert_eq!(index.list(&asker("", None)).len(), 1);
    }
}
