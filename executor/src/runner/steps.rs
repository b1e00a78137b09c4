//! The `steps` runner: several subtools as one.
//!
//! Each step is a task of its own: it has the policy, the limits and the confirmation of its subtool, and belongs to
//! the caller of the whole. A step starts as soon as the steps that it refers to have ended, so independent steps run
//! side by side. All attempts share the steps' tasks, so a step is never carried out twice. Decides nothing about what
//! a step may do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ground::base::template::names::{self, ITEM, STEPS};
use ground::base::template::{self, TemplateValues};
use ground::task::failure::SideEffect;
use ground::task::name::SubtoolName;
use ground::task::notes::AttemptProgress;
use protocol::task::TaskId;
use serde_json::{Map, json};

use super::delegation::{CalledTask, Delegation};
use super::{
    CancellationToken, Code, Config, DefinitionMistake, DefinitionMistakes, Deserialize, Failure, Feedback, Invocation,
    JsonSchema, Runner, RunnerContext, RunnerOutput, Serialize, TextKind, Value,
};
use protocol::extent::{self, DataExtent};

/// More would be a program, which an agent writes better itself.
const MAX_STEPS: usize = 20;
/// The most items for which one step runs.
const MAX_ITEMS: usize = 50;

/// The steps. The result is an object with the data of each step by its name; `result.select` makes something else of it.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Steps(#[schemars(length(min = 1, max = 20))] Vec<Step>);

/// One subtool that is run as a part of another.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What other steps call its data: `steps.NAME`.
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// The subtool that it runs. Callers must be allowed to use it.
    pub subtool: SubtoolName,
    /// The input of that subtool: templates, which also know the data of other steps as `steps.NAME`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Value>,
    /// An expression over the same names: if it is false, the step is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "steps.found.total > 0")]
    pub when: Option<String>,
    /// A reference to a list of at most 50 items. The step runs once for each of them, which its templates know as `item`, and its data is the list of what came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = "{{ steps.found.items }}")]
    pub each: Option<String>,
    /// Steps that it waits for although it does not use their data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Whether the others go on if it fails. It then has no data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Whether a part of its data is enough: then the result does not say that it lacks something because of this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part_is_enough: bool,
}

/// What a step left behind.
#[derive(Debug)]
enum StepEnd {
    Data { data: Value, ids: Vec<TaskId>, is_part: bool },
    LeftOut,
    Failed(Failure),
}

impl Step {
    /// The names of the steps that must have ended before this one starts.
    fn awaited(&self) -> BTreeSet<String> {
        let mut awaited: BTreeSet<String> = self.after.iter().cloned().collect();
        if let Some(template) = &self.when {
            awaited.extend(names::steps_in_expression(template));
        }
        let each = self.each.iter().cloned().map(Value::String);
        for value in each.chain(self.input.values().cloned()) {
            texts(&value, &mut |text| awaited.extend(names::steps_in_template(text)));
        }
        awaited
    }

