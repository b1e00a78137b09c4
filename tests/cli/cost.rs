//! What commands cost, counted in instructions, and which code they must not execute.
//!
//! Skipped if valgrind is not installed. For the cost in time run `cargo bench`; see BENCHMARKS.md.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::skip::skip;
use crate::world::{PROGRAM, World, full_program, until};

#[path = "../../agent-magic-tool/benches/ceilings.rs"]
mod ceilings;
#[path = "../../agent-magic-tool/benches/generated.rs"]
#[expect(dead_code, reason = "only the benchmark makes many")]
mod generated;
#[path = "../../agent-magic-tool/benches/instructions.rs"]
mod instructions;

use ceilings::{CEILINGS, Instructions, SUBTOOLS};
use instructions::{can_count, profile};

const FEW: usize = 10;
const MANY: usize = 3_000;

const IN_ONE_FILE: usize = 500;

/// How often instructions are counted before two counts are said to differ.
const MAX_COUNTS: usize = 40;

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

/// Returns those functions that belong to one of these modules or types.
fn within(functions: BTreeSet<String>, paths: &[&str]) -> Vec<String> {
    functions.into_iter().filter(|function| paths.iter().any(|path| function.starts_with(path))).collect()
}

/// Whether instructions can be counted; if not, reports that the test is skipped.
fn can_count_or_skip() -> bool {
    if !can_count() {
        skip("the cost of commands: valgrind is not installed");
    }
    can_count()
}

#[test]
fn no_command_takes_more_instructions_than_its_ceiling() {
    if !can_count_or_skip() {
        return;
    }
    let world = generated::world(SUBTOOLS);
    world.run(&["executor", "start"]);
    world.run(&["list", "tools"]);
    // A program that is named for the tests is a release build; the small one is never named.
    let max = |ceiling: &Instructions, is_named: bool| {
        if cfg!(debug_assertions) && !is_named { ceiling.debug } else { ceiling.release }
    };
    let mut over = Vec::new();
    // The executor publishes its listing when the small program first asks.
    let small = Path::new(PROGRAM).with_file_name("agent-magic-tool-small");
    until("the listing is published", || {
        world.transcript(&world.within(&small, &["list", "tools"]).output().expect("it starts"));
        world.mailbox().join("listing").exists()
    });
    let is_named = full_program() != Path::new(PROGRAM);
    let of_full = CEILINGS.iter().map(|ceiling| (ceiling, "full", full_program(), max(&ceiling.full, is_named)));
    let of_small = CEILINGS.iter().map(|ceiling| (ceiling, "small", small.clone(), max(&ceiling.small, false)));
    for (ceiling, which, program, max) in of_full.chain(of_small) {
        // How often `run` looks for its answer depends on what else the machine does, so the smallest count matters.
        let mut least = u64::MAX;
        for _ in 0..MAX_COUNTS {
            least = least.min(profile(&world.within(&program, ceiling.arguments)).instructions / 1000);
            if least <= max {
                break;
            }
        }
        if least > max {
            over.push(format!(
                "`{}` of the {which} program takes {least} k instructions, more than {max} k",
                ceiling.what
            ));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn the_cost_of_a_run_does_not_depend_on_the_number_of_subtools() {
    if !can_count_or_skip() {
        return;
    }
    let worlds = [FEW, MANY].map(world);
    for world in &worlds {
        world.run(&["executor", "start"]);
    }
    // How often `run` polls for its answer depends on what else the machine does, so the smallest counts are
    // compared, and more are taken until they agree.
    let mut least = [u64::MAX; 2];
    for _ in 0..MAX_COUNTS {
        for (least, world) in least.iter_mut().zip(&worlds) {
            let profile = profile(&world.command(&["run", "subtool_7"]));
            let read = within(profile.functions, &["catalog::", "ground::base::schema", "jsonschema"]);
            assert!(read.is_empty(), "a run must not execute {read:?}");
            *least = profile.instructions.min(*least);
        }
        if agree(least) {
            return;
        }
    }
    let [few, many] = least;
    panic!("{few} instructions with {FEW} subtools, {many} with {MANY}");
}

/// Whether two counts differ by at most 5 percent.
fn agree([few, many]: [u64; 2]) -> bool {
    many.abs_diff(few) * 20 <= few
}

#[test]
fn a_second_list_loads_no_catalog_and_parses_no_schema() {
    if !can_count_or_skip() {
        return;
    }
    let world = world(FEW);
    let list = || world.within(full_program(), &["list"]);
    world.transcript(&list().output().expect("it starts"));
    let functions = profile(&list()).functions;
    assert!(functions.iter().any(|function| function.contains("catalog::listing")), "the profile has function names");
    let read = within(
        functions,
        &["catalog::load", "ground::base::schema", "jsonschema", "minijinja", "<serde_json::value::Value as serde"],
    );
    assert!(read.is_empty(), "a list must not execute {read:?}");
}
