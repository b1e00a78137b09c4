//! The manifest of a pack, `pack.toml`: what it is, what it needs, and what a human can switch off.
//!
//! A manifest is valid as a whole or not at all. The doc comments of these types are the descriptions in
//! `subtools/pack.schema.json`. Whether the needs are met is the matter of `needs.rs`.

use std::collections::BTreeMap;

use globset::Glob;
use ground::config::RateLimit;
use ground::task::effect::EffectClass;
use ground::task::name::SubtoolName;
use protocol::duration::PositiveDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

use super::is_pack_name;
use crate::deserialize::{LocatedMessage, Mended, deserialize_mending};

/// The largest manifest.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 256 << 10;

/// What a pack says of itself.
#[skip_serializing_none]
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackManifest {
    /// The name of the pack, which is that of its folder.
    #[schemars(regex(pattern = r"^[a-z0-9_][a-z0-9_-]{0,63}$"))]
    pub name: String,
    /// The version of the pack.
    #[schemars(regex(pattern = r"\S"), example = "1.0.0")]
    pub version: String,
    /// What its subtools are for, in one line.
    #[schemars(regex(pattern = r"\S"))]
    pub description: String,
    /// The least version of agent-magic-tool that it works with. Absent: any.
    #[schemars(regex(pattern = r"^>= *\d+(\.\d+){0,2}$"), example = ">=0.1")]
    pub executor: Option<String>,
    /// The hosts to which its subtools send requests, beside those in the variables that it needs. `*`: any host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["api.example.com"])]
    pub hosts: Vec<String>,
    /// The subtools of others that its own run, or give to an agent: names and globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(example = ["fetch_url"])]
    pub uses: Vec<String>,
    /// What must be there before its subtools work. They can use nothing else.
    #[serde(default)]
    pub needs: PackNeeds,
    /// What a human can switch off or on, by name, under `[packs.NAME] switches` in config.toml.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub switches: BTreeMap<String, PackSwitch>,
    /// Rate limits of its subtools that have none of their own.
    #[serde(default)]
    pub limits: PackLimits,
    /// How to find out whether it works.
    pub health: Option<PackHealth>,
}

/// What must be there, by kind and name.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackNeeds {
    /// Programs in the folders of `[programs] path`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, PackNeed>,
    /// Secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, PackNeed>,
    /// Variables of `[vars]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, PackNeed>,
    /// Databases of `[databases]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub databases: BTreeMap<String, PackNeed>,
    /// Privileges that `[access] privileges` must give to callers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub privileges: BTreeMap<String, PackNeed>,
    /// An enabled language model of `[models]`: what for.
    pub model: Option<String>,
    /// Files in the folders of `[files] roots`, which its subtools read or send: what for.
    pub files: Option<String>,
    /// The sections of the agent's system prompt, which its subtools read or change: what for.
    pub prompt: Option<String>,
    /// The human's own definitions, to which its subtools add new ones: what for.
    pub definitions: Option<String>,
    /// What `[databases]` hides or denies, which its subtools see all the same: what for.
    pub hidden: Option<String>,
}

/// One thing that must be there.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackNeed {
    /// What it is, or what it is needed for.
    #[schemars(regex(pattern = r"\S"))]
    pub description: String,
    /// A value as a human would write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Whether the pack works without it, as a part of it does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// It is needed only if these variables of `[vars]` have these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub when: BTreeMap<String, String>,
}

/// A part of the pack that a human can switch off or on.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackSwitch {
    /// What is on while the switch is on.
    #[schemars(regex(pattern = r"\S"))]
    pub description: String,
    /// Whether it is on if the configuration does not say.
    pub default: bool,
    /// The subtools, by name or glob, that cannot be used while it is off. Of several switches for one subtool, all must be on.
    #[schemars(length(min = 1))]
    pub subtools: Vec<String>,
}

/// Rate limits by kind. `[rate_limits]` in config.toml replaces them.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackLimits {
    /// Of each subtool that only reads.
    pub read: Option<RateLimit>,
    /// Of each subtool that may change something.
    pub write: Option<RateLimit>,
}

/// A run of one of the pack's own subtools that shows whether the pack works.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackHealth {
    /// The subtool, which must be read-only.
    pub subtool: SubtoolName,
    /// Its input.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Value>,
    /// How long `pack check` waits for it. Absent: `60s`.
    #[serde(default = "default_timeout")]
    pub timeout: PositiveDuration,
    /// How old an outcome may get before `pack list` says that another check is due. Absent: `7d`.
    #[serde(default = "default_every")]
    pub every: PositiveDuration,
}

fn default_timeout() -> PositiveDuration {
    PositiveDuration::from_millis(60_000)
}

fn default_every() -> PositiveDuration {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    PositiveDuration::from_millis(7 * DAY)
}

