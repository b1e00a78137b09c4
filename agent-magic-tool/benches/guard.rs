//! Guards against regressions: the instructions of the commands that agents call, compared with their ceilings.

use crate::ceilings::{CEILINGS, SMALL_CEILINGS, SUBTOOLS};
use crate::table::{Table, Verdict};
use crate::{Effort, generated, instructions};

pub(crate) fn measure(_: Effort, table: &mut Table) {
    if !instructions::can_count() {
        return table.skip("instructions", "valgrind is not installed");
    }
    let world = generated::world(SUBTOOLS);
    world.run(&["executor", "start"]);
    world.run(&["list", "tools"]);
    let small = crate::world::program().with_file_name("agent-magic-tool-small");
    let of_small = SMALL_CEILINGS.iter().filter(|_| small.exists()).map(|ceiling| (small.clone(), ceiling));
    for (program, ceiling) in CEILINGS.iter().map(|ceiling| (crate::world::program(), ceiling)).chain(of_small) {
        // How often `run` looks for its answer varies, so the smallest count is taken.
        let counts = (0..5).map(|_| instructions::profile(&world.within(&program, ceiling.arguments)).instructions);
        let counted = counts.min().expect("there are five counts") / 1000;
        table.row(
            &format!("instructions: {}", ceiling.what),
            &format!("<= {} k", ceiling.release),
            &format!("{counted} k"),
            "",
            "",
            Verdict::of(counted <= ceiling.release),
        );
    }
}
