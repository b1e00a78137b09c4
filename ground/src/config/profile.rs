//! `[profiles.NAME]`: the rights of some callers, which only narrow what the configuration allows all of them.

use protocol::access::AccessRules;
use protocol::data_class::DataClass;
use protocol::tool_scope::check_profile_name;
use serde::Deserialize;

use super::{RateLimit, RuleAction, RuleSettings};
use crate::task::confirmation::Assurance;

/// What callers with this profile may do.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileSettings {
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub tags: Vec<String>,
    pub packs: Vec<String>,
    pub privileges: Vec<String>,
    pub admin: bool,
    /// Whether they may only run subtools that are declared to be read-only.
    pub read_only: bool,
    /// Whether they must show a change by a dry run before they make it.
    pub dry_run_first: bool,
    /// The most sensitive data that their models may get.
    pub trust: Option<DataClass>,
    /// How strong an approval of their calls must be.
    pub min_assurance: Option<Assurance>,
    /// Rules of their own, which ask or refuse.
    pub rules: Vec<RuleSettings>,
    /// How often each of them may call subtools.
    pub rate_limits: Vec<RateLimit>,
    /// How many tokens of models each API key may use in a day; 0 means no limit of its own.
    pub tokens_per_day: u64,
    /// What each API key may cost in a day; 0 means no limit of its own.
    pub cost_per_day: f64,
}

impl Default for ProfileSettings {
    fn default() -> Self {
        let AccessRules { allow, deny, tags, packs, privileges, admin, read_only, dry_run_first } =
            AccessRules::default();
        Self {
            allow,
            deny,
            tags,
            packs,
            privileges,
            admin,
            read_only,
            dry_run_first,
            trust: None,
            min_assurance: None,
            rules: Vec::new(),
            rate_limits: Vec::new(),
            tokens_per_day: 0,
            cost_per_day: 0.0,
        }
    }
}

impl ProfileSettings {
    /// Which subtools they may use.
    pub fn access(&self) -> AccessRules {
        let Self { allow, deny, tags, packs, privileges, admin, read_only, dry_run_first, .. } = self.clone();
        AccessRules { allow, deny, tags, packs, privileges, admin, read_only, dry_run_first }
    }

    /// What is wrong with a profile of this name: the key below it, if it is one, and why.
    pub(super) fn mistake(&self, name: &str) -> Option<(String, String)> {
        if let Err(wrong) = check_profile_name(name) {
            return Some((String::new(), wrong.to_string()));
        }
        if let Some(unlimited) = self.rate_limits.iter().position(|limit| limit.calls == 0) {
            let why = "0 calls would be no limit; leave it out, or write `allow = []` if there are to be none";
            return Some((format!(".rate_limits[{unlimited}].calls"), why.to_owned()));
        }
        if let Some(disabling) = self.rate_limits.iter().position(|limit| limit.auto_disable) {
            let why = "a limit over all subtools switches none off; `auto_disable` is for [rate_limits.tools]";
            return Some((format!(".rate_limits[{disabling}]"), why.to_owned()));
        }
        let allowing = self.rules.iter().position(|rule| rule.then == RuleAction::Allow)?;
        let why = "a profile only narrows: its rules ask or refuse; a rule that allows stands in [[confirm.rules]]";
        Some((format!(".rules[{allowing}].then"), why.to_owned()))
    }
}
