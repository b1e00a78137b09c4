//! Measures the bytes in an agent's context, which must not depend on the number of subtools.

use crate::table::{Table, Verdict};
use crate::{Effort, generated, measure};

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let [few, many] = [10, effort.subtools].map(|subtools| {
        let world = generated::world(subtools);
        let help = measure::output(&mut world.command(&["--help"])).len();
        let found = measure::output(&mut world.command(&["list", "tools", "--query=read a file", "--limit=1"])).len();
        (help, found)
    });
    let text = |bytes: (usize, usize)| format!("{} B help + {} B for one subtool", bytes.0, bytes.1);
    let ratio = format!(
        "{:.2}",
        f64::from(u32::try_from(many.0).expect("small")) / f64::from(u32::try_from(few.0).expect("small"))
    );
    table.row(
        &format!("agent's context, {} subtools", effort.subtools),
        "as with 10",
        &text(many),
        &format!("10 subtools: {}", text(few)),
        &ratio,
        Verdict::of(many.0 == few.0),
    );
}
