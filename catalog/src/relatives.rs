//! Relatives: whether what a subtool needs is there and suitable. Found for one subtool, with only what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use definition::run::Run;
use definition::run::script::OF_CALLERS;
use definition::run::steps::Steps;
use definition::{Definition, Lookup};
use ground::base::template;
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use protocol::tool_scope::ToolScope;
use serde_json::{Map, Value};

use super::absent::why_absent;
use super::compiled::Availability;
use super::dependencies::{Node, NodeVerdict, verdicts};
use super::scan::problem;
use super::{Catalog, DefinitionId, LoadProblem, Subtool};

/// What the checking of one definition found.
#[derive(Debug, Clone)]
pub enum CheckOutcome {
    Usable(Arc<Subtool>),
    /// It has no mistake, and callers may not use it.
    Hidden,
    Broken(Vec<LoadProblem>),
}

/// What the relation of a definition to others depends on.
struct Relations {
    depends_on: Vec<SubtoolName>,
    undo: Option<SubtoolName>,
    lookups: Vec<SubtoolUse>,
    steps: Vec<SubtoolUse>,
    effect: EffectClass,
    /// The fields that its input must have.
    required: Vec<String>,
}

/// A subtool that a definition runs, at `place`, with these fields.
struct SubtoolUse {
    place: String,
    subtool: SubtoolName,
    fields: Vec<String>,
    /// Whether it must not change anything.
    must_read: bool,
}

impl Relations {
    fn of(definition: &Definition) -> Self {
        let lookup = |place: &str, subtool: &SubtoolName, input: &Map<String, Value>| SubtoolUse {
            place: place.to_owned(),
            subtool: subtool.clone(),
            fields: input.keys().cloned().collect(),
            must_read: true,
        };
        let step = |(place, subtool, fields): (String, &SubtoolName, Vec<String>)| SubtoolUse {
            place,
            subtool: subtool.clone(),
            fields,
            must_read: false,
        };
        let verify = definition.verify.as_ref().map(|verify| lookup("verify", &verify.subtool, &verify.input));
        let preview = definition.preview.as_ref().map(|preview| lookup("preview", &preview.subtool, &preview.input));
        let by_another = definition.dry_run.as_ref().and_then(|it| Some((it.subtool.as_ref()?, &it.input)));
        let dry_run = by_another.map(|(subtool, input)| lookup("dry_run", subtool, input));
        let required = definition.input.get("required").and_then(Value::as_array).into_iter().flatten();
        Self {
            depends_on: definition.depends_on.clone(),
            undo: definition.undo.as_ref().map(|undo| undo.subtool.clone()),
            lookups: [verify, preview, dry_run].into_iter().flatten().collect(),
            steps: definition.run.steps().into_iter().flat_map(Steps::subtools).map(step).collect(),
            effect: definition.effect_class(),
            required: required.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.dependencies().next().is_none() && self.undo.is_none() && self.lookups.is_empty()
    }

    /// What it needs, and what must not need it in turn.
    fn dependencies(&self) -> impl Iterator<Item = &SubtoolName> {
        self.depends_on.iter().chain(self.steps.iter().map(|step| &step.subtool))
    }

    /// What it needs besides.
    fn uses(&self) -> impl Iterator<Item = &SubtoolName> {
        self.undo.iter().chain(self.lookups.iter().map(|lookup| &lookup.subtool))
    }

    /// The subtools that it runs with an input of its own.
    fn runs(&self) -> impl Iterator<Item = &SubtoolUse> {
        self.lookups.iter().chain(&self.steps)
    }
}

/// Returns the names of the other subtools that this one needs.
pub fn relatives(definition: &Definition) -> Vec<SubtoolName> {
    let relations = Relations::of(definition);
    relations.dependencies().chain(relations.uses()).cloned().collect()
}

/// The subtools that a definition runs, looks up, undoes with or gives to a model: names, and globs of an agent or a script. One
/// whose choice depends on the input, or that leaves the choice open, uses any.
pub(super) fn used_subtools(definition: &Definition) -> Vec<String> {
    let mut used: Vec<_> = relatives(definition).into_iter().map(|name| name.to_string()).collect();
    let any = || vec!["*".to_owned()];
    let constant = |name: &str| template::is_constant(name).then(|| name.to_owned());
    match &definition.run {
        Run::Agent(agent) if agent.url.is_none() => {
            let chosen = agent.subtools.as_ref().and_then(Value::as_array);
            let chosen = chosen.map(|names| names.iter().map(|name| constant(name.as_str()?)).collect::<Option<_>>());
            used.extend(chosen.flatten().unwrap_or_else(any));
        }
        Run::Llm(llm) => {
            used.extend(llm.tool.iter().flat_map(|name| constant(name).map_or_else(any, |name| vec![name])));
        }
        Run::Script(script) => used.extend(script.calls.clone().unwrap_or_else(any)),
        _ => {}
    }
    // What that calls is up to its caller.
    let runs_programs = ToolScope::default().narrowed(used.clone()).is_ok_and(|scope| scope.covers(OF_CALLERS));
    if runs_programs && !used.iter().any(|name| name == "*") {
        used.extend(any());
    }
    used
}

impl Catalog {
    /// Checks one definition together with everything that it needs.
    pub(super) fn check_definition(&self, id: DefinitionId) -> CheckOutcome {
        let subtool = match self.load_alone(id) {
            Ok(subtool) => subtool,
            Err(problems) => return CheckOutcome::Broken(problems),
        };
        let earlier = self.candidates(subtool.name.as_str()).iter().take_while(|other| **other != id);
        if let Some(first) = earlier.copied().find(|other| self.load_alone(*other).is_ok()) {
            let message = format!(
                "the name is already defined by {}; the first definition wins",
                self.definition(first).0.origin
            );
            return CheckOutcome::Broken(vec![problem(&subtool.origin, Some(subtool.name.as_str()), None, message)]);
        }
        self.taken_in_another_case(&subtool, id).unwrap_or_else(|| self.judged(subtool))
    }

