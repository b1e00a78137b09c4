//! Policy: whether a task runs without confirmation, asks a human, or is refused.
//!
//! Decides from the configured rules, the definition, the input and the caller. Of all matching rules the strictest
//! wins: refuse over ask over allow. If no rule matches, the definition's `confirm` decides; without `confirm`, the
//! declared effects do. The default is safe: a subtool that can change something needs a human unless a rule, a
//! setting or its definition allows it.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use definition::run::Run;
use definition::{Confirm, Definition};
use globset::{Glob, GlobSet, GlobSetBuilder};
use ground::base::template::{self, TemplateValues, condition};
use ground::config::{self, Config, ProfileSettings, RuleAction, RuleSample};
use ground::task::confirmation::{Assurance, Digest, QUESTION};
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use protocol::caller::Caller;
use protocol::code::Code;
use protocol::error::ErrorBody;
use runner::Invocation;
use runner::sql::{AccessPatterns, AccessedTables, KnownTables, TableRules, accessed_tables};
use serde_json::{Map, Value};

/// The list with the human's rules.
const RULES: &str = "confirm.rules";
/// The list with the human's risk marks.
const MARKS: &str = "confirm.marks";

/// What policy decides about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDecision {
    Run,
    /// A human must approve it.
    Ask,
    Refuse,
    /// It needs an approval of a higher assurance than this executor provides.
    NeedsAssurance,
}

/// A decision and what decided it, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRuling {
    pub decision: PolicyDecision,
    pub why: String,
    /// The number of the rule in `confirm.rules` that decided, counted from 1; `None` if none did.
    pub rule: Option<usize>,
    /// How strong an approval must be, if the definition or a rule says so.
    pub needs: Option<Assurance>,
    /// The rules that ask a human about it, by their content.
    pub asked_by: Vec<Digest>,
}

impl PolicyDecision {
    fn is_stricter_than(self, other: Self) -> bool {
        let strictness = |decision| match decision {
            Self::Run => 0,
            Self::Ask => 1,
            Self::NeedsAssurance => 2,
            Self::Refuse => 3,
        };
        strictness(self) > strictness(other)
    }
}

impl PolicyRuling {
    /// Refuses, in a read-only session, whatever is not declared read-only; any other ruling stays as it is.
    #[must_use]
    pub fn for_read_only_session(self, definition: &Definition) -> Self {
        if definition.runs_in_read_only_sessions() || self.decision == PolicyDecision::Refuse {
            return self;
        }
        let why = "this session is read-only (--read-only), and the subtool is not declared read-only".to_owned();
        Self { decision: PolicyDecision::Refuse, why, rule: None, needs: None, asked_by: Vec::new() }
    }
}

/// The run that policy decides about.
#[derive(Debug, Clone, Copy)]
pub struct PolicyCase<'a> {
    pub name: &'a SubtoolName,
    pub definition: &'a Definition,
    pub input: &'a Map<String, Value>,
    pub caller: &'a Caller,
    /// How strong an approval can be here.
    pub assurance: Assurance,
}

impl PolicyCase<'_> {
    /// What the run does in a database; `None` if it asks none.
    fn tables(&self, known: &KnownTables) -> Option<AccessedTables> {
        let (input, caller) = (self.input.clone(), self.caller.clone());
        accessed_tables(&self.definition.run, &Invocation { input, caller, ..Invocation::default() }, known)
    }
}

/// The `[confirm]` settings, compiled.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Vec<CompiledRule>,
    /// Their words are in `because`.
    marks: Vec<CompiledRule>,
    /// What the profiles of callers add, by their names.
    profiles: BTreeMap<String, ProfilePolicy>,
    writes: RuleAction,
    /// Why every call needs a human, whatever the rules say.
    held: Option<String>,
    known_tables: KnownTables,
}

/// What a profile demands of the calls of its callers. It can only make a ruling stricter.
#[derive(Debug, Clone)]
struct ProfilePolicy {
    name: String,
    rules: Vec<CompiledRule>,
    needs: Option<Assurance>,
}

