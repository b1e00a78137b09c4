//! Loads one definition, strictly, and reports each mistake with its location.
//!
//! Knows nothing of other definitions: what is wrong between two of them is the matter of `relatives.rs`.

use std::sync::Arc;

use crate::file_part::read_part;
use definition::Definition;
use definition::run::Run;
use definition::run::script::{self, Script};
use ground::task::name::SubtoolName;
use protocol::json::{self, JsonLimits};
use protocol::regular_file;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::check::check;
use super::deserialize::{LocatedMessage, Mended, deserialize_mending, without_values};
use super::destinations::Destinations;
use super::file_keys::merge;
use super::packs;
use super::relatives::used_subtools;
use super::scan::{
    DefinitionFile, MAX_FILE_BYTES, ScannedDefinition, ScannedFile, line_and_column, problem, scan_file,
};
use super::variables::{Variables, choose, fill};
use super::{Catalog, DefinitionId, LoadProblem, Origin, Subtool, sources};

/// Where a definition names the file with its program.
const PROGRAM_FILE: &str = "run.script.file";

/// The text of a definition, and what its file adds to it.
struct DefinitionText {
    text: String,
    start: usize,
    defaults: Arc<Map<String, Value>>,
}

impl Catalog {
    /// Loads a definition without regard to others. Callers may not be allowed to use it.
    pub(super) fn load_alone(&self, id: DefinitionId) -> Result<Subtool, Vec<LoadProblem>> {
        let (DefinitionFile { origin, pack, .. }, ScannedDefinition { name, .. }) = self.definition(id);
        let (merged, reported) = self.merged(id)?;
        let raw = pack.as_ref().map(|_| merged.clone());
        match subtool(name, merged, origin, (self.sources.variables(), self.sources.destinations())) {
            Ok(mut subtool) => {
                Arc::make_mut(&mut subtool.definition).defined_in = self.definition(id).0.group();
                if let (Some(pack), Some(raw)) = (pack, raw) {
                    if let Some(message) = linked_program(&subtool.definition, origin) {
                        let place = Some(PROGRAM_FILE.to_owned());
                        return Err(vec![problem(origin, Some(name.as_str()), place, message)]);
                    }
                    let changes = self.overrides.get(name.as_str()).map(|(_, changes)| changes);
                    let mut others = used_subtools(&subtool.definition);
                    others.retain(|name| !self.is_own_of_pack(name, pack.name(), origin));
                    let undeclared =
                        pack.undeclared(&subtool.definition, &raw, changes, self.sources.variables(), &others);
                    if !undeclared.is_empty() {
                        let problems = undeclared.into_iter();
                        let problems = problems.map(|(place, it)| problem(origin, Some(name.as_str()), place, it));
                        return Err(problems.collect());
                    }
                    pack.apply(&mut subtool, self.is_confirm_own(name.as_str()));
                }
                subtool.changed_by = (reported != *origin).then_some(reported);
                Ok(subtool)
            }
            Err(mistakes) if reported == *origin => Err(mistakes
                .into_iter()
                .map(|(place, message)| problem(origin, Some(name.as_str()), place, message))
                .collect()),
            Err(mistakes) => Err(mistakes
                .into_iter()
                .map(|(place, message)| {
                    let place = place.map_or_else(String::new, |place| format!(".{place}"));
                    problem(&reported, None, Some(format!("$overrides.{name}{place}")), message)
                })
                .collect()),
        }
    }

    /// The definitions of a pack that can be read, by name, with the variables that are set: also those that are not
    /// loaded, since they lack others.
    pub(super) fn definitions_of_pack(&self, name: &str) -> Vec<(String, Value)> {
        let own = |file: &&DefinitionFile| file.pack.as_ref().is_some_and(|pack| pack.name() == name);
        let files = self.files().iter().enumerate().filter(|(_, file)| own(file));
        let ids = files.flat_map(|(number, file)| file.definitions(number));
        let read = ids.filter_map(|id| Some((self.definition(id).1.name.to_string(), self.merged(id).ok()?.0)));
        read.map(|(name, merged)| (name, with_known(Value::Object(merged), self.sources.variables()))).collect()
    }

    /// Whether `name` is a subtool of the pack. If others define it too, theirs may be what runs: then it is one only for a
    /// pack that ships, of which a human may replace a part.
    fn is_own_of_pack(&self, name: &str, pack: &str, origin: &Origin) -> bool {
        let candidates = self.candidates(name);
        let is_of_pack = |id: &DefinitionId| {
            let owner = &self.definition(*id).0.pack;
            owner.as_ref().is_some_and(|owner| owner.name() == pack)
        };
        match origin {
            Origin::Pack(_) => candidates.iter().any(is_of_pack),
            Origin::File(_) => !candidates.is_empty() && candidates.iter().all(is_of_pack),
        }
    }

