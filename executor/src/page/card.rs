//! The card: one pending task, with everything that an approval of it is bound to.

use catalog::Subtool;
use definition::Definition;
use definition::run::Run;
use definition::run::script::OF_CALLERS;
use ground::base::write_access::WriteAccess;
use ground::config::{Config, seal};
use ground::task::Task;
use ground::task::confirmation::{Assurance, Confirmation, ReplacedValues, TriedChange};
use ground::task::effect::EffectClass;
use ground::task::fingerprint::{FileRole, Fingerprint};
use ground::task::grant::names;
use ground::task::part_of::PartOf;
use ground::task::question_key::{QUESTION, QuestionAsker};
use jiff::Timestamp;
use protocol::caller::Caller;
use protocol::task::State;
use runner::Runner as _;
use runner::ask_user::{UserQuestion, question};
use runner::script::running_source;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::cascade::ShownCascade;
use self::dry_run::ShownDryRun;
use super::Page;
use super::approval_word::approval_word;
use super::background::CardBackground;
use super::diff::LineDiff;
use super::form::{self, FormField};
use super::touches::touches;
use super::visible::{VisibleLine, VisibleText, line};
use super::wording::{DisplayTime, StartTime, client_words, effect_words, scope_words, span, user};
use crate::attempt as perform;

mod as_gate;
mod cascade;
mod dry_run;

/// What the template `card.html` shows.
#[derive(Debug, Serialize)]
pub(super) struct Card {
    id: String,
    digest: String,
    kind: &'static str,
    tool: String,
    description: String,
    asked: CardCaller,
    effect: EffectClass,
    effect_words: &'static str,
    touches: Vec<String>,
    runs: Vec<ShownFile>,
    /// The files that the input names.
    reads: Vec<ShownFile>,
    /// Whether what would be replaced is not known.
    unknown: Option<String>,
    /// What a change in a database does.
    change: Option<ShownChange>,
    /// What its dry run showed.
    would_change: Option<ShownDryRun>,
    why: String,
    /// When it starts, if that is not as soon as it is approved.
    starts: Option<StartTime>,
    expires: CardExpiry,
    fields: Vec<ShownField>,
    would_send: VisibleText,
    reason: Option<VisibleText>,
    danger: bool,
    /// How strong an approval must be.
    assurance: Assurance,
    /// What must be typed to approve it; empty if nothing.
    word: String,
    /// What must be typed to remember a wide approval.
    grant_word: String,
    /// The number of lines to show at once, if there are more.
    long: Option<usize>,
    grantable: bool,
    /// Whose calls a grant would cover.
    grant_scope: String,
    grant_fields: Vec<GrantField>,
    edit: Vec<FormField>,
    question: Option<VisibleText>,
    /// The script that calls it.
    script: Option<ScriptCall>,
    /// Who asks it, if that is not the agent.
    question_of: Option<QuestionSource>,
    /// The address that the human opens who signs in to a server; never one that an agent chose.
    link: Option<String>,
    form: Vec<FormField>,
    background: CardBackground,
}

/// The script of which the task is a call.
#[derive(Debug, Serialize)]
struct ScriptCall {
    task: String,
    /// The number of the call, from 1.
    call: u64,
    /// That of its subtool, or how a program of the caller begins.
    name: VisibleLine,
    source: VisibleText,
}

/// The longest name of a program.
const MAX_NAME_CHARS: usize = 60;

/// How a program begins: its first comment, or else its first line.
fn first_line(source: &str) -> &str {
    let line = source.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = line.trim_start_matches(['/', '*', ' ']).trim_end_matches(['/', '*', ' ']);
    let end = line.char_indices().nth(MAX_NAME_CHARS).map_or(line.len(), |(end, _)| end);
    &line[..end]
}

impl ScriptCall {
    /// `None` if `task` is no call of a script that is under way.
    fn of(task: &Task, page: &Page) -> Option<Self> {
        let PartOf { id, call, .. } = PartOf::of(task)?;
        let script = page.read(|records| records.task(id)).ok().flatten()?;
        let is_whole = script.caller.uid == task.caller.uid && script.state == State::Running;
        let scripts = &page.runner_context().delegation.as_ref()?.scripts.clone();
        let source = running_source(scripts, &id.to_string()).filter(|_| is_whole)?;
        let name = match script.tool.as_str() {
            OF_CALLERS => first_line(&source),
            name => name,
        };
        Some(Self { task: id.to_string(), call: call?, name: line(name), source: VisibleText::text(&source) })
    }
}