#[derive(Debug, Clone)]
struct CompiledRule {
    /// The list that it stands in, like `confirm.rules`, and its position there, counted from 1.
    list: String,
    number: usize,
    tools: GlobSet,
    tags: Vec<String>,
    /// Empty: whatever it does in a database.
    /// The setting `gates`.
    table_access: AccessPatterns,
    when: Option<String>,
    then: RuleAction,
    needs: Option<Assurance>,
    because: Option<String>,
    /// Of what it is about and what it does, not of its words or its place.
    content: Digest,
}

/// A rule that is not valid or that contradicts its own samples.
#[derive(Debug, thiserror::Error)]
#[error("{} {number} of `{list}`: {problem}", if list == MARKS { "mark" } else { "rule" })]
pub struct RuleError {
    list: String,
    number: usize,
    problem: String,
}

impl RuleError {
    /// The place of the rule in the configuration.
    pub fn path(&self) -> String {
        format!("{}[{}]", self.list, self.number - 1)
    }
}

impl Policy {
    /// Compiles every rule and checks it against its samples.
    pub fn new(config: &Config) -> Result<Self, RuleError> {
        let Config { confirm, profiles, .. } = config;
        let marks = confirm.marks.iter().zip(1..).map(|(mark, number)| CompiledRule::of_mark(mark, number));
        let profile = |(name, profile): (&String, &ProfileSettings)| {
            let rules = compiled(&profile.rules, &format!("profiles.{name}.rules"))?;
            Ok((name.clone(), ProfilePolicy { name: name.clone(), rules, needs: profile.min_assurance }))
        };
        Ok(Self {
            rules: compiled(&confirm.rules, RULES)?,
            marks: marks.collect::<Result<_, _>>()?,
            profiles: profiles.iter().map(profile).collect::<Result<_, _>>()?,
            writes: confirm.writes,
            held: None,
            known_tables: KnownTables::default(),
        })
    }

    /// What the profiles of a caller demand.
    fn profiles_of(&self, caller: &Caller) -> impl Iterator<Item = &ProfilePolicy> {
        caller.tool_scope.profiles().filter_map(|name| self.profiles.get(name))
    }

    /// The rules that a caller cannot be freed from, and those of the configuration.
    fn rules_for(&self, caller: &Caller) -> impl Iterator<Item = &CompiledRule> {
        self.rules.iter().chain(self.profiles_of(caller).flat_map(|profile| &profile.rules))
    }

    /// The same, but every call needs a human, for this reason: it is not known what the rules were to forbid.
    #[must_use]
    pub fn holding(mut self, why: String) -> Self {
        self.held = Some(why);
        self
    }

    /// Whether every call needs a human.
    pub fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Lets rules about tables know what was read of the databases.
    #[must_use]
    pub fn with_tables(self, known_tables: KnownTables) -> Self {
        Self { known_tables, ..self }
    }

    /// The words of the configured risk marks that apply to a call that was asked at `asked_at`.
    pub fn marks(&self, case: PolicyCase<'_>, asked_at: &jiff::Zoned) -> Vec<String> {
        let applies = |mark: &&CompiledRule| {
            let holds = |when: &String| {
                let mut caller = caller_value(case.caller);
                caller["hour"] = asked_at.hour().into();
                caller["weekday"] = asked_at.weekday().to_monday_one_offset().into();
                // What cannot be evaluated stands out as well.
                TemplateValues::of_condition(case.input, &caller).holds_leniently(when).unwrap_or(true)
            };
            mark.covers(case.name.as_str(), &case.definition.tags) && mark.when.as_ref().is_none_or(holds)
        };
        self.marks.iter().filter(applies).filter_map(|mark| mark.because.clone()).collect()
    }

