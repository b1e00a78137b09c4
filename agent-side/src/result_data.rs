//! The data of a result, wherever it lies, and jq expressions over it.

use std::fs::File;
use std::io::{Cursor, Read, Seek};

use jq::worker::{self, CheckedOutputs};
use jq::{record_paths, select};
use protocol::code::Code;
use protocol::extent;
use protocol::layout::to_lines;
use protocol::mailbox::Mailbox;
use protocol::task::TaskId;
use serde_json::Value;

use crate::error::Error;
use crate::result::ResultFile;

/// The most data that `--jq` accepts, since evaluating an expression takes about ten times as much memory.
/// By default the executor keeps less than this of a result.
const MAX_JQ_BYTES: u64 = 128 << 20;

/// Of more data, a hint has a general example.
const MAX_EXAMPLE_BYTES: usize = 4 << 20;

/// The variable with which an expression sees what the result says about its data.
const META_VARIABLE: &str = "$_meta";

/// What an expression evaluated to, and what a reader who sees only that must know.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) value: Value,
    pub(crate) notes: Vec<String>,
}

/// Evaluates `expression` over the data of `file`: for every command with `--jq`.
pub(crate) fn evaluate_jq(expression: &str, file: &ResultFile, mailbox: &Mailbox) -> Result<Selected, Error> {
    let failed = |error: select::SelectError, data: &[u8]| {
        let hint = if worker::is_stopped(&error) {
            "write one that ends and looks at less of the data, like `.[0:10]`; or read a part with --page or --lines"
                .to_owned()
        } else {
            format!("EXPR is jq and sees only the data, like `{}`", example(data))
        };
        let hint =
            format!("{hint}; the task has ended, so do not run it again: agent-magic-tool read {} --jq EXPR", file.id);
        Error::new(Code::SelectFailed, error.to_string()).hint(hint)
    };
    let data = ResultData::of(file, mailbox)?;
    check_jq(expression)?;
    let data = data.whole()?;
    let meta = file.field("_meta");
    // Commands print the data in a field of that name; rows of a database have one of their own.
    let asks_for_data = begins_with_data(expression) && !has_data(&data);
    // An expression may end with a comment.
    let evaluated = if asks_for_data { format!("{{data: .}} | ({expression}\n)") } else { expression.to_owned() };
    // An expression can run forever, or exhaust the memory.
    let outputs = worker::outputs_in(&worker::own_program(), &evaluated, &[(META_VARIABLE, meta)], &data);
    let CheckedOutputs { values, missing: mut notes } = outputs.map_err(|error| failed(error, &data))?;
    let value = match <[Value; 1]>::try_from(values) {
        Ok([single]) => single,
        Err(values) => Value::Array(values),
    };
    if asks_for_data {
        notes.push(format!("EXPR sees only the data, so it needs no `.data` before it: write `{}`", example(&data)));
    }
    // One that looks at it knows.
    if !expression.contains(META_VARIABLE) {
        notes.extend(incompleteness(meta));
    }
    Ok(Selected { value, notes })
}

/// An expression that finds something in `data`.
fn example(data: &[u8]) -> String {
    let found = Some(data).filter(|data| data.len() <= MAX_EXAMPLE_BYTES).and_then(record_paths::example);
    found.unwrap_or_else(|| ".[0].id".to_owned())
}

