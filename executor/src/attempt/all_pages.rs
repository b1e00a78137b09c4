//! All pages of a list as one result: the same call for each page, and their items joined.
//!
//! Only for what reads, and only where the next page is known: a request over HTTP whose definition has `pagination`
//! walks on by itself; any other subtool has the number of a page among its parameters.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use definition::Definition;
use definition::run::Run;
use ground::base::schema::InputSchema;
use ground::config::{Config, seal};
use ground::task::Outcome;
use ground::task::effect::EffectClass;
use ground::task::failure::Failure;
use ground::task::name::SubtoolName;
use protocol::code::Code;
use protocol::extent::{self, DataExtent, More};
use protocol::layout::compact_bytes;
use protocol::wording::inflected;
use runner::{OutputData, RunnerOutput};
use serde_json::{Map, Value};

use super::lookup::LookupCall;
use super::paging::{self, PageParameters};
use super::part::says_more;
use super::{Attempt, Invocation, pinned};

/// The most pages of one result.
const MAX_PAGES: u32 = 500;
/// The most data of one result, as compact JSON: all of it is held in memory.
const MAX_BYTES: u64 = 16 << 20;
/// The names of the list of a page that has several.
const LISTS: [&str; 5] = ["rows", "items", "data", "results", "records"];
/// What `_meta` says about one page, and not about all of them.
const OF_ONE_PAGE: [&str; 5] = ["page", "limit", "asked_limit", "has_next_page", "more_pages"];

/// Fails unless all pages of the subtool `name` can be read.
pub fn check(name: &SubtoolName, definition: &Definition, config: &Config) -> Result<(), Failure> {
    let why = if definition.effect_class() != EffectClass::Read {
        "it does not only read"
    } else if definition.run.delegates() || definition.run.shares_its_tasks() {
        "it runs other subtools"
    } else if !walks_by_itself(definition) && PageParameters::of(definition).is_none() {
        "its input has no `page` or other number of a page"
    } else if is_limited(name, definition, config) {
        "how often it may be called is limited, and each page is a call"
    } else {
        return Ok(());
    };
    Err(refused(name, why))
}

/// The error of a call with `--all` that would ask a human: they would be shown one page of many.
pub fn needs_human(name: &SubtoolName) -> Failure {
    refused(name, "a human must approve it, and would be shown one page only")
}

fn refused(name: &SubtoolName, why: &str) -> Failure {
    Failure::new(Code::Usage, format!("`--all` does not read the pages of `{name}`: {why}"))
        .hint("leave `--all` out, and read part after part as its input says")
}

fn is_limited(name: &SubtoolName, definition: &Definition, config: &Config) -> bool {
    let limits = &config.rate_limits;
    let of_tags = definition.tags.iter().filter_map(|tag| limits.tags.get(tag));
    let own = limits.tools.get(name.as_str()).or(definition.rate_limit.as_ref());
    own.into_iter().chain(of_tags).any(|limit| limit.calls > 0)
}

/// Whether the runner itself fetches page after page.
fn walks_by_itself(definition: &Definition) -> bool {
    matches!(&definition.run, Run::Http(http) if http.pagination.is_some())
}

/// The parameter with the number of items of a page, with the most that it may be.
fn largest_size<'a>(definition: &'a Definition, parameters: &PageParameters<'a>) -> Option<(&'a str, Value)> {
    let size = parameters.size?;
    Some((size, definition.input.get("properties")?.get(size)?.get("maximum")?.clone()))
}

