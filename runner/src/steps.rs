//! The `steps` runner: several subtools as one.
//!
//! Each step is a task of its own: it has the policy, the limits and the confirmation of its subtool, and belongs to
//! the caller of the whole. A step starts as soon as the steps that it refers to have ended, so independent steps run
//! side by side. All attempts share the steps' tasks, so a step is never carried out twice. Decides nothing about what
//! a step may do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use definition::run::steps::{MAX_ITEMS, Step, Steps, texts};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ground::base::template::TemplateValues;
use ground::base::template::names::{self, ITEM, STEPS};
use ground::task::failure::SideEffect;
use ground::task::part_of;
use protocol::extent::{self, DataExtent};
use protocol::task::TaskId;
use serde_json::{Map, json};

use super::calls_progress::CallsProgress;
use super::delegation::{CallKey, CalledTask, Delegation};
use super::{CancellationToken, Code, Config, Failure, Invocation, Runner, RunnerContext, RunnerOutput, Value};

/// What a step left behind.
#[derive(Debug)]
enum StepEnd {
    Data { data: Value, ids: Vec<TaskId>, is_part: bool },
    LeftOut,
    Failed(Failure),
}

/// The inputs for which it runs; `None` if it is left out.
fn inputs_of(
    step: &Step,
    names: &Map<String, Value>,
    shared: &SharedNames,
) -> Result<Option<Vec<Map<String, Value>>>, Failure> {
    let values = TemplateValues::of_names(names, shared.iter().cloned());
    if let Some(condition) = &step.when
        && !values.holds(condition)?
    {
        return Ok(None);
    }
    let Some(each) = &step.each else { return Ok(Some(vec![values.fields(&step.input)?])) };
    let items = match values.value(&Value::String(each.clone()))? {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => {
            let message = format!("`each` of the step `{}` is not a list", step.name);
            return Err(
                Failure::new(Code::TemplateFailed, message).hint("the definition is wrong: it must refer to a list")
            );
        }
    };
    if items.len() > MAX_ITEMS {
        let message =
            format!("`each` of the step `{}` has {} items; the maximum is {MAX_ITEMS}", step.name, items.len());
        return Err(Failure::new(Code::Rejected, message).hint("narrow the input, so that fewer are found"));
    }
    let input_of = |item: Value| {
        let mut names = names.clone();
        names.insert(ITEM.to_owned(), item);
        Ok(TemplateValues::of_names(&names, shared.iter().cloned()).fields(&step.input)?)
    };
    items.into_iter().map(input_of).collect::<Result<_, Failure>>().map(Some)
}

/// Runs it for each of `inputs`, side by side, and waits until all have ended. Calls `on_waiting` if a human is asked.
async fn run_step(
    step: &Step,
    inputs: Vec<Map<String, Value>>,
    invocation: &Invocation,
    delegation: &Delegation,
    cancel: &CancellationToken,
    on_waiting: &(dyn Fn() + Send + Sync),
) -> StepEnd {
    if let Some(failure) = delegation.excluded(step.subtool.as_str(), invocation) {
        return StepEnd::Failed(step_failed(step, failure));
    }
    let run = |(number, input)| async move {
        let own = if step.each.is_some() { format!("{}-{number}", step.name) } else { step.name.clone() };
        let key = part_of::key_of_step(&invocation.id, &own);
        delegation
            .call_with_key(invocation, CallKey::shared(key), step.subtool.as_str(), input, cancel, on_waiting)
            .await
    };
    let called = futures_util::future::join_all(inputs.into_iter().enumerate().map(run)).await;
    let (mut found, mut ids, mut is_part) = (Vec::new(), Vec::new(), false);
    for called in called {
        let data = called.and_then(|called| {
            ids.push(called.id);
            is_part |= extent::is_incomplete(&called.result["_meta"]);
            data_of(step.subtool.as_str(), &called, delegation)
        });
        match data {
            Ok(data) => found.push(data),
            Err(failure) => return StepEnd::Failed(step_failed(step, failure)),
        }
    }
    let data = if step.each.is_some() { Value::Array(found) } else { found.pop().unwrap_or_default() };
    StepEnd::Data { data, ids, is_part: is_part && !step.part_is_enough }
}

