//! The structure of data without its content: enough to write a jq expression for the content.
//!
//! The size of a shape is bounded: levels, keys, variants and the total number of entries have limits.

use protocol::wording::counted;
use protocol::{excerpt, json};
use serde_json::{Map, Value, json};

const MAX_DEPTH: usize = 5;
const MAX_KEYS: usize = 30;
/// A longer key is probably data itself and is cut.
const MAX_KEY_CHARS: usize = 60;
/// How many items of a list are examined; the first ones are representative.
const MAX_SAMPLED_ITEMS: usize = 50;
const MAX_VARIANTS: usize = 4;
/// The most entries in total.
const MAX_ENTRIES: usize = 200;

/// Returns the structure of `value`. A list is `{"array": LENGTH, "of": SHAPE}`, or `"of": {"any": [SHAPE, ...]}`
/// if its items differ. For objects in a list, a key that some of them lack ends in `?`.
pub(super) fn shape(value: &Value) -> Value {
    shape_of(&[value], 0, &mut MAX_ENTRIES.clone())
}

/// Returns the common structure of `values`, which occur at the same position; there is at least one.
fn shape_of(values: &[&Value], depth: usize, budget: &mut usize) -> Value {
    let mut kinds: Vec<(&str, Vec<&Value>)> = Vec::new();
    for value in values {
        let kind = json::type_of(value);
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
        [Value::String(text)] => format!("string of {}", counted(text.chars().count(), "character")).into(),
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
    let items: Vec<_> = lists.into_iter().flatten().take(MAX_SAMPLED_ITEMS).collect();
    if items.is_empty() || depth >= MAX_DEPTH || *budget == 0 {
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
            Some(index) => keys[index].1.push(field),
            None if keys.len() < MAX_KEYS => keys.push((key, vec![field])),
            None => more += 1,
        }
    }
    let mut shape = Map::new();
    for (key, fields) in keys {
        if depth >= MAX_DEPTH || *budget == 0 {
            more += fields.len();
            continue;
        }
        let mark = if fields.len() < objects.len() { "?" } else { "" };
        let name = excerpt::chars(key, MAX_KEY_CHARS);
        shape.insert(format!("{name}{mark}"), shape_of(&fields, depth + 1, budget));
    }
    if more > 0 {
        // A key that is omitted from several objects counts once for each of them.
        shape.insert("…".to_owned(), format!("{more} more").into());
    }
    Value::Object(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_of_list_items_are_merged() {
        let data = json!({"next": "abc", "items": [
            {"id": 1, "labels": ["a"], "to": null},
            {"id": 2, "labels": [], "to": {"name": "年", "x": true}},
            "gone",
        ]});
        let expected = json!({"next": "string of 3 characters", "items": {"array": 3, "of": {"any": [
            {
                "id": "number",
                "labels": {"array": "0 to 1", "of": "string of 1 character"},
                "to": {"any": ["null", {"name": "string of 1 character", "x": "boolean"}]}
            },
            "string of 4 characters",
        ]}}});
        assert_eq!(shape(&data), expected);
        let optional = json!([{"a": 1, "b": "x"}, {"a": 2}, {"a": 3, "b": "yy"}]);
        assert_eq!(shape(&optional), json!({"array": 3, "of": {"a": "number", "b?": "string"}}));
        assert_eq!(shape(&json!([])), json!({"array": 0}));
    }

    #[test]
    fn the_shape_of_any_data_is_small() {
        let wide: Map<_, _> = (0..10_000).map(|n| (format!("key{n}{}", "x".repeat(500)), json!({"a": [n]}))).collect();
        let mut branching = json!(1);
        for _ in 0..4 {
            branching = (0..30).map(|n| (format!("{n}"), branching.clone())).collect::<Map<_, _>>().into();
        }
        let mut deep = json!(1);
        for _ in 0..60 {
            deep = json!([{"a": deep, "b": 1}]);
        }
        let mixed: Vec<_> = (0..5_000).map(|n| json!({ format!("k{n}"): n })).collect();
        for data in [Value::Object(wide), branching, deep, mixed.into()] {
            let text = shape(&data).to_string();
            assert!(text.len() < 20_000, "{} bytes: {text}", text.len());
        }
        let many: Map<_, _> = (0..100).map(|n| (n.to_string(), Value::Null)).collect();
        assert_eq!(shape(&many.into())["…"], "70 more");
    }
}