    /// The rules that ask a human, by their content.
    pub fn ask_rules(&self) -> BTreeSet<Digest> {
        let of_profiles = self.profiles.values().flat_map(|profile| &profile.rules);
        let asking = self.rules.iter().chain(of_profiles).filter(|rule| rule.then == RuleAction::Ask);
        asking.map(|rule| rule.content).collect()
    }

    /// The number of configured rules.
    pub fn rules(&self) -> usize {
        self.rules.len() + self.profiles.values().map(|profile| profile.rules.len()).sum::<usize>()
    }

    /// Decides about one run, and refuses what changes something if the caller's session is read-only.
    pub fn decide_for_session(&self, case: PolicyCase<'_>) -> PolicyRuling {
        let ruling = self.decide(case);
        if case.caller.read_only { ruling.for_read_only_session(case.definition) } else { ruling }
    }

    /// Decides about one run.
    pub fn decide(&self, case: PolicyCase<'_>) -> PolicyRuling {
        let mut ruling = self.held(self.ruling(case));
        if matches!(case.definition.run, Run::AskUser(_)) && ruling.decision != PolicyDecision::Refuse {
            (ruling.decision, ruling.why, ruling.rule) = (PolicyDecision::Ask, QUESTION.to_owned(), None);
        }
        ruling.needs = ruling.needs.max(case.definition.min_assurance);
        match ruling.needs {
            Some(needs) if ruling.decision == PolicyDecision::Ask && needs > case.assurance => PolicyRuling {
                decision: PolicyDecision::NeedsAssurance,
                why: format!(
                    "it requires an approval with assurance `{}`, but this executor provides `{}`",
                    wire_name(needs),
                    wire_name(case.assurance)
                ),
                ..ruling
            },
            _ => ruling,
        }
    }

    /// Has a human asked about everything, also about what a grant covers, while the rules cannot be relied on.
    fn held(&self, ruling: PolicyRuling) -> PolicyRuling {
        let Some(why) = self.held.as_ref().filter(|_| ruling.decision != PolicyDecision::Refuse) else { return ruling };
        let mut asked_by = ruling.asked_by;
        asked_by.push(Digest::of(&[b"held", why.as_bytes()]));
        PolicyRuling { decision: PolicyDecision::Ask, why: why.clone(), rule: None, asked_by, ..ruling }
    }

    fn ruling(&self, case: PolicyCase<'_>) -> PolicyRuling {
        // The statement is read once for all rules, and only if one of them asks for it.
        let tables = LazyCell::new(|| case.tables(&self.known_tables));
        let ruling = self.ruling_for_all(case, &tables);
        self.profiles_of(case.caller).fold(ruling, |ruling, profile| profile.tighten(ruling, case, &tables))
    }

    /// The ruling whatever the caller's profile is.
    fn ruling_for_all(
        &self,
        case: PolicyCase<'_>,
        tables: &impl Deref<Target = Option<AccessedTables>>,
    ) -> PolicyRuling {
        let matching: Vec<_> = self.rules.iter().filter_map(|rule| rule.apply(case, tables)).collect();
        // Whatever decides: each rule that asks may demand more.
        let needs = matching.iter().filter_map(|(rule, _)| rule.needs).max();
        let asks = matching.iter().filter(|(rule, _)| rule.then == RuleAction::Ask);
        let asked_by = asks.map(|(rule, _)| rule.content).collect();
        if let Some((rule, why)) = matching.into_iter().max_by_key(|(rule, _)| rule.then) {
            return PolicyRuling { decision: rule.then.into(), why, rule: Some(rule.number), needs, asked_by };
        }
        let (decision, why) = match &case.definition.confirm {
            Some(Confirm::Never) => (PolicyDecision::Run, "its definition never asks for confirmation".to_owned()),
            Some(Confirm::Always) => (PolicyDecision::Ask, "its definition always asks for confirmation".to_owned()),
            Some(Confirm::When(condition)) => match evaluate(condition, case.input, case.caller) {
                Ok(false) => (PolicyDecision::Run, format!("`{condition}` is false")),
                Ok(true) => (PolicyDecision::Ask, format!("`{condition}` is true")),
                Err(error) => (PolicyDecision::Ask, format!("failed to evaluate its condition: {error}")),
            },
            None if case.definition.annotations.effect_class() == EffectClass::Read => {
                (PolicyDecision::Run, "it is read-only".to_owned())
            }
            None => match self.writes {
                RuleAction::Allow => (PolicyDecision::Run, "the setting `confirm.writes` allows it".to_owned()),
                RuleAction::Ask => {
                    (PolicyDecision::Ask, "it changes something, and no rule allows it without asking".to_owned())
                }
                RuleAction::Refuse => (
                    PolicyDecision::Refuse,
                    "it changes something, and the setting `confirm.writes` refuses that".to_owned(),
                ),
            },
        };
        PolicyRuling { decision, why, rule: None, needs: None, asked_by }
    }
}

