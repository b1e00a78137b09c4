//! Loads subtools from definition files, strictly, and reports each mistake with its location.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use protocol::json::{self, JsonLimits};
use protocol::nearest::{did_you_mean, nearest};
use protocol::regular_file;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::check::check;
use super::dependencies::{BrokenDependency, broken};
use super::deserialize::{LocatedMessage, Mended, deserialize_mending};
use super::file_keys::{FileKeys, merge};
use super::sources::SourceFile;
use super::variables::{Variables, fill};
use super::{Catalog, LoadProblem, Origin, Sources, Subtool};
use crate::catalog::definition::{Definition, Lookup};
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
    let mut builder = CatalogBuilder {
        catalog: Catalog::default(),
        variables: sources.variables().clone(),
        overrides: BTreeMap::new(),
    };
    let (files, problems) = sources.files();
    builder.catalog.problems.extend(problems);
    // All files are read first: they may change what the packs define.
    let mut parsed = Vec::new();
    for SourceFile { path, metadata } in files {
        let origin = Origin::File(path.clone());
        let size = metadata.map_or(0, |metadata| metadata.len());
        if size > MAX_FILE_BYTES {
            let message = format!("the file has {size} bytes; the limit is {MAX_FILE_BYTES}");
            builder.problem(&origin, None, None, message);
            continue;
        }
        match regular_file::read(&path, MAX_FILE_BYTES) {
            Ok(bytes) => parsed.extend(builder.parse(origin, &bytes)),
            Err(error) => builder.problem(&origin, None, None, format!("failed to read it: {error}")),
        }
    }
    for pack in sources.packs() {
        if let Some(file) = builder.parse(Origin::Pack(pack.name.to_owned()), pack.text.as_bytes()) {
            builder.file(file);
        }
    }
    builder.report_unused_overrides();
    for file in parsed {
        builder.file(file);
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
    for name in &hidden {
        builder.catalog.subtools.remove(name);
    }
    builder.catalog.hidden = hidden.into_iter().collect();
    // After hiding subtools: callers get the data of a lookup, so it must be a subtool that they may use.
    builder.resolve_lookups();
    builder.catalog
}

/// A definition file whose own keys are valid.
struct ParsedFile {
    origin: Origin,
    defaults: Map<String, Value>,
    namespace: String,
    subtools: Vec<(String, Value)>,
}

struct CatalogBuilder {
    catalog: Catalog,
    variables: Variables,
    /// Changes of shipped subtools by name, with the files that they are in.
    overrides: BTreeMap<String, (Origin, Map<String, Value>)>,
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

    /// Parses a file and takes its overrides.
    fn parse(&mut self, origin: Origin, bytes: &[u8]) -> Option<ParsedFile> {
        let object = match json::parse_within(bytes, JsonLimits::DEFINITIONS) {
            Ok(Value::Object(object)) => object,
            Ok(_) => {
                self.problem(&origin, None, None, "a definition file must be a JSON object");
                return None;
            }
            Err(error) => {
                let place = format!("line {} column {}", error.line, error.column);
                self.problem(&origin, None, Some(place), error.message);
                return None;
            }
        };
        let (own, subtools): (Vec<_>, Vec<_>) = object.into_iter().partition(|(key, _)| key.starts_with('$'));
        let FileKeys { defaults, namespace, overrides, mistakes } = FileKeys::of(own);
        if !mistakes.is_empty() {
            // The mistake may affect every subtool of the file, so load none of them.
            for (place, message) in mistakes {
                self.problem(&origin, None, Some(place), message);
            }
            return None;
        }
        for (name, changes) in overrides {
            let Value::Object(changes) = changes else { continue };
            match self.overrides.entry(name) {
                Entry::Vacant(vacant) => drop(vacant.insert((origin.clone(), changes))),
                Entry::Occupied(first) => {
                    let (place, file) = (format!("$overrides.{}", first.key()), first.get().0.to_string());
                    let message = format!("it is already overridden by {file}; merge the two");
                    self.problem(&origin, None, Some(place), message);
                }
            }
        }
        Some(ParsedFile { origin, defaults, namespace, subtools })
    }

