//! Measures what the program costs, next to what the machine and a comparable tool cost at the same time.
//!
//! `cargo bench` measures everything and prints one table; `cargo bench -- --quick` uses fewer runs;
//! `cargo bench -- run` measures only the groups whose name contains `run`. A measurement over its target is
//! marked in the table, but only a measurement that does not work fails the program. `--write` has the table and its plots
//! written into `BENCHMARKS.md`.

use std::process::ExitCode;

mod agent;
mod catalog;
#[expect(dead_code, reason = "the benchmark measures a release build")]
mod ceilings;
mod commands;
mod context;
mod daemon;
mod disk;
mod floor;
mod generated;
mod guard;
#[expect(dead_code, reason = "only the tests read function names")]
mod instructions;
mod load;
mod measure;
mod peer;
mod plot;
mod report;
mod table;
#[path = "../../tests/world.rs"]
#[expect(dead_code, reason = "only the tests use all of it")]
mod world;

use table::Table;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Runs of one command.
    pub(crate) runs: usize,
    /// Tasks of one throughput measurement.
    pub(crate) tasks: usize,
    /// Open tasks for measuring the executor's memory.
    pub(crate) open: usize,
    /// The number of subtools in a large catalog.
    pub(crate) subtools: usize,
}

const FULL: Effort = Effort { runs: 200, tasks: 4_000, open: 10_000, subtools: generated::MANY };
const QUICK: Effort = Effort { runs: 40, tasks: 1_000, open: 2_000, subtools: generated::MANY };

type Group = fn(Effort, &mut Table);

/// Every group, in the order of the table.
const GROUPS: &[(&str, Group)] = &[
    ("floor", floor::measure),
    ("version", commands::version),
    ("list", catalog::list),
    ("run", commands::run),
    ("wait", commands::wait),
    ("peer", peer::measure),
    ("load", load::measure),
    ("executor", daemon::measure),
    ("context", context::measure),
    ("guard", guard::measure),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [mark, command @ ..] = arguments.as_slice()
        && mark == measure::PEAK_MEMORY_OF
    {
        return measure::print_peak_memory(command);
    }
    let effort = if arguments.iter().any(|argument| argument == "--quick") { QUICK } else { FULL };
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let mut table = Table::default();
    for (name, measure) in GROUPS.iter().filter(|(name, _)| is_wanted(name)) {
        table::progress(&format!("{name} ..."));
        measure(effort, &mut table);
    }
    table.print();
    if arguments.iter().any(|argument| argument == "--write") {
        let runs = format!("{} runs of each command", effort.runs);
        if let Err(error) = report::write(&table, &runs) {
            table::progress(&format!("failed to write the report: {error}"));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
