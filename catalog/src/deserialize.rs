//! A strict serde deserializer from JSON values, with messages for the author of a definition.
//!
//! Unlike `serde_json` it does not accept an array where an object is expected. No message quotes a value, because the
//! author may have written a secret instead of its name. What a definition means is up to `load.rs`.

use std::fmt;

use ground::config::secret::SecretName;
use protocol::nearest::{did_you_mean, nearest};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

/// Shorter values are not removed from messages: they would match by accident, and no secret is that short.
const MIN_SECRET_CHARS: usize = 6;

/// The most mistakes that are listed for one definition.
const MAX_MISTAKES: usize = 20;

/// Deserializes `value`. An error comes with its location as a path of keys, `None` for the value itself.
pub(super) fn deserialize<T: DeserializeOwned>(value: &Value) -> Result<T, (Option<String>, ReadError)> {
    read(value).map_err(|(path, error)| (shown(&path), error))
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, (Path, ReadError)> {
    serde_path_to_error::deserialize(ValueReader(value)).map_err(|error| (error.path().clone(), error.into_inner()))
}

fn shown(path: &Path) -> Option<String> {
    Some(path.to_string()).filter(|path| path != ".")
}

/// Every mistake in a value, and what is left of the value without them.
#[derive(Debug)]
pub(super) struct Mended<T> {
    /// `None` if too little is left.
    pub(super) value: Option<T>,
    /// Places and messages, in the order in which they were found.
    pub(super) mistakes: Vec<LocatedMessage>,
    /// The places that were removed or filled in: what is found there later says nothing.
    pub(super) changed: Vec<String>,
}

/// Deserializes `value` as far as possible: takes out each part that does not fit, notes it, and goes on.
pub(super) fn deserialize_mending<T: DeserializeOwned>(value: &Value) -> Mended<T> {
    let mut rest = value.clone();
    let mut mended = Mended { value: None, mistakes: Vec::new(), changed: Vec::new() };
    while mended.mistakes.len() < MAX_MISTAKES && mended.changed.len() < 2 * MAX_MISTAKES {
        let (path, error) = match read(&rest) {
            Ok(value) => {
                mended.value = Some(value);
                break;
            }
            Err(found) => found,
        };
        let place = shown(&path);
        let is_filled_in = match &error {
            ReadError::Missing(key) => {
                let missing = place.as_ref().map_or_else(|| (*key).to_owned(), |place| format!("{place}.{key}"));
                if !mended.changed.contains(&missing) {
                    mended.mistakes.push((place, error.to_string()));
                }
                mended.changed.push(missing);
                fill_in::<T>(&mut rest, &path, key)
            }
            ReadError::Invalid(message) => {
                mended.changed.extend(place.clone());
                mended.mistakes.push((place, message.clone()));
                let removed = take_out(&mut rest, &path);
                mended.changed.extend(removed.clone());
                removed.is_some()
            }
        };
        if !is_filled_in {
            break;
        }
    }
    mended
}

/// Puts some value under `key`, which is missing at `path`. Returns whether one fits.
fn fill_in<T: DeserializeOwned>(rest: &mut Value, path: &Path, key: &str) -> bool {
    let candidates = [
        json!("x"),
        json!("1s"),
        json!("https://a.example"),
        json!("secret:x"),
        json!({}),
        json!(["x"]),
        json!([]),
        json!(1),
        json!({"builtin": {"list_files": {}}}),
    ];
    for candidate in candidates {
        let mut filled = rest.clone();
        let Some(Value::Object(fields)) = deepest(&mut filled, path).1 else { return false };
        fields.insert(key.to_owned(), candidate);
        let place = shown(path).map_or_else(|| key.to_owned(), |place| format!("{place}.{key}"));
        let fits = match read::<T>(&filled) {
            Ok(_) => true,
            Err((other, _)) => !shown(&other).is_some_and(|other| other.starts_with(&place)),
        };
        if fits {
            *rest = filled;
            return true;
        }
    }
    false
}

/// Removes what lies at `path`, or the last part of it that exists, and returns its place. An object with a choice is
/// removed as a whole, since it would have none.
fn take_out(rest: &mut Value, path: &Path) -> Option<String> {
    let segments: Vec<_> = path.iter().collect();
    let mut last = deepest(rest, path).0.checked_sub(1)?;
    while last > 0 && matches!(segments[last], Segment::Enum { .. }) {
        last -= 1;
    }
    let mut parent = &mut *rest;
    for segment in &segments[..last] {
        parent = child(parent, segment)?;
    }
    match (parent, segments[last]) {
        (Value::Object(fields), Segment::Map { key } | Segment::Enum { variant: key }) => {
            fields.remove(key).map(drop)?;
        }
        (Value::Array(items), Segment::Seq { index }) if *index < items.len() => drop(items.remove(*index)),
        _ => return None,
    }
    let place = segments[..=last].iter().fold(String::new(), |place, segment| match segment {
        Segment::Seq { index } => format!("{place}[{index}]"),
        segment if place.is_empty() => segment.to_string(),
        segment => format!("{place}.{segment}"),
    });
    Some(place)
}

/// Returns the last value along `path` that exists, and how many segments lead to it.
fn deepest<'a>(value: &'a mut Value, path: &Path) -> (usize, Option<&'a mut Value>) {
    let segments: Vec<_> = path.iter().collect();
    let mut depth = 0;
    let mut known = &*value;
    while let Some(next) = segments.get(depth).and_then(|segment| child_of(known, segment)) {
        known = next;
        depth += 1;
    }
    let mut current = value;
    for segment in &segments[..depth] {
        let Some(next) = child(current, segment) else { return (depth, None) };
        current = next;
    }
    (depth, Some(current))
}

