//! The keys that belong to a file and not to one subtool: `$schema`, `$defaults`, `$namespace`; and
//! how `$defaults` lie under a subtool.

use protocol::nearest::{did_you_mean, nearest};
use serde_json::{Map, Value};

use super::load::{MisplacedKey, concealed};
use super::reading::{ReadError, read};
use crate::catalog::definition::Definition;
use crate::task::name::SubtoolName;

/// The keys that belong to a file.
const FILE_KEYS: [&str; 3] = ["$schema", "$defaults", "$namespace"];

/// The objects of which exactly one key is chosen.
const CHOICES: [&[&str]; 5] =
    [&["run"], &["run", "http", "auth"], &["run", "http", "body"], &["run", "builtin"], &["confirm"]];

/// What a file says about all of its subtools.
#[derive(Default)]
pub(super) struct FileKeys {
    pub(super) defaults: Map<String, Value>,
    pub(super) namespace: String,
    /// Each with its place.
    pub(super) mistakes: Vec<(String, String)>,
}

impl FileKeys {
    pub(super) fn of(keys: Vec<(String, Value)>) -> Self {
        let mut file = Self::default();
        for (key, value) in keys {
            match file.take(&key, value) {
                Ok(()) => {}
                Err((None, message)) => file.mistakes.push((key, message)),
                Err((Some(place), message)) => file.mistakes.push((format!("{key}.{place}"), message)),
            }
        }
        file
    }

    fn take(&mut self, key: &str, value: Value) -> Result<(), MisplacedKey> {
        match (key, value) {
            ("$schema", Value::String(_)) => {}
            ("$schema", _) => return Err((None, "`$schema` is a string".to_owned())),
            ("$namespace", Value::String(own))
                if (1..=62).contains(&own.len()) && own.parse::<SubtoolName>().is_ok() =>
            {
                self.namespace = format!("{own}-");
            }
            ("$namespace", _) => {
                let message = "`$namespace` is a string: 1 to 62 of the characters a-z A-Z 0-9 _ -";
                return Err((None, message.to_owned()));
            }
            ("$defaults", Value::Object(own)) => {
                check_defaults(&own)?;
                self.defaults = own;
            }
            ("$defaults", _) => return Err((None, "`$defaults` is an object".to_owned())),
            (other, _) => {
                let hint = did_you_mean(nearest(other, FILE_KEYS.into_iter(), 1));
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                return Err((None, format!("the keys of a file are `$schema`, `$defaults` and `$namespace`{hint}")));
            }
        }
        Ok(())
    }
}

/// Whether each of the defaults fits by itself; what is missing, the subtools have.
fn check_defaults(defaults: &Map<String, Value>) -> Result<(), MisplacedKey> {
    for (key, value) in defaults {
        let mut whole = serde_json::json!({"description": "", "input": {}, "run": {"builtin": {"list_files": {}}}});
        whole[key] = value.clone();
        match read::<Definition>(&whole) {
            Ok(_) | Err((_, ReadError::Missing(_))) => {}
            Err((place, misfit)) => return Err((place, concealed(misfit.to_string(), defaults.get("run")))),
        }
    }
    Ok(())
}

/// Lays `own` over `defaults`, object by object.
///
/// Of [`CHOICES`], another choice replaces the default one instead of standing beside it.
pub(super) fn merge(defaults: Map<String, Value>, own: Map<String, Value>) -> Map<String, Value> {
    lay(defaults, own, &mut Vec::new())
}

/// `path` leads to both.
fn lay(mut base: Map<String, Value>, own: Map<String, Value>, path: &mut Vec<String>) -> Map<String, Value> {
    for (key, value) in own {
        match (base.remove(&key), value) {
            (Some(Value::Object(base_fields)), Value::Object(fields)) => {
                path.push(key.clone());
                let replaces = CHOICES.contains(&path.iter().map(String::as_str).collect::<Vec<_>>().as_slice())
                    && !base_fields.keys().eq(fields.keys());
                let merged = if replaces { fields } else { lay(base_fields, fields, path) };
                path.pop();
                base.insert(key, Value::Object(merged));
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
    base
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("an object") };
        object
    }

    fn merged(defaults: Value, own: Value) -> Value {
        Value::Object(merge(object(defaults), object(own)))
    }

    #[test]
    fn defaults_lie_under_a_subtool_and_a_choice_is_replaced_whole() {
        let defaults =
            json!({"run": {"http": {"base_url": "https://a", "auth": {"bearer": "secret:x"}}}, "timeout": "30s"});
        assert_eq!(
            merged(defaults.clone(), json!({"run": {"http": {"path": "/b"}}})),
            json!({"timeout": "30s", "run": {"http": {"base_url": "https://a", "auth": {"bearer": "secret:x"}, "path": "/b"}}})
        );
        let basic = json!({"basic": {"username": "u", "password": "secret:p"}});
        let other = merged(defaults.clone(), json!({"run": {"http": {"auth": basic}}}));
        assert_eq!(other["run"]["http"], json!({"base_url": "https://a", "auth": basic}));
        assert_eq!(
            merged(defaults, json!({"run": {"process": {"argv": ["true"]}}}))["run"],
            json!({"process": {"argv": ["true"]}})
        );
        let defaults = json!({"run": {"builtin": {"read_file": {"path": "a"}}}});
        let other = merged(defaults, json!({"run": {"builtin": {"list_files": {}}}}));
        assert_eq!(other["run"], json!({"builtin": {"list_files": {}}}));
    }

    #[test]
    fn a_choice_is_known_by_its_place_not_by_its_name() {
        let defaults = json!({"input": {"properties": {"body": {"type": "string"}, "run": {"type": "integer"}}},
            "run": {"http": {"body": {"json": {"body": {"a": 1}}}}}});
        let own = json!({"input": {"properties": {"body": {"description": "The text."}, "run": {"minimum": 1}}},
            "run": {"http": {"body": {"json": {"body": {"b": 2}}}}}});
        assert_eq!(
            merged(defaults, own),
            json!({"input": {"properties": {"body": {"type": "string", "description": "The text."},
                "run": {"type": "integer", "minimum": 1}}}, "run": {"http": {"body": {"json": {"body": {"a": 1, "b": 2}}}}}})
        );
    }
}
