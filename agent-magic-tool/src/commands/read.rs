//! `read`: prints a result, or part of its data.
//!
//! Parts are read directly from the data's file, whatever its size. Only `--jq` needs all data in memory, so its
//! size is limited.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::ops::RangeInclusive;

use executor::base::select;
use protocol::code::{Code, Exit};
use protocol::layout::to_lines;
use protocol::mailbox::Mailbox;
use protocol::part::{self, DataPart, PartContent};
use protocol::task::TaskId;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::result::{self, ResultFile};

/// The most data that `--jq` accepts, since evaluating an expression takes about ten times as much memory.
/// By default the executor keeps less than this of a result.
const MAX_JQ_BYTES: u64 = 128 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// A jq expression that sees only the data: `.[0].id`, not `.data[0].id`; several outputs make an array
    #[arg(long, value_name = "EXPR")]
    jq: Option<String>,
    /// This page of a list, from 1; with --jq, of the list that EXPR returns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    page: Option<u64>,
    /// Items per page
    #[arg(long, value_name = "N", default_value_t = 100, requires = "page", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    page_size: u64,
    /// These bytes of the data, from 0, both ends included, at most a million; `A-` reads to the end
    #[arg(long, value_name = "A-B", conflicts_with_all = ["jq", "page", "lines"])]
    bytes: Option<Range>,
    /// These lines of the data, from 1, both ends included; JSON has one item per line where that fits
    #[arg(long, value_name = "A-B", conflicts_with_all = ["jq", "page"])]
    lines: Option<Range>,
}

#[derive(Debug, Clone)]
struct Range(RangeInclusive<u64>);

