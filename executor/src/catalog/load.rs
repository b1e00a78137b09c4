//! Loading: from files to subtools, strictly, with a place for every mistake.

use std::collections::btree_map::Entry;
use std::fs;
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{Catalog, LoadProblem, Origin, Sources, Subtool};
use crate::schema::InputSchema;
use crate::subtool::{Confirm, Definition, SubtoolName};
use crate::{json, select, template};

/// A file of definitions larger than this is refused; Google's largest API makes about 3 MB.
const LARGEST_FILE: u64 = 16 << 20;

/// A pack that ships inside the program.
#[derive(Debug)]
pub struct Pack {
    pub name: &'static str,
    pub text: &'static str,
}

/// The packs that ship.
pub const SHIPPED: &[Pack] = &[
    Pack { name: "files", text: include_str!("../../../subtools/files.json") },
    Pack { name: "git", text: include_str!("../../../subtools/git.json") },
    Pack { name: "github", text: include_str!("../../../subtools/github.json") },
    Pack { name: "gmail", text: include_str!("../../../subtools/gmail.json") },
    Pack { name: "web", text: include_str!("../../../subtools/web.json") },
];

pub(super) fn load(sources: &Sources) -> Catalog {
    let mut loading = Loading { catalog: Catalog::default() };
    for pack in sources.packs() {
        loading.file(&Origin::Pack(pack.name.to_owned()), pack.text.as_bytes());
    }
    let (files, problems) = sources.files();
    loading.catalog.problems.extend(problems);
    for path in files {
        let origin = Origin::File(path.clone());
        let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if size > LARGEST_FILE {
            loading.problem(&origin, None, None, format!("{size} bytes; the most is {LARGEST_FILE}"));
            continue;
        }
        match fs::read(&path) {
            Ok(bytes) => loading.file(&origin, &bytes),
            Err(error) => loading.problem(&origin, None, None, format!("it cannot be read: {error}")),
        }
    }
    loading.check_dependencies();
    let hidden: Vec<_> = loading
        .catalog
        .subtools
        .values()
        .filter(|subtool| !sources.permit(subtool.name.as_str(), &subtool.definition))
        .map(|subtool| subtool.name.clone())
        .collect();
    for name in hidden {
        loading.catalog.subtools.remove(&name);
    }
    loading.catalog
}

struct Loading {
    catalog: Catalog,
}

impl Loading {
    fn problem(&mut self, origin: &Origin, subtool: Option<&str>, place: Option<String>, message: impl Into<String>) {
        self.catalog.problems.push(LoadProblem {
            file: origin.to_string(),
            subtool: subtool.map(str::to_owned),
            place,
            message: message.into(),
        });
    }

    fn file(&mut self, origin: &Origin, bytes: &[u8]) {
        let object = match json::parse(bytes) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return self.problem(origin, None, None, "a file of definitions is one JSON object"),
            Err(error) => {
                let place = format!("line {} column {}", error.line, error.column);
                return self.problem(origin, None, Some(place), error.message);
            }
        };
        let mut defaults = Map::new();
        let mut namespace = String::new();
        for (key, value) in &object {
            match (key.as_str(), value) {
                ("$schema", Value::String(_)) => {}
                ("$defaults", Value::Object(own)) => defaults.clone_from(own),
                ("$namespace", Value::String(own)) => namespace = format!("{own}-"),
                ("$schema" | "$defaults" | "$namespace", _) => {
                    self.problem(origin, None, Some(key.clone()), "`$defaults` is an object, the others are strings");
                }
                (other, _) if other.starts_with('$') => {
                    let known = "the keys of a file are `$schema`, `$defaults` and `$namespace`";
                    self.problem(origin, None, Some(key.clone()), known);
                }
                _ => {}
            }
        }
        for (key, value) in object.into_iter().filter(|(key, _)| !key.starts_with('$')) {
            let name = format!("{namespace}{key}");
            match subtool(&name, value, &defaults, origin) {
                Ok(subtool) => self.add(subtool),
                Err((place, message)) => self.problem(origin, Some(&name), place, message),
            }
        }
    }

    fn add(&mut self, subtool: Subtool) {
        match self.catalog.subtools.entry(subtool.name.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(subtool);
            }
            Entry::Occupied(first) => {
                let message = format!("the name is taken by {}; a later definition wins nothing", first.get().origin);
                self.problem(&subtool.origin, Some(subtool.name.as_str()), None, message);
            }
        }
    }

    /// A subtool that depends on an unknown one, or on itself through others, is left out.
    fn check_dependencies(&mut self) {
        loop {
            let subtools = &self.catalog.subtools;
            let broken = subtools.values().find_map(|subtool| {
                let unknown = subtool.definition.depends_on.iter().find(|name| !subtools.contains_key(*name));
                let message = match unknown {
                    Some(name) => format!("there is no subtool `{name}`"),
                    None if reaches(&self.catalog, &subtool.name) => "it depends on itself".to_owned(),
                    None => return None,
                };
                Some((subtool.name.clone(), subtool.origin.clone(), message))
            });
            let Some((name, origin, message)) = broken else { return };
            self.catalog.subtools.remove(&name);
            self.problem(&origin, Some(name.as_str()), Some("depends_on".to_owned()), message);
        }
    }
}