    fn file(&mut self, file: ParsedFile) {
        let ParsedFile { origin, defaults, namespace, subtools } = file;
        for (key, mut value) in subtools {
            let name = format!("{namespace}{key}");
            let mut reported = origin.clone();
            let change = match &origin {
                Origin::Pack(_) => self.overrides.remove(&name),
                Origin::File(_) => None,
            };
            if let (Value::Object(own), Some((from, changes))) = (&mut value, change) {
                *own = merge(std::mem::take(own), changes);
                reported = from;
            }
            match subtool(&name, value, &defaults, &origin, &self.variables) {
                Ok(mut subtool) => {
                    subtool.changed_by = (reported != origin).then_some(reported);
                    self.add(subtool);
                }
                Err(mistakes) => {
                    for (place, message) in mistakes {
                        let place = if reported == origin {
                            place
                        } else {
                            Some(format!("$overrides.{name}{}", place.map_or_else(String::new, |it| format!(".{it}"))))
                        };
                        self.problem(
                            &reported,
                            Some(&name).filter(|_| reported == origin).map(String::as_str),
                            place,
                            message,
                        );
                    }
                }
            }
        }
    }

    fn report_unused_overrides(&mut self) {
        for (name, (origin, _)) in std::mem::take(&mut self.overrides) {
            let known: Vec<_> = self.catalog.subtools.keys().map(SubtoolName::as_str).collect();
            let hint = did_you_mean(nearest(&name, known.into_iter(), 1)).map(|hint| format!("; {hint}"));
            let message = format!("no shipped subtool named `{name}`{}", hint.unwrap_or_default());
            self.problem(&origin, None, Some(format!("$overrides.{name}")), message);
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

    /// Removes the subtools whose `verify` or `preview` names an unsuitable subtool, or whose `undo` names none. Returns
    /// whether there were any.
    fn check_lookups(&mut self) -> bool {
        let subtools = &self.catalog.subtools;
        let found: Vec<_> = subtools
            .values()
            .filter_map(|subtool| {
                let Definition { verify, preview, undo, .. } = &*subtool.definition;
                if let Some(undo) = undo.as_ref().filter(|undo| !subtools.contains_key(undo.subtool.as_str())) {
                    let mistake = ("undo.subtool".to_owned(), format!("no subtool named `{}`", undo.subtool));
                    return Some((subtool.name.clone(), mistake));
                }
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

/// Returns why some of `definitions` would not load from a file with these `defaults`. Nothing else is looked at: not
/// whether their names are taken, and not the subtools that they need.
pub fn problems_of_definitions(
    defaults: &Map<String, Value>,
    definitions: impl IntoIterator<Item = (String, Value)>,
) -> Vec<LoadProblem> {
    let (origin, variables) = (Origin::File("definitions".into()), Variables::new());
    let mut problems = Vec::new();
    for (name, definition) in definitions {
        for (place, message) in subtool(&name, definition, defaults, &origin, &variables).err().into_iter().flatten() {
            problems.push(LoadProblem { file: origin.to_string(), subtool: Some(name.clone()), place, message });
        }
    }
    problems
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

fn subtool(
    name: &str,
    value: Value,
    defaults: &Map<String, Value>,
    origin: &Origin,
    variables: &Variables,
) -> Result<Subtool, Vec<LocatedMessage>> {
    let whole = |message: String| vec![(None, message)];
    let name: SubtoolName = name.parse().map_err(|error: crate::task::name::InvalidName| whole(error.to_string()))?;
    let Value::Object(own) = value else { return Err(whole("a subtool must be a JSON object".to_owned())) };
    let mut merged = Value::Object(merge(defaults.clone(), own));
    let mut unknown_variables = Vec::new();
    fill(&mut merged, "", variables, &mut unknown_variables);
    let hash = Sha256::new().chain_update(name.as_str()).chain_update([0]).chain_update(merged.to_string()).finalize();
    let Mended { value: definition, mut mistakes, mut changed } = deserialize_mending::<Definition>(&merged);
    let checked = definition.as_ref().map_or(Err(Vec::new()), check);
    if !unknown_variables.is_empty() {
        // Their places have nothing else wrong with them.
        changed.extend(unknown_variables.iter().filter_map(|(place, _)| place.clone()));
        mistakes.extend(unknown_variables);
    }
    let schema = match checked {
        Ok(schema) if mistakes.is_empty() => Some(schema),
        Ok(_) => None,
        Err(others) => {
            let is_changed = |place: &str| changed.iter().any(|changed| place.starts_with(changed.as_str()));
            mistakes.extend(others.into_iter().filter(|(place, _)| !place.as_deref().is_some_and(is_changed)));
            None
        }
    };
    match (definition, schema) {
        (Some(definition), Some(schema)) => Ok(Subtool {
            name,
            definition: Arc::new(definition),
            schema: Arc::new(schema),
            origin: origin.clone(),
            changed_by: None,
            hash: protocol::digest::hex(&hash),
        }),
        _ => Err(mistakes
            .into_iter()
            .map(|(place, message)| (place, without_values(message, merged.get("run"))))
            .collect()),
    }
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
