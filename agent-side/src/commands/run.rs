//! `run`: delegates a task, and returns as soon as its result file exists.

use protocol::code::Exit;
use protocol::command_executor::DEFAULT_WAIT;
use protocol::duration::PositiveDuration;
use protocol::handover::Reply;
use protocol::mailbox::Mailbox;
use protocol::mailbox::presence::ConfigProblem;
use protocol::mailbox::request::{Answer, IfNoApprover, Operation, RunRequest};
use protocol::schedule;
use protocol::task::{State, TaskId};
use serde_json::Value;

pub use self::input::read_input;
pub(super) use self::input::read_program;
use crate::answer;
use crate::context::Context;
use crate::error::Error;
use crate::handover;
use crate::option_value::not_empty;
use crate::result::ResultFile;
use crate::result_data;
use crate::waiting::{self, WaitMode};
use crate::wake_promise::WakePromise;

mod input;

/// The hint for JSON from which a shell has removed the quotes.
pub const USE_STDIN: &str = "the shell removed the quotes; write the fields as key=value, or pass the JSON on \
standard input: agent-magic-tool run NAME --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The subtool's name, as shown by `list`
    name: String,
    /// The input: a JSON object, `@FILE` to read it from a file, or `-` to read it from standard input
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Single input fields: `key=text` (converted to the type in the schema) or `key:=JSON`. `key=@FILE` takes the value from a
    /// file, `key=@-` from standard input, `key=@ID` or `key=@ID.jq` from the result of a task, `key=@@x` is the text `@x`
    #[arg(value_name = "KEY=VALUE")]
    fields: Vec<String>,
    /// Read all pages of a list, not only the first: up to 500, joined to one result
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    options: Options,
}

/// How and when a task is run, and whether its result is awaited.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Wait up to this long [60s if no duration is given] and print the result as it is then
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_WAIT)]
    wait: Option<PositiveDuration>,
    /// With --wait: print only what this jq expression returns, which sees only the data: `.[0].id`
    #[arg(long, value_name = "EXPR", requires = "wait")]
    jq: Option<String>,
    /// For a caller that waits in a step of its own: the jq expression of that step, checked before anything starts
    #[arg(long, value_name = "EXPR", hide = true)]
    checked_jq: Option<String>,
    /// Start it at this time: 2026-05-01T09:00:00+02:00, or in local time 2026-05-01T09:00 or 09:00
    #[arg(long, value_name = "TIME", conflicts_with = "after", allow_hyphen_values = true)]
    at: Option<String>,
    /// Start it after this long, like 90m or 2d
    #[arg(long = "in", value_name = "DURATION", allow_hyphen_values = true)]
    after: Option<PositiveDuration>,
    /// Check everything and show what would be sent, with secrets masked, but do nothing
    #[arg(long)]
    dry_run: bool,
    /// For a caller that asks whether a human would be: a dry run of which nothing is performed
    #[arg(long, hide = true)]
    plan: bool,
    /// Make retries safe: repeating a run with the same key and input returns the same task
    #[arg(long, value_name = "KEY", value_parser = not_empty)]
    idempotency_key: Option<String>,
    /// Why you want this, in one sentence, for the human who has to confirm it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What to do if a human must confirm it but the page is not open anywhere: wait, wait at most so long (30s), or fail
    /// at once
    #[arg(long, value_name = "wait|fail|DURATION", default_value = "wait", hide_default_value = true)]
    if_no_approver: IfNoApprover,
}

pub fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let Args { name, input, fields, all, options } = args;
    options.check()?;
    let mut request = RunRequest { tool: name, all_pages: all, ..RunRequest::default() };
    if let Some(text) = &input {
        request.input = read_input(text, &request.tool, context)?;
    }
    let values = fields.iter().filter_map(|field| Some(field.split_once('=')?.1));
    request.data_class = input::class_of_sources(values.chain(input.as_deref()), context)?;
    for field in &fields {
        input::read_field(field, &mut request, context)?;
    }
    options.delegate(request, context)
}

