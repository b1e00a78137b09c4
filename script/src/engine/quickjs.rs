//! The engine that is `QuickJS`, by `rquickjs`.
//!
//! Standard objects of the language are `QuickJS`'s own. What a script finds besides is JavaScript too, in `prelude.js`
//! and in `shims/`, which runs before the script.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Error, Function, IntoJs, Object, Persistent, Promise, Runtime, Undefined, Value};

use super::failure::{self, ThrownValue};
use super::origin::Origin;
use super::{MAX_STACK_BYTES, Progress};
use crate::messages::{Completion, Failure, FailureKind, Json, Outcome, Settlement, Start};
use crate::names;
use crate::reason;
use crate::run::{self, Crossing, Meter, Run, StopReason};

/// JavaScript of ours: its name in stack traces, which no script has, and its text.
const PRELUDE: (&str, &str) = ("<prelude>", include_str!("prelude.js"));
const SHIMS: [(&str, &str); 4] = [
    ("<date>", include_str!("shims/date.js")),
    ("<collation>", include_str!("shims/collation.js")),
    ("<locale>", include_str!("shims/locale.js")),
    ("<web>", include_str!("shims/web.js")),
];
/// What describing a failure may use after the script has used all of its memory.
const SPARE_BYTES: usize = 4 << 20;

type Shared<T> = Rc<RefCell<T>>;
type Rejections = Shared<Vec<(Persistent<Value<'static>>, Persistent<Value<'static>>)>>;

/// A script in `QuickJS`.
pub(crate) struct QuickJs {
    /// Promises that were rejected while nothing handled them, and the reasons.
    rejections: Rejections,
    /// The promise of the script itself.
    main: Option<Persistent<Promise<'static>>>,
    functions: Functions,
    run: Shared<Run>,
    meter: Rc<Meter>,
    origin: Origin,
    context: Context,
    runtime: Runtime,
}

/// Functions of the prelude.
#[derive(Clone)]
struct Functions {
    settle: Persistent<Function<'static>>,
    describe: Persistent<Function<'static>>,
    result: Persistent<Function<'static>>,
}

impl QuickJs {
    /// Compiles the script and runs it up to its first `await`.
    pub(crate) fn start(start: &Start, run: &Shared<Run>, meter: &Rc<Meter>) -> Result<Self, StopReason> {
        let mut engine = Self::prepared(start, run, meter)?;
        engine.main = Some(engine.compile()?);
        Ok(engine)
    }

    /// Compiles a script, and runs none of it.
    pub(crate) fn check(start: &Start, run: &Shared<Run>, meter: &Rc<Meter>) -> Result<(), StopReason> {
        let engine = Self::prepared(start, run, meter)?;
        let text = engine.origin.uncalled();
        let compiled = engine.context.with(|context| {
            let function: Result<Value<'_>, Error> = context.eval_with_options(text, options(&engine.origin.name));
            function.map(drop).map_err(|_| Persistent::save(&context, context.catch()))
        });
        compiled.map_err(|reason| engine.explain(reason, failure::uncompiled))
    }

