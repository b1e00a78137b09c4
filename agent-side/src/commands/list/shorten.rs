//! Shortens schemas that cost a model more than they tell it: what lies deep in a large one is cut, and marked.

use std::collections::BTreeSet;

use protocol::layout::compact_bytes;
use protocol::sentences::{FIELDS, first_sentences};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::parameters::Parameters;
use super::signature;

/// Smaller schemas are printed whole: about 600 tokens.
const MAX_BYTES: u64 = 2_500;
/// How many bytes the schema of the best hit of a query takes, if what must be given leaves room: about 220 tokens.
const MAX_BYTES_OF_HIT: u64 = 900;
/// How many bytes the names of the parameters take that are not described.
const MAX_BYTES_OF_NAMES: usize = 300;
/// The same of the parts of an object that lie too deep.
const MAX_BYTES_OF_PARTS: usize = 60;
/// From the least that is cut of a large schema to the most: words go before the parts of objects, which no caller can guess.
const CUTS: [SchemaCut; 7] = [
    SchemaCut::of(4, 200),
    SchemaCut::of(3, 120),
    SchemaCut::of(2, 80),
    SchemaCut::of(2, 40),
    SchemaCut::of(2, 0),
    SchemaCut::of(1, 80),
    SchemaCut::of(1, 0),
];
/// What is cut of a hit if nothing of these is enough.
const LAST_CUT: SchemaCut = SchemaCut { most_optional: 4, ..SchemaCut::of(1, 0) };
/// What is cut of a parameter of a large hit that may be left out.
const CUT_OF_OPTIONAL: SchemaCut = SchemaCut { chars: 80, most_optional: 4, ..SchemaCut::of(1, 0) };
/// Longer descriptions of parameters that must be given are cut after a sentence once the schema is too large.
const MAX_DESCRIPTION_CHARS: usize = 200;
/// How many choices are listed once the schema is too large.
const MAX_CHOICES: usize = 30;

/// A schema as it is printed.
pub(super) struct Shortened {
    pub(super) schema: Box<RawValue>,
    pub(super) is_cut: bool,
}

impl Shortened {
    /// The cut one, unless it is no shorter.
    fn of(schema: Box<RawValue>, cut: &Value) -> Self {
        let cut = raw(cut);
        if cut.get().len() < schema.get().len() {
            Self { schema: cut, is_cut: true }
        } else {
            Self { schema, is_cut: false }
        }
    }
}

/// Returns `schema`, shortened if it is large.
pub(super) fn shorten(schema: &RawValue) -> Shortened {
    let parsed = Some(schema).filter(|schema| schema.get().len() as u64 > MAX_BYTES);
    let Some(Ok(parsed)) = parsed.map(|schema| serde_json::from_str::<Value>(schema.get())) else {
        return Shortened { schema: schema.to_owned(), is_cut: false };
    };
    Shortened::of(schema.to_owned(), &cut_to_fit(&parsed, CUTS.iter(), MAX_BYTES))
}

/// `schema` after the first of `cuts` that makes it fit, or after the last one.
fn cut_to_fit<'a>(schema: &Value, cuts: impl Iterator<Item = &'a SchemaCut>, max_bytes: u64) -> Value {
    let mut last = schema.clone();
    for cut in cuts {
        last = schema.clone();
        shorten_at(&mut last, cut);
        if compact_bytes(&last) <= max_bytes {
            break;
        }
    }
    last
}