fn step_failed(step: &Step, mut failure: Failure) -> Failure {
    failure.error.message = format!("the step `{}` failed: {}", step.name, failure.error.message);
    failure.detail("step", step.name.clone())
}

/// The names that templates know besides the fields of the input.
type SharedNames = Vec<(&'static str, Value)>;

/// Returns the data of a task that succeeded, or its failure.
fn data_of(subtool: &str, called: &CalledTask, delegation: &Delegation) -> Result<Value, Failure> {
    if called.result["success"] != true {
        return Err(called.failure(subtool));
    }
    called.data(&delegation.mailbox).map_err(|error| {
        let message = format!("failed to read the data of `{subtool}`: {error}");
        Failure::new(Code::Io, message).effect_possible().detail("call", json!({"id": called.id, "tool": subtool}))
    })
}

impl Runner for Steps {
    fn plan(&self, invocation: &Invocation, _: &Config) -> Result<Value, Failure> {
        let values = invocation.values();
        let planned = |step: &Step| {
            let mut plan = serde_json::to_value(step).expect("a step is plain JSON");
            for (field, template) in &step.input {
                let mut uses_data = step.each.is_some();
                texts(template, &mut |text| uses_data |= !names::steps_in_template(text).is_empty());
                if !uses_data {
                    plan["input"][field] = values.value(template)?.unwrap_or_default();
                }
            }
            Ok(plan)
        };
        self.0.iter().map(planned).collect::<Result<Vec<_>, Failure>>().map(Value::Array)
    }

    fn passed_on(&self, invocation: &Invocation) -> Result<Option<(Value, PathBuf)>, Failure> {
        let folder = invocation.caller.folder.clone().unwrap_or_else(|| "/".into());
        Ok(Some((Value::Object(invocation.input.clone()), folder)))
    }

    fn perform<'a>(
        &'a self,
        invocation: &'a Invocation,
        context: &'a RunnerContext,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RunnerOutput, Failure>> {
        Box::pin(perform(self, invocation, context, cancel))
    }
}

async fn perform(
    steps: &Steps,
    invocation: &Invocation,
    context: &RunnerContext,
    cancel: &CancellationToken,
) -> Result<RunnerOutput, Failure> {
    let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
    // Each step has the time of its own subtool, and may wait for a human.
    let _pause = invocation.clock.pause();
    let mut course = Course {
        steps: &steps.0,
        invocation,
        delegation,
        stop: cancel.child_token(),
        ends: BTreeMap::new(),
        progress: Arc::new(CallsProgress::of(invocation, Some(steps.0.len()))),
    };
    course.run().await;
    course.outcome(cancel)
}

/// The course of one attempt.
struct Course<'a> {
    steps: &'a [Step],
    invocation: &'a Invocation,
    delegation: &'a Delegation,
    /// Stops the steps that run, as soon as one that the others need has failed.
    stop: CancellationToken,
    ends: BTreeMap<&'a str, StepEnd>,
    progress: Arc<CallsProgress>,
}

impl<'a> Course<'a> {
    /// Runs the steps until all have ended, or none can start any more.
    async fn run(&mut self) {
        let shared: SharedNames = self.invocation.shared_names().collect();
        let mut waiting: Vec<(&'a Step, BTreeSet<String>)> =
            self.steps.iter().map(|step| (step, step.awaited())).collect();
        let mut running = FuturesUnordered::new();
        loop {
            let names = self.names();
            let is_ready = |(_, awaited): &mut (&Step, BTreeSet<String>)| {
                !self.stop.is_cancelled() && awaited.iter().all(|name| self.ends.contains_key(name.as_str()))
            };
            let ready: Vec<_> = waiting.extract_if(.., is_ready).collect();
            for (step, _) in ready {
                running.push(self.started(step, &names, &shared));
            }
            let Some((step, end)) = running.next().await else { return };
            if matches!(end, StepEnd::Failed(_)) && !step.optional {
                self.stop.cancel();
            }
            self.ends.insert(step.name.as_str(), end);
            self.progress.on_end(&step.name);
        }
    }

    fn started(
        &self,
        step: &'a Step,
        names: &Map<String, Value>,
        shared: &SharedNames,
    ) -> BoxFuture<'a, (&'a Step, StepEnd)> {
        let inputs = inputs_of(step, names, shared);
        let (invocation, delegation, stopped) = (self.invocation, self.delegation, self.stop.clone());
        let progress = Arc::clone(&self.progress);
        Box::pin(async move {
            let end = match inputs {
                Ok(Some(inputs)) => {
                    run_step(step, inputs, invocation, delegation, &stopped, &|| {
                        progress.on_waiting(&step.name, format!("the step `{}`", step.name));
                    })
                    .await
                }
                Ok(None) => StepEnd::LeftOut,
                Err(failure) => StepEnd::Failed(step_failed(step, failure)),
            };
            (step, end)
        })
    }

