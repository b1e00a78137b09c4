//! The catalog: loading definition files, their format, the shipped packs, search, and error messages.

use std::fs;

use catalog::{Catalog, Sources};
use ground::config::Config;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

#[path = "catalog/format.rs"]
mod format;
#[path = "catalog/lazy.rs"]
mod lazy;
#[path = "catalog/loading.rs"]
mod loading;
#[path = "catalog/manifests.rs"]
mod manifests;
#[path = "catalog/messages.rs"]
mod messages;
#[path = "catalog/packs.rs"]
mod packs;
#[path = "catalog/search.rs"]
mod search;

/// A folder with definition files, the only source of its catalog.
struct Folder {
    folder: TempDir,
    config: Config,
}

impl Folder {
    fn new() -> Self {
        let mut config = Config::default();
        config.catalog.packs.clear();
        Self { folder: tempfile::tempdir().expect("a temporary folder"), config }
    }

    /// Creates a folder with these files.
    fn with(files: &[(&str, &Value)]) -> Self {
        let folder = Self::new();
        for (name, content) in files {
            folder.write(name, content.to_string());
        }
        folder
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), content).expect("written");
    }

    fn sources(&self) -> Sources {
        Sources::new(&self.config, self.folder.path(), Some(self.folder.path().as_os_str()))
    }

    fn load(&self) -> Catalog {
        Catalog::load(&self.sources())
    }

    /// The problems as users see them, without the path of the temporary folder.
    fn problems(&self) -> Vec<String> {
        let folder = format!("{}/", self.folder.path().display());
        self.load().all_problems().iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
    }
}

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.subtools().map(|subtool| subtool.name.to_string()).collect()
}

/// A valid definition with `changes` applied; null removes a key.
fn definition(changes: Value) -> Value {
    let mut definition = json!({
        "description": "Says hello to somebody by name.",
        "input": {"type": "object", "properties": {"name": {"type": "string"}}},
        "run": {"process": {"argv": ["echo", "--", "{{ name }}"]}}
    });
    for (key, value) in object(changes) {
        definition[&key] = value;
    }
    object_mut(&mut definition).retain(|_, value| !value.is_null());
    definition
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value} is not an object") };
    object
}

fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("an object")
}
