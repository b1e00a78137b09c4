//! What a script's worker and its host say to each other: one JSON document per line, in both directions.
//!
//! The host writes [`HostMessage::Start`] and then a [`Settle`] for each call that ended. The worker writes
//! [`WorkerMessage`]s: after each message of the host what the script did, then [`WorkerMessage::Idle`], or
//! [`WorkerMessage::Done`] or [`WorkerMessage::Failed`], after which it ends. The host may write ahead, but must read at
//! the same time, since both pipes are bounded.
//!
//! The same start and the same settles in the same order lead to the same messages.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_with_macros::skip_serializing_none;

use crate::limits::Limits;

/// The depth to which a value that crosses may be nested: `serde_json` reads no more than 128 levels.
pub(crate) const MAX_DEPTH: usize = 100;

/// JSON text, which is passed on as it was written: numbers keep all their digits.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

/// What the host writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMessage {
    /// The first message, and only that.
    Start(Box<Start>),
    Settle(Settlement),
}

/// A script and everything that it depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The body of an async function.
    pub source: String,
    /// The script's name in stack traces.
    #[serde(default = "default_name")]
    pub name: String,
    /// What the script sees as `input`.
    #[serde(default)]
    pub input: Json,
    /// The subtools that the script may call: the JavaScript identifier, and the subtool's name. An identifier that is
    /// a global already, such as `read` or `Map`, is found in `tools` alone.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
    /// The time that the script sees until the first settle, in milliseconds since 1970.
    pub now: i64,
    /// Where `Math.random` and `crypto` begin. It is not secret, so the script's random numbers are not either.
    #[serde(with = "decimal")]
    pub seed: u64,
    #[serde(default)]
    pub limits: Limits,
}

/// How an open call ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    pub seq: u64,
    /// The time that the script sees from now on, in milliseconds since 1970.
    pub now: i64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Data(Json),
    Error(CallError),
}

/// Why a call failed: the script gets a `SubtoolError` with these fields.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallError {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
    pub details: Option<Json>,
    #[serde(default)]
    pub class: ErrorClass,
}

/// The class of the error that a script catches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// `SubtoolError` itself.
    #[default]
    Error,
    /// `Denied`: a human or a rule did not allow the call.
    Denied,
    /// `OutcomeUnknown`: the call may have had its effect.
    OutcomeUnknown,
}

/// What the worker writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerMessage {
    Call(Call),
    /// A line that the script wrote with `console`.
    Note(String),
    /// Everything that could run has run; the script waits for one of its calls.
    Idle(Idle),
    /// The last message: the script returned, and its calls ended, except for timers that it cleared.
    Done(Completion),
    /// The last message: the script ended with an error. Calls may still be open.
    Failed(Box<Failure>),
}

/// A call that the host shall perform.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Counts from 1.
    pub seq: u64,
    pub kind: CallKind,
    /// The subtool's name, only for [`CallKind::Run`].
    pub name: Option<String>,
    /// Always an object.
    pub input: Json,
    /// The line of the script that made the call.
    pub line: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Runs a subtool.
    Run,
    AskUser,
    /// Searches subtools: `{"query": …}`, or what else the script gave.
    ListTools,
    Read,
    /// Ends after `{"ms": …}`.
    Sleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// How many calls are open: written and not settled. Calls that wait for their turn do not count.
    pub pending: usize,
    /// Whether the script has returned, and waits only for calls that it left open. If these are timers alone, as after a
    /// race with one, the host may settle them early.
    pub is_returned: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    pub value: Json,
    /// Whether the script returned nothing; the value is then `null`.
    pub is_undefined: bool,
}

/// Why a script failed.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub kind: FailureKind,
    /// The name of the JavaScript error, such as `TypeError`.
    pub name: Option<String>,
    pub message: String,
    pub hint: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// The error of the call that the script did not catch, or the cause of what it threw.
    pub error: Option<CallError>,
    /// The call that `error` is of.
    pub seq: Option<u64>,
    /// The functions of the script that the error came from, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The source does not parse.
    Syntax,
    /// The script threw an error and did not catch it.
    Thrown,
    /// A call failed and the script did not catch its error.
    Call,
    /// The script exceeded one of its [`Limits`].
    Limit,
    /// The script waits, and nothing that it waits for can happen.
    Stuck,
    /// The result cannot be written as JSON.
    Value,
}

