//! Loads subtools from definition files, strictly, and reports each mistake with its location.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::sync::Arc;

use protocol::json::{self, JsonLimits};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::dependencies::{BrokenDependency, broken};
use super::deserialize::deserialize;
use super::file_keys::{FileKeys, merge};
use super::sources::SourceFile;
use super::{Catalog, LoadProblem, Origin, Sources, Subtool};
use crate::base::schema::{self, InputSchema};
use crate::base::{select, template};
use crate::catalog::definition::{Confirm, Definition, Lookup};
use crate::config::secret::SecretName;
use crate::task::effect::EffectClass;
use crate::task::name::SubtoolName;

/// The largest accepted definition file. The definitions of Google's largest API take about 3 MB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Shorter values are not removed from messages: they would match by accident, and no secret is that short.
const MIN_SECRET_CHARS: usize = 6;

/// A pack of definitions that ships with the program.
#[derive(Debug)]
pub struct Pack {
    pub name: &'static str,
    /// The definition file.
    pub text: &'static str,
}

/// All packs that ship with the program.
pub const SHIPPED: &[Pack] = &[
    Pack { name: "files", text: include_str!("../../../subtools/files.json") },
    Pack { name: "git", text: include_str!("../../../subtools/git.json") },
    Pack { name: "github", text: include_str!("../../../subtools/github.json") },
    Pack { name: "gmail", text: include_str!("../../../subtools/gmail.json") },
    Pack { name: "human", text: include_str!("../../../subtools/human.json") },
    Pack { name: "models", text: include_str!("../../../subtools/models.json") },
    Pack { name: "shell", text: include_str!("../../../subtools/shell.json") },
    Pack { name: "web", text: include_str!("../../../subtools/web.json") },
];

pub(super) fn load(sources: &Sources) -> Catalog {
    let mut builder = CatalogBuilder { catalog: Catalog::default() };
    for pack in sources.packs() {
        builder.file(&Origin::Pack(pack.name.to_owned()), pack.text.as_bytes());
    }
    let (files, problems) = sources.files();
    builder.catalog.problems.extend(problems);
    for SourceFile { path, metadata } in files {
        let origin = Origin::File(path.clone());
        let size = metadata.map_or(0, |metadata| metadata.len());
        if size > MAX_FILE_BYTES {
            let message = format!("the file has {size} bytes; the limit is {MAX_FILE_BYTES}");
            builder.problem(&origin, None, None, message);
            continue;
        }
        match fs::read(&path) {
            Ok(bytes) => builder.file(&origin, &bytes),
            Err(error) => builder.problem(&origin, None, None, format!("failed to read it: {error}")),
        }
    }
    builder.check_dependencies();
    while builder.check_lookups() {
        builder.check_dependencies();
    }
    let hidden: Vec<_> = builder
        .catalog
        .subtools
        .values()
        .filter(|subtool| !sources.permits(subtool.name.as_str(), &subtool.definition))
        .map(|subtool| subtool.name.clone())
        .collect();
    for name in hidden {
        builder.catalog.subtools.remove(&name);
    }
    // After hiding subtools: callers get the data of a lookup, so it must be a subtool that they may use.
    builder.resolve_lookups();
    builder.catalog
}

struct CatalogBuilder {
    catalog: Catalog,
}

impl CatalogBuilder {
    fn problem(&mut self, origin: &Origin, subtool: Option<&str>, place: Option<String>, message: impl Into<String>) {
        self.catalog.problems.push(LoadProblem {
            file: origin.to_string(),
            subtool: subtool.map(str::to_owned),
            place,
            message: message.into(),
        });
    }