    /// The inputs for which it runs; `None` if it is left out.
    fn inputs(
        &self,
        names: &Map<String, Value>,
        shared: &SharedNames,
    ) -> Result<Option<Vec<Map<String, Value>>>, Failure> {
        let values = TemplateValues::of_names(names, shared.iter().cloned());
        if let Some(condition) = &self.when
            && !values.holds(condition)?
        {
            return Ok(None);
        }
        let Some(each) = &self.each else { return Ok(Some(vec![values.fields(&self.input)?])) };
        let items = match values.value(&Value::String(each.clone()))? {
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) => Vec::new(),
            Some(_) => {
                let message = format!("`each` of the step `{}` is not a list", self.name);
                return Err(Failure::new(Code::TemplateFailed, message)
                    .hint("the definition is wrong: it must refer to a list"));
            }
        };
        if items.len() > MAX_ITEMS {
            let message =
                format!("`each` of the step `{}` has {} items; the maximum is {MAX_ITEMS}", self.name, items.len());
            return Err(Failure::new(Code::Rejected, message).hint("narrow the input, so that fewer are found"));
        }
        let input_of = |item: Value| {
            let mut names = names.clone();
            names.insert(ITEM.to_owned(), item);
            Ok(TemplateValues::of_names(&names, shared.iter().cloned()).fields(&self.input)?)
        };
        items.into_iter().map(input_of).collect::<Result<_, Failure>>().map(Some)
    }

    /// Runs it for each of `inputs`, side by side, and waits until all have ended. Calls `on_waiting` if a human is asked.
    async fn run(
        &self,
        inputs: Vec<Map<String, Value>>,
        invocation: &Invocation,
        delegation: &Delegation,
        cancel: &CancellationToken,
        on_waiting: &(dyn Fn() + Send + Sync),
    ) -> StepEnd {
        let run = |(number, input)| async move {
            let own = if self.each.is_some() { format!("{}-{number}", self.name) } else { self.name.clone() };
            let key = format!("{}-step-{own}", invocation.id);
            delegation.call_with_key(invocation, key, self.subtool.as_str(), input, cancel, on_waiting).await
        };
        let called = futures_util::future::join_all(inputs.into_iter().enumerate().map(run)).await;
        let (mut found, mut ids, mut is_part) = (Vec::new(), Vec::new(), false);
        for called in called {
            let data = called.and_then(|called| {
                ids.push(called.id);
                is_part |= extent::is_incomplete(&called.result["_meta"]);
                data_of(self.subtool.as_str(), &called, delegation)
            });
            match data {
                Ok(data) => found.push(data),
                Err(failure) => return StepEnd::Failed(self.failed(failure)),
            }
        }
        let data = if self.each.is_some() { Value::Array(found) } else { found.pop().unwrap_or_default() };
        StepEnd::Data { data, ids, is_part: is_part && !self.part_is_enough }
    }

    fn failed(&self, mut failure: Failure) -> Failure {
        failure.error.message = format!("the step `{}` failed: {}", self.name, failure.error.message);
        failure.detail("step", self.name.clone())
    }
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

