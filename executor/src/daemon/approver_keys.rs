//! The approver's keys in the daemon: reads their file, and changes it when a human enrols or revokes a key.
//!
//! The first key needs nothing but a session of the page: that is the first run. Every other change needs a touch of a key
//! that is enrolled already, or root, who edits the file. A running executor takes over a changed file only from root.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dispatcher::{DecisionError, Dispatcher, Effects};
use ground::base::webauthn::{Assertion, Base64Url, RegisteredKey};
use ground::config::key_file::KeyFile;
use ground::task::approver_key::{ApproverKey, ApproverKeys, EnrolledBy, MAX_KEY_NAME_CHARS, MAX_KEYS};
use ground::task::touch::Statement;
use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::{ErrorBody, chain};
use protocol::file_state::FileState;
use tokio::sync::watch;

use crate::intake::approver::ApproverPresence;
use crate::page::{KeyStanding, KeysView};

pub(super) struct ApproverKeyring {
    folder: PathBuf,
    file: KeyFile,
    file_state: Option<FileState>,
    /// Why the file cannot be used; then no touch is valid.
    problem: Option<String>,
    /// Whether root removed all keys, so that the next one is the first again.
    is_reset: bool,
    view: watch::Sender<KeysView>,
    approver: Arc<ApproverPresence>,
}

impl ApproverKeyring {
    pub(super) fn new(folder: PathBuf, pinned: Option<&Path>, approver: Arc<ApproverPresence>) -> Self {
        Self {
            file: KeyFile::new(&folder, pinned),
            folder,
            file_state: None,
            problem: None,
            is_reset: false,
            view: watch::Sender::new(KeysView::default()),
            approver,
        }
    }

    /// What the page shows of the keys.
    pub(super) fn view(&self) -> watch::Receiver<KeysView> {
        self.view.subscribe()
    }

