//! How much a statement grows when its CTEs are put in the places that name them.
//!
//! Some databases do just that, so a statement of a few hundred bytes, in which each CTE names the one before it twice,
//! fills a server's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use sqlparser::ast::{ObjectName, Query, Statement};

use super::one_walk::{Visitor, walk, walk_relations};
use super::refusal::{Refusal, RefusalKind};

/// How many tables a statement may name in the end.
const MAX_EXPANDED_TABLES: u64 = 1_000;

/// Fails if the statement names too many tables, those inside of CTEs counted wherever a CTE is named.
pub(super) fn check(statement: &Statement) -> Result<(), Refusal> {
    let mut ctes = CteBodies(BTreeMap::new());
    let visited = walk(statement, &mut ctes);
    debug_assert!(visited.is_continue());
    if ctes.0.is_empty() {
        return Ok(());
    }
    let mut sizes = BTreeMap::new();
    let total: u64 =
        relations(statement).iter().map(|name| size(name, &ctes.0, &mut sizes, &mut BTreeSet::new())).sum();
    if total <= MAX_EXPANDED_TABLES {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalKind::TooLong,
        format!(
            "the statement names more than {MAX_EXPANDED_TABLES} tables, counting those of its CTEs wherever they are named"
        ),
        "name each CTE fewer times",
    ))
}

/// The relations that the CTEs of each name use. CTEs of one name count together.
struct CteBodies(BTreeMap<String, Vec<String>>);

impl Visitor<()> for CteBodies {
    fn visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.0.entry(cte.alias.name.value.to_lowercase()).or_default().extend(relations(cte.query.as_ref()));
        }
        ControlFlow::Continue(())
    }
}

fn relations(node: &impl sqlparser::ast::Visit) -> Vec<String> {
    let mut names = Vec::new();
    let visited = walk_relations(node, |name: &ObjectName| {
        let last = name.0.last().and_then(|part| part.as_ident());
        names.extend(last.map(|ident| ident.value.to_lowercase()));
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue());
    names
}

/// How many tables stand behind a name. A CTE that names itself is counted once.
fn size(
    name: &str,
    ctes: &BTreeMap<String, Vec<String>>,
    sizes: &mut BTreeMap<String, u64>,
    open: &mut BTreeSet<String>,
) -> u64 {
    if let Some(size) = sizes.get(name) {
        return *size;
    }
    let Some(body) = ctes.get(name).filter(|_| open.insert(name.to_owned())) else { return 1 };
    let behind = body.iter().map(|other| size(other, ctes, sizes, open)).fold(0, u64::saturating_add);
    open.remove(name);
    let size = behind.max(1);
    sizes.insert(name.to_owned(), size);
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::guard::text::parse_one;

    fn is_small(sql: &str) -> bool {
        check(&parse_one(Dialect::Mysql, sql).expect("it parses")).is_ok()
    }

    #[test]
    fn ctes_that_multiply_are_counted_in_the_end() {
        let doubling = |levels: usize| {
            let ctes =
                (1..levels).map(|level| format!("a{level} AS (SELECT x.z FROM a{0} x CROSS JOIN a{0} y)", level - 1));
            let ctes: Vec<_> = std::iter::once("a0 AS (SELECT 1 AS z)".to_owned()).chain(ctes).collect();
            format!("WITH {} SELECT count(*) FROM a{}", ctes.join(", "), levels - 1)
        };
        assert!(is_small(&doubling(5)) && !is_small(&doubling(16)) && !is_small(&doubling(60)));
        assert!(!is_small(&format!("SELECT * FROM ({}) AS t", doubling(16))));
        assert!(is_small(
            "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT * FROM n JOIN n AS m ON true"
        ));
        assert!(is_small("SELECT * FROM a, b, c"));
    }
}
