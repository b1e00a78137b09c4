//! Shortens schemas that cost a model more than they tell it: what lies deep in a large one is cut, and marked.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Smaller schemas are printed whole: about 1,000 tokens.
const MAX_BYTES: usize = 4_000;
/// Those of hits of a query are printed whole if they are smaller.
const MAX_BYTES_OF_HIT: usize = 2_000;
/// Shorter words of a query say nothing about a parameter.
const MIN_WORD_CHARS: usize = 3;
/// How many parameters a word of a query chooses, at most.
const MAX_NAMED_BY_WORD: usize = 3;
/// Parameters that callers mostly give, whatever they ask for.
const USUAL: [&str; 16] = [
    "attendees",
    "body",
    "content",
    "description",
    "email",
    "end",
    "labels",
    "location",
    "message",
    "name",
    "start",
    "subject",
    "summary",
    "text",
    "title",
    "to",
];
/// How deep objects are described, and how long the descriptions of parameters that may be left out are, in characters;
/// from the least that is cut to the most.
const CUTS: [(usize, usize); 6] = [(4, 200), (3, 200), (2, 200), (1, 200), (1, 80), (1, 0)];
/// Longer descriptions of parameters that must be given are cut after a sentence once the schema is too large.
const MAX_DESCRIPTION_CHARS: usize = 200;
/// How many choices are listed once the schema is too large.
const MAX_CHOICES: usize = 30;

/// A schema as it is printed.
pub(super) struct Shortened {
    pub(super) schema: Box<RawValue>,
    pub(super) is_cut: bool,
}

/// Returns `schema`, shortened if it is large.
pub(super) fn shorten(schema: &RawValue) -> Shortened {
    shorten_to(schema, MAX_BYTES, |_| ())
}

/// Like [`shorten`], for a hit of `query`: of a large schema only the parameters that it requires or that the query names
/// are described, and the others named.
pub(super) fn shorten_for(schema: &RawValue, query: &str) -> Shortened {
    shorten_to(schema, MAX_BYTES_OF_HIT, |parsed| keep_named(parsed, query))
}

/// Shortens `schema` to the parameters that it requires, whatever its size.
pub(super) fn keep_required(schema: &RawValue) -> Shortened {
    shorten_to(schema, 0, |parsed| keep_named(parsed, ""))
}

