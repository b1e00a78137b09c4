//! What an edit makes of a file, and what is left of the file without it.

use toml_edit::{Array, DocumentMut, Item, Table};

use super::json_file;
use super::plan::Edit;
use super::section::SectionMarks;

impl Edit {
    /// The file with what is ours; an error says what to do by hand instead.
    pub(super) fn with(&self, file: Option<&str>) -> Result<String, String> {
        let text = file.unwrap_or_default();
        match self {
            Self::Own(own) => Ok(own.clone()),
            Self::Section { marks, text: own } => Ok(marks.with(text, own)),
            Self::Json(edits) => json_file::with(text, edits),
            Self::TomlList { table, key, word } => toml_with(text, table, key, word),
            Self::AiderRead { word } => {
                let others = SectionMarks::Hash.without(text);
                if others.lines().any(|line| line.starts_with("read:")) {
                    let is_there = others.contains(word.as_str());
                    return if is_there { Ok(text.to_owned()) } else { Err(format!("add {word} to its `read:`")) };
                }
                Ok(SectionMarks::Hash.with(text, &format!("read: [{word}]\n")))
            }
        }
    }

    /// The file without it; `None` if nothing would be left.
    pub(super) fn without(&self, file: &str) -> Option<String> {
        let left = match self {
            Self::Own(own) if file == own => None,
            // Somebody made it their own.
            Self::Own(_) => Some(file.to_owned()),
            Self::Section { marks, .. } => Some(marks.without(file)),
            Self::Json(edits) => json_file::without(file, edits),
            Self::TomlList { table, key, word } => Some(toml_without(file, table, key, word)),
            Self::AiderRead { .. } => Some(SectionMarks::Hash.without(file)),
        };
        left.filter(|left| left == file || !left.trim().is_empty())
    }
}

fn toml_with(file: &str, table: &str, key: &str, word: &str) -> Result<String, String> {
    let mut document: DocumentMut = file.parse().map_err(|error| format!("it is no TOML: {error}"))?;
    let table = document.entry(table).or_insert(Item::Table(Table::new()));
    let table = table.as_table_like_mut().ok_or("the table is none")?;
    let list = table.entry(key).or_insert(Item::Value(Array::new().into()));
    let list = list.as_array_mut().ok_or_else(|| format!("`{key}` is no list"))?;
    if list.iter().any(|value| value.as_str() == Some(word)) {
        return Ok(file.to_owned());
    }
    list.push(word);
    Ok(document.to_string())
}

fn toml_without(file: &str, table: &str, key: &str, word: &str) -> String {
    let Ok(mut document) = file.parse::<DocumentMut>() else { return file.to_owned() };
    let Some(found) = document.get_mut(table).and_then(Item::as_table_like_mut) else { return file.to_owned() };
    let Some(list) = found.get_mut(key).and_then(Item::as_array_mut) else { return file.to_owned() };
    list.retain(|value| value.as_str() != Some(word));
    if list.is_empty() {
        found.remove(key);
    }
    if found.is_empty() {
        document.remove(table);
    }
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_of_a_toml_list_comes_and_goes() {
        let edit = Edit::TomlList { table: "sandbox", key: "roots", word: "/box".to_owned() };
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
