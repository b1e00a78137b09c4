//! Learns from what worked: a search, the one subtool that was run after it, and its success.
//!
//! A search that led to several subtools is about several things, so nothing is learned from it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use ground::task::Task;
use listing::learned::{LearnedRequest, LearnedRequests, MAX_WORD_BYTES};
use protocol::task::{State, TaskId};
use store::Change;

use crate::intake::settings::LiveSettings;

/// How many searches are kept in mind. The rest is not learned from.
const MAX_PENDING: usize = 1_000;

pub(super) struct Learner {
    learned: LearnedRequests,
    /// The open tasks that a search led to.
    pending: HashMap<TaskId, LearnedRequest>,
    /// For each search of a user's session, the first subtool that it led to; `None` if there was another.
    first_tools: HashMap<(u32, Option<String>, String), Option<String>>,
    /// The sessions that were forgotten since the last commit: what was requested before that is admitted after it.
    forgotten: HashSet<String>,
    settings: LiveSettings,
}

impl Learner {
    pub(super) fn new(file: PathBuf, settings: LiveSettings) -> Self {
        let learned = LearnedRequests::open(file);
        Self { learned, pending: HashMap::new(), first_tools: HashMap::new(), forgotten: HashSet::new(), settings }
    }

    /// Notes that a task is about to be accepted.
    pub(super) fn on_request(&mut self, task: &Task) {
        let Some(words) = task.notes.found_by.as_ref().filter(|words| words.len() <= MAX_WORD_BYTES) else { return };
        // What a caller with tasks of its own searches for changes nothing for others.
        if task.caller.owner().is_some() {
            return;
        }
        if task.caller.session.as_ref().is_some_and(|session| self.forgotten.contains(session)) {
            return;
        }
        if !self.settings.current().config().catalog.learn || self.pending.len() >= MAX_PENDING {
            return;
        }
        if self.first_tools.len() >= MAX_PENDING {
            self.first_tools.clear();
        }
        let (session, tool) = (task.caller.session.clone(), task.tool.as_str());
        let search = (task.caller.uid, session.clone(), words.clone());
        let first = self.first_tools.entry(search).or_insert_with(|| Some(tool.to_owned()));
        if first.as_deref() == Some(tool) {
            let request = LearnedRequest { tool: tool.to_owned(), words: words.clone(), session };
            self.pending.insert(task.id, request);
            return;
        }
        *first = None;
        let is_of_search = |request: &LearnedRequest| request.words == *words && request.session == session;
        self.pending.retain(|_, request| !is_of_search(request));
        self.learned.remove(is_of_search);
    }

    /// Learns from the tasks that succeeded.
    pub(super) fn on_commit(&mut self, changes: &[Change]) {
        self.forgotten.clear();
        if self.pending.is_empty() {
            return;
        }
        for change in changes {
            let Change::Transition(step) = change else { continue };
            if !step.to.is_final() {
                continue;
            }
            if let Some(request) = self.pending.remove(&step.id)
                && step.to == State::Succeeded
            {
                self.learned.add(request);
            }
        }
    }

    /// Removes what was learned from a session, and learns nothing from what it has requested so far.
    pub(super) fn forget(&mut self, session: &str) {
        self.forgotten.insert(session.to_owned());
        self.first_tools.retain(|(_, of, _), _| of.as_deref() != Some(session));
        self.pending.retain(|_, request| request.session.as_deref() != Some(session));
        self.learned.remove(|request| request.session.as_deref() == Some(session));
    }
}