/// Whether following `depends_on` from `start` leads back to it.
fn reaches(catalog: &Catalog, start: &SubtoolName) -> bool {
    let mut seen = std::collections::HashSet::new();
    let mut open = vec![start];
    while let Some(name) = open.pop() {
        for next in catalog.subtools.get(name).map_or(&[][..], |subtool| &subtool.definition.depends_on) {
            if next == start {
                return true;
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

type Misplaced = (Option<String>, String);

fn subtool(name: &str, value: Value, defaults: &Map<String, Value>, origin: &Origin) -> Result<Subtool, Misplaced> {
    let name: SubtoolName = name.parse().map_err(|error: crate::subtool::InvalidName| (None, error.to_string()))?;
    let Value::Object(own) = value else { return Err((None, "a subtool is a JSON object".to_owned())) };
    let merged = Value::Object(merge(defaults.clone(), own));
    let hash = Sha256::new().chain_update(name.as_str()).chain_update([0]).chain_update(merged.to_string()).finalize();
    let definition: Definition = serde_path_to_error::deserialize(&merged).map_err(|error| {
        let place = error.path().to_string();
        (Some(place).filter(|place| place != "."), error.into_inner().to_string())
    })?;
    let schema = check(&definition)?;
    Ok(Subtool {
        name,
        definition: Arc::new(definition),
        schema: Arc::new(schema),
        origin: origin.clone(),
        hash: crate::digest::hex(&hash),
    })
}

/// Everything about a definition that its types cannot say.
fn check(definition: &Definition) -> Result<InputSchema, Misplaced> {
    let at = |place: &str, message: &dyn ToString| (Some(place.to_owned()), message.to_string());
    if definition.description.trim().is_empty() {
        return Err(at("description", &"it is empty; a model finds the subtool by these words"));
    }
    let schema = InputSchema::compile(&definition.input).map_err(|error| at("input", &error))?;
    if let Some(output) = &definition.output {
        InputSchema::compile(output).map_err(|error| at("output", &error))?;
    }
    definition
        .run
        .check()
        .map_err(|mistake| (Some(format!("run.{}.{}", definition.run.name(), mistake.place)), mistake.message))?;
    if let Some(Confirm::When(condition)) = &definition.confirm {
        template::check_condition(condition).map_err(|error| at("confirm.when", &error))?;
    }
    if let Some(shape) = &definition.result {
        select::check(&shape.select).map_err(|error| at("result.select", &error))?;
    }
    if definition.concurrency == Some(0) {
        return Err(at("concurrency", &"0 would never run; the least is 1"));
    }
    if definition.rate_limit.is_some_and(|limit| limit.calls == 0) {
        return Err(at("rate_limit.calls", &"0 would never run; the least is 1"));
    }
    if definition.retries.is_some_and(|retries| retries.times > 10) {
        return Err(at("retries.times", &"the most is 10"));
    }
    for (index, example) in definition.examples.iter().enumerate() {
        let mut input = example.input.clone();
        schema.fill_defaults(&mut input);
        if let Some(problem) = schema.problems(&Value::Object(input)).first() {
            return Err((Some(format!("examples[{index}].input{}", problem.pointer)), problem.problem.clone()));
        }
    }
    Ok(schema)
}

/// Lays `own` over `base`, object by object.
///
/// Where a key names a choice (`run`, `auth`, `body`), another choice replaces the default one
/// instead of standing beside it.
fn merge(mut base: Map<String, Value>, own: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in own {
        let is_choice = matches!(key.as_str(), "run" | "auth" | "body");
        match (base.remove(&key), value) {
            (Some(Value::Object(base_fields)), Value::Object(fields)) => {
                let same_choice = base_fields.keys().eq(fields.keys());
                let merged = if is_choice && !same_choice { fields } else { merge(base_fields, fields) };
                base.insert(key, Value::Object(merged));
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("an object") };
        object
    }

    #[test]
    fn defaults_lie_under_a_subtool_and_a_choice_is_replaced_whole() {
        let defaults = object(
            json!({"run": {"http": {"base_url": "https://a", "auth": {"bearer": "secret:x"}}}, "timeout": "30s"}),
        );
        let merged = merge(defaults.clone(), object(json!({"run": {"http": {"path": "/b"}}})));
        assert_eq!(
            Value::Object(merged),
            json!({"timeout": "30s", "run": {"http": {"base_url": "https://a", "auth": {"bearer": "secret:x"}, "path": "/b"}}})
        );
        let merged = merge(defaults, object(json!({"run": {"process": {"argv": ["true"]}}})));
        assert_eq!(merged["run"], json!({"process": {"argv": ["true"]}}));
    }
}
