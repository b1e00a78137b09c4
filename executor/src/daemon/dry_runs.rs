//! Dry runs of callers: performed beside the loop, and no tasks. What one shows is the answer to its request, which stays
//! taken until then: if this executor ends first, the next one makes the dry run.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use dispatcher::Event;
use ground::task::confirmation::WouldChange;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::Answer;
use protocol::task::TaskId;
use serde_json::{Value, json};

use super::Daemon;
use super::background::{Background, DaemonEvent, OffRuntime};
use crate::attempt::dry_run;
use crate::intake::DryRunOrder;
use crate::intake::dry_runs::DryRunKey;
use crate::intake::settings::LiveSettings;

/// How many dry runs are made at once; they wait for no slot.
const MAX_AT_ONCE: usize = 32;

/// A dry run that ended.
pub(super) struct FinishedDryRun {
    request: TaskId,
    key: DryRunKey,
    plan: Value,
    shown: Option<WouldChange>,
}

/// The dry runs that are being made.
pub(super) struct DryRunPool {
    performing: HashSet<TaskId>,
    /// Whose answers were handed to the dispatcher, and whose requests are still there.
    answered: Vec<TaskId>,
    background: Background,
    data_folder: Arc<Path>,
}

impl DryRunPool {
    pub(super) fn new(background: Background, data_folder: Arc<Path>) -> Self {
        Self { performing: HashSet::new(), answered: Vec::new(), background, data_folder }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.performing.is_empty()
    }

    /// Whether the dry run of this request is being made.
    pub(super) fn is_performing(&self, request: TaskId) -> bool {
        self.performing.contains(&request)
    }

    /// Takes those of the requests that ended for which `is_answered` is true.
    pub(super) fn take_answered(&mut self, is_answered: impl Fn(TaskId) -> bool) -> Vec<TaskId> {
        self.answered.extract_if(.., |id| is_answered(*id)).collect()
    }

    /// Starts a dry run, which reports [`DaemonEvent::DryRunFinished`]. Returns the refusal if too many are being made.
    pub(super) fn start(&mut self, order: DryRunOrder, plan: Value, settings: &LiveSettings) -> Option<Event> {
        let DryRunOrder { task, definition, key } = order;
        let request = task.id;
        if self.performing.len() >= MAX_AT_ONCE {
            let error = ErrorBody::new(Code::Throttled, format!("{MAX_AT_ONCE} dry runs are being made already"))
                .hint("nothing was done; make it again in a moment");
            return Some(Event::refusal(request, error));
        }
        self.performing.insert(request);
        let (rules, context) = (Arc::new(settings.clone()), settings.runner_context());
        let (background, data_folder) = (self.background.clone(), Arc::clone(&self.data_folder));
        let cancel = background.executor_ended().child_token();
        self.background.spawn(async move {
            let performed = dry_run::perform(task, definition, context, rules, data_folder, cancel);
            // In a task of its own, so that it is answered whatever becomes of it.
            let joined = background.tracker().spawn(OffRuntime(Box::pin(performed))).await;
            let shown = joined.unwrap_or_else(|error| {
                tracing::error!(%request, %error, "a dry run ended without a result");
                Some(WouldChange::Unknown("it ended without a result".to_owned()))
            });
            let finished = FinishedDryRun { request, key, plan, shown };
            if !background.send(DaemonEvent::DryRunFinished(Box::new(finished))) {
                tracing::debug!(%request, "a dry run finished after the executor had ended");
            }
        });
        None
    }
}

impl Daemon {
    /// Returns the answer to the request of a dry run that ended. From then on the call may be made that was shown.
    pub(super) fn on_dry_run(&mut self, finished: FinishedDryRun) -> Event {
        let FinishedDryRun { request, key, mut plan, shown } = finished;
        self.tasks.dry_runs.performing.remove(&request);
        self.tasks.dry_runs.answered.push(request);
        let was_shown = match &shown {
            Some(WouldChange::Shown { .. }) => true,
            // What may not be shown to the caller is a human's to decide, if one is asked.
            Some(WouldChange::NotPermitted(_)) => plan["confirmation"].is_string(),
            Some(WouldChange::Unknown(_)) | None => false,
        };
        if was_shown {
            self.inbox.intake.note_dry_run(key, self.tasks.clock.now());
        }
        add_to(&mut plan, shown);
        Event::Answer(request, Box::new(Answer::Plan(plan)))
    }
}

/// Adds to the plan what would change, or why that is not shown.
fn add_to(plan: &mut Value, shown: Option<WouldChange>) {
    match shown {
        Some(WouldChange::Shown { data, is_cut }) => {
            plan["would_change"] = data;
            if is_cut {
                plan["would_change_is_cut"] = "long lists and texts are cut; ask for less to see all of it".into();
            }
        }
        Some(WouldChange::Unknown(why) | WouldChange::NotPermitted(why)) => {
            plan["would_change"] = Value::Null;
            plan["not_shown"] = json!(format!("what would change could not be shown: {why}"));
        }
        None => {}
    }
}