    fn file(&mut self, origin: &Origin, bytes: &[u8]) {
        let object = match json::parse_within(bytes, JsonLimits::DEFINITIONS) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return self.problem(origin, None, None, "a definition file must be a JSON object"),
            Err(error) => {
                let place = format!("line {} column {}", error.line, error.column);
                return self.problem(origin, None, Some(place), error.message);
            }
        };
        let (own, subtools): (Vec<_>, Vec<_>) = object.into_iter().partition(|(key, _)| key.starts_with('$'));
        let FileKeys { defaults, namespace, mistakes } = FileKeys::of(own);
        if !mistakes.is_empty() {
            // The mistake may affect every subtool of the file, so load none of them.
            for (place, message) in mistakes {
                self.problem(origin, None, Some(place), message);
            }
            return;
        }
        for (key, value) in subtools {
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
                let message =
                    format!("the name is already defined by {}; the first definition wins", first.get().origin);
                self.problem(&subtool.origin, Some(subtool.name.as_str()), None, message);
            }
        }
    }

    /// Removes the subtools that depend on a missing one or, directly or indirectly, on themselves.
    fn check_dependencies(&mut self) {
        let subtools = &self.catalog.subtools;
        let names: Vec<_> = subtools.keys().map(SubtoolName::as_str).collect();
        let depends_on = |name| subtools.get(name).map_or(&[][..], |subtool| &subtool.definition.depends_on);
        let broken: Vec<(SubtoolName, String)> = broken(&names, |name| names_of(depends_on(name)))
            .into_iter()
            .filter_map(|(name, reason)| {
                let message = match reason {
                    BrokenDependency::Absent(other) => format!("no subtool named `{other}`"),
                    BrokenDependency::Circular => "it depends on itself".to_owned(),
                };
                Some((subtools.get(name)?.name.clone(), message))
            })
            .collect();
        for (name, message) in broken {
            if let Some(subtool) = self.catalog.subtools.remove(&name) {
                self.problem(&subtool.origin, Some(name.as_str()), Some("depends_on".to_owned()), message);
            }
        }
    }

    /// Removes the subtools whose `verify` or `preview` names an unsuitable subtool. Returns whether there were any.
    fn check_lookups(&mut self) -> bool {
        let subtools = &self.catalog.subtools;
        let found: Vec<_> = subtools
            .values()
            .filter_map(|subtool| {
                let Definition { verify, preview, .. } = &*subtool.definition;
                let verify = verify.as_ref().map(|verify| ("verify", &verify.subtool, &verify.input));
                let preview = preview.as_ref().map(|preview| ("preview", &preview.subtool, &preview.input));
                let mut lookups = verify.into_iter().chain(preview);
                let mistake = lookups.find_map(|(key, name, input)| lookup_mistake(key, name, input, subtools))?;
                Some((subtool.name.clone(), mistake))
            })
            .collect();
        for (name, (place, message)) in &found {
            if let Some(subtool) = self.catalog.subtools.remove(name) {
                self.problem(&subtool.origin, Some(name.as_str()), Some(place.clone()), message);
            }
        }
        !found.is_empty()
    }

    /// Attaches the definitions of the lookups to the subtools that use them.
    fn resolve_lookups(&mut self) {
        let subtools = &self.catalog.subtools;
        let lookup = |name: &SubtoolName| {
            let lookup = subtools.get(name)?;
            Some(Lookup { definition: Arc::clone(&lookup.definition), schema: Arc::clone(&lookup.schema) })
        };
        let found: Vec<_> = subtools
            .values()
            .filter(|subtool| subtool.definition.verify.is_some() || subtool.definition.preview.is_some())
            .map(|subtool| {
                let verify = subtool.definition.verify.as_ref().and_then(|verify| lookup(&verify.subtool));
                let preview = subtool.definition.preview.as_ref().and_then(|preview| lookup(&preview.subtool));
                (subtool.name.clone(), verify, preview)
            })
            .collect();
        for (name, verified, previewed) in found {
            let Some(subtool) = self.catalog.subtools.get_mut(&name) else { continue };
            let Definition { verify, preview, .. } = Arc::make_mut(&mut subtool.definition);
            if let Some(verify) = verify {
                verify.lookup = verified;
            }
            if let Some(preview) = preview {
                preview.lookup = previewed;
            }
        }
    }
}

