//! The profiles of the configuration: which subtools their callers may use.
//!
//! A caller carries the names of its profiles in its tool scope, so that they go wherever the scope goes. What each of them
//! has is decided here, by the configuration as it is: a profile that is gone has nothing.

use std::collections::BTreeMap;

use definition::Definition;
use ground::base::template;
use ground::config::Config;
use protocol::access::{AccessFacts, AccessFilter, AccessRules, Exclusion};
use protocol::code::Code;
use protocol::error::ErrorBody;
use protocol::tool_scope::ToolScope;

use crate::Subtool;

/// The profiles, by their names.
#[derive(Debug, Clone, Default)]
pub struct Profiles(BTreeMap<String, Profile>);

#[derive(Debug, Clone)]
struct Profile {
    rules: AccessRules,
    /// What the rules say, ready to be asked.
    filter: AccessFilter,
}

impl Profiles {
    pub fn of(config: &Config) -> Self {
        let profile = |rules: AccessRules| {
            // The configuration was not accepted with a pattern that cannot be read.
            let filter = AccessFilter::new(&rules).unwrap_or_else(|_| AccessFilter::nothing());
            Profile { rules, filter }
        };
        Self(config.profiles.iter().map(|(name, settings)| (name.clone(), profile(settings.access()))).collect())
    }

    fn filter(&self, name: &str) -> Option<&AccessFilter> {
        self.0.get(name).map(|profile| &profile.filter)
    }

    /// The rules of the profiles that a scope names; an error if there is one that does not exist.
    pub fn rules_of(&self, scope: &ToolScope) -> Result<BTreeMap<String, AccessRules>, ErrorBody> {
        let rules = |name: &str| Some((name.to_owned(), self.0.get(name)?.rules.clone()));
        scope.profiles().map(|name| rules(name).ok_or_else(|| unknown(name))).collect()
    }

    /// Fails for a scope with a profile that does not exist: nothing can be used with it.
    pub fn check(&self, scope: &ToolScope) -> Result<(), ErrorBody> {
        scope.profiles().find(|name| !self.0.contains_key(*name)).map_or(Ok(()), |name| Err(unknown(name)))
    }

    /// Whether a scope admits this subtool.
    pub(crate) fn admit(&self, scope: &ToolScope, name: &str, definition: &Definition) -> bool {
        let requires = constant_requirements(definition);
        let facts = facts(name, definition, &requires);
        scope.covers_with(name, |profile| self.filter(profile).is_some_and(|filter| filter.permits(facts)))
    }

    /// Whether a scope may have a subtool of this name, as far as names tell.
    pub(crate) fn may_have(&self, scope: &ToolScope, name: &str) -> bool {
        scope.covers_with(name, |profile| self.filter(profile).is_some_and(|filter| filter.permits_name(name)))
    }

    /// Whether a caller with this scope may know what is defined under a name, also if that was not loaded.
    pub(crate) fn may_know(&self, scope: &ToolScope, name: &str) -> bool {
        let may = |filter: &AccessFilter| filter.is_by_name() && filter.permits_name(name);
        scope.covers_with(name, |profile| self.filter(profile).is_some_and(may))
    }

    /// Why a profile excludes a subtool; `None` if it does not.
    pub fn exclusion(&self, profile: &str, name: &str, definition: &Definition) -> Option<String> {
        let filter = self.filter(profile)?;
        let requires = constant_requirements(definition);
        let excluded = filter.exclusion(facts(name, definition, &requires))?;
        let key = format!("profiles.{profile}.{}", excluded.key());
        Some(match excluded {
            Exclusion::NotAllowed => format!("`{key}` does not list it"),
            Exclusion::Denied => format!("`{key}` excludes it"),
            Exclusion::Tags => format!("it has none of the tags of `{key}`"),
            Exclusion::Pack => format!("it is of `{}`, which `{key}` does not list", definition.defined_in),
            Exclusion::Privilege(missing) => format!("it needs the privilege `{missing}`, which `{key}` does not have"),
            Exclusion::Admin => format!("it is for administrators, and `{key}` is not true"),
            Exclusion::Writes => format!("it may change something, and `{key}` is true"),
        })
    }

    /// The privilege for want of which a profile excludes a subtool that it allows by a pattern other than `*`.
    pub fn named_and_lacking(&self, profile: &str, subtool: &Subtool) -> Option<String> {
        let Profile { filter, rules } = self.0.get(profile)?;
        let requires = constant_requirements(&subtool.definition);
        let name = subtool.name.as_str();
        let Exclusion::Privilege(missing) = filter.exclusion(facts(name, &subtool.definition, &requires))? else {
            return None;
        };
        let named = ToolScope::default().narrowed(rules.allow.iter().filter(|it| *it != "*").cloned().collect());
        named.is_ok_and(|named| named.covers(name)).then(|| missing.to_owned())
    }

    /// The first profile of a scope that lacks a privilege.
    pub(crate) fn lacking<'a>(&self, scope: &'a ToolScope, privilege: &str) -> Option<&'a str> {
        scope.profiles().find(|name| !self.filter(name).is_some_and(|filter| filter.grants(privilege)))
    }

    /// What tells two states of the profiles apart.
    pub(crate) fn stamp(&self) -> String {
        let rules: BTreeMap<_, _> = self.0.iter().map(|(name, profile)| (name, &profile.rules)).collect();
        if rules.is_empty() { String::new() } else { format!("{rules:?}") }
    }
}

/// The privileges that every call of a subtool needs, whatever its input is.
pub(crate) fn constant_requirements(definition: &Definition) -> Vec<&str> {
    definition.requires.iter().filter(|required| template::is_constant(required)).map(String::as_str).collect()
}

pub(crate) fn facts<'a>(name: &'a str, definition: &'a Definition, requires: &'a [&'a str]) -> AccessFacts<'a> {
    AccessFacts {
        name,
        pack: &definition.defined_in,
        tags: &definition.tags,
        requires,
        is_admin: definition.admin,
        is_read_only: definition.runs_in_read_only_sessions(),
    }
}

fn unknown(name: &str) -> ErrorBody {
    ErrorBody::new(Code::RefusedByPolicy, format!("there is no profile `{name}`, so who has it may use nothing"))
        .hint(format!("tell the user, who can write [profiles.{name}] in config.toml or give you another profile"))
}
