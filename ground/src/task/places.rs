//! The paths that an input may name, wherever they stand in it, and that links lead elsewhere.
//!
//! What opens them is known only to what gets the input. So whatever may be a path there is taken for one: a whole text, a
//! line, a word, the key of an object; relative to the folder in which it is read, or to the home folder; or a `file:` URL.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use protocol::paths::{home_folder, real_path};
use serde_json::Value;

use super::fingerprint::leads_elsewhere;

/// The most lines and words that are looked up beside the whole texts; a longer text is no list of paths.
const MAX_NAMES: usize = 4_000;
/// The most places that one input may have: a human is shown each of them.
pub const MAX_PLACES: usize = 100;
/// No longer name is one.
const MAX_NAME_BYTES: usize = 4096;
/// The most letters of short options before a path.
const MAX_SHORT_OPTIONS: usize = 8;
/// What may stand beside a path in a word.
const BESIDE: &[char] = &[',', ';', ':', '=', '(', ')', '[', ']', '{', '}', '|', '@', '&'];

/// The paths in `value` that lead elsewhere through symbolic links, for something that runs in `folder`; of more than
/// [`MAX_PLACES`] one too many.
pub fn places_in(value: &Value, folder: &Path) -> BTreeSet<PathBuf> {
    let mut texts = Vec::new();
    collect(value, &mut texts);
    let texts = || texts.iter().map(String::as_str);
    // A whole text first: a long one beside it must not use up the number of names.
    let mut names: BTreeSet<&str> = texts().filter_map(name_in).collect();
    let most = names.len() + MAX_NAMES;
    for name in texts().flat_map(parts).filter_map(name_in) {
        if names.len() == most {
            break;
        }
        names.insert(name);
    }
    // The links above the folder do not count: they are those of the working folder.
    let real_folder = real_path(folder).unwrap_or_else(|| folder.to_owned());
    names.iter().filter_map(|name| place(name, folder, &real_folder)).take(MAX_PLACES + 1).collect()
}

/// Collects the texts in `value`, with the keys of objects.
fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            // JSON inside a text, as on standard input.
            let inner = text.starts_with(['{', '[']).then(|| serde_json::from_str::<Value>(text));
            match inner {
                Some(Ok(inner)) => collect(&inner, texts),
                _ => texts.push(text.clone()),
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            texts.push(key.clone());
            collect(value, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The lines and words of `text`, and the parts of its words.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let words = || text.split(|it: char| it.is_whitespace() || "\"'`<>".contains(it));
    text.lines().chain(words()).chain(words().flat_map(|word| word.split(BESIDE))).chain(words().flat_map(glued))
}

/// What may be a path behind short options, as in `-ov/l`.
fn glued(word: &str) -> impl Iterator<Item = &str> {
    let options = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
    let letters = options.chars().take(MAX_SHORT_OPTIONS).take_while(char::is_ascii_alphabetic).count();
    (1..=letters).map(move |count| &options[count..]).filter(|rest| rest.contains('/'))
}

/// The name that a text or a part of one may be.
fn name_in(text: &str) -> Option<&str> {
    let name = text.trim_end_matches(['\r', '\n']);
    (!matches!(name, "" | "." | "/") && name.len() <= MAX_NAME_BYTES).then_some(name)
}

/// The path that `name` stands for, if it leads elsewhere.
fn place(name: &str, folder: &Path, real_folder: &Path) -> Option<PathBuf> {
    let (path, expected) = if let Some(rest) = name.strip_prefix("file://") {
        let path = percent_decode_str(&rest[rest.find('/')?..]).decode_utf8_lossy().into_owned();
        (PathBuf::from(&path), PathBuf::from(path))
    } else if let Some(rest) = name.strip_prefix("~/") {
        let path = home_folder()?.join(rest);
        (path.clone(), path)
    } else {
        // A whole path is the same in both.
        (folder.join(name), real_folder.join(name))
    };
    let bare = name.trim_end_matches(BESIDE);
    if bare.len() < name.len()
        && fs::symlink_metadata(&path).is_err()
        && fs::symlink_metadata(folder.join(bare)).is_ok()
    {
        // A file and a comma: the file is a name of its own.
        return None;
    }
    // Most words are no names of files.
    let may_lead = name.contains('/') || fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
    (may_lead && leads_elsewhere(&path, &without_dots(&expected))).then_some(path)
}

/// The path without `..`, as if none of its folders were a link.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_comma_behind_a_file_is_no_part_of_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("real");
        fs::create_dir_all(root.join("v/a")).expect("made");
        symlink("a", root.join("v/l")).expect("linked");
        fs::write(root.join("v/a/file"), "").expect("written");
        let found = places_in(&json!("first v/l/file, then others (v/l/file)"), &root);
        assert_eq!(found, BTreeSet::from([root.join("v/l/file")]));
        fs::write(root.join("v/a/odd,"), "").expect("written");
        assert_eq!(places_in(&json!("v/l/odd,"), &root).len(), 2, "also what is not there: it may be made");
    }

    #[test]
    fn a_path_is_found_wherever_it_stands() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("real");
        fs::create_dir_all(root.join("v/a")).expect("made");
        symlink("a", root.join("v/l")).expect("linked");
        symlink("v/a", root.join("l")).expect("linked");
        fs::write(root.join("file"), "").expect("written");
        let whole = root.join("v/l").display().to_string();
        let words = (0..2 * MAX_NAMES).map(|it| it.to_string()).collect::<Vec<_>>().join(" ");
        for value in [
            json!(whole),
            json!("v/l"),
            json!("v/l\n"),
            json!("l"),
            json!(format!("file://{whole}")),
            json!(format!("read v/l and {whole}/x")),
            json!("first\nv/l/below\nlast"),
            json!("{\"path\": \"v/l\"}"),
            json!("--file=v/l"),
            json!("x:v/l"),
            json!("cc -ov/l/x"),
            json!("tar -xzfv/l"),
            json!({"v/l": 1}),
            json!([{"deep": ["v/l"]}]),
            json!({"a": words, "path": "v/l"}),
            json!({"a": words, "b": "{\"path\": \"v/l\"}"}),
        ] {
            assert!(!places_in(&value, &root).is_empty(), "{value}");
        }
        for value in [
            json!("v/a"),
            json!("file"),
            json!("a text of words, and/or others"),
            json!("https://a.example/x"),
            json!("../nothing"),
            json!("v/../file"),
            json!(7),
        ] {
            assert_eq!(places_in(&value, &root), BTreeSet::new(), "{value}");
        }
    }
}
