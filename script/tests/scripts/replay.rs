//! The same script with the same settles makes the same calls, byte for byte.

use std::time::Instant;

use script::{Limits, Start, WorkerMessage};
use serde_json::json;

use super::host::{answer, data, play, play_with, replay, start};

const SCRIPTS: [&str; 12] = [
    "return (await Promise.all([1, 2, 3, 4, 5].map(async (n) => (await echo({ n: (await echo({ n })).n * 2 })).n)))",
    "return (await Promise.allSettled([echo({ a: 1 }), fail({}), deny({}), unknown({}), sleep(5)])).map((r) => r.status + (r.reason?.name ?? ''))",
    "const first = await Promise.race([echo({ a: 1 }), echo({ b: 2 }), sleep(10)]); return await echo({ first, rest: await Promise.any([fail({}), echo({ c: 3 })]) })",
    "let page = 1; const all = []; while (page) { const got = await page_of(page); all.push(...got.items); page = got.next } function page_of(n) { return page_call(n) } async function page_call(n) { return tools.page({ page: n }) } return all",
    "for (let i = 0; i < 5; i++) { try { await fail({ code: i % 2 ? 'a' : 'b' }) } catch (e) { await echo({ code: e.code, at: Date.now(), id: crypto.randomUUID() }) } }",
    "setTimeout(() => echo({ late: Math.random() }), 50); const id = setTimeout(() => echo({ never: 1 }), 10); clearTimeout(id); await sleep(20); await echo({ now: new Date() }); return Date.now()",
    "const order = []; await Promise.all(['x', 'y', 'z'].map(async (k) => { await echo({ k }); order.push(k); await echo({ order: [...order] }) })); return order",
    "async function* pages() { for (let p = 1; p; ) { const got = await page({ page: p }); yield* got.items; p = got.next } } const out = []; for await (const item of pages()) { out.push(await echo({ item })) } return out",
    "await Promise.all(Array.from({ length: 30 }, (_, n) => echo({ n }).then(() => echo({ again: n, r: Math.random() }))))",
    "echo({ forgotten: 1 }).then(() => echo({ after: 2 })); return performance.now()",
    "await Promise.all([echo({ a: 1 }), fail({ message: 'stop' }), echo({ b: 2 })])",
    "const s = new Set(), m = new Map(); for (const n of [3, 1, 2]) { s.add(n); m.set({ n }, n) } await echo({ s: [...s], m: [...m.values()], keys: Object.keys({ b: 1, a: 2, 1: 3 }) }); console.log(new Error('x').stack.length > 0); await ask_user({ question: 'ok?' }); await read({ id: 1 }); return await list_tools('send mail')",
];

fn limited(source: &str) -> Start {
    Start { limits: Limits { max_open: 8, ..Limits::default() }, ..start(source) }
}

#[test]
fn a_script_that_is_replayed_says_the_same() {
    for source in SCRIPTS {
        for seed in 0..25_u64 {
            let mut state = seed;
            let pick = |open: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(state >> 33).expect("31 bits") % open
            };
            let recorded = play_with(limited(source), answer, pick);
            assert!(matches!(recorded.last(), WorkerMessage::Done(_) | WorkerMessage::Failed(_)), "{source}");
            assert_eq!(replay(limited(source), &recorded), recorded, "seed {seed}: {source}");
        }
    }
}

#[test]
fn a_replay_that_ends_early_continues_where_it_was() {
    let recorded = play(limited(SCRIPTS[6]));
    for kept in 0..recorded.settles.len() {
        let mut part = recorded.clone();
        part.settles.truncate(kept);
        let mut idles =
            recorded.messages.iter().enumerate().filter(|(_, message)| matches!(message, WorkerMessage::Idle(_)));
        let (end, _) = idles.nth(kept).expect("an idle after each settle");
        part.messages.truncate(end + 1);
        assert_eq!(replay(limited(SCRIPTS[6]), &part).messages, part.messages);
    }
}

#[test]
fn another_seed_or_time_is_another_run() {
    let source = "return [Math.random(), Date.now()]";
    let first = play(start(source)).value();
    assert_eq!(first, play(start(source)).value());
    assert_ne!(first, play(Start { seed: 8, ..start(source) }).value());
    assert_ne!(first, play(Start { now: 1, ..start(source) }).value());
}

#[test]
fn a_thousand_calls_are_replayed() {
    let source = "let sum = 0; for (let n = 0; n < 1000; n++) { const got = await echo({ n }); sum += got.text.length } return sum";
    let text = "x".repeat(1_000);
    let recorded = play_with(start(source), |_| Some(data(&json!({"text": text}))), |_| 0);
    assert_eq!(recorded.value(), json!(1_000_000));
    let begun = Instant::now();
    let replayed = replay(start(source), &recorded);
    eprintln!("replayed {} calls in {:?}", recorded.settles.len(), begun.elapsed());
    assert_eq!(replayed, recorded);
}
