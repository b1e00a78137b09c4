//! One subtool.
//!
//! A model only sees `description` and `input`; the rest is for the developer. Loading a file, merging `$defaults` and
//! finding mistakes is up to the catalog. The doc comments of these types are the descriptions in
//! `subtools/subtool.schema.json`.

use std::collections::BTreeSet;
use std::sync::Arc;

use ground::base::schema::InputSchema;
use ground::config::RateLimit;
use ground::config::secret::SecretName;
use ground::task::confirmation::Assurance;
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use protocol::data_class::DataClass;
use protocol::duration::PositiveDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with_macros::skip_serializing_none;

use crate::enabled_files::PinnedPack;
use crate::run::{RESPONSE_VARIABLES, Run};

/// One subtool.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the format")]
pub struct Definition {
    /// What it does, in the words of a user who needs it. Shown to the model.
    #[schemars(regex(pattern = r"\S"))]
    pub description: String,
    /// What users say when they want it, in any language: short, in everyday words that the description lacks. They are
    /// searched and never shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), example = ["who wrote this line", "wer hat das geschrieben"])]
    pub phrases: Vec<String>,
    /// The JSON Schema of the input (draft 2020-12 unless its `$schema` says otherwise). Shown to the model.
    #[schemars(schema_with = "input_schema")]
    pub input: Map<String, Value>,
    /// Declares its effects, as in MCP.
    #[serde(default)]
    pub annotations: Annotations,
    /// How it is performed: exactly one runner.
    pub run: Run,
    /// Whether a human must approve a run. Absent: policy decides from the annotations.
    pub confirm: Option<Confirm>,
    /// The minimum assurance of an approval, if one is needed. Absent: `page`; and `touch` for what destroys something or
    /// goes outward, once the human has enrolled a key.
    pub min_assurance: Option<Assurance>,
    /// What the human must type to approve a run, as a template over the input, such as `"{{ table }}"`: the name of what is destroyed. Absent: the subtool's name, if `destructiveHint` is true; else nothing.
    pub type_to_approve: Option<String>,
    /// Whether a call must say why it is made, with `--reason`. The reason is shown to the human and logged.
    #[serde(default)]
    pub needs_reason: bool,
    /// Whether a human may approve later calls in advance, with a grant.
    #[serde(default = "enabled")]
    pub grantable: bool,
    /// How a run that succeeded is undone. The human finds it as a button in the history.
    pub undo: Option<Undo>,
    /// How long a run waits after a human approved it, so that they can still stop it. Absent: it starts at once.
    pub hold: Option<PositiveDuration>,
    /// The timeout of one attempt. Absent: the configured default.
    pub timeout: Option<PositiveDuration>,
    /// Retries of a failed attempt, if that is safe to repeat.
    pub retries: Option<Retries>,
    /// The time after which no further attempt starts, counted from when the task could first start. A server that asks for a longer wait ends it at once. Absent: `1h`.
    pub give_up_after: Option<PositiveDuration>,
    /// How to find out whether a lost attempt took effect.
    pub verify: Option<Verify>,
    /// How to look up the values that a run would replace, to show them to the human who confirms it.
    pub preview: Option<Preview>,
    /// How to show what a run would do, without it happening: to a caller with `--dry-run`, and to the human who confirms it.
    pub dry_run: Option<DryRun>,
    /// The maximum number of runs per session in a time window.
    pub rate_limit: Option<RateLimit>,
    /// The maximum number of its tasks that run at the same time.
    #[schemars(range(min = 1))]
    pub concurrency: Option<u32>,
    /// Subtools that it is used together with. If one of them is missing, it is not loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<SubtoolName>,
    /// Privileges that callers need, such as `mail:send`: templates, whose values are percent-encoded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["mail:send"], example = ["{{ entity }}:read"])]
    pub requires: Vec<String>,
    /// How sensitive the data is that it returns. A model that may not get it cannot use the subtool. Absent: `internal`.
    pub data_class: Option<DataClass>,
    /// Only for callers with administrative access.
    #[serde(default)]
    pub admin: bool,
    /// The name of the pack that it is from, or of its file without the extension.
    #[serde(skip)]
    pub defined_in: String,
    /// The pack that it is from, as a human enabled it.
    #[serde(skip)]
    pub pinned: Option<Arc<PinnedPack>>,
    /// Whether it is listed and can be run.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// The JSON Schema of the data that it returns.
    #[serde(default)]
    #[schemars(schema_with = "output_schema")]
    pub output: Option<Map<String, Value>>,
    /// How the runner's data becomes the result.
    pub result: Option<ResultShape>,
    /// Tags for searching, grouping and policy rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Example inputs; each is checked against `input`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

fn enabled() -> bool {
    true
}

fn input_schema(_: &mut SchemaGenerator) -> Schema {
    let mut schema = json_schema_of("object");
    schema.insert("properties".to_owned(), json!({ "type": { "const": "object" } }));
    schema
        .insert("examples".to_owned(), json!([{ "type": "object", "properties": {}, "additionalProperties": false }]));
    schema
}

fn output_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema_of(["object", "null"])
}