/// The schema of the best hit of `query`: without formalities, and of a large one what must be given, then what the query
/// names and callers mostly give, then the others, as long as there is room. What is left is only named.
pub(super) fn shorten_for(schema: &RawValue, query: &str) -> Shortened {
    let schema = without_formalities(schema.to_owned());
    let parsed = Some(&schema).filter(|schema| schema.get().len() as u64 > MAX_BYTES_OF_HIT);
    let Some(Ok(mut parsed)) = parsed.map(|schema| serde_json::from_str::<Value>(schema.get())) else {
        return Shortened { schema, is_cut: false };
    };
    remove_unused(&mut parsed);
    let parameters = Parameters::of(&parsed).by_weight(query);
    let (required, optional): (Vec<_>, Vec<_>) = parameters.into_iter().partition(|(_, _, is_required)| *is_required);
    let mut needed = parsed.clone();
    keep_properties(&mut needed, &required.iter().map(|(name, ..)| *name).collect());
    let mut cut = cut_to_fit(&needed, CUTS.iter().chain([&LAST_CUT]), MAX_BYTES_OF_HIT);
    let (mut bytes, mut others) = (compact_bytes(&cut), Vec::new());
    for (name, schema, _) in optional {
        let mut part = schema.clone();
        shorten_at(&mut part, &CUT_OF_OPTIONAL);
        let added = compact_bytes(&name) + compact_bytes(&part) + 2;
        if bytes + added > MAX_BYTES_OF_HIT {
            others.push(with_type(name, schema));
            continue;
        }
        bytes += added;
        cut["properties"][name] = part;
    }
    if let Some(named) = named(&others, MAX_BYTES_OF_NAMES) {
        cut["$comment"] = format!("shortened; also optional: {named}").into();
    }
    remove_unused(&mut cut);
    Shortened::of(schema, &cut)
}

/// A parameter that is only named, with what it takes unless that is just a text.
fn with_type(name: &str, schema: &Value) -> String {
    match signature::kind(schema).as_deref().or(schema["format"].as_str()) {
        Some(kind) => format!("{name}: {kind}"),
        None => name.to_owned(),
    }
}

/// The names of parameters, as many as that many bytes hold; `None` of none.
fn named(names: &[impl AsRef<str>], max_bytes: usize) -> Option<String> {
    let mut bytes = 0;
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    let fit = names.iter().take_while(|name| {
        bytes += name.len() + 2;
        bytes <= max_bytes
    });
    let fit: Vec<_> = fit.copied().collect();
    let more = match names.len() - fit.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!names.is_empty()).then(|| format!("{}{more}", fit.join(", ")))
}

/// Keeps only the properties with these names.
fn keep_properties(schema: &mut Value, names: &BTreeSet<&str>) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| names.contains(name.as_str()));
    }
}

fn raw(schema: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(schema).expect("a JSON value can be written as JSON")
}

/// `schema` without what a caller takes for granted: that there are no other parameters, and that a text is not empty.
fn without_formalities(schema: Box<RawValue>) -> Box<RawValue> {
    // In a string the quotation marks would be escaped, so these are keys.
    const FORMALITIES: [(&str, &str); 6] = [
        (",\"additionalProperties\":false", ""),
        ("\"additionalProperties\":false,", ""),
        ("\"$schema\":\"http://json-schema.org/draft-07/schema#\",", ""),
        ("\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",", ""),
        ("\"minLength\":1,", ""),
        (",\"minLength\":1}", "}"),
    ];
    let mut text = schema.get().to_owned();
    for (formality, rest) in FORMALITIES {
        if text.contains(formality) {
            text = text.replace(formality, rest);
        }
    }
    RawValue::from_string(text).unwrap_or(schema)
}

/// How much of a schema is left.
struct SchemaCut {
    /// How many levels of objects below it are described.
    depth: usize,
    /// How long its description is at most; at 0, it is left out.
    chars: usize,
    /// The same for the parameters below that may be left out.
    chars_of_optional: usize,
    /// How many of these are described.
    most_optional: usize,
}

impl SchemaCut {
    /// Objects are described this deep, and parameters that may be left out in as many characters.
    const fn of(depth: usize, chars_of_optional: usize) -> Self {
        Self { depth, chars: MAX_DESCRIPTION_CHARS, chars_of_optional, most_optional: usize::MAX }
    }

    /// The cut of a parameter one level below; `None` if that lies too deep.
    fn of_parameter(&self, is_required: bool) -> Option<Self> {
        let chars = if is_required { self.chars } else { self.chars_of_optional };
        Some(Self { depth: self.depth.checked_sub(1)?, chars, ..*self })
    }
}

fn shorten_at(schema: &mut Value, cut: &SchemaCut) {
    let Value::Object(fields) = schema else { return };
    let description = fields.get("description").and_then(Value::as_str).map(|text| shorten_text(text, cut.chars));
    match description {
        Some(Some(text)) => fields["description"] = text.into(),
        Some(None) => drop(fields.remove("description")),
        None => {}
    }
    name_choices(fields);
    fields.remove("examples");
    if fields.get("default").is_some_and(|value| value.is_object() || value.is_array()) {
        fields.remove("default");
    }
    for key in ["items", "additionalProperties", "not", "if", "then", "else"] {
        if let Some(part) = fields.get_mut(key) {
            shorten_at(part, cut);
        }
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        for part in fields.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            shorten_at(part, cut);
        }
    }
    let required = fields.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let more = leave_optional(fields, &required, cut.most_optional);
    if more > 0 {
        fields.insert("$comment".to_owned(), format!("shortened; {more} more are optional").into());
    }
    for key in ["properties", "patternProperties", "$defs", "definitions"] {
        let Some(Value::Object(parts)) = fields.get_mut(key) else { continue };
        for (name, part) in parts.iter_mut() {
            match cut.of_parameter(key != "properties" || required.iter().any(|one| one == name)) {
                Some(cut) => shorten_at(part, &cut),
                None => *part = outline(part),
            }
        }
    }
    if cut.depth == 0 {
        mark(fields);
    }
}

