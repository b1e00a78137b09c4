//! `test`: runs the examples of a subtool against the real thing, or shows what they would send.
//!
//! Each example is an ordinary task: rules, confirmations, secrets and limits apply.

use agent_side::answer;
use agent_side::context::Context;
use agent_side::error::Error;
use agent_side::handover;
use agent_side::result::ResultFile;
use agent_side::waiting::{self, WaitMode};
use catalog::{Catalog, Sources};
use ground::config::Config;
use protocol::code::Exit;
use protocol::duration::PositiveDuration;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::request::{Answer, Operation, RunRequest};
use serde_json::{Map, Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subtool whose examples are run
    name: String,
    /// Show what would be sent, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for each example
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    wait: PositiveDuration,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let config = Config::read(&context.paths)?;
    let catalog = Catalog::load(&Sources::of(&context.paths, &config));
    let Some(subtool) = catalog.usable(&args.name, &context.caller.tool_scope) else {
        return Err(catalog.absent(&args.name, &context.caller.tool_scope).into());
    };
    if subtool.definition.examples.is_empty() {
        return Err(Error::usage(format!("`{}` has no examples", args.name))
            .hint("add one to its definition: \"examples\": [{\"input\": {…}}]"));
    }
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let (mut reports, mut files) = (Vec::new(), Vec::new());
    for example in &subtool.definition.examples {
        let mut report = outcome(args, &example.input, &mailbox, context, &mut files)?;
        if let Some(note) = &example.note {
            report["note"] = note.as_str().into();
        }
        reports.push(report);
    }
    let failed = reports.iter().filter(|report| report["ok"] != true).count();
    context.output.json(&reports)?;
    context.output.note(&format!("{} of {} examples work", reports.len() - failed, reports.len()));
    // Refusals have no file; the failure of another example weighs more than a task that waits.
    let has_failed = failed > files.iter().filter(|file| !file.is_final()).count();
    Ok(match answer::overall_exit(&files) {
        _ if failed == 0 => Exit::Ok,
        waiting @ (Exit::AwaitingConfirmation | Exit::Pending) if !has_failed => waiting,
        _ => Exit::Failed,
    })
}

/// Runs one example and reports on it. Adds its result file to `ended`, if it became a task.
fn outcome(
    args: &Args,
    input: &Map<String, Value>,
    mailbox: &Mailbox,
    context: &Context,
    ended: &mut Vec<ResultFile>,
) -> Result<Value, Error> {
    let request = RunRequest {
        tool: args.name.clone(),
        input: input.clone(),
        dry_run: args.dry_run,
        reason: Some("an example of the definition is tested".to_owned()),
        ..RunRequest::default()
    };
    let id = match handover::ask(context, mailbox, Operation::run(request))? {
        Reply::Accepted(id) | Reply::Answer(Answer::SameAs(id)) => id,
        Reply::Answer(Answer::Plan(plan)) => {
            return Ok(json!({"input": input, "ok": true, "would_send": plan["would_send"]}));
        }
        Reply::Answer(Answer::Refused(error)) => return Ok(json!({"input": input, "ok": false, "error": error})),
        Reply::Answer(_) => return Err(Error::unexpected_answer("test")),
    };
    let files = waiting::wait_for(&[id], WaitMode::All, Some(args.wait.get()), mailbox, context)?;
    let file = files.first().ok_or_else(|| Error::internal("waiting for one task returned no result"))?;
    let mut report = json!({"input": input, "ok": file.field("success") == true, "status": file.field("status")});
    for key in ["data", "error", "data_file", "message"] {
        if !file.field(key).is_null() {
            report[key] = file.field(key).clone();
        }
    }
    ended.extend(files);
    Ok(report)
}
