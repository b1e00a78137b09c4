//! Guards against regressions: the instructions of the commands that agents call, compared with their ceilings.

use std::path::PathBuf;

use crate::ceilings::{CEILINGS, SUBTOOLS};
use crate::table::{Table, Verdict};
use crate::world::until;
use crate::{Effort, agent, generated, instructions, measure};

pub(crate) fn measure(_: Effort, table: &mut Table) {
    if !instructions::can_count() {
        return table.skip("instructions", "valgrind is not installed");
    }
    let world = generated::world(SUBTOOLS);
    world.run(&["executor", "start"]);
    world.run(&["list", "tools"]);
    let full = crate::world::program();
    // The executor publishes its listing when the small program first asks.
    let mut list = agent::command(&world, &["list", "tools"]);
    let small = PathBuf::from(list.get_program());
    until("the listing is published", || {
        measure::run(&mut list);
        world.mailbox().join("listing").exists()
    });
    let of_full = CEILINGS.iter().map(|ceiling| (ceiling, "", full.clone(), ceiling.full.release));
    let of_small = CEILINGS.iter().map(|ceiling| (ceiling, ", small program", small.clone(), ceiling.small.release));
    for (ceiling, which, program, max) in of_full.chain(of_small) {
        // How often `run` looks for its answer varies, so the smallest count is taken.
        let counts = (0..5).map(|_| instructions::profile(&world.within(&program, ceiling.arguments)).instructions);
        let counted = counts.min().expect("there are five counts") / 1000;
        table.row(
            &format!("instructions: {}{which}", ceiling.what),
            &format!("<= {max} k"),
            &format!("{counted} k"),
            "",
            "",
            Verdict::of(counted <= max),
        );
    }
}