/// Whether an expression looks at the field `data` first.
fn begins_with_data(expression: &str) -> bool {
    let rest = expression.trim_start().strip_prefix(".data");
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

fn has_data(data: &[u8]) -> bool {
    /// Only whether it is there.
    #[derive(serde::Deserialize)]
    struct Fields {
        data: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Fields>(data).is_ok_and(|fields| fields.data.is_some())
}

/// Checks that the expression compiles.
pub(crate) fn check_jq(expression: &str) -> Result<(), Error> {
    select::check_with(expression, &[META_VARIABLE])
        .map_err(|error| Error::usage(error.to_string()).hint("EXPR is jq, like `.[0].id`"))
}

/// Says that the data is not all there is, or not real.
fn incompleteness(meta: &Value) -> Option<String> {
    if meta["dry_run"] == true {
        return Some("this was a dry run; nothing was changed".to_owned());
    }
    if let Some(why) = meta["unfinished"]["message"].as_str() {
        return Some(format!("the work is not finished: {why}"));
    }
    let note = extent::note(meta)?;
    let all = extent::all_pages(meta).map(|all| format!("; {all}"));
    Some(format!("{note}; in EXPR this is `{META_VARIABLE}`{}", all.unwrap_or_default()))
}

pub(crate) fn read_error(id: TaskId, error: &std::io::Error) -> Error {
    Error::io(&format!("failed to read the data of task `{id}`"), error)
}

/// The data of a result: in the result file, or in a file of its own.
#[derive(Debug)]
pub(crate) enum ResultData {
    Inline(Value),
    File { id: TaskId, file: File, is_json: bool },
}

/// A seekable reader of the data.
pub(crate) struct Source {
    pub(crate) from: Box<dyn ReadSeek>,
    pub(crate) is_json: bool,
}

pub(crate) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

impl ResultData {
    /// The data of a task that succeeded.
    pub(crate) fn of(file: &ResultFile, mailbox: &Mailbox) -> Result<Self, Error> {
        let Some(path) = file.field("_meta")["data_file"].as_str() else {
            return Ok(Self::Inline(file.field("data").clone()));
        };
        // Only the extension is taken from the path: a forged result file must not choose which file is read.
        let extension =
            ["json", "txt", "bin"].into_iter().find(|extension| path.ends_with(&format!(".data.{extension}")));
        let extension = extension.ok_or_else(|| {
            Error::new(
                Code::NotFound,
                format!("the result file of task `{}` names a data file that is not its own", file.id),
            )
        })?;
        let opened = mailbox.open_data(file.id, extension).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Code::NotFound, format!("the data of task `{}` is gone", file.id)).hint("run it again")
            }
            _ => read_error(file.id, &error),
        })?;
        let bytes = opened.metadata().map_err(|error| read_error(file.id, &error))?.len();
        if file.field("_meta")["bytes"].as_u64().is_some_and(|written| written != bytes) {
            let message = format!("the data of task `{}` was changed after the task ended", file.id);
            return Err(Error::new(Code::Io, message).hint("run it again"));
        }
        Ok(Self::File { id: file.id, file: opened, is_json: extension == "json" })
    }

    pub(crate) fn source(self) -> Source {
        match self {
            Self::Inline(Value::String(text)) => Source { from: Box::new(Cursor::new(text)), is_json: false },
            Self::Inline(value) => Source { from: Box::new(Cursor::new(to_lines(&value))), is_json: true },
            Self::File { file, is_json, .. } => Source { from: Box::new(file), is_json },
        }
    }

    /// Returns all of the data as JSON text.
    pub(crate) fn whole(self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Inline(value) => Ok(value.to_string().into_bytes()),
            Self::File { id, mut file, is_json } => {
                let bytes = file.metadata().map_err(|error| read_error(id, &error))?.len();
                if bytes > MAX_JQ_BYTES {
                    let message = format!(
                        "{bytes} bytes of data are too much for --jq, which loads all of it into memory; at most {MAX_JQ_BYTES} are allowed"
                    );
                    return Err(Error::new(Code::ResponseTooLarge, message).hint(format!(
                        "read a part: agent-magic-tool read {id} --page 1, or --lines 1-100, or --bytes 0-9999"
                    )));
                }
                let mut whole = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
                file.read_to_end(&mut whole).map_err(|error| read_error(id, &error))?;
                if is_json {
                    return Ok(whole);
                }
                Ok(Value::from(String::from_utf8_lossy(&whole)).to_string().into_bytes())
            }
        }
    }
}
