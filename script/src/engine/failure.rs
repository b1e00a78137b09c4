//! What a script threw, as the message that its host gets.

use rquickjs::{Ctx, Error, Function, Persistent, Value};
use serde::Deserialize;

use super::origin::Origin;
use crate::messages::{CallError, ErrorClass, Failure, FailureKind};
use crate::reason;
use crate::run::{self, Run};

/// How many functions of the stack are told.
const MAX_FRAMES: usize = 8;

/// A value that was thrown, as the prelude describes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ThrownValue {
    name: Option<String>,
    message: Option<String>,
    hint: Option<String>,
    stack: Option<String>,
    /// The call that it, or what caused it, is the error of.
    seq: Option<u64>,
    /// Whether the error of that call only caused it.
    is_cause: bool,
    error: Option<CallBody>,
    /// JSON text.
    details: Option<String>,
    /// The first error of an `AggregateError`.
    inner: Option<String>,
    /// The message of what caused it.
    cause: Option<String>,
}

/// The error of a call. A script can have changed it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallBody {
    code: String,
    message: String,
    hint: Option<String>,
    class: ErrorClass,
}

/// A place in the script.
#[derive(Debug, PartialEq, Eq)]
struct Frame<'a> {
    text: &'a str,
    line: u32,
    column: u32,
}

impl ThrownValue {
    /// Asks the prelude. Runs code of the script if `value` has any, such as getters.
    pub(super) fn read<'js>(context: &Ctx<'js>, describe: &Persistent<Function<'static>>, value: Value<'js>) -> Self {
        let described: Result<String, Error> =
            describe.clone().restore(context).and_then(|describe| describe.call((value,)));
        let Ok(text) = described else {
            // What prevented it stays pending otherwise.
            drop(context.catch());
            return Self::default();
        };
        serde_json::from_str(&run::without_lone_surrogates(text)).unwrap_or_default()
    }

    fn into_failed(self, kind: FailureKind, origin: &Origin) -> Failure {
        let frames = frames(self.stack.as_deref().unwrap_or_default(), &origin.name);
        let message = self.message.filter(|message| !message.is_empty());
        let mut failed =
            Failure::new(kind, message.unwrap_or_else(|| "the script threw a value without a message".to_owned()));
        // Not its `hint`, which would read as one of this program.
        failed.name = self.name;
        if let Some(inner) = frames.first() {
            failed.line = Some(inner.line);
            failed.column = Some(Origin::column(inner.line, inner.column));
        }
        failed.stack = frames.iter().take(MAX_FRAMES).map(|frame| frame.text.to_owned()).collect();
        failed
    }
}

/// The failure of a script that was not compiled.
pub(super) fn uncompiled(thrown: ThrownValue, origin: &Origin, _run: &Run) -> Failure {
    if thrown.name.as_deref() != Some("SyntaxError") {
        return thrown_without_call(thrown, origin);
    }
    let mut failed = thrown.into_failed(FailureKind::Syntax, origin);
    failed.stack.clear();
    let lines = u32::try_from(origin.source.lines().count()).unwrap_or(u32::MAX).max(1);
    if failed.line.is_some_and(|line| line > lines) {
        // The parser has reached what stands around the source.
        "the source ends too early: a bracket, text or comment is not closed, or a bracket too many is"
            .clone_into(&mut failed.message);
        (failed.line, failed.column) = (Some(lines), None);
    }
    failed.hint = reason::syntax_hint(&origin.source, &failed).map(str::to_owned);
    failed
}

/// The failure of a script that did not catch what was thrown.
pub(super) fn thrown(mut thrown: ThrownValue, origin: &Origin, run: &Run) -> Failure {
    let (seq, is_cause, body) = (thrown.seq, thrown.is_cause, thrown.error.take());
    let details = thrown.details.take().and_then(|text| match run.crossing(text) {
        run::Crossing::Json(details) => Some(details),
        run::Crossing::TooDeep | run::Crossing::TooLarge => None,
    });
    let mut failed = thrown_without_call(thrown, origin);
    let (Some(seq), Some(body)) = (seq, body) else { return failed };
    let CallBody { code, message, hint, class } = body;
    if !is_cause {
        failed.kind = FailureKind::Call;
    }
    failed.line = failed.line.or(run.line_of(seq));
    failed.seq = Some(seq);
    failed.error = Some(CallError { code, message, hint, details, class });
    failed
}

fn thrown_without_call(mut thrown: ThrownValue, origin: &Origin) -> Failure {
    if let Some(limit) = reason::engine_limit(thrown.name.as_deref(), thrown.message.as_deref()) {
        let line = line(&thrown, origin);
        return Failure { line, ..limit };
    }
    let (inner, cause) = (thrown.inner.take(), thrown.cause.take());
    let mut failed = thrown.into_failed(FailureKind::Thrown, origin);
    for (what, message) in [("the first of its errors", inner), ("its cause", cause)] {
        if let Some(message) = message {
            failed.message = format!("{}; {what}: {message}", failed.message);
        }
    }
    if failed.hint.is_none() {
        failed.hint = reason::thrown_hint(&failed, |name| origin.closest_tool(name));
    }
    failed
}

/// The line of the script where it was thrown.
pub(super) fn line(thrown: &ThrownValue, origin: &Origin) -> Option<u32> {
    first_line(thrown.stack.as_deref()?, &origin.name)
}

/// The innermost line of a script in a stack trace.
pub(super) fn first_line(stack: &str, script: &str) -> Option<u32> {
    frames(stack, script).first().map(|frame| frame.line)
}

/// The places of a stack trace that are in the script: `at f (script.js:2:13)`, or `at script.js:2:13`.
fn frames<'a>(stack: &'a str, script: &str) -> Vec<Frame<'a>> {
    stack.lines().filter_map(|line| frame(line, script)).collect()
}

fn frame<'a>(line: &'a str, script: &str) -> Option<Frame<'a>> {
    let text = line.trim().strip_prefix("at ")?;
    let place = text.strip_suffix(')').and_then(|text| text.rsplit_once('(')).map_or(text, |(_, place)| place);
    let (file, position) = place.rsplit_once(':').and_then(|(rest, column)| {
        let (file, line) = rest.rsplit_once(':')?;
        Some((file, (line.parse().ok()?, column.parse().ok()?)))
    })?;
    // The code around the source is no function of the script.
    (file == script && !text.starts_with("<eval> ")).then_some(Frame { text, line: position.0, column: position.1 })
}
