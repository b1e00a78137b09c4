//! Names of subtools for the tools of a server, which allow more than the catalog does.
//!
//! A name depends on the tool's own name and on which others exist, never on their order: a refresh must not give the
//! name of one tool to another.

use std::collections::{BTreeMap, HashMap, HashSet};

use sha2::{Digest as _, Sha256};

use crate::document::hex;
use crate::names::MAX_NAME_CHARS;

/// The bytes of the hash that tells two tools apart whose names would be the same.
const HASH_BYTES: usize = 3;

/// The names of a server's tools, each given out once.
#[derive(Debug)]
pub(super) struct ToolNames {
    by_tool: HashMap<String, String>,
}

impl ToolNames {
    /// Makes names for `tools`: the tool's own if it is one for the catalog. With `prefix`, `PREFIX__TOOL`.
    pub(super) fn of<'a>(tools: impl Iterator<Item = &'a str>, prefix: Option<&str>, max: Option<usize>) -> Self {
        let max = max.unwrap_or(MAX_NAME_CHARS).min(MAX_NAME_CHARS);
        let prefix = prefix.map(|prefix| format!("{prefix}__")).unwrap_or_default();
        let tools: HashSet<&str> = tools.collect();
        let mut wanted: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for tool in tools {
            wanted.entry(format!("{prefix}{}", plain(tool))).or_default().push(tool);
        }
        let mut by_tool = HashMap::new();
        for (name, tools) in wanted {
            for tool in &tools {
                let is_own = name.len() <= max && (tools.len() == 1 || name == format!("{prefix}{tool}"));
                let name = if is_own { name.clone() } else { with_hash(&name, tool, max) };
                by_tool.insert((*tool).to_owned(), name);
            }
        }
        Self { by_tool }
    }

    /// The name for `tool`; `None` if it was taken already.
    pub(super) fn take(&mut self, tool: &str) -> Option<String> {
        self.by_tool.remove(tool)
    }
}

/// `tool` with the characters that a name may have.
fn plain(tool: &str) -> String {
    let mut name = String::new();
    for letter in tool.chars() {
        if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') {
            name.push(letter);
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    if name != tool {
        name.truncate(name.trim_end_matches('_').len());
    }
    if name.is_empty() { "tool".to_owned() } else { name }
}

fn with_hash(name: &str, tool: &str, max: usize) -> String {
    let hash = hex(&Sha256::digest(tool.as_bytes())[..HASH_BYTES]);
    let kept = name.len().min(max.saturating_sub(hash.len() + 1));
    format!("{}_{hash}", name[..kept].trim_end_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: &[&str], prefix: Option<&str>) -> Vec<String> {
        let mut names = ToolNames::of(tools.iter().copied(), prefix, None);
        tools.iter().map(|tool| names.take(tool).unwrap_or_else(|| "taken".to_owned())).collect()
    }

    #[test]
    fn a_tool_keeps_its_name_where_the_catalog_allows_it() {
        assert_eq!(names(&["get-sum", "DATA_EXPORT_v2", "_x_"], None), ["get-sum", "DATA_EXPORT_v2", "_x_"]);
        assert_eq!(names(&["admin.tools.list", "a b/c!"], None), ["admin_tools_list", "a_b_c"]);
        assert_eq!(names(&["read_file", "a.b"], Some("fs")), ["fs__read_file", "fs__a_b"]);
    }

    #[test]
    fn names_that_would_be_the_same_are_told_apart_whatever_their_order() {
        let tools = ["a.b", "a_b", "a/b", "获取天气", "查询", "x"];
        let made = names(&tools, None);
        assert_eq!(made[1], "a_b", "an exact name stays");
        let distinct: HashSet<_> = made.iter().collect();
        assert_eq!(distinct.len(), tools.len(), "{made:?}");
        let mut reversed = tools;
        reversed.reverse();
        let mut again = names(&reversed, None);
        again.reverse();
        assert_eq!(again, made);
        assert!(made[3].starts_with("tool_") && made[0].starts_with("a_b_"), "{made:?}");
        assert_eq!(names(&["same", "same"], None), ["same", "taken"]);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_unique() {
        let (one, other) = ("a".repeat(70), format!("{}b", "a".repeat(70)));
        let made = names(&[&one, &other], Some("server"));
        assert!(made.iter().all(|name| name.len() <= MAX_NAME_CHARS) && made[0] != made[1], "{made:?}");
        let exact = "b".repeat(MAX_NAME_CHARS);
        assert_eq!(names(&[&exact], None), [exact]);
    }
}
