//! Hidden inputs: values that the input schema marks `writeOnly` or `"format": "password"`.
//!
//! Such a value is sealed when its task is accepted: the task holds a token in its place, and so does everything that
//! is made from the task. Only an attempt opens it. The same value always gives the same token, so the digest of an
//! approval, a grant and an idempotency key still mean that very value. The key lies beside the secrets.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::percent_decode_str;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde_json::{Map, Value};
use sha2::Sha256;

use crate::base::credential::HIDDEN;

/// What a token starts with. No input may contain such a text.
const PREFIX: &str = "sealed:1:";

const KEY_BYTES: usize = 32;

/// Seals and opens hidden inputs. The key is made when it is first needed.
#[derive(Default)]
pub struct Seal {
    /// The file of the key; without one, the key lasts as long as the process.
    file: Option<PathBuf>,
    key: OnceLock<[u8; KEY_BYTES]>,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Seal {
    pub fn at(file: PathBuf) -> Self {
        Self { file: Some(file), key: OnceLock::new() }
    }

    /// Replaces the values of `input` that `schema` hides. Returns the strings that were replaced.
    pub fn hide(&self, schema: &Map<String, Value>, input: &mut Map<String, Value>) -> io::Result<Vec<String>> {
        // Most schemas hide nothing, which is found without copying them.
        if !schema.iter().any(|(key, value)| may_hide(key, value)) {
            return Ok(Vec::new());
        }
        let root = Value::Object(schema.clone());
        let mut value = Value::Object(std::mem::take(input));
        let mut hidden = Vec::new();
        let done = self.hide_in(&root, &[&root], &mut value, &mut hidden);
        let Value::Object(fields) = value else { unreachable!("a hidden field stays inside its object") };
        *input = fields;
        done.map(|()| hidden)
    }

    /// Hides what any of `schemas` hides in `value`. Each schema is looked at once for each value, however many ways lead
    /// to it.
    fn hide_in(&self, root: &Value, schemas: &[&Value], value: &mut Value, hidden: &mut Vec<String>) -> io::Result<()> {
        if value.is_null() {
            return Ok(());
        }
        let schemas = all_of_one_value(root, schemas);
        // The input itself must stay an object.
        if schemas.iter().any(|schema| is_hidden(schema) && !std::ptr::eq(*schema, root)) {
            if !value.as_str().is_some_and(is_token) {
                collect(value, hidden);
                *value = self.token(value)?.into();
            }
            return Ok(());
        }
        match value {
            Value::Object(fields) => fields.iter_mut().try_for_each(|(name, field)| {
                let of_field: Vec<_> = schemas.iter().flat_map(|schema| of_property(schema, name)).collect();
                self.hide_in(root, &of_field, field, hidden)
            }),
            Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(index, item)| {
                let of_item: Vec<_> = schemas.iter().flat_map(|schema| of_item(schema, index)).collect();
                self.hide_in(root, &of_item, item, hidden)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Returns `input` with the true values, and the strings among these.
    pub fn reveal(&self, input: &Map<String, Value>) -> io::Result<(Map<String, Value>, Vec<String>)> {
        let mut value = Value::Object(input.clone());
        let mut hidden = Vec::new();
        self.reveal_in(&mut value, &mut hidden)?;
        let Value::Object(fields) = value else { unreachable!("an object stays an object") };
        Ok((fields, hidden))
    }

    fn reveal_in(&self, value: &mut Value, hidden: &mut Vec<String>) -> io::Result<()> {
        match value {
            Value::String(text) if is_token(text) => {
                *value = self.open(text)?;
                collect(value, hidden);
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.reveal_in(item, hidden)),
            Value::Object(fields) => fields.values_mut().try_for_each(|field| self.reveal_in(field, hidden)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn token(&self, value: &Value) -> io::Result<String> {
        let (key, mut text) = (self.key()?, serde_json::to_vec(value)?);
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is valid");
        mac.update(&text);
        // The nonce depends on nothing but the value, as in a synthetic initialization vector (RFC 5297).
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&mac.finalize().into_bytes()[..NONCE_LEN]);
        cipher(key)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PREFIX), &mut text)
            .map_err(|_| io::Error::other("failed to seal a hidden input"))?;
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat())))
    }

    fn open(&self, token: &str) -> io::Result<Value> {
        let failed = || io::Error::other("a hidden input cannot be opened: its key was lost");
        let mut bytes = URL_SAFE_NO_PAD.decode(&token[PREFIX.len()..]).map_err(|_| failed())?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(failed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
        let text = cipher(self.key()?).open_in_place(nonce, Aad::from(PREFIX), sealed).map_err(|_| failed())?;
        Ok(serde_json::from_slice(text)?)
    }

    fn key(&self) -> io::Result<&[u8; KEY_BYTES]> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let key = match &self.file {
            Some(file) => load_or_create(file)?,
            None => random_key(),
        };
        Ok(self.key.get_or_init(|| key))
    }
}

/// Whether a value of this schema is hidden.
pub fn is_hidden(schema: &Value) -> bool {
    schema["writeOnly"] == true || schema["format"].as_str().is_some_and(is_password)
}

fn is_password(format: &str) -> bool {
    format.eq_ignore_ascii_case("password")
}

/// Whether a keyword of a schema, or anything in it, may hide a value.
fn may_hide(key: &str, value: &Value) -> bool {
    match value {
        Value::Bool(hides) => *hides && key == "writeOnly",
        Value::String(format) => key == "format" && is_password(format),
        Value::Array(items) => items.iter().any(|item| may_hide(key, item)),
        Value::Object(fields) => fields.iter().any(|(key, value)| may_hide(key, value)),
        Value::Null | Value::Number(_) => false,
    }
}

/// Returns `input` as it may be shown: hidden values as `[hidden]`.
pub fn shown(input: &Map<String, Value>) -> Map<String, Value> {
    input.iter().map(|(name, value)| (name.clone(), shown_value(value))).collect()
}

/// Returns `value` as it may be shown.
pub fn shown_value(value: &Value) -> Value {
    match value {
        Value::String(text) if is_token(text) => HIDDEN.into(),
        Value::Array(items) => items.iter().map(shown_value).collect(),
        Value::Object(fields) => Value::Object(shown(fields)),
        other => other.clone(),
    }
}

/// Whether `value` or a part of it is sealed, or only looks so.
pub fn has_token(value: &Value) -> bool {
    match value {
        Value::String(text) => is_token(text),
        Value::Array(items) => items.iter().any(has_token),
        Value::Object(fields) => fields.values().any(has_token),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Puts the sealed values of `before` back into `edited`, where a human left `[hidden]` as it was.
pub fn restore(before: &Value, edited: &mut Value) {
    match (before, edited) {
        (Value::String(token), edited) if is_token(token) && *edited == HIDDEN => *edited = before.clone(),
        (Value::Array(before), Value::Array(edited)) => {
            before.iter().zip(edited).for_each(|(before, edited)| restore(before, edited));
        }
        (Value::Object(before), Value::Object(edited)) => {
            for (name, edited) in edited {
                before.get(name).into_iter().for_each(|before| restore(before, edited));
            }
        }
        _ => {}
    }
}

fn is_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Adds the texts in `value`; a number is one too where something quotes it.
fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn cipher(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the cipher's length"))
}

fn random_key() -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).expect("the system has a source of randomness");
    key
}

/// Reads the key, or makes a new one that is durable when this returns.
fn load_or_create(file: &std::path::Path) -> io::Result<[u8; KEY_BYTES]> {
    let read = || -> io::Result<[u8; KEY_BYTES]> {
        fs::read(file)?.try_into().map_err(|_| io::Error::other(format!("`{}` is not a key", file.display())))
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let folder = file.parent().unwrap_or(std::path::Path::new("/"));
    protocol::paths::create_private(folder)?;
    let key = random_key();
    let temporary = folder.join(format!(".key.{}", uuid::Uuid::now_v7().simple()));
    let mut new = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    new.write_all(&key)?;
    new.sync_all()?;
    // Another executor may have made one meanwhile; the first one stays.
    let linked = fs::hard_link(&temporary, file);
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::File::open(folder)?.sync_all()?,
    }
    read()
}

/// Returns `schemas` and all that they apply to the same value, each once.
fn all_of_one_value<'a>(root: &'a Value, schemas: &[&'a Value]) -> Vec<&'a Value> {
    let mut known: HashSet<*const Value> = HashSet::new();
    let mut found = Vec::new();
    let mut open = schemas.to_vec();
    while let Some(schema) = open.pop() {
        if !known.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        found.push(schema);
        let references = ["$ref", "$dynamicRef", "$recursiveRef"].into_iter();
        let references = references.filter_map(|key| schema[key].as_str()?.strip_prefix('#'));
        let referred = references.filter_map(|target| {
            let target = percent_decode_str(target).decode_utf8_lossy();
            root.pointer(&target).or_else(|| anchored(root, &target))
        });
        let combined = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
        let conditional = ["then", "else"].into_iter().filter_map(|key| schema.get(key));
        let dependent = ["dependentSchemas", "dependencies"].into_iter().filter_map(|key| schema[key].as_object());
        open.extend(referred.chain(combined).chain(conditional).chain(dependent.flat_map(Map::values)));
    }
    found
}

/// The schemas of the property `name` of an object. A pattern that cannot be read counts as one that matches.
fn of_property<'a>(schema: &'a Value, name: &str) -> Vec<&'a Value> {
    let matches = |pattern: &str| regex::Regex::new(pattern).map_or(true, |pattern| pattern.is_match(name));
    let patterns = schema["patternProperties"].as_object().into_iter().flatten();
    let matching = patterns.filter(|(pattern, _)| matches(pattern)).map(|(_, property)| property);
    let named: Vec<_> = schema["properties"].get(name).into_iter().chain(matching).collect();
    if named.is_empty() { present(schema, &["additionalProperties", "unevaluatedProperties"]) } else { named }
}