/// Calls `visit` for each string inside `value`.
fn texts(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Steps {
    /// The names of the steps.
    pub fn names(&self) -> BTreeSet<String> {
        self.0.iter().map(|step| step.name.clone()).collect()
    }

    /// The subtools that it runs, each with its place and the fields of the input that it gets.
    pub fn subtools(&self) -> impl Iterator<Item = (String, &SubtoolName, Vec<String>)> {
        let used = |(index, step)| {
            let Step { subtool, input, .. }: &Step = step;
            (format!("run.steps[{index}]"), subtool, input.keys().cloned().collect())
        };
        self.0.iter().enumerate().map(used)
    }

    /// Returns the step that waits for itself, if there is one.
    fn circular(&self) -> Option<usize> {
        let awaited: BTreeMap<_, _> = self.0.iter().map(|step| (step.name.clone(), step.awaited())).collect();
        let mut ended = BTreeSet::new();
        loop {
            let can_start = |(name, awaited): &(&String, &BTreeSet<String>)| {
                !ended.contains(*name)
                    && awaited.iter().all(|other| ended.contains(other) || !awaited_is_step(&self.0, other))
            };
            let started: Vec<String> = awaited.iter().filter(can_start).map(|(name, _)| name.clone()).collect();
            if started.is_empty() {
                return self.0.iter().position(|step| !ended.contains(&step.name));
            }
            ended.extend(started);
        }
    }
}

fn awaited_is_step(steps: &[Step], name: &str) -> bool {
    steps.iter().any(|step| step.name == name)
}

impl Runner for Steps {
    fn check(&self) -> Vec<DefinitionMistake> {
        let mut mistakes = DefinitionMistakes::default();
        let wrong = |place: String, message: String| Err(DefinitionMistake::new(place, &message));
        if self.0.is_empty() || self.0.len() > MAX_STEPS {
            mistakes.note(wrong(String::new(), format!("it has {} steps; it needs 1 to {MAX_STEPS}", self.0.len())));
        }
        for (index, step) in self.0.iter().enumerate() {
            let is_name = step.name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && step.name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
            if !is_name {
                let message =
                    format!("`{}` is not a name; use letters, digits and `_`, and begin with a letter", step.name);
                mistakes.note(wrong(format!("[{index}].name"), message));
            }
            if self.0[..index].iter().any(|other| other.name == step.name) {
                mistakes.note(wrong(format!("[{index}].name"), format!("another step is named `{}` too", step.name)));
            }
            for (number, name) in step.after.iter().enumerate().filter(|(_, name)| !awaited_is_step(&self.0, name)) {
                mistakes.note(wrong(format!("[{index}].after[{number}]"), format!("no step named `{name}`")));
            }
            if step.each.as_ref().is_some_and(|each| !template::is_reference(each)) {
                mistakes.note(wrong(
                    format!("[{index}].each"),
                    "it must be one reference to a list, like `{{ steps.found.items }}`".to_owned(),
                ));
            }
        }
        if let Some(index) = self.circular() {
            mistakes.note(wrong(format!("[{index}]"), format!("the step `{}` waits for itself", self.0[index].name)));
        }
        mistakes.into_vec()
    }

    fn text_kind(&self, place: &str) -> TextKind {
        match place.split_once("].").map(|(_, field)| field) {
            Some("when") => TextKind::Condition,
            Some("name" | "subtool") => TextKind::Constant,
            Some(field) if field.starts_with("after[") => TextKind::Constant,
            _ => TextKind::Template,
        }
    }

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

    async fn perform(
        &self,
        invocation: &Invocation,
        context: &RunnerContext,
        cancel: &CancellationToken,
    ) -> Result<RunnerOutput, Failure> {
        let delegation = context.delegation.as_ref().ok_or_else(Delegation::unavailable)?;
        // Each step has the time of its own subtool, and may wait for a human.
        let _pause = invocation.clock.pause();
        let mut course = Course {
            steps: &self.0,
            invocation,
            delegation,
            stop: cancel.child_token(),
            ends: BTreeMap::new(),
            progress: Arc::new(StepsProgress::of(&self.0, invocation)),
        };
        course.run().await;
        course.outcome(cancel)
    }
}

/// The course of one attempt.
struct Course<'a> {
    steps: &'a [Step],
    invocation: &'a Invocation,
    delegation: &'a Delegation,
    /// Stops the steps that run, as soon as one that the others need has failed.
    stop: CancellationToken,
    ends: BTreeMap<&'a str, StepEnd>,
    progress: Arc<StepsProgress>,
}

/// What is shown of the steps while they run.
struct StepsProgress {
    feedback: Feedback,
    steps: usize,
    /// How many have ended, and those that wait for a human.
    now: Mutex<(usize, BTreeSet<String>)>,
}

impl StepsProgress {
    fn of(steps: &[Step], invocation: &Invocation) -> Self {
        Self { feedback: invocation.feedback.clone(), steps: steps.len(), now: Mutex::default() }
    }

    fn on_waiting(&self, step: &str) {
        self.change(|(_, waiting)| waiting.extend([step.to_owned()]));
    }

    fn on_end(&self, step: &str) {
        self.change(|(ended, waiting)| {
            *ended += 1;
            waiting.remove(step);
        });
    }

    fn change(&self, change: impl FnOnce(&mut (usize, BTreeSet<String>))) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut now);
        let (ended, waiting) = &*now;
        self.feedback.progress(AttemptProgress {
            done: Some(count(*ended)),
            total: Some(count(self.steps)),
            message: waiting.first().map(|step| format!("the step `{step}` waits for the user")),
            asks_human: !waiting.is_empty(),
        });
    }
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
        let inputs = step.inputs(names, shared);
        let (invocation, delegation, stopped) = (self.invocation, self.delegation, self.stop.clone());
        let progress = Arc::clone(&self.progress);
        Box::pin(async move {
            let end = match inputs {
                Ok(Some(inputs)) => {
                    step.run(inputs, invocation, delegation, &stopped, &|| progress.on_waiting(&step.name)).await
                }
                Ok(None) => StepEnd::LeftOut,
                Err(failure) => StepEnd::Failed(step.failed(failure)),
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

/// A number of steps, which is small.
fn count(steps: usize) -> f64 {
    u32::try_from(steps).map_or(f64::MAX, f64::from)
}
