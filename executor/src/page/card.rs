//! The card: one pending task, with everything that an approval of it is bound to.

use jiff::Timestamp;
use protocol::caller::Caller;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Page;
use super::form::{self, FormField};
use super::visible::{VisibleLine, VisibleText, line};
use super::wording::{DisplayTime, effect_words, span, user};
use crate::attempt as perform;
use crate::catalog::Subtool;
use crate::config::{Config, seal};
use crate::runner::Run;
use crate::runner::ask_user::UserQuestion;
use crate::task::Task;
use crate::task::confirmation::ReplacedValues;
use crate::task::effect::EffectClass;

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
    why: String,
    expires: CardExpiry,
    fields: Vec<ShownField>,
    would_send: VisibleText,
    reason: Option<VisibleText>,
    danger: bool,
    confirm_word: String,
    /// The number of lines to show at once, if there are more.
    long: Option<usize>,
    grantable: bool,
    grant_fields: Vec<GrantField>,
    edit: Vec<FormField>,
    question: Option<VisibleText>,
    form: Vec<FormField>,
    secret_note: bool,
}

/// Who asks. The user id comes from the kernel; the folder and the session are the caller's own claims.
#[derive(Debug, Serialize)]
pub(super) struct CardCaller {
    uid: u32,
    user: String,
    folder: VisibleLine,
    session: Option<VisibleLine>,
    #[serde(flatten)]
    moment: DisplayTime,
}

