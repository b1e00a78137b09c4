//! `list packs`: what there is, in groups: the packs that ship, and the files of definitions.

use std::fmt::Write as _;

use listing::rights::Rights;
use listing::{ListedGroup, Listing};
use protocol::caller::Caller;
use protocol::sentences::{first_sentence, first_sentences};
use search::Unusable;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::format::Format;
use crate::context::Context;
use crate::error::Error;

/// How much a model reads of all groups: lines, and then names.
const MAX_BYTES_OF_LINES: usize = 1_300;
const MAX_BYTES_OF_NAMES: usize = 500;
const MAX_ABOUT_CHARS: usize = 60;

/// The groups of which the caller may use something, ordered by name, with the number of those subtools.
pub(super) fn usable(listing: &Listing, rights: &Rights, caller: &Caller) -> Result<Vec<ListedGroup>, Unusable> {
    let mut groups = listing.groups().to_vec();
    if !rights.are_all() || caller.read_only {
        for group in &mut groups {
            group.subtools = 0;
        }
        for number in 0..listing.count() {
            let facts = listing.facts(number);
            let may_run = facts.is_read_only || !caller.read_only;
            if may_run
                && rights.cover(listing, number)?
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
        Format::Typescript => context.output.lines(&brief(groups))?,
        _ => context.output.json(&PacksByName(groups))?,
    }
    context.output.note("the subtools of one: agent-magic-tool list tools --in=PACK; of several: --in='github*'");
    Ok(())
}

/// A line for each group as far as they fit, largest first; of the others the names.
fn brief(groups: &[ListedGroup]) -> String {
    let mut largest: Vec<_> = groups.iter().collect();
    largest.sort_by_key(|group| std::cmp::Reverse(group.subtools));
    let (mut text, mut named) = (String::new(), Vec::new());
    for group in largest {
        let about = group.about.as_deref().map(|about| first_sentences(first_sentence(about), MAX_ABOUT_CHARS));
        let about = about.map(|about| format!(": {about}")).unwrap_or_default();
        let line = format!("{} ({}){about}\n", group.name, group.subtools);
        if named.is_empty() && text.len() + line.len() <= MAX_BYTES_OF_LINES {
            text.push_str(&line);
        } else {
            named.push(group.name.as_str());
        }
    }
    named.sort_unstable();
    let mut left = MAX_BYTES_OF_NAMES;
    let shown =
        named.iter().take_while(|name| left.checked_sub(name.len() + 2).map(|rest| left = rest).is_some()).count();
    if shown > 0 {
        writeln!(text, "also: {}", named[..shown].join(", ")).expect("a text takes all");
    }
    if shown < named.len() {
        writeln!(text, "and {} more: --format=names", named.len() - shown).expect("a text takes all");
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: usize) -> ListedGroup {
        let about =
            number.is_multiple_of(2).then(|| format!("What number {number} is for, in a line. And more than that."));
        ListedGroup { name: format!("group-{number}"), about, subtools: number }
    }

    #[test]
    fn a_model_reads_little_of_many_groups() {
        let few: Vec<_> = (1..=3).map(group).collect();
        assert_eq!(brief(&few), "group-3 (3)\ngroup-2 (2): What number 2 is for, in a line.\ngroup-1 (1)\n");
        let many: Vec<_> = (1..=600).map(group).collect();
        let text = brief(&many);
        assert!(text.len() < 2_000 && text.starts_with("group-600 (600): What"), "{} bytes: {text}", text.len());
        let (named, more) = text.split_once("also: ").expect("names").1.split_once('\n').expect("a line");
        assert!(named.contains("group-1, ") && more.starts_with("and ") && more.contains("--format=names"), "{text}");
    }
}
