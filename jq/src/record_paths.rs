//! Where in a JSON text something lies that an expression looks for elsewhere: the list of an object, a key below it.
//!
//! An answer often has its records in one list beside what it says about them. A reader who takes the answer for that list
//! is told the path.

use jaq_json::{Map, Val};

/// What the list of records is called, the likeliest first.
const RECORDS: [&str; 8] = ["data", "items", "rows", "results", "records", "entries", "matches", "list"];
/// A key is looked for this deep.
const MAX_DEPTH: usize = 3;

type Fields = Map<Val, Val>;

/// Where below `fields` the key `key` lies, like `.data[].id`.
pub(crate) fn of_key(fields: &Fields, key: &str) -> Option<String> {
    // What lies nearer is found first.
    (1..=MAX_DEPTH).find_map(|depth| below(fields, key, depth)).map(|place| format!("{place}{}", step(key)))
}

/// Where below `fields` an item lies that has the key `next`, like `.data[0].id`.
pub(crate) fn of_item(fields: &Fields, index: usize, next: Option<&str>) -> Option<String> {
    let (name, _) = list(fields, next).or_else(|| list(fields, None))?;
    Some(format!("{}[{index}]{}", step(&name), next.map(step).unwrap_or_default()))
}

/// An expression for one field of the first record of `data`, like `.data[0].id`: an example that works.
pub fn example(data: &[u8]) -> Option<String> {
    let data = jaq_json::read::parse_single(data).ok()?;
    let first_key = |items: &[Val]| match items.first() {
        Some(Val::Obj(fields)) => fields.keys().next().and_then(text).map(|key| step(&key)),
        _ => None,
    };
    Some(match &data {
        Val::Arr(items) => format!(".[0]{}", first_key(items).unwrap_or_default()),
        Val::Obj(fields) => match list(fields, None) {
            Some((name, items)) => format!("{}[0]{}", step(&name), first_key(items).unwrap_or_default()),
            None => step(&fields.keys().next().and_then(text)?),
        },
        _ => return None,
    })
}

fn below(fields: &Fields, key: &str, depth: usize) -> Option<String> {
    let has_key = |value: &Val| matches!(value, Val::Obj(inner) if inner.get(&Val::utf8_str(key.to_owned())).is_some());
    let mut named: Vec<_> = fields.iter().filter_map(|(name, value)| Some((text(name)?, value))).collect();
    named.sort_by_key(|(name, _)| rank(name));
    named.into_iter().find_map(|(name, value)| {
        let inner = |value: &Val| match value {
            _ if depth == 1 => has_key(value).then(String::new),
            Val::Obj(inner) => below(inner, key, depth - 1),
            _ => None,
        };
        match value {
            Val::Arr(items) => Some(format!("{}[]{}", step(&name), items.iter().find_map(inner)?)),
            value => Some(format!("{}{}", step(&name), inner(value)?)),
        }
    })
}

/// The list of records: by its name, or the only one with objects. With `key`, one with an item that has it.
fn list<'a>(fields: &'a Fields, key: Option<&str>) -> Option<(String, &'a [Val])> {
    let fits = |items: &[Val]| match key {
        Some(key) => {
            let key = Val::utf8_str(key.to_owned());
            items.iter().any(|item| matches!(item, Val::Obj(fields) if fields.get(&key).is_some()))
        }
        None => true,
    };
    let lists = fields.iter().filter_map(|(name, value)| match value {
        Val::Arr(items) if fits(items) => Some((text(name)?, items.as_slice())),
        _ => None,
    });
    // A list of objects comes before one of plain values, and one that is not empty before one that is.
    let is_plain = |items: &[Val]| !matches!(items.first(), Some(Val::Obj(_)));
    lists.min_by_key(|(name, items)| (rank(name), is_plain(items)))
}

fn rank(name: &str) -> usize {
    RECORDS.iter().position(|known| *known == name).unwrap_or(RECORDS.len())
}

/// A key as a step of a path.
fn step(key: &str) -> String {
    let is_word = !key.is_empty()
        && !key.starts_with(|first: char| first.is_ascii_digit())
        && key.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    if is_word { format!(".{key}") } else { format!("[{}]", serde_json::Value::from(key)) }
}

fn text(key: &Val) -> Option<String> {
    match key {
        Val::TStr(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: &serde_json::Value) -> Val {
        jaq_json::read::parse_single(value.to_string().as_bytes()).expect("JSON")
    }

    #[test]
    fn the_records_of_an_answer_are_found_and_what_they_have() {
        let rows = json!({"row_count": 1, "columns": [{"name": "id", "type": "int"}], "data": [{"id": 7, "a b": 1}]});
        let Val::Obj(found) = fields(&rows) else { panic!("an object") };
        assert_eq!(of_item(&found, 0, Some("id")).as_deref(), Some(".data[0].id"));
        assert_eq!(of_item(&found, 2, None).as_deref(), Some(".data[2]"));
        assert_eq!(of_item(&found, 0, Some("type")).as_deref(), Some(".columns[0].type"));
        assert_eq!(of_key(&found, "id").as_deref(), Some(".data[].id"));
        assert_eq!(of_key(&found, "a b").as_deref(), Some(".data[][\"a b\"]"));
        assert_eq!(of_key(&found, "nothing"), None);
        let nested = json!({"page": {"orders": [{"number": 1}]}});
        let Val::Obj(found) = fields(&nested) else { panic!("an object") };
        assert_eq!(of_key(&found, "number").as_deref(), Some(".page.orders[].number"));
        assert_eq!(of_item(&found, 0, None), None);
    }

    #[test]
    fn an_example_names_the_first_record() {
        for (data, expected) in [
            (json!([{"id": 1}]), Some(".[0].id")),
            (json!([1]), Some(".[0]")),
            (json!({"row_count": 1, "columns": [], "data": [{"id": 1}]}), Some(".data[0].id")),
            (json!({"limit": 1, "orders": [{"number": 1}]}), Some(".orders[0].number")),
            (json!({"a": 1}), Some(".a")),
            (json!("text"), None),
        ] {
            assert_eq!(example(data.to_string().as_bytes()).as_deref(), expected, "{data}");
        }
    }
}
