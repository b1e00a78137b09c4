//! How much work a schema makes of a value, found before the schema is compiled or used.
//!
//! The validator follows every alternative and every `$ref`. A small schema can so make it look at the same value
//! 2^40 times. Here is counted how often each part of a value is looked at, by how deeply the value is nested, and what
//! would take too long is refused.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaError;

/// The most work of one validation: how many values are looked at. A release build does this in under a second.
const MAX_WORK: u64 = 1 << 21;
/// The most schemas that are counted together, each as often as it applies.
const MAX_COUNTED: usize = 200_000;
/// The deepest value that is distinguished; JSON text may be nested as deeply.
const MAX_DEPTH: usize = 128;
/// The most patterns in one schema: each may take a megabyte.
const MAX_PATTERNS: usize = 200;
/// How many bytes of text are as much work as one value.
const TEXT_PER_VALUE: usize = 256;
/// How many looks a pattern counts as.
const PATTERN_LOOKS: u64 = 8;

/// Keywords with a schema, or a list or an object of schemas, for the same value.
const SAME_VALUE: [&str; 10] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "extends"];
/// Keywords with a schema for every field or item that they apply to.
const EVERY_PART: [&str; 7] = [
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// How often a schema looks at each part of a value, by the depth of the value.
#[derive(Debug)]
pub(super) struct SchemaWork {
    looks: Vec<u64>,
}

impl SchemaWork {
    /// Counts the work of `schema`. Fails if it is too much for any value, or never ends.
    pub(super) fn of(schema: &Value) -> Result<Self, SchemaError> {
        let mut schemas = Schemas { root: schema, named: HashMap::new(), patterns: 0 };
        schemas.index(schema);
        if schemas.patterns > MAX_PATTERNS {
            return Err(SchemaError(format!("it has {} patterns; a schema may have {MAX_PATTERNS}", schemas.patterns)));
        }
        let work = Self { looks: looks(&schemas.places()?) };
        match work.looks[0] {
            looks if looks > MAX_WORK => Err(SchemaError("its alternatives multiply beyond measure".to_owned())),
            _ => Ok(work),
        }
    }

    /// Says why `value` is not validated, if that would take too long.
    pub(super) fn objection(&self, value: &Value) -> Option<String> {
        let depth = depth(value).min(self.looks.len() - 1);
        let work = self.looks[depth].saturating_mul(parts_of(value));
        (work > MAX_WORK).then(|| {
            "it is too large, or too deeply nested, for the alternatives of its schema: checking it would take too long"
                .to_owned()
        })
    }
}

/// The looks at each part of a value that is nested 0, 1, ... levels deep, until they no longer change.
fn looks(places: &[Place]) -> Vec<u64> {
    let mut now: Vec<u64> = places.iter().map(|place| place.own).collect();
    let mut of_root = vec![now[0]];
    while of_root.len() <= MAX_DEPTH {
        let next: Vec<u64> = places
            .iter()
            .map(|place| {
                let total = |parts: &[(usize, u64)]| {
                    parts
                        .iter()
                        .fold(0, |sum: u64, (place, times)| sum.saturating_add(now[*place].saturating_mul(*times)))
                };
                let most = place.parts.values().map(|parts| total(parts)).max().unwrap_or_default();
                place.own.saturating_add(most).saturating_add(total(&place.every_part))
            })
            .collect();
        if next == now {
            break;
        }
        of_root.push(next[0]);
        now = next;
    }
    of_root
}

/// All schemas that apply to one value, together.
#[derive(Debug, Default)]
struct Place {
    /// How often these look at the value themselves.
    own: u64,
    /// The places of single fields and items, by name, each with how often it applies.
    parts: HashMap<String, Vec<(usize, u64)>>,
    /// The places that apply to every field or item.
    every_part: Vec<(usize, u64)>,
}

struct Schemas<'a> {
    root: &'a Value,
    /// Schemas by what a reference to them can be besides a pointer.
    named: HashMap<String, &'a Value>,
    patterns: usize,
}

