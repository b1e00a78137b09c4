//! The input of `run`: a JSON object, single fields, and values that lie in files or in the results of other tasks.

use std::io::Read as _;
use std::path::Path;

use protocol::code::Code;
use protocol::data_class::DataClass;
use protocol::duration::PositiveDuration;
use protocol::json;
use protocol::mailbox::request::RunRequest;
use protocol::mailbox::{MAX_REQUEST_BYTES, Mailbox};
use protocol::task::{State, TaskId};
use serde_json::{Map, Value};

use super::USE_STDIN;
use crate::context::Context;
use crate::error::Error;
use crate::result::ResultFile;
use crate::result_data;

/// The hint for JSON that is wrong in itself.
const WRITE_FIELDS: &str = "write the fields as key=value, or pass the JSON on standard input: \
agent-magic-tool run NAME --input=- <<'EOF'\n{\"key\": \"value\"}\nEOF";

/// How to pass a script.
const HERE_DOCUMENT: &str = "pass it on standard input: agent-magic-tool script --wait <<'EOF'\nreturn await \
NAME({key: \"value\"});\nEOF";

/// Reads the value of `--input`: JSON, `@FILE`, or `-` for standard input.
pub fn read_input(value: &str, name: &str, context: &Context) -> Result<Map<String, Value>, Error> {
    let text = match (value, value.strip_prefix('@')) {
        ("-", _) => read_stdin(context)?,
        (_, Some(path)) => {
            check_file(path, context)?;
            read_input_file(path)?
        }
        _ => value.as_bytes().to_vec(),
    };
    check_size(&text)?;
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
            let hint = if has_single_quotes(&text) {
                &format!("JSON has double quotes, not single ones; {WRITE_FIELDS}")
            } else if value != "-" && is_missing_quotes(&text) {
                USE_STDIN
            } else {
                WRITE_FIELDS
            };
            Err(Error::new(Code::InvalidJson, format!("{from} is not valid JSON: {error}"))
                .detail("line", error.line)
                .detail("column", error.column)
                .hint(hint.replace("NAME", name)))
        }
    }
}

/// Reads the text of a script from a file, or with `-` from standard input.
pub(in crate::commands) fn read_program(place: &str, context: &Context) -> Result<String, Error> {
    let text = if place == "-" {
        read_stdin(context)?
    } else {
        check_file(place, context)?;
        read_input_file(place).map_err(|error| error.hint(HERE_DOCUMENT))?
    };
    check_size(&text)?;
    let text = String::from_utf8(text)
        .map_err(|_| Error::new(Code::InvalidInput, "the script is not UTF-8 text").hint(HERE_DOCUMENT))?;
    if text.trim().is_empty() {
        return Err(Error::new(Code::InvalidInput, "the script is empty").hint(HERE_DOCUMENT));
    }
    Ok(text)
}

fn read_stdin(context: &Context) -> Result<Vec<u8>, Error> {
    let read = context.stdin.read_at_most(MAX_REQUEST_BYTES + 1);
    read.map_err(|error| Error::io("failed to read standard input", &error))
}

fn check_size(text: &[u8]) -> Result<(), Error> {
    if text.len() as u64 <= MAX_REQUEST_BYTES {
        return Ok(());
    }
    Err(Error::new(Code::RequestTooLarge, format!("the input is larger than {MAX_REQUEST_BYTES} bytes"))
        .hint("put large data into a file and pass its path"))
}