    /// Whether a human decided whether the subtool of a pack asks.
    pub(super) fn is_confirm_own(&self, name: &str) -> bool {
        self.overrides.get(name).is_some_and(|(_, changes)| changes.contains_key("confirm"))
    }

    /// Returns a definition with the defaults of its file and the changes by another one, and where its mistakes are
    /// reported.
    pub(super) fn merged(&self, id: DefinitionId) -> Result<(Map<String, Value>, Origin), Vec<LoadProblem>> {
        let (DefinitionFile { origin, pack, .. }, ScannedDefinition { name, .. }) = self.definition(id);
        let whole = |message: &str| vec![problem(origin, Some(name.as_str()), None, message)];
        let DefinitionText { text, start, defaults } = self.text_of(id)?;
        let value = json::parse_within(text.as_bytes(), JsonLimits::DEFINITIONS).map_err(|error| {
            let error = error.after(&text_before(origin, start));
            vec![problem(origin, Some(name.as_str()), Some(line_and_column(&error)), error.message)]
        })?;
        let Value::Object(mut own) = value else { return Err(whole("a subtool must be a JSON object")) };
        let mut reported = origin.clone();
        if pack.is_some()
            && let Some((from, changes)) = self.overrides.get(name.as_str())
        {
            own = merge(own, changes.clone());
            reported = from.clone();
        }
        Ok((merge(Map::clone(&defaults), own), reported))
    }

    /// Reads a definition where it was found. If the file has changed since, looks for it there again, and has the
    /// catalog loaded anew before the next request.
    fn text_of(&self, id: DefinitionId) -> Result<DefinitionText, Vec<LoadProblem>> {
        let (file, ScannedDefinition { name, start, length, .. }) = self.definition(id);
        let (start, length) = (*start as usize, *length as usize);
        let found = |text: String| DefinitionText { text, start, defaults: Arc::clone(&file.defaults) };
        let (path, stamp) = match (&file.origin, &file.stamp) {
            (Origin::File(path), Some(stamp)) => (path, stamp),
            (Origin::File(_), None) => unreachable!("a file is scanned with its state"),
            (Origin::Pack(pack), _) => return Ok(found(pack_text(pack)[start..start + length].to_owned())),
        };
        let whole = |message: String| vec![problem(&file.origin, Some(name.as_str()), None, message)];
        match read_part(path, stamp, start as u64, length) {
            Ok(Some(text)) => return Ok(found(text)),
            Ok(None) => self.mark_stale(),
            Err(error) => {
                self.mark_stale();
                return Err(whole(format!("failed to read it: {error}")));
            }
        }
        if let Some(distrust) = sources::distrust_of(path) {
            return Err(whole(distrust));
        }
        if file.pack.as_ref().is_some_and(|pack| pack.pinned.is_some()) {
            return Err(whole("the file changed since a human enabled the pack".to_owned()));
        }
        let mut bytes = Vec::new();
        let ScannedFile { file: changed, problems, .. } = scan_file(path, &mut bytes);
        let known = changed.as_ref().and_then(|file| file.definitions.iter().find(|found| found.name == *name));
        let (Some(file), Some(found)) = (&changed, known) else {
            let is_gone = whole("the file changed, and no longer defines it".to_owned());
            return Err(if problems.is_empty() { is_gone } else { problems });
        };
        let (start, end) = (found.start as usize, found.start as usize + found.length as usize);
        let text = String::from_utf8_lossy(&bytes[start..end]).into_owned();
        Ok(DefinitionText { text, start, defaults: Arc::clone(&file.defaults) })
    }
}

/// Returns why some of `definitions` would not load from a file with these `defaults`. Nothing else is looked at: not
/// whether their names are taken, and not the subtools that they need.
pub fn problems_of_definitions(
    defaults: &Map<String, Value>,
    definitions: impl IntoIterator<Item = (String, Value)>,
) -> Vec<LoadProblem> {
    let (origin, settings) = (Origin::File("definitions".into()), (&Variables::new(), &Destinations::default()));
    let mut problems = Vec::new();
    for (name, definition) in definitions {
        let loaded = match (name.parse::<SubtoolName>(), definition) {
            (Ok(name), Value::Object(own)) => subtool(&name, merge(defaults.clone(), own), &origin, settings).err(),
            (Err(error), _) => Some(vec![(None, error.to_string())]),
            (_, _) => Some(vec![(None, "a subtool must be a JSON object".to_owned())]),
        };
        for (place, message) in loaded.into_iter().flatten() {
            let (file, subtool) = (origin.to_string(), Some(name.clone()));
            problems.push(LoadProblem { file, subtool, place, message, count: None });
        }
    }
    problems
}

