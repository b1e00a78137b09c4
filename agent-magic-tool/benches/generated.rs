//! Generates subtools: as many as Google's public APIs have operations, with descriptions of similar length.

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::world::World;

/// The number of operations in Google's public APIs, counting one stable version of each.
pub(crate) const MANY: usize = 13_632;
const PER_FILE: usize = 48;

const SERVICES: &[&str] = &["mail", "calendar", "drive", "compute", "storage", "billing", "people", "photos"];
const VERBS: &[&str] = &["list", "get", "insert", "update", "delete", "search", "watch", "export"];
const THINGS: &[&str] =
    &["message", "event", "file", "instance", "bucket", "invoice", "contact", "album", "label", "policy", "report"];
const FIELDS: &[&str] = &[
    "parent",
    "page_token",
    "page_size",
    "filter",
    "order_by",
    "fields",
    "request_id",
    "update_mask",
    "view",
    "language",
];

/// A world with this many subtools, of which the benchmarks use `noop` and `files_read`.
pub(crate) fn world(subtools: usize) -> World {
    with_subtools(World::new(), subtools)
}

/// Like [`world`], in a new folder in `parent`.
pub(crate) fn world_below(parent: &Path, subtools: usize) -> World {
    with_subtools(World::below(parent), subtools)
}

fn with_subtools(world: World, subtools: usize) -> World {
    world.configure("[catalog]\npacks = [\"files\"]\n");
    world.define(
        "own.json",
        &json!({"noop": {"description": "Does nothing and ends at once.", "input": {"type": "object"},
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}},
            "nap": {"description": "Sleeps.", "input": {"type": "object"}, "concurrency": 1, "timeout": "1h",
            "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["sleep", "3600"]}}}}),
    );
    fs::write(world.folder().join("note.txt"), "one\ntwo\n").expect("written");
    let numbers: Vec<_> = numbers(subtools).collect();
    for (file, chunk) in numbers.chunks(PER_FILE).enumerate() {
        let definitions: Map<_, _> = chunk.iter().map(|number| definition(*number)).collect();
        world.define(&format!("generated-{file:04}.json"), &Value::Object(definitions));
    }
    world
}

/// The names of the generated subtools in a world with this many.
pub(crate) fn names(subtools: usize) -> impl Iterator<Item = String> {
    numbers(subtools).map(|number| definition(number).0)
}

/// The total includes the own two subtools and the shipped pack.
fn numbers(subtools: usize) -> Range<usize> {
    let shipped: Map<String, Value> =
        serde_json::from_str(include_str!("../../subtools/files/files.json")).expect("the shipped pack");
    let own = 2 + shipped.keys().filter(|key| !key.starts_with('$')).count();
    own..subtools
}

fn definition(number: usize) -> (String, Value) {
    let word = |words: &'static [&'static str], step: usize| words[(number / step) % words.len()];
    let (service, verb, thing) = (word(SERVICES, 88), word(VERBS, 1), word(THINGS, 8));
    let name = format!("{service}_{thing}s_{verb}_{number}");
    let properties: Map<_, _> = FIELDS
        .iter()
        .map(|field| {
            let description =
                format!("The {field} of the {thing} that the {service} service is asked to {verb}, as in its API.");
            ((*field).to_owned(), json!({"type": "string", "description": description}))
        })
        .collect();
    let description = format!(
        "{verb}: works on each {thing} that the signed-in user has in {service}, in collection {number}; see the filter syntax."
    );
    let definition = json!({
        "description": description,
        "input": {"type": "object", "properties": properties, "required": ["parent"]},
        "annotations": {"readOnlyHint": true},
        "run": {"http": {"method": "GET", "base_url": format!("https://{service}.example.com"),
            "path": format!("/v1/{thing}s/{number}"), "query": {"filter": "{{ filter }}", "pageToken": "{{ page_token }}"}}},
    });
    (name, definition)
}
