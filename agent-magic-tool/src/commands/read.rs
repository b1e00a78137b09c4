//! `read`: a result, or the part of its data that is needed.
//!
//! Parts are taken straight out of the file that the data lies in, however large it is; only `--jq`
//! needs all of it in memory, so that has a limit.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::ops::RangeInclusive;

use executor::base::select;
use protocol::code::{Code, Exit};
use protocol::layout::laid_out;
use protocol::mailbox::Mailbox;
use protocol::part::{self, DataPart, PartContent};
use protocol::task::TaskId;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::result::{self, ResultFile};

/// More data than this is not given to a jq expression, which takes some ten times as much memory;
/// it is more than the executor keeps of a result unless it is told to.
const MAX_JQ_BYTES: u64 = 128 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The task: its id, or the path of its result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// A jq expression over the data alone: `.[0].id`, not `.data[0].id`; several outputs make an array
    #[arg(long, value_name = "EXPR")]
    jq: Option<String>,
    /// This page of a list, from 1; with --jq the list that EXPR gives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    page: Option<u64>,
    /// How many items a page has
    #[arg(long, value_name = "N", default_value_t = 100, requires = "page", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    page_size: u64,
    /// These bytes of the data, from 0, both ends included, a million at most; `A-` is to the end
    #[arg(long, value_name = "A-B", conflicts_with_all = ["jq", "page", "lines"])]
    bytes: Option<Range>,
    /// These lines of the data, from 1, both ends included; in JSON a line is an item where that fits
    #[arg(long, value_name = "A-B", conflicts_with_all = ["jq", "page"])]
    lines: Option<Range>,
}

#[derive(Debug, Clone)]
struct Range(RangeInclusive<u64>);

