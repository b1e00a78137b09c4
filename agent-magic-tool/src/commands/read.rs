//! `read`: a result, or the part of its data that is needed.

use std::ops::RangeInclusive;

use executor::code::{Code, Exit};
use executor::mailbox::Mailbox;
use executor::task::TaskId;
use executor::{json, select};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::result::{self, ResultFile};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task: its id, or the path of its result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// A jq expression over the data alone: `.[0].id`, not `.data[0].id`; several outputs make an array
    #[arg(long, value_name = "EXPR", group = "part")]
    jq: Option<String>,
    /// These bytes of the data, from 0, both ends included
    #[arg(long, value_name = "A-B", group = "part")]
    bytes: Option<Range>,
    /// These lines of the data, from 1, both ends included; JSON is indented first
    #[arg(long, value_name = "A-B", group = "part")]
    lines: Option<Range>,
}

#[derive(Debug, Clone)]
struct Range(RangeInclusive<usize>);

impl std::str::FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` is no range; write it like 1-200");
        let (first, last) = text.split_once('-').ok_or_else(malformed)?;
        let (first, last) = (first.parse().map_err(|_| malformed())?, last.parse().map_err(|_| malformed())?);
        if first <= last { Ok(Self(first..=last)) } else { Err(format!("`{text}` ends before it begins")) }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.places.mailbox)?;
    let file = ResultFile::read(&mailbox, result::task_of(&args.task, &mailbox)?)?;
    if !file.is_final() {
        launch::revive(&context.places, &mailbox);
    }
    let (part, note) = match (&args.jq, &args.bytes, &args.lines) {
        (Some(expression), ..) => by_jq(expression, &Data::of(&file, &mailbox)?)?,
        (_, Some(Range(bytes)), _) => (Data::of(&file, &mailbox)?.bytes(file.id, bytes), None),
        (.., Some(Range(lines))) => (Data::of(&file, &mailbox)?.lines(file.id, lines)?, None),
        _ => (file.answer(&mailbox), None),
    };
    context.output.json(&part)?;
    if let Some(note) = note {
        context.output.note(note);
    }
    Ok(Exit::Ok)
}

fn by_jq(expression: &str, data: &Data) -> Result<(Value, Option<&'static str>), Error> {
    let wrong = |error: select::SelectError| {
        Error::new(Code::SelectFailed, error.to_string()).hint("EXPR is jq over the data alone, like `.[0].id`")
    };
    select::check(expression).map_err(|error| Error::usage(error.to_string()).hint("EXPR is jq, like `.[0].id`"))?;
    let outputs = select::outputs(expression, &data.parsed()?).map_err(wrong)?;
    let part = match <[Value; 1]>::try_from(outputs) {
        Ok([single]) => single,
        Err(outputs) => Value::Array(outputs),
    };
    let is_misled = part.is_null() && expression.trim_start().starts_with(".data");
    Ok((part, is_misled.then_some("EXPR sees the data alone: `.[0].id`, not `.data[0].id`")))
}

/// A result's data: in the file, or beside it.
#[derive(Debug)]
enum Data {
    Json(Value),
    /// Raw bytes beside the result file.
    Raw {
        bytes: Vec<u8>,
        is_json: bool,
    },
}

impl Data {
    fn of(file: &ResultFile, mailbox: &Mailbox) -> Result<Self, Error> {
        if !file.is_final() {
            return Err(Error::new(Code::NotFound, format!("task `{}` has no data yet", file.id))
                .hint(format!("agent-magic-tool wait {}", file.id)));
        }
        let error = file.field("error");
        if !error.is_null() {
            // A failed task's data is what it says about the failure.
            return Ok(Self::Json(error.clone()));
        }
        let beside = file.field("_meta")["data_file"].as_str().and_then(|path| path.rsplit_once('.'));
        let Some((_, extension)) = beside else { return Ok(Self::Json(file.field("data").clone())) };
        let bytes = mailbox
            .read_data(file.id, extension)
            .map_err(|error| Error::io(&format!("the data of task `{}` cannot be read", file.id), &error))?;
        Ok(Self::Raw { bytes, is_json: extension == "json" })
    }

    fn parsed(&self) -> Result<Value, Error> {
        match self {
            Self::Json(value) => Ok(value.clone()),
            Self::Raw { bytes, is_json: true } => {
                json::parse(bytes).map_err(|error| Error::new(Code::Io, format!("the data is not valid JSON: {error}")))
            }
            Self::Raw { bytes, .. } => Ok(Value::String(String::from_utf8_lossy(bytes).into_owned())),
        }
    }

    fn bytes(&self, id: TaskId, range: &RangeInclusive<usize>) -> Value {
        let text;
        let all: &[u8] = match self {
            Self::Json(Value::String(string)) => string.as_bytes(),
            Self::Json(value) => {
                text = value.to_string();
                text.as_bytes()
            }
            Self::Raw { bytes, .. } => bytes,
        };
        let (first, end) = ((*range.start()).min(all.len()), range.end().saturating_add(1).min(all.len()));
        let part = String::from_utf8_lossy(&all[first..end]);
        json!({"id": id, "bytes": [first, end], "of": all.len(), "text": part})
    }

    fn lines(&self, id: TaskId, range: &RangeInclusive<usize>) -> Result<Value, Error> {
        let text = match self.parsed()? {
            Value::String(text) => text,
            value => serde_json::to_string_pretty(&value).expect("JSON can be written"),
        };
        let all: Vec<_> = text.lines().collect();
        let (first, end) = (range.start().saturating_sub(1).min(all.len()), (*range.end()).min(all.len()));
        let part = all.get(first..end).unwrap_or_default().join("\n");
        Ok(json!({"id": id, "lines": [first + 1, end], "of": all.len(), "text": part}))
    }
}