    /// Reads the file and hands the keys to the dispatcher. If it cannot be used, there are no keys, and none can be
    /// enrolled: nothing that needs a touch can be approved until a human has looked.
    pub(super) fn load(&mut self, dispatcher: &mut Dispatcher) {
        match self.file.read() {
            Ok(read) => {
                (self.file_state, self.problem) = (read.state, None);
                self.is_reset = read.is_roots && read.keys.reset_at.is_some();
                dispatcher.set_approver_keys(read.keys);
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "the keys of the approver cannot be used");
                (self.file_state, self.problem) = (self.file.state(), Some(chain(&error)));
                dispatcher.set_approver_keys(ApproverKeys::default());
            }
        }
        self.publish(dispatcher);
    }

    /// Takes over a file that root changed, or another one that the configuration names now. Returns whether it did.
    pub(super) fn look(&mut self, pinned: Option<&Path>, dispatcher: &mut Dispatcher) -> bool {
        let file = KeyFile::new(&self.folder, pinned);
        let is_other = file != self.file;
        self.file = file;
        if !is_other && self.file.state() == self.file_state {
            return false;
        }
        // Another program of this user may have written it; the next executor would believe it all the same.
        let is_roots = self.file.read().is_ok_and(|read| read.is_roots);
        if is_other || is_roots {
            self.load(dispatcher);
        }
        is_other || is_roots
    }

    fn standing(&self, dispatcher: &Dispatcher) -> KeyStanding {
        if let Some(problem) = &self.problem {
            KeyStanding::Broken(problem.clone())
        } else if self.file.is_pinned() {
            KeyStanding::Pinned(self.file.path().display().to_string())
        } else if !dispatcher.approver_keys().is_empty() {
            KeyStanding::Enrolled
        } else if dispatcher.knows_keys() && !self.is_reset {
            KeyStanding::Lost
        } else {
            KeyStanding::FirstRun
        }
    }

    fn publish(&self, dispatcher: &mut Dispatcher) {
        let standing = self.standing(dispatcher);
        // Keys that were lost or cannot be read are still demanded: deleting or breaking the file must not make approvals
        // easier. A file that the configuration names says that there are keys.
        let is_broken = self.problem.is_some() || self.file.is_pinned();
        let is_lost = dispatcher.knows_keys() && !self.is_reset;
        let is_demanded = !dispatcher.approver_keys().is_empty() || is_lost || is_broken;
        dispatcher.demand_touch(is_demanded);
        self.approver.set_has_keys(is_demanded);
        self.view.send_replace(KeysView { keys: dispatcher.approver_keys().clone(), standing });
    }

    /// Enrols a key that the page has registered.
    pub(super) fn enrol(
        &mut self,
        (name, key): (&str, RegisteredKey),
        touch: Option<&Assertion>,
        dispatcher: &mut Dispatcher,
        now: Timestamp,
    ) -> Result<Effects, DecisionError> {
        let name: String = name.trim().chars().take(MAX_KEY_NAME_CHARS).collect();
        let mut keys = dispatcher.approver_keys().clone();
        let refused = |message: &str, hint: &str| {
            Err(DecisionError::CommandRefused(Box::new(ErrorBody::new(Code::BadKey, message).hint(hint))))
        };
        if name.is_empty() {
            return refused("a key needs a name", "choose one by which you recognize the key");
        }
        if keys.keys.iter().any(|other| other.name == name || other.credential == key.credential) {
            return refused("this key, or one of this name, is enrolled already", "choose another name or key");
        }
        if keys.keys.len() >= MAX_KEYS {
            return refused("there are too many keys", "revoke one that you no longer use");
        }
        let mut effects = Effects::default();
        let enrolled_by = match self.standing(dispatcher) {
            KeyStanding::FirstRun => EnrolledBy::FirstRun,
            KeyStanding::Enrolled => {
                let (credential, public_key) = (key.credential.clone(), key.public_key.clone());
                let statement = Statement::EnrolKey { name: name.clone(), credential, public_key };
                let proof = dispatcher.check_touch(statement, touch, &mut effects)?;
                EnrolledBy::Key(proof.assertion.credential)
            }
            KeyStanding::Pinned(_) | KeyStanding::Broken(_) | KeyStanding::Lost => {
                let standing = self.standing(dispatcher);
                return refused(&standing.words(), "only root can change the keys now");
            }
        };
        let RegisteredKey { credential, public_key, counter } = key;
        tracing::info!(name, algorithm = public_key.algorithm(), "a key of the approver is enrolled");
        let enrolled = credential.clone();
        keys.keys.push(ApproverKey { name, credential, public_key, counter, enrolled_at: now, enrolled_by });
        self.replace(keys, dispatcher)?;
        // Last: a key that the record knows and the file does not have counts as lost.
        dispatcher.add_key(&enrolled, counter, &mut effects);
        Ok(effects)
    }

    /// Revokes a key, with a touch of another one.
    pub(super) fn revoke(
        &mut self,
        credential: &Base64Url,
        touch: Option<&Assertion>,
        dispatcher: &mut Dispatcher,
    ) -> Result<Effects, DecisionError> {
        let refused = |code: Code, message: &str, hint: &str| {
            Err(DecisionError::CommandRefused(Box::new(ErrorBody::new(code, message).hint(hint))))
        };
        let mut keys = dispatcher.approver_keys().clone();
        if keys.find(credential).is_none() {
            return refused(Code::NotFound, "no such key", "reload the page");
        }
        if self.standing(dispatcher) != KeyStanding::Enrolled {
            return refused(Code::BadKey, &self.standing(dispatcher).words(), "only root can change the keys now");
        }
        if keys.keys.len() == 1 || touch.is_some_and(|touch| touch.credential == *credential) {
            return refused(
                Code::BadKey,
                "a key is revoked with a touch of another one",
                "enrol another key first; or as root: agent-magic-tool approver reset",
            );
        }
        let mut effects = Effects::default();
        let statement = Statement::RevokeKey { credential: credential.clone() };
        dispatcher.check_touch(statement, touch, &mut effects).map_err(|error| error.without_key(credential))?;
        keys.keys.retain(|key| key.credential != *credential);
        tracing::info!(%credential, "a key of the approver was revoked");
        self.replace(keys, dispatcher)?;
        Ok(effects)
    }

    /// Writes the file before the keys count.
    fn replace(&mut self, keys: ApproverKeys, dispatcher: &mut Dispatcher) -> Result<(), DecisionError> {
        self.file.write(&keys, 0o600).map_err(|error| {
            let message = format!("failed to write the keys: {error}");
            DecisionError::CommandRefused(Box::new(ErrorBody::new(Code::Io, message)))
        })?;
        self.file_state = self.file.state();
        dispatcher.set_approver_keys(keys);
        self.publish(dispatcher);
        Ok(())
    }
}