impl Attempt<'_> {
    /// Performs the call once. If there are further pages, `_meta.more_with` says that `--all` reads them.
    pub(super) async fn one_page(
        &self,
        definition: &Definition,
        invocation: &Invocation,
    ) -> Result<(Outcome, Map<String, Value>), Failure> {
        let (outcome, mut meta) = self.perform_and_shape(definition, invocation).await?;
        if extent::has_next_page(&meta) && check(&self.task.tool, definition, &self.context.config).is_ok() {
            meta.insert(extent::MORE_WITH.to_owned(), "--all".into());
        }
        Ok((outcome, meta))
    }

    /// Performs the call for each page from the asked one on. The result is the last page with the items of all,
    /// and says in `_meta.pages` how many there were. If the bounds end it, it says that there is more.
    pub(super) async fn all_pages(
        &self,
        definition: &Definition,
        invocation: Invocation,
    ) -> Result<(Outcome, Map<String, Value>), Failure> {
        // The limits may have changed since it was accepted.
        check(&self.task.tool, definition, &self.context.config)?;
        let Some(parameters) = PageParameters::of(definition).filter(|_| !walks_by_itself(definition)) else {
            let invocation = Invocation { all_pages: Some(MAX_PAGES), ..invocation };
            return self.perform_and_shape(definition, &invocation).await;
        };
        let first = invocation.input.get(parameters.number).and_then(Value::as_u64).unwrap_or(parameters.first);
        let is_from_first = first == parameters.first;
        let before = first.saturating_sub(parameters.first);
        let max_bytes = self.context.config.executor.output_bytes.min(MAX_BYTES);
        let schema = InputSchema::compile(&definition.input)
            .map_err(|error| Failure::new(Code::BadDefinition, error.to_string()))?;
        // A later page begins at another item if it has more of them.
        let largest = largest_size(definition, &parameters).filter(|(size, largest)| {
            let mut input = invocation.input.clone();
            input.insert((*size).to_owned(), largest.clone());
            is_from_first && schema.problems(&Value::Object(seal::shown(&input))).is_empty()
        });
        let mut read = ReadPages { before, ..ReadPages::of(definition, is_from_first) };
        loop {
            let mut page = invocation.clone();
            page.input.insert(parameters.number.to_owned(), (first + u64::from(read.pages)).into());
            page.input.extend(largest.clone().map(|(size, largest)| (size.to_owned(), largest)));
            // Rules, privileges and the schema may be about the page.
            if let Err(failure) = self.may_read(definition, &schema, &page.input) {
                return read.ended_by(failure, first);
            }
            let performed = pinned::perform(definition, &page, self.context, &self.control.cancel).await;
            let success = performed.map_err(|failure| read.failed(failure, first))?;
            let answered = read.answered(&success);
            let shaped = self.shape(success, definition, &page.input).await;
            let (outcome, meta) = shaped.map_err(|failure| read.failed(failure, first))?;
            let Outcome::Data(data) = outcome else { return Ok((outcome, meta)) };
            if let Some(more) = read.add(data, meta, answered, max_bytes)? {
                let (more, why) = read.ending(more, max_bytes);
                return read.end(more, why);
            }
        }
    }

    /// Whether a call with this input may be made: by the same rules as one that the caller makes.
    fn may_read(
        &self,
        definition: &Definition,
        schema: &InputSchema,
        input: &Map<String, Value>,
    ) -> Result<(), Failure> {
        if let Some(problem) = schema.problems(&Value::Object(seal::shown(input))).first() {
            return Err(Failure::new(Code::InvalidInput, problem.problem.clone()));
        }
        let (name, caller) = (&self.task.tool, &self.task.caller);
        let call = LookupCall { name, definition, input, caller, is_for_caller: true };
        self.control.lookup_rules.check(&call).map_err(Failure::from)
    }
}

/// What the pages say of the number of all items.
#[derive(Debug, Default, Clone, Copy)]
enum Total {
    #[default]
    Unsaid,
    /// By the last one that says it.
    Said(u64),
    /// One of them gave what cannot be it.
    Wrong,
}

/// Who says whether there is more.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SaidBy {
    /// The server, or nothing does.
    #[default]
    Server,
    Definition,
    /// A runner that reads the rows itself; they may be equal on several pages.
    Us,
}

