//! `run`: delegates a task, and returns as soon as its result file is there.

use std::io::Read as _;
use std::time::Instant;

use protocol::code::{Code, Exit};
use protocol::duration::PositiveDuration;
use protocol::mailbox::request::{Answer, IfNoApprover, Operation, RunRequest};
use protocol::mailbox::result::WOKEN;
use protocol::mailbox::{MAX_REQUEST_BYTES, Mailbox};
use protocol::task::{State, TaskId};
use protocol::{json, schedule};
use serde_json::{Map, Value};

use crate::context::{Context, Stdin};
use crate::error::Error;
use crate::handover::{self, HandoverReply};
use crate::launch::Launch;
use crate::result::{self, ResultFile, WaitMode};
use crate::wake_promise::WakePromise;

/// How JSON passes a shell unharmed.
pub(crate) const PIPE_IT: &str = "the shell took quotes away; pass the JSON on standard input, where it is left alone: \
agent-magic-tool run NAME --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subtool, as `list` names it
    name: String,
    /// The input as a JSON object, `@FILE` to read it from a file, or `-` from standard input
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Single fields: `key=text` (read as the type that the schema names) or `key:=JSON`
    #[arg(value_name = "KEY=VALUE")]
    fields: Vec<String>,
    /// Wait up to this long [60s if no duration is given], and print the final result if it came
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "60s")]
    wait: Option<PositiveDuration>,
    /// Start it then, and not before: 2026-05-01T09:00:00+02:00, or by the local clock 2026-05-01T09:00 or 09:00
    #[arg(long, value_name = "TIME", conflicts_with = "after")]
    at: Option<String>,
    /// Start it after this long, like 90m
    #[arg(long = "in", value_name = "DURATION")]
    after: Option<PositiveDuration>,
    /// Check everything and show what would be sent, with secrets masked; nothing is done
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// The same key and input is the same task, however often it is run
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// What to tell the human who has to confirm it: why it is wanted, in one sentence
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// If a human must confirm it and none has the page open: wait for one, or fail at once
    #[arg(long, value_name = "wait|fail", default_value = "wait", hide_default_value = true)]
    if_no_approver: NoApprover,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NoApprover {
    Wait,
    Fail,
}

impl From<NoApprover> for IfNoApprover {
    fn from(given: NoApprover) -> Self {
        match given {
            NoApprover::Wait => Self::Wait,
            NoApprover::Fail => Self::Fail,
        }
    }
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let input = match &args.input {
        Some(given) => read_input(given, &args.name, &context.stdin)?,
        None => Map::new(),
    };
    let at = match (&args.at, args.after) {
        (Some(time), _) => Some(schedule::read_here(time)?),
        (None, Some(span)) => Some(schedule::after(span.get())?),
        (None, None) => None,
    };
    let mut request = RunRequest {
        tool: args.name,
        input,
        words: Map::new(),
        idempotency_key: args.idempotency_key,
        dry_run: args.dry_run,
        reason: args.reason,
        if_no_approver: args.if_no_approver.into(),
        at,
    };
    for field in &args.fields {
        read_field(field, &mut request)?;
    }
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    match handover::ask(context, &mailbox, Operation::run(request))? {
        HandoverReply::Accepted(id) => accepted(id, args.wait, &mailbox, context),
        HandoverReply::Answer(Answer::SameAs(id)) => {
            context
                .output
                .note("the same was run before, under this key or still waiting for a human; this is that task");
            if args.wait.is_some() {
                return accepted(id, args.wait, &mailbox, context);
            }
            result::print(&[ResultFile::read(&mailbox, id)?], &mailbox, context)?;
            Ok(Exit::Ok)
        }
        HandoverReply::Answer(Answer::Plan(plan)) => {
            context.output.json(&plan)?;
            Ok(Exit::Ok)
        }
        HandoverReply::Answer(Answer::Refused(error)) => Err(error.into()),
        HandoverReply::Answer(_) => Err(Error::unexpected_answer("run")),
    }
}

fn accepted(id: TaskId, wait: Option<PositiveDuration>, mailbox: &Mailbox, context: &Context) -> Result<Exit, Error> {
    let Some(wait) = wait else {
        let wakes = WakePromise::of(context, mailbox).is_promised();
        context.output.json(&receipt(&ResultFile::read(mailbox, id)?, mailbox, wakes))?;
        return Ok(Exit::Ok);
    };
    let mut launch = Launch::new(&context.paths, mailbox);
    let deadline = Instant::now() + wait.get();
    let files = result::wait_for(&[id], mailbox, WaitMode::All, Some(deadline), || launch.ensure().map(drop))?;
    let file = files.first().ok_or_else(|| Error::internal("one task was awaited, and none came back"))?;
    result::print(&files, mailbox, context)?;
    Ok(file.exit())
}