impl<'a> Schemas<'a> {
    fn index(&mut self, value: &'a Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.index(item)),
            Value::Object(fields) => {
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = fields.get(key).and_then(Value::as_str) {
                        self.named.insert(format!("#{name}"), value);
                    }
                }
                for key in ["$id", "id"] {
                    if let Some(name) = fields.get(key).and_then(Value::as_str) {
                        self.named.insert(name.to_owned(), value);
                    }
                }
                self.patterns += usize::from(fields.get("pattern").is_some_and(Value::is_string));
                self.patterns += fields.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
                fields.values().for_each(|field| self.index(field));
            }
            _ => {}
        }
    }

    fn target(&self, reference: &str) -> Result<&'a Value, SchemaError> {
        let found = match reference.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => {
                let decoded = percent_encoding::percent_decode_str(pointer).decode_utf8_lossy();
                self.root.pointer(&decoded)
            }
            _ => None,
        };
        found.or_else(|| self.named.get(reference).copied()).ok_or_else(|| {
            SchemaError(format!(
                "no schema for the reference `{reference}`: it must lie in this schema, as in `#/$defs/name`"
            ))
        })
    }

    /// Returns the places that values can have, that of the whole value first.
    fn places(&self) -> Result<Vec<Place>, SchemaError> {
        let mut places = vec![Place::default()];
        let mut known = HashMap::from([(std::ptr::from_ref(self.root), 0)]);
        let mut open = vec![(0, self.root)];
        let mut counted = 0;
        while let Some((index, entry)) = open.pop() {
            let mut place = Place::default();
            // Each schema that applies to this value, how often, and the chain of those that lead to it.
            let mut applying = vec![(entry, 0)];
            let mut chain: Vec<*const Value> = Vec::new();
            while let Some((schema, depth)) = applying.pop() {
                chain.truncate(depth);
                if chain.contains(&std::ptr::from_ref(schema)) {
                    return Err(SchemaError("a `$ref` leads back to itself".to_owned()));
                }
                chain.push(std::ptr::from_ref(schema));
                counted += 1;
                if counted > MAX_COUNTED {
                    return Err(SchemaError("its alternatives and references multiply beyond measure".to_owned()));
                }
                let Value::Object(fields) = schema else { continue };
                place.own += 1 + if fields.contains_key("pattern") { PATTERN_LOOKS } else { 0 };
                // What is not evaluated yet is found by looking again.
                let times = if fields.keys().any(|key| key.starts_with("unevaluated")) { 2 } else { 1 };
                for _ in 0..times {
                    self.same_value(fields, |schema| applying.push((schema, depth + 1)))?;
                }
                parts(fields, |name, part| {
                    let target = *known.entry(std::ptr::from_ref(part)).or_insert_with(|| {
                        places.push(Place::default());
                        open.push((places.len() - 1, part));
                        places.len() - 1
                    });
                    let applying = match name {
                        Some(name) => place.parts.entry(name).or_default(),
                        None => &mut place.every_part,
                    };
                    match applying.iter_mut().find(|(known, _)| *known == target) {
                        Some((_, often)) => *often += 1,
                        None => applying.push((target, 1)),
                    }
                });
            }
            places[index] = place;
        }
        Ok(places)
    }

    fn same_value(&self, fields: &'a Map<String, Value>, mut found: impl FnMut(&'a Value)) -> Result<(), SchemaError> {
        for reference in REFERENCES.iter().filter_map(|key| fields.get(*key)?.as_str()) {
            found(self.target(reference)?);
        }
        for key in SAME_VALUE {
            match fields.get(key) {
                Some(Value::Array(schemas)) => schemas.iter().for_each(&mut found),
                Some(Value::Object(schemas)) if key.starts_with("depend") => schemas.values().for_each(&mut found),
                Some(schema) => found(schema),
                None => {}
            }
        }
        Ok(())
    }
}

