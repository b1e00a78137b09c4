//! `pack check`: runs health checks as ordinary tasks, and remembers how they ended.
//!
//! Rules, confirmations, secrets and limits apply as to any call. What still waits is not remembered.

use agent_side::answer;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::handover;
use agent_side::result::ResultFile;
use agent_side::waiting::{self, WaitMode};
use catalog::packs::checks::{PackCheck, PackChecks};
use catalog::packs::manifest::{PackHealth, PackManifest};
use catalog::packs::report::{PackReport, PackSurvey};
use protocol::clock;
use protocol::code::{Code, Exit};
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use protocol::task::TaskId;
use serde_json::{Value, json};

/// A health check under way.
enum RunningCheck {
    Task(TaskId),
    Refused(String),
}

/// How far a health check is.
enum CheckEnd {
    Pending,
    Passed,
    Failed(String),
}

pub(super) fn run(name: Option<&str>, survey: &PackSurvey, context: &Context) -> Result<Exit, Error> {
    let packs = match name {
        Some(name) => vec![of_name(name, survey)?],
        None => survey.names().iter().filter_map(|name| survey.report(name)).filter(|pack| pack.enabled).collect(),
    };
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let mut running = Vec::new();
    for manifest in packs.iter().filter_map(|pack| pack.manifest.as_deref()) {
        if let Some(health) = &manifest.health {
            running.push((manifest, health, start(manifest, health, survey, &mailbox, context)?));
        }
    }
    let (mut reports, mut outcomes, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for (manifest, health, check) in running {
        let mut report = json!({"name": manifest.name, "subtool": health.subtool.as_str()});
        let end = match check {
            RunningCheck::Refused(message) => CheckEnd::Failed(message),
            RunningCheck::Task(id) => {
                let timeout = Some(health.timeout.get());
                let mut files = waiting::wait_for(&[id], WaitMode::All, timeout, &mailbox, context)?;
                let file = files.pop().ok_or_else(|| Error::internal("waiting for one task returned no result"))?;
                report["status"] = file.field("status").clone();
                let end = CheckEnd::of(&file);
                if matches!(end, CheckEnd::Pending) {
                    report["message"] = file.field("message").clone();
                    waiting.push(file);
                }
                end
            }
        };
        let message = match end {
            CheckEnd::Pending => {
                reports.push(report);
                continue;
            }
            CheckEnd::Passed => None,
            CheckEnd::Failed(message) => Some(message),
        };
        report["passed"] = message.is_none().into();
        if let Some(message) = &message {
            report["message"] = message.as_str().into();
        }
        let (at, version) = (clock::now(), manifest.version.clone());
        outcomes.push((manifest.name.clone(), PackCheck { at, version, passed: message.is_none(), message }));
        reports.push(report);
    }
    let passed = outcomes.iter().filter(|(_, outcome)| outcome.passed).count();
    let (all, failed) = (reports.len(), outcomes.len() - passed);
    PackChecks::record(&context.paths.state, outcomes)
        .map_err(|error| Error::io("failed to keep the outcome", &error))?;
    context.output.json(&reports)?;
    context.output.note(&format!("{passed} of {all} checks passed"));
    Ok(if failed > 0 {
        Exit::Failed
    } else if waiting.is_empty() {
        Exit::Ok
    } else {
        answer::overall_exit(&waiting)
    })
}

/// A pack that can be checked.
fn of_name(name: &str, survey: &PackSurvey) -> Result<PackReport, Error> {
    let report = super::known(name, survey)?;
    if !report.enabled {
        return Err(Error::usage(format!("the pack `{name}` is not enabled"))
            .hint(format!("agent-magic-tool pack enable {name}")));
    }
    let Some(manifest) = &report.manifest else {
        return Err(Error::new(Code::BadDefinition, report.issues.join("; ")).hint("agent-magic-tool lint"));
    };
    if manifest.health.is_none() {
        return Err(Error::usage(format!("the pack `{name}` has no health check"))
            .hint("its author can add one to its manifest, under [health]"));
    }
    Ok(report)
}

fn start(
    manifest: &PackManifest,
    health: &PackHealth,
    survey: &PackSurvey,
    mailbox: &Mailbox,
    context: &Context,
) -> Result<RunningCheck, Error> {
    // The definition may have changed since the manifest was compared with it, by an override for instance.
    if !survey.is_read_only(health.subtool.as_str()) {
        let message = format!("`{}` cannot be used, or is not read-only", health.subtool);
        let reason = survey.problem_of(health.subtool.as_str());
        return Ok(RunningCheck::Refused(reason.map_or(message.clone(), |reason| format!("{message}: {reason}"))));
    }
    let request = RunRequest {
        tool: health.subtool.as_str().to_owned(),
        input: health.input.clone(),
        reason: Some(format!("the health check of the pack `{}`", manifest.name)),
        ..RunRequest::default()
    };
    Ok(match handover::ask(context, mailbox, Operation::run(request))? {
        Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id)) => RunningCheck::Task(id),
        Reply::Answer(Answer::Refused(error)) => RunningCheck::Refused(error.message),
        Reply::Answer(_) => return Err(Error::unexpected_answer("pack check")),
    })
}

impl CheckEnd {
    fn of(file: &ResultFile) -> Self {
        if !file.is_final() {
            return Self::Pending;
        }
        if file.field("success") == true {
            return Self::Passed;
        }
        let message = file.field("error").get("message").and_then(Value::as_str).map(str::to_owned);
        Self::Failed(message.unwrap_or_else(|| format!("it ended as {}", file.field("status"))))
    }
}