/// A description in about that many characters. The names of the fields that the schema does not have stay.
fn shorten_text(text: &str, chars: usize) -> Option<String> {
    let (text, fields) =
        text.rsplit_once(FIELDS).map_or((text, None), |(text, fields)| (text.trim_end(), Some(fields)));
    let said = Some(first_sentences(text, chars)).filter(|_| chars > 0).filter(|said| !said.is_empty());
    let names: Vec<_> = fields.map(|fields| fields.trim_end_matches('.').split(", ").collect()).unwrap_or_default();
    let listed = named(&names, MAX_BYTES_OF_PARTS).map(|listed| format!("{FIELDS}{listed}"));
    let parts: Vec<_> = said.into_iter().chain(listed).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Turns a long list of choices into words: a shorter list would forbid the others.
fn name_choices(fields: &mut Map<String, Value>) {
    let choices = fields.get("enum").and_then(Value::as_array).filter(|choices| choices.len() > MAX_CHOICES);
    let Some(choices) = choices else { return };
    let named: Vec<_> = choices[..MAX_CHOICES].iter().map(Value::to_string).collect();
    let said = fields.get("description").and_then(Value::as_str).map(|text| format!("{text} ")).unwrap_or_default();
    let text = format!("{said}One of {} and {} more", named.join(", "), choices.len() - MAX_CHOICES);
    fields.remove("enum");
    fields.insert("description".to_owned(), text.into());
}

/// Keeps at most as many properties that may be left out; returns how many more there are.
fn leave_optional(fields: &mut Map<String, Value>, required: &[Value], most: usize) -> usize {
    let Some(Value::Object(properties)) = fields.get_mut("properties") else { return 0 };
    let mut optional = 0_usize;
    properties.retain(|name, _| {
        let is_required = required.iter().any(|one| one == name);
        optional += usize::from(!is_required);
        is_required || optional <= most
    });
    optional.saturating_sub(most)
}

/// What is left of a parameter that lies too deep: its type, and the names of its parts.
fn outline(schema: &Value) -> Value {
    let mut outline = schema.get("type").map_or_else(|| json!({}), |kind| json!({"type": kind}));
    if let Some(parts) = schema.get("properties").and_then(Value::as_object) {
        let names: Vec<_> = parts.keys().map(String::as_str).collect();
        let listed = named(&names, MAX_BYTES_OF_PARTS).map(|listed| format!("shortened: {listed}"));
        outline["$comment"] = listed.unwrap_or_else(|| "shortened".to_owned()).into();
    }
    outline
}

/// Removes the definitions to which nothing refers.
fn remove_unused(schema: &mut Value) {
    for key in ["$defs", "definitions"] {
        let Some(Value::Object(mut definitions)) = schema.get_mut(key).map(Value::take) else { continue };
        let rest = schema.to_string();
        let texts: Vec<_> = definitions.values().map(Value::to_string).collect();
        definitions.retain(|name, _| {
            let reference = format!("#/{key}/{name}");
            rest.contains(&reference) || texts.iter().any(|text| text.contains(&reference))
        });
        if definitions.is_empty() {
            schema.as_object_mut().and_then(|fields| fields.remove(key));
        } else {
            schema[key] = definitions.into();
        }
    }
}

/// Marks an object whose parameters were cut.
fn mark(fields: &mut Map<String, Value>) {
    if fields.contains_key("properties") {
        fields.entry("$comment").or_insert_with(|| "descriptions are left out".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_hit(schema: &Value) -> (Value, bool) {
        let Shortened { schema, is_cut } = shorten_for(&raw(schema), "add labels to an issue");
        (serde_json::from_str(schema.get()).expect("JSON"), is_cut)
    }

    fn shortened(schema: &Value) -> (Value, bool) {
        let Shortened { schema, is_cut } = shorten(&raw(schema));
        (serde_json::from_str(schema.get()).expect("JSON"), is_cut)
    }

    #[test]
    fn a_small_schema_is_printed_as_it_is() {
        let schema = json!({"type": "object", "properties": {"to": {"type": "string", "examples": ["a"]}}});
        assert_eq!(shortened(&schema), (schema, false));
    }

    #[test]
    fn a_large_schema_keeps_its_upper_parameters_and_says_where_it_is_cut() {
        let mut schema = json!({"type": "string", "description": "A word. ".repeat(20)});
        for level in (0..6).rev() {
            schema = json!({"type": "object", "properties": {
                (format!("level_{level}")): schema,
                (format!("note_{level}")): {"type": "string", "description": "What it is for, in a sentence. ".repeat(30)},
            }});
        }
        let (cut, is_cut) = shortened(&schema);
        assert!(is_cut && cut.to_string().len() < schema.to_string().len() / 2, "{cut}");
        let upper = &cut["properties"]["level_0"]["properties"];
        assert_eq!(upper["note_1"]["description"], "What it is for, in a sentence. ".repeat(6).trim_end());
        assert!(cut.to_string().contains("\"$comment\":\"shortened: level_"), "{cut}");
    }

    #[test]
    fn of_a_large_schema_what_must_be_given_and_what_the_query_names_comes_first() {
        let about = |name: &str| json!({"type": "string", "description": format!("The {name}. ").repeat(30)});
        let others: Vec<_> = (0..40).map(|number| format!("field_{number}")).collect();
        let names = others.iter().map(String::as_str).chain(["title", "label_ids"]);
        let properties: Map<String, Value> = names.map(|name| (name.to_owned(), about(name))).collect();
        let (cut, is_cut) = of_hit(&json!({"type": "object", "required": ["title"], "properties": properties}));
        assert!(is_cut && compact_bytes(&cut["properties"]) < MAX_BYTES_OF_HIT, "{cut}");
        let described: Vec<_> = cut["properties"].as_object().expect("an object").keys().map(String::as_str).collect();
        assert!(described.starts_with(&["title", "label_ids", "field_0"]) && described.len() < 12, "{described:?}");
        let comment = cut["$comment"].as_str().expect("a text");
        assert!(comment.starts_with("shortened; also optional: field_") && comment.ends_with(" more"), "{comment}");
        assert!(!of_hit(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).1);
    }

    #[test]
    fn of_a_large_object_that_must_be_given_its_optional_parts_are_counted() {
        let parts: Map<String, Value> =
            (0..60).map(|number| (format!("part_{number}"), json!({"type": "number"}))).collect();
        let entity = json!({"type": "object", "required": ["part_50"], "properties": parts});
        let (cut, is_cut) =
            of_hit(&json!({"type": "object", "required": ["entity"], "properties": {"entity": entity}}));
        let entity = &cut["properties"]["entity"];
        let left: Vec<_> = entity["properties"].as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!((is_cut, left.last(), left.len()), (true, Some(&"part_50"), 5), "{cut}");
        assert_eq!(entity["$comment"], "shortened; 55 more are optional");
    }

    #[test]
    fn the_names_of_fields_that_a_schema_does_not_have_stay() {
        let about = "When it starts, in words. ".repeat(3);
        for (text, chars, expected) in [
            ("A day. Fields: date, zone.", 200, Some("A day. Fields: date, zone")),
            ("A day. Fields: date, zone.", 0, Some("Fields: date, zone")),
            ("Fields: date, zone.", 80, Some("Fields: date, zone")),
            (&format!("{about}Fields: date."), 50, Some("When it starts, in words. Fields: date")),
            ("A day.", 0, None),
        ] {
            assert_eq!(shorten_text(text, chars).as_deref(), expected, "{text}");
        }
        let many: Vec<_> = (0..30).map(|number| format!("field_{number}")).collect();
        let text = shorten_text(&format!("Fields: {}.", many.join(", ")), 0).expect("names");
        assert!(text.len() < 90 && text.ends_with(" more"), "{text}");
    }

    #[test]
    fn of_many_parameters_the_optional_ones_lose_their_words_first() {
        let field = || json!({"type": "string", "description": "What it is for, in a sentence. ".repeat(3)});
        let properties: Map<String, Value> = (0..40).map(|number| (format!("field_{number}"), field())).collect();
        let (cut, is_cut) = shortened(&json!({"type": "object", "required": ["field_7"], "properties": properties}));
        assert!(is_cut && compact_bytes(&cut) <= MAX_BYTES, "{cut}");
        assert_eq!(cut["properties"]["field_7"], field());
        assert_eq!(cut["properties"]["field_8"]["type"], "string");
        assert_eq!(cut["properties"].as_object().map(Map::len), Some(40));
    }

    #[test]
    fn formalities_are_left_out_wherever_they_stand() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "minLength": 1, "description": "\"minLength\":1, and \"additionalProperties\":false"},
                "b": {"minLength": 1},
                "c": {"type": "string", "minLength": 10},
                "d": {"additionalProperties": false, "type": "object"},
                "e": {"type": "string", "minLength": 1},
            },
            "additionalProperties": false,
        });
        let left: Value = serde_json::from_str(without_formalities(raw(&schema)).get()).expect("JSON");
        let expected = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "description": "\"minLength\":1, and \"additionalProperties\":false"},
                "b": {"minLength": 1},
                "c": {"type": "string", "minLength": 10},
                "d": {"type": "object"},
                "e": {"type": "string"},
            },
        });
        assert_eq!(left, expected);
    }

    #[test]
    fn many_choices_are_named_in_words() {
        let choices: Vec<_> = (0..2000).map(|number| format!("choice-{number}")).collect();
        let (cut, is_cut) = shortened(&json!({"properties": {"zone": {"type": "string", "enum": choices}}}));
        let zone = &cut["properties"]["zone"];
        assert!(is_cut && zone.get("enum").is_none(), "{zone}");
        let text = zone["description"].as_str().expect("a text");
        assert!(text.starts_with("One of \"choice-0\", ") && text.ends_with("\"choice-29\" and 1970 more"), "{text}");
    }

    #[test]
    fn what_nothing_refers_to_is_left_out_and_what_lies_too_deep_is_marked() {
        let definitions: Map<String, Value> = (0..40)
            .map(|number| (format!("d{number}"), json!({"type": "string", "description": "Long. ".repeat(20)})))
            .collect();
        let deep = json!({"type": "object", "required": ["sub"], "properties": {
            "sub": {"type": "object", "required": ["s"], "properties": {"s": {"type": "string"}}},
            "text": {"type": "string", "description": "Words. ".repeat(200)},
        }});
        let (cut, is_cut) = of_hit(&json!({"type": "object", "required": ["item", "one"], "$defs": definitions,
            "properties": {"item": deep, "one": {"$ref": "#/$defs/d7"}}}));
        assert_eq!((is_cut, cut["$defs"].as_object().map(Map::len)), (true, Some(1)), "{cut}");
        let sub = &cut["properties"]["item"]["properties"]["sub"];
        assert!(sub["properties"].is_object() || sub["$comment"] == "shortened: s", "{cut}");
    }
}