impl std::str::FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` is no range; write it like 1-200");
        let number = |text: &str| text.parse::<u64>().map_err(|_| malformed());
        let (first, last) = text.split_once('-').ok_or_else(malformed)?;
        let (first, last) = (number(first)?, if last.is_empty() { u64::MAX } else { number(last)? });
        if first <= last { Ok(Self(first..=last)) } else { Err(format!("`{text}` ends before it begins")) }
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
            let (value, misled) = by_jq(expression, data()?)?;
            note = misled;
            match page {
                Some(page) => {
                    let again = format!("--jq {} ", quoted(expression));
                    paged(Cursor::new(value.to_string()), file.id, &again, *page, args.page_size)?
                }
                None => value,
            }
        }
        Args { page: Some(page), .. } => match data()?.source() {
            Source { is_json: true, from } => paged(from, file.id, "", *page, args.page_size)?,
            Source { .. } => return Err(no_list("the data is a text, and no list", file.id)),
        },
        Args { bytes: Some(Range(range)), .. } => {
            let part = part::bytes(data()?.source().from, range).map_err(|error| unreadable(file.id, &error))?;
            shown(&part, "bytes", range, file.id)?
        }
        Args { lines: Some(Range(range)), .. } => {
            let source = BufReader::with_capacity(1 << 16, data()?.source().from);
            let part = part::lines(source, range).map_err(|error| unreadable(file.id, &error))?;
            shown(&part, "lines", range, file.id)?
        }
        Args { .. } => file.answer(&mailbox),
    };
    context.output.json(&part)?;
    result::collected(&[file], &mailbox, context);
    if let Some(note) = note {
        context.output.note(note);
    }
    Ok(Exit::Ok)
}

fn by_jq(expression: &str, data: ResultData) -> Result<(Value, Option<&'static str>), Error> {
    let wrong = |error: select::SelectError| {
        Error::new(Code::SelectFailed, error.to_string()).hint("EXPR is jq over the data alone, like `.[0].id`")
    };
    select::check(expression).map_err(|error| Error::usage(error.to_string()).hint("EXPR is jq, like `.[0].id`"))?;
    let outputs = select::outputs_of(expression, &data.whole()?).map_err(wrong)?;
    let part = match <[Value; 1]>::try_from(outputs) {
        Ok([single]) => single,
        Err(outputs) => Value::Array(outputs),
    };
    let is_misled = part.is_null() && expression.trim_start().starts_with(".data");
    Ok((part, is_misled.then_some("EXPR sees the data alone: `.[0].id`, not `.data[0].id`")))
}

fn paged(list: impl Read, id: TaskId, again: &str, number: u64, size: u64) -> Result<Value, Error> {
    let page = part::page(list, (number - 1).saturating_mul(size), size).map_err(|error| match error {
        part::PageError::Malformed(_) => Error::new(Code::Io, error.to_string()),
        part::PageError::Object(_) | part::PageError::NoList => no_list(&error.to_string(), id),
    })?;
    let pages = page.of.div_ceil(size).max(1);
    if number > pages {
        return Err(Error::usage(format!("there is no page {number}: {} items make {pages} of {size}", page.of)));
    }
    let mut answer = Map::new();
    answer.insert("id".to_owned(), id.to_string().into());
    answer.insert("page".to_owned(), number.into());
    answer.insert("pages".to_owned(), pages.into());
    answer.insert("of".to_owned(), page.of.into());
    answer.insert("items".to_owned(), page.items.into());
    if number < pages {
        let size = if size == 100 { String::new() } else { format!(" --page-size {size}") };
        let next = format!("agent-magic-tool read {id} {again}--page {}{size}", number + 1);
        answer.insert("next".to_owned(), next.into());
    }
    Ok(Value::Object(answer))
}

fn no_list(message: &str, id: TaskId) -> Error {
    Error::usage(message).hint(format!(
        "take the list out of it: agent-magic-tool read {id} --jq '.items' --page 1; or read --lines 1-100"
    ))
}

/// A part as it is printed: what it is, of how much, and how to go on if it is less than was asked for.
fn shown(part: &DataPart, unit: &str, asked: &RangeInclusive<u64>, id: TaskId) -> Result<Value, Error> {
    let origin = u64::from(unit == "lines");
    if part.end == part.first && *asked.start() > origin {
        return Err(Error::usage(format!("{unit} {}- are beyond the end: there are {}", asked.start(), part.of)));
    }
    let mut answer = Map::new();
    answer.insert("id".to_owned(), id.to_string().into());
    let range = if part.end > part.first { json!([part.first, part.end - 1]) } else { json!([]) };
    answer.insert(unit.to_owned(), range);
    answer.insert("of".to_owned(), part.of.into());
    match part.content() {
        PartContent::Text(text) => answer.insert("text".to_owned(), text.into()),
        PartContent::Base64(text) => answer.insert("base64".to_owned(), text.into()),
    };
    let is_all = part.end > *asked.end() || part.end >= part.of + origin;
    let next = if part.is_cut {
        // Its only line is too long: what is missing of it can be had by bytes.
        Some(format!("--bytes {}-", part.at + part.bytes.len() as u64))
    } else {
        (!is_all).then(|| format!("--{unit} {}-", part.end))
    };
    if let Some(next) = next {
        let last = if part.is_cut || *asked.end() == u64::MAX { String::new() } else { asked.end().to_string() };
        answer.insert("next".to_owned(), format!("agent-magic-tool read {id} {next}{last}").into());
    }
    Ok(Value::Object(answer))
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn unreadable(id: TaskId, error: &std::io::Error) -> Error {
    Error::io(&format!("the data of task `{id}` cannot be read"), error)
}

/// A result's data: in the file, or beside it.
#[derive(Debug)]
enum ResultData {
    Here(Value),
    Beside { id: TaskId, file: File, is_json: bool },
}

/// Data to be read from its beginning or from anywhere.
struct Source {
    from: Box<dyn Anywhere>,
    is_json: bool,
}

trait Anywhere: Read + Seek {}

impl<T: Read + Seek> Anywhere for T {}

impl ResultData {
    fn of(file: &ResultFile, mailbox: &Mailbox) -> Result<Self, Error> {
        if !file.is_final() {
            return Err(Error::new(Code::NotFound, format!("task `{}` has no data yet", file.id))
                .hint(format!("agent-magic-tool wait {}", file.id)));
        }
        let error = file.field("error");
        if !error.is_null() {
            // A failed task's data is what it says about the failure.
            return Ok(Self::Here(error.clone()));
        }
        let Some(path) = file.field("_meta")["data_file"].as_str() else {
            return Ok(Self::Here(file.field("data").clone()));
        };
        // Of the path only this counts: where data lies is ours to say.
        let extension =
            ["json", "txt", "bin"].into_iter().find(|extension| path.ends_with(&format!(".data.{extension}")));
        let extension = extension.ok_or_else(|| {
            Error::new(
                Code::NotFound,
                format!("the result file of task `{}` names data that is none of its own", file.id),
            )
        })?;
        let opened = mailbox.open_data(file.id, extension).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Code::NotFound, format!("the data of task `{}` is gone", file.id)).hint("run it again")
            }
            _ => unreadable(file.id, &error),
        })?;
        Ok(Self::Beside { id: file.id, file: opened, is_json: extension == "json" })
    }

    fn source(self) -> Source {
        match self {
            Self::Here(Value::String(text)) => Source { from: Box::new(Cursor::new(text)), is_json: false },
            Self::Here(value) => Source { from: Box::new(Cursor::new(laid_out(&value))), is_json: true },
            Self::Beside { file, is_json, .. } => Source { from: Box::new(file), is_json },
        }
    }

    /// All of it, as JSON text.
    fn whole(self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Here(value) => Ok(value.to_string().into_bytes()),
            Self::Beside { id, mut file, is_json } => {
                let bytes = file.metadata().map_err(|error| unreadable(id, &error))?.len();
                if bytes > MAX_JQ_BYTES {
                    let message = format!(
                        "{bytes} bytes are too much for --jq, which needs all of it in memory: the most is {MAX_JQ_BYTES}"
                    );
                    return Err(Error::new(Code::ResponseTooLarge, message).hint(format!(
                        "read a part: agent-magic-tool read {id} --page 1, or --lines 1-100, or --bytes 0-9999"
                    )));
                }
                let mut whole = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
                file.read_to_end(&mut whole).map_err(|error| unreadable(id, &error))?;
                if is_json {
                    return Ok(whole);
                }
                Ok(Value::from(String::from_utf8_lossy(&whole)).to_string().into_bytes())
            }
        }
    }
}
