//! `read`: prints a result, or part of its data. A task that has not succeeded has no data: whatever part was asked for,
//! its state or its error is printed, with its exit status.
//!
//! Parts are read directly from the data's file, whatever its size. Only `--jq` needs all data in memory, so its
//! size is limited.

use std::io::{BufReader, Cursor, Read};
use std::ops::RangeInclusive;

use protocol::code::{Code, Exit};
use protocol::mailbox::Mailbox;
use protocol::part::{self, DataPart, ListPage, PartContent};
use protocol::task::{State, TaskId};
use protocol::wording::{counted, inflected};
use serde_json::{Map, Value, json};

use crate::answer::{self, quoted};
use crate::context::Context;
use crate::error::Error;
use crate::launch;
use crate::option_value::number;
use crate::output::Output;
use crate::result::{self, ResultFile};
use crate::result_data::{ResultData, Source, evaluate_jq, read_error};

const DEFAULT_PAGE_SIZE: u64 = 100;
/// The most bytes of lines that are printed at once: a line can be of any length, and a model pays for each character.
const MAX_LINES_BYTES: usize = 32 << 10;
/// How many bytes the next part of a line has that is longer than this.
const NEXT_BYTES: u64 = 10_000;
/// A part with fewer bytes can always be printed: each takes at most six in JSON.
const MIN_PART_BYTES: usize = 8_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The task: an id, or the path of a result file
    #[arg(value_name = "ID|FILE")]
    task: String,
    /// A jq expression that sees only the data: `.[0].id`, not `.data[0].id`; several outputs make an array
    #[arg(long, value_name = "EXPR")]
    jq: Option<String>,
    /// This page of a list, from 1; with --jq, of the list that EXPR returns
    #[arg(long, value_name = "N", value_parser = number::<1, 1_000_000_000>)]
    page: Option<u64>,
    /// Items per page
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PAGE_SIZE, requires = "page", value_parser = number::<1, 10_000>)]
    page_size: u64,
    /// These bytes of the data, from 0, both ends included, at most 32 KB; `A-` reads on from there
    #[arg(long, value_name = "A-B", conflicts_with_all = ["jq", "page", "lines"])]
    bytes: Option<Range>,
    /// These lines of the data, from 1, both ends included, at most 32 KB; JSON has one item per line where that fits
    #[arg(long, value_name = "A-B", conflicts_with_all = ["jq", "page"], value_parser = line_range)]
    lines: Option<Range>,
}

#[derive(Debug, Clone)]
struct Range(RangeInclusive<u64>);

impl std::str::FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("`{text}` is not a range; write it like 1-200, or 201- for all that follows");
        let number = |text: &str| text.parse::<u64>().map_err(|_| malformed());
        let (first, last) = text.split_once('-').ok_or_else(malformed)?;
        let (first, last) = (number(first)?, if last.is_empty() { u64::MAX } else { number(last)? });
        if first <= last {
            Ok(Self(first..=last))
        } else {
            Err(format!("the range `{text}` ends before it starts; write the smaller number first, like 1-200"))
        }
    }
}

fn line_range(text: &str) -> Result<Range, String> {
    let range: Range = text.parse()?;
    if *range.0.start() == 0 {
        Err("lines count from 1, so there is no line 0; write it like 1-200".to_owned())
    } else {
        Ok(range)
    }
}

pub fn run(args: &Args, context: &Context) -> Result<Exit, Error> {
    let mailbox = Mailbox::open(&context.paths.mailbox)?;
    let file = ResultFile::read(&mailbox, result::task_of(&args.task, &mailbox)?, &context.caller)?;
    if !file.is_final() {
        launch::revive(context, &mailbox);
    }
    if file.state != State::Succeeded {
        return answer::print(&[file], None, &mailbox, context);
    }
    let data = || ResultData::of(&file, &mailbox);
    let output = &context.output;
    let mut notes = Vec::new();
    let mut rest = format!("a part of it: agent-magic-tool read {} --jq EXPR", file.id);
    let part = match args {
        Args { jq: Some(expression), page, .. } => {
            let selected = evaluate_jq(expression, &file, &mailbox)?;
            notes = selected.notes;
            rest = answer::rest_of_selected(&file, expression);
            match page {
                Some(page) => {
                    let jq_option = format!("--jq {} ", quoted(expression));
                    let place = PagePlace { number: *page, size: args.page_size };
                    let list = read_page(Cursor::new(selected.value.to_string()), &file, place)?;
                    fitting_page(place, output, |place| page_answer(&list, &file, &jq_option, place))?
                }
                None => selected.value,
            }
        }
        Args { page: Some(page), .. } => {
            let place = PagePlace { number: *page, size: args.page_size };
            let list = match data()?.source() {
                Source { is_json: true, from } => read_page(from, &file, place)?,
                Source { .. } => return Err(not_a_list("the data is text, not a list", &file)),
            };
            fitting_page(place, output, |place| page_answer(&list, &file, "", place))?
        }
        Args { bytes: Some(Range(range)), .. } => fitting_part(part::MAX_BYTES, output, |max_bytes| {
            let part = part::bytes(data()?.source().from, range, max_bytes);
            part_answer(&part.map_err(|error| read_error(file.id, &error))?, "bytes", range, file.id)
        })?,
        Args { lines: Some(Range(range)), .. } => fitting_part(MAX_LINES_BYTES, output, |max_bytes| {
            let source = BufReader::with_capacity(1 << 16, data()?.source().from);
            let part = part::lines(source, range, max_bytes);
            part_answer(&part.map_err(|error| read_error(file.id, &error))?, "lines", range, file.id)
        })?,
        Args { .. } => answer::document(&file),
    };
    output.json_or(&part, &rest)?;
    result::remove_wakeups(&[file], &mailbox, context);
    for note in notes {
        output.note(&note);
    }
    Ok(Exit::Ok)
}

