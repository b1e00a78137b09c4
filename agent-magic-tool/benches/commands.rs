//! Measures single commands, one after another.

use std::process::Command;

use crate::disk::{self, Place};
use crate::generated;
use crate::measure::{self, in_turns, milliseconds, peak_memory};
use crate::table::{Table, Verdict};
use crate::world::World;
use crate::{Effort, agent, floor};

/// A run whose work itself costs next to nothing.
const READ_NOTE: [&str; 3] = ["run", "files_read", "path=note.txt"];

pub(crate) fn version(effort: Effort, table: &mut Table) {
    let world = World::new();
    let command = || agent::command(&world, &["--version"]);
    let [ours, full, bare] = in_turns(
        effort.runs,
        &mut [
            &mut || measure::run(&mut command()),
            &mut || measure::run(&mut world.command(&["--version"])),
            &mut || measure::run(&mut measure::bare()),
        ],
    );
    table.time("--version", Some(3.0), &ours, Some(("bare process", &bare)));
    table.time("--version, full program", Some(3.0), &full, Some(("bare process", &bare)));
    memory(table, "--version, peak memory", 12.0, &command());
}

fn memory(table: &mut Table, what: &str, max_mib: f64, command: &Command) {
    let found = peak_memory(command);
    table.row(what, &format!("<= {max_mib} MiB"), &format!("{found:.1} MiB"), "", "", Verdict::of(found <= max_mib));
}

pub(crate) fn run(effort: Effort, table: &mut Table) {
    for place in disk::places("run", table) {
        for subtools in [10, effort.subtools] {
            run_in(&place, subtools, effort, table);
        }
    }
}

fn run_in(place: &Place, subtools: usize, effort: Effort, table: &mut Table) {
    let world = generated::world_below(&place.folder, subtools);
    world.run(&["executor", "start"]);
    let mut commit = floor::durable_commit(&world.state());
    let [ours, full, floor] = in_turns(
        effort.runs,
        &mut [
            &mut || measure::run(&mut agent::command(&world, &READ_NOTE)),
            &mut || measure::run(&mut world.command(&READ_NOTE)),
            &mut || {
                measure::run(&mut measure::bare());
                commit();
            },
        ],
    );
    for (samples, which, target) in [(ours, "", Some(1.3)), (full, ", full program", None)] {
        let ratio = samples.median().as_secs_f64() / floor.median().as_secs_f64();
        let verdict = |most| Verdict::of(milliseconds(samples.median()) <= 10.0 && ratio <= most);
        table.row(
            &format!("run until it returns, {subtools} subtools{}{which}", place.note),
            &target.map_or_else(String::new, |most| format!("<= 10 ms and <= {most} x")),
            &samples.text(),
            &format!("bare process + commit {}", floor.text()),
            &format!("{ratio:.2}"),
            target.map_or(Verdict::NoTarget, verdict),
        );
    }
}

pub(crate) fn wait(effort: Effort, table: &mut Table) {
    let world = generated::world(10);
    world.run(&["executor", "start"]);
    let [process, builtin, bare] = in_turns(
        effort.runs,
        &mut [
            &mut || measure::run(&mut agent::command(&world, &["run", "noop", "--wait"])),
            &mut || measure::run(&mut agent::command(&world, &["run", "files_read", "path=note.txt", "--wait"])),
            &mut || measure::run(&mut measure::bare()),
        ],
    );
    table.time("run --wait of a process (`true`)", Some(15.0), &process, Some(("bare process", &bare)));
    table.time("run --wait of a built-in (files_read)", Some(15.0), &builtin, Some(("bare process", &bare)));
}
