//! Which subtools callers may use: the rules of the configuration, and of each of its profiles.

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

/// The rules, as a human wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessRules {
    /// Names or globs of the subtools that may be used.
    pub allow: Vec<String>,
    /// Names or globs of those that may not, whatever `allow` says.
    pub deny: Vec<String>,
    /// One of these tags is needed; empty means none.
    pub tags: Vec<String>,
    /// Names or globs of the packs and files that may be used; empty means all.
    pub packs: Vec<String>,
    /// Globs of the privileges that callers have.
    pub privileges: Vec<String>,
    /// Whether callers may use subtools marked `admin`.
    pub admin: bool,
    /// Whether callers may only use subtools that are declared to be read-only.
    pub read_only: bool,
    /// Whether callers must show a change by a dry run before they make it.
    pub dry_run_first: bool,
}

impl Default for AccessRules {
    /// Everything but what is marked `admin`.
    fn default() -> Self {
        Self {
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            tags: Vec::new(),
            packs: Vec::new(),
            privileges: vec!["*".to_owned()],
            admin: false,
            read_only: false,
            dry_run_first: false,
        }
    }
}

/// A pattern that cannot be read, and the key that it stands under.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct InvalidAccess {
    /// Like `deny[2]`.
    pub place: String,
    source: globset::Error,
}

/// What of a subtool the rules are about.
#[derive(Debug, Clone, Copy)]
pub struct AccessFacts<'a> {
    pub name: &'a str,
    /// The pack or file that defines it.
    pub pack: &'a str,
    pub tags: &'a [String],
    /// The privileges that every call of it needs.
    pub requires: &'a [&'a str],
    pub is_admin: bool,
    /// Whether a session that is restricted to reading may run it.
    pub is_read_only: bool,
}

/// Why rules exclude a subtool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion<'a> {
    NotAllowed,
    Denied,
    Tags,
    Pack,
    /// This privilege is missing.
    Privilege(&'a str),
    Admin,
    /// It may change something.
    Writes,
}

impl Exclusion<'_> {
    /// The key of the rules that excludes it.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::NotAllowed => "allow",
            Self::Denied => "deny",
            Self::Tags => "tags",
            Self::Pack => "packs",
            Self::Privilege(_) => "privileges",
            Self::Admin => "admin",
            Self::Writes => "read_only",
        }
    }
}

/// Rules that are ready for use.
#[derive(Debug, Clone)]
pub struct AccessFilter {
    allow: GlobSet,
    deny: GlobSet,
    tags: Vec<String>,
    /// `None` means all.
    packs: Option<GlobSet>,
    privileges: GlobSet,
    admin: bool,
    read_only: bool,
}

impl AccessFilter {
    pub fn new(rules: &AccessRules) -> Result<Self, InvalidAccess> {
        Ok(Self {
            allow: globs("allow", &rules.allow)?,
            deny: globs("deny", &rules.deny)?,
            tags: rules.tags.clone(),
            packs: if rules.packs.is_empty() { None } else { Some(globs("packs", &rules.packs)?) },
            privileges: globs("privileges", &rules.privileges)?,
            admin: rules.admin,
            read_only: rules.read_only,
        })
    }

    /// A filter that lets nothing through.
    pub fn nothing() -> Self {
        let rules = AccessRules { allow: Vec::new(), ..AccessRules::default() };
        Self::new(&rules).expect("no pattern is wrong")
    }

    /// Whether the patterns over names allow this one. What it is otherwise may still exclude it.
    pub fn permits_name(&self, name: &str) -> bool {
        self.allow.is_match(name) && !self.deny.is_match(name)
    }

    /// Whether it is known by the name alone what is excluded.
    pub fn is_by_name(&self) -> bool {
        self.tags.is_empty() && self.packs.is_none()
    }

    /// Whether callers have this privilege.
    pub fn grants(&self, privilege: &str) -> bool {
        self.privileges.is_match(privilege)
    }

    pub fn permits(&self, facts: AccessFacts<'_>) -> bool {
        self.exclusion(facts).is_none()
    }

    /// Why the rules exclude it; `None` if they do not.
    pub fn exclusion<'a>(&self, facts: AccessFacts<'a>) -> Option<Exclusion<'a>> {
        if self.deny.is_match(facts.name) {
            return Some(Exclusion::Denied);
        }
        if !self.allow.is_match(facts.name) {
            return Some(Exclusion::NotAllowed);
        }
        if self.packs.as_ref().is_some_and(|packs| !packs.is_match(facts.pack)) {
            return Some(Exclusion::Pack);
        }
        if !self.tags.is_empty() && !self.tags.iter().any(|tag| facts.tags.contains(tag)) {
            return Some(Exclusion::Tags);
        }
        if facts.is_admin && !self.admin {
            return Some(Exclusion::Admin);
        }
        if self.read_only && !facts.is_read_only {
            return Some(Exclusion::Writes);
        }
        facts.requires.iter().find(|needed| !self.grants(needed)).map(|missing| Exclusion::Privilege(missing))
    }
}

fn globs(key: &str, patterns: &[String]) -> Result<GlobSet, InvalidAccess> {
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        set.add(Glob::new(pattern).map_err(|source| InvalidAccess { place: format!("{key}[{index}]"), source })?);
    }
    set.build().map_err(|source| InvalidAccess { place: key.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_key_excludes_by_itself() {
        let (tags, requires) = (words(&["shop"]), ["order:read"]);
        let facts = AccessFacts {
            name: "order_read",
            pack: "shop",
            tags: &tags,
            requires: &requires,
            is_admin: true,
            is_read_only: false,
        };
        let all = AccessRules { admin: true, ..AccessRules::default() };
        for (rules, expected) in [
            (all.clone(), None),
            (AccessRules { allow: words(&["order_*"]), ..all.clone() }, None),
            (AccessRules { allow: words(&["mail_*"]), ..all.clone() }, Some(Exclusion::NotAllowed)),
            (AccessRules { deny: words(&["*_read"]), ..all.clone() }, Some(Exclusion::Denied)),
            (AccessRules { packs: words(&["s*"]), ..all.clone() }, None),
            (AccessRules { packs: words(&["git"]), ..all.clone() }, Some(Exclusion::Pack)),
            (AccessRules { tags: words(&["mail", "shop"]), ..all.clone() }, None),
            (AccessRules { tags: words(&["mail"]), ..all.clone() }, Some(Exclusion::Tags)),
            (AccessRules { privileges: words(&["order:*"]), ..all.clone() }, None),
            (AccessRules { privileges: Vec::new(), ..all.clone() }, Some(Exclusion::Privilege("order:read"))),
            (AccessRules { read_only: true, ..all.clone() }, Some(Exclusion::Writes)),
            (AccessRules::default(), Some(Exclusion::Admin)),
        ] {
            let filter = AccessFilter::new(&rules).expect("patterns");
            assert_eq!(filter.exclusion(facts), expected, "{rules:?}");
        }
        assert!(!AccessFilter::nothing().permits(facts));
        let wrong = AccessFilter::new(&AccessRules { deny: words(&["a", "b["]), ..all }).expect_err("no pattern");
        assert_eq!(wrong.place, "deny[1]");
    }
}
