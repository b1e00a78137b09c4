//! Which of the listed subtools a caller may use: by its tool scope, and by the profiles that the scope names.

use std::collections::BTreeMap;

use protocol::access::{AccessFacts, AccessFilter, AccessRules};
use protocol::tool_scope::ToolScope;
use search::Unusable;

use crate::{Listing, ListingEntry};

/// What a caller may use, ready to be asked about many subtools.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    scope: ToolScope,
    /// The profiles of the scope. One that is missing has nothing.
    profiles: BTreeMap<String, AccessFilter>,
}

impl Rights {
    /// `rules` are those of the profiles that `scope` names.
    pub fn new(scope: &ToolScope, rules: &BTreeMap<String, AccessRules>) -> Self {
        let filter = |rules: &AccessRules| AccessFilter::new(rules).unwrap_or_else(|_| AccessFilter::nothing());
        let profiles = rules.iter().map(|(name, rules)| (name.clone(), filter(rules))).collect();
        Self { scope: scope.clone(), profiles }
    }

    pub fn are_all(&self) -> bool {
        self.scope.is_everything()
    }

    /// Whether the caller may use a subtool of this name, as far as names tell.
    pub fn may_have(&self, name: &str) -> bool {
        let permits = |profile: &str| self.profiles.get(profile).is_some_and(|filter| filter.permits_name(name));
        self.scope.covers_with(name, permits)
    }

    /// Whether the caller may use the subtool with this number.
    pub fn cover(&self, listing: &Listing, number: u32) -> Result<bool, Unusable> {
        if self.are_all() {
            return Ok(true);
        }
        let name = listing.name(number)?;
        let may_have = self.may_have(&name);
        // The entry is read only if the name does not decide already.
        if !may_have || self.profiles.is_empty() {
            return Ok(may_have);
        }
        let group = listing.groups().get(listing.facts(number).group);
        let pack = group.map(|group| group.name.as_str()).unwrap_or_default();
        let ListingEntry { tags, requires, is_admin, is_read_only, .. } = listing.entry(number)?;
        let requires: Vec<_> = requires.iter().map(String::as_str).collect();
        let facts = AccessFacts { name: &name, pack, tags: &tags, requires: &requires, is_admin, is_read_only };
        let permits = |profile: &str| self.profiles.get(profile).is_some_and(|filter| filter.permits(facts));
        Ok(self.scope.covers_with(&name, permits))
    }

    /// Whether there is a subtool of this name that the caller may use.
    pub fn cover_name(&self, listing: &Listing, name: &str) -> Result<bool, Unusable> {
        match listing.find(name)? {
            Some(number) => self.cover(listing, number),
            None => Ok(false),
        }
    }
}