/// A server or another agent that asks the human while a task runs, and gets the answer.
#[derive(Debug, Serialize)]
struct QuestionSource {
    /// Like `MCP server`.
    kind: &'static str,
    name: VisibleLine,
    task: String,
    tool: String,
}

impl QuestionSource {
    /// `None` if `task` is no question of such a task. Only this executor makes these.
    fn of(task: &Task, page: &Page) -> Option<Self> {
        if task.tool.as_str() != QUESTION {
            return None;
        }
        let key = task.idempotency_key.as_deref()?;
        let (QuestionAsker::Task(id) | QuestionAsker::Attempt(id)) = QuestionAsker::of(key, &task.caller)?;
        let asking = page.read(|records| records.task(id)).ok().flatten()?;
        let subtool = page.catalog().get(asking.tool.as_str())?;
        let (kind, name) = match &subtool.definition.run {
            Run::Mcp(mcp) => ("MCP server", mcp.server.name.clone()),
            Run::Agent(agent) => ("agent at", agent.url.clone()?),
            _ => return None,
        };
        Some(Self { kind, name: line(&name), task: id.to_string(), tool: asking.tool.to_string() })
    }
}

/// Who asks. The user id comes from the kernel; the folder and the session are the caller's own claims.
#[derive(Debug, Serialize)]
pub(super) struct CardCaller {
    uid: u32,
    user: String,
    folder: VisibleLine,
    session: Option<VisibleLine>,
    /// The client for which it works, of a server that several share.
    client: Option<VisibleLine>,
    /// The names of the profiles that restrict it.
    profiles: Option<String>,
    #[serde(flatten)]
    moment: DisplayTime,
}

impl CardCaller {
    pub(super) fn of(caller: &Caller, at: Timestamp, now: Timestamp) -> Self {
        let folder = caller.folder.as_ref().map(|folder| folder.display().to_string());
        let profiles = caller.tool_scope.profiles().collect::<Vec<_>>().join(", ");
        Self {
            uid: caller.uid,
            user: user(caller.uid),
            folder: line(folder.as_deref().unwrap_or("an unknown folder")),
            session: caller.session.as_deref().map(line),
            client: caller.client().map(|client| line(&client_words(client))),
            profiles: Some(profiles).filter(|names| !names.is_empty()),
            moment: DisplayTime::of(at, now),
        }
    }
}

#[derive(Debug, Serialize)]
struct CardExpiry {
    at: String,
    #[serde(rename = "in")]
    left: String,
}

/// A file that the task executes or reads.
#[derive(Debug, Serialize)]
struct ShownFile {
    role: &'static str,
    path: VisibleLine,
    owner: String,
    /// How long it is, if the input names it.
    bytes: Option<u64>,
    /// The start of the hash of its content; `None` of a place, which has none.
    sha256: Option<String>,
    /// Who else can change the file.
    writable: Option<WriteAccess>,
    writable_words: &'static str,
}

impl ShownFile {
    pub(super) fn of(file: &Fingerprint) -> Self {
        const SHOWN_DIGITS: usize = 12;
        Self {
            role: match file.role {
                FileRole::Program => "program",
                FileRole::Interpreter => "interpreter",
                FileRole::Script => "script",
                FileRole::Covered => "file",
                FileRole::Folder => "folder",
                FileRole::WorkingFolder => "starts in",
                FileRole::Input => "sends or reads",
                FileRole::Argument => "is given",
                FileRole::Place => "leads to",
            },
            path: line(&file.leads_to.as_ref().unwrap_or(&file.path).display().to_string()),
            owner: file.owner.map_or_else(|| "an unknown user".to_owned(), user),
            bytes: file.bytes,
            sha256: (!matches!(file.role, FileRole::Place | FileRole::WorkingFolder))
                .then(|| file.sha256.get(..SHOWN_DIGITS).unwrap_or("unreadable").to_owned()),
            writable: file.writable,
            writable_words: match file.writable {
                None => "",
                Some(WriteAccess::Agent) => "the agent could change it",
                Some(WriteAccess::Others) => "other users of this machine could change it",
            },
        }
    }
}