/// Refuses a file that the caller may not read: a client of a server has none here, a model without a shell has only the
/// results of its tasks, and a caller with tasks of its own reads no file of another task.
fn check_file(path: &str, context: &Context) -> Result<(), Error> {
    let refused = |why: &str| {
        Error::new(Code::NotFound, format!("failed to read the input file `{path}`: {why}"))
            .hint("write the input as key=value, or pass it on standard input: --input=-")
    };
    let caller = &context.caller;
    if caller.client().is_some() {
        return Err(refused("a client of a server has no files on this machine"));
    }
    let is_of_model = context.stdin.is_of_model();
    let Ok(place) = std::fs::canonicalize(path) else {
        return if is_of_model { Err(refused("there is no such file")) } else { Ok(()) };
    };
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let root =
        std::fs::canonicalize(mailbox.root()).map_err(|error| Error::io("failed to find the mailbox", &error))?;
    if !place.starts_with(&root) {
        let why = "only the results of tasks are read for a model; to read a file, run a subtool that does";
        return if is_of_model { Err(refused(why)) } else { Ok(()) };
    }
    if caller.owner().is_none() && caller.trust.is_none() && !is_of_model {
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

/// Whether keys are quoted as in Python.
fn has_single_quotes(text: &str) -> bool {
    text.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('\''))
}

/// Adds a `key=value` argument to the request, or all fields of a JSON object, which models write without `--input`.
pub(super) fn read_field(field: &str, request: &mut RunRequest, context: &Context) -> Result<(), Error> {
    if let Ok(Value::Object(fields)) = json::parse(field.as_bytes()) {
        request.input.extend(fields);
        return Ok(());
    }
    let Some((key, text)) = field.split_once('=') else {
        let is_number = field.bytes().all(|byte| byte.is_ascii_digit());
        let hint = if !is_number && field.parse::<PositiveDuration>().is_ok() {
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
    let (key, is_json) = key.strip_suffix(':').map_or((key, false), |key| (key, true));
    let text = match value_of(key, text, context)? {
        FieldValue::Json(value) => {
            request.input.insert(key.to_owned(), value);
            return Ok(());
        }
        FieldValue::Text(text) => text,
    };
    if is_json {
        let value = json::parse(text.as_bytes()).map_err(|error| {
            Error::new(Code::InvalidJson, format!("the value of `{key}` is not valid JSON: {error}"))
                .hint(format!("for a text write it without the colon: {key}=TEXT"))
        })?;
        request.input.insert(key.to_owned(), value);
        return Ok(());
    }
    // A repeated key makes a list.
    match request.words.get_mut(key) {
        None => {
            request.words.insert(key.to_owned(), text.into());
        }
        Some(Value::Array(texts)) => texts.push(text.into()),
        Some(first) => *first = Value::Array(vec![first.take(), text.into()]),
    }
    Ok(())
}

/// The most sensitive class of the results that these arguments take values from.
pub(super) fn class_of_sources<'a>(
    arguments: impl Iterator<Item = &'a str>,
    context: &Context,
) -> Result<Option<DataClass>, Error> {
    let mut most = None;
    for place in arguments.filter_map(|argument| argument.strip_prefix('@')) {
        let mailbox = Mailbox::open(&context.paths.mailbox)?;
        let of_path = || Mailbox::task_of_file(Path::new(place).file_name()?);
        let Some(id) = result_part(place).map(|(id, _)| id).or_else(of_path) else { continue };
        if let Ok(file) = ResultFile::read(&mailbox, id, &context.caller) {
            most = most.max(file.data_class());
        }
    }
    Ok(most)
}

/// The value of one field.
enum FieldValue {
    /// Of a type that the schema gives it.
    Text(String),
    Json(Value),
}

/// Reads the value of the field `key`: after `@` it lies elsewhere, so that a model need not write it again.
fn value_of(key: &str, text: &str, context: &Context) -> Result<FieldValue, Error> {
    let Some(place) = text.strip_prefix('@') else { return Ok(FieldValue::Text(text.to_owned())) };
    if place.starts_with('@') {
        return Ok(FieldValue::Text(place.to_owned()));
    }
    if let Some((id, expression)) = result_part(place) {
        return result_value(id, expression, context);
    }
    let bytes = if place == "-" {
        read_stdin(context)?
    } else {
        check_file(place, context)?;
        read_input_file(place)
            .map_err(|error| error.hint(format!("for the text itself write it with another @: {key}=@{text}")))?
    };
    check_size(&bytes)?;
    let not_text = |_| {
        Error::new(Code::InvalidInput, format!("the value of `{key}` in `{place}` is not text"))
            .hint("put binary data into a subtool's input by the path of its file, if the subtool takes one")
    };
    String::from_utf8(bytes).map(FieldValue::Text).map_err(not_text)
}

/// Splits `ID` or `ID.jq`.
fn result_part(place: &str) -> Option<(TaskId, &str)> {
    let end = place.find('.').unwrap_or(place.len());
    let id = place[..end].parse().ok()?;
    Some((id, if end == place.len() { "." } else { &place[end..] }))
}

/// Takes a value from the result of a task, which need not pass through the caller's model.
fn result_value(id: TaskId, expression: &str, context: &Context) -> Result<FieldValue, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let file = ResultFile::read(&mailbox, id, &context.caller)?;
    if file.state != State::Succeeded {
        let (how, hint) = if file.is_final() {
            (format!("ended as {}", file.state), format!("see why: agent-magic-tool read {id}"))
        } else {
            ("has not ended".to_owned(), format!("wait for it first: agent-magic-tool wait {id}"))
        };
        return Err(Error::new(Code::InvalidInput, format!("task `{id}` {how}, so it has no data")).hint(hint));
    }
    let selected = result_data::evaluate_jq(expression, &file, &mailbox)?;
    for note in selected.notes {
        context.output.note(&note);
    }
    Ok(match selected.value {
        Value::String(text) => FieldValue::Text(text),
        value => FieldValue::Json(value),
    })
}