/// What is wrong with a program of a pack that lies elsewhere: what a human enabled is what is in the folder of the pack.
fn linked_program(definition: &Definition, origin: &Origin) -> Option<String> {
    let (Run::Script(Script { file: Some(name), .. }), Origin::File(path)) = (&definition.run, origin) else {
        return None;
    };
    let is_link = path.with_file_name(name).is_symlink();
    is_link.then(|| "it is a link; the code of a pack must lie in its folder, so put the file itself there".to_owned())
}

/// The program in the file that a definition names, if it names one. Fails with what is wrong with the file.
fn program_of(definition: &Value, origin: &Origin) -> Result<Option<String>, String> {
    let name = definition["run"]["script"]["file"].as_str().filter(|name| Script::is_file_name(name));
    let path = match (name, origin) {
        (None, _) => return Ok(None),
        (Some(name), Origin::File(path)) => path.with_file_name(name),
        (Some(_), Origin::Pack(_)) => {
            return Err("there are no files beside this definition; write the program as `source`".to_owned());
        }
    };
    if let Some(distrust) = sources::distrust_of(&path) {
        return Err(format!("`{}`: {distrust}", path.display()));
    }
    let text = regular_file::read_text(&path, script::MAX_FILE_BYTES);
    text.map(Some).map_err(|error| format!("failed to read `{}`: {error}", path.display()))
}

/// Fills the variables that are set into a definition, whose `run` stays a choice while it is not known.
fn with_known(mut definition: Value, variables: &Variables) -> Value {
    let (mut chosen, mut unknown) = (definition.clone(), Vec::new());
    choose(&mut chosen, variables, &mut unknown);
    if unknown.is_empty() {
        definition = chosen;
    }
    fill(&mut definition, "", variables, &mut unknown);
    definition
}

fn pack_text(name: &str) -> &'static str {
    packs::shipped(name).map_or("", |pack| pack.text)
}

/// Returns what a file begins with, to find the line of a mistake.
fn text_before(origin: &Origin, length: usize) -> Vec<u8> {
    let mut text = match origin {
        Origin::Pack(pack) => pack_text(pack).as_bytes().to_vec(),
        Origin::File(path) => regular_file::read(path, MAX_FILE_BYTES).unwrap_or_default(),
    };
    text.truncate(length);
    text
}

/// Checks a definition and prepares it for use.
pub(super) fn subtool(
    name: &SubtoolName,
    merged: Map<String, Value>,
    origin: &Origin,
    (variables, destinations): (&Variables, &Destinations),
) -> Result<Subtool, Vec<LocatedMessage>> {
    let mut merged = Value::Object(merged);
    let mut unknown_variables = Vec::new();
    choose(&mut merged, variables, &mut unknown_variables);
    fill(&mut merged, "", variables, &mut unknown_variables);
    let program = program_of(&merged, origin);
    let content = merged.to_string() + &destinations.used_by(&merged["run"]);
    let mut hash = Sha256::new().chain_update(name.as_str()).chain_update([0]).chain_update(content);
    let Mended { value: mut definition, mut mistakes, mut changed } = deserialize_mending::<Definition>(&merged);
    if let Ok(Some(program)) = &program
        && let Some(Run::Script(script)) = definition.as_mut().map(|definition| &mut definition.run)
    {
        hash = hash.chain_update([0]).chain_update(program);
        script.content = Some(program.clone());
    }
    let checked = definition.as_ref().map_or(Err(Vec::new()), check);
    if let Err(unreadable) = program {
        changed.push(PROGRAM_FILE.to_owned());
        mistakes.push((Some(PROGRAM_FILE.to_owned()), unreadable));
    }
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
            name: name.clone(),
            definition: Arc::new(definition),
            schema: Arc::new(schema),
            origin: origin.clone(),
            changed_by: None,
            hash: protocol::digest::hex(&hash.finalize()),
        }),
        _ => Err(mistakes
            .into_iter()
            .map(|(place, message)| {
                // The name of a file is no secret.
                let is_of_file = place.as_deref() == Some(PROGRAM_FILE);
                let message = if is_of_file { message } else { without_values(message, merged.get("run")) };
                (place, message)
            })
            .collect()),
    }
}
