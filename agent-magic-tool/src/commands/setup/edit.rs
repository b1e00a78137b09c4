//! Applies an edit to the text of a file, and removes it again.

use toml_edit::{Array, DocumentMut, Item, Table};

use super::json_file;
use super::plan::Edit;
use super::section::SectionMarks;
use super::yaml_file;

impl Edit {
    /// Returns the file with our part; the error says what the user has to do by hand instead.
    pub(super) fn with(&self, file: Option<&str>) -> Result<String, String> {
        let text = file.unwrap_or_default();
        match self {
            Self::Own(own) => Ok(own.clone()),
            Self::Section { marks, text: own } => Ok(marks.with(text, own)),
            Self::Json(edits) => json_file::with(text, edits),
            Self::TomlList { table, key, item } => toml_with(text, table, key, item),
            Self::TomlServer { table, key, command, arguments } => server_with(text, table, key, command, arguments),
            Self::YamlEntry { key, entry } => yaml_file::with(text, key, entry),
            Self::AiderRead { file } => {
                let others = SectionMarks::Hash.without(text);
                if others.lines().any(|line| line.starts_with("read:")) {
                    let is_listed = others.contains(file.as_str());
                    return if is_listed { Ok(text.to_owned()) } else { Err(format!("add {file} to its `read:`")) };
                }
                Ok(SectionMarks::Hash.with(text, &format!("read: [{file}]\n")))
            }
        }
    }

    /// Returns the file without our part; `None` if nothing would be left.
    pub(super) fn without(&self, file: &str) -> Option<String> {
        let left = match self {
            Self::Own(own) if file == own => None,
            // The user has changed it and keeps it.
            Self::Own(_) => Some(file.to_owned()),
            Self::Section { marks, .. } => Some(marks.without(file)),
            Self::Json(edits) => json_file::without(file, edits),
            Self::TomlList { table, key, item } => Some(toml_without(file, table, key, item)),
            Self::TomlServer { table, key, .. } => Some(server_without(file, table, key)),
            Self::YamlEntry { .. } => Some(yaml_file::without(file)),
            Self::AiderRead { .. } => Some(SectionMarks::Hash.without(file)),
        };
        left.filter(|left| left == file || !left.trim().is_empty())
    }
}

fn toml_with(file: &str, table: &str, key: &str, item: &str) -> Result<String, String> {
    let mut document: DocumentMut = file.parse().map_err(|error| format!("fix its TOML: {error}"))?;
    let entry = document.entry(table).or_insert(Item::Table(Table::new()));
    let table = entry.as_table_like_mut().ok_or_else(|| format!("`{table}` is not a table"))?;
    let list = table.entry(key).or_insert(Item::Value(Array::new().into()));
    let list = list.as_array_mut().ok_or_else(|| format!("`{key}` is not a list"))?;
    if list.iter().any(|value| value.as_str() == Some(item)) {
        return Ok(file.to_owned());
    }
    list.push(item);
    Ok(document.to_string())
}

fn toml_without(file: &str, table: &str, key: &str, item: &str) -> String {
    let Ok(mut document) = file.parse::<DocumentMut>() else { return file.to_owned() };
    let Some(found) = document.get_mut(table).and_then(Item::as_table_like_mut) else { return file.to_owned() };
    let Some(list) = found.get_mut(key).and_then(Item::as_array_mut) else { return file.to_owned() };
    list.retain(|value| value.as_str() != Some(item));
    if list.is_empty() {
        found.remove(key);
    }
    if found.is_empty() {
        document.remove(table);
    }
    document.to_string()
}

fn server_with(file: &str, table: &str, key: &str, command: &str, arguments: &[String]) -> Result<String, String> {
    let mut document: DocumentMut = file.parse().map_err(|error| format!("fix its TOML: {error}"))?;
    let mut servers = Table::new();
    // Only the tables of single servers get a header.
    servers.set_implicit(true);
    let servers = document.entry(table).or_insert(Item::Table(servers));
    let servers = servers.as_table_like_mut().ok_or_else(|| format!("`{table}` is not a table"))?;
    let mut server = Table::new();
    server.insert("command", toml_edit::value(command));
    server.insert("args", toml_edit::value(arguments.iter().collect::<Array>()));
    if let Some(known) = servers.get(key) {
        let is_ours = known.get("command").and_then(Item::as_str).is_some_and(|known| known.contains(key));
        if known.get("command").and_then(Item::as_str) == Some(command)
            && known.get("args").map(|args| args.to_string().trim().to_owned())
                == server.get("args").map(|args| args.to_string().trim().to_owned())
        {
            return Ok(file.to_owned());
        }
        if !is_ours {
            return Err(format!("`{table}.{key}` is another server; rename it"));
        }
    }
    servers.insert(key, Item::Table(server));
    Ok(document.to_string())
}

fn server_without(file: &str, table: &str, key: &str) -> String {
    let Ok(mut document) = file.parse::<DocumentMut>() else { return file.to_owned() };
    let Some(servers) = document.get_mut(table).and_then(Item::as_table_like_mut) else { return file.to_owned() };
    if servers.remove(key).is_some() && servers.is_empty() {
        document.remove(table);
    }
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_added_to_and_removed_from_a_toml_list() {
        let edit = Edit::TomlList { table: "sandbox", key: "roots", item: "/box".to_owned() };
        for (file, expected) in [
            ("", "[sandbox]\nroots = [\"/box\"]\n"),
            ("a = 1 # mine\n", "a = 1 # mine\n\n[sandbox]\nroots = [\"/box\"]\n"),
            (
                "[sandbox]\n# mine\nroots = [ \"/x\" ]\nb = 2\n\n[other]\n",
                "[sandbox]\n# mine\nroots = [ \"/x\" , \"/box\"]\nb = 2\n\n[other]\n",
            ),
        ] {
            let once = edit.with(Some(file)).expect("TOML");
            assert_eq!(once, expected);
            assert_eq!(edit.with(Some(&once)).expect("TOML"), once);
            let back = edit.without(&once).unwrap_or_default();
            assert_eq!(back.parse::<DocumentMut>().expect("TOML").to_string().trim_end(), back.trim_end());
            assert!(!back.contains("/box") && (file.is_empty() || back.contains("mine")));
        }
        assert!(edit.with(Some("[sandbox]\nroots = 1\n")).is_err() && edit.with(Some("]")).is_err());
    }
}
