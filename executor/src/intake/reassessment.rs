//! Reassessment: what the present rules say about a task that was accepted under earlier ones.
//!
//! A rule can only become stricter for such a task: one that waits for a human still waits if a new rule would let it
//! run, since the human may have a reason to look at it.

use jiff::Timestamp;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::IfNoApprover;

use super::Intake;
use super::policy::{PolicyCase, PolicyDecision};
use super::ruling::ApproverWait;
use crate::catalog::definition::Definition;
use crate::catalog::privileges;
use crate::dispatcher::Reassessment;
use crate::runner::delegation::QUESTION;
use crate::task::Task;

impl Intake {
    /// Judges `task` by the settings in force. `definition` is the one that it was accepted with.
    pub fn reassess(&self, task: &Task, definition: &Definition, now: Timestamp) -> Reassessment {
        let (settings, tool) = (self.settings(), task.tool.as_str());
        let is_question = tool == QUESTION;
        let is_permitted = || settings.sources.permits(tool, definition) && !self.catalog.borrow().is_hidden(tool);
        if !is_question && !is_permitted() {
            return excluded(tool);
        }
        // Rules are about the true values; if they cannot be had, the attempt fails and says so.
        let revealed = settings.runner_context.secrets.seal().reveal(&task.input);
        let input = revealed.map_or_else(|_| task.input.clone(), |(input, _)| input);
        if let Err(error) = privileges::check(definition, &input, &settings.config().access.privileges) {
            return Reassessment::Refuse(Box::new(error));
        }
        let case = PolicyCase {
            name: &task.tool,
            definition,
            input: &input,
            caller: &task.caller,
            assurance: self.approver.assurance(),
        };
        let ruling = settings.policy.decide_for_session(case);
        let is_asked = task.confirmation.is_some();
        if ruling.decision == PolicyDecision::Run || ruling.decision == PolicyDecision::Ask && is_asked {
            return Reassessment::Keep;
        }
        let (why, needs) = (ruling.why.clone(), ruling.needs);
        let wait = ApproverWait::of(&task.caller, IfNoApprover::Wait);
        match self.refusal_by_policy(tool, definition, wait, ruling) {
            Some(error) => Reassessment::Refuse(Box::new(error)),
            None => Reassessment::Ask(Box::new(self.confirmation(task, definition, (why, needs), None, now))),
        }
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

fn excluded(tool: &str) -> Reassessment {
    let message = format!("`{tool}` may no longer be used: the configuration or its definition excludes it");
    let hint = "do not work around it: a human decided this; tell the user, who can change [access] in config.toml";
    Reassessment::Refuse(Box::new(ErrorBody::new(Code::RefusedByPolicy, message).hint(hint)))
}