/// Checks that the subtool `name` can be a lookup with this input. Returns the location and message of a mistake.
fn lookup_mistake(
    key: &str,
    name: &SubtoolName,
    input: &Map<String, Value>,
    subtools: &BTreeMap<SubtoolName, Subtool>,
) -> Option<(String, String)> {
    let Some(lookup) = subtools.get(name).map(|lookup| &lookup.definition) else {
        return Some((format!("{key}.subtool"), format!("no subtool named `{name}`")));
    };
    if lookup.effect_class() != EffectClass::Read {
        let message = format!("`{name}` is not read-only, so a lookup could change something");
        return Some((format!("{key}.subtool"), message));
    }
    let required = lookup.input.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.filter_map(Value::as_str).find(|field| !input.contains_key(*field))?;
    Some((format!("{key}.input"), format!("`{name}` requires `{missing}`")))
}

fn names_of(subtools: &[SubtoolName]) -> Vec<&str> {
    subtools.iter().map(SubtoolName::as_str).collect()
}

/// The location of a mistake, `None` for the whole subtool, and a message.
pub(super) type LocatedMessage = (Option<String>, String);

fn subtool(
    name: &str,
    value: Value,
    defaults: &Map<String, Value>,
    origin: &Origin,
) -> Result<Subtool, LocatedMessage> {
    let name: SubtoolName = name.parse().map_err(|error: crate::task::name::InvalidName| (None, error.to_string()))?;
    let Value::Object(own) = value else { return Err((None, "a subtool must be a JSON object".to_owned())) };
    let merged = Value::Object(merge(defaults.clone(), own));
    let hash = Sha256::new().chain_update(name.as_str()).chain_update([0]).chain_update(merged.to_string()).finalize();
    let safe = |message: String| without_values(message, merged.get("run"));
    let definition: Definition = deserialize(&merged).map_err(|(place, error)| (place, safe(error.to_string())))?;
    let schema = check(&definition).map_err(|(place, message)| (place, safe(message)))?;
    Ok(Subtool {
        name,
        definition: Arc::new(definition),
        schema: Arc::new(schema),
        origin: origin.clone(),
        hash: protocol::digest::hex(&hash),
    })
}

/// Checks what the types of a definition cannot express. Returns the compiled input schema.
fn check(definition: &Definition) -> Result<InputSchema, LocatedMessage> {
    let at = |place: &str, message: &dyn ToString| (Some(place.to_owned()), message.to_string());
    if definition.description.trim().is_empty() {
        return Err(at("description", &"it is empty; a model finds the subtool by its description"));
    }
    let schema = InputSchema::compile(&definition.input).map_err(|error| at("input", &error))?;
    if let Some(output) = &definition.output {
        schema::check(output).map_err(|error| at("output", &error))?;
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
        return Err(at("concurrency", &"a limit of 0 would run no task; the minimum is 1"));
    }
    if definition.retries.is_some_and(|retries| retries.times > 10) {
        return Err(at("retries.times", &"the maximum is 10"));
    }
    if let Some(verify) = &definition.verify {
        if definition.effect_class() != EffectClass::Verifiable {
            return Err(at("verify", &"its annotations say that it is safe to repeat, so it needs no lookup"));
        }
        template::check_value(&Value::Object(verify.input.clone())).map_err(|error| at("verify.input", &error))?;
        select::check(&verify.happened).map_err(|error| at("verify.happened", &error))?;
    }
    if let Some(preview) = &definition.preview {
        template::check_value(&Value::Object(preview.input.clone())).map_err(|error| at("preview.input", &error))?;
        select::check(&preview.replaces).map_err(|error| at("preview.replaces", &error))?;
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

/// Removes the values of `run` from `message`: any of them may be a secret that was written instead of its name, and
/// messages are cached and displayed. The location still says which value is meant.
pub(super) fn without_values(mut message: String, run: Option<&Value>) -> String {
    match run {
        Some(Value::String(text)) => {
            if text.len() >= MIN_SECRET_CHARS && SecretName::in_reference(text).is_none() {
                message = message.replace(text, "…");
            }
            message
        }
        Some(Value::Array(items)) => items.iter().fold(message, |message, item| without_values(message, Some(item))),
        Some(Value::Object(fields)) => {
            fields.values().fold(message, |message, field| without_values(message, Some(field)))
        }
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => message,
    }
}