/// Reads a part of at most `max_bytes`, or of as many as can be printed at once: what is escaped needs more.
fn fitting_part(
    max_bytes: usize,
    output: &Output,
    read: impl Fn(usize) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let mut max_bytes = if output.is_whole() { max_bytes } else { max_bytes.min(MAX_LINES_BYTES) };
    loop {
        let part = read(max_bytes)?;
        if output.fits(&part) || max_bytes <= MIN_PART_BYTES {
            return Ok(part);
        }
        max_bytes /= 2;
    }
}

/// Which page of a list.
#[derive(Debug, Clone, Copy)]
struct PagePlace {
    number: u64,
    size: u64,
}

/// Answers with a page, or if it is too much to print with the page that begins at the same item and has fewer.
fn fitting_page(
    place: PagePlace,
    output: &Output,
    answer: impl Fn(PagePlace) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let page = answer(place)?;
    if output.fits(&page) {
        return Ok(page);
    }
    let is_divisor = |size: &u64| place.size.is_multiple_of(*size);
    for size in (1..=place.size / 2).rev().filter(is_divisor) {
        let page = answer(PagePlace { number: (place.number - 1) * (place.size / size) + 1, size })?;
        if output.fits(&page) {
            output.note(&format!("{} items are too much to print at once; these pages have {size}", place.size));
            return Ok(page);
        }
    }
    Ok(page)
}

/// Reads the items of a page, which can take long: once, also if fewer of them are printed.
fn read_page(list: impl Read, file: &ResultFile, place: PagePlace) -> Result<ListPage, Error> {
    let PagePlace { number, size } = place;
    part::page(list, (number - 1).saturating_mul(size), size).map_err(|error| match error {
        part::PageError::Malformed(_) => Error::new(Code::Io, error.to_string()),
        part::PageError::Object(_) | part::PageError::NotAList => not_a_list(&error.to_string(), file),
    })
}

/// The page at `place` of a list, whose first items are those of `page`. `jq_option` is repeated in the command for the
/// next page.
fn page_answer(page: &ListPage, file: &ResultFile, jq_option: &str, place: PagePlace) -> Result<Value, Error> {
    let PagePlace { number, size } = place;
    let id = file.id;
    let pages = page.total.div_ceil(size).max(1);
    if number > pages {
        return Err(Error::usage(format!(
            "there is no page {number}: {} {} of {size}",
            inflected(page.total, "item makes", "items make"),
            counted(pages, "page")
        ))
        .hint(format!(
            "the last page: agent-magic-tool read {id} {jq_option}--page {pages}{}",
            page_size_option(size)
        )));
    }
    let mut answer = Map::new();
    answer.insert("id".to_owned(), id.to_string().into());
    answer.insert("page".to_owned(), number.into());
    answer.insert("pages".to_owned(), pages.into());
    answer.insert("of".to_owned(), page.total.into());
    let items = page.items.iter().take(usize::try_from(size).unwrap_or(usize::MAX));
    answer.insert("items".to_owned(), items.cloned().collect());
    if number < pages {
        let next = format!("agent-magic-tool read {id} {jq_option}--page {}{}", number + 1, page_size_option(size));
        answer.insert("next".to_owned(), next.into());
    }
    Ok(Value::Object(answer))
}

fn page_size_option(size: u64) -> String {
    if size == DEFAULT_PAGE_SIZE { String::new() } else { format!(" --page-size {size}") }
}

fn not_a_list(message: &str, file: &ResultFile) -> Error {
    let id = file.id;
    // The commands in the result file name the longest list; small data is here to look at.
    let ready = file.field("_meta")["read"][0].as_str().filter(|command| command.contains("--page")).map(str::to_owned);
    let list = || {
        let fields = file.field("data").as_object()?;
        let lists = fields.iter().filter_map(|(key, value)| Some((value.as_array()?.len(), key)));
        let key = Value::from(lists.max_by_key(|(length, _)| *length)?.1.as_str());
        Some(format!("agent-magic-tool read {id} --jq '.[{key}]' --page 1"))
    };
    Error::usage(message).hint(match ready.or_else(list) {
        Some(command) => format!("the list in it: {command}"),
        None => format!("there is no list in it; read lines of it: agent-magic-tool read {id} --lines 1-100"),
    })
}

/// A part as it is printed: its range, the total, and the next command if it is less than was requested.
fn part_answer(part: &DataPart, unit: &str, requested: &RangeInclusive<u64>, id: TaskId) -> Result<Value, Error> {
    let origin = u64::from(unit == "lines");
    if part.end == part.first && *requested.start() > origin {
        return Err(Error::usage(format!(
            "{unit} {}- are beyond the end: the data has {} {unit}",
            requested.start(),
            part.total
        ))
        .hint(format!("from the beginning: agent-magic-tool read {id} --{unit} {origin}-")));
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
        let first = part.offset + part.bytes.len() as u64;
        Some(format!("--bytes {first}-{}", first + NEXT_BYTES - 1))
    } else {
        let last = if *requested.end() == u64::MAX { String::new() } else { requested.end().to_string() };
        (!is_all).then(|| format!("--{unit} {}-{last}", part.end))
    };
    if let Some(next) = next {
        answer.insert("next".to_owned(), format!("agent-magic-tool read {id} {next}").into());
    }
    Ok(Value::Object(answer))
}
