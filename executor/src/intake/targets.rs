//! What the configuration names and nothing has: a rule that forbids and is about nothing protects nothing.
//!
//! Whatever restricts or warns must be about something that exists: rules that refuse or ask, marks, limits, and what is
//! denied. What only allows loses nothing by a wrong name. A comparison that can never hold is about nothing as well. Subtools of packs that are off count, since a rule may come
//! before its pack. Tables are not looked up: their database may be away, so of an access, only its database is checked.

use std::collections::BTreeSet;
use std::fs;

use catalog::check::{declared_fields, declared_types};
use catalog::{Catalog, DefinitionFile, SHIPPED, Sources, Subtool};
use globset::{Glob, GlobMatcher};
use ground::base::template::field_uses::{FieldComparison, FieldUses, JsonType};
use ground::config::{Config, RuleAction, RuleSettings};
use protocol::access::AccessRules;
use protocol::nearest::{did_you_mean, nearest};
use protocol::paths::Paths;

/// The most fields whose names are compared for a suggestion.
const MAX_COMPARED: usize = 2_000;

/// Something in the configuration that is about nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// Its place, like `confirm.rules[0].tools[1]`.
    pub path: String,
    pub message: String,
    /// Whether something is not protected that a human wanted to be.
    pub is_error: bool,
}

/// A part of the configuration that applies to some subtools.
#[derive(Debug, Default)]
struct Target<'a> {
    path: String,
    tools: &'a [String],
    tags: &'a [String],
    when: Option<&'a str>,
    /// The setting `gates`.
    table_access: &'a [String],
    is_error: bool,
    /// Whether the names are a list of their own, and not the key `tools` of a rule.
    is_list: bool,
}

/// Returns what of the configuration is about nothing that exists here.
pub fn unmatched(config: &Config, paths: &Paths) -> Vec<Unmatched> {
    let targets = targets(config);
    let limits = &config.rate_limits;
    if targets.is_empty() && limits.tools.is_empty() && limits.tags.is_empty() {
        return Vec::new();
    }
    let catalog = Catalog::load(&Sources::of(paths, &with_everything(config, paths)));
    unmatched_in(config, &catalog, &targets)
}

fn targets(config: &Config) -> Vec<Target<'_>> {
    let rules = config.confirm.rules.iter().enumerate();
    let rules = rules.map(|(index, rule)| rule_target(format!("confirm.rules[{index}]"), rule));
    let marks = config.confirm.marks.iter().enumerate().map(|(index, mark)| Target {
        path: format!("confirm.marks[{index}]"),
        tools: &mark.tools,
        tags: &mark.tags,
        when: mark.when.as_deref(),
        is_error: true,
        ..Target::default()
    });
    let AccessRules { allow, deny, .. } = &config.access;
    let profiles = config.profiles.iter().flat_map(|(name, profile)| {
        let rules = profile.rules.iter().enumerate();
        let rules = rules.map(move |(index, rule)| rule_target(format!("profiles.{name}.rules[{index}]"), rule));
        let tags = Target { path: format!("profiles.{name}"), tags: &profile.tags, ..Target::default() };
        lists(&format!("profiles.{name}"), &profile.allow, &profile.deny).chain(rules).chain([tags])
    });
    rules.chain(marks).chain(lists("access", allow, deny)).chain(profiles).collect()
}

fn rule_target(path: String, rule: &RuleSettings) -> Target<'_> {
    Target {
        path,
        tools: &rule.tools,
        tags: &rule.tags,
        when: rule.when.as_deref(),
        table_access: &rule.gates,
        is_error: rule.then != RuleAction::Allow,
        ..Target::default()
    }
}

/// Each list of names of a section, in a form that names its own key.
fn lists<'a>(section: &str, allow: &'a [String], deny: &'a [String]) -> impl Iterator<Item = Target<'a>> + use<'a> {
    let lists = [(format!("{section}.allow"), allow, false), (format!("{section}.deny"), deny, true)];
    let given = lists.into_iter().filter(|(_, patterns, _)| !patterns.is_empty());
    given.map(|(path, tools, is_error)| Target { path, tools, is_error, is_list: true, ..Target::default() })
}

/// The configuration with every pack on, and nothing denied.
fn with_everything(config: &Config, paths: &Paths) -> Config {
    let mut all = Config { access: Config::default().access, ..config.clone() };
    let own = fs::read_dir(paths.config.join("packs")).into_iter().flatten().flatten();
    let own = own.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok());
    let own = own.filter(|name| !name.starts_with('.'));
    for name in SHIPPED.iter().map(|pack| pack.name.to_owned()).chain(own) {
        all.packs.entry(name).or_default().enabled = Some(true);
    }
    all
}