impl TableRules for Policy {
    fn are_about_tables(&self) -> bool {
        let of_profiles = self.profiles.values().flat_map(|profile| &profile.rules);
        self.rules.iter().chain(of_profiles).any(|rule| !rule.table_access.is_empty())
    }

    fn judge(&self, invocation: &Invocation, tables: &AccessedTables) -> Option<(RuleAction, String)> {
        let subtool = invocation.subtool.as_ref()?;
        let applies = |rule: &&CompiledRule| {
            !rule.table_access.is_empty()
                && rule.then != RuleAction::Allow
                && rule.covers(&subtool.name, &subtool.tags)
                && tables.any(&rule.table_access)
                && rule
                    .when
                    .as_ref()
                    .is_none_or(|when| rule.holds(when, &invocation.input, &invocation.caller).unwrap_or(true))
        };
        let rule = self.rules_for(&invocation.caller).filter(applies).max_by_key(|rule| rule.then)?;
        Some((rule.then, rule.why()))
    }

    fn still_allow(&self, invocation: &Invocation, seen: &AccessedTables, now: &AccessedTables) -> bool {
        let Some(subtool) = invocation.subtool.as_ref() else { return true };
        let applies = |rule: &&CompiledRule| {
            rule.then == RuleAction::Allow
                && rule.covers(&subtool.name, &subtool.tags)
                && rule
                    .when
                    .as_ref()
                    .is_none_or(|when| rule.holds(when, &invocation.input, &invocation.caller).unwrap_or(false))
        };
        let allowing = || self.rules.iter().filter(applies);
        let allowed_before = |rule: &CompiledRule| rule.table_access.is_empty() || seen.all(&rule.table_access);
        let allows = |rule: &CompiledRule| rule.table_access.is_empty() || now.all(&rule.table_access);
        self.writes == RuleAction::Allow || !allowing().any(allowed_before) || allowing().any(allows)
    }
}

impl ProfilePolicy {
    /// The ruling, made as strict as the profile demands.
    fn tighten(
        &self,
        mut ruling: PolicyRuling,
        case: PolicyCase<'_>,
        tables: &impl Deref<Target = Option<AccessedTables>>,
    ) -> PolicyRuling {
        let matching: Vec<_> = self.rules.iter().filter_map(|rule| rule.apply(case, tables)).collect();
        let asks = matching.iter().filter(|(rule, _)| rule.then == RuleAction::Ask);
        ruling.asked_by.extend(asks.map(|(rule, _)| rule.content));
        let demanded = matching.iter().filter_map(|(rule, _)| rule.needs).chain(self.needs).max();
        ruling.needs = ruling.needs.max(demanded);
        if let Some((rule, why)) = matching.into_iter().max_by_key(|(rule, _)| rule.then)
            && PolicyDecision::from(rule.then).is_stricter_than(ruling.decision)
        {
            let why = format!("{why} (profile `{}`)", self.name);
            ruling = PolicyRuling { decision: rule.then.into(), why, rule: None, ..ruling };
        }
        ruling
    }
}