/// The schemas of the item at `index` of a list.
fn of_item(schema: &Value, index: usize) -> Vec<&Value> {
    // `items` may be a list in earlier drafts.
    let listed = schema["prefixItems"].get(index).or_else(|| schema["items"].get(index));
    let others = ["items", "additionalItems", "unevaluatedItems"];
    let own = listed.map_or_else(|| present(schema, &others), |item| vec![item]);
    own.into_iter().chain(schema.get("contains")).collect()
}

fn present<'a>(schema: &'a Value, keys: &[&str]) -> Vec<&'a Value> {
    keys.iter().filter_map(|key| schema.get(*key)).collect()
}

/// The schema with that name as its anchor.
fn anchored<'a>(root: &'a Value, anchor: &str) -> Option<&'a Value> {
    let mut open = vec![root];
    while let Some(schema) = open.pop() {
        // Earlier drafts write an anchor as an id.
        let is_id = || schema["$id"].as_str().and_then(|id| id.strip_prefix('#')) == Some(anchor);
        if ["$anchor", "$dynamicAnchor"].iter().any(|key| schema[*key] == anchor) || is_id() {
            return Some(schema);
        }
        match schema {
            Value::Object(fields) => open.extend(fields.values()),
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn what_the_schema_hides_is_sealed_at_any_depth_and_opened_again() {
        let schema = object(&json!({
            "$defs": {"login": {"type": "object", "properties": {"user": {}, "pin": {"writeOnly": true}}}},
            "properties": {
                "password": {"type": "string", "format": "password"}, "name": {"type": "string"},
                "login": {"$ref": "#/$defs/login"},
                "keys": {"type": "array", "items": {"type": "string", "writeOnly": true}},
                "either": {"anyOf": [{"type": "null"}, {"properties": {"token": {"format": "password"}}}]},
                "env": {"additionalProperties": {"writeOnly": true}}
            }
        }));
        let input = object(&json!({"password": "hunter2", "name": "ann", "login": {"user": "u", "pin": 1234},
            "keys": ["k1", "k2"], "either": {"token": "t"}, "env": {"A": null, "B": true}}));
        let seal = Seal::default();
        let mut sealed = input.clone();
        let hidden = seal.hide(&schema, &mut sealed).expect("sealed");
        assert_eq!(hidden, ["hunter2", "1234", "k1", "k2", "t"]);
        let expected = json!({"password": HIDDEN, "name": "ann", "login": {"user": "u", "pin": HIDDEN},
            "keys": [HIDDEN, HIDDEN], "either": {"token": HIDDEN}, "env": {"A": null, "B": HIDDEN}});
        assert_eq!(Value::Object(shown(&sealed)), expected);
        assert_eq!(seal.reveal(&sealed).expect("opened"), (input.clone(), hidden));
        let mut again = input;
        seal.hide(&schema, &mut again).expect("sealed");
        assert_eq!(again, sealed, "the same value, the same token");
        assert!(Seal::default().reveal(&sealed).is_err(), "another key");
    }

    /// Every keyword by which a schema may be about a value.
    #[test]
    fn what_is_hidden_by_any_keyword_is_sealed() {
        let secret = json!({"type": "string", "format": "password"});
        for (schema, input) in [
            (json!({"properties": {"a": {"format": "Password"}}}), json!({"a": "S"})),
            (json!({"patternProperties": {"^a": secret}}), json!({"ab": "S"})),
            (json!({"patternProperties": {"^(?!b)": secret}}), json!({"ab": "S"})),
            (json!({"properties": {"o": {"patternProperties": {"^a": secret}}}}), json!({"o": {"ab": "S"}})),
            (json!({"unevaluatedProperties": secret}), json!({"a": "S"})),
            (json!({"properties": {"l": {"prefixItems": [{}, secret]}}}), json!({"l": ["x", "S"]})),
            (json!({"properties": {"l": {"items": [{}, secret]}}}), json!({"l": ["x", "S"]})),
            (json!({"properties": {"l": {"items": [{}], "additionalItems": secret}}}), json!({"l": ["x", "S"]})),
            (json!({"properties": {"l": {"prefixItems": [{}], "unevaluatedItems": secret}}}), json!({"l": ["x", "S"]})),
            (json!({"properties": {"l": {"contains": secret}}}), json!({"l": ["S"]})),
            (json!({"dependentSchemas": {"b": {"properties": {"a": secret}}}}), json!({"a": "S", "b": "x"})),
            (json!({"dependencies": {"b": {"properties": {"a": secret}}}}), json!({"a": "S", "b": "x"})),
            (
                json!({"$defs": {"s": {"$anchor": "s", "writeOnly": true}}, "properties": {"a": {"$ref": "#s"}}}),
                json!({"a": "S"}),
            ),
            (json!({"then": {"properties": {"a": secret}}}), json!({"a": "S"})),
            (json!({"$defs": {"p q": secret}, "properties": {"a": {"$ref": "#/$defs/p%20q"}}}), json!({"a": "S"})),
            (json!({"$defs": {"p": secret}, "properties": {"a": {"$ref": "#/%24defs/p"}}}), json!({"a": "S"})),
            (
                json!({"definitions": {"p": {"$id": "#pp", "format": "password"}}, "properties": {"a": {"$ref": "#pp"}}}),
                json!({"a": "S"}),
            ),
            (json!({"properties": {"a": secret, "o": {"$recursiveRef": "#"}}}), json!({"o": {"a": "S"}})),
        ] {
            let mut sealed = object(&input);
            let hidden = Seal::default().hide(&object(&schema), &mut sealed).expect("sealed");
            assert!(
                hidden == ["S"] && !Value::Object(shown(&sealed)).to_string().contains("\"S\""),
                "{schema}: {hidden:?}"
            );
            assert!(!input.to_string().contains('x') || Value::Object(sealed).to_string().contains('x'), "{schema}");
        }
    }

    #[test]
    fn a_token_depends_on_the_whole_value_and_cannot_be_changed() {
        let seal = Seal::default();
        let token = |value: &Value| seal.token(value).expect("sealed");
        assert_ne!(token(&json!("a")), token(&json!("b")));
        assert_ne!(token(&json!("1")), token(&json!(1)));
        let whole = token(&json!("secret"));
        let changed = format!("{}{}", &whole[..whole.len() - 4], "AAAA");
        for wrong in [changed.as_str(), PREFIX, "sealed:1:%", "sealed:1:AAAA"] {
            assert!(seal.open(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_edit_keeps_what_the_human_left_hidden() {
        let before = json!({"a": "sealed:1:x", "b": ["sealed:1:y"], "c": "plain"});
        let mut edited = json!({"a": HIDDEN, "b": [HIDDEN], "c": HIDDEN, "d": HIDDEN});
        restore(&before, &mut edited);
        assert_eq!(edited, json!({"a": "sealed:1:x", "b": ["sealed:1:y"], "c": HIDDEN, "d": HIDDEN}));
        let mut changed = json!({"a": "new"});
        restore(&before, &mut changed);
        assert_eq!(changed, json!({"a": "new"}));
    }

    #[test]
    fn the_key_is_private_and_outlives_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secrets/.inputs.key");
        let token = Seal::at(file.clone()).token(&json!("x")).expect("sealed");
        assert_eq!(Seal::at(file.clone()).open(&token).expect("opened"), json!("x"));
        assert_eq!(fs::metadata(&file).expect("stored").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path().join("secrets")).expect("a folder").count(), 1);
        fs::write(&file, "short").expect("written");
        assert!(Seal::at(file).open(&token).is_err());
    }
}
