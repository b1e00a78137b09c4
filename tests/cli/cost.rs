//! What commands cost, in instructions: what none of them may do, however many subtools there are.
//!
//! Skipped where valgrind is missing. What commands cost in time: `cargo bench`, see BENCHMARKS.md.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde_json::{Map, Value, json};

use crate::world::World;

#[path = "../../agent-magic-tool/benches/instructions.rs"]
mod instructions;

use instructions::{can_count, profile};

const FEW: usize = 10;
const MANY: usize = 3_000;

const IN_ONE_FILE: usize = 500;

fn world(subtools: usize) -> World {
    let world = World::new();
    let numbers: Vec<_> = (0..subtools).collect();
    for chunk in numbers.chunks(IN_ONE_FILE) {
        let definitions: Map<_, _> = chunk
            .iter()
            .map(|number| {
                let definition = json!({"description": "Does something.", "input": {"type": "object"},
                    "annotations": {"readOnlyHint": true}, "run": {"process": {"argv": ["true"]}}});
                (format!("subtool_{number}"), definition)
            })
            .collect();
        world.define(&format!("from-{}.json", chunk[0]), &Value::Object(definitions));
    }
    world
}

/// Those of the executed functions that belong to one of these modules or types.
fn within(functions: BTreeSet<String>, paths: &[&str]) -> Vec<String> {
    functions.into_iter().filter(|function| paths.iter().any(|place| function.starts_with(place))).collect()
}

fn can_be_told() -> bool {
    if !can_count() {
        writeln!(std::io::stderr(), "SKIPPED: what commands cost: valgrind is not installed").expect("said");
    }
    can_count()
}

#[test]
fn a_run_costs_the_same_however_many_subtools_there_are() {
    if !can_be_told() {
        return;
    }
    let counted = [FEW, MANY].map(|subtools| {
        let world = world(subtools);
        world.run(&["executor", "start"]);
        // How often it looks for its answer differs: the least is the run to which it came soonest.
        let profiles = [(); 2].map(|()| profile(&world.command(&["run", "subtool_7"])));
        let least = profiles.iter().map(|profile| profile.instructions).min();
        for profile in profiles {
            let read = within(profile.functions, &["executor::catalog", "executor::base::schema", "jsonschema"]);
            assert!(read.is_empty(), "a run has no business with {read:?}");
        }
        least.expect("it was counted")
    });
    let [few, many] = counted;
    assert!(many.abs_diff(few) * 20 <= few, "{few} instructions with {FEW} subtools, {many} with {MANY}");
}

#[test]
fn a_list_loads_no_catalog_and_reads_no_schema_once_that_was_done() {
    if !can_be_told() {
        return;
    }
    let world = world(FEW);
    world.run(&["list"]);
    let functions = profile(&world.command(&["list"])).functions;
    assert!(functions.iter().any(|function| function.contains("executor::catalog::listing")), "names are there");
    let read = within(
        functions,
        &[
            "executor::catalog::load",
            "executor::base::schema",
            "jsonschema",
            "minijinja",
            "<serde_json::value::Value as serde",
        ],
    );
    assert!(read.is_empty(), "a list has no business with {read:?}");
}