impl Json {
    /// Takes `text` as it is, if it is JSON; only lines are joined.
    pub fn from_text(text: String) -> serde_json::Result<Self> {
        // Inside of texts, JSON escapes the ends of lines.
        let text = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text };
        RawValue::from_string(text).map(Self)
    }

    pub fn as_text(&self) -> &str {
        self.0.get()
    }

    /// The value, if it is nested as little as `serde_json` reads. What a worker writes always is.
    pub fn to_value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.0.get())
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        Self(RawValue::from_string(value.to_string()).expect("a value is written as JSON"))
    }
}

impl Default for Json {
    /// `null`.
    fn default() -> Self {
        Self::from(&Value::Null)
    }
}

/// Compares the text.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.get())
    }
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            name: None,
            message: message.into(),
            hint: None,
            line: None,
            column: None,
            error: None,
            seq: None,
            stack: Vec::new(),
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

fn default_name() -> String {
    "script.js".to_owned()
}

/// A `u64` as text, since JSON numbers of other programs end at 2^53.
mod decimal {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded runs are replayed by later versions, so what was once written must stay readable.
    #[test]
    fn the_lines_of_the_protocol_stay_as_they_are() {
        for line in [
            r#"{"start":{"source":"return 1","name":"a.js","input":{"n":1.50},"tools":{"a_b":"a-b"},"now":1772690828009,"seed":"18446744073709551615","limits":{"memory_bytes":1,"compute_ms":2,"max_calls":3,"max_open":4,"max_value_bytes":5,"max_value_nodes":6,"max_note_bytes":7,"max_notes_bytes":8}}}"#,
            r#"{"settle":{"seq":3,"now":1,"outcome":{"data":[1.0,"x"]}}}"#,
            r#"{"settle":{"seq":3,"now":1,"outcome":{"error":{"code":"c","message":"m","hint":"h","details":{},"class":"outcome_unknown"}}}}"#,
        ] {
            let message: HostMessage = serde_json::from_str(line).expect(line);
            assert_eq!(serde_json::to_string(&message).expect("JSON"), line);
        }
        for line in [
            r#"{"call":{"seq":1,"kind":"run","name":"a-b","input":{},"line":12}}"#,
            r#"{"call":{"seq":2,"kind":"ask_user","input":{"question":"?"}}}"#,
            r#"{"call":{"seq":3,"kind":"list_tools","input":{"query":"x"}}}"#,
            r#"{"note":"text"}"#,
            r#"{"idle":{"pending":2,"is_returned":false}}"#,
            r#"{"done":{"value":null,"is_undefined":true}}"#,
            r#"{"failed":{"kind":"call","name":"Denied","message":"m","hint":"h","line":1,"column":2,"error":{"code":"c","message":"m","class":"denied"},"seq":4,"stack":["f (a.js:1:2)"]}}"#,
            r#"{"failed":{"kind":"stuck","message":"m"}}"#,
        ] {
            let message: WorkerMessage = serde_json::from_str(line).expect(line);
            assert_eq!(serde_json::to_string(&message).expect("JSON"), line);
        }
    }

    #[test]
    fn what_a_start_leaves_out_has_a_default() {
        let line = r#"{"start":{"source":"","now":0,"seed":"1","limits":{"max_open":2}}}"#;
        let HostMessage::Start(start) = serde_json::from_str(line).expect(line) else { panic!("a start") };
        assert_eq!((start.name.as_str(), start.input.as_text(), start.tools.len()), ("script.js", "null", 0));
        assert_eq!(start.limits, Limits { max_open: 2, ..Limits::default() });
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for line in [
            r#"{"start":{"source":"","now":0,"seed":"1","other":1}}"#,
            r#"{"start":{"source":"","now":0,"seed":1}}"#,
            r#"{"settle":{"seq":1,"now":1,"outcome":{"both":1}}}"#,
            r#"{"stop":{}}"#,
        ] {
            assert!(serde_json::from_str::<HostMessage>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_lines_of_a_text_are_joined() {
        let json = Json::from_text("{\n  \"a\": \"b\\n\"\r\n}".to_owned()).expect("JSON");
        assert_eq!(json.as_text(), "{   \"a\": \"b\\n\"  }");
        assert!(Json::from_text("{".to_owned()).is_err());
    }
}
