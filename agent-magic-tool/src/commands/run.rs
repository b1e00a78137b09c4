//! `run`: delegates a task, and returns as soon as its result file exists.

use std::io::Read as _;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::code::{Code, Exit};
use protocol::command_executor::DEFAULT_WAIT;
use protocol::duration::PositiveDuration;
use protocol::handover::Reply;
use protocol::mailbox::presence::ConfigProblem;
use protocol::mailbox::request::{Answer, IfNoApprover, Operation, RunRequest};
use protocol::mailbox::{MAX_REQUEST_BYTES, Mailbox};
use protocol::task::TaskId;
use protocol::{json, schedule};
use serde_json::{Map, Value};

use crate::answer;
use crate::context::Context;
use crate::error::Error;
use crate::handover;
use crate::option_value::not_empty;
use crate::result::ResultFile;
use crate::result_data;
use crate::waiting::{self, WaitMode};
use crate::wake_promise::WakePromise;

/// The hint for JSON from which a shell has removed the quotes.
pub(crate) const USE_STDIN: &str = "the shell removed the quotes; write the fields as key=value, or pass the JSON on \
standard input: agent-magic-tool run NAME --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF";
/// The hint for JSON that is wrong in itself.
const WRITE_FIELDS: &str = "write the fields as key=value, or pass the JSON on standard input: \
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
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Make retries safe: repeating a run with the same key and input returns the same task
    #[arg(long, value_name = "KEY", value_parser = not_empty)]
    idempotency_key: Option<String>,
    /// Why you want this, in one sentence, for the human who has to confirm it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What to do if a human must confirm it but the page is not open anywhere: wait, or fail at once
    #[arg(long, value_name = "wait|fail", default_value = "wait", hide_default_value = true, value_parser = if_no_approver())]
    if_no_approver: IfNoApprover,
}

/// The parser of `--if-no-approver`.
pub(crate) fn if_no_approver() -> impl TypedValueParser<Value = IfNoApprover> {
    PossibleValuesParser::new(["wait", "fail"]).map(|choice| match choice.as_str() {
        "fail" => IfNoApprover::Fail,
        _ => IfNoApprover::Wait,
    })
}

/// Whether and how to print the result at once.
struct WaitOptions {
    wait: Option<PositiveDuration>,
    jq: Option<String>,
}

pub(crate) fn run(args: Args, context: &Context) -> Result<Exit, Error> {
    if let Some(expression) = args.jq.as_deref().or(args.checked_jq.as_deref()) {
        result_data::check_jq(expression)?;
    }
    let input = match &args.input {
        Some(text) => read_input(text, &args.name, context)?,
        None => Map::new(),
    };
    let at = match (&args.at, args.after) {
        (Some(time), _) => Some(schedule::parse_local(time)?),
        (None, Some(span)) => Some(schedule::after(span.get())?),
        (None, None) => None,
    };
    let wait_options = WaitOptions { wait: args.wait, jq: args.jq };
    let mut request = RunRequest {
        tool: args.name,
        input,
        words: Map::new(),
        idempotency_key: args.idempotency_key,
        dry_run: args.dry_run,
        reason: args.reason,
        if_no_approver: args.if_no_approver,
        at,
        found_by: None,
    };
    for field in &args.fields {
        read_field(field, &mut request)?;
    }
    let has_key = request.idempotency_key.is_some();
    let is_scheduled = request.at.is_some();
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    request.found_by = mailbox.words_that_found(context.caller.session.as_deref(), &request.tool);
    let reply = handover::ask(context, &mailbox, Operation::run(request))?;
    if let Some(problem) = mailbox.config_problem() {
        let ConfigProblem { message, since, .. } = problem;
        context.output.note(&format!(
            "the configuration is broken since {since} and the last good one stays in force; tell the user: {message}"
        ));
    }
    match reply {
        Reply::Accepted(id) => accepted(id, &wait_options, &mailbox, context),
        Reply::Answer(Answer::SameAs(id)) => {
            let file = ResultFile::read(&mailbox, id, &context.caller)?;
            let start = match file.field("run_at").as_str() {
                Some(at) => format!("; it starts at {at}"),
                None if is_scheduled => "; it keeps its own start time".to_owned(),
                None => String::new(),
            };
            context.output.note(&if has_key {
                format!("a run with this idempotency key was made before; this is its task{start}")
            } else {
                format!(
                    "the same run already waits for the user; this is its task, and they are not asked twice{start}"
                )
            });
            if wait_options.wait.is_some() {
                return accepted(id, &wait_options, &mailbox, context);
            }
            context.output.json(&answer::document(&file))?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Plan(plan)) => {
            // What the caller wrote itself is the first thing to leave out.
            let plan = if context.output.fits(&plan) { plan } else { shortened(&plan, context) };
            context.output.json_or(&plan, "try it with a smaller input")?;
            Ok(Exit::Ok)
        }
        Reply::Answer(Answer::Refused(error)) => Err(error.into()),
        Reply::Answer(_) => Err(Error::unexpected_answer("run")),
    }
}

/// A plan with its long texts cut.
fn shortened(plan: &Value, context: &Context) -> Value {
    let bytes = plan.to_string().len();
    context.output.note(&format!("the plan has {bytes} bytes, so its long texts are cut, where `…` is; all of it into a pipe or file: add --whole"));
    answer::echoed(plan)
}

