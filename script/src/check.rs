//! Compiles a script without running it, in this process: for a developer's own, not for those of callers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use crate::engine::Engine;
use crate::limits::Limits;
use crate::messages::{Failure, Json, Start};
use crate::run::{Meter, Run, StopReason};

/// Why `source` cannot be run, if it does not parse.
pub fn mistake_in(source: &str, name: &str) -> Option<Box<Failure>> {
    let start = Start {
        source: source.to_owned(),
        name: name.to_owned(),
        input: Json::default(),
        tools: BTreeMap::new(),
        now: 0,
        seed: 0,
        limits: Limits::default(),
    };
    let run = Rc::new(RefCell::new(Run::new(&start, Box::new(io::sink()))));
    match Engine::check(&start, &run, &Rc::new(Meter::new(&start.limits))) {
        Err(StopReason::Failed(failed)) => Some(failed),
        Ok(()) | Err(StopReason::Output(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_parse_is_said_with_its_line_and_nothing_runs() {
        assert!(mistake_in("const a = await find({});\nreturn a", "late.js").is_none());
        assert!(mistake_in("throw new Error('it ran')", "late.js").is_none());
        for (source, line) in
            [("return (", 1), ("const a = 1;\nconst a = 2;", 2), ("import x from 'y'", 1), ("if (1) {", 1)]
        {
            let failed = mistake_in(source, "late.js").unwrap_or_else(|| panic!("it parses: {source}"));
            assert!(failed.line.is_none_or(|found| found >= line), "{source}: {failed:?}");
        }
    }
}