    /// Returns what callers get for `name`, which has these definitions.
    pub(super) fn resolve(&self, candidates: &[DefinitionId]) -> Availability {
        let judged = |id: DefinitionId, subtool: Subtool| {
            self.taken_in_another_case(&subtool, id).unwrap_or_else(|| self.judged(subtool))
        };
        let first = candidates.iter().find_map(|id| Some((*id, self.load_alone(*id).ok()?)));
        match first.map(|(id, subtool)| judged(id, subtool)) {
            Some(CheckOutcome::Usable(subtool)) => Availability::Usable(subtool),
            Some(CheckOutcome::Hidden) => Availability::Hidden,
            Some(CheckOutcome::Broken(_)) | None => Availability::Broken,
        }
    }

    fn first_without_mistake(&self, candidates: &[DefinitionId]) -> Option<Subtool> {
        candidates.iter().find_map(|id| self.load_alone(*id).ok())
    }

    /// Two names that differ only in case are one for everyone who reads or writes them, also for rules: the first
    /// definition wins.
    fn taken_in_another_case(&self, subtool: &Subtool, id: DefinitionId) -> Option<CheckOutcome> {
        let name = subtool.name.as_str();
        let others = self.same_but_for_case.get(&name.to_ascii_lowercase())?;
        let is_first = |other: &&DefinitionId| **other < id && self.name(**other).as_str() != name;
        let first = others.iter().filter(is_first).find(|other| self.load_alone(**other).is_ok())?;
        let message = format!(
            "the name differs only in case from `{}` of {}; the first definition wins",
            self.name(*first),
            self.definition(*first).0.origin
        );
        Some(CheckOutcome::Broken(vec![problem(&subtool.origin, Some(name), None, message)]))
    }

