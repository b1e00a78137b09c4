//! The text of a script as the engine compiles it, and where its places are in the source.

use crate::messages::Start;
use crate::names;

/// Stands before the source, on its first line.
const BEFORE: &str = "(async function () {";
const AFTER: &str = "\n})()";
/// The same of a function that is not called.
const AFTER_UNCALLED: &str = "\n})";

/// Where a script's text comes from.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) name: String,
    pub(super) source: String,
    /// The subtools that it can call.
    tools: Vec<String>,
}

impl Origin {
    pub(super) fn new(start: &Start) -> Self {
        let is_plain = |letter: char| letter.is_alphanumeric() || "._-/ ".contains(letter);
        let name = if !start.name.is_empty() && start.name.chars().all(is_plain) { &start.name } else { "script.js" };
        Self {
            name: name.to_owned(),
            source: without_frame(&start.source),
            tools: start.tools.keys().cloned().collect(),
        }
    }

    /// The subtool whose name is most like `name`, if one is like it.
    pub(super) fn closest_tool(&self, name: &str) -> Option<&str> {
        names::closest(name, &self.tools)
    }

    /// The source as the body of an async function that is called.
    pub(super) fn wrapped(&self) -> String {
        [BEFORE, &self.source, AFTER].concat()
    }

    /// The same, not called.
    pub(super) fn uncalled(&self) -> String {
        [BEFORE, &self.source, AFTER_UNCALLED].concat()
    }

    /// The column in the source of a column in what `QuickJS` compiled.
    pub(super) fn column(line: u32, column: u32) -> u32 {
        if line == 1 { column.saturating_sub(u32::try_from(BEFORE.len()).unwrap_or(0)).max(1) } else { column }
    }
}

/// The source without what models put around it: a first line for a shell, and the fences of Markdown. Lines keep their
/// numbers.
fn without_frame(source: &str) -> String {
    if let Some(rest) = source.strip_prefix("#!") {
        return format!("//{rest}");
    }
    let fenced = source.trim().strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some((_, body)) = fenced.and_then(|rest| rest.split_once('\n')) else { return source.to_owned() };
    let before = source.len() - source.trim_start().len();
    format!("{}\n{body}", &source[..before])
}