fn unmatched_in(config: &Config, catalog: &Catalog, targets: &[Target<'_>]) -> Vec<Unmatched> {
    let mut found = Vec::new();
    for target in targets {
        for (index, pattern) in target.tools.iter().enumerate() {
            let path = if target.is_list {
                format!("{}[{index}]", target.path)
            } else {
                format!("{}.tools[{index}]", target.path)
            };
            let message = catalog.unmatched(pattern);
            found.extend(message.map(|message| Unmatched { path, message, is_error: target.is_error }));
        }
        found.extend(target.unmatched_databases(config));
        found.extend(target.impossible_comparisons());
        if !found.iter().any(|known| known.path.starts_with(&target.path)) {
            found.extend(target.unmatched_fields(catalog));
        }
    }
    found.extend(unmatched_packs(config, catalog));
    let limits = &config.rate_limits;
    for tool in limits.tools.keys() {
        let path = format!("rate_limits.tools.{tool}");
        found.extend(catalog.unmatched(tool).map(|message| Unmatched { path, message, is_error: true }));
    }
    let mut wanted: Vec<_> = targets
        .iter()
        .flat_map(|target| {
            let path = |index| format!("{}.tags[{index}]", target.path);
            target.tags.iter().enumerate().map(move |(index, tag)| (path(index), tag, target.is_error))
        })
        .chain(limits.tags.keys().map(|tag| (format!("rate_limits.tags.{tag}"), tag, true)))
        .collect();
    let mut tags = BTreeSet::new();
    if !wanted.is_empty() {
        for subtool in catalog.subtools() {
            wanted.retain(|(_, tag, _)| !subtool.definition.tags.contains(tag));
            if wanted.is_empty() {
                break;
            }
            tags.extend(subtool.definition.tags.iter().cloned());
        }
    }
    found.extend(wanted.into_iter().map(|(path, tag, is_error)| {
        let message = format!("no subtool has the tag `{tag}`{}", suggestion(tag, tags.iter().map(String::as_str)));
        Unmatched { path, message, is_error }
    }));
    found
}

/// The packs that profiles name and that nothing is defined in.
fn unmatched_packs(config: &Config, catalog: &Catalog) -> Vec<Unmatched> {
    let groups: BTreeSet<_> = catalog.files().iter().map(DefinitionFile::group).collect();
    let unmatched = |section: &str, packs: &[String]| -> Vec<Unmatched> {
        let is_unknown = |pattern: &&String| {
            !matcher(pattern).is_some_and(|matcher| groups.iter().any(|group| matcher.is_match(group)))
        };
        let message = |pattern: &String| {
            let near = suggestion(pattern, groups.iter().map(String::as_str));
            format!("no pack and no file of definitions is called `{pattern}`{near}")
        };
        let numbered = packs.iter().enumerate().filter(|(_, pattern)| is_unknown(pattern));
        let path = |index| format!("{section}.packs[{index}]");
        numbered
            .map(|(index, pattern)| Unmatched { path: path(index), message: message(pattern), is_error: false })
            .collect()
    };
    let of_profiles = config.profiles.iter();
    let of_profiles = of_profiles.flat_map(|(name, profile)| unmatched(&format!("profiles.{name}"), &profile.packs));
    unmatched("access", &config.access.packs).into_iter().chain(of_profiles).collect()
}

impl Target<'_> {
    /// The accesses whose database is not configured.
    fn unmatched_databases(&self, config: &Config) -> Vec<Unmatched> {
        let names = || config.databases.keys().map(String::as_str);
        let message = |access: &String| {
            // An access is written in any case, and `*` in it matches dots as well.
            let mut parts = access.split('.').map(str::to_lowercase);
            let (first, database) = (parts.next()?, parts.next()?);
            let matcher = matcher(&database).filter(|_| first == "db")?;
            // What follows a `*` may be in the name of a table.
            let start =
                database.split_once('*').map(|(start, _)| start).filter(|start| !start.contains(['?', '[', '{']));
            let is_of = |name: String| matcher.is_match(&name) || start.is_some_and(|start| name.starts_with(start));
            let is_open = database.contains('*') && start.is_none();
            if is_open || names().any(|name| is_of(name.to_lowercase())) {
                return None;
            }
            Some(format!("no database is named `{database}`{}", suggestion(&database, names())))
        };
        let found = self.table_access.iter().enumerate().filter_map(|(index, access)| Some((index, message(access)?)));
        let is_error = self.is_error;
        found
            .map(|(index, message)| Unmatched { path: format!("{}.gates[{index}]", self.path), message, is_error })
            .collect()
    }

    /// The comparisons of its condition that tell nothing, whatever the input is.
    fn impossible_comparisons(&self) -> Vec<Unmatched> {
        let path = format!("{}.when", self.path);
        let never = self.when.map(|condition| FieldUses::of(condition).impossible).unwrap_or_default();
        let message = |why| format!("{why}: that is the same for every input");
        never
            .into_iter()
            .map(|why| Unmatched { path: path.clone(), message: message(why), is_error: self.is_error })
            .collect()
    }

    /// The fields of its condition that no subtool declares to which it applies, and what they are compared with and can
    /// never be; or that it applies to none.
    fn unmatched_fields(&self, catalog: &Catalog) -> Vec<Unmatched> {
        let mut wanted = self.when.map(Wanted::of).unwrap_or_default();
        let is_narrowed = !self.tools.is_empty() && !self.tags.is_empty();
        if wanted.is_empty() && !is_narrowed {
            return Vec::new();
        }
        let tools: Vec<_> = self.tools.iter().filter_map(|pattern| matcher(pattern)).collect();
        let mut is_about_any = false;
        for name in catalog.names() {
            if !tools.is_empty() && !tools.iter().any(|tool| tool.is_match(name.as_str())) {
                continue;
            }
            // What cannot be loaded is said elsewhere, and may be what the rule is about.
            let Some(subtool) = catalog.get(name.as_str()) else {
                if !self.tools.is_empty() {
                    return Vec::new();
                }
                continue;
            };
            if !self.tags.is_empty() && !subtool.definition.tags.iter().any(|tag| self.tags.contains(tag)) {
                continue;
            }
            is_about_any = true;
            // Among all subtools, one that may have any field says nothing about the others.
            wanted.subtract(&subtool, !self.tools.is_empty() || !self.tags.is_empty());
            if wanted.is_empty() {
                return Vec::new();
            }
        }
        let is_error = self.is_error;
        if !is_about_any {
            let message = "no subtool that its `tools` name has one of its `tags`".to_owned();
            // A tag that no subtool has is reported by itself.
            return is_narrowed.then(|| Unmatched { path: self.path.clone(), message, is_error }).into_iter().collect();
        }
        let path = format!("{}.when", self.path);
        wanted.messages().map(|message| Unmatched { path: path.clone(), message, is_error }).collect()
    }
}