    /// Judges a subtool by what it needs and by what callers may use.
    fn judged(&self, mut subtool: Subtool) -> CheckOutcome {
        let relations = Relations::of(&subtool.definition);
        if !relations.is_empty()
            && let Some((place, message)) = self.mistake_with_others(&subtool.name, &relations)
        {
            return CheckOutcome::Broken(vec![problem(
                &subtool.origin,
                Some(subtool.name.as_str()),
                Some(place),
                message,
            )]);
        }
        if !self.sources.permits(subtool.name.as_str(), &subtool.definition) {
            return CheckOutcome::Hidden;
        }
        self.attach_lookups(&mut subtool);
        CheckOutcome::Usable(Arc::new(subtool))
    }

    /// Attaches the definitions of the lookups. Callers get the data of a lookup, so they must be allowed to use it.
    fn attach_lookups(&self, subtool: &mut Subtool) {
        let Definition { verify, preview, dry_run, .. } = &*subtool.definition;
        if verify.is_none() && preview.is_none() && dry_run.is_none() {
            return;
        }
        let lookup = |name: &SubtoolName| {
            let found = self.first_without_mistake(self.candidates(name.as_str()))?;
            let is_permitted = self.sources.permits(name.as_str(), &found.definition);
            is_permitted.then_some(Lookup { definition: found.definition, schema: found.schema })
        };
        let Definition { verify, preview, dry_run, .. } = Arc::make_mut(&mut subtool.definition);
        if let Some(verify) = verify {
            verify.lookup = lookup(&verify.subtool);
        }
        if let Some(preview) = preview {
            preview.lookup = lookup(&preview.subtool);
        }
        if let Some(dry_run) = dry_run {
            dry_run.lookup = dry_run.subtool.as_ref().and_then(lookup);
        }
    }