    /// An engine with everything but the script.
    fn prepared(start: &Start, run: &Shared<Run>, meter: &Rc<Meter>) -> Result<Self, StopReason> {
        let origin = Origin::new(start);
        if origin.source.contains('\0') {
            let failed = Failure::new(FailureKind::Syntax, "the source contains a NUL character");
            return Err(StopReason::Failed(Box::new(failed.with_hint("write it as \\0 in a string"))));
        }
        let runtime = Runtime::new().map_err(|_| no_memory())?;
        runtime.set_memory_limit(start.limits.memory_bytes);
        runtime.set_max_stack_size(MAX_STACK_BYTES);
        let rejections = Rejections::default();
        let tracked = Rc::clone(&rejections);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |context, promise, reason, is_handled| {
            track(&tracked, &context, &promise, &reason, is_handled);
        })));
        let context = Context::full(&runtime).map_err(|_| no_memory())?;
        let prepared =
            context.with(|context| prepare(&context, start, &origin.name, run).map_err(|_| context.catch()).ok());
        let functions = prepared.ok_or_else(no_memory)?;
        // What runs up to here is ours, and does not count.
        meter.restart();
        let (watched, watched_run) = (Rc::clone(meter), Rc::clone(run));
        let interrupts = move || watched.interrupts() || watched_run.try_borrow().is_ok_and(|run| run.is_stopped());
        runtime.set_interrupt_handler(Some(Box::new(interrupts)));
        let (run, meter) = (Rc::clone(run), Rc::clone(meter));
        Ok(Self { rejections, main: None, functions, run, meter, origin, context, runtime })
    }

    fn compile(&self) -> Result<Persistent<Promise<'static>>, StopReason> {
        let text = self.origin.wrapped();
        let compiled = self.context.with(|context| {
            let promise: Result<Promise<'_>, Error> = context.eval_with_options(text, options(&self.origin.name));
            promise
                .map(|promise| Persistent::save(&context, promise))
                .map_err(|_| Persistent::save(&context, context.catch()))
        });
        compiled.map_err(|reason| self.explain(reason, failure::uncompiled))
    }

    /// Ends a call. What waited for it runs with [`Self::advance`].
    pub(crate) fn settle(&mut self, settle: Settlement) -> Result<(), StopReason> {
        let settled = self.context.with(|context| {
            self.call_settle(&context, settle).map_err(|_| Persistent::save(&context, context.catch()))
        });
        settled.map_err(|reason| self.explain(reason, failure::thrown))?;
        self.run.borrow_mut().issue_held();
        Ok(())
    }

    fn call_settle(&self, context: &Ctx<'_>, settle: Settlement) -> Result<(), Error> {
        let function = self.functions.settle.clone().restore(context)?;
        match settle.outcome {
            Outcome::Data(data) => {
                let data = context.json_parse(data.as_text())?;
                function.call((settle.seq, Undefined, data))
            }
            Outcome::Error(error) => {
                let body = serde_json::to_string(&error).unwrap_or_default();
                function.call((settle.seq, body, Undefined))
            }
        }
    }

    /// Runs what can run.
    pub(crate) fn advance(&mut self) -> Result<Progress, StopReason> {
        loop {
            match self.runtime.execute_pending_job() {
                Ok(true) => {}
                Ok(false) => break,
                // Only the engine itself fails in this way: its memory or its time is over.
                Err(job) => {
                    let reason = job.0.with(|context| Persistent::save(&context, context.catch()));
                    drop(job);
                    return Err(self.explain(reason, failure::thrown));
                }
            }
            if self.meter.is_exceeded() || self.run.borrow().is_stopped() {
                break;
            }
        }
        if let Some(stop) = self.run.borrow_mut().take_stop() {
            return Err(stop);
        }
        match self.context.with(|context| self.state(&context)) {
            State::Waiting { is_returned } => Ok(Progress::Waiting { is_returned }),
            State::Stuck => Err(failed(reason::stuck())),
            State::Threw(reason) => Err(self.explain(reason, failure::thrown)),
            State::Returned(value) => self.result(&value).map(Progress::Ended),
        }
    }

    fn state(&self, context: &Ctx<'_>) -> State {
        let save = |value| Persistent::save(context, value);
        let undefined = || Value::new_undefined(context.clone());
        let Some(Ok(main)) = self.main.clone().map(|main| main.restore(context)) else { return State::Stuck };
        let state = main.state();
        if state == PromiseState::Rejected {
            return State::Threw(match main.result::<Value<'_>>() {
                Some(Err(_)) => save(context.catch()),
                _ => save(undefined()),
            });
        }
        if self.meter.is_exceeded() {
            return State::Threw(save(undefined()));
        }
        if self.run.borrow().is_waiting() {
            return State::Waiting { is_returned: state == PromiseState::Resolved };
        }
        if let Some((_, reason)) = self.rejections.borrow().first() {
            return State::Threw(reason.clone());
        }
        match main.result::<Value<'_>>() {
            Some(Ok(value)) => State::Returned(save(value)),
            _ => State::Stuck,
        }
    }

    /// The result of the script as JSON.
    fn result(&self, value: &Persistent<Value<'static>>) -> Result<Completion, StopReason> {
        self.meter.restart();
        // Getters and `toJSON` of the script run now. They must not make calls.
        self.run.borrow_mut().close();
        let text = self.context.with(|context| {
            let function = self.functions.result.clone().restore(&context);
            let text: Result<Option<String>, Error> = function.and_then(|function| function.call((value.clone(),)));
            text.map_err(|_| Persistent::save(&context, context.catch()))
        });
        let text = text.map_err(|reason| match self.explain(reason, failure::thrown) {
            StopReason::Failed(mut failed) if failed.kind == FailureKind::Thrown => {
                failed.kind = FailureKind::Value;
                StopReason::Failed(failed)
            }
            reason => reason,
        })?;
        let mut run = self.run.borrow_mut();
        let Some(text) = text else {
            return match reason::nothing_done(&self.origin.source, &run) {
                Some(nothing) => Err(failed(nothing)),
                None => Ok(Completion { value: Json::default(), is_undefined: true }),
            };
        };
        match run.crossing(text) {
            Crossing::Json(value) => Ok(Completion { value, is_undefined: false }),
            Crossing::TooDeep => Err(failed(Failure::new(FailureKind::Value, reason::too_deep("the result")))),
            Crossing::TooLarge => {
                exceed_value(&mut run, false, "the result");
                Err(run.take_stop().unwrap_or_else(no_memory))
            }
        }
    }

    /// Why the script ended, if `reason` is what it threw and `tell` says what that means.
    fn explain(
        &self,
        reason: Persistent<Value<'static>>,
        tell: fn(ThrownValue, &Origin, &Run) -> Failure,
    ) -> StopReason {
        {
            let mut run = self.run.borrow_mut();
            if let Some(stop) = run.take_stop() {
                return stop;
            }
            // Code of the script may run to describe what it threw. It must not make calls.
            run.close();
        }
        let limits = *self.run.borrow().limits();
        let used = usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(0);
        self.runtime.set_memory_limit(limits.memory_bytes.saturating_add(SPARE_BYTES));
        let is_exceeded = self.meter.is_exceeded();
        self.meter.restart();
        let (is_null, thrown) = self.context.with(|context| {
            let reason = reason.restore(&context).unwrap_or_else(|_| Value::new_undefined(context.clone()));
            (reason.is_null(), ThrownValue::read(&context, &self.functions.describe, reason))
        });
        let run = self.run.borrow();
        if is_exceeded || self.meter.is_exceeded() {
            let mut limit = reason::computed_too_long();
            limit.line = failure::line(&thrown, &self.origin);
            return failed(limit);
        }
        let told = tell(thrown, &self.origin, &run);
        if !is_null {
            return failed(told);
        }
        // The engine throws `null` if no memory is left for an error that says so.
        let code = names::code_of(&self.origin.source);
        let is_own = ["throw null", "(null)"].iter().any(|written| code.contains(written));
        if !is_own || used > limits.memory_bytes / 2 { no_memory() } else { failed(told.with_hint(reason::NULL_HINT)) }
    }
}

