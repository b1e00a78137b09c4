//! The steps runner's settings: several subtools as one.

use std::collections::{BTreeMap, BTreeSet};

use ground::base::template;
use ground::base::template::names;
use ground::task::name::SubtoolName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::{DefinitionMistake, DefinitionMistakes, Settings, TextKind};

/// More would be a program, which an agent writes better itself.
const MAX_STEPS: usize = 20;
/// The most items for which one step runs.
pub const MAX_ITEMS: usize = 50;

/// The steps. The result is an object with the data of each step by its name; `result.select` makes something else of it.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Steps(#[schemars(length(min = 1, max = 20))] pub Vec<Step>);

/// One subtool that is run as a part of another.
#[skip_serializing_none]
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
    #[schemars(example = "steps.found.total > 0")]
    pub when: Option<String>,
    /// A reference to a list of at most 50 items. The step runs once for each of them, which its templates know as `item`, and its data is the list of what came back.
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

impl Step {
    /// The names of the steps that must have ended before this one starts.
    pub fn awaited(&self) -> BTreeSet<String> {
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
}

/// Calls `visit` for each string inside `value`.
pub fn texts(value: &Value, visit: &mut dyn FnMut(&str)) {
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

impl Settings for Steps {
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
}