/// `schema` without what a caller takes for granted: that there are no other parameters, and that a text is not empty.
pub(super) fn without_formalities(schema: Box<RawValue>) -> Box<RawValue> {
    // In a string the quotation marks would be escaped, so these are keys.
    const FORMALITIES: [(&str, &str); 4] = [
        (",\"additionalProperties\":false", ""),
        ("\"additionalProperties\":false,", ""),
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

fn shorten_to(schema: &RawValue, max_bytes: usize, prepare: impl Fn(&mut Value)) -> Shortened {
    let whole = || Shortened { schema: schema.to_owned(), is_cut: false };
    if schema.get().len() <= max_bytes {
        return whole();
    }
    let Ok(mut parsed) = serde_json::from_str::<Value>(schema.get()) else { return whole() };
    prepare(&mut parsed);
    let mut shortest = None;
    for (depth, chars_of_optional) in CUTS {
        let mut cut = parsed.clone();
        shorten_at(&mut cut, &SchemaCut { depth, chars: MAX_DESCRIPTION_CHARS, chars_of_optional });
        let text = serde_json::value::to_raw_value(&cut).expect("a JSON value can be written as JSON");
        let fits = text.get().len() <= max_bytes;
        shortest = Some(text);
        if fits {
            break;
        }
    }
    match shortest {
        Some(cut) if cut.get().len() < schema.get().len() => Shortened { schema: cut, is_cut: true },
        _ => whole(),
    }
}

/// Keeps the parameters that are required, that `query` names, or that callers mostly give. The others are only named. A
/// word that many parameters have is that of the thing itself, and chooses none of them.
fn keep_named(schema: &mut Value, query: &str) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let query = query.to_lowercase();
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let has = |name: &str, word: &str| name.to_lowercase().contains(word);
    let is_rare = |word: &&str| properties.keys().filter(|name| has(name, word)).count() <= MAX_NAMED_BY_WORD;
    let words: Vec<_> = query
        .split(|character: char| !character.is_alphanumeric())
        .map(|word| word.strip_suffix('s').unwrap_or(word))
        .filter(|word| word.chars().count() >= MIN_WORD_CHARS)
        .filter(is_rare)
        .collect();
    let mut others = Vec::new();
    properties.retain(|name, _| {
        let is_usual = !query.is_empty() && USUAL.contains(&&*name.to_lowercase());
        let is_kept = is_usual || required.iter().any(|one| one == name) || words.iter().any(|word| has(name, word));
        if !is_kept {
            others.push(name.clone());
        }
        is_kept
    });
    if let Some(fields) = schema.as_object_mut().filter(|_| !others.is_empty()) {
        fields.insert("$comment".to_owned(), format!("shortened; also optional: {}", others.join(", ")).into());
    }
}

/// How much of a schema is left.
struct SchemaCut {
    /// How many levels of objects below it are described.
    depth: usize,
    /// How long its description is at most; at 0, it is left out.
    chars: usize,
    /// The same for the parameters below that may be left out.
    chars_of_optional: usize,
}

impl SchemaCut {
    /// The cut of a parameter one level below; `None` if that lies too deep.
    fn of_parameter(&self, is_required: bool) -> Option<Self> {
        let chars = if is_required { self.chars } else { self.chars_of_optional };
        Some(Self { depth: self.depth.checked_sub(1)?, chars, chars_of_optional: self.chars_of_optional })
    }
}

fn shorten_at(schema: &mut Value, cut: &SchemaCut) {
    let Value::Object(fields) = schema else { return };
    match fields.get_mut("description") {
        Some(_) if cut.chars == 0 => drop(fields.remove("description")),
        Some(Value::String(text)) => shorten_text(text, cut.chars),
        _ => {}
    }
    if let Some(Value::Array(choices)) = fields.get_mut("enum")
        && choices.len() > MAX_CHOICES
    {
        let more = choices.len() - MAX_CHOICES;
        choices.truncate(MAX_CHOICES);
        choices.push(format!("… {more} more").into());
    }
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

/// What is left of a parameter that lies too deep: its type.
fn outline(schema: &Value) -> Value {
    match schema.get("type") {
        Some(kind) => json!({"type": kind}),
        None => json!({}),
    }
}

/// Marks an object whose parameters were cut.
fn mark(fields: &mut Map<String, Value>) {
    if fields.contains_key("properties") {
        fields.entry("$comment").or_insert_with(|| "shortened".into());
    }
}

fn shorten_text(text: &mut String, max_chars: usize) {
    let Some((end, _)) = text.char_indices().nth(max_chars) else { return };
    let end = text[..end].rfind(". ").map_or(end, |sentence| sentence + 1);
    text.truncate(end);
    if !text.ends_with('.') {
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(schema: &Value) -> (Value, bool) {
        let raw = serde_json::value::to_raw_value(schema).expect("JSON");
        let Shortened { schema, is_cut } = shorten(&raw);
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
        assert!(cut.to_string().contains("\"$comment\":\"shortened\""), "{cut}");
    }

    #[test]
    fn of_a_large_schema_a_query_describes_what_is_required_and_what_it_names() {
        let about = |name: &str| json!({"type": "string", "description": format!("The {name}. ").repeat(30)});
        let names = ["title", "label_ids", "assignee", "milestone", "is_locked"];
        let properties: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), about(name))).collect();
        let schema = json!({"type": "object", "required": ["title"], "properties": properties});
        let raw = serde_json::value::to_raw_value(&schema).expect("JSON");
        let Shortened { schema: cut, is_cut } = shorten_for(&raw, "add labels to an issue");
        let cut: Value = serde_json::from_str(cut.get()).expect("JSON");
        assert!(is_cut && cut.to_string().len() < MAX_BYTES_OF_HIT);
        let described: Vec<_> = cut["properties"].as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(described, ["title", "label_ids"]);
        assert_eq!(cut["$comment"], "shortened; also optional: assignee, milestone, is_locked");
        let small = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let raw = serde_json::value::to_raw_value(&small).expect("JSON");
        assert!(!shorten_for(&raw, "anything").is_cut);
    }

    #[test]
    fn of_many_parameters_the_optional_ones_lose_their_words_first() {
        let field = || json!({"type": "string", "description": "What it is for, in a sentence. ".repeat(3)});
        let properties: Map<String, Value> = (0..40).map(|number| (format!("field_{number}"), field())).collect();
        let (cut, is_cut) = shortened(&json!({"type": "object", "required": ["field_7"], "properties": properties}));
        assert!(is_cut && cut.to_string().len() <= MAX_BYTES, "{cut}");
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
        let raw = serde_json::value::to_raw_value(&schema).expect("JSON");
        let left: Value = serde_json::from_str(without_formalities(raw).get()).expect("JSON");
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
    fn many_choices_are_counted() {
        let choices: Vec<_> = (0..2000).map(|number| format!("choice-{number}")).collect();
        let (cut, is_cut) = shortened(&json!({"properties": {"zone": {"enum": choices}}}));
        assert!(is_cut);
        assert_eq!(cut["properties"]["zone"]["enum"].as_array().map(Vec::len), Some(31));
        assert_eq!(cut["properties"]["zone"]["enum"][30], "… 1970 more");
    }
}
