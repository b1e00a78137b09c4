//! The line of a place in a definition file.
//!
//! `serde_json` knows no positions, but its raw values are slices of the text, so where they begin tells the line.

use std::collections::BTreeMap;

use ground::config::offset_in;
use serde_json::value::RawValue;

/// The objects of a file by their keys.
type RawObject<'a> = BTreeMap<String, &'a RawValue>;

/// Returns the line, counted from 1, of `place` in the subtool `name`, or in the file itself without a name.
///
/// What is not in the text itself, such as a missing key or a default, has the line of the object around it.
pub(super) fn line_of(text: &str, name: Option<&str>, place: &str) -> Option<usize> {
    if let Some(line) = place.strip_prefix("line ") {
        return line.split(' ').next()?.parse().ok();
    }
    let file: RawObject<'_> = serde_json::from_str(text).ok()?;
    let Some(name) = name else { return Some(line_at(text, deepest(text, place)?)) };
    let namespace = file.get("$namespace").and_then(|namespace| serde_json::from_str::<String>(namespace.get()).ok());
    let key = namespace.as_deref().and_then(|namespace| name.strip_prefix(namespace)?.strip_prefix('-'));
    let own = file.get(key.unwrap_or(name))?.get();
    let found = deepest(own, place)?;
    let is_default = std::ptr::eq(found, own) && !place.is_empty();
    let default =
        file.get("$defaults").filter(|_| is_default).and_then(|defaults| deepest_below(defaults.get(), place));
    Some(line_at(text, default.unwrap_or(found)))
}

/// Returns the line of `place` in a manifest.
pub(super) fn line_in_manifest(text: &str, place: &str) -> Option<usize> {
    if let Some(line) = place.strip_prefix("line ") {
        return line.split(' ').next()?.parse().ok();
    }
    let offset = offset_in(text, place, "")?;
    Some(text.get(..offset)?.matches('\n').count() + 1)
}

/// The line of a slice of `text`.
fn line_at(text: &str, part: &str) -> usize {
    let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.get(..offset).unwrap_or(text).matches('\n').count() + 1
}

/// Like [`deepest`], but only if some part of `place` exists.
fn deepest_below<'a>(value: &'a str, place: &str) -> Option<&'a str> {
    deepest(value, place).filter(|found| !std::ptr::eq(*found, value))
}

/// Returns the last value along `place` that exists. A place is a path like `run.http.query.q` or `examples[1].input/to`.
fn deepest<'a>(value: &'a str, place: &str) -> Option<&'a str> {
    let place = place.trim_start_matches(['.', '/']);
    if place.is_empty() {
        return Some(value);
    }
    if let Some((index, rest)) = place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let items: Vec<&'a RawValue> = serde_json::from_str(value).ok()?;
        let item = index.parse::<usize>().ok().and_then(|index| items.get(index).copied());
        return item.map_or(Some(value), |item| deepest(item.get(), rest));
    }
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &'a RawValue>>(value) else { return Some(value) };
    // A key may contain the characters that separate keys, so the longest one that fits is meant.
    let fitting = fields.iter().filter(|(key, _)| {
        place.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '/']))
    });
    match fitting.max_by_key(|(key, _)| key.len()) {
        Some((key, child)) => deepest(child.get(), &place[key.len()..]),
        None => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
  "$namespace": "acme",
  "$defaults": {
    "run": {"http": {
      "base_url": "https://a.example"
    }}
  },
  "greet": {
    "description": "Greets.",
    "run": {"http": {
      "headers": {
        "X.Y": "a"
      }
    }},
    "examples": [
      {"input": {}},
      {"input": {
        "name": 5
      }}
    ]
  }
}"#;

    #[test]
    fn a_place_has_the_line_of_its_value_or_of_what_is_around_it() {
        for (name, place, line) in [
            (None, "$namespace", 2),
            (None, "line 7 column 3", 7),
            (Some("acme-greet"), "", 8),
            (Some("acme-greet"), "description", 9),
            (Some("acme-greet"), "run.http.headers.X.Y", 12),
            (Some("acme-greet"), "run.http.headers.Z", 11),
            (Some("acme-greet"), "examples[1].input/name", 18),
            (Some("acme-greet"), "examples[0]", 16),
            (Some("acme-greet"), "timeout", 8),
        ] {
            assert_eq!(line_of(FILE, name, place), Some(line), "{place}");
        }
        let with_default =
            FILE.replacen("\"run\": {\"http\": {\n      \"headers\"", "\"other\": {\"http\": {\n      \"headers\"", 1);
        assert_eq!(line_of(&with_default, Some("acme-greet"), "run.http.base_url"), Some(5));
        assert_eq!(line_of("{", None, "x"), None);
    }
}