/// What was accepted, and where its result will be: the placeholder, though a quick task may have
/// ended by now. The same words every time are easier to rely on.
fn receipt(file: &ResultFile, mailbox: &Mailbox, wakes: bool) -> Value {
    let mut receipt = Map::new();
    receipt.insert("tool".to_owned(), file.field("tool").clone());
    receipt.insert("input".to_owned(), file.field("input").clone());
    receipt.insert("id".to_owned(), file.id.to_string().into());
    receipt.insert("status".to_owned(), "pending".into());
    let run_at = file.field("run_at");
    if !run_at.is_null() {
        receipt.insert("run_at".to_owned(), run_at.clone());
    }
    receipt.insert("result_file".to_owned(), result::path_text(&mailbox.result_file(file.id)));
    if file.state == State::AwaitingConfirmation {
        for key in ["state", "message"] {
            receipt.insert(key.to_owned(), file.field(key).clone());
        }
    }
    if wakes {
        receipt.entry("message").or_insert_with(|| WOKEN.into());
    } else {
        receipt.insert("next".to_owned(), format!("agent-magic-tool wait {}", file.id).into());
    }
    Value::Object(receipt)
}

/// An input as it is written on the command line.
pub(super) fn read_input(given: &str, name: &str, stdin: &Stdin) -> Result<Map<String, Value>, Error> {
    let text = match (given, given.strip_prefix('@')) {
        ("-", _) => stdin
            .read_at_most(MAX_REQUEST_BYTES + 1)
            .map_err(|error| Error::io("standard input cannot be read", &error))?,
        (_, Some(path)) => std::fs::File::open(path)
            .and_then(limited)
            .map_err(|error| Error::new(Code::NotFound, format!("the input file `{path}` cannot be read: {error}")))?,
        _ => given.as_bytes().to_vec(),
    };
    if text.len() as u64 > MAX_REQUEST_BYTES {
        return Err(Error::new(Code::RequestTooLarge, format!("the input is larger than {MAX_REQUEST_BYTES} bytes"))
            .hint("put large data into a file and pass its path"));
    }
    match json::parse(&text) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(_) => Err(Error::new(Code::InvalidJson, "the input must be a JSON object")
            .hint(format!("see its fields: agent-magic-tool inspect {name}"))),
        Err(error) => {
            let wrong = Error::new(Code::InvalidJson, format!("the input is not valid JSON: {error}"))
                .detail("line", error.line)
                .detail("column", error.column);
            let text = String::from_utf8_lossy(&text);
            Err(if given != "-" && lost_its_quotes(&text) {
                wrong.hint(PIPE_IT.replace("NAME", name))
            } else {
                wrong.hint("an object in double quotes, like {\"key\": \"value\"}")
            })
        }
    }
}

/// One byte more than the limit tells that there is more.
fn limited(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// `{key: value}`, `'{...}'`, `{\"key\"...}` or half an object: what is left when a shell has been at it.
fn lost_its_quotes(text: &str) -> bool {
    let text = text.trim();
    let inner = text.trim_start_matches(['\'', '{', ' ']);
    text.starts_with('\'')
        || (text.starts_with('{') && (inner.starts_with('\\') || !inner.starts_with(['"', '}'])))
        || (text.starts_with('{') && !text.ends_with('}'))
}

fn read_field(field: &str, request: &mut RunRequest) -> Result<(), Error> {
    if json::parse(field.as_bytes()).is_ok_and(|value| value.is_object()) {
        return Err(Error::usage("the input stands where a single field would").hint(format!(
            "put --input= before it: agent-magic-tool run {} --input='{{\"key\": \"value\"}}'",
            request.tool
        )));
    }
    let Some((key, text)) = field.split_once('=') else {
        let hint = if field.contains(['{', '}', '"', ':']) {
            PIPE_IT.replace("NAME", &request.tool)
        } else {
            "write fields as key=text or key:=JSON, or all at once with --input".to_owned()
        };
        return Err(Error::usage(format!("`{field}` is no `key=value`")).hint(hint));
    };
    match key.strip_suffix(':') {
        Some(key) => {
            let value = json::parse(text.as_bytes()).map_err(|error| {
                Error::new(Code::InvalidJson, format!("the value of `{key}` is not valid JSON: {error}"))
                    .hint(format!("for plain text write: {key}=TEXT"))
            })?;
            request.input.insert(key.to_owned(), value);
        }
        None => {
            // What stands more than once is a list.
            match request.words.get_mut(key) {
                None => {
                    request.words.insert(key.to_owned(), text.into());
                }
                Some(Value::Array(texts)) => texts.push(text.into()),
                Some(first) => *first = Value::Array(vec![first.take(), text.into()]),
            }
        }
    }
    Ok(())
}
