//! Schemas of descriptions, made fit for a model and for the catalog: JSON Schema 2020-12 without references.
//!
//! Real schemas are not clean. What has a plain meaning is converted, and everything else is dropped, so that the
//! schema allows more: the server refuses what is wrong. What was changed so is said in [`Cleaned::loosened`].
//!
//! References are expanded. Cycles, and objects that lie deeper than a model ever fills in, are cut: such an object
//! keeps the names of its fields in its description. The number of schemas of one input is bounded, so expanding ends.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use protocol::sentences::{FIELDS, first_sentence};
use serde_json::{Map, Value, json};

use crate::describe;
use keywords::{enumeration, format_of, number_limits, type_of};

mod composition;
pub(crate) mod defaults;
mod keywords;

/// How many levels of objects an input has unless the user wants more or fewer.
pub(crate) const DEFAULT_DEPTH: usize = 4;
/// The largest input schema in bytes of JSON; one that is larger is cut at fewer levels.
pub(crate) const MAX_INPUT_BYTES: usize = 8 << 10;
/// The most schemas that are expanded for one input: more than fit into [`MAX_INPUT_BYTES`].
const MAX_SCHEMAS: usize = 400;
/// The most that are expanded if an input has only one level: it may have many fields.
const MAX_FIELDS: usize = 2_000;
/// The longest chain of references.
const MAX_REFERENCES: usize = 32;
/// The most fields of an object inside the input; a model does not choose among more.
const MAX_INNER_FIELDS: usize = 60;
/// The most characters of the names of fields that a cut object lists.
const MAX_LISTED_CHARS: usize = 160;
/// The longest example that a description takes over.
const MAX_EXAMPLE_CHARS: usize = 40;

/// How references and types are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenApi,
    /// Google's discovery documents: `"$ref": "Message"` means `#/schemas/Message`.
    Discovery,
}

/// Cleans the schemas of one description.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schemas<'a> {
    pub(crate) root: &'a Value,
    pub(crate) dialect: Dialect,
    /// Whether deprecated fields are kept.
    pub(crate) full: bool,
    pub(crate) texts: &'a describe::FieldTexts,
}

/// The state of cleaning the schemas of one input.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    /// What was dropped or changed so that more is allowed than the description says.
    pub(crate) loosened: BTreeSet<String>,
    /// Whether objects were cut.
    pub(crate) is_cut: bool,
    /// The levels of objects that are kept.
    depth: usize,
    /// How many schemas were expanded.
    schemas: usize,
    /// The references that lead to the schema in work.
    path: Vec<String>,
    /// The references to whole entities, while the body of a PATCH is read.
    pub(crate) entities: Option<Rc<HashSet<String>>>,
    /// Whether the schema in work says what a whole entity has, of which a PATCH sends a part.
    pub(crate) is_partial: bool,
    /// Whether the executor fills in no defaults there: in alternatives, and in fields of any name.
    pub(crate) is_unfilled: bool,
    /// How many more levels are kept of the schema in work: one of a field that a caller has to give.
    more_levels: usize,
    /// The method whose body is read: documents of Google say of a field for which methods it is required.
    pub(crate) method: Option<Rc<str>>,
}

impl Cleaned {
    pub(crate) fn with_depth(depth: usize) -> Self {
        Self { depth: depth.max(1), ..Self::default() }
    }

    /// Whether the input has more schemas than one of [`MAX_INPUT_BYTES`] can have, so that fewer levels must be tried.
    pub(crate) fn is_too_large(&self) -> bool {
        self.schemas > if self.depth == 1 { MAX_FIELDS } else { MAX_SCHEMAS }
    }

    fn loosen(&mut self, what: impl Into<String>) {
        self.loosened.insert(what.into());
    }
}

