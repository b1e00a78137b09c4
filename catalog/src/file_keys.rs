//! The keys of a definition file that apply to the whole file: `$schema`, `$source`, `$defaults`, `$namespace` and
//! `$overrides`. Also merges `$defaults` into a subtool.

use definition::Definition;
use ground::task::name::SubtoolName;
use protocol::nearest::{did_you_mean, nearest};
use serde_json::{Map, Value};

use super::deserialize::{LocatedMessage, ReadError, deserialize, without_values};

/// All keys of a file that are not subtools.
const FILE_KEYS: [&str; 5] = ["$schema", "$source", "$defaults", "$namespace", "$overrides"];

/// The paths of the objects that have exactly one of several keys.
const CHOICES: [&[&str]; 5] =
    [&["run"], &["run", "http", "auth"], &["run", "http", "body"], &["run", "builtin"], &["confirm"]];

/// The settings of a file for all of its subtools.
#[derive(Default)]
pub(super) struct FileKeys {
    pub(super) defaults: Map<String, Value>,
    pub(super) namespace: String,
    /// Changes of shipped subtools, by their names.
    pub(super) overrides: Map<String, Value>,
    /// Messages, each with its location.
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

    fn take(&mut self, key: &str, value: Value) -> Result<(), LocatedMessage> {
        match (key, value) {
            ("$schema", Value::String(_)) => {}
            ("$schema", _) => return Err((None, "`$schema` must be a string".to_owned())),
            // Where the file was imported from. Only the command `import` reads it.
            ("$source", Value::Object(_)) => {}
            ("$source", _) => return Err((None, "`$source` must be an object".to_owned())),
            ("$namespace", Value::String(own))
                if (1..=62).contains(&own.len()) && own.parse::<SubtoolName>().is_ok() =>
            {
                self.namespace = format!("{own}-");
            }
            ("$namespace", _) => {
                let message = "`$namespace` must be a string of 1 to 62 of the characters a-z A-Z 0-9 _ -";
                return Err((None, message.to_owned()));
            }
            ("$defaults", Value::Object(own)) => {
                check_defaults(&own)?;
                self.defaults = own;
            }
            ("$defaults", _) => return Err((None, "`$defaults` must be an object".to_owned())),
            ("$overrides", Value::Object(own)) => {
                for (name, changes) in &own {
                    let Value::Object(changes) = changes else {
                        return Err((Some(name.clone()), "an override must be an object".to_owned()));
                    };
                    check_defaults(changes).map_err(|(place, message)| {
                        (Some(place.map_or_else(|| name.clone(), |place| format!("{name}.{place}"))), message)
                    })?;
                }
                self.overrides = own;
            }
            ("$overrides", _) => return Err((None, "`$overrides` must be an object".to_owned())),
            (other, _) => {
                let hint = did_you_mean(nearest(other, FILE_KEYS.into_iter(), 1));
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                return Err((
                    None,
                    format!(
                        "the only file keys are `$schema`, `$source`, `$defaults`, `$namespace` and `$overrides`{hint}"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Checks each of the defaults on its own. Missing keys are allowed, since the subtools may have them.
fn check_defaults(defaults: &Map<String, Value>) -> Result<(), LocatedMessage> {
    for (key, value) in defaults {
        let mut whole = serde_json::json!({"description": "", "input": {}, "run": {"builtin": {"list_files": {}}}});
        whole[key] = value.clone();
        match deserialize::<Definition>(&whole) {
            Ok(_) | Err((_, ReadError::Missing(_))) => {}
            Err((place, error)) => return Err((place, without_values(error.to_string(), defaults.get("run")))),
        }
    }
    Ok(())
}

/// Merges `own` over `defaults`, object by object.
///
/// In the objects of [`CHOICES`], another key replaces the default one instead of being added to it.
pub fn merge(defaults: Map<String, Value>, own: Map<String, Value>) -> Map<String, Value> {
    merge_at(defaults, own, &mut Vec::new())
}

/// Merges two objects that are both at `path`.
fn merge_at(mut base: Map<String, Value>, own: Map<String, Value>, path: &mut Vec<String>) -> Map<String, Value> {
    for (key, value) in own {
        match (base.remove(&key), value) {
            (Some(Value::Object(base_fields)), Value::Object(fields)) => {
                path.push(key.clone());
                let replaces = CHOICES.contains(&path.iter().map(String::as_str).collect::<Vec<_>>().as_slice())
                    && !base_fields.keys().eq(fields.keys());
                let merged = if replaces { fields } else { merge_at(base_fields, fields, path) };
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
    fn a_subtool_is_merged_over_the_defaults_and_another_choice_replaces_the_default() {
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
    fn a_choice_is_recognized_by_its_path_and_not_by_its_name() {
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
