//! Guards against regressions: the instructions of the commands that agents call, compared with a ceiling.
//!
//! A ceiling is the count when it was set, plus ten percent. A change that makes a command more expensive on
//! purpose raises its ceiling.

use crate::table::{Table, Verdict};
use crate::{Effort, generated, instructions};

/// In thousands, for a release build.
const CEILINGS: &[(&str, &[&str], u64)] = &[
    ("--version", &["--version"], 810),
    ("list --query, 100 subtools", &["list", "tools", "--query=search mail message"], 11_500),
    ("list, 100 subtools", &["list", "tools"], 4_370),
    ("run until it returns", &["run", "files_read", "path=note.txt"], 995),
];

pub(crate) fn measure(_: Effort, table: &mut Table) {
    if !instructions::can_count() {
        return table.skip("instructions", "valgrind is not installed");
    }
    let world = generated::world(100);
    world.run(&["executor", "start"]);
    world.run(&["list", "tools"]);
    for (what, arguments, ceiling) in CEILINGS {
        // How often `run` polls for its answer varies, so the smallest count is taken.
        let counts = (0..5).map(|_| instructions::profile(&world.command(arguments)).instructions);
        let counted = counts.min().expect("there are five counts") / 1000;
        table.row(
            &format!("instructions: {what}"),
            &format!("<= {ceiling} k"),
            &format!("{counted} k"),
            "",
            "",
            Verdict::of(counted <= *ceiling),
        );
    }
}
