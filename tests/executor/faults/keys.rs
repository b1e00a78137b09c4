//! Idempotency keys and cancellations under concurrency.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::oracle::{Class, Oracle};
use super::size;

#[test]
fn concurrent_runs_with_one_idempotency_key_are_one_task() {
    let oracle = Oracle::new();
    let input = |name: &str| json!({"name": name, "pause": "0.2"}).to_string();
    let run = |name: &str| oracle.world.run(&["run", "once", "--idempotency-key=k", "--input", &input(name)]);
    let ids: BTreeSet<String> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..size(40, 100)).map(|_| scope.spawn(|| run("same"))).collect();
        let ran = callers.into_iter().map(|caller| caller.join().expect("a caller"));
        ran.map(|ran| {
            assert_eq!(ran.exit, 0, "{ran}");
            ran.json()["id"].as_str().expect("an id").to_owned()
        })
        .collect()
    });
    assert_eq!(ids.len(), 1);
    for _ in 0..2 {
        let other = run("other");
        assert_eq!((other.exit, other.error()["code"].as_str()), (2, Some("idempotency-mismatch")), "{other}");
        let id = ids.first().expect("an id");
        assert_eq!(oracle.world.run(&["wait", id]).json()["status"], "succeeded");
        oracle.world.kill_executor();
    }
    assert_eq!(
        run("same").json()["id"].as_str(),
        ids.first().map(String::as_str),
        "the key should still apply after the end of the task"
    );
    assert_eq!(oracle.effects().into_iter().collect::<Vec<_>>(), [("same".to_owned(), 1)]);
    oracle.mark_uncertain("same");
    oracle.verify();
}

#[test]
fn a_cancel_at_any_moment_leads_to_one_correct_end() {
    let oracle = Oracle::with("concurrency = 2");
    let mut seed = std::time::UNIX_EPOCH.elapsed().expect("a clock").subsec_nanos();
    std::thread::scope(|scope| {
        for number in 0..size(24, 1000) {
            let id = oracle.accept(Class::ALL[number % 3], &json!({"pause": "0.05"}));
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let delay = Duration::from_micros(u64::from(seed % 150_000));
            let oracle = &oracle;
            scope.spawn(move || {
                std::thread::park_timeout(delay);
                let ran = oracle.world.run(&["cancel", &id]);
                // 5: it has already ended.
                assert!([0, 5].contains(&ran.exit), "{id} after {delay:?}: {ran}");
            });
        }
    });
    let ends = oracle.verify();
    assert!(ends.keys().all(|end| ["succeeded", "cancelled"].contains(&end.as_str())), "{ends:?}");
}