/// Passes on the schemas for the fields and items of a value, with the name of the one that each applies to.
fn parts<'a>(fields: &'a Map<String, Value>, mut found: impl FnMut(Option<String>, &'a Value)) {
    for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        found(Some(name.clone()), schema);
    }
    for key in ["prefixItems", "items"] {
        match fields.get(key) {
            // A field cannot have this name and an item at once, so both can be counted as one.
            Some(Value::Array(items)) => {
                items.iter().enumerate().for_each(|(index, item)| found(Some(index.to_string()), item));
            }
            Some(schema) if key == "items" => found(None, schema),
            _ => {}
        }
    }
    for key in EVERY_PART {
        match fields.get(key) {
            Some(Value::Object(schemas)) if key == "patternProperties" => {
                schemas.values().for_each(|schema| found(None, schema));
            }
            Some(schema) => found(None, schema),
            None => {}
        }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// How many values `value` consists of; a long text counts as several.
fn parts_of(value: &Value) -> u64 {
    1 + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => (text.len() / TEXT_PER_VALUE) as u64,
        Value::Array(items) => items.iter().map(parts_of).sum(),
        Value::Object(fields) => fields.values().map(parts_of).sum(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A schema of `count` definitions, each made by `definition` from the reference to the next.
    fn chain(count: usize, definition: impl Fn(Value) -> Value) -> Value {
        let mut definitions: Map<_, _> = (0..count)
            .map(|number| (format!("d{number}"), definition(json!({"$ref": format!("#/$defs/d{}", number + 1)}))))
            .collect();
        definitions.insert(format!("d{count}"), json!({"type": "object"}));
        json!({"type": "object", "$defs": definitions, "$ref": "#/$defs/d0"})
    }

    /// A value that is nested `depth` levels deep in the field `name`.
    fn nested(name: &str, depth: usize) -> Value {
        (0..depth).fold(json!({}), |value, _| json!({name: value}))
    }

    #[test]
    fn references_that_multiply_on_one_value_are_refused() {
        for key in ["allOf", "anyOf", "oneOf"] {
            assert!(SchemaWork::of(&chain(40, |next| json!({key: [next, next]}))).is_err(), "{key}");
        }
        let both = chain(40, |next| json!({"if": next, "then": next, "else": next}));
        assert!(SchemaWork::of(&both).is_err());
        assert!(SchemaWork::of(&chain(40, |next| json!({"allOf": [next]}))).is_ok(), "one path is no multiplication");
    }

    #[test]
    fn references_that_multiply_in_the_parts_of_a_value_are_refused_with_the_value() {
        let down = |next: Value| json!({"properties": {"a": next}});
        let multiplying = chain(40, |next| json!({"anyOf": [down(next.clone()), down(next)]}));
        let recursive = json!({"anyOf": [down(json!({"$ref": "#"})), down(json!({"$ref": "#"}))]});
        for schema in [multiplying, recursive] {
            let work = SchemaWork::of(&schema).expect("a small value is no problem");
            assert_eq!(work.objection(&nested("a", 5)), None);
            assert!(work.objection(&nested("a", 40)).is_some());
        }
    }

    #[test]
    fn a_recursive_schema_whose_alternatives_have_fields_of_their_own_takes_any_depth() {
        let list = json!({"items": {"$ref": "#"}});
        let filter = json!({"oneOf": [{"properties": {"and": list}}, {"properties": {"or": list}}, {"properties": {"not": {"$ref": "#"}}}]});
        let work = SchemaWork::of(&filter).expect("an ordinary schema");
        assert_eq!(work.objection(&nested("not", 100)), None);
        let wide: Vec<_> = (0..20_000).map(|number| json!({"not": {"field": number}})).collect();
        assert_eq!(work.objection(&json!({"and": wide})), None);
    }

    #[test]
    fn a_reference_without_end_or_target_is_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}, "properties": {"a": {"$ref": "#/$defs/x"}}}),
            json!({"properties": {"a": {"$ref": "#/$defs/none"}}}),
        ] {
            assert!(SchemaWork::of(&schema).is_err(), "{schema}");
        }
        let named = json!({"$defs": {"x": {"$anchor": "here"}, "y": {"$id": "there.json"}},
            "properties": {"a": {"$ref": "#here"}, "b": {"$ref": "there.json"}, "c": {"$ref": "#/$defs/x"}}});
        assert!(SchemaWork::of(&named).is_ok());
    }

    #[test]
    fn patterns_are_counted() {
        let many: Map<_, _> =
            (0..=MAX_PATTERNS).map(|number| (format!("p{number}"), json!({"pattern": "a"}))).collect();
        assert!(SchemaWork::of(&json!({"properties": many})).is_err());
    }
}
