//! What follows from a ruling of the policy: the question to a human, or the refusal.

use std::time::Duration;

use catalog::Subtool;
use definition::Definition;
use definition::run::Run;
use ground::config::seal;
use ground::config::secret::{HiddenTexts, SecretError};
use ground::task::Task;
use ground::task::confirmation::{self, Confirmation, ConfirmationRequest};
use ground::task::failure::Failure;
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::clock::MonotonicTime;
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::mailbox::request::IfNoApprover;
use runner::{Invocation, Runner as _, ask_user, builtin};

use super::Intake;
use super::policy::{PolicyDecision, PolicyRuling};
use crate::attempt;

/// Whether a call that needs a human waits for one who does not have the page open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApproverWait {
    Waits,
    /// This long at most.
    WaitsFor(Duration),
    /// The call asks to be refused, and can be made again without that.
    RefusedByOption,
    /// The caller's session never waits.
    RefusedBySession,
}

impl ApproverWait {
    pub(super) fn of(caller: &Caller, option: IfNoApprover) -> Self {
        match option {
            _ if caller.unattended => Self::RefusedBySession,
            IfNoApprover::Wait => Self::Waits,
            IfNoApprover::Within(duration) => Self::WaitsFor(duration.get()),
            IfNoApprover::Fail => Self::RefusedByOption,
        }
    }
}

impl ApproverWait {
    fn is_refusal(self) -> bool {
        matches!(self, Self::RefusedByOption | Self::RefusedBySession)
    }

    /// How long a decision is waited for, of `usual` at most.
    fn of_usual(self, usual: Duration, is_page_open: bool) -> Duration {
        match self {
            Self::WaitsFor(most) if !is_page_open => usual.min(most),
            _ => usual,
        }
    }
}

impl Intake {
    /// Returns what a human is asked about `task`.
    pub(super) fn confirmation(
        &self,
        task: &Task,
        definition: &Definition,
        (ruling, wait): (&PolicyRuling, ApproverWait),
        reason: Option<String>,
        now: Timestamp,
    ) -> Confirmation {
        // A scheduled task can be approved until its scheduled time, plus the usual wait.
        let until_start = task.run_at.map(|at| Duration::try_from(now.duration_until(at)).unwrap_or_default());
        let usual = self.settings().config().confirm.wait.get();
        let wait = wait.of_usual(usual, self.approver.is_present()) + until_start.unwrap_or_default();
        let instance = self.instance.clone();
        // A task whose program or file is gone by now fails when it starts, and says why.
        let invocation = attempt::invocation(task, seal::shown(&task.input));
        let files = definition.run.files(&invocation, &self.settings().runner_context).unwrap_or_default();
        let has_preview = definition.preview.is_some() || definition.has_dry_run();
        let PolicyRuling { why, needs, asked_by, .. } = ruling.clone();
        let request = ConfirmationRequest { why, reason, needs, asked_by, instance, wait, files, has_preview };
        let mut confirmation = Confirmation::ask(task, request, confirmation::nonce(), now);
        confirmation.asked_moment = MonotonicTime::now();
        confirmation
    }

    /// Returns the refusal of a run that policy forbids, that no human can approve, or that a human would be asked
    /// about although it can only fail.
    pub(super) fn refusal(
        &self,
        subtool: &Subtool,
        wait: ApproverWait,
        ruling: PolicyRuling,
        invocation: &Invocation,
    ) -> Option<ErrorBody> {
        let asks = ruling.decision == PolicyDecision::Ask;
        self.refusal_by_policy(subtool.name.as_str(), &subtool.definition, wait, ruling).or_else(|| {
            match &subtool.definition.run {
                Run::AskUser(ask) => ask_user::question(ask, invocation).err().map(|failure| failure.error),
                _ if !asks => None,
                run => {
                    let refusal = match run {
                        Run::Builtin(builtin) => builtin::refusal(builtin, invocation, &self.prompts),
                        _ => None,
                    };
                    refusal.map(|failure| failure.error).or_else(|| self.certain_failure(run, invocation))
                }
            }
        })
    }

    /// Returns the error with which `run` is certain to fail. It quotes no hidden input.
    fn certain_failure(&self, run: &Run, invocation: &Invocation) -> Option<ErrorBody> {
        let settings = self.settings();
        // If the hidden inputs cannot be opened, the attempt fails and says so.
        let (input, texts) = settings.runner_context.secrets.seal().reveal(&invocation.input).ok()?;
        let revealed = Invocation { input, ..invocation.clone() };
        let mut error = run.check_before(&revealed, &settings.runner_context).err()?.error;
        let hidden = HiddenTexts::new(texts);
        hidden.redact(&mut error.message);
        error.hint.iter_mut().for_each(|hint| hidden.redact(hint));
        error.details.values_mut().for_each(|value| hidden.redact_value(value));
        Some(error)
    }

    /// Returns the error if a secret is not set without which the subtool cannot run.
    pub(super) fn missing(&self, definition: &Definition) -> Option<ErrorBody> {
        if definition.lacks_server() {
            let message = "the address of its server is not set: the description from which it was imported names none";
            return Some(ErrorBody::new(Code::BadConfig, message).hint(
                "tell the user to set `base_url` in `$defaults` of its file, or to import it again with --server URL",
            ));
        }
        let settings = self.settings();
        let secrets = &settings.runner_context.secrets;
        let name = definition.secrets().into_iter().find(|name| !secrets.is_set(name))?;
        Some(Failure::from(SecretError::NotSet { name }).error)
    }

    /// Returns the refusal of a run that policy forbids or that no human can approve.
    pub(super) fn refusal_by_policy(
        &self,
        tool: &str,
        definition: &Definition,
        wait: ApproverWait,
        ruling: PolicyRuling,
    ) -> Option<ErrorBody> {
        let PolicyRuling { decision, why, .. } = ruling;
        match decision {
            PolicyDecision::Run => None,
            PolicyDecision::Refuse => Some(
                ErrorBody::new(Code::RefusedByPolicy, format!("`{tool}` is refused: {why}"))
                    .hint("do not work around it: a human decided this; tell the user, who can change the rule"),
            ),
            PolicyDecision::NeedsAssurance => {
                Some(ErrorBody::new(Code::NeedsAssurance, format!("`{tool}` cannot be approved here: {why}")).hint(
                    "tell the user, who can enrol a key with `agent-magic-tool approver enrol`, do it by hand, or \
                         change `min_assurance`",
                ))
            }
            PolicyDecision::Ask if !self.settings().config().page.enabled => Some(
                ErrorBody::new(Code::NoApprover, format!("`{tool}` needs a human, and the page is disabled"))
                    .hint("tell the user to set `enabled = true` under [page] in config.toml"),
            ),
            PolicyDecision::Ask if wait.is_refusal() && !self.approver.is_present() => {
                let needs = match &definition.run {
                    Run::AskUser(_) => "a human's answer",
                    _ => "a human's approval",
                };
                let message = format!("`{tool}` needs {needs}, and no human has the page open");
                let then = match wait {
                    ApproverWait::RefusedBySession => "then call it again",
                    _ => "or run it without --if-no-approver=fail and let it wait",
                };
                let hint = format!("tell the user to open it (agent-magic-tool executor page), {then}");
                Some(ErrorBody::new(Code::NoApprover, message).hint(hint))
            }
            PolicyDecision::Ask => None,
        }
    }
}
