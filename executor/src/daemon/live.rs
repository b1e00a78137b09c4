//! Obeys the configuration as it is now: applies new settings as a whole, between two steps of the event loop.
//!
//! Every open task is judged again by them before anything else happens, so nothing starts, and no human decides, by
//! rules that were replaced.

use std::fmt::Display;

use dispatcher::{
    DecideRequest, DecisionError, DecisionResult, Effects, Event, HumanCommand, HumanVerdict, Reassessment,
};
use ground::config::api_keys::ClientKey;
use protocol::error::chain;
use protocol::fault;
use protocol::mailbox::disk::DiskProblem;
use protocol::mailbox::presence::ConfigProblem;
use store::StoreError;

use super::Daemon;
use super::background::DaemonEvent;
use super::page_endpoint::send_reply;
use tokio::sync::oneshot;

use crate::intake::settings::Settings;
use crate::page::{PageCommand, PageMessage};

impl Daemon {
    /// Returns everything that has arrived, or `None` while the configuration is being written: nothing is judged,
    /// decided or started by half of it, and the step that follows comes soon.
    pub(super) fn unless_settling(&mut self, arrived: Vec<DaemonEvent>) -> Option<Vec<DaemonEvent>> {
        self.held.extend(arrived);
        (!self.config_file.is_settling()).then(|| std::mem::take(&mut self.held))
    }

    /// Takes over a changed configuration, and changed definitions if `needs_definitions`. Returns the event to handle
    /// before any other.
    pub(super) fn refresh_rules(&mut self, needs_definitions: bool) -> Option<Event> {
        let current = self.inbox.intake.settings();
        let next = self.config_file.look(&current);
        let is_replaced = next.as_ref().is_some_and(|next| next.version != current.version);
        if let Some(next) = next {
            fault::point("reload", "read");
            self.apply(next);
            fault::point("reload", "applied");
        }
        let has_new_profiles = self.refresh_api_keys();
        let pinned = self.inbox.intake.settings().config().confirm.keys.clone();
        let has_new_keys = self.keys.look(pinned.as_deref(), &mut self.tasks.dispatcher);
        let has_new_definitions = (needs_definitions || is_replaced) && self.inbox.intake.refresh();
        if has_new_definitions && self.inbox.intake.settings().policy.is_holding() {
            self.config_file.read_again();
        }
        let now = self.tasks.clock.now();
        (is_replaced || has_new_keys || has_new_definitions || has_new_profiles)
            .then(|| self.inbox.reassess(&self.tasks.dispatcher, now))
    }

    /// Tells the dispatcher which API keys there are. It needs to know before a key decides, and before what a key
    /// approved starts, or what its client asked for.
    /// Returns whether a client has another profile than before.
    pub(super) fn refresh_api_keys(&mut self) -> bool {
        if !self.tasks.dispatcher.needs_api_keys() {
            return false;
        }
        let keys = self.api_keys.list().unwrap_or_else(|error| {
            tracing::error!(error = chain(&error), "the API keys cannot be used: none of them may decide");
            Vec::new()
        });
        let now = self.tasks.clock.now();
        let valid = || keys.iter().filter(|key| key.is_valid_at(now));
        self.tasks.dispatcher.set_api_keys(valid().map(ClientKey::reference).collect());
        self.tasks.dispatcher.set_key_clients(valid().map(ClientKey::client).collect());
        let profiles = valid().filter_map(|key| Some((key.client(), key.profile.clone()?)));
        self.inbox.intake.set_key_profiles(profiles.collect())
    }

    /// Tells callers whether the configuration file is in force.
    pub(super) fn publish_problem(&self, problem: Option<&ConfigProblem>) {
        let published = self.mailbox.publish_config_problem(problem);
        warn_if_failed("failed to tell callers about the configuration", published);
    }

    /// Tells callers the settings that they go by.
    pub(super) fn publish_settings(&self) {
        let published = self.mailbox.publish_settings(&self.inbox.intake.settings().config().for_callers());
        warn_if_failed("failed to tell callers the settings", published);
    }

