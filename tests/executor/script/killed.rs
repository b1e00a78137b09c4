//! Scripts whose executor and whose process are killed at random moments.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{called, start, world};
use crate::executor::faults::size;
use crate::world::{World, until};

/// Fifty calls: side by side, one after another, ten that fail, and one that a human must approve.
const FIFTY_CALLS: &str = "
const many = await Promise.all(Array.from({length: 10}, (_, n) => put({n})));
let refused = 0;
for (let n = 0; n < 8; n++) { try { await fail({}) } catch { refused++ } }
let asked;
try { asked = await tools['ask-first']({n: 7}) } catch (e) { if (!(e instanceof OutcomeUnknown)) throw e; asked = 'in doubt' }
const single = [];
for (let n = 10; n < 30; n++) single.push(await put({n}));
const last = await Promise.allSettled([fail({}), ...Array.from({length: 9}, (_, n) => put({n: n + 30})), fail({})]);
const order = Math.floor(Math.random() * 1000) >= 0;
return {many: many.length, refused, asked, single: single.at(-1), last: last.filter(it => it.status === 'fulfilled').length, order};
";

/// How often each script loses its executor or its process.
const KILLS: usize = 10;
/// The numbers of the calls of `put`.
const PUTS: usize = 39;

/// Chance that can be repeated: a linear congruential generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The process of the script, if it has one now.
fn worker_in(world: &World) -> Option<Pid> {
    let executor = world.executor()?;
    let children = fs::read_to_string(format!("/proc/{executor}/task/{executor}/children")).ok()?;
    let of_threads = fs::read_dir(format!("/proc/{executor}/task")).ok()?.flatten();
    let of_threads = of_threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let all = std::iter::once(children).chain(of_threads).collect::<Vec<_>>().join(" ");
    let is_worker = |pid: &&str| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.windows(13).any(|part| part == b"script-worker"))
    };
    all.split_whitespace().find(is_worker)?.parse().ok().map(Pid::from_raw)
}

/// Approves what waits for a human.
fn approve(world: &World) {
    let waiting = world.run(&["tasks", "--state=awaiting_confirmation"]);
    for task in waiting.json().as_array().into_iter().flatten() {
        let id = task["id"].as_str().expect("an id");
        // An executor that has just started may not have come to it.
        if world.result_file(id)["state"] == "awaiting_confirmation" {
            world.decide(id, "approve", "ask-first");
        }
    }
}

#[test]
fn killed_at_random_moments_a_script_does_everything_once() {
    for seed in 0..size(2, 20) as u64 {
        let mut chance = Chance(seed);
        let world = world();
        let id = start(&world, FIFTY_CALLS);
        // Without the human it does not end before.
        let least = if seed % 2 == 0 { 1 } else { KILLS / 2 };
        let mut killed = 0;
        while killed < KILLS && world.result_file(&id)["status"] == "pending" {
            let moment = Instant::now() + Duration::from_millis(chance.below(60));
            until("a random moment", || Instant::now() >= moment);
            match chance.below(3) {
                0 => {
                    let worker = worker_in(&world);
                    killed += usize::from(worker.is_some_and(|worker| kill(worker, Signal::SIGKILL).is_ok()));
                }
                _ => killed += usize::from(world.kill_executor().is_some()),
            }
            // Either starts the next executor.
            if killed >= least {
                approve(&world);
            } else {
                world.run(&["tasks"]);
            }
        }
        assert!(killed >= least, "seed {seed}: the script ended after {killed} kills");
        until("the script has ended", || {
            approve(&world);
            world.result_file(&id)["status"] != "pending"
        });
        let ended = world.result_file(&id);
        // Of what is killed while it happens, no one knows whether it did.
        let asked = &ended["data"]["asked"];
        assert!(asked == "approved 7" || asked == "in doubt", "seed {seed}: {ended:#}");
        let expected = json!({"many": 10, "refused": 8, "asked": asked, "single": "put 29", "last": 9, "order": true});
        assert_eq!(ended["data"], expected, "seed {seed}: {ended:#}");
        let calls = ended["_meta"]["script"]["calls"].clone();
        assert_eq!(calls, Value::from(50), "seed {seed}: {ended:#}");
        let called = called(&world);
        let is_once = called.len() == PUTS && called.values().all(|tasks| tasks.len() == 1);
        assert!(is_once, "seed {seed}: {called:?}");
        let approved = fs::read_to_string(world.folder().join("approved")).unwrap_or_default();
        assert!(approved == "7\n" || (approved.is_empty() && asked == "in doubt"), "seed {seed}: {approved}");
    }
}
