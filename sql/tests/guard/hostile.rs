//! Every statement that is known to get past other guards is refused.

use crate::corpus::hostile;
use crate::world::{DIALECTS, World};

#[test]
fn every_hostile_statement_is_refused() {
    let mut passed = Vec::new();
    for dialect in DIALECTS {
        let world = World::new(dialect);
        let statements = hostile(dialect);
        assert!(statements.len() >= 200, "{dialect} has {}", statements.len());
        for line in statements {
            match world.check(&line.sql) {
                Ok(guarded) => passed.push(format!("{dialect}: {} {}\n    {}", line.sql, line.about, guarded.sql)),
                Err(refusal) => assert!(!refusal.hint.is_empty() && !refusal.message.is_empty(), "{}", line.sql),
            }
        }
    }
    assert!(passed.is_empty(), "{} hostile statements pass:\n{}", passed.len(), passed.join("\n"));
}

#[test]
fn where_writing_is_allowed_only_the_plain_writes_among_them_pass() {
    let mut wrong = Vec::new();
    for dialect in DIALECTS {
        let world = World::new(dialect).writing();
        for line in hostile(dialect) {
            let result = world.check(&line.sql);
            let is_plain_write = line.about.contains("(w)");
            if result.is_ok() != is_plain_write || result.as_ref().is_ok_and(|guarded| !guarded.kind.is_write()) {
                wrong.push(format!(
                    "{dialect}: {} {}\n    {:?}",
                    line.sql,
                    line.about,
                    result.map(|guarded| guarded.sql)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} statements are judged wrongly:\n{}", wrong.len(), wrong.join("\n"));
}
