//! `run`: delegates a task, and returns as soon as its result file exists.

use std::io::Read as _;
use std::time::Instant;

use protocol::code::{Code, Exit};
use protocol::duration::PositiveDuration;
use protocol::handover::Reply;
use protocol::mailbox::request::{Answer, IfNoApprover, Operation, RunRequest};
use protocol::mailbox::result::WILL_BE_WOKEN;
use protocol::mailbox::{MAX_REQUEST_BYTES, Mailbox};
use protocol::task::{State, TaskId};
use protocol::{json, schedule};
use serde_json::{Map, Value};

use crate::context::{Context, Stdin};
use crate::error::Error;
use crate::handover;
use crate::launch::Launch;
use crate::result::{self, ResultFile, WaitMode};
use crate::wake_promise::WakePromise;

/// The hint for JSON that a shell has damaged.
pub(crate) const USE_STDIN: &str = "the shell removed quotes; pass the JSON on standard input instead: \
agent-magic-tool run NAME --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subtool's name, as shown by `list`
    name: String,
    /// The input: a JSON object, `@FILE` to read it from a file, or `-` to read it from standard input
    #[arg(long, short, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Single input fields: `key=text` (converted to the type in the schema) or `key:=JSON`
    #[arg(value_name = "KEY=VALUE")]
    fields: Vec<String>,
    /// Wait up to this long [60s if no duration is given] and print the result as it is then
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "60s")]
    wait: Option<PositiveDuration>,
    /// Start it at this time: 2026-05-01T09:00:00+02:00, or in local time 2026-05-01T09:00 or 09:00
    #[arg(long, value_name = "TIME", conflicts_with = "after")]
    at: Option<String>,
    /// Start it after this long, like 90m
    #[arg(long = "in", value_name = "DURATION")]
    after: Option<PositiveDuration>,
    /// Check everything and show what would be sent, with secrets masked, but do nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Make retries safe: repeating a run with the same key and input returns the same task
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Why you want this, in one sentence, for the human who has to confirm it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What to do if a human must confirm it but the page is not open anywhere: wait, or fail at once
    #[arg(long, value_name = "wait|fail", default_value = "wait", hide_default_value = true)]
    if_no_approver: NoApprover,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NoApprover {
    Wait,
    Fail,
}

impl From<NoApprover> for IfNoApprover {
    fn from(choice: NoApprover) -> Self {
        match choice {
            NoApprover::Wait => Self::Wait,
            NoApprover::Fail => Self::Fail,
        }
    }
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    let input = match &args.input {
        Some(text) => read_input(text, &args.name, &context.stdin)?,
        None => Map::new(),
    };
    let at = match (&args.at, args.after) {
        (Some(time), _) => Some(schedule::parse_local(time)?),
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
        Reply::Accepted(id) => accepted(id, args.wait, &mailbox, context),
        Reply::Answer(Answer::SameAs(id)) => {
            context
                .output
                .note("the same call was made before, with this key or still waiting for a human; this is that task");
            if args.wait.is_some() {
                return accepted(id, args.wait, &mailbox, context);
            }
            result::print(&[ResultFile::read(&mailbox, id)?], &mailbox, context)?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Plan(plan)) => {
            context.output.json(&plan)?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Refused(error)) => Err(error.into()),
        Reply::Answer(_) => Err(Error::unexpected_answer("run")),
    }
}

fn accepted(id: TaskId, wait: Option<PositiveDuration>, mailbox: &Mailbox, context: &Context) -> Result<Exit, Error> {
    let Some(wait) = wait else {
        let wakes = WakePromise::of(context, mailbox).is_made();
        context.output.json(&receipt(&ResultFile::read(mailbox, id)?, mailbox, wakes))?;
        return Ok(Exit::Ok);
    };
    let mut launch = Launch::new(&context.paths, mailbox);
    let deadline = Instant::now() + wait.get();
    let files = result::wait_for(&[id], mailbox, WaitMode::All, Some(deadline), || launch.ensure().map(drop))?;
    let file = files.first().ok_or_else(|| Error::internal("waiting for one task returned no result"))?;
    result::print(&files, mailbox, context)?;
    Ok(file.exit())
}

/// The answer to an accepted `run`: the input as accepted, and where the result will be.
///
/// The status is always `pending`, even if a quick task has ended already: a fixed answer is easier to rely on.
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
        receipt.entry("message").or_insert_with(|| WILL_BE_WOKEN.into());
    } else {
        receipt.insert("next".to_owned(), format!("agent-magic-tool wait {}", file.id).into());
    }
    Value::Object(receipt)
}

/// Reads the value of `--input`: JSON, `@FILE`, or `-` for standard input.
pub(super) fn read_input(value: &str, name: &str, stdin: &Stdin) -> Result<Map<String, Value>, Error> {
    let text = match (value, value.strip_prefix('@')) {
        ("-", _) => stdin
            .read_at_most(MAX_REQUEST_BYTES + 1)
            .map_err(|error| Error::io("failed to read standard input", &error))?,
        (_, Some(path)) => std::fs::File::open(path)
            .and_then(read_limited)
            .map_err(|error| Error::new(Code::NotFound, format!("failed to read the input file `{path}`: {error}")))?,
        _ => value.as_bytes().to_vec(),
    };
    if text.len() as u64 > MAX_REQUEST_BYTES {
        return Err(Error::new(Code::RequestTooLarge, format!("the input is larger than {MAX_REQUEST_BYTES} bytes"))
            .hint("put large data into a file and pass its path"));
    }
    match json::parse(&text) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(_) => Err(Error::new(Code::InvalidJson, "the input must be a JSON object")
            .hint(format!("see the fields: agent-magic-tool inspect {name}"))),
        Err(error) => {
            let error = Error::new(Code::InvalidJson, format!("the input is not valid JSON: {error}"))
                .detail("line", error.line)
                .detail("column", error.column);
            let text = String::from_utf8_lossy(&text);
            Err(if value != "-" && is_missing_quotes(&text) {
                error.hint(USE_STDIN.replace("NAME", name))
            } else {
                error.hint("write an object with quoted keys, like {\"key\": \"value\"}")
            })
        }
    }
}

/// Reads at most one byte more than the limit, so that the caller can tell that the input is too large.
fn read_limited(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// Whether JSON looks damaged by a shell: `{key: value}`, `'{...}'`, `{\"key\"...}` or half an object.
fn is_missing_quotes(text: &str) -> bool {
    let text = text.trim();
    let inner = text.trim_start_matches(['\'', '{', ' ']);
    text.starts_with('\'')
        || (text.starts_with('{') && (inner.starts_with('\\') || !inner.starts_with(['"', '}'])))
        || (text.starts_with('{') && !text.ends_with('}'))
}

fn read_field(field: &str, request: &mut RunRequest) -> Result<(), Error> {
    if json::parse(field.as_bytes()).is_ok_and(|value| value.is_object()) {
        return Err(Error::usage("the whole input was given where a single field is expected").hint(format!(
            "put --input= before it: agent-magic-tool run {} --input='{{\"key\": \"value\"}}'",
            request.tool
        )));
    }
    let Some((key, text)) = field.split_once('=') else {
        let hint = if field.contains(['{', '}', '"', ':']) {
            USE_STDIN.replace("NAME", &request.tool)
        } else {
            "write fields as key=text or key:=JSON, or pass them all with --input".to_owned()
        };
        return Err(Error::usage(format!("`{field}` is not of the form `key=value`")).hint(hint));
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
            // A repeated key makes a list.
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