impl CardCaller {
    pub(super) fn of(caller: &Caller, at: Timestamp, now: Timestamp) -> Self {
        let folder = caller.folder.as_ref().map(|folder| folder.display().to_string());
        Self {
            uid: caller.uid,
            user: user(caller.uid),
            folder: line(folder.as_deref().unwrap_or("an unknown folder")),
            session: caller.session.as_deref().map(line),
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

/// A field of the input, as the page shows it.
#[derive(Debug, Serialize)]
pub(super) struct ShownField {
    name: String,
    pointer: String,
    label: String,
    description: String,
    required: bool,
    /// Whether the value is the default in the schema.
    default: bool,
    value: VisibleText,
    replaces: Option<VisibleText>,
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

impl Card {
    pub(super) fn of(task: &Task, page: &Page, now: Timestamp) -> Option<Self> {
        let confirmation = task.confirmation.as_ref()?;
        let catalog = page.catalog();
        let subtool = catalog.get(task.tool.as_str()).filter(|subtool| subtool.hash == task.definition_hash);
        let definition = subtool.map(|subtool| &*subtool.definition);
        let (replaced, unknown) = match &confirmation.preview {
            Some(ReplacedValues::Fields(replaced)) => (Some(replaced), None),
            Some(ReplacedValues::Unknown(why)) => (None, Some(format!("what it would replace is not known: {why}"))),
            Some(ReplacedValues::Pending) => (None, Some("what it would replace is being looked up".to_owned())),
            None => (None, None),
        };
        let shown = seal::shown(&task.input);
        let fields = fields(subtool, &shown, replaced);
        let would_send = would_send(subtool, task, &page.runner_context().config);
        let left = confirmation.expires_at.duration_since(now).as_secs();
        let question = subtool.and_then(|subtool| question_of(subtool, task));
        let question_text = question.as_ref().map(|question| VisibleText::text(&question.text));
        // A question shows only its text; the rest of its input is the form below.
        let height = question_text
            .as_ref()
            .map_or_else(|| fields.iter().map(|field| field.value.height()).sum(), VisibleText::height);
        let preview_lines = page.runner_context().config.page.preview_lines.get();
        let nothing = Map::new();
        let schema = definition.map_or(&nothing, |definition| &definition.input);
        Some(Self {
            id: task.id.to_string(),
            digest: confirmation.digest.to_string(),
            kind: if question.is_some() { "question" } else { "confirm" },
            tool: task.tool.to_string(),
            description: definition.map_or_else(String::new, |definition| definition.description.clone()),
            asked: CardCaller::of(&task.caller, confirmation.asked_at, now),
            effect: task.effect,
            effect_words: effect_words(task.effect),
            touches: touches(subtool, &would_send),
            why: unknown.map_or_else(|| confirmation.why.clone(), |unknown| format!("{}; {unknown}", confirmation.why)),
            expires: CardExpiry { at: confirmation.expires_at.to_string(), left: span(left) },
            long: (height > preview_lines).then_some(preview_lines),
            fields,
            would_send: VisibleText::of(&would_send),
            reason: confirmation.reason.as_deref().map(VisibleText::text),
            danger: definition.is_some_and(|definition| definition.annotations.destructive_hint == Some(true)),
            confirm_word: task.tool.to_string(),
            grantable: question.is_none() && definition.is_some_and(|definition| definition.grantable),
            grant_fields: shown.iter().map(|(name, value)| grant_field(name, value)).collect(),
            edit: form::fields(schema, &shown),
            form: question.as_ref().map_or_else(Vec::new, |question| form::fields(&question.schema, &nothing)),
            secret_note: question.as_ref().is_some_and(UserQuestion::asks_for_secrets),
            question: question_text,
        })
    }
}

/// The question that `task` asks, if its subtool asks the user.
pub(super) fn question_of(subtool: &Subtool, task: &Task) -> Option<UserQuestion> {
    let Run::AskUser(ask) = &subtool.definition.run else { return None };
    ask.question(&crate::attempt::invocation(task, seal::shown(&task.input))).ok()
}

/// The fields of an input, in its own order.
pub(super) fn fields(
    subtool: Option<&Subtool>,
    input: &Map<String, Value>,
    replaced: Option<&Map<String, Value>>,
) -> Vec<ShownField> {
    let schema = subtool.map(|subtool| &subtool.definition.input);
    let required = schema.and_then(|schema| schema.get("required")).and_then(Value::as_array);
    input
        .iter()
        .map(|(name, value)| {
            let property = schema.and_then(|schema| schema.get("properties")?.get(name)).unwrap_or(&Value::Null);
            ShownField {
                name: name.clone(),
                pointer: form::pointer(name),
                label: name.clone(),
                description: property["description"].as_str().unwrap_or_default().to_owned(),
                required: required.is_some_and(|required| required.iter().any(|other| other == name.as_str())),
                default: property.get("default") == Some(value),
                value: VisibleText::of(value),
                replaces: replaced
                    .and_then(|replaced| replaced.get(name))
                    .filter(|old| *old != value)
                    .map(VisibleText::of),
            }
        })
        .collect()
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

/// What a run accesses: an origin, a program or a model.
pub(super) fn touches(subtool: Option<&Subtool>, plan: &Value) -> Vec<String> {
    let Some(subtool) = subtool else { return Vec::new() };
    let name = match &subtool.definition.run {
        Run::Http(http) => {
            let url = plan["http"]["url"].as_str().and_then(|url| url::Url::parse(url).ok());
            url.map_or_else(|| http.base_url.clone(), |url| url.origin().ascii_serialization())
        }
        Run::Process(process) => format!("program {}", process.program()),
        Run::Builtin(_) => "the executor itself".to_owned(),
        Run::Llm(_) => format!("language model {}", plan["llm"]["model"].as_str().unwrap_or_default()),
        Run::Agent(_) => "a separate agent".to_owned(),
        Run::AskUser(_) => return Vec::new(),
    };
    vec![name]
}

fn grant_field(name: &str, value: &Value) -> GrantField {
    const MAX_CHARS: usize = 60;
    let shown = value.as_str().map_or_else(|| value.to_string(), |text| format!("“{text}”"));
    let exactly = if shown.chars().count() > MAX_CHARS || shown.chars().any(char::is_control) {
        "exactly this value".to_owned()
    } else {
        format!("exactly {shown}")
    };
    let mut choices = vec![GrantChoice { how: "exact", words: exactly, typed: false, value: None }];
    match value {
        Value::String(text) if text.starts_with('/') && !text.contains('\n') => {
            let folder = text.rsplit_once('/').map_or("/", |(folder, _)| folder);
            let value = Some(if folder.is_empty() { "/" } else { folder }.into());
            choices.push(GrantChoice { how: "prefix", words: "anything below".to_owned(), typed: false, value });
        }
        Value::Number(number) => {
            let value = Some(number.to_string().into());
            choices.push(GrantChoice { how: "at_most", words: "at most".to_owned(), typed: false, value });
        }
        _ => {}
    }
    let is_wide = !matches!(value, Value::Bool(_));
    choices.push(GrantChoice { how: "any", words: "any value".to_owned(), typed: is_wide, value: None });
    GrantField { pointer: form::pointer(name), label: name.to_owned(), choices }
}