impl std::str::FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` is not a valid range; write it like 1-200");
        let number = |text: &str| text.parse::<u64>().map_err(|_| malformed());
        let (first, last) = text.split_once('-').ok_or_else(malformed)?;
        let (first, last) = (number(first)?, if last.is_empty() { u64::MAX } else { number(last)? });
        if first <= last { Ok(Self(first..=last)) } else { Err(format!("the range `{text}` ends before it starts")) }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let file = ResultFile::read(&mailbox, result::task_of(&args.task, &mailbox)?)?;
    if !file.is_final() {
        launch::revive(&context.paths, &mailbox);
    }
    let data = || ResultData::of(&file, &mailbox);
    let mut note = None;
    let part = match args {
        Args { jq: Some(expression), page, .. } => {
            let (value, jq_note) = evaluate_jq(expression, data()?)?;
            note = jq_note;
            match page {
                Some(page) => {
                    let jq_option = format!("--jq {} ", quoted(expression));
                    page_answer(Cursor::new(value.to_string()), file.id, &jq_option, *page, args.page_size)?
                }
                None => value,
            }
        }
        Args { page: Some(page), .. } => match data()?.source() {
            Source { is_json: true, from } => page_answer(from, file.id, "", *page, args.page_size)?,
            Source { .. } => return Err(not_a_list("the data is text, not a list", file.id)),
        },
        Args { bytes: Some(Range(range)), .. } => {
            let part = part::bytes(data()?.source().from, range).map_err(|error| read_error(file.id, &error))?;
            part_answer(&part, "bytes", range, file.id)?
        }
        Args { lines: Some(Range(range)), .. } => {
            let source = BufReader::with_capacity(1 << 16, data()?.source().from);
            let part = part::lines(source, range).map_err(|error| read_error(file.id, &error))?;
            part_answer(&part, "lines", range, file.id)?
        }
        Args { .. } => file.answer(&mailbox),
    };
    context.output.json(&part)?;
    result::remove_wakeups(&[file], &mailbox, context);
    if let Some(note) = note {
        context.output.note(note);
    }
    Ok(Exit::Ok)
}

/// Evaluates `expression` over the data. Also returns a note if the expression probably addressed the wrong level.
fn evaluate_jq(expression: &str, data: ResultData) -> Result<(Value, Option<&'static str>), Error> {
    let failed = |error: select::SelectError| {
        Error::new(Code::SelectFailed, error.to_string()).hint("EXPR is jq and sees only the data, like `.[0].id`")
    };
    select::check(expression).map_err(|error| Error::usage(error.to_string()).hint("EXPR is jq, like `.[0].id`"))?;
    let outputs = select::outputs_of(expression, &data.whole()?).map_err(failed)?;
    let part = match <[Value; 1]>::try_from(outputs) {
        Ok([single]) => single,
        Err(outputs) => Value::Array(outputs),
    };
    let is_wrong_level = part.is_null() && expression.trim_start().starts_with(".data");
    Ok((part, is_wrong_level.then_some("EXPR sees only the data: write `.[0].id`, not `.data[0].id`")))
}

/// Page `number` of a list. `jq_option` is repeated in the command for the next page.
fn page_answer(list: impl Read, id: TaskId, jq_option: &str, number: u64, size: u64) -> Result<Value, Error> {
    let page = part::page(list, (number - 1).saturating_mul(size), size).map_err(|error| match error {
        part::PageError::Malformed(_) => Error::new(Code::Io, error.to_string()),
        part::PageError::Object(_) | part::PageError::NotAList => not_a_list(&error.to_string(), id),
    })?;
    let pages = page.total.div_ceil(size).max(1);
    if number > pages {
        return Err(Error::usage(format!(
            "there is no page {number}: {} items make {pages} pages of {size}",
            page.total
        )));
    }
    let mut answer = Map::new();
    answer.insert("id".to_owned(), id.to_string().into());
    answer.insert("page".to_owned(), number.into());
    answer.insert("pages".to_owned(), pages.into());
    answer.insert("of".to_owned(), page.total.into());
    answer.insert("items".to_owned(), page.items.into());
    if number < pages {
        let size = if size == 100 { String::new() } else { format!(" --page-size {size}") };
        let next = format!("agent-magic-tool read {id} {jq_option}--page {}{size}", number + 1);
        answer.insert("next".to_owned(), next.into());
    }
    Ok(Value::Object(answer))
}

fn not_a_list(message: &str, id: TaskId) -> Error {
    Error::usage(message).hint(format!(
        "select the list in it: agent-magic-tool read {id} --jq '.FIELD' --page 1; or read --lines 1-100"
    ))
}

/// A part as it is printed: its range, the total, and the next command if it is less than was requested.
fn part_answer(part: &DataPart, unit: &str, requested: &RangeInclusive<u64>, id: TaskId) -> Result<Value, Error> {
    let origin = u64::from(unit == "lines");
    if part.end == part.first && *requested.start() > origin {
        return Err(Error::usage(format!(
            "{unit} {}- are beyond the end: the data has {} {unit}",
            requested.start(),
            part.total
        )));
    }
    let mut answer = Map::new();
    answer.insert("id".to_owned(), id.to_string().into());
    let range = if part.end > part.first { json!([part.first, part.end - 1]) } else { json!([]) };
    answer.insert(unit.to_owned(), range);
    answer.insert("of".to_owned(), part.total.into());
    match part.content() {
        PartContent::Text(text) => answer.insert("text".to_owned(), text.into()),
        PartContent::Base64(text) => answer.insert("base64".to_owned(), text.into()),
    };
    let is_all = part.end > *requested.end() || part.end >= part.total + origin;
    let next = if part.is_cut {
        // Its only line is too long; the rest of the line can be read by bytes.
        Some(format!("--bytes {}-", part.offset + part.bytes.len() as u64))
    } else {
        (!is_all).then(|| format!("--{unit} {}-", part.end))
    };
    if let Some(next) = next {
        let last =
            if part.is_cut || *requested.end() == u64::MAX { String::new() } else { requested.end().to_string() };
        answer.insert("next".to_owned(), format!("agent-magic-tool read {id} {next}{last}").into());
    }
    Ok(Value::Object(answer))
}

/// Quotes `text` as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn read_error(id: TaskId, error: &std::io::Error) -> Error {
    Error::io(&format!("failed to read the data of task `{id}`"), error)
}

/// The data of a result: in the result file, or in a file of its own.
#[derive(Debug)]
enum ResultData {
    Inline(Value),
    File { id: TaskId, file: File, is_json: bool },
}

/// A seekable reader of the data.
struct Source {
    from: Box<dyn ReadSeek>,
    is_json: bool,
}

trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

impl ResultData {
    fn of(file: &ResultFile, mailbox: &Mailbox) -> Result<Self, Error> {
        if !file.is_final() {
            return Err(Error::new(Code::NotFound, format!("task `{}` has no data yet", file.id))
                .hint(format!("agent-magic-tool wait {}", file.id)));
        }
        let error = file.field("error");
        if !error.is_null() {
            // The data of a failed task is its error.
            return Ok(Self::Inline(error.clone()));
        }
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
        Ok(Self::File { id: file.id, file: opened, is_json: extension == "json" })
    }

    fn source(self) -> Source {
        match self {
            Self::Inline(Value::String(text)) => Source { from: Box::new(Cursor::new(text)), is_json: false },
            Self::Inline(value) => Source { from: Box::new(Cursor::new(to_lines(&value))), is_json: true },
            Self::File { file, is_json, .. } => Source { from: Box::new(file), is_json },
        }
    }

    /// Returns all of the data as JSON text.
    fn whole(self) -> Result<Vec<u8>, Error> {
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
