//! `list packs`: what there is, in groups: the packs that ship, and the files of definitions.

use listing::{ListedGroup, Listing};
use protocol::caller::Caller;
use search::Unusable;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::format::Format;
use crate::context::Context;
use crate::error::Error;

/// The groups of which the caller may use something, ordered by name, with the number of those subtools.
pub(super) fn usable(listing: &Listing, caller: &Caller) -> Result<Vec<ListedGroup>, Unusable> {
    let mut groups = listing.groups().to_vec();
    if !caller.tool_scope.is_everything() || caller.read_only {
        for group in &mut groups {
            group.subtools = 0;
        }
        for number in 0..listing.count() {
            let facts = listing.facts(number);
            let may_run = facts.is_read_only || !caller.read_only;
            if may_run
                && caller.tool_scope.covers(&listing.name(number)?)
                && let Some(group) = groups.get_mut(facts.group)
            {
                group.subtools += 1;
            }
        }
    }
    groups.retain(|group| group.subtools > 0);
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(groups)
}

/// What the subtools of a pack or file are for, in a word or two.
pub(super) fn title(group: &str) -> &str {
    match group {
        "human" => "asking the user",
        "models" => "asking other models",
        group => group,
    }
}

pub(super) fn print(groups: &[ListedGroup], format: Format, context: &Context) -> Result<(), Error> {
    match format {
        Format::Names => context.output.json(&groups.iter().map(|group| &group.name).collect::<Vec<_>>())?,
        Format::Table => {
            let widest = groups.iter().map(|group| group.name.len()).max().unwrap_or(0);
            let line = |group: &ListedGroup| {
                format!(
                    "{:widest$}  {:>5}  {}\n",
                    group.name,
                    group.subtools,
                    group.about.as_deref().unwrap_or_default()
                )
            };
            context.output.lines(&groups.iter().map(line).collect::<String>())?;
        }
        _ => context.output.json(&PacksByName(groups))?,
    }
    context.output.note("the subtools of one: agent-magic-tool list tools --in=PACK");
    Ok(())
}

/// Serializes as one object keyed by name.
struct PacksByName<'a>(&'a [ListedGroup]);

#[derive(Serialize)]
struct ListedPack<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'a str>,
    subtools: usize,
}

impl Serialize for PacksByName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for group in self.0 {
            map.serialize_entry(&group.name, &ListedPack { about: group.about.as_deref(), subtools: group.subtools })?;
        }
        map.end()
    }
}