fn child_of<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
    match segment {
        Segment::Map { key } | Segment::Enum { variant: key } => value.get(key.as_str()),
        Segment::Seq { index } => value.get(*index),
        Segment::Unknown => None,
    }
}

fn child<'a>(value: &'a mut Value, segment: &Segment) -> Option<&'a mut Value> {
    match segment {
        Segment::Map { key } | Segment::Enum { variant: key } => value.get_mut(key.as_str()),
        Segment::Seq { index } => value.get_mut(*index),
        Segment::Unknown => None,
    }
}

/// The location of a mistake, `None` for the whole value, and a message.
pub(super) type LocatedMessage = (Option<String>, String);

/// Why a value does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// A required key is missing.
    Missing(&'static str),
    Invalid(String),
}

impl std::error::Error for ReadError {}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(key) => write!(f, "missing field `{key}`"),
            Self::Invalid(message) => f.write_str(message),
        }
    }
}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Invalid(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Invalid(format!("expected {}, found {}", expected_type(expected), found_type(found)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Invalid(format!("expected {}", expected_type(expected)))
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        Self::Invalid(unknown("choice", found, known))
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        Self::Invalid(unknown("field", found, known))
    }

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key)
    }
}

/// Suggests the most similar of the known names, or lists all of them.
fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    let hint = did_you_mean(nearest(found, known.iter().copied(), 1))
        .unwrap_or_else(|| format!("expected {}", joined(known, "or")));
    format!("unknown {what} `{found}`; {hint}")
}

/// Removes the values of `run` from `message`: any of them may be a secret that was written instead of its name, and
/// messages are cached and displayed. The location still says which value is meant.
pub(super) fn without_values(mut message: String, run: Option<&Value>) -> String {
    match run {
        Some(Value::String(text)) => {
            if text.len() >= MIN_SECRET_CHARS && SecretName::in_reference(text).is_none() {
                message = message.replace(text, "…");
            }
            message
        }
        Some(Value::Array(items)) => items.iter().fold(message, |message, item| without_values(message, Some(item))),
        Some(Value::Object(fields)) => {
            fields.values().fold(message, |message, field| without_values(message, Some(field)))
        }
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => message,
    }
}

/// Describes what a type expects in terms of JSON.
fn expected_type(expected: &dyn Expected) -> String {
    match expected.to_string().as_str() {
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" => "a whole number of at least 0".to_owned(),
        other => other.to_owned(),
    }
}

/// Describes what was found without quoting it.
fn found_type(found: Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Str(_) => "a string",
        Unexpected::Unit => "null",
        Unexpected::Seq => "an array",
        Unexpected::Map => "an object",
        _ => "something else",
    }
}

/// Joins quoted names: `a`, `b` and `c`.
fn joined(names: &[&str], conjunction: &str) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

/// A JSON value as a deserializer.
#[derive(Clone, Copy)]
struct ValueReader<'de>(&'de Value);

impl<'de> ValueReader<'de> {
    fn unexpected(self) -> Unexpected<'de> {
        match self.0 {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(_) => Unexpected::Float(0.0),
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for ValueReader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for ValueReader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., number) => visitor.visit_f64(number.unwrap_or_default()),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.iter().map(ValueReader));
                let value = visitor.visit_seq(&mut items)?;
                items.end().map(|()| value)
            }
            Value::Object(fields) => {
                let mut fields =
                    MapDeserializer::new(fields.iter().map(|(key, value)| (key.as_str(), ValueReader(value))));
                let value = visitor.visit_map(&mut fields)?;
                fields.end().map(|()| value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(de::Error::invalid_type(self.unexpected(), &"an object")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(choice) => visitor.visit_enum(EnumReader { choice, content: None }),
            Value::Object(fields) => match fields.iter().collect::<Vec<_>>().as_slice() {
                [(choice, content)] => visitor.visit_enum(EnumReader { choice, content: Some(ValueReader(content)) }),
                keys => {
                    let found: Vec<_> = keys.iter().map(|(choice, _)| choice.as_str()).collect();
                    Err(ReadError::Invalid(not_exactly_one(name, &found, choices)))
                }
            },
            _ => Err(de::Error::invalid_type(self.unexpected(), &joined(choices, "or").as_str())),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The message for an object that must have exactly one key of `choices` and has `found`.
fn not_exactly_one(name: &str, found: &[&str], choices: &[&str]) -> String {
    let what = match name {
        "Run" => "runner",
        "Auth" => "kind of authentication",
        "Body" => "kind of body",
        "Builtin" => "function",
        _ => "choice",
    };
    match found {
        [] => format!("expected exactly one {what}: {}", joined(choices, "or")),
        found => format!("expected exactly one {what}, found {}", joined(found, "and")),
    }
}

/// An enum value: a string, or an object with one key.
struct EnumReader<'de> {
    choice: &'de str,
    content: Option<ValueReader<'de>>,
}

impl<'de> EnumAccess<'de> for EnumReader<'de> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ReadError> {
        Ok((seed.deserialize(self.choice.into_deserializer())?, self))
    }
}

impl<'de> EnumReader<'de> {
    fn content(&self) -> Result<ValueReader<'de>, ReadError> {
        let choice = self.choice;
        self.content
            .ok_or_else(|| ReadError::Invalid(format!("`{choice}` needs a value; write it as {{\"{choice}\": …}}")))
    }
}

impl<'de> VariantAccess<'de> for EnumReader<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.content {
            None => Ok(()),
            Some(_) => Err(ReadError::Invalid(format!("`{0}` takes no value; write it as \"{0}\"", self.choice))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ReadError> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}