/// A field of the input, as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct ShownField {
    name: String,
    pointer: String,
    label: VisibleLine,
    description: String,
    required: bool,
    /// Whether the value is the default in the schema.
    default: bool,
    value: VisibleText,
    replaces: Option<VisibleText>,
    /// The lines that differ from what is replaced, if there are several.
    diff: Option<LineDiff>,
    /// The items of a list of short texts.
    items: Vec<VisibleLine>,
}

/// The ways in which a grant can cover one field, the narrowest first.
#[derive(Debug, Serialize)]
struct GrantField {
    pointer: String,
    label: String,
    choices: Vec<GrantChoice>,
}

#[derive(Debug, Serialize)]
struct GrantChoice {
    how: &'static str,
    words: String,
    /// Whether it is so wide that the human must type the subtool's name.
    typed: bool,
    value: Option<Value>,
}

/// What a change in a database does, as it was tried.
#[derive(Debug, Serialize)]
struct ShownChange {
    rows_affected: u64,
    /// How many rows that are there it overwrites or removes to make room for its own, if it may.
    replaced: Option<u64>,
    /// How many of those are shown.
    replaced_shown: usize,
    /// How many of them are shown.
    shown: usize,
    /// The rows, one a line, before and after it.
    diff: Option<LineDiff>,
    /// The rows as they are, if the lines do not differ.
    rows: Option<VisibleText>,
    /// The columns that the database sets by itself.
    set_by_database: Vec<VisibleText>,
    /// What it sets off in other tables.
    sets_off: Vec<String>,
    /// The rows of other tables that foreign keys change with it.
    cascades: Vec<ShownCascade>,
}

impl ShownChange {
    fn of(change: &TriedChange) -> Self {
        let rows = |rows: &Option<Vec<Value>>| cascade::lines(rows.as_deref().unwrap_or_default());
        let (before, after) = (rows(&change.before), rows(&change.after));
        let diff = LineDiff::of(&before, &after);
        let present = if after == json!("") { before } else { after };
        let rows = (diff.is_none() && present != json!("")).then(|| VisibleText::of(&present));
        let count = |rows: &Option<Vec<Value>>| rows.as_ref().map_or(0, Vec::len);
        let is_replacing = change.replaced.is_some();
        let shown = count(if is_replacing || change.before.is_none() { &change.after } else { &change.before });
        let replaced_shown = if is_replacing { count(&change.before) } else { 0 };
        let names = change.set_by_database.iter();
        let set_by_database = names.map(|name| VisibleText::of(&json!(name))).collect();
        let TriedChange { rows_affected, replaced, .. } = *change;
        let sets_off = change.sets_off.clone();
        let cascades = change.cascades.iter().map(ShownCascade::of).collect();
        Self { rows_affected, replaced, replaced_shown, shown, diff, rows, set_by_database, sets_off, cascades }
    }
}