/// A JSON Schema, checked with the meta-schema of draft 7: the newest one that editors fully support, and not stricter
/// than later ones.
fn json_schema_of(kind: impl Serialize) -> Schema {
    json_schema!({
        "type": kind,
        "if": { "type": "object", "not": { "required": ["$schema"] } },
        "then": { "$ref": "http://json-schema.org/draft-07/schema#" }
    })
}

/// MCP's tool annotations. What is not declared is assumed to be the most harmful case.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Annotations {
    /// It changes nothing.
    #[serde(default)]
    pub read_only_hint: bool,
    /// It may delete or overwrite something. Absent: true, unless it is read-only.
    pub destructive_hint: Option<bool>,
    /// Running it twice with the same input has the same effect as running it once.
    #[serde(default)]
    pub idempotent_hint: bool,
    /// It interacts with systems outside this machine. Absent: true.
    pub open_world_hint: Option<bool>,
}

impl Annotations {
    /// Whether it may delete or overwrite something: it does not say that it does not.
    pub fn is_destructive(self) -> bool {
        !self.read_only_hint && self.destructive_hint != Some(false)
    }

    pub fn effect_class(self) -> EffectClass {
        match self {
            Self { read_only_hint: true, .. } => EffectClass::Read,
            Self { idempotent_hint: true, .. } => EffectClass::Idempotent,
            _ => EffectClass::Once,
        }
    }
}

impl Definition {
    /// Whether a session that is restricted to reading may run it. The annotations of a delegating subtool say nothing
    /// about the tasks that it delegates.
    pub fn runs_in_read_only_sessions(&self) -> bool {
        // A script does nothing but call others, and its calls are of the same session.
        matches!(self.run, Run::Script(_))
            || (self.annotations.effect_class() == EffectClass::Read && !self.run.delegates())
    }

    /// Whether it may destroy something, or sends something to the world outside: what a human should confirm with a
    /// touch.
    pub fn is_grave(&self) -> bool {
        let Annotations { read_only_hint, destructive_hint, open_world_hint, .. } = self.annotations;
        // What is not declared counts by where the work is done: a request goes outward, and of what someone else's
        // program or agent does, nothing is known. Of what runs here, the human is shown the program or the rows.
        let (destroys, sends) = match &self.run {
            Run::Http(_) => (false, true),
            Run::Mcp(_) => (true, true),
            Run::Agent(agent) => (agent.url.is_some(), agent.url.is_some()),
            Run::Process(_)
            | Run::Builtin(_)
            | Run::AskUser(_)
            | Run::Llm(_)
            | Run::Steps(_)
            | Run::Script(_)
            | Run::Sql(_) => (false, false),
        };
        !read_only_hint && (destructive_hint.unwrap_or(destroys) || open_world_hint.unwrap_or(sends))
    }

    pub fn data_class(&self) -> DataClass {
        self.data_class.unwrap_or(DataClass::Internal)
    }

    /// Returns how safe it is to repeat a run. An idempotent subtool stays idempotent even with `verify`.
    pub fn effect_class(&self) -> EffectClass {
        match self.annotations.effect_class() {
            EffectClass::Once if self.verify.is_some() => EffectClass::Verifiable,
            EffectClass::Once if self.run.shares_its_tasks() => EffectClass::Idempotent,
            class => class,
        }
    }

    /// Whether the import that made it did not find where its server is.
    pub fn lacks_server(&self) -> bool {
        // What `import` writes then; no such name exists (RFC 2606).
        const UNKNOWN: &str = "https://unknown-server.invalid";
        matches!(&self.run, Run::Http(http) if http.base_url.starts_with(UNKNOWN))
    }

    /// Returns the names of the secrets without which it cannot run.
    pub fn secrets(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        collect_secrets(&serde_json::to_value(&self.run).unwrap_or_default(), &mut names);
        names
    }
}

impl Definition {
    /// Returns the names of all secrets that it mentions, also after other text.
    pub fn secrets_anywhere(&self) -> BTreeSet<String> {
        let mut names = self.secrets();
        let text = serde_json::to_value(&self.run).unwrap_or_default().to_string();
        let words = text.split(|character: char| character.is_whitespace() || "\"'<>()[]{},".contains(character));
        names.extend(words.filter_map(|word| SecretName::in_reference(word).map(|name| name.as_str().to_owned())));
        names
    }
}

