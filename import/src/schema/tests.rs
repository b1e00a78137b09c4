//! Tests of cleaning: dirty schemas as they occur.

use serde_json::{Value, json};

use super::*;

fn clean_of(root: &Value, schema: &Value, depth: usize) -> (Value, Cleaned) {
    // The schema is looked up in the root, since both must live as long.
    let mut root = root.clone();
    root["tested"] = schema.clone();
    let texts = describe::FieldTexts::default();
    let schemas = Schemas { root: &root, dialect: Dialect::OpenApi, full: false, texts: &texts };
    let mut state = Cleaned::with_depth(depth);
    let cleaned = schemas.clean(&root["tested"], 0, &mut state);
    (Value::Object(cleaned), state)
}

fn clean(schema: &Value) -> Value {
    clean_of(&json!({}), schema, 4).0
}

#[test]
fn what_has_a_plain_meaning_is_converted() {
    for (dirty, cleaned) in [
        (
            json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true}),
            json!({"type": "integer", "exclusiveMinimum": 0}),
        ),
        (
            json!({"type": "number", "maximum": "10", "exclusiveMaximum": false}),
            json!({"type": "number", "maximum": 10}),
        ),
        (
            json!({"type": null, "properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        ),
        (
            json!({"type": "string", "nullable": true, "enum": ["a"]}),
            json!({"type": ["string", "null"], "enum": ["a", null]}),
        ),
        (json!({"type": "string", "enum": ["a", null, "a"]}), json!({"type": "string", "enum": ["a"]})),
        (json!({"type": "file"}), json!({"type": "string"})),
        (json!({"type": "int"}), json!({"type": "integer"})),
        (json!({"type": "string", "enum": [1, true]}), json!({"type": "string", "enum": ["1", "true"]})),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "required": true}}, "required": true}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        ),
        (
            json!({"properties": {"a": {"type": "string"}}, "required": ["a", "absent"]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        ),
        (json!({"type": "string", "pattern": "^(?!x)"}), json!({"type": "string"})),
        (json!({"type": "string", "format": "int99", "x-y": 1, "minLength": -1}), json!({"type": "string"})),
        (json!({"type": "integer", "default": 5}), json!({"type": "integer", "description": "Default: 5."})),
        (json!({"oneOf": [{"type": "string"}, {"type": "null"}]}), json!({"type": ["string", "null"]})),
        (json!({"oneOf": [{"const": "a"}, {"enum": ["b"]}]}), json!({"type": "string", "enum": ["a", "b"]})),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ),
        (
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "integer"}}, "additionalProperties": false}]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]}),
        ),
        (
            json!({"type": "object", "properties": {"id": {"type": "string", "readOnly": true}, "old": {"deprecated": true}}, "required": ["id"]}),
            json!({"type": "object"}),
        ),
        (json!(true), json!({})),
        (json!("nonsense"), json!({})),
    ] {
        assert_eq!(clean(&dirty), cleaned, "{dirty}");
    }
}

#[test]
fn a_dangling_reference_allows_anything_and_is_said() {
    let (cleaned, state) = clean_of(&json!({}), &json!({"$ref": "#/components/schemas/None", "description": "A."}), 4);
    assert_eq!(cleaned, json!({"description": "A."}));
    assert_eq!(state.loosened.len(), 1);
}

#[test]
fn a_cycle_is_cut_and_names_its_fields() {
    let node = json!({"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/node"}}});
    let (cleaned, state) = clean_of(&json!({"node": node}), &json!({"$ref": "#/node"}), 4);
    assert_eq!(
        cleaned,
        json!({"type": "object", "properties": {
            "name": {"type": "string"}, "next": {"type": "object", "description": "Fields: name, next."}}})
    );
    assert!(state.is_cut);
}

#[test]
fn what_stands_beside_a_reference_hides_no_fields_that_were_cut() {
    for own in [json!({}), json!({"description": "A time. Of a day."}), json!({"title": "Time"})] {
        let mut time =
            json!({"type": "object", "properties": {"date": {"type": "string"}, "zone": {"type": "string"}}});
        time.as_object_mut().expect("an object").extend(own.as_object().cloned().expect("an object"));
        let start = json!({"$ref": "#/time", "description": "When it starts."});
        let outer = json!({"type": "object", "properties": {"start": start}});
        let (cleaned, state) = clean_of(&json!({"time": time}), &outer, 1);
        assert!(state.is_cut);
        assert_eq!(cleaned["properties"]["start"]["description"], "When it starts. Fields: date, zone.", "{time}");
    }
    let many: Vec<_> = (0..200).map(|number| format!("zone-{number}")).collect();
    let zone = json!({"type": "string", "description": "A zone.", "enum": many});
    let (cleaned, _) = clean_of(&json!({"zone": zone}), &json!({"$ref": "#/zone", "description": "Where."}), 4);
    let text = cleaned["description"].as_str().expect("a text");
    assert!(text.starts_with("Where. One of ") && !text.contains("A zone."), "{text}");
}

#[test]
fn deep_objects_are_cut_at_the_wanted_level() {
    let deep = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "object", "properties": {"c": {"type": "string"}}}}}}});
    assert_eq!(
        clean_of(&json!({}), &deep, 2).0,
        json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
            "b": {"type": "object", "description": "Fields: c."}}}}})
    );
}

#[test]
fn what_a_caller_has_to_give_keeps_its_fields_one_level_deeper() {
    let time = json!({"type": "object", "properties": {
        "zone": {"type": "string"}, "parts": {"type": "object", "properties": {"hour": {"type": "integer"}}}}});
    let event = json!({"type": "object", "properties": {"start": time, "end": time}, "required": ["start"]});
    assert_eq!(
        clean_of(&json!({}), &event, 1).0,
        json!({"type": "object", "required": ["start"], "properties": {
            "start": {"type": "object", "properties": {
                "zone": {"type": "string"}, "parts": {"type": "object", "description": "Fields: hour."}}},
            "end": {"type": "object", "description": "Fields: zone, parts."}}})
    );
}

#[test]
fn references_that_multiply_end() {
    let mut schemas = json!({});
    for number in 0..40 {
        let next = json!({"$ref": format!("#/s{}", number + 1)});
        schemas[format!("s{number}")] =
            json!({"type": "object", "properties": {"a": next, "b": next}, "allOf": [next, next]});
    }
    let (cleaned, state) = clean_of(&schemas, &json!({"$ref": "#/s0"}), 100);
    assert!(state.is_cut && cleaned.to_string().len() < 1 << 20);
}