impl Options {
    /// Finds mistakes before anything is read.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.jq.as_deref().or(self.checked_jq.as_deref()).map_or(Ok(()), result_data::check_jq)
    }

    /// Delegates the task, and prints its receipt or its result.
    pub(super) fn delegate(self, mut request: RunRequest, context: &Context) -> Result<Exit, Error> {
        request.at = match (&self.at, self.after) {
            (Some(time), _) => Some(schedule::parse_local(time)?),
            (None, Some(span)) => Some(schedule::after(span.get())?),
            (None, None) => None,
        };
        request.idempotency_key.clone_from(&self.idempotency_key);
        request.reason.clone_from(&self.reason);
        (request.dry_run, request.plan_only) = (self.dry_run || self.plan, self.plan);
        request.if_no_approver = self.if_no_approver;
        let is_scheduled = request.at.is_some();
        let mailbox = Mailbox::open(&context.paths.mailbox)?;
        request.found_by = mailbox.words_that_found(context.caller.session.as_deref(), &request.tool);
        let reply = handover::ask(context, &mailbox, Operation::run(request))?;
        if let Some(problem) = mailbox.config_problem() {
            let ConfigProblem { message, since, .. } = problem;
            // It may name what a caller with a part of all subtools must not know.
            let what = if context.caller.tool_scope.is_everything() { format!(": {message}") } else { String::new() };
            context.output.note(&format!(
                "the configuration is broken since {since} and the last good one stays in force; tell the user{what}"
            ));
        }
        match reply {
            Reply::Accepted(id) => self.accepted(id, &mailbox, context),
            Reply::Answer(Answer::SameAs(id)) => self.same(id, is_scheduled, &mailbox, context),
            Reply::Answer(Answer::Plan(plan)) => {
                if self.jq.is_some() {
                    context.output.note("a dry run has no result, so --jq is left out and the plan is printed whole");
                }
                // What the caller wrote itself is the first thing to leave out.
                let plan = if context.output.fits(&plan) { plan } else { shortened(&plan, context) };
                context.output.json_or(&plan, "try it with a smaller input")?;
                Ok(Exit::Ok)
            }
            Reply::Answer(Answer::Refused(error)) => Err(error.into()),
            Reply::Answer(_) => Err(Error::unexpected_answer("run")),
        }
    }

    /// Says that an earlier task is this one.
    fn same(&self, id: TaskId, is_scheduled: bool, mailbox: &Mailbox, context: &Context) -> Result<Exit, Error> {
        let file = ResultFile::read(mailbox, id, &context.caller)?;
        let start = match file.field("run_at").as_str() {
            Some(at) => format!("; it starts at {at}"),
            None if is_scheduled => "; it keeps its own start time".to_owned(),
            None => String::new(),
        };
        context.output.note(&if self.idempotency_key.is_some() {
            format!("a run with this idempotency key was made before; this is its task{start}")
        } else if file.state == State::AwaitingConfirmation {
            format!("the same run already waits for the user; this is its task, and they are not asked twice{start}")
        } else {
            format!("the same run was already requested; this is its task, and the user is not asked twice{start}")
        });
        if self.wait.is_some() {
            return self.accepted(id, mailbox, context);
        }
        context.output.json(&answer::document(&file))?;
        Ok(Exit::Ok)
    }

    fn accepted(&self, id: TaskId, mailbox: &Mailbox, context: &Context) -> Result<Exit, Error> {
        let Some(wait) = self.wait else {
            let wakes = WakePromise::of(context, mailbox).is_made();
            let file = ResultFile::read(mailbox, id, &context.caller).map_err(|error| {
                error
                    .detail("id", id.to_string())
                    .hint(format!("the task was accepted; to see how it ends: agent-magic-tool wait {id}"))
            })?;
            let starts_later = waiting::starts_after(&file, || waiting::configured_limit(mailbox));
            context.output.json(&answer::receipt(&file, mailbox, wakes, starts_later))?;
            return Ok(Exit::Ok);
        };
        let files = waiting::wait_for(&[id], WaitMode::All, Some(wait.get()), mailbox, context)?;
        answer::print(&files, self.jq.as_deref(), mailbox, context)
    }
}

/// A plan with its long texts cut.
fn shortened(plan: &Value, context: &Context) -> Value {
    let bytes = plan.to_string().len();
    context.output.note(&format!("the plan has {bytes} bytes, so its long texts are cut, where `…` is; all of it into a pipe or file: add --whole"));
    answer::echoed(plan, answer::MAX_ECHOED_CHARS)
}