/// Adds the names of the secrets to which `value` refers.
fn collect_secrets(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => names.extend(SecretName::in_reference(text).map(|name| name.as_str().to_owned())),
        Value::Array(items) => items.iter().for_each(|item| collect_secrets(item, names)),
        Value::Object(fields) => fields.values().for_each(|field| collect_secrets(field, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A lookup that finds out whether a run took effect.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// The read-only subtool that looks it up. Callers must be allowed to use it, because they get its data.
    pub subtool: SubtoolName,
    /// The input of the lookup: JSON templates over the input of the run.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// A jq expression over the lookup's data: `true` if the run took effect, `false` if it certainly did not; anything else means unknown.
    #[schemars(example = "any(.[]; .subject != null)")]
    pub happened: String,
    /// The subtool with that name, set when the catalog is loaded.
    #[serde(skip)]
    pub lookup: Option<Lookup>,
}

/// A lookup of the values that a run would replace. It runs before a human is asked and again right before the task
/// starts: if the values changed in between, the task ends without doing anything.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preview {
    /// The read-only subtool that looks them up. Callers must be allowed to use it.
    pub subtool: SubtoolName,
    /// The input of the lookup: JSON templates over the input of the run.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// A jq expression over the lookup's data: an object with the value that each field of the input would replace.
    #[schemars(example = "{title: .title, body: .body}")]
    pub replaces: String,
    /// The subtool with that name, set when the catalog is loaded.
    #[serde(skip)]
    pub lookup: Option<Lookup>,
}

/// How to show what a run would do, without it happening: by a read-only subtool, or by its own request with fields that tell the service to change nothing.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRun {
    /// The read-only subtool that shows it. Callers must be allowed to use it, because they get its data. Absent: its own request, with `input`.
    pub subtool: Option<SubtoolName>,
    /// The input of `subtool`: JSON templates over the input of the run. Without `subtool`: the fields of its own input, with the constants that make the service change nothing; a run cannot set them so.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(example = json!({"ids": "{{ ids }}"}), example = json!({"validateOnly": true}))]
    pub input: Map<String, Value>,
    /// A jq expression over the data: what is shown of it. Absent: all of it.
    #[schemars(example = "{deletes: .records}")]
    pub shows: Option<String>,
    /// The subtool with that name, set when the catalog is loaded.
    #[serde(skip)]
    pub lookup: Option<Lookup>,
}

/// What undoes a run: another subtool, which is requested and asked about like any other.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The subtool that undoes it.
    pub subtool: SubtoolName,
    /// A jq expression over the data of the run: the input of that subtool. `$input` is the input of the run.
    #[schemars(example = "{id: .id}")]
    pub input: String,
}

/// A resolved lookup subtool.
#[derive(Debug, Clone)]
pub struct Lookup {
    pub definition: Arc<Definition>,
    pub schema: Arc<InputSchema>,
}

/// `"never"`, `"always"`, or `{"when": "<expression over input and caller>"}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// It runs without confirmation.
    Never,
    /// A human must approve every run.
    Always,
    /// A human must approve a run if this expression over `input` and `caller` is true, such as `input.to | length > 1`.
    When(String),
}

/// Retries of an attempt that failed in a way that a retry may fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// The maximum number of retries.
    #[schemars(range(max = 10))]
    pub times: u32,
    /// The delay before the first retry; it doubles each time. Absent: `500ms`.
    #[serde(default = "default_backoff")]
    pub backoff: PositiveDuration,
}

fn default_backoff() -> PositiveDuration {
    PositiveDuration::from_millis(500)
}

/// How the runner's data becomes the result.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultShape {
    /// A jq expression over the runner's data, such as `.messages // []`. With an HTTP runner it can use `$status` and `$headers`, an object of the response's headers by lower-case name.
    #[schemars(example = ".messages // []", example = "{id, etag: $headers.etag}")]
    pub select: Option<String>,
    /// A jq expression over the runner's data that says which part of all there is the result is: an object with some of `more_pages` (`true`, `false`, or `"unknown"`), `page`, `limit`, `total` and `truncated` (what is missing, as a text), or `null` if it is everything. It knows the variables of `select`. Callers find it in `_meta`. Absent: what the runner says.
    #[schemars(example = "{more_pages: (.total > $input.page * $input.limit), page: $input.page, total}")]
    pub part: Option<String>,
    /// Headers of the HTTP response to return. Without `select`, the result is `{"status", "headers", "body"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["etag", "location"])]
    pub headers: Vec<String>,
}

impl ResultShape {
    /// The variables that `select` and `part` may use.
    pub const VARIABLES: [&str; 2] = RESPONSE_VARIABLES;

    /// Finds mistakes that the types cannot express, except in `select`; returns the location and the message.
    pub fn check(&self, run: &Run) -> Result<(), (&'static str, String)> {
        let at = |place, message: &str| Err((place, message.to_owned()));
        if self.select.is_none() && self.headers.is_empty() && self.part.is_none() {
            at("result", "has neither `select` nor `headers` nor `part`")
        } else if self.headers.is_empty() {
            Ok(())
        } else if !matches!(run, Run::Http(_)) {
            at("result.headers", "only the http runner has response headers")
        } else if self.select.is_some() {
            at("result.headers", "has no effect beside `select`, which finds them in `$headers`")
        } else {
            Ok(())
        }
    }
}

/// An example input.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The input; it must be valid under the subtool's `input` schema.
    pub input: Map<String, Value>,
    /// A note about what the example shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