impl From<RuleAction> for PolicyDecision {
    fn from(then: RuleAction) -> Self {
        match then {
            RuleAction::Allow => Self::Run,
            RuleAction::Ask => Self::Ask,
            RuleAction::Refuse => Self::Refuse,
        }
    }
}

impl CompiledRule {
    /// A mark is a rule that decides nothing.
    fn of_mark(mark: &config::MarkSettings, number: usize) -> Result<Self, RuleError> {
        let config::MarkSettings { tools, tags, when, say } = mark.clone();
        let invalid = |problem: String| RuleError { list: MARKS.to_owned(), number, problem };
        if let Some(when) = &when {
            condition::check_mark(when).map_err(|error| invalid(error.to_string()))?;
        }
        let tools = globs(&tools).map_err(invalid)?;
        Ok(Self {
            list: MARKS.to_owned(),
            number,
            tools,
            tags,
            table_access: AccessPatterns::default(),
            when,
            then: RuleAction::Ask,
            needs: None,
            because: Some(say),
            content: Digest::of(&[]),
        })
    }

    fn new(rule: &config::RuleSettings, list: &str, number: usize) -> Result<Self, RuleError> {
        let invalid = |problem: String| RuleError { list: list.to_owned(), number, problem };
        if rule.min_assurance.is_some() && rule.then != RuleAction::Ask {
            return Err(invalid("`min_assurance` is for a rule that asks: `then = \"ask\"`".to_owned()));
        }
        if let Some(access) = rule.gates.iter().find(|access| !is_access(access)) {
            let form = "write `db.DATABASE.TABLE.read`, or `.insert`, `.update`, `.delete` or `.write`, with `*` where you like";
            return Err(invalid(format!("`{access}` is not a gate: {form}")));
        }
        if let Some(when) = &rule.when {
            condition::check(when).map_err(|error| invalid(error.to_string()))?;
        }
        let compiled = Self {
            list: list.to_owned(),
            number,
            tools: globs(&rule.tools).map_err(invalid)?,
            tags: rule.tags.clone(),
            table_access: AccessPatterns::new(&rule.gates).map_err(invalid)?,
            when: rule.when.clone(),
            then: rule.then,
            needs: rule.min_assurance,
            because: rule.because.clone(),
            content: content(rule),
        };
        for (samples, expected) in [(&rule.matches, true), (&rule.not_matches, false)] {
            for sample in samples {
                if compiled.matches_sample(sample).map_err(&invalid)? != expected {
                    let (actual, key) = if expected { ("does not match", "match") } else { ("matches", "not_match") };
                    let input = Value::Object(sample.input.clone());
                    return Err(invalid(format!(
                        "it {actual} `{}` with {input}, which is listed under `{key}`",
                        sample.tool
                    )));
                }
            }
        }
        Ok(compiled)
    }

    /// Returns the action of this rule if it matches `case`. If evaluating its condition fails, an `ask` or `refuse`
    /// rule matches and an `allow` rule does not, so that a mistake never allows anything.
    fn apply(
        &self,
        case: PolicyCase<'_>,
        tables: &impl Deref<Target = Option<AccessedTables>>,
    ) -> Option<(&Self, String)> {
        if !self.covers(case.name.as_str(), &case.definition.tags) || !self.covers_tables(tables) {
            return None;
        }
        let why = self.why();
        match self.when.as_ref().map(|when| self.holds(when, case.input, case.caller)) {
            None | Some(Ok(true)) => Some((self, why)),
            Some(Ok(false)) => None,
            Some(Err(_)) if self.then == RuleAction::Allow => None,
            Some(Err(error)) => {
                let why =
                    format!("failed to evaluate the condition of rule {} of `{}`: {error}", self.number, self.list);
                Some((self, why))
            }
        }
    }

    fn why(&self) -> String {
        self.because.clone().unwrap_or_else(|| format!("rule {} of `{}` applies", self.number, self.list))
    }

