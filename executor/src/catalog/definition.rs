//! A subtool's definition: the types of discovery JSON, and nothing that runs.
//!
//! Only `description` and `input` are ever shown to a model; the rest is the developer's. Loading,
//! merging `$defaults` and finding mistakes is `catalog.rs`.

use std::sync::Arc;

use protocol::duration::PositiveDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::base::schema::InputSchema;
use crate::runner::Run;
use crate::task::confirmation::Assurance;
use crate::task::effect::EffectClass;
use crate::task::name::SubtoolName;

/// One subtool.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What it does, in the words of the one who looks for it. Shown to the model.
    #[schemars(regex(pattern = r"\S"))]
    pub description: String,
    /// JSON Schema of the input (draft 2020-12 unless its `$schema` says otherwise). Shown to the model.
    #[schemars(schema_with = "input_schema")]
    pub input: Map<String, Value>,
    /// Claims about its effects, as in MCP.
    #[serde(default)]
    pub annotations: Annotations,
    /// How it is performed: exactly one runner.
    pub run: Run,
    /// Whether a human must say yes. Absent: decided by policy from the annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirm>,
    /// The weakest kind of yes that is enough, where one is needed. Absent: that of the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_assurance: Option<Assurance>,
    /// Whether a human may let later calls through with one yes.
    #[serde(default = "yes")]
    pub grantable: bool,
    /// How long one attempt may take. Absent: the configured default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<PositiveDuration>,
    /// How often a failed attempt is repeated, if repeating it is harmless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// How to find out whether a run took effect that was lost before it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// What a human is shown that would be replaced, before they say yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// At most `calls` runs by one session in any window of the length `per`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// How many of its tasks may run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub concurrency: Option<u32>,
    /// Subtools that are used together with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<SubtoolName>,
    /// Privileges that the caller needs, like `mail:send`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["mail:send"])]
    pub requires: Vec<String>,
    /// Only for callers with administrative access.
    #[serde(default)]
    pub admin: bool,
    /// A subtool that is not enabled is neither listed nor run.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// JSON Schema of the data that it returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "output_schema")]
    pub output: Option<Map<String, Value>>,
    /// What becomes of the runner's data before it is a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultShape>,
    /// Words to find it and to group it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Inputs to learn it from; each is checked against `input`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
}

fn yes() -> bool {
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

/// A JSON Schema, checked by draft 7's own: the newest that editors know in full, and no stricter
/// than its successors.
fn json_schema_of(kind: impl Serialize) -> Schema {
    json_schema!({
        "type": kind,
        "if": { "type": "object", "not": { "required": ["$schema"] } },
        "then": { "$ref": "http://json-schema.org/draft-07/schema#" }
    })
}

/// MCP's tool annotations. What is not declared counts as the most harmful case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Annotations {
    /// It changes nothing.
    #[serde(default)]
    pub read_only_hint: bool,
    /// What it changes may be lost. Absent: true, unless it is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Doing it twice with the same input is the same as doing it once.
    #[serde(default)]
    pub idempotent_hint: bool,
    /// It reaches beyond this machine. Absent: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

impl Annotations {
    pub fn effect_class(self) -> EffectClass {
        match self {
            Self { read_only_hint: true, .. } => EffectClass::Read,
            Self { idempotent_hint: true, .. } => EffectClass::Idempotent,
            _ => EffectClass::Once,
        }
    }
}

impl Definition {
    /// What repeating it may do. Whoever is idempotent needs no lookup.
    pub fn effect_class(&self) -> EffectClass {
        match self.annotations.effect_class() {
            EffectClass::Once if self.verify.is_some() => EffectClass::Verifiable,
            class => class,
        }
    }
}

/// A lookup that tells whether a run took effect.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// The subtool that looks it up: a read-only one that callers may use, since they get what it finds.
    pub subtool: SubtoolName,
    /// The lookup's input: JSON templates over the input of the run.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// A jq expression over the lookup's data: `true` if it happened, `false` if it surely did not; anything else leaves it open.
    #[schemars(example = "any(.[]; .subject != null)")]
    pub happened: String,
    /// The subtool of that name, once the catalog is loaded.
    #[serde(skip)]
    pub lookup: Option<Lookup>,
}

/// A look at what is there now. It is taken when a human is asked, and again right before the start: what
/// changed in between ends the task, and nothing was done.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preview {
    /// The subtool that looks: a read-only one that callers may use.
    pub subtool: SubtoolName,
    /// Its input: JSON templates over the input of the run.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// A jq expression over what it finds: an object with what each field of the input would replace.
    #[schemars(example = "{title: .title, body: .body}")]
    pub replaces: String,
    /// The subtool of that name, once the catalog is loaded.
    #[serde(skip)]
    pub lookup: Option<Lookup>,
}

/// What a lookup is performed with.
#[derive(Debug, Clone)]
pub struct Lookup {
    pub definition: Arc<Definition>,
    pub schema: Arc<InputSchema>,
}

/// `"never"`, `"always"`, or `{"when": "<expression over input and caller>"}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// It runs without being asked about.
    Never,
    /// A human must say yes to every run.
    Always,
    /// A human must say yes where this expression over `input` and `caller` holds, like `input.to | length > 1`.
    When(String),
}

/// Repetitions of an attempt that failed in a way that another one may mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// How many times after the first.
    #[schemars(range(max = 10))]
    pub times: u32,
    /// The pause before the first repetition; it doubles each time. Absent: `500ms`.
    #[serde(default = "first_pause")]
    pub backoff: PositiveDuration,
}

fn first_pause() -> PositiveDuration {
    PositiveDuration::from_millis(500)
}

/// A limit on how often one session may run it; calls beyond it are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// How many runs; 0 is no limit.
    pub calls: u32,
    /// In any window of this length, like `1m`.
    pub per: PositiveDuration,
    /// Whether a call beyond it switches the subtool off for its session, until a human switches it on again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_disable: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "that is how serde asks")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What becomes of the runner's data.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultShape {
    /// A jq expression over the runner's data, like `.messages // []`.
    pub select: String,
}

/// An input that works.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// As a caller would give it; it must fit the subtool's `input`.
    pub input: Map<String, Value>,
    /// What it shows, for a reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