impl<'a> Schemas<'a> {
    /// Follows the references of `value`, which may be a schema, a parameter or a response. `None` if one leads
    /// nowhere or the chain does not end.
    pub(crate) fn resolve(&self, value: &'a Value) -> Option<&'a Value> {
        let mut value = value;
        for _ in 0..MAX_REFERENCES {
            match value.get("$ref").and_then(Value::as_str) {
                Some(reference) => value = self.target(reference)?,
                None => return Some(value),
            }
        }
        None
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        match self.dialect {
            Dialect::Discovery => self.root.get("schemas")?.get(reference),
            Dialect::OpenApi => {
                let pointer = reference.strip_prefix('#')?;
                // A pointer in a URL is percent-encoded; most descriptions write it as it is.
                self.root.pointer(pointer).or_else(|| self.root.pointer(&percent_decoded(pointer)))
            }
        }
    }

    /// The fields of an object schema, also those of its references and of `allOf`; for looking at a response.
    pub(crate) fn fields(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let mut fields = Vec::new();
        let mut open = vec![schema];
        for _ in 0..MAX_REFERENCES {
            let Some(schema) = open.pop() else { break };
            let Some(schema) = self.resolve(schema) else { continue };
            let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
            fields.extend(own.map(|(name, field)| (name.as_str(), field)));
            open.extend(schema.get("allOf").and_then(Value::as_array).into_iter().flatten());
        }
        fields
    }

    /// Cleans `schema`, which lies `level` objects deep in the input.
    pub(crate) fn clean(&self, schema: &'a Value, level: usize, state: &mut Cleaned) -> Map<String, Value> {
        state.schemas += 1;
        if state.is_too_large() {
            state.is_cut = true;
            return Map::new();
        }
        let Value::Object(own) = schema else { return Map::new() };
        let Some(reference) = own.get("$ref").and_then(Value::as_str) else {
            return self.clean_object(own, level, state);
        };
        let Some(target) = self.target(reference) else {
            state.loosen(format!("the reference `{reference}` leads nowhere"));
            return beside_reference(Map::new(), own, "");
        };
        if state.path.iter().filter(|known| *known == reference).count() > 0 || state.path.len() > MAX_REFERENCES {
            state.is_cut = true;
            let cut = self.cut(target);
            return beside_reference(cut, own, &self.text_of(target));
        }
        state.path.push(reference.to_owned());
        let is_entity = level == 0 && state.entities.as_ref().is_some_and(|known| known.contains(reference));
        let was_partial = state.is_partial;
        state.is_partial |= is_entity;
        let cleaned = self.clean(target, level, state);
        state.is_partial = was_partial;
        state.path.pop();
        beside_reference(cleaned, own, &self.text_of(target))
    }

    /// What a schema says of itself, also by a reference.
    fn text_of(&self, schema: &'a Value) -> String {
        let own = self.resolve(schema).unwrap_or(schema);
        let text = own.get("description").or_else(|| own.get("title")).and_then(Value::as_str);
        text.map(|text| self.texts.field(text)).unwrap_or_default()
    }

    fn clean_object(&self, own: &'a Map<String, Value>, level: usize, state: &mut Cleaned) -> Map<String, Value> {
        let mut cleaned = Map::new();
        let kinds = type_of(own, state);
        if !kinds.is_empty() {
            let kinds: Vec<Value> = kinds.iter().map(|kind| (*kind).into()).collect();
            let kind = if kinds.len() == 1 { kinds[0].clone() } else { Value::Array(kinds) };
            cleaned.insert("type".to_owned(), kind);
        }
        if let Some(text) = own.get("description").or_else(|| own.get("title")).and_then(Value::as_str) {
            let text = self.texts.field(text);
            if !text.is_empty() {
                cleaned.insert("description".to_owned(), text.into());
            }
        }
        enumeration(own, &mut cleaned, self.full, state);
        format_of(own, &mut cleaned);
        number_limits(own, &mut cleaned, level, state);
        if kinds.contains(&"array") {
            self.items(own, level, &mut cleaned, state);
        }
        if kinds.contains(&"object") {
            self.object(own, level, &mut cleaned, state);
        }
        self.compose(own, level, &mut cleaned, state);
        for keyword in ["not", "if", "dependentSchemas", "dependencies", "patternProperties", "contains"] {
            if own.contains_key(keyword) {
                state.loosen(format!("`{keyword}` is left to the server"));
            }
        }
        if let Some(hint) = hint(own) {
            append_description(&mut cleaned, &hint);
        }
        cleaned
    }

    fn items(&self, own: &'a Map<String, Value>, level: usize, cleaned: &mut Map<String, Value>, state: &mut Cleaned) {
        let items = match own.get("items").or_else(|| own.get("prefixItems")) {
            Some(Value::Array(items)) => {
                state.loosen("a list with a schema for each place has the schema of the first one");
                items.first().filter(|_| items.len() == 1)
            }
            items => items,
        };
        if let Some(items @ Value::Object(_)) = items {
            // What stands in a list replaces the whole list, so it is whole.
            let was_partial = std::mem::replace(&mut state.is_partial, false);
            let items = self.clean(items, level, state);
            state.is_partial = was_partial;
            if !items.is_empty() {
                cleaned.insert("items".to_owned(), items.into());
            }
        }
    }

    fn object(&self, own: &'a Map<String, Value>, level: usize, cleaned: &mut Map<String, Value>, state: &mut Cleaned) {
        let fields = own.get("properties").and_then(Value::as_object);
        if level >= state.depth + state.more_levels {
            if fields.is_some_and(|fields| !fields.is_empty()) {
                state.is_cut = true;
                append_description(cleaned, &listed(own));
            }
            return;
        }
        let is_partial = state.is_partial;
        let declared = own.get("required").and_then(Value::as_array).into_iter().flatten().filter(|_| !is_partial);
        let mut required: Vec<&str> = declared.filter_map(Value::as_str).collect();
        let mut is_declared: HashSet<&str> = required.iter().copied().collect();
        let (mut properties, mut is_open) = (Map::new(), false);
        for (name, field) in fields.into_iter().flatten() {
            if state.is_too_large() {
                // What follows would not be kept.
                is_open = true;
                break;
            }
            let is_unset = self.is_unset(field);
            if is_unset && !is_demanded(name, fields) {
                is_declared.remove(name.as_str());
                is_open = true;
                continue;
            }
            let is_marked = !is_partial && field.get("required") == Some(&Value::Bool(true));
            let is_required = is_declared.contains(name.as_str()) || is_marked;
            let is_of_method =
                level == 0 && state.method.as_deref().is_some_and(|method| is_required_by(field, method));
            if level > 0 && properties.len() >= MAX_INNER_FIELDS && !is_required {
                (state.is_cut, is_open) = (true, true);
                continue;
            }
            let is_needed = (is_required || is_of_method) && (level == 0 || state.more_levels > 0);
            let more_levels = std::mem::replace(&mut state.more_levels, is_needed.into());
            let mut cleaned = self.clean(field, level + 1, state);
            state.more_levels = more_levels;
            if is_unset {
                without_output_only(&mut cleaned);
            }
            if keywords::is_written_credential(name, self.resolve(field).unwrap_or(field)) {
                cleaned.insert("format".to_owned(), "password".into());
            }
            if is_required && !state.is_unfilled && defaults::keep(self.resolve(field), field, &mut cleaned) {
                is_declared.remove(name.as_str());
            } else if is_required && is_declared.insert(name.as_str()) {
                required.push(name);
            }
            properties.insert(name.clone(), cleaned.into());
        }
        let known = |name: &&str| properties.contains_key(*name) && is_declared.remove(*name);
        let required: Vec<Value> = required.into_iter().filter(known).map(Value::from).collect();
        let more = own.get("additionalProperties");
        if !properties.is_empty() {
            cleaned.insert("properties".to_owned(), properties.into());
        }
        if !required.is_empty() {
            cleaned.insert("required".to_owned(), required.into());
        }
        match more {
            Some(Value::Bool(false))
                if !is_open && ["allOf", "anyOf", "oneOf"].iter().all(|it| !own.contains_key(*it)) =>
            {
                cleaned.insert("additionalProperties".to_owned(), false.into());
            }
            Some(schema @ Value::Object(fields)) if !fields.is_empty() && !is_open => {
                let was_unfilled = std::mem::replace(&mut state.is_unfilled, true);
                let schema = self.clean(schema, level + 1, state);
                state.is_unfilled = was_unfilled;
                if !schema.is_empty() {
                    cleaned.insert("additionalProperties".to_owned(), schema.into());
                }
            }
            _ => {}
        }
    }

    /// Whether a caller never sets this field: the server does, or it is deprecated.
    pub(crate) fn is_unset(&self, field: &'a Value) -> bool {
        let resolved = self.resolve(field).unwrap_or(field);
        let is =
            |key: &str| field.get(key) == Some(&Value::Bool(true)) || resolved.get(key) == Some(&Value::Bool(true));
        let text = field.get("description").and_then(Value::as_str).unwrap_or_default();
        let is_output = || {
            let text = text.trim_start_matches(['[', '(', '*', '`']);
            text.get(.."output only".len()).is_some_and(|start| start.eq_ignore_ascii_case("output only"))
                || text.contains("@OutputOnly")
                || text.split(". ").any(|sentence| sentence.trim_end_matches('.').eq_ignore_ascii_case("read-only"))
                    && field.pointer("/annotations/required").is_none()
        };
        if is("readOnly") || self.dialect == Dialect::Discovery && is_output() {
            return true;
        }
        !self.full && (is("deprecated") || text.starts_with("Deprecated") || text.starts_with("DEPRECATED"))
    }

    /// A schema in place of one that was cut.
    fn cut(&self, target: &'a Value) -> Map<String, Value> {
        let mut cut = Map::new();
        let Value::Object(own) = self.resolve(target).unwrap_or(target) else { return cut };
        let kinds = type_of(own, &mut Cleaned::default());
        if let [kind] = kinds.as_slice() {
            cut.insert("type".to_owned(), (*kind).into());
        }
        if let Some(text) = own.get("description").and_then(Value::as_str) {
            cut.insert("description".to_owned(), first_sentence(&self.texts.field(text)).into());
        }
        append_description(&mut cut, &listed(own));
        cut
    }
}

/// Whether a document of Google says that the body of `method` must have the field.
pub(crate) fn is_required_by(field: &Value, method: &str) -> bool {
    let methods = field.pointer("/annotations/required").and_then(Value::as_array);
    methods.is_some_and(|methods| methods.iter().any(|known| known == method))
}

/// Whether another field's description says that `name` must be provided. Google marks such fields as output only.
fn is_demanded(name: &str, fields: Option<&Map<String, Value>>) -> bool {
    let quoted = format!("`{name}`");
    let descriptions = fields.into_iter().flatten().filter(|(other, _)| *other != name);
    let descriptions = descriptions.filter_map(|(_, field)| field.get("description")?.as_str());
    let mut sentences = descriptions.flat_map(|text| text.split_inclusive(". "));
    sentences.any(|sentence| sentence.contains("must provide") && sentence.contains(&quoted))
}

/// Removes the words that a caller never sets a field.
fn without_output_only(cleaned: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = cleaned.get_mut("description")
        && let Some(rest) = text.strip_prefix("Output only.")
    {
        *text = rest.trim_start().to_owned();
    }
}

/// Adds what stands beside a reference to the schema `cleaned`. Its description replaces that of the schema, `text`, but not what
/// was added to this, such as the fields of an object that was cut.
fn beside_reference(mut cleaned: Map<String, Value>, own: &Map<String, Value>, text: &str) -> Map<String, Value> {
    if let Some(instead) = own.get("description").and_then(Value::as_str) {
        let instead = describe::field(instead);
        if !instead.is_empty() {
            let said = cleaned.insert("description".to_owned(), instead.into());
            let said = said.as_ref().and_then(Value::as_str).unwrap_or_default();
            let added = said.strip_prefix(text).or_else(|| said.strip_prefix(first_sentence(text)));
            append_description(&mut cleaned, added.unwrap_or_default().trim_start_matches(['.', ' ']));
        }
    }
    if own.get("nullable") == Some(&Value::Bool(true)) {
        keywords::allow_null(&mut cleaned);
    }
    if let Some(text) = hint(own).filter(|_| own.contains_key("default")) {
        append_description(&mut cleaned, &text);
    }
    cleaned
}

/// What the default and the example say, as a sentence. A default is not written as one: it would be sent.
fn hint(own: &Map<String, Value>) -> Option<String> {
    let text = own.get("description").and_then(Value::as_str).unwrap_or_default();
    let shown = |value: &Value| {
        let shown = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return None,
        };
        let is_short = !shown.is_empty() && shown.chars().count() <= MAX_EXAMPLE_CHARS && !shown.contains('\n');
        is_short.then_some(shown)
    };
    if let Some(default) = own.get("default").and_then(shown) {
        return (!text.to_lowercase().contains("default")).then(|| format!("Default: {default}."));
    }
    let has_choices = own.contains_key("enum") || own.get("type") == Some(&json!("boolean"));
    let first = own.get("examples").and_then(Value::as_array).and_then(|examples| examples.first());
    let example = own.get("example").or(first).and_then(shown).filter(|_| !has_choices)?;
    let says_one = ["example", "e.g.", "for instance", "such as", "like `"];
    let says_one = says_one.iter().any(|words| text.to_lowercase().contains(words)) || text.contains(&example);
    (!says_one && own.get("type").is_none_or(|kind| kind == "string")).then(|| format!("Example: {example}"))
}