/// The pages that were read so far.
#[derive(Debug, Default)]
struct ReadPages {
    pages: u32,
    said_by: SaidBy,
    /// Whether the items are what the definition selects from those of the server.
    is_shaped: bool,
    /// Where the list is in what the server answers.
    answered_place: Option<ListPlace>,
    /// Whether nothing comes before the first one.
    is_from_first: bool,
    /// How many pages come before it.
    before: u64,
    total: Total,
    /// The identities of all of them.
    seen: HashSet<u64>,
    /// The content of the last one.
    last_content: Option<u64>,
    /// The ids of the items so far, and how many came again.
    ids: HashSet<String>,
    again: u64,
    /// Where the list of a page is: in all of them where it is in the first.
    place: Option<ListPlace>,
    items: Vec<Value>,
    /// The fields that say on each page how many items it has.
    counts: Option<Vec<String>>,
    bytes: u64,
    /// The last page without its items, and what it said of itself.
    last: Option<(Value, Map<String, Value>)>,
    /// What one of them lacks.
    truncated: Option<Value>,
    /// How many of the last ones were empty.
    empty: u32,
}

impl ReadPages {
    fn of(definition: &Definition, is_from_first: bool) -> Self {
        let shape = definition.result.as_ref();
        let part = shape.and_then(|shape| shape.part.as_ref());
        Self {
            said_by: match &definition.run {
                Run::Builtin(_) | Run::Sql(_) => SaidBy::Us,
                _ if part.is_some_and(|part| says_more(part)) => SaidBy::Definition,
                _ => SaidBy::Server,
            },
            is_shaped: shape.is_some_and(|shape| shape.select.is_some()),
            is_from_first,
            ..Self::default()
        }
    }

    /// What the server answered, if it has a list where the first page has it.
    fn answered(&mut self, success: &RunnerOutput) -> Option<AnsweredPage> {
        let OutputData::Json(data) = &success.data else { return None };
        let place = self.answered_place.take().or_else(|| ListPlace::of(data))?;
        let items = match &place {
            ListPlace::Whole => data.as_array(),
            ListPlace::Field(name) => data.get(name).and_then(Value::as_array),
        };
        let page = items.map(|items| AnsweredPage::with(items));
        self.answered_place = Some(place);
        page
    }