impl PackManifest {
    /// Reads the manifest of the pack in the folder `folder`. Returns every mistake with its place.
    pub fn parse(text: &str, folder: &str) -> Result<Self, Vec<LocatedMessage>> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let place = error.span().map(|span| place_of(text, span.start));
            vec![(place, error.message().trim().replace('\n', " "))]
        })?;
        let value = serde_json::to_value(table).map_err(|error| vec![(None, error.to_string())])?;
        let Mended { value: manifest, mistakes, .. } = deserialize_mending::<Self>(&value);
        let manifest = match manifest {
            Some(manifest) if mistakes.is_empty() => manifest,
            _ => return Err(mistakes),
        };
        let mistakes = manifest.mistakes(folder);
        if mistakes.is_empty() { Ok(manifest) } else { Err(mistakes) }
    }

    /// What the types do not rule out.
    fn mistakes(&self, folder: &str) -> Vec<LocatedMessage> {
        let mut found = Vec::new();
        let mut add = |place: String, message: String| found.push((Some(place), message));
        if !is_pack_name(&self.name) {
            let message = "use 1 to 64 of the characters a-z 0-9 _ -, not beginning with `-`";
            add("name".to_owned(), format!("`{}` is not a valid name of a pack; {message}", self.name));
        } else if self.name != folder {
            add("name".to_owned(), format!("`{}` is not the name of its folder, `{folder}`", self.name));
        }
        for (place, text) in [("version", &self.version), ("description", &self.description)] {
            if text.trim().is_empty() {
                add(place.to_owned(), "it is empty".to_owned());
            }
        }
        if !self.version.trim().is_empty() && !is_version(&self.version) {
            add("version".to_owned(), format!("`{}` is not a version; write it like `1.0.0`", self.version));
        }
        if let Some(wanted) = &self.executor
            && least_version(wanted).is_none()
        {
            add("executor".to_owned(), format!("`{wanted}` is not a least version; write it like `>=0.1`"));
        }
        for (kind, name, need) in self.needs.all() {
            if need.description.trim().is_empty() {
                add(format!("needs.{kind}.{name}.description"), "it is empty; say what it is for".to_owned());
            }
        }
        for (index, pattern) in self.uses.iter().enumerate() {
            if let Err(error) = Glob::new(pattern) {
                add(format!("uses[{index}]"), error.to_string());
            }
        }
        for (name, switch) in &self.switches {
            if switch.subtools.is_empty() {
                add(format!("switches.{name}.subtools"), "it is empty, so it would switch nothing".to_owned());
            }
            for (index, pattern) in switch.subtools.iter().enumerate() {
                if let Err(error) = Glob::new(pattern) {
                    add(format!("switches.{name}.subtools[{index}]"), error.to_string());
                }
            }
        }
        found
    }

    /// Why this program is too old for the pack; `None` if it is not.
    pub fn too_new(&self) -> Option<String> {
        let wanted = self.executor.as_deref()?;
        let own = numbers(env!("CARGO_PKG_VERSION"))?;
        (least_version(wanted)? > own).then(|| {
            format!(
                "it needs agent-magic-tool {wanted}, and this is {}; install a newer one",
                env!("CARGO_PKG_VERSION")
            )
        })
    }
}

impl PackNeeds {
    /// Every need that has a name, with its kind.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str, &PackNeed)> {
        let Self {
            programs,
            secrets,
            variables,
            databases,
            privileges,
            model: _,
            files: _,
            prompt: _,
            definitions: _,
            hidden: _,
        } = self;
        let kinds = [
            ("programs", programs),
            ("variables", variables),
            ("secrets", secrets),
            ("databases", databases),
            ("privileges", privileges),
        ];
        kinds.into_iter().flat_map(|(kind, needs)| needs.iter().map(move |(name, need)| (kind, name.as_str(), need)))
    }
}

impl PackLimits {
    /// The limit of a subtool with this effect that has none of its own.
    pub fn of(&self, effect: EffectClass) -> Option<RateLimit> {
        if effect == EffectClass::Read { self.read } else { self.write }
    }
}

/// Whether `text` is numbers with dots between them, like `1.0.0`, and perhaps a suffix, like `-beta.1` or `+linux`.
fn is_version(text: &str) -> bool {
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    numbers.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte))
}

/// The numbers of a version after `>=`.
fn least_version(wanted: &str) -> Option<[u64; 3]> {
    numbers(wanted.trim().strip_prefix(">=")?.trim())
}

/// Up to three numbers with dots between them; what is left out is 0.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut found = [0; 3];
    let parts: Vec<_> = version.split('.').collect();
    for (place, part) in parts.iter().enumerate() {
        *found.get_mut(place)? = part.parse().ok()?;
    }
    Some(found)
}

fn place_of(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
    format!("line {line} column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_pack_begins_with_numbers() {
        let parse = |version: &str| {
            PackManifest::parse(&format!("name = \"a\"\nversion = \"{version}\"\ndescription = \"d\"\n"), "a")
        };
        for version in ["1", "1.0.0", "2026.11.23", "1.0.0-beta.1", "1.0.0+linux"] {
            assert!(parse(version).is_ok(), "{version}");
        }
        for wrong in ["", "one", "v1", "1.", ".1", "1..2", "1.x", "1.0 beta"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_least_version_is_compared_number_by_number() {
        let manifest = |executor: &str| {
            let text = format!("name = \"a\"\nversion = \"1\"\ndescription = \"d\"\nexecutor = \"{executor}\"\n");
            PackManifest::parse(&text, "a").map(|manifest| manifest.too_new().is_some())
        };
        for (executor, is_too_new) in [(">=0", false), (">=0.0.9", false), (">= 0.1", false), (">=99.0.0", true)] {
            assert_eq!(manifest(executor), Ok(is_too_new), "{executor}");
        }
        for wrong in ["0.1", ">0.1", ">=", ">=1.x", ">=1.2.3.4", "latest"] {
            assert!(manifest(wrong).is_err(), "{wrong}");
        }
    }
}
