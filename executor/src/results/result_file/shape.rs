//! The structure of data without its contents: enough to write the jq expression that gets them.
//!
//! Small whatever the data is: so many levels, keys and kinds, and so many entries in all.

use protocol::excerpt;
use serde_json::{Map, Value, json};

const DEEPEST: usize = 5;
const MAX_KEYS: usize = 30;
/// A longer key is data itself.
const MAX_KEY: usize = 60;
/// How many of a list's items are looked at: its first ones tell what the rest is like.
const SAMPLED: usize = 50;
const MAX_VARIANTS: usize = 4;
/// Entries in all.
const BUDGET: usize = 200;

/// `value`'s structure. A list is `{"array": LENGTH, "of": SHAPE}`, or `"of": {"any": [SHAPE, ...]}`
/// where its items differ; of objects in a list a key ends in `?` where some lack it.
pub(super) fn shape(value: &Value) -> Value {
    shape_of(&[value], 0, &mut BUDGET.clone())
}

/// What the `values`, which stand in the same place, have in common; never none.
fn shape_of(values: &[&Value], depth: usize, budget: &mut usize) -> Value {
    let mut kinds: Vec<(&str, Vec<&Value>)> = Vec::new();
    for value in values {
        let kind = kind(value);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, same)) => same.push(value),
            None => kinds.push((kind, vec![value])),
        }
    }
    let mut shapes: Vec<_> =
        kinds.iter().take(MAX_VARIANTS).map(|(kind, same)| of_kind(kind, same, depth, budget)).collect();
    if shapes.len() == 1 { shapes.remove(0) } else { json!({ "any": shapes }) }
}

fn of_kind(kind: &str, values: &[&Value], depth: usize, budget: &mut usize) -> Value {
    *budget = budget.saturating_sub(1);
    match values {
        [Value::String(text)] => format!("string of {} characters", text.chars().count()).into(),
        [Value::Array(_), ..] => list(values, depth, budget),
        [Value::Object(_), ..] => object(values, depth, budget),
        _ => kind.into(),
    }
}

fn list(values: &[&Value], depth: usize, budget: &mut usize) -> Value {
    let lists: Vec<_> = values.iter().filter_map(|value| value.as_array()).collect();
    let (least, most) =
        lists.iter().fold((usize::MAX, 0), |(least, most), list| (least.min(list.len()), most.max(list.len())));
    let length = if least == most { json!(most) } else { format!("{least} to {most}").into() };
    let items: Vec<_> = lists.into_iter().flatten().take(SAMPLED).collect();
    if items.is_empty() || depth >= DEEPEST || *budget == 0 {
        return json!({ "array": length });
    }
    json!({"array": length, "of": shape_of(&items, depth + 1, budget)})
}

fn object(values: &[&Value], depth: usize, budget: &mut usize) -> Value {
    let objects: Vec<_> = values.iter().filter_map(|value| value.as_object()).collect();
    let mut keys: Vec<(&String, Vec<&Value>)> = Vec::new();
    let mut more = 0;
    for (key, field) in objects.iter().copied().flatten() {
        match keys.iter().position(|(known, _)| *known == key) {
            Some(place) => keys[place].1.push(field),
            None if keys.len() < MAX_KEYS => keys.push((key, vec![field])),
            None => more += 1,
        }
    }
    let mut shape = Map::new();
    for (key, fields) in keys {
        if depth >= DEEPEST || *budget == 0 {
            more += fields.len();
            continue;
        }
        let mark = if fields.len() < objects.len() { "?" } else { "" };
        let name = excerpt::chars(key, MAX_KEY);
        shape.insert(format!("{name}{mark}"), shape_of(&fields, depth + 1, budget));
    }
    if more > 0 {
        // What is left out of several objects is counted in each of them.
        shape.insert("…".to_owned(), format!("{more} more").into());
    }
    Value::Object(shape)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_differ_are_told_as_one() {
        let data = json!({"next": "abc", "items": [
            {"id": 1, "labels": ["a"], "to": null},
            {"id": 2, "labels": [], "to": {"name": "年", "x": true}},
            "gone",
        ]});
        let expected = json!({"next": "string of 3 characters", "items": {"array": 3, "of": {"any": [
            {
                "id": "number",
                "labels": {"array": "0 to 1", "of": "string of 1 characters"},
                "to": {"any": ["null", {"name": "string of 1 characters", "x": "boolean"}]}
            },
            "string of 4 characters",
        ]}}});
        assert_eq!(shape(&data), expected);
        let optional = json!([{"a": 1, "b": "x"}, {"a": 2}, {"a": 3, "b": "yy"}]);
        assert_eq!(shape(&optional), json!({"array": 3, "of": {"a": "number", "b?": "string"}}));
        assert_eq!(shape(&json!([])), json!({"array": 0}));
    }

    #[test]
    fn it_is_small_whatever_the_data_is() {
        let wide: Map<_, _> = (0..10_000).map(|n| (format!("key{n}{}", "x".repeat(500)), json!({"a": [n]}))).collect();
        let mut bush = json!(1);
        for _ in 0..4 {
            bush = (0..30).map(|n| (format!("{n}"), bush.clone())).collect::<Map<_, _>>().into();
        }
        let mut deep = json!(1);
        for _ in 0..60 {
            deep = json!([{"a": deep, "b": 1}]);
        }
        let mixed: Vec<_> = (0..5_000).map(|n| json!({ format!("k{n}"): n })).collect();
        for data in [Value::Object(wide), bush, deep, mixed.into()] {
            let text = shape(&data).to_string();
            assert!(text.len() < 20_000, "{} bytes: {text}", text.len());
        }
        let many: Map<_, _> = (0..100).map(|n| (n.to_string(), Value::Null)).collect();
        assert_eq!(shape(&many.into())["…"], "70 more");
    }
}