    /// Adds a page. Returns whether there is more if it is the last one that is read.
    fn add(
        &mut self,
        mut data: Value,
        meta: Map<String, Value>,
        answered: Option<AnsweredPage>,
        max_bytes: u64,
    ) -> Result<Option<More>, Failure> {
        let says = ["more_pages", "has_next_page"].map(|field| meta.get(field));
        let is_unknown = says[0].is_some_and(|more| *more == extent::UNKNOWN);
        let is_said =
            !is_unknown && (self.said_by != SaidBy::Server || says.into_iter().flatten().any(Value::is_boolean));
        // Where it is not said, only an empty page is the last one.
        let has_more = !is_said || extent::has_next_page(&meta);
        let bytes = compact_bytes(&data);
        let total =
            paging::total(&data).filter(|_| self.is_from_first && !self.is_shaped && self.said_by == SaidBy::Server);
        let place = self.place.take().or_else(|| ListPlace::of(&data)).ok_or_else(no_list)?;
        let items = place.list(&mut data).map(std::mem::take).ok_or_else(no_list)?;
        self.place = Some(place);
        // A selection may leave nothing of a page, so what the server answered counts.
        let is_blind = self.is_shaped && answered.is_none();
        let page = answered.unwrap_or_else(|| AnsweredPage::with(&items));
        let is_like_last = !page.is_empty
            && (self.last_content == Some(page.content) || !self.is_shaped && self.items.ends_with(&items));
        if is_like_last && is_said && self.said_by != SaidBy::Us {
            return Err(repeated(self.pages + 1));
        }
        self.last_content = Some(page.content);
        let (is_empty, ids) = (page.is_empty, page.ids);
        let is_repeated = !is_empty && !self.seen.insert(page.identity) && !is_said;
        if self.pages > 0 && self.bytes + bytes > max_bytes {
            return Ok(Some(More::Yes));
        }
        // A page that is empty although there may be more is passed over, once.
        let is_end = is_empty && (!(is_said || is_blind) || self.empty > 0);
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        self.pages += 1;
        self.bytes += bytes;
        let counts = paging::counts_of_page(&data, items.len() as u64);
        self.counts = Some(match self.counts.take() {
            Some(known) => known.into_iter().filter(|name| counts.contains(name)).collect(),
            None => counts,
        });
        self.truncated = self.truncated.take().or_else(|| meta.get("truncated").cloned());
        self.last = Some((data, meta));
        if is_repeated {
            // Some servers answer a page beyond the end with the last one, and others know no pages.
            return Ok(Some(if is_like_last && self.pages > 2 { More::No } else { More::Unknown }));
        }
        // What is less than one page has, or as much as each has, is no number of all items, nor is what it says later.
        let on_page = items.len() as u64;
        let is_count = |total: &u64| *total > on_page || (*total == on_page && (on_page == 0 || self.pages == 1));
        self.total = match (self.total, total) {
            (Total::Wrong, _) => Total::Wrong,
            (_, Some(total)) if is_count(&total) => Total::Said(total),
            (_, Some(_)) => Total::Wrong,
            (said, None) => said,
        };
        if !is_said {
            self.again += ids.into_iter().map(|id| u64::from(!self.ids.insert(id))).sum::<u64>();
        }
        self.items.extend(items);
        // What is all of the first page may be its size; the next one tells.
        let is_all = self.pages > 1
            && !(is_said && has_more)
            && matches!(self.total, Total::Said(total) if self.count() >= total);
        Ok(match () {
            () if !has_more || is_all || (is_end && !is_said && !is_blind) => Some(More::No),
            () if is_end || self.pages == MAX_PAGES => Some(More::Yes),
            () => None,
        })
    }

    fn count(&self) -> u64 {
        self.items.len() as u64
    }

    /// Whether there is more, and why that is not read, or not known.
    fn ending(&self, more: More, max_bytes: u64) -> (More, Option<String>) {
        match (more, self.total) {
            (More::Yes, _) if self.empty > 1 => (more, Some("two pages in a row were empty".to_owned())),
            (More::Yes, _) => (more, Some(format!("at most {MAX_PAGES} pages and {max_bytes} bytes are read"))),
            (More::Unknown, _) => (more, Some("a page came again that was read before".to_owned())),
            (More::No, Total::Said(total)) if total != self.count() => {
                let why = format!("{} items were read, and the answer says that there are {total}", self.count());
                (More::Unknown, Some(why))
            }
            (More::No, _) if self.again > 0 => {
                let items = if self.again == 1 { "an item".to_owned() } else { format!("{} items", self.again) };
                (More::Unknown, Some(format!("{items} came more than once, so others may be missing")))
            }
            (More::No, _) => (more, None),
        }
    }

    /// The failure of the page after these, which says where it happened.
    fn failed(&self, mut failure: Failure, first: u64) -> Failure {
        let said = &failure.error.message;
        failure.error.message = match failure.error.code {
            _ if self.pages == 0 => return failure,
            Code::Cancelled => format!("cancelled after {}", inflected(self.pages, "page was read", "pages were read")),
            _ => format!("page {}: {said}", first + u64::from(self.pages)),
        };
        failure
    }

    /// The result of the pages so far, where the next one may not be read.
    fn ended_by(self, failure: Failure, first: u64) -> Result<(Outcome, Map<String, Value>), Failure> {
        if self.pages == 0 {
            return Err(failure);
        }
        let why = format!("page {} was not read: {}", first + u64::from(self.pages), failure.error.message);
        self.end(More::Yes, Some(why))
    }