    /// Tells callers whether the record of tasks can be written, if that changed.
    pub(super) fn publish_disk_problem(&mut self) {
        let since = self.tasks.record.full_since();
        if since == self.told_full_since {
            return;
        }
        let problem = since.map(|since| DiskProblem {
            message: "the disk with the record of tasks is full".to_owned(),
            hint: "free space there: no task is accepted, and none can end, until then".to_owned(),
            since: Some(since),
        });
        match self.mailbox.publish_disk_problem(problem.as_ref()) {
            Ok(()) => self.told_full_since = since,
            // The mailbox's disk may be the same one, and commands see that it is full.
            Err(error) => tracing::debug!(%error, "failed to tell callers about the disk; it is retried"),
        }
    }

    fn apply(&mut self, next: Settings) {
        self.publish_problem(next.problem.as_ref());
        self.config_file.remember();
        if let Some(problem) = &next.problem {
            let version = next.version;
            tracing::error!(
                problem = problem.message,
                version,
                "the configuration cannot be used; the last good one stays in force"
            );
            self.inbox.intake.apply(next);
            return;
        }
        let keys = |keys: &[String]| keys.join(" ");
        tracing::info!(
            version = next.version,
            changed = keys(&next.changed),
            needs_restart = keys(&next.needs_restart),
            "configuration applied"
        );
        let executor = next.config().executor.clone();
        self.identity.subtools = next.sources.folders().to_vec();
        self.inbox.intake.apply(next);
        self.publish_settings();
        self.tasks.publisher.set_inline_bytes(executor.inline_bytes);
        self.tasks.hooks.apply_settings();
        self.notifier.apply_settings();
        self.sweeper.apply_settings(&executor);
        self.idle.set_limit(executor.idle.get());
        warn_if_failed("the identity of the executor was not updated", self.mailbox.update_identity(&self.identity));
    }

    /// Turns a message of the page into an event. An edit that the rules refuse is not one.
    pub(super) fn on_page_message(&mut self, message: PageMessage) -> Result<Option<Event>, StoreError> {
        let PageMessage { command, reply } = message;
        let (dispatcher, now) = (&mut self.tasks.dispatcher, self.tasks.clock.now());
        match command {
            PageCommand::Dispatch(command) => match self.refusal_of_edit(&command) {
                Some(error) => send_reply(reply, Err(error)),
                None => return Ok(Some(self.tasks.page.on_command(command, reply))),
            },
            PageCommand::EnrolKey { name, key, touch } => {
                let enrolled = self.keys.enrol((&name, *key), touch.as_ref(), dispatcher, now);
                return self.commit_keys(enrolled, reply);
            }
            PageCommand::RevokeKey { credential, touch } => {
                let revoked = self.keys.revoke(&credential, touch.as_ref(), dispatcher);
                return self.commit_keys(revoked, reply);
            }
            // The definitions were refreshed before the message was handled.
            PageCommand::RefreshCatalog => send_reply(reply, Ok(Vec::new())),
            // Result files say whether a human has the page open.
            PageCommand::PresenceChanged => self.tasks.publish_positions(),
        }
        Ok(None)
    }

    /// Commits the counters that changed with the keys, answers, and has open tasks judged again: more may need a touch.
    fn commit_keys(
        &mut self,
        outcome: Result<Effects, DecisionError>,
        reply: oneshot::Sender<DecisionResult>,
    ) -> Result<Option<Event>, StoreError> {
        let result = match outcome {
            Ok(effects) => self.tasks.carry_out(effects).map(|()| Ok(Vec::new()))?,
            Err(error) => Err(error),
        };
        send_reply(reply, result);
        let now = self.tasks.clock.now();
        Ok(Some(self.inbox.reassess(&self.tasks.dispatcher, now)))
    }

    /// The rules judged the input that the agent asked for. They must not refuse the one that replaces it.
    fn refusal_of_edit(&self, command: &HumanCommand) -> Option<DecisionError> {
        let HumanCommand::Decide(DecideRequest { tasks, verdict: HumanVerdict::Edit { input, .. }, .. }) = command
        else {
            return None;
        };
        let (id, _) = tasks.first()?;
        let (task, definition) = self.tasks.dispatcher.open_task(*id)?;
        let mut edited = task.clone();
        edited.input.clone_from(input);
        match self.inbox.intake.reassess(&edited, definition, self.tasks.clock.now()) {
            Reassessment::Refuse(error) => Some(DecisionError::CommandRefused(error)),
            Reassessment::Keep | Reassessment::Ask(_) => None,
        }
    }
}

pub(super) fn warn_if_failed(what: &str, outcome: Result<(), impl Display>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "{what}");
    }
}