    /// Whether it is about what the call does in a database. To allow a call, it must be about all of that.
    fn covers_tables(&self, tables: &impl Deref<Target = Option<AccessedTables>>) -> bool {
        self.table_access.is_empty()
            || tables.as_ref().is_some_and(|tables| match self.then {
                RuleAction::Allow => tables.all(&self.table_access),
                RuleAction::Ask | RuleAction::Refuse => tables.any(&self.table_access),
            })
    }

    fn covers(&self, name: &str, tags: &[String]) -> bool {
        let covers_name = self.tools.is_empty() || self.tools.is_match(name);
        covers_name && (self.tags.is_empty() || self.tags.iter().any(|tag| tags.contains(tag)))
    }

    fn matches_sample(&self, sample: &RuleSample) -> Result<bool, String> {
        if !self.covers(&sample.tool, &sample.tags) {
            return Ok(false);
        }
        let caller =
            Caller { uid: 0, session: sample.session.clone(), folder: sample.folder.clone(), ..Caller::default() };
        self.when
            .as_ref()
            .map_or(Ok(true), |when| self.holds(when, &sample.input, &caller).map_err(|error| error.to_string()))
    }

    /// Evaluates the condition of this rule. A field that is absent never makes a rule allow anything.
    fn holds(&self, when: &str, input: &Map<String, Value>, caller: &Caller) -> Result<bool, template::TemplateError> {
        let values = condition_values(input, caller);
        match self.then {
            RuleAction::Allow => values.holds(when),
            RuleAction::Ask | RuleAction::Refuse => values.holds_leniently(when),
        }
    }
}

fn compiled(rules: &[config::RuleSettings], list: &str) -> Result<Vec<CompiledRule>, RuleError> {
    rules.iter().zip(1..).map(|(rule, number)| CompiledRule::new(rule, list, number)).collect()
}

fn content(rule: &config::RuleSettings) -> Digest {
    let what = (&rule.tools, &rule.tags, &rule.gates, &rule.when, rule.then, rule.min_assurance);
    Digest::of(&[&serde_json::to_vec(&what).expect("a rule is plain JSON")])
}

/// Whether a pattern can match what a statement does: `db.` first, and one of the known words last.
fn is_access(pattern: &str) -> bool {
    const ACCESSES: [&str; 5] = ["read", "insert", "update", "delete", "write"];
    let (first, last) = (pattern.split('.').next(), pattern.rsplit('.').next());
    let is_open = |part: &str| part.contains(['*', '?', '[', '{']);
    first.is_some_and(|first| first == "db" || is_open(first))
        && last.is_some_and(|last| ACCESSES.contains(&last) || is_open(last))
}

fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut globs = GlobSetBuilder::new();
    for pattern in patterns {
        globs.add(Glob::new(pattern).map_err(|error| error.to_string())?);
    }
    globs.build().map_err(|error| error.to_string())
}

/// Evaluates the condition of a definition, which asks a human.
fn evaluate(condition: &str, input: &Map<String, Value>, caller: &Caller) -> Result<bool, template::TemplateError> {
    condition_values(input, caller).holds_leniently(condition)
}

fn condition_values(input: &Map<String, Value>, caller: &Caller) -> TemplateValues {
    TemplateValues::of_condition(input, &caller_value(caller))
}

fn caller_value(caller: &Caller) -> Value {
    let mut value = serde_json::to_value(caller).expect("a caller can be serialized");
    // Serialization omits a depth of 0, but a condition may always use it.
    value["depth"] = caller.depth.into();
    value
}

/// The serialized name of an enum value.
fn wire_name(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

impl From<RuleError> for ErrorBody {
    fn from(error: RuleError) -> Self {
        Self::new(Code::BadConfig, error.to_string()).hint("how to write rules: agent-magic-tool doctor --settings")
    }
}

#[cfg(test)]
mod tests;