/// Keeps of the fields of a definition only what no loader refuses: their types, descriptions and choices.
pub(crate) fn loosen(definition: &mut Map<String, Value>) -> &'static str {
    let properties = definition.get_mut("input").and_then(|input| input.get_mut("properties"));
    for (_, schema) in properties.and_then(Value::as_object_mut).into_iter().flatten() {
        if let Value::Object(schema) = schema {
            schema.retain(|key, _| ["type", "description", "enum"].contains(&key.as_str()));
        }
    }
    "its input was simplified, since the loader refuses the declared one"
}

/// Says which fields a cut object has.
fn listed(own: &Map<String, Value>) -> String {
    let mut text = String::new();
    let fields = own.get("properties").and_then(Value::as_object);
    for name in fields.into_iter().flat_map(Map::keys) {
        if text.len() + name.len() > MAX_LISTED_CHARS {
            text.push_str(", …");
            break;
        }
        text.push_str(if text.is_empty() { "" } else { ", " });
        text.push_str(name);
    }
    if text.is_empty() { text } else { format!("{FIELDS}{text}.") }
}

/// Adds a sentence to the description of `schema`.
pub(crate) fn append_description(schema: &mut Map<String, Value>, sentence: &str) {
    if sentence.is_empty() {
        return;
    }
    let whole = match schema.get("description").and_then(Value::as_str) {
        Some(text) if text.contains(sentence) => return,
        Some(text) if text.ends_with(['.', '!', '?', '…', ':']) => format!("{text} {sentence}"),
        Some(text) => format!("{text}. {sentence}"),
        None => sentence.to_owned(),
    };
    schema.insert("description".to_owned(), whole.into());
}

/// Decodes `%7B`; a wrong encoding stays as it is.
pub(crate) fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let pair = bytes.get(index + 1..index + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        if let Some(byte) = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).filter(|_| bytes[index] == b'%') {
            decoded.push(byte);
            index += 3;
        } else {
            decoded.push(bytes[index]);
            index += 1;
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests;