/// Where a script is.
enum State {
    Waiting { is_returned: bool },
    Stuck,
    Threw(Persistent<Value<'static>>),
    Returned(Persistent<Value<'static>>),
}

impl Drop for QuickJs {
    fn drop(&mut self) {
        // The runtime holds the tracker, and with it these values, which must go before the runtime does.
        self.rejections.borrow_mut().clear();
    }
}

impl fmt::Debug for QuickJs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("QuickJs").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Books that a promise was rejected while nothing handled it, or that something handles it now.
fn track<'js>(
    rejections: &Rejections,
    context: &Ctx<'js>,
    promise: &Value<'js>,
    reason: &Value<'js>,
    is_handled: bool,
) {
    let mut rejections = rejections.borrow_mut();
    if !is_handled {
        rejections.push((Persistent::save(context, promise.clone()), Persistent::save(context, reason.clone())));
        return;
    }
    let is_it =
        |saved: &Persistent<Value<'static>>| saved.clone().restore(context).is_ok_and(|saved| saved == *promise);
    if let Some(index) = rejections.iter().rposition(|(saved, _)| is_it(saved)) {
        rejections.remove(index);
    }
}

/// Gives the script what it finds besides the language.
fn prepare(context: &Ctx<'_>, start: &Start, script: &str, run: &Shared<Run>) -> Result<Functions, Error> {
    let bridge = bridge(context, script, run)?;
    let identifiers = Object::new(context.clone())?;
    for (identifier, name) in &start.tools {
        identifiers.set(identifier.as_str(), name.as_str())?;
    }
    let prelude: Function<'_> = context.eval_with_options(PRELUDE.1, options(PRELUDE.0))?;
    let parts: Object<'_> = prelude.call((bridge.clone(), identifiers))?;
    let refuse_code: Function<'_> = parts.get::<_, Function<'_>>("install")?.call(())?;
    for (name, text) in SHIMS {
        let shim: Function<'_> = context.eval_with_options(text, options(name))?;
        shim.call::<_, ()>((bridge.clone(), parts.clone()))?;
    }
    parts.get::<_, Function<'_>>("installTools")?.call::<_, ()>(())?;
    let input = context.json_parse(start.input.as_text())?;
    parts.get::<_, Function<'_>>("define")?.call::<_, ()>((context.globals(), "input", input))?;
    refuse_code.call::<_, ()>(())?;
    Ok(Functions { settle: parts.get("settle")?, describe: parts.get("describe")?, result: parts.get("result")? })
}

/// The native functions that the prelude calls.
fn bridge<'js>(context: &Ctx<'js>, script: &str, run: &Shared<Run>) -> Result<Object<'js>, Error> {
    let bridge = Object::new(context.clone())?;
    let limits = *run.borrow().limits();
    bridge.set("maxNodes", limits.max_value_nodes)?;
    bridge.set("maxBytes", limits.max_value_bytes)?;
    let own = Rc::clone(run);
    let script = script.to_owned();
    let issue = move |kind: String, name: String, input: String, what: String, stack: String| {
        issue(&mut own.borrow_mut(), &kind, name, input, &what, failure::first_line(&stack, &script))
    };
    bridge.set("issue", Function::new(context.clone(), issue)?)?;
    let own = Rc::clone(run);
    bridge.set("clear", Function::new(context.clone(), move |seq: u32| own.borrow_mut().clear(u64::from(seq)))?)?;
    let own = Rc::clone(run);
    bridge.set("note", Function::new(context.clone(), move |text: String| own.borrow_mut().note(&text))?)?;
    let own = Rc::clone(run);
    let exceed = move |is_nodes: bool, what: String| exceed_value(&mut own.borrow_mut(), is_nodes, &what);
    bridge.set("exceed", Function::new(context.clone(), exceed)?)?;
    let own = Rc::clone(run);
    #[expect(clippy::cast_precision_loss, reason = "times are far below 2^53")]
    bridge.set("now", Function::new(context.clone(), move || own.borrow().now() as f64)?)?;
    let own = Rc::clone(run);
    // Two halves of a random number, as 32 bits each.
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is not lost: it is drawn again")]
    bridge.set("random", Function::new(context.clone(), move || own.borrow_mut().random() as u32)?)?;
    Ok(bridge)
}