    /// Returns the place and the message of what is wrong between a subtool and what it needs.
    fn mistake_with_others(&self, name: &SubtoolName, relations: &Relations) -> Option<(String, String)> {
        match self.verdict(name.as_str()) {
            Some(NodeVerdict::Usable) => return None,
            Some(_) => {}
            None => self.find_verdicts(name, relations),
        }
        let verdict = |name: &SubtoolName| self.verdict(name.as_str()).unwrap_or(NodeVerdict::Absent);
        let of_dependencies = |is_reason: fn(NodeVerdict) -> bool| {
            let found = relations.depends_on.iter().find(|other| is_reason(verdict(other)))?;
            Some(("depends_on".to_owned(), self.not_usable(found.as_str())))
        };
        let is_circular = verdict(name) == NodeVerdict::Circular;
        let of_undo = || {
            relations
                .undo
                .as_ref()
                .filter(|undo| verdict(undo) != NodeVerdict::Usable)
                .map(|undo| ("undo.subtool".to_owned(), self.not_usable(undo.as_str())))
        };
        let of_use = |used: &SubtoolUse| {
            if verdict(&used.subtool) != NodeVerdict::Usable {
                return Some((format!("{}.subtool", used.place), self.not_usable(used.subtool.as_str())));
            }
            unsuitable(used, self.relations_of(&used.subtool).as_ref()?)
        };
        of_dependencies(|verdict| verdict == NodeVerdict::Absent)
            .or_else(|| {
                let place = if relations.steps.is_empty() { "depends_on" } else { "run.steps" };
                is_circular.then(|| (place.to_owned(), "it depends on itself".to_owned()))
            })
            .or_else(|| of_dependencies(|verdict| verdict != NodeVerdict::Usable))
            .or_else(of_undo)
            .or_else(|| relations.runs().find_map(of_use))
    }
}

impl Catalog {
    /// The message for a subtool that is needed and cannot be used.
    fn not_usable(&self, name: &str) -> String {
        let candidates = self.candidates(name);
        let own = candidates.iter().find_map(|id| self.load_alone(*id).err()?.into_iter().next());
        match own {
            Some(problem) => format!("the subtool `{name}` has a mistake, so it was not loaded: {problem}"),
            None if candidates.is_empty() => {
                let why = why_absent(name, &ToolScope::default(), &self.sources, &self.problems);
                why.map_or_else(|| none_named(name), |error| error.message)
            }
            None => format!("the subtool `{name}` cannot be used either; why: agent-magic-tool inspect {name}"),
        }
    }
}

impl Catalog {
    /// Judges a subtool, and everything that it needs directly or indirectly, and remembers the verdicts.
    fn find_verdicts(&self, name: &SubtoolName, relations: &Relations) {
        let (mut found, mut absent) = (BTreeMap::new(), Vec::new());
        let mut wanted: Vec<_> = relations.dependencies().chain(relations.uses()).cloned().collect();
        found.insert(name.clone(), None);
        while let Some(next) = wanted.pop() {
            if found.contains_key(&next) || absent.contains(&next) || self.verdict(next.as_str()).is_some() {
                continue;
            }
            match self.relations_of(&next) {
                Some(relations) => {
                    wanted.extend(relations.dependencies().chain(relations.uses()).cloned());
                    found.insert(next, Some(relations));
                }
                None => absent.push(next),
            }
        }
        let is_mistaken = |used: &SubtoolUse| match found.get(&used.subtool) {
            Some(lookup) => unsuitable(used, lookup.as_ref().unwrap_or(relations)).is_some(),
            None => self.relations_of(&used.subtool).is_none_or(|lookup| unsuitable(used, &lookup).is_some()),
        };
        let nodes: Vec<_> = found
            .iter()
            .map(|(name, own)| {
                let relations = own.as_ref().unwrap_or(relations);
                Node {
                    name: name.as_str(),
                    depends_on: relations.dependencies().map(SubtoolName::as_str).collect(),
                    uses: relations.uses().map(SubtoolName::as_str).collect(),
                    is_broken: relations.runs().any(is_mistaken),
                }
            })
            .collect();
        let judged = verdicts(&nodes, |name| self.verdict(name));
        let judged: Vec<_> = found.keys().cloned().zip(judged).collect();
        let mut compiled = self.compiled();
        compiled.verdicts.extend(judged);
        compiled.verdicts.extend(absent.into_iter().map(|name| (name, NodeVerdict::Absent)));
    }

    fn verdict(&self, name: &str) -> Option<NodeVerdict> {
        self.compiled().verdicts.get(name).copied()
    }

    /// Returns what the relation of the subtool `name` to others depends on; `None` if it cannot be loaded.
    fn relations_of(&self, name: &SubtoolName) -> Option<Relations> {
        self.first_without_mistake(self.candidates(name.as_str())).map(|found| Relations::of(&found.definition))
    }
}

/// The message for a subtool that is needed and cannot be used.
fn none_named(name: &str) -> String {
    format!("no subtool named `{name}`")
}

/// Whether `message` says that the subtool `name`, which is needed, cannot be used.
pub(super) fn says_unusable(message: &str, name: &str) -> bool {
    message == none_named(name)
        || message.strip_prefix(&format!("the subtool `{name}` ")).is_some_and(|rest| {
            rest.starts_with("has a mistake, so it was not loaded") || rest.starts_with("cannot be used either")
        })
}

/// Returns the place and the message of what makes `other` unsuitable for this use of it.
fn unsuitable(used: &SubtoolUse, other: &Relations) -> Option<(String, String)> {
    let SubtoolUse { place, subtool, fields, must_read } = used;
    if *must_read && other.effect != EffectClass::Read {
        let message = format!("`{subtool}` is not read-only, so a lookup could change something");
        return Some((format!("{place}.subtool"), message));
    }
    let missing = other.required.iter().find(|field| !fields.contains(field))?;
    Some((format!("{place}.input"), format!("`{subtool}` requires `{missing}`")))
}
