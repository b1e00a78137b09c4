//! Says why there is no subtool of a name: it has a mistake, its file or its pack was not loaded, its pack is not enabled,
//! or nothing defines it.
//!
//! Reads the files again, so it is for errors only. What the scope of a caller, its profile or the settings under
//! `[access]` exclude is answered as if it did not exist. Whether a file defines a name that cannot be loaded is a guess by its text.

use std::fs;
use std::path::{Path, PathBuf};

use protocol::code::Code;
use protocol::command_names::AGENT_COMMANDS;
use protocol::error::ErrorBody;
use protocol::nearest::did_you_mean;
use protocol::regular_file;
use protocol::tool_scope::ToolScope;
use protocol::trust;
use serde_json::Value;

use super::packs::loaded::{EnabledPack, PackPlace};
use super::packs::{MANIFEST, Pack, SHIPPED, is_pack_name};
use super::{Catalog, LoadProblem, Sources};

/// A larger file is not searched for a name.
const MAX_FILE_BYTES: u64 = 8 << 20;

impl Catalog {
    /// The error for `name`, which names no subtool that a caller with this scope may use.
    pub fn absent(&self, name: &str, tool_scope: &ToolScope) -> ErrorBody {
        let is_known = self.sources.may_know(name, tool_scope);
        let own = if is_known { self.problems_of(name) } else { Vec::new() };
        if let Some(problem) = own.first().filter(|_| self.is_stale()) {
            let message = format!("the definition of `{name}` could not be read: {problem}");
            return ErrorBody::new(Code::Io, message).hint("it may have just changed: run it again");
        }
        let problems: Vec<_> = own.into_iter().chain(self.problems().iter().cloned()).collect();
        why_absent(name, tool_scope, &self.sources, &problems)
            .unwrap_or_else(|| none_named(name, self.nearest(name, tool_scope)))
    }
}

/// The error of what needs a subtool that its caller does not have. It does not name what the caller must not know.
pub fn needed_is_absent() -> ErrorBody {
    ErrorBody::new(Code::UnknownSubtool, "it needs a subtool that this caller does not have")
        .hint("do not look for another way; tell the user, who decides what this caller may use")
}

/// Why the subtool `name` was not loaded, if it is defined somewhere; `None` if it is not, or must not be known.
pub fn why_absent(
    name: &str,
    tool_scope: &ToolScope,
    sources: &Sources,
    problems: &[LoadProblem],
) -> Option<ErrorBody> {
    if !sources.may_know(name, tool_scope) {
        return None;
    }
    let lint = "all mistakes: agent-magic-tool lint";
    if let Some(problem) = problems.iter().find(|problem| problem.subtool.as_deref() == Some(name)) {
        let message = format!("the definition of `{name}` has a mistake, so it was not loaded: {problem}");
        return Some(ErrorBody::new(Code::BadDefinition, message).hint(lint));
    }
    // A mistake in a manifest leaves out the files beside it.
    let of_files = problems.iter().filter(|problem| problem.subtool.is_none());
    for problem in of_files {
        let path = Path::new(&problem.file);
        let is_manifest = path.file_name().is_some_and(|file| file == MANIFEST);
        let files = match path.parent().filter(|_| is_manifest) {
            Some(folder) => definition_files(folder),
            None if path.is_dir() => definition_files(path),
            None => vec![path.to_owned()],
        };
        if files.iter().any(|file| text_of(file).is_some_and(|text| defines(&text, name))) {
            let message = format!("the file that defines `{name}` was not loaded: {problem}");
            return Some(ErrorBody::new(Code::BadDefinition, message).hint(lint));
        }
    }
    if let Some(pack) = sources.packs().iter().find(|pack| switches_off(pack, name)) {
        let message = format!("`{name}` is switched off in the pack `{}`", pack.name);
        let hint = format!("a human can change that; the switches: agent-magic-tool pack info {}", pack.name);
        return Some(ErrorBody::new(Code::UnknownSubtool, message).hint(hint));
    }
    let pack = not_enabled(sources).find(|(_, texts)| texts().iter().any(|text| defines(text, name)))?.0;
    let message = format!("`{name}` is a subtool of the pack `{pack}`, which is not enabled");
    let hint = format!("a human can enable it: agent-magic-tool pack enable {pack}");
    Some(ErrorBody::new(Code::UnknownSubtool, message).hint(hint))
}

