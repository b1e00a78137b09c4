//! Loading: from files to subtools, strictly, with a place for every mistake.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::sync::Arc;

use protocol::json::{self, JsonLimits};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::dependencies::{BrokenDependency, broken};
use super::file_keys::{FileKeys, merge};
use super::reading::read;
use super::sources::SourceFile;
use super::{Catalog, LoadProblem, Origin, Sources, Subtool};
use crate::base::schema::{self, InputSchema};
use crate::base::{select, template};
use crate::catalog::definition::{Confirm, Definition, Lookup};
use crate::config::secret::SecretName;
use crate::task::effect::EffectClass;
use crate::task::name::SubtoolName;

/// A file of definitions larger than this is refused; Google's largest API makes about 3 MB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Shorter values are not taken out of messages: they would match by chance, and no token is so short.
const MIN_SECRET_CHARS: usize = 6;

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
    Pack { name: "human", text: include_str!("../../../subtools/human.json") },
    Pack { name: "models", text: include_str!("../../../subtools/models.json") },
    Pack { name: "shell", text: include_str!("../../../subtools/shell.json") },
    Pack { name: "web", text: include_str!("../../../subtools/web.json") },
];

pub(super) fn load(sources: &Sources) -> Catalog {
    let mut loading = CatalogBuilder { catalog: Catalog::default() };
    for pack in sources.packs() {
        loading.file(&Origin::Pack(pack.name.to_owned()), pack.text.as_bytes());
    }
    let (files, problems) = sources.files();
    loading.catalog.problems.extend(problems);
    for SourceFile { path, found } in files {
        let origin = Origin::File(path.clone());
        let size = found.map_or(0, |found| found.len());
        if size > MAX_FILE_BYTES {
            loading.problem(&origin, None, None, format!("{size} bytes; the most is {MAX_FILE_BYTES}"));
            continue;
        }
        match fs::read(&path) {
            Ok(bytes) => loading.file(&origin, &bytes),
            Err(error) => loading.problem(&origin, None, None, format!("it cannot be read: {error}")),
        }
    }
    loading.check_dependencies();
    while loading.check_lookups() {
        loading.check_dependencies();
    }
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
    // Only now: callers get what a lookup finds, so it must be one that they may use themselves.
    loading.resolve_lookups();
    loading.catalog
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
            Ok(_) => return self.problem(origin, None, None, "a file of definitions is one JSON object"),
            Err(error) => {
                let place = format!("line {} column {}", error.line, error.column);
                return self.problem(origin, None, Some(place), error.message);
            }
        };
        let (own, subtools): (Vec<_>, Vec<_>) = object.into_iter().partition(|(key, _)| key.starts_with('$'));
        let FileKeys { defaults, namespace, mistakes } = FileKeys::of(own);
        if !mistakes.is_empty() {
            // They may have meant every subtool of the file, so none of these is what it should be.
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
                let message = format!("the name is taken by {}; a later definition wins nothing", first.get().origin);
                self.problem(&subtool.origin, Some(subtool.name.as_str()), None, message);
            }
        }
    }

    /// A subtool that depends on an unknown one, or on itself through others, is left out.
    fn check_dependencies(&mut self) {
        let subtools = &self.catalog.subtools;
        let names: Vec<_> = subtools.keys().map(SubtoolName::as_str).collect();
        let depends_on = |name| subtools.get(name).map_or(&[][..], |subtool| &subtool.definition.depends_on);
        let broken: Vec<(SubtoolName, String)> = broken(&names, |name| names_of(depends_on(name)))
            .into_iter()
            .filter_map(|(name, why)| {
                let message = match why {
                    BrokenDependency::Absent(other) => format!("there is no subtool `{other}`"),
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
}

impl CatalogBuilder {
    /// A subtool whose `verify` or `preview` names nothing that can look is left out; whether there was one.
    fn check_lookups(&mut self) -> bool {
        let subtools = &self.catalog.subtools;
        let found: Vec<_> = subtools
            .values()
            .filter_map(|subtool| {
                let Definition { verify, preview, .. } = &*subtool.definition;
                let verify = verify.as_ref().map(|verify| ("verify", &verify.subtool, &verify.input));
                let preview = preview.as_ref().map(|preview| ("preview", &preview.subtool, &preview.input));
                let mut lookups = verify.into_iter().chain(preview);
                let unfit = lookups.find_map(|(place, name, input)| unfit(place, name, input, subtools))?;
                Some((subtool.name.clone(), unfit))
            })
            .collect();
        for (name, (place, message)) in &found {
            if let Some(subtool) = self.catalog.subtools.remove(name) {
                self.problem(&subtool.origin, Some(name.as_str()), Some(place.clone()), message);
            }
        }
        !found.is_empty()
    }

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

/// Why the subtool `name` cannot look with this input, if it cannot: where that is wrong, and what.
fn unfit(
    place: &str,
    name: &SubtoolName,
    input: &Map<String, Value>,
    subtools: &BTreeMap<SubtoolName, Subtool>,
) -> Option<(String, String)> {
    let Some(lookup) = subtools.get(name).map(|lookup| &lookup.definition) else {
        return Some((format!("{place}.subtool"), format!("there is no subtool `{name}`")));
    };
    if lookup.effect_class() != EffectClass::Read {
        let message = format!("`{name}` is not read-only, so that looking could change something");
        return Some((format!("{place}.subtool"), message));
    }
    let required = lookup.input.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.filter_map(Value::as_str).find(|field| !input.contains_key(*field))?;
    Some((format!("{place}.input"), format!("`{name}` needs `{missing}`")))
}

fn names_of(subtools: &[SubtoolName]) -> Vec<&str> {
    subtools.iter().map(SubtoolName::as_str).collect()
}

pub(super) type MisplacedKey = (Option<String>, String);

fn subtool(name: &str, value: Value, defaults: &Map<String, Value>, origin: &Origin) -> Result<Subtool, MisplacedKey> {
    let name: SubtoolName = name.parse().map_err(|error: crate::task::name::InvalidName| (None, error.to_string()))?;
    let Value::Object(own) = value else { return Err((None, "a subtool is a JSON object".to_owned())) };
    let merged = Value::Object(merge(defaults.clone(), own));
    let hash = Sha256::new().chain_update(name.as_str()).chain_update([0]).chain_update(merged.to_string()).finalize();
    let concealed = |message: String| concealed(message, merged.get("run"));
    let definition: Definition = read(&merged).map_err(|(place, misfit)| (place, concealed(misfit.to_string())))?;
    let schema = check(&definition).map_err(|(place, message)| (place, concealed(message)))?;
    Ok(Subtool {
        name,
        definition: Arc::new(definition),
        schema: Arc::new(schema),
        origin: origin.clone(),
        hash: protocol::digest::hex(&hash),
    })
}

/// Everything about a definition that its types cannot say.
fn check(definition: &Definition) -> Result<InputSchema, MisplacedKey> {
    let at = |place: &str, message: &dyn ToString| (Some(place.to_owned()), message.to_string());
    if definition.description.trim().is_empty() {
        return Err(at("description", &"it is empty; a model finds the subtool by these words"));
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
        return Err(at("concurrency", &"0 would never run; the least is 1"));
    }
    if definition.retries.is_some_and(|retries| retries.times > 10) {
        return Err(at("retries.times", &"the most is 10"));
    }
    if let Some(verify) = &definition.verify {
        if definition.effect_class() != EffectClass::Verifiable {
            return Err(at("verify", &"it may be repeated as it is, by its annotations, and needs no lookup"));
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

/// `message` without the values that `run` holds: any of them may be a secret that was written where
/// its name belongs, and messages are kept, cached and shown. The place says which one is meant.
pub(super) fn concealed(mut message: String, run: Option<&Value>) -> String {
    match run {
        Some(Value::String(text)) => {
            if text.len() >= MIN_SECRET_CHARS && SecretName::in_reference(text).is_none() {
                message = message.replace(text, "…");
            }
            message
        }
        Some(Value::Array(items)) => items.iter().fold(message, |message, item| concealed(message, Some(item))),
        Some(Value::Object(fields)) => fields.values().fold(message, |message, field| concealed(message, Some(field))),
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => message,
    }
}