    /// What templates know: the fields of the input, and the data of the steps that have ended.
    fn names(&self) -> Map<String, Value> {
        let mut names = self.invocation.input.clone();
        names.insert(STEPS.to_owned(), Value::Object(self.data()));
        names
    }

    fn data(&self) -> Map<String, Value> {
        let of_step = |step: &Step| match self.ends.get(step.name.as_str())? {
            StepEnd::Data { data, .. } => Some((step.name.clone(), data.clone())),
            StepEnd::LeftOut | StepEnd::Failed(_) => None,
        };
        self.steps.iter().filter_map(of_step).collect()
    }

    /// What became of each step that started: its tasks, or why it has no tasks.
    fn summary(&self) -> Value {
        let of_step = |step: &Step| {
            let end = match self.ends.get(step.name.as_str())? {
                StepEnd::Data { ids, .. } => json!({"tool": step.subtool.as_str(), "ids": ids}),
                StepEnd::LeftOut => json!({"tool": step.subtool.as_str(), "left_out": true}),
                StepEnd::Failed(Failure { error, .. }) if error.code == Code::UnknownSubtool => {
                    json!({"code": error.code, "message": error.message})
                }
                StepEnd::Failed(failure) => {
                    json!({"tool": step.subtool.as_str(), "code": failure.error.code, "message": failure.error.message, "call": failure.error.details.get("call")})
                }
            };
            Some((step.name.clone(), end))
        };
        Value::Object(self.steps.iter().filter_map(of_step).collect())
    }

    fn outcome(mut self, cancel: &CancellationToken) -> Result<RunnerOutput, Failure> {
        let (data, summary) = (self.data(), self.summary());
        if cancel.is_cancelled() {
            return Err(
                Failure::new(Code::Cancelled, "cancelled, with the steps that were running").detail("steps", summary)
            );
        }
        // Those that the first failure stopped failed because of it.
        let fatal = |end: &StepEnd, cancelled: bool| matches!(end, StepEnd::Failed(failure) if (failure.error.code == Code::Cancelled) == cancelled);
        let needed = self.steps.iter().filter(|step| !step.optional);
        let failed = [false, true].into_iter().find_map(|cancelled| {
            needed.clone().find(|step| self.ends.get(step.name.as_str()).is_some_and(|end| fatal(end, cancelled)))
        });
        // Also of a step beside the one that failed. One that was stopped because of it was cancelled.
        let is_in_doubt = |end: &StepEnd| matches!(end, StepEnd::Failed(failure) if failure.side_effect == SideEffect::Possible && failure.error.code != Code::Cancelled);
        let is_in_doubt = self.ends.values().any(is_in_doubt);
        if let Some(step) = failed
            && let Some(StepEnd::Failed(failure)) = self.ends.remove(step.name.as_str())
        {
            let failure = if is_in_doubt { failure.effect_possible() } else { failure };
            return Err(failure.detail("steps", summary));
        }
        let extent = DataExtent { truncated: self.parts(), ..DataExtent::default() };
        Ok(RunnerOutput::json(Value::Object(data)).with_meta("steps", summary).with_extent(extent))
    }

    /// Names the steps whose data is not, or may not be, all there is.
    fn parts(&self) -> Option<String> {
        let is_part =
            |step: &&Step| matches!(self.ends.get(step.name.as_str()), Some(StepEnd::Data { is_part: true, .. }));
        let names: Vec<_> = self.steps.iter().filter(is_part).map(|step| format!("`{}`", step.name)).collect();
        (!names.is_empty()).then(|| format!("the data of {} may be only a part", names.join(", ")))
    }
}