impl Card {
    pub(super) fn of(task: &Task, page: &Page, now: Timestamp) -> Option<Self> {
        let confirmation = task.confirmation.as_ref()?;
        let catalog = page.catalog();
        let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash);
        let subtool = subtool.as_deref();
        let definition = subtool.map(|subtool| &*subtool.definition);
        // Why a lookup failed may quote the output of a program, and is no part of what a human decides on.
        let says = |text: &str| (None, Some(text.to_owned()));
        let (replaced, unknown) = match &confirmation.preview {
            Some(ReplacedValues::Fields(replaced)) => (Some(replaced), None),
            Some(ReplacedValues::Unknown(_)) => says("What it would replace is unknown: looking it up failed."),
            Some(ReplacedValues::NotPermitted(why)) => {
                says(&format!("What it would replace was not looked up: {why}."))
            }
            Some(ReplacedValues::Pending) => says("What it would replace is being looked up."),
            Some(ReplacedValues::Change(_) | ReplacedValues::Impossible(_)) | None => (None, None),
        };
        let change = match &confirmation.preview {
            Some(ReplacedValues::Change(change)) => Some(ShownChange::of(change)),
            _ => None,
        };
        let shown = seal::shown(&task.input);
        let fields = fields(subtool, &shown, replaced);
        let runner_context = page.runner_context();
        let config = &runner_context.config;
        let would_send = would_send(subtool, task, config);
        let left = confirmation.expires_at.duration_since(now).as_secs();
        let is_usual = |file: &Fingerprint| {
            let folder = task.caller.folder.as_deref().unwrap_or(std::path::Path::new("/"));
            file.role == FileRole::WorkingFolder && folder == file.path
        };
        let files = |of_input| {
            let files = confirmation.files.iter().filter(|file| file.role.is_of_input() == of_input);
            files.filter(|file| !is_usual(file)).map(ShownFile::of).collect()
        };
        let question = subtool.and_then(|subtool| question_of(subtool, task));
        let link = question.as_ref().and_then(|question| runner_context.mcp.sign_ins.link(&question.text));
        let question_text = question.as_ref().map(|question| VisibleText::text(&question.text));
        // A question shows only its text; the rest of its input is the form below.
        let height = question_text
            .as_ref()
            .map_or_else(|| fields.iter().map(|field| field.value.height()).sum(), VisibleText::height);
        let preview_lines = config.page.preview_lines.get();
        let nothing = Map::new();
        let word = definition.and_then(|definition| approval_word(definition, task, &task.input));
        let schema = definition.map_or(&nothing, |definition| &definition.input);
        Some(Self {
            id: task.id.to_string(),
            digest: confirmation.digest.to_string(),
            kind: if question.is_some() { "question" } else { "confirm" },
            tool: task.tool.to_string(),
            description: definition.map_or_else(String::new, |definition| definition.description.clone()),
            asked: CardCaller::of(&task.caller, confirmation.asked_at, now),
            effect: task.effect,
            effect_words: effect_words(task.effect, definition),
            touches: touches(subtool, &would_send, &confirmation.files, config),
            runs: files(false),
            reads: files(true),
            unknown,
            change,
            would_change: confirmation.would_change.as_ref().map(|found| ShownDryRun::of(found, preview_lines)),
            why: confirmation.why.clone(),
            starts: StartTime::of(task, now),
            expires: CardExpiry { at: confirmation.expires_at.to_string(), left: span(left) },
            long: (height > preview_lines).then_some(preview_lines),
            fields,
            would_send: VisibleText::of(&would_send),
            reason: confirmation.reason.as_deref().map(VisibleText::text),
            danger: definition.is_some_and(|definition| definition.annotations.destructive_hint == Some(true)),
            assurance: assurance(confirmation, definition, page),
            word: word.unwrap_or_default(),
            grant_word: task.tool.to_string(),
            grantable: question.is_none() && definition.is_some_and(|definition| definition.grantable),
            grant_scope: scope_words(task.caller.uid, task.caller.client(), task.caller.folder.as_deref()),
            grant_fields: shown.iter().map(|(name, value)| grant_field(name, value, &confirmation.files)).collect(),
            // What another statement would change was not tried.
            edit: if definition.is_some_and(|definition| definition.run.change().is_some()) {
                Vec::new()
            } else {
                form::fields(schema, &shown)
            },
            form: question
                .as_ref()
                .map_or_else(Vec::new, |question| form::question_fields(&question.text, &question.schema)),
            question: question_text,
            script: ScriptCall::of(task, page),
            question_of: question.as_ref().and_then(|_| QuestionSource::of(task, page)),
            link,
            background: CardBackground::default(),
        })
    }
}

/// How strong an approval the dispatcher will demand.
fn assurance(confirmation: &Confirmation, definition: Option<&Definition>, page: &Page) -> Assurance {
    let demanded = confirmation.needs.is_some_and(|needs| needs > Assurance::Page);
    let has_keys = page.context.approver.assurance() >= Assurance::Touch;
    let is_default = has_keys && definition.is_some_and(Definition::is_grave);
    if demanded || is_default { Assurance::Touch } else { Assurance::Page }
}

impl Card {
    /// The same card with its background.
    pub(super) fn with(self, background: CardBackground) -> Self {
        Self { background, ..self }
    }
}

/// The question that `task` asks, if its subtool asks the user.
pub(super) fn question_of(subtool: &Subtool, task: &Task) -> Option<UserQuestion> {
    let Run::AskUser(ask) = &subtool.definition.run else { return None };
    question(ask, &crate::attempt::invocation(task, seal::shown(&task.input))).ok()
}