/// What a condition reads of the input and none of the subtools so far has.
#[derive(Debug, Default)]
struct Wanted {
    fields: BTreeSet<String>,
    /// Each with the types that its field has been declared with.
    comparisons: Vec<(FieldComparison, BTreeSet<JsonType>)>,
    /// The fields that the subtools declare.
    declared: BTreeSet<String>,
}

impl Wanted {
    fn of(condition: &str) -> Self {
        let FieldUses { fields, comparisons, .. } = FieldUses::of(condition);
        let comparisons = comparisons.into_iter().map(|comparison| (comparison, BTreeSet::new())).collect();
        Self { fields, comparisons, declared: BTreeSet::new() }
    }

    fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.comparisons.is_empty()
    }

    /// Takes away what `subtool` has. One that may have any field has all of them if it is `meant`.
    fn subtract(&mut self, subtool: &Subtool, meant: bool) {
        let input = &subtool.definition.input;
        let fields = declared_fields(input);
        self.comparisons.retain_mut(|(comparison, known)| {
            let types = declared_types(input, &comparison.field);
            // It is a field of this subtool, of any type.
            let is_open = types.is_none() && fields.as_ref().map_or(meant, |fields| fields.contains(&comparison.field));
            known.extend(types.iter().flatten());
            !is_open && !comparison.types.iter().any(|wanted| known.contains(wanted))
        });
        let Some(fields) = fields else {
            if meant {
                self.fields.clear();
            }
            return;
        };
        self.fields.retain(|field| !fields.contains(field));
        if self.declared.len() < MAX_COMPARED {
            self.declared.extend(fields);
        }
    }

    fn messages(&self) -> impl Iterator<Item = String> {
        let unknown = self.fields.iter().map(|field| {
            let known = suggestion(field, self.declared.iter().map(String::as_str));
            format!("`input.{field}` is a field of no subtool that it is about{known}")
        });
        // A field that none declares is reported by itself.
        let comparisons = self.comparisons.iter().filter(|(_, known)| !known.is_empty());
        let never = comparisons.map(|(FieldComparison { field, value, .. }, known)| {
            let known: Vec<_> = known.iter().map(|of| of.name()).collect();
            format!(
                "`input.{field}` is compared with `{value}`, which it cannot be: in every subtool that it is about it is {}",
                known.join(" or ")
            )
        });
        unknown.chain(never)
    }
}

fn matcher(pattern: &str) -> Option<GlobMatcher> {
    Glob::new(pattern).ok().map(|glob| glob.compile_matcher())
}

fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    did_you_mean(nearest(name, known, 1)).map(|hint| format!("; {hint}")).unwrap_or_default()
}
