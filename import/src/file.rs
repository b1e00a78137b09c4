//! Definition files: how an import is written, and how a later one is merged into what a human changed meanwhile.
//!
//! `$source` says where a file came from, and for each definition which values were generated: a short hash for each
//! of its keys. A value whose hash differs was edited here, and stays.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::document::hex;
use crate::{Imported, ImportedSubtool};

mod differences;
mod groups;
mod merge;

pub use groups::{GroupedFile, grouped, with_defaults};
pub use merge::{Merge, merge};

/// The bytes of a hash that are kept: enough that an edit is never taken for the generated value.
const HASH_BYTES: usize = 6;

/// Where the definitions of a file came from.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceRecord {
    /// The kind: `openapi`, `google`, ...
    pub kind: String,
    /// What was read: a path or a URL.
    pub from: String,
    /// What identifies the described thing across its versions.
    pub id: String,
    pub version: Option<String>,
    /// The SHA-256 of what was read.
    pub sha256: String,
    /// The pack that the file belongs to.
    pub pack: String,
    /// The options of the import, as words of the command line.
    pub options: Vec<String>,
    /// What the source says of itself.
    pub about: Map<String, Value>,
    /// For each generated definition, each key with the hash of its value: `description=1a2b… input=3c4d…`.
    pub generated: BTreeMap<String, String>,
}

impl SourceRecord {
    /// The value of `$source`.
    pub fn to_json(&self) -> Value {
        let mut record = json!({"kind": self.kind, "from": self.from, "id": self.id});
        if let Some(version) = &self.version {
            record["version"] = version.as_str().into();
        }
        record["sha256"] = self.sha256.as_str().into();
        record["pack"] = self.pack.as_str().into();
        if !self.options.is_empty() {
            record["options"] = self.options.clone().into();
        }
        if !self.about.is_empty() {
            record["about"] = self.about.clone().into();
        }
        record["generated"] = json!(self.generated);
        record
    }

    /// Reads the value of `$source` in `file`; `None` if the file was not imported.
    pub fn of_file(file: &Map<String, Value>) -> Option<Self> {
        let record = file.get("$source")?;
        let text = |key: &str| record[key].as_str().map(str::to_owned);
        let options = record["options"].as_array().into_iter().flatten();
        let generated = record["generated"].as_object()?.iter();
        Some(Self {
            kind: text("kind")?,
            from: text("from")?,
            id: text("id")?,
            version: text("version"),
            sha256: text("sha256")?,
            pack: text("pack")?,
            options: options.filter_map(Value::as_str).map(str::to_owned).collect(),
            about: record["about"].as_object().cloned().unwrap_or_default(),
            generated: generated
                .filter_map(|(name, hashes)| Some((name.clone(), hashes.as_str()?.to_owned())))
                .collect(),
        })
    }
}

/// The hashes of the values of a definition: `description=1a2b3c input=…`.
pub fn hashes(definition: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (key, value) in definition {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(key);
        text.push('=');
        text.push_str(&hash(value));
    }
    text
}

/// The hash of a value, whatever the order of its keys.
pub(crate) fn hash(value: &Value) -> String {
    fn canonical(value: &Value, text: &mut String) {
        match value {
            Value::Object(fields) => {
                let mut keys: Vec<_> = fields.keys().collect();
                keys.sort();
                text.push('{');
                for key in keys {
                    text.push_str(&Value::from(key.as_str()).to_string());
                    canonical(&fields[key], text);
                }
                text.push('}');
            }
            Value::Array(items) => {
                text.push('[');
                for item in items {
                    canonical(item, text);
                    text.push(',');
                }
                text.push(']');
            }
            plain => text.push_str(&plain.to_string()),
        }
    }
    let mut text = String::new();
    canonical(value, &mut text);
    hex(&Sha256::digest(text.as_bytes())[..HASH_BYTES])
}

/// The content of a definition file.
pub fn content(
    record: &SourceRecord,
    namespace: Option<&str>,
    defaults: &Map<String, Value>,
    subtools: &[ImportedSubtool],
) -> Map<String, Value> {
    let mut record = record.clone();
    record.generated = subtools.iter().map(|subtool| (subtool.name.clone(), hashes(&subtool.definition))).collect();
    if !defaults.is_empty() {
        record.generated.insert("$defaults".to_owned(), hash(&Value::Object(defaults.clone())));
    }
    let mut file = Map::new();
    file.insert("$schema".to_owned(), "./subtool.schema.json".into());
    file.insert("$source".to_owned(), record.to_json());
    if let Some(namespace) = namespace {
        file.insert("$namespace".to_owned(), namespace.into());
    }
    if !defaults.is_empty() {
        file.insert("$defaults".to_owned(), defaults.clone().into());
    }
    for subtool in subtools {
        file.insert(subtool.name.clone(), subtool.definition.clone().into());
    }
    file
}

/// The text of a definition file.
pub fn text(file: &Map<String, Value>) -> String {
    format!("{:#}\n", Value::Object(file.clone()))
}

/// Says in one line what came of an import: `1206 of 1223 operations`.
pub fn share(imported: &Imported) -> f64 {
    if imported.found == 0 {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of operations are small")]
    let share = imported.subtools.len() as f64 / imported.found as f64;
    (share * 10_000.0).round() / 10_000.0
}