/// The fields of an input, in its own order.
pub(super) fn fields(
    subtool: Option<&Subtool>,
    input: &Map<String, Value>,
    replaced: Option<&Map<String, Value>>,
) -> Vec<ShownField> {
    let schema = subtool.map(|subtool| &subtool.definition.input);
    let required = schema.and_then(|schema| schema.get("required")).and_then(Value::as_array);
    let (first, last): (Vec<_>, Vec<_>) = input.iter().partition(|(name, value)| !is_secondary(name, value));
    first
        .into_iter()
        .chain(last)
        .map(|(name, value)| {
            let property = schema.and_then(|schema| schema.get("properties")?.get(name)).unwrap_or(&Value::Null);
            let old = replaced.and_then(|replaced| replaced.get(name)).filter(|old| *old != value);
            ShownField {
                name: name.clone(),
                pointer: form::pointer(name),
                label: line(name),
                description: property["description"].as_str().unwrap_or_default().to_owned(),
                required: required.is_some_and(|required| required.iter().any(|other| other == name.as_str())),
                default: property.get("default") == Some(value),
                value: VisibleText::of(value),
                replaces: old.map(VisibleText::of),
                diff: old.and_then(|old| LineDiff::of(old, value)),
                items: short_items(value).unwrap_or_default(),
            }
        })
        .collect()
}

/// Whether a reader wants to see other fields first: copies of a mail, and what is empty.
fn is_secondary(name: &str, value: &Value) -> bool {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    is_empty || ["cc", "bcc"].contains(&name)
}

/// The items of a list of short texts of one line each.
fn short_items(value: &Value) -> Option<Vec<VisibleLine>> {
    const MAX_CHARS: usize = 80;
    let is_short = |text: &&str| !text.is_empty() && text.chars().count() <= MAX_CHARS && !text.contains('\n');
    let items = value.as_array()?.iter();
    items.map(|item| item.as_str().filter(is_short).map(line)).collect()
}

/// The exact request, with secrets replaced by their names.
fn would_send(subtool: Option<&Subtool>, task: &Task, config: &Config) -> Value {
    let Some(subtool) = subtool else { return json!("the definition changed, so this can no longer be approved") };
    let run = &subtool.definition.run;
    match run.plan(&perform::invocation(task, seal::shown(&task.input)), config) {
        Ok(plan) => json!({ run.name(): plan }),
        Err(failure) => json!({"it would fail": failure.error.message}),
    }
}

fn grant_field(name: &str, value: &Value, files: &[Fingerprint]) -> GrantField {
    const MAX_CHARS: usize = 60;
    let shown = value.as_str().map_or_else(|| value.to_string(), |text| format!("“{text}”"));
    let exactly = if shown.chars().count() > MAX_CHARS || shown.chars().any(char::is_control) {
        "exactly this value".to_owned()
    } else {
        format!("exactly {shown}")
    };
    let names_file = files.iter().any(|file| file.role.is_of_input() && names(value, &file.path));
    let (exactly, whatever) = if names_file {
        (format!("{exactly}, with the content of now"), ", whatever the files contain")
    } else {
        (exactly, "")
    };
    let mut choices = vec![GrantChoice { how: "exact", words: exactly, typed: false, value: None }];
    match value {
        Value::String(text) if text.starts_with('/') && !text.contains('\n') => {
            let folder = text.rsplit_once('/').map_or("/", |(folder, _)| folder);
            let value = Some(if folder.is_empty() { "/" } else { folder }.into());
            choices.push(GrantChoice {
                how: "prefix",
                words: format!("anything below{whatever}"),
                typed: false,
                value,
            });
        }
        Value::Number(number) => {
            let value = Some(number.to_string().into());
            choices.push(GrantChoice { how: "at_most", words: "at most".to_owned(), typed: false, value });
        }
        _ => {}
    }
    let is_wide = !matches!(value, Value::Bool(_));
    choices.push(GrantChoice { how: "any", words: format!("any value{whatever}"), typed: is_wide, value: None });
    GrantField { pointer: form::pointer(name), label: name.to_owned(), choices }
}
