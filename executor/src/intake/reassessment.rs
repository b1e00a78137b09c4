//! Reassessment: what the present rules say about a task that was accepted under earlier ones.
//!
//! A rule can only become stricter for such a task: one that waits for a human still waits if a new rule would let it
//! run, since the human may have a reason to look at it, and one that waits for a touch never makes do with less.

use definition::Definition;
use dispatcher::Reassessment;
use ground::task::Task;
use ground::task::confirmation::{Confirmation, DecidedBy};
use ground::task::question_key::QUESTION;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::IfNoApprover;

use super::Intake;
use super::policy::{PolicyCase, PolicyDecision, PolicyRuling};
use super::ruling::ApproverWait;

impl Intake {
    /// Judges `task` by the settings in force. `definition` is the one that it was accepted with.
    pub fn reassess(&self, task: &Task, definition: &Definition, now: Timestamp) -> Reassessment {
        let (settings, tool) = (self.settings(), task.tool.as_str());
        let is_question = tool == QUESTION;
        let scope = &self.scope_now(&task.caller);
        let caller = &Caller { tool_scope: scope.clone(), ..task.caller.clone() };
        let is_permitted = || {
            settings.sources.permits(tool, definition)
                && settings.sources.admits(tool, definition, scope)
                && !self.catalog.borrow().is_hidden(tool)
        };
        if !is_question && !is_permitted() {
            return excluded(tool);
        }
        // Rules are about the true values; if they cannot be had, the attempt fails and says so.
        let revealed = settings.runner_context.secrets.seal().reveal(&task.input);
        let input = revealed.map_or_else(|_| task.input.clone(), |(input, _)| input);
        if let Err(error) = settings.sources.check_privileges(definition, &input, scope) {
            return Reassessment::Refuse(Box::new(error));
        }
        let case =
            PolicyCase { name: &task.tool, definition, input: &input, caller, assurance: self.approver.assurance() };
        let ruling = settings.policy.decide_for_session(case);
        if ruling.decision == PolicyDecision::Run || ruling.decision == PolicyDecision::Ask && is_asked(task, &ruling) {
            return Reassessment::Keep;
        }
        let waits = task.confirmation.as_deref().filter(|asked| asked.decision.is_none());
        let wait = waits.map_or_else(|| ApproverWait::of(&task.caller, IfNoApprover::Wait), |_| ApproverWait::Waits);
        if let Some(error) = self.refusal_by_policy(tool, definition, wait, ruling.clone()) {
            return Reassessment::Refuse(Box::new(error));
        }
        Reassessment::Ask(Box::new(match waits {
            Some(asked) => self.strengthened(asked, task, ruling),
            None => self.asked_anew(task, definition, &ruling, now),
        }))
    }

    /// Returns what a human is asked already, with what the rules demand by now. It expires when it would have.
    fn strengthened(&self, asked: &Confirmation, task: &Task, ruling: PolicyRuling) -> Confirmation {
        let PolicyRuling { why, needs, asked_by, .. } = ruling;
        Confirmation { why, needs, asked_by, ..asked.clone() }.bound_to(&self.instance, task)
    }

    /// Returns what a human is asked about a task that no decision approves by now: what its caller asked for.
    fn asked_anew(&self, task: &Task, definition: &Definition, ruling: &PolicyRuling, now: Timestamp) -> Confirmation {
        let reason = task.confirmation.as_ref().and_then(|asked| asked.reason.clone());
        let as_asked = Task { input: task.asked_input().clone(), ..task.clone() };
        self.confirmation(&as_asked, definition, (ruling, ApproverWait::Waits), reason, now)
    }

    /// Judges a task that an earlier executor accepted. `definition` is `None` if it is gone or changed.
    pub(super) fn reassess_recovered(
        &self,
        task: &Task,
        definition: Option<&Definition>,
        now: Timestamp,
    ) -> Reassessment {
        match definition {
            Some(definition) => self.reassess(task, definition, now),
            None if self.catalog.borrow().is_hidden(task.tool.as_str()) => excluded(task.tool.as_str()),
            None => Reassessment::Keep,
        }
    }
}

/// Whether a human was asked about `task` as strongly as the rules demand by now, or a grant approved it that is not
/// older than any rule that asks.
fn is_asked(task: &Task, ruling: &PolicyRuling) -> bool {
    task.confirmation.as_ref().is_some_and(|asked| {
        let by_grant = asked.decision.as_ref().is_some_and(|decision| matches!(decision.by, DecidedBy::Grant(_)));
        asked.meets(ruling.needs) && (!by_grant || ruling.asked_by.iter().all(|rule| asked.asked_by.contains(rule)))
    })
}

fn excluded(tool: &str) -> Reassessment {
    let message = format!("`{tool}` may no longer be used: the configuration or its definition excludes it");
    let hint = "do not work around it: a human decided this; tell the user, who can change [access] or the profile in \
                config.toml";
    Reassessment::Refuse(Box::new(ErrorBody::new(Code::RefusedByPolicy, message).hint(hint)))
}