/// What calling a native function of the prelude gives back.
enum IssueOutcome {
    Seq(u64),
    Mistake(String),
    Stopped,
}

impl<'js> IntoJs<'js> for IssueOutcome {
    fn into_js(self, context: &Ctx<'js>) -> Result<Value<'js>, Error> {
        match self {
            Self::Seq(seq) => seq.into_js(context),
            Self::Mistake(message) => message.into_js(context),
            Self::Stopped => 0.into_js(context),
        }
    }
}

fn issue(run: &mut Run, kind: &str, name: String, input: String, what: &str, line: Option<u32>) -> IssueOutcome {
    let input = match run.crossing(input) {
        Crossing::Json(input) => input,
        Crossing::TooDeep => return IssueOutcome::Mistake(reason::too_deep(what)),
        Crossing::TooLarge => {
            exceed_value(run, false, what);
            return IssueOutcome::Stopped;
        }
    };
    let name = (!name.is_empty()).then_some(name);
    run.call(run::kind_of(kind), name, input, line).map_or(IssueOutcome::Stopped, IssueOutcome::Seq)
}

/// Stops the script, since a value has too many nodes or too much text.
fn exceed_value(run: &mut Run, is_nodes: bool, what: &str) {
    let limits = run.limits();
    let message = if is_nodes {
        format!("{what} consists of more than {} values (`max_value_nodes`)", limits.max_value_nodes)
    } else {
        format!("{what} is larger than {} bytes (`max_value_bytes`)", limits.max_value_bytes)
    };
    run.exceed(message, "pass only what is needed: fewer rows, fewer fields, or a summary", None);
}

fn options(name: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(name.to_owned());
    options
}

fn failed(failed: Failure) -> StopReason {
    StopReason::Failed(Box::new(failed))
}

fn no_memory() -> StopReason {
    failed(reason::no_memory())
}