    fn end(self, more: More, not_fetched: Option<String>) -> Result<(Outcome, Map<String, Value>), Failure> {
        let (mut data, mut meta) = self.last.ok_or_else(no_list)?;
        meta.retain(|field, _| !OF_ONE_PAGE.contains(&field.as_str()));
        meta.insert("pages".to_owned(), self.pages.into());
        if self.before > 0 {
            meta.insert("page".to_owned(), (self.before + 1).into());
        }
        let limit = Some(self.items.len() as u64);
        for name in self.counts.iter().flatten() {
            data[name.as_str()] = self.items.len().into();
        }
        if let Value::Object(fields) = &mut data
            && self.said_by == SaidBy::Us
        {
            // That of the last page.
            fields.remove("preview");
        }
        DataExtent { more, limit, ..DataExtent::default() }.add_to(&mut meta);
        meta.extend(self.truncated.map(|truncated| ("truncated".to_owned(), truncated)));
        meta.extend(not_fetched.map(|why| ("not_fetched".to_owned(), why.into())));
        *self.place.and_then(|place| place.list(&mut data)).ok_or_else(no_list)? = self.items;
        Ok((Outcome::Data(data), meta))
    }
}

/// What a server answered for a page, before a definition selected from it.
#[derive(Debug)]
struct AnsweredPage {
    is_empty: bool,
    /// Alike for pages that are equal.
    content: u64,
    /// Alike for pages of the same items: those of the same `id`, whatever else of them changes.
    identity: u64,
    /// Those of its items that have one.
    ids: Vec<String>,
}

impl AnsweredPage {
    fn with(items: &[Value]) -> Self {
        let ids: Vec<_> = items.iter().filter_map(id_of).collect();
        let content = hash_of(items.iter());
        let identity = if ids.len() == items.len() { hash_of(ids.iter().copied()) } else { content };
        Self { is_empty: items.is_empty(), content, identity, ids: ids.into_iter().map(Value::to_string).collect() }
    }
}

/// Where the list of a page is.
#[derive(Debug, PartialEq, Eq)]
enum ListPlace {
    Whole,
    Field(String),
}

impl ListPlace {
    /// The data itself, or the one of its fields that is a list of objects or lists, or the only list.
    fn of(data: &Value) -> Option<Self> {
        let fields = match data {
            Value::Array(_) => return Some(Self::Whole),
            Value::Object(fields) => fields,
            _ => return None,
        };
        let lists: Vec<_> = fields.iter().filter_map(|(name, value)| Some((name, value.as_array()?))).collect();
        let is_of_items =
            |list: &&(&String, &Vec<Value>)| list.1.first().is_some_and(|item| item.is_object() || item.is_array());
        let mut of_items = lists.iter().filter(is_of_items);
        let (name, _) = match (of_items.next(), of_items.next()) {
            (Some(list), None) => list,
            (None, _) if lists.len() == 1 => lists.first()?,
            _ => LISTS.iter().find_map(|known| lists.iter().find(|(name, _)| name == known))?,
        };
        Some(Self::Field((*name).clone()))
    }

    fn list<'a>(&self, data: &'a mut Value) -> Option<&'a mut Vec<Value>> {
        match self {
            Self::Whole => data.as_array_mut(),
            Self::Field(name) => data.get_mut(name)?.as_array_mut(),
        }
    }
}

/// What an item is known by, if it has that.
fn id_of(item: &Value) -> Option<&Value> {
    item.get("id").filter(|id| id.is_string() || id.is_number())
}

fn hash_of<'a>(values: impl Iterator<Item = &'a Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.for_each(|value| value.to_string().hash(&mut hasher));
    hasher.finish()
}

fn repeated(pages: u32) -> Failure {
    Failure::new(Code::BadResponse, format!("page {pages} is the same as the one before it"))
        .hint("the subtool does not know its parameter `page`: leave `--all` out")
}

fn no_list() -> Failure {
    Failure::new(Code::BadResponse, "its pages have no list that could be joined")
        .hint("leave `--all` out, and read page after page")
}

#[cfg(test)]
mod tests;