/// The error for a name that no subtool has; `nearest` are the names that are most similar.
fn none_named(name: &str, nearest: Vec<String>) -> ErrorBody {
    let error = ErrorBody::new(Code::UnknownSubtool, format!("no subtool named `{name}`"));
    if AGENT_COMMANDS.contains(&name) {
        return error.hint(format!("`{name}` is a command; leave out `run`: agent-magic-tool {name}"));
    }
    if ["tools", "tool", "subtools"].contains(&name) {
        return error.hint("to list them: agent-magic-tool list tools");
    }
    let hint = match did_you_mean(nearest.first()) {
        Some(hint) => format!("{hint} or search: agent-magic-tool list tools --query=\"...\""),
        None => "search by what it should do: agent-magic-tool list tools --query=\"...\"".to_owned(),
    };
    error.hint(hint).detail("nearest", nearest)
}

/// The names of the packs that are there and not enabled, with the texts of their definition files.
fn not_enabled(sources: &Sources) -> impl Iterator<Item = (String, Box<dyn Fn() -> Vec<String>>)> {
    let is_enabled = |name: &str| sources.packs().iter().any(|pack| pack.name == name);
    let shipped = SHIPPED.iter().filter(move |pack| !is_enabled(pack.name)).map(|pack: &Pack| {
        let texts: Box<dyn Fn() -> Vec<String>> = Box::new(|| vec![pack.text.to_owned()]);
        (pack.name.to_owned(), texts)
    });
    let folders = fs::read_dir(sources.packs_folder()).into_iter().flatten().flatten();
    let own = folders.filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let folder = entry.path();
        let is_pack = is_pack_name(&name) && !is_enabled(&name) && folder.join(MANIFEST).is_file();
        let texts: Box<dyn Fn() -> Vec<String>> =
            Box::new(move || definition_files(&folder).iter().filter_map(|file| text_of(file)).collect());
        is_pack.then_some((name, texts))
    });
    shipped.chain(own)
}

/// Whether a switch of the pack that is off covers a subtool of this name, which the pack has.
fn switches_off(pack: &EnabledPack, name: &str) -> bool {
    let (manifest, texts) = match &pack.place {
        PackPlace::Shipped(shipped) => (Some(shipped.manifest.to_owned()), vec![shipped.text.to_owned()]),
        PackPlace::Folder(folder) => {
            let texts = definition_files(folder).iter().filter_map(|file| text_of(file)).collect();
            (text_of(&folder.join(MANIFEST)), texts)
        }
    };
    let loaded = manifest.and_then(|manifest| pack.load(&manifest).ok());
    loaded.is_some_and(|loaded| loaded.switches_off(name)) && texts.iter().any(|text| defines(text, name))
}

fn definition_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| super::sources::is_definition_file(path)).collect()
}

/// The text of a file that no other user can have written.
fn text_of(file: &Path) -> Option<String> {
    trust::check(file).ok()?;
    let bytes = regular_file::read(file, MAX_FILE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the text defines a subtool of this name, which may begin with the file's `$namespace`. Where the text is not
/// JSON, any key of that name counts.
fn defines(text: &str, name: &str) -> bool {
    if let Ok(Value::Object(keys)) = serde_json::from_str(text) {
        let namespace = keys.get("$namespace").and_then(Value::as_str);
        let own = namespace.map_or(Some(name), |namespace| name.strip_prefix(namespace)?.strip_prefix('-'));
        return own.is_some_and(|own| !own.starts_with('$') && keys.contains_key(own));
    }
    let is_key = |key: &str| {
        let quoted = format!("\"{key}\"");
        text.match_indices(&quoted).any(|(at, _)| text[at + quoted.len()..].trim_start().starts_with(':'))
    };
    let has_namespace = |namespace: &str| {
        let key = "\"$namespace\"";
        let values = text.match_indices(key).map(|(at, _)| text[at + key.len()..].trim_start());
        let value = format!("\"{namespace}\"");
        values.into_iter().any(|rest| rest.strip_prefix(':').is_some_and(|rest| rest.trim_start().starts_with(&value)))
    };
    is_key(name) || name.match_indices('-').any(|(at, _)| has_namespace(&name[..at]) && is_key(&name[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_key_also_in_a_text_that_is_not_json() {
        for text in [r#"{"a": {"#, "{\"a\"  \n : 1", r#"{"$namespace": "n", "b": {}, "#] {
            assert!(defines(text, "a") || defines(text, "n-b"), "{text}");
        }
        for text in [r#"{"b": "a"}"#, r#"{"b": {"a": 1}}"#, "a", r#"{"$namespace": "m", "b": {}}"#] {
            assert!(!defines(text, "a") && !defines(text, "n-b"), "{text}");
        }
    }
}
