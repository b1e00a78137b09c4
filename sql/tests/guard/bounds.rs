//! Texts that are long, deep or broken are refused in words, and nothing overflows the stack.

use sql::guard::{MAX_STATEMENT_BYTES, RefusalKind};

use crate::world::{DIALECTS, World};

#[test]
fn a_long_chain_is_refused_and_a_list_of_the_same_length_is_not() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        let kind = |sql: &str| world.check(sql).map(drop).map_err(|refusal| refusal.kind);
        for chain in [
            format!("SELECT 1{}", " OR 1".repeat(60_000)),
            format!("SELECT 1{}", " OR 1".repeat(10_000)),
            format!("SELECT 1{}", "+1".repeat(20_000)),
            format!("SELECT 1{}", " UNION SELECT 1".repeat(4_000)),
            format!("SELECT 1{}", " IS NULL".repeat(8_000)),
            format!("SELECT {}1", "NOT ".repeat(16_000)),
            format!("SELECT {}1", "- ".repeat(30_000)),
            format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
            format!("SELECT {}1{}", "(SELECT ".repeat(5_000), ")".repeat(5_000)),
            format!("SELECT {}1{}", "CASE WHEN 1 THEN ".repeat(3_000), " END".repeat(3_000)),
            format!("SELECT 1 FROM orders{}", " JOIN orders".repeat(5_000)),
        ] {
            assert_eq!(kind(&chain), Err(RefusalKind::TooLong), "{dialect}: {}", &chain[..40]);
        }
        let ids: Vec<String> = (0..9_000).map(|id| id.to_string()).collect();
        assert_eq!(kind(&format!("SELECT id FROM orders WHERE id IN ({})", ids.join(","))), Ok(()));
        let tables = vec!["customers"; 400].join(", ");
        assert_eq!(kind(&format!("SELECT 1 FROM {tables}")), Err(RefusalKind::TooLong));
        // Each part has twice the columns of the one before.
        let doubled: Vec<String> =
            (1..60).map(|part| format!("x{part} AS (SELECT a.*, b.* FROM x{0} AS a, x{0} AS b)", part - 1)).collect();
        let doubling = format!("WITH x0 AS (SELECT * FROM orders), {} SELECT 1 FROM x59", doubled.join(", "));
        assert_eq!(kind(&doubling), Err(RefusalKind::TooLong));
    }
}

#[test]
fn a_chain_just_within_the_bounds_is_walked_printed_and_dropped() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for chain in [
            format!("SELECT 1{}", " OR 1".repeat(1_900)),
            format!("SELECT 1{}", " || 'x'".repeat(1_900)),
            format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(600)),
            format!("SELECT id FROM orders WHERE id{}", " + 1".repeat(1_900)),
            format!("SELECT CASE {} END", "WHEN 1 = 1 THEN 1 ".repeat(400)),
        ] {
            world.check(&chain).unwrap_or_else(|refusal| panic!("{dialect}: {} {refusal}", &chain[..40]));
        }
    }
}

#[test]
fn nesting_that_the_parser_cannot_take_is_refused_in_words() {
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for depth in 1..120 {
            for (open, close) in
                [("(", ")"), ("(SELECT ", ")"), ("abs(", ")"), ("NOT ", ""), ("- ", ""), ("CASE WHEN 1 THEN ", " END")]
            {
                let sql = format!("SELECT {}1{}", open.repeat(depth), close.repeat(depth));
                if let Err(refusal) = world.check(&sql) {
                    assert!(depth > 10, "{dialect}: {sql} {refusal}");
                    // At its limit the parser may also take a word for a name, and fail there.
                    let is_in_words = matches!(refusal.kind, RefusalKind::TooLong | RefusalKind::Syntax);
                    assert!(is_in_words, "{dialect}: {sql} {refusal}");
                }
            }
        }
    }
}

#[test]
fn broken_texts_are_refused_in_words() {
    let too_long = format!("SELECT '{}'", "x".repeat(MAX_STATEMENT_BYTES));
    for dialect in DIALECTS {
        let world = World::new(dialect);
        for (sql, kind) in [
            (too_long.as_str(), RefusalKind::TooLong),
            ("", RefusalKind::NotOneStatement),
            ("  \n\t -- nothing\n", RefusalKind::NotOneStatement),
            ("SELECT 1\0", RefusalKind::Syntax),
            ("SELECT 'a\0b'", RefusalKind::Syntax),
            ("SELECT 'a", RefusalKind::Syntax),
            ("SELECT /* a", RefusalKind::Syntax),
            ("SELECT \u{200b}1", RefusalKind::Syntax),
            ("SELECT \u{feff}1", RefusalKind::Syntax),
            ("ＳＥＬＥＣＴ 1", RefusalKind::Syntax),
            ("SELECT id FROM оrders", RefusalKind::Syntax),
            ("SELECT 1 SELECT 2", RefusalKind::Syntax),
            ("SELECT 1; SELECT 2", RefusalKind::NotOneStatement),
            ("DELETE FROM orders", RefusalKind::ReadOnly),
            ("DROP TABLE orders", RefusalKind::NotAllowed),
        ] {
            let refusal = world.check(sql).unwrap_err();
            assert_eq!(refusal.kind, kind, "{dialect}: {sql:.40?} {refusal}");
            assert!(!refusal.hint.is_empty());
        }
    }
}