fn accepted(id: TaskId, options: &WaitOptions, mailbox: &Mailbox, context: &Context) -> Result<Exit, Error> {
    let Some(wait) = options.wait else {
        let wakes = WakePromise::of(context, mailbox).is_made();
        let file = ResultFile::read(mailbox, id, &context.caller).map_err(|error| {
            error
                .detail("id", id.to_string())
                .hint(format!("the task was accepted; to see how it ends: agent-magic-tool wait {id}"))
        })?;
        let starts_later = waiting::starts_after(&file, || waiting::configured_limit(context));
        context.output.json(&answer::receipt(&file, mailbox, wakes, starts_later))?;
        return Ok(Exit::Ok);
    };
    let files = waiting::wait_for(&[id], WaitMode::All, Some(wait.get()), mailbox, context)?;
    answer::print(&files, options.jq.as_deref(), mailbox, context)
}

/// Reads the value of `--input`: JSON, `@FILE`, or `-` for standard input.
pub(super) fn read_input(value: &str, name: &str, context: &Context) -> Result<Map<String, Value>, Error> {
    let text = match (value, value.strip_prefix('@')) {
        ("-", _) => context
            .stdin
            .read_at_most(MAX_REQUEST_BYTES + 1)
            .map_err(|error| Error::io("failed to read standard input", &error))?,
        (_, Some(path)) => {
            check_file(path, context)?;
            read_input_file(path)?
        }
        _ => value.as_bytes().to_vec(),
    };
    if text.len() as u64 > MAX_REQUEST_BYTES {
        return Err(Error::new(Code::RequestTooLarge, format!("the input is larger than {MAX_REQUEST_BYTES} bytes"))
            .hint("put large data into a file and pass its path"));
    }
    let from = if value == "-" { "standard input" } else { "the input" };
    match json::parse(&text) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(_) => Err(Error::new(Code::InvalidJson, format!("{from} must be a JSON object"))
            .hint(format!("its fields: agent-magic-tool list tools {name}"))),
        Err(_) if text.iter().all(u8::is_ascii_whitespace) => {
            Err(Error::new(Code::InvalidJson, format!("{from} is empty")).hint(WRITE_FIELDS.replace("NAME", name)))
        }
        Err(error) => {
            let text = String::from_utf8_lossy(&text);
            let hint = if value != "-" && is_missing_quotes(&text) { USE_STDIN } else { WRITE_FIELDS };
            Err(Error::new(Code::InvalidJson, format!("{from} is not valid JSON: {error}"))
                .detail("line", error.line)
                .detail("column", error.column)
                .hint(hint.replace("NAME", name)))
        }
    }
}

/// Refuses a file that the caller may not read: a client of a server has none here, and one with tasks of its own reads
/// no file of another task.
fn check_file(path: &str, context: &Context) -> Result<(), Error> {
    let refused = |why: &str| {
        Error::new(Code::NotFound, format!("failed to read the input file `{path}`: {why}"))
            .hint("write the input as key=value, or pass it on standard input: --input=-")
    };
    let caller = &context.caller;
    if caller.client().is_some() {
        return Err(refused("a client of a server has no files on this machine"));
    }
    let Ok(place) = std::fs::canonicalize(path) else { return Ok(()) };
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let root =
        std::fs::canonicalize(mailbox.root()).map_err(|error| Error::io("failed to find the mailbox", &error))?;
    if caller.owner().is_none() || !place.starts_with(&root) {
        return Ok(());
    }
    let name = place.file_name().filter(|_| place.parent() == Some(root.join("results").as_path()));
    let is_own = name.and_then(Mailbox::task_of_file).is_some_and(|id| mailbox.may_see(caller, id));
    if is_own { Ok(()) } else { Err(refused("there is no such file")) }
}

fn read_input_file(path: &str) -> Result<Vec<u8>, Error> {
    let failed = |reason: &str| {
        Error::new(Code::NotFound, format!("failed to read the input file `{path}`: {reason}"))
            .hint("in --input, `@` is followed by the path of a file; for the input itself write key=value")
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(failed("there is no such file")),
        Ok(found) if !found.is_file() => Err(failed("it is not a regular file")),
        _ => std::fs::File::open(path).and_then(read_limited).map_err(|error| failed(&error.to_string())),
    }
}

/// Reads at most one byte more than the limit, so that the caller can tell that the input is too large.
fn read_limited(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// Whether JSON looks as if a shell had removed its quotes: `{key: value}`, or had been kept from it: `'{...}'` and
/// `{\"key\"...}`. JSON with plain quotes in it is wrong for another reason.
fn is_missing_quotes(text: &str) -> bool {
    let text = text.trim();
    let has_quotes = text.replace("\\\"", "").contains('"');
    text.starts_with('\'') || (text.starts_with('{') && text.len() > 2 && !has_quotes)
}

fn read_field(field: &str, request: &mut RunRequest) -> Result<(), Error> {
    if json::parse(field.as_bytes()).is_ok_and(|value| value.is_object()) {
        return Err(Error::usage("the whole input was given where a single field is expected").hint(format!(
            "write its fields as key=value, or put --input= before it: agent-magic-tool run {} --input='{{\"key\": \"value\"}}'",
            request.tool
        )));
    }
    let Some((key, text)) = field.split_once('=') else {
        let hint = if field.parse::<PositiveDuration>().is_ok() {
            format!("a duration belongs to its option: --wait={field}")
        } else if field.contains('}') && !field.contains('"') {
            USE_STDIN.replace("NAME", &request.tool)
        } else {
            format!(
                "write the input as key=text or key:=JSON; its fields: agent-magic-tool list tools {}",
                request.tool
            )
        };
        return Err(Error::usage(format!("`{field}` is not of the form `key=value`")).hint(hint));
    };
    match key.strip_suffix(':') {
        Some(key) => {
            let value = json::parse(text.as_bytes()).map_err(|error| {
                Error::new(Code::InvalidJson, format!("the value of `{key}` is not valid JSON: {error}"))
                    .hint(format!("for a text write it without the colon: {key}=TEXT"))
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
