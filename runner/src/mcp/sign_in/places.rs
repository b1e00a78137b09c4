//! The sign-ins of one executor: one human is asked once, however many tasks wait for the same sign-in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ground::config::secret::SecretName;
use protocol::error::ErrorBody;
use tokio::sync::watch;

/// The sign-ins to MCP servers, by the secrets that keep their tokens.
#[derive(Debug, Default)]
pub struct SignIns {
    places: Mutex<HashMap<SecretName, Arc<SignInPlace>>>,
    /// The questions that wait on the page, each with the address that the human opens.
    links: Mutex<Vec<(String, String)>>,
}

/// What the tasks share that use one secret.
#[derive(Debug, Default)]
pub(super) struct SignInPlace {
    /// Locked while a human signs in.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Locked while tokens are renewed.
    pub(super) renewal: Arc<tokio::sync::Mutex<()>>,
    /// Locked while the record is changed.
    pub(super) writing: tokio::sync::Mutex<()>,
    /// Whether the question of a sign-in is on the page now.
    pub(super) is_asked: watch::Sender<bool>,
    ended: Mutex<EndedSignIns>,
}

/// How many sign-ins have ended, and why the last one failed if it did.
#[derive(Debug, Clone, Default)]
pub(super) struct EndedSignIns {
    pub(super) count: u64,
    pub(super) failure: Option<ErrorBody>,
}

impl SignIns {
    pub(super) fn place(&self, name: &SecretName) -> Arc<SignInPlace> {
        Arc::clone(self.places.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default())
    }

    /// The address that the human opens who is asked `question`: only for the question of a sign-in that is
    /// under way; a question of an agent with the same words leads to the same place.
    pub fn link(&self, question: &str) -> Option<String> {
        self.links().iter().find(|(text, _)| text == question).map(|(_, link)| link.clone())
    }

    /// Shows `link` beside `question` until what is returned is dropped.
    pub(super) fn show(&self, question: &str, link: &str) -> ShownLink<'_> {
        self.links().push((question.to_owned(), link.to_owned()));
        ShownLink { sign_ins: self, link: link.to_owned() }
    }

    fn links(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SignInPlace {
    pub(super) fn ended(&self) -> EndedSignIns {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_end(&self, failure: Option<ErrorBody>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended = EndedSignIns { count: ended.count + 1, failure };
    }
}

/// A link that the page shows.
pub(super) struct ShownLink<'a> {
    sign_ins: &'a SignIns,
    link: String,
}

impl Drop for ShownLink<'_> {
    fn drop(&mut self) {
        self.sign_ins.links().retain(|(_, link)| *link != self.link);
    }
}
